// ipc.h: memory of ranks of other processes on this machine, which kernels read and write.
//
// A token names an allocation by its number (memory.h). Before a rank submits one, the other rank's process has opened
// that allocation: the rank asks for it by mail (tt_mail), and a thread of the other rank, "tutti ipc", opens it and
// enters it into the list that the kernel resolve reads (tt_cuda_map). That thread waits for nothing but its mail, so
// that a rank may wait for the answer before it submits.
//
// In the same way a rank offers memory for messages, and finds the FIFOs of captured operations.
//
// What a peer has opened stays open until the owner has seen that it was freed, or the port closes. The peer closes it
// when nothing of its process is in flight, because the driver waits for all work then.
#pragma once
#include "device/cuda/work/fifos.h"

// Opens what the port needs for ranks of other processes of this machine, if there are any. Errors: ncclSystemError,
// ncclUnhandledCudaError.
ncclResult_t tt_gpu_ipc_open(tt_gpu_port *p);
// Ends that: the thread answers no more. Accepts a port without.
void tt_gpu_ipc_stop(tt_gpu_port *p);
// What was open is stale. Nothing of the port runs any more, nor a replay of its graphs. Accepts a port without.
void tt_gpu_ipc_close(tt_gpu_port *p);
// And so is what it shares with that rank.
void tt_gpu_ipc_unshare(const tt_gpu_port *p, gpu_shared *shared);

// Is the peer in another process of this machine?
bool tt_gpu_ipc_has(const tt_gpu_port *p, int peer);

// Where kernels find what has been opened of that peer; 0: nothing need be, its addresses are those of this process.
uint64_t tt_gpu_ipc_maps(const tt_gpu_port *p, int peer);

// Can the peer open memory of this rank's device? Waits for NCCL_BOOTSTRAP_TIMEOUT at most. The port has just opened.
bool tt_gpu_ipc_try(tt_gpu_port *p, int peer);

// Has the peer open the allocation (tt_gpu_find), unless it has: waits for that. *shared: it has; false: it cannot,
// which is not tried again. The thread that submits. Errors: the port has been stopped, now if the peer has gone.
ncclResult_t tt_gpu_ipc_share(tt_gpu_port *p, int peer, const tt_mappable *memory, bool *shared);

// Where this process has `bytes` bytes at `address` of the peer's, in its allocation `handle`; NULL: nowhere. Any
// thread.
char *tt_gpu_ipc_address(const tt_gpu_port *p, int peer, uint32_t handle, uint64_t address, uint64_t bytes);

// This rank's side comes to a captured operation's FIFO that the peer's process makes (fifos.h): waits for the answer.
// The thread that captures. Errors: ncclInvalidUsage, without a line: out->shape is another one; ncclSystemError; the
// port has been stopped, now if the peer has gone.
ncclResult_t tt_gpu_ipc_attach(const tt_gpu_port *p, int peer, const gpu_fifo_key *key, const tt_fifo_shape *shape,
                               bool sends, gpu_fifo_offer *out);

// Does the rank of another process answer requests: is it on a GPU of this machine? Communicators that are complete.
bool tt_gpu_ipc_serves(const tt_gpu_port *p, int peer);

// Does the peer take offers of inboxes (inbox.h)? Communicators whose ports are open.
bool tt_gpu_ipc_takes_inbox(const tt_gpu_port *p, int peer);
// Has the peer open its inbox, which has so many bytes of this rank's device (tt_gpu_alloc_lasting): waits for that.
// *taken: it sends that way from now on; false: it cannot. Errors: ncclSystemError; the port has been stopped, now if
// the peer has gone.
ncclResult_t tt_gpu_ipc_offer_inbox(tt_gpu_port *p, int peer, void *memory, size_t bytes, bool *taken);
// What begins there, for tt_gpu_close, is not used any more.
void tt_gpu_ipc_drop(const tt_gpu_port *p, void *base);

// Is anything open that was freed, or is not used any more? Any thread.
bool tt_gpu_ipc_stale(void);
// Closes that. Nothing of the process is in flight, and nothing is submitted meanwhile.
void tt_gpu_ipc_close_stale(void);
