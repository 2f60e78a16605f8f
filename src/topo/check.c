// check.c: what must hold in a system. An offence is a fault of this library: documents are judged in build.c.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "topo/system.h"

#define OFFENCE(...) tt_fail(ncclInternalError, "topology: " __VA_ARGS__)

static bool topo_is_gpu(const tt_topo_node *n)
{
  return n->kind == TT_NODE_GPU || n->kind == TT_NODE_DEV;
}

static ncclResult_t topo_check_link(const tt_topo *t, int l)
{
  const tt_topo_link *link = &t->links[l];
  if (link->to < 0 || link->to >= t->nnodes || link->to == link->from) {
    return OFFENCE("link %d leads from node %d to node %d of %d", l, link->from, link->to, t->nnodes);
  }
  if (link->type < 0 || link->type >= TT_PATH_DIS || !(link->bw > 0) || !isfinite(link->bw)) {
    return OFFENCE("link %d has type %d and bandwidth %g", l, link->type, (double)link->bw);
  }
  if (link->back < 0 || link->back >= t->nlinks) {
    return OFFENCE("link %d from node %d to node %d (%s) has no way back", l, link->from, link->to,
                   tt_link_type_name(link->type));
  }
  const tt_topo_link *back = &t->links[link->back];
  if (back->from != link->to || back->to != link->from || back->type != link->type) {
    return OFFENCE("link %d from node %d to node %d: %d is not the way back", l, link->from, link->to, link->back);
  }
  return ncclSuccess;
}

static ncclResult_t topo_check_node(const tt_topo *t, int i, int *next_link)
{
  const tt_topo_node *n = &t->nodes[i];
  if (n->kind < 0 || n->kind >= TT_NODE_KINDS || i < t->first[n->kind] || i >= t->first[n->kind + 1]) {
    return OFFENCE("node %d has kind %d", i, n->kind);
  }
  if (n->nlinks <= 0 || n->first_link != *next_link || n->nlinks > t->nlinks - n->first_link) {
    return OFFENCE("node %d has links %d to %d of %d", i, n->first_link, n->first_link + n->nlinks, t->nlinks);
  }
  if (n->host < 0 || n->host >= t->nhosts) {
    return OFFENCE("node %d is on host %d of %d", i, n->host, t->nhosts);
  }
  if (topo_is_gpu(n) && (n->gpu.device < 0 || n->gpu.device >= t->nnodes || !topo_is_gpu(&t->nodes[n->gpu.device]))) {
    return OFFENCE("node %d is on device %d", i, n->gpu.device);
  }
  for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
    if (t->links[l].from != i) {
      return OFFENCE("link %d of node %d begins at node %d", l, i, t->links[l].from);
    }
  }
  *next_link += n->nlinks;
  return ncclSuccess;
}

// What has to be unique: of a node kind, host and id; of a rank the rank; of a link both ends and the type.
typedef struct key {
  int64_t part[3];
} key;

static int compare_keys(const void *a, const void *b)
{
  const key *x = a, *y = b;
  for (int i = 0; i < 3; i++) {
    if (x->part[i] != y->part[i]) {
      return x->part[i] < y->part[i] ? -1 : 1;
    }
  }
  return 0;
}

static ncclResult_t check_keys(key *keys, int count, const char *what)
{
  qsort(keys, (size_t)count, sizeof(*keys), compare_keys);
  for (int i = 1; i < count; i++) {
    if (compare_keys(&keys[i - 1], &keys[i]) == 0) {
      return OFFENCE("%s %" PRId64 "/%" PRId64 "/%" PRIx64 " is there twice", what, keys[i].part[0], keys[i].part[1],
                     keys[i].part[2]);
    }
  }
  return ncclSuccess;
}

static ncclResult_t check_unique(const tt_topo *t, key *keys)
{
  int count = 0;
  for (int i = 0; i < t->nnodes; i++) {
    const tt_topo_node *n = &t->nodes[i];
    if (n->kind != TT_NODE_PCI && !topo_is_gpu(n)) { // some documents use a switch's bus id twice
      keys[count++] = (key){{n->kind, n->host, n->id}};
    } else if (n->gpu.device == i) {
      keys[count++] = (key){{TT_NODE_GPU, n->host, n->id}};
    }
  }
  TT_TRY(check_keys(keys, count, "node"));
  count = 0;
  for (int i = t->first[TT_NODE_GPU]; i < t->first[TT_NODE_GPU + 1]; i++) {
    keys[count++] = (key){{0, 0, t->nodes[i].gpu.rank}};
  }
  TT_TRY(check_keys(keys, count, "rank"));
  for (int l = 0; l < t->nlinks; l++) {
    keys[l] = (key){{t->links[l].from, t->links[l].to, t->links[l].type}};
  }
  return check_keys(keys, t->nlinks, "link");
}

// Marks what is reached from the CPUs; `list` has room for all nodes.
static int topo_reach(const tt_topo *t, int *list, bool *seen)
{
  int count = 0;
  for (int i = t->first[TT_NODE_CPU]; i < t->first[TT_NODE_CPU + 1]; i++) {
    seen[i] = true;
    list[count++] = i;
  }
  for (int done = 0; done < count; done++) {
    const tt_topo_node *n = &t->nodes[list[done]];
    for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
      int to = t->links[l].to;
      if (!seen[to]) {
        seen[to] = true;
        list[count++] = to;
      }
    }
  }
  return count;
}

static ncclResult_t topo_check_all(const tt_topo *t, void *space)
{
  int next_link = 0;
  for (int i = 0; i < t->nnodes; i++) {
    TT_TRY(topo_check_node(t, i, &next_link));
  }
  if (next_link != t->nlinks || t->first[0] != 0 || t->first[TT_NODE_KINDS] != t->nnodes) {
    return OFFENCE("%d of %d links belong to nodes; %d of %d nodes to kinds", next_link, t->nlinks,
                   t->first[TT_NODE_KINDS], t->nnodes);
  }
  for (int l = 0; l < t->nlinks; l++) {
    TT_TRY(topo_check_link(t, l));
  }
  TT_TRY(check_unique(t, space));
  int *list = space;
  bool *seen = (bool *)(list + t->nnodes);
  memset(seen, 0, (size_t)t->nnodes);
  int count = topo_reach(t, list, seen);
  return count == t->nnodes ? ncclSuccess
                            : OFFENCE("%d of %d nodes are not connected to any CPU", t->nnodes - count, t->nnodes);
}

ncclResult_t tt_topo_check(const tt_topo *topo)
{
  key *space;
  TT_TRY(
      TT_NEW(space, TT_MAX(topo->nnodes, topo->nlinks) + 1, "no memory to check a machine of %d nodes", topo->nnodes));
  ncclResult_t res = topo_check_all(topo, space);
  tt_free(space);
  return res;
}
