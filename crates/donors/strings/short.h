/* Short blocks, by words and lanes of 16 bytes that overlap in the middle. Nothing outside the blocks is read or
 * written, and everything is fetched before anything is written.
 *
 * Between 8 and 15 bytes go as two words of 8, not as four of 4, although that would save a branch: a program that
 * reads back as 8 bytes what was written as 8 gets it from the store buffer. */

/* Up to 32 bytes. */
INLINE void copy_short(byte *d, const byte *s, size_t n)
{
	if (n >= 16) {
		base_lane low = base_load(s), high = base_load(s + n - 16);
		base_store(d, low);
		base_store(d + n - 16, high);
	} else if (n >= 8) {
		uint64_t low = load64(s), high = load64(s + n - 8);
		store64(d, low);
		store64(d + n - 8, high);
	} else if (n >= 4) {
		uint32_t low = load32(s), high = load32(s + n - 4);
		store32(d, low);
		store32(d + n - 4, high);
	} else if (n) {
		byte low = s[0], middle = s[n / 2], high = s[n - 1];
		d[0] = low;
		d[n / 2] = middle;
		d[n - 1] = high;
	}
}

/* Up to 32 bytes, with what a word and a lane have. */
INLINE void fill_short_by(byte *d, uint64_t word, base_lane v, size_t n)
{
	if (n >= 16) {
		base_store(d, v);
		base_store(d + n - 16, v);
	} else if (n >= 8) {
		store64(d, word);
		store64(d + n - 8, word);
	} else if (n >= 4) {
		store32(d, (uint32_t)word);
		store32(d + n - 4, (uint32_t)word);
	} else if (n >= 2) {
		store16(d, (uint16_t)word);
		store16(d + n - 2, (uint16_t)word);
	} else if (n) {
		*d = (byte)word;
	}
}

INLINE void fill_short(byte *d, byte c, size_t n)
{
	fill_short_by(d, c * 0x0101010101010101u, base_splat(c), n);
}
