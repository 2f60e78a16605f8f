// stall.h: plans that do not move: what the rank shows of that, and the verdict, which says who is the cause.
//
// A rank whose plan has not moved shows on its page whom it waits for. From the pages of the ranks of its machine every
// rank can follow who waits for whom, up to a rank that does not wait (the cause), or round in a circle. After
// NCCL_STALL_WARN_MS the first of the ranks that wait for a cause says so, and again after twice as long each time. A
// circle in which no rank can move any more is an error at once, and so is any wait after NCCL_STALL_ERROR_MS.
#pragma once
#include "device/lane.h"

// The plan has begun, and none of its lanes has moved when they were looked at just now. The runner; now and then.
// Returns an error with which the port is to be stopped: ncclInvalidUsage (a circle), ncclTimeout; else ncclSuccess.
ncclResult_t tt_stall_look(tt_plan *p);

// The plan stands behind `current` in its stream, which is blocked: its rank shows that. The runner; now and then.
void tt_stall_behind(tt_plan *p, const tt_work *current);

// The plan is over: complete, or given up. The runner.
void tt_stall_end(tt_plan *p, bool complete);

// The plan begins. The runner.
static inline void tt_stall_begin(tt_plan *p)
{
  if (TT_UNLIKELY(p->stall.since_ns != 0)) {
    tt_stall_end(p, false);
  }
}
