/* Searching: memchr, memrchr, strlen, strnlen, strchr, strrchr.
 *
 * A search looks first at one unaligned lane, if that stays in the page of its first byte; otherwise at the aligned
 * lane around that byte, which lies in one page as all aligned lanes do. From then on it reads aligned lanes, and
 * aligned blocks of four, and of each of them at least one byte belongs to what is searched. */

/* Zero wherever `v` holds what stops the search. */
INLINE L(lane) L(rest)(L(lane) v, L(lane) needle, enum stop stop)
{
	if (stop == AT_NUL)
		return v;
	L(lane) difference = L(differ)(v, needle);
	return stop == AT_BYTE ? difference : L(least)(difference, v);
}

INLINE bits L(hits)(L(lane) v, L(lane) needle, enum stop stop)
{
	if (stop == AT_BYTE)
		return L(bits)(L(equal)(v, needle));
	return L(bits)(L(equal)(L(rest)(v, needle, stop), L(splat)(0)));
}

/* Not zero wherever one of four lanes holds the byte. */
INLINE L(lane) L(byte_in_4)(L(lane) a, L(lane) b, L(lane) c, L(lane) d, L(lane) needle)
{
	a = L(equal)(a, needle), b = L(equal)(b, needle), c = L(equal)(c, needle), d = L(equal)(d, needle);
	return L(either)(L(either)(a, b), L(either)(c, d));
}

/* Whether nothing in the aligned block at `q` stops the search. */
INLINE bool L(clear)(const byte *q, L(lane) needle, enum stop stop)
{
	L(lane) a = L(load_aligned)(q), b = L(load_aligned)(q + LANE);
	L(lane) c = L(load_aligned)(q + 2 * LANE), d = L(load_aligned)(q + 3 * LANE);
	if (stop == AT_BYTE)
		return L(bits)(L(byte_in_4)(a, b, c, d, needle)) == 0;
	a = L(rest)(a, needle, stop), b = L(rest)(b, needle, stop);
	c = L(rest)(c, needle, stop), d = L(rest)(d, needle, stop);
	return L(bits)(L(equal)(L(least)(L(least)(a, b), L(least)(c, d)), L(splat)(0))) == 0;
}

/* Where the first byte lies that stops the search in the aligned block at `q`, which has one. */
INLINE size_t L(first_in_block)(const byte *q, L(lane) needle, enum stop stop)
{
	bits a = L(hits)(L(load_aligned)(q), needle, stop), b = L(hits)(L(load_aligned)(q + LANE), needle, stop);
	if (a | b)
		return first_of_two(a, b, LANE);
	q += 2 * LANE;
	a = L(hits)(L(load_aligned)(q), needle, stop), b = L(hits)(L(load_aligned)(q + LANE), needle, stop);
	return 2 * LANE + first_of_two(a, b, LANE);
}

/* What stops the search between `s` and the end of the aligned lane around it. */
INLINE bits L(hits_before_page)(const byte *s, L(lane) needle, enum stop stop)
{
	return bits_from(L(hits)(L(load_aligned)(s - past(s, LANE)), needle, stop), past(s, LANE));
}

/* What stops the search in the lane at `s`, or in what of it lies before the end of the page. */
INLINE bits L(hits_at_start)(const byte *s, L(lane) needle, enum stop stop)
{
	if (LIKELY(page_room(s) >= LANE))
		return L(hits)(L(load)(s), needle, stop);
	return L(hits_before_page)(s, needle, stop);
}

/* How far behind `s` the first byte lies that stops the search; if it is not among the first `n`, `n` or more.
 * Unbounded, `n` is not looked at: then something does stop it. */
