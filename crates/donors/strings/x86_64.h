/* The lanes of x86_64: SSE2 for everything (`base_`), AVX2 where the processor has it (`wide_`). */
#include <immintrin.h>

/* Which byte of a lane is meant: one bit for each. */
typedef uint32_t bits;
INLINE unsigned first(bits set) { return (unsigned)__builtin_ctz(set); }
INLINE unsigned last(bits set) { return 31 - (unsigned)__builtin_clz(set); }
/* The first place in two neighbouring lanes of `lane` bytes, one of which has one. */
INLINE size_t first_of_two(bits a, bits b, unsigned lane) { return (size_t)__builtin_ctzll(a | (uint64_t)b << lane); }
/* The last place there. */
INLINE size_t last_of_two(bits a, bits b, unsigned lane) { return 63 - (size_t)__builtin_clzll(a | (uint64_t)b << lane); }
/* `set` without the places before `from`, which becomes the first. */
INLINE bits bits_from(bits set, size_t from) { return set >> from; }
/* The places up to and with `to`. */
INLINE bits bits_to(size_t to) { return ((bits)2 << to) - 1; }
/* The places before `n`, at most 31. */
INLINE bits bits_before(size_t n) { return ((bits)1 << n) - 1; }
/* `set` without its first place. */
INLINE bits bits_behind_first(bits set) { return set & (set - 1); }
/* The places up to and with the first of `set`. */
INLINE bits bits_up_to_first(bits set) { return set ^ (set - 1); }

/* From these lengths on the processor's own block instructions win, measured with blocks that no cache holds: they
 * write whole lines without fetching them first. Copying gains less, as the source has to be fetched anyway. */
#define REP_COPY 16384
#define REP_FILL 4096

/* Copies by `rep movsb`, if that pays. It takes its fast path only for blocks that do not overlap. */
INLINE bool copied_by_processor(byte *d, const byte *s, size_t n)
{
	if (n < REP_COPY || !chosen(CHOICE_REP) || (uintptr_t)d - (uintptr_t)s < n || (uintptr_t)s - (uintptr_t)d < n)
		return false;
	__asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
	return true;
}

INLINE bool filled_by_processor(byte *d, byte c, size_t n)
{
	if (n < REP_FILL || !chosen(CHOICE_REP))
		return false;
	__asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(c) : "memory");
	return true;
}

typedef __m128i base_lane;
INLINE base_lane base_load(const byte *p) { return _mm_loadu_si128((const __m128i *)p); }
INLINE base_lane base_load_aligned(const byte *p) { return _mm_load_si128((const __m128i *)p); }
INLINE void base_store(byte *p, base_lane v) { _mm_storeu_si128((__m128i *)p, v); }
INLINE void base_store_aligned(byte *p, base_lane v) { _mm_store_si128((__m128i *)p, v); }
INLINE base_lane base_splat(byte c) { return _mm_set1_epi8((char)c); }
INLINE base_lane base_equal(base_lane a, base_lane b) { return _mm_cmpeq_epi8(a, b); }
INLINE base_lane base_either(base_lane a, base_lane b) { return _mm_or_si128(a, b); }
INLINE base_lane base_least(base_lane a, base_lane b) { return _mm_min_epu8(a, b); }
INLINE base_lane base_differ(base_lane a, base_lane b) { return _mm_xor_si128(a, b); }
INLINE bits base_bits(base_lane truth) { return (bits)_mm_movemask_epi8(truth); }
INLINE bool base_whole(base_lane truth) { return base_bits(truth) == 0xffff; }
INLINE bits base_unequal(base_lane a, base_lane b) { return base_bits(base_equal(a, b)) ^ 0xffff; }
/* `v` without the ones of `w`. */
INLINE base_lane base_except(base_lane v, base_lane w) { return _mm_andnot_si128(w, v); }
/* Ones at the letters a to z. */
INLINE base_lane base_small_letters(base_lane v)
{
	return _mm_cmpgt_epi8(_mm_set1_epi8(-128 + 26), _mm_add_epi8(v, _mm_set1_epi8((char)(128 - 'a'))));
}
/* `v` with small letters alone. */
INLINE base_lane base_folded(base_lane v)
{
	base_lane bit = base_splat(0x20);
	return base_either(v, _mm_and_si128(base_small_letters(base_either(v, bit)), bit));
}
/* Ones where the bytes are the same, or the same letter: they differ in no bit but that of the case. */
INLINE base_lane base_equal_folded(base_lane a, base_lane b)
{
	base_lane bit = base_splat(0x20), ignored = _mm_and_si128(base_small_letters(base_either(a, bit)), bit);
	return base_equal(base_except(base_differ(a, b), ignored), base_splat(0));
}
INLINE base_lane base_splat_wchar(wchar_t c) { return _mm_set1_epi32(c); }
INLINE base_lane base_equal_wchars(base_lane a, base_lane b) { return _mm_cmpeq_epi32(a, b); }

