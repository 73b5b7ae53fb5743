/* The three arms of every function. glibc's functions are called by address: this calls the version that its IFUNC
 * resolver has chosen for this processor directly, and not through the procedure linkage table. */
#define _GNU_SOURCE
#include <string.h>
#include <strings.h>
#include <wchar.h>

#include "bench.h"

#define FUNCTIONS(X)                                                                                                   \
	X(memcpy, COPY) X(memmove, COPY) X(memset, FILL) X(memcmp, COMPARE) X(bcmp, COMPARE) X(memchr, FIND)               \
	X(memrchr, FIND) X(strlen, LENGTH) X(strnlen, LENGTH) X(strchr, FIND_TEXT) X(strchrnul, FIND_TEXT)                 \
	X(strrchr, FIND_TEXT) X(strstr, SEEK_TEXT) X(strcmp, ORDER) X(strncmp, ORDER) X(stpcpy, WRITE) X(strcpy, WRITE)    \
	X(stpncpy, WRITE_LIMIT) X(strncpy, WRITE_LIMIT) X(strcat, APPEND) X(strncat, APPEND) X(strpbrk, FIND_SET)          \
	X(strcasecmp, ORDER) X(strncasecmp, ORDER) X(strcasestr, SEEK_TEXT) X(wcslen, WCHAR_LENGTH)                        \
	X(wcsnlen, WCHAR_LENGTH) X(wcschr, WCHAR_FIND_TEXT) X(wcscmp, WCHAR_ORDER) X(wmemchr, WCHAR_FIND)                  \
	X(wmemcmp, WCHAR_COMPARE) X(wmemcpy, WCHAR_COPY) X(wmemmove, WCHAR_COPY) X(wmemset, WCHAR_FILL)

/* Twice each, with a small set and a larger one. */
#define OF_SETS(X) X(strcspn, FIND_SET, FIND_LARGER) X(strspn, SPAN, SPAN_LARGER)

#define DECLARE(name, shape) extern function proof_##name, musl_##name;
FUNCTIONS(DECLARE)
#define DECLARE_OF_SETS(name, small, larger) DECLARE(name, small)
OF_SETS(DECLARE_OF_SETS)

/* memmem takes four words; with a needle of fixed length, three are enough. */
extern __typeof__(memmem) proof_memmem, musl_memmem;
#define SEEK_BY(arm, whole)                                                                                            \
	static uintptr_t arm(uintptr_t h, uintptr_t n, uintptr_t needle)                                                   \
	{                                                                                                                  \
		return (uintptr_t)whole((const void *)h, n, (const void *)needle, NEEDLE_LENGTH);                              \
	}
SEEK_BY(memmem_of_ours, proof_memmem)
SEEK_BY(memmem_of_glibc, memmem)
SEEK_BY(memmem_of_musl, musl_memmem)

/* memccpy does, too: the byte is one that no block has. */
extern __typeof__(memccpy) proof_memccpy, musl_memccpy;
#define COPY_BY(arm, whole)                                                                                            \
	static uintptr_t arm(uintptr_t d, uintptr_t s, uintptr_t n)                                                        \
	{                                                                                                                  \
		return (uintptr_t)whole((void *)d, (const void *)s, 'q', n);                                                   \
	}
COPY_BY(memccpy_of_ours, proof_memccpy)
COPY_BY(memccpy_of_glibc, memccpy)
COPY_BY(memccpy_of_musl, musl_memccpy)

#define SUBJECT_OF_SETS(name, small, larger)                                                                           \
	SUBJECT(name, small) { #name "_9", larger, { proof_##name, (function *)(void *)name, musl_##name } },
#define SUBJECT(name, shape) { #name, shape, { proof_##name, (function *)(void *)name, musl_##name } },
const struct subject subjects[] = {
	FUNCTIONS(SUBJECT) OF_SETS(SUBJECT_OF_SETS)
	{ "memmem", SEEK, { memmem_of_ours, memmem_of_glibc, memmem_of_musl } },
	{ "memccpy", COPY, { memccpy_of_ours, memccpy_of_glibc, memccpy_of_musl } },
};
const size_t subject_count = sizeof subjects / sizeof *subjects;
