/* Words at any address. */
#ifndef STRINGS_WORD_H
#define STRINGS_WORD_H

struct word16 { uint16_t value; } __attribute__((packed, may_alias));
struct word32 { uint32_t value; } __attribute__((packed, may_alias));
struct word64 { uint64_t value; } __attribute__((packed, may_alias));

INLINE uint16_t load16(const byte *p) { return ((const struct word16 *)p)->value; }
INLINE uint32_t load32(const byte *p) { return ((const struct word32 *)p)->value; }
INLINE uint64_t load64(const byte *p) { return ((const struct word64 *)p)->value; }
INLINE void store16(byte *p, uint16_t value) { ((struct word16 *)p)->value = value; }
INLINE void store32(byte *p, uint32_t value) { ((struct word32 *)p)->value = value; }
INLINE void store64(byte *p, uint64_t value) { ((struct word64 *)p)->value = value; }

/* Big-endian: the first byte in memory weighs most, so that numbers compare as the bytes do. */
INLINE uint64_t weigh16(const byte *p) { return __builtin_bswap16(load16(p)); }
INLINE uint64_t weigh32(const byte *p) { return __builtin_bswap32(load32(p)); }
INLINE uint64_t weigh64(const byte *p) { return __builtin_bswap64(load64(p)); }

/* The wide character at `p`, which may be any address. */
INLINE wchar_t load_wchar(const byte *p) { return (wchar_t)load32(p); }

/* What musl's tolower gives in every locale. */
INLINE byte lower(byte c) { return (byte)(c - 'A') < 26 ? c | 0x20 : c; }

/* How the characters at `a` and `b` compare, as musl says it: by the difference of bytes, and for wide ones by its sign. */
INLINE int order_at(const byte *a, const byte *b, enum letters letters)
{
	wchar_t x = 0, y = 0;
	switch (letters) {
	case EXACT: return *a - *b;
	case FOLDED: return lower(*a) - lower(*b);
	case WIDE: x = load_wchar(a), y = load_wchar(b); break;
	}
	return (x > y) - (x < y);
}

/* Whether strings end with the character at `p`. */
INLINE bool ends_at(const byte *p, enum letters letters)
{
	return letters == WIDE ? load_wchar(p) == 0 : *p == 0;
}

#endif
