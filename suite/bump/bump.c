/*
 * The lower limit: an allocator that hands out one piece of memory after another and never takes one back. Linked before
 * libc's.
 *
 * Each thread has a chunk of its own, so no thread waits. Sixteen bytes before a block hold its size, for realloc.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 16, HEADER = 16, CHUNK = 1 << 22 };

static _Thread_local unsigned char *next, *end;

static void *take(size_t alignment, size_t size) {
    if (size > PTRDIFF_MAX / 2 || alignment > PTRDIFF_MAX / 4) {
        errno = ENOMEM;
        return NULL;
    }
    size_t needed = size + HEADER + alignment;
    if (next == NULL || (size_t)(end - next) < needed) {
        size_t length = needed > CHUNK / 4 ? (needed + 4095) & ~(size_t)4095 : CHUNK;
        unsigned char *chunk = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED) {
            errno = ENOMEM;
            return NULL;
        }
        if (length != CHUNK) {
            /* A large block has a chunk to itself; the thread's chunk stays in use. */
            uintptr_t own = ((uintptr_t)chunk + HEADER + alignment - 1) & ~(uintptr_t)(alignment - 1);
            *(size_t *)(own - HEADER) = size;
            return (void *)own;
        }
        next = chunk;
        end = chunk + length;
    }
    uintptr_t block = ((uintptr_t)next + HEADER + alignment - 1) & ~(uintptr_t)(alignment - 1);
    *(size_t *)(block - HEADER) = size;
    next = (unsigned char *)(((block + size) + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1));
    if (next > end) next = end;
    return (void *)block;
}

void *malloc(size_t size) {
    return take(ALIGNMENT, size);
}

void free(void *block) {
    (void)block;
}

/* Memory that was never used before is zero. */
void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return take(ALIGNMENT, bytes);
}

size_t malloc_usable_size(void *block) {
    return block ? *(size_t *)((unsigned char *)block - HEADER) : 0;
}

void *realloc(void *block, size_t size) {
    size_t old = malloc_usable_size(block);
    if (block && size <= old) return block;
    void *grown = take(ALIGNMENT, size);
    if (grown && block) memcpy(grown, block, old);
    return grown;
}

void *aligned_alloc(size_t alignment, size_t size) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    return take(alignment < ALIGNMENT ? ALIGNMENT : alignment, size);
}

void *memalign(size_t alignment, size_t size) {
    return aligned_alloc(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0) return EINVAL;
    void *block = aligned_alloc(alignment, size);
    if (block == NULL) return ENOMEM;
    *result = block;
    return 0;
}
