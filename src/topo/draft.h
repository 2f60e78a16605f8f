// draft.h: a system while it is being built: nodes and links can still be added, moved and removed. Private to topo/.
#pragma once
#include "topo/system.h"

typedef struct tt_draft_link {
  int to, type;
  float bw;
  int next; // of the same node; -1: last
} tt_draft_link;

typedef struct tt_draft_node {
  tt_topo_node n; // without its links
  const tt_xml_node *xml;
  int links; // first of its list, widest first; -1: none
  int up;    // the node towards the CPU; -1: none
  bool gone;
} tt_draft_node;

typedef struct tt_draft {
  tt_draft_node *nodes;
  tt_draft_link *links;
  int *slots; // hash table of nodes by kind, host and id: index + 1, 0 is free
  uint64_t *hosts;
  int nnodes, nlinks, nhosts;
  int node_room, link_room, slot_room, host_room;
} tt_draft;

// Frees what the draft has; the struct is the caller's and may be all zero.
void tt_draft_clear(tt_draft *d);

// Adds a node; *out is its index. Duplicates are the caller's affair: tt_draft_find first.
ncclResult_t tt_draft_add(tt_draft *d, int kind, int host, int64_t id, int *out);

// The node of that kind, host and id that was added last; -1 when there is none. Among GPUs that share: any.
int tt_draft_find(const tt_draft *d, int kind, int host, int64_t id);

// Adds a link from a to b, or widens the one of that type that is there. Lists stay sorted, widest first.
ncclResult_t tt_draft_connect(tt_draft *d, int a, int b, int type, float bw);

// Both directions.
ncclResult_t tt_draft_join(tt_draft *d, int a, int b, int type, float bw);

// Index of a host hash, added when it is new.
ncclResult_t tt_draft_host(tt_draft *d, uint64_t hash, int *out);

// Broadcom's PCI switches of generations 4 and 5 look like two levels of switches, but any two of their ports have full bandwidth: the
// lower level becomes part of the upper one, or the search would see a bottleneck that is not there.
void tt_draft_flatten(tt_draft *d);

// Makes the system. The way up to the CPU comes last among a node's links.
ncclResult_t tt_draft_freeze(tt_draft *d, tt_topo **out);

// Copies nodes with their links (any order, links of a node side by side, first_link set) into one allocation, sorted by kind, and checks
// the result. `kinds` replaces the nodes' kinds; NULL: as they are.
ncclResult_t tt_topo_arrange(const tt_topo *from, const int *kinds, tt_topo **out);
