// Arithmetic of floating point: each lane of each operation is computed exactly and rounded once (alu_real.h), except
// for the sums and products of f32 and f64 that kernels have most, rounded to nearest: those the host computes.
#include "alu_real.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "the host must round each operation to its type");

enum { ADD, SUB, MUL, FMA, DIV, RCP, SQRT, MIN, MAX, ABS, NEG, COPYSIGN, TESTP, RSQRT, EX2, LG2, SIN, COS, TANH };

// How the results are rounded: words that an opcode may or must have.
enum { NO_ROUNDING, MAY_ROUND, MUST_ROUND, MUST_APPROXIMATE };

enum { EXACT, APPROX, FULL }; // of ALU_FROM

#define F32 ALU_SET(ALU_F32)
#define F64 ALU_SET(ALU_F64)
#define F32X2 ALU_SET(ALU_F32X2)

static const struct float_rule {
  uint32_t types;
  uint32_t approximate; // types of .approx
  uint32_t ftz, sat;    // types of these flags
  uint8_t ins, rounding;
} float_rules[] = {
    [ADD] = {ALU_FLOAT_SET, 0, F32 | F32X2 | ALU_HALF_SET, F32 | ALU_HALF_SET, 2, MAY_ROUND},
    [SUB] = {ALU_FLOAT_SET, 0, F32 | F32X2 | ALU_HALF_SET, F32 | ALU_HALF_SET, 2, MAY_ROUND},
    [MUL] = {ALU_FLOAT_SET, 0, F32 | F32X2 | ALU_HALF_SET, F32 | ALU_HALF_SET, 2, MAY_ROUND},
    [FMA] = {ALU_FLOAT_SET, 0, F32 | F32X2 | ALU_HALF_SET, F32 | ALU_HALF_SET, 3, MUST_ROUND},
    [DIV] = {F32 | F64, F32, F32, 0, 2, MUST_ROUND},
    [RCP] = {F32 | F64, F32 | F64, F32 | F64, 0, 1, MUST_ROUND},
    [SQRT] = {F32 | F64, F32, F32, 0, 1, MUST_ROUND},
    [MIN] = {ALU_FLOAT_SET & ~F32X2, 0, F32 | ALU_HALF_SET, 0, 2, NO_ROUNDING},
    [MAX] = {ALU_FLOAT_SET & ~F32X2, 0, F32 | ALU_HALF_SET, 0, 2, NO_ROUNDING},
    [ABS] = {ALU_FLOAT_SET & ~F32X2, 0, F32 | ALU_HALF_SET, 0, 1, NO_ROUNDING},
    [NEG] = {ALU_FLOAT_SET & ~F32X2, 0, F32 | ALU_HALF_SET, 0, 1, NO_ROUNDING},
    [COPYSIGN] = {F32 | F64, 0, 0, 0, 2, NO_ROUNDING},
    [RSQRT] = {F32 | F64, F32 | F64, F32 | F64, 0, 1, MUST_APPROXIMATE},
    [EX2] = {F32 | ALU_HALF_SET | ALU_BFLOAT_SET, ALU_FLOAT_SET, F32 | ALU_BFLOAT_SET, 0, 1, MUST_APPROXIMATE},
    [LG2] = {F32, F32, F32, 0, 1, MUST_APPROXIMATE},
    [SIN] = {F32, F32, F32, 0, 1, MUST_APPROXIMATE},
    [COS] = {F32, F32, F32, 0, 1, MUST_APPROXIMATE},
    [TANH] = {F32 | ALU_HALF_SET | ALU_BFLOAT_SET, ALU_FLOAT_SET, 0, 0, 1, MUST_APPROXIMATE},
};

static uint64_t float_round(const struct ptx_alu *alu, struct alu_real real)
{
  return alu_write(alu_format(alu->detail[ALU_TYPE]), real, alu->detail[ALU_ROUND]);
}

// An operand of the instruction's type.
static struct alu_real float_read(const struct ptx_alu *alu, uint64_t value)
{
  return alu_read(alu_format(alu->detail[ALU_TYPE]), value);
}

static double to_double(uint64_t value)
{
  double x;
  memcpy(&x, &value, sizeof x);
  return x;
}

static uint64_t from_double(double x)
{
  uint64_t value;
  memcpy(&value, &x, sizeof value);
  return value;
}

static float to_float(uint64_t value)
{
  uint32_t word = (uint32_t)value;
  float x;
  memcpy(&x, &word, sizeof x);
  return x;
}

static uint64_t from_float(float x)
{
  uint32_t value;
  memcpy(&value, &x, sizeof value);
  return x == x ? value : 0x7fffffff;
}

