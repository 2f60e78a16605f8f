// reduce_avx2.h: the vector vocabulary of the narrow kernels with AVX2 and F16C. reduce_avx512.h says what the words
// mean.
#pragma once
#include <immintrin.h>

#include "base/util.h"
#include "device/reduce_convert.h"

enum { TT_W = 16 };

typedef struct tt_vf {
  __m256 a, b;
} tt_vf;

TT_INLINE tt_vf tt_vf_set(float f)
{
  return (tt_vf){_mm256_set1_ps(f), _mm256_set1_ps(f)};
}

TT_INLINE tt_vf tt_vf_sum(tt_vf x, tt_vf y)
{
  return (tt_vf){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}

TT_INLINE tt_vf tt_vf_prod(tt_vf x, tt_vf y)
{
  return (tt_vf){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}

TT_INLINE __m256 tt_vf_ordered(__m256 x, __m256 y, __m256 r)
{
  return _mm256_blendv_ps(r, _mm256_set1_ps(TT_NAN_F32), _mm256_cmp_ps(x, y, _CMP_UNORD_Q));
}

// vmaxps gives its second operand when both are zero. The maximum has a sign only if x has one, which changes no other
// number; the minimum likewise.
TT_INLINE __m256 tt_max_half(__m256 x, __m256 y)
{
  __m256 sign = _mm256_or_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
  return tt_vf_ordered(x, y, _mm256_and_ps(_mm256_max_ps(x, y), sign));
}

TT_INLINE __m256 tt_min_half(__m256 x, __m256 y)
{
  __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0F));
  return tt_vf_ordered(x, y, _mm256_or_ps(_mm256_min_ps(x, y), sign));
}

TT_INLINE tt_vf tt_vf_max(tt_vf x, tt_vf y)
{
  return (tt_vf){tt_max_half(x.a, y.a), tt_max_half(x.b, y.b)};
}

TT_INLINE tt_vf tt_vf_min(tt_vf x, tt_vf y)
{
  return (tt_vf){tt_min_half(x.a, y.a), tt_min_half(x.b, y.b)};
}

TT_INLINE void tt_tail_in(void *buf, const void *src, size_t n)
{
  memset(buf, 0, 32);
  memcpy(buf, src, n);
}

TT_INLINE void tt_tail_out(void *dst, const void *buf, size_t n)
{
  memcpy(dst, buf, n);
}

TT_INLINE tt_vf tt_ld_f16(const void *p)
{
  const __m128i *q = p;
  return (tt_vf){_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}

// NaNs are rare: one comparison looks for them in both halves.
TT_INLINE bool tt_vf_has_nan(tt_vf v)
{
  return TT_UNLIKELY(_mm256_movemask_ps(_mm256_cmp_ps(v.a, v.b, _CMP_UNORD_Q)));
}

TT_INLINE tt_vf tt_vf_numbers(tt_vf v)
{
  if (tt_vf_has_nan(v)) {
    return (tt_vf){tt_vf_ordered(v.a, v.a, v.a), tt_vf_ordered(v.b, v.b, v.b)};
  }
  return v;
}

TT_INLINE void tt_st_f16(void *p, tt_vf v)
{
  __m128i *q = p;
  v = tt_vf_numbers(v);
  _mm_storeu_si128(q, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128(q + 1, _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

TT_INLINE tt_vf tt_ld_bf16(const void *p)
{
  __m256i x = _mm256_loadu_si256(p);
  __m256i odd = _mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000));
  return (tt_vf){_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)), _mm256_castsi256_ps(odd)};
}

TT_INLINE __m256i tt_bf16_half(__m256 x)
{
  __m256i u = _mm256_castps_si256(x);
  __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), lsb);
  return r;
}

TT_INLINE __m256i tt_bf16_nan(__m256 x, __m256i r)
{
  return _mm256_castps_si256(tt_vf_ordered(x, x, _mm256_castsi256_ps(r)));
}

TT_INLINE void tt_st_bf16(void *p, tt_vf v)
{
  __m256i even = tt_bf16_half(v.a), odd = tt_bf16_half(v.b);
  if (tt_vf_has_nan(v)) {
    even = tt_bf16_nan(v.a, even);
    odd = tt_bf16_nan(v.b, odd);
  }
  _mm256_storeu_si256(p, _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa));
}

TT_INLINE tt_vf tt_ld_e5m2(const void *p)
{
  __m256i h = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p)), 8);
  return (tt_vf){_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}

TT_INLINE tt_vf tt_ld_e4m3(const void *p)
{
  __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(p)), 7);
  h = _mm256_and_si256(h, _mm256_set1_epi16((short)0xbf80));
  __m256i nan = _mm256_set1_epi16(0x3f80), is_nan = _mm256_cmpeq_epi16(_mm256_and_si256(h, nan), nan);
  h = _mm256_or_si256(h, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7fff)));
  tt_vf v = {_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
  return tt_vf_prod(v, tt_vf_set(256));
}

TT_INLINE __m256i tt_fp8_half(__m256 x, tt_narrow_spec s)
{
  __m256i u = _mm256_castps_si256(x), least = _mm256_set1_epi32((int)((128 - s.bias) << 23));
  __m256i m = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
  __m256i clamped = _mm256_min_epi32(m, _mm256_set1_epi32((int)s.limit));
  __m256i e = _mm256_max_epi32(_mm256_and_si256(clamped, _mm256_set1_epi32(0x7f800000)), least);
  // The exponent's bias, see tt_narrow.
  __m256i offset = _mm256_set1_epi32(((23 - s.mbits) << 23) - (int)((128 - s.bias) << s.mbits));
  __m256i magic = _mm256_add_epi32(_mm256_add_epi32(e, offset), _mm256_srli_epi32(e, 23 - s.mbits));
  __m256i code = _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(clamped), _mm256_castsi256_ps(magic)));
  code = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
  code = _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi32(u, 24), _mm256_set1_epi32(0x80)));
  __m256i is_nan = _mm256_cmpgt_epi32(m, _mm256_set1_epi32(0x7f800000));
  return _mm256_blendv_epi8(code, _mm256_set1_epi32(0x7f), is_nan);
}

