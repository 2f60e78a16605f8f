// shrink_test.c: rings of some ranks of a ring, as threads: with the others idle or gone, again and again, with lists
// that differ, and after a failure. Uses the machine's network interfaces, only to itself.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "bootstrap/players.h"
#include "tools/sockets.h"

// A rank of a ring, and a shrink of it.
typedef struct actor {
  tt_bootstrap *parent, *child;
  int members[MAX], count, late_ms;
  uint32_t abort_flag;
  ncclResult_t res;
  char text[600];
  pthread_t thread;
} actor;

static void *shrink_once(void *arg)
{
  actor *a = arg;
  a->child = NULL;
  tt_sleep_ns((uint64_t)a->late_ms * TT_NS_PER_MS);
  a->res = tt_bootstrap_shrink(a->parent, a->members, a->count, &a->abort_flag, &a->child);
  snprintf(a->text, sizeof(a->text), "%s", a->res == ncclSuccess ? "" : tt_last_error());
  if (a->res == ncclSuccess) {
    int me = 0;
    while (a->members[me] != a->parent->rank) {
      me++;
    }
    gather_once(a->child, me, a->count, 100);
  }
  return NULL;
}

// A ring of n ranks.
static actor *open_ring(int n)
{
  actor *a = calloc((size_t)n, sizeof(*a));
  player *p = cast(n, NULL);
  for (int i = 0; i < n; i++) {
    p[i].keep = true;
  }
  run_players(p, n);
  expect_success(p, n);
  for (int i = 0; i < n; i++) {
    a[i].parent = p[i].b;
    a[i].parent->abort_flag = NULL; // the player's
  }
  free(p);
  wrong = 0;
  return a;
}

static void close_ring(actor *a, int n)
{
  for (int i = 0; i < n; i++) {
    tt_bootstrap_destroy(a[i].parent);
  }
  free(a);
}

// Rank `rank` of n lists all but the ranks of `out`.
static void list_without(actor *a, int n, unsigned out)
{
  a->count = 0;
  for (int i = 0; i < n; i++) {
    if ((out >> i & 1) == 0) {
      a->members[a->count++] = i;
    }
  }
}

// The ranks that are not in `away` shrink, with the lists that they have.
static void run_actors(actor *a, int n, unsigned away)
{
  for (int i = 0; i < n; i++) {
    if ((away >> i & 1) == 0) {
      assert_int_equal(pthread_create(&a[i].thread, NULL, shrink_once, &a[i]), 0);
    }
  }
  for (int i = 0; i < n; i++) {
    if ((away >> i & 1) == 0) {
      pthread_join(a[i].thread, NULL);
    }
  }
}

static void shrink_all(actor *a, int n, unsigned out, unsigned away)
{
  for (int i = 0; i < n; i++) {
    list_without(&a[i], n, out);
  }
  run_actors(a, n, away);
}

static void expect_rings(actor *a, int n, unsigned out)
{
  for (int i = 0; i < n; i++) {
    if ((out >> i & 1) == 0) {
      if (a[i].res != ncclSuccess) {
        print_error("rank %d: %s\n", i, a[i].text);
      }
      assert_int_equal(a[i].res, ncclSuccess);
    }
  }
  assert_int_equal(wrong, 0);
}

static void drop_children(actor *a, int n, unsigned out)
{
  for (int i = 0; i < n; i++) {
    if ((out >> i & 1) == 0) {
      tt_bootstrap_destroy(a[i].child);
    }
  }
}

// The excluded ranks do nothing. Each child has its own secret, the same on all its ranks.
static void test_healthy(void **state)
{
  (void)state;
  enum { N = 5 };
  uint8_t before[16] = {0};
  close_ring(open_ring(N), N); // ThreadSanitizer's own thread begins with the first one
  int old[2 * MAX], nold = list_threads(old, 2 * MAX);
  actor *a = open_ring(N);
  await_no_roots();
  assert_int_equal(await_new_threads(old, nold, 0), 0); // that of the roots has closed what it had
  int fds = count_folder("/proc/self/fd");
  for (int round = 0; round < 30; round++) {
    unsigned out = round % 3 == 0 ? 0x8 : round % 3 == 1 ? 0x11 : 0x1b;
    shrink_all(a, N, out, out);
    expect_rings(a, N, out);
    const uint8_t *secret = tt_bootstrap_secret(a[2].child);
    assert_memory_not_equal(secret, before, 16);
    memcpy(before, secret, 16);
    for (int i = 0; i < N; i++) {
      assert_true((out >> i & 1) != 0 || memcmp(tt_bootstrap_secret(a[i].child), before, 16) == 0);
    }
    drop_children(a, N, out);
  }
  assert_int_equal(await_fds(fds), fds);
  for (int i = 0; i < N; i++) {
    assert_int_equal(a[i].parent->broken, ncclSuccess);
  }
  close_ring(a, N);
}

