/* The allocators of threads: one each, and those without a thread. heap.cc includes this after configuration.h. */
#ifndef SNMALLOC_THREAD_ALLOCATORS_H
#define SNMALLOC_THREAD_ALLOCATORS_H

namespace snmalloc
{
using Alloc = Allocator<Config>;

/* The allocator of a thread. Upstream's class of this name ends the program if there is no memory for an allocator,
 * gives up the main thread's at exit, and makes its key at a point where libc's lock on keys must not be taken.
 * (Allocator has a friend of this name.) */
class ThreadAlloc
{
	/* Means "none yet": it is empty, so every operation takes its slow path. */
	SNMALLOC_REQUIRE_CONSTINIT static const inline Alloc none{true};
	SNMALLOC_REQUIRE_CONSTINIT static inline thread_local Alloc *own{const_cast<Alloc *>(&none)};
	/* The number of allocators that this thread has given up. */
	static inline thread_local size_t ends{0};

	/* Allocators without a thread. The one that came back last is reused first, while it is in the cache. */
	GRAFT_EARLY static inline FlagWord lock{};
	GRAFT_EARLY static inline capptr::Alloc<Alloc> idle{nullptr};

	/* Gives back the allocator's free memory, and that of all threads if so wished. Without checks only: upstream's
	 * ranges for them cannot do it. */
	template<typename State>
	static void trim(State &ranges, bool of_all)
	{
		if constexpr (requires { ranges.trim(of_all); })
			ranges.trim(of_all);
	}

	/* An allocator's slabs, for the search for holes. */
	template<typename Self>
	struct Slabs {
		Self &self;

		/* Those of a size that have room. */
		auto &with_room(size_t sizeclass)
		{
			return self.alloc_classes[sizeclass];
		}

		LocalEntropy &entropy()
		{
			return self.entropy;
		}

		/* Gives back an unused slab, as upstream does. */
		template<typename Slab>
		void give_back(Slab *slab, smallsizeclass_t size)
		{
			with_room(size).length--;
			with_room(size).unused--;
			slab->node.remove();
			auto start = self.clear_slab(slab, size);
			Self::Config::Backend::dealloc_chunk(self.get_backend_local_state(), *slab, start,
			                                     sizeclass_to_slab_size(size), sizeclass_t::from_small_class(size));
		}

		void forget_needs()
		{
			self.get_backend_local_state().shared().forget();
		}
	};

	/* Calls `how` with the slabs of an allocator, if holes are searched. */
	template<typename Self, typename How>
	static void with_slabs(Self &self, How how)
	{
		if constexpr (Config::HAS_EXTENTS)
			how(self.ticker, Slabs<Self>{self});
	}

	static Alloc *make()
	{
		if (!Config::is_initialised())
			Config::ensure_init();
		if (!Config::is_initialised())
			return nullptr;
		size_t used = Aal::capptr_size_round(sizeof(Alloc)), size = bits::next_pow2(used);
		auto memory = Config::Backend::alloc_meta_data<Alloc>(nullptr, size);
		if (memory == nullptr)
			return nullptr;
		if constexpr (Config::HAS_EXTENTS)
			Config::OwnRanges::Stats::count_allocator();
		Range<capptr::bounds::Alloc> rest{pointer_offset(memory, used), size - used};
		return new (memory.unsafe_ptr(), placement_token) Alloc(rest);
	}

	/* Takes the first allocator without a thread that meets the condition, if there is one. */
	template<typename Condition>
	static Alloc *take_if(Condition condition)
	{
		Alloc *taken = nullptr;
		with(lock, [&]() {
			for (auto *place = &idle; (taken = place->unsafe_ptr()) != nullptr; place = &taken->next) {
				if (!condition(*taken))
					continue;
				*place = taken->next;
				taken->message_queue().list.ended.store(false, stl::memory_order_relaxed);
				return;
			}
		});
		return taken;
	}

	static void put(Alloc *without_thread)
	{
		with(lock, [&]() {
			without_thread->next = idle;
			idle = capptr::Alloc<Alloc>::unsafe_from(without_thread);
			without_thread->message_queue().list.ended.store(true, stl::memory_order_relaxed);
		});
	}

