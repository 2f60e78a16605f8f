// collnet.c: see collnet.h.
#include "comm/collnet.h"

#include "comm/comm.h"

#include <stdio.h>

#include "base/log.h"
#include "base/param.h"
#include "base/opcode.h"
#include "base/result.h"
#include "os/clock.h"
#include "os/shm.h"

#define LEAST_BYTES 4096 // a network that takes no longer messages is of no use

// What a rank can.
typedef struct offer {
  uint32_t good;
  int32_t devices;
  uint64_t support;
  char name[64];
} offer;

// Where a head listens.
typedef struct door {
  uint32_t good;
  char handle[TT_NET_HANDLE];
} door;

// Has it connected?
typedef struct ready {
  uint32_t good;
  uint64_t longest;
} ready;

static void collnet_fall_back(const struct ncclComm *c, const char *why, int rank)
{
  tt_info(TT_INIT | TT_NET, "COLLNET: not used, other algorithms are: %s %d%s", why, rank,
          rank == c->rank ? "" : ", whose log says why");
}

bool tt_comm_collnet_wanted(const struct ncclComm *c)
{
  int64_t threshold = tt_params_get()->collnet_node_threshold;
  if (c->config.collnet_enable != 1) {
    return false;
  }
  if (!c->network.needed || c->layout->nnodes < threshold) {
    tt_info(TT_INIT | TT_NET,
            "COLLNET: not used: %d nodes, of which NCCL_COLLNET_NODE_THRESHOLD wants %lld, and there must be two",
            c->layout->nnodes, (long long)threshold);
    return false;
  }
  return true;
}

static bool collnet_is_head(const struct ncclComm *c)
{
  return c->layout->index_of[c->rank] < c->layout->heads;
}

// The rank that is head `h` of a node.
static int collnet_head_of(const struct ncclComm *c, int node, int h)
{
  return c->layout->order[c->layout->first[node] + h];
}

// ---- what all can

// False: some rank cannot. Fills in the rest of `o`, which is this rank's.
static bool collnet_compare(struct ncclComm *c, const offer *all)
{
  tt_comm_collnet *n = c->network.reduce;
  int devices = all[0].devices;
  for (int i = 0; i < c->nranks; i++) {
    if (!all[i].good || strncmp(all[i].name, all[0].name, sizeof all[0].name) != 0) {
      collnet_fall_back(c, all[i].good ? "another collective network has rank" : "it is out of the question on rank",
                        i);
      return false;
    }
    n->support &= all[i].support;
    devices = TT_MIN(devices, all[i].devices);
  }
  c->layout->heads = TT_MAX(devices, 1);
  c->layout->heads = tt_collnet_heads(c->layout, c->nranks);
  return true;
}

static ncclResult_t agree_on_plugin(struct ncclComm *c, bool *good)
{
  tt_comm_collnet *n = c->network.reduce;
  const tt_net_env env = {
      .rank = c->rank, .nranks = c->nranks, .comm_hash = c->hash, .traffic_class = c->config.traffic_class};
  TT_TRY(tt_collnet_open(c->network.ops, &env, &n->net));
  offer mine = {.good = 0}, *all;
  if (n->net != NULL) {
    mine = (offer){.good = 1, .devices = tt_collnet_devices(n->net), .support = tt_collnet_support(n->net)};
    snprintf(mine.name, sizeof mine.name, "%s", tt_collnet_name(n->net));
  }
  n->support = UINT64_MAX;
  TT_TRY(tt_comm_exchange(c, &mine, sizeof mine, &all));
  *good = collnet_compare(c, all);
  tt_free(all);
  return ncclSuccess;
}

// ---- the heads meet

// Every rank learns where the heads listen: *all is tt_free's.
static ncclResult_t listen_all(struct ncclComm *c, door **out, void **listener, bool *good)
{
  door mine = {.good = 1};
  if (collnet_is_head(c)) {
    int dev = c->layout->index_of[c->rank];
    mine.good = tt_collnet_listen(c->network.reduce->net, dev, mine.handle, listener) == ncclSuccess;
  }
  ncclResult_t res = tt_comm_exchange(c, &mine, sizeof mine, out);
  const door *all = *out;
  *good = res == ncclSuccess;
  for (int i = 0; i < c->nranks && *good; i++) {
    if (!all[i].good) {
      collnet_fall_back(c, "it cannot listen on rank", i);
      *good = false;
    }
  }
  if (!*good) {
    tt_collnet_close_listen(c->network.reduce->net, *listener);
  }
  return res;
}

