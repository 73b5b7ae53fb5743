/* The three arms of every function. glibc's functions are called by address: this calls the version that its IFUNC
 * resolver has chosen for this processor directly, and not through the procedure linkage table. */
#define _GNU_SOURCE
#include <string.h>
#include <strings.h>

#include "bench.h"

#define FUNCTIONS(X)                                                                                                   \
	X(memcpy, COPY) X(memmove, COPY) X(memset, FILL) X(memcmp, COMPARE) X(bcmp, COMPARE) X(memchr, FIND)               \
	X(memrchr, FIND) X(strlen, LENGTH) X(strnlen, LENGTH) X(strchr, FIND_TEXT) X(strchrnul, FIND_TEXT)                 \
	X(strrchr, FIND_TEXT) X(strstr, SEEK_TEXT) X(strcmp, ORDER) X(strncmp, ORDER) X(stpcpy, WRITE) X(strcpy, WRITE)    \
	X(stpncpy, WRITE_LIMIT) X(strncpy, WRITE_LIMIT) X(strcat, APPEND) X(strncat, APPEND)

#define DECLARE(name, shape) extern function proof_##name, musl_##name;
FUNCTIONS(DECLARE)

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

#define SUBJECT(name, shape) { #name, shape, { proof_##name, (function *)(void *)name, musl_##name } },
const struct subject subjects[] = {
	FUNCTIONS(SUBJECT)
	{ "memmem", SEEK, { memmem_of_ours, memmem_of_glibc, memmem_of_musl } },
};
const size_t subject_count = sizeof subjects / sizeof *subjects;
