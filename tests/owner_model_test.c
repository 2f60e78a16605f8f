// owner_model_test.c: walks every interleaving of a writer and an owner that stops (src/device/owner.h).
//
// As in bell_model_test.c: a step executes one access of one thread to a shared word, or moves one store out of a thread's store buffer into memory (total
// store order). All states that can be reached are collected. Two things must hold: nothing is written into the buffer once the owner has given it back to its
// user, and every state can still finish, so nobody sleeps for ever.
//
// Threads: the writer, which writes two pieces; the stopper, which stops the owner's port (tt_port_stop); the owner's waiter, which waits until nobody writes and
// then gives the buffer back. Where the waiter is the stopper itself (ncclCommAbort) it begins when the stopper has ended, with the stopper's store buffer.
// The writer may die at any step, what it has in its store buffer still comes; the waiter's sleep ends by a ring, or, when the writer is dead, by time.
// Each rule is left out once, to show that it is needed and that this test would see it missing.
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

enum { WRITER, STOPPER, WAITER, THREADS };
enum { PIECES = 2, MAX_STATES = 200000, SLOTS = 1 << 19 };

// Shared words. DATA is the buffer: a piece adds one.
enum { WRITES, STATE, STOP, DATA, SLEEPERS, SEQ, WORDS };

// What a variant leaves out or bends.
typedef struct model {
  const char *name;
  bool broken;     // a late write, or a state that cannot finish, must be found
  bool one_thread; // the stopper waits itself
  bool mortal;     // the writer may die
  bool no_name, name_no_fence, look_first, one_look, end_early, end_no_fence, no_ring, refuse_silently, name_stays;
  bool stop_first, no_owner_fence, owner_looks_once, no_announce, no_life;
} model;

typedef struct thread {
  uint8_t pc, round, ticket, saw;
  uint8_t asleep, dead;
  store_buffer buf;
} thread;

typedef struct state {
  uint8_t word[WORDS];
  uint8_t given_back, late; // the buffer is the user's; and was written to afterwards
  thread t[THREADS];
} state;

enum { END = 200 };

// ---- memory ----

static uint8_t load(const state *s, int t, int word)
{
  return buffer_load(&s->t[t].buf, s->word, word);
}

static void reach_memory(state *s, int word, uint8_t value)
{
  s->word[word] = value;
  s->late |= word == DATA && s->given_back;
}

static bool put(state *s, int t, int word, uint8_t value)
{
  return buffer_put(&s->t[t].buf, word, value);
}

static bool flush(state *s, int t)
{
  store oldest;
  if (!buffer_take(&s->t[t].buf, &oldest)) {
    return false;
  }
  reach_memory(s, oldest.word, oldest.value);
  return true;
}

// A store with a full fence, or without.
static bool put_fenced(state *s, int t, int word, uint8_t value, bool fence)
{
  if (!fence) {
    return put(s, t, word, value);
  }
  if (s->t[t].buf.n > 0) {
    return false;
  }
  reach_memory(s, word, value);
  return true;
}

// Look for sleepers (step 0), count seq up and wake (step 1). Returns whether the ring is over.
static bool ring(state *s, int t, int step)
{
  if (step == 0) {
    return load(s, t, SLEEPERS) == 0;
  }
  s->word[SEQ]++;
  for (int i = 0; i < THREADS; i++) {
    s->t[i].asleep = 0;
  }
  return true;
}

// ---- the writer: device/host/step.c, begin_writing to end_writing ----

enum { W_NAME, W_LOOK, W_WRITE, W_END, W_STOPPED, W_RING, W_WAKE, W_REFUSE, W_FIRST_LOOK };

static uint8_t writer_begin(const model *m)
{
  return m->look_first ? W_FIRST_LOOK : m->no_name ? W_LOOK : W_NAME;
}

static bool writer(const model *m, state *s)
{
  thread *th = &s->t[WRITER];
  switch (th->pc) {
  case W_FIRST_LOOK: th->pc = load(s, WRITER, STATE) != 0 ? END : W_NAME; return true;
  case W_NAME:
    th->pc = m->look_first || (m->one_look && th->round > 0) ? W_WRITE : W_LOOK;
    return put_fenced(s, WRITER, WRITES, 1, !m->name_no_fence);
  case W_LOOK: th->pc = load(s, WRITER, STATE) == 0 ? (m->end_early ? W_END : W_WRITE) : W_REFUSE; return true;
  case W_REFUSE:
    th->pc = m->name_stays || m->refuse_silently ? END : W_STOPPED;
    th->round = PIECES;
    return m->name_stays || put_fenced(s, WRITER, WRITES, 0, true);
  case W_WRITE: th->pc = m->end_early ? W_STOPPED : W_END; return put(s, WRITER, DATA, (uint8_t)(load(s, WRITER, DATA) + 1));
  case W_END: th->pc = m->end_early ? W_WRITE : W_STOPPED; return put_fenced(s, WRITER, WRITES, 0, !m->end_no_fence);
  case W_STOPPED: th->pc = load(s, WRITER, STATE) != 0 && !m->no_ring ? W_RING : ++th->round < PIECES ? writer_begin(m) : END; return true;
  case W_RING: th->pc = !ring(s, WRITER, 0) ? W_WAKE : ++th->round < PIECES ? writer_begin(m) : END; return true;
  default: // W_WAKE
    if (th->buf.n > 0) {
      return false;
    }
    ring(s, WRITER, 1);
    th->pc = ++th->round < PIECES ? writer_begin(m) : END;
    return true;
  }
}

