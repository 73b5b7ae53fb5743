/* Copying strings: strcpy, stpcpy, strncpy, stpncpy, strcat, strncat. Strings are read as lane_find.h reads them;
 * what is written is the string and its NUL (or padding) alone. */

/* Copies `n` bytes, less than a lane or none, of which the lane before has been copied: one lane that ends with them
 * overlaps it. Gives the end of what is copied. */
INLINE byte *L(copy_end)(byte *d, const byte *s, size_t n)
{
	L(store)(d + n - LANE, L(load)(s + n - LANE));
	return d + n;
}

/* Copies a string of `length` bytes, fewer than a lane, and its NUL. Where the shortest are written hangs on
 * branches alone, not on the length: a processor that foresees them goes on while the string is being fetched. */
INLINE byte *L(copy_ended)(byte *d, const byte *s, size_t length)
{
	if (length >= 3) {
		copy_short(d, s, length + 1);
	} else if (length == 0) {
		*d = 0;
	} else {
		store16(d, load16(s));
		if (length == 2)
			d[2] = 0;
	}
	return d + length;
}

/* Copies what is left of the string that ends at the first of `ends` in the lane at `s`; gives the address of the
 * copied NUL. If only the NUL is left it goes alone, since a lane that ends with it may cross a page, which is slow
 * to write. */
INLINE byte *L(copy_last)(byte *d, const byte *s, bits ends)
{
	if (first(ends) == 0)
		*d = 0;
	else
		L(copy_end)(d, s, first(ends) + 1);
	return d + first(ends);
}

/* Copies the aligned block at `s`, or if the string ends in it, the string; then gives the address of the copied
 * NUL, otherwise null. Each lane is fetched once: a loop over this is bound by what the processor can store. */
INLINE byte *L(copy_block)(byte *d, const byte *s)
{
	L(lane) a = L(load_aligned)(s), b = L(load_aligned)(s + LANE);
	L(lane) c = L(load_aligned)(s + 2 * LANE), e = L(load_aligned)(s + 3 * LANE);
	struct L(marks) ends = L(marks_of)(a, b, c, e, AT_NUL);
	bits all = L(marked)(ends.all, AT_NUL), set;
	if (LIKELY(all == 0)) {
		L(store)(d, a);
		L(store)(d + LANE, b);
		L(store)(d + 2 * LANE, c);
		L(store)(d + 3 * LANE, e);
		return 0;
	}
	if ((set = L(marked)(ends.first, AT_NUL)) != 0)
		return L(copy_last)(d, s, set);
	L(store)(d, a);
	if ((set = L(marked)(ends.first_two, AT_NUL)) != 0)
		return L(copy_last)(d + LANE, s + LANE, set);
	L(store)(d + LANE, b);
	if ((set = L(marked)(ends.third, AT_NUL)) != 0)
		return L(copy_last)(d + 2 * LANE, s + 2 * LANE, set);
	L(store)(d + 2 * LANE, c);
	return L(copy_last)(d + 3 * LANE, s + 3 * LANE, all);
}

#define COPY_AT(place)                                                                                                 \
	do {                                                                                                               \
		L(lane) v = L(load_aligned)(s + (place));                                                                      \
		bits set = L(marked)(v, AT_NUL);                                                                               \
		if (UNLIKELY(set))                                                                                             \
			return L(copy_end)(d + (place), s + (place), first(set) + 1) - 1;                                          \
		L(store)(d + (place), v);                                                                                      \
	} while (0)

/* Copies the string that goes on at `s`, a multiple of LANE, to `d`, after its first LANE bytes or more have been
 * copied; gives the address of the copied NUL. Reads aligned lanes only, and a last one that ends with the NUL. */
INLINE byte *L(copy_rest)(byte *d, const byte *s)
{
	COPY_AT(0);
	COPY_AT(LANE);
	COPY_AT(2 * LANE);
	COPY_AT(3 * LANE);
	d += BLOCK, s += BLOCK;
	/* Back to a multiple of BLOCK, as in find: what is copied twice is the same. */
	d = result(d - past(s, BLOCK)), s = another(s - past(s, BLOCK));
	for (;; d += BLOCK, s += BLOCK) {
		byte *end = L(copy_block)(d, s);
		if (end)
			return end;
	}
}

#undef COPY_AT

/* Like strcpy and stpcpy, all that follow return either where they began to write, if they are given that as `start`, or
 * if that is null, the end of what they copied. Whatever takes more than a few steps and is not a loop over many
 * bytes is a function of its own and called last, so that short strings save no registers for it. */

/* A string whose first lane would cross a page. */
__attribute__((noinline, cold)) static byte *L(copy_text_over_page)(byte *d, const byte *s, byte *start)
{
	size_t length = L(length)(s);
	L(copy)(d, s, length + 1);
	return start ? start : d + length;
}

/* Copies the string at `s`. A lane without NUL is text as a whole and can be copied whole. */
INLINE byte *L(copy_whole_text)(byte *d, const byte *s, byte *start)
{
	if (UNLIKELY(page_room(s) < LANE))
		return L(copy_text_over_page)(d, s, start);
	L(lane) v = L(load)(s);
	bits ends = L(marked)(v, AT_NUL);
	byte *end;
	if (ends) {
		end = L(copy_ended)(d, s, first(ends));
	} else {
		size_t step = LANE - past(s, LANE);
		L(store)(d, v);
		end = L(copy_rest)(d + step, s + step);
	}
	return start ? result(start) : end;
}

ENTRY byte *L(copy_text)(byte *d, const byte *s)
{
	return L(copy_whole_text)(d, s, 0);
}

