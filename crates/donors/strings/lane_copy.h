/* Copying and filling blocks: memcpy and memmove, memset. Nothing outside the blocks is read or written: if their
 * lengths are not multiples of a lane, lanes overlap. */

/* 2 * LANE or fewer, LANE or more; everything is fetched before anything is written. */
INLINE void L(copy_in_2)(byte *d, const byte *s, size_t n)
{
	L(lane) a = L(load)(s), z = L(load)(s + n - LANE);
	L(store)(d, a);
	L(store)(d + n - LANE, z);
}

/* 4 * LANE or fewer, more than 2 * LANE. */
INLINE void L(copy_in_4)(byte *d, const byte *s, size_t n)
{
	L(lane) a = L(load)(s), b = L(load)(s + LANE);
	L(lane) y = L(load)(s + n - 2 * LANE), z = L(load)(s + n - LANE);
	L(store)(d, a);
	L(store)(d + LANE, b);
	L(store)(d + n - 2 * LANE, y);
	L(store)(d + n - LANE, z);
}

/* 8 * LANE or fewer, more than 4 * LANE. */
INLINE void L(copy_in_8)(byte *d, const byte *s, size_t n)
{
	L(lane) a = L(load)(s), b = L(load)(s + LANE), c = L(load)(s + 2 * LANE), e = L(load)(s + 3 * LANE);
	const byte *t = s + n - BLOCK;
	L(lane) w = L(load)(t), x = L(load)(t + LANE), y = L(load)(t + 2 * LANE), z = L(load)(t + 3 * LANE);
	L(store)(d, a);
	L(store)(d + LANE, b);
	L(store)(d + 2 * LANE, c);
	L(store)(d + 3 * LANE, e);
	d += n - BLOCK;
	L(store)(d, w);
	L(store)(d + LANE, x);
	L(store)(d + 2 * LANE, y);
	L(store)(d + 3 * LANE, z);
}

/* More than a block upwards, for `d` below `s` or apart from it. The first lane and the last four are fetched before
 * anything is written, since writing may change them; in between, every written byte is below all bytes that are still
 * to be read. */
INLINE void L(copy_up)(byte *d, const byte *s, size_t n)
{
	L(lane) head = L(load)(s);
	const byte *t = s + n - BLOCK;
	L(lane) w = L(load)(t), x = L(load)(t + LANE), y = L(load)(t + 2 * LANE), z = L(load)(t + 3 * LANE);
	byte *start = d, *end = d + n - BLOCK;
	size_t step = LANE - past(d, LANE);
	for (d += step, s += step; d < end; d += BLOCK, s += BLOCK) {
		L(lane) a = L(load)(s), b = L(load)(s + LANE), c = L(load)(s + 2 * LANE), e = L(load)(s + 3 * LANE);
		L(store_aligned)(d, a);
		L(store_aligned)(d + LANE, b);
		L(store_aligned)(d + 2 * LANE, c);
		L(store_aligned)(d + 3 * LANE, e);
	}
	L(store)(end, w);
	L(store)(end + LANE, x);
	L(store)(end + 2 * LANE, y);
	L(store)(end + 3 * LANE, z);
	L(store)(start, head);
}

/* The same downwards, for `d` above `s`. */
INLINE void L(copy_down)(byte *d, const byte *s, size_t n)
{
	L(lane) tail = L(load)(s + n - LANE);
	L(lane) w = L(load)(s), x = L(load)(s + LANE), y = L(load)(s + 2 * LANE), z = L(load)(s + 3 * LANE);
	byte *start = d + BLOCK, *end = d + n - LANE;
	size_t step = past(d + n, LANE) ? past(d + n, LANE) : LANE;
	byte *p = d + n - step;
	const byte *q = s + n - step;
	for (; p > start; p -= BLOCK, q -= BLOCK) {
		L(lane) a = L(load)(q - LANE), b = L(load)(q - 2 * LANE);
		L(lane) c = L(load)(q - 3 * LANE), e = L(load)(q - 4 * LANE);
		L(store_aligned)(p - LANE, a);
		L(store_aligned)(p - 2 * LANE, b);
		L(store_aligned)(p - 3 * LANE, c);
		L(store_aligned)(p - 4 * LANE, e);
	}
	L(store)(d, w);
	L(store)(d + LANE, x);
	L(store)(d + 2 * LANE, y);
	L(store)(d + 3 * LANE, z);
	L(store)(end, tail);
}

/* More than 8 * LANE. Upwards, unless that would overwrite bytes that are still to be read: then `d` is inside the
 * block at `s`. */
__attribute__((noinline)) static byte *L(copy_long)(byte *d, const byte *s, size_t n)
{
	if (copied_by_processor(d, s, n))
		return result(d);
	if ((uintptr_t)d - (uintptr_t)s >= n)
		L(copy_up)(d, s, n);
	else
		L(copy_down)(d, s, n);
	return result(d);
}

/* memcpy is memmove: up to 8 * LANE, everything is fetched before anything is written; for what is longer, the look
 * at the direction takes no time that could be measured. */
ENTRY byte *L(copy)(byte *d, const byte *s, size_t n)
{
	if (n <= 32) {
		copy_short(d, s, n);
		return result(d);
	}
	if (n <= 2 * LANE) {
		L(copy_in_2)(d, s, n);
		return result(d);
	}
	if (n <= 4 * LANE) {
		L(copy_in_4)(d, s, n);
		return result(d);
	}
	if (n > 8 * LANE)
		return L(copy_long)(d, s, n);
	L(copy_in_8)(d, s, n);
	return result(d);
}

INLINE void L(store_block)(byte *d, L(lane) v)
{
	L(store)(d, v);
	L(store)(d + LANE, v);
	L(store)(d + 2 * LANE, v);
	L(store)(d + 3 * LANE, v);
}

/* More than 8 * LANE. A value of several bytes begins anew with each of them: the lanes that are not at `d` are at a
 * distance from it that is a multiple of the value's size, if `d` is at one. */
INLINE byte *L(fill_blocks)(byte *d, L(lane) v, size_t n)
{
	byte *start = d, *end = d + n - BLOCK;
	L(store_block)(d, v);
	for (d += BLOCK - past(d, LANE); d < end; d += BLOCK) {
		L(store_aligned)(d, v);
		L(store_aligned)(d + LANE, v);
		L(store_aligned)(d + 2 * LANE, v);
		L(store_aligned)(d + 3 * LANE, v);
	}
	L(store_block)(end, v);
	return result(start);
}

/* More than 32 bytes, 8 * LANE or fewer. */
INLINE byte *L(fill_middle)(byte *d, L(lane) v, size_t n)
{
	if (n > 4 * LANE) {
		L(store_block)(d, v);
		L(store_block)(d + n - BLOCK, v);
		return result(d);
	}
	L(store)(d, v);
	L(store)(d + n - LANE, v);
	if (n > 2 * LANE) {
		L(store)(d + LANE, v);
		L(store)(d + n - 2 * LANE, v);
	}
	return result(d);
}

/* More than 8 * LANE. */
__attribute__((noinline)) static byte *L(fill_long)(byte *d, byte c, size_t n)
{
	if (filled_by_processor(d, c, n))
		return result(d);
	return L(fill_blocks)(d, L(splat)(c), n);
}

ENTRY byte *L(fill)(byte *d, byte c, size_t n)
{
	if (n <= 32) {
		fill_short(d, c, n);
		return result(d);
	}
	if (n > 8 * LANE)
		return L(fill_long)(d, c, n);
	return L(fill_middle)(d, L(splat)(c), n);
}
