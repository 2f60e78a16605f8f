// lobby_test.c: what unique ids cost while nobody uses them, that they stay usable, and that they do not get into each
// other's way.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "bootstrap/dial_rig.h"
#include "base/util.h"
#include "bootstrap/players.h"
#include "tools/sockets.h"

enum { IDS = 1000 };

// `n` ranks that use `id`. Free with free().
static player *cast_for(const ncclUniqueId *id, int n)
{
  player *p = calloc((size_t)n, sizeof(*p));
  for (int i = 0; i < n; i++) {
    p[i] = (player){.ids = {*id}, .nids = 1, .nranks = n, .rank = i, .body = whole_life};
  }
  return p;
}

static void use_id(const ncclUniqueId *id, int n)
{
  player *p = cast_for(id, n);
  run_players(p, n);
  expect_success(p, n);
  free(p);
}

// Threads and descriptors of this process before it makes ids. A sanitizer's own thread begins with the first one of
// the program.
typedef struct {
  int threads[2 * MAX], nthreads, fds;
} costs;

static void note_costs(costs *c)
{
  ncclUniqueId id;
  assert_int_equal(tt_bootstrap_id(&id), ncclSuccess);
  use_id(&id, 2);
  await_no_roots();
  c->nthreads = list_threads(c->threads, 2 * MAX);
  c->fds = count_folder("/proc/self/fd");
}

static void make_unique_ids(ncclUniqueId *ids, int n)
{
  for (int i = 0; i < n; i++) {
    assert_int_equal(tt_bootstrap_id(&ids[i]), ncclSuccess);
  }
}

// As many as of one: one thread, a socket for each address, and an event set.
static void expect_costs_of_one(const costs *before, const ncclUniqueId *id)
{
  tt_id parsed;
  assert_int_equal(tt_bootstrap_id_parse(id, &parsed), ncclSuccess);
  assert_int_equal(await_new_threads(before->threads, before->nthreads, 1), 1);
  assert_in_range(count_folder("/proc/self/fd") - before->fds, parsed.root.n + 1,
                  TT_ADDRS_MAX + 1); // an id may have no room for all of them
}

// In a second start: its ids end with it.
static void test_unused_ids_share_one_lobby(void **state)
{
  (void)state;
  static ncclUniqueId ids[IDS];
  static const int used[] = {0, 1, IDS / 2, IDS - 1};
  player *again;
  costs before;
  note_costs(&before);
  make_unique_ids(ids, 1);
  expect_costs_of_one(&before, ids);
  int fds = count_folder("/proc/self/fd");
  make_unique_ids(ids + 1, IDS - 1);
  expect_costs_of_one(&before, ids);
  assert_int_equal(await_fds(fds), fds);
  assert_int_equal(tt_lobby_count(), IDS);
  for (int i = 0; i < 4; i++) {
    use_id(&ids[used[i]], 1 + i);
  }
  again = cast_for(&ids[IDS - 1], 1);
  run_players(again, 1);
  expect_all(again, 1, ncclInvalidUsage, "already used", "ncclGetUniqueId");
  free(again);
  assert_int_equal(tt_lobby_count(), IDS - 4);
  expect_costs_of_one(&before, ids);
  assert_int_equal(await_fds(fds), fds);
  assert_int_equal(wrong, 0);
}

static void test_with_ids_left(void **state)
{
  (void)state;
  assert_int_equal(start_again("left", false), 0);
}

enum { ID_TIMEOUT_S = 1 };

// In a second start, with TUTTI_ID_TIMEOUT.
static void test_all_unused_ids_end(void **state)
{
  (void)state;
  static ncclUniqueId ids[IDS];
  costs before;
  note_costs(&before);
  for (int round = 0; round < 2; round++) { // the second lobby begins when the first has ended
    uint64_t began = tt_now_ns();
    make_unique_ids(ids, IDS);
    await_no_roots();
    assert_true(tt_now_ns() - began >= ID_TIMEOUT_S * TT_NS_PER_S);
    assert_int_equal(await_fds(before.fds), before.fds);
    assert_int_equal(await_new_threads(before.threads, before.nthreads, 0), 0);
  }
}

static void test_with_id_timeout(void **state)
{
  (void)state;
  char seconds[16];
  snprintf(seconds, sizeof(seconds), "%d", ID_TIMEOUT_S);
  setenv("TUTTI_ID_TIMEOUT", seconds, 1);
  int status = start_again("end", false);
  unsetenv("TUTTI_ID_TIMEOUT");
  assert_int_equal(status, 0);
}

