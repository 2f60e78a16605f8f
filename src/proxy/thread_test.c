// thread_test.c: the progress thread: it takes over what is left, stands back while others drive, and survives whatever
// comes and goes. That no wake-up is lost is shown by tests/proxy_model_test.c and tried by ring_test.c.
#include "proxy/proxy_rig.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proxy/service_priv.h"

static rig *open_wired(void)
{
  rig *r = rig_open(2, &fake_net);
  rig_link(r, 0, 1, false);
  rig_link(r, 1, 0, false);
  rig_wire(r, 0, 1);
  return r;
}

static void post_both(rig *r, uint32_t n)
{
  tt_proxy_op so = rig_op(1, true, TT_SIMPLE, n), ro = rig_op(0, false, TT_SIMPLE, n);
  FAKE_DEMAND(tt_proxy_post(r->ranks[0].proxy, &so) == ncclSuccess);
  FAKE_DEMAND(tt_proxy_post(r->ranks[1].proxy, &ro) == ncclSuccess);
}

static bool put(rig *r)
{
  return rig_put(0, &r->ranks[0].links[1].send[TT_SIMPLE], TT_SIMPLE, 0x100000000ull, 77);
}

static bool get(rig *r)
{
  return rig_get(0, &r->ranks[1].links[0].recv[TT_SIMPLE], TT_SIMPLE, 0x100000000ull, 77);
}

static bool idle(rig *r)
{
  return tt_proxy_idle(r->ranks[0].proxy) && tt_proxy_idle(r->ranks[1].proxy);
}

static void kick_both(rig *r)
{
  tt_proxy_kick(r->ranks[0].proxy, false);
  tt_proxy_kick(r->ranks[1].proxy, false);
}

// Operations that are left, posted only or also driven, are finished by the thread, however it sleeps; long pauses in
// between, so that it does.
static void left(void **state)
{
  (void)state;
  for (int k = 0; k < 8; k++) {
    fake_start((uint64_t)k);
    fake.events = k & 1;
    fake.delay_ns = k & 2 ? 5 * TT_NS_PER_MS : 0;
    rig *r = open_wired();
    for (int round = 0; round < 3; round++) {
      post_both(r, 8);
      while (put(r)) {
      }
      if (k & 4) {
        tt_proxy_progress(r->ranks[1].proxy, true);
        tt_proxy_progress(r->ranks[0].proxy, true);
      }
      kick_both(r);
      UNTIL(idle(r));
      for (int i = 0; i < 8; i++) {
        assert_true(get(r));
      }
      tt_sleep_ns(round == 1 ? 80 * TT_NS_PER_MS : 0); // long enough to fall asleep
    }
    rig_close(r);
    fake_stop();
  }
}

// While a thread attends and drives, the progress thread keeps away; when it attends but does not drive, it comes back.
static void stands_back(void **state)
{
  (void)state;
  fake_start(9);
  fake.events = true;
  rig *r = open_wired();
  tt_proxy_attend(1);
  post_both(r, 2);
  for (int i = 0; i < 100000; i++) { // the receive waits all the time
    tt_proxy_progress(r->ranks[1].proxy, true);
    tt_proxy_progress(r->ranks[0].proxy, true);
    if (i % 1000 == 0) {
      tt_ring(((fake_ctx *)r->ranks[1].proxy->ctx)->events); // something that would wake it
    }
  }
  assert_true(atomic_load(&fake.tests_elsewhere) < atomic_load(&fake.tests_here) / 2);
  put(r);
  put(r);
  tt_proxy_kick(r->ranks[0].proxy, false);
  UNTIL(idle(r));
  assert_true(get(r) && get(r));
  post_both(r, 1); // nobody drives, nobody kicks, but somebody leaves
  put(r);
  tt_proxy_attend(-1);
  UNTIL(idle(r));
  assert_true(get(r));
  tt_proxy_kick(r->ranks[0].proxy, false); // nothing to do
  rig_close(r);
  fake_stop();
}

