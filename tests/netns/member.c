// member.c: one rank of a job that something happens to: it loops over operations, checks every result, and says when
// and how the library reports what went wrong. Public API only. Started by tests/netns_faults.sh; environment: RANK,
// WORLD_SIZE, MEMBER_DIR.
//
//   member [option…]
//     -k small|large|ring|puts|mixed|inits   what to do (mixed); puts: one-sided
//     -c count      elements of a large operation (256Ki)
//     -s seconds    stop after so long (20)
//     -p ms         pause between rounds (2)
//     -t seconds    hard limit (120): then this is called a hang
//     -N            non-blocking communicator
//     -l R:seconds  rank R begins its first operation so much later
//     -w            wait for the file `go` between the creation of the communicator and the first operation
//   member hog FIRST LAST  keeps all these TCP ports busy until it is killed
//
// The members meet in the folder MEMBER_DIR: `id.N` unique ids, `joined.R`, `running.R` (after three rounds), `stop`
// (all leave together), `cut.R` ("shutdown" or "reset": rank R does that to all its TCP connections, behind the
// library's back). Exit status: 0 done, 3 the library reported an error (line "rank R: FAILED at T: code: text", T in
// seconds of the real-time clock), 4 wrong data, 5 the test itself cannot go on, 7 hang.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"
#include "tutti.h"

enum { DONE = 0, FAILED = 3, WRONG = 4, UNABLE = 5, HANGS = 7, SMALL = 16, FIRST_ROUNDS = 3, ID_SECONDS = 60 };

typedef enum { DO_SMALL, DO_LARGE, DO_RING, DO_PUTS, DO_MIXED, DO_INITS } activity;
static const char *const activities[] = {"small", "large", "ring", "puts", "mixed", "inits", NULL};

typedef struct member {
  int rank, nranks;
  activity what;
  size_t count;
  double seconds, pause_ms;
  int limit;
  bool nonblocking, hold;
  int late_rank;
  double late_s;
  const char *dir;
  ncclComm_t comm;
  cudaStream_t stream;
  int *in, *out;
  ncclWindow_t window; // of puts: `in`, then `out`
  int round, ids;
  double began, longest; // s; the longest round
} member;

static const char *_Atomic place = "the start"; // what the main thread is in; read by the signal handler

static double now(clockid_t clock)
{
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void sleep_ms(double ms)
{
  struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)((ms - 1000 * (double)(long)(ms / 1000)) * 1e6)};
  nanosleep(&t, NULL);
}

static void say(const member *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const member *m, const char *fmt, ...)
{
  char text[2048];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  printf("rank %d: %s\n", m->rank, text);
  fflush(stdout);
}

__attribute__((noreturn)) static void leave(int status)
{
  fflush(NULL);
  _exit(status);
}

static void on_alarm(int sig)
{
  (void)sig;
  char text[160];
  int n = snprintf(text, sizeof text, "HANGS in %s\n", place);
  if (write(STDOUT_FILENO, text, (size_t)n) == n) {
    _exit(HANGS);
  }
  _exit(HANGS);
}

// --- The folder

static void path_of(const member *m, char path[512], const char *name, int number)
{
  if (number < 0) {
    snprintf(path, 512, "%s/%s", m->dir, name);
  } else {
    snprintf(path, 512, "%s/%s.%d", m->dir, name, number);
  }
}

static bool exists(const member *m, const char *name)
{
  char path[512];
  path_of(m, path, name, -1);
  return access(path, F_OK) == 0;
}

// Appears whole or not at all.
static void publish(const member *m, const char *name, int number, const void *data, size_t size)
{
  char path[512], draft[520];
  path_of(m, path, name, number);
  snprintf(draft, sizeof draft, "%s.draft", path);
  int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) != 0 || rename(draft, path) != 0) {
    say(m, "cannot write %s: %s", path, strerror(errno));
    leave(UNABLE);
  }
}

// Waits for the file; false after `seconds`.
static bool read_file(const member *m, const char *name, int number, void *data, size_t size, double seconds)
{
  char path[512];
  path_of(m, path, name, number);
  for (double end = now(CLOCK_MONOTONIC) + seconds; now(CLOCK_MONOTONIC) < end; sleep_ms(2)) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      ssize_t n = read(fd, data, size);
      close(fd);
      return n >= 0;
    }
  }
  return false;
}

// --- What the library says

