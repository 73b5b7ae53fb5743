/* mimalloc 2 as a donor: upstream's files unchanged, included in upstream's order (src/static.c). Slow paths are renamed
 * where they are defined, and wrapped in the fork gate here. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tunables.h"

/* A thread that allocates has a segment of its own. Upstream's 32 MiB would be mapped for each one, which a limit on the
 * address space (RLIMIT_AS), locked memory (mlockall) and a core file count; 4 MiB is upstream's size for 32 bits. With
 * guard pages at its ends, so small a segment has hardly a huge page as a whole. */
#if !MI_SECURE
#define MI_SEGMENT_SHIFT 22
#endif
/* The first arena has room for one. */
#define DONOR_FIRST_ARENA MI_SEGMENT_SIZE

#include "debt.h"
#include "gate.h"
#include "random.h"
#include "settings.h"
#include "system.h"
#include "thread.h"

#include "mimalloc_redirect.h"
/* mimalloc's own constructor and destructor are left out: at exit, threads may still be running and memory in use. */
#define MI_PRIM_HAS_PROCESS_ATTACH 1

#include "mimalloc.h"
/* Declarations come first: they keep the name, and the definition is renamed. */
#include "mimalloc/internal.h"
void upstream_thread_done(mi_heap_t *);

/* Only these two files use EINVAL or EAGAIN for damage to the heap; in others, they mean that there is no key. */
#if MI_SECURE
static void donor_heap_message(int error, const char *format, ...);
#define _mi_error_message donor_heap_message
#endif
/* A free of another thread's block looks at an option, and then whether that thread has ended. Here it looks at that first. */
static bool donor_free_of_ended(mi_heap_t *, mi_segment_t *, const mi_page_t *);
#define _mi_option_get_fast(option) 1
#define _mi_segment_attempt_reclaim(heap, segment) donor_free_of_ended(heap, segment, page)
#include "alloc.c"
#undef _mi_option_get_fast
#undef _mi_segment_attempt_reclaim
#undef _mi_error_message
#include "alloc-aligned.c"
#include "alloc-posix.c"

#if MI_SECURE
#define _mi_error_message donor_heap_message
#endif
#define _mi_arena_free upstream_arena_free
#define _mi_arenas_collect upstream_arenas_collect
#include "arena.c"
#undef _mi_arena_free
#undef _mi_arenas_collect
#undef _mi_error_message

#include "bitmap.c"
#include "heap.c"

#define _mi_thread_done upstream_thread_done
#include "init.c"
#undef _mi_thread_done

#include "libc.c"

#if MI_SECURE
#define _mi_error_message upstream_error_message
#endif
#include "options.c"
#undef _mi_error_message

#include "os.c"

#define _mi_malloc_generic upstream_malloc_generic
#include "page.c"
#undef _mi_malloc_generic

#include "random.c"

#define _mi_segment_page_free upstream_segment_page_free
#define _mi_segment_page_abandon upstream_segment_page_abandon
#define _mi_segment_attempt_reclaim upstream_segment_attempt_reclaim
#define _mi_segment_huge_page_free upstream_segment_huge_page_free
#define _mi_abandoned_reclaim_all upstream_abandoned_reclaim_all
#if MI_SECURE
/* Set while a segment is freed whose guard pages the kernel would not make accessible, as it may near its limit of
 * mappings. */
static __thread bool donor_guards_stay;

static bool donor_unprotect(void *address, size_t size)
{
	bool open = _mi_os_unprotect(address, size);
	donor_guards_stay |= !open;
	return open;
}
#define _mi_os_unprotect donor_unprotect

/* If a page cannot be committed, upstream fetches another segment and tries again, without end (mi_segments_page_alloc
 * calls itself) while address space lasts. Two segments for one page are enough. */
static __thread int donor_segments_fetched;

static void *donor_segment_alloc(size_t size, size_t alignment, size_t offset, bool commit, bool allow_large,
                                 mi_arena_id_t arena, mi_memid_t *memid)
{
	if (donor_segments_fetched++ >= 2)
		return 0;
	return _mi_arena_alloc_aligned(size, alignment, offset, commit, allow_large, arena, memid);
}
#define _mi_arena_alloc_aligned donor_segment_alloc

static bool donor_commit(mi_segment_t *segment, uint8_t *start, size_t size, bool *is_zero);
#define _mi_os_commit(start, size, is_zero) donor_commit(segment, (uint8_t *)(start), size, is_zero)
#endif
mi_page_t *upstream_segment_page_alloc(mi_heap_t *, size_t, size_t, mi_segments_tld_t *);
#define _mi_segment_page_alloc upstream_segment_page_alloc
#include "segment.c"
#if MI_SECURE
#undef _mi_os_unprotect
#undef _mi_arena_alloc_aligned
#undef _mi_os_commit
#endif
#undef _mi_segment_page_alloc
#undef _mi_segment_page_free
#undef _mi_segment_page_abandon
#undef _mi_segment_attempt_reclaim
#undef _mi_segment_huge_page_free
#undef _mi_abandoned_reclaim_all

