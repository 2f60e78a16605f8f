// service_test.c: connecting, states, and peers that fail, go, or were never there.
#include "proxy/proxy_rig.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "os/random.h"
#include "proxy/visit_rig.h"
#include "tools/sockets.h"

static rig *open_ring(int n)
{
  rig *r = rig_open(n, &fake_net);
  rig_meet(r);
  return r;
}

static tt_proxy_limits *limits(rig *r, int rank)
{
  return &r->ranks[rank].proxy->service->limits;
}

static uint32_t stage(rig *r, int rank, int peer, bool send)
{
  tt_proxy_peer *q = tt_proxy_peer_find(r->ranks[rank].proxy, peer);
  return q == NULL ? TT_CONN_NONE : atomic_load(&(send ? &q->send : &q->recv)->stage);
}

static bool connected(rig *r, int a, int b)
{
  return stage(r, a, b, true) == TT_CONN_READY && stage(r, b, a, false) == TT_CONN_READY;
}

static rig *open_connected(void)
{
  rig *r = open_ring(2);
  rig_link(r, 0, 1, true);
  rig_link(r, 1, 0, true);
  UNTIL(connected(r, 0, 1) && connected(r, 1, 0));
  return r;
}

static uint32_t shown(rig *r, int rank, int peer)
{
  return atomic_load(&r->ranks[rank].links[peer].page->state);
}

static ncclResult_t status(rig *r, int rank)
{
  return tt_port_status(&r->ranks[rank].port);
}

// Stops a rank's port as the executor does.
static void stop(rig *r, int rank)
{
  tt_port_stop(&r->ranks[rank].port, tt_fail(ncclInternalError, "rank %d stops for the test", rank));
  tt_proxy_mover.state_changed(r->ranks[rank].proxy);
}

static void post(rig *r, int rank, tt_proxy_op op)
{
  FAKE_DEMAND(tt_proxy_post(r->ranks[rank].proxy, &op) == ncclSuccess);
}

// Sends `n` messages from 0 to 1 and posts their receives.
static void send_some(rig *r, uint32_t n)
{
  tt_proxy_op so = rig_op(1, true, TT_LL, n), ro = rig_op(0, false, TT_LL, n);
  post(r, 0, so);
  post(r, 1, ro);
  for (uint32_t i = 0; i < n; i++) {
    FAKE_DEMAND(rig_put(0, &r->ranks[0].links[1].send[TT_LL], TT_LL, so.sig, so.count));
  }
  tt_proxy_progress(r->ranks[0].proxy, true);
  tt_proxy_progress(r->ranks[1].proxy, true);
  tt_proxy_kick(r->ranks[0].proxy, false);
  tt_proxy_kick(r->ranks[1].proxy, false);
}

static uint32_t get_all(rig *r)
{
  uint32_t n = 0;
  while (rig_get(0, &r->ranks[1].links[0].recv[TT_LL], TT_LL, 0x100000000ull, 77)) {
    n++;
  }
  return n;
}

// ---- states

static void states(void **state)
{
  (void)state;
  fake_start(1);
  rig *r = open_connected();
  UNTIL(shown(r, 1, 0) == TT_RANK_RUNNING && shown(r, 0, 1) == TT_RANK_RUNNING);
  tt_rank_page *own = r->ranks[0].port.page, *copy = r->ranks[1].links[0].page;
  uint64_t sig, count;
  tt_page_show(own, 0x500000004ull, 12);
  UNTIL((tt_proxy_probe(r->ranks[1].proxy, 0), tt_page_shown(copy, 5, &sig, &count)));
  assert_int_equal(sig, 0x500000004ull);
  assert_int_equal(count, 12);
  tt_proxy_probe(r->ranks[1].proxy, 7); // no such rank
  tt_proxy_probe(r->ranks[1].proxy, 1);

  tt_bell *bell = &r->ranks[1].port.page->bell;
  uint32_t ticket = tt_bell_announce(bell);
  stop(r, 0);
  while (shown(r, 1, 0) < TT_RANK_FAILED) {
    assert_true(tt_bell_sleep(&bell, &ticket, 1, RIG_WAIT_NS));
    ticket = atomic_load(&bell->seq);
  }
  tt_bell_leave(bell);
  assert_int_equal(shown(r, 1, 0), TT_RANK_FAILED);
  assert_int_equal(status(r, 1), ncclSuccess);
  rig_close(r);
  fake_stop();
}