// Reports the library's error, and how long it takes to abort.
__attribute__((noreturn)) static void failed(member *m, const char *doing, ncclResult_t res)
{
  ncclResult_t state = ncclSuccess;
  say(m, "FAILED at %.3f: %d %s: in %s, round %d: %s", now(CLOCK_REALTIME), (int)res, ncclGetErrorString(res), doing,
      m->round, ncclGetLastError(m->comm));
  if (m->comm != NULL) {
    place = "ncclCommGetAsyncError after the error";
    bool refused = res == ncclInvalidArgument || res == ncclInvalidUsage; // the call was wrong, not the communicator
    if (!refused && (ncclCommGetAsyncError(m->comm, &state) != ncclSuccess || state == ncclSuccess)) {
      say(m, "the communicator does not remember the error (state %d)", (int)state);
    }
    double start = now(CLOCK_MONOTONIC);
    place = "ncclCommAbort";
    res = ncclCommAbort(m->comm);
    say(m, "ncclCommAbort: %d after %.3f s", (int)res, now(CLOCK_MONOTONIC) - start);
  }
  leave(FAILED);
}

// Follows a call of a non-blocking communicator to its end.
static ncclResult_t settle(const member *m, ncclResult_t res)
{
  while (res == ncclInProgress) {
    sleep_ms(0.1);
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = ncclCommGetAsyncError(m->comm, &state);
    res = asked != ncclSuccess ? asked : state;
  }
  return res;
}

static void must(member *m, const char *doing, ncclResult_t res)
{
  res = settle(m, res);
  if (res != ncclSuccess) {
    failed(m, doing, res);
  }
}

static void complete(member *m, const char *doing)
{
  ncclResult_t res;
  if (!m->nonblocking) {
    must(m, doing, tuttiStreamSynchronize(m->stream));
    return;
  }
  do { // an idle stream says nothing about errors: the communicator is asked last
    ncclResult_t state = ncclSuccess;
    sleep_ms(0.05);
    res = tuttiStreamQuery(m->stream);
    must(m, "ncclCommGetAsyncError", ncclCommGetAsyncError(m->comm, &state));
    if (state != ncclSuccess && state != ncclInProgress) {
      failed(m, doing, state);
    }
  } while (res == ncclInProgress);
  must(m, doing, res);
}

// --- The rounds

static void join(member *m)
{
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = m->nonblocking ? 0 : 1;
  place = "meeting the other members";
  if (m->rank == 0) {
    must(m, "ncclGetUniqueId", ncclGetUniqueId(&id));
    publish(m, "id", m->ids, &id, sizeof id);
  } else if (!read_file(m, "id", m->ids, &id, sizeof id, ID_SECONDS)) {
    say(m, "rank 0 gave no id");
    leave(UNABLE);
  }
  m->ids++;
  place = "ncclCommInitRankConfig";
  must(m, "ncclCommInitRankConfig", ncclCommInitRankConfig(&m->comm, m->nranks, id, m->rank, &config));
}

static void part(member *m)
{
  place = "ncclCommFinalize";
  must(m, "ncclCommFinalize", ncclCommFinalize(m->comm));
  place = "ncclCommDestroy";
  ncclResult_t res = ncclCommDestroy(m->comm);
  m->comm = NULL;
  must(m, "ncclCommDestroy", res);
}

static void check(const member *m, const char *doing, size_t i, int64_t want)
{
  if (m->out[i] != (int)want) {
    say(m, "WRONG in %s, round %d: element %zu is %d, not %lld", doing, m->round, i, m->out[i], (long long)want);
    leave(WRONG);
  }
}

static int64_t value(const member *m, int rank, size_t i)
{
  return (int64_t)(rank + 1) * (int64_t)(i % 1000 + 1) + m->round % 1000;
}

// Element 0 says whether a rank wants to stop: so all know it at the same time. Returns how many do.
static int sum(member *m, size_t count, bool want_stop)
{
  const char *doing = count <= SMALL ? "a small all-reduce" : "a large all-reduce";
  place = doing;
  for (size_t i = 1; i < count; i++) {
    m->in[i] = (int)value(m, m->rank, i);
  }
  m->in[0] = want_stop;
  memset(m->out, 0xff, count * sizeof *m->out);
  must(m, doing, ncclAllReduce(m->in, m->out, count, ncclInt, ncclSum, m->comm, m->stream));
  complete(m, doing);
  for (size_t i = 1; i < count; i++) {
    int64_t n = m->nranks;
    check(m, doing, i, n * (n + 1) / 2 * (int64_t)(i % 1000 + 1) + n * (m->round % 1000));
  }
  return m->out[0];
}

