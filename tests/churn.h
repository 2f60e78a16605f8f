// churn.h: the ranks of churn_test.c: they obey orders on the board, and check what they are told of deaths.
#pragma once
#include "buffers.h"

enum {
  MOST = 8,      // slots: places for processes
  PER_JOB = 100, // kills, after which all processes are new
  PATIENCE = 3,  // NCCL_BOOTSTRAP_TIMEOUT: a rank that dies before the others have heard of it is missed only then
  HANG = 60,     // seconds for an order
  FEW = 100,     // elements
  MANY = 100000,
};

// Where a rank dies. The first ones are what ranks do in WORK.
typedef enum {
  AT_IDLE,
  AT_SUMS,
  AT_LARGE,
  AT_CHILD,
  AT_MESSAGES,
  AT_GROUPS,
  AT_SPLITS,
  AT_SHRINKS,
  AT_INITS,
  AT_FINALIZES,
  AT_ENDS,
  WORKS,
  AT_REPAIR = WORKS,
  AT_GROWTH,
  RECOVERY,
} point;
HARNESS const char *const point_names[] = {"idle",
                                           "small all-reduces",
                                           "large all-reduces",
                                           "a split child",
                                           "sends and receives",
                                           "groups of communicators",
                                           "ncclCommSplit",
                                           "ncclCommShrink (healthy)",
                                           "ncclCommInitRank",
                                           "ncclCommFinalize",
                                           "ncclCommDestroy",
                                           "ncclCommShrink (after a death)",
                                           "ncclCommGrow"};

typedef enum { FOUND, WORK, SHRINK, GROW, QUIT } order_kind;

// Words of the board. ORDER: number << 8 | take << 4 | kind. DEAD: slots whose rank is dead; OUT: those when the order
// was given; VICTIMS: those that die while it is obeyed. OLD: the size of the communicator that is taken; SIZE: what it
// grows to. The launcher writes the words up to DIED, the ranks those after it. Some have one element for each slot:
// RESULT (number << 1 | good), STAGE (number of the order in which the rank is ready, or knows), ANSWERS (ns from the
// death to the error, for each communicator).
enum {
  ORDER,
  POINT,
  DEAD,
  OUT,
  MAKER,
  SIZE,
  OLD,
  VICTIMS,
  TOLD,
  PLACES = 16,
  DIED = 32,
  RESULT = 48,
  READY = 64,
  KNOWS = 80,
  SLOWEST_END = 96,
  ANSWERS = 128,
};

// The communicators of a rank. TWIN: all ranks; HALF: every other one; FEWER: all but the last.
enum { ALL, TWIN, HALF, FEWER, HELD };

typedef struct mate {
  int slot, rank, n, slots[MOST]; // of `comm`, by rank
  uint64_t number;                // of the order
  ncclComm_t comm, next;          // next: made by the last order, and not taken yet
  ncclComm_t held[HELD];          // while it works; the first is `comm`
  cudaStream_t s;
  int works;
  holdings most; // of the first works
} mate;

HARNESS _Atomic uint64_t *word(int i)
{
  return &the_board->word[i];
}

HARNESS uint64_t get(int i)
{
  return atomic_load(word(i));
}

HARNESS void put(int i, uint64_t value)
{
  atomic_store(word(i), value);
}

HARNESS uint64_t ns_now(void)
{
  return (uint64_t)(seconds_now() * 1e9);
}

// --- Ranks

// Which slots a communicator of the rank holds, and the number of a rank of `comm` in it.
HARNESS bool holds(const mate *m, int which, int rank)
{
  return which == HALF ? rank % 2 == m->rank % 2 : which != FEWER || rank != m->n - 1;
}

HARNESS int number_in(int which, int rank)
{
  return which == HALF ? rank / 2 : rank;
}

HARNESS void renew_stream(mate *m)
{
  OK(tuttiStreamDestroy(m->s));
  m->s = new_stream();
}

// By one way or another; it must not take long, whatever has become of the peers.
HARNESS void end_comm(const mate *m, ncclComm_t comm, unsigned how)
{
  double start = seconds_now();
  if (how % 3 == 2) {
    ncclResult_t res = ncclCommRevoke(comm, 0);
    CHECK(comm == NULL || res == ncclSuccess, "slot %d: revocation gives %d", m->slot, (int)res);
  }
  OK(how % 3 == 0 ? ncclCommAbort(comm) : ncclCommDestroy(comm));
  double took = seconds_now() - start;
  CHECK(took < GENEROUS(1), "slot %d: the end of a communicator (way %u) took %g s", m->slot, how % 3, took);
  for (uint64_t ns = (uint64_t)(took * 1e9), most = 0;
       !atomic_compare_exchange_weak(word(SLOWEST_END), &most, ns) && most < ns;) {
  }
}

