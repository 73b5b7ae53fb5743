/* Wide characters: wcslen, wcsnlen, wcschr, wcscmp, wmemchr, wmemcmp, wmemcpy, wmemmove, wmemset. The walk goes over bytes,
 * and so over arrays that are not at a multiple of a character's size: musl's functions work there, too. */
#include "proof.h"

#define SIZE sizeof(wchar_t)

struct character {
	wchar_t value;
} __attribute__((packed, may_alias));

static wchar_t get(const byte *p, size_t at) { return ((const struct character *)p)[at].value; }
static void put(byte *p, size_t at, wchar_t c) { ((struct character *)p)[at].value = c; }

/* Of each, some bytes are zero or what another one has at their place; the order is not that of the bytes. */
static const wchar_t samples[] = { 0x61, 0x100, 0x10000, 0x1000000, 0x7fffffff, (wchar_t)0x80000000, (wchar_t)0xffffffff,
	0x6100, 0x00ffff00, (wchar_t)0x80000001 };
#define SAMPLES (sizeof samples / sizeof *samples)

/* Any of them but `spare`. */
static wchar_t sample(size_t turn, wchar_t spare)
{
	wchar_t c = samples[turn % SAMPLES];
	return c == spare ? 0x5a5a5a5a : c;
}

/* Text without NUL and `spare`, then a NUL. */
static void write_text(byte *p, size_t n, wchar_t spare)
{
	size_t turn = noise();
	for (size_t i = 0; i + 1 < n; i++)
		put(p, i, sample(turn + i * 7, spare));
	put(p, n - 1, 0);
}

static const wchar_t *wide(const byte *p) { return (const wchar_t *)(const void *)p; }

/* Puts `c` right before and right behind an array, if there is room. */
static void around(byte *p, size_t n, wchar_t c)
{
	if ((size_t)(p - left.start) >= SIZE)
		put(p - SIZE, 0, c);
	if ((size_t)(left.end - p) >= (n + 1) * SIZE)
		put(p, n, c);
}

static void leave(byte *p, size_t n)
{
	const wchar_t canaries = (wchar_t)(CANARY * 0x01010101u);
	around(p, n, canaries);
	clean(p, n * SIZE);
}

static void check_wcslen(byte *a, size_t bytes)
{
	size_t n = bytes / SIZE;
	if (n == 0)
		return;
	a += bytes % SIZE;
	write_text(a, n, 0);
	around(a, n, 0);
	if (proof_wcslen(wide(a)) != n - 1)
		wrong("wcslen %zu instead of %zu", proof_wcslen(wide(a)), n - 1);
	const size_t limits[] = { 0, 1, n - 1, n, n + 1, n / 2, n + 64, SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 4, SIZE_MAX / 2 };
	for (size_t k = 0; k < sizeof limits / sizeof *limits; k++)
		if (proof_wcsnlen(wide(a), limits[k]) != (limits[k] < n - 1 ? limits[k] : n - 1))
			wrong("wcsnlen of length %zu, limit %zu", n - 1, limits[k]);
	/* Without a NUL, up to the last readable character. */
	put(a, n - 1, 1);
	if (proof_wcsnlen(wide(a), n) != n)
		wrong("wcsnlen of %zu characters without end", n);
	leave(a, n);
}

static void check_wcschr(byte *a, size_t bytes)
{
	size_t n = bytes / SIZE;
	if (n == 0)
		return;
	a += bytes % SIZE;
	wchar_t c = samples[n % SAMPLES];
	const wchar_t *s = wide(a), *end = s + n - 1;
	write_text(a, n, c);
	around(a, n, c);
	if (proof_wcschr(s, c) || proof_wmemchr(s, c, n) || proof_wcschr(s, 0) != end || proof_wmemchr(s, 0, SIZE_MAX) != end)
		wrong("%#x found in %zu characters without it, or not their end", (unsigned)c, n - 1);
	size_t step = n <= 40 ? 1 : n / 7 + 1;
	for (size_t at = 0; at + 1 < n; at += step) {
		size_t upper = n - 2 - (n - 2 - at) / 3;
		wchar_t was = get(a, at), was_upper = get(a, upper);
		put(a, at, c), put(a, upper, c);
		if (proof_wcschr(s, c) != s + at || proof_wmemchr(s, c, n) != s + at || proof_wmemchr(s, c, SIZE_MAX) != s + at)
			wrong("%#x at %zu of %zu not found", (unsigned)c, at, n - 1);
		/* A limit that a short path takes, and which may be in the next page, that cannot be read. */
		size_t limit = at + 1 + noise() % 16;
		if (proof_wmemchr(s, c, limit) != s + at)
			wrong("wmemchr: %#x at %zu not found, limit %zu", (unsigned)c, at, limit);
		if (proof_wmemchr(s, c, at) != 0)
			wrong("wmemchr: %#x found behind the limit %zu", (unsigned)c, at);
		put(a, upper, was_upper), put(a, at, was);
	}
	leave(a, n);
}

