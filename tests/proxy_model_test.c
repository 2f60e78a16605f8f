// proxy_model_test.c: walks every interleaving of the progress thread's sleep and wake (src/proxy/thread.c).
//
// As in bell_model_test.c: a step executes one access of one thread to a shared word, or moves one store out of a thread's store buffer
// into memory (total store order). All states that can be reached are collected; the protocol is right when each of them can still finish.
// Rests that end by themselves soon (NAPPING, MIXED) may end at any time; ASLEEP and POLLING end by a ring or an edge only, although
// POLLING in truth has a limit.
//
// Threads: the progress thread; one that posts operations of proxy 0, drives it once and leaves it with a kick; one that attends, posts
// operations of proxy 1, drives it and leaves by attend(-1) without a kick, as waiters that fall asleep do; the network, which brings what
// the operations wait for.
// Where proxies come and go (`lives`), each of the two takes its place in the table and starts the thread before an operation, and frees the place when
// that is done. Asleep without a user, the thread may end at any time: then it starts anew for the next one, and at last it has ended.
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

#define STORES 2
#include "store_buffer.h"

enum { THREAD, KICKER, WAITER, NETWORK, THREADS };
enum { PROXIES = 2, MAX_STATES = 6000000 };

// Shared words; those with _0 have a second one for proxy 1.
enum {
  STATE,
  ATTENDING,
  DESERTED,
  RUNG,
  EDGE,
  LISTENS, // the networks' descriptors are in the thread's set
  WATCHED, // the networks' own sets have their sockets
  SOCKET_0,
  SOCKET_1, // a connection's socket is in its network's set: what comes makes an edge, where LISTENS
  LINKED_0, // the connection is there
  LINKED_1,
  POSTED_0,
  POSTED_1,
  FIN_0,
  FIN_1,
  LEFT_0,
  LEFT_1,
  RUN_0,
  RUN_1,
  INCOMING_0,
  INCOMING_1,
  NET_0,
  NET_1,
  USERS, // places of the table that are not free
  LOCK,  // of the thread's start and end
  WORDS
};

enum { AWAKE, NAPPING, POLLING, MIXED, ASLEEP, NONE };

// What a variant leaves out or bends.
typedef struct model {
  const char *name;
  bool broken;          // a state that cannot finish must be found
  uint8_t kicks, waits; // operations of the kicker and of the waiter
  bool no_kick_fence, no_kick, no_attend_wake, no_drive, trust_incoming, no_ring, no_second_look, weak_state, listens_late;
  bool sockets_late,
      alone;  // the sockets come in after the second look; a connection that is made while the sockets are watched does not join them
  bool lives; // proxies come and go
  bool early; // the network has brought everything before
  bool no_left_ring, no_recount, no_end_lock;
  bool coarse; // the network's two steps, and the two loads of a look at an operation, are one each: fewer states
} model;

typedef struct thread {
  uint8_t pc, ret, x, y; // ret: where a drive returns to; registers
  uint8_t proxy, round;
  uint8_t pending, mine, others, moved, kind, second;
  store_buffer buf;
} thread;

typedef struct state {
  uint8_t word[WORDS];
  uint8_t appended[PROXIES]; // operations taken on; the run flag's holder's
  thread t[THREADS];
} state;

static uint8_t load(const state *s, int t, int word)
{
  return buffer_load(&s->t[t].buf, s->word, word);
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
  s->word[oldest.word] = oldest.value;
  return true;
}

static bool fenced(const state *s, int t)
{
  return s->t[t].buf.n == 0;
}

// ---- tt_proxy_look(p): program counters 100 and up. Returns to th->ret with th->moved raised.

enum { DRIVE = 100, DRIVE_ASK, DRIVE_LOOK, DRIVE_RELEASE, DRIVE_AGAIN };

