// search_cuts.c: narrow places that GPUs share: behind a PCI switch, or in a socket. Every channel visits the GPUs on
// both sides, so what leads from one to the other bounds the number of channels.
//
// They are found in one pass over the ends and one over the links: each adds itself to what it lies below, or leads out
// of. That is as many steps as a file may be deep, at most.
#include "base/util.h"
#include "topo/search_priv.h"

enum { MAX_CUTS = 32 };

// What is below a node, itself included.
typedef struct below {
  int above;       // the next node towards the CPU; -1 at a CPU, and where there is none
  int gpus, ports; // how many
  double own;      // GB/s of all links of those GPUs
  double out;      // GB/s of the links that lead out
  int nlinks;      // so many
  int cut;         // its number; -1: none
  int seen;        // the last link that was looked at and ends here or below
  bool same;       // a switch below has the same GPUs and ports
} below;

static int above(const tt_topo *topo, int node)
{
  const tt_topo_node *n = &topo->nodes[node];
  if (n->kind == TT_NODE_CPU || n->kind == TT_NODE_NVS || n->nlinks == 0) {
    return -1;
  }
  return topo->links[n->first_link + n->nlinks - 1].to;
}

// GB/s of all of a GPU's links together.
static double gpu_out(const tt_topo *topo, int gpu)
{
  const tt_topo_node *d = &topo->nodes[topo->nodes[gpu].gpu.device];
  double out = 0;
  for (int l = d->first_link; l < d->first_link + d->nlinks; l++) {
    out += topo->links[l].type == TT_PATH_LOC ? 0 : (double)topo->links[l].bw;
  }
  return out;
}

// Returns GB/s of all links of all GPUs.
static double cuts_count_ends(const tt_topo *topo, below *at)
{
  double all = 0;
  for (int e = 0; e < topo->first[TT_NODE_CPU]; e++) { // GPUs, then ports
    bool gpu = topo->nodes[e].kind == TT_NODE_GPU;
    double own = gpu ? gpu_out(topo, e) : 0;
    all += own;
    for (int n = e, steps = 0; n >= 0 && steps < topo->nnodes; n = at[n].above, steps++) {
      at[n].gpus += gpu;
      at[n].ports += !gpu;
      at[n].own += own;
    }
  }
  return all;
}

// Visits for each link the nodes that it leads out of. Without `cuts` it counts the link there, else it adds the link
// to the cut.
static void follow_links(const tt_topo *topo, below *at, tt_cuts *cuts)
{
  for (int l = 0; l < topo->nlinks; l++) {
    int from = topo->links[l].from, to = topo->links[l].to;
    if (at[to].above == from) {
      continue; // it leads out of nothing
    }
    bool up = at[from].above == to;
    for (int n = to, steps = 0; n >= 0 && steps < (up ? 1 : topo->nnodes); n = at[n].above, steps++) {
      at[n].seen = l;
    }
    for (int n = from, steps = 0; n >= 0 && at[n].seen != l && steps < topo->nnodes; n = at[n].above, steps++) {
      if (cuts == NULL) {
        at[n].out += (double)topo->links[l].bw;
        at[n].nlinks++;
      } else if (at[n].cut >= 0) {
        cuts->links[cuts->first[at[n].cut + 1]++] = l;
      }
    }
  }
}

static bool same_ends(const below *at, int a, int b)
{
  return b >= 0 && at[a].gpus == at[b].gpus && at[a].ports == at[b].ports;
}

// May it bound the search: fewer GB/s lead out of it than the GPUs on either side have?
static bool cuts_is_narrow(const tt_topo *topo, const below *b, double all)
{
  return b->gpus > 0 && b->gpus < tt_topo_count(topo, TT_NODE_GPU) && b->nlinks > 0 && b->out < b->own &&
         b->out < all - b->own;
}

