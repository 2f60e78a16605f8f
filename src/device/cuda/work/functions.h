// functions.h: the kernels, loaded on each GPU that a port is on.
#pragma once
#include "device/cuda/gpu.h"

// Loads all kernels on the device, and with NCCL_CUDA_RESIDENT their walks, unless they are there: the first port does,
// because loading later may wait for streams that wait for words. They stay until the process ends. Its context is
// current. Any thread. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_functions_load(int device);

// A kernel of a device where they are loaded; `module`, `name`: as kernels/choose.h has them. Any thread.
CUfunction tt_gpu_function(int device, const char *module, const char *name);
// The same kernel as a walk (walk.h).
CUfunction tt_gpu_walk_function(int device, const char *module, const char *name);
// How many CTAs of any walk the device holds at once. They are loaded there. Any thread.
int tt_gpu_walk_ctas(int device);
