/* The figures that are counted while ALLOGRAFT_STATS is on: blocks and bytes by size class, calls by function, threads,
 * forks. Sizes are usable sizes, which a free knows too. docs/statistics.md describes each figure.
 *
 * Counting is behind the fork gate: no figure is half changed in a child. */
#ifndef GRAFT_COUNT_H
#define GRAFT_COUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gate.h"
#include "system.h"

/* With a constant, the compiler removes all counting. `cargo xtask bench counting` compares this variant. */
#ifdef GRAFT_WITHOUT_COUNTING
enum { graft_counting = false };
#define GRAFT_TAKES_DETOUR false
#else
GRAFT_EARLY static bool graft_counting;
#define GRAFT_TAKES_DETOUR __builtin_expect(graft_detour, 0)
#endif

/* Not zero while calls go the long way, and why: to be counted, to be sampled (heap.h), or to start a thread in the child
 * of a fork (purge.h), which ends at one of its first calls. These change while the process has one thread. The kernel
 * counts the readers of the probes in the low byte, when it likes (probes.h): so the word has a place in the file. A
 * thread that sees a change late does no harm. */
enum graft_detour_reason {
	graft_detour_readers = 0xff,
	graft_detour_counting = 0x100,
	graft_detour_sampling = 0x200,
	graft_detour_purger = 0x400,
};
extern uint16_t graft_detour __asm__("allograft_probes") __attribute__((visibility("hidden")));
__attribute__((section(".probes"))) uint16_t graft_detour = 0;

static void graft_take_detour(enum graft_detour_reason reason)
{
	__atomic_fetch_or(&graft_detour, (uint16_t)reason, __ATOMIC_RELAXED);
}

/* The functions whose calls are counted, in the order of the report. */
#define GRAFT_FUNCTIONS(X)                                                                                             \
	X(malloc) X(calloc) X(realloc) X(free) X(aligned_alloc) X(memalign) X(posix_memalign) X(valloc) X(pvalloc)           \
	X(reallocarray) X(malloc_usable_size) X(malloc_trim) X(mallopt)
#define GRAFT_FUNCTION_INDEX(name) graft_function_##name,
enum { GRAFT_FUNCTIONS(GRAFT_FUNCTION_INDEX) graft_function_count };

/* Class i has the blocks of more than the class before and up to 16 << i bytes; the last class has all larger ones. */
#define GRAFT_CLASSES 40

struct graft_class {
	_Atomic uint64_t allocations, allocated; /* blocks and bytes, since the start of the process */
	_Atomic int64_t blocks, bytes;           /* currently live */
};
static struct graft_class graft_classes[GRAFT_CLASSES];
static _Atomic uint64_t graft_calls[graft_function_count];
static _Atomic uint64_t graft_frees, graft_threads;
GRAFT_EARLY static _Atomic uint64_t graft_forks;
static _Atomic int64_t graft_live, graft_live_peak;
static bool graft_is_forked;
static __thread bool graft_thread_seen;

/* musl calls the allocator's fork hook only while there are several threads (`need_locks` in src/process/fork.c), and
 * never for _Fork. So this process is marked by a page that the kernel wipes in a child (madvise(2), Linux 4.14), or, if
 * the kernel cannot do that, by the process's id. A page that parent and child share passes the number of such forks to
 * the parent. */
static _Atomic uint32_t *graft_mark;
static _Atomic uint64_t *graft_untold_forks;
static pid_t graft_process;