#include "segment-map.c"
#include "stats.c"
#ifdef GRAFT_LOADER
size_t upstream_numa_node_count(void);
#define _mi_prim_numa_node_count upstream_numa_node_count
#endif
#if !MI_SECURE
#define _mi_prim_random_buf upstream_prim_random_buf
#endif
#include "prim/prim.c"
#undef _mi_prim_random_buf
#undef _mi_prim_numa_node_count

#include "restore.h"

#ifdef GRAFT_LOADER
/* Every process looks for nodes. Upstream looks five times where there is one; here the first look tells. */
size_t _mi_prim_numa_node_count(void)
{
	return mi_prim_access("/sys/devices/system/node/node1", R_OK) ? 1 : upstream_numa_node_count();
}
#endif

#if MI_SECURE
/* Upstream prints nothing unless MIMALLOC_SHOW_ERRORS is set, ends the program only for EFAULT, and returns from a double
 * free that it has found. Here, every damage to the heap is reported and ends the program; a request that cannot be met
 * does neither. */
static _Noreturn void donor_damage(const char *format, va_list arguments)
{
	char text[256] = "allograft: " GRAFT_DONOR ": ";
	size_t start = strlen(text);
	_mi_vsnprintf(text + start, sizeof text - start, format, arguments);
	graft_fputs(text);
	abort();
}

static void donor_heap_message(int error, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	if (error == EFAULT || error == EINVAL || error == EAGAIN)
		donor_damage(format, arguments);
	mi_show_error_message(format, arguments);
	va_end(arguments);
}

void _mi_error_message(int error, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	if (error == EFAULT)
		donor_damage(format, arguments);
	mi_show_error_message(format, arguments);
	va_end(arguments);
}
#endif

/* Operations on state that threads share, behind the gate. */

void *_mi_malloc_generic(mi_heap_t *heap, size_t size, bool zero, size_t huge_alignment, mi_page_t **page) mi_attr_noexcept
{
	graft_gate_enter();
	void *block = upstream_malloc_generic(heap, size, zero, huge_alignment, page);
	graft_gate_leave();
	return __builtin_expect(block != 0, 1) ? block : graft_no_memory();
}

/* An arena has a time when its free blocks are due, and all arenas together have one: zero if nothing is. Upstream sets
 * both, marks the blocks, and then makes them free. A thread that looks for what is due meanwhile sets the times to zero
 * and leaves the blocks: until the arena's next free, and without end if only the time of all arenas is zero, since nobody
 * sets it as long as an arena has a time. So both are set again, for blocks that are marked and free ... */
static void donor_set_due(size_t size, mi_memid_t memid)
{
	size_t index, start, marked = 0;
	if (!size || memid.memkind != MI_MEM_ARENA || mi_arena_purge_delay() <= 0)
		return;
	mi_arena_memid_indices(memid, &index, &start);
	mi_arena_t *arena = mi_atomic_load_ptr_acquire(mi_arena_t, &mi_arenas[index]);
	if (arena->blocks_purge == NULL)
		return;
	_mi_bitmap_is_claimed_across(arena->blocks_purge, arena->field_count, mi_block_count_of_size(size), start, &marked);
	mi_msecs_t none = 0;
	if (marked > 0 && mi_atomic_loadi64_acquire(&arena->purge_expire) == 0)
		mi_atomic_casi64_strong_acq_rel(&arena->purge_expire, &none, _mi_clock_now() + mi_arena_purge_delay());
}

/* ... and for all arenas, by every thread that may have set that time to zero. The fence is between the store of zero and
 * the look at the arenas: the other thread sets its arena's time first. */
static void donor_set_all_due(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (mi_atomic_loadi64_acquire(&mi_arenas_purge_expire) != 0)
		return;
	size_t count = mi_atomic_load_acquire(&mi_arena_count);
	for (size_t i = 0; i < count; i++) {
		mi_arena_t *arena = mi_atomic_load_ptr_acquire(mi_arena_t, &mi_arenas[i]);
		mi_msecs_t none = 0, due = arena ? mi_atomic_loadi64_acquire(&arena->purge_expire) : 0;
		if (due != 0)
			mi_atomic_casi64_strong_acq_rel(&mi_arenas_purge_expire, &none, due);
	}
}

