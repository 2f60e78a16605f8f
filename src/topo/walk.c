// walk.c: breadth first from one end to all others.
//
// From `base` outward, round by round: a node that found a better way to base tries all its neighbours in the next
// round. A way is a list of links from a node to base. Lists share their tails and never change: a node may find a
// better way later, and the ways that go over it still have its old one.
#include "base/util.h"
#include "topo/paths_priv.h"

typedef struct cell {
  int link, rest; // the first link of a way, and the cell of what follows; -1: none
} cell;

typedef struct way {
  int type, count;
  float bw;
  int cells; // first cell; -1: base itself
} way;

typedef struct walk {
  const tt_topo *topo;
  bool nvb; // may a GPU pass on what comes by NVLink?
  int base;
  way *ways; // of each node
  int *now, *next;
  int nnow, nnext;
  bool *queued; // for the next round
  tt_arena arena;
  cell *cells;
  int ncells, cell_room;
} walk;

static void walk_clear(walk *w)
{
  tt_arena_clear(&w->arena);
  tt_free(w->cells);
}

static ncclResult_t walk_no_memory(const walk *w)
{
  return tt_fail(ncclSystemError, "no memory for the paths of a machine of %d nodes", w->topo->nnodes);
}

static ncclResult_t walk_prepare(walk *w)
{
  int n = w->topo->nnodes;
  TT_ARENA_NEW(&w->arena, w->ways, n);
  TT_ARENA_NEW(&w->arena, w->now, n);
  TT_ARENA_NEW(&w->arena, w->next, n);
  TT_ARENA_NEW(&w->arena, w->queued, n);
  return w->arena.failed ? walk_no_memory(w) : ncclSuccess;
}

static ncclResult_t new_cell(walk *w, int link, int rest, int *out)
{
  if (!tt_grow(&w->cells, w->ncells, 1, &w->cell_room, sizeof(*w->cells))) {
    return walk_no_memory(w);
  }
  w->cells[w->ncells] = (cell){link, rest};
  *out = w->ncells++;
  return ncclSuccess;
}

// The node that has the links of a GPU; the node itself when it is none.
static int walk_device_of(const tt_topo *t, int node)
{
  return tt_node_is_gpu(t, node) ? t->nodes[node].gpu.device : node;
}

// How many links from the device of base, rather than from a rank that shares it.
static int walk_distance(const walk *w, int node)
{
  return w->ways[node].count - (walk_device_of(w->topo, w->base) != w->base ? 1 : 0);
}

// A GPU passes on to the ranks that share it; and to other GPUs what came by one link, over NVLink.
static bool walk_may_pass(const walk *w, int node, const tt_topo_link *link)
{
  const tt_topo *t = w->topo;
  if (!tt_node_is_gpu(t, node) || node == walk_device_of(t, w->base) || node == w->base) {
    return true;
  }
  if (!tt_node_is_gpu(t, link->to)) {
    return false;
  }
  if (link->type == TT_PATH_LOC) {
    return t->nodes[link->to].gpu.device == node;
  }
  return w->nvb && link->type == TT_PATH_NVL && walk_distance(w, node) <= 1;
}

// Type of the way that goes from node's over this link.
static int type_over(const walk *w, int node, const tt_topo_link *link)
{
  const tt_topo *t = w->topo;
  int from = t->nodes[node].kind, to = t->nodes[link->to].kind, type = link->type;
  const way *have = &w->ways[node];
  if (type == TT_PATH_NET) {
    type = TT_PATH_LOC; // it is the way to the card that counts
  }
  if (from == TT_NODE_PCI && to == TT_NODE_PCI) {
    type = TT_PATH_PXB;
  }
  if (link->type == TT_LINK_PCI && (from == TT_NODE_CPU || to == TT_NODE_CPU)) {
    type = TT_PATH_PHB;
  }
  if (tt_node_is_gpu(t, node) && have->type == TT_PATH_NVL && type == TT_PATH_NVL && walk_distance(w, node) == 1) {
    type = TT_PATH_NVB;
  }
  return TT_MAX(have->type, type);
}

static bool better(const way *a, const way *b)
{
  if (a->type != b->type) {
    return a->type < b->type;
  }
  return a->bw != b->bw ? a->bw > b->bw : a->count < b->count;
}

static ncclResult_t try_link(walk *w, int node, const tt_topo_link *link)
{
  if (!walk_may_pass(w, node, link)) {
    return ncclSuccess;
  }
  const way *have = &w->ways[node];
  way found = {.type = type_over(w, node, link), .count = have->count + 1, .bw = TT_MIN(have->bw, link->bw)};
  if (!better(&found, &w->ways[link->to])) {
    return ncclSuccess;
  }
  TT_TRY(new_cell(w, link->back, have->cells, &found.cells));
  w->ways[link->to] = found;
  if (!w->queued[link->to]) {
    w->queued[link->to] = true;
    w->next[w->nnext++] = link->to;
  }
  return ncclSuccess;
}

static void walk_start(walk *w, int base)
{
  for (int i = 0; i < w->topo->nnodes; i++) {
    w->ways[i] = (way){.type = TT_PATH_DIS, .cells = -1};
  }
  w->base = base;
  w->ways[base] = (way){.type = TT_PATH_LOC, .bw = TT_BW_LOC, .cells = -1};
  w->ncells = 0;
  w->now[0] = base;
  w->nnow = 1;
}

static ncclResult_t walk_run(walk *w)
{
  while (w->nnow > 0) {
    w->nnext = 0;
    for (int i = 0; i < w->nnow; i++) {
      const tt_topo_node *n = &w->topo->nodes[w->now[i]];
      for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
        TT_TRY(try_link(w, w->now[i], &w->topo->links[l]));
      }
    }
    int *swap = w->now;
    w->now = w->next;
    w->next = swap;
    w->nnow = w->nnext;
    for (int i = 0; i < w->nnow; i++) {
      w->queued[w->now[i]] = false;
    }
  }
  return ncclSuccess;
}

static ncclResult_t walk_store(const walk *w, tt_paths *p)
{
  for (int from = 0; from < p->nends; from++) {
    const way *found = &w->ways[from];
    TT_TRY(tt_paths_room(p, found->count));
    *tt_path_at(p, from, w->base) =
        (tt_path){.type = (uint8_t)found->type, .count = (uint16_t)found->count, .first = p->nhops, .bw = found->bw};
    for (int c = found->cells; c >= 0; c = w->cells[c].rest) {
      p->hops[p->nhops++] = w->cells[c].link;
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_paths_search(const tt_topo *topo, bool nvb, tt_paths *p)
{
  walk w = {.topo = topo, .nvb = nvb};
  ncclResult_t res;
  TT_TRY_GOTO(walk_prepare(&w), res);
  for (int base = 0; base < p->nends; base++) {
    walk_start(&w, base);
    TT_TRY_GOTO(walk_run(&w), res);
    TT_TRY_GOTO(walk_store(&w, p), res);
  }
fail:
  walk_clear(&w);
  return res;
}
