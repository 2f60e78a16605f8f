// trial_test.c: which of two ways trials choose, and when the next trial begins, with times that are made up.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "device/host/trial.h"

enum {
  CALL = 2,                         // chunks of a call
  CHUNKS = CALL * TT_TRIAL_SAMPLES, // of a way in a trial
  MOST = CALL * TT_TRIAL_MOST,
  PAUSE_US = TT_TRIAL_PAUSE_NS / 1000,
  LOST = TT_TRIAL_WORTH *
         CHUNKS // chunks behind a trial whose slower way took twice as long, where these take longer than the pause
};

// A machine on which each way takes so long, for the chunks with even numbers and for the others.
typedef struct machine {
  uint64_t ns[TT_NWAYS][2];
  bool lacks[TT_NWAYS]; // the way is unavailable: chunks go the other one
  int chunks;           // so far
  int by[TT_NWAYS];     // by each way
  uint64_t clock_ns;
} machine;

static machine machine_of(uint64_t copy_ns, uint64_t pages_ns)
{
  return (machine){.ns = {{copy_ns, copy_ns}, {pages_ns, pages_ns}}};
}

// One chunk by the way that is asked for; `slower_ns`: something disturbs it. True: news.
static bool move_chunk(tt_trial *t, machine *m, uint64_t slower_ns)
{
  tt_way way = tt_trial_way(t);
  way = m->lacks[way] ? (tt_way)!way : way;
  uint64_t ns = m->ns[way][m->chunks % 2] + slower_ns;
  m->chunks++;
  m->by[way]++;
  m->clock_ns += TT_MIN(ns, (uint64_t)UINT32_MAX);
  return tt_trial_add(t, way, CALL, tt_trial_is_on(t) ? ns : 0);
}

// Chunks until the trial that is on has ended.
static int end_trial(tt_trial *t, machine *m)
{
  int n = 0;
  for (; tt_trial_is_on(t); n++) {
    move_chunk(t, m, 0);
  }
  return n;
}

// Chunks until the next trial begins.
static int rest_fully(tt_trial *t, machine *m)
{
  int n = 0;
  for (; !tt_trial_is_on(t); n++) {
    move_chunk(t, m, 0);
  }
  return n;
}

static void test_the_chosen_way_comes_first(void **state)
{
  (void)state;
  for (int chosen = 0; chosen < TT_NWAYS; chosen++) {
    tt_trial t = {.chosen = (uint8_t)chosen};
    machine m = machine_of(1000, 1000);
    for (int i = 0; i < 2 * CHUNKS; i++) {
      assert_true(tt_trial_is_on(&t));
      assert_int_equal(tt_trial_way(&t), i < CHUNKS ? chosen : !chosen);
      move_chunk(&t, &m, 0);
    }
    assert_false(tt_trial_is_on(&t));
  }
}

// What a trial of ways that take so long comes to.
static void check_choice(tt_way before, uint64_t copy_ns, uint64_t pages_ns, tt_way chosen)
{
  tt_trial t = {.chosen = (uint8_t)before};
  machine m = machine_of(copy_ns, pages_ns);
  end_trial(&t, &m);
  assert_int_equal(t.chosen, chosen);
  m.by[!chosen] = 0;
  for (int i = 0; i < 1000 && !tt_trial_is_on(&t); i++) {
    move_chunk(&t, &m, 0);
  }
  assert_int_equal(m.by[!chosen], 0); // nothing else between the trials
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
  check_choice(TT_WAY_COPY, 0, 0, TT_WAY_COPY);
  check_choice(TT_WAY_COPY, 1000, UINT64_MAX, TT_WAY_COPY);           // longer than what is kept
  check_choice(TT_WAY_COPY, UINT64_MAX, UINT32_MAX - 1, TT_WAY_COPY); // both are: they count as equal
}

