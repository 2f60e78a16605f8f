// drive.c: measures several libraries side by side, in one interleaved run: for every round, every point, every library
// in turn.
//
//   coll_drive [-n ranks] [-r rounds] [-t ms] [-T seconds] [-b bytes] [-e bytes] [-m warm|both|cold] [-c name,name] [-o
//   file] [-l file]
//     label=command …
//     -T  begin no further point after so many seconds: later rounds are then incomplete, and it is said
//     -t  length of a block of calls (15 blocks give one figure)
//     -b  smallest and
//     -e  largest size: times 4 from 8 bytes, times 2 from 8 MiB
//     -c  collectives
//     -o  JSON
//     -l  rows "name value" with the machine's limits
//   The first command is what the others are compared with. Each starts `ranks` processes that call coll_obey.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "drive.h"

#define BLOCKS 15
#define BLOCKS_LONG 3   // when two calls are longer than a block should be
#define LONG_US 20000.0 // from here on a block is a single call
#define CALLS_MAX 20000
#define TRIES_MAX 12                 // to find out how many calls make a block
#define WARM_BYTES ((size_t)8 << 20) // sizes from this one on are warmed up, every player alike:
#define WARM_CALLS 50                // by so many calls, but for no longer than
#define WARM_S 1.0

const char *const coll_names[COLL_COUNT] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                            "reduce",     "alltoall",       "sendrecv"};

static volatile sig_atomic_t interrupted;
static double end_at; // no point begins later; 0: no limit

static void on_signal(int sig)
{
  interrupted = sig;
}

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// A figure: per block the slowest rank, of those the lower quartile, because on a busy machine most blocks may be
// disturbed. Microseconds; 0 when the player is lost.
static double ask_time(player *p, const coll_order *o)
{
  coll_answer a[MAX_RANKS];
  double slowest[COLL_BLOCKS_MAX] = {0};
  if (player_ask(p, o, a) != 0) {
    return 0;
  }
  for (int k = 0; k < p->nranks; k++) {
    for (int b = 0; b < o->blocks; b++) {
      slowest[b] = a[k].seconds[b] > slowest[b] ? a[k].seconds[b] : slowest[b];
    }
  }
  qsort(slowest, (size_t)o->blocks, sizeof slowest[0], by_value);
  return 1e6 * slowest[o->blocks / 4];
}

static int late(void)
{
  return end_at > 0 && now() > end_at;
}

// Before a player's first figure of a large size: calls whose time does not count, in which what is done only once is
// done: pages, huge ones, which come bit by bit, connections. For all collectives together, because their buffers are
// the same. Ends with the run's time at the latest.
static void warm_up(run_options *opt, results *r, int who, int size, coll_order o)
{
  double end = now() + WARM_S;
  if (r->warm[who][size][o.cold] || opt->sizes[size] < WARM_BYTES) {
    return;
  }
  r->warm[who][size][o.cold] = 1;
  o.blocks = o.calls = 1;
  for (int i = 0; i < WARM_CALLS && now() < end && !late() && !interrupted; i++) {
    ask_time(&opt->players[who], &o);
  }
}

// How many calls make a block, found by trying (the best of three: a first try may connect, or be disturbed); warms up
// on the way. A block begins and ends together, which costs many ranks on few cores as much as some calls: so the
// figure is that of a block of half the length at least.
static int64_t find_calls(const run_options *opt, player *p, coll_order o)
{
  double us = 0, calls = 0;
  o.blocks = 1;
  o.calls = 1;
  if (ask_time(p, &o) > LONG_US && ask_time(p, &o) > LONG_US) {
    return 1;
  }
  o.blocks = 3;
  for (int tries = 0; tries < TRIES_MAX; tries++) {
    us = ask_time(p, &o);
    calls = us > 0 ? opt->block_us / us : 1;
    if ((double)o.calls >= calls / 2 || o.calls >= CALLS_MAX / 2) {
      break;
    }
    o.calls = calls > 8 * (double)o.calls ? 8 * o.calls : (int64_t)calls;
    o.calls = o.calls < CALLS_MAX ? o.calls : CALLS_MAX;
  }
  return calls < 2 ? 2 : calls > CALLS_MAX ? CALLS_MAX : (int64_t)calls;
}

