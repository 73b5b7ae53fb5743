#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 2000, SIZE = 48, APART = 64 };

static char *blocks[COUNT];

static int by_address(const void *a, const void *b) {
	uintptr_t left = (uintptr_t)*(char *const *)a, right = (uintptr_t)*(char *const *)b;
	return left < right ? -1 : left > right;
}

/* Blocks come in random order, so many are needed to find two neighbours. */
int main(void) {
	for (int i = 0; i < COUNT; i++) blocks[i] = malloc(SIZE);
	qsort(blocks, COUNT, sizeof *blocks, by_address);
	for (int i = 1; i < COUNT; i++)
		if (blocks[i] - blocks[i - 1] == APART) {
			if (write(1, "ok\n", 3) != 3) return 1;
			memset(blocks[i - 1], 'x', SIZE + 8);
			free(blocks[i]);
			return 2;
		}
	return 3;
}
