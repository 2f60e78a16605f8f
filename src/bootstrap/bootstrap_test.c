// bootstrap_test.c: ranks as threads and as processes: forming, all-gather, splits, NCCL_COMM_ID, and that nothing is
// left behind. Uses the machine's network interfaces, only to itself. faults_test.c has what goes wrong.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <netinet/in.h>

#include <sys/stat.h>

#include "base/param.h"
#include "bootstrap/players.h"

static void test_threads(void **state)
{
  (void)state;
  static const int ns[] = {1, 2, 3, 7, 64};
  for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
    player *p = cast(ns[i], whole_life);
    wrong = 0;
    run_players(p, ns[i]);
    expect_success(p, ns[i]);
    assert_int_equal(wrong, 0);
    await_no_roots();
    free(p);
  }
}

#define QUICK_NS (2 * TT_NS_PER_S)

static void test_init_is_quick(void **state)
{
  (void)state;
  uint64_t best = UINT64_MAX;
  for (int round = 0; round < 3 || (round < 20 && best >= QUICK_NS); round++) { // one undisturbed round will do
    player *p = cast(64, NULL);
    uint64_t began = tt_now_ns(), took;
    run_players(p, 64);
    took = tt_now_ns() - began;
    best = took < best ? took : best;
    expect_success(p, 64);
    free(p);
  }
  print_message("init of 64 ranks: %.1f ms\n", (double)best / 1e6);
  assert_true(best < QUICK_NS); // far above what it takes, so that a busy machine or a sanitizer does not fail it
}

static void test_processes(void **state)
{
  (void)state;
  for (int n = 4; n <= 64; n *= 16) {
    ranks_set r;
    start_rank_processes(&r, n, live_as_process);
    assert_int_equal(ranks_wait(&r), 0);
    await_no_roots();
  }
}

static void split_and_use(tt_bootstrap *b, int rank, int n)
{
  // Even ranks in order, odd ones backwards; rank 6 stays out.
  int members[MAX], count = 0;
  tt_bootstrap *child = NULL;
  for (int i = 0; i < n; i++) {
    int r = rank % 2 == 0 ? i : n - 1 - i;
    if (r % 2 == rank % 2 && r != 6) {
      members[count++] = r;
    }
  }
  count = rank == 6 ? 0 : count;
  check_rank_good(tt_bootstrap_split(b, members, count, 5, NULL, &child) == ncclSuccess, "split", rank);
  check_rank_good((child == NULL) == (rank == 6), "who is in a child", rank);
  if (child != NULL) {
    int own = 0, *all = calloc((size_t)count, sizeof(*all));
    uint8_t secrets[MAX][16];
    while (members[own] != rank) {
      own++;
    }
    all[own] = rank;
    check_rank_good(tt_bootstrap_allgather(child, all, sizeof(*all)) == ncclSuccess, "child's all-gather", rank);
    check_rank_good(memcmp(all, members, (size_t)count * sizeof(*all)) == 0, "child's order", rank);
    memcpy(secrets[own], tt_bootstrap_secret(child), 16);
    check_rank_good(tt_bootstrap_allgather(child, secrets, 16) == ncclSuccess, "child's secrets", rank);
    check_rank_good(memcmp(secrets[0], secrets[count - 1], 16) == 0, "one secret", rank);
    check_rank_good(memcmp(tt_bootstrap_secret(child), tt_bootstrap_secret(b), 16) != 0, "not the parent's", rank);
    gather_once(child, own, count, 100);
    free(all);
    tt_bootstrap_destroy(child);
  }
  gather_once(b, rank, n, 10);
  // Alone, and wrongly.
  child = NULL;
  check_rank_good(tt_bootstrap_split(b, &rank, 1, 6, NULL, &child) == ncclSuccess &&
                      tt_bootstrap_barrier(child) == ncclSuccess,
                  "alone", rank);
  tt_bootstrap_destroy(child);
  child = NULL;
  int bad[2] = {0, rank == 1 ? 9999 : 1};
  ncclResult_t res = tt_bootstrap_split(b, bad, rank < 2 ? 2 : 0, 7, NULL, &child);
  check_rank_good(res == (rank == 0   ? ncclRemoteError
                          : rank == 1 ? ncclInvalidArgument
                                      : ncclSuccess) &&
                      child == NULL,
                  "wrong members", rank);
  int both[2] = {0, 1};
  res = tt_bootstrap_split(b, both, rank < 2 ? 2 : 0, (uint64_t)rank, NULL, &child);
  check_rank_good(res == (rank < 2 ? ncclInvalidUsage : ncclSuccess) && child == NULL, "tags that differ", rank);
  gather_once(b, rank, n, 10);
}

