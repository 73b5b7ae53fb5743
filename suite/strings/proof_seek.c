/* memmem and strstr. The haystack is one block of the walk, the needle the end of the other one, so that either may be
 * directly before or behind an unmapped page. With few letters, many places nearly match. */
#include "proof.h"

static void write_letters(byte *p, size_t n, unsigned letters)
{
	uint32_t word = noise();
	for (size_t i = 0; i < n; i++) {
		word = word * 1664525u + 1013904223u;
		p[i] = (byte)('a' + (word >> 16) % letters);
	}
}

/* A needle that is somewhere in the haystack, or would be but for one byte. An empty haystack does not contain it. */
static void write_needle(byte *needle, size_t m, const byte *h, size_t n)
{
	size_t from = n > m ? noise() % (n - m + 1) : 0;
	for (size_t i = 0; i < m; i++)
		needle[i] = i + from < n ? h[from + i] : 'a';
	if (m && noise() % 2)
		needle[noise() % m] = 'z';
}

/* Searches byte by byte. */
static const byte *expected(const byte *h, size_t n, const byte *needle, size_t m)
{
	for (size_t i = 0; i + m <= n; i++) {
		size_t k = 0;
		while (k < m && h[i + k] == needle[k])
			k++;
		if (k == m)
			return h + i;
	}
	return 0;
}

static void check_needle(const byte *h, size_t n, const byte *needle, size_t m)
{
	const byte *found = proof_memmem(h, n, needle, m), *right_one = expected(h, n, needle, m);
	if (found != right_one)
		wrong("memmem of %zu bytes in %zu: %td instead of %td", m, n, found ? found - h : -1,
		    right_one ? right_one - h : -1);
}

/* Both end with NULs, which are bytes of the blocks. */
static void check_text(byte *h, size_t n, byte *needle, size_t m)
{
	byte last = h[n - 1], last_of_needle = needle[m - 1];
	h[n - 1] = needle[m - 1] = 0;
	const byte *found = (byte *)proof_strstr((char *)h, (char *)needle), *right_one = expected(h, n - 1, needle, m - 1);
	if (found != right_one)
		wrong("strstr of %zu bytes in %zu: %td instead of %td", m - 1, n - 1, found ? found - h : -1,
		    right_one ? right_one - h : -1);
	h[n - 1] = last, needle[m - 1] = last_of_needle;
}

/* Bytes that would complete the needle: those of its end right behind the haystack, those of its start before it. */
static void decoys(byte *h, size_t n, byte c)
{
	if (h > left.start)
		h[-1] = c;
	if (h + n < left.end)
		h[n] = c;
}

static void check_seek(byte *a, byte *b, size_t n)
{
	const size_t lengths[] = { 0, 1, 2, 3, n < 9 ? n : 9, n ? noise() % n : 0, n };
	/* Longer blocks show nothing new, and the reference is slow. */
	if (n > 8200)
		return;
	write_letters(a, n, 2 + noise() % 3);
	decoys(a, n, 'a');
	/* Some of them each time: there are many placements. */
	for (size_t k = noise() % 3; k < sizeof lengths / sizeof *lengths; k += 3) {
		size_t m = lengths[k] < n ? lengths[k] : n;
		byte *needle = b + n - m;
		write_needle(needle, m, a, n);
		check_needle(a, n, needle, m);
		if (m)
			check_text(a, n, needle, m);
	}
	/* The needle is longer than the haystack. */
	if (n) {
		write_letters(b, n, 1);
		check_needle(a, n - 1, b, n);
	}
	decoys(a, n, CANARY);
	clean(a, n);
	clean(b, n);
}

/* Periodic blocks and needles, for which the search in lanes gives up. */
static void check_repeated(byte *a, byte *b, size_t n)
{
	/* The reference takes quadratic time, so one placement of many must suffice. */
	if (n < 64 || n > 1024 || noise() % 4)
		return;
	size_t period = 1 + noise() % 7, m = 2 + noise() % (n / 2);
	for (size_t i = 0; i < n; i++)
		a[i] = (byte)(i % period ? 'b' : 'a');
	byte *needle = b + n - m;
	for (size_t i = 0; i < m; i++)
		needle[i] = a[i];
	/* Other than the haystack in one byte amid the needle, which one place far behind has, or none. */
	size_t odd = m > 2 ? 1 + noise() % (m - 2) : 0;
	needle[odd] = 'c';
	check_needle(a, n, needle, m);
	size_t at = (n - m) / period * period;
	a[at + odd] = 'c';
	check_needle(a, n, needle, m);
	check_text(a, n, needle, m);
	clean(a, n);
	clean(b, n);
}

void prove_seek(void)
{
	over_pairs("memmem and strstr", check_seek);
	over_pairs("memmem and strstr of what repeats itself", check_repeated);
}
