// reduce_avx512.h: the vector vocabulary of the narrow kernels with AVX-512 F, BW, DQ, VL, and with VBMI and BF16 where
// the compiler may use them. reduce_avx2.h and reduce_scalar.h say the same words.
//
// tt_vf is TT_W floats. ld_… and st_… convert TT_W consecutive elements, in any fixed order of lanes, which only has to
// be the same in both. Infinity, NaN and rounding are as in reduce_convert.h.
#pragma once
#include <immintrin.h>

#include "base/util.h"
#include "device/reduce_convert.h"
#ifdef __AVX512VBMI__
#include "device/host/reduce_fp8_vbmi.h"
#define TT_FP8_BYTES 64
#endif

enum { TT_W = 32 };

typedef struct tt_vf {
  __m512 a, b;
} tt_vf;

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

// vrangeps takes -0 as smaller than +0; 4 and 5: the sign is the result's own.
TT_INLINE tt_vf tt_vf_max(tt_vf x, tt_vf y)
{
  return (tt_vf){tt_vf_ordered(x.a, y.a, _mm512_range_ps(x.a, y.a, 5)),
                 tt_vf_ordered(x.b, y.b, _mm512_range_ps(x.b, y.b, 5))};
}

TT_INLINE tt_vf tt_vf_min(tt_vf x, tt_vf y)
{
  return (tt_vf){tt_vf_ordered(x.a, y.a, _mm512_range_ps(x.a, y.a, 4)),
                 tt_vf_ordered(x.b, y.b, _mm512_range_ps(x.b, y.b, 4))};
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

// NaNs are rare: one comparison looks for them in both halves.
TT_INLINE tt_vf tt_vf_numbers(tt_vf v)
{
  if (TT_UNLIKELY(_mm512_cmp_ps_mask(v.a, v.b, _CMP_UNORD_Q))) {
    return (tt_vf){tt_vf_ordered(v.a, v.a, v.a), tt_vf_ordered(v.b, v.b, v.b)};
  }
  return v;
}

TT_INLINE __m256i tt_f16_half(__m512 x)
{
  return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

TT_INLINE void tt_st_f16(void *p, tt_vf v)
{
  __m256i *q = p;
  v = tt_vf_numbers(v);
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
  return _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), lsb);
}

// Rounded with integers, which knows subnormals; a NaN keeps all its bits only if it is the one that tt_vf_numbers
// makes.
TT_INLINE __m512i tt_bf16_integer(tt_vf v)
{
  __mmask16 nan_a = _mm512_cmp_ps_mask(v.a, v.a, _CMP_UNORD_Q), nan_b = _mm512_cmp_ps_mask(v.b, v.b, _CMP_UNORD_Q);
  const __m512i nan = _mm512_set1_epi32(0x7fffffff);
  __m512i even = _mm512_mask_mov_epi32(tt_bf16_half(v.a), nan_a, nan),
          odd = _mm512_mask_mov_epi32(tt_bf16_half(v.b), nan_b, nan);
  return _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaa, odd);
}

#ifdef __AVX512BF16__
// The instruction rounds to nearest even too, but takes subnormals for zeros and keeps a NaN's bits: for these the long
// way.
TT_INLINE __m512i tt_bf16_of(tt_vf v)
{
  enum { NAN_OR_SUBNORMAL = 0x01 | 0x20 | 0x80 };
  __mmask16 rare = _mm512_fpclass_ps_mask(v.a, NAN_OR_SUBNORMAL) | _mm512_fpclass_ps_mask(v.b, NAN_OR_SUBNORMAL);
  if (TT_UNLIKELY(rare)) {
    return tt_bf16_integer(v);
  }
  static const uint16_t alternate[32]
      __attribute__((aligned(64))) = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(alternate), (__m512i)_mm512_cvtne2ps_pbh(v.b, v.a));
}
#else
// Both at once: the upper halves of the rounded floats, in turn.
TT_INLINE __m512i tt_bf16_of(tt_vf v)
{
  if (TT_UNLIKELY(_mm512_cmp_ps_mask(v.a, v.b, _CMP_UNORD_Q))) {
    return tt_bf16_integer(v);
  }
  return _mm512_mask_mov_epi16(_mm512_srli_epi32(tt_bf16_half(v.a), 16), 0xaaaaaaaa, tt_bf16_half(v.b));
}
#endif

TT_INLINE void tt_st_bf16(void *p, tt_vf v)
{
  _mm512_storeu_si512(p, tt_bf16_of(v));
}

// ---- fp8 ----

