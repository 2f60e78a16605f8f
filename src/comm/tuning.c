// tuning.c: which algorithm, protocol and chunk size for an operation. The same answer on every rank: it depends on the size, on what all
// ranks know of each other, and on parameters that init compares.
#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "coll/select.h"
#include "comm/comm.h"
#include "comm/topology.h"
#include "comm/tuning_priv.h"

// Sizes in bytes of the operation, from measurements on host memory (docs/performance.md).
#define LL_MAX (16u << 10)           // up to here small slots win
#define ONESHOT_RANKS 8              // up to so many ranks everybody sends to everybody
#define ONESHOT_MAX (8u << 10)       // bytes times ranks, for that
#define DIRECT_MIN_COPY (32u << 10)  // from here a system call per copy pays
#define DIRECT_MIN_LOCAL (8u << 10)  // from here meeting pays when the peer's memory is ours
#define DIRECT_CHUNK (256u << 10)    // of an all-reduce: what is summed is fetched while it is in the caches
#define DIRECT_COPY_CHUNK (4u << 20) // of everything else: only bounds how long one step takes
#define PIPELINE 4                   // passes a message should take so that sender and receiver overlap
#define CHUNK_MIN (4u << 10)
#define CHANNEL_MIN (64u << 10)   // of the message, for each channel that takes part: less is not worth another order
#define NET_CHUNK_MIN (32u << 10) // a message over the network costs two system calls
#define NET_LARGE (4u << 20)      // from here on the longest messages that the network's slots hold

static tt_cost_env cost_env(const struct ncclComm *comm, const tt_tuning *t)
{
  tt_cost_env env = tt_cost_env_default(comm->peers[0].cpus);
  env.payload[TT_LL] = t->ll_capacity;
  env.payload[TT_SIMPLE] = TT_MIN(t->simple_capacity, t->net_capacity);
  return env;
}

ncclResult_t tt_tuning_create(const struct ncclComm *comm, tt_tuning **out)
{
  const tt_params *p = tt_params_get();
  tt_tuning *t = tt_calloc(1, sizeof *t);
  if (t == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for tuning", comm->rank);
  }
  ncclResult_t res = tt_algo_filter_parse(p->algo, p->proto, &t->filter);
  if (res != ncclSuccess) {
    tt_free(t);
    return res;
  }
  t->row = (tt_rows){.ring = tt_algorithm_find("Ring"),
                     .tree = tt_algorithm_find("Tree"),
                     .rd = tt_algorithm_find("RD"),
                     .pat = tt_algorithm_find("PAT"),
                     .oneshot = tt_algorithm_find("Oneshot"),
                     .direct = tt_algorithm_find("Direct"),
                     .directw = tt_algorithm_find("DirectWrite"),
                     .pairwise = tt_algorithm_find("Pairwise"),
                     .linear = tt_algorithm_find("Linear"),
                     .hier_ring = tt_algorithm_find("HierRing"),
                     .hier_rd = tt_algorithm_find("HierRD")};
  t->direct_min = p->host_direct_threshold >= 0 ? (size_t)p->host_direct_threshold : comm->all_local ? DIRECT_MIN_LOCAL : DIRECT_MIN_COPY;
  tt_geometry g = comm->peers[0].geometry;
  t->ll_capacity = (uint32_t)(g.ll_slot_bytes - offsetof(tt_slot, data)) / 8 * 8;
  t->simple_capacity = g.simple_slot_bytes;
  t->net_capacity = g.net_slot_bytes;
  t->mixed = comm->layout->nnodes < comm->nranks;
  if (comm->needs_net && comm->nranks <= TT_MODEL_RANKS) {
    tt_cost_env env = cost_env(comm, t);
    res = tt_cost_create(&env, comm->nranks, comm->layout, &t->cost);
  }
  if (res != ncclSuccess) {
    tt_free(t);
    return res;
  }
  res = tt_tuning_open_plugin(comm, t);
  if (res != ncclSuccess) {
    tt_tuning_destroy(t);
    return res;
  }
  *out = t;
  return ncclSuccess;
}

void tt_tuning_destroy(tt_tuning *t)
{
  if (t != NULL) {
    tt_tuning_drop_plugin(t);
    tt_cost_destroy(t->cost);
    tt_cost_destroy(t->estimates);
  }
  tt_free(t);
}

