// alu_float_test.c: arithmetic of floats. f32 and f64 against the host with its rounding mode set; f16 and bf16, whose
// sums and products two doubles hold exactly, against the slow rounding of alu_test.h.
#include <fenv.h>

#include "alu_test.h"

#define NAN32 0x7fffffff
#define NAN64 0xfff8000000000000

static const struct alu_case float_cases[] = {
    // Zeros, infinities, NaN.
    {"add.f32", {0x3f800000, 0xbf800000}, {0}},
    {"add.rm.f32", {0x3f800000, 0xbf800000}, {0x80000000}},
    {"add.rm.f32", {0, 0x80000000}, {0x80000000}},
    {"add.rp.f32", {0, 0x80000000}, {0}},
    {"add.rz.f32", {0x80000000, 0x80000000}, {0x80000000}},
    {"sub.rm.f64", {5, 5}, {0x8000000000000000}},
    {"add.f32", {0x7f800000, 0xff800000}, {NAN32}},
    {"add.rz.f32", {0x7f800000, 0xff800000}, {NAN32}},
    {"add.f32", {0xffc12345, 0}, {NAN32}},
    {"mul.f32", {0, 0x7f800000}, {NAN32}},
    {"mul.rp.f32", {0x80000000, 0x3f800000}, {0x80000000}},
    {"add.f64", {0x7ff0000000000000, 0xfff0000000000000}, {NAN64}},
    {"mul.rz.f64", {0x7ff8000000000001, 0}, {NAN64}},
    {"add.f16", {0x7c00, 0xfc00}, {0x7fff}},
    {"add.bf16", {0x7f80, 0xff80}, {0x7fff}},
    {"fma.rn.f32", {0, 0x7f800000, 0}, {NAN32}},
    {"fma.rn.f32", {0x7f800000, 0x3f800000, 0xff800000}, {NAN32}},
    {"div.rn.f32", {0, 0}, {NAN32}},
    {"div.rn.f32", {0xbf800000, 0}, {0xff800000}},
    {"div.rz.f64", {0, 0x8000000000000001}, {0x8000000000000000}},
    {"rcp.rn.f32", {0x80000000}, {0xff800000}},
    {"sqrt.rn.f32", {0x80000000}, {0x80000000}},
    {"sqrt.rn.f32", {0xbf800000}, {NAN32}},
    // Overflow goes the way of the rounding.
    {"add.rz.f32", {0x7f7fffff, 0x7f7fffff}, {0x7f7fffff}},
    {"add.rm.f32", {0xff7fffff, 0xff7fffff}, {0xff800000}},
    {"add.rp.f32", {0xff7fffff, 0xff7fffff}, {0xff7fffff}},
    {"mul.rp.f64", {0x7fefffffffffffff, 0x4000000000000000}, {0x7ff0000000000000}},
    // One rounding: (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24; a product rounded by itself would leave zero.
    {"fma.rn.f32", {0x3f800800, 0x3f800800, 0xbf801000}, {0x33800000}},
    {"fma.rp.f32", {0x0d800000, 0x3f800000, 0x3f800000}, {0x3f800001}},
    {"fma.rn.f16", {0x3c01, 0x3c01, 0xbc02}, {0x0010}},
    // .ftz, .sat, .relu.
    {"add.ftz.f32", {0x007fffff, 0x80000000}, {0}},
    {"add.ftz.f32", {0x807fffff, 0x80000000}, {0x80000000}},
    {"mul.ftz.f32", {0x00800000, 0xbf000000}, {0x80000000}},
    {"mul.f32", {0x00800000, 0xbf000000}, {0x80400000}},
    {"mul.ftz.f16", {0x0400, 0x3800}, {0}},
    {"add.sat.f32", {0x3f800000, 0x3f800000}, {0x3f800000}},
    {"add.sat.f32", {0xbf800000, 0}, {0}},
    {"add.sat.f32", {0x7fc00000, 0}, {0}},
    {"mul.sat.f16", {0x3c00, 0x3800}, {0x3800}},
    {"fma.rn.sat.f16", {0x4000, 0x4000, 0}, {0x3c00}},
    {"fma.rn.relu.f16", {0x4000, 0xc000, 0}, {0}},
    {"fma.rn.relu.bf16", {0x4000, 0x4000, 0}, {0x4080}},
    {"fma.rn.relu.f16x2", {0x40004000, 0x4000c000, 0}, {0x44000000}},
    // Lanes do not touch each other.
    {"add.f16x2", {0x3c007bff, 0x3c007bff}, {0x40007c00}},
    {"sub.bf16x2", {0x3f803f80, 0x3f800000}, {0x00003f80}},
    {"mul.f16x2", {0x7c004000, 0x00004000}, {0x7fff4400}},
    {"fma.rn.bf16x2", {0x40403f80, 0x40404000, 0x3f803f80}, {0x41204040}},
    {"add.rz.f32x2", {0x7f7fffff3f800000, 0x7f7fffff3f800000}, {0x7f7fffff40000000}},
    // Signs.
    {"abs.f32", {0x80000001}, {1}},
    {"abs.ftz.f32", {0x80000001}, {0}},
    {"neg.f64", {0}, {0x8000000000000000}},
    {"neg.f16x2", {0x3c00bc00}, {0xbc003c00}},
    {"abs.bf16x2", {0xbf80ff80}, {0x3f807f80}},
    {"copysign.f32", {0x80000000, 0x3f800000}, {0xbf800000}},
    {"copysign.f64", {0, 0xbff0000000000000}, {0x3ff0000000000000}},
    // Minimum and maximum: -0 is less than +0, a number beats NaN but for .NaN.
    {"min.f32", {0, 0x80000000}, {0x80000000}},
    {"max.f32", {0x80000000, 0}, {0}},
    {"max.f64", {0, 0x8000000000000000}, {0}},
    {"min.f32", {0x7fc00000, 0x40000000}, {0x40000000}},
    {"max.f32", {0x40000000, 0xffc00000}, {0x40000000}},
    {"min.f32", {0x7fc00000, 0xffc00001}, {NAN32}},
    {"min.NaN.f32", {0x40000000, 0xffc00000}, {NAN32}},
    {"max.NaN.f16", {0x7e00, 0x3c00}, {0x7fff}},
    {"min.f64", {0x7ff8000000000001, 0x7ff8000000000002}, {NAN64}},
    {"min.f16", {0x3c00, 0x4000}, {0x3c00}},
    {"max.bf16x2", {0x3f80c000, 0x40003f80}, {0x40003f80}},
    {"min.ftz.f32", {0x00000001, 0x3f800000}, {0}},
    {"min.f32", {0x00000001, 0x3f800000}, {1}},
    {"min.xorsign.abs.f32", {0xbf800000, 0x40000000}, {0xbf800000}},
    {"max.xorsign.abs.f32", {0xbf800000, 0xc0000000}, {0x40000000}},
    {"max.NaN.xorsign.abs.f16x2", {0xbc007e00, 0x40003c00}, {0xc0007fff}},
    // Approximations where the result is exact, and their special cases.
    {"div.full.f32", {0x40c00000, 0x40000000}, {0x40400000}},
    {"div.approx.f32", {0x3f800000, 0x7f000000}, {0}},
    {"div.approx.f32", {0xbf800000, 0x7f000000}, {0x80000000}},
    {"div.approx.f32", {0x7f800000, 0x7f000000}, {NAN32}},
    {"div.full.f32", {0x3f800000, 0x7f000000}, {0x00400000}},
    {"rcp.approx.f32", {0x40000000}, {0x3f000000}},
    {"rcp.approx.ftz.f64", {0x40000000ffffffff}, {0x3fe0000000000000}},
    {"sqrt.approx.f32", {0x40800000}, {0x40000000}},
    {"rsqrt.approx.f32", {0x40800000}, {0x3f000000}},
    {"rsqrt.approx.f32", {0x80000000}, {0xff800000}},
    {"rsqrt.approx.f64", {0x4010000000000000}, {0x3fe0000000000000}},
    {"ex2.approx.f32", {0xff800000}, {0}},
    {"ex2.approx.f32", {0x40400000}, {0x41000000}},
    {"ex2.approx.f16x2", {0x42003c00}, {0x48004000}},
    {"ex2.approx.ftz.bf16", {0x4040}, {0x4100}},
    {"lg2.approx.f32", {0x41000000}, {0x40400000}},
    {"lg2.approx.f32", {0x80000000}, {0xff800000}},
    {"lg2.approx.f32", {0xbf800000}, {NAN32}},
    {"sin.approx.f32", {0x80000000}, {0x80000000}},
    {"sin.approx.f32", {0x7f800000}, {NAN32}},
    {"cos.approx.f32", {0}, {0x3f800000}},
    {"tanh.approx.f32", {0x7f800000}, {0x3f800000}},
    {"tanh.approx.bf16x2", {0xff800000}, {0xbf800000}},
};

