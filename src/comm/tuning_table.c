// tuning_table.c: the rules (tuning_table.h). After a change: make docs/tuning.md anew (scripts/tuning_doc).
#include "comm/tuning_table.h"

#include "base/util.h"
#include "os/pagepipe.h"

const tt_threshold tt_thresholds[TT_NTHRESHOLDS] = {
#define T(id, value, what, source) {#id, value, what, source},
#include "comm/thresholds.def"
};

#define F(name) (1u << TT_FUNC_##name)
#define ROOTED (F(BROADCAST) | F(REDUCE))
#define MESSAGES (F(SEND) | F(RECV))
// Each rank has a block of its own.
#define BLOCKS (F(ALLGATHER) | F(REDUCESCATTER) | F(ALLTOALL) | F(GATHER) | F(SCATTER))
#define ANY ((1u << TT_NFUNCS) - 1)

// clang-format off
#define WHEN(funcs_, where_, ...) {.funcs = (funcs_), .where = (where_), .bounds = {__VA_ARGS__}}
#define BOUND(quantity, relation, threshold) {TT_OF_##quantity, TT_##relation, TT_AT_##threshold}
#define SIZE(relation, threshold) BOUND(SIZE, relation, threshold)
#define PART(relation, threshold) BOUND(PART, relation, threshold)
#define TOTAL(relation, threshold) BOUND(TOTAL, relation, threshold)
#define RANKS(relation, threshold) BOUND(RANKS, relation, threshold)
#define PER_CORE(relation, threshold) BOUND(PER_CORE, relation, threshold)
#define ALWAYS {0}
#define EITHER(first, second) {TT_ALGO_##first, TT_ALGO_##second}
#define ONLY(algo) {TT_ALGO_##algo, -1}

