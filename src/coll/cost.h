// cost.h: how long an operation will take, and which algorithm and protocol will be the fastest.
//
// Nothing is known here of algorithms: their schedules are walked. All ranks' schedules run for a few passes on a
// clock, each step taking the time that the table of costs gives it. Times are work of a core, waiting for messages,
// for room, for the node's network and for one of its cores. That gives the time of the first passes and how much every
// further one adds. It is done once for each function, algorithm and protocol, for three sizes of chunk, when first
// asked for; sizes between follow by interpolation.
//
// Where an operation runs over several channels (coll.h), the first one's schedules are walked. A machine's channels
// are alike, and together they take as many passes as one would. Channels are few enough (comm/tuning.c) that changing
// from one to the next is a small part.
//
// The same numbers give the same answer on every rank: all ranks must pass equal tables and layouts.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"
#include "device/fifo.h"
#include "figures/figures.h"

// Where a message passes.
typedef enum { TT_HOP_SELF, TT_HOP_MEMORY, TT_HOP_NETWORK, TT_HOP_KINDS } tt_hop_kind;

// Times in microseconds.
typedef struct tt_cost_hop {
  // From the end of the sender's step until the receiver sees the message, beyond the time its bytes take.
  double latency;
  double work; // of the core, for each message, at each end
  double byte; // of the core, for each byte, at each end
} tt_cost_hop;

enum { TT_COST_FIFOS = TT_TINY }; // geometries that the model knows: TINY is for ranks that share cores and memory

typedef struct tt_cost_env {
  tt_cost_hop hop[TT_HOP_KINDS][TT_COST_FIFOS]; // messages; TT_TOK: tokens
  tt_cost_hop direct;                           // reading or writing a peer's buffer: work and byte
  double step;                                  // of the core, for each step
  double byte;                                  // of the core, for each byte of own memory that is read or written
  double sum;                                   // beside that: for each byte that a step adds to another one
  double net_byte;                              // of a node's network, for each byte, in each direction
  double change;                                // of a core, to go on with another rank than before
  double slice;                                 // for so long a rank keeps a core that others want
  int cores;                                    // per node; of one_machine: of all together
  // A rank that had nothing to do goes on with `rouse` of work; if that was longer than `idle`, by `wake` later, too.
  double rouse, idle, wake;
  // Of a core, for a call that fetches what a connection of the network has brought, and for each message in it. 0:
  // there is none, and the step that takes a message does its work.
  double fetch, each;
  // What a connection of the network holds of a message's way: bytes that have left the sender's slots, and that the
  // receiver has not acknowledged. 0: they stay in the slots.
  double net_window;
  // The nodes are parts of one machine (namespaces): they share its cores, and one thread with a core of its own
  // carries their messages.
  bool one_machine;
  double carry_work, carry_byte; // for that thread to carry a message, and each of its bytes
  uint32_t slots[TT_COST_FIFOS]; // messages a connection holds
  size_t payload[TT_COST_FIFOS]; // largest chunk. TT_TOK: of algorithms that use direct access
} tt_cost_env;

// What an operation costs at best.
typedef struct tt_cost_choice {
  int algo;       // row of tt_algorithms; -1: none of those asked for can do it
  tt_proto proto; // TT_TOK for algorithms that need direct access
  size_t chunk;   // size of a chunk, with which `us` was reckoned
  double us;      // HUGE_VAL: cannot be done
} tt_cost_choice;

typedef struct tt_cost tt_cost;

// The table of costs of this library on a common machine with so many cores per node.
tt_cost_env tt_cost_env_default(int cores);

// The same on a machine with these figures. With the library's own it is the table above.
tt_cost_env tt_cost_env_of(const tt_figures *f, int cores);

// Makes an empty model. `env` is copied; `layout` (NULL: one node) is used as long as the model lives.
// ncclInvalidArgument for a table or layout that makes no sense, ncclSystemError when out of memory. A model is used by
// one thread at a time.
ncclResult_t tt_cost_create(const tt_cost_env *env, int nranks, const tt_layout *layout, tt_cost **out);

// Frees the model. NULL is allowed.
void tt_cost_destroy(tt_cost *c);

// The cost of `func` with row `algo` and a protocol (of no account for algorithms that need direct access), at the best
// size of chunk. `bytes`: of the message; where buffers are n blocks, of all n together. out->algo is `algo`, and
// out->us HUGE_VAL when the algorithm does not know the function or needs direct access between nodes.
// ncclInvalidArgument for send and receive, which depend on who they are between, and for senseless numbers;
// ncclSystemError when out of memory.
ncclResult_t tt_cost_estimate(tt_cost *c, tt_func func, int algo, tt_proto proto, size_t bytes, tt_cost_choice *out);

// What one run of operations takes, walked to its end.
typedef struct tt_cost_run {
  tt_func func;
  int algo;
  tt_proto proto; // of no account for algorithms that need direct access
  size_t bytes;   // of the message, as in tt_cost_estimate
  size_t chunk;   // bytes of a chunk
  int times;      // operations, one behind the other: a rank begins the next one when it has done its part
} tt_cost_run;

// What perf programs print: microseconds of the rank that takes longest, divided by the number of operations. A barrier
// goes before, which rank 0 leaves first, and the others by the way of a message later. Operations are walked one
// behind the other, as many as fit into 32,768 passes of all ranks together (but 512 at least). Further ones go on at
// the pace of the second half, or as the busiest rank, core or network can. Of an operation of more than a quarter of
// that the beginning is walked, and it stands for all. HUGE_VAL: cannot be done. Errors: ncclInvalidArgument (send and
// receive, no such algorithm, no chunk, no operations), ncclSystemError (no memory).
ncclResult_t tt_cost_of_run(tt_cost *c, const tt_cost_run *run, double *us);

// The cheapest among the rows in `algos` (bit i: row i) and the protocols in `protos` (TT_PROTO_…). Equal costs: the
// earlier row, SIMPLE. out->algo -1 when none can do it. Errors as tt_cost_estimate.
ncclResult_t tt_cost_best(tt_cost *c, tt_func func, size_t bytes, uint32_t algos, uint32_t protos, tt_cost_choice *out);
