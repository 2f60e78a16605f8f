// roots_test.c: several unique ids, hence several roots; and addresses that lead nowhere. Uses the machine's network
// interfaces, only to itself.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "bootstrap/players.h"
#include "os/events.h"
#include "os/shm.h"
#include "tools/sockets.h"

static void test_shares(void **state)
{
  (void)state;
  for (int n = 1; n <= 40; n++) {
    for (int roots = 1; roots <= n; roots++) {
      assert_int_equal(tt_share_begin(n, roots, 0), 0);
      assert_int_equal(tt_share_begin(n, roots, roots), n);
      for (int share = 0; share < roots; share++) {
        int begin = tt_share_begin(n, roots, share), size = tt_share_begin(n, roots, share + 1) - begin;
        assert_true(size == n / roots || size == n / roots + 1);
        for (int rank = begin; rank < begin + size; rank++) {
          assert_int_equal(tt_share_of(n, roots, rank), share);
        }
      }
      assert_int_equal(tt_share_of(n, roots, -1), 0);
      assert_int_equal(tt_share_of(n, roots, n), roots - 1);
    }
  }
}

static void same_secret(tt_bootstrap *b, int rank, int n)
{
  uint8_t all[MAX][16];
  whole_life(b, rank, n);
  memcpy(all[rank], tt_bootstrap_secret(b), 16);
  check_rank_good(tt_bootstrap_allgather(b, all, 16) == ncclSuccess, "all-gather of secrets", rank);
  for (int i = 0; i < n; i++) {
    check_rank_good(memcmp(all[0], all[i], 16) == 0, "one secret", rank);
  }
}

static void test_many_roots(void **state)
{
  (void)state;
  static const int ns[] = {1, 2, 3, 5, 8, 33};
  for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
    for (int nids = 1; nids <= MAX_IDS && nids <= ns[i]; nids++) {
      player *p = cast_many(ns[i], nids, same_secret);
      wrong = 0;
      run_players(p, ns[i]);
      expect_success(p, ns[i]);
      assert_int_equal(wrong, 0);
      await_no_roots();
      free(p);
    }
  }
}

// The first ranks of shares come last, and one by one.
static void test_slow_first_ranks(void **state)
{
  (void)state;
  player *p = cast_many(9, 3, same_secret);
  wrong = 0;
  for (int i = 0; i < 9; i++) {
    if (i % 3 != 0) {
      start_players(&p[i], 1);
    }
  }
  for (int i = 6; i >= 0; i -= 3) {
    tt_sleep_ns(30 * TT_NS_PER_MS);
    start_players(&p[i], 1);
  }
  finish_players(p, 9);
  expect_success(p, 9);
  assert_int_equal(wrong, 0);
  await_no_roots();
  free(p);
}

static void test_ids_alike(void **state)
{
  (void)state;
  tt_bootstrap *b = NULL;
  ncclUniqueId ids[3];
  tt_addr at = {.family = AF_INET, .port = 1, .ip = {127, 0, 0, 1}};
  for (int i = 0; i < 3; i++) {
    tt_id id = {.root = tt_addrs_one(&at), .secret = {(uint8_t)(i % 2)}};
    tt_bootstrap_id_write(&id, &ids[i]);
  }
  assert_int_equal(tt_bootstrap_init(ids, 3, 4, 0, NULL, &b), ncclInvalidArgument);
  assert_non_null(strstr(tt_last_error(), "unique ids 0 and 2 are the same"));
  assert_int_equal(tt_bootstrap_init(ids, 2, 1, 0, NULL, &b), ncclInvalidArgument);
  assert_int_equal(tt_bootstrap_init(ids, 0, 1, 0, NULL, &b), ncclInvalidArgument);
  memset(&ids[1], 0, sizeof(ids[1]));
  assert_int_equal(tt_bootstrap_init(ids, 2, 2, 0, NULL, &b), ncclInvalidArgument);
  assert_null(b);
}

