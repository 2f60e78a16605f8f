// taste_test.c: which of two ways a taste settles on, and when it looks again, with times that are made up.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "device/host/taste.h"

enum {
  PERIOD = 2,
  USES = PERIOD * (1 + TT_TASTE_SAMPLES), // of a way in a trial: a sample that warms up, and those that count
  PATIENCE = PERIOD * TT_TASTE_PATIENCE,
  REST = TT_TASTE_REST * 2 * USES // behind a trial of both ways
};

// A machine on which each way takes so long, for the calls with even numbers and for the others. The clock is the sum of all uses.
typedef struct machine {
  uint64_t ns[TT_NWAYS][2];
  bool lacks[TT_NWAYS]; // the way is not to be had: uses go the other one
  int calls;
  int uses[TT_NWAYS];
  uint64_t clock_ns, pause_ns; // and so much passes before each use
} machine;

static machine machine_of(uint64_t copy_ns, uint64_t pages_ns)
{
  return (machine){.ns = {{copy_ns, copy_ns}, {pages_ns, pages_ns}}, .clock_ns = 1};
}

// The same, where a trial is due as soon as there were uses enough.
static machine slow_machine_of(uint64_t copy_ns, uint64_t pages_ns)
{
  machine m = machine_of(copy_ns, pages_ns);
  m.pause_ns = TT_TASTE_LATE_NS / 16;
  return m;
}

static bool add(tt_taste *t, tt_way way, uint64_t ns, uint64_t now_ns)
{
  return tt_taste_add(t, &(tt_use){.way = way, .period = PERIOD, .ns = ns, .now_ns = now_ns});
}

// One call as the taste wants it; `slower_ns`: something disturbs it.
static tt_way use(tt_taste *t, machine *m, uint64_t slower_ns)
{
  tt_way way = tt_taste_wants(t);
  way = m->lacks[way] ? (tt_way)!way : way;
  uint64_t ns = m->ns[way][m->calls % 2] + slower_ns;
  m->calls++;
  m->uses[way]++;
  m->clock_ns += m->pause_ns + TT_MIN(ns, (uint64_t)UINT32_MAX);
  uint64_t now_ns = tt_taste_looks(t) ? m->clock_ns : 0;
  tt_taste_add(t, &(tt_use){.way = way, .period = PERIOD, .ns = ns, .now_ns = now_ns});
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

static void test_switches_where_the_other_is_quicker_by_a_twentieth(void **state)
{
  (void)state;
  check_choice(TT_WAY_COPY, 1000, 949, TT_WAY_PAGES);
  check_choice(TT_WAY_PAGES, 949, 1000, TT_WAY_COPY);
  check_choice(TT_WAY_COPY, 100000, 300, TT_WAY_PAGES);
  check_choice(TT_WAY_COPY, 1000, 950, TT_WAY_COPY);
  check_choice(TT_WAY_PAGES, 950, 1000, TT_WAY_PAGES);
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
  } list[] = {{2001, 3 * PERIOD}, {2000, USES}, {901, USES}, {500, USES}, {499, 3 * PERIOD}, {10, 3 * PERIOD}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(list); i++) {
    tt_taste t = {0};
    machine m = machine_of(1000, list[i].other_ns);
    assert_int_equal(try_out(&t, &m), USES + list[i].uses);
    assert_int_equal(m.uses[TT_WAY_PAGES], list[i].uses);
  }
}

// A trial of a way that is not to be had ends, too. Where the liked way is the one that lacks, uses count as the other's.
static void test_a_way_that_is_not_to_be_had(void **state)
{
  (void)state;
  for (int lacking = 0; lacking < TT_NWAYS; lacking++) {
    tt_taste t = {0};
    machine m = slow_machine_of(1000, 1000);
    m.lacks[lacking] = true;
    for (int i = 0; i < 5; i++) {
      assert_int_equal(try_out(&t, &m), lacking == TT_WAY_PAGES ? PATIENCE : USES);
      assert_int_equal(m.uses[lacking], 0);
      assert_true(lacking == TT_WAY_COPY || t.liked == TT_WAY_COPY);
      assert_int_equal(rest(&t, &m), TT_TASTE_REST * (lacking == TT_WAY_PAGES ? PATIENCE : USES));
    }
  }
}

