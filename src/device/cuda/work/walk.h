// walk.h: the steps of a plan as one launch that waits for peers itself: a walk.
//
// Elsewhere a stream waits, and no kernel ever does, so that ranks may share a GPU. A walk holds multiprocessors while
// it waits. So it is only for a port that shares its GPU with none of its peers, and on demand (NCCL_CUDA_RESIDENT).
// What peers see is the same: each rank decides for itself, but for tt_gpu_walk_fifos_only. It saves a launch and a
// call of the driver for each step, and the time in which a stream notices a word.
//
// Lanes run side by side, as on the host: each has a group of CTAs, which takes the lane's steps in their order, waits
// for its words, and makes its data. Its first CTA carries out the steps, and all of the group make the data of a large
// one. A lane that comes after those of another channel waits for all that has been submitted. All CTAs of a launch are
// resident together: there are no more groups than the device holds CTAs. If there are more lanes, several share a
// group, which takes their steps in the order in which they are submitted. Why no circle of waits can come about:
// docs/cuda-design.md.
//
// The walk of a captured plan is a kernel of its graph. It has one group, since its memory is the graph's, and takes
// the steps in the order in which they are submitted.
#pragma once
#include "device/cuda/kernels/choose.h"
#include "device/cuda/work/port_priv.h"

// Makes the port resident, if it may be. Its memory is there, and its device's context current. Errors:
// ncclSystemError, ncclUnhandledCudaError.
ncclResult_t tt_gpu_walk_open(tt_gpu_port *p);
// Makes it one that is not, when nothing of it is under way.
void tt_gpu_walk_close(tt_gpu_port *p);

// Is the port resident, with ranks in other processes of its machine? Then a walk may wait when one of them has a new
// buffer, and a driver may let whoever opens that wait for the kernel. So the communicator's plans use FIFOs alone,
// whose memory is pinned when the communicator is made.
bool tt_gpu_walk_fifos_only(const tt_gpu_port *p);

// Does what is submitted or captured become a walk?
static inline bool gpu_walks(const tt_gpu_port *p)
{
  return p->walk != NULL;
}

// Gives each lane of a plan its group (tt_lane.group), before its first step.
void tt_gpu_walk_groups(const tt_gpu_port *p, tt_plan *plan);

// What is added from now on is a step of that lane's. Before its first one, it waits for the lanes before it. The
// device's context is current. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_walk_lane(tt_gpu_port *p, CUstream stream, const tt_lane *l);
// The step begins when these words are as far: those of cuStreamBatchMemOp. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_walk_wait(tt_gpu_port *p, CUstream stream, const CUstreamBatchMemOpParams *words, unsigned n);
// Adds what would be a launch of so many CTAs, of so many threads; of more than one only the part `combine`. The
// device's context is current. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_walk_add(tt_gpu_port *p, CUstream stream, const tt_kernel *kernel, unsigned ctas, unsigned threads,
                             const tt_cuda_step *step);

// Is it time to launch what has been added?
bool tt_gpu_walk_is_full(const tt_gpu_port *p);
// Launches what has been added; nothing is fine. Likewise.
ncclResult_t tt_gpu_walk_launch(tt_gpu_port *p);
// The plan is submitted, or has failed: what has not been launched is forgotten.
void tt_gpu_walk_end(tt_gpu_port *p);
