#include "alu_priv.h"

#include <stdio.h>
#include <string.h>

enum kind { UNSIGNED, SIGNED, BITS, FLOATING };

static const struct type {
  const char *name;
  uint8_t bytes; // of all lanes
  uint8_t lanes;
  uint8_t kind;
  uint8_t lane; // enum alu_type
} types[ALU_TYPES] = {
    [ALU_U8] = {"u8", 1, 1, UNSIGNED, ALU_U8},
    [ALU_U16] = {"u16", 2, 1, UNSIGNED, ALU_U16},
    [ALU_U32] = {"u32", 4, 1, UNSIGNED, ALU_U32},
    [ALU_U64] = {"u64", 8, 1, UNSIGNED, ALU_U64},
    [ALU_S8] = {"s8", 1, 1, SIGNED, ALU_S8},
    [ALU_S16] = {"s16", 2, 1, SIGNED, ALU_S16},
    [ALU_S32] = {"s32", 4, 1, SIGNED, ALU_S32},
    [ALU_S64] = {"s64", 8, 1, SIGNED, ALU_S64},
    [ALU_B8] = {"b8", 1, 1, BITS, ALU_B8},
    [ALU_B16] = {"b16", 2, 1, BITS, ALU_B16},
    [ALU_B32] = {"b32", 4, 1, BITS, ALU_B32},
    [ALU_B64] = {"b64", 8, 1, BITS, ALU_B64},
    [ALU_PRED] = {"pred", 0, 1, BITS, ALU_PRED},
    [ALU_F16] = {"f16", 2, 1, FLOATING, ALU_F16},
    [ALU_BF16] = {"bf16", 2, 1, FLOATING, ALU_BF16},
    [ALU_TF32] = {"tf32", 4, 1, FLOATING, ALU_TF32},
    [ALU_F32] = {"f32", 4, 1, FLOATING, ALU_F32},
    [ALU_F64] = {"f64", 8, 1, FLOATING, ALU_F64},
    [ALU_E4M3] = {"", 1, 1, FLOATING, ALU_E4M3},
    [ALU_E5M2] = {"", 1, 1, FLOATING, ALU_E5M2},
    [ALU_U16X2] = {"u16x2", 4, 2, UNSIGNED, ALU_U16},
    [ALU_S16X2] = {"s16x2", 4, 2, SIGNED, ALU_S16},
    [ALU_F16X2] = {"f16x2", 4, 2, FLOATING, ALU_F16},
    [ALU_BF16X2] = {"bf16x2", 4, 2, FLOATING, ALU_BF16},
    [ALU_F32X2] = {"f32x2", 8, 2, FLOATING, ALU_F32},
    [ALU_E4M3X2] = {"e4m3x2", 2, 2, FLOATING, ALU_E4M3},
    [ALU_E5M2X2] = {"e5m2x2", 2, 2, FLOATING, ALU_E5M2},
};

static const struct alu_root *const root_tables[] = {alu_int_roots, alu_bits_roots, alu_compare_roots, alu_float_roots,
                                                     alu_convert_roots};

int alu_type_bytes(enum alu_type type)
{
  return types[type].bytes;
}

enum alu_type alu_lane(enum alu_type type)
{
  return types[type].lane;
}

bool alu_type_signed(enum alu_type type)
{
  return types[type].kind == SIGNED;
}

bool alu_type_float(enum alu_type type)
{
  return types[type].kind == FLOATING;
}

void alu_shape(struct ptx_alu *alu, int outs, int ins, enum alu_type type)
{
  alu->outs = outs;
  alu->ins = ins;
  memset(alu->out_bytes, types[type].bytes, (size_t)outs);
  memset(alu->in_bytes, types[type].bytes, (size_t)ins);
}

void alu_set_type(struct ptx_alu *alu, enum alu_type type)
{
  alu->detail[ALU_TYPE] = types[type].lane;
  alu->detail[ALU_LANES] = types[type].lanes;
  alu->detail[ALU_SIGNED] = alu_type_signed(type);
  alu->detail[ALU_BITS] = type == ALU_PRED ? 1 : 8 * types[type].bytes / types[type].lanes;
}

bool alu_refuse(struct alu_opcode *op, const char *what)
{
  snprintf(op->why, PTX_TEXT, "%s: %s", op->whole, what);
  return false;
}

// Characters of the next modifier, without its dot; 0 when there is none.
static size_t word_length(const struct alu_opcode *op)
{
  return *op->rest == '.' ? strcspn(op->rest + 1, ".") : 0;
}

bool alu_take(struct alu_opcode *op, const char *word)
{
  size_t length = word_length(op);
  if (length == 0 || op->rest[1] != *word || length != strlen(word) || strncmp(op->rest + 1, word, length) != 0)
    return false;
  op->rest += 1 + length;
  return true;
}

int alu_take_one(struct alu_opcode *op, const char *const words[])
{
  for (int i = 0; words[i]; i++) {
    if (alu_take(op, words[i]))
      return i;
  }
  return -1;
}

void alu_take_flag(struct alu_opcode *op, const char *word, enum alu_flags flag)
{
  if (alu_take(op, word))
    op->alu->detail[ALU_FLAGS] |= flag;
}

bool alu_take_type(struct alu_opcode *op, uint32_t set, enum alu_type *type)
{
  for (int i = 0; i < ALU_TYPES; i++) {
    if ((set & ALU_SET(i)) && alu_take(op, types[i].name)) {
      *type = i;
      return true;
    }
  }
  if (*op->rest)
    snprintf(op->why, PTX_TEXT, "%s: %s is no modifier or type that is possible here", op->whole, op->rest);
  else
    snprintf(op->why, PTX_TEXT, "%s: a type is missing", op->whole);
  return false;
}

bool alu_end(struct alu_opcode *op)
{
  if (!*op->rest)
    return true;
  snprintf(op->why, PTX_TEXT, "%s: %s is too much", op->whole, op->rest);
  return false;
}

// Whether the opcode's last word is a type of floating point: tells the roots that both kinds have apart.
static bool ends_as_float(const char *opcode)
{
  const char *last = strrchr(opcode, '.');
  for (int i = 0; last && i < ALU_TYPES; i++) {
    if (types[i].kind == FLOATING && strcmp(last + 1, types[i].name) == 0)
      return true;
  }
  return false;
}

static const struct alu_root *find_root(const struct alu_root *roots, const char *opcode, size_t length)
{
  for (; roots->word; roots++) {
    if (*roots->word == *opcode && strlen(roots->word) == length && strncmp(roots->word, opcode, length) == 0)
      return roots;
  }
  return NULL;
}

bool ptx_alu_find(const char *opcode, struct ptx_alu *alu, char why[PTX_TEXT])
{
  size_t length = strcspn(opcode, ".");
  const struct alu_root *root = ends_as_float(opcode) ? find_root(alu_float_roots, opcode, length) : NULL;
  for (size_t i = 0; !root && i < sizeof root_tables / sizeof *root_tables; i++)
    root = find_root(root_tables[i], opcode, length);
  why[0] = 0;
  if (!root)
    return false;
  *alu = (struct ptx_alu){0};
  struct alu_opcode op = {.whole = opcode, .rest = opcode + length, .alu = alu, .why = why};
  return root->parse(&op, root->which) && alu_end(&op);
}
