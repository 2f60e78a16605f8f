// pool_test.c: memory that staged payloads of several connections share: how much is used, that nobody waits for
// another's, that all comes back.
#define RIG_BIG 16384

#include "proxy/user_rig.h"

enum { PEERS = 3, ROOM = 20 * RIG_BIG };

// Rank 0 and its peers 1 to PEERS, connected both ways; users[i]: 0 -> i + 1, users[PEERS + i]: i + 1 -> 0.
typedef struct crowd {
  rig *r;
  user users[2 * PEERS];
} crowd;

static void crowd_open(crowd *c, uint32_t max_extras)
{
  c->r = rig_open(PEERS + 1, &fake_net);
  for (int i = 0; i < PEERS; i++) {
    rig_link(c->r, 0, i + 1, false);
    rig_link(c->r, i + 1, 0, false);
    rig_wire(c->r, 0, i + 1);
    rig_wire(c->r, i + 1, 0);
  }
  for (int i = 0; i <= PEERS; i++) {
    c->r->ranks[i].proxy->memory.max_extras = max_extras;
  }
  for (int i = 0; i < PEERS; i++) {
    user_open(&c->users[i], c->r, 0, i + 1, ROOM);
    user_open(&c->users[PEERS + i], c->r, i + 1, 0, ROOM);
    c->users[i].shared = c->users[PEERS + i].shared = true;
  }
}

static void crowd_close(crowd *c)
{
  rig_close(c->r);
  for (int i = 0; i < 2 * PEERS; i++) {
    user_close(&c->users[i]);
  }
}

static uint32_t given_out(const rig *r, int rank, bool send)
{
  uint32_t n = 0;
  for (int i = 0; i < r->n; i++) {
    const tt_proxy_peer *peer = tt_proxy_peer_find(r->ranks[rank].proxy, i);
    n += peer == NULL ? 0 : (send ? &peer->send : &peer->recv)->staging.n;
  }
  return n;
}

static uint32_t free_ones(const rig *r, int rank, bool send)
{
  uint32_t n = 0;
  for (const tt_proxy_buffer *b = r->ranks[rank].proxy->memory.pools[send].free; b != NULL; b = b->next) {
    n++;
  }
  return n;
}

// Payload bytes of the FIFOs' own slots, between rank and peer, that were ever written.
static uint32_t touched(const rig *r, int rank, int peer)
{
  const rig_window *windows[2] = {&r->ranks[rank].out[peer], &r->ranks[rank].in[peer]};
  uint32_t n = 0;
  for (int w = 0; w < 2; w++) {
    for (int s = 0; s < RIG_BIG_SLOTS; s++) {
      for (size_t k = sizeof(tt_slot); k < sizeof windows[w]->big[s]; k++) {
        n += windows[w]->big[s][k] != 0;
      }
    }
  }
  return n;
}

// One turn of everybody but those whose bits are set in `mute`: their executors do not take what has come.
static void turn(crowd *c, unsigned mute)
{
  for (int i = 0; i < 2 * PEERS; i++) {
    user_put(&c->users[i], false);
  }
  for (int i = 0; i <= PEERS; i++) {
    tt_proxy_progress(c->r->ranks[i].proxy, true);
  }
  for (int i = 0; i < 2 * PEERS; i++) {
    if (!(mute >> i & 1)) {
      user_get(&c->users[i]);
    }
  }
}

static bool is_read(const user *u)
{
  return u->read == u->messages;
}

static void check_read(const user *u)
{
  assert_true(is_read(u));
  assert_memory_equal(u->in + u->shift, u->out + u->shift, u->bytes);
}

