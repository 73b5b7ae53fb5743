// Allocation before main and after it: constructors, destructors and exit handlers.
// At most 60 s on a slow machine.
#include "check.h"

#include <pthread.h>

enum { HANDLERS = 40 }; // more than libc has room for without allocating

static char *first, *plain, *grown, *from_thread;
static int at_exit_done, plain_done;

static void *thread(void *unused) {
	(void)unused;
	for (int i = 1; i < 500; i++) free(malloc((size_t)i * 7));
	return strdup("from a thread");
}

// This runs before every other constructor, perhaps even before one of the allocator's own.
__attribute__((constructor(101))) static void construct_first(void) {
	first = malloc(50);
	CHECK(first && is_aligned(first, 16));
	strcpy(first, "first");
	grown = calloc(3, 100);
	CHECK(grown && !grown[0] && !grown[299]);
	pattern_fill(grown, 0, 300, 5);
	grown = realloc(grown, 400000);
	CHECK(grown);
	CHECK_PATTERN(grown, 300, 5);
	pattern_fill(grown, 300, 400000, 5);
	void *aligned = aligned_alloc(8192, 100);
	CHECK(aligned && is_aligned(aligned, 8192));
	free(aligned);
}

__attribute__((constructor)) static void construct(void) {
	plain = strdup("plain");
	CHECK(plain && !strcmp(first, "first"));
	pthread_t id;
	void *result;
	CHECK(pthread_create(&id, 0, thread, 0) == 0 && pthread_join(id, &result) == 0);
	from_thread = result;
	CHECK(from_thread && !strcmp(from_thread, "from a thread"));
	pid_t child = fork();
	if (child == 0) {
		free(first), free(plain), free(from_thread);
		_exit(malloc(100) ? 4 : 1);
	}
	expect_exit(child, 4, "a child of a constructor");
}

static void at_exit(void) {
	CHECK(!strcmp(from_thread, "from a thread"));
	char *next = strdup(from_thread);
	free(from_thread);
	from_thread = next;
	if (++at_exit_done < HANDLERS) return;
	free(from_thread);
}

__attribute__((destructor)) static void destruct(void) {
	CHECK(at_exit_done == HANDLERS && !strcmp(plain, "plain"));
	free(plain);
	plain_done = 1;
}

__attribute__((destructor(101))) static void destruct_last(void) {
	CHECK(plain_done && !strcmp(first, "first"));
	CHECK_PATTERN(grown, 400000, 5);
	first = realloc(first, 10000);
	CHECK(first && !strcmp(first, "first"));
	free(first);
	free(grown);
	char *late = malloc(300000), *small = calloc(1, 10);
	CHECK(late && small && !small[9]);
	free(late);
	free(small);
	check_done();
}

int main(void) {
	check_begin();
	CHECK(first && plain && grown && from_thread);
	for (int i = 0; i < HANDLERS; i++) CHECK(atexit(at_exit) == 0);
	return 0;
}
