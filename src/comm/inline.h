// inline.h: runs programs of small calls inside the call (inline.c): which ones, when, and for how long.
#pragma once
#include "comm/task.h"

// Looks at a message that has not come, before a plan waits for it: 0.5 to 2 µs, about as long as a plan takes.
#define TT_INLINE_LOOKS 512

// Runs the task's program inside the call, as far as possible without waiting; tt_comm_launch does the rest. Returns
// true if nothing is left. Looks `looks` times for a message that has not come; 0: once, and never waits. The launching
// thread.
bool tt_comm_run(tt_task *t, unsigned looks);
// The same for tasks of one group, if they are of different communicators on different streams: they may wait for each
// other. *all: nothing is left of any. Errors: those of tt_comm_decide; then none has begun.
ncclResult_t tt_comm_run_together(tt_task *tasks, size_t n, bool *all);
// The messages among a communicator's tasks of one group: decides them, then, if all are on one stream, runs each as
// above, in the order of their directions. `looks` may be 0. *left: how many are not over. Errors: those of
// tt_comm_decide; then none has begun.
ncclResult_t tt_comm_run_messages(tt_task *tasks, size_t n, unsigned looks, int *left);
// Some task has failed with `res`, which this returns. If a task has begun, peers have received a part of it: that ends
// the communicator.
ncclResult_t tt_comm_run_failed(struct ncclComm *comm, const tt_task *tasks, size_t n, ncclResult_t res);