void _mi_arena_free(void *start, size_t size, size_t committed, mi_memid_t memid)
{
#if MI_SECURE
	/* The next owner of this address would hit the guard pages: the memory goes back, but the address stays unused. */
	if (donor_guards_stay) {
		donor_guards_stay = false;
		graft_madvise(start, size, MADV_DONTNEED);
		return;
	}
#endif
	graft_gate_enter();
	upstream_arena_free(start, size, committed, memid);
	donor_set_due(size, memid);
	donor_set_all_due();
	graft_gate_leave();
}

void _mi_arenas_collect(bool force_purge)
{
	graft_gate_enter();
	upstream_arenas_collect(force_purge);
	donor_set_all_due();
	graft_gate_leave();
}

#include "segments.h"

mi_page_t *_mi_segment_page_alloc(mi_heap_t *heap, size_t block_size, size_t alignment, mi_segments_tld_t *tld)
{
#if MI_SECURE
	donor_segments_fetched = 0;
#endif
	mi_page_t *page = upstream_segment_page_alloc(heap, block_size, alignment, tld);
	if (page && donor_has_debt()) {
		donor_take_page(donor_page_size(page));
		donor_count_segments(tld->current_size);
	}
	return page;
}

void _mi_segment_page_free(mi_page_t *page, bool force, mi_segments_tld_t *tld)
{
	size_t size = donor_page_size(page);
	graft_gate_enter();
	upstream_segment_page_free(page, force, tld);
	if (donor_has_debt())
		donor_give_page(size, tld);
	graft_gate_leave();
}

void _mi_thread_done(mi_heap_t *heap)
{
	graft_gate_enter();
	upstream_thread_done(heap);
	donor_count_segments(0);
	graft_gate_leave();
}

void _mi_segment_page_abandon(mi_page_t *page, mi_segments_tld_t *tld)
{
	graft_gate_enter();
	upstream_segment_page_abandon(page, tld);
	graft_gate_leave();
}

/* Returns whether the segment is this thread's now. */
static bool donor_free_of_ended(mi_heap_t *heap, mi_segment_t *segment, const mi_page_t *page)
{
	bool reclaimed = false;
	if (_mi_option_get_fast(mi_option_abandoned_reclaim_on_free)) {
		graft_gate_enter();
		reclaimed = upstream_segment_attempt_reclaim(heap, segment);
		graft_gate_leave();
	}
	if (!reclaimed && graft_debt_is_bounded())
		donor_free_in_left(mi_page_block_size(page), heap);
	return reclaimed;
}

#if MI_HUGE_PAGE_ABANDON
void _mi_segment_huge_page_free(mi_segment_t *segment, mi_page_t *page, mi_block_t *block)
{
	graft_gate_enter();
	upstream_segment_huge_page_free(segment, page, block);
	graft_gate_leave();
}
#endif

void _mi_abandoned_reclaim_all(mi_heap_t *heap, mi_segments_tld_t *tld)
{
	graft_gate_enter();
	upstream_abandoned_reclaim_all(heap, tld);
	graft_gate_leave();
}

/* Memory that no thread's heap has: it is due after purge_delay times arena_purge_mult. */
#define GRAFT_HAS_PURGE
static void donor_purge(void)
{
	graft_gate_enter();
	mi_arenas_try_purge(false, true);
	donor_set_all_due();
	graft_gate_leave();
}

static void donor_reserve_first(void)
{
	mi_reserve_os_memory_ex(DONOR_FIRST_ARENA, _mi_os_has_overcommit(), false, false, NULL);
}

#include "mimalloc_functions.h"

/* Another thread may have been about to change a page's state back from "delayed freeing"; in the child it never does,
 * and the owner would wait for it forever (_mi_page_use_delayed_free in page.c). Threads only wait for pages of their own
 * heap. So this sets "use delayed free". A block that is not yet on the heap's list is lost to the child, and the next
 * remote free registers itself again. The cost is one look at each page, far less than the fork itself. */
static bool donor_mend_page(mi_heap_t *heap, mi_page_queue_t *queue, mi_page_t *page, void *a, void *b)
{
	(void)heap, (void)queue, (void)a, (void)b;
	mi_thread_free_t state = mi_atomic_load_acquire(&page->xthread_free);
	if (mi_tf_delayed(state) == MI_DELAYED_FREEING)
		mi_atomic_store_release(&page->xthread_free, mi_tf_set_delayed(state, MI_USE_DELAYED_FREE));
	return true;
}

static void donor_fork_child(void)
{
	mi_heap_t *heap = mi_prim_get_default_heap();
	if (mi_heap_is_initialized(heap))
		mi_heap_visit_pages(heap, &donor_mend_page, true, 0, 0);
}

#include "family.h"
