// reduce_fp8_vbmi.h: sums and products of two fp8 vectors byte by byte, without a conversion: 64 elements in a
// register, functions of a code looked up in tables of 64 or 128 bytes. Needs AVX-512 VBMI. The results are those of
// float arithmetic rounded once, which reduce_test.c checks for every pair of codes.
//
// A magnitude is N * 2^(E - bias - m) with m bits of mantissa, H = 2^m and N in H … 2H-1; subnormals are normalised,
// with E below 1. Its *extended code* is H * E + N - H: the code itself of a normal number, and below H for subnormals,
// where the tables `low` lead back to codes. Numbers from 448 or 57344 on saturate.
//
// Sum: S = the smaller magnitude in eighths of the larger one's last place, what is cut off kept as a set lowest bit
// ("sticky"); V = the larger one in the same unit plus or minus S. The result's extended code is H * E of the larger
// one plus a function of V that rounds and normalises. Results below the normal range are exact, so that nothing is
// rounded twice. Product: the two mantissas index a table that says what is added to the sum of the extended codes;
// below the normal range one table per E rounds the product where it has to be rounded.
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define TT_FP8 static inline __attribute__((always_inline))

// ---- Tables are constant expressions of their index ----

#define TT_R4(F, m, i) F(m, (i)), F(m, (i) + 1), F(m, (i) + 2), F(m, (i) + 3)
#define TT_R16(F, m, i) TT_R4(F, m, i), TT_R4(F, m, (i) + 4), TT_R4(F, m, (i) + 8), TT_R4(F, m, (i) + 12)
#define TT_R64(F, m, i) TT_R16(F, m, i), TT_R16(F, m, (i) + 16), TT_R16(F, m, (i) + 32), TT_R16(F, m, (i) + 48)
#define TT_R128(F, m) TT_R64(F, m, 0), TT_R64(F, m, 64)

// x / 2^n to the nearest integer, ties to even; x >= 0.
#define TT_RNE(x, n) (((x) + (1 << (n)) / 2 - 1 + (((x) >> (n)) & 1) * ((n) > 0)) >> (n))

// Of a code of m bits of mantissa: how far a subnormal's leading bit is from where it would be, E, N. Zero: E = -8, N =
// 0.
#define TT_LACK(m, c) ((c) >= 1 << (m) ? 0 : (c) >= 4 ? (m)-2 : (c) >= 2 ? (m)-1 : (m))
#define TT_E(m, c) ((c) == 0 ? -8 : (c) >= 1 << (m) ? (c) >> (m) : 1 - TT_LACK(m, c))
#define TT_N(m, c) ((c) >= 1 << (m) ? (1 << (m)) + ((c) & ((1 << (m)) - 1)) : (c) << TT_LACK(m, c))
#define TT_HE(m, c) ((1 << (m)) * TT_E(m, c))

// Sum, of the larger magnitude: H * E, and N in eighths. A zero only meets another zero here: its E does not matter.
#define TT_SUM_BASE(m, c) (int8_t)((c) == 0 ? 0 : TT_HE(m, c))
#define TT_SUM_BIG(m, c) (int8_t)(TT_N(m, c) * 8)
// Of the smaller one: what, added to the larger one's H * E, gives H * (difference of the E) + N - H. Zero is far below
// everything.
#define TT_SUM_SMALL(m, c) (int8_t)((c) == 0 ? 96 : TT_N(m, c) - (1 << (m)) - TT_HE(m, c))
// S, of H * difference + N - H (at most 63; what is further apart changes nothing, as a table of zeros says), negative
// from 64 on.
#define TT_SUM_FAR(m, i) ((i) >> (m) > (m) + 2)
#define TT_SUM_CUT(m, i) ((((1 << (m)) + ((i) & ((1 << (m)) - 1))) * 8) & ((1 << ((i) >> (m))) - 1))
#define TT_SUM_S(m, i) \
  (TT_SUM_FAR(m, i) ? 0 : ((((1 << (m)) + ((i) & ((1 << (m)) - 1))) * 8) >> ((i) >> (m))) | (TT_SUM_CUT(m, i) != 0))
#define TT_SUM_SHIFTED(m, i) (int8_t)(((i) < 64 ? 1 : -1) * (TT_SUM_S(m, (i)&63)))
// What V adds to H * E. Places by which it has to move left to be normal: 0 or more.
#define TT_V_LACK(m, v) \
  ((v) >= 8 << (m) ? 0 : (v) >= 4 << (m) ? 1 : (v) >= 2 << (m) ? 2 : (v) >= 1 << (m) ? 3 : (v) >= 1 << (m) >> 1 ? 4 : 5)