TT_INLINE void tt_st_fp8(__m128i *p, tt_vf v, tt_narrow_spec s)
{
  __m256i words = _mm256_packus_epi32(tt_fp8_half(v.a, s), tt_fp8_half(v.b, s));
  words = _mm256_permute4x64_epi64(words, 0xd8);
  _mm_storeu_si128(p, _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

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
  return (tt_vf){_mm256_cvtph_ps(_mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)),
                 _mm256_cvtph_ps(_mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}

TT_INLINE __m256 tt_bf16_upper(__m256 x)
{
  return _mm256_castsi256_ps(_mm256_and_si256(tt_bf16_half(x), _mm256_set1_epi32((int)0xffff0000)));
}

TT_INLINE tt_vf tt_rnd_bf16(tt_vf v)
{
  return (tt_vf){tt_bf16_upper(v.a), tt_bf16_upper(v.b)};
}

// tt_narrow_round for 8 lanes.
TT_INLINE __m256 tt_fp8_round(__m256 x, tt_narrow_spec s)
{
  __m256i u = _mm256_castps_si256(x), least = _mm256_set1_epi32((int)((128 - s.bias) << 23));
  __m256i clamped =
      _mm256_min_epi32(_mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff)), _mm256_set1_epi32((int)s.limit));
  __m256i e = _mm256_max_epi32(_mm256_and_si256(clamped, _mm256_set1_epi32(0x7f800000)), least);
  __m256 large = _mm256_castsi256_ps(_mm256_add_epi32(e, _mm256_set1_epi32((23 - s.mbits) << 23)));
  __m256 r = _mm256_sub_ps(_mm256_add_ps(_mm256_castsi256_ps(clamped), large), large);
  r = _mm256_or_ps(r, _mm256_and_ps(x, _mm256_set1_ps(-0.0F)));
  return _mm256_or_ps(r, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

TT_INLINE tt_vf tt_rnd_e4m3(tt_vf v)
{
  return (tt_vf){tt_fp8_round(v.a, TT_SPEC_E4M3), tt_fp8_round(v.b, TT_SPEC_E4M3)};
}

TT_INLINE tt_vf tt_rnd_e5m2(tt_vf v)
{
  return (tt_vf){tt_fp8_round(v.a, TT_SPEC_E5M2), tt_fp8_round(v.b, TT_SPEC_E5M2)};
}

// ---- The larger or smaller of two codes, for 32 bytes. Codes are compared as signed numbers, of which -0 is -1, and
// so on ----

#define TT_PICK_BYTES(size) 32

// From codes to such numbers, and back.
TT_INLINE __m256i tt_key16(__m256i x)
{
  return _mm256_xor_si256(x, _mm256_srli_epi16(_mm256_srai_epi16(x, 15), 1));
}

TT_INLINE __m256i tt_key8(__m256i x)
{
  return _mm256_xor_si256(x, _mm256_and_si256(_mm256_cmpgt_epi8(_mm256_setzero_si256(), x), _mm256_set1_epi8(0x7f)));
}

TT_INLINE void tt_pick16(void *d, const void *pa, const void *pb, tt_codes c)
{
  const __m256i mag = _mm256_set1_epi16(0x7fff), a = _mm256_loadu_si256(pa), b = _mm256_loadu_si256(pb);
  __m256i ka = tt_key16(a), kb = tt_key16(b),
          most = _mm256_max_epi16(_mm256_and_si256(a, mag), _mm256_and_si256(b, mag));
  __m256i nan = _mm256_cmpgt_epi16(most, _mm256_set1_epi16((short)c.last));
  __m256i r = tt_key16(c.max ? _mm256_max_epi16(ka, kb) : _mm256_min_epi16(ka, kb));
  _mm256_storeu_si256(d, _mm256_blendv_epi8(r, mag, nan));
}

TT_INLINE void tt_pick8(void *d, const void *pa, const void *pb, tt_codes c)
{
  const __m256i mag = _mm256_set1_epi8(0x7f), a = _mm256_loadu_si256(pa), b = _mm256_loadu_si256(pb);
  __m256i ka = tt_key8(a), kb = tt_key8(b), most = _mm256_max_epi8(_mm256_and_si256(a, mag), _mm256_and_si256(b, mag));
  __m256i nan = _mm256_cmpgt_epi8(most, _mm256_set1_epi8((char)c.last));
  __m256i r = tt_key8(c.max ? _mm256_max_epi8(ka, kb) : _mm256_min_epi8(ka, kb));
  if (c.largest < c.last) { // there is one code between: infinity
    r = _mm256_add_epi8(r, _mm256_cmpeq_epi8(_mm256_and_si256(r, mag), _mm256_set1_epi8((char)c.last)));
  }
  _mm256_storeu_si256(d, _mm256_blendv_epi8(r, mag, nan));
}

TT_INLINE void tt_pick_bf16(void *d, const void *pa, const void *pb, bool max)
{
  tt_pick16(d, pa, pb, (tt_codes){0x7f80, 0x7f80, max});
}
