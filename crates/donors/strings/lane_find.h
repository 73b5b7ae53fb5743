/* Searching: memchr, memrchr, strlen, strnlen, strchr, strrchr; for the others that search, `find` and `find_within`.
 *
 * A search looks first at one unaligned lane, if that stays in the page of its first byte; otherwise at the aligned
 * lane around that byte, which is in one page like all aligned lanes. From then on it reads aligned lanes, and aligned
 * blocks of four. At least one byte of each belongs to the searched string or block. */

/* What is searched for: one byte or wide character, four bytes, or the two halves of a table. */
struct L(needle) {
	L(lane) one, two, three, four;
};

INLINE struct L(needle) L(one_byte)(byte c)
{
	return (struct L(needle)){ .one = L(splat)(c) };
}

/* Ones where `v` has one of the four bytes. */
INLINE L(lane) L(member_of_four)(L(lane) v, struct L(needle) needle)
{
	L(lane) a = L(either)(L(equal)(v, needle.one), L(equal)(v, needle.two));
	L(lane) b = L(either)(L(equal)(v, needle.three), L(equal)(v, needle.four));
	return L(either)(a, b);
}

/* Marks `v` where it holds what stops the search. */
INLINE L(lane) L(mark)(L(lane) v, struct L(needle) needle, enum stop stop)
{
	switch (stop) {
	case AT_BYTE: return L(equal)(v, needle.one);
	case AT_NUL: return v;
	case AT_EITHER: return L(least)(L(differ)(v, needle.one), v);
	case AT_MEMBER: return L(either)(L(member_of_four)(v, needle), L(equal)(v, L(splat)(0)));
	case AT_OTHER: return L(member_of_four)(v, needle);
#ifdef TABLES
	case AT_TABLE_MEMBER:
	case AT_TABLE_OTHER: return L(member_of_table)(v, needle.one, needle.two);
#endif
	case AT_WCHAR: return L(equal_wchars)(v, needle.one);
	case AT_WCHAR_OR_NUL: return L(either)(L(equal_wchars)(v, needle.one), L(equal_wchars)(v, L(splat)(0)));
	default: return v;
	}
}

/* Marked where either of the two is. */
INLINE L(lane) L(join)(L(lane) a, L(lane) b, enum stop stop)
{
	return is_marked_by_ones(stop) ? L(either)(a, b) : L(least)(a, b);
}

INLINE bits L(marked)(L(lane) marks, enum stop stop)
{
	return L(bits)(is_marked_by_ones(stop) ? marks : L(equal)(marks, L(splat)(0)));
}

INLINE bits L(hits)(L(lane) v, struct L(needle) needle, enum stop stop)
{
	return L(marked)(L(mark)(v, needle, stop), stop);
}

/* The marks of a block of four lanes, so joined that they cost a loop nothing beyond the question whether there are
 * any, and still tell where the first one is. */
struct L(marks) {
	L(lane) first, first_two, third, all;
};

INLINE struct L(marks) L(marks_of)(L(lane) a, L(lane) b, L(lane) c, L(lane) d, enum stop stop)
{
	L(lane) first_two = L(join)(a, b, stop);
	return (struct L(marks)){ a, first_two, c, L(join)(first_two, L(join)(c, d, stop), stop) };
}

/* The marks of the aligned block at `q`. */
INLINE struct L(marks) L(look)(const byte *q, struct L(needle) needle, enum stop stop)
{
	L(lane) a = L(load_aligned)(q), b = L(load_aligned)(q + LANE);
	L(lane) c = L(load_aligned)(q + 2 * LANE), d = L(load_aligned)(q + 3 * LANE);
	return L(marks_of)(L(mark)(a, needle, stop), L(mark)(b, needle, stop), L(mark)(c, needle, stop),
	    L(mark)(d, needle, stop), stop);
}

/* The place of the first mark, of which there is one. Where the first two lanes have none, `all` has those of the
 * last two. */