bool tt_tuning_usable(const struct ncclComm *comm, tt_func func, int row)
{
  if (row < 0) {
    return false;
  }
  const tt_algorithm *a = &tt_algorithms(NULL)[row];
  uint32_t can = (comm->can_read ? TT_NEEDS_READ | TT_NEEDS_WRITE : 0);
  return (a->funcs & 1u << func) != 0 && (a->needs & ~can) == 0 && (comm->tuning->filter.algos[func] & 1u << row) != 0;
}

// Where a file describes the machine, ranks do what that machine's would, as far as this device has it: the row, or -1. The user's own
// choice of algorithms goes before.
static int follow_machine(const struct ncclComm *comm, tt_func func, size_t bytes)
{
  static const tt_model_func funcs[] = {[TT_FUNC_BROADCAST] = TT_MODEL_BROADCAST,
                                        [TT_FUNC_REDUCE] = TT_MODEL_REDUCE,
                                        [TT_FUNC_ALLGATHER] = TT_MODEL_ALL_GATHER,
                                        [TT_FUNC_REDUCESCATTER] = TT_MODEL_REDUCE_SCATTER,
                                        [TT_FUNC_ALLREDUCE] = TT_MODEL_ALL_REDUCE};
  const tt_rows *r = &comm->tuning->row;
  if ((size_t)func >= TT_COUNT(funcs) || tt_params_get()->algo != NULL || comm->nranks == 1) {
    return -1;
  }
  tt_model_algo algo = tt_topology_algo(comm->topology, comm->tuning->model, funcs[func], bytes);
  int row = algo == TT_MODEL_RING ? r->ring : algo == TT_MODEL_TREE ? r->tree : algo == TT_MODEL_PAT ? r->pat : -1;
  return tt_tuning_usable(comm, func, row) ? row : -1;
}

// The order in which algorithms are considered for a function and size; -1 ends the list.
static void preferences(const struct ncclComm *comm, tt_func func, size_t bytes, int list[8])
{
  const tt_tuning *t = comm->tuning;
  const tt_rows *r = &t->row;
  int n = 0;
  bool small = comm->nranks <= ONESHOT_RANKS && bytes * (size_t)comm->nranks <= ONESHOT_MAX;
  if (bytes >= t->direct_min && comm->nranks > 1) {
    list[n++] = comm->all_local ? r->directw : r->direct;
    list[n++] = r->direct;
  }
  switch (func) {
  case TT_FUNC_ALLREDUCE:
    if (comm->needs_net && comm->shares) {
      list[n++] = bytes <= LL_MAX ? r->hier_rd : r->hier_ring;
    }
    list[n++] = small ? r->oneshot : bytes <= LL_MAX ? r->rd : r->ring;
    list[n++] = r->tree;
    break;
  case TT_FUNC_ALLGATHER: list[n++] = small ? r->oneshot : bytes <= LL_MAX ? r->pat : r->ring; break;
  case TT_FUNC_REDUCESCATTER: list[n++] = comm->nranks > 2 && bytes <= LL_MAX ? r->pat : r->ring; break;
  case TT_FUNC_BROADCAST:
  case TT_FUNC_REDUCE: list[n++] = comm->nranks > 2 && bytes <= LL_MAX ? r->tree : r->ring; break;
  default: list[n++] = func == TT_FUNC_ALLTOALL ? r->pairwise : r->linear; break;
  }
  list[n] = -1;
}

static int pick_algorithm(const struct ncclComm *comm, tt_func func, size_t bytes)
{
  int list[8], count;
  preferences(comm, func, bytes, list);
  for (int i = 0; list[i] >= 0; i++) {
    if (tt_tuning_usable(comm, func, list[i])) {
      return list[i];
    }
  }
  tt_algorithms(&count);
  for (int i = 0; i < count; i++) { // whatever the user left
    if (tt_tuning_usable(comm, func, i)) {
      return i;
    }
  }
  return -1;
}

// Send and receive over the network: as large as the messages may be.
static size_t pick_net_chunk(const struct ncclComm *comm, size_t capacity, size_t bytes)
{
  size_t limit = (size_t)TT_CLAMP(comm->peers[0].net_chunk, 64, 1 << 30) / 64 * 64;
  return TT_CLAMP(TT_ROUND_UP(bytes, 64), 64, TT_MIN(capacity, limit));
}

