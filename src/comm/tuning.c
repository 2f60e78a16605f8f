// tuning.c: which algorithm, protocol and chunk size for an operation. The same answer on every rank: it depends on the size, on what all
// ranks know of each other, and on parameters that init compares.
#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "coll/select.h"
#include "comm/collnet.h"
#include "comm/comm.h"
#include "comm/topology.h"
#include "comm/tuning_priv.h"

// Sizes in bytes of the operation, from measurements on host memory (docs/notes/performance-log.md). DIRECT_MIN_…, DIRECT_CHUNK,
// and LL_MAX for the protocol, hold where no figures of the machine are known; else tt_tuning_limits finds others.
#define LL_MAX (16u << 10)     // up to here small slots win
#define ONESHOT_RANKS 8        // up to so many ranks everybody sends to everybody
#define ONESHOT_MAX (8u << 10) // bytes times ranks, for that
#define FLAT_CROWD 4           // ranks per core from which one rank sums for all, between processes, up to FLAT_MAX
#define FLAT_MAX (2u << 10)
#define TREE_CROWD 8                // and from which a tree is faster than a ring, and one for all also with longer messages
#define TREE_PART (4u << 10)        // of so short parts: from FLAT_CROWD on
#define CROWD_PART (8u << 10)       // parts up to which everybody sends to everybody, between processes whose cores are short,
#define CROWD_PART_FEW (128u << 10) // and with fewer than FLAT_CROWD ranks per core,
#define CROWD_SWAP_FEW (64u << 10)  // where everybody has something else for everybody
#define DIRECT_MIN_COPY (32u << 10) // from here a system call per copy pays
#define DIRECT_MIN_LOCAL (8u << 10) // from here meeting pays when the peer's memory is ours
#define DIRECT_CHUNK \
  (512u << 10) // of an all-reduce that fetches: two of them, and what is made of them, fit the second-level caches of two cores
#define PAIR_CHUNK (512u << 10)                              // of a reduce of two processes, twice that of a broadcast
#define SHARE_MIN (256u << 10)                               // of a broadcast or reduce of two processes
#define DIRECT_COPY_CHUNK (4u << 20)                         // of everything else: only bounds how long one step takes
#define DIRECT_PAGES_CHUNK ((TT_PAGEPIPE_PAGES - 1) * 4096u) // between processes: what a pipe holds, wherever it begins
#define MOST_TAKES_US 1000                                   // that a rank goes on looking for a peer that is at work
#define PIPELINE 4                                           // passes a message should take so that sender and receiver overlap
#define CHUNK_MIN (8u << 10)                                 // a second message costs more than what its copying overlaps with
#define CHANNEL_MIN (64u << 10)      // of the message, for each channel that takes part: less is not worth another order
#define NET_CHUNK_MIN (32u << 10)    // a message over the network costs two system calls
#define NET_SEGMENT (60u << 10)      // of a message, that TCP sends in one segment with its heads: Linux makes them of at most 64 KiB
#define NET_LARGE (4u << 20)         // from here on the longest messages that the network's slots hold
#define NET_LARGE_BLOCK (256u << 10) // and of parts that all ranks send and receive at the same time from here on

static tt_cost_env cost_env(const struct ncclComm *comm, const tt_tuning *t)
{
  tt_cost_env env = tt_cost_env_of(&t->figures, comm->peers[0].cpus);
  env.payload[TT_LL] = t->ll_capacity;
  env.slots[TT_LL] = comm->peers[0].geometry.ll_slots;
  env.payload[TT_SIMPLE] = TT_MIN(t->simple_capacity, t->net_capacity);
  return env;
}

ncclResult_t tt_tuning_limits(const tt_figures *f, tt_limits *out)
{
  tt_limits l = {.ll = LL_MAX, .direct_copy = DIRECT_MIN_COPY, .direct_local = DIRECT_MIN_LOCAL, .direct_chunk = DIRECT_CHUNK};
  TT_TRY(tt_limits_find(f, &l));
  *out = l;
  return ncclSuccess;
}

