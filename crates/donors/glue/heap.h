/* The profile of the heap: which callers hold how much memory, of blocks that are sampled by their bytes.
 *
 * A thread counts down the bytes that it allocates, from a number that is drawn at random with the mean of
 * ALLOGRAFT_HEAP (an exponential distribution, so that each byte is as likely to be sampled). The block with the byte at
 * which it reaches zero is sampled. A block of n bytes is so with the probability p = 1 - exp(-n / mean), and stands for
 * 1 / p blocks of n bytes: what a report says is right on average, whatever the sizes.
 *
 * A sampled block is known again at free and realloc by its address: it starts a page, or lies where the donor's large
 * blocks do in theirs. Only such addresses on pages that are marked are looked up. Everything else about a donor stays
 * as it is.
 *
 * One thread at a time changes what is kept, behind the fork gate. Memory for it comes from the kernel. */
#ifndef GRAFT_HEAP_H
#define GRAFT_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "count.h"
#include "gate.h"
#include "logarithm.h"
#include "probes.h"
#include "random.h"
#include "unwind.h"

enum {
	graft_heap_mean_usual = 512 << 10,
	graft_heap_page = 4096,
	graft_heap_large = 64 << 10, /* from here on all of a donor's blocks lie alike in their pages */
	graft_heap_depth = 128,      /* callers of a block */
	graft_heap_marked = 4096,    /* hashes of pages */
	graft_heap_looks = 200,      /* at the lock, before a thread sleeps */
	graft_heap_lifetimes = 7,    /* below 1, 10, 100 ms, 1, 10 s; more; live */
	graft_heap_live = graft_heap_lifetimes - 1,
};

/* What was allocated by the same callers, by how long it lived. Each number is what the sampled blocks stand for. */
struct graft_heap_site {
	uint64_t hash;
	uint32_t depth, sampled[graft_heap_lifetimes];
	double blocks[graft_heap_lifetimes], bytes[graft_heap_lifetimes];
	uintptr_t callers[];
};

/* A sampled block that is live. */
struct graft_heap_block {
	_Atomic uintptr_t address; /* 0: free for ever; 1: there was one */
	uint32_t site;
	size_t size;
	double probability; /* of being sampled */
	uint64_t born;
};

/* Live blocks by address: open addressing. Readers need no lock: a table that was replaced stays mapped. */
struct graft_heap_blocks {
	size_t room, used; /* of which some are of the kind "there was one" */
	struct graft_heap_block all[];
};

/* Everything that a profile needs, mapped when the first is wanted. */
struct graft_heap_profile {
	struct graft_modules modules;
	struct graft_row_slot rows[graft_row_slots];
	/* Sites lie one behind another in `arena`; `index` has their places by hash, in units of 8 bytes, 0: none. */
	uint64_t *arena;
	size_t arena_room, arena_used; /* in units of 8 bytes */
	uint32_t *index;
	size_t index_room, sites;
	uint64_t lost, cut; /* samples without room for their site; stacks that are longer */
	uint64_t began;     /* ns */
};
static struct graft_heap_profile *graft_heap;
static _Atomic(struct graft_heap_blocks *) graft_heap_blocks;
static double graft_heap_mean;
static _Atomic uint32_t graft_heap_lock_word;
/* A profile is to be written; the time between two, or 0, and that of the next, in ns. */
static _Atomic bool graft_heap_due;
static uint64_t graft_heap_period, graft_heap_next;
/* Where the donor's large blocks lie in a page; 0 until one was seen. */
static _Atomic uint32_t graft_heap_residue;
/* How many sampled blocks live on pages of each hash, up to 255, where a count stays. One load here tells for most of the
 * blocks at such a place that they are not sampled. */
static _Atomic uint8_t graft_heap_marks[graft_heap_marked];

static __thread int64_t graft_heap_left;
static __thread bool graft_heap_has_drawn;

static void *graft_heap_map(size_t length)
{
	/* MAP_NORESERVE, whose name jemalloc takes away. */
	enum { no_reserve = 0x4000 };
	int saved = errno;
	void *mapping = graft_count_page(MAP_PRIVATE | no_reserve, length);
	errno = saved;
	return mapping;
}

