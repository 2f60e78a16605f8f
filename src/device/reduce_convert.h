// reduce_convert.h: half, bfloat16 and fp8 to float and back, one element at a time, without branches so that loops
// over them vectorise.
//
// To float is exact. From float rounds to nearest even; a NaN becomes the type's NaN with all bits but the sign set.
// e4m3 (no infinity, NaN 0x7f and 0xff) and e5m2 saturate: whatever is too large, infinity too, becomes the largest
// finite value (448, 57344), as CUDA's __NV_SATFINITE. Half and bfloat16 overflow to infinity.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// Compilers for GPUs have words of their own for these.
#ifndef TT_INLINE
#define TT_INLINE static inline __attribute__((always_inline))
#endif
#ifndef TT_UNORDERED
#define TT_UNORDERED(a, b) __builtin_isunordered(a, b)
#endif

#define TT_NAN_F32 __builtin_nanf("0x3fffff") // 0x7fffffff
#ifndef TT_NAN_F64
#define TT_NAN_F64 __builtin_nan("0x7ffffffffffff") // 0x7fffffffffffffff
#endif

TT_INLINE float tt_f32_of_bits(uint32_t u)
{
  float f;
  __builtin_memcpy(&f, &u, sizeof f);
  return f;
}

TT_INLINE uint32_t tt_f32_bits(float f)
{
  uint32_t u;
  __builtin_memcpy(&u, &f, sizeof u);
  return u;
}

// `a` where `mask` (0 or ~0) is set, else `b`. Selecting with bits keeps the compiler from making a branch around
// floating arithmetic, which it would not vectorise.
TT_INLINE uint32_t tt_pick(uint32_t mask, uint32_t a, uint32_t b)
{
  return (a & mask) | (b & ~mask);
}

// ~0 where a > b, for values below 2^31.
TT_INLINE uint32_t tt_above(uint32_t a, uint32_t b)
{
  return (uint32_t)((int32_t)(b - a) >> 31);
}

// Exponent and mantissa (`mbits` of it) to the magnitude of a float. Subnormals: give them an implicit one, then
// subtract it.
TT_INLINE float tt_widen(uint32_t magnitude, int mbits, uint32_t bias)
{
  uint32_t u = (magnitude << (23 - mbits)) + ((127 - bias) << 23);
  uint32_t subnormal = tt_above(1u << mbits, magnitude);
  float one = tt_f32_of_bits(subnormal & (128 - bias) << 23);
  return tt_f32_of_bits(u + (subnormal & 1u << 23)) - one;
}

TT_INLINE float tt_f32_signed(uint32_t magnitude, uint32_t sign)
{
  return tt_f32_of_bits(magnitude | sign << 31);
}

TT_INLINE float tt_f32_from_f16(uint16_t h)
{
  uint32_t m = h & 0x7fff;
  uint32_t wide = tt_f32_bits(tt_widen(m, 10, 15));
  uint32_t special = 0x7f800000 | m << 13;
  return tt_f32_signed(tt_pick(tt_above(m, 0x7bff), special, wide), h >> 15);
}

TT_INLINE float tt_f32_from_bf16(uint16_t h)
{
  return tt_f32_of_bits((uint32_t)h << 16);
}

TT_INLINE float tt_f32_from_e4m3(uint8_t c)
{
  uint32_t m = c & 0x7f;
  uint32_t wide = tt_f32_bits(tt_widen(m, 3, 7));
  return tt_f32_signed(tt_pick(tt_above(m, 0x7e), 0x7fffffff, wide), c >> 7);
}

TT_INLINE float tt_f32_from_e5m2(uint8_t c)
{
  uint32_t m = c & 0x7f;
  uint32_t wide = tt_f32_bits(tt_widen(m, 2, 15));
  uint32_t special = 0x7f800000 | m << 21;
  return tt_f32_signed(tt_pick(tt_above(m, 0x7b), special, wide), c >> 7);
}

// What the maximum and minimum of two codes of a type need to know.
typedef struct tt_codes {
  uint16_t last;    // magnitudes above are NaNs
  uint16_t largest; // results above become this
  bool max;
} tt_codes;

