// draft.c: growing arrays of nodes and links.
#include "topo/draft.h"

#include "base/util.h"

void tt_draft_clear(tt_draft *d)
{
  tt_free(d->nodes);
  tt_free(d->links);
  tt_free(d->slots);
  tt_free(d->hosts);
  *d = (tt_draft){0};
}

// Makes room for one more of `used` elements in *array.
static ncclResult_t grow(void *array, int used, int *room, size_t size)
{
  if (used < *room) {
    return ncclSuccess;
  }
  int more = *room == 0 ? 64 : *room * 2;
  void *bigger = tt_calloc((size_t)more, size);
  if (bigger == NULL) {
    return tt_fail(ncclSystemError, "no memory for a machine of %d parts", more);
  }
  void **old = array;
  if (used > 0) {
    memcpy(bigger, *old, (size_t)used * size);
  }
  tt_free(*old);
  *old = bigger;
  *room = more;
  return ncclSuccess;
}

static uint64_t slot_of(const tt_draft *d, int kind, int host, int64_t id)
{
  int64_t key[3] = {kind, host, id};
  return tt_hash(key, sizeof(key), 0) & (uint64_t)(d->slot_room - 1);
}

static void file_node(tt_draft *d, int i)
{
  const tt_topo_node *n = &d->nodes[i].n;
  uint64_t s = slot_of(d, n->kind, n->host, n->id);
  while (d->slots[s] != 0) {
    s = (s + 1) & (uint64_t)(d->slot_room - 1);
  }
  d->slots[s] = i + 1;
}

// At most half of the table is used.
static ncclResult_t grow_table(tt_draft *d)
{
  if (2 * (d->nnodes + 1) <= d->slot_room) {
    return ncclSuccess;
  }
  int room = d->slot_room == 0 ? 256 : d->slot_room * 2;
  int *slots = tt_calloc((size_t)room, sizeof(*slots));
  if (slots == NULL) {
    return tt_fail(ncclSystemError, "no memory for a machine of %d parts", room);
  }
  tt_free(d->slots);
  d->slots = slots;
  d->slot_room = room;
  for (int i = 0; i < d->nnodes; i++) {
    file_node(d, i);
  }
  return ncclSuccess;
}

ncclResult_t tt_draft_add(tt_draft *d, int kind, int host, int64_t id, int *out)
{
  TT_TRY(grow(&d->nodes, d->nnodes, &d->node_room, sizeof(*d->nodes)));
  TT_TRY(grow_table(d));
  int i = d->nnodes++;
  d->nodes[i] = (tt_draft_node){.n = {.kind = kind, .host = host, .id = id}, .links = -1, .up = -1};
  file_node(d, i);
  *out = i;
  return ncclSuccess;
}

int tt_draft_find(const tt_draft *d, int kind, int host, int64_t id)
{
  if (d->slot_room == 0) {
    return -1;
  }
  for (uint64_t s = slot_of(d, kind, host, id); d->slots[s] != 0; s = (s + 1) & (uint64_t)(d->slot_room - 1)) {
    const tt_draft_node *n = &d->nodes[d->slots[s] - 1];
    if (n->n.kind == kind && n->n.host == host && n->n.id == id && !n->gone) {
      return d->slots[s] - 1;
    }
  }
  return -1;
}

// Puts link l, which is in no list, where the wider ones end.
static void insert(tt_draft *d, int node, int l)
{
  int *at = &d->nodes[node].links;
  while (*at >= 0 && d->links[*at].bw >= d->links[l].bw) {
    at = &d->links[*at].next;
  }
  d->links[l].next = *at;
  *at = l;
}

