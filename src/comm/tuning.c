// tuning.c: which algorithm, protocol and chunk size for an operation. The same answer on every rank: it depends on the
// size, on what all ranks know of each other, and on parameters that init compares.
#include "comm/tuning.h"

#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "coll/select.h"
#include "comm/collnet.h"
#include "comm/comm.h"
#include "comm/topology.h"
#include "comm/tuning_priv.h"
#include "os/pagepipe.h"

#define MOST_TAKES_US 1000 // that a rank goes on looking for a peer that is at work
// Of a message, that TCP sends in one segment with its heads: Linux makes them of at most 64 KiB.
#define NET_SEGMENT (60u << 10)

// What a network is taken for whose devices do not say what they carry, or say too little.
enum { LEAST_MBITS = 100, USUAL_MBITS = 10000 };
enum { DELAY_LEAST_US = 256, DELAY_MOST_US = 1 << 20 }; // of a network: from where on it counts, and how far

static tt_cost_env cost_env(const struct ncclComm *comm, const tt_tuning *t)
{
  tt_cost_env env = tt_cost_env_of(&t->figures, comm->peers[0].cpus);
  if (t->net_delay > 0) {
    for (int i = 0; i < TT_COST_FIFOS; i++) {
      tt_cost_hop *hop = &env.hop[TT_HOP_NETWORK][i];
      hop->latency = TT_MAX(hop->latency, t->net_delay);
    }
    const int64_t mbits = comm->network.mbits < LEAST_MBITS ? USUAL_MBITS : comm->network.mbits;
    env.net_byte = TT_MAX(env.net_byte, 8.0 / (double)mbits);
  }
  env.payload[TT_LL] = t->ll_capacity;
  env.slots[TT_LL] = comm->peers[0].geometry.ll_slots;
  env.payload[TT_SIMPLE] = TT_MIN(t->simple_capacity, t->net_capacity);
  return env;
}

ncclResult_t tt_tuning_limits(const tt_figures *f, tt_limits *out)
{
  tt_limits l = {.ll = tt_thresholds[TT_AT_LL].value,
                 .direct_copy = tt_thresholds[TT_AT_DIRECT_COPY].value,
                 .direct_local = tt_thresholds[TT_AT_DIRECT_LOCAL].value,
                 .direct_chunk = tt_thresholds[TT_AT_DIRECT_CHUNK].value};
  TT_TRY(tt_limits_find(f, &l));
  *out = l;
  return ncclSuccess;
}

uint64_t tt_tuning_delay(const tt_bootstrap *boot)
{
  const int64_t named = tt_params_get()->net_delay;
  return named >= 0 ? (uint64_t)named | TT_DELAY_NAMED : tt_bootstrap_way_us(boot);
}

// The largest one-way time between neighbours of the bootstrap's ring, rounded down to a power of two, because it
// varies between runs. A ring over two sites has at least one connection between them. Networks other than TCP may take
// another way than the bootstrap does.
static double net_delay_of(const struct ncclComm *comm)
{
  const bool sockets = comm->network.ops == NULL || comm->network.ops == &tt_net_socket;
  uint64_t slowest = 0, us = DELAY_LEAST_US;
  for (int i = 0; i < comm->nranks; i++) {
    const uint64_t its = comm->peers[i].net_delay;
    slowest = sockets || (its & TT_DELAY_NAMED) != 0 ? TT_MAX(slowest, its & ~TT_DELAY_NAMED) : slowest;
  }
  while (us < DELAY_MOST_US && us * 2 <= slowest) {
    us *= 2;
  }
  return comm->network.needed && us <= slowest ? (double)us : 0;
}

// As much of a slot as goes in whole segments. A message of 64 KiB takes a second, tiny one, which costs nearly as much
// as the long one.
static size_t whole_segments(size_t capacity)
{
  return capacity < NET_SEGMENT ? capacity : capacity / NET_SEGMENT * NET_SEGMENT;
}

