// Several threads fork at once while others allocate: blocks are freed without the thread that owned them.
// At most 300 s on a slow machine.
#include "check.h"

#include <pthread.h>
#include <sys/prctl.h>

enum { WORKERS = 2, FORKERS = 3, SLOTS = 24, LEFT = 16, CHILD_CODE = 7 };

// Permitted growth: caches that fill up, and at most this much for each fork. mimalloc3 keeps 72 to 120 MB at any
// number of forks.
enum { ALLOWED = 96 << 20, ALLOWED_EACH = 8 << 10 };

struct block {
	size_t size, seed;
	unsigned char bytes[];
};

static _Atomic(struct block *) held[WORKERS + FORKERS][SLOTS]; // by thread; null while its owner uses it
static _Atomic(struct block *) left[LEFT];                     // blocks of threads that have ended
static atomic_int stop, at_exit_code;
static atomic_long forks_done;

static struct block *fresh(uint64_t *state) {
	size_t kind = next_random(state) % 40;
	size_t size = sizeof(struct block) + random_between(state, 0, kind < 30 ? 300 : kind < 39 ? 20000 : 300000);
	struct block *block = kind % 7 == 0 ? aligned_alloc(512, size) : malloc(size);
	CHECK(block && is_aligned(block, 16));
	size_t length = size - sizeof *block;
	block->size = size, block->seed = kind;
	pattern_fill(block->bytes, 0, length < 48 ? length : 48, kind);
	return block;
}

static void verify(const struct block *block) {
	size_t length = block->size - sizeof *block;
	CHECK_PATTERN(block->bytes, length < 48 ? length : 48, block->seed);
}

static void discard(struct block *block) {
	if (!block) return;
	verify(block);
	free(block);
}

// Replaces, resizes or frees one of the thread's own blocks.
static void step(_Atomic(struct block *) *slots, uint64_t *state) {
	_Atomic(struct block *) *slot = &slots[next_random(state) % SLOTS];
	struct block *block = atomic_exchange(slot, 0);
	if (block && next_random(state) % 4 == 0) {
		verify(block);
		size_t length = block->size / 2 + 40;
		block = realloc(block, sizeof *block + length);
		CHECK(block);
		block->size = sizeof *block + length;
		pattern_fill(block->bytes, 0, length < 48 ? length : 48, block->seed);
	} else {
		discard(block);
		block = next_random(state) % 8 ? fresh(state) : 0;
	}
	discard(atomic_exchange(slot, block));
}

static void leave(uint64_t *state) { discard(atomic_exchange(&left[next_random(state) % LEFT], fresh(state))); }

static void *worker(void *argument) {
	size_t self = (size_t)argument;
	uint64_t state = self + 100;
	while (!stop) step(held[self], &state);
	return 0;
}

// Allocates a few blocks, leaves them, and ends.
static void *brief(void *argument) {
	uint64_t state = (uintptr_t)argument + 5;
	leave(&state);
	leave(&state);
	return 0;
}

static void *child_thread(void *argument) {
	for (size_t i = 1; i < WORKERS + FORKERS; i += 2)
		for (size_t j = 0; j < SLOTS; j++) discard(atomic_exchange(&held[i][j], 0));
	return brief(argument);
}

static void at_exit(void) {
	uint64_t state = 3;
	for (int i = 0; i < 30; i++) discard(fresh(&state));
	if (at_exit_code) _exit(at_exit_code);
}

// Frees blocks that other threads had, and blocks of threads that ended before, some of them on a thread of the
// child's own.
static void child(uint64_t *state, size_t self, long number) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_t thread;
	for (int i = 0; i < 60; i++) step(held[self], state);
	for (size_t i = 0; i < WORKERS + FORKERS; i += 2)
		for (size_t j = 0; j < SLOTS; j++) discard(atomic_exchange(&held[i][j], 0));
	for (size_t i = 0; i < LEFT; i += 2) discard(atomic_exchange(&left[i], 0));
	CHECK(pthread_create(&thread, 0, child_thread, (void *)number) == 0);
	for (int i = 0; i < 60; i++) step(held[0], state);
	if (number % 16 == 0) {
		pid_t next = fork(); // a second fork, from a process with two threads and blocks of three generations
		CHECK(next >= 0);
		if (next == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (size_t i = 0; i < LEFT; i++) discard(atomic_exchange(&left[i], 0));
			for (size_t j = 0; j < SLOTS; j++) discard(atomic_exchange(&held[0][j], 0));
			_exit(malloc(100) ? CHILD_CODE : 1);
		}
		expect_exit(next, CHILD_CODE, "a child of a child");
	}
	CHECK(pthread_join(thread, 0) == 0);
	for (size_t i = 0; i < LEFT; i++) discard(atomic_exchange(&left[i], 0));
}

static void *forker(void *argument) {
	size_t self = (size_t)argument;
	uint64_t state = self + 50;
	long forks = scaled(350);
	for (long i = 1; i <= forks; i++) {
		pthread_t thread;
		for (int j = 0; j < 30; j++) step(held[self], &state);
		// The thread may end before, during or after the fork.
		CHECK(pthread_create(&thread, 0, brief, (void *)(i * FORKERS + (long)self)) == 0);
		pid_t process = fork();
		CHECK(process >= 0);
		if (process == 0) {
			child(&state, self, i);
			if (i % 5) _exit(CHILD_CODE);
			// The forking thread is the child's only one: when it ends, the process ends too.
			at_exit_code = CHILD_CODE;
			pthread_exit(0);
		}
		CHECK(pthread_join(thread, 0) == 0);
		for (size_t j = 0; j < LEFT; j += 3) discard(atomic_exchange(&left[j], 0));
		char what[60];
		snprintf(what, sizeof what, "fork %ld of %ld of thread %zu", i, forks, self);
		expect_exit(process, CHILD_CODE, what);
		atomic_fetch_add(&forks_done, 1);
	}
	return 0;
}

int main(void) {
	check_begin();
	CHECK(atexit(at_exit) == 0);
	pthread_t threads[WORKERS + FORKERS];
	for (size_t i = 0; i < WORKERS; i++) CHECK(pthread_create(&threads[i], 0, worker, (void *)i) == 0);
	long first = scaled(350), all = FORKERS * first;
	size_t base;
	do {
		forks_done = 0;
		for (size_t i = WORKERS; i < WORKERS + FORKERS; i++)
			CHECK(pthread_create(&threads[i], 0, forker, (void *)i) == 0);
		while (forks_done < first) usleep(1000);
		base = resident_bytes();
		for (size_t i = WORKERS; i < WORKERS + FORKERS; i++) CHECK(pthread_join(threads[i], 0) == 0);
	} while (grows("forks", base, resident_bytes(), ALLOWED + (size_t)(all - first) * ALLOWED_EACH));
	stop = 1;
	for (size_t i = 0; i < WORKERS; i++) CHECK(pthread_join(threads[i], 0) == 0);
	for (size_t i = 0; i < WORKERS + FORKERS; i++)
		for (size_t j = 0; j < SLOTS; j++) discard(atomic_exchange(&held[i][j], 0));
	for (size_t i = 0; i < LEFT; i++) discard(atomic_exchange(&left[i], 0));
	return check_done();
}
