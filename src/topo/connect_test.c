// connect_test.c: channels of 1, 2 and 4 of all known machines, as NCCL 2.30.7 connects them; shapes of trees; many
// nodes; bad input.
#include "topo/plan_rig.h"

// ---- Known channels ----

// Our line for a ring or rank of the file; the file's own begins alike.
static void our_ring(const known *k, int channel, char *out)
{
  int order[RIG_MAX_RANKS * 4];
  tt_connect_ring(k->c, channel, 0, order);
  out += sprintf(out, "ring %d :", channel);
  for (int i = 0; i < k->c->nranks; i++) {
    out += sprintf(out, " %d", order[i]);
  }
}

static void our_trees(const known *k, int rank, char *out)
{
  out += sprintf(out, "rank %d :", rank);
  for (int ch = 0; ch < k->c->nchannels; ch++) {
    tt_tree_place p = tt_connect_tree(k->c, ch, rank);
    out += sprintf(out, " [%d] %d/%d/%d->%d->%d", ch, p.down[0], p.down[1], p.down[2], rank, p.up);
  }
}

static bool same_channels(known *k)
{
  char *line = malloc(RIG_MAX_LINE), *ours = malloc(RIG_MAX_LINE);
  FILE *f = known_open(k, "channels.txt");
  bool same =
      f != NULL && k->c->nsearch == k->search && k->c->nchannels == k->channels && k->c->nvls_channels == k->nvls;
  int lines = 0;
  if (!same) {
    print_message("%s, %d nodes: search %d, channels %d, NVLS %d; known %d, %d, %d\n", k->name, k->nnodes_in_name,
                  k->c->nsearch, k->c->nchannels, k->c->nvls_channels, k->search, k->channels, k->nvls);
  }
  while (same && fgets(line, RIG_MAX_LINE, f) != NULL) {
    int number = atoi(line + 5);
    line[strcspn(line, "\n")] = 0;
    if (line[0] == '#') {
      continue;
    }
    (line[1] == 'i' ? our_ring : our_trees)(k, number, ours);
    lines++;
    if (strcmp(line, ours) != 0) {
      print_message("%s, %d nodes\n  known %s\n  ours  %s\n", k->name, k->nnodes_in_name, line, ours);
      same = false;
    }
  }
  same = same && lines == k->c->nchannels + k->c->nranks;
  if (f != NULL) {
    fclose(f);
  }
  free(line);
  free(ours);
  return same;
}

static bool same_p2p(known *k)
{
  tt_p2p_channels p = tt_p2p_agree(k->c, k->p2p_wanted);
  if (p.channels != k->p2p || p.per_peer != k->p2p_per_peer) {
    print_message("%s, %d nodes: %d point-to-point channels, %d per peer; known %d, %d\n", k->name, k->nnodes_in_name,
                  p.channels, p.per_peer, k->p2p, k->p2p_per_peer);
    return false;
  }
  return true;
}

static void test_known_channels(void **state)
{
  (void)state;
  assert_int_equal(known_each(same_channels, "channels"), 0);
}

static void test_known_p2p(void **state)
{
  (void)state;
  assert_int_equal(known_each(same_p2p, "point-to-point channels"), 0);
}

// ---- Every rank of a network agrees with its neighbours ----

static void check_ring(const tt_connect *c, int channel, int *order, char *seen)
{
  memset(seen, 0, (size_t)c->nranks);
  tt_connect_ring(c, channel, c->nranks / 2, order);
  for (int i = 0; i < c->nranks; i++) {
    assert_false(seen[order[i]]);
    seen[order[i]] = 1;
    assert_int_equal(tt_connect_ring_step(c, channel, order[i], 1), order[(i + 1) % c->nranks]);
    assert_int_equal(tt_connect_ring_step(c, channel, order[(i + 1) % c->nranks], -1), order[i]);
  }
}

