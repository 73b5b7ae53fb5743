/* The heap: upstream's allocator with a configuration for grafts.
 *
 * A few member functions are specialised for this configuration: those whose upstream versions end the program or hand
 * out a block twice when the kernel has no more memory, and one that counts outside its lock. */
#include "regions.h"
#include "registry.h"
#include "upstream.h"

#include "bridge.h"

namespace scudo {

/* Upstream's classes (32 bytes to 128 KiB) with the thread caches of Android's configuration: 8 KiB, not 1 KiB. */
struct SizeClasses : DefaultSizeClassConfig {
	static const uptr MaxBytesCachedLog = 13;
};

struct HeapConfig {
	using SizeClassMap = FixedSizeClassMap<SizeClasses>;
	/* Tagged pointers need the kernel's consent for every system call that gets one (PR_SET_TAGGED_ADDR_CTRL). That is
	 * between libc and the kernel; an allocator cannot decide it. */
	static const bool MaySupportMemoryTagging = false;

	/* The primary for 32 bits, on every architecture: it maps regions when they are needed. The other one reserves 4 GiB
	 * for each size class at the start, and ends the program if that fails, for example under `ulimit -v`. */
	typedef SizeClassAllocator32<HeapConfig> Primary;
	static const uptr PrimaryRegionSizeLog = RegionSizeLog;
	typedef uptr PrimaryCompactPtrT;
	static const s32 PrimaryMinReleaseToOsIntervalMs = INT32_MIN;
	static const s32 PrimaryMaxReleaseToOsIntervalMs = INT32_MAX;

	typedef MapAllocatorCache<HeapConfig> SecondaryCache;
	static const u32 SecondaryCacheEntriesArraySize = 32U;
	static const u32 SecondaryCacheQuarantineSize = 0U;
	static const u32 SecondaryCacheDefaultMaxEntriesCount = 32U;
	static const uptr SecondaryCacheDefaultMaxEntrySize = 1UL << 19;
	static const s32 SecondaryCacheMinReleaseToOsIntervalMs = INT32_MIN;
	static const s32 SecondaryCacheMaxReleaseToOsIntervalMs = INT32_MAX;

