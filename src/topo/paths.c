// paths.c: the table of paths: found by walk.c, then bent by rules.c.
#include "topo/paths.h"

#include "base/util.h"
#include "topo/paths_priv.h"

void tt_paths_destroy(tt_paths *paths)
{
  if (paths == NULL) {
    return;
  }
  tt_free(paths->table);
  tt_free(paths->hops);
  tt_free(paths->net_gpu);
  tt_free(paths);
}

ncclResult_t tt_paths_room(tt_paths *p, int more)
{
  bool ok = tt_grow(&p->hops, p->nhops, more, &p->hop_room, sizeof(*p->hops));
  return ok ? ncclSuccess : tt_fail(ncclSystemError, "no memory for paths of %d links together", p->nhops + more);
}

// C2C to the CPU and the CPU's own PCI to the card have a name together; else the worse of both.
static int joined_type(int a, int b)
{
  int worse = TT_MAX(a, b), other = TT_MIN(a, b);
  return worse == TT_PATH_PHB && other == TT_PATH_C2C ? TT_PATH_P2C : worse;
}

// The path from -> to becomes the one from -> over -> to.
static ncclResult_t go_over(const tt_topo *t, tt_paths *p, int from, int over, int to)
{
  tt_path a = *tt_path_at(p, from, over), b = *tt_path_at(p, over, to);
  int count = a.count + b.count;
  TT_TRY(tt_paths_room(p, count));
  memcpy(p->hops + p->nhops, p->hops + a.first, a.count * sizeof(*p->hops));
  memcpy(p->hops + p->nhops + a.count, p->hops + b.first, b.count * sizeof(*p->hops));
  int type = t->nodes[over].kind == TT_NODE_GPU ? TT_PATH_PXN : joined_type(a.type, b.type);
  *tt_path_at(p, from, to) =
      (tt_path){.type = (uint8_t)type, .count = (uint16_t)count, .first = p->nhops, .bw = TT_MIN(a.bw, b.bw)};
  p->nhops += count;
  return ncclSuccess;
}

// GPUs without peer-to-peer access meet at the CPU of the GPU that is reached. Two GPUs for which the network is faster
// are far.
static ncclResult_t route_gpus(const tt_topo *t, const tt_topo_rules *rules, tt_paths *p, int to)
{
  int cpu = tt_topo_gpu_cpu(t, p, to);
  for (int from = 0; from < tt_topo_count(t, TT_NODE_GPU); from++) {
    if (from == to) {
      continue;
    }
    if (!tt_topo_p2p_ok(t, p, rules, from, to) && cpu >= 0 && tt_path_at(p, from, cpu)->type != TT_PATH_DIS) {
      TT_TRY(go_over(t, p, from, cpu, to));
    }
    bool near = tt_topo_p2p_ok(t, p, rules, from, to)
                    ? tt_path_relay(t, p, from, to) >= 0 || !tt_topo_net_wins(t, p, rules, from, to)
                    : tt_topo_shm_ok(t, p, rules, from, to);
    if (!near) {
      tt_path_at(p, from, to)->type = TT_PATH_NET;
    }
  }
  return ncclSuccess;
}

// A GPU with C2C reaches the cards nearest to it that way.
static void name_c2c(const tt_topo *t, tt_paths *p, int gpu)
{
  int nets[TT_PATHS_MAX_ENDS], cpu = tt_topo_gpu_cpu(t, p, gpu);
  int count = cpu >= 0 ? tt_topo_near(t, p, gpu, TT_NODE_NET, nets) : 0;
  for (int i = 0; i < count; i++) {
    if (joined_type(tt_path_at(p, gpu, cpu)->type, tt_path_at(p, nets[i], cpu)->type) == TT_PATH_P2C) {
      tt_path *there = tt_path_at(p, gpu, nets[i]), *back = tt_path_at(p, nets[i], gpu);
      there->type = TT_MIN(there->type, TT_PATH_P2C);
      back->type = TT_MIN(back->type, TT_PATH_P2C);
    }
  }
}

