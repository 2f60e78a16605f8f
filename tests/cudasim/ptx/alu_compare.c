// Comparisons and selections.
#include "alu_quick.h"
#include "alu_real.h"

#include <stddef.h>

// A comparison is the set of orders (1 << less, equal, greater, unordered, from 0 on) that make it true.
enum { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };

enum { ALWAYS, AND, OR, XOR }; // how a predicate is combined

static const char *const compare_words[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "lo",  "ls",  "hi", "hs",
                                            "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan", NULL};
enum { FIRST_UNSIGNED = 6, FIRST_UNORDERED = 10 };

static const uint8_t compare_sets[] = {
    EQUAL,
    LESS | GREATER,
    LESS,
    LESS | EQUAL,
    GREATER,
    GREATER | EQUAL,
    LESS,
    LESS | EQUAL,
    GREATER,
    GREATER | EQUAL,
    EQUAL | UNORDERED,
    LESS | GREATER | UNORDERED,
    LESS | UNORDERED,
    LESS | EQUAL | UNORDERED,
    GREATER | UNORDERED,
    GREATER | EQUAL | UNORDERED,
    LESS | EQUAL | GREATER,
    UNORDERED,
};

// Of run: ALU_OP is the set of orders, ALU_FROM how the result is combined with the predicate, ALU_ROUND (no rounding
// here) the type of set's result.

static bool compare_floats(const struct ptx_alu *alu, uint64_t a, uint64_t b)
{
  const struct alu_format *format = alu_format(alu->detail[ALU_TYPE]);
  if (alu->detail[ALU_FLAGS] & ALU_FTZ) {
    a = alu_flush(format, a);
    b = alu_flush(format, b);
  }
  return alu->detail[ALU_OP] & (LESS << (alu_order(format, a, b) + 1));
}

static bool compare_lane(const struct ptx_alu *alu, const uint64_t in[], int lane)
{
  int bits = alu->detail[ALU_BITS];
  uint64_t a = in[0] >> lane * bits & alu_mask(bits), b = in[1] >> lane * bits & alu_mask(bits);
  return alu_type_float(alu->detail[ALU_TYPE]) ? compare_floats(alu, a, b) : alu_compare_ints(alu, a, b);
}

static bool compare_combine(const struct ptx_alu *alu, bool result, const uint64_t in[])
{
  switch (alu->detail[ALU_FROM]) {
  case AND: return result && (in[2] != 0);
  case OR: return result || (in[2] != 0);
  case XOR: return result != (in[2] != 0);
  default: return result;
  }
}

static void compare_run_setp(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  bool result = compare_lane(alu, in, 0);
  bool second = alu->detail[ALU_LANES] == 2 ? compare_lane(alu, in, 1) : !result;
  out[0] = compare_combine(alu, result, in);
  out[1] = compare_combine(alu, second, in);
}

void alu_run_setp(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  out[0] = alu_compare_ints(alu, in[0], in[1]);
  out[1] = !out[0];
}

// 1.0 of floating-point results, all ones of integers.
static uint64_t compare_true(enum alu_type type)
{
  if (!alu_type_float(type))
    return alu_mask(8 * alu_type_bytes(type));
  return alu_write(alu_format(type), alu_from_int(1, false), ALU_RN);
}

static void compare_run_set(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  int lanes = alu->detail[ALU_LANES], bits = 8 * alu->out_bytes[0] / lanes;
  out[0] = 0;
  for (int i = 0; i < lanes; i++) {
    if (compare_combine(alu, compare_lane(alu, in, i), in))
      out[0] |= (compare_true(alu->detail[ALU_ROUND]) & alu_mask(bits)) << i * bits;
  }
}

ALU_RUN(selp)

static void compare_run_slct(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  uint64_t c = alu->detail[ALU_FLAGS] & ALU_FTZ ? alu_flush(alu_format(ALU_F32), in[2]) : in[2];
  int order = alu->detail[ALU_TYPE] == ALU_F32 ? alu_order(alu_format(ALU_F32), c, 0) : (int32_t)c < 0 ? -1 : 0;
  out[0] = order == ALU_EQUAL || order == ALU_GREATER ? in[0] : in[1];
}

// Takes the comparison and, if there is one, what combines it with a predicate.
static bool compare_take_words(struct alu_opcode *op, int *word)
{
  static const char *const combine_words[] = {"and", "or", "xor", NULL};
  *word = alu_take_one(op, compare_words);
  if (*word < 0)
    return alu_refuse(op, "needs a comparison (.eq, .ne, .lt, ...)");
  op->alu->detail[ALU_OP] = compare_sets[*word];
  op->alu->detail[ALU_FROM] = alu_take_one(op, combine_words) + 1;
  alu_take_flag(op, "ftz", ALU_FTZ);
  return true;
}

