// bell_model_test.c: walks every interleaving of the sleep-and-wake protocol (src/os/bell.h) and of a run flag with an again bit.
//
// Threads are little programs over shared words. A step executes one instruction of one thread, or moves one store out of a thread's
// store buffer into memory (total store order, as on x86: a plain store becomes visible later than the loads that follow it; locked
// instructions, fences and system calls wait until the buffer is empty). All states that can be reached are collected, breadth first.
// A protocol is right when every one of them can still finish; a state that cannot is a sleeper whom nobody will wake, or a livelock.
//
// Each rule of the protocol is left out or bent once (a mutant), to show that it is needed and that this test would see it missing.
// `bell_model_test show` prints the shortest way to lose a wake-up for each of them.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_buffer.h"

#define THREADS 3
#define MAX_STATES 4000000

// Shared words. DATA0 and DATA1 are written by one publisher each.
enum { DATA0, DATA1, SEQ, SLEEPERS, LOCK, DONE, WORDS };

enum { ALL = 255 };

typedef enum label { NOWHERE, TOP, NEXT, LEAVE, GOT, OUT, TRY, RUN, FREE, AGAIN, BUSY, TRIED } label;

typedef enum op {
  END,
  LABEL,
  GOTO,
  REPEAT,
  UNTIL_ALL, // local: no step of their own
  PUT,
  PUT_REG,
  SET,
  WEAK_ADD, // plain stores, through the store buffer
  IF_ZERO,
  IF_NEW,
  IF_DONE,
  IF_REG_IS,
  IF_SAW,
  TAKE,
  TICKET,
  LOAD,
  LOAD_MORE, // loads: own buffer first, then memory
  FENCE,
  ADD,
  CAS,
  XCHG,
  SLEEP,
  SLEEP_BLIND,
  WAKE, // need an empty buffer
} op;

typedef struct insn {
  op op;
  uint8_t word;
  uint8_t x, y; // operands
  label to;     // where a jump goes
} insn;

#define I_LABEL(l)         \
  {                        \
    .op = LABEL, .to = (l) \
  }
#define I_GOTO(l)         \
  {                       \
    .op = GOTO, .to = (l) \
  }
#define I_REPEAT(l)         \
  {                         \
    .op = REPEAT, .to = (l) \
  } // next round, if there is one
#define I_UNTIL_ALL(l)         \
  {                            \
    .op = UNTIL_ALL, .to = (l) \
  } // back, unless all rounds of all publishers were taken
#define I_PUT(w)           \
  {                        \
    .op = PUT, .word = (w) \
  } // publishes one more
#define I_PUT_REG(w)           \
  {                            \
    .op = PUT_REG, .word = (w) \
  }
#define I_SET(w, v)                  \
  {                                  \
    .op = SET, .word = (w), .x = (v) \
  }
#define I_WEAK_ADD(w, v)                           \
  {                                                \
    .op = WEAK_ADD, .word = (w), .x = (uint8_t)(v) \
  }
#define I_IF_ZERO(w, l)                   \
  {                                       \
    .op = IF_ZERO, .word = (w), .to = (l) \
  }
#define I_IF_NEW(w, l)                   \
  {                                      \
    .op = IF_NEW, .word = (w), .to = (l) \
  } // more published than taken
#define I_IF_DONE(l)                       \
  {                                        \
    .op = IF_DONE, .word = DONE, .to = (l) \
  } // all that will ever be published is done
#define I_IF_REG_IS(w, l)                   \
  {                                         \
    .op = IF_REG_IS, .word = (w), .to = (l) \
  }
#define I_IF_SAW(v, l)                \
  {                                   \
    .op = IF_SAW, .x = (v), .to = (l) \
  } // what the last CAS or XCHG found
#define I_TAKE(w)           \
  {                         \
    .op = TAKE, .word = (w) \
  }
#define I_TICKET              \
  {                           \
    .op = TICKET, .word = SEQ \
  }
