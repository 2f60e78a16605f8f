// coll.h: the collective algorithms as pure functions that write schedules, and the table of them. Front door of
// src/coll.
//
// An algorithm is a function (shape) -> schedule: no I/O, no threads, no state. What a schedule says is in
// device/schedule.h; that the schedules are right is proved by tools/verify.h for every number of ranks the tests ask
// for.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "coll/layout.h"
#include "device/schedule.h"
#include "nccl.h"

typedef enum {
  TT_FUNC_BROADCAST,
  TT_FUNC_REDUCE,
  TT_FUNC_ALLGATHER,
  TT_FUNC_REDUCESCATTER,
  TT_FUNC_ALLREDUCE,
  TT_FUNC_ALLTOALL,
  TT_FUNC_GATHER,
  TT_FUNC_SCATTER,
  TT_FUNC_SEND,
  TT_FUNC_RECV,
  TT_NFUNCS,
  // Calls whose blocks have lengths of their own. They have no schedules: a call has one for each of its parts, which
  // are messages or sums (comm/blocks.h).
  TT_FUNC_ALLGATHERV = TT_NFUNCS,
  TT_FUNC_REDUCESCATTERV,
  TT_FUNC_GATHERV,
  TT_FUNC_SCATTERV,
  TT_FUNC_ALLTOALLV,
  TT_NCALLS
} tt_func;

// The function that does the same with blocks of one length; `f` itself where its blocks have one.
static inline tt_func tt_func_base(tt_func f)
{
  switch (f) {
  case TT_FUNC_ALLGATHERV: return TT_FUNC_ALLGATHER;
  case TT_FUNC_REDUCESCATTERV: return TT_FUNC_REDUCESCATTER;
  case TT_FUNC_GATHERV: return TT_FUNC_GATHER;
  case TT_FUNC_SCATTERV: return TT_FUNC_SCATTER;
  case TT_FUNC_ALLTOALLV: return TT_FUNC_ALLTOALL;
  default: return f;
  }
}

// What one rank's schedule is written for.
typedef struct tt_shape {
  tt_func func;
  int rank, nranks;
  int root; // root of rooted functions; for SEND and RECV the peer (which may be the rank itself); otherwise unused
  const int *order; // ring order: order[i] = rank at place i, a permutation of 0..nranks-1, the same on every rank;
                    // NULL = identity
  const tt_layout *layout; // which rank sits where, the same on every rank; its order is the ring order where it has no
                           // channels, so `order` is NULL. NULL = one node
  int channel; // which of the layout's channels, for algorithms that follow them (tt_algorithm_channels); 0 for others
} tt_shape;

// What an algorithm asks of the connections between the ranks.
enum {
  TT_NEEDS_READ = 1,  // ranks can read each other's memory (TT_PEER_IN, TT_PEER_OUT as sources)
  TT_NEEDS_WRITE = 2, // ranks can write each other's memory (TT_PEER_OUT as destination)
};

// Whose schedules differ from channel to channel.
enum {
  TT_FOLLOWS_NODES,  // they do not
  TT_FOLLOWS_RING,   // by the channel's ring
  TT_FOLLOWS_TREE,   // by its tree
  TT_FOLLOWS_PACKED, // by its packed tree; where none are given, by its tree
};

// One row of the table.
typedef struct tt_algorithm {
  const char *name; // as in NCCL_ALGO
  const char *id;   // as profilers are told
  const char *doc;  // one sentence
  uint32_t funcs;   // functions it knows: bit 1 << tt_func
  uint32_t needs;   // TT_NEEDS_…
  int follows;      // TT_FOLLOWS_…
  // tt_algorithm_write calls it, with a shape that makes sense; one rank alone, only with SEND or RECV.
  ncclResult_t (*write)(const tt_shape *shape, tt_schedule **out);
  bool in_network;         // on several nodes the network has to reduce (collnet.c)
  const char *variants[2]; // with protocol TT_SIMPLE, TT_LL, as profilers are told: "RING_SIMPLE", "RING_LL"
} tt_algorithm;

