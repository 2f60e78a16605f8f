// zerocopy_test.c: that marks mean what they say: every algorithm runs in a model where the network reads lent chunks
// and writes placed ones whenever it likes, and must give what it gives without marks. Then marks that are wrong, all
// of which the model must notice.
#include <stdlib.h>
#include <string.h>

#include "base/result.h"
#include "base/util.h"
#include "coll/channels_rig.h"
#include "tools/verify_rig.h"
#include "coll/zerocopy.h"

enum { SLOTS = 8, RANKS = 16 };

// ---- the model: memory, connections, and a network that takes its time

typedef struct message {
  uint64_t value;
  const uint64_t *lent; // where the value is read when it travels
  uint64_t *place;      // where it goes to
} message;

typedef struct queue {
  message slot[SLOTS];
  uint32_t sent, moved, taken;
} queue;

typedef struct model {
  const ranks *r;
  bool in_place;
  unsigned lend, place; // marks to be heeded
  uint64_t random;
  uint64_t *in[RANKS], *tmp[RANKS], **out[RANKS];
  queue queues[RANKS][RANKS]; // from, to
  uint32_t pc[RANKS][8];      // by strand
} model;

static uint64_t draw(model *m, uint64_t below)
{
  m->random ^= m->random << 13;
  m->random ^= m->random >> 7;
  m->random ^= m->random << 17;
  return m->random % below;
}

static int shift_of(const tt_schedule *s)
{
  return s->out_blocks > s->in_blocks ? s->rank : s->out_blocks < s->in_blocks ? -s->rank : 0;
}

// In place, an output chunk is an input chunk where both exist.
static void model_open(model *m)
{
  for (int i = 0; i < m->r->count; i++) {
    const tt_schedule *s = m->r->s[i];
    int ins = s->in_blocks * s->nsub, outs = s->out_blocks * s->nsub;
    m->in[i] = calloc((size_t)(ins + outs + s->ntmp + 1), sizeof(uint64_t));
    m->out[i] = calloc((size_t)outs + 1, sizeof(uint64_t *));
    m->tmp[i] = m->in[i] + ins + outs;
    for (int c = 0; c < ins; c++) {
      m->in[i][c] = (uint64_t)(i + 1) << 32 | (uint64_t)(c + 1);
    }
    for (int c = 0; c < outs; c++) {
      int in = c - shift_of(s) * s->nsub;
      m->out[i][c] = m->in_place && in >= 0 && in < ins ? &m->in[i][in] : &m->in[i][ins + c];
    }
  }
}

static void model_close(model *m)
{
  for (int i = 0; i < m->r->count; i++) {
    free(m->in[i]);
    free(m->out[i]);
  }
}

static uint64_t *cell(const model *m, int rank, const tt_ref *ref)
{
  return ref->kind == TT_IN    ? &m->in[rank][ref->chunk]
         : ref->kind == TT_TMP ? &m->tmp[rank][ref->chunk]
                               : m->out[rank][ref->chunk];
}

static const tt_ref *destination(const tt_schedule *s, const tt_step *step, int kind)
{
  for (int i = 0; i < step->ndst; i++) {
    if (s->refs[step->dst + (uint32_t)i].kind == kind) {
      return &s->refs[step->dst + (uint32_t)i];
    }
  }
  return NULL;
}

// The step that takes message `number` of a connection.
static const tt_step *taker(const tt_schedule *s, int from, uint32_t number)
{
  for (int i = 0; i < s->nsteps; i++) {
    for (int k = 0; k < s->steps[i].nsrc; k++) {
      const tt_ref *ref = &s->refs[s->steps[i].src + (uint32_t)k];
      if (ref->kind == TT_FIFO && ref->peer == from && number-- == 0) {
        return &s->steps[i];
      }
    }
  }
  return NULL;
}

// The network moves one message of a connection.
static bool travel(model *m, int from, int to)
{
  queue *q = &m->queues[from][to];
  if (q->moved == q->sent) {
    return false;
  }
  message *msg = &q->slot[q->moved % SLOTS];
  const tt_schedule *s = m->r->s[to];
  const tt_step *step = taker(s, from, q->moved++);
  if (msg->lent != NULL) {
    msg->value = *msg->lent;
  }
  if (step->flags & m->place) {
    msg->place = cell(m, to, destination(s, step, TT_OUT));
    *msg->place = msg->value;
  }
  return true;
}

