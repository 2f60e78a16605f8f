// pack_check.c: see pack_check.h.
#include "tools/pack_check.h"

#include "base/arena.h"
#include "base/util.h"

#define ROUNDING 1e-5

// GB/s of each link: all from the roots down; half of it each way.
typedef struct pack_load {
  const tt_topo *topo;
  const tt_packing *packing;
  double *down, *both;
  tt_pack_look look;
} pack_load;

static bool relays(const tt_topo_node *n)
{
  return n->kind == TT_NODE_CPU || n->kind == TT_NODE_NVS || n->kind == TT_NODE_PCI;
}

// The links by which a tree goes from one GPU to the next.
static ncclResult_t load_way(pack_load *w, int tree, int gpu)
{
  const tt_packing *p = w->packing;
  int at = p->ups[tree * p->ngpus + gpu], begin = p->first[tree * p->ngpus + gpu],
      end = p->first[tree * p->ngpus + gpu + 1];
  for (int i = begin; i < end; i++) {
    const tt_topo_link *l = &w->topo->links[p->links[i]];
    if (l->from != at || (i > begin && !relays(&w->topo->nodes[at]))) {
      return tt_fail(ncclInternalError, "tree %d: link %d on the way to GPU %d begins at node %d, not at %d", tree,
                     i - begin, gpu, l->from, at);
    }
    w->down[p->links[i]] += p->unit;
    w->both[p->links[i]] += p->unit / 2;
    w->both[l->back] += p->unit / 2;
    at = l->to;
  }
  w->look.most_hops = TT_MAX(w->look.most_hops, end - begin);
  return at == gpu ? ncclSuccess
                   : tt_fail(ncclInternalError, "tree %d: the way to GPU %d ends at node %d", tree, gpu, at);
}

// Every GPU comes to the one root by going up.
static ncclResult_t load_tree(pack_load *w, int tree)
{
  const tt_packing *p = w->packing;
  const int *ups = &p->ups[tree * p->ngpus];
  int roots = 0;
  for (int g = 0; g < p->ngpus; g++) {
    int depth = 0;
    roots += ups[g] < 0;
    for (int at = g; ups[at] >= 0; at = ups[at]) {
      if (ups[at] >= p->ngpus || ++depth >= p->ngpus) {
        return tt_fail(ncclInternalError, "tree %d: no way up from GPU %d to the root", tree, g);
      }
    }
    w->look.depth = TT_MAX(w->look.depth, depth);
    TT_TRY(ups[g] >= 0 ? load_way(w, tree, g) : ncclSuccess);
  }
  return roots == 1 ? ncclSuccess : tt_fail(ncclInternalError, "tree %d has %d roots", tree, roots);
}

static ncclResult_t weigh_links(pack_load *w)
{
  for (int l = 0; l < w->topo->nlinks; l++) {
    double load = TT_MAX(w->down[l], w->both[l]), bw = (double)w->topo->links[l].bw;
    w->look.fill = TT_MAX(w->look.fill, load / bw);
    if (load > bw * (1 + ROUNDING)) {
      return tt_fail(ncclInternalError, "link %d, from node %d to %d: trees need %g GB/s of %g", l,
                     w->topo->links[l].from, w->topo->links[l].to, load, bw);
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_packing_check(const tt_topo *topo, const tt_packing *p, tt_pack_look *out)
{
  pack_load w = {.topo = topo, .packing = p, .look = {.total = p->unit * p->ntrees}};
  tt_arena arena = {0};
  TT_ARENA_NEW(&arena, w.down, topo->nlinks);
  TT_ARENA_NEW(&arena, w.both, topo->nlinks);
  ncclResult_t res = arena.failed ? tt_fail(ncclSystemError, "no memory for %d links", topo->nlinks) : ncclSuccess;
  for (int k = 0; k < p->ntrees && res == ncclSuccess; k++) {
    res = load_tree(&w, k);
  }
  res = res == ncclSuccess ? weigh_links(&w) : res;
  tt_arena_clear(&arena);
  if (res == ncclSuccess && out != NULL) {
    *out = w.look;
  }
  return res;
}
