// topology_peers.c: see topology_priv.h; and what a rank tells of itself (topology.h).
#include "base/log.h"
#include "base/param.h"
#include "base/util.h"
#include "comm/comm.h"
#include "comm/topology_priv.h"
#include "os/folder.h"
#include "topo/nvml.h"

// ---- What a rank tells ----

static uint64_t topology_hash_text(const char *s, uint64_t seed)
{
  return s == NULL ? seed : tt_hash(s, strlen(s), seed);
}

// A file's content, or that it cannot be read.
static uint64_t hash_file(const char *path, uint64_t seed)
{
  uint64_t hash = 0;
  return tt_file_hash(path, TT_XML_MAX_BYTES, seed, &hash) ? hash : topology_hash_text(path, seed + 1);
}

// The GPUs that NVML shows to this process: in a container maybe not all.
static uint64_t hash_gpus(uint64_t seed)
{
  char bus[TT_NVML_MAX_GPUS][16] = {{0}};
  const tt_nvml *nvml = tt_nvml_get();
  int count = nvml != NULL ? tt_nvml_list(nvml, bus) : -1;
  return tt_hash(bus, sizeof(bus[0]) * (size_t)TT_MAX(count, 0), seed + 2 + (uint64_t)count);
}

typedef struct setting {
  const char *name;
  uint64_t value;
} setting;

// What a node's leader searches channels by. Other ranks' values mean nothing, which somebody who set them there wants
// to know. Returns how many.
static int list_settings(setting out[TT_PEER_SETTINGS])
{
  const tt_params *p = tt_params_get();
  const setting all[] = {{"NCCL_CROSS_NIC", (uint64_t)p->cross_nic},
                         {"NCCL_P2P_LEVEL", topology_hash_text(p->p2p_level, 1)},
                         {"NCCL_NET_GDR_LEVEL", topology_hash_text(p->net_gdr_level, 1)},
                         {"NCCL_NET_GDR_READ", (uint64_t)p->net_gdr_read},
                         {"NCCL_NET_GDR_C2C", (uint64_t)p->net_gdr_c2c},
                         {"NCCL_NET_DISABLE_INTRA", (uint64_t)p->net_disable_intra},
                         {"NCCL_NETDEVS_POLICY", topology_hash_text(p->netdevs_policy, 1)},
                         {"NCCL_PXN_DISABLE", (uint64_t)p->pxn_disable},
                         {"NCCL_PXN_C2C", (uint64_t)p->pxn_c2c},
                         {"NCCL_NVB_DISABLE", (uint64_t)p->nvb_disable},
                         {"NCCL_NVLS_ENABLE", (uint64_t)p->nvls_enable},
                         {"NCCL_GRAPH_FILE", topology_hash_text(p->graph_file, 1)}};
  _Static_assert(TT_COUNT(all) == TT_PEER_SETTINGS, "each has its place in tt_peer");
  memcpy(out, all, sizeof(all));
  return (int)TT_COUNT(all);
}

static int16_t short_of(int64_t value)
{
  return (int16_t)TT_CLAMP(value, INT16_MIN, INT16_MAX);
}

void tt_topology_describe(const struct ncclComm *comm, tt_peer *me)
{
  const tt_params *p = tt_params_get();
  setting settings[TT_PEER_SETTINGS];
  int count = list_settings(settings);
  for (int i = 0; i < count; i++) {
    uint64_t h = tt_hash(&settings[i].value, sizeof(settings[i].value), 5);
    me->settings[i] = (uint16_t)(h ^ h >> 16 ^ h >> 32 ^ h >> 48);
  }
  me->min_channels = short_of(p->min_nchannels);
  me->max_channels = short_of(p->max_nchannels);
  me->nthreads = (int32_t)TT_CLAMP(p->nthreads, INT32_MIN, INT32_MAX);
  me->min_ctas = short_of(comm->config.min_ctas);
  me->max_ctas = short_of(comm->config.max_ctas);
  me->numa = tt_proc_numa();
  bool gpu = me->where.bus_id[0] != '\0';
  const char *file = p->topo_file != NULL ? p->topo_file : gpu ? TT_SOURCE_DEFAULT_FILE : NULL; // describes GPUs
  bool asked = p->topo_dump_file != NULL || p->graph_file != NULL || p->graph_dump_file != NULL;
  me->sees =
      (uint16_t)((p->topo_file != NULL ? TT_SEES_FILE : 0) | (asked ? TT_SEES_ASKED : 0) | (gpu ? TT_SEES_GPU : 0));
  uint64_t h = topology_hash_text(
      p->socket_ifname,
      topology_hash_text(p->net, topology_hash_text(p->net_plugin, topology_hash_text(p->socket_family, me->machine))));
  h = topology_hash_text(p->net_merge_level,
                         topology_hash_text(p->net_merge_policy, topology_hash_text(p->net_force_merge, h)));
  h = gpu ? hash_gpus(h) : h;
  me->view = file != NULL ? hash_file(file, h) : h;
}

// ---- What follows ----

bool tt_topology_anything_to_see(const struct ncclComm *c)
{
  bool any = false;
  for (int i = 0; i < c->nranks; i++) {
    any |= c->peers[i].sees != 0;
  }
  return any;
}

const char *tt_topology_differs(const struct ncclComm *comm, int rank)
{
  const tt_peer *a = &comm->peers[0], *b = &comm->peers[rank];
  const char *name = a->min_channels != b->min_channels   ? "NCCL_MIN_NCHANNELS"
                     : a->max_channels != b->max_channels ? "NCCL_MAX_NCHANNELS"
                     : a->nthreads != b->nthreads         ? "NCCL_NTHREADS"
                                                          : NULL;
  return name;
}

