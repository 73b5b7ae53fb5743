/* The options of mimalloc 3, with upstream's defaults but for arena_reserve. Huge pages of the kernel's own accord
 * (THP) are Linux's. */
#ifndef DONOR_TUNABLES_H
#define DONOR_TUNABLES_H

/* In KiB. Upstream reserves 1 GiB at once, which a limit on the address space counts, but not on Windows. Every eighth time,
 * it reserves twice as much, so that what is reserved grows with what is needed. On 32-bit upstream reserves 128 MiB, and that
 * stays: a block with an alignment above 32 KiB takes one of 128 places there, and no room is left for later arenas. */
#if defined(_WIN32)
#define DONOR_ARENA_RESERVE 1048576
#elif __SIZEOF_POINTER__ == 4
#define DONOR_ARENA_RESERVE 131072
#else
#define DONOR_ARENA_RESERVE 32768
/* In KiB. Larger blocks have mappings of their own, which end with them: an arena stays mapped. */
#define MI_DEFAULT_ARENA_MAX_OBJECT_SIZE 8192
#endif
#define MI_DEFAULT_ARENA_RESERVE DONOR_ARENA_RESERVE

#define GRAFT_OPTIONS(X)                                                                                               \
	X(purge_delay, 1000, -1, 3600000, mi_option_purge_delay)                                                           \
	X(purge_decommits, 1, 0, 1, mi_option_purge_decommits)                                                             \
	X(arena_reserve, DONOR_ARENA_RESERVE, 0, 1073741824, mi_option_arena_reserve)                                      \
	X(arena_eager_commit, 2, 0, 2, mi_option_arena_eager_commit)                                                       \
	X(arena_purge_mult, 4, 1, 1000, mi_option_arena_purge_mult)                                                        \
	X(allow_large_os_pages, 0, 0, 1, mi_option_allow_large_os_pages)                                                   \
	X(allow_thp, 2, 0, 2, mi_option_allow_thp)                                                                         \
	X(page_full_retain, 2, -1, 1000, mi_option_page_full_retain)                                                       \
	X(page_max_reclaim, -1, -1, 1000000, mi_option_page_max_reclaim)                                                   \
	/* These are not upstream's options. */                                                                            \
	GRAFT_PURGE_DEBT(X, 4096, 65536, _mi_option_last)                                                                  \
	GRAFT_PURGE_PERIOD(X, _mi_option_last)

#endif