#define I_LOAD(w)           \
  {                         \
    .op = LOAD, .word = (w) \
  }
#define I_LOAD_MORE(w)           \
  {                              \
    .op = LOAD_MORE, .word = (w) \
  }
#define I_FENCE \
  {             \
    .op = FENCE \
  }
#define I_ADD(w, v)                           \
  {                                           \
    .op = ADD, .word = (w), .x = (uint8_t)(v) \
  }
#define I_CAS(w, a, b, l)                                 \
  {                                                       \
    .op = CAS, .word = (w), .x = (a), .y = (b), .to = (l) \
  } // jumps when it fails
#define I_XCHG(w, v)                  \
  {                                   \
    .op = XCHG, .word = (w), .x = (v) \
  }
#define I_SLEEP              \
  {                          \
    .op = SLEEP, .word = SEQ \
  } // futex wait: only if SEQ is still the ticket
#define I_SLEEP_BLIND \
  {                   \
    .op = SLEEP_BLIND \
  }
#define I_WAKE(n)        \
  {                      \
    .op = WAKE, .x = (n) \
  }
#define I_END \
  {           \
    .op = END \
  }

static const char *const op_names[] = {
    "end",     "label",  "goto",    "repeat",    "until all", "put",         "put reg", "set",  "weak add",
    "if zero", "if new", "if done", "if reg is", "if saw",    "take",        "ticket",  "load", "load more",
    "fence",   "add",    "cas",     "xchg",      "sleep",     "sleep blind", "wake",
};
static const char *const word_names[WORDS] = {"data0", "data1", "seq", "sleepers", "lock", "done"};

typedef struct thread {
  uint8_t pc, ticket, round, reg, saw;
  uint8_t seen[2]; // how much of DATA0 and DATA1 was taken
  uint8_t asleep;
  store_buffer buf;
} thread;

typedef struct state {
  uint8_t word[WORDS];
  thread t[THREADS];
} state;

// One experiment: up to three programs (NULL: none), each publisher publishes `rounds` times.
typedef struct model {
  const char *name;
  const insn *prog[THREADS];
  bool broken; // what we expect
  uint8_t rounds;
  uint8_t publishers;
} model;

typedef struct node {
  state s;
  uint32_t parent;
  uint8_t thread, pc; // the step that led here first; pc = 255: a store left the buffer
  bool terminal;
  bool can_finish;
} node;

typedef struct edge {
  uint32_t from, to;
} edge;

typedef struct explorer {
  const model *m;
  node *nodes;
  uint32_t nnodes, cap_nodes;
  edge *edges;
  size_t nedges, cap_edges;
  uint32_t *slots; // hash table of node number + 1
  uint32_t nslots;
} explorer;

// ---- one thread's step ----

static uint8_t load(const state *s, int t, uint8_t word)
{
  return buffer_load(&s->t[t].buf, s->word, word);
}

static bool put(state *s, int t, uint8_t word, uint8_t value)
{
  return buffer_put(&s->t[t].buf, word, value);
}

static bool flush(state *s, int t)
{
  store oldest;
  if (!buffer_take(&s->t[t].buf, &oldest)) {
    return false;
  }
  s->word[oldest.word] = oldest.value;
  return true;
}

static uint8_t find(const insn *prog, label to)
{
  uint8_t pc = 0;
  while (prog[pc].op != LABEL || prog[pc].to != to) {
    pc++;
  }
  return pc;
}

static bool took_all(const model *m, const thread *th)
{
  for (int i = 0; i < m->publishers; i++) {
    if (th->seen[i] < m->rounds) {
      return false;
    }
  }
  return true;
}