// ---- the owner: device/host/port.c ----

// tt_port_stop: the state, then the code by which the owner's own threads notice; then a fence and rings.
static bool stopper(const model *m, state *s)
{
  thread *th = &s->t[STOPPER];
  int first = m->stop_first ? STOP : STATE, second = m->stop_first ? STATE : STOP;
  switch (th->pc) {
  case 0: th->pc = 1; return put(s, STOPPER, first, 1);
  case 1: th->pc = 2; return put(s, STOPPER, second, 1);
  default: th->pc = END; return m->no_owner_fence || s->t[STOPPER].buf.n == 0;
  }
}

enum { O_STOPPED, O_FENCE, O_LOOK, O_TICKET, O_ANNOUNCE, O_AGAIN, O_SLEEP, O_LEAVE, O_LEAVE_DONE, O_DONE };

// Who waits: tt_port_await_writers, or a waiting thread that runs the failed plan. It shares the stopper's store buffer where it is the same thread.
static bool waiter(const model *m, state *s)
{
  thread *th = &s->t[WAITER];
  int me = m->one_thread ? STOPPER : WAITER;
  bool named;
  switch (th->pc) {
  case O_STOPPED:
    if (m->one_thread ? s->t[STOPPER].pc != END : load(s, WAITER, STOP) == 0) {
      return false;
    }
    th->pc = m->no_owner_fence ? O_LOOK : O_FENCE;
    return true;
  case O_FENCE: th->pc = O_LOOK; return s->t[me].buf.n == 0;
  case O_LOOK:
    named = load(s, me, WRITES) != 0 && !(s->t[WRITER].dead && !m->no_life && s->t[WRITER].buf.n == 0);
    th->pc = !named || m->owner_looks_once ? O_DONE : O_TICKET;
    return true;
  case O_TICKET:
    th->ticket = load(s, me, SEQ);
    th->pc = m->no_announce ? O_AGAIN : O_ANNOUNCE;
    return true;
  case O_ANNOUNCE:
    if (s->t[me].buf.n > 0) {
      return false;
    }
    s->word[SLEEPERS]++;
    th->pc = O_AGAIN;
    return true;
  case O_AGAIN: th->pc = load(s, me, WRITES) != 0 ? O_SLEEP : O_LEAVE_DONE; return true;
  case O_SLEEP:
    th->asleep = s->word[SEQ] == th->ticket;
    th->pc = O_LEAVE;
    return true;
  case O_LEAVE:
  case O_LEAVE_DONE:
    s->word[SLEEPERS] = (uint8_t)(s->word[SLEEPERS] - !m->no_announce);
    th->pc = th->pc == O_LEAVE ? O_LOOK : O_DONE;
    return true;
  default: // O_DONE
    s->given_back = 1;
    th->pc = END;
    return true;
  }
}

// ---- steps ----

static bool step(const model *m, state *s, int t)
{
  thread *th = &s->t[t];
  if (th->pc == END || th->asleep || th->dead) {
    return false;
  }
  return t == WRITER ? writer(m, s) : t == STOPPER ? stopper(m, s) : waiter(m, s);
}

enum { MOVES = 2 * THREADS + 2 };

// Move number k of the state: a step, a flush, a death, or the end of a sleep by time. False: it cannot be made.
static bool make_move(const model *m, state *s, int k)
{
  if (k < THREADS) {
    return step(m, s, k);
  }
  if (k < 2 * THREADS) {
    return flush(s, k - THREADS);
  }
  thread *w = &s->t[WRITER];
  if (k == 2 * THREADS) {
    bool dies = m->mortal && !w->dead && w->pc != END;
    w->dead |= dies;
    return dies;
  }
  bool wakes = w->dead && s->t[WAITER].asleep;
  s->t[WAITER].asleep = 0;
  return wakes;
}

// ---- all states ----

static struct {
  state s;
  uint32_t parent;
  bool can_finish;
} nodes[MAX_STATES];
static uint32_t slots[SLOTS], count;

static bool is_finished(const state *s)
{
  bool over = s->t[WRITER].pc == END || s->t[WRITER].dead;
  return over && s->t[STOPPER].pc == END && s->t[WAITER].pc == END && s->t[WRITER].buf.n + s->t[STOPPER].buf.n + s->t[WAITER].buf.n == 0;
}