static void lines_of_floats(void **state)
{
  (void)state;
  check_cases(float_cases, COUNT(float_cases));
}

// ---- f32 and f64 against the host ----

enum { ROUNDS = 30000 };

static const int host_modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
static const char *const binary_roots[] = {"add", "sub", "mul", "div", "fma", "sqrt", "rcp"};

// Rounding modes are those of the host's instructions only where the compiler computes nothing ahead: hence volatile.
static float host_f32(int which, int mode, volatile float a, volatile float b, volatile float c)
{
  volatile float one = 1, y;
  fesetround(host_modes[mode]);
  switch (which) {
  case 0: y = a + b; break;
  case 1: y = a - b; break;
  case 2: y = a * b; break;
  case 3: y = a / b; break;
  case 4: y = fmaf(a, b, c); break;
  case 5: y = sqrtf(a); break;
  default: y = one / a; break;
  }
  fesetround(FE_TONEAREST);
  return y;
}

static double host_f64(int which, int mode, volatile double a, volatile double b, volatile double c)
{
  volatile double one = 1, y;
  fesetround(host_modes[mode]);
  switch (which) {
  case 0: y = a + b; break;
  case 1: y = a - b; break;
  case 2: y = a * b; break;
  case 3: y = a / b; break;
  case 4: y = fma(a, b, c); break;
  case 5: y = sqrt(a); break;
  default: y = one / a; break;
  }
  fesetround(FE_TONEAREST);
  return y;
}

