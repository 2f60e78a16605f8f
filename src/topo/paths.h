// paths.h: the best path between any two ends of a machine (system.h: GPU, NET, CPU, NVS), and the rules that bend
// them.
//
// Breadth first from every end: the better type wins, then the wider, then the shorter. Then the rules: a path goes
// through the CPU where GPUs may not reach each other, or the card may not reach the GPU. It goes through a GPU nearer
// to the card (PXN). It is NET where ranks meet over the network only. Source: seed 002 §5; types and rules as
// NCCL 2.30 has them. A GPU relays to GPUs only, and one may stand in between.
#pragma once
#include "base/param.h"
#include "topo/system.h"

enum {
  TT_PATHS_MAX_ENDS = 2048, // beyond that the table would not fit; NCCL allows 576 of a kind
  TT_PATHS_MAX_NETS = 64,   // of the channels of a GPU
};

// What the variables say. Levels are tt_path_type.
typedef struct tt_topo_rules {
  int p2p_level; // GPUs further apart go through the CPU; -1: PXB, or SYS between two GPUs of an AMD machine
  int gdr_level; // cards further away do not reach GPU memory; -1: P2C, or PXB without gdr_c2c
  int gdr_read;  // may the card read GPU memory to send: 0 no, 1 yes, -2 where NVLink carries the rest or sm ≥ 80
  bool gdr_c2c, pxn_c2c; // count the way over C2C as near
  bool shm_disable, pxn_disable, nvb_disable;
  bool net_disable_intra; // never prefer the network to a slow way inside the machine
  int nets_per_gpu;       // 0: the near NETs shared out among the near GPUs; -1: all of the near ones; n: at most n
} tt_topo_rules;

// The rules when no variable is set.
tt_topo_rules tt_topo_rules_default(void);

// The rules as NCCL_P2P_LEVEL, NCCL_P2P_DISABLE, NCCL_SHM_DISABLE, NCCL_NET_GDR_LEVEL, NCCL_NET_GDR_READ,
// NCCL_NET_GDR_C2C, NCCL_PXN_DISABLE, NCCL_PXN_C2C, NCCL_NVB_DISABLE, NCCL_NET_DISABLE_INTRA and NCCL_NETDEVS_POLICY
// have them. A malformed level is warned about and counts as not set.
tt_topo_rules tt_topo_rules_from(const tt_params *params);

// A level as users write it: a name up to SYS, or NCCL's old numbers (0 LOC, 1 PIX, 2 PXB, 3 PHB, 4 and more SYS). -1
// when it is neither.
int tt_topo_level(const char *text);

typedef struct tt_path {
  uint8_t type;   // tt_path_type
  uint16_t count; // links
  int first;      // into tt_paths.hops: indices of links, in order from the path's start
  float bw;       // GB/s: the narrowest link's
} tt_path;

// Immutable once made; any thread may read.
typedef struct tt_paths {
  int nends;
  tt_path *table; // [from * nends + to], nodes of tt_topo
  int *hops;
  int nhops, hop_room;
  int *net_gpu; // for NET i (from 0): node of the GPU that uses it first, -1: none
} tt_paths;

// Computes all paths of a machine. Free *out with tt_paths_destroy. Errors: more ends than TT_PATHS_MAX_ENDS, no
// memory.
ncclResult_t tt_paths_build(const tt_topo *topo, const tt_topo_rules *rules, tt_paths **out);

// Frees the paths. NULL is allowed.
void tt_paths_destroy(tt_paths *paths);

// Checks what must hold: hops lead from start to end, no type is better than its links', bandwidth is that of the
// narrowest. In debug builds and under sanitizers tt_paths_build ends with it.
ncclResult_t tt_paths_check(const tt_topo *topo, const tt_paths *paths);

// The path between two ends. LOC of no links when they are the same.
static inline const tt_path *tt_path_get(const tt_paths *paths, int from, int to)
{
  return &paths->table[(size_t)from * paths->nends + to];
}

// Splits the machine's ranks into groups that reach each other without the network: group[i] of GPU node i (from 0),
// numbered from 0 in the order of their first GPUs. Returns the number of groups. A machine of several groups is
// computed again for each: tt_topo_group, then tt_paths_build.
int tt_paths_groups(const tt_topo *topo, const tt_paths *paths, int *group);

// ---- Rules, each a pure function of machine, paths and options ----

// May GPU nodes a and b reach each other's memory directly?
bool tt_topo_p2p_ok(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int a, int b);

// Do both meet through shared memory of their host?
bool tt_topo_shm_ok(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int a, int b);

// Is the network faster for both than the way between them?
bool tt_topo_net_wins(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int a, int b);

// May the card of NET node `net` reach the memory of GPU node `gpu`, to read it (sending) or to write it?
// NCCL's modes: off; on; on, but mapped through PCI on a machine with C2C.
typedef enum { TT_GDR_OFF, TT_GDR_ON, TT_GDR_PCI } tt_gdr_mode;
tt_gdr_mode tt_topo_gdr(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int gpu, int net,
                        bool read);

// The GPU node that passes on what goes from `from` to `to` (NVB: to a GPU; PXN: to a NET); -1: the path is direct. The
// relay may be a DEV node.
int tt_path_relay(const tt_topo *topo, const tt_paths *paths, int from, int to);

// Ends of a kind that are best for `from`: greatest bandwidth, then best type. Writes their nodes to out (as many as
// there are of the kind), returns how many.
int tt_topo_near(const tt_topo *topo, const tt_paths *paths, int from, int kind, int *out);

// The NET node that channel number `channel` of GPU node `gpu` uses; -1 when there is none.
int tt_topo_gpu_net(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int gpu, int channel);

// The NET nodes that the channels of GPU node `gpu` use, in the order of channels, until the first comes again. Writes
// them to out (up to TT_PATHS_MAX_NETS), returns how many.
int tt_topo_gpu_nets(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int gpu, int *out);

// The CPU node that is near GPU node `gpu`; -1 when there is none.
int tt_topo_gpu_cpu(const tt_topo *topo, const tt_paths *paths, int gpu);

// Longest and shortest type between any two different GPUs (kind GPU) or GPU and NET. SYS and LOC where there are none,
// as NCCL has it.
int tt_paths_max_type(const tt_topo *topo, const tt_paths *paths, int kind);
int tt_paths_min_type(const tt_topo *topo, const tt_paths *paths, int kind);
