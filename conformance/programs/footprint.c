// Address space: little at the start, then in proportion to what the program holds; limits set in main, locked memory.
// At most 120 s on a slow machine.
#include "check.h"

#include <pthread.h>
#include <sys/resource.h>

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

enum { MIB = 1 << 20, START = 16 * MIB, REST = 64 * MIB, HELD = 96 * MIB, LIMIT = 300 * MIB, LOCKED = 32 * MIB };
// Threads that need memory at the same moment may reserve some each: mimalloc's arenas have 32 MiB on 32-bit machines.
enum { THREADS = 8, STACK = 256 << 10, RESERVED_AT_ONCE = sizeof(void *) == 4 ? 64 * MIB : 0 };

// The size of a mapping without a file, unless it is the main thread's stack or the kernel's own.
static size_t size_of_own(const struct mapping *mapping) {
	int is_kernels = strstr(mapping->line, "[stack") || strstr(mapping->line, "[v");
	return mapping->inode || is_kernels ? 0 : mapping->to - mapping->from;
}

static size_t mapped_bytes(void) { return over_mappings(size_of_own); }

static size_t at_start;

static void check_mapped(size_t held, size_t besides, const char *with) {
	size_t mapped = mapped_bytes(), most = at_start + 2 * held + besides + REST;
	if (getenv("ALLOGRAFT_FIGURES")) NOTE("%zu MiB held in %s: %zu MiB mapped\n", held >> 20, with, mapped >> 20);
	CHECK_THAT(mapped <= most, "%zu MiB held in %s, and %zu MiB mapped, of which %zu MiB at the start", held >> 20, with,
	           mapped >> 20, at_start >> 20);
}

// Allocates blocks of one size, `total` bytes in all, and links them.
static void **hold(size_t size, size_t total) {
	void **last = 0;
	for (size_t held = 0; held < total; held += size) {
		void **block = malloc(size);
		CHECK(block);
		*block = last;
		last = block;
	}
	return last;
}

static void release(void **last) {
	while (last) {
		void **block = last;
		last = *block;
		free(block);
	}
}

static const struct {
	size_t size;
	const char *name;
} sizes[] = {{100, "blocks of 100 bytes"}, {3000, "blocks of 3,000 bytes"}, {20000, "blocks of 20,000 bytes"},
             {200000, "blocks of 200,000 bytes"}, {3 * MIB, "blocks of 3 MiB"}, {20 * MIB, "blocks of 20 MiB"}};
static size_t chosen;

static void in_blocks(void) {
	void **blocks = hold(sizes[chosen].size, HELD);
	check_mapped(HELD, 0, sizes[chosen].name);
	release(blocks);
}

static pthread_barrier_t barrier;

static void *hold_and_wait(void *unused) {
	void **blocks = hold(5000, HELD / THREADS);
	pthread_barrier_wait(&barrier); // all hold their share
	pthread_barrier_wait(&barrier); // and the main thread has looked
	release(blocks);
	return unused;
}

static void start(pthread_t *thread, void *(*run)(void *)) {
	pthread_attr_t attributes;
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK) == 0);
	CHECK_THAT(pthread_create(thread, &attributes, run, 0) == 0, "no thread starts");
}

static void in_threads(void) {
	pthread_t threads[THREADS];
	CHECK(pthread_barrier_init(&barrier, 0, THREADS + 1) == 0);
	for (int i = 0; i < THREADS; i++) start(&threads[i], hold_and_wait);
	pthread_barrier_wait(&barrier);
	check_mapped(HELD, THREADS * 2 * STACK + RESERVED_AT_ONCE, "threads");
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], 0) == 0);
}

static void *work(void *unused) {
	for (size_t size = 1; size < 4 * MIB; size *= 3) {
		char *block = malloc(size);
		CHECK(block);
		block[size - 1] = 1;
		free(block);
	}
	return unused;
}

// The work of a program after it has limited itself: memory of its own, a thread, large blocks.
static void go_on(size_t large) {
	pthread_t thread;
	void *own = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_THAT(own != MAP_FAILED, "no memory of the program's own: errno %d", errno);
	CHECK(munmap(own, MIB) == 0);
	start(&thread, work);
	CHECK(pthread_join(thread, 0) == 0);
	char *block = malloc(large);
	CHECK_THAT(block, "no block of %zu MiB: errno %d", large >> 20, errno);
	block[0] = block[large - 1] = 1;
	block = realloc(block, large + large / 2);
	CHECK_THAT(block, "a block of %zu MiB cannot grow: errno %d", large >> 20, errno);
	free(block);
	work(0);
}

static void limited(int resource) {
	struct rlimit limit = {LIMIT, LIMIT};
	free(malloc(1000));
	if (setrlimit(resource, &limit)) NOTE("the limit cannot be set here\n");
	else go_on(50 * MIB);
}

static void limited_address_space(void) { limited(RLIMIT_AS); }
static void limited_data(void) { limited(RLIMIT_DATA); }

// Returns the bytes that are locked in memory (proc(5), /proc/pid/status).
static size_t locked_bytes(void) {
	static char text[8192];
	int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
	close(file);
	char *line = length > 0 ? strstr(text, "VmLck:") : 0;
	return line ? (size_t)strtoul(line + 6, 0, 10) << 10 : 0;
}

static void locked(int flags) {
	free(malloc(1000));
	if (mlockall(flags)) {
		NOTE("memory cannot be locked here\n");
		return;
	}
	size_t now = locked_bytes();
	CHECK_THAT(now <= LOCKED, "%zu MiB are locked", now >> 20);
	go_on(10 * MIB);
	now = locked_bytes();
	CHECK_THAT(now <= LOCKED + REST, "%zu MiB are locked after 15 MiB were in use", now >> 20);
}

static void locked_current(void) { locked(MCL_CURRENT); }
static void locked_future(void) { locked(MCL_CURRENT | MCL_FUTURE); }
static void locked_on_fault(void) { locked(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT); }

int main(void) {
	check_begin();
	free(malloc(100));
	at_start = mapped_bytes();
	if (getenv("ALLOGRAFT_FIGURES")) NOTE("%zu KiB mapped at the start\n", at_start >> 10);
	if (!at_start) NOTE("no /proc/self/maps: address space is not checked\n");
	else if (at_start > START) NOTE("the allocator maps %zu MiB at its start: limits are not tried\n", at_start >> 20);
	if (!at_start || at_start > START) return check_done();
	for (chosen = 0; chosen < LENGTH(sizes); chosen++) expect_silence(sizes[chosen].name, in_blocks);
	expect_silence("blocks of threads", in_threads);
	if (is_emulated()) return check_done();
	expect_silence("address space limited in main", limited_address_space);
	expect_silence("data limited in main", limited_data);
	expect_silence("memory locked", locked_current);
	expect_silence("memory locked from now on", locked_future);
	expect_silence("memory locked when it is used", locked_on_fault);
	return check_done();
}
