// walk.h: the steps of a plan as one launch that waits for peers itself: a walk.
//
// Elsewhere a stream waits, and no kernel ever does, so that ranks may share a GPU. A walk holds multiprocessors while
// it waits. So it is only for a port whose peers are in its process, each on a GPU of its own, or on other machines,
// and on demand (NCCL_CUDA_RESIDENT). What peers see is the same: each rank decides for itself. It saves a launch and a
// call of the driver for each step, and the time in which a stream notices a word.
//
// The steps keep the order that they have in a stream: one after the other, the first CTA carries them out, and all
// CTAs make the data of a large one. Captured plans are no walks.
#pragma once
#include "device/cuda/kernels/choose.h"
#include "device/cuda/work/port_priv.h"

// Makes the port resident, if it may be. Its memory is there. Errors: ncclSystemError.
ncclResult_t tt_gpu_walk_open(tt_gpu_port *p);

// Does what is submitted become a walk?
static inline bool gpu_walks(const tt_gpu_port *p)
{
  return p->walk != NULL && p->recording == NULL;
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
