#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../idle_memory/resident.h"

enum { LARGE = 400000, LARGE_COUNT = 32, SMALL = 12000, SMALL_COUNT = 150, ROUNDS = 16 };
// All blocks together have 14.6 MB. If a thread keeps a part of each large range that is freed, and divides it, no large
// block has room there any more, and 15.2 MB are resident in the end; else 11.5 MB.
static const size_t most = 13500000;

static char *filled(size_t size) {
	char *block = malloc(size);
	if (!block) exit(2);
	return memset(block, 1, size);
}

int main(void) {
	static char *small[SMALL_COUNT], *large[LARGE_COUNT];
	free(malloc(1));
	size_t before = resident();
	for (int i = 0; i < SMALL_COUNT; i++) small[i] = filled(SMALL);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < LARGE_COUNT; i++) large[i] = filled(LARGE);
		for (int i = 0; i < LARGE_COUNT; i++) free(large[i]);
	}
	size_t left = resident() - before;
	if (left > most) return printf("%zu bytes are resident\n", left), 1;
	for (int i = 0; i < SMALL_COUNT; i++) free(small[i]);
	puts("ok");
	return 0;
}