// The first GPU whose channels come to this card; -1: none.
static int gpu_of_net(const tt_topo *t, const tt_paths *p, const tt_topo_rules *rules, int net)
{
  int gpus[TT_PATHS_MAX_ENDS], nets[TT_PATHS_MAX_ENDS];
  int count = tt_topo_near(t, p, net, TT_NODE_GPU, gpus);
  // Further channels of a GPU go around among as many cards as are near.
  int most = 0;
  for (int i = 0; i < count; i++) {
    most = TT_MAX(most, tt_topo_near(t, p, gpus[i], TT_NODE_NET, nets));
  }
  for (int c = 0; c < TT_MIN(most, 64); c++) {
    for (int i = 0; i < count; i++) {
      if (tt_topo_gpu_net(t, p, rules, gpus[i], c) == net) {
        return gpus[i];
      }
    }
  }
  return -1;
}

// Does it pay to send over `peer`, which is nearer to the card?
static bool pxn_pays(const tt_topo *t, const tt_topo_rules *rules, const tt_paths *p, int gpu, int net, int peer)
{
  const tt_path *own = tt_path_get(p, gpu, net), *other = tt_path_get(p, peer, net);
  return other->type <= (rules->pxn_c2c ? TT_PATH_P2C : TT_PATH_PXB) &&
         tt_path_get(p, peer, gpu)->type <= TT_PATH_NVL && t->nodes[peer].host == t->nodes[gpu].host &&
         (other->bw > own->bw || own->type > TT_PATH_PXN) && tt_topo_gdr(t, p, rules, peer, net, true) != TT_GDR_OFF;
}

static ncclResult_t route_net(const tt_topo *t, const tt_topo_rules *rules, tt_paths *p, int net)
{
  int peer = -1;
  bool known = false; // paths to this card changed since `peer` was found?
  for (int gpu = 0; gpu < tt_topo_count(t, TT_NODE_GPU); gpu++) {
    if (!rules->pxn_disable) {
      peer = known ? peer : gpu_of_net(t, p, rules, net);
      known = true;
      if (peer >= 0 && peer != gpu && pxn_pays(t, rules, p, gpu, net, peer)) {
        TT_TRY(go_over(t, p, gpu, peer, net));
        known = false;
      }
    }
    int cpu = tt_path_at(p, gpu, net)->type < TT_PATH_PHB ? tt_topo_gpu_cpu(t, p, gpu) : -1;
    if (cpu >= 0 && tt_topo_gdr(t, p, rules, gpu, net, false) == TT_GDR_OFF) {
      TT_TRY(go_over(t, p, net, cpu, gpu));
      TT_TRY(go_over(t, p, gpu, cpu, net));
      known = false;
    }
  }
  return ncclSuccess;
}

static ncclResult_t paths_route(const tt_topo *t, const tt_topo_rules *rules, tt_paths *p)
{
  int gpus = tt_topo_count(t, TT_NODE_GPU), nets = t->first[TT_NODE_NET + 1];
  for (int g = 0; g < gpus; g++) {
    TT_TRY(route_gpus(t, rules, p, g));
  }
  for (int g = 0; g < gpus; g++) {
    name_c2c(t, p, g);
  }
  for (int n = t->first[TT_NODE_NET]; n < nets; n++) {
    TT_TRY(route_net(t, rules, p, n));
  }
  for (int n = t->first[TT_NODE_NET]; n < nets; n++) {
    p->net_gpu[n - t->first[TT_NODE_NET]] = gpu_of_net(t, p, rules, n);
  }
  return ncclSuccess;
}

static ncclResult_t paths_allocate(const tt_topo *t, tt_paths **out)
{
  int ends = tt_topo_ends(t);
  if (ends > TT_PATHS_MAX_ENDS) {
    return tt_fail(ncclInvalidArgument,
                   "topology: %d GPUs, network devices, CPUs and NVSwitches; paths are computed for at most %d", ends,
                   TT_PATHS_MAX_ENDS);
  }
  tt_paths *p = tt_calloc(1, sizeof(*p));
  if (p != NULL) {
    p->nends = ends;
    p->table = tt_calloc((size_t)ends * (size_t)ends + 1, sizeof(*p->table));
    p->net_gpu = tt_calloc((size_t)tt_topo_count(t, TT_NODE_NET) + 1, sizeof(*p->net_gpu));
  }
  if (p == NULL || p->table == NULL || p->net_gpu == NULL) {
    tt_paths_destroy(p);
    return tt_fail(ncclSystemError, "no memory for paths between %d ends", ends);
  }
  *out = p;
  return ncclSuccess;
}

