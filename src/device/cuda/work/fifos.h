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
// Both ranks find it by its key: they count the operations that are captured on each FIFO of their link. In one process
// its memory is the pool's. Between processes the lower rank has the table and makes the memory (shared.h); the other
// one asks it by mail (ipc.h). It stays until both sides have come and gone, or a communicator of one has ended. Over
// the network each side has memory of its own, and the proxy moves the messages (device/far.h). Any thread.
#pragma once
#include "device/cuda/work/port_priv.h"
#include "device/far.h"

typedef struct gpu_fifo gpu_fifo; // what both ends share, as this process sees it

typedef struct gpu_fifo_key {
  uint64_t hash;   // the communicator's
  int from, to;    // ranks
  int kind;        // tt_proto
  uint32_t number; // of the operation, among those captured on this FIFO of the link
} gpu_fifo_key;

// One side's view. `fifo` counts while the operation is recorded.
typedef struct gpu_fifo_end {
  tt_fifo fifo; // first member
  uint32_t messages;
  bool sends;
  gpu_fifo *shared; // NULL: not attached
} gpu_fifo_end;

// What a rank of another process learns of a FIFO that this one has.
typedef struct gpu_fifo_offer {
  gpu_part part;
  tt_fifo_shape shape; // as the first one reckoned
} gpu_fifo_offer;

// Makes the end one of the FIFO of that key, of the port's rank. A context of the process is current. Errors:
// ncclInvalidUsage (the other side reckons otherwise: the ranks have captured different operations; or this side is
// there already), ncclUnhandledCudaError, ncclSystemError, those of tt_gpu_ipc_attach and of tt_mover.attach.
ncclResult_t tt_gpu_fifo_attach(const tt_gpu_port *p, const gpu_fifo_key *key, const tt_fifo_shape *shape, bool sends,
                                gpu_fifo_end *end);
// The end's kernels and waits are over; `never`: none was recorded, and the side may come once more. An end that is not
// attached is allowed.
void tt_gpu_fifo_detach(gpu_fifo_end *end, bool never);

// The same as tt_gpu_fifo_attach for a rank of another process. Errors: ncclInvalidUsage (out->shape differs),
// ncclSystemError.
ncclResult_t tt_gpu_fifo_offer(const tt_gpu_port *p, const gpu_fifo_key *key, const tt_fifo_shape *shape, bool sends,
                               gpu_fifo_offer *out);

// The port's communicator ends: its proxy moves nothing of the end any more. One thread at a time.
void tt_gpu_fifo_leave(const gpu_fifo_end *end);

// The port is closed: its rank captures nothing more, and what it has captured no other communicator finds.
void tt_gpu_fifos_retire(const tt_gpu_port *p);

// The end's port is stopped: its streams wait for nothing here, in this replay and in all later ones, unless the peer
// still writes.
void tt_gpu_fifo_release(const gpu_fifo_end *end);