// Bits of a number of any class; near `exponent` often, so that sums cancel and carry.
static uint64_t random_float(int bits, int mantissa, uint64_t exponent)
{
  uint64_t sign = 1ULL << (bits - 1), word = random_word();
  uint64_t rest = random_operand(mantissa), top = (sign >> mantissa) - 1;
  switch (word & 7) {
  case 0: return (word & sign) | (random_operand(bits) & (sign - 1));
  case 1: return (word & sign) | rest;
  case 2: return (word & sign) | top << mantissa | (word & 64 ? 0 : rest);
  default: return (word & sign) | ((exponent + (word >> 8) % (unsigned)(mantissa + 3)) & top) << mantissa | rest;
  }
}

static void check_f32(int which, int mode)
{
  uint32_t word[3];
  float x[3];
  uint64_t exponent = random_word() & 0xff;
  for (int i = 0; i < 3; i++)
    word[i] = (uint32_t)random_float(32, 23, i == 2 && which == 4 ? 2 * exponent - 127 : exponent);
  memcpy(x, word, sizeof x);
  char name[32];
  snprintf(name, sizeof name, "%s.%s.f32", binary_roots[which], rounding_words[mode]);
  struct ptx_alu alu = found(name);
  float y = host_f32(which, mode, x[0], x[1], x[2]);
  uint32_t expected;
  memcpy(&expected, &y, sizeof y);
  expected = isnan(y) ? NAN32 : expected;
  uint64_t got = result(&alu, word[0], word[1], word[2]);
  if (got != expected)
    fail_msg("%s %08x %08x %08x: %08llx, should be %08x", name, word[0], word[1], word[2], (unsigned long long)got,
             expected);
}

static void check_f64(int which, int mode)
{
  uint64_t word[3], expected, exponent = random_word() & 0x7ff;
  double x[3];
  for (int i = 0; i < 3; i++)
    word[i] = random_float(64, 52, i == 2 && which == 4 ? 2 * exponent - 1023 : exponent);
  memcpy(x, word, sizeof x);
  char name[32];
  snprintf(name, sizeof name, "%s.%s.f64", binary_roots[which], rounding_words[mode]);
  struct ptx_alu alu = found(name);
  double y = host_f64(which, mode, x[0], x[1], x[2]);
  memcpy(&expected, &y, sizeof y);
  expected = isnan(y) ? NAN64 : expected;
  uint64_t got = result(&alu, word[0], word[1], word[2]);
  if (got != expected)
    fail_msg("%s %016llx %016llx %016llx: %016llx, should be %016llx", name, (unsigned long long)word[0],
             (unsigned long long)word[1], (unsigned long long)word[2], (unsigned long long)got,
             (unsigned long long)expected);
}

static void singles_and_doubles_round_as_the_host(void **state)
{
  (void)state;
  for (int which = 0; which < (int)COUNT(binary_roots); which++) {
    for (int i = 0; i < ROUNDS; i++) {
      check_f32(which, i % 4);
      check_f64(which, i % 4);
    }
  }
}

// The host's instructions, used where there is neither a flag nor another rounding, and the integers' way give the
// same.
static void both_ways_of_rounding_to_nearest_agree(void **state)
{
  (void)state;
  static const char *const roots[] = {"add", "sub", "mul"};
  for (size_t which = 0; which < COUNT(roots); which++) {
    char name[32];
    snprintf(name, sizeof name, "%s.f32", roots[which]);
    struct ptx_alu host = found(name);
    snprintf(name, sizeof name, "%s.f32x2", roots[which]);
    struct ptx_alu integers = found(name);
    assert_ptr_not_equal(host.run, integers.run);
    for (int i = 0; i < ROUNDS; i++) {
      uint64_t exponent = random_word() & 0xff, a = random_float(32, 23, exponent), b = random_float(32, 23, exponent);
      uint64_t y = result(&host, a, b, 0);
      assert_int_equal(result(&integers, a << 32 | a, b << 32 | b, 0), y << 32 | y);
    }
  }
}

