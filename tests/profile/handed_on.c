/* One thread calculates at a time and hands the work on: the others wait on a condition, which is not a wait for a
 * lock. */
#include "task.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static unsigned turn;
static volatile unsigned long state;

static void work(unsigned thread, unsigned long round)
{
	struct timespec until;
	pthread_mutex_lock(&lock);
	while (turn != thread && now() < end) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 1;
		pthread_cond_timedwait(&turned, &lock, &until);
	}
	pthread_mutex_unlock(&lock);
	for (unsigned i = 0; i < 2000000; i++)
		state = state * 6364136223846793005u + round;
	pthread_mutex_lock(&lock);
	/* The other of two threads, if there are two. */
	turn = thread == 0 && rounds[1] ? 1 : 0;
	pthread_cond_broadcast(&turned);
	pthread_mutex_unlock(&lock);
}