static bool drive(state *s, int t)
{
  thread *th = &s->t[t];
  int p = th->proxy;
  switch (th->pc) {
  case DRIVE: // CAS 0 -> 1
    if (!fenced(s, t)) {
      return false;
    }
    th->pc = s->word[RUN_0 + p] == 0 ? DRIVE_LOOK : DRIVE_ASK;
    s->word[RUN_0 + p] = s->word[RUN_0 + p] == 0 ? 1 : s->word[RUN_0 + p];
    return true;
  case DRIVE_ASK: // exchange 2
    th->pc = s->word[RUN_0 + p] == 0 ? DRIVE_LOOK : th->ret;
    s->word[RUN_0 + p] = 2;
    return true;
  case DRIVE_LOOK: { // takes on what is posted (an exchange), and tests it; whoever holds the flag is alone with both
    if (!fenced(s, t)) {
      return false;
    }
    s->appended[p] = (uint8_t)(s->appended[p] + s->word[INCOMING_0 + p]);
    s->word[INCOMING_0 + p] = 0;
    uint8_t come = s->word[NET_0 + p], fin = come < s->appended[p] ? come : s->appended[p];
    if (fin != s->word[FIN_0 + p]) {
      put(s, t, FIN_0 + p, fin);
      th->moved = t == THREAD;
    }
    th->pc = DRIVE_RELEASE;
    return true;
  }
  case DRIVE_RELEASE: // CAS 1 -> 0
    if (!fenced(s, t)) {
      return false;
    }
    th->pc = s->word[RUN_0 + p] == 1 ? th->ret : DRIVE_AGAIN;
    s->word[RUN_0 + p] = s->word[RUN_0 + p] == 1 ? 0 : s->word[RUN_0 + p];
    return true;
  default: // exchange 1
    s->word[RUN_0 + p] = 1;
    th->pc = DRIVE_LOOK;
    return true;
  }
}

// ---- posting and waking, shared by kicker and waiter

enum {
  POST,
  POST_LIST,
  POSTED,
  DRIVEN,
  IDLE_FIN,
  IDLE_POSTED,
  SAY_LEFT,
  FENCE,
  LOOK_STATE,
  WAKE,
  RING,
  NEXT_ROUND,
  END,
  COME,
  LEAVE,
  SAY_DESERTED,
  ATTEND_FENCE,
  ANY_FIN,
  ANY_POSTED
};

static void next_round(const model *m, thread *th)
{
  th->pc = ++th->round < m->kicks ? POST : END;
}

static bool is_watched(const model *m, const state *s, int t, int p)
{
  return m->trust_incoming || load(s, t, INCOMING_0 + p) == 0;
}

static bool post_step(const model *m, state *s, int t)
{
  thread *th = &s->t[t];
  int p = th->proxy;
  switch (th->pc) {
  case POST:
    if (!put(s, t, POSTED_0 + p, (uint8_t)(th->round + 1))) {
      return false;
    }
    th->pc = POST_LIST;
    return true;
  case POST_LIST: // a plain store or a CAS: the stronger of the two would hide errors, the weaker one is modelled
    if (load(s, t, INCOMING_0 + p) == 0) {
      if (!put(s, t, INCOMING_0 + p, 1)) {
        return false;
      }
    } else if (fenced(s, t)) {
      s->word[INCOMING_0 + p]++;
    } else {
      return false;
    }
    th->pc = POSTED;
    return true;
  case POSTED:
    th->ret = DRIVEN;
    th->pc = m->no_drive && t == KICKER ? DRIVEN : DRIVE;
    return true;
  case WAKE: // CAS seen -> AWAKE
    if (!fenced(s, t)) {
      return false;
    }
    th->pc = s->word[STATE] == th->x && !m->no_ring ? RING : NEXT_ROUND;
    s->word[STATE] = s->word[STATE] == th->x ? AWAKE : s->word[STATE];
    return true;
  case RING: // a system call
    s->word[RUNG] = 1;
    s->word[EDGE] = 1;
    th->pc = NEXT_ROUND;
    return true;
  default: next_round(m, th); return true;
  }
}

// tt_proxy_kick
static bool kick_step(const model *m, state *s, int t)
{
  thread *th = &s->t[t];
  int p = th->proxy;
  switch (th->pc) {
  case DRIVEN: th->pc = m->no_kick ? NEXT_ROUND : IDLE_FIN; return true;
  case IDLE_FIN:
    th->y = load(s, t, FIN_0 + p);
    th->pc = IDLE_POSTED;
    if (!m->coarse) {
      return true;
    }
  // fall through
  case IDLE_POSTED: th->pc = th->y == load(s, t, POSTED_0 + p) ? NEXT_ROUND : SAY_LEFT; return true;
  case SAY_LEFT:
    if (!put(s, t, LEFT_0 + p, 1)) {
      return false;
    }
    th->pc = FENCE;
    return true;
  case FENCE:
    if (!m->no_kick_fence && !fenced(s, t)) {
      return false;
    }
    th->pc = LOOK_STATE;
    return true;
  case LOOK_STATE: {
    th->x = load(s, t, STATE);
    bool on_events = th->x == POLLING || th->x == MIXED;
    th->pc = th->x == NAPPING || th->x == ASLEEP || (on_events && !is_watched(m, s, t, p)) ? WAKE : NEXT_ROUND;
    return true;
  }
  default: return post_step(m, s, t);
  }
}

