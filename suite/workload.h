/*
 * Shared by the workloads: deterministic numbers, checked blocks, threads that start together.
 * Include it first: it chooses the feature level. Plain C11 and POSIX threads, so that one source serves every libc.
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 1024 };

static inline void fail(const char *what) {
    fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* SplitMix64's output function: bijective, and good enough to draw sizes and places from a counter. */
static inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

struct numbers {
    uint64_t state;
};

static inline uint64_t draw(struct numbers *numbers) {
    return mix(numbers->state += UINT64_C(0x9e3779b97f4a7c15));
}

/* Returns a number from `least` to `most`, both included. */
static inline size_t draw_between(struct numbers *numbers, size_t least, size_t most) {
    return least + (size_t)(draw(numbers) % (most - least + 1));
}

/* A block that contains its size and has a mark at its end. Both are checked when it is freed. */
struct block {
    uint32_t size, mark;
};

static inline struct block *make_block(size_t size, uint32_t mark) {
    struct block *block = malloc(size);
    if (block == NULL) fail("malloc");
    block->size = (uint32_t)size;
    block->mark = mark;
    if (size > sizeof *block) ((unsigned char *)block)[size - 1] = (unsigned char)mark;
    return block;
}

/* Frees the block. Returns a number that depends on its content. */
static inline uint64_t end_block(struct block *block) {
    size_t size = block->size;
    uint32_t mark = block->mark;
    if (size > sizeof *block && ((unsigned char *)block)[size - 1] != (unsigned char)mark) {
        errno = EIO;
        fail("a block lost its mark");
    }
    free(block);
    return mix((uint64_t)size << 32 | mark);
}

/* Returns the argument at `at`, or `otherwise` if it is missing. */
static inline uint64_t argument(int argc, char **argv, int at, uint64_t otherwise, uint64_t least, uint64_t most) {
    if (argc <= at) return otherwise;
    char *end;
    errno = 0;
    uint64_t value = strtoull(argv[at], &end, 10);
    if (errno != 0 || *end != '\0' || end == argv[at] || value < least || value > most) {
        fprintf(stderr, "error: argument %d is `%s`, expected a number from %" PRIu64 " to %" PRIu64 "\n", at, argv[at],
                least, most);
        exit(2);
    }
    return value;
}

/* Runs `work` in `threads` threads, the caller one of them, on elements of `items` that are `size` bytes apart. */
static inline void in_threads(size_t threads, void *(*work)(void *), void *items, size_t size) {
    pthread_t started[MAX_THREADS];
    for (size_t i = 1; i < threads; i++) {
        errno = pthread_create(&started[i], NULL, work, (char *)items + i * size);
        if (errno != 0) fail("pthread_create");
    }
    work(items);
    for (size_t i = 1; i < threads; i++) pthread_join(started[i], NULL);
}

#endif