INLINE size_t L(first_mark)(struct L(marks) block, enum stop stop)
{
	bits set = L(marked)(block.first, stop);
	if (set)
		return first(set);
	set = L(marked)(block.first_two, stop);
	if (set)
		return LANE + first(set);
	return 2 * LANE + first_of_two(L(marked)(block.third, stop), L(marked)(block.all, stop), LANE);
}

/* Whether the aligned block at `q` does not have the byte. */
INLINE bool L(clear)(const byte *q, struct L(needle) needle)
{
	return L(marked)(L(look)(q, needle, AT_BYTE).all, AT_BYTE) == 0;
}

/* The bytes that stop the search between `s` and the end of the aligned lane around it. */
INLINE bits L(hits_before_page)(const byte *s, struct L(needle) needle, enum stop stop)
{
	return bits_from(L(hits)(L(load_aligned)(s - past(s, LANE)), needle, stop), past(s, LANE));
}

/* The bytes that stop the search in the lane at `s`, or in its part before the end of the page. */
INLINE bits L(hits_at_start)(const byte *s, struct L(needle) needle, enum stop stop)
{
	if (LIKELY(page_room(s) >= LANE))
		return L(hits)(L(load)(s), needle, stop);
	return L(hits_before_page)(s, needle, stop);
}

#define LOOK_AT(place)                                                                                                 \
	do {                                                                                                               \
		hits = L(hits)(L(load_aligned)(q + (place)), needle, stop);                                                    \
		if (hits)                                                                                                      \
			return q + (place) + first(hits);                                                                          \
	} while (0)

/* The first place that stops the search of a string: something does. A search for wide characters begins at a multiple
 * of their size. */
INLINE const byte *L(find)(const byte *s, struct L(needle) needle, enum stop stop)
{
	bits hits = L(hits_at_start)(s, needle, stop);
	if (hits)
		return s + first(hits);
	const byte *q = s - past(s, LANE) + LANE;
	LOOK_AT(0);
	LOOK_AT(LANE);
	LOOK_AT(2 * LANE);
	LOOK_AT(3 * LANE);
	q += BLOCK;
	/* Back to a multiple of BLOCK: some lanes are looked at twice, and no stretch of code is needed between. */
	q -= past(q, BLOCK);
	ALIGNED
	for (;; q += BLOCK) {
		struct L(marks) block = L(look)(q, needle, stop);
		if (L(marked)(block.all, stop))
			return q + L(first_mark)(block, stop);
	}
}
#undef LOOK_AT
#define LOOK_AT(place)                                                                                                 \
	do {                                                                                                               \
		hits = L(hits)(L(load_aligned)(q + (place)), needle, stop);                                                    \
		if (hits)                                                                                                      \
			return (size_t)(q - s) + (place) + first(hits);                                                            \
		if (n <= (place) + LANE)                                                                                       \
			return SIZE_MAX;                                                                                           \
	} while (0)

/* How far behind `s` the first byte lies that stops the search; if it is not among the first `n`, which are more
 * than none, `n` or more. */
INLINE size_t L(find_within)(const byte *s, size_t n, struct L(needle) needle, enum stop stop)
{
	bits hits;
	if (LIKELY(page_room(s) >= LANE)) {
		hits = L(hits)(L(load)(s), needle, stop);
		if (hits)
			return first(hits);
		if (n <= LANE)
			return SIZE_MAX;
	} else {
		hits = L(hits_before_page)(s, needle, stop);
		if (hits)
			return first(hits);
		if (n <= page_room(s))
			return SIZE_MAX;
	}
	/* `n` is from here on what is left of the block at `q`, and more than none. */
	const byte *q = s - past(s, LANE) + LANE;
	n -= (size_t)(q - s);
	for (;;) {
		LOOK_AT(0);
		LOOK_AT(LANE);
		LOOK_AT(2 * LANE);
		LOOK_AT(3 * LANE);
		q += BLOCK, n -= BLOCK;
		if (n <= BLOCK)
			continue;
		const byte *end = block_end(q, n);
		q -= past(q, BLOCK); /* as in find */
		ALIGNED
		for (; q < end - BLOCK; q += BLOCK) {
			struct L(marks) block = L(look)(q, needle, stop);
			if (L(marked)(block.all, stop))
				return (size_t)(another(q) - s) + L(first_mark)(block, stop);
		}
		n = (size_t)(end - q);
	}
}

