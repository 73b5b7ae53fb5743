/* Large blocks come and go, hardly touched: musl maps each of them, and gives it back. */
#include "task.h"

static void work(unsigned thread, unsigned long round)
{
	(void)thread;
	for (unsigned i = 0; i < 8; i++) {
		volatile char *block = malloc((256 << 10) + (round & 15) * 4096);
		if (!block)
			abort();
		block[0] = 1;
		free((void *)block);
	}
}
