// relay_test.c: ranks that send through a neighbour's proxy: which one, what happens to their messages, and which rank
// may leave when.
#include "proxy/proxy_rig.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/far.h"
#include "os/netif.h"
#include "proxy/puts.h"
#include "proxy/relay.h"

// Machines of `node_size` ranks, `ndevs` devices.
static rig *open_nodes(int n, int node_size, int ndevs)
{
  fake_start(1);
  fake.ndevs = ndevs;
  fake.events = true;
  rig *r = rig_open_nodes(n, node_size, &fake_net);
  rig_meet(r);
  return r;
}

static void close_nodes(rig *r)
{
  rig_close(r);
  fake_stop();
}

static tt_proxy *proxy(const rig *r, int rank)
{
  return r->ranks[rank].proxy;
}

static tt_relay *relay_of(const rig *r, int rank, int peer)
{
  return tt_proxy_peer_find(proxy(r, rank), peer)->send.relay;
}

// ---- which neighbour: in children, since parameters are read once

static void expect(const rig *r, int rank, const int *relays)
{
  for (int i = 0; i < r->n; i++) {
    if (tt_proxy_relay_of(proxy(r, rank), i) != relays[i]) {
      fprintf(stderr, "rank %d -> %d: through %d, not %d\n", rank, i, tt_proxy_relay_of(proxy(r, rank), i), relays[i]);
      _exit(1);
    }
  }
}

static void never(void)
{
  rig *r = open_nodes(8, 4, 2);
  for (int i = 0; i < 8; i++) {
    expect(r, i, (int[]){-1, -1, -1, -1, -1, -1, -1, -1});
  }
  close_nodes(r);
}

static void when_needed(void)
{
  rig *r = open_nodes(8, 4, 2); // devices 0 1 0 1, 0 1 0 1
  expect(r, 0, (int[]){-1, -1, -1, -1, -1, 1, -1, 1});
  expect(r, 1, (int[]){-1, -1, -1, -1, 0, -1, 0, -1});
  expect(r, 2, (int[]){-1, -1, -1, -1, -1, 3, -1, 3});
  expect(r, 7, (int[]){2 + 4, -1, 2 + 4, -1, -1, -1, -1, -1});
  close_nodes(r);
  r = open_nodes(8, 4, 1);
  expect(r, 0, (int[]){-1, -1, -1, -1, -1, -1, -1, -1});
  close_nodes(r);
  r = open_nodes(8, 4, 8); // nobody here has the devices 4 and up, but those are not used there either
  expect(r, 0, (int[]){-1, -1, -1, -1, -1, 1, 2, 3});
  close_nodes(r);
  r = open_nodes(5, 4, 2); // the second machine has one rank
  expect(r, 3, (int[]){-1, -1, -1, -1, 2});
  expect(r, 4, (int[]){-1, -1, -1, -1, -1});
  close_nodes(r);
}

static void always(void)
{
  rig *r = open_nodes(8, 4, 2);
  expect(r, 0, (int[]){-1, -1, -1, -1, -1, 1, -1, 1});
  expect(r, 2, (int[]){-1, -1, -1, -1, 0, 1, 0, 1});
  expect(r, 7, (int[]){4, 5, 4, 5, -1, -1, -1, -1});
  close_nodes(r);
}

