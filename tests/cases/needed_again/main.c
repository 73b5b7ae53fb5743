#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../idle_memory/resident.h"
#include "../whole_ranges/faults.h"

// Blocks of a few pages: more than a thread keeps for itself, and less than purge_debt.
enum { SIZE = 16000, COUNT = 160 };
static const size_t large = 24 << 20;
// The thread's own, a quarter of purge_debt, and slabs.
static const size_t most_left = 2 << 20;
enum { WARM = 10, ROUNDS = 100, MOST_FAULTS = 2000 };

static char **fill(size_t count) {
	char **blocks = malloc(count * sizeof *blocks);
	for (size_t i = 0; blocks && i < count; i++) {
		if (!(blocks[i] = malloc(SIZE))) exit(2);
		memset(blocks[i], 1, SIZE);
	}
	return blocks ? blocks : (exit(2), blocks);
}

static void empty(char **blocks, size_t count) {
	for (size_t i = 0; i < count; i++) free(blocks[i]);
	free(blocks);
}

int main(void) {
	free(malloc(1));
	size_t before = resident();
	empty(fill(large / SIZE), large / SIZE);
	size_t left = resident() - before;
	if (left > most_left) return printf("%zu bytes stay\n", left), 1;
	for (int i = 0; i < WARM; i++) empty(fill(COUNT), COUNT);
	long start = faults();
	for (int i = 0; i < ROUNDS; i++) empty(fill(COUNT), COUNT);
	long more = faults() - start;
	if (more > MOST_FAULTS) return printf("%ld page faults\n", more), 1;
	puts("ok");
	return 0;
}