// tt_proxy_attend(1), an operation, tt_proxy_attend(-1)
static bool wait_step(const model *m, state *s, int t)
{
  thread *th = &s->t[t];
  switch (th->pc) {
  case COME:
    if (!fenced(s, t)) {
      return false;
    }
    s->word[ATTENDING]++;
    th->pc = POST;
    return put(s, t, DESERTED, 0);
  case DRIVEN: th->pc = LEAVE; return true;
  case LEAVE:
    if (!fenced(s, t)) {
      return false;
    }
    th->y = --s->word[ATTENDING];
    th->pc = m->no_attend_wake ? NEXT_ROUND : th->y == 0 ? SAY_DESERTED : LOOK_STATE;
    return true;
  case SAY_DESERTED: // if anything is pending
    if (load(s, t, FIN_0) != load(s, t, POSTED_0) || load(s, t, FIN_1) != load(s, t, POSTED_1)) {
      put(s, t, DESERTED, 1);
    }
    th->pc = ATTEND_FENCE;
    return true;
  case ATTEND_FENCE:
    if (!fenced(s, t)) {
      return false;
    }
    th->pc = LOOK_STATE;
    return true;
  case LOOK_STATE:
    th->x = load(s, t, STATE);
    th->kind = th->x == ASLEEP || (th->y == 0 && (th->x == NAPPING || th->x == MIXED));
    th->second = 0; // the proxy looked at
    th->pc = th->kind ? ANY_FIN : NEXT_ROUND;
    return true;
  case ANY_FIN:
    th->y = load(s, t, FIN_0 + th->second);
    th->pc = ANY_POSTED;
    if (!m->coarse) {
      return true;
    }
  // fall through
  case ANY_POSTED: th->pc = th->y != load(s, t, POSTED_0 + th->second) ? WAKE : ++th->second < PROXIES ? ANY_FIN : NEXT_ROUND; return true;
  case NEXT_ROUND: th->pc = ++th->round < m->waits ? COME : END; return true;
  default: return post_step(m, s, t);
  }
}

// ---- a proxy's life around an operation. CREATE is under the table's lock

enum { CREATE = ANY_POSTED + 1, START_LOCK, START, AWAIT, LEAVE_PLACE, LEFT_LOCK, LEFT_RING };

static bool life_step(const model *m, state *s, int t)
{
  thread *th = &s->t[t];
  if (!fenced(s, t) || ((th->pc == START_LOCK || th->pc == LEFT_LOCK) && s->word[LOCK])) {
    return false;
  }
  switch (th->pc) {
  case CREATE:
    s->word[USERS]++;
    s->word[LEFT_0 + th->proxy] = 0;
    th->pc = START_LOCK;
    return true;
  case START: // of which all is done before another thread has the lock, or sees that the state is not NONE any more
    if (s->word[STATE] == NONE) {
      memset(&s->t[THREAD], 0, sizeof s->t[THREAD]); // LOOK
      s->word[STATE] = AWAKE;
    }
    s->word[LOCK] = 0;
    th->pc = t == KICKER ? POST : COME;
    return true;
  case AWAIT: th->pc = LEAVE_PLACE; return s->word[FIN_0 + th->proxy] == s->word[POSTED_0 + th->proxy];
  case LEAVE_PLACE:
    s->word[USERS]--;
    th->pc = LEFT_LOCK;
    return true;
  case LEFT_RING:
    if (s->word[STATE] != NONE && !m->no_left_ring) {
      s->word[RUNG] = s->word[EDGE] = 1;
    }
    s->word[LOCK] = 0;
    th->pc = ++th->round < (t == KICKER ? m->kicks : m->waits) ? CREATE : END;
    return true;
  default: // START_LOCK, LEFT_LOCK
    s->word[LOCK] = 1;
    th->pc++;
    return true;
  }
}

