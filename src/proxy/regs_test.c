// regs_test.c: large messages between the user's buffers over a network in memory that takes one piece at a time and
// wants to know the memory. It shows what goes straight, what by way of the slots, and when memory is registered and
// deregistered.
#define RIG_BIG 16384

#include "proxy/user_rig.h"

#include "device/device.h"

static rig *open_pair(void)
{
  rig *r = rig_open(2, &fake_net);
  rig_link(r, 0, 1, false);
  rig_link(r, 1, 0, false);
  rig_wire(r, 0, 1);
  return r;
}

static void watch(char *memory, size_t size)
{
  assert_int_equal(atomic_load(&fake.regs), 0);
  fake.watched = memory;
  fake.watched_size = size;
  atomic_store(&fake.sends_there, 0);
  atomic_store(&fake.recvs_there, 0);
}

static void add(const user *u, int rank, char *memory)
{
  assert_int_equal(tt_proxy_register(u->r->ranks[rank].proxy, memory, u->room), ncclSuccess);
}

static void take_away(const user *u, int rank, char *memory)
{
  tt_proxy_deregister(u->r->ranks[rank].proxy, memory, u->room);
}

// Registered buffers are sent from and received into; each is registered with the network once.
static void registered(void **state)
{
  (void)state;
  fake_start(1);
  fake.strict = true;
  user u;
  user_open(&u, open_pair(), 0, 1, 200000);
  u.shift = 40;
  watch(u.in, u.room);
  add(&u, 0, u.in);
  for (int i = 0; i < 5; i++) {
    user_begin(&u, 10 * RIG_BIG_BYTES + 9000, true);
    user_finish(&u, false);
    assert_int_equal(atomic_load(&fake.regs), 1);
  }
  assert_int_equal(atomic_load(&fake.sends_there), 55);
  assert_true((atomic_load(&fake.grouped) > 0) == fake.groups);
  // The first message of an operation tells that both are in the same call.
  assert_true(atomic_load(&fake.grouped) < 55);
  take_away(&u, 0, u.in);
  watch(u.out, u.room);
  add(&u, 1, u.out);
  add(&u, 1, u.out);
  for (int i = 0; i < 5; i++) {
    user_begin(&u, 10 * RIG_BIG_BYTES + 5000, true);
    user_finish(&u, false);
    assert_int_equal(atomic_load(&fake.regs), 1);
  }
  assert_int_equal(atomic_load(&fake.recvs_there), 50); // the last one was too short
  take_away(&u, 1, u.out);
  assert_int_equal(atomic_load(&fake.regs), 1); // it was said twice
  take_away(&u, 1, u.out);
  assert_int_equal(atomic_load(&fake.regs), 0);
  take_away(&u, 1, u.out); // nothing to do
  add(&u, 1, u.out);       // until the end
  user_begin(&u, 10 * RIG_BIG_BYTES, true);
  user_finish(&u, false);
  assert_int_equal(atomic_load(&fake.regs), 1);
  rig_close(u.r);
  assert_int_equal(atomic_load(&fake.regs), 0);
  user_close(&u);
  fake_stop();
}

// Other buffers are the network's business in no way: not those of which only a part is registered, either.
static void not_registered(void **state)
{
  (void)state;
  fake_start(2);
  user u;
  user_open(&u, open_pair(), 0, 1, 200000);
  u.shift = 1;
  for (int rank = 0; rank < 2; rank++) {
    char *memory = rank == 0 ? u.in : u.out;
    watch(memory, u.room);
    user_begin(&u, 9 * RIG_BIG_BYTES, true);
    user_finish(&u, false);
    assert_int_equal(tt_proxy_register(u.r->ranks[rank].proxy, memory, RIG_BIG_BYTES), ncclSuccess);
    user_begin(&u, 9 * RIG_BIG_BYTES, true); // the first message ends a byte behind what is registered
    user_finish(&u, false);
    tt_proxy_deregister(u.r->ranks[rank].proxy, memory, RIG_BIG_BYTES);
    user_begin(&u, 9 * RIG_BIG_BYTES, true);
    add(&u, rank, memory);
    atomic_store(&u.r->ranks[rank].proxy->memory.registers, false); // NCCL_LOCAL_REGISTER=0
    user_finish(&u, false);
    assert_int_equal(atomic_load(&fake.sends_there) + atomic_load(&fake.recvs_there) + atomic_load(&fake.regs), 0);
    atomic_store(&u.r->ranks[rank].proxy->memory.registers, true);
    // The receiver's step does not let itself be placed, and the sender's copies.
    user_begin(&u, 9 * RIG_BIG_BYTES, false);
    user_finish(&u, true);
    take_away(&u, rank, memory);
    assert_int_equal(atomic_load(&fake.sends_there) + atomic_load(&fake.recvs_there) + atomic_load(&fake.regs), 0);
  }
  rig_close(u.r);
  user_close(&u);
  fake_stop();
}

