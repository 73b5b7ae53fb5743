/* The heap: upstream's allocator with a configuration for grafts.
 *
 * A few member functions are specialised for this configuration: those whose upstream versions end the program when
 * the kernel has no more memory, or keep statistics of threads that a forked child does not have, and those whose time
 * grows with the square of the heap's size. */
#include "regions.h"
#include "registry.h"

#include "combined.h"
#include "primary32.h"
#include "size_class_map.h"

#include "bridge.h"
#include "ranges.h"

namespace scudo {

/* Upstream's classes (32 bytes to 128 KiB) with the thread caches of Android's configuration: 8 KiB, not 1 KiB. */
struct SizeClasses : DefaultSizeClassConfig {
	static const uptr MaxBytesCachedLog = 13;
};

struct HeapConfig {
	/* Tagged pointers need the kernel's consent for every system call that gets one (PR_SET_TAGGED_ADDR_CTRL). That is
	 * between libc and the kernel; an allocator cannot decide it. */
	static const bool MaySupportMemoryTagging = false;

	template <class Allocator> using TSDRegistryT = ThreadRegistry<Allocator>;

	/* The primary for 32 bits, on every architecture: it maps regions when they are needed. The other one reserves memory
	 * for each size class at the start, and ends the program if that fails, for example under `ulimit -v`. */
	template <class Config> using PrimaryT = SizeClassAllocator32<Config>;

	struct Primary {
		using SizeClassMap = FixedSizeClassMap<SizeClasses>;
		static const uptr RegionSizeLog = scudo::RegionSizeLog;
		static const uptr GroupSizeLog = scudo::RegionSizeLog;
		static const uptr MapSizeIncrement = 0;
		static const s32 MinReleaseToOsIntervalMs = INT32_MIN;
		static const s32 MaxReleaseToOsIntervalMs = INT32_MAX;
	};

	template <class Config> using SecondaryT = MapAllocator<Config>;

	struct Secondary {
		struct Cache {
			static const u32 EntriesArraySize = 32U;
			static const u32 QuarantineSize = 0U;
			static const u32 DefaultMaxEntriesCount = 32U;
			static const uptr DefaultMaxEntrySize = 1UL << 19;
			static const s32 MinReleaseToOsIntervalMs = INT32_MIN;
			static const s32 MaxReleaseToOsIntervalMs = INT32_MAX;
		};

