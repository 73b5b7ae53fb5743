/* Property tests of the string functions against byte-wise references. Linked with donor.c compiled with
 * -DSTRINGS_PROOF, which gives them the prefix `proof_`, so that the libc's own functions are not tested.
 *
 *     proof [FULL [LONGEST]]
 *
 * runs every path that the processor has, each in a process of its own: all lengths to LONGEST (1024), all pairs of
 * alignments for lengths to FULL (128), and beyond that, all alignments of one block with some of the other. Exits 1 at the
 * first wrong answer and prints it. A forbidden read or write ends in a signal, and the function's name is printed. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proof.h"

unsigned full = 128, longest = 1024;
const char *subject = "nothing";
/* The choice of AVX-512's masks. */
#define MASKS 8u
static unsigned path;
static uint64_t checks;

void wrong(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	printf("wrong: %s, path %u: ", subject, path);
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
	exit(1);
}

/* A fault is a wrong answer, too; this prints the function. It makes async-signal-safe calls only. */
static void fault(int number)
{
	const char *name = subject;
	size_t length = 0;
	while (name[length])
		length++;
	ssize_t ignored = write(1, "fault: ", 7) + write(1, name, length) + write(1, "\n", 1);
	(void)ignored;
	signal(number, SIG_DFL);
	raise(number);
}

