/* Transparent huge pages: where the kernel is asked for them, and where not. platform.h includes this; PALGraft inherits
 * it.
 *
 * A huge page saves 511 page faults and most of what a processor spends on looking addresses up. But its first write makes
 * 2 MiB resident, and the kernel may later make one of a few pages that are there. So:
 *
 * - the first 32 MiB have none, whatever the system's setting;
 * - a large block has them in the part that it fills, while it lives;
 * - memory that is new to a large heap has them, until something of it goes back to the kernel: from then on, the 2 MiB
 *   around that have small pages. */
#ifndef SNMALLOC_HUGE_PAGES_H
#define SNMALLOC_HUGE_PAGES_H

namespace snmalloc
{
class HugePages
{
public:
	/* A block of this size or more may be on huge pages. */
	static constexpr size_t HUGE_BLOCK = 4 << 20;
	static constexpr size_t HUGE_PAGE = 2 << 20;

private:
	/* The first mappings, up to this number of bytes, have no huge pages, whatever the system's setting. */
	static constexpr size_t WITHOUT_HUGE_PAGES = 32 << 20;
	/* All of that is in these two: the first mapping, and those at `next_place`. */
	struct Addresses {
		uintptr_t start, end;
	};
	static inline Addresses small_pages[2] = {{UINTPTR_MAX, 0}, {UINTPTR_MAX, 0}};

	/* From so much on for the process, and so much for each allocator of a thread, new memory is on huge pages: each thread
	 * may hold a part of 2 MiB that it does not use. */
	static constexpr size_t LARGE_HEAP = 64 << 20, LARGE_SHARE = 16 << 20;
	/* A bit for each 2 MiB of address space from the first such mapping on, as long as it is on huge pages. What is farther
	 * away has none. */
	static constexpr size_t WORD = 64, WORDS = 512;
	static inline stl::Atomic<uint64_t> on_huge_pages[WORDS];
	static inline stl::Atomic<uintptr_t> first_huge_page{0};

	/* For the whole huge pages within a range. */
	static void advise(uintptr_t start, uintptr_t end, int advice)
	{
		uintptr_t from = bits::align_up(start, HUGE_PAGE), to = bits::align_down(end, HUGE_PAGE);
		if (from < to)
			graft_apart_madvise(reinterpret_cast<void *>(from), to - from, advice);
	}

	/* Calls `visit` for each word of the bits of a range, with the range's bits in it and the address of the first bit. */
	template<typename Visit>
	static void each_word(uintptr_t from, uintptr_t to, Visit visit)
	{
		uintptr_t first = first_huge_page.load(stl::memory_order_acquire);
		if (first == 0 || to <= first)
			return;
		size_t at = (bits::max(from, first) - first) / HUGE_PAGE, end = (to - first + HUGE_PAGE - 1) / HUGE_PAGE;
		for (end = bits::min(end, WORD * WORDS); at < end; at = bits::align_down(at, WORD) + WORD) {
			size_t count = bits::min(end - at, WORD - at % WORD);
			uint64_t range = (~uint64_t{0} >> (WORD - count)) << at % WORD;
			visit(on_huge_pages[at / WORD], range, first + bits::align_down(at, WORD) * HUGE_PAGE);
		}
	}

	/* Forgets that any part of a range is on huge pages, and calls `end` for each range that was. */
	template<typename End>
	static void forget(uintptr_t from, uintptr_t to, End end)
	{
		each_word(from, to, [&](stl::Atomic<uint64_t> &word, uint64_t range, uintptr_t first) {
			if (!(word.load(stl::memory_order_relaxed) & range))
				return;
			uint64_t was = word.fetch_and(~range, stl::memory_order_relaxed) & range;
			while (was != 0) {
				size_t at = bits::ctz(was), count = ~(was >> at) ? bits::ctz(~(was >> at)) : WORD;
				end(first + at * HUGE_PAGE, first + (at + count) * HUGE_PAGE);
				was &= was + (was & -was);
			}
		});
	}

	static void forget(uintptr_t from, uintptr_t to)
	{
		forget(from, to, [](uintptr_t, uintptr_t) {});
	}

	/* Whether an address is in one of the first mappings. */
	static bool has_small_pages(uintptr_t at)
	{
		for (const Addresses &part : small_pages)
			if (at >= part.start && at < part.end)
				return true;
		return false;
	}

protected:
	/* What is mapped for blocks. */
	GRAFT_EARLY static inline stl::Atomic<size_t> mapped_blocks{0};

