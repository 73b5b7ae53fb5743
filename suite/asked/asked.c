/*
 * Counts what a program asks for: the most bytes that it has at once, by the sizes that it names. A program's calls are
 * renamed when it is compiled (-Dmalloc=asked_malloc and so on), so that libc's own blocks do not count. A program that
 * writes to all of its blocks needs as much memory, whatever the allocator.
 *
 * stderr, at exit: `asked BYTES`.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before each block: its size, and how far it is from what libc gave. */
struct header {
    size_t size, offset;
};

enum { LEAST = 2 * sizeof(struct header) };

static size_t live, most;

static void count(size_t more) {
    size_t now = __atomic_add_fetch(&live, more, __ATOMIC_RELAXED), seen = __atomic_load_n(&most, __ATOMIC_RELAXED);
    if (more > SIZE_MAX / 2) return;
    while (now > seen && !__atomic_compare_exchange_n(&most, &seen, now, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

static void *begin(void *start, size_t offset, size_t size) {
    if (start == NULL) return NULL;
    struct header *header = (struct header *)((char *)start + offset) - 1;
    *header = (struct header){size, offset};
    count(size);
    return header + 1;
}

void *asked_malloc(size_t size) {
    return begin(size > SIZE_MAX - LEAST ? NULL : malloc(size + LEAST), LEAST, size);
}

void *asked_calloc(size_t count, size_t size) {
    size_t all;
    if (__builtin_mul_overflow(count, size, &all) || all > SIZE_MAX - LEAST) return NULL;
    return begin(calloc(1, all + LEAST), LEAST, all);
}

int asked_posix_memalign(void **block, size_t alignment, size_t size) {
    size_t offset = alignment < LEAST ? LEAST : alignment;
    void *start;
    int problem = size > SIZE_MAX - offset ? ENOMEM : posix_memalign(&start, alignment, size + offset);
    if (problem == 0) *block = begin(start, offset, size);
    return problem;
}

void asked_free(void *block) {
    if (block == NULL) return;
    struct header *header = (struct header *)block - 1;
    count(-header->size);
    free((char *)block - header->offset);
}

/* As an allocator that copies: both blocks are there at once only while it does, so they do not count together. */
void *asked_realloc(void *block, size_t size) {
    if (block == NULL) return asked_malloc(size);
    struct header *header = (struct header *)block - 1;
    if (size > SIZE_MAX - LEAST) return NULL;
    size_t before = header->size, offset = header->offset;
    void *start = malloc(size + LEAST);
    if (start == NULL) return NULL;
    memcpy((char *)start + LEAST, block, before < size ? before : size);
    count(-before);
    free((char *)block - offset);
    return begin(start, LEAST, size);
}

__attribute__((destructor)) static void report(void) {
    fprintf(stderr, "asked %zu\n", most);
}