static void gone(void **state)
{
  (void)state;
  fake_start(2);
  rig *r = open_connected();
  atomic_store(&r->ranks[0].port.page->state, TT_RANK_GONE);
  tt_proxy_destroy(r->ranks[0].proxy);
  r->ranks[0].proxy = NULL;
  UNTIL(shown(r, 1, 0) == TT_RANK_GONE);
  // Its state said nothing of an end, but the proxy has ended in order.
  rig_port(r, 0);
  rig_close(r);
  r = open_connected();
  tt_proxy_destroy(r->ranks[0].proxy);
  r->ranks[0].proxy = NULL;
  UNTIL(shown(r, 1, 0) == TT_RANK_GONE);
  assert_int_equal(status(r, 1), ncclSuccess);
  rig_close(r);
  fake_stop();
}

// A last word never overtakes the data that were sent before it.
static void word_after_data(void **state)
{
  (void)state;
  for (uint64_t round = 0; round < 6; round++) {
    fake_start(round);
    fake.events = true;
    fake.delay_ns = 150 * TT_NS_PER_MS;
    rig *r = open_connected();
    limits(r, 1)->grace_ns = 60 * TT_NS_PER_S; // a busy machine may deliver late
    send_some(r, 20);
    if (round % 2) {
      atomic_store(&r->ranks[0].port.page->state, TT_RANK_GONE);
      tt_proxy_destroy(r->ranks[0].proxy);
      r->ranks[0].proxy = NULL;
    } else {
      stop(r, 0);
    }
    uint32_t n = 0;
    UNTIL(shown(r, 1, 0) >= TT_RANK_FAILED);
    n += get_all(r);
    assert_int_equal(n, 20);
    assert_int_equal(shown(r, 1, 0), round % 2 ? TT_RANK_GONE : TT_RANK_FAILED);
    rig_close(r);
    fake_stop();
  }
}

// Nor when this rank has not taken its end of the connection into use before the sender has gone.
static void word_before_connection(void **state)
{
  (void)state;
  fake_start(20);
  atomic_store(&fake.hold_accept, true);
  rig *r = open_ring(2);
  rig_link(r, 0, 1, true);
  rig_link(r, 1, 0, true);
  UNTIL(stage(r, 0, 1, true) == TT_CONN_READY);
  send_some(r, 20);
  UNTIL(tt_proxy_idle(r->ranks[0].proxy));
  atomic_store(&r->ranks[0].port.page->state, TT_RANK_GONE);
  tt_proxy_destroy(r->ranks[0].proxy);
  r->ranks[0].proxy = NULL;
  tt_sleep_ns(2 * limits(r, 1)->grace_ns);
  assert_int_equal(shown(r, 1, 0), TT_RANK_RUNNING);
  atomic_store(&fake.hold_accept, false);
  UNTIL(shown(r, 1, 0) == TT_RANK_GONE);
  assert_int_equal(get_all(r), 20);
  assert_int_equal(status(r, 1), ncclSuccess);
  rig_close(r);
  fake_stop();
}

// Nor is a peer gone before this rank knows that what it had got is sent: a network may tell that later.
static void word_before_sent(void **state)
{
  (void)state;
  fake_start(22);
  fake.send_ns = 400 * TT_NS_PER_MS;
  rig *r = open_connected();
  tt_fifo *out = &r->ranks[0].links[1].send[TT_LL];
  send_some(r, 20);
  for (uint32_t n = 0; n < 20; n += get_all(r)) {
    tt_proxy_progress(r->ranks[1].proxy, true);
  }
  assert_false(tt_fifo_drained(out));
  atomic_store(&r->ranks[1].port.page->state, TT_RANK_GONE);
  tt_proxy_mover.state_changed(r->ranks[1].proxy);
  UNTIL(shown(r, 0, 1) == TT_RANK_GONE);
  assert_true(tt_fifo_drained(out));
  assert_int_equal(status(r, 0), ncclSuccess);
  rig_close(r);
  fake_stop();
}