static int order(wchar_t a, wchar_t b) { return (a > b) - (a < b); }
static int sign(int value) { return (value > 0) - (value < 0); }

static void check_order(const byte *a, const byte *b, size_t n, size_t at)
{
	int expected = at < n ? order(get(a, at), get(b, at)) : 0;
	const wchar_t *s = wide(a), *t = wide(b);
	if (sign(proof_wcscmp(s, t)) != expected || sign(proof_wcscmp(t, s)) != -expected)
		wrong("wcscmp of %zu characters, difference at %zu", n, at);
	if (sign(proof_wmemcmp(s, t, n)) != expected || sign(proof_wmemcmp(t, s, n)) != -expected)
		wrong("wmemcmp of %zu characters, difference at %zu", n, at);
	if (proof_wmemcmp(s, t, at < n ? at : n) != 0)
		wrong("wmemcmp, difference at %zu is beyond the limit", at);
}

static void check_wcscmp(byte *a, byte *b, size_t bytes)
{
	size_t n = bytes / SIZE;
	if (n == 0)
		return;
	a += bytes % SIZE;
	write_text(a, n, 0);
	for (size_t i = 0; i < n; i++)
		put(b, i, get(a, i));
	around(a, n, 1);
	check_order(a, b, n, n);
	for (int k = 0; k < 2 && n > 1; k++) {
		size_t at = k ? noise() % (n - 1) : n - 2;
		wchar_t was = get(a, at);
		put(a, at, samples[noise() % SAMPLES]);
		put(b, at, k ? sample(noise(), get(a, at)) : 0);
		check_order(a, b, n, at);
		put(a, at, was), put(b, at, was);
	}
	leave(a, n);
	clean(b, n * SIZE);
}

static void check_wmemcpy(byte *d, byte *s, size_t bytes)
{
	size_t n = bytes / SIZE;
	for (size_t i = 0; i < n; i++)
		put(s, i, (wchar_t)(noise() & 0x5a5a5a5a));
	wchar_t *(*const copies[])(wchar_t *, const wchar_t *, size_t) = { proof_wmemcpy, proof_wmemmove };
	for (int k = 0; k < 2; k++) {
		if (copies[k]((wchar_t *)(void *)d, wide(s), n) != wide(d))
			wrong("another address, %zu characters", n);
		for (size_t i = 0; i < n; i++)
			if (get(d, i) != get(s, i))
				wrong("%zu characters, number %zu is not the same", n, i);
		untouched_around(&left, d, n * SIZE);
		clean(d, n * SIZE);
	}
	clean(s, n * SIZE);
}

static void check_wmemset(byte *d, size_t bytes)
{
	size_t n = bytes / SIZE;
	for (size_t k = n % 3; k < SAMPLES; k += 3) {
		if (proof_wmemset((wchar_t *)(void *)d, samples[k], n) != wide(d))
			wrong("another address, %zu characters", n);
		for (size_t i = 0; i < n; i++)
			if (get(d, i) != samples[k])
				wrong("%zu characters, number %zu is not %#x", n, i, (unsigned)samples[k]);
		untouched_around(&left, d, n * SIZE);
	}
	clean(d, n * SIZE);
}

/* Source and destination in one region, in either direction. */
static void prove_overlap(void)
{
	subject = "wmemmove, overlapping";
	for (size_t n = 1; n <= longest / SIZE; n++)
		for (ptrdiff_t distance = -70; distance <= 70; distance += n < 40 ? 1 : 3) {
			byte *s = left.start + 1024 + noise() % 64, *d = s + distance * (ptrdiff_t)SIZE;
			for (size_t i = 0; i < n; i++)
				put(s, i, (wchar_t)(i * 0x01020408 + 1));
			proof_wmemmove((wchar_t *)(void *)d, wide(s), n);
			for (size_t i = 0; i < n; i++)
				if (get(d, i) != (wchar_t)(i * 0x01020408 + 1))
					wrong("%zu characters, moved by %td, are not the same", n, distance);
			byte *low = d < s ? d : s;
			size_t span = n * SIZE + (size_t)(d < s ? s - d : d - s);
			untouched_around(&left, low, span);
			clean(low, span);
		}
}

void prove_wchars(void)
{
	over_blocks("wcslen and wcsnlen", check_wcslen);
	over_blocks("wcschr and wmemchr", check_wcschr);
	over_pairs("wcscmp and wmemcmp", check_wcscmp);
	over_pairs("wmemcpy and wmemmove", check_wmemcpy);
	prove_overlap();
	over_blocks("wmemset", check_wmemset);
}
