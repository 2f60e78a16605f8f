// net_bench.c: the socket network (src/net) beside bare sockets, in one run: 8-byte ping-pong, 64 MiB one way and both
// ways, by chunk size.
//
// Two processes over the loopback, ours and bare in turn, short blocks; best and lower quartile of the rounds (foreign
// load only ever adds). Usage: net_bench [rounds [threads [sockets]]]. Build: cc -O2 -Iinclude -Isrc
// bench/net/net_bench.c lib/libnccl_static.a -lsodium -lexpat -lpthread -lm -ldl.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/socket/socket_priv.h"
#include "os/clock.h"
#include "tools/sockets.h"

enum { TOTAL = 64 << 20, PINGS = 300, DEPTH = 8, MAX_ROUNDS = 999 };
#define NET (&tt_net_socket)

typedef struct side {
  int me;      // 0 or 1
  int pipe[2]; // read from, write to the other
  int raw;     // a bare socket to the other
  void *send, *recv;
  char *out, *in;
} side;

static void demand(int good, const char *what)
{
  if (!good) {
    fprintf(stderr, "net_bench: %s failed: %s\n", what, strerror(errno));
    exit(1);
  }
}

// Both are here.
static void meet(const side *s)
{
  char byte = 0;
  demand(write(s->pipe[1], &byte, 1) == 1 && read(s->pipe[0], &byte, 1) == 1, "meeting");
}

static void connect_net(side *s, int threads, int sockets)
{
  tt_net_env env = {.rank = s->me, .nranks = 2, .key = {{1}}};
  void *ctx = NULL, *listener = NULL;
  char handle[TT_NET_HANDLE];
  demand(NET->init(&env, &ctx) == ncclSuccess, "init");
  tt_snet *net = ctx;
  net->base.devs[0].nthreads = threads;
  net->base.devs[0].nsocks = sockets;
  demand(NET->listen(ctx, 0, handle, &listener) == ncclSuccess, "listen");
  demand(write(s->pipe[1], handle, sizeof(handle)) == sizeof(handle), "write");
  demand(read(s->pipe[0], handle, sizeof(handle)) == sizeof(handle), "read");
  while (s->send == NULL || s->recv == NULL) {
    if (s->send == NULL) {
      demand(NET->connect(ctx, 0, handle, &s->send) == ncclSuccess, "connect");
    }
    if (s->recv == NULL) {
      demand(NET->accept(listener, &s->recv) == ncclSuccess, "accept");
    }
  }
}

static void connect_raw(side *s)
{
  tt_addr at = {.family = AF_INET, .ip = {127, 0, 0, 1}};
  int listener = -1;
  tt_until until = {.deadline_ns = 0};
  if (s->me == 0) {
    demand(tt_tcp_listen(&at, &listener, &at) == 0, "listen");
    demand(write(s->pipe[1], &at, sizeof(at)) == sizeof(at), "write");
    while (tt_tcp_accept(listener, &s->raw, NULL) != 0) {
    }
    close(listener);
  } else {
    demand(read(s->pipe[0], &at, sizeof(at)) == sizeof(at), "read");
    demand(tt_tcp_connect(&at, &until, &s->raw) == 0, "connect");
  }
}

