// tuning_table.h: the library's own choice as tables: which algorithm, which protocol, which chunk size. tuning.c reads
// them; scripts/tuning_doc.c prints them into docs/tuning.md. A rule is a condition and what follows where it holds.
// Rules are asked from the first to the last; the first one holds whose condition does and whose result the user
// (NCCL_ALGO, NCCL_PROTO) and the machine allow.
#pragma once
#include "coll/coll.h"
#include "device/fifo.h"

// The numbers that conditions compare with (thresholds.def).
typedef enum {
#define T(id, value, what, source) TT_AT_##id,
#include "comm/thresholds.def"
  TT_NTHRESHOLDS
} tt_threshold_id;

typedef struct tt_threshold {
  const char *name;
  size_t value; // 0: tuning.c sets it for each communicator
  const char *what, *source;
} tt_threshold;

// What a bound is about. Sizes in bytes: of the larger buffer, as the perf programs count.
typedef enum {
  TT_OF_NOTHING,  // no bound
  TT_OF_SIZE,     // the operation's size
  TT_OF_PART,     // size / ranks
  TT_OF_TOTAL,    // size × ranks
  TT_OF_RANKS,    // number of ranks
  TT_OF_PER_CORE, // ranks per core of the only machine, rounded down; 0 unless there are more ranks than cores
  TT_NQUANTITIES
} tt_quantity;

typedef enum { TT_AT_MOST, TT_ABOVE, TT_BELOW, TT_AT_LEAST } tt_relation;

typedef struct tt_bound {
  uint8_t quantity, relation, threshold; // tt_quantity, tt_relation, tt_threshold_id
} tt_bound;

// Where an operation runs: bits that a condition asks for.
enum {
  TT_ONE_PROCESS = 1 << 0, // all ranks are threads of one process
  TT_PROCESSES = 1 << 1,   // they are not
  TT_TWO_RANKS = 1 << 2,   // two ranks
  TT_MORE_RANKS = 1 << 3,  // three or more
  TT_SOME_RANKS = 1 << 4,  // two or more
  TT_NETWORK = 1 << 5,     // some message of the operation goes over the network
  TT_SHARED_NODE = 1 << 6, // some node has several ranks
  TT_CROWDED = 1 << 7,     // some machine has more ranks than cores
  TT_LOCAL_CROWD = 1 << 8, // the same, and no pair of ranks needs the network
  TT_DIRECT_FREE =
      1
      << 9, // not TT_TURNS, or NCCL_HOST_DIRECT_THRESHOLD is set: ranks may wait for each other several times per pass
  TT_BY_MODEL = 1 << 10, // the walking model has chosen algorithm and protocol
  TT_NPLACES = 11,
  TT_TURNS = TT_LOCAL_CROWD | TT_PROCESSES, // processes share cores
};

enum { TT_BOUNDS = 3, TT_RULES_MOST = 128 }; // TT_RULES_MOST: algorithms, protocols and chunks of all rules together

// Holds where the function is one of `funcs` (bits 1 << tt_func), all bits of `where` are set, and all bounds are kept.
typedef struct tt_condition {
  uint32_t funcs, where;
  tt_bound bounds[TT_BOUNDS];
} tt_condition;

typedef struct tt_algo_rule {
  tt_condition when;
  int algos[2]; // TT_ALGO_…; the second one where the first is not allowed; -1: none
} tt_algo_rule;

typedef struct tt_proto_rule {
  tt_condition when;
  tt_proto proto; // TT_TINY: LL in the FIFO with more slots
} tt_proto_rule;

typedef enum {
  TT_CHUNK_FIXED,   // the threshold
  TT_CHUNK_EQUAL,   // equal parts of what a rank gives or gets, in whole pages, each at most the threshold
  TT_CHUNK_MESSAGE, // the whole message, at most a slot and the threshold
  TT_CHUNK_SHARE,   // what a rank sends at a time, divided by `passes`, at least the threshold, at most a slot
  TT_CHUNK_MODEL,   // as the walking model has found, in whole TCP segments where the message takes several passes
  TT_CHUNK_LONGEST, // the same; but a slot of the network where the model has found a slot of shared memory
} tt_chunk_kind;

typedef struct tt_chunk_rule {
  uint32_t algos; // bits 1 << TT_ALGO_…
  tt_condition when;
  tt_chunk_kind kind;
  tt_threshold_id size; // of no use to TT_CHUNK_MODEL and TT_CHUNK_LONGEST
  unsigned passes;      // TT_CHUNK_SHARE
} tt_chunk_rule;

// The tables. The last protocol rule and the last chunk rule of each algorithm hold always. They live as long as the
// process. Any thread.
extern const tt_threshold tt_thresholds[TT_NTHRESHOLDS];
const tt_algo_rule *tt_algo_rules(size_t *count);
const tt_proto_rule *tt_proto_rules(size_t *count);
const tt_chunk_rule *tt_chunk_rules(size_t *count);

// Where operations run, as conditions see it.
typedef struct tt_situation {
  tt_func func;
  uint32_t where;
  size_t ranks, per_core; // TT_OF_RANKS, TT_OF_PER_CORE
} tt_situation;

// Sizes of operations from `least` to `most`, and what holds for them.
typedef struct tt_size_range {
  size_t least, most;
  int result;
} tt_size_range;

// The sizes for which the condition holds, in *out. False: none. `thresholds`: the communicator's values, by
// tt_threshold_id. Any thread.
bool tt_condition_sizes(const tt_condition *c, const tt_situation *s, const size_t *thresholds, tt_size_range *out);