#undef LOOK_AT

ENTRY const byte *L(find_byte)(const byte *s, byte c, size_t n)
{
	if (n == 0)
		return 0;
	size_t at = L(find_within)(s, n, L(one_byte)(c), AT_BYTE);
	return at < n ? s + at : 0;
}

ENTRY size_t L(length)(const byte *s)
{
	return (size_t)(L(find)(s, L(one_byte)(0), AT_NUL) - s);
}

/* The length of the string at `s`, or `n` if it has no end in `n` bytes. */
ENTRY size_t L(length_within)(const byte *s, size_t n)
{
	if (n == 0)
		return 0;
	size_t length = L(find_within)(s, n, L(one_byte)(0), AT_NUL);
	return length < n ? length : n;
}

ENTRY const byte *L(find_or_end)(const byte *s, byte c)
{
	return L(find)(s, L(one_byte)(c), AT_EITHER);
}

ENTRY const byte *L(find_in_text)(const byte *s, byte c)
{
	const byte *found = L(find)(s, L(one_byte)(c), AT_EITHER);
	return *found == c ? found : 0;
}

/* The place of the last byte `c` in the aligned block at `q`, which has one. */
INLINE size_t L(last_in_block)(const byte *q, struct L(needle) needle)
{
	const byte *half = q + 2 * LANE;
	bits a = L(hits)(L(load_aligned)(half), needle, AT_BYTE), b = L(hits)(L(load_aligned)(half + LANE), needle, AT_BYTE);
	if (a | b)
		return 2 * LANE + last_of_two(a, b, LANE);
	a = L(hits)(L(load_aligned)(q), needle, AT_BYTE), b = L(hits)(L(load_aligned)(q + LANE), needle, AT_BYTE);
	return last_of_two(a, b, LANE);
}

/* The byte at `at` of the `size` bytes before `end`, unless it is before the last `n` of them. */
INLINE const byte *L(among_last)(const byte *end, size_t size, size_t at, size_t n)
{
	return at + n >= size ? end - size + at : 0;
}

/* The last byte `c` of a block. The lane that ends with the block's last byte, and the last ones that are looked at,
 * may begin before the block, but in a page of it; hits there do not count. */
ENTRY const byte *L(find_last)(const byte *s, byte c, size_t n)
{
	if (n == 0)
		return 0;
	const struct L(needle) needle = L(one_byte)(c);
	const byte *end = s + n;
	bits hits;
	if (LIKELY(page_offset(end - 1) >= LANE - 1)) {
		hits = L(hits)(L(load)(end - LANE), needle, AT_BYTE);
		if (hits)
			return L(among_last)(end, LANE, last(hits), n);
		if (n <= LANE)
			return 0;
	} else {
		const byte *lane = end - 1 - past(end - 1, LANE);
		hits = L(hits)(L(load_aligned)(lane), needle, AT_BYTE) & bits_to(past(end - 1, LANE));
		if (hits)
			return L(among_last)(lane + LANE, LANE, last(hits), n + LANE - (size_t)(end - lane));
		if (n <= (size_t)(end - lane))
			return 0;
	}
	/* `n` is from here on what is left of the block before `end`, and more than none. */
	end = another(end);
	size_t seen = past(end - 1, LANE) + 1;
	end -= seen, n -= seen;
	UNROLLED
	for (size_t i = 0; i < BLOCK; i += LANE) {
		hits = L(hits)(L(load_aligned)(end - i - LANE), needle, AT_BYTE);
		if (hits)
			return L(among_last)(end, i + LANE, last(hits), n);
		if (n <= i + LANE)
			return 0;
	}
	end -= BLOCK, n -= BLOCK;
	/* On to a multiple of BLOCK: a block has been looked at above it, so that this stays in the block at `s`. */
	size_t again = (BLOCK - past(end, BLOCK)) % BLOCK;
	end += again, n += again;
	ALIGNED
	for (; L(clear)(end - BLOCK, needle); end -= BLOCK, n -= BLOCK)
		if (n <= BLOCK)
			return 0;
	end = another(end);
	return L(among_last)(end, BLOCK, L(last_in_block)(end - BLOCK, needle), n);
}