// Allocations of the library's own are known without being registered, until they are freed.
static void allocated(void **state)
{
  (void)state;
  fake_start(3);
  fake.strict = true;
  user u;
  user_open(&u, open_pair(), 0, 1, 100000);
  free(u.in);
  free(u.out);
  for (int round = 0; round < 3; round++) {
    assert_int_equal(tt_device_host.alloc(u.room, (void **)&u.in), ncclSuccess);
    assert_int_equal(tt_device_host.alloc(u.room, (void **)&u.out), ncclSuccess);
    watch(round < 2 ? u.in : u.out, u.room);
    user_begin(&u, 5 * RIG_BIG_BYTES, true);
    user_finish(&u, false);
    user_begin(&u, 5 * RIG_BIG_BYTES, true);
    user_finish(&u, false);
    assert_int_equal(atomic_load(&fake.regs), 1);
    assert_int_equal(atomic_load(round < 2 ? &fake.sends_there : &fake.recvs_there), 10);
    assert_int_equal(tt_device_host.free(u.in), ncclSuccess);
    assert_int_equal(tt_device_host.free(u.out), ncclSuccess);
    assert_int_equal(atomic_load(&fake.regs), 0);
  }
  rig_close(u.r);
  fake_stop();
}

// What is deregistered while a message is under way in it goes when that is through.
static void in_use(void **state)
{
  (void)state;
  fake_start(4);
  fake.strict = true;
  user u;
  user_open(&u, open_pair(), 0, 1, 100000);
  watch(u.in, u.room);
  add(&u, 0, u.in);
  user_begin(&u, 4 * RIG_BIG_BYTES, true);
  fake.send_ns = TT_NS_PER_MS;
  user_put(&u, false);
  user_put(&u, false);
  user_look(&u, 0);
  assert_int_equal(atomic_load(&fake.sends_there), 2);
  take_away(&u, 0, u.in);
  user_finish(&u, false);
  assert_int_equal(atomic_load(&fake.sends_there), 2); // the others were staged
  assert_int_equal(atomic_load(&fake.regs), 0);

  watch(u.out, u.room);
  add(&u, 1, u.out);
  user_begin(&u, 4 * RIG_BIG_BYTES, true);
  user_look(&u, 1);
  assert_int_equal(atomic_load(&fake.recvs_there), 4);
  take_away(&u, 1, u.out);
  assert_int_equal(atomic_load(&fake.regs), 1);
  user_finish(&u, false);
  assert_int_equal(atomic_load(&fake.regs), 0);
  rig_close(u.r);
  user_close(&u);
  fake_stop();
}

// Memory that the network does not take is copied, and offered once.
static void refused(void **state)
{
  (void)state;
  fake_start(5);
  user u;
  user_open(&u, open_pair(), 0, 1, 100000);
  user_begin(&u, 5, true);
  user_finish(&u, true); // from here on the FIFOs are registered
  watch(u.in, u.room);
  add(&u, 0, u.in);
  atomic_store(&fake.refuse_regs, 1);
  for (int i = 0; i < 3; i++) {
    user_begin(&u, 5 * RIG_BIG_BYTES, true);
    user_finish(&u, false);
    assert_int_equal(atomic_load(&fake.refuse_regs), 0);
    assert_int_equal(atomic_load(&fake.sends_there), 0);
  }
  assert_true(u.r->ranks[0].proxy->memory.said);
  take_away(&u, 0, u.in);
  add(&u, 0, u.in); // another try
  user_begin(&u, 5 * RIG_BIG_BYTES, true);
  user_finish(&u, false);
  assert_int_equal(atomic_load(&fake.sends_there), 5);
  rig_close(u.r);
  user_close(&u);
  fake_stop();
}

