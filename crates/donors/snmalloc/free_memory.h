/* Free memory, and when it goes back to the kernel. heap.cc includes this after upstream's ranges.
 *
 * Upstream's ranges are a chain: a thread's own buddy allocator, the global one, the address space. Upstream tells the
 * kernel about a range when it goes from a thread to the global allocator, and never about what a thread keeps. Here,
 * free memory that is still resident is kept apart at both places, and its size is bounded: what is above the bound
 * goes back at once. That needs no clock and no thread, so a process that goes idle keeps no more than the bounds.
 *
 * Memory that was never used ("fresh") is not resident and does not count. */
#ifndef SNMALLOC_FREE_MEMORY_H
#define SNMALLOC_FREE_MEMORY_H

namespace snmalloc
{
/* The greatest power of two that is no more than `n`, which is not 0. */
static constexpr size_t power_below(size_t n)
{
	return bits::one_at_bit(bits::BITS - 1 - bits::clz(n));
}

/* A power-of-two range. Its start is null if there is none. */
struct TakenRange {
	capptr::Arena<void> start{nullptr};
	size_t size{0};
};

/* Ranges that pass a lock together. */
static constexpr size_t BATCH = 16;

/* Free ranges below 2^MAX_BITS bytes; neighbours become one. */
template<typename Pagemap, size_t MAX_BITS>
class FreeRanges
{
	using Memory = capptr::Arena<void>;
	Buddy<BuddyChunkRep<Pagemap>, MIN_CHUNK_BITS, MAX_BITS> buddies{};
	/* Changed by one thread at a time, and read by any. */
	stl::Atomic<size_t> held{0};

	void count(size_t more)
	{
		held.store(bytes() + more, stl::memory_order_relaxed);
	}

	static Memory pointer(uintptr_t start)
	{
		return Memory::unsafe_from(reinterpret_cast<void *>(start));
	}

public:
	constexpr FreeRanges() = default;

	size_t bytes()
	{
		return held.load(stl::memory_order_relaxed);
	}

	/* Takes a range of `size` bytes, splitting a larger one if need be. */
	Memory take(size_t size)
	{
		Memory start = pointer(buddies.remove_block(size));
		if (start != nullptr)
			count(-size);
		return start;
	}

	/* Takes a range of `most` bytes, or else one of half as many, and so on down to `least`. */
	TakenRange take(size_t most, size_t least)
	{
		TakenRange taken{take(most), most};
		while (taken.start == nullptr && taken.size > least) {
			taken.size /= 2;
			taken.start = take(taken.size);
		}
		return taken;
	}

	/* Takes ranges of `smallest` bytes and more, each about as large as what is above `rest` bytes, until no more than
	 * `rest` is left or the batch is full. Returns how many. */
	size_t take_above(size_t rest, size_t smallest, TakenRange (&batch)[BATCH])
	{
		size_t taken = 0;
		for (; taken < BATCH && bytes() > rest; taken++) {
			size_t most = power_below(bits::max(bytes() - rest, smallest));
			batch[taken] = take(bits::min(most, size_t{1} << (MAX_BITS - 1)), smallest);
			if (batch[taken].start == nullptr)
				break;
		}
		return taken;
	}

	/* Adds a range. If it and its neighbours make 2^MAX_BITS bytes, they are not kept, but returned. */
	Memory add(Memory start, size_t size)
	{
		count(size);
		Memory whole = pointer(buddies.add_block(start.unsafe_uintptr(), size));
		if (whole != nullptr)
			count(-(size_t{1} << (MAX_BITS % bits::BITS)));
		return whole;
	}
};

/* All threads' free memory that is still resident, between their ranges and the address space. */
template<typename Pagemap>
struct ResidentRange {
	template<typename ParentRange>
	class Type : public ContainsParent<ParentRange>
	{
		using ContainsParent<ParentRange>::parent;
		static_assert(ParentRange::ConcurrencySafe, "system calls are made without the lock");
		using Memory = capptr::Arena<void>;

		static inline CombiningLock lock{};
		/* Behind the lock, but for a look at its bytes. */
		static inline FreeRanges<Pagemap, bits::BITS - 1> kept{};
		/* Bytes that were given back lately and not needed since; and those that were needed again, which count for less
		 * and less. Neither is more than purge_credit. */
		static inline size_t given_bytes{0}, missed_bytes{0};
		/* Four times what was needed again so far, which is not forgotten; no more than purge_credit. */
		static inline size_t again_bytes{0};
		/* What threads use, as far as they have reported it; not their caches. */
		static inline stl::Atomic<size_t> live_bytes{0};