static inline void graft_heap_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/* The lock is held for a fraction of a microsecond, and a thread that sleeps needs many: it looks again for a while before
 * it does. */
static void graft_heap_lock(void)
{
	graft_notice_fork();
	graft_gate_enter();
	for (int i = 0; i < graft_heap_looks; i++) {
		uint32_t none = 0;
		if (!atomic_load_explicit(&graft_heap_lock_word, memory_order_relaxed) &&
		    atomic_compare_exchange_strong(&graft_heap_lock_word, &none, 1))
			return;
		graft_heap_pause();
	}
	while (atomic_exchange(&graft_heap_lock_word, 2))
		graft_futex(&graft_heap_lock_word, FUTEX_WAIT, 2);
}

/* Writes a profile that a signal handler asked for while the lock was held (pprof.h). */
static void graft_heap_write_if_due(void);

static void graft_heap_release(void)
{
	if (atomic_exchange(&graft_heap_lock_word, 0) == 2)
		graft_futex(&graft_heap_lock_word, FUTEX_WAKE, 1);
}

static void graft_heap_unlock(void)
{
	graft_heap_release();
	graft_heap_write_if_due();
	graft_gate_leave();
}

/* Live blocks. */

static size_t graft_heap_slot(const struct graft_heap_blocks *blocks, uintptr_t address)
{
	return (size_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (blocks->room - 1);
}

static inline _Atomic uint8_t *graft_heap_mark_of(uintptr_t address)
{
	return &graft_heap_marks[(uint32_t)(address / graft_heap_page) * 0x9e3779b9u >> 20];
}

/* The caller has the lock. */
static void graft_heap_mark(uintptr_t address, int change)
{
	_Atomic uint8_t *mark = graft_heap_mark_of(address);
	uint8_t count = atomic_load_explicit(mark, memory_order_relaxed);
	if (count < UINT8_MAX)
		atomic_store_explicit(mark, (uint8_t)(count + change), memory_order_relaxed);
}

static struct graft_heap_block *graft_heap_find(struct graft_heap_blocks *blocks, uintptr_t address)
{
	for (size_t i = graft_heap_slot(blocks, address);; i = (i + 1) & (blocks->room - 1)) {
		uintptr_t there = atomic_load_explicit(&blocks->all[i].address, memory_order_acquire);
		if (there == address)
			return &blocks->all[i];
		if (!there)
			return 0;
	}
}

static struct graft_heap_blocks *graft_heap_map_blocks(size_t room)
{
	struct graft_heap_blocks *blocks = graft_heap_map(sizeof *blocks + room * sizeof *blocks->all);
	if (blocks)
		blocks->room = room;
	return blocks;
}

static void graft_heap_insert(struct graft_heap_blocks *blocks, const struct graft_heap_block *block)
{
	uintptr_t address = atomic_load_explicit(&block->address, memory_order_relaxed);
	size_t i = graft_heap_slot(blocks, address);
	uintptr_t there;
	while ((there = atomic_load_explicit(&blocks->all[i].address, memory_order_relaxed)) > 1)
		i = (i + 1) & (blocks->room - 1);
	blocks->used += !there;
	blocks->all[i].site = block->site;
	blocks->all[i].size = block->size;
	blocks->all[i].probability = block->probability;
	blocks->all[i].born = block->born;
	atomic_store_explicit(&blocks->all[i].address, address, memory_order_release);
}

/* Makes room for one block more. Returns false if there is no memory. */
static bool graft_heap_grow(void)
{
	struct graft_heap_blocks *blocks = atomic_load(&graft_heap_blocks);
	if (blocks->used * 2 < blocks->room)
		return true;
	struct graft_heap_blocks *larger = graft_heap_map_blocks(blocks->room * 2);
	if (!larger)
		return false;
	for (size_t i = 0; i < blocks->room; i++) {
		if (atomic_load_explicit(&blocks->all[i].address, memory_order_relaxed) > 1)
			graft_heap_insert(larger, &blocks->all[i]);
	}
	atomic_store(&graft_heap_blocks, larger);
	return true;
}

/* A place before one that is free for ever is so, too: nobody looks for a block behind it. */
static void graft_heap_remove(struct graft_heap_blocks *blocks, struct graft_heap_block *block)
{
	size_t mask = blocks->room - 1, i = (size_t)(block - blocks->all);
	atomic_store_explicit(&block->address, 1, memory_order_relaxed);
	while (!atomic_load_explicit(&blocks->all[(i + 1) & mask].address, memory_order_relaxed) &&
	       atomic_load_explicit(&blocks->all[i].address, memory_order_relaxed) == 1) {
		atomic_store_explicit(&blocks->all[i].address, 0, memory_order_relaxed);
		blocks->used--;
		i = (i - 1) & mask;
	}
}

/* Sites. */

static struct graft_heap_site *graft_heap_site_at(uint32_t place)
{
	return (struct graft_heap_site *)(graft_heap->arena + place);
}

static bool graft_heap_grow_index(void)
{
	struct graft_heap_profile *heap = graft_heap;
	if (heap->sites * 2 < heap->index_room)
		return true;
	size_t room = heap->index_room * 4;
	uint32_t *index = graft_heap_map(room * sizeof *index);
	if (!index)
		return false;
	for (size_t i = 0; i < heap->index_room; i++) {
		if (!heap->index[i])
			continue;
		size_t at = graft_heap_site_at(heap->index[i])->hash & (room - 1);
		while (index[at])
			at = (at + 1) & (room - 1);
		index[at] = heap->index[i];
	}
	munmap(heap->index, heap->index_room * sizeof *index);
	heap->index = index;
	heap->index_room = room;
	return true;
}

/* Returns the site of these callers, or 0 if there is no room for it. */
static uint32_t graft_heap_take_site(struct graft_frame frame)
{
	struct graft_heap_profile *heap = graft_heap;
	size_t head = sizeof(struct graft_heap_site) / 8, most = head + graft_heap_depth;
	if (heap->arena_used + most > heap->arena_room || !graft_heap_grow_index())
		return 0;
	struct graft_heap_site *fresh = graft_heap_site_at((uint32_t)heap->arena_used);
	unsigned depth = graft_unwind(heap->rows, frame, fresh->callers, graft_heap_depth);
	heap->cut += depth == graft_heap_depth;
	uint64_t hash = depth;
	for (unsigned i = 0; i < depth; i++)
		hash = (hash ^ fresh->callers[i]) * UINT64_C(0x9e3779b97f4a7c15), hash ^= hash >> 29;
	size_t at = hash & (heap->index_room - 1);
	for (; heap->index[at]; at = (at + 1) & (heap->index_room - 1)) {
		const struct graft_heap_site *known = graft_heap_site_at(heap->index[at]);
		if (known->hash == hash && known->depth == depth &&
		    graft_is_same(known->callers, fresh->callers, depth * sizeof *fresh->callers))
			return heap->index[at];
	}
	/* Callers that were known may have been written here. */
	memset(fresh, 0, sizeof *fresh);
	fresh->hash = hash;
	fresh->depth = depth;
	heap->index[at] = (uint32_t)heap->arena_used;
	heap->sites++;
	heap->arena_used += head + (depth * sizeof *fresh->callers + 7) / 8;
	return heap->index[at];
}

/* Adds to what the blocks of a site with that lifetime stand for, or takes from it. */
static void graft_heap_add(const struct graft_heap_block *block, int lifetime, int sign)
{
	struct graft_heap_site *site = graft_heap_site_at(block->site);
	double blocks = sign / block->probability;
	site->sampled[lifetime] += (uint32_t)sign;
	site->blocks[lifetime] += blocks;
	site->bytes[lifetime] += blocks * (double)block->size;
}

static int graft_heap_lifetime(uint64_t nanoseconds)
{
	uint64_t bound = 1000000;
	int lifetime = 0;
	while (lifetime < graft_heap_live - 1 && nanoseconds >= bound)
		bound *= 10, lifetime++;
	return lifetime;
}

/* The processor's own counter of time, which a program may read; 0 where there is none. */
static inline uint64_t graft_heap_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return 0;
#endif
}

