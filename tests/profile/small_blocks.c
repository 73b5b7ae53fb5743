/* Small blocks come and go: in musl's allocator, and with several threads on its lock. */
#include "task.h"

static void work(unsigned thread, unsigned long round)
{
	static _Thread_local char *blocks[64];
	for (unsigned i = 0; i < 64; i++) {
		unsigned at = (round * 7 + i * 13 + thread) & 63;
		free(blocks[at]);
		blocks[at] = malloc(16 + (i * 37 & 511));
		if (!blocks[at])
			abort();
		blocks[at][0] = 1;
	}
}
