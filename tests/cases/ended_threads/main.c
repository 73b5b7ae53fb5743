#include "../bounded_debt/shares.h"

static const size_t share = 32 << 20;
// Of four shares, 128 MiB. If nobody looks at what ended threads left, 45 MiB (scudo) to all of it stay.
// On 32-bit, jemalloc was seen to keep 64 MiB, where the threads ran at once; waiting did not change that.
static const size_t limit = (sizeof(void *) == 4 ? 80 : 40) << 20;

static void *fill(void *argument) {
	size_t size = *(const size_t *)argument;
	return all_filled(size, share / size);
}

static int goes_back(size_t size) {
	pthread_t threads[THREADS];
	size_t before = resident();
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, fill, &size)) return 0;
	void *blocks[THREADS];
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], &blocks[i]);
	for (int i = 0; i < THREADS; i++) empty(blocks[i], share / size);
	size_t now = resident();
	if (now < before + limit) return 1;
	printf("after blocks of %zu: %zu bytes stay\n", size, now - before);
	return 0;
}

int main(void) { return with_each_size(goes_back); }