static bool has_down(const tt_tree_place *p, int rank)
{
  bool found = false;
  for (int i = 0; i < TT_TREE_DOWNS; i++) {
    found = found || p->down[i] == rank;
  }
  return found;
}

// One root, everybody else hangs on somebody who knows it, and nobody is a root's root: upward ends within the depth of
// the tree.
static void check_tree(const tt_connect *c, int channel)
{
  int roots = 0, downs = 0;
  for (int r = 0; r < c->nranks; r++) {
    tt_tree_place p = tt_connect_tree(c, channel, r);
    roots += p.up < 0;
    for (int i = 0; i < TT_TREE_DOWNS; i++) {
      downs += p.down[i] >= 0;
      assert_true(i == 0 || p.down[i] < 0 || p.down[i - 1] >= 0);
    }
    if (p.up >= 0) {
      tt_tree_place above = tt_connect_tree(c, channel, p.up);
      assert_true(has_down(&above, r));
    }
    int steps = 0;
    for (int at = r; at >= 0 && steps <= c->max_local * 40; steps++) {
      at = tt_connect_tree(c, channel, at).up;
    }
    assert_true(steps <= c->max_local * 40);
  }
  assert_int_equal(roots, 1);
  assert_int_equal(downs, c->nranks - 1);
}

static void check_all(const tt_connect *c)
{
  int *order = calloc((size_t)c->nranks, sizeof(int));
  char *seen = calloc((size_t)c->nranks, 1);
  for (int ch = 0; ch < c->nchannels; ch++) {
    check_ring(c, ch, order, seen);
    check_tree(c, ch);
  }
  free(order);
  free(seen);
}

// ---- Nodes of our own ----

// Three kinds of node: 4 GPUs with crossing rings and a balanced tree; 2 with a split tree; 1.
static const int four_rings[] = {0, 1, 2, 3, 3, 2, 1, 0, 0, 2, 1, 3, 3, 1, 2, 0},
                 four_nets[] = {0, 3, 3, 0, 0, 3, 3, 0};
static const int four_trees[] = {0, 1, 2, 3, 1, 0, 3, 2, 2, 3, 0, 1, 3, 2, 1, 0};
static const int two_orders[] = {0, 1, 1, 0}, two_nets[] = {0, 1, 1, 0}, one_order[] = {0, 0, 0},
                 one_nets[] = {0, 0, 0, 0, 0, 0};

#define GRAPH(p, n, g, w, ...)                                                                                        \
  {                                                                                                                   \
    .pattern = (p), .nchannels = (n), .gpus = (g), .nets = (w), .type_intra = TT_PATH_NVL, .type_inter = TT_PATH_PIX, \
    __VA_ARGS__                                                                                                       \
  }

static const tt_plan_shape kinds[] = {
    {.ngpus = 4,
     .graph = {[TT_GRAPH_RING] =
                   GRAPH(TT_PATTERN_RING, 4, four_rings, four_nets, .cross_nic = 2, .bw_intra = 48, .bw_inter = 48),
               [TT_GRAPH_TREE] =
                   GRAPH(TT_PATTERN_BALANCED_TREE, 4, four_trees, four_nets, .bw_intra = 48, .bw_inter = 24),
               [TT_GRAPH_COLLNET_CHAIN] =
                   GRAPH(TT_PATTERN_TREE, 4, four_trees, four_nets, .bw_intra = 48, .bw_inter = 24),
               [TT_GRAPH_COLLNET_DIRECT] =
                   GRAPH(TT_PATTERN_COLLNET_DIRECT, 2, four_trees, four_nets, .bw_intra = 24, .bw_inter = 24),
               [TT_GRAPH_NVLS] = GRAPH(TT_PATTERN_NVLS, 4, four_trees, four_nets, .bw_intra = 24, .bw_inter = 24)}},
    {.ngpus = 2,
     .graph = {[TT_GRAPH_RING] = GRAPH(TT_PATTERN_RING, 2, two_orders, two_nets, .bw_intra = 30, .bw_inter = 24),
               [TT_GRAPH_TREE] =
                   GRAPH(TT_PATTERN_SPLIT_TREE, 2, two_orders, two_nets, .bw_intra = 30, .bw_inter = 24)}},
    {.ngpus = 1,
     .graph = {[TT_GRAPH_RING] = GRAPH(TT_PATTERN_RING, 3, one_order, one_nets, .bw_intra = 60, .bw_inter = 24),
               [TT_GRAPH_TREE] = GRAPH(TT_PATTERN_TREE, 3, one_order, one_nets, .bw_intra = 60, .bw_inter = 24)}},
};

