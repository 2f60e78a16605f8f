// draft.c: growing arrays of nodes and links.
#include "topo/draft.h"

#include <stdlib.h>

#include "base/util.h"

static ncclResult_t draft_no_memory(int parts)
{
  return tt_fail(ncclSystemError, "no memory for a machine of %d parts", parts);
}

void tt_draft_clear(tt_draft *d)
{
  tt_free(d->nodes);
  tt_free(d->links);
  tt_free(d->hosts);
  tt_free(d->slots);
  *d = (tt_draft){0};
}

// ---- The table ----

// A part of the machine by what finds it: nodes by kind, host and id, links by type and ends, hosts by hash.
typedef struct draft_key {
  int64_t what, a, b;
} draft_key;

enum { DRAFT_NODE, DRAFT_LINK, DRAFT_HOST, DRAFT_TABLES }; // a filed number is index * DRAFT_TABLES + one of these
enum { KEY_LINK = TT_NODE_KINDS, KEY_HOST = KEY_LINK + TT_PATH_TYPES };

static draft_key draft_key_of(const tt_draft *d, int filed)
{
  int i = filed / DRAFT_TABLES;
  switch (filed % DRAFT_TABLES) {
  case DRAFT_NODE: return (draft_key){d->nodes[i].n.kind, d->nodes[i].n.host, d->nodes[i].n.id};
  case DRAFT_LINK: return (draft_key){KEY_LINK + d->links[i].type, d->links[i].from, d->links[i].to};
  default: return (draft_key){.what = KEY_HOST, .a = (int64_t)d->hosts[i]};
  }
}

// The slot of what has that key, or the free one behind all that may have it. There is a free one.
static int *draft_slot(const tt_draft *d, draft_key key)
{
  uint64_t at = tt_hash(&key, sizeof(key), 0);
  for (;; at++) {
    int *slot = &d->slots[at & (uint64_t)(d->slot_room - 1)];
    draft_key have = *slot == 0 ? key : draft_key_of(d, *slot - 1);
    if (have.what == key.what && have.a == key.a && have.b == key.b) {
      return slot;
    }
  }
}

// Index of what was filed with that key first; -1: nothing.
static int draft_find(const tt_draft *d, draft_key key)
{
  int filed = d->slot_room > 0 ? *draft_slot(d, key) - 1 : -1;
  return filed >= 0 ? filed / DRAFT_TABLES : -1;
}

// Files a part under its present key, unless another has it. At most half of the table is used.
static ncclResult_t draft_file(tt_draft *d, int what, int i)
{
  if (2 * (d->slots_used + 1) > d->slot_room) {
    int *old = d->slots, count = d->slot_room;
    int room = count == 0 ? 256 : 2 * count, *bigger = tt_calloc((size_t)room, sizeof(*bigger));
    if (bigger == NULL) {
      return draft_no_memory(room);
    }
    d->slots = bigger;
    d->slot_room = room;
    for (int s = 0; s < count; s++) {
      if (old[s] != 0) {
        *draft_slot(d, draft_key_of(d, old[s] - 1)) = old[s];
      }
    }
    tt_free(old);
  }
  int filed = i * DRAFT_TABLES + what, *slot = draft_slot(d, draft_key_of(d, filed));
  d->slots_used += *slot == 0;
  *slot = *slot == 0 ? filed + 1 : *slot;
  return ncclSuccess;
}

// ---- Nodes and links ----

ncclResult_t tt_draft_add(tt_draft *d, int kind, int host, int64_t id, int *out)
{
  if (!tt_grow(&d->nodes, d->nnodes, 1, &d->node_room, sizeof(*d->nodes))) {
    return draft_no_memory(d->nnodes);
  }
  d->nodes[d->nnodes] = (tt_draft_node){.n = {.kind = kind, .host = host, .id = id}, .links = -1, .up = -1};
  TT_TRY(draft_file(d, DRAFT_NODE, d->nnodes));
  *out = d->nnodes++;
  return ncclSuccess;
}

int tt_draft_find(const tt_draft *d, int kind, int host, int64_t id)
{
  return draft_find(d, (draft_key){kind, host, id});
}

