// stage.h: buffers that peers in other processes cannot open.
//
// The call then works on memory of the library's own, which they can: its input is copied there first, and its output
// back at the end, both on the stream. So no other rank need know. That is pinned memory of the host, memory of
// pools, memory of cuMemCreate without descriptors, and whatever the driver does not let a peer open.
#pragma once
#include "device/cuda/work/submit.h"

// Has the peers of other processes open the buffers of the plan's calls, as far as tokens tell them of these, or puts
// memory of the port in their place: w->copies; if w->captured, memory of the plan's own: w->stage. The thread that
// submits. Errors: as tt_gpu_ipc_share, ncclSystemError,
// ncclUnhandledCudaError.
ncclResult_t tt_gpu_stage(tt_gpu_work *w);
// Frees w->copies, and w->stage unless a graph has taken it, when the plan has been submitted or has failed.
void tt_gpu_stage_drop(const tt_gpu_work *w);
// Gives the port's memory back, when the port is idle.
void tt_gpu_stage_close(tt_gpu_port *p);