// What goes wrong with one rank is told to the ranks of every root.
static void test_faults_are_told_to_all(void **state)
{
  (void)state;
  player *p = cast_many(8, 3, NULL); // 0-2, 3-5, 6-7
  p[5].rank = 4;
  run_players(p, 8);
  expect_all(p, 8, ncclInvalidUsage, "two ranks call themselves rank 4 of 8", "process ");
  await_no_roots();
  free(p);
  p = cast_many(8, 3, NULL);
  p[7].rank = 8;
  run_players(p, 8);
  expect_all(p, 8, ncclInvalidUsage, "calls itself rank 8 of 8", "from 0 to 7");
  await_no_roots();
  free(p);
  p = cast_many(8, 2, NULL); // 0-3, 4-7
  p[1].nranks = 7;
  run_players(p, 8);
  expect_all(p, 8, ncclInvalidUsage, "disagree about their number", "rank 1 says 7 ranks");
  await_no_roots();
  free(p);
  p = cast_many(8, 2, NULL);
  p[2].nids = 1;
  run_players(p, 8);
  expect_all(p, 8, ncclInvalidUsage, "disagree about the number of unique ids", "rank 2 has 1");
  await_no_roots();
  free(p);
}

static void test_ids_in_another_order(void **state)
{
  (void)state;
  player *p = cast_many(4, 2, NULL);
  ncclUniqueId id = p[1].ids[0];
  p[1].ids[0] = p[1].ids[1];
  p[1].ids[1] = id;
  run_players(p, 4);
  expect_all(p, 4, ncclInvalidUsage, "different unique ids, or the same in another order", "rank 1");
  await_no_roots();
  free(p);
}

static void test_missing(void **state)
{
  (void)state;
  player *p = cast_many(9, 3, NULL);
  uint64_t began = tt_now_ns();
  p[4] = p[8];
  run_players(p, 8); // all but rank 4
  expect_all(p, 8, ncclRemoteError, "ranks 4 of 9 have not joined", "NCCL_BOOTSTRAP_TIMEOUT");
  assert_true(tt_now_ns() - began >= TIMEOUT_S * TT_NS_PER_S);
  free(p);
  p = cast_many(9, 3, NULL);
  p[3] = p[6], p[4] = p[7], p[5] = p[8];
  run_players(p, 6); // a whole share is missing: its root knows, or the one before it
  expect_all(p, 6, ncclRemoteError, "ranks 3", "of 9 have not joined");
  free(p);
}

static void test_abort(void **state)
{
  (void)state;
  for (int who = 0; who < 2; who++) { // an ordinary rank of a share, and the one between two roots
    player *p = cast_many(6, 2, NULL);
    unsigned before = count_joined();
    start_players(p, 5);
    await_joined(before, 7); // all five have, ranks 0 and 3 at both roots: one that ends earlier is only missed
    __atomic_store_n(&p[3 + who].abort_flag, 1, __ATOMIC_RELAXED);
    finish_players(p, 5);
    assert_int_equal(p[3 + who].res, ncclInternalError);
    p[3 + who] = p[0];
    expect_all(p, 5, ncclRemoteError, "joined", who == 0 ? "3" : "4");
    free(p);
  }
}

// A second start of this program: makes an id, and keeps its root until it is killed.
static int keep_root_main(const char *fd)
{
  ncclUniqueId id;
  bool good = tt_bootstrap_id(&id) == ncclSuccess && write(atoi(fd), &id, sizeof(id)) == (ssize_t)sizeof(id);
  tt_sleep_ns(good ? 60 * TT_NS_PER_S : 0);
  return 1;
}

static pid_t keep_root(ncclUniqueId *id)
{
  int fds[2];
  char text[16];
  assert_int_equal(pipe(fds), 0);
  snprintf(text, sizeof(text), "%d", fds[1]);
  pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "roots_test", "keep_root", text, (char *)NULL);
    _exit(1);
  }
  close(fds[1]);
  assert_int_equal(read(fds[0], id, sizeof(*id)), sizeof(*id));
  close(fds[0]);
  return child;
}

