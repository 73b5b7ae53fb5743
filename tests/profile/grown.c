/* Large blocks grow by steps, and are hardly touched: musl moves them by the kernel. */
#include "task.h"

static void work(unsigned thread, unsigned long round)
{
	char *block = 0;
	(void)thread;
	(void)round;
	for (size_t size = 256 << 10; size < 2 << 20; size += 128 << 10) {
		char *more = realloc(block, size);
		if (!more)
			abort();
		block = more;
		*(volatile char *)block = 1;
	}
	free(block);
}