		static size_t credit()
		{
			return static_cast<size_t>(donor_purge_credit()) << 10;
		}

		/* What threads use at the least: slabs with a few blocks, metadata. */
		static constexpr size_t REST = 768 << 10;

		/* The most that is kept: purge_debt, but a quarter of it as long as the program has needed nothing again; or a share
		 * of what is in use; and more for a program that frees and allocates large blocks in turn, as far as it has shown
		 * that it needs them again. The last free leaves next to nothing in use, and so none of that. */
		static size_t bound()
		{
			if (donor_purge_delay() < 0)
				return SIZE_MAX;
			size_t whole = static_cast<size_t>(donor_purge_debt()) << 10, live = live_bytes.load(stl::memory_order_relaxed);
			size_t debt = bits::min(whole, whole / 4 + again_bytes);
			return bits::max(debt, live / 8) + bits::min(missed_bytes, 16 * (live - bits::min(live, REST)));
		}

		/* Gives memory back until no more than `rest` bytes are kept, in pieces about as large as what is too much. Each
		 * batch is outside the lock, and behind the gate as long as it is in no allocator. */
		void give_back(size_t rest)
		{
			PreventFork gate;
			size_t smallest = bits::max(MIN_CHUNK_SIZE, PALGraft::real_page_size());
			for (;;) {
				TakenRange batch[BATCH];
				size_t count = 0;
				with(lock, [&]() {
					count = kept.take_above(rest, smallest, batch);
					for (size_t i = 0; i < count; i++)
						given_bytes = bits::min(given_bytes + batch[i].size, credit());
				});
				for (size_t i = 0; i < count; i++) {
					PALGraft::notify_not_using(batch[i].start.unsafe_ptr(), batch[i].size);
					parent.dealloc_range(batch[i].start, batch[i].size);
				}
				if (count < BATCH)
					return;
			}
		}

		/* Takes a range that is not resident. Returns null if there is no memory for it. */
		Memory take_fresh(size_t size)
		{
			Memory start = parent.alloc_range(size);
			if (start == nullptr)
				return nullptr;
			if (!PALGraft::notify_using<NoZero>(start.unsafe_ptr(), size)) {
				parent.dealloc_range(start, size);
				return nullptr;
			}
			PALGraft::make_resident(&Pagemap::get_metaentry(start.unsafe_uintptr()));
			return start;
		}

	public:
		static constexpr bool Aligned = ParentRange::Aligned;
		static constexpr bool ConcurrencySafe = true;
		using ChunkBounds = typename ParentRange::ChunkBounds;

		constexpr Type() = default;

		/* Takes resident ranges of `size` bytes, a power of two, up to `most` of them. Returns how many there were. */
		size_t take_resident(size_t size, Memory *starts, size_t most)
		{
			size_t count = 0;
			if (kept.bytes() >= size)
				with(lock, [&]() {
					while (count < most && (starts[count] = kept.take(size)) != nullptr)
						count++;
				});
			return count;
		}

		/* Takes a range that is not resident, of `fresh` bytes if that can be had, else of `size`. Both are powers of two.
		 * If there is no memory, its start is null. */
		TakenRange take_unused(size_t size, size_t fresh)
		{
			TakenRange taken{take_fresh(fresh), fresh};
			if (taken.start == nullptr && fresh > size)
				taken = {take_fresh(size), size};
			if (taken.start == nullptr) {
				/* What is kept in pieces may be enough in one piece. */
				give_back(0);
				taken = {take_fresh(size), size};
			}
			if (taken.start == nullptr)
				return taken;
			with(lock, [&]() {
				size_t missed = bits::min(given_bytes, taken.size);
				given_bytes -= missed;
				missed_bytes = bits::min(missed_bytes + missed, credit());
				again_bytes = bits::min(again_bytes + 4 * missed, credit());
			});
			return taken;
		}

		Memory alloc_range(size_t size)
		{
			Memory start;
			return take_resident(size, &start, 1) == 1 ? start : take_unused(size, size).start;
		}

		void dealloc_range(Memory start, size_t size)
		{
			TakenRange range{start, size};
			dealloc_ranges(&range, 1);
		}

