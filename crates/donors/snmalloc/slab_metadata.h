/* What is known of a slab or a large block, beyond what upstream notes: objects that are in no list. heap.cc includes this
 * after thread_memory.h.
 *
 * Such objects count as free. They are those that were never used (slab_parts.h), and those on pages that went back to the
 * kernel: a slab with few objects in use may have pages with none (holes.h). */
#ifndef SNMALLOC_SLAB_METADATA_H
#define SNMALLOC_SLAB_METADATA_H

namespace snmalloc
{
/* The addition to upstream's metadata. */
struct SlabAddition {
	/* The size of a large block; or the first object that was never used and is in no list, 0 if all are. */
	size_t size_or_rest;
	/* A bit for each page whose objects are in no list: those that begin there. */
	uint64_t holes;
	/* How many objects were in use when the search for holes saw the slab last, and when it looked at each object; NEVER if
	 * objects were taken from the slab since. */
	static constexpr uint16_t NEVER = 0xffff;
	uint16_t seen, searched;

	using StorageType = SlabAddition;
	using DataRef = SlabAddition &;

	static size_t required_count(size_t)
	{
		return 1;
	}

	static DataRef get(StorageType *addition, size_t)
	{
		return *addition;
	}
};

/* Counts bytes of a slab that hold no page any more, or again. */
static void count_holes(size_t gone, size_t back);

/* The metadata of a slab or a large block. */
class SlabMetadata : public FrontendSlabMetadata<SlabMetadata, SlabAddition>
{
	/* A slab with objects below a page is searched if it has so few in use for each of its pages that about a fourth of them
	 * are free. */
	static constexpr size_t most_in_use(size_t pages)
	{
		return pages + pages / 2;
	}

	/* The places of objects and pages in a slab. */
	struct Layout {
		smallsizeclass_t sizeclass;
		size_t size = sizeclass_to_size(sizeclass), objects = sizeclass_to_slab_object_count(sizeclass);
		size_t page = PALGraft::real_page_size(), pages = sizeclass_to_slab_size(sizeclass) / page;

		/* The first object that begins on a page or behind it, and the end of those that begin on it. */
		size_t first(size_t at) const
		{
			return bits::min((at * page + size - 1) / size, objects);
		}
		size_t end(size_t at) const
		{
			return first(at + 1);
		}
	};

	/* A set of a slab's objects. */
	class Objects
	{
		static constexpr size_t MOST = MIN_CHUNK_SIZE / MIN_ALLOC_SIZE, WORD = 64;
		uint64_t words[MOST / WORD]{};

	public:
		void add(size_t object)
		{
			words[object / WORD] |= uint64_t{1} << object % WORD;
		}

		/* Whether it has all from `first` to below `end`. */
		bool has_all(size_t first, size_t end) const
		{
			for (size_t at = first; at < end; at = bits::align_down(at, WORD) + WORD) {
				size_t count = bits::min(end - at, WORD - at % WORD);
				uint64_t range = (~uint64_t{0} >> (WORD - count)) << at % WORD;
				if ((words[at / WORD] & range) != range)
					return false;
			}
			return true;
		}

		bool has(size_t object) const
		{
			return words[object / WORD] >> object % WORD & 1;
		}
	};

	SlabAddition &addition()
	{
		return get_meta_for_object(0);
	}

	size_t &rest()
	{
		return addition().size_or_rest;
	}

	/* How many objects were never used and are in no list. */
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

	/* How many objects begin in holes. */
	size_t objects_in_holes(const Layout &layout)
	{
		size_t objects = 0;
		for (uint64_t holes = addition().holes; holes != 0; holes &= holes - 1)
			objects += layout.end(bits::ctz(holes)) - layout.first(bits::ctz(holes));
		return objects;
	}

	static size_t bytes_of(uint64_t holes)
	{
		return holes == 0 ? 0 : static_cast<size_t>(__builtin_popcountll(holes)) * PALGraft::real_page_size();
	}

	bool has_objects_in_no_list()
	{
		return (rest() | addition().holes) != 0;
	}

	address_t start(smallsizeclass_t sizeclass)
	{
		return bits::align_down(get_slab_interior(freelist::Object::key_root), sizeclass_to_slab_size(sizeclass));
	}

	/* Puts an object into the list. */
	void list(address_t at, LocalEntropy &entropy)
	{
		auto object = capptr::Alloc<void>::unsafe_from(reinterpret_cast<void *>(at));
		free_queue.add(freelist::Object::make<capptr::bounds::AllocWild>(object), freelist::Object::key_root, as_key_tweak(),
		               entropy);
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
		addition() = {kept, 0, SlabAddition::NEVER, SlabAddition::NEVER};
	}

	/* The slab is given back as a whole. */
	void end_holes()
	{
		count_holes(0, bytes_of(addition().holes));
	}

	/* The size of a large block. */
	size_t &size_of_large()
	{
		return addition().size_or_rest;
	}

	/* As upstream's, which takes all of the slab's free objects; but if its list is empty, a part of those that are in none.
	 * The others count as free. */
	template<typename Domesticator>
	static SNMALLOC_FAST_PATH stl::Pair<freelist::HeadPtr, bool>
	alloc_free_list(Domesticator domesticate, SlabMetadata *meta, freelist::Iter<> &fast_free_list, LocalEntropy &entropy,
	                smallsizeclass_t sizeclass)
	{
		if (SNMALLOC_UNLIKELY(meta->has_objects_in_no_list()) && meta->free_queue.empty())
			meta->add_part(sizeclass, entropy);
		meta->addition().seen = meta->addition().searched = SlabAddition::NEVER;
		auto taken = FrontendSlabMetadata::alloc_free_list(domesticate, meta, fast_free_list, entropy, sizeclass);
		if (SNMALLOC_UNLIKELY(meta->has_objects_in_no_list()))
			taken.second = meta->keeps_rest(sizeclass);
		return taken;
	}

