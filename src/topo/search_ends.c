// search_ends.c: which GPUs and network cards are worth trying, in which order. Good orders make the search short, not
// right.
#include <stdlib.h>

#include "base/util.h"
#include "topo/search_priv.h"

typedef struct ends_rated {
  int node, away, hops;
  float bw;
} ends_rated;

static int ends_compare(const void *a, const void *b)
{
  const ends_rated *x = a, *y = b;
  if (x->bw != y->bw) {
    return x->bw > y->bw ? -1 : 1;
  }
  if (x->hops != y->hops) {
    return x->hops < y->hops ? -1 : 1;
  }
  return x->away - y->away;
}

// The other GPUs: wide before narrow, near before far, then round the numbers. Behind an NVSwitch all are as near:
// first the neighbours in number, so that each GPU talks with few others.
static void ends_rate_gpus(tt_ends *e, ends_rated *scratch)
{
  int n = e->ngpus;
  for (int g = 0; g < n; g++) {
    e->plain[g] = g;
    for (int away = 1; away < n; away++) {
      int other = (g + away) % n;
      const tt_path *p = tt_path_get(e->paths, g, other);
      int distance = e->nvs && away == n - 1 ? 1 : away;
      scratch[away - 1] =
          (ends_rated){.node = other, .away = distance * 2 + (distance != away), .hops = p->count, .bw = p->bw};
    }
    qsort(scratch, (size_t)n - 1, sizeof(ends_rated), ends_compare);
    for (int i = 0; i < n - 1; i++) {
      e->next[g * (n - 1) + i] = scratch[i].node;
    }
  }
}

// Adds a number to a list, unless it is there. Returns the new length.
static int ends_add(int *list, int count, int value)
{
  for (int i = 0; i < count; i++) {
    if (list[i] == value) {
      return count;
    }
  }
  list[count] = value;
  return count + 1;
}

// GPUs for a channel that comes by a net: the one that uses it first, then the others that are near, then the rest.
static void ends_rate_starts(tt_ends *e, int *near)
{
  for (int i = 0; i < e->nnets; i++) {
    int *out = &e->starts[i * e->ngpus], count = 0, first = e->paths->net_gpu[i];
    int nnear = tt_topo_near(e->topo, e->paths, e->first_net + i, TT_NODE_GPU, near);
    if (first >= 0 && first < e->ngpus) {
      count = ends_add(out, count, first);
    }
    for (int k = 0; k < nnear; k++) {
      count = ends_add(out, count, near[k]);
    }
    for (int g = 0; g < e->ngpus; g++) {
      count = ends_add(out, count, g);
    }
  }
}

// Adds a net to a list that has its length in front, unless it is there.
static void ends_add_net(int *list, int net)
{
  list[0] = ends_add(list + 1, list[0], net);
}

static void ends_like_nets(tt_ends *e)
{
  for (int g = 0; g < e->ngpus; g++) {
    int nets[TT_PATHS_MAX_NETS], count = tt_topo_gpu_nets(e->topo, e->paths, e->rules, g, nets);
    for (int i = 0; i < count; i++) {
      ends_add_net(tt_ends_nets(e, e->liked, g), nets[i]);
    }
  }
  // Several hosts: one card of every GPU before the second card of any.
  for (int k = 1; e->topo->nhosts > 1 && k <= e->nnets; k++) {
    for (int g = 0; g < e->ngpus; g++) {
      const int *list = tt_ends_nets(e, e->liked, g);
      if (k <= list[0]) {
        ends_add_net(e->all_liked, list[k]);
      }
    }
  }
  for (int g = 0; g < e->ngpus; g++) {
    const int *list = tt_ends_nets(e, e->liked, g);
    for (int k = 1; k <= list[0]; k++) {
      ends_add_net(e->all_liked, list[k]);
    }
  }
}

static void ends_find_types(tt_ends *e)
{
  const tt_topo *topo = e->topo;
  const tt_paths *paths = e->paths;
  int n = e->ngpus;
  for (int a = 0; a < n; a++) {
    for (int b = 0; b < n; b++) {
      e->intra_types |= a != b ? 1u << tt_path_get(paths, a, b)->type : 0;
    }
    for (int net = e->first_net; net < e->first_net + e->nnets; net++) {
      e->inter_types |= 1u << tt_path_get(paths, a, net)->type | 1u << tt_path_get(paths, net, a)->type;
    }
  }
  e->min_intra = n > 1 ? tt_paths_min_type(topo, paths, TT_NODE_GPU) : TT_PATH_LOC;
  e->max_intra = n > 1 ? tt_paths_max_type(topo, paths, TT_NODE_GPU) : TT_PATH_SYS;
  e->min_inter = tt_paths_min_type(topo, paths, TT_NODE_NET);
  e->max_inter = tt_paths_max_type(topo, paths, TT_NODE_NET);
}

