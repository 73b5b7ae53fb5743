/* Compares string functions with loops over single bytes. For the self-tests: the file that includes this has `EXPECT`. */
#ifndef TRANSPLANT_STRINGS_TEST_H
#define TRANSPLANT_STRINGS_TEST_H

#include <stddef.h>
#include <stdint.h>

#include "parameters.h"

typedef unsigned char byte;

/* Above every threshold of the string functions: lanes, eight lanes, block instructions. */
#define LONGEST 20000
#define ROOM (LONGEST + 256)

/* The compared blocks: the one that is written or searched, the other one, and the expected content of the first. */
static byte *first, *second, *wanted;

static size_t next_length(size_t n)
{
	return n < 140 ? n + 1 : n < 1100 ? n + 37 : n < 5000 ? n + 1300 : n + 5000;
}

/* It contains no zero, and no byte twice within a lane. */
static byte pattern(size_t at)
{
	return (byte)(at % 251 + 1);
}

static void lay_out(size_t n)
{
	for (size_t at = 0; at < n + 160; at++) {
		first[at] = wanted[at] = (byte)(at * 7 + 3);
		second[at] = pattern(at);
	}
}

static int as_wanted(size_t n)
{
	for (size_t at = 0; at < n + 160; at++) {
		if (first[at] != wanted[at])
			return 0;
	}
	return 1;
}

static int sign(int value)
{
	return (value > 0) - (value < 0);
}

static void copies(uint32_t role, void *function, size_t n, size_t to, size_t from)
{
	void *(*copy)(void *, const void *, size_t) = function;
	lay_out(n);
	for (size_t at = 0; at < n; at++)
		wanted[to + at] = second[from + at];
	EXPECT(copy(first + to, second + from, n) == first + to && as_wanted(n));
	if (role != string_memmove)
		return;
	lay_out(n);
	for (size_t at = 0; at < n; at++)
		wanted[to + at] = (byte)((from + at) * 7 + 3);
	EXPECT(copy(first + to, first + from, n) == first + to && as_wanted(n));
}

static void fills(void *function, size_t n, size_t to)
{
	void *(*fill)(void *, int, size_t) = function;
	lay_out(n);
	for (size_t at = 0; at < n; at++)
		wanted[to + at] = 0xa5;
	EXPECT(fill(first + to, 0x7fa5, n) == first + to && as_wanted(n));
}

/* The place where the two differ; n means that they do not differ. Texts end at n. */
static void compares(uint32_t role, void *function, size_t n, size_t to, size_t from)
{
	const int text = role == string_strcmp || role == string_strncmp;
	const size_t step = n < 64 ? 1 : n / 3;
	for (size_t place = 0; place <= n; place += step) {
		byte *a = first + to, *b = second + from;
		for (size_t at = 0; at <= n; at++)
			a[at] = b[at] = at == n && text ? 0 : pattern(at);
		if (place < n)
			b[place] ^= 0x80;
		int expected = place < n ? (int)a[place] - (int)b[place] : 0, found;
		if (role == string_strcmp)
			found = ((int (*)(const char *, const char *))function)((char *)a, (char *)b);
		else
			found = ((int (*)(const void *, const void *, size_t))function)(a, b, role == string_strncmp ? n + 5 : n);
		EXPECT(role == string_bcmp ? !found == !expected : sign(found) == sign(expected));
	}
}

/* A byte at each of some places, and another byte behind or before it. */
static void finds(uint32_t role, void *function, size_t n, size_t to)
{
	const int text = role == string_strchr || role == string_strchrnul || role == string_strrchr;
	const int last = role == string_memrchr || role == string_strrchr;
	const size_t step = n < 64 ? 1 : n / 3;
	for (size_t place = 0; place <= n; place += step) {
		byte *block = first + to;
		for (size_t at = 0; at < n; at++)
			block[at] = 'a';
		block[n] = text ? 0 : 0xfe;
		if (place < n)
			block[place] = 0xfe;
		if (place < n && last)
			block[0] = 0xfe;
		if (place < n && !last)
			block[n - 1] = 0xfe;
		void *expected = place < n ? block + place : role == string_strchrnul ? block + n : 0, *found;
		if (text)
			found = ((char *(*)(const char *, int))function)((char *)block, 0xfe);
		else
			found = ((void *(*)(const void *, int, size_t))function)(block, 0xfe, n);
		EXPECT(found == expected);
	}
}

static void lengths(uint32_t role, void *function, size_t n, size_t to)
{
	for (size_t at = 0; at < n; at++)
		first[to + at] = 0x80;
	first[to + n] = 0;
	if (role == string_strlen) {
		EXPECT(((size_t (*)(const char *))function)((char *)first + to) == n);
		return;
	}
	size_t (*within)(const char *, size_t) = function;
	EXPECT(within((char *)first + to, SIZE_MAX) == n && within((char *)first + to, n) == n);
	EXPECT(within((char *)first + to, n / 2) == n / 2);
}