// Rows of the table: TT_ALGO_RING, ...
enum {
#define A(id, name, write, funcs, needs, follows, in_network, doc) TT_ALGO_##id,
#include "coll/algorithms.def"
  TT_NALGOS
};
// Rows that sum each element in one step, from the inputs of ranks 0 to n-1 in this order: the same bits for any size,
// layout and kind of memory (tools/verify.h proves it).
#define TT_ALGOS_IN_ORDER \
  (1u << TT_ALGO_ONESHOT | 1u << TT_ALGO_DIRECT | 1u << TT_ALGO_DIRECTWRITE | 1u << TT_ALGO_ORDERED)
// Rows that are allowed only where NCCL_ALGO or the call names them, and chosen only where nothing else is left.
#define TT_ALGOS_ASKED (1u << TT_ALGO_PACKED)
_Static_assert(TT_NALGOS <= 32, "sets of algorithms are words of 32 bits");

// The table; *count (may be NULL) receives the number of rows, TT_NALGOS. Lives as long as the process. Any thread.
const tt_algorithm *tt_algorithms(int *count);

// Row of the algorithm with this name (case does not matter), or -1.
int tt_algorithm_find(const char *name);

// Writes the schedule of shape->rank into *out (free it with tt_schedule_free). Any thread. ncclInvalidArgument for a
// shape that makes no sense or a function that is not in `funcs`; ncclSystemError when out of memory.
ncclResult_t tt_algorithm_write(const tt_algorithm *a, const tt_shape *shape, tt_schedule **out);

// The channels over which an algorithm can run: one schedule for each, written with `channel` in the shape. 0: the
// layout (NULL: none) has given nothing that the algorithm follows, so that there is the one schedule of nodes and
// order, channel 0. Any thread.
//
// An operation shares its message out to channels, which take their turns: a rank begins the schedule of a channel, for
// all passes of that channel's part, when it has ended all strands of the one before. Any such row of schedules over
// the same connections is right if each of them is. What a rank that is ahead has sent stands behind what others still
// have to read, and it has read all that they still had to send before. So those least advanced find what they would
// find alone. tools/verify.h proves rows of schedules (`stages`).
int tt_algorithm_channels(const tt_algorithm *a, const tt_layout *layout);

enum { TT_COLLNET_HEADS = 8 }; // at most
// Ranks of each node that speak to a network that reduces, in CollNetDirect (layout NULL: one node). In CollNetChain it
// is one.
int tt_collnet_heads(const tt_layout *layout, int nranks);

// Frees a schedule and everything in it. NULL is allowed.
void tt_schedule_free(tt_schedule *s);

// "AllReduce", "Broadcast", ... for messages; "?" when `f` is none of them.
extern const char *const tt_func_names[TT_NCALLS];
static inline const char *tt_func_name(tt_func f)
{
  return (unsigned)f < TT_NCALLS ? tt_func_names[f] : "?";
}

// Does the function combine inputs with an operation (reduce, reduce-scatter, also with blocks of several lengths,
// all-reduce)?
static inline int tt_func_reduces(tt_func f)
{
  return f == TT_FUNC_REDUCE || f == TT_FUNC_REDUCESCATTER || f == TT_FUNC_ALLREDUCE || f == TT_FUNC_REDUCESCATTERV;
}

// Is it a send or a receive?
static inline bool tt_func_is_message(tt_func f)
{
  return f == TT_FUNC_SEND || f == TT_FUNC_RECV;
}

// Blocks of the rank's input and output buffer, as schedule.h counts them. 0: the rank has no such buffer (the input of
// a rank that is not the root of a broadcast, the output of a sender).
int tt_func_in_blocks(const tt_shape *shape);
int tt_func_out_blocks(const tt_shape *shape);
