// rules.c: which ends may reach each other, and how: pure functions of machine, paths and options.
#include <stdlib.h>

#include "base/text.h"
#include "base/util.h"
#include "topo/paths_priv.h"

tt_topo_rules tt_topo_rules_default(void)
{
  return (tt_topo_rules){.p2p_level = -1, .gdr_level = -1, .gdr_read = -2, .gdr_c2c = true, .pxn_c2c = true};
}

int tt_topo_level(const char *text)
{
  static const int numbers[] = {TT_PATH_LOC, TT_PATH_PIX, TT_PATH_PXB, TT_PATH_PHB, TT_PATH_SYS};
  int type = tt_path_type_of(text);
  if (type >= 0) {
    return type <= TT_PATH_SYS ? type : -1;
  }
  char *end = NULL;
  long number = strtol(text, &end, 10);
  if (end == text || *end != 0 || number < 0) {
    return -1;
  }
  return numbers[TT_MIN(number, (long)TT_COUNT(numbers) - 1)];
}

static int level_from(const char *text)
{
  return text != NULL ? tt_topo_level(text) : -1;
}

static int nets_from(const char *text)
{
  if (text == NULL || tt_casecmp(text, "AUTO") == 0) {
    return 0;
  }
  return tt_casecmp(text, "ALL") == 0 ? -1 : tt_ncasecmp(text, "MAX:", 4) == 0 ? TT_MAX(atoi(text + 4), 0) : 0;
}

tt_topo_rules tt_topo_rules_from(const tt_params *params)
{
  tt_topo_rules r = tt_topo_rules_default();
  r.p2p_level = params->p2p_disable ? TT_PATH_LOC : level_from(params->p2p_level);
  r.gdr_level = level_from(params->net_gdr_level);
  r.gdr_read = (int)TT_CLAMP(params->net_gdr_read, -2, 1);
  r.gdr_c2c = params->net_gdr_c2c;
  r.pxn_c2c = params->pxn_c2c;
  r.shm_disable = params->shm_disable;
  r.pxn_disable = params->pxn_disable;
  r.nvb_disable = params->nvb_disable;
  r.net_disable_intra = params->net_disable_intra;
  r.nets_per_gpu = nets_from(params->netdevs_policy);
  return r;
}

int tt_topo_near(const tt_topo *topo, const tt_paths *paths, int from, int kind, int *out)
{
  int count = 0, type = TT_PATH_DIS;
  float bw = 0;
  for (int i = topo->first[kind]; i < topo->first[kind + 1]; i++) {
    const tt_path *p = tt_path_get(paths, from, i);
    if (p->type == TT_PATH_DIS || p->bw < bw || (p->bw == bw && p->type > type)) {
      continue;
    }
    if (p->bw > bw || p->type < type) {
      bw = p->bw;
      type = p->type;
      count = 0;
    }
    out[count++] = i;
  }
  return count;
}

int tt_topo_gpu_cpu(const tt_topo *topo, const tt_paths *paths, int gpu)
{
  int cpus[TT_PATHS_MAX_ENDS];
  int count = tt_topo_near(topo, paths, gpu, TT_NODE_CPU, cpus), best = -1;
  for (int i = 0; i < count; i++) {
    if (best < 0 || tt_path_get(paths, gpu, cpus[i])->count < tt_path_get(paths, gpu, best)->count) {
      best = cpus[i];
    }
  }
  return best;
}

int tt_path_relay(const tt_topo *topo, const tt_paths *paths, int from, int to)
{
  const tt_path *p = tt_path_get(paths, from, to);
  bool relayed = topo->nodes[to].kind == TT_NODE_GPU ? p->type == TT_PATH_NVB : p->type == TT_PATH_PXN;
  int own = topo->nodes[from].kind == TT_NODE_GPU ? topo->nodes[from].gpu.device : from;
  for (int i = 0; relayed && i < p->count - 1; i++) {
    int node = topo->links[paths->hops[p->first + i]].to;
    if (tt_node_is_gpu(topo, node) && node != own) {
      return node;
    }
  }
  return -1;
}

// On machines of two GPUs and AMD's CPUs the way through the CPU is as good as any.
static int p2p_level(const tt_topo *topo, const tt_topo_rules *rules)
{
  if (rules->p2p_level >= 0) {
    return rules->p2p_level;
  }
  if (tt_topo_count(topo, TT_NODE_CPU) > 0) {
    const tt_topo_node *cpu = &topo->nodes[topo->first[TT_NODE_CPU]];
    if (cpu->cpu.arch == TT_CPU_X86 && cpu->cpu.vendor == TT_CPU_AMD && tt_topo_devices(topo) <= 2) {
      return TT_PATH_SYS;
    }
  }
  return TT_PATH_PXB;
}

