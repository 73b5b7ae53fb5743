/* Searching a block in a block or a string in a string: memmem, strstr.
 *
 * The needle's first byte and its last one are looked for at once, at LANE places; where both fit, the bytes between
 * are compared. Where there are so many places, a lane of them never reaches beyond the last one, so that nothing
 * outside the block is read. */

/* All ones at those of the LANE places from `h` on where the needle's first byte and its last one, which lies `last`
 * behind, fit. */
INLINE L(lane) L(fits)(const byte *h, size_t last, L(lane) first_byte, L(lane) last_byte)
{
	return L(least)(L(equal)(L(load)(h), first_byte), L(equal)(L(load)(h + last), last_byte));
}

/* Whether they fit at none of the BLOCK places from `h` on. */
INLINE bool L(fits_nowhere)(const byte *h, size_t last, L(lane) first_byte, L(lane) last_byte)
{
	L(lane) a = L(fits)(h, last, first_byte, last_byte), b = L(fits)(h + LANE, last, first_byte, last_byte);
	L(lane) c = L(fits)(h + 2 * LANE, last, first_byte, last_byte);
	L(lane) d = L(fits)(h + 3 * LANE, last, first_byte, last_byte);
	return L(bits)(L(either)(L(either)(a, b), L(either)(c, d))) == 0;
}

/* A separate function, since calls are rare: first and last byte together are. */
__attribute__((noinline)) static bool L(same_between)(const byte *h, const byte *needle, size_t m)
{
	return m <= 2 || L(compare_roughly)(h + 1, needle + 1, m - 2) == 0;
}

/* Fewer than LANE places: the lanes reach beyond the last one, but not out of the pages of the first byte and of the
 * needle's last byte there. Before the end of a page, one place after the other. */
INLINE const byte *L(seek_few)(const byte *h, size_t n, const byte *needle, size_t m)
{
	const size_t places = n - m + 1;
	const bool in_pages = page_room(h) >= LANE && page_room(h + m - 1) >= LANE;
	if (LIKELY(in_pages)) {
		bits set = L(bits)(L(fits)(h, m - 1, L(splat)(needle[0]), L(splat)(needle[m - 1]))) & bits_before(places);
		for (; set; set = bits_behind_first(set))
			if (L(same_between)(h + first(set), needle, m))
				return h + first(set);
		return 0;
	}
	for (size_t i = 0; i < places; i++)
		if (h[i] == needle[0] && h[i + m - 1] == needle[m - 1] && L(same_between)(h + i, needle, m))
			return h + i;
	return 0;
}

/* The first place of the needle, of `m` bytes, at least two, in the `n` bytes at `h`, at least as many; or null.
 * Changes the algorithm when more bytes have been compared than four times the passed ones, and a few thousand. */
__attribute__((noinline)) static const byte *L(seek)(const byte *h, size_t n, const byte *needle, size_t m)
{
	const size_t places = n - m + 1;
	if (places < LANE)
		return L(seek_few)(h, n, needle, m);
	const L(lane) first_byte = L(splat)(needle[0]), last_byte = L(splat)(needle[m - 1]);
	size_t compared = 0;
	for (size_t i = 0;;) {
		while (i + BLOCK < places && L(fits_nowhere)(h + i, m - 1, first_byte, last_byte))
			i += BLOCK;
		/* The last lane of places ends with the last one: some of them are looked at twice. */
		if (i > places - LANE)
			i = places - LANE;
		bits set = L(bits)(L(fits)(h + i, m - 1, first_byte, last_byte));
		for (; set; set = bits_behind_first(set)) {
			const byte *place = h + i + first(set);
			if (L(same_between)(place, needle, m))
				return place;
			compared += m;
			if (compared > 4 * i + 4096)
				return two_way(h + i, n - i, needle, m);
		}
		if (i == places - LANE)
			return 0;
		i += LANE;
	}
}

ENTRY const byte *L(find_block)(const byte *h, size_t n, const byte *needle, size_t m)
{
	if (m == 0)
		return h;
	if (n < m)
		return 0;
	return m == 1 ? L(find_byte)(h, needle[0], n) : L(seek)(h, n, needle, m);
}

/* A text's length is not known. To go to its end before the search would make a caller who goes from one find to the
 * next take the square of the time; so the text is measured, and searched, in windows that double. */
ENTRY const byte *L(find_text)(const byte *h, const byte *needle)
{
	if (needle[0] == 0)
		return h;
	if (needle[1] == 0)
		return L(find_in_text)(h, needle[0]);
	const size_t m = L(length)(needle);
	/* Nothing before the first byte's first place counts, and most texts do not have it. */
	h = L(find_in_text)(h, needle[0]);
	for (size_t window = 4 * m + 512; h; window *= 2) {
		size_t n = L(length_within)(h, window);
		const byte *found = n < m ? 0 : L(seek)(h, n, needle, m);
		if (found || n < window)
			return found;
		h += n - m + 1;
	}
	return 0;
}
