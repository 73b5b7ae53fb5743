/* snmalloc's platform layer, made of the glue's functions: system calls that leave the program's errno alone and are
 * counted, messages by plain write, no clock, no stdio, no lock of libc's. Beyond upstream's, it works with a small
 * address space (see `reserve`) and checks the kernel's results. heap.cc includes it once, before upstream's pal.h. */
#ifndef SNMALLOC_PLATFORM_H
#define SNMALLOC_PLATFORM_H

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "heap.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* Prints the fault of the program or the heap, and ends the program with SIGABRT. */
[[noreturn]] __attribute__((noinline, cold)) static void platform_fail(const char *message)
{
	static const char name[] = "allograft: snmalloc: ";
	char text[sizeof name + 1024];
	size_t length = sizeof name - 1;
	memcpy(text, name, length);
	while (*message == '\n')
		message++;
	while (*message && *message != '\n' && length < sizeof text - 1)
		text[length++] = *message++;
	text[length++] = '\n';
	graft_apart_write(text, length);
	abort();
}

namespace snmalloc
{
class PALGraft
{
	/* The kinds of page map. The map is an array with an entry for each 16 KiB of the address space: 256 GiB for 48 bits,
	 * of which little is ever touched. */
	enum class PageMap {
		none,
		/* One mapping, readable and writable. */
		whole,
		/* One mapping without access; pieces get access when they are used. If the kernel promises memory strictly
		 * (vm.overcommit_memory=2), only such a mapping is free. */
		guarded,
		/* An unmapped part of the address space, of which pieces are mapped. It takes no more address space than is used:
		 * for RLIMIT_AS, and for machines with fewer bits. */
		pieces,
	};
	static inline PageMap page_map = PageMap::none;
	static inline uintptr_t page_map_start, page_map_end;

	/* The mapped pieces. 256 KiB of map stand for 256 MiB of address space; all of them together for 256 GiB. */
	static constexpr size_t PIECE = 256 << 10, PIECES = 1024;
	static inline uint32_t mapped_pieces[PIECES];
	static inline size_t mapped_piece_count;

	/* Address space that is reserved at once and handed out in order. */
	static inline char *arena, *arena_end;

	struct KeptErrno {
		int kept = errno;
		~KeptErrno()
		{
			errno = kept;
		}
	};