// Runs the local instructions at the thread's place, so that it stands before one that others can notice.
static void settle(const model *m, state *s, int t)
{
  const insn *prog = m->prog[t];
  thread *th = &s->t[t];
  for (; prog[th->pc].op < PUT && prog[th->pc].op != END; th->pc++) {
    const insn *in = &prog[th->pc];
    bool jump = in->op == GOTO || (in->op == REPEAT && ++th->round < m->rounds) || (in->op == UNTIL_ALL && !took_all(m, th));
    if (jump) {
      th->pc = find(prog, in->to);
    }
  }
}

static void wake(state *s, int n)
{
  for (int i = 0; i < THREADS && n > 0; i++) {
    n -= s->t[i].asleep;
    s->t[i].asleep = 0;
  }
}

// Instructions that store. False: no room in the buffer.
static bool do_store(state *s, int t, const insn *in)
{
  switch (in->op) {
  case PUT: return put(s, t, in->word, load(s, t, in->word) + 1);
  case PUT_REG: return put(s, t, in->word, s->t[t].reg);
  case SET: return put(s, t, in->word, in->x);
  default: // WEAK_ADD
    return put(s, t, in->word, load(s, t, in->word) + in->x);
  }
}

// Instructions that load. Returns whether the thread jumps.
static bool do_load(const model *m, state *s, int t, const insn *in)
{
  thread *th = &s->t[t];
  uint8_t value = load(s, t, in->word);
  switch (in->op) {
  case IF_ZERO: return value == 0;
  case IF_NEW: return value > th->seen[in->word];
  case IF_DONE: return value == m->rounds * m->publishers;
  case IF_REG_IS: return value == th->reg;
  case IF_SAW: return th->saw == in->x;
  case TAKE: th->seen[in->word] = value; return false;
  case TICKET: th->ticket = value; return false;
  case LOAD: th->reg = value; return false;
  default: // LOAD_MORE
    th->reg += value;
    return false;
  }
}

// Instructions that are one with memory. Returns whether the thread jumps.
static bool do_locked(state *s, int t, const insn *in)
{
  thread *th = &s->t[t];
  uint8_t *word = &s->word[in->word];
  switch (in->op) {
  case ADD: *word += in->x; return false;
  case CAS:
    th->saw = *word;
    *word = *word == in->x ? in->y : *word;
    return th->saw != in->x;
  case XCHG:
    th->saw = *word;
    *word = in->x;
    return false;
  case SLEEP: th->asleep = *word == th->ticket; return false;
  case SLEEP_BLIND: th->asleep = 1; return false;
  case WAKE: wake(s, in->x); return false;
  default: // FENCE
    return false;
  }
}

// Executes thread `t`'s next instruction in *s. False when it cannot go on now.
static bool step(const model *m, state *s, int t)
{
  thread *th = &s->t[t];
  const insn *prog = m->prog[t];
  if (prog == NULL || th->asleep || prog[th->pc].op == END) {
    return false;
  }
  const insn *in = &prog[th->pc];
  bool jump = false;
  if (in->op < IF_ZERO) {
    if (!do_store(s, t, in)) {
      return false;
    }
  } else if (in->op < FENCE) {
    jump = do_load(m, s, t, in);
  } else {
    if (th->buf.n > 0) {
      return false;
    }
    jump = do_locked(s, t, in);
  }
  th->pc = jump ? find(prog, in->to) : (uint8_t)(th->pc + 1);
  settle(m, s, t);
  return true;
}

// ---- all states ----

static bool is_finished(const model *m, const state *s)
{
  for (int t = 0; t < THREADS; t++) {
    if (m->prog[t] != NULL && (s->t[t].asleep || s->t[t].buf.n > 0 || m->prog[t][s->t[t].pc].op != END)) {
      return false;
    }
  }
  return true;
}

static void *grow(void *p, size_t n, size_t size)
{
  p = realloc(p, n * size);
  assert_non_null(p);
  return p;
}

static uint32_t *find_slot(explorer *e, const state *s)
{
  uint64_t h = state_hash(s, sizeof *s);
  uint32_t i = (uint32_t)(h >> 20) & (e->nslots - 1);
  while (e->slots[i] != 0 && memcmp(&e->nodes[e->slots[i] - 1].s, s, sizeof *s) != 0) {
    i = (i + 1) & (e->nslots - 1);
  }
  return &e->slots[i];
}