/* Where a search for the last byte `c` of a string stands: the last lane that has it, and where in the lane. */
struct L(sighting) {
	const byte *lane;
	bits hits;
};

INLINE const byte *L(sighted)(struct L(sighting) found)
{
	return found.hits ? found.lane + last(found.hits) : 0;
}

/* Whether neither of the two lanes at `q` has the byte or the string's end. */
INLINE bool L(clear_pair)(const byte *q, struct L(needle) needle)
{
	L(lane) a = L(mark)(L(load_aligned)(q), needle, AT_EITHER), b = L(mark)(L(load_aligned)(q + LANE), needle, AT_EITHER);
	return L(marked)(L(join)(a, b, AT_EITHER), AT_EITHER) == 0;
}

/* Takes account of the lane at `q`, and says whether the string ends in it. */
INLINE bool L(sight)(const byte *q, struct L(needle) needle, struct L(sighting) *found)
{
	L(lane) v = L(load_aligned)(q);
	bits hits = L(hits)(v, needle, AT_BYTE), ends = L(hits)(v, needle, AT_NUL);
	if (LIKELY((hits | ends) == 0))
		return false;
	if (ends)
		hits &= bits_up_to_first(ends);
	if (hits)
		*found = (struct L(sighting)){ q, hits };
	return ends != 0;
}

/* The last byte `c` of a string; the NUL at its end counts as one of its bytes. */
ENTRY const byte *L(find_last_in_text)(const byte *s, byte c)
{
	const struct L(needle) needle = L(one_byte)(c);
	struct L(sighting) found = { s, 0 };
	bits ends;
	if (LIKELY(page_room(s) >= LANE)) {
		ends = L(hits)(L(load)(s), needle, AT_NUL);
		found.hits = L(hits)(L(load)(s), needle, AT_BYTE);
	} else {
		ends = L(hits_before_page)(s, needle, AT_NUL);
		found.hits = L(hits_before_page)(s, needle, AT_BYTE);
	}
	if (ends) {
		found.hits &= bits_up_to_first(ends);
		return L(sighted)(found);
	}
	const byte *q = s - past(s, LANE) + LANE;
	/* Many strings end here, so that this is asked first. */
	bits hits = L(hits)(L(load_aligned)(q), needle, AT_BYTE);
	ends = L(hits)(L(load_aligned)(q), needle, AT_NUL);
	if (ends) {
		hits &= bits_up_to_first(ends);
		return hits ? q + last(hits) : L(sighted)(found);
	}
	if (hits)
		found = (struct L(sighting)){ q, hits };
	q += LANE;
	if (L(sight)(q, needle, &found) || L(sight)(q + LANE, needle, &found))
		return L(sighted)(found);
	q += 2 * LANE;
	/* Back to a multiple of two lanes, a line of the cache; as in find, what is found twice is the same. In
	 * larger steps the last one would often fetch a line that the string does not reach. */
	for (q -= past(q, 2 * LANE);;) {
		ALIGNED
		for (; L(clear_pair)(q, needle); q += 2 * LANE)
			;
		if (L(sight)(q, needle, &found) || L(sight)(q + LANE, needle, &found))
			return L(sighted)(found);
		q += 2 * LANE;
	}
}