		void dealloc_ranges(const TakenRange *ranges, size_t count)
		{
			size_t most = 0;
			bool too_much = false;
			with(lock, [&]() {
				for (size_t i = 0; i < count; i++) {
					missed_bytes -= bits::min(missed_bytes, ranges[i].size / 16);
					kept.add(ranges[i].start, ranges[i].size);
				}
				most = bound();
				too_much = kept.bytes() > most;
			});
			/* A little more than necessary, so that not every range that follows is too much. */
			if (too_much)
				give_back(most - most / 4);
		}

		/* Takes back a range that is not resident. */
		void dealloc_fresh(Memory start, size_t size)
		{
			parent.dealloc_range(start, size);
		}

		/* Counts what a thread uses from now on, or uses no more. Wraps around like any unsigned number. */
		static void report(size_t more)
		{
			live_bytes.fetch_add(more, stl::memory_order_relaxed);
		}

		void trim()
		{
			give_back(0);
		}
	};
};

/* A thread's free memory below 2 MiB. */
template<typename Pagemap>
struct ThreadRange {
	template<typename ParentRange>
	class Type : public ContainsParent<ParentRange>
	{
		using ContainsParent<ParentRange>::parent;
		using Memory = capptr::Arena<void>;

		static constexpr size_t GREAT_BITS = 21, GREAT = size_t{1} << GREAT_BITS;
		FreeRanges<Pagemap, GREAT_BITS> kept{}, fresh{};
		/* Larger ranges are not kept among these: if a part of a range stays here, or is in use, nobody can use the whole.
		 * Only the last one is kept, apart and undivided. */
		static constexpr size_t MOST_DIVIDED = 64 << 10;
		TakenRange spare{};
		/* How many ranges at most come from all threads at once. */
		static constexpr size_t REFILL = 4;
		/* Bytes that were taken as fresh memory so far. */
		size_t taken_bytes{0};
		/* Whether the range that was taken last is not resident. */
		bool was_fresh{false};
		/* The range whose pages are elsewhere, so that it is not resident when it comes back. */
		Memory vacated{nullptr};
		/* Bytes of ranges in use, now and when they were last reported. */
		size_t live_bytes{0}, reported_bytes{0};
		static constexpr size_t WORTH_A_REPORT = 64 << 10;

		/* The most bytes that are kept, and as many for the range that is kept apart. */
		size_t bound()
		{
			size_t least = static_cast<size_t>(donor_thread_cache()) << 10;
			return least == 0 ? 0 : bits::min(bits::max(least, live_bytes / 16), GREAT / 2);
		}

		void report()
		{
			parent.report(live_bytes - reported_bytes);
			reported_bytes = live_bytes;
		}

		void keep(Memory start, size_t size)
		{
			Memory great = kept.add(start, size);
			if (great != nullptr)
				parent.dealloc_range(great, GREAT);
		}

		void give_back(size_t rest)
		{
			TakenRange batch[BATCH];
			size_t count;
			do {
				count = kept.take_above(rest, MIN_CHUNK_SIZE, batch);
				if (count > 0)
					parent.dealloc_ranges(batch, count);
			} while (count == BATCH);
		}

		/* Keeps a range as a whole, or none, and gives back the one that was kept so far. */
		void keep_spare(TakenRange range)
		{
			TakenRange last = spare;
			spare = range;
			if (last.start != nullptr)
				parent.dealloc_range(last.start, last.size);
		}

		/* Takes a resident range of all threads, and some more for the next calls. */
		Memory refill(size_t size)
		{
			Memory starts[REFILL];
			size_t most = bits::min(REFILL, bits::max(bound() / 4 / size, size_t{1}));
			size_t count = parent.take_resident(size, starts, most);
			while (count > 1)
				keep(starts[--count], size);
			return count == 1 ? starts[0] : nullptr;
		}

		/* Takes a resident range, of this thread or of all. */
		Memory take_resident(size_t size)
		{
			if (size == spare.size) {
				Memory start = spare.start;
				spare = {};
				return start;
			}
			Memory start = kept.take(size);
			return start != nullptr ? start : refill(size);
		}

		/* Takes a range that is not resident. Returns null if there is no memory. */
		Memory refill_fresh(size_t size)
		{
			/* As upstream: twice as much each time, so that a small program takes little. */
			size_t most = donor_thread_cache() == 0 ? size : bits::min(GREAT, bits::max(taken_bytes, MIN_CHUNK_SIZE));
			TakenRange taken = parent.take_unused(size, bits::next_pow2(bits::max(size, most)));
			if (taken.start == nullptr)
				return nullptr;
			taken_bytes += taken.size;
			/* The first part is the caller's. The rest has a piece for each power of two between. They never become one of
			 * 2 MiB again, since the first part is not fresh any more. */
			for (size_t rest = taken.size / 2; rest >= size; rest /= 2)
				fresh.add(pointer_offset(taken.start, rest), rest);
			return taken.start;
		}