	/* Notes that the search for holes sees a slab that has room. Returns whether as many objects were in use when it did so
	 * last. */
	bool is_seen_again()
	{
		uint16_t seen = addition().seen;
		addition().seen = needed();
		return seen == needed();
	}

	/* Whether the search is to look at each object of a slab that has room: few are in use, and others than the last time. */
	bool may_have_holes(smallsizeclass_t sizeclass)
	{
		Layout layout{sizeclass};
		if (rest() != 0 || layout.pages < 2 || layout.pages > 64 || addition().searched == needed())
			return false;
		return layout.size >= layout.page || needed() <= most_in_use(layout.pages);
	}

	/* Gives the pages that have no object in use back to the kernel, and takes the objects that begin there out of the list. */
	SNMALLOC_SLOW_PATH void give_back_holes(smallsizeclass_t sizeclass, LocalEntropy &entropy)
	{
		Layout layout{sizeclass};
		address_t slab = start(sizeclass);
		addition().searched = needed();
		Objects listed = take_list(layout), free = listed;
		for (uint64_t holes = addition().holes; holes != 0; holes &= holes - 1)
			for (size_t object = layout.first(bits::ctz(holes)); object < layout.end(bits::ctz(holes)); object++)
				free.add(object);
		uint64_t empty = 0, before = addition().holes;
		/* A batch of blocks that came back may be in the list, and not counted yet. If it is the last, the slab is given back
		 * next, and upstream finds its start in the list. */
		bool is_free = free.has_all(0, layout.objects);
		for (size_t page = 0; page < layout.pages && !is_free; page++) {
			/* The object that reaches into the page from before is one of them. */
			size_t first = page * layout.page / layout.size, end = layout.end(page);
			if (first < end && free.has_all(first, end))
				empty |= uint64_t{1} << page;
			if (layout.first(page) < end && empty >> page & 1)
				addition().holes |= uint64_t{1} << page;
		}
		for (size_t page = 0; page < layout.pages; page++)
			for (size_t object = layout.first(page); !(addition().holes >> page & 1) && object < layout.end(page); object++)
				if (listed.has(object))
					list(slab + object * layout.size, entropy);
		count_holes(bytes_of(addition().holes), bytes_of(before));
		while (empty != 0) {
			size_t page = bits::ctz(empty), count = ~(empty >> page) ? bits::ctz(~(empty >> page)) : 64;
			PALGraft::notify_not_using(reinterpret_cast<void *>(slab + page * layout.page), count * layout.page);
			empty &= empty + (empty & -empty);
		}
	}

private:
	/* Empties the list, and returns what was in it. */
	Objects take_list(const Layout &layout)
	{
		Objects taken;
		if (free_queue.empty())
			return taken;
		auto tame = [](freelist::QueuePtr p) { return freelist::HeadPtr::unsafe_from(p.unsafe_ptr()); };
		freelist::Iter<> objects;
		free_queue.close(objects, freelist::Object::key_root, as_key_tweak());
		while (!objects.empty()) {
			address_t at = address_cast(objects.take(freelist::Object::key_root, tame));
			taken.add(slab_index(sizeclass_t::from_small_class(layout.sizeclass), at));
		}
		return taken;
	}

	/* Puts a part of the objects that are in no list into the empty list. */
	SNMALLOC_SLOW_PATH void add_part(smallsizeclass_t sizeclass, LocalEntropy &entropy)
	{
		if (rest() == 0) {
			add_holes(sizeclass, entropy);
			return;
		}
		size_t size = sizeclass_to_size(sizeclass), objects = part_of(sizeclass, count_rest(sizeclass));
		for (size_t i = 0; i < objects; i++)
			list(rest() + i * size, entropy);
		skip(sizeclass, objects);
	}

	/* Puts the objects of a hole into the empty list; of more if too few were left for the slab to stay in use. */
	void add_holes(smallsizeclass_t sizeclass, LocalEntropy &entropy)
	{
		Layout layout{sizeclass};
		address_t slab = start(sizeclass);
		uint64_t &holes = addition().holes, before = holes;
		do {
			size_t page = bits::ctz(holes);
			for (size_t object = layout.first(page); object < layout.end(page); object++)
				list(slab + object * layout.size, entropy);
			holes &= holes - 1;
		} while (holes != 0 && objects_in_holes(layout) < threshold_for_waking_slab(sizeclass));
		count_holes(bytes_of(holes), bytes_of(before));
	}

	/* Counts as free what is in no list. Returns whether the slab stays in use. */
	SNMALLOC_SLOW_PATH bool keeps_rest(smallsizeclass_t sizeclass)
	{
		size_t rest = count_rest(sizeclass) + objects_in_holes({sizeclass});
		return !set_sleeping(sizeclass, static_cast<uint16_t>(rest));
	}
};
static_assert(mitigations(metadata_protection) || sizeof(SlabMetadata) <= 64, "each slab has as many bytes for its metadata, a power of two");

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
}

#endif