// What slots hold, and the thresholds that follow.
static void take_slots(const struct ncclComm *comm, tt_tuning *t)
{
  tt_geometry g = comm->peers[0].geometry;
  t->ll_capacity = (uint32_t)(g.ll_slot_bytes - offsetof(tt_slot, data)) / 8 * 8;
  t->simple_capacity = g.simple_slot_bytes;
  t->net_capacity = g.net_slot_bytes;
  t->thresholds[TT_AT_LL_SLOT] = t->ll_capacity;
  t->thresholds[TT_AT_TINY] = TT_MIN(TT_TINY_BYTES, t->ll_capacity);
  t->thresholds[TT_AT_SLOT] = t->simple_capacity;
  t->thresholds[TT_AT_NET_P2P_CHUNK] =
      whole_segments((size_t)TT_CLAMP(comm->peers[0].net_chunk, 64, 1 << 30) / 64 * 64);
}

ncclResult_t tt_tuning_gpus(tt_port *port)
{
  tt_algo_filter filter;
  TT_TRY(tt_algo_filter_parse(NULL, tt_params_get()->proto, &filter));
  port->gpu_access = !tt_transport_p2p_off();
  port->ll128 = filter.ll128 && port->gpu_access;
  return ncclSuccess;
}

ncclResult_t tt_tuning_create(const struct ncclComm *comm, tt_tuning **out)
{
  const tt_params *p = tt_params_get();
  tt_tuning *t;
  TT_TRY(TT_NEW(t, 1, "rank %d: no memory for tuning", comm->rank));
  ncclResult_t res = tt_algo_filter_parse(p->algo, p->proto, &t->filter);
  tt_tuning_take_figures(comm, t);
  take_slots(comm, t);
  t->mixed = comm->layout->nnodes < comm->nranks;
  t->net_delay = net_delay_of(comm);
  int most = t->net_delay > 0 ? TT_MODEL_RANKS_FAR : TT_MODEL_RANKS;
  if (t->net_delay > 0) {
    tt_info(TT_INIT | TT_TUNING,
            "rank %d: messages between machines take %.0f us or more: algorithms are chosen for that", comm->rank,
            t->net_delay);
  }
  if (res == ncclSuccess && comm->network.needed && comm->nranks <= most) {
    tt_cost_env env = cost_env(comm, t);
    res = tt_cost_create(&env, comm->nranks, comm->layout, &t->cost);
  }
  res = res == ncclSuccess ? tt_tuning_open_plugin(comm, t) : res;
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
    for (int f = 0; f < TT_NFUNCS; f++) {
      tt_free(t->rules[f][false]);
      tt_free(t->rules[f][true]);
    }
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
  bool net =
      !a->in_network || comm->nranks == 1 || (in_network && (comm->tuning->filter.protos[func] & TT_PROTO_SIMPLE) != 0);
  return (a->funcs & 1u << func) != 0 && (a->needs & ~can) == 0 && net &&
         (comm->tuning->filter.algos[func] & 1u << row) != 0;
}

// The rows that sum in the order of the ranks, and can be used.
static uint32_t rows_in_order(const struct ncclComm *comm, tt_func func)
{
  uint32_t rows = 0;
  for (int i = 0; i < TT_NALGOS; i++) {
    rows |= (TT_ALGOS_IN_ORDER >> i & 1) != 0 && tt_tuning_usable(comm, func, i, false) ? 1u << i : 0;
  }
  return rows;
}

void tt_tuning_keep_order(struct ncclComm *comm)
{
  for (tt_func f = 0; f < TT_NFUNCS && tt_params_get()->reproducible; f++) {
    uint32_t *algos = &comm->tuning->filter.algos[f], left = rows_in_order(comm, f);
    if (!tt_func_reduces(f)) {
      continue;
    }
    if (left == 0) {
      tt_info(TT_INIT | TT_TUNING,
              "TUTTI_REPRODUCIBLE: NCCL_ALGO=%s leaves nothing for %s that sums in the order of the ranks: the library "
              "chooses",
              tt_params_get()->algo, tt_func_name(f));
    }
    *algos = left != 0 ? left : TT_ALGOS_IN_ORDER;
  }
}

