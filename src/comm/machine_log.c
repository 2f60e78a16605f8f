// machine_log.c: what users of NCCL look for in the log: the system's tree, the graphs, the channels.
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "comm/machine.h"
#include "comm/topology.h"

enum { LINE_BYTES = 4000, DEEPEST = 64 };

typedef struct line {
  char text[LINE_BYTES];
  size_t used;
} line;

__attribute__((format(printf, 2, 3))) static void machine_log_add(line *l, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  int n = tt_vformat(l->text + l->used, sizeof(l->text) - l->used, fmt, ap);
  va_end(ap);
  l->used = TT_MIN(l->used + (size_t)TT_MAX(n, 0), sizeof(l->text) - 1);
}

static void machine_log_cut(line *l, size_t length)
{
  l->used = length;
  l->text[length] = 0;
}

static void machine_log_line(const line *l)
{
  tt_info(TT_GRAPH, "%s", l->text);
}

// "GPU/0-1a000"
static void add_name(line *l, const tt_topo_node *n)
{
  machine_log_add(l, "%s/%d-%llx", tt_node_kind_name(n->kind), n->host, (unsigned long long)n->id);
}

static void add_node(line *l, const tt_topo_node *n)
{
  add_name(l, n);
  if (n->kind == TT_NODE_GPU) {
    machine_log_add(l, " (%d)", n->gpu.rank);
  } else if (n->kind == TT_NODE_CPU) {
    machine_log_add(l, " (%d/%d/%d)", n->cpu.arch, n->cpu.vendor, n->cpu.model);
  } else if (n->kind == TT_NODE_PCI) {
    machine_log_add(l, " (%llx)", (unsigned long long)n->pci.device);
  } else if (n->kind == TT_NODE_NET) {
    machine_log_add(l, " (%d/%llx/%d/%f)", n->net.coll, (unsigned long long)n->net.guid, n->net.port,
                    (double)n->net.bw);
  }
}

// A node and what hangs on it; `from` is the node above.
static void log_tree(const tt_topo *topo, int node, int from, line *l, int depth)
{
  const tt_topo_node *n = &topo->nodes[node];
  size_t indent = l->used;
  add_node(l, n);
  machine_log_line(l);
  memset(l->text, ' ', indent);
  for (int i = n->first_link; i < n->first_link + n->nlinks; i++) {
    const tt_topo_link *k = &topo->links[i];
    bool pci = k->type == TT_LINK_PCI;
    if ((pci && k->to == from) || depth == DEEPEST) {
      continue;
    }
    machine_log_cut(l, indent);
    machine_log_add(l, "+ %s[%2.1f] - ", tt_link_type_name(k->type), (double)k->bw);
    if (pci) {
      log_tree(topo, k->to, node, l, depth + 1);
    } else {
      topo->nodes[k->to].kind == TT_NODE_NET ? add_node(l, &topo->nodes[k->to]) : add_name(l, &topo->nodes[k->to]);
      machine_log_line(l);
    }
  }
  machine_log_cut(l, indent);
}

// What the widest GPU's NVLinks, or its PCI slot, carry together.
static float widest_gpu(const tt_topo *topo)
{
  float most = 0;
  for (int g = topo->first[TT_NODE_GPU]; g < topo->first[TT_NODE_GPU + 1]; g++) {
    const tt_topo_node *n = &topo->nodes[g];
    float nvl = 0, pci = 0;
    for (int i = n->first_link; i < n->first_link + n->nlinks; i++) {
      nvl += topo->links[i].type == TT_PATH_NVL ? topo->links[i].bw : 0;
      pci = topo->links[i].type == TT_LINK_PCI ? topo->links[i].bw : pci;
    }
    most = TT_MAX(most, TT_MAX(nvl, pci));
  }
  return most;
}

static float widest_path(const tt_topo *topo, const tt_paths *paths, bool inter)
{
  float most = 0;
  int kind = inter ? TT_NODE_NET : TT_NODE_GPU;
  for (int g = topo->first[TT_NODE_GPU]; g < topo->first[TT_NODE_GPU + 1]; g++) {
    for (int to = topo->first[kind]; to < topo->first[kind + 1]; to++) {
      most = to != g ? TT_MAX(most, tt_path_get(paths, g, to)->bw) : most;
    }
  }
  return most;
}

