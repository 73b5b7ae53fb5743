/* The memory that no thread has, and when it goes back to the kernel. heap.cc includes this after extents.h.
 *
 * Upstream's ranges are a chain: a thread's own buddy allocator, the global one, the address space. Upstream tells the
 * kernel about a range when it goes from a thread to the global allocator, and never about what a thread keeps. Here,
 * free memory that is still resident is counted at both places, and its size is bounded: what is above the bound goes
 * back at once. That needs no clock and no thread, so a process that goes idle keeps no more than the bounds. */
#ifndef SNMALLOC_SHARED_MEMORY_H
#define SNMALLOC_SHARED_MEMORY_H

namespace snmalloc
{
/* Ranges that pass a lock together. They are on the stack, of which a thread may have 2 KiB. */
static constexpr size_t BATCH = 8;

/* The memory that all threads share: all memory that no thread has. */
template<typename Pagemap>
struct SharedRange {
	template<typename ParentRange>
	class Type : public ContainsParent<ParentRange>
	{
		using ContainsParent<ParentRange>::parent;
		static_assert(ParentRange::ConcurrencySafe, "system calls are made without the lock");
		using Memory = capptr::Arena<void>;

		/* How far below the bound the kept memory goes when it was above it, at most. More would be needed again. */
		static constexpr size_t AT_ONCE = 2 << 20;

		GRAFT_EARLY static inline CombiningLock lock{};
		GRAFT_EARLY static inline FlagWord growing{};
		/* Behind the lock, but for a look at its bytes. */
		GRAFT_EARLY static inline Extents<Pagemap> extents{};
		/* Bytes that were given back lately and not needed since; and those that were needed again, which count twice, and
		 * for less and less. Neither is more than the credit. */
		GRAFT_EARLY static inline size_t given_bytes{0}, missed_bytes{0};
		/* Four times what was needed again so far, which is not forgotten; no more than the credit. */
		GRAFT_EARLY static inline size_t again_bytes{0};
		/* The bytes that threads have reported as used; without their caches. */
		GRAFT_EARLY static inline stl::Atomic<size_t> live_bytes{0};
		/* Of these, large blocks. */
		GRAFT_EARLY static inline stl::Atomic<size_t> large_bytes{0};
		/* The most that is mapped before it is needed; what stays mapped that nobody uses, and how much of it is unmapped at
		 * once. */
		static constexpr size_t MOST_GROWTH = 32 << 20, MOST_UNUSED = 48 << 20, LEAST_UNMAPPED = 4 << 20;
		/* Bytes that were unmapped and not mapped again since; and those that were, which stay mapped: up to twice what is in
		 * use. */
		GRAFT_EARLY static inline size_t unmapped_bytes{0}, remapped_bytes{0};

		/* The most that is kept because the program needs it again: purge_credit, or twice what is in use. */
		static size_t credit()
		{
			size_t least = static_cast<size_t>(donor_purge_credit()) << 10;
			return least == 0 ? 0 : bits::max(least, 2 * live_bytes.load(stl::memory_order_relaxed));
		}

		/* The bytes that may be in use when all blocks are freed: slabs that are not quite empty, metadata. */
		static size_t rest()
		{
			return (384 << 10) * (1 + PALGraft::allocators.load(stl::memory_order_relaxed));
		}

		/* The most that is kept: purge_debt, but a quarter of it as long as the program has needed nothing again; or a share
		 * of what is in use; and more for a program that frees and allocates large blocks in turn, as far as it has shown
		 * that it needs them again. The last free leaves no large block, and no more than rest() in use, and so none of
		 * that. */
		static size_t bound()
		{
			if (donor_purge_delay() < 0)
				return SIZE_MAX;
			size_t whole = static_cast<size_t>(donor_purge_debt()) << 10, live = live_bytes.load(stl::memory_order_relaxed);
			size_t debt = bits::min(whole, whole / 4 + again_bytes);
			size_t blocks = bits::max(large_bytes.load(stl::memory_order_relaxed), live - bits::min(live, rest()));
			return bits::max(debt, live / 8) + bits::min(missed_bytes, 64 * blocks);
		}

