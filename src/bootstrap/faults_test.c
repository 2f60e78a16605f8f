// faults_test.c: wrong usage, strangers, deaths, aborts and forks: every survivor is told what happened, and nobody
// waits for ever.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "bootstrap/players.h"
#include "os/random.h"
#include "tools/sockets.h"

static void test_two_ranks_with_one_number(void **state)
{
  (void)state;
  player *p = cast(4, NULL);
  p[3].rank = 1;
  run_players(p, 4);
  expect_all(p, 4, ncclInvalidUsage, "two ranks call themselves rank 1 of 4", "process ");
  await_no_roots();
  free(p);
}

static void test_ranks_disagree(void **state)
{
  (void)state;
  player *p = cast(4, NULL);
  p[2].nranks = 3;
  run_players(p, 4);
  expect_all(p, 4, ncclInvalidUsage, "rank 2 says 3 ranks", "says 4 ranks");
  await_no_roots();
  free(p);
}

static void test_rank_out_of_range(void **state)
{
  (void)state;
  player *p = cast(3, NULL);
  p[2].rank = 3;
  run_players(p, 3);
  expect_all(p, 3, ncclInvalidUsage, "calls itself rank 3 of 3", "from 0 to 2");
  await_no_roots();
  free(p);
  p = cast(2, NULL);
  p[0].rank = -1;
  run_players(p, 2);
  expect_all(p, 2, ncclInvalidUsage, "calls itself rank -1 of 2", "");
  await_no_roots();
  free(p);
}

static void test_bad_ids(void **state)
{
  (void)state;
  tt_bootstrap *b = NULL;
  tt_addr at = {.family = AF_INET, .port = 1, .ip = {192, 0, 2, 1}};
  tt_id parsed = {.root = tt_addrs_one(&at)}, back;
  ncclUniqueId id;
  memset(&id, 0, sizeof(id));
  assert_int_equal(tt_bootstrap_init(&id, 1, 2, 0, NULL, &b), ncclInvalidArgument);
  assert_non_null(strstr(tt_last_error(), "not an id made by ncclGetUniqueId"));
  assert_null(b);
  tt_random(parsed.secret, sizeof(parsed.secret));
  tt_bootstrap_id_write(&parsed, &id);
  assert_int_equal(tt_bootstrap_id_parse(&id, &back), ncclSuccess);
  assert_memory_equal(back.secret, parsed.secret, sizeof(back.secret));
  assert_memory_equal(&back.root, &parsed.root, sizeof(back.root));
  for (size_t bit = 0; bit < 8 * sizeof(id); bit++) {
    ncclUniqueId bad = id;
    bad.internal[bit / 8] = (char)(bad.internal[bit / 8] ^ (1 << bit % 8));
    assert_int_equal(tt_bootstrap_id_parse(&bad, &back), ncclInvalidArgument);
  }
  assert_int_equal(tt_bootstrap_init(&id, 1, 0, 0, NULL, &b), ncclInvalidArgument);
}

static void test_used_id(void **state)
{
  (void)state;
  player *p[2] = {cast(1, NULL), cast(2, NULL)};
  for (int i = 0; i < 2; i++) {
    run_players(p[i], i + 1);
    expect_success(p[i], i + 1);
  }
  for (int i = 0; i < 2; i++) {
    start_players(p[i], i + 1);
  }
  for (int i = 0; i < 2; i++) {
    finish_players(p[i], i + 1);
    expect_all(p[i], i + 1, ncclInvalidUsage, "already used", "ncclGetUniqueId");
    free(p[i]);
  }
  await_no_roots();
}

static void test_missing_ranks_are_named(void **state)
{
  (void)state;
  player *p = cast(7, NULL);
  char log[4096] = "";
  p[1] = p[6];
  uint64_t began = tt_now_ns();
  run_players(p, 2); // ranks 0 and 6
  expect_all(p, 2, ncclRemoteError, "ranks 1-5 of 7", "NCCL_BOOTSTRAP_TIMEOUT");
  expect_all(p, 2, ncclRemoteError, "of those that join here, ranks 0, 6 have", "");
  assert_true(tt_now_ns() - began >= TIMEOUT_S * TT_NS_PER_S);
  free(p);
  await_no_roots();
  FILE *f = fopen(getenv("NCCL_DEBUG_FILE"), "re"); // test_with_short_limit_and_log has named it
  assert_non_null(f);
  assert_true(fread(log, 1, sizeof(log) - 1, f) > 0);
  fclose(f);
  assert_non_null(
      strstr(log, "NCCL ATTN rank 0 of 7: asking the root for the next rank: still waiting for ranks 1-5 of 7"));
  assert_non_null(
      strstr(log, "NCCL ATTN rank 6 of 7: asking the root for the next rank: still waiting for ranks 1-5 of 7"));
}

