// system.c: the finished model: its one allocation, names, look-ups, groups.
#include "topo/system.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "topo/draft.h"

static const char *kind_names[] = {"GPU", "NET", "CPU", "NVS", "PCI", "NIC", "DEV"};
static const char *type_names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};

_Static_assert(TT_COUNT(kind_names) == TT_NODE_KINDS, "a name for each kind");
_Static_assert(TT_COUNT(type_names) == TT_PATH_TYPES, "a name for each type");

const char *tt_node_kind_name(int kind)
{
  return kind >= 0 && kind < TT_NODE_KINDS ? kind_names[kind] : "?";
}

const char *tt_path_type_name(int type)
{
  return type >= 0 && type < TT_PATH_TYPES ? type_names[type] : "?";
}

const char *tt_link_type_name(int type)
{
  return type == TT_LINK_PCI ? "PCI" : tt_path_type_name(type);
}

int tt_path_type_of(const char *name)
{
  for (int t = 0; t < TT_PATH_TYPES; t++) {
    if (strcmp(name, type_names[t]) == 0) {
      return t;
    }
  }
  return -1;
}

bool tt_topo_host_rank(const tt_topo_node *node)
{
  return (node->kind == TT_NODE_GPU || node->kind == TT_NODE_DEV) && node->id >> 20 == TT_TOPO_HOST_DOMAIN;
}

const char *tt_node_name(const tt_topo *topo, int node, char *buf, size_t size)
{
  const tt_topo_node *n = &topo->nodes[node];
  char host[16] = "", number[24] = "";
  if (topo->nhosts > 1 && n->kind != TT_NODE_GPU && n->kind != TT_NODE_NVS) {
    snprintf(host, sizeof(host), ".h%d", n->host);
  }
  switch (n->kind) {
  case TT_NODE_GPU: snprintf(buf, size, tt_topo_host_rank(n) ? "RANK%d" : "GPU%d", n->gpu.rank); break;
  case TT_NODE_NET: snprintf(buf, size, "NET%d%s", n->net.dev, host); break;
  case TT_NODE_NVS: snprintf(buf, size, "NVS"); break;
  case TT_NODE_CPU:
    if (n->id >= 0) {
      snprintf(number, sizeof(number), "/%" PRId64, n->id);
    }
    snprintf(buf, size, "CPU%s%s", number, host);
    break;
  default: snprintf(buf, size, "%s/%" PRIx64 "%s", tt_node_kind_name(n->kind), n->id, host); break;
  }
  return buf;
}

bool tt_bus_id(const char *text, int64_t *out)
{
  // Domain, bus, device, function: the last three have fixed widths. NVML's "fffffff:ffff:ff" for what it does not know
  // fits too.
  static const int shifts[] = {20, 12, 4, 0};
  int64_t value = 0;
  for (int part = 0; part < (int)TT_COUNT(shifts); part++) {
    size_t digits = strspn(text, "0123456789abcdefABCDEF");
    if (digits == 0 || digits > 8) {
      return false;
    }
    value += (int64_t)strtoul(text, NULL, 16) << shifts[part];
    text += digits;
    if (*text == 0 && part >= 2) {
      *out = value;
      return true;
    }
    if (*text++ != (part == 2 ? '.' : ':')) {
      return false;
    }
  }
  return false;
}

void tt_topo_destroy(tt_topo *topo)
{
  tt_free(topo);
}

int tt_topo_rank_node(const tt_topo *topo, int rank)
{
  for (int i = topo->first[TT_NODE_GPU]; i < topo->first[TT_NODE_GPU + 1]; i++) {
    if (topo->nodes[i].gpu.rank == rank) {
      return i;
    }
  }
  return -1;
}

int tt_topo_devices(const tt_topo *topo)
{
  int count = 0;
  for (int i = 0; i < topo->nnodes; i++) {
    const tt_topo_node *n = &topo->nodes[i];
    count += (n->kind == TT_NODE_GPU || n->kind == TT_NODE_DEV) && n->gpu.device == i;
  }
  return count;
}

// ---- One allocation ----

static tt_topo *topo_allocate(const tt_topo *from, const int *kinds)
{
  size_t count = 0;
  for (int i = 0; i < from->nnodes; i++) {
    count += kinds[i] >= 0;
  }
  size_t nodes = TT_ROUND_UP(sizeof(tt_topo), 16);
  size_t links = nodes + TT_ROUND_UP(count * sizeof(tt_topo_node), 16);
  size_t hosts = links + TT_ROUND_UP((size_t)from->nlinks * sizeof(tt_topo_link), 16);
  size_t bytes = hosts + (size_t)from->nhosts * sizeof(uint64_t);
  char *base = tt_calloc(1, bytes);
  tt_topo *t = (tt_topo *)base;
  if (t != NULL) {
    *t = (tt_topo){.nnodes = (int)count, .nlinks = from->nlinks, .nhosts = from->nhosts, .bytes = bytes};
    t->nodes = (tt_topo_node *)(base + nodes);
    t->links = (tt_topo_link *)(base + links);
    t->hosts = (uint64_t *)(base + hosts);
  }
  return t;
}

