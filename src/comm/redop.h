// redop.h: user-defined operations (redop.c): what ncclRedOpCreatePreMulSum makes. The launching thread calls all of
// it.
#pragma once
#include "comm/task.h"

// A user-defined operation.
typedef struct tt_userop {
  bool live;
  int next_free; // as tt_comm_userops.first_free
  ncclDataType_t type;
  const void *device_scalar; // read when the plan starts; NULL: `scalar` is it
  uint64_t scalar;
} tt_userop;

// Checks the operation of a call, and copies a user-defined one into the task. Errors: ncclInvalidArgument (no live
// handle of this communicator, or of another type; bitwise, and the type is no integer).
ncclResult_t tt_op_take(tt_task *t, const char *what);
// Fills in what the kernels need of a task's operation.
void tt_op_resolve(const tt_task *t, tt_redop *out, const void **device_scalar);
