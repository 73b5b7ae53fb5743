/* Large blocks: those above upstream's size classes, 64 KiB. Upstream gives them the next power of two of address space;
 * here, they have as many chunks as they need. heap.cc includes this after thread_memory.h. */
#ifndef SNMALLOC_LARGE_BLOCKS_H
#define SNMALLOC_LARGE_BLOCKS_H

namespace snmalloc
{
/* The addition to upstream's metadata of a slab: the size of a large block; or the first object that is in no list yet, 0 if
 * all are (slab_parts.h). */
struct SizeOrRest {
	using StorageType = size_t;
	using DataRef = size_t &;

	static size_t required_count(size_t)
	{
		return 1;
	}

	static DataRef get(StorageType *size, size_t)
	{
		return *size;
	}
};

/* The metadata of a slab or a large block. */
class SlabMetadata : public FrontendSlabMetadata<SlabMetadata, SizeOrRest>
{
	/* How many objects are in no list yet. */
	size_t count_rest(smallsizeclass_t sizeclass)
	{
		if (rest() == 0)
			return 0;
		size_t used = rest() % sizeclass_to_slab_size(sizeclass);
		return sizeclass_to_slab_object_count(sizeclass) - used / sizeclass_to_size(sizeclass);
	}

	/* The first `objects` of them are in one now. */
	void skip(smallsizeclass_t sizeclass, size_t objects)
	{
		rest() = objects == count_rest(sizeclass) ? 0 : rest() + objects * sizeclass_to_size(sizeclass);
	}

	size_t &rest()
	{
		return get_meta_for_object(0);
	}

public:
	/* Notes that the first `part` bytes of a slab are put into a list next. */
	void begin(smallsizeclass_t sizeclass, address_t slab, size_t part)
	{
		rest() = slab;
		skip(sizeclass, part / sizeclass_to_size(sizeclass));
	}

	/* Upstream's, called after begin(). */
	void initialise(smallsizeclass_t sizeclass, address_t slab, const FreeListKey &key)
	{
		size_t kept = rest();
		FrontendSlabMetadata::initialise(sizeclass, slab, key);
		rest() = kept;
	}

	/* As upstream's, which takes all of the slab's free objects; but if none came back, a part of those that were never
	 * used. The rest counts as free, and is not resident. */
	template<typename Domesticator>
	static SNMALLOC_FAST_PATH stl::Pair<freelist::HeadPtr, bool>
	alloc_free_list(Domesticator domesticate, SlabMetadata *meta, freelist::Iter<> &fast_free_list, LocalEntropy &entropy,
	                smallsizeclass_t sizeclass)
	{
		if (SNMALLOC_UNLIKELY(meta->rest() != 0) && meta->free_queue.empty())
			meta->add_part(sizeclass, entropy);
		auto taken = FrontendSlabMetadata::alloc_free_list(domesticate, meta, fast_free_list, entropy, sizeclass);
		if (SNMALLOC_UNLIKELY(meta->rest() != 0))
			taken.second = meta->keeps_rest(sizeclass);
		return taken;
	}

private:
	/* Puts a part of the objects that are in no list yet into the empty list. */
	SNMALLOC_SLOW_PATH void add_part(smallsizeclass_t sizeclass, LocalEntropy &entropy)
	{
		size_t size = sizeclass_to_size(sizeclass), objects = part_of(sizeclass, count_rest(sizeclass));
		for (size_t i = 0; i < objects; i++) {
			auto object = capptr::Alloc<void>::unsafe_from(reinterpret_cast<void *>(rest() + i * size));
			free_queue.add(freelist::Object::make<capptr::bounds::AllocWild>(object), freelist::Object::key_root,
			               as_key_tweak(), entropy);
		}
		skip(sizeclass, objects);
	}

	/* Counts the rest as free. Returns whether the slab stays in use. */
	SNMALLOC_SLOW_PATH bool keeps_rest(smallsizeclass_t sizeclass)
	{
		return !set_sleeping(sizeclass, static_cast<uint16_t>(count_rest(sizeclass)));
	}
};

static size_t &size_of_large(SlabMetadata &block)
{
	return block.get_meta_for_object(0);
}

/* An entry of the page map that this file can make. */
class SlabEntry : public FrontendMetaEntry<SlabMetadata>
{
public:
	SNMALLOC_FAST_PATH SlabEntry() = default;
	SNMALLOC_FAST_PATH SlabEntry(SlabMetadata *metadata, uintptr_t remote_and_sizeclass)
	    : FrontendMetaEntry<SlabMetadata>(metadata, remote_and_sizeclass)
	{
	}
	SlabEntry &operator=(const SlabEntry &other)
	{
		FrontendMetaEntry<SlabMetadata>::operator=(other);
		return *this;
	}
};

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
		size_of_large(*metadata) = size;
		state.get_object_range()->use_large(size);
		Pagemap::set_metaentry(address_cast(block), size, SlabEntry(metadata, remote_and_sizeclass));
		return {Aal::capptr_bound<void, capptr::bounds::Chunk>(block, size), metadata};
	}

	/* Changes a large block's size where it is: gives back its end, or takes the free memory behind it. Returns false if
	 * there is not enough. */
	static bool resize_large(LocalState &state, capptr::Arena<void> block, size_t size)
	{
		const SlabEntry &entry = Upstream::get_metaentry(address_cast(block));
		size_t &size_of_block = size_of_large(*entry.get_slab_metadata());
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
			size = size_of_large(metadata);
			state.get_object_range()->use_large(-size);
		} else {
			size = sizeclass_to_slab_size(sizeclass.as_small());
			start = pointer_align_down<void>(start, size);
		}
		Upstream::dealloc_chunk(state, metadata, start, size, sizeclass);
	}
};
}

#endif