// A child's child, and so on down to one rank; after the rank before last has gone each time.
static void test_nested(void **state)
{
  (void)state;
  enum { N = 8 };
  actor *a = open_ring(N);
  for (int n = N; n > 1; n--) {
    tt_bootstrap_destroy(a[n - 2].parent);
    a[n - 2].parent = NULL;
    shrink_all(a, n, 1u << (n - 2), 1u << (n - 2));
    expect_rings(a, n, 1u << (n - 2));
    for (int i = 0; i < n; i++) {
      tt_bootstrap_destroy(a[i].parent);
      a[i].parent = i == n - 2 ? NULL : a[i].child;
    }
    a[n - 2] = a[n - 1];
    assert_int_equal(a[n - 2].parent->nranks, n - 1);
    assert_int_equal(a[n - 2].parent->rank, n - 2);
    assert_true(n == 2 || a[n - 2].parent->cards != NULL);
  }
  tt_bootstrap_destroy(a[0].parent);
  free(a);
}

// A dead rank that is not excluded: all survivors learn it, each at once or as soon as it comes, and can try again.
// `behind`: an earlier shrink left out the rank before the dead one.
static void try_dead_member(bool behind)
{
  enum { N = 6 };
  for (int dead = 1; dead < N - 1; dead++) {
    actor *a = open_ring(N);
    unsigned out = 1u | 1u << dead;
    if (behind) {
      shrink_all(a, N, 1u << (dead - 1), 1u << (dead - 1));
      expect_rings(a, N, 1u << (dead - 1));
      drop_children(a, N, 1u << (dead - 1));
    }
    tt_bootstrap_destroy(a[dead].parent);
    a[dead].parent = NULL;
    for (int i = 0; i < N; i++) {
      list_without(&a[i], N, 1);
      a[i].late_ms = i == dead - 1 ? 0 : 200;
    }
    uint64_t began = tt_now_ns();
    run_actors(a, N, out);
    assert_true(tt_now_ns() - began < (uint64_t)LONG_S * TT_NS_PER_S / 2);
    char name[16];
    snprintf(name, sizeof(name), "rank %d", dead);
    for (int i = 1; i < N; i++) {
      assert_true(i == dead || a[i].res == ncclRemoteError);
      if (i != dead && strstr(a[i].text, name) == NULL) {
        print_error("rank %d: %s\n", i, a[i].text);
        assert_true(false);
      }
    }
    shrink_all(a, N, out, out);
    expect_rings(a, N, out);
    drop_children(a, N, out);
    close_ring(a, N);
  }
}

static void test_dead_member(void **state)
{
  (void)state;
  try_dead_member(false);
  try_dead_member(true);
}

// One rank is already at the next shrink, which the others must not take for theirs; in the end all meet.
static void test_one_is_ahead(void **state)
{
  (void)state;
  enum { N = 5 };
  actor *a = open_ring(N);
  tt_bootstrap_destroy(a[4].parent);
  a[4].parent = NULL;
  list_without(&a[3], N, 1); // rank 4 is dead: fails, because it connects to that
  run_actors(a, N, 0x17);
  assert_int_equal(a[3].res, ncclRemoteError);
  for (int i = 1; i < 4; i++) {
    list_without(&a[i], N, i == 3 ? 0x11 : 1);
    a[i].late_ms = 0;
  }
  pthread_t ahead;
  assert_int_equal(pthread_create(&ahead, NULL, shrink_once, &a[3]), 0);
  run_actors(a, N, 0x19);
  assert_int_equal(a[1].res, ncclRemoteError);
  assert_int_equal(a[2].res, ncclRemoteError);
  for (int i = 1; i < 3; i++) { // that rank 3 is ahead, or why
    if (strstr(a[i].text, "rank 3 has given this shrink up") == NULL && strstr(a[i].text, "rank 4 has gone") == NULL) {
      print_error("rank %d: %s\n", i, a[i].text);
      assert_true(false);
    }
  }
  list_without(&a[1], N, 0x11);
  list_without(&a[2], N, 0x11);
  run_actors(a, N, 0x19);
  pthread_join(ahead, NULL);
  expect_rings(a, N, 0x11);
  drop_children(a, N, 0x11);
  close_ring(a, N);
}

