/* The results of upstream's configure, fixed for static musl programs. Upstream's headers include this file by this name.
 * A feature that is not named here is off; upstream's jemalloc_internal_defs.h.in explains each. */
#ifndef JEMALLOC_INTERNAL_DEFS_H_
#define JEMALLOC_INTERNAL_DEFS_H_

/* The compiler is always clang. */
#define JEMALLOC_HAVE_ATTR
#define JEMALLOC_HAVE_ATTR_ALLOC_SIZE
#define JEMALLOC_HAVE_ATTR_FORMAT_ARG
#define JEMALLOC_HAVE_ATTR_FORMAT_PRINTF
#define JEMALLOC_HAVE_ATTR_FALLTHROUGH
#define JEMALLOC_HAVE_ATTR_COLD
#define JEMALLOC_HAS_RESTRICT
#define JEMALLOC_GCC_ATOMIC_ATOMICS
#define JEMALLOC_GCC_U8_ATOMIC_ATOMICS
#define JEMALLOC_HAVE_BUILTIN_CLZ
#define JEMALLOC_INTERNAL_UNREACHABLE __builtin_unreachable
#define JEMALLOC_INTERNAL_FFSLL __builtin_ffsll
#define JEMALLOC_INTERNAL_FFSL __builtin_ffsl
#define JEMALLOC_INTERNAL_FFS __builtin_ffs
#define JEMALLOC_INTERNAL_POPCOUNTL __builtin_popcountl
#define JEMALLOC_INTERNAL_POPCOUNT __builtin_popcount
#ifdef __SIZEOF_INT128__
#define JEMALLOC_HAVE_INT128
#endif

/* Nothing is exported: the donor's object keeps the malloc family only. */
#define JEMALLOC_EXPORT
#define JEMALLOC_NO_PRIVATE_NAMESPACE
#define JEMALLOC_USABLE_SIZE_CONST const

/* The architecture. LG_VADDR is the size of addresses that a program gets unless it requests higher ones, even if the
 * kernel supports larger ones. */
#define LG_SIZEOF_INT 2
#define LG_SIZEOF_LONG_LONG 3
#define LG_SIZEOF_INTMAX_T 3
#if __SIZEOF_POINTER__ == 8
#define LG_SIZEOF_PTR 3
#define LG_SIZEOF_LONG 3
#define LG_VADDR 48
#else
#define LG_SIZEOF_PTR 2
#define LG_SIZEOF_LONG 2
#define LG_VADDR 32
#endif
#if defined(__x86_64__) || defined(__i386__)
#define HAVE_CPU_SPINWAIT 1
#define CPU_SPINWAIT __asm__ volatile("pause")
#elif defined(__aarch64__)
#define HAVE_CPU_SPINWAIT 1
#define CPU_SPINWAIT __asm__ volatile("isb")
#else
#define HAVE_CPU_SPINWAIT 0
#endif

/* Blocks are aligned to 16 bytes on every architecture, as musl's are. */
#define LG_QUANTUM 4
/* The largest page of the architecture's kernels: jemalloc works with any smaller one. */
#ifdef __aarch64__
#define LG_PAGE 16
#else
#define LG_PAGE 12
#endif
#define LG_HUGEPAGE 21

/* Threads. No pthread_atfork: it allocates since musl 1.2.4, and the fork gate does its work. No background threads: they
 * would bring pthread_create into every program, and would have to be restarted in every child. */
#define JEMALLOC_HAVE_PTHREAD
#define JEMALLOC_THREADED_INIT
#define JEMALLOC_TLS
#define JEMALLOC_TLS_MODEL
#define JEMALLOC_HAVE_SCHED_SETAFFINITY

/* The kernel. syscall(2) is not a cancellation point, but open and read are. */
#define JEMALLOC_USE_SYSCALL
#define JEMALLOC_HAVE_CLOCK_MONOTONIC_COARSE
#define JEMALLOC_HAVE_CLOCK_MONOTONIC
#define JEMALLOC_PROC_SYS_VM_OVERCOMMIT_MEMORY
#define JEMALLOC_MAPS_COALESCE
#define JEMALLOC_HAVE_MADVISE
#define JEMALLOC_HAVE_MADVISE_HUGE
#define JEMALLOC_PURGE_MADVISE_FREE
#define JEMALLOC_PURGE_MADVISE_DONTNEED
#define JEMALLOC_PURGE_MADVISE_DONTNEED_ZEROS
#define JEMALLOC_HAVE_MPROTECT
/* As in upstream, address space is kept for reuse if there is plenty of it. No sbrk: musl's always fails. */
#if __SIZEOF_POINTER__ == 8
#define JEMALLOC_RETAIN
#endif

/* Upstream's defaults. Its own statistics are left out, since all donors have the same ones; so is the profiler. */
#define JEMALLOC_CACHE_OBLIVIOUS
#define JEMALLOC_FILL

/* MALLOC_CONF is read through `graft_variable`. The link /etc/malloc.conf is not read: a static program's memory should
 * not depend on the machine that it is copied to. */
#define JEMALLOC_CONFIG_ENV
#define JEMALLOC_CONFIG_MALLOC_CONF ""

#include "jemalloc/internal/jemalloc_internal_overrides.h"

#endif
