// collnet.h: a communicator whose network reduces (net/collnet.h): which ranks want it, how all ranks agree, and
// the heads' links to it.
//
// Every node has the same number of heads, its first ranks; head h of all nodes are a group and connect with each other
// over one device. Each has a link to that network, peer nranks + h of schedules (device/schedule.h). Either all ranks
// can use it, or none does, and the log says why.
#pragma once
#include "coll/coll.h"
#include "net/collnet.h"
#include "proxy/sums.h"

typedef struct tt_comm_collnet {
  tt_collnet *net;
  uint64_t support;  // of all ranks (tt_collnet_support)
  size_t longest;    // bytes that one message may have, of all heads
  uint64_t reported; // combinations of which the log says that they are not supported. The launching thread's
  // Heads only:
  tt_link *link;
  tt_proxy_sums *sums;
  char *base; // the link's FIFOs
  size_t size;
  tt_behind behind;
  int *ranks;
  tt_rank_page **pages;
} tt_comm_collnet;

// Does this rank want it: NCCL_COLLNET_ENABLE or the configuration, several nodes, and as many as
// NCCL_COLLNET_NODE_THRESHOLD says?
bool tt_comm_collnet_wanted(const struct ncclComm *c);
// Makes c->collnet where all ranks can; NULL: they cannot. All ranks call it, after the proxies have met. Errors: those
// of the bootstrap, ncclSystemError, ncclInternalError (aborted).
ncclResult_t tt_comm_collnet_create(struct ncclComm *c);
void tt_comm_collnet_destroy(struct ncclComm *c);

// May the network reduce this operation of the communicator's? The same on all ranks. The launching thread.
bool tt_comm_collnet_allows(const struct ncclComm *c, tt_func func, ncclDataType_t type, int code);
