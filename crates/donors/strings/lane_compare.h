/* Comparing blocks: memcmp and bcmp.
 *
 * Up to 16 bytes take one lane, without a branch on the length, which programs make hard to predict. The lane may
 * reach beyond the blocks but not out of their pages; what is there does not count. Longer blocks are read within
 * their ends, by lanes that overlap. */

/* Where the lanes at `a` and `b` differ. */
INLINE bits L(differences)(const byte *a, const byte *b)
{
	return L(unequal)(L(load)(a), L(load)(b));
}

/* All ones where the two blocks are the same in the lane at `place` and the one behind it. */
INLINE L(lane) L(same)(const byte *a, const byte *b, size_t place)
{
	L(lane) u = L(equal)(L(load)(a + place), L(load)(b + place));
	L(lane) v = L(equal)(L(load)(a + place + LANE), L(load)(b + place + LANE));
	return L(least)(u, v);
}

INLINE bool L(same_block)(const byte *a, const byte *b)
{
	return L(whole)(L(least)(L(same)(a, b, 0), L(same)(a, b, 2 * LANE)));
}

/* How two blocks compare that are known to differ. */
INLINE int L(settle)(const byte *a, const byte *b)
{
	for (;; a += LANE, b += LANE) {
		bits set = L(differences)(a, b);
		if (set)
			return a[first(set)] - b[first(set)];
	}
}

/* Compares lanes one after the other, at the given places of two blocks. */
#define COMPARE_LANE_AT(place)                                                                                         \
	do {                                                                                                               \
		set = L(differences)(a + (place), b + (place));                                                                \
		if (UNLIKELY(set))                                                                                             \
			return a[(place) + first(set)] - b[(place) + first(set)];                                                  \
	} while (0)

/* memcmp of more than a block whose first two lanes are the same. `a` is read at multiples of LANE where that takes
 * a loop. */
INLINE int L(compare_long)(const byte *a, const byte *b, size_t n)
{
	const byte *end = a + n - BLOCK;
	const ptrdiff_t between = (ptrdiff_t)((uintptr_t)b - (uintptr_t)a);
	if (n <= 2 * BLOCK) {
		if (!L(whole)(L(same)(a, b, 2 * LANE)))
			return L(settle)(a, b);
	} else {
		for (a += LANE - past(a, LANE); a < end; a += BLOCK)
			if (!L(same_block)(a, a + between))
				return L(settle)(a, a + between);
	}
	return L(same_block)(end, end + between) ? 0 : L(settle)(end, end + between);
}

/* No bytes, whose page must not be touched at all, or up to 16 of which a lane would leave a page. */
__attribute__((noinline, cold)) static int L(compare_at_page_end)(const byte *a, const byte *b, size_t n)
{
	for (; n > 0; n--, a++, b++)
		if (*a != *b)
			return *a - *b;
	return 0;
}

/* 17 to 32 bytes: which of the two lanes differs is chosen without a branch, too. */
INLINE int L(compare_to_32)(const byte *a, const byte *b, size_t n)
{
	bits low = base_differences(a, b), high = base_differences(a + n - 16, b + n - 16);
	size_t at = __builtin_unpredictable(low != 0) ? 0 : n - 16;
	bits set = __builtin_unpredictable(low != 0) ? low : high;
	return set ? a[at + first(set)] - b[at + first(set)] : 0;
}

ENTRY int L(compare)(const byte *a, const byte *b, size_t n)
{
	bits set;
	if (n <= 16) {
		if (UNLIKELY(n == 0 || page_room(a) < 16 || page_room(b) < 16))
			return L(compare_at_page_end)(a, b, n);
		set = base_differences(a, b) & bits_before(n);
		return set ? a[first(set)] - b[first(set)] : 0;
	}
	if (n <= 32)
		return L(compare_to_32)(a, b, n);
	COMPARE_LANE_AT(0);
	if (UNLIKELY(n > 2 * LANE)) {
		COMPARE_LANE_AT(LANE);
		if (n > BLOCK)
			return L(compare_long)(a, b, n);
		a += n - 2 * LANE, b += n - 2 * LANE;
		return L(whole)(L(same)(a, b, 0)) ? 0 : L(settle)(a, b);
	}
	COMPARE_LANE_AT(n - LANE);
	return 0;
}

/* bcmp says only whether the blocks differ; where they do need not be found. */
ENTRY int L(compare_roughly)(const byte *a, const byte *b, size_t n)
{
	if (n > 32)
		return L(compare)(a, b, n);
	if (n > 16)
		return (base_differences(a, b) | base_differences(a + n - 16, b + n - 16)) != 0;
	if (UNLIKELY(n == 0 || page_room(a) < 16 || page_room(b) < 16))
		return L(compare_at_page_end)(a, b, n);
	return (base_differences(a, b) & bits_before(n)) != 0;
}

#undef COMPARE_LANE_AT
