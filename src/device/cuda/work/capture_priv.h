// capture_priv.h: plans in graphs, for the files of this folder.
#pragma once
#include "device/cuda/work/fifos.h"
#include "device/cuda/work/port_priv.h"
#include "device/cuda/work/submit.h"
#include "device/cuda/work/waits.h"

// What one call sends or receives over one FIFO of a link, and the FIFO that it has instead.
typedef struct gpu_traffic {
  gpu_fifo_end end;        // first member
  const tt_call *call;     // while it is recorded; not looked at afterwards
  uint64_t sig, sig_count; // the call's
  tt_fifo *of;             // the link's, the same
  uint32_t messages, bytes;
  int peer;
  uint8_t kind;
  bool sends;
} gpu_traffic;

// A word that the stream waits for, until it is that value or more.
typedef struct gpu_replay_wait {
  const _Atomic uint32_t *word;
  uint32_t value;
  uint32_t how;    // as in tt_wait
  int32_t traffic; // of the capture
  bool last;       // of those that the stream waits for at once
} gpu_replay_wait;

// What a graph has of a plan.
typedef struct gpu_capture {
  struct gpu_capture *next; // of the port's
  _Atomic bool released;    // by the driver: the graph, all that was made of it, and their launches have ended
  int device;               // of its port,
  uint32_t epoch;           // the same
  CUevent over;             // behind the plan in each replay: the next one waits for it
  gpu_traffic *traffic;
  uint32_t ntraffic;
  uint64_t number;         // no other capture of the process has it
  _Atomic uint32_t *place; // pinned: where the stream stands: 1 + the first of its waits; 0: in none
  gpu_replay_wait *waits;  // of a replay, in their order; NULL: they are still being recorded
  uint32_t nwaits;
  uint32_t moved;                 // looks that found the stream in other waits, or once more in the same ones
  gpu_block *blocks;              // of its lists
  void *memory, *scratch, *stage; // of the device; `stage`: in place of the program's buffers, or NULL
} gpu_capture;

// A plan while it is captured.
typedef struct gpu_recording {
  gpu_capture *capture;
  const tt_plan *plan;
  CUstream stream;
  int32_t *index;    // hash table of the traffic, by call and FIFO
  uint32_t slots;    // of it, a power of two
  uint32_t room;     // of the traffic
  uintptr_t scratch; // the plan's,
  size_t scratch_bytes;
  gpu_room steps; // what they use of the device
  gpu_replay_wait *waits;
  int nwaits, waits_room;
} gpu_recording;

// What the call sends or receives over that FIFO of a link; NULL: nothing. Pure.
gpu_traffic *tt_gpu_traffic_find(const gpu_recording *rec, const tt_call *call, const tt_fifo *of);

// The lane has resolved the step: makes its FIFOs the operation's own.
void tt_gpu_record_refs(const tt_gpu_port *p, const tt_lane *l, const tt_program_step *s);

// The next wait of the plan's stream: `w->word` of that FIFO reaches `w->value`, in the step that `w->how` tells.
// Errors: ncclSystemError.
ncclResult_t tt_gpu_record_wait(gpu_recording *rec, const gpu_wait *w, const tt_fifo *f);
// The stream waits for those that were given since the last time, all at once.
void tt_gpu_record_waits_end(gpu_recording *rec);

// The first and the last of a plan that is recorded. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_record_begin(const tt_gpu_work *w);
ncclResult_t tt_gpu_record_end(const tt_gpu_work *w);

// Where kernels find what the plan has in its scratch; an address elsewhere stays what it is.
CUdeviceptr tt_gpu_record_place(const gpu_recording *rec, const volatile void *ptr);

// Submits all steps of plans that are being recorded: submit.c.
ncclResult_t tt_gpu_batch_steps(const tt_gpu_work *works, int n);
// Can the plan run on a GPU? Errors: ncclInvalidUsage.
ncclResult_t tt_gpu_plan_suits(const tt_plan *plan);
// Does a lane of the plan use a token that an earlier step has taken?
bool tt_gpu_plan_keeps_tokens(const tt_plan *plan);
// Copies the plan's input to its scratch, if it has one to copy. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_plan_stage(const tt_gpu_work *w);

// Copies buffers of the program to those in their place, or the output back. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_work_copy(const tt_gpu_work *w, bool back);

// Gives back what the capture has. `never`: nothing of it has been recorded.
void tt_gpu_capture_free(gpu_capture *c, bool never);
// All of the plan has been recorded: threads that look may know its waits, which become the capture's.
void tt_gpu_capture_show(gpu_capture *c, gpu_replay_wait *waits, uint32_t n);
// The port has one more plan in a graph.
void tt_gpu_captures_add(tt_gpu_port *p, struct gpu_capture *c);
// Takes the memory of graphs that have gone.
void tt_gpu_captures_reap(tt_gpu_port *p);
// The same of closed ports, and closes those that have no graph any more.
void tt_gpu_closed_reap(void);
// The port is closed, but graphs of it are left: keeps it for tt_gpu_closed_reap.
void tt_gpu_closed_add(tt_gpu_port *p);
// The port's communicator ends: its proxy moves nothing of the graphs any more. The port's one thread.
void tt_gpu_captures_leave(const tt_gpu_port *p);
// The port is stopped: releases the words that its graphs wait for. Any thread.
void tt_gpu_captures_release(const tt_gpu_port *p);
// Calls `fn` for the FIFO of tokens of each call in a graph, from the peer or to it (`sends`). Any thread.
void tt_gpu_captures_tokens(const tt_gpu_port *p, void (*fn)(tt_fifo_line *line, int peer, bool sends, void *arg),
                            void *arg);
// Gives its memory back, when no graph is left: port.c.
void tt_gpu_port_free(tt_gpu_port *p);