		template <class Config> using CacheT = MapAllocatorCache<Config>;
	};
};

using Heap = Allocator<HeapConfig>;
using SizeClassMap = HeapConfig::Primary::SizeClassMap;
using Primary = Heap::PrimaryT;

/* Declares the primary before its cache, which is a part of it. */
static_assert(sizeof(Primary) > 0);
using LocalCache = Primary::SizeClassAllocatorT;

/* Statistics that are not linked into upstream's list for all threads: after fork(), that list would contain memory of
 * threads that the child does not have. */
template <> void LocalCache::init(GlobalStats *, Primary *Shared)
{
	Allocator = Shared;
	initAllocator();
}

template <> void LocalCache::destroy(GlobalStats *)
{
	drain();
}

/* Free blocks of one size for which there was no batch. The address of the next one is behind each block's header.
 * Upstream ends the program in free() instead. */
struct Spill {
	HybridMutex Mutex;
	atomic_uptr First = {};
};

static constinit Spill Spills[SizeClassMap::NumClasses];

static uptr &nextSpilt(uptr Block)
{
	return *reinterpret_cast<uptr *>(Block + Chunk::getHeaderSize());
}

static NOINLINE void spill(Spill *To, const uptr *Blocks, u32 Count)
{
	ScopedLock Lock(To->Mutex);
	for (u32 I = 0; I < Count; I++) {
		nextSpilt(Blocks[I]) = atomic_load_relaxed(&To->First);
		atomic_store_relaxed(&To->First, Blocks[I]);
	}
}

static NOINLINE u16 unspill(Spill *From, uptr *Blocks, u16 Most)
{
	ScopedLock Lock(From->Mutex);
	u16 Count = 0;
	while (Count < Most && atomic_load_relaxed(&From->First)) {
		Blocks[Count] = atomic_load_relaxed(&From->First);
		atomic_store_relaxed(&From->First, nextSpilt(Blocks[Count]));
		Count++;
	}
	return Count;
}

/* Blocks on a class's list are in batches, and batches in groups, one for each region. Both are in blocks of class 0,
 * which upstream takes from the thread's cache while it changes the list; if the cache is empty, it ends the program.
 * So the cache is filled in advance with as many as a change can need. */

template <> u16 Primary::popBlocks(LocalCache *C, uptr ClassId, CompactPtrT *Blocks, const u16 Most);

/* Returns the older half. In the worst case, each block needs a group and a batch of its own. */
template <> void LocalCache::drain(PerClass *C, uptr ClassId)
{
	const u16 Count = Min(static_cast<u16>(C->MaxCount / 2), C->Count);
	PerClass *Own = &PerClassArray[BatchClassId];
	bool Enough = true;
	if (ClassId != BatchClassId) {
		static_assert(2 * SizeClassMap::MaxNumCachedHint <= ARRAY_SIZE(Own->Chunks));
		while (Own->Count < 2 * Count) {
			CompactPtrT Fresh[SizeClassMap::MaxNumCachedHint];
			const u16 Popped = Allocator->popBlocks(this, BatchClassId, Fresh, SizeClassMap::MaxNumCachedHint);
			if (UNLIKELY(!Popped)) {
				Enough = false;
				break;
			}
			const u16 Kept = Min(Popped, static_cast<u16>(ARRAY_SIZE(Own->Chunks) - Own->Count));
			memcpy(Own->Chunks + Own->Count, Fresh, Kept * sizeof Fresh[0]);
			Own->Count = static_cast<u16>(Own->Count + Kept);
			if (Kept < Popped)
				Allocator->pushBlocks(this, BatchClassId, Fresh + Kept, Popped - Kept);
		}
	}
	if (LIKELY(Enough))
		Allocator->pushBlocks(this, ClassId, C->Chunks, Count);
	else
		spill(&Spills[ClassId], C->Chunks, Count);
	C->Count = static_cast<u16>(C->Count - Count);
	memmove(C->Chunks, C->Chunks + Count, C->Count * sizeof C->Chunks[0]);
}

/* The group of each region that has free blocks on its class's list. Whoever uses an entry holds the class's mutex. */
static constinit SparseMap<Primary::BatchGroupT *, RegionCount> Groups;

/* Upstream looks for the group of each block on the class's list, which has as many groups as there are regions with
 * free blocks: in a heap of 1 GiB up to 1,024, at each return of a few blocks. Here the list is searched only for the
 * place of a new group. It stays sorted by address. */
template <>
void Primary::pushBlocksImpl(LocalCache *C, uptr, SizeClassInfo *Class, CompactPtrT *Blocks, u32 Size, bool)
{
	auto &List = Class->FreeListInfo.BlockList;
	Class->FreeListInfo.PushedBlocks += Size;
	for (u32 I = 0; I < Size;) {
		const uptr Base = compactPtrGroupBase(Blocks[I]);
		BatchGroupT **Known = Groups.place(Base >> RegionSizeLog);
		BatchGroupT *Group = Known ? *Known : nullptr;
		if (UNLIKELY(!Group)) {
			BatchGroupT *Before = nullptr, *Next = List.front();
			while (Next && Next->CompactPtrGroupBase < Base) {
				Before = Next;
				Next = Next->Next;
			}
			if (Next && Next->CompactPtrGroupBase == Base) {
				/* There was no memory for the map. */
				Group = Next;
			} else {
				Group = reinterpret_cast<BatchGroupT *>(C->getBatchClassBlock());
				auto *First = reinterpret_cast<BatchT *>(C->getBatchClassBlock());
				First->clear();
				Group->Batches.clear();
				Group->Batches.push_front(First);
				Group->CompactPtrGroupBase = Base;
				Group->BytesInBGAtLastCheckpoint = 0;
				Group->MaxCachedPerBatch = MaxNumBlocksInBatch;
				if (Before)
					List.insert(Before, Group);
				else
					List.push_front(Group);
			}
			if (Known)
				*Known = Group;
		}
		for (; I < Size && compactPtrGroupBase(Blocks[I]) == Base; I++) {
			BatchT *Last = Group->Batches.front();
			if (UNLIKELY(Last->getCount() == Group->MaxCachedPerBatch)) {
				Last = reinterpret_cast<BatchT *>(C->getBatchClassBlock());
				Last->clear();
				Group->Batches.push_front(Last);
			}
			Last->add(Blocks[I]);
		}
	}
}

/* New blocks of a class, up to MaxNumBatches times as many as a batch holds, are from one region. So they need one
 * group and, as its first batch may have no room, one batch more. */
template <> u16 Primary::popBlocks(LocalCache *C, uptr ClassId, CompactPtrT *Blocks, const u16 Most)
{
	if (UNLIKELY(atomic_load_relaxed(&Spills[ClassId].First))) {
		const u16 Count = unspill(&Spills[ClassId], Blocks, Most);
		if (Count)
			return Count;
	}
	SizeClassInfo *Class = getSizeClassInfo(ClassId);
	ScopedLock Lock(Class->Mutex);
	if (UNLIKELY(Class->FreeListInfo.BlockList.empty())) {
		if (ClassId != SizeClassMap::BatchClassId) {
			constexpr u32 Needed = MaxNumBatches + 2;
			static_assert(Needed < SizeClassMap::MaxNumCachedHint);
			void *Held[Needed];
			u32 Taken = 0;
			while (Taken < Needed && (Held[Taken] = C->allocate(SizeClassMap::BatchClassId)))
				Taken++;
			const bool Enough = Taken == Needed;
			while (Taken)
				C->deallocate(SizeClassMap::BatchClassId, Held[--Taken]);
			if (!Enough)
				return 0;
		}
		if (!populateFreeList(C, ClassId, Class))
			return 0;
	}
	/* Blocks come from the first group. If they are its last ones, upstream takes it from the list. */
	const auto &List = Class->FreeListInfo.BlockList;
	const BatchGroupT *Group = List.front();
	const uptr Base = Group->CompactPtrGroupBase;
	const u16 Count = popBlocksImpl(C, ClassId, Class, Blocks, Most);
	if (ClassId != SizeClassMap::BatchClassId && List.front() != Group) {
		if (BatchGroupT **Known = Groups.find(Base >> RegionSizeLog))
			*Known = nullptr;
	}
	return Count;
}

/* Upstream looks for unused pages of a class whenever a page's worth of blocks of 256 bytes or more has been freed (if
 * the blocks are larger than a page, even within the time that the user has set), and again at the next return of
 * blocks if it found none. As it looks at all pages of the class, freeing a heap would take the square of its size.
 * Here a part of the class's memory has to be freed first: less of it when little is in use, since regions in which
 * several threads have blocks become free only then. Then it looks when the user's time is over, and at any time if more
 * was freed than the class's bounded debt (debt.h). */
template <>
bool Primary::hasChanceToReleasePages(SizeClassInfo *Class, uptr BlockSize, uptr BytesInFreeList, ReleaseToOS Type)
{
	static_assert(SizeClassMap::NumClasses <= SCUDO_MOST_CLASSES);
	const uptr ClassId = static_cast<uptr>(Class - getSizeClassInfo(0));
	uptr *Checkpoint = &Class->ReleaseInfo.BytesInFreeListAtLastCheckpoint;
	if (BytesInFreeList < *Checkpoint) {
		scudo_debt_take(ClassId, *Checkpoint - BytesInFreeList);
		*Checkpoint = BytesInFreeList;
	}
	const uptr Freed = BytesInFreeList - *Checkpoint;
	if (Freed < getPageSizeCached())
		return false;
	if (Type == ReleaseToOS::Normal) {
		const s32 Interval = atomic_load_relaxed(&ReleaseToOsIntervalMs);
		const uptr InUse = Class->AllocatedUser - BytesInFreeList;
		/* The search through small blocks takes longer. For them, 16 is upstream's part. */
		const uptr Part = InUse < Class->AllocatedUser / 32 ? 128 : isSmallBlock(BlockSize) ? 16 : 64;
		if (Interval < 0 || Freed < Class->AllocatedUser / Part)
			return false;
		if (!scudo_debt_goes_back(ClassId, Freed, InUse) &&
		    Class->ReleaseInfo.LastReleaseAtNs + static_cast<u64>(Interval) * 1000000 > getMonotonicTimeFast())
			return false;
	}
	*Checkpoint = BytesInFreeList;
	return true;
}

/* It must consist of zeros only: an initialiser that ran after the first malloc() would discard the heap. */
static constinit Heap TheHeap;

} // namespace scudo