		/* Gives memory back until no more than `rest` bytes are kept, in pieces about as large as the excess. Each
		 * batch is outside the lock, and behind the gate while it is in no allocator. */
		void give_back(size_t rest)
		{
			PreventFork gate;
			size_t page = bits::max(MIN_CHUNK_SIZE, PALGraft::real_page_size());
			for (;;) {
				TakenRange batch[BATCH];
				size_t count = 0;
				with(lock, [&]() {
					while (count < BATCH && (batch[count] = extents.take_above(rest, page)).start != nullptr)
						given_bytes = bits::min(given_bytes + batch[count++].resident, credit());
				});
				for (size_t i = 0; i < count; i++)
					PALGraft::notify_not_using(batch[i].start.unsafe_ptr(), batch[i].size);
				if (count > 0)
					with(lock, [&]() {
						for (size_t i = 0; i < count; i++)
							extents.add(batch[i].start, batch[i].size, false);
					});
				if (count < BATCH)
					return;
			}
		}

		/* Unmaps what is free and not resident, as far as more is mapped than twice what is in use and MOST_UNUSED: a limit
		 * on the address space (RLIMIT_AS), locked memory (mlockall) and core files count it. Ranges are large, so that the
		 * process does not have many mappings. */
		void unmap_unused()
		{
			while (donor_purge_delay() >= 0) {
				size_t twice = 2 * live_bytes.load(stl::memory_order_relaxed);
				size_t most = twice + MOST_UNUSED + bits::min(remapped_bytes, twice);
				if (PALGraft::mapped_bytes() <= most)
					return;
				PreventFork gate;
				TakenRange taken;
				size_t page = bits::max(MIN_CHUNK_SIZE, PALGraft::real_page_size());
				size_t least = bits::max(LEAST_UNMAPPED, PALGraft::least_apart());
				with(lock, [&]() {
					taken = extents.take_unused(least, page);
					unmapped_bytes += taken.size;
				});
				if (taken.start == nullptr)
					return;
				if (!PALGraft::unmap_blocks(taken.start.unsafe_ptr(), taken.size)) {
					dealloc_fresh(taken.start, taken.size);
					return;
				}
			}
		}

		/* Takes address space: the size in the donor's option, or as much as is already taken, up to MOST_GROWTH, so
		 * that large blocks find room in one piece; less if the kernel refuses, but not less than needed. Returns false
		 * if there is no room. */
		bool grow(size_t least)
		{
			size_t reserve = bits::align_up(static_cast<size_t>(donor_arena_reserve()) << 10, MIN_CHUNK_SIZE);
			size_t wanted = bits::max(bits::max(reserve, bits::min(PALGraft::mapped_bytes(), MOST_GROWTH)), least);
			for (;;) {
				Memory start = parent.alloc_range(wanted);
				if (start != nullptr) {
					Memory first = pointer_align_up(start, MIN_CHUNK_SIZE);
					size_t size = bits::align_down(wanted - pointer_diff(start, first), MIN_CHUNK_SIZE);
					PALGraft::make_resident(&Pagemap::get_metaentry(first.unsafe_uintptr()));
					PALGraft::make_resident(&Pagemap::get_metaentry(first.unsafe_uintptr() + size - MIN_CHUNK_SIZE));
					with(lock, [&]() {
						extents.add_new(first, size);
						size_t again = bits::min(unmapped_bytes, size);
						unmapped_bytes -= again;
						remapped_bytes = bits::min(remapped_bytes + again, 2 * live_bytes.load(stl::memory_order_relaxed));
					});
					return true;
				}
				if (wanted == least)
					return false;
				wanted = bits::max(bits::align_up(wanted / 2, MIN_CHUNK_SIZE), least);
			}
		}

		/* Counts what was given back before and is needed again. Behind the lock. */
		static TakenRange count_missed(TakenRange taken)
		{
			size_t missed = bits::min(given_bytes, taken.size - taken.resident);
			given_bytes -= missed;
			missed_bytes = bits::min(missed_bytes + 2 * missed, credit());
			again_bytes = bits::min(again_bytes + 4 * missed, credit());
			return taken;
		}

