// init_death_test.c: a rank dies at every point of its ncclCommInitRank: after each call by which it talks to others.
// Once it has told the root who it is, all others are told of the death within a second or so, never by the time-out
// alone. Before that nobody can know, and the time-out says which rank is missing.
//
//   INIT_DEATH_ALL=1   after every single call; by default after fewer and fewer
// This program stands between the library and the C library's calls for sockets.
#define _GNU_SOURCE // accept4
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "bootstrap/hello.h"
#include "harness.h"

enum {
  MOST = 8,
  HELLO_BYTES = sizeof(tt_hello),
  SHORT_S = 3, // NCCL_BOOTSTRAP_TIMEOUT where it has to be waited for
  ANSWERS_MOST = 100000,
};

// Words of the board. The last two have one element for each rank.
enum { HELLO, DIED_AT, SURVIVED, ANSWERS, TOLD_NS, NAMED = TOLD_NS + MOST };

// The victim dies after its `call`th call, counted from its hello, or, `silent`, from the beginning of init.
typedef struct death {
  int n, victim, call;
  bool silent;
} death;

static const death *mine; // in the victim, while it is in init
static _Atomic int calls;

static uint64_t now_ns(void)
{
  return (uint64_t)(seconds_now() * 1e9);
}

static void count_call(bool hello)
{
  const death *d = __atomic_load_n(&mine, __ATOMIC_ACQUIRE);
  if (d == NULL) {
    return;
  }
  bool known = atomic_load(&the_board->word[HELLO]) != 0;
  if (hello && !known) {
    atomic_store(&the_board->word[HELLO], 1);
  } else if (known != d->silent && atomic_fetch_add(&calls, 1) + 1 == d->call) {
    atomic_store(&the_board->word[DIED_AT], now_ns());
    raise(SIGKILL);
  }
}

// ---- The calls

#define COUNTED(type, expression, hello) \
  type res = (type)(expression);         \
  int e = errno;                         \
  count_call(hello);                     \
  errno = e;                             \
  return res

ssize_t send(int fd, const void *data, size_t size, int flags)
{
  COUNTED(ssize_t, syscall(SYS_sendto, fd, data, size, flags, NULL, 0), size == HELLO_BYTES);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
  COUNTED(ssize_t, syscall(SYS_sendmsg, fd, m, flags), false);
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
  COUNTED(ssize_t, syscall(SYS_recvfrom, fd, data, size, flags, NULL, NULL), false);
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
  COUNTED(ssize_t, syscall(SYS_recvmsg, fd, m, flags), false);
}

int connect(int fd, const struct sockaddr *to, socklen_t size)
{
  COUNTED(int, syscall(SYS_connect, fd, to, size), false);
}

int accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
  COUNTED(int, syscall(SYS_accept4, fd, from, size, flags), false);
}

int socket(int family, int type, int protocol)
{
  COUNTED(int, syscall(SYS_socket, family, type, protocol), false);
}

int poll(struct pollfd *fds, nfds_t n, int ms)
{
  struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
  COUNTED(int, syscall(SYS_ppoll, fds, n, ms < 0 ? NULL : &t, NULL, 0), false);
}

int epoll_wait(int set, struct epoll_event *events, int most, int ms)
{
  COUNTED(int, syscall(SYS_epoll_pwait, set, events, most, ms, NULL, 0), false);
}

// ---- The ranks

static ncclResult_t sum_once(ncclComm_t comm)
{
  float x = 1, y = 0;
  ncclResult_t res = ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, (cudaStream_t)2);
  ncclResult_t end = tuttiStreamSynchronize((cudaStream_t)2);
  return res != ncclSuccess ? res : end;
}

static void note_death(const death *d, int rank, ncclResult_t res)
{
  char who[32];
  uint64_t died = atomic_load(&the_board->word[DIED_AT]), now = now_ns();
  const char *text = ncclGetLastError(NULL);
  // Where nobody listens any more for the id, its maker has died: it is named by its process, as an error of usage.
  bool gone = d->victim == 0 && (res == ncclInvalidUsage || res == ncclSystemError);
  CHECK(died != 0, "rank %d: %d although nobody has died", rank, (int)res);
  CHECK(res == ncclRemoteError || gone, "rank %d: %d", rank, (int)res);
  snprintf(who, sizeof who, "rank %d ", d->victim);
  if (d->silent && d->victim != 0) {
    snprintf(who, sizeof who, "ranks %d of %d have not joined", d->victim, d->n);
  }
  bool named = strstr(text, who) != NULL;
  // Rank 0 has made the id. Where it dies while it answers, some hear of its end, leave, and are missed by the others.
  CHECK(named || d->victim == 0, "rank %d: the text does not name rank %d", rank, d->victim);
  atomic_store(&the_board->word[NAMED + rank], named);
  atomic_store(&the_board->word[TOLD_NS + rank], now > died ? now - died : 1);
  if (getenv("INIT_DEATH_TEXTS") != NULL) {
    fprintf(stderr, "%d, call %d, rank %d, %.0f ms: %s\n", d->victim, d->call, rank, (double)(now - died) / 1e6, text);
  }
}

