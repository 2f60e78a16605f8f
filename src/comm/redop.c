// redop.c: user-defined operations (pre-multiplied sums).
#include "comm/redop.h"

#include "base/result.h"
#include "comm/comm.h"
#include "comm/task.h"

static bool is_integer(ncclDataType_t type)
{
  static const uint8_t exponents[] = {
#define T(id, word, bytes, cls, exponent, ...) [nccl##id] = (exponent),
#include "base/types.def"
  };
  return exponents[type] == 0;
}

// Not all operations are there for all types.
static ncclResult_t check_type(const tt_task *t, const char *what, int code)
{
  if (!tt_opcode_is_bitwise(code) || is_integer(t->type)) {
    return ncclSuccess;
  }
  return tt_fail(
      ncclInvalidArgument,
      "%s on rank %d: operation %s is for integer types, not for %s; reduce the bits as integers of the same "
      "size, or use a logical operation",
      what, t->comm->rank, tt_opcode_name(code), tt_type_name((int)t->type));
}

ncclResult_t tt_op_take(tt_task *t, const char *what)
{
  const struct ncclComm *comm = t->comm;
  int op = (int)t->op, i = op - ncclNumOps, code = tt_opcode_of(t->op);
  if (code != TT_OP_SCALED) {
    return check_type(t, what, code);
  }
  if (i < 0 || i >= comm->userops.n || !comm->userops.ops[i].live) {
    return tt_fail(
        ncclInvalidArgument,
        "%s on rank %d: operation %d is neither one of ncclSum..ncclAvg and tuttiBitAnd..tuttiLogicalXor nor a live "
        "handle of this communicator",
        what, comm->rank, op);
  }
  const tt_userop *u = &comm->userops.ops[i];
  if (u->type != t->type) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: operation %d was created for %s, not for %s", what, comm->rank,
                   op, tt_type_name(u->type), tt_type_name(t->type));
  }
  t->scalar = u->scalar;
  t->device_scalar = u->device_scalar;
  return ncclSuccess;
}

void tt_op_resolve(const tt_task *t, tt_redop *out, const void **device_scalar)
{
  bool builtin = tt_opcode_of(t->op) != TT_OP_SCALED;
  *device_scalar = builtin ? NULL : t->device_scalar;
  tt_redop_builtin(out, t->type, t->op, t->comm->nranks);
  if (!builtin) {
    out->prescale = 1;
    out->scalar = t->scalar;
  }
}
