// cost.c: the table of costs, the curves that walking the schedules gives, and the cheapest choice.
#include "coll/cost.h"

#include <math.h>
#include <stdbool.h>

#include "base/result.h"
#include "base/util.h"
#include "coll/cost_priv.h"
#include "coll/select.h"

enum { SAMPLES = 3 };

// Passes of a run that are walked: as many as make so many of all ranks together, but a least number; and with many
// ranks, as many as have so many steps.
enum { RUN_RANK_PASSES = 32768, RUN_PASSES_LEAST = 512, RUN_STEPS = 4 << 20 };

// Below this a message is not cut further for the sake of overlap, and never into more than MOST_CUTS times as many
// chunks as it needs. Over a network one thread makes the calls for both directions, and shorter messages overlap with
// nothing.
#define CHUNK_MIN 4096.0
#define NET_CUT_MIN 16384.0
#define MOST_CUTS 8

// Times of the first passes for three sizes of chunk, of one function, algorithm and protocol.
typedef struct curve {
  struct curve *next;
  tt_func func;
  int algo;
  tt_proto proto;
  int nsub;
  double chunk[SAMPLES];
  tt_walk_times times[SAMPLES];
} curve;

struct tt_cost {
  tt_cost_env env;
  int nranks;
  const tt_layout *layout;
  curve *curves;
};

// Estimates for memory shared by two cores and for TCP; choices depend on their ratios. Measurements:
// docs/notes/performance-log.md.
tt_cost_env tt_cost_env_default(int cores)
{
  static const tt_cost_env table = {
      .hop =
          {[TT_HOP_SELF] =
               {[TT_SIMPLE] = {0.0, 0.10, 0.00010}, [TT_LL] = {0.0, 0.05, 0.00010}, [TT_TOK] = {0.0, 0.05, 0}},
           [TT_HOP_MEMORY] =
               {[TT_SIMPLE] = {0.6, 0.20, 0.00012}, [TT_LL] = {0.4, 0.08, 0.00015}, [TT_TOK] = {0.4, 0.08, 0}},
           [TT_HOP_NETWORK] = {[TT_SIMPLE] = {6, 2.5, 0.00015}, [TT_LL] = {6, 2.2, 0.00020}, [TT_TOK] = {6, 2.2, 0}}},
      .direct = {0, 0.5, 0.00012},
      .step = 0.05,
      .byte = 0.00005,
      .net_byte = 0.0002,
      .change = 3,
      .slots = {[TT_SIMPLE] = 8, [TT_LL] = 16, [TT_TOK] = 8},
      .payload = {[TT_SIMPLE] = 64 << 10, [TT_LL] = 8128, [TT_TOK] = 256 << 10},
  };
  tt_cost_env env = table;
  env.cores = cores;
  return env;
}

// Cache lines that go from core to core, one after the other, until a receiver sees a message and the sender that it
// was taken: header and data of one line, or each its own.
enum { SLOT_LINES = 2, SIMPLE_LINES = 3 };

// A figure that is a speed: how many times as long a byte takes.
static double slower(const tt_figures *f, tt_figure which)
{
  return 1 / tt_figures_ratio(f, which);
}

// The table, each entry as much larger or smaller as what it depends on. Steps and work per message are the library's
// own code: they stay, and what of a message's latency is not the way of its lines.
tt_cost_env tt_cost_env_of(const tt_figures *f, int cores)
{
  tt_cost_env env = tt_cost_env_default(cores);
  // A cache line comes, in microseconds.
  double later = ((double)f->value[TT_FIG_LINE] - (double)tt_figures_default().value[TT_FIG_LINE]) / 1e6;
  for (int p = 0; p < TT_COST_FIFOS; p++) {
    env.hop[TT_HOP_SELF][p].byte *= slower(f, TT_FIG_ADD);
    env.hop[TT_HOP_MEMORY][p].byte *= slower(f, TT_FIG_PASS);
    env.hop[TT_HOP_MEMORY][p].latency += (p == TT_SIMPLE ? SIMPLE_LINES : SLOT_LINES) * later;
    env.hop[TT_HOP_NETWORK][p].byte *= slower(f, TT_FIG_NET);
    env.hop[TT_HOP_NETWORK][p].work *= tt_figures_ratio(f, TT_FIG_NET_CALL);
    env.hop[TT_HOP_NETWORK][p].latency *= tt_figures_ratio(f, TT_FIG_NET_WAY);
  }
  env.direct.work *= tt_figures_ratio(f, TT_FIG_CALL_START);
  env.direct.byte *= slower(f, TT_FIG_CALL);
  env.byte *= slower(f, TT_FIG_ADD);
  env.net_byte *= slower(f, TT_FIG_NET);
  env.change *= tt_figures_ratio(f, TT_FIG_SWITCH);
  return env;
}

