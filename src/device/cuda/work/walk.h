// walk.h: the steps of a plan as one launch that waits for peers itself: a walk.
//
// Elsewhere a stream waits, and no kernel ever does, so that ranks may share a GPU. A walk holds multiprocessors while
// it waits. So it is only for a port that shares its GPU with none of its peers, and on demand (NCCL_CUDA_RESIDENT).
// What peers see is the same: each rank decides for itself, but for tt_gpu_walk_fifos_only. It saves a launch and a
// call of the driver for each step, and the time in which a stream notices a word.
//
// The steps keep the order that they have in a stream: one after the other, the first CTA carries them out, and all
// CTAs make the data of a large one. The walk of a captured plan is a kernel of its graph.
#pragma once
#include "device/cuda/kernels/choose.h"
#include "device/cuda/work/port_priv.h"

// Makes the port resident, if it may be. Its memory is there. Errors: ncclSystemError.
ncclResult_t tt_gpu_walk_open(tt_gpu_port *p);

// Is the port resident, with ranks in other processes of its machine? Then a walk may wait when one of them has a new
// buffer, and a driver may let whoever opens that wait for the kernel. So the communicator's plans use FIFOs alone,
// whose memory is pinned when the communicator is made.
bool tt_gpu_walk_fifos_only(const tt_gpu_port *p);

// Does what is submitted or captured become a walk?
static inline bool gpu_walks(const tt_gpu_port *p)
{
  return p->walk != NULL;
}

// The next step begins when these words are as far: those of cuStreamBatchMemOp. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_walk_wait(tt_gpu_port *p, CUstream stream, const CUstreamBatchMemOpParams *words, unsigned n);
// Adds what would be a launch of so many CTAs; of more than one only the part `combine`. The device's context is
// current. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_walk_add(tt_gpu_port *p, CUstream stream, const tt_kernel *kernel, unsigned ctas,
                             const tt_cuda_step *step);

// Launches what has been added; nothing is fine. `drop`: forgets it. Likewise.
ncclResult_t tt_gpu_walk_launch(tt_gpu_port *p);
void tt_gpu_walk_drop(tt_gpu_port *p);
