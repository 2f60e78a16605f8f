// select.h: NCCL_ALGO and NCCL_PROTO: which algorithms and protocols the user allows for which function.
// base/name_list.h has the syntax.
#pragma once
#include "coll/coll.h"

// Bits of tt_algo_filter.protos. LL128 is accepted: to allow it means to allow LL, to exclude it excludes nothing.
enum {
  TT_PROTO_LL = 1,
  TT_PROTO_SIMPLE = 2,
  TT_PROTO_ALL = 3,
};

// What is allowed, per function. An empty mask is possible: the user named only what we do not have (NVLS, ...), or
// nothing that knows the function; the planner decides what to do then.
typedef struct tt_algo_filter {
  uint32_t algos[TT_NFUNCS];  // bit i: row i of tt_algorithms
  uint32_t protos[TT_NFUNCS]; // TT_PROTO_…
  bool ll128;                 // LL128 is named among what is allowed
} tt_algo_filter;

// Parses the two values (NULL or "": everything is allowed but TT_ALGOS_ASKED, which are allowed by name only). Entries
// without a function hold for the five collectives NCCL has them for (broadcast ... all-reduce); the other functions
// can be named: "alltoall:pairwise". NCCL's names for what we do not have are accepted and never available.
// ncclInvalidUsage, naming the word, the variable and what is allowed, when a word is unknown. *out is written only on
// success. Any thread.
ncclResult_t tt_algo_filter_parse(const char *algo, const char *proto, tt_algo_filter *out);