static void rehash(explorer *e)
{
  e->nslots *= 2;
  free(e->slots);
  e->slots = calloc(e->nslots, sizeof *e->slots);
  assert_non_null(e->slots);
  for (uint32_t i = 0; i < e->nnodes; i++) {
    *find_slot(e, &e->nodes[i].s) = i + 1;
  }
}

// Notes that *s follows `from`; adds it when it is new.
static void reach(explorer *e, const state *s, uint32_t from, int t, uint8_t pc)
{
  if (e->nnodes * 2 >= e->nslots) {
    rehash(e);
  }
  uint32_t *slot = find_slot(e, s);
  if (*slot == 0) {
    assert_true(e->nnodes < MAX_STATES);
    if (e->nnodes == e->cap_nodes) {
      e->cap_nodes *= 2;
      e->nodes = grow(e->nodes, e->cap_nodes, sizeof *e->nodes);
    }
    e->nodes[e->nnodes] = (node){.s = *s, .parent = from, .thread = (uint8_t)t, .pc = pc, .can_finish = is_finished(e->m, s)};
    *slot = ++e->nnodes;
  }
  if (e->nedges == e->cap_edges) {
    e->cap_edges *= 2;
    e->edges = grow(e->edges, e->cap_edges, sizeof *e->edges);
  }
  e->edges[e->nedges++] = (edge){from, *slot - 1};
}

static void expand(explorer *e, uint32_t i)
{
  bool terminal = true;
  for (int t = 0; t < THREADS; t++) {
    state s = e->nodes[i].s;
    uint8_t pc = s.t[t].pc;
    if (step(e->m, &s, t)) {
      terminal = false;
      reach(e, &s, i, t, pc);
    }
    s = e->nodes[i].s;
    if (flush(&s, t)) {
      terminal = false;
      reach(e, &s, i, t, 255);
    }
  }
  e->nodes[i].terminal = terminal;
}

static void explore(explorer *e, const model *m)
{
  *e = (explorer){.m = m, .cap_nodes = 1024, .cap_edges = 4096, .nslots = 4096};
  e->nodes = grow(NULL, e->cap_nodes, sizeof *e->nodes);
  e->edges = grow(NULL, e->cap_edges, sizeof *e->edges);
  e->slots = calloc(e->nslots, sizeof *e->slots);
  assert_non_null(e->slots);
  state first;
  memset(&first, 0, sizeof first);
  for (int t = 0; t < THREADS; t++) {
    if (m->prog[t] != NULL) {
      settle(m, &first, t);
    }
  }
  reach(e, &first, 0, 0, 0);
  for (uint32_t i = 0; i < e->nnodes; i++) {
    expand(e, i);
  }
}

// Carries `can_finish` back along the edges. Numbers fall towards the start, so few passes from the end are enough.
static void spread(explorer *e)
{
  for (bool more = true; more;) {
    more = false;
    for (size_t i = e->nedges; i-- > 0;) {
      node *from = &e->nodes[e->edges[i].from];
      if (!from->can_finish && e->nodes[e->edges[i].to].can_finish) {
        from->can_finish = true;
        more = true;
      }
    }
  }
}

// The shortest way into a state that cannot finish, a final one if there is any; 0 when every state can.
static uint32_t find_lost(const explorer *e)
{
  uint32_t lost = 0;
  for (uint32_t i = e->nnodes; i-- > 0;) {
    const node *n = &e->nodes[i];
    if (!n->can_finish && (n->terminal || lost == 0 || !e->nodes[lost].terminal)) {
      lost = i;
    }
  }
  return lost;
}