static bool ready(const model *m, int rank, const tt_step *step)
{
  const tt_ref *refs = m->r->s[rank]->refs;
  for (int i = 0; i < step->nsrc; i++) {
    const tt_ref *ref = &refs[step->src + (uint32_t)i];
    if (ref->kind == TT_FIFO && m->queues[ref->peer][rank].taken == m->queues[ref->peer][rank].moved) {
      return false;
    }
  }
  for (int i = 0; i < step->ndst; i++) {
    const tt_ref *ref = &refs[step->dst + (uint32_t)i];
    if (ref->kind == TT_FIFO && m->queues[rank][ref->peer].sent - m->queues[rank][ref->peer].taken == SLOTS) {
      return false;
    }
  }
  return true;
}

// What the step makes of its sources: a number that depends on all of them and on their order.
static uint64_t combine(model *m, int rank, const tt_step *step)
{
  uint64_t value = 0;
  for (int i = 0; i < step->nsrc; i++) {
    const tt_ref *ref = &m->r->s[rank]->refs[step->src + (uint32_t)i];
    queue *q = ref->kind == TT_FIFO ? &m->queues[ref->peer][rank] : NULL;
    const message *msg = q == NULL ? NULL : &q->slot[q->taken++ % SLOTS];
    uint64_t one = msg == NULL ? *cell(m, rank, ref) : msg->place != NULL ? *msg->place : msg->value;
    value = step->nsrc == 1 ? one : value * 0x9e3779b97f4a7c15ull + one;
  }
  return value;
}

static void run_step(model *m, int rank, const tt_step *step)
{
  const tt_schedule *s = m->r->s[rank];
  uint64_t value = combine(m, rank, step);
  const uint64_t *lender = NULL;
  if (step->flags & m->lend) {
    const tt_ref *out = destination(s, step, TT_OUT);
    lender = cell(m, rank, out != NULL ? out : &s->refs[step->src]);
  }
  for (int i = 0; i < step->ndst; i++) {
    const tt_ref *ref = &s->refs[step->dst + (uint32_t)i];
    if (ref->kind == TT_FIFO) {
      queue *q = &m->queues[rank][ref->peer];
      q->slot[q->sent++ % SLOTS] = (message){.value = lender != NULL ? 0 : value, .lent = lender};
    } else {
      *cell(m, rank, ref) = value;
    }
  }
}

static bool run_strand(model *m, int rank, int k)
{
  const tt_schedule *s = m->r->s[rank];
  if (m->pc[rank][k] == s->strands[k].count || !ready(m, rank, &s->steps[s->strands[k].first + m->pc[rank][k]])) {
    return false;
  }
  run_step(m, rank, &s->steps[s->strands[k].first + m->pc[rank][k]++]);
  return true;
}

// Lets everybody who likes take a step. `lazy`: how many in 8 of the network's chances pass.
static bool turn(model *m, unsigned lazy)
{
  bool moved = false, waiting = false;
  for (int i = 0; i < m->r->count; i++) {
    for (int k = 0; k < m->r->s[i]->nstrands; k++) {
      moved |= draw(m, 4) != 0 && run_strand(m, i, k);
    }
  }
  for (int from = 0; from < m->r->count; from++) {
    for (int to = 0; to < m->r->count; to++) {
      bool late = draw(m, 8) < lazy;
      waiting |= m->queues[from][to].moved != m->queues[from][to].sent;
      moved |= !late && travel(m, from, to);
    }
  }
  return moved || waiting;
}

static bool finished(const model *m)
{
  for (int i = 0; i < m->r->count; i++) {
    for (int k = 0; k < m->r->s[i]->nstrands; k++) {
      if (m->pc[i][k] != m->r->s[i]->strands[k].count) {
        return false;
      }
    }
  }
  return true;
}

static void run_model(model *m, unsigned lazy)
{
  model_open(m);
  for (int idle = 0; !finished(m); idle = turn(m, lazy) ? 0 : idle + 1) {
    assert_true(idle < 200);
  }
}