static const tt_algo_rule algo_rules[] = {
    // Direct access, where a rank may wait for the others. Two ranks of a process: up to DIRECT_TWO the sender goes on
    // through a FIFO.
    {WHEN(ROOTED, TT_ONE_PROCESS | TT_TWO_RANKS, SIZE(AT_LEAST, DIRECT_TWO)), EITHER(DIRECTWRITE, DIRECT)},
    {WHEN(ROOTED, TT_ONE_PROCESS | TT_MORE_RANKS, SIZE(AT_LEAST, DIRECT)), EITHER(DIRECTWRITE, DIRECT)},
    {WHEN(F(ALLREDUCE) | F(ALLGATHER) | F(REDUCESCATTER), TT_ONE_PROCESS | TT_SOME_RANKS, SIZE(AT_LEAST, DIRECT)),
     EITHER(DIRECTWRITE, DIRECT)},
    // Between processes the kernel writes slower than it reads. So ranks write only where they share work that one rank
    // would do alone, and each part is worth a copy of its own.
    {WHEN(ROOTED, TT_PROCESSES | TT_DIRECT_FREE | TT_TWO_RANKS, SIZE(AT_LEAST, DIRECT), SIZE(AT_LEAST, SHARED)),
     EITHER(DIRECTWRITE, DIRECT)},
    {WHEN(F(BROADCAST), TT_PROCESSES | TT_DIRECT_FREE | TT_MORE_RANKS, SIZE(AT_LEAST, DIRECT)),
     EITHER(DIRECTWRITE, DIRECT)},
    {WHEN(F(REDUCE), TT_PROCESSES | TT_DIRECT_FREE | TT_MORE_RANKS, PART(AT_LEAST, DIRECT)),
     EITHER(DIRECTWRITE, DIRECT)},
    {WHEN(ROOTED, TT_PROCESSES | TT_DIRECT_FREE | TT_SOME_RANKS, SIZE(AT_LEAST, DIRECT)), ONLY(DIRECT)},
    {WHEN(F(ALLREDUCE) | F(ALLGATHER) | F(REDUCESCATTER) | F(ALLTOALL), TT_DIRECT_FREE | TT_SOME_RANKS,
          SIZE(AT_LEAST, DIRECT)), ONLY(DIRECT)},
    {WHEN(F(GATHER) | F(SCATTER) | MESSAGES, TT_SOME_RANKS, SIZE(AT_LEAST, DIRECT)), ONLY(DIRECT)},
    // Processes that share cores: ranks wait less where each reads what it sums than in every hop of every pass of a
    // ring.
    {WHEN(F(ALLREDUCE), TT_TURNS, SIZE(AT_LEAST, DIRECT), PART(ABOVE, SLOT), PER_CORE(BELOW, CROWD)), ONLY(DIRECT)},
    {WHEN(F(ALLTOALL), TT_TURNS, SIZE(AT_LEAST, DIRECT), PART(ABOVE, FEW_SWAP), PER_CORE(BELOW, CROWD)), ONLY(DIRECT)},
    {WHEN(F(ALLTOALL), TT_TURNS, SIZE(AT_LEAST, DIRECT), PART(ABOVE, CROWD_PART), PER_CORE(AT_LEAST, CROWD)),
     ONLY(DIRECT)},

    // All-reduce.
    {WHEN(F(ALLREDUCE), 0, SIZE(ABOVE, SMALL)), ONLY(COLLNET_CHAIN)},
    {WHEN(F(ALLREDUCE), TT_NETWORK | TT_SHARED_NODE, SIZE(AT_MOST, SMALL)), ONLY(HIERRD)},
    {WHEN(F(ALLREDUCE), TT_NETWORK | TT_SHARED_NODE, ALWAYS), ONLY(HIERRING)},
    // One rank sums for all: 2n messages, and each rank needs its core twice at most. With few ranks per core that
    // rank's work weighs more.
    {WHEN(F(ALLREDUCE), TT_LOCAL_CROWD | TT_ONE_PROCESS, SIZE(AT_MOST, SMALL)), ONLY(HIERRD)},
    {WHEN(F(ALLREDUCE), TT_LOCAL_CROWD, SIZE(AT_MOST, FLAT), PER_CORE(AT_LEAST, CROWD)), ONLY(HIERRD)},
    {WHEN(F(ALLREDUCE), TT_LOCAL_CROWD, SIZE(AT_MOST, SMALL), PER_CORE(AT_LEAST, BIG_CROWD)), ONLY(HIERRD)},
    {WHEN(F(ALLREDUCE), 0, RANKS(AT_MOST, ONESHOT_RANKS), TOTAL(AT_MOST, ONESHOT_TOTAL)), EITHER(ONESHOT, TREE)},
    {WHEN(F(ALLREDUCE), 0, SIZE(AT_MOST, SMALL)), EITHER(RD, TREE)},
    {WHEN(F(ALLREDUCE), 0, PART(AT_MOST, TREE_PART), PER_CORE(AT_LEAST, CROWD)), ONLY(TREE)},
    {WHEN(F(ALLREDUCE), 0, PER_CORE(AT_LEAST, BIG_CROWD)), ONLY(TREE)},
    {WHEN(F(ALLREDUCE), 0, ALWAYS), EITHER(RING, TREE)},

    // Other collectives. Where cores are short, each rank sends straight to the rank that needs its part: one turn, not
    // one in every round. With longer parts all connections together do not fit into the caches.
    {WHEN(F(ALLGATHER), 0, RANKS(AT_MOST, ONESHOT_RANKS), TOTAL(AT_MOST, ONESHOT_TOTAL)), EITHER(ONESHOT, RING)},
    {WHEN(F(ALLGATHER) | F(REDUCESCATTER) | ROOTED, TT_LOCAL_CROWD, SIZE(AT_MOST, SMALL)), EITHER(ONESHOT, RING)},
    {WHEN(F(ALLGATHER), TT_TURNS, PART(AT_MOST, FEW_PART), PER_CORE(BELOW, CROWD)), EITHER(ONESHOT, RING)},
    {WHEN(F(ALLGATHER) | F(REDUCESCATTER), TT_TURNS, PART(AT_MOST, CROWD_PART)), EITHER(ONESHOT, RING)},
    {WHEN(F(REDUCESCATTER), TT_TURNS, PER_CORE(BELOW, BIG_CROWD)), EITHER(ONESHOT, RING)},
    {WHEN(ROOTED, TT_TURNS, ALWAYS), EITHER(ONESHOT, RING)},
    {WHEN(F(ALLGATHER), 0, SIZE(AT_MOST, SMALL)), ONLY(PAT)},
    {WHEN(F(REDUCESCATTER), TT_MORE_RANKS, SIZE(AT_MOST, SMALL)), ONLY(PAT)},
    {WHEN(ROOTED, TT_MORE_RANKS, SIZE(AT_MOST, SMALL)), ONLY(TREE)},
    {WHEN(F(ALLGATHER) | F(REDUCESCATTER) | ROOTED, 0, ALWAYS), ONLY(RING)},
    {WHEN(F(ALLTOALL), 0, ALWAYS), ONLY(PAIRWISE)},
    {WHEN(F(GATHER) | F(SCATTER) | MESSAGES, 0, ALWAYS), ONLY(LINEAR)},

    // Sums in the order of the ranks, where a call or TUTTI_REPRODUCIBLE leaves nothing else (TT_ALGOS_IN_ORDER); for
    // others these rules come too late.
    {WHEN(F(ALLREDUCE), TT_SOME_RANKS, TOTAL(ABOVE, ORDERED)), ONLY(ORDERED)},
    {WHEN(F(REDUCE), TT_MORE_RANKS, TOTAL(ABOVE, ORDERED)), ONLY(ORDERED)},
};

