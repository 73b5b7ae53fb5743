/* The malloc family of Windows' C library, made of a donor's functions, which are `static`:
 *
 *   void *donor_malloc(size_t size)                    void donor_free(void *block)
 *   void *donor_calloc(size_t count, size_t size)      void *donor_realloc(void *block, size_t size)
 *   size_t donor_usable_size(const void *block)
 *   void *donor_aligned(size_t size, size_t alignment, size_t offset)
 *   void *donor_aligned_realloc(void *block, size_t size, size_t alignment, size_t offset)
 *
 * A program calls a function of a DLL by its name or through a pointer, `__imp_` and the name. Both are defined:
 * otherwise the import library would bring the C library's function back, or the linker would find two. Names in C
 * differ from those of the symbols, as headers declare some of these functions as imports. */
#ifndef GRAFT_WINDOWS_FAMILY_H
#define GRAFT_WINDOWS_FAMILY_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

/* Begins the definition of a function of the family. */
#define GRAFT_DEFINE(name, result, ...)                                                                                \
	result graft_##name(__VA_ARGS__) __asm__(#name);                                                                   \
	__attribute__((used)) void *const graft_import_##name __asm__("__imp_" #name) = (void *)graft_##name;              \
	result graft_##name(__VA_ARGS__)

static void *graft_or_no_memory(void *block)
{
	if (__builtin_expect(block == 0, 0))
		errno = ENOMEM;
	return block;
}

static int graft_is_power_of_two(size_t number)
{
	return number && !(number & (number - 1));
}

GRAFT_DEFINE(malloc, void *, size_t size)
{
	return graft_or_no_memory(donor_malloc(size));
}

GRAFT_DEFINE(calloc, void *, size_t count, size_t size)
{
	return graft_or_no_memory(donor_calloc(count, size));
}

GRAFT_DEFINE(free, void, void *block)
{
	donor_free(block);
}

/* With a size of 0 the block is freed (Microsoft's reference, `realloc`). */
GRAFT_DEFINE(realloc, void *, void *block, size_t size)
{
	if (block && !size) {
		donor_free(block);
		return 0;
	}
	return graft_or_no_memory(donor_realloc(block, size));
}

/* Returns the room in the block, which may be more than was asked for. */
GRAFT_DEFINE(_msize, size_t, void *block)
{
	if (!block) {
		errno = EINVAL;
		return (size_t)-1;
	}
	return donor_usable_size(block);
}

/* Resizes a block in place. Returns null if that is impossible; then the block is unchanged. */
GRAFT_DEFINE(_expand, void *, void *block, size_t size)
{
	if (!block) {
		errno = EINVAL;
		return 0;
	}
	return size <= donor_usable_size(block) ? block : graft_or_no_memory(0);
}

/* The bytes of a block behind its requested size are zero if it comes from calloc() or _recalloc(), so that a grown
 * block continues with zeros. */
static void *graft_recalloc(void *block, size_t count, size_t size, size_t alignment, size_t offset)
{
	size_t total, before = block ? donor_usable_size(block) : 0;
	if (__builtin_mul_overflow(count, size, &total))
		return graft_or_no_memory(0);
	if (block && !total) {
		donor_free(block);
		return 0;
	}
	char *grown = alignment ? donor_aligned_realloc(block, total, alignment, offset) : donor_realloc(block, total);
	if (!grown)
		return graft_or_no_memory(0);
	size_t from = total < before ? total : before, room = donor_usable_size(grown);
	if (room > from)
		memset(grown + from, 0, room - from);
	return grown;
}

GRAFT_DEFINE(_recalloc, void *, void *block, size_t count, size_t size)
{
	return graft_recalloc(block, count, size, 0, 0);
}

/* Whether the C library would take these; otherwise it sets EINVAL and gives no block. */
static int graft_fits(size_t size, size_t alignment, size_t offset)
{
	if (graft_is_power_of_two(alignment) && (!offset || offset < size))
		return 1;
	errno = EINVAL;
	return 0;
}

GRAFT_DEFINE(_aligned_offset_malloc, void *, size_t size, size_t alignment, size_t offset)
{
	return graft_fits(size, alignment, offset) ? graft_or_no_memory(donor_aligned(size, alignment, offset)) : 0;
}

GRAFT_DEFINE(_aligned_malloc, void *, size_t size, size_t alignment)
{
	return graft__aligned_offset_malloc(size, alignment, 0);
}

GRAFT_DEFINE(_aligned_offset_realloc, void *, void *block, size_t size, size_t alignment, size_t offset)
{
	if (block && !size) {
		donor_free(block);
		return 0;
	}
	if (!graft_fits(size, alignment, offset))
		return 0;
	return graft_or_no_memory(donor_aligned_realloc(block, size, alignment, offset));
}

GRAFT_DEFINE(_aligned_realloc, void *, void *block, size_t size, size_t alignment)
{
	return graft__aligned_offset_realloc(block, size, alignment, 0);
}

GRAFT_DEFINE(_aligned_offset_recalloc, void *, void *block, size_t count, size_t size, size_t alignment, size_t offset)
{
	size_t total;
	/* graft_recalloc() reports a product that overflows. */
	int fits = __builtin_mul_overflow(count, size, &total) || (block && !total) || graft_fits(total, alignment, offset);
	return fits ? graft_recalloc(block, count, size, alignment, offset) : 0;
}

GRAFT_DEFINE(_aligned_recalloc, void *, void *block, size_t count, size_t size, size_t alignment)
{
	return graft__aligned_offset_recalloc(block, count, size, alignment, 0);
}

GRAFT_DEFINE(_aligned_msize, size_t, void *block, size_t alignment, size_t offset)
{
	(void)alignment, (void)offset;
	return graft__msize(block);
}

GRAFT_DEFINE(_aligned_free, void, void *block)
{
	donor_free(block);
}

/* Copies of texts, which a program gives to free(). */

static void *graft_copy(const void *bytes, size_t size)
{
	void *copy = graft_malloc(size);
	return copy ? memcpy(copy, bytes, size) : 0;
}

GRAFT_DEFINE(_strdup, char *, const char *text)
{
	return text ? graft_copy(text, strlen(text) + 1) : 0;
}

GRAFT_DEFINE(strdup, char *, const char *text)
{
	return graft__strdup(text);
}

/* Bytes of several-byte characters hold no zero. */
GRAFT_DEFINE(_mbsdup, unsigned char *, const unsigned char *text)
{
	return (unsigned char *)graft__strdup((const char *)text);
}

GRAFT_DEFINE(_wcsdup, wchar_t *, const wchar_t *text)
{
	return text ? graft_copy(text, (wcslen(text) + 1) * sizeof *text) : 0;
}

GRAFT_DEFINE(wcsdup, wchar_t *, const wchar_t *text)
{
	return graft__wcsdup(text);
}

#endif