// The last order's communicator is taken, or not.
HARNESS void take_next(mate *m, bool take)
{
  ncclComm_t old = take ? m->comm : m->next;
  m->comm = take ? m->next : m->comm;
  m->next = NULL;
  end_comm(m, old, (unsigned)m->number);
  if (take) {
    m->n = (int)get(OLD);
    for (int i = 0; i < m->n; i++) {
      m->slots[i] = (int)get(PLACES + i);
      m->rank = m->slots[i] == m->slot ? i : m->rank;
    }
  }
}

// How long ago the first rank of the communicator died; what it may be told of it. 0: nobody has.
HARNESS uint64_t ns_since_death(const mate *m, int which)
{
  uint64_t victims = get(VICTIMS), first = 0;
  for (int i = 0; i < m->n; i++) {
    uint64_t died = (victims >> m->slots[i] & 1) != 0 && holds(m, which, i) ? get(DIED + m->slots[i]) : 0;
    first = died != 0 && (first == 0 || died < first) ? died : first;
  }
  return first == 0 ? 0 : ns_now() - first;
}

HARNESS bool names_dead(const mate *m, int which, const char *text)
{
  char name[32];
  for (int i = 0; i < m->n; i++) {
    snprintf(name, sizeof name, "rank %d (pid ", number_in(which, i));
    if ((get(VICTIMS) >> m->slots[i] & 1) != 0 && holds(m, which, i) && strstr(text, name) != NULL) {
      return true;
    }
  }
  return false;
}

HARNESS void answer(const mate *m, int which, uint64_t ns)
{
  put(ANSWERS + m->slot * HELD + which, ns);
}

// The order went wrong because somebody has died.
HARNESS bool told_by_order(const mate *m, ncclResult_t res, const char *what)
{
  uint64_t first = 0;
  for (int i = 0; i < MOST; i++) {
    uint64_t died = (get(VICTIMS) >> i & 1) != 0 ? get(DIED + i) : 0;
    first = died > first ? died : first;
  }
  CHECK(first != 0, "slot %d: %s fails with %d although nobody has died", m->slot, what, (int)res);
  CHECK(res == ncclRemoteError || (res == ncclInvalidUsage && m->comm == NULL), "slot %d: %s fails with %d", m->slot,
        what,
        (int)res); // a new rank may find that nobody listens for the id any more
  answer(m, ALL, ns_now() - first);
  return false;
}

HARNESS bool shrink(mate *m)
{
  int out[MOST], nout = 0;
  for (int i = 0; i < m->n && m->comm != NULL; i++) {
    if ((get(OUT) >> m->slots[i] & 1) != 0) {
      out[nout++] = i;
    }
  }
  if (m->comm == NULL) { // it has not joined yet
    return true;
  }
  ncclResult_t res = ncclCommShrink(m->comm, out, nout, &m->next, NULL, NCCL_SHRINK_ABORT);
  renew_stream(m);
  res = res == ncclSuccess ? sum_once(m->next, m->s, FEW) : res;
  return res == ncclSuccess || told_by_order(m, res, "ncclCommShrink, or the first sum");
}

// The id of this order, which the slot MAKER makes. False: it cannot.
HARNESS bool shared_growth_id(const mate *m, ncclUniqueId *id)
{
  int at = (int)(m->number % MAX_RANKS), maker = (int)get(MAKER);
  if (m->slot == maker) {
    ncclResult_t res = ncclCommGetUniqueId(m->comm, &the_board->ids[at]);
    if (res != ncclSuccess) {
      return told_by_order(m, res, "ncclCommGetUniqueId");
    }
    atomic_store(&the_board->ids_made[at], (int)m->number);
  }
  while (atomic_load(&the_board->ids_made[at]) != (int)m->number) {
    if ((get(DEAD) >> maker & 1) != 0 || get(RESULT + maker) >> 1 == m->number) {
      return false;
    }
    sleep_ms(0.2);
  }
  *id = the_board->ids[at];
  return true;
}

HARNESS bool grow(mate *m)
{
  ncclUniqueId id;
  int n = (int)get(SIZE), rank = -1;
  if (!shared_growth_id(m, &id)) {
    return false;
  }
  for (int i = (int)get(OLD); i < n; i++) {
    rank = (int)get(PLACES + i) == m->slot ? i : rank;
  }
  bool brings = rank >= 0 || m->slot == (int)get(MAKER);
  ncclResult_t res = ncclCommGrow(m->comm, n, brings ? &id : NULL, rank, &m->next, NULL);
  res = res == ncclSuccess ? sum_once(m->next, m->s, FEW) : res;
  if (res != ncclSuccess) {
    renew_stream(m);
  }
  return res == ncclSuccess || told_by_order(m, res, "ncclCommGrow, or the first sum");
}

