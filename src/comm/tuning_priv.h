// tuning_priv.h: what tuning.c (the library's own choice) and tuner.c (a plugin's) share.
#pragma once
#include "coll/crossing.h"
#include "coll/select.h"
#include "coll/selection.h"
#include "comm/tuning.h"
#include "comm/tuning_table.h"
#include "plugin/tuner.h"
#include "topo/model.h"

// Up to so many ranks the cost model is asked where there is a network, and for a plugin's table: walking the schedules
// takes time. Where the network takes long, a wrong choice costs more.
#define TT_MODEL_RANKS 16
#define TT_MODEL_RANKS_FAR 64

// What a plugin was last asked for a function: the library's choice and the costs follow from size and number alone.
typedef struct tt_asked {
  bool made;
  size_t bytes;
  int ops;
  bool in_network;
  tt_choice own;
  tt_tuner_question question;
} tt_asked;

// The rules that may hold for a function of a communicator, each with the sizes for which it does: algorithms,
// protocols, then rules of chunks. Made when first asked for; so a choice costs some comparisons of the size.
typedef struct tt_func_rules {
  int nalgos, nprotos, nchunks;
  tt_size_range ranges[]; // result: TT_ALGO_…, tt_proto, number of the rule
} tt_func_rules;

struct tt_tuning {
  tt_algo_filter filter;
  tt_figures figures; // that all ranks reckon with
  tt_limits limits;   // sizes that follow from them, for thresholds
  size_t thresholds[TT_NTHRESHOLDS];
  tt_func_rules *rules[TT_NFUNCS][2]; // [networked]; NULL: not asked yet
  uint32_t ll_capacity, simple_capacity,
      net_capacity;             // of one slot; net: SIMPLE where every message goes over the network
  bool mixed;                   // some ranks have memory in common
  double net_delay;             // microseconds that each message takes over the network at least; 0: as the table says
  tt_cost *cost;                // NULL: not asked
  tt_cost *estimates;           // what tt_tuning_estimate walks where `cost` is NULL; NULL: not asked yet
  tt_tuner *tuner;              // NULL: none. What is below is of use with one only
  uint64_t tuner_identity;      // of plugin and file; 0: none
  tt_model_constants constants; // as the plugin left them
  bool constants_changed;
  tt_model *model;   // of the described machine with these constants; NULL: the topology's
  unsigned reported; // functions of which INFO says that the plugin decides
  tt_asked asked[NCCL_NUM_FUNCTIONS];
};

// May this row be used for the function, as ranks are connected and as NCCL_ALGO says? `in_network`: the network may
// reduce the operation.
bool tt_tuning_usable(const struct ncclComm *comm, tt_func func, int row, bool in_network);

// Completes a collective's choice: c->algo is given, so is c->proto (of no account where the algorithm uses direct
// access). Errors: ncclSystemError.
ncclResult_t tt_tuning_take(const struct ncclComm *comm, tt_func func, size_t bytes, tt_choice *c);

// Takes out of the selection what the communicator cannot use, and what NCCL_ALGO and NCCL_PROTO do not allow.
void tt_tuning_restrict(const struct ncclComm *comm, tt_func func, bool in_network, tt_selection *s);
// Chooses out of such a selection, which is not empty. Errors: ncclSystemError, those of the cost model.
ncclResult_t tt_tuning_select(const struct ncclComm *comm, tt_func func, size_t bytes, const tt_selection *s,
                              tt_choice *out);

// The longest chunk of this choice.
size_t tt_tuning_longest(const struct ncclComm *comm, tt_func func, const tt_choice *c);

// Takes rank 0's figures, and sets the thresholds: those that it has found with them, and those that follow from
// parameters.
void tt_tuning_take_figures(const struct ncclComm *comm, tt_tuning *t);

// Looks for a tuner plugin and begins with it; t->tuner stays NULL where there is none. Errors: ncclSystemError.
ncclResult_t tt_tuning_open_plugin(const struct ncclComm *comm, tt_tuning *t);
void tt_tuning_drop_plugin(tt_tuning *t);
