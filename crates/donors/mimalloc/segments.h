/* Bounded debt (debt.h) for mimalloc 2: what pages took and now waits in segments. A thread's own segments are one place.
 * The other one is for all threads: arenas, with the segments that have no page any more, and the segments that ended
 * threads left, since blocks in them are still in use. */
#ifndef DONOR_SEGMENTS_H
#define DONOR_SEGMENTS_H

static __thread struct {
	struct graft_debt debt;
	size_t in_use, waiting; /* bytes of pages; a thread may have freed more than it took, of others' pages */
	size_t peak;            /* of what was in use, since huge pages were last divided */
	size_t segments;        /* bytes of the thread's segments, when last counted */
	size_t left;            /* bytes that it freed in segments of ended threads, and that are not yet in donor_left */
} donor_own;
static struct {
	struct graft_debt debt;
	_Atomic size_t waiting, segments;
} donor_common;
/* Bytes of blocks that were freed in the segments of ended threads since somebody looked there for pages without a block,
 * and what was in use there then. */
static struct {
	_Atomic size_t freed, in_use;
} donor_left;

static size_t donor_page_size(const mi_page_t *page)
{
	return (size_t)page->slice_count * MI_SEGMENT_SLICE_SIZE;
}

static bool donor_has_debt(void)
{
	return graft_debt_is_bounded() && mi_arena_purge_delay() > 0;
}

/* Upstream lets one thread at a time do this, and other threads do nothing; then the memory that they freed last would
 * stay. An arena's blocks are claimed before they go back, so several threads can. */
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

enum { DONOR_HUGE_PAGE = 2 << 20, DONOR_HUGE_PAGE_BITS = DONOR_HUGE_PAGE / MI_COMMIT_SIZE };

/* Returns the mask of the huge page in which this bit of a segment's masks lies. */
static mi_commit_mask_t donor_huge_page_of(size_t bit)
{
	mi_commit_mask_t mask;
	mi_commit_mask_create(bit / DONOR_HUGE_PAGE_BITS * DONOR_HUGE_PAGE_BITS, DONOR_HUGE_PAGE_BITS, &mask);
	return mask;
}

/* Gives back the huge pages of a segment in which all memory waits. */
static void donor_purge_huge_pages(mi_segment_t *segment)
{
	for (size_t bit = 0; bit < MI_COMMIT_MASK_BITS; bit += DONOR_HUGE_PAGE_BITS) {
		mi_commit_mask_t huge_page = donor_huge_page_of(bit);
		if (mi_commit_mask_all_set(&segment->purge_mask, &huge_page))
			mi_segment_purge(segment, (uint8_t *)segment + bit * MI_COMMIT_SIZE, DONOR_HUGE_PAGE);
	}
}

#if MI_SECURE
/* Returns whether the huge page of a segment in which this bit of its masks lies is inaccessible as a whole. What lies beside
 * a guard page never is: its slice stays committed. */
static bool donor_huge_page_is_decommitted(const mi_segment_t *segment, size_t bit)
{
	mi_commit_mask_t huge_page = donor_huge_page_of(bit);
	return !mi_commit_mask_any_set(&segment->commit_mask, &huge_page);
}

/* Makes memory of a segment accessible. Here, memory that went back is inaccessible until a page needs it. The kernel has
 * no huge page where a part is inaccessible, so a huge page that went back whole comes back whole. Without that, `growth`
 * of the suite took 1.26 (one thread) and 1.63 (eight) of the time that it takes without a bound. */
static bool donor_commit(mi_segment_t *segment, uint8_t *start, size_t size, bool *is_zero)
{
	/* The beginning of a segment holds its masks. */
	if (start == (uint8_t *)segment || !mi_option_is_enabled(mi_option_allow_thp))
		return _mi_os_commit(start, size, is_zero);
	const size_t bits = DONOR_HUGE_PAGE_BITS;
	size_t first = (size_t)(start - (uint8_t *)segment) / MI_COMMIT_SIZE, end = first + size / MI_COMMIT_SIZE;
	size_t wide_first = donor_huge_page_is_decommitted(segment, first) ? first / bits * bits : first;
	size_t wide_end = donor_huge_page_is_decommitted(segment, end - 1) ? (end + bits - 1) / bits * bits : end;
	uint8_t *wide_start = (uint8_t *)segment + wide_first * MI_COMMIT_SIZE;
	size_t wide_size = (wide_end - wide_first) * MI_COMMIT_SIZE;
	if (wide_size > size && _mi_os_commit(wide_start, wide_size, is_zero)) {
		mi_commit_mask_t wide;
		mi_commit_mask_create(wide_first, wide_end - wide_first, &wide);
		mi_commit_mask_set(&segment->commit_mask, &wide);
		return true;
	}
	return _mi_os_commit(start, size, is_zero);
}
#endif

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

