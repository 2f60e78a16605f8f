// launch.h: operations of one communicator become plans in streams (launch.c), nodes of a graph (capture.c), or an
// estimate (simulate.c). The launching thread calls all of it.
#pragma once
#include "comm/task.h"

// Launches the operations of one communicator, in order, except those that are over. Small ones look `looks` times for
// each message that has not come. Takes the events of those it launches (profile.h).
ncclResult_t tt_comm_launch(struct ncclComm *comm, tt_task *tasks, size_t n, unsigned looks);
// Call it while some stream of the process is captured (tt_capturing). If the tasks' streams are captured, records the
// tasks in the graph; then do not launch them. Errors: ncclInvalidUsage where only some of them are captured.
ncclResult_t tt_comm_capture(struct ncclComm *comm, const tt_task *tasks, size_t n, bool *captured);

// Frees plans that are complete.
void tt_comm_free_plans(struct ncclComm *comm);

// How long the operations of one communicator would take (simulate.c): collectives one after the other, then all
// messages side by side.
ncclResult_t tt_comm_simulate(struct ncclComm *comm, const tt_task *tasks, size_t n, double *us);
