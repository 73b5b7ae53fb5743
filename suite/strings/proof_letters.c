/* Without regard to case: strcasecmp, strncasecmp, strcasestr. */
#include "proof.h"

static int sign(int value)
{
	return (value > 0) - (value < 0);
}

/* Only ASCII's letters have a case, in every locale of musl. */
static byte lower(byte c)
{
	return c >= 'A' && c <= 'Z' ? (byte)(c + 'a' - 'A') : c;
}

static byte other_case(byte c)
{
	byte small = lower(c);
	return small < 'a' || small > 'z' ? c : c == small ? (byte)(c - 'a' + 'A') : small;
}

/* Text without NUL, of letters and what is near them in the code, then a NUL. */
static void write_text(byte *p, size_t n)
{
	static const byte near[] = { '@', '[', '`', '{', 0xc1, 0xe1, 0xda, 0xfa, '0', 1, 0x7f, 0x80 };
	uint32_t word = noise();
	for (size_t i = 0; i + 1 < n; i++) {
		word = word * 1664525u + 1013904223u;
		unsigned drawn = (word >> 16) % 64;
		p[i] = drawn < 26 ? (byte)('a' + drawn) : drawn < 52 ? (byte)('A' + drawn - 26) : near[drawn - 52];
	}
	p[n - 1] = 0;
}

/* strcasecmp and strncasecmp of the texts at `a` and `b`, whose first difference or end is at `at`. */
static void check_order(const byte *a, const byte *b, size_t at, bool ends)
{
	int expected = sign(lower(a[at]) - lower(b[at]));
	const char *s = (const char *)a, *t = (const char *)b;
	if (ends && (sign(proof_strcasecmp(s, t)) != expected || sign(proof_strcasecmp(t, s)) != -expected))
		wrong("strcasecmp, %#x and %#x at %zu", a[at], b[at], at);
	const size_t limits[] = { at + 1, at + 2, at + 64, SIZE_MAX }, shorter[] = { at, at / 2, 0 };
	for (size_t k = 0; k < (ends ? 4 : 1); k++)
		if (sign(proof_strncasecmp(s, t, limits[k])) != expected || sign(proof_strncasecmp(t, s, limits[k])) != -expected)
			wrong("strncasecmp, %#x and %#x at %zu, limit %zu", a[at], b[at], at, limits[k]);
	for (size_t k = 0; k < 3; k++)
		if (proof_strncasecmp(s, t, shorter[k]) != 0)
			wrong("strncasecmp, difference at %zu is beyond the limit %zu", at, shorter[k]);
}

static void check_strcasecmp(byte *a, byte *b, size_t n)
{
	if (n == 0)
		return;
	write_text(a, n);
	for (size_t i = 0; i < n; i++)
		b[i] = (i * 7 + n) % 3 ? a[i] : other_case(a[i]);
	/* They differ behind the end. */
	byte *after = a + n < left.end ? a + n : 0;
	if (after)
		*after = 1;
	check_order(a, b, n - 1, true);
	/* No NUL, but a limit. */
	a[n - 1] = 'Q', b[n - 1] = 'q';
	if (proof_strncasecmp((char *)a, (char *)b, n) != 0)
		wrong("strncasecmp, %zu equal bytes without end", n);
	b[n - 1] = 0x80;
	check_order(a, b, n - 1, false);
	a[n - 1] = b[n - 1] = 0;
	static const byte pairs[][2] = { { 'z', '{' }, { '@', '`' }, { '[', 'a' }, { 0, 0xff }, { 'Z', '[' }, { 0xc1, 0xe1 } };
	for (int k = 0; k < 2 && n > 1; k++) {
		size_t at = k ? noise() % (n - 1) : n - 2;
		byte was_a = a[at], was_b = b[at];
		const byte *pair = pairs[noise() % 6];
		a[at] = pair[0], b[at] = pair[1];
		check_order(a, b, at, true);
		a[at] = was_a, b[at] = was_b;
	}
	if (after)
		*after = CANARY;
	clean(a, n);
	clean(b, n);
}