// Data that the executor does not take, or that nobody receives, do not hold up a word for ever.
static void word_without_data(void **state)
{
  (void)state;
  fake_start(3);
  rig *r = open_connected();
  tt_proxy_op so = rig_op(1, true, TT_LL, 5);
  post(r, 0, so);
  for (int i = 0; i < 5; i++) {
    rig_put(0, &r->ranks[0].links[1].send[TT_LL], TT_LL, so.sig, so.count);
  }
  tt_proxy_progress(r->ranks[0].proxy, true);
  stop(r, 0);
  tt_sleep_ns(50 * TT_NS_PER_MS);
  UNTIL(shown(r, 1, 0) == TT_RANK_FAILED);
  rig_close(r);
  fake_stop();
}

// ---- failed data connections

static void data_error(void **state)
{
  (void)state;
  fake_start(4);
  rig *r = open_connected();
  atomic_store(&fake.fail_in, 3);
  send_some(r, 10);
  UNTIL(status(r, 0) != ncclSuccess || status(r, 1) != ncclSuccess);
  int bad = status(r, 0) != ncclSuccess ? 0 : 1;
  assert_int_equal(status(r, bad), ncclRemoteError);
  assert_non_null(strstr(r->ranks[bad].port.error, "fake network"));
  UNTIL(atomic_load(&r->ranks[bad].port.page->state) == TT_RANK_FAILED);
  UNTIL(shown(r, 1 - bad, bad) == TT_RANK_FAILED);
  UNTIL(tt_proxy_idle(r->ranks[bad].proxy));
  rig_close(r);
  fake_stop();
}

// The peer's word comes in time: it explains the failure, and this rank's port is left to the executor.
static void data_error_explained(void **state)
{
  (void)state;
  fake_start(5);
  rig *r = open_connected();
  limits(r, 1)->grace_ns = 60 * TT_NS_PER_S;
  post(r, 1, rig_op(0, false, TT_LL, 3));
  atomic_store(&fake.fail_in, 1);
  tt_proxy_progress(r->ranks[1].proxy, true);
  UNTIL(stage(r, 1, 0, false) == TT_CONN_BROKEN);
  stop(r, 0);
  UNTIL(shown(r, 1, 0) == TT_RANK_FAILED); // at once: nothing more can come
  assert_int_equal(status(r, 1), ncclSuccess);
  rig_close(r);
  fake_stop();
}

// Damage is not the peer's death: it is said at once.
static void damage(void **state)
{
  (void)state;
  fake_start(6);
  rig *r = open_connected();
  limits(r, 1)->grace_ns = 60 * TT_NS_PER_S;
  fake.stretch_by = 9;
  atomic_store(&fake.stretch_in, 1);
  send_some(r, 1);
  UNTIL(status(r, 1) != ncclSuccess);
  assert_int_equal(status(r, 1), ncclInvalidUsage);
  rig_close(r);
  fake_stop();
}

// ---- connecting

// Only one side has taken on the link: the other end stands all the same, and is used later.
static void one_sided(void **state)
{
  (void)state;
  fake_start(7);
  rig *r = open_ring(2);
  rig_link(r, 0, 1, true);
  UNTIL(connected(r, 0, 1));
  tt_proxy_op so = rig_op(1, true, TT_LL, 3);
  post(r, 0, so);
  for (int i = 0; i < 3; i++) {
    rig_put(0, &r->ranks[0].links[1].send[TT_LL], TT_LL, so.sig, so.count);
  }
  assert_true(tt_proxy_progress(r->ranks[0].proxy, true));
  assert_true(tt_proxy_idle(r->ranks[0].proxy));
  rig_link(r, 1, 0, true);
  assert_int_equal(shown(r, 1, 0), TT_RANK_RUNNING); // known before the link was
  post(r, 1, rig_op(0, false, TT_LL, 3));
  assert_true(tt_proxy_progress(r->ranks[1].proxy, true));
  assert_int_equal(get_all(r), 3);
  UNTIL(connected(r, 1, 0));
  rig_close(r);
  fake_stop();
}

