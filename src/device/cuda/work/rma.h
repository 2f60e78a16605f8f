// rma.h: one-sided operations of ranks on GPUs: batches of puts, signals and waits as stream work (device/one_sided.h).
//
// What is queued for an operation, inside the call:
//   put     a wait for the window, if the peer has not registered it yet; kernel put, which writes the peer's memory
//   signal  kernel signal, also behind a put's: the peer's counter, then the turn of the next one with that peer
//   wait    a wait for the own counter that the peer writes
// With a peer over the network (rma_far.c):
//   put     a copy to pinned memory, and a word: then the thread of rank.c sends it
//   wait    a word, a wait for that thread, which has seen the signals come, and kernel take, which places the payloads
// With a peer of this machine whose memory the GPU does not reach, or into memory that no other process can map (also
// rma_far.c):
//   put     as above, but kernel put writes pinned memory: behind it a word, and a wait for the thread of rank.c, which
//           has given the payload to the peer: a rank on the host has it in its window then, one on a GPU in its FIFO
//   wait    as above, and behind it what a wait over the network is
// Puts and signals of a peer and context that use several streams wait for their turn. Boards and counters are those of
// the host device, pinned. No kernel waits.
#pragma once
#include "device/cuda/stream.h"
#include "device/cuda/work/port.h"
#include "device/one_sided.h"

// Queues the batch, or holds it back until tt_gpu_rma_unhold, where the thread's group holds plans back. Afterwards it
// is seen to; an error stops its port. The launching thread.
void tt_gpu_rma_submit(tt_rma_batch *b, tt_gpu_stream *stream);
// Queues what the thread has held back. Waits for signals that other batches of it send stand behind these, as far as
// there is such an order: so one hardware queue for all streams is enough.
void tt_gpu_rma_unhold(void);

// ---- The thread of rank.c, which holds its lock ----

// Has the port batches in flight? Any thread.
bool tt_gpu_rma_flies(const tt_gpu_port *p);
// Looks at them: what has begun, what is over, what a kernel has found wrong, windows that puts wait for, peers that
// have stopped, payloads. *broken: work of the device has failed, before or just now: what has been queued is over.
// *moved is set if payloads have moved. Returns how many batches are over; tt_gpu_rma_end takes them back.
int tt_gpu_rma_look(tt_gpu_port *p, uint64_t now, bool *broken, bool *moved);
// Gives batches that are over back to their owners. No lock is held.
void tt_gpu_rma_end(void);
// The port is stopped: its streams wait no longer for what batches wait for. Any thread.
void tt_gpu_rma_release(const tt_gpu_port *p);
// Work of the port's device has failed, and nothing of it runs any more: its kernels count no longer as ones that write
// into windows, and its own windows are closed for peers that have not begun to write. The port is stopped. Any thread.
void tt_gpu_rma_leave(const tt_gpu_port *p);
// What is wrong with a put into a window that its owner has closed. *culprit: as tt_port_accuse. Errors:
// ncclInvalidUsage, ncclRemoteError.
ncclResult_t tt_gpu_rma_shut(const tt_port *port, const tt_cuda_fault *f, tt_culprit *culprit);

// ---- The row's members of these names (device.h) ----

// show_window.
ncclResult_t tt_gpu_window_show(tt_rma *rma, tt_window_note *note);
// place_put.
void tt_gpu_place_put(tt_rma_peer *peer, uint64_t window, uint64_t offset, const char *payload, size_t bytes);
// window_address.
char *tt_gpu_window_address(tt_rma_peer *peer, uint64_t number, const tt_window_note *note);
// forget_windows.
void tt_gpu_window_forget(tt_rma_peer *peer);
