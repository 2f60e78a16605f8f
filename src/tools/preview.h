// preview.h: what a communicator of one machine would choose, without making one: for the explorer and tests.
#pragma once
#include "comm/tuning.h"

// So many ranks of a machine of `cores` cores with these figures.
typedef struct tt_preview_env {
  tt_figures figures;
  int nranks, cores;
  bool one_process; // threads of one process; else each is a process
} tt_preview_env;

typedef struct tt_preview tt_preview;

// NCCL_ALGO, NCCL_PROTO and thresholds of this process hold. Errors: ncclSystemError, and those of tt_tuning_create.
ncclResult_t tt_preview_create(const tt_preview_env *env, tt_preview **out);
// NULL is allowed.
void tt_preview_destroy(tt_preview *p);
// What a collective would run with, and for how many microseconds by the cost model. Errors: those of tt_tuning_choose
// and tt_tuning_estimate.
ncclResult_t tt_preview_choose(tt_preview *p, tt_func func, size_t bytes, tt_choice *choice, double *us);
