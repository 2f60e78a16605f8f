// pack_trees.c: switches are split off, trees taken out one after the other.
#include "base/util.h"
#include "topo/pack_priv.h"

// The arcs of a switch are shared out evenly, so that trees get low: up to FEW_GPUS among all others, else among so
// many that are far apart, as each needs a flow for each GPU.
enum { FEW_GPUS = 16, SHARES = 6 };

// ---- Splitting off ----

// How many units may go from `u` past node z to `w`, instead of through it: no set with a GPU may be entered by less
// than all trees. Sets lose by it if only z is in them, or all but z.
static int64_t spare_units(tt_pack_net *p, int64_t trees, int u, int z, int w, int64_t most)
{
  for (int g = 0; g < p->ngpus && most > 0; g++) {
    if (g != u && g != w) {
      tt_pack_set only = {{z, g, -1}, {u, w}};
      most = tt_pack_enters(p, &only, trees + most) - trees;
    }
  }
  bool gpu = u < p->ngpus || w < p->ngpus;
  for (int g = 0; g < (gpu ? 1 : p->ngpus) && most > 0; g++) {
    tt_pack_set but = {{u, w, gpu ? -1 : g}, {z, -1}};
    most = tt_pack_enters(p, &but, trees + most) - trees;
  }
  return TT_MAX(most, 0);
}

// The arcs at a node that is split off.
typedef struct pack_star {
  int node, nin, nout;
  int *in, *out; // arcs with units, to it and from it
} pack_star;

static void list_star(const tt_pack_net *p, pack_star *s)
{
  const tt_maxflow_arc *arcs = p->flow.arcs;
  for (int a = p->flow.first[s->node]; a >= 0; a = arcs[a].next) {
    if (arcs[a & ~1].room > 0) {
      *((a & 1) != 0 ? &s->in[s->nin++] : &s->out[s->nout++]) = a & ~1;
    }
  }
}

// Where an arc comes from.
static int tail_of(const tt_pack_net *p, int arc)
{
  return p->flow.arcs[arc ^ 1].to;
}

// Joins two arcs, up to so many units. What comes back to where it came from carries nothing and is dropped.
static ncclResult_t join_arcs(tt_pack_net *p, int64_t trees, int node, int in, int out, int64_t most)
{
  tt_maxflow_arc *arcs = p->flow.arcs;
  int from = tail_of(p, in), to = arcs[out].to;
  most = TT_MIN(most, TT_MIN(arcs[in].room, arcs[out].room));
  int64_t units = most > 0 ? spare_units(p, trees, from, node, to, most) : 0;
  arcs[in].room -= units;
  arcs[out].room -= units;
  return units > 0 && from != to ? tt_pack_add(p, from, to, units, (tt_pack_way){-1, in, out}) : ncclSuccess;
}

// An even share of what an arc has, for each other end.
static int64_t even_share(const tt_pack_net *p, const pack_star *s, int in)
{
  int64_t others = 0;
  for (int i = 0; i < s->nout; i++) {
    others += p->flow.arcs[s->out[i]].to != tail_of(p, in);
  }
  others = p->ngpus <= FEW_GPUS ? others : TT_MIN(others, SHARES);
  return TT_DIV_UP(p->flow.arcs[in].room, TT_MAX(others, 1));
}

// Which arc the k-th is that arc number i is joined with: shares go to ends that are far apart.
static int split_partner(const tt_pack_net *p, const pack_star *s, int i, int k)
{
  int far = s->nout / SHARES;
  bool few = p->ngpus <= FEW_GPUS || far == 0;
  return s->out[(i + 1 + (few ? k : k % SHARES * far + k / SHARES)) % s->nout];
}

// Every pair of arcs, three times: with even shares, with all there is, and back to where they came from. What cannot
// be joined then never can: splitting makes sets poorer only.
static ncclResult_t split_star(tt_pack_net *p, int64_t trees, const pack_star *s)
{
  enum { EVENLY, ALL, BACK, ROUNDS };
  for (int round = EVENLY; round < ROUNDS; round++) {
    for (int i = 0; i < s->nin; i++) {
      int64_t most = round == EVENLY ? even_share(p, s, s->in[i]) : INT64_MAX;
      for (int k = 0; k < s->nout && p->flow.arcs[s->in[i]].room > 0; k++) {
        int out = round == EVENLY ? split_partner(p, s, i, k) : s->out[(i + 1 + k) % s->nout];
        bool back = p->flow.arcs[out].to == tail_of(p, s->in[i]);
        TT_TRY(back == (round == BACK) ? join_arcs(p, trees, s->node, s->in[i], out, most) : ncclSuccess);
      }
    }
  }
  return ncclSuccess;
}

static ncclResult_t split_node(tt_pack_net *p, int64_t trees, int node)
{
  pack_star s = {.node = node};
  int *room, arcs = 0, left = 0;
  for (int a = p->flow.first[node]; a >= 0; a = p->flow.arcs[a].next) {
    arcs++;
  }
  TT_TRY(TT_NEW(room, 2 * (size_t)arcs, "no memory for %d arcs of a switch", arcs));
  s.in = room;
  s.out = room + arcs;
  list_star(p, &s);
  ncclResult_t res = split_star(p, trees, &s);
  for (int i = 0; i < s.nin; i++) {
    left += p->flow.arcs[s.in[i]].room > 0;
  }
  tt_free(room);
  if (res == ncclSuccess && left > 0) {
    res = tt_fail(ncclInternalError, "node %d of the machine cannot be split off: %d arcs are left", node, left);
  }
  return res;
}

