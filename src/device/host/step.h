// step.h: the data part of one step, for lane.c alone.
#pragma once
#include "device/lane.h"

// Takes the tokens and messages among the step's sources, combines `count` elements and writes them to its destinations, tokens included.
// Everything the step waits for is there. Nothing is published yet. Errors: ncclInvalidUsage (the peer is in another call),
// ncclRemoteError, ncclSystemError; recorded with tt_fail.
ncclResult_t tt_step_run(tt_port *port, tt_lane *l, const tt_step *step, size_t count);