static void print_way(const explorer *e, uint32_t i)
{
  if (e->nodes[i].parent != i) {
    print_way(e, e->nodes[i].parent);
  }
  const node *n = &e->nodes[i];
  const insn *in = n->pc == 255 ? NULL : &e->m->prog[n->thread][n->pc];
  printf("    thread %d: %-11s %-9s|", n->thread, in == NULL ? "(flush)" : op_names[in->op], in == NULL ? "" : word_names[in->word]);
  for (int w = 0; w < WORDS; w++) {
    printf(" %s=%d", word_names[w], n->s.word[w]);
  }
  printf(" asleep=%d%d%d\n", n->s.t[0].asleep, n->s.t[1].asleep, n->s.t[2].asleep);
}

static bool show; // print how each mutant fails

static void check(const model *m)
{
  explorer e;
  explore(&e, m);
  spread(&e);
  uint32_t lost = find_lost(&e);
  printf("  %-62s %8u states: %s\n", m->name, e.nnodes, lost == 0 ? "sound" : "LOST");
  if ((lost != 0) != m->broken || (lost != 0 && show)) {
    print_way(&e, lost);
  }
  bool as_expected = (lost != 0) == m->broken;
  free(e.nodes);
  free(e.edges);
  free(e.slots);
  assert_true(as_expected);
}

static void check_all(const model *m, size_t n)
{
  bool sound = false, broken = false;
  for (size_t i = 0; i < n; i++) {
    sound |= !m[i].broken;
    broken |= m[i].broken;
    check(&m[i]);
  }
  assert_true(sound && broken);
}

// ---- the bell: src/os/bell.h ----

#define RING(next) I_IF_ZERO(SLEEPERS, next), I_ADD(SEQ, 1), I_WAKE(ALL)
#define POSTER(data)                                                                    \
  {                                                                                     \
    I_LABEL(TOP), I_PUT(data), I_FENCE, RING(NEXT), I_LABEL(NEXT), I_REPEAT(TOP), I_END \
  }
static const insn poster0[] = POSTER(DATA0);
static const insn poster1[] = POSTER(DATA1);

#define LOOK(found) I_IF_NEW(DATA0, found), I_IF_NEW(DATA1, found)
#define TAKE_ALL I_LABEL(GOT), I_TAKE(DATA0), I_TAKE(DATA1), I_UNTIL_ALL(TOP), I_END
#define ANNOUNCE I_ADD(SLEEPERS, 1)
#define RETIRE I_LABEL(LEAVE), I_ADD(SLEEPERS, -1), I_GOTO(TOP)
// A waiter whose part between the first look and the leave is given.
#define WAITER(...)                                        \
  {                                                        \
    I_LABEL(TOP), LOOK(GOT), __VA_ARGS__, RETIRE, TAKE_ALL \
  }
static const insn waiter[] = WAITER(I_TICKET, ANNOUNCE, LOOK(LEAVE), I_SLEEP);

static const insn post_no_fence[] = {I_LABEL(TOP), I_PUT(DATA0), RING(NEXT), I_LABEL(NEXT), I_REPEAT(TOP), I_END};
static const insn post_fence_first[] = {I_LABEL(TOP), I_FENCE, I_PUT(DATA0), RING(NEXT), I_LABEL(NEXT), I_REPEAT(TOP), I_END};
static const insn post_ring_first[] = {I_LABEL(TOP), RING(NEXT), I_LABEL(NEXT), I_PUT(DATA0), I_FENCE, I_REPEAT(TOP), I_END};
static const insn post_no_seq[] = {I_LABEL(TOP), I_PUT(DATA0),  I_FENCE,       I_IF_ZERO(SLEEPERS, NEXT),
                                   I_WAKE(ALL),  I_LABEL(NEXT), I_REPEAT(TOP), I_END};
static const insn post_seq_late[] = {I_LABEL(TOP),  I_PUT(DATA0),  I_FENCE, I_IF_ZERO(SLEEPERS, NEXT), I_WAKE(ALL), I_ADD(SEQ, 1),
                                     I_LABEL(NEXT), I_REPEAT(TOP), I_END};