static uint64_t float_exact(const struct ptx_alu *alu, const uint64_t in[3])
{
  struct alu_real a = float_read(alu, in[0]), b = float_read(alu, in[1]), c = float_read(alu, in[2]);
  enum alu_round round = alu->detail[ALU_ROUND];
  switch (alu->detail[ALU_OP]) {
  case SUB: b.negative = !b.negative; return float_round(alu, alu_sum(a, b, round));
  case MUL: return float_round(alu, alu_product(a, b));
  case FMA: return float_round(alu, alu_sum(alu_product(a, b), c, round));
  case DIV: return float_round(alu, alu_quotient(a, b));
  case RCP: return float_round(alu, alu_quotient(alu_from_int(1, false), a));
  case SQRT: return float_round(alu, alu_root(a));
  default: return float_round(alu, alu_sum(a, b, round));
  }
}

// -0 is less than +0. A NaN loses against a number, but for .NaN.
static uint64_t float_minmax(const struct ptx_alu *alu, const uint64_t in[3])
{
  const struct alu_format *format = alu_format(alu->detail[ALU_TYPE]);
  int flags = alu->detail[ALU_FLAGS];
  uint64_t sign = flags & ALU_XORSIGN ? (in[0] ^ in[1]) & alu_sign(format) : 0;
  uint64_t keep = flags & ALU_XORSIGN ? alu_sign(format) - 1 : alu_mask(format->bits);
  uint64_t a = in[0] & keep, b = in[1] & keep;
  bool nan_a = alu_is_nan(format, a), nan_b = alu_is_nan(format, b);
  if ((nan_a && nan_b) || ((nan_a || nan_b) && (flags & ALU_NAN)))
    return alu_nan(format);
  int order = alu_order(format, a, b);
  bool less = order == ALU_LESS || (order == ALU_EQUAL && a & alu_sign(format));
  bool takes_a = nan_b || (!nan_a && less == (alu->detail[ALU_OP] == MIN));
  return sign | (takes_a ? a : b);
}

static uint64_t float_signs(const struct ptx_alu *alu, const uint64_t in[3])
{
  uint64_t sign = alu_sign(alu_format(alu->detail[ALU_TYPE]));
  switch (alu->detail[ALU_OP]) {
  case ABS: return in[0] & ~sign;
  case NEG: return in[0] ^ sign;
  default: return (in[0] & sign) | (in[1] & ~sign);
  }
}

static double approximate(int which, double x)
{
  switch (which) {
  case RCP: return 1 / x;
  case SQRT: return sqrt(x);
  case RSQRT: return 1 / sqrt(x);
  case EX2: return exp2(x);
  case LG2: return log2(x);
  case SIN: return sin(x);
  case COS: return cos(x);
  default: return tanh(x);
  }
}

// PTX bounds the error of these alone. Here they are as near as the host's double, rounded to the type. The f64 ones
// with .ftz look at the upper word only, and the lower word of their result is zero.
static uint64_t float_approximate(const struct ptx_alu *alu, const uint64_t in[3])
{
  enum alu_type type = alu->detail[ALU_TYPE];
  bool upper = type == ALU_F64 && (alu->detail[ALU_FLAGS] & ALU_FTZ);
  uint64_t value = alu_write(alu_format(ALU_F64), alu_read(alu_format(type), in[0]), ALU_RN);
  double y = approximate(alu->detail[ALU_OP], to_double(upper ? value >> 32 << 32 : value));
  uint64_t result = float_round(alu, alu_read(alu_format(ALU_F64), from_double(y)));
  return upper ? result >> 32 << 32 : result;
}

// .approx and .full: the quotient; of .approx zero where the divisor is so large that its reciprocal is subnormal.
static uint64_t float_divide(const struct ptx_alu *alu, const uint64_t in[3])
{
  uint64_t magnitude = in[1] & 0x7fffffff, result = float_exact(alu, in);
  bool large = magnitude > 0x7e800000 && magnitude < 0x7f800000; // above 2^126
  if (alu->detail[ALU_FROM] == APPROX && large)
    return (in[0] & 0x7f800000) == 0x7f800000 ? 0x7fffffff : result & 0x80000000;
  return result;
}

static uint64_t float_lane(const struct ptx_alu *alu, const uint64_t in[3])
{
  switch (alu->detail[ALU_OP]) {
  case MIN:
  case MAX: return float_minmax(alu, in);
  case ABS:
  case NEG:
  case COPYSIGN: return float_signs(alu, in);
  case DIV: return float_divide(alu, in);
  default: return alu->detail[ALU_FROM] == APPROX ? float_approximate(alu, in) : float_exact(alu, in);
  }
}

