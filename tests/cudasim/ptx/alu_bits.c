// Logic, shifts, fields of bits and bytes, and moves.
#include "alu_quick.h"

enum { AND, OR, XOR, NOT, CNOT, LEFT, RIGHT, POPC, CLZ, BREV };

static void bits_run_mov(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  (void)alu;
  out[0] = in[0];
}

ALU_RUN(and)
ALU_RUN(or)
ALU_RUN(xor)
ALU_RUN(not )
ALU_RUN(shl)
ALU_RUN(shr)

static void bits_run_cnot(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  (void)alu;
  out[0] = in[0] == 0;
}

// The pair in[1]:in[0] shifted: its upper word to the left, its lower word to the right.
static void bits_run_shf(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  uint64_t pair = in[1] << 32 | in[0];
  unsigned count = alu->detail[ALU_FLAGS] & ALU_WRAP ? in[2] & 31 : in[2] < 32 ? (unsigned)in[2] : 32;
  out[0] = (uint32_t)(alu->detail[ALU_OP] == LEFT ? pair << count >> 32 : pair >> count);
}

static void bits_run_lop3(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  uint64_t a = in[0], b = in[1], c = in[2], table = in[3], result = 0;
  for (int row = 0; row < 8; row++) {
    if (table >> row & 1)
      result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
  }
  out[0] = (uint32_t)result;
  if (alu->outs == 2)
    out[1] = alu->detail[ALU_OP] == AND ? (out[0] != 0) & in[4] : (out[0] != 0) | in[4];
}

// Selectors of prmt's modes but the default one: for each value of the two lowest bits of c, four nibbles.
static const uint16_t byte_selectors[][4] = {
    {0x3210, 0x4321, 0x5432, 0x6543}, // f4e
    {0x5670, 0x6701, 0x7012, 0x0123}, // b4e
    {0x0000, 0x1111, 0x2222, 0x3333}, // rc8
    {0x3210, 0x3211, 0x3222, 0x3333}, // ecl
    {0x0000, 0x1110, 0x2210, 0x3210}, // ecr
    {0x1010, 0x3232, 0x1010, 0x3232}, // rc16
};

static void bits_run_prmt(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  uint64_t pair = in[1] << 32 | in[0];
  int mode = alu->detail[ALU_OP];
  unsigned selectors = mode < 0 ? in[2] & 0xffff : byte_selectors[mode][in[2] & 3];
  out[0] = 0;
  for (int i = 0; i < 4; i++) {
    unsigned nibble = selectors >> 4 * i & 15;
    uint64_t byte = pair >> 8 * (nibble & 7) & 0xff;
    if (nibble & 8)
      byte = byte & 0x80 ? 0xff : 0;
    out[0] |= byte << 8 * i;
  }
}

// `length` ones, of at most 64.
static uint64_t bits_ones(unsigned length)
{
  return length == 0 ? 0 : alu_mask(length < 64 ? (int)length : 64);
}

// A field that reaches beyond the value is filled with its last bit there, a signed value's sign.
static void bits_run_bfe(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  unsigned bits = (unsigned)alu->detail[ALU_BITS], position = in[1] & 0xff, length = in[2] & 0xff;
  bool is_signed = alu->detail[ALU_SIGNED];
  uint64_t value = alu_extend(in[0], (int)bits, is_signed);
  unsigned count = position < 63 ? position : 63;
  uint64_t field = is_signed ? (uint64_t)((int64_t)value >> count) : position < 64 ? value >> position : 0;
  field &= bits_ones(length);
  if (is_signed && length > 0 && length < 64)
    field = alu_extend(field, (int)length, true);
  out[0] = field & alu_mask((int)bits);
}

static void bits_run_bfi(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  unsigned position = in[2] & 0xff, length = in[3] & 0xff;
  uint64_t field = position < 64 ? bits_ones(length) << position : 0;
  uint64_t value = position < 64 ? in[0] << position : 0;
  out[0] = ((in[1] & ~field) | (value & field)) & alu_mask(alu->detail[ALU_BITS]);
}

// The highest bit that is not the sign.
static void bits_run_bfind(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  int bits = alu->detail[ALU_BITS];
  uint64_t value = alu_extend(in[0], bits, alu->detail[ALU_SIGNED]);
  if (alu->detail[ALU_SIGNED] && value >> 63)
    value = ~value;
  int highest = value == 0 ? -1 : 63 - __builtin_clzll(value);
  if (highest >= 0 && (alu->detail[ALU_FLAGS] & ALU_SHIFT))
    highest = bits - 1 - highest;
  out[0] = (uint32_t)highest;
}

