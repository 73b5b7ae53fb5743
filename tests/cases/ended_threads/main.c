#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "../idle_memory/resident.h"

enum { THREADS = 4, SIZES = 4 };
static const size_t sizes[SIZES] = {100, 3000, 20000, 300000};
static const size_t share = 32 << 20;
// Of four shares, 128 MiB. If nobody looks at what ended threads left, 57 MiB (jemalloc) to all of it stay. In blocks of
// 100, scudo's list of free blocks alone takes a third.
static const size_t limit_of_small = 64 << 20, limit = 40 << 20;

static void *fill(void *argument) {
	size_t size = *(const size_t *)argument, count = share / size;
	char **blocks = malloc(count * sizeof *blocks);
	if (!blocks) exit(2);
	for (size_t i = 0; i < count; i++) {
		if (!(blocks[i] = malloc(size))) exit(2);
		memset(blocks[i], 1, size);
	}
	return blocks;
}

static int goes_back(size_t size) {
	pthread_t threads[THREADS];
	size_t before = resident();
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, fill, &size)) return 0;
	char **blocks[THREADS];
	for (int i = 0; i < THREADS; i++) {
		void *result;
		pthread_join(threads[i], &result);
		blocks[i] = result;
	}
	for (int i = 0; i < THREADS; i++) {
		for (size_t k = 0; k < share / size; k++) free(blocks[i][k]);
		free(blocks[i]);
	}
	size_t now = resident();
	if (now < before + (size == sizes[0] ? limit_of_small : limit)) return 1;
	printf("after blocks of %zu: %zu bytes stay\n", size, now - before);
	return 0;
}

int main(void) {
	for (int i = 0; i < SIZES; i++) {
		int status;
		pid_t child = fork();
		if (child == 0) return !goes_back(sizes[i]);
		if (child < 0 || waitpid(child, &status, 0) != child || status) return 1;
	}
	puts("ok");
	return 0;
}
