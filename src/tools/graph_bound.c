// graph_bound.c: see graph_bound.h. Flows are whole MB/s, as the search counts (search_priv.h).
#include "tools/graph_bound.h"

#include <limits.h>

#include "base/util.h"
#include "topo/maxflow.h"
#include "topo/search_priv.h"

#define UNLIMITED TT_MAXFLOW_ANY

// The machine's links, and behind its nodes: the world, to which all ports lead; all GPUs together; each port.
typedef struct bound_net {
  const tt_topo *topo;
  const tt_graph *graph;
  int world, gpus;
  int *amount; // of each link: MB/s
  int *part;   // of parts_bound
  tt_maxflow net;
} bound_net;

static int64_t bound_flow(bound_net *b, int from, int to)
{
  return tt_maxflow_run(&b->net, from, to, UNLIMITED);
}

// ---- The machine as a network of flows ----

// What a port carries. It counts whole GB/s of each channel, so channels of 2.4 GB/s may be as many as of 2.
static int64_t port_room(const tt_graph *g, float bw)
{
  double counted = (double)tt_flow_port_amount(g->speedinter) / 1e3;
  return counted <= 0 ? UNLIMITED : (int64_t)((double)tt_flow_amount(bw) * TT_MAX((double)g->speedinter / counted, 1));
}

static ncclResult_t add_ports(bound_net *b)
{
  const tt_topo *t = b->topo;
  int first = t->first[TT_NODE_NET], end = t->first[TT_NODE_NET + 1];
  for (int n = first; n < end; n++) {
    int port = first;
    while (t->nodes[port].net.guid != t->nodes[n].net.guid || t->nodes[port].net.port != t->nodes[n].net.port) {
      port++;
    }
    int node = b->gpus + 1 + port - first;
    if (port == n) {
      TT_TRY(tt_maxflow_add(&b->net, b->world, node, port_room(b->graph, t->nodes[n].net.bw)));
    }
    TT_TRY(tt_maxflow_add(&b->net, node, n, UNLIMITED));
    TT_TRY(tt_maxflow_add(&b->net, n, b->world, UNLIMITED));
  }
  return ncclSuccess;
}

// Marks the links of a path, if it is of the type or better.
static void use_path(bound_net *b, const tt_paths *paths, int from, int to, int type)
{
  const tt_path *p = tt_path_get(paths, from, to);
  for (int i = 0; i < p->count && p->type <= type; i++) {
    int l = paths->hops[p->first + i];
    b->amount[l] = tt_flow_amount(b->topo->links[l].bw);
  }
}

// Fills amount: of all links, or of those that edges of the graph may take. NVLS exchanges with the NVSwitch.
static void find_amounts(bound_net *b, const tt_paths *paths)
{
  const tt_topo *t = b->topo;
  int direct = b->graph->pattern == TT_PATTERN_COLLNET_DIRECT, intra = direct ? TT_PATH_SYS : b->graph->typeintra;
  for (int l = 0; l < t->nlinks && paths == NULL; l++) {
    b->amount[l] = tt_flow_amount(t->links[l].bw);
  }
  for (int g = 0; g < b->graph->ngpus && paths != NULL; g++) {
    for (int e = 0; e < paths->nends; e++) {
      int kind = t->nodes[e].kind, type = kind == TT_NODE_NET ? b->graph->typeinter : intra;
      if (kind == TT_NODE_GPU || kind == TT_NODE_NET || kind == TT_NODE_NVS) {
        use_path(b, paths, g, e, type);
        use_path(b, paths, e, g, type);
      }
    }
  }
}

// A chain inside a machine may cross a cut either way: then an arc has the bandwidth of its link and of the way back.
static ncclResult_t net_make(const tt_topo *t, const tt_paths *paths, const tt_graph *g, bound_net *b)
{
  int nets = tt_topo_count(t, TT_NODE_NET);
  bool both = !g->inter && g->pattern <= TT_PATTERN_TREE;
  *b = (bound_net){.topo = t, .graph = g, .world = t->nnodes, .gpus = t->nnodes + 1};
  TT_TRY(tt_maxflow_make(t->nnodes + 2 + nets, &b->net));
  TT_ARENA_NEW(&b->net.arena, b->amount, t->nlinks);
  TT_ARENA_NEW(&b->net.arena, b->part, t->nnodes);
  if (b->net.arena.failed) {
    return tt_fail(ncclSystemError, "no memory for the flows of %d links", t->nlinks);
  }
  find_amounts(b, paths);
  for (int l = 0; l < t->nlinks; l++) {
    const tt_topo_link *link = &t->links[l];
    TT_TRY(tt_maxflow_add(&b->net, link->from, link->to, b->amount[l] + (both ? b->amount[link->back] : 0)));
  }
  return g->inter ? add_ports(b) : ncclSuccess;
}

// From all GPUs together to a node, or from there to all.
static ncclResult_t flow_of_all(bound_net *b, int node, bool to_gpus, int64_t *out)
{
  int arcs = b->net.narcs;
  for (int g = 0; g < b->graph->ngpus; g++) {
    TT_TRY(tt_maxflow_add(&b->net, to_gpus ? g : b->gpus, to_gpus ? b->gpus : g, UNLIMITED));
  }
  *out = TT_MIN(*out, to_gpus ? bound_flow(b, node, b->gpus) : bound_flow(b, b->gpus, node));
  tt_maxflow_cut(&b->net, arcs);
  return ncclSuccess;
}