// Do the outputs come out as without marks?
static bool same_outputs(const ranks *r, bool in_place, uint64_t seed)
{
  model *plain = calloc(1, sizeof *plain), *marked = calloc(1, sizeof *marked);
  bool same = true;
  *plain = (model){.r = r, .in_place = in_place, .random = seed};
  *marked = (model){.r = r,
                    .in_place = in_place,
                    .random = seed + 99,
                    .lend = in_place ? TT_STEP_LEND_IN_PLACE : TT_STEP_LEND,
                    .place = in_place ? TT_STEP_PLACE_IN_PLACE : TT_STEP_PLACE};
  run_model(plain, 0);
  run_model(marked, (unsigned)(seed % 8));
  for (int i = 0; i < r->count; i++) {
    for (int c = 0; c < r->s[i]->out_blocks * r->s[i]->nsub; c++) {
      same = same && *plain->out[i][c] == *marked->out[i][c];
    }
  }
  model_close(plain);
  model_close(marked);
  free(plain);
  free(marked);
  return same;
}

// ---- every algorithm

static void mark_all(const ranks *r)
{
  for (int i = 0; i < r->count; i++) {
    assert_int_equal(tt_zerocopy_mark(r->s[i]), ncclSuccess);
  }
}

static void check_shape(const tt_algorithm *a, tt_shape shape)
{
  ranks r = write_shape(a, shape);
  mark_all(&r);
  for (uint64_t seed = 1; seed <= 8; seed++) {
    for (int in_place = 0; in_place < (shape.func == TT_FUNC_ALLTOALL ? 1 : 2); in_place++) {
      if (!same_outputs(&r, in_place, seed)) {
        fail_msg("%s %s, %d ranks, root %d, %s, seed %d", a->name, tt_func_name(shape.func), shape.nranks, shape.root,
                 in_place ? "in place" : "apart", (int)seed);
      }
    }
  }
  free_ranks(&r);
}

static void every_shape(const tt_algorithm *a, tt_func f)
{
  for (int n = 1; n <= 13 && !is_p2p(f) && a->needs == 0; n += n < 9 ? 1 : 4) {
    for (int root = 0; root < (is_rooted(f) ? n : 1); root += 3) {
      check_shape(a, (tt_shape){.func = f, .nranks = n, .root = root});
      for (int nodes = 2; nodes <= n && !a->in_network; nodes += 2) { // what is for a network that reduces is copied
        int names[RANKS];
        tt_layout *l;
        for (int i = 0; i < n; i++) {
          names[i] = root % 2 ? i % nodes : i * nodes / n;
        }
        assert_int_equal(tt_layout_create(n, names, &l), ncclSuccess);
        check_shape(a, (tt_shape){.func = f, .nranks = n, .root = root, .layout = l});
        assert_int_equal(set_random_channels(l, (uint64_t)(n * nodes + root), 2), ncclSuccess);
        for (int c = 0; c < tt_algorithm_channels(a, l); c++) {
          check_shape(a, (tt_shape){.func = f, .nranks = n, .root = root, .layout = l, .channel = c});
        }
        tt_layout_destroy(l);
      }
    }
  }
}

static void test_marks_change_nothing(void **state)
{
  (void)state;
  each_row(every_shape);
}

// ---- how many there are

static int count_flags(const ranks *r, unsigned flag)
{
  int n = 0;
  for (int i = 0; i < r->count; i++) {
    for (int k = 0; k < r->s[i]->nsteps; k++) {
      n += (r->s[i]->steps[k].flags & flag) != 0;
    }
  }
  return n;
}

typedef struct expected {
  const char *algo;
  tt_func func;
  int n;
  int lend, place, lend_in_place, place_in_place;
} expected;