// Where time passes, the next trial comes when the last one has been paid for.
static void test_rests_are_worth_the_trial(void **state)
{
  static const struct {
    uint64_t pages_ns;
    int uses;
  } list[] = {{960, REST},
              {1000, REST},
              {1100, REST},
              {1250, REST},
              {1900, TT_TASTE_WORTH * USES * 9 / 10},
              {2000, TT_TASTE_WORTH * USES},
              {4000, TT_TASTE_WORTH * 3 * PERIOD * 3},
              {900000, TT_TASTE_LONG},
              {100, TT_TASTE_REST * (USES + 3 * PERIOD)}}; // the first trial; behind the switch it is the other way that loses
  (void)state;
  for (size_t i = 0; i < TT_COUNT(list); i++) {
    tt_taste t = {0};
    machine m = slow_machine_of(1000, list[i].pages_ns);
    try_out(&t, &m);
    assert_int_equal(rest(&t, &m), list[i].uses);
  }
}

// Where uses are quick it comes when time has passed: soon at first, then ever more seldom up to a limit.
static void test_pauses_grow(void **state)
{
  static const uint64_t pauses_ns[] = {TT_TASTE_SOON_NS, 4 * TT_TASTE_SOON_NS, 16 * TT_TASTE_SOON_NS, TT_TASTE_LATE_NS, TT_TASTE_LATE_NS};
  (void)state;
  for (int turns = 0; turns < 2; turns++) {
    tt_taste t = {0};
    machine m = turns ? machine_of(1000, 500) : machine_of(1000, 1000);
    for (size_t i = 0; i < TT_COUNT(pauses_ns); i++) {
      try_out(&t, &m);
      uint64_t from_ns = m.clock_ns;
      rest(&t, &m);
      assert_in_range(m.clock_ns - from_ns, pauses_ns[i], pauses_ns[i] + TT_TASTE_LOOK * 1000);
    }
  }
}

// The ways swap their times once the taste has settled, as where a virtual machine's cores move: found as soon as TT_TASTE_LATE_NS have passed and the last
// trial is paid for.
static void test_a_change_is_found_within_the_rest(void **state)
{
  static const uint64_t slow_ns[] = {1200, 9000};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(slow_ns); i++) {
    tt_taste t = {0};
    machine before = machine_of(1000, slow_ns[i]), after = machine_of(slow_ns[i], 1000);
    for (int n = 0; n < 500000; n++) {
      use(&t, &before, 0);
    }
    assert_int_equal(t.liked, TT_WAY_COPY);
    after.clock_ns = before.clock_ns;
    while (t.liked == TT_WAY_COPY) {
      assert_true(after.clock_ns - before.clock_ns < TT_TASTE_LATE_NS + (PATIENCE + TT_TASTE_LOOK) * slow_ns[i]);
      use(&t, &after, 0);
    }
    uint64_t from_ns = after.clock_ns;
    rest(&t, &after);
    assert_true(after.clock_ns - from_ns < 2 * TT_TASTE_SOON_NS); // and looks again soon
  }
}

// What trials cost where nothing changes, however seldom calls are: few uses of the other way.
static void test_the_slower_way_is_used_seldom(void **state)
{
  (void)state;
  for (int seldom = 0; seldom < 2; seldom++) {
    tt_taste t = {0};
    machine m = seldom ? slow_machine_of(1000, 9000) : machine_of(1000, 9000);
    for (int i = 0; i < 100000; i++) {
      use(&t, &m, 0);
    }
    int lost = m.uses[TT_WAY_PAGES] * 8; // in uses of the quicker way
    assert_true(lost * TT_TASTE_WORTH < 101000);
    assert_true(seldom || lost < 1000);
  }
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
        int sample = t.seen[tt_taste_wants(&t)] - 1;
        use(&t, &m, sample != good ? 100 * (uint64_t)(sample + 3) : 0);
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
    assert_true(i < PATIENCE);
    if (i == at) {
      add(t, TT_WAY_COPY, 10, 1);
    }
    add(t, TT_WAY_PAGES, (first + i + (i >= at)) % 2 == 0 ? 1000 : 6000, 1);
  }
}

