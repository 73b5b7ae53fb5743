#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../idle_memory/resident.h"

// Threads free what is large enough to go back to the allocator's arenas at once, and due a millisecond later: while one
// frees, another and the thread of purge_period look for what is due.
enum { THREADS = 16, ROUNDS = 50 };
static const size_t size = 5 << 20, touched = 4 << 20;
// Of 64 MiB. An emulator's own memory grows by 24 MB.
static const size_t limit = 40 << 20;

static void *free_often(void *argument) {
	for (int i = 0; i < ROUNDS; i++) {
		char *block = malloc(size);
		if (!block) abort();
		memset(block, 1, touched);
		free(block);
	}
	return argument;
}

static void run_threads(void) {
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], 0, free_often, 0)) exit(2);
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
}

int main(void) {
	size_t before = resident(), after = 0;
	for (int round = 0; round < 4; round++) {
		run_threads();
		for (int tries = 0; tries < 600 && (after = resident()) >= before + limit; tries++) usleep(50000);
		if (after >= before + limit) return printf("%zu bytes stay\n", after - before), 1;
	}
	puts("ok");
	return 0;
}