ncclResult_t tt_cost_create(const tt_cost_env *env, int nranks, const tt_layout *layout, tt_cost **out)
{
  bool good = nranks >= 1 && (!layout || layout->nranks == nranks) && env->cores >= 1;
  for (int p = 0; p < TT_COST_FIFOS; p++) {
    good = good && env->slots[p] >= 1 && env->payload[p] >= 1;
  }
  if (!good) {
    return tt_fail(ncclInvalidArgument, "cost model: %d ranks, a layout of %d, %d cores, or no slots or payload",
                   nranks, layout ? layout->nranks : nranks, env->cores);
  }
  tt_cost *c = tt_calloc(1, sizeof *c);
  if (!c) {
    return tt_fail(ncclSystemError, "out of memory: cost model");
  }
  *c = (tt_cost){.env = *env, .nranks = nranks, .layout = layout};
  *out = c;
  return ncclSuccess;
}

void tt_cost_destroy(tt_cost *c)
{
  while (c && c->curves) {
    curve *next = c->curves->next;
    tt_free(c->curves);
    c->curves = next;
  }
  tt_free(c);
}

// ---- curves ----

static ncclResult_t walk_samples(const tt_cost *c, curve *v, const tt_schedule *const *all)
{
  double most = (double)c->env.payload[v->proto];
  const double chunks[SAMPLES] = {fmin(64, most), fmax(most / 8, fmin(64, most)), most};
  v->nsub = all[0]->nsub;
  for (int i = 0; i < SAMPLES; i++) {
    v->chunk[i] = chunks[i];
    TT_TRY(tt_cost_walk(&c->env, c->layout, all, v->proto, chunks[i], &v->times[i]));
  }
  return ncclSuccess;
}

// The schedules of all ranks. Rooted functions: rank 0 is the root.
static ncclResult_t write_all(const tt_cost *c, tt_func func, int algo, tt_schedule **all)
{
  tt_shape shape = {.func = func, .nranks = c->nranks, .layout = c->layout};
  for (; shape.rank < c->nranks; shape.rank++) {
    TT_TRY(tt_algorithm_write(&tt_algorithms(NULL)[algo], &shape, &all[shape.rank]));
  }
  return ncclSuccess;
}

static void cost_free_all(const tt_cost *c, tt_schedule **all)
{
  for (int r = 0; r < c->nranks; r++) {
    tt_schedule_free(all[r]);
  }
  tt_free(all);
}

static ncclResult_t fill_curve(const tt_cost *c, curve *v)
{
  tt_schedule **all = NULL;
  TT_TRY(TT_NEW(all, (size_t)c->nranks, "out of memory: %d schedules", c->nranks));
  ncclResult_t res = write_all(c, v->func, v->algo, all);
  if (res == ncclSuccess) {
    res = walk_samples(c, v, (const tt_schedule *const *)all);
  }
  cost_free_all(c, all);
  return res;
}

static ncclResult_t find_curve(tt_cost *c, tt_func func, int algo, tt_proto proto, const curve **out)
{
  for (curve *v = c->curves; v; v = v->next) {
    if (v->func == func && v->algo == algo && v->proto == proto) {
      *out = v;
      return ncclSuccess;
    }
  }
  curve *v = tt_calloc(1, sizeof *v);
  if (!v) {
    return tt_fail(ncclSystemError, "out of memory: cost of %s", tt_func_name(func));
  }
  *v = (curve){.func = func, .algo = algo, .proto = proto};
  ncclResult_t res = fill_curve(c, v);
  if (res != ncclSuccess) {
    tt_free(v);
    return res;
  }
  v->next = c->curves;
  c->curves = v;
  *out = v;
  return ncclSuccess;
}