// A thread that wants to know waits for it.
static void awaited(void **state)
{
  (void)state;
  for (int k = 0; k < 5; k++) {
    fake_start(21);
    fake.dead_devs = k == 0 ? 0 : 1;
    rig *r = open_ring(2);
    tt_proxy *p = r->ranks[0].proxy;
    assert_int_equal(tt_proxy_await_links(p, 0), ncclSuccess); // there are none
    limits(r, 0)->connect_ns = k == 1 ? 300 * TT_NS_PER_MS : 60 * TT_NS_PER_S;
    rig_link(r, 0, 1, true);
    if (k == 2) {
      r->ranks[0].port.abort_flag = 1;
    } else if (k == 3) {
      UNTIL(shown(r, 0, 1) == TT_RANK_RUNNING);
      tt_proxy_destroy(r->ranks[1].proxy);
      r->ranks[1].proxy = NULL;
    }
    ncclResult_t res = tt_proxy_await_links(p, k == 4 ? 300 * TT_NS_PER_MS : RIG_WAIT_NS);
    assert_int_equal(res, k == 0 ? ncclSuccess : k == 2 ? ncclInternalError : ncclRemoteError);
    assert_true(k > 0 || stage(r, 0, 1, true) == TT_CONN_READY);
    assert_true(k == 0 || strstr(tt_last_error(), "rank 1") != NULL);
    rig_close(r);
    fake_stop();
  }
}

static void devices(void **state)
{
  (void)state;
  for (int k = 0; k < 4; k++) {
    fake_start(8);
    fake.ndevs = 3;
    *(k % 2 ? &fake.bad_devs : &fake.dead_devs) = k < 2 ? 1 : 3;
    rig *r = open_ring(2);
    limits(r, 0)->attempt_ns = 3 * TT_NS_PER_S; // a busy machine needs some of it for a good device, too
    rig_link(r, 0, 1, true);
    UNTIL(connected(r, 0, 1));
    assert_int_equal(tt_proxy_peer_find(r->ranks[0].proxy, 1)->ties->setup.attempt, k < 2 ? 1 : 2);
    assert_int_equal(atomic_load(&fake.cancels), k < 2 ? 1 : 2); // the network, too, forgets what has failed
    rig_close(r);
    fake_stop();
  }
}

// No device leads anywhere, or the last one never answers.
static void no_device(void **state)
{
  (void)state;
  for (int k = 0; k < 3; k++) {
    fake_start(9);
    fake.ndevs = k == 2 ? 0 : 2;
    *(k ? &fake.bad_devs : &fake.dead_devs) = 3;
    rig *r = open_ring(2);
    limits(r, 0)->attempt_ns = 20 * TT_NS_PER_MS;
    limits(r, 0)->connect_ns = k ? 60 * TT_NS_PER_S : TT_NS_PER_S;
    rig_link(r, 0, 1, true);
    post(r, 0, rig_op(1, true, TT_LL, 1));
    UNTIL(status(r, 0) != ncclSuccess);
    assert_int_equal(status(r, 0), ncclRemoteError);
    assert_non_null(strstr(r->ranks[0].port.error, "rank 0 cannot connect to rank 1"));
    assert_non_null(strstr(r->ranks[0].port.error, k == 0   ? "no connection within"
                                                   : k == 1 ? "refuses"
                                                            : "no network device"));
    UNTIL(tt_proxy_idle(r->ranks[0].proxy));
    rig_close(r);
    fake_stop();
  }
}

