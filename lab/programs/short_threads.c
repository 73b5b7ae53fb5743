/*
 * Many short threads: each allocates 200 blocks of 16 bytes to 16 KiB, writes to them, and frees them.
 *
 *     short_threads THREADS ALIVE
 *
 * ALIVE of them exist at once. stdout: the number of threads that succeeded.
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 200, MOST = 256 };

static void *work(void *argument)
{
	uint64_t state = (uintptr_t)argument * 2654435761u + 1;
	unsigned char *blocks[BLOCKS];
	uintptr_t good = 1;
	for (int i = 0; i < BLOCKS; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		size_t size = 16 + (state >> 33) % (i % 16 ? 500 : 16000);
		blocks[i] = malloc(size);
		if (!blocks[i])
			return 0;
		memset(blocks[i], i, size);
	}
	for (int i = 0; i < BLOCKS; i++) {
		good &= blocks[i][15] == (unsigned char)i;
		free(blocks[i]);
	}
	return (void *)good;
}

int main(int count, char **arguments)
{
	long threads = count > 1 ? atol(arguments[1]) : 10000, alive = count > 2 ? atol(arguments[2]) : 8, good = 0;
	pthread_t running[MOST];
	if (threads < 1 || alive < 1 || alive > MOST)
		return 2;
	for (long i = 0; i < threads + alive; i++) {
		void *result;
		if (i >= alive && i - alive < threads) {
			if (pthread_join(running[i % alive], &result))
				return 1;
			good += result != 0;
		}
		if (i < threads && pthread_create(&running[i % alive], 0, work, (void *)(intptr_t)i))
			return 1;
	}
	printf("%ld\n", good);
	return good != threads;
}
