/* The malloc family as musl 1.2.2 to 1.2.6 expects it, made of a donor's functions.
 *
 * A donor includes this last. Before, it defines as static functions:
 *   void *donor_malloc(size_t n), *donor_zalloc(size_t n), *donor_realloc(void *p, size_t n)
 *   void *donor_aligned(size_t alignment, size_t n)   alignment: a power of two; n at least 1
 *   void donor_free(void *p); size_t donor_usable(const void *p)
 *   void donor_start(void)                            before main, single-threaded
 *   void donor_fork_child(void)                       in the child, when the gate is open again
 *   void donor_trim(void), and GRAFT_HAS_TRIM         if the donor can return free memory
 *   void donor_purge(void), and GRAFT_HAS_PURGE       if it can do so for a thread that does nothing else (purge.h)
 * n is at least GRAFT_ALIGNMENT, except for donor_aligned. On failure a function returns null and sets the program's
 * errno to ENOMEM. The donor's slow path does that with graft_no_memory(), since a check of the result here would slow
 * down every call.
 *
 * Internal names are strong and hidden, public names are weak aliases of them, as in musl's src/malloc/lite_malloc.c: a
 * program with its own malloc still links, and libc's internal blocks stay with the donor. */
#ifndef GRAFT_FAMILY_H
#define GRAFT_FAMILY_H

#include <errno.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "gate.h"
#include "host.h"
#include "report.h"
#ifdef GRAFT_HAS_PURGE
#include "purge.h"
#else
static inline void graft_start_purger(void)
{
}

static inline void graft_start_due_purger(void)
{
}

static inline void graft_purge_in_child(void)
{
}
#endif

