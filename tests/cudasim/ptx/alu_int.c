// Arithmetic of integers. Values of up to 64 bits are computed modulo 2^64, or 2^128 where the upper half of a product
// is asked for, and cut to the type's bits.
#include "alu_quick.h"

#include <string.h>

enum { ADD, SUB, MUL, MAD, DIV, REM, ABS, NEG, MIN, MAX, SAD, DP4A, DP2A };

static uint64_t int_extended(const struct ptx_alu *alu, uint64_t value)
{
  return alu_extend(value, alu->detail[ALU_BITS], alu->detail[ALU_SIGNED]);
}

static bool int_less(const struct ptx_alu *alu, uint64_t a, uint64_t b)
{
  a = int_extended(alu, a);
  b = int_extended(alu, b);
  return alu->detail[ALU_SIGNED] ? (int64_t)a < (int64_t)b : a < b;
}

// A sum of signed 32-bit values, exact in 64 bits, clamped to 32.
static uint64_t int_clamp32(int64_t sum)
{
  return (uint32_t)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
}

ALU_RUN(add)
ALU_RUN(sub)
ALU_RUN(mul)

static void int_run_add_sat(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  int64_t a = (int32_t)in[0], b = (int32_t)in[1];
  out[0] = int_clamp32(alu->detail[ALU_OP] == ADD ? a + b : a - b);
}

static void int_run_mad(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  int bits = alu->detail[ALU_BITS] << ((alu->detail[ALU_FLAGS] & ALU_WIDE) != 0);
  out[0] = (alu_mul(alu, in[0], in[1], 0) + in[2]) & alu_mask(bits);
}

static void int_run_mad_sat(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  out[0] = int_clamp32((int64_t)(int32_t)alu_mul(alu, in[0], in[1], 0) + (int32_t)in[2]);
}

// Factors of 24 bits; .hi selects bits 16 to 47 of the product.
static uint64_t int_product24(const struct ptx_alu *alu, uint64_t a, uint64_t b)
{
  bool is_signed = alu->detail[ALU_SIGNED];
  uint64_t whole = alu_extend(a & 0xffffff, 24, is_signed) * alu_extend(b & 0xffffff, 24, is_signed);
  return (uint32_t)(alu->detail[ALU_FLAGS] & ALU_HI ? whole >> 16 : whole);
}

static void int_run_mul24(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  out[0] = int_product24(alu, in[0], in[1]);
}

static void int_run_mad24(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  uint64_t mul = int_product24(alu, in[0], in[1]);
  if (alu->detail[ALU_FLAGS] & ALU_SAT)
    out[0] = int_clamp32((int64_t)(int32_t)mul + (int32_t)in[2]);
  else
    out[0] = (uint32_t)(mul + in[2]);
}

// Division by zero is left open by PTX: here the quotient is all ones and the remainder the dividend, as GPUs have it.
static void int_run_div(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  uint64_t a = int_extended(alu, in[0]), b = int_extended(alu, in[1]);
  bool negative_a = alu->detail[ALU_SIGNED] && (int64_t)a < 0, negative_b = alu->detail[ALU_SIGNED] && (int64_t)b < 0;
  uint64_t dividend = negative_a ? 0 - a : a, divisor = negative_b ? 0 - b : b;
  uint64_t quotient = ~(uint64_t)0, rest = a;
  if (divisor != 0) {
    quotient = dividend / divisor;
    quotient = negative_a != negative_b ? 0 - quotient : quotient;
    rest = a - quotient * b;
  }
  out[0] = (alu->detail[ALU_OP] == DIV ? quotient : rest) & alu_mask(alu->detail[ALU_BITS]);
}

static void int_run_negate(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  bool negate = alu->detail[ALU_OP] == NEG || in[0] >> (alu->detail[ALU_BITS] - 1);
  out[0] = (negate ? 0 - in[0] : in[0]) & alu_mask(alu->detail[ALU_BITS]);
}

static uint64_t int_chosen(const struct ptx_alu *alu, uint64_t a, uint64_t b)
{
  uint64_t best = int_less(alu, a, b) == (alu->detail[ALU_OP] == MIN) ? a : b;
  if (alu->detail[ALU_FLAGS] & ALU_RELU)
    best = int_less(alu, best, 0) ? 0 : best;
  return best;
}

static void int_run_minmax(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  out[0] = int_chosen(alu, in[0], in[1]);
}

static void int_run_sad(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  uint64_t distance = int_less(alu, in[0], in[1]) ? in[1] - in[0] : in[0] - in[1];
  out[0] = (in[2] + distance) & alu_mask(alu->detail[ALU_BITS]);
}

