// opcode.h: the operations of reductions by small numbers: what fingerprints, kinds of call and records carry.
#pragma once
#include <stdbool.h>

#include "tutti.h"

// 0 to ncclNumOps - 1: ncclRedOp_t's own. The numbers travel between ranks and stand in dumps: they keep their meaning.
typedef enum {
  TT_OP_SCALED = ncclNumOps, // of ncclRedOpCreatePreMulSum
  TT_OP_NONE,                // of a function that reduces nothing
  TT_OP_BIT_AND,
  TT_OP_BIT_OR,
  TT_OP_BIT_XOR,
  TT_OP_LOGICAL_AND,
  TT_OP_LOGICAL_OR,
  TT_OP_LOGICAL_XOR,
  TT_OP_FUNCTION, // of tuttiRedOpCreateUser; in any order
  TT_OP_ORDERED,  // the same, in the order of the ranks
  TT_OPCODES
} tt_opcode;

// The number of an operation: TT_OP_SCALED for every handle, and for what is no operation. Pure.
static inline int tt_opcode_of(ncclRedOp_t op)
{
  unsigned own = (unsigned)op - (unsigned)tuttiBitAnd;
  if (own <= TT_OP_LOGICAL_XOR - TT_OP_BIT_AND) {
    return TT_OP_BIT_AND + (int)own;
  }
  return (unsigned)op < ncclNumOps ? (int)op : TT_OP_SCALED;
}

static inline bool tt_opcode_is_bitwise(int code)
{
  return code >= TT_OP_BIT_AND && code <= TT_OP_BIT_XOR;
}

static inline bool tt_opcode_is_logical(int code)
{
  return code >= TT_OP_LOGICAL_AND && code <= TT_OP_LOGICAL_XOR;
}

// "sum", "bitand", … for messages; "?" when unknown.
const char *tt_opcode_name(int code);