static void test_split(void **state)
{
  (void)state;
  player *p = cast(9, split_and_use);
  wrong = 0;
  run_players(p, 9);
  expect_success(p, 9);
  assert_int_equal(wrong, 0);
  free(p);
}

static void brief_life(tt_bootstrap *b, int rank, int n)
{
  (void)rank;
  (void)n;
  check_rank_good(tt_bootstrap_barrier(b) == ncclSuccess, "barrier", rank);
}

static void test_nothing_left(void **state)
{
  (void)state;
  await_no_roots();
  int old[2 * MAX], nold = list_threads(old, 2 * MAX); // some of which may be about to go
  int fds = count_folder("/proc/self/fd");
  for (int round = 0; round < 50; round++) {
    int n = 1 + round % 5;
    player *p = cast(n, brief_life);
    run_players(p, n);
    expect_success(p, n);
    free(p);
  }
  await_no_roots();
  assert_int_equal(await_new_threads(old, nold, 0), 0);
  assert_int_equal(await_fds(fds), fds);
}

// One rank of three, whose id is NCCL_COMM_ID: two communicators one after the other, and rank 0 comes last.
static void live_with_comm_id(int rank, void *arg)
{
  (void)arg;
  ncclUniqueId id;
  tt_sleep_ns(rank == 0 ? 150 * TT_NS_PER_MS : 0);
  bool good =
      tt_bootstrap_id(&id) == ncclSuccess && live_as_process(&id, rank, 3) == 0 && live_as_process(&id, rank, 3) == 0;
  fflush(NULL);
  _exit(!good);
}

// A second start of this program with NCCL_COMM_ID: three ranks, twice.
static int comm_id_main(void)
{
  ranks_job job = {.n = 3, .seconds = 3 * LONG_S, .fn = live_with_comm_id};
  return ranks_run(&job) != 0 || ranks_run(&job) != 0;
}

