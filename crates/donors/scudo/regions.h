/* Maps from the regions of an address space: to size classes, and to the lists of their free blocks.
 *
 * The primary that reserves nothing (upstream's primary32.h) keeps a byte for each possible region. With 32-bit
 * addresses that is an array of a few KiB; with 64-bit ones it would be 128 MiB. So these maps consist of leaves, each
 * of which is mapped when it gets its first region. */
#ifndef GRAFT_SCUDO_REGIONS_H
#define GRAFT_SCUDO_REGIONS_H

#include "bytemap.h"

namespace scudo {

template <class T, uptr Size> class SparseMap {
public:
	/* Returns the place of an entry, or null if nothing has been written near it. */
	T *find(uptr Index)
	{
		T *Leaf = reinterpret_cast<T *>(atomic_load(&Leaves[Index / LeafSize], memory_order_acquire));
		return Leaf ? Leaf + Index % LeafSize : nullptr;
	}

	/* Returns the place of an entry, zero at first, or null if there is no memory for it. Several threads may call this
	 * at once. */
	T *place(uptr Index)
	{
		if (T *Found = find(Index))
			return Found;
		atomic_uptr *Leaf = &Leaves[Index / LeafSize];
		uptr Entries = 0;
		const uptr Fresh = reinterpret_cast<uptr>(map(nullptr, LeafSize * sizeof(T), "scudo:regions", MAP_ALLOWNOMEM));
		if (!Fresh)
			return nullptr;
		if (atomic_compare_exchange_strong(Leaf, &Entries, Fresh, memory_order_acq_rel))
			Entries = Fresh;
		else
			unmap(reinterpret_cast<void *>(Fresh), LeafSize * sizeof(T));
		return reinterpret_cast<T *>(Entries) + Index % LeafSize;
	}

private:
	/* A multiple of every possible page size, in bytes; fewer if there are fewer regions. */
	static constexpr uptr LeafSize = Min<uptr>(Size, (1UL << 18) / sizeof(T));
	static_assert(Size % LeafSize == 0);

	atomic_uptr Leaves[Size / LeafSize] = {};
};

/* In place of upstream's array. Whoever calls set() or reads holds upstream's ByteMapMutex. */
template <uptr Size> class SparseByteMap {
public:
	void init()
	{
	}

	/* If there is no memory for the entry, the region is unknown, and upstream skips it when it looks for pages to
	 * return. That is the only effect. */
	void set(uptr Index, u8 Value)
	{
		if (u8 *Entry = Classes.place(Index))
			*Entry = Value;
	}

	u8 operator[](uptr Index)
	{
		const u8 *Entry = Classes.find(Index);
		return Entry ? *Entry : 0;
	}

private:
	SparseMap<u8, Size> Classes;
};

/* With 64 bits, a region has 1 MiB. */
static constexpr uptr RegionSizeLog = FIRST_32_SECOND_64(19, 20);
static constexpr uptr RegionCount = SCUDO_MMAP_RANGE_SIZE >> RegionSizeLog;

#if SCUDO_WORDSIZE == 64U
template <> class FlatByteMap<RegionCount> : public SparseByteMap<RegionCount> {};
#endif

} // namespace scudo

#endif