static void float_run(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  int bits = alu->detail[ALU_BITS];
  const struct alu_format *format = alu_format(alu->detail[ALU_TYPE]);
  out[0] = 0;
  for (int lane = 0; lane < alu->detail[ALU_LANES]; lane++) {
    uint64_t operand[3] = {0};
    for (int i = 0; i < alu->ins; i++) {
      operand[i] = in[i] >> lane * bits & alu_mask(bits);
      if (alu->detail[ALU_FLAGS] & ALU_FTZ)
        operand[i] = alu_flush(format, operand[i]);
    }
    out[0] |= alu_finish(format, float_lane(alu, operand), alu->detail[ALU_FLAGS]) << lane * bits;
  }
}

static void float_run_add32(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  (void)alu;
  out[0] = from_float(to_float(in[0]) + to_float(in[1]));
}

static void float_run_sub32(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  (void)alu;
  out[0] = from_float(to_float(in[0]) - to_float(in[1]));
}

static void float_run_mul32(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  (void)alu;
  out[0] = from_float(to_float(in[0]) * to_float(in[1]));
}

// A double's bits, a NaN replaced.
static uint64_t float_result64(double x)
{
  return x == x ? from_double(x) : alu_nan(alu_format(ALU_F64));
}

static void float_run_add64(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  (void)alu;
  out[0] = float_result64(to_double(in[0]) + to_double(in[1]));
}

static void float_run_sub64(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  (void)alu;
  out[0] = float_result64(to_double(in[0]) - to_double(in[1]));
}

static void float_run_mul64(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  (void)alu;
  out[0] = float_result64(to_double(in[0]) * to_double(in[1]));
}

static void float_run_testp(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  const struct alu_format *format = alu_format(alu->detail[ALU_TYPE]);
  uint64_t magnitude = in[0] & (alu_sign(format) - 1), least = (uint64_t)1 << format->mantissa;
  bool is_nan = alu_is_nan(format, in[0]), finite = magnitude < alu_infinity(format), subnormal = magnitude < least;
  bool answers[] = {finite, !finite && !is_nan, !is_nan, is_nan, finite && !subnormal, subnormal && magnitude != 0};
  out[0] = answers[alu->detail[ALU_OP]];
}

// The host's operation, for those that it computes.
static void float_choose_run(struct ptx_alu *alu)
{
  static void (*const host[2][3])(const struct ptx_alu *, const uint64_t *, uint64_t *) = {
      {float_run_add32, float_run_sub32, float_run_mul32}, {float_run_add64, float_run_sub64, float_run_mul64}};
  int type = alu->detail[ALU_TYPE];
  bool plain = alu->detail[ALU_LANES] == 1 && !alu->detail[ALU_FLAGS] && alu->detail[ALU_ROUND] == ALU_RN;
  alu->run = float_run;
  if (plain && alu->detail[ALU_OP] <= MUL && (type == ALU_F32 || type == ALU_F64))
    alu->run = host[type == ALU_F64][alu->detail[ALU_OP]];
}

// Takes .rn and the like, .approx, .full, whichever the rule asks for.
static bool float_take_rounding(struct alu_opcode *op, const struct float_rule *rule, bool *rounded)
{
  static const char *const words[] = {"rn", "rz", "rm", "rp", NULL};
  struct ptx_alu *alu = op->alu;
  int round = rule->rounding == MAY_ROUND || rule->rounding == MUST_ROUND ? alu_take_one(op, words) : -1;
  *rounded = round >= 0;
  alu->detail[ALU_ROUND] = *rounded ? round : ALU_RN;
  if (!*rounded && rule->approximate && alu_take(op, "approx"))
    alu->detail[ALU_FROM] = APPROX;
  if (!*rounded && alu->detail[ALU_OP] == DIV && alu_take(op, "full"))
    alu->detail[ALU_FROM] = FULL;
  if (rule->rounding == MUST_ROUND && !*rounded && alu->detail[ALU_FROM] == EXACT)
    return alu_refuse(op, rule->approximate ? "needs .rn, .rz, .rm, .rp or .approx" : "needs .rn, .rz, .rm or .rp");
  if (rule->rounding == MUST_APPROXIMATE && alu->detail[ALU_FROM] == EXACT)
    return alu_refuse(op, "needs .approx");
  return true;
}