// Destroying at any moment of connecting.
static void destroy_early(void **state)
{
  (void)state;
  for (int k = 0; k < 30; k++) {
    fake_start((uint64_t)k);
    fake.connect_calls = k % 4;
    rig *r = open_ring(3);
    for (int i = 0; i < 3; i++) {
      rig_link(r, i, (i + 1) % 3, true);
      post(r, i, rig_op((i + 1) % 3, true, TT_SIMPLE, 9));
      tt_proxy_kick(r->ranks[i].proxy, false);
    }
    tt_sleep_ns((uint64_t)k * 100000);
    rig_close(r);
    fake_stop();
  }
}

// An allocation fails somewhere while two ranks connect: they succeed nevertheless, or it is said; nothing hangs or
// leaks.
static void little_memory(void **state)
{
  (void)state;
  int bad = 0;
  for (long k = 1; k < 40; k++) {
    fake_start(20);
    rig *r = open_ring(2);
    limits(r, 0)->connect_ns = limits(r, 1)->connect_ns = TT_NS_PER_S;
    rig_link(r, 0, 1, true);
    tt_alloc_fail_at(k);
    UNTIL(connected(r, 0, 1) || status(r, 0) != ncclSuccess || status(r, 1) != ncclSuccess ||
          shown(r, 0, 1) == TT_RANK_LOST);
    tt_alloc_fail_at(0);
    bad += stage(r, 0, 1, true) != TT_CONN_READY;
    rig_close(r);
    fake_stop();
  }
  print_message("%d of 39 did not connect\n", bad);
}

// ---- peers that are not there

// What rank 0 says of a rank 1 that listens at `where`.
static void check_unreachable(const tt_proxy_where *where, uint64_t connect_ns, const char *word)
{
  fake_start(10);
  rig *r = tt_calloc_line(sizeof *r);
  r->n = 2;
  r->net = &fake_net;
  rig_port(r, 0);
  tt_proxy_env e = rig_env(r, 0);
  assert_int_equal(tt_proxy_create(&e, &r->ranks[0].proxy, &r->ranks[0].where), ncclSuccess);
  tt_proxy_where all[2] = {r->ranks[0].where, *where};
  assert_int_equal(tt_proxy_meet(r->ranks[0].proxy, all), ncclSuccess);
  limits(r, 0)->connect_ns = connect_ns;
  limits(r, 0)->refused_ns = 250 * TT_NS_PER_MS;
  rig_link(r, 0, 1, true);
  UNTIL(status(r, 0) != ncclSuccess);
  assert_int_equal(status(r, 0), ncclRemoteError);
  assert_non_null(strstr(r->ranks[0].port.error, "rank 1"));
  if (strstr(r->ranks[0].port.error, word) == NULL) {
    fail_msg("%s", r->ranks[0].port.error);
  }
  tt_proxy_destroy(r->ranks[0].proxy);
  tt_free(r);
  fake_stop();
}

static void not_there(void **state)
{
  (void)state;
  tt_addr lo = {.family = AF_INET, .ip = {127, 0, 0, 1}}, at;
  tt_proxy_where where = {.addrs = {.n = 1}};
  int fd = -1;
  assert_int_equal(tt_tcp_listen(&lo, &fd, &at), 0);
  where.addrs.a[0] = at;
  // It listens, but says nothing.
  check_unreachable(&where, 500 * TT_NS_PER_MS, "no answer. Its process may be stopped");
  tt_sock_close(&fd);
  check_unreachable(&where, 60 * TT_NS_PER_S, "process has ended"); // refused
}

