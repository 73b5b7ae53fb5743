// Calls of malloc's family with arguments at the edge. Prints a line for each: the call, and what it answered. Pointers and
// sizes are reduced to what a program may rely on, so that two runs print the same.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef DYNAMIC
#include <dlfcn.h>
#endif

// Beside glibc's <malloc.h>, whose functions would have types.
extern void *memalign(size_t, size_t), *valloc(size_t);
extern size_t malloc_usable_size(void *);

#define UNKNOWN_ERRNO 4242

static char answer[200];

static const char *error(int number) {
	switch (number) {
	case UNKNOWN_ERRNO: return "";
	case ENOMEM: return ", ENOMEM";
	case EINVAL: return ", EINVAL";
	default: return ", another errno";
	}
}

static void say(const char *call, const char *text) {
	int number = errno;
	printf("%s\t%s%s\n", call, text, error(number));
	errno = UNKNOWN_ERRNO;
}

// Whether each of 16 such blocks is aligned to a power of two; else what all are aligned to.
#define ALIGNED(call, power, expression)                                       \
	do {                                                                        \
		void *blocks[16];                                                         \
		uintptr_t bits = (power);                                                 \
		int given = 0;                                                            \
		errno = UNKNOWN_ERRNO;                                                    \
		for (int i = 0; i < 16; i++) {                                            \
			blocks[i] = (expression);                                               \
			given += blocks[i] != 0;                                                \
			bits |= (uintptr_t)blocks[i];                                           \
		}                                                                         \
		snprintf(answer, sizeof answer, given == 16 ? "aligned to %zu" : "null",  \
		         (size_t)(bits & -bits));                                          \
		say(call, answer);                                                        \
		for (int i = 0; i < 16; i++) free(blocks[i]);                             \
	} while (0)

#define POINTER(call, expression)               \
	do {                                          \
		errno = UNKNOWN_ERRNO;                      \
		void *block = (expression);                 \
		say(call, block ? "a block" : "null");      \
		free(block);                                \
	} while (0)

#define NUMBER(call, expression)                                    \
	do {                                                              \
		errno = UNKNOWN_ERRNO;                                          \
		snprintf(answer, sizeof answer, "%lld", (long long)(expression)); \
		say(call, answer);                                              \
	} while (0)

// The compiler must not know what is asked.
static size_t number(size_t value) {
	volatile size_t hidden = value;
	return hidden;
}

static int posix(size_t alignment, size_t size) {
	void *block = (void *)1;
	int result = posix_memalign(&block, alignment, size);
	if (result == 0) free(block);
	else if (block != (void *)1) return -1; // It has to stay unchanged.
	return result;
}

static const char *posix_name(int result) {
	const char *known = result == EINVAL ? "returns EINVAL" : result == ENOMEM ? "returns ENOMEM" : "something else";
	return result == 0 ? "a block" : known;
}

#define POSIX(call, alignment, size)                          \
	do {                                                        \
		errno = UNKNOWN_ERRNO;                                    \
		int result = posix(alignment, size);                      \
		say(call, posix_name(result));                            \
	} while (0)

static void blocks(void) {
	POINTER("`malloc(0)`", malloc(number(0)));
	POINTER("`calloc(0, 8)`", calloc(number(0), 8));
	POINTER("`realloc(NULL, 0)`", realloc(0, number(0)));
	POINTER("`realloc(block, 0)`", realloc(malloc(100), number(0)));
	POINTER("`reallocarray(block, 0, 8)`", reallocarray(malloc(100), number(0), 8));
	POINTER("`malloc(PTRDIFF_MAX)`", malloc(number(PTRDIFF_MAX)));
	POINTER("`malloc(SIZE_MAX)`", malloc(number(SIZE_MAX)));
	POINTER("`calloc(SIZE_MAX / 2, 3)`", calloc(number(SIZE_MAX / 2), 3));
	POINTER("`reallocarray(NULL, SIZE_MAX / 2, 3)`", reallocarray(0, number(SIZE_MAX / 2), 3));
	void *kept = malloc(100);
	memset(kept, 7, 100);
	errno = UNKNOWN_ERRNO;
	void *moved = realloc(kept, number(SIZE_MAX));
	say("`realloc(block, SIZE_MAX)`", moved ? "a block" : ((char *)kept)[99] == 7 ? "null, the block stays" : "null");
	free(kept);
	errno = UNKNOWN_ERRNO;
	free(0);
	say("`free(NULL)`", "nothing");
	void *large = malloc(number(64 << 20));
	errno = UNKNOWN_ERRNO;
	free(large);
	say("`free` of 64 MiB", "nothing");
}