static bool float_take_flags(struct alu_opcode *op, const struct float_rule *rule)
{
  int which = op->alu->detail[ALU_OP];
  if (rule->ftz)
    alu_take_flag(op, "ftz", ALU_FTZ);
  if (rule->sat)
    alu_take_flag(op, "sat", ALU_SAT);
  if (which == FMA && !(op->alu->detail[ALU_FLAGS] & ALU_SAT))
    alu_take_flag(op, "relu", ALU_RELU);
  if (which != MIN && which != MAX)
    return true;
  alu_take_flag(op, "NaN", ALU_NAN);
  alu_take_flag(op, "xorsign", ALU_XORSIGN);
  bool wrong = (op->alu->detail[ALU_FLAGS] & ALU_XORSIGN) && !alu_take(op, "abs");
  return wrong ? alu_refuse(op, ".xorsign needs .abs") : true;
}

// The types that are left after the modifiers that were taken.
static uint32_t float_types(const struct ptx_alu *alu, const struct float_rule *rule)
{
  int flags = alu->detail[ALU_FLAGS];
  uint32_t set = rule->types;
  if (flags & ALU_FTZ)
    set &= rule->ftz;
  if (flags & ALU_SAT)
    set &= rule->sat;
  if (flags & ALU_RELU)
    set &= ALU_HALF_SET | ALU_BFLOAT_SET;
  if (flags & (ALU_NAN | ALU_XORSIGN))
    set &= ~F64;
  if (alu->detail[ALU_FROM] != EXACT)
    set &= rule->approximate;
  if (((flags & ALU_FTZ) != 0) != (alu->detail[ALU_FROM] == APPROX)) // .f64 has either both or none
    set &= alu->detail[ALU_OP] == RSQRT ? set : ~F64;
  if (alu->detail[ALU_OP] == EX2 && !(flags & ALU_FTZ))
    set &= ~ALU_BFLOAT_SET;
  if (alu->detail[ALU_ROUND] != ALU_RN)
    set &= F32 | F64 | F32X2;
  return set;
}

static bool float_parse(struct alu_opcode *op, int which)
{
  const struct float_rule *rule = &float_rules[which];
  struct ptx_alu *alu = op->alu;
  enum alu_type type;
  bool rounded;
  alu->detail[ALU_OP] = which;
  if (!float_take_rounding(op, rule, &rounded) || !float_take_flags(op, rule) ||
      !alu_take_type(op, float_types(alu, rule), &type))
    return false;
  alu_set_type(alu, type);
  alu_shape(alu, 1, rule->ins, type);
  float_choose_run(alu);
  return true;
}

// mad is fma, but for the types.
static bool float_parse_mad(struct alu_opcode *op, int which)
{
  static const char *const words[] = {"rn", "rz", "rm", "rp", NULL};
  enum alu_type type;
  int round = alu_take_one(op, words);
  op->alu->detail[ALU_OP] = which;
  op->alu->detail[ALU_ROUND] = round;
  if (round < 0)
    return alu_refuse(op, "needs .rn, .rz, .rm or .rp");
  alu_take_flag(op, "ftz", ALU_FTZ);
  alu_take_flag(op, "sat", ALU_SAT);
  if (!alu_take_type(op, op->alu->detail[ALU_FLAGS] ? F32 : F32 | F64, &type))
    return false;
  alu_set_type(op->alu, type);
  alu_shape(op->alu, 1, 3, type);
  op->alu->run = float_run;
  return true;
}

static bool float_parse_testp(struct alu_opcode *op, int which)
{
  static const char *const words[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal", NULL};
  enum alu_type type;
  (void)which;
  op->alu->detail[ALU_OP] = alu_take_one(op, words);
  if (op->alu->detail[ALU_OP] < 0)
    return alu_refuse(op, "needs .finite, .infinite, .number, .notanumber, .normal or .subnormal");
  if (!alu_take_type(op, F32 | F64, &type))
    return false;
  alu_set_type(op->alu, type);
  alu_shape(op->alu, 1, 1, type);
  op->alu->out_bytes[0] = 0;
  op->alu->run = float_run_testp;
  return true;
}

const struct alu_root alu_float_roots[] = {
    {"add", float_parse, ADD},           {"sub", float_parse, SUB},           {"mul", float_parse, MUL},
    {"fma", float_parse, FMA},           {"mad", float_parse_mad, FMA},       {"div", float_parse, DIV},
    {"rcp", float_parse, RCP},           {"sqrt", float_parse, SQRT},         {"min", float_parse, MIN},
    {"max", float_parse, MAX},           {"abs", float_parse, ABS},           {"neg", float_parse, NEG},
    {"copysign", float_parse, COPYSIGN}, {"testp", float_parse_testp, TESTP}, {"rsqrt", float_parse, RSQRT},
    {"ex2", float_parse, EX2},           {"lg2", float_parse, LG2},           {"sin", float_parse, SIN},
    {"cos", float_parse, COS},           {"tanh", float_parse, TANH},         {NULL, NULL, 0},
};
