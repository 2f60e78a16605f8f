// device.h: the devices that the ranks are on: a table of functions with a row for each kind, host memory and GPUs. The
// row is that of the library's communicators (tuttiGetDeviceKind).
//
// Handles of streams, events and graphs are those of tutti.h; a GPU's are the driver's, in the same types. A function
// that returns ncclResult_t leaves its failures to PERF_NCCL; calls of the CUDA driver that fail end the program there.
#pragma once
#include "job.h"

typedef struct perf_device_ops {
  // What there is of a device, in the line of an error: "host memory", "GPUs".
  const char *name;
  // More ranks than devices share them. Else that is an error.
  bool shared;
  // Opens the driver. Before all others.
  void (*open)(void);
  ncclResult_t (*count)(int *count);
  // Makes it the calling thread's device.
  ncclResult_t (*set)(int device);
  // Fills bus and info of *d.
  void (*describe)(int device, perf_device *d);
  // Bytes that buffers of one rank may have in all; r->sharing is set.
  size_t (*room)(const perf_job *j, const perf_rank *r);
  // Bytes that this process uses; of GPUs, what is used of the fullest one of its ranks, whoever uses it. Leaves the
  // calling thread with another device.
  int64_t (*memory)(const perf_job *j);
  // Creates r->stream, on the rank's device, and destroys it. Not called with -y.
  ncclResult_t (*open_stream)(perf_rank *r);
  ncclResult_t (*close_stream)(perf_rank *r);
  // Memory of the device, which ncclMemAlloc gives too; zero writes all of it.
  ncclResult_t (*alloc)(const perf_rank *r, size_t size, void **out);
  ncclResult_t (*free)(const perf_rank *r, void *memory);
  ncclResult_t (*zero)(const perf_rank *r, void *memory, size_t size);
  // Makes and compares data in the buffers of a rank, which is the argument, on r->stream. NULL: the program reads and
  // writes the device's memory itself. Before and after: load and unload, with the rank's pattern; NULL as well.
  const perf_reach *reach;
  void (*load)(perf_rank *r);
  void (*unload)(perf_rank *r);
  // Queues a copy within a device.
  ncclResult_t (*copy)(int device, void *to, const void *from, size_t size, cudaStream_t stream);
  // Waits until r->stream has nothing left to do, or the communicator has failed.
  ncclResult_t (*wait)(const perf_rank *r);
  // Events with times.
  ncclResult_t (*make_event)(const perf_rank *r, tuttiEvent_t *out);
  ncclResult_t (*destroy_event)(const perf_rank *r, tuttiEvent_t event);
  ncclResult_t (*record)(const perf_rank *r, tuttiEvent_t event);
  ncclResult_t (*elapsed)(const perf_rank *r, float *ms, tuttiEvent_t start, tuttiEvent_t end);
  // What is queued to r->stream between the two becomes r->exec.
  ncclResult_t (*begin_capture)(const perf_rank *r);
  ncclResult_t (*end_capture)(perf_rank *r);
  ncclResult_t (*launch)(const perf_rank *r);
  ncclResult_t (*destroy_graph)(perf_rank *r);
} perf_device_ops;

extern const perf_device_ops perf_device_host, perf_device_cuda;

// Sets what the driver reads when it is opened. Before any thread.
void perf_device_prepare(void);

// Asks the library, and opens the row. Once, in the process that has the ranks, before any other call of the library's
// that creates something.
void perf_device_choose(void);

// The row that has been chosen.
const perf_device_ops *perf_devices(void);
