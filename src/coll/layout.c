// layout.c: numbers nodes by their lowest rank and lists their members.
#include "coll/layout.h"

#include "base/result.h"
#include "base/util.h"

// The arrays behind the constant pointers of the layout.
typedef struct tables {
  int *node_of, *index_of, *order, *first;
} tables;

// Gives rank r the node of the first rank with the same name; ranks with new names open nodes. Returns how many nodes.
static int number_nodes(int nranks, const int *name_of, const tables *t)
{
  int nnodes = 0;
  int *founder = t->order; // by node, until the order is written
  for (int r = 0; r < nranks; r++) {
    int k = 0;
    while (k < nnodes && name_of[founder[k]] != name_of[r]) {
      k++;
    }
    if (k == nnodes) {
      founder[nnodes++] = r;
    }
    t->node_of[r] = k;
    t->index_of[r] = t->first[k + 1]++; // counts the node's ranks, until it is summed up
  }
  return nnodes;
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
  *l = (tt_layout){.nranks = nranks, .node_of = t.node_of, .index_of = t.index_of, .order = t.order, .first = t.first};
  l->nnodes = number_nodes(nranks, name_of, &t);
  list_members(l, &t);
  *out = l;
  return ncclSuccess;
}

void tt_layout_destroy(tt_layout *layout)
{
  tt_free(layout);
}
