// pool.h: memory of the library's own on GPUs, and pinned memory of the host.
//
// What is given back is used again and never freed, until the program resets the device: freeing waits for all work of
// a context, of which some may wait for a word that the caller has to write. Any thread. The driver is open.
#pragma once
#include "device/cuda/gpu.h"

enum { TT_GPU_PINNED = -1 }; // in place of a device

// So many bytes of the device, or of pinned memory, which are not zeroed. Errors: ncclUnhandledCudaError,
// ncclSystemError, and those of tt_gpu_enter.
ncclResult_t tt_gpu_pool_take(int device, size_t bytes, void **out);

// Gives it back; nothing uses it any more. NULL is allowed.
void tt_gpu_pool_give(int device, void *memory);

// Bytes that the pool has, and how many of them are taken. For tests.
void tt_gpu_pool_count(size_t *bytes, size_t *taken);
