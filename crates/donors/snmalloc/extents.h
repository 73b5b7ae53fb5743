/* Free memory in extents: ranges of whole chunks, of any size, at any chunk. Neighbours become one. heap.cc includes this
 * after upstream's ranges, whose buddy allocators know powers of two only.
 *
 * Each chunk of an extent is resident or not. Memory that went back to the kernel, or was never used, makes one extent
 * with what is resident beside it. So a block may take both, and what is in use lies close together.
 *
 * An extent is noted in the page map entries of its own chunks, which nobody else uses while it is free:
 *
 *     each chunk      word two: RESIDENT, if it is
 *     first chunk     word one: the extent before it in its list; word two: the one after it, and FIRST
 *     second chunk    word one: the extent's size; word two, if it is not the last: the size of what is resident
 *     last chunk      word two: the extent's start, and LAST
 *
 * An extent of one chunk has FIRST and LAST in the same word, and needs neither size nor start. */
#ifndef SNMALLOC_EXTENTS_H
#define SNMALLOC_EXTENTS_H

namespace snmalloc
{
/* A range of memory. Its start is null for no range. */
struct TakenRange {
	capptr::Arena<void> start{nullptr};
	size_t size{0};
	/* How much of it was resident when it was taken. */
	size_t resident{0};
};

template<typename Pagemap>
class Extents
{
	using Memory = capptr::Arena<void>;
	using Entry = typename Pagemap::Entry;
	using Word = typename Entry::Word;

	/* Upstream's bit in word two of all chunks that are not in use. */
	struct Upstream : MetaEntryBase {
		static constexpr uintptr_t FREE = REMOTE_BACKEND_MARKER;
	};

	/* Upstream's bits are below these, addresses and sizes of chunks above. */
	static constexpr uintptr_t FIRST = 1 << 9, LAST = 1 << 10, RESIDENT = 1 << 11, FLAGS = MIN_CHUNK_SIZE - 1;
	static_assert(Entry::is_backend_allowed_value(Word::Two, FIRST) && RESIDENT < MIN_CHUNK_SIZE);

	/* The part of the page map for so much is mapped at once: see PALGraft::PIECE. */
	static constexpr size_t MAPPED_TOGETHER = 256 << 20;

	/* One list for each size of up to eight chunks, then eight for each power of two; all of them once for extents
	 * without anything resident, and once for the others. */
	static constexpr size_t FINE_BITS = 3, FINE = size_t{1} << FINE_BITS;
	static constexpr size_t LISTS = FINE * (DefaultPal::address_bits - MIN_CHUNK_BITS - FINE_BITS + 2);
	static constexpr size_t WORD = 64;
	/* Lists of extents of 16 MiB and more are apart, since small programs have none. */
	static constexpr size_t SMALL_LISTS = 64;
	static inline uintptr_t large_lists[2][LISTS - SMALL_LISTS];
	struct Set {
		/* A bit for each list that has an extent. */
		uint64_t present[(LISTS + WORD - 1) / WORD] = {};
		uintptr_t small_lists[SMALL_LISTS] = {};

		/* The first list from `list` on that has an extent, or LISTS. */
		size_t next(size_t list) const
		{
			for (size_t i = list / WORD; i < sizeof present / sizeof *present; i++) {
				uint64_t found = present[i];
				if (i == list / WORD)
					found &= ~uint64_t{0} << list % WORD;
				if (found != 0)
					return i * WORD + bits::ctz(found);
			}
			return LISTS;
		}
	} sets[2];
	/* The size of all that is resident. Changed by one thread at a time, and read by any. */
	stl::Atomic<size_t> resident_bytes{0};

	/* How many extents of a list are looked at for the one that fits best. */
	static constexpr size_t LOOKS = 16;

	struct Extent {
		uintptr_t start;
		size_t size, resident;

		uintptr_t end() const
		{
			return start + size;
		}
	};

	static auto word(uintptr_t chunk, Word which)
	{
		return Pagemap::template get_metaentry_mut<false>(chunk).get_backend_word(which);
	}

