/* Blocks of known length: memcpy, memmove, memccpy, memset, memcmp, bcmp, memchr, memrchr. */
#include "proof.h"

static const byte marks[] = { 0x00, 0x7f, 0x80, 0xff, 0x01 };

static int sign(int value)
{
	return (value > 0) - (value < 0);
}

/* Bytes that never equal the canary, so that every write shows. */
static void scatter(byte *p, size_t n)
{
	uint32_t word = noise();
	for (size_t i = 0; i < n; i++) {
		word = word * 1664525u + 1013904223u;
		byte value = (byte)(word >> 24);
		p[i] = value == CANARY ? 0 : value;
	}
}

static void check_copy(byte *d, byte *s, size_t n, void *(*copy)(void *, const void *, size_t))
{
	scatter(s, n);
	if (copy(d, s, n) != d)
		wrong("returns another address, %zu bytes", n);
	byte seen = 0;
	for (size_t i = 0; i < n; i++)
		seen |= d[i] ^ s[i];
	if (seen)
		wrong("%zu bytes from %p to %p are not the same", n, (void *)s, (void *)d);
	untouched_around(&left, d, n);
	untouched_around(&right, s, n);
	clean(d, n);
	clean(s, n);
}

static void *plain_memcpy(void *d, const void *s, size_t n) { return proof_memcpy(d, s, n); }
static void check_memcpy(byte *a, byte *b, size_t n) { check_copy(a, b, n, plain_memcpy); }
static void check_memmove(byte *a, byte *b, size_t n) { check_copy(a, b, n, proof_memmove); }

/* Source and destination in one region, `distance` apart. A copy made before gives the right answer. */
static void check_overlap(byte *s, ptrdiff_t distance, size_t n)
{
	byte *before = right.start;
	byte *d = s + distance;
	byte *low = d < s ? d : s;
	size_t span = n + (size_t)(distance < 0 ? -distance : distance);
	scatter(low, span);
	for (size_t i = 0; i < span; i++)
		before[i] = low[i];
	if (proof_memmove(d, s, n) != d)
		wrong("returns another address, %zu bytes", n);
	byte seen = 0;
	for (size_t i = 0; i < n; i++)
		seen |= d[i] ^ before[(s - low) + (ptrdiff_t)i];
	for (size_t i = 0; i < span; i++)
		if (low + i < d || low + i >= d + n)
			seen |= low[i] ^ before[i];
	if (seen)
		wrong("%zu bytes, moved by %td, are not the same", n, distance);
	untouched_around(&left, low, span);
	clean(low, span);
	clean(before, span);
}

static void prove_overlap(void)
{
	subject = "memmove, overlapping";
	for (size_t n = 1; n <= longest; n += n < 300 ? 1 : 13)
		for (ptrdiff_t distance = -290; distance <= 290; distance += n < 150 || distance % 16 == 0 ? 1 : 3)
			for (unsigned shift = noise() % 32; shift < 64; shift += 23)
				check_overlap(left.start + 512 + shift, distance, n);
	for (size_t n = 2000; n <= 300000; n = n * 5 / 3)
		for (ptrdiff_t distance = -260; distance <= 260; distance += 1 + (ptrdiff_t)(n / 4000))
			check_overlap(left.middle + noise() % 64, distance * (n % 3 ? 1 : 17), n);
}

/* A byte that stops the copy at several places, and nowhere; the block that is read ends with that byte. */
static void check_memccpy(byte *d, byte *s, size_t n)
{
	byte c = marks[n % sizeof marks];
	for (size_t i = 0; i < n; i++)
		s[i] = c ^ (byte)(1 + i % 91);
	if (proof_memccpy(d, s, c | 0x300, n) != 0)
		wrong("memccpy: %#x found in %zu bytes that hold none", c, n);
	const size_t places[] = { 0, n / 2, n - 1, n ? noise() % n : 0 };
	for (size_t k = n > 4096 ? 3 : 0; k < (n ? 4 : 0); k++) {
		size_t at = places[k];
		const size_t limits[] = { n, at + 1, SIZE_MAX, SIZE_MAX - 63 };
		byte was = s[at];
		for (size_t i = 0; i < n; i++)
			if (d[i] != s[i])
				wrong("memccpy: byte %zu of %zu is not copied", i, n);
		clean(d, n);
		s[at] = c;
		if (proof_memccpy(d, s, c | 0x300, limits[noise() % 4]) != d + at + 1)
			wrong("memccpy: %#x at %zu of %zu", c, at, n);
		for (size_t i = 0; i <= at; i++)
			if (d[i] != s[i])
				wrong("memccpy: byte %zu of %zu before the stop is not copied", i, at);
		untouched_around(&left, d, at + 1);
		untouched(d + at + 1, d + n);
		s[at] = was;
		clean(d, n);
		/* The byte is right behind the limit. */
		s[at] = c;
		if (proof_memccpy(d, s, c, at) != 0)
			wrong("memccpy of %zu bytes goes on to the next", at);
		untouched(d + at, d + n);
		s[at] = was;
		proof_memccpy(d, s, c, n);
	}
	untouched_around(&left, d, n);
	untouched_around(&right, s, n);
	clean(d, n);
	clean(s, n);
}

static void check_memset(byte *a, size_t n)
{
	for (size_t k = 0; k < (n > 4096 ? 1 : sizeof marks); k++) {
		/* Only the low byte of the argument counts. */
		if (proof_memset(a, marks[k] | 0x5a00, n) != a)
			wrong("returns another address, %zu bytes", n);
		byte seen = 0;
		for (size_t i = 0; i < n; i++)
			seen |= a[i] ^ marks[k];
		if (seen)
			wrong("%zu bytes at %p are not all %#x", n, (void *)a, marks[k]);
		untouched_around(&left, a, n);
	}
	clean(a, n);
}

