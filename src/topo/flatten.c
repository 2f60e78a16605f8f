// flatten.c: switches in one box that look like two levels.
#include "topo/draft.h"

// Generation of a Broadcom switch by its device word; 0: something else. Those of generation 5 tell the levels apart.
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

static void drop_links(tt_draft *d, int from, int to)
{
  for (int *at = &d->nodes[from].links; *at >= 0;) {
    if (d->links[*at].to == to) {
      *at = d->links[*at].next;
    } else {
      at = &d->links[*at].next;
    }
  }
}

static bool has_link(const tt_draft *d, int from, int to, int type)
{
  int l = d->nodes[from].links;
  while (l >= 0 && (d->links[l].to != to || d->links[l].type != type)) {
    l = d->links[l].next;
  }
  return l >= 0;
}

// Puts link l behind the others of its new node.
static void append(tt_draft *d, int node, int l)
{
  int *at = &d->nodes[node].links;
  while (*at >= 0) {
    at = &d->links[*at].next;
  }
  d->links[l].next = -1;
  *at = l;
}

// Links of `node` to `old` lead to `new` now.
static void redirect(tt_draft *d, int node, int old, int new)
{
  for (int l = d->nodes[node].links; l >= 0; l = d->links[l].next) {
    d->links[l].to = d->links[l].to == old ? new : d->links[l].to;
  }
  if (d->nodes[node].up == old) {
    d->nodes[node].up = new;
  }
}

// What hangs on `lower` hangs on `upper` now.
static void merge(tt_draft *d, int upper, int lower)
{
  drop_links(d, upper, lower);
  if (d->nodes[upper].up == lower) {
    d->nodes[upper].up = d->nodes[lower].up;
  }
  for (int l = d->nodes[lower].links, next; l >= 0; l = next) {
    int to = d->links[l].to;
    next = d->links[l].next;
    if (has_link(d, to, upper, d->links[l].type)) {
      drop_links(d, to, lower); // both levels were linked to it
    } else if (to != upper) {
      redirect(d, to, lower, upper);
      append(d, upper, l);
    }
  }
  d->nodes[lower].gone = true;
  d->nodes[lower].links = -1;
}

// The first switch of the lower level that hangs on `upper`; -1: none.
static int first_lower(const tt_draft *d, int upper, int gen)
{
  for (int l = d->nodes[upper].links; l >= 0; l = d->links[l].next) {
    if (is_lower(d, d->links[l].to, gen)) {
      return d->links[l].to;
    }
  }
  return -1;
}

void tt_draft_flatten(tt_draft *d)
{
  for (int i = 0; i < d->nnodes; i++) {
    tt_draft_node *upper = &d->nodes[i];
    int gen = upper->gone || upper->n.kind != TT_NODE_PCI ? 0 : generation(upper->n.pci.device, 0);
    if (gen == 0) {
      continue;
    }
    // Only what hangs on it now: a third level stays.
    int count = 0;
    for (int l = upper->links; l >= 0; l = d->links[l].next) {
      count += is_lower(d, d->links[l].to, gen);
    }
    for (; count > 0; count--) {
      merge(d, i, first_lower(d, i, gen));
    }
    upper->n.pci.device |= 0xffff;
  }
}