// The types that a comparison is possible of.
static uint32_t compare_types(int word, bool ftz)
{
  uint32_t floats = ALU_FLOAT_SET & ~ALU_SET(ALU_F32X2);
  if (word >= FIRST_UNSIGNED && word < FIRST_UNORDERED)
    return ftz ? 0 : ALU_U_SET;
  if (ftz)
    return ALU_SET(ALU_F32) | ALU_HALF_SET;
  if (word >= FIRST_UNORDERED)
    return floats;
  return (word < 2 ? ALU_B_SET : 0) | ALU_INT_SET | floats;
}

// Takes the type of what is compared: the first two operands; the predicate is the third.
static bool compare_take_type(struct alu_opcode *op, int word, enum alu_type *type)
{
  struct ptx_alu *alu = op->alu;
  if (!alu_take_type(op, compare_types(word, alu->detail[ALU_FLAGS] & ALU_FTZ), type))
    return false;
  alu_set_type(alu, *type);
  alu_shape(alu, 1, alu->detail[ALU_FROM] == ALWAYS ? 2 : 3, *type);
  alu->in_bytes[2] = 0;
  return true;
}

static bool compare_parse_setp(struct alu_opcode *op, int which)
{
  (void)which;
  int word;
  enum alu_type type;
  if (!compare_take_words(op, &word) || !compare_take_type(op, word, &type))
    return false;
  op->alu->outs = 2;
  op->alu->out_bytes[0] = op->alu->out_bytes[1] = 0;
  op->alu->run = alu_type_float(type) || op->alu->detail[ALU_FROM] ? compare_run_setp : alu_run_setp;
  return true;
}

// The types of set's result that go with the type of what is compared.
static uint32_t compare_results(enum alu_type type, bool ftz)
{
  uint32_t ints = ALU_X32_SET | ALU_SET(ALU_U16) | ALU_SET(ALU_S16);
  switch (type) {
  case ALU_F16: return ALU_SET(ALU_F16) | (ftz ? 0 : ALU_SET(ALU_BF16)) | ints;
  case ALU_BF16: return ALU_SET(ALU_BF16) | ints;
  case ALU_F16X2: return ALU_SET(ALU_F16X2) | ALU_X32_SET;
  case ALU_BF16X2: return ALU_SET(ALU_BF16X2) | ALU_X32_SET;
  default: return ALU_X32_SET | ALU_SET(ALU_F32) | ALU_SET(ALU_F16) | (ftz ? 0 : ALU_SET(ALU_BF16));
  }
}

static bool compare_parse_set(struct alu_opcode *op, int which)
{
  (void)which;
  int word;
  enum alu_type result, type;
  struct ptx_alu *alu = op->alu;
  uint32_t ints = ALU_X32_SET | ALU_SET(ALU_U16) | ALU_SET(ALU_S16);
  if (!compare_take_words(op, &word) ||
      !alu_take_type(op, ints | ALU_SET(ALU_F32) | ALU_HALF_SET | ALU_BFLOAT_SET, &result) ||
      !compare_take_type(op, word, &type))
    return false;
  if (!(compare_results(type, alu->detail[ALU_FLAGS] & ALU_FTZ) & ALU_SET(result)))
    return alu_refuse(op, "no result of this type from a comparison of that type");
  alu->out_bytes[0] = (uint8_t)alu_type_bytes(result);
  alu->detail[ALU_ROUND] = alu_lane(result);
  alu->run = compare_run_set;
  return true;
}

static bool compare_parse_selp(struct alu_opcode *op, int which)
{
  (void)which;
  enum alu_type type;
  if (!alu_take_type(op, ALU_INT_SET | ALU_B_SET | ALU_SET(ALU_F32) | ALU_SET(ALU_F64), &type))
    return false;
  alu_shape(op->alu, 1, 3, type);
  op->alu->in_bytes[2] = 0;
  op->alu->run = alu_run_selp;
  return true;
}

static bool compare_parse_slct(struct alu_opcode *op, int which)
{
  (void)which;
  enum alu_type type, tested;
  alu_take_flag(op, "ftz", ALU_FTZ);
  bool ftz = op->alu->detail[ALU_FLAGS] & ALU_FTZ;
  if (!alu_take_type(op, ALU_INT_SET | ALU_B_SET | ALU_SET(ALU_F32) | ALU_SET(ALU_F64), &type) ||
      !alu_take_type(op, ALU_SET(ALU_F32) | (ftz ? 0 : ALU_SET(ALU_S32)), &tested))
    return false;
  alu_shape(op->alu, 1, 3, type);
  op->alu->in_bytes[2] = 4;
  op->alu->detail[ALU_TYPE] = tested;
  op->alu->run = compare_run_slct;
  return true;
}

const struct alu_root alu_compare_roots[] = {
    {"setp", compare_parse_setp, 0},
    {"set", compare_parse_set, 0},
    {"selp", compare_parse_selp, 0},
    {"slct", compare_parse_slct, 0},
    {NULL, NULL, 0},
};
