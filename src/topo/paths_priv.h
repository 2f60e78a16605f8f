// paths_priv.h: paths while they are being made.
#pragma once
#include "topo/paths.h"

// Fills the table with the best paths by type, width and length, before any rule but NVB's. `p` has its table, all of
// it DIS.
ncclResult_t tt_paths_search(const tt_topo *topo, bool nvb, tt_paths *p);

// Adds room for `more` hops.
ncclResult_t tt_paths_room(tt_paths *p, int more);

static inline tt_path *tt_path_at(tt_paths *p, int from, int to)
{
  return &p->table[(size_t)from * (size_t)p->nends + (size_t)to];
}

static inline bool tt_node_is_gpu(const tt_topo *topo, int node)
{
  return topo->nodes[node].kind == TT_NODE_GPU || topo->nodes[node].kind == TT_NODE_DEV;
}