#define TT_V_DOWN(m, v) (TT_RNE((v) << TT_V_LACK(m, v), 3) - (1 << (m)) * (1 + TT_V_LACK(m, v)))
#define TT_SUM_END(m, v) (int8_t)((v) >= 16 << (m) ? TT_RNE(v, 4) : TT_V_DOWN(m, v))
#define TT_SUM_END_HIGH(m, v) TT_SUM_END(m, (v) + 128)
// The code of an extended code below H, of its six low bits.
#define TT_SIGNED6(i) ((i) < 32 ? (i) : (i)-64)
#define TT_LOW_IS(m, i, c) ((c) < 1 << (m) && TT_HE(m, c) + TT_N(m, c) - (1 << (m)) == TT_SIGNED6(i) ? (c) : 0)
#define TT_SUM_LOW(m, i)                                                                                            \
  (int8_t)(TT_LOW_IS(m, i, 1) | TT_LOW_IS(m, i, 2) | TT_LOW_IS(m, i, 3) | TT_LOW_IS(m, i, 4) | TT_LOW_IS(m, i, 5) | \
           TT_LOW_IS(m, i, 6) | TT_LOW_IS(m, i, 7))

// Product. Both extended codes less about half of H * bias, a multiple of H so that N - H stays in the low bits; the
// tables subtract what is missing.
#define TT_BIAS(m) ((m) == 3 ? 7 : 15)
#define TT_HALF(m) (TT_BIAS(m) / 2 << (m))
#define TT_REST(m) ((TT_BIAS(m) << (m)) - 2 * TT_HALF(m))
#define TT_PROD_CODE(m, c) (int8_t)((c) == 0 ? 0 : TT_HE(m, c) + TT_N(m, c) - (1 << (m)) - TT_HALF(m))
// The two N of an index, 8 * (N - H) + N' - H; their product; the product in units of the last place at E (1: the sum
// of the codes' E is the least of a normal number), rounded.
#define TT_F1(m, i) ((i) >> 3 & ((1 << (m)) - 1))
#define TT_F2(m, i) ((i) & ((1 << (m)) - 1))
#define TT_PI(m, i) (((1 << (m)) + TT_F1(m, i)) * ((1 << (m)) + TT_F2(m, i)))
#define TT_PROD_ROUND(m, i) \
  (TT_PI(m, i) >= 2 << 2 * (m) ? TT_RNE(TT_PI(m, i), (m) + 1) : TT_RNE(TT_PI(m, i), m) - (1 << (m)))
#define TT_PROD_E(m, i) (int8_t)(-TT_F1(m, i) - TT_F2(m, i) - TT_REST(m))
#define TT_PROD_END(m, i) (int8_t)(TT_PROD_ROUND(m, i) - TT_F1(m, i) - TT_F2(m, i) - TT_REST(m))
#define TT_PROD_LOW0(m, i) (int8_t)(TT_RNE(TT_PI(m, i), (m) + 1))
#define TT_PROD_LOW1(m, i) (int8_t)(TT_RNE(TT_PI(m, i), (m) + 2))
#define TT_PROD_LOW2(m, i) (int8_t)(TT_RNE(TT_PI(m, i), (m) + 3))
#define TT_PROD_LOW3(m, i) (int8_t)(TT_RNE(TT_PI(m, i), (m) + 4))
#define TT_PROD_LOW4(m, i) (int8_t)(TT_RNE(TT_PI(m, i), (m) + 5))

// A code's magnitude as a bfloat16, whose low byte has the exponent's last bit and the mantissa. NaN: all bits but the
// sign set.
#define TT_BF16_NAN(m, c) ((c) > ((m) == 3 ? 0x7e : 0x7c))
#define TT_BF16_INF(m, c) ((m) == 2 && (c) == 0x7c)
#define TT_BF16_NUMBER(m, c) ((TT_E(m, c) + 127 - TT_BIAS(m)) * 128 + (TT_N(m, c) - (1 << (m))) * (128 >> (m)))
#define TT_BF16(m, c) (TT_BF16_NAN(m, c) ? 0x7fff : TT_BF16_INF(m, c) ? 0x7f80 : (c) == 0 ? 0 : TT_BF16_NUMBER(m, c))
#define TT_BF16_LOW(m, c) (int8_t)(TT_BF16(m, c) & 0xff)
#define TT_BF16_HIGH(m, c) (int8_t)(TT_BF16(m, c) >> 8)