// The thread has fallen asleep, and the thread that leaves says so by attend(-1) alone.
static void asleep(void **state)
{
  (void)state;
  fake_start(14);
  fake.events = true;
  rig *r = open_wired();
  for (int i = 0; i < 3; i++) {
    tt_sleep_ns(150 * TT_NS_PER_MS); // many times what it takes
    tt_proxy_attend(1);
    post_both(r, 1);
    put(r);
    tt_proxy_attend(-1);
    UNTIL(idle(r));
    assert_true(get(r));
  }
  rig_close(r);
  fake_stop();
}

// Attending threads beside operations that nobody drives.
static void mixed(void **state)
{
  (void)state;
  fake_start(10);
  fake.events = true;
  fake.delay_ns = TT_NS_PER_MS;
  rig *r = open_wired();
  tt_proxy_attend(1);
  for (int i = 0; i < 50; i++) {
    post_both(r, 1);
    tt_proxy_kick(r->ranks[1].proxy, false); // the receive is left, the send is driven here
    put(r);
    for (uint64_t end = tt_now_ns() + RIG_WAIT_NS; !idle(r);) {
      FAKE_DEMAND(tt_now_ns() < end);
      tt_proxy_progress(r->ranks[0].proxy, true);
      sched_yield();
    }
    assert_true(get(r));
  }
  tt_proxy_attend(-1);
  rig_close(r);
  fake_stop();
}

// Whenever the thread has not listened to the networks for a while, it does again before it sleeps on them, here for as
// long as it takes: what comes wakes it. A network that can be told is told both times.
static void listens_again(void **state)
{
  (void)state;
  fake_start(15);
  fake.events = true;
  rig *r = open_wired();
  atomic_store(&tt_proxy_thread_tests.longest_ns, 3600 * TT_NS_PER_S);
  for (int i = 0; i < 5; i++) {
    UNTIL(atomic_load(&fake.watching) == 0); // many rests without operations
    post_both(r, 1);
    kick_both(r);
    UNTIL(atomic_load(&fake.watching) == 2);
    tt_sleep_ns(5 * TT_NS_PER_MS); // by now it sleeps on the descriptors, mostly
    put(r);
    tt_proxy_progress(r->ranks[0].proxy, true);
    UNTIL(idle(r));
    assert_true(get(r));
  }
  atomic_store(&tt_proxy_thread_tests.longest_ns, TT_NS_PER_S);
  rig_close(r);
  fake_stop();
}

// The thread cannot listen: it looks every now and then instead, three times for each sleep of 50 us at most, and no
// network is told that it does. If it slept on descriptors all the same, that would be for ever.
static void manage_deaf(rig *r)
{
  atomic_store(&tt_proxy_thread_tests.longest_ns, 3600 * TT_NS_PER_S);
  for (int i = 0; i < 3; i++) {
    UNTIL(atomic_load(&fake.watching) == 0);
    post_both(r, 1);
    kick_both(r);
    uint64_t begin = tt_now_ns();
    uint32_t rounds = atomic_load(&tt_proxy_thread_tests.rounds);
    tt_sleep_ns(200 * TT_NS_PER_MS);
    rounds = atomic_load(&tt_proxy_thread_tests.rounds) - rounds;
    assert_in_range(rounds, 0, 100 + 3 * (tt_now_ns() - begin) / 50000);
    put(r);
    tt_proxy_kick(r->ranks[0].proxy, false);
    UNTIL(idle(r));
    assert_true(get(r));
  }
  atomic_store(&tt_proxy_thread_tests.longest_ns, TT_NS_PER_S);
}

