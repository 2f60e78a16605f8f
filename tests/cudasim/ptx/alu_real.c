#include "alu_real.h"

#include <stddef.h>

static const struct alu_format real_formats[ALU_TYPES] = {
    [ALU_F16] = {16, 10, -14, 0, false},  [ALU_BF16] = {16, 7, -126, 0, false},  [ALU_TF32] = {32, 10, -126, 13, false},
    [ALU_F32] = {32, 23, -126, 0, false}, [ALU_F64] = {64, 52, -1022, 0, false}, [ALU_E4M3] = {8, 3, -6, 0, true},
    [ALU_E5M2] = {8, 2, -14, 0, false},
};

const struct alu_format *alu_format(enum alu_type type)
{
  return &real_formats[type];
}

int alu_order(const struct alu_format *format, uint64_t a, uint64_t b)
{
  uint64_t sign = alu_sign(format);
  if (alu_is_nan(format, a) || alu_is_nan(format, b))
    return ALU_UNORDERED;
  int64_t x = (int64_t)(a & (sign - 1)), y = (int64_t)(b & (sign - 1));
  x = a & sign ? -x : x;
  y = b & sign ? -y : y;
  return x < y ? ALU_LESS : x > y ? ALU_GREATER : ALU_EQUAL;
}

struct alu_real alu_read(const struct alu_format *format, uint64_t value)
{
  uint64_t magnitude = value & (alu_sign(format) - 1);
  uint64_t one = (uint64_t)1 << format->mantissa;
  struct alu_real real = {ALU_NUMBER, (value & alu_sign(format)) != 0, format->least - format->mantissa, magnitude};
  if (alu_is_nan(format, value))
    real.class = ALU_NO_NUMBER;
  else if (!format->finite && magnitude == alu_infinity(format))
    real.class = ALU_INFINITE;
  else if (magnitude == 0)
    real.class = ALU_ZERO;
  else if (magnitude >= one) {
    real.bits = (magnitude & (one - 1)) | one;
    real.exponent += (int)(magnitude >> format->mantissa) - 1;
  }
  return real;
}

struct alu_real alu_from_int(uint64_t value, bool is_signed)
{
  bool negative = is_signed && value >> 63;
  return (struct alu_real){value ? ALU_NUMBER : ALU_ZERO, negative, 0, negative ? 0 - value : value};
}

// Index of the highest bit that is set; there is one.
static int real_highest_bit(alu_wide bits)
{
  uint64_t high = (uint64_t)(bits >> 64);
  return high ? 127 - __builtin_clzll(high) : 63 - __builtin_clzll((uint64_t)bits);
}

// Whether a magnitude whose last bits were cut off must go up: `half` and `rest` tell of what was cut off.
static bool real_rounds_up(enum alu_round round, bool negative, bool odd, bool half, bool rest)
{
  switch (round) {
  case ALU_RN: return half && (rest || odd);
  case ALU_RNA: return half;
  case ALU_RM: return negative && (half || rest);
  case ALU_RP: return !negative && (half || rest);
  case ALU_RZ: break;
  }
  return false;
}

// The number's magnitude as a multiple of 2^quantum, rounded; it must be below 2^127.
static alu_wide real_rounded(struct alu_real real, int quantum, enum alu_round round)
{
  int cut = quantum - real.exponent;
  if (cut <= 0)
    return real.bits << -cut;
  if (cut > 127)
    return real_rounds_up(round, real.negative, false, false, true);
  alu_wide kept = real.bits >> cut, half = (alu_wide)1 << (cut - 1);
  bool up = real_rounds_up(round, real.negative, kept & 1, (real.bits & half) != 0, (real.bits & (half - 1)) != 0);
  return kept + up;
}

// The greatest number of a format or, where rounding goes that way, infinity.
static uint64_t real_overflow(const struct alu_format *format, bool negative, enum alu_round round)
{
  bool stays = round == ALU_RZ || round == (negative ? ALU_RP : ALU_RM);
  uint64_t unit = (uint64_t)1 << format->shift;
  return alu_infinity(format) - (stays ? unit : 0);
}