static void check_point(run_options *opt, results *r, int who, const coll_order *point)
{
  coll_answer a[MAX_RANKS];
  coll_order o = *point;
  o.what = COLL_ORDER_CHECK;
  if (player_ask(&opt->players[who], &o, a) != 0) {
    return;
  }
  for (int k = 0; k < opt->nranks; k++) {
    if (a[k].wrong == COLL_LACKS) {
      r->lacks[who][o.kind] = 1;
      return;
    }
    r->wrong[who][o.kind] += a[k].wrong;
  }
}

// One figure of every library for one point; another one begins each round.
static void measure_point(run_options *opt, results *r, int kind, int size, int cold, int round)
{
  for (int i = 0; i < opt->nplayers && !interrupted; i++) {
    int who = (i + round) % opt->nplayers;
    coll_order o = {.what = COLL_ORDER_TIME, .kind = kind, .bytes = (int64_t)opt->sizes[size], .cold = cold};
    int64_t *calls = &r->calls[who][kind][size][cold];
    if (r->lacks[who][kind]) {
      continue;
    }
    if (*calls == 0) {
      if (!cold || opt->cold == 2) { // the same call, at the same place
        check_point(opt, r, who, &o);
      }
      if (r->lacks[who][kind]) {
        continue;
      }
      warm_up(opt, r, who, size, o);
      *calls = find_calls(opt, &opt->players[who], o);
    }
    o.calls = *calls;
    o.blocks = o.calls <= 2 ? BLOCKS_LONG : BLOCKS;
    double us = ask_time(&opt->players[who], &o);
    r->us[who][kind][size][cold][round] = us;
    if (us > 0 && us * (double)o.calls < opt->block_us / 4 && o.calls < CALLS_MAX) {
      *calls = 0; // was disturbed when it was tried: the next round tries again
    }
  }
}

static int wanted(const run_options *opt, int kind, size_t bytes, int cold)
{
  if (!(opt->kinds & 1u << kind) || (cold && 2 * bytes > opt->buffer)) { // one place only: warm says it all
    return 0;
  }
  int parts = kind == COLL_REDUCE_SCATTER || kind == COLL_ALL_GATHER || kind == COLL_ALL_TO_ALL;
  return (cold ? opt->cold >= 1 : opt->cold <= 1) && (!parts || bytes >= sizeof(float) * (size_t)opt->nranks);
}

static void measure_all(run_options *opt, results *r)
{
  for (int round = 0; round < opt->rounds; round++) {
    for (int kind = 0; kind < COLL_COUNT; kind++) {
      if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\rround %d of %d: %-16s", round + 1, opt->rounds, coll_names[kind]);
      }
      for (int size = 0; size < opt->nsizes; size++) {
        for (int cold = 0; cold < 2 && !interrupted && !late(); cold++) {
          if (wanted(opt, kind, opt->sizes[size], cold)) {
            measure_point(opt, r, kind, size, cold, round);
          }
        }
      }
    }
  }
  if (late()) {
    fprintf(stderr, "coll_drive: %g seconds are over: not every round is complete\n", opt->seconds);
  }
  if (isatty(STDERR_FILENO)) {
    fprintf(stderr, "\r%40s\r", "");
  }
}

// "8", "64K", "64M"
static size_t parse_bytes(const char *text)
{
  char *end;
  size_t v = strtoull(text, &end, 0);
  return *end == 'K' ? v << 10 : *end == 'M' ? v << 20 : *end == 'G' ? v << 30 : v;
}

