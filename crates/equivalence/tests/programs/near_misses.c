/* What is nearly a string function: each has the function's name, two underscores, and what is wrong with it. None of them may
 * be proven to be it. */
#include <stddef.h>
#include <stdint.h>

typedef unsigned char byte;

int calls;
int mode;

int memcmp__signed_bytes(const signed char *a, const signed char *b, size_t n)
{
	for (; n; n--, a++, b++) {
		if (*a != *b)
			return *a - *b;
	}
	return 0;
}

/* As comparisons of secrets are written: it must not become one that ends early. */
int memcmp__constant_time(const volatile byte *a, const volatile byte *b, size_t n)
{
	int result = 0;
	while (n--) {
		int difference = a[n] - b[n], differs = -(difference != 0);
		result = (result & ~differs) | (difference & differs);
	}
	return result;
}

int bcmp__constant_time(const volatile byte *a, const volatile byte *b, size_t n)
{
	int result = 0;
	for (size_t at = 0; at < n; at++)
		result |= a[at] ^ b[at];
	return result;
}

int memcmp__short_length(const byte *a, const byte *b, unsigned n)
{
	for (; n; n--, a++, b++) {
		if (*a != *b)
			return *a - *b;
	}
	return 0;
}

int memcmp__ends_at_zero(const byte *a, const byte *b, size_t n)
{
	for (; n; n--, a++, b++) {
		if (*a != *b)
			return *a - *b;
		if (!*a)
			return 0;
	}
	return 0;
}

void *memcpy__length_33(byte *d, const byte *s, size_t n)
{
	for (size_t at = 0; at < n; at++)
		d[at] = n == 33 && at == 32 ? 0 : s[at];
	return d;
}

void *memcpy__length_5000(byte *d, const byte *s, size_t n)
{
	for (size_t at = 0; at < n; at++)
		d[at] = n == 5000 && at == 32 ? 0 : s[at];
	return d;
}

void *memcpy__length_beyond_all_inputs(byte *d, const byte *s, size_t n)
{
	for (size_t at = 0; at < n; at++)
		d[at] = n == 12345678 ? 0 : s[at];
	return d;
}

void *memcpy__one_byte_more(byte *d, const byte *s, size_t n)
{
	for (size_t at = 0; at <= n; at++)
		d[at] = s[at];
	return d;
}

void *memcpy__the_end(byte *d, const byte *s, size_t n)
{
	while (n--)
		*d++ = *s++;
	return d;
}

void *memcpy__counts(byte *d, const byte *s, size_t n)
{
	calls++;
	for (size_t at = 0; at < n; at++)
		d[at] = s[at];
	return d;
}

void *memcpy__has_a_mode(byte *d, const byte *s, size_t n)
{
	for (size_t at = 0; at < n; at++)
		d[at] = mode ? 0 : s[at];
	return d;
}

void *memcpy__alignment(byte *d, const byte *s, size_t n)
{
	for (size_t at = 0; at < n; at++)
		d[at] = (uintptr_t)d % 16 == 11 && at == 9 ? 0 : s[at];
	return d;
}

void *memmove__upwards_only(byte *d, const byte *s, size_t n)
{
	for (size_t at = 0; at < n; at++)
		((volatile byte *)d)[at] = ((const volatile byte *)s)[at];
	return d;
}

void *memset__short_length(byte *d, int c, unsigned n)
{
	for (unsigned at = 0; at < n; at++)
		d[at] = (byte)c;
	return d;
}

void *memset__byte_7f(byte *d, int c, size_t n)
{
	for (size_t at = 0; at < n; at++)
		d[at] = (byte)c == 0x7f ? 0x7e : (byte)c;
	return d;
}

void *memchr__whole_int(const byte *s, int c, size_t n)
{
	for (; n; n--, s++) {
		if (*s == c)
			return (void *)s;
	}
	return 0;
}

void *memchr__short_length(const byte *s, int c, unsigned n)
{
	for (; n; n--, s++) {
		if (*s == (byte)c)
			return (void *)s;
	}
	return 0;
}

void *memrchr__from_the_front(const byte *s, int c, size_t n)
{
	for (; n; n--, s++) {
		if (*s == (byte)c)
			return (void *)s;
	}
	return 0;
}

size_t strlen__skips(const char *s)
{
	size_t n = 0;
	while (s[n])
		n += n == 40 ? 2 : 1;
	return n;
}

size_t strlen__seven_bits(const char *s)
{
	size_t n = 0;
	while (s[n] & 0x7f)
		n++;
	return n;
}