// Second start of this program, with TUTTI_ID_TIMEOUT: the roots of unused ids end by themselves, those of used ones do
// not.
static void test_unused_ids_end(void **state)
{
  (void)state;
  ncclUniqueId unused;
  for (int i = 0; i < 3; i++) {
    assert_int_equal(tt_bootstrap_id(&unused), ncclSuccess);
  }
  player *p = cast(2, NULL), *late = calloc(1, sizeof(*late));
  unsigned before = count_joined();
  start_players(p, 1);
  await_joined(before, 1);
  for (uint64_t end = tt_now_ns() + LONG_S * TT_NS_PER_S; tt_lobby_count() > 1 && tt_now_ns() < end;) {
    tt_sleep_ns(TT_NS_PER_MS);
  }
  assert_int_equal(tt_lobby_count(), 1);
  *late = (player){.ids = {unused}, .nids = 1, .nranks = 1};
  run_players(late, 1);
  char maker[32];
  snprintf(maker, sizeof(maker), "process %d of that machine", (int)getpid());
  expect_all(late, 1, ncclInvalidUsage, "nobody listens", maker);
  start_players(p + 1, 1);
  finish_players(p, 2);
  expect_success(p, 2);
  free(p);
  free(late);
}

static void test_with_unused_ids(void **state)
{
  (void)state;
  setenv("TUTTI_ID_TIMEOUT", "2", 1);
  int status = start_again("unused", false);
  unsetenv("TUTTI_ID_TIMEOUT");
  assert_int_equal(status, 0);
}

static void test_with_short_limit_and_log(void **state)
{
  (void)state;
  char path[] = "/tmp/tutti-faults-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_FILE", path, 1);
  int status = start_again("missing", true);
  unlink(path);
  unsetenv("NCCL_DEBUG");
  unsetenv("NCCL_DEBUG_FILE");
  assert_int_equal(status, 0);
}

static void test_abort_before_all_have_joined(void **state)
{
  (void)state;
  player *p = cast(3, NULL);
  unsigned before = count_joined();
  start_players(p, 2);
  await_joined(before, 2);
  __atomic_store_n(&p[1].abort_flag, 1, __ATOMIC_RELAXED);
  pthread_join(p[1].thread, NULL);
  assert_int_equal(p[1].res, ncclInternalError); // another code without the abort
  start_players(p + 2, 1);                       // too late, and told the same
  pthread_join(p[0].thread, NULL);
  pthread_join(p[2].thread, NULL);
  p[1] = p[2];
  expect_all(p, 2, ncclRemoteError, "1", "joined");
  await_no_roots();
  free(p);
}

typedef struct {
  tt_bootstrap *b;
  int n;
  ncclResult_t res;
  char text[512];
} waiter;

static void *wait_in_gather(void *arg)
{
  waiter *w = arg;
  char data[MAX] = {0};
  w->res = tt_bootstrap_allgather(w->b, data, 1);
  snprintf(w->text, sizeof(w->text), "%s", tt_last_error());
  return NULL;
}

static void *wait_in_split(void *arg)
{
  waiter *w = arg;
  tt_bootstrap *child = NULL;
  int members[MAX];
  for (int i = 0; i < w->n; i++) {
    members[i] = i;
  }
  w->res = tt_bootstrap_split(w->b, members, w->n, 1, NULL, &child);
  tt_bootstrap_destroy(child);
  return NULL;
}

// Rank 0 waits in `fn` for ranks that do nothing; its abort flag must end that.
static void abort_in(void *(*fn)(void *))
{
  player *p = cast(3, NULL);
  for (int i = 0; i < 3; i++) {
    p[i].keep = true;
  }
  run_players(p, 3);
  expect_success(p, 3);
  waiter w = {.b = p[0].b, .n = 3};
  pthread_t t;
  pthread_create(&t, NULL, fn, &w);
  tt_sleep_ns(50 * TT_NS_PER_MS);
  __atomic_store_n(&p[0].abort_flag, 1, __ATOMIC_RELAXED);
  pthread_join(t, NULL); // never, without the abort
  assert_int_equal(w.res, ncclInternalError);
  for (int i = 0; i < 3; i++) {
    tt_bootstrap_destroy(p[i].b);
  }
  free(p);
}

