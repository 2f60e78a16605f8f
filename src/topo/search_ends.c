// search_ends.c: which GPUs and network cards are worth trying, in which order. Good orders make the search short, not right.
#include <stdlib.h>

#include "base/util.h"
#include "topo/search_priv.h"

typedef struct rated {
  int node, away, hops;
  float bw;
} rated;

static int by_rating(const void *a, const void *b)
{
  const rated *x = a, *y = b;
  if (x->bw != y->bw) {
    return x->bw > y->bw ? -1 : 1;
  }
  if (x->hops != y->hops) {
    return x->hops < y->hops ? -1 : 1;
  }
  return x->away - y->away;
}

// The other GPUs: wide before narrow, near before far, then round the numbers. Behind an NVSwitch all are as near: first the neighbours
// in number, so that each GPU talks with few others.
static void rate_gpus(const tt_topo *topo, const tt_paths *paths, tt_ends *e, rated *scratch)
{
  int n = e->ngpus;
  for (int g = 0; g < n; g++) {
    e->plain[g] = g;
    for (int away = 1; away < n; away++) {
      int other = (g + away) % n;
      const tt_path *p = tt_path_get(paths, g, other);
      int distance = e->nvs && away == n - 1 ? 1 : away;
      scratch[away - 1] = (rated){.node = other, .away = distance * 2 + (distance != away), .hops = p->count, .bw = p->bw};
    }
    qsort(scratch, (size_t)n - 1, sizeof(rated), by_rating);
    for (int i = 0; i < n - 1; i++) {
      e->next[g * (n - 1) + i] = scratch[i].node;
    }
  }
  (void)topo;
}

// GPUs for a channel that comes by a net: the one that uses it first, then the others that are near, then the rest.
static void rate_starts(const tt_topo *topo, const tt_paths *paths, tt_ends *e, int *near)
{
  for (int i = 0; i < e->nnets; i++) {
    int *out = &e->starts[i * e->ngpus], count = 0, first = paths->net_gpu[i];
    int nnear = tt_topo_near(topo, paths, e->first_net + i, TT_NODE_GPU, near);
    if (first >= 0 && first < e->ngpus) {
      out[count++] = first;
    }
    for (int k = 0; k < nnear; k++) {
      if (near[k] != first) {
        out[count++] = near[k];
      }
    }
    for (int g = 0; g < e->ngpus; g++) {
      bool there = g == first;
      for (int k = 0; k < nnear && !there; k++) {
        there = near[k] == g;
      }
      if (!there) {
        out[count++] = g;
      }
    }
  }
}

// Adds a net to a list that has its length in front, unless it is there.
static void add_net(int *list, int net)
{
  for (int i = 1; i <= list[0]; i++) {
    if (list[i] == net) {
      return;
    }
  }
  list[++list[0]] = net;
}

static void like_nets(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, tt_ends *e)
{
  for (int g = 0; g < e->ngpus; g++) {
    int *list = &e->liked[g * (e->nnets + 1)], first = tt_topo_gpu_net(topo, paths, rules, g, 0);
    for (int c = 0, net = first; net >= 0 && c < TT_GRAPH_MAX_CHANNELS && (c == 0 || net != first);) {
      add_net(list, net);
      net = tt_topo_gpu_net(topo, paths, rules, g, ++c);
    }
  }
  // Several hosts: one card of every GPU before the second card of any.
  for (int k = 1; topo->nhosts > 1 && k <= e->nnets; k++) {
    for (int g = 0; g < e->ngpus; g++) {
      if (k <= e->liked[g * (e->nnets + 1)]) {
        add_net(e->all_liked, e->liked[g * (e->nnets + 1) + k]);
      }
    }
  }
  for (int g = 0; g < e->ngpus; g++) {
    for (int k = 1; k <= e->liked[g * (e->nnets + 1)]; k++) {
      add_net(e->all_liked, e->liked[g * (e->nnets + 1) + k]);
    }
  }
}

