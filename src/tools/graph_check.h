// graph_check.h: what must hold of any graph, for tests.
#pragma once
#include "topo/graph.h"

// Checks what must hold: every channel is a permutation of the machine's GPUs, no edge is of a worse type than the graph says, and all
// channels together fit into the links.
ncclResult_t tt_graph_check(const tt_topo *topo, const tt_paths *paths, const tt_graph *graph);