// Each half by itself.
static void int_run_halves(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  out[0] = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    uint64_t a = in[0] >> shift & 0xffff, b = in[1] >> shift & 0xffff;
    uint64_t lane = alu->detail[ALU_OP] == ADD ? a + b : int_chosen(alu, a, b);
    out[0] |= (lane & 0xffff) << shift;
  }
}

// Adds or subtracts with the carry flag, which of a subtraction is the borrow.
static void int_run_carry(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  bool multiplies = alu->detail[ALU_OP] == MAD;
  uint64_t a = multiplies ? alu_mul(alu, in[0], in[1], 0) : in[0], b = in[alu->ins - 1];
  uint64_t carry = alu->reads_carry ? in[alu->ins] : 0;
  int bits = alu->detail[ALU_BITS];
  alu_wide sum = alu->detail[ALU_OP] == SUB ? (alu_wide)a - b - carry : (alu_wide)a + b + carry;
  out[0] = (uint64_t)sum & alu_mask(bits);
  out[1] = (uint64_t)(sum >> bits) & 1;
}

static uint64_t int_part(uint64_t word, int bits, int index, bool is_signed)
{
  return alu_extend(word >> (bits * index) & alu_mask(bits), bits, is_signed);
}

// The dot product of four bytes with four, or of two halves with two bytes, and a sum.
static void int_run_dot(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  bool signed_a = alu->detail[ALU_SIGNED], signed_b = alu->detail[ALU_FROM];
  bool four = alu->detail[ALU_OP] == DP4A;
  int first = alu->detail[ALU_FLAGS] & ALU_HI ? 2 : 0;
  uint64_t sum = in[2];
  for (int i = 0; i < (four ? 4 : 2); i++)
    sum += int_part(in[0], four ? 8 : 16, i, signed_a) * int_part(in[1], 8, first + i, signed_b);
  out[0] = (uint32_t)sum;
}

// Takes the last word, a type of the set, and makes all operands of that type.
static bool int_take_type(struct alu_opcode *op, uint32_t set, int ins, enum alu_type *type)
{
  if (!alu_take_type(op, set, type))
    return false;
  alu_set_type(op->alu, *type);
  alu_shape(op->alu, 1, ins, *type);
  return true;
}

// add.cc and the like, behind whose root and halves the modifier cc may stand; the rest of the opcode is a type.
static bool int_parse_carry(struct alu_opcode *op, int which)
{
  enum alu_type type;
  op->alu->writes_carry = alu_take(op, "cc");
  op->alu->detail[ALU_OP] = which;
  op->alu->run = int_run_carry;
  return int_take_type(op, ALU_X32_SET | ALU_X64_SET, which == MAD ? 3 : 2, &type);
}

static bool int_parse_addc(struct alu_opcode *op, int which)
{
  op->alu->reads_carry = true;
  return int_parse_carry(op, which);
}

static bool int_parse_add(struct alu_opcode *op, int which)
{
  struct ptx_alu *alu = op->alu;
  enum alu_type type;
  if (strncmp(op->rest, ".cc.", 4) == 0)
    return int_parse_carry(op, which);
  alu_take_flag(op, "sat", ALU_SAT);
  bool sat = alu->detail[ALU_FLAGS] & ALU_SAT;
  alu->detail[ALU_OP] = which;
  if (!int_take_type(op, sat ? ALU_SET(ALU_S32) : which == ADD ? ALU_INT_SET | ALU_X16X2_SET : ALU_INT_SET, 2, &type))
    return false;
  if (alu->detail[ALU_LANES] == 2)
    alu->run = int_run_halves;
  else
    alu->run = sat ? int_run_add_sat : which == ADD ? alu_run_add : alu_run_sub;
  return true;
}

// .lo, .hi or .wide, one of which must be there.
static bool int_take_part(struct alu_opcode *op, bool may_be_wide)
{
  static const char *const words[] = {"lo", "hi", "wide", NULL};
  static const int flags[] = {0, ALU_HI, ALU_WIDE};
  int which = alu_take_one(op, words);
  if (which < 0 || (which == 2 && !may_be_wide))
    return alu_refuse(op, may_be_wide ? "needs .lo, .hi or .wide" : "needs .lo or .hi");
  op->alu->detail[ALU_FLAGS] |= flags[which];
  return true;
}

static void int_shape_wide(struct ptx_alu *alu)
{
  alu->out_bytes[0] *= 2;
  if (alu->ins == 3)
    alu->in_bytes[2] *= 2;
}

