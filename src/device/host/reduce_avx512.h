// reduce_avx512.h: the vector vocabulary of the narrow kernels with AVX-512 F, BW, DQ, VL. reduce_avx2.h and reduce_scalar.h say the
// same words.
//
// tt_vf is TT_W floats. ld_… and st_… convert TT_W consecutive elements, in any fixed order of lanes, which only has to be the same
// in both. Infinity, NaN and rounding are as in reduce_convert.h.
#pragma once
#include <immintrin.h>

#include "device/host/reduce_convert.h"

#define TT_INLINE static inline __attribute__((always_inline))

enum { TT_W = 32 };

typedef struct tt_vf {
  __m512 a, b;
} tt_vf;

TT_INLINE tt_vf tt_vf_load(const float *p)
{
  return (tt_vf){_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16)};
}

TT_INLINE void tt_vf_store(float *p, tt_vf v)
{
  _mm512_storeu_ps(p, v.a);
  _mm512_storeu_ps(p + 16, v.b);
}

TT_INLINE tt_vf tt_vf_set(float f)
{
  return (tt_vf){_mm512_set1_ps(f), _mm512_set1_ps(f)};
}

TT_INLINE tt_vf tt_vf_sum(tt_vf x, tt_vf y)
{
  return (tt_vf){_mm512_add_ps(x.a, y.a), _mm512_add_ps(x.b, y.b)};
}

TT_INLINE tt_vf tt_vf_prod(tt_vf x, tt_vf y)
{
  return (tt_vf){_mm512_mul_ps(x.a, y.a), _mm512_mul_ps(x.b, y.b)};
}

// `r` where x and y are numbers, NaN elsewhere.
TT_INLINE __m512 tt_vf_ordered(__m512 x, __m512 y, __m512 r)
{
  return _mm512_mask_mov_ps(r, _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q), _mm512_set1_ps(TT_NAN_F32));
}

// vmaxps gives its second operand when both are zero: max(a, b) = a > b ? a : b exactly.
TT_INLINE tt_vf tt_vf_max(tt_vf x, tt_vf y)
{
  return (tt_vf){tt_vf_ordered(x.a, y.a, _mm512_max_ps(x.a, y.a)), tt_vf_ordered(x.b, y.b, _mm512_max_ps(x.b, y.b))};
}

TT_INLINE tt_vf tt_vf_min(tt_vf x, tt_vf y)
{
  return (tt_vf){tt_vf_ordered(x.a, y.a, _mm512_min_ps(x.a, y.a)), tt_vf_ordered(x.b, y.b, _mm512_min_ps(x.b, y.b))};
}

// Brings n bytes (n < 64) to a buffer that a whole vector can be loaded from, and back.
TT_INLINE void tt_tail_in(void *buf, const void *src, size_t n)
{
  _mm512_storeu_si512(buf, _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, src));
}

TT_INLINE void tt_tail_out(void *dst, const void *buf, size_t n)
{
  _mm512_mask_storeu_epi8(dst, ((__mmask64)1 << n) - 1, _mm512_loadu_si512(buf));
}

TT_INLINE tt_vf tt_ld_f16(const void *p)
{
  const __m256i *q = p;
  return (tt_vf){_mm512_cvtph_ps(_mm256_loadu_si256(q)), _mm512_cvtph_ps(_mm256_loadu_si256(q + 1))};
}

TT_INLINE __m256i tt_f16_half(__m512 x)
{
  return _mm512_cvtps_ph(tt_vf_ordered(x, x, x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

TT_INLINE void tt_st_f16(void *p, tt_vf v)
{
  __m256i *q = p;
  _mm256_storeu_si256(q, tt_f16_half(v.a));
  _mm256_storeu_si256(q + 1, tt_f16_half(v.b));
}

// Even elements in a, odd ones in b: a shift and a mask instead of shuffles.
TT_INLINE tt_vf tt_ld_bf16(const void *p)
{
  __m512i x = _mm512_loadu_si512(p);
  __m512i odd = _mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000));
  return (tt_vf){_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)), _mm512_castsi512_ps(odd)};
}

TT_INLINE __m512i tt_bf16_half(__m512 x)
{
  __m512i u = _mm512_castps_si512(x);
  __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), lsb);
  return _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fffffff));
}

TT_INLINE void tt_st_bf16(void *p, tt_vf v)
{
  __m512i even = _mm512_srli_epi32(tt_bf16_half(v.a), 16), odd = tt_bf16_half(v.b);
  _mm512_storeu_si512(p, _mm512_mask_mov_epi16(even, 0xaaaaaaaa, odd));
}

TT_INLINE tt_vf tt_from_halves(__m512i h)
{
  return (tt_vf){_mm512_cvtph_ps(_mm512_castsi512_si256(h)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1))};
}

// e5m2 is the upper byte of a half.
TT_INLINE tt_vf tt_ld_e5m2(const void *p)
{
  return tt_from_halves(_mm512_slli_epi16(_mm512_cvtepu8_epi16(_mm256_loadu_si256(p)), 8));
}

// e4m3 shifted into a half has an exponent that is too small by 8.
TT_INLINE tt_vf tt_ld_e4m3(const void *p)
{
  __m512i h = _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256(p)), 7);
  h = _mm512_and_si512(h, _mm512_set1_epi16((short)0xbf80));
  __m512i nan = _mm512_set1_epi16(0x3f80);
  h = _mm512_mask_mov_epi16(h, _mm512_cmpeq_epi16_mask(_mm512_and_si512(h, nan), nan), _mm512_set1_epi16(0x7fff));
  return tt_vf_prod(tt_from_halves(h), tt_vf_set(256));
}

// tt_narrow for 16 lanes.
TT_INLINE __m128i tt_fp8_half(__m512 x, tt_narrow_spec s)
{
  __m512i u = _mm512_castps_si512(x), least = _mm512_set1_epi32((int)((128 - s.bias) << 23));
  __m512i m = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
  __m512i clamped = _mm512_min_epi32(m, _mm512_set1_epi32((int)s.limit));
  __m512i e = _mm512_max_epi32(_mm512_and_si512(clamped, _mm512_set1_epi32(0x7f800000)), least);
  __m512i offset = _mm512_set1_epi32(((23 - s.mbits) << 23) - (int)((128 - s.bias) << s.mbits)); // the exponent's bias, see tt_narrow
  __m512i magic = _mm512_add_epi32(_mm512_add_epi32(e, offset), _mm512_srli_epi32(e, (unsigned)(23 - s.mbits)));
  __m512i code = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(clamped), _mm512_castsi512_ps(magic)));
  __m512i sign = _mm512_srli_epi32(u, 24);
  code = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x80), sign, code, 0xca); // sign's bit 7, code's others; all above bit 7 is dropped
  code = _mm512_mask_mov_epi32(code, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7f));
  return _mm512_cvtepi32_epi8(code);
}

TT_INLINE void tt_st_fp8(__m128i *p, tt_vf v, tt_narrow_spec s)
{
  _mm_storeu_si128(p, tt_fp8_half(v.a, s));
  _mm_storeu_si128(p + 1, tt_fp8_half(v.b, s));
}

TT_INLINE void tt_st_e4m3(void *p, tt_vf v)
{
  tt_st_fp8(p, v, TT_SPEC_E4M3);
}

TT_INLINE void tt_st_e5m2(void *p, tt_vf v)
{
  tt_st_fp8(p, v, TT_SPEC_E5M2);
}