// Do the ranks' cores move the data? Else that there are few of them does not count. The same on all ranks: if these
// are on devices of several kinds, not all read the others' memory.
static bool cores_move(const struct ncclComm *comm)
{
  return comm->port.row == NULL || !comm->port.row->pairs || !comm->machine.can_read;
}

// Where a file describes the machine, ranks do what that machine's would, as far as this device has it: the row, or -1.
// The user's own choice of algorithms goes before, and that machine's model knows nothing of a network that reduces.
static int follow_machine(const struct ncclComm *comm, tt_func func, size_t bytes, bool in_network)
{
  static const tt_model_func funcs[] = {[TT_FUNC_BROADCAST] = TT_MODEL_BROADCAST,
                                        [TT_FUNC_REDUCE] = TT_MODEL_REDUCE,
                                        [TT_FUNC_ALLGATHER] = TT_MODEL_ALL_GATHER,
                                        [TT_FUNC_REDUCESCATTER] = TT_MODEL_REDUCE_SCATTER,
                                        [TT_FUNC_ALLREDUCE] = TT_MODEL_ALL_REDUCE};
  const bool direct = !cores_move(comm) && !comm->machine.all_local; // GPUs of several processes that reach each other
  if ((size_t)func >= TT_COUNT(funcs) || tt_params_get()->algo != NULL || comm->nranks == 1 || in_network || direct) {
    return -1;
  }
  tt_model_algo algo = tt_topology_algo(comm->topology, comm->tuning->model, funcs[func], bytes);
  int row = algo == TT_MODEL_RING   ? TT_ALGO_RING
            : algo == TT_MODEL_TREE ? TT_ALGO_TREE
            : algo == TT_MODEL_PAT  ? TT_ALGO_PAT
                                    : -1;
  return tt_tuning_usable(comm, func, row, false) ? row : -1;
}

// Where the operation runs, as rules ask for it.
static uint32_t where_of(const struct ncclComm *comm, bool networked)
{
  bool local_crowd = comm->machine.crowded && !comm->network.needed,
       turns = local_crowd && !comm->machine.all_local && cores_move(comm);
  bool direct_free = !turns || tt_params_get()->host_direct_threshold >= 0;
  uint32_t ranks = comm->nranks > 2    ? TT_SOME_RANKS | TT_MORE_RANKS
                   : comm->nranks == 2 ? TT_SOME_RANKS | TT_TWO_RANKS
                                       : 0;
  return ranks | (comm->machine.all_local ? TT_ONE_PROCESS : TT_PROCESSES) | (networked ? TT_NETWORK : 0) |
         (comm->machine.shares ? TT_SHARED_NODE : 0) | (comm->machine.crowded ? TT_CROWDED : 0) |
         (local_crowd ? TT_LOCAL_CROWD : 0) | (direct_free ? TT_DIRECT_FREE : 0);
}

static tt_situation situation_of(const struct ncclComm *comm, tt_func func, bool networked)
{
  tt_situation s = {.func = func, .where = where_of(comm, networked), .ranks = (size_t)comm->nranks};
  s.per_core = (s.where & TT_LOCAL_CROWD) != 0 && comm->peers[0].cpus > 0 ? s.ranks / (size_t)comm->peers[0].cpus : 0;
  return s;
}

static bool tuning_has_blocks(tt_func func)
{
  return func == TT_FUNC_ALLGATHER || func == TT_FUNC_REDUCESCATTER || func == TT_FUNC_ALLTOALL ||
         func == TT_FUNC_GATHER || func == TT_FUNC_SCATTER;
}