static void death_body(int rank, void *arg)
{
  const death *d = arg;
  ncclComm_t comm = NULL;
  ncclUniqueId id = shared_id(0, rank);
  meet(d->n);
  __atomic_store_n(&mine, rank == d->victim ? d : NULL, __ATOMIC_RELEASE);
  ncclResult_t res = ncclCommInitRank(&comm, d->n, id, rank);
  __atomic_store_n(&mine, NULL, __ATOMIC_RELEASE);
  if (rank == d->victim) {
    OK(res);
    atomic_store(&the_board->word[SURVIVED], 1);
  }
  res = res == ncclSuccess ? sum_once(comm) : res;
  if (res == ncclSuccess) {
    CHECK(atomic_load(&the_board->word[DIED_AT]) == 0, "rank %d got a sum", rank);
    OK(ncclCommDestroy(comm));
    meet(d->n);
  } else {
    note_death(d, rank, res);
    // The maker of the id stays: it has to tell those that come late.
    for (atomic_fetch_add(&the_board->word[ANSWERS], 1); atomic_load(&the_board->word[ANSWERS]) < (uint64_t)d->n - 1;) {
      sleep_ms(0.5);
    }
    OK(comm == NULL ? ncclSuccess : ncclCommAbort(comm));
  }
  if (rank == d->victim) {
    raise(SIGKILL); // as is expected of it
  }
}

// ---- All points

typedef struct tally {
  int deaths, n, unnamed;
  double ms[ANSWERS_MOST];
} tally;

static int by_size(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// One job. False: the victim has come through init with fewer calls.
static bool die_at(const death *d, tally *t)
{
  ranks_set r;
  char limit[48];
  snprintf(limit, sizeof limit, "NCCL_BOOTSTRAP_TIMEOUT=%d", d->silent ? SHORT_S * SLOWER : 1000);
  const char *const env[] = {limit, NULL};
  start_processes(&r, &(run){.n = d->n, .seconds = 20, .fn = death_body, .arg = (void *)(uintptr_t)d, .env = env});
  r.expected[d->victim] = -SIGKILL;
  int bad = ranks_wait(&r);
  bool died = atomic_load(&the_board->word[SURVIVED]) == 0;
  for (int i = 0; i < d->n && died; i++) {
    if (i == d->victim) {
      continue;
    }
    double ms = (double)atomic_load(&the_board->word[TOLD_NS + i]) / 1e6;
    t->unnamed += atomic_load(&the_board->word[NAMED + i]) == 0;
    t->ms[t->n++ % ANSWERS_MOST] = ms;
    if (ms > 1000 && !d->silent) {
      print_message("late: %d ranks, rank %d, call %d; rank %d after %.0f ms\n", d->n, d->victim, d->call, i, ms);
    }
  }
  board_close();
  if (bad != 0) {
    fail_msg("%d ranks, rank %d dies after call %d%s", d->n, d->victim, d->call, d->silent ? ", before its hello" : "");
  }
  t->deaths += died;
  return died;
}

static void report(tally *t, const char *what, int n)
{
  int some = t->n < ANSWERS_MOST ? t->n : ANSWERS_MOST;
  assert_true(some > 0);
  qsort(t->ms, (size_t)some, sizeof t->ms[0], by_size);
  print_message("%d ranks, %s: %d deaths, %d answers, p50 %.0f, p99 %.0f, max %.0f ms, %d do not name the rank\n", n,
                what, t->deaths, t->n, t->ms[some / 2], t->ms[some * 99 / 100], t->ms[some - 1], t->unnamed);
}

// Ranks that the root knows.
static void known_ranks(int n)
{
  static tally t;
  t = (tally){0};
  bool all = getenv("INIT_DEATH_ALL") != NULL;
  for (int i = 0; i < 3; i++) {
    bool died = true;
    for (int call = 1; died; call += all ? 1 : (1 + call / 3) * (SLOWER > 1 ? 6 : 1)) {
      died = die_at(&(death){n, (int[]){0, 1, n - 1}[i], call, false}, &t);
    }
  }
  report(&t, "after the hello", n);
  int some = t.n < ANSWERS_MOST ? t.n : ANSWERS_MOST;
  assert_true(t.ms[some - 1] < GENEROUS(1) * 1000); // and not by the time-out, which is a hundred times as long
}

// Ranks that nobody knows yet.
static void unknown_ranks(int n)
{
  static tally t;
  t = (tally){0};
  for (int call = 1; call <= (SLOWER > 1 ? 2 : 4); call++) {
    assert_true(die_at(&(death){n, call % 2 ? n - 1 : 1, call, true}, &t));
  }
  report(&t, "before the hello", n);
}

static void four(void **state)
{
  (void)state;
  known_ranks(4);
  unknown_ranks(4);
}

static void eight(void **state)
{
  (void)state;
  known_ranks(8);
  unknown_ranks(8);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(four), cmocka_unit_test(eight)};
  return RUN_TESTS("init_death", tests, argc, argv);
}
