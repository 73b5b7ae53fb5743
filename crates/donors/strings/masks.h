/* Blocks of up to 64 bytes with AVX-512, whose masks say which bytes of a lane count: others are neither read nor written,
 * wherever they are. So there is one path for all of these lengths, where lanes alone take a path for each range of
 * lengths: a program whose lengths follow no order waits for the wrong guess of one. */

/* The lanes of processors whose lanes of 64 bytes do not slow the clock (Ice Lake, Zen 4 and later). */
#define MASKED 64
#define MASKS_TARGET "avx2,bmi,bmi2,avx512f,avx512bw,avx512vl,evex512"
#define MASKED_ENTRY __attribute__((noinline, target(MASKS_TARGET))) static

#pragma clang attribute push(__attribute__((target(MASKS_TARGET))), apply_to = function)

/* The first `n` bytes of a lane. */
INLINE __mmask64 first_bytes(size_t n) { return _bzhi_u64(~0ull, (unsigned)n); }
INLINE __mmask32 first_of_32(size_t n) { return _bzhi_u32(~0u, (unsigned)n); }

/* Where two blocks differ. A short one is read by a shorter lane, which reaches into the next line of the cache less often:
 * the processor fetches that, although none of its bytes counts. */
INLINE uint64_t masked_differences(const byte *a, const byte *b, size_t n)
{
	if (n <= 32) {
		__mmask32 few = first_of_32(n);
		return _mm256_mask_cmpneq_epi8_mask(few, _mm256_maskz_loadu_epi8(few, a), _mm256_maskz_loadu_epi8(few, b));
	}
	__mmask64 bytes = first_bytes(n);
	return _mm512_mask_cmpneq_epi8_mask(bytes, _mm512_maskz_loadu_epi8(bytes, a), _mm512_maskz_loadu_epi8(bytes, b));
}

__attribute__((noinline)) static byte *masked_fill(byte *d, byte c, size_t n)
{
	if (n <= 32)
		_mm256_mask_storeu_epi8(d, first_of_32(n), _mm256_set1_epi8((char)c));
	else
		_mm512_mask_storeu_epi8(d, first_bytes(n), _mm512_set1_epi8((char)c));
	return d;
}

__attribute__((noinline)) static byte *masked_fill_wchars(byte *d, wchar_t c, size_t n)
{
	_mm512_mask_storeu_epi8(d, first_bytes(n), _mm512_set1_epi32(c));
	return d;
}

__attribute__((noinline)) static int masked_compare(const byte *a, const byte *b, size_t n)
{
	uint64_t set = masked_differences(a, b, n);
	size_t at = (size_t)__builtin_ctzll(set);
	return set ? a[at] - b[at] : 0;
}

__attribute__((noinline)) static int masked_compare_wchars(const byte *a, const byte *b, size_t n)
{
	uint64_t set = masked_differences(a, b, n);
	size_t at = (size_t)__builtin_ctzll(set) / sizeof(wchar_t) * sizeof(wchar_t);
	return set ? order_at(a + at, b + at, WIDE) : 0;
}

INLINE const byte *find_masked_byte(const byte *s, byte c, size_t n)
{
	uint64_t set;
	if (n <= 32) {
		__mmask32 few = first_of_32(n);
		set = _mm256_mask_cmpeq_epi8_mask(few, _mm256_maskz_loadu_epi8(few, s), _mm256_set1_epi8((char)c));
	} else {
		__mmask64 bytes = first_bytes(n);
		set = _mm512_mask_cmpeq_epi8_mask(bytes, _mm512_maskz_loadu_epi8(bytes, s), _mm512_set1_epi8((char)c));
	}
	return set ? s + __builtin_ctzll(set) : 0;
}

INLINE const byte *find_masked_wchar(const byte *s, wchar_t c, size_t n)
{
	uint64_t set;
	if (n <= 32) {
		__mmask8 few = (__mmask8)first_of_32(n / sizeof(wchar_t));
		set = _mm256_mask_cmpeq_epi32_mask(few, _mm256_maskz_loadu_epi32(few, s), _mm256_set1_epi32(c));
	} else {
		__mmask16 all = (__mmask16)first_of_32(n / sizeof(wchar_t));
		set = _mm512_mask_cmpeq_epi32_mask(all, _mm512_maskz_loadu_epi32(all, s), _mm512_set1_epi32(c));
	}
	return set ? s + (size_t)__builtin_ctzll(set) * sizeof(wchar_t) : 0;
}

/* A limit may be beyond the block's end if what is searched for is in the block. So the next page is read only if this one
 * does not have it. */
#define FIND_BY_PAGES(find)                                                                                            \
	const size_t room = page_room(s);                                                                                  \
	if (UNLIKELY(n > room)) {                                                                                          \
		const byte *found = find(s, c, room);                                                                          \
		return found ? found : find(s + room, c, n - room);                                                            \
	}                                                                                                                  \
	return find(s, c, n);

__attribute__((noinline)) static const byte *masked_find_byte(const byte *s, byte c, size_t n)
{
	FIND_BY_PAGES(find_masked_byte)
}

__attribute__((noinline)) static const byte *masked_find_wchar(const byte *s, wchar_t c, size_t n)
{
	FIND_BY_PAGES(find_masked_wchar)
}

#undef FIND_BY_PAGES
#pragma clang attribute pop
