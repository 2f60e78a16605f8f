// Choices of algorithm, protocol, chunk size and channels over many sizes and machines are those of tuning_test.txt.
// The file is made anew by build/tests/comm_tuning_test --print > src/comm/tuning_test.txt Each line: a function, the
// sizes from which another algorithm or protocol is chosen, and a hash of chunk sizes and channels over all sizes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/param.h"
#include "coll/channels_rig.h"
#include "comm/comm.h"
#include "comm/collnet.h"
#include "comm/topology.h"
#include "comm/tuning.h"
#include "comm/tuning_priv.h"

enum { MOST = 64, SIZES = 160 };

// A machine, or several, and what the user asks for.
typedef struct world {
  int nranks, cores, channels;
  bool one_process, two_nodes, one_each, no_access, reproducible;
  int64_t threshold; // NCCL_HOST_DIRECT_THRESHOLD
  int64_t mbits;     // of the network's devices
  uint64_t delay;    // microseconds of the slowest way between machines, as the last rank reports it
  const char *algo, *proto;
} world;

static tt_comm_collnet collnet = {.longest = 40000};

// The node of a rank: one each where no ranks share a node.
static int node_of(const world *w, int rank)
{
  return w->one_each ? rank : w->two_nodes ? rank >= (w->nranks + 1) / 2 : 0;
}

static void fill_world(const world *w, struct ncclComm *c)
{
  int nodes[MOST];
  tt_params *p = (tt_params *)(uintptr_t)tt_params_get();
  p->host_direct_threshold = w->threshold;
  p->algo = w->algo;
  p->proto = w->proto;
  p->reproducible = w->reproducible;
  c->nranks = w->nranks;
  c->network.needed = (w->two_nodes || w->one_each) && w->nranks > 1;
  c->network.mbits = w->mbits;
  c->network.reduce = c->network.needed ? &collnet : NULL;
  c->machine.can_read = !c->network.needed && !w->no_access;
  c->machine.all_local = (w->one_process && !c->network.needed) || w->nranks == 1;
  c->machine.crowded = w->nranks > w->cores;
  c->machine.shares = w->nranks > 1 && !w->one_each;
  c->machine.local_ranks = w->nranks;
  c->peers = tt_calloc((size_t)w->nranks, sizeof *c->peers);
  for (int i = 0; i < w->nranks; i++) {
    nodes[i] = node_of(w, i);
    c->peers[i] = (tt_peer){
        .at.rank = i, .cpus = w->cores, .figures = tt_figures_default(), .geometry = tt_geometry_default(), .numa = -1};
    c->peers[i].at.proc.pid = w->one_process ? 1 : i + 1;
    c->peers[i].machine = (uint64_t)nodes[i];
    c->peers[i].net_chunk = 1 << 17;
  }
  c->peers[w->nranks - 1].net_delay = w->delay;
  assert_int_equal(tt_layout_create(w->nranks, nodes, &c->layout), ncclSuccess);
  assert_int_equal(tt_tuning_limits(&c->peers[0].figures, &c->peers[0].limits), ncclSuccess);
  assert_int_equal(tt_topology_create(c, &c->topology), ncclSuccess);
  assert_int_equal(tt_topology_give(c->topology, c->layout), ncclSuccess);
  if (w->channels > 0) {
    assert_int_equal(set_random_channels(c->layout, 1, w->channels), ncclSuccess);
  }
  assert_int_equal(tt_tuning_create(c, &c->tuning), ncclSuccess);
  tt_tuning_keep_order(c);
}

static void drop_world(struct ncclComm *c)
{
  tt_tuning_destroy(c->tuning);
  tt_topology_destroy(c->topology);
  tt_layout_destroy(c->layout);
  tt_free(c->peers);
}

// Around all powers of two and halves between, up to 4 GiB.
static int all_sizes(size_t sizes[SIZES])
{
  int n = 0;
  sizes[n++] = 0;
  for (size_t s = 4; s <= (size_t)1 << 30; s *= 2) {
    sizes[n++] = s - 1;
    sizes[n++] = s;
    sizes[n++] = s + 1;
    sizes[n++] = s / 2 * 3;
    sizes[n++] = s / 8 * 15;
  }
  return n;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
  return (h ^ v) * 0x100000001b3u;
}

