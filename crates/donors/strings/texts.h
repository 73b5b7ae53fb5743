/* The functions for strings, as names.h names them. */

CHOOSING size_t text_length(const char *s)
{
	return CHOSEN(CHOICE_TEXT, length, (const byte *)s);
}

CHOOSING size_t text_length_within(const char *s, size_t n)
{
	return CHOSEN(CHOICE_TEXT, length_within, (const byte *)s, n);
}

CHOOSING char *find_in_text(const char *s, int c)
{
	return (char *)CHOSEN(CHOICE_TEXT, find_in_text, (const byte *)s, (byte)c);
}

CHOOSING char *find_in_text_or_end(const char *s, int c)
{
	return (char *)CHOSEN(CHOICE_TEXT, find_or_end, (const byte *)s, (byte)c);
}

CHOOSING char *find_last_in_text(const char *s, int c)
{
	return (char *)CHOSEN(CHOICE_TEXT, find_last_in_text, (const byte *)s, (byte)c);
}

CHOOSING char *find_text(const char *h, const char *needle)
{
	return (char *)CHOSEN(CHOICE_TEXT, find_text, (const byte *)h, (const byte *)needle);
}

CHOOSING int order_texts(const char *a, const char *b)
{
	return CHOSEN(CHOICE_TEXT, order, (const byte *)a, (const byte *)b);
}

CHOOSING int order_texts_within(const char *a, const char *b, size_t n)
{
	return CHOSEN(CHOICE_TEXT, order_within, (const byte *)a, (const byte *)b, n);
}

CHOOSING char *copy_text_to_end(char *d, const char *s)
{
	return (char *)CHOSEN(CHOICE_TEXT, copy_text, (byte *)d, (const byte *)s);
}

CHOOSING char *copy_text_to_start(char *d, const char *s)
{
	return (char *)CHOSEN(CHOICE_TEXT, copy_text_to_start, (byte *)d, (const byte *)s);
}

CHOOSING char *copy_text_padded_to_end(char *d, const char *s, size_t n)
{
	return (char *)CHOSEN(CHOICE_TEXT, copy_padded, (byte *)d, (const byte *)s, n);
}

CHOOSING char *copy_text_padded(char *d, const char *s, size_t n)
{
	return (char *)CHOSEN(CHOICE_TEXT, copy_padded_to_start, (byte *)d, (const byte *)s, n);
}

CHOOSING char *append_text(char *d, const char *s)
{
	return (char *)CHOSEN(CHOICE_TEXT, append, (byte *)d, (const byte *)s);
}

CHOOSING char *append_text_within(char *d, const char *s, size_t n)
{
	return (char *)CHOSEN(CHOICE_TEXT, append_within, (byte *)d, (const byte *)s, n);
}

CHOOSING char *find_text_folded(const char *h, const char *needle)
{
	return (char *)CHOSEN(CHOICE_TEXT, find_text_folded, (const byte *)h, (const byte *)needle);
}

CHOOSING int order_texts_folded(const char *a, const char *b)
{
	return CHOSEN(CHOICE_TEXT, folded_order, (const byte *)a, (const byte *)b);
}

CHOOSING int order_texts_folded_within(const char *a, const char *b, size_t n)
{
	return CHOSEN(CHOICE_TEXT, folded_order_within, (const byte *)a, (const byte *)b, n);
}

CHOOSING size_t length_without(const char *s, const char *set)
{
	return (size_t)(CHOSEN(CHOICE_TEXT, find_member, (const byte *)s, (const byte *)set) - (const byte *)s);
}

CHOOSING char *find_member(const char *s, const char *set)
{
	const byte *found = CHOSEN(CHOICE_TEXT, find_member, (const byte *)s, (const byte *)set);
	return *found ? (char *)found : 0;
}

CHOOSING size_t length_of(const char *s, const char *set)
{
	return (size_t)(CHOSEN(CHOICE_TEXT, find_other, (const byte *)s, (const byte *)set) - (const byte *)s);
}