static const insn post_wake_one[] = {I_LABEL(TOP),  I_PUT(DATA0),  I_FENCE, I_IF_ZERO(SLEEPERS, NEXT), I_ADD(SEQ, 1), I_WAKE(1),
                                     I_LABEL(NEXT), I_REPEAT(TOP), I_END};
static const insn post_always[] = {I_LABEL(TOP), I_PUT(DATA0), I_ADD(SEQ, 1), I_WAKE(ALL), I_REPEAT(TOP), I_END};

static const insn wait_weak[] = WAITER(I_TICKET, I_WEAK_ADD(SLEEPERS, 1), LOOK(LEAVE), I_SLEEP);
static const insn wait_weak_fenced[] = WAITER(I_TICKET, I_WEAK_ADD(SLEEPERS, 1), I_FENCE, LOOK(LEAVE), I_SLEEP);
static const insn wait_one_look[] = WAITER(I_TICKET, ANNOUNCE, I_SLEEP);
static const insn wait_ticket_first[] = {I_LABEL(TOP), I_TICKET, LOOK(GOT), ANNOUNCE, I_SLEEP, RETIRE, TAKE_ALL};
static const insn wait_announce_late[] = {I_LABEL(TOP), LOOK(GOT), I_TICKET, LOOK(GOT), ANNOUNCE, I_SLEEP, RETIRE, TAKE_ALL};
static const insn wait_ticket_mid[] = WAITER(ANNOUNCE, I_TICKET, LOOK(LEAVE), I_SLEEP);
static const insn wait_ticket_late[] = WAITER(ANNOUNCE, LOOK(LEAVE), I_TICKET, I_SLEEP);
static const insn wait_blind[] = WAITER(I_TICKET, ANNOUNCE, LOOK(LEAVE), I_SLEEP_BLIND);

static void test_bell(void **unused)
{
  (void)unused;
  static const model models[] = {
      {"bell: 1 waiter, 1 poster, 4 rounds", {waiter, poster0}, false, 4, 1},
      {"bell: 1 waiter, 2 posters, 2 rounds", {waiter, poster0, poster1}, false, 2, 2},
      {"bell: 2 waiters, 1 poster, 3 rounds", {waiter, waiter, poster0}, false, 3, 1},
      {"poster: no fence", {waiter, post_no_fence}, true, 2, 1},
      {"poster: fence before the publication", {waiter, post_fence_first}, true, 2, 1},
      {"poster: looks for sleepers before it publishes", {waiter, post_ring_first}, true, 2, 1},
      {"poster: wakes without counting seq up", {waiter, post_no_seq}, true, 2, 1},
      {"poster: counts seq up after the wake", {waiter, post_seq_late}, true, 2, 1},
      {"poster: wakes one of two waiters", {waiter, waiter, post_wake_one}, true, 2, 1},
      {"poster: wakes always, no look and no fence", {waiter, post_always}, false, 2, 1},
      {"waiter: announcement is no barrier", {wait_weak, poster0}, true, 2, 1},
      {"waiter: plain announcement, then a fence", {wait_weak_fenced, poster0}, false, 2, 1},
      {"waiter: no second look", {wait_one_look, poster0}, true, 2, 1},
      {"waiter: announces after its last look (ticket before it)", {wait_ticket_first, poster0}, true, 2, 1},
      {"waiter: announces after its second look", {wait_announce_late, poster0}, true, 2, 1},
      {"waiter: ticket between announcement and second look", {wait_ticket_mid, poster0}, false, 2, 1},
      {"waiter: ticket between announcement and second look, 2 posters", {wait_ticket_mid, poster0, poster1}, false, 2, 2},
      {"waiter: ticket after the second look", {wait_ticket_late, poster0}, true, 2, 1},
      {"waiter: sleeps without comparing its ticket", {wait_blind, poster0}, true, 2, 1},
  };
  check_all(models, sizeof models / sizeof models[0]);
}

