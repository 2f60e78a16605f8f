// connect.h: from the graphs of each node to the channels of all nodes: rings, trees, numbers of NVLS and
// point-to-point channels.
//
// Nothing is stored per rank and channel. Nodes of one shape share their graphs. A rank's neighbours follow from its
// place in them, from the number of its node and from arithmetic (double binary trees). So 16,384 nodes cost a few MiB,
// and a question about one rank and channel is O(1). The rules are NCCL 2.30's; Sanders, Speck, Träff, "Two-tree
// algorithms for full bandwidth broadcast, reduction and scan".
#pragma once
#include "topo/graph.h"

enum { TT_TREE_DOWNS = 3 };

// A search's result, as far as it matters here.
typedef struct tt_plan_graph {
  int pattern, nchannels, cross_nic, same_channels; // no channels: not searched, or nothing found
  int type_intra, type_inter;                       // tt_path_type; LOC when there is nothing
  float bw_intra, bw_inter;                         // GB/s per channel
  float latency_inter;                              // microseconds
  const int *gpus; // [channel * ngpus + i]: GPU at place i of the channel, as its number among the node's ranks in
                   // ascending order
  const int *nets; // [channel * 2]: NET in, NET out, as the caller counts them; NULL: none
} tt_plan_graph;

// A kind of node: all nodes where the search gave this. "Node" is what reaches each other without the network.
typedef struct tt_plan_shape {
  int ngpus;
  tt_plan_graph graph[TT_GRAPH_KINDS];
  int *memory; // of tt_plan_shape_make
} tt_plan_shape;

// The shape of a machine, or of a group of its ranks, from the graphs found on it; nets are nodes of the machine. Free
// what it has with tt_plan_shape_clear. Errors: no memory.
ncclResult_t tt_plan_shape_make(const tt_topo *topo, const tt_graphs *graphs, tt_plan_shape *out);

// Frees what tt_plan_shape_make made; the struct is the caller's and may be all zero.
void tt_plan_shape_clear(tt_plan_shape *shape);

// How many GPUs are the first one of a channel of the graph.
int tt_plan_heads(const tt_plan_shape *shape, tt_graph_kind graph);

// What matters beside the graphs.
typedef struct tt_plan_machine {
  int cc_min, cc_max;       // least and greatest compute capability × 10 of its GPUs
  int cpu_arch, cpu_vendor; // tt_cpu_…; TT_CPU_MIXED after joining different ones
  bool nvswitch;
  float net_bw; // GB/s of the slowest network card of its ranks; 0: none
} tt_plan_machine;

#define TT_CPU_MIXED (-1)

// Looks at a machine or group.
tt_plan_machine tt_plan_look(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules);

// What holds for both.
tt_plan_machine tt_plan_join(const tt_plan_machine *a, const tt_plan_machine *b);

// What the variables say about numbers of channels.
typedef struct tt_connect_options {
  // NCCL_MIN/MAX_NCHANNELS, formerly NRINGS; -2: not set. First cut to the greatest, then duplicate.
  int min_channels, max_channels;
  int min_ctas, max_ctas; // of the communicator's configuration
  bool collnet;           // the network reduces, and may (NCCL_COLLNET_ENABLE)
  int collnet_nodes;      // NCCL_COLLNET_NODE_THRESHOLD: nodes from which on
} tt_connect_options;

// What NCCL has where no variable is set.
tt_connect_options tt_connect_options_default(void);

// The options as NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, NCCL_MIN_CTAS, NCCL_MAX_CTAS and NCCL_COLLNET_NODE_THRESHOLD
// have them.
tt_connect_options tt_connect_options_from(const tt_params *params);

// What there is to connect; only read during tt_connect_create but for the graphs' arrays, which must live as long as
// the result.
typedef struct tt_connect_input {
  int nranks, nnodes, nshapes;
  const int *node_of;            // of each rank; nodes are numbered in the order of their first ranks
  const int *shape_of;           // of each node
  const tt_plan_shape *shapes;   // copied but for the arrays they point to
  tt_plan_machine machine;       // of all nodes, joined
  const tt_connect_options *opt; // NULL: the defaults
} tt_connect_input;

typedef struct tt_connect {
  int nranks, nnodes, nshapes;
  int nsearch;                   // channels of the search: what all nodes' rings and trees have in common
  int nchannels;                 // after duplication
  int nvls_channels, nvls_heads; // 0: no NVLS
  bool collnet;
  int max_local, min_local; // ranks per node
  int max_tree_pattern;
  tt_plan_machine machine;
  tt_plan_graph common[TT_GRAPH_KINDS];  // the least of all shapes; without arrays
  uint8_t origin[TT_GRAPH_MAX_CHANNELS]; // channel below 2 × nsearch of which this one is a copy; from nsearch on: the
                                         // second trees
  bool *used;                            // [nshapes]: is there such a node? Others do not count
  tt_plan_shape *shapes;                 // [nshapes]
  int *shape_of, *first;                 // [nnodes (+ 1)]: first place in `ranks` of a node's ranks
  int *ranks;                            // [nranks] node by node, ascending
  int *node_of, *local_of;               // [nranks]
  int *place;                            // places of GPUs in the channels of each shape: see tt_connect_place
  int place_of[TT_GRAPH_KINDS];          // offsets of a graph within a shape's part of `place`
  int *shape_place;                      // [nshapes]: where that part begins
  tt_arena arena;                        // of all arrays
} tt_connect;

// Connects. Errors, which name node, graph, channel and value: a graph that is no permutation of its node's GPUs, nodes
// not numbered by first rank, a number of ranks that is not the shape's, no channel in common. Free *out with
// tt_connect_destroy.
ncclResult_t tt_connect_create(const tt_connect_input *in, tt_connect **out);

// Frees it. NULL is allowed.
void tt_connect_destroy(tt_connect *c);

// The rank after (step 1) or before (step -1) `rank` in a channel's ring.
int tt_connect_ring_step(const tt_connect *c, int channel, int rank, int step);

// Writes the whole ring of a channel, nranks ranks beginning with `start`, to out.
void tt_connect_ring(const tt_connect *c, int channel, int start, int *out);

// A rank's neighbours in a tree; -1: none. Filled from the left.
typedef struct tt_tree_place {
  int up, down[TT_TREE_DOWNS];
} tt_tree_place;

// Of a rank of the communicator in a channel.
tt_tree_place tt_connect_tree(const tt_connect *c, int channel, int rank);

// The NET, as the graphs of the rank's shape name it, by which a rank of a channel's ring or tree speaks with other
// nodes: for the first GPU the one that the channel comes by, for others the one that it leaves by. -1: none.
int tt_connect_net(const tt_connect *c, tt_graph_kind graph, int channel, int rank);

// ---- Point-to-point ----

// Channels per peer that the ranks of one machine (or group of it) want, before all nodes agree on the least.
// TT_GRAPH_MAX_CHANNELS for a machine with one rank and `alone` (no ranks elsewhere).
int tt_p2p_wanted(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, bool alone);

typedef struct tt_p2p_channels {
  int channels, per_peer; // powers of two
} tt_p2p_channels;

// The numbers for all, from what the machine with the least wants.
tt_p2p_channels tt_p2p_agree(const tt_connect *c, int wanted);

// ---- Pure functions, for tests ----

// Node `node` in tree 0 or 1 of the double tree over n nodes: up, two downs (-1: none) and whether it is its parent's
// second child.
typedef struct tt_btree_place {
  int up, down[2];
  bool second;
} tt_btree_place;

// n > 0; `node` from 0 to n - 1. Pure.
tt_btree_place tt_btree(int n, int node, int tree);
