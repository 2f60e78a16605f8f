// layout.c: numbers nodes by their lowest rank and lists their members; checks and keeps channels.
#include "coll/layout.h"

#include <string.h>

#include "base/alike.h"
#include "base/result.h"
#include "base/util.h"

// The arrays behind the constant pointers of the layout.
typedef struct tables {
  int *node_of, *index_of, *order, *first;
} tables;

static int by_name(const void *a, const void *b)
{
  int x = **(const int *const *)a, y = **(const int *const *)b;
  return (x > y) - (x < y);
}

// Gives rank r the node of the first rank with the same name; ranks with new names open nodes.
static ncclResult_t layout_number_nodes(tt_layout *l, const int *name_of, const tables *t)
{
  int *first = t->order; // by rank, until the order is written
  TT_TRY(tt_alike(name_of, sizeof *name_of, l->nranks, by_name, first));
  for (int r = 0; r < l->nranks; r++) {
    int k = first[r] == r ? l->nnodes++ : t->node_of[first[r]];
    t->node_of[r] = k;
    t->index_of[r] = t->first[k + 1]++; // counts the node's ranks, until it is summed up
  }
  return ncclSuccess;
}

static void list_members(tt_layout *l, const tables *t)
{
  l->smallest = l->nranks;
  for (int k = 0; k < l->nnodes; k++) {
    l->smallest = TT_MIN(l->smallest, t->first[k + 1]);
    l->largest = TT_MAX(l->largest, t->first[k + 1]);
    t->first[k + 1] += t->first[k];
  }
  for (int r = 0; r < l->nranks; r++) {
    t->order[t->first[t->node_of[r]] + t->index_of[r]] = r;
  }
}

ncclResult_t tt_layout_create(int nranks, const int *name_of, tt_layout **out)
{
  if (nranks < 1) {
    return tt_fail(ncclInvalidArgument, "layout of %d ranks", nranks);
  }
  size_t n = (size_t)nranks;
  tt_layout *l = tt_calloc(1, sizeof *l + (4 * n + 1) * sizeof(int));
  if (!l) {
    return tt_fail(ncclSystemError, "out of memory: layout of %d ranks", nranks);
  }
  int *ints = (int *)(l + 1);
  tables t = {.node_of = ints, .index_of = ints + n, .order = ints + 2 * n, .first = ints + 3 * n};
  *l = (tt_layout){.nranks = nranks,
                   .node_of = t.node_of,
                   .index_of = t.index_of,
                   .order = t.order,
                   .first = t.first,
                   .channels = {.count = 1}};
  ncclResult_t res = layout_number_nodes(l, name_of, &t);
  if (res != ncclSuccess) {
    tt_free(l);
    return res;
  }
  list_members(l, &t);
  *out = l;
  return ncclSuccess;
}

// ---- channels ----

static ncclResult_t check_ring(const int *ring, int channel, int n, int *seen)
{
  memset(seen, 0, (size_t)n * sizeof *seen);
  for (int i = 0; i < n; i++) {
    if (ring[i] < 0 || ring[i] >= n || seen[ring[i]]++ > 0) {
      return tt_fail(ncclInvalidArgument, "channel %d: rank %d at place %d of the ring %s (%d ranks)", channel, ring[i],
                     i, ring[i] < 0 || ring[i] >= n ? "does not exist" : "was there before", n);
    }
  }
  return ncclSuccess;
}

// Everybody has one parent or is the only root, nobody too many children, and n steps up lead out of the tree.
static ncclResult_t check_tree(const int *ups, int channel, int n, int most, int *children)
{
  int roots = 0;
  memset(children, 0, (size_t)n * sizeof *children);
  for (int r = 0; r < n; r++) {
    if (ups[r] < -1 || ups[r] >= n || ups[r] == r) {
      return tt_fail(ncclInvalidArgument, "channel %d: rank %d hangs below rank %d in the tree (%d ranks)", channel, r,
                     ups[r], n);
    }
    roots += ups[r] < 0;
    if (ups[r] >= 0 && ++children[ups[r]] > most) {
      return tt_fail(ncclInvalidArgument, "channel %d: more than %d ranks hang below rank %d in the tree", channel,
                     most, ups[r]);
    }
  }
  // Leaves are taken away until nothing is left: a circle has none.
  int left = n;
  for (int r = 0; r < n; r++) {
    for (int at = r; at >= 0 && children[at] == 0; at = ups[at]) {
      children[at] = -1;
      left--;
      if (ups[at] < 0 || --children[ups[at]] > 0) {
        break;
      }
    }
  }
  if (roots != 1 || left > 0) {
    return tt_fail(ncclInvalidArgument, "channel %d: the tree has %d roots%s", channel, roots,
                   left > 0 ? " and a circle" : "");
  }
  return ncclSuccess;
}

static ncclResult_t check_channels(int n, const tt_channels *c, int *scratch)
{
  for (int k = 0; k < c->count; k++) {
    if (c->rings) {
      TT_TRY(check_ring(c->rings + (size_t)k * (size_t)n, k, n, scratch));
    }
    if (c->ups) {
      TT_TRY(check_tree(c->ups + (size_t)k * (size_t)n, k, n, TT_LAYOUT_CHILDREN, scratch));
    }
  }
  for (int k = 0; k < c->npacked && c->packed; k++) {
    TT_TRY(check_tree(c->packed + (size_t)k * (size_t)n, k, n, n, scratch));
  }
  return ncclSuccess;
}

ncclResult_t tt_layout_set_channels(tt_layout *layout, const tt_channels *channels)
{
  if (channels->count < 1 || (!channels->rings && !channels->ups)) {
    return tt_fail(ncclInvalidArgument, "layout of %d ranks: %d channels, without rings or trees", layout->nranks,
                   channels->count);
  }
  size_t n = (size_t)layout->nranks, all = (size_t)channels->count * n;
  size_t packed = channels->packed && channels->npacked > 0 ? (size_t)channels->npacked * n : 0;
  int *ints = tt_calloc(2 * all + packed + n, sizeof(int));
  if (!ints) {
    return tt_fail(ncclSystemError, "out of memory: %d channels of %d ranks", channels->count, layout->nranks);
  }
  ncclResult_t res = check_channels(layout->nranks, channels, ints + 2 * all + packed);
  if (res != ncclSuccess) {
    tt_free(ints);
    return res;
  }
  tt_free(layout->channel_memory);
  layout->channel_memory = ints;
  layout->channels = (tt_channels){.count = channels->count};
  if (channels->rings) {
    layout->channels.rings = memcpy(ints, channels->rings, all * sizeof(int));
  }
  if (channels->ups) {
    layout->channels.ups = memcpy(ints + all, channels->ups, all * sizeof(int));
  }
  if (packed > 0) {
    layout->channels.npacked = channels->npacked;
    layout->channels.packed = memcpy(ints + 2 * all, channels->packed, packed * sizeof(int));
  }
  return ncclSuccess;
}

void tt_layout_destroy(tt_layout *layout)
{
  if (layout) {
    tt_free(layout->channel_memory);
  }
  tt_free(layout);
}
