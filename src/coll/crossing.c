// crossing.c: see crossing.h.
#include "coll/crossing.h"

#include <math.h>

#include "base/result.h"
#include "base/util.h"
#include "coll/cost.h"
#include "coll/select.h"

enum { RANKS = 2, STEPS = 4 }; // STEPS: sizes looked at between a power of two and the next

#define LEAST 256.0
#define MOST ((double)TT_LIMIT_MOST)
#define FACTOR 16.0 // how far a limit may move: beyond that, figures say more of the measurement than of the machine

// One way of doing an all-reduce: the cheapest of some algorithms.
typedef struct way {
  uint32_t algos; // bits of their rows
  uint32_t protos;
} way;

enum { THROUGH_FIFOS = 1 << TT_ALGO_RD | 1 << TT_ALGO_RING };
static const way with_ll = {THROUGH_FIFOS, TT_PROTO_LL}, with_simple = {THROUGH_FIFOS, TT_PROTO_SIMPLE},
                 with_messages = {THROUGH_FIFOS, TT_PROTO_ALL}, with_calls = {1 << TT_ALGO_DIRECT, TT_PROTO_SIMPLE},
                 with_loads = {1 << TT_ALGO_DIRECTWRITE, TT_PROTO_SIMPLE};

// Where it is reckoned: models may differ in what direct access costs.
typedef struct side {
  tt_cost *cost;
  const way *way;
} side;

static ncclResult_t time_of(const side *s, double bytes, double *us)
{
  tt_cost_choice best;
  TT_TRY(tt_cost_best(s->cost, TT_FUNC_ALLREDUCE, (size_t)bytes, s->way->algos, s->way->protos, &best));
  *us = best.us;
  return ncclSuccess;
}

// The size from which `large` is the cheaper one, up to MOST; between sizes that are looked at, where the two times'
// logarithms meet.
static ncclResult_t find_crossing(const side *small, const side *large, double *out)
{
  double before = 0;
  *out = LEAST;
  for (double bytes = MOST; bytes >= LEAST; bytes *= pow(2, -1.0 / STEPS)) {
    double a, b;
    TT_TRY(time_of(small, bytes, &a));
    TT_TRY(time_of(large, bytes, &b));
    double ahead = log(b / a); // of `small`
    if (ahead > 0) {
      double part = before < 0 ? ahead / (ahead - before) : 0;
      *out = bytes * pow(2, part / STEPS);
      return ncclSuccess;
    }
    before = ahead;
  }
  return ncclSuccess;
}

// Where each pair of ways meets, between two ranks with a core each.
typedef struct crossings {
  double ll, copy, local;
} crossings;

// `called`: direct access through the kernel; `loaded`: within one process.
static ncclResult_t find_all(tt_cost *called, tt_cost *loaded, crossings *out)
{
  const side ll = {called, &with_ll}, simple = {called, &with_simple};
  const side messages = {called, &with_messages}, calls = {called, &with_calls}, loads = {loaded, &with_loads};
  TT_TRY(find_crossing(&ll, &simple, &out->ll));
  TT_TRY(find_crossing(&messages, &calls, &out->copy));
  return find_crossing(&messages, &loads, &out->local);
}

// Microseconds for each byte at so many MB/s.
static double byte_at(const tt_figures *f, tt_figure which)
{
  return 1 / (double)f->value[which];
}

// The table of costs for these ways. Its own bytes and calls are estimates that stand for any machine; here they are
// what was measured: a byte through common memory is half the sender's work, half the receiver's.
static tt_cost_env env_of(const tt_figures *f)
{
  tt_cost_env env = tt_cost_env_of(f, RANKS);
  env.hop[TT_HOP_MEMORY][TT_SIMPLE].byte = env.hop[TT_HOP_MEMORY][TT_LL].byte = byte_at(f, TT_FIG_PASS) / 2;
  env.direct = (tt_cost_hop){.work = (double)f->value[TT_FIG_CALL_START] / 1000, .byte = byte_at(f, TT_FIG_CALL)};
  env.byte = byte_at(f, TT_FIG_ADD);
  return env;
}

static ncclResult_t find_crossings(const tt_figures *f, crossings *out)
{
  tt_cost *called = NULL, *loaded = NULL;
  tt_cost_env env = env_of(f);
  TT_TRY(tt_cost_create(&env, RANKS, NULL, &called));
  env.direct = env.hop[TT_HOP_MEMORY][TT_SIMPLE]; // loads and stores
  ncclResult_t res = tt_cost_create(&env, RANKS, NULL, &loaded);
  res = res == ncclSuccess ? find_all(called, loaded, out) : res;
  tt_cost_destroy(called);
  tt_cost_destroy(loaded);
  return res;
}

// `bytes`, but not too far from `limit`, and whole lines.
static size_t within(size_t limit, double bytes)
{
  size_t lines = (size_t)TT_CLAMP(bytes, (double)limit / FACTOR, TT_MIN((double)limit * FACTOR, (double)TT_LIMIT_MOST));
  return TT_MAX(TT_ROUND_UP(lines, 64), 64);
}

bool tt_limits_good(const tt_limits *l)
{
  const size_t all[] = {l->ll, l->direct_copy, l->direct_local, l->direct_chunk};
  bool good = true;
  for (size_t i = 0; i < TT_COUNT(all); i++) {
    good = good && all[i] >= 64 && all[i] <= TT_LIMIT_MOST && all[i] % 64 == 0;
  }
  return good;
}

ncclResult_t tt_limits_find(const tt_figures *f, tt_limits *limits)
{
  const tt_figures own = tt_figures_default();
  crossings here, there;
  if (f->measured == 0) {
    return ncclSuccess;
  }
  TT_TRY(find_crossings(f, &here));
  TT_TRY(find_crossings(&own, &there));
  limits->ll = within(limits->ll, here.ll);
  limits->direct_copy = within(limits->direct_copy, here.copy);
  limits->direct_local = within(limits->direct_local, (double)limits->direct_local * here.local / there.local);
  size_t chunk = within(limits->direct_chunk, (double)limits->direct_chunk * tt_figures_ratio(f, TT_FIG_L2));
  limits->direct_chunk = TT_MIN(limits->direct_chunk, chunk); // and an outbox holds two of them, whatever the cache
  return ncclSuccess;
}
