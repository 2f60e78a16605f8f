// fifos.h: the FIFOs of captured operations.
//
// A graph is replayed, and the numbers in its waits are constants. So a captured operation has a FIFO of its own where
// an eager one takes the link's: its messages are numbered from 0 on in each replay, and its words are put back on the
// way:
//   a slot's `seq`  the receiver sets it to 0 when it gives the slot back (tt_cuda_post.clear)
//   the head        ends as the number of messages of a replay. The sender waits for that before its first message, and
//                   sets the head to 0 as it sends that one
// So a replay may begin before the peer's last one is over, and needs no end of its own.
//
// Both ranks find it by its key: they count the operations that are captured on each FIFO of their link. Any thread.
#pragma once
#include "device/cuda/gpu.h"
#include "device/fifo.h"

typedef struct gpu_fifo gpu_fifo; // what both ends share

typedef struct gpu_fifo_key {
  uint64_t hash;   // the communicator's
  int from, to;    // ranks
  int kind;        // tt_proto
  uint32_t number; // of the operation, among those captured on this FIFO of the link
} gpu_fifo_key;

// What both sides reckon, and must reckon alike.
typedef struct gpu_fifo_shape {
  uint32_t slots; // a power of two
  uint32_t bytes; // of a payload
  uint32_t messages;
} gpu_fifo_shape;

// One side's view. `fifo` counts while the operation is recorded.
typedef struct gpu_fifo_end {
  tt_fifo fifo; // first member
  uint32_t messages;
  bool sends;
  gpu_fifo *shared; // NULL: not attached
} gpu_fifo_end;

// Makes the end one of the FIFO of that key. Errors: ncclInvalidUsage (the other side reckons otherwise: the ranks have
// captured different operations; or this side is there already), ncclUnhandledCudaError, ncclSystemError.
ncclResult_t tt_gpu_fifo_attach(const gpu_fifo_key *key, const gpu_fifo_shape *shape, bool sends, gpu_fifo_end *end);
// The end's kernels and waits are over. The last one gives the memory back. An end that is not attached is allowed.
void tt_gpu_fifo_detach(gpu_fifo_end *end);

// The end's communicator is closed: no other operation finds this FIFO by its key.
void tt_gpu_fifo_retire(const gpu_fifo_end *end);

// The end's port is stopped: its streams wait for nothing here, in this replay and in all later ones, unless the peer
// still writes.
void tt_gpu_fifo_release(const gpu_fifo_end *end);