static unsigned parse_kinds(const char *text)
{
  unsigned kinds = 0;
  char *copy = strdup(text), *save = NULL;
  for (char *word = strtok_r(copy, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
    for (int k = 0; k < COLL_COUNT; k++) {
      kinds |= strcmp(word, coll_names[k]) == 0 ? 1u << k : 0;
    }
  }
  free(copy);
  return kinds;
}

// Times 4 from 8 bytes to 8 MiB, then times 2.
static void make_sizes(run_options *o)
{
  for (size_t bytes = 8, next; bytes <= o->max && o->nsizes < MAX_SIZES; bytes = next) {
    next = bytes < (size_t)8 << 20 ? 4 * bytes : 2 * bytes;
    if (bytes >= o->min) {
      o->sizes[o->nsizes++] = bytes;
    }
  }
}

// Bytes of the last-level cache; 0: unknown. The C library's figure is that of the whole machine on some virtual ones:
// the kernel's is asked first.
static size_t cache_bytes(void)
{
  unsigned long kib = 0;
  FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
  int known = f != NULL && fscanf(f, "%luK", &kib) == 1;
  if (f != NULL) {
    fclose(f);
  }
  long other = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return known ? (size_t)kib << 10 : other > 0 ? (size_t)other : 0;
}

// Buffers are so large that those of all ranks together are several times the last-level cache; where every call uses
// the same place, no larger than that.
static size_t buffer_bytes(const run_options *o)
{
  if (o->cold == 0) {
    return o->max;
  }
  size_t cache = cache_bytes();
  size_t bytes = (size_t)64 << 20;
  while (cache > bytes) {
    bytes *= 2;
  }
  bytes = bytes * 2 / (size_t)(o->nranks < 2 ? 2 : o->nranks);
  return bytes > o->max ? bytes : o->max;
}

// Bytes that processes may still take, of which a quarter is left to others. 0: unknown.
static size_t memory_left(void)
{
  char line[128];
  unsigned long kib = 0;
  FILE *f = fopen("/proc/meminfo", "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL && sscanf(line, "MemAvailable: %lu", &kib) != 1) {
  }
  if (f != NULL) {
    fclose(f);
  }
  return ((size_t)kib << 10) / 4 * 3;
}

// Sets the size of the buffers. The largest sizes are left out, and it is said, where the buffers of all players do not
// fit into memory.
static int fit_memory(run_options *o)
{
  size_t left = memory_left(), all = 2 * (size_t)o->nranks * (size_t)o->nplayers;
  for (o->buffer = buffer_bytes(o); left > 0 && o->buffer > left / all; o->buffer = buffer_bytes(o)) {
    if (o->nsizes == 1 || o->max < o->buffer) {
      fprintf(stderr, "coll_drive: %zu MiB of memory are not enough: %zu buffers of %zu MiB\n", left >> 20, all,
              o->buffer >> 20);
      return 1;
    }
    fprintf(stderr, "coll_drive: %zu MiB left out: %zu buffers of %zu MiB, and %zu MiB of memory\n",
            o->sizes[o->nsizes - 1] >> 20, all, o->buffer >> 20, left >> 20);
    o->max = o->sizes[--o->nsizes - 1];
  }
  return 0;
}

static int parse(int argc, char **argv, run_options *o)
{
  *o = (run_options){
      .nranks = 2, .rounds = 3, .cold = 1, .block_us = 1000, .min = 8, .max = (size_t)64 << 20, .kinds = ~0u};
  for (int c; (c = getopt(argc, argv, "n:r:t:T:b:e:m:c:o:l:")) != -1;) {
    switch (c) {
    case 'n': o->nranks = atoi(optarg); break;
    case 'r': o->rounds = atoi(optarg); break;
    case 't': o->block_us = 1000 * atof(optarg); break;
    case 'T': o->seconds = atof(optarg); break;
    case 'b': o->min = parse_bytes(optarg); break;
    case 'e': o->max = parse_bytes(optarg); break;
    case 'm': o->cold = strcmp(optarg, "warm") == 0 ? 0 : strcmp(optarg, "cold") == 0 ? 2 : 1; break;
    case 'c': o->kinds = parse_kinds(optarg); break;
    case 'o': o->json = optarg; break;
    case 'l': o->limits = optarg; break;
    default: return 1;
    }
  }
  for (; optind < argc && o->nplayers < MAX_PLAYERS; optind++) {
    char *command = strchr(argv[optind], '=');
    if (command == NULL) {
      return 1;
    }
    *command = '\0';
    o->players[o->nplayers++] = (player){.name = argv[optind], .command = command + 1};
  }
  make_sizes(o);
  return o->nplayers == 0 || o->nsizes == 0 || o->rounds < 1 || o->rounds > MAX_ROUNDS || o->nranks < 1 ||
         o->nranks > MAX_RANKS;
}

int main(int argc, char **argv)
{
  static run_options o;
  static results r;
  if (parse(argc, argv, &o) != 0) {
    fprintf(stderr, "usage: coll_drive [-n ranks] [-r rounds] [-t ms] [-T seconds] [-b bytes] [-e bytes] [-m "
                    "warm|both|cold] [-c name,name] "
                    "[-o json] [-l limits] label=command ...\n");
    return 2;
  }
  if (fit_memory(&o) != 0) {
    return 1;
  }
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  int res = players_start(&o);
  end_at = o.seconds > 0 ? now() + o.seconds : 0;
  if (res == 0) {
    measure_all(&o, &r);
  }
  players_stop(&o);
  if (res == 0) {
    report_print(&o, &r);
    res = o.json != NULL ? report_json(&o, &r) : 0;
  }
  return res != 0 || o.players[0].lost || interrupted;
}
