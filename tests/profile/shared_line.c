/* Threads count in words of one cache line. */
#include "task.h"

static volatile unsigned long counts[8];

static void work(unsigned thread, unsigned long round)
{
	(void)round;
	for (unsigned i = 0; i < 10000; i++)
		counts[thread & 7]++;
}