HARNESS bool found(mate *m)
{
  int n = (int)get(SIZE);
  m->next = join_processes(0, n, m->slot);
  return sum_once(m->next, m->s, FEW) == ncclSuccess;
}

// --- Work

HARNESS ncclResult_t error_of(const mate *m)
{
  ncclResult_t state = ncclSuccess;
  OK(ncclCommGetAsyncError(m->comm, &state));
  return state;
}

HARNESS ncclResult_t idle(const mate *m)
{
  sleep_ms(1);
  return error_of(m);
}

HARNESS ncclResult_t pass_messages(const mate *m)
{
  static float x[MANY], y[MANY];
  OK(ncclGroupStart());
  ncclResult_t a = ncclSend(x, MANY, ncclFloat, (m->rank + 1) % m->n, m->comm, m->s),
               b = ncclRecv(y, MANY, ncclFloat, (m->rank + m->n - 1) % m->n, m->comm, m->s), c = ncclGroupEnd(),
               d = tuttiStreamSynchronize(m->s);
  return a != ncclSuccess ? a : b != ncclSuccess ? b : c != ncclSuccess ? c : d;
}

// Not in those that may lose nobody: a rank that has begun a group would wait there for one that has not.
HARNESS ncclResult_t sum_in_groups(const mate *m)
{
  static float x[FEW], y[FEW];
  OK(ncclGroupStart());
  ncclResult_t a = ncclAllReduce(x, x, FEW, ncclFloat, ncclSum, m->comm, m->s),
               b = ncclAllReduce(y, y, FEW, ncclFloat, ncclSum, m->held[TWIN], m->s), c = ncclGroupEnd(),
               d = tuttiStreamSynchronize(m->s);
  return a != ncclSuccess ? a : b != ncclSuccess ? b : c != ncclSuccess ? c : d;
}

// A split child that is used, and ends by itself: with `finalizes` by ncclCommFinalize.
HARNESS ncclResult_t split_and_end(const mate *m, bool uses, bool finalizes)
{
  static float x[MANY];
  ncclComm_t child = NULL;
  ncclResult_t res = ncclCommSplit(m->comm, 0, m->rank, &child, NULL);
  if (res != ncclSuccess) {
    return res;
  }
  res = uses ? ncclAllReduce(x, x, MANY, ncclFloat, ncclSum, child, m->s) : res;
  if (finalizes && res == ncclSuccess) {
    res = ncclCommFinalize(child);
  }
  OK(ncclCommDestroy(child));
  ncclResult_t end = tuttiStreamSynchronize(m->s);
  return res != ncclSuccess ? res : end;
}

HARNESS ncclResult_t shrink_healthy(const mate *m)
{
  ncclComm_t child = NULL;
  int out = m->n - 1;
  if (m->rank == out) {
    return idle(m);
  }
  ncclResult_t res = ncclCommShrink(m->comm, &out, 1, &child, NULL, NCCL_SHRINK_DEFAULT);
  OK(ncclCommDestroy(child));
  return res != ncclSuccess ? res : error_of(m);
}

HARNESS ncclResult_t init_another(const mate *m, int round)
{
  int at = round % MAX_RANKS, mark = ((int)m->number << 12) + round + 1;
  ncclComm_t other = NULL;
  if (m->rank == 0) {
    OK(ncclGetUniqueId(&the_board->ids[at]));
    atomic_store(&the_board->ids_made[at], mark);
  }
  while (atomic_load(&the_board->ids_made[at]) != mark) {
    ncclResult_t res = idle(m);
    if (res != ncclSuccess) {
      return res;
    }
  }
  ncclResult_t res = ncclCommInitRank(&other, m->n, the_board->ids[at], m->rank);
  OK(ncclCommDestroy(other));
  return res;
}

HARNESS ncclResult_t work_once(const mate *m, int round)
{
  switch ((point)get(POINT)) {
  case AT_IDLE: return idle(m);
  case AT_SUMS: return sum_once(m->comm, m->s, FEW);
  case AT_LARGE: return sum_once(m->comm, m->s, MANY);
  case AT_CHILD: return sum_once(m->held[TWIN], m->s, round % 2 == 0 ? FEW : MANY);
  case AT_MESSAGES: return pass_messages(m);
  case AT_GROUPS: return sum_in_groups(m);
  case AT_SPLITS: return split_and_end(m, false, false);
  case AT_SHRINKS: return shrink_healthy(m);
  case AT_INITS: return init_another(m, round);
  case AT_FINALIZES: return split_and_end(m, true, true);
  default: return split_and_end(m, true, false);
  }
}