uint32_t noise(void)
{
	static uint64_t state = 0x9e3779b97f4a7c15u;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

struct region left, right;

/* Memory with an unmapped page before and after it, full of CANARY. */
static struct region guarded(size_t pages)
{
	struct region region;
	byte *all = mmap(0, (pages + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED || mprotect(all + PAGE, pages * PAGE, PROT_READ | PROT_WRITE)) {
		perror("mmap");
		exit(2);
	}
	region.start = all + PAGE;
	region.end = region.start + pages * PAGE;
	region.middle = region.start + pages / 2 * PAGE;
	for (byte *p = region.start; p < region.end; p++)
		*p = CANARY;
	return region;
}

void untouched(const byte *from, const byte *to)
{
	byte seen = 0;
	for (const byte *p = from; p < to; p++)
		seen |= *p ^ CANARY;
	if (seen)
		for (const byte *p = from; p < to; p++)
			if (*p != CANARY)
				wrong("byte %zd of a stretch of %zd that must stay as it is", p - from, to - from);
}

void untouched_around(const struct region *region, const byte *p, size_t n)
{
	size_t before = (size_t)(p - region->start), after = (size_t)(region->end - p) - n;
	untouched(p - (before < MARGIN ? before : MARGIN), p);
	untouched(p + n, p + n + (after < MARGIN ? after : MARGIN));
}

void clean(byte *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = CANARY;
}

/* Returns `n` bytes. Either the first is `shift` behind the unmapped page or `shift` before a page boundary in the middle,
 * or the last is `shift` before the unmapped page. */
static byte *place(const struct region *region, int where, size_t n, unsigned shift)
{
	switch (where) {
	case 0: return region->start + shift;
	case 1: return region->end - n - shift;
	default: return region->middle - shift;
	}
}

/* Three alignments, which differ for each length. */
static bool sampled(unsigned shift, size_t n)
{
	return shift == 0 || shift == n * 7 % 64 || shift == (n * 13 + 31) % 64;
}

static void pairs_of_length(void (*check)(byte *a, byte *b, size_t n), size_t n)
{
	for (unsigned i = 0; i < 64; i++)
		for (unsigned j = 0; j < 64; j++) {
			if (n > full && !sampled(i, n) && !sampled(j, n))
				continue;
			for (int where = 0; where < 3; where++) {
				if (n > full && (i || j) && (i + j + n) % 3 != (unsigned)where)
					continue;
				check(place(&left, where, n, i), place(&right, where, n, j), n);
				checks++;
			}
		}
	for (int where = 0; where < 9; where++) {
		check(place(&left, where / 3, n, 0), place(&right, where % 3, n, 0), n);
		check(place(&left, where / 3, n, noise() % 64), place(&right, where % 3, n, noise() % 64), n);
		checks += 2;
	}
}

/* Lengths around powers of two beyond LONGEST, with few alignments. */
static void long_pairs(void (*check)(byte *a, byte *b, size_t n), size_t limit)
{
	for (size_t size = 2048; size <= limit; size *= size < 65536 ? 2 : 4)
		for (size_t n = size - 2; n <= size + 2; n++)
			for (int where = 0; where < 9; where++)
				for (unsigned round = 0; round < (size < 65536 ? 32 : 3); round++) {
					unsigned i = round ? noise() % 64 : 0, j = round ? noise() % 64 : 0;
					check(place(&left, where / 3, n, i), place(&right, where % 3, n, j), n);
					checks++;
				}
}

void over_pairs(const char *name, void (*check)(byte *a, byte *b, size_t n))
{
	subject = name;
	for (size_t n = 0; n <= longest; n++)
		pairs_of_length(check, n);
	long_pairs(check, longest < 1024 ? 4096 : 1 << 20);
	untouched(left.start, left.end);
	untouched(right.start, right.end);
}

void over_blocks(const char *name, void (*check)(byte *a, size_t n))
{
	subject = name;
	for (size_t n = 0; n <= longest; n++)
		for (unsigned i = 0; i < 64; i++)
			for (int where = 0; where < 3; where++, checks++)
				check(place(&left, where, n, i), n);
	for (size_t size = 2048; size <= (longest < 1024 ? 4096 : 1 << 20); size *= size < 65536 ? 2 : 4)
		for (size_t n = size - 2; n <= size + 2; n++)
			for (int where = 0; where < 3; where++)
				for (unsigned i = 0; i < 64; i += size < 65536 ? 1 : 21, checks++)
					check(place(&left, where, n, i), n);
	untouched(left.start, left.end);
}

static int prove_path(void)
{
	struct timespec from, to;
	clock_gettime(CLOCK_MONOTONIC, &from);
	/* Behind the last choice: none is made, so that every call counts its work before it takes the base path. */
	if (path > proof_choices())
		proof_begin(SIZE_MAX);
	else
		proof_choose(path);
	prove_blocks();
#ifndef WITHOUT_WCHARS
	/* Older versions of musl's own wcscmp overflow; where they stay, there is nothing to prove. */
	prove_wchars();
#endif
	/* For blocks, the choices differ. For strings, only the lanes differ, and these choices have all lanes. */
	if (path == 0 || path >= proof_choices()) {
		prove_texts();
		prove_seek();
		prove_sets();
		prove_letters();
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("path %u: right in %llu placements, %.1f s\n", path, (unsigned long long)checks,
	       (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
	return 0;
}

/* The processor is asked once the base path has had so much work, in calls of any length, or before one long call. */
static int prove_begin(void)
{
	static byte from[4096], to[4096];
	subject = "the choice";
	for (size_t length = 1; length <= sizeof from; length *= 8) {
		size_t calls = 0;
		for (proof_begin(4096); !proof_has_chosen(); calls++) {
			for (size_t i = 0; i < length; i++)
				from[i] = (byte)noise();
			proof_memcpy(to, from, length);
			for (size_t i = 0; i < length; i++)
				if (to[i] != from[i])
					wrong("byte %zu of %zu in call %zu", i, length, calls);
		}
		if (calls == 0 || calls > 4096 / length + 1)
			wrong("made after %zu calls of %zu bytes", calls, length);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		full = (unsigned)atoi(argv[1]);
	if (argc > 2)
		longest = (unsigned)atoi(argv[2]);
	setvbuf(stdout, 0, _IOLBF, 0);
	signal(SIGSEGV, fault);
	signal(SIGBUS, fault);
	left = guarded((1 << 19) / PAGE * 2 + 4 + (1 << 20) / PAGE);
	right = guarded((1 << 19) / PAGE * 2 + 4 + (1 << 20) / PAGE);
	const unsigned best = proof_choices();
	/* Masks are for short blocks alone, and so with all other choices only. */
	for (path = 0; path <= best; path++)
		if ((path & best) == path && (path < MASKS || path == best) && fork() == 0)
			return prove_path();
	if (best != 0 && fork() == 0)
		return prove_path();
	if (best != 0 && fork() == 0)
		return prove_begin();
	int failed = 0, status;
	while (wait(&status) > 0)
		failed |= status;
	return failed ? 1 : 0;
}
