/* String functions in the ways in which libraries write them: by bytes, by words, by jumps to each other. All of them
 * have to be proven, whatever code a compiler generates. */
#include <stddef.h>
#include <stdint.h>

typedef unsigned char byte;
typedef uint64_t __attribute__((may_alias)) word;
#define ONES ((word)-1 / 255)
#define HIGHS (ONES * 128)
#define HAS_ZERO(x) (((x) - ONES) & ~(x) & HIGHS)

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	byte *d = to;
	const byte *s = from;
	for (; n; n--)
		*d++ = *s++;
	return to;
}

void *memmove(void *to, const void *from, size_t n)
{
	byte *d = to;
	const byte *s = from;
	if ((uintptr_t)d - (uintptr_t)s >= n) {
		for (size_t at = 0; at < n; at++)
			d[at] = s[at];
	} else {
		/* There is at least one: a loop that asked first would have a branch that nothing takes. */
		do {
			n--;
			d[n] = s[n];
		} while (n);
	}
	return to;
}

void *memset(void *to, int c, size_t n)
{
	byte *d = to;
	while (n && (uintptr_t)d % 8)
		*d++ = (byte)c, n--;
	for (; n >= 8; n -= 8, d += 8)
		*(word *)d = ONES * (byte)c;
	while (n--)
		*d++ = (byte)c;
	return to;
}

int memcmp(const void *one, const void *other, size_t n)
{
	const byte *a = one, *b = other;
	for (; n; n--, a++, b++) {
		if (*a != *b)
			return *a - *b;
	}
	return 0;
}

int bcmp(const void *one, const void *other, size_t n)
{
	return memcmp(one, other, n);
}

void *memchr(const void *block, int c, size_t n)
{
	const byte *s = block;
	for (; n; n--, s++) {
		if (*s == (byte)c)
			return (void *)s;
	}
	return 0;
}

void *memrchr(const void *block, int c, size_t n)
{
	const byte *s = block;
	while (n--) {
		if (s[n] == (byte)c)
			return (void *)(s + n);
	}
	return 0;
}

size_t strlen(const char *text)
{
	const char *s = text;
	for (; (uintptr_t)s % 8; s++) {
		if (!*s)
			return (size_t)(s - text);
	}
	const word *w = (const word *)s;
	while (!HAS_ZERO(*w))
		w++;
	for (s = (const char *)w; *s; s++)
		;
	return (size_t)(s - text);
}

size_t strnlen(const char *text, size_t n)
{
	const char *end = memchr(text, 0, n);
	return end ? (size_t)(end - text) : n;
}

char *strchrnul(const char *s, int c)
{
	while (*s && *s != (char)c)
		s++;
	return (char *)s;
}

char *strchr(const char *s, int c)
{
	char *found = strchrnul(s, c);
	return *found == (char)c ? found : 0;
}

char *strrchr(const char *s, int c)
{
	return memrchr(s, c, strlen(s) + 1);
}

int strcmp(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *(const byte *)a - *(const byte *)b;
}

int strncmp(const char *a, const char *b, size_t n)
{
	for (; n; n--, a++, b++) {
		if (*a != *b)
			return *(const byte *)a - *(const byte *)b;
		if (!*a)
			return 0;
	}
	return 0;
}

char *stpcpy(char *restrict d, const char *restrict s)
{
	while ((*d = *s))
		d++, s++;
	return d;
}

char *strcpy(char *restrict d, const char *restrict s)
{
	stpcpy(d, s);
	return d;
}

char *stpncpy(char *restrict d, const char *restrict s, size_t n)
{
	while (n && (*d = *s))
		n--, d++, s++;
	memset(d, 0, n);
	return d;
}

char *strncpy(char *restrict d, const char *restrict s, size_t n)
{
	stpncpy(d, s, n);
	return d;
}

char *strcat(char *restrict d, const char *restrict s)
{
	strcpy(d + strlen(d), s);
	return d;
}

char *strncat(char *restrict d, const char *restrict s, size_t n)
{
	char *end = d + strlen(d);
	while (n && *s)
		n--, *end++ = *s++;
	*end = 0;
	return d;
}

size_t strspn(const char *s, const char *accepted)
{
	const char *a = s;
	uint64_t set[4] = {0, 0, 0, 0};
	if (!accepted[0])
		return 0;
	if (!accepted[1]) {
		for (; *s == *accepted; s++);
		return s - a;
	}
	for (; *accepted; accepted++)
		set[(byte)*accepted / 64] |= (uint64_t)1 << (byte)*accepted % 64;
	for (; *s && set[(byte)*s / 64] >> (byte)*s % 64 & 1; s++);
	return s - a;
}

size_t strcspn(const char *s, const char *rejected)
{
	const char *a = s;
	for (; *s; s++) {
		for (const char *c = rejected; *c; c++) {
			if (*s == *c)
				return s - a;
		}
	}
	return s - a;
}

static int lower(int c)
{
	return (unsigned)c - 'A' < 26 ? c | 32 : c;
}

int strcasecmp(const char *one, const char *other)
{
	const byte *a = (const void *)one, *b = (const void *)other;
	for (; *a && *b && (*a == *b || lower(*a) == lower(*b)); a++, b++);
	return lower(*a) - lower(*b);
}

int strncasecmp(const char *one, const char *other, size_t n)
{
	const byte *a = (const void *)one, *b = (const void *)other;
	if (!n--)
		return 0;
	for (; *a && *b && n && (*a == *b || lower(*a) == lower(*b)); a++, b++, n--);
	return lower(*a) - lower(*b);
}