static int add_algorithms(const struct ncclComm *comm, const tt_situation *s, tt_size_range *to)
{
  size_t count;
  int n = 0;
  const tt_algo_rule *rules = tt_algo_rules(&count);
  for (const tt_algo_rule *r = rules; r < rules + count; r++) {
    tt_size_range range;
    for (int i = 0; i < 2 && tt_condition_sizes(&r->when, s, comm->tuning->thresholds, &range); i++) {
      range.result = r->algos[i];
      to[n] = range;
      n += tt_tuning_usable(comm, s->func, r->algos[i], true);
    }
  }
  return n;
}

static int add_protocols(const struct ncclComm *comm, const tt_situation *s, tt_size_range *to)
{
  size_t count;
  int n = 0;
  const tt_proto_rule *rules = tt_proto_rules(&count);
  for (const tt_proto_rule *r = rules; r < rules + count; r++) {
    uint32_t bit = r->proto == TT_SIMPLE ? TT_PROTO_SIMPLE : TT_PROTO_LL;
    if ((comm->tuning->filter.protos[s->func] & bit) != 0 &&
        tt_condition_sizes(&r->when, s, comm->tuning->thresholds, &to[n])) {
      to[n++].result = (int)r->proto;
    }
  }
  return n;
}

static int add_chunks(const struct ncclComm *comm, const tt_situation *s, tt_size_range *to)
{
  size_t count;
  int n = 0;
  const tt_chunk_rule *rules = tt_chunk_rules(&count);
  for (size_t i = 0; i < count; i++) {
    if (tt_condition_sizes(&rules[i].when, s, comm->tuning->thresholds, &to[n])) {
      to[n++].result = (int)i;
    }
  }
  return n;
}

static ncclResult_t make_rules(const struct ncclComm *comm, tt_func func, bool networked, tt_func_rules **out)
{
  tt_size_range all[TT_RULES_MOST];
  const tt_situation s = situation_of(comm, func, networked);
  int nalgos = add_algorithms(comm, &s, all), nprotos = add_protocols(comm, &s, all + nalgos);
  int nchunks = add_chunks(comm, &s, all + nalgos + nprotos), n = nalgos + nprotos + nchunks;
  tt_func_rules *r = tt_calloc(1, sizeof *r + (size_t)n * sizeof all[0]);
  if (r == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the rules of %s", comm->rank, tt_func_name(func));
  }
  r->nalgos = nalgos;
  r->nprotos = nprotos;
  r->nchunks = nchunks;
  memcpy(r->ranges, all, (size_t)n * sizeof all[0]);
  *out = r;
  return ncclSuccess;
}

// The rules for a function, made when first asked for. Errors: ncclSystemError.
static ncclResult_t rules_of(const struct ncclComm *comm, tt_func func, bool networked, const tt_func_rules **out)
{
  tt_func_rules **kept = &comm->tuning->rules[func][networked];
  if (TT_UNLIKELY(*kept == NULL)) {
    TT_TRY(make_rules(comm, func, networked, kept));
  }
  *out = *kept;
  return ncclSuccess;
}

static bool in_range(const tt_size_range *r, size_t bytes)
{
  return bytes >= r->least && bytes <= r->most;
}

static int pick_algorithm(const struct ncclComm *comm, const tt_func_rules *rules, tt_func func, size_t bytes,
                          bool in_network)
{
  for (const tt_size_range *r = rules->ranges; r < rules->ranges + rules->nalgos; r++) {
    if (in_range(r, bytes) &&
        (!tt_algorithms(NULL)[r->result].in_network || tt_tuning_usable(comm, func, r->result, in_network))) {
      // What else makes a row unusable does not depend on the operation: such ranges have not been added.
      return r->result;
    }
  }
  for (int i = 0; i < TT_NALGOS; i++) { // what the user has left
    if (tt_tuning_usable(comm, func, i, in_network)) {
      return i;
    }
  }
  return -1;
}

