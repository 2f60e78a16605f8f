// alu_convert_test.c: conversions. All codes of f16, bf16, e4m3 and e5m2 in both directions, with every rounding, and
// the numbers beside each code and beside the middle of each two; against the slow rounding of alu_test.h, and for the
// host's own types against the host with its rounding mode set.
#include <fenv.h>

#include "alu_test.h"

static uint64_t bits_of_float(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static uint64_t bits_of_double(double x)
{
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static double double_of_bits(uint64_t bits)
{
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static float float_of_bits(uint64_t bits)
{
  uint32_t word = (uint32_t)bits;
  float x;
  memcpy(&x, &word, sizeof x);
  return x;
}

static const struct alu_case convert_cases[] = {
    // Integers: cut off, extended, clamped.
    {"cvt.u8.u32", {0x1ff}, {0xff}},
    {"cvt.s8.s32", {0x17f}, {0x7f}},
    {"cvt.s8.s32", {0x180}, {0x80}},
    {"cvt.s32.s8", {0x80}, {0xffffff80}},
    {"cvt.u32.u8", {0x80}, {0x80}},
    {"cvt.s64.s32", {0x80000000}, {0xffffffff80000000}},
    {"cvt.u64.s32", {0x80000000}, {0xffffffff80000000}},
    {"cvt.s64.u32", {0x80000000}, {0x80000000}},
    {"cvt.u16.u64", {0x123456789}, {0x6789}},
    {"cvt.sat.u8.s32", {0xffffffff}, {0}},
    {"cvt.sat.u8.s32", {300}, {255}},
    {"cvt.sat.s8.s32", {0xffffff00}, {0x80}},
    {"cvt.sat.s8.u32", {0xffffff00}, {0x7f}},
    {"cvt.sat.s32.u64", {~0ULL}, {0x7fffffff}},
    {"cvt.sat.u64.s64", {~0ULL}, {0}},
    {"cvt.sat.s64.u64", {~0ULL}, {0x7fffffffffffffff}},
    // Floats to integers: NaN, what does not fit, and each rounding.
    {"cvt.rzi.s32.f32", {0x7fffffff}, {0}},
    {"cvt.rzi.u32.f32", {0xffc00000}, {0}},
    {"cvt.rzi.s64.f32", {0x7fffffff}, {0x8000000000000000}},
    {"cvt.rzi.u64.f32", {0x7fffffff}, {0x8000000000000000}},
    {"cvt.rzi.s32.f64", {0x7ff8000000000000}, {0x80000000}},
    {"cvt.rzi.u16.f64", {0x7ff8000000000000}, {0x8000}},
    {"cvt.rzi.s16.f16", {0x7e00}, {0}},
    {"cvt.rzi.s32.f32", {0x7f800000}, {0x7fffffff}},
    {"cvt.rzi.s32.f32", {0xff800000}, {0x80000000}},
    {"cvt.rzi.u32.f32", {0xff800000}, {0}},
    {"cvt.rzi.u32.f32", {0xbf800000}, {0}},
    {"cvt.rzi.u64.f64", {0x43f0000000000000}, {~0ULL}},
    {"cvt.rzi.s64.f64", {0xc3e0000000000000}, {0x8000000000000000}},
    {"cvt.rzi.s8.f32", {0x43800000}, {0x7f}},
    {"cvt.rni.s32.f32", {0x3f000000}, {0}}, // 0.5
    {"cvt.rni.s32.f32", {0x3fc00000}, {2}}, // 1.5
    {"cvt.rni.s32.f32", {0xc0200000}, {0xfffffffe}},
    {"cvt.rmi.s32.f32", {0x80000001}, {0xffffffff}},
    {"cvt.rmi.ftz.s32.f32", {0x80000001}, {0}},
    {"cvt.rpi.u64.f16", {0x0001}, {1}},
    {"cvt.rpi.s32.bf16", {0x3f81}, {2}},
    // Floats rounded to integral values; the sign of zero stays.
    {"cvt.rni.f32.f32", {0x40200000}, {0x40000000}},
    {"cvt.rpi.f32.f32", {0xbf000000}, {0x80000000}},
    {"cvt.rmi.f64.f64", {0xbfe0000000000000}, {0xbff0000000000000}},
    {"cvt.rzi.f16.f16", {0x3e00}, {0x3c00}},
    {"cvt.rni.f32.f32", {0x7f800000}, {0x7f800000}},
    {"cvt.rni.f32.f32", {0x7f000001}, {0x7f000001}},
    {"cvt.rpi.ftz.f32.f32", {0x00000001}, {0}},
    {"cvt.rpi.f32.f32", {0x00000001}, {0x3f800000}},
    // .sat and .ftz.
    {"cvt.sat.f32.f32", {0x40000000}, {0x3f800000}},
    {"cvt.sat.f32.f32", {0xbf800000}, {0}},
    {"cvt.sat.f32.f32", {0x7fc00000}, {0}},
    {"cvt.rn.sat.f32.s32", {5}, {0x3f800000}},
    {"cvt.rm.f64.u64", {0}, {0}},
    {"cvt.rm.f32.s32", {0}, {0}},
    {"cvt.rp.f16.u16", {0}, {0}},
    {"cvt.rp.f32.u64", {1ULL << 63}, {0x5f000000}},
    {"cvt.rn.f64.s64", {1ULL << 63}, {0xc3e0000000000000}},
    {"cvt.ftz.f32.f32", {0x807fffff}, {0x80000000}},
    {"cvt.rn.ftz.f32.f64", {0x37a0000000000000}, {0}},
    {"cvt.rn.f32.f64", {0x37a0000000000000}, {0x00010000}},
    {"cvt.ftz.f64.f32", {0x80000001}, {0x8000000000000000}},
    {"cvt.rn.ftz.bf16.f32", {0x007fffff}, {0}},
    {"cvt.rn.bf16.f32", {0x007fffff}, {0x0080}},
    // NaN becomes the one of all ones.
    {"cvt.rn.f32.f64", {0xfff0000000000001}, {0x7fffffff}},
    {"cvt.rn.f16.f32", {0xffc00000}, {0x7fff}},
    {"cvt.rn.bf16.f32", {0xffc00000}, {0x7fff}},
    {"cvt.f32.f16", {0xfe00}, {0x7fffffff}},
    {"cvt.f32.bf16", {0xffc0}, {0x7fffffff}},
    {"cvt.rna.tf32.f32", {0xffc00000}, {0x7fffffff}},
    // relu and satfinite.
    {"cvt.rn.relu.f16.f32", {0xbf800000}, {0}},
    {"cvt.rn.relu.f16.f32", {0xffc00000}, {0x7fff}},
    {"cvt.rn.relu.bf16.f32", {0x3f800000}, {0x3f80}},
    {"cvt.rn.satfinite.f16.f32", {0xff800000}, {0xfbff}},
    {"cvt.rn.relu.satfinite.bf16.f32", {0x7f800000}, {0x7f7f}},
    {"cvt.rna.tf32.f32", {0x3f801000}, {0x3f802000}},
    {"cvt.rn.tf32.f32", {0x3f801000}, {0x3f800000}},
    {"cvt.rz.tf32.f32", {0x3f801fff}, {0x3f800000}},
    {"cvt.rna.tf32.f32", {0x7f7fffff}, {0x7f800000}},
    {"cvt.rna.satfinite.tf32.f32", {0x7f7fffff}, {0x7f7fe000}},
    // Pairs: the first operand is the upper half.
    {"cvt.rn.f16x2.f32", {0x3f800000, 0xc0000000}, {0x3c00c000}},
    {"cvt.rz.bf16x2.f32", {0x3fffffff, 0xbfffffff}, {0x3fffbfff}},
    {"cvt.rn.relu.bf16x2.f32", {0xbf800000, 0x40000000}, {0x00004000}},
    {"cvt.rn.satfinite.e4m3x2.f32", {0x3f800000, 0x44000000}, {0x387e}},
    {"cvt.rn.satfinite.e5m2x2.f32", {0xff800000, 0x7fc00000}, {0xfb7f}},
    {"cvt.rn.satfinite.relu.e4m3x2.f32", {0xbf800000, 0x7fc00000}, {0x007f}},
    {"cvt.rn.satfinite.e4m3x2.f16x2", {0x3c007c00}, {0x387e}},
    {"cvt.rn.satfinite.e5m2x2.f16x2", {0x3c00fc00}, {0x3cfb}},
    {"cvt.rn.f16x2.e4m3x2", {0x38ff}, {0x3c007fff}},
    {"cvt.rn.f16x2.e5m2x2", {0x3c7c}, {0x3c007c00}},
    {"cvt.pack.sat.u16.s32", {0x12345, 0xffffffff}, {0xffff0000}},
    {"cvt.pack.sat.s16.s32", {0xffff0000, 5}, {0x80000005}},
    {"cvt.pack.sat.u8.s32.b32", {300, 5, 0xabcd1234}, {0x1234ff05}},
    {"cvt.pack.sat.s8.s32.b32", {0xffffffff, 127, 0x1234}, {0x1234ff7f}},
    {"cvt.pack.sat.s4.s32.b32", {7, 0xfffffff0, 0x123456}, {0x12345678}},
    {"cvt.pack.sat.u2.s32.b32", {3, 9, 1}, {0x1f}},
    {"cvt.rn.relu.f16x2.e5m2x2", {0xbc3c}, {0x00003c00}},
};

static void lines_of_conversions(void **state)
{
  (void)state;
  check_cases(convert_cases, COUNT(convert_cases));
}

static void signed_results_fill_wider_registers(void **state)
{
  (void)state;
  assert_true(found("cvt.s8.s32").sign_extends);
  assert_true(found("cvt.rzi.s16.f32").sign_extends);
  assert_false(found("cvt.u8.s32").sign_extends);
  assert_false(found("add.s32").sign_extends);
}

// To f32 and f64: every code, also by the packed conversions of the 8-bit formats.
static void all_codes_widen(void **state)
{
  (void)state;
  static const struct small_format *const formats[] = {&small_f16, &small_bf16};
  for (size_t f = 0; f < COUNT(formats); f++) {
    struct ptx_alu to_f32 = found(f == 0 ? "cvt.f32.f16" : "cvt.f32.bf16");
    struct ptx_alu to_f64 = found(f == 0 ? "cvt.f64.f16" : "cvt.f64.bf16");
    for (uint64_t code = 0; code < 65536; code++) {
      bool nan = small_is_nan(formats[f], code);
      bool infinite = (code & 0x7fff) == formats[f]->greatest + 1;
      double value = infinite ? (code & 0x8000 ? -INFINITY : INFINITY) : small_value(formats[f], code);
      assert_int_equal(result(&to_f32, code, 0, 0), nan ? 0x7fffffff : bits_of_float((float)value));
      assert_int_equal(result(&to_f64, code, 0, 0), nan ? 0xfff8000000000000 : bits_of_double(value));
    }
  }
}

static uint64_t half_of_eight(const struct small_format *format, uint64_t code)
{
  if (small_is_nan(format, code))
    return 0x7fff;
  if (format->has_infinity && (code & 0x7f) == format->greatest + 1)
    return (code & 0x80) << 8 | 0x7c00;
  double value = small_value(format, code);
  return value == 0 ? (code & 0x80) << 8 : small_round(&small_f16, value, 0, TO_NEAREST, false);
}

static void all_pairs_of_bytes_widen(void **state)
{
  (void)state;
  struct ptx_alu e4m3 = found("cvt.rn.f16x2.e4m3x2"), e5m2 = found("cvt.rn.f16x2.e5m2x2");
  for (uint64_t pair = 0; pair < 65536; pair++) {
    uint64_t high = pair >> 8, low = pair & 0xff;
    assert_int_equal(result(&e4m3, pair, 0, 0),
                     half_of_eight(&small_e4m3, high) << 16 | half_of_eight(&small_e4m3, low));
    assert_int_equal(result(&e5m2, pair, 0, 0),
                     half_of_eight(&small_e5m2, high) << 16 | half_of_eight(&small_e5m2, low));
  }
}

// One conversion to a small format, with the source's type; packed ones take the number as both operands.
struct narrowing {
  const struct small_format *to;
  struct ptx_alu from_f32, from_f64;
  int rounding;
  bool satfinite, packed;
};

static void check_narrowing(const struct narrowing *narrowing, double number)
{
  if (number == 0)
    return;
  float single = (float)number;
  uint64_t expected = small_round(narrowing->to, single, 0, narrowing->rounding, narrowing->satfinite);
  if (single != 0) {
    uint64_t code = result(&narrowing->from_f32, bits_of_float(single), bits_of_float(single), 0);
    assert_int_equal(code, narrowing->packed ? expected << narrowing->to->bits | expected : expected);
  }
  if (!narrowing->from_f64.run)
    return;
  expected = small_round(narrowing->to, number, 0, narrowing->rounding, narrowing->satfinite);
  assert_int_equal(result(&narrowing->from_f64, bits_of_double(number), 0, 0), expected);
}

// Numbers at, beside and between all codes.
static void check_all_codes(const struct narrowing *narrowing)
{
  uint64_t sign = 1ULL << (narrowing->to->bits - 1);
  for (uint64_t code = 0; code <= narrowing->to->greatest; code++) {
    double low = small_value(narrowing->to, code), high = small_value(narrowing->to, code + 1);
    double points[] = {low, (low + high) / 2};
    for (int i = 0; i < 2; i++) {
      float single = (float)points[i];
      double near[] = {points[i], nextafterf(single, 0), nextafterf(single, INFINITY), nextafter(points[i], 0),
                       nextafter(points[i], INFINITY)};
      for (size_t k = 0; k < COUNT(near); k++) {
        check_narrowing(narrowing, near[k]);
        check_narrowing(narrowing, -near[k]);
      }
    }
  }
  assert_int_equal(result(&narrowing->from_f32, 0x80000000, 0x80000000, 0),
                   narrowing->packed ? sign << narrowing->to->bits | sign : sign);
}

static void check_beyond(const struct narrowing *narrowing)
{
  const double beyond[] = {small_value(narrowing->to, narrowing->to->greatest + 1) * 1.5, 3e38, INFINITY, 1e-45,
                           1.5e-45};
  for (size_t i = 0; i < COUNT(beyond); i++) {
    check_narrowing(narrowing, beyond[i]);
    check_narrowing(narrowing, -beyond[i]);
  }
  if (!narrowing->from_f64.run)
    return;
  check_narrowing(narrowing, 1e300);
  check_narrowing(narrowing, -5e-324);
}

static void all_codes_of_halves_are_rounded_to(void **state)
{
  (void)state;
  static const struct small_format *const formats[] = {&small_f16, &small_bf16};
  for (int i = 0; i < 8; i++) {
    struct narrowing narrowing = {.to = formats[i / 4], .rounding = i % 4};
    char name[48];
    snprintf(name, sizeof name, "cvt.%s.%s.f32", rounding_words[narrowing.rounding], narrowing.to->name);
    narrowing.from_f32 = found(name);
    snprintf(name, sizeof name, "cvt.%s.%s.f64", rounding_words[narrowing.rounding], narrowing.to->name);
    narrowing.from_f64 = found(name);
    check_all_codes(&narrowing);
    check_beyond(&narrowing);
  }
}

static void all_codes_of_pairs_are_rounded_to(void **state)
{
  (void)state;
  static const struct {
    const char *opcode;
    const struct small_format *to;
    int rounding;
    bool satfinite;
  } pairs[] = {
      {"cvt.rn.f16x2.f32", &small_f16, TO_NEAREST, false},
      {"cvt.rz.f16x2.f32", &small_f16, TO_ZERO, false},
      {"cvt.rn.satfinite.bf16x2.f32", &small_bf16, TO_NEAREST, true},
      {"cvt.rz.bf16x2.f32", &small_bf16, TO_ZERO, false},
      {"cvt.rn.satfinite.e4m3x2.f32", &small_e4m3, TO_NEAREST, true},
      {"cvt.rn.satfinite.e5m2x2.f32", &small_e5m2, TO_NEAREST, true},
  };
  for (size_t i = 0; i < COUNT(pairs); i++) {
    struct narrowing narrowing = {.to = pairs[i].to,
                                  .from_f32 = found(pairs[i].opcode),
                                  .rounding = pairs[i].rounding,
                                  .satfinite = pairs[i].satfinite,
                                  .packed = true};
    check_all_codes(&narrowing);
    check_beyond(&narrowing);
  }
}

// Every half to both 8-bit formats.
static void all_halves_to_bytes(void **state)
{
  (void)state;
  static const struct small_format *const formats[] = {&small_e4m3, &small_e5m2};
  for (size_t f = 0; f < COUNT(formats); f++) {
    struct ptx_alu alu = found(f == 0 ? "cvt.rn.satfinite.e4m3x2.f16x2" : "cvt.rn.satfinite.e5m2x2.f16x2");
    for (uint64_t code = 0; code < 65536; code++) {
      uint64_t expected = (code & 0x8000) >> 8, other = 65535 - code;
      double value = (code & 0x7fff) == 0x7c00 ? (code & 0x8000 ? -INFINITY : INFINITY) : small_value(&small_f16, code);
      if (small_is_nan(&small_f16, code))
        expected = 0x7f;
      else if (value != 0)
        expected = small_round(formats[f], value, 0, TO_NEAREST, true);
      assert_int_equal(result(&alu, code << 16 | other, 0, 0) >> 8, expected);
      assert_int_equal(result(&alu, other << 16 | code, 0, 0) & 0xff, expected);
    }
  }
}

// ---- The host's own types, with its rounding mode set ----

enum { ROUNDS = 50000 };

static const int host_modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

static uint64_t random_double(void)
{
  uint64_t word = random_word();
  switch (word & 3) {
  case 0: return (word & 0x8000000000000000) | bits_of_double((double)float_of_bits(random_word() & 0x7f7fffff));
  case 1: return bits_of_double(ldexp((double)(int64_t)random_word(), (int)(word >> 8 & 127) - 120));
  default: return ((word >> 2 & 0x7ff) << 52 | random_word() >> 12 | random_word() << 63) & ~(1ULL << 52);
  }
}

static void doubles_to_floats(void **state)
{
  (void)state;
  for (int i = 0; i < ROUNDS; i++) {
    char name[32];
    snprintf(name, sizeof name, "cvt.%s.f32.f64", rounding_words[i % 4]);
    struct ptx_alu alu = found(name);
    uint64_t bits = random_double();
    volatile double x = double_of_bits(bits);
    if (isnan(x))
      continue;
    fesetround(host_modes[i % 4]);
    volatile float y = (float)x;
    fesetround(FE_TONEAREST);
    assert_int_equal(result(&alu, bits, 0, 0), bits_of_float(y));
  }
}

static void check_from_int(int mode, bool is_signed, uint64_t word)
{
  char name[32];
  volatile uint64_t number = word;
  if (word == 0) // a compiler's own conversion may make -0 of it when the host rounds down
    return;
  fesetround(host_modes[mode]);
  volatile float single = is_signed ? (float)(int64_t)number : (float)number;
  volatile double number_f64 = is_signed ? (double)(int64_t)number : (double)number;
  fesetround(FE_TONEAREST);
  snprintf(name, sizeof name, "cvt.%s.f32.%c64", rounding_words[mode], is_signed ? 's' : 'u');
  struct ptx_alu alu = found(name);
  assert_int_equal(result(&alu, word, 0, 0), bits_of_float(single));
  snprintf(name, sizeof name, "cvt.%s.f64.%c64", rounding_words[mode], is_signed ? 's' : 'u');
  alu = found(name);
  assert_int_equal(result(&alu, word, 0, 0), bits_of_double(number_f64));
  snprintf(name, sizeof name, "cvt.%s.f16.%c32", rounding_words[mode], is_signed ? 's' : 'u');
  alu = found(name);
  double small = is_signed ? (double)(int32_t)(word >> 32) : (double)(word >> 32);
  if (small != 0)
    assert_int_equal(result(&alu, word >> 32, 0, 0), small_round(&small_f16, small, 0, mode, false));
}

static void integers_to_floats(void **state)
{
  (void)state;
  for (int i = 0; i < ROUNDS; i++)
    check_from_int(i % 4, i & 4, random_operand(64) ^ (i & 8 ? random_word() << 32 : 0));
}

static void check_to_int(int mode, int bits, bool is_signed, uint64_t word)
{
  static const char *const words[] = {"rni", "rzi", "rmi", "rpi"};
  char name[32];
  double x = double_of_bits(word), least = is_signed ? -ldexp(1, bits - 1) : 0, most = ldexp(1, bits - is_signed);
  double (*const round[])(double) = {nearbyint, trunc, floor, ceil};
  double y = round[mode](x);
  uint64_t mask = ~0ULL >> (64 - bits), expected;
  if (y >= most)
    expected = mask >> is_signed;
  else if (y <= least)
    expected = is_signed ? (mask >> 1) + 1 : 0;
  else
    expected = (is_signed ? (uint64_t)(int64_t)y : (uint64_t)y) & mask;
  snprintf(name, sizeof name, "cvt.%s.%c%d.f64", words[mode], is_signed ? 's' : 'u', bits);
  struct ptx_alu alu = found(name);
  assert_int_equal(result(&alu, word, 0, 0), expected);
  if (x != (float)x)
    return;
  snprintf(name, sizeof name, "cvt.%s.%c%d.f32", words[mode], is_signed ? 's' : 'u', bits);
  alu = found(name);
  assert_int_equal(result(&alu, bits_of_float((float)x), 0, 0), expected);
  snprintf(name, sizeof name, "cvt.%s.f64.f64", words[mode]);
  alu = found(name);
  assert_int_equal(result(&alu, word, 0, 0), bits_of_double(y));
}

static void floats_to_integers(void **state)
{
  (void)state;
  static const int widths[] = {8, 16, 32, 64};
  for (int i = 0; i < ROUNDS; i++) {
    double halves = (double)(int64_t)(random_word() >> 40) / 4 - 1000;
    uint64_t word = i & 8 ? bits_of_double(halves) : random_double();
    if (!isnan(double_of_bits(word)))
      check_to_int(i % 4, widths[i / 16 % 4], i & 4, word);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_conversions),
      cmocka_unit_test(signed_results_fill_wider_registers),
      cmocka_unit_test(all_codes_widen),
      cmocka_unit_test(all_pairs_of_bytes_widen),
      cmocka_unit_test(all_codes_of_halves_are_rounded_to),
      cmocka_unit_test(all_codes_of_pairs_are_rounded_to),
      cmocka_unit_test(all_halves_to_bytes),
      cmocka_unit_test(doubles_to_floats),
      cmocka_unit_test(integers_to_floats),
      cmocka_unit_test(floats_to_integers),
  };
  return cmocka_run_group_tests_name("cudasim conversions", tests, NULL, NULL);
}