// What tt_narrow needs to know of a type.
typedef struct tt_narrow_spec {
  int mbits;      // bits of mantissa
  uint32_t bias;  // of the exponent
  uint32_t limit; // bits of the float that larger magnitudes are replaced with
} tt_narrow_spec;

// Rounds by adding a power of two whose last place is the type's last place at this magnitude: the sum's mantissa then
// is the rounded value as an integer. Below the smallest normal exponent the last place stays, which is what a
// subnormal is. What the exponent contributes to the code stands in the mantissa of that power of two already (an even
// number, so that ties round the same way): the code is the low bits of the sum.
TT_INLINE uint32_t tt_narrow(float f, tt_narrow_spec s, uint32_t nan)
{
  const uint32_t least = (128 - s.bias) << 23, shift = 23 - (uint32_t)s.mbits,
                 code_mask = s.mbits == 10 ? 0x7fff : 0x7f;
  uint32_t u = tt_f32_bits(f), m = u & 0x7fffffff;
  uint32_t clamped = tt_pick(tt_above(m, s.limit), s.limit, m);
  uint32_t e = clamped & 0x7f800000;
  e = tt_pick(tt_above(e, least), e, least);
  uint32_t magic = e + (shift << 23) + ((e - least) >> shift);
  uint32_t code = tt_f32_bits(tt_f32_of_bits(clamped) + tt_f32_of_bits(magic)) & code_mask;
  uint32_t sign = u >> 31 << (s.mbits == 10 ? 15 : 7);
  return tt_pick(tt_above(m, 0x7f800000), nan, code | sign);
}

// The same, but gives the rounded value as a float: that power of two, added and subtracted again. A NaN stays one, of
// any bits.
TT_INLINE float tt_narrow_round(float f, tt_narrow_spec s)
{
  const uint32_t least = (128 - s.bias) << 23, shift = 23 - (uint32_t)s.mbits;
  uint32_t u = tt_f32_bits(f), m = u & 0x7fffffff;
  uint32_t clamped = tt_pick(tt_above(m, s.limit), s.limit, m);
  uint32_t e = clamped & 0x7f800000;
  e = tt_pick(tt_above(e, least), e, least);
  float large = tt_f32_of_bits(e + (shift << 23));
  uint32_t r = tt_f32_bits((tt_f32_of_bits(clamped) + large) - large);
  if (s.mbits == 10) { // there is an infinity, which `limit` is rounded to
    r = tt_pick(tt_above(s.limit, r), r, 0x7f800000);
  }
  return tt_f32_of_bits(tt_pick(tt_above(m, 0x7f800000), 0x7fffffff, r) | (u & 0x80000000));
}

#define TT_SPEC_F16 ((tt_narrow_spec){10, 15, 0x47800000}) // 65536: rounds to the code of infinity
#define TT_SPEC_E4M3 ((tt_narrow_spec){3, 7, 0x43e00000})  // 448
#define TT_SPEC_E5M2 ((tt_narrow_spec){2, 15, 0x47600000}) // 57344

TT_INLINE uint16_t tt_f16_from_f32(float f)
{
  return (uint16_t)tt_narrow(f, TT_SPEC_F16, 0x7fff);
}

TT_INLINE uint16_t tt_bf16_from_f32(float f)
{
  uint32_t u = tt_f32_bits(f);
  uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  return (uint16_t)tt_pick(tt_above(u & 0x7fffffff, 0x7f800000), 0x7fff, r);
}

// The same as a float, of a product of two such numbers: where that is a NaN its lower half is 0, so rounding leaves it
// alone.
TT_INLINE float tt_bf16_round(float f)
{
  uint32_t u = tt_f32_bits(f);
  return tt_f32_of_bits((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000);
}

TT_INLINE uint8_t tt_e4m3_from_f32(float f)
{
  return (uint8_t)tt_narrow(f, TT_SPEC_E4M3, 0x7f);
}

TT_INLINE uint8_t tt_e5m2_from_f32(float f)
{
  return (uint8_t)tt_narrow(f, TT_SPEC_E5M2, 0x7f);
}
