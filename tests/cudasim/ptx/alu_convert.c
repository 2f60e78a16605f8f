// Conversions (cvt): each lane is read exactly and rounded once.
#include "alu_real.h"

#include <stddef.h>

#define INTS (ALU_INT_SET | ALU_SET(ALU_U8) | ALU_SET(ALU_S8))
#define FLOATS (ALU_SET(ALU_F16) | ALU_SET(ALU_BF16) | ALU_SET(ALU_F32) | ALU_SET(ALU_F64))
#define EIGHTS (ALU_SET(ALU_E4M3X2) | ALU_SET(ALU_E5M2X2))
#define PAIRS (ALU_SET(ALU_F16X2) | ALU_SET(ALU_BF16X2) | EIGHTS)

// The nearest finite number of what is none.
static uint64_t convert_to_finite(const struct alu_format *format, uint64_t value)
{
  uint64_t sign = value & alu_sign(format), magnitude = value & ~sign;
  uint64_t most = alu_infinity(format) - ((uint64_t)1 << format->shift);
  return sign | (magnitude > most ? most : magnitude);
}

static uint64_t convert_to_float(const struct ptx_alu *alu, struct alu_real real)
{
  const struct alu_format *format = alu_format(alu->detail[ALU_TYPE]);
  int flags = alu->detail[ALU_FLAGS];
  if (flags & ALU_TO_INT)
    real = alu_integral(real, alu->detail[ALU_ROUND]);
  uint64_t value = alu_write(format, real, alu->detail[ALU_ROUND]);
  if ((flags & ALU_SATFINITE) && real.class != ALU_NO_NUMBER)
    value = convert_to_finite(format, value);
  if (alu->detail[ALU_TYPE] != ALU_F32)
    flags &= ~ALU_FTZ;
  return alu_finish(format, value, flags);
}

// NaN becomes 0, but where 64 bits are on one of the sides: there the highest bit alone.
static uint64_t convert_to_int(const struct ptx_alu *alu, struct alu_real real)
{
  int bits = alu->detail[ALU_BITS];
  if (real.class == ALU_NO_NUMBER && (bits == 64 || alu->detail[ALU_FROM] == ALU_F64))
    return (uint64_t)1 << (bits - 1);
  return alu_to_int(real, alu->detail[ALU_ROUND], bits, alu->detail[ALU_SIGNED]);
}

static uint64_t convert_lane(const struct ptx_alu *alu, uint64_t value)
{
  enum alu_type from = alu->detail[ALU_FROM];
  struct alu_real real;
  if (alu_type_float(from)) {
    if (from == ALU_F32 && (alu->detail[ALU_FLAGS] & ALU_FTZ))
      value = alu_flush(alu_format(from), value);
    real = alu_read(alu_format(from), value);
  } else {
    real = alu_from_int(alu_extend(value, 8 * alu_type_bytes(from), alu_type_signed(from)), alu_type_signed(from));
  }
  return alu_type_float(alu->detail[ALU_TYPE]) ? convert_to_float(alu, real) : convert_to_int(alu, real);
}

static void convert_run(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  out[0] = convert_lane(alu, in[0]);
}

// Without .sat, an integer keeps the bits that there is room for.
static void convert_run_ints(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  enum alu_type from = alu->detail[ALU_FROM];
  out[0] = alu_extend(in[0], 8 * alu_type_bytes(from), alu_type_signed(from)) & alu_mask(alu->detail[ALU_BITS]);
}

// Two operands to one pair, the first to the upper lane; or a pair to a pair.
static void convert_run_pair(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  int from_bits = 8 * alu_type_bytes(alu->detail[ALU_FROM]);
  uint64_t high = alu->ins == 2 ? in[0] : in[0] >> from_bits;
  uint64_t low = alu->ins == 2 ? in[1] : in[0] & alu_mask(from_bits);
  out[0] = convert_lane(alu, high) << alu->detail[ALU_BITS] | convert_lane(alu, low);
}