// New places of the nodes: by kind, and as before within a kind.
static void topo_sort_nodes(const tt_topo *from, const int *kinds, tt_topo *to, int *place, int *old)
{
  int next = 0;
  for (int kind = 0; kind < TT_NODE_KINDS; kind++) {
    to->first[kind] = next;
    for (int i = 0; i < from->nnodes; i++) {
      if (kinds[i] == kind) {
        place[i] = next;
        old[next] = i;
        to->nodes[next] = from->nodes[i];
        to->nodes[next++].kind = kind;
      }
    }
  }
  to->first[TT_NODE_KINDS] = next;
}

static void topo_copy_links(const tt_topo *from, tt_topo *to, const int *place, const int *old)
{
  int next = 0;
  for (int i = 0; i < to->nnodes; i++) {
    tt_topo_node *n = &to->nodes[i];
    const tt_topo_link *links = &from->links[from->nodes[old[i]].first_link];
    n->first_link = next;
    for (int l = 0; l < n->nlinks; l++, next++) {
      to->links[next] = links[l];
      to->links[next].from = i;
      to->links[next].to = place[links[l].to];
    }
    if (n->kind == TT_NODE_GPU || n->kind == TT_NODE_DEV) {
      n->gpu.device = place[n->gpu.device];
    }
  }
}

// Finds for each link the way back: both have the same two ends and type.
static ncclResult_t topo_find_backs(tt_topo *t)
{
  tt_order *list;
  TT_TRY(TT_NEW(list, t->nlinks + 1, "no memory for a machine of %d links", t->nlinks));
  for (int l = 0; l < t->nlinks; l++) {
    const tt_topo_link *link = &t->links[l];
    int64_t low = TT_MIN(link->from, link->to), high = TT_MAX(link->from, link->to);
    t->links[l].back = -1;
    list[l] = (tt_order){(low * t->nnodes + high) * TT_PATH_TYPES + link->type, l};
  }
  qsort(list, (size_t)t->nlinks, sizeof(*list), tt_order_compare);
  for (int i = 1; i < t->nlinks; i++) {
    if (list[i - 1].key == list[i].key) {
      t->links[list[i - 1].place].back = list[i].place;
      t->links[list[i].place].back = list[i - 1].place;
    }
  }
  tt_free(list);
  return ncclSuccess;
}

ncclResult_t tt_topo_arrange(const tt_topo *from, const int *kinds, tt_topo **out)
{
  ncclResult_t res;
  int *place = tt_calloc(2 * (size_t)from->nnodes + 1, sizeof(*place)), *old = NULL;
  tt_topo *t = topo_allocate(from, kinds);
  if (place == NULL || t == NULL) {
    res = tt_fail(ncclSystemError, "no memory for a machine of %d nodes", from->nnodes);
    goto fail;
  }
  old = place + from->nnodes;
  topo_sort_nodes(from, kinds, t, place, old);
  topo_copy_links(from, t, place, old);
  if (from->nhosts > 0) {
    memcpy(t->hosts, from->hosts, (size_t)from->nhosts * sizeof(uint64_t));
  }
  TT_TRY_GOTO(topo_find_backs(t), res);
  TT_TRY_GOTO(tt_topo_check(t), res);
  tt_free(place);
  *out = t;
  return ncclSuccess;
fail:
  tt_free(place);
  tt_topo_destroy(t);
  return res;
}

ncclResult_t tt_topo_group(const tt_topo *topo, const bool *in_group, int nranks, tt_topo **out)
{
  int *kinds;
  TT_TRY(TT_NEW(kinds, topo->nnodes + 1, "no memory for a machine of %d nodes", topo->nnodes));
  for (int i = 0; i < topo->nnodes; i++) {
    const tt_topo_node *n = &topo->nodes[i];
    bool out_of_it = n->kind == TT_NODE_GPU && !(n->gpu.rank >= 0 && n->gpu.rank < nranks && in_group[n->gpu.rank]);
    kinds[i] = out_of_it ? TT_NODE_DEV : n->kind;
  }
  ncclResult_t res = tt_topo_arrange(topo, kinds, out);
  tt_free(kinds);
  return res;
}