/* Nanoseconds on a clock that only rises, by the counter: the kernel is asked for the first times, and one time in 64 after
 * that. Where a counter runs unevenly, a lifetime may be wrong until then. The caller has the lock. */
static uint64_t graft_heap_time(void)
{
	static uint64_t asked, last_ns, last_ticks, first_ns, first_ticks;
	static double scale; /* ns a tick */
	uint64_t ticks = graft_heap_ticks();
	if (ticks && asked++ % 64 && asked > 64 && ticks >= last_ticks)
		return last_ns + graft_whole(graft_as_double(ticks - last_ticks) * scale);
	last_ns = graft_nanoseconds(CLOCK_MONOTONIC);
	last_ticks = ticks;
	if (!first_ns)
		first_ns = last_ns, first_ticks = ticks;
	else if (ticks > first_ticks)
		scale = graft_as_double(last_ns - first_ns) / graft_as_double(ticks - first_ticks);
	return last_ns;
}

/* Reads the mappings again if these callers are in a library that is not known, at most once a second. */
static void graft_heap_know(uintptr_t caller, uint64_t now)
{
	static uint64_t next;
	if (graft_is_code(caller) || now < next)
		return;
	graft_read_modules();
	next = now + 1000000000;
}

/* Begins to sample, if that has not begun. Returns false if there is no memory. */
static bool graft_heap_begin(uint64_t mean)
{
	if (atomic_load(&graft_heap_blocks))
		return true;
	struct graft_heap_profile *heap = graft_heap_map(sizeof *heap);
	struct graft_heap_blocks *blocks = graft_heap_map_blocks(1024);
	if (!heap || !blocks)
		return false;
	/* Only what is written is in memory. Where address space is short, less is taken. */
	for (heap->arena_room = 32 << 20; !(heap->arena = graft_heap_map(heap->arena_room)); heap->arena_room /= 2) {
		if (heap->arena_room < 64 << 10)
			return false;
	}
	heap->arena_room /= 8;
	heap->arena_used = 1;
	heap->index_room = 1024;
	if (!(heap->index = graft_heap_map(heap->index_room * sizeof *heap->index)))
		return false;
	heap->began = graft_nanoseconds(CLOCK_MONOTONIC);
	graft_heap = heap;
	graft_heap_mean = graft_as_double(mean);
	graft_modules = &heap->modules;
	graft_mark_process();
	graft_read_modules();
	graft_index_program();
	atomic_store(&graft_heap_blocks, blocks);
	return true;
}

