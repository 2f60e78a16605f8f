// nodes_test.c: every algorithm on several nodes, even and uneven, by the verifier; and how often messages cross from
// node to node.
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "tools/verify_rig.h"

// With a sanitizer only some numbers of ranks are tried.
enum { N_STEP = MOST < 64 ? 5 : 1 };

// Ways to seat n ranks on some nodes.
typedef enum {
  BLOCKS, // neighbours together, sizes as equal as possible
  DEALT,  // in turn, like cards
  HEAVY,  // one rank per node, all others on the last but one
  STAIRS, // sizes 1, 2, 3, ... as far as they go, in a mixed order
  NSEATINGS
} seating;

static int name_of(seating how, int n, int nodes, int r)
{
  int k = 0;
  switch (how) {
  case BLOCKS: return r * nodes / n;
  case DEALT: return (r * 7 + 3) % n % nodes;
  case HEAVY: return r < nodes ? r : TT_MAX(nodes - 2, 0);
  default:
    r = r * 5 % n == r && r > 0 ? r : n - 1 - r;
    for (int room = 1; r >= room && k < nodes - 1; room++, k++) {
      r -= room;
    }
    return k;
  }
}

static tt_layout *seat(seating how, int n, int nodes)
{
  int names[MOST];
  tt_layout *l = NULL;
  for (int r = 0; r < n; r++) {
    names[r] = name_of(how, n, nodes, r);
  }
  assert_int_equal(tt_layout_create(n, names, &l), ncclSuccess);
  return l;
}

static void check_layout(const tt_algorithm *a, tt_func f, const tt_layout *l, const char *how, effort e)
{
  for (int root = 0; root < (is_rooted(f) ? l->nranks : 1); root++) {
    char name[64];
    ranks r = write_shape(a, (tt_shape){.func = f, .nranks = l->nranks, .root = root, .layout = l});
    snprintf(name, sizeof name, "%s (%s, %d nodes)", a->name, how, l->nnodes);
    check_ranks(&r, f, root, name, e);
    free_ranks(&r);
  }
}

static const char *const seating_names[NSEATINGS] = {"blocks", "dealt", "heavy", "stairs"};
static const int node_counts[] = {1, 2, 3, 4, 5, 6, 8, 11};

static void every_layout(const tt_algorithm *a, tt_func f)
{
  for (int n = 1; n <= 24 && !is_p2p(f); n += N_STEP) {
    for (int i = 0; i < (int)TT_COUNT(node_counts) && node_counts[i] <= n; i++) {
      for (int how = 0; how < NSEATINGS; how++) {
        tt_layout *l = seat((seating)how, n, node_counts[i]);
        check_layout(a, f, l, seating_names[how], n <= 7 ? FULL : n % 8 < 2 ? FAIR : BRIEF);
        tt_layout_destroy(l);
      }
    }
  }
}

static void test_every_layout(void **state)
{
  (void)state;
  each_row(every_layout);
}

static void many_ranks(const tt_algorithm *a, tt_func f)
{
  static const int nodes[] = {2, 4, 7, 8, 16, 64};
  for (int i = 0; i < (int)TT_COUNT(nodes) && nodes[i] <= MOST && !is_p2p(f) && !is_rooted(f); i++) {
    for (int how = BLOCKS; how <= DEALT; how++) {
      tt_layout *l = seat((seating)how, MOST, nodes[i]);
      check_layout(a, f, l, seating_names[how], BRIEF);
      tt_layout_destroy(l);
    }
  }
}

static void test_many_ranks(void **state)
{
  (void)state;
  each_row(many_ranks);
}

// ---- crossings ----

// What goes over the network in one pass.
typedef struct traffic {
  int connections; // pairs (from, to) of different nodes
  int messages;
  int most_out; // messages that leave one node, the most of all nodes
} traffic;

