// An address space, or data, of 64 MiB more than at the start: requests fail with ENOMEM, and work again after that.
// At most 300 s on a slow machine.
#include "check.h"

#include <pthread.h>
#include <sys/resource.h>

enum { ROOM = 64 << 20, MOST = 80 << 20, THREADS = 12 };

// Allocates blocks of one size until there are no more (or enough), touches each, and frees all. Returns their
// number.
static size_t exhaust(size_t size) {
	size_t count = 0;
	void **last = 0;
	while (count * size < MOST && count < 200000) {
		errno = 0;
		void **block = count % 5 == 4 ? aligned_alloc(4096, size) : count % 5 == 3 ? calloc(1, size) : malloc(size);
		if (!block) {
			CHECK_THAT(errno == ENOMEM, "errno %d, not ENOMEM, at the limit", errno);
			break;
		}
		((char *)block)[size - 1] = 1;
		*block = last;
		last = block;
		count++;
	}
	if (last) {
		// A realloc that cannot grow a block fails as cleanly, and loses nothing.
		void **before = last, *link = *last;
		errno = 0;
		void **moved = realloc(last, MOST);
		if (moved) last = moved;
		else CHECK_THAT(errno == ENOMEM, "realloc: errno %d, not ENOMEM, at the limit", errno);
		CHECK((moved || last == before) && *last == link);
	}
	while (last) {
		void **block = last;
		last = *block;
		free(block);
	}
	return count;
}

static void *work(void *unused) {
	exhaust(20000);
	return unused;
}

static void limited(int resource) {
	static const size_t sizes[] = {64 << 10, 100, 1 << 20, 5000, 16, 300000};
	struct rlimit limit, old;
	unsigned long all = 0, data = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%lu %*u %*u %*u %*u %lu", &all, &data) != 2) all = data = 0;
	if (file) fclose(file);
	unsigned long pages = resource == RLIMIT_AS ? all : data;
	CHECK(getrlimit(resource, &old) == 0);
	limit = old;
	limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ROOM;
	if (setrlimit(resource, &limit)) {
		NOTE("the limit cannot be set here\n");
		return;
	}
	for (long round = 0; round < scaled(3); round++)
		for (size_t i = 0; i < LENGTH(sizes); i++) {
			// Freed memory can be used again at once; for other sizes only if the allocator can join pieces.
			size_t first = exhaust(sizes[i]), again = exhaust(sizes[i]);
			CHECK_THAT(!first || again, "no block of %zu bytes after %zu were freed", sizes[i], first);
		}
	for (long round = 0; round < scaled(3); round++) {
		pthread_t threads[THREADS];
		size_t count = 0;
		while (count < LENGTH(threads) && pthread_create(&threads[count], 0, work, 0) == 0) count++;
		while (count) CHECK(pthread_join(threads[--count], 0) == 0);
	}
	char *text = strdup("libc");
	CHECK(text || errno == ENOMEM);
	free(text);
	CHECK(setrlimit(resource, &old) == 0);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		void *block = malloc(sizes[i]);
		CHECK_THAT(block, "no block of %zu bytes after the limit was lifted", sizes[i]);
		free(block);
	}
	void *block = malloc(2 * ROOM);
	CHECK(block);
	free(block);
}

static void limited_address_space(void) { limited(RLIMIT_AS); }
static void limited_data(void) { limited(RLIMIT_DATA); }

static void warm_up(void) { free(malloc(1000)), free(malloc(3 << 20)); }
static void limited_later(void) { warm_up(), limited_address_space(); }
static void limited_data_later(void) { warm_up(), limited_data(); }

int main(void) {
	check_begin();
	expect_silence("address space limited from the start", limited_address_space);
	expect_silence("address space limited after the first allocation", limited_later);
	expect_silence("data limited from the start", limited_data);
	expect_silence("data limited after the first allocation", limited_data_later);
	return check_done();
}
