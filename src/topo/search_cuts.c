// search_cuts.c: narrow places that GPUs share: behind a PCI switch, or in a socket. Every channel visits the GPUs on both sides, so what
// leads from one to the other bounds the number of channels.
#include "base/util.h"
#include "topo/search_priv.h"

enum { MAX_CUTS = 32 };

// The next node towards the CPU; -1 at a CPU, and where there is none.
static int above(const tt_topo *topo, int node)
{
  const tt_topo_node *n = &topo->nodes[node];
  if (n->kind == TT_NODE_CPU || n->kind == TT_NODE_NVS || n->nlinks == 0) {
    return -1;
  }
  return topo->links[n->first_link + n->nlinks - 1].to;
}

static bool below(const tt_topo *topo, int node, int top)
{
  for (int steps = 0; node >= 0 && steps < topo->nnodes; steps++) {
    if (node == top) {
      return true;
    }
    node = above(topo, node);
  }
  return false;
}

// GB/s of all of a GPU's links together.
static float gpu_out(const tt_topo *topo, int gpu)
{
  const tt_topo_node *d = &topo->nodes[topo->nodes[gpu].gpu.device];
  float out = 0;
  for (int l = d->first_link; l < d->first_link + d->nlinks; l++) {
    out += topo->links[l].type == TT_PATH_LOC ? 0 : topo->links[l].bw;
  }
  return out;
}

// Adds the links that lead out of what `inside` marks, when they carry less than the GPUs' own links on either side.
static void add_cut(const tt_topo *topo, const bool *inside, tt_cuts *cuts)
{
  float side[2] = {0, 0}, out = 0;
  int count = cuts->first[cuts->count], begin = count;
  for (int g = 0; g < tt_topo_count(topo, TT_NODE_GPU); g++) {
    side[inside[g]] += gpu_out(topo, g);
  }
  for (int n = 0; n < topo->nnodes; n++) {
    for (int l = topo->nodes[n].first_link; inside[n] && l < topo->nodes[n].first_link + topo->nodes[n].nlinks; l++) {
      if (!inside[topo->links[l].to]) {
        cuts->links[count++] = l;
        out += topo->links[l].bw;
      }
    }
  }
  if (count > begin && out < side[0] && out < side[1]) {
    cuts->first[++cuts->count] = count;
  }
}

ncclResult_t tt_cuts_create(const tt_topo *topo, tt_cuts *cuts)
{
  int ends = topo->first[TT_NODE_CPU];
  bool *inside = tt_calloc((size_t)topo->nnodes + 1, sizeof(bool));
  *cuts = (tt_cuts){0};
  cuts->first = tt_calloc(MAX_CUTS + 2, sizeof(int));
  cuts->links = tt_calloc((size_t)topo->nlinks * (MAX_CUTS + 1) + 1, sizeof(int));
  bool ok = inside != NULL && cuts->first != NULL && cuts->links != NULL;
  for (int top = ends; ok && top < topo->nnodes && cuts->count < MAX_CUTS; top++) {
    int kind = topo->nodes[top].kind;
    if (kind != TT_NODE_CPU && kind != TT_NODE_PCI) {
      continue;
    }
    for (int n = 0; n < topo->nnodes; n++) {
      inside[n] = below(topo, n, top);
    }
    add_cut(topo, inside, cuts);
  }
  tt_free(inside);
  return ok ? ncclSuccess : tt_fail(ncclSystemError, "no memory for the narrow places of %d links", topo->nlinks);
}

void tt_cuts_destroy(tt_cuts *cuts)
{
  tt_free(cuts->first);
  tt_free(cuts->links);
  *cuts = (tt_cuts){0};
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
