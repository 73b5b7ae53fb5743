/* Searching a string for any byte of a set, or for any other: strcspn, strpbrk, strspn. Sets of up to four bytes are
 * compared with byte by byte. For larger ones a table says in which rows of 16 bytes of the code, of which bytes have
 * the high half, a column has a member: the column is a byte's low half. Base lanes of x86_64 cannot look tables up. */

/* Whether a set has four bytes at most; then these are in `four`, and the first one stands for those that it lacks. */
INLINE bool L(take_four)(const byte *set, struct L(needle) *four)
{
	byte a = set[0], b = a, c = a, d = a;
	if (set[1]) {
		b = set[1];
		if (set[2]) {
			c = set[2];
			if (set[3]) {
				d = set[3];
				if (set[4])
					return false;
			}
		}
	}
	*four = (struct L(needle)){ L(splat)(a), L(splat)(b), L(splat)(c), L(splat)(d) };
	return true;
}

#ifdef TABLES
/* The table of a set, and if `with_end`, of the end of a string. */
INLINE struct L(needle) L(table_of)(const byte *set, bool with_end)
{
	/* Rows 0 to 7 of each column, then rows 8 to 15. */
	_Alignas(16) byte table[32];
	base_store_aligned(table, base_splat(0));
	base_store_aligned(table + 16, base_splat(0));
	table[0] = with_end;
	for (; *set; set++)
		table[*set / 128 * 16 + *set % 16] |= (byte)(1 << *set / 16 % 8);
	return (struct L(needle)){ .one = L(twice)(base_load_aligned(table)), .two = L(twice)(base_load_aligned(table + 16)) };
}
#endif

/* The first byte of a string that is in a larger set, or not; or the string's end. */
__attribute__((noinline)) static const byte *L(find_by_table)(const byte *s, const byte *set, bool other)
{
#ifdef TABLES
	return other ? L(find)(s, L(table_of)(set, false), AT_TABLE_OTHER) : L(find)(s, L(table_of)(set, true), AT_TABLE_MEMBER);
#else
	_Alignas(LANE) byte is_member[256];
	for (byte *p = is_member; p < is_member + sizeof is_member; p += LANE)
		L(store_aligned)(p, L(splat)(0));
	for (; *set; set++)
		is_member[*set] = 1;
	is_member[0] = !other;
	while (is_member[*s] == other)
		s++;
	return s;
#endif
}

/* The first byte of a string that is in the set, or the string's end. */
__attribute__((noinline)) static const byte *L(find_member)(const byte *s, const byte *set)
{
	if (set[0] == 0 || set[1] == 0)
		return L(find)(s, L(one_byte)(set[0]), AT_EITHER);
	struct L(needle) four;
	return L(take_four)(set, &four) ? L(find)(s, four, AT_MEMBER) : L(find_by_table)(s, set, false);
}

/* The first byte of a string that is not in the set: the string's end is one. */
ENTRY const byte *L(find_other)(const byte *s, const byte *set)
{
	if (set[0] == 0)
		return s;
	struct L(needle) four;
	return L(take_four)(set, &four) ? L(find)(s, four, AT_OTHER) : L(find_by_table)(s, set, true);
}

/* The first byte of a string that is the letter `c`, of either case; or null. */
__attribute__((noinline)) static const byte *L(find_letter)(const byte *s, byte c)
{
	byte small = lower(c), other = (byte)(small - 'a') < 26 ? small - 0x20 : small;
	L(lane) a = L(splat)(small), b = L(splat)(other);
	const byte *found = L(find)(s, (struct L(needle)){ a, b, b, b }, AT_MEMBER);
	return *found ? found : 0;
}

/* memccpy: copies the block up to and with the first byte `c`; gives the end of the copy, or null if there is none. */
ENTRY byte *L(copy_until)(byte *d, const byte *s, byte c, size_t n)
{
	if (n == 0)
		return 0;
	size_t at = L(find_within)(s, n, L(one_byte)(c), AT_BYTE);
	size_t copied = at < n ? at + 1 : n;
	L(copy)(d, s, copied);
	return at < n ? d + copied : 0;
}
