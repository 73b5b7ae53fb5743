/* The libc whose malloc the donor replaces. It is musl for static programs and for loaders. A shared object serves
 * programs of musl and of glibc, and behaves like the program's own malloc where the two differ. */
#ifndef GRAFT_HOST_H
#define GRAFT_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef GRAFT_SHARED
extern const char *gnu_get_libc_version(void) __attribute__((weak));

static inline bool graft_host_is_glibc(void)
{
	return gnu_get_libc_version != 0;
}

/* glibc's aligned_alloc was its memalign until 2.37; since 2.38 it takes powers of two only (malloc/malloc.c). Versions are
 * "2.36" and the like. */
static bool graft_aligned_alloc_is_memalign(void)
{
	if (!graft_host_is_glibc())
		return false;
	const char *version = gnu_get_libc_version();
	int minor = 0;
	if (version[0] != '2' || version[1] != '.')
		return false;
	for (version += 2; *version >= '0' && *version <= '9'; version++)
		minor = minor * 10 + *version - '0';
	return minor < 38;
}
#else
static inline bool graft_host_is_glibc(void)
{
	return false;
}

static inline bool graft_aligned_alloc_is_memalign(void)
{
	return false;
}
#endif

/* glibc's memalign makes the next power of two of an alignment, up to half of the address space (malloc/malloc.c).
 * Returns the alignment unchanged if it is greater, or if memalign is musl's. */
static inline size_t graft_memalign_alignment(size_t alignment)
{
	if (!graft_host_is_glibc() || alignment > SIZE_MAX / 2 + 1)
		return alignment;
	size_t power = 1;
	while (power < alignment)
		power *= 2;
	return power;
}

#endif