// All kinds of messages in turn, while the network says "not now", delays, and wants flushes.
static void vices(void **state)
{
  (void)state;
  for (int k = 0; k < 4; k++) {
    fake_start(6 + (uint64_t)k);
    fake.strict = true;
    fake.flush = k & 1;
    fake.not_now = 400;
    if (k & 2) {
      fake.delay_ns = fake.send_ns = 50000;
    }
    user u;
    user_open(&u, open_pair(), 0, 1, 400000);
    for (uint32_t i = 0; i < 60; i++) {
      uint32_t h = (uint32_t)tt_hash(&i, 4, 99 + (uint64_t)k);
      if (h & 1) {
        add(&u, 0, u.in);
      }
      if (h & 2) {
        add(&u, 1, u.out);
      }
      u.shift = h >> 8 & 31;
      user_begin(&u, 1 + (h >> 4) % 300000, h & 4);
      user_finish(&u, h & 8);
      if (h & 1) {
        take_away(&u, 0, u.in);
      }
      if (h & 2) {
        take_away(&u, 1, u.out);
      }
    }
    assert_true(!fake.flush || atomic_load(&fake.flushes) > 100);
    fake.strict = false;
    rig_close(u.r);
    user_close(&u);
    fake_stop();
  }
}

// A plan that ends with an error gets its buffers back: nothing of the network's is under way in them once the proxy
// has settled.
static void settling(void **state)
{
  (void)state;
  for (int rank = 0; rank < 2; rank++) {
    for (int straight = 0; straight < 2; straight++) {
      fake_start(20);
      fake.send_ns = 3600 * TT_NS_PER_S;
      user u;
      user_open(&u, open_pair(), 0, 1, 100000);
      if (straight) {
        add(&u, 0, u.in);
        add(&u, 1, u.out);
      }
      user_begin(&u, 5 * RIG_BIG_BYTES, true);
      user_put(&u, false);
      user_look(&u, 0);
      user_put(&u, false);
      user_look(&u, 1);
      tt_fail(ncclRemoteError, "the test has ended this");
      tt_port_stop(&u.r->ranks[rank].port, ncclRemoteError);
      tt_proxy_mover.settle(u.r->ranks[rank].proxy);
      assert_true(tt_proxy_idle(u.r->ranks[rank].proxy));
      assert_int_equal(atomic_load(&fake.closed), straight);
      rig_close(u.r);
      assert_int_equal(atomic_load(&fake.closed), 2);
      user_close(&u);
      fake_stop();
    }
  }
}

// A call of the network fails, each in turn.
static void errors(void **state)
{
  (void)state;
  for (int k = 1; k < 50; k++) {
    fake_start((uint64_t)k);
    fake.flush = k % 2;
    user u;
    user_open(&u, open_pair(), 0, 1, 100000);
    add(&u, 0, u.in);
    add(&u, 1, u.out);
    user_begin(&u, 5 * RIG_BIG_BYTES + 77, true);
    atomic_store(&fake.fail_in, k);
    for (int i = 0; i < 30; i++) {
      user_put(&u, false);
      user_look(&u, 0);
      user_look(&u, 1);
      user_get(&u);
    }
    tt_proxy_conn *a = &tt_proxy_peer_find(u.r->ranks[0].proxy, 1)->send,
                  *b = &tt_proxy_peer_find(u.r->ranks[1].proxy, 0)->recv;
    if (atomic_load(&fake.fail_in) <= 0) {
      assert_true(a->stage == TT_CONN_BROKEN || b->stage == TT_CONN_BROKEN);
      // the services look after what is dropped, too
      UNTIL(a->stage != TT_CONN_BROKEN || (user_look(&u, 0), a->abroad == 0 && tt_proxy_idle(u.r->ranks[0].proxy)));
      UNTIL(b->stage != TT_CONN_BROKEN || (user_look(&u, 1), b->abroad == 0 && tt_proxy_idle(u.r->ranks[1].proxy)));
    } else {
      assert_int_equal(u.read, u.messages);
    }
    rig_close(u.r);
    user_close(&u);
    fake_stop();
  }
}

