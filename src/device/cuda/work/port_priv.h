// port_priv.h: what the files of this folder share: a port, and the lists that its kernels read.
#pragma once
#include "device/cuda/stream.h"
#include "device/cuda/work/port.h"
#include "device/cuda/work/shared.h"
#include "device/program.h"

// Pinned words of the host.
typedef struct gpu_flags {
  _Atomic uint32_t stop; // tt_cuda_port.stop
  _Atomic uint32_t done; // ticket of the last plan whose work is done: written by its stream
  tt_cuda_fault fault;
} gpu_flags;

// Pinned memory for lists. Those of a plan are free again when the plan is done; a captured plan's go with its graph.
typedef struct gpu_block {
  struct gpu_block *next;
  uint32_t ticket; // of the last plan that has a list here
  size_t used, bytes;
} gpu_block;

// Words of a group of a walk's CTAs in memory of the device; 0 before each launch.
typedef struct gpu_counts {
  uint64_t meet;         // tt_cuda_item.meet
  uint32_t over, unused; // tt_cuda_item.over
} gpu_counts;

// Memory of the device for steps that run one after the other.
typedef struct gpu_room {
  CUdeviceptr operands; // of the step that runs
  CUdeviceptr tokens;   // by peer the last token, a tt_cuda_slot, where later steps use it
  CUdeviceptr meet;     // a gpu_counts
  CUdeviceptr go;
  uint32_t *token_seq; // by peer: its number
} gpu_room;

struct gpu_capture;
struct gpu_inbox;
struct gpu_recording;

// How many plans of a peer have been captured that use a FIFO of the link: [TT_NFIFOS][receives, sends].
typedef uint32_t gpu_captured[TT_NFIFOS][2];

struct tt_gpu_port {
  tt_port *port; // NULL: the port is closed, and graphs of it are left
  int device, nranks;
  uint32_t epoch; // of the device
  int sms, ctas;  // of the device; CTAs of a kernel that makes data, at most
  gpu_flags *flags;
  void *memory;                    // of the device: of `own`
  gpu_room own;                    // of plans that are not captured
  const gpu_room *room;            // of the step that is submitted; in a walk that of its group
  tt_program_ref *refs;            // of that step: room for any
  gpu_block *blocks;               // the one in use first
  tt_gpu_stream *last;             // used last; NULL: none has been
  uint32_t submitted;              // ticket of the last plan
  _Atomic bool lost;               // which its stream will not write
  bool keeps;                      // tokens are kept for later steps of the plan
  bool timed;                      // kernels write when the plan's channels run (times.h)
  struct gpu_walk *walk;           // the port is resident (walk.h); NULL: it is not
  struct gpu_inbox *(*inboxes)[2]; // by peer: of messages from and to it (inbox.h); NULL: there are none
  // By peer: address of the inbox that a rank of another process has made for this one; 0: none. NULL: this rank has
  // no inboxes. Written by the thread "tutti ipc" (release) before that rank's connection is complete.
  _Atomic uint64_t *inbox_out;
  tt_gpu_port *inbox_next;         // inbox.c's list of ports
  _Atomic uint32_t *submits;       // by peer: tt_gpu_port_submits. Relaxed
  gpu_captured *captured;          // by peer
  gpu_shared *shared;              // by peer: memory of captured operations, with ranks of other processes
  struct gpu_capture *captures;    // plans in graphs that are not known to have gone
  struct gpu_recording *recording; // the plan that is being captured; NULL: none is
  tt_gpu_port *next;               // closed ports with graphs
  struct tt_gpu_ipc *ipc;          // memory of ranks of other processes (ipc.h); NULL: there is none
  struct tt_gpu_stage *stage;      // memory in place of buffers that no peer can open (stage.h)
  struct gpu_batch *batches;       // one-sided operations in flight (rma.h),
  bool taking;                     // a wait of theirs places payloads (rma_far.c)
  // It has shown a window that processes which reach its memory cannot map: so their puts bring payloads, too. The
  // launching thread's; that of rank.c reads it. Relaxed: it is set before peers find the window.
  _Atomic bool unshared;
  tt_rma *takes;           // whose windows payloads of this machine come for; NULL: none do. Under rank.c's lock
  struct gpu_waits *waits; // of plans that are not captured (waits.h)
  uint64_t used_ns;        // when the stopped port has first found that a peer uses its memory. By __atomic_…
  _Atomic bool unused;     // it waits for that no longer (owner.h)
};

// The most references of a step, and so the most operands.
static inline size_t gpu_port_refs(const tt_gpu_port *p)
{
  return TT_STEP_REFS * ((size_t)p->nranks + 2);
}

// Bytes of a room.
size_t tt_gpu_room_bytes(const tt_gpu_port *p);
// Divides so much memory of the device, a multiple of 64.
void tt_gpu_room_set(const tt_gpu_port *p, const void *memory, uint32_t *token_seq, gpu_room *out);

static inline CUdeviceptr gpu_address(const volatile void *ptr)
{
  return (CUdeviceptr)(uintptr_t)ptr;
}

// Memory for a list of the plan that is being submitted or captured, which kernels can read. The device's context is
// current.
// Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_list(tt_gpu_port *p, size_t bytes, void **out);
// Gives blocks back that nothing reads any more.
void tt_gpu_lists_give(gpu_block *first);

// Submits the step, whose references are resolved, to the stream, and moves the FIFOs on. The device's context is
// current. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_step_submit(tt_gpu_port *p, CUstream stream, const tt_lane *l, const tt_program_step *s);