/* One difference at `at`, where one side is larger. All that follows is larger on the other side, beyond the end too. */
static void check_difference(byte *a, byte *b, size_t n, size_t at, byte low, byte high)
{
	byte was_a = a[at], was_b = b[at];
	a[at] = low, b[at] = high;
	bool follow = at + 1 < n;
	byte next_a = 0, next_b = 0;
	if (follow) {
		next_a = a[at + 1], next_b = b[at + 1];
		a[at + 1] = 0xff, b[at + 1] = 0;
	}
	if (sign(proof_memcmp(a, b, n)) != -1 || sign(proof_memcmp(b, a, n)) != 1)
		wrong("%zu bytes, %#x and %#x at %zu", n, low, high, at);
	if (follow)
		a[at + 1] = next_a, b[at + 1] = next_b;
	a[at] = was_a, b[at] = was_b;
}

static void check_memcmp(byte *a, byte *b, size_t n)
{
	scatter(a, n);
	for (size_t i = 0; i < n; i++)
		b[i] = a[i];
	byte *end = a + n < left.end ? a + n : 0, *other = b + n < right.end ? b + n : 0;
	if (end)
		*end = 1;
	if (a > left.start)
		a[-1] = 1;
	if (proof_memcmp(a, b, n) != 0)
		wrong("%zu equal bytes at %p and %p differ", n, (void *)a, (void *)b);
	if (n) {
		check_difference(a, b, n, 0, 0x7f, 0x80);
		check_difference(a, b, n, n - 1, 0x00, 0xff);
		check_difference(a, b, n, noise() % n, 0xfe, 0xff);
		check_difference(a, b, n, noise() % n, 0x00, 0x01);
	}
	if (end)
		*end = CANARY;
	if (a > left.start)
		a[-1] = CANARY;
	(void)other;
	clean(a, n);
	clean(b, n);
}

static void check_bcmp(byte *a, byte *b, size_t n)
{
	scatter(a, n);
	for (size_t i = 0; i < n; i++)
		b[i] = a[i];
	if (a + n < left.end)
		a[n] = 1;
	if (a > left.start)
		a[-1] = 1;
	if (proof_bcmp(a, b, n) != 0)
		wrong("%zu equal bytes at %p and %p differ", n, (void *)a, (void *)b);
	const size_t places[] = { 0, n - 1, n / 2, n ? noise() % n : 0 };
	for (size_t k = 0; k < 4 && n; k++) {
		b[places[k]] ^= (byte)(1u << (noise() & 7));
		if (proof_bcmp(a, b, n) == 0)
			wrong("%zu bytes, different at %zu, are the same", n, places[k]);
		b[places[k]] = a[places[k]];
	}
	if (a + n < left.end)
		a[n] = CANARY;
	if (a > left.start)
		a[-1] = CANARY;
	clean(a, n);
	clean(b, n);
}

/* Every place of a difference, for the lengths with their own code paths. */
static void prove_every_difference(void)
{
	subject = "memcmp, every place";
	for (size_t n = 1; n <= 300; n++)
		for (size_t at = 0; at < n; at++) {
			byte *a = left.end - n - noise() % 2, *b = right.end - n - noise() % 2;
			for (size_t i = 0; i < n; i++)
				a[i] = b[i] = (byte)i;
			check_difference(a, b, n, at, 0x7f, 0x80);
			clean(a, n);
			clean(b, n);
		}
}

/* The block has no `c` except one that is put there. Those directly before and after the block do not count. */
static void check_memchr_for(byte *a, size_t n, byte c)
{
	byte *after = a + n < left.end ? a + n : 0, *before = a > left.start ? a - 1 : 0;
	for (size_t i = 0; i < n; i++)
		a[i] = c ^ 0x55;
	if (after)
		*after = c;
	if (before)
		*before = c;
	if (proof_memchr(a, c | 0x100, n) != 0 || proof_memrchr(a, c | 0x100, n) != 0)
		wrong("%#x found in %zu bytes that hold none", c, n);
	size_t step = n <= 160 ? 1 : n / 7 + 1;
	for (size_t at = 0; at < n; at += step) {
		size_t upper = n - 1 - (n - 1 - at) / 3;
		a[at] = a[upper] = c;
		if (proof_memchr(a, c, n) != a + at || proof_memrchr(a, c, n) != a + upper)
			wrong("%#x at %zu and %zu of %zu not found", c, at, upper, n);
		if (upper == at && proof_memchr(a, c, SIZE_MAX) != a + at)
			wrong("%#x at %zu not found without limit", c, at);
		/* A limit that a short path takes, and which may be in the next page, that cannot be read. */
		size_t limit = at + 1 + noise() % 64;
		if (upper == at && proof_memchr(a, c, limit) != a + at)
			wrong("%#x at %zu not found, limit %zu", c, at, limit);
		a[at] = a[upper] = c ^ 0x55;
	}
	if (after)
		*after = CANARY;
	if (before)
		*before = CANARY;
	clean(a, n);
}

static void check_memchr(byte *a, size_t n)
{
	check_memchr_for(a, n, marks[n % sizeof marks]);
}

void prove_blocks(void)
{
	over_pairs("memcpy", check_memcpy);
	over_pairs("memmove", check_memmove);
	prove_overlap();
	over_pairs("memccpy", check_memccpy);
	over_blocks("memset", check_memset);
	over_pairs("memcmp", check_memcmp);
	over_pairs("bcmp", check_bcmp);
	prove_every_difference();
	over_blocks("memchr and memrchr", check_memchr);
}
