/* Spans without a block: the cache of each thread, and the one that all threads share. How many they keep, and how those
 * above that go back to the kernel. Included after upstream's file; all of it is behind the gate. */
#ifndef DONOR_CACHES_H
#define DONOR_CACHES_H

static size_t donor_thread_cap, donor_global_cap; /* in spans of 64 KiB, for each length */
static bool donor_is_capped, donor_is_bounded;
enum { DONOR_FEW_SPANS = 32 };

/* Upstream keeps the first span of a mapping for its header until the last span is freed; its other pages can be
 * returned. */
static void donor_unmap(span_t *span)
{
	bool stays = (span->flags & SPAN_FLAG_MASTER) && atomic_load32(&span->remaining_spans) > (int32_t)span->span_count;
	if (stays && _memory_page_size < _memory_span_size)
		graft_madvise((char *)span + _memory_page_size, span->span_count * _memory_span_size - _memory_page_size,
		              MADV_DONTNEED);
	atomic_fetch_add_explicit(&donor_gone, span->span_count * _memory_span_size, memory_order_relaxed);
	_rpmalloc_span_unmap(span);
}

static span_cache_t *donor_thread_cache(heap_t *heap, size_t length)
{
	return length == 1 ? &heap->span_cache : (span_cache_t *)&heap->span_large_cache[length - 2];
}

static void donor_cap_common_cache(size_t length, size_t cap)
{
	global_cache_t *cache = &_memory_span_cache[length - 1];
	span_t *excess[32];
	while (cache->count * length > cap) {
		size_t count = _rpmalloc_global_cache_extract_spans(excess, length, 1);
		for (size_t i = 0; i < count; i++)
			donor_unmap(excess[i]);
		if (!count)
			break;
	}
}

/* Gives back what the common cache holds if that is more than the bound. */
static void donor_keep_debt(void)
{
	size_t waiting = 0;
	if (!donor_is_bounded)
		return;
	for (size_t length = 1; length <= LARGE_CLASS_COUNT; length++)
		waiting += _memory_span_cache[length - 1].count * length * _memory_span_size;
	size_t free = waiting + graft_debt_load(&donor_gone);
	size_t mapped = (size_t)atomic_load_explicit(&graft_reserved_bytes, memory_order_relaxed);
	size_t excess = graft_debt_excess(&donor_debt, waiting, mapped > free ? mapped - free : 0);
	if (!excess)
		return;
	graft_debt_give_back(&donor_debt, excess);
	for (size_t length = LARGE_CLASS_COUNT; length && excess; length--) {
		size_t bytes = length * _memory_span_size, count = _memory_span_cache[length - 1].count;
		size_t back = (excess + bytes - 1) / bytes;
		if (back > count)
			back = count;
		donor_cap_common_cache(length, (count - back) * length);
		excess -= back * bytes < excess ? back * bytes : excess;
	}
}

static void donor_cap_common_caches(void)
{
	for (size_t length = 1; donor_is_capped && length <= LARGE_CLASS_COUNT; length++)
		donor_cap_common_cache(length, donor_global_cap);
	donor_keep_debt();
}

static void donor_lock_heaps(void)
{
	while (!atomic_cas32_acquire(&_memory_global_lock, 1, 0))
		donor_wait_a_moment();
}

/* Hands the free spans of ended threads' heaps on to the common cache. No thread can take such a heap meanwhile. */
static void donor_collect_left(void)
{
	heap_t *taken = 0;
	donor_lock_heaps();
	for (heap_t **place = &_memory_orphan_heaps; *place;) {
		heap_t *heap = *place;
		if (!atomic_load_ptr(&heap->span_free_deferred)) {
			place = &heap->next_orphan;
			continue;
		}
		*place = heap->next_orphan;
		heap->next_orphan = taken;
		taken = heap;
	}
	atomic_store32_release(&_memory_global_lock, 0);
	while (taken) {
		heap_t *heap = taken;
		taken = heap->next_orphan;
		_rpmalloc_heap_release(heap, 0, 1);
	}
	donor_cap_common_caches();
}

/* Frees a span that a different thread owns. The owner finds it when it needs a span; upstream leaves it if that thread
 * has ended. */
static void donor_free_span_of_other(heap_t *heap, span_t *span)
{
	static const size_t enough = 4 << 20;
	static _Atomic size_t left;
	size_t size = span->span_count * _memory_span_size;
	_rpmalloc_deallocate_defer_free_span(heap, span);
	if (__atomic_load_n(&heap->owner_thread, __ATOMIC_RELAXED) != UINTPTR_MAX || !graft_debt_is_bounded())
		return;
	size_t all = atomic_fetch_add_explicit(&left, size, memory_order_relaxed) + size;
	if (all >= enough && graft_debt_withdraw(&left, all))
		donor_collect_left();
}

/* Called after a span of this length was put into the thread's cache. With a bound, the thread keeps an eighth of as many
 * spans as it has full ones, or DONOR_FEW_SPANS; and half of them when it hands some on, so that it does so seldom. */
static void donor_cap_thread_cache(heap_t *heap, size_t length)
{
	span_cache_t *cache = donor_thread_cache(heap, length);
	size_t cap = donor_thread_cap, share = heap->full_span_count / 8;
	if (share < DONOR_FEW_SPANS)
		share = DONOR_FEW_SPANS;
	if (donor_is_bounded && cap > share)
		cap = share;
	if (cache->count * length <= cap)
		return;
	size_t stay = (donor_is_bounded ? cap / 2 : cap) / length;
	if (donor_global_cap) {
		_rpmalloc_global_cache_insert_spans(&cache->span[stay], length, cache->count - stay);
		cache->count = (uint32_t)stay;
	}
	while (cache->count > stay)
		donor_unmap(cache->span[--cache->count]);
	donor_cap_common_cache(length, donor_global_cap);
	donor_keep_debt();
}

/* Releases everything without a block that this thread's cache and the common cache hold. */
static void donor_give_back(heap_t *heap)
{
	if (heap->spans_reserved)
		donor_unmap(_rpmalloc_span_map_from_reserve(heap, heap->spans_reserved));
	for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
		span_t *span = heap->size_class[i].cache;
		heap->size_class[i].cache = 0;
		if (span)
			donor_unmap(span);
	}
	for (size_t length = 1; length <= LARGE_CLASS_COUNT; length++) {
		span_cache_t *cache = donor_thread_cache(heap, length);
		while (cache->count)
			donor_unmap(cache->span[--cache->count]);
		_rpmalloc_global_cache_finalize(&_memory_span_cache[length - 1]);
	}
}

#endif
