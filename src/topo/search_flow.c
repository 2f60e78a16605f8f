// search_flow.c: bandwidth that is left on the links while channels are tried.
#include "base/util.h"
#include "topo/search_priv.h"

enum { FLOW_INTEL = 1, FLOW_OLD = 2, FLOW_POWER = 4 };

// Why a link of this kind costs more than what goes over it.
static uint8_t link_how(const tt_topo *topo, const tt_topo_link *l)
{
  const tt_topo_node *to = &topo->nodes[l->to];
  bool cpu = to->kind == TT_NODE_CPU;
  if (cpu && to->cpu.arch == TT_CPU_X86 && to->cpu.vendor == TT_CPU_INTEL) {
    return FLOW_INTEL; // GPU to GPU through Intel's root complex wastes a fifth
  }
  if (cpu && to->cpu.arch == TT_CPU_POWER && l->type == TT_PATH_NVL) {
    return FLOW_POWER; // NVLink to a POWER CPU is shared by both directions
  }
  bool gpu = to->kind == TT_NODE_GPU || to->kind == TT_NODE_DEV;
  return gpu && to->gpu.gcn == 0 && to->gpu.sm < 80 ? FLOW_OLD : 0; // requests to read cost an eighth on the way out
}

static int port_of(const tt_topo *topo, int net)
{
  const tt_topo_node *n = &topo->nodes[net];
  for (int other = topo->first[TT_NODE_NET]; other < net; other++) {
    const tt_topo_node *o = &topo->nodes[other];
    if (o->net.guid == n->net.guid && o->net.port == n->net.port) {
      return other - topo->first[TT_NODE_NET];
    }
  }
  return net - topo->first[TT_NODE_NET];
}