// The listener there belongs to somebody else.
static void other_secret(void **state)
{
  (void)state;
  fake_start(11);
  rig *r = rig_open(2, &fake_net), *other = tt_calloc_line(sizeof *other);
  *other = (rig){.n = 2, .net = &fake_net, .key = {.b = {9}}};
  rig_port(other, 1);
  tt_proxy_env e = rig_env(other, 1);
  assert_int_equal(tt_proxy_create(&e, &other->ranks[1].proxy, &r->ranks[1].where), ncclSuccess);
  rig_meet(r);
  rig_link(r, 0, 1, true);
  UNTIL(status(r, 0) != ncclSuccess);
  assert_int_equal(status(r, 0), ncclRemoteError);
  assert_non_null(strstr(r->ranks[0].port.error, "of another communicator"));
  tt_proxy_destroy(other->ranks[1].proxy);
  tt_free(other);
  rig_close(r);
  fake_stop();
}

static void bad_where(void **state)
{
  (void)state;
  fake_start(11);
  rig *r = rig_open(2, &fake_net);
  tt_proxy_where all[2];
  memset(all, 0, sizeof all);
  assert_int_equal(tt_proxy_meet(r->ranks[0].proxy, all), ncclInternalError);
  all[1].addrs.n = 99;
  assert_int_equal(tt_proxy_meet(r->ranks[0].proxy, all), ncclInternalError);
  rig_close(r);
  fake_stop();
}

// ---- visitors

static void expect_closed(int fd)
{
  char c[512];
  tt_until until = {.deadline_ns = tt_now_ns() + RIG_WAIT_NS};
  int e;
  while ((e = tt_sock_recv_all(fd, c, 1, &until)) == 0) {
  }
  assert_true(e != -ETIMEDOUT);
  tt_sock_close(&fd);
}

static void visitors(void **state)
{
  (void)state;
  fake_start(12);
  rig *r = open_ring(2);
  limits(r, 0)->grace_ns = 60 * TT_NS_PER_S; // the visitor's end shall not count
  expect_closed(visit(r, 3, 4711, 1));
  expect_closed(visit(r, 2, 4712, 1));
  expect_closed(visit(r, 2, 4711, 2));
  expect_closed(visit(r, 2, 4711, 0));
  static const struct {
    unsigned type;
    int from;
    size_t size;
    bool init;
  } bad[] = {
      {TT_MSG_STATE, 1, sizeof(tt_msg_state), false}, // before INIT
      {TT_MSG_INIT, 1, sizeof(tt_msg_init), false},   // another communicator
      {TT_MSG_INIT, 1, sizeof(tt_msg_init), true},    // twice
      {11, 1, 8, true},
      {0, 1, 8, true},
      {TT_MSG_STATE, 1, 8, true},
      {TT_MSG_PROBE, 2, 0, true},
      {TT_MSG_ANSWER, 1, sizeof(tt_msg_answer), true}, // nobody has asked
      {65535, 65535, 159, true},
  };
  static const char zeros[TT_MSG_BODY] = {0};
  for (size_t i = 0; i < TT_COUNT(bad); i++) {
    int fd = visit(r, 2, 4711, 1);
    if (bad[i].init) {
      say_init(fd);
    }
    say(fd, bad[i].type, 0, bad[i].from, zeros, bad[i].size);
    expect_closed(fd);
  }
  for (int i = 0; i < 200; i++) { // noise
    char noise[300];
    int fd = visit(r, 2, 4711, 1);
    tt_until until = {.deadline_ns = tt_now_ns() + RIG_WAIT_NS};
    tt_random(noise, sizeof noise);
    tt_sock_send_all(fd, noise, 1 + (size_t)(unsigned char)noise[0], &until);
    tt_sock_close(&fd);
  }
  assert_int_equal(status(r, 0), ncclSuccess);
  rig_close(r);
  fake_stop();
}

// A peer that has only just come learns the last state, too.
static void last_word_for_a_newcomer(void **state)
{
  (void)state;
  fake_start(13);
  rig *r = open_ring(2);
  int fd = visit(r, 2, 4711, 1);
  atomic_store(&r->ranks[0].port.page->state, TT_RANK_ABORTED);
  tt_proxy_destroy(r->ranks[0].proxy);
  r->ranks[0].proxy = NULL;
  struct {
    tt_msg_head head;
    tt_msg_state state;
    tt_msg_head last;
  } m;
  tt_until until = {.deadline_ns = tt_now_ns() + RIG_WAIT_NS};
  assert_int_equal(tt_sock_recv_all(fd, &m, sizeof m, &until), 0);
  assert_int_equal(m.head.type, TT_MSG_STATE);
  assert_int_equal(m.state.state, TT_RANK_ABORTED);
  assert_int_equal(m.last.type, TT_MSG_CLOSE);
  tt_sock_close(&fd);
  rig_close(r);
  fake_stop();
}

