/* All work is done while one spin lock is held. */
#include "task.h"

static pthread_spinlock_t lock;
static volatile unsigned long state;

static void work(unsigned thread, unsigned long round)
{
	pthread_spin_lock(&lock);
	for (unsigned i = 0; i < 20000; i++)
		state = state * 6364136223846793005u + thread + round;
	pthread_spin_unlock(&lock);
}
