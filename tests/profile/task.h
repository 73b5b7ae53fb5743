/* A program of known nature: runs its task in as many threads as the first argument says, for as many seconds as the
 * second one says. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Does a piece of work that takes well below a millisecond. */
static void work(unsigned thread, unsigned long round);

static double end;
static unsigned long rounds[64];

static void *task(void *argument)
{
	unsigned thread = (unsigned)(size_t)argument;
	while (now() < end)
		for (int i = 0; i < 16; i++)
			work(thread, rounds[thread]++);
	return 0;
}

int main(int count, char **arguments)
{
	unsigned threads = count > 1 ? atoi(arguments[1]) : 1;
	double seconds = count > 2 ? atof(arguments[2]) : 1.5;
	if (threads < 1 || threads > 64)
		return 2;
	pthread_t *others = malloc(threads * sizeof *others);
	if (!others)
		return 4;
	end = now() + seconds;
	for (unsigned i = 1; i < threads; i++)
		if (pthread_create(&others[i], 0, task, (void *)(size_t)i))
			return 3;
	task(0);
	for (unsigned i = 1; i < threads; i++)
		pthread_join(others[i], 0);
	free(others);
	unsigned long all = 0;
	for (unsigned i = 0; i < threads; i++)
		all += rounds[i];
	fprintf(stderr, "rounds_per_second=%.0f\n", all / seconds);
	return 0;
}