// ---- the run flag: 0 free, 1 busy, 2 busy and asked to look again ----
//
// tryrun: takes the flag, or else leaves the word "again" for its holder. The runner does what has been published (DONE follows DATA0 +
// DATA1), rings the bell when it has done something, and gives the flag back unless it was asked to look again.
// A waiter for DONE uses tryrun as its second look: announce, tryrun, look at DONE, sleep. A helper only tries: it never waits, and it
// is not announced while it runs, so that a poster who finds no sleeper leaves it alone. That makes it the hard case: between two waiters
// the announcement of the holder alone already has the poster ring.

#define ACQUIRE I_LABEL(TRY), I_CAS(LOCK, 0, 1, BUSY)
#define WORK I_LABEL(RUN), I_LOAD(DATA0), I_LOAD_MORE(DATA1), I_IF_REG_IS(DONE, FREE), I_PUT_REG(DONE)
#define RUN_RING I_FENCE, RING(FREE)
#define RELEASE I_LABEL(FREE), I_CAS(LOCK, 1, 0, AGAIN), I_GOTO(TRIED), I_LABEL(AGAIN), I_XCHG(LOCK, 1), I_GOTO(RUN)
#define ASK I_LABEL(BUSY), I_CAS(LOCK, 1, 2, NEXT), I_GOTO(TRIED), I_LABEL(NEXT), I_IF_SAW(0, TRY)
#define TRYRUN ACQUIRE, WORK, RUN_RING, RELEASE, ASK, I_LABEL(TRIED)

#define RUNNER(...)                                                                                                       \
  {                                                                                                                       \
    I_LABEL(TOP), I_IF_DONE(OUT), I_TICKET, ANNOUNCE, __VA_ARGS__, I_IF_DONE(LEAVE), I_SLEEP, RETIRE, I_LABEL(OUT), I_END \
  }
#define HELPER(...)                                 \
  {                                                 \
    I_LABEL(TOP), __VA_ARGS__, I_REPEAT(TOP), I_END \
  }
// A waiter and a helper with the same tryrun.
#define PAIR(name, ...)                                    \
  static const insn name##_waiter[] = RUNNER(__VA_ARGS__); \
  static const insn name##_helper[] = HELPER(__VA_ARGS__)

PAIR(run, TRYRUN);
static const insn visitor[] = {I_LABEL(TOP), I_PUT(DATA1), TRYRUN, I_REPEAT(TOP), I_END}; // publishes, rings nobody

// Right, too.
#define ASK_XCHG I_LABEL(BUSY), I_XCHG(LOCK, 2), I_IF_SAW(0, RUN) // who finds the flag free when asking is its holder
#define REL_FENCED I_LABEL(FREE), I_CAS(LOCK, 1, 0, AGAIN), I_GOTO(TRIED), I_LABEL(AGAIN), I_SET(LOCK, 1), I_FENCE, I_GOTO(RUN)
PAIR(xchg, ACQUIRE, WORK, RUN_RING, RELEASE, ASK_XCHG, I_LABEL(TRIED));
PAIR(fenced, ACQUIRE, WORK, RUN_RING, REL_FENCED, ASK, I_LABEL(TRIED));

