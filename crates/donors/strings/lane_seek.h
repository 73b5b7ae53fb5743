/* Searching a block in a block or a string in a string: memmem, strstr, strcasestr.
 *
 * The needle's first byte and its last one are looked for at once, at LANE places; where both fit, the bytes between
 * are compared. Where there are so many places, a lane of them never reaches beyond the last one, so that nothing
 * outside the block is read. */

/* `v`, or `v` without the case of its letters. */
INLINE L(lane) L(letters)(L(lane) v, enum letters letters)
{
	return letters == FOLDED ? L(folded)(v) : v;
}

/* All ones at those of the LANE places from `h` on where the needle's first byte and its last one, which lies `last`
 * behind, fit. */
INLINE L(lane) L(fits)(const byte *h, size_t last, L(lane) first_byte, L(lane) last_byte, enum letters letters)
{
	L(lane) a = L(letters)(L(load)(h), letters), b = L(letters)(L(load)(h + last), letters);
	return L(least)(L(equal)(a, first_byte), L(equal)(b, last_byte));
}

/* Whether they fit at none of the BLOCK places from `h` on. */
INLINE bool L(fits_nowhere)(const byte *h, size_t last, L(lane) first_byte, L(lane) last_byte, enum letters letters)
{
	L(lane) a = L(fits)(h, last, first_byte, last_byte, letters);
	L(lane) b = L(fits)(h + LANE, last, first_byte, last_byte, letters);
	L(lane) c = L(fits)(h + 2 * LANE, last, first_byte, last_byte, letters);
	L(lane) d = L(fits)(h + 3 * LANE, last, first_byte, last_byte, letters);
	return L(bits)(L(either)(L(either)(a, b), L(either)(c, d))) == 0;
}

/* A separate function, since calls are rare: first and last byte together are. */
__attribute__((noinline)) static bool L(same_between)(const byte *h, const byte *needle, size_t m)
{
	return m <= 2 || L(compare_roughly)(h + 1, needle + 1, m - 2) == 0;
}

/* The same without regard to case, for a needle of at least two bytes: reads the needle's bytes and as many at `h`. */
__attribute__((noinline)) static bool L(same_folded)(const byte *h, const byte *needle, size_t m)
{
	size_t i = 0;
	for (; i + LANE <= m; i += LANE)
		if (!L(whole)(L(equal_folded)(L(load)(h + i), L(load)(needle + i))))
			return false;
	for (; i < m; i++)
		if (lower(h[i]) != lower(needle[i]))
			return false;
	return true;
}

INLINE bool L(same_at)(const byte *h, const byte *needle, size_t m, enum letters letters)
{
	return letters == FOLDED ? L(same_folded)(h, needle, m) : L(same_between)(h, needle, m);
}

/* Fewer than LANE places: the lanes reach beyond the last one, but not out of the pages of the first byte and of the
 * needle's last byte there. Before the end of a page, one place after the other. */
INLINE const byte *L(seek_few)(const byte *h, size_t n, const byte *needle, size_t m, enum letters letters)
{
	const size_t places = n - m + 1;
	const bool in_pages = page_room(h) >= LANE && page_room(h + m - 1) >= LANE;
	if (LIKELY(in_pages)) {
		L(lane) first_byte = L(splat)(letter_at(needle, letters)), last_byte = L(splat)(letter_at(needle + m - 1, letters));
		bits set = L(bits)(L(fits)(h, m - 1, first_byte, last_byte, letters)) & bits_before(places);
		for (; set; set = bits_behind_first(set))
			if (L(same_at)(h + first(set), needle, m, letters))
				return h + first(set);
		return 0;
	}
	for (size_t i = 0; i < places; i++)
		if (letter_at(h + i, letters) == letter_at(needle, letters) &&
		    letter_at(h + i + m - 1, letters) == letter_at(needle + m - 1, letters) && L(same_at)(h + i, needle, m, letters))
			return h + i;
	return 0;
}

/* The first place of the needle, of `m` bytes, at least two, in the `n` bytes at `h`, at least as many; or null.
 * Changes the algorithm when more bytes have been compared than four times the passed ones, and a few thousand. */