// Those of the own group on other nodes, for waits.
static ncclResult_t find_behind(struct ncclComm *c)
{
  tt_comm_collnet *n = c->network.reduce;
  int nodes = c->layout->nnodes, me = c->layout->node_of[c->rank], h = c->layout->index_of[c->rank], count = 0;
  n->ranks = tt_calloc((size_t)nodes, sizeof *n->ranks);
  n->pages = tt_calloc((size_t)nodes, sizeof(tt_rank_page *));
  for (int node = 0; node < nodes && n->ranks != NULL && n->pages != NULL; node++) {
    if (node != me) {
      n->ranks[count] = collnet_head_of(c, node, h);
      n->pages[count] = tt_proxy_page(c->network.proxy, n->ranks[count]);
      count += n->pages[count] != NULL;
    }
  }
  n->behind = (tt_behind){.n = count, .ranks = n->ranks, .pages = n->pages};
  return count == nodes - 1
             ? ncclSuccess
             : tt_fail(ncclSystemError, "rank %d: no memory for a link to a collective network", c->rank);
}

// The link's FIFOs, and a page that nobody writes.
static ncclResult_t make_link(struct ncclComm *c)
{
  tt_comm_collnet *n = c->network.reduce;
  const tt_geometry *g = &c->wiring.geometry;
  size_t one = TT_ROUND_UP(tt_net_window_bytes(g), 4096);
  n->size = 2 * one + sizeof(tt_rank_page);
  TT_TRY(find_behind(c));
  TT_TRY(tt_shm_map(-1, n->size, (void **)&n->base));
  n->link = tt_calloc_line(sizeof *n->link);
  if (n->link == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for a link to a collective network", c->rank);
  }
  tt_net_window_view(g, n->base, n->link->send);
  tt_net_window_view(g, n->base + one, n->link->recv);
  n->link->peer = c->nranks + c->layout->index_of[c->rank];
  n->link->rank = c->rank;
  n->link->access = TT_ACCESS_NONE;
  n->link->page = (tt_rank_page *)(void *)(n->base + 2 * one);
  n->link->behind = &n->behind;
  return ncclSuccess;
}

// Is it of no use to wait for the other heads? They are asked how they are, so that one that has gone is noticed.
static bool is_hopeless(void *arg)
{
  const struct ncclComm *c = arg;
  const tt_behind *b = &c->network.reduce->behind;
  bool gone = c->port.abort_flag != 0 || tt_port_status(&c->port) != ncclSuccess;
  for (int i = 0; i < b->n && !gone; i++) {
    tt_proxy_probe(c->network.proxy, b->ranks[i]);
    gone = atomic_load_explicit(&b->pages[i]->state, memory_order_acquire) >= TT_RANK_FAILED;
  }
  return gone;
}

// This head's connection and link. If the plugin cannot connect, the head says so and all ranks fall back. *hard: the
// error that ends the communicator.
static bool connect_head(struct ncclComm *c, const door *all, void *listener, ncclResult_t *hard)
{
  tt_comm_collnet *n = c->network.reduce;
  tt_collnet_comm *comm = NULL;
  int nodes = c->layout->nnodes, h = c->layout->index_of[c->rank];
  char *handles = tt_calloc((size_t)nodes, TT_NET_HANDLE);
  *hard = handles == NULL ? tt_fail(ncclSystemError, "rank %d: no memory for the handles of %d nodes", c->rank, nodes)
                          : make_link(c);
  if (*hard != ncclSuccess) {
    tt_collnet_close_listen(n->net, listener);
    tt_free(handles);
    return false;
  }
  for (int node = 0; node < nodes; node++) {
    memcpy(handles + (size_t)node * TT_NET_HANDLE, all[collnet_head_of(c, node, h)].handle, TT_NET_HANDLE);
  }
  const tt_collnet_group g = {
      .dev = h, .rank = c->layout->node_of[c->rank], .nranks = nodes, .handles = handles, .listener = listener};
  ncclResult_t res = tt_collnet_connect(n->net, &g, tt_net_patience() * TT_NS_PER_S, is_hopeless, c, &comm);
  tt_free(handles);
  if (res == ncclSuccess) {
    n->longest = tt_collnet_longest(comm);
    res = tt_proxy_sums_open(c->network.proxy, n->link, comm, &n->sums);
  }
  *hard = c->port.abort_flag && res != ncclSuccess
              ? tt_fail(ncclInternalError,
                        "rank %d: the communicator was aborted while a collective network connected its heads", c->rank)
              : ncclSuccess;
  return res == ncclSuccess;
}

