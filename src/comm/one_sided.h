// one_sided.h: one-sided operations of a communicator: windows on its board, and calls that become batches in streams
// (one_sided.c). The launching thread calls all of it.
#pragma once
#include "comm/register.h"
#include "device/one_sided.h"

// A call of the API, arguments checked.
typedef struct tt_rma_call {
  struct tt_rma_call *next; // of a group
  struct ncclComm *comm;
  cudaStream_t stream;
  const char *what; // name of the function
  const void *from; // a put's; with `bytes` 0 it is a signal alone
  size_t bytes;
  uint64_t window, offset; // number of the peer's window
  size_t count;            // as the user has called it: of a put,
  ncclDataType_t type;     // and its elements
  int peer, sig, ctx;
  int nwaits; // 0: a put or signal
  const ncclWaitSignalDesc_t *waits;
  struct tt_rma_call_events *events; // for profilers (profile.h); NULL: none
} tt_rma_call;

// How many operations the call is.
static inline int tt_rma_call_ops(const tt_rma_call *c)
{
  return c->nwaits == 0 ? 1 : c->nwaits;
}

// Does each rank reach the memory of all others of its machine, by copying or by address?
bool tt_rma_reaches(const struct ncclComm *comm);
// Can one-sided operations reach every rank? Each on the host that shares memory with this one lets it write its
// buffers; the others are reached over the network, or are on GPUs. *why: what is missing, in words.
bool tt_rma_supported(const struct ncclComm *comm, const char **why);
// Makes what one-sided operations need: connects this rank with all others that share memory with it; waits for none.
// Does nothing where it has been made. Errors: ncclSystemError.
ncclResult_t tt_rma_init(struct ncclComm *comm);
// This rank names the peer in an operation: connects the two where that goes over the network, once. Waits for nobody.
// After tt_rma_init. Errors: ncclSystemError.
ncclResult_t tt_rma_reach(struct ncclComm *comm, int peer);
// Frees it. No batch is left, and the ranks' state says so.
void tt_rma_free(struct ncclComm *comm);

// Shows peers a window that is being registered, and gives it its number. Errors: ncclSystemError, ncclInvalidUsage
// (too many windows).
ncclResult_t tt_rma_open_window(struct ncclComm *comm, tt_window *w);
// The window is being deregistered: afterwards no peer writes into it.
void tt_rma_close_window(struct ncclComm *comm, const tt_window *w);

// Launches the call, or adds a copy to the open group. The communicator has been entered.
ncclResult_t tt_rma_add(tt_rma_call *call);
// Launches a group's calls, each communicator's and stream's as one batch, and frees them. The first error counts.
ncclResult_t tt_rma_launch(tt_rma_call *calls);
// Frees a group's calls.
void tt_rma_drop(tt_rma_call *calls);