// ---- Bounds ----

// The least of the flows from a root to each GPU; `back`: and from each to it. What leaves any set of nodes with the
// root, or comes to it, carries every channel.
static int64_t least_flow(bound_net *b, int root, bool back)
{
  int64_t least = UNLIMITED;
  for (int g = 0; g < b->graph->ngpus; g++) {
    if (g != root) {
      least = TT_MIN(least, bound_flow(b, root, g));
      least = back ? TT_MIN(least, bound_flow(b, g, root)) : least;
    }
  }
  return least;
}

// Also halves the way to the root, for those who come later.
static int find_part(int *part, int node)
{
  while (part[node] != node) {
    part[node] = part[part[node]];
    node = part[node];
  }
  return node;
}

// Parts of the machine that links wider than `wide` hold together. A chain goes between those with GPUs as often as
// there are, less one, and each time out of one. Returns what that leaves each channel.
static int64_t parts_bound(const bound_net *b, int wide, bool *has_gpu)
{
  const tt_topo *t = b->topo;
  int *part = b->part;
  int64_t out = 0;
  int count = 0;
  for (int n = 0; n < t->nnodes; n++) {
    part[n] = n;
    has_gpu[n] = false;
  }
  for (int l = 0; l < t->nlinks; l++) {
    if (b->amount[l] > wide) {
      part[find_part(part, t->links[l].from)] = find_part(part, t->links[l].to);
    }
  }
  for (int g = 0; g < b->graph->ngpus; g++) {
    int p = find_part(part, g);
    count += !has_gpu[p];
    has_gpu[p] = true;
  }
  for (int l = 0; l < t->nlinks; l++) {
    int from = find_part(part, t->links[l].from);
    out += has_gpu[from] && from != find_part(part, t->links[l].to) ? b->amount[l] : 0;
  }
  return count > 1 ? out / (count - 1) : UNLIMITED;
}

// The same for every width that a link has.
static int64_t least_parts(bound_net *b)
{
  const tt_topo *t = b->topo;
  int64_t least = UNLIMITED;
  bool *has_gpu;
  TT_ARENA_NEW(&b->net.arena, has_gpu, t->nnodes);
  for (int l = 0; l < t->nlinks && has_gpu != NULL; l++) {
    bool seen = false;
    for (int k = 0; k < l && !seen; k++) {
      seen = b->amount[k] == b->amount[l];
    }
    if (!seen) {
      least = TT_MIN(least, parts_bound(b, b->amount[l], has_gpu));
    }
  }
  return least;
}

// Every GPU sends all data to the switch and gets it, and each channel's head that of the channel twice.
static int64_t nvls_bound(bound_net *b)
{
  const tt_topo *t = b->topo;
  int nvs = t->first[TT_NODE_NVS], n = b->graph->ngpus;
  int64_t least = UNLIMITED, out = 0, in = 0;
  for (int g = 0; g < n && tt_topo_count(t, TT_NODE_NVS) > 0; g++) {
    int64_t one[] = {bound_flow(b, g, nvs), bound_flow(b, nvs, g)};
    least = TT_MIN(least, TT_MIN(one[0], one[1]));
    out += one[0];
    in += one[1];
  }
  return TT_MIN(least, TT_MIN(out, in) / (n + 1));
}

// A head sends its channel's bandwidth, and the others as much together.
static int64_t direct_bound(const bound_net *b)
{
  const tt_topo *t = b->topo;
  int64_t out = 0;
  for (int g = 0; g < b->graph->ngpus; g++) {
    const tt_topo_node *n = &t->nodes[g];
    for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
      out += b->amount[l];
    }
  }
  return b->graph->ngpus > 1 ? out / 2 : UNLIMITED;
}

static ncclResult_t bound_of(bound_net *b, int64_t *out)
{
  const tt_graph *g = b->graph;
  bool heads = g->pattern == TT_PATTERN_NVLS || g->pattern == TT_PATTERN_COLLNET_DIRECT;
  int64_t bound = UNLIMITED;
  if (heads) {
    bound = g->pattern == TT_PATTERN_NVLS ? nvls_bound(b) : direct_bound(b);
  } else if (g->ngpus > 1 || g->inter) {
    bound = least_flow(b, g->inter ? b->world : 0, g->pattern == TT_PATTERN_RING);
  }
  if (!heads && !g->inter && g->pattern != TT_PATTERN_RING) {
    bound = TT_MIN(bound, least_parts(b));
  }
  if (g->inter && g->pattern != TT_PATTERN_RING) {
    TT_TRY(flow_of_all(b, b->world, false, &bound));
    TT_TRY(flow_of_all(b, b->world, true, &bound));
  }
  *out = bound;
  return ncclSuccess;
}

ncclResult_t tt_graph_bound(const tt_topo *topo, const tt_paths *paths, const tt_graph *graph, double *out)
{
  bound_net b;
  int64_t bound = 0;
  ncclResult_t res = net_make(topo, paths, graph, &b);
  res = res == ncclSuccess ? bound_of(&b, &bound) : res;
  if (res == ncclSuccess) {
    *out = bound >= UNLIMITED ? 0 : (double)bound / 1e3;
  }
  tt_maxflow_clear(&b.net);
  return res;
}
