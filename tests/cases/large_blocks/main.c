#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../idle_memory/resident.h"

enum { PAGE = 4096, CHUNK = 16384, MIB = 1 << 20 };

static void fail(const char *what) {
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static uint64_t draw(uint64_t *state) {
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

// The first word of each page, and the last byte, depend on the block and the place.
static unsigned char mark(size_t at, uint64_t seed) {
	return (unsigned char)(at / PAGE * 31 + seed * 7 + 1);
}

static void fill(unsigned char *block, size_t from, size_t size, uint64_t seed) {
	for (size_t at = (from + PAGE - 1) / PAGE * PAGE; at < size; at += PAGE) block[at] = mark(at, seed);
	block[size - 1] = mark(size - 1, seed);
}

static void check(const unsigned char *block, size_t size, uint64_t seed) {
	for (size_t at = 0; at + 1 < size; at += PAGE)
		if (block[at] != mark(at, seed)) fail("a block is not what it was");
}

// Blocks of all sizes come, go, grow and shrink.
static void *change(void *argument) {
	enum { COUNT = 24, ROUNDS = 4000 };
	uint64_t state = 88172645463325252u + (uintptr_t)argument;
	unsigned char *blocks[COUNT] = {0};
	size_t sizes[COUNT] = {0};
	for (int round = 0; round < ROUNDS; round++) {
		int i = (int)(draw(&state) % COUNT);
		size_t size = 2 + draw(&state) % ((size_t)1 << (12 + draw(&state) % 10));
		if (blocks[i] && draw(&state) % 2) {
			unsigned char *moved = realloc(blocks[i], size);
			if (!moved) fail("realloc");
			size_t common = size < sizes[i] ? size : sizes[i];
			check(moved, common, (uint64_t)i);
			if (size > sizes[i] && moved[sizes[i] - 1] != mark(sizes[i] - 1, (uint64_t)i)) fail("the end of a block is lost");
			blocks[i] = moved;
		} else {
			free(blocks[i]);
			size_t alignment = (size_t)16 << draw(&state) % 17;
			if (draw(&state) % 2) {
				blocks[i] = calloc(1, size);
				for (size_t at = 0; blocks[i] && at < size; at += 64)
					if (blocks[i][at]) fail("calloc gave a block that is not clear");
			} else if (posix_memalign((void **)&blocks[i], alignment, size) || (uintptr_t)blocks[i] % alignment) {
				fail("posix_memalign");
			}
			if (!blocks[i]) fail("calloc");
		}
		if (malloc_usable_size(blocks[i]) < size) fail("malloc_usable_size");
		sizes[i] = size;
		fill(blocks[i], 0, size, (uint64_t)i);
	}
	for (int i = 0; i < COUNT; i++) {
		if (blocks[i]) check(blocks[i], sizes[i], (uint64_t)i);
		free(blocks[i]);
	}
	return NULL;
}

// What a block gives up is free at once, and the block stays where it is. It grows there again.
static void resize(void) {
	size_t large = 40 * MIB, small = 200000;
	unsigned char *block = malloc(large);
	if (!block) fail("malloc");
	fill(block, 0, large, 1);
	size_t before = resident();
	uintptr_t place = (uintptr_t)block;
	block = realloc(block, small);
	if ((uintptr_t)block != place) fail("a block that shrank moved");
	size_t given = before - resident();
	if (given < large - 8 * MIB) fail("a block that shrank kept its memory");
	check(block, small, 1);
	block[small - 1] = mark(small - 1, 1);
	for (size_t size = small; size + size / 2 < large; size += size / 2) {
		block = realloc(block, size + size / 2);
		if ((uintptr_t)block != place) fail("a block with free memory behind it moved");
		fill(block, size, size + size / 2, 1);
	}
	free(block);
}

// A block of 1.1 MB takes that, and the next one is behind it, unless a part of the address space ends there.
static void lie_close(void) {
	enum { COUNT = 32, SIZE = 1100000, ROUNDED = (SIZE + CHUNK - 1) / CHUNK * CHUNK };
	char *blocks[COUNT];
	int neighbours = 0;
	for (int i = 0; i < COUNT; i++) {
		if (!(blocks[i] = malloc(SIZE))) fail("malloc");
		if (malloc_usable_size(blocks[i]) != ROUNDED) fail("a block has another size than requested");
		neighbours += i > 0 && blocks[i] == blocks[i - 1] + ROUNDED;
	}
	if (neighbours < COUNT - 4) fail("blocks lie apart");
	for (int i = 0; i < COUNT; i++) free(blocks[i]);
}

int main(void) {
	enum { THREADS = 3 };
	free(malloc(1));
	// First: nothing was given back yet and needed again. Of that, more would be kept.
	resize();
	lie_close();
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, change, (void *)i)) fail("pthread_create");
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
	puts("ok");
	return 0;
}
