// model.h: how long a collective takes with each algorithm and protocol on a machine, and which NCCL 2.30 takes.
//
// A pure function of connected graphs (connect.h), numbers of ranks and nodes, GPU generation and CPU. Constants and
// rules are NCCL 2.30.7's, so that its choices and predicted times come out. (src/coll/cost.h is another model: of this
// library's schedules on host memory.)
#pragma once
#include "nccl/tuner_v5.h"
#include "topo/connect.h"

// In NCCL's order.
typedef enum {
  TT_MODEL_BROADCAST,
  TT_MODEL_REDUCE,
  TT_MODEL_ALL_GATHER,
  TT_MODEL_REDUCE_SCATTER,
  TT_MODEL_ALL_REDUCE,
  TT_MODEL_FUNCS,
} tt_model_func;

typedef enum {
  TT_MODEL_TREE,
  TT_MODEL_RING,
  TT_MODEL_COLLNET_DIRECT,
  TT_MODEL_COLLNET_CHAIN,
  TT_MODEL_NVLS,
  TT_MODEL_NVLS_TREE,
  TT_MODEL_PAT,
  TT_MODEL_ALGOS,
} tt_model_algo;

typedef enum { TT_MODEL_LL, TT_MODEL_LL128, TT_MODEL_SIMPLE, TT_MODEL_PROTOS } tt_model_proto;

enum { TT_MODEL_WARP = 32, TT_MODEL_MAX_THREADS = 640 }; // threads of a warp; most threads of a channel

// Is the algorithm one of the two that reduce in NVSwitches?
static inline bool tt_model_is_nvls(tt_model_algo a)
{
  return a == TT_MODEL_NVLS || a == TT_MODEL_NVLS_TREE;
}

// Why an algorithm and protocol is unavailable for a function.
typedef enum {
  TT_OFF_NOT,            // it is
  TT_OFF_NEVER,          // the function has no such algorithm or protocol
  TT_OFF_GRAPH,          // the search found no channels, or too few
  TT_OFF_ONE_NODE,       // NVLS tree: there is only one node
  TT_OFF_COLLNET,        // the network does not reduce, or not this
  TT_OFF_SWITCH,         // collnet direct, NVLS: there is no NVSwitch
  TT_OFF_HEADS,          // more GPUs than heads, or a chain that does not end in a head
  TT_OFF_PAT,            // more than one rank per node, or a GPU below sm 60
  TT_OFF_LL128,          // LL128 would cross links that tear its lines, or GPUs differ
  TT_OFF_NVLS,           // no NVLS, or not for this operation
  TT_OFF_LOCALS,         // more ranks per node than the algorithm takes
  TT_OFF_OPERATION,      // this reduction is not done so
  TT_OFF_ALGO_VAR,       // NCCL_ALGO
  TT_OFF_PROTO_VAR,      // NCCL_PROTO
  TT_OFF_OLD_GPU,        // NVLS: a GPU below sm 90
  TT_OFF_NVLS_ENABLE,    // NCCL_NVLS_ENABLE
  TT_OFF_COLLNET_ENABLE, // NCCL_COLLNET_ENABLE
  TT_OFF_COLLNET_NODES,  // NCCL_COLLNET_NODE_THRESHOLD
  TT_OFF_REASONS,
} tt_model_off;

// What an algorithm's bandwidth comes from.
typedef enum {
  TT_BOUND_NONE,  // it is off
  TT_BOUND_INTRA, // the graph's bandwidth between the GPUs of a node
  TT_BOUND_INTER, // that to the cards
  TT_BOUND_GPU,   // what this generation's kernels do per channel
  TT_BOUND_LL,    // what protocol LL reaches: by GPU in one node, by CPU over several
  TT_BOUND_KINDS,
} tt_model_bound;