INLINE const byte *L(seek_by)(const byte *h, size_t n, const byte *needle, size_t m, enum letters letters)
{
	const size_t places = n - m + 1;
	if (places < LANE)
		return L(seek_few)(h, n, needle, m, letters);
	const L(lane) first_byte = L(splat)(letter_at(needle, letters));
	const L(lane) last_byte = L(splat)(letter_at(needle + m - 1, letters));
	size_t compared = 0;
	for (size_t i = 0;;) {
		while (i + BLOCK < places && L(fits_nowhere)(h + i, m - 1, first_byte, last_byte, letters))
			i += BLOCK;
		/* The last lane of places ends with the last one: some of them are looked at twice. */
		if (i > places - LANE)
			i = places - LANE;
		bits set = L(bits)(L(fits)(h + i, m - 1, first_byte, last_byte, letters));
		for (; set; set = bits_behind_first(set)) {
			const byte *place = h + i + first(set);
			if (L(same_at)(place, needle, m, letters))
				return place;
			compared += m;
			if (compared > 4 * i + 4096)
				return letters == FOLDED ? two_way_folded(h + i, n - i, needle, m) : two_way(h + i, n - i, needle, m);
		}
		if (i == places - LANE)
			return 0;
		i += LANE;
	}
}

__attribute__((noinline)) static const byte *L(seek)(const byte *h, size_t n, const byte *needle, size_t m)
{
	return L(seek_by)(h, n, needle, m, EXACT);
}

__attribute__((noinline)) static const byte *L(seek_folded)(const byte *h, size_t n, const byte *needle, size_t m)
{
	return L(seek_by)(h, n, needle, m, FOLDED);
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
#ifdef NEAR
/* One bit for each byte of two lanes. */
INLINE uint64_t L(bits_of_two)(L(lane) a, L(lane) b)
{
	return L(bits)(a) | (uint64_t)L(bits)(b) << LANE;
}

/* Looks for a needle of two bytes or more, fewer than a lane, in the first bytes of a text, as far as its page goes: most
 * texts end there. Says whether that decides, and otherwise passes over the places that are not the needle's. */
INLINE bool L(seek_near)(const byte **text, const byte *needle, const byte **found)
{
	const byte *h = *text;
	if (UNLIKELY(page_room(h) < NEAR + LANE || page_room(needle) < LANE))
		return false;
	const L(lane) whole = L(load)(needle);
	bits end = L(hits)(whole, L(one_byte)(0), AT_NUL);
	if (UNLIKELY(end == 0))
		return false;
	const size_t m = first(end);
	const bits all = bits_before(m);
	const L(lane) first_byte = L(splat)(needle[0]), last_byte = L(splat)(needle[m - 1]);
	/* Where places often look like the needle's and are not, the other way goes over to an algorithm for that. */
	unsigned compared = 0;
	do {
		const L(lane) zero = L(splat)(0), v = L(load)(h), w = L(load)(h + LANE);
		const L(lane) a = L(fits)(h, m - 1, first_byte, last_byte, EXACT);
		const L(lane) b = L(fits)(h + LANE, m - 1, first_byte, last_byte, EXACT);
		if (L(bits)(L(either)(L(either)(a, b), L(equal)(L(least)(v, w), zero))) == 0)
			continue;
		const uint64_t ends = L(bits_of_two)(L(equal)(v, zero), L(equal)(w, zero));
		for (uint64_t fits = L(bits_of_two)(a, b) & (ends ^ (ends - 1)); fits; fits &= fits - 1, compared++) {
			const byte *place = h + __builtin_ctzll(fits);
			if ((L(bits)(L(equal)(L(load)(place), whole)) & all) == all) {
				*found = place;
				return true;
			}
		}
		if (ends) {
			*found = 0;
			return true;
		}
	} while (h += NEAR, page_room(h) >= NEAR + LANE && compared < 64);
	*text = h;
	return false;
}
#endif

INLINE const byte *L(seek_text)(const byte *h, const byte *needle, enum letters letters)
{
	const size_t m = L(length)(needle);
	/* Nothing before the first byte's first place counts, and most texts do not have it. */
	h = letters == FOLDED ? L(find_letter)(h, needle[0]) : L(find_in_text)(h, needle[0]);
	for (size_t window = 4 * m + 512; h; window *= 2) {
		size_t n = L(length_within)(h, window);
		const byte *found = 0;
		if (n >= m)
			found = letters == FOLDED ? L(seek_folded)(h, n, needle, m) : L(seek)(h, n, needle, m);
		if (found || n < window)
			return found;
		h += n - m + 1;
	}
	return 0;
}

ENTRY const byte *L(find_text)(const byte *h, const byte *needle)
{
	if (needle[0] == 0)
		return h;
	if (needle[1] == 0)
		return L(find_in_text)(h, needle[0]);
#ifdef NEAR
	const byte *found;
	if (L(seek_near)(&h, needle, &found))
		return found;
#endif
	return L(seek_text)(h, needle, EXACT);
}

/* musl's strcasestr does not find the empty string in an empty one. */
__attribute__((noinline)) static const byte *L(find_text_folded)(const byte *h, const byte *needle)
{
	if (needle[0] == 0)
		return *h ? h : 0;
	if (needle[1] == 0)
		return L(find_letter)(h, needle[0]);
	return L(seek_text)(h, needle, FOLDED);
}
