// coll_priv.h: what the algorithm files share among themselves: their entry points and the arithmetic of places and
// flows.
#pragma once
#include <stdbool.h>

#include "coll/coll.h"

struct tt_build;

// The functions behind the rows of the table; contract in tt_algorithm.write.
#define A(id, name, write, funcs, needs, follows, in_network, doc) \
  ncclResult_t write(const tt_shape *shape, tt_schedule **out);
#include "coll/algorithms.def"

// The ring order and the tree of the shape's channel; NULL where none was given.
const int *tt_shape_ring(const tt_shape *shape);
const int *tt_shape_ups(const tt_shape *shape);

// Rank at a place of the order of nodes and ranks. Any integer: places are taken modulo nranks.
int tt_shape_rank_at(const tt_shape *shape, int place);

// Place of a rank in that order; the first place when the order is not a permutation.
int tt_shape_place_of(const tt_shape *shape, int rank);

// Nodes of the shape; without a layout all ranks sit on node 0.
int tt_shape_nnodes(const tt_shape *shape);

// Node of a rank, its number among the node's ranks, how many these are, and the rank with number `index` on a node.
int tt_shape_node_of(const tt_shape *shape, int rank);
int tt_shape_index_of(const tt_shape *shape, int rank);
int tt_shape_node_size(const tt_shape *shape, int node);
int tt_shape_member(const tt_shape *shape, int node, int index);

// Which chunk of `owner`'s input becomes which block of `reader`'s output in this function. False: `reader` needs
// nothing of `owner`'s. Not for all-reduce. For SEND and RECV the only flow is from the sender to the receiver.
bool tt_flow(const tt_shape *shape, int reader, int owner, uint32_t *in_block, uint32_t *out_block);

static inline int tt_mod(int a, int n)
{
  int m = a % n;
  return m < 0 ? m + n : m;
}

// Direct's reducing step, without its destinations: waits for a token from every other rank, then sums `chunk` of all
// inputs in rank order. flags: TT_STEP_… besides those of a sum.
void tt_direct_sum_all(struct tt_build *b, const tt_shape *shape, unsigned flags, uint32_t sub, uint32_t chunk);

// Destinations of the current step: `chunk` of every rank's output, the own one first.
void tt_direct_to_all(struct tt_build *b, const tt_shape *shape, uint32_t chunk);

// The participants of a recursive doubling: all ranks, or the first rank of each node for its whole node.
typedef struct tt_team {
  const tt_shape *shape; // of a rank that takes part
  int count, me;         // participants; the number of this one: place or node
  bool leaders;          // they stand for nodes
} tt_team;

// The steps of one participant in the current strand: what it gathers, summed over all of them, spread.
void tt_team_allreduce(struct tt_build *b, const tt_team *team);

// Sources of the current step: the own input, and a leader's followers' messages. Destinations: the own output, and a
// leader's followers.
void tt_team_gather(struct tt_build *b, const tt_team *team);
void tt_team_spread(struct tt_build *b, const tt_team *team);
