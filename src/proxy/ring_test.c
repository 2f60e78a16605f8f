// ring_test.c: rings of ranks in one process, each a thread that plays the executor, over a network with all vices:
// everything arrives, once, in order and unharmed, however the ranks wait. A wake-up that is lost shows as a sleep of a
// minute.
#include "proxy/proxy_rig.h"

#include <sched.h>

#define SLEEP_NS (60 * TT_NS_PER_S)

typedef enum {
  DRIVE,  // attends, and never sleeps
  SLEEP,  // attends while it looks, and sleeps on its bell
  LEAVE,  // does not attend: leaves everything to the progress thread
  CHANGE, // one after the other
  WAYS
} way;

typedef struct player {
  rig *r;
  int rank;
  way how;
  int ops;
  tt_thread thread;
  // The operation it is in.
  tt_proto proto;
  uint64_t sig;
  uint32_t to_put, to_get;
} player;

static int next_of(const player *p)
{
  return (p->rank + 1) % p->r->n;
}

static int prev_of(const player *p)
{
  return (p->rank + p->r->n - 1) % p->r->n;
}

// Fills, takes, and drives. True when anything moved.
static bool turn(player *p)
{
  rig_rank *k = &p->r->ranks[p->rank];
  bool moved = false;
  while (p->to_put > 0 && rig_put(p->rank, &k->links[next_of(p)].send[p->proto], p->proto, p->sig, 77)) {
    p->to_put--;
    moved = true;
  }
  while (p->to_get > 0 && rig_get(prev_of(p), &k->links[prev_of(p)].recv[p->proto], p->proto, p->sig, 77)) {
    p->to_get--;
    moved = true;
  }
  return tt_proxy_progress(k->proxy, true) || moved;
}

static void sleep_on_bell(player *p, bool attends)
{
  rig_rank *k = &p->r->ranks[p->rank];
  tt_bell *bell = &k->port.page->bell;
  uint32_t ticket = tt_bell_announce(bell);
  if (attends) {
    tt_proxy_attend(-1);
  }
  if (!turn(p)) {
    tt_proxy_kick(k->proxy, false);
    bool rung = tt_bell_sleep(&bell, &ticket, 1, SLEEP_NS);
    FAKE_DEMAND(rung || turn(p) == false);
    FAKE_DEMAND(rung);
  }
  tt_bell_leave(bell);
  if (attends) {
    tt_proxy_attend(1);
  }
}

static void play_one(player *p, int op)
{
  rig_rank *k = &p->r->ranks[p->rank];
  uint32_t h = (uint32_t)tt_hash(&op, sizeof op, 9);
  way how = p->how == CHANGE ? (way)((h >> 8) % CHANGE) : p->how;
  p->proto = h % 3 == 0 ? TT_SIMPLE : TT_LL;
  p->sig = (uint64_t)(op + 1) << 32;
  p->to_put = p->to_get = h % 16 == 1 ? 100 : 1 + h / 16 % 5;
  tt_proxy_op so = rig_op(next_of(p), true, p->proto, p->to_put), ro = rig_op(prev_of(p), false, p->proto, p->to_get);
  so.sig = ro.sig = p->sig;
  FAKE_DEMAND(tt_proxy_post(k->proxy, &so) == ncclSuccess && tt_proxy_post(k->proxy, &ro) == ncclSuccess);
  if (how != LEAVE) {
    tt_proxy_attend(1);
  }
  for (int fruitless = 0; p->to_put > 0 || p->to_get > 0;) {
    if (turn(p)) {
      fruitless = 0;
    } else if (how == DRIVE || ++fruitless < 3) {
      sched_yield();
    } else {
      sleep_on_bell(p, how == SLEEP);
    }
  }
  if (how != LEAVE) {
    tt_proxy_attend(-1);
  }
  tt_proxy_kick(k->proxy, false); // what is left of the sends
}

