/* What upstream's allocator is made of here. heap.cc includes this after large_blocks.h. */
#ifndef SNMALLOC_CONFIGURATION_H
#define SNMALLOC_CONFIGURATION_H

namespace snmalloc
{
/* The configuration: upstream's page map, with the ranges of thread_memory.h and the large blocks of large_blocks.h.
 * With checks, the ranges and the backend are upstream's, which keep metadata apart; and pointers from free lists are
 * checked before they are followed: a write past the end of a block may have left a value there that is not a block's
 * address, and the program would end without a message. */
class Config final : public CommonConfig
{
public:
	using Pal = DefaultPal;
	static constexpr bool HAS_EXTENTS = !mitigations(metadata_protection);
	using ClientMeta = stl::conditional_t<HAS_EXTENTS, SlabAddition, NoClientMetaDataProvider>;
	using PagemapEntry = stl::conditional_t<HAS_EXTENTS, SlabEntry, DefaultPagemapEntry<ClientMeta>>;
	using SecondaryAllocator = DefaultSecondaryAllocator;

private:
	using Map = FlatPagemap<MIN_CHUNK_BITS, PagemapEntry, Pal, false>;
	using Pagemap = BasicPagemap<Pal, Map, PagemapEntry, false>;
	using Base = Pipe<PalRange<Pal>, PagemapRegisterRange<Pagemap>>;

	SNMALLOC_REQUIRE_CONSTINIT GRAFT_EARLY static inline stl::Atomic<bool> initialised{false};
	SNMALLOC_REQUIRE_CONSTINIT GRAFT_EARLY static inline FlagWord initialising{};

public:
	using CheckedRanges = MetaProtectedRangeLocalState<Pal, Pagemap, Base>;
	using OwnRanges = HeapRanges<Pal, Pagemap, Base>;
	using LocalState = stl::conditional_t<HAS_EXTENTS, OwnRanges, CheckedRanges>;
	using Backend = stl::conditional_t<HAS_EXTENTS, ExtentBackend<Pagemap, OwnRanges>,
	                                   BackendAllocator<Pal, PagemapEntry, Pagemap, DummyAuthmap, CheckedRanges>>;
	static constexpr Flags Options{.HasDomesticate = mitigations(freelist_forward_edge)};

	/* Without room for the page map, nothing is initialised afterwards. */
	static void ensure_init()
	{
		with(initialising, []() {
			if (initialised)
				return;
			LocalEntropy entropy;
			entropy.init<Pal>();
			entropy.make_free_list_key(RemoteAllocator::key_global);
			entropy.make_free_list_key(freelist::Object::key_root);
			initialised.store(start_page_map(), stl::memory_order_release);
		});
	}

	static bool is_initialised()
	{
		return initialised.load(stl::memory_order_acquire);
	}

	/* The program frees a pointer to void; upstream has its own checks and messages for that. */
	template<typename T, SNMALLOC_CONCEPT(capptr::IsBound) B>
		requires(mitigations(freelist_forward_edge))
	static SNMALLOC_FAST_PATH auto capptr_domesticate(LocalState *, CapPtr<T, B> p)
	{
		using Tame = CapPtr<T, typename B::template with_wildness<capptr::dimension::Wildness::Tame>>;
		if constexpr (!stl::is_same_v<stl::remove_cv_t<T>, void>) {
			address_t at = address_cast(p);
			if (SNMALLOC_LIKELY(at != 0) &&
			    (at % MIN_ALLOC_SIZE || at >> Pal::address_bits || !is_block(at)))
				platform_fail("Heap corruption - the free list leads out of the heap.");
		}
		return Tame::unsafe_from(p.unsafe_ptr());
	}

private:
	/* Upstream ends the program if there is no room for the page map, and writes the first entry, which takes a page
	 * and those of the kernel's tables: zeros, where zeros are. Here that is left out, unless the map is at a random
	 * place, which upstream chooses. Returns whether there was room. */
	static bool start_page_map()
	{
		if constexpr (mitigations(random_pagemap)) {
			if (!Pal::has_room())
				return false;
			Pagemap::concretePagemap.template init<true>();
		} else {
			void *map = Pal::start_page_map(Map::required_size());
			if (map == nullptr)
				return false;
			Pagemap::concretePagemap.init(static_cast<PagemapEntry *>(map));
		}
		return true;
	}

	static SNMALLOC_FAST_PATH bool is_block(address_t at)
	{
		const PagemapEntry &entry = Backend::get_metaentry<true>(at);
		return Pal::is_readable(&entry) && entry.is_owned() && !entry.is_backend_owned();
	}
};
}

#endif
