// hostcuda_floats_test.c: the conversions of cuda_fp16.h, cuda_bf16.h and cuda_fp8.h beside the library's own, for all
// codes; and what only CUDA's have: results without saturation, NaNs, the layouts that C sees.
#include <cuda_fp8.h>
#include <math.h>

#include "device/reduce_convert.h"
#include "harness.h"

enum { HALVES = 65536, BYTES = 256 };

static bool same(float a, float b)
{
  return memcmp(&a, &b, sizeof a) == 0;
}

// To float. A half's NaN has one form here; the library keeps its bits.
static void all_codes_widen_alike(void **state)
{
  (void)state;
  for (unsigned c = 0; c < HALVES; c++) {
    float half = hostcudaValue(hostcudaHalf(), c);
    assert_true(isnan(half) ? tt_f32_bits(half) == 0x7fffffff : same(half, tt_f32_from_f16((uint16_t)c)));
    assert_int_equal(isnan(half), isnan(tt_f32_from_f16((uint16_t)c)));
    assert_true(same(hostcudaValueOfBfloat16((unsigned short)c), tt_f32_from_bf16((uint16_t)c)));
  }
  for (unsigned c = 0; c < BYTES; c++) {
    float e4m3 = hostcudaValue(hostcudaE4m3(), c), e5m2 = hostcudaValue(hostcudaE5m2(), c);
    assert_true(isnan(e4m3) ? (c & 0x7f) == 0x7f : same(e4m3, tt_f32_from_e4m3((uint8_t)c)));
    assert_true(isnan(e5m2) ? (c & 0x7f) > 0x7c : same(e5m2, tt_f32_from_e5m2((uint8_t)c)));
  }
}

// From a float, to nearest: a number, its neighbours, and the middle between two codes.
static void narrow_alike(float f)
{
  hostcudaNumber number = hostcudaOfDouble(f);
  assert_int_equal(hostcudaRound(hostcudaHalf(), number, cudaRoundNearest, 0), tt_f16_from_f32(f));
  assert_int_equal(hostcudaRound(hostcudaBfloat16(), number, cudaRoundNearest, 0), tt_bf16_from_f32(f));
  assert_int_equal(__nv_cvt_float_to_fp8(f, __NV_SATFINITE, __NV_E4M3), tt_e4m3_from_f32(f));
  assert_int_equal(__nv_cvt_float_to_fp8(f, __NV_SATFINITE, __NV_E5M2), tt_e5m2_from_f32(f));
}

static void all_floats_narrow_alike(void **state)
{
  static const uint32_t low[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x2000, 0x7fff, 0x8000, 0x8001, 0xffff};
  (void)state;
  for (uint32_t top = 0; top < HALVES; top++) {
    for (size_t i = 0; i < sizeof low / sizeof *low; i++) {
      narrow_alike(tt_f32_of_bits(top << 16 | low[i]));
    }
  }
}

// Every code comes back from its value, in each way to round.
static void all_codes_return(void **state)
{
  (void)state;
  for (int mode = cudaRoundNearest; mode <= cudaRoundMinInf; mode++) {
    for (unsigned c = 0; c < HALVES; c++) {
      double half = hostcudaValue(hostcudaHalf(), c), wide = hostcudaValueOfBfloat16((unsigned short)c);
      assert_int_equal(hostcudaRound(hostcudaHalf(), hostcudaOfDouble(half), mode, 0), isnan(half) ? 0x7fff : c);
      assert_int_equal(hostcudaRound(hostcudaBfloat16(), hostcudaOfDouble(wide), mode, 0), isnan(wide) ? 0x7fff : c);
    }
  }
}

static void fp8_of(double value, const unsigned expected[4])
{
  assert_int_equal(__nv_cvt_double_to_fp8(value, __NV_NOSAT, __NV_E4M3), expected[0]);
  assert_int_equal(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, __NV_E4M3), expected[1]);
  assert_int_equal(__nv_cvt_double_to_fp8(value, __NV_NOSAT, __NV_E5M2), expected[2]);
  assert_int_equal(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, __NV_E5M2), expected[3]);
}

