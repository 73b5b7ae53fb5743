/* Wide characters: wcslen, wcsnlen, wcschr, wmemchr, wmemcmp, wmemset. All sizes are in bytes, multiples of a character's.
 * The searches begin at multiples of it; wchars.h has what they do elsewhere. */

INLINE struct L(needle) L(one_wchar)(wchar_t c)
{
	return (struct L(needle)){ .one = L(splat_wchar)(c) };
}

ENTRY size_t L(length_of_wchars)(const byte *s)
{
	return (size_t)(L(find)(s, L(one_wchar)(0), AT_WCHAR) - s);
}

/* The first character `c` of a string, or null. */
ENTRY const byte *L(find_in_wchars)(const byte *s, wchar_t c)
{
	const byte *found = L(find)(s, L(one_wchar)(c), AT_WCHAR_OR_NUL);
	return load_wchar(found) == c ? found : 0;
}

/* The first character `c` of a block, or null. */
ENTRY const byte *L(find_wchar)(const byte *s, wchar_t c, size_t n)
{
	if (n == 0)
		return 0;
	size_t at = L(find_within)(s, n, L(one_wchar)(c), AT_WCHAR);
	return at < n ? s + at : 0;
}

/* The length of a string, or `n` if it has no end in `n` bytes. */
ENTRY size_t L(length_of_wchars_within)(const byte *s, size_t n)
{
	if (n == 0)
		return 0;
	size_t length = L(find_within)(s, n, L(one_wchar)(0), AT_WCHAR);
	return length < n ? length : n;
}

/* How the characters compare in which the lanes at `a` and `b` first differ, if they do: then `set` says where. */
INLINE int L(order_in_lane)(const byte *a, const byte *b, bits set)
{
	size_t at = first(set) / sizeof(wchar_t) * sizeof(wchar_t);
	return set ? order_at(a + at, b + at, WIDE) : 0;
}

__attribute__((noinline)) static int L(compare_long_wchars)(const byte *a, const byte *b, size_t n)
{
	for (; n > BLOCK && L(same_block)(a, b); n -= BLOCK)
		a += BLOCK, b += BLOCK;
	for (; n > LANE; n -= LANE, a += LANE, b += LANE) {
		bits set = L(differences)(a, b);
		if (set)
			return L(order_in_lane)(a, b, set);
	}
	/* The last lane ends with the blocks, and overlaps what has been compared. */
	a += n, b += n;
	return L(order_in_lane)(a - LANE, b - LANE, L(differences)(a - LANE, b - LANE));
}

/* Short blocks as memcmp does them (lane_compare.h). */
ENTRY int L(compare_wchars)(const byte *a, const byte *b, size_t n)
{
	if (n > 32)
		return L(compare_long_wchars)(a, b, n);
	if (n > 16) {
		bits low = base_differences(a, b), high = base_differences(a + n - 16, b + n - 16);
		size_t at = __builtin_unpredictable(low != 0) ? 0 : n - 16;
		return L(order_in_lane)(a + at, b + at, __builtin_unpredictable(low != 0) ? low : high);
	}
	if (UNLIKELY(n == 0 || page_room(a) < 16 || page_room(b) < 16)) {
		int order = 0;
		for (size_t i = 0; i < n && order == 0; i += sizeof(wchar_t))
			order = order_at(a + i, b + i, WIDE);
		return order;
	}
	return L(order_in_lane)(a, b, base_differences(a, b) & bits_before(n));
}

__attribute__((noinline)) static byte *L(fill_long_wchars)(byte *d, wchar_t c, size_t n)
{
	return L(fill_blocks)(d, L(splat_wchar)(c), n);
}

ENTRY byte *L(fill_wchars)(byte *d, wchar_t c, size_t n)
{
	if (n > 8 * LANE)
		return L(fill_long_wchars)(d, c, n);
	if (n > 32)
		return L(fill_middle)(d, L(splat_wchar)(c), n);
	fill_short_by(d, (uint32_t)c * 0x100000001u, base_splat_wchar(c), n);
	return result(d);
}