// However much the ways differ, a trial has as many samples of both.
static void test_every_trial_has_the_same_length(void **state)
{
  static const uint64_t other_ns[] = {10, 499, 500, 901, 2000, 2001, 90000};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(other_ns); i++) {
    tt_trial t = {0};
    machine m = machine_of(1000, other_ns[i]);
    assert_int_equal(end_trial(&t, &m), 2 * CHUNKS);
    assert_int_equal(m.by[TT_WAY_PAGES], CHUNKS);
  }
}

// A trial of an unavailable way ends, too. Where the chosen way is unavailable, chunks count as the other's.
static void test_an_unavailable_way(void **state)
{
  (void)state;
  for (int lacking = 0; lacking < TT_NWAYS; lacking++) {
    tt_trial t = {0};
    machine m = machine_of(1000, 1000);
    m.lacks[lacking] = true;
    for (int i = 0; i < 5; i++) {
      int spent = lacking == TT_WAY_PAGES ? MOST : CHUNKS;
      assert_int_equal(end_trial(&t, &m), spent);
      assert_int_equal(m.by[lacking], 0);
      assert_int_equal(t.chosen, TT_WAY_COPY);
      assert_int_equal(rest_fully(&t, &m), TT_TRIAL_REST);
    }
  }
}

// The next trial begins when the chunks since have taken TT_TRIAL_PAUSE_NS, and TT_TRIAL_WORTH times what the last
// trial has lost, or after TT_TRIAL_REST chunks.
static void test_a_rest_is_worth_the_trial(void **state)
{
  static const struct {
    uint64_t copy_us, pages_us;
    int rest;
  } list[] = {{1, 1, TT_TRIAL_REST},      {10, 12, PAUSE_US / 10},    {10, 40, LOST * 3},
              {100, 100, PAUSE_US / 100}, {100, 1000, LOST * 9}, // which is longer than the pause of 50 chunks
              {1000, 100, LOST * 9},      {1, 300000, TT_TRIAL_REST}, {1000, 1010, PAUSE_US / 1000},
              {1000, 1500, LOST / 2},     {2000, 1000, LOST},         {10 * PAUSE_US, 10 * PAUSE_US, 1}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(list); i++) {
    tt_trial t = {0};
    machine m = machine_of(1000 * list[i].copy_us, 1000 * list[i].pages_us);
    end_trial(&t, &m);
    assert_int_equal(rest_fully(&t, &m), list[i].rest);
  }
}

// It is as long behind the tenth trial as behind the first.
static void test_rests_do_not_grow(void **state)
{
  (void)state;
  for (int turns = 0; turns < 2; turns++) {
    tt_trial t = {0};
    machine m = turns ? machine_of(1000000, 250000) : machine_of(250000, 1000000);
    for (int i = 0; i < 10; i++) {
      end_trial(&t, &m);
      assert_int_equal(rest_fully(&t, &m), 3 * LOST);
    }
  }
}

// The ways swap their times, as where a virtual machine's cores move: the next trial finds it.
static void test_a_change_is_found_within_the_rest(void **state)
{
  static const struct {
    uint64_t slow_us;
    int rest;
  } list[] = {{1200, LOST / 5}, {9000, 8 * LOST}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(list); i++) {
    tt_trial t = {0};
    machine before = machine_of(1000000, 1000 * list[i].slow_us), after = machine_of(1000 * list[i].slow_us, 1000000);
    end_trial(&t, &before);
    assert_int_equal(t.chosen, TT_WAY_COPY);
    assert_int_equal(rest_fully(&t, &after), list[i].rest);
    assert_int_equal(end_trial(&t, &after), 2 * CHUNKS);
    assert_int_equal(t.chosen, TT_WAY_PAGES);
    assert_int_equal(rest_fully(&t, &after), list[i].rest); // and looks again as soon
  }
}

// What trials cost where nothing changes.
static void test_trials_cost_little(void **state)
{
  static const uint64_t slow_ns[] = {1000000, 1100000, 2000000, 9000000, 15000000};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(slow_ns); i++) {
    tt_trial t = {0};
    machine m = machine_of(1000000, slow_ns[i]);
    for (int k = 0; k < 20; k++) {
      end_trial(&t, &m);
      rest_fully(&t, &m);
    }
    uint64_t least_ns = (uint64_t)m.chunks * 1000000;
    assert_true((m.clock_ns - least_ns) * TT_TRIAL_WORTH <= least_ns);
  }
}

