// tuner.c: what tutti-plugin asks of a tuner, of every version, through the library's own adapters.
#include <malloc.h>
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "check.h"
#include "plugin/tuner_priv.h"
#include "topo/model.h"

enum { GUARD = 64, CYCLES = 100, RANKS = 8 };

static const float guard_value = 12345.5F;

// A table with a wall on each side.
typedef struct walled {
  float before[GUARD];
  tt_tuner_costs costs;
  float after[GUARD];
} walled;

typedef struct answer {
  ncclResult_t res;
  int channels;
  walled w;
} answer;

static const tt_tuner_world world = {
    .comm_id = 0x1234, .nranks = RANKS, .nnodes = 1, .min_local = RANKS, .max_local = RANKS};

// 0: much can be had; 1: one entry; 2: none.
static void fill(tt_tuner_question *q, int how)
{
  for (int a = 0; a < TUTTI_NUM_ALGORITHMS; a++) {
    for (int p = 0; p < NCCL_NUM_PROTOCOLS; p++) {
      bool there = how == 0 ? a == NCCL_ALGO_TREE || a == NCCL_ALGO_RING
                            : how == 1 && a == NCCL_ALGO_RING && p == NCCL_PROTO_SIMPLE;
      q->costs[a][p] = there ? (float)(10 + a + p) : (float)NCCL_ALGO_PROTO_IGNORE;
    }
  }
}

static answer ask(const pc_job *job, const tt_tuner_version *v, void *context, const tt_tuner_question *q)
{
  answer a;
  memset(&a, 0, sizeof a);
  for (int i = 0; i < GUARD; i++) {
    a.w.before[i] = a.w.after[i] = guard_value;
  }
  memcpy(a.w.costs, q->costs, sizeof a.w.costs);
  a.res = v->query(job->table, context, q, a.w.costs, NCCL_NUM_ALGORITHMS, &a.channels);
  return a;
}

static int broken_walls(const walled *w)
{
  int n = 0;
  for (int i = 0; i < GUARD; i++) {
    n += w->before[i] != guard_value;
    n += w->after[i] != guard_value;
  }
  return n;
}

// What an answer may not be.
static void judge(const pc_job *job, const tt_tuner_question *q, const answer *a)
{
  int touched = 0, senseless = 0, beyond = broken_walls(&a->w);
  for (int i = 0; i < TUTTI_NUM_ALGORITHMS * NCCL_NUM_PROTOCOLS; i++) {
    float was = q->costs[i / NCCL_NUM_PROTOCOLS][i % NCCL_NUM_PROTOCOLS],
          is = a->w.costs[i / NCCL_NUM_PROTOCOLS][i % NCCL_NUM_PROTOCOLS];
    bool changed = memcmp(&was, &is, sizeof was) != 0;
    beyond += changed && i >= NCCL_NUM_ALGORITHMS * NCCL_NUM_PROTOCOLS;
    touched += changed && was == (float)NCCL_ALGO_PROTO_IGNORE;
    senseless += changed && !(is >= 0) && is != (float)NCCL_ALGO_PROTO_IGNORE;
  }
  const char *what = "getCollInfo(function %d, %zu bytes)";
  char call[96];
  snprintf(call, sizeof call, what, (int)q->func, q->bytes);
  pc_rule(job, (int)a->res >= 0 && a->res < ncclNumResults, "%s returns %d, which is no result code", call,
          (int)a->res);
  pc_rule(job, beyond == 0, "%s writes outside of the table of %d x %d costs", call, NCCL_NUM_ALGORITHMS,
          NCCL_NUM_PROTOCOLS);
  if (job->version > 2) { // version 2 names what it wants; that it cannot be had is no harm
    pc_rule(job, touched == 0, "%s gives %d entries a cost that are NCCL_ALGO_PROTO_IGNORE", call, touched);
  }
  pc_rule(job, senseless == 0, "%s writes %d costs that are no numbers, or negative", call, senseless);
  pc_rule(job, a->channels >= 0, "%s asks for %d channels", call, a->channels);
}

static bool same(const answer *a, const answer *b)
{
  return a->res == b->res && a->channels == b->channels && memcmp(a->w.costs, b->w.costs, sizeof a->w.costs) == 0;
}

