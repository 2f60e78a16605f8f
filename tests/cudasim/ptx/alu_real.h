// alu_real.h: floating-point numbers of any of PTX's formats, exactly: read from their bits, computed with, and rounded
// once, with integers alone. So results are the same on every host, whatever its floating-point unit does.
#ifndef TUTTI_TESTS_CUDASIM_ALU_REAL_H
#define TUTTI_TESTS_CUDASIM_ALU_REAL_H

#include "alu_priv.h"

enum alu_round { ALU_RN, ALU_RZ, ALU_RM, ALU_RP, ALU_RNA }; // RNA: to nearest, ties away from zero

struct alu_format {
  uint8_t bits, mantissa;
  int16_t least; // exponent of the smallest normal number
  uint8_t shift; // zero bits below the mantissa (tf32)
  bool finite;   // no infinities; all ones is the only NaN (e4m3)
};

// A number is bits * 2^exponent; where bits were cut off, the lowest bit is one.
struct alu_real {
  enum alu_class { ALU_ZERO, ALU_NUMBER, ALU_INFINITE, ALU_NO_NUMBER } class;
  bool negative;
  int exponent;
  alu_wide bits;
};

enum { ALU_LESS = -1, ALU_EQUAL, ALU_GREATER, ALU_UNORDERED };

// The format of a floating-point type that is not packed.
const struct alu_format *alu_format(enum alu_type type);

// The sign's bit.
static inline uint64_t alu_sign(const struct alu_format *format)
{
  return (uint64_t)1 << (format->bits - 1);
}

// Infinity's bits, or where there is none NaN's.
static inline uint64_t alu_infinity(const struct alu_format *format)
{
  if (format->finite)
    return alu_sign(format) - 1;
  return alu_sign(format) - ((uint64_t)1 << (format->mantissa + format->shift));
}

// The NaN that instructions deliver: PTX defines a positive one of ones alone for 16 and 32 bits. For 64 bits it
// defines none; this is CUDA's constant CUDART_NAN.
static inline uint64_t alu_nan(const struct alu_format *format)
{
  return format->bits == 64 ? 0xfff8000000000000 : alu_sign(format) - 1;
}

static inline bool alu_is_nan(const struct alu_format *format, uint64_t value)
{
  uint64_t magnitude = value & (alu_sign(format) - 1);
  return format->finite ? magnitude == alu_infinity(format) : magnitude > alu_infinity(format);
}

// A subnormal number becomes the zero of its sign; other values are left.
static inline uint64_t alu_flush(const struct alu_format *format, uint64_t value)
{
  uint64_t normal = (uint64_t)1 << (format->mantissa + format->shift);
  return (value & (alu_sign(format) - 1)) < normal ? value & alu_sign(format) : value;
}

// Compares two values; +0 and -0 are equal.
int alu_order(const struct alu_format *format, uint64_t a, uint64_t b);

// The number of these bits. Not of tf32, which no instruction here reads.
struct alu_real alu_read(const struct alu_format *format, uint64_t value);

// The number of an integer.
struct alu_real alu_from_int(uint64_t value, bool is_signed);

// The bits of a number, rounded once. NaN becomes alu_nan.
uint64_t alu_write(const struct alu_format *format, struct alu_real real, enum alu_round round);

// What the flags .ftz, .sat (NaN becomes 0) and .relu make of a result.
uint64_t alu_finish(const struct alu_format *format, uint64_t value, int flags);

// An integer of the number; what does not fit becomes the nearest that does, NaN becomes 0.
uint64_t alu_to_int(struct alu_real real, enum alu_round round, int bits, bool is_signed);

// The number rounded to an integral value.
struct alu_real alu_integral(struct alu_real real, enum alu_round round);

// Sums, products, quotients, roots; exact, but for bits that matter to no rounding. An exact sum of zero from numbers
// of different signs is -0 when rounding is ALU_RM.
struct alu_real alu_sum(struct alu_real a, struct alu_real b, enum alu_round round);
struct alu_real alu_product(struct alu_real a, struct alu_real b);
struct alu_real alu_quotient(struct alu_real a, struct alu_real b);
struct alu_real alu_root(struct alu_real a);

#endif
