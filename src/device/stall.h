// stall.h: plans that do not move: what the rank shows of that, and the verdict, which says which rank is the cause.
//
// A rank whose plan has not moved shows on its page which rank it waits for. So a rank can follow which rank waits for
// which, up to a rank that does not wait, the cause, or round in a circle. After NCCL_STALL_WARN_MS the lowest rank of
// a machine that waits for a cause reports it, and again after twice as long each time. A circle in which no rank can
// move any more is a deadlock, and an error. So is any wait after NCCL_STALL_ERROR_MS.
#pragma once
#include "device/verdict.h"

// All lanes of the plan, which has begun, were looked at just now; that began at `seen_ns`. The runner; now and then.
// Returns an error with which the port is to be stopped: ncclInvalidUsage (a deadlock), ncclTimeout; else ncclSuccess.
ncclResult_t tt_stall_look(tt_plan *p, uint64_t seen_ns);

// The same of any work.
typedef struct tt_stalled {
  tt_port *port;
  tt_stall *stall;
  uint64_t mark;       // where the work is: another value when it has moved
  const tt_wait *wait; // what it waits for: sig, count, peer, how; NULL: for no rank
  int32_t error_ms;    // as tt_plan.stall_error_ms
  bool batch;          // a batch of one-sided operations
} tt_stalled;
ncclResult_t tt_stall_look_at(const tt_stalled *k, uint64_t seen_ns);

// The plan stands behind `current` in its stream, which is blocked: its rank shows that. The runner; now and then.
void tt_stall_behind(tt_plan *p, const tt_work *current);

// What TT_HELD_… or tt_held_put says stands in a stream behind the batch whose wait this is. The runner of both.
void tt_stall_hold(tt_port *port, const tt_stall *s, uint32_t what);

// Shows that the work stands behind `current`, which is of another port or of none. The runner of both.
void tt_stall_show_behind(tt_port *port, tt_stall *s, const tt_work *current);

// The work is over: complete, or given up. The runner.
void tt_stall_over(tt_port *port, tt_stall *s, bool complete);

static inline void tt_stall_end(tt_plan *p, bool complete)
{
  tt_stall_over(p->port, &p->stall, complete);
}

// The plan begins. The runner.
static inline void tt_stall_begin(tt_plan *p)
{
  if (TT_UNLIKELY(p->stall.since_ns != 0)) {
    tt_stall_end(p, false);
  }
}

// The row's `tell` and `view` (device.h).
void tt_stall_tell(const tt_port *port, tt_verdict *out);
bool tt_stall_view(const tt_port *port, int rank, tt_rank_view *out);
