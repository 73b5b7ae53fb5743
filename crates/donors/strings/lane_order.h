/* Comparing strings: strcmp and strncmp. */

/* Zero where the lanes differ or the strings in them end. */
INLINE L(lane) L(alike)(L(lane) a, L(lane) b)
{
	return L(least)(L(equal)(a, b), a);
}

/* Where the lanes differ or the strings in them end. */
INLINE bits L(ends)(L(lane) a, L(lane) b)
{
	return L(marked)(L(alike)(a, b), AT_NUL);
}

/* The marks of where the strings differ or end in the block at `a`, a multiple of LANE, and the one at `b`. */
INLINE struct L(marks) L(ends_of_block)(const byte *a, const byte *b)
{
	L(lane) u = L(alike)(L(load_aligned)(a), L(load)(b));
	L(lane) v = L(alike)(L(load_aligned)(a + LANE), L(load)(b + LANE));
	L(lane) w = L(alike)(L(load_aligned)(a + 2 * LANE), L(load)(b + 2 * LANE));
	L(lane) x = L(alike)(L(load_aligned)(a + 3 * LANE), L(load)(b + 3 * LANE));
	return L(marks_of)(u, v, w, x, AT_NUL);
}

static int L(order_again)(const byte *a, const byte *b, size_t n);

/* Whether the strings differ or end, or `n` does, before `b`'s page ends, `room` bytes on, fewer than a lane: then
 * how they compare goes to `result`. The lanes are moved back so that `b`'s ends with its page; `a`'s stays in its own
 * page if that has enough before `a`, and otherwise bytes are looked at one by one. */
INLINE bool L(decided_before_page)(const byte *a, const byte *b, size_t n, size_t room, int *result)
{
	size_t back = LANE - room, i = 0;
	if (page_offset(a) >= back) {
		bits set = bits_from(L(ends)(L(load)(a - back), L(load)(b - back)), back);
		i = set ? first(set) : room;
	} else {
		while (i < room && i < n && a[i] == b[i] && a[i] != 0)
			i++;
	}
	*result = i < n && i < room ? a[i] - b[i] : 0;
	return i >= n || i < room;
}

/* How many blocks at `a` and `b` stay in their pages and end before `n`. */
INLINE size_t L(whole_blocks)(const byte *a, const byte *b, size_t n)
{
	size_t room = page_room(a) < page_room(b) ? page_room(a) : page_room(b);
	return (n <= room ? n - 1 : room) / BLOCK;
}

/* strncmp of more than no bytes, where `a` is a multiple of LANE, so that its lanes never cross a page. Before a lane
 * of `b` does, its bytes in the first page have been compared: if the comparison goes on, `b` reaches into the next. */
__attribute__((noinline)) static int L(order_aligned)(const byte *a, const byte *b, size_t n)
{
	int result;
	for (;;) {
		ALIGNED
		for (size_t blocks = L(whole_blocks)(a, b, n); blocks; blocks--) {
			struct L(marks) ends = L(ends_of_block)(a, b);
			if (L(marked)(ends.all, AT_NUL)) {
				size_t at = L(first_mark)(ends, AT_NUL);
				return a[at] - b[at];
			}
			a += BLOCK, b += BLOCK, n -= BLOCK;
		}
		size_t room = page_room(b);
		if (room < LANE && L(decided_before_page)(a, b, n, room, &result))
			return result;
		bits set = L(ends)(L(load_aligned)(a), L(load)(b));
		if (set)
			return first(set) < n ? a[first(set)] - b[first(set)] : 0;
		if (n <= LANE)
			return 0;
		a += LANE, b += LANE, n -= LANE;
	}
}

#define ORDER_LANE_AT(place)                                                                                           \
	do {                                                                                                               \
		bits set = L(ends)(L(load)(a + (place)), L(load)(b + (place)));                                                \
		if (set)                                                                                                       \
			return (place) + first(set) < n ? a[(place) + first(set)] - b[(place) + first(set)] : 0;                   \
		if (n <= (place) + LANE)                                                                                       \
			return 0;                                                                                                  \
	} while (0)

/* strncmp of more than no bytes of which less than a block is left in the page of `a` or `b`: whole lanes as far as
 * they stay in both pages, then single bytes to the page's end. That the comparison goes on then means that the
 * strings reach into the next page. */
__attribute__((noinline, cold)) static int L(order_at_page_end)(const byte *a, const byte *b, size_t n)
{
	size_t room = page_room(a) < page_room(b) ? page_room(a) : page_room(b);
	for (; room >= LANE; room -= LANE, a += LANE, b += LANE, n -= LANE)
		ORDER_LANE_AT(0);
	for (; room > 0; room--, a++, b++, n--)
		if (n == 0 || *a != *b || *a == 0)
			return n ? *a - *b : 0;
	return n ? L(order_again)(a, b, n) : 0;
}

/* strncmp of more than no bytes: blocks of four lanes that stay in their pages, and if more than a block is left, what
 * follows with `a` aligned. */
INLINE int L(order_inline)(const byte *a, const byte *b, size_t n)
{
	do {
		if (UNLIKELY(page_room(a) < BLOCK || page_room(b) < BLOCK))
			return L(order_at_page_end)(a, b, n);
		ORDER_LANE_AT(0);
		ORDER_LANE_AT(LANE);
		ORDER_LANE_AT(2 * LANE);
		ORDER_LANE_AT(3 * LANE);
		a += BLOCK, b += BLOCK, n -= BLOCK;
	} while (n <= BLOCK);
	size_t back = past(a, LANE);
	return L(order_aligned)(a - back, b - back, n + back < n ? n : n + back);
}

__attribute__((noinline)) static int L(order_again)(const byte *a, const byte *b, size_t n)
{
	return L(order_inline)(a, b, n);
}

ENTRY int L(order)(const byte *a, const byte *b)
{
	return L(order_inline)(a, b, SIZE_MAX);
}

ENTRY int L(order_within)(const byte *a, const byte *b, size_t n)
{
	return n ? L(order_inline)(a, b, n) : 0;
}

#undef ORDER_LANE_AT
