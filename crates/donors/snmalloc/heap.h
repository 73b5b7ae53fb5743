/* The interface between donor.c and heap.cc. */
#ifndef SNMALLOC_HEAP_H
#define SNMALLOC_HEAP_H

#include <stdint.h>

#include "apart.h"

/* The heap's functions for the glue, as glue/family.h needs them. */
GRAFT_APART void *heap_malloc(size_t n);
GRAFT_APART void *heap_zalloc(size_t n);
GRAFT_APART void *heap_realloc(void *block, size_t n);
GRAFT_APART void *heap_aligned(size_t alignment, size_t n);
GRAFT_APART void heap_free(void *block);
GRAFT_APART size_t heap_usable(const void *block);
/* Gives up this thread's allocator; the last action of a thread. */
GRAFT_APART void heap_end_thread(void);
/* Gives free memory back to the kernel, as far as this thread can reach it. */
GRAFT_APART void heap_trim(void);

/* The glue's functions for the heap. */
GRAFT_APART void donor_begin_thread(void);
GRAFT_APART int64_t donor_purge_delay(void);
GRAFT_APART int64_t donor_purge_decommits(void);
GRAFT_APART int64_t donor_purge_debt(void);
GRAFT_APART int64_t donor_purge_credit(void);
GRAFT_APART int64_t donor_arena_reserve(void);
GRAFT_APART int64_t donor_allow_thp(void);
GRAFT_APART int64_t donor_thread_cache(void);

#endif