// cvt.pack: two numbers clamped to ALU_BITS each, the first above the second, below the bits of a third operand.
static void convert_run_pack(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  int bits = alu->detail[ALU_BITS];
  uint64_t packed = alu->ins == 3 ? in[2] << 2 * bits : 0;
  for (int i = 0; i < 2; i++) {
    struct alu_real real = alu_from_int(alu_extend(in[i], 32, true), true);
    packed |= alu_to_int(real, ALU_RN, bits, alu->detail[ALU_SIGNED]) << (i == 0 ? bits : 0);
  }
  out[0] = (uint32_t)packed;
}

static bool convert_parse_pack(struct alu_opcode *op)
{
  static const char *const words[] = {"u16", "s16", "u2", "s2", "u4", "s4", "u8", "s8", NULL};
  static const uint8_t widths[] = {16, 16, 2, 2, 4, 4, 8, 8};
  if (!alu_take(op, "sat"))
    return alu_refuse(op, "needs .sat");
  int which = alu_take_one(op, words);
  if (which < 0 || !alu_take(op, "s32") || (which > 1 && !alu_take(op, "b32")))
    return alu_refuse(op, "needs a type to pack to, .s32, and for types of less than 16 bits .b32");
  alu_shape(op->alu, 1, which > 1 ? 3 : 2, ALU_B32);
  op->alu->detail[ALU_BITS] = widths[which];
  op->alu->detail[ALU_SIGNED] = which & 1;
  op->alu->run = convert_run_pack;
  return true;
}

static void convert_take_rounding(struct alu_opcode *op, bool *rounds)
{
  static const char *const words[] = {"rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", NULL};
  int which = alu_take_one(op, words);
  *rounds = which >= 0;
  if (which > ALU_RNA)
    op->alu->detail[ALU_FLAGS] |= ALU_TO_INT;
  op->alu->detail[ALU_ROUND] = which > ALU_RNA ? which - ALU_RNA - 1 : which < 0 ? ALU_RN : which;
}

static void convert_take_flags(struct alu_opcode *op)
{
  const char *before;
  do {
    before = op->rest;
    alu_take_flag(op, "ftz", ALU_FTZ);
    alu_take_flag(op, "sat", ALU_SAT);
    alu_take_flag(op, "satfinite", ALU_SATFINITE);
    alu_take_flag(op, "relu", ALU_RELU);
  } while (op->rest != before);
}

// Types that a conversion to this one is possible from.
static uint32_t convert_sources(enum alu_type type)
{
  uint32_t set = ALU_SET(type);
  if (set & EIGHTS)
    return ALU_SET(ALU_F32) | ALU_SET(ALU_F16X2);
  if (type == ALU_F16X2)
    return ALU_SET(ALU_F32) | EIGHTS;
  if (type == ALU_BF16X2 || type == ALU_TF32)
    return ALU_SET(ALU_F32);
  return INTS | FLOATS;
}

// What must be rounded: a format with fewer bits or less range than the source's.
static bool convert_narrows(enum alu_type to, enum alu_type from)
{
  if (!alu_type_float(from))
    return true;
  const struct alu_format *a = alu_format(to), *b = alu_format(from);
  return a->mantissa < b->mantissa || a->least > b->least;
}

// The rounding must be of the kind that the types ask for.
static const char *convert_wrong_rounding(const struct ptx_alu *alu, bool rounds)
{
  enum alu_type to = alu->detail[ALU_TYPE], from = alu->detail[ALU_FROM];
  bool integral = alu->detail[ALU_FLAGS] & ALU_TO_INT;
  if (!alu_type_float(to) && !alu_type_float(from))
    return rounds ? "integers are not rounded" : NULL;
  if (!alu_type_float(to))
    return integral ? NULL : "needs .rni, .rzi, .rmi or .rpi";
  if (to == from)
    return integral || !rounds ? NULL : "a number of this type is only rounded by .rni, .rzi, .rmi or .rpi";
  if (integral)
    return "rounds to an integral value and to another format";
  if (alu->detail[ALU_LANES] == 2 || to == ALU_TF32)
    return rounds ? NULL : "needs .rn or .rz";
  if (convert_narrows(to, from) != rounds && !(rounds && from == ALU_BF16)) // which may have a rounding always
    return rounds ? "is exact and must not be rounded" : "needs .rn, .rz, .rm or .rp";
  return NULL;
}

