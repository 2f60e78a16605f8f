// port.h: a rank on a GPU, as the work of its plans is submitted and ended.
//
// The words that its streams wait for lie in FIFOs of host memory, which the caller has pinned. Functions of one port
// are called by one thread at a time, unless they say otherwise. The driver is open.
#pragma once
#include "device/cuda/gpu.h"
#include "device/cuda/kernels/kernels.h"
#include "device/lane.h"

typedef struct tt_gpu_port tt_gpu_port;

// Opens what a rank needs on its device: kernels, words, memory. Before any stream of the device waits for a word.
// `port` stays. Errors: ncclInvalidArgument (there is no such device), ncclUnhandledCudaError, ncclSystemError.
ncclResult_t tt_gpu_port_open(tt_port *port, int device, tt_gpu_port **out);

// Closes it, when it is idle. NULL is allowed. If graphs of its plans are left (capture.h), their replays do nothing
// from now on, and a part of the port lives as long as they.
void tt_gpu_port_close(tt_gpu_port *p);

// Is all that has been submitted done? Any thread.
bool tt_gpu_port_idle(const tt_gpu_port *p);

// The number of the work that was submitted last, and whether the work of a number is done. Numbers begin at 1. The
// first: any thread that no other submits beside; the second: any thread.
uint32_t tt_gpu_port_submitted(const tt_gpu_port *p);
bool tt_gpu_port_done(const tt_gpu_port *p, uint32_t number);

// The end of the last work could not be queued, and so the port is stopped: have its streams come to their ends? Then
// nothing of it runs any more, though its numbers are not done. Any thread.
bool tt_gpu_port_lost(const tt_gpu_port *p);

// May the stream wait for the next message of a FIFO, or its slot, in the step that a thread is submitting? `fifo`: k:
// recv[k] of the link to the peer, TT_NFIFOS + k: its send[k]. Asked behind an acquire of the FIFO's `next`. Any
// thread.
bool tt_gpu_port_submits(const tt_gpu_port *p, int peer, int fifo);

// What a kernel has found wrong; NULL: nothing. Then nothing of the port goes on, and it must be stopped soon: other
// ranks' work may stand behind its waits in a hardware queue. Any thread.
const tt_cuda_fault *tt_gpu_port_fault(const tt_gpu_port *p);

// Has a kernel found something wrong? Then the port is stopped (tt_port_stop_for, tt_gpu_port_stop), with an error that
// names both sides: ncclInvalidUsage (the peer is in another call), ncclRemoteError (it has stopped),
// ncclInternalError.
void tt_gpu_port_check(tt_gpu_port *p);

// Is the device still as it was when the port was opened? Any thread. Errors: ncclUnhandledCudaError: the program has
// reset it; nothing of the port is left there.
ncclResult_t tt_gpu_port_look(const tt_gpu_port *p);

// The same, and has work on the stream that was used last failed? Then nothing of the device is done any more. Any
// thread. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_port_query(const tt_gpu_port *p);

// Ends the port for good: kernels that have not begun do nothing, and, once no kernel of a peer uses this rank's memory
// (owner.h), its streams wait no longer. A peer that writes one of the awaited words meanwhile may make a stream wait
// again, and so does a thread that submits. So it is called again and again until the port is idle, and, where the
// program may replay graphs of it (tt_gpu_port_captures), until the peers are stopped. tt_port_stop comes before:
// nobody who sees that a stream has ended may take its work for done. Never waits. Any thread.
void tt_gpu_port_stop(tt_gpu_port *p);
