/* strcspn, strpbrk and strspn. The text is one block of the walk, the set the end of the other one, so that either may be
 * directly before or behind an unmapped page. */
#include "proof.h"

/* Sets up to four bytes, and larger ones, take ways of their own. */
static const size_t sizes[] = { 0, 1, 2, 3, 4, 5, 6, 16, 40, 254 };

/* The bytes of the set, and all others but NUL. */
struct sides {
	byte members[256], others[256];
	size_t member_count, other_count;
};

static struct sides write_set(byte *set, size_t size)
{
	struct sides sides = { .member_count = 0 };
	bool is_member[256] = { false };
	/* Neighbours, or bytes of which only a few bits differ, or any. */
	byte first = (byte)(1 + noise() % 255), kind = (byte)(noise() % 3);
	for (size_t i = 0; i < size; i++) {
		byte c = (byte)(kind == 0 ? first + i : kind == 1 ? first ^ 1u << i % 8 : noise() % 256);
		set[i] = c ? c : 1;
		is_member[set[i]] = true;
	}
	set[size] = 0;
	for (unsigned c = 1; c < 256; c++) {
		if (is_member[c])
			sides.members[sides.member_count++] = (byte)c;
		else
			sides.others[sides.other_count++] = (byte)c;
	}
	return sides;
}

/* Fills a text with bytes of one side, and at one place puts a byte of the other side, if there is one. Returns the place of
 * that, or else of the end. */
static size_t write_text(byte *p, size_t length, const byte *side, size_t count, const byte *stops, size_t stop_count)
{
	uint32_t word = noise();
	for (size_t i = 0; i < length; i++) {
		word = word * 1664525u + 1013904223u;
		p[i] = side[(word >> 16) % count];
	}
	p[length] = 0;
	if (length == 0 || stop_count == 0 || noise() % 4 == 0)
		return length;
	size_t at = noise() % length;
	p[at] = stops[noise() % stop_count];
	return at;
}

static void check_set(byte *a, byte *b, size_t n)
{
	if (n == 0)
		return;
	size_t size = sizes[noise() % (sizeof sizes / sizeof *sizes)], length = n - 1;
	if (size > length)
		size = length;
	byte *set = b + length - size;
	const char *s = (char *)a, *accepted = (char *)set;
	struct sides sides = write_set(set, size);
	/* Stops right before and right behind the text do not count. */
	byte *after = a + n < left.end ? a + n : 0, *before = a > left.start ? a - 1 : 0;
	if (sides.other_count) {
		size_t at = write_text(a, length, sides.others, sides.other_count, sides.members, sides.member_count);
		if (after)
			*after = set[0];
		if (before)
			*before = set[0];
		if (proof_strcspn(s, accepted) != at)
			wrong("strcspn of %zu bytes, set of %zu: %zu instead of %zu", length, size, proof_strcspn(s, accepted), at);
		if (proof_strpbrk(s, accepted) != (at < length ? s + at : 0))
			wrong("strpbrk of %zu bytes, set of %zu", length, size);
	}
	if (sides.member_count) {
		size_t at = write_text(a, length, sides.members, sides.member_count, sides.others, sides.other_count);
		if (after)
			*after = set[0];
		if (proof_strspn(s, accepted) != at)
			wrong("strspn of %zu bytes, set of %zu: %zu instead of %zu", length, size, proof_strspn(s, accepted), at);
	} else if (proof_strspn(s, accepted) != 0) {
		wrong("strspn of the empty set");
	}
	if (after)
		*after = CANARY;
	if (before)
		*before = CANARY;
	clean(a, n);
	clean(set, size + 1);
}

/* Each byte, alone and behind others, with sets of each size. */
static void prove_every_byte(void)
{
	subject = "strcspn and strspn, every byte";
	for (unsigned round = 0; round < 400; round++) {
		char set[256], text[40];
		size_t size = sizes[round % (sizeof sizes / sizeof *sizes)];
		struct sides sides = write_set((byte *)set, size);
		bool is_member[256] = { false };
		for (size_t i = 0; i < sides.member_count; i++)
			is_member[sides.members[i]] = true;
		for (unsigned c = 1; c < 256; c++) {
			size_t at = noise() % (sizeof text - 1);
			text[at + 1 < sizeof text - 1 ? at + 1 : sizeof text - 1] = 0;
			text[at] = (char)c;
			for (size_t i = 0; i < at && sides.member_count; i++)
				text[i] = (char)sides.members[0];
			size_t end = at + 1;
			if (sides.member_count && proof_strspn(text, set) != (is_member[c] ? end : at))
				wrong("strspn: %#x behind %zu others, set of %zu", c, at, size);
			for (size_t i = 0; i < at && sides.other_count; i++)
				text[i] = (char)sides.others[0];
			if (sides.other_count && proof_strcspn(text, set) != (is_member[c] ? at : end))
				wrong("strcspn: %#x behind %zu others, set of %zu", c, at, size);
		}
	}
}

void prove_sets(void)
{
	over_pairs("strcspn, strpbrk and strspn", check_set);
	prove_every_byte();
}
