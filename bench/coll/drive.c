// drive.c: measures several libraries side by side, in one interleaved run: for every round, every point, every library in turn.
//
//   coll_drive [-n ranks] [-r rounds] [-t ms] [-b bytes] [-e bytes] [-m warm|both|cold] [-c name,name] [-o file] [-l file] label=command …
//     -t  length of a block of calls (15 blocks give one figure)    -b -e  smallest and largest size, times 4 from 8 bytes
//     -c  collectives                                              -o     JSON      -l  rows "name value" with the machine's limits
//   The first command is what the others are compared with. Each starts `ranks` processes that call coll_obey.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drive.h"

#define BLOCKS 15
#define BLOCKS_LONG 3 // when two calls are longer than a block should be
#define CALLS_MAX 20000

const char *const coll_names[COLL_COUNT] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "alltoall", "sendrecv"};

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
  interrupted = sig;
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// A figure: per block the slowest rank, of those the lower quartile, because on a busy machine most blocks may be disturbed.
// Microseconds; 0 when the player is lost.
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

// How many calls make a block, found by trying (the best of three: a first try may connect, or be disturbed); warms up on the way.
static int64_t find_calls(const run_options *opt, player *p, coll_order o)
{
  o.blocks = 3;
  double us = 0;
  for (o.calls = 1;; o.calls *= 8) {
    us = ask_time(p, &o);
    if (us <= 0 || us * (double)o.calls > opt->block_us / 8 || o.calls > CALLS_MAX / 8) {
      break;
    }
  }
  double calls = us > 0 ? opt->block_us / us : 1;
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
    if (*calls == 0) {
      check_point(opt, r, who, &o);
      *calls = find_calls(opt, &opt->players[who], o);
    }
    o.calls = *calls;
    o.blocks = o.calls == 2 ? BLOCKS_LONG : BLOCKS;
    r->us[who][kind][size][cold][round] = ask_time(&opt->players[who], &o);
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
        for (int cold = 0; cold < 2 && !interrupted; cold++) {
          if (wanted(opt, kind, opt->sizes[size], cold)) {
            measure_point(opt, r, kind, size, cold, round);
          }
        }
      }
    }
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

// Times 4 from 8 bytes, and 64 MiB, which is no such size.
static void make_sizes(run_options *o)
{
  const size_t extra = (size_t)64 << 20;
  for (size_t bytes = 8, next; bytes <= o->max && o->nsizes < MAX_SIZES; bytes = next) {
    next = bytes < extra && 4 * bytes > extra ? extra : bytes == extra ? 2 * extra : 4 * bytes;
    if (bytes >= o->min) {
      o->sizes[o->nsizes++] = bytes;
    }
  }
}

// A buffer is so large that the buffers of two ranks are several times the last-level cache.
static size_t buffer_bytes(const run_options *o)
{
  long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  size_t bytes = (size_t)64 << 20;
  while (cache > 0 && (size_t)cache > bytes) {
    bytes *= 2;
  }
  return bytes > o->max ? bytes : o->max;
}

static int parse(int argc, char **argv, run_options *o)
{
  *o = (run_options){.nranks = 2, .rounds = 3, .cold = 1, .block_us = 1000, .min = 8, .max = (size_t)64 << 20, .kinds = ~0u};
  for (int c; (c = getopt(argc, argv, "n:r:t:b:e:m:c:o:l:")) != -1;) {
    switch (c) {
    case 'n': o->nranks = atoi(optarg); break;
    case 'r': o->rounds = atoi(optarg); break;
    case 't': o->block_us = 1000 * atof(optarg); break;
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
  o->buffer = buffer_bytes(o);
  return o->nplayers == 0 || o->nsizes == 0 || o->rounds < 1 || o->rounds > MAX_ROUNDS || o->nranks < 1 || o->nranks > MAX_RANKS;
}

int main(int argc, char **argv)
{
  static run_options o;
  static results r;
  if (parse(argc, argv, &o) != 0) {
    fprintf(stderr, "usage: coll_drive [-n ranks] [-r rounds] [-t ms] [-b bytes] [-e bytes] [-m warm|both|cold] [-c name,name] [-o json] "
                    "[-l limits] label=command ...\n");
    return 2;
  }
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  int res = players_start(&o);
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