ENTRY byte *L(copy_text_to_start)(byte *d, const byte *s)
{
	return L(copy_whole_text)(d, s, d);
}

/* Copies what is left in the lane at `s`, of which at most `n` bytes count. Gives the address of the copied NUL, or
 * else the end of what was copied. */
INLINE byte *L(copy_end_within)(byte *d, const byte *s, bits ends, size_t n)
{
	if (ends && first(ends) < n)
		return L(copy_end)(d, s, first(ends) + 1) - 1;
	return L(copy_end)(d, s, n);
}

#define COPY_AT(place)                                                                                                 \
	do {                                                                                                               \
		L(lane) v = L(load_aligned)(s + (place));                                                                      \
		bits set = L(marked)(v, AT_NUL);                                                                               \
		if ((place) > 0 ? UNLIKELY(n <= (place) + LANE) : n <= LANE)                                                   \
			return L(copy_end_within)(d + (place), s + (place), set, n - (place));                                     \
		if (UNLIKELY(set))                                                                                             \
			return L(copy_end)(d + (place), s + (place), first(set) + 1) - 1;                                          \
		L(store)(d + (place), v);                                                                                      \
	} while (0)

/* As copy_rest, but no more than `n` bytes, which is more than none. Gives the end of what was copied if that has
 * no NUL. */
INLINE byte *L(copy_rest_within)(byte *d, const byte *s, size_t n)
{
	COPY_AT(0);
	COPY_AT(LANE);
	COPY_AT(2 * LANE);
	COPY_AT(3 * LANE);
	d += BLOCK, s += BLOCK, n -= BLOCK;
	if (n > BLOCK)
		n += past(s, BLOCK), d = result(d - past(s, BLOCK)), s = another(s - past(s, BLOCK));
	for (; n > BLOCK; d += BLOCK, s += BLOCK, n -= BLOCK) {
		byte *end = L(copy_block)(d, s);
		if (end)
			return end;
	}
	for (;; d += LANE, s += LANE, n -= LANE) {
		L(lane) v = L(load_aligned)(s);
		bits set = L(marked)(v, AT_NUL);
		if (set && first(set) < n)
			return L(copy_last)(d, s, set);
		if (n <= LANE)
			return L(copy_end)(d, s, n);
		L(store)(d, v);
	}
}

#undef COPY_AT

/* strncpy, stpncpy and strncat differ in what they do with `end`, the copied NUL or else the end of what was copied. */

__attribute__((noinline)) static byte *L(pad_long)(byte *end, byte *limit, byte *start)
{
	L(fill)(end, 0, (size_t)(limit - end));
	return start ? start : end;
}

INLINE byte *L(finish)(byte *end, byte *limit, byte *start, enum finish how)
{
	if (how == ENDED)
		*end = 0;
	else if (limit - end > 33)
		return L(pad_long)(end, limit, start);
	else if (limit - end > 1)
		fill_short(end + 1, 0, (size_t)(limit - end) - 1);
	return start ? start : end;
}

__attribute__((noinline)) static byte *L(copy_rest_padded)(byte *d, const byte *s, size_t n, byte *start)
{
	return L(finish)(L(copy_rest_within)(d, s, n), d + n, start, PADDED);
}

__attribute__((noinline)) static byte *L(copy_rest_ended)(byte *d, const byte *s, size_t n, byte *start)
{
	return L(finish)(L(copy_rest_within)(d, s, n), d + n, start, ENDED);
}

/* No bytes, or a string whose first lane would cross a page. */
__attribute__((noinline, cold)) static byte *L(copy_measured)(byte *d, const byte *s, size_t n, byte *start, enum finish how)
{
	size_t length = L(length_within)(s, n);
	L(copy)(d, s, length < n ? length + 1 : n);
	return L(finish)(d + length, d + n, start, how);
}

/* Copies `n` bytes of the string at `s`, or the string and its NUL if that is less. */
INLINE byte *L(copy_within)(byte *d, const byte *s, size_t n, byte *start, enum finish how)
{
	if (UNLIKELY(n == 0 || page_room(s) < LANE))
		return L(copy_measured)(d, s, n, start, how);
	L(lane) v = L(load)(s);
	bits ends = L(marked)(v, AT_NUL);
	if (ends && first(ends) < n)
		return L(finish)(L(copy_ended)(d, s, first(ends)), d + n, start, how);
	if (n <= LANE) {
		copy_short(d, s, n);
		return L(finish)(d + n, d + n, start, how);
	}
	L(store)(d, v);
	size_t step = LANE - past(s, LANE);
	d += step, s += step, n -= step;
	return how == PADDED ? L(copy_rest_padded)(d, s, n, start) : L(copy_rest_ended)(d, s, n, start);
}

/* Exactly `n` bytes are written: the string, and NULs in the rest. */
ENTRY byte *L(copy_padded)(byte *d, const byte *s, size_t n)
{
	return L(copy_within)(d, s, n, 0, PADDED);
}

ENTRY byte *L(copy_padded_to_start)(byte *d, const byte *s, size_t n)
{
	return L(copy_within)(d, s, n, d, PADDED);
}

ENTRY byte *L(append)(byte *d, const byte *s)
{
	return L(copy_whole_text)(d + L(length)(d), s, d);
}

/* Unlike strncpy, always ends with one NUL, and pads with no more. */
ENTRY byte *L(append_within)(byte *d, const byte *s, size_t n)
{
	return L(copy_within)(d + L(length)(d), s, n, d, ENDED);
}