// ---- from curves to times ----

static double time_of_passes(const tt_walk_times *t, double passes)
{
  return passes <= TT_WALK_PASSES ? t->end[(int)passes - 1]
                                  : t->end[TT_WALK_PASSES - 1] + (passes - TT_WALK_PASSES) * t->period;
}

static double time_at(const curve *v, double chunk, double passes)
{
  int i = chunk < v->chunk[1] ? 0 : 1;
  double a = time_of_passes(&v->times[i], passes), b = time_of_passes(&v->times[i + 1], passes),
         width = v->chunk[i + 1] - v->chunk[i];
  double part = width > 0 ? fmin(fmax((chunk - v->chunk[i]) / width, 0), 1) : 0;
  return isinf(a) ? a : a + (b - a) * part;
}

static bool cost_has_blocks(tt_func f)
{
  return f == TT_FUNC_ALLGATHER || f == TT_FUNC_REDUCESCATTER || f == TT_FUNC_ALLTOALL || f == TT_FUNC_GATHER ||
         f == TT_FUNC_SCATTER;
}

// The best number of passes: as few as possible, or more of smaller chunks, which overlap.
static void cut_message(const tt_cost *c, const curve *v, size_t bytes, tt_cost_choice *out)
{
  double part = ceil((double)bytes / (cost_has_blocks(v->func) ? c->nranks : 1) / v->nsub);
  double least = fmax(ceil(part / (double)c->env.payload[v->proto]), 1);
  double shortest = c->layout && c->layout->nnodes > 1 ? NET_CUT_MIN : CHUNK_MIN;
  for (int cuts = 1; cuts <= MOST_CUTS && (cuts == 1 || part / (least * cuts) >= shortest); cuts *= 2) {
    double chunk = ceil(part / (least * cuts)), us = time_at(v, chunk, least * cuts);
    if (us < out->us) {
      out->us = us;
      out->chunk = TT_MIN(TT_ROUND_UP((size_t)fmax(chunk, 1), (size_t)64), c->env.payload[v->proto]);
    }
  }
}

ncclResult_t tt_cost_estimate(tt_cost *c, tt_func func, int algo, tt_proto proto, size_t bytes, tt_cost_choice *out)
{
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  if ((unsigned)func >= TT_NFUNCS || func == TT_FUNC_SEND || func == TT_FUNC_RECV || algo < 0 || algo >= count ||
      (unsigned)proto >= TT_TOK) {
    return tt_fail(ncclInvalidArgument, "no cost of function %s, algorithm %d, protocol %d", tt_func_name(func), algo,
                   (int)proto);
  }
  tt_cost_choice best = {.algo = algo, .proto = table[algo].needs ? TT_TOK : proto, .us = HUGE_VAL};
  bool wrong = table[algo].in_network && proto == TT_LL; // networks that reduce get SIMPLE messages alone
  if (table[algo].funcs >> func & 1 && !wrong) {
    const curve *v = NULL;
    TT_TRY(find_curve(c, func, algo, best.proto, &v));
    cut_message(c, v, bytes, &best);
  }
  *out = best;
  return ncclSuccess;
}

// ---- runs, walked to their end ----

// What `further` passes or operations add, with the pace of the second half of those that were walked; ends: of passes.
// The busiest rank, core or network needs no less for each, also where connections were still filling.
static double cost_go_on(const tt_walk_passes *p, const double *ends, double busiest, double further)
{
  int each = p->cycle > 0 ? p->cycle : 1, walked = p->count / each, half = walked / 2;
  double begun = half > 0 ? ends[half * each - 1] : 0;
  return further * fmax((ends[p->count - 1] - begun) / (walked - half), busiest / walked);
}

// The most passes of these schedules that are walked.
static double cost_most_passes(int nranks, const tt_schedule *const *schedules)
{
  double steps = 0;
  for (int i = 0; i < nranks; i++) {
    steps += schedules[i]->nsteps;
  }
  return fmin(fmax(RUN_RANK_PASSES / nranks, RUN_PASSES_LEAST), fmax(ceil(RUN_STEPS / steps), TT_WALK_PASSES));
}

