// Eight threads at random work, blocks freed by other threads than their own, whole arrays handed over.
// At most 300 s on a slow machine.
#include "check.h"

#include <pthread.h>

enum { THREADS = 8, SLOTS = 300, QUEUE = 256, ARRAY = 400 };

struct block {
	unsigned char *bytes;
	size_t size, seed;
};

// A queue with one producer and one consumer.
struct queue {
	_Atomic size_t head, tail;
	struct block blocks[QUEUE];
};

static struct queue queues[THREADS];
static struct block *arrays[THREADS];
static pthread_barrier_t barrier;

static struct block fresh(uint64_t *state, size_t seed) {
	struct block block = {.size = random_between(state, 0, next_random(state) % 40 ? 600 : 50000), .seed = seed};
	switch (next_random(state) % 4) {
	case 0:
		block.bytes = calloc(1, block.size);
		for (size_t i = 0; block.bytes && i < block.size; i++) CHECK(!block.bytes[i]);
		break;
	case 1: block.bytes = aligned_alloc((size_t)16 << next_random(state) % 6, block.size); break;
	default: block.bytes = malloc(block.size);
	}
	CHECK(block.bytes && is_aligned(block.bytes, 16) && malloc_usable_size(block.bytes) >= block.size);
	pattern_fill(block.bytes, 0, block.size, seed);
	return block;
}

static void resize(struct block *block, size_t size) {
	size_t kept = size < block->size ? size : block->size;
	block->bytes = realloc(block->bytes, size ? size : 1); // to size 0, glibc's frees the block and returns none
	CHECK(block->bytes && is_aligned(block->bytes, 16));
	CHECK_PATTERN(block->bytes, kept, block->seed);
	pattern_fill(block->bytes, kept, size, block->seed);
	block->size = size;
}

static void discard(struct block block) {
	if (!block.bytes) return;
	CHECK_PATTERN(block.bytes, block.size, block.seed);
	free(block.bytes);
}

static void alone(uint64_t *state) {
	struct block slots[SLOTS] = {0};
	for (long i = 0; i < scaled(25000); i++) {
		struct block *slot = &slots[random_between(state, 0, SLOTS - 1)];
		if (slot->bytes && next_random(state) % 3 == 0) {
			resize(slot, random_between(state, 0, 1000));
		} else {
			discard(*slot);
			*slot = next_random(state) % 4 ? fresh(state, (size_t)i) : (struct block){0};
		}
	}
	for (size_t i = 0; i < SLOTS; i++) discard(slots[i]);
}

// Every thread fills its own queue and empties its neighbour's.
static void passing(uint64_t *state, size_t self) {
	struct queue *out = &queues[self], *in = &queues[(self + 1) % THREADS];
	long count = scaled(15000), sent = 0, received = 0;
	while (sent < count || received < count) {
		size_t head = atomic_load(&out->head);
		int idle = 1;
		if (sent < count && head - atomic_load(&out->tail) < QUEUE) {
			out->blocks[head % QUEUE] = fresh(state, (size_t)sent++);
			atomic_store(&out->head, head + 1);
			idle = 0;
		}
		size_t tail = atomic_load(&in->tail);
		if (received < count && tail < atomic_load(&in->head)) {
			struct block block = in->blocks[tail % QUEUE];
			atomic_store(&in->tail, tail + 1);
			CHECK(block.seed == (size_t)received++);
			if (next_random(state) % 5 == 0) resize(&block, random_between(state, 0, 2000));
			discard(block);
			idle = 0;
		}
		if (idle) sched_yield();
	}
}

// A thread fills an array of blocks; a second one resizes and frees them, and the array too.
static void handing_over(uint64_t *state, size_t self) {
	for (long round = 0; round < scaled(20); round++) {
		struct block *own = arrays[self] = malloc(ARRAY * sizeof *own);
		CHECK(own);
		for (size_t i = 0; i < ARRAY; i++) own[i] = fresh(state, self * ARRAY + i);
		pthread_barrier_wait(&barrier);
		struct block *other = arrays[(self + 1 + (size_t)round) % THREADS];
		for (size_t i = 0; i < ARRAY; i++) {
			if (i % 3 == 0) resize(&other[i], other[i].size / 2 + i % 100);
			discard(other[i]);
		}
		free(other);
		pthread_barrier_wait(&barrier);
	}
}

static void *work(void *argument) {
	size_t self = (size_t)argument;
	uint64_t state = self + 1;
	pthread_barrier_wait(&barrier);
	alone(&state);
	pthread_barrier_wait(&barrier);
	passing(&state, self);
	pthread_barrier_wait(&barrier);
	handing_over(&state, self);
	return malloc(100 + self);
}

int main(void) {
	check_begin();
	pthread_t threads[THREADS];
	CHECK(pthread_barrier_init(&barrier, 0, THREADS) == 0);
	for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], 0, work, (void *)i) == 0);
	for (size_t i = 0; i < THREADS; i++) {
		void *result;
		CHECK(pthread_join(threads[i], &result) == 0 && malloc_usable_size(result) >= 100 + i);
		free(result);
	}
	return check_done();
}