uint64_t alu_write(const struct alu_format *format, struct alu_real real, enum alu_round round)
{
  uint64_t sign = real.negative ? alu_sign(format) : 0;
  if (real.class == ALU_NO_NUMBER)
    return alu_nan(format);
  if (real.class == ALU_ZERO)
    return sign;
  if (real.class == ALU_INFINITE)
    return sign | alu_infinity(format);
  int exponent = real.exponent + real_highest_bit(real.bits);
  int quantum = (exponent > format->least ? exponent : format->least) - format->mantissa;
  if (exponent > 2 - format->least) // beyond every number: keeps the sum below in range
    return sign | real_overflow(format, real.negative, round);
  uint64_t scale = (uint64_t)(quantum - (format->least - format->mantissa)) << format->mantissa;
  uint64_t magnitude = (scale + (uint64_t)real_rounded(real, quantum, round)) << format->shift;
  return sign | (magnitude < alu_infinity(format) ? magnitude : real_overflow(format, real.negative, round));
}

uint64_t alu_finish(const struct alu_format *format, uint64_t value, int flags)
{
  if (flags & ALU_FTZ)
    value = alu_flush(format, value);
  if (!(flags & (ALU_SAT | ALU_RELU)))
    return value;
  if (alu_is_nan(format, value))
    return flags & ALU_SAT ? 0 : value;
  if (value & alu_sign(format))
    return 0;
  uint64_t one = alu_write(format, alu_from_int(1, false), ALU_RN);
  return (flags & ALU_SAT) && value > one ? one : value;
}

struct alu_real alu_integral(struct alu_real real, enum alu_round round)
{
  if (real.class != ALU_NUMBER || real.exponent >= 0)
    return real;
  real.bits = real_rounded(real, 0, round);
  real.exponent = 0;
  if (real.bits == 0)
    real.class = ALU_ZERO;
  return real;
}

uint64_t alu_to_int(struct alu_real real, enum alu_round round, int bits, bool is_signed)
{
  uint64_t most = alu_mask(bits) >> is_signed, least = is_signed ? most + 1 : 0;
  real = alu_integral(real, round);
  if (real.class == ALU_NO_NUMBER || real.class == ALU_ZERO)
    return 0;
  bool beyond = real.class == ALU_INFINITE || real.exponent + real_highest_bit(real.bits) > 64;
  alu_wide magnitude = beyond ? (alu_wide)1 << 65 : real.bits << real.exponent;
  if (real.negative)
    return magnitude > least ? least : (0 - (uint64_t)magnitude) & alu_mask(bits);
  return magnitude > most ? most : (uint64_t)magnitude;
}

// Brings the highest bit to a place: to the left always exactly, to the right with what is cut off in the lowest bit.
static void real_normalize(struct alu_real *real, int place)
{
  int shift = place - real_highest_bit(real->bits);
  if (shift >= 0) {
    real->bits <<= shift;
  } else {
    alu_wide lost = real->bits & (((alu_wide)1 << -shift) - 1);
    real->bits = real->bits >> -shift | (lost != 0);
  }
  real->exponent -= shift;
}

static struct alu_real real_no_number(void)
{
  return (struct alu_real){ALU_NO_NUMBER, false, 0, 0};
}

static struct alu_real real_sum_of_zeros(struct alu_real a, struct alu_real b, enum alu_round round)
{
  a.negative = a.negative == b.negative ? a.negative : round == ALU_RM;
  return a;
}