bool tt_topo_p2p_ok(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int a, int b)
{
  if (tt_path_get(paths, a, b)->type > p2p_level(topo, rules)) {
    return false;
  }
  int relay = tt_path_relay(topo, paths, a, b);
  return relay < 0 || topo->nodes[relay].kind == TT_NODE_GPU; // a GPU without a rank here cannot pass anything on
}

bool tt_topo_shm_ok(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int a, int b)
{
  return !rules->shm_disable && topo->nodes[a].host == topo->nodes[b].host &&
         !tt_topo_net_wins(topo, paths, rules, a, b);
}

// The widest way from a GPU to a card that is near enough for direct access.
static float net_bandwidth(const tt_topo *topo, const tt_paths *paths, int gpu)
{
  float bw = 0;
  for (int n = topo->first[TT_NODE_NET]; n < topo->first[TT_NODE_NET + 1]; n++) {
    const tt_path *p = tt_path_get(paths, gpu, n);
    if (p->type <= TT_PATH_PXB) {
      bw = TT_MAX(bw, p->bw);
    }
  }
  return bw;
}

bool tt_topo_net_wins(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int a, int b)
{
  float here = tt_path_get(paths, a, b)->bw;
  return !rules->net_disable_intra && net_bandwidth(topo, paths, a) > here && net_bandwidth(topo, paths, b) > here;
}

// Reading GPU memory over PCI is slow before Ampere; it pays where NVLink carries what goes between GPUs.
static bool may_read(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int gpu)
{
  int gpus = tt_topo_count(topo, TT_NODE_GPU);
  if (rules->gdr_read >= 0 || topo->nodes[gpu].gpu.sm >= 80 || topo->nodes[gpu].gpu.gcn != 0 || gpus == 1) {
    return rules->gdr_read != 0;
  }
  for (int other = 0; other < gpus; other++) {
    if (other != gpu && tt_path_get(paths, gpu, other)->type == TT_PATH_NVL) {
      return true;
    }
  }
  return false;
}

tt_gdr_mode tt_topo_gdr(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int gpu, int net,
                        bool read)
{
  if (!topo->nodes[net].net.gdr || !topo->nodes[gpu].gpu.gdr || (read && !may_read(topo, paths, rules, gpu))) {
    return TT_GDR_OFF;
  }
  int relay = tt_path_relay(topo, paths, gpu, net);
  if (relay >= 0 && topo->nodes[relay].kind == TT_NODE_GPU) {
    gpu = relay; // the one that is near the card counts
  }
  int level = rules->gdr_level >= 0 ? rules->gdr_level : rules->gdr_c2c ? TT_PATH_P2C : TT_PATH_PXB;
  int type = tt_path_get(paths, gpu, net)->type;
  if (type > level) {
    return TT_GDR_OFF;
  }
  int cpu = tt_topo_gpu_cpu(topo, paths, gpu);
  bool c2c = cpu >= 0 && tt_path_get(paths, gpu, cpu)->type == TT_PATH_C2C;
  return c2c && type != TT_PATH_P2C ? TT_GDR_PCI : TT_GDR_ON;
}

// The lowest bits of `value` below the power of two `size`, in reverse order.
static int mirrored(int value, int size)
{
  int out = 0;
  for (int low = 1, high = size >> 1; low < size; low <<= 1, high >>= 1) {
    out |= (value & low) != 0 ? high : 0;
  }
  return out;
}

int tt_topo_gpu_net(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int gpu, int channel)
{
  int nets[TT_PATHS_MAX_ENDS], gpus[TT_PATHS_MAX_ENDS];
  int nnets = tt_topo_near(topo, paths, gpu, TT_NODE_NET, nets);
  int ngpus = nnets > 0 ? tt_topo_near(topo, paths, nets[0], TT_NODE_GPU, gpus) : 0;
  if (ngpus == 0) {
    return -1;
  }
  int each = rules->nets_per_gpu == 0  ? TT_DIV_UP(nnets, ngpus)
             : rules->nets_per_gpu < 0 ? nnets
                                       : TT_MIN(rules->nets_per_gpu, nnets);
  // GPUs that share cards begin at different ones, spread as evenly as their number allows.
  int first = topo->nodes[gpu].gpu.dev % ngpus;
  if ((nnets & (nnets - 1)) == 0) {
    first = mirrored(first, nnets);
  }
  return nets[(first + channel % each) % nnets];
}

int tt_topo_gpu_nets(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int gpu, int *out)
{
  int count = 0;
  for (int net; count < TT_PATHS_MAX_NETS; out[count++] = net) {
    net = tt_topo_gpu_net(topo, paths, rules, gpu, count);
    if (net < 0 || (count > 0 && net == out[0])) {
      break;
    }
  }
  return count;
}
