/* The free memory of a thread. heap.cc includes this after shared_memory.h, which says why what is resident is bounded. */
#ifndef SNMALLOC_THREAD_MEMORY_H
#define SNMALLOC_THREAD_MEMORY_H

namespace snmalloc
{
/* The greatest power of two up to `n`, which is not 0. */
static constexpr size_t power_below(size_t n)
{
	return bits::one_at_bit(bits::BITS - 1 - bits::clz(n));
}

/* Free ranges below 2^MAX_BITS bytes; neighbours become one. */
template<typename Pagemap, size_t MAX_BITS>
class FreeRanges
{
	using Memory = capptr::Arena<void>;
	Buddy<BuddyChunkRep<Pagemap>, MIN_CHUNK_BITS, MAX_BITS> buddies{};
	size_t held{0};

	static Memory pointer(uintptr_t start)
	{
		return Memory::unsafe_from(reinterpret_cast<void *>(start));
	}

public:
	constexpr FreeRanges() = default;

	size_t bytes() const
	{
		return held;
	}

	/* Takes a range of `size` bytes, splitting a larger one if need be. */
	Memory take(size_t size)
	{
		Memory start = pointer(buddies.remove_block(size));
		if (start != nullptr)
			held -= size;
		return start;
	}

	/* Takes a range of `most` bytes, or else one of half as many, and so on down to a chunk. */
	TakenRange take_up_to(size_t most)
	{
		TakenRange taken{take(most), most};
		while (taken.start == nullptr && taken.size > MIN_CHUNK_SIZE) {
			taken.size /= 2;
			taken.start = take(taken.size);
		}
		return taken;
	}

	/* Takes ranges, each about as large as what is above `rest` bytes, until no more than `rest` is left or the batch is
	 * full. Returns how many. */
	size_t take_above(size_t rest, TakenRange (&batch)[BATCH])
	{
		size_t taken = 0;
		for (; taken < BATCH && bytes() > rest; taken++) {
			size_t most = power_below(bits::max(bytes() - rest, MIN_CHUNK_SIZE));
			batch[taken] = take_up_to(bits::min(most, size_t{1} << (MAX_BITS - 1)));
			if (batch[taken].start == nullptr)
				break;
		}
		return taken;
	}

	/* Adds a range. If it and its neighbours make 2^MAX_BITS bytes, they are not kept, but returned. */
	Memory add(Memory start, size_t size)
	{
		held += size;
		Memory whole = pointer(buddies.add_block(start.unsafe_uintptr(), size));
		if (whole != nullptr)
			held -= size_t{1} << MAX_BITS;
		return whole;
	}
};

/* A thread's free memory below 2 MiB, and the way to all other. */
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
		/* Whether hardly anything of the range that was taken last is resident. */
		bool was_fresh{false};
		/* The range whose first pages are elsewhere, so that they are not resident when it comes back. */
		TakenRange vacated{};
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

		void keep_fresh(Memory start, size_t size)
		{
			Memory great = fresh.add(start, size);
			if (great != nullptr)
				parent.dealloc_fresh(great, GREAT);
		}

		void give_back(size_t rest)
		{
			TakenRange batch[BATCH];
			size_t count;
			do {
				count = kept.take_above(rest, batch);
				if (count > 0)
					parent.dealloc_ranges(batch, count);
			} while (count == BATCH);
			give_back_fresh(true);
		}

