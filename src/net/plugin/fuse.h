// fuse.h: which devices of a plugin become one (NCCL_NET_MERGE_LEVEL, NCCL_NET_MERGE_POLICY, NCCL_NET_FORCE_MERGE).
// Pure functions but for tt_fuse_place.
//
// Distances are NCCL's, from where devices stand below /sys: of a PCI switch the upstream port counts, root ports do
// not. Devices without a PCI device hang on one virtual card, so they are ports of one. Source: NCCL's topo.cc (facts),
// seed 004.
#pragma once
#include "net/net.h"

typedef enum {
  TT_FUSE_LOC,
  TT_FUSE_PORT,
  TT_FUSE_PIX,
  TT_FUSE_PXB,
  TT_FUSE_PHB,
  TT_FUSE_SYS,
  TT_FUSE_NEVER
} tt_fuse_level;

enum {
  TT_FUSE_DEPTH = 32, // devices on the way from a CPU to a device, at most; what is deeper counts as less deep
  TT_FUSE_BUS = 13    // "0000:03:00.0" and its 0
};

// Where a device stands.
typedef struct tt_fuse_place {
  int count;                            // of bus ids; 0: no PCI device
  char bus[TT_FUSE_DEPTH][TT_FUSE_BUS]; // those that count, from the CPU down; the last is the device
  int numa;                             // its NUMA node; -1: not known
} tt_fuse_place;

// Follows the links of `pci_path` (NULL or "": none); what is not on this machine is taken as it is written.
void tt_fuse_place_of(const char *pci_path, tt_fuse_place *out);

// Never LOC: two devices are two.
tt_fuse_level tt_fuse_distance(const tt_fuse_place *a, const tt_fuse_place *b);

// A value of NCCL_NET_MERGE_LEVEL; false: NCCL has no such value, and *out is LOC, as with NCCL.
bool tt_fuse_level_of(const char *word, tt_fuse_level *out);

typedef struct tt_fuse_found {
  int names;                 // of the group, at most `max` + 1
  int n, devs[TT_NET_PARTS]; // found, at most `max`, in the order of their numbers
} tt_fuse_found;

// One group of NCCL_NET_FORCE_MERGE, "mlx5_0,mlx5_1:2": the devices whose name (and port, if there is one) is in it.
// `max`: TT_NET_PARTS or less.
void tt_fuse_match(const char *group, size_t length, const tt_net_props *const *devs, int ndevs, int max,
                   tt_fuse_found *out);
