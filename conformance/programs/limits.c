// An address space of 64 MiB more than the program starts with: requests fail with ENOMEM, and work again after that.
// At most 300 s on a slow machine.
#include "check.h"

#include <pthread.h>
#include <sys/resource.h>

enum { ROOM = 64 << 20, MOST = 80 << 20 };

// Takes blocks of one size until there are no more (or enough), touches each, frees all. Gives how many there were.
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
		// Growing what is there fails as cleanly, and loses nothing.
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
	exhaust(3000);
	return unused;
}

static void limited(void) {
	static const size_t sizes[] = {64 << 10, 100, 1 << 20, 5000, 16, 300000};
	struct rlimit limit, old;
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%lu", &pages) != 1) pages = 0;
	if (file) fclose(file);
	CHECK(getrlimit(RLIMIT_AS, &old) == 0);
	limit = old;
	limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ROOM;
	if (setrlimit(RLIMIT_AS, &limit)) {
		NOTE("the limit cannot be set here\n");
		return;
	}
	for (long round = 0; round < scaled(3); round++)
		for (size_t i = 0; i < LENGTH(sizes); i++) {
			// What was freed can be had again at once; in other sizes only if the allocator can join pieces.
			size_t first = exhaust(sizes[i]), again = exhaust(sizes[i]);
			CHECK_THAT(!first || again, "no block of %zu bytes after %zu were freed", sizes[i], first);
		}
	for (long round = 0; round < scaled(3); round++) {
		pthread_t threads[4];
		size_t count = 0;
		while (count < LENGTH(threads) && pthread_create(&threads[count], 0, work, 0) == 0) count++;
		while (count) CHECK(pthread_join(threads[--count], 0) == 0);
	}
	char *text = strdup("libc");
	CHECK(text || errno == ENOMEM);
	free(text);
	CHECK(setrlimit(RLIMIT_AS, &old) == 0);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		void *block = malloc(sizes[i]);
		CHECK_THAT(block, "no block of %zu bytes after the limit was lifted", sizes[i]);
		free(block);
	}
	void *block = malloc(2 * ROOM);
	CHECK(block);
	free(block);
}

int main(void) {
	check_begin();
	int ends[2];
	char text[200];
	CHECK(pipe2(ends, O_NONBLOCK) == 0);
	for (int warm = 0; warm < 2; warm++) {
		pid_t child = fork();
		if (child == 0) {
			// A failure's words go to the real stderr; whatever else is printed goes into the pipe.
			check_stderr = dup(2);
			CHECK(check_stderr >= 0 && dup2(ends[1], 1) == 1 && dup2(ends[1], 2) == 2);
			if (warm) free(malloc(1000)), free(malloc(3 << 20));
			limited();
			_exit(3);
		}
		expect_exit(child, 3, warm ? "limited after the first allocation" : "limited from the start");
		ssize_t length = read(ends[0], text, sizeof text - 1);
		CHECK_THAT(length < 0 && errno == EAGAIN, "the allocator printed: %.*s", (int)(length > 0 ? length : 0), text);
	}
	return check_done();
}
