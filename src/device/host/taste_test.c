// taste_test.c: which of two ways a taste settles on, and when it looks again, with times that are made up.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "device/taste.h"

enum { USES = 1 + 2 * TT_TASTE_SAMPLES }; // of a way in a trial: one that warms up, and two for each sample

// A machine on which each way takes so long, for the calls with even numbers and for the others. The clock is the sum of all uses.
typedef struct machine {
  uint64_t ns[TT_NWAYS][2];
  bool lacks[TT_NWAYS]; // the way is not to be had: uses go the other one
  int calls;
  int uses[TT_NWAYS];
  uint64_t clock_ns;
} machine;

static machine machine_of(uint64_t copy_ns, uint64_t pages_ns)
{
  return (machine){.ns = {{copy_ns, copy_ns}, {pages_ns, pages_ns}}};
}

// One call as the taste wants it; `slower_ns`: something disturbs it.
static tt_way use(tt_taste *t, machine *m, uint64_t slower_ns)
{
  tt_way way = tt_taste_wants(t);
  way = m->lacks[way] ? (tt_way)!way : way;
  uint64_t ns = m->ns[way][m->calls % 2] + slower_ns;
  m->calls++;
  m->uses[way]++;
  m->clock_ns += ns;
  tt_taste_add(t, way, ns);
  return way;
}

// Uses until the trial that is on has ended.
static int try_out(tt_taste *t, machine *m)
{
  int n = 0;
  for (; tt_taste_tries(t); n++) {
    use(t, m, 0);
  }
  return n;
}

// Uses until the next trial begins.
static int rest(tt_taste *t, machine *m)
{
  int n = 0;
  for (; !tt_taste_tries(t); n++) {
    use(t, m, 0);
  }
  return n;
}

static void test_the_liked_way_comes_first(void **state)
{
  (void)state;
  for (int liked = 0; liked < TT_NWAYS; liked++) {
    tt_taste t = {.liked = (uint8_t)liked};
    machine m = machine_of(1000, 1000);
    assert_true(tt_taste_tries(&t));
    for (int i = 0; i < 2 * USES; i++) {
      assert_true(tt_taste_tries(&t));
      assert_int_equal(use(&t, &m, 0), i < USES ? liked : !liked);
    }
    assert_false(tt_taste_tries(&t));
  }
}

// What a trial of ways that take so long comes to.
static void check_choice(tt_way liked, uint64_t copy_ns, uint64_t pages_ns, tt_way chosen)
{
  tt_taste t = {.liked = (uint8_t)liked};
  machine m = machine_of(copy_ns, pages_ns);
  try_out(&t, &m);
  assert_int_equal(tt_taste_wants(&t), chosen);
  for (int n = rest(&t, &m); n > 1; n--) { // and nothing else between the trials
    assert_int_equal(t.liked, chosen);
  }
  assert_int_equal(tt_taste_wants(&t), chosen);
}

static void test_switches_where_the_other_is_quicker_by_a_tenth(void **state)
{
  (void)state;
  check_choice(TT_WAY_COPY, 1000, 899, TT_WAY_PAGES);
  check_choice(TT_WAY_PAGES, 899, 1000, TT_WAY_COPY);
  check_choice(TT_WAY_COPY, 100000, 300, TT_WAY_PAGES);
  check_choice(TT_WAY_COPY, 1000, 900, TT_WAY_COPY);
  check_choice(TT_WAY_PAGES, 900, 1000, TT_WAY_PAGES);
  check_choice(TT_WAY_COPY, 1000, 1000, TT_WAY_COPY);
  check_choice(TT_WAY_COPY, 1000, 5000, TT_WAY_COPY);
  check_choice(TT_WAY_COPY, 1000, UINT64_MAX, TT_WAY_COPY);           // longer than what is kept
  check_choice(TT_WAY_COPY, UINT64_MAX, UINT32_MAX - 1, TT_WAY_COPY); // both are: they count as close
}

static void test_a_trial_ends_where_it_is_plain(void **state)
{
  static const struct {
    uint64_t other_ns;
    int uses; // of the other way
  } list[] = {{2001, 3}, {2000, USES}, {901, USES}, {500, USES}, {499, 5}, {10, 5}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(list); i++) {
    tt_taste t = {0};
    machine m = machine_of(1000, list[i].other_ns);
    assert_int_equal(try_out(&t, &m), USES + list[i].uses);
    assert_int_equal(m.uses[TT_WAY_PAGES], list[i].uses);
  }
}