// Debug builds and sanitizers look at what came out.
#if !defined(__OPTIMIZE__) || defined(TT_ASAN) || defined(TT_TSAN)
enum { CHECK_RESULT = 1 };
#else
enum { CHECK_RESULT = 0 };
#endif

ncclResult_t tt_paths_build(const tt_topo *topo, const tt_topo_rules *rules, tt_paths **out)
{
  tt_paths *p = NULL;
  ncclResult_t res;
  TT_TRY(paths_allocate(topo, &p));
  TT_TRY_GOTO(tt_paths_search(topo, !rules->nvb_disable, p), res);
  TT_TRY_GOTO(paths_route(topo, rules, p), res);
  if (CHECK_RESULT) {
    TT_TRY_GOTO(tt_paths_check(topo, p), res);
  }
  *out = p;
  return ncclSuccess;
fail:
  tt_paths_destroy(p);
  return res;
}

// ---- What must hold ----

static ncclResult_t offence(const tt_topo *t, int from, int to, const char *what)
{
  char a[64], b[64];
  return tt_fail(ncclInternalError, "topology: path from %s to %s: %s", tt_node_name(t, from, a, sizeof(a)),
                 tt_node_name(t, to, b, sizeof(b)), what);
}

static ncclResult_t check_path(const tt_topo *t, const tt_paths *p, int from, int to)
{
  const tt_path *path = tt_path_get(p, from, to);
  if (path->type >= TT_PATH_TYPES || path->first < 0 || path->first + path->count > p->nhops) {
    return offence(t, from, to, "no such type or hops");
  }
  if (path->type == TT_PATH_DIS) {
    return path->count == 0 && path->bw == 0 ? ncclSuccess
                                             : offence(t, from, to, "not connected, but with links or bandwidth");
  }
  int at = from;
  float bw = TT_BW_LOC;
  for (int i = 0; i < path->count; i++) {
    int l = p->hops[path->first + i];
    if (l < 0 || l >= t->nlinks || t->links[l].from != at) {
      return offence(t, from, to, "a link does not begin where the one before it ends");
    }
    at = t->links[l].to;
    bw = TT_MIN(bw, t->links[t->links[l].back].bw); // found from the end: that direction's figure
  }
  if (at != to) {
    return offence(t, from, to, "it does not end there");
  }
  return path->bw > 0 && path->bw <= bw ? ncclSuccess : offence(t, from, to, "wider than its narrowest link");
}

ncclResult_t tt_paths_check(const tt_topo *topo, const tt_paths *paths)
{
  for (int from = 0; from < paths->nends; from++) {
    for (int to = 0; to < paths->nends; to++) {
      TT_TRY(check_path(topo, paths, from, to));
    }
  }
  return ncclSuccess;
}

// ---- Groups ----

int tt_paths_groups(const tt_topo *topo, const tt_paths *paths, int *group)
{
  int gpus = tt_topo_count(topo, TT_NODE_GPU), count = 0;
  for (int g = 0; g < gpus; g++) {
    group[g] = count;
    for (int other = 0; other < g; other++) {
      if (tt_path_get(paths, g, other)->type < TT_PATH_NET) {
        group[g] = TT_MIN(group[g], group[other]);
      }
    }
    count += group[g] == count;
  }
  return count;
}

static int extreme_type(const tt_topo *t, const tt_paths *p, int kind, bool longest)
{
  int found = longest ? TT_PATH_LOC : TT_PATH_SYS;
  for (int g = 0; g < tt_topo_count(t, TT_NODE_GPU); g++) {
    for (int i = t->first[kind]; i < t->first[kind + 1]; i++) {
      int type = tt_path_get(p, g, i)->type;
      if (i != g) {
        found = longest ? TT_MAX(found, type) : TT_MIN(found, type);
      }
    }
  }
  return found;
}

int tt_paths_max_type(const tt_topo *topo, const tt_paths *paths, int kind)
{
  return extreme_type(topo, paths, kind, true);
}

int tt_paths_min_type(const tt_topo *topo, const tt_paths *paths, int kind)
{
  return extreme_type(topo, paths, kind, false);
}
