// layout.h: which rank sits on which machine ("node"). What the algorithms that save network crossings are written for.
//
// Ranks of one node reach each other through memory, ranks of different nodes through the network. Any assignment is a layout: nodes may
// have different numbers of ranks, and ranks of one node need not be neighbours in number.
#pragma once
#include "nccl.h"

// Immutable once made. Nodes are numbered by their lowest rank: rank 0 sits on node 0.
typedef struct tt_layout {
  int nranks, nnodes;
  int smallest, largest; // ranks of the smallest and of the largest node
  const int *node_of;    // by rank: its node
  const int *index_of;   // by rank: its number among the ranks of its node, lowest rank first
  const int *order;      // all ranks, node after node: a ring along it enters and leaves every node once
  const int *first;      // by node, nnodes + 1 of them: node k's ranks are order[first[k]] ... order[first[k + 1] - 1]
} tt_layout;

// Makes the layout of ranks of which rank r sits on the machine called name_of[r]: equal numbers, whatever they are, mean the same machine.
// The caller destroys *out. ncclInvalidArgument unless nranks >= 1; ncclSystemError when out of memory. Any thread.
ncclResult_t tt_layout_create(int nranks, const int *name_of, tt_layout **out);

// Frees the layout. NULL is allowed.
void tt_layout_destroy(tt_layout *layout);

// Number of ranks of a node.
static inline int tt_layout_size(const tt_layout *l, int node)
{
  return l->first[node + 1] - l->first[node];
}