// A descriptor that cannot be put into the set when the thread wants to sleep.
static void deaf(void **state)
{
  (void)state;
  static const tt_net_ops plain = {.name = "Plain"}; // always on
  fake_start(16);
  fake.events = true;
  rig *r = open_wired();
  int fd = -1;
  assert_int_equal(tt_ring_open(&fd), 0);
  assert_true(tt_proxy_thread_watch(&plain, NULL, fd));
  UNTIL(atomic_load(&fake.watching) == 0);               // it does not listen now
  assert_false(tt_proxy_thread_watch(&plain, NULL, fd)); // once is enough; and the thread has left its set
  tt_fd_close(fd);
  manage_deaf(r);
  tt_proxy_thread_unwatch(fd);
  rig_close(r);
  fake_stop();
}

// A network that cannot do what it is told.
static void refused(void **state)
{
  (void)state;
  fake_start(17);
  fake.events = true;
  rig *r = open_wired();
  UNTIL(atomic_load(&fake.watching) == 0);
  atomic_store(&fake.unwatchable, true);
  manage_deaf(r);
  rig *other = open_wired(); // not watched from the beginning
  assert_int_equal(other->ranks[0].proxy->events_fd, -1);
  assert_int_equal(other->ranks[1].proxy->events_fd, -1);
  manage_deaf(other);
  rig_close(other);
  atomic_store(&fake.unwatchable, false);
  post_both(r, 1);
  kick_both(r);
  UNTIL(atomic_load(&fake.watching) == 2); // as if nothing had been
  put(r);
  tt_proxy_kick(r->ranks[0].proxy, false);
  UNTIL(idle(r));
  assert_true(get(r));
  rig_close(r);
  assert_int_equal(atomic_load(&fake.watching), 0);
  fake_stop();
}

// ---- coming and going

static _Atomic bool stop;

// Touches every place of the table, whatever lives there.
static void touch(tt_proxy *p, void *unused)
{
  (void)unused;
  tt_proxy_progress(p, true);
  tt_proxy_kick(p, false);
}

static void *meddle(void *unused)
{
  while (!atomic_load(&stop)) {
    tt_proxy_each(touch, NULL);
    tt_proxy_attend(1);
    sched_yield();
    tt_proxy_attend(-1);
  }
  return unused;
}

static void *watch(void *unused)
{
  rig *r = unused;
  tt_proxy_op_state s[16];
  while (!atomic_load(&stop)) {
    int n = tt_proxy_states(r->ranks[0].proxy, s, 16);
    for (int i = 0; i < TT_MIN(n, 16); i++) {
      FAKE_DEMAND(s[i].op.peer == 1 && s[i].op.count == 77 && s[i].op.nsteps > 0 && s[i].op.nsteps <= 8);
      FAKE_DEMAND(s[i].transmitted <= s[i].op.nsteps && s[i].done <= s[i].transmitted);
    }
    sched_yield();
  }
  return NULL;
}

static void comes_and_goes(void **state)
{
  (void)state;
  tt_thread t[2] = {{0}};
  fake_start(11);
  fake.events = true;
  fake.delay_ns = 200000;
  rig *r = open_wired();
  atomic_store(&stop, false);
  assert_int_equal(tt_thread_start(&t[0], "meddler", meddle, NULL), ncclSuccess);
  assert_int_equal(tt_thread_start(&t[1], "watcher", watch, r), ncclSuccess);
  for (int round = 0; round < 20; round++) {
    rig *other = open_wired(); // its places are used again each time
    for (int i = 0; i < 10; i++) {
      rig *which = i % 2 ? r : other;
      uint32_t n = 1 + (uint32_t)i % 8;
      post_both(which, n);
      for (uint32_t k = 0; k < n; k++) {
        assert_true(put(which));
      }
      kick_both(which);
      UNTIL(idle(which));
      for (uint32_t k = 0; k < n; k++) {
        assert_true(get(which));
      }
    }
    post_both(other, 5); // dropped
    put(other);
    rig_close(other);
  }
  atomic_store(&stop, true);
  tt_thread_join(&t[0]);
  tt_thread_join(&t[1]);
  rig_close(r);
  fake_stop();
}