// Both numbers, a the one with the greater exponent when their highest bits stand alike: at bit 125, so that the sum
// fits and a number of up to 106 bits has room below. What of b is cut off is then too small to change a rounding.
static struct alu_real real_sum_of_numbers(struct alu_real a, struct alu_real b, enum alu_round round)
{
  int apart = a.exponent - b.exponent;
  alu_wide lost = apart < 127 ? b.bits & (((alu_wide)1 << apart) - 1) : b.bits;
  b.bits = (apart < 127 ? b.bits >> apart : 0) | (lost != 0);
  bool a_greater = a.bits >= b.bits;
  if (a.negative == b.negative)
    a.bits += b.bits;
  else
    a.bits = a_greater ? a.bits - b.bits : b.bits - a.bits;
  if (!a_greater)
    a.negative = b.negative;
  if (a.bits == 0)
    return (struct alu_real){ALU_ZERO, round == ALU_RM, 0, 0};
  return a;
}

struct alu_real alu_sum(struct alu_real a, struct alu_real b, enum alu_round round)
{
  if (a.class == ALU_NO_NUMBER || b.class == ALU_NO_NUMBER)
    return real_no_number();
  if (a.class == ALU_INFINITE)
    return b.class == ALU_INFINITE && a.negative != b.negative ? real_no_number() : a;
  if (a.class == ALU_ZERO && b.class == ALU_ZERO)
    return real_sum_of_zeros(a, b, round);
  if (b.class == ALU_INFINITE || a.class == ALU_ZERO)
    return b;
  if (b.class == ALU_ZERO)
    return a;
  real_normalize(&a, 125);
  real_normalize(&b, 125);
  return a.exponent >= b.exponent ? real_sum_of_numbers(a, b, round) : real_sum_of_numbers(b, a, round);
}

struct alu_real alu_product(struct alu_real a, struct alu_real b)
{
  bool zero = a.class == ALU_ZERO || b.class == ALU_ZERO, infinite = a.class == ALU_INFINITE || b.class == ALU_INFINITE;
  if (a.class == ALU_NO_NUMBER || b.class == ALU_NO_NUMBER || (zero && infinite))
    return real_no_number();
  enum alu_class class = zero ? ALU_ZERO : infinite ? ALU_INFINITE : ALU_NUMBER;
  return (struct alu_real){class, a.negative != b.negative, a.exponent + b.exponent, a.bits * b.bits};
}

struct alu_real alu_quotient(struct alu_real a, struct alu_real b)
{
  bool negative = a.negative != b.negative;
  if (a.class == ALU_NO_NUMBER || b.class == ALU_NO_NUMBER || (a.class == b.class && a.class != ALU_NUMBER))
    return real_no_number();
  if (a.class == ALU_ZERO || b.class == ALU_INFINITE)
    return (struct alu_real){ALU_ZERO, negative, 0, 0};
  if (a.class == ALU_INFINITE || b.class == ALU_ZERO)
    return (struct alu_real){ALU_INFINITE, negative, 0, 0};
  real_normalize(&a, 126);
  real_normalize(&b, 63);
  alu_wide quotient = a.bits / b.bits; // of at least 63 bits
  bool inexact = quotient * b.bits != a.bits;
  return (struct alu_real){ALU_NUMBER, negative, a.exponent - b.exponent - 1, quotient << 1 | inexact};
}

// The root of a number of 125 or 126 bits, bit by bit: 63 bits of it and whether there are more.
struct alu_real alu_root(struct alu_real a)
{
  if (a.class == ALU_ZERO || (a.class == ALU_INFINITE && !a.negative))
    return a;
  if (a.class == ALU_NO_NUMBER || a.negative)
    return real_no_number();
  real_normalize(&a, 124);
  if (a.exponent & 1) {
    a.bits <<= 1;
    a.exponent--;
  }
  uint64_t root = 0;
  for (uint64_t bit = (uint64_t)1 << 62; bit; bit >>= 1) {
    uint64_t more = root | bit;
    if ((alu_wide)more * more <= a.bits)
      root = more;
  }
  bool inexact = (alu_wide)root * root != a.bits;
  return (struct alu_real){ALU_NUMBER, false, a.exponent / 2 - 1, (alu_wide)root << 1 | inexact};
}
