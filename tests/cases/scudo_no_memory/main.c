#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* 400,000 free blocks need 3.7 MB of lists; until they are free, they need next to none. */
enum { COUNT = 400000, ROOM = 64 << 20, MOST = 200000 };

static size_t *blocks[COUNT];

static int take(void) {
	for (size_t i = 0; i < COUNT; i++) {
		if (!(blocks[i] = malloc(16))) return 0;
		*blocks[i] = i;
	}
	return 1;
}

static int give(void) {
	int whole = 1;
	for (size_t i = 0; i < COUNT; i++) {
		whole &= *blocks[i] == i;
		free(blocks[i]);
	}
	return whole;
}

int main(void) {
	static const size_t sizes[] = {100000, 30000, 5000, 1000, 100};
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%lu", &pages) != 1) return 1;
	fclose(file);
	struct rlimit limit = {pages * sysconf(_SC_PAGESIZE) + ROOM, RLIM_INFINITY};
	if (setrlimit(RLIMIT_AS, &limit)) return 2;
	if (!take()) return 3;
	void **last = 0;
	for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
		for (int i = 0; i < MOST / (int)(k + 1); i++) {
			if (i * sizes[k] > 2 * ROOM) break;
			void **block = malloc(sizes[k]);
			if (!block && errno != ENOMEM) return 4;
			if (!block) break;
			*block = last;
			last = block;
		}
	for (int round = 0; round < 3; round++) {
		if (!give()) return 5;
		if (!take()) return 6;
	}
	while (last) {
		void **block = last;
		last = *block;
		free(block);
	}
	if (!give()) return 7;
	puts("ok");
	return 0;
}
