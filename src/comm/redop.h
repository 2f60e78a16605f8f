// redop.h: operations that a program makes (redop.c): those of ncclRedOpCreatePreMulSum and tuttiRedOpCreateUser. The
// launching thread calls all of it, inside.
#pragma once
#include "comm/task.h"

enum { TT_USEROPS_MOST = 1 << 22 }; // of a communicator at a time

// Such an operation.
typedef struct tt_userop {
  ncclRedOp_t handle; // 0: the place is free
  int code;           // TT_OP_SCALED, or TT_OP_FUNCTION or TT_OP_ORDERED with `fn` and `arg`
  ncclDataType_t type;
  const void *device_scalar; // read when the plan starts; NULL: `scalar` is it
  uint64_t scalar;
  tuttiRedOpFn_t fn; // NULL: a sum of scaled inputs of `type`
  void *arg;
} tt_userop;

// Adds an operation, whose arguments have been checked, to the communicator's; `what`: the API's function. A handle
// that was freed comes again when all others have been given, after nearly a thousand million operations at least.
// Errors: ncclSystemError (no memory, too many).
ncclResult_t tt_op_create(struct ncclComm *comm, const char *what, const tt_userop *u, ncclRedOp_t *op);
// Frees the handle; calls that were made keep the operation. Errors: ncclInvalidArgument (no live handle of this
// communicator).
ncclResult_t tt_op_destroy(struct ncclComm *comm, ncclRedOp_t op);
// Checks the operation of a call, and copies one that a program made into the task and its kind. Errors:
// ncclInvalidArgument (no live handle of this communicator, or of another type; bitwise, and the type is no integer).
ncclResult_t tt_op_take(tt_task *t, const char *what);
// Fills in what the kernels need of a task's operation.
void tt_op_resolve(const tt_task *t, tt_redop *out, const void **device_scalar);
