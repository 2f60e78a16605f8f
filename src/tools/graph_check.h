// graph_check.h: what tools say of a graph of channels, and what must hold of any graph.
#pragma once
#include "topo/graph.h"

// Checks what must hold: every channel is a permutation of the machine's GPUs, no edge is of a worse type than the
// graph says, and all channels together fit into the links.
ncclResult_t tt_graph_check(const tt_topo *topo, const tt_paths *paths, const tt_graph *graph);

// GB/s of all channels together, over their slowest edges: at most the graph's bound.
static inline float tt_graph_total(const tt_graph *g)
{
  return (float)g->nchannels * (g->inter && g->speedinter < g->speedintra ? g->speedinter : g->speedintra);
}

// "RING", "BALANCED_TREE", …
const char *tt_pattern_name(int pattern);
