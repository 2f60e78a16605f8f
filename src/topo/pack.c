// pack.c: see pack.h. The network of flows, the bound, and how many trees of which width.
#include "topo/pack.h"

#include <math.h>

#include "base/util.h"
#include "topo/pack_priv.h"

#define KBS 1e6       // kB/s in GB/s
#define BETTER 1.01   // more trees must have so much more
enum { FINE = 4096 }; // a width is found to one part in so many

// ---- The network ----

static bool takes_part(const tt_topo *t, int node)
{
  int kind = t->nodes[node].kind;
  return kind != TT_NODE_NET && kind != TT_NODE_NIC && kind != TT_NODE_DEV;
}

ncclResult_t tt_pack_add(tt_pack_net *p, int from, int to, int64_t room, tt_pack_way way)
{
  int place = p->flow.narcs / 2;
  if (!tt_grow(&p->ways, place, 1, &p->way_room, sizeof(*p->ways))) {
    return tt_fail(ncclSystemError, "no memory for the ways of %d arcs", place);
  }
  p->ways[place] = way;
  return tt_maxflow_add(&p->flow, from, to, room);
}

// The arcs beside the machine's: roots, and those of questions.
static ncclResult_t add_ends(tt_pack_net *p)
{
  const tt_pack_way none = {.link = -1, .before = -1, .behind = -1};
  for (int g = 0; g < p->ngpus; g++) {
    p->root[g] = p->flow.narcs;
    TT_TRY(tt_pack_add(p, p->source, g, 0, none));
  }
  for (int n = 0; n < p->topo->nnodes; n++) {
    p->given[n] = p->flow.narcs;
    TT_TRY(tt_pack_add(p, p->source, n, 0, none));
    p->taken[n] = p->flow.narcs;
    TT_TRY(tt_pack_add(p, n, p->sink, 0, none));
  }
  return ncclSuccess;
}

ncclResult_t tt_pack_net_make(const tt_topo *t, tt_pack_net *p)
{
  *p = (tt_pack_net){.topo = t, .ngpus = tt_topo_count(t, TT_NODE_GPU), .source = t->nnodes, .sink = t->nnodes + 1};
  TT_TRY(tt_maxflow_make(t->nnodes + 2, &p->flow));
  TT_ARENA_NEW(&p->flow.arena, p->amount, t->nlinks);
  TT_ARENA_NEW(&p->flow.arena, p->arc, t->nlinks);
  TT_ARENA_NEW(&p->flow.arena, p->root, p->ngpus);
  TT_ARENA_NEW(&p->flow.arena, p->given, t->nnodes);
  TT_ARENA_NEW(&p->flow.arena, p->taken, t->nnodes);
  if (p->flow.arena.failed) {
    return tt_fail(ncclSystemError, "no memory for the trees of %d links", t->nlinks);
  }
  TT_TRY(add_ends(p));
  for (int l = 0; l < t->nlinks; l++) {
    const tt_topo_link *link = &t->links[l];
    float bw = TT_MIN(link->bw, t->links[link->back].bw);
    bool used = takes_part(t, link->from) && takes_part(t, link->to);
    p->amount[l] = used ? (int64_t)floor((double)bw * KBS) : 0;
    p->arc[l] = p->flow.narcs;
    TT_TRY(tt_pack_add(p, link->from, link->to, 0, (tt_pack_way){.link = l, .before = -1, .behind = -1}));
  }
  return ncclSuccess;
}

void tt_pack_net_clear(tt_pack_net *p)
{
  tt_free(p->ways);
  p->ways = NULL;
  tt_maxflow_clear(&p->flow);
}

static void fill_question(tt_pack_net *p, const tt_pack_set *set, int64_t room)
{
  for (size_t i = 0; i < TT_COUNT(set->in); i++) {
    if (set->in[i] >= 0) {
      p->flow.arcs[p->taken[set->in[i]]].room = room;
    }
  }
  for (size_t i = 0; i < TT_COUNT(set->out); i++) {
    if (set->out[i] >= 0) {
      p->flow.arcs[p->given[set->out[i]]].room = room;
    }
  }
}

int64_t tt_pack_enters(tt_pack_net *p, const tt_pack_set *set, int64_t limit)
{
  fill_question(p, set, TT_MAXFLOW_ANY);
  int64_t flow = tt_maxflow_run(&p->flow, p->source, p->sink, limit);
  fill_question(p, set, 0);
  return flow;
}

void tt_pack_set_unit(tt_pack_net *p, int64_t unit)
{
  for (int l = 0; l < p->topo->nlinks; l++) {
    p->flow.arcs[p->arc[l]].room = p->amount[l] / unit;
  }
}