static void *play(void *arg)
{
  player *p = arg;
  for (int op = 0; op < p->ops; op++) {
    play_one(p, op);
  }
  for (uint64_t end = tt_now_ns() + SLEEP_NS; !tt_proxy_idle(p->r->ranks[p->rank].proxy);) {
    FAKE_DEMAND(tt_now_ns() < end); // nobody drives but the progress thread
    tt_sleep_ns(100000);
  }
  return NULL;
}

static void ring_of(const tt_net_ops *net, int n, int node_size, way how, int ops)
{
  static player players[RIG_MAX];
  rig *r = rig_open_nodes(n, node_size, net);
  rig_meet(r);
  for (int i = 0; i < n; i++) {
    rig_link(r, i, (i + 1) % n, true);
    if (n > 2) {
      rig_link(r, i, (i + n - 1) % n, true);
    }
  }
  for (int i = 0; i < n; i++) {
    players[i] = (player){.r = r, .rank = i, .how = how, .ops = ops};
    assert_int_equal(tt_thread_start(&players[i].thread, "player", play, &players[i]), ncclSuccess);
  }
  for (int i = 0; i < n; i++) {
    tt_thread_join(&players[i].thread);
    assert_int_equal(tt_port_status(&r->ranks[i].port), ncclSuccess);
  }
  rig_close(r);
}

static void ring(const tt_net_ops *net, int n, way how, int ops)
{
  ring_of(net, n, 0, how, ops);
}

#if defined(TT_TSAN) || defined(TT_ASAN)
enum { OPS = 60 };
#else
enum { OPS = 300 };
#endif

static void all_ways(bool events, uint64_t delay_ns, uint64_t send_ns, int not_now)
{
  for (int n = 2; n <= RIG_MAX; n += n == 2 ? 1 : 5) {
    for (way how = DRIVE; how < WAYS; how++) {
      fake_start((uint64_t)(n * 10 + (int)how));
      fake.events = events;
      fake.delay_ns = delay_ns;
      fake.send_ns = send_ns;
      fake.not_now = not_now;
      fake.flush = how == SLEEP;
      fake.connect_calls = n;
      ring(&fake_net, n, how, delay_ns > 0 ? OPS / 3 : OPS);
      fake_stop();
    }
  }
}

static void plain(void **state)
{
  (void)state;
  all_ways(false, 0, 0, 0);
}

static void with_events(void **state)
{
  (void)state;
  all_ways(true, 0, 0, 0);
}

static void late(void **state)
{
  (void)state;
  all_ways(true, 200000, 0, 0);
}

static void late_without_events(void **state)
{
  (void)state;
  all_ways(false, 100000, 100000, 0);
}

static void everything(void **state)
{
  (void)state;
  all_ways(true, 100000, 100000, 200);
}

// Machines of two ranks with a device each: from machine to machine messages go through the neighbour.
static void neighbours(void **state)
{
  (void)state;
  for (int n = 4; n <= RIG_MAX; n += 4) {
    for (int vices = 0; vices < 3; vices++) {
      for (way how = DRIVE; how < WAYS; how++) {
        fake_start((uint64_t)(n * 10 + (int)how));
        fake.ndevs = 2;
        fake.events = vices > 0;
        fake.delay_ns = fake.send_ns = vices > 1 ? 100000 : 0;
        fake.not_now = vices > 1 ? 200 : 0;
        ring_of(&fake_net, n, 2, how, vices > 1 ? OPS / 3 : OPS);
        fake_stop();
      }
    }
  }
}

static void sockets(void **state)
{
  (void)state;
  for (int n = 2; n <= RIG_MAX; n += n == 2 ? 1 : 5) {
    for (way how = DRIVE; how < WAYS; how++) {
      fake_start(1);
      ring(&tt_net_socket, n, how, OPS);
      fake_stop();
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(plain),      cmocka_unit_test(with_events),
                                     cmocka_unit_test(late),       cmocka_unit_test(late_without_events),
                                     cmocka_unit_test(everything), cmocka_unit_test(neighbours),
                                     cmocka_unit_test(sockets)};
  return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
