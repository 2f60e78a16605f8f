// reduce_scalar.h: the vector vocabulary of the narrow kernels for any machine: one element at a time, in loops that
// the compiler vectorises. reduce_avx512.h says what the words mean.
#pragma once
#include <string.h>

#include "device/reduce_convert.h"

enum { TT_W = 1 };

typedef float tt_vf;

typedef uint16_t tt_code16 __attribute__((aligned(1), may_alias));

TT_INLINE tt_vf tt_vf_set(float f)
{
  return f;
}

TT_INLINE tt_vf tt_vf_sum(tt_vf x, tt_vf y)
{
  return x + y;
}

TT_INLINE tt_vf tt_vf_prod(tt_vf x, tt_vf y)
{
  return x * y;
}

// Of two zeros both have the sign that the rule wants: the maximum's stays only if x has one, which changes no other
// number; the minimum likewise.
TT_INLINE tt_vf tt_vf_max(tt_vf x, tt_vf y)
{
  uint32_t a = tt_f32_bits(x), b = tt_f32_bits(y), nan = 0u - (uint32_t)((x != x) | (y != y));
  return tt_f32_of_bits((tt_pick(0u - (uint32_t)(x > y), a, b) & (a | 0x7fffffff)) | (nan & 0x7fffffff));
}

TT_INLINE tt_vf tt_vf_min(tt_vf x, tt_vf y)
{
  uint32_t a = tt_f32_bits(x), b = tt_f32_bits(y), nan = 0u - (uint32_t)((x != x) | (y != y));
  return tt_f32_of_bits(tt_pick(0u - (uint32_t)(x < y), a, b) | (a & 0x80000000) | (nan & 0x7fffffff));
}

// Never called: there are no tails when a vector is one element.
TT_INLINE void tt_tail_in(void *buf, const void *src, size_t n)
{
  memcpy(buf, src, n);
}

TT_INLINE void tt_tail_out(void *dst, const void *buf, size_t n)
{
  memcpy(dst, buf, n);
}

// Conversions of a type, and floats rounded to those that it has (a NaN stays one, of any bits).
#define TT_SCALAR_TYPE(T, CODE, ROUNDED)      \
  TT_INLINE tt_vf tt_ld_##T(const void *p)    \
  {                                           \
    return tt_f32_from_##T(*(const CODE *)p); \
  }                                           \
  TT_INLINE void tt_st_##T(void *p, tt_vf v)  \
  {                                           \
    *(CODE *)p = tt_##T##_from_f32(v);        \
  }                                           \
  TT_INLINE tt_vf tt_rnd_##T(tt_vf v)         \
  {                                           \
    return ROUNDED;                           \
  }

TT_SCALAR_TYPE(f16, tt_code16, tt_narrow_round(v, TT_SPEC_F16))
TT_SCALAR_TYPE(bf16, tt_code16, tt_bf16_round(v))
TT_SCALAR_TYPE(e4m3, uint8_t, tt_narrow_round(v, TT_SPEC_E4M3))
TT_SCALAR_TYPE(e5m2, uint8_t, tt_narrow_round(v, TT_SPEC_E5M2))

// ---- The larger or smaller of two codes. They are compared as signed numbers, of which -0 is -1, and so on ----

#define TT_PICK_BYTES(size) (size)

#define TT_PICK(NAME, CODE, KEY, MAG)                                                       \
  TT_INLINE void NAME(void *d, const void *pa, const void *pb, tt_codes c)                  \
  {                                                                                         \
    const CODE a = *(const CODE *)pa, b = *(const CODE *)pb;                                \
    const KEY ma = (KEY)(a & (MAG)), mb = (KEY)(b & (MAG)), last = (KEY)c.last;             \
    const KEY ka = (KEY)(a > (MAG) ? ~ma : ma), kb = (KEY)(b > (MAG) ? ~mb : mb);           \
    CODE r = (c.max ? ka > kb : ka < kb) ? a : b;                                           \
    r = (CODE)(r - (c.largest < c.last && (r & (MAG)) == c.last)); /* infinity saturates */ \
    *(CODE *)d = ((ma > last) | (mb > last)) ? (CODE)(MAG) : r;                             \
  }

TT_PICK(tt_pick16, tt_code16, int16_t, 0x7fff)
TT_PICK(tt_pick8, uint8_t, int8_t, 0x7f)

TT_INLINE void tt_pick_bf16(void *d, const void *pa, const void *pb, bool max)
{
  tt_pick16(d, pa, pb, (tt_codes){0x7f80, 0x7f80, max});
}