// Wrong.
#define ASK_NOT I_LABEL(BUSY)
#define ASK_BLIND I_LABEL(BUSY), I_XCHG(LOCK, 2)
#define REL_DROP I_LABEL(FREE), I_CAS(LOCK, 1, 0, AGAIN), I_GOTO(TRIED), I_LABEL(AGAIN), I_XCHG(LOCK, 0), I_GOTO(TRIED)
#define REL_PLAIN I_LABEL(FREE), I_SET(LOCK, 0), I_GOTO(TRIED)
#define REL_WEAK I_LABEL(FREE), I_CAS(LOCK, 1, 0, AGAIN), I_GOTO(TRIED), I_LABEL(AGAIN), I_SET(LOCK, 1), I_GOTO(RUN)
PAIR(not, ACQUIRE, WORK, RUN_RING, RELEASE, ASK_NOT, I_LABEL(TRIED));
PAIR(blind, ACQUIRE, WORK, RUN_RING, RELEASE, ASK_BLIND, I_LABEL(TRIED));
PAIR(drop, ACQUIRE, WORK, RUN_RING, REL_DROP, ASK, I_LABEL(TRIED));
PAIR(plain, ACQUIRE, WORK, RUN_RING, REL_PLAIN, ASK, I_LABEL(TRIED));
PAIR(weak, ACQUIRE, WORK, RUN_RING, REL_WEAK, ASK, I_LABEL(TRIED));
PAIR(mute, ACQUIRE, WORK, RELEASE, ASK, I_LABEL(TRIED));
PAIR(unfenced, ACQUIRE, WORK, RING(FREE), RELEASE, ASK, I_LABEL(TRIED));
static const insn run_no_look[] = {I_LABEL(TOP), I_IF_DONE(OUT), I_TICKET, ANNOUNCE, TRYRUN, I_SLEEP, RETIRE, I_LABEL(OUT), I_END};
static const insn run_announce_late[] = {I_LABEL(TOP), I_IF_DONE(OUT), I_TICKET, TRYRUN,       I_IF_DONE(OUT),
                                         ANNOUNCE,     I_SLEEP,        RETIRE,   I_LABEL(OUT), I_END};
static const insn run_not_tried[] = RUNNER(I_LABEL(TRIED));

static void test_run_flag(void **unused)
{
  (void)unused;
  static const model models[] = {
      {"run flag: 2 waiters, 1 poster, 2 rounds", {run_waiter, run_waiter, poster0}, false, 2, 1},
      {"run flag: waiter, helper, poster, 2 rounds", {run_waiter, run_helper, poster0}, false, 2, 1},
      {"run flag: waiter, visitor, poster, 2 rounds", {run_waiter, visitor, poster0}, false, 2, 2},
      {"\"again\" by exchange, who finds the flag free runs", {xchg_waiter, xchg_helper, poster0}, false, 2, 1},
      {"\"again\" cleared by a plain store and a fence", {fenced_waiter, fenced_helper, poster0}, false, 2, 1},
      {"no \"again\", but every runner is announced", {not_waiter, not_waiter, poster0}, false, 2, 1},
      {"no \"again\"", {not_waiter, not_helper, poster0}, true, 2, 1},
      {"\"again\" set blindly, perhaps on a flag just given back", {blind_waiter, blind_helper, poster0}, true, 2, 1},
      {"holder forgets \"again\"", {drop_waiter, drop_helper, poster0}, true, 2, 1},
      {"flag given back by a plain store", {plain_waiter, plain_helper, poster0}, true, 2, 1},
      {"\"again\" cleared by a plain store, no fence", {weak_waiter, weak_helper, poster0}, true, 2, 1},
      {"runner does not ring", {mute_waiter, mute_helper, poster0}, true, 2, 1},
      {"runner rings without a fence", {unfenced_waiter, unfenced_helper, poster0}, true, 2, 1},
      {"waiter does not look at the result before it sleeps", {run_no_look, run_helper, poster0}, true, 2, 1},
      {"waiter announces after tryrun", {run_announce_late, run_helper, poster0}, true, 2, 1},
      {"waiter leaves the work to the helper", {run_not_tried, run_helper, poster0}, true, 2, 1},
      {"poster without a fence", {run_waiter, run_helper, post_no_fence}, true, 2, 1},
  };
  check_all(models, sizeof models / sizeof models[0]);
}

int main(int argc, char **argv)
{
  show = argc > 1 && strcmp(argv[1], "show") == 0;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bell), cmocka_unit_test(test_run_flag)};
  return cmocka_run_group_tests_name("bell_model", tests, NULL, NULL);
}