#include "short.h"

#define L(name) base_##name
#define LANE 16
#define ENTRY __attribute__((noinline)) static
#include "lanes.h"
#undef L
#undef LANE
#undef ENTRY

#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2"))), apply_to = function)

typedef __m256i wide_lane;
INLINE wide_lane wide_load(const byte *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE wide_lane wide_load_aligned(const byte *p) { return _mm256_load_si256((const __m256i *)p); }
INLINE void wide_store(byte *p, wide_lane v) { _mm256_storeu_si256((__m256i *)p, v); }
INLINE void wide_store_aligned(byte *p, wide_lane v) { _mm256_store_si256((__m256i *)p, v); }
INLINE wide_lane wide_splat(byte c) { return _mm256_set1_epi8((char)c); }
INLINE wide_lane wide_equal(wide_lane a, wide_lane b) { return _mm256_cmpeq_epi8(a, b); }
INLINE wide_lane wide_either(wide_lane a, wide_lane b) { return _mm256_or_si256(a, b); }
INLINE wide_lane wide_least(wide_lane a, wide_lane b) { return _mm256_min_epu8(a, b); }
INLINE wide_lane wide_differ(wide_lane a, wide_lane b) { return _mm256_xor_si256(a, b); }
INLINE bits wide_bits(wide_lane truth) { return (bits)_mm256_movemask_epi8(truth); }
INLINE bool wide_whole(wide_lane truth) { return ~wide_bits(truth) == 0; }
INLINE bits wide_unequal(wide_lane a, wide_lane b) { return ~wide_bits(wide_equal(a, b)); }
/* `v` without the ones of `w`. */
INLINE wide_lane wide_except(wide_lane v, wide_lane w) { return _mm256_andnot_si256(w, v); }
/* Ones at the letters a to z. */
INLINE wide_lane wide_small_letters(wide_lane v)
{
	return _mm256_cmpgt_epi8(_mm256_set1_epi8(-128 + 26), _mm256_add_epi8(v, _mm256_set1_epi8((char)(128 - 'a'))));
}
/* `v` with small letters alone. */
INLINE wide_lane wide_folded(wide_lane v)
{
	wide_lane bit = wide_splat(0x20);
	return wide_either(v, _mm256_and_si256(wide_small_letters(wide_either(v, bit)), bit));
}
/* Ones where the bytes are the same, or the same letter: they differ in no bit but that of the case. */
INLINE wide_lane wide_equal_folded(wide_lane a, wide_lane b)
{
	wide_lane bit = wide_splat(0x20), ignored = _mm256_and_si256(wide_small_letters(wide_either(a, bit)), bit);
	return wide_equal(wide_except(wide_differ(a, b), ignored), wide_splat(0));
}
INLINE wide_lane wide_splat_wchar(wchar_t c) { return _mm256_set1_epi32(c); }
INLINE wide_lane wide_equal_wchars(wide_lane a, wide_lane b) { return _mm256_cmpeq_epi32(a, b); }
/* Ones at the bytes of a set, by its table (lane_set.h). An index of 128 or more gives zero. */
INLINE wide_lane wide_member_of_table(wide_lane v, wide_lane low, wide_lane high)
{
	wide_lane rows = _mm256_shuffle_epi8(low, v);
	rows = wide_either(rows, _mm256_shuffle_epi8(high, wide_differ(v, wide_splat(0x80))));
	wide_lane row = _mm256_and_si256(_mm256_srli_epi16(v, 4), wide_splat(0x0f));
	wide_lane bit = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)0x8040201008040201), row);
	return wide_equal(_mm256_and_si256(rows, bit), bit);
}
INLINE wide_lane wide_twice(base_lane v) { return _mm256_broadcastsi128_si256(v); }

#define L(name) wide_##name
#define LANE 32
#define ENTRY INLINE
#define TABLES
#define NEAR 64
#include "lanes.h"
#undef TABLES
#undef NEAR
#undef L
#undef LANE
#undef ENTRY

#pragma clang attribute pop

#include "masks.h"

/* A function is its AVX2 version, behind a branch to the SSE2 version. On short blocks that branch costs less than a
 * cycle; a common short path and then a jump to the AVX2 version cost three. That the compiler puts nothing of AVX2
 * before the branch is to be seen in the object's code. */
#define CHOSEN(bytes, name, ...)                                                                                       \
	(LIKELY(chosen(CHOICE_WIDE)) ? wide_##name(__VA_ARGS__) : (count_work(bytes), base_##name(__VA_ARGS__)))
#define CHOOSING __attribute__((target("avx2,bmi,bmi2"))) static

/* The same for functions that have a version with masks, of blocks of up to 64 bytes. */
#define CHOSEN_BY_LENGTH(bytes, name, ...)                                                                             \
	((bytes) <= MASKED && chosen(CHOICE_MASKS) ? masked_##name(__VA_ARGS__) : CHOSEN(bytes, name, __VA_ARGS__))