ncclResult_t tt_draft_connect(tt_draft *d, int a, int b, int type, float bw)
{
  for (int *at = &d->nodes[a].links; *at >= 0; at = &d->links[*at].next) {
    tt_draft_link *link = &d->links[*at];
    if (link->to == b && link->type == type) {
      int l = *at;
      link->bw += bw;
      // It moves up past narrower ones only: among equals the older stays in front.
      *at = link->next;
      insert(d, a, l);
      return ncclSuccess;
    }
  }
  TT_TRY(grow(&d->links, d->nlinks, &d->link_room, sizeof(*d->links)));
  int l = d->nlinks++;
  d->links[l] = (tt_draft_link){.to = b, .type = type, .bw = bw, .next = -1};
  insert(d, a, l);
  return ncclSuccess;
}

ncclResult_t tt_draft_join(tt_draft *d, int a, int b, int type, float bw)
{
  TT_TRY(tt_draft_connect(d, a, b, type, bw));
  return tt_draft_connect(d, b, a, type, bw);
}

ncclResult_t tt_draft_host(tt_draft *d, uint64_t hash, int *out)
{
  for (int i = 0; i < d->nhosts; i++) {
    if (d->hosts[i] == hash) {
      *out = i;
      return ncclSuccess;
    }
  }
  TT_TRY(grow(&d->hosts, d->nhosts, &d->host_room, sizeof(*d->hosts)));
  d->hosts[d->nhosts] = hash;
  *out = d->nhosts++;
  return ncclSuccess;
}

// The first link towards the CPU goes to the end of the list: a way through the node tries what is below it first.
static void up_last(tt_draft *d, int node)
{
  int *at = &d->nodes[node].links;
  while (*at >= 0 && d->links[*at].to != d->nodes[node].up) {
    at = &d->links[*at].next;
  }
  int l = *at;
  if (l < 0) {
    return;
  }
  *at = d->links[l].next;
  while (*at >= 0) {
    at = &d->links[*at].next;
  }
  *at = l;
  d->links[l].next = -1;
}

static void write_links(const tt_draft *d, const int *renamed, int node, tt_topo *flat)
{
  tt_topo_node *n = &flat->nodes[renamed[node]];
  n->first_link = flat->nlinks;
  for (int l = d->nodes[node].links; l >= 0; l = d->links[l].next) {
    const tt_draft_link *link = &d->links[l];
    flat->links[flat->nlinks++] =
        (tt_topo_link){.type = (int16_t)link->type, .from = renamed[node], .to = renamed[link->to], .bw = link->bw};
  }
  n->nlinks = flat->nlinks - n->first_link;
}

// `flat` has room for all nodes and links, `renamed` for all nodes.
static void write_flat(tt_draft *d, tt_topo *flat, int *renamed)
{
  for (int i = 0; i < d->nnodes; i++) {
    if (!d->nodes[i].gone) {
      renamed[i] = flat->nnodes;
      flat->nodes[flat->nnodes++] = d->nodes[i].n;
    }
  }
  for (int i = 0; i < d->nnodes; i++) {
    if (d->nodes[i].gone) {
      continue;
    }
    up_last(d, i);
    write_links(d, renamed, i, flat);
    tt_topo_node *n = &flat->nodes[renamed[i]];
    if (n->kind == TT_NODE_GPU) {
      n->gpu.device = renamed[n->gpu.device];
    }
  }
}

ncclResult_t tt_draft_freeze(tt_draft *d, tt_topo **out)
{
  tt_topo flat = {.hosts = d->hosts, .nhosts = d->nhosts};
  int *renamed = tt_calloc((size_t)d->nnodes + 1, sizeof(*renamed));
  ncclResult_t res;
  flat.nodes = tt_calloc((size_t)d->nnodes + 1, sizeof(*flat.nodes));
  flat.links = tt_calloc((size_t)d->nlinks + 1, sizeof(*flat.links));
  if (renamed == NULL || flat.nodes == NULL || flat.links == NULL) {
    res = tt_fail(ncclSystemError, "no memory for a machine of %d nodes", d->nnodes);
    goto fail;
  }
  write_flat(d, &flat, renamed);
  res = tt_topo_arrange(&flat, NULL, out);
fail:
  tt_free(renamed);
  tt_free(flat.nodes);
  tt_free(flat.links);
  return res;
}