// Where the user has left LL alone, no rule may hold.
static tt_proto pick_proto(const tt_func_rules *rules, size_t bytes)
{
  for (const tt_size_range *r = rules->ranges + rules->nalgos, *end = r + rules->nprotos; r < end; r++) {
    if (in_range(r, bytes)) {
      return (tt_proto)r->result;
    }
  }
  return TT_LL;
}

// The rule of the chunk size. The last one holds for all that goes through FIFOs.
static const tt_chunk_rule *pick_chunk_rule(const tt_func_rules *rules, int algo, size_t bytes)
{
  size_t count;
  const tt_chunk_rule *table = tt_chunk_rules(&count);
  for (const tt_size_range *r = rules->ranges + rules->nalgos + rules->nprotos, *end = r + rules->nchunks; r < end;
       r++) {
    if ((table[r->result].algos >> algo & 1) != 0 && in_range(r, bytes)) {
      return &table[r->result];
    }
  }
  return &table[count - 1];
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
  bool both = t->mixed && !tt_func_is_message(func);
  return both ? TT_MIN(t->simple_capacity, t->net_capacity) : t->net_capacity;
}

size_t tt_tuning_longest(const struct ncclComm *comm, tt_func func, const tt_choice *c)
{
  return c->direct ? comm->tuning->thresholds[TT_AT_COPY_CHUNK] : capacity_of(comm, c, func);
}

// Chunks of a block in one pass.
static size_t subs_of(const struct ncclComm *comm, int algo, tt_func func)
{
  bool packed = algo == TT_ALGO_PACKED && comm->layout->channels.packed != NULL;
  bool two_trees = (algo == TT_ALGO_TREE || algo == TT_ALGO_PACKED) && comm->layout->channels.ups == NULL && !packed;
  return algo == TT_ALGO_RING && func == TT_FUNC_ALLREDUCE ? (size_t)comm->nranks
         : algo == TT_ALGO_ORDERED                         ? (size_t)comm->nranks
         : algo == TT_ALGO_COLLNET_DIRECT                  ? (size_t)tt_collnet_heads(comm->layout, comm->nranks)
         : two_trees                                       ? 2
                                                           : 1;
}

// How many channels share a message, the first ones. The same on every rank, whose sizes and layouts are the same.
// Small messages use one: a channel is a turn, and gains nothing where a rank has one core. Each gets whole passes;
// where passes follow one another down a chain or tree, enough of them that filling it anew is a small part. How many
// channels there are is for those to say who make them: NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS and the configuration's
// CTAs belong into the layout's number (tt_connect_options), which all ranks must share.
static int pick_channels(const struct ncclComm *comm, const tt_choice *c, tt_func func, size_t bytes)
{
  int most = tt_algorithm_channels(&tt_algorithms(NULL)[c->algo], comm->layout);
  if (most <= 1 || comm->nranks == 1) {
    return 1;
  }
  bool chain = c->algo != TT_ALGO_RING || func == TT_FUNC_BROADCAST || func == TT_FUNC_REDUCE;
  size_t block = tuning_has_blocks(func) ? bytes / (size_t)comm->nranks : bytes,
         least = chain ? 2 * (size_t)comm->nranks : 1;
  size_t passes = block / (subs_of(comm, c->algo, func) * c->chunk);
  return (int)TT_CLAMP(TT_MIN(passes / least, bytes / comm->tuning->thresholds[TT_AT_CHANNEL]), 1, (size_t)most);
}

// What one rank sends of one sub-chunk in all passes together.
static size_t part_of(const struct ncclComm *comm, int algo, tt_func func, size_t bytes)
{
  return (tuning_has_blocks(func) ? bytes / (size_t)comm->nranks : bytes) / subs_of(comm, algo, func);
}

