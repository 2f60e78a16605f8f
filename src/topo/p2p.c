// p2p.c: how many channels send and receive use, in all and per peer.
#include "topo/connect_priv.h"

#include "base/util.h"

// Number of network cards that a GPU needs to fill its way to the CPU, at most those it has; *bw: what they carry.
static int nets_needed(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int gpu, float *bw)
{
  int cpu = tt_topo_gpu_cpu(topo, paths, gpu), first = tt_topo_gpu_net(topo, paths, rules, gpu, 0), count = 0;
  float room = cpu >= 0 ? tt_path_get(paths, gpu, cpu)->bw : 0;
  *bw = 0;
  for (int net = first; net >= 0 && count < TT_GRAPH_MAX_CHANNELS;) {
    *bw += tt_path_get(paths, gpu, net)->bw;
    count++;
    if (*bw >= room) {
      break;
    }
    net = tt_topo_gpu_net(topo, paths, rules, gpu, count);
    net = net == first ? -1 : net;
  }
  return count;
}

// Channels for a peer that is reached over the network.
static int wanted_far(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, const tt_connect_options *opt, int gpu)
{
  if (opt->p2p_per_net_peer != -2) {
    return opt->p2p_per_net_peer;
  }
  float bw = 0;
  int count = nets_needed(topo, paths, rules, gpu, &bw);
  return count == 0 ? 2 : TT_MAX(count, TT_DIV_UP((int)bw, TT_MAX(opt->p2p_net_bw, 1)));
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

int tt_p2p_wanted(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, const tt_connect_options *opt, bool alone)
{
  int least = TT_GRAPH_MAX_CHANNELS, begin = topo->first[TT_NODE_GPU], end = topo->first[TT_NODE_GPU + 1];
  for (int g = begin; g < end; g++) {
    for (int peer = begin; peer < end; peer++) {
      int n = peer == g ? least : wanted_near(topo, paths, g, peer);
      least = TT_MIN(least, n);
    }
    if (!alone) {
      int n = wanted_far(topo, paths, rules, opt, g);
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

enum { PEERS_PER_ROUND = 8 }; // messages that a channel carries at a time

tt_p2p_channels tt_p2p_agree(const tt_connect *c, const tt_connect_options *opt, int wanted)
{
  tt_p2p_channels p;
  p.channels = power_up(TT_CLAMP(TT_MAX(TT_MIN(c->nchannels, opt->p2p_max), opt->p2p_min), 1, TT_GRAPH_MAX_CHANNELS));
  p.per_peer = power_up(TT_CLAMP(wanted, 1, TT_GRAPH_MAX_CHANNELS));
  if (c->nnodes == 1 || opt->p2p_per_net_peer != -2) {
    p.per_peer = TT_MIN(p.channels, p.per_peer);
    return p;
  }
  // The network is the bottleneck: all peers at once, with no more channels than there are.
  int peers = opt->p2p_peers == -2 ? c->nranks : TT_MIN(opt->p2p_peers, c->nranks);
  while (p.per_peer > 1 && (int64_t)p.per_peer * TT_DIV_UP(peers, PEERS_PER_ROUND) > p.channels) {
    p.per_peer /= 2;
  }
  return p;
}

// ---- Rounds ----

static int common_divisor(int a, int b)
{
  while (b != 0) {
    int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

int tt_p2p_group(const tt_connect *c, const tt_connect_options *opt)
{
  int group = c->nnodes > 1 ? TT_MAX(opt->p2p_group, 1) : c->max_local;
  for (int s = 0; s < c->nshapes; s++) {
    group = c->used[s] ? common_divisor(group, c->shapes[s].ngpus) : group;
  }
  return group;
}

void tt_p2p_schedule(const tt_connect *c, int group, int rank, tt_p2p_round *out)
{
  // Node by node, every `group` ranks are one group. Distances are the triangular numbers modulo a power of two: each comes once.
  int place = c->first[c->node_of[rank]] + c->local_of[rank], ngroups = c->nranks / group, mine = place / group, local = place % group;
  int power = power_up(ngroups), n = 0;
  for (int64_t k = 0; k < power; k++) {
    int far = (int)((k * (k + 1) / 2) & (power - 1));
    for (int d = 0; d < group && far < ngroups; d++, n++) {
      out[n].send = c->ranks[(mine + far) % ngroups * group + (local + d) % group];
      out[n].recv = c->ranks[(mine - far + ngroups) % ngroups * group + (local - d + group) % group];
    }
  }
}

int tt_p2p_channel(int channels, int group, int round, int part)
{
  // Rounds that share a channel's batch have one base; its bits are turned round, so that the first few spread over all channels.
  int base = round;
  if (group > 0) {
    base = round / group * TT_DIV_UP(group, PEERS_PER_ROUND) + round % group / PEERS_PER_ROUND;
  }
  int turned = 0;
  for (int bit = 1; bit < channels; bit <<= 1) {
    turned = turned << 1 | (base & 1);
    base >>= 1;
  }
  return (turned + part) & (channels - 1);
}

// ---- Network cards ----

tt_net_choice tt_connect_via(const tt_topo *topo, const tt_paths *paths, int gpu, int net)
{
  tt_net_choice c = {net, gpu};
  if (net >= 0 && tt_path_get(paths, gpu, net)->type == TT_PATH_PXN) {
    int relay = tt_path_relay(topo, paths, gpu, net);
    c.proxy = relay >= 0 && topo->nodes[relay].kind == TT_NODE_GPU ? relay : gpu;
  }
  return c;
}

// The GPU node of the same host with that number; -1: none.
static int twin_of(const tt_topo *topo, int gpu, int dev)
{
  for (int g = topo->first[TT_NODE_GPU]; g < topo->first[TT_NODE_GPU + 1]; g++) {
    if (topo->nodes[g].gpu.dev == dev && topo->nodes[g].host == topo->nodes[gpu].host) {
      return g;
    }
  }
  return -1;
}

// May what `gpu` sends pass over the memory of GPU node `near` to its card?
static bool pxn_ok(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, const int near_net[2], int gpu)
{
  int near = near_net[0], most = rules->pxn_c2c ? TT_PATH_P2C : TT_PATH_PXB;
  return near >= 0 && topo->nodes[near].kind == TT_NODE_GPU && tt_path_get(paths, near, gpu)->type <= TT_PATH_NVL &&
         tt_path_get(paths, near, near_net[1])->type <= most && tt_topo_gdr(topo, paths, rules, near_net, false) != TT_GDR_OFF;
}

tt_net_choice tt_p2p_net(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, tt_p2p_rules p2p,
                         const int gpu_peer_dev[2], int channel)
{
  int gpu = gpu_peer_dev[0], level = rules->pxn_disable ? 0 : p2p.pxn, twin = twin_of(topo, gpu, gpu_peer_dev[1]);
  tt_net_choice own = {tt_topo_gpu_net(topo, paths, rules, gpu, channel), gpu};
  int net = twin >= 0 ? tt_topo_gpu_net(topo, paths, rules, twin, channel) : -1;
  if (net < 0) {
    return own;
  }
  int near = paths->net_gpu[net - topo->first[TT_NODE_NET]];
  if (level == 1 && tt_path_get(paths, gpu, net)->type <= TT_PATH_PXN) {
    return tt_connect_via(topo, paths, gpu, net);
  }
  if (level == 2 && pxn_ok(topo, paths, rules, (int[]){near, net}, gpu)) {
    return (tt_net_choice){net, near};
  }
  return p2p.cross_nic == 0 ? (tt_net_choice){net, gpu} : own;
}