/* Gives back what waits in the segments of ended threads. Nobody takes pages from these before another thread has taken
 * the segment over, so their huge pages are divided. */
static void donor_purge_left(void)
{
	mi_arena_field_cursor_t cursor;
	mi_segment_t *segment;
	_mi_arena_field_cursor_init(0, _mi_subproc_from_id(0), false, &cursor);
	while ((segment = _mi_arena_segment_clear_abandoned_next(&cursor))) {
		mi_segment_try_purge(segment, true);
		_mi_arena_segment_mark_abandoned(segment);
	}
	_mi_arena_field_cursor_done(&cursor);
}

/* So many bytes more wait for all threads. */
static void donor_wait_for_all(size_t bytes, size_t in_use)
{
	size_t waiting = atomic_fetch_add_explicit(&donor_common.waiting, bytes, memory_order_relaxed) + bytes;
	if (!graft_debt_excess(&donor_common.debt, waiting, in_use))
		return;
	waiting = graft_debt_withdraw(&donor_common.waiting, waiting);
	if (!waiting)
		return;
	graft_debt_give_back(&donor_common.debt, waiting);
	donor_purge_arenas();
	donor_purge_left();
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
	donor_wait_for_all(gone, all);
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

static size_t donor_pages_size(mi_segment_t *segment)
{
	const mi_slice_t *end;
	size_t slices = 0;
	for (mi_slice_t *slice = mi_slices_start_iterate(segment, &end); slice < end; slice += slice->slice_count)
		slices += mi_slice_is_used(slice) ? slice->slice_count : 0;
	return slices * MI_SEGMENT_SLICE_SIZE;
}

/* Frees the pages and segments that ended threads left, and in which no block is in use any more. */
static void donor_collect_left(mi_heap_t *heap)
{
	mi_segments_tld_t *tld = &heap->tld->segments;
	mi_arena_field_cursor_t cursor;
	mi_segment_t *segment;
	size_t freed = 0, in_use = 0, segments = 0;
	_mi_arena_field_cursor_init(heap, tld->subproc, false, &cursor);
	while ((segment = _mi_arena_segment_clear_abandoned_next(&cursor))) {
		size_t before = donor_pages_size(segment);
		mi_segment_check_free(segment, 0, 0, tld);
		size_t now = donor_pages_size(segment);
		freed += before - now;
		if (segment->used == 0) {
			mi_segment_reclaim(segment, heap, 0, 0, tld);
		} else {
			in_use += now;
			segments++;
			_mi_arena_segment_mark_abandoned(segment);
		}
	}
	_mi_arena_field_cursor_done(&cursor);
	/* So a look waits for 16 KiB a segment at least: many segments with few blocks are looked at seldom. */
	in_use = in_use > segments << 17 ? in_use : segments << 17;
	graft_debt_store(&donor_left.in_use, in_use);
	if (donor_has_debt())
		donor_wait_for_all(freed, graft_debt_load(&donor_common.segments));
}

/* A block of an ended thread's segment is about to be freed. Upstream looks at these segments only when a thread needs a
 * segment, or takes them over (abandoned_reclaim_on_free). */
static void donor_free_in_left(size_t size, mi_heap_t *heap)
{
	enum { STEP = 256 << 10 };
	static const struct graft_debt without_credit;
	size_t left = donor_own.left += size;
	if (left < STEP)
		return;
	donor_own.left = 0;
	size_t freed = atomic_fetch_add_explicit(&donor_left.freed, left, memory_order_relaxed) + left;
	if (!graft_debt_excess(&without_credit, freed, graft_debt_load(&donor_left.in_use)))
		return;
	if (!graft_debt_withdraw(&donor_left.freed, freed))
		return;
	graft_gate_enter();
	donor_collect_left(heap);
	graft_gate_leave();
}

#endif