// A trial of a way that is not to be had ends, too, and looks again ever more seldom.
static void test_a_way_that_is_not_to_be_had(void **state)
{
  static const int rests[] = {TT_TASTE_REST, 4 * TT_TASTE_REST, 16 * TT_TASTE_REST, TT_TASTE_LONG, TT_TASTE_LONG};
  (void)state;
  for (int lacking = 0; lacking < TT_NWAYS; lacking++) { // where the liked way is the one that lacks, uses count as the other's
    tt_taste t = {0};
    machine m = machine_of(1000, 1000);
    m.lacks[lacking] = true;
    for (size_t i = 0; i < TT_COUNT(rests); i++) {
      int n = try_out(&t, &m);
      assert_in_range(n, USES, TT_TASTE_PATIENCE);
      assert_int_equal(n, lacking == TT_WAY_PAGES ? TT_TASTE_PATIENCE : USES);
      assert_int_equal(m.uses[lacking], 0);
      if (lacking == TT_WAY_PAGES) {
        assert_int_equal(t.liked, TT_WAY_COPY);
        assert_int_equal(rest(&t, &m), rests[i]);
      } else {
        rest(&t, &m);
      }
    }
  }
}

static void test_rests_grow(void **state)
{
  static const struct {
    uint64_t pages_ns;
    int rests[5];
  } list[] = {
      {1249, {TT_TASTE_REST, 4 * TT_TASTE_REST, TT_TASTE_CLOSE, TT_TASTE_CLOSE, TT_TASTE_CLOSE}},
      {950, {TT_TASTE_REST, 4 * TT_TASTE_REST, TT_TASTE_CLOSE, TT_TASTE_CLOSE, TT_TASTE_CLOSE}},
      {1250, {TT_TASTE_REST, 4 * TT_TASTE_REST, 16 * TT_TASTE_REST, TT_TASTE_LONG, TT_TASTE_LONG}},
      {9000, {TT_TASTE_REST, 4 * TT_TASTE_REST, 16 * TT_TASTE_REST, TT_TASTE_LONG, TT_TASTE_LONG}},
      {100, {TT_TASTE_REST, 4 * TT_TASTE_REST, 16 * TT_TASTE_REST, TT_TASTE_LONG, TT_TASTE_LONG}}, // begins anew behind the switch
  };
  (void)state;
  for (size_t i = 0; i < TT_COUNT(list); i++) {
    tt_taste t = {0};
    machine m = machine_of(1000, list[i].pages_ns);
    for (size_t k = 0; k < TT_COUNT(list[i].rests); k++) {
      try_out(&t, &m);
      assert_int_equal(rest(&t, &m), list[i].rests[k]);
    }
  }
}

// The ways swap their times once the taste has settled, as where a virtual machine's cores move.
static void test_a_change_is_found_within_the_rest(void **state)
{
  static const uint64_t far_ns = 9000, close_ns = 1200;
  (void)state;
  for (int close = 0; close < 2; close++) {
    tt_taste t = {0};
    uint64_t slow = close ? close_ns : far_ns;
    int longest = close ? TT_TASTE_CLOSE : TT_TASTE_LONG;
    machine before = machine_of(1000, slow), after = machine_of(slow, 1000);
    for (int i = 0; i < 20000; i++) {
      use(&t, &before, 0);
    }
    assert_int_equal(t.liked, TT_WAY_COPY);
    int n = 0;
    for (; t.liked == TT_WAY_COPY; n++) {
      assert_true(n < longest + 2 * TT_TASTE_PATIENCE);
      use(&t, &after, 0);
    }
    assert_int_equal(rest(&t, &after), TT_TASTE_REST); // and looks again soon
  }
}

// What trials cost where nothing changes: few uses of the other way.
static void test_the_slower_way_is_used_seldom(void **state)
{
  tt_taste t = {0};
  machine m = machine_of(1000, 9000);
  (void)state;
  for (int i = 0; i < 100000; i++) {
    use(&t, &m, 0);
  }
  assert_true(m.uses[TT_WAY_PAGES] < 100000 / 1000);
  assert_true(m.clock_ns < 101 * UINT64_C(1000000)); // a hundredth more than without
}