// Takes a port that nobody else is given as long as the descriptor is open: bound, and not listening, so that a
// listener may still have it.
static int reserve_port(const tt_addr *any, uint16_t *port)
{
  struct sockaddr_in v4 = {.sin_family = AF_INET};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
  bool is_v4 = any->family == AF_INET;
  struct sockaddr *name = is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
  socklen_t size = is_v4 ? sizeof(v4) : sizeof(v6);
  memcpy(&v4.sin_addr, any->ip, sizeof(v4.sin_addr));
  memcpy(&v6.sin6_addr, any->ip, sizeof(v6.sin6_addr));
  int fd = socket(any->family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  assert_true(fd >= 0);
  assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
  assert_int_equal(bind(fd, name, size), 0);
  assert_int_equal(getsockname(fd, name, &size), 0);
  *port = ntohs(is_v4 ? v4.sin_port : v6.sin6_port);
  return fd;
}

// Runs comm_id_main with NCCL_COMM_ID=<host>:<a port of our own>. Its exit status.
static int start_comm_id(const char *what, const char *host, const tt_addr *any)
{
  uint16_t port;
  int fd = reserve_port(any, &port), status = 1;
  char text[128];
  pid_t child = fork();
  if (child == 0) {
    snprintf(text, sizeof(text), "%s:%u", host, port);
    setenv("NCCL_COMM_ID", text, 1);
    if (strcmp(what, "comm_id_differs") == 0) { // rank 0 waits for somebody who is not there
      shorten_time_limit();
    }
    if (strncmp(what, "comm_id_strange", 15) == 0 && getenv("TUTTI_COMM_ID_SECRET") == NULL) { // as above
      setenv("NCCL_BOOTSTRAP_TIMEOUT", "2", 1);
    }
    snprintf(text, sizeof(text), "%u", port);
    execl("/proc/self/exe", "bootstrap_test", what, text, (char *)NULL);
    _exit(1);
  }
  waitpid(child, &status, 0);
  tt_sock_close(&fd);
  return status;
}

static void test_comm_id(void **state)
{
  (void)state;
  tt_addr any4 = {.family = AF_INET, .ip = {127, 0, 0, 1}}, any6 = {.family = AF_INET6, .ip = {[15] = 1}}, bound;
  tt_addrs names;
  int fd = -1;
  assert_int_equal(start_comm_id("comm_id", "127.0.0.1", &any4), 0);
  if (tt_addrs_parse("localhost:1", AF_UNSPEC, &names) == 0) { // whatever it resolves to: one address or several
    assert_int_equal(start_comm_id("comm_id", "localhost", &any4), 0);
  }
  if (tt_tcp_listen(&any6, &fd, &bound) == 0) {
    tt_sock_close(&fd);
    assert_int_equal(start_comm_id("comm_id", "[::1]", &any6), 0);
  }
}

// Two texts for one address are two secrets: rank 1 is told so at once, and rank 0 that it is missing.
static int comm_id_differs(const char *port)
{
  char text[64];
  ncclUniqueId id;
  tt_id other;
  tt_bootstrap *b = NULL;
  pid_t child = fork();
  if (child == 0) {
    bool told = tt_bootstrap_id(&id) == ncclSuccess && tt_bootstrap_init(&id, 1, 2, 0, NULL, &b) == ncclRemoteError &&
                strstr(tt_last_error(), "ranks 1 of 2") != NULL;
    tt_sleep_ns(100 * TT_NS_PER_MS);
    _exit(!told);
  }
  snprintf(text, sizeof(text), "[127.0.0.1]:%s", port);
  bool told = tt_bootstrap_id_fixed(text, &(tt_id_secret){.text = NULL}, &other) == ncclSuccess;
  tt_bootstrap_id_write(&other, &id);
  told = told && tt_bootstrap_init(&id, 1, 2, 1, NULL, &b) == ncclInvalidUsage &&
         strstr(tt_last_error(), "NCCL_COMM_ID is not the same text") != NULL;
  int status = 1;
  waitpid(child, &status, 0);
  return !told || status != 0;
}

static void test_comm_ids_differ(void **state)
{
  (void)state;
  tt_addr any = {.family = AF_INET, .ip = {127, 0, 0, 1}};
  assert_int_equal(start_comm_id("comm_id_differs", "127.0.0.1", &any), 0);
}

// Another user's process of this machine takes rank 1's place, or rank 0's: both sides refuse it, and it is told so at
// once. A secret lets it in.
static int comm_id_stranger(bool has_root)
{
  ncclUniqueId id;
  tt_bootstrap *b = NULL;
  bool shares = tt_params_get()->comm_id_secret != NULL;
  pid_t child = fork();
  int own = child == 0 ? has_root ? 0 : 1 : has_root ? 1 : 0;
  if (child == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
    _exit(1);
  }
  ncclResult_t res =
      tt_bootstrap_id(&id) == ncclSuccess ? tt_bootstrap_init(&id, 1, 2, own, NULL, &b) : ncclInternalError;
  const char *text = own == 1 ? "is another user's process" : "ranks 1 of 2"; // rank 0 waits for the right one
  bool good = shares ? res == ncclSuccess
                     : res == (own == 1 ? ncclInvalidUsage : ncclRemoteError) && strstr(tt_last_error(), text) != NULL;
  tt_bootstrap_destroy(b);
  if (!good) {
    print_error("rank %d, user %u: %d %s\n", own, (unsigned)geteuid(), res, tt_last_error());
  }
  if (child == 0) {
    _exit(!good);
  }
  int status = 1;
  waitpid(child, &status, 0);
  return !good || status != 0;
}

static void test_comm_id_strangers(void **state)
{
  (void)state;
  tt_addr any = {.family = AF_INET, .ip = {127, 0, 0, 1}};
  if (geteuid() != 0) {
    skip(); // only root can become another user
  }
  assert_int_equal(start_comm_id("comm_id_stranger", "127.0.0.1", &any), 0);
  assert_int_equal(start_comm_id("comm_id_strange_root", "127.0.0.1", &any), 0);
  setenv("TUTTI_COMM_ID_SECRET", "ours", 1); // for the second starts
  assert_int_equal(start_comm_id("comm_id_stranger", "127.0.0.1", &any), 0);
  unsetenv("TUTTI_COMM_ID_SECRET");
}

// Writes `secret` into the file and makes the id of one address with it.
static ncclResult_t id_with(const char *path, const char *secret, mode_t mode, ncclUniqueId *id)
{
  tt_id parts;
  FILE *f = fopen(path, "we");
  assert_non_null(f);
  fputs(secret, f);
  fclose(f);
  assert_int_equal(chmod(path, mode), 0);
  ncclResult_t res = tt_bootstrap_id_fixed("127.0.0.1:4711", &(tt_id_secret){.file = path}, &parts);
  if (res == ncclSuccess) {
    tt_bootstrap_id_write(&parts, id);
  }
  return res;
}

// The same secret gives the same id, another one, or none, another id: ids that differ do not meet, as the test above
// shows.
static void test_comm_id_secret(void **state)
{
  (void)state;
  char path[] = "/tmp/tutti-secret-XXXXXX";
  ncclUniqueId a, b, other, none;
  tt_id parts;
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  assert_int_equal(id_with(path, "one", 0600, &a), ncclSuccess);
  assert_int_equal(id_with(path, "one", 0600, &b), ncclSuccess);
  assert_int_equal(id_with(path, "two", 0600, &other), ncclSuccess);
  assert_int_equal(tt_bootstrap_id_fixed("127.0.0.1:4711", &(tt_id_secret){.text = NULL}, &parts), ncclSuccess);
  tt_bootstrap_id_write(&parts, &none);
  assert_memory_equal(&a, &b, sizeof(a));
  assert_memory_not_equal(&a, &other, sizeof(a));
  assert_memory_not_equal(&a, &none, sizeof(a));
  assert_int_equal(id_with(path, "", 0600, &b), ncclInvalidArgument);
  assert_non_null(strstr(tt_last_error(), "it is empty"));
  assert_int_equal(id_with(path, "one", 0666, &b), ncclInvalidArgument);
  assert_non_null(strstr(tt_last_error(), "others may write it"));
  unlink(path);
  tt_id_secret secret = {.file = path};
  assert_int_equal(tt_bootstrap_id_fixed("127.0.0.1:4711", &secret, &parts), ncclInvalidArgument);
  assert_non_null(strstr(tt_last_error(), "TUTTI_COMM_ID_SECRET_FILE="));
  secret.text = "two";
  assert_int_equal(tt_bootstrap_id_fixed("127.0.0.1:4711", &secret, &parts), ncclInvalidArgument);
  assert_non_null(strstr(tt_last_error(), "both TUTTI_COMM_ID_SECRET and"));
  secret.file = NULL;
  assert_int_equal(tt_bootstrap_id_fixed("127.0.0.1:4711", &secret, &parts), ncclSuccess);
  tt_bootstrap_id_write(&parts, &b);
  assert_memory_equal(&b, &other, sizeof(b)); // the file's bytes were the same
}

int main(int argc, char **argv)
{
  restart_with_time_limit(argv);
  if (argc > 1 && strcmp(argv[1], "comm_id") == 0) {
    return comm_id_main();
  }
  if (argc > 2 && strcmp(argv[1], "comm_id_differs") == 0) {
    return comm_id_differs(argv[2]);
  }
  if (argc > 1 && strncmp(argv[1], "comm_id_strange", 15) == 0) {
    return comm_id_stranger(strcmp(argv[1], "comm_id_strange_root") == 0);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads),           cmocka_unit_test(test_init_is_quick),
      cmocka_unit_test(test_processes),         cmocka_unit_test(test_split),
      cmocka_unit_test(test_nothing_left),      cmocka_unit_test(test_comm_id),
      cmocka_unit_test(test_comm_ids_differ),   cmocka_unit_test(test_comm_id_secret),
      cmocka_unit_test(test_comm_id_strangers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
