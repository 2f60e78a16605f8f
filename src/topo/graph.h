// graph.h: the channels of a machine: which orders of its ranks, over which network cards, at which bandwidth. Found by
// search, or read.
//
// A graph is the answer to one question: how many channels of a pattern fit into the machine's links side by side, each
// with this bandwidth on every one of its edges. Bandwidths are GB/s of one channel. Source: seed 002 §6; patterns,
// speeds and the format of the file as NCCL 2.30 has them. docs/topology.md has the file's attributes.
#pragma once
#include "topo/paths.h"

enum {
  TT_GRAPH_MAX_CHANNELS = 64, // of any graph
  TT_GRAPH_MAX_RINGS = 32,    // of rings and trees: connecting them doubles their number
  TT_GRAPH_MAX_HEADS = 32,    // of NVLS
  TT_GRAPH_MAX_DIRECT = 8,    // heads of collnet direct
};

// NCCL's numbers.
typedef enum {
  TT_PATTERN_BALANCED_TREE =
      1, // net traffic shared by the first two GPUs: parent and one child at the first, one child at the second
  TT_PATTERN_SPLIT_TREE = 2, // parent at the first, children at the second
  TT_PATTERN_TREE = 3,       // all net traffic at the first GPU
  TT_PATTERN_RING = 4,
  TT_PATTERN_NVLS = 5,           // each channel has a head that pulls from and pushes to all GPUs through the NVSwitch
  TT_PATTERN_COLLNET_DIRECT = 6, // each channel has a head that all GPUs reach directly
} tt_pattern;

// The graphs of a communicator, in the order in which they are written, and their ids in the file.
typedef enum {
  TT_GRAPH_RING,
  TT_GRAPH_TREE,
  TT_GRAPH_COLLNET_DIRECT,
  TT_GRAPH_COLLNET_CHAIN,
  TT_GRAPH_NVLS,
  TT_GRAPH_KINDS
} tt_graph_kind;

typedef struct tt_graph {
  int id;       // in files: 0 ring, 1 tree, 2 collnet chain, 3 NVLS, 4 collnet direct
  int pattern;  // tt_pattern that was found: a balanced tree may have become a tree
  int crossnic; // 0: a channel leaves through the card that it came by; 1: any; 2: pairs of channels swap their two
                // cards
  int nchannels;
  float speedintra, speedinter; // GB/s of one channel between GPUs, and to a card
  float latencyinter;           // microseconds of the card
  int typeintra, typeinter;     // tt_path_type: the worst that edges may have
  bool samechannels;            // all channels have the same order
  int nhops;                    // links of all edges of all channels
  int ngpus;
  bool inter; // channels begin and end at cards
  int *gpus; // nodes of tt_topo: channel c is gpus[c * ngpus] … gpus[c * ngpus + ngpus - 1]; NVLS and direct: the first
             // is the head
  int *nets;   // nodes of tt_topo, -1 none: channel c comes by nets[2 * c], leaves by nets[2 * c + 1]
  float bound; // GB/s: all channels of a graph of this pattern together have no more, over their slowest edges; 0: none
               // is known
  long steps;  // that the search took
  bool exhausted; // the search saw everything that it wanted to see: false when it stopped at its limit of steps
} tt_graph;

typedef struct tt_search_options {
  bool inter;     // there are more ranks than this machine's group
  int cross_nic;  // NCCL_CROSS_NIC: 0 never, 1 always, 2 where it helps
  bool collnet;   // search the collnet graphs
  bool nvls;      // search the NVLS graph, if there is an NVSwitch and all GPUs are sm 90 or newer
  long max_steps; // limit of each graph's search; 0: the default
} tt_search_options;

// All graphs of a machine, by tt_graph_kind. Those that were not searched have no channels.
typedef struct tt_graphs {
  tt_graph graph[TT_GRAPH_KINDS];
} tt_graphs;

// Searches all graphs of a group of ranks that reach each other without the network. Deterministic: the same machine
// gives the same graphs. Free the result with tt_graphs_clear. Errors: no GPU, no memory. Any thread.
ncclResult_t tt_graphs_search(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules,
                              const tt_search_options *options, tt_graphs *out);

// Frees what the graphs have; the struct is the caller's and may be all zero.
void tt_graphs_clear(tt_graphs *graphs);

// ---- Files: <graphs version="1">, as NCCL_GRAPH_DUMP_FILE writes and NCCL_GRAPH_FILE reads them ----

// The document of all graphs; tt_xml_destroy frees it.
ncclResult_t tt_graphs_to_xml(const tt_topo *topo, const tt_graphs *graphs, tt_xml **out);

// Reads the graphs of a document. Graphs that it lacks, or has without channels, are left without channels. Errors name
// file and line: wrong values, a GPU or card that the machine does not have, a channel that is no permutation. Free
// *out with tt_graphs_clear.
ncclResult_t tt_graphs_from_xml(const tt_topo *topo, const tt_xml *xml, bool inter, tt_graphs *out);

// The graphs of a file (NCCL_GRAPH_FILE). Its ranks are those of the run that wrote it, so its GPUs go by `dev`; where
// several ranks share a GPU, their order says which is which. A file is of one group of ranks (tt_paths_groups): if all
// its GPUs are of another one than `topo`, no graph has channels. Errors: as tt_graphs_from_xml; the file cannot be
// read.
ncclResult_t tt_graphs_read(const char *path, const tt_topo *topo, bool inter, tt_graphs *out);
