// cost_priv.h: the clock that schedules are walked on (cost_walk.c), for the model (cost.c).
#pragma once
#include "coll/cost.h"

enum { TT_WALK_PASSES = 2 };

// In microseconds.
typedef struct tt_walk_times {
  double end[TT_WALK_PASSES]; // when the first passes have ended on all ranks
  double period;              // what every further one adds
} tt_walk_times;

// Walks all[0..nranks), one schedule per rank, with chunks of `chunk` bytes. All times are HUGE_VAL when the schedules
// ask for direct access between nodes. ncclSystemError when out of memory, ncclInternalError when the schedules get
// stuck.
ncclResult_t tt_cost_walk(const tt_cost_env *env, const tt_layout *layout, const tt_schedule *const *all,
                          tt_proto proto, double chunk, tt_walk_times *out);
