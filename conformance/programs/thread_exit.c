// Allocation and release while a thread ends: in every round of thread-specific destructors, also after the allocator's own.
// At most 300 s on a slow machine.
#include "check.h"

#include <limits.h>
#include <pthread.h>

enum { THREADS = 8, KEYS = 6, BLOCKS = 20, LEFT = 256 };

// Permitted growth: caches that fill up, and at most this much for each thread.
enum { ALLOWED = 96 << 20, ALLOWED_EACH = 16 << 10 };

static pthread_key_t early[KEYS], late[KEYS]; // made before and after the first allocation
static _Atomic(unsigned char *) left[LEFT];    // the last block of each thread, for others to free
static atomic_long ended, alive;
static atomic_int to_the_last; // whether destructors allocate in the last round too, after which nothing can clean up

struct load {
	int round;
	size_t seed;
	pthread_key_t key;
	unsigned char *blocks[BLOCKS];
};

static size_t size_of(size_t seed, int i) { return i == 0 ? 150000 + seed % 1000 : 1 + (seed * 37 + (size_t)i * 211) % 3000; }

static void fill(struct load *load) {
	for (int i = 0; i < BLOCKS; i++) {
		load->blocks[i] = i % 3 ? malloc(size_of(load->seed, i)) : calloc(1, size_of(load->seed, i));
		CHECK(load->blocks[i] && is_aligned(load->blocks[i], 16));
		pattern_fill(load->blocks[i], 0, size_of(load->seed, i) % 3000, load->seed);
	}
}

static void empty(struct load *load) {
	for (int i = 0; i < BLOCKS; i++) {
		CHECK_PATTERN(load->blocks[i], size_of(load->seed, i) % 3000, load->seed);
		free(load->blocks[i]);
	}
}

static void leave(size_t seed) {
	unsigned char *block = malloc(64 + seed % 500);
	CHECK(block);
	block[0] = 0x77;
	block = atomic_exchange(&left[seed % LEFT], block);
	CHECK(!block || block[0] == 0x77);
	free(block);
}

// Asks to be called again until the rounds are over. By then the allocator's own destructor has certainly run.
static void destroy(void *argument) {
	struct load *load = argument;
	empty(load);
	if (++load->round < PTHREAD_DESTRUCTOR_ITERATIONS) {
		load->seed++;
		fill(load);
		CHECK(pthread_setspecific(load->key, load) == 0);
		return;
	}
	size_t seed = load->seed;
	free(load);
	if (to_the_last) {
		leave(seed);
		char *last = realloc(malloc(30), 5000);
		CHECK(last);
		memset(last, 1, 5000);
		free(last);
		leave(seed + 1);
	}
	atomic_fetch_add(&ended, 1);
}

static void load_key(pthread_key_t key, size_t seed) {
	struct load *load = malloc(sizeof *load);
	CHECK(load);
	*load = (struct load){.seed = seed, .key = key};
	fill(load);
	CHECK(pthread_setspecific(key, load) == 0);
}

static void *work(void *argument) {
	size_t seed = (size_t)argument;
	for (size_t i = 0; i < KEYS; i++) load_key(early[i], seed + i), load_key(late[i], seed + i * 5);
	return 0;
}

// Does not allocate before its destructor does.
static void *idle(void *argument) {
	CHECK(pthread_setspecific(late[0], argument) == 0);
	return 0;
}

static void *churn(void *argument) {
	uint64_t state = (uintptr_t)argument;
	unsigned char *blocks[100] = {0};
	for (long i = 0; i < scaled(20000); i++) {
		unsigned char **block = &blocks[random_between(&state, 0, 99)];
		CHECK(!*block || **block == 0x33);
		*block = realloc(*block, random_between(&state, 1, 2000));
		CHECK(*block);
		**block = 0x33;
	}
	for (int i = 0; i < 100; i++) free(blocks[i]);
	load_key(early[0], (size_t)argument);
	// The last thread ends the process, long after main's own thread has ended.
	if (atomic_fetch_sub(&alive, 1) == 1) exit(check_done());
	return 0;
}

// Runs threads that all end before it returns. Returns the number of their loads.
static long one_round(size_t round) {
	pthread_t threads[THREADS];
	struct load *load = malloc(sizeof *load);
	CHECK(load);
	*load = (struct load){.seed = round, .key = late[0]};
	fill(load);
	CHECK(pthread_create(&threads[0], 0, idle, load) == 0);
	for (size_t i = 1; i < THREADS; i++) CHECK(pthread_create(&threads[i], 0, work, (void *)(i + round * 10)) == 0);
	for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], 0) == 0);
	return 1 + (THREADS - 1) * 2 * KEYS;
}

int main(void) {
	check_begin();
	pthread_t threads[THREADS];
	for (size_t i = 0; i < KEYS; i++) CHECK(pthread_key_create(&early[i], destroy) == 0);
	free(malloc(1000));
	for (size_t i = 0; i < KEYS; i++) CHECK(pthread_key_create(&late[i], destroy) == 0);

	// The first rounds only free in the last round of destructors, the others also allocate.
	long expected = 0;
	for (to_the_last = 0; to_the_last < 2; to_the_last++) {
		long rounds = scaled(30), first = (rounds + 5) / 6;
		size_t base;
		do {
			base = 0;
			for (long round = 0; round < rounds; round++) {
				if (round == first) base = resident_bytes();
				expected += one_round((size_t)round);
				CHECK_THAT(ended == expected, "%ld destructors ended, not %ld", (long)ended, expected);
			}
		} while (base && grows("threads", base, resident_bytes(), ALLOWED + (size_t)((rounds - first) * THREADS) * ALLOWED_EACH));
	}

	// Detached threads, which nobody joins.
	pthread_attr_t detached;
	CHECK(pthread_attr_init(&detached) == 0 && pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
	for (long i = 0; i < scaled(200); i++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, &detached, work, (void *)(i + 1)) == 0);
		expected += 2 * KEYS;
		while (expected - ended > 8 * 2 * KEYS) sched_yield();
	}
	while (ended < expected) sched_yield();
	for (size_t i = 0; i < LEFT; i++) free(atomic_exchange(&left[i], 0));

	alive = LENGTH(threads);
	for (size_t i = 0; i < LENGTH(threads); i++) {
		CHECK(pthread_create(&threads[i], &detached, churn, (void *)(i + 1)) == 0);
	}
	load_key(late[1], 3);
	pthread_exit(0);
}