// Of a trial's samples the least counts: one that nothing has disturbed is enough.
static void test_single_slow_samples_do_not_matter(void **state)
{
  (void)state;
  for (int good = 0; good < TT_TRIAL_SAMPLES - 1; good++) {
    for (int quicker = 0; quicker < TT_NWAYS; quicker++) {
      tt_trial t = {0};
      machine m = quicker == TT_WAY_COPY ? machine_of(800, 1000) : machine_of(1000, 800);
      while (tt_trial_is_on(&t)) {
        int sample = t.samples[tt_trial_way(&t)] - 1;
        move_chunk(&t, &m, sample != good ? 100 * (uint64_t)(sample + 3) : 0);
      }
      assert_int_equal(t.chosen, quicker);
    }
  }
}

// The first sample of a way pays for what the change of ways costs: it does not count, however short it is.
static void test_the_first_sample_does_not_count(void **state)
{
  (void)state;
  tt_trial t = {0};
  machine m = machine_of(1000, 1100);
  while (tt_trial_is_on(&t)) {
    bool first = tt_trial_way(&t) == TT_WAY_PAGES && t.samples[TT_WAY_PAGES] == 0;
    m.ns[TT_WAY_PAGES][0] = m.ns[TT_WAY_PAGES][1] = first ? 10 : 1100;
    move_chunk(&t, &m, 0);
  }
  assert_int_equal(t.chosen, TT_WAY_COPY);
  assert_int_equal(t.least_ns[TT_WAY_PAGES], 1100);
}

// Calls of two kinds in turn: samples are of both, whichever comes first. The least single chunk would choose copies.
static void test_calls_of_two_kinds_in_turn(void **state)
{
  (void)state;
  for (int first = 0; first < 2; first++) {
    for (int chosen = 0; chosen < TT_NWAYS; chosen++) {
      tt_trial t = {.chosen = (uint8_t)chosen};
      machine m = {.ns = {{1000, 10000}, {4000, 5000}}, .chunks = first};
      for (int i = 0; i < 3; i++) {
        end_trial(&t, &m);
        assert_int_equal(t.chosen, TT_WAY_PAGES);
        rest_fully(&t, &m);
      }
    }
  }
}

// A trial's chunks of the other way, of two kinds in turn, from number `first` on; before number `at` one still goes
// the old way. The cheap kind alone would win.
static void try_parted(tt_trial *t, int first, int at)
{
  for (int i = 0; tt_trial_is_on(t); i++) {
    assert_true(i < MOST);
    if (i == at) {
      tt_trial_add(t, TT_WAY_COPY, CALL, 10);
    }
    tt_trial_add(t, TT_WAY_PAGES, CALL, (first + i + (i >= at)) % 2 == 0 ? 1000 : 6000);
  }
}

// A chunk that was still under way parts the two of a sample: the sample begins anew, and is not of one kind alone.
static void test_what_comes_between_parts_a_sample(void **state)
{
  (void)state;
  for (int k = 0; k < 2 * CHUNKS; k++) {
    tt_trial t = {0};
    for (int i = 0; i < CHUNKS; i++) {
      tt_trial_add(&t, TT_WAY_COPY, CALL, 3000);
    }
    try_parted(&t, k % 2, k / 2);
    assert_int_equal(t.chosen, TT_WAY_COPY);
  }
}

// Calls of several chunks, of which some are quick because the sender has run ahead while others were slow: only whole
// calls tell.
static void test_a_sample_is_a_whole_call(void **state)
{
  static const uint64_t copy_ns[] = {100, 100, 3000, 200, 2000}, pages_ns[] = {900, 900, 900, 900, 900};
  enum { LENGTH = TT_COUNT(copy_ns) };
  (void)state;
  for (int first = 0; first < LENGTH; first++) {
    tt_trial t = {0};
    for (int i = first; tt_trial_is_on(&t); i++) {
      tt_way way = tt_trial_way(&t);
      tt_trial_add(&t, way, LENGTH, way == TT_WAY_COPY ? copy_ns[i % LENGTH] : pages_ns[i % LENGTH]);
      assert_true(i < 3 * LENGTH * TT_TRIAL_SAMPLES);
    }
    assert_int_equal(t.chosen, TT_WAY_PAGES);
    assert_int_equal(t.least_ns[TT_WAY_COPY], 5400 / LENGTH);
    assert_int_equal(t.least_ns[TT_WAY_PAGES], 900);
  }
}