// What was under way parts the two of a sample: that begins anew, and is not of one kind alone.
static void test_what_comes_between_parts_a_sample(void **state)
{
  (void)state;
  for (int k = 0; k < 2 * USES; k++) {
    tt_taste t = {0};
    for (int i = 0; i < USES; i++) {
      add(&t, TT_WAY_COPY, 3000, 1);
    }
    try_parted(&t, k % 2, k / 2);
    assert_int_equal(t.liked, TT_WAY_COPY);
  }
}

// Calls of many chunks, of which some are quick because the giver has run ahead while others were slow: only whole calls tell.
static void test_a_sample_is_a_whole_call(void **state)
{
  static const uint64_t copy_ns[] = {100, 100, 3000, 200, 2000}, pages_ns[] = {900, 900, 900, 900, 900};
  enum { CALL = TT_COUNT(copy_ns) };
  (void)state;
  for (int first = 0; first < CALL; first++) {
    tt_taste t = {0};
    for (int i = first; tt_taste_tries(&t); i++) {
      tt_way way = tt_taste_wants(&t);
      uint64_t ns = way == TT_WAY_COPY ? copy_ns[i % CALL] : pages_ns[i % CALL];
      tt_taste_add(&t, &(tt_use){.way = way, .period = CALL, .ns = ns, .now_ns = 1});
      assert_true(i < 3 * CALL * (1 + TT_TASTE_SAMPLES));
    }
    assert_int_equal(t.liked, TT_WAY_PAGES);
    assert_int_equal(t.least_ns[TT_WAY_COPY], 5400 * TT_TASTE_PERIOD / CALL);
    assert_int_equal(t.least_ns[TT_WAY_PAGES], 4500 * TT_TASTE_PERIOD / CALL);
  }
}

// Of a call of nine chunks, one of which waits for the peer: eight in a row would leave that one out. The same with as many as a sample may have.
static void test_a_long_call_is_one_sample(void **state)
{
  static const int calls[] = {9, 17, TT_TASTE_CALL};
  (void)state;
  for (size_t k = 0; k < TT_COUNT(calls); k++) {
    tt_taste t = {0};
    for (int i = 0; tt_taste_tries(&t); i++) {
      tt_way way = tt_taste_wants(&t);
      uint64_t quick = way == TT_WAY_COPY ? 800 : 1000, waits = way == TT_WAY_COPY ? 10000 : 1000;
      tt_taste_add(&t, &(tt_use){.way = way, .period = calls[k], .ns = i % calls[k] == 0 ? waits : quick, .now_ns = 1});
      assert_true(i < 3 * calls[k] * (1 + TT_TASTE_SAMPLES));
    }
    assert_int_equal(t.liked, TT_WAY_PAGES);
  }
}

// A call of another length parts a sample, too; longer ones than the longest sample are samples of that.
static void test_calls_of_other_lengths(void **state)
{
  tt_taste t = {0};
  (void)state;
  for (int i = 0; i < 7; i++) {
    tt_taste_add(&t, &(tt_use){.way = TT_WAY_COPY, .period = 100, .ns = 10});
  }
  tt_taste_add(&t, &(tt_use){.way = TT_WAY_COPY, .period = 1, .ns = 10});
  assert_int_equal(t.seen[TT_WAY_COPY], 0);
  tt_taste_add(&t, &(tt_use){.way = TT_WAY_COPY, .period = 1, .ns = 10});
  assert_int_equal(t.seen[TT_WAY_COPY], 1);
  for (int i = 0; i < 2 * TT_TASTE_CALL; i++) {
    assert_int_equal(t.seen[TT_WAY_COPY], 1 + i / TT_TASTE_CALL);
    tt_taste_add(&t, &(tt_use){.way = TT_WAY_COPY, .period = 100, .ns = 10});
  }
  assert_int_equal(t.least_ns[TT_WAY_COPY], 10 * TT_TASTE_PERIOD);
}

