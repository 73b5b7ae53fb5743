/* The measured functions, in three arms: allograft's, glibc's and musl's. */
#ifndef STRINGS_BENCH_H
#define STRINGS_BENCH_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned char byte;
/* Every function takes at most three words and returns one, so on x86_64 and aarch64 one type can call them all. */
typedef uintptr_t function(uintptr_t, uintptr_t, uintptr_t);

enum arm { OURS, GLIBC, MUSL, ARMS };

/* The kinds of a function's arguments, and the content of its blocks: from LENGTH on they end with NUL. */
enum shape {
	COPY,        /* d, s, n */
	FILL,        /* d, byte, n */
	COMPARE,     /* a, b, n: equal blocks */
	FIND,        /* s, byte, n: not there */
	WCHAR_COPY,  /* d, s, n: as above, of wide characters */
	WCHAR_FILL,
	WCHAR_COMPARE,
	WCHAR_FIND,
	SEEK,        /* s, n, needle: its first byte is everywhere, the others nowhere */
	LENGTH,      /* s, n: string, limit beyond it */
	FIND_TEXT,   /* s, byte: not there */
	FIND_SET,    /* s, set of three: none of them is there */
	FIND_LARGER, /* s, set of nine: none of them is there */
	SPAN,        /* s, set of three: all of them are there */
	SPAN_LARGER, /* s, set of nine */
	SEEK_TEXT,   /* s, needle: as SEEK */
	ORDER,       /* a, b, n: equal strings, limit beyond them */
	WRITE,       /* d, s */
	WRITE_LIMIT, /* d, s, n: the string and its NUL fill n */
	APPEND,      /* d, s, n: to 16 bytes that are there */
	WCHAR_LENGTH, /* as above, of wide characters */
	WCHAR_FIND_TEXT,
	WCHAR_ORDER,
};

/* The needle of SEEK and SEEK_TEXT. */
#define NEEDLE "xabcdefg"
#define NEEDLE_LENGTH 8

struct subject {
	const char *name;
	enum shape shape;
	function *arm[ARMS];
};
extern const struct subject subjects[];
extern const size_t subject_count;

struct call {
	uintptr_t x, y, z;
};

/* Nanoseconds per call in each arm: the least of `rounds` rounds, in which the arms take turns. */
struct figures {
	double ns[ARMS];
};

/* One block or pair of blocks of `n` bytes, at offsets `x` and `y` from a cache line, repeatedly. */
struct figures measure_hot(const struct subject *subject, size_t n, size_t x, size_t y, unsigned rounds);
/* Many blocks, spread over more memory than caches hold. */
struct figures measure_cold(const struct subject *subject, size_t n, size_t x, size_t y, unsigned rounds);
/* Blocks of many lengths at many places (see README.md); chained: each call waits for the one before it. */
struct figures measure_mixed(const struct subject *subject, int chained, unsigned rounds);

void bench_prepare(void);

#endif
