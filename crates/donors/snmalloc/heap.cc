/* snmalloc's headers unchanged, with eight of their parts replaced: the platform layer (platform.h), the ranges of free
 * memory (shared_memory.h, thread_memory.h), what is done for large blocks (large_blocks.h), the lists of new slabs
 * (slab_parts.h), trees of free ranges (buddies.h, tree_path.h), the class that keeps forks out of critical sections, and
 * the allocator of a thread; and with a configuration for grafts. */

/* aba.h requires 16-byte compare-and-swap for a template that is never used. The baseline of x86-64 has no such
 * instruction, and the object contains none. */
#if defined(__x86_64__) && !defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16)
#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16 1
#endif

/* A page map at a random place within 1.25 TiB does not fit into an address space of 39 bits or an emulator's; see
 * platform.h. */
#if !defined(__x86_64__) && defined(SNMALLOC_CHECK_CLIENT)
#define SNMALLOC_CHECK_CLIENT_MITIGATIONS full_checks - random_pagemap
#endif

#include "heap.h"

#include "snmalloc/ds_core/defines.h"

/* Where upstream ends the program with an illegal instruction, this prints the reason and ends it with SIGABRT. `str` is
 * the parameter of the only function that uses this: check_client_impl in mitigations.h. */
[[noreturn]] static void platform_fail(const char *message);
#undef SNMALLOC_FAST_FAIL
#define SNMALLOC_FAST_FAIL() platform_fail(str)

#include "tree_path.h"

#include "snmalloc/aal/aal.h"
#include "snmalloc/mitigations/mitigations_all.h"
#include "snmalloc/pal/pal_concept.h"
#include "snmalloc/pal/pal_consts.h"

#include "platform.h"
#define SNMALLOC_MEMORY_PROVIDER PALGraft

/* snmalloc holds each of its locks inside a PreventFork, which is the fork gate here. The only calls of libc in there are
 * mmap, munmap, mprotect, madvise and futex. */
#define PreventFork UpstreamPreventFork
#include "snmalloc/ds_aal/prevent_fork.h"
#undef PreventFork

namespace snmalloc
{
class PreventFork
{
public:
	PreventFork()
	{
		graft_apart_enter();
	}
	~PreventFork()
	{
		graft_apart_leave();
	}
	PreventFork(const PreventFork &) = delete;
};
}

#include "snmalloc/pal/pal.h"

/* A thread that returns blocks to their allocator first exchanges the queue's end, then links the old end to its blocks.
 * A fork between the two steps leaves a gap in the child's queue, and an allocator that ends or is reused there waits for
 * the link forever (drain_and_reset). So both steps are behind the gate.
 *
 * Blocks that come back after their thread's end would wait in the queue until another thread takes the allocator over.
 * So the thread that returns them also empties the queue. */
#include "snmalloc/mem/metadata.h"
#define FreeListMPSCQ UpstreamMPSCQ
#include "snmalloc/mem/freelist_queue.h"
#undef FreeListMPSCQ

namespace snmalloc
{
static void empty_queues_of_ended_threads();

template<FreeListKey &Key, address_t Key_tweak = NO_KEY_TWEAK>
struct FreeListMPSCQ : UpstreamMPSCQ<Key, Key_tweak> {
	/* Whether the allocator's thread has ended. */
	stl::Atomic<bool> ended{false};

	/* Upstream's question, can_dequeue, leaves one message out. */
	bool is_empty()
	{
		return this->back.load(stl::memory_order_relaxed) == nullptr;
	}

	template<typename Domesticator>
	bool enqueue(freelist::HeadPtr first, freelist::HeadPtr last, Domesticator domesticate)
	{
		PreventFork gate;
		bool result = UpstreamMPSCQ<Key, Key_tweak>::enqueue(first, last, domesticate);
		if (SNMALLOC_UNLIKELY(ended.load(stl::memory_order_relaxed)))
			empty_queues_of_ended_threads();
		return result;
	}
};
}

/* The slabs of a small heap are put into lists page by page (slab_parts.h). Upstream asks for a slab's size where it makes
 * the list of a new one, and where it gives a slab back: large_blocks.h knows the whole size by the class. */
#include "slab_parts.h"
#include "snmalloc/mem/check_init.h"
#include "snmalloc/mem/remotecache.h"
#include "snmalloc/mem/ticker.h"
#define sizeclass_to_slab_size sizeclass_to_first_part
#include "snmalloc/mem/corealloc.h"
#undef sizeclass_to_slab_size

/* The ranges that threads share are touched in every program, as what early.h is for. */
#pragma push_macro("SNMALLOC_REQUIRE_CONSTINIT")
#undef SNMALLOC_REQUIRE_CONSTINIT
#define SNMALLOC_REQUIRE_CONSTINIT [[clang::require_constant_initialization]] GRAFT_EARLY
#include "snmalloc/backend_helpers/range_helpers.h"
#pragma pop_macro("SNMALLOC_REQUIRE_CONSTINIT")

#define Buddy UpstreamBuddy
#include "snmalloc/backend_helpers/buddy.h"
#undef Buddy
#include "buddies.h"

#include "snmalloc/snmalloc_core.h"
#include "snmalloc/backend/globalconfig.h"

#include "extents.h"
#include "shared_memory.h"
#include "thread_memory.h"
#include "large_blocks.h"
#include "configuration.h"

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
		if (ends < 128 || bits::is_pow2(ends))
			ended->flush();
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
		trim(own->get_backend_local_state(), true);
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