// A rank has died: every communicator that held it says so, and which.
HARNESS void await_news(const mate *m)
{
  for (int i = 0; i < HELD; i++) {
    ncclResult_t state = ncclSuccess;
    while (m->held[i] != NULL && ns_since_death(m, i) != 0 && state == ncclSuccess) {
      OK(ncclCommGetAsyncError(m->held[i], &state));
      double took = (double)ns_since_death(m, i) / 1e9;
      CHECK(state == ncclSuccess || state == ncclRemoteError, "slot %d, communicator %d: %d", m->slot, i, (int)state);
      CHECK(took < GENEROUS(1), "slot %d, communicator %d: not told after %g s", m->slot, i, took);
      if (state == ncclSuccess) {
        sleep_ms(1);
        continue;
      }
      answer(m, i, ns_since_death(m, i));
      const char *text = ncclGetLastError(m->held[i]);
      CHECK(names_dead(m, i, text), "slot %d, communicator %d: another name: %s", m->slot, i, text);
    }
  }
}

// What the rank holds does not grow from one work to the next.
HARNESS void check_holdings(mate *m)
{
  enum { WARM = 6, SURE = 12 };
  holdings now = holdings_now();
  if (m->works++ < WARM) {
    m->most.threads = now.threads > m->most.threads ? now.threads : m->most.threads;
    m->most.descriptors = now.descriptors > m->most.descriptors ? now.descriptors : m->most.descriptors;
    m->most.mappings = now.mappings > m->most.mappings ? now.mappings : m->most.mappings;
  } else if (m->works % SURE == 0) { // a connection of the RAS ring more or less
    const holdings allowed = {.threads = m->most.threads + 1, .descriptors = m->most.descriptors + 3};
    now = holdings_settled(&allowed);
    CHECK(now.threads <= allowed.threads && now.descriptors <= allowed.descriptors &&
              now.mappings <= m->most.mappings + 32,
          "slot %d, work %d: descriptors %d -> %d, threads %d -> %d, mappings %d -> %d", m->slot, m->works,
          m->most.descriptors, now.descriptors, m->most.threads, now.threads, m->most.mappings, now.mappings);
  }
}

HARNESS void make_children(mate *m)
{
  int last = m->n - 1;
  m->held[ALL] = m->comm;
  OK(ncclCommSplit(m->comm, 0, m->rank, &m->held[TWIN], NULL));
  OK(ncclCommSplit(m->comm, m->rank % 2, m->rank, &m->held[HALF], NULL));
  if (m->rank != last) {
    OK(ncclCommShrink(m->comm, &last, 1, &m->held[FEWER], NULL, NCCL_SHRINK_DEFAULT));
  }
  for (int i = 0; i < HELD; i++) {
    CHECK(m->held[i] == NULL || sum_once(m->held[i], m->s, FEW) == ncclSuccess, "slot %d: the first sum in %d", m->slot,
          i);
  }
}

HARNESS bool work(mate *m)
{
  check_holdings(m);
  make_children(m);
  put(READY + m->slot, m->number);
  ncclResult_t res = ncclSuccess;
  for (int round = 0; res == ncclSuccess; round++) {
    res = work_once(m, round);
  }
  CHECK(get(VICTIMS) != 0, "slot %d: %s fails with %d although nobody has died", m->slot, point_names[get(POINT)],
        (int)res);
  bool unused = res == ncclInvalidUsage && get(POINT) == AT_INITS; // nobody listens for the id any more
  CHECK(res == ncclRemoteError || unused, "slot %d: %s fails with %d", m->slot, point_names[get(POINT)], (int)res);
  renew_stream(m);
  await_news(m);
  put(KNOWS + m->slot, m->number);
  while (get(TOLD) != m->number) {
    sleep_ms(0.5);
  }
  for (int i = 0; i < HELD; i++) {
    CHECK(m->held[i] == NULL || ns_since_death(m, i) != 0 || sum_once(m->held[i], m->s, FEW) == ncclSuccess,
          "slot %d: a sum in communicator %d, which has lost nobody", m->slot, i);
  }
  for (int i = TWIN; i < HELD; i++) {
    end_comm(m, m->held[i], (unsigned)m->number + (unsigned)i);
    m->held[i] = NULL;
  }
  return true;
}

HARNESS void churn_body(int slot, void *arg)
{
  (void)arg;
  static bool (*const obey[])(mate * m) = {[FOUND] = found, [WORK] = work, [SHRINK] = shrink, [GROW] = grow};
  mate m = {.slot = slot, .number = get(RESULT + slot) >> 1, .s = new_stream()};
  for (;;) {
    uint64_t order = get(ORDER);
    if (order >> 8 == m.number) {
      sleep_ms(0.5);
      continue;
    }
    m.number = order >> 8;
    take_next(&m, (order >> 4 & 1) != 0);
    if ((order & 15) == QUIT) {
      break;
    }
    bool good = obey[order & 15](&m);
    put(RESULT + slot, m.number << 1 | good);
  }
  OK(ncclCommDestroy(m.comm));
  OK(tuttiStreamDestroy(m.s));
}
