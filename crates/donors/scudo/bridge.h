/* The interface between the two halves of the donor: the allocator in C++ (heap.cc, platform.cc) and the glue in C
 * (donor.c). All of it stays inside the donor's object. */
#ifndef GRAFT_SCUDO_BRIDGE_H
#define GRAFT_SCUDO_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>

#include "apart.h"

/* Defined in heap.cc. They return null if there is no memory; the glue sets errno. */
GRAFT_APART void *scudo_heap_allocate(size_t n);
GRAFT_APART void *scudo_heap_allocate_zeroed(size_t n);
GRAFT_APART void *scudo_heap_allocate_aligned(size_t alignment, size_t n);
GRAFT_APART void *scudo_heap_reallocate(void *block, size_t n);
GRAFT_APART void scudo_heap_free(void *block);
GRAFT_APART size_t scudo_heap_usable(const void *block);
GRAFT_APART void scudo_heap_start(void);
GRAFT_APART void scudo_heap_trim(void);
GRAFT_APART void scudo_heap_purge(void); /* what is due by purge_delay */
GRAFT_APART void scudo_heap_lock(void);
GRAFT_APART void scudo_heap_unlock(void);

/* Defined in donor.c: the options set at graft time. */
GRAFT_APART const char *scudo_chosen_flags(void);
GRAFT_APART bool scudo_huge_pages_allowed(void);
GRAFT_APART long scudo_large_cache_entries(void);
GRAFT_APART size_t scudo_large_cache_bytes(void);
/* The bounded debt of a size class (debt.h): whether so many waiting bytes go back, and that some were needed again. */
enum { SCUDO_MOST_CLASSES = 64 };
GRAFT_APART bool scudo_debt_goes_back(size_t size_class, size_t waiting, size_t in_use);
GRAFT_APART void scudo_debt_take(size_t size_class, size_t bytes);
/* Whether short ranges of unused pages may wait (ranges.h): with a bound, unless purge_delay is 0. */
GRAFT_APART bool scudo_short_ranges_wait(void);
/* Whether the program can start threads. */
GRAFT_APART bool scudo_threads_are_linked(void);

#endif