static uint64_t random_weight(int link)
{
  uint64_t x = ((uint64_t)link + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return (x ^ (x >> 32)) | 1;
}

// Through Intel's root complex?
static bool wastes(const tt_flow *f, const tt_path *p)
{
  bool intel = false;
  for (int i = 0; p->type == TT_PATH_PHB && i < p->count; i++) {
    intel |= f->how[f->paths->hops[p->first + i]] == FLOW_INTEL;
  }
  return intel;
}

ncclResult_t tt_flow_create(const tt_topo *topo, const tt_paths *paths, tt_arena *arena, tt_flow *f)
{
  int nets = tt_topo_count(topo, TT_NODE_NET), first = topo->first[TT_NODE_NET];
  *f = (tt_flow){.topo = topo, .paths = paths, .ngpus = tt_topo_count(topo, TT_NODE_GPU)};
  TT_ARENA_NEW(arena, f->left, topo->nlinks);
  TT_ARENA_NEW(arena, f->how, topo->nlinks);
  TT_ARENA_NEW(arena, f->port_left, nets);
  TT_ARENA_NEW(arena, f->port, nets);
  TT_ARENA_NEW(arena, f->weight, topo->nlinks + nets);
  TT_ARENA_NEW(arena, f->wasteful, f->ngpus * paths->nends);
  if (arena->failed) {
    return tt_fail(ncclSystemError, "no memory for the bandwidth of %d links", topo->nlinks);
  }
  f->simple = true;
  for (int l = 0; l < topo->nlinks; l++) {
    f->left[l] = tt_flow_amount(topo->links[l].bw);
    f->how[l] = link_how(topo, &topo->links[l]);
    f->simple = f->simple && (f->how[l] & (FLOW_OLD | FLOW_POWER)) == 0;
  }
  for (int i = 0; i < f->ngpus * paths->nends; i++) {
    f->wasteful[i] = wastes(f, &paths->table[i]); // GPUs are the first ends
  }
  for (int i = 0; i < topo->nlinks + nets; i++) {
    f->weight[i] = random_weight(i);
  }
  for (int n = 0; n < nets; n++) {
    f->port[n] = port_of(topo, first + n);
    f->port_left[n] = tt_flow_amount(topo->nodes[first + n].net.bw);
  }
  return ncclSuccess;
}

static void flow_change(tt_flow *f, int link, int amount)
{
  f->left[link] -= amount;
  f->hash -= f->weight[link] * (uint64_t)(int64_t)amount;
}

// What a hop takes: from its link, and from the link back.
static void hop_cost(const tt_flow *f, int link, const int amounts[2], bool from_gpu, int cost[2])
{
  const tt_topo_link *l = &f->topo->links[link];
  cost[0] = l->type == TT_PATH_PIX ? amounts[1] : amounts[0];
  cost[1] = f->how[link] == FLOW_OLD && !from_gpu ? cost[0] / 8 : f->how[link] == FLOW_POWER ? cost[0] : 0;
}

// Does this path cost more on PCI links, as it leads from a GPU through Intel's CPUs?
static bool is_wasteful(const tt_flow *f, int from, int to)
{
  return from < f->ngpus && f->wasteful[(size_t)from * (size_t)f->paths->nends + (size_t)to];
}

// Amount on PCI links of such a path.
static void path_amounts(bool wasteful, int amount, int amounts[2])
{
  amounts[0] = amount;
  amounts[1] = wasteful ? amount / 5 * 6 + amount % 5 * 6 / 5 : amount;
}

static void give_hops(tt_flow *f, const tt_path *p, int count, bool from_gpu, const int amounts[2])
{
  int cost[2];
  for (int i = 0; i < count; i++) {
    int link = f->paths->hops[p->first + i];
    hop_cost(f, link, amounts, from_gpu, cost);
    flow_change(f, link, -cost[0]);
    if (cost[1] > 0) {
      flow_change(f, f->topo->links[link].back, -cost[1]);
    }
  }
}

// Takes from the links of a path alone; a negative amount gives back.
static bool take_links(tt_flow *f, const tt_path *p, int amount)
{
  const int *hops = &f->paths->hops[p->first];
  for (int i = 0; i < p->count; i++) {
    if (f->left[hops[i]] < amount) {
      return false;
    }
  }
  for (int i = 0; i < p->count; i++) {
    flow_change(f, hops[i], amount);
  }
  return true;
}

bool tt_flow_take(tt_flow *f, int from, int to, int amount)
{
  const tt_path *p = tt_path_get(f->paths, from, to);
  bool wasteful = is_wasteful(f, from, to), from_gpu = from < f->ngpus;
  if (f->simple && !wasteful) {
    return take_links(f, p, amount);
  }
  int amounts[2], cost[2];
  path_amounts(wasteful, amount, amounts);
  for (int i = 0; i < p->count; i++) {
    int link = f->paths->hops[p->first + i], back = f->topo->links[link].back;
    hop_cost(f, link, amounts, from_gpu, cost);
    if (f->left[link] < cost[0] || (cost[1] > 0 && f->left[back] < cost[1])) {
      give_hops(f, p, i, from_gpu, amounts);
      return false;
    }
    flow_change(f, link, cost[0]);
    if (cost[1] > 0) {
      flow_change(f, back, cost[1]);
    }
  }
  return true;
}

void tt_flow_give(tt_flow *f, int from, int to, int amount)
{
  const tt_path *p = tt_path_get(f->paths, from, to);
  bool wasteful = is_wasteful(f, from, to);
  if (f->simple && !wasteful) {
    (void)take_links(f, p, -amount); // never too much
    return;
  }
  int amounts[2];
  path_amounts(wasteful, amount, amounts);
  give_hops(f, p, p->count, from < f->ngpus, amounts);
}

bool tt_flow_take_port(tt_flow *f, int net, int amount)
{
  int port = f->port[net - f->topo->first[TT_NODE_NET]];
  if (f->port_left[port] < amount) {
    return false;
  }
  f->port_left[port] -= amount;
  f->hash -= f->weight[f->topo->nlinks + port] * (uint64_t)(int64_t)amount;
  return true;
}

void tt_flow_give_port(tt_flow *f, int net, int amount)
{
  int port = f->port[net - f->topo->first[TT_NODE_NET]];
  f->port_left[port] += amount;
  f->hash += f->weight[f->topo->nlinks + port] * (uint64_t)(int64_t)amount;
}

// ---- Edges ----

int tt_graph_edges(const tt_graph *g, int channel, tt_edge *out)
{
  const int *gpus = &g->gpus[(size_t)channel * (size_t)g->ngpus], *nets = &g->nets[2 * channel];
  int n = g->ngpus, count = 0, intra = tt_flow_amount(g->speedintra), inter = tt_flow_amount(g->speedinter);
  bool ring = g->pattern == TT_PATTERN_RING, balanced = g->pattern == TT_PATTERN_BALANCED_TREE && n > 1;
  int last = ring ? n - 1 : g->pattern == TT_PATTERN_SPLIT_TREE && n > 1 ? 1 : 0;
  for (int i = 0; i < n - 1; i++) {
    out[count++] = (tt_edge){gpus[i], gpus[i + 1], intra, true};
  }
  if (ring && !g->inter && n > 1) {
    out[count++] = (tt_edge){gpus[n - 1], gpus[0], intra, true};
  }
  if (g->inter && nets[0] >= 0 && nets[1] >= 0) {
    out[count++] = (tt_edge){nets[0], gpus[0], inter, false};
    out[count++] = (tt_edge){gpus[last], nets[1], balanced ? inter / 2 : inter, false};
    if (balanced) {
      out[count++] = (tt_edge){gpus[1], nets[1], inter / 2, false};
    }
  }
  return count;
}