// A payload that is not what its header says.
static void damage(void **state)
{
  (void)state;
  for (int k = 1; k <= 2; k++) {
    fake_start(30);
    user u;
    user_open(&u, open_pair(), 0, 1, 100000);
    user_begin(&u, 3 * RIG_BIG_BYTES, true);
    fake.shrink_in = 2 + k; // of the second message
    fake.shrink_to = 50;
    for (int i = 0; i < 10; i++) {
      user_put(&u, false);
      user_look(&u, 0);
      user_look(&u, 1);
    }
    tt_proxy_conn *c = &tt_proxy_peer_find(u.r->ranks[1].proxy, 0)->recv;
    assert_int_equal(c->stage, TT_CONN_BROKEN);
    assert_true(user_get(&u)); // what came before still counts
    assert_false(user_get(&u));
    assert_non_null(strstr(c->text, k == 1 ? "does not fit" : "damaged"));
    rig_close(u.r);
    user_close(&u);
    fake_stop();
  }
}

// Which rank has decided makes no difference between calls: after the first message, receives of both parts are one.
static void decided_elsewhere(void **state)
{
  (void)state;
  fake_start(2);
  fake.strict = true;
  user u;
  user_open(&u, open_pair(), 0, 1, 200000);
  u.decided = true;
  add(&u, 0, u.in);
  add(&u, 1, u.out);
  user_begin(&u, 10 * RIG_BIG_BYTES, true);
  user_finish(&u, false);
  assert_true((atomic_load(&fake.grouped) > 0) == fake.groups);
  rig_close(u.r);
  user_close(&u);
  fake_stop();
}

// The peer is in another call, with messages in two where this rank expects one, or the other way round: the executor
// sees its fingerprint.
static void mismatch(void **state)
{
  (void)state;
  for (int k = 0; k < 2; k++) {
    for (int straight = 0; straight < 2; straight++) {
      fake_start(40);
      user u;
      user_open(&u, open_pair(), 0, 1, 100000);
      if (straight) {
        add(&u, 1, u.out);
      }
      user_begin(&u, k == 0 ? 3 * RIG_BIG_BYTES : 3000, true);
      tt_fifo *f = &u.r->ranks[0].links[1].send[TT_SIMPLE], *in = &u.r->ranks[1].links[0].recv[TT_SIMPLE];
      tt_proxy_op more = rig_op(1, true, TT_SIMPLE, 3);
      assert_int_equal(tt_proxy_post(u.r->ranks[0].proxy, &more), ncclSuccess);
      for (int i = 0; i < 3; i++) {
        tt_fifo_slot(f)->elsewhere = 0;
        tt_fifo_publish(f, k == 0 ? 3000 : RIG_BIG_BYTES, 0x1234500000000ull, 9);
      }
      for (int i = 0; i < 5; i++) {
        user_look(&u, 0);
        user_look(&u, 1);
      }
      assert_true(tt_fifo_arrived(in));
      assert_true(tt_fifo_slot(in)->sig == 0x1234500000000ull && tt_fifo_slot(in)->count == 9);
      assert_true(tt_fifo_slot(in)->bytes <= in->capacity && tt_fifo_slot(in)->elsewhere == 0);
      tt_fifo_release(in);
      assert_false(tt_fifo_arrived(in));
      tt_fail(ncclInvalidUsage, "the test has seen this");
      tt_port_stop(&u.r->ranks[1].port, ncclInvalidUsage);
      tt_proxy_mover.settle(u.r->ranks[1].proxy);
      assert_int_equal(atomic_load(&fake.closed), straight && k == 0);
      rig_close(u.r);
      user_close(&u);
      fake_stop();
    }
  }
}