ncclResult_t tt_tuning_create(const struct ncclComm *comm, tt_tuning **out)
{
  const tt_params *p = tt_params_get();
  tt_tuning *t = tt_calloc(1, sizeof *t);
  if (t == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for tuning", comm->rank);
  }
  ncclResult_t res = tt_algo_filter_parse(p->algo, p->proto, &t->filter);
  tt_tuning_take_figures(comm, t);
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
                     .hier_rd = tt_algorithm_find("HierRD"),
                     .net_chain = tt_algorithm_find("CollNetChain"),
                     .net_direct = tt_algorithm_find("CollNetDirect")};
  tt_geometry g = comm->peers[0].geometry;
  t->ll_capacity = (uint32_t)(g.ll_slot_bytes - offsetof(tt_slot, data)) / 8 * 8;
  t->simple_capacity = g.simple_slot_bytes;
  t->net_capacity = g.net_slot_bytes;
  t->mixed = comm->layout->nnodes < comm->nranks;
  if (comm->network.needed && comm->nranks <= TT_MODEL_RANKS) {
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

bool tt_tuning_usable(const struct ncclComm *comm, tt_func func, int row, bool in_network)
{
  if (row < 0) {
    return false;
  }
  const tt_algorithm *a = &tt_algorithms(NULL)[row];
  uint32_t can = (comm->machine.can_read ? TT_NEEDS_READ | TT_NEEDS_WRITE : 0);
  bool net = !a->in_network || comm->nranks == 1 || (in_network && (comm->tuning->filter.protos[func] & TT_PROTO_SIMPLE) != 0);
  return (a->funcs & 1u << func) != 0 && (a->needs & ~can) == 0 && net && (comm->tuning->filter.algos[func] & 1u << row) != 0;
}

// Where a file describes the machine, ranks do what that machine's would, as far as this device has it: the row, or -1. The user's own
// choice of algorithms goes before, and that machine's model knows nothing of a network that reduces.
static int follow_machine(const struct ncclComm *comm, tt_func func, size_t bytes, bool in_network)
{
  static const tt_model_func funcs[] = {[TT_FUNC_BROADCAST] = TT_MODEL_BROADCAST,
                                        [TT_FUNC_REDUCE] = TT_MODEL_REDUCE,
                                        [TT_FUNC_ALLGATHER] = TT_MODEL_ALL_GATHER,
                                        [TT_FUNC_REDUCESCATTER] = TT_MODEL_REDUCE_SCATTER,
                                        [TT_FUNC_ALLREDUCE] = TT_MODEL_ALL_REDUCE};
  const tt_rows *r = &comm->tuning->row;
  if ((size_t)func >= TT_COUNT(funcs) || tt_params_get()->algo != NULL || comm->nranks == 1 || in_network) {
    return -1;
  }
  tt_model_algo algo = tt_topology_algo(comm->topology, comm->tuning->model, funcs[func], bytes);
  int row = algo == TT_MODEL_RING ? r->ring : algo == TT_MODEL_TREE ? r->tree : algo == TT_MODEL_PAT ? r->pat : -1;
  return tt_tuning_usable(comm, func, row, false) ? row : -1;
}

// Ranks per core of the only machine, where cores are short; else 0.
static int crowd_of(const struct ncclComm *comm)
{
  return comm->machine.crowded && !comm->network.needed && comm->peers[0].cpus > 0 ? comm->nranks / comm->peers[0].cpus : 0;
}

// Does everybody send everybody its part? Then each rank must have a core once, not in every round.
static bool one_hop(const struct ncclComm *comm, size_t bytes)
{
  return comm->machine.crowded && !comm->network.needed && bytes <= LL_MAX;
}

// Does one rank sum for all? Where cores are short, what counts is the work of all ranks together and how often a core changes hands: 2n messages
// do, and each rank has its core twice at most. Between processes the one that sums must have its turn in between, which pays from some ranks per
// core on; and it does all the work alone, which with few ranks is more than what the others save as soon as messages are longer than FLAT_MAX.
static bool one_for_all(const struct ncclComm *comm, size_t bytes)
{
  if (!one_hop(comm, bytes)) {
    return false;
  }
  return comm->machine.all_local || crowd_of(comm) >= (bytes <= FLAT_MAX ? FLAT_CROWD : TREE_CROWD);
}

// Do processes share cores? Then what waits least wins: whoever sends through a FIFO needs no turn of the receiver's for that.
static bool has_turns(const struct ncclComm *comm)
{
  return comm->machine.crowded && !comm->machine.all_local && !comm->network.needed;
}

// Are a ring's hops, each of which waits for the neighbour's turn, too many for an all-reduce? With very many ranks per core always; with many, where messages
// are so short that the hop costs more than its bytes.
static bool many_hops(const struct ncclComm *comm, size_t bytes)
{
  return crowd_of(comm) >= (bytes / (size_t)comm->nranks <= TREE_PART ? FLAT_CROWD : TREE_CROWD);
}

static bool has_blocks(tt_func func)
{
  return func == TT_FUNC_ALLGATHER || func == TT_FUNC_REDUCESCATTER || func == TT_FUNC_ALLTOALL || func == TT_FUNC_GATHER ||
         func == TT_FUNC_SCATTER;
}

// Are the parts short enough to send each straight to who needs it? With longer ones all connections together do not fit into the caches.
static bool short_parts(const struct ncclComm *comm, tt_func func, size_t bytes)
{
  size_t few = func == TT_FUNC_ALLTOALL ? CROWD_SWAP_FEW : CROWD_PART_FEW;
  return bytes / (size_t)comm->nranks <= (crowd_of(comm) < FLAT_CROWD ? few : CROWD_PART);
}

// Direct access between processes lets everybody wait for everybody several times per pass: where cores are short, each time all ranks must have had a
// core. Collectives through FIFOs go from rank to rank, in whatever order they get it, and root and leaves run ahead. But Ring's ranks wait for each other
// in every hop of every pass: with few ranks per core an all-reduce of more than one pass waits less where each rank reads what it sums.
static bool must_take_turns(const struct ncclComm *comm, tt_func func, size_t bytes)
{
  if (!has_turns(comm) || tt_params_get()->host_direct_threshold >= 0) {
    return false;
  }
  if (func == TT_FUNC_ALLREDUCE && crowd_of(comm) < FLAT_CROWD && bytes / (size_t)comm->nranks > comm->tuning->simple_capacity) {
    return false;
  }
  return func <= TT_FUNC_ALLREDUCE || (func == TT_FUNC_ALLTOALL && short_parts(comm, func, bytes));
}

// Where cores are short: does everybody send everybody who needs it its part, rather than by way of others?
static bool straight_on(const struct ncclComm *comm, tt_func func, size_t bytes)
{
  if (one_hop(comm, bytes)) {
    return true;
  }
  switch (func) {
  case TT_FUNC_BROADCAST:
  case TT_FUNC_REDUCE: return has_turns(comm);
  case TT_FUNC_REDUCESCATTER: return has_turns(comm) && (crowd_of(comm) < TREE_CROWD || short_parts(comm, func, bytes));
  default: return has_turns(comm) && short_parts(comm, func, bytes);
  }
}

// Between processes: do ranks share the work of a broadcast or reduce, and write parts into each other's outputs? Else one copies for all, or all from
// one. A part of a reduce is fetched by whoever sums it, and written back: each must be worth a copy. What all ranks sum or copy anyway is read: the kernel
// writes slower than it reads. Two ranks decide that chunk by chunk (coll/directw.c), and below SHARE_MIN gain more by not waiting for each other.
static bool shares_pay(const struct ncclComm *comm, tt_func func, size_t bytes)
{
  if (comm->nranks == 2) {
    return (func == TT_FUNC_BROADCAST || func == TT_FUNC_REDUCE) && bytes >= SHARE_MIN;
  }
  return func == TT_FUNC_BROADCAST || (func == TT_FUNC_REDUCE && bytes / (size_t)comm->nranks >= comm->tuning->direct_min);
}

// Two ranks of a process: up to the size where meeting pays for good, the one that sends goes on at once through a FIFO, and both copies stay in the caches.
static bool goes_ahead(const struct ncclComm *comm, tt_func func, size_t bytes)
{
  bool one_way = func == TT_FUNC_BROADCAST || func == TT_FUNC_REDUCE;
  return one_way && comm->nranks == 2 && comm->machine.all_local && bytes < 2 * comm->tuning->direct_min &&
         tt_params_get()->host_direct_threshold < 0;
}

// The order in which algorithms are considered for a function and size; -1 ends the list.
static void preferences(const struct ncclComm *comm, tt_func func, size_t bytes, int list[10])
{
  const tt_tuning *t = comm->tuning;
  const tt_rows *r = &t->row;
  int n = 0;
  bool small = comm->nranks <= ONESHOT_RANKS && bytes * (size_t)comm->nranks <= ONESHOT_MAX;
  bool straight = straight_on(comm, func, bytes);
  if (bytes >= t->direct_min && comm->nranks > 1 && !must_take_turns(comm, func, bytes) && !goes_ahead(comm, func, bytes)) {
    list[n++] = comm->machine.all_local || shares_pay(comm, func, bytes) ? r->directw : r->direct;
    list[n++] = r->direct;
  }
  switch (func) {
  case TT_FUNC_ALLREDUCE:
    if (bytes > LL_MAX) {
      list[n++] = r->net_chain;
    }
    if (comm->network.needed && comm->machine.shares) {
      list[n++] = bytes <= LL_MAX ? r->hier_rd : r->hier_ring;
    }
    if (one_for_all(comm, bytes)) {
      list[n++] = r->hier_rd;
    }
    list[n++] = small ? r->oneshot : bytes <= LL_MAX ? r->rd : many_hops(comm, bytes) ? r->tree : r->ring;
    list[n++] = r->tree;
    break;
  case TT_FUNC_ALLGATHER: list[n++] = small || straight ? r->oneshot : bytes <= LL_MAX ? r->pat : r->ring; break;
  case TT_FUNC_REDUCESCATTER: list[n++] = straight ? r->oneshot : comm->nranks > 2 && bytes <= LL_MAX ? r->pat : r->ring; break;
  case TT_FUNC_BROADCAST:
  case TT_FUNC_REDUCE: list[n++] = straight ? r->oneshot : comm->nranks > 2 && bytes <= LL_MAX ? r->tree : r->ring; break;
  default: list[n++] = func == TT_FUNC_ALLTOALL ? r->pairwise : r->linear; break;
  }
  list[n] = -1;
}

static int pick_algorithm(const struct ncclComm *comm, tt_func func, size_t bytes, bool in_network)
{
  int list[10], count;
  preferences(comm, func, bytes, list);
  for (int i = 0; list[i] >= 0; i++) {
    if (tt_tuning_usable(comm, func, list[i], in_network)) {
      return list[i];
    }
  }
  tt_algorithms(&count);
  for (int i = 0; i < count; i++) { // whatever the user left
    if (tt_tuning_usable(comm, func, i, in_network)) {
      return i;
    }
  }
  return -1;
}

// As much of a slot as goes in whole segments. A message of 64 KiB takes a second, tiny one, which costs nearly as much as the long one.
static size_t whole_segments(size_t capacity)
{
  return capacity < NET_SEGMENT ? capacity : capacity / NET_SEGMENT * NET_SEGMENT;
}

// Send and receive over the network: as large as the messages may be.
static size_t pick_net_chunk(const struct ncclComm *comm, size_t capacity, size_t bytes)
{
  size_t limit = (size_t)TT_CLAMP(comm->peers[0].net_chunk, 64, 1 << 30) / 64 * 64;
  return TT_CLAMP(TT_ROUND_UP(bytes, 64), 64, TT_MIN(capacity, whole_segments(limit)));
}

// The longest message. Collectives use connections of both kinds where some ranks share memory.
static size_t capacity_of(const struct ncclComm *comm, const tt_choice *c, tt_func func)
{
  const tt_tuning *t = comm->tuning;
  if (tt_algorithms(NULL)[c->algo].in_network && comm->network.reduce != NULL) {
    return TT_MIN(TT_MIN(t->simple_capacity, t->net_capacity), comm->network.reduce->longest);
  }
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
  return algo == r->ring && func == TT_FUNC_ALLREDUCE ? (size_t)comm->nranks
         : algo == r->net_direct                      ? (size_t)tt_collnet_heads(comm->layout, comm->nranks)
         : algo == r->tree && !one_tree               ? 2
                                                      : 1;
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

// What one rank sends of one sub-chunk in all passes together.
static size_t part_of(const struct ncclComm *comm, int algo, tt_func func, size_t bytes)
{
  return (has_blocks(func) ? bytes / (size_t)comm->nranks : bytes) / subs_of(comm, algo, func);
}

// Of direct access where nothing is summed twice. Between processes equal chunks that each fit into a pipe of full length; but, where cores are short and
// all wait for all, whole blocks of up to DIRECT_COPY_CHUNK, so that they do it once: the kernel reads what the pipe does not hold.
static size_t direct_chunk(const struct ncclComm *comm, tt_func func, size_t bytes)
{
  if (comm->machine.all_local || (has_turns(comm) && has_blocks(func))) {
    return DIRECT_COPY_CHUNK;
  }
  size_t part = has_blocks(func) ? bytes / (size_t)comm->nranks : bytes, passes = TT_MAX(TT_DIV_UP(part, DIRECT_PAGES_CHUNK), 1);
  return TT_CLAMP(TT_ROUND_UP(TT_DIV_UP(part, passes), 4096), 4096, DIRECT_PAGES_CHUNK);
}

// Of direct access where ranks share the work. Two processes may have to hand chunks over, and sums of whole chunks are made while these are in a cache.
static size_t shared_chunk(const struct ncclComm *comm, tt_func func)
{
  if (comm->nranks > 2 || comm->machine.all_local) {
    return DIRECT_COPY_CHUNK;
  }
  return func == TT_FUNC_REDUCE ? PAIR_CHUNK : 2 * PAIR_CHUNK;
}

// Chunk size: as large as a slot, but small enough that a message takes several passes.
static size_t pick_chunk(const struct ncclComm *comm, const tt_choice *c, tt_func func, size_t bytes)
{
  if (c->direct) {
    return func == TT_FUNC_ALLREDUCE && c->fetches ? comm->tuning->limits.direct_chunk
           : c->algo == comm->tuning->row.directw  ? shared_chunk(comm, func)
                                                   : direct_chunk(comm, func, bytes);
  }
  size_t capacity = c->networked ? whole_segments(capacity_of(comm, c, func)) : capacity_of(comm, c, func);
  if (c->networked && (func == TT_FUNC_SEND || func == TT_FUNC_RECV)) {
    return pick_net_chunk(comm, capacity, bytes);
  }
  size_t chunk = TT_ROUND_UP(TT_DIV_UP(part_of(comm, c->algo, func, bytes), comm->machine.crowded ? 1 : PIPELINE), 64);
  return TT_CLAMP(chunk, TT_MIN(c->networked ? NET_CHUNK_MIN : CHUNK_MIN, capacity), capacity);
}

// The model knows nothing of segments. Where a message takes several passes anyway, they are whole ones; where it takes many, there are chunks enough to
// overlap, and the longest that the network's slots hold cost fewer calls. Where each rank sends while it receives, few are enough.
static size_t fit_segments(const struct ncclComm *comm, const tt_choice *c, tt_func func, size_t bytes)
{
  size_t part = part_of(comm, c->algo, func, bytes);
  bool both_ways = has_blocks(func) && func != TT_FUNC_GATHER && func != TT_FUNC_SCATTER;
  bool large = bytes >= NET_LARGE || (both_ways && part >= NET_LARGE_BLOCK);
  bool longest = large && c->chunk == comm->tuning->simple_capacity;
  return part > c->chunk ? whole_segments(longest ? capacity_of(comm, c, func) : c->chunk) : c->chunk;
}

// What the cost model finds best; algo -1 when it has nothing to say.
static ncclResult_t ask_model(const struct ncclComm *comm, tt_func func, size_t bytes, bool in_network, tt_choice *c)
{
  const tt_tuning *t = comm->tuning;
  tt_cost_choice best = {.algo = -1};
  uint32_t algos = 0;
  int count;
  tt_algorithms(&count);
  for (int i = 0; i < count; i++) {
    algos |= tt_tuning_usable(comm, func, i, in_network) ? 1u << i : 0;
  }
  TT_TRY(tt_cost_best(t->cost, func, bytes, algos, t->filter.protos[func], &best));
  *c = (tt_choice){.algo = best.algo, .proto = best.proto, .networked = true};
  if (best.algo >= 0) {
    c->chunk = TT_MIN(TT_ROUND_UP(TT_MAX(best.chunk, 1), 64), capacity_of(comm, c, func));
    c->chunk = c->proto == TT_SIMPLE ? fit_segments(comm, c, func, bytes) : c->chunk;
  }
  return ncclSuccess;
}

// The rest of a choice whose algorithm, protocol and way are known.
static void settle(const struct ncclComm *comm, tt_func func, size_t bytes, tt_proto proto, tt_choice *c)
{
  c->direct = tt_algorithms(NULL)[c->algo].needs != 0;
  c->fetches = c->algo == comm->tuning->row.direct;
  c->proto = c->direct ? TT_TOK : tt_algorithms(NULL)[c->algo].in_network ? TT_SIMPLE : proto;
  c->chunk = pick_chunk(comm, c, func, bytes);
  c->channels = pick_channels(comm, c, func, bytes);
}

// The rest of a choice whose algorithm is known.
static void finish(const struct ncclComm *comm, tt_func func, size_t bytes, int peer, tt_choice *c)
{
  const tt_tuning *t = comm->tuning;
  uint32_t protos = t->filter.protos[func];
  c->networked = func == TT_FUNC_SEND || func == TT_FUNC_RECV ? tt_transport_needs_net(&comm->peers[comm->rank].at, &comm->peers[peer].at)
                                                              : comm->network.needed;
  // Every pass costs a change of thread when cores are short, and system calls over the network.
  size_t ll_max = comm->machine.crowded || c->networked ? t->ll_capacity : t->limits.ll;
  size_t message = has_turns(comm) && has_blocks(func) ? bytes / (size_t)comm->nranks : bytes;
  bool ll = (protos & TT_PROTO_LL) != 0 && (message <= ll_max || (protos & TT_PROTO_SIMPLE) == 0);
  settle(comm, func, bytes, ll ? TT_LL : TT_SIMPLE, c);
  c->tiny = c->proto == TT_LL && has_turns(comm) && func < TT_FUNC_SEND && message <= TT_TINY_BYTES;
}

ncclResult_t tt_tuning_choose(const struct ncclComm *comm, tt_func func, size_t bytes, int peer, bool in_network, tt_choice *out)
{
  const tt_tuning *t = comm->tuning;
  int followed = follow_machine(comm, func, bytes, in_network);
  if (followed < 0 && t->cost != NULL && func != TT_FUNC_SEND && func != TT_FUNC_RECV && t->filter.protos[func] != 0) {
    tt_choice best;
    TT_TRY(ask_model(comm, func, bytes, in_network, &best));
    if (best.algo >= 0) {
      best.channels = pick_channels(comm, &best, func, bytes);
      *out = best;
      return ncclSuccess;
    }
  }
  tt_choice c = {.algo = followed >= 0 ? followed : pick_algorithm(comm, func, bytes, in_network)};
  bool self = (func == TT_FUNC_SEND || func == TT_FUNC_RECV) && peer == comm->rank;
  if (self) {
    c.algo = t->row.linear; // tokens to oneself would not tell who said them
  }
  if (c.algo < 0) {
    uint32_t nets = func == TT_FUNC_ALLREDUCE ? t->filter.algos[func] & (1u << t->row.net_chain | 1u << t->row.net_direct) : 0;
    return tt_fail(ncclInvalidUsage, "no algorithm is left for %s on rank %d: NCCL_ALGO=%s%s", tt_func_name(func), comm->rank,
                   tt_params_get()->algo == NULL ? "(unset)" : tt_params_get()->algo,
                   nets != 0 ? ", and the network does not reduce this (NCCL_COLLNET_ENABLE=1 and NCCL_DEBUG=INFO say why)" : "");
  }
  if (t->filter.protos[func] == 0) {
    return tt_fail(ncclInvalidUsage, "no protocol is left for %s on rank %d: NCCL_PROTO=%s", tt_func_name(func), comm->rank,
                   tt_params_get()->proto);
  }
  finish(comm, func, bytes, peer, &c);
  *out = c;
  return ncclSuccess;
}

// From memory a byte takes twice as long.
uint32_t tt_tuning_takes_us(const struct ncclComm *comm, size_t bytes)
{
  const tt_tuning *t = comm->tuning;
  double us = 2 * (double)bytes / t->figures.value[TT_FIG_CALL];
  if (comm->network.needed) {
    tt_cost_env env = cost_env(comm, t);
    us = (double)bytes * (env.hop[TT_HOP_NETWORK][TT_SIMPLE].byte + env.net_byte);
  }
  return (uint32_t)TT_MIN(us, MOST_TAKES_US);
}

void tt_tuning_take(const struct ncclComm *comm, tt_func func, size_t bytes, tt_proto proto, tt_choice *c)
{
  c->networked = comm->network.needed;
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
