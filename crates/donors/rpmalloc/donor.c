/* rpmalloc as a donor, with upstream's one file unchanged. This file splits upstream's steps into the part that a thread
 * does alone and the part that it shares with others; the shared part is behind the fork gate. This file does three
 * things itself, because upstream's way is not good enough for a libc: blocks aligned to a span or more (upstream has
 * none), frees of blocks of over 4 MiB by another thread (upstream keeps them until their owner allocates again), and
 * growing these (upstream copies). */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* thread_cache and global_cache count spans of 64 KiB, for each length of spans; arena_reserve is in KiB. The column for
 * the donor's own key is empty, since upstream has no settings by name. */
#define GRAFT_OPTIONS(X)                                                                                               \
	X(purge_delay, -1, -1, 0, 0)                                                                                       \
	X(thread_cache, 400, 0, 400, 0)                                                                                    \
	X(global_cache, 3200, 0, 3200, 0)                                                                                  \
	X(arena_reserve, 4096, 64, 1048576, 0)                                                                             \
	X(allow_thp, 1, 0, 1, 0)                                                                                           \
	GRAFT_PURGE_DEBT(X, 16384, 131072, 0)                                                                              \
	GRAFT_PURGE_PERIOD(X, 0)

#include "debt.h"
#include "gate.h"
#include "settings.h"
#include "system.h"
#include "thread.h"

static int64_t donor_option(int index)
{
	return graft_options.entries[index].value;
}

/* Of what the common cache holds. */
static struct graft_debt donor_debt;
/* Pages that went back, and stay mapped because other spans of their mapping are in use. */
static _Atomic size_t donor_gone;

/* A block of over 4 MiB has a larger mapping of its own. */
static bool donor_is_for_spans(size_t length)
{
	return length <= ((size_t)donor_option(graft_option_arena_reserve) << 10) + (64 << 10);
}

static void *donor_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *mapping = graft_mmap(address, length, protection, flags, fd, offset);
	if (mapping != MAP_FAILED && !donor_option(graft_option_allow_thp))
		graft_madvise(mapping, length, MADV_NOHUGEPAGE);
	if (mapping != MAP_FAILED && donor_is_for_spans(length))
		graft_debt_take(&donor_debt, length);
	return mapping;
}

static int donor_munmap(void *address, size_t length)
{
	if (donor_is_for_spans(length)) {
		size_t gone = graft_debt_load(&donor_gone);
		graft_debt_store(&donor_gone, gone - (length < gone ? length : gone));
	}
	return graft_munmap(address, length);
}

/* Upstream holds its locks for a few instructions only, so a long wait means that the holder is not running. */
static void donor_wait_a_moment(void)
{
	sched_yield();
}

#include "redirect.h"
#undef mmap
#undef munmap
#define mmap donor_mmap
#define munmap donor_munmap
/* musl's sysconf would bring in much other code; the auxiliary vector has the page size. */
#define sysconf(name) ((long)getauxval(AT_PAGESZ))
/* Upstream reads the size of huge pages from /proc/meminfo with stdio. This donor never uses that code, and so the
 * compiler removes it. */
#define fopen(path, mode) ((FILE *)0)
/* Upstream waits with nanosleep if it knows no instruction for that; nanosleep is a cancellation point. */
#define nanosleep(time, rest) sched_yield()
/* A call `_rpmalloc_spin()` becomes a call of ours. The definition, which has the word `void` between the parentheses,
 * becomes another function, which is never called. */
#define _rpmalloc_spin(...) donor_spin_##__VA_ARGS__()
#define donor_spin_() donor_wait_a_moment()
#ifndef GRAFT_SHARED
#define tls_model(model) tls_model("local-exec")
#endif
/* The only data of this size that upstream clears are heaps, in fresh memory from the kernel. Fifteen of sixteen are not
 * used at first, and clearing would make all of them resident. */
#define memset(block, byte, length) ((length) == sizeof(heap_t) ? (block) : memset(block, byte, length))

#include "rpmalloc.c"

#undef memset
#undef tls_model
#undef _rpmalloc_spin
#undef donor_spin_
#undef nanosleep
#undef fopen
#undef sysconf
#include "restore.h"

#define DONOR_LIKELY(condition) __builtin_expect(!!(condition), 1)

