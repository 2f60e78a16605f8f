// alu.h: PTX instructions whose results depend on the values of their operands alone: arithmetic, comparisons, logic,
// shifts, conversions, data movement within registers. What touches memory, other threads, or the order of instructions
// is not here.
//
// Where PTX leaves a result open, it is here: NaN results are 0x7fffffff (f32, tf32), 0x7fff (f16, bf16), 0x7f (e4m3,
// e5m2) as PTX says, and 0xfff8000000000000 for f64, of which PTX says nothing; abs, neg and copysign of NaN change its
// sign alone. Integer division by zero gives all ones, its remainder the dividend. Approximations (.approx, .full) are
// the host's double rounded to the type. .ftz looks at the rounded result. .sat and .relu make +0 of -0.
#ifndef TUTTI_TESTS_CUDASIM_ALU_H
#define TUTTI_TESTS_CUDASIM_ALU_H

#include <stdbool.h>
#include <stdint.h>

#include "ptx.h"

enum { PTX_ALU_INS = 5, PTX_ALU_OUTS = 3 };

// One instruction, resolved. Values are bits in the low bytes, the rest of the 64 bits is zero; a predicate is 0 or 1
// (0 bytes). The carry flag, where an instruction reads or writes it (addc, add.cc), is the last operand, of 0 bytes.
struct ptx_alu {
  void (*run)(const struct ptx_alu *alu, const uint64_t in[PTX_ALU_INS], uint64_t out[PTX_ALU_OUTS]);
  int ins, outs; // operands, without the carry flag
  bool reads_carry, writes_carry;
  bool sign_extends; // a destination register that is wider than out_bytes[0] gets the sign, not zeros
  uint8_t in_bytes[PTX_ALU_INS], out_bytes[PTX_ALU_OUTS];
  int32_t detail[8]; // of run: rounding, saturation, comparison, types and the like
};

// Finds an instruction by its whole opcode ("add.rn.ftz.f32", "setp.lt.and.u32", "cvt.rn.bf16.f32"). False when it is
// not one of these: why is then empty when the first word of the opcode is unknown here, and else says which modifier
// is wrong or missing.
bool ptx_alu_find(const char *opcode, struct ptx_alu *alu, char why[PTX_TEXT]);

#endif
