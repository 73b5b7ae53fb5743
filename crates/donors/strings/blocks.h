/* The functions for blocks, as names.h names them. memcpy and memmove are one; not `restrict`, as memcpy's arguments
 * are, which would allow the compiler to write before everything is fetched. */

CHOOSING void *move_block(void *d, const void *s, size_t n)
{
	return CHOSEN(n, copy, d, s, n);
}

CHOOSING void *fill_block(void *d, int c, size_t n)
{
	return CHOSEN_BY_LENGTH(n, fill, d, (byte)c, n);
}

CHOOSING int compare_blocks(const void *a, const void *b, size_t n)
{
	return CHOSEN_BY_LENGTH(n, compare, a, b, n);
}

CHOOSING int differ_blocks(const void *a, const void *b, size_t n)
{
	return CHOSEN(n, compare_roughly, a, b, n);
}

CHOOSING void *find_byte(const void *s, int c, size_t n)
{
	return (void *)CHOSEN_BY_LENGTH(n, find_byte, s, (byte)c, n);
}

CHOOSING void *find_block(const void *h, size_t n, const void *needle, size_t m)
{
	return (void *)CHOSEN(n, find_block, h, n, needle, m);
}

CHOOSING void *find_last_byte(const void *s, int c, size_t n)
{
	return (void *)CHOSEN(n, find_last, s, (byte)c, n);
}

CHOOSING void *copy_block_until(void *d, const void *s, int c, size_t n)
{
	return CHOSEN(n, copy_until, d, s, (byte)c, n);
}
