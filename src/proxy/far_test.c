// far_test.c: the messages of captured operations, with a stand-in for the kernels of both ranks.
#include "proxy/proxy_rig.h"

#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>

#include <sys/mman.h>

#include "proxy/far.h"

enum { MOST = 300 << 10, SIG = 77 }; // bytes of a message: several parts

// One rank's end, and where its kernels are.
typedef struct side {
  rig *r;
  int rank;
  tt_far_end end;
  tt_far_fifo *far;
  char *memory;
  uint32_t replay, n; // in it
} side;

// The head has a page of its own, before the slots.
enum { HEAD_BYTES = 4096 };

static size_t slot_bytes(const tt_fifo_shape *s)
{
  return HEAD_BYTES + s->slots * sizeof(tt_slot);
}

static size_t side_bytes(const side *k)
{
  return slot_bytes(&k->end.shape) + (size_t)k->end.shape.slots * MOST;
}

static ncclResult_t come(side *k, rig *r, int rank, bool sends, uint32_t number, const tt_fifo_shape *s)
{
  *k = (side){.r = r, .rank = rank};
  k->end = (tt_far_end){.peer = 1 - rank, .kind = TT_SIMPLE, .sends = sends, .number = number, .shape = *s};
  k->memory = mmap(NULL, side_bytes(k), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FAKE_DEMAND(k->memory != MAP_FAILED);
  k->end.fifo = (tt_fifo){.head = (_Atomic uint32_t *)(void *)k->memory,
                          .slots = k->memory + HEAD_BYTES,
                          .data = k->memory + slot_bytes(s),
                          .stride = sizeof(tt_slot),
                          .data_stride = MOST,
                          .mask = s->slots - 1,
                          .capacity = s->bytes};
  atomic_store(k->end.fifo.head, s->messages);
  return tt_proxy_mover.attach(r->ranks[rank].proxy, &k->end, &k->far);
}

static void side_free(const side *k)
{
  munmap(k->memory, side_bytes(k));
}

// Nobody looks at its memory any more.
static void go(side *k)
{
  tt_proxy_mover.detach(k->r->ranks[k->rank].proxy, k->far);
  side_free(k);
}

static uint32_t size_of(const side *k)
{
  return rig_size((int)k->end.number, TT_SIMPLE, k->replay * 100 + k->n, k->end.shape.bytes);
}

static char byte_of(const side *k, uint32_t at)
{
  return (char)(k->end.number * 31 + k->replay * 7 + k->n * 3 + at + (at >> 8));
}

static void advance(side *k)
{
  k->n++;
  if (k->n == k->end.shape.messages) {
    k->n = 0;
    k->replay++;
  }
  k->end.fifo.next = k->n;
}

// What the sender's next kernel does; false: its stream waits for a slot.
static bool put(side *k)
{
  const tt_fifo *f = &k->end.fifo;
  const uint32_t head = atomic_load(f->head), bytes = size_of(k);
  tt_slot *s = tt_fifo_slot(f);
  if (k->n == 0 ? head < k->end.shape.messages : k->n - head > f->mask) {
    return false;
  }
  FAKE_DEMAND(atomic_load(&s->seq) == 0);
  for (uint32_t i = 0; i < bytes; i++) {
    tt_fifo_data(f)[i] = byte_of(k, i);
  }
  s->bytes = bytes;
  s->sig = SIG;
  s->count = k->replay;
  if (k->n == 0) {
    atomic_store(f->head, 0);
  }
  atomic_store(&s->seq, k->n + 1);
  advance(k);
  return true;
}

// The receiver's; false: the message has not come.
static bool get(side *k)
{
  const tt_fifo *f = &k->end.fifo;
  tt_slot *s = tt_fifo_slot(f);
  if (atomic_load(&s->seq) != k->n + 1) {
    return false;
  }
  FAKE_DEMAND(s->sig == SIG && s->count == k->replay && s->bytes == size_of(k));
  for (uint32_t i = 0; i < s->bytes; i++) {
    FAKE_DEMAND(tt_fifo_data(f)[i] == byte_of(k, i));
  }
  atomic_store(&s->seq, 0);
  atomic_store(f->head, k->n + 1);
  advance(k);
  return true;
}

static void move(rig *r)
{
  tt_proxy_progress(r->ranks[0].proxy, true);
  tt_proxy_progress(r->ranks[1].proxy, true);
}

static rig *open_two(unsigned seed)
{
  fake_start(seed);
  rig *r = rig_open(2, &fake_net);
  rig_meet(r);
  rig_link(r, 0, 1, true);
  rig_link(r, 1, 0, true);
  return r;
}

static bool is_empty(rig *r)
{
  bool empty = true;
  for (int i = 0; i < 2; i++) {
    tt_proxy *p = r->ranks[i].proxy;
    tt_proxy_run_hold(p);
    const tt_proxy_puts *g = tt_puts_find(p, 1 - i, TT_MSG_GRAPHS);
    for (int b = 0; b < TT_FAR_BUCKETS; b++) {
      empty &= g->far.first[b] == NULL;
    }
    tt_proxy_run_release(p);
  }
  return empty;
}

// Shapes of all kinds, both ways; either side comes first; as many replays ahead as the FIFOs allow.
static void replays_arrive(void **state)
{
  static const tt_fifo_shape shapes[] = {{1, 40, 1}, {4, 3000, 3}, {8, 2000, 20}, {2, MOST, 5}, {1, 100, 7}, {2, 0, 2}};
  enum { N = TT_COUNT(shapes), REPLAYS = 30 };
  static side sends[N], receives[N];
  (void)state;
  rig *r = open_two(3);
  for (uint32_t i = 0; i < N; i++) {
    const int from = (int)(i & 1);
    for (int k = 0; k < 2; k++) {
      const bool sender = (k == 0) == (i % 3 == 0);
      FAKE_DEMAND(come(sender ? &sends[i] : &receives[i], r, sender ? from : 1 - from, sender, i * TT_FAR_BUCKETS,
                       &shapes[i]) == ncclSuccess);
    }
  }
  for (uint32_t done = 0; done < N;) {
    done = 0;
    for (uint32_t i = 0; i < N; i++) {
      while (sends[i].replay < REPLAYS && put(&sends[i])) {
      }
      while (get(&receives[i])) {
      }
      done += receives[i].replay == REPLAYS;
    }
    move(r);
  }
  UNTIL((move(r), tt_proxy_mover.idle(r->ranks[0].proxy) && tt_proxy_mover.idle(r->ranks[1].proxy)));
  for (uint32_t i = 0; i < N; i++) {
    go(&sends[i]);
    go(&receives[i]);
  }
  UNTIL((move(r), is_empty(r)));
  rig_close(r);
  fake_stop();
}

// A FIFO that nobody reads, or that the other rank does not have yet, holds up no other one.
static void none_waits_for_another(void **state)
{
  static const tt_fifo_shape shape = {2, MOST, 8};
  side a[2], b[2], c;
  (void)state;
  rig *r = open_two(4);
  for (int k = 0; k < 2; k++) {
    FAKE_DEMAND(come(&a[k], r, k, k == 0, 1, &shape) == ncclSuccess);
    FAKE_DEMAND(come(&b[k], r, k, k == 0, 2, &shape) == ncclSuccess);
  }
  FAKE_DEMAND(come(&c, r, 0, true, 3, &shape) == ncclSuccess);
  while (b[1].replay < 20) {
    put(&a[0]);
    put(&c);
    put(&b[0]);
    move(r);
    get(&b[1]);
  }
  assert_true(a[0].n <= 4 && c.n == 2 && a[0].replay == 0);
  assert_false(tt_proxy_mover.idle(r->ranks[0].proxy));
  UNTIL((move(r), put(&a[0]), get(&a[1]), a[1].replay == 5));
  rig_leave(r, 0); // what is left goes with the proxies
  rig_close(r);
  for (int k = 0; k < 2; k++) {
    side_free(&a[k]);
    side_free(&b[k]);
  }
  side_free(&c);
  fake_stop();
}

// The sender goes before the receiver has come: all of its last replay arrives.
static void what_is_sent_arrives(void **state)
{
  static const tt_fifo_shape shape = {4, 5000, 4};
  side a, b;
  (void)state;
  rig *r = open_two(5);
  FAKE_DEMAND(come(&a, r, 0, true, 9, &shape) == ncclSuccess);
  while (a.replay == 0) {
    FAKE_DEMAND(put(&a));
  }
  move(r);
  go(&a);
  move(r);
  assert_false(tt_proxy_mover.idle(r->ranks[0].proxy));
  FAKE_DEMAND(come(&b, r, 1, false, 9, &shape) == ncclSuccess);
  UNTIL((move(r), get(&b), b.replay == 1));
  UNTIL((move(r), tt_proxy_mover.idle(r->ranks[0].proxy)));
  go(&b);
  UNTIL((move(r), is_empty(r)));
  rig_close(r);
  fake_stop();
}

// Whether all captured operations have come is not a matter of the one-sided ones, which nobody takes here.
static void one_sided_are_apart(void **state)
{
  static const tt_fifo_shape shape = {4, 5000, 4};
  struct tt_rma_link *puts;
  side a, b;
  (void)state;
  rig *r = open_two(9);
  atomic_store(&tt_proxy_thread_tests.held, true); // what has been sent comes when this thread moves it
  tt_proxy *p = r->ranks[0].proxy, *q = r->ranks[1].proxy;
  FAKE_DEMAND(tt_proxy_puts_open(q, 0, &puts) == ncclSuccess);
  FAKE_DEMAND(come(&a, r, 0, true, 9, &shape) == ncclSuccess);
  FAKE_DEMAND(come(&b, r, 1, false, 9, &shape) == ncclSuccess);
  UNTIL((move(r), a.replay < 2 && put(&a), get(&b), b.replay == 2));
  UNTIL((move(r), tt_proxy_mover.idle(p) && tt_puts_complete(q, 0, TT_MSG_GRAPHS, tt_puts_sent(p, 1, TT_MSG_GRAPHS))));
  UNTIL((put(&a), tt_proxy_progress(p, true), tt_puts_sent(p, 1, TT_MSG_GRAPHS) != tt_puts_came(q, 0, TT_MSG_GRAPHS)));
  assert_false(tt_puts_complete(q, 0, TT_MSG_GRAPHS, tt_puts_sent(p, 1, TT_MSG_GRAPHS)));
  assert_true(tt_puts_complete(q, 0, TT_MSG_PUTS, 1));
  assert_int_equal(tt_puts_sent(p, 1, TT_MSG_PUTS), 0);
  UNTIL((move(r), get(&b), tt_puts_complete(q, 0, TT_MSG_GRAPHS, tt_puts_sent(p, 1, TT_MSG_GRAPHS))));
  atomic_store(&tt_proxy_thread_tests.held, false);
  rig_leave(r, 0); // what is left goes with the proxies
  rig_close(r);
  side_free(&a);
  side_free(&b);
  fake_stop();
}

// Does no FIFO of either rank have anything under way?
static bool is_idle(rig *r)
{
  bool idle = true;
  for (int i = 0; i < 2; i++) {
    tt_proxy *p = r->ranks[i].proxy;
    tt_proxy_run_hold(p);
    idle &= tt_puts_find(p, 1 - i, TT_MSG_GRAPHS)->far.busy == NULL;
    tt_proxy_run_release(p);
  }
  return idle;
}

// Between replays nobody looks at a FIFO: of a sender's at the head alone, of a receiver's at nothing.
static void idle_costs_nothing(void **state)
{
  static const tt_fifo_shape shape = {4, 5000, 7};
  enum { N = 20 };
  static side a[N], b[N];
  side c, d;
  (void)state;
  rig *r = open_two(10);
  for (uint32_t i = 0; i < N; i++) {
    FAKE_DEMAND(come(&a[i], r, 0, true, i, &shape) == ncclSuccess);
    FAKE_DEMAND(come(&b[i], r, 1, false, i, &shape) == ncclSuccess);
  }
  FAKE_DEMAND(come(&c, r, 0, true, N, &shape) == ncclSuccess);
  FAKE_DEMAND(come(&d, r, 1, false, N, &shape) == ncclSuccess);
  for (uint32_t replay = 1; replay <= 3; replay++) {
    for (uint32_t i = 0; i < N; i++) {
      UNTIL((move(r), a[i].replay < replay && put(&a[i]), get(&b[i]), b[i].replay == replay));
    }
    UNTIL((move(r), c.replay < 2 * replay - 1 && put(&c), get(&d), d.replay == 2 * replay - 1));
    UNTIL((move(r), is_idle(r)));
    for (uint32_t i = 0; i < N; i++) {
      FAKE_DEMAND(mprotect(a[i].memory + HEAD_BYTES, side_bytes(&a[i]) - HEAD_BYTES, PROT_NONE) == 0);
      FAKE_DEMAND(mprotect(b[i].memory, side_bytes(&b[i]), PROT_NONE) == 0);
    }
    UNTIL((move(r), c.replay < 2 * replay && put(&c), get(&d), d.replay == 2 * replay));
    for (uint32_t i = 0; i < N; i++) {
      FAKE_DEMAND(mprotect(a[i].memory, side_bytes(&a[i]), PROT_READ | PROT_WRITE) == 0);
      FAKE_DEMAND(mprotect(b[i].memory, side_bytes(&b[i]), PROT_READ | PROT_WRITE) == 0);
    }
  }
  for (uint32_t i = 0; i < N; i++) {
    go(&a[i]);
    go(&b[i]);
  }
  go(&c);
  go(&d);
  UNTIL((move(r), is_empty(r)));
  rig_close(r);
  fake_stop();
}

// Whichever rank comes later: the sender finds it.
static void ranks_must_agree(void **state)
{
  static const tt_fifo_shape shape = {4, 5000, 4}, other = {4, 5000, 3};
  (void)state;
  for (int later = 0; later < 2; later++) {
    side a, b;
    ncclResult_t res;
    rig *r = open_two(6);
    const tt_port *port = &r->ranks[0].port;
    if (later == 0) { // the sender
      FAKE_DEMAND(come(&b, r, 1, false, 9, &other) == ncclSuccess);
      UNTIL((move(r), tt_puts_came(r->ranks[0].proxy, 1, TT_MSG_GRAPHS) > 0));
      res = come(&a, r, 0, true, 9, &shape);
    } else {
      FAKE_DEMAND(come(&a, r, 0, true, 9, &shape) == ncclSuccess);
      FAKE_DEMAND(come(&b, r, 1, false, 9, &other) == ncclSuccess);
      UNTIL((move(r), tt_port_status(port) != ncclSuccess));
      res = tt_port_status(port);
    }
    assert_int_equal(res, ncclInvalidUsage);
    assert_non_null(strstr(later == 0 ? tt_last_error() : tt_port_error(port),
                           "number 9 between ranks 0 and 1 is 4 messages of up to 5000 bytes for rank 0, and 3"));
    rig_close(r);
    side_free(&a);
    side_free(&b);
    fake_stop();
  }
}

// What a peer says (far.c): what, kind, number, where it begins, bytes of it, bytes of this part.
typedef uint32_t saying[6];

static ncclResult_t take(tt_proxy_puts *g, const saying w)
{
  static char payload[1000];
  // OPEN: two slots, four messages.
  const struct {
    uint64_t elsewhere, sig, count;
    uint32_t number, at, bytes;
    uint8_t what, kind;
    uint16_t zero;
  } head = {
      .sig = 4, .count = 2, .number = w[2], .at = w[3], .bytes = w[4], .what = (uint8_t)w[0], .kind = (uint8_t)w[1]};
  tt_slot s = {.sig = TT_FAR_SIG, .bytes = w[5]};
  memcpy(s.data, &head, sizeof s.data);
  return tt_far_take(g, &s, payload);
}

static const tt_fifo_shape two_slots = {2, 500, 4};

// Messages that no peer sends: nothing is written.
static void wrong_messages(void **state)
{
  static const saying wrong[] = {{1, TT_SIMPLE, 1, 0, 501, 501}, {1, TT_SIMPLE, 1, 4, 500, 400},
                                 {1, TT_SIMPLE, 1, 0, 10, 11},   {1, TT_TOK, 1, 0, 10, 10},
                                 {7, TT_SIMPLE, 1, 0, 0, 0},     {0, TT_SIMPLE, 1, 0, 0, 0}};
  static const saying part = {1, TT_SIMPLE, 1, 0, 400, 100}, rest = {1, TT_SIMPLE, 1, 100, 400, 300};
  static const saying wrong_rests[] = {{1, TT_SIMPLE, 1, 100, 99, 50},   {1, TT_SIMPLE, 1, 100, 401, 301},
                                       {1, TT_SIMPLE, 1, 100, 300, 200}, {1, TT_SIMPLE, 1, 100, 400, 301},
                                       {1, TT_SIMPLE, 1, 99, 400, 1},    {1, TT_SIMPLE, 1, 0, 400, 100}};
  static const saying good = {1, TT_SIMPLE, 1, 0, 8, 8}, nobodys = {1, TT_SIMPLE, 2, 0, 8, 8};
  side b;
  (void)state;
  rig *r = open_two(7);
  FAKE_DEMAND(come(&b, r, 1, false, 1, &two_slots) == ncclSuccess);
  tt_proxy *p = r->ranks[1].proxy;
  tt_proxy_puts *g = tt_puts_find(p, 0, TT_MSG_GRAPHS);
  const _Atomic uint32_t *seq = &tt_fifo_slot(&b.end.fifo)->seq;
  tt_proxy_run_hold(p);
  for (size_t i = 0; i < TT_COUNT(wrong); i++) {
    assert_int_equal(take(g, wrong[i]), ncclRemoteError);
    assert_int_equal(atomic_load(seq), 0);
  }
  assert_int_equal(tt_far_take(g, &(tt_slot){.sig = TT_FAR_SIG + 1}, NULL), ncclRemoteError);
  assert_int_equal(take(g, part), ncclSuccess);
  for (size_t i = 0; i < TT_COUNT(wrong_rests); i++) {
    assert_int_equal(take(g, wrong_rests[i]), ncclRemoteError);
    assert_int_equal(atomic_load(seq), 0);
  }
  assert_int_equal(take(g, rest), ncclSuccess);
  assert_int_equal(atomic_load(seq), 1);
  // More than there is room for, and of a FIFO that this rank does not have, which is nobody's any more.
  assert_int_equal(take(g, good), ncclSuccess);
  assert_int_equal(take(g, good), ncclRemoteError);
  assert_int_equal(take(g, nobodys), ncclSuccess);
  tt_proxy_run_release(p);
  go(&b);
  rig_close(r);
  fake_stop();
}

// Of FIFOs that this rank has not had the peer may say that it has them, of so many.
static void too_many_words(void **state)
{
  static const saying wrong[] = {{3, TT_SIMPLE, 2, 1, 0, 0}, {4, TT_SIMPLE, 2, 0, 0, 0}};
  static const saying known = {2, TT_SIMPLE, 1, 0, 500, 0}, last = {2, TT_SIMPLE, 2, 0, 500, 0},
                      more = {2, TT_SIMPLE, 3, 0, 500, 0};
  side a, b;
  (void)state;
  rig *r = open_two(8);
  FAKE_DEMAND(come(&a, r, 0, true, 1, &two_slots) == ncclSuccess);
  tt_proxy *p = r->ranks[0].proxy;
  tt_proxy_puts *g = tt_puts_find(p, 1, TT_MSG_GRAPHS);
  tt_proxy_run_hold(p);
  for (size_t i = 0; i < TT_COUNT(wrong); i++) {
    assert_int_equal(take(g, wrong[i]), ncclRemoteError);
  }
  g->far.early = TT_FAR_EARLY - 1;
  assert_int_equal(take(g, known), ncclSuccess);
  assert_int_equal(take(g, last), ncclSuccess);
  assert_int_equal(take(g, more), ncclRemoteError);
  tt_proxy_run_release(p);
  FAKE_DEMAND(come(&b, r, 0, true, 2, &two_slots) == ncclSuccess); // then it is one less
  tt_proxy_run_hold(p);
  assert_int_equal(g->far.early, TT_FAR_EARLY - 1);
  assert_int_equal(take(g, more), ncclSuccess);
  tt_proxy_run_release(p);
  go(&a);
  go(&b);
  rig_close(r);
  fake_stop();
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(replays_arrive),       cmocka_unit_test(none_waits_for_another),
                                     cmocka_unit_test(what_is_sent_arrives), cmocka_unit_test(ranks_must_agree),
                                     cmocka_unit_test(wrong_messages),       cmocka_unit_test(too_many_words),
                                     cmocka_unit_test(one_sided_are_apart),  cmocka_unit_test(idle_costs_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
