/* Small blocks come and go, and about half of the time goes to calculating with them. */
#include "task.h"

static volatile unsigned long results[64];

static void work(unsigned thread, unsigned long round)
{
	static _Thread_local unsigned char *blocks[64];
	for (unsigned i = 0; i < 64; i++) {
		unsigned at = (round * 7 + i * 13) & 63, size = 16 + (i * 37 & 127);
		free(blocks[at]);
		blocks[at] = malloc(size);
		if (!blocks[at])
			abort();
		unsigned long number = round + i;
		for (unsigned k = 0; k < 50; k++)
			number = number * 6364136223846793005u + blocks[at][0];
		blocks[at][0] = (unsigned char)number;
		results[thread] += number;
	}
}