		/* Prepares a range for use. Returns false, and takes it back, if the kernel refuses. */
		bool use(const TakenRange &taken)
		{
			if (taken.resident == taken.size)
				return true;
			if (!PALGraft::notify_using<NoZero>(taken.start.unsafe_ptr(), taken.size)) {
				dealloc_fresh(taken.start, taken.size);
				return false;
			}
			PALGraft::make_resident(&Pagemap::get_metaentry(taken.start.unsafe_uintptr()));
			return true;
		}

	public:
		static constexpr bool Aligned = true;
		static constexpr bool ConcurrencySafe = true;
		using ChunkBounds = typename ParentRange::ChunkBounds;

		constexpr Type() = default;

		/* Takes resident ranges of `size` bytes, a power of two, at multiples of that, up to `most` of them. Returns how many
		 * there were. */
		size_t take_resident(size_t size, Memory *starts, size_t most)
		{
			size_t count = 0;
			if (extents.bytes() >= size)
				with(lock, [&]() {
					while (count < most && (starts[count] = extents.take_resident(size)) != nullptr)
						count++;
				});
			return count;
		}

		/* Takes `size` bytes at a multiple of `alignment`, resident or not. If there is no memory, the start is null. */
		TakenRange take(size_t size, size_t alignment)
		{
			for (;;) {
				TakenRange taken;
				with(lock, [&]() { taken = count_missed(extents.take(size, alignment)); });
				if (taken.start == nullptr) {
					/* One thread at a time takes address space: what it gets may be enough for those that wait. */
					bool goes_on = false;
					with(growing, [&]() {
						with(lock, [&]() { taken = count_missed(extents.take(size, alignment)); });
						/* The kernel's addresses are multiples of its pages. */
						goes_on = taken.start != nullptr || grow(size + alignment + MIN_CHUNK_SIZE);
					});
					if (!goes_on)
						return {};
					if (taken.start == nullptr)
						continue;
				}
				return use(taken) ? taken : TakenRange{};
			}
		}

		/* Takes the `size` bytes at `start`, if all of them are free. */
		bool take_at(Memory start, size_t size)
		{
			TakenRange taken;
			with(lock, [&]() { taken = count_missed(extents.take_at(start, size)); });
			return taken.start != nullptr && use(taken);
		}

		Memory alloc_range(size_t size)
		{
			return take(size, size).start;
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
					/* So a program that frees and fills the same memory pays for one page in 256 at most. */
					missed_bytes -= bits::min(missed_bytes, ranges[i].size / 256);
					extents.add(ranges[i].start, ranges[i].size, true);
				}
				most = bound();
				too_much = extents.bytes() > most;
			});
			/* A little more than necessary, so that not every range that follows is too much. */
			if (too_much) {
				give_back(most - bits::min(most / 4, AT_ONCE));
				unmap_unused();
			}
		}

		/* Forgets a fourth of what was needed again, and gives back what is kept for no other reason. Threads call this when
		 * they begin to search for holes, each about four times in a second. */
		void forget()
		{
			size_t most = 0;
			bool too_much = false;
			with(lock, [&]() {
				size_t threads = bits::max(PALGraft::allocators.load(stl::memory_order_relaxed), size_t{1});
				missed_bytes -= missed_bytes / 4 / threads;
				most = bound();
				too_much = extents.bytes() > most;
			});
			if (too_much) {
				give_back(most);
				unmap_unused();
			}
		}

		/* Takes back memory that is not resident. */
		void dealloc_fresh(Memory start, size_t size)
		{
			with(lock, [&]() { extents.add(start, size, false); });
		}

		/* Counts what a thread uses from now on, or uses no more. Wraps around like any unsigned number. */
		static void report(size_t more)
		{
			live_bytes.fetch_add(more, stl::memory_order_relaxed);
		}

		/* As above, for large blocks, which are reported as well. */
		static void report_large(size_t more)
		{
			large_bytes.fetch_add(more, stl::memory_order_relaxed);
		}

		/* Counts an allocator of a thread. */
		static void count_allocator()
		{
			PALGraft::allocators.fetch_add(1, stl::memory_order_relaxed);
		}

		void trim()
		{
			give_back(0);
			unmap_unused();
		}
	};
};
}

#endif
