// ranks.c: see ranks.h. Everything sorts: no rank is compared with every other.
#include "comm/ranks.h"

#include <stdlib.h>

#include "base/alike.h"
#include "base/result.h"
#include "base/util.h"

static int by_memory(const void *a, const void *b)
{
  return tt_transport_order(&(*(const tt_peer *const *)a)->at, &(*(const tt_peer *const *)b)->at);
}

ncclResult_t tt_ranks_layout(const tt_peer *peers, int n, tt_layout **out)
{
  int *name;
  TT_TRY(TT_NEW(name, n, "no memory for the layout of %d ranks", n));
  ncclResult_t res = tt_alike(peers, sizeof *peers, n, by_memory, name);
  res = res == ncclSuccess ? tt_layout_create(n, name, out) : res;
  tt_free(name);
  return res;
}

static int by_machine(const void *a, const void *b)
{
  uint64_t x = (*(tt_peer *const *)a)->machine, y = (*(tt_peer *const *)b)->machine;
  return (x > y) - (x < y);
}

// Returns how many cores the ranks of one machine have.
static int share_cores(tt_peer **ranks, int n)
{
  tt_core_set all = {{0}};
  int cores = 0; // at least what one of them says: its set may not be known
  for (int i = 0; i < n; i++) {
    cores = TT_MAX(cores, TT_MAX(ranks[i]->cpus, tt_core_set_add(&all, &ranks[i]->cores)));
  }
  for (int i = 0; i < n; i++) {
    ranks[i]->cpus = cores;
  }
  return cores;
}

ncclResult_t tt_ranks_pool_cores(tt_peer *peers, int n, int me, int *mine, bool *crowded)
{
  tt_peer **order;
  TT_TRY(TT_NEW(order, n, "no memory for the cores of %d ranks", n));
  for (int i = 0; i < n; i++) {
    order[i] = &peers[i];
  }
  qsort(order, (size_t)n, sizeof *order, by_machine);
  *crowded = false;
  for (int i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && order[end]->machine == order[i]->machine; end++) {
    }
    *crowded |= share_cores(order + i, end - i) < end - i;
    *mine = order[i]->machine == peers[me].machine ? end - i : *mine;
  }
  tt_free(order);
  return ncclSuccess;
}

static int by_key(const void *a, const void *b)
{
  const tt_split_choice *x = a, *y = b;
  return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->rank > y->rank) - (x->rank < y->rank);
}

int tt_ranks_members(tt_split_choice *all, int n, int me, int *members, int *place)
{
  int count = 0, color = all[me].color;
  for (int i = 0; i < n; i++) {
    if (all[i].color == color) {
      all[count++] = (tt_split_choice){.color = color, .key = all[i].key, .rank = i};
    }
  }
  qsort(all, (size_t)count, sizeof *all, by_key);
  for (int i = 0; i < count; i++) {
    members[i] = all[i].rank;
    *place = members[i] == me ? i : *place;
  }
  return count;
}

bool tt_ranks_join(const tt_peer *peers, int n, const tt_device_ops *row)
{
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < n; k++) {
      if (!row->joins(peers[i].at.device, peers[k].at.device)) {
        return false;
      }
    }
  }
  return true;
}

static bool ranks_try(const tt_peer *peers, tt_port *port, const tt_device_ops *row, int rank)
{
  const tt_peer *p = &peers[rank];
  const tt_reach at = {.rank = rank,
                       .device = p->at.device,
                       .here = tt_peers_share_process(p, &peers[port->rank]),
                       .proc = &p->at.proc,
                       .probe = p->probe,
                       .id = &p->where};
  return row->reaches(port, &at);
}

bool tt_ranks_any_gpu(const tt_peer *peers, int n)
{
  int i = 0;
  while (i < n && peers[i].where.sm == 0) {
    i++;
  }
  return i < n;
}

bool tt_ranks_write(const tt_peer *peers, const tt_layout *layout, tt_port *port)
{
  bool writes = true;
  for (int i = 0; i < port->nranks && writes; i++) {
    const bool near = layout->node_of[i] == layout->node_of[port->rank];
    if (near && peers[i].where.sm == 0 && !tt_peers_share_process(&peers[i], &peers[port->rank])) {
      writes = ranks_try(peers, port, &tt_device_host, i);
    }
  }
  return writes;
}

bool tt_ranks_reach(const tt_peer *peers, const tt_layout *layout, tt_port *port, bool all_local)
{
  const bool all = port->row->pairs;
  if (all && (tt_transport_p2p_off() || all_local)) {
    return false;
  }
  for (int k = 1; k < port->nranks; k++) {
    const int i = (port->rank + k) % port->nranks;
    const bool near = layout->node_of[i] == layout->node_of[port->rank];
    if (near && !all && !tt_peers_share_process(&peers[i], &peers[port->rank])) {
      return ranks_try(peers, port, port->row, i);
    }
    if (near && all && !ranks_try(peers, port, port->row, i)) {
      return false;
    }
  }
  return all || ranks_try(peers, port, port->row, port->rank);
}

size_t tt_ranks_stream_bytes(void)
{
  enum { LEAST = 1 << 20, UNKNOWN = 4 << 20 };
  size_t cache = tt_proc_cache();
  return cache == 0 ? UNKNOWN : TT_MAX(cache / 8, (size_t)LEAST);
}