	static Alloc *take()
	{
		Alloc *taken = take_if([](Alloc &) { return true; });
		return taken ? taken : make();
	}

	/* The process's first allocator begins with a slab of the smallest blocks, one page of which is in memory: without it,
	 * `blocks` with one thread had a peak of 46 MB in 33 of 33 runs, and with it 37.6 in most, as when the heap began
	 * before `main`. In musl's loader, each process would pay that page. */
	static void begin_heap(Alloc *first)
	{
#ifndef GRAFT_LOADER
		GRAFT_EARLY static stl::Atomic<bool> has_begun{false};
		if (Config::HAS_EXTENTS && !has_begun.exchange(true))
			first->dealloc(first->template alloc<Uninit>(1));
#endif
	}

	/* The first operation of a thread, or one after its end. After the end, the allocator goes back at once. Blocks left
	 * in it are flushed, but not every time: a thread may free a great many blocks after its end. */
	template<typename Result, typename Restart, typename... Args>
	SNMALLOC_SLOW_PATH static Result begin(Restart restart, Args... args)
	{
		Alloc *taken = take();
		if (!taken) {
			/* A block that cannot be freed for lack of memory is lost. */
			if constexpr (stl::is_same_v<Result, void>)
				return;
			else
				return graft_apart_no_memory();
		}
		own = taken;
		if (!ends) {
			donor_begin_thread();
			begin_heap(taken);
			return restart(taken, args...);
		}
		if constexpr (stl::is_same_v<Result, void>) {
			restart(taken, args...);
			end();
		} else {
			Result result = restart(taken, args...);
			end();
			return result;
		}
	}

public:
	SNMALLOC_FAST_PATH static Alloc &get()
	{
		return *own;
	}

	static void end()
	{
		Alloc *ended = own;
		ends++;
		if (ended == &none)
			return;
		if (ends < 128 || bits::is_pow2(ends)) {
			ended->flush();
			with_slabs(*ended, [](auto &search, auto slabs) { search.search_at_end(slabs); });
		}
		trim(ended->get_backend_local_state(), false);
		own = const_cast<Alloc *>(&none);
		put(ended);
	}

	/* Frees the blocks that came back to allocators without a thread. These free blocks of each other, hence the loop;
	 * if other threads keep returning blocks, the rest is left to them. */
	static void empty_queues()
	{
		static thread_local bool emptying = false;
		if (emptying)
			return;
		emptying = true;
		for (int rounds = 0; rounds < 64; rounds++) {
			Alloc *found = take_if([](Alloc &idle) { return !idle.message_queue().list.is_empty(); });
			if (!found)
				break;
			found->flush();
			trim(found->get_backend_local_state(), false);
			put(found);
		}
		emptying = false;
	}

	/* Gives back all free memory that this thread can reach. */
	static void trim()
	{
		if (own == &none)
			return;
		own->flush();
		with_slabs(*own, [](auto &search, auto slabs) { search.search_all(slabs); });
		trim(own->get_backend_local_state(), true);
	}

	/* Looks for slabs with pages that have no object in use, if it is this thread's allocator. */
	static void search_for_holes(HoleSearch &search)
	{
		if (&search == &own->ticker)
			with_slabs(*own, [](auto &search, auto slabs) { search.search(slabs); });
	}

	/* Whether `move` is for a block of that size. */
	static bool may_move(size_t before)
	{
		return Config::HAS_EXTENTS && before >= PALGraft::least_moved() && own != &none;
	}

	/* Allocates a large block of at least `n` bytes at a multiple of `alignment`. */
	static void *allocate_large(size_t n, size_t alignment)
	{
		if (SNMALLOC_UNLIKELY(own == &none))
			return begin<void *>([](Alloc *, size_t n, size_t alignment) { return allocate_large(n, alignment); }, n,
			                     alignment);
		return own->handle_message_queue<true>(
		    [](Alloc *self, size_t n, size_t alignment) { return allocate_large(*self, n, alignment); }, own, n, alignment);
	}

	/* Changes a large block's size where it is, if the block is this thread's and the memory behind it allows that. */
	static bool resize(void *block, size_t n)
	{
		return own != &none && resize(*own, block, bits::align_up(n, MIN_CHUNK_SIZE));
	}

