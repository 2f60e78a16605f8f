// draft.c: growing arrays of nodes and links.
#include "topo/draft.h"

#include <stdlib.h>

#include "base/util.h"

void tt_draft_clear(tt_draft *d)
{
  tt_free(d->nodes);
  tt_free(d->links);
  tt_free(d->hosts);
  tt_free(d->node_table.slots);
  tt_free(d->link_table.slots);
  tt_free(d->host_table.slots);
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

// ---- Tables ----

typedef uint64_t hash_fn(const tt_draft *d, int i);

static uint64_t node_key(int kind, int host, int64_t id)
{
  int64_t key[3] = {kind, host, id};
  return tt_hash(key, sizeof(key), 0);
}

static uint64_t link_key(int from, int to, int type)
{
  int key[3] = {from, to, type};
  return tt_hash(key, sizeof(key), 0);
}

static uint64_t host_key(uint64_t hash)
{
  return tt_hash(&hash, sizeof(hash), 0);
}

static uint64_t hash_of_node(const tt_draft *d, int i)
{
  const tt_topo_node *n = &d->nodes[i].n;
  return node_key(n->kind, n->host, n->id);
}

static uint64_t hash_of_link(const tt_draft *d, int i)
{
  return link_key(d->links[i].from, d->links[i].to, d->links[i].type);
}

static uint64_t hash_of_host(const tt_draft *d, int i)
{
  return host_key(d->hosts[i]);
}

static void put(tt_draft_table *t, uint64_t hash, int i)
{
  uint64_t s = hash & (uint64_t)(t->room - 1);
  while (t->slots[s] != 0) {
    s = (s + 1) & (uint64_t)(t->room - 1);
  }
  t->slots[s] = i + 1;
  t->used++;
}

// Files i under its key. At most half of a table is used.
static ncclResult_t file(const tt_draft *d, tt_draft_table *t, hash_fn *hash, int i)
{
  if (2 * (t->used + 1) > t->room) {
    tt_draft_table bigger = {.room = t->room == 0 ? 256 : t->room * 2};
    bigger.slots = tt_calloc((size_t)bigger.room, sizeof(*bigger.slots));
    if (bigger.slots == NULL) {
      return tt_fail(ncclSystemError, "no memory for a machine of %d parts", bigger.room);
    }
    for (int s = 0; s < t->room; s++) {
      if (t->slots[s] != 0) {
        put(&bigger, hash(d, t->slots[s] - 1), t->slots[s] - 1);
      }
    }
    tt_free(t->slots);
    *t = bigger;
  }
  put(t, hash(d, i), i);
  return ncclSuccess;
}

// What is filed in the slots from that of `hash` on, one after the other: -1 behind the last. *slot is the caller's, 0 at first.
static int next_filed(const tt_draft_table *t, uint64_t hash, uint64_t *slot)
{
  return t->room == 0 ? -1 : t->slots[(hash + (*slot)++) & (uint64_t)(t->room - 1)] - 1;
}

// ---- Nodes and links ----

ncclResult_t tt_draft_add(tt_draft *d, int kind, int host, int64_t id, int *out)
{
  bool known = tt_draft_find(d, kind, host, id) >= 0;
  TT_TRY(grow(&d->nodes, d->nnodes, &d->node_room, sizeof(*d->nodes)));
  int i = d->nnodes;
  d->nodes[i] = (tt_draft_node){.n = {.kind = kind, .host = host, .id = id}, .links = -1, .up = -1};
  TT_TRY(known ? ncclSuccess : file(d, &d->node_table, hash_of_node, i));
  d->nnodes++;
  *out = i;
  return ncclSuccess;
}

int tt_draft_find(const tt_draft *d, int kind, int host, int64_t id)
{
  uint64_t hash = node_key(kind, host, id), slot = 0;
  int i = next_filed(&d->node_table, hash, &slot);
  while (i >= 0 && (d->nodes[i].n.kind != kind || d->nodes[i].n.host != host || d->nodes[i].n.id != id)) {
    i = next_filed(&d->node_table, hash, &slot);
  }
  return i;
}

int tt_draft_link_find(const tt_draft *d, int a, int b, int type)
{
  uint64_t hash = link_key(a, b, type), slot = 0;
  int l = next_filed(&d->link_table, hash, &slot);
  while (l >= 0 && (d->links[l].from != a || d->links[l].to != b || d->links[l].type != type)) {
    l = next_filed(&d->link_table, hash, &slot);
  }
  return l;
}

ncclResult_t tt_draft_link_move(tt_draft *d, int l, int from, int to)
{
  d->links[l].from = from;
  d->links[l].to = to;
  return file(d, &d->link_table, hash_of_link, l);
}

ncclResult_t tt_draft_connect(tt_draft *d, int a, int b, int type, float bw)
{
  int l = tt_draft_link_find(d, a, b, type);
  if (l < 0) {
    TT_TRY(grow(&d->links, d->nlinks, &d->link_room, sizeof(*d->links)));
    l = d->nlinks;
    d->links[l] = (tt_draft_link){.from = a, .to = b, .type = type, .next = d->nodes[a].links};
    TT_TRY(file(d, &d->link_table, hash_of_link, l));
    d->nlinks++;
    d->nodes[a].links = l;
  }
  d->links[l].bw += bw;
  d->links[l].changed = d->changes++;
  return ncclSuccess;
}

ncclResult_t tt_draft_join(tt_draft *d, int a, int b, int type, float bw)
{
  TT_TRY(tt_draft_connect(d, a, b, type, bw));
  return tt_draft_connect(d, b, a, type, bw);
}

static int compare_links(const void *a, const void *b)
{
  const tt_draft_link *x = *(tt_draft_link *const *)a, *y = *(tt_draft_link *const *)b;
  return x->bw != y->bw ? (x->bw > y->bw ? -1 : 1) : (x->changed > y->changed) - (x->changed < y->changed);
}

ncclResult_t tt_draft_sort(tt_draft *d, int node)
{
  int count = 0, *at = &d->nodes[node].links;
  for (int l = *at; l >= 0; l = d->links[l].next) {
    count++;
  }
  tt_draft_link **list = tt_calloc((size_t)count + 1, sizeof(*list));
  if (list == NULL) {
    return tt_fail(ncclSystemError, "no memory for %d links", count);
  }
  count = 0;
  for (int l = *at; l >= 0; l = d->links[l].next) {
    list[count] = &d->links[l];
    count += d->links[l].to != TT_DRAFT_NOWHERE;
  }
  qsort(list, (size_t)count, sizeof(*list), compare_links);
  for (int i = 0; i < count; i++) {
    *at = (int)(list[i] - d->links);
    at = &list[i]->next;
  }
  *at = -1;
  tt_free(list);
  return ncclSuccess;
}

ncclResult_t tt_draft_host(tt_draft *d, uint64_t hash, int *out)
{
  uint64_t key = host_key(hash), slot = 0;
  int i = next_filed(&d->host_table, key, &slot);
  while (i >= 0 && d->hosts[i] != hash) {
    i = next_filed(&d->host_table, key, &slot);
  }
  if (i < 0) {
    TT_TRY(grow(&d->hosts, d->nhosts, &d->host_room, sizeof(*d->hosts)));
    i = d->nhosts;
    d->hosts[i] = hash;
    TT_TRY(file(d, &d->host_table, hash_of_host, i));
    d->nhosts++;
  }
  *out = i;
  return ncclSuccess;
}

// ---- The system ----

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
    if (link->to != TT_DRAFT_NOWHERE) {
      flat->links[flat->nlinks++] =
          (tt_topo_link){.type = (int16_t)link->type, .from = renamed[node], .to = renamed[link->to], .bw = link->bw};
    }
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
