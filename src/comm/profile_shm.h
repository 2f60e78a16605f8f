// profile_shm.h: reports messages between ranks that have memory in common to profilers, where NCCL_HOST_PROXY_EVENTS
// asks for it. For profile.c.
//
// A message is what takes a slot of a FIFO: data, or a token, which opens the sender's buffers to the receiver or says
// that it has written into the receiver's. Bytes that a rank moves straight from or to the peer's memory count with
// the token that goes with them, on the rank that moves them. So both ends see the same number of messages, in the same
// order.
//
// A ProxyOp stands for each lane, peer and direction. All ProxyOps of an operation start when it begins, and the last
// one stops when it has ended, so a profiler that counts references sees no end too soon. A ProxyOp becomes InProgress
// when the turn of its first message comes.
//
// A ProxyStep stands for each message. It starts when the turn of its step comes, and has these states:
//
//   sends      SendGPUWait    the inputs of the message are not there
//              SendPeerWait   the peer has to give back a slot
//              SendWait       the message is being written; ends when it is published
//   receives   RecvWait       the message is not there
//              RecvFlushWait  it is there, and the step waits for something else
//              RecvGPUWait    it is being read; ends when the slot is given back
//
// The thread that runs the operation reports all of this as it happens. A message to oneself has no events. The proxy
// reports the messages over the network (proxy/prof.c).
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

// Does some profiler want these events? Asked where profilers watch anyhow.
bool tt_shm_wanted(const tt_profilers *p);
// Marks the lanes (tt_lane.told). NULL: no messages, or no memory for it.
tt_shm_events *tt_shm_events_new(struct ncclComm *comm, const tt_plan *p, const tt_shm_lanes *lanes);
// The plan's tt_plan.step.
void tt_shm_step(const tt_plan *p, tt_lane *l, const tt_step *step, size_t bytes, bool taken);
// The operation has ended, however that was: stops what has not been stopped. NULL is allowed.
void tt_shm_events_end(tt_shm_events *e);
void tt_shm_events_free(tt_shm_events *e);