// What the first trial has found is news, and what turns the taste; not that all is as it was.
static void test_what_is_news(void **state)
{
  tt_taste t = {0};
  uint64_t now_ns = 1;
  int news = 0;
  (void)state;
  for (int i = 0; i < 4 * TT_TASTE_LONG; i++) {
    tt_way way = tt_taste_wants(&t);
    bool before = tt_taste_tries(&t);
    now_ns += TT_TASTE_LATE_NS / 16;
    bool now = add(&t, way, way == TT_WAY_COPY ? 1000 : i < 2 * TT_TASTE_LONG ? 3000 : 300, now_ns);
    assert_true(!now || (before && !tt_taste_tries(&t)));
    news += now;
  }
  assert_int_equal(news, 2);
}

// Of short uses.
static void test_times_do_not_matter_between_trials(void **state)
{
  tt_taste t = {0};
  machine m = machine_of(1000, 1100);
  (void)state;
  try_out(&t, &m);
  for (int i = 1; i < REST; i++) {
    assert_false(tt_taste_looks(&t));
    add(&t, i % 3 == 0 ? TT_WAY_PAGES : TT_WAY_COPY, i % 3 == 0 ? 0 : UINT64_MAX, 0);
    assert_false(tt_taste_tries(&t));
    assert_int_equal(tt_taste_wants(&t), TT_WAY_COPY);
  }
  assert_true(tt_taste_looks(&t));
  add(&t, TT_WAY_COPY, UINT64_MAX, UINT64_MAX);
  assert_true(tt_taste_tries(&t));
  try_out(&t, &m);
  assert_int_equal(t.liked, TT_WAY_COPY);
}

// So long that uses are watched between trials.
enum { LONG = TT_TASTE_WATCH_NS / TT_TASTE_PERIOD };

static tt_taste settled(machine *m, uint64_t copy_ns, uint64_t pages_ns)
{
  tt_taste t = {0};
  *m = machine_of(copy_ns, pages_ns);
  try_out(&t, m);
  return t;
}

// Long uses that take twice as long all of a sudden, more than the other way has taken: two samples tell, and two of the other way behind one that warms up.
static void test_a_way_that_becomes_slow_is_left_soon(void **state)
{
  machine m;
  tt_taste t = settled(&m, LONG, LONG * 5 / 4);
  (void)state;
  m.ns[TT_WAY_COPY][0] = m.ns[TT_WAY_COPY][1] = 2 * LONG;
  assert_int_equal(rest(&t, &m), TT_TASTE_ALARM * PERIOD);
  assert_int_equal(try_out(&t, &m), (1 + TT_TASTE_ALARM) * PERIOD);
  assert_int_equal(t.liked, TT_WAY_PAGES);
  m.ns[TT_WAY_PAGES][0] = m.ns[TT_WAY_PAGES][1] =
      4 * LONG; // and back, which waits for the next trial: calls of two kinds would turn it all the time
  assert_true(rest(&t, &m) > TT_TASTE_ALARM * PERIOD);
  try_out(&t, &m);
  assert_int_equal(t.liked, TT_WAY_COPY);
}

// Everything has become slower: one look, which turns nothing, and none before the next trial.
static void test_an_alarm_that_turns_nothing_is_the_last(void **state)
{
  machine m;
  tt_taste t = settled(&m, LONG, LONG * 5 / 4);
  (void)state;
  m = machine_of(3 * LONG, 3 * LONG * 4 / 5); // a fifth less is not enough where two samples tell
  assert_int_equal(rest(&t, &m), TT_TASTE_ALARM * PERIOD);
  try_out(&t, &m);
  assert_int_equal(t.liked, TT_WAY_COPY);
  m.ns[TT_WAY_COPY][0] = m.ns[TT_WAY_COPY][1] = 30 * LONG;
  assert_true(rest(&t, &m) > TT_TASTE_ALARM * PERIOD);
}

