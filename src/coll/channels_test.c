// channels_test.c: operations over several channels of any ring orders and trees: rows of schedules, by the verifier;
// and rows that are wrong, all of which it must notice.
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "coll/channels_rig.h"
#include "tools/verify_rig.h"

enum { STAGES = 4 };

// The schedules of all ranks for each channel.
typedef struct row {
  const tt_schedule *all[STAGES * MOST];
  ranks stage[STAGES];
  int count;
} row;

static tt_layout *layout_of(int n, int nodes, int channels, uint64_t seed)
{
  int names[MOST];
  tt_layout *l = NULL;
  for (int r = 0; r < n; r++) {
    names[r] = (int)((uint64_t)r * (seed % 3 + 1) % (uint64_t)nodes);
  }
  assert_int_equal(tt_layout_create(n, names, &l), ncclSuccess);
  assert_int_equal(set_random_channels(l, seed, channels), ncclSuccess);
  return l;
}

static void list_row(row *w)
{
  int n = w->stage[0].count;
  for (int i = 0; i < w->count * n; i++) {
    w->all[i] = w->stage[i / n].s[i % n];
  }
}

static row write_row(const tt_algorithm *a, tt_shape shape)
{
  row w = {.count = tt_algorithm_channels(a, shape.layout)};
  assert_int_equal(w.count, shape.layout->channels.count);
  for (shape.channel = 0; shape.channel < w.count; shape.channel++) {
    w.stage[shape.channel] = write_shape(a, shape);
  }
  list_row(&w);
  return w;
}

static void free_row(row *w)
{
  for (int c = 0; c < w->count; c++) {
    free_ranks(&w->stage[c]);
  }
}

static tt_verify_options options_of(const row *w, tt_func f, int root, int slots, int loops, int in_place)
{
  return (tt_verify_options){
      .func = f, .root = root, .slots = slots, .loops = loops, .in_place = in_place, .stages = w->count};
}

static void expect_row(const tt_algorithm *a, const tt_layout *l, tt_func f, int root, bool thorough)
{
  row w = write_row(a, (tt_shape){.func = f, .nranks = l->nranks, .root = root, .layout = l});
  for (int slots = 1; slots <= (thorough ? 8 : 1); slots *= 2) {
    for (int k = thorough ? 0 : root & 1; k < (thorough ? 4 : 1); k++) {
      tt_verify_options o = options_of(&w, f, root, slots, 1 + k / 2, k % 2);
      char why[700];
      if (tt_verify(w.all, &o, why, sizeof why) != ncclSuccess) {
        fail_msg("%s %s, %d ranks, %d nodes, %d channels, root %d, %d slots, %d loops, %s: %s", a->name,
                 tt_func_name(f), l->nranks, l->nnodes, w.count, root, slots, o.loops,
                 o.in_place ? "in place" : "out of place", why);
      }
    }
  }
  free_row(&w);
}

// Up to 10 ranks everything; up to MOST every function, but not every root.
static void every_row(const tt_algorithm *a, tt_func f)
{
  for (int n = 1; n <= MOST && a->follows != TT_FOLLOWS_NODES; n++) {
    uint64_t seed = (uint64_t)n * 131 + (uint64_t)f * 7 + (uint64_t)a->follows;
    tt_layout *l = layout_of(n, n % 4 == 0 ? 1 + n / 4 : 1, n > 20 ? 2 : 2 + n % 3, seed);
    int hop = n <= 10 ? 1 : n / 3;
    for (int root = 0; root < (is_rooted(f) ? n : 1); root += hop) {
      expect_row(a, l, f, root, n <= 7);
    }
    tt_layout_destroy(l);
  }
}

static void test_any_rings_and_trees(void **state)
{
  (void)state;
  each_row(every_row);
}

// One channel's schedules are right alone, too: with the fewest ranks of all kinds, many draws.
static void one_channel(const tt_algorithm *a, tt_func f)
{
  for (int n = 2; n <= 8 && a->follows != TT_FOLLOWS_NODES; n++) {
    for (uint64_t seed = 0; seed < 12; seed++) {
      tt_layout *l = layout_of(n, 1 + (int)seed % n, 1, seed * 977 + (uint64_t)n);
      for (int root = 0; root < (is_rooted(f) ? n : 1); root++) {
        expect_row(a, l, f, root, seed == 0);
      }
      tt_layout_destroy(l);
    }
  }
}

static void test_one_channel(void **state)
{
  (void)state;
  each_row(one_channel);
}

static bool same_schedule(const tt_schedule *a, const tt_schedule *b)
{
  bool same = a->nsteps == b->nsteps && a->nrefs == b->nrefs;
  for (int i = 0; same && i < a->nsteps; i++) {
    same = a->steps[i].flags == b->steps[i].flags && a->steps[i].nsrc == b->steps[i].nsrc &&
           a->steps[i].sub == b->steps[i].sub;
  }
  for (int i = 0; same && i < a->nrefs; i++) {
    same = a->refs[i].kind == b->refs[i].kind && a->refs[i].peer == b->refs[i].peer &&
           a->refs[i].chunk == b->refs[i].chunk;
  }
  return same;
}