static void writes(uint32_t role, void *function, size_t n, size_t to, size_t from)
{
	const int limited = role == string_stpncpy || role == string_strncpy || role == string_strncat;
	const int appends = role == string_strcat || role == string_strncat;
	const size_t limits[] = {n / 2, n, n + 19};
	for (int at_limit = 0; at_limit < (limited ? 3 : 1); at_limit++) {
		size_t limit = limited ? limits[at_limit] : n + 1, copied = n < limit ? n : limit, before = appends ? 5 : 0;
		lay_out(n + 24);
		second[from + n] = 0;
		if (appends)
			first[to + before] = wanted[to + before] = 0;
		for (size_t at = 0; at < before; at++)
			first[to + at] = wanted[to + at] = 'x';
		for (size_t at = 0; at < copied; at++)
			wanted[to + before + at] = second[from + at];
		for (size_t at = copied; at < (role == string_stpncpy || role == string_strncpy ? limit : copied + 1); at++)
			wanted[to + before + at] = 0;
		char *d = (char *)first + to, *s = (char *)second + from;
		char *found = limited ? ((char *(*)(char *, const char *, size_t))function)(d, s, limit)
		                      : ((char *(*)(char *, const char *))function)(d, s);
		EXPECT(found == (role == string_stpcpy || role == string_stpncpy ? d + copied : d));
		EXPECT(as_wanted(n + 24));
	}
}

/* Letters that differ in their case alone; at one place the one behind `Z` in the code, which has no other case. */
static void compares_letters(uint32_t role, void *function, size_t n, size_t to, size_t from)
{
	const size_t step = n < 64 ? 1 : n / 3;
	for (size_t place = 0; place <= n; place += step) {
		byte *a = first + to, *b = second + from;
		for (size_t at = 0; at < n; at++) {
			a[at] = (byte)('A' + at % 26);
			b[at] = (byte)('a' + at % 26);
		}
		a[n] = b[n] = 0;
		if (place < n)
			b[place] = '[';
		int expected = place < n ? 1 : 0, found;
		if (role == string_strcasecmp)
			found = ((int (*)(const char *, const char *))function)((char *)a, (char *)b);
		else
			found = ((int (*)(const char *, const char *, size_t))function)((char *)a, (char *)b, n + 5);
		EXPECT(sign(found) == expected);
		if (role == string_strncasecmp)
			EXPECT(!((int (*)(const char *, const char *, size_t))function)((char *)a, (char *)b, place));
	}
}

/* Bytes on one side of a set, and one on the other side at each of some places. Sets of three bytes and of nine. */
static void spans(uint32_t role, void *function, size_t n, size_t to, size_t from)
{
	const size_t step = n < 64 ? 1 : n / 3;
	const byte other = 0xfe, member = 'k';
	for (size_t place = 0; place <= n; place += step) {
		byte *text = first + to, *set = second + from;
		const size_t size = place % 2 ? 3 : 9;
		for (size_t at = 0; at < size; at++)
			set[at] = (byte)(member + at);
		set[size] = 0;
		for (size_t at = 0; at < n; at++)
			text[at] = role == string_strspn ? (byte)(member + at % size) : other;
		text[n] = 0;
		if (place < n)
			text[place] = role == string_strspn ? other : member;
		EXPECT(((size_t (*)(const char *, const char *))function)((char *)text, (char *)set) == place);
	}
}

static void exercise_at(uint32_t role, void *function, size_t n, size_t to, size_t from)
{
	switch (role) {
	case string_memcpy: case string_memmove: copies(role, function, n, to, from); return;
	case string_memset: fills(function, n, to); return;
	case string_memcmp: case string_bcmp: case string_strcmp: case string_strncmp:
		compares(role, function, n, to, from);
		return;
	case string_memchr: case string_memrchr: case string_strchr: case string_strchrnul: case string_strrchr:
		finds(role, function, n, to);
		return;
	case string_strcasecmp: case string_strncasecmp: compares_letters(role, function, n, to, from); return;
	case string_strcspn: case string_strspn: spans(role, function, n, to, from); return;
	case string_strlen: case string_strnlen: lengths(role, function, n, to); return;
	default: writes(role, function, n, to, from); return;
	}
}

/* The memory that a test takes, in bytes. */
#define STRINGS_TEST_MEMORY (3 * ROOM)

/* Tests a function with blocks of all lengths over the thresholds. `role` is its number, `memory` room for the blocks. */
static void exercise_string_function(uint32_t role, void *function, void *memory)
{
	first = memory;
	second = first + ROOM;
	wanted = second + ROOM;
	for (size_t n = 0; n <= LONGEST; n = next_length(n)) {
		for (size_t to = 0; to < 48; to += n < 600 ? 5 : 23)
			exercise_at(role, function, n, to, (to * 3 + 1) % 40);
	}
}

#endif