// Pools of all sizes: no more staging buffers than one for each connection and the extra ones; the FIFOs' own slots are
// not touched.
static void bounded(void **state)
{
  (void)state;
  static const uint32_t extras[] = {0, 1, 2, 5, 100};
  for (size_t k = 0; k < TT_COUNT(extras); k++) {
    fake_start(k);
    fake.not_now = 200;
    fake.flush = k & 1;
    fake.send_ns = fake.delay_ns = 20000;
    crowd c;
    crowd_open(&c, extras[k]);
    uint32_t most[2] = {0, 0};
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < 2 * PEERS; i++) {
        user_begin(&c.users[i], (12 + (size_t)i) * RIG_BIG_BYTES + (i % 2 ? 0 : 9000), true);
      }
      for (int left = 1; left > 0;) {
        turn(&c, 0);
        for (int s = 0; s < 2; s++) {
          uint32_t n = given_out(c.r, 0, s);
          most[s] = TT_MAX(most[s], n);
          assert_true(n <= PEERS + extras[k] && c.r->ranks[0].proxy->memory.pools[s].extras <= extras[k]);
        }
        left = 0;
        for (int i = 0; i < 2 * PEERS; i++) {
          left += !is_read(&c.users[i]);
        }
      }
      for (int i = 0; i < 2 * PEERS; i++) {
        check_read(&c.users[i]);
        while (!tt_proxy_idle(c.r->ranks[i % (PEERS + 1)].proxy)) {
          turn(&c, 0);
        }
      }
    }
    assert_true(most[0] > 1 && most[1] > 0);
    assert_int_equal(given_out(c.r, 0, true), 0);
    for (int i = 0; i < PEERS; i++) {
      assert_int_equal(touched(c.r, 0, i + 1), 0);
      assert_int_equal(touched(c.r, i + 1, 0), 0);
    }
    crowd_close(&c);
    fake_stop();
  }
}

// Messages that nobody takes, and sends that never end, keep what they have; the others go on with what is theirs.
static void no_waiting_for_others(void **state)
{
  (void)state;
  for (uint32_t extras = 0; extras < 4; extras++) {
    for (unsigned who = 0; who < PEERS; who++) {
      fake_start(7);
      crowd c;
      crowd_open(&c, extras);
      unsigned mute = 1u << (PEERS + who);
      user_begin(&c.users[PEERS + who], 12 * RIG_BIG_BYTES, true); // first: it takes what extra ones there are
      for (int i = 0; i < 20; i++) {
        turn(&c, mute);
      }
      assert_int_equal(given_out(c.r, 0, false), TT_MIN(1 + extras, 8u));
      for (int i = 0; i < PEERS; i++) {
        if (i != (int)who) {
          user_begin(&c.users[PEERS + i], 12 * RIG_BIG_BYTES, true);
        }
      }
      for (int i = 0; i < PEERS; i++) {
        while (i != (int)who && !is_read(&c.users[PEERS + i])) {
          turn(&c, mute);
        }
      }
      assert_int_equal(c.users[PEERS + who].read, 0);
      while (!is_read(&c.users[PEERS + who])) {
        turn(&c, 0);
      }
      for (int i = 0; i < PEERS; i++) {
        check_read(&c.users[PEERS + i]);
      }
      crowd_close(&c);
      fake_stop();
    }
  }
}

static void sends_that_hang(void **state)
{
  (void)state;
  for (uint32_t extras = 0; extras < 4; extras++) {
    fake_start(8);
    crowd c;
    crowd_open(&c, extras);
    fake.send_ns = 3600 * TT_NS_PER_S;
    fake.random = 1; // of these hours, none of the sends below gets few
    user_begin(&c.users[0], 12 * RIG_BIG_BYTES, true);
    for (int i = 0; i < 20; i++) {
      turn(&c, 0);
    }
    uint32_t held = given_out(c.r, 0, true);
    assert_true(held == 1 + extras && c.users[0].read == held);
    fake.send_ns = 0;
    for (int i = 1; i < PEERS; i++) {
      user_begin(&c.users[i], 12 * RIG_BIG_BYTES, true);
      while (!is_read(&c.users[i])) {
        turn(&c, 0);
      }
      check_read(&c.users[i]);
    }
    assert_int_equal(given_out(c.r, 0, true), held);
    assert_int_equal(c.users[0].read, held);
    crowd_close(&c); // with sends under way
    fake_stop();
  }
}

