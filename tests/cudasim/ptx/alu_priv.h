// alu_priv.h: what the files of the arithmetic share: the types of PTX, the reader of an opcode's modifiers, and the
// places of struct ptx_alu's details.
#ifndef TUTTI_TESTS_CUDASIM_ALU_PRIV_H
#define TUTTI_TESTS_CUDASIM_ALU_PRIV_H

#include "alu.h"

__extension__ typedef unsigned __int128 alu_wide;

enum alu_type {
  ALU_U8,
  ALU_U16,
  ALU_U32,
  ALU_U64,
  ALU_S8,
  ALU_S16,
  ALU_S32,
  ALU_S64,
  ALU_B8,
  ALU_B16,
  ALU_B32,
  ALU_B64,
  ALU_PRED,
  ALU_F16,
  ALU_BF16,
  ALU_TF32,
  ALU_F32,
  ALU_F64,
  ALU_E4M3, // only as a lane
  ALU_E5M2,
  ALU_U16X2,
  ALU_S16X2,
  ALU_F16X2,
  ALU_BF16X2,
  ALU_F32X2,
  ALU_E4M3X2,
  ALU_E5M2X2,
  ALU_TYPES
};

// Sets of types.
#define ALU_SET(type) (1u << (type))
#define ALU_U_SET (ALU_SET(ALU_U16) | ALU_SET(ALU_U32) | ALU_SET(ALU_U64))
#define ALU_S_SET (ALU_SET(ALU_S16) | ALU_SET(ALU_S32) | ALU_SET(ALU_S64))
#define ALU_B_SET (ALU_SET(ALU_B16) | ALU_SET(ALU_B32) | ALU_SET(ALU_B64))
#define ALU_X32_SET (ALU_SET(ALU_U32) | ALU_SET(ALU_S32))
#define ALU_X64_SET (ALU_SET(ALU_U64) | ALU_SET(ALU_S64))
#define ALU_X16X2_SET (ALU_SET(ALU_U16X2) | ALU_SET(ALU_S16X2))
#define ALU_INT_SET (ALU_U_SET | ALU_S_SET)
#define ALU_HALF_SET (ALU_SET(ALU_F16) | ALU_SET(ALU_F16X2))
#define ALU_BFLOAT_SET (ALU_SET(ALU_BF16) | ALU_SET(ALU_BF16X2))
#define ALU_FLOAT_SET \
  (ALU_SET(ALU_F32) | ALU_SET(ALU_F64) | ALU_SET(ALU_F32X2) | ALU_HALF_SET | ALU_BFLOAT_SET) // of arithmetic

// What the details of an instruction mean.
enum alu_detail {
  ALU_OP,     // which of the operations that share a run function
  ALU_TYPE,   // of the operands; in a packed instruction, of a lane
  ALU_BITS,   // of an integer operand, or of one lane
  ALU_SIGNED, // 1: an integer with a sign
  ALU_LANES,  // 2: packed
  ALU_ROUND,  // enum alu_round
  ALU_FLAGS,  // of alu_flags
  ALU_FROM,   // type of the source, where ALU_TYPE is the destination's
};

enum alu_flags {
  ALU_FTZ = 1,
  ALU_SAT = 2,
  ALU_RELU = 4,
  ALU_NAN = 8, // .NaN: a NaN operand makes the result NaN
  ALU_XORSIGN = 16,
  ALU_SATFINITE = 32,
  ALU_HI = 64, // .hi, where the default is .lo
  ALU_WIDE = 128,
  ALU_WRAP = 256, // .wrap, where the default is .clamp
  ALU_SHIFT = 512,
  ALU_TO_INT = 1024, // .rni, .rzi, .rmi, .rpi: rounds to an integral value
};

// An opcode that is being read: rest points behind what was taken, at a '.' or the end.
struct alu_opcode {
  const char *whole, *rest;
  struct ptx_alu *alu;
  char *why;
};

struct alu_root {
  const char *word;
  bool (*parse)(struct alu_opcode *op, int which);
  int which;
};

// Takes the next modifier if it is this word.
bool alu_take(struct alu_opcode *op, const char *word);

// Takes the next modifier if it is one of the words (ended by NULL); which, or -1.
int alu_take_one(struct alu_opcode *op, const char *const words[]);

// Sets a flag of the instruction if the next modifier is this word.
void alu_take_flag(struct alu_opcode *op, const char *word, enum alu_flags flag);

// Takes the next modifier, which must be a type of the set. False, with a text, when it is not.
bool alu_take_type(struct alu_opcode *op, uint32_t set, enum alu_type *type);

// False, with a text, when something is left of the opcode.
bool alu_end(struct alu_opcode *op);

// Writes why the opcode is none; returns false.
bool alu_refuse(struct alu_opcode *op, const char *what);

// Writes the operands of an instruction: ins and outs of a type each. Type ALU_PRED has 0 bytes.
void alu_shape(struct ptx_alu *alu, int outs, int ins, enum alu_type type);

// Sets ALU_TYPE, ALU_BITS, ALU_SIGNED and ALU_LANES to what the type says of a lane.
void alu_set_type(struct ptx_alu *alu, enum alu_type type);

// Bytes of a value of the type; 0 of a predicate.
int alu_type_bytes(enum alu_type type);

// The type of one lane of a packed type; another type itself.
enum alu_type alu_lane(enum alu_type type);

// True of the signed integers.
bool alu_type_signed(enum alu_type type);

// True of the floating-point types, packed ones too.
bool alu_type_float(enum alu_type type);

// The roots that each file reads; ended by one without a word.
extern const struct alu_root alu_int_roots[], alu_bits_roots[], alu_compare_roots[], alu_float_roots[],
    alu_convert_roots[];

// Roots that floats and integers share are read as integers unless the opcode's last word is a float type.
static inline uint64_t alu_mask(int bits)
{
  return ~(uint64_t)0 >> (64 - bits);
}

// The value's sign in all 64 bits, if it is a signed one.
static inline uint64_t alu_extend(uint64_t value, int bits, bool is_signed)
{
  uint64_t sign = (uint64_t)is_signed << (bits - 1);
  return (value ^ sign) - sign;
}

#endif
