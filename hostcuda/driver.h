// driver.h: the CUDA driver's names on host devices: what lib/cuda/libcuda.so.1 exports and cudaGetDriverEntryPoint
// finds.
#pragma once
#include "hostcuda.h"

// The driver's function that this name means to a program of this version of CUDA ("cuMemAlloc": cuMemAlloc_v2 from
// 3020 on), in the form for programs with per-thread default streams if `per_thread`. NULL, and *status why, for one
// that is not here, or not in so old a form.
void *hc_driver_find(const char *name, unsigned version, bool per_thread, enum cudaDriverEntryPointQueryResult *status);
