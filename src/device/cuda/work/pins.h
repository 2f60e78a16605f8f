// pins.h: memory between ranks that GPUs read and write, pinned. Several ranks of a process may pin the same pages.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "nccl.h"

// Pins so many bytes from `base` on, whole pages, or counts one more use of what begins there. A context of the process
// is current. Any thread. Errors: ncclUnhandledCudaError, ncclSystemError.
ncclResult_t tt_gpu_pin(char *base, size_t bytes);
// One use less; the last one unpins, for which the driver waits for all work of the context. Not `there`: the device
// has been reset since, and nothing is pinned any more; no context need be current.
void tt_gpu_unpin(char *base, bool there);