/* A block aligned to a span or more starts where a span starts. No other block does, since a span begins with a header.
 * Such a block is a mapping of its own, with its description directly before it. */
struct donor_apart {
	void *mapping;
	size_t length;
};

static heap_t donor_first_heap; /* programs without threads need no more than this one */
static pthread_key_t donor_key;
static bool donor_has_key;

static span_t *donor_span(const void *block)
{
	return (span_t *)((uintptr_t)block & _memory_span_mask);
}

static bool donor_is_apart(const void *block)
{
	return !((uintptr_t)block & ~_memory_span_mask);
}

static inline struct donor_apart *donor_apart(const void *block)
{
	return (struct donor_apart *)block - 1;
}

static inline size_t donor_usable(const void *block)
{
	if (__builtin_expect(donor_is_apart(block), 0))
		return donor_apart(block)->length - (size_t)((const char *)block - (char *)donor_apart(block)->mapping);
	return _rpmalloc_usable_size((void *)block);
}

/* This and everything up to the next such line is behind the gate. */

#include "caches.h"

/* Returns null if there is no memory for a heap; upstream's own function would crash. */
static heap_t *donor_take_heap(void)
{
	donor_lock_heaps();
	heap_t *heap = _rpmalloc_heap_extract_orphan(&_memory_orphan_heaps);
	if (!heap)
		heap = _rpmalloc_heap_allocate_new();
	atomic_store32_release(&_memory_global_lock, 0);
	if (!heap)
		return 0;
	set_thread_heap(heap);
	_rpmalloc_heap_cache_adopt_deferred(heap, 0);
	if (donor_has_key)
		pthread_setspecific(donor_key, heap);
	return heap;
}

/* While the value is INVALID_POINTER, this thread owns the whole state, and others wait. */
static void *donor_hold_deferred(span_t *span)
{
	void *list;
	while ((list = atomic_exchange_ptr_acquire(&span->free_list_deferred, INVALID_POINTER)) == INVALID_POINTER)
		donor_wait_a_moment();
	return list;
}

/* Frees a block that a different thread owns. Upstream's function reads the span once more after it has released it,
 * when the owner may have unmapped it. */
static void donor_free_of_other(span_t *span, void *block)
{
	uint32_t all = span->block_count;
	heap_t *heap = span->heap;
	*(void **)block = donor_hold_deferred(span);
	uint32_t freed = ++span->list_size;
	atomic_store_ptr_release(&span->free_list_deferred, block);
	if (freed == all)
		donor_free_span_of_other(heap, span);
}

/* Frees a block that this thread owns. The last block of a span releases the span. Upstream's function does that as
 * soon as the number of blocks that others have freed is right, when the last of those threads may be about to write to
 * the span. */
static void donor_free_of_own(span_t *span, void *block)
{
	heap_t *heap = span->heap;
	bool was_full = _rpmalloc_span_is_fully_utilized(span);
	uint32_t used = was_full ? span->block_count : span->used_count;
	void *deferred = donor_hold_deferred(span);
	bool last = used - 1 == span->list_size;
	atomic_store_ptr_release(&span->free_list_deferred, deferred);
	if (last) {
		_rpmalloc_deallocate_direct_small_or_medium(span, block);
		return;
	}
	if (was_full) {
		_rpmalloc_span_double_link_list_add(&heap->size_class[span->size_class].partial_span, span);
		heap->full_span_count--;
	}
	*(void **)block = span->free_list;
	span->free_list = block;
	span->used_count = used - 1;
}

/* Frees several spans. Upstream sometimes cuts them up for small blocks, and nothing joins them again: as threads come
 * and go, memory would gradually become single spans, up to the limits of all caches. */
static void donor_free_large(span_t *span)
{
	heap_t *heap = span->heap;
	if (heap != get_thread_heap_raw()) {
		donor_free_span_of_other(heap, span);
		return;
	}
	heap->full_span_count--;
	_rpmalloc_heap_cache_insert(heap, span);
}

/* A block over 4 MiB is a mapping of its own. Upstream leaves it to its owner, for a count that it checks only when the
 * allocator is shut down, which never happens in a libc. */
static void donor_free_huge(span_t *span)
{
	size_t size = (size_t)span->span_count * _memory_page_size;
	_rpmalloc_unmap(span, size, span->align_offset, size);
}