// Equal parts of what a rank gives or gets, in whole pages.
static size_t equal_chunk(const struct ncclComm *comm, tt_func func, size_t bytes, size_t most)
{
  size_t part = tuning_has_blocks(func) ? bytes / (size_t)comm->nranks : bytes,
         passes = TT_MAX(TT_DIV_UP(part, most), 1);
  return TT_CLAMP(TT_ROUND_UP(TT_DIV_UP(part, passes), 4096), 4096, most);
}

// The chunk size by a rule, of a choice whose algorithm, protocol and way are known.
static size_t rule_chunk(const struct ncclComm *comm, const tt_choice *c, const tt_chunk_rule *r, tt_func func,
                         size_t bytes)
{
  size_t threshold = comm->tuning->thresholds[r->size];
  if (r->kind == TT_CHUNK_FIXED) {
    return threshold;
  }
  if (r->kind == TT_CHUNK_EQUAL) {
    return equal_chunk(comm, func, bytes, threshold);
  }
  size_t slot = capacity_of(comm, c, func), most = c->networked ? whole_segments(slot) : slot;
  if (r->kind == TT_CHUNK_MESSAGE) {
    return TT_CLAMP(TT_ROUND_UP(bytes, 64), 64, TT_MIN(most, threshold));
  }
  size_t part = part_of(comm, c->algo, func, bytes);
  return TT_CLAMP(TT_ROUND_UP(TT_DIV_UP(part, r->passes), 64), TT_MIN(threshold, most), most);
}

// The chunk size of a choice of the walking model, which knows nothing of segments: whole ones, where a message takes
// several passes anyway.
static size_t model_chunk(const struct ncclComm *comm, const tt_choice *c, tt_func func, size_t bytes)
{
  size_t count;
  const tt_chunk_rule *r = tt_chunk_rules(&count), *end = r + count;
  tt_situation s = situation_of(comm, func, true);
  tt_size_range range;
  s.where |= TT_BY_MODEL;
  while (r < end && !((r->algos >> c->algo & 1) != 0 &&
                      tt_condition_sizes(&r->when, &s, comm->tuning->thresholds, &range) && in_range(&range, bytes))) {
    r++;
  }
  if (part_of(comm, c->algo, func, bytes) <= c->chunk) {
    return c->chunk;
  }
  bool longest = r < end && r->kind == TT_CHUNK_LONGEST && c->chunk == comm->tuning->simple_capacity;
  return whole_segments(longest ? capacity_of(comm, c, func) : c->chunk);
}

// What the cost model finds best; algo -1 when it has nothing to say.
static ncclResult_t query_model(const struct ncclComm *comm, tt_func func, size_t bytes, bool in_network, tt_choice *c)
{
  const tt_tuning *t = comm->tuning;
  const bool near = t->net_delay == 0;
  tt_cost_choice best = {.algo = -1};
  uint32_t algos = 0, protos = t->filter.protos[func];
  for (int i = 0; i < TT_NALGOS; i++) {
    algos |= tt_tuning_usable(comm, func, i, in_network) ? 1u << i : 0;
  }
  const size_t part = tuning_has_blocks(func) ? bytes / (size_t)comm->nranks : bytes;
  if (!near && part > t->ll_capacity && (protos & TT_PROTO_SIMPLE) != 0) {
    protos = TT_PROTO_SIMPLE; // many short messages are as fast where the network is the bound, but cost more of a core
  }
  algos &= (algos & ~TT_ALGOS_ASKED) != 0 ? ~TT_ALGOS_ASKED : ~0u;
  // It is there for its order. But it needs two messages one behind the other, where others need many.
  algos &= near && (algos & ~TT_ALGOS_IN_ORDER) != 0 ? ~(1u << TT_ALGO_ORDERED) : ~0u;
  TT_TRY(tt_cost_best(t->cost, func, bytes, algos, protos, &best));
  *c = (tt_choice){.algo = best.algo, .proto = best.proto, .networked = true};
  if (best.algo >= 0) {
    c->chunk = TT_MIN(TT_ROUND_UP(TT_MAX(best.chunk, 1), 64), capacity_of(comm, c, func));
    c->chunk = c->proto == TT_SIMPLE ? model_chunk(comm, c, func, bytes) : c->chunk;
  }
  return ncclSuccess;
}

