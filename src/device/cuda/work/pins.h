// pins.h: memory between ranks that GPUs read and write, pinned. Several ranks of a process may pin the same pages.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "nccl.h"

// Pins so many bytes from `base` on, whole pages, or counts one more use of what begins there. The device's context is
// current. Any thread. Errors: ncclUnhandledCudaError, ncclSystemError.
ncclResult_t tt_gpu_pin(int device, char *base, size_t bytes);
// One use less. What nobody uses stays pinned: to unpin it, the driver waits for all work of the process, and that may
// wait for what the calling thread submits next. tt_gpu_ranks_close_stale is called next, before the pages may go. Any
// thread.
void tt_gpu_unpin(char *base);

// For rank.c, any thread. Is anything pinned that nobody uses?
bool tt_gpu_pins_stale(void);
// Unpins it. Nothing of the process is in flight, and nobody submits.
void tt_gpu_pins_close_stale(void);
// It stays pinned, and its pages may go: notes which they are.
void tt_gpu_pins_keep_stale(void);