/* A profile that nobody asked for by a variable: somebody listens to the probes. */
static __attribute__((noinline, cold)) bool graft_heap_is_on(void)
{
	static _Atomic bool has_begun;
	if (atomic_load_explicit(&graft_heap_blocks, memory_order_acquire))
		return true;
	if (!(graft_detour & graft_detour_readers) || atomic_load(&has_begun))
		return false;
	/* Of the threads that come here at once, one begins; the others sample a moment later. */
	if (atomic_exchange(&has_begun, true))
		return false;
	graft_gate_enter();
	bool is_on = graft_heap_begin(graft_heap_mean_usual);
	graft_gate_leave();
	return is_on;
}

/* Whether this thread has allocated so much that the block of these bytes is sampled. */
static inline bool graft_heap_is_due(size_t n)
{
	return __builtin_expect((graft_heap_left -= (int64_t)n) < 0, 0);
}

/* Draws the bytes until the next sample. Returns whether this block is one: a thread's first draw may pass it. */
static bool graft_heap_draw(size_t n)
{
	bool is_first = !graft_heap_has_drawn;
	double uniform = graft_as_double((graft_random() >> 12) + 1) / graft_as_double(UINT64_C(1) << 52);
	graft_heap_left = (int64_t)graft_whole(-graft_log(uniform) * graft_heap_mean);
	graft_heap_has_drawn = true;
	if (is_first)
		graft_heap_left -= (int64_t)n;
	if (!is_first)
		return true;
	if (graft_heap_left >= 0)
		return false;
	return graft_heap_draw(n);
}

static inline bool graft_heap_is_at_a_place(const void *block)
{
	uintptr_t place = (uintptr_t)block % graft_heap_page;
	return __builtin_expect(!place || place == atomic_load_explicit(&graft_heap_residue, memory_order_relaxed), 0);
}

