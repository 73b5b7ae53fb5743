/* The functions for wide characters, as names.h names them: an array has to be at a multiple of a character's size. musl's
 * functions work elsewhere too, and so do these, one character after the other. */

#define CHARACTER sizeof(wchar_t)

INLINE bool is_aligned(const wchar_t *s)
{
	return LIKELY(past((const byte *)s, CHARACTER) == 0);
}

/* The bytes of `n` characters; as many as there may be where that is more. */
INLINE size_t wchar_bytes(size_t n)
{
	return UNLIKELY(n > SIZE_MAX / CHARACTER) ? SIZE_MAX / CHARACTER * CHARACTER : n * CHARACTER;
}

/* What the functions do at other addresses; called last, so that they save no registers for it. */
__attribute__((noinline, cold)) static size_t length_at_any_address(const wchar_t *s, size_t n)
{
	size_t length = 0;
	while (length < n && load_wchar((const byte *)s + length * CHARACTER) != 0)
		length++;
	return length;
}

__attribute__((noinline, cold)) static wchar_t *find_at_any_address(const wchar_t *s, wchar_t c, size_t n)
{
	for (const byte *p = (const byte *)s; n > 0; n--, p += CHARACTER)
		if (load_wchar(p) == c)
			return (wchar_t *)p;
	return 0;
}

__attribute__((noinline, cold)) static wchar_t *find_in_wchars_at_any_address(const wchar_t *s, wchar_t c)
{
	const byte *p = (const byte *)s;
	while (load_wchar(p) != c && load_wchar(p) != 0)
		p += CHARACTER;
	return load_wchar(p) == c ? (wchar_t *)p : 0;
}

__attribute__((noinline, cold)) static int order_at_any_address(const wchar_t *a, const wchar_t *b)
{
	const byte *p = (const byte *)a, *q = (const byte *)b;
	for (; order_at(p, q, WIDE) == 0 && !ends_at(p, WIDE); p += CHARACTER, q += CHARACTER)
		;
	return order_at(p, q, WIDE);
}

__attribute__((noinline, cold)) static wchar_t *fill_at_any_address(wchar_t *d, wchar_t c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		store32((byte *)d + i * CHARACTER, (uint32_t)c);
	return d;
}

CHOOSING size_t wchars_length(const wchar_t *s)
{
	if (!is_aligned(s))
		return length_at_any_address(s, SIZE_MAX);
	return CHOSEN(CHOICE_TEXT, length_of_wchars, (const byte *)s) / CHARACTER;
}

CHOOSING size_t wchars_length_within(const wchar_t *s, size_t n)
{
	if (!is_aligned(s))
		return length_at_any_address(s, n);
	const size_t bytes = wchar_bytes(n);
	size_t length = CHOSEN(CHOICE_TEXT, length_of_wchars_within, (const byte *)s, bytes);
	return length / CHARACTER;
}

CHOOSING wchar_t *find_wchar(const wchar_t *s, wchar_t c, size_t n)
{
	if (!is_aligned(s))
		return find_at_any_address(s, c, n);
	return (wchar_t *)CHOSEN_BY_LENGTH(wchar_bytes(n), find_wchar, (const byte *)s, c, wchar_bytes(n));
}

CHOOSING wchar_t *find_in_wchars(const wchar_t *s, wchar_t c)
{
	if (!is_aligned(s))
		return find_in_wchars_at_any_address(s, c);
	return (wchar_t *)CHOSEN(CHOICE_TEXT, find_in_wchars, (const byte *)s, c);
}

CHOOSING int compare_wchars(const wchar_t *a, const wchar_t *b, size_t n)
{
	return CHOSEN_BY_LENGTH(wchar_bytes(n), compare_wchars, (const byte *)a, (const byte *)b, wchar_bytes(n));
}

CHOOSING int order_wchars(const wchar_t *a, const wchar_t *b)
{
	if (!is_aligned(a) || !is_aligned(b))
		return order_at_any_address(a, b);
	return CHOSEN(CHOICE_TEXT, wchars_order, (const byte *)a, (const byte *)b);
}

CHOOSING wchar_t *move_wchars(wchar_t *d, const wchar_t *s, size_t n)
{
	return (wchar_t *)CHOSEN(n * CHARACTER, copy, (byte *)d, (const byte *)s, n * CHARACTER);
}

CHOOSING wchar_t *fill_wchars(wchar_t *d, wchar_t c, size_t n)
{
	if (!is_aligned(d))
		return fill_at_any_address(d, c, n);
	return (wchar_t *)CHOSEN_BY_LENGTH(n * CHARACTER, fill_wchars, (byte *)d, c, n * CHARACTER);
}