static void empty_queues_of_ended_threads()
{
	ThreadAlloc::empty_queues();
}

/* The initialisation of a small block's memory, as in upstream. */
struct Zeroed {
	static void *success(void *block, size_t size, bool = false)
	{
		return memset(block, 0, round_size(size));
	}
	static void *failure(size_t) noexcept
	{
		return graft_apart_no_memory();
	}
};

/* The size of blocks with that entry of the page map; 0 if it belongs to no block. */
template<typename Entry>
SNMALLOC_FAST_PATH_INLINE size_t size_by_entry(const Entry &entry)
{
	sizeclass_t sizeclass = entry.get_sizeclass();
	if constexpr (Config::HAS_EXTENTS) {
		if (SNMALLOC_UNLIKELY(!sizeclass.is_small() && sizeclass.raw() != 0))
			return size_of_large(*entry.get_slab_metadata());
	}
	return sizeclass_full_to_size(sizeclass);
}

SNMALLOC_FAST_PATH_INLINE size_t usable(const void *block)
{
	return size_by_entry(Config::Backend::get_metaentry(address_cast(block)));
}

/* From here on, the kernel is asked whether it could provide that much. It promises no memory for the address space that
 * is reserved. Without this question, a request far beyond the machine's memory would succeed, and write an entry of the
 * page map for every 16 KiB. */
static constexpr size_t GREAT = size_t{1} << (bits::BITS == 64 ? 30 : 28);

static SNMALLOC_SLOW_PATH bool is_promised(size_t n)
{
	if (n > PTRDIFF_MAX)
		return false;
	int kept = errno;
	void *promise = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (promise != MAP_FAILED)
		munmap(promise, n);
	errno = kept;
	return promise != MAP_FAILED;
}

/* Requests of this size and more are for large blocks. */
static constexpr size_t LARGE = MAX_SMALL_SIZECLASS_SIZE + 1;

template<typename Conts>
SNMALLOC_SLOW_PATH void *allocate_large(size_t n, size_t alignment = MIN_CHUNK_SIZE)
{
	size_t most = bits::max(n, alignment);
	if (most >= GREAT && !is_promised(most))
		return graft_apart_no_memory();
	void *block = ThreadAlloc::allocate_large(bits::max(n, LARGE), alignment);
	if (!block)
		return nullptr;
	if (n >= PALGraft::HUGE_BLOCK)
		PALGraft::prefer_huge_pages(block, n);
	if constexpr (stl::is_same_v<Conts, Zeroed>)
		PALGraft::zero(block, usable(block));
	return block;
}

template<typename Conts>
SNMALLOC_FAST_PATH_INLINE void *allocate(size_t n)
{
	if (SNMALLOC_UNLIKELY(n >= LARGE))
		return allocate_large<Conts>(n);
	return ThreadAlloc::get().alloc<Conts, ThreadAlloc::CheckInit>(n);
}

/* Allocates another block of at least `n` bytes, and copies there what the two have in common. */
static void *reallocate_elsewhere(void *block, size_t before, size_t n)
{
	int kept = errno;
	void *moved = allocate<Uninit>(n);
	if (SNMALLOC_UNLIKELY(!moved)) {
		/* A block that only shrinks stays large enough. */
		if (n > before)
			return nullptr;
		errno = kept;
		return block;
	}
	memcpy(moved, block, n < before ? n : before);
	ThreadAlloc::get().dealloc<ThreadAlloc::CheckInit>(block);
	return moved;
}

SNMALLOC_SLOW_PATH static void *reallocate_large(void *block, size_t before, size_t n)
{
	if (n >= GREAT && n > before && !is_promised(n))
		return graft_apart_no_memory();
	if (ThreadAlloc::resize(block, n)) {
		if (n > before && n >= PALGraft::HUGE_BLOCK)
			PALGraft::prefer_huge_pages(block, n);
		return block;
	}
	if (before < n && ThreadAlloc::may_move(before))
		return ThreadAlloc::move(block, before, n);
	return reallocate_elsewhere(block, before, n);
}
}

using namespace snmalloc;

void *heap_malloc(size_t n)
{
	return allocate<Uninit>(n);
}

void *heap_zalloc(size_t n)
{
	return allocate<Zeroed>(n);
}

/* Stays in place if the block has the size of the request, or can have it there. */
void *heap_realloc(void *block, size_t n)
{
	if (!block)
		return allocate<Uninit>(n);
	size_t before = usable(block);
	if (n < LARGE || before < LARGE)
		return before == round_size(n) ? block : reallocate_elsewhere(block, before, n);
	size_t after = Config::HAS_EXTENTS ? bits::align_up(n, MIN_CHUNK_SIZE) : round_size(n);
	return before == after ? block : reallocate_large(block, before, n);
}

/* A size that is a multiple of the alignment is aligned to it; powers of two have their own classes. */
void *heap_aligned(size_t alignment, size_t n)
{
	size_t size = aligned_size(alignment, n);
	return SNMALLOC_UNLIKELY(size >= LARGE) ? allocate_large<Uninit>(n, alignment) : allocate<Uninit>(size);
}

void heap_free(void *block)
{
	ThreadAlloc::get().dealloc<ThreadAlloc::CheckInit>(block);
}

size_t heap_usable(const void *block)
{
	return usable(block);
}

void heap_end_thread(void)
{
	ThreadAlloc::end();
}

void heap_trim(void)
{
	ThreadAlloc::trim();
}