// The longest message. Collectives use connections of both kinds where some ranks share memory.
static size_t capacity_of(const struct ncclComm *comm, const tt_choice *c, tt_func func)
{
  const tt_tuning *t = comm->tuning;
  if (c->proto == TT_LL || !c->networked) {
    return c->proto == TT_LL ? t->ll_capacity : t->simple_capacity;
  }
  bool both = t->mixed && func != TT_FUNC_SEND && func != TT_FUNC_RECV;
  return both ? TT_MIN(t->simple_capacity, t->net_capacity) : t->net_capacity;
}

size_t tt_tuning_longest(const struct ncclComm *comm, tt_func func, const tt_choice *c)
{
  return c->direct ? DIRECT_COPY_CHUNK : capacity_of(comm, c, func);
}

// Chunks of a block in one pass of Ring and Tree.
static size_t subs_of(const struct ncclComm *comm, int algo, tt_func func)
{
  const tt_rows *r = &comm->tuning->row;
  bool one_tree = comm->layout->channels.ups != NULL;
  return algo == r->ring && func == TT_FUNC_ALLREDUCE ? (size_t)comm->nranks : algo == r->tree && !one_tree ? 2 : 1;
}

static bool has_blocks(tt_func func)
{
  return func == TT_FUNC_ALLGATHER || func == TT_FUNC_REDUCESCATTER || func == TT_FUNC_ALLTOALL || func == TT_FUNC_GATHER ||
         func == TT_FUNC_SCATTER;
}

// How many channels share a message, the first ones. The same on every rank, whose sizes and layouts are the same. Small messages use one:
// a channel is a turn, and gains nothing where a rank has one core. Each gets whole passes; where passes follow one another down a chain or
// tree, enough of them that filling it anew is a small part. How many channels there are is for those to say who make them:
// NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS and the configuration's CTAs belong into the layout's number (tt_connect_options), which all ranks
// must share.
static int pick_channels(const struct ncclComm *comm, const tt_choice *c, tt_func func, size_t bytes)
{
  int most = tt_algorithm_channels(&tt_algorithms(NULL)[c->algo], comm->layout);
  if (most <= 1 || comm->nranks == 1) {
    return 1;
  }
  bool chain = c->algo != comm->tuning->row.ring || func == TT_FUNC_BROADCAST || func == TT_FUNC_REDUCE;
  size_t block = has_blocks(func) ? bytes / (size_t)comm->nranks : bytes, least = chain ? 2 * (size_t)comm->nranks : 1;
  size_t passes = block / (subs_of(comm, c->algo, func) * c->chunk);
  return (int)TT_CLAMP(TT_MIN(passes / least, bytes / CHANNEL_MIN), 1, (size_t)most);
}

// Chunk size: as large as a slot, but small enough that a message takes several passes.
static size_t pick_chunk(const struct ncclComm *comm, const tt_choice *c, tt_func func, size_t bytes)
{
  if (c->direct) {
    return func == TT_FUNC_ALLREDUCE ? DIRECT_CHUNK : DIRECT_COPY_CHUNK;
  }
  size_t capacity = capacity_of(comm, c, func);
  if (c->networked && (func == TT_FUNC_SEND || func == TT_FUNC_RECV)) {
    return pick_net_chunk(comm, capacity, bytes);
  }
  size_t part = (has_blocks(func) ? bytes / (size_t)comm->nranks : bytes) / subs_of(comm, c->algo, func);
  size_t chunk = TT_ROUND_UP(TT_DIV_UP(part, comm->crowded ? 1 : PIPELINE), 64);
  return TT_CLAMP(chunk, TT_MIN(c->networked ? NET_CHUNK_MIN : CHUNK_MIN, capacity), capacity);
}

// What the cost model finds best; algo -1 when it has nothing to say.
static ncclResult_t ask_model(const struct ncclComm *comm, tt_func func, size_t bytes, tt_choice *c)
{
  const tt_tuning *t = comm->tuning;
  tt_cost_choice best = {.algo = -1};
  uint32_t algos = 0;
  int count;
  tt_algorithms(&count);
  for (int i = 0; i < count; i++) {
    algos |= tt_tuning_usable(comm, func, i) ? 1u << i : 0;
  }
  TT_TRY(tt_cost_best(t->cost, func, bytes, algos, t->filter.protos[func], &best));
  *c = (tt_choice){.algo = best.algo, .proto = best.proto, .networked = true};
  if (best.algo >= 0) {
    c->chunk = TT_ROUND_UP(TT_MAX(best.chunk, 1), 64);
    c->chunk = TT_MIN(c->chunk, capacity_of(comm, c, func));
    if (bytes >= NET_LARGE && c->proto == TT_SIMPLE && c->chunk == t->simple_capacity) {
      c->chunk = capacity_of(comm, c, func); // there are chunks enough to overlap; longer ones cost fewer calls
    }
  }
  return ncclSuccess;
}