ncclResult_t tt_ends_create(tt_arena *arena, tt_ends *e)
{
  const tt_topo *topo = e->topo;
  int n = tt_topo_count(topo, TT_NODE_GPU), nets = tt_topo_count(topo, TT_NODE_NET), *near;
  ends_rated *scratch;
  e->ngpus = n;
  e->nnets = nets;
  e->first_net = topo->first[TT_NODE_NET];
  e->nvs = tt_topo_count(topo, TT_NODE_NVS) > 0;
  TT_ARENA_NEW(arena, e->plain, n);
  TT_ARENA_NEW(arena, e->next, n * n);
  TT_ARENA_NEW(arena, e->starts, n * nets);
  TT_ARENA_NEW(arena, e->liked, n * (nets + 1));
  TT_ARENA_NEW(arena, e->nets, n * (nets + 1));
  TT_ARENA_NEW(arena, e->all, nets + 1);
  TT_ARENA_NEW(arena, e->all_liked, nets + 1);
  TT_ARENA_NEW(arena, scratch, n);
  TT_ARENA_NEW(arena, near, n);
  if (arena->failed) {
    return tt_fail(ncclSystemError, "no memory for the search among %d GPUs and %d network ports", n, nets);
  }
  ends_rate_gpus(e, scratch);
  ends_rate_starts(e, near);
  ends_like_nets(e);
  ends_find_types(e);
  return ncclSuccess;
}

// Adds the nets that a GPU reaches by a path of a type, until `most` are in the list.
static void ends_add_nets_of(const tt_ends *e, int gpu, int type, int most, int *list)
{
  for (int net = e->first_net; net < e->first_net + e->nnets && list[0] < most; net++) {
    if (tt_path_get(e->paths, gpu, net)->type == type) {
      ends_add_net(list, net);
    }
  }
}

void tt_ends_select(tt_ends *e, int type)
{
  int n = e->ngpus, each = e->rules->nets_per_gpu, most = each > 0 ? each : e->nnets,
      most_all = each > 0 ? TT_MIN(most * n, e->nnets) : e->nnets;
  memcpy(e->all, e->all_liked, ((size_t)e->nnets + 1) * sizeof(int));
  memcpy(e->nets, e->liked, (size_t)n * ((size_t)e->nnets + 1) * sizeof(int));
  for (int t = 0; t <= type; t++) {
    for (int g = 0; g < n; g++) {
      ends_add_nets_of(e, g, t, most, tt_ends_nets(e, e->nets, g));
      ends_add_nets_of(e, g, t, most_all, e->all);
    }
  }
}

// The fewest links of paths of up to a type from one end to those of a range; INT32_MAX when there is none.
static int ends_fewest(const tt_ends *e, int from, tt_search_span to, int type)
{
  int least = INT32_MAX;
  for (int i = to.first; i < to.end; i++) {
    const tt_path *p = tt_path_get(e->paths, from, i);
    if (i != from && p->type <= type) {
      least = TT_MIN(least, (int)p->count);
    }
  }
  return least;
}

void tt_ends_count(tt_ends *e, int intra, int inter)
{
  const tt_search_span gpus = {0, e->ngpus}, nets = {e->first_net, e->first_net + e->nnets};
  tt_least *l = &e->least;
  if (l->counted && l->intra == intra && l->inter == inter) {
    return;
  }
  *l =
      (tt_least){.intra = intra, .inter = inter, .edge = INT32_MAX, .in = INT32_MAX, .out = INT32_MAX, .counted = true};
  for (int g = 0; g < e->ngpus; g++) {
    int least = e->ngpus > 1 ? ends_fewest(e, g, gpus, intra) : 0, out = ends_fewest(e, g, nets, inter);
    l->stuck += least == INT32_MAX;
    least = least == INT32_MAX ? 0 : least;
    l->edge = TT_MIN(l->edge, least);
    l->last = TT_MAX(l->last, least);
    l->ring += least;
    l->out = TT_MIN(l->out, out);
  }
  for (int n = nets.first; n < nets.end; n++) {
    int in = ends_fewest(e, n, gpus, inter);
    l->in = TT_MIN(l->in, in);
  }
  l->unreached = l->in == INT32_MAX || l->out == INT32_MAX;
  if (l->unreached) { // they are added up all the same
    l->in = l->out = 0;
  }
}
