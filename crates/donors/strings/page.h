/* Pages: how far one may read from an address without meeting another page. */
#ifndef STRINGS_PAGE_H
#define STRINGS_PAGE_H

#define INLINE static inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Before a loop of few rounds that is to become straight code. */
#define UNROLLED _Pragma("clang loop unroll(full)")

/* Before a loop of few instructions over long blocks: within one line of the cache it takes two thirds of the time. */
#define ALIGNED [[clang::code_align(64)]]

typedef unsigned char byte;

/* `p`, of which the compiler does not see that it is an argument of the function that returns it. A caller would keep
 * the argument over the call to return it itself, instead of jumping to the function. */
INLINE byte *result(byte *p)
{
	__asm__("" : "+r"(p));
	return p;
}

/* `p`, of which the compiler does not see that it is the same, so that what follows from it is computed afresh.
 * Otherwise what a loop has read is kept in registers for the code behind it, and what only long blocks need is
 * computed ahead: the loop and the short blocks pay for that. */
INLINE const byte *another(const byte *p)
{
	__asm__("" : "+r"(p));
	return p;
}

/* The smallest page of either architecture. Where pages are larger, the argument holds all the more. */
#define PAGE 4096

/* Bytes from `p` to the end of its page, 1 to PAGE. */
INLINE size_t page_room(const byte *p)
{
	return PAGE - ((uintptr_t)p & (PAGE - 1));
}

/* Bytes of the page before `p`, 0 to PAGE - 1. */
INLINE size_t page_offset(const byte *p)
{
	return (uintptr_t)p & (PAGE - 1);
}

/* The distance of `p` from the last multiple of `size`, a power of two. */
INLINE size_t past(const byte *p, size_t size)
{
	return (uintptr_t)p & (size - 1);
}

/* The end of a block of `n` bytes; of one that has no limit (SIZE_MAX and the like), the end of all addresses. */
INLINE const byte *block_end(const byte *s, size_t n)
{
	return n > UINTPTR_MAX - (uintptr_t)s ? (const byte *)UINTPTR_MAX : s + n;
}

/* What stops a search. */
enum stop {
	AT_BYTE,            /* the byte that is searched for */
	AT_NUL,             /* the end of the string */
	AT_EITHER,          /* whichever comes first */
	AT_MEMBER,          /* a byte of a set of four, or the end of the string */
	AT_OTHER,           /* a byte outside such a set; the end of the string is outside */
	AT_TABLE_MEMBER,    /* a byte of a set of any size, which has the end of the string */
	AT_TABLE_OTHER,     /* a byte outside such a set */
	AT_WCHAR,           /* the wide character that is searched for */
	AT_WCHAR_OR_NUL,    /* that, or the wide string's end */
};

/* Whether a search's marks are ones where it stops; others are zero there. Each kind takes what needs fewer steps. */
INLINE bool is_marked_by_ones(enum stop stop)
{
	return stop != AT_NUL && stop != AT_EITHER && stop != AT_OTHER && stop != AT_TABLE_OTHER;
}

/* How characters compare. */
enum letters {
	EXACT,
	FOLDED, /* without regard to the case of ASCII's letters, which is all that musl's tolower knows in any locale */
	WIDE,   /* wide characters */
};

/* The action behind a copied string. */
enum finish {
	PADDED, /* NULs fill the rest of the block */
	ENDED,  /* one NUL ends it */
};

#endif
