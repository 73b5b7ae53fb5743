#include "shares.h"

static const size_t share = 40 << 20;
// Of four shares, 160 MiB. Up to 51 MB stay, with scudo and blocks of 100. Without a bound, 150 MB or more do.
static const size_t limit = 96 << 20;

static pthread_barrier_t full, done;

static void *fill(void *argument) {
	size_t size = *(const size_t *)argument, count = share / size;
	char **blocks = all_filled(size, count);
	pthread_barrier_wait(&full);
	empty(blocks, count);
	pthread_barrier_wait(&done);
	pthread_barrier_wait(&done);
	return 0;
}

static size_t beyond(size_t before) {
	size_t now = resident();
	return now > before ? now - before : 0;
}

static int goes_back(size_t size) {
	pthread_t threads[THREADS];
	size_t before = resident(), idle, ended;
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, fill, &size)) return 0;
	pthread_barrier_wait(&done);
	idle = beyond(before);
	pthread_barrier_wait(&done);
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
	ended = beyond(before);
	if (idle < limit && ended < limit) return 1;
	printf("after blocks of %zu: %zu bytes stay while the threads idle, %zu when they have ended\n", size, idle, ended);
	return 0;
}

int main(void) {
	pthread_barrier_init(&full, NULL, THREADS);
	pthread_barrier_init(&done, NULL, THREADS + 1);
	return with_each_size(goes_back);
}
