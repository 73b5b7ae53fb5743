/* The malloc family as musl 1.2.2 to 1.2.6 expects it, over a donor's functions.
 *
 * A donor includes this last. Before, it has defined, as static functions:
 *   void *donor_malloc(size_t n), *donor_zalloc(size_t n), *donor_realloc(void *p, size_t n)
 *   void *donor_aligned(size_t alignment, size_t n)   alignment: a power of two; n at least 1
 *   void donor_free(void *p); size_t donor_usable(const void *p)
 *   void donor_start(void)                            before main, single-threaded
 *   void donor_fork_child(void)                       in the child, the gate open again
 *   void donor_trim(void), and GRAFT_HAS_TRIM         gives back what it can; only if the donor has such a thing
 * n is at least GRAFT_ALIGNMENT, but for donor_aligned. Failure is null with the program's errno set to ENOMEM, by
 * graft_no_memory() where a donor's slow path fails: looking at the result here would cost every call.
 *
 * Internal names are strong and hidden, public names weak aliases of them, as in musl's src/malloc/lite_malloc.c: a
 * program that brings its own malloc still links, and libc's internal blocks stay with the donor. */
#ifndef GRAFT_FAMILY_H
#define GRAFT_FAMILY_H

#include <errno.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "gate.h"
#include "report.h"