// The roundings of the conversions that newer GPUs have: to pairs, to tf32, from f32 with .relu or .satfinite.
static bool convert_new_rounding(const struct ptx_alu *alu)
{
  enum alu_type to = alu->detail[ALU_TYPE], from = alu->detail[ALU_FROM];
  int round = alu->detail[ALU_ROUND];
  if (round == ALU_RNA)
    return to == ALU_TF32 && !(alu->detail[ALU_FLAGS] & ALU_RELU);
  bool eight = to == ALU_E4M3 || to == ALU_E5M2 || from == ALU_E4M3 || from == ALU_E5M2;
  bool few = alu->detail[ALU_LANES] == 2 || to == ALU_TF32 || (alu->detail[ALU_FLAGS] & (ALU_RELU | ALU_SATFINITE));
  return round == ALU_RN || !few || (round == ALU_RZ && !eight);
}

static const char *convert_wrong_flags(const struct ptx_alu *alu)
{
  enum alu_type to = alu->detail[ALU_TYPE], from = alu->detail[ALU_FROM];
  int flags = alu->detail[ALU_FLAGS];
  bool pair = alu->detail[ALU_LANES] == 2, tf32 = to == ALU_TF32, eight = to == ALU_E4M3 || to == ALU_E5M2;
  bool half = to == ALU_F16 || to == ALU_BF16;
  if (!convert_new_rounding(alu))
    return "this rounding is not possible here";
  if ((flags & ALU_FTZ) && (pair || tf32 || (to != ALU_F32 && from != ALU_F32)))
    return ".ftz is not possible here";
  if ((flags & ALU_SAT) && (pair || tf32 || to == ALU_BF16 || from == ALU_BF16))
    return ".sat is not possible here";
  if (eight && !(flags & ALU_SATFINITE))
    return "needs .satfinite";
  if ((flags & ALU_RELU) && !pair && !tf32 && !(half && from == ALU_F32))
    return ".relu is not possible here";
  if ((flags & ALU_SATFINITE) && !eight && !tf32 && !(half && from == ALU_F32))
    return ".satfinite is not possible here";
  if ((flags & (ALU_RELU | ALU_SATFINITE)) && (flags & (ALU_FTZ | ALU_SAT)))
    return ".relu or .satfinite is not possible together with .ftz or .sat";
  return NULL;
}

static void convert_choose_run(struct ptx_alu *alu)
{
  bool ints = !alu_type_float(alu->detail[ALU_TYPE]) && !alu_type_float(alu->detail[ALU_FROM]);
  if (alu->detail[ALU_LANES] == 2)
    alu->run = convert_run_pair;
  else
    alu->run = ints && !(alu->detail[ALU_FLAGS] & ALU_SAT) ? convert_run_ints : convert_run;
}

static bool convert_parse(struct alu_opcode *op, int which)
{
  struct ptx_alu *alu = op->alu;
  enum alu_type to, from;
  bool rounds;
  (void)which;
  if (alu_take(op, "pack"))
    return convert_parse_pack(op);
  convert_take_rounding(op, &rounds);
  convert_take_flags(op);
  if (!alu_take_type(op, INTS | FLOATS | PAIRS | ALU_SET(ALU_TF32), &to) ||
      !alu_take_type(op, convert_sources(to), &from))
    return false;
  alu_set_type(alu, to);
  alu_shape(alu, 1, alu->detail[ALU_LANES] == 2 && alu_lane(from) == from ? 2 : 1, from);
  alu->out_bytes[0] = (uint8_t)alu_type_bytes(to);
  alu->sign_extends = alu_type_signed(to);
  alu->detail[ALU_FROM] = alu_lane(from);
  const char *wrong = convert_wrong_rounding(alu, rounds);
  wrong = wrong ? wrong : convert_wrong_flags(alu);
  convert_choose_run(alu);
  return wrong ? alu_refuse(op, wrong) : true;
}

const struct alu_root alu_convert_roots[] = {{"cvt", convert_parse, 0}, {NULL, NULL, 0}};
