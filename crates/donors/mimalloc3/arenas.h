/* Upstream's arenas, but for the first one, which has less mapped than its bitmaps count.
 *
 * An arena is a multiple of a chunk, 32 MiB, which a limit on the address space, locked memory and a core file would count.
 * Smaller chunks would divide more huge pages, and what is free in a divided one stays: with 8 MiB, 39 MB stayed in place of
 * 14 in tests/cases/purge_races. So slices beyond what is mapped are never free. */
#ifndef DONOR_ARENAS_H
#define DONOR_ARENAS_H

#ifdef DONOR_FIRST_ARENA
/* The number of slices that are mapped while the first arena is set up. */
static size_t donor_mapped_slices;
#define mi_bbitmap_unsafe_setN(bitmap, start, count)                                                                   \
	mi_bbitmap_unsafe_setN(bitmap, start, donor_mapped_slices ? donor_mapped_slices - (start) : (count))
#endif

#include "arena/arena.h"
bool upstream_arena_reserve(mi_subproc_t *, size_t, bool, mi_arena_id_t *);
#define _mi_arena_reserve upstream_arena_reserve
#include "arena/arena.c"
#undef _mi_arena_reserve

#ifdef DONOR_FIRST_ARENA
#undef mi_bbitmap_unsafe_setN

static bool donor_map_first(mi_subproc_t *subproc, mi_arena_id_t *id)
{
	mi_memid_t memid;
	bool commit = _mi_os_has_overcommit();
	void *start = _mi_os_alloc_aligned(subproc, DONOR_FIRST_ARENA, MI_ARENA_ALIGNMENT, commit, false, &memid);
	if (!start)
		return false;
	donor_mapped_slices = DONOR_FIRST_ARENA / MI_ARENA_SLICE_SIZE;
	bool added = mi_manage_os_memory_ex2(subproc, start, MI_ARENA_MIN_SIZE, -1, false, memid, NULL, NULL, id);
	donor_mapped_slices = 0;
	if (!added)
		_mi_os_free(subproc, start, DONOR_FIRST_ARENA, memid);
	return added;
}

/* Programs may allocate before the donor's constructor: then the first arena is there already. */
static void donor_reserve_first(void)
{
	mi_subproc_t *subproc = _mi_subproc_main();
	if (mi_arenas_get_count(subproc) == 0)
		donor_map_first(subproc, NULL);
}
#endif

/* Maps an arena as upstream does where nothing is special, by fewer calls within each other: a thread that needs a new arena
 * may have a stack of 2 KiB. */
static __attribute__((noinline)) bool donor_reserve(mi_subproc_t *subproc, size_t needed, bool huge, mi_arena_id_t *id)
{
	size_t count = mi_arenas_get_count(subproc);
	size_t size = mi_option_get_size(mi_option_arena_reserve);
	if (size == 0 || count > 128 || mi_option_get(mi_option_arena_eager_commit) != 2 ||
	    _mi_os_large_page_size() > MI_UNIX_MAX_THP_PAGE_SIZE)
		return false;
	size <<= count / 8;
#ifdef DONOR_FIRST_ARENA
	/* A program's first thread may take the second arena, all of which a kernel that promises memory strictly counts. So
	 * it is one chunk, of which the arena's description takes less than a MiB. */
	bool fits = count == 1 && needed <= MI_ARENA_MIN_SIZE / 2;
#else
	bool fits = false;
#endif
	if (!fits)
		needed = mi_align_up(needed + MI_ARENA_MAX_CHUNK_OBJ_SIZE, MI_ARENA_MAX_CHUNK_OBJ_SIZE);
	size = mi_align_up(size < needed ? needed : size, MI_ARENA_MIN_SIZE);
	void *hint = _mi_os_get_aligned_hint(MI_ARENA_ALIGNMENT, size);
	if (!hint || size > MI_ARENA_MAX_SIZE)
		return false;
	/* Where the kernel promises memory strictly, only memory without access is free. */
	bool open = _mi_os_has_overcommit();
	int access = open ? PROT_READ | PROT_WRITE : PROT_NONE, flags = open ? MAP_NORESERVE : 0;
	void *start = mmap(hint, size, access, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	if (start == MAP_FAILED)
		return false;
	if (huge && mi_option_is_enabled(mi_option_allow_thp) && _mi_os_has_thp())
		madvise(start, size, MADV_HUGEPAGE);
	mi_memid_t memid = _mi_memid_create_os(start, size, open, true, false);
	if (mi_is_aligned(start, MI_ARENA_ALIGNMENT) &&
	    mi_manage_os_memory_ex2(subproc, start, size, -1, false, memid, NULL, NULL, id))
		return true;
	munmap(start, size);
	return false;
}

bool _mi_arena_reserve(mi_subproc_t *subproc, size_t needed, bool allow_large, mi_arena_id_t *id)
{
	bool plain = !(allow_large && mi_option_is_enabled(mi_option_allow_large_os_pages));
#ifdef DONOR_FIRST_ARENA
	if (plain && mi_arenas_get_count(subproc) == 0 && needed <= DONOR_FIRST_ARENA / 2 && donor_map_first(subproc, id))
		return true;
#endif
	if (plain && donor_reserve(subproc, needed, allow_large, id))
		return true;
	return upstream_arena_reserve(subproc, needed, allow_large, id);
}

#endif