// ---- the progress thread. `y`: nobody attends, and what was attended to has been deserted. A proxy that is not alone and not left may count as driven by others, or not: both are
// tried (`choice`).

enum { LOOK, LOOK_FIN, LOOK_POSTED, LOOK_LEFT, NEXT, DECIDE, LISTEN, WATCH, SAY, COUNT, SLEEP, WOKEN, SAY_AWAKE };
enum { END_LOCK = SAY_AWAKE + 1, END_COUNT, END_SAY, GONE };

static uint8_t rest_kind(const thread *th, int choice)
{
  return !th->pending ? (choice ? ASLEEP : NAPPING) : !th->mine ? NAPPING : th->others ? MIXED : POLLING;
}

static bool look_step(const model *m, state *s, int t, int choice)
{
  thread *th = &s->t[t];
  int p = th->proxy;
  switch (th->pc) {
  case LOOK:
    th->y = load(s, t, ATTENDING) == 0 && load(s, t, DESERTED);
    th->pending = th->mine = th->others = th->moved = 0;
    th->proxy = 0;
    th->pc = LOOK_FIN;
    return true;
  case LOOK_FIN:
    th->x = load(s, t, FIN_0 + p);
    th->pc = LOOK_POSTED;
    if (!m->coarse) {
      return true;
    }
  // fall through
  case LOOK_POSTED:
    th->pc = th->x == load(s, t, POSTED_0 + p) ? NEXT : LOOK_LEFT;
    th->pending |= th->pc == LOOK_LEFT;
    return true;
  case LOOK_LEFT:
    if (!th->y && load(s, t, LEFT_0 + p) == 0 && choice) {
      th->others = 1;
      th->pc = NEXT;
    } else {
      th->mine = 1;
      th->ret = NEXT;
      th->pc = DRIVE;
    }
    return true;
  default: // NEXT
    th->pc = ++th->proxy < PROXIES ? LOOK_FIN : DECIDE;
    return true;
  }
}

// The network's lock is held: every connection that is linked joins, or leaves, in one step.
static void watch_sockets(state *s, bool on)
{
  for (int p = 0; p < PROXIES && on != s->word[WATCHED]; p++) {
    s->word[SOCKET_0 + p] = on && s->word[LINKED_0 + p];
  }
  s->word[WATCHED] = on;
}

// Asleep long enough without a user.
static bool end_step(const model *m, state *s, int t)
{
  thread *th = &s->t[t];
  if (!fenced(s, t) || (th->pc == END_LOCK && s->word[LOCK] && !m->no_end_lock)) {
    return false;
  }
  switch (th->pc) {
  case END_LOCK:
    s->word[LOCK] |= !m->no_end_lock;
    th->pc = m->no_recount ? END_SAY : END_COUNT;
    return true;
  case END_COUNT:
    th->x = s->word[USERS];
    th->pc = END_SAY;
    return true;
  default: // END_SAY: CAS ASLEEP -> NONE
    th->pc = th->x == 0 && s->word[STATE] == ASLEEP ? GONE : SAY_AWAKE;
    s->word[STATE] = th->pc == GONE ? NONE : s->word[STATE];
    s->word[LOCK] = m->no_end_lock ? s->word[LOCK] : 0;
    return true;
  }
}