	static void *map(void *place, size_t size, int protection, int flags)
	{
		KeptErrno kept;
		void *mapping = mmap(place, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
		return mapping == MAP_FAILED ? nullptr : mapping;
	}

	/* The page map does not count as mapped memory, since it would hide all other figures. */
	static void *reserve_page_map(size_t size)
	{
		/* An emulator may keep a record of every page of a mapping (qemu-user 7.2 seems to), which takes minutes for 256
		 * GiB. Emulated programs are mostly for other architectures than x86-64. */
#ifdef __x86_64__
		constexpr bool at_once = true;
#else
		constexpr bool at_once = false;
#endif
		void *start = nullptr;
		if (at_once && !mitigations(pal_enforce_access))
			start = map(nullptr, size, PROT_READ | PROT_WRITE, 0);
		page_map = PageMap::whole;
		if (!start && at_once) {
			start = map(nullptr, size, PROT_NONE, 0);
			page_map = PageMap::guarded;
		}
		if (!start) {
			/* A place half way up to the stack, far from all that the kernel places: mappings grow down from the stack or
			 * up from a third of the way, and programs are at the bottom or at two thirds. If something is there after
			 * all, mapping the piece fails, and so does the request for memory. */
			uintptr_t here = reinterpret_cast<uintptr_t>(&start);
			start = reinterpret_cast<void *>(here / 2 & ~((uintptr_t{1} << 30) - 1));
			page_map = PageMap::pieces;
		}
		if (page_map != PageMap::pieces) {
			KeptErrno kept;
			madvise(start, size, MADV_NOHUGEPAGE);
		}
		page_map_start = reinterpret_cast<uintptr_t>(start);
		page_map_end = page_map_start + size;
		/* With few bits, the map's end would lie among the blocks. No block is above twice the stack's address, and each
		 * 16 KiB have 16 bytes of map. */
		uintptr_t used = reinterpret_cast<uintptr_t>(&start) / 512 + PIECE;
		if (!at_once && used < size)
			page_map_end = page_map_start + used;
		return start;
	}

	static bool is_mapped(uint32_t piece)
	{
		for (size_t i = 0; i < mapped_piece_count; i++) {
			if (mapped_pieces[i] == piece)
				return true;
		}
		return false;
	}

	/* Called with upstream's lock on all address space, or before there are threads. */
	static bool map_pieces(uintptr_t from, uintptr_t to)
	{
		uintptr_t first = page_map_start & ~(PIECE - 1);
		for (uintptr_t at = from & ~(PIECE - 1); at < to; at += PIECE) {
			uint32_t piece = static_cast<uint32_t>((at - first) / PIECE);
			if (is_mapped(piece))
				continue;
			if (mapped_piece_count == PIECES)
				return false;
			void *place = reinterpret_cast<void *>(at);
			void *mapping = map(place, PIECE, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
			if (mapping && mapping != place) {
				/* A kernel before 4.17 treats the address as a hint. */
				KeptErrno kept;
				munmap(mapping, PIECE);
				mapping = nullptr;
			}
			if (!mapping)
				return false;
			mapped_pieces[mapped_piece_count++] = piece;
		}
		return true;
	}

	static bool is_page_map(const void *start)
	{
		uintptr_t at = reinterpret_cast<uintptr_t>(start);
		return at >= page_map_start && at < page_map_end;
	}

	/* What is mapped before so many bytes are mapped has no huge pages, whatever the system's setting. */
	static constexpr size_t WITHOUT_HUGE_PAGES = 32 << 20;
	static inline stl::Atomic<size_t> mapped_blocks{0};
	/* All of that lies in these two: the first mapping, and those at `next_place`. */
	struct Addresses {
		uintptr_t start, end;
	};
	static inline Addresses small_pages[2] = {{UINTPTR_MAX, 0}, {UINTPTR_MAX, 0}};

	static bool has_small_pages(uintptr_t at)
	{
		for (const Addresses &part : small_pages)
			if (at >= part.start && at < part.end)
				return true;
		return false;
	}

	/* Whether the kernel is asked to move pages. */
	static inline stl::Atomic<bool> can_move{true};

	/* Blocks are mapped without access if upstream requests that, or if the kernel refuses to promise more. */
	static inline bool guarded_blocks = mitigations(pal_enforce_access);

	/* Where the kernel is asked to map blocks next; it may choose another place. The first are where it likes, as in every
	 * small program. The others follow one another from far below, where nothing else comes between them: so large blocks
	 * find room in one piece. That place is as random as the first one. */
	static inline uintptr_t next_place = 0;

	static void *map_blocks_near(uintptr_t place, size_t size)
	{
		int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
		void *wanted = reinterpret_cast<void *>(place), *blocks = MAP_FAILED;
		if (!guarded_blocks)
			blocks = graft_apart_mmap(wanted, size, PROT_READ | PROT_WRITE, flags, -1, 0);
		if (blocks == MAP_FAILED) {
			blocks = graft_apart_mmap(wanted, size, PROT_NONE, flags, -1, 0);
			if (blocks == MAP_FAILED)
				return nullptr;
			guarded_blocks = true;
		}
		/* The page map has 16 bytes for each 16 KiB. An emulator may choose a place that no kernel would, beyond it. */
		if ((reinterpret_cast<uintptr_t>(blocks) + size) / 1024 > page_map_end - page_map_start) {
			graft_apart_munmap(blocks, size);
			return nullptr;
		}
		return blocks;
	}

	static void *map_blocks(size_t size)
	{
		void *blocks = map_blocks_near(next_place, size);
		if (!blocks && next_place)
			blocks = map_blocks_near(0, size);
		if (!blocks)
			return nullptr;
		uintptr_t start = reinterpret_cast<uintptr_t>(blocks);
		Addresses &part = small_pages[next_place != 0];
		if (!mitigations(metadata_protection))
			next_place = next_place == 0 ? bits::align_down(start - start / 32, HUGE_PAGE) : round_up(start + size);
		/* With huge pages, the first write makes 2 MiB resident: too much for a small program. */
		size_t before = mapped_blocks.load(stl::memory_order_relaxed);
		if (!donor_allow_thp() || before < WITHOUT_HUGE_PAGES) {
			size_t small = donor_allow_thp() ? bits::min(size, WITHOUT_HUGE_PAGES - before) : size;
			graft_apart_madvise(blocks, small, MADV_NOHUGEPAGE);
			part.start = bits::min(part.start, start);
			part.end = bits::max(part.end, start + small);
		}
		mapped_blocks.fetch_add(size, stl::memory_order_relaxed);
		return blocks;
	}

	/* For the huge pages that lie within the block. */
	static void advise_huge_pages(void *block, size_t size, int advice)
	{
		uintptr_t start = reinterpret_cast<uintptr_t>(block), from = bits::align_up(start, HUGE_PAGE);
		uintptr_t to = bits::align_down(start + size, HUGE_PAGE);
		graft_apart_madvise(reinterpret_cast<void *>(from), to - from, advice);
	}

	static uintptr_t round_down(uintptr_t at)
	{
		return at & ~(page_size - 1);
	}

	static uintptr_t round_up(uintptr_t at)
	{
		return round_down(at + page_size - 1);
	}

	/* Changes the whole pages around the range: access to a part of a page means access to all of it. */
	static bool give_access(void *start, size_t size, int protection)
	{
		uintptr_t from = round_down(reinterpret_cast<uintptr_t>(start));
		uintptr_t to = round_up(reinterpret_cast<uintptr_t>(start) + size);
		return graft_apart_mprotect(reinterpret_cast<void *>(from), to - from, protection) == 0;
	}

public:
	/* No clock: upstream needs it only for timers, which are not used. */
	static constexpr uint64_t pal_features = LazyCommit | Entropy | CoreDump | WaitOnAddress;
	/* The greatest page size of the kernels. If pages are smaller, this is a multiple. */
#ifdef __aarch64__
	static constexpr size_t page_size = 0x10000;
#else
	static constexpr size_t page_size = Aal::smallest_page_size;
#endif
	static constexpr size_t address_bits = Aal::address_bits;

	[[noreturn]] static void error(const char *const message) noexcept
	{
		platform_fail(message);
	}

	static void message(const char *const text) noexcept
	{
		graft_apart_write(text, strlen(text));
	}

	/* Whether there is room for a page map at a random place; upstream would end the program if not. */
	static bool has_room() noexcept
	{
		void *room = map(nullptr, 4 * PIECE, PROT_READ | PROT_WRITE, 0);
		if (!room)
			return false;
		KeptErrno kept;
		munmap(room, 4 * PIECE);
		return true;
	}

	/* Reserves the page map, of zeros: no block of the heap. Makes it readable as far as it is mapped, and its first entry,
	 * which stands for the null pointer. Returns null if there is no room. */
	static void *start_page_map(size_t size) noexcept
	{
		void *start = reserve_page_map(size);
		uintptr_t first = reinterpret_cast<uintptr_t>(start);
		notify_do_not_dump(start, size);
		if (page_map == PageMap::pieces ? map_pieces(first, first + 1) : notify_using_readonly(start, size))
			return start;
		if (page_map != PageMap::pieces) {
			KeptErrno kept;
			munmap(start, size);
		}
		page_map = PageMap::none;
		return nullptr;
	}

	/* Reserves address space. With a page map at a random place, upstream's first request is for that, and always gets a
	 * place. All later requests are made with upstream's lock held. */
	static void *reserve(size_t size) noexcept
	{
		if (page_map == PageMap::none)
			return reserve_page_map(size);
		if (size > static_cast<size_t>(arena_end - arena)) {
			size_t wanted = static_cast<size_t>(donor_arena_reserve()) << 10;
			if (size >= wanted)
				return map_blocks(size);
			char *fresh = static_cast<char *>(map_blocks(wanted));
			if (!fresh)
				return map_blocks(size);
			arena = fresh;
			arena_end = fresh + wanted;
		}
		void *taken = arena;
		arena += size;
		return taken;
	}

	template<ZeroMem zero_mem>
	static bool notify_using(void *start, size_t size) noexcept
	{
		if (is_page_map(start)) {
			uintptr_t from = reinterpret_cast<uintptr_t>(start);
			if (page_map == PageMap::pieces)
				return map_pieces(from, from + size);
			return page_map == PageMap::whole || give_access(start, size, PROT_READ | PROT_WRITE);
		}
		if (guarded_blocks && !give_access(start, size, PROT_READ | PROT_WRITE))
			return false;
		if constexpr (zero_mem == YesZero)
			zero<true>(start, size);
		return true;
	}

	/* Writes to a page and changes nothing, so that one page fault makes it resident: a page that is read first costs one
	 * for the page of zeros, and another when it is written. Other threads may write to it meanwhile. */
	static void make_resident(const void *place)
	{
#ifdef __x86_64__
		__asm__ volatile("lock orb $0, %0" : "+m"(*static_cast<char *>(const_cast<void *>(place))));
#else
		(void)place;
#endif
	}

	/* A block of that many bytes and more may lie on huge pages. */
	static constexpr size_t HUGE_BLOCK = 4 << 20;
	static constexpr size_t HUGE_PAGE = 2 << 20;

	/* Requests huge pages for the part of a large block that fills them: one page fault in place of 512, and the kernel
	 * clears the same memory. The rest of the block keeps its small pages, so that no more becomes resident than is
	 * written. Each such block may split a mapping twice, and a process may have 65,530 of them. */
	static void prefer_huge_pages(void *block, size_t size) noexcept
	{
		constexpr size_t most_ranges = 4096;
		if (donor_allow_thp() && huge_ranges.load(stl::memory_order_relaxed) <= most_ranges)
			advise_huge_pages(block, size, MADV_HUGEPAGE);
	}

	/* Ends the request for huge pages when the block is freed. What takes its place may be small: its first write would
	 * make 2 MiB resident, and later the kernel might make a huge page of the little that is there. */
	static void end_huge_pages(void *block, size_t size) noexcept
	{
		if (size >= HUGE_BLOCK && size >= least_apart() && donor_allow_thp() && donor_purge_delay() == 0)
			advise_huge_pages(block, size, MADV_NOHUGEPAGE);
	}

	/* The smallest block whose pages are moved; a multiple of a chunk. */
	static constexpr size_t MOVED_AT_LEAST = 1 << 20;

	/* The smallest block that may become a mapping of its own after its end, of which a process may have 65,530: this keeps
	 * their number to some thousands, however much is mapped. */
	static size_t least_apart() noexcept
	{
		return mapped_blocks.load(stl::memory_order_relaxed) / 1024;
	}

	/* The smallest block that is worth moving. Moved pages are a mapping of their own. */
	static size_t least_moved() noexcept
	{
		if (!can_move.load(stl::memory_order_relaxed) || guarded_blocks)
			return SIZE_MAX;
		return bits::max(MOVED_AT_LEAST, least_apart());
	}

	enum class Move {
		/* The pages are at the target, and the source is free memory without pages. */
		done,
		/* As above, but the source's addresses must not be used again. */
		source_lost,
		/* Nothing was moved. */
		refused,
		/* Nothing was moved, and the target's addresses must not be used again. */
		target_lost,
	};

	/* Moves pages in place of copying them: those of `size` bytes at `from`, on top of what is mapped at `to`. All three
	 * are multiples of MOVED_AT_LEAST.
	 *
	 * Kernels before 6.17 move from one mapping at a time. Later ones move from several, and may fail between two of them
	 * if the process has too many, which loses track of the pages. So no step has more than two: what was moved has its
	 * boundaries at multiples of MOVED_AT_LEAST, and what has its own setting for huge pages at multiples of 2 MiB. */
	static Move move_pages(void *to, void *from, size_t size) noexcept
	{
		KeptErrno kept;
		char *source = static_cast<char *>(from), *target = static_cast<char *>(to);
		size_t step = MOVED_AT_LEAST;
		for (size_t at = 0; at < size; at += step) {
			uintptr_t both = reinterpret_cast<uintptr_t>(source + at) | reinterpret_cast<uintptr_t>(target + at);
			step = both % HUGE_PAGE == 0 && size - at >= HUGE_PAGE ? HUGE_PAGE : MOVED_AT_LEAST;
			const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
			if (mremap(source + at, step, step, flags, target + at) != MAP_FAILED)
				continue;
			const int refusal = errno;
			/* A kernel before 5.7, an emulator or a filter does not know this at all. */
			if (at == 0 && (refusal == EINVAL || refusal == ENOSYS || refusal == EPERM || refusal == EACCES)) {
				can_move.store(false, stl::memory_order_relaxed);
				return Move::refused;
			}
			/* The kernel may have unmapped the target before it failed. If something is there now, that is the target, or
			 * what another thread has mapped meanwhile. */
			void *again = map(target + at, step, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
			if (again == target + at) {
				memcpy(target + at, source + at, step);
				continue;
			}
			if (again)
				munmap(again, step);
			memcpy(source, target, at);
			graft_apart_madvise(target, at, MADV_DONTNEED);
			can_move.store(false, stl::memory_order_relaxed);
			return Move::target_lost;
		}
		/* A new mapping in place of what is left can become one with its neighbours. */
		if (!map(from, size, PROT_READ | PROT_WRITE, MAP_FIXED))
			return Move::source_lost;
		uintptr_t start = reinterpret_cast<uintptr_t>(from);
		if (!donor_allow_thp() || has_small_pages(start))
			graft_apart_madvise(from, size, MADV_NOHUGEPAGE);
		return Move::done;
	}

	/* How many ranges of HUGE_BLOCK bytes and more are in use; not counted with checks. */
	static inline stl::Atomic<size_t> huge_ranges{0};

	/* Whether an entry of the page map can be read. */
	static bool is_readable(const void *place)
	{
		if (page_map != PageMap::pieces)
			return true;
		return is_mapped(static_cast<uint32_t>((reinterpret_cast<uintptr_t>(place) - (page_map_start & ~(PIECE - 1))) / PIECE));
	}

	/* Called for the page map only: a foreign block that is freed must find a readable entry, which says that it is
	 * foreign. */
	static bool notify_using_readonly(void *start, size_t size) noexcept
	{
		return page_map != PageMap::guarded || give_access(start, size, PROT_READ);
	}

	/* The size of this machine's pages, of which page_size is a multiple. */
	static size_t real_page_size()
	{
		static size_t known = 0;
		if (known == 0)
			known = getauxval(AT_PAGESZ);
		return known ? known : page_size;
	}

	/* Gives the whole pages of the range back to the kernel, unless all memory is to stay. */
	static void notify_not_using(void *start, size_t size) noexcept
	{
		uintptr_t page = real_page_size();
		uintptr_t from = (reinterpret_cast<uintptr_t>(start) + page - 1) & ~(page - 1);
		uintptr_t to = (reinterpret_cast<uintptr_t>(start) + size) & ~(page - 1);
		if (from >= to)
			return;
		void *pages = reinterpret_cast<void *>(from);
		if (donor_purge_delay() == 0) {
			/* Linux has MADV_FREE since 4.5. */
			if (donor_purge_decommits() || graft_apart_madvise(pages, to - from, MADV_FREE))
				graft_apart_madvise(pages, to - from, MADV_DONTNEED);
		}
		if (mitigations(pal_enforce_access))
			graft_apart_mprotect(pages, to - from, PROT_NONE);
	}

	/* The part of the page map that is in use goes into core dumps. In musl's loader it does not: every process would make
	 * this call, which divides the mapping into three. The blocks are in the dump all the same. */
	static void notify_do_dump(void *start, size_t size) noexcept
	{
#ifdef GRAFT_LOADER
		(void)start, (void)size;
#else
		graft_apart_madvise(start, size, MADV_DODUMP);
#endif
	}

	static void notify_do_not_dump(void *start, size_t size) noexcept
	{
		graft_apart_madvise(start, size, MADV_DONTDUMP);
	}

	/* Pages that the kernel takes away come back as zeros. It refuses pages that are locked in memory. */
	template<bool page_aligned = false>
	static void zero(void *block, size_t size) noexcept
	{
		constexpr size_t worth_a_call = 2 << 20;
		uintptr_t start = reinterpret_cast<uintptr_t>(block), from = round_up(start), to = round_down(start + size);
		if (size <= worth_a_call || graft_apart_madvise(reinterpret_cast<void *>(from), to - from, MADV_DONTNEED)) {
			memset(block, 0, size);
		} else {
			memset(block, 0, from - start);
			memset(reinterpret_cast<void *>(to), 0, start + size - to);
		}
	}

	/* Makes keys of free lists and places of guard pages. If the kernel has no randomness yet, or a filter forbids the
	 * call, uses the random bytes that the kernel gave the program at its start. */
	static uint64_t get_entropy64() noexcept
	{
		KeptErrno kept;
		uint64_t random = 0;
		const unsigned grnd_nonblock = 1;
		if (syscall(SYS_getrandom, &random, sizeof random, grnd_nonblock) == sizeof random)
			return random;
		static stl::Atomic<uint64_t> count{0};
		const void *given = reinterpret_cast<const void *>(getauxval(AT_RANDOM));
		if (given)
			memcpy(&random, given, sizeof random);
		/* The finisher of splitmix64, so that successive calls give unrelated numbers. */
		random += (count.fetch_add(1) + 1) * 0x9e3779b97f4a7c15u;
		random = (random ^ random >> 30) * 0xbf58476d1ce4e5b9u;
		random = (random ^ random >> 27) * 0x94d049bb133111ebu;
		return random ^ random >> 31;
	}

	using WaitingWord = int;

	template<class T>
	static void wait_on_address(stl::Atomic<T> &word, T expected)
	{
		KeptErrno kept;
		while (word.load(stl::memory_order_relaxed) == expected)
			syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
	}

	template<class T>
	static void notify_one_on_address(stl::Atomic<T> &word)
	{
		KeptErrno kept;
		syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
	}

	template<class T>
	static void notify_all_on_address(stl::Atomic<T> &word)
	{
		KeptErrno kept;
		syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
	}
};
}

#endif