typedef struct world {
  int node_of[1 << 12], shape_of[1 << 12];
  tt_connect_input in;
} world;

// So many nodes of kinds `from` to `to` in turn. Ranks go round the nodes where `scatter`, else node by node.
static void make(world *w, int nodes, const int kinds_used[2], bool scatter)
{
  int ranks = 0, left = 0, span = kinds_used[1] - kinds_used[0] + 1;
  *w = (world){.in = {.nnodes = nodes, .nshapes = TT_MIN((int)TT_COUNT(kinds), nodes), .shapes = kinds}};
  for (int n = 0; n < nodes; n++) {
    w->shape_of[n] = kinds_used[0] + n % span;
    left += kinds[w->shape_of[n]].ngpus;
  }
  for (int n = 0, round = 0; ranks < left; n++) {
    int here = kinds[w->shape_of[n % nodes]].ngpus;
    round = n / nodes;
    for (int i = 0; i < (scatter ? 1 : here) && round < here && (scatter || round == 0); i++) {
      w->node_of[ranks++] = n % nodes;
    }
  }
  w->in.nranks = ranks;
  w->in.node_of = w->node_of;
  w->in.shape_of = w->shape_of;
  w->in.machine = (tt_plan_machine){.cc_min = 80, .cc_max = 90, .net_bw = 24};
}

