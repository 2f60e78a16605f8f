// schedules.h: the schedules that a communicator has written, and what they move (schedules.c). The launching thread
// calls it.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"
#include "nccl.h"

struct ncclComm;
struct tt_decision;

// A schedule and what goes with it, made once per (function, algorithm, root or peer, channel).
typedef struct tt_cached {
  struct tt_cached *next;
  struct tt_cached *next_channel; // the same on the next channel; NULL: not made yet
  tt_func func;
  int algo, root, channel;
  bool lent; // schedule and traffic belong to an earlier channel, which has the same
  tt_schedule *sched;
  struct tt_traffic *traffic; // what one pass moves over the network
  int ntraffic, *traffic_of;  // traffic_of: [strand]: number of its first row; the entry after the last: total
  struct tt_nearby *nearby;   // the same in common memory, for profile_shm.c. NULL: not asked for yet
  int nnearby;
} tt_cached;

// Messages between this rank and one peer over the network in one pass of a strand.
typedef struct tt_traffic {
  int strand, peer;
  bool send;
  uint32_t messages;
  uint32_t *steps; // receives: which step takes each message
} tt_traffic;

// Puts the schedules of all channels of the decision into it; writes and connects those that are not there yet. `root`
// -1: as for a communicator of this rank alone. Errors:
// those of connecting; ncclSystemError (no memory).
ncclResult_t tt_comm_schedules(struct ncclComm *comm, tt_func func, int root, struct tt_decision *d);
// Frees all of them.
void tt_comm_free_schedules(struct ncclComm *comm);