static void alignments(void) {
	ALIGNED("`malloc(1)`", 16, malloc(number(1)));
	ALIGNED("`malloc(24)`", 16, malloc(number(24)));
	ALIGNED("`memalign(0, 100)`", 16, memalign(number(0), 100));
	ALIGNED("`memalign(24, 100)`", 32, memalign(number(24), 100));
	ALIGNED("`memalign(64, 0)`", 64, memalign(number(64), 0));
	POINTER("`memalign(SIZE_MAX, 100)`", memalign(number(SIZE_MAX), 100));
	ALIGNED("`aligned_alloc(0, 100)`", 16, aligned_alloc(number(0), 100));
	ALIGNED("`aligned_alloc(24, 100)`", 32, aligned_alloc(number(24), 100));
	ALIGNED("`aligned_alloc(64, 100)`", 64, aligned_alloc(number(64), 100));
	POINTER("`aligned_alloc(64, SIZE_MAX)`", aligned_alloc(number(64), number(SIZE_MAX)));
	POSIX("`posix_memalign(.., 0, 100)`", number(0), 100);
	POSIX("`posix_memalign(.., 4, 100)`", number(4), 100);
	POSIX("`posix_memalign(.., 24, 100)`", number(24), 100);
	POSIX("`posix_memalign(.., 64, 0)`", number(64), 0);
	POSIX("`posix_memalign(.., 64, SIZE_MAX)`", number(64), number(SIZE_MAX));
	ALIGNED("`valloc(1)`", 4096, valloc(number(1)));
}

// The sizes depend on the allocator; that a program may use all of them does not.
static void usable(void) {
	NUMBER("`malloc_usable_size(NULL)`", malloc_usable_size(0));
	int holds = 1;
	for (size_t size = 0; size < 100000; size = size * 5 / 4 + 1) {
		char *block = malloc(size);
		size_t whole = malloc_usable_size(block);
		memset(block, 1, whole);
		holds &= whole >= size;
		free(block);
	}
	errno = UNKNOWN_ERRNO;
	say("`malloc_usable_size(block)`", holds ? "at least what was asked for" : "less");
}

// A function that musl has not. Grafts of a libc.a may have it.
#ifdef DYNAMIC
#define FUNCTION(name) dlsym(RTLD_DEFAULT, #name)
#else
extern char malloc_trim[] __attribute__((weak)), mallopt[] __attribute__((weak)), mallinfo[] __attribute__((weak)),
	mallinfo2[] __attribute__((weak)), malloc_info[] __attribute__((weak)), malloc_stats[] __attribute__((weak));
#define FUNCTION(name) ((void *)name)
#endif

static int exists(const char *call, void *function) {
	errno = UNKNOWN_ERRNO;
	if (!function) say(call, "no such function");
	return function != 0;
}

