// submit.h: plans as stream work.
#pragma once
#include "device/cuda/stream.h"
#include "device/cuda/work/port.h"
#include "device/lane.h"

// A part of the program's memory that the plan uses in another place (stage.h): copied there before, and some of it
// back behind.
typedef struct tt_gpu_copy {
  char *user, *stage;
  size_t bytes, back, back_bytes; // `back`: an offset
} tt_gpu_copy;

// A plan of one rank, and where it is to run. Its lanes are `turns` and their followers, without programs; all buffers
// are memory that the device reaches: its own, a peer's device's, or pinned.
typedef struct tt_gpu_work {
  tt_gpu_port *port;
  tt_gpu_stream *stream;
  tt_plan *plan;
  const tt_gpu_copy *copies; // of its port's stage, which stay until it is submitted
  int ncopies;
  bool captured; // the stream is
  void *stage;   // memory of the device for them, of a plan that is to be captured: its graph's from then on; else NULL
} tt_gpu_work;

// Submits the plans of n ranks of this process and of one communicator that run together, at most one of each rank;
// then all lanes are done, and the plan is complete when its port is idle. Never waits for a peer.
//
// Steps are submitted in the order of their levels (coll/level.h), of all n together. So everything that a stream waits
// for stands before the wait in the order of submission, or is submitted by another thread or process, which keeps the
// same order: one hardware queue for all streams of the n ranks is enough, and no ranks wait for each other in a
// circle.
//
// One thread. Errors: ncclUnhandledCudaError; ncclInvalidUsage (the operation is a function of the program's). Then all
// n ports are stopped, and can be settled: those on the device of the rank whose work has failed with this error, the
// others because of that rank.
ncclResult_t tt_gpu_submit(const tt_gpu_work *works, int n);

// Stops their ports: first for those who ask for the error, then for the streams.
void tt_gpu_works_stop(const tt_gpu_work *works, int n, ncclResult_t code);