static bool thread_step(const model *m, state *s, int t, int choice)
{
  thread *th = &s->t[t];
  switch (th->pc) {
  case END_LOCK:
  case END_COUNT:
  case END_SAY: return end_step(m, s, t);
  case GONE: return false;
  case DECIDE:
    if (th->second) {
      th->second = 0;
      // With an idle time of its own, ASLEEP stays ASLEEP when nothing is pending.
      bool same = !th->moved && (th->kind == ASLEEP ? !th->pending : rest_kind(th, 0) == th->kind);
      th->pc = same ? COUNT : SAY_AWAKE;
    } else {
      th->kind = rest_kind(th, choice);
      th->pc = th->moved ? LOOK : LISTEN;
    }
    return true;
  case LISTEN: // a system call; what is there already may make an edge, which is not counted on
    if (!fenced(s, t)) {
      return false;
    }
    s->word[LISTENS] = (th->kind == POLLING || th->kind == MIXED) && !m->listens_late;
    th->pc = WATCH;
    return true;
  case WATCH: // likewise
    watch_sockets(s, (th->kind == POLLING || th->kind == MIXED) && !(m->sockets_late && !s->word[WATCHED]));
    th->pc = SAY;
    return true;
  case SAY:
    if (m->weak_state ? !put(s, t, STATE, th->kind) : !fenced(s, t)) {
      return false;
    }
    if (!m->weak_state) {
      s->word[STATE] = th->kind;
    }
    th->second = 1;
    th->pc = m->no_second_look ? COUNT : LOOK;
    return true;
  case COUNT: // x: it has users, or does not end
    th->x = !m->lives || load(s, t, USERS) > 0;
    th->pc = SLEEP;
    return true;
  case SLEEP:
    if (!fenced(s, t)) {
      return false;
    }
    s->word[LISTENS] |= m->listens_late;
    if (m->sockets_late && (th->kind == POLLING || th->kind == MIXED)) {
      watch_sockets(s, true);
    }
    if ((th->kind == ASLEEP && !s->word[RUNG] && th->x != 0) || (th->kind == POLLING && !s->word[EDGE])) {
      return false;
    }
    if (th->kind == POLLING || th->kind == MIXED) {
      s->word[EDGE] = 0; // waiting on edges forgets them
    }
    th->pc = WOKEN;
    return true;
  case WOKEN:
    s->word[RUNG] = 0;
    th->second = 0;
    th->pc = th->kind == ASLEEP && th->x == 0 && choice ? END_LOCK : SAY_AWAKE;
    return true;
  case SAY_AWAKE:
    if (!fenced(s, t)) {
      return false;
    }
    s->word[STATE] = AWAKE;
    th->pc = LOOK;
    return true;
  default: return look_step(m, s, t, choice);
  }
}

// The network brings what was asked for, in turn: first it is there, then it makes an edge, where somebody listens. Before the first for a proxy its
// connection is made, and joins the sockets that are watched, under the network's lock.
static bool network_step(const model *m, state *s)
{
  thread *th = &s->t[NETWORK];
  if (th->pc == 1) {
    s->word[EDGE] |= s->word[LISTENS] && s->word[SOCKET_0 + th->proxy];
    th->pc = 0;
    return true;
  }
  if (th->pc == 0 && s->word[NET_0] + s->word[NET_1] < m->kicks + m->waits) {
    int p = s->word[NET_0] <= s->word[NET_1] ? s->word[NET_0] == m->kicks : s->word[NET_1] < m->waits;
    if (!s->word[LINKED_0 + p]) {
      s->word[LINKED_0 + p] = 1;
      s->word[SOCKET_0 + p] = s->word[WATCHED] && !m->alone;
      return true;
    }
    s->word[NET_0 + p]++;
    s->word[EDGE] |= m->coarse && s->word[LISTENS] && s->word[SOCKET_0 + p];
    th->proxy = (uint8_t)(m->coarse ? 0 : p);
    th->pc = !m->coarse;
    return true;
  }
  return false;
}

static bool step(const model *m, state *s, int t, int choice)
{
  thread *th = &s->t[t];
  if (t == NETWORK) {
    return network_step(m, s);
  }
  if (th->pc >= DRIVE) {
    return drive(s, t);
  }
  if (t == THREAD) {
    return thread_step(m, s, t, choice);
  }
  if (th->pc == NEXT_ROUND && m->lives) {
    th->pc = AWAIT;
  }
  return th->pc == END ? false : th->pc >= CREATE ? life_step(m, s, t) : t == KICKER ? kick_step(m, s, t) : wait_step(m, s, t);
}

// Registers that are not read any more: states that differ in them alone are one.
static void forget(int t, thread *th)
{
  if (th->pc < DRIVE) {
    th->ret = 0;
  }
  if (t == THREAD) {
    th->x = th->pc == LOOK_POSTED || th->pc == SLEEP || th->pc == WOKEN || th->pc == END_SAY || th->pc == END_LOCK ? th->x : 0;
    th->y = th->pc == DECIDE || (th->pc > DECIDE && th->pc < DRIVE) || th->pc == LOOK ? 0 : th->y;
    th->proxy = th->pc >= DECIDE && th->pc < DRIVE ? 0 : th->proxy;
    th->kind = th->pc == LOOK && !th->second ? 0 : th->kind;
    if (th->pc == LOOK || (th->pc > DECIDE && th->pc < DRIVE)) {
      th->pending = th->mine = th->others = th->moved = 0;
    }
  } else if (th->pc == POST || th->pc == COME || th->pc == END || th->pc == NEXT_ROUND || th->pc == RING || th->pc >= CREATE) {
    th->x = th->y = th->kind = th->second = 0;
  }
}

