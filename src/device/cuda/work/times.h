// times.h: when the channels of operations that profilers watch have run, by the GPU's clock: the kernels of a
// channel's first and last step write that into pinned memory, where the thread of rank.c finds it.
//
// What of the plan is not to be told of (tt_stamp.owner NULL), and what a capture records, has no times.
#pragma once
#include "device/cuda/work/port_priv.h"

// The plan, which is watched, is about to be submitted: its channels get room for their times. Where there is no memory
// for it, profilers hear of none.
void tt_gpu_times_open(tt_gpu_port *p, tt_plan *plan);
// Where the next launch of a lane's step shall write that it begins, and that it ends; 0: nowhere. The submitting
// thread, of lanes whose plan is watched.
uint64_t tt_gpu_time_start(const tt_lane *l);
uint64_t tt_gpu_time_stop(const tt_lane *l);
// Notes channels that have begun since the last look (tt_plan.begun). True: there are any. One thread at a time.
bool tt_gpu_times_look(tt_plan *plan);
// The plan is over: notes all its times, and gives the room back.
void tt_gpu_times_close(tt_plan *plan);
