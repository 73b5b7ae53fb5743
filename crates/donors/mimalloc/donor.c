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

#include "debt.h"
#include "gate.h"
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
#include "alloc.c"
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
#endif
mi_page_t *upstream_segment_page_alloc(mi_heap_t *, size_t, size_t, mi_segments_tld_t *);
#define _mi_segment_page_alloc upstream_segment_page_alloc
#include "segment.c"
#if MI_SECURE
#undef _mi_os_unprotect
#undef _mi_arena_alloc_aligned
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
#include "prim/prim.c"
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

/* Bounded debt (debt.h). What pages of this thread's took and now waits in the thread's segments; and what waits in
 * arenas, in segments that have no page any more, for all threads. */
static __thread struct {
	struct graft_debt debt;
	size_t in_use, waiting; /* bytes of pages; a thread may have freed more than it took, of others' pages */
	size_t peak;            /* of what was in use, since huge pages were last divided */
	size_t segments;        /* bytes of the thread's segments, when last counted */
} donor_own;
static struct {
	struct graft_debt debt;
	_Atomic size_t waiting, segments;
} donor_common;

static size_t donor_page_size(const mi_page_t *page)
{
	return (size_t)page->slice_count * MI_SEGMENT_SLICE_SIZE;
}

static bool donor_has_debt(void)
{
	return graft_debt_is_bounded() && mi_arena_purge_delay() > 0;
}

/* Upstream lets one thread at a time do this, and another one does nothing; then what it freed last would stay. An arena's
 * blocks are claimed before they go back, so several threads can. */
static void donor_purge_arenas(void)
{
	size_t count = mi_atomic_load_acquire(&mi_arena_count);
	for (size_t i = 0; i < count; i++) {
		mi_arena_t *arena = mi_atomic_load_ptr_acquire(mi_arena_t, &mi_arenas[i]);
		if (arena && arena->blocks_purge)
			mi_arena_try_purge(arena, _mi_clock_now(), true);
	}
	donor_set_all_due();
}

enum { DONOR_HUGE_PAGE = 2 << 20 };

/* Gives back the huge pages of a segment in which all memory waits. */
static void donor_purge_huge_pages(mi_segment_t *segment)
{
	size_t bits = DONOR_HUGE_PAGE / MI_COMMIT_SIZE, set = 0;
	for (size_t bit = 0; bit < MI_COMMIT_MASK_BITS; bit++) {
		size_t field = segment->purge_mask.mask[bit / MI_COMMIT_MASK_FIELD_BITS];
		set = bit % bits ? set : 0;
		set += field >> bit % MI_COMMIT_MASK_FIELD_BITS & 1;
		if (set == bits)
			mi_segment_purge(segment, (uint8_t *)segment + (bit + 1 - bits) * MI_COMMIT_SIZE, DONOR_HUGE_PAGE);
	}
}

/* Gives back what waits in this thread's segments. Every free page of them is in one of the queues, by size. */
static void donor_purge_segments(mi_segments_tld_t *tld, bool divides_huge_pages)
{
	for (size_t i = 0; i <= MI_SEGMENT_BIN_MAX; i++) {
		for (mi_slice_t *slice = tld->spans[i].first; slice; slice = slice->next) {
			if (divides_huge_pages)
				mi_segment_try_purge(_mi_ptr_segment(slice), true);
			else
				donor_purge_huge_pages(_mi_ptr_segment(slice));
		}
	}
}

/* Notes how much the segments of this thread take now. Of what waits, those that it gave away have their share, which now
 * waits for all threads. */
static void donor_count_segments(size_t now)
{
	size_t before = donor_own.segments;
	if (now == before)
		return;
	donor_own.segments = now;
	size_t all = atomic_fetch_add_explicit(&donor_common.segments, now - before, memory_order_relaxed) + now - before;
	if (now > before || !donor_own.waiting)
		return;
	size_t gone = now ? donor_own.waiting / (before >> 16) * ((before - now) >> 16) : donor_own.waiting;
	donor_own.waiting -= gone;
	size_t waiting = atomic_fetch_add_explicit(&donor_common.waiting, gone, memory_order_relaxed) + gone;
	if (!graft_debt_excess(&donor_common.debt, waiting, all))
		return;
	waiting = graft_debt_withdraw(&donor_common.waiting, waiting);
	if (!waiting)
		return;
	graft_debt_give_back(&donor_common.debt, waiting);
	donor_purge_arenas();
}

static void donor_take_page(size_t size)
{
	donor_own.in_use += size;
	if (donor_own.peak < donor_own.in_use)
		donor_own.peak = donor_own.in_use;
	size_t part = size < donor_own.waiting ? size : donor_own.waiting;
	donor_own.waiting -= part;
	size -= part;
	if (size && graft_debt_load(&donor_own.debt.returned)) {
		graft_debt_take(&donor_own.debt, size);
		return;
	}
	part = graft_debt_withdraw(&donor_common.waiting, size);
	if (size > part)
		graft_debt_take(&donor_common.debt, size - part);
}

static void donor_give_page(size_t size, mi_segments_tld_t *tld)
{
	donor_own.in_use -= size < donor_own.in_use ? size : donor_own.in_use;
	donor_own.waiting += size;
	donor_count_segments(tld->current_size);
	size_t waiting = donor_own.waiting, in_use = donor_own.in_use;
	if (!graft_debt_excess(&donor_own.debt, waiting, in_use))
		return;
	/* A huge page of which a part is in use is divided only if the thread uses much less than it did. */
	bool divides = !mi_option_is_enabled(mi_option_allow_thp) || in_use < donor_own.peak / 16;
	if (divides)
		donor_own.peak = in_use;
	donor_own.waiting = 0;
	graft_debt_give_back(&donor_own.debt, waiting);
	donor_purge_segments(tld, divides);
}

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

bool _mi_segment_attempt_reclaim(mi_heap_t *heap, mi_segment_t *segment)
{
	graft_gate_enter();
	bool reclaimed = upstream_segment_attempt_reclaim(heap, segment);
	graft_gate_leave();
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