// tt_proxy_progress of a thread that is no progress thread takes back what a kick said. (When it holds the flag; the model does so on the
// way in, which is earlier, and only makes the thread stand back more often.)
static bool step_and_unleave(const model *m, state *s, int t, int choice)
{
  bool drives = (t == KICKER || t == WAITER) && s->t[t].pc == DRIVE;
  int p = s->t[t].proxy;
  if (!step(m, s, t, choice)) {
    return false;
  }
  if (drives) {
    s->word[LEFT_0 + p] = 0;
  }
  forget(t, &s->t[t]);
  return true;
}

static bool is_finished(const model *m, const state *s)
{
  return s->t[KICKER].pc == END && s->t[WAITER].pc == END && s->word[FIN_0] == m->kicks && s->word[FIN_1] == m->waits &&
         (!m->lives || s->t[THREAD].pc == GONE);
}

// ---- exploring: states in the order they are found, a hash table of them, and who follows whom

typedef struct explorer {
  const model *m;
  state *states;
  uint32_t *slots, nslots, n, cap;
  uint32_t (*edges)[2];
  size_t nedges, cap_edges;
  bool *can_finish;
} explorer;

static void *grow(void *p, size_t n, size_t size)
{
  p = realloc(p, n * size);
  assert_non_null(p);
  return p;
}