// A rank that comes late to a shrink that the other has given up hears which rank had ended it.
static void test_late_hears_the_cause(void **state)
{
  (void)state;
  enum { N = 3 };
  actor *a = open_ring(N);
  tt_bootstrap_destroy(a[2].parent);
  a[2].parent = NULL;
  list_without(&a[0], N, 0);
  list_without(&a[1], N, 0);
  run_actors(a, N, 0x5);
  assert_non_null(strstr(a[1].text, "rank 2"));
  list_without(&a[1], N, 0x4);
  pthread_t ahead;
  assert_int_equal(pthread_create(&ahead, NULL, shrink_once, &a[1]), 0);
  a[0].late_ms = 100;
  run_actors(a, N, 0x6);
  assert_int_equal(a[0].res, ncclRemoteError);
  assert_non_null(strstr(a[0].text, "rank 2 has gone"));
  list_without(&a[0], N, 0x4);
  run_actors(a, N, 0x6);
  pthread_join(ahead, NULL);
  expect_rings(a, N, 0x4);
  drop_children(a, N, 0x4);
  close_ring(a, N);
}

// Ranks that list different members: a text that says so on all of them, and no hang.
static void test_lists_differ(void **state)
{
  (void)state;
  enum { N = 5 };
  actor *a = open_ring(N);
  for (int i = 1; i < N; i++) {
    list_without(&a[i], N, i == 2 ? 0x9 : 1);
  }
  run_actors(a, N, 1);
  int said = 0;
  for (int i = 1; i < N; i++) {
    assert_true(a[i].res == ncclInvalidUsage || a[i].res == ncclRemoteError);
    said += strstr(a[i].text, "must pass the same ranks") != NULL;
  }
  assert_true(said >= 2);
  shrink_all(a, N, 1, 1);
  expect_rings(a, N, 1);
  drop_children(a, N, 1);
  close_ring(a, N);
}

// The rank that finds the difference tells its predecessor, which is late. Here this one's number in the child is the
// other one's in the parent.
static void test_late_hears_of_lists(void **state)
{
  (void)state;
  enum { N = 4 };
  actor *a = open_ring(N);
  for (int i = 1; i < N; i++) {
    list_without(&a[i], N, i == 3 ? 1 : 9);
  }
  a[2].late_ms = 300; // rank 1 waits 250 ms for it as its successor first, then 500 ms as its predecessor
  uint64_t began = tt_now_ns();
  run_actors(a, N, 1);
  assert_true(tt_now_ns() - began < (uint64_t)LONG_S * TT_NS_PER_S / 2);
  for (int i = 1; i < N; i++) {
    assert_int_not_equal(a[i].res, ncclSuccess);
  }
  close_ring(a, N);
}

// A program that shrinks until it has a ring: with the list that `out` leaves, later with that of all.
typedef struct stubborn {
  actor a;
  int before; // shrinks that have failed on this rank alone: it is ahead of the others
  int late_ms[2];
  unsigned out[2];
  int calls;
} stubborn;

static void *shrink_again(void *arg)
{
  stubborn *s = arg;
  s->a.parent->nfailed = (uint32_t)s->before;
  for (s->calls = 0; s->calls < 3 && (s->calls == 0 || s->a.res != ncclSuccess); s->calls++) {
    list_without(&s->a, s->a.parent->nranks, s->out[s->calls > 0]);
    s->a.late_ms = s->calls < 2 ? s->late_ms[s->calls] : 0;
    (void)shrink_once(&s->a);
  }
  return NULL;
}

static stubborn *open_game(const stubborn *s, int n)
{
  stubborn *own = calloc((size_t)n, sizeof(*own));
  actor *a = open_ring(n);
  for (int i = 0; i < n; i++) {
    own[i] = s[i];
    own[i].a = a[i];
  }
  free(a);
  return own;
}

static void begin_game(stubborn *s, int n, unsigned away)
{
  for (int i = 0; i < n; i++) {
    if ((away >> i & 1) == 0) {
      assert_int_equal(pthread_create(&s[i].a.thread, NULL, shrink_again, &s[i]), 0);
    }
  }
}