extern "C" const char *__scudo_default_options()
{
	return scudo_chosen_flags();
}

using scudo::TheHeap;
namespace Chunk = scudo::Chunk;

void *scudo_heap_allocate(size_t n)
{
	return TheHeap.allocate(n, Chunk::Origin::Malloc);
}

void *scudo_heap_allocate_zeroed(size_t n)
{
	return TheHeap.allocate(n, Chunk::Origin::Malloc, 1UL << SCUDO_MIN_ALIGNMENT_LOG, true);
}

void *scudo_heap_allocate_aligned(size_t alignment, size_t n)
{
	return TheHeap.allocate(n, Chunk::Origin::Memalign, alignment);
}

void *scudo_heap_reallocate(void *block, size_t n)
{
	return TheHeap.reallocate(block, n);
}

void scudo_heap_free(void *block)
{
	TheHeap.deallocate(block, Chunk::Origin::Malloc);
}

size_t scudo_heap_usable(const void *block)
{
	return TheHeap.getUsableSize(block);
}

void scudo_heap_start(void)
{
	TheHeap.initThreadMaybe();
	TheHeap.initGwpAsan();
	TheHeap.setOption(scudo::Option::MaxCacheEntriesCount, scudo_large_cache_entries());
	TheHeap.setOption(scudo::Option::MaxCacheEntrySize, static_cast<scudo::sptr>(scudo_large_cache_bytes()));
}

static void release_thoroughly(scudo::ReleaseToOS Which)
{
	scudo::atomic_fetch_add(&scudo::ThoroughReleases, 1, scudo::memory_order_relaxed);
	TheHeap.releaseToOS(Which);
	scudo::atomic_fetch_sub(&scudo::ThoroughReleases, 1, scudo::memory_order_relaxed);
}

void scudo_heap_trim(void)
{
	release_thoroughly(scudo::ReleaseToOS::ForceAll);
}

void scudo_heap_purge(void)
{
	release_thoroughly(scudo::ReleaseToOS::Normal);
}

void scudo_heap_lock(void)
{
	TheHeap.disable();
	for (scudo::Spill &Spill : scudo::Spills)
		Spill.Mutex.lock();
}

void scudo_heap_unlock(void)
{
	for (scudo::Spill &Spill : scudo::Spills)
		Spill.Mutex.unlock();
	TheHeap.enable();
}
