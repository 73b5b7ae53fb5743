/* All work is done while one lock is held: the threads wait for each other. */
#include "task.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long state;

static void work(unsigned thread, unsigned long round)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < 20000; i++)
		state = state * 6364136223846793005u + thread + round;
	pthread_mutex_unlock(&lock);
}