#define GRAFT_HIDDEN __attribute__((visibility("hidden")))
#define GRAFT_PUBLIC(name, internal) \
	extern __typeof(internal) name __attribute__((weak, alias(#internal), visibility("default")))
/* Declared by no header of musl's. */
#define GRAFT_PUBLIC_BESIDE_MUSL(name, internal) \
	__typeof(internal) name; \
	GRAFT_PUBLIC(name, internal)
#define GRAFT_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define GRAFT_COUNT_CALL(name)                       \
	do {                                              \
		if (GRAFT_UNLIKELY(graft_counting))            \
			graft_count_call(graft_function_##name);    \
	} while (0)

/* Every block is aligned to 16 bytes, whatever its size, as musl's are on every architecture. A donor may align a
 * block of 8 bytes to 8 only, so the least that it is asked for is 16. */
#define GRAFT_ALIGNMENT 16
#define GRAFT_ROUND(n) ((n) < GRAFT_ALIGNMENT ? GRAFT_ALIGNMENT : (n))

/* While statistics are counted, every call takes one of these; otherwise they cost a byte compared at the start of
 * malloc and free, and the donor's own function is the tail of ours. */
static __attribute__((noinline, cold)) void *graft_counted(void *block)
{
	if (block)
		graft_count_allocation(donor_usable(block));
	return block;
}

static __attribute__((noinline, cold)) void *graft_counted_malloc(size_t n)
{
	graft_count_call(graft_function_malloc);
	return graft_counted(donor_malloc(n));
}

static __attribute__((noinline, cold)) void *graft_counted_zalloc(size_t n)
{
	graft_count_call(graft_function_calloc);
	return graft_counted(donor_zalloc(n));
}

static __attribute__((noinline, cold)) void graft_counted_free(void *block)
{
	graft_count_call(graft_function_free);
	if (block)
		graft_count_free(donor_usable(block));
	donor_free(block);
}

static __attribute__((noinline, cold)) void *graft_counted_realloc(void *block, size_t n)
{
	graft_count_call(graft_function_realloc);
	size_t before = block ? donor_usable(block) : 0;
	void *moved = donor_realloc(block, n);
	if (moved && block)
		graft_count_free(before);
	return graft_counted(moved);
}

GRAFT_HIDDEN void *__libc_malloc(size_t n)
{
	n = GRAFT_ROUND(n);
	if (GRAFT_UNLIKELY(graft_counting))
		return graft_counted_malloc(n);
	return donor_malloc(n);
}

GRAFT_HIDDEN void *__libc_calloc(size_t count, size_t size)
{
	size_t n;
	if (GRAFT_UNLIKELY(__builtin_mul_overflow(count, size, &n)))
		return graft_no_memory();
	n = GRAFT_ROUND(n);
	if (GRAFT_UNLIKELY(graft_counting))
		return graft_counted_zalloc(n);
	return donor_zalloc(n);
}

GRAFT_HIDDEN void __libc_free(void *block)
{
	if (GRAFT_UNLIKELY(graft_counting))
		graft_counted_free(block);
	else
		donor_free(block);
}

/* realloc(p, 0) keeps a block of size 0, as musl's does. */
GRAFT_HIDDEN void *__libc_realloc(void *block, size_t n)
{
	n = GRAFT_ROUND(n);
	if (GRAFT_UNLIKELY(graft_counting))
		return graft_counted_realloc(block, n);
	return donor_realloc(block, n);
}

/* musl's rules (src/malloc/mallocng/aligned_alloc.c): any power of two, 0 counting as one; EINVAL for others, ENOMEM
 * on overflow. An alignment that malloc gives anyway is malloc's. */
static void *graft_aligned_alloc(size_t alignment, size_t n)
{
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

/* The public names call each other by their public names, as musl's do, so that a program that brings its own malloc,
 * realloc, free or aligned_alloc gets its own blocks from all of them. Where musl has no such call, and a program's free
 * would meet a block of ours, they ask whether malloc is still ours: two addresses that the linker has put in. (In a
 * dynamic program musl asks __malloc_replaced, which the dynamic linker sets.) */
GRAFT_PUBLIC(malloc, __libc_malloc);
GRAFT_PUBLIC(realloc, __libc_realloc);
GRAFT_PUBLIC(free, __libc_free);

static inline bool graft_malloc_is_replaced(void)
{
	return GRAFT_UNLIKELY(malloc != __libc_malloc);
}

/* As in musl's src/malloc/calloc.c, where malloc is not known to give zeros. */
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
	return graft_malloc_is_replaced() ? graft_no_memory() : graft_aligned_alloc(alignment, n);
}
GRAFT_PUBLIC(aligned_alloc, graft_aligned_alloc_if_ours);

/* For the family's own functions that are made of aligned_alloc. */
static void *graft_called_aligned_alloc(size_t alignment, size_t n)
{
	if (GRAFT_UNLIKELY(graft_counting) && aligned_alloc == graft_aligned_alloc_if_ours)
		graft_discount_call(graft_function_aligned_alloc);
	return aligned_alloc(alignment, n);
}

static void *graft_memalign(size_t alignment, size_t n)
{
	GRAFT_COUNT_CALL(memalign);
	return graft_called_aligned_alloc(alignment, n);
}
GRAFT_PUBLIC(memalign, graft_memalign);

static int graft_posix_memalign(void **result, size_t alignment, size_t n)
{
	GRAFT_COUNT_CALL(posix_memalign);
	if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
		return EINVAL;
	int saved = errno;
	void *block = graft_called_aligned_alloc(alignment, n);
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

/* glibc's, for programs that call it; stock musl has none. 1 if memory went back to the system, else 0 (malloc_trim(3)). */
static int graft_malloc_trim(size_t pad)
{
	(void)pad;
	GRAFT_COUNT_CALL(malloc_trim);
	int64_t before = atomic_load(&graft_returned);
	donor_trim();
	return atomic_load(&graft_returned) > before;
}
GRAFT_PUBLIC_BESIDE_MUSL(malloc_trim, graft_malloc_trim);

/* glibc's, for programs that call it; stock musl has none. Nothing is changed: a donor's options are its own. 1 for what
 * mallopt(3) documents, 0 for anything else and for an M_MXFAST out of its range. */
static int graft_mallopt(int parameter, int value)
{
	enum { M_MXFAST = 1, M_TRIM_THRESHOLD = -1, M_ARENA_MAX = -8 };
	GRAFT_COUNT_CALL(mallopt);
	if (parameter == M_MXFAST)
		return value >= 0 && (size_t)value <= 80 * sizeof(size_t) / 4;
	return parameter <= M_TRIM_THRESHOLD && parameter >= M_ARENA_MAX;
}
GRAFT_PUBLIC_BESIDE_MUSL(mallopt, graft_mallopt);

/* Where the linker took malloc and free from, in a note that outlives the symbols: the distance of each from its own place
 * to the public name and to ours. They differ where a program brings its own. docs/note.md has the format. */
__asm__(".pushsection .note.allograft.bond,\"a\",%note\n"
	"\t.balign 4\n"
	"\t.long 10, 16, 3\n"
	"\t.ascii \"allograft\\0\\0\\0\"\n"
	"\t.long malloc - .\n"
	"\t.long __libc_malloc - .\n"
	"\t.long free - .\n"
	"\t.long __libc_free - .\n"
	"\t.popsection");

/* The dynamic linker offers the gaps of loaded libraries (ldso/dynlink.c); a static program has none to offer. */
GRAFT_HIDDEN void __malloc_donate(char *start, char *end)
{
	(void)start, (void)end;
}

/* musl's fork() calls this with -1 before, then 0 in the parent and 1 in the child (src/process/fork.c).
 *
 * Where upstream has a way of its own to take all locks and release them, a donor defines GRAFT_HAS_FORK_LOCKS and two
 * more functions: donor_fork_prepare(), the gate shut, and donor_fork_parent(), before it opens. */
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
		if (graft_counting)
			graft_count_in_child();
		donor_fork_child();
	}
}

#ifdef GRAFT_SHARED
#include "shared.h"
#endif

/* 101 is the first priority that a program may use: before every constructor of the program's. The allocator is
 * ready without it (it starts at the first call); starting here means before there are threads. */
__attribute__((constructor(101))) static void graft_at_start(void)
{
	int saved = errno;
#ifdef GRAFT_SHARED
	graft_register_fork();
#endif
	graft_choose_report();
	donor_start();
	if (graft_variable_is_on("ALLOGRAFT_VERBOSE"))
		graft_say_what_is_in();
	errno = saved;
}

__attribute__((destructor(101))) static void graft_at_exit(void)
{
	if (graft_counting)
		graft_report_statistics();
}

#endif