void tt_machine_log_system(const tt_topo *topo, const tt_paths *paths, bool inter)
{
  if (!tt_log_on(TT_LOG_INFO, TT_GRAPH)) {
    return;
  }
  bool alone = !inter && tt_topo_count(topo, TT_NODE_GPU) == 1;
  line l = {.used = 0};
  tt_info(TT_GRAPH,
          "=== System : maxBw %2.1f totalBw %2.1f ===", (double)(alone ? TT_BW_LOC : widest_path(topo, paths, inter)),
          (double)(alone ? TT_BW_LOC : widest_gpu(topo)));
  for (int cpu = topo->first[TT_NODE_CPU]; cpu < topo->first[TT_NODE_CPU + 1]; cpu++) {
    machine_log_cut(&l, 0);
    log_tree(topo, cpu, -1, &l, 0);
  }
  tt_info(TT_GRAPH, "==========================================");
}

void tt_machine_log_packing(const tt_packing *p)
{
  tt_info(TT_GRAPH, "Packed : %d trees of %g GB/s, %g together of at most %g", p->ntrees, p->unit, p->unit * p->ntrees,
          p->bound);
}

static void machine_log_add_net(line *l, const tt_topo *topo, int net)
{
  machine_log_add(l, " ");
  if (net >= 0) {
    add_name(l, &topo->nodes[net]);
  } else {
    machine_log_add(l, "NET/-");
  }
}

void tt_machine_log_graph(const tt_topo *topo, const tt_graph *g)
{
  if (!tt_log_on(TT_LOG_INFO, TT_GRAPH)) {
    return;
  }
  tt_info(TT_GRAPH, "Pattern %d, crossNic %d, nChannels %d, bw %f/%f, type %s/%s, sameChannels %d", g->pattern,
          g->crossnic, g->nchannels, (double)g->speedintra, (double)g->speedinter, tt_path_type_name(g->typeintra),
          tt_path_type_name(g->typeinter), g->samechannels);
  for (int c = 0; c < g->nchannels; c++) {
    line l = {.used = 0};
    int shown = g->pattern == TT_PATTERN_NVLS ? 1 : g->ngpus; // the head alone counts
    machine_log_add(&l, "%2d :", c);
    if (g->inter) {
      machine_log_add_net(&l, topo, g->nets[2 * c]);
    }
    for (int i = 0; i < shown; i++) {
      machine_log_add(&l, " ");
      add_name(&l, &topo->nodes[g->gpus[(size_t)c * (size_t)g->ngpus + (size_t)i]]);
    }
    if (g->inter) {
      machine_log_add_net(&l, topo, g->nets[2 * c + 1]);
    }
    machine_log_line(&l);
  }
}

static void log_rings(const tt_connect *c)
{
  int width = snprintf(NULL, 0, "%d", c->nranks - 1);
  for (int ch = 0; ch < c->nchannels; ch++) {
    line l = {.used = 0};
    machine_log_add(&l, "Channel %02d/%02d :", ch, c->nchannels);
    for (int i = 0, rank = 0; i < c->nranks && l.used < LINE_BYTES - 1; i++) {
      machine_log_add(&l, " %*d", width, rank);
      rank = tt_connect_ring_step(c, ch, rank, 1);
    }
    tt_info(TT_INIT, "%s%s", l.text, l.used == LINE_BYTES - 1 ? "..." : "");
  }
}

static void log_trees(const tt_connect *c, int rank)
{
  line l = {.used = 0};
  for (int ch = 0; ch < c->nchannels; ch++) {
    tt_tree_place t = tt_connect_tree(c, ch, rank);
    machine_log_add(&l, " [%d] %d/%d/%d->%d->%d", ch, t.down[0], t.down[1], t.down[2], rank, t.up);
    tt_info(TT_GRAPH, "Ring %02d : %d -> %d -> %d", ch, tt_connect_ring_step(c, ch, rank, -1), rank,
            tt_connect_ring_step(c, ch, rank, 1));
  }
  tt_info(TT_INIT, "Trees%s", l.text);
}

void tt_topology_log(const tt_topology *t, int rank)
{
  const tt_connect *c = t->connect;
  if (!tt_log_on(TT_LOG_INFO, TT_INIT | TT_GRAPH)) {
    return;
  }
  if (rank == 0) {
    log_rings(c);
  }
  log_trees(c, rank);
  tt_info(TT_INIT, "%d coll channels, %d collnet channels, %d nvls channels, %d p2p channels, %d p2p channels per peer",
          c->nchannels, c->collnet ? c->nchannels : 0, c->nvls_channels, t->p2p.channels, t->p2p.per_peer);
}