// What makes none: single slow samples; no more than half as much again; no slower than the other way was; calls that are short.
static void test_what_is_no_alarm(void **state)
{
  static const struct {
    uint64_t copy_ns, pages_ns, then_ns;
    int every; // so many uses are slow, and as many are not
  } list[] = {{LONG, LONG * 5 / 4, 9 * LONG, PERIOD},
              {LONG, LONG * 5 / 4, LONG * 3 / 2, 0},
              {LONG, 4 * LONG, 4 * LONG, 0},
              {LONG - 1, LONG, 9 * LONG, 0},
              {1000, 1000, UINT64_MAX, 0}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(list); i++) {
    machine m;
    tt_taste t = settled(&m, list[i].copy_ns, list[i].pages_ns);
    uint64_t due_ns = t.due_ns;
    int left = t.left;
    for (int n = 0; n < 20 * PERIOD; n++) {
      bool slow = list[i].every == 0 || n / list[i].every % 2 == 0;
      assert_false(tt_taste_tries(&t));
      add(&t, TT_WAY_COPY, slow ? list[i].then_ns : list[i].copy_ns, 1);
    }
    assert_int_equal(t.due_ns, due_ns);
    assert_int_equal(t.left, left - 20 * PERIOD);
  }
}

// Nor samples with a use whose time is not known, however many uses a sample has.
static void test_no_time_is_no_alarm(void **state)
{
  static const int calls[] = {8, 9, 17, TT_TASTE_CALL};
  (void)state;
  for (size_t k = 0; k < TT_COUNT(calls); k++) {
    tt_taste t = {.resting = true, .watching = true, .left = TT_TASTE_LONG, .least_ns = {2 * TT_TASTE_WATCH_NS, 2 * TT_TASTE_WATCH_NS}};
    for (int i = 0; i < 10 * calls[k]; i++) {
      tt_taste_add(&t, &(tt_use){.way = TT_WAY_COPY, .period = calls[k], .ns = i % calls[k] == 0 ? UINT64_MAX : LONG, .now_ns = 1});
      assert_false(tt_taste_tries(&t));
    }
  }
}

// A trial of long calls with a way that is not to be had.
static void test_no_rest_is_too_long(void **state)
{
  tt_taste t = {0};
  (void)state;
  while (tt_taste_tries(&t)) {
    tt_taste_add(&t, &(tt_use){.way = TT_WAY_COPY, .period = TT_TASTE_CALL, .ns = 1000, .now_ns = 1});
  }
  assert_int_equal(t.left, TT_TASTE_LONG);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_liked_way_comes_first),
      cmocka_unit_test(test_switches_where_the_other_is_quicker_by_a_twentieth),
      cmocka_unit_test(test_a_trial_ends_where_it_is_plain),
      cmocka_unit_test(test_a_way_that_is_not_to_be_had),
      cmocka_unit_test(test_rests_are_worth_the_trial),
      cmocka_unit_test(test_pauses_grow),
      cmocka_unit_test(test_a_change_is_found_within_the_rest),
      cmocka_unit_test(test_the_slower_way_is_used_seldom),
      cmocka_unit_test(test_single_slow_uses_do_not_matter),
      cmocka_unit_test(test_calls_of_two_kinds_in_turn),
      cmocka_unit_test(test_what_comes_between_parts_a_sample),
      cmocka_unit_test(test_a_sample_is_a_whole_call),
      cmocka_unit_test(test_a_long_call_is_one_sample),
      cmocka_unit_test(test_calls_of_other_lengths),
      cmocka_unit_test(test_what_is_news),
      cmocka_unit_test(test_times_do_not_matter_between_trials),
      cmocka_unit_test(test_a_way_that_becomes_slow_is_left_soon),
      cmocka_unit_test(test_an_alarm_that_turns_nothing_is_the_last),
      cmocka_unit_test(test_what_is_no_alarm),
      cmocka_unit_test(test_no_time_is_no_alarm),
      cmocka_unit_test(test_no_rest_is_too_long),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
