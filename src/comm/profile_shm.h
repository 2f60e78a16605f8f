// profile_shm.h: what profilers are told of messages between ranks that have memory in common, where
// NCCL_HOST_PROXY_EVENTS asks for it. For profile.c.
//
// A message is what takes a slot of a FIFO: data, or a token, which opens the sender's buffers to the receiver or says
// that it has written into the receiver's. Bytes that a rank moves straight from or to the peer's memory are told with
// the token that goes with them, by the rank that moves them. So both ends see the same number of messages, in the same
// order.
//
//   ProxyOp    one for each lane, peer and direction: all of an operation start when it begins, and the last one stops
//   when it has ended (so what counts
//              references sees no end too soon); InProgress when its first message's turn comes
//   ProxyStep  one for each message, from when its step's turn comes
//              sends: SendGPUWait (what it is made of is not there), SendPeerWait (the peer has to give back a slot),
//              SendWait (it is being written);
//                     until it is published
//              receives: RecvWait, RecvFlushWait (it is there, the step waits for something else), RecvGPUWait (it is
//              being read); until the slot is given back
//
// Told by the thread that runs the operation, as it happens. Messages to oneself are none; those over the network are
// the proxy's to tell (proxy/prof.c).
#pragma once
#include "comm/schedules.h"
#include "device/device.h"
#include "plugin/profiler/profiler.h"

typedef struct tt_shm_events tt_shm_events;

// The lanes of an operation: those of the plan from number `first` on. `parent`: its Coll or P2p, which must live as
// long. `channel`: number of the first one.
typedef struct tt_shm_lanes {
  tt_profilers *profilers; // must live as long
  const tt_prof_event *parent;
  tt_cached *cached; // of the first channel; its messages are noted there
  int first, channel;
} tt_shm_lanes;

// Does anybody want to know? One look, where profilers are told anyhow.
bool tt_shm_wanted(const tt_profilers *p);
// Marks the lanes (tt_lane.told). NULL: no messages, or no memory for it.
tt_shm_events *tt_shm_events_new(struct ncclComm *comm, const tt_plan *p, const tt_shm_lanes *lanes);
// The plan's tt_plan.step.
void tt_shm_step(const tt_plan *p, tt_lane *l, const tt_step *step, size_t bytes, bool taken);
// The operation has ended, however that was: stops what has not been stopped. NULL is allowed.
void tt_shm_events_end(tt_shm_events *e);
void tt_shm_events_free(tt_shm_events *e);
