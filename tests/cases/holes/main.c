#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "resident.h"

#ifdef __riscv
// musl's own headers do not have it.
int malloc_trim(size_t);
#endif

enum { BYTES = 96 << 20, MOST = 400000, ROUNDS = 3, LEFT_IN = 100, MOST_PAUSES = 3000, MEGABYTE = 1 << 20 };

struct block {
	unsigned char *bytes;
	size_t size;
};
static struct block blocks[MOST];
static size_t count;
static uint64_t state = 1;

static uint32_t below(uint32_t bound) {
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(state >> 33) % bound;
}

// Most are small; some are larger than a page, and a few lie in slabs of a quarter of a megabyte.
static size_t some_size(void) {
	uint32_t kind = below(1000);
	return kind ? kind < 20 ? 1000 + below(9000) : 16 + below(520) : 30000 + below(30000);
}

static struct block filled(void) {
	struct block block = {0, some_size()};
	if (!(block.bytes = malloc(block.size))) abort();
	memset(block.bytes, (int)(block.size % 251), block.size);
	return block;
}

static void check(struct block block) {
	for (size_t i = 0; i < block.size; i++)
		if (block.bytes[i] != block.size % 251) {
			printf("a block of %zu bytes has lost byte %zu\n", block.size, i);
			exit(1);
		}
}

static void fill(void) {
	size_t bytes = 0;
	for (size_t i = 0; i < count; i++) bytes += blocks[i].size;
	while (bytes < BYTES && count < MOST) {
		blocks[count] = filled();
		bytes += blocks[count++].size;
	}
}

static void thin_out(void) {
	size_t left = 0;
	for (size_t i = 0; i < count; i++) {
		check(blocks[i]);
		if (below(LEFT_IN)) free(blocks[i].bytes);
		else blocks[left++] = blocks[i];
	}
	count = left;
}

static int by_number(const void *a, const void *b) {
	uintptr_t first = *(const uintptr_t *)a, second = *(const uintptr_t *)b;
	return (first > second) - (first < second);
}

// Bytes of the pages on which the blocks lie.
static size_t lain_on(void) {
	static uintptr_t pages[MOST];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), found = 0, different = 0;
	for (size_t i = 0; i < count; i++)
		for (uintptr_t at = (uintptr_t)blocks[i].bytes / page; at <= ((uintptr_t)blocks[i].bytes + blocks[i].size - 1) / page; at++)
			if (found < MOST) pages[found++] = at;
	qsort(pages, found, sizeof *pages, by_number);
	for (size_t i = 0; i < found; i++) different += i == 0 || pages[i] != pages[i - 1];
	return different * page;
}

// A few calls now and then, as of a process that has little to do.
static void pause_a_while(void) {
	struct block some[200];
	for (int i = 0; i < 200; i++) some[i] = filled();
	for (int i = 0; i < 200; i++) check(some[i]), free(some[i].bytes);
#ifdef __riscv
	// A program does not know how fast the processor's counter of time counts there.
	malloc_trim(0);
#endif
	nanosleep(&(struct timespec){0, 5000000}, 0);
}

static size_t before;

// Waits until no more is resident than what the blocks lie on, a third more, and what is kept in any case.
static void wait_for_pages(void) {
	size_t wanted = before + lain_on() / 3 * 4 + 8 * MEGABYTE, at_first = resident();
	for (int i = 0; i < MOST_PAUSES && resident() > wanted; i++) pause_a_while();
	if (resident() <= wanted) return;
	printf("%zu bytes were resident, %zu stay, and blocks lie on %zu\n", at_first, resident(), lain_on());
	exit(1);
}

static void *fill_and_thin_out(void *unused) {
	(void)unused;
	fill();
	thin_out();
	return 0;
}

int main(void) {
	memset(blocks, 0, sizeof blocks);
	before = resident();
	for (int round = 0; round < ROUNDS; round++) {
		fill();
		thin_out();
		wait_for_pages();
	}
	// A thread that ends leaves no such pages behind: nobody else could find them.
	pthread_t thread;
	for (size_t i = 0; i < count; i++) check(blocks[i]), free(blocks[i].bytes);
	count = 0;
	if (pthread_create(&thread, 0, fill_and_thin_out, 0) || pthread_join(thread, 0)) return 2;
	wait_for_pages();
	for (size_t i = 0; i < count; i++) check(blocks[i]);
	puts("ok");
	return 0;
}