// Every GPU gets what all trees need, then gives back what the least set around it has too much. Whatever the order,
// the sum of what they keep is the least there is, since sets that have just enough may be joined.
bool tt_pack_roots(tt_pack_net *p, int64_t trees)
{
  int64_t sum = 0;
  for (int g = 0; g < p->ngpus; g++) {
    p->flow.arcs[p->root[g]].room = trees;
  }
  for (int g = 0; g < p->ngpus; g++) {
    int64_t enters = tt_pack_enters(p, &(tt_pack_set){{g, -1, -1}, {-1, -1}}, 2 * trees);
    int64_t kept = trees - TT_MIN(trees, enters - trees);
    p->flow.arcs[p->root[g]].room = kept;
    sum += kept;
    if (sum > trees) {
      return false;
    }
  }
  p->flow.arcs[p->root[0]].room += trees - sum;
  return true;
}

// ---- The bound ----

// The greatest rate for which there are roots, in kB/s. With more, some family of sets is entered too little, so one
// more is a bound.
static int64_t greatest_rate(tt_pack_net *p)
{
  const tt_topo_node *n = &p->topo->nodes[0];
  int64_t good = 0, bad = 1;
  for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
    bad += 2 * p->amount[l]; // twice what enters one GPU is at least the bound
  }
  tt_pack_set_unit(p, 1);
  while (bad - good > 1) {
    int64_t middle = good + (bad - good) / 2;
    *(tt_pack_roots(p, middle) ? &good : &bad) = middle;
  }
  return good;
}

ncclResult_t tt_pack_bound(const tt_topo *topo, double *out)
{
  tt_pack_net p = {0};
  ncclResult_t res = tt_pack_net_make(topo, &p);
  if (res == ncclSuccess) {
    int64_t rate = p.ngpus > 1 ? greatest_rate(&p) : 0;
    *out = rate > 0 ? (double)(rate + 1) / KBS : 0;
  }
  tt_pack_net_clear(&p);
  return res;
}

// ---- How many trees of which width ----

static bool fits(tt_pack_net *p, int trees, int64_t unit)
{
  tt_pack_set_unit(p, unit);
  return tt_pack_roots(p, trees);
}

// The greatest unit by which links have as many units as now.
static int64_t widest_unit(const tt_pack_net *p, int64_t unit)
{
  int64_t widest = INT64_MAX;
  for (int l = 0; l < p->topo->nlinks; l++) {
    int64_t units = p->amount[l] / unit;
    widest = units > 0 ? TT_MIN(widest, p->amount[l] / units) : widest;
  }
  return widest;
}

// The widest of so many trees: more than `least` kB/s each, at most `most`. 0: they do not fit.
static int64_t find_unit(tt_pack_net *p, int trees, int64_t least, int64_t most)
{
  int64_t good = least + 1, bad = most + 1;
  if (good >= bad || !fits(p, trees, good)) {
    return 0;
  }
  while (bad - good > 1 + good / FINE) {
    int64_t middle = good + (bad - good) / 2;
    *(fits(p, trees, middle) ? &good : &bad) = middle;
  }
  return widest_unit(p, good);
}

static int choose_trees(tt_pack_net *p, int most, int64_t rate, int64_t *unit)
{
  int trees = 0;
  for (int k = 1; k <= most; k++) {
    double best = (double)trees * (double)*unit * BETTER;
    int64_t found = find_unit(p, k, (int64_t)best / k, rate / k);
    if (found > 0) {
      trees = k;
      *unit = found;
    }
  }
  return trees;
}

static ncclResult_t pack_on(tt_pack_net *p, int most, tt_packing *out)
{
  int64_t rate = p->ngpus > 1 ? greatest_rate(p) : 0, unit = 0;
  out->ngpus = p->ngpus;
  if (rate == 0) {
    return ncclSuccess;
  }
  out->bound = (double)(rate + 1) / KBS;
  out->ntrees = choose_trees(p, most, rate, &unit);
  out->unit = (double)unit / KBS;
  if (out->ntrees == 0 || !fits(p, out->ntrees, unit)) {
    return tt_fail(ncclInternalError, "%d trees of %g GB/s do not fit on %d GPUs", out->ntrees, out->unit, out->ngpus);
  }
  TT_TRY(tt_pack_split(p, out->ntrees));
  return tt_pack_take_trees(p, out);
}

ncclResult_t tt_pack(const tt_topo *topo, int most, tt_packing *out)
{
  tt_pack_net p = {0};
  tt_packing packing = {0};
  ncclResult_t res = tt_pack_net_make(topo, &p);
  res = res == ncclSuccess ? pack_on(&p, TT_CLAMP(most, 1, TT_PACK_TREES), &packing) : res;
  tt_pack_net_clear(&p);
  if (res != ncclSuccess) {
    tt_packing_clear(&packing);
    return res;
  }
  *out = packing;
  return ncclSuccess;
}

void tt_packing_clear(tt_packing *p)
{
  tt_free(p->ups);
  tt_free(p->first);
  tt_free(p->links);
  *p = (tt_packing){0};
}