static void test_abort_in_calls(void **state)
{
  (void)state;
  abort_in(wait_in_gather);
  abort_in(wait_in_split);
}

// What processes tell each other: how many have been made, and how many have said what they found.
typedef struct {
  unsigned made, said;
} board;
static board *shared;

static void open_board(void)
{
  shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
}

static bool count_and_await(unsigned *count, unsigned n)
{
  __atomic_add_fetch(count, 1, __ATOMIC_RELEASE);
  return await_count(count, n);
}

// Rank 2 of 5 is killed; everybody else waits in all-gather and must name it.
static int gather_with_a_death(const ncclUniqueId *id, int rank, int n)
{
  tt_bootstrap *b = NULL;
  if (tt_bootstrap_init(id, 1, n, rank, NULL, &b) != ncclSuccess) {
    return 1;
  }
  bool ready = count_and_await(&shared->made, (unsigned)n);
  if (rank == 2) {
    tt_sleep_ns(100 * TT_NS_PER_MS); // the others are waiting by now, or will meet a dead rank when they begin
    kill(getpid(), SIGKILL);
  }
  char data[1000] = {0};
  ncclResult_t res = tt_bootstrap_allgather(b, data, 100);
  bool named = res == ncclRemoteError && strstr(tt_last_error(), "rank 2 has gone: it was killed") != NULL;
  bool stays = tt_bootstrap_barrier(b) == ncclRemoteError;
  if (!named) {
    fprintf(stderr, "rank %d: %d %s\n", rank, res, tt_last_error());
  }
  // A process that ends at once may take its STOP frame with it.
  bool heard = count_and_await(&shared->said, (unsigned)n - 1);
  tt_bootstrap_destroy(b);
  return !(ready && named && stays && heard);
}

static void test_death(void **state)
{
  (void)state;
  open_board();
  ranks_set r;
  start_rank_processes(&r, 5, gather_with_a_death);
  r.expected[2] = -SIGKILL;
  assert_int_equal(ranks_wait(&r), 0);
  munmap(shared, sizeof(*shared));
}

// Rank 0 begins when it can read from here.
static int rank_0_goes[2];

// A rank of three as a process. Its exit status says whether it has been informed that rank 1 is gone.
static int join_without_rank_1(const ncclUniqueId *id, int rank, int n)
{
  tt_bootstrap *b = NULL;
  char c;
  bool began = rank != 0 || read(rank_0_goes[0], &c, 1) == 1;
  ncclResult_t res = tt_bootstrap_init(id, 1, n, rank, NULL, &b);
  bool named = res == ncclRemoteError && strstr(tt_last_error(), "rank 1") != NULL;
  if (!named) {
    fprintf(stderr, "rank %d: %d %s\n", rank, res, tt_last_error());
  }
  tt_bootstrap_destroy(b);
  return !(began && named);
}

// A rank that dies between joining and the end of init. Rank 0 comes after that: it hears the same, as the root waits
// for it.
static void test_death_in_init(void **state)
{
  (void)state;
  unsigned before = count_joined();
  ranks_set r;
  assert_int_equal(pipe(rank_0_goes), 0);
  start_rank_processes(&r, 3, join_without_rank_1);
  await_joined(before, 2);
  ranks_kill(&r, 1);
  assert_true(ranks_wait_one(&r, 1));
  assert_int_equal(write(rank_0_goes[1], "", 1), 1);
  assert_int_equal(ranks_wait(&r), 0);
  close(rank_0_goes[0]);
  close(rank_0_goes[1]);
  await_no_roots();
}

static void gather_of_another_size(tt_bootstrap *b, int rank, int n)
{
  char data[4 * 16] = {0};
  ncclResult_t res = tt_bootstrap_allgather(b, data, rank == 1 ? 16 : 8);
  (void)n;
  check_rank_good(res == ncclInvalidUsage, "sizes that differ", rank);
}

