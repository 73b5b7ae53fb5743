/* Large blocks: those above upstream's size classes, 64 KiB. Upstream gives them the next power of two of address space;
 * here, they have as many chunks as they need. heap.cc includes this after slab_metadata.h. */
#ifndef SNMALLOC_LARGE_BLOCKS_H
#define SNMALLOC_LARGE_BLOCKS_H

namespace snmalloc
{
/* Upstream's backend, with large blocks of any number of chunks. */
template<typename Pagemap, typename LocalState>
struct ExtentBackend : BackendAllocator<DefaultPal, SlabEntry, Pagemap, DummyAuthmap, LocalState> {
	using Upstream = BackendAllocator<DefaultPal, SlabEntry, Pagemap, DummyAuthmap, LocalState>;
	static constexpr size_t METADATA = bits::next_pow2_const(sizeof(SlabMetadata));

	/* Takes a slab, of which upstream puts the first `part` bytes into a list. */
	static stl::Pair<capptr::Chunk<void>, SlabMetadata *>
	alloc_chunk(LocalState &state, size_t part, uintptr_t remote_and_sizeclass, sizeclass_t sizeclass)
	{
		smallsizeclass_t small = sizeclass.as_small();
		auto slab = Upstream::alloc_chunk(state, sizeclass_to_slab_size(small), remote_and_sizeclass, sizeclass);
		if (slab.second != nullptr)
			slab.second->begin(small, address_cast(slab.first), part);
		return slab;
	}

	/* Takes a large block of `size` bytes at a multiple of `alignment`. Returns null if there is no memory. */
	static stl::Pair<capptr::Chunk<void>, SlabMetadata *>
	alloc_large(LocalState &state, size_t size, size_t alignment, uintptr_t remote_and_sizeclass)
	{
		auto memory = state.get_meta_range().alloc_range(METADATA);
		if (memory == nullptr)
			return {nullptr, nullptr};
		capptr::Arena<void> block = state.get_object_range()->alloc_extent(size, alignment);
		if (block == nullptr) {
			state.get_meta_range().dealloc_range(memory, METADATA);
			return {nullptr, nullptr};
		}
		auto *metadata = memory.template as_reinterpret<SlabMetadata>().unsafe_ptr();
		metadata->initialise_large(address_cast(block), freelist::Object::key_root);
		metadata->size_of_large() = size;
		state.get_object_range()->use_large(size);
		Pagemap::set_metaentry(address_cast(block), size, SlabEntry(metadata, remote_and_sizeclass));
		return {Aal::capptr_bound<void, capptr::bounds::Chunk>(block, size), metadata};
	}

	/* Changes a large block's size where it is: gives back its end, or takes the free memory behind it. Returns false if
	 * there is not enough. */
	static bool resize_large(LocalState &state, capptr::Arena<void> block, size_t size)
	{
		const SlabEntry &entry = Upstream::get_metaentry(address_cast(block));
		size_t &size_of_block = entry.get_slab_metadata()->size_of_large();
		size_t before = size_of_block;
		if (before < size) {
			if (!state.get_object_range()->extend(block, before, size))
				return false;
			Pagemap::set_metaentry(address_cast(block) + before, size - before, entry);
		} else {
			SlabEntry of_backend(nullptr, 0);
			of_backend.claim_for_backend();
			Pagemap::set_metaentry(address_cast(block) + size, before - size, of_backend);
			state.get_object_range()->cut(block, before, size);
		}
		state.get_object_range()->use_large(size - before);
		size_of_block = size;
		return true;
	}

	/* Upstream gives a large block's size as a power of two, and takes a slab for as large as its first part. */
	static void dealloc_chunk(LocalState &state, SlabMetadata &metadata, capptr::Alloc<void> start, size_t size,
	                          sizeclass_t sizeclass)
	{
		if (metadata.is_large()) {
			size = metadata.size_of_large();
			state.get_object_range()->use_large(-size);
		} else {
			metadata.end_holes();
			size = sizeclass_to_slab_size(sizeclass.as_small());
			start = pointer_align_down<void>(start, size);
		}
		Upstream::dealloc_chunk(state, metadata, start, size, sizeclass);
	}
};
}

#endif
