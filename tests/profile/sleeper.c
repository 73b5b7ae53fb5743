/* Sleeps nearly all of the time. */
#include "task.h"

static void work(unsigned thread, unsigned long round)
{
	(void)thread;
	(void)round;
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, 0);
}