static void test_sizes_differ(void **state)
{
  (void)state;
  player *p = cast(4, gather_of_another_size);
  wrong = 0;
  run_players(p, 4);
  expect_success(p, 4);
  assert_int_equal(wrong, 0);
  free(p);
}

// Strangers: 50 each that send garbage, nothing, half a hello, and a hello under another secret.
typedef struct {
  tt_addr to;
  int fds[200];
} crowd;

static void *harass(void *arg)
{
  crowd *c = arg;
  tt_until until = {.deadline_ns = tt_now_ns() + LONG_S * TT_NS_PER_S};
  for (int i = 0; i < 200; i++) {
    tt_hello h = {.kind = TT_HELLO_JOIN, .rank = i % 8, .to = -1, .nranks = 8};
    tt_key other = {.b = {1, 2, 3}};
    tt_greeting none = {.magic = 0};
    c->fds[i] = -1;
    tt_hello_seal(&h, &other, &none);
    if (i % 4 == 0) {
      tt_random(&h, sizeof(h));
    }
    if (tt_tcp_connect(&c->to, &until, &c->fds[i]) == 0 && i % 4 != 1) {
      (void)tt_sock_send(c->fds[i], &h, i % 4 == 2 ? sizeof(h) / 2 : sizeof(h));
    }
  }
  return NULL;
}

static void test_strangers(void **state)
{
  (void)state;
  player *p = cast(8, whole_life);
  tt_id id;
  crowd c;
  pthread_t t;
  wrong = 0;
  assert_int_equal(tt_bootstrap_id_parse(&p[0].ids[0], &id), ncclSuccess);
  c.to = id.root.a[0];
  start_players(p, 4);
  pthread_create(&t, NULL, harass, &c);
  tt_sleep_ns(20 * TT_NS_PER_MS); // most of the crowd is there before the other half
  start_players(p + 4, 4);
  finish_players(p, 8);
  pthread_join(t, NULL);
  for (int i = 0; i < 200; i++) {
    tt_sock_close(&c.fds[i]);
  }
  expect_success(p, 8);
  assert_int_equal(wrong, 0);
  await_no_roots();
  free(p);
}

// Says the hello of a rank, and leaves as soon as the root has answered.
static void say_hello_and_go(const ncclUniqueId *to, int rank, int n)
{
  tt_id id;
  tt_dial *d;
  tt_addr at;
  int fd = -1, e;
  assert_int_equal(tt_bootstrap_id_parse(to, &id), ncclSuccess);
  const tt_hello h = {.kind = TT_HELLO_JOIN, .rank = rank, .to = -1, .nranks = n, .tag = tt_key_name(&id.key)};
  assert_int_equal(tt_dial_start(&id.root, &id.key, &h, 0, &d), 0);
  while ((e = tt_dial_step(d, &fd, &at)) == 0) {
    tt_sleep_ns(TT_NS_PER_MS);
  }
  assert_int_equal(e, 1);
  tt_sock_close(&fd);
  tt_dial_cancel(d);
}

// A rank whose connection ends before its card comes again, several times, and joins: the root waits for that.
static void test_a_rank_comes_again(void **state)
{
  (void)state;
  player *p = cast(3, whole_life);
  start_players(p, 2);
  for (int i = 0; i < 3; i++) {
    say_hello_and_go(&p[0].ids[0], 2, 3);
    tt_sleep_ns(50 * TT_NS_PER_MS);
  }
  start_players(p + 2, 1);
  finish_players(p, 3);
  expect_success(p, 3);
  await_no_roots();
  free(p);
}

// A rank listens as long as its ring lives, and nobody serves a stranger meanwhile; then it listens no more.
static void test_door_closes(void **state)
{
  (void)state;
  player *p = cast(3, NULL);
  for (int i = 0; i < 3; i++) {
    p[i].keep = true;
  }
  run_players(p, 3);
  expect_success(p, 3);
  for (int i = 0; i < 3; i++) {
    tt_addrs own = p[i].b->door.addrs;
    tt_until until = {.deadline_ns = tt_now_ns() + LONG_S * TT_NS_PER_S};
    tt_addr mine = {.family = 0};
    int fd = -1, stranger = -1;
    assert_true(tt_addrs_good(&own));
    assert_int_equal(tt_tcp_connect(&own.a[0], &until, &stranger), 0);
    tt_bootstrap_destroy(p[i].b);
    int e = tt_tcp_connect(&own.a[0], &until, &fd);
    // The kernel may give a free port to the very socket that connects to it.
    bool to_itself = e == 0 && tt_sock_local(fd, &mine) == 0 && mine.port == own.a[0].port;
    assert_true(e == -ECONNREFUSED || to_itself);
    tt_sock_close(&fd);
    tt_sock_close(&stranger);
  }
  free(p);
}