// Of a trial's samples the least counts: one that nothing has disturbed is enough.
static void test_single_slow_uses_do_not_matter(void **state)
{
  (void)state;
  for (int good = 0; good < TT_TASTE_SAMPLES; good++) {
    for (int quicker = 0; quicker < TT_NWAYS; quicker++) {
      tt_taste t = {0};
      machine m = quicker == TT_WAY_COPY ? machine_of(800, 1000) : machine_of(1000, 800);
      while (tt_taste_tries(&t)) {
        int at = t.seen[tt_taste_wants(&t)], sample = (at - 1) / 2;
        use(&t, &m, at == 0 || sample != good ? 100 * (uint64_t)(at + 3) : 0);
      }
      assert_int_equal(t.liked, quicker);
    }
  }
}

// Calls of two kinds in turn: samples are of both, whichever comes first. The least single use would tell something else.
static void test_calls_of_two_kinds_in_turn(void **state)
{
  (void)state;
  for (int first = 0; first < 2; first++) {
    for (int liked = 0; liked < TT_NWAYS; liked++) {
      tt_taste t = {.liked = (uint8_t)liked};
      machine m = {.ns = {{1000, 10000}, {4000, 5000}}, .calls = first};
      for (int i = 0; i < 3; i++) {
        try_out(&t, &m);
        assert_int_equal(t.liked, TT_WAY_PAGES);
        rest(&t, &m);
      }
    }
  }
}

// The uses of the other way in a trial, of two kinds in turn, from call number `first` on; before number `at` one still goes the old way. The cheap kind alone
// would win.
static void try_parted(tt_taste *t, int first, int at)
{
  for (int i = 0; tt_taste_tries(t); i++) {
    assert_true(i < TT_TASTE_PATIENCE);
    if (i == at) {
      tt_taste_add(t, TT_WAY_COPY, 10);
    }
    tt_taste_add(t, TT_WAY_PAGES, (first + i + (i >= at)) % 2 == 0 ? 1000 : 6000);
  }
}

// What was under way parts the two of a sample: that begins anew, and is not of one kind alone.
static void test_what_comes_between_parts_a_sample(void **state)
{
  (void)state;
  for (int k = 0; k < 2 * USES; k++) {
    tt_taste t = {0};
    for (int i = 0; i < USES; i++) {
      tt_taste_add(&t, TT_WAY_COPY, 3000);
    }
    try_parted(&t, k % 2, k / 2);
    assert_int_equal(t.liked, TT_WAY_COPY);
  }
}

// What the first trial has found is news, and what turns the taste; not that all is as it was.
static void test_what_is_news(void **state)
{
  tt_taste t = {0};
  int news = 0;
  (void)state;
  for (int i = 0; i < 4 * TT_TASTE_LONG; i++) {
    tt_way way = tt_taste_wants(&t);
    bool before = tt_taste_tries(&t);
    bool now = tt_taste_add(&t, way, way == TT_WAY_COPY ? 1000 : i < 2 * TT_TASTE_LONG ? 3000 : 300);
    assert_true(!now || (before && !tt_taste_tries(&t)));
    news += now;
  }
  assert_int_equal(news, 2);
}

static void test_times_do_not_matter_between_trials(void **state)
{
  tt_taste t = {0};
  machine m = machine_of(1000, 1500);
  (void)state;
  try_out(&t, &m);
  for (int i = 1; i < TT_TASTE_REST; i++) {
    tt_taste_add(&t, i % 3 == 0 ? TT_WAY_PAGES : TT_WAY_COPY, i % 3 == 0 ? 0 : UINT64_MAX);
    assert_false(tt_taste_tries(&t));
    assert_int_equal(tt_taste_wants(&t), TT_WAY_COPY);
  }
  tt_taste_add(&t, TT_WAY_COPY, UINT64_MAX);
  assert_true(tt_taste_tries(&t));
  try_out(&t, &m);
  assert_int_equal(t.liked, TT_WAY_COPY);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_liked_way_comes_first),
      cmocka_unit_test(test_switches_where_the_other_is_quicker_by_a_tenth),
      cmocka_unit_test(test_a_trial_ends_where_it_is_plain),
      cmocka_unit_test(test_a_way_that_is_not_to_be_had),
      cmocka_unit_test(test_rests_grow),
      cmocka_unit_test(test_a_change_is_found_within_the_rest),
      cmocka_unit_test(test_the_slower_way_is_used_seldom),
      cmocka_unit_test(test_single_slow_uses_do_not_matter),
      cmocka_unit_test(test_calls_of_two_kinds_in_turn),
      cmocka_unit_test(test_what_comes_between_parts_a_sample),
      cmocka_unit_test(test_what_is_news),
      cmocka_unit_test(test_times_do_not_matter_between_trials),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