/* Whether the block may be a sampled one. */
static inline bool graft_heap_may_know(const void *block)
{
	return graft_heap_is_at_a_place(block) &&
	       atomic_load_explicit(graft_heap_mark_of((uintptr_t)block), memory_order_relaxed);
}

/* Whether a block of the donor's would be known again. The first large one says where they lie. */
static bool graft_heap_can_know(const void *block, size_t n)
{
	uint32_t place = (uintptr_t)block % graft_heap_page, none = 0;
	if (place && n >= graft_heap_large)
		atomic_compare_exchange_strong(&graft_heap_residue, &none, place);
	return graft_heap_is_at_a_place(block);
}

/* Forgets a block before it is freed or moved. Returns whether it was sampled; `kept` is for graft_heap_put_back. */
static __attribute__((noinline, cold)) bool graft_heap_forget(const void *block, struct graft_heap_block *kept)
{
	struct graft_heap_blocks *blocks = atomic_load_explicit(&graft_heap_blocks, memory_order_acquire);
	if (!block || !blocks || !graft_heap_find(blocks, (uintptr_t)block))
		return false;
	graft_heap_lock();
	uint64_t now = graft_heap_time();
	blocks = atomic_load(&graft_heap_blocks);
	struct graft_heap_block *found = graft_heap_find(blocks, (uintptr_t)block);
	if (found) {
		atomic_store_explicit(&kept->address, (uintptr_t)block, memory_order_relaxed);
		kept->site = found->site;
		kept->size = found->size;
		kept->probability = found->probability;
		kept->born = found->born;
		graft_heap_add(found, graft_heap_live, -1);
		graft_heap_add(found, graft_heap_lifetime(now > found->born ? now - found->born : 0), 1);
		graft_heap_remove(blocks, found);
		graft_heap_mark((uintptr_t)block, -1);
	}
	graft_heap_unlock();
	if (found)
		graft_probe_free((void *)block);
	return found;
}

/* After a realloc that failed: the block is where it was. */
static void graft_heap_put_back(const struct graft_heap_block *kept)
{
	graft_heap_lock();
	uint64_t now = graft_heap_time();
	if (graft_heap_grow()) {
		graft_heap_insert(atomic_load(&graft_heap_blocks), kept);
		graft_heap_mark(atomic_load_explicit(&kept->address, memory_order_relaxed), 1);
		graft_heap_add(kept, graft_heap_lifetime(now > kept->born ? now - kept->born : 0), -1);
		graft_heap_add(kept, graft_heap_live, 1);
	}
	graft_heap_unlock();
}

static void graft_heap_remember(void *block, size_t n, struct graft_frame frame)
{
	double probability = graft_one_minus_exp((double)n / graft_heap_mean);
	graft_heap_lock();
	uint64_t now = graft_heap_time();
	graft_heap_know(frame.return_address, now);
	if (graft_heap_period && now >= graft_heap_next) {
		graft_heap_next = now + graft_heap_period;
		atomic_store(&graft_heap_due, true);
	}
	uint32_t site = graft_heap_grow() ? graft_heap_take_site(frame) : 0;
	if (site) {
		struct graft_heap_block fresh = {.site = site, .size = n, .probability = probability, .born = now};
		atomic_store_explicit(&fresh.address, (uintptr_t)block, memory_order_relaxed);
		graft_heap_insert(atomic_load(&graft_heap_blocks), &fresh);
		graft_heap_mark((uintptr_t)block, 1);
		graft_heap_add(&fresh, graft_heap_live, 1);
	} else {
		graft_heap->lost++;
	}
	graft_heap_unlock();
	graft_probe_alloc(block, n, graft_whole((double)n / probability));
}

/* A child has its parent's live blocks, and allocates from its fork on. */
static void graft_heap_in_child(void)
{
	atomic_store(&graft_heap_lock_word, 0);
	if (!graft_heap)
		return;
	for (size_t i = 0; i < graft_heap->index_room; i++) {
		if (!graft_heap->index[i])
			continue;
		struct graft_heap_site *site = graft_heap_site_at(graft_heap->index[i]);
		for (int lifetime = 0; lifetime < graft_heap_live; lifetime++)
			site->sampled[lifetime] = 0, site->blocks[lifetime] = site->bytes[lifetime] = 0;
	}
}

#endif
