// draft.h: a system while it is being built: nodes and links can still be added, moved and removed. Private to topo/.
#pragma once
#include "topo/system.h"

typedef struct tt_draft_link {
  int from, to, type; // to: TT_DRAFT_NOWHERE in one that was dropped
  float bw;
  int next;    // of the same node; -1: last
  int changed; // when it was made or widened last, as a count: among links of equal width the older one stands in front
} tt_draft_link;

enum { TT_DRAFT_NOWHERE = -2 };

typedef struct tt_draft_node {
  tt_topo_node n; // without its links
  const tt_xml_node *xml;
  int links; // first of its list; -1: none. In no order until tt_draft_sort
  int up;    // the node towards the CPU; -1: none
  bool gone;
} tt_draft_node;

typedef struct tt_draft {
  tt_draft_node *nodes;
  tt_draft_link *links;
  uint64_t *hosts;
  int *slots; // hash table with open addressing over all three; 0: free. A part that has got another key since is not
              // found by the old one
  int slot_room, slots_used;
  int nnodes, nlinks, nhosts;
  int node_room, link_room, host_room;
  int changes;
} tt_draft;

// Frees what the draft has; the struct is the caller's and may be all zero.
void tt_draft_clear(tt_draft *d);

// Adds a node; *out is its index. Duplicates are the caller's affair: tt_draft_find first.
ncclResult_t tt_draft_add(tt_draft *d, int kind, int host, int64_t id, int *out);

// The node of that kind, host and id that was added first; -1 when there is none.
int tt_draft_find(const tt_draft *d, int kind, int host, int64_t id);

// Adds a link from a to b, or widens the one of that type that is there.
ncclResult_t tt_draft_connect(tt_draft *d, int a, int b, int type, float bw);

// Both directions.
ncclResult_t tt_draft_join(tt_draft *d, int a, int b, int type, float bw);

// The link of that type from a to b; -1 when there is none.
int tt_draft_link_find(const tt_draft *d, int a, int b, int type);

// Gives link l other ends. The caller updates the lists of links.
ncclResult_t tt_draft_link_move(tt_draft *d, int l, int from, int to);

// Sorts the links of a node, widest first, older before younger; links that were dropped go.
ncclResult_t tt_draft_sort(tt_draft *d, int node);

// Index of a host hash, added when it is new.
ncclResult_t tt_draft_host(tt_draft *d, uint64_t hash, int *out);

// Broadcom's PCI switches of generations 4 and 5 look like two levels of switches, but any two of their ports have full
// bandwidth. The lower level becomes part of the upper one; otherwise the search would see a bottleneck that does not
// exist. Before the call all links must go both ways and be sorted. Links that move stand behind the others and must
// not be sorted again.
ncclResult_t tt_draft_flatten(tt_draft *d);

// Makes the system. The way up to the CPU comes last among a node's links.
ncclResult_t tt_draft_freeze(tt_draft *d, tt_topo **out);

// Copies nodes with their links (any order, links of a node side by side, first_link set) into one allocation, sorted
// by kind, and checks the result. `kinds` are the nodes' kinds in the copy; -1: the node is left out, and no link leads
// to it.
ncclResult_t tt_topo_arrange(const tt_topo *from, const int *kinds, tt_topo **out);