// Every pass costs a change of thread where cores are short, and system calls over the network: there one slot of LL is
// the limit.
static const tt_proto_rule proto_rules[] = {
    {WHEN(BLOCKS, TT_TURNS, PART(AT_MOST, TINY)), TT_TINY},
    {WHEN(F(ALLREDUCE) | ROOTED, TT_TURNS, SIZE(AT_MOST, TINY)), TT_TINY},
    {WHEN(BLOCKS, TT_TURNS, PART(AT_MOST, LL_SLOT)), TT_LL},
    {WHEN(BLOCKS, TT_TURNS, ALWAYS), TT_SIMPLE},
    {WHEN(ANY, TT_CROWDED, SIZE(AT_MOST, LL_SLOT)), TT_LL},
    {WHEN(ANY, TT_CROWDED, ALWAYS), TT_SIMPLE},
    {WHEN(ANY, TT_NETWORK, SIZE(AT_MOST, LL_SLOT)), TT_LL},
    {WHEN(ANY, TT_NETWORK, ALWAYS), TT_SIMPLE},
    {WHEN(ANY, 0, SIZE(AT_MOST, LL)), TT_LL},
    {WHEN(ANY, 0, ALWAYS), TT_SIMPLE},
};

#define DIRECT (1u << TT_ALGO_DIRECT)
#define DIRECTWRITE (1u << TT_ALGO_DIRECTWRITE)
#define FIFOS (((1u << TT_NALGOS) - 1) & ~(DIRECT | DIRECTWRITE))

static const tt_chunk_rule chunk_rules[] = {
    {DIRECT, WHEN(F(ALLREDUCE), 0, ALWAYS), TT_CHUNK_FIXED, TT_AT_DIRECT_CHUNK, 0},
    {DIRECT, WHEN(ANY, TT_ONE_PROCESS, ALWAYS), TT_CHUNK_FIXED, TT_AT_COPY_CHUNK, 0},
    // All wait for all, and should do so once: the kernel reads what the pipe does not hold.
    {DIRECT, WHEN(BLOCKS, TT_TURNS, ALWAYS), TT_CHUNK_FIXED, TT_AT_COPY_CHUNK, 0},
    {DIRECT, WHEN(ANY, 0, ALWAYS), TT_CHUNK_EQUAL, TT_AT_PIPE_CHUNK, 0},
    // Two processes may have to hand chunks over, and sum whole chunks while these are in a cache.
    {DIRECTWRITE, WHEN(F(REDUCE), TT_PROCESSES | TT_TWO_RANKS, ALWAYS), TT_CHUNK_FIXED, TT_AT_REDUCE_CHUNK, 0},
    {DIRECTWRITE, WHEN(ANY, TT_PROCESSES | TT_TWO_RANKS, ALWAYS), TT_CHUNK_FIXED, TT_AT_BROADCAST_CHUNK, 0},
    {DIRECTWRITE, WHEN(ANY, 0, ALWAYS), TT_CHUNK_FIXED, TT_AT_COPY_CHUNK, 0},
    // The model knows nothing of TCP segments. Where each rank sends while it receives, fewer chunks are enough to
    // overlap.
    {FIFOS, WHEN(ANY, TT_BY_MODEL, SIZE(AT_LEAST, NET_LARGE)), TT_CHUNK_LONGEST, 0, 0},
    {FIFOS, WHEN(F(ALLGATHER) | F(REDUCESCATTER) | F(ALLTOALL), TT_BY_MODEL, PART(AT_LEAST, NET_LARGE_PART)),
     TT_CHUNK_LONGEST, 0, 0},
    {FIFOS, WHEN(ANY, TT_BY_MODEL, ALWAYS), TT_CHUNK_MODEL, 0, 0},
    {FIFOS, WHEN(MESSAGES, TT_NETWORK, ALWAYS), TT_CHUNK_MESSAGE, TT_AT_NET_P2P_CHUNK, 0},
    // Several passes, so that sender and receiver overlap; one where they share a core.
    {FIFOS, WHEN(ANY, TT_CROWDED | TT_NETWORK, ALWAYS), TT_CHUNK_SHARE, TT_AT_NET_CHUNK_LEAST, 1},
    {FIFOS, WHEN(ANY, TT_NETWORK, ALWAYS), TT_CHUNK_SHARE, TT_AT_NET_CHUNK_LEAST, 4},
    {FIFOS, WHEN(ANY, TT_CROWDED, ALWAYS), TT_CHUNK_SHARE, TT_AT_CHUNK_LEAST, 1},
    {FIFOS, WHEN(ANY, 0, ALWAYS), TT_CHUNK_SHARE, TT_AT_CHUNK_LEAST, 4},
};
// clang-format on
_Static_assert(2 * TT_COUNT(algo_rules) + TT_COUNT(proto_rules) + TT_COUNT(chunk_rules) <= TT_RULES_MOST,
               "room of tt_func_rules");