// Somebody who asks and asks, and never reads the answers, is ended; messages in pieces are understood.
static void bad_manners(void **state)
{
  (void)state;
  fake_start(13);
  rig *r = open_ring(2);
  limits(r, 0)->grace_ns = 60 * TT_NS_PER_S;
  int fd = visit(r, 2, 4711, 1);
  tt_msg_init init = {.hash = 4711, .nranks = 2, .version = TT_MSG_VERSION};
  tt_msg_head h = {.type = TT_MSG_INIT, .size = sizeof init, .from = 1};
  char all[sizeof h + sizeof init];
  tt_until until = {.deadline_ns = tt_now_ns() + RIG_WAIT_NS};
  memcpy(all, &h, sizeof h);
  memcpy(all + sizeof h, &init, sizeof init);
  for (size_t i = 0; i < sizeof all; i++) {
    tt_sock_send_all(fd, all + i, 1, &until);
    tt_sleep_ns(100000);
  }
  tt_msg_setup setup = {.device = 0};
  tt_until brief = {.deadline_ns = tt_now_ns() + RIG_WAIT_NS};
  int e = 0;
  for (int i = 0; i < 1 << 20 && e == 0; i++) {
    tt_msg_head s = {.type = TT_MSG_SETUP, .size = sizeof setup, .id = (uint32_t)i, .from = 1};
    e = tt_sock_send_all(fd, &s, sizeof s, &brief);
    e = e == 0 ? tt_sock_send_all(fd, &setup, sizeof setup, &brief) : e;
  }
  assert_true(e != 0 && e != -ETIMEDOUT);
  tt_sock_close(&fd);
  assert_int_equal(status(r, 0), ncclSuccess);
  rig_close(r);
  fake_stop();
}

// ---- processes

// Rank 1 in a process of its own. With the network in memory data connections never stand, since each process has one
// of its own.
typedef struct board {
  tt_proxy_where where[2];
  _Atomic int there[2];
  _Atomic int helper; // pid of rank 1's own child
} board;

static rig *open_half(board *b, int rank, const tt_net_ops *net)
{
  fake_start(14);
  fake.dead_devs = 1;
  rig *r = tt_calloc_line(sizeof *r);
  r->n = 2;
  r->net = net;
  rig_port(r, rank);
  tt_proxy_env e = rig_env(r, rank);
  FAKE_DEMAND(tt_proxy_create(&e, &r->ranks[rank].proxy, &b->where[rank]) == ncclSuccess);
  atomic_store(&b->there[rank], 1);
  UNTIL(atomic_load(&b->there[1 - rank]));
  FAKE_DEMAND(tt_proxy_meet(r->ranks[rank].proxy, b->where) == ncclSuccess);
  rig_link(r, rank, 1 - rank, true);
  UNTIL(shown(r, rank, 1 - rank) == TT_RANK_RUNNING);
  return r;
}

static void rank_one(board *b, bool with_helper)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  rig *r = open_half(b, 1, &fake_net);
  if (with_helper) {
    pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, 0);
      // The child has no proxies, may make its own, and its end is nobody's concern.
      rig_port(r, 0);
      tt_proxy_env e = rig_env(r, 0);
      tt_proxy_where w;
      FAKE_DEMAND(tt_proxy_create(&e, &r->ranks[0].proxy, &w) == ncclSuccess);
      tt_proxy_destroy(r->ranks[0].proxy);
      atomic_store(&b->helper, getpid());
      sleep(60);
      _exit(0);
    }
  }
  sleep(60);
  _exit(1);
}