	/* Moves a large block to a new one of `n` bytes, which is more: with its pages, if the new one has none yet, so that
	 * at no time there are two of each. Otherwise copies, which costs less than new pages would. Without checks only:
	 * upstream's ranges for them do not know what is resident. */
	static void *move(void *block, size_t before, size_t n)
	{
		return move(own->get_backend_local_state(), block, before, n);
	}

private:
	template<typename Self, typename Backend = typename Self::Config::Backend>
	static void *allocate_large(Self &self, size_t n, size_t alignment)
	{
		if constexpr (!Config::HAS_EXTENTS) {
			return self.template alloc<Uninit>(aligned_size(alignment, n));
		} else {
			size_t size = bits::align_up(n, MIN_CHUNK_SIZE);
			auto [block, metadata] = Backend::alloc_large(
			    self.get_backend_local_state(), size, bits::max(alignment, MIN_CHUNK_SIZE),
			    Config::PagemapEntry::encode(self.public_state(), size_to_sizeclass_full(size)));
			if (metadata == nullptr)
				return graft_apart_no_memory();
			self.laden.insert(metadata);
			return block.unsafe_ptr();
		}
	}

	template<typename Self, typename Backend = typename Self::Config::Backend>
	static bool resize(Self &self, void *block, size_t size)
	{
		if constexpr (!Config::HAS_EXTENTS)
			return false;
		else
			return Backend::get_metaentry(address_cast(block)).get_remote() == self.public_state() &&
			       Backend::resize_large(self.get_backend_local_state(), capptr::Arena<void>::unsafe_from(block), size);
	}

	template<typename State>
	static void *move(State &state, void *block, size_t before, size_t n)
	{
		if constexpr (!Config::HAS_EXTENTS) {
			return nullptr;
		} else {
			/* Blocks of which pages can be moved begin at such a multiple, so that boundaries of mappings are at these. */
			size_t alignment = n < PALGraft::HUGE_PAGE ? PALGraft::MOVED_AT_LEAST : PALGraft::HUGE_PAGE;
			void *moved = allocate_large(n, alignment);
			if (!moved)
				return nullptr;
			auto &ranges = *state.get_object_range();
			size_t pages = bits::align_down(before, PALGraft::MOVED_AT_LEAST);
			auto result = PALGraft::Move::refused;
			if (ranges.last_was_fresh() && address_cast(block) % PALGraft::MOVED_AT_LEAST == 0)
				result = PALGraft::move_pages(moved, block, pages);
			if (result == PALGraft::Move::target_lost && !(moved = allocate_large(n, alignment)))
				return nullptr;
			if (n >= PALGraft::HUGE_BLOCK)
				PALGraft::prefer_huge_pages(moved, n);
			bool is_moved = result == PALGraft::Move::done || result == PALGraft::Move::source_lost;
			size_t copied = is_moved ? pages : 0;
			memcpy(pointer_offset(moved, copied), pointer_offset(block, copied), before - copied);
			if (result == PALGraft::Move::source_lost)
				return moved;
			const auto &entry = Config::Backend::get_metaentry(address_cast(block));
			if (result != PALGraft::Move::done || entry.get_remote() != own->public_state()) {
				own->dealloc(block);
				return moved;
			}
			/* As upstream frees it, but without a link in the block, which would take a page. */
			auto *metadata = entry.get_slab_metadata();
			metadata->node.remove();
			ranges.give_vacated({capptr::Arena<void>::unsafe_from(block), pages}, [&]() {
				auto start = capptr::Alloc<void>::unsafe_from(block);
				Config::Backend::dealloc_chunk(state, *metadata, start, before, entry.get_sizeclass());
			});
			return moved;
		}
	}

public:
	/* Upstream's interface: called on slow paths. */
	struct CheckInit {
		template<typename Success, typename Restart, typename... Args>
		SNMALLOC_FAST_PATH static auto check_init(Success success, Restart restart, Args... args)
		{
			if (SNMALLOC_LIKELY(own != &none))
				return success();
			return begin<decltype(success())>(restart, args...);
		}
	};
};
}

#endif