/* Unmaps all but a part of a mapping. */
static void donor_unmap_around(char *mapping, size_t length, char *part, size_t part_length)
{
	if (part > mapping)
		graft_munmap(mapping, (size_t)(part - mapping));
	if (part + part_length < mapping + length)
		graft_munmap(part + part_length, (size_t)(mapping + length - (part + part_length)));
}

/* Moves the pages of the block's mapping to an address with room for `n` bytes. Returns null if that fails. */
static void *donor_extend_huge(span_t *span, void *block, size_t n)
{
	size_t before = (size_t)((char *)block - (char *)span);
	size_t length = (before + n + _memory_page_size - 1) & ~(_memory_page_size - 1);
	size_t old = (size_t)span->span_count * _memory_page_size, head = (size_t)span->align_offset << 3;
	size_t slack = _memory_page_size < _memory_span_size ? _memory_span_size : 0;
	char *room = donor_mmap(0, length + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		return 0;
	char *start = (char *)(((uintptr_t)room + _memory_span_size - 1) & _memory_span_mask);
	if (graft_mremap(span, old, length, MREMAP_MAYMOVE | MREMAP_FIXED, start) == MAP_FAILED) {
		/* The kernel may have unmapped the room before it failed, and another thread may have mapped something there:
		 * what is not free now must stay. */
		void *again = graft_mmap(start, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (again != MAP_FAILED)
			graft_munmap(again, length);
		donor_unmap_around(room, length + slack, start, length);
		return 0;
	}
	donor_unmap_around(room, length + slack, start, length);
	if (head) {
		graft_munmap((char *)span - head, head);
		if (head < _memory_span_size)
			graft_munmap((char *)span + old, _memory_span_size - head);
	}
	((span_t *)start)->span_count = (uint32_t)(length / _memory_page_size);
	((span_t *)start)->align_offset = 0;
	return start + before;
}

static void donor_thread_end(void *unused)
{
	(void)unused;
	graft_gate_enter();
	rpmalloc_thread_finalize(1);
	donor_cap_common_caches();
	graft_gate_leave();
}

/* The functions from here on enter the gate; those above run behind it. */

static void donor_set_up(void)
{
	bool at_once = donor_option(graft_option_purge_delay) == 0;
	donor_thread_cap = at_once ? 0 : (size_t)donor_option(graft_option_thread_cache);
	donor_global_cap = at_once ? 0 : (size_t)donor_option(graft_option_global_cache);
	/* Upstream's own limits are at most as large, and cheaper. */
	donor_is_bounded = donor_global_cap && graft_debt_is_bounded();
	donor_is_capped = donor_is_bounded || donor_thread_cap < 400 || donor_global_cap < 3200;

	/* Upstream would give the first thread a heap even without memory for one. */
	_memory_thread_heap = &donor_first_heap;
	rpmalloc_config_t config = {.span_map_count = (size_t)donor_option(graft_option_arena_reserve) / 64};
	rpmalloc_initialize_config(&config);
	_memory_thread_heap = 0;
	/* No thread is the main one, since the main thread would change the list of free heaps without its lock. If upstream
	 * cannot read the thread pointer (riscv64), it uses the heap as the thread's number. That is 0 once a thread has
	 * given up its heap, and 0 is also the default here. */
	_rpmalloc_main_thread_id = UINTPTR_MAX;
	_rpmalloc_heap_initialize(&donor_first_heap);
	_rpmalloc_heap_orphan(&donor_first_heap, 0);
	/* This is not behind the gate: it takes one of libc's locks, which a fork holds when it shuts the gate. */
	donor_has_key = graft_key_create(&donor_key, donor_thread_end) == 0;
}

static __attribute__((noinline, cold)) void donor_start(void)
{
	enum { NOT_YET, UNDER_WAY, DONE };
	static _Atomic int state;
	int not_yet = NOT_YET;
	if (atomic_load(&state) == DONE)
		return;
	if (atomic_compare_exchange_strong(&state, &not_yet, UNDER_WAY)) {
		donor_set_up();
		atomic_store(&state, DONE);
	} else {
		while (atomic_load(&state) != DONE)
			sched_yield();
	}
}

/* Upstream counts the pages of a block in 32 bits, and adds to sizes without an overflow check. */
static bool donor_is_possible(size_t n)
{
	return n < PTRDIFF_MAX - 4 * _memory_span_size && n / 4096 < UINT32_MAX - 64;
}

/* Returns null without a message. */
static void *donor_try(size_t n)
{
	if (!donor_is_possible(n))
		return 0;
	if (__builtin_expect(!get_thread_heap_raw(), 0))
		donor_start();
	graft_gate_enter();
	heap_t *heap = get_thread_heap_raw();
	if (__builtin_expect(!heap, 0))
		heap = donor_take_heap();
	void *block = heap ? _rpmalloc_allocate(heap, n) : 0;
	if (__builtin_expect(!block, 0) && heap && (n <= LARGE_SIZE_LIMIT || (int64_t)n < atomic_load(&graft_reserved_bytes))) {
		donor_give_back(heap);
		/* From now on it maps small pieces, since there was no room for a large one. */
		if (_memory_span_map_count > 8)
			_memory_span_map_count = 8;
		block = _rpmalloc_allocate(heap, n);
	}
	graft_gate_leave();
	return block;
}

static __attribute__((noinline)) void *donor_malloc_by_gate(size_t n)
{
	void *block = donor_try(n);
	return DONOR_LIKELY(block) ? block : graft_no_memory();
}

static __attribute__((noinline)) void *donor_malloc_medium(size_t n)
{
	heap_t *heap = get_thread_heap_raw();
	if (DONOR_LIKELY(heap && n <= _memory_medium_size_limit)) {
		/* Computes the class as upstream's _rpmalloc_allocate_medium does. */
		size_t class = SMALL_CLASS_COUNT + ((n - (SMALL_SIZE_LIMIT + 1)) >> MEDIUM_GRANULARITY_SHIFT);
		heap_size_class_t *lists = &heap->size_class[_memory_size_class[class].class_idx];
		if (DONOR_LIKELY(lists->free_list))
			return free_list_pop(&lists->free_list);
	}
	return donor_malloc_by_gate(n);
}

static inline void *donor_malloc(size_t n)
{
	if (__builtin_expect(n > SMALL_SIZE_LIMIT, 0))
		return donor_malloc_medium(n);
	heap_t *heap = get_thread_heap_raw();
	if (DONOR_LIKELY(heap)) {
		heap_size_class_t *lists = &heap->size_class[(n + SMALL_GRANULARITY - 1) >> SMALL_GRANULARITY_SHIFT];
		if (DONOR_LIKELY(lists->free_list))
			return free_list_pop(&lists->free_list);
	}
	return donor_malloc_by_gate(n);
}

static inline void *donor_zalloc(size_t n)
{
	void *block = donor_malloc(n);
	/* A block with a mapping of its own is fresh, hence zero. */
	if (DONOR_LIKELY(block) && donor_span(block)->size_class != SIZE_CLASS_HUGE)
		memset(block, 0, n);
	return block;
}

static __attribute__((noinline)) void donor_free_by_gate(void *block)
{
	if (donor_is_apart(block)) {
		if (block)
			graft_munmap(donor_apart(block)->mapping, donor_apart(block)->length);
		return;
	}
	span_t *span = donor_span(block);
	graft_gate_enter();
	heap_t *heap = get_thread_heap_raw();
	bool is_own = span->heap == heap;
	size_t length = span->span_count;
	if (span->size_class == SIZE_CLASS_HUGE) {
		donor_free_huge(span);
		graft_gate_leave();
		return;
	}
	if (span->size_class == SIZE_CLASS_LARGE) {
		donor_free_large(span);
	} else {
		if (span->flags & SPAN_FLAG_ALIGNED_BLOCKS) {
			size_t offset = (size_t)((char *)block - (char *)span) - SPAN_HEADER_SIZE;
			block = (char *)block - offset % span->block_size;
		}
		if (is_own)
			donor_free_of_own(span, block);
		else
			donor_free_of_other(span, block);
	}
	if (__builtin_expect(donor_is_capped, 0) && is_own)
		donor_cap_thread_cache(heap, length);
	graft_gate_leave();
}

/* The fast path frees a block that this thread owns, from a span with room in it that does not become empty. The number
 * of blocks that others have freed may lag by one; then the span is released another time. */
static inline void donor_free(void *block)
{
	span_t *span = donor_span(block);
	if (DONOR_LIKELY(!donor_is_apart(block) && span->heap == get_thread_heap_raw() && span->size_class < SIZE_CLASS_COUNT &&
	                 !(span->flags & SPAN_FLAG_ALIGNED_BLOCKS) && !_rpmalloc_span_is_fully_utilized(span))) {
		uint32_t used = span->used_count - 1;
		if (DONOR_LIKELY(used != __atomic_load_n(&span->list_size, __ATOMIC_RELAXED))) {
			*(void **)block = span->free_list;
			span->free_list = block;
			span->used_count = used;
			return;
		}
	}
	donor_free_by_gate(block);
}

static void *donor_aligned_apart(size_t alignment, size_t n)
{
	size_t page = (size_t)getauxval(AT_PAGESZ), length;
	if (__builtin_add_overflow(n, alignment + page - 1, &length))
		return graft_no_memory();
	length &= ~(page - 1);
	char *mapping = donor_mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapping == MAP_FAILED)
		return graft_no_memory();
	/* At least one page is before the block, since mappings start at pages. */
	char *block = (char *)(((uintptr_t)mapping + alignment) & ~(uintptr_t)(alignment - 1));
	char *start = block - page, *end = block + ((n + page - 1) & ~(page - 1));
	donor_unmap_around(mapping, length, start, (size_t)(end - start));
	*donor_apart(block) = (struct donor_apart){start, (size_t)(end - start)};
	return block;
}

static void *donor_aligned(size_t alignment, size_t n)
{
	if (alignment >= _memory_span_size)
		return donor_aligned_apart(alignment, n);
	/* Blocks of such a size are at multiples of it from the span's header on, whose size is a multiple, too. */
	size_t multiple = (n + SPAN_HEADER_SIZE - 1) & ~(size_t)(SPAN_HEADER_SIZE - 1);
	if (alignment <= SPAN_HEADER_SIZE && multiple <= n + alignment && multiple <= SMALL_SIZE_LIMIT)
		return donor_malloc(multiple);
	char *block = donor_malloc(n + alignment);
	if (DONOR_LIKELY(block) && ((uintptr_t)block & (alignment - 1))) {
		block = (char *)(((uintptr_t)block + alignment) & ~(uintptr_t)(alignment - 1));
		donor_span(block)->flags |= SPAN_FLAG_ALIGNED_BLOCKS;
	}
	return block;
}

static bool donor_is_huge(const void *block)
{
	return !donor_is_apart(block) && donor_span(block)->size_class == SIZE_CLASS_HUGE;
}

/* A block that grows will probably grow again, so it gets more than requested, as upstream does it, if there is room. */
static __attribute__((noinline)) void *donor_move(void *block, size_t usable, size_t n)
{
	bool grows = n > usable;
	size_t ample = usable + usable / 4 + usable / 8;
	size_t wanted = grows && n < ample ? ample : n;
	if (grows && donor_is_huge(block) && donor_is_possible(wanted)) {
		graft_gate_enter();
		void *extended = donor_extend_huge(donor_span(block), block, wanted);
		graft_gate_leave();
		if (extended)
			return extended;
	}
	void *moved = donor_try(wanted);
	if (!moved && wanted > n)
		moved = donor_try(n);
	if (!moved)
		return grows ? graft_no_memory() : block;
	memcpy(moved, block, grows ? usable : n);
	donor_free(block);
	return moved;
}

static inline void *donor_realloc(void *block, size_t n)
{
	if (!block)
		return donor_malloc(n);
	size_t usable = donor_usable(block);
	if (DONOR_LIKELY(n <= usable && n >= usable / 2))
		return block;
	return donor_move(block, usable, n);
}

/* Heaps of threads that the child does not have remain those threads' heaps: the child can use and free their blocks, but
 * their free space is not used again. */
static void donor_fork_child(void)
{
}

/* The bytes in this thread's cache and in the common cache. */
#define GRAFT_HAS_TRIM
static void donor_trim(void)
{
	graft_gate_enter();
	heap_t *heap = get_thread_heap_raw();
	if (heap)
		donor_give_back(heap);
	graft_gate_leave();
}

#define GRAFT_HAS_PURGE
static void donor_purge(void)
{
	graft_gate_enter();
	for (size_t length = 1; length <= LARGE_CLASS_COUNT; length++)
		donor_cap_common_cache(length, 0);
	graft_gate_leave();
}

#include "family.h"
