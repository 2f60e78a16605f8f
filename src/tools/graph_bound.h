// graph_bound.h: what no graph of channels can exceed on a machine, whatever a search does: from cuts, found as maximum
// flows. For tools and tests; the search itself has a cheaper bound (tt_graph.bound).
#pragma once
#include "topo/graph.h"

// GB/s that all channels of such a graph (its pattern, its speed to the network, with other nodes or not) have
// together at most, over their slowest edges; 0: unknown. A channel's edges may take any ways through the links, and
// channels any shares of bandwidth, so it also holds for schedules that are no channels. Not counted: what Intel's root
// complex and requests of old GPUs cost. Edmonds, "Edge-disjoint branchings" (1973): what a root can send to all others
// is the least of its maximum flows to each.
//
// With `paths` (else NULL) only links count that are on a path which the graph's types permit: what the graph leaves of
// that bound, the search or the paths leave; what lies between both bounds, the types leave.
ncclResult_t tt_graph_bound(const tt_topo *topo, const tt_paths *paths, const tt_graph *graph, double *out);