static void test_root_dies(void **state)
{
  (void)state;
  player *p = calloc(6, sizeof(*p));
  ncclUniqueId ids[3];
  pid_t pids[3];
  int status;
  for (int i = 0; i < 3; i++) {
    pids[i] = keep_root(&ids[i]);
  }
  for (int i = 0; i < 6; i++) {
    p[i] = (player){.nids = 3, .nranks = 6, .rank = i};
    memcpy(p[i].ids, ids, sizeof(ids));
  }
  // Rank 3 is the one that is late: the dead root never hears of it.
  start_players(p, 3);
  start_players(p + 4, 2);
  tt_sleep_ns(200 * TT_NS_PER_MS);
  kill(pids[1], SIGKILL);
  waitpid(pids[1], &status, 0);
  start_players(p + 3, 1);
  finish_players(p, 6);
  for (int i = 0; i < 6; i++) {
    if (p[i].res == ncclSuccess || p[i].text[0] == '\0') {
      print_error("rank %d: %d '%s'\n", i, p[i].res, p[i].text);
    }
    assert_int_not_equal(p[i].res, ncclSuccess);
    assert_int_not_equal(p[i].res, ncclInternalError);
  }
  for (int i = 0; i < 3; i += 2) {
    kill(pids[i], SIGKILL);
    waitpid(pids[i], &status, 0);
  }
  free(p);
}

// Addresses that lead nowhere: nobody listens; nobody answers; somebody of another job; a family of the future.
static struct {
  tt_addrs list;
  int deaf[8];
  tt_greeter foreign;
} nowhere;

static void open_nowhere(void)
{
  static const tt_key other = {.b = {9}};
  tt_addr at = {.family = AF_INET, .ip = {127, 0, 0, 1}}, closed, deaf;
  int fd = -1;
  assert_int_equal(tt_tcp_listen(&at, &fd, &closed), 0);
  tt_sock_close(&fd);
  assert_int_equal(tt_tcp_listen(&at, &nowhere.deaf[0], &deaf), 0);
  assert_int_equal(listen(nowhere.deaf[0], 0), 0);
  for (int i = 1; i < 8; i++) {
    (void)tt_tcp_connect_start(&deaf, &nowhere.deaf[i]);
  }
  tt_addrs here = tt_addrs_one(&at);
  assert_int_equal(tt_greeter_open(&nowhere.foreign, &here, &other, TT_HELLO_JOIN, -1), 0);
  nowhere.list = (tt_addrs){.n = 3, .a = {closed, deaf, nowhere.foreign.addrs.a[0]}};
}

static void close_nowhere(void)
{
  for (int i = 7; i >= 0; i--) {
    tt_sock_close(&nowhere.deaf[i]);
  }
  tt_greeter_close(&nowhere.foreign, true);
}

// Puts them in front.
static void mislead(tt_addrs *list)
{
  tt_addrs with = nowhere.list;
  for (uint32_t i = 0; i < list->n; i++) {
    tt_addrs_add(&with, &list->a[i]);
  }
  *list = with;
}

// A rank that is given wrong addresses before each right one: of its root and of its successor.
static void *play_misled(void *arg)
{
  player *p = arg;
  tt_id id;
  ncclUniqueId misleading;
  if (tt_bootstrap_id_parse(&p->ids[0], &id) != ncclSuccess) {
    return NULL;
  }
  mislead(&id.root);
  id.root.n = id.root.n < 4 ? id.root.n : 4; // what an id has room for in any case
  tt_bootstrap_id_write(&id, &misleading);
  p->res = tt_bootstrap_id_parse(&misleading, &id);
  tt_key key = tt_key_derive(&id.key, "test", NULL, 0);
  tt_bootstrap *b = tt_bs_new(p->rank, p->nranks, &key, NULL);
  tt_join j = {.b = b, .ids = &id, .nids = 1};
  p->res = p->res == ncclSuccess ? tt_join_roots(&j) : p->res;
  mislead(&j.next);
  p->res = p->res == ncclSuccess ? tt_ring_form(b, &j.next) : p->res;
  if (p->res == ncclSuccess) {
    whole_life(b, p->rank, p->nranks);
  } else {
    snprintf(p->text, sizeof(p->text), "%s", tt_last_error());
  }
  tt_bootstrap_destroy(b);
  return NULL;
}

