/* snmalloc's platform layer, made from the glue's functions: system calls that leave the program's errno alone and are
 * counted, messages by plain write, no clock, no stdio, none of libc's locks. Beyond upstream's, it works with a small
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

#include "early.h"
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

#include "huge_pages.h"

namespace snmalloc
{
class PALGraft : public HugePages
{
	/* The page map is an array with an entry for each 16 KiB of the address space: 256 GiB for 48 bits, of which little
	 * is ever used. Its place is chosen, but not mapped; pieces are mapped together with the memory that they describe.
	 * So a program has no more address space, locked memory, promised memory or core file than it uses: RLIMIT_AS and
	 * RLIMIT_DATA, mlockall, vm.overcommit_memory=2, machines with fewer bits.
	 *
	 * With checks, x86-64 has one mapping without access at a random place, as upstream does. Pieces get access when
	 * they are used. */
#if defined(__x86_64__) && defined(SNMALLOC_CHECK_CLIENT)
	static constexpr bool reserves_page_map = true;
#else
	static constexpr bool reserves_page_map = false;
#endif
	enum class PageMap {
		none,
		reserved,
		pieces,
	};
	GRAFT_EARLY static inline PageMap page_map = PageMap::none;
	GRAFT_EARLY static inline uintptr_t page_map_start, page_map_end;

	/* The bytes of an entry. A piece describes 256 MiB of address space. */
	static constexpr size_t ENTRY = 16, PIECE = 256 << 10;
	/* The pieces that are mapped, in ranges that only grow. Blocks are adjacent, so there are two or three ranges. */
	static constexpr size_t PIECE_RANGES = 128;
	struct PieceRange {
		stl::Atomic<uint32_t> first, end;
	};
	GRAFT_EARLY static inline PieceRange piece_ranges[PIECE_RANGES];
	GRAFT_EARLY static inline stl::Atomic<size_t> piece_range_count{0};

	/* Address space that is reserved at once and handed out in order. */
	GRAFT_EARLY static inline char *arena, *arena_end;

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
		void *start = nullptr;
		/* The kernel's random bytes are on the main thread's stack, whichever stack this runs on. */
		uintptr_t stack = getauxval(AT_RANDOM);
		if (!stack)
			stack = reinterpret_cast<uintptr_t>(&start);
		if (reserves_page_map)
			start = map(nullptr, size, PROT_NONE, 0);
		page_map = PageMap::reserved;
		if (!start) {
			/* A place far from all that the kernel or the program chooses: mappings grow down from the stack or up from a
			 * third of the way, programs are at the bottom or at two thirds, and virtual machines ask for places in the
			 * lower half. With few bits, half way is farther. */
			uintptr_t place = stack >> 46 ? stack / 4 * 3 : stack / 2;
			start = reinterpret_cast<void *>(place & ~((uintptr_t{1} << 30) - 1));
			page_map = PageMap::pieces;
		} else {
			KeptErrno kept;
			madvise(start, size, MADV_NOHUGEPAGE);
		}
		page_map_start = reinterpret_cast<uintptr_t>(start);
		page_map_end = page_map_start + size;
		/* With few bits, the map's end would lie among the blocks. No block is above twice the stack's address, and each
		 * 16 KiB have 16 bytes of map. */
		uintptr_t used = stack / 512 + PIECE;
		if (page_map == PageMap::pieces && !mitigations(random_pagemap) && used < size)
			page_map_end = page_map_start + used;
		return start;
	}

	/* Other threads may add pieces meanwhile. */
	static bool is_mapped(size_t piece)
	{
		for (size_t i = piece_range_count.load(stl::memory_order_acquire); i-- > 0;) {
			if (piece >= piece_ranges[i].first.load(stl::memory_order_relaxed) &&
			    piece < piece_ranges[i].end.load(stl::memory_order_relaxed))
				return true;
		}
		return false;
	}

	/* Returns false if there is no room for another range. */
	static bool note_mapped(uint32_t piece)
	{
		size_t count = piece_range_count.load(stl::memory_order_relaxed);
		for (size_t i = 0; i < count; i++) {
			if (piece == piece_ranges[i].end.load(stl::memory_order_relaxed)) {
				piece_ranges[i].end.store(piece + 1, stl::memory_order_release);
				return true;
			}
			if (piece + 1 == piece_ranges[i].first.load(stl::memory_order_relaxed)) {
				piece_ranges[i].first.store(piece, stl::memory_order_release);
				return true;
			}
		}
		if (count == PIECE_RANGES)
			return false;
		piece_ranges[count].first.store(piece, stl::memory_order_relaxed);
		piece_ranges[count].end.store(piece + 1, stl::memory_order_relaxed);
		piece_range_count.store(count + 1, stl::memory_order_release);
		return true;
	}

	/* Called with upstream's lock on all address space, or before there are threads. */
	static bool map_pieces(uintptr_t from, uintptr_t to)
	{
		uintptr_t first = page_map_start & ~(PIECE - 1);
		for (uintptr_t at = from & ~(PIECE - 1); at < to; at += PIECE) {
			size_t piece = (at - first) / PIECE;
			if (is_mapped(piece))
				continue;
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
			if (!note_mapped(static_cast<uint32_t>(piece))) {
				KeptErrno kept;
				munmap(mapping, PIECE);
				return false;
			}
		}
		return true;
	}

	static bool is_page_map(const void *start)
	{
		uintptr_t at = reinterpret_cast<uintptr_t>(start);
		return at >= page_map_start && at < page_map_end;
	}

	/* Whether the kernel is asked to move pages. */
	static inline stl::Atomic<bool> can_move{true};

	/* Blocks are mapped without access if upstream requests that, or if the kernel refuses to promise more. */
	GRAFT_EARLY static inline bool kernel_refused_access{false};
	static bool guards_blocks()
	{
		return mitigations(pal_enforce_access) || kernel_refused_access;
	}

	/* Where the kernel is asked to map blocks next; it may choose another place. The first are where it likes, as in every
	 * small program. The others follow one another from far below, where nothing else comes between them: so large blocks
	 * find room in one piece. That place is as random as the first one. */
	GRAFT_EARLY static inline stl::Atomic<uintptr_t> next_place{0};
	/* The end of all that was mapped where it was asked for, and whether the kernel's last choice was beyond the page map.
	 * Both are used with upstream's lock held. */
	GRAFT_EARLY static inline uintptr_t places_end;
	GRAFT_EARLY static inline bool was_beyond;

	/* Maps the pieces of the page map that describe blocks. A map at a random place has its pieces when upstream
	 * asks. */
	static bool cover(const void *blocks, size_t size)
	{
		if (page_map != PageMap::pieces || mitigations(random_pagemap))
			return true;
		uintptr_t first = reinterpret_cast<uintptr_t>(blocks) >> MIN_CHUNK_BITS;
		uintptr_t end = (reinterpret_cast<uintptr_t>(blocks) + size + MIN_CHUNK_SIZE - 1) >> MIN_CHUNK_BITS;
		return map_pieces(page_map_start + first * ENTRY, page_map_start + end * ENTRY);
	}

	/* Returns null if there is no room for them, there or in the page map. */
	static void *map_blocks_near(uintptr_t place, size_t size)
	{
		int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
		void *wanted = reinterpret_cast<void *>(place), *blocks = MAP_FAILED;
		if (!guards_blocks())
			blocks = graft_apart_mmap(wanted, size, PROT_READ | PROT_WRITE, flags, -1, 0);
		if (blocks == MAP_FAILED) {
			blocks = graft_apart_mmap(wanted, size, PROT_NONE, flags, -1, 0);
			if (blocks == MAP_FAILED)
				return nullptr;
			kernel_refused_access = true;
		}
		uintptr_t end = reinterpret_cast<uintptr_t>(blocks) + size;
		was_beyond = end / MIN_CHUNK_SIZE * ENTRY > page_map_end - page_map_start;
		if (was_beyond || !cover(blocks, size)) {
			graft_apart_munmap(blocks, size);
			return nullptr;
		}
		return blocks;
	}

	static void *map_blocks(size_t size)
	{
		uintptr_t place = next_place.load(stl::memory_order_relaxed);
		was_beyond = false;
		void *blocks = map_blocks_near(place, size);
		if (!blocks && place)
			blocks = map_blocks_near(0, size);
		/* Where the place is taken, an emulator (QEMU 7.2) may choose one that no kernel would, far above the
		 * program's stack. Behind all blocks is room for more. */
		if (!blocks && was_beyond) {
			place = round_up(places_end ? places_end : page_map_end);
			blocks = map_blocks_near(place, size);
		}
		if (!blocks)
			return nullptr;
		uintptr_t start = reinterpret_cast<uintptr_t>(blocks);
		if (start == place)
			places_end = bits::max(places_end, start + size);
		if (!mitigations(metadata_protection))
			next_place.store(place ? round_up(start + size) : bits::align_down(start - start / 32, HUGE_PAGE),
			                 stl::memory_order_relaxed);
		begin_mapping(blocks, size, place != 0);
		return blocks;
	}

