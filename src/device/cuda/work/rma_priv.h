// rma_priv.h: batches of one-sided operations on GPUs, for the files rma*.c and windows.c.
#pragma once
#include "device/cuda/work/port_priv.h"
#include "device/cuda/work/rma.h"

// What a rank on a GPU has of a peer.
typedef struct tt_gpu_rma_peer {
  struct tt_gpu_rma_peer *next; // of the process
  tt_gpu_port *port;
  int rank;    // the peer
  char **pins; // pages
  int npins, room;
  // The launching thread's, which others read: signals that have been queued so far, [context * signals + signal].
  _Atomic uint64_t queued[TT_SIGNALS];
  uint64_t turn[TT_RMA_CONTEXTS];       // operations that have been queued
  tt_gpu_stream *last[TT_RMA_CONTEXTS]; // the stream of the last of them
  _Atomic uint32_t *over;               // pinned: operations that are over, by context
} tt_gpu_rma_peer;

// Pinned: of a put.
typedef struct gpu_target {
  _Atomic uint32_t ready; // 1: the place is known, or the port has stopped. The stream waits for it,
  _Atomic uint32_t late;  // 1: because it was not known when the put was queued: the thread of rank.c finds it
  uint32_t unused[2];
  tt_cuda_operand operands[2];
} gpu_target;

// Pinned: of a batch.
typedef struct gpu_batch_pinned {
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t begun, done; // written by its stream
  gpu_target targets[];                                 // by operation
} gpu_batch_pinned;

typedef struct gpu_batch {
  struct gpu_batch *next; // of its port's, or of those that are over
  tt_rma_batch *batch;
  tt_gpu_port *port;
  tt_gpu_stream *stream;
  gpu_batch_pinned *pinned;
  uint64_t due_ns;       // then its peers are looked at
  _Atomic bool complete; // all of it has been queued
  bool lost;             // its end could not be queued
  bool begun;
} gpu_batch;

static inline tt_rma_peer *gpu_peer_of(const tt_rma_batch *b, const tt_rma_op *op)
{
  return &b->rma->peers[op->peer];
}

static inline _Atomic uint64_t *gpu_count_in(const tt_rma_batch *b, const tt_rma_op *op)
{
  return &gpu_peer_of(b, op)->in->count[op->ctx * b->rma->signals + op->sig];
}

// Prepares the peer for operations: pins its counters, and where its board has the window; 0: no window. The launching
// thread; the device's context is current. Errors: ncclUnhandledCudaError, ncclSystemError.
ncclResult_t tt_gpu_rma_reach(tt_gpu_port *p, tt_rma_peer *peer, uint64_t window);
// How many signals has that peer, if it is a rank of this process, queued for this rank? UINT64_MAX: it is not.
uint64_t tt_gpu_rma_queued(const tt_gpu_port *p, int peer, int signal);

// Looks whether the peer has opened the window of put i, and finds the place: targets[i].ready. The launching thread,
// or, where the put is late, that of rank.c. Errors:
// ncclInvalidUsage (it has been closed, or lies in memory that this process cannot map), ncclInvalidArgument (it ends
// before).
ncclResult_t tt_gpu_rma_aim(const gpu_batch *g, int i);

// The batch is about to be queued: from now on it is looked at.
void tt_gpu_rma_fly(gpu_batch *g);