int tt_topology_leader(const tt_layout *l, int node)
{
  return l->order[l->first[node]];
}

// Does some rank of the node see any of that?
static bool sees(const struct ncclComm *c, int node, uint32_t what)
{
  bool any = false;
  for (int i = c->layout->first[node]; i < c->layout->first[node + 1]; i++) {
    any |= (c->peers[c->layout->order[i]].sees & what) != 0;
  }
  return any;
}

bool tt_topology_is_plain(const struct ncclComm *c, int node)
{
  return !sees(c, node, TT_SEES_MACHINE);
}

bool tt_topology_is_one_gpu(const struct ncclComm *c)
{
  const tt_peer *first = &c->peers[0];
  bool one = (first->sees & TT_SEES_GPU) != 0;
  for (int i = 1; i < c->nranks && one; i++) {
    const tt_peer *p = &c->peers[i];
    one =
        p->machine == first->machine && memcmp(p->where.bus_id, first->where.bus_id, sizeof(first->where.bus_id)) == 0;
  }
  return one;
}

bool tt_topology_same_view(const struct ncclComm *c, int a, int b)
{
  return c->peers[a].view == c->peers[b].view && c->peers[a].machine == c->peers[b].machine;
}

bool tt_topology_has_view(const struct ncclComm *c, int rank)
{
  int node = c->layout->node_of[rank];
  return !tt_topology_same_view(c, rank, tt_topology_leader(c->layout, node)) &&
         sees(c, node, TT_SEES_MACHINE | TT_SEES_ASKED);
}

bool tt_topology_views_differ(const struct ncclComm *c, int node)
{
  const tt_layout *l = c->layout;
  bool differ = false;
  for (int i = l->first[node]; i < l->first[node + 1]; i++) {
    differ |= !tt_topology_same_view(c, l->order[i], tt_topology_leader(l, node));
  }
  return differ && sees(c, node, TT_SEES_MACHINE | TT_SEES_ASKED);
}

bool tt_topology_tells_view(const struct ncclComm *c, int rank)
{
  int node = c->layout->node_of[rank];
  bool leads = rank == tt_topology_leader(c->layout, node);
  return tt_topology_has_view(c, rank) || (leads && sees(c, node, TT_SEES_ASKED) && tt_topology_views_differ(c, node));
}

int tt_topology_places(const struct ncclComm *c, int node, tt_source_rank *out)
{
  const tt_layout *l = c->layout;
  int n = tt_layout_size(l, node);
  for (int i = 0; i < n; i++) {
    const tt_peer *p = &c->peers[l->order[l->first[node] + i]];
    bool gpu = (p->sees & TT_SEES_GPU) != 0 && memchr(p->where.bus_id, 0, sizeof(p->where.bus_id)) != NULL;
    out[i] = (tt_source_rank){.bus_id = gpu ? p->where.bus_id : NULL,
                              .rank = p->at.rank,
                              .dev = p->at.device,
                              .numa = p->numa,
                              .sm = (int)TT_CLAMP(p->where.sm, 0, 9999),
                              // No card reaches a GPU's memory here, unless the file says so.
                              .gdr = !gpu && (p->sees & TT_SEES_FILE) != 0};
  }
  return n;
}

// ---- What somebody who set up ranks differently wants to know ----

// The first rank of the node that sees another machine than the leader, and how many do.
static void say_view(const struct ncclComm *c, int node)
{
  const tt_layout *l = c->layout;
  int leader = tt_topology_leader(l, node), first = -1, count = 0;
  if (!tt_topology_views_differ(c, node)) {
    return;
  }
  for (int k = l->first[node] + 1; k < l->first[node + 1]; k++) {
    bool other = !tt_topology_same_view(c, l->order[k], leader);
    first = other && count == 0 ? l->order[k] : first;
    count += other;
  }
  bool file = ((c->peers[leader].sees ^ c->peers[first].sees) & TT_SEES_FILE) != 0, gpu = sees(c, node, TT_SEES_GPU);
  tt_info(TT_INIT | TT_GRAPH,
          "ranks %d and %d are on one node and do not see the same machine (ranks that differ from rank %d: %d): %s. "
          "What they see is joined; "
          "where it differs, rank %d is right",
          leader, first, leader, count,
          file  ? "one has no NCCL_TOPO_FILE"
          : gpu ? "NCCL_TOPO_FILE, NCCL_NET, NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY or the GPUs that NVML shows differ"
                : "NCCL_TOPO_FILE, NCCL_NET, NCCL_SOCKET_IFNAME or NCCL_SOCKET_FAMILY differ",
          leader);
}

// The first rank of the node that has another value.
static void say_setting(const struct ncclComm *c, int node, int i, const char *name)
{
  const tt_layout *l = c->layout;
  int leader = tt_topology_leader(l, node);
  for (int k = l->first[node] + 1; k < l->first[node + 1]; k++) {
    if (c->peers[l->order[k]].settings[i] != c->peers[leader].settings[i]) {
      tt_info(TT_INIT | TT_GRAPH,
              "%s has different values on ranks %d and %d, which are on one node: the one of rank %d, its first, holds",
              name, leader, l->order[k], leader);
      return;
    }
  }
}

void tt_topology_say_differences(const struct ncclComm *c, int node)
{
  setting settings[TT_PEER_SETTINGS];
  int count = list_settings(settings);
  say_view(c, node);
  for (int i = 0; i < count && !tt_topology_is_plain(c, node); i++) {
    say_setting(c, node, i, settings[i].name);
  }
}