// What follows neither rings nor trees does not know of channels.
static void blind_row(const tt_algorithm *a, tt_func f)
{
  tt_layout *l = layout_of(6, 2, 3, 5), *bare = NULL;
  assert_int_equal(tt_layout_create(6, l->node_of, &bare), ncclSuccess);
  assert_int_equal(tt_algorithm_channels(a, l), a->follows == TT_FOLLOWS_NODES ? 0 : 3);
  assert_int_equal(tt_algorithm_channels(a, bare) + tt_algorithm_channels(a, NULL), 0);
  if (a->follows == TT_FOLLOWS_NODES && !is_p2p(f)) {
    ranks with = write_shape(a, (tt_shape){.func = f, .nranks = 6, .layout = l});
    ranks without = write_shape(a, (tt_shape){.func = f, .nranks = 6, .layout = bare});
    for (int r = 0; r < 6; r++) {
      assert_true(same_schedule(with.s[r], without.s[r]));
    }
    free_ranks(&with);
    free_ranks(&without);
  }
  tt_layout_destroy(bare);
  tt_layout_destroy(l);
}

static void test_others_are_blind_to_channels(void **state)
{
  (void)state;
  each_row(blind_row);
}

// ---- the orders are the given ones ----

static bool sends_to(const tt_schedule *s, int peer)
{
  for (int i = 0; i < s->nsteps; i++) {
    for (int k = 0; k < s->steps[i].ndst; k++) {
      const tt_ref *ref = &s->refs[s->steps[i].dst + (uint32_t)k];
      if (ref->kind == TT_FIFO && ref->peer == peer) {
        return true;
      }
    }
  }
  return false;
}

static int receivers(const tt_schedule *s, int n)
{
  int count = 0;
  for (int p = 0; p < n; p++) {
    count += sends_to(s, p);
  }
  return count;
}

// Ring: only the next one. Tree: parent and children, everything both ways in an all-reduce.
static void test_only_given_hops(void **state)
{
  (void)state;
  for (int n = 2; n <= 20; n++) {
    tt_layout *l = layout_of(n, 1 + n / 5, 3, (uint64_t)n);
    row rings = write_row(&tt_algorithms(NULL)[tt_algorithm_find("Ring")],
                          (tt_shape){.func = TT_FUNC_ALLREDUCE, .nranks = n, .layout = l});
    row trees = write_row(&tt_algorithms(NULL)[tt_algorithm_find("Tree")],
                          (tt_shape){.func = TT_FUNC_ALLREDUCE, .nranks = n, .layout = l});
    for (int c = 0; c < 3; c++) {
      const int *ring = tt_layout_ring(l, c), *ups = tt_layout_ups(l, c);
      int edges = 0;
      for (int i = 0; i < n; i++) {
        assert_int_equal(receivers(rings.stage[c].s[ring[i]], n), 1);
        assert_true(sends_to(rings.stage[c].s[ring[i]], ring[(i + 1) % n]));
        edges += receivers(trees.stage[c].s[i], n);
        assert_true(ups[i] < 0 || (sends_to(trees.stage[c].s[i], ups[i]) && sends_to(trees.stage[c].s[ups[i]], i)));
      }
      assert_int_equal(edges, 2 * (n - 1));
    }
    free_row(&rings);
    free_row(&trees);
    tt_layout_destroy(l);
  }
}

// ---- wrong rows ----

// The messages in a schedule, one after the other, those received or those sent.
static int list_messages(const tt_schedule *s, bool sent, tt_ref *out)
{
  int n = 0;
  for (int i = 0; i < s->nsteps; i++) {
    const tt_step *step = &s->steps[i];
    for (uint32_t k = 0; k < (sent ? step->ndst : step->nsrc); k++) {
      const tt_ref *ref = &s->refs[(sent ? step->dst : step->src) + k];
      if (ref->kind == TT_FIFO) {
        out[n++] = *ref;
      }
    }
  }
  return n;
}

// Do two schedules look the same from outside? They may take a message before they give another, or both at once.
static bool same_messages(const tt_schedule *a, const tt_schedule *b)
{
  tt_ref of_a[64], of_b[64];
  for (int sent = 0; sent < 2; sent++) {
    int n = list_messages(a, sent, of_a);
    if (list_messages(b, sent, of_b) != n) {
      return false;
    }
    for (int i = 0; i < n; i++) {
      if (of_a[i].peer != of_b[i].peer || of_a[i].chunk != of_b[i].chunk) {
        return false;
      }
    }
  }
  return true;
}

static int tried, classes[TT_VERIFY_NCLASSES];

static void expect_noticed(const row *w, tt_func f, const char *what, int rank)
{
  char why[700] = "";
  tt_verify_options o = options_of(w, f, 1, 2, 2, 0);
  o.count_classes = classes;
  tried++;
  if (tt_verify(w->all, &o, why, sizeof why) == ncclSuccess) {
    fail_msg("%s, %d ranks: %s at rank %d is not noticed", tt_func_name(f), w->stage[0].count, what, rank);
  }
  assert_true(why[0] != 0);
}