static uint32_t *find_slot(const state *s)
{
  uint32_t i = (uint32_t)(state_hash(s, sizeof *s) >> 20) % SLOTS;
  while (slots[i] != 0 && memcmp(&nodes[slots[i] - 1].s, s, sizeof *s) != 0) {
    i = (i + 1) % SLOTS;
  }
  return &slots[i];
}

static void reach(const state *s, uint32_t from)
{
  uint32_t *slot = find_slot(s);
  if (*slot == 0) {
    assert_true(count < MAX_STATES);
    nodes[count].s = *s;
    nodes[count].parent = from;
    nodes[count].can_finish = is_finished(s);
    *slot = ++count;
  }
}

static void explore(const model *m)
{
  state first;
  memset(&first, 0, sizeof first);
  memset(slots, 0, sizeof slots);
  first.t[WRITER].pc = writer_begin(m);
  count = 0;
  reach(&first, 0);
  for (uint32_t i = 0; i < count; i++) {
    for (int k = 0; k < MOVES; k++) {
      state s = nodes[i].s;
      if (make_move(m, &s, k)) {
        reach(&s, i);
      }
    }
  }
}

// Carries `can_finish` back from every state to those before it.
static void spread(const model *m)
{
  for (bool more = true; more;) {
    more = false;
    for (uint32_t i = count; i-- > 0;) {
      for (int k = 0; k < MOVES && !nodes[i].can_finish; k++) {
        state s = nodes[i].s;
        if (make_move(m, &s, k) && nodes[*find_slot(&s) - 1].can_finish) {
          nodes[i].can_finish = more = true;
        }
      }
    }
  }
}

static void print_way(uint32_t i)
{
  if (nodes[i].parent != i) {
    print_way(nodes[i].parent);
  }
  const state *s = &nodes[i].s;
  printf("    writer at %3d%s, stopper at %3d, waiter at %3d%s | writes=%d state=%d stop=%d data=%d sleepers=%d%s\n", s->t[WRITER].pc,
         s->t[WRITER].dead ? " (dead)" : "", s->t[STOPPER].pc, s->t[WAITER].pc, s->t[WAITER].asleep ? " (asleep)" : "", s->word[WRITES],
         s->word[STATE], s->word[STOP], s->word[DATA], s->word[SLEEPERS], s->late ? " LATE" : "");
}

static bool show; // print how each mutant fails

static void check(const model *m)
{
  explore(m);
  spread(m);
  uint32_t bad = count;
  const char *how = "sound";
  for (uint32_t i = 0; i < count && bad == count; i++) {
    if (nodes[i].s.late || !nodes[i].can_finish) {
      bad = i;
      how = nodes[i].s.late ? "WRITTEN TO LATE" : "STUCK";
    }
  }
  printf("  %-66s %7u states: %s\n", m->name, count, how);
  if ((bad < count) != m->broken || (bad < count && show)) {
    print_way(bad < count ? bad : 0);
  }
  assert_int_equal(bad < count, m->broken);
}

static void test_owner(void **unused)
{
  (void)unused;
  static const model models[] = {
      {.name = "ncclCommAbort: who stops the port waits", .one_thread = true},
      {.name = "one thread stops the port, another waits"},
      {.name = "ncclCommAbort, and the writer may die", .one_thread = true, .mortal = true},
      {.name = "another waits, and the writer may die", .mortal = true},
      {.name = "writer: names nobody", .broken = true, .no_name = true},
      {.name = "writer: no fence behind the name", .broken = true, .name_no_fence = true},
      {.name = "writer: looks before it names", .broken = true, .look_first = true},
      {.name = "writer: looks before its first piece only", .broken = true, .one_look = true},
      {.name = "writer: takes the name back before it writes", .broken = true, .end_early = true},
      {.name = "writer: no fence between the name's end and its look", .broken = true, .end_no_fence = true},
      {.name = "writer: does not ring", .broken = true, .no_ring = true},
      {.name = "writer: writes nothing, and does not ring", .broken = true, .refuse_silently = true},
      {.name = "writer: writes nothing, and leaves the name", .broken = true, .name_stays = true},
      {.name = "owner: the code before the state, another waits", .broken = true, .stop_first = true},
      {.name = "owner: the code before the state, who stops waits", .one_thread = true, .stop_first = true},
      {.name = "owner: no fence, who stops waits", .broken = true, .one_thread = true, .no_owner_fence = true},
      {.name = "owner: looks once", .broken = true, .one_thread = true, .owner_looks_once = true},
      {.name = "owner: sleeps without announcing itself", .broken = true, .one_thread = true, .no_announce = true},
      {.name = "owner: does not ask whether the writer lives", .broken = true, .one_thread = true, .mortal = true, .no_life = true},
  };
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    check(&models[i]);
  }
}

int main(int argc, char **argv)
{
  show = argc > 1 && strcmp(argv[1], "show") == 0;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_owner)};
  return cmocka_run_group_tests_name("owner_model", tests, NULL, NULL);
}