int tt_draft_link_find(const tt_draft *d, int a, int b, int type)
{
  return draft_find(d, (draft_key){KEY_LINK + type, a, b});
}

ncclResult_t tt_draft_link_move(tt_draft *d, int l, int from, int to)
{
  d->links[l].from = from;
  d->links[l].to = to;
  return draft_file(d, DRAFT_LINK, l);
}

ncclResult_t tt_draft_host(tt_draft *d, uint64_t hash, int *out)
{
  *out = draft_find(d, (draft_key){.what = KEY_HOST, .a = (int64_t)hash});
  if (*out >= 0) {
    return ncclSuccess;
  }
  if (!tt_grow(&d->hosts, d->nhosts, 1, &d->host_room, sizeof(*d->hosts))) {
    return draft_no_memory(d->nhosts);
  }
  d->hosts[d->nhosts] = hash;
  TT_TRY(draft_file(d, DRAFT_HOST, d->nhosts));
  *out = d->nhosts++;
  return ncclSuccess;
}

ncclResult_t tt_draft_connect(tt_draft *d, int a, int b, int type, float bw)
{
  int l = tt_draft_link_find(d, a, b, type);
  if (l < 0) {
    if (!tt_grow(&d->links, d->nlinks, 1, &d->link_room, sizeof(*d->links))) {
      return draft_no_memory(d->nlinks);
    }
    l = d->nlinks;
    d->links[l] = (tt_draft_link){.from = a, .to = b, .type = type, .next = d->nodes[a].links};
    TT_TRY(draft_file(d, DRAFT_LINK, l));
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

static int draft_compare_links(const void *a, const void *b)
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
  tt_draft_link **list;
  TT_TRY(TT_NEW(list, count + 1, "no memory for %d links", count));
  count = 0;
  for (int l = *at; l >= 0; l = d->links[l].next) {
    list[count] = &d->links[l];
    count += d->links[l].to != TT_DRAFT_NOWHERE;
  }
  qsort(list, (size_t)count, sizeof(*list), draft_compare_links);
  for (int i = 0; i < count; i++) {
    *at = (int)(list[i] - d->links);
    at = &list[i]->next;
  }
  *at = -1;
  tt_free(list);
  return ncclSuccess;
}

// ---- The system ----

// The first link towards the CPU goes to the end of the list: a way through the node tries what is below it first.
static void draft_up_last(tt_draft *d, int node)
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

// `flat` has room for all nodes and links, which keep their numbers; `kinds` gets those of the nodes, -1 for one that
// is gone.
static void draft_write(tt_draft *d, tt_topo *flat, int *kinds)
{
  for (int i = 0; i < d->nnodes; i++) {
    tt_topo_node *n = &flat->nodes[i];
    draft_up_last(d, i);
    *n = d->nodes[i].n;
    n->first_link = flat->nlinks;
    kinds[i] = d->nodes[i].gone ? -1 : n->kind;
    for (int l = d->nodes[i].links; l >= 0; l = d->links[l].next) {
      const tt_draft_link *link = &d->links[l];
      if (link->to != TT_DRAFT_NOWHERE) {
        flat->links[flat->nlinks++] =
            (tt_topo_link){.type = (int16_t)link->type, .from = i, .to = link->to, .bw = link->bw};
      }
    }
    n->nlinks = flat->nlinks - n->first_link;
  }
}

ncclResult_t tt_draft_freeze(tt_draft *d, tt_topo **out)
{
  tt_topo flat = {.nnodes = d->nnodes, .hosts = d->hosts, .nhosts = d->nhosts};
  tt_arena arena = {0};
  int *kinds;
  TT_ARENA_NEW(&arena, kinds, d->nnodes);
  TT_ARENA_NEW(&arena, flat.nodes, d->nnodes);
  TT_ARENA_NEW(&arena, flat.links, d->nlinks);
  ncclResult_t res = arena.failed ? draft_no_memory(d->nnodes) : ncclSuccess;
  if (res == ncclSuccess) {
    draft_write(d, &flat, kinds);
    res = tt_topo_arrange(&flat, kinds, out);
  }
  tt_arena_clear(&arena);
  return res;
}
