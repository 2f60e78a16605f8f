// bell_test.c: nobody sleeps through a ring. tests/bell_model_test.c walks the interleavings; here the real futexes
// run.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/bell.h"
#include "os/clock.h"
#include "os/shm.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

#define LONG_NS (20 * TT_NS_PER_S) // longer than any test: reaching it means that a ring was lost

typedef bool (*sleeper)(tt_bell *const *bells, const uint32_t *tickets, int n, uint64_t timeout_ns);

// One direction of a ping-pong.
typedef struct side {
  tt_bell bell;
  _Atomic uint32_t value;
} side;

typedef struct game {
  side to[2];
  int rounds;
  sleeper sleep;
  _Atomic uint32_t sleeps; // how often somebody really went to sleep
} game;

static void publish_value(side *s, uint32_t value)
{
  atomic_store_explicit(&s->value, value, memory_order_release);
  tt_bell_fence();
  tt_bell_ring(&s->bell);
}

// Waits for `value` without ever spinning. False when a ring was lost.
static bool await_value(game *g, side *s, uint32_t value)
{
  uint64_t end = tt_now_ns() + LONG_NS;
  while (atomic_load_explicit(&s->value, memory_order_acquire) != value) {
    if (tt_now_ns() >= end) {
      return false;
    }
    tt_bell *b = &s->bell;
    uint32_t ticket = tt_bell_announce(b);
    bool rung = true;
    if (atomic_load_explicit(&s->value, memory_order_acquire) != value) {
      atomic_fetch_add_explicit(&g->sleeps, 1, memory_order_relaxed);
      rung = g->sleep(&b, &ticket, 1, LONG_NS);
    }
    tt_bell_leave(b);
    if (!rung) {
      return false;
    }
  }
  return true;
}

// Plays one side; returns the number of the round that was lost, or 0.
static intptr_t play_bell_side(game *g, int me)
{
  for (int i = 1; i <= g->rounds; i++) {
    if (me == 0) {
      publish_value(&g->to[1], (uint32_t)i);
    }
    if (!await_value(g, &g->to[me], (uint32_t)i)) {
      return i;
    }
    if (me == 1) {
      publish_value(&g->to[0], (uint32_t)i);
    }
  }
  return 0;
}

static void *play_second(void *arg)
{
  return (void *)play_bell_side(arg, 1);
}

static void play_threads(int rounds, sleeper sleep)
{
  game g = {.rounds = rounds, .sleep = sleep};
  pthread_t t;
  void *lost = NULL;
  assert_int_equal(pthread_create(&t, NULL, play_second, &g), 0);
  assert_int_equal(play_bell_side(&g, 0), 0);
  pthread_join(t, &lost);
  assert_null(lost);
  assert_true(g.sleeps > (uint32_t)rounds / 100); // it was a test of sleeping
  for (int i = 0; i < 2; i++) {
    assert_int_equal(g.to[i].bell.sleepers, 0);
  }
}

static void test_two_threads(void **state)
{
  (void)state;
  play_threads(100000, tt_bell_sleep);
}

static void test_two_threads_nap(void **state)
{
  (void)state;
  play_threads(10000, tt_bell_nap);
}

