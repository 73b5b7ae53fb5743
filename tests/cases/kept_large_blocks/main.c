#include <stdio.h>
#include <stdlib.h>

#include "../idle_memory/resident.h"
#include "../whole_ranges/faults.h"

enum { LARGE = 30 << 20, SMALL = 500 << 10, WARM = 20, ROUNDS = 200, PAGE = 4096 };
// In all, 1.5 million pages are filled. 2,600 faults are left; when a small block in between did not count, 1.4 million.
enum { MOST_FAULTS = 20000 };
static const size_t most_left = 4 << 20;

static void *filled(size_t size) {
	char *block = malloc(size);
	if (!block) exit(2);
	for (size_t at = 0; at < size; at += PAGE) ((volatile char *)block)[at] = 1;
	return block;
}

// Fills blocks of 1.5 MB, which have no huge pages, and frees them.
static void fill_and_empty(void) {
	enum { COUNT = 20 };
	void *blocks[COUNT];
	for (int i = 0; i < COUNT; i++) blocks[i] = filled(LARGE / COUNT);
	for (int i = 0; i < COUNT; i++) free(blocks[i]);
}

int main(void) {
	free(malloc(1));
	size_t before = resident();
	void *small = filled(SMALL);
	for (int i = 0; i < WARM; i++) fill_and_empty();
	long start = faults();
	for (int i = 0; i < ROUNDS; i++) fill_and_empty();
	long more = faults() - start;
	free(small);
	size_t left = resident() - before;
	if (more > MOST_FAULTS) return printf("%ld page faults\n", more), 1;
	if (left > most_left) return printf("%zu bytes stay\n", left), 1;
	puts("ok");
	return 0;
}