static void print_world(FILE *to, const world *w)
{
  fprintf(to, "# %d ranks, %d cores%s%s%s%s", w->nranks, w->cores, w->one_process ? ", one process" : "",
          w->one_each    ? ", a node each"
          : w->two_nodes ? ", two nodes"
                         : "",
          w->no_access ? ", no direct access" : "", w->algo != NULL ? ", " : "");
  fprintf(to, "%s%s%s", w->algo != NULL ? w->algo : "", w->proto != NULL ? ", " : "", w->proto != NULL ? w->proto : "");
  if (w->threshold >= 0) {
    fprintf(to, ", threshold %d", (int)w->threshold);
  }
  if (w->mbits > 0) {
    fprintf(to, ", %d Mbit/s", (int)w->mbits);
  }
  if (w->delay > 0) {
    fprintf(to, ", far: %llu us", (unsigned long long)w->delay);
  }
  fprintf(to, "%s\n", w->reproducible ? ", reproducible" : "");
}

static const char *shown(const tt_choice *c, char text[64])
{
  static const char *const protos[TT_NFIFOS] = {[TT_SIMPLE] = "Simple", [TT_LL] = "LL", [TT_TOK] = "direct"};
  snprintf(text, 64, "%s %s%s", tt_algorithms(NULL)[c->algo].name, protos[c->proto], c->tiny ? " tiny" : "");
  return text;
}

// A function's choices on one line.
static void print_function(FILE *to, const struct ncclComm *c, tt_func f, bool in_network)
{
  size_t sizes[SIZES];
  char last[64] = "", text[64];
  int n = all_sizes(sizes);
  uint64_t hash = 0;
  fprintf(to, "%s%s:", tt_func_name(f), in_network ? ", the network reduces" : "");
  for (int i = 0; i < n; i++) {
    tt_choice d;
    ncclResult_t res = tt_tuning_choose(c, f, sizes[i], c->nranks - 1, in_network, &d);
    if (res != ncclSuccess) {
      snprintf(text, sizeof text, "error %d", res);
      d = (tt_choice){0};
    } else {
      shown(&d, text);
    }
    if (strcmp(text, last) != 0) {
      fprintf(to, "%s %zu %s", i == 0 ? "" : ",", sizes[i], text);
      strcpy(last, text);
    }
    hash = mix(mix(mix(hash, d.chunk), (uint64_t)d.channels), (uint64_t)(d.direct | d.fetches << 1 | d.networked << 2));
  }
  fprintf(to, " [%08x]\n", (unsigned)(hash ^ hash >> 32));
}

static void print_choices(FILE *to, const world *w)
{
  struct ncclComm *c = tt_calloc_line(sizeof *c);
  fill_world(w, c);
  print_world(to, w);
  for (int f = 0; f < TT_NFUNCS; f++) {
    print_function(to, c, (tt_func)f, false);
  }
  if (c->network.reduce != NULL) {
    print_function(to, c, TT_FUNC_ALLREDUCE, true);
  }
  drop_world(c);
  tt_free(c);
}

static void print_some(FILE *to)
{
  static const world worlds[] = {
      {1, 4, 0, false, .threshold = -1},
      {2, 4, 0, true, .threshold = -1},
      {4, 4, 0, true, .threshold = -1},
      {2, 4, 0, false, .threshold = -1},
      {4, 4, 0, false, .threshold = -1},
      {12, 16, 0, false, .threshold = -1},
      {4, 4, 0, false, .no_access = true, .threshold = -1},
      {4, 4, 0, false, .threshold = 0},
      {4, 4, 0, true, .threshold = 100000},
      {6, 2, 0, true, .threshold = -1},
      {2, 1, 0, false, .threshold = -1},
      {6, 2, 0, false, .threshold = -1},
      {9, 2, 0, false, .threshold = -1},
      {24, 2, 0, false, .threshold = -1},
      {24, 2, 0, false, .threshold = 4096},
      {4, 4, 0, false, .two_nodes = true, .threshold = -1},
      {20, 16, 0, false, .two_nodes = true, .threshold = -1},
      {20, 64, 0, false, .two_nodes = true, .threshold = -1},
      {20, 64, 0, false, .one_each = true, .threshold = -1},
      {8, 8, 5, false, .no_access = true, .threshold = -1},
      {4, 4, 0, false, .threshold = -1, .algo = "^Direct,DirectWrite"},
      {4, 4, 0, false, .threshold = -1, .proto = "Simple"},
      {4, 4, 0, false, .threshold = -1, .proto = "LL"},
      {4, 4, 0, false, .threshold = -1, .reproducible = true},
      {4, 2, 0, false, .threshold = -1, .reproducible = true},
      {4, 4, 0, false, .no_access = true, .threshold = -1, .algo = "Ring", .reproducible = true},
      {4, 4, 0, false, .two_nodes = true, .threshold = -1, .reproducible = true},
      {20, 64, 0, false, .two_nodes = true, .threshold = -1, .reproducible = true},
      {8, 4, 0, false, .one_each = true, .threshold = -1},
      {8, 4, 0, false, .one_each = true, .threshold = -1, .delay = 255}, // too little to count
      {8, 4, 0, false, .one_each = true, .threshold = -1, .delay = 1100},
      {8, 4, 0, false, .two_nodes = true, .threshold = -1, .delay = 1100},
      {20, 64, 0, false, .one_each = true, .threshold = -1, .delay = 5000},
      {20, 64, 0, false, .one_each = true, .threshold = -1, .delay = UINT64_MAX},
      {8, 8, 0, false, .threshold = -1, .delay = 5000},                                // without a network
      {8, 4, 0, false, .one_each = true, .threshold = -1, .mbits = 10, .delay = 1100}, // cannot be: as 10000
      {8, 4, 0, false, .one_each = true, .threshold = -1, .mbits = 1000, .delay = 1100},
  };
  for (size_t i = 0; i < TT_COUNT(worlds); i++) {
    print_choices(to, &worlds[i]);
  }
}

