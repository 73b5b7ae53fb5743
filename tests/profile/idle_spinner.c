/* The first thread allocates. The others have nothing to do, and ask again and again whether they have, as workers of a
 * pool do before they sleep. */
#include "task.h"

#include <sched.h>

static void work(unsigned thread, unsigned long round)
{
	static void *blocks[64];
	/* Many times, so that the look at the clock, which is work for both, is a small part. */
	for (unsigned long i = 0; i < 32; i++) {
		if (thread) {
			sched_yield();
			continue;
		}
		const unsigned long place = (round + i) & 63;
		free(blocks[place]);
		blocks[place] = malloc(16 + ((round + i) * 37 & 511));
		if (!blocks[place])
			abort();
	}
}