	public:
		static constexpr bool Aligned = true;
		static constexpr bool ConcurrencySafe = false;
		using ChunkBounds = capptr::bounds::Arena;

		constexpr Type() = default;

		Memory alloc_range(size_t size)
		{
			if (size >= GREAT) {
				Memory start;
				was_fresh = parent.take_resident(size, &start, 1) == 0;
				if (was_fresh)
					start = parent.take_unused(size, size).start;
				if (start != nullptr) {
					parent.report(size);
					PALGraft::huge_ranges.fetch_add(size >= PALGraft::HUGE_BLOCK, stl::memory_order_relaxed);
				}
				return start;
			}
			/* Resident memory first, wherever it is: it saves a page fault, and the memory of a page that is not used yet. */
			Memory start = take_resident(size);
			was_fresh = start == nullptr;
			if (start == nullptr)
				start = fresh.take(size);
			if (start == nullptr)
				start = refill_fresh(size);
			if (start == nullptr && spare.start != nullptr) {
				keep_spare({});
				start = refill_fresh(size);
			}
			if (start != nullptr && (live_bytes += size) - reported_bytes + WORTH_A_REPORT > 2 * WORTH_A_REPORT)
				report();
			return start;
		}

		void dealloc_range(Memory start, size_t size)
		{
			if (size >= GREAT) {
				parent.report(-size);
				PALGraft::huge_ranges.fetch_sub(size >= PALGraft::HUGE_BLOCK, stl::memory_order_relaxed);
				if (start == vacated)
					return parent.dealloc_fresh(start, size);
				PALGraft::end_huge_pages(start.unsafe_ptr(), size);
				return parent.dealloc_range(start, size);
			}
			/* The rest of an allocator's own memory comes from the range of all threads. */
			live_bytes -= bits::min(live_bytes, size);
			if (live_bytes - reported_bytes + WORTH_A_REPORT > 2 * WORTH_A_REPORT)
				report();
			if (start == vacated)
				return parent.dealloc_fresh(start, size);
			size_t most = bound();
			if (size <= MOST_DIVIDED)
				keep(start, size);
			else if (size <= most)
				keep_spare({start, size});
			else
				parent.dealloc_range(start, size);
			if (kept.bytes() > most)
				give_back(most / 2);
			if (spare.size > most)
				keep_spare({});
		}

		bool last_was_fresh() const
		{
			return was_fresh;
		}

		/* Calls `free`, which gives back the range that begins at `start` and has no pages any more. */
		template<typename Free>
		void give_vacated(Memory start, Free free)
		{
			vacated = start;
			free();
			vacated = nullptr;
		}

		/* Gives back all that is not in use. */
		void trim()
		{
			report();
			keep_spare({});
			give_back(0);
			for (;;) {
				TakenRange taken = fresh.take(GREAT / 2, MIN_CHUNK_SIZE);
				if (taken.start == nullptr)
					return;
				parent.dealloc_fresh(taken.start, taken.size);
			}
		}
	};
};

/* The chain of a thread: its own range, which metadata is taken from as well, then what all threads share. */
template<typename Pal, typename Pagemap, typename Base>
class HeapRanges : BaseLocalStateConstants
{
	using Unused = LargeBuddyRange<GlobalCacheSizeBits, bits::BITS - 1, Pagemap, MinBaseSizeBits<Pal>()>;
	using AddressSpace = Pipe<Base, Unused, GlobalRange>;

public:
	using Stats = Pipe<AddressSpace, ResidentRange<Pagemap>>;

private:
	using OwnRange = Pipe<Stats, ThreadRange<Pagemap>>;
	using ObjectRange = Pipe<OwnRange, SmallBuddyRange>;
	ObjectRange object_range;

public:
	/* For the memory of allocators themselves. */
	using GlobalMetaRange = Pipe<ObjectRange, GlobalRange>;

	OwnRange *get_object_range()
	{
		return object_range.template ancestor<OwnRange>();
	}

	ObjectRange &get_meta_range()
	{
		return object_range;
	}

	/* Gives back the thread's free memory, and that of all threads if so wished. */
	void trim(bool of_all)
	{
		get_object_range()->trim();
		if (of_all)
			get_object_range()->template ancestor<Stats>()->trim();
	}
};
}

#endif
