#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../idle_memory/resident.h"

enum { THREADS = 4, SIZES = 3 };
static const size_t sizes[SIZES] = {300, 20000, 300000};
static const size_t share = 16 << 20;
// Of four shares, 64 MiB. Without the thread, 70 MB stay of blocks of 300 with most donors (docs/donors.md). With it, 18 MB
// of jemalloc's stayed once in a child, on a machine with ten times as much work as processors.
static const size_t limit = 24 << 20;

static pthread_barrier_t full;

static void *fill(void *argument) {
	size_t size = *(const size_t *)argument, count = share / size;
	char **blocks = malloc(count * sizeof *blocks);
	for (size_t i = 0; i < count; i++) {
		blocks[i] = malloc(size);
		if (!blocks[i]) abort();
		memset(blocks[i], 1, size);
	}
	pthread_barrier_wait(&full);
	for (size_t i = 0; i < count; i++) free(blocks[i]);
	free(blocks);
	return 0;
}

// Whether the memory of threads that have ended goes back while this one only waits. It has 30 seconds.
static int goes_back(size_t size) {
	pthread_t threads[THREADS];
	size_t before = resident(), after = 0;
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], 0, fill, (void *)&size)) exit(2);
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
	for (int tries = 0; tries < 600; tries++) {
		after = resident();
		if (after < before + limit) return 1;
		usleep(50000);
	}
	printf("%zu bytes stay after blocks of %zu\n", after - before, size);
	return 0;
}

static int all_go_back(void) {
	for (int i = 0; i < SIZES; i++)
		if (!goes_back(sizes[i])) return 0;
	return 1;
}

int main(void) {
	int status;
	pthread_barrier_init(&full, 0, THREADS);
	if (!all_go_back()) return 1;
	pid_t child = fork();
	if (child < 0) return 2;
	if (child == 0) _exit(all_go_back() ? 0 : 1);
	if (waitpid(child, &status, 0) != child || status) return printf("the child ended with %#x\n", status), 1;
	// libc tells every thread of this by a signal, and waits for each.
	if (setuid(getuid())) return 2;
	puts("ok");
	return 0;
}
