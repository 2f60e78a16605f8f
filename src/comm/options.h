// options.h: what one call wants otherwise than the rest of its communicator (ncclCollConfig_t): kept once for all
// calls that want the same. A task names it by a number in its kind, so calls with different options have decisions of
// their own, and a call without options pays nothing.
#pragma once
#include "coll/selection.h"
#include "comm/comm.h"
#include "comm/task.h"
#include "comm/tuning.h"

typedef struct tt_call_options {
  tt_selection algos;     // both sets empty: all are allowed
  int32_t max_channels;   // 0: as many as the communicator has
  int32_t stall_error_ms; // 0: as NCCL_STALL_ERROR_MS says; -1: never
} tt_call_options;

// What a call asks for. The texts stay the caller's.
typedef struct tt_call_wish {
  const char *selection; // algSelection; NULL: none
  bool forced;           // a selection that cannot be used is an error
  bool rank_order;       // TUTTI_OPTION_RANK_ORDER
  tt_call_options options;
} tt_call_wish;

// Gives the task, whose arguments have been checked, the wish's options. Errors: ncclInvalidArgument (the selection is
// wrong or cannot be used, and is forced), ncclInvalidUsage (rank order cannot be had; the communicator has seen too
// many different options), ncclSystemError. The launching thread, inside.
ncclResult_t tt_comm_wish(tt_task *t, const char *what, const tt_call_wish *wish);

// The task's options; NULL: none. Good until the next tt_comm_wish.
static inline const tt_call_options *tt_task_options(const tt_task *t)
{
  unsigned number = tt_kind_options(t->kind);
  return TT_LIKELY(number == 0) ? NULL : &t->comm->decisions.options[number - 1];
}

// Changes a choice that the options do not allow: another algorithm or protocol, fewer channels. Errors:
// ncclInvalidUsage (nothing is left), ncclSystemError. The launching thread.
ncclResult_t tt_options_choose(const tt_task *t, const tt_call_options *o, bool in_network, tt_choice *choice);