// One rank takes its channels in another order, takes one of them twice, or leaves out the last step of one.
static void break_rank(row *w, tt_func f, int rank)
{
  int n = w->stage[0].count;
  const tt_schedule **first = &w->all[rank], **second = &w->all[n + rank], *x = *first, *y = *second;
  if (!same_messages(x, y)) {
    *first = y;
    *second = x;
    expect_noticed(w, f, "another order of channels", rank);
    *first = x;
    *second = x;
    expect_noticed(w, f, "a channel twice", rank);
  }
  tt_schedule shorter = *y;
  tt_strand strands[8];
  memcpy(strands, y->strands, (size_t)y->nstrands * sizeof *strands);
  shorter.strands = strands;
  strands[y->nstrands - 1].count--;
  *first = x;
  *second = &shorter;
  expect_noticed(w, f, "a missing step", rank);
  *second = y;
}

static void break_row(const tt_algorithm *a, tt_func f)
{
  for (int n = 3; n <= 9 && a->follows != TT_FOLLOWS_NODES; n++) {
    tt_layout *l = layout_of(n, 1, 2 + n % 2, (uint64_t)n * 17 + 3);
    row w = write_row(a, (tt_shape){.func = f, .nranks = n, .root = 1, .layout = l});
    for (int rank = 0; rank < n; rank++) {
      break_rank(&w, f, rank);
    }
    free_row(&w);
    tt_layout_destroy(l);
  }
}

static void test_wrong_rows_are_noticed(void **state)
{
  (void)state;
  each_row(break_row);
  print_message("  %d wrong rows; deadlock %d, contents %d, leftover %d\n", tried, classes[TT_VERIFY_DEADLOCK],
                classes[TT_VERIFY_CONTENTS], classes[TT_VERIFY_LEFTOVER]);
  assert_true(tried > 300 && classes[TT_VERIFY_DEADLOCK] > 0 && classes[TT_VERIFY_CONTENTS] > 0 &&
              classes[TT_VERIFY_LEFTOVER] > 0);
}

// Where the fault is, in words; and what a row may not be.
static void test_words_and_limits(void **state)
{
  (void)state;
  tt_layout *l = layout_of(4, 1, 2, 9);
  row w = write_row(&tt_algorithms(NULL)[tt_algorithm_find("Ring")],
                    (tt_shape){.func = TT_FUNC_ALLGATHER, .nranks = 4, .layout = l});
  char why[700] = "";
  tt_verify_options o = options_of(&w, TT_FUNC_ALLGATHER, 0, 1, 1, 0);
  uint32_t *chunk = &w.stage[1].s[0]->refs[w.stage[1].s[0]->steps[1].src].chunk, right = *chunk;
  *chunk = (right + 1) % 4;
  assert_int_equal(tt_verify(w.all, &o, why, sizeof why), ncclInternalError);
  assert_non_null(strstr(why, "rank 0 stage 1 strand 0 step 1 pass 0: "));
  *chunk = right;
  assert_int_equal(tt_verify(w.all, &o, why, sizeof why), ncclSuccess);
  o.stages = -1;
  assert_int_equal(tt_verify(w.all, &o, why, sizeof why), ncclInvalidArgument);
  free_row(&w);
  ranks direct = write_shape(&tt_algorithms(NULL)[tt_algorithm_find("Direct")],
                             (tt_shape){.func = TT_FUNC_ALLGATHER, .nranks = 4});
  memcpy(w.all, direct.s, 4 * sizeof *w.all);
  memcpy(w.all + 4, direct.s, 4 * sizeof *w.all);
  o.stages = 2;
  assert_int_equal(tt_verify(w.all, &o, why, sizeof why), ncclInternalError);
  assert_non_null(strstr(why, "form: "));
  free_ranks(&direct);
  tt_layout_destroy(l);
}

static void test_senseless_channels(void **state)
{
  (void)state;
  int count;
  tt_layout *l = layout_of(5, 2, 3, 1);
  const tt_algorithm *table = tt_algorithms(&count);
  for (int i = 0; i < count; i++) {
    tt_func any = (tt_func)__builtin_ctz(table[i].funcs);
    tt_schedule *s = NULL;
    assert_int_equal(
        tt_algorithm_write(&table[i], &(tt_shape){.func = any, .nranks = 5, .layout = l, .channel = 3}, &s),
        ncclInvalidArgument);
    assert_int_equal(
        tt_algorithm_write(&table[i], &(tt_shape){.func = any, .nranks = 5, .layout = l, .channel = -1}, &s),
        ncclInvalidArgument);
    assert_int_equal(tt_algorithm_write(&table[i], &(tt_shape){.func = any, .nranks = 5, .channel = 1}, &s),
                     ncclInvalidArgument);
    assert_null(s);
  }
  tt_layout_destroy(l);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_any_rings_and_trees),          cmocka_unit_test(test_one_channel),
      cmocka_unit_test(test_others_are_blind_to_channels), cmocka_unit_test(test_only_given_hops),
      cmocka_unit_test(test_wrong_rows_are_noticed),       cmocka_unit_test(test_words_and_limits),
      cmocka_unit_test(test_senseless_channels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