static void bits_run_count(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  int bits = alu->detail[ALU_BITS];
  if (alu->detail[ALU_OP] == POPC)
    out[0] = (unsigned)__builtin_popcountll(in[0]);
  else
    out[0] = in[0] == 0 ? (unsigned)bits : (unsigned)(__builtin_clzll(in[0]) - (64 - bits));
}

static void bits_run_brev(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  int bits = alu->detail[ALU_BITS];
  uint64_t result = 0;
  for (int i = 0; i < bits; i++)
    result |= (in[0] >> i & 1) << (bits - 1 - i);
  out[0] = result;
}

// The offset-th set bit of the mask, counted from the base on, upwards or downwards.
static void bits_run_fns(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  (void)alu;
  int32_t offset = (int32_t)in[2];
  uint32_t left = offset == 0 ? 1 : offset < 0 ? 0 - (uint32_t)offset : (uint32_t)offset;
  out[0] = UINT32_MAX;
  for (int64_t at = (int64_t)in[1]; at >= 0 && at < 32; at += offset < 0 ? -1 : 1) {
    if ((in[0] >> at & 1) && --left == 0) {
      out[0] = (uint64_t)at;
      return;
    }
    if (offset == 0)
      return;
  }
}

static unsigned bits_limited(const struct ptx_alu *alu, uint64_t count)
{
  return alu->detail[ALU_FLAGS] & ALU_WRAP ? count & 31 : count < 32 ? (unsigned)count : 32;
}

static void bits_run_szext(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  unsigned length = bits_limited(alu, in[1]);
  uint64_t value = in[0] & bits_ones(length);
  out[0] = length == 0 ? 0 : (uint32_t)alu_extend(value, (int)length, alu->detail[ALU_SIGNED]);
}

static void bits_run_bmsk(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[])
{
  out[0] = (uint32_t)(bits_ones(bits_limited(alu, in[1])) << bits_limited(alu, in[0]));
}

// Takes the last word, a type of the set, and makes all operands of that type.
static bool bits_take_type(struct alu_opcode *op, uint32_t set, int ins)
{
  enum alu_type type;
  if (!alu_take_type(op, set, &type))
    return false;
  alu_set_type(op->alu, type);
  alu_shape(op->alu, 1, ins, type);
  return true;
}

static bool bits_parse_mov(struct alu_opcode *op, int which)
{
  uint32_t set = ALU_INT_SET | ALU_B_SET | ALU_SET(ALU_PRED) | ALU_SET(ALU_F32) | ALU_SET(ALU_F64);
  op->alu->detail[ALU_OP] = which;
  op->alu->run = bits_run_mov;
  return bits_take_type(op, set, 1);
}

static bool bits_parse_logic(struct alu_opcode *op, int which)
{
  static void (*const runs[])(const struct ptx_alu *, const uint64_t *, uint64_t *) = {
      [AND] = alu_run_and, [OR] = alu_run_or, [XOR] = alu_run_xor, [NOT] = alu_run_not, [CNOT] = bits_run_cnot};
  uint32_t set = which == CNOT ? ALU_B_SET : ALU_B_SET | ALU_SET(ALU_PRED);
  op->alu->run = runs[which];
  return bits_take_type(op, set, which == NOT || which == CNOT ? 1 : 2);
}

static bool bits_parse_shift(struct alu_opcode *op, int which)
{
  op->alu->run = which == LEFT ? alu_run_shl : alu_run_shr;
  if (!bits_take_type(op, which == LEFT ? ALU_B_SET : ALU_B_SET | ALU_INT_SET, 2))
    return false;
  op->alu->in_bytes[1] = 4;
  return true;
}

// .clamp or .wrap, one of which must be there.
static bool bits_take_limit(struct alu_opcode *op)
{
  alu_take_flag(op, "wrap", ALU_WRAP);
  return (op->alu->detail[ALU_FLAGS] & ALU_WRAP) || alu_take(op, "clamp") || alu_refuse(op, "needs .clamp or .wrap");
}

static bool bits_parse_shf(struct alu_opcode *op, int which)
{
  (void)which;
  bool left = alu_take(op, "l");
  if (!left && !alu_take(op, "r"))
    return alu_refuse(op, "needs .l or .r");
  op->alu->detail[ALU_OP] = left ? LEFT : RIGHT;
  op->alu->run = bits_run_shf;
  return bits_take_limit(op) && bits_take_type(op, ALU_SET(ALU_B32), 3);
}