static void test_misleading_addresses(void **state)
{
  (void)state;
  player *p = cast(4, NULL);
  wrong = 0;
  open_nowhere();
  for (int i = 0; i < 4; i++) {
    p[i].res = ncclInternalError;
    assert_int_equal(pthread_create(&p[i].thread, NULL, play_misled, &p[i]), 0);
  }
  finish_players(p, 4);
  expect_success(p, 4);
  assert_int_equal(wrong, 0);
  close_nowhere();
  await_no_roots();
  free(p);
}

// All of them lead nowhere.
static void test_no_address(void **state)
{
  (void)state;
  tt_bootstrap *b = NULL;
  ncclUniqueId id;
  open_nowhere();
  tt_id bad = {.root = nowhere.list, .secret = {1}};
  tt_bootstrap_id_write(&bad, &id);
  bad.root.n = 1;
  tt_bootstrap_id_write(&bad, &id);
  assert_int_equal(tt_bootstrap_init(&id, 1, 2, 0, NULL, &b), ncclInvalidUsage);
  assert_non_null(strstr(tt_last_error(), "nobody listens at 127.0.0.1"));
  assert_null(b);
  close_nowhere();
}

static unsigned lines_heard; // its address is the id of the roots of these tests

// One turn of the lobby, for a root alone.
static void step_root(tt_root *r, int events)
{
  void *lines[TT_EVENTS_AT_ONCE];
  int n = tt_events_take(events, lines, TT_EVENTS_AT_ONCE);
  for (int i = 0; i < n; i++) {
    assert_ptr_equal(tt_root_hear(lines[i]), &lines_heard);
    lines_heard++;
  }
  tt_root_step(r, tt_now_ns());
}

static int unread_bytes(int fd)
{
  int n = -1;
  assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
  return n;
}

enum { FLOOD = 100 };

// A rank of several roots sends notes faster than its root reads them: the root takes a part of them and comes back,
// for the sake of other ids. No note is lost.
static void expect_bounded_steps(tt_root *r, int events, int fd, tt_conn *rank)
{
  int32_t share = 1;
  int steps = 0;
  for (int i = 0; i < FLOOD; i++) {
    assert_int_equal(tt_note_send(rank, TT_NOTE_WAIT, &share, sizeof(share)), 0);
  }
  for (; unread_bytes(fd) > 0 && steps < FLOOD; steps++) {
    step_root(r, events);
  }
  assert_int_equal(unread_bytes(fd), 0);
  assert_in_range(steps, 2, FLOOD);
  step_root(r, events);
  assert_false(tt_root_has_ended(r));
}

static void test_flood_of_notes(void **state)
{
  (void)state;
  const tt_greeter door = {.npending = 0};
  const tt_key key = {.b = {7}};
  const tt_hello hello = {.kind = TT_HELLO_JOIN, .rank = 0, .to = -1, .nranks = 4};
  const tt_join_card card = {.peer = tt_addrs_one(&(tt_addr){.family = AF_INET, .port = 9, .ip = {127, 0, 0, 1}}),
                             .nroots = 2};
  const int32_t code = ncclSystemError;
  tt_root_shared shared = {.door = &door, .events = -1, .file_limit = 1024};
  tt_conn rank;
  unsigned before = count_joined();
  int fds[2], events;
  assert_int_equal(tt_events_open(&shared.events), 0);
  tt_root *r = tt_root_new(&shared, &key, 0, &lines_heard);
  events = shared.events;
  assert_non_null(r);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  assert_int_equal(tt_conn_open(&rank, fds[0], &key, &hello, false), 0);
  tt_root_take(r, &hello, fds[1]);
  assert_int_equal(tt_note_send(&rank, TT_NOTE_JOIN, &card, sizeof(card)), 0);
  step_root(r, events);
  assert_int_equal(count_joined() - before, 1);
  expect_bounded_steps(r, events, fds[1], &rank);
  assert_true(tt_root_is_open(r));
  assert_int_equal(tt_note_send(&rank, TT_NOTE_FAIL, &code, sizeof(code)), 0);
  step_root(r, events);
  tt_root_answer(r);
  expect_bounded_steps(r, events, fds[1], &rank); // until it has taken its answer
  tt_conn_close(&rank);
  step_root(r, events);
  assert_true(tt_root_has_ended(r));
  tt_root_destroy(r);
  tt_fd_close(events);
}

