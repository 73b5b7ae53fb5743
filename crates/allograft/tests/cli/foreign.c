// An allocator in the place of musl's, as small as can be: blocks are never used again. Some names are mimalloc's.
#include <errno.h>
#include <stddef.h>
#include <string.h>

static _Alignas(16) unsigned char heap[1 << 22];
static size_t used;

int mi_version(void) { return 20204; }

void *mi_malloc(size_t size)
{
	size_t at = __atomic_fetch_add(&used, ((size + 15) & -16) + 16, __ATOMIC_RELAXED);
	if (size > sizeof heap || at + size + 16 > sizeof heap) {
		errno = ENOMEM;
		return NULL;
	}
	memcpy(heap + at, &size, sizeof size);
	return heap + at + 16;
}

static size_t size_of(void *block)
{
	size_t size;
	memcpy(&size, (char *)block - 16, sizeof size);
	return size;
}

void *malloc(size_t size) { return mi_malloc(size); }
void free(void *block) { (void)block; }
size_t malloc_usable_size(void *block) { return block ? size_of(block) : 0; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *block, size_t size)
{
	void *moved = malloc(size);
	if (moved && block) memcpy(moved, block, size_of(block) < size ? size_of(block) : size);
	return moved;
}

void *memalign(size_t align, size_t size)
{
	char *block = malloc(size + align);
	return block ? (void *)(((size_t)block + align - 1) & -align) : NULL;
}

void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **to, size_t align, size_t size) { return (*to = memalign(align, size)) ? 0 : ENOMEM; }
void *valloc(size_t size) { return memalign(4096, size); }
void *reallocarray(void *block, size_t count, size_t size) { return realloc(block, count * size); }
void *__libc_malloc(size_t size) { return malloc(size); }
void *__libc_calloc(size_t count, size_t size) { return calloc(count, size); }
void *__libc_realloc(void *block, size_t size) { return realloc(block, size); }
void __libc_free(void *block) { free(block); }