static void find_types(const tt_topo *topo, const tt_paths *paths, tt_ends *e)
{
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

ncclResult_t tt_ends_create(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, tt_ends *e)
{
  int n = tt_topo_count(topo, TT_NODE_GPU), nets = tt_topo_count(topo, TT_NODE_NET);
  *e = (tt_ends){.ngpus = n, .nnets = nets, .first_net = topo->first[TT_NODE_NET], .nvs = tt_topo_count(topo, TT_NODE_NVS) > 0};
  size_t lists = (size_t)n * ((size_t)nets + 1);
  e->plain = tt_calloc((size_t)n + 1, sizeof(int));
  e->next = tt_calloc((size_t)n * (size_t)n + 1, sizeof(int));
  e->starts = tt_calloc((size_t)n * (size_t)nets + 1, sizeof(int));
  e->liked = tt_calloc(lists, sizeof(int));
  e->nets = tt_calloc(lists, sizeof(int));
  e->all = tt_calloc((size_t)nets + 1, sizeof(int));
  e->all_liked = tt_calloc((size_t)nets + 1, sizeof(int));
  rated *scratch = tt_calloc((size_t)n + 1, sizeof(rated));
  int *near = tt_calloc((size_t)n + 1, sizeof(int));
  bool ok = e->plain && e->next && e->starts && e->liked && e->nets && e->all && e->all_liked && scratch && near;
  if (ok) {
    rate_gpus(topo, paths, e, scratch);
    rate_starts(topo, paths, e, near);
    like_nets(topo, paths, rules, e);
    find_types(topo, paths, e);
  } else {
    tt_ends_destroy(e);
  }
  tt_free(scratch);
  tt_free(near);
  return ok ? ncclSuccess : tt_fail(ncclSystemError, "no memory for the search among %d GPUs and %d network ports", n, nets);
}

void tt_ends_destroy(tt_ends *e)
{
  tt_free(e->plain);
  tt_free(e->next);
  tt_free(e->starts);
  tt_free(e->liked);
  tt_free(e->nets);
  tt_free(e->all);
  tt_free(e->all_liked);
  *e = (tt_ends){0};
}

// Adds the nets that a GPU reaches by a type, up to `most` in the list.
static void add_nets_of(const tt_paths *paths, const tt_ends *e, int gpu_type[2], int most, int *list)
{
  for (int net = e->first_net; net < e->first_net + e->nnets && list[0] < most; net++) {
    if (tt_path_get(paths, gpu_type[0], net)->type == gpu_type[1]) {
      add_net(list, net);
    }
  }
}

void tt_ends_select(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int type, tt_ends *e)
{
  int n = e->ngpus, most = rules->nets_per_gpu > 0 ? rules->nets_per_gpu : e->nnets;
  int most_all = rules->nets_per_gpu > 0 ? TT_MIN(most * n, e->nnets) : e->nnets;
  (void)topo;
  memcpy(e->all, e->all_liked, ((size_t)e->nnets + 1) * sizeof(int));
  memcpy(e->nets, e->liked, (size_t)n * ((size_t)e->nnets + 1) * sizeof(int));
  for (int t = 0; t <= type; t++) {
    for (int g = 0; g < n; g++) {
      add_nets_of(paths, e, (int[]){g, t}, most, &e->nets[g * (e->nnets + 1)]);
      add_nets_of(paths, e, (int[]){g, t}, most_all, e->all);
    }
  }
}

// The fewest links of paths of up to a type from one end to others; INT32_MAX when there is none.
static int fewest(const tt_paths *paths, int from, const int to[2], int type)
{
  int least = INT32_MAX;
  for (int i = to[0]; i < to[1]; i++) {
    const tt_path *p = tt_path_get(paths, from, i);
    if (i != from && p->type <= type) {
      least = TT_MIN(least, (int)p->count);
    }
  }
  return least;
}

void tt_ends_count(const tt_paths *paths, const int types[2], tt_ends *e)
{
  const int gpus[2] = {0, e->ngpus}, nets[2] = {e->first_net, e->first_net + e->nnets};
  tt_least *l = &e->least;
  if (l->counted && l->types[0] == types[0] && l->types[1] == types[1]) {
    return;
  }
  *l = (tt_least){.types = {types[0], types[1]}, .edge = INT32_MAX, .in = INT32_MAX, .out = INT32_MAX, .counted = true};
  for (int g = 0; g < e->ngpus; g++) {
    int least = e->ngpus > 1 ? fewest(paths, g, gpus, types[0]) : 0, out = fewest(paths, g, nets, types[1]);
    l->stuck += least == INT32_MAX;
    least = least == INT32_MAX ? 0 : least;
    l->edge = TT_MIN(l->edge, least);
    l->last = TT_MAX(l->last, least);
    l->ring += least;
    l->out = TT_MIN(l->out, out);
  }
  for (int n = nets[0]; n < nets[1]; n++) {
    int in = fewest(paths, n, gpus, types[1]);
    l->in = TT_MIN(l->in, in);
  }
  l->unreached = l->in == INT32_MAX || l->out == INT32_MAX;
  if (l->unreached) { // they are added up all the same
    l->in = l->out = 0;
  }
}