static tt_connect *connect(const world *w)
{
  tt_connect *c = NULL;
  if (tt_connect_create(&w->in, &c) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  return c;
}

// All numbers of nodes up to 40, all of a kind or mixed, ranks node by node or round robin.
static void test_networks(void **state)
{
  (void)state;
  static const int used[][2] = {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {1, 2}, {0, 2}};
  world *w = malloc(sizeof(*w));
  for (size_t u = 0; u < TT_COUNT(used); u++) {
    for (int n = 3; n <= 40; n += n < 20 ? 1 : 7) {
      make(w, n, used[u], n % 3 == 1);
      tt_connect *c = connect(w);
      check_all(c);
      tt_connect_destroy(c);
    }
  }
  make(w, 8, (int[]){0, 2}, false);
  tt_connect *c = connect(w);
  assert_int_equal(c->nsearch, 2);
  assert_int_equal(c->nchannels, 4);
  assert_int_equal(c->max_local, 4);
  assert_int_equal(c->min_local, 1);
  assert_int_equal(c->common[TT_GRAPH_NVLS].nchannels, 0);
  tt_connect_destroy(c);
  free(w);
}

// ---- Double trees ----

static int depth_of(int n, int node, int tree)
{
  int depth = 0;
  for (int at = node; at >= 0 && depth <= 64; depth++) {
    at = tt_btree(n, at, tree).up;
  }
  return depth - 1;
}

static void test_double_trees(void **state)
{
  (void)state;
  for (int n = 1; n <= 300; n++) {
    int both = 0;
    for (int tree = 0; tree < 2; tree++) {
      int roots = 0;
      for (int node = 0; node < n; node++) {
        tt_btree_place p = tt_btree(n, node, tree);
        roots += p.up < 0;
        assert_true(p.up < 0 || tt_btree(n, p.up, tree).down[p.second] == node);
        assert_true((1 << TT_MAX(depth_of(n, node, tree) - 1, 0)) <= n);
        tt_btree_place q = tt_btree(n, node, 1);
        both += tree == 0 && (p.down[0] >= 0 || p.down[1] >= 0) && (q.down[0] >= 0 || q.down[1] >= 0);
      }
      assert_int_equal(roots, 1);
    }
    assert_true(both <= 2); // an inner node of one tree is a leaf of the other, but for roots
  }
}

// ---- Numbers of heads, networks that reduce ----

static void test_heads(void **state)
{
  (void)state;
  world *w = malloc(sizeof(*w));
  make(w, 6, (int[]){0, 0}, false);
  tt_connect_options opt = tt_connect_options_default();
  opt.collnet = true;
  w->in.opt = &opt;
  w->in.machine.cc_min = 90;
  tt_connect *c = connect(w);
  assert_true(c->collnet);
  assert_int_equal(c->nvls_channels, 16);
  assert_int_equal(c->nvls_heads, 4);
  assert_int_equal(tt_plan_heads(&kinds[0], TT_GRAPH_COLLNET_DIRECT), 2);
  assert_int_equal(tt_plan_heads(&kinds[1], TT_GRAPH_NVLS), 0);
  assert_int_equal(c->nchannels, 24); // 8, half more for the chain, twice for the generation
  tt_connect_destroy(c);
  opt.collnet_nodes = 7;
  c = connect(w);
  assert_false(c->collnet);
  tt_connect_destroy(c);
  free(w);
}

// The card of a rank at an end of its node's ring: the node's places in the channel are a row of four_rings.
static int ring_card(const tt_connect *c, int channel, int rank)
{
  int first = rank;
  while (c->node_of[tt_connect_ring_step(c, channel, first, -1)] == c->node_of[rank]) {
    first = tt_connect_ring_step(c, channel, first, -1);
  }
  for (int row = 0; row < 4; row++) {
    int i = 0;
    for (int r = first; i < 4 && four_rings[row * 4 + i] == c->local_of[r]; i++) {
      r = tt_connect_ring_step(c, channel, r, 1);
    }
    if (i == 4) {
      return four_nets[row * 2 + (rank == first ? 0 : 1)];
    }
  }
  fail_msg("channel %d: the ring of rank %d's node is none of the search's", channel, rank);
  return -1;
}

// Rings that cross: on each hop between nodes, both ends have the same card.
static void test_rails(void **state)
{
  (void)state;
  world *w = malloc(sizeof(*w));
  make(w, 6, (int[]){0, 0}, false);
  tt_connect *c = connect(w);
  for (int ch = 0; ch < c->nchannels; ch++) {
    for (int r = 0; r < c->nranks; r++) {
      int next = tt_connect_ring_step(c, ch, r, 1);
      if (c->node_of[next] != c->node_of[r]) {
        assert_int_equal(ring_card(c, ch, r), ring_card(c, ch, next));
      }
    }
  }
  tt_connect_destroy(c);
  free(w);
}

// ---- Numbers of channels ----

static int channels_with(const world *w, tt_connect_options opt)
{
  world *v = malloc(sizeof(*v));
  memcpy(v, w, sizeof(*v));
  v->in.opt = &opt;
  v->in.node_of = v->node_of;
  v->in.shape_of = v->shape_of;
  tt_connect *c = connect(v);
  int n = c->nchannels;
  check_all(c);
  tt_connect_destroy(c);
  free(v);
  return n;
}

static void test_channel_limits(void **state)
{
  (void)state;
  world *w = malloc(sizeof(*w));
  make(w, 4, (int[]){0, 0}, false);
  tt_connect_options o = tt_connect_options_default();
  assert_int_equal(channels_with(w, o), 8);
  o.max_channels = 3;
  assert_int_equal(channels_with(w, o), 3);
  o.min_channels = 7; // first cut, then duplicated
  assert_int_equal(channels_with(w, o), 7);
  o.max_channels = -2;
  o.min_channels = 1000;
  assert_int_equal(channels_with(w, o), 64);
  o = tt_connect_options_default();
  o.max_channels = -5;
  assert_int_equal(channels_with(w, o), 1);
  o = tt_connect_options_default();
  o.min_ctas = 20;
  o.max_ctas = 32;
  assert_int_equal(channels_with(w, o), 20);
  tt_params params = *tt_params_get();
  params.min_nchannels = 5;
  params.max_ctas = 9;
  params.collnet_enable = 1;
  o = tt_connect_options_from(&params);
  assert_true(o.min_channels == 5 && o.max_channels == -2 && o.max_ctas == 9 && o.min_ctas == 1 && o.collnet);
  params.collnet_enable = 2; // not 0, as to the communicator
  assert_true(tt_connect_options_from(&params).collnet);
  params.collnet_enable = 0;
  assert_false(tt_connect_options_from(&params).collnet);
  params.collnet_enable = NCCL_CONFIG_UNDEF_INT;
  assert_false(tt_connect_options_from(&params).collnet);
  free(w);
}

// NVLS channels by generation, nodes and cards.
static void test_nvls_channels(void **state)
{
  (void)state;
  static const int want[][4] = {{90, 1, 48, 16},  {100, 1, 48, 24}, {100, 2, 12, 32}, {100, 2, 48, 32},
                                {100, 4, 12, 32}, {100, 4, 48, 24}, {100, 4, 96, 24}};
  world *w = malloc(sizeof(*w));
  for (size_t i = 0; i < TT_COUNT(want); i++) {
    make(w, want[i][1], (int[]){0, 0}, false);
    w->in.machine = (tt_plan_machine){.cc_min = want[i][0], .cc_max = want[i][0], .net_bw = (float)want[i][2]};
    tt_connect *c = connect(w);
    assert_int_equal(c->nvls_channels, want[i][3]);
    tt_connect_destroy(c);
  }
  free(w);
}

// ---- Point-to-point ----

static void test_p2p_channels(void **state)
{
  (void)state;
  tt_connect c = {.nranks = 64, .nnodes = 8, .nchannels = 12};
  tt_p2p_channels p = tt_p2p_agree(&c, 5);
  assert_true(p.channels == 16 && p.per_peer == 2);
  c.nranks = 8;
  c.nchannels = 4;
  p = tt_p2p_agree(&c, 8);
  assert_true(p.channels == 4 && p.per_peer == 4);
  c.nnodes = 1;
  p = tt_p2p_agree(&c, 64);
  assert_true(p.channels == 4 && p.per_peer == 4);
}

// ---- Many ----

static void test_many_nodes(void **state)
{
  (void)state;
  enum { NODES = 16384, GPUS = 8, RANKS = NODES * GPUS, CHANNELS = 32 };
  static int orders[CHANNELS * GPUS];
  int *node_of = calloc(RANKS, sizeof(int)), *shape_of = calloc(NODES, sizeof(int)),
      *order = calloc(RANKS, sizeof(int));
  char *seen = calloc(RANKS, 1);
  for (int i = 0; i < CHANNELS * GPUS; i++) {
    orders[i] = (i + i / GPUS) % GPUS;
  }
  for (int r = 0; r < RANKS; r++) {
    node_of[r] = r / GPUS;
  }
  tt_plan_shape shape = {
      .ngpus = GPUS,
      .graph = {[TT_GRAPH_RING] = GRAPH(TT_PATTERN_RING, CHANNELS, orders, NULL, .bw_intra = 10),
                [TT_GRAPH_TREE] = GRAPH(TT_PATTERN_BALANCED_TREE, CHANNELS, orders, NULL, .bw_intra = 10)}};
  tt_connect_input in = {.nranks = RANKS,
                         .nnodes = NODES,
                         .nshapes = 1,
                         .node_of = node_of,
                         .shape_of = shape_of,
                         .shapes = &shape,
                         .machine = {.cc_min = 90, .cc_max = 90}};
  tt_connect *c = NULL;
  assert_int_equal(tt_connect_create(&in, &c), ncclSuccess);
  assert_int_equal(c->nchannels, 64);
  check_ring(c, 0, order, seen);
  check_ring(c, 63, order, seen);
  check_tree(c, 0);
  check_tree(c, 63);
  tt_connect_destroy(c);
  free(node_of);
  free(shape_of);
  free(order);
  free(seen);
}

// ---- Bad input ----

static void test_bad_input(void **state)
{
  (void)state;
  world *w = malloc(sizeof(*w));
  tt_connect *c = NULL;
  tt_plan_shape bad[3];
  memcpy(bad, kinds, sizeof(bad));
  make(w, 3, (int[]){0, 2}, false);
  w->in.shapes = bad;
  bad[0].graph[TT_GRAPH_RING].gpus = (const int[]){0, 1, 2, 3, 3, 2, 1, 0, 0, 2, 1, 3, 3, 1, 2, 1};
  bad[1].graph[TT_GRAPH_TREE].nchannels = 2;
  assert_int_equal(tt_connect_create(&w->in, &c), ncclSuccess); // not among the channels in common
  tt_connect_destroy(c);
  c = NULL;
  make(w, 3, (int[]){0, 0}, false);
  w->in.shapes = bad;
  w->in.nshapes = 1;
  rig_error(tt_connect_create(&w->in, &c), "ring, channel 3", "GPU 1 is there twice, at places 1 and 3");
  bad[0].graph[TT_GRAPH_RING].gpus = (const int[]){0, 1, 2, 4, 3, 2, 1, 0, 0, 2, 1, 3, 3, 1, 2, 0};
  rig_error(tt_connect_create(&w->in, &c), "ring, channel 0", "GPU 4 at place 3 is none of the node's 4");
  bad[0].graph[TT_GRAPH_RING].nchannels = 0;
  rig_error(tt_connect_create(&w->in, &c), "ring", "found 0 channels");
  bad[0].graph[TT_GRAPH_RING].nchannels = 65;
  rig_error(tt_connect_create(&w->in, &c), "ring", "65");
  bad[0] = kinds[0];
  bad[0].ngpus = 0;
  rig_error(tt_connect_create(&w->in, &c), "0", "0 GPUs");
  bad[0] = kinds[0];
  w->node_of[4] = 2;
  rig_error(tt_connect_create(&w->in, &c), "rank 4", "node 2");
  w->node_of[4] = 1;
  w->node_of[5] = 0;
  rig_error(tt_connect_create(&w->in, &c), "5 ranks", "have 4");
  w->node_of[5] = 1;
  w->shape_of[2] = 1;
  rig_error(tt_connect_create(&w->in, &c), "node 2", "kind 1");
  w->in.nranks = 0;
  rig_error(tt_connect_create(&w->in, &c), "0 ranks", "cannot be connected");
  assert_null(c);
  tt_connect_destroy(NULL);
  free(w);
}

static void test_no_memory(void **state)
{
  (void)state;
  world *w = malloc(sizeof(*w));
  make(w, 5, (int[]){0, 0}, false);
  int failures = 0;
  for (long k = 1;; k++, failures++) {
    tt_connect *c = NULL;
    tt_alloc_fail_at(k);
    ncclResult_t res = tt_connect_create(&w->in, &c);
    tt_alloc_fail_at(0);
    if (res == ncclSuccess) {
      tt_connect_destroy(c);
      break;
    }
    assert_int_equal(res, ncclSystemError);
    assert_null(c);
  }
  assert_true(failures >= 2); // the object and its arrays, which share blocks
  free(w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_channels), cmocka_unit_test(test_known_p2p),     cmocka_unit_test(test_networks),
      cmocka_unit_test(test_double_trees),   cmocka_unit_test(test_heads),         cmocka_unit_test(test_rails),
      cmocka_unit_test(test_channel_limits), cmocka_unit_test(test_nvls_channels), cmocka_unit_test(test_p2p_channels),
      cmocka_unit_test(test_many_nodes),     cmocka_unit_test(test_bad_input),     cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
