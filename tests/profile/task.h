/* A program of known nature: runs its task in as many threads as the first argument says, for as many seconds as the
 * second one says, or until its standard input is closed if that is `until-closed`. The third one, if given, is a file
 * to be made, where each thread's rounds are counted. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 64

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Does a piece of work that takes well below a millisecond. */
static void work(unsigned thread, unsigned long round);

static volatile double end;
static unsigned long counted[MOST_THREADS];
static unsigned long *rounds = counted;

/* Puts the counts into a file that others can read meanwhile. Returns 0 if that cannot be. */
static int count_in(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (file < 0 || ftruncate(file, sizeof counted))
		return 0;
	rounds = mmap(0, sizeof counted, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	return rounds != MAP_FAILED;
}

static void *task(void *argument)
{
	unsigned thread = (unsigned)(size_t)argument;
	while (now() < end)
		for (int i = 0; i < 16; i++)
			work(thread, rounds[thread]++);
	return 0;
}

/* Ends the task when standard input is closed. */
static void *wait_until_closed(void *none)
{
	char byte;
	while (read(0, &byte, 1) > 0)
		;
	end = 0;
	return none;
}

int main(int count, char **arguments)
{
	unsigned threads = count > 1 ? atoi(arguments[1]) : 1;
	const double begin = now();
	const int until_closed = count > 2 && strcmp(arguments[2], "until-closed") == 0;
	const double seconds = until_closed ? 1e9 : count > 2 ? atof(arguments[2]) : 1.5;
	if (threads < 1 || threads > MOST_THREADS)
		return 2;
	if (count > 3 && !count_in(arguments[3]))
		return 5;
	pthread_t *others = malloc(threads * sizeof *others);
	if (!others)
		return 4;
	end = begin + seconds;
	pthread_t waiting;
	if (until_closed && pthread_create(&waiting, 0, wait_until_closed, 0))
		return 3;
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
	fprintf(stderr, "rounds_per_second=%.0f\n", all / (now() - begin));
	return 0;
}