ncclResult_t tt_pack_split(tt_pack_net *p, int64_t trees)
{
  for (int n = p->topo->nnodes - 1; n >= p->ngpus; n--) {
    TT_TRY(split_node(p, trees, n));
  }
  return ncclSuccess;
}

// ---- Trees ----

// A tree that grows. Trees that are left: so many units must enter every set of GPUs when it is done.
typedef struct pack_tree {
  int64_t left;
  int *ups, *arc; // [ngpus]
  int *order;     // GPUs in the order in which they joined
  bool *in;
  int count;
} pack_tree;

// Takes a unit of an arc, if the other trees can spare it.
static bool take_unit(tt_pack_net *p, const pack_tree *t, int arc)
{
  int to = p->flow.arcs[arc].to;
  p->flow.arcs[arc].room--;
  if (tt_pack_enters(p, &(tt_pack_set){{to, -1, -1}, {-1, -1}}, t->left) == t->left) {
    return true;
  }
  p->flow.arcs[arc].room++;
  return false;
}

static void join_tree(pack_tree *t, int gpu, int up, int arc)
{
  t->ups[gpu] = up;
  t->arc[gpu] = arc;
  t->in[gpu] = true;
  t->order[t->count++] = gpu;
}

// GPUs that joined first get their neighbours first: low trees. An arc that others need is needed until this tree is
// done.
static bool grow_tree(tt_pack_net *p, pack_tree *t)
{
  for (int g = 0; g < p->ngpus && t->count == 0; g++) {
    if (p->flow.arcs[p->root[g]].room > 0 && take_unit(p, t, p->root[g])) {
      join_tree(t, g, -1, -1);
    }
  }
  for (int i = 0; i < t->count && t->count < p->ngpus; i++) {
    for (int a = p->flow.first[t->order[i]]; a >= 0; a = p->flow.arcs[a].next) {
      int to = p->flow.arcs[a].to;
      if ((a & 1) == 0 && to < p->ngpus && !t->in[to] && p->flow.arcs[a].room > 0 && take_unit(p, t, a)) {
        join_tree(t, to, t->order[i], a);
      }
    }
  }
  return t->count == p->ngpus;
}

// Links of a way, as they are written. A way that comes to a node again goes on from the first time.
typedef struct pack_links {
  const tt_topo *topo;
  int *links;
  int count, room, begin;
} pack_links;

static ncclResult_t add_link(pack_links *w, int link)
{
  if (!tt_grow(&w->links, w->count, 1, &w->room, sizeof(*w->links))) {
    return tt_fail(ncclSystemError, "no memory for the ways of trees");
  }
  w->links[w->count++] = link;
  for (int i = w->begin; i < w->count; i++) {
    if (w->topo->links[w->links[i]].from == w->topo->links[link].to) {
      w->count = i;
    }
  }
  return ncclSuccess;
}

static ncclResult_t add_way(const tt_pack_net *p, int arc, pack_links *w)
{
  const tt_pack_way *way = &p->ways[arc / 2];
  if (way->link >= 0) {
    return add_link(w, way->link);
  }
  TT_TRY(add_way(p, way->before, w));
  return add_way(p, way->behind, w);
}

static ncclResult_t write_ways(const tt_pack_net *p, const pack_tree *t, int *first, pack_links *w)
{
  for (int g = 0; g < p->ngpus; g++) {
    first[g] = w->begin = w->count;
    TT_TRY(t->arc[g] >= 0 ? add_way(p, t->arc[g], w) : ncclSuccess);
  }
  first[p->ngpus] = w->count;
  return ncclSuccess;
}

static ncclResult_t take_tree(tt_pack_net *p, pack_tree *t, int *first, pack_links *w)
{
  memset(t->in, 0, (size_t)p->ngpus * sizeof(*t->in));
  t->count = 0;
  if (!grow_tree(p, t)) {
    return tt_fail(ncclInternalError, "a tree reaches %d of %d GPUs, with %d trees to come", t->count, p->ngpus,
                   (int)t->left);
  }
  return write_ways(p, t, first, w);
}

ncclResult_t tt_pack_take_trees(tt_pack_net *p, tt_packing *out)
{
  size_t n = (size_t)p->ngpus, all = (size_t)out->ntrees * n;
  pack_links w = {.topo = p->topo};
  pack_tree t = {.count = 0};
  ncclResult_t res = ncclSuccess;
  out->ups = tt_calloc(all, sizeof(int));
  out->first = tt_calloc(all + 1, sizeof(int));
  TT_ARENA_NEW(&p->flow.arena, t.arc, n);
  TT_ARENA_NEW(&p->flow.arena, t.order, n);
  TT_ARENA_NEW(&p->flow.arena, t.in, n);
  if (out->ups == NULL || out->first == NULL || p->flow.arena.failed) {
    return tt_fail(ncclSystemError, "no memory for %d trees of %d GPUs", out->ntrees, p->ngpus);
  }
  for (int k = 0; k < out->ntrees && res == ncclSuccess; k++) {
    t.left = out->ntrees - k - 1;
    t.ups = out->ups + (size_t)k * n;
    res = take_tree(p, &t, out->first + (size_t)k * n, &w);
  }
  out->links = w.links;
  return res;
}