// ---- f16 and bf16 ----

// The sum of two doubles as its nearest double and the exact rest.
static double exact_sum(double a, double b, double *rest)
{
  volatile double sum = a + b, other = sum - a;
  volatile double from_a = a - (sum - other), from_b = b - other;
  *rest = from_a + from_b;
  return sum;
}

static void check_half(const struct small_format *format, const char *root, const uint64_t word[3])
{
  char name[32];
  snprintf(name, sizeof name, "%s.%s", root, format->name);
  struct ptx_alu alu = found(name);
  double x[3], rest = 0, sum;
  for (int i = 0; i < 3; i++)
    x[i] = small_value(format, word[i]);
  if (alu.ins == 3)
    sum = exact_sum(x[0] * x[1], x[2], &rest);
  else if (root[0] == 'm')
    sum = x[0] * x[1];
  else
    sum = exact_sum(x[0], root[0] == 's' ? -x[1] : x[1], &rest);
  uint64_t expected = signbit(sum) ? 0x8000 : 0;
  if (sum != 0)
    expected = small_round(format, sum, rest, TO_NEAREST, false);
  uint64_t got = result(&alu, word[0], word[1], word[2]);
  if (got != expected)
    fail_msg("%s %04x %04x %04x: %04x, should be %04x", name, (unsigned)word[0], (unsigned)word[1], (unsigned)word[2],
             (unsigned)got, (unsigned)expected);
}

static void halves_round_once(void **state)
{
  (void)state;
  static const struct small_format *const formats[] = {&small_f16, &small_bf16};
  static const char *const roots[] = {"add", "sub", "mul", "fma.rn"};
  for (int i = 0; i < 8 * ROUNDS; i++) {
    const struct small_format *format = formats[i % 2];
    uint64_t exponent = random_word() & 0xff, word[3];
    for (int k = 0; k < 3; k++) {
      uint64_t shifted = k == 2 && i / 2 % 4 == 3 ? 2 * exponent - (uint64_t)format->bias : exponent;
      word[k] = random_float(16, format->mantissa, shifted);
      if ((word[k] & 0x7fff) > format->greatest)
        word[k] &= 0x83ff;
    }
    check_half(format, roots[i / 2 % 4], word);
  }
}

// All sums of a half with some others.
static void sums_with_every_half(void **state)
{
  (void)state;
  static const uint64_t others[] = {0x0001, 0x8400, 0x3c00, 0x7bff, 0x1555};
  for (size_t i = 0; i < COUNT(others); i++) {
    for (uint64_t code = 0; code < 65536; code++) {
      uint64_t word[3] = {code, others[i], 0};
      if ((code & 0x7fff) < 0x7c00)
        check_half(&small_f16, "add", word);
      if ((code & 0x7fff) < 0x7f80)
        check_half(&small_bf16, "mul", word);
    }
  }
}

// ---- Approximations: within the bounds that PTX states ----

static void check_approximation(const char *opcode, double (*exact)(double), double least, double most)
{
  struct ptx_alu alu = found(opcode);
  for (int i = 0; i < 2000; i++) {
    float x = (float)(least + (most - least) * (double)(random_word() >> 11) / 9007199254740992.0), y;
    uint32_t word;
    memcpy(&word, &x, sizeof x);
    word = (uint32_t)result(&alu, word, 0, 0);
    memcpy(&y, &word, sizeof y);
    assert_true(fabs(y - exact(x)) <= ldexp(1, -22) * (1 + fabs(exact(x))));
  }
}

static double exact_rsqrt(double x)
{
  return 1 / sqrt(x);
}

static double exact_reciprocal(double x)
{
  return 1 / x;
}

static void approximations_are_near(void **state)
{
  (void)state;
  check_approximation("ex2.approx.f32", exp2, -20, 20);
  check_approximation("lg2.approx.ftz.f32", log2, 0.001, 1000);
  check_approximation("sin.approx.f32", sin, -3, 3);
  check_approximation("cos.approx.ftz.f32", cos, -3, 3);
  check_approximation("tanh.approx.f32", tanh, -3, 3);
  check_approximation("sqrt.approx.f32", sqrt, 0.001, 1000);
  check_approximation("rsqrt.approx.f32", exact_rsqrt, 0.001, 1000);
  check_approximation("rcp.approx.ftz.f32", exact_reciprocal, 0.001, 1000);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_floats),
      cmocka_unit_test(singles_and_doubles_round_as_the_host),
      cmocka_unit_test(both_ways_of_rounding_to_nearest_agree),
      cmocka_unit_test(halves_round_once),
      cmocka_unit_test(sums_with_every_half),
      cmocka_unit_test(approximations_are_near),
  };
  return cmocka_run_group_tests_name("cudasim floats", tests, NULL, NULL);
}