	/* Chooses the pages of a new mapping for blocks, and counts it. Called with upstream's lock held. */
	static void begin_mapping(void *blocks, size_t size, bool follows)
	{
		uintptr_t start = reinterpret_cast<uintptr_t>(blocks);
		size_t before = mapped_blocks.fetch_add(size, stl::memory_order_relaxed);
		if (!donor_allow_thp() || before < WITHOUT_HUGE_PAGES) {
			size_t small = donor_allow_thp() ? bits::min(size, WITHOUT_HUGE_PAGES - before) : size;
			graft_apart_madvise(blocks, small, MADV_NOHUGEPAGE);
			Addresses &part = small_pages[follows];
			part.start = bits::min(part.start, start);
			part.end = bits::max(part.end, start + small);
		} else if (follows && before >= bits::max(LARGE_HEAP, LARGE_SHARE * allocators.load(stl::memory_order_relaxed))) {
			uintptr_t from = bits::align_up(start, HUGE_PAGE), to = bits::align_down(start + size, HUGE_PAGE);
			if (first_huge_page.load(stl::memory_order_relaxed) == 0)
				first_huge_page.store(from, stl::memory_order_release);
			uintptr_t first = first_huge_page.load(stl::memory_order_relaxed);
			if (from < first || to > first + WORD * WORDS * HUGE_PAGE || from >= to)
				return;
			each_word(from, to, [](stl::Atomic<uint64_t> &word, uint64_t range, uintptr_t) {
				word.fetch_or(range, stl::memory_order_relaxed);
			});
			advise(from, to, MADV_HUGEPAGE);
		}
	}

	/* For a mapping that took another's place. */
	static void begin_again(void *blocks, size_t size)
	{
		uintptr_t start = reinterpret_cast<uintptr_t>(blocks);
		forget(start, start + size);
		if (!donor_allow_thp() || has_small_pages(start))
			graft_apart_madvise(blocks, size, MADV_NOHUGEPAGE);
	}

	/* Ends the request for huge pages around a range that goes back to the kernel: what is left there would be made a huge
	 * page again. Then a range may be a mapping of its own; those of 64 GiB are 32,768 at most. */
	static void leave_huge_pages(uintptr_t from, uintptr_t to)
	{
		forget(from, to, [](uintptr_t start, uintptr_t end) { advise(start, end, MADV_NOHUGEPAGE); });
	}

public:
	/* Threads' allocators, with those whose thread has ended. */
	GRAFT_EARLY static inline stl::Atomic<size_t> allocators{0};
	/* How many ranges of HUGE_BLOCK bytes and more are in use; not counted with checks. */
	GRAFT_EARLY static inline stl::Atomic<size_t> huge_ranges{0};

	/* How much is mapped for blocks. */
	static size_t mapped_bytes() noexcept
	{
		return mapped_blocks.load(stl::memory_order_relaxed);
	}

	/* The smallest block that may become a mapping of its own after its end, of which a process may have 65,530: this keeps
	 * their number to some thousands, however much is mapped. */
	static size_t least_apart() noexcept
	{
		return mapped_bytes() / 1024;
	}

	/* Whether an address is on a page that may be a huge one because the heap is large. */
	static bool is_on_huge_page(uintptr_t at)
	{
		bool found = false;
		each_word(at, at + 1, [&](stl::Atomic<uint64_t> &word, uint64_t range, uintptr_t) {
			found = (word.load(stl::memory_order_relaxed) & range) != 0;
		});
		return found;
	}

	/* Extends a range by the rest of the huge pages that it begins and ends on. */
	static void round_to_huge_pages(uintptr_t &from, uintptr_t &to)
	{
		if (is_on_huge_page(from))
			from = bits::align_down(from, HUGE_PAGE);
		if (is_on_huge_page(to - 1))
			to = bits::align_up(to, HUGE_PAGE);
	}

	/* Requests huge pages for the part of a large block that fills them: one page fault in place of 512, and the kernel
	 * clears the same memory. The rest of the block keeps its small pages, so that no more becomes resident than is
	 * written. Each such block may split a mapping twice, and a process may have 65,530 of them. */
	static void prefer_huge_pages(void *block, size_t size) noexcept
	{
		constexpr size_t most_ranges = 4096;
		uintptr_t start = reinterpret_cast<uintptr_t>(block);
		if (donor_allow_thp() && huge_ranges.load(stl::memory_order_relaxed) <= most_ranges)
			advise(start, start + size, MADV_HUGEPAGE);
	}

	/* Ends the request for huge pages when the block is freed. What takes its place may be small: its first write would
	 * make 2 MiB resident, and later the kernel might make a huge page of the little that is there. */
	static void end_huge_pages(void *block, size_t size) noexcept
	{
		if (size < HUGE_BLOCK || size < least_apart() || !donor_allow_thp() || donor_purge_delay() != 0)
			return;
		uintptr_t start = reinterpret_cast<uintptr_t>(block);
		forget(bits::align_up(start, HUGE_PAGE), bits::align_down(start + size, HUGE_PAGE));
		advise(start, start + size, MADV_NOHUGEPAGE);
	}
};
}

#endif
