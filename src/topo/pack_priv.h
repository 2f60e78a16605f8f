// pack_priv.h: what the files of the packing share: the machine as a network of flows, whose switches are split off.
#pragma once
#include "topo/maxflow.h"
#include "topo/pack.h"

// What an arc stands for: a link of the machine, or two arcs that were joined at a node between them.
typedef struct tt_pack_way {
  int link; // -1: two arcs
  int before, behind;
} tt_pack_way;

// Arcs have whole units. Behind the machine's nodes stand the source, which gives to the roots, and a sink for one
// question at a time.
typedef struct tt_pack_net {
  const tt_topo *topo;
  int ngpus, source, sink;
  tt_maxflow flow;
  int64_t *amount; // of each link: kB/s; 0: it takes no part
  int *arc;        // of each link
  int *root;       // of each GPU: the arc from the source, units of trees that begin there
  int *given;      // of each node: an arc from the source, and one to the sink: 0 between questions
  int *taken;
  tt_pack_way *ways; // of arc 2 i: ways[i]
  int way_room;
} tt_pack_net;

// The machine's network; arcs have no units yet. Errors: no memory. Free with tt_pack_net_clear, also after errors.
ncclResult_t tt_pack_net_make(const tt_topo *topo, tt_pack_net *out);
void tt_pack_net_clear(tt_pack_net *p);

// Adds an arc with its way. Errors: no memory.
ncclResult_t tt_pack_add(tt_pack_net *p, int from, int to, int64_t room, tt_pack_way way);

// A question about sets of nodes: which are in them, which are not (-1: none).
typedef struct tt_pack_set {
  int in[3], out[2];
} tt_pack_set;

// The least number of units that enters such a set, roots included; where it is more than `limit`, the limit.
int64_t tt_pack_enters(tt_pack_net *p, const tt_pack_set *set, int64_t limit);

// Gives each link what it holds of a unit of so many kB/s.
void tt_pack_set_unit(tt_pack_net *p, int64_t unit);

// Finds roots for so many trees: at least so many units then enter every set with a GPU, and roots have as many
// together. False: there are none, as some family of sets is entered too little.
bool tt_pack_roots(tt_pack_net *p, int64_t trees);

// Splits off what is no GPU, after tt_pack_roots; then takes that many trees out, and writes them with their ways to
// out->ups, first and links. Errors: no memory; ncclInternalError: what cannot be.
ncclResult_t tt_pack_split(tt_pack_net *p, int64_t trees);
ncclResult_t tt_pack_take_trees(tt_pack_net *p, tt_packing *out);
