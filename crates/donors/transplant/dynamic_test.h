/* The common part of loader_test.c and merged_test.c: they end with 0 and one line, or with 1 and a line on the
 * failure. */
#ifndef DYNAMIC_TEST_H
#define DYNAMIC_TEST_H

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Noreturn void finish(int status, const char *text)
{
	if (write(status ? 2 : 1, text, strlen(text)) < 0)
		_exit(2);
	_exit(status);
}

#define EXPECT(condition)                                                                                                \
	do {                                                                                                               \
		if (!(condition))                                                                                                \
			finish(1, "allograft self-test: not so: " #condition "\n");                                                     \
	} while (0)

/* Whether every byte of the block is that one. Eight at a time: a graft waits for this test. */
static int holds(const unsigned char *block, size_t n, unsigned char byte)
{
	typedef uint64_t word __attribute__((aligned(1), may_alias));
	uint64_t all = byte * 0x0101010101010101u;
	for (; n >= sizeof(word); n -= sizeof(word), block += sizeof(word)) {
		if (*(const word *)block != all)
			return 0;
	}
	while (n--) {
		if (*block++ != byte)
			return 0;
	}
	return 1;
}

/* Fills, keeps and frees blocks of many sizes, some of them large. `seed` tells threads apart. */
static void exercise(unsigned seed)
{
	enum { COUNT = 128 };
	unsigned char *blocks[COUNT];
	size_t sizes[COUNT];
	for (unsigned i = 0; i < COUNT; i++) {
		size_t n = i < 96 ? i * 13 + seed % 7 : (size_t)i * (i % 4 ? 150 : 1500);
		errno = 77;
		blocks[i] = i % 3 ? malloc(n) : calloc(1, n);
		sizes[i] = n;
		EXPECT(blocks[i] && errno == 77);
		EXPECT(((uintptr_t)blocks[i] & 15) == 0);
		EXPECT(malloc_usable_size(blocks[i]) >= n);
		EXPECT(i % 3 || holds(blocks[i], n, 0));
		memset(blocks[i], (int)(seed + i), n);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		EXPECT(holds(blocks[i], sizes[i], (unsigned char)(seed + i)));
		if (i % 2) {
			blocks[i] = realloc(blocks[i], sizes[i] / 2 + 1);
			EXPECT(blocks[i] && (!sizes[i] || blocks[i][0] == (unsigned char)(seed + i)));
		}
		free(blocks[i]);
	}
}

static void family(void)
{
	volatile size_t huge = PTRDIFF_MAX, many = SIZE_MAX / 2;
	for (size_t power = 16; power <= 65536; power *= 2) {
		void *one = aligned_alloc(power, 100), *other = 0;
		EXPECT(one && !((uintptr_t)one & (power - 1)));
		EXPECT(!posix_memalign(&other, power, 1000) && !((uintptr_t)other & (power - 1)));
		free(one);
		free(other);
		one = memalign(power, 3);
		EXPECT(one && !((uintptr_t)one & (power - 1)));
		free(one);
	}
	errno = 0;
	EXPECT(!malloc(huge) && errno == ENOMEM);
	errno = 0;
	EXPECT(!calloc(many, 3) && errno == ENOMEM);
	void *array = reallocarray(0, 10, 30);
	EXPECT(array);
	free(array);
	/* Blocks of libc's own: a stream, and the environment. */
	char *text = 0;
	size_t size = 0;
	FILE *stream = open_memstream(&text, &size);
	EXPECT(stream && fprintf(stream, "%d", 12345) == 5 && !fclose(stream) && !strcmp(text, "12345"));
	free(text);
	EXPECT(!setenv("ALLOGRAFT_SELF_TEST", "1", 1) && !strcmp(getenv("ALLOGRAFT_SELF_TEST"), "1"));
}

#endif