struct figures {
	size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct narrow_figures {
	int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

static void tuned(void) {
	int (*option)(int, int) = (int (*)(int, int))FUNCTION(mallopt);
	int (*trim)(size_t) = (int (*)(size_t))FUNCTION(malloc_trim);
	if (exists("`mallopt`", option)) {
		NUMBER("`mallopt(M_TRIM_THRESHOLD, 1 << 20)`", option(-1, 1 << 20));
		NUMBER("`mallopt(M_ARENA_MAX, 1)`", option(-8, 1));
		NUMBER("`mallopt(M_MXFAST, 1 << 20)`", option(1, 1 << 20));
		NUMBER("`mallopt(4711, 1)`", option(4711, 1));
	}
	if (exists("`malloc_trim`", trim)) {
		enum { COUNT = 20000 };
		static void *many[COUNT];
		for (int i = 0; i < COUNT; i++) memset(many[i] = malloc(1000), 1, 1000);
		// The last one stays, so that stock cannot give the top of its heap back by itself.
		for (int i = 0; i < COUNT - 1; i++) free(many[i]);
		errno = UNKNOWN_ERRNO;
		int first = trim(0);
		snprintf(answer, sizeof answer, "%d", first);
		say("`malloc_trim(0)` after 20 MB were freed", answer);
		free(many[COUNT - 1]);
		trim(0);
		NUMBER("`malloc_trim(0)`, again", trim(0));
#ifdef DYNAMIC
		void *by_handle = dlsym(dlopen("libc.so.6", RTLD_LAZY), "malloc_trim");
		errno = UNKNOWN_ERRNO;
		say("`malloc_trim` by libc's handle", by_handle == (void *)trim ? "the process's" : "another one");
#endif
	}
}

static void reported(void) {
	struct figures (*wide)(void) = (struct figures(*)(void))FUNCTION(mallinfo2);
	struct narrow_figures (*narrow)(void) = (struct narrow_figures(*)(void))FUNCTION(mallinfo);
	int (*info)(int, FILE *) = (int (*)(int, FILE *))FUNCTION(malloc_info);
	void (*stats)(void) = (void (*)(void))FUNCTION(malloc_stats);
	enum { SIZE = 10 << 20 };
	char *blocks[10];
	for (int i = 0; i < 10; i++) memset(blocks[i] = malloc(SIZE), 1, SIZE);
	if (exists("`mallinfo2`", wide)) {
		struct figures now = wide();
		errno = UNKNOWN_ERRNO;
		say("`mallinfo2`, with 100 MiB in use",
		    now.arena + now.hblkhd >= 10 * SIZE ? "at least as much from the system" : "less from the system");
		say("`mallinfo2`: blocks in use", now.uordblks + now.hblkhd >= 10 * SIZE ? "at least 100 MiB" : "less");
		say("`mallinfo2`: `arena`", now.arena == now.uordblks + now.fordblks ? "`uordblks + fordblks`" : "another sum");
	}
	if (exists("`mallinfo`", narrow)) {
		struct narrow_figures now = narrow();
		errno = UNKNOWN_ERRNO;
		say("`mallinfo`, with 100 MiB in use",
		    now.arena >= 10 * SIZE - now.hblkhd ? "at least as much from the system" : "less from the system");
	}
	if (exists("`malloc_info`", info)) {
		char *text = 0;
		size_t length = 0;
		FILE *stream = open_memstream(&text, &length);
		int result = info(0, stream);
		fclose(stream);
		int is_whole = length && strstr(text, "<malloc version=\"1\">") == text && strstr(text, "</malloc>\n");
		// The last element of that name is about the whole heap.
		size_t most = 0;
		for (char *at = text; (at = strstr(at, "<aspace type=\"total\" size=\"")); at++) most = strtoul(at + 27, 0, 10);
		for (char *at = text; (at = strstr(at, "<total type=\"mmap\"")); at++) most += strtoul(strstr(at, "size=\"") + 6, 0, 10);
		errno = UNKNOWN_ERRNO;
		say("`malloc_info(0, ..)`, with 100 MiB in use",
		    result ? "fails" : !is_whole ? "is not XML" : most >= 10 * SIZE ? "XML, at least as much from the system" : "less");
		NUMBER("`malloc_info(1, ..)`", info(1, stdout));
	}
	if (exists("`malloc_stats`", stats)) {
		// Its text goes to standard error.
		char text[4096] = "";
		int ends[2], before = dup(2);
		ssize_t length = -1;
		fflush(stderr);
		if (!pipe(ends) && dup2(ends[1], 2) == 2) {
			stats();
			fflush(stderr);
			length = read(ends[0], text, sizeof text - 1);
			dup2(before, 2);
		}
		char *line = length > 0 ? strstr(text, "Total") : 0;
		line = strstr(line ? line : text, "system bytes");
		size_t most = line ? strtoul(strchr(line, '=') + 1, 0, 10) : 0;
		errno = UNKNOWN_ERRNO;
		say("`malloc_stats`, with 100 MiB in use",
		    most >= 10 * SIZE ? "at least as much from the system" : "less from the system");
	}
	for (int i = 0; i < 10; i++) free(blocks[i]);
}

// While a donor counts, the figures are exact: prints whether they follow a block.
static void counted(void) {
	struct figures (*wide)(void) = (struct figures(*)(void))FUNCTION(mallinfo2);
	struct figures before = wide();
	char *volatile block = malloc(10 << 20);
	size_t with = wide().uordblks;
	free(block);
	size_t after = wide().uordblks;
	int follows = with >= before.uordblks + (10 << 20) && with < before.uordblks + (20 << 20) && after == before.uordblks;
	printf("%s\n", follows ? "follows" : "does not");
}

int main(int count, char **words) {
	(void)words;
	if (count > 1) {
		counted();
		return 0;
	}
	blocks();
	alignments();
	usable();
	tuned();
	reported();
	return 0;
}