static void *make_board(void)
{
  board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(b != MAP_FAILED);
  fflush(NULL);
  return b;
}

static void killed(void **state)
{
  (void)state;
#if defined(TT_TSAN)
  skip(); // it does not follow threads into a child
#endif
  for (int k = 0; k < 2; k++) {
    board *b = make_board();
    pid_t pid = fork();
    if (pid == 0) {
      rank_one(b, k == 1);
    }
    assert_true(pid > 0);
    rig *r = open_half(b, 0, &fake_net);
    if (k == 1) {
      UNTIL(atomic_load(&b->helper) != 0);
      tt_sleep_ns(20 * TT_NS_PER_MS);
      assert_int_equal(shown(r, 0, 1), TT_RANK_RUNNING);
    }
    uint64_t began = tt_now_ns();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    UNTIL(shown(r, 0, 1) == TT_RANK_LOST);
    assert_true(tt_now_ns() - began >= limits(r, 0)->grace_ns); // a word might have been on its way
    assert_int_equal(status(r, 0), ncclSuccess); // that is for the executor to say, if it waits for this peer
    if (k == 1) {
      kill(atomic_load(&b->helper), SIGKILL);
    }
    tt_proxy_destroy(r->ranks[0].proxy);
    tt_free(r);
    fake_stop();
    munmap(b, sizeof *b);
  }
}

// Rank 1 dies with a connection of real sockets, in the middle of an operation: what it had sent arrives, then rank 0
// is told, one way or the other.
static void killed_with_data(void **state)
{
  (void)state;
#if defined(TT_TSAN)
  skip();
#endif
  board *b = make_board();
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rig *r = open_half(b, 1, &tt_net_socket);
    post(r, 1, rig_op(0, true, TT_SIMPLE, 100));
    for (int i = 0; i < 5; i++) {
      rig_put(1, &r->ranks[1].links[0].send[TT_SIMPLE], TT_SIMPLE, 0x100000000ull, 77);
    }
    tt_proxy_kick(r->ranks[1].proxy, false);
    sleep(60);
    _exit(1);
  }
  assert_true(pid > 0);
  rig *r = open_half(b, 0, &tt_net_socket);
  post(r, 0, rig_op(1, false, TT_SIMPLE, 100));
  tt_proxy_progress(r->ranks[0].proxy, true);
  tt_proxy_kick(r->ranks[0].proxy, false);
  int n = 0;
  UNTIL((n += rig_get(1, &r->ranks[0].links[1].recv[TT_SIMPLE], TT_SIMPLE, 0x100000000ull, 77)) == 5);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  UNTIL(shown(r, 0, 1) == TT_RANK_LOST || status(r, 0) == ncclRemoteError);
  UNTIL(tt_proxy_idle(r->ranks[0].proxy));
  tt_proxy_destroy(r->ranks[0].proxy);
  tt_free(r);
  fake_stop();
  munmap(b, sizeof *b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed), // first: its children start with one thread
      cmocka_unit_test(killed_with_data),
      cmocka_unit_test(states),
      cmocka_unit_test(gone),
      cmocka_unit_test(word_after_data),
      cmocka_unit_test(word_before_connection),
      cmocka_unit_test(word_before_sent),
      cmocka_unit_test(word_without_data),
      cmocka_unit_test(data_error),
      cmocka_unit_test(data_error_explained),
      cmocka_unit_test(damage),
      cmocka_unit_test(one_sided),
      cmocka_unit_test(awaited),
      cmocka_unit_test(devices),
      cmocka_unit_test(no_device),
      cmocka_unit_test(destroy_early),
      cmocka_unit_test(little_memory),
      cmocka_unit_test(not_there),
      cmocka_unit_test(other_secret),
      cmocka_unit_test(bad_where),
      cmocka_unit_test(visitors),
      cmocka_unit_test(last_word_for_a_newcomer),
      cmocka_unit_test(bad_manners),
  };
  return cmocka_run_group_tests_name("service", tests, NULL, NULL);
}