static bool bits_parse_lop3(struct alu_opcode *op, int which)
{
  static const char *const words[] = {"or", "and", NULL};
  (void)which;
  int combine = alu_take_one(op, words);
  op->alu->run = bits_run_lop3;
  if (!bits_take_type(op, ALU_SET(ALU_B32), combine < 0 ? 4 : 5))
    return false;
  if (combine >= 0) {
    op->alu->detail[ALU_OP] = combine == 0 ? OR : AND;
    op->alu->outs = 2;
    op->alu->out_bytes[1] = op->alu->in_bytes[4] = 0;
  }
  return true;
}

static bool bits_parse_prmt(struct alu_opcode *op, int which)
{
  static const char *const modes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16", NULL};
  (void)which;
  op->alu->run = bits_run_prmt;
  if (!bits_take_type(op, ALU_SET(ALU_B32), 3))
    return false;
  op->alu->detail[ALU_OP] = alu_take_one(op, modes);
  return true;
}

static bool bits_parse_bfe(struct alu_opcode *op, int which)
{
  (void)which;
  op->alu->run = bits_run_bfe;
  if (!bits_take_type(op, ALU_X32_SET | ALU_X64_SET, 3))
    return false;
  op->alu->in_bytes[1] = op->alu->in_bytes[2] = 4;
  return true;
}

static bool bits_parse_bfi(struct alu_opcode *op, int which)
{
  (void)which;
  op->alu->run = bits_run_bfi;
  if (!bits_take_type(op, ALU_SET(ALU_B32) | ALU_SET(ALU_B64), 4))
    return false;
  op->alu->in_bytes[2] = op->alu->in_bytes[3] = 4;
  return true;
}

static bool bits_parse_bfind(struct alu_opcode *op, int which)
{
  (void)which;
  alu_take_flag(op, "shiftamt", ALU_SHIFT);
  op->alu->run = bits_run_bfind;
  if (!bits_take_type(op, ALU_X32_SET | ALU_X64_SET, 1))
    return false;
  op->alu->out_bytes[0] = 4;
  return true;
}

static bool bits_parse_count(struct alu_opcode *op, int which)
{
  op->alu->detail[ALU_OP] = which;
  op->alu->run = which == BREV ? bits_run_brev : bits_run_count;
  if (!bits_take_type(op, ALU_SET(ALU_B32) | ALU_SET(ALU_B64), 1))
    return false;
  op->alu->out_bytes[0] = which == BREV ? op->alu->in_bytes[0] : 4;
  return true;
}

static bool bits_parse_fns(struct alu_opcode *op, int which)
{
  (void)which;
  op->alu->run = bits_run_fns;
  return bits_take_type(op, ALU_SET(ALU_B32), 3);
}

static bool bits_parse_szext(struct alu_opcode *op, int which)
{
  (void)which;
  op->alu->run = bits_run_szext;
  return bits_take_limit(op) && bits_take_type(op, ALU_X32_SET, 2);
}

static bool bits_parse_bmsk(struct alu_opcode *op, int which)
{
  (void)which;
  op->alu->run = bits_run_bmsk;
  return bits_take_limit(op) && bits_take_type(op, ALU_SET(ALU_B32), 2);
}

const struct alu_root alu_bits_roots[] = {
    {"mov", bits_parse_mov, 0},      {"and", bits_parse_logic, AND},   {"or", bits_parse_logic, OR},
    {"xor", bits_parse_logic, XOR},  {"not", bits_parse_logic, NOT},   {"cnot", bits_parse_logic, CNOT},
    {"shl", bits_parse_shift, LEFT}, {"shr", bits_parse_shift, RIGHT}, {"shf", bits_parse_shf, 0},
    {"lop3", bits_parse_lop3, 0},    {"prmt", bits_parse_prmt, 0},     {"bfe", bits_parse_bfe, 0},
    {"bfi", bits_parse_bfi, 0},      {"bfind", bits_parse_bfind, 0},   {"popc", bits_parse_count, POPC},
    {"clz", bits_parse_count, CLZ},  {"brev", bits_parse_count, BREV}, {"fns", bits_parse_fns, 0},
    {"szext", bits_parse_szext, 0},  {"bmsk", bits_parse_bmsk, 0},     {NULL, NULL, 0},
};