#ifdef __AVX512VBMI__
// Each code is looked up as the two bytes of a bfloat16, but for its sign. Even elements in a, odd ones in b.
TT_INLINE tt_vf tt_ld_fp8(const void *p, const int8_t *tables)
{
  __m512i twice =
      _mm512_permutexvar_epi8(_mm512_load_si512(tt_fp8_twice), _mm512_castsi256_si512(_mm256_loadu_si256(p)));
  const __m512i low = _mm512_load_si512(tables), low2 = _mm512_load_si512(tables + 64);
  const __m512i high = _mm512_load_si512(tables + 128), high2 = _mm512_load_si512(tables + 192);
  __m512i x = _mm512_mask2_permutex2var_epi8(high, twice, 0xaaaaaaaaaaaaaaaa, high2);
  x = _mm512_mask2_permutex2var_epi8(low, x, 0x5555555555555555, low2);
  x = _mm512_ternarylogic_epi32(x, twice, _mm512_set1_epi16((short)0x8000), 0xf8); // x | (twice & 0x8000)
  return (tt_vf){_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                 _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000)))};
}

TT_INLINE tt_vf tt_ld_e4m3(const void *p)
{
  return tt_ld_fp8(p, tt_e4m3_tables.bf16);
}

TT_INLINE tt_vf tt_ld_e5m2(const void *p)
{
  return tt_ld_fp8(p, tt_e5m2_tables.bf16);
}
#else
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
#endif

// tt_narrow for 16 lanes, but for NaN and sign, in the low bytes: the power of two has the number's sign, and so has
// their sum. Its low bits are the mantissa as an integer; the exponent, which stands shift places higher, is added to
// it.
TT_INLINE __m512i tt_fp8_code(__m512 x, tt_narrow_spec s)
{
  enum { ABS_MIN = 2, ABS_MAX = 3 }; // with the first one's sign
  const int shift = 23 - s.mbits, least = (int)(128 - s.bias) << 23;
  __m512 clamped = _mm512_range_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32((int)s.limit)), ABS_MIN);
  __m512 e = _mm512_and_ps(clamped, _mm512_castsi512_ps(_mm512_set1_epi32((int)0xff800000)));
  e = _mm512_range_ps(e, _mm512_castsi512_ps(_mm512_set1_epi32(least)), ABS_MAX);
  __m512i sum = _mm512_castps_si512(_mm512_fmadd_ps(e, _mm512_set1_ps((float)(1 << shift)), clamped));
  return _mm512_add_epi32(_mm512_srli_epi32(sum, (unsigned)shift), sum);
}

// What the code of an exponent is too large by in tt_fp8_code.
TT_INLINE int tt_fp8_excess(tt_narrow_spec s)
{
  return (int)(128 - s.bias + 23 - (uint32_t)s.mbits) << s.mbits;
}

#ifdef __AVX512VBMI__
TT_INLINE void tt_st_fp8(void *p, tt_vf v, tt_narrow_spec s)
{
  const __m512i first = _mm512_load_si512(tt_fp8_first), last = _mm512_load_si512(tt_fp8_last);
  __m512i code = _mm512_permutex2var_epi8(tt_fp8_code(v.a, s), first, tt_fp8_code(v.b, s));
  code = _mm512_sub_epi8(code, _mm512_set1_epi8((char)tt_fp8_excess(s)));
  __m512i sign = _mm512_permutex2var_epi8(_mm512_castps_si512(v.a), last, _mm512_castps_si512(v.b));
  __m512i r = _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)0x80), sign, code, 0xca);
  if (TT_UNLIKELY(_mm512_cmp_ps_mask(v.a, v.b, _CMP_UNORD_Q))) {
    __m512i a = _mm512_movm_epi32(_mm512_cmp_ps_mask(v.a, v.a, _CMP_UNORD_Q)),
            b = _mm512_movm_epi32(_mm512_cmp_ps_mask(v.b, v.b, _CMP_UNORD_Q));
    r = _mm512_mask_mov_epi8(r, _mm512_movepi8_mask(_mm512_permutex2var_epi8(a, first, b)), _mm512_set1_epi8(0x7f));
  }
  _mm256_storeu_si256(p, _mm512_castsi512_si256(r));
}
#else
TT_INLINE __m128i tt_fp8_half(__m512 x, tt_narrow_spec s)
{
  __m512i code = _mm512_sub_epi32(tt_fp8_code(x, s), _mm512_set1_epi32(tt_fp8_excess(s)));
  __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(x), 24);
  // Sign's bit 7, code's others; all above bit 7 is dropped.
  code = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x80), sign, code, 0xca);
  return _mm512_cvtepi32_epi8(
      _mm512_mask_mov_epi32(code, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7f)));
}

TT_INLINE void tt_st_fp8(void *p, tt_vf v, tt_narrow_spec s)
{
  __m128i *q = p;
  _mm_storeu_si128(q, tt_fp8_half(v.a, s));
  _mm_storeu_si128(q + 1, tt_fp8_half(v.b, s));
}
#endif

TT_INLINE void tt_st_e4m3(void *p, tt_vf v)
{
  tt_st_fp8(p, v, TT_SPEC_E4M3);
}

TT_INLINE void tt_st_e5m2(void *p, tt_vf v)
{
  tt_st_fp8(p, v, TT_SPEC_E5M2);
}