	/* Word two of a chunk that may be anybody's: another thread may write it meanwhile. Zero if it is in use. */
	static uintptr_t foreign_word(uintptr_t chunk)
	{
		const Entry &entry = Pagemap::template get_metaentry<false>(chunk);
		static_assert(sizeof entry == 2 * sizeof(uintptr_t));
		uintptr_t two = __atomic_load_n(reinterpret_cast<const uintptr_t *>(&entry) + 1, __ATOMIC_RELAXED);
		return two & Upstream::FREE ? two : 0;
	}

	/* Word two of the neighbour of a chunk in the page map; zero if it is in use, or the map has nothing there. */
	static uintptr_t word_beside(uintptr_t chunk, uintptr_t neighbour)
	{
		if ((chunk ^ neighbour) >= MAPPED_TOGETHER && !PALGraft::is_readable(&Pagemap::get_metaentry(neighbour)))
			return 0;
		return foreign_word(neighbour);
	}

	static size_t list_of(size_t size)
	{
		size_t chunks = size >> MIN_CHUNK_BITS;
		if (chunks < FINE)
			return chunks;
		size_t power = bits::BITS - 1 - bits::clz(chunks);
		return FINE * (power - FINE_BITS + 1) + (chunks >> (power - FINE_BITS)) % FINE;
	}

	/* The start of the first extent in a list; 0 if it has none. */
	uintptr_t &first(const Set &all, size_t list)
	{
		size_t set = static_cast<size_t>(&all - sets);
		return list < SMALL_LISTS ? sets[set].small_lists[list] : large_lists[set][list - SMALL_LISTS];
	}

	Set &set_of(const Extent &extent)
	{
		return sets[extent.resident != 0];
	}

	/* Chunks that were never used have nothing in the page map, and reading that is to leave it so. */
	static bool is_resident(uintptr_t chunk)
	{
		return foreign_word(chunk) & RESIDENT;
	}

	static size_t count_resident(uintptr_t from, uintptr_t to)
	{
		size_t found = 0;
		for (; from < to; from += MIN_CHUNK_SIZE)
			found += is_resident(from) ? MIN_CHUNK_SIZE : 0;
		return found;
	}

	/* Changes the address or size in a chunk's word, and the flags but for RESIDENT. */
	static void set(uintptr_t chunk, Word which, uintptr_t value)
	{
		auto place = word(chunk, which);
		place = value | (which == Word::Two ? place.get() & RESIDENT : 0);
	}

	/* The extent whose first chunk this is. */
	static Extent extent_at(uintptr_t start)
	{
		if (word(start, Word::Two).get() & LAST)
			return {start, MIN_CHUNK_SIZE, count_resident(start, start + MIN_CHUNK_SIZE)};
		uintptr_t second = start + MIN_CHUNK_SIZE;
		size_t size = word(second, Word::One).get();
		if (size == 2 * MIN_CHUNK_SIZE)
			return {start, size, count_resident(start, start + size)};
		return {start, size, word(second, Word::Two).get() & ~FLAGS};
	}

	static uintptr_t next_of(uintptr_t start)
	{
		return word(start, Word::Two).get() & ~FLAGS;
	}

	void insert(const Extent &extent)
	{
		if (extent.size == 0)
			return;
		Set &all = set_of(extent);
		size_t list = list_of(extent.size);
		uintptr_t start = extent.start, second = start + MIN_CHUNK_SIZE, next = first(all, list);
		set(start, Word::One, 0);
		set(start, Word::Two, next | FIRST | (extent.size == MIN_CHUNK_SIZE ? LAST : 0));
		if (extent.size > MIN_CHUNK_SIZE) {
			set(second, Word::Two, extent.resident);
			set(extent.end() - MIN_CHUNK_SIZE, Word::Two, start | LAST);
			set(second, Word::One, extent.size);
		}
		if (next != 0)
			set(next, Word::One, start);
		first(all, list) = start;
		all.present[list / WORD] |= uint64_t{1} << list % WORD;
	}