INLINE size_t L(find)(const byte *s, size_t n, byte c, enum stop stop, bool bounded)
{
	const L(lane) needle = L(splat)(c);
	bits hits;
	if (LIKELY(page_room(s) >= LANE)) {
		hits = L(hits)(L(load)(s), needle, stop);
		if (hits)
			return first(hits);
		if (bounded && n <= LANE)
			return SIZE_MAX;
	} else {
		hits = L(hits_before_page)(s, needle, stop);
		if (hits)
			return first(hits);
		if (bounded && n <= page_room(s))
			return SIZE_MAX;
	}
	/* `n` is from here on what is left of the block at `q`, and more than none. */
	const byte *q = s - past(s, LANE) + LANE;
	n -= (size_t)(q - s);
	for (;;) {
		UNROLLED
		for (size_t i = 0; i < BLOCK; i += LANE) {
			hits = L(hits)(L(load_aligned)(q + i), needle, stop);
			if (hits)
				return (size_t)(q - s) + i + first(hits);
			if (bounded && n <= i + LANE)
				return SIZE_MAX;
		}
		q += BLOCK, n -= BLOCK;
		if (bounded && n <= BLOCK)
			continue;
		/* Back to a multiple of BLOCK: some lanes are looked at twice, and no stretch of code is needed between. */
		const byte *end = bounded ? block_end(q, n) : 0;
		q -= past(q, BLOCK);
		ALIGNED
		while ((!bounded || q < end - BLOCK) && L(clear)(q, needle, stop))
			q += BLOCK;
		q = another(q);
		if (!bounded)
			return (size_t)(q - s) + L(first_in_block)(q, needle, stop);
		n = (size_t)(end - q);
	}
}

ENTRY const byte *L(find_byte)(const byte *s, byte c, size_t n)
{
	if (n == 0)
		return 0;
	size_t at = L(find)(s, n, c, AT_BYTE, true);
	return at < n ? s + at : 0;
}

ENTRY size_t L(length)(const byte *s)
{
	return L(find)(s, 0, 0, AT_NUL, false);
}

/* The length of the string at `s`, or `n` if it has no end in `n` bytes. */
ENTRY size_t L(length_within)(const byte *s, size_t n)
{
	if (n == 0)
		return 0;
	size_t length = L(find)(s, n, 0, AT_NUL, true);
	return length < n ? length : n;
}

ENTRY const byte *L(find_or_end)(const byte *s, byte c)
{
	return s + L(find)(s, 0, c, AT_EITHER, false);
}

ENTRY const byte *L(find_in_text)(const byte *s, byte c)
{
	const byte *found = s + L(find)(s, 0, c, AT_EITHER, false);
	return *found == c ? found : 0;
}

/* Where the last byte `c` lies in the aligned block at `q`, which has one. */
INLINE size_t L(last_in_block)(const byte *q, L(lane) needle)
{
	const byte *half = q + 2 * LANE;
	bits a = L(hits)(L(load_aligned)(half), needle, AT_BYTE), b = L(hits)(L(load_aligned)(half + LANE), needle, AT_BYTE);
	if (a | b)
		return 2 * LANE + last_of_two(a, b, LANE);
	a = L(hits)(L(load_aligned)(q), needle, AT_BYTE), b = L(hits)(L(load_aligned)(q + LANE), needle, AT_BYTE);
	return last_of_two(a, b, LANE);
}

/* The byte at `at` of the `size` bytes before `end`, unless it lies before the last `n` of them. */
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
	const L(lane) needle = L(splat)(c);
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
	for (; L(clear)(end - BLOCK, needle, AT_BYTE); end -= BLOCK, n -= BLOCK)
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

/* Takes account of the lane `v` at `q`, and says whether the string ends in it. */
INLINE bool L(sight)(const byte *q, L(lane) v, L(lane) needle, struct L(sighting) *found)
{
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
	const L(lane) needle = L(splat)(c);
	struct L(sighting) found = { s, 0 };
	if (LIKELY(page_room(s) >= LANE)) {
		if (L(sight)(s, L(load)(s), needle, &found))
			return L(sighted)(found);
	} else {
		bits ends = L(hits_before_page)(s, needle, AT_NUL);
		found.hits = L(hits_before_page)(s, needle, AT_BYTE);
		if (ends) {
			found.hits &= bits_up_to_first(ends);
			return L(sighted)(found);
		}
	}
	const byte *q = s - past(s, LANE) + LANE;
	UNROLLED
	for (int i = 0; i < 4; i++, q += LANE)
		if (L(sight)(q, L(load_aligned)(q), needle, &found))
			return L(sighted)(found);
	/* Back to a multiple of BLOCK, as in find: what is found twice is the same. */
	for (q -= past(q, BLOCK);;) {
		ALIGNED
		for (; L(clear)(q, needle, AT_EITHER); q += BLOCK)
			;
		for (int i = 0; i < 4; i++, q += LANE)
			if (L(sight)(q, L(load_aligned)(q), needle, &found))
				return L(sighted)(found);
	}
}