	template <class Allocator> using TSDRegistryT = ThreadRegistry<Allocator>;
};

/* Declares the primary before its cache, which is a part of it. */
static_assert(sizeof(HeapConfig::Primary) > 0);
using LocalCache = SizeClassAllocatorLocalCache<HeapConfig::Primary>;

/* Statistics that are not linked into upstream's list for all threads: after fork(), that list would contain memory of
 * threads that the child does not have. */
template <> void LocalCache::init(GlobalStats *, HeapConfig::Primary *Primary)
{
	Allocator = Primary;
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

static constinit Spill Spills[HeapConfig::SizeClassMap::NumClasses];

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

static NOINLINE u32 unspill(Spill *From, uptr *Blocks, u32 Most)
{
	ScopedLock Lock(From->Mutex);
	u32 Count = 0;
	while (Count < Most && atomic_load_relaxed(&From->First)) {
		Blocks[Count] = atomic_load_relaxed(&From->First);
		atomic_store_relaxed(&From->First, nextSpilt(Blocks[Count]));
		Count++;
	}
	return Count;
}

template <> HeapConfig::Primary::TransferBatch *HeapConfig::Primary::popBatch(LocalCache *C, uptr ClassId);

template <> bool LocalCache::refill(PerClass *C, uptr ClassId)
{
	initCacheMaybe(C);
	if (UNLIKELY(atomic_load_relaxed(&Spills[ClassId].First))) {
		C->Count = unspill(&Spills[ClassId], C->Chunks, C->MaxCount / 2);
		if (C->Count)
			return true;
	}
	TransferBatch *Batch = Allocator->popBatch(this, ClassId);
	if (UNLIKELY(!Batch))
		return false;
	C->Count = Batch->getCount();
	Batch->copyToArray(C->Chunks);
	Batch->clear();
	destroyBatch(ClassId, Batch);
	return true;
}

/* Returns the older half. */
template <> void LocalCache::drain(PerClass *C, uptr ClassId)
{
	const u32 Count = Min(C->MaxCount / 2, C->Count);
	TransferBatch *Batch = createBatch(ClassId, Allocator->decompactPtr(ClassId, C->Chunks[0]));
	if (LIKELY(Batch))
		Batch->setFromArray(C->Chunks, Count);
	else
		spill(&Spills[ClassId], C->Chunks, Count);
	C->Count -= Count;
	memmove(C->Chunks, C->Chunks + Count, C->Count * sizeof C->Chunks[0]);
	if (LIKELY(Batch))
		Allocator->pushBatch(ClassId, Batch);
}

/* Blocks move between threads in batches, which are blocks of class 0. New blocks of a class need up to eight batches
 * (MaxNumBatches). Upstream takes them one after another: if there is no memory for the third, the first two are already
 * on the class's list, and the same blocks are cut out again the next time. So this first gets all eight into the
 * thread's cache, or cuts no blocks. */
template <> HeapConfig::Primary::TransferBatch *HeapConfig::Primary::popBatch(LocalCache *C, uptr ClassId)
{
	SizeClassInfo *Class = getSizeClassInfo(ClassId);
	ScopedLock Lock(Class->Mutex);
	TransferBatch *Batch = Class->FreeList.front();
	if (Batch) {
		Class->FreeList.pop_front();
	} else {
		TransferBatch *Held[MaxNumBatches];
		u32 Count = 0;
		if (ClassId != SizeClassMap::BatchClassId) {
			while (Count < MaxNumBatches && (Held[Count] = C->createBatch(ClassId, nullptr)))
				Count++;
			const bool Enough = Count == MaxNumBatches;
			while (Count)
				C->deallocate(SizeClassMap::BatchClassId, Held[--Count]);
			if (!Enough)
				return nullptr;
		}
		Batch = populateFreeList(C, ClassId, Class);
		if (!Batch)
			return nullptr;
	}
	Class->Stats.PoppedBlocks += Batch->getCount();
	return Batch;
}

/* Finds a block of the cache whose last `Size` bytes fit, with at most four pages before them. */
template <>
bool MapAllocatorCache<HeapConfig>::retrieve(Options, uptr Size, uptr Alignment, LargeBlock::Header **H, bool *Zeroed)
{
	const uptr Headers = Chunk::getHeaderSize() + LargeBlock::getHeaderSize();
	const uptr Waste = MaxUnusedCachePages * getPageSizeCached();
	const u32 Count = atomic_load_relaxed(&MaxEntriesCount);
	CachedBlock Found = {};
	uptr Block = 0;
	{
		ScopedLock Lock(Mutex);
		for (u32 I = 0; EntriesCount && I < Count; I++) {
			const uptr Begin = Entries[I].CommitBase, End = Begin + Entries[I].CommitSize;
			if (!Begin || End - Begin < Size + Headers)
				continue;
			Block = roundDownTo(End - Size, Alignment);
			if (Block < Begin + Headers || Block > Begin + Waste)
				continue;
			Found = Entries[I];
			Entries[I].CommitBase = 0;
			EntriesCount--;
			break;
		}
	}
	if (!Found.CommitBase)
		return false;
	*H = reinterpret_cast<LargeBlock::Header *>(Block - Headers);
	**H = {nullptr, nullptr, Found.CommitBase, Found.CommitSize, Found.MapBase, Found.MapSize, Found.Data};
	*Zeroed = Found.Time == 0;
	return true;
}

/* Maps fresh memory for a large block, with the block at its end and a page without access on either side. If the kernel
 * refuses memory, addresses or one more mapping, it returns null and leaves nothing behind. */
static LargeBlock::Header *mapLargeBlock(uptr Size, uptr Alignment)
{
	const uptr Page = getPageSizeCached();
	const uptr Headers = Chunk::getHeaderSize() + LargeBlock::getHeaderSize();
	const uptr Before = roundUpTo(Headers, Page);
	const uptr Slack = Alignment > Page ? Alignment - Page : 0;
	/* A block aligned to a page or more begins at a page; any other ends at the end of the memory. */
	const uptr CommitSize =
		Alignment < Page ? roundUpTo(roundUpTo(Size, Alignment) + Headers, Page) : Before + roundUpTo(Size, Page);
	uptr MapBase, MapSize = CommitSize + 2 * Page + Slack;
	MapBase = reinterpret_cast<uptr>(map(nullptr, MapSize, "scudo:secondary", MAP_NOACCESS | MAP_ALLOWNOMEM));
	if (!MapBase)
		return nullptr;
	uptr CommitBase = MapBase + Page;
	if (Slack) {
		CommitBase = roundUpTo(CommitBase + Before, Alignment) - Before;
		/* The surplus before and behind goes back. If that fails, it stays with the block. */
		const uptr Front = CommitBase - Page - MapBase, Back = Slack - Front;
		if (Front && !graft_apart_munmap(reinterpret_cast<void *>(MapBase), Front)) {
			MapBase += Front;
			MapSize -= Front;
		}
		if (Back && !graft_apart_munmap(reinterpret_cast<void *>(CommitBase + CommitSize + Page), Back))
			MapSize -= Back;
	}
	if (!map(reinterpret_cast<void *>(CommitBase), CommitSize, "scudo:secondary", MAP_ALLOWNOMEM)) {
		unmap(reinterpret_cast<void *>(MapBase), MapSize, UNMAP_ALL);
		return nullptr;
	}
	const uptr Block = roundDownTo(CommitBase + CommitSize - Size, Alignment);
	auto *H = reinterpret_cast<LargeBlock::Header *>(Block - Headers);
	*H = {nullptr, nullptr, CommitBase, CommitSize, MapBase, MapSize, {}};
	return H;
}

template <>
void *MapAllocator<HeapConfig>::allocate(Options Options, uptr Size, uptr Alignment, uptr *BlockEnd,
                                         FillContentsMode Fill)
{
	LargeBlock::Header *H = nullptr;
	bool Zeroed = true;
	const bool Cacheable = Alignment < getPageSizeCached() && Cache.canCache(Size);
	if (!Cacheable || !Cache.retrieve(Options, Size, Alignment, &H, &Zeroed)) {
		H = mapLargeBlock(Size, Alignment);
		Zeroed = true;
	}
	if (!H)
		return nullptr;
	const uptr Begin = reinterpret_cast<uptr>(H + 1), End = H->CommitBase + H->CommitSize;
	if (Fill != NoFill && !Zeroed)
		memset(H + 1, Fill == ZeroFill ? 0 : PatternFillByte, End - Begin);
	*BlockEnd = End;
	ScopedLock Lock(Mutex);
	InUseBlocks.push_back(H);
	AllocatedBytes += H->CommitSize;
	NumberOfAllocs++;
	return H + 1;
}

using Heap = Allocator<HeapConfig>;

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
	TheHeap.setOption(scudo::Option::MaxCacheEntriesCount, scudo_large_cache_entries());
	TheHeap.setOption(scudo::Option::MaxCacheEntrySize, static_cast<scudo::sptr>(scudo_large_cache_bytes()));
}

void scudo_heap_trim(void)
{
	TheHeap.releaseToOS();
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