public:
	/* Unmaps blocks. The next ones may take their place. Returns false if the kernel refuses: a mapping that is divided
	 * counts twice, and a process may have only so many. */
	static bool unmap_blocks(void *blocks, size_t size) noexcept
	{
		if (graft_apart_munmap(blocks, size))
			return false;
		mapped_blocks.fetch_sub(size, stl::memory_order_relaxed);
		next_place.store(reinterpret_cast<uintptr_t>(blocks), stl::memory_order_relaxed);
		return true;
	}

private:
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

	/* Reserves the page map, which is zero: no block is in the heap yet. Makes its mapped part readable, and its first
	 * entry, which describes the null pointer. Returns null if there is no room. */
	static void *start_page_map(size_t size) noexcept
	{
		void *start = reserve_page_map(size);
		uintptr_t first = reinterpret_cast<uintptr_t>(start);
		if (map_pieces(first, first + 1))
			return start;
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
			return give_access(start, size, PROT_READ | PROT_WRITE);
		}
		if (guards_blocks() && !give_access(start, size, PROT_READ | PROT_WRITE))
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

	/* The smallest block whose pages are moved; a multiple of a chunk. */
	static constexpr size_t MOVED_AT_LEAST = 1 << 20;

	/* The smallest block that is worth moving. Moved pages are a mapping of their own. */
	static size_t least_moved() noexcept
	{
		if (!can_move.load(stl::memory_order_relaxed) || guards_blocks())
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
		begin_again(from, size);
		return Move::done;
	}

	/* Whether an entry of the page map can be read. */
	static bool is_readable(const void *place)
	{
		if (page_map != PageMap::pieces)
			return true;
		return is_mapped((reinterpret_cast<uintptr_t>(place) - (page_map_start & ~(PIECE - 1))) / PIECE);
	}

	/* Called for the page map only: a foreign block that is freed must find a readable entry, which says that it is
	 * foreign. */
	static bool notify_using_readonly(void *start, size_t size) noexcept
	{
		return page_map == PageMap::pieces || give_access(start, size, PROT_READ);
	}

	/* The size of this machine's pages, of which page_size is a multiple. */
	static size_t real_page_size()
	{
		GRAFT_EARLY static stl::Atomic<size_t> known{0};
		size_t size = known.load(stl::memory_order_relaxed);
		if (size == 0) {
			size = getauxval(AT_PAGESZ);
			known.store(size, stl::memory_order_relaxed);
		}
		return size ? size : page_size;
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
			leave_huge_pages(from, to);
			/* Linux has MADV_FREE since 4.5. */
			if (donor_purge_decommits() || graft_apart_madvise(pages, to - from, MADV_FREE))
				graft_apart_madvise(pages, to - from, MADV_DONTNEED);
		}
		if (mitigations(pal_enforce_access))
			graft_apart_mprotect(pages, to - from, PROT_NONE);
	}

	/* The part of a reserved page map that is in use goes into core dumps. */
	static void notify_do_dump(void *start, size_t size) noexcept
	{
		if (page_map == PageMap::reserved)
			graft_apart_madvise(start, size, MADV_DODUMP);
	}

	static void notify_do_not_dump(void *start, size_t size) noexcept
	{
		if (page_map == PageMap::reserved)
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

	/* Makes keys of free lists and places of guard pages. Without checks these protect nothing, and need no system call.
	 * With checks, the kernel may have no randomness yet, or a filter may forbid the call. */
	static uint64_t get_entropy64() noexcept
	{
		if constexpr (mitigations(metadata_protection)) {
			KeptErrno kept;
			uint64_t random = 0;
			const unsigned grnd_nonblock = 1;
			if (syscall(SYS_getrandom, &random, sizeof random, grnd_nonblock) == sizeof random)
				return random;
		}
		return graft_apart_random();
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
