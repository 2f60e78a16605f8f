// layout.h: which rank sits on which machine ("node"), and the channels. What the algorithms that follow them are
// written for.
//
// Ranks of one node reach each other through memory, ranks of different nodes through the network. Any assignment is a
// layout: nodes may have different numbers of ranks, and ranks of one node need not be neighbours in number.
//
// A channel is one way through all ranks: a ring, and a tree. Where somebody knows the wires (src/topo) he gives
// several, each for a part of the message; where nobody does, there is one, which follows from the nodes.
#pragma once
#include <stddef.h>

#include "nccl.h"

enum { TT_LAYOUT_CHILDREN = 3 }; // of a rank in a channel's tree

// The channels that somebody gives.
typedef struct tt_channels {
  int count;
  const int
      *rings;     // [channel * nranks + place]: the ranks in the order of the channel's ring. NULL: as without channels
  const int *ups; // [channel * nranks + rank]: whom the rank hangs below in the channel's tree; -1: its root. NULL: as
                  // without channels
  int npacked;    // trees of "Packed", which has them as its channels; their number is their own
  const int *packed; // [tree * nranks + rank]: as ups, but any number of ranks may hang below one. NULL: none
} tt_channels;

// Nodes are numbered by their lowest rank: rank 0 sits on node 0. Immutable once schedules are written for it.
typedef struct tt_layout {
  int nranks, nnodes;
  int smallest, largest; // ranks of the smallest and of the largest node
  const int *node_of;    // by rank: its node
  const int *index_of;   // by rank: its number among the ranks of its node, lowest rank first
  const int *order;      // all ranks, node after node: a ring along it enters and leaves every node once
  const int *first;      // by node, nnodes + 1 of them: node k's ranks are order[first[k]] ... order[first[k + 1] - 1]
  int heads; // ranks of each node that speak to a network that reduces, at most (tt_collnet_heads). 0: nobody has said
  tt_channels channels; // all zero, with a count of 1: nobody has given any
  int *channel_memory;  // what its arrays lie in
} tt_layout;

// Makes the layout of ranks of which rank r sits on the machine called name_of[r]: equal numbers, whatever they are,
// mean the same machine. The caller destroys *out. ncclInvalidArgument unless nranks >= 1; ncclSystemError when out of
// memory. Any thread.
ncclResult_t tt_layout_create(int nranks, const int *name_of, tt_layout **out);

// Gives a layout channels, which are copied; those it had are forgotten. Before schedules are written for it, and by
// its creator. What is wrong is named with ncclInvalidArgument, and the layout stays as it was: no channels, neither
// rings nor trees, a ring that is no permutation of the ranks, a tree with no root, several, a circle, or a rank with
// more than TT_LAYOUT_CHILDREN children in a tree of `ups`. ncclSystemError when out of memory.
ncclResult_t tt_layout_set_channels(tt_layout *layout, const tt_channels *channels);

// Frees the layout. NULL is allowed.
void tt_layout_destroy(tt_layout *layout);

// Number of ranks of a node.
static inline int tt_layout_size(const tt_layout *l, int node)
{
  return l->first[node + 1] - l->first[node];
}

// The ring order of a channel; NULL where no rings were given.
static inline const int *tt_layout_ring(const tt_layout *l, int channel)
{
  return l->channels.rings ? l->channels.rings + (size_t)channel * (size_t)l->nranks : NULL;
}

// The parents in a channel's tree, by rank; NULL where no trees were given.
static inline const int *tt_layout_ups(const tt_layout *l, int channel)
{
  return l->channels.ups ? l->channels.ups + (size_t)channel * (size_t)l->nranks : NULL;
}

// The parents in a tree of "Packed", by rank; NULL where none were given.
static inline const int *tt_layout_packed(const tt_layout *l, int tree)
{
  return l->channels.packed ? l->channels.packed + (size_t)tree * (size_t)l->nranks : NULL;
}