	void remove(const Extent &extent)
	{
		Set &all = set_of(extent);
		size_t list = list_of(extent.size);
		uintptr_t previous = word(extent.start, Word::One).get(), next = next_of(extent.start);
		if (next != 0)
			set(next, Word::One, previous);
		if (previous != 0)
			set(previous, Word::Two, next | (word(previous, Word::Two).get() & (FIRST | LAST)));
		else if ((first(all, list) = next) == 0)
			all.present[list / WORD] &= ~(uint64_t{1} << list % WORD);
		set(extent.start, Word::Two, 0);
		set(extent.end() - MIN_CHUNK_SIZE, Word::Two, 0);
	}

	void count(size_t more)
	{
		resident_bytes.store(bytes() + more, stl::memory_order_relaxed);
	}

	/* The smallest extent of the set that has `size` bytes at a multiple of `alignment`, and meets the condition; its
	 * size is 0 if none was found. */
	template<typename Condition>
	Extent best(const Set &all, size_t size, size_t alignment, Condition condition)
	{
		for (size_t list = all.next(list_of(size)); list < LISTS; list = all.next(list + 1)) {
			Extent found{0, 0, 0};
			size_t looks = LOOKS;
			for (uintptr_t start = first(all, list); start != 0 && looks > 0; start = next_of(start), looks--) {
				Extent here = extent_at(start);
				if ((found.size == 0 || here.size < found.size) &&
				    bits::align_up(start, alignment) + size <= here.end() && condition(here))
					found = here;
			}
			if (found.size != 0)
				return found;
		}
		return {0, 0, 0};
	}

	TakenRange take_part(const Extent &extent, uintptr_t start, size_t size)
	{
		remove(extent);
		size_t before = count_resident(extent.start, start), taken = count_resident(start, start + size);
		insert({extent.start, start - extent.start, before});
		insert({start + size, extent.end() - start - size, extent.resident - before - taken});
		count(-taken);
		return {Memory::unsafe_from(reinterpret_cast<void *>(start)), size, taken};
	}

	/* Makes one extent of this and its neighbours. */
	void add(Extent extent)
	{
		uintptr_t before = extent.start - MIN_CHUNK_SIZE, last = extent.end() - MIN_CHUNK_SIZE;
		uintptr_t end_of_other = word_beside(extent.start, before);
		if (end_of_other & LAST) {
			Extent other = extent_at(end_of_other & FIRST ? before : end_of_other & ~FLAGS);
			remove(other);
			extent = {other.start, other.size + extent.size, other.resident + extent.resident};
		}
		if (word_beside(last, extent.end()) & FIRST) {
			Extent other = extent_at(extent.end());
			remove(other);
			extent.size += other.size;
			extent.resident += other.resident;
		}
		insert(extent);
	}

public:
	constexpr Extents() = default;

	/* Whether a chunk that was taken, and not used since, is resident. */
	static bool was_resident(Memory chunk)
	{
		return is_resident(chunk.unsafe_uintptr());
	}

	/* The size of what is resident. */
	size_t bytes()
	{
		return resident_bytes.load(stl::memory_order_relaxed);
	}

	/* Takes `size` bytes at a multiple of `alignment`, both multiples of a chunk: of an extent with something resident, if
	 * one is large enough. */
	TakenRange take(size_t size, size_t alignment)
	{
		auto any = [](const Extent &) { return true; };
		Extent found = best(sets[true], size, alignment, any);
		if (found.size == 0)
			found = best(sets[false], size, alignment, any);
		if (found.size == 0)
			return {};
		return take_part(found, bits::align_up(found.start, alignment), size);
	}