/* Every byte against every other. */
static void prove_every_pair(void)
{
	subject = "strcasecmp, every pair";
	for (unsigned x = 0; x < 256; x++)
		for (unsigned y = 0; y < 256; y++) {
			byte a[72], b[72];
			size_t at = (x * 5 + y) % 70;
			for (size_t i = 0; i < at; i++)
				a[i] = 'k', b[i] = 'K';
			a[at] = (byte)x, b[at] = (byte)y, a[at + 1] = b[at + 1] = 0;
			check_order(a, b, lower((byte)x) == lower((byte)y) && x ? at + 1 : at, true);
		}
}

/* Few letters, of either case. */
static void write_letters(byte *p, size_t n, unsigned letters)
{
	uint32_t word = noise();
	for (size_t i = 0; i < n; i++) {
		word = word * 1664525u + 1013904223u;
		p[i] = (byte)((word >> 30 & 1 ? 'a' : 'A') + (word >> 16) % letters);
	}
}

static void check_needle(byte *h, size_t n, byte *needle, size_t m)
{
	byte last = h[n], last_of_needle = needle[m];
	h[n] = needle[m] = 0;
	const byte *expected = 0;
	/* As musl, where the empty string is not in an empty one. */
	for (size_t i = 0; i + m <= n && i < n && !expected; i++) {
		size_t k = 0;
		while (k < m && lower(h[i + k]) == lower(needle[k]))
			k++;
		if (k == m)
			expected = h + i;
	}
	const byte *found = (byte *)proof_strcasestr((char *)h, (char *)needle);
	if (found != expected)
		wrong("strcasestr of %zu bytes in %zu: %td instead of %td", m, n, found ? found - h : -1,
		    expected ? expected - h : -1);
	h[n] = last, needle[m] = last_of_needle;
}

static void check_strcasestr(byte *a, byte *b, size_t n)
{
	/* Longer texts show nothing new, and the reference is slow. */
	if (n == 0 || n > 8200)
		return;
	const size_t lengths[] = { 0, 1, 2, 3, 9, noise() % n, n - 1 };
	write_letters(a, n, 2 + noise() % 3);
	for (size_t k = noise() % 3; k < sizeof lengths / sizeof *lengths; k += 3) {
		size_t m = lengths[k] < n ? lengths[k] : n - 1, from = noise() % (n - m);
		byte *needle = b + n - 1 - m;
		for (size_t i = 0; i < m; i++)
			needle[i] = noise() % 2 ? a[from + i] : other_case(a[from + i]);
		if (m && noise() % 2)
			needle[noise() % m] = noise() % 2 ? 'z' : '[';
		check_needle(a, n - 1, needle, m);
		clean(needle, m + 1);
	}
	clean(a, n);
}

/* Periodic texts and needles, for which the search in lanes gives up. */
static void check_repeated(byte *a, byte *b, size_t n)
{
	if (n < 64 || n > 1024 || noise() % 4)
		return;
	size_t period = 1 + noise() % 7, m = 2 + noise() % (n / 2 - 2), odd = m > 2 ? 1 + noise() % (m - 2) : 0;
	for (size_t i = 0; i < n; i++)
		a[i] = (byte)((i % period ? 'B' : 'a') ^ (noise() & 0x20));
	byte *needle = b + n - 1 - m;
	for (size_t i = 0; i < m; i++)
		needle[i] = other_case(a[i]);
	needle[odd] = 'c';
	check_needle(a, n - 1, needle, m);
	a[(n - 1 - m) / period * period + odd] = 'C';
	check_needle(a, n - 1, needle, m);
	clean(a, n);
	clean(needle, m + 1);
}

void prove_letters(void)
{
	over_pairs("strcasecmp and strncasecmp", check_strcasecmp);
	prove_every_pair();
	over_pairs("strcasestr", check_strcasestr);
	over_pairs("strcasestr of what repeats itself", check_repeated);
}