// This process's limit of open files, for good. -1: just what is open now.
static void limit_files(int most)
{
  int free_one = dup(0);
  rlim_t n = most < 0 ? (rlim_t)free_one : (rlim_t)most;
  struct rlimit few = {.rlim_cur = n, .rlim_max = n};
  close(free_one);
  check_rank_good(setrlimit(RLIMIT_NOFILE, &few) == 0, "limit of open files", 0);
}

// Runs `body` in a child, which may spoil its process. True: it has ended well.
static bool child_is_good(bool (*body)(void))
{
  int status = 1;
  pid_t child = fork();
  if (child == 0) {
    _exit(!body());
  }
  waitpid(child, &status, 0);
  return status == 0;
}

typedef struct gathering {
  tt_bootstrap *b;
  uint8_t blocks[3][4];
  ncclResult_t res;
  pthread_t thread;
} gathering;

static void *gather_thread(void *arg)
{
  gathering *g = arg;
  g->res = tt_bootstrap_allgather(g->b, g->blocks, sizeof(g->blocks[0]));
  return NULL;
}

// Rank 1 of 3 has sent everything, and still waits for a block. Its successor may be through, and whatever it says is
// nothing to this operation. But if it is not, the end is heard at once.
static void test_word_of_the_successor(void **state)
{
  (void)state;
  static const struct {
    uint64_t finished; // operations of the successor
    ncclResult_t res;
  } words[] = {{1, ncclSuccess}, {0, ncclRemoteError}};
  static const tt_key key = {.b = {1}};
  for (size_t i = 0; i < TT_COUNT(words); i++) {
    int prev[2], next[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, prev), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, next), 0);
    gathering g = {.b = tt_bs_new(1, 3, &key, NULL)};
    g.b->prev = prev[0];
    g.b->next = next[0];
    struct {
      tt_frame frame;
      uint8_t block[4];
    } data = {{.kind = TT_FRAME_BLOCK, .number = 1, .size = 4}, {7}};
    enum { UNIT = sizeof(tt_frame) + 4 };
    assert_int_equal(tt_sock_send(prev[1], &data, UNIT), UNIT);
    assert_int_equal(pthread_create(&g.thread, NULL, gather_thread, &g), 0);
    uint8_t sent[2 * UNIT];
    for (size_t got = 0; got < sizeof(sent);) {
      ssize_t n = tt_sock_take(next[1], sent, sizeof(sent) - got, false);
      got += n > 0 ? (size_t)n : 0;
      tt_sleep_ns(TT_NS_PER_MS);
    }
    tt_frame stop = {.kind = TT_FRAME_STOP, .number = 0, .size = words[i].finished << 32 | ncclRemoteError};
    assert_int_equal(tt_sock_send(next[1], &stop, sizeof(stop)), sizeof(stop));
    if (words[i].res == ncclSuccess) {
      tt_sleep_ns(20 * TT_NS_PER_MS);
      assert_int_equal(tt_sock_send(prev[1], &data, UNIT), UNIT);
    }
    pthread_join(g.thread, NULL);
    assert_int_equal(g.res, words[i].res);
    assert_int_equal(g.b->cause, g.res == ncclSuccess ? -1 : 0);
    tt_bootstrap_destroy(g.b);
    tt_sock_close(&prev[1]);
    tt_sock_close(&next[1]);
  }
}

// What happens before the next call of poll, which is this one for all of the program, in this thread.
static _Thread_local void (*before_poll)(void);

int poll(struct pollfd *fds, nfds_t n, int ms)
{
  const struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
  void (*first)(void) = before_poll;
  before_poll = NULL;
  if (first != NULL) {
    first();
  }
  return (int)syscall(SYS_ppoll, fds, n, ms < 0 ? NULL : &limit, NULL, 0);
}

static int leaving;

