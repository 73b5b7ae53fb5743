/* Strings: strlen, strnlen, strchr, strchrnul, strrchr, strcmp, strncmp, and those that write. A string of length n
 * takes n + 1 bytes, and the walks go over all of these. */
#include "proof.h"

static const byte marks[] = { 0x7f, 0x80, 0xff, 0x01 };

static int sign(int value)
{
	return (value > 0) - (value < 0);
}

/* Text without NUL, `spare` or CANARY, then a NUL. */
static void write_text(byte *p, size_t n, byte spare)
{
	uint32_t word = noise();
	for (size_t i = 0; i + 1 < n; i++) {
		word = word * 1664525u + 1013904223u;
		byte value = (byte)(word >> 24);
		p[i] = value == 0 || value == spare || value == CANARY ? 0x42 : value;
	}
	p[n - 1] = 0;
}

static void check_strlen(byte *a, size_t n)
{
	if (n == 0) {
		if (proof_strnlen((char *)a, 0) != 0)
			wrong("strnlen of nothing");
		return;
	}
	write_text(a, n, 0);
	if (a > left.start)
		a[-1] = 0;
	if (proof_strlen((char *)a) != n - 1)
		wrong("strlen %zu instead of %zu", proof_strlen((char *)a), n - 1);
	const size_t limits[] = { 0, 1, n - 1, n, n + 1, n / 2, n + 64, SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2 };
	for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
		size_t expected = limits[k] < n - 1 ? limits[k] : n - 1;
		if (proof_strnlen((char *)a, limits[k]) != expected)
			wrong("strnlen of length %zu, limit %zu", n - 1, limits[k]);
	}
	/* Without a NUL, up to the last readable byte. */
	a[n - 1] = 1;
	if (proof_strnlen((char *)a, n) != n)
		wrong("strnlen of %zu bytes without end", n);
	if (a > left.start)
		a[-1] = CANARY;
	clean(a, n);
}

static void check_strchr_for(byte *a, size_t n, byte c)
{
	char *s = (char *)a;
	byte *after = a + n < left.end ? a + n : 0, *before = a > left.start ? a - 1 : 0;
	write_text(a, n, c);
	if (after)
		*after = c;
	if (before)
		*before = c;
	char *end = s + n - 1;
	if (proof_strchr(s, c) || proof_strrchr(s, c) || proof_strchrnul(s, c | 0x300) != end)
		wrong("%#x found in a string of %zu without it", c, n - 1);
	if (proof_strchr(s, 0) != end || proof_strrchr(s, 0x100) != end || proof_strchrnul(s, 0) != end)
		wrong("end of a string of %zu not found", n - 1);
	size_t step = n <= 160 ? 1 : n / 7 + 1;
	for (size_t at = 0; at + 1 < n; at += step) {
		size_t upper = n - 2 - (n - 2 - at) / 3;
		byte was = a[at], was_upper = a[upper];
		a[at] = a[upper] = c;
		if (proof_strchr(s, c) != s + at || proof_strchrnul(s, c) != s + at || proof_strrchr(s, c) != s + upper)
			wrong("%#x at %zu and %zu of %zu not found", c, at, upper, n - 1);
		a[upper] = was_upper;
		a[at] = c;
		if (proof_strrchr(s, c) != s + at)
			wrong("strrchr: %#x at %zu of %zu not found", c, at, n - 1);
		a[at] = was;
	}
	if (after)
		*after = CANARY;
	if (before)
		*before = CANARY;
	clean(a, n);
}

static void check_strchr(byte *a, size_t n)
{
	if (n)
		check_strchr_for(a, n, marks[n % sizeof marks]);
}

/* strcmp and strncmp of the texts at `a` and `b`, whose first difference or end is at `at`. */
static void check_order(const byte *a, const byte *b, size_t at, bool ends)
{
	int expected = sign(a[at] - b[at]);
	const char *s = (const char *)a, *t = (const char *)b;
	if (ends && (sign(proof_strcmp(s, t)) != expected || sign(proof_strcmp(t, s)) != -expected))
		wrong("strcmp, %#x and %#x at %zu", a[at], b[at], at);
	const size_t limits[] = { at + 1, at + 2, at + 64, SIZE_MAX };
	for (size_t k = 0; k < (ends ? 4 : 1); k++)
		if (sign(proof_strncmp(s, t, limits[k])) != expected || sign(proof_strncmp(t, s, limits[k])) != -expected)
			wrong("strncmp, %#x and %#x at %zu, limit %zu", a[at], b[at], at, limits[k]);
	const size_t shorter[] = { at, at / 2, 0 };
	for (size_t k = 0; k < 3; k++)
		if (proof_strncmp(s, t, shorter[k]) != 0)
			wrong("strncmp, difference at %zu is beyond the limit %zu", at, shorter[k]);
}