static void what_is_too_large(void **state)
{
  (void)state;
  fp8_of(INFINITY, (unsigned[]){0x7f, 0x7e, 0x7c, 0x7b});
  fp8_of(-INFINITY, (unsigned[]){0xff, 0xfe, 0xfc, 0xfb});
  fp8_of(1e9, (unsigned[]){0x7f, 0x7e, 0x7c, 0x7b});
  fp8_of(464, (unsigned[]){0x7e, 0x7e, 0x5f, 0x5f}); // the middle between 448 and what would follow; 448 is even
  fp8_of(464.0001, (unsigned[]){0x7f, 0x7e, 0x5f, 0x5f});
  assert_int_equal(hostcudaRound(hostcudaHalf(), hostcudaOfDouble(65519), cudaRoundNearest, 0), 0x7bff);
  assert_int_equal(hostcudaRound(hostcudaHalf(), hostcudaOfDouble(65520), cudaRoundNearest, 0), 0x7c00);
  assert_int_equal(hostcudaRound(hostcudaHalf(), hostcudaOfDouble(1e300), cudaRoundZero, 0), 0x7bff);
  assert_int_equal(hostcudaRound(hostcudaHalf(), hostcudaOfDouble(-1e300), cudaRoundPosInf, 0), 0xfbff);
  assert_int_equal(hostcudaRound(hostcudaHalf(), hostcudaOfDouble(1e-300), cudaRoundPosInf, 0), 1);
  assert_int_equal(hostcudaRound(hostcudaHalf(), hostcudaOfDouble(1e-300), cudaRoundNearest, 0), 0);
}

static void integers_are_rounded_once(void **state)
{
  (void)state;
  // As a double, which has 53 bits, the lowest one would be lost, and the tie would go to the even neighbour.
  unsigned long long tie = (1ULL << 62) + (1ULL << 54);
  assert_int_equal(hostcudaRound(hostcudaBfloat16(), hostcudaOfUnsigned(tie), cudaRoundNearest, 0), 0x5e80);
  assert_int_equal(hostcudaRound(hostcudaBfloat16(), hostcudaOfUnsigned(tie + 1), cudaRoundNearest, 0), 0x5e81);
  assert_int_equal(hostcudaRound(hostcudaBfloat16(), hostcudaOfSigned(INT64_MIN), cudaRoundNearest, 0), 0xdf00);
  assert_int_equal(hostcudaRound(hostcudaHalf(), hostcudaOfSigned(-2049), cudaRoundNearest, 0), 0xe800);
  assert_int_equal(hostcudaRound(hostcudaHalf(), hostcudaOfSigned(-2049), cudaRoundMinInf, 0), 0xe801);
}

static void nans_and_layouts(void **state)
{
  (void)state;
  assert_int_equal(hostcudaRound(hostcudaHalf(), hostcudaOfDouble(-NAN), cudaRoundNearest, 0), 0x7fff);
  assert_int_equal(__nv_cvt_float_to_fp8(-NAN, __NV_NOSAT, __NV_E5M2), 0x7f);
  assert_int_equal(__nv_cvt_fp8_to_halfraw(0xff, __NV_E4M3).x, 0x7fff);
  assert_int_equal(__nv_cvt_fp8_to_halfraw(0x7c, __NV_E5M2).x, 0x7c00);
  __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(0xfe01, __NV_E4M3); // -448 and 2^-9
  assert_int_equal(pair.x, 0x1800);
  assert_int_equal(pair.y, 0xdf00);
  assert_int_equal(__nv_cvt_halfraw2_to_fp8x2(pair, __NV_NOSAT, __NV_E4M3), 0xfe01);
  assert_int_equal(sizeof(__half_raw), 2);
  assert_int_equal(sizeof(__half2_raw), 4);
  assert_int_equal(_Alignof(__nv_bfloat162_raw), 4);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_codes_widen_alike),     cmocka_unit_test(all_floats_narrow_alike),
      cmocka_unit_test(all_codes_return),          cmocka_unit_test(what_is_too_large),
      cmocka_unit_test(integers_are_rounded_once), cmocka_unit_test(nans_and_layouts),
  };
  return RUN_TESTS("hostcuda_floats", tests, argc, argv);
}
