// perf.h: what a perf program is made of. A collective is one perf_coll; perf_main does the rest.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "nccl.h"

// One test at one size, as one rank sees it. Counts are in elements.
typedef struct perf_case {
  int rank, nranks;
  int root; // -1: the collective has none
  ncclDataType_t type;
  size_t elt; // bytes per element
  int op;     // perf_options op number
  bool in_place;
  size_t count;                    // the count argument of the call
  size_t send_count, recv_count;   // elements in the input and in the output of a rank
  size_t send_offset, recv_offset; // in place: elements of the receive buffer before the input and before the output
} perf_case;

// One call: buffers already moved to where this iteration works.
typedef struct perf_call {
  const perf_case *c;
  char *send, *recv;
  ncclRedOp_t op;
  ncclComm_t comm;
  cudaStream_t stream;
  int device;
} perf_call;

// Queues a copy on the call's stream, between buffers of its rank.
ncclResult_t perf_copy(const perf_call *x, void *to, const void *from, size_t size);

// Describes the contents of one buffer, piece by piece, in ascending order of `offset` (elements from the start of the
// input or output).
typedef struct perf_layout perf_layout;

// `count` elements that rank `source` owns, from number `index` of its data on; copied around unchanged.
void perf_put_copy(perf_layout *l, size_t offset, size_t count, int source, size_t index);
// `count` elements of rank `rank`'s input of a reduction, from element `index` of the vector on.
void perf_put_input(perf_layout *l, size_t offset, size_t count, int rank, size_t index);
// The same elements of the reduction's result.
void perf_put_reduced(perf_layout *l, size_t offset, size_t count, size_t index);

typedef struct perf_coll {
  const char *redop; // text in the redop column; NULL: a reduction, -o chooses the operations
  bool rooted;       // -r chooses the roots
  bool no_in_place;  // in place is timed but has no defined result
  bool no_group;     // an operation is several groups in a row: they must not be put into an outer group
  int max_p2p_peers; // for ncclConfig_t; 0: not set
  // Fills the count members of *c for `count` elements of total size. c's rank, nranks, elt are set. Pure.
  void (*counts)(perf_case *c, size_t count);
  // Pieces of rank c->rank's input, and of its output when all went well. What they leave out is not filled, and must
  // not be written.
  void (*input)(const perf_case *c, perf_layout *l);
  void (*output)(const perf_case *c, perf_layout *l);
  // Bytes for algbw as a multiple of the greater of input and output; busbw as a multiple of algbw. NULL: 1.
  double (*alg_factor)(int nranks);
  double (*bus_factor)(int nranks);
  // Issues the operation. Any result but ncclSuccess ends the job.
  ncclResult_t (*run)(const perf_call *call);
  // Optional. Lines for -h, behind the options.
  const char *help;
  // Optional. Is asked before anything starts: NULL, or a line that says why it cannot run with these sizes and so many
  // ranks.
  const char *(*prepare)(size_t min_bytes, size_t max_bytes, int nranks);
  // Optional. True when this number of ranks makes no sense: the program then runs no test and says so.
  bool (*skip)(int nranks);
  // Optional. Called by the main thread with each result: `seconds` per operation.
  void (*summary)(const perf_case *c, double seconds);
} perf_coll;

// (n - 1) / n and 2 (n - 1) / n, the usual factors.
double perf_factor_others(int nranks);
double perf_factor_twice(int nranks);

// Elements per rank when `count` are shared by c->nranks ranks: rounded down to whole 16 bytes.
size_t perf_share(const perf_case *c, size_t count);

// The whole program. Returns the exit status: 0, 1 usage, or nccl-tests' numbers (2 CUDA error, 3 NCCL error, 4
// timeout, 5 not possible here, 7 wrong results or bandwidth below NCCL_TESTS_MIN_BW).
int perf_main(const perf_coll *coll, int argc, char **argv);
