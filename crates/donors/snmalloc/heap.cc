/* snmalloc's headers unchanged, with ten of their parts replaced: the platform layer (platform.h), the ranges of free
 * memory (shared_memory.h, thread_memory.h), what is done for large blocks (large_blocks.h), the lists of new slabs
 * (slab_parts.h), those of all slabs (slab_lists.h), what an allocator does now and then (holes.h), trees of free ranges
 * (buddies.h, tree_path.h), the class that keeps forks out of critical sections, and the allocator of a thread; and with a
 * configuration for grafts. */

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
#include "slab_lists.h"
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
#include "holes.h"
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
#include "slab_metadata.h"
#include "large_blocks.h"
#include "configuration.h"
#include "thread_allocators.h"

namespace snmalloc
{
static void empty_queues_of_ended_threads()
{
	ThreadAlloc::empty_queues();
}

static SNMALLOC_SLOW_PATH void search_for_holes(HoleSearch &search)
{
	ThreadAlloc::search_for_holes(search);
}

/* What is kept for all threads is a share of what is in use. */
static void count_holes(size_t gone, size_t back)
{
	if (gone != back)
		Config::OwnRanges::Stats::report(back - gone);
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
			return entry.get_slab_metadata()->size_of_large();
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