static void test_two_processes(void **state)
{
  (void)state;
  int fd = -1;
  void *at = NULL, *there = NULL;
  assert_int_equal(tt_shm_create("bell_test", sizeof(game), &fd), ncclSuccess);
  assert_int_equal(tt_shm_map(fd, sizeof(game), &at), ncclSuccess);
  game *g = at;
  g->rounds = 20000;
  g->sleep = tt_bell_sleep;
  pid_t pid = fork();
  if (pid == 0) { // at another address, as in real life
    _exit(tt_shm_map(fd, sizeof(game), &there) == ncclSuccess && play_bell_side(there, 1) == 0 ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(play_bell_side(g, 0), 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_true(g->sleeps > 200);
  tt_shm_unmap(at, sizeof(game));
  tt_fd_close(fd);
}

#define BELLS 3

typedef struct chimes {
  side s[BELLS];
  side answer;
  int rounds;
} chimes;

// Sleeps on all bells at once until their values add up to `sum`.
static bool await_sum(chimes *c, sleeper sleep, uint32_t sum)
{
  for (;;) {
    tt_bell *bells[BELLS];
    uint32_t tickets[BELLS], now = 0;
    for (int i = 0; i < BELLS; i++) {
      bells[i] = &c->s[i].bell;
      tickets[i] = tt_bell_announce(bells[i]);
    }
    for (int i = 0; i < BELLS; i++) {
      now += atomic_load_explicit(&c->s[i].value, memory_order_acquire);
    }
    bool rung = now == sum || sleep(bells, tickets, BELLS, LONG_NS);
    for (int i = 0; i < BELLS; i++) {
      tt_bell_leave(bells[i]);
    }
    if (now == sum || !rung) {
      return now == sum;
    }
  }
}

static void *ring_in_turn(void *arg)
{
  chimes *c = arg;
  game g = {.sleep = tt_bell_sleep};
  for (uint32_t i = 1; i <= (uint32_t)c->rounds; i++) {
    side *s = &c->s[i * 7 % BELLS];
    publish_value(s, atomic_load_explicit(&s->value, memory_order_relaxed) + 1);
    if (!await_value(&g, &c->answer, i)) {
      return arg;
    }
  }
  return NULL;
}

// The round that was lost, or 0.
static int play_chimes(int rounds, sleeper sleep)
{
  chimes c = {.rounds = rounds};
  pthread_t t;
  void *lost = NULL;
  int bad = 0;
  pthread_create(&t, NULL, ring_in_turn, &c);
  for (uint32_t i = 1; i <= (uint32_t)rounds && bad == 0; i++) {
    bad = await_sum(&c, sleep, i) ? 0 : (int)i;
    publish_value(&c.answer, i);
  }
  pthread_join(t, &lost);
  return lost != NULL ? -1 : bad;
}

static void test_three_bells(void **state)
{
  (void)state;
  assert_int_equal(play_chimes(10000, tt_bell_sleep), 0);
}

static void test_three_bells_nap(void **state)
{
  (void)state;
  assert_int_equal(play_chimes(500, tt_bell_nap), 0);
}

// From here on this process gets `error` for futex_waitv, as on an old kernel or in a sandbox.
static bool refuse_waitv(int error)
{
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {.len = TT_COUNT(code), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static bool times_out(sleeper sleep, int n, uint64_t timeout_ns)
{
  tt_bell b[8] = {0};
  tt_bell *bells[8];
  uint32_t tickets[8];
  for (int i = 0; i < n; i++) {
    bells[i] = &b[i];
    tickets[i] = tt_bell_announce(bells[i]);
  }
  uint64_t end = tt_now_ns() + timeout_ns;
  while (sleep(bells, tickets, n, timeout_ns)) { // spurious returns are allowed
    uint64_t now = tt_now_ns();
    if (now > end + 10 * TT_NS_PER_S) {
      return false;
    }
    timeout_ns = now < end ? end - now : 0;
  }
  return tt_now_ns() >= end;
}

static void check_refused(int error)
{
  int status = -1;
  pid_t pid = fork();
  if (pid == 0) {
    if (!refuse_waitv(error)) {
      _exit(77);
    }
    if (syscall(SYS_futex_waitv, NULL, 0u, 0u, NULL, 0) != -1 || errno != error) {
      _exit(78);
    }
    tt_bell b[2] = {0};
    tt_bell *bells[2] = {&b[0], &b[1]};
    uint32_t tickets[2] = {0, 0};
    uint64_t t0 = tt_now_ns();
    bool rung = tt_bell_sleep(bells, tickets, 2, LONG_NS); // nobody rings: the nap ends, but that is no timeout
    _exit(!rung || tt_now_ns() - t0 > LONG_NS / 2 ? 1 : !times_out(tt_bell_sleep, 3, 5 * TT_NS_PER_MS) ? 2 : 0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    skip();
  }
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_waitv_unknown(void **state)
{
  (void)state;
  check_refused(ENOSYS);
}

static void test_waitv_forbidden(void **state)
{
  (void)state;
  check_refused(EPERM);
}

static void test_timeout(void **state)
{
  (void)state;
  sleeper sleepers[] = {tt_bell_sleep, tt_bell_nap};
  for (int i = 0; i < 2; i++) {
    for (int n = 1; n <= 3; n++) {
      assert_true(times_out(sleepers[i], n, 0));
      assert_true(times_out(sleepers[i], n, 300000));
      assert_true(times_out(sleepers[i], n, 20 * TT_NS_PER_MS));
    }
  }
}

// A ring between announcement and sleep: the ticket is old, nobody falls asleep. For each place that the rung bell can
// have.
static void test_old_ticket(void **state)
{
  (void)state;
  enum { MANY = TT_BELL_MAX + 6 }; // more than the kernel is asked to wait for
  static tt_bell b[MANY];
  tt_bell *bells[MANY];
  uint32_t tickets[MANY];
  for (int n = 1; n <= MANY; n = n < 5 ? n + 1 : n == 5 ? TT_BELL_MAX : n == TT_BELL_MAX ? MANY : MANY + 1) {
    for (int rung = 0; rung < n; rung++) {
      for (int i = 0; i < n; i++) {
        bells[i] = &b[i];
        tickets[i] = tt_bell_announce(bells[i]);
      }
      tt_bell_fence();
      tt_bell_ring(bells[rung]);
      assert_true(tt_bell_sleep(bells, tickets, n, LONG_NS));
      assert_true(tt_bell_nap(bells, tickets, n, LONG_NS));
      for (int i = 0; i < n; i++) {
        tt_bell_leave(bells[i]);
      }
    }
  }
}

// Without sleepers a ring touches nothing: it costs one load.
static void test_ring_alone(void **state)
{
  (void)state;
  tt_bell b = {0};
  tt_bell_ring(&b);
  assert_int_equal(b.seq, 0);
  tt_bell_announce(&b);
  tt_bell_ring(&b);
  assert_int_equal(b.seq, 1);
  tt_bell_leave(&b);
  tt_bell_ring(&b);
  assert_int_equal(b.seq, 1);
}

// One ring wakes everybody on the bell.
static _Atomic int awake;

static void *sleep_on_one_bell(void *arg)
{
  tt_bell *b = arg;
  uint32_t ticket = tt_bell_announce(b);
  bool rung = tt_bell_sleep(&b, &ticket, 1, LONG_NS);
  tt_bell_leave(b);
  awake += rung;
  return NULL;
}

static void test_wakes_all(void **state)
{
  (void)state;
  enum { N = 8 };
  tt_bell b = {0};
  pthread_t t[N];
  for (int i = 0; i < N; i++) {
    pthread_create(&t[i], NULL, sleep_on_one_bell, &b);
  }
  while (b.sleepers < N) {
    tt_sleep_ns(TT_NS_PER_MS);
  }
  tt_sleep_ns(20 * TT_NS_PER_MS);
  tt_bell_ring(&b);
  for (int i = 0; i < N; i++) {
    pthread_join(t[i], NULL);
  }
  assert_int_equal(awake, N);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ring_alone),      cmocka_unit_test(test_old_ticket),
      cmocka_unit_test(test_timeout),         cmocka_unit_test(test_wakes_all),
      cmocka_unit_test(test_two_threads),     cmocka_unit_test(test_two_threads_nap),
      cmocka_unit_test(test_two_processes),   cmocka_unit_test(test_three_bells),
      cmocka_unit_test(test_three_bells_nap), cmocka_unit_test(test_waitv_unknown),
      cmocka_unit_test(test_waitv_forbidden),
  };
  return cmocka_run_group_tests_name("bell", tests, NULL, NULL);
}
