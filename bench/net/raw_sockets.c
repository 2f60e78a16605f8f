// raw_sockets.c: what TCP sockets carry on this machine in the patterns of our collectives: two processes, each on a
// core of its own, over the loopback, with nothing but send() and recv().
//
//   raw_sockets [-s MiB] [-r rounds] [-q]      -s size of the large exchange (64)   -r rounds (15)   -q only the
//   summary
//
// Rows "name value unit what": a row's value is the best round's, because on a busy machine most rounds may be
// disturbed; the median follows. Bandwidth is bytes per direction and second: 64 MiB each way at once is what an
// all-reduce of 64 MiB moves between two ranks (32 MiB of contributions and 32 MiB of results, each way).
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../pin.h"
#include "raw.h"

#define ROUNDS_MAX 99
#define PINGS 2000
#define CHUNK_MAX ((size_t)4 << 20)

typedef struct bench {
  raw_pair pair;
  int rounds, quiet;
  size_t bytes;
  float *in, *out;
  double seconds[ROUNDS_MAX];
} bench;

// A pattern, once.
typedef int (*work)(bench *b);

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Fills b->seconds, sorted. The ends meet before each round by one ball there and back.
static int measure(bench *b, work fn)
{
  for (int r = -1; r < b->rounds; r++) { // the first one warms up
    if (raw_ping_pong(&b->pair, 8, 1) != 0) {
      return 1;
    }
    double start = raw_now();
    if (fn(b) != 0) {
      return 1;
    }
    if (r >= 0) {
      b->seconds[r] = raw_now() - start;
    }
  }
  qsort(b->seconds, (size_t)b->rounds, sizeof b->seconds[0], by_value);
  return 0;
}

static int ping(bench *b)
{
  return raw_ping_pong(&b->pair, 8, PINGS);
}

static int small_exchange(bench *b)
{
  for (int i = 0; i < PINGS; i++) {
    if (raw_exchange(&b->pair, b->in, b->out, 8) != 0) {
      return 1;
    }
  }
  return 0;
}

static int large_exchange(bench *b)
{
  return raw_exchange(&b->pair, b->in, b->out, b->bytes);
}

static int all_reduce(bench *b)
{
  return raw_all_reduce(&b->pair, b->in, b->out, b->bytes / sizeof(float));
}

static void row(const bench *b, const char *name, double best, double median, const char *unit, const char *what)
{
  if (b->pair.rank == 0) {
    printf("%-28s %8.2f %-5s median %8.2f  %s\n", name, best, unit, median, what);
    fflush(stdout);
  }
}

static int latency(bench *b, work fn, raw_wait wait, double per, const char *const text[2])
{
  b->pair.n = 1;
  b->pair.wait = wait;
  if (measure(b, fn) != 0) {
    return 1;
  }
  row(b, text[0], 1e6 * b->seconds[0] / per, 1e6 * b->seconds[b->rounds / 2] / per, "us", text[1]);
  return 0;
}

static int latencies(bench *b)
{
  return latency(b, ping, RAW_SPIN, 2 * PINGS,
                 (const char *[]){"tcp_one_way_spin", "8 bytes, half of there and back, recv() looks again"}) ||
         latency(b, ping, RAW_POLL, 2 * PINGS, (const char *[]){"tcp_one_way_sleep", "the same, recv() sleeps"}) ||
         latency(b, small_exchange, RAW_SPIN, PINGS,
                 (const char *[]){"tcp_exchange_spin", "8 bytes each way at once: a small all-reduce"}) ||
         latency(b, small_exchange, RAW_POLL, PINGS, (const char *[]){"tcp_exchange_sleep", "the same, poll() sleeps"});
}

// One way to do the large exchange; keeps the best.
static int try_exchange(bench *b, const char *waits, double best[2])
{
  char name[64], text[96];
  if (measure(b, large_exchange) != 0) {
    return 1;
  }
  double fast = 1e-9 * (double)b->bytes / b->seconds[0], median = 1e-9 * (double)b->bytes / b->seconds[b->rounds / 2];
  snprintf(name, sizeof name, "tcp_%zuk_%d_%s", b->pair.chunk >> 10, b->pair.n, waits);
  snprintf(text, sizeof text, "each way: chunks of %zu KiB, %d socket%s", b->pair.chunk >> 10, b->pair.n,
           b->pair.n == 1 ? "" : "s");
  if (!b->quiet) {
    row(b, name, fast, median, "GB/s", text);
  }
  best[0] = fast > best[0] ? fast : best[0];
  best[1] = median > best[1] ? median : best[1];
  return 0;
}

static int bandwidths(bench *b)
{
  static const size_t chunks[] = {16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
  static const int sockets[] = {1, 2, 4};
  static const char *const waits[] = {"spin", "poll", "both"};
  double best[2] = {0};
  for (size_t i = 0; i < 5 * 3 * 3; i++) {
    b->pair.chunk = chunks[i / 9];
    b->pair.n = sockets[i / 3 % 3];
    b->pair.wait = (raw_wait)(i % 3);
    if (try_exchange(b, waits[i % 3], best) != 0) {
      return 1;
    }
  }
  row(b, "tcp_exchange_best", best[0], best[1], "GB/s", "each way, the best of these");
  return 0;
}

// The same with the additions of an all-reduce.
static int reductions(bench *b)
{
  b->pair.wait = RAW_SPIN_THEN_POLL;
  b->pair.n = 1;
  double best[2] = {0};
  for (b->pair.chunk = 64 << 10; b->pair.chunk <= 1 << 20; b->pair.chunk *= 4) {
    if (measure(b, all_reduce) != 0) {
      return 1;
    }
    double fast = 1e-9 * (double)b->bytes / b->seconds[0], median = 1e-9 * (double)b->bytes / b->seconds[b->rounds / 2];
    best[0] = fast > best[0] ? fast : best[0];
    best[1] = median > best[1] ? median : best[1];
  }
  row(b, "tcp_all_reduce_best", best[0], best[1], "GB/s", "the same bytes, halves summed and sent back, one socket");
  return 0;
}

// Both ends written to, so that their pages are there.
static float *buffer(size_t bytes)
{
  float *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    perror("raw_sockets: no memory");
    exit(1);
  }
  for (size_t i = 0; i < bytes / sizeof *p; i++) {
    p[i] = (float)(i % 61);
  }
  return p;
}

int main(int argc, char **argv)
{
  static bench b = {.rounds = 15, .bytes = (size_t)64 << 20};
  for (int c; (c = getopt(argc, argv, "s:r:q")) != -1;) {
    switch (c) {
    case 's': b.bytes = strtoull(optarg, NULL, 0) << 20; break;
    case 'r': b.rounds = atoi(optarg); break;
    case 'q': b.quiet = 1; break;
    default: b.rounds = 0; break;
    }
  }
  if (b.rounds < 1 || b.rounds > ROUNDS_MAX || b.bytes == 0) {
    fprintf(stderr, "usage: raw_sockets [-s MiB] [-r rounds (1 to %d)] [-q]\n", ROUNDS_MAX);
    return 2;
  }
  alarm(300);
  if (raw_fork(&b.pair, 4, CHUNK_MAX) != 0) {
    return 1;
  }
  bench_pin(b.pair.rank);
  b.in = buffer(b.bytes);
  b.out = buffer(b.bytes);
  int res = latencies(&b) || bandwidths(&b) || reductions(&b);
  return raw_end(&b.pair) || res;
}
