/* Calculates. */
#include "task.h"

static volatile unsigned long results[64];

static void work(unsigned thread, unsigned long round)
{
	unsigned long number = round;
	for (unsigned i = 0; i < 10000; i++) {
		number = number * 6364136223846793005u + 1442695040888963407u;
		number ^= number >> 29;
	}
	results[thread] = number;
}
