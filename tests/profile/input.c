/* A device is read, which takes the kernel's time. */
#include <fcntl.h>
#include <unistd.h>

#include "task.h"

static void work(unsigned thread, unsigned long round)
{
	static _Thread_local char block[16 << 10];
	static _Thread_local int file = -1;
	(void)thread;
	(void)round;
	if (file < 0)
		file = open("/dev/urandom", O_RDONLY);
	/* A thread that is stopped in a read gets less than it asked for. */
	if (read(file, block, sizeof block) <= 0)
		abort();
}
