// model_choice.h: which algorithm NCCL 2.30 takes by the model of topo/model.h, and the model's answers as text: for
// the explorer and tests.
#pragma once
#include "topo/model.h"

typedef struct tt_model_choice {
  tt_model_algo algo;
  tt_model_proto proto;
  float us;
  int channels, threads;
} tt_model_choice;

// The fastest for an operation. ncclInvalidUsage: the variables leave none; ncclInternalError: there is none without
// them.
ncclResult_t tt_model_choose(const tt_model *m, const tt_model_op *op, tt_model_choice *out);

// Channels and threads of an operation with a given algorithm and protocol.
void tt_model_size(const tt_model *m, const tt_model_op *op, tt_model_choice *choice);

// Why something is off, what bounds its bandwidth: a part of a sentence. The text is constant. Any thread.
const char *tt_model_off_text(tt_model_off off);
const char *tt_model_bound_text(tt_model_bound bound);

// The variable that a reason's text names; NULL: none.
const char *tt_model_off_variable(tt_model_off off);
