/* Comparing strings: strcmp and strncmp; strcasecmp and strncasecmp; wcscmp. Included once for each kind of letters:
 * O(name) is a function's name, LETTERS says how characters compare. All sizes are in bytes; strings of wide characters
 * are at multiples of their size. */
#define CHARACTER (LETTERS == WIDE ? sizeof(wchar_t) : 1)

/* Zero in some byte where the lanes differ or the strings in them end, and in the first of each such character. */
INLINE L(lane) O(alike)(L(lane) a, L(lane) b)
{
	if (LETTERS == FOLDED)
		return L(least)(L(equal_folded)(a, b), a);
	if (LETTERS == WIDE)
		return L(except)(L(equal_wchars)(a, b), L(equal_wchars)(a, L(splat)(0)));
	return L(least)(L(equal)(a, b), a);
}

/* Where the lanes differ or the strings in them end. */
INLINE bits O(ends)(L(lane) a, L(lane) b)
{
	return L(marked)(O(alike)(a, b), AT_NUL);
}

/* The marks of where the strings differ or end in the block at `a`, a multiple of LANE, and the one at `b`. */
INLINE struct L(marks) O(ends_of_block)(const byte *a, const byte *b)
{
	L(lane) u = O(alike)(L(load_aligned)(a), L(load)(b));
	L(lane) v = O(alike)(L(load_aligned)(a + LANE), L(load)(b + LANE));
	L(lane) w = O(alike)(L(load_aligned)(a + 2 * LANE), L(load)(b + 2 * LANE));
	L(lane) x = O(alike)(L(load_aligned)(a + 3 * LANE), L(load)(b + 3 * LANE));
	return L(marks_of)(u, v, w, x, AT_NUL);
}

static int O(order_again)(const byte *a, const byte *b, size_t n);

/* Whether the strings differ or end, or `n` does, before `b`'s page ends, `room` bytes on, fewer than a lane: then
 * how they compare goes to `result`. The lanes are moved back so that `b`'s ends with its page; `a`'s stays in its own
 * page if that has enough before `a`, and otherwise bytes are looked at one by one. */
INLINE bool O(decided_before_page)(const byte *a, const byte *b, size_t n, size_t room, int *result)
{
	size_t back = LANE - room, i = 0;
	if (page_offset(a) >= back) {
		bits set = bits_from(O(ends)(L(load)(a - back), L(load)(b - back)), back);
		i = set ? first(set) : room;
	} else {
		while (i < room && i < n && order_at(a + i, b + i, LETTERS) == 0 && !ends_at(a + i, LETTERS))
			i += CHARACTER;
	}
	*result = i < n && i < room ? order_at(a + i, b + i, LETTERS) : 0;
	return i >= n || i < room;
}

/* How many blocks at `a` and `b` stay in their pages and end before `n`. */
INLINE size_t O(whole_blocks)(const byte *a, const byte *b, size_t n)
{
	size_t room = page_room(a) < page_room(b) ? page_room(a) : page_room(b);
	return (n <= room ? n - 1 : room) / BLOCK;
}

/* strncmp of more than no bytes, where `a` is a multiple of LANE, so that its lanes never cross a page. Before a lane
 * of `b` does, its bytes in the first page have been compared: if the comparison goes on, `b` reaches into the next. */
__attribute__((noinline)) static int O(order_aligned)(const byte *a, const byte *b, size_t n)
{
	int result;
	for (;;) {
		ALIGNED
		for (size_t blocks = O(whole_blocks)(a, b, n); blocks; blocks--) {
			struct L(marks) ends = O(ends_of_block)(a, b);
			if (L(marked)(ends.all, AT_NUL)) {
				size_t at = L(first_mark)(ends, AT_NUL);
				return order_at(a + at, b + at, LETTERS);
			}
			a += BLOCK, b += BLOCK, n -= BLOCK;
		}
		size_t room = page_room(b);
		if (room < LANE && O(decided_before_page)(a, b, n, room, &result))
			return result;
		bits set = O(ends)(L(load_aligned)(a), L(load)(b));
		if (set)
			return first(set) < n ? order_at(a + first(set), b + first(set), LETTERS) : 0;
		if (n <= LANE)
			return 0;
		a += LANE, b += LANE, n -= LANE;
	}
}

#define ORDER_LANE_AT(place)                                                                                           \
	do {                                                                                                               \
		bits set = O(ends)(L(load)(a + (place)), L(load)(b + (place)));                                                \
		size_t at = (place) + first(set);                                                                              \
		if (set)                                                                                                       \
			return at < n ? order_at(a + at, b + at, LETTERS) : 0;                                                     \
		if (n <= (place) + LANE)                                                                                       \
			return 0;                                                                                                  \
	} while (0)

/* strncmp of more than no bytes of which less than a block is left in the page of `a` or `b`: whole lanes as far as
 * they stay in both pages, then single bytes to the page's end. That the comparison goes on then means that the
 * strings reach into the next page. */
__attribute__((noinline, cold)) static int O(order_at_page_end)(const byte *a, const byte *b, size_t n)
{
	size_t room = page_room(a) < page_room(b) ? page_room(a) : page_room(b);
	for (; room >= LANE; room -= LANE, a += LANE, b += LANE, n -= LANE)
		ORDER_LANE_AT(0);
	for (; room > 0; room -= CHARACTER, a += CHARACTER, b += CHARACTER, n -= CHARACTER)
		if (n == 0 || order_at(a, b, LETTERS) != 0 || ends_at(a, LETTERS))
			return n ? order_at(a, b, LETTERS) : 0;
	return n ? O(order_again)(a, b, n) : 0;
}

/* strncmp of more than no bytes: blocks of four lanes that stay in their pages, and if more than a block is left, what
 * follows with `a` aligned. */
INLINE int O(order_inline)(const byte *a, const byte *b, size_t n)
{
	do {
		if (UNLIKELY(page_room(a) < BLOCK || page_room(b) < BLOCK))
			return O(order_at_page_end)(a, b, n);
		ORDER_LANE_AT(0);
		ORDER_LANE_AT(LANE);
		ORDER_LANE_AT(2 * LANE);
		ORDER_LANE_AT(3 * LANE);
		a += BLOCK, b += BLOCK, n -= BLOCK;
	} while (n <= BLOCK);
	size_t back = past(a, LANE);
	return O(order_aligned)(a - back, b - back, n + back < n ? n : n + back);
}

__attribute__((noinline)) static int O(order_again)(const byte *a, const byte *b, size_t n)
{
	return O(order_inline)(a, b, n);
}

/* Only the most frequent ones are worth copies of their own. */
INLINE int O(order_first)(const byte *a, const byte *b, size_t n)
{
	return LETTERS == EXACT ? O(order_inline)(a, b, n) : O(order_again)(a, b, n);
}

ENTRY int O(order)(const byte *a, const byte *b)
{
	return O(order_first)(a, b, SIZE_MAX);
}

__attribute__((unused)) ENTRY int O(order_within)(const byte *a, const byte *b, size_t n)
{
	return n ? O(order_first)(a, b, n) : 0;
}

#undef ORDER_LANE_AT
#undef CHARACTER