// Text of a file, ended by a zero. The caller frees it.
static char *read_all(FILE *f)
{
  size_t room = 1 << 20;
  char *text = calloc(1, room);
  assert_non_null(f);
  assert_non_null(text);
  size_t n = fread(text, 1, room - 1, f);
  assert_true(n > 0 && n < room - 1);
  return text;
}

static void choices_are_as_before(void **state)
{
  (void)state;
  FILE *wanted = fopen("src/comm/tuning_test.txt", "r"), *found = tmpfile();
  char *want = read_all(wanted);
  print_some(found);
  rewind(found);
  char *find = read_all(found), *w = want, *f = find;
  for (int line = 1; *w != '\0' || *f != '\0'; line++) {
    size_t nw = strcspn(w, "\n"), nf = strcspn(f, "\n");
    if (nw != nf || memcmp(w, f, nw) != 0) {
      fail_msg("tuning_test.txt, line %d, has\n  %.*s\nchosen now:\n  %.*s", line, (int)nw, w, (int)nf, f);
    }
    w += nw + (w[nw] == '\n');
    f += nf + (f[nf] == '\n');
  }
  free(want);
  free(find);
  fclose(wanted);
  fclose(found);
}

// What holds everywhere has no bits, no bounds, and all functions.
static bool is_unconditional(const tt_condition *c)
{
  return c->funcs == (1u << TT_NFUNCS) - 1 && c->where == 0 && c->bounds[0].quantity == TT_OF_NOTHING;
}

static void every_operation_has_a_rule(void **state)
{
  (void)state;
  size_t nalgo, nproto, nchunk;
  const tt_algo_rule *algos = tt_algo_rules(&nalgo);
  const tt_proto_rule *protos = tt_proto_rules(&nproto);
  const tt_chunk_rule *chunks = tt_chunk_rules(&nchunk);
  uint32_t funcs = 0, rows = 0;
  for (size_t i = 0; i < nalgo; i++) {
    bool always = algos[i].when.where == 0 && algos[i].when.bounds[0].quantity == TT_OF_NOTHING;
    funcs |= always ? algos[i].when.funcs & tt_algorithms(NULL)[algos[i].algos[0]].funcs : 0;
  }
  for (size_t i = 0; i < nchunk; i++) {
    rows |= is_unconditional(&chunks[i].when) ? chunks[i].algos : 0;
    assert_true(chunks[i].kind != TT_CHUNK_SHARE || chunks[i].passes > 0);
  }
  assert_int_equal(funcs, (1u << TT_NFUNCS) - 1);
  assert_int_equal(rows, (1u << TT_NALGOS) - 1);
  assert_true(is_unconditional(&protos[nproto - 1].when));
  assert_true(is_unconditional(&chunks[nchunk - 1].when)); // tuning.c takes the last one where no other holds
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(choices_are_as_before),
                                     cmocka_unit_test(every_operation_has_a_rule)};
  if (argc > 1 && strcmp(argv[1], "--print") == 0) {
    print_some(stdout);
    return 0;
  }
  return cmocka_run_group_tests_name("tuning", tests, NULL, NULL);
}