// Says hello to the root of `id` with these key and name; *fd is the connection that has been answered.
static int say_hello_to(const tt_id *id, const tt_key *key, uint64_t name, int *fd)
{
  tt_hello h = {.kind = TT_HELLO_JOIN, .rank = 1, .to = -1, .nranks = 2, .tag = name};
  tt_until until = {.deadline_ns = tt_now_ns() + LONG_S * TT_NS_PER_S};
  tt_addr at;
  return rig_dial(&id->root, key, &h, &until, fd, &at);
}

// An id's name is no proof, nor is the key of another id.
static void test_names_and_keys_belong_together(void **state)
{
  (void)state;
  ncclUniqueId ids[2];
  tt_id id[2];
  tt_key other = {.b = {9}}, zero = {.b = {0}};
  int fd = -1;
  make_unique_ids(ids, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tt_bootstrap_id_parse(&ids[i], &id[i]), ncclSuccess);
  }
  uint64_t names[] = {tt_key_name(&id[0].key), tt_key_name(&id[1].key)};
  assert_true(names[0] != names[1]);
  assert_int_equal(say_hello_to(&id[0], &id[0].key, names[1], &fd), -EACCES);
  assert_int_equal(say_hello_to(&id[0], &other, names[0], &fd), -EACCES);
  assert_int_equal(say_hello_to(&id[0], &id[0].key, 0, &fd), -EACCES);
  assert_int_equal(say_hello_to(&id[0], &zero, tt_key_name(&zero), &fd), -EACCES);
  assert_int_equal(fd, -1);
  for (int i = 0; i < 2; i++) {
    use_id(&ids[i], 3);
  }
  await_no_roots();
}

enum { HELD = 200 };

// Connections that are silent, and members of one job who say who they are and then nothing: another id's ranks meet
// meanwhile, and those of the same id, too.
static void test_ids_do_not_wait_for_each_other(void **state)
{
  (void)state;
  ncclUniqueId ids[2];
  tt_id id;
  int fds[HELD], n = 0;
  make_unique_ids(ids, 2);
  assert_int_equal(tt_bootstrap_id_parse(&ids[0], &id), ncclSuccess);
  player *slow = cast_for(&ids[0], 2);
  unsigned before = count_joined();
  start_players(slow, 1);
  await_joined(before, 1);
  for (; n < HELD; n++) {
    tt_until until = {.deadline_ns = tt_now_ns() + LONG_S * TT_NS_PER_S};
    int e = n % 4 == 0 ? say_hello_to(&id, &id.key, tt_key_name(&id.key), &fds[n])
                       : tt_tcp_connect(&id.root.a[0], &until, &fds[n]);
    assert_int_equal(e, 0);
  }
  use_id(&ids[1], 4);
  assert_true(tt_lobby_count() >= 1); // the other one still waits
  start_players(slow + 1, 1);
  finish_players(slow, 2);
  expect_success(slow, 2);
  while (n > 0) {
    tt_sock_close(&fds[--n]);
  }
  await_no_roots();
  assert_int_equal(wrong, 0);
  free(slow);
}

enum { MAKERS = 4, EACH = 50 };

static void *make_some(void *arg)
{
  ncclUniqueId *ids = arg;
  for (int i = 0; i < EACH; i++) {
    check_rank_good(tt_bootstrap_id(&ids[i]) == ncclSuccess, "an id", i);
  }
  return NULL;
}

// Threads that make ids at the same time: all of them lead to the same sockets. Each is used once, while others are
// still there.
static void test_threads_make_ids(void **state)
{
  (void)state;
  static ncclUniqueId ids[MAKERS][EACH];
  pthread_t t[MAKERS];
  tt_id first, other;
  wrong = 0;
  for (int i = 0; i < MAKERS; i++) {
    assert_int_equal(pthread_create(&t[i], NULL, make_some, ids[i]), 0);
  }
  for (int i = 0; i < MAKERS; i++) {
    pthread_join(t[i], NULL);
  }
  assert_int_equal(wrong, 0);
  assert_int_equal(tt_bootstrap_id_parse(&ids[0][0], &first), ncclSuccess);
  player *p = calloc((size_t)MAKERS * EACH, sizeof(*p));
  for (int i = 0; i < MAKERS * EACH; i++) {
    assert_int_equal(tt_bootstrap_id_parse(&ids[i / EACH][i % EACH], &other), ncclSuccess);
    assert_memory_equal(&other.root, &first.root, sizeof(first.root));
    p[i] = (player){.ids = {ids[i / EACH][i % EACH]}, .nids = 1, .nranks = 1};
  }
  for (int i = 0; i < MAKERS * EACH; i += MAX / 2) {
    int n = TT_MIN(MAX / 2, MAKERS * EACH - i);
    run_players(p + i, n);
    expect_success(p + i, n);
  }
  free(p);
  await_no_roots();
}