// What was used comes back although its connection has nothing more to do, and is used again.
static void used_again(void **state)
{
  (void)state;
  fake_start(9);
  crowd c;
  crowd_open(&c, 2);
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < PEERS; i++) {
      user_begin(&c.users[PEERS + i], 3 * RIG_BIG_BYTES, true);
      while (!is_read(&c.users[PEERS + i])) {
        turn(&c, 0);
      }
      check_read(&c.users[PEERS + i]);
    }
  }
  const tt_proxy_pool *pool = &c.r->ranks[0].proxy->memory.pools[0];
  assert_true(pool->slabs != NULL && pool->slabs->next == NULL);
  assert_int_equal(free_ones(c.r, 0, false) + given_out(c.r, 0, false), TT_COUNT(pool->slabs->buffers));
  crowd_close(&c);
  fake_stop();
}

// Without sharing, and when the network does not take the shared memory, the slots are used.
static void own_slots(void **state)
{
  (void)state;
  for (int k = 0; k < 3; k++) {
    fake_start(10);
    crowd c;
    crowd_open(&c, 4);
    c.users[0].shared = k != 0;
    for (int i = 0; i < 2; i++) {
      c.r->ranks[i].proxy->memory.shares = k != 1;
    }
    user_begin(&c.users[0], 5, true);
    while (!is_read(&c.users[0])) {
      turn(&c, 0);
    }
    atomic_store(&fake.refuse_regs, k == 2 ? 2 : 0);
    for (int round = 0; round < 2; round++) {
      user_begin(&c.users[0], 12 * RIG_BIG_BYTES, true);
      while (!is_read(&c.users[0])) {
        turn(&c, 0);
        assert_int_equal(given_out(c.r, 0, true) + given_out(c.r, 1, false), 0);
      }
      check_read(&c.users[0]);
    }
    assert_int_equal(atomic_load(&fake.refuse_regs), 0);
    assert_true(touched(c.r, 0, 1) > 0 && touched(c.r, 1, 0) > 0);
    crowd_close(&c);
    fake_stop();
  }
}

// No memory for the pool: the slots do.
static void no_memory(void **state)
{
  (void)state;
  for (long k = 1; k < 8; k++) {
    fake_start(11);
    crowd c;
    crowd_open(&c, 4);
    user_begin(&c.users[0], 12 * RIG_BIG_BYTES, true);
    tt_alloc_fail_at(k);
    while (!is_read(&c.users[0])) {
      turn(&c, 0);
    }
    tt_alloc_fail_at(0);
    check_read(&c.users[0]);
    crowd_close(&c);
    fake_stop();
  }
}

// Connections that end with payloads under way.
static void errors(void **state)
{
  (void)state;
  for (int k = 1; k < 60; k++) {
    fake_start((uint64_t)k);
    fake.flush = k % 2;
    crowd c;
    crowd_open(&c, 1);
    for (int i = 0; i < 2 * PEERS; i++) {
      user_begin(&c.users[i], 6 * RIG_BIG_BYTES, true);
    }
    atomic_store(&fake.fail_in, 3 * k);
    for (int i = 0; i < 40; i++) {
      turn(&c, 0);
    }
    crowd_close(&c);
    fake_stop();
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bounded),         cmocka_unit_test(no_waiting_for_others),
      cmocka_unit_test(sends_that_hang), cmocka_unit_test(used_again),
      cmocka_unit_test(own_slots),       cmocka_unit_test(no_memory),
      cmocka_unit_test(errors),
  };
  int bad = cmocka_run_group_tests_name("pool", tests, rig_hold, NULL);
  fake_groups_wanted = true;
  return bad + cmocka_run_group_tests_name("pool, headers and payloads in groups", tests, rig_hold, NULL);
}