// A longer call is several samples. All count, whichever chunk of the call each begins with.
static void test_a_long_call_is_several_samples(void **state)
{
  static const int calls[] = {9, 17, 34, 1000};
  (void)state;
  for (size_t k = 0; k < TT_COUNT(calls); k++) {
    tt_trial t = {0};
    int n = 0;
    for (; tt_trial_is_on(&t); n++) {
      tt_way way = tt_trial_way(&t);
      tt_trial_add(&t, way, calls[k], way == TT_WAY_COPY ? 1000 : 800);
    }
    assert_int_equal(n, 2 * TT_TRIAL_CHUNKS * TT_TRIAL_SAMPLES);
    assert_int_equal(t.chosen, TT_WAY_PAGES);
  }
}

// A call of another length parts a sample, too. A single chunk makes none.
static void test_calls_of_other_lengths(void **state)
{
  tt_trial t = {0};
  (void)state;
  for (int i = 0; i < TT_TRIAL_CHUNKS - 1; i++) {
    tt_trial_add(&t, TT_WAY_COPY, 100, 10);
  }
  tt_trial_add(&t, TT_WAY_COPY, 1, 10);
  assert_int_equal(t.samples[TT_WAY_COPY], 0);
  tt_trial_add(&t, TT_WAY_COPY, 1, 10);
  assert_int_equal(t.samples[TT_WAY_COPY], 1);
  for (int i = 0; i < 2 * TT_TRIAL_CHUNKS; i++) {
    assert_int_equal(t.samples[TT_WAY_COPY], 1 + i / TT_TRIAL_CHUNKS);
    tt_trial_add(&t, TT_WAY_COPY, 100, 10);
  }
  assert_int_equal(t.least_ns[TT_WAY_COPY], 10);
}

// What the first trial has found is news, and what changes the choice; not that all is as it was.
static void test_what_is_news(void **state)
{
  tt_trial t = {0};
  machine m = machine_of(1000, 3000);
  int news = 0;
  (void)state;
  for (int i = 0; i < 500000; i++) {
    bool before = tt_trial_is_on(&t), now = move_chunk(&t, &m, 0);
    assert_true(!now || (before && !tt_trial_is_on(&t)));
    news += now;
    m.ns[TT_WAY_PAGES][0] = m.ns[TT_WAY_PAGES][1] = i < 250000 ? 3000 : 300;
  }
  assert_int_equal(news, 2);
}

// Neither times nor ways: chunks that are still under way, or that something has disturbed for long, change nothing
// before the next trial.
static void test_nothing_matters_between_trials(void **state)
{
  tt_trial t = {0};
  machine m = machine_of(1000, 1000);
  (void)state;
  end_trial(&t, &m);
  for (int i = 0; i < TT_TRIAL_REST; i++) {
    assert_false(tt_trial_is_on(&t));
    assert_int_equal(tt_trial_way(&t), TT_WAY_COPY);
    tt_trial_add(&t, i % 3 == 0 ? TT_WAY_PAGES : TT_WAY_COPY, CALL, i % 3 == 0 ? 0 : UINT64_MAX);
  }
  assert_true(tt_trial_is_on(&t));
  end_trial(&t, &m);
  assert_int_equal(t.chosen, TT_WAY_COPY);
}

