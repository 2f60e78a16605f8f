// alu_test.h: what the tests of the arithmetic share: tables of instructions with operands and results, random numbers,
// and an independent, slow rounding: it decodes with ldexp and encodes by searching all values of a format.
#ifndef TUTTI_TESTS_CUDASIM_ALU_TEST_H
#define TUTTI_TESTS_CUDASIM_ALU_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "alu.h"

#define ALU_TEST __attribute__((unused)) static

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct alu_case {
  const char *opcode;
  uint64_t in[PTX_ALU_INS], out[PTX_ALU_OUTS];
};

ALU_TEST struct ptx_alu found(const char *opcode)
{
  struct ptx_alu alu;
  char why[PTX_TEXT];
  if (!ptx_alu_find(opcode, &alu, why))
    fail_msg("%s was not found: %s", opcode, why);
  return alu;
}

// The first result.
ALU_TEST uint64_t result(const struct ptx_alu *alu, uint64_t a, uint64_t b, uint64_t c)
{
  uint64_t in[PTX_ALU_INS] = {a, b, c}, out[PTX_ALU_OUTS] = {0};
  alu->run(alu, in, out);
  return out[0];
}

// Runs every line; of an instruction with the carry flag, that is the operand behind the others.
ALU_TEST void check_cases(const struct alu_case *cases, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    const struct alu_case *line = &cases[i];
    struct ptx_alu alu = found(line->opcode);
    uint64_t out[PTX_ALU_OUTS] = {0};
    alu.run(&alu, line->in, out);
    for (int k = 0; k < alu.outs + alu.writes_carry; k++) {
      if (out[k] != line->out[k])
        fail_msg("%s %llx, %llx, %llx: result %d is %llx, should be %llx", line->opcode,
                 (unsigned long long)line->in[0], (unsigned long long)line->in[1], (unsigned long long)line->in[2], k,
                 (unsigned long long)out[k], (unsigned long long)line->out[k]);
    }
  }
}

static uint64_t test_seed = 88172645463325252ULL;

ALU_TEST uint64_t random_word(void)
{
  test_seed ^= test_seed << 13;
  test_seed ^= test_seed >> 7;
  test_seed ^= test_seed << 17;
  return test_seed * 0x2545F4914F6CDD1DULL;
}

// A number of up to 64 bits that is often near a power of two, zero or the type's ends.
ALU_TEST uint64_t random_operand(int bits)
{
  uint64_t most = ~(uint64_t)0 >> (64 - bits), word = random_word();
  switch (word >> 61) {
  case 0: return word & 3 & most;
  case 1: return (most - (word & 3)) & most;
  case 2: return ((most >> 1) + (word & 3) - 1) & most;
  case 3: return ((uint64_t)1 << (word % (unsigned)bits)) & most;
  case 4: return word >> (word % 64) & most;
  default: return random_word() & most;
  }
}

// ---- An independent rounding ----

enum { TO_NEAREST, TO_ZERO, DOWN, UP, TIES_AWAY, ROUNDINGS };

static const char *const rounding_words[ROUNDINGS] = {"rn", "rz", "rm", "rp", "rna"};

// A format of at most 32 bits; greatest: the code of its greatest finite number.
struct small_format {
  const char *name;
  int bits, mantissa, bias;
  uint64_t greatest;
  bool has_infinity;
};

static const struct small_format small_f16 = {"f16", 16, 10, 15, 0x7bff, true};
static const struct small_format small_bf16 = {"bf16", 16, 7, 127, 0x7f7f, true};
static const struct small_format small_e4m3 = {"e4m3", 8, 3, 7, 0x7e, false};
static const struct small_format small_e5m2 = {"e5m2", 8, 2, 15, 0x7b, true};
static const struct small_format small_f32 = {"f32", 32, 23, 127, 0x7f7fffff, true};

// The number of a code that is none of NaN's. One code above the greatest it is what the next step would be.
ALU_TEST double small_value(const struct small_format *format, uint64_t code)
{
  uint64_t sign = (uint64_t)1 << (format->bits - 1), magnitude = code & (sign - 1);
  uint64_t exponent = magnitude >> format->mantissa, rest = magnitude & (((uint64_t)1 << format->mantissa) - 1);
  double value = exponent == 0 ? ldexp((double)rest, 1 - format->bias - format->mantissa)
                               : ldexp((double)(rest | (uint64_t)1 << format->mantissa),
                                       (int)exponent - format->bias - format->mantissa);
  return code & sign ? -value : value;
}

ALU_TEST bool small_is_nan(const struct small_format *format, uint64_t code)
{
  uint64_t magnitude = code & (((uint64_t)1 << (format->bits - 1)) - 1);
  return magnitude > format->greatest + format->has_infinity;
}

// Compares the exact number high + low, where high is the double nearest to it, with a double.
ALU_TEST int compare_exact(double high, double low, double with)
{
  if (high != with)
    return high < with ? -1 : 1;
  return low < 0 ? -1 : low > 0;
}

// The code of the number high + low, which is not zero; a finite one where satfinite is set.
ALU_TEST uint64_t small_round(const struct small_format *format, double high, double low, int rounding, bool satfinite)
{
  bool negative = high < 0;
  uint64_t below = 0, above = format->greatest + 1; // below <= number < above
  high = negative ? -high : high;
  low = negative ? -low : low;
  if (isinf(high) || compare_exact(high, low, small_value(format, above)) >= 0)
    below = above;
  while (above - below > 1) {
    uint64_t middle = below + (above - below) / 2;
    *(compare_exact(high, low, small_value(format, middle)) >= 0 ? &below : &above) = middle;
  }
  if (below != above && compare_exact(high, low, small_value(format, below)) != 0) {
    int half = compare_exact(high, low, (small_value(format, below) + small_value(format, above)) / 2);
    bool up[] = {half > 0 || (half == 0 && (below & 1)), false, negative, !negative, half >= 0};
    below += up[rounding];
  }
  bool inward = rounding == TO_ZERO || rounding == (negative ? UP : DOWN);
  if (below > format->greatest && (satfinite || (inward && !isinf(high))))
    below = format->greatest;
  return below | (uint64_t)negative << (format->bits - 1);
}

#endif