		/* Gives back what was not used yet. On a huge page it is resident all the same. */
		void give_back_fresh(bool only_huge_pages)
		{
			for (;;) {
				TakenRange taken = fresh.take_up_to(GREAT / 2);
				if (taken.start == nullptr)
					return;
				if (PALGraft::is_on_huge_page(taken.start.unsafe_uintptr())) {
					parent.dealloc_range(taken.start, taken.size);
				} else if (only_huge_pages) {
					fresh.add(taken.start, taken.size);
					return;
				} else {
					parent.dealloc_fresh(taken.start, taken.size);
				}
			}
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

		/* Takes the range that is kept apart, if it is one of that size and alignment. */
		Memory take_spare(size_t size, size_t alignment)
		{
			if (size != spare.size || spare.start.unsafe_uintptr() % alignment != 0)
				return nullptr;
			Memory start = spare.start;
			spare = {};
			return start;
		}

		/* Takes a resident range, of this thread or of all. */
		Memory take_resident(size_t size)
		{
			Memory start = take_spare(size, size);
			if (start == nullptr)
				start = kept.take(size);
			return start != nullptr ? start : refill(size);
		}

		/* Counts a range as in use. */
		void use(size_t size)
		{
			if (size >= GREAT) {
				parent.report(size);
				PALGraft::huge_ranges.fetch_add(size >= PALGraft::HUGE_BLOCK, stl::memory_order_relaxed);
			} else if ((live_bytes += size) - reported_bytes + WORTH_A_REPORT > 2 * WORTH_A_REPORT) {
				report();
			}
		}

		/* Counts it no more. The rest of an allocator's own memory comes from the range of all threads. */
		void end_use(size_t size)
		{
			if (size >= GREAT) {
				parent.report(-size);
				PALGraft::huge_ranges.fetch_sub(size >= PALGraft::HUGE_BLOCK, stl::memory_order_relaxed);
				return;
			}
			live_bytes -= bits::min(live_bytes, size);
			if (live_bytes - reported_bytes + WORTH_A_REPORT > 2 * WORTH_A_REPORT)
				report();
		}

		/* Takes a range of what all threads have, resident or not. Returns null if there is no memory. */
		Memory refill_fresh(size_t size)
		{
			/* As upstream: twice as much each time, so that a small program takes little. */
			size_t most = donor_thread_cache() == 0 ? size : bits::min(GREAT, bits::max(taken_bytes, MIN_CHUNK_SIZE));
			most = bits::next_pow2(bits::max(size, most));
			TakenRange taken = parent.take(most, size);
			if (taken.start == nullptr && most > size)
				taken = parent.take(size, size);
			if (taken.start == nullptr)
				return nullptr;
			taken_bytes += taken.size;
			/* The first part is the caller's. */
			for (size_t at = size; at < taken.size; at += MIN_CHUNK_SIZE) {
				Memory chunk = pointer_offset(taken.start, at);
				if (Extents<Pagemap>::was_resident(chunk))
					keep(chunk, MIN_CHUNK_SIZE);
				else
					keep_fresh(chunk, MIN_CHUNK_SIZE);
			}
			return taken.start;
		}

	public:
		static constexpr bool Aligned = true;
		static constexpr bool ConcurrencySafe = false;
		using ChunkBounds = capptr::bounds::Arena;

		constexpr Type() = default;

		/* Takes a range of `size` bytes, a power of two, at a multiple of that. */
		Memory alloc_range(size_t size)
		{
			if (size >= GREAT)
				return alloc_extent(size, size);
			/* Resident memory first, wherever it is: it saves a page fault, and the memory of a page that is not used yet. */
			Memory start = take_resident(size);
			if (start == nullptr)
				start = fresh.take(size);
			if (start == nullptr)
				start = refill_fresh(size);
			if (start == nullptr && spare.start != nullptr) {
				keep_spare({});
				start = refill_fresh(size);
			}
			if (start != nullptr)
				use(size);
			return start;
		}

		/* Takes `size` bytes at a multiple of `alignment`; both are multiples of a chunk, and it is more than is divided. */
		Memory alloc_extent(size_t size, size_t alignment)
		{
			Memory start = take_spare(size, alignment);
			was_fresh = start == nullptr;
			if (start == nullptr) {
				TakenRange taken = parent.take(size, alignment);
				if (taken.start == nullptr && spare.start != nullptr) {
					keep_spare({});
					taken = parent.take(size, alignment);
				}
				start = taken.start;
				was_fresh = taken.resident < size / 4;
			}
			if (start != nullptr)
				use(size);
			return start;
		}

		/* Counts a large block's bytes as in use, or in use no more. */
		void use_large(size_t more)
		{
			parent.report_large(more);
		}

		/* Takes what follows an extent of `before` bytes, so that it has `after`, if all of that is free. */
		bool extend(Memory start, size_t before, size_t after)
		{
			if (!parent.take_at(pointer_offset(start, before), after - before))
				return false;
			end_use(before);
			use(after);
			return true;
		}

		/* Gives back the end of an extent of `before` bytes, so that it has `after`. */
		void cut(Memory start, size_t before, size_t after)
		{
			PALGraft::end_huge_pages(start.unsafe_ptr(), before);
			if (after >= PALGraft::HUGE_BLOCK)
				PALGraft::prefer_huge_pages(start.unsafe_ptr(), after);
			end_use(before);
			use(after);
			parent.dealloc_range(pointer_offset(start, after), before - after);
		}

		void dealloc_range(Memory start, size_t size)
		{
			end_use(size);
			if (start == vacated.start) {
				parent.dealloc_fresh(start, vacated.size);
				start = pointer_offset(start, vacated.size);
				size -= vacated.size;
				if (size > 0)
					parent.dealloc_range(start, size);
				return;
			}
			PALGraft::end_huge_pages(start.unsafe_ptr(), size);
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

		/* Calls `free`, which gives back a range that begins with this one and has no pages here any more. */
		template<typename Free>
		void give_vacated(TakenRange first, Free free)
		{
			vacated = first;
			free();
			vacated = {};
		}

		/* Gives back all that is not in use. */
		void trim()
		{
			report();
			keep_spare({});
			give_back(0);
			give_back_fresh(false);
		}
	};
};

/* The chain of a thread: its own range, which metadata is taken from as well, then what all threads share. */
template<typename Pal, typename Pagemap, typename Base>
class HeapRanges : BaseLocalStateConstants
{
	using AddressSpace = Pipe<Base, GlobalRange>;

public:
	using Stats = Pipe<AddressSpace, SharedRange<Pagemap>>;

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

	/* What all threads have. */
	auto &shared()
	{
		return *get_object_range()->template ancestor<Stats>();
	}

	/* Gives back the thread's free memory, and that of all threads if so wished. */
	void trim(bool of_all)
	{
		get_object_range()->trim();
		if (of_all)
			shared().trim();
	}
};
}

#endif