static void stop_and_leave(void)
{
  const tt_frame stop = {.kind = TT_FRAME_STOP, .number = 2, .size = ncclRemoteError};
  assert_int_equal(tt_sock_send(leaving, &stop, sizeof(stop)), sizeof(stop));
  tt_sock_close(&leaving);
}

// Between calls a rank has looked at what its predecessor has sent for the next one; before it asks whether that has
// ended, the predecessor says that rank 2 is the cause, and leaves. It has not been killed.
static void test_word_before_the_end(void **state)
{
  (void)state;
  static const tt_key key = {.b = {1}};
  const tt_frame block = {.kind = TT_FRAME_BLOCK, .number = 1, .size = 0};
  int prev[2], next[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, prev), 0);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, next), 0);
  tt_bootstrap *b = tt_bs_new(1, 4, &key, NULL);
  b->prev = prev[0];
  b->next = next[0];
  leaving = prev[1];
  assert_int_equal(tt_sock_send(leaving, &block, sizeof(block)), sizeof(block));
  before_poll = stop_and_leave;
  assert_int_equal(tt_ring_hear(b), ncclRemoteError);
  assert_int_equal(b->cause, 2);
  tt_bootstrap_destroy(b);
  tt_sock_close(&next[1]);
}

// A rank that has no descriptor for its successor, which listens and is not to blame.
static bool ring_without_descriptors(void)
{
  tt_key key = {.b = {1}};
  tt_addr at = {.family = AF_INET, .ip = {127, 0, 0, 1}};
  tt_addrs next;
  tt_greeter successor;
  bool good = tt_greeter_open(&successor, &(tt_addrs){.n = 1, .a = {at}}, &key, TT_HELLO_RING, 1) == 0;
  tt_bootstrap *b = tt_bs_new(0, 2, &key, NULL);
  next = successor.addrs;
  limit_files(-1);
  good = good && tt_ring_form(b, &next) == ncclSystemError && strstr(tt_last_error(), "ulimit -n") != NULL &&
         strstr(tt_last_error(), "NCCL_SOCKET_IFNAME") == NULL;
  tt_bootstrap_destroy(b);
  tt_greeter_close(&successor, true);
  return good;
}

// A rank that can connect, but not accept.
static bool door_without_descriptors(void)
{
  tt_key key = {.b = {1}};
  tt_addrs here = {.n = 1, .a = {{.family = AF_INET, .ip = {127, 0, 0, 1}}}}, next;
  tt_hello h = {.kind = TT_HELLO_RING, .rank = 1, .to = 0, .nranks = 2};
  tt_bootstrap *b = tt_bs_new(0, 2, &key, NULL);
  tt_dial *d = NULL;
  tt_addr at;
  int fd = -1, pair[2];
  bool good =
      tt_greeter_open(&b->door, &here, &key, TT_HELLO_RING, 0) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
  next = b->door.addrs;
  b->next = pair[0];
  good = good && tt_dial_start(&next, &key, &h, 0, &d) == 0 && tt_dial_step(d, &fd, &at) == 0;
  limit_files(-1);
  struct pollfd none = {.fd = -1};
  for (int i = 0; i < 100 && b->door.shortage == 0; i++) {
    good = good && tt_bs_wait(b, &none, 1, tt_now_ns() + 10 * TT_NS_PER_MS) == ncclSuccess;
  }
  good = good && b->door.shortage == -EMFILE && b->prev < 0;
  tt_dial_cancel(d);
  tt_bootstrap_destroy(b);
  close(pair[1]);
  return good;
}

static void test_no_descriptors(void **state)
{
  (void)state;
  assert_true(child_is_good(ring_without_descriptors));
  assert_true(child_is_good(door_without_descriptors));
}

enum { FEW_FILES = 64 };

// Starts a root in a process that may have FEW_FILES files open; it says on the board how many ranks have joined, and
// ends when the root has.
static pid_t start_poor_root(ncclUniqueId *id)
{
  int pipes[2];
  open_board();
  assert_int_equal(pipe(pipes), 0);
  pid_t child = fork();
  if (child == 0) {
    unsigned before = count_joined();
    limit_files(FEW_FILES);
    bool made = tt_bootstrap_id(id) == ncclSuccess && write(pipes[1], id, sizeof(*id)) == sizeof(*id);
    while (tt_lobby_count() > 0) {
      __atomic_store_n(&shared->made, count_joined() - before, __ATOMIC_RELEASE);
      tt_sleep_ns(TT_NS_PER_MS);
    }
    _exit(!made);
  }
  close(pipes[1]);
  assert_int_equal(read(pipes[0], id, sizeof(*id)), sizeof(*id));
  close(pipes[0]);
  return child;
}

