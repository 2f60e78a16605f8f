// p2p.c: how many channels send and receive use, in all and per peer.
#include "topo/connect_priv.h"

#include "base/util.h"

// NCCL's defaults.
enum {
  CHANNEL_NET_BW = 14, // GB/s that one channel carries over the network
  PEERS_PER_ROUND = 8, // messages that a channel carries at a time
};

// Channels for a peer that is reached over the network: one for each card that the GPU needs to fill its way to the
// CPU, or more if these carry more.
static int wanted_far(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int gpu)
{
  int nets[TT_PATHS_MAX_NETS], count = tt_topo_gpu_nets(topo, paths, rules, gpu, nets), used = 0;
  int cpu = tt_topo_gpu_cpu(topo, paths, gpu);
  float room = cpu >= 0 ? tt_path_get(paths, gpu, cpu)->bw : 0, bw = 0;
  while (used < count && (used == 0 || bw < room)) {
    bw += tt_path_get(paths, gpu, nets[used++])->bw;
  }
  return used == 0 ? 2 : TT_MAX(used, TT_DIV_UP((int)bw, CHANNEL_NET_BW));
}

// For a peer of the same machine: two per NVLink between them.
static int wanted_near(const tt_topo *topo, const tt_paths *paths, int gpu, int peer)
{
  const tt_path *p = tt_path_get(paths, peer, gpu);
  if (p->type != TT_PATH_NVL && p->type != TT_PATH_NVB) {
    return 2;
  }
  return 2 * TT_MAX(1, (int)(p->bw / tt_bw_nvlink(topo->nodes[gpu].gpu.sm)));
}

int tt_p2p_wanted(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, bool alone)
{
  int least = TT_GRAPH_MAX_CHANNELS, begin = topo->first[TT_NODE_GPU], end = topo->first[TT_NODE_GPU + 1];
  for (int g = begin; g < end; g++) {
    for (int peer = begin; peer < end; peer++) {
      int n = peer == g ? least : wanted_near(topo, paths, g, peer);
      least = TT_MIN(least, n);
    }
    if (!alone) {
      int n = wanted_far(topo, paths, rules, g);
      least = TT_MIN(least, n);
    }
  }
  return least;
}

static int power_up(int n)
{
  int p = 1;
  while (p < n) {
    p *= 2;
  }
  return p;
}

tt_p2p_channels tt_p2p_agree(const tt_connect *c, int wanted)
{
  tt_p2p_channels p;
  p.channels = power_up(TT_CLAMP(c->nchannels, 1, TT_GRAPH_MAX_CHANNELS));
  p.per_peer = power_up(TT_CLAMP(wanted, 1, TT_GRAPH_MAX_CHANNELS));
  if (c->nnodes == 1) {
    p.per_peer = TT_MIN(p.channels, p.per_peer);
    return p;
  }
  // The network is the bottleneck: all peers at once, with no more channels than there are.
  while (p.per_peer > 1 && (int64_t)p.per_peer * TT_DIV_UP(c->nranks, PEERS_PER_ROUND) > p.channels) {
    p.per_peer /= 2;
  }
  return p;
}