// Every function, some sizes and tables, on two instances, as two ranks would.
static void ask_all(const pc_job *job, const tt_tuner_version *v, void *const context[2])
{
  static const size_t sizes[] = {1, 4096, 1u << 20, 1ull << 33};
  for (int i = 0; i < NCCL_NUM_FUNCTIONS * 4 * 3 * 2; i++) {
    tt_tuner_question q = {.func = (ncclFunc_t)(i / 24),
                           .bytes = sizes[i / 6 % 4],
                           .ops = 1 + i % 2,
                           .registered = i % 2 != 0,
                           .algo = -1,
                           .proto = -1};
    fill(&q, i / 2 % 3);
    answer a = ask(job, v, context[0], &q), b = ask(job, v, context[1], &q);
    judge(job, &q, &a);
    pc_rule(job, same(&a, &b), "getCollInfo(function %d, %zu bytes) answers two ranks differently", (int)q.func,
            q.bytes);
    size_t chunk = 65536;
    tt_tuner_answer choice = {.algo = NCCL_ALGO_RING, .proto = NCCL_PROTO_SIMPLE, .channels = 1};
    if (v->chunk != NULL && v->chunk(job->table, context[0], &q, &choice, &chunk)) {
      pc_rule(job, chunk > 0, "getChunkSize(function %d, %zu bytes) wants chunks of 0 bytes", (int)q.func, q.bytes);
    }
  }
}

static bool begin(const pc_job *job, const tt_tuner_version *v, void **context)
{
  ncclTunerConstants_v5_t constants;
  tt_model_constants_default(&constants);
  *context = NULL;
  ncclResult_t res = v->init(job->table, &world, &constants, context);
  bool numbers = true;
  for (size_t i = 0; i < sizeof constants / sizeof(double); i++) {
    double x;
    memcpy(&x, (const char *)&constants + i * sizeof x, sizeof x);
    numbers &= isfinite(x) != 0;
  }
  pc_rule(job, numbers, "init writes constants that are no numbers");
  return pc_rule(job, res == ncclSuccess, "init returns %d for %d ranks on 1 node", (int)res, RANKS);
}

static void end(const pc_job *job, const tt_tuner_version *v, void *context)
{
  ncclResult_t res = v->end(job->table, context);
  pc_rule(job, res == ncclSuccess, "%s returns %d", job->version < 5 ? "destroy" : "finalize", (int)res);
}

static void without_context(const pc_job *job, void *arg)
{
  const tt_tuner_version *v = arg;
  tt_tuner_question q = {.func = ncclFuncAllReduce, .bytes = 4096, .ops = 1, .algo = -1, .proto = -1};
  fill(&q, 0);
  (void)ask(job, v, NULL, &q);
  (void)v->end(job->table, NULL);
}

// What is left of memory when instances have come and gone.
static void look_for_leaks(const pc_job *job, const tt_tuner_version *v)
{
  void *context;
  size_t before = 0;
  for (int i = 0; i < CYCLES + 10; i++) {
    if (i == 10) { // what is made once has been
      before = mallinfo2().uordblks;
    }
    if (!begin(job, v, &context)) {
      return;
    }
    end(job, v, context);
  }
  size_t after = mallinfo2().uordblks;
  pc_rule(job, after < before + CYCLES, "each init and its end leave about %zu bytes behind",
          after < before ? 0 : (after - before) / CYCLES);
}

void pc_check_tuner(const pc_job *job)
{
  const tt_tuner_version *v = tt_tuner_version_find(job->version);
  void *context[2];
  char how[64];
  if (!pc_members(job, v->members, v->nmembers)) {
    return;
  }
  pc_name(job);
  if (!begin(job, v, &context[0])) {
    return;
  }
  if (begin(job, v, &context[1])) {
    ask_all(job, v, context);
    end(job, v, context[1]);
    bool none = context[0] == NULL;
    if (!none && !pc_survives(job, without_context, (void *)(uintptr_t)v, how)) {
      pc_note(job, "a NULL context ends the process: %s", how);
    }
  }
  end(job, v, context[0]);
  look_for_leaks(job, v);
}