	/* Takes `size` bytes, a power of two, at a multiple of that, if all of them are resident. */
	Memory take_resident(size_t size)
	{
		auto place = [&](const Extent &extent) -> uintptr_t {
			uintptr_t first = bits::align_up(extent.start, size);
			if (count_resident(first, first + size) == size)
				return first;
			uintptr_t last = bits::align_down(extent.end() - size, size);
			return count_resident(last, last + size) == size ? last : 0;
		};
		Extent found = best(sets[true], size, size, [&](const Extent &extent) { return place(extent) != 0; });
		if (found.size == 0)
			return nullptr;
		return take_part(found, place(found), size).start;
	}

	/* Takes the `size` bytes at `start`, if all of them are free. */
	TakenRange take_at(Memory start, size_t size)
	{
		uintptr_t at = start.unsafe_uintptr();
		if (!(word_beside(at - MIN_CHUNK_SIZE, at) & FIRST))
			return {};
		Extent extent = extent_at(at);
		if (extent.size < size)
			return {};
		return take_part(extent, at, size);
	}

	/* Takes what is resident, up to as much as is above `rest` bytes, in one range of whole pages of `page` bytes; or none,
	 * if there is nothing as large as a page. All that is free of a huge page goes with it, since what nobody has used is
	 * in memory, too. */
	TakenRange take_above(size_t rest, size_t page)
	{
		if (bytes() <= rest)
			return {};
		size_t most = bits::align_up(bytes() - rest, page);
		const Set &all = sets[true];
		for (size_t list = LISTS; list-- > 0;) {
			for (uintptr_t start = first(all, list); start != 0; start = next_of(start)) {
				Extent extent = extent_at(start);
				/* The first range from either end, whichever is nearer. */
				uintptr_t from = extent.start, to = extent.end();
				while (!is_resident(from) && !is_resident(to - MIN_CHUNK_SIZE)) {
					from += MIN_CHUNK_SIZE;
					to -= MIN_CHUNK_SIZE;
				}
				if (is_resident(from)) {
					for (to = from; to < extent.end() && is_resident(to);)
						to += MIN_CHUNK_SIZE;
				} else {
					for (from = to; from > extent.start && is_resident(from - MIN_CHUNK_SIZE);)
						from -= MIN_CHUNK_SIZE;
				}
				to = bits::align_down(to, page);
				from = bits::align_up(from, page);
				if (from >= to)
					continue;
				from = bits::max(from, to - bits::min(most, to - from));
				PALGraft::round_to_huge_pages(from, to);
				from = bits::max(from, bits::align_up(extent.start, page));
				to = bits::min(to, bits::align_down(extent.end(), page));
				return take_part(extent, from, to - from);
			}
		}
		return {};
	}

	/* Takes a range in which nothing is resident, between multiples of `page` bytes: the first one of at least `least`
	 * bytes, of the largest extents first. Its entries of the page map then describe no memory. */
	TakenRange take_unused(size_t least, size_t page)
	{
		for (const Set &all : sets) {
			for (size_t list = LISTS; list-- > list_of(least);) {
				for (uintptr_t start = first(all, list); start != 0; start = next_of(start)) {
					Extent extent = extent_at(start);
					if (extent.size - extent.resident < least)
						continue;
					for (uintptr_t from = extent.start, to = from; from < extent.end(); from = to += MIN_CHUNK_SIZE) {
						while (to < extent.end() && !is_resident(to))
							to += MIN_CHUNK_SIZE;
						uintptr_t first = bits::align_up(from, page), end = bits::align_down(to, page);
						if (first < end && end - first >= least)
							return take_part(extent, first, end - first);
					}
				}
			}
		}
		return {};
	}

	/* Adds memory that was never used. */
	void add_new(Memory range, size_t size)
	{
		add({range.unsafe_uintptr(), size, 0});
	}

	/* Adds memory that is resident, or is not. */
	void add(Memory range, size_t size, bool resident)
	{
		Extent extent{range.unsafe_uintptr(), size, resident ? size : 0};
		for (uintptr_t chunk = extent.start; chunk < extent.end(); chunk += MIN_CHUNK_SIZE)
			word(chunk, Word::Two) = resident ? RESIDENT : 0;
		count(extent.resident);
		add(extent);
	}
};
}

#endif