static void test_who_is_marked(void **state)
{
  static const expected rows[] = {
      // Each rank: its first input chunk, and all but one of the sums it passes on; all sums it receives.
      {"Ring", TT_FUNC_ALLREDUCE, 2, 4, 2, 2, 0},     {"Ring", TT_FUNC_ALLREDUCE, 4, 16, 12, 12, 0},
      {"Ring", TT_FUNC_ALLGATHER, 4, 12, 12, 12, 12}, {"Ring", TT_FUNC_BROADCAST, 4, 3, 3, 3, 3},
      {"Ring", TT_FUNC_REDUCESCATTER, 4, 4, 0, 4, 0}, {"Pairwise", TT_FUNC_ALLTOALL, 4, 12, 12, 0, 0},
      {"RD", TT_FUNC_ALLREDUCE, 4, 0, 0, 0, 0},       {"Tree", TT_FUNC_BROADCAST, 2, 1, 1, 1, 1},
      {"Direct", TT_FUNC_ALLGATHER, 4, 0, 0, 0, 0},
  };
  (void)state;
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    const expected *e = &rows[i];
    ranks r =
        write_shape(&tt_algorithms(NULL)[tt_algorithm_find(e->algo)], (tt_shape){.func = e->func, .nranks = e->n});
    mark_all(&r);
    int got[4] = {count_flags(&r, TT_STEP_LEND), count_flags(&r, TT_STEP_PLACE), count_flags(&r, TT_STEP_LEND_IN_PLACE),
                  count_flags(&r, TT_STEP_PLACE_IN_PLACE)};
    if (got[0] != e->lend || got[1] != e->place || got[2] != e->lend_in_place || got[3] != e->place_in_place) {
      fail_msg("%s %s, %d ranks: %d lend, %d place; in place %d, %d", e->algo, tt_func_name(e->func), e->n, got[0],
               got[1], got[2], got[3]);
    }
    free_ranks(&r);
  }
}

// ---- marks that are wrong

// Marks every step that could be marked by its form.
static void mark_boldly(const ranks *r, unsigned lend, unsigned place)
{
  for (int i = 0; i < r->count; i++) {
    tt_schedule *s = r->s[i];
    for (int k = 0; k < s->nsteps; k++) {
      tt_step *step = &s->steps[k];
      int from = s->refs[step->src].kind;
      bool out = destination(s, step, TT_OUT) != NULL, sends = destination(s, step, TT_FIFO) != NULL;
      bool lends = sends && (out || (step->nsrc == 1 && (from == TT_IN || from == TT_OUT)));
      step->flags =
          (uint16_t)(step->flags | (lends ? lend : 0) | (out && step->nsrc == 1 && from == TT_FIFO ? place : 0));
    }
  }
}

static bool bold_marks_harm(const char *algo, tt_func f, int n, bool in_place, bool lend)
{
  ranks r = write_shape(&tt_algorithms(NULL)[tt_algorithm_find(algo)], (tt_shape){.func = f, .nranks = n});
  bool harm = false;
  mark_boldly(&r,
              !lend      ? 0
              : in_place ? TT_STEP_LEND_IN_PLACE
                         : TT_STEP_LEND,
              lend       ? 0
              : in_place ? TT_STEP_PLACE_IN_PLACE
                         : TT_STEP_PLACE);
  for (uint64_t seed = 1; seed <= 40 && !harm; seed++) {
    harm = !same_outputs(&r, in_place, seed);
  }
  free_ranks(&r);
  return harm;
}

static void test_wrong_marks_are_noticed(void **state)
{
  (void)state;
  assert_true(bold_marks_harm("RD", TT_FUNC_ALLREDUCE, 4, false, true)); // sums again into what was lent
  // Receives where its input still waits to be sent.
  assert_true(bold_marks_harm("Pairwise", TT_FUNC_ALLTOALL, 4, true, true));
  assert_true(bold_marks_harm("Pairwise", TT_FUNC_ALLTOALL, 4, true, false)); // the same, seen from the other side
  // And bold is right where nothing is written twice.
  assert_false(bold_marks_harm("Ring", TT_FUNC_ALLGATHER, 4, false, true));
  assert_false(bold_marks_harm("Pairwise", TT_FUNC_ALLTOALL, 4, false, true)); //
}

// ---- single rules, and how buffers lie

static const tt_ref in0 = {.kind = TT_IN}, out0 = {.kind = TT_OUT}, tmp0 = {.kind = TT_TMP},
                    to = {.kind = TT_FIFO, .peer = 1};

typedef struct rule {
  tt_ref step[3][2]; // source, destination
  int strands;       // 1: all in one; 2: the last one beside the others
  unsigned flags[3]; // expected
} rule;