// The rest of a choice whose algorithm, protocol and way are known.
static void settle(const struct ncclComm *comm, tt_func func, size_t bytes, tt_proto proto, tt_choice *c)
{
  c->direct = tt_algorithms(NULL)[c->algo].needs != 0;
  c->fetches = c->algo == comm->tuning->row.direct;
  c->proto = c->direct ? TT_TOK : proto;
  c->chunk = pick_chunk(comm, c, func, bytes);
  c->channels = pick_channels(comm, c, func, bytes);
}

// The rest of a choice whose algorithm is known.
static void finish(const struct ncclComm *comm, tt_func func, size_t bytes, int peer, tt_choice *c)
{
  const tt_tuning *t = comm->tuning;
  uint32_t protos = t->filter.protos[func];
  c->networked =
      func == TT_FUNC_SEND || func == TT_FUNC_RECV ? tt_transport_needs_net(&comm->peers[comm->rank], &comm->peers[peer]) : comm->needs_net;
  // Every pass costs a change of thread when cores are short, and system calls over the network.
  size_t ll_max = comm->crowded || c->networked ? t->ll_capacity : LL_MAX;
  bool ll = (protos & TT_PROTO_LL) != 0 && (bytes <= ll_max || (protos & TT_PROTO_SIMPLE) == 0);
  settle(comm, func, bytes, ll ? TT_LL : TT_SIMPLE, c);
}

ncclResult_t tt_tuning_choose(const struct ncclComm *comm, tt_func func, size_t bytes, int peer, tt_choice *out)
{
  const tt_tuning *t = comm->tuning;
  int followed = follow_machine(comm, func, bytes);
  if (followed < 0 && t->cost != NULL && func != TT_FUNC_SEND && func != TT_FUNC_RECV && t->filter.protos[func] != 0) {
    tt_choice best;
    TT_TRY(ask_model(comm, func, bytes, &best));
    if (best.algo >= 0) {
      best.channels = pick_channels(comm, &best, func, bytes);
      *out = best;
      return ncclSuccess;
    }
  }
  tt_choice c = {.algo = followed >= 0 ? followed : pick_algorithm(comm, func, bytes)};
  bool self = (func == TT_FUNC_SEND || func == TT_FUNC_RECV) && peer == comm->rank;
  if (self) {
    c.algo = t->row.linear; // tokens to oneself would not tell who said them
  }
  if (c.algo < 0) {
    return tt_fail(ncclInvalidUsage, "no algorithm is left for %s on rank %d: NCCL_ALGO=%s", tt_func_name(func), comm->rank,
                   tt_params_get()->algo == NULL ? "(unset)" : tt_params_get()->algo);
  }
  if (t->filter.protos[func] == 0) {
    return tt_fail(ncclInvalidUsage, "no protocol is left for %s on rank %d: NCCL_PROTO=%s", tt_func_name(func), comm->rank,
                   tt_params_get()->proto);
  }
  finish(comm, func, bytes, peer, &c);
  *out = c;
  return ncclSuccess;
}

void tt_tuning_take(const struct ncclComm *comm, tt_func func, size_t bytes, tt_proto proto, tt_choice *c)
{
  c->networked = comm->needs_net;
  settle(comm, func, bytes, proto, c);
}

tt_cost_env tt_tuning_costs(const struct ncclComm *comm)
{
  return cost_env(comm, comm->tuning);
}

ncclResult_t tt_tuning_estimate(struct ncclComm *comm, tt_func func, size_t bytes, const tt_choice *choice, double *us)
{
  tt_tuning *t = comm->tuning;
  if (t->cost == NULL && t->estimates == NULL) {
    tt_cost_env env = cost_env(comm, t);
    TT_TRY(tt_cost_create(&env, comm->nranks, comm->layout, &t->estimates));
  }
  tt_cost_choice cost;
  TT_TRY(tt_cost_estimate(t->cost != NULL ? t->cost : t->estimates, func, choice->algo, choice->direct ? TT_SIMPLE : choice->proto, bytes,
                          &cost));
  *us = cost.us;
  return ncclSuccess;
}