// Marks with cut 0 what is a cut: CPUs and, of switches in a row that have the same ends below, each that is narrower
// than those below it.
static void find_narrow(const tt_topo *topo, below *at, double all)
{
  int first = topo->first[TT_NODE_PCI], end = topo->first[TT_NODE_PCI + 1];
  for (int n = topo->first[TT_NODE_CPU]; n < topo->first[TT_NODE_CPU + 1]; n++) {
    at[n].cut = cuts_is_narrow(topo, &at[n], all) ? 0 : -1;
  }
  for (int n = first; n < end; n++) {
    if (same_ends(at, n, at[n].above)) {
      at[at[n].above].same = true;
    }
  }
  for (int bottom = first; bottom < end; bottom++) {
    double least = all;
    for (int n = at[bottom].same ? -1 : bottom, steps = 0; n >= first && n < end && steps < topo->nnodes; steps++) {
      at[n].cut = at[n].out < least && cuts_is_narrow(topo, &at[n], all) ? 0 : -1;
      least = TT_MIN(least, at[n].out);
      n = same_ends(at, n, at[n].above) ? at[n].above : -1;
    }
  }
}

// Numbers the cuts in the order of nodes, and gives each room for its links.
static ncclResult_t number_cuts(const tt_topo *topo, below *at, tt_arena *arena, tt_cuts *cuts)
{
  int room[MAX_CUTS], links = 0;
  for (int n = 0; n < topo->nnodes; n++) {
    at[n].cut = at[n].cut == 0 && cuts->count < MAX_CUTS ? cuts->count++ : -1;
    if (at[n].cut >= 0) {
      room[at[n].cut] = at[n].nlinks;
      links += at[n].nlinks;
    }
  }
  TT_ARENA_NEW(arena, cuts->first, cuts->count + 1);
  TT_ARENA_NEW(arena, cuts->links, links);
  if (arena->failed) {
    return tt_fail(ncclSystemError, "no memory for %d links of narrow places", links);
  }
  for (int i = 1; i < cuts->count; i++) {
    cuts->first[i + 1] = cuts->first[i] + room[i - 1]; // where the cut's next link goes: at last, its end
  }
  return ncclSuccess;
}

ncclResult_t tt_cuts_create(const tt_topo *topo, tt_arena *arena, tt_cuts *cuts)
{
  below *at;
  TT_TRY(TT_NEW(at, topo->nnodes + 1, "no memory for the narrow places of %d nodes", topo->nnodes));
  *cuts = (tt_cuts){0};
  for (int n = 0; n < topo->nnodes; n++) {
    at[n] = (below){.above = above(topo, n), .cut = -1, .seen = -1};
  }
  double all = cuts_count_ends(topo, at);
  follow_links(topo, at, NULL);
  find_narrow(topo, at, all);
  ncclResult_t res = number_cuts(topo, at, arena, cuts);
  if (res == ncclSuccess && cuts->count > 0) {
    for (int n = 0; n < topo->nnodes; n++) {
      at[n].seen = -1;
    }
    follow_links(topo, at, cuts);
  }
  tt_free(at);
  return res;
}

int tt_cuts_room(const tt_search *s, const tt_cond *c, int room)
{
  const tt_cuts *cuts = &s->cuts;
  const tt_topo_link *links = s->topo->links;
  bool closed = c->pattern == TT_PATTERN_RING && !s->now.inter;
  int amount = TT_MAX(tt_flow_amount(c->speedintra), 1);
  for (int i = 0; i < cuts->count; i++) {
    int out = 0, in = 0;
    for (int k = cuts->first[i]; k < cuts->first[i + 1]; k++) {
      int l = cuts->links[k];
      bool usable = c->typeintra > TT_PATH_NVB || links[l].type == TT_PATH_NVL || links[l].type == TT_PATH_LOC;
      out += usable ? s->flow.left[l] / amount : 0;
      in += usable ? s->flow.left[links[l].back] / amount : 0;
    }
    room = TT_MIN(room, closed ? TT_MIN(out, in) : out + in);
  }
  return room;
}

float tt_cuts_bound(const tt_search *s, bool closed)
{
  const tt_topo_link *links = s->topo->links;
  float bound = TT_BW_LOC;
  for (int i = 0; i < s->cuts.count; i++) {
    float out = 0, in = 0;
    for (int k = s->cuts.first[i]; k < s->cuts.first[i + 1]; k++) {
      out += links[s->cuts.links[k]].bw;
      in += links[links[s->cuts.links[k]].back].bw;
    }
    bound = TT_MIN(bound, closed ? TT_MIN(out, in) : out + in);
  }
  return bound;
}