static void test_rules(void **state)
{
  const unsigned L = TT_STEP_LEND, P
  = TT_STEP_PLACE, LI = TT_STEP_LEND_IN_PLACE, PI = TT_STEP_PLACE_IN_PLACE;
  const rule rules[] = {
      {{{in0, to}, {in0, to}, {in0, to}}, 1, {L | LI, L | LI, L | LI}},
      {{{in0, to}, {to, out0}, {out0, to}}, 1, {L, P, L | LI}},  // in place the input is overwritten
      {{{to, out0}, {out0, to}, {to, out0}}, 1, {P | PI, 0, 0}}, // written again; read before
      {{{out0, to}, {in0, to}, {to, out0}}, 2, {0, L, 0}},       // written beside
      {{{in0, tmp0}, {tmp0, to}, {to, tmp0}}, 1, {0, 0, 0}},     // scratch is nobody's
      {{{in0, out0}, {out0, to}, {in0, to}}, 2, {0, L | LI, L}}, // a writer in another strand, though before
  };
  (void)state;
  for (size_t i = 0; i < TT_COUNT(rules); i++) {
    tt_ref refs[6];
    tt_step steps[3];
    tt_strand strands[2] = {{.count = rules[i].strands == 1 ? 3 : 2}, {.first = 2, .count = 1}};
    tt_schedule s = {
        .nranks = 2, .in_blocks = 1, .out_blocks = 1, .nsub = 1, .ntmp = 1, .nsteps = 3, .nrefs = 6, .refs = refs};
    s.steps = steps;
    s.strands = strands;
    s.nstrands = rules[i].strands;
    for (uint32_t k = 0; k < 3; k++) {
      refs[2 * k] = rules[i].step[k][0];
      refs[2 * k + 1] = rules[i].step[k][1];
      steps[k] = (tt_step){.nsrc = 1, .ndst = 1, .src = 2 * k, .dst = 2 * k + 1};
    }
    assert_int_equal(tt_zerocopy_mark(&s), ncclSuccess);
    for (int k = 0; k < 3; k++) {
      if (steps[k].flags != rules[i].flags[k]) {
        fail_msg("rule %zu: step %d has flags %u", i, k, steps[k].flags);
      }
    }
  }
}

static void test_no_memory(void **state)
{
  ranks r =
      write_shape(&tt_algorithms(NULL)[tt_algorithm_find("Ring")], (tt_shape){.func = TT_FUNC_ALLREDUCE, .nranks = 2});
  (void)state;
  tt_alloc_fail_at(1);
  assert_int_equal(tt_zerocopy_mark(r.s[0]), ncclSystemError);
  tt_alloc_fail_at(0);
  free_ranks(&r);
}

static void test_how_buffers_lie(void **state)
{
  static const char m[1000];
  tt_schedule one = {.in_blocks = 1, .out_blocks = 1}, gather = {.rank = 2, .in_blocks = 1, .out_blocks = 4};
  tt_schedule scatter = {.rank = 3, .in_blocks = 4, .out_blocks = 1}, sends = {.in_blocks = 1};
  (void)state;
  assert_int_equal(tt_zerocopy_buffers(&one, m, m + 100, 100), TT_BUFFERS_APART);
  assert_int_equal(tt_zerocopy_buffers(&one, m + 100, m, 100), TT_BUFFERS_APART);
  assert_int_equal(tt_zerocopy_buffers(&one, m, m, 100), TT_BUFFERS_IN_PLACE);
  assert_int_equal(tt_zerocopy_buffers(&one, m, m + 99, 100), TT_BUFFERS_MIXED);
  assert_int_equal(tt_zerocopy_buffers(&one, m + 1, m, 100), TT_BUFFERS_MIXED);
  assert_int_equal(tt_zerocopy_buffers(&gather, m + 200, m, 100), TT_BUFFERS_IN_PLACE);
  assert_int_equal(tt_zerocopy_buffers(&gather, m + 100, m, 100), TT_BUFFERS_MIXED);
  assert_int_equal(tt_zerocopy_buffers(&gather, m + 400, m, 100), TT_BUFFERS_APART);
  assert_int_equal(tt_zerocopy_buffers(&scatter, m, m + 300, 100), TT_BUFFERS_IN_PLACE);
  assert_int_equal(tt_zerocopy_buffers(&scatter, m, m, 100), TT_BUFFERS_MIXED);
  assert_int_equal(tt_zerocopy_buffers(&sends, m, NULL, 100), TT_BUFFERS_APART);
  assert_int_equal(tt_zerocopy_buffers(&sends, m, m + 50, 100), TT_BUFFERS_APART);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_marks_change_nothing),    cmocka_unit_test(test_who_is_marked),
      cmocka_unit_test(test_wrong_marks_are_noticed), cmocka_unit_test(test_rules),
      cmocka_unit_test(test_how_buffers_lie),         cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
