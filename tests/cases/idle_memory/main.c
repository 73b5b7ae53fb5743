#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "resident.h"

enum { THREADS = 4, SIZES = 5 };
static const size_t sizes[SIZES] = {16, 300, 20000, 300000, 3 << 20};
static const size_t share = 32 << 20;
// Of four shares, 128 MiB. At most 5.5 MB stay, and in an emulator what it needs itself.
static const size_t limit = 16 << 20;

struct work {
	size_t size, count;
	char **blocks;
	int frees;
};

static void free_all(struct work *work) {
	for (size_t i = 0; i < work->count; i++) free(work->blocks[i]);
	free(work->blocks);
}

static pthread_barrier_t done, seen;

static void *fill(void *argument) {
	struct work *work = argument;
	work->count = share / work->size;
	work->blocks = malloc(work->count * sizeof *work->blocks);
	for (size_t i = 0; work->blocks && i < work->count; i++) {
		work->blocks[i] = malloc(work->size);
		if (!work->blocks[i]) abort();
		memset(work->blocks[i], 1, work->size);
	}
	if (work->frees) {
		free_all(work);
		pthread_barrier_wait(&done);
		pthread_barrier_wait(&seen);
	}
	return 0;
}

// Bytes that are resident and were not before. The threads are alive, and idle, if they freed their blocks themselves.
static size_t left(size_t size, int frees) {
	pthread_t threads[THREADS];
	struct work works[THREADS];
	size_t before = resident(), after;
	for (int i = 0; i < THREADS; i++) {
		works[i] = (struct work){size, 0, 0, frees};
		if (pthread_create(&threads[i], 0, fill, &works[i])) exit(2);
	}
	if (frees) {
		pthread_barrier_wait(&done);
		after = resident();
		pthread_barrier_wait(&seen);
	}
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
	if (!frees) {
		for (int i = 0; i < THREADS; i++) free_all(&works[i]);
		after = resident();
	}
	return after > before ? after - before : 0;
}

int main(void) {
	pthread_barrier_init(&done, 0, THREADS + 1);
	pthread_barrier_init(&seen, 0, THREADS + 1);
	for (int i = 0; i < SIZES; i++) {
		for (int frees = 0; frees < 2; frees++) {
			size_t bytes = left(sizes[i], frees);
			if (bytes > limit)
				return printf("%zu bytes stay after blocks of %zu, freed by %s\n", bytes, sizes[i], frees ? "their threads" : "another"), 1;
		}
	}
	puts("ok");
	return 0;
}
