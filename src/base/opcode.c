// opcode.c: see opcode.h.
#include "base/opcode.h"

const char *tt_opcode_name(int code)
{
  static const char *const names[TT_OPCODES] = {
      [ncclSum] = "sum",
      [ncclProd] = "prod",
      [ncclMax] = "max",
      [ncclMin] = "min",
      [ncclAvg] = "avg",
      [TT_OP_SCALED] = "user-defined",
      [TT_OP_NONE] = "none",
      [TT_OP_BIT_AND] = "bitand",
      [TT_OP_BIT_OR] = "bitor",
      [TT_OP_BIT_XOR] = "bitxor",
      [TT_OP_LOGICAL_AND] = "logicaland",
      [TT_OP_LOGICAL_OR] = "logicalor",
      [TT_OP_LOGICAL_XOR] = "logicalxor",
      [TT_OP_FUNCTION] = "function",
      [TT_OP_ORDERED] = "ordered function",
  };
  return code >= 0 && code < TT_OPCODES ? names[code] : "?";
}