typedef struct tt_fp8_tables {
  int8_t bf16[256]; // low bytes, then high ones
  int8_t sum_base[128], sum_big[128], sum_small[128], sum_shifted[128], sum_end[256], sum_low[64];
  int8_t prod_code[128], prod_e[64], prod_end[64], prod_low[5][64];
  int h;       // H
  int largest; // finite code
} tt_fp8_tables;

#define TT_FP8_TABLES(m, LARGEST)                                                                                  \
  {                                                                                                                \
    .bf16 = {TT_R128(TT_BF16_LOW, m), TT_R128(TT_BF16_HIGH, m)}, .sum_base = {TT_R128(TT_SUM_BASE, m)},            \
    .sum_big = {TT_R128(TT_SUM_BIG, m)}, .sum_small = {TT_R128(TT_SUM_SMALL, m)},                                  \
    .sum_shifted = {TT_R128(TT_SUM_SHIFTED, m)}, .sum_end = {TT_R128(TT_SUM_END, m), TT_R128(TT_SUM_END_HIGH, m)}, \
    .sum_low = {TT_R64(TT_SUM_LOW, m, 0)}, .prod_code = {TT_R128(TT_PROD_CODE, m)},                                \
    .prod_e = {TT_R64(TT_PROD_E, m, 0)}, .prod_end = {TT_R64(TT_PROD_END, m, 0)},                                  \
    .prod_low = {{TT_R64(TT_PROD_LOW0, m, 0)},                                                                     \
                 {TT_R64(TT_PROD_LOW1, m, 0)},                                                                     \
                 {TT_R64(TT_PROD_LOW2, m, 0)},                                                                     \
                 {TT_R64(TT_PROD_LOW3, m, 0)},                                                                     \
                 {TT_R64(TT_PROD_LOW4, m, 0)}},                                                                    \
    .h = 1 << (m), .largest = (LARGEST)                                                                            \
  }

static const tt_fp8_tables tt_e4m3_tables __attribute__((aligned(64))) = TT_FP8_TABLES(3, 0x7e);
static const tt_fp8_tables tt_e5m2_tables __attribute__((aligned(64))) = TT_FP8_TABLES(2, 0x7b);

// Orders of bytes: each one twice; of two vectors of floats in turn the lowest bytes, the highest ones.
#define TT_TWICE(m, i) (int8_t)((i) / 2)
#define TT_FIRST(m, i) (int8_t)((i) / 2 * 4 % 64 + (i) % 2 * 64)
#define TT_LAST(m, i) (int8_t)(TT_FIRST(m, i) + 3)

static const int8_t tt_fp8_twice[64] __attribute__((aligned(64))) = {TT_R64(TT_TWICE, 0, 0)};
static const int8_t tt_fp8_first[64] __attribute__((aligned(64))) = {TT_R64(TT_FIRST, 0, 0)};
static const int8_t tt_fp8_last[64] __attribute__((aligned(64))) = {TT_R64(TT_LAST, 0, 0)};

// ---- The arithmetic ----

TT_FP8 __m512i tt_look64(const int8_t *table, __m512i i)
{
  return _mm512_permutexvar_epi8(i, _mm512_load_si512(table));
}

TT_FP8 __m512i tt_look128(const int8_t *table, __m512i i)
{
  return _mm512_permutex2var_epi8(_mm512_load_si512(table), i, _mm512_load_si512(table + 64));
}

TT_FP8 __m512i tt_bytes(int x)
{
  return _mm512_set1_epi8((char)x);
}

// The magnitude in `x` with the top bits of `sign`.
TT_FP8 __m512i tt_fp8_signed(__m512i x, __m512i sign)
{
  return _mm512_ternarylogic_epi32(tt_bytes(0x80), sign, x, 0xca);
}

// NaN and infinity. e4m3: code 0x7f is a NaN. e5m2: from 0x7d on NaN, 0x7c infinity, which becomes the largest number;
// inf_nan: where an infinity met what makes a NaN of it.
TT_FP8 __m512i tt_fp8_special(const tt_fp8_tables *t, __m512i big, __mmask64 inf_nan, __m512i signed_result,
                              __m512i sign)
{
  if (t->h == 8) {
    return _mm512_mask_mov_epi8(signed_result, _mm512_cmpeq_epi8_mask(big, tt_bytes(0x7f)), tt_bytes(0x7f));
  }
  if (TT_LIKELY(!_mm512_cmpge_epu8_mask(big, tt_bytes(0x7c)))) {
    return signed_result;
  }
  __mmask64 inf = _mm512_cmpeq_epi8_mask(big, tt_bytes(0x7c)),
            nan = _mm512_cmpgt_epu8_mask(big, tt_bytes(0x7c)) | inf_nan;
  __m512i r = _mm512_mask_mov_epi8(signed_result, inf, tt_fp8_signed(tt_bytes(0x7b), sign));
  return _mm512_mask_mov_epi8(r, nan, tt_bytes(0x7f));
}

