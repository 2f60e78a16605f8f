// machine.h: what the leader of a node works out for its ranks: the machine's document, its model, and the graphs on
// it. No other rank is asked for anything here. Private to comm/ (topology.h calls it).
//
// The files that NCCL_TOPO_DUMP_FILE and its relatives name are read and written here. Logs at INFO what NCCL's users
// look for.
#pragma once
#include "comm/shapes.h"
#include "net/net.h"
#include "topo/pack.h"

typedef struct tt_machine {
  int rank, nranks; // this rank; ranks of the communicator
  const tt_source_rank *ranks;
  int nlocal;       // those of this node, ascending
  const bool *seen; // [nlocal]: sees the same as this rank; the others have sent their views
  tt_xml **views;   // of the others, ascending
  int nviews;
  // The views are all that counts: this rank has told its own, or sees something else than the node's leader.
  bool apart;
  uint64_t host;         // names the node
  const char *file;      // NCCL_TOPO_FILE; NULL: not given
  bool plain;            // nothing describes this node but its system: see tt_node_shapes_plain
  bool needs_net;        // some ranks meet over the network: its devices matter
  const tt_net_ops *net; // NULL: it is not needed
} tt_machine;

// Does tt_machine_shapes need a document? Not where a plain node's graphs are neither read nor written.
bool tt_machine_needs_document(const tt_machine *m);

// The document of the node's machine: file, system and network devices, with these ranks. tt_xml_destroy frees it.
// Errors: the file's, with its line; the network's.
ncclResult_t tt_machine_document(const tt_machine *m, tt_xml **out);

// The graphs on that machine, found or read from NCCL_GRAPH_FILE. Writes NCCL_GRAPH_DUMP_FILE. `xml` may be NULL where
// no document is needed. Free *out with tt_node_shapes_clear. Errors: the document's or the file's, with its line; no
// memory; a file that cannot be written.
ncclResult_t tt_machine_shapes(const tt_machine *m, const tt_xml *xml, tt_node_shapes *out);

// ---- Log (machine_log.c): nothing where the level is not INFO ----

// The tree of nodes and links.
void tt_machine_log_system(const tt_topo *topo, const tt_paths *paths, bool inter);
// The packed trees.
void tt_machine_log_packing(const tt_packing *p);
// A graph and its channels.
void tt_machine_log_graph(const tt_topo *topo, const tt_graph *g);