// Everybody learns whether all heads have connected.
static ncclResult_t agree_on_links(struct ncclComm *c, bool mine, bool *good)
{
  tt_comm_collnet *n = c->network.reduce;
  const ready own = {.good = mine, .longest = collnet_is_head(c) ? n->longest : UINT64_MAX};
  ready *all;
  TT_TRY(tt_comm_exchange(c, &own, sizeof own, &all));
  n->longest = SIZE_MAX;
  *good = true;
  for (int i = 0; i < c->nranks && *good; i++) {
    n->longest = TT_MIN(n->longest, all[i].longest / 64 * 64);
    *good = all[i].good && all[i].longest >= LEAST_BYTES;
    if (!*good) {
      collnet_fall_back(c, all[i].good ? "it takes short messages only on rank" : "it cannot connect on rank", i);
    }
  }
  tt_free(all);
  return ncclSuccess;
}

static ncclResult_t collnet_connect_all(struct ncclComm *c, bool *good)
{
  void *listener = NULL;
  door *all;
  ncclResult_t res = listen_all(c, &all, &listener, good);
  if (*good) {
    bool mine = !collnet_is_head(c) || connect_head(c, all, listener, &res);
    res = res == ncclSuccess ? agree_on_links(c, mine, good) : res;
  }
  tt_free(all);
  return res;
}

// ---- life

ncclResult_t tt_comm_collnet_create(struct ncclComm *c)
{
  bool good = false;
  TT_TRY(TT_NEW(c->network.reduce, 1, "rank %d: no memory for a collective network", c->rank));
  ncclResult_t res = agree_on_plugin(c, &good);
  if (res == ncclSuccess && good) {
    res = collnet_connect_all(c, &good);
  }
  if (res != ncclSuccess || !good) {
    tt_comm_collnet_destroy(c);
    return res;
  }
  const tt_comm_collnet *n = c->network.reduce;
  if (n->link != NULL) {
    c->port.links[n->link->peer] = n->link;
  }
  tt_info(TT_INIT | TT_NET,
          "COLLNET: network %s reduces between %d nodes, %d heads each, %d of %d combinations of type and operation",
          tt_collnet_name(n->net), c->layout->nnodes, c->layout->heads, __builtin_popcountll(n->support),
          ncclNumTypes * TT_COLLNET_OPS);
  return ncclSuccess;
}

void tt_comm_collnet_destroy(struct ncclComm *c)
{
  tt_comm_collnet *n = c->network.reduce;
  if (n == NULL) {
    return;
  }
  tt_proxy_sums_close(n->sums);
  if (n->link != NULL) {
    c->port.links[n->link->peer] = NULL;
  }
  tt_collnet_close(n->net);
  tt_shm_unmap(n->base, n->size);
  tt_free(n->link);
  tt_free(n->ranks);
  tt_free(n->pages);
  tt_free(n);
  c->network.reduce = NULL;
}

bool tt_comm_collnet_allows(const struct ncclComm *c, tt_func func, ncclDataType_t type, int code)
{
  tt_comm_collnet *n = c->network.reduce;
  const int sum = tt_collnet_op(code);
  if (n == NULL || func != TT_FUNC_ALLREDUCE || sum < 0) {
    return false;
  }
  uint64_t bit = 1ull << ((int)type * TT_COLLNET_OPS + sum);
  if ((n->support & bit) == 0 && (n->reported & bit) == 0) {
    static const char *const ops[TT_COLLNET_OPS] = {"sum", "product", "maximum", "minimum"};
    n->reported |= bit;
    tt_info(TT_COLL | TT_NET, "COLLNET: network %s does not reduce type %s by %s: other algorithms do",
            tt_collnet_name(n->net), tt_type_name((int)type), ops[sum]);
  }
  return (n->support & bit) != 0;
}