static void await_root(pid_t child)
{
  int status = 1;
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
  munmap(shared, sizeof(*shared));
}

// Seats that are still empty cost nothing: the root hears those who have come, although seats and doors are more than
// it may have files open.
static void test_root_with_few_files(void **state)
{
  (void)state;
  player *p = calloc(2, sizeof(*p));
  pid_t root = start_poor_root(&p[0].ids[0]);
  p[0].nids = 1;
  p[0].nranks = FEW_FILES - 1;
  p[1] = p[0];
  p[1].rank = 7;
  start_players(p, 2);
  assert_true(await_count(&shared->made, 2));
  __atomic_store_n(&p[1].abort_flag, 1, __ATOMIC_RELAXED);
  finish_players(p, 2);
  expect_all(p, 1, ncclRemoteError, "rank 7 (", "went away before all 63 ranks had joined");
  await_root(root);
  free(p);
}

// One rank more than that can never join.
static void test_root_with_too_few_files(void **state)
{
  (void)state;
  player *p = calloc(1, sizeof(*p));
  pid_t root = start_poor_root(&p->ids[0]);
  p->nids = 1;
  p->nranks = FEW_FILES;
  run_players(p, 1);
  expect_all(p, 1, ncclRemoteError, "may have 64 files open", "ulimit -n");
  await_root(root);
  free(p);
}

static void test_forked_child_may_not_use_it(void **state)
{
  (void)state;
  player *p = cast(2, NULL);
  p[0].keep = p[1].keep = true;
  run_players(p, 2);
  expect_success(p, 2);
  pid_t child = fork();
  if (child == 0) {
    char data[2] = {0};
    bool refused = tt_bootstrap_allgather(p[0].b, data, 1) == ncclInvalidUsage;
    tt_bootstrap_destroy(p[0].b);
    tt_bootstrap_destroy(p[1].b);
    _exit(!refused);
  }
  int status = 1;
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
  waiter w[2] = {{.b = p[0].b}, {.b = p[1].b}};
  pthread_t t[2];
  for (int i = 0; i < 2; i++) {
    pthread_create(&t[i], NULL, wait_in_gather, &w[i]);
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(t[i], NULL);
    assert_int_equal(w[i].res, ncclSuccess); // the parent is unharmed
    tt_bootstrap_destroy(p[i].b);
  }
  free(p);
}

int main(int argc, char **argv)
{
  restart_with_time_limit(argv);
  const struct CMUnitTest missing[] = {cmocka_unit_test(test_missing_ranks_are_named)};
  if (argc > 1 && strcmp(argv[1], "missing") == 0) {
    return cmocka_run_group_tests(missing, NULL, NULL);
  }
  const struct CMUnitTest unused[] = {cmocka_unit_test(test_unused_ids_end)};
  if (argc > 1 && strcmp(argv[1], "unused") == 0) {
    return cmocka_run_group_tests(unused, NULL, NULL);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_with_unused_ids),
      cmocka_unit_test(test_two_ranks_with_one_number),
      cmocka_unit_test(test_ranks_disagree),
      cmocka_unit_test(test_rank_out_of_range),
      cmocka_unit_test(test_bad_ids),
      cmocka_unit_test(test_used_id),
      cmocka_unit_test(test_with_short_limit_and_log),
      cmocka_unit_test(test_abort_before_all_have_joined),
      cmocka_unit_test(test_abort_in_calls),
      cmocka_unit_test(test_death),
      cmocka_unit_test(test_death_in_init),
      cmocka_unit_test(test_sizes_differ),
      cmocka_unit_test(test_strangers),
      cmocka_unit_test(test_word_of_the_successor),
      cmocka_unit_test(test_word_before_the_end),
      cmocka_unit_test(test_a_rank_comes_again),
      cmocka_unit_test(test_door_closes),
      cmocka_unit_test(test_no_descriptors),
      cmocka_unit_test(test_root_with_few_files),
      cmocka_unit_test(test_root_with_too_few_files),
      cmocka_unit_test(test_forked_child_may_not_use_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
