/* A map from the regions of a 64-bit address space to size classes.
 *
 * The primary that reserves nothing (upstream's primary32.h) keeps a byte for each possible region. With 32-bit addresses
 * that is an array of a few KiB; here it would be 128 MiB. So it consists of leaves, each of which is mapped when it gets
 * its first region. */
#ifndef GRAFT_SCUDO_REGIONS_H
#define GRAFT_SCUDO_REGIONS_H

#include "bytemap.h"

namespace scudo {

template <uptr Size> class SparseByteMap {
public:
	void init()
	{
	}

	/* Several size classes call this at once, each with its own lock, and never with the same index. If there is no
	 * memory for a leaf, its regions are unknown, and upstream skips them when it looks for pages to return. That is the
	 * only effect. */
	void set(uptr Index, u8 Value)
	{
		atomic_uptr *Leaf = &Leaves[Index / LeafSize];
		uptr Bytes = atomic_load(Leaf, memory_order_acquire);
		if (!Bytes) {
			const uptr Fresh = reinterpret_cast<uptr>(map(nullptr, LeafSize, "scudo:regions", MAP_ALLOWNOMEM));
			if (!Fresh)
				return;
			if (atomic_compare_exchange_strong(Leaf, &Bytes, Fresh, memory_order_acq_rel))
				Bytes = Fresh;
			else
				unmap(reinterpret_cast<void *>(Fresh), LeafSize);
		}
		__atomic_store_n(&reinterpret_cast<u8 *>(Bytes)[Index % LeafSize], Value, __ATOMIC_RELAXED);
	}

	u8 operator[](uptr Index)
	{
		const uptr Bytes = atomic_load(&Leaves[Index / LeafSize], memory_order_acquire);
		return Bytes ? __atomic_load_n(&reinterpret_cast<u8 *>(Bytes)[Index % LeafSize], __ATOMIC_RELAXED) : 0;
	}

	void disable()
	{
	}

	void enable()
	{
	}

private:
	/* A multiple of every possible page size. */
	static constexpr uptr LeafSize = 1UL << 16;
	static_assert(Size % LeafSize == 0);

	atomic_uptr Leaves[Size / LeafSize] = {};
};

/* With 64 bits, a region has 1 MiB. */
static constexpr uptr RegionSizeLog = FIRST_32_SECOND_64(19, 20);

#if SCUDO_WORDSIZE == 64U
template <>
class FlatByteMap<(SCUDO_MMAP_RANGE_SIZE >> RegionSizeLog)>
	: public SparseByteMap<(SCUDO_MMAP_RANGE_SIZE >> RegionSizeLog)> {};
#endif

} // namespace scudo

#endif