static void raw_ping(const side *s, int first)
{
  char b[8] = "";
  for (size_t at = 0; first && at == 0;) {
    at = send(s->raw, b, 8, MSG_DONTWAIT | MSG_NOSIGNAL) == 8;
  }
  while (recv(s->raw, b, 8, MSG_DONTWAIT) != 8) {
  }
  if (!first) {
    (void)!send(s->raw, b, 8, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

static void wait_for(void *request)
{
  size_t got;
  for (int done = 0; !done;) {
    demand(NET->test(request, &done, &got) == ncclSuccess, "test");
  }
}

static void *post(const side *s, void *data, size_t size)
{
  int tag = 0;
  void *r = NULL;
  demand(NET->irecv(s->recv, 1, &data, &size, &tag, NULL, NULL, &r) == ncclSuccess, "irecv");
  return r;
}

static void *start(const side *s, void *data, size_t size)
{
  void *r = NULL;
  demand(NET->isend(s->send, data, size, 0, NULL, NULL, &r) == ncclSuccess, "isend");
  return r;
}

static void net_ping(const side *s, int first)
{
  char in[8], out[8] = "";
  void *r = post(s, in, 8);
  if (first) {
    wait_for(start(s, out, 8));
  }
  wait_for(r);
  if (!first) {
    wait_for(start(s, out, 8));
  }
}

// 64 MiB out, in, or both, in pieces of `chunk`.
static void raw_stream(const side *s, int out, int in, size_t chunk)
{
  size_t sent = out ? 0 : TOTAL, got = in ? 0 : TOTAL;
  while (sent < TOTAL || got < TOTAL) {
    ssize_t n =
        sent < TOTAL ? send(s->raw, s->out + sent, TT_MIN(chunk, TOTAL - sent), MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    sent += n > 0 ? (size_t)n : 0;
    n = got < TOTAL ? recv(s->raw, s->in + got, TT_MIN(chunk, TOTAL - got), MSG_DONTWAIT) : 0;
    got += n > 0 ? (size_t)n : 0;
  }
}

// A window of requests of one direction.
typedef struct window {
  void *r[DEPTH];
  size_t posted, done;
} window;

static void advance(const side *s, window *w, int sends, size_t chunk)
{
  if (w->posted < TOTAL && w->posted - w->done < DEPTH * chunk) {
    char *at = (sends ? s->out : s->in) + w->posted;
    void *r = sends ? start(s, at, chunk) : post(s, at, chunk);
    if (r != NULL) {
      w->r[w->posted / chunk % DEPTH] = r;
      w->posted += chunk;
    }
  }
  for (int done = 1; done && w->done < w->posted;) {
    size_t got;
    demand(NET->test(w->r[w->done / chunk % DEPTH], &done, &got) == ncclSuccess, "test");
    w->done += done ? chunk : 0;
  }
}

static void net_stream(const side *s, int out, int in, size_t chunk)
{
  window o = {.done = out ? 0 : TOTAL, .posted = out ? 0 : TOTAL},
         i = {.done = in ? 0 : TOTAL, .posted = in ? 0 : TOTAL};
  while (o.done < TOTAL || i.done < TOTAL) {
    if (o.done < TOTAL) {
      advance(s, &o, 1, chunk);
    }
    if (i.done < TOTAL) {
      advance(s, &i, 0, chunk);
    }
  }
}

// One measurement: ours or bare, ping (chunk 0), one way or both. Seconds.
static double measure(const side *s, int bare, int both, size_t chunk)
{
  meet(s);
  uint64_t t = tt_now_ns();
  if (chunk == 0) {
    for (int i = 0; i < PINGS; i++) {
      (bare ? raw_ping : net_ping)(s, s->me == 0);
    }
  } else {
    (bare ? raw_stream : net_stream)(s, both || s->me == 0, both || s->me == 1, chunk);
  }
  meet(s);
  return (double)(tt_now_ns() - t) * 1e-9;
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Best and lower quartile: us for a ping, GB/s otherwise.
static void figures(double *times, int rounds, size_t chunk, double v[2])
{
  qsort(times, (size_t)rounds, sizeof(double), by_value);
  for (int i = 0; i < 2; i++) {
    double t = times[i * rounds / 4];
    v[i] = chunk == 0 ? t / PINGS / 2 * 1e6 : TOTAL / t * 1e-9;
  }
}

static void report(const char *name, double times[2][MAX_ROUNDS], int rounds, size_t chunk)
{
  double ours[2], bare[2];
  figures(times[0], rounds, chunk, ours);
  figures(times[1], rounds, chunk, bare);
  printf("%-10s %5zu KiB  ours %7.2f %7.2f  bare %7.2f %7.2f  %s  ours/bare %.2f %.2f\n", name, chunk >> 10, ours[0],
         ours[1], bare[0], bare[1], chunk == 0 ? "us half round trip" : "GB/s", ours[0] / bare[0], ours[1] / bare[1]);
}

static void run(const side *s, int rounds)
{
  static const size_t chunks[] = {64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20};
  static double times[2 * TT_COUNT(chunks) + 1][2][MAX_ROUNDS];
  for (int round = -1; round < rounds; round++) {
    for (size_t point = 0; point < TT_COUNT(times); point++) {
      int both = point > TT_COUNT(chunks);
      for (int bare = 0; bare < 2; bare++) {
        double t = measure(s, bare, both, point == 0 ? 0 : chunks[(point - 1) % TT_COUNT(chunks)]);
        times[point][bare][TT_MAX(round, 0)] = t;
      }
    }
  }
  for (size_t point = 0; point < TT_COUNT(times) && s->me == 0; point++) {
    size_t chunk = point == 0 ? 0 : chunks[(point - 1) % TT_COUNT(chunks)];
    report(point == 0 ? "ping-pong" : point > TT_COUNT(chunks) ? "both ways" : "one way", times[point], rounds, chunk);
  }
}

int main(int argc, char **argv)
{
  int rounds = argc > 1 ? TT_CLAMP(atoi(argv[1]), 1, MAX_ROUNDS) : 9, threads = argc > 2 ? atoi(argv[2]) : 0,
      sockets = argc > 3 ? atoi(argv[3]) : threads;
  int a[2], b[2];
  side s = {.raw = -1};
  setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
  demand(pipe(a) == 0 && pipe(b) == 0, "pipe");
  pid_t pid = fork();
  demand(pid >= 0, "fork");
  s.me = pid == 0;
  s.pipe[0] = s.me ? a[0] : b[0];
  s.pipe[1] = s.me ? b[1] : a[1];
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(s.me, &set);
  if (threads == 0) {
    sched_setaffinity(0, sizeof(set), &set);
  }
  s.out = malloc(TOTAL);
  s.in = malloc(TOTAL);
  demand(s.out != NULL && s.in != NULL, "malloc");
  memset(s.out, 1, TOTAL);
  memset(s.in, 1, TOTAL);
  connect_net(&s, threads, sockets);
  connect_raw(&s);
  run(&s, rounds);
  if (!s.me) {
    int status;
    waitpid(pid, &status, 0);
  }
  return 0;
}