const tt_algo_rule *tt_algo_rules(size_t *count)
{
  *count = TT_COUNT(algo_rules);
  return algo_rules;
}

const tt_proto_rule *tt_proto_rules(size_t *count)
{
  *count = TT_COUNT(proto_rules);
  return proto_rules;
}

const tt_chunk_rule *tt_chunk_rules(size_t *count)
{
  *count = TT_COUNT(chunk_rules);
  return chunk_rules;
}

// No sums and products beyond the largest number: nothing is as long.
static size_t times(size_t a, size_t n)
{
  return a > SIZE_MAX / n ? SIZE_MAX : a * n;
}

// What the quantity may be: from *least to *most. False: nothing.
static bool bound_values(tt_relation relation, size_t threshold, size_t *least, size_t *most)
{
  *least = relation == TT_AT_LEAST ? threshold : relation == TT_ABOVE ? threshold + 1 : 0;
  *most = relation == TT_AT_MOST ? threshold : relation == TT_BELOW ? threshold - 1 : SIZE_MAX;
  return (relation != TT_ABOVE || threshold != SIZE_MAX) && (relation != TT_BELOW || threshold != 0);
}

// Leaves of the sizes in *out those within the bound. False: none.
static bool keep_bound(const tt_bound *b, const tt_situation *s, size_t threshold, tt_size_range *out)
{
  size_t least, most, n = s->ranks;
  if (!bound_values(b->relation, threshold, &least, &most)) {
    return false;
  }
  if (b->quantity == TT_OF_RANKS || b->quantity == TT_OF_PER_CORE) {
    size_t value = b->quantity == TT_OF_RANKS ? n : s->per_core;
    return value >= least && value <= most;
  }
  if (b->quantity == TT_OF_PART) { // rounded down
    least = times(least, n);
    most = most >= SIZE_MAX / n ? SIZE_MAX : most * n + n - 1;
  } else if (b->quantity == TT_OF_TOTAL) {
    least = TT_DIV_UP(least, n);
    most = most / n;
  }
  out->least = TT_MAX(out->least, least);
  out->most = TT_MIN(out->most, most);
  return out->least <= out->most;
}

bool tt_condition_sizes(const tt_condition *c, const tt_situation *s, const size_t *thresholds, tt_size_range *out)
{
  tt_size_range r = {.most = SIZE_MAX};
  if ((c->funcs >> s->func & 1) == 0 || (c->where & ~s->where) != 0) {
    return false;
  }
  for (const tt_bound *b = c->bounds; b < c->bounds + TT_BOUNDS && b->quantity != TT_OF_NOTHING; b++) {
    if (!keep_bound(b, s, thresholds[b->threshold], &r)) {
      return false;
    }
  }
  *out = r;
  return true;
}
