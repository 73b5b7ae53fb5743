// Thousands of forks while threads allocate: every child can allocate, free what others allocated, and start threads.
// The number of forks is the first argument, $ALLOGRAFT_FORKS, or 5000.
// At most 900 s on a slow machine.
#include "check.h"

#include <pthread.h>
#include <sys/prctl.h>

enum { WORKERS = 2, SLOTS = 32, BOXES = 32, CHILDREN = 4, CHILD_CODE = 11, MAPPED = 150000 };

struct block {
	size_t size, seed;
	unsigned char bytes[];
};

static _Atomic(struct block *) boxes[BOXES]; // blocks without an owner: the thread that takes one frees it
static atomic_int stop;

// Writes only the ends, so that a child has few pages to copy.
static void mark(struct block *block, size_t size, size_t seed) {
	CHECK(block && is_aligned(block, 16));
	block->size = size, block->seed = seed;
	size_t length = size - sizeof *block, edge = length < 64 ? length : 64;
	pattern_fill(block->bytes, 0, edge, seed);
	pattern_fill(block->bytes, length - edge, length, seed);
}

static void verify(const struct block *block) {
	size_t length = block->size - sizeof *block, edge = length < 64 ? length : 64;
	for (size_t i = 0; i < edge; i++)
		CHECK_THAT(block->bytes[i] == pattern_byte(block->seed, i) && block->bytes[length - 1 - i] == pattern_byte(block->seed, length - 1 - i),
				   "a block of %zu bytes is damaged", block->size);
}

static void discard(struct block *block) {
	if (!block) return;
	verify(block);
	free(block);
}

static size_t any_size(uint64_t *state) {
	size_t kind = next_random(state) % 64;
	return sizeof(struct block) + (kind < 48   ? random_between(state, 0, 500)
								   : kind < 62 ? random_between(state, 500, 30000)
											   : random_between(state, MAPPED, 2 * MAPPED));
}

static struct block *fresh(uint64_t *state) {
	size_t size = any_size(state);
	struct block *block;
	switch (next_random(state) % 6) {
	case 0: block = calloc(1, size); break;
	case 1: block = aligned_alloc((size_t)16 << next_random(state) % 9, size); break;
	default: block = malloc(size);
	}
	mark(block, size, size ^ 0x55);
	return block;
}

static struct block *resized(struct block *block, uint64_t *state) {
	size_t size = any_size(state);
	if (block) verify(block);
	block = realloc(block, size);
	mark(block, size, size + 3);
	return block;
}

static void step(struct block **slots, uint64_t *state) {
	struct block **slot = &slots[next_random(state) % SLOTS];
	switch (next_random(state) % 8) {
	case 0: *slot = resized(*slot, state); break;
	case 1: discard(atomic_exchange(&boxes[next_random(state) % BOXES], *slot)), *slot = 0; break;
	case 2: discard(*slot), *slot = atomic_exchange(&boxes[next_random(state) % BOXES], 0); break;
	default: discard(*slot), *slot = fresh(state);
	}
}

static void some_work(uint64_t seed, long steps) {
	struct block *slots[SLOTS] = {0};
	for (long i = 0; i < steps; i++) step(slots, &seed);
	for (size_t i = 0; i < SLOTS; i++) discard(slots[i]);
}

static void *worker(void *argument) {
	uint64_t state = (uintptr_t)argument + 10;
	struct block *slots[SLOTS] = {0};
	while (!stop) step(slots, &state);
	for (size_t i = 0; i < SLOTS; i++) discard(slots[i]);
	return 0;
}

static void *brief(void *argument) {
	some_work((uintptr_t)argument, 150);
	return 0;
}

// Starts and ends threads all the time.
static void *breeder(void *argument) {
	for (uintptr_t i = 1; !stop; i++) {
		pthread_t threads[2];
		for (size_t j = 0; j < LENGTH(threads); j++) CHECK(pthread_create(&threads[j], 0, brief, (void *)(i * 2 + j)) == 0);
		for (size_t j = 0; j < LENGTH(threads); j++) CHECK(pthread_join(threads[j], 0) == 0);
	}
	return argument;
}

static void *child_thread(void *argument) {
	some_work((uintptr_t)argument, 100);
	for (size_t i = BOXES / 2; i < BOXES; i++) discard(atomic_exchange(&boxes[i], 0));
	return argument;
}

static void at_exit(void) {
	some_work(99, 20);
}

// Allocates each important size class once, then does random work. First it frees what the parent's threads had
// left.
static void child(long number) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	static const size_t sizes[] = {8, 100, 1000, 10000, 100000, 400000, 2 << 20};
	pthread_t thread;
	for (size_t i = 0; i < BOXES / 2; i++) discard(atomic_exchange(&boxes[i], 0));
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		char *block = malloc(sizes[i]);
		CHECK(block);
		block[0] = block[sizes[i] - 1] = 1;
		free(block);
	}
	some_work((uint64_t)number, 60);
	CHECK(pthread_create(&thread, 0, child_thread, (void *)number) == 0);
	if (number % 64 == 0) {
		pid_t next = fork(); // while a thread of the child works
		CHECK(next >= 0);
		if (next == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			some_work((uint64_t)number + 1, 60);
			_exit(CHILD_CODE);
		}
		int status;
		CHECK(waitpid(next, &status, 0) == next && WIFEXITED(status) && WEXITSTATUS(status) == CHILD_CODE);
	}
	CHECK(pthread_join(thread, 0) == 0);
	if (number % 16 == 0) {
		CHECK(atexit(at_exit) == 0);
		exit(CHILD_CODE);
	}
	_exit(CHILD_CODE);
}

int main(int argc, char **argv) {
	check_begin();
	long forks = argc > 1 ? atol(argv[1]) : setting("ALLOGRAFT_FORKS", scaled(5000));
	pthread_t threads[WORKERS + 1];
	for (size_t i = 0; i < WORKERS; i++) CHECK(pthread_create(&threads[i], 0, worker, (void *)i) == 0);
	CHECK(pthread_create(&threads[WORKERS], 0, breeder, 0) == 0);

	pid_t children[CHILDREN] = {0};
	for (long i = 0; i < forks + CHILDREN; i++) {
		pid_t *slot = &children[i % CHILDREN];
		if (*slot) {
			char what[40];
			snprintf(what, sizeof what, "fork %ld of %ld", i - CHILDREN + 1, forks);
			expect_exit(*slot, CHILD_CODE, what);
			*slot = 0;
		}
		if (i >= forks) continue;
		*slot = fork();
		CHECK(*slot >= 0);
		if (*slot == 0) child(i + 1);
	}
	stop = 1;
	for (size_t i = 0; i < LENGTH(threads); i++) CHECK(pthread_join(threads[i], 0) == 0);
	for (size_t i = 0; i < BOXES; i++) discard(atomic_exchange(&boxes[i], 0));
	return check_done();
}
