// flatten.c: switches in one box that look like two levels.
#include "topo/draft.h"

// Generation of a Broadcom switch by its device number; 0: another device. In generation 5 the two levels have
// different numbers.
static int generation(uint64_t device, int level)
{
  uint64_t family = device & ~0xfffull;
  if (family == 0x1000c0101000a000) {
    return 4;
  }
  return family == (0x1000c03010000000 | (uint64_t)level * 0x1000) ? 5 : 0;
}

static bool is_lower(const tt_draft *d, int node, int gen)
{
  const tt_topo_node *n = &d->nodes[node].n;
  return n->kind == TT_NODE_PCI && generation(n->pci.device, 1) == gen;
}

// A merge of two levels: the lower node goes, the upper node gets its links behind its own last link.
typedef struct merger {
  int lower, upper, last;
} merger;

// Link l of the lower level, and the way back.
static ncclResult_t merge_link(tt_draft *d, merger *m, int l)
{
  int to = d->links[l].to, type = d->links[l].type, back = tt_draft_link_find(d, to, m->lower, type);
  if (to == m->upper || tt_draft_link_find(d, to, m->upper, type) >= 0) { // or both levels were linked to it
    d->links[l].to = d->links[back].to = TT_DRAFT_NOWHERE;
    return ncclSuccess;
  }
  if (d->nodes[to].up == m->lower) {
    d->nodes[to].up = m->upper;
  }
  TT_TRY(tt_draft_link_move(d, back, to, m->upper));
  TT_TRY(tt_draft_link_move(d, l, m->upper, to));
  d->links[m->last].next = l;
  m->last = l;
  return ncclSuccess;
}

// What hangs on the lower level hangs on the upper one now.
static ncclResult_t merge(tt_draft *d, merger *m)
{
  if (d->nodes[m->upper].up == m->lower) {
    d->nodes[m->upper].up = d->nodes[m->lower].up;
  }
  for (int l = d->nodes[m->lower].links, next; l >= 0; l = next) {
    next = d->links[l].next;
    if (d->links[l].to != TT_DRAFT_NOWHERE) {
      TT_TRY(merge_link(d, m, l));
    }
  }
  d->links[m->last].next = -1;
  d->nodes[m->lower].gone = true;
  d->nodes[m->lower].links = -1;
  return ncclSuccess;
}

static ncclResult_t flatten(tt_draft *d, int upper, int gen)
{
  merger m = {.upper = upper, .last = d->nodes[upper].links};
  while (d->links[m.last].next >= 0) {
    m.last = d->links[m.last].next;
  }
  // Only what hangs on it now: a third level stays.
  int end = m.last;
  for (int l = d->nodes[upper].links;; l = d->links[l].next) {
    m.lower = d->links[l].to;
    if (m.lower != TT_DRAFT_NOWHERE && is_lower(d, m.lower, gen)) {
      TT_TRY(merge(d, &m));
    }
    if (l == end) {
      return ncclSuccess;
    }
  }
}

ncclResult_t tt_draft_flatten(tt_draft *d)
{
  for (int i = 0; i < d->nnodes; i++) {
    tt_draft_node *upper = &d->nodes[i];
    int gen = upper->gone || upper->n.kind != TT_NODE_PCI ? 0 : generation(upper->n.pci.device, 0);
    if (gen != 0) {
      TT_TRY(flatten(d, i, gen));
      upper->n.pci.device |= 0xffff;
    }
  }
  return ncclSuccess;
}
