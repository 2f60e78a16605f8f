// pack_check.h: what must hold of packed trees, proved from the machine's links alone.
#pragma once
#include "topo/pack.h"

typedef struct tt_pack_look {
  double total;  // GB/s of all trees together
  double fill;   // of the fullest link, 0 to 1
  int most_hops; // links of the longest way
  int depth;     // edges from the root of the highest tree to its lowest GPU
} tt_pack_look;

// Follows every edge of every tree over the links. Errors, ncclInternalError: a tree that is none or lacks a GPU; a way
// with a gap, or through a GPU or a card; a link that carries more than its bandwidth, when every tree has its unit
// from the root down, or when it has half of it down and half up.
ncclResult_t tt_packing_check(const tt_topo *topo, const tt_packing *p, tt_pack_look *out);
