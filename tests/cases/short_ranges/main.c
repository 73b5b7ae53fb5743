#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../idle_memory/resident.h"
#include "../whole_ranges/filled.h"

// With what scudo puts before each block, two pages of 4 KiB.
enum { SIZE = 8192 - 16, COUNT = 4096 };
// Half of 32 MiB stays in use. A freed block whose neighbours are in use, as one in four is, is a range of two pages: 4 MiB
// in all.
static const size_t limit = 18 << 20;

int malloc_trim(size_t);

int main(void) {
	static char *blocks[COUNT];
	// A larger page covers more than one block.
	if (sysconf(_SC_PAGESIZE) != 4096) return puts("ok"), 0;
	size_t before = resident();
	for (int i = 0; i < COUNT; i++) blocks[i] = filled(SIZE);
	uint64_t state = 88172645463325252u;
	for (int i = 0; i < COUNT; i++) {
		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		if (state & 1 << 20) free(blocks[i]), blocks[i] = 0;
	}
	size_t waiting = resident() - before;
	if (waiting < limit) return printf("%zu bytes: short ranges went back\n", waiting), 1;
	malloc_trim(0);
	size_t trimmed = resident() - before;
	if (trimmed > limit) return printf("%zu bytes stay, %zu before malloc_trim\n", trimmed, waiting), 1;
	// When little is in use, they go back by themselves.
	for (int i = 0; i < COUNT; i++)
		if (i % 64) free(blocks[i]);
	size_t rest = resident() - before;
	if (rest > limit / 4) return printf("%zu bytes stay when little is in use\n", rest), 1;
	puts("ok");
	return 0;
}
