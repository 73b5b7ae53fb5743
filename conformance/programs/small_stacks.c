// Threads with small stacks: 128 KiB, musl's default, and PTHREAD_STACK_MIN; how deep the calls of the family reach.
// $ALLOGRAFT_STACK is the greatest depth in bytes; otherwise it is an eighth of the default stack.
// At most 60 s on a slow machine.
#include "check.h"

#include <limits.h>
#include <pthread.h>

// The guard is as long as the largest page that a kernel may have.
enum { DEFAULT_STACK = 128 << 10, FIELD = 1 << 20, GUARD = 64 << 10, FILL = 0xa5, ROUNDS = 4 };

// The greatest depth of a call below its caller. By default, a program whose stacks were sized with musl's malloc keeps
// most of theirs.
enum { DEEPEST = 16 << 10 };

static void *shared[64];

static void small(void) { for (size_t n = 1; n < 2000; n += 37) free(malloc(n)); }
static void medium(void) { for (size_t n = 2000; n < 200000; n += 7777) free(malloc(n)); }
static void large(void) { free(malloc(3 << 20)), free(malloc(70 << 20)); }
static void cleared(void) { for (size_t n = 1; n < 500000; n = n * 3 + 1) free(calloc(1, n)); }

static void many(void) {
	static void *blocks[64];
	for (size_t n = 16; n < 40000; n = n * 3 / 2) {
		for (size_t i = 0; i < LENGTH(blocks); i++) blocks[i] = malloc(n);
		for (size_t i = 0; i < LENGTH(blocks); i++) free(blocks[i]);
	}
}

static void aligned(void) {
	for (size_t n = 32; n <= 1 << 20; n *= 2) {
		void *block = aligned_alloc(n, n * 3);
		CHECK(block);
		free(block);
	}
}

static void resized(void) {
	void *block = 0;
	for (size_t n = 1; n < 4 << 20; n = n * 5 + 1) {
		block = realloc(block, n);
		CHECK(block);
	}
	for (size_t n = 4 << 20; n > 10; n /= 7) {
		block = realloc(block, n);
		CHECK(block);
	}
	free(block);
}

static void refused(void) { CHECK(!malloc(PTRDIFF_MAX) && errno == ENOMEM && !calloc(SIZE_MAX / 2, 3)); }
static void of_others(void) { for (size_t i = 0; i < LENGTH(shared); i++) free(shared[i]), shared[i] = 0; }
static void nothing(void) {}

static const struct operation {
	const char *name;
	void (*run)(void);
} operations[] = {
	{"small blocks", small}, {"medium blocks", medium},
	{"large blocks", large}, {"calloc", cleared},
	{"many blocks", many},   {"aligned_alloc", aligned},
	{"realloc", resized},    {"no memory", refused},
	{"nothing", nothing},    {"blocks of another thread", of_others},
};

struct task {
	void (*run)(void);
	unsigned char *low, *frame;
	size_t during;
};

static size_t depth_below(const unsigned char *low, const unsigned char *top) {
	while (low < top && *low == FILL) low++;
	return (size_t)(top - low);
}

__attribute__((noinline)) static void *measure(void *argument) {
	struct task *task = argument;
	unsigned char *frame = __builtin_frame_address(0);
	task->frame = frame;
	task->run();
	task->during = depth_below(task->low, frame);
	// Fills the stack again, since its use so far must not count for the thread's end.
	for (unsigned char *p = task->low; p < frame - 256; p++) *(volatile unsigned char *)p = FILL;
	return 0;
}

// Runs the task on a stack of a megabyte that was filled before, above a guard without access.
static void run_measured(struct task *task, size_t *during, size_t *at_end) {
	unsigned char *field = mmap(0, FIELD + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(field != MAP_FAILED && mprotect(field, GUARD, PROT_NONE) == 0);
	task->low = field + GUARD;
	memset(task->low, FILL, FIELD);
	pthread_attr_t attributes;
	pthread_t thread;
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, task->low, FIELD) == 0);
	CHECK(pthread_create(&thread, &attributes, measure, task) == 0 && pthread_join(thread, 0) == 0);
	*during = task->during;
	*at_end = depth_below(task->low, task->frame);
	CHECK(munmap(field, FIELD + GUARD) == 0);
}

static void *run_plainly(void *argument) {
	((void (*)(void))argument)();
	return 0;
}

static void run_small(size_t size, void (*run)(void)) {
	pthread_attr_t attributes;
	pthread_t thread;
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, size) == 0);
	CHECK(pthread_create(&thread, &attributes, run_plainly, (void *)run) == 0 && pthread_join(thread, 0) == 0);
}

// glibc takes thread-local storage, the donor's too, out of the stack, and starts no thread if little is left.
static int has_room(size_t size) {
#ifdef __GLIBC__
	pthread_attr_t attributes;
	pthread_t thread;
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, size) == 0);
	int error = pthread_create(&thread, &attributes, run_plainly, (void *)nothing);
	CHECK(error == EINVAL || (error == 0 && pthread_join(thread, 0) == 0));
	return error == 0;
#else
	(void)size;
	return 1;
#endif
}

static void share(void) {
	for (size_t i = 0; i < LENGTH(shared); i++) {
		shared[i] = malloc(i % 8 ? 1 + i * 50 : 300000);
		CHECK(shared[i]);
	}
}

static void run_all(size_t size) {
	for (size_t i = 0; i < LENGTH(operations); i++) {
		share();
		run_small(size, operations[i].run);
		of_others();
	}
}

int main(void) {
	check_begin();
	size_t deepest_of_all = 0, most = (size_t)setting("ALLOGRAFT_STACK", DEEPEST);
	for (size_t i = 0; i < LENGTH(operations); i++) {
		size_t deepest = 0, deepest_end = 0, during, at_end;
		for (int round = 0; round < ROUNDS; round++) {
			struct task task = {.run = operations[i].run};
			share();
			run_measured(&task, &during, &at_end);
			if (during > deepest) deepest = during;
			if (at_end > deepest_end) deepest_end = at_end;
			of_others();
		}
		if (deepest > deepest_of_all) deepest_of_all = deepest;
		if (deepest_end > deepest_of_all) deepest_of_all = deepest_end;
		const char *name = operations[i].name;
		if (getenv("ALLOGRAFT_FIGURES"))
			NOTE("%s: %zu bytes of stack, %zu at the thread's end\n", name, deepest, deepest_end);
		CHECK_THAT(deepest <= most, "%s: %zu bytes of stack, at most %zu are allowed", name, deepest, most);
		CHECK_THAT(deepest_end <= most, "%s: %zu bytes of stack at the thread's end, at most %zu are allowed", name,
		           deepest_end, most);
	}
	for (long round = 0; round < scaled(8); round++) run_all(DEFAULT_STACK);
	// A family that fits with a margin for this program's frames has to work. One that needs more cannot be used on
	// such a stack.
	if (deepest_of_all + 256 <= (size_t)PTHREAD_STACK_MIN && has_room(PTHREAD_STACK_MIN)) run_all(PTHREAD_STACK_MIN);
	else if (!has_room(PTHREAD_STACK_MIN)) NOTE("no thread starts with a stack of PTHREAD_STACK_MIN\n");
	else NOTE("the deepest call takes %zu bytes: too much for a stack of PTHREAD_STACK_MIN, %d\n", deepest_of_all,
	          (int)PTHREAD_STACK_MIN);
	return check_done();
}
