// cost_priv.h: the clock that schedules are walked on (cost_walk.c), for the model (cost.c).
#pragma once
#include "coll/cost.h"

enum { TT_WALK_PASSES = 2 };

// In microseconds.
typedef struct tt_walk_times {
  double end[TT_WALK_PASSES]; // when the first passes have ended on all ranks
  double period;              // what every further one adds
} tt_walk_times;

// What is walked: so many passes, with chunks of `chunk` bytes. `cycle` of them are an operation (0: all together are
// one); its last one has chunks of `last` bytes, and a rank begins the next when all its strands have ended it.
typedef struct tt_walk_passes {
  tt_proto proto;
  int count, cycle;
  double chunk, last;
  double late; // ranks other than 0 begin so many microseconds later
} tt_walk_passes;

// What came of it, in microseconds.
typedef struct tt_walk_result {
  double busiest; // what all passes ask of the busiest rank, core or network
  double longest; // from a rank's beginning to its end, of the rank that took longest
} tt_walk_result;

// Walks all[0..nranks), one schedule per rank. ends[p]: when pass p has ended on all ranks. All times are HUGE_VAL when
// the schedules ask for direct access between nodes. ncclSystemError when out of memory, ncclInternalError when the
// schedules get stuck.
ncclResult_t tt_cost_walk_passes(const tt_cost_env *env, const tt_layout *layout, const tt_schedule *const *all,
                                 const tt_walk_passes *passes, double *ends, tt_walk_result *out);

// The first passes with chunks of `chunk` bytes, and what every further one takes. Errors as above.
ncclResult_t tt_cost_walk(const tt_cost_env *env, const tt_layout *layout, const tt_schedule *const *all,
                          tt_proto proto, double chunk, tt_walk_times *out);
