/* mimalloc's functions, as the family for Windows wants them; for 2.x and 3.x. */
#ifndef GRAFT_WINDOWS_MIMALLOC_FUNCTIONS_H
#define GRAFT_WINDOWS_MIMALLOC_FUNCTIONS_H

#include "mimalloc.h"

static inline void *donor_malloc(size_t size)
{
	return mi_malloc(size);
}

static inline void *donor_calloc(size_t count, size_t size)
{
	return mi_calloc(count, size);
}

static inline void *donor_realloc(void *block, size_t size)
{
	return mi_realloc(block, size);
}

static inline void donor_free(void *block)
{
	mi_free(block);
}

static inline size_t donor_usable_size(const void *block)
{
	return mi_usable_size(block);
}

static inline void *donor_aligned(size_t size, size_t alignment, size_t offset)
{
	return mi_malloc_aligned_at(size, alignment, offset);
}

static inline void *donor_aligned_realloc(void *block, size_t size, size_t alignment, size_t offset)
{
	return mi_realloc_aligned_at(block, size, alignment, offset);
}

/* A variable of mimalloc's own that is set in the environment goes before. */
static inline void donor_set(mi_option_t option, int64_t value)
{
	mi_option_set_default(option, (long)value);
}

#endif
