/* The search for holes: slabs of which most objects are free keep all of their pages in memory, for as long as one object
 * is in use, and upstream keeps a fourth of those with none. Such pages go back to the kernel (slab_metadata.h), and such
 * slabs to the thread's free memory. heap.cc includes this before upstream's allocator.
 *
 * Only time tells such a slab from one that is about to become free as a whole, and which goes back at no cost: a map that
 * is dropped frees its blocks in the order of their hashes, so all slabs are nearly empty just before the end. So a slab
 * is searched when as many of its objects were in use at the last look, about a quarter of a second before. The time is
 * the processor's counter. A search goes on in calls that take a slow path anyway, for a part of the time that has passed;
 * nothing is searched while a thread makes no call. */
#ifndef SNMALLOC_HOLES_H
#define SNMALLOC_HOLES_H

#define Ticker UpstreamTicker
#include "snmalloc/mem/ticker.h"
#undef Ticker

namespace snmalloc
{
/* The search of one allocator. */
class HoleSearch
{
	/* A call on a slow path in so many goes on with a search, or begins one if it is time. */
	static constexpr uint32_t CALLS = 4;
	/* It takes this part of the time that has passed, once that is enough for 60 us, and for 4 ms at most. */
	static constexpr uint64_t SHARE = 32, LEAST = 4096, MOST = 64;
	/* Smaller heaps are not searched, and do not read the counter of time. */
	static constexpr size_t LEAST_MAPPED = 16 << 20;

	uint32_t calls{CALLS};
	/* Slabs of the size at hand that are still to be looked at. */
	uint16_t left{0};
	/* The size at hand. */
	uint8_t sizeclass{0};
	bool is_under_way{false};
	/* When the search began, when it went on last, and when the last one at a thread's end was over. */
	uint64_t begun{0}, went_on{0}, ended{0};

	/* The processor's counter of time; 0 where a program does not know how fast it counts. Under seccomp's strict mode,
	 * which forbids what gives memory back, the counter of x86_64 is forbidden as well. */
	static uint64_t now()
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

	/* About a quarter of a second: on x86_64 a 10th to a half. */
	static uint64_t quarter()
	{
#if defined(__aarch64__)
		uint64_t per_second;
		__asm__("mrs %0, cntfrq_el0" : "=r"(per_second));
		return per_second / 4;
#else
		return uint64_t{1} << 29;
#endif
	}

	/* Whether memory may go back, and there is enough of it to be worth a search. */
	static bool is_worth_it()
	{
		return donor_purge_delay() == 0 && PALGraft::mapped_bytes() > LEAST_MAPPED;
	}

	/* Looks at a slab that has room. */
	template<typename Slabs, typename Slab>
	static void look_at(Slabs slabs, Slab *slab, smallsizeclass_t size)
	{
		if (slab->is_unused())
			slabs.give_back(slab, size);
		else if (slab->may_have_holes(size))
			slab->give_back_holes(size, slabs.entropy());
	}

	/* Looks at slabs until that time. */
	template<typename Slabs>
	void look(Slabs slabs, uint64_t end)
	{
		while (now() < end) {
			left = bits::min(left, slabs.with_room(sizeclass).length);
			if (left == 0) {
				if (++sizeclass == NUM_SMALL_SIZECLASSES) {
					is_under_way = false;
					return;
				}
				left = slabs.with_room(sizeclass).length;
				continue;
			}
			left--;
			auto *slab = slabs.with_room(sizeclass).available.rotate();
			if (slab->is_seen_again())
				look_at(slabs, slab, smallsizeclass_t(sizeclass));
		}
	}

public:
	constexpr HoleSearch() = default;

	/* Counts a call on a slow path. Returns whether to search in this one. */
	SNMALLOC_FAST_PATH bool is_due()
	{
		if (SNMALLOC_LIKELY(--calls != 0))
			return false;
		calls = CALLS;
		return true;
	}

	/* Begins a search if it is time, or goes on with it. `slabs` are those of the calling thread. */
	template<typename Slabs>
	void search(Slabs slabs)
	{
		uint64_t before = is_worth_it() ? now() : 0, passed = before - went_on;
		if (before == 0 || passed / SHARE < quarter() / LEAST)
			return;
		went_on = before;
		if (!is_under_way) {
			if (before - begun < quarter())
				return;
			begun = before;
			is_under_way = true;
			sizeclass = 0;
			left = slabs.with_room(0).length;
			slabs.forget_needs();
		}
		look(slabs, before + bits::min(passed / SHARE, quarter() / MOST));
	}

	/* Searches all slabs at once, whenever they were seen last. */
	template<typename Slabs>
	static void search_all(Slabs slabs)
	{
		if (!is_worth_it())
			return;
		for (size_t size = 0; size < NUM_SMALL_SIZECLASSES; size++)
			slabs.with_room(size).available.iterate(
			    [&](auto *slab) { look_at(slabs, slab, smallsizeclass_t(size)); });
	}

	/* As above, when a thread has ended: no call may follow. Threads that live briefly search once in a while only. */
	template<typename Slabs>
	void search_at_end(Slabs slabs)
	{
		uint64_t before = is_worth_it() ? now() : 0;
		if (before == 0 || before - ended < quarter())
			return;
		search_all(slabs);
		ended = now();
	}
};

static SNMALLOC_SLOW_PATH void search_for_holes(HoleSearch &search);

/* Upstream calls this on the slow paths of an allocator. Its own class would ask for the time. */
template<typename Pal>
class Ticker : public HoleSearch
{
public:
	template<typename T = void *>
	SNMALLOC_FAST_PATH T check_tick(T result = nullptr)
	{
		if constexpr (!mitigations(metadata_protection))
			if (SNMALLOC_UNLIKELY(is_due()))
				search_for_holes(*this);
		return result;
	}
};
}

#endif
