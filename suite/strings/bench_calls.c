/* The timed calls: their arguments, their repetition, and the clock. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench.h"

/* Larger than the third-level caches of most machines. */
#define ARENA (160u << 20)
#define CALLS 8192

static byte *from, *to;
static struct call calls[CALLS];
static volatile uintptr_t nothing;

static uint32_t noise(void)
{
	static uint64_t state = 88172645463325252u;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static byte *arena(void)
{
	byte *p = mmap(0, ARENA + (4u << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	madvise(p, ARENA + (4u << 20), MADV_HUGEPAGE);
	memset(p, 'x', ARENA + (4u << 20));
	return p;
}

void bench_prepare(void)
{
	from = arena();
	to = arena();
}

static bool is_of_wchars(enum shape shape)
{
	return (shape >= WCHAR_COPY && shape <= WCHAR_FIND) || shape >= WCHAR_LENGTH;
}

static bool compares(enum shape shape)
{
	return shape == COMPARE || shape == ORDER || shape == WCHAR_COMPARE || shape == WCHAR_ORDER;
}

/* Whether the place of what stops the function may be chosen. */
static bool stops(enum shape shape)
{
	return compares(shape) || shape == FIND || shape == WCHAR_FIND || shape == WCHAR_FIND_TEXT ||
	    (shape >= FIND_TEXT && shape <= SPAN_LARGER);
}

/* Makes blocks for the function's kind. `at` < n is the place of a difference or of the wanted byte. Wide characters consist
 * of four bytes of the same value, and begin at multiples of their size. */
static struct call prepare(enum shape shape, byte *a, byte *b, size_t n, size_t at)
{
	bool text = shape >= LENGTH;
	size_t size = 1;
	if (is_of_wchars(shape)) {
		size = sizeof(wchar_t);
		n -= n % size, at -= at % size, a -= (uintptr_t)a % size, b -= (uintptr_t)b % size;
	}
	memset(b, 'x', n);
	memset(b + n, text ? 0 : 'y', size);
	if (compares(shape)) {
		memset(a, 'x', n);
		memset(a + n, text ? 0 : 'z', size);
	}
	if (shape == APPEND) {
		memset(a, 'a', 16);
		a[16] = 0;
	}
	if (at < n && stops(shape))
		memset(b + at, 'q', size);
	if ((shape == SEEK || shape == SEEK_TEXT) && at + NEEDLE_LENGTH <= n)
		memcpy(b + at, NEEDLE, NEEDLE_LENGTH);
	struct call call = { (uintptr_t)a, (uintptr_t)b, n / size };
	switch (shape) {
	case FILL: call.y = 'f'; break;
	case WCHAR_FILL: call.y = 'f'; break;
	case FIND:
	case FIND_TEXT: call.x = (uintptr_t)b, call.y = 'q'; break;
	case WCHAR_FIND:
	case WCHAR_FIND_TEXT: call.x = (uintptr_t)b, call.y = 0x71717171; break;
	case FIND_SET: call.x = (uintptr_t)b, call.y = (uintptr_t)",;q"; break;
	case FIND_LARGER: call.x = (uintptr_t)b, call.y = (uintptr_t)" \t\r\n,;<>q"; break;
	case SPAN: call.x = (uintptr_t)b, call.y = (uintptr_t)" \tx"; break;
	case SPAN_LARGER: call.x = (uintptr_t)b, call.y = (uintptr_t)"01234567x"; break;
	case SEEK: call.x = (uintptr_t)b, call.y = n, call.z = (uintptr_t)NEEDLE; break;
	case SEEK_TEXT: call.x = (uintptr_t)b, call.y = (uintptr_t)NEEDLE; break;
	case LENGTH:
	case WCHAR_LENGTH: call.x = (uintptr_t)b, call.y = call.z + 100; break;
	case ORDER: call.z = n + 100; break;
	case WRITE_LIMIT: call.z = n + 1; break;
	case APPEND: call.z = n + 100; break;
	default: break;
	}
	return call;
}

/* Appending changes where the next call would append, so the destinations are cut back, outside the measured time. */
static void cut_back(enum shape shape, const struct call *list, size_t count)
{
	for (size_t i = 0; shape == APPEND && i < count; i++)
		((byte *)list[i].x)[16] = 0;
}

/* Evicts a block from all caches, if the argument is one. */
static void evict(uintptr_t argument, size_t n)
{
	const byte *p = (const byte *)argument;
	if ((p < from || p >= from + ARENA) && (p < to || p >= to + ARENA))
		return;
	for (size_t i = 0; i < n + 64; i += 64)
#if defined(__x86_64__)
		__asm__ volatile("clflush (%0)" : : "r"(p + i) : "memory");
	__asm__ volatile("mfence" : : : "memory");
#elif defined(__aarch64__)
		__asm__ volatile("dc civac, %0" : : "r"(p + i) : "memory");
	__asm__ volatile("dsb ish" : : : "memory");
#endif
}

static void run(function *f, const struct call *list, size_t count, size_t repeat)
{
	for (size_t k = 0; k < repeat; k++)
		for (size_t i = 0; i < count; i++)
			f(list[i].x, list[i].y, list[i].z);
}

/* Each call's first argument depends on the result of the call before. */
static void run_chained(function *f, const struct call *list, size_t count)
{
	uintptr_t zero = nothing, result = 0;
	for (size_t i = 0; i < count; i++)
		result = f(list[i].x + (result & zero), list[i].y, list[i].z);
}

/* Branch predictors would learn a repeated list: they remember thousands of lengths in order, and no program has such an
 * order. So each round has a new order. */
static void shuffle(size_t count)
{
	for (size_t i = count - 1; i > 0; i--) {
		size_t other = noise() % (i + 1);
		struct call swapped = calls[i];
		calls[i] = calls[other], calls[other] = swapped;
	}
}

static void least(struct figures *figures, int arm, double ns)
{
	if (figures->ns[arm] == 0 || ns < figures->ns[arm])
		figures->ns[arm] = ns;
}

/* How a list is run: how many times, whether each call waits for the one before, and the size of blocks that are evicted
 * from all caches. */
struct manner {
	size_t repeat;
	bool chained;
	size_t evicted;
};

/* The arms take turns, and each round begins with the next one. */
static struct figures rounds_of(const struct subject *subject, size_t count, struct manner manner, unsigned rounds)
{
	struct figures figures = { { 0 } };
	for (unsigned round = 0; round < rounds; round++) {
		shuffle(count);
		for (int k = 0; k < ARMS; k++) {
			int arm = (int)(round + (unsigned)k) % ARMS;
			cut_back(subject->shape, calls, count);
			for (size_t i = 0; manner.evicted && i < count; i++) {
				evict(calls[i].x, manner.evicted);
				evict(calls[i].y, manner.evicted);
			}
			double start = now();
			if (manner.chained)
				run_chained(subject->arm[arm], calls, count);
			else
				run(subject->arm[arm], calls, count, manner.repeat);
			least(&figures, arm, (now() - start) / (double)(count * manner.repeat));
		}
	}
	return figures;
}

struct figures measure_hot(const struct subject *subject, size_t n, size_t x, size_t y, unsigned rounds)
{
	/* Destination and source half a page apart, so that the processor takes no store for the next load's. */
	size_t slot = (n + 64 + 127) / 64 * 64, count = 1;
	if (subject->shape == APPEND)
		count = n <= 64 ? 128 : n <= 4096 ? 16384 / n : 4;
	for (size_t i = 0; i < count; i++)
		calls[i] = prepare(subject->shape, to + 2048 + i * slot + x, from + y, n, n);
	size_t repeat = subject->shape == APPEND ? 1 : 1 + 12000 / (n / 16 + 8);
	return rounds_of(subject, count, (struct manner){ repeat, false, 0 }, rounds * (subject->shape == APPEND ? 10 : 1));
}

struct figures measure_cold(const struct subject *subject, size_t n, size_t x, size_t y, unsigned rounds)
{
	size_t slot = (n + 128 + 4095) / 4096 * 4096 + 320, count = (ARENA / 4 - 8192) / slot;
	if (count > 2048)
		slot = (ARENA - 8192) / 2048 / 64 * 64, count = 2048;
	for (size_t i = 0; i < count; i++)
		calls[i] = prepare(subject->shape, to + 2048 + i * slot + x, from + i * slot + y, n, n);
	return rounds_of(subject, count, (struct manner){ 1, false, n }, rounds);
}

/* The lengths in programs, which are mostly short: a percentage of the calls, and the range of their even distribution. */
static const struct share {
	unsigned percent, low, high;
} shares[] = {
	{ 28, 1, 8 }, { 26, 9, 16 }, { 20, 17, 32 }, { 14, 33, 64 }, { 6, 65, 128 },
	{ 4, 129, 512 }, { 1, 513, 1024 }, { 1, 1025, 4096 },
};

static size_t mixed_length(void)
{
	unsigned drawn = noise() % 100;
	const struct share *share = shares;
	while (drawn >= share->percent)
		drawn -= share++->percent;
	return share->low + noise() % (share->high - share->low + 1);
}

struct figures measure_mixed(const struct subject *subject, int chained, unsigned rounds)
{
	/* Half of the searches succeed, and half of the comparisons find a difference, at any place. All blocks together
	 * take about half a megabyte on either side. */
	const size_t count = 4096;
	byte *a = to + 64, *b = from + 64;
	for (size_t i = 0; i < count; i++) {
		size_t n = mixed_length();
		a += noise() % 64, b += noise() % 64;
		calls[i] = prepare(subject->shape, a, b, n, noise() % 2 ? noise() % n : n);
		a += n + 64, b += n + 64;
	}
	return rounds_of(subject, count, (struct manner){ 1, chained, 0 }, rounds);
}
