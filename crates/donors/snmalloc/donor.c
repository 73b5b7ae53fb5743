/* snmalloc as a donor. heap.cc compiles its headers, in C++; this file has the note, the options, the end of threads and
 * the family. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Upstream fixes its configuration when it is compiled. These are the decisions that platform.h and shared_memory.h make
 * at run time. With checks, free memory is separated in upstream's way, which goes back at once and knows no bounds. */
#ifdef SNMALLOC_CHECK_CLIENT
#define DONOR_OPTIONS_WITHOUT_CHECKS(X)
#define DONOR_ARENA_RESERVE 16384
#else
#define DONOR_ARENA_RESERVE 1024
#define DONOR_OPTIONS_WITHOUT_CHECKS(X)                                                                                \
	X(purge_debt, 3072, 0, 1073741824, 0)                                                                              \
	X(purge_credit, 32768, 0, 1073741824, 0)                                                                           \
	X(thread_cache, 256, 0, 1024, 0)                                                                                   \
	GRAFT_PURGE_PERIOD(X, 0)
#endif
#define GRAFT_OPTIONS(X)                                                                                               \
	X(purge_delay, 0, -1, 0, 0)                                                                                        \
	X(purge_decommits, 1, 0, 1, 0)                                                                                     \
	X(arena_reserve, DONOR_ARENA_RESERVE, 0, 1073741824, 0)                                                            \
	X(allow_thp, 1, 0, 1, 0)                                                                                           \
	DONOR_OPTIONS_WITHOUT_CHECKS(X)

#include "early.h"
#include "heap.h"

#define DONOR_OPTION(name) graft_options.entries[graft_option_##name].value

int64_t donor_purge_delay(void)
{
	return DONOR_OPTION(purge_delay);
}

int64_t donor_purge_decommits(void)
{
	return DONOR_OPTION(purge_decommits);
}

int64_t donor_arena_reserve(void)
{
	return DONOR_OPTION(arena_reserve);
}

int64_t donor_allow_thp(void)
{
	return DONOR_OPTION(allow_thp);
}

#ifndef SNMALLOC_CHECK_CLIENT
int64_t donor_purge_debt(void)
{
	return DONOR_OPTION(purge_debt);
}

int64_t donor_purge_credit(void)
{
	return DONOR_OPTION(purge_credit);
}

int64_t donor_thread_cache(void)
{
	return DONOR_OPTION(thread_cache);
}
#endif

/* The key whose destructor ends a thread's allocator. It is made before there are threads, and only if there can be some. */
GRAFT_EARLY static pthread_key_t donor_key;
GRAFT_EARLY static bool donor_has_key;

static void donor_end_thread(void *value)
{
	(void)value;
	heap_end_thread();
}

/* Runs at a thread's first call of the heap. The destructor runs for any value that is not null. */
void donor_begin_thread(void)
{
	if (donor_has_key)
		pthread_setspecific(donor_key, &donor_key);
}

static inline void *donor_malloc(size_t n)
{
	return heap_malloc(n);
}

static inline void *donor_zalloc(size_t n)
{
	return heap_zalloc(n);
}

static inline void *donor_realloc(void *block, size_t n)
{
	return heap_realloc(block, n);
}

static inline void *donor_aligned(size_t alignment, size_t n)
{
	return heap_aligned(alignment, n);
}

static inline void donor_free(void *block)
{
	heap_free(block);
}

static inline size_t donor_usable(const void *block)
{
	return heap_usable(block);
}

#define GRAFT_HAS_TRIM
static void donor_trim(void)
{
	heap_trim();
}

#ifndef SNMALLOC_CHECK_CLIENT
/* What all threads share: the bounds of docs/donors/snmalloc.md. The thread needs an allocator to reach it. */
#define GRAFT_HAS_PURGE
static void donor_purge(void)
{
	heap_free(heap_malloc(1));
	heap_trim();
}
#endif

static void donor_start(void)
{
	donor_has_key = graft_key_create(&donor_key, donor_end_thread) == 0;
	donor_begin_thread();
	/* The heap starts at the first call, behind the gate: a program that makes none has no memory for it. With checks it
	 * starts here: it may not find room for its table once the program has limited its address space. */
#if defined(SNMALLOC_CHECK_CLIENT) && !defined(GRAFT_LOADER)
	heap_free(heap_malloc(1));
#endif
}

/* Allocators of threads that the child does not have remain those threads' allocators: the child can use and free their
 * blocks, but their free space is not used again. Nothing needs repair: all that another thread might have held or half
 * linked is behind the gate (heap.cc). */
static void donor_fork_child(void)
{
}

#include "family.h"