static traffic traffic_of(const ranks *r, const tt_layout *l)
{
  static char seen[MOST][MOST];
  int out[MOST] = {0};
  traffic t = {0};
  memset(seen, 0, sizeof seen);
  for (int i = 0; i < r->count; i++) {
    for (int k = 0; k < r->s[i]->nsteps; k++) {
      const tt_step *step = &r->s[i]->steps[k];
      for (int d = 0; d < step->ndst; d++) {
        const tt_ref *ref = &r->s[i]->refs[step->dst + (uint32_t)d];
        if (ref->kind == TT_FIFO && ref->peer >= l->nranks) { // a network that reduces
          t.messages++;
        } else if (ref->kind == TT_FIFO && l->node_of[ref->peer] != l->node_of[i]) {
          t.connections += !seen[i][ref->peer];
          seen[i][ref->peer] = 1;
          t.messages++;
          out[l->node_of[i]]++;
          t.most_out = TT_MAX(t.most_out, out[l->node_of[i]]);
        }
      }
    }
  }
  return t;
}

static traffic crossings(const char *name, tt_func f, const tt_layout *l, int root)
{
  ranks r = write_shape(&tt_algorithms(NULL)[tt_algorithm_find(name)],
                        (tt_shape){.func = f, .nranks = l->nranks, .root = root, .layout = l});
  traffic t = traffic_of(&r, l);
  free_ranks(&r);
  return t;
}

static void test_ring_enters_each_node_once(void **state)
{
  (void)state;
  for (int n = 2; n <= 24; n++) {
    for (int nodes = 2; nodes <= n; nodes++) {
      for (int how = 0; how < NSEATINGS; how++) {
        tt_layout *l = seat((seating)how, n, nodes);
        int k = l->nnodes;
        assert_int_equal(crossings("Ring", TT_FUNC_ALLREDUCE, l, 0).connections, k > 1 ? k : 0);
        assert_int_equal(crossings("Ring", TT_FUNC_ALLGATHER, l, 0).connections, k > 1 ? k : 0);
        assert_int_equal(crossings("Ring", TT_FUNC_BROADCAST, l, n / 2).messages, k - 1);
        assert_int_equal(crossings("Ring", TT_FUNC_REDUCE, l, n / 2).messages, k - 1);
        tt_layout_destroy(l);
      }
    }
  }
}

// Each tree enters each node once: as many edges as other nodes.
static void test_tree_enters_each_node_once(void **state)
{
  (void)state;
  for (int n = 2; n <= 24; n++) {
    for (int nodes = 2; nodes <= n; nodes++) {
      for (int how = 0; how < NSEATINGS; how++) {
        tt_layout *l = seat((seating)how, n, nodes);
        int edges = l->nnodes - 1;
        int m = crossings("Tree", TT_FUNC_ALLREDUCE, l, 0).messages;
        assert_true(m == 2 * edges || m == 4 * edges);
        assert_true(m == 4 * edges || l->smallest < 4);
        assert_true(l->nnodes == 1 || l->largest == 1 ||
                    crossings("Tree", TT_FUNC_REDUCE, l, n / 2).messages == 2 * edges);
        assert_true(l->nnodes == 1 || l->largest == 1 ||
                    crossings("Tree", TT_FUNC_BROADCAST, l, n / 2).messages == 2 * edges);
        tt_layout_destroy(l);
      }
    }
  }
}

// Where a node has several ranks, the two trees of a broadcast come in by two of them; of an all-reduce, from four
// ranks on.
static void test_trees_have_two_heads(void **state)
{
  (void)state;
  for (int size = 2; size <= 8; size++) {
    tt_layout *l = seat(BLOCKS, 3 * size, 3);
    assert_int_equal(crossings("Tree", TT_FUNC_BROADCAST, l, 0).connections, 4);
    assert_int_equal(crossings("Tree", TT_FUNC_ALLREDUCE, l, 0).connections, size < 4 ? 4 : 8);
    tt_layout_destroy(l);
  }
}

// Two for each node beyond a power of two, then one for each node and round.
static int messages_of_doubling(int nodes)
{
  int players = 1, rounds = 0;
  for (; players * 2 <= nodes; players *= 2) {
    rounds++;
  }
  return 2 * (nodes - players) + players * rounds;
}