static ncclResult_t cost_walk_run_of(const tt_cost *c, const tt_cost_run *run, const tt_schedule *const *schedules,
                                     double *us)
{
  double part = fmax(ceil((double)run->bytes / (cost_has_blocks(run->func) ? c->nranks : 1) / schedules[0]->nsub), 1);
  double each = ceil(part / (double)run->chunk), most = cost_most_passes(c->nranks, schedules);
  tt_walk_passes p = {
      .proto = run->proto, .chunk = fmin((double)run->chunk, part), .last = part - (each - 1) * (double)run->chunk};
  bool whole = each <= most / 4; // several operations can be walked; else the beginning of one
  p.late = c->layout != NULL && c->layout->nnodes > 1 ? c->env.hop[TT_HOP_NETWORK][TT_LL].latency : 0;
  p.cycle = whole ? (int)each : 0;
  p.count = whole ? (int)fmin(floor(most / each), run->times) * p.cycle : (int)fmin(each, most);
  double *ends;
  tt_walk_result walk;
  TT_TRY(TT_NEW(ends, (size_t)p.count, "out of memory: %d passes", p.count));
  ncclResult_t res = tt_cost_walk_passes(&c->env, c->layout, schedules, &p, ends, &walk);
  if (res == ncclSuccess && isinf(walk.longest)) {
    *us = HUGE_VAL;
  } else if (res == ncclSuccess) {
    int operations = whole ? run->times : 1;
    double further = whole ? operations - p.count / p.cycle : each - p.count;
    *us = (walk.longest + cost_go_on(&p, ends, walk.busiest, further)) / operations;
  }
  tt_free(ends);
  return res;
}

ncclResult_t tt_cost_of_run(tt_cost *c, const tt_cost_run *run, double *us)
{
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  if (run->chunk == 0 || run->times < 1 || (unsigned)run->func >= TT_NFUNCS || run->func == TT_FUNC_SEND ||
      run->func == TT_FUNC_RECV || run->algo < 0 || run->algo >= count) {
    return tt_fail(ncclInvalidArgument, "no cost of %d operations %s, algorithm %d, in chunks of %zu bytes", run->times,
                   tt_func_name(run->func), run->algo, run->chunk);
  }
  if ((table[run->algo].funcs >> run->func & 1) == 0) {
    *us = HUGE_VAL;
    return ncclSuccess;
  }
  tt_cost_run walked = *run;
  walked.proto = table[run->algo].needs != 0 ? TT_TOK : run->proto == TT_LL ? TT_LL : TT_SIMPLE;
  tt_schedule **all = NULL;
  TT_TRY(TT_NEW(all, (size_t)c->nranks, "out of memory: %d schedules", c->nranks));
  ncclResult_t res = write_all(c, run->func, run->algo, all);
  if (res == ncclSuccess) {
    res = cost_walk_run_of(c, &walked, (const tt_schedule *const *)all, us);
  }
  cost_free_all(c, all);
  return res;
}

ncclResult_t tt_cost_best(tt_cost *c, tt_func func, size_t bytes, uint32_t algos, uint32_t protos, tt_cost_choice *out)
{
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  tt_cost_choice best = {.algo = -1, .us = HUGE_VAL};
  if ((unsigned)func >= TT_NFUNCS) {
    return tt_fail(ncclInvalidArgument, "no cost of function %d", (int)func);
  }
  for (int i = 0; i < count * 2; i++) {
    tt_proto proto = i % 2 ? TT_LL : TT_SIMPLE;
    bool asked = algos >> (i / 2) & 1 && protos & (proto == TT_LL ? TT_PROTO_LL : TT_PROTO_SIMPLE);
    tt_cost_choice one = {.us = HUGE_VAL};
    if (asked && table[i / 2].funcs >> func & 1) {
      TT_TRY(tt_cost_estimate(c, func, i / 2, proto, bytes, &one));
    }
    best = one.us < best.us ? one : best;
  }
  *out = best;
  return ncclSuccess;
}