static void in_child(void (*fn)(void), const char *name, const char *value)
{
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    setenv(name, value, 1);
    fn();
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

static void which(void **state)
{
  (void)state;
  in_child(never, "NCCL_PXN_DISABLE", "1");
  in_child(never, "NCCL_P2P_PXN_LEVEL", "0");
  in_child(when_needed, "NCCL_P2P_PXN_LEVEL", "-1"); // as memory is registered with this network
  in_child(when_needed, "NCCL_P2P_PXN_LEVEL", "1");
  in_child(always, "NCCL_P2P_PXN_LEVEL", "2");
}

// Ranks that have different numbers of devices keep to their first ones.
static void different_machines(void **state)
{
  (void)state;
  rig *r = open_nodes(4, 2, 2);
  tt_proxy_where all[4];
  for (int i = 0; i < 4; i++) {
    all[i] = r->ranks[i].where;
  }
  all[3].ndevices = 1;
  FAKE_DEMAND(tt_proxy_meet(proxy(r, 0), all) == ncclSuccess);
  assert_int_equal(tt_proxy_relay_of(proxy(r, 0), 3), -1);
  memset(all[3].mailbox, 'x', sizeof all[3].mailbox);
  assert_int_equal(tt_proxy_meet(proxy(r, 0), all), ncclInternalError);
  all[3] = r->ranks[3].where;
  all[3].place = -1;
  assert_int_equal(tt_proxy_meet(proxy(r, 0), all), ncclInternalError);
  close_nodes(r);
}

// ---- messages: rank 0 sends to rank 3 through rank 1

enum { SIG = 1 };

static void post(rig *r, int rank, tt_proxy_op op)
{
  FAKE_DEMAND(tt_proxy_post(proxy(r, rank), &op) == ncclSuccess);
}

static rig *open_pair(void)
{
  rig *r = open_nodes(4, 2, 2);
  rig_link(r, 0, 3, true);
  rig_link(r, 3, 0, true);
  return r;
}

static bool is_taken_on(const rig *r, int rank, int peer)
{
  tt_relay *relay = relay_of(r, rank, peer);
  return relay != NULL && atomic_load(&relay->bell) >= 0;
}

// `ops` operations of `n` messages each, in turn in both FIFOs; everybody looks after himself.
static void send_and_check(rig *r, int ops, uint32_t n)
{
  tt_fifo *out = r->ranks[0].links[3].send, *in = r->ranks[3].links[0].recv;
  for (int i = 0; i < ops; i++) {
    post(r, 0, rig_op(3, true, i % 2 == 0 ? TT_LL : TT_SIMPLE, n));
    post(r, 3, rig_op(0, false, i % 2 == 0 ? TT_LL : TT_SIMPLE, n));
  }
  uint32_t put = 0, got = 0, all = (uint32_t)ops * n;
  for (uint64_t end = tt_now_ns() + RIG_WAIT_NS; got < all;) {
    FAKE_DEMAND(tt_now_ns() < end);
    tt_proto to = put / n % 2 == 0 ? TT_LL : TT_SIMPLE, from = got / n % 2 == 0 ? TT_LL : TT_SIMPLE;
    put += put < all && rig_put(0, &out[to], to, 0x100000000ull, 77);
    got += rig_get(0, &in[from], from, 0x100000000ull, 77);
    tt_proxy_progress(proxy(r, 0), true);
    tt_proxy_progress(proxy(r, 3), true);
  }
  UNTIL((tt_proxy_progress(proxy(r, 0), true), tt_proxy_idle(proxy(r, 0))));
}

static void arrives(void **state)
{
  (void)state;
  rig *r = open_pair();
  send_and_check(r, 3, 5);
  send_and_check(r, 3 * TT_RELAY_RING, 3); // more than the ring holds
  send_and_check(r, 1, 2000);
  UNTIL(is_taken_on(r, 0, 3));
  assert_int_equal(tt_proxy_peer_find(proxy(r, 1), 3)->send.posted, 0); // not the neighbour's own
  assert_null(relay_of(r, 3, 0) == NULL ? NULL : relay_of(r, 3, 0)->conn->client);
  close_nodes(r);
}

// The relay shows the operation, and whose it is; the sender does not.
static void states(void **state)
{
  (void)state;
  rig *r = open_pair();
  tt_proxy_op_state s;
  UNTIL(is_taken_on(r, 0, 3));
  post(r, 0, rig_op(3, true, TT_LL, 9));
  tt_proxy_progress(proxy(r, 0), true);
  UNTIL(tt_proxy_states(proxy(r, 1), &s, 1) == 1 && s.connected);
  assert_int_equal(tt_proxy_states(proxy(r, 0), &s, 0), 0);
  assert_int_equal(s.op.peer, 3);
  assert_int_equal(s.op.behalf, 1);
  assert_true(s.op.send);
  assert_int_equal(s.op.nsteps, 9);
  assert_int_equal(s.op.count, 77);
  assert_int_equal(s.transmitted, 0);
  assert_false(tt_proxy_idle(proxy(r, 0)));
  assert_true(tt_proxy_idle(proxy(r, 1)));
  for (int i = 0; i < 4; i++) {
    FAKE_DEMAND(rig_put(0, &r->ranks[0].links[3].send[TT_LL], TT_LL, 0x100000000ull, 77));
  }
  tt_proxy_progress(proxy(r, 0), true); // rings
  UNTIL(tt_proxy_states(proxy(r, 1), &s, 1) == 1 && s.done == 4);
  close_nodes(r);
}

// A thread that publishes something takes back the other one's word that it rests, and rings. In one process both have
// the same progress thread: it is held, so that nobody else does anything.
static void doorbells(void **state)
{
  (void)state;
  rig *r = open_pair();
  send_and_check(r, 1, 5);
  UNTIL(is_taken_on(r, 0, 3));
  tt_relay_shared *shared = relay_of(r, 0, 3)->shared;
  tt_fifo *out = r->ranks[0].links[3].send;
  UNTIL(atomic_load(&shared->relay_rests) == 1);
  post(r, 0, rig_op(3, true, TT_LL, 2));
  tt_proxy_kick(proxy(r, 0), false);
  UNTIL(atomic_load(&shared->taken) == atomic_load(&shared->posted) && atomic_load(&shared->posted) == 2);
  UNTIL(atomic_load(&shared->relay_rests) == 1 && atomic_load(&shared->sender_rests) == 1);
  atomic_store(&tt_proxy_thread_tests.held, true);
  FAKE_DEMAND(rig_put(0, &out[TT_LL], TT_LL, 0x100000000ull, 77));
  tt_proxy_progress(proxy(r, 0), true);
  assert_int_equal(atomic_load(&shared->relay_rests), 0);
  assert_int_equal(atomic_load(&shared->sender_rests), 1);
  UNTIL((tt_proxy_progress(proxy(r, 1), true), atomic_load(&shared->done) == 6)); // five were sent before
  assert_int_equal(atomic_load(&shared->sender_rests), 0);
  atomic_store(&tt_proxy_thread_tests.held, false);
  tt_proxy_kick(proxy(r, 0), false);
  UNTIL(atomic_load(&shared->sender_rests) == 1);
  close_nodes(r);
}

// ---- who leaves when

static void relay_leaves(void **state)
{
  (void)state;
  rig *r = open_pair();
  send_and_check(r, 1, 5);
  UNTIL(is_taken_on(r, 0, 3));
  rig_leave(r, 1);
  assert_int_equal(rig_proxies(), 4);
  send_and_check(r, 4, 50);
  rig_leave(r, 0);
  UNTIL(rig_proxies() == 2); // the relay has followed
  close_nodes(r);
}

// It serves captured operations no more: neither looks at what its rank had of them, which is gone, nor begins new
// ones.
static void relay_leaves_captured(void **state)
{
  static const tt_fifo_shape shape = {1, 64, 1};
  enum { BYTES = 4096 };
  struct tt_far_fifo *far;
  tt_proxy_puts *g;
  (void)state;
  rig *r = open_pair();
  send_and_check(r, 1, 5);
  UNTIL(is_taken_on(r, 0, 3));
  tt_proxy *p = proxy(r, 1);
  char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const tt_far_end end = {.peer = 2,
                          .kind = TT_SIMPLE,
                          .sends = true,
                          .fifo = {.head = (_Atomic uint32_t *)(void *)memory,
                                   .slots = memory + TT_CACHE_LINE,
                                   .data = memory + 1024,
                                   .stride = sizeof(tt_slot),
                                   .capacity = shape.bytes},
                          .shape = shape};
  FAKE_DEMAND(tt_proxy_mover.attach(p, &end, &far) == ncclSuccess);
  rig_leave(r, 1);
  tt_proxy_run_hold(p);
  munmap(memory, BYTES);
  assert_false(tt_puts_round(p));
  tt_proxy_run_release(p);
  assert_int_equal(tt_puts_open(p, 3, TT_MSG_GRAPHS, &g), ncclSuccess);
  assert_false(atomic_load(&g->peer.recv.attached));
  assert_int_equal(atomic_load(&p->standing), 1); // the client
  send_and_check(r, 4, 50);
  rig_leave(r, 0);
  UNTIL(rig_proxies() == 2);
  close_nodes(r);
}

// Each sends through the other: both can leave, in any order.
static void mutual(void **state)
{
  (void)state;
  for (int first = 0; first < 2; first++) {
    rig *r = open_pair();
    rig_link(r, 1, 2, true);
    rig_link(r, 2, 1, true);
    send_and_check(r, 1, 5);
    UNTIL(is_taken_on(r, 0, 3) && is_taken_on(r, 1, 2));
    rig_leave(r, first);
    rig_leave(r, 1 - first);
    UNTIL(rig_proxies() == 2);
    close_nodes(r);
  }
}

// A relay that has gone before it was asked is done without.
static void relay_had_left(void **state)
{
  (void)state;
  rig *r = open_nodes(4, 2, 2);
  rig_leave(r, 1);
  rig_link(r, 0, 3, true);
  rig_link(r, 3, 0, true);
  send_and_check(r, 3, 20);
  assert_null(relay_of(r, 0, 3));
  assert_int_equal(tt_port_status(&r->ranks[0].port), ncclSuccess);
  close_nodes(r);
}

static void relay_fails(void **state)
{
  (void)state;
  rig *r = open_pair();
  send_and_check(r, 1, 5);
  UNTIL(is_taken_on(r, 0, 3));
  tt_port_stop(&r->ranks[1].port, tt_fail(ncclInternalError, "rank 1 stops for the test"));
  tt_proxy_mover.state_changed(proxy(r, 1));
  post(r, 0, rig_op(3, true, TT_LL, 2));
  tt_proxy_progress(proxy(r, 0), true);
  tt_proxy_kick(proxy(r, 0), false);
  UNTIL(tt_port_status(&r->ranks[0].port) != ncclSuccess);
  assert_int_equal(tt_port_status(&r->ranks[0].port), ncclRemoteError);
  assert_non_null(strstr(r->ranks[0].port.error, "rank 1"));
  assert_non_null(strstr(r->ranks[0].port.error, "rank 3"));
  assert_int_equal(tt_port_status(&r->ranks[2].port), ncclSuccess);
  close_nodes(r);
}

// The network fails on the relay: the sender is told, the relay goes on.
static void network_fails(void **state)
{
  (void)state;
  rig *r = open_pair();
  send_and_check(r, 1, 5);
  UNTIL(is_taken_on(r, 0, 3));
  post(r, 0, rig_op(3, true, TT_LL, 2));
  tt_proxy_progress(proxy(r, 0), true);
  atomic_store(&fake.fail_in, 1);
  FAKE_DEMAND(rig_put(0, &r->ranks[0].links[3].send[TT_LL], TT_LL, 0x100000000ull, 77));
  tt_proxy_progress(proxy(r, 0), true);
  tt_proxy_kick(proxy(r, 0), false);
  UNTIL(tt_port_status(&r->ranks[0].port) != ncclSuccess);
  assert_non_null(strstr(r->ranks[0].port.error, "rank 1"));
  assert_int_equal(tt_port_status(&r->ranks[1].port), ncclSuccess);
  close_nodes(r);
}

// The sender's own stop: the relay drops what is left.
static void sender_fails(void **state)
{
  (void)state;
  rig *r = open_pair();
  UNTIL(is_taken_on(r, 0, 3) && atomic_load(&r->ranks[3].links[0].page->state) == TT_RANK_RUNNING);
  post(r, 0, rig_op(3, true, TT_LL, 100));
  tt_proxy_progress(proxy(r, 0), true);
  tt_port_stop(&r->ranks[0].port, tt_fail(ncclInternalError, "rank 0 stops for the test"));
  tt_proxy_mover.state_changed(proxy(r, 0));
  UNTIL(tt_proxy_idle(proxy(r, 0)));
  rig_leave(r, 0);
  tt_proxy_op_state s;
  UNTIL(tt_proxy_states(proxy(r, 1), &s, 1) == 0);
  UNTIL(atomic_load(&r->ranks[3].links[0].page->state) == TT_RANK_FAILED);
  close_nodes(r);
}

static void no_memory(void **state)
{
  (void)state;
  rig *r = open_nodes(4, 2, 2);
  tt_link *l = &r->ranks[0].links[3];
  *l = (tt_link){.peer = 3};
  rig_fifos(&r->ranks[0].in[3], l->recv);
  for (int i = 1; i < 3; i++) {
    tt_alloc_fail_at(i);
    ncclResult_t res = rig_connect(proxy(r, 0), l, &r->ranks[0].shared[3]);
    tt_alloc_fail_at(0);
    if (res == ncclSuccess) {
      break;
    }
    assert_int_equal(res, ncclSystemError);
    tt_shm_unmap((char *)r->ranks[0].shared[3] - TT_PROXY_SHARE_HEAD, TT_PROXY_SHARE_HEAD + sizeof(rig_window));
    r->ranks[0].shared[3] = NULL;
  }
  close_nodes(r);
}

int main(void)
{
  setenv("NCCL_P2P_PXN_LEVEL", "1", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(which), // in children, so before this process reads its parameters
      cmocka_unit_test(different_machines),
      cmocka_unit_test(arrives),
      cmocka_unit_test(states),
      cmocka_unit_test(doorbells),
      cmocka_unit_test(relay_leaves),
      cmocka_unit_test(relay_leaves_captured),
      cmocka_unit_test(mutual),
      cmocka_unit_test(relay_had_left),
      cmocka_unit_test(relay_fails),
      cmocka_unit_test(network_fails),
      cmocka_unit_test(sender_fails),
      cmocka_unit_test(no_memory),
  };
  return cmocka_run_group_tests_name("relay", tests, NULL, NULL);
}
