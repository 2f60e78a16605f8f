// redop.c: user-defined operations (pre-multiplied sums).
#include "base/result.h"
#include "comm/comm.h"

ncclResult_t tt_op_check(const struct ncclComm *comm, ncclRedOp_t op, ncclDataType_t type, const char *what)
{
  int i = (int)op - ncclNumOps;
  if (i < 0 && (int)op >= 0) {
    return ncclSuccess;
  }
  if (i < 0 || i >= comm->nuserops || !comm->userops[i].live) {
    return tt_fail(ncclInvalidArgument,
                   "%s on rank %d: operation %d is neither one of ncclSum..ncclAvg nor a live handle of this communicator", what,
                   comm->rank, (int)op);
  }
  if (comm->userops[i].type != type) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: operation %d was created for %s, not for %s", what, comm->rank, (int)op,
                   tt_type_name(comm->userops[i].type), tt_type_name(type));
  }
  return ncclSuccess;
}

void tt_op_resolve(const tt_task *t, tt_redop *out, const void **device_scalar)
{
  const struct ncclComm *comm = t->comm;
  *device_scalar = NULL;
  if ((int)t->op < ncclNumOps) {
    tt_redop_builtin(out, t->type, t->op, comm->nranks);
    return;
  }
  const tt_userop *u = t->userop != NULL ? t->userop : &comm->userops[(int)t->op - ncclNumOps];
  tt_redop_builtin(out, t->type, ncclSum, comm->nranks);
  out->prescale = 1;
  out->scalar = u->scalar;
  *device_scalar = u->device_scalar;
}
