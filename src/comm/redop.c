// redop.c: user-defined operations (pre-multiplied sums).
#include "comm/redop.h"

#include "base/result.h"
#include "comm/comm.h"
#include "comm/task.h"

ncclResult_t tt_op_take(tt_task *t, const char *what)
{
  const struct ncclComm *comm = t->comm;
  int op = (int)t->op, i = op - ncclNumOps;
  if (i < 0 && op >= 0) {
    return ncclSuccess;
  }
  if (i < 0 || i >= comm->userops.n || !comm->userops.ops[i].live) {
    return tt_fail(
        ncclInvalidArgument,
        "%s on rank %d: operation %d is neither one of ncclSum..ncclAvg nor a live handle of this communicator", what,
        comm->rank, op);
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
  bool builtin = (int)t->op < ncclNumOps;
  *device_scalar = builtin ? NULL : t->device_scalar;
  tt_redop_builtin(out, t->type, builtin ? t->op : ncclSum, t->comm->nranks);
  if (!builtin) {
    out->prescale = 1;
    out->scalar = t->scalar;
  }
}
