// Fork handlers that allocate before the fork, in the parent and in the child, while threads allocate.
// At most 300 s on a slow machine.
#include "check.h"

#include <pthread.h>

enum { LEVELS = 3, THREADS = 3 };

static atomic_int stop;
static char *held[LEVELS];
static int prepared, in_parent, in_child;

static void churn(size_t count) {
	char *blocks[32];
	for (size_t i = 0; i < LENGTH(blocks); i++) {
		size_t size = 1 + i * i * count % 1000 + (i == 7 && count % 16 == 0 ? 300000 : 0);
		blocks[i] = i % 4 == 3 ? aligned_alloc(256, size) : malloc(size);
		CHECK(blocks[i]);
		blocks[i][0] = blocks[i][size - 1] = 1;
	}
	for (size_t i = 0; i < LENGTH(blocks); i++) free(blocks[i]);
}

static void prepare(int level) {
	churn((size_t)level + 1);
	held[level] = malloc(100 + (size_t)level * 3000);
	CHECK(held[level]);
	memset(held[level], level, 100);
	prepared++;
}

static void after(int level, int *count) {
	CHECK(held[level] && held[level][99] == level);
	held[level] = realloc(held[level], 9000);
	CHECK(held[level] && held[level][99] == level);
	free(held[level]);
	held[level] = 0;
	churn((size_t)level + 2);
	++*count;
}

#define LEVEL(n)                                                      \
	static void prepare_##n(void) { prepare(n); }                       \
	static void parent_##n(void) { after(n, &in_parent); }              \
	static void child_##n(void) { after(n, &in_child); }
LEVEL(0) LEVEL(1) LEVEL(2)

static void *work(void *argument) {
	size_t count = (size_t)argument;
	while (!stop) churn(++count);
	return 0;
}

int main(void) {
	check_begin();
	// One level is registered before the first allocation, so that handlers of the allocator's own come in between.
	CHECK(pthread_atfork(prepare_0, parent_0, child_0) == 0);
	free(malloc(10));
	CHECK(pthread_atfork(prepare_1, parent_1, child_1) == 0);
	CHECK(pthread_atfork(prepare_2, parent_2, child_2) == 0);
	pthread_t threads[THREADS];
	for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], 0, work, (void *)i) == 0);
	long forks = scaled(1000);
	for (long i = 1; i <= forks; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			CHECK(prepared == i * LEVELS && in_child == LEVELS && in_parent == (i - 1) * LEVELS);
			churn(50);
			_exit(5);
		}
		char what[40];
		snprintf(what, sizeof what, "fork %ld", i);
		expect_exit(child, 5, what);
		CHECK(prepared == i * LEVELS && in_parent == i * LEVELS && in_child == 0);
	}
	stop = 1;
	for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], 0) == 0);
	return check_done();
}
