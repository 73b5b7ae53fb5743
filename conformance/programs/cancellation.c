// Threads are cancelled in code that allocates: malloc is no cancellation point, no lock and no memory stays behind.
// At most 300 s on a slow machine.
#include "check.h"

#include <pthread.h>

enum { BLOCKS = 24, THREADS = 4 };

// Permitted growth: caches that fill up, and at most this much for each thread.
enum { ALLOWED = 64 << 20, ALLOWED_EACH = 4 << 10 };

static int ends[2]; // of a pipe without data
static atomic_long outstanding, cancelled;

struct load {
	unsigned char *blocks[BLOCKS];
};

static void put(struct load *load, size_t i, size_t size) {
	load->blocks[i] = i % 5 == 4 ? aligned_alloc(256, size) : i % 5 == 3 ? calloc(1, size) : malloc(size);
	CHECK(load->blocks[i]);
	load->blocks[i][0] = (unsigned char)i;
	atomic_fetch_add(&outstanding, 1);
}

static void drop(struct load *load, size_t i) {
	if (!load->blocks[i]) return;
	CHECK(load->blocks[i][0] == (unsigned char)i);
	free(load->blocks[i]);
	load->blocks[i] = 0;
	atomic_fetch_sub(&outstanding, 1);
}

// musl 1.2.3 ends a thread that is cancelled asynchronously on a misaligned stack, where vector code must not be
// called. The code that runs there aligns the stack itself. The allocator's code at a thread's end must do the same.
#if defined(__x86_64__) || defined(__i386__)
__attribute__((force_align_arg_pointer))
#endif
static void clean_up(void *argument) {
	struct load *load = argument;
	for (size_t i = 0; i < BLOCKS; i++) drop(load, i);
	free(load);
	free(malloc(3000)); // cleaning up may allocate
	atomic_fetch_add(&cancelled, 1);
}

static struct load *fresh_load(void) {
	struct load *load = calloc(1, sizeof *load);
	CHECK(load);
	return load;
}

// Cancelled at any of libc's cancellation points, between allocations. Never inside one, or `outstanding` would be
// wrong.
static void *deferred(void *argument) {
	uint64_t state = (uintptr_t)argument + 1;
	struct load *load = fresh_load();
	pthread_cleanup_push(clean_up, load);
	for (;;) {
		char byte;
		size_t i = next_random(&state) % BLOCKS;
		drop(load, i);
		put(load, i, random_between(&state, 1, next_random(&state) % 30 ? 2000 : 200000));
		switch (next_random(&state) % 64) {
		case 0: pthread_testcancel(); break;
		case 1: usleep(10); break;
		case 2: CHECK(read(ends[0], &byte, 1) == -1 && errno == EAGAIN); break;
		}
	}
	pthread_cleanup_pop(1);
	return 0;
}

// Cancelled asynchronously, but only while it computes: POSIX does not permit that inside malloc (XSH 2.9.5.4).
static void *asynchronous(void *argument) {
	volatile uint64_t state = (uintptr_t)argument + 1;
	struct load *load = fresh_load();
	pthread_cleanup_push(clean_up, load);
	for (;;) {
		uint64_t seed = state;
		int type;
		for (size_t i = 0; i < BLOCKS; i++) drop(load, i), put(load, i, random_between(&seed, 1, 1000));
		state = seed;
		CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type) == 0);
		for (int i = 0; i < 5000; i++) state = state * 5 + 1;
		CHECK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type) == 0);
	}
	pthread_cleanup_pop(1);
	return 0;
}