// The rest of a choice whose algorithm, protocol and way are known.
static void tuning_settle(const struct ncclComm *comm, const tt_func_rules *rules, tt_func func, size_t bytes,
                          tt_choice *c)
{
  c->direct = tt_algorithms(NULL)[c->algo].needs != 0;
  c->fetches = c->algo == TT_ALGO_DIRECT;
  c->tiny = c->proto == TT_TINY && !c->direct && !tt_algorithms(NULL)[c->algo].in_network;
  c->proto = c->direct ? TT_TOK : tt_algorithms(NULL)[c->algo].in_network ? TT_SIMPLE : c->tiny ? TT_LL : c->proto;
  c->chunk = rule_chunk(comm, c, pick_chunk_rule(rules, c->algo, bytes), func, bytes);
  c->channels = pick_channels(comm, c, func, bytes);
}

ncclResult_t tt_tuning_choose(const struct ncclComm *comm, tt_func func, size_t bytes, int peer, bool in_network,
                              tt_choice *out)
{
  const tt_tuning *t = comm->tuning;
  bool message = tt_func_is_message(func);
  int followed = follow_machine(comm, func, bytes, in_network);
  if (followed < 0 && t->cost != NULL && !message && t->filter.protos[func] != 0) {
    tt_choice best;
    TT_TRY(query_model(comm, func, bytes, in_network, &best));
    if (best.algo >= 0) {
      best.channels = pick_channels(comm, &best, func, bytes);
      *out = best;
      return ncclSuccess;
    }
  }
  bool networked =
      message ? tt_transport_needs_net(&comm->peers[comm->rank].at, &comm->peers[peer].at) : comm->network.needed;
  const tt_func_rules *rules;
  TT_TRY(rules_of(comm, func, networked, &rules));
  tt_choice c = {.algo = followed >= 0 ? followed : pick_algorithm(comm, rules, func, bytes, in_network)};
  if (message && peer == comm->rank) {
    c.algo = TT_ALGO_LINEAR; // tokens to oneself would not tell who said them
  }
  if (c.algo < 0) {
    uint32_t nets = func == TT_FUNC_ALLREDUCE
                        ? t->filter.algos[func] & (1u << TT_ALGO_COLLNET_CHAIN | 1u << TT_ALGO_COLLNET_DIRECT)
                        : 0;
    return tt_fail(
        ncclInvalidUsage, "no algorithm is left for %s on rank %d: NCCL_ALGO=%s%s", tt_func_name(func), comm->rank,
        tt_params_get()->algo == NULL ? "(unset)" : tt_params_get()->algo,
        nets != 0 ? ", and the network does not reduce this (NCCL_COLLNET_ENABLE=1 and NCCL_DEBUG=INFO say why)" : "");
  }
  if (t->filter.protos[func] == 0) {
    return tt_fail(ncclInvalidUsage, "no protocol is left for %s on rank %d: NCCL_PROTO=%s", tt_func_name(func),
                   comm->rank, tt_params_get()->proto);
  }
  c.networked = networked;
  c.proto = pick_proto(rules, bytes);
  tuning_settle(comm, rules, func, bytes, &c);
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

ncclResult_t tt_tuning_take(const struct ncclComm *comm, tt_func func, size_t bytes, tt_choice *c)
{
  const tt_func_rules *rules;
  TT_TRY(rules_of(comm, func, comm->network.needed, &rules));
  c->networked = comm->network.needed;
  tuning_settle(comm, rules, func, bytes, c);
  return ncclSuccess;
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
  TT_TRY(tt_cost_estimate(t->cost != NULL ? t->cost : t->estimates, func, choice->algo,
                          choice->direct ? TT_SIMPLE : choice->proto, bytes, &cost));
  *us = cost.us;
  return ncclSuccess;
}

void tt_tuning_restrict(const struct ncclComm *comm, tt_func func, bool in_network, tt_selection *s)
{
  const tt_algorithm *table = tt_algorithms(NULL);
  uint32_t usable = 0, through_fifos = 0, known = 0, protos = comm->tuning->filter.protos[func];
  for (int i = 0; i < TT_NALGOS; i++) {
    usable |= tt_tuning_usable(comm, func, i, in_network) ? 1u << i : 0;
    through_fifos |= table[i].needs == 0 ? 1u << i : 0;
    known |= (table[i].funcs >> func & 1) << i;
  }
  // A call names what it wants, too, where nobody else has restricted it.
  usable |= comm->tuning->filter.algos[func] == (known & ~TT_ALGOS_ASKED) ? known & TT_ALGOS_ASKED : 0;
  s->ll &= (protos & TT_PROTO_LL) != 0 ? usable : 0;
  s->simple &= (protos & TT_PROTO_SIMPLE) != 0 ? usable : protos != 0 ? usable & ~through_fifos : 0;
}

// The first rule of algorithms that holds and is in the set, else the set's first row.
static int select_by_rule(const tt_func_rules *rules, size_t bytes, uint32_t set)
{
  for (const tt_size_range *r = rules->ranges; r < rules->ranges + rules->nalgos; r++) {
    if (in_range(r, bytes) && (set >> r->result & 1) != 0) {
      return r->result;
    }
  }
  return __builtin_ctz(set);
}

// The cheaper of both protocols' best. out->algo stays -1 where the model has nothing to say.
static ncclResult_t select_by_model(const struct ncclComm *comm, tt_func func, size_t bytes, const tt_selection *s,
                                    tt_cost_choice *out)
{
  tt_cost_choice c;
  *out = (tt_cost_choice){.algo = -1};
  for (int i = 0; comm->tuning->cost != NULL && i < 2; i++) {
    TT_TRY(tt_cost_best(comm->tuning->cost, func, bytes, i == 0 ? s->simple : s->ll,
                        i == 0 ? TT_PROTO_SIMPLE : TT_PROTO_LL, &c));
    *out = c.algo >= 0 && (out->algo < 0 || c.us < out->us) ? c : *out;
  }
  return ncclSuccess;
}

ncclResult_t tt_tuning_select(const struct ncclComm *comm, tt_func func, size_t bytes, const tt_selection *s,
                              tt_choice *out)
{
  const tt_func_rules *rules;
  tt_cost_choice best;
  const uint32_t others = (s->ll | s->simple) & ~TT_ALGOS_ASKED, left = others != 0 ? others : UINT32_MAX;
  const uint32_t rows_ll = s->ll & left, rows_simple = s->simple & left;
  TT_TRY(rules_of(comm, func, comm->network.needed, &rules));
  TT_TRY(select_by_model(comm, func, bytes, &(tt_selection){.ll = rows_ll, .simple = rows_simple}, &best));
  tt_proto wanted = pick_proto(rules, bytes);
  bool ll = best.algo >= 0 ? best.proto == TT_LL : wanted != TT_SIMPLE;
  tt_choice c = {.algo = best.algo};
  if (best.algo < 0) {
    c.algo = select_by_rule(rules, bytes, rows_ll | rows_simple);
    ll = (rows_simple >> c.algo & 1) == 0 || (ll && (rows_ll >> c.algo & 1) != 0);
  }
  c.proto = !ll ? TT_SIMPLE : wanted == TT_TINY ? TT_TINY : TT_LL;
  TT_TRY(tt_tuning_take(comm, func, bytes, &c));
  *out = c;
  return ncclSuccess;
}