// What the variables say. All zero: none is set.
typedef struct tt_model_options {
  const char *algo, *proto;         // NCCL_ALGO, NCCL_PROTO; NULL: not set
  int nthreads;                     // NCCL_NTHREADS; 0: not set
  tt_model_off no_nvls, no_collnet; // what to say where these are not used; TT_OFF_NOT: what the machine lacks
} tt_model_options;

// The options as NCCL_ALGO, NCCL_PROTO, NCCL_NTHREADS, NCCL_NVLS_ENABLE and NCCL_COLLNET_ENABLE have them.
tt_model_options tt_model_options_from(const tt_params *params);

// What the model reckons with, as tuner plugins see it: by algorithm, protocol, kind of link (NVLink, PCI, network),
// generation of GPU, number of nodes.
typedef ncclTunerConstants_v5_t tt_model_constants;

// Copies the constants that hold unless a tuner plugin changes them.
void tt_model_constants_default(tt_model_constants *out);

typedef struct tt_model_input {
  const tt_connect *connect;           // only read while the model is made
  bool net_gathers;                    // with collnet: the network also does all-gather and reduce-scatter
  const tt_model_options *opt;         // NULL: no variable is set
  const tt_model_constants *constants; // NULL: those of tt_model_constants_default
} tt_model_input;

typedef struct tt_model {
  int nranks, nnodes, nchannels, nvls_channels, max_local, direct_heads, cc_min;
  bool collnet, x86;
  bool by_variable;                                                 // NCCL_ALGO or NCCL_PROTO took part
  float latency[TT_MODEL_FUNCS][TT_MODEL_ALGOS][TT_MODEL_PROTOS];   // microseconds
  float bandwidth[TT_MODEL_FUNCS][TT_MODEL_ALGOS][TT_MODEL_PROTOS]; // GB/s of the operation's size; 0: off
  uint8_t off[TT_MODEL_FUNCS][TT_MODEL_ALGOS][TT_MODEL_PROTOS];     // tt_model_off
  uint8_t bound[TT_MODEL_FUNCS][TT_MODEL_ALGOS][TT_MODEL_PROTOS];   // tt_model_bound
  int threads[TT_MODEL_ALGOS][TT_MODEL_PROTOS];                     // most per channel
  int64_t threshold[TT_MODEL_ALGOS][TT_MODEL_PROTOS];               // bytes per thread below which there are fewer
} tt_model;

// Makes the model. ncclInvalidUsage: NCCL_ALGO or NCCL_PROTO name what there is not; nothing is written then.
ncclResult_t tt_model_make(const tt_model_input *in, tt_model *out);

// One operation. Zero but for func and bytes: a sum of floats, alone.
typedef struct tt_model_op {
  tt_model_func func;
  size_t bytes; // the larger of a rank's send and receive buffer, as the perf programs count
  int together; // operations per channel in the same group; 0 counts as 1
  bool no_nvls; // NVLS cannot reduce this type or operation
  bool no_net;  // the network cannot
  bool scaled;  // multiplied before or divided after the reduction
  bool fp8;
} tt_model_op;

// Predicted microseconds; negative: off. NCCL adds in 32 bits.
float tt_model_time(const tt_model *m, const tt_model_op *op, tt_model_algo algo, tt_model_proto proto);

// Why that is off, for this operation.
tt_model_off tt_model_why(const tt_model *m, const tt_model_op *op, tt_model_algo algo, tt_model_proto proto);

// "AllReduce", "Tree", "LL128": NCCL's names.
const char *tt_model_func_name(tt_model_func func);
const char *tt_model_algo_name(tt_model_algo algo);
const char *tt_model_proto_name(tt_model_proto proto);

// Reads a list such as "ring,tree;allreduce:^tree" over `nelems` names; allow[func * nelems + e] becomes 0 or 1 for the
// functions that the list speaks of and stays as it is for the others. `variable` is named in messages.
// ncclInvalidUsage for unknown names, and for a list without function that is not the first.
ncclResult_t tt_model_allow(const char *variable, const char *text, const char *const *names, int nelems, int *allow);
