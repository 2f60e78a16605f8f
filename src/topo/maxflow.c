// maxflow.c: see maxflow.h.
#include "topo/maxflow.h"

#include "base/util.h"

ncclResult_t tt_maxflow_make(int nnodes, tt_maxflow *out)
{
  *out = (tt_maxflow){.nnodes = nnodes};
  TT_ARENA_NEW(&out->arena, out->first, nnodes);
  TT_ARENA_NEW(&out->arena, out->level, nnodes);
  TT_ARENA_NEW(&out->arena, out->queue, nnodes);
  TT_ARENA_NEW(&out->arena, out->at, nnodes);
  if (out->arena.failed) {
    return tt_fail(ncclSystemError, "no memory for the flows of %d nodes", nnodes);
  }
  for (int n = 0; n < nnodes; n++) {
    out->first[n] = -1;
  }
  return ncclSuccess;
}

void tt_maxflow_clear(tt_maxflow *net)
{
  tt_arena_clear(&net->arena);
  tt_free(net->arcs);
  *net = (tt_maxflow){0};
}

ncclResult_t tt_maxflow_add(tt_maxflow *net, int from, int to, int64_t room)
{
  if (!tt_grow(&net->arcs, net->narcs, 2, &net->arc_room, sizeof(*net->arcs))) {
    return tt_fail(ncclSystemError, "no memory for the flows of %d arcs", net->narcs / 2);
  }
  net->arcs[net->narcs] = (tt_maxflow_arc){.to = to, .next = net->first[from], .room = room};
  net->first[from] = net->narcs++;
  net->arcs[net->narcs] = (tt_maxflow_arc){.to = from, .next = net->first[to]};
  net->first[to] = net->narcs++;
  return ncclSuccess;
}

void tt_maxflow_cut(tt_maxflow *net, int narcs)
{
  while (net->narcs > narcs) { // the last arcs are the first of their nodes
    net->narcs--;
    net->first[net->arcs[net->narcs ^ 1].to] = net->arcs[net->narcs].next;
  }
}

// Distances from a node over arcs that have something left. Is `to` reached?
static bool set_levels(tt_maxflow *net, int from, int to)
{
  int head = 0, tail = 0;
  for (int n = 0; n < net->nnodes; n++) {
    net->level[n] = -1;
    net->at[n] = net->first[n];
  }
  net->level[from] = 0;
  net->queue[tail++] = from;
  while (head < tail) {
    int n = net->queue[head++];
    for (int a = net->first[n]; a >= 0; a = net->arcs[a].next) {
      int other = net->arcs[a].to;
      if (net->arcs[a].left > 0 && net->level[other] < 0) {
        net->level[other] = net->level[n] + 1;
        net->queue[tail++] = other;
      }
    }
  }
  return net->level[to] >= 0;
}

// Finds a shortest way by arcs that go up a level, as queue[0] … queue[count - 1]. Returns count; 0: there is none.
static int find_way(tt_maxflow *net, int from, int to)
{
  int count = 0, n = from;
  while (n != to) {
    int a = net->at[n];
    if (a >= 0 && net->arcs[a].left > 0 && net->level[net->arcs[a].to] == net->level[n] + 1) {
      net->queue[count++] = a;
      n = net->arcs[a].to;
    } else if (a >= 0) {
      net->at[n] = net->arcs[a].next;
    } else if (count == 0) {
      return 0;
    } else { // nothing leads on from here
      int back = net->queue[--count];
      n = net->arcs[back ^ 1].to;
      net->at[n] = net->arcs[net->at[n]].next;
    }
  }
  return count;
}

int64_t tt_maxflow_run(tt_maxflow *net, int from, int to, int64_t limit)
{
  int64_t flow = 0;
  for (int a = 0; a < net->narcs; a++) {
    net->arcs[a].left = net->arcs[a].room;
  }
  while (flow < limit && set_levels(net, from, to)) {
    int count;
    while (flow < limit && (count = find_way(net, from, to)) > 0) {
      int64_t least = limit - flow;
      for (int i = 0; i < count; i++) {
        least = TT_MIN(least, net->arcs[net->queue[i]].left);
      }
      for (int i = 0; i < count; i++) {
        net->arcs[net->queue[i]].left -= least;
        net->arcs[net->queue[i] ^ 1].left += least;
      }
      flow += least;
    }
  }
  return flow;
}