// Receives whose call has not begun yet leave what comes in the network, if it is to come straight.
static void not_begun(void **state)
{
  (void)state;
  fake_start(50);
  user u;
  user_open(&u, open_pair(), 0, 1, 100000);
  user_begin(&u, 3 * RIG_BIG_BYTES, true);
  atomic_store(&u.call.open, false);
  user_look(&u, 1);
  assert_int_equal(rig_state(u.r, 1).posted, 3); // into the slots
  user_finish(&u, false);
  add(&u, 1, u.out);
  user_begin(&u, 3 * RIG_BIG_BYTES, true);
  atomic_store(&u.call.open, false);
  user_put(&u, false);
  user_look(&u, 0);
  user_look(&u, 1);
  assert_int_equal(rig_state(u.r, 1).posted, 0);
  atomic_store(&u.call.open, true);
  user_finish(&u, false);
  rig_close(u.r);
  user_close(&u);
  fake_stop();
}

// A receive that does not know how long its messages are learns from their headers.
static void unsure(void **state)
{
  (void)state;
  for (int k = 0; k < 2; k++) {
    fake_start(55);
    fake.not_now = 300;
    fake.flush = k;
    user u;
    user_open(&u, open_pair(), 0, 1, 200000);
    add(&u, 0, u.in);
    u.blind = true;
    for (size_t bytes = 1; bytes < 190000; bytes = bytes * 3 + 1000) {
      user_begin(&u, bytes, true);
      user_finish(&u, false);
    }
    rig_close(u.r);
    user_close(&u);
    fake_stop();
  }
}

typedef struct racer {
  user *u;
  _Atomic bool stop;
} racer;

static void *register_all_the_time(void *arg)
{
  racer *x = arg;
  char *other = malloc(x->u->room), *shared;
  while (!atomic_load(&x->stop)) {
    add(x->u, 0, x->u->in);
    add(x->u, 1, other);
    add(x->u, 1, x->u->out);
    FAKE_DEMAND(tt_device_host.alloc(5000, (void **)&shared) == ncclSuccess);
    sched_yield();
    FAKE_DEMAND(tt_device_host.free(shared) == ncclSuccess);
    take_away(x->u, 0, x->u->in);
    take_away(x->u, 1, x->u->out);
    take_away(x->u, 1, other);
  }
  free(other);
  return NULL;
}

// Registering and deregistering by one thread while another drives.
static void race(void **state)
{
  (void)state;
  fake_start(60);
  fake.strict = true;
  fake.delay_ns = fake.send_ns = 20000;
  user u;
  user_open(&u, open_pair(), 0, 1, 200000);
  racer x = {.u = &u};
  tt_thread t;
  assert_int_equal(tt_thread_start(&t, "racer", register_all_the_time, &x), ncclSuccess);
  for (int i = 0; i < 40; i++) {
    user_begin(&u, 180000, true);
    user_finish(&u, false);
  }
  atomic_store(&x.stop, true);
  tt_thread_join(&t);
  rig_close(u.r);
  user_close(&u);
  fake_stop();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(registered), cmocka_unit_test(not_registered),
      cmocka_unit_test(allocated),  cmocka_unit_test(in_use),
      cmocka_unit_test(refused),    cmocka_unit_test(vices),
      cmocka_unit_test(settling),   cmocka_unit_test(errors),
      cmocka_unit_test(damage),     cmocka_unit_test(mismatch),
      cmocka_unit_test(not_begun),  cmocka_unit_test(race),
      cmocka_unit_test(unsure),     cmocka_unit_test(decided_elsewhere),
  };
  int bad = cmocka_run_group_tests_name("regs", tests, rig_hold, NULL);
  fake_groups_wanted = true;
  return bad + cmocka_run_group_tests_name("regs, headers and payloads in groups", tests, rig_hold, NULL);
}
