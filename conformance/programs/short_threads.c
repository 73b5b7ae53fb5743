// Twenty thousand short-lived threads, or $ALLOGRAFT_THREADS, eight alive at once: memory does not grow with them.
// At most 300 s on a slow machine.
#include "check.h"

#include <pthread.h>

enum { THREADS = 20000, ALIVE = 8, BLOCKS = 40, BOXES = 64 };

// Permitted growth after the first threads: caches that fill up slowly, and at most this much for each thread.
enum { ALLOWED = 32 << 20, ALLOWED_EACH = 256 };

static _Atomic(unsigned char *) boxes[BOXES]; // blocks that one thread leaves and another frees

static void discard(unsigned char *block) {
	if (!block) return;
	size_t size = (size_t)block[0] | (size_t)block[1] << 8;
	CHECK_THAT(size >= 16 && block[size - 1] == 0x5a, "a block of %zu bytes is damaged", size);
	free(block);
}

static unsigned char *fresh(uint64_t *state) {
	size_t size = random_between(state, 16, next_random(state) % 8 ? 400 : 20000);
	unsigned char *block = malloc(size);
	CHECK(block && is_aligned(block, 16));
	memset(block, 0x5a, size);
	block[0] = (unsigned char)size, block[1] = (unsigned char)(size >> 8);
	return block;
}

static void *work(void *argument) {
	uint64_t state = (uintptr_t)argument * 77 + 1;
	unsigned char *blocks[BLOCKS];
	for (int i = 0; i < BLOCKS; i++) blocks[i] = fresh(&state);
	for (int i = 0; i < BLOCKS; i++) {
		if (i % 4 == 0) discard(atomic_exchange(&boxes[next_random(&state) % BOXES], blocks[i]));
		else discard(blocks[i]);
	}
	return 0;
}

// Starts and ends `count` threads. Returns the resident bytes after the `first` of them had ended.
static size_t churn(long count, long first) {
	size_t base = 0;
	pthread_t alive[ALIVE];
	for (long i = 0; i < count + ALIVE; i++) {
		if (i >= ALIVE) CHECK(pthread_join(alive[i % ALIVE], 0) == 0);
		if (i == first + ALIVE) base = resident_bytes();
		if (i < count) CHECK(pthread_create(&alive[i % ALIVE], 0, work, (void *)i) == 0);
	}
	return base;
}

int main(void) {
	check_begin();
	long count = setting("ALLOGRAFT_THREADS", scaled(THREADS)), first = count / 20;
	size_t base;
	do base = churn(count, first);
	while (grows("threads", base, resident_bytes(), ALLOWED + (size_t)(count - first) * ALLOWED_EACH));
	for (int i = 0; i < BOXES; i++) discard(atomic_load(&boxes[i]));
	return check_done();
}
