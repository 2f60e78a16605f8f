// rank.h: ranks on GPUs: what they have submitted and what is not over yet.
//
// A thread of the process ("tutti gpu") sees to that: it finds plans that are complete, what kernels have found wrong,
// peers that have stopped or died, and waits that last too long. It runs while there is such a rank, and sleeps while
// nothing has been submitted. The driver is open.
#pragma once
#include "device/cuda/work/submit.h"
#include "device/device.h"

typedef struct tt_gpu_rank tt_gpu_rank;

// Opens what the port needs on its device: port->gpu. Errors: as tt_gpu_port_open, ncclSystemError.
ncclResult_t tt_gpu_rank_open(tt_port *port);
// Closes it; no plan is left. A port without is allowed.
void tt_gpu_rank_close(tt_port *port);

// The port's links go: it is looked at no longer, until it has the next plan.
void tt_gpu_rank_unlink(const tt_port *port);

// The port's part on the GPU.
tt_gpu_port *tt_gpu_rank_port(const tt_port *port);

// Is the port's device still as it was when the port was opened? If not, the port is stopped. Errors: as
// tt_gpu_port_look.
ncclResult_t tt_gpu_rank_look(const tt_port *port);

// Submits the plans, as tt_gpu_submit, or records them if their streams are captured; from now on they are seen to. On
// an error their ports are stopped.
ncclResult_t tt_gpu_ranks_submit(tt_gpu_work *works, int n);

// A batch of one-sided operations (rma.h) is in flight from now on, until a look finds that it is over.
void tt_gpu_ranks_fly(void);
// From now on the rank takes what ranks of its machine put into FIFOs for these windows; NULL: it does so no longer.
void tt_gpu_rank_takes(const tt_port *port, tt_rma *rma);
// Does the calling thread's group hold back what is submitted?
bool tt_gpu_holds(void);

// Closes memory of peers that they have freed, or that no port needs, if nothing is in flight, nor in graphs, which may
// be launched at any time.
void tt_gpu_ranks_close_stale(void);

// The row's members of these names (device.h).
ncclResult_t tt_gpu_submit_plan(tt_plan *plan, tt_gpu_stream *stream);
ncclResult_t tt_gpu_order(tt_gpu_stream *earlier, tt_gpu_stream *later);
void tt_gpu_hold(void);
ncclResult_t tt_gpu_unhold(void);
bool tt_gpu_progress(void);
bool tt_gpu_rank_replays(const tt_port *port);
void tt_gpu_settle(void);
void tt_gpu_await(bool (*ready)(void *arg), void *arg);
bool tt_gpu_poll(bool (*ready)(void *arg), void *arg);
bool tt_gpu_awaiting(void);
void tt_gpu_defer(tt_deferred *d);