// ---- Floats rounded to those that a type has. A NaN stays one, of any bits ----

TT_INLINE tt_vf tt_rnd_f16(tt_vf v)
{
  return (tt_vf){_mm512_cvtph_ps(tt_f16_half(v.a)), _mm512_cvtph_ps(tt_f16_half(v.b))};
}

TT_INLINE __m512 tt_bf16_upper(__m512 x)
{
  return _mm512_castsi512_ps(_mm512_and_si512(tt_bf16_half(x), _mm512_set1_epi32((int)0xffff0000)));
}

TT_INLINE tt_vf tt_rnd_bf16(tt_vf v)
{
  return (tt_vf){tt_bf16_upper(v.a), tt_bf16_upper(v.b)};
}

TT_INLINE tt_vf tt_rnd_e4m3(tt_vf v)
{
  uint8_t codes[TT_W];
  tt_st_e4m3(codes, v);
  return tt_ld_e4m3(codes);
}

TT_INLINE tt_vf tt_rnd_e5m2(tt_vf v)
{
  uint8_t codes[TT_W];
  tt_st_e5m2(codes, v);
  return tt_ld_e5m2(codes);
}

// ---- The larger or smaller of two codes, for 64 bytes. Codes are compared as signed numbers, of which -0 is -1, and
// so on ----

#define TT_PICK_BYTES(size) 64

// From codes to such numbers, and back.
TT_INLINE __m512i tt_key16(__m512i x)
{
  return _mm512_xor_si512(x, _mm512_maskz_set1_epi16(_mm512_movepi16_mask(x), 0x7fff));
}

TT_INLINE __m512i tt_key8(__m512i x)
{
  return _mm512_xor_si512(x, _mm512_maskz_set1_epi8(_mm512_movepi8_mask(x), 0x7f));
}

TT_INLINE void tt_pick16(void *d, const void *pa, const void *pb, tt_codes c)
{
  const __m512i mag = _mm512_set1_epi16(0x7fff), a = _mm512_loadu_si512(pa), b = _mm512_loadu_si512(pb);
  __m512i ka = tt_key16(a), kb = tt_key16(b);
  __m512i most = _mm512_max_epi16(_mm512_and_si512(a, mag), _mm512_and_si512(b, mag));
  __mmask32 nan = _mm512_cmpgt_epi16_mask(most, _mm512_set1_epi16((short)c.last));
  __m512i r = tt_key16(c.max ? _mm512_max_epi16(ka, kb) : _mm512_min_epi16(ka, kb));
  _mm512_storeu_si512(d, _mm512_mask_mov_epi16(r, nan, mag));
}

// bfloat16 among floats is cheaper: nothing has to be rounded.
TT_INLINE void tt_pick_bf16(void *d, const void *pa, const void *pb, bool max)
{
  tt_vf x = tt_ld_bf16(pa), y = tt_ld_bf16(pb);
  tt_vf r = max ? (tt_vf){_mm512_range_ps(x.a, y.a, 5), _mm512_range_ps(x.b, y.b, 5)}
                : (tt_vf){_mm512_range_ps(x.a, y.a, 4), _mm512_range_ps(x.b, y.b, 4)};
  if (TT_UNLIKELY(_mm512_cmp_ps_mask(x.a, y.a, _CMP_UNORD_Q) | _mm512_cmp_ps_mask(x.b, y.b, _CMP_UNORD_Q))) {
    r = (tt_vf){tt_vf_ordered(x.a, y.a, r.a), tt_vf_ordered(x.b, y.b, r.b)};
  }
  __m512i even = _mm512_srli_epi32(_mm512_castps_si512(r.a), 16);
  _mm512_storeu_si512(d, _mm512_mask_mov_epi16(even, 0xaaaaaaaa, _mm512_castps_si512(r.b)));
}

TT_INLINE void tt_pick8(void *d, const void *pa, const void *pb, tt_codes c)
{
  const __m512i mag = _mm512_set1_epi8(0x7f), a = _mm512_loadu_si512(pa), b = _mm512_loadu_si512(pb);
  __m512i ka = tt_key8(a), kb = tt_key8(b);
  __m512i most = _mm512_max_epi8(_mm512_and_si512(a, mag), _mm512_and_si512(b, mag));
  __mmask64 nan = _mm512_cmpgt_epi8_mask(most, _mm512_set1_epi8((char)c.last));
  __m512i r = tt_key8(c.max ? _mm512_max_epi8(ka, kb) : _mm512_min_epi8(ka, kb));
  if (c.largest < c.last) { // there is one code between: infinity
    const __m512i inf = _mm512_set1_epi8((char)c.last);
    r = _mm512_mask_sub_epi8(r, _mm512_cmpeq_epi8_mask(_mm512_and_si512(r, mag), inf), r, _mm512_set1_epi8(1));
  }
  _mm512_storeu_si512(d, _mm512_mask_mov_epi8(r, nan, mag));
}
