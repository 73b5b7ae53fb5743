/* Copying strings: strcpy, stpcpy, strncpy, stpncpy, strcat, strncat. Strings are read as lane_find.h reads them;
 * what is written is the string and its NUL (or padding) alone. */

INLINE void L(copy_block)(byte *d, const byte *s)
{
	L(store)(d, L(load_aligned)(s));
	L(store)(d + LANE, L(load_aligned)(s + LANE));
	L(store)(d + 2 * LANE, L(load_aligned)(s + 2 * LANE));
	L(store)(d + 3 * LANE, L(load_aligned)(s + 3 * LANE));
}

/* Copies `n` bytes, less than a lane or none, of which the lane before has been copied: one lane that ends with them
 * overlaps it. Gives the end of what is copied. */
INLINE byte *L(copy_end)(byte *d, const byte *s, size_t n)
{
	L(store)(d + n - LANE, L(load)(s + n - LANE));
	return d + n;
}

/* Copies the string that goes on at `s`, a multiple of LANE, to `d`, after its first LANE bytes or more have been
 * copied; gives the address of the copied NUL. Reads aligned lanes only, and a last one that ends with the NUL. */
INLINE byte *L(copy_rest)(byte *d, const byte *s)
{
	const L(lane) nul = L(splat)(0);
	UNROLLED
	for (int i = 0; i < 4; i++, d += LANE, s += LANE) {
		L(lane) v = L(load_aligned)(s);
		bits ends = L(hits)(v, nul, AT_NUL);
		if (ends)
			return L(copy_end)(d, s, first(ends) + 1) - 1;
		L(store)(d, v);
	}
	/* Back to a multiple of BLOCK, as in find: what is copied twice is the same. */
	d -= past(s, BLOCK), s -= past(s, BLOCK);
	ALIGNED
	for (; L(clear)(s, nul, AT_NUL); d += BLOCK, s += BLOCK)
		L(copy_block)(d, s);
	s = another(s);
	size_t left = L(first_in_block)(s, nul, AT_NUL) + 1;
	for (; left > LANE; d += LANE, s += LANE, left -= LANE)
		L(store)(d, L(load_aligned)(s));
	return L(copy_end)(d, s, left) - 1;
}

/* Copies the string at `s`; gives the address of the copied NUL. If the lane at `s` would cross a page, the bytes
 * before the page's end go first, and the string goes on at the start of the next page. A lane without NUL is text as
 * a whole and can be copied whole. */
INLINE byte *L(copy_text_inline)(byte *d, const byte *s)
{
	const L(lane) nul = L(splat)(0);
	bits ends = L(hits_at_start)(s, nul, AT_NUL);
	if (UNLIKELY(!ends && page_room(s) < LANE)) {
		size_t room = page_room(s);
		copy_short(d, s, room);
		d += room, s += room;
		ends = L(hits)(L(load)(s), nul, AT_NUL);
	}
	if (ends) {
		copy_short(d, s, first(ends) + 1);
		return d + first(ends);
	}
	L(store)(d, L(load)(s));
	size_t step = LANE - past(s, LANE);
	return L(copy_rest)(d + step, s + step);
}

ENTRY byte *L(copy_text)(byte *d, const byte *s)
{
	return L(copy_text_inline)(d, s);
}

ENTRY byte *L(copy_text_to_start)(byte *d, const byte *s)
{
	L(copy_text_inline)(d, s);
	return result(d);
}

/* Copies what is left in the lane at `s`, which ends the string, or of which at most `n` bytes count. Gives the address
 * of the copied NUL, or else the end of what was copied. */
INLINE byte *L(copy_end_within)(byte *d, const byte *s, bits ends, size_t n)
{
	if (ends && first(ends) < n)
		return L(copy_end)(d, s, first(ends) + 1) - 1;
	return L(copy_end)(d, s, n);
}

/* As copy_rest, but no more than `n` bytes, which is more than none. */
INLINE byte *L(copy_rest_within)(byte *d, const byte *s, size_t n)
{
	const L(lane) nul = L(splat)(0);
	UNROLLED
	for (int i = 0; i < 4; i++, d += LANE, s += LANE, n -= LANE) {
		L(lane) v = L(load_aligned)(s);
		bits ends = L(hits)(v, nul, AT_NUL);
		if (ends || n <= LANE)
			return L(copy_end_within)(d, s, ends, n);
		L(store)(d, v);
	}
	n += past(s, BLOCK), d -= past(s, BLOCK), s -= past(s, BLOCK);
	ALIGNED
	for (; n > BLOCK && L(clear)(s, nul, AT_NUL); d += BLOCK, s += BLOCK, n -= BLOCK)
		L(copy_block)(d, s);
	for (;; d += LANE, s += LANE, n -= LANE) {
		L(lane) v = L(load_aligned)(s);
		bits ends = L(hits)(v, nul, AT_NUL);
		if (ends || n <= LANE)
			return L(copy_end_within)(d, s, ends, n);
		L(store)(d, v);
	}
}

/* Copies `n` bytes of the string at `s`, or the string and its NUL if that is less. Gives the address of the copied
 * NUL, or else the end of what was copied. */
INLINE byte *L(copy_within)(byte *d, const byte *s, size_t n)
{
	const L(lane) nul = L(splat)(0);
	while (n > 0) {
		bits ends = L(hits_at_start)(s, nul, AT_NUL);
		if (ends && first(ends) < n) {
			copy_short(d, s, first(ends) + 1);
			return d + first(ends);
		}
		size_t seen = page_room(s) < LANE ? page_room(s) : LANE;
		if (n <= seen) {
			copy_short(d, s, n);
			return d + n;
		}
		if (LIKELY(seen == LANE)) {
			size_t step = LANE - past(s, LANE);
			L(store)(d, L(load)(s));
			return L(copy_rest_within)(d + step, s + step, n - step);
		}
		copy_short(d, s, seen);
		d += seen, s += seen, n -= seen;
	}
	return d;
}

/* Exactly `n` bytes are written: the string, and NULs after it as far as there is room, of which the first has been
 * copied with the string. */
INLINE byte *L(copy_padded_inline)(byte *d, const byte *s, size_t n)
{
	byte *end = L(copy_within)(d, s, n);
	size_t left = n - (size_t)(end - d);
	if (left > 1)
		L(fill)(end + 1, 0, left - 1);
	return end;
}

ENTRY byte *L(copy_padded)(byte *d, const byte *s, size_t n)
{
	return L(copy_padded_inline)(d, s, n);
}

ENTRY byte *L(copy_padded_to_start)(byte *d, const byte *s, size_t n)
{
	L(copy_padded_inline)(d, s, n);
	return result(d);
}

ENTRY byte *L(append)(byte *d, const byte *s)
{
	L(copy_text_inline)(d + L(length)(d), s);
	return result(d);
}

/* Unlike strncpy, always ends with one NUL, and pads with no more. */
ENTRY byte *L(append_within)(byte *d, const byte *s, size_t n)
{
	*L(copy_within)(d + L(length)(d), s, n) = 0;
	return result(d);
}
