// channels_rig.h: for tests: channels that no machine would have.
#pragma once
#include <stdint.h>
#include <stdlib.h>

#include "coll/layout.h"

static inline uint32_t draw_below(uint64_t *seed, uint32_t below)
{
  *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(*seed >> 33) % below;
}

// All ranks in some order.
static inline void random_ring(uint64_t *seed, int n, int *ring)
{
  ring[0] = 0;
  for (int i = 1; i < n; i++) {
    int j = (int)draw_below(seed, (uint32_t)i + 1);
    ring[i] = i; // for j == i
    ring[i] = ring[j];
    ring[j] = i;
  }
}

// Some order of the ranks, in which each hangs below one before it: a chain, a bush, or anything between.
static inline void random_tree(uint64_t *seed, int n, int *ups)
{
  int order[n], children[n];
  uint32_t reach = 1 + draw_below(seed, (uint32_t)n);
  random_ring(seed, n, order);
  ups[order[0]] = -1;
  children[0] = 0;
  for (int i = 1; i < n; i++) {
    int up = i - 1 - (int)draw_below(seed, reach < (uint32_t)i ? reach : (uint32_t)i);
    while (children[up] == TT_LAYOUT_CHILDREN) {
      up++; // the one before has none
    }
    children[up]++;
    children[i] = 0;
    ups[order[i]] = order[up];
  }
}

// The same, where any number may hang below one.
static inline void random_bush(uint64_t *seed, int n, int *ups)
{
  int order[n];
  uint32_t reach = 1 + draw_below(seed, (uint32_t)n);
  random_ring(seed, n, order);
  ups[order[0]] = -1;
  for (int i = 1; i < n; i++) {
    ups[order[i]] = order[i - 1 - (int)draw_below(seed, reach < (uint32_t)i ? reach : (uint32_t)i)];
  }
}

// The arrays of `count` channels, the caller's to free: rings, trees, and as many packed trees.
static inline tt_channels random_channels(uint64_t seed, int n, int count)
{
  size_t all = (size_t)n * (size_t)count;
  int *rings = malloc(all * sizeof(int)), *ups = malloc(all * sizeof(int)), *packed = malloc(all * sizeof(int));
  for (int c = 0; c < count; c++) {
    random_ring(&seed, n, rings + c * n);
    random_tree(&seed, n, ups + c * n);
  }
  for (int c = 0; c < count; c++) { // behind the others, which stay what they were
    random_bush(&seed, n, packed + c * n);
  }
  return (tt_channels){.count = count, .rings = rings, .ups = ups, .npacked = count, .packed = packed};
}

static inline void free_channels(const tt_channels *c)
{
  free((void *)(uintptr_t)c->rings);
  free((void *)(uintptr_t)c->ups);
  free((void *)(uintptr_t)c->packed);
}

// Gives the layout random channels.
static inline ncclResult_t set_random_channels(tt_layout *l, uint64_t seed, int count)
{
  tt_channels c = random_channels(seed, l->nranks, count);
  ncclResult_t res = tt_layout_set_channels(l, &c);
  free_channels(&c);
  return res;
}