// All have a ring after their second call, or their first where they were ahead. How many have not?
static int end_game(stubborn *s, int n, unsigned away)
{
  int failed = 0;
  for (int i = 0; i < n; i++) {
    if ((away >> i & 1) == 0) {
      pthread_join(s[i].a.thread, NULL);
      if (s[i].a.res != ncclSuccess || s[i].calls > 2 - (s[i].before > 0)) {
        print_error("rank %d: %d calls: %s\n", i, s[i].calls, s[i].a.text);
        failed++;
      }
      tt_bootstrap_destroy(s[i].a.child);
    }
  }
  for (int i = 0; i < n; i++) {
    tt_bootstrap_destroy(s[i].a.parent);
  }
  free(s);
  return failed;
}

// A rank is at its second shrink while others, which list the same ranks, are at their first. How that ends is nothing
// to the second, in which all meet: neither where the rank's successor was at the first, and its successor had another
// list; nor where its predecessor was.
static void test_earlier_ends(void **state)
{
  (void)state;
  enum { N = 5 };
  static const struct {
    unsigned away;
    stubborn s[N];
  } games[] = {
      {0x18,
       {{.out = {0x1a, 0x18}, .late_ms = {300}},
        {.before = 1, .out = {0x18}},
        {.out = {0x18, 0x18}, .late_ms = {100}}}},
      {0x18,
       {{.before = 1, .out = {0x18}},
        {.out = {0x19, 0x18}, .late_ms = {300}},
        {.out = {0x18, 0x18}, .late_ms = {100}}}},
  };
  for (size_t i = 0; i < TT_COUNT(games); i++) {
    stubborn *s = open_game(games[i].s, N);
    begin_game(s, N, games[i].away);
    assert_int_equal(end_game(s, N, games[i].away), 0);
  }
}

// The same by chance: many rings, whose ranks are all in a hurry. Rank 0 excludes another rank than the others first.
static void test_races(void **state)
{
  (void)state;
  enum { N = 4, GAMES = 32 };
  static const stubborn crew[N] = {{.out = {4, 8}}, {.out = {8, 8}}, {.out = {8, 8}}};
  stubborn *s[GAMES];
  int failed = 0;
  for (int i = 0; i < GAMES; i++) {
    s[i] = open_game(crew, N);
  }
  for (int i = 0; i < GAMES; i++) {
    begin_game(s[i], N, 8);
  }
  for (int i = 0; i < GAMES; i++) {
    failed += end_game(s[i], N, 8);
  }
  assert_int_equal(failed, 0);
}

// Strangers in the queue of the door, and an abort of a shrink whose peer never comes.
static void test_strangers_and_abort(void **state)
{
  (void)state;
  enum { N = 3, STRANGERS = 20 };
  actor *a = open_ring(N);
  int fd[STRANGERS];
  for (int i = 0; i < STRANGERS; i++) {
    tt_until until = {.deadline_ns = tt_now_ns() + LONG_S * TT_NS_PER_S};
    assert_int_equal(tt_tcp_connect(&a[1].parent->door.addrs.a[0], &until, &fd[i]), 0);
    assert_int_equal(tt_sock_send(fd[i], "garbage that is no hello of ours, but rather long", i), i);
  }
  shrink_all(a, N, 4, 4);
  expect_rings(a, N, 4);
  drop_children(a, N, 4);
  for (int i = 0; i < STRANGERS; i++) {
    tt_sock_close(&fd[i]);
  }
  list_without(&a[0], N, 4);
  assert_int_equal(pthread_create(&a[0].thread, NULL, shrink_once, &a[0]), 0);
  tt_sleep_ns(50 * TT_NS_PER_MS);
  __atomic_store_n(&a[0].abort_flag, 1, __ATOMIC_RELEASE);
  pthread_join(a[0].thread, NULL);
  assert_int_equal(a[0].res, ncclInternalError);
  close_ring(a, N);
}

int main(int argc, char **argv)
{
  (void)argc;
  restart_with_time_limit(argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_healthy),
      cmocka_unit_test(test_nested),
      cmocka_unit_test(test_dead_member),
      cmocka_unit_test(test_one_is_ahead),
      cmocka_unit_test(test_late_hears_the_cause),
      cmocka_unit_test(test_lists_differ),
      cmocka_unit_test(test_late_hears_of_lists),
      cmocka_unit_test(test_earlier_ends),
      cmocka_unit_test(test_races),
      cmocka_unit_test(test_strangers_and_abort),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