/* Maps memory for counting itself, which is in no figure. */
static void *graft_count_page(int sharing, size_t length)
{
	void *page = mmap(0, length, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
	return page == MAP_FAILED ? 0 : page;
}

static __attribute__((noinline, cold)) void graft_mark_process(void)
{
	int saved = errno;
	graft_process = getpid();
	graft_untold_forks = graft_count_page(MAP_SHARED, 4096);
	if (!graft_mark) {
		graft_mark = graft_count_page(MAP_PRIVATE, 4096);
		if (graft_mark && madvise(graft_mark, 4096, MADV_WIPEONFORK)) {
			munmap(graft_mark, 4096);
			graft_mark = 0;
		}
	}
	if (graft_mark)
		atomic_store(graft_mark, 1);
	errno = saved;
}

/* Whether this process is unmarked: true once in each such process. */
static bool graft_is_unmarked(void)
{
	if (!graft_mark)
		return getpid() != graft_process;
	return !atomic_load_explicit(graft_mark, memory_order_relaxed) && !atomic_exchange(graft_mark, 1);
}

static inline struct graft_class *graft_class_of(size_t usable)
{
	int bits = usable <= 16 ? 0 : 64 - __builtin_clzll((unsigned long long)(usable - 1) >> 4);
	return &graft_classes[bits < GRAFT_CLASSES ? bits : GRAFT_CLASSES - 1];
}

/* The bound of the last class is the greatest address. */
static inline uint64_t graft_class_bound(int index)
{
	return index < GRAFT_CLASSES - 1 ? (uint64_t)16 << index : UINT64_MAX;
}

/* Set while a report is made. The thread that makes it may not exist in a child. */
static _Atomic bool graft_is_reporting;

static void graft_count_in_child(void);
/* The profile of the heap in a child (heap.h). */
static void graft_heap_in_child(void);

/* Counts a fork whose child runs this, and for which the hook was not called. */
static void graft_notice_fork(void)
{
	if (!graft_is_unmarked())
		return;
	if (graft_untold_forks)
		atomic_fetch_add(graft_untold_forks, 1);
	graft_count_in_child();
}

/* The seconds between reports, or 0, and the time of the next one. One call in 16 of a function looks at the clock. */
static uint32_t graft_period;
static _Atomic int64_t graft_due;
#define GRAFT_CALLS_PER_LOOK 16
static void graft_report_when_due(void);

static __attribute__((noinline, cold)) void graft_count_call(int function)
{
	graft_notice_fork();
	graft_gate_enter();
	if (!graft_thread_seen) {
		graft_thread_seen = true;
		atomic_fetch_add_explicit(&graft_threads, 1, memory_order_relaxed);
	}
	uint64_t before = atomic_fetch_add_explicit(&graft_calls[function], 1, memory_order_relaxed);
	graft_gate_leave();
	if (graft_period && before % GRAFT_CALLS_PER_LOOK == 0)
		graft_report_when_due();
}

/* Called before one function of the family calls another by its public name, since the program made no such call. */
static __attribute__((noinline, cold)) void graft_discount_call(int function)
{
	atomic_fetch_sub_explicit(&graft_calls[function], 1, memory_order_relaxed);
}

static __attribute__((noinline, cold)) void graft_count_allocation(size_t usable)
{
	int64_t bytes = (int64_t)usable;
	graft_gate_enter();
	struct graft_class *class = graft_class_of(usable);
	atomic_fetch_add_explicit(&class->allocations, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&class->allocated, usable, memory_order_relaxed);
	atomic_fetch_add_explicit(&class->blocks, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&class->bytes, bytes, memory_order_relaxed);
	graft_raise(&graft_live_peak, atomic_fetch_add_explicit(&graft_live, bytes, memory_order_relaxed) + bytes);
	graft_gate_leave();
}

static __attribute__((noinline, cold)) void graft_count_free(size_t usable)
{
	int64_t bytes = (int64_t)usable;
	graft_gate_enter();
	struct graft_class *class = graft_class_of(usable);
	atomic_fetch_add_explicit(&graft_frees, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&class->blocks, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&class->bytes, bytes, memory_order_relaxed);
	atomic_fetch_sub_explicit(&graft_live, bytes, memory_order_relaxed);
	graft_gate_leave();
}

/* A child counts from its fork on. It inherits the live blocks and the reserved bytes, and its peaks begin there. */
static void graft_count_in_child(void)
{
	for (int i = 0; i < GRAFT_CLASSES; i++) {
		atomic_store(&graft_classes[i].allocations, 0);
		atomic_store(&graft_classes[i].allocated, 0);
	}
	for (int i = 0; i < graft_function_count; i++)
		atomic_store(&graft_calls[i], 0);
	atomic_store(&graft_frees, 0);
	atomic_store(&graft_forks, 0);
	atomic_store(&graft_threads, 0);
	graft_thread_seen = false;
	atomic_store(&graft_live_peak, atomic_load(&graft_live));
	atomic_store(&graft_reserved_peak, atomic_load(&graft_reserved_bytes));
	atomic_store(&graft_returned, 0);
	graft_ranges_in_child();
	graft_heap_in_child();
	atomic_store(&graft_is_reporting, false);
	graft_is_forked = true;
	graft_mark_process();
}

#endif