// What calls itself a rank, and goes away before anything else is known of it, may have any number.
static void test_a_strange_number_goes_away(void **state)
{
  (void)state;
  static const int32_t numbers[] = {INT32_MIN, -1, INT32_MAX};
  const tt_greeter door = {.npending = 0};
  const tt_key key = {.b = {7}};
  const tt_hello hello = {.kind = TT_HELLO_JOIN, .rank = 2, .to = -1, .nranks = 4};
  const tt_join_card card = {
      .peer = tt_addrs_one(&(tt_addr){.family = AF_INET, .port = 9, .ip = {127, 0, 0, 1}}), .nroots = 2, .share = 1};
  tt_root_shared shared = {.door = &door, .events = -1, .file_limit = 1024};
  tt_conn rank;
  int fds[2];
  assert_int_equal(tt_events_open(&shared.events), 0);
  tt_root *r = tt_root_new(&shared, &key, 0, &lines_heard);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  assert_int_equal(tt_conn_open(&rank, fds[0], &key, &hello, false), 0);
  tt_root_take(r, &hello, fds[1]);
  assert_int_equal(tt_note_send(&rank, TT_NOTE_JOIN, &card, sizeof(card)), 0);
  step_root(r, shared.events);
  for (size_t i = 0; i < TT_COUNT(numbers); i++) {
    const tt_hello strange = {.kind = TT_HELLO_JOIN, .rank = numbers[i], .to = -1, .nranks = 4};
    tt_root_miss(r, &strange);
  }
  int before = unread_bytes(fds[0]);
  while (unread_bytes(fds[0]) == before) { // until the root judges them
    uint64_t now = tt_now_ns(), wake = tt_root_wake_ns(r);
    tt_events_wait(shared.events, wake > now ? wake - now : 0);
    step_root(r, shared.events);
  }
  tt_conn_close(&rank);
  tt_root_destroy(r);
  tt_fd_close(shared.events);
}

// A rank for which the root has no memory loses its connection at once, and may come again.
static void test_root_without_memory(void **state)
{
  (void)state;
  const tt_greeter door = {.npending = 0};
  const tt_key key = {.b = {7}};
  const tt_hello hello = {.kind = TT_HELLO_JOIN, .rank = 0, .to = -1, .nranks = 4};
  tt_root_shared shared = {.door = &door, .events = -1, .file_limit = 1024};
  assert_int_equal(tt_events_open(&shared.events), 0);
  tt_root *r = tt_root_new(&shared, &key, 0, &lines_heard);
  for (long k = 1; k <= 2; k++) {
    int fds[2];
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    tt_alloc_fail_at(k);
    tt_root_take(r, &hello, fds[1]);
    assert_true(tt_alloc_fail_at(0) <= 0);
    assert_int_equal(tt_sock_recv(fds[0], &byte, 1), -ECONNRESET);
    tt_sock_close(&fds[0]);
  }
  assert_int_equal(tt_root_wake_ns(r), 0);
  tt_root_destroy(r);
  tt_fd_close(shared.events);
}

int main(int argc, char **argv)
{
  restart_with_time_limit(argv);
  if (argc > 2 && strcmp(argv[1], "keep_root") == 0) {
    return keep_root_main(argv[2]);
  }
  const struct CMUnitTest missing[] = {cmocka_unit_test(test_missing), cmocka_unit_test(test_root_dies)};
  if (argc > 1 && strcmp(argv[1], "missing") == 0) {
    return cmocka_run_group_tests(missing, NULL, NULL);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shares),
      cmocka_unit_test(test_many_roots),
      cmocka_unit_test(test_slow_first_ranks),
      cmocka_unit_test(test_ids_alike),
      cmocka_unit_test(test_faults_are_told_to_all),
      cmocka_unit_test(test_ids_in_another_order),
      cmocka_unit_test(test_abort),
      cmocka_unit_test(test_with_short_limit),
      cmocka_unit_test(test_misleading_addresses),
      cmocka_unit_test(test_no_address),
      cmocka_unit_test(test_flood_of_notes),
      cmocka_unit_test(test_a_strange_number_goes_away),
      cmocka_unit_test(test_root_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
