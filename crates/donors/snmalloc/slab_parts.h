/* How much of a new slab gets a list of free objects at once. Upstream's list has all of them, and writes to each: so the
 * first block of each size would make all pages of its slab resident, four at least. While a heap is small, its slabs grow
 * by a page. heap.cc includes this before upstream's allocator. */
#ifndef SNMALLOC_SLAB_PARTS_H
#define SNMALLOC_SLAB_PARTS_H

namespace snmalloc
{
static constexpr size_t PART = 4096;
/* A heap with more than that mapped is not small: it will use its pages, and parts would only be more calls. */
static constexpr size_t SMALL_HEAP = 1 << 20;

/* Returns how many of the `rest` objects of a slab that are in no list are to be in the next one: a page of them. What is
 * left is none, or enough for the slab to stay in use. */
static size_t part_of(smallsizeclass_t sizeclass, size_t rest)
{
	size_t part = bits::max(PART / sizeclass_to_size(sizeclass), size_t{1});
	if (PALGraft::mapped_bytes() > SMALL_HEAP || rest < part + threshold_for_waking_slab(sizeclass))
		return rest;
	return part;
}

/* Returns how many bytes of a new slab are put into the first list. With checks: all, in a random order. */
static size_t sizeclass_to_first_part(smallsizeclass_t sizeclass)
{
	if constexpr (mitigations(random_initial))
		return sizeclass_to_slab_size(sizeclass);
	size_t objects = sizeclass_to_slab_object_count(sizeclass), part = part_of(sizeclass, objects);
	return part == objects ? sizeclass_to_slab_size(sizeclass) : part * sizeclass_to_size(sizeclass);
}
}

#endif