static uint32_t *find_slot(const explorer *e, const state *s)
{
  uint32_t i = (uint32_t)(state_hash(s, sizeof *s) >> 20) & (e->nslots - 1);
  while (e->slots[i] != 0 && memcmp(&e->states[e->slots[i] - 1], s, sizeof *s) != 0) {
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
  for (uint32_t i = 0; i < e->n; i++) {
    *find_slot(e, &e->states[i]) = i + 1;
  }
}

static void reach(explorer *e, const state *s, uint32_t from)
{
  if (e->n * 2 >= e->nslots) {
    rehash(e);
  }
  uint32_t *slot = find_slot(e, s);
  if (*slot == 0) {
    assert_true(e->n < MAX_STATES);
    if (e->n == e->cap) {
      e->cap *= 2;
      e->states = grow(e->states, e->cap, sizeof *e->states);
    }
    e->states[e->n] = *s;
    *slot = ++e->n;
  }
  if (e->nedges == e->cap_edges) {
    e->cap_edges *= 2;
    e->edges = grow(e->edges, e->cap_edges, sizeof *e->edges);
  }
  e->edges[e->nedges][0] = from;
  e->edges[e->nedges++][1] = *slot - 1;
}

static void explore(explorer *e, const model *m)
{
  *e = (explorer){.m = m, .cap = 4096, .cap_edges = 4096, .nslots = 1 << 16};
  e->states = grow(NULL, e->cap, sizeof *e->states);
  e->edges = grow(NULL, e->cap_edges, sizeof *e->edges);
  e->slots = calloc(e->nslots, sizeof *e->slots);
  assert_non_null(e->slots);
  state first;
  memset(&first, 0, sizeof first);
  first.word[STATE] = m->lives ? NONE : AWAKE;
  first.t[THREAD].pc = m->lives ? GONE : LOOK;
  first.t[KICKER].pc = m->kicks == 0 ? END : m->lives ? CREATE : POST;
  first.t[WAITER].pc = m->waits == 0 ? END : m->lives ? CREATE : COME;
  first.t[WAITER].proxy = 1;
  first.word[NET_0] = m->early ? m->kicks : 0;
  first.word[NET_1] = m->early ? m->waits : 0;
  reach(e, &first, 0);
  for (uint32_t i = 0; i < e->n; i++) {
    for (int t = 0; t < THREADS; t++) {
      for (int choice = 0; choice < (t == THREAD ? 2 : 1); choice++) {
        state s = e->states[i];
        if (step_and_unleave(m, &s, t, choice)) {
          reach(e, &s, i);
        }
      }
      state s = e->states[i];
      if (flush(&s, t)) {
        reach(e, &s, i);
      }
    }
  }
}

// Carries "can finish" back along the edges; returns a state that cannot, 0 when all can.
static uint32_t find_lost(explorer *e)
{
  e->can_finish = calloc(e->n, sizeof *e->can_finish);
  assert_non_null(e->can_finish);
  for (uint32_t i = 0; i < e->n; i++) {
    e->can_finish[i] = is_finished(e->m, &e->states[i]);
  }
  for (bool more = true; more;) {
    more = false;
    for (size_t i = e->nedges; i-- > 0;) {
      if (!e->can_finish[e->edges[i][0]] && e->can_finish[e->edges[i][1]]) {
        e->can_finish[e->edges[i][0]] = more = true;
      }
    }
  }
  for (uint32_t i = 0; i < e->n; i++) {
    if (!e->can_finish[i]) {
      return i;
    }
  }
  return 0;
}

static void print_state(const state *s)
{
  printf("    state %d attending %d deserted %d rung %d edge %d", s->word[STATE], s->word[ATTENDING], s->word[DESERTED], s->word[RUNG],
         s->word[EDGE]);
  for (int p = 0; p < PROXIES; p++) {
    printf(" | posted %d finished %d incoming %d arrived %d run %d left %d", s->word[POSTED_0 + p], s->word[FIN_0 + p],
           s->word[INCOMING_0 + p], s->word[NET_0 + p], s->word[RUN_0 + p], s->word[LEFT_0 + p]);
  }
  printf(" | at");
  for (int t = 0; t < THREADS; t++) {
    printf(" %d", s->t[t].pc);
  }
  printf("\n");
}

static void check(const model *m)
{
  explorer e;
  explore(&e, m);
  uint32_t lost = find_lost(&e);
  printf("  %-56s %8u states: %s\n", m->name, e.n, lost == 0 ? "sound" : "LOST");
  if ((lost != 0) != m->broken) {
    print_state(&e.states[lost]);
  }
  bool as_expected = (lost != 0) == m->broken;
  free(e.states);
  free(e.slots);
  free(e.edges);
  free(e.can_finish);
  assert_true(as_expected);
}

static void test_protocol(void **unused)
{
  (void)unused;
  static const model models[] = {
      {.name = "one leaves with a kick, twice", .kicks = 2},
      {.name = "one attends and falls asleep, twice", .waits = 2},
      {.name = "both, once", .kicks = 1, .waits = 1, .coarse = true},
      {.name = "operations kicked, but not driven", .kicks = 2, .no_drive = true},
      {.name = "the same, and the kick trusts the watch", .kicks = 2, .no_drive = true, .trust_incoming = true, .broken = true},
      {.name = "no kick", .kicks = 1, .no_kick = true, .broken = true},
      {.name = "kick without a fence", .kicks = 2, .no_kick_fence = true, .no_drive = true, .broken = true},
      {.name = "kick changes the state, but does not ring", .kicks = 1, .no_ring = true, .broken = true},
      {.name = "attend(-1) wakes nobody", .waits = 1, .no_attend_wake = true, .broken = true},
      {.name = "the thread does not look again", .kicks = 1, .no_second_look = true, .broken = true},
      {.name = "the thread says so by a plain store, without a fence", .kicks = 1, .weak_state = true, .broken = true},
      {.name = "the thread listens to the networks after its second look", .kicks = 1, .listens_late = true, .broken = true},
      {.name = "the networks watch their sockets after its second look", .kicks = 1, .sockets_late = true, .broken = true},
      {.name = "a new connection's socket does not join the others", .kicks = 1, .alone = true, .broken = true},
      {.name = "a proxy comes and goes, twice", .kicks = 2, .lives = true},
      {.name = "the same with attending", .waits = 2, .lives = true},
      {.name = "two proxies come and go", .kicks = 1, .waits = 1, .lives = true, .early = true, .no_drive = true, .coarse = true},
      {.name = "who goes does not ring", .kicks = 1, .lives = true, .no_left_ring = true, .broken = true},
      {.name = "the thread ends without another count", .kicks = 2, .lives = true, .no_recount = true, .broken = true},
      {.name = "the thread counts and ends without the lock", .kicks = 2, .lives = true, .no_end_lock = true, .broken = true},
  };
  for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
    check(&models[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_protocol)};
  return cmocka_run_group_tests_name("proxy_model", tests, NULL, NULL);
}
