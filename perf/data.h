// data.h: what the host and the kernels that make and check data on GPUs share (data.cu).
#pragma once
#include "mix.h"

enum { PERF_GPU_THREADS = 256 }; // of a CTA

// Elements in a row, as in verify.h; addresses are the device's.
typedef struct perf_gpu_piece {
  uint64_t at, count;
  uint64_t table; // 2 * PERF_PERIOD elements; 0: poison, of which compare gets the bits in `seed`
  uint64_t seed, index;
  uint64_t found; // of compare: address of a perf_gpu_finding
  uint32_t elt, tolerance;
} perf_gpu_piece;

// `wrong` is counted up from 0, `first` down from UINT64_MAX.
typedef struct perf_gpu_finding {
  uint64_t wrong, first;
} perf_gpu_finding;
