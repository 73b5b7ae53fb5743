/* The first thread ends, and the others go on: small blocks come and go. */
#include "task.h"

static void work(unsigned thread, unsigned long round)
{
	static _Thread_local char *blocks[64];
	if (!thread)
		pthread_exit(0);
	for (unsigned i = 0; i < 64; i++) {
		unsigned at = (round * 7 + i * 13) & 63;
		free(blocks[at]);
		blocks[at] = malloc(16 + (i * 37 & 511));
		if (!blocks[at])
			abort();
		blocks[at][0] = 1;
	}
}