static bool int_parse_mul(struct alu_opcode *op, int which)
{
  struct ptx_alu *alu = op->alu;
  enum alu_type type;
  if (!int_take_part(op, true))
    return false;
  if (which == MAD && strncmp(op->rest, ".cc.", 4) == 0 && !(alu->detail[ALU_FLAGS] & ALU_WIDE))
    return int_parse_carry(op, which);
  bool wide = alu->detail[ALU_FLAGS] & ALU_WIDE;
  if (which == MAD && (alu->detail[ALU_FLAGS] & ALU_HI))
    alu_take_flag(op, "sat", ALU_SAT);
  bool sat = alu->detail[ALU_FLAGS] & ALU_SAT;
  alu->run = which == MUL ? alu_run_mul : sat ? int_run_mad_sat : int_run_mad;
  uint32_t set = sat ? ALU_SET(ALU_S32) : wide ? ALU_INT_SET & ~ALU_X64_SET : ALU_INT_SET;
  if (!int_take_type(op, set, which == MUL ? 2 : 3, &type))
    return false;
  if (wide)
    int_shape_wide(alu);
  return true;
}

static bool int_parse_madc(struct alu_opcode *op, int which)
{
  op->alu->reads_carry = true;
  return int_take_part(op, false) && int_parse_carry(op, which);
}

static bool int_parse_mul24(struct alu_opcode *op, int which)
{
  enum alu_type type;
  if (!int_take_part(op, false))
    return false;
  if (which == MAD && (op->alu->detail[ALU_FLAGS] & ALU_HI))
    alu_take_flag(op, "sat", ALU_SAT);
  op->alu->run = which == MUL ? int_run_mul24 : int_run_mad24;
  bool sat = op->alu->detail[ALU_FLAGS] & ALU_SAT;
  return int_take_type(op, sat ? ALU_SET(ALU_S32) : ALU_X32_SET, which == MUL ? 2 : 3, &type);
}

static bool int_parse_div(struct alu_opcode *op, int which)
{
  enum alu_type type;
  op->alu->detail[ALU_OP] = which;
  op->alu->run = int_run_div;
  return int_take_type(op, ALU_INT_SET, 2, &type);
}

static bool int_parse_negate(struct alu_opcode *op, int which)
{
  enum alu_type type;
  op->alu->detail[ALU_OP] = which;
  op->alu->run = int_run_negate;
  return int_take_type(op, ALU_S_SET, 1, &type);
}

static bool int_parse_minmax(struct alu_opcode *op, int which)
{
  enum alu_type type;
  alu_take_flag(op, "relu", ALU_RELU);
  bool relu = op->alu->detail[ALU_FLAGS] & ALU_RELU;
  op->alu->detail[ALU_OP] = which;
  uint32_t set = relu ? ALU_SET(ALU_S32) | ALU_SET(ALU_S16X2) : ALU_INT_SET | ALU_X16X2_SET;
  if (!int_take_type(op, set, 2, &type))
    return false;
  op->alu->run = op->alu->detail[ALU_LANES] == 2 ? int_run_halves : int_run_minmax;
  return true;
}

static bool int_parse_sad(struct alu_opcode *op, int which)
{
  enum alu_type type;
  op->alu->detail[ALU_OP] = which;
  op->alu->run = int_run_sad;
  return int_take_type(op, ALU_INT_SET, 3, &type);
}

static bool int_parse_dot(struct alu_opcode *op, int which)
{
  enum alu_type type, second;
  if (which == DP2A && !int_take_part(op, false))
    return false;
  op->alu->detail[ALU_OP] = which;
  op->alu->run = int_run_dot;
  if (!int_take_type(op, ALU_X32_SET, 3, &type) || !alu_take_type(op, ALU_X32_SET, &second))
    return false;
  op->alu->detail[ALU_FROM] = alu_type_signed(second);
  return true;
}

const struct alu_root alu_int_roots[] = {
    {"add", int_parse_add, ADD},
    {"sub", int_parse_add, SUB},
    {"addc", int_parse_addc, ADD},
    {"subc", int_parse_addc, SUB},
    {"mul", int_parse_mul, MUL},
    {"mad", int_parse_mul, MAD},
    {"madc", int_parse_madc, MAD},
    {"mul24", int_parse_mul24, MUL},
    {"mad24", int_parse_mul24, MAD},
    {"div", int_parse_div, DIV},
    {"rem", int_parse_div, REM},
    {"abs", int_parse_negate, ABS},
    {"neg", int_parse_negate, NEG},
    {"min", int_parse_minmax, MIN},
    {"max", int_parse_minmax, MAX},
    {"sad", int_parse_sad, SAD},
    {"dp4a", int_parse_dot, DP4A},
    {"dp2a", int_parse_dot, DP2A},
    {NULL, NULL, 0},
};
