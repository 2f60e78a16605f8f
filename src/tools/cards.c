// cards.c: see cards.h.
#include "tools/cards.h"

// The way of GPU node `gpu` to a NET that a graph gives it.
static tt_net_choice way_to_card(const tt_topo *topo, const tt_paths *paths, int gpu, int net)
{
  tt_net_choice c = {net, gpu};
  if (tt_path_get(paths, gpu, net)->type == TT_PATH_PXN) {
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
static bool pxn_ok(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, tt_net_choice way, int gpu)
{
  int near = way.proxy, most = rules->pxn_c2c ? TT_PATH_P2C : TT_PATH_PXB;
  return near >= 0 && topo->nodes[near].kind == TT_NODE_GPU && tt_path_get(paths, near, gpu)->type <= TT_PATH_NVL &&
         tt_path_get(paths, near, way.net)->type <= most &&
         tt_topo_gdr(topo, paths, rules, near, way.net, false) != TT_GDR_OFF;
}

tt_net_choice tt_p2p_net(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, tt_p2p_rules p2p,
                         tt_p2p_part part)
{
  int gpu = part.gpu, level = rules->pxn_disable ? 0 : p2p.pxn, twin = twin_of(topo, gpu, part.peer_dev);
  tt_net_choice own = {tt_topo_gpu_net(topo, paths, rules, gpu, part.channel), gpu};
  int net = twin >= 0 ? tt_topo_gpu_net(topo, paths, rules, twin, part.channel) : -1;
  if (net < 0) {
    return own;
  }
  int near = paths->net_gpu[net - topo->first[TT_NODE_NET]];
  if (level == 1 && tt_path_get(paths, gpu, net)->type <= TT_PATH_PXN) {
    return way_to_card(topo, paths, gpu, net);
  }
  if (level == 2 && pxn_ok(topo, paths, rules, (tt_net_choice){net, near}, gpu)) {
    return (tt_net_choice){net, near};
  }
  return p2p.cross_nic == 0 ? (tt_net_choice){net, gpu} : own;
}