static void ring(member *m)
{
  const char *doing = "send and receive";
  int next = (m->rank + 1) % m->nranks, before = (m->rank + m->nranks - 1) % m->nranks;
  place = doing;
  for (size_t i = 0; i < m->count; i++) {
    m->in[i] = (int)value(m, m->rank, i);
  }
  memset(m->out, 0xff, m->count * sizeof *m->out);
  must(m, doing, ncclGroupStart());
  ncclResult_t sent = ncclSend(m->in, m->count, ncclInt, next, m->comm, m->stream);
  ncclResult_t received = ncclRecv(m->out, m->count, ncclInt, before, m->comm, m->stream);
  ncclResult_t ended = ncclGroupEnd();
  must(m, doing, sent);
  must(m, doing, received);
  must(m, doing, ended);
  complete(m, doing);
  for (size_t i = 0; i < m->count; i++) {
    check(m, doing, i, value(m, before, i));
  }
}

static void open_window(member *m)
{
  place = "ncclCommWindowRegister";
  must(m, place,
       ncclCommWindowRegister(m->comm, m->in, 2 * m->count * sizeof *m->in, &m->window, NCCL_WIN_COLL_SYMMETRIC));
}

static void close_window(member *m)
{
  place = "ncclCommWindowDeregister";
  must(m, place, ncclCommWindowDeregister(m->comm, m->window));
}

static void wait_for(member *m, int peer)
{
  ncclWaitSignalDesc_t d = {.opCnt = 1, .peer = peer, .sigIdx = 0, .ctx = 0};
  must(m, place, ncclWaitSignal(1, &d, m->comm, m->stream));
}

// Puts its data into the window of the rank half the ring away, on another host, waits for its own, and says with a
// signal that these may be overwritten. Element 0 says whether a rank wants to stop, as far as a pair goes.
static bool put(member *m, bool want_stop)
{
  const char *doing = "a put and the wait for one";
  int half = m->nranks / 2, to = (m->rank + half) % m->nranks, from = (m->rank + m->nranks - half) % m->nranks;
  place = doing;
  for (size_t i = 1; i < m->count; i++) {
    m->in[i] = (int)value(m, m->rank, i);
  }
  m->in[0] = want_stop;
  must(m, doing,
       ncclPutSignal(m->in, m->count, ncclInt, to, m->window, m->count * sizeof *m->in, 0, 0, 0, m->comm, m->stream));
  wait_for(m, from);
  complete(m, doing);
  bool stops = want_stop || m->out[0] != 0;
  for (size_t i = 1; i < m->count; i++) {
    check(m, doing, i, value(m, from, i));
  }
  must(m, doing, ncclSignal(from, 0, 0, 0, m->comm, m->stream));
  wait_for(m, to);
  complete(m, doing);
  return stops;
}

// One round; true when all are to leave.
static bool take_turn(member *m)
{
  bool want_stop = exists(m, "stop") || now(CLOCK_MONOTONIC) - m->began > m->seconds;
  if (m->what == DO_INITS && m->round > 0) {
    part(m);
    join(m);
  }
  if (m->what == DO_PUTS) {
    return put(m, want_stop);
  }
  if (m->what == DO_RING || m->what == DO_MIXED) {
    ring(m);
  }
  if (m->what == DO_MIXED) {
    sum(m, m->count, false);
  }
  return sum(m, m->what == DO_LARGE ? m->count : SMALL, want_stop) > 0;
}

static void rounds(member *m)
{
  bool over = false;
  m->began = now(CLOCK_MONOTONIC);
  for (m->round = 0; !over; m->round++) {
    double start = now(CLOCK_MONOTONIC);
    over = take_turn(m);
    double took = now(CLOCK_MONOTONIC) - start;
    m->longest = took > m->longest ? took : m->longest;
    if (m->round == FIRST_ROUNDS) {
      publish(m, "running", m->rank, "", 0);
    }
    sleep_ms(m->pause_ms);
  }
  say(m, "done: %d rounds, the longest %.3f s", m->round, m->longest);
}

// --- Mischief

// Cuts a connection without closing its descriptor: the library finds out as if the network had done it. True when it
// was one.
static bool cut(int fd, const char *how)
{
  struct sockaddr_storage a;
  const struct sockaddr none = {.sa_family = AF_UNSPEC};
  socklen_t size = sizeof a;
  if (getpeername(fd, (struct sockaddr *)&a, &size) != 0 || (a.ss_family != AF_INET && a.ss_family != AF_INET6)) {
    return false;
  }
  // By the bare system call: ThreadSanitizer would rightly call it a race with the library's threads.
  return strncmp(how, "reset", 5) == 0 ? syscall(SYS_connect, fd, &none, sizeof none) == 0
                                       : shutdown(fd, SHUT_RDWR) == 0;
}

