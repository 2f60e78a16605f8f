// graph_check.c: what must hold of any graph.
#include "tools/graph_check.h"

#include "base/util.h"
#include "topo/search_priv.h"

static ncclResult_t check_order(const tt_topo *topo, const tt_graph *g, int c, bool *seen)
{
  const int *gpus = &g->gpus[(size_t)c * (size_t)g->ngpus];
  memset(seen, 0, (size_t)g->ngpus);
  for (int i = 0; i < g->ngpus; i++) {
    if (gpus[i] < 0 || gpus[i] >= g->ngpus || topo->nodes[gpus[i]].kind != TT_NODE_GPU || seen[gpus[i]]) {
      return tt_fail(ncclInternalError, "channel %d of %s: place %d has GPU %d, which is none or there twice", c,
                     tt_pattern_name(g->pattern), i, gpus[i]);
    }
    seen[gpus[i]] = true;
  }
  return ncclSuccess;
}

// Takes all edges of a channel; 0.1 GB/s is a graph that did not fit.
static ncclResult_t check_edges(const tt_paths *paths, const tt_graph *g, int c, tt_flow *flow, tt_edge *edges)
{
  int count = tt_graph_edges(g, c, edges);
  for (int i = 0; i < count; i++) {
    int type = tt_path_get(paths, edges[i].from, edges[i].to)->type,
        most = edges[i].intra ? g->typeintra : g->typeinter;
    if (type > most) {
      return tt_fail(ncclInternalError, "channel %d of %s: the way from %d to %d is %s, not %s or better", c,
                     tt_pattern_name(g->pattern), edges[i].from, edges[i].to, tt_path_type_name(type),
                     tt_path_type_name(most));
    }
    if (!tt_flow_take(flow, edges[i].from, edges[i].to, edges[i].amount)) {
      return tt_fail(ncclInternalError, "channel %d of %s: no %g GB/s are left from %d to %d", c,
                     tt_pattern_name(g->pattern), (double)edges[i].amount / 1000, edges[i].from, edges[i].to);
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_graph_check(const tt_topo *topo, const tt_paths *paths, const tt_graph *g)
{
  tt_arena arena = {0};
  tt_flow flow;
  bool *seen;
  tt_edge *edges;
  TT_ARENA_NEW(&arena, seen, g->ngpus);
  TT_ARENA_NEW(&arena, edges, g->ngpus + TT_EDGES_MORE);
  ncclResult_t res = tt_flow_create(topo, paths, &arena, &flow);
  bool heads = g->pattern == TT_PATTERN_NVLS || g->pattern == TT_PATTERN_COLLNET_DIRECT, slow = g->speedintra < 0.11f;
  for (int c = 0; c < g->nchannels && res == ncclSuccess; c++) {
    res = check_order(topo, g, c, seen);
    if (res == ncclSuccess && !heads && !slow) {
      res = check_edges(paths, g, c, &flow, edges);
    }
  }
  tt_arena_clear(&arena);
  return res;
}

const char *tt_pattern_name(int pattern)
{
  static const char *const names[] = {"?", "BALANCED_TREE", "SPLIT_TREE", "TREE", "RING", "NVLS", "COLLNET_DIRECT"};
  return pattern > 0 && pattern < (int)TT_COUNT(names) ? names[pattern] : names[0];
}