// Crossings of the hierarchical schedules: what has to cross does so once.
static void test_hierarchical_crossings(void **state)
{
  (void)state;
  for (int n = 2; n <= 24; n++) {
    for (int nodes = 2; nodes <= n; nodes++) {
      for (int how = 0; how < NSEATINGS; how++) {
        tt_layout *l = seat((seating)how, n, nodes);
        int k = l->nnodes, shares = l->smallest;
        traffic t = crossings("HierRing", TT_FUNC_ALLREDUCE, l, 0); // chunks of 1 / (shares * k) of the message
        assert_int_equal(t.connections, k > 1 ? shares * k : 0);
        assert_int_equal(t.most_out, shares * (2 * k - 2));
        assert_int_equal(crossings("HierRing", TT_FUNC_ALLGATHER, l, 0).messages, n * (k - 1));
        assert_int_equal(crossings("HierRing", TT_FUNC_REDUCESCATTER, l, 0).messages, n * (k - 1));
        assert_int_equal(crossings("HierRD", TT_FUNC_ALLREDUCE, l, 0).messages, messages_of_doubling(k));
        tt_layout_destroy(l);
      }
    }
  }
}

// Every node gives each chunk to the network once, and nothing else leaves it.
static void test_networks_that_reduce_get_each_chunk_once(void **state)
{
  (void)state;
  for (int n = 2; n <= 24; n++) {
    for (int nodes = 2; nodes <= n; nodes++) {
      for (int how = 0; how < NSEATINGS; how++) {
        tt_layout *l = seat((seating)how, n, nodes);
        for (l->heads = 0; l->heads <= 3; l->heads++) {
          int k = l->nnodes, heads = tt_collnet_heads(l, n);
          assert_in_range(heads, 1, l->heads > 0 ? TT_MIN(l->heads, l->smallest) : l->smallest);
          traffic chain = crossings("CollNetChain", TT_FUNC_ALLREDUCE, l, 0),
                  direct = crossings("CollNetDirect", TT_FUNC_ALLREDUCE, l, 0);
          assert_int_equal(chain.messages, k > 1 ? k : 0);
          assert_int_equal(direct.messages, k > 1 ? k * heads : 0);
          assert_int_equal(chain.connections + direct.connections, 0);
          check_layout(&tt_algorithms(NULL)[tt_algorithm_find("CollNetDirect")], TT_FUNC_ALLREDUCE, l, "heads", BRIEF);
        }
        tt_layout_destroy(l);
      }
    }
  }
}

// In every turn of an all-to-all on equal nodes, no rank is sent to twice, and a node's ranks turn to as many nodes as
// they can.
static void check_turn(const ranks *r, const tt_layout *l, uint32_t turn)
{
  char hit[MOST] = {0}, node_hit[MOST][MOST] = {{0}};
  for (int i = 0; i < r->count; i++) {
    const tt_schedule *s = r->s[i];
    const tt_ref *to = &s->refs[s->steps[s->strands[0].first + turn].dst];
    int most = (l->largest + l->nnodes - 1) / l->nnodes;
    assert_int_equal(hit[to->peer]++, 0);
    assert_true(++node_hit[l->node_of[i]][l->node_of[to->peer]] <= most);
  }
}

static void test_pairwise_spreads_over_nodes(void **state)
{
  (void)state;
  for (int size = 1; size <= 6; size++) {
    for (int nodes = 2; nodes <= 8 && size * nodes <= MOST; nodes++) {
      for (int how = BLOCKS; how <= DEALT; how++) {
        tt_layout *l = seat((seating)how, size * nodes, nodes);
        if (l->smallest == l->largest) {
          ranks r = write_shape(&tt_algorithms(NULL)[tt_algorithm_find("Pairwise")],
                                (tt_shape){.func = TT_FUNC_ALLTOALL, .nranks = size * nodes, .layout = l});
          for (uint32_t turn = 0; turn < (uint32_t)(size * nodes); turn++) {
            check_turn(&r, l, turn);
          }
          free_ranks(&r);
        }
        tt_layout_destroy(l);
      }
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_layout),
      cmocka_unit_test(test_many_ranks),
      cmocka_unit_test(test_ring_enters_each_node_once),
      cmocka_unit_test(test_tree_enters_each_node_once),
      cmocka_unit_test(test_trees_have_two_heads),
      cmocka_unit_test(test_hierarchical_crossings),
      cmocka_unit_test(test_networks_that_reduce_get_each_chunk_once),
      cmocka_unit_test(test_pairwise_spreads_over_nodes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