size_t strnlen__signed_limit(const char *s, int64_t limit)
{
	int64_t n = 0;
	while (n < limit && s[n])
		n++;
	return (size_t)n;
}

char *strchr__not_the_end(const char *s, int c)
{
	for (; *s; s++) {
		if (*s == (char)c)
			return (char *)s;
	}
	return 0;
}

char *strrchr__first(const char *s, int c)
{
	for (;; s++) {
		if (*s == (char)c)
			return (char *)s;
		if (!*s)
			return 0;
	}
}

int strcmp__signed_bytes(const signed char *a, const signed char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a - *b;
}

int strcmp__ignores_case(const byte *a, const byte *b)
{
	for (;; a++, b++) {
		int x = *a - 'A' < 26u ? *a + 32 : *a, y = *b - 'A' < 26u ? *b + 32 : *b;
		if (x != y || !x)
			return x - y;
	}
}

int strncmp__one_more(const byte *a, const byte *b, size_t n)
{
	for (n++; n; n--, a++, b++) {
		if (*a != *b)
			return *a - *b;
		if (!*a)
			return 0;
	}
	return 0;
}

int strncmp__short_limit(const byte *a, const byte *b, unsigned n)
{
	for (; n; n--, a++, b++) {
		if (*a != *b)
			return *a - *b;
		if (!*a)
			return 0;
	}
	return 0;
}

char *stpcpy__no_end(char *d, const char *s)
{
	while (*s)
		*d++ = *s++;
	return d;
}

char *strcpy__the_end(char *d, const char *s)
{
	while ((*d = *s))
		d++, s++;
	return d;
}

char *strncpy__fills_nothing(char *d, const char *s, size_t n)
{
	char *start = d;
	while (n && (*d = *s))
		n--, d++, s++;
	return start;
}

char *strncat__one_more(char *d, const char *s, size_t n)
{
	char *end = d;
	while (*end)
		end++;
	for (n++; n && *s; n--)
		*end++ = *s++;
	*end = 0;
	return d;
}

size_t strlen__stops_at_9b(const byte *s)
{
	size_t n = 0;
	while ((s[n] != 0) & (s[n] != 0x9b))
		n++;
	return n;
}

void *memchr__ignores_a_bit(const byte *s, int c, size_t n)
{
	for (; n; n--, s++) {
		if ((byte)(*s | 4) == (byte)(c | 4))
			return (void *)s;
	}
	return 0;
}

int memcmp__ignores_case(const byte *a, const byte *b, size_t n)
{
	for (; n; n--, a++, b++) {
		int x = *a - 'A' < 26u ? *a + 32 : *a, y = *b - 'A' < 26u ? *b + 32 : *b;
		if (x != y)
			return x - y;
	}
	return 0;
}

static int lower_with_neighbours(int c)
{
	return c >= '@' && c <= 'Z' ? c | 32 : c;
}

int strcasecmp__a_neighbour_of_letters(const byte *a, const byte *b)
{
	for (; *a && *b && lower_with_neighbours(*a) == lower_with_neighbours(*b); a++, b++);
	return lower_with_neighbours(*a) - lower_with_neighbours(*b);
}

static int lower_in_latin_1(int c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde) ? c | 32 : c;
}

int strcasecmp__latin_1(const byte *a, const byte *b)
{
	for (; *a && *b && lower_in_latin_1(*a) == lower_in_latin_1(*b); a++, b++);
	return lower_in_latin_1(*a) - lower_in_latin_1(*b);
}

int strncasecmp__one_more(const byte *a, const byte *b, size_t n)
{
	for (; *a && *b && n && (*a | 32) == (*b | 32); a++, b++, n--);
	return *a - *b;
}

size_t strspn__seven_bits(const byte *s, const byte *accepted)
{
	size_t n = 0;
	for (; s[n]; n++) {
		const byte *c = accepted;
		while (*c && (*c & 127) != (s[n] & 127))
			c++;
		if (!*c)
			return n;
	}
	return n;
}

size_t strcspn__first_forty(const byte *s, const byte *rejected)
{
	size_t n = 0;
	for (; s[n]; n++) {
		for (size_t at = 0; at < 40 && rejected[at]; at++) {
			if (rejected[at] == s[n])
				return n;
		}
	}
	return n;
}

size_t strspn__one_byte_sets(const byte *s, const byte *accepted)
{
	size_t n = 0;
	for (; *accepted && s[n] == *accepted; n++);
	return n;
}