// Without a proxy the thread ends, and another one starts with the next proxy; here most of them come when it is just
// about to end, and somebody looks at everything meanwhile. At last no thread is left.
static void ends_and_starts(void **state)
{
  (void)state;
  tt_thread t = {0};
  fake_start(18);
  fake.events = true;
  UNTIL(!tt_proxy_thread_runs()); // of the tests before
  atomic_store(&stop, false);
  assert_int_equal(tt_thread_start(&t, "meddler", meddle, NULL), ncclSuccess);
  for (uint64_t round = 0; round < 20; round++) {
    rig *r = open_wired();
    assert_true(tt_proxy_thread_runs());
    atomic_store(&tt_proxy_thread_tests.longest_ns, round % 5 * 200000);
    post_both(r, 1);
    kick_both(r);
    put(r);
    tt_proxy_kick(r->ranks[0].proxy, false);
    UNTIL(idle(r));
    assert_true(get(r));
    UNTIL(atomic_load(&fake.watching) == 0); // it is asleep, or about to be
    rig_close(r);
    tt_sleep_ns(round % 4 * 200000);
  }
  UNTIL(!tt_proxy_thread_runs());
  atomic_store(&tt_proxy_thread_tests.longest_ns, TT_NS_PER_S);
  atomic_store(&stop, true);
  tt_thread_join(&t);
  fake_stop();
}

// However long the thread has slept, it stays for a while after the last proxy.
static void stays_a_while(void **state)
{
  (void)state;
  const uint64_t patience = 100 * TT_NS_PER_MS;
  fake_start(19);
  atomic_store(&tt_proxy_thread_tests.longest_ns, patience);
  rig *r = rig_open(1, &fake_net);
  uint32_t rounds = atomic_load(&tt_proxy_thread_tests.rounds);
  for (int quiet = 0; quiet < 2;
       rounds = atomic_load(&tt_proxy_thread_tests.rounds)) { // it sleeps for longer than that
    tt_sleep_ns(2 * patience);
    quiet = atomic_load(&tt_proxy_thread_tests.rounds) == rounds ? quiet + 1 : 0;
  }
  uint64_t began = tt_now_ns();
  rig_close(r);
  UNTIL(!tt_proxy_thread_runs());
  assert_true(tt_now_ns() - began >= patience);
  atomic_store(&tt_proxy_thread_tests.longest_ns, TT_NS_PER_S);
  fake_stop();
}

// A forked child has proxies and a thread of its own, and the parent's go on.
static void forked(void **state)
{
  (void)state;
#if defined(TT_TSAN)
  skip(); // it does not follow threads into a child
#endif
  fake_start(12);
  fake.events = true;
  rig *r = open_wired();
  post_both(r, 2);
  put(r);
#if defined(TT_ASAN)
  tt_sleep_ns(200 * TT_NS_PER_MS); // a child would find its allocator locked for ever where a thread of ours is in it
#endif
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    FAKE_DEMAND(!tt_proxy_thread_runs());
    fake_start(13);
    fake.events = true;
    rig *c = open_wired();
    FAKE_DEMAND(tt_proxy_idle(c->ranks[0].proxy));
    post_both(c, 3);
    FAKE_DEMAND(put(c) && put(c) && put(c));
    kick_both(c);
    UNTIL(idle(c));
    FAKE_DEMAND(get(c) && get(c) && get(c));
    atomic_store(&tt_proxy_thread_tests.longest_ns, 0);
    rig_close(c);
    UNTIL(!tt_proxy_thread_runs());
    fake_stop();
    _exit(0);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  put(r);
  kick_both(r);
  UNTIL(idle(r));
  assert_true(get(r) && get(r));
  rig_close(r);
  fake_stop();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(left),          cmocka_unit_test(stands_back),    cmocka_unit_test(asleep),
      cmocka_unit_test(mixed),         cmocka_unit_test(listens_again),  cmocka_unit_test(deaf),
      cmocka_unit_test(refused),       cmocka_unit_test(comes_and_goes), cmocka_unit_test(ends_and_starts),
      cmocka_unit_test(stays_a_while), cmocka_unit_test(forked)};
  return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
