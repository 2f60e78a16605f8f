// packed.c: trees packed by flow on one machine: what they reach of what links can carry, and where rings and trees do
// not.
#include <stdio.h>

#include "base/util.h"
#include "commands.h"
#include "tools/graph_check.h"
#include "tools/pack_check.h"

#define FAR 0.7      // of what any algorithm can have: less is worth a line
#define FAR_GPUS 128 // with more it takes too long to find out

// GB/s of an all-reduce: bytes of its buffer by its time. An element crosses each edge of a ring's channel 2 (n - 1)/n
// times, and each edge of a tree's once up and once down.
static double ring_rate(const tt_graph *g)
{
  return (double)tt_graph_total(g) * g->ngpus / (2 * TT_MAX(g->ngpus - 1, 1));
}

static double graph_rate(const xp_group *x)
{
  const tt_graph *ring = &x->graphs.graph[TT_GRAPH_RING], *tree = &x->graphs.graph[TT_GRAPH_TREE];
  return TT_MAX(ring_rate(ring), (double)tt_graph_total(tree) / 2);
}

static void say_rates(const xp_group *x, const tt_packing *p, const char *indent, const xp_print *out)
{
  const tt_graph *ring = &x->graphs.graph[TT_GRAPH_RING], *tree = &x->graphs.graph[TT_GRAPH_TREE];
  double most = p->bound / 2, rings = ring_rate(ring), trees = (double)tt_graph_total(tree) / 2;
  double packed = p->unit * p->ntrees / 2;
  xp_text text = {0};
  xp_add(&text,
         "%sall-reduce, by the bandwidth of links alone: rings %.4g GB/s (%.0f %% of the bound, which is %.4g), trees "
         "%.4g (%.0f %%), %d packed tree%s %.4g (%.1f %%)",
         indent, rings, 100 * rings / most, most, trees, 100 * trees / most, p->ntrees, p->ntrees == 1 ? "" : "s",
         packed, 100 * packed / most);
  if ((double)tree->bound / 2 > most * 1.001) { // the least family leaves GPUs out
    xp_add(&text, "; the bound by cuts, for any all-reduce, is %.4g", (double)tree->bound / 2);
  }
  xp_flow(out, 0, (int)strlen(indent) + 2, text.buf);
}

int xp_packed_far(const xp_machine *m, const char *indent, const xp_print *out)
{
  const xp_group *x = &m->group[0];
  tt_packing p = {0};
  double bound = 0;
  const tt_graph *ring = &x->graphs.graph[TT_GRAPH_RING];
  if (m->ngroups > 1 || ring->inter || ring->ngpus > FAR_GPUS) {
    return 0;
  }
  if (tt_pack_bound(x->topo, &bound) != ncclSuccess) {
    return xp_complain(1);
  }
  if (graph_rate(x) >= FAR * bound / 2) {
    return 0;
  }
  if (tt_pack(x->topo, TT_PACK_TREES, &p) != ncclSuccess) {
    return xp_complain(1);
  }
  say_rates(x, &p, indent, out);
  xp_say(out, (int)strlen(indent) + 2,
         "%srings and trees are more than 30 %% below the bound: NCCL_ALGO=Packed uses packed trees, graphs --packed "
         "lists them",
         indent);
  tt_packing_clear(&p);
  return 0;
}

// ---- All trees ----

static bool same_tree(const tt_packing *p, int a, int b)
{
  size_t n = (size_t)p->ngpus;
  return memcmp(p->ups + (size_t)a * n, p->ups + (size_t)b * n, n * sizeof(int)) == 0;
}

static void write_way(const xp_group *x, const tt_packing *p, int at, const xp_print *out)
{
  char name[64];
  for (int i = p->first[at]; i < p->first[at + 1]; i++) {
    const tt_topo_link *l = &x->topo->links[p->links[i]];
    fprintf(out->f, "%s %s %s", i == p->first[at] ? "" : " ", xp_link_kind(x->topo, l), xp_arrow(out));
    fprintf(out->f, " %s", xp_node_name(x->topo, l->to, name, sizeof(name)));
  }
}

// A line for each edge with its links, from the top.
static void write_ways_of(const xp_group *x, const tt_packing *p, int tree, const xp_print *out)
{
  char name[64];
  for (int g = 0; g < p->ngpus; g++) {
    int at = tree * p->ngpus + g;
    if (p->ups[at] >= 0) {
      fprintf(out->f, "    %s", xp_node_name(x->topo, p->ups[at], name, sizeof(name)));
      write_way(x, p, at, out);
      fputc('\n', out->f);
    }
  }
}

// "GPU0 (GPU1 (GPU3) GPU2)": what hangs below stands in parentheses.
static void add_tree(const xp_group *x, const int *ups, int ngpus, int gpu, xp_text *text)
{
  char name[64];
  bool any = false;
  xp_add(text, "%s", xp_node_name(x->topo, gpu, name, sizeof(name)));
  for (int g = 0; g < ngpus; g++) {
    if (ups[g] == gpu) {
      xp_add(text, any ? " " : " (");
      add_tree(x, ups, ngpus, g, text);
      any = true;
    }
  }
  xp_add(text, "%s", any ? ")" : "");
}

// A tree, and how many there are of it. With ways each is listed alone: they may go other ways.
static void write_tree(const xp_options *o, const xp_group *x, const tt_packing *p, int tree, const xp_print *out)
{
  const int *ups = p->ups + (size_t)tree * (size_t)p->ngpus;
  xp_text text = {0};
  int count = 0, root = 0;
  for (int k = 0; k < p->ntrees && !o->ways; k++) {
    if (same_tree(p, k, tree)) {
      if (k < tree) {
        return;
      }
      count++;
    }
  }
  while (ups[root] >= 0) {
    root++;
  }
  xp_add(&text, "%3d x  ", TT_MAX(count, 1));
  add_tree(x, ups, p->ngpus, root, &text);
  xp_flow(out, 0, 8, text.buf);
  if (o->ways) {
    write_ways_of(x, p, tree, out);
  }
}

int xp_packed(const xp_options *o, const xp_machine *m, xp_print *out)
{
  const xp_group *x = &m->group[o->rank < 0 ? 0 : m->group_of[o->rank % m->nranks]];
  tt_packing p = {0};
  tt_pack_look look = {0};
  if (o->nodes > 1 || m->ngroups > 1) {
    fputs("tutti-topo: graphs --packed: packed trees are for ranks that reach each other without the network\n",
          stderr);
    return 2;
  }
  if (tt_pack(x->topo, TT_PACK_TREES, &p) != ncclSuccess || tt_packing_check(x->topo, &p, &look) != ncclSuccess) {
    tt_packing_clear(&p);
    return xp_complain(1);
  }
  if (p.ntrees == 0) {
    fputs("tutti-topo: graphs --packed: one GPU has no trees\n", stderr);
    return 2;
  }
  fprintf(out->f, "%s%d tree%s of %g GB/s%s: %g together, at most %g (%.1f %%)\n", xp_ansi(out, XP_BOLD), p.ntrees,
          p.ntrees == 1 ? "" : "s", p.unit, xp_ansi(out, XP_PLAIN), look.total, p.bound, 100 * look.total / p.bound);
  say_rates(x, &p, "", out);
  fprintf(out->f,
          "checked link by link: the fullest carries %.1f %%, the longest way has %d links, the highest tree %d "
          "edges one below the other\n",
          100 * look.fill, look.most_hops, look.depth);
  for (int k = 0; k < p.ntrees; k++) {
    write_tree(o, x, &p, k, out);
  }
  tt_packing_clear(&p);
  return 0;
}
