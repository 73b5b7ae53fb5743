/* The lanes of aarch64: NEON, which every ARMv8.0 has. */
#include <arm_neon.h>

/* Which byte of a lane is meant: four bits for each, since narrowing by four is NEON's cheapest way to a number. */
typedef uint64_t bits;
INLINE unsigned first(bits set) { return (unsigned)__builtin_ctzll(set) / 4; }
INLINE unsigned last(bits set) { return (63 - (unsigned)__builtin_clzll(set)) / 4; }
/* The first place in two neighbouring lanes of `lane` bytes, one of which has one. */
INLINE size_t first_of_two(bits a, bits b, unsigned lane) { return a ? first(a) : lane + first(b); }
/* The last place there. */
INLINE size_t last_of_two(bits a, bits b, unsigned lane) { return b ? lane + last(b) : last(a); }
/* `set` without the places before `from`, which becomes the first. */
INLINE bits bits_from(bits set, size_t from) { return set >> 4 * from; }
/* The places up to and with `to`. */
INLINE bits bits_to(size_t to) { return ((bits)16 << 4 * to) - 1; }
/* The places before `n`, at most 16. */
INLINE bits bits_before(size_t n) { return n ? bits_to(n - 1) : 0; }
/* `set` without its first place, all four bits of it. */
INLINE bits bits_behind_first(bits set) { return set & ~(15 * (set & -set)); }
/* The places up to and with the first of `set`; of that one a single bit, which is enough. */
INLINE bits bits_up_to_first(bits set) { return set ^ (set - 1); }

typedef uint8x16_t base_lane;
INLINE base_lane base_load(const byte *p) { return vld1q_u8(p); }
INLINE base_lane base_load_aligned(const byte *p) { return vld1q_u8(p); }
INLINE void base_store(byte *p, base_lane v) { vst1q_u8(p, v); }
INLINE void base_store_aligned(byte *p, base_lane v) { vst1q_u8(p, v); }
INLINE base_lane base_splat(byte c) { return vdupq_n_u8(c); }
INLINE base_lane base_equal(base_lane a, base_lane b) { return vceqq_u8(a, b); }
INLINE base_lane base_either(base_lane a, base_lane b) { return vorrq_u8(a, b); }
INLINE base_lane base_least(base_lane a, base_lane b) { return vminq_u8(a, b); }
INLINE base_lane base_differ(base_lane a, base_lane b) { return veorq_u8(a, b); }
INLINE bits base_bits(base_lane truth)
{
	return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(truth), 4)), 0);
}

INLINE bool base_whole(base_lane truth) { return ~base_bits(truth) == 0; }
INLINE bits base_unequal(base_lane a, base_lane b) { return ~base_bits(base_equal(a, b)); }
/* `v` without the ones of `w`. */
INLINE base_lane base_except(base_lane v, base_lane w) { return vbicq_u8(v, w); }
/* Ones at the letters a to z. */
INLINE base_lane base_small_letters(base_lane v) { return vcltq_u8(vsubq_u8(v, vdupq_n_u8('a')), vdupq_n_u8(26)); }
/* `v` with small letters alone. */
INLINE base_lane base_folded(base_lane v)
{
	base_lane bit = base_splat(0x20);
	return vorrq_u8(v, vandq_u8(base_small_letters(vorrq_u8(v, bit)), bit));
}
/* Ones where the bytes are the same, or the same letter: they differ in no bit but that of the case. */
INLINE base_lane base_equal_folded(base_lane a, base_lane b)
{
	base_lane bit = base_splat(0x20), ignored = vandq_u8(base_small_letters(vorrq_u8(a, bit)), bit);
	return vceqzq_u8(base_except(base_differ(a, b), ignored));
}
INLINE base_lane base_splat_wchar(wchar_t c) { return vreinterpretq_u8_u32(vdupq_n_u32(c)); }
INLINE base_lane base_equal_wchars(base_lane a, base_lane b)
{
	return vreinterpretq_u8_u32(vceqq_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}
/* Ones at the bytes of a set, by its table (lane_set.h). An index of 16 or more gives zero. */
INLINE base_lane base_member_of_table(base_lane v, base_lane low, base_lane high)
{
	base_lane rows = vqtbl1q_u8(low, vandq_u8(v, vdupq_n_u8(0x8f)));
	rows = vorrq_u8(rows, vqtbl1q_u8(high, vandq_u8(veorq_u8(v, vdupq_n_u8(0x80)), vdupq_n_u8(0x8f))));
	base_lane bit = vqtbl1q_u8(vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201)), vshrq_n_u8(v, 4));
	return vtstq_u8(rows, bit);
}
INLINE base_lane base_twice(base_lane v) { return v; }

/* There is no instruction for blocks before ARMv8.8. */
INLINE bool copied_by_processor(byte *d, const byte *s, size_t n)
{
	(void)d, (void)s, (void)n;
	return false;
}
INLINE bool filled_by_processor(byte *d, byte c, size_t n)
{
	(void)d, (void)c, (void)n;
	return false;
}

#include "short.h"

#define L(name) base_##name
#define LANE 16
#define ENTRY INLINE
#define TABLES
#include "lanes.h"
#undef TABLES
#undef L
#undef LANE
#undef ENTRY

#define CHOSEN(bytes, name, ...) base_##name(__VA_ARGS__)
#define CHOOSING __attribute__((unused)) static
#define CHOSEN_BY_LENGTH CHOSEN
