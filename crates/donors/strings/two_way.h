/* Searching a block in a block in linear time whatever they hold: the two-way algorithm (Crochemore and Perrin, "Two-way
 * string-matching", Journal of the ACM 38, 1991). It goes byte by byte; lane_seek.h comes here when blocks are made so
 * that what looks like the needle keeps not being it. */
#ifndef STRINGS_TWO_WAY_H
#define STRINGS_TWO_WAY_H

/* The byte at `p` as the search takes it. */
INLINE byte letter_at(const byte *p, enum letters letters)
{
	return letters == FOLDED ? lower(*p) : *p;
}

/* Where the greatest suffix of the needle begins, by the order of bytes or by the reverse one; its period. */
INLINE size_t greatest_suffix(const byte *needle, size_t m, bool reverse, size_t *period,
    enum letters letters)
{
	size_t start = 0, other = 1, same = 0;
	*period = 1;
	/* The suffix at `start` is the greatest so far; the one at `other` is the same for `same` bytes. */
	while (other + same < m) {
		byte a = letter_at(needle + other + same, letters), b = letter_at(needle + start + same, letters);
		if (a == b) {
			if (++same == *period)
				other += *period, same = 0;
		} else if (reverse ? a > b : a < b) {
			other += same + 1, same = 0;
			*period = other - start;
		} else {
			start = other, other = start + 1, same = 0;
			*period = 1;
		}
	}
	return start;
}

/* The first place of the needle, of `m` bytes, at least one, in the `n` bytes at `h`, at least as many; or null. */
INLINE const byte *two_way_by(const byte *h, size_t n, const byte *needle, size_t m, enum letters letters)
{
	size_t period, other_period;
	size_t cut = greatest_suffix(needle, m, false, &period, letters);
	size_t other = greatest_suffix(needle, m, true, &other_period, letters);
	if (other > cut)
		cut = other, period = other_period;
	/* Whether the period of the suffix is the needle's; if not, the needle has none that is shorter than either part. */
	bool periodic = true;
	for (size_t i = 0; i < cut && periodic; i++)
		periodic = letter_at(needle + i, letters) == letter_at(needle + i + period, letters);
	if (!periodic)
		period = (cut > m - cut ? cut : m - cut) + 1;
	/* How many of the needle's first bytes are known to be at `place`. */
	size_t known = 0;
	for (size_t place = 0; place <= n - m;) {
		size_t i = cut > known ? cut : known;
		while (i < m && letter_at(needle + i, letters) == letter_at(h + place + i, letters))
			i++;
		if (i < m) {
			place += i - cut + 1;
			known = 0;
			continue;
		}
		i = cut;
		while (i > known && letter_at(needle + i - 1, letters) == letter_at(h + place + i - 1, letters))
			i--;
		if (i <= known)
			return h + place;
		place += period;
		known = periodic ? m - period : 0;
	}
	return 0;
}

__attribute__((noinline, cold)) static const byte *two_way(const byte *h, size_t n, const byte *needle, size_t m)
{
	return two_way_by(h, n, needle, m, EXACT);
}

__attribute__((noinline, cold)) static const byte *two_way_folded(const byte *h, size_t n, const byte *needle, size_t m)
{
	return two_way_by(h, n, needle, m, FOLDED);
}

#endif
