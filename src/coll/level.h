// level.h: an order in which a rank can take the steps of all its strands, one after the other.
//
// Strands of a schedule run side by side. A stream of a GPU takes one step after the other, and waits where a step has
// to wait. So steps must stand there in an order in which no ranks wait for each other in a circle. The level of a step
// is the round in which it is taken if all ranks of the communicator take, in each round, all steps for which the
// rounds before have made ready. A step depends on steps of lower levels alone, or on earlier steps of its strand. So
// ranks that take their steps by their levels never wait in a circle, whichever ranks they are.
#pragma once
#include "coll/coll.h"

// Gives each step of `own`, which was written for the shape, its level (tt_step.level). Takes time and memory for the
// schedules of all ranks, and memory for each pair of them; for a message those of its two ends. Errors:
// ncclSystemError, ncclInvalidUsage (more rounds than a level can count), ncclInternalError (the schedules never end:
// they are wrong).
ncclResult_t tt_schedule_level(const tt_algorithm *a, const tt_shape *shape, tt_schedule *own);