TT_FP8 void tt_fp8_sum(const tt_fp8_tables *t, void *dst, const void *pa, const void *pb)
{
  const __m512i mag = tt_bytes(0x7f), a = _mm512_loadu_si512(pa), b = _mm512_loadu_si512(pb);
  __m512i ma = _mm512_and_si512(a, mag), mb = _mm512_and_si512(b, mag);
  __m512i big = _mm512_max_epu8(ma, mb), small = _mm512_min_epu8(ma, mb), differ = _mm512_xor_si512(a, b);
  __m512i base = tt_look128(t->sum_base, big);
  __m512i i = _mm512_min_epu8(_mm512_add_epi8(base, tt_look128(t->sum_small, small)), tt_bytes(63));
  i = _mm512_ternarylogic_epi32(i, _mm512_srli_epi16(differ, 1), tt_bytes(0x40), 0xf8); // i | (differ >> 1 & 0x40)
  __m512i v = _mm512_add_epi8(tt_look128(t->sum_big, big), tt_look128(t->sum_shifted, i));
  __m512i end = tt_look128(t->sum_end, v);
  if (t->h == 8) { // the other one's V is below 128
    end = _mm512_mask_mov_epi8(end, _mm512_movepi8_mask(v), tt_look128(t->sum_end + 128, v));
  }
  __mmask64 some = _mm512_test_epi8_mask(v, v);
  __m512i x = _mm512_min_epi8(_mm512_maskz_adds_epi8(some, base, end), tt_bytes(t->largest));
  x = _mm512_mask_permutexvar_epi8(x, _mm512_mask_cmplt_epi8_mask(some, x, tt_bytes(t->h)), x,
                                   _mm512_load_si512(t->sum_low));
  // The larger one's sign. Zero is negative only as the sum of two that are.
  __m512i larger = _mm512_mask_mov_epi8(b, _mm512_cmpge_epu8_mask(ma, mb), a);
  __m512i sign = _mm512_mask_mov_epi8(_mm512_and_si512(a, b), some, larger);
  __mmask64 inf_nan = t->h == 8 ? 0 : _mm512_mask_cmpeq_epi8_mask(_mm512_movepi8_mask(differ), small, tt_bytes(0x7c));
  _mm512_storeu_si512(dst, tt_fp8_special(t, big, inf_nan, tt_fp8_signed(x, sign), sign));
}

TT_FP8 void tt_fp8_prod(const tt_fp8_tables *t, void *dst, const void *pa, const void *pb)
{
  const __m512i mag = tt_bytes(0x7f), a = _mm512_loadu_si512(pa), b = _mm512_loadu_si512(pb),
                sign = _mm512_xor_si512(a, b);
  __m512i ma = _mm512_and_si512(a, mag), mb = _mm512_and_si512(b, mag);
  __m512i xa = tt_look128(t->prod_code, ma), xb = tt_look128(t->prod_code, mb);
  const __mmask64 some = _mm512_test_epi8_mask(_mm512_min_epu8(ma, mb), mag); // neither is zero
  __m512i i = _mm512_ternarylogic_epi32(tt_bytes(7), xb, _mm512_slli_epi16(xa, 3), 0xca);
  __m512i e = _mm512_adds_epi8(_mm512_add_epi8(xa, tt_look64(t->prod_e, i)), xb); // H * E
  __m512i x = _mm512_adds_epi8(_mm512_add_epi8(xa, tt_look64(t->prod_end, i)), xb);
  x = _mm512_maskz_min_epi8(_mm512_mask_cmpgt_epi8_mask(some, e, _mm512_setzero_si512()), x, tt_bytes(t->largest));
  for (int k = 0; k < (t->h == 8 ? 5 : 4); k++) {
    x = _mm512_mask_permutexvar_epi8(x, _mm512_mask_cmpeq_epi8_mask(some, e, tt_bytes(-k * t->h)), i,
                                     _mm512_load_si512(t->prod_low[k]));
  }
  __m512i big = _mm512_max_epu8(ma, mb);
  __mmask64 inf_nan = t->h == 8 ? 0 : ~some & _mm512_cmpeq_epi8_mask(big, tt_bytes(0x7c));
  _mm512_storeu_si512(dst, tt_fp8_special(t, big, inf_nan, tt_fp8_signed(x, sign), sign));
}