// A way that takes twice as long all of a sudden is left by the next trial, and chosen again by the one after the next
// change.
static void test_a_way_that_becomes_slow_is_left(void **state)
{
  tt_trial t = {0};
  machine m = machine_of(100000, 125000);
  (void)state;
  end_trial(&t, &m);
  m = machine_of(200000, 125000);
  rest_fully(&t, &m);
  assert_int_equal(end_trial(&t, &m), 2 * CHUNKS);
  assert_int_equal(t.chosen, TT_WAY_PAGES);
  m = machine_of(200000, 400000);
  rest_fully(&t, &m);
  end_trial(&t, &m);
  assert_int_equal(t.chosen, TT_WAY_COPY);
}

// Where both ways have become slower, nothing turns, and the next trial is no sooner.
static void test_a_slower_machine_changes_nothing(void **state)
{
  tt_trial t = {0};
  machine m = machine_of(10000, 12000);
  (void)state;
  end_trial(&t, &m);
  m = machine_of(20000, 24000);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(rest_fully(&t, &m), PAUSE_US / (i == 0 ? 10 : 20));
    assert_int_equal(end_trial(&t, &m), 2 * CHUNKS);
    assert_int_equal(t.chosen, TT_WAY_COPY);
  }
}

// A sample with a chunk whose time is unknown does not win, however many chunks a sample has.
static void test_an_unknown_time_does_not_win(void **state)
{
  (void)state;
  for (int call = 1; call <= TT_TRIAL_CHUNKS + 1; call++) {
    tt_trial t = {0};
    for (int i = 0; tt_trial_is_on(&t); i++) {
      tt_way way = tt_trial_way(&t);
      tt_trial_add(&t, way, call, way == TT_WAY_PAGES && i % 2 == 0 ? UINT64_MAX : way == TT_WAY_PAGES ? 10 : 1000);
    }
    assert_int_equal(t.chosen, TT_WAY_COPY);
    assert_int_equal(t.least_ns[TT_WAY_PAGES], 0);
  }
}

// Times that differ very much, or that no trial has measured: the next trial comes all the same.
static void test_the_longest_rest(void **state)
{
  (void)state;
  for (int quicker = 0; quicker < TT_NWAYS; quicker++) {
    tt_trial t = {0};
    machine m = quicker == TT_WAY_COPY ? machine_of(1, UINT32_MAX / 3) : machine_of(UINT32_MAX / 3, 1);
    end_trial(&t, &m);
    assert_int_equal(t.rest, TT_TRIAL_REST);
    assert_int_equal(t.chosen, quicker);
  }
  tt_trial t = {0};
  for (int i = 0; tt_trial_is_on(&t); i++) {
    tt_trial_add(&t, (tt_way)(i % 2), CALL, 5000); // no sample is ever complete
    assert_true(i < MOST);
  }
  assert_int_equal(t.rest, TT_TRIAL_REST);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_chosen_way_comes_first),
      cmocka_unit_test(test_switches_where_the_other_is_quicker_by_a_twentieth),
      cmocka_unit_test(test_every_trial_has_the_same_length),
      cmocka_unit_test(test_an_unavailable_way),
      cmocka_unit_test(test_a_rest_is_worth_the_trial),
      cmocka_unit_test(test_rests_do_not_grow),
      cmocka_unit_test(test_a_change_is_found_within_the_rest),
      cmocka_unit_test(test_trials_cost_little),
      cmocka_unit_test(test_single_slow_samples_do_not_matter),
      cmocka_unit_test(test_the_first_sample_does_not_count),
      cmocka_unit_test(test_calls_of_two_kinds_in_turn),
      cmocka_unit_test(test_what_comes_between_parts_a_sample),
      cmocka_unit_test(test_a_sample_is_a_whole_call),
      cmocka_unit_test(test_a_long_call_is_several_samples),
      cmocka_unit_test(test_calls_of_other_lengths),
      cmocka_unit_test(test_what_is_news),
      cmocka_unit_test(test_nothing_matters_between_trials),
      cmocka_unit_test(test_a_way_that_becomes_slow_is_left),
      cmocka_unit_test(test_a_slower_machine_changes_nothing),
      cmocka_unit_test(test_an_unknown_time_does_not_win),
      cmocka_unit_test(test_the_longest_rest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