// A thread whose cancellation is pending from the start calls every function that allocates.
static void *pending(void *argument) {
	static const size_t sizes[] = {8, 500, 5000, 40000, 300000, 1 << 20};
	struct load *load = fresh_load();
	int *passed = argument;
	uint64_t state = 2;
	pthread_cleanup_push(clean_up, load);
	CHECK(pthread_cancel(pthread_self()) == 0);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		put(load, i, sizes[i]);
		load->blocks[i] = realloc(load->blocks[i], sizes[i] * 2);
		CHECK(load->blocks[i]);
	}
	for (size_t i = 0; i < LENGTH(sizes); i++) drop(load, i);
	for (int i = 0; i < 1000; i++) {
		size_t which = next_random(&state) % BLOCKS;
		drop(load, which);
		put(load, which, random_between(&state, 1, 20000));
	}
	*passed = 1;
	pthread_testcancel();
	*passed = 2;
	pthread_cleanup_pop(1);
	return 0;
}

// A cancelled thread allocates in its destructor, too.
static void destroy(void *argument) {
	free(argument);
	free(strdup("after the cancellation"));
}

static pthread_key_t key;

static void *uncancellable(void *argument) {
	int state;
	CHECK(pthread_setspecific(key, malloc(100)) == 0);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) == 0);
	uint64_t seed = (uintptr_t)argument;
	for (int i = 0; i < 40; i++) free(malloc(random_between(&seed, 1, 9000))), usleep(0);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
	for (;;) free(malloc(random_between(&seed, 1, 9000))), pthread_testcancel();
	return 0;
}

// musl 1.2.3 jumps to __cp_cancel in a thread that is cancelled asynchronously (src/thread/pthread_cancel.c). It
// does not prepare the stack on i386, nor leave Thumb state on arm, where that is ARM code. Stock programs die of
// it.
#if defined(__i386__) || defined(__arm__)
enum { CAN_CANCEL_ASYNCHRONOUSLY = 0 };
#else
enum { CAN_CANCEL_ASYNCHRONOUSLY = 1 };
#endif

// Runs `rounds` rounds. Returns the resident bytes before round number `first`.
static size_t cancel(long rounds, long first) {
	uint64_t state = 6;
	size_t base = 0;
	for (long round = 0; round < rounds; round++) {
		pthread_t threads[THREADS];
		long before = cancelled;
		int passed = 0;
		if (round == first) base = resident_bytes();
		void *(*kind)(void *) = round % 8 ? deferred : pending;
		CHECK(pthread_create(&threads[0], 0, kind, round % 8 ? (void *)round : (void *)&passed) == 0);
		CHECK(pthread_create(&threads[1], 0, deferred, (void *)(round * 3)) == 0);
		CHECK(pthread_create(&threads[2], 0, CAN_CANCEL_ASYNCHRONOUSLY ? asynchronous : deferred,
		                     (void *)(round * 5)) == 0);
		CHECK(pthread_create(&threads[3], 0, uncancellable, (void *)(round * 7 + 1)) == 0);
		struct timespec pause = {0, (long)random_between(&state, 0, 3000000)};
		nanosleep(&pause, 0);
		for (size_t i = round % 8 ? 0 : 1; i < THREADS; i++) CHECK(pthread_cancel(threads[i]) == 0);
		for (size_t i = 0; i < THREADS; i++) {
			void *result;
			CHECK(pthread_join(threads[i], &result) == 0);
			CHECK_THAT(i || round % 8 || passed == 1, "an allocation is a cancellation point");
			CHECK(result == PTHREAD_CANCELED);
		}
		CHECK_THAT(outstanding == 0, "%ld blocks are lost", (long)outstanding);
		// A thread that was cancelled before it registered its cleanup has nothing to count.
		CHECK(cancelled - before <= THREADS - 1);
		free(malloc(random_between(&state, 1, 100000)));
	}
	return base;
}

int main(void) {
	check_begin();
	if (!CAN_CANCEL_ASYNCHRONOUSLY) NOTE("musl 1.2.3 cannot cancel asynchronously here: that is left out\n");
	CHECK(pipe2(ends, O_NONBLOCK) == 0 && pthread_key_create(&key, destroy) == 0);
	long rounds = scaled(300), first = (rounds + 3) / 4;
	size_t base;
	do base = cancel(rounds, first);
	while (base && grows("threads", base, resident_bytes(), ALLOWED + (size_t)((rounds - first) * THREADS) * ALLOWED_EACH));
	return check_done();
}
