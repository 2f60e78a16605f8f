// stall.h: plans that do not move: what the rank shows of that, and the verdict, which says who is the cause.
//
// A rank whose plan has not moved shows on its page which rank it waits for. So a rank can follow who waits for whom,
// up to a rank that does not wait, the cause, or round in a circle. After NCCL_STALL_WARN_MS the lowest rank of a
// machine that waits for a cause reports it, and again after twice as long each time. A circle in which no rank can
// move any more is a deadlock, and an error. So is any wait after NCCL_STALL_ERROR_MS.
#pragma once
#include "device/lane.h"

// All lanes of the plan, which has begun, were looked at just now; that began at `seen_ns`. The runner; now and then.
// Returns an error with which the port is to be stopped: ncclInvalidUsage (a deadlock), ncclTimeout; else ncclSuccess.
ncclResult_t tt_stall_look(tt_plan *p, uint64_t seen_ns);

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