static void *mischief(void *arg)
{
  const member *m = arg;
  char how[16] = "";
  if (read_file(m, "cut", m->rank, how, sizeof how - 1, 3600)) {
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) {
      n += cut(fd, how);
    }
    say(m, "%s of %d connections at %.3f", how, n, now(CLOCK_REALTIME));
  }
  return NULL;
}

// Binds every port of a range, IPv4 and IPv6, so that nobody else gets one.
__attribute__((noreturn)) static void hog(int first, int last)
{
  const int one = 1;
  int taken = 0;
  for (int port = first; port <= last; port++) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 b = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    int fd4 = socket(AF_INET, SOCK_STREAM, 0), fd6 = socket(AF_INET6, SOCK_STREAM, 0);
    taken += bind(fd4, (struct sockaddr *)&a, sizeof a) == 0;
    if (fd6 >= 0 && setsockopt(fd6, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) == 0) {
      taken += bind(fd6, (struct sockaddr *)&b, sizeof b) == 0;
    }
  }
  printf("hog: %d sockets bound to ports %d to %d\n", taken, first, last);
  fflush(stdout);
  for (;;) {
    pause();
  }
}

// --- Start

static bool parse(member *m, int argc, char **argv)
{
  for (int c; (c = getopt(argc, argv, "k:c:s:p:t:l:Nw")) != -1;) {
    switch (c) {
    case 'k':
      for (m->what = DO_SMALL; activities[m->what] != NULL && strcmp(activities[m->what], optarg) != 0; m->what++) {
      }
      break;
    case 'c': m->count = strtoull(optarg, NULL, 0); break;
    case 's': m->seconds = atof(optarg); break;
    case 'p': m->pause_ms = atof(optarg); break;
    case 't': m->limit = atoi(optarg); break;
    case 'l':
      if (sscanf(optarg, "%d:%lf", &m->late_rank, &m->late_s) != 2) {
        return false;
      }
      break;
    case 'N': m->nonblocking = true; break;
    case 'w': m->hold = true; break;
    default: return false;
    }
  }
  const char *rank = getenv("RANK"), *nranks = getenv("WORLD_SIZE");
  m->dir = getenv("MEMBER_DIR");
  m->rank = rank == NULL ? -1 : atoi(rank);
  m->nranks = nranks == NULL ? 0 : atoi(nranks);
  m->count = m->count < SMALL ? SMALL : m->count;
  return activities[m->what] != NULL && m->dir != NULL && m->rank >= 0 && m->rank < m->nranks && m->limit > 0;
}

int main(int argc, char **argv)
{
  static member m = {.what = DO_MIXED, .count = 256 << 10, .seconds = 20, .pause_ms = 2, .limit = 120};
  if (argc == 4 && strcmp(argv[1], "hog") == 0) {
    hog(atoi(argv[2]), atoi(argv[3]));
  }
  if (!parse(&m, argc, argv)) {
    fprintf(stderr, "member: wrong option, or RANK, WORLD_SIZE, MEMBER_DIR missing: see the head of member.c\n");
    return UNABLE;
  }
  pthread_t thread;
  if (posix_memalign((void **)&m.in, 4096, 2 * m.count * sizeof *m.in) != 0 ||
      pthread_create(&thread, NULL, mischief, &m) != 0 || pthread_detach(thread) != 0) {
    return UNABLE;
  }
  memset(m.in, 0, 2 * m.count * sizeof *m.in);
  m.out = m.in + m.count;
  signal(SIGALRM, on_alarm);
  alarm((unsigned)m.limit);
  must(&m, "tuttiSetDevice", tuttiSetDevice(m.rank));
  must(&m, "tuttiStreamCreate", tuttiStreamCreate(&m.stream, TUTTI_STREAM_NON_BLOCKING));
  join(&m);
  publish(&m, "joined", m.rank, "", 0);
  place = "waiting for go";
  while (m.hold && !exists(&m, "go")) {
    sleep_ms(5);
  }
  if (m.late_s > 0 && m.rank == m.late_rank) {
    sleep_ms(1000 * m.late_s);
  }
  if (m.what == DO_PUTS) {
    open_window(&m);
  }
  rounds(&m);
  if (m.what == DO_PUTS) {
    close_window(&m);
  }
  part(&m);
  must(&m, "tuttiStreamDestroy", tuttiStreamDestroy(m.stream));
  free(m.in);
  return DONE; // so that leaks are looked for
}
