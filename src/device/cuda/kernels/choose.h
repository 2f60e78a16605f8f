// choose.h: which kernel makes the data of a step, and with which arguments.
#pragma once
#include <stdbool.h>

#include "device/cuda/kernels/kernels.h"
#include "device/reduce.h"

typedef struct tt_kernel {
  const char *module, *name; // modules.h
  tt_cuda_combine args;
} tt_kernel;

// What a step asks of tt_reduce, with `nsrc` sources (at least 1).
typedef struct tt_kernel_use {
  const tt_redop *op; // without a program's function
  int nsrc, ndst;
  size_t count;
  bool scaled; // some source may have a factor
  bool final;  // apply the division
} tt_kernel_use;

// Chooses the kernel that does it. Pure.
void tt_kernel_choose(const tt_kernel_use *use, tt_kernel *out);

// Threads of a launch of one CTA that have something to do: one for each of `most` packs of data or entries of a list,
// in whole warps, TT_CUDA_THREADS at most. Pure.
unsigned tt_kernel_threads(size_t most);
