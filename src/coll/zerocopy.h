// zerocopy.h: which steps of a schedule may send straight from the user's buffers, and receive straight into them.
//
// A step LENDS when its messages need no copy: the network reads them where they lie, at any time until the call ends.
// They lie in the step's OUT destination if it has one, else in the IN or OUT chunk that is its only source. So nothing
// may be written there later. A step PLACES when it copies a message to an OUT chunk, and the network may write it
// there at any time from the call's begin on. So nothing may be read or written there before. Both are said for calls
// whose buffers are apart, and for calls in place as NCCL defines it: then an input chunk is an output chunk, too. What
// strands do side by side counts as before and as later. Passes need not be looked at: they have no chunk in common.
#pragma once
#include <stdbool.h>

#include "coll/coll.h"

// Sets TT_STEP_LEND, TT_STEP_PLACE and their like in place on the steps of `s` that may. Schedules with direct access
// get none. Any thread. ncclSystemError when out of memory.
ncclResult_t tt_zerocopy_mark(tt_schedule *s);

// How the buffers of a call lie: of `bytes` per block, blocks as the schedule has them.
typedef enum {
  TT_BUFFERS_APART,    // no byte in common, or there is only one
  TT_BUFFERS_IN_PLACE, // as NCCL defines it: the rank's own block of the longer buffer is the shorter one
  TT_BUFFERS_MIXED     // otherwise
} tt_buffers;
tt_buffers tt_zerocopy_buffers(const tt_schedule *s, const void *in, const void *out, size_t bytes);