static void check_strcmp(byte *a, byte *b, size_t n)
{
	if (n == 0)
		return;
	write_text(a, n, 0);
	for (size_t i = 0; i < n; i++)
		b[i] = a[i];
	/* They differ behind the end and before the start. */
	byte *after = a + n < left.end ? a + n : 0, *before = a > left.start ? a - 1 : 0;
	if (after)
		*after = 1;
	if (before)
		*before = 1;
	check_order(a, b, n - 1, true);
	/* No NUL, but a limit. */
	a[n - 1] = b[n - 1] = 0x33;
	if (proof_strncmp((char *)a, (char *)b, n) != 0)
		wrong("strncmp, %zu equal bytes without end", n);
	b[n - 1] = 0x80;
	check_order(a, b, n - 1, false);
	a[n - 1] = b[n - 1] = 0;
	for (int k = 0; k < 2 && n > 1; k++) {
		size_t at = k ? noise() % (n - 1) : n - 2;
		byte was_a = a[at], was_b = b[at];
		a[at] = k ? 0x7f : 0, b[at] = k ? 0x80 : 0xff;
		check_order(a, b, at, true);
		a[at] = was_a, b[at] = was_b;
	}
	if (after)
		*after = CANARY;
	if (before)
		*before = CANARY;
	clean(a, n);
	clean(b, n);
}

/* Whether `d` begins with the `n` bytes at `s` and all bytes around are unchanged. Restores CANARY. */
static void check_written(byte *d, const byte *s, size_t n, size_t padded)
{
	byte seen = 0;
	for (size_t i = 0; i < n; i++)
		seen |= d[i] ^ s[i];
	for (size_t i = n; i < padded; i++)
		seen |= d[i];
	if (seen)
		wrong("%zu bytes and %zu of padding from %p to %p", n, padded - n, (void *)s, (void *)d);
	untouched_around(&left, d, padded);
	clean(d, padded);
}

static void check_strcpy(byte *d, byte *s, size_t n)
{
	if (n == 0)
		return;
	write_text(s, n, 0);
	if (proof_stpcpy((char *)d, (char *)s) != (char *)d + n - 1)
		wrong("stpcpy of %zu returns another address", n - 1);
	check_written(d, s, n, n);
	if (proof_strcpy((char *)d, (char *)s) != (char *)d)
		wrong("strcpy of %zu returns another address", n - 1);
	check_written(d, s, n, n);
	untouched_around(&right, s, n);
	clean(s, n);
}

/* Exactly `n` bytes are written, from strings of many lengths and one without a NUL. */
static void check_strncpy(byte *d, byte *s, size_t n)
{
	const size_t lengths[] = { n, n ? n - 1 : 0, n / 2, 0, n > 17 ? n - 17 : 0 };
	for (size_t k = 0; k < (n > 4096 ? 3 : 5); k++) {
		size_t used = lengths[k];
		if (n)
			write_text(s, n, 0);
		if (used < n)
			s[used] = 0, s[n - 1] = used == n - 1 ? 0 : 7;
		else if (n)
			s[n - 1] = 9;
		if (proof_stpncpy((char *)d, (char *)s, n) != (char *)d + used)
			wrong("stpncpy of %zu, limit %zu, returns another address", used, n);
		check_written(d, s, used, n);
		if (proof_strncpy((char *)d, (char *)s, n) != (char *)d)
			wrong("strncpy of %zu, limit %zu, returns another address", used, n);
		check_written(d, s, used, n);
	}
	clean(s, n);
}

/* The destination already has a string of length `held`; strncat's limit is at, below and far above the length. */
static void check_strcat(byte *d, byte *s, size_t n)
{
	if (n < 2 || n > 4200)
		return;
	size_t held = noise() % (n < 80 ? n : 80), added = n - 1 - held;
	byte whole[4300];
	write_text(whole, n, 0);
	/* The appended string ends at the end of the block. */
	byte *t = s + held;
	for (int k = 0; k < 4; k++) {
		for (size_t i = 0; i < held; i++)
			d[i] = whole[i];
		d[held] = 0;
		for (size_t i = 0; i <= added; i++)
			t[i] = whole[held + i];
		char *result;
		if (k == 0)
			result = proof_strcat((char *)d, (char *)t);
		else if (k == 1)
			result = proof_strncat((char *)d, (char *)t, added + noise() % 3);
		else if (k == 2)
			result = proof_strncat((char *)d, (char *)t, SIZE_MAX);
		else
			t[added] = 1, result = proof_strncat((char *)d, (char *)t, added);
		if (result != (char *)d)
			wrong("%zu after %zu returns another address", added, held);
		check_written(d, whole, n, n);
		clean(t, added + 1);
	}
}

void prove_texts(void)
{
	over_blocks("strlen and strnlen", check_strlen);
	over_blocks("strchr, strchrnul and strrchr", check_strchr);
	over_pairs("strcmp and strncmp", check_strcmp);
	over_pairs("strcpy and stpcpy", check_strcpy);
	over_pairs("strncpy and stpncpy", check_strncpy);
	over_pairs("strcat and strncat", check_strcat);
}