// ThreadSanitizer ends a child that makes threads, unless told otherwise.
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
  return "die_after_fork=0";
}

// A child has no thread for its parent's ids: its own ones have a lobby of their own, and both sides can use the
// parent's.
static void test_forked_child_makes_ids(void **state)
{
  (void)state;
  ncclUniqueId id;
  make_unique_ids(&id, 1);
  pid_t child = fork();
  if (child == 0) {
    ncclUniqueId own;
    tt_bootstrap *b = NULL;
    bool good = tt_lobby_count() == 0 && tt_bootstrap_id(&own) == ncclSuccess &&
                tt_bootstrap_init(&own, 1, 1, 0, NULL, &b) == ncclSuccess;
    tt_bootstrap_destroy(b);
    _exit(!good || live_as_process(&id, 1, 2) != 0);
  }
  player *p = cast_for(&id, 2);
  int status = 1;
  run_players(p, 1);
  expect_success(p, 1);
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
  await_no_roots();
  free(p);
}

// Makes an id and a child, which tells the id by `ids` and lives until `stop` has no writer any more; ends at once.
static void make_id_and_child(int ids, int stop)
{
  ncclUniqueId id;
  char byte;
  if (tt_bootstrap_id(&id) != ncclSuccess) {
    _exit(1);
  }
  pid_t child = fork();
  if (child == 0) {
    bool told = write(ids, &id, sizeof(id)) == (ssize_t)sizeof(id);
    _exit(!told || read(stop, &byte, 1) != 0);
  }
  _exit(child < 0);
}

// A child of the process that made an id does not listen in its place when that has ended: ranks are refused at once.
static void test_forked_child_does_not_listen(void **state)
{
  (void)state;
  int ids[2], stop[2], status = 1, fd = -1;
  tt_until until = {.deadline_ns = tt_now_ns() + LONG_S * TT_NS_PER_S};
  ncclUniqueId id;
  tt_id parsed;
  assert_int_equal(pipe(ids), 0);
  assert_int_equal(pipe(stop), 0);
  pid_t maker = fork();
  if (maker == 0) {
    close(stop[1]);
    make_id_and_child(ids[1], stop[0]);
  }
  close(ids[1]);
  close(stop[0]);
  assert_int_equal(read(ids[0], &id, sizeof(id)), sizeof(id));
  assert_int_equal(waitpid(maker, &status, 0), maker);
  assert_int_equal(status, 0);
  assert_int_equal(tt_bootstrap_id_parse(&id, &parsed), ncclSuccess);
  for (uint32_t i = 0; i < parsed.root.n; i++) {
    assert_int_equal(tt_tcp_connect(&parsed.root.a[i], &until, &fd), -ECONNREFUSED);
  }
  close(ids[0]);
  close(stop[1]);
}

int main(int argc, char **argv)
{
  restart_with_time_limit(argv);
  const struct CMUnitTest left[] = {cmocka_unit_test(test_unused_ids_share_one_lobby)};
  if (argc > 1 && strcmp(argv[1], "left") == 0) {
    return cmocka_run_group_tests(left, NULL, NULL);
  }
  const struct CMUnitTest end[] = {cmocka_unit_test(test_all_unused_ids_end)};
  if (argc > 1 && strcmp(argv[1], "end") == 0) {
    return cmocka_run_group_tests(end, NULL, NULL);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_with_ids_left),
      cmocka_unit_test(test_with_id_timeout),
      cmocka_unit_test(test_names_and_keys_belong_together),
      cmocka_unit_test(test_ids_do_not_wait_for_each_other),
      cmocka_unit_test(test_threads_make_ids),
      cmocka_unit_test(test_forked_child_makes_ids),
      cmocka_unit_test(test_forked_child_does_not_listen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