#define GRAFT_HIDDEN __attribute__((visibility("hidden")))
#define GRAFT_PUBLIC(name, internal) \
	extern __typeof(internal) name __attribute__((weak, alias(#internal), visibility("default")))
/* No header of musl's declares these. */
#define GRAFT_PUBLIC_BESIDE_MUSL(name, internal) \
	__typeof(internal) name; \
	GRAFT_PUBLIC(name, internal)
#define GRAFT_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define GRAFT_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define GRAFT_COUNT_CALL(name)                       \
	do {                                              \
		if (GRAFT_UNLIKELY(graft_counting))            \
			graft_count_call(graft_function_##name);    \
	} while (0)

/* Every block is aligned to 16 bytes, whatever its size, as musl's are on every architecture. A donor may align a block
 * of 8 bytes to 8 only, so it is never asked for less than 16. */
#define GRAFT_ALIGNMENT 16
#define GRAFT_ROUND(n) ((n) < GRAFT_ALIGNMENT ? GRAFT_ALIGNMENT : (n))

/* While statistics are counted, the heap is sampled, or a thread is due, every call goes through one of these. Otherwise
 * they cost one comparison of a word at the start of malloc and free, which then end with a tail call of the donor's own
 * function. The calls from one to the next are tail calls, too: so the caller of a sampled block is known. Where arguments
 * are on the stack, a compiler makes none, and the caller is an argument (GRAFT_CALLER_HERE). */
static __attribute__((noinline, cold)) void *graft_counted(void *block)
{
	if (graft_counting && block)
		graft_count_allocation(donor_usable(block));
	return block;
}

#include "sampled.h"

/* Whether calls are sampled; and whether nothing else makes them go the long way. */
#define GRAFT_SAMPLES (graft_detour & graft_detour_sampling || graft_heap_is_on())
#define GRAFT_ONLY_SAMPLES (GRAFT_LIKELY(graft_detour == graft_detour_sampling))
/* What is done for all of them before a call. */
#define GRAFT_BEFORE_CALL(name)                                                                                        \
	do {                                                                                                              \
		graft_start_due_purger();                                                                                     \
		GRAFT_COUNT_CALL(name);                                                                                       \
	} while (0)

static __attribute__((noinline, cold)) void *graft_counted_malloc(size_t n GRAFT_CALLER_PARAMETER)
{
	GRAFT_BEFORE_CALL(malloc);
	if (GRAFT_SAMPLES && graft_heap_is_due(n))
		return graft_sampled(0, n, 0, graft_sampled_malloc GRAFT_CALLER);
	return graft_counted(donor_malloc(n));
}

static __attribute__((noinline)) void *graft_detoured_malloc(size_t n GRAFT_CALLER_PARAMETER)
{
	if (!GRAFT_ONLY_SAMPLES)
		return graft_counted_malloc(n GRAFT_CALLER);
	if (graft_heap_is_due(n))
		return graft_sampled(0, n, 0, graft_sampled_malloc GRAFT_CALLER);
	return donor_malloc(n);
}

static __attribute__((noinline, cold)) void *graft_counted_zalloc(size_t n GRAFT_CALLER_PARAMETER)
{
	GRAFT_BEFORE_CALL(calloc);
	if (GRAFT_SAMPLES && graft_heap_is_due(n))
		return graft_sampled(0, n, 0, graft_sampled_zalloc GRAFT_CALLER);
	return graft_counted(donor_zalloc(n));
}

static __attribute__((noinline)) void *graft_detoured_zalloc(size_t n GRAFT_CALLER_PARAMETER)
{
	if (!GRAFT_ONLY_SAMPLES)
		return graft_counted_zalloc(n GRAFT_CALLER);
	if (graft_heap_is_due(n))
		return graft_sampled(0, n, 0, graft_sampled_zalloc GRAFT_CALLER);
	return donor_zalloc(n);
}

static __attribute__((noinline, cold)) void graft_counted_free(void *block)
{
	struct graft_heap_block kept;
	if (!GRAFT_ONLY_SAMPLES) {
		GRAFT_BEFORE_CALL(free);
		if (graft_counting && block)
			graft_count_free(donor_usable(block));
	}
	if (graft_heap_may_know(block))
		graft_heap_forget(block, &kept);
	donor_free(block);
}

static __attribute__((noinline)) void graft_detoured_free(void *block)
{
	if (!GRAFT_ONLY_SAMPLES || graft_heap_may_know(block))
		graft_counted_free(block);
	else
		donor_free(block);
}

static __attribute__((noinline, cold)) void *graft_counted_realloc(void *block, size_t n GRAFT_CALLER_PARAMETER)
{
	GRAFT_BEFORE_CALL(realloc);
	if (GRAFT_SAMPLES && (graft_heap_is_due(n) || graft_heap_may_know(block)))
		return graft_sampled(block, n, 0, graft_sampled_realloc GRAFT_CALLER);
	size_t before = block ? donor_usable(block) : 0;
	void *moved = donor_realloc(block, n);
	if (graft_counting && moved && block)
		graft_count_free(before);
	return graft_counted(moved);
}

static __attribute__((noinline)) void *graft_detoured_realloc(void *block, size_t n GRAFT_CALLER_PARAMETER)
{
	if (!GRAFT_ONLY_SAMPLES)
		return graft_counted_realloc(block, n GRAFT_CALLER);
	if (graft_heap_is_due(n) || graft_heap_may_know(block))
		return graft_sampled(block, n, 0, graft_sampled_realloc GRAFT_CALLER);
	return donor_realloc(block, n);
}

GRAFT_HIDDEN void *__libc_malloc(size_t n)
{
	n = GRAFT_ROUND(n);
	if (GRAFT_TAKES_DETOUR)
		return graft_detoured_malloc(n GRAFT_CALLER_HERE);
	return donor_malloc(n);
}

GRAFT_HIDDEN void *__libc_calloc(size_t count, size_t size)
{
	size_t n;
	if (GRAFT_UNLIKELY(__builtin_mul_overflow(count, size, &n)))
		return graft_no_memory();
	n = GRAFT_ROUND(n);
	if (GRAFT_TAKES_DETOUR)
		return graft_detoured_zalloc(n GRAFT_CALLER_HERE);
	return donor_zalloc(n);
}

GRAFT_HIDDEN void __libc_free(void *block)
{
	if (GRAFT_TAKES_DETOUR)
		graft_detoured_free(block);
	else
		donor_free(block);
}

/* realloc(p, 0) returns a block of size 0, as musl's does, or frees the block and returns none, as glibc's does. */
GRAFT_HIDDEN void *__libc_realloc(void *block, size_t n)
{
	if (GRAFT_UNLIKELY(!n) && block && graft_host_is_glibc()) {
		__libc_free(block);
		return 0;
	}
	n = GRAFT_ROUND(n);
	if (GRAFT_TAKES_DETOUR)
		return graft_detoured_realloc(block, n GRAFT_CALLER_HERE);
	return donor_realloc(block, n);
}

/* musl's rules (src/malloc/mallocng/aligned_alloc.c): any power of two is valid, and 0 counts as 1; others give EINVAL,
 * and overflow gives ENOMEM. An alignment that malloc guarantees anyway goes to malloc. glibc's rules: see host.h. */
static void *graft_aligned_alloc(size_t alignment, size_t n)
{
	if (GRAFT_UNLIKELY(alignment & (alignment - 1)) && graft_aligned_alloc_is_memalign())
		alignment = graft_memalign_alignment(alignment);
	if (GRAFT_UNLIKELY(alignment & (alignment - 1))) {
		errno = EINVAL;
		return 0;
	}
	if (GRAFT_UNLIKELY(alignment > PTRDIFF_MAX) || GRAFT_UNLIKELY(n > PTRDIFF_MAX - alignment))
		return graft_no_memory();
	void *block =
		alignment <= GRAFT_ALIGNMENT ? donor_malloc(GRAFT_ROUND(n)) : donor_aligned(alignment, n ? n : 1);
	return GRAFT_UNLIKELY(graft_counting) ? graft_counted(block) : block;
}

/* The public functions call each other by their public names, as musl's do, so that a program with its own malloc,
 * realloc, free or aligned_alloc gets its own blocks from all of them. If musl has no such call, and a program's free
 * would get one of the donor's blocks, they check whether malloc is still the donor's function, by comparing two
 * addresses that the linker has put in. (In a dynamic program musl checks __malloc_replaced, which the dynamic linker
 * sets.) */
GRAFT_PUBLIC(malloc, __libc_malloc);
GRAFT_PUBLIC(realloc, __libc_realloc);
GRAFT_PUBLIC(free, __libc_free);

static inline bool graft_malloc_is_replaced(void)
{
	return GRAFT_UNLIKELY(malloc != __libc_malloc);
}

/* As in musl's src/malloc/calloc.c, for a malloc that may not return zeros. */
static __attribute__((noinline, cold)) void *graft_cleared_malloc(size_t count, size_t size)
{
	size_t n;
	if (__builtin_mul_overflow(count, size, &n))
		return graft_no_memory();
	void *block = malloc(n);
	return block ? memset(block, 0, n) : 0;
}

static void *graft_calloc(size_t count, size_t size)
{
	return graft_malloc_is_replaced() ? graft_cleared_malloc(count, size) : __libc_calloc(count, size);
}
GRAFT_PUBLIC(calloc, graft_calloc);

/* As in musl's src/malloc/mallocng/aligned_alloc.c, with `__malloc_replaced && !__aligned_alloc_replaced`. */
static void *graft_aligned_alloc_if_ours(size_t alignment, size_t n)
{
	GRAFT_COUNT_CALL(aligned_alloc);
	if (GRAFT_TAKES_DETOUR && GRAFT_SAMPLES && !graft_malloc_is_replaced() && graft_heap_is_due(GRAFT_ROUND(n)))
		return graft_sampled(0, n, alignment, graft_sampled_aligned GRAFT_CALLER_HERE);
	return graft_malloc_is_replaced() ? graft_no_memory() : graft_aligned_alloc(alignment, n);
}
GRAFT_PUBLIC(aligned_alloc, graft_aligned_alloc_if_ours);

/* The functions of the family that are made of aligned_alloc use this. */
static void *graft_called_aligned_alloc(size_t alignment, size_t n)
{
	if (GRAFT_UNLIKELY(graft_counting) && aligned_alloc == graft_aligned_alloc_if_ours)
		graft_discount_call(graft_function_aligned_alloc);
	return aligned_alloc(alignment, n);
}

static void *graft_memalign(size_t alignment, size_t n)
{
	GRAFT_COUNT_CALL(memalign);
	return graft_called_aligned_alloc(graft_memalign_alignment(alignment), n);
}
GRAFT_PUBLIC(memalign, graft_memalign);

static int graft_posix_memalign(void **result, size_t alignment, size_t n)
{
	GRAFT_COUNT_CALL(posix_memalign);
	if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
		return EINVAL;
	int saved = errno;
	void *block;
	bool is_ours = aligned_alloc == graft_aligned_alloc_if_ours && !graft_malloc_is_replaced();
	if (GRAFT_TAKES_DETOUR && GRAFT_SAMPLES && is_ours) {
		if (graft_heap_is_due(GRAFT_ROUND(n)))
			return graft_sampled_status(result, n, alignment, graft_sampled_posix_memalign GRAFT_CALLER_HERE);
		block = graft_aligned_alloc(alignment, n);
	} else {
		block = graft_called_aligned_alloc(alignment, n);
	}
	if (!block) {
		errno = saved;
		return ENOMEM;
	}
	*result = block;
	return 0;
}
GRAFT_PUBLIC(posix_memalign, graft_posix_memalign);

static void *graft_valloc(size_t n)
{
	GRAFT_COUNT_CALL(valloc);
	return graft_called_aligned_alloc((size_t)getauxval(AT_PAGESZ), n);
}
GRAFT_PUBLIC(valloc, graft_valloc);

static void *graft_pvalloc(size_t n)
{
	size_t page = (size_t)getauxval(AT_PAGESZ), rounded;
	GRAFT_COUNT_CALL(pvalloc);
	if (__builtin_add_overflow(n, page - 1, &rounded))
		return graft_no_memory();
	rounded &= ~(page - 1);
	return graft_called_aligned_alloc(page, rounded ? rounded : page);
}
GRAFT_PUBLIC(pvalloc, graft_pvalloc);

static void *graft_reallocarray(void *block, size_t count, size_t size)
{
	size_t n;
	GRAFT_COUNT_CALL(reallocarray);
	if (__builtin_mul_overflow(count, size, &n))
		return graft_no_memory();
	if (GRAFT_UNLIKELY(graft_counting) && realloc == __libc_realloc)
		graft_discount_call(graft_function_realloc);
	return realloc(block, n);
}
GRAFT_PUBLIC(reallocarray, graft_reallocarray);

static size_t graft_malloc_usable_size(void *block)
{
	GRAFT_COUNT_CALL(malloc_usable_size);
	return block ? donor_usable(block) : 0;
}
GRAFT_PUBLIC(malloc_usable_size, graft_malloc_usable_size);

#ifndef GRAFT_HAS_TRIM
static void donor_trim(void)
{
}
#endif

/* glibc's function, for programs that call it; stock musl has none. Returns 1 if memory went back to the system, else 0
 * (malloc_trim(3)). */
static int graft_malloc_trim(size_t pad)
{
	(void)pad;
	GRAFT_COUNT_CALL(malloc_trim);
	int64_t before = atomic_load(&graft_returned);
	donor_trim();
	return atomic_load(&graft_returned) > before;
}
GRAFT_PUBLIC_BESIDE_MUSL(malloc_trim, graft_malloc_trim);

/* glibc's function, for programs that call it; stock musl has none. It changes nothing, since a donor has options of its
 * own. Returns 1 for the parameters that mallopt(3) documents, and 0 for an M_MXFAST out of range. For others it returns 0,
 * as the manual says, or 1 where glibc's would (malloc/malloc.c). */
static int graft_mallopt(int parameter, int value)
{
	enum { M_MXFAST = 1, M_TRIM_THRESHOLD = -1, M_ARENA_MAX = -8 };
	GRAFT_COUNT_CALL(mallopt);
	if (parameter == M_MXFAST)
		return value >= 0 && (size_t)value <= 80 * sizeof(size_t) / 4;
	return (parameter <= M_TRIM_THRESHOLD && parameter >= M_ARENA_MAX) || graft_host_is_glibc();
}
GRAFT_PUBLIC_BESIDE_MUSL(mallopt, graft_mallopt);

/* A note that says, even without symbols, which malloc and free the linker took: the distances from each entry to the
 * public name and to the donor's. They differ if a program has its own. docs/note.md has the format. */
__asm__(".pushsection .note.allograft.bond,\"a\",%note\n"
	"\t.balign 4\n"
	"\t.long 10, 16, 3\n"
	"\t.ascii \"allograft\\0\\0\\0\"\n"
	"\t.long malloc - .\n"
	"\t.long __libc_malloc - .\n"
	"\t.long free - .\n"
	"\t.long __libc_free - .\n"
	"\t.popsection");

/* The dynamic linker donates the gaps of loaded libraries (ldso/dynlink.c); a static program has none. */
GRAFT_HIDDEN void __malloc_donate(char *start, char *end)
{
	(void)start, (void)end;
}

/* musl's fork() calls this with -1 before the fork, then with 0 in the parent and 1 in the child (src/process/fork.c).
 *
 * If upstream can take and release all its locks itself, a donor defines GRAFT_HAS_FORK_LOCKS and two more functions:
 * donor_fork_prepare() runs once the gate is shut, and donor_fork_parent() before it opens. */
GRAFT_HIDDEN void __malloc_atfork(int who)
{
	if (who < 0) {
		graft_gate_shut_for_fork();
#ifdef GRAFT_HAS_FORK_LOCKS
		donor_fork_prepare();
#endif
	} else if (who == 0) {
#ifdef GRAFT_HAS_FORK_LOCKS
		donor_fork_parent();
#endif
		graft_gate_open_in_parent();
		atomic_fetch_add_explicit(&graft_forks, 1, memory_order_relaxed);
	} else {
		graft_gate_open_in_child();
		if (graft_keeps_ranges)
			graft_count_in_child();
		donor_fork_child();
		graft_purge_in_child();
	}
}

#ifdef GRAFT_SHARED
#include "glibc_figures.h"
#include "shared.h"
#endif

/* 101 is the first priority that a program may use, so this runs before every constructor of the program. The allocator
 * would also start at its first call; starting here means that there are no threads yet. */
#ifdef GRAFT_SHARED
static void graft_at_start(int count, char **words, char **environment)
#else
__attribute__((constructor(101))) static void graft_at_start(void)
#endif
{
	int saved = errno;
#ifdef GRAFT_SHARED
	(void)count, (void)words;
	graft_take_environment(environment);
	graft_seal();
	graft_register_fork();
	graft_lead_libc();
#endif
	graft_choose_report();
	donor_start();
	graft_start_purger();
	if (graft_variable_is_on("ALLOGRAFT_VERBOSE"))
		graft_say_what_is_in();
	errno = saved;
}

#ifdef GRAFT_SHARED
/* The same priority, for a function with arguments. */
__attribute__((used, section(".init_array.00101"))) static void (*const graft_start_entry)(int, char **, char **) =
	graft_at_start;
#endif

__attribute__((destructor(101))) static void graft_at_exit(void)
{
	graft_heap_at_exit();
	if (graft_counting)
		graft_report_at_exit();
}

#endif
