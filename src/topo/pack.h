// pack.h: spanning trees that share a machine's links as well as trees can: packed by flow, with any shape and any
// shares, on any ways. For one machine, or a group of ranks that reach each other without the network.
//
// A tree goes from its root to all GPUs and carries `unit` GB/s on each of its edges, in that direction. An all-reduce
// uses each tree both ways, up for sums and down for results, and gets half a unit out of each. Its links carry as much
// as those of the trees then: half a unit in each direction. So both directions of a link count as the slower one.
//
// The rate of all trees together is at most `bound`: for every family of t disjoint sets of nodes with a GPU each, what
// enters these sets ÷ (t - 1); Frank 1978. Trees with any shares reach it: Edmonds 1973 for machines of GPUs alone.
// Switches are split off first, which keeps all flows from the roots to each GPU: Bang-Jensen, Frank, Jackson 1995. The
// same way for machines: ForestColl, Zhao et al. 2024. Here shares are whole numbers of units, so some of the bound may
// be missing.
//
// Half of it is the most for an all-reduce whose sums and results take half of every link each, whatever trees they
// take. Where the least family leaves no GPU out, it is the most for every all-reduce that adds on GPUs: between t
// sets, each element is sent 2 (t - 1) times at least. Else, as where all GPUs hang on one of them, an all-reduce may
// get more whose sums go up by one direction of a link, and results down by the other. What holds for all is half of
// tt_graph_bound (tools/graph_bound.h) of a tree.
#pragma once
#include "topo/system.h"

enum { TT_PACK_TREES = 64 }; // at most

typedef struct tt_packing {
  int ngpus, ntrees; // no trees: one GPU, or GPUs that do not reach each other
  double unit;       // GB/s of each tree
  double bound;      // GB/s of all trees; 0: none is known
  int *ups;          // [tree * ngpus + GPU]: the GPU above, by its node; -1: the root
  int *first;        // [tree * ngpus + GPU], and one more: where the links begin by which the GPU is reached from above
  int *links;        // links of the machine, in the order of the way; GPUs are at its ends only
} tt_packing;

// GB/s that all trees together can have; 0 for one GPU, or GPUs that do not reach each other. Not counted: what Intel's
// root complex and requests of old GPUs cost. GPUs of other groups and network cards relay nothing. Errors: no memory.
ncclResult_t tt_pack_bound(const tt_topo *topo, double *out);

// Packs at most so many trees (1 to TT_PACK_TREES): as few as reach the best rate found, less a hundredth.
// Deterministic. Free what *out has with tt_packing_clear. Errors: no memory. Any thread.
ncclResult_t tt_pack(const tt_topo *topo, int most, tt_packing *out);

// Frees what it has; the struct is the caller's and may be all zero.
void tt_packing_clear(tt_packing *p);
