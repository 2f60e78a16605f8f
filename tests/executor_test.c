// executor_test.c: every algorithm for every function it knows, n from 1 to 64 ranks, run by the host executor against
// a scalar reference that shares no code with it. All ranks live in one thread: their ports and links are made by hand,
// and their lanes take turns, round robin or in an order drawn from a seed.
#include "executor.h"

// ---- What to try ----

static void write_schedules(const tt_algorithm *a, tt_func f, int root, int to)
{
  for (int i = 0; i < (is_p2p(f) ? 2 : w.n); i++) {
    tt_shape shape = {.func = is_p2p(f) ? i == 0 ? TT_FUNC_SEND : TT_FUNC_RECV : f,
                      .nranks = w.n,
                      .root = is_p2p(f) && i == 0 ? to : root,
                      .rank = !is_p2p(f) ? i
                              : i == 0   ? root
                                         : to};
    assert_int_equal(tt_algorithm_write(a, &shape, &sides[i].s), ncclSuccess);
  }
}

static void free_schedules(void)
{
  for (int i = 0; i < MOST; i++) {
    tt_schedule_free(sides[i].s);
    sides[i].s = NULL;
    for (int c = 0; c < CHANNELS - 1; c++) {
      tt_schedule_free(sides[i].more[c]);
      sides[i].more[c] = NULL;
    }
  }
}

// The largest count for which all buffers fit the arena.
static size_t most_elements(void)
{
  int blocks = 0;
  for (int i = 0; i < w.n && sides[i].s != NULL; i++) {
    blocks += sides[i].s->in_blocks + sides[i].s->out_blocks;
  }
  return MAX_WORDS / (size_t)blocks;
}

// The i-th mixture of chunk size, count and the rest for the schedules in `sides`. Small primes make neighbours differ
// in everything.
static trial mixture(const tt_algorithm *a, tt_func f, int root, unsigned i)
{
  static const size_t simple[] = {1, 64, 7, 33}, ll[] = {1, 10, 3, 9}, direct[] = {1, 500, 37, 16};
  size_t nsub = (size_t)sides[0].s->nsub;
  trial t = {.a = a,
             .f = f,
             .root = root,
             .in_place = i % 2 == 1,
             .proto = i / 2 % 2 == 0 ? TT_SIMPLE : TT_LL,
             .seed = i % 3 == 0 ? 0 : i,
             .floats = f == TT_FUNC_ALLREDUCE && i % 5 == 1};
  bool direct_row =
      a->needs != 0 && sides[0].s->refs[sides[0].s->nrefs - 1].kind != TT_FIFO && sides[0].s->refs[0].kind != TT_FIFO;
  t.chunk = direct_row ? direct[i / 4 % 4] : t.proto == TT_LL ? ll[i / 4 % 4] : simple[i / 4 % 4];
  size_t pass = nsub * t.chunk, counts[] = {2 * pass + 1, pass - 1, 3 * pass + pass / 2 + 3, pass + 17, 1, pass, 0};
  t.count = TT_MIN(counts[i % TT_COUNT(counts)], most_elements() / 8);
  return t;
}

static void many_mixtures(const tt_algorithm *a, tt_func f, int root, unsigned first, unsigned how_many)
{
  write_schedules(a, f, root, 0);
  for (unsigned i = first; i < first + how_many; i++) {
    trial t = mixture(a, f, root, i);
    run_trial(&t);
  }
  free_schedules();
}

static void each_row(void (*check)(const tt_algorithm *a, tt_func f))
{
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  for (int i = 0; i < count; i++) {
    for (int f = 0; f < TT_NFUNCS; f++) {
      if (table[i].funcs >> f & 1) {
        check(&table[i], (tt_func)f);
      }
    }
  }
}

// Roots that are tried: all of them up to 24 ranks.
static bool root_wanted(tt_func f, int root)
{
  return !is_rooted(f) ? root == 0
                       : w.n <= 24 || root < 2 || root == w.n / 2 || root == w.n - 1 ||
                             root == 2 + (w.n * 7 + (int)f) % (w.n - 3);
}

static void every_root(const tt_algorithm *a, tt_func f)
{
  static unsigned next;
  for (int root = 0; root < w.n && !is_p2p(f); root++) {
    if (root_wanted(f, root)) {
      unsigned how_many = w.n <= 5                     ? 42
                          : w.n <= 9                   ? 14
                          : w.n <= 17 && !is_rooted(f) ? 7
                          : is_rooted(f) && w.n > 9    ? 1
                                                       : 2;
      how_many = TT_MAX(how_many / FEWER, 1);
      many_mixtures(a, f, root, next, how_many);
      next += how_many;
    }
  }
}

static void report(const char *what)
{
  print_message("  %s: %lu operations, %lu steps of schedules\n", what, runs, steps_run);
  runs = steps_run = 0;
}

static void test_every_n_every_root(void **state)
{
  static const int slots[] = {1, 2, 8};
  (void)state;
  for (int n = 1; n <= MOST; n += n < 9 ? 1 : N_STEP) {
    for (int k = 0; k < 3; k++) {
      if (n <= 9 || k == n % 3) {
        open_world(n, slots[k], TT_ACCESS_LOCAL, 0);
        each_row(every_root);
        close_world();
      }
    }
  }
  report("every n, every root");
}

static void every_pair(const tt_algorithm *a, tt_func f)
{
  for (int k = 0; k < w.n * w.n && f == TT_FUNC_SEND; k++) {
    write_schedules(a, f, k / w.n, k % w.n);
    for (unsigned i = 0; i < 14 / FEWER; i++) {
      trial t = mixture(a, f, k / w.n, i + (unsigned)k);
      t.to = k % w.n;
      run_trial(&t);
    }
    free_schedules();
  }
}

static void test_messages_between_every_pair(void **state)
{
  (void)state;
  for (int slots = 1; slots <= 8; slots *= 2) {
    for (int n = 1; n <= 5; n += 2) {
      open_world(n, slots, TT_ACCESS_LOCAL, 0);
      each_row(every_pair);
      close_world();
    }
  }
  report("messages");
}

// Message numbers pass 2^32.
static void test_numbers_wrap(void **state)
{
  (void)state;
  for (int slots = 1; slots <= 8; slots *= 2) {
    open_world(4, slots, TT_ACCESS_LOCAL, UINT32_MAX - 3);
    each_row(every_root);
    close_world();
  }
  report("numbers that wrap");
}

static void every_operation(const tt_algorithm *a, tt_func f)
{
  if (!tt_func_reduces(f)) {
    return;
  }
  for (int root = 0; root < (is_rooted(f) ? w.n : 1); root++) {
    write_schedules(a, f, root, 0);
    for (unsigned i = 0; i < 12 / FEWER; i++) {
      trial t = mixture(a, f, root, i * 5);
      t.op = i % 2 == 0 ? AVG : PREMUL;
      t.floats = i / 2 % 2 == 0;
      run_trial(&t);
    }
    free_schedules();
  }
}

static void test_averages_and_scaled_sums(void **state)
{
  (void)state;
  for (int n = 1; n <= 8; n++) {
    open_world(n, 1 << n % 4, TT_ACCESS_LOCAL, 0);
    each_row(every_operation);
    close_world();
  }
  report("averages and scaled sums");
}

// The same operation in many orders of the lanes: the bits of its outputs never change.
static void same_bits(const tt_algorithm *a, tt_func f)
{
  static uint32_t first[TT_COUNT(arena)];
  if (!tt_func_reduces(f)) {
    return;
  }
  write_schedules(a, f, 1, 0);
  for (unsigned seed = 0; seed < 24 / FEWER; seed++) {
    trial t = mixture(a, f, 1, 2);
    t.proto = TT_SIMPLE;
    t.floats = true;
    t.seed = seed;
    run_trial(&t);
    size_t bytes = (size_t)((char *)sides[w.n - 1].end - (char *)arena);
    if (seed == 0) {
      memcpy(first, arena, bytes);
    } else if (memcmp(first, arena, bytes) != 0) {
      fail_msg("%s: other bits than with seed 0", text_of(&t));
    }
  }
  free_schedules();
}

static void test_any_order_gives_the_same_bits(void **state)
{
  (void)state;
  for (int n = 2; n <= 11; n += 3) {
    for (int slots = 1; slots <= 8; slots *= 2) {
      open_world(n, slots, TT_ACCESS_LOCAL, 0);
      each_row(same_bits);
      close_world();
    }
  }
  report("any order");
}

// Peers' memory through the kernel, as between two processes. The last mixture needs several pieces of the bounce
// buffer per step.
static void through_the_kernel(const tt_algorithm *a, tt_func f)
{
  if (a->needs == 0 || is_p2p(f)) {
    return;
  }
  const int step = FEWER == 1 ? 1 : 3;
  for (int root = 0; root < (is_rooted(f) ? w.n : 1); root++) {
    many_mixtures(a, f, root, 0, 14);
    write_schedules(a, f, root, 0);
    for (int k = 0; k < (root == 0 ? 4 : 1); k += step) {
      trial t = {.a = a,
                 .f = f,
                 .root = root,
                 .count = TT_MIN(most_elements(), (FEWER == 1 ? 3 : 1) * BIG + 5),
                 .chunk = k < 2 ? BIG : 9999,
                 .in_place = k % 2 != 0,
                 .op = k == 3 && tt_func_reduces(f) ? PREMUL : SUM};
      run_trial(&t);
    }
    free_schedules();
  }
}

static void messages_through_the_kernel(const tt_algorithm *a, tt_func f)
{
  if (a->needs != 0) {
    every_pair(a, f);
  }
}

static void test_copies_by_the_kernel(void **state)
{
  (void)state;
  for (int n = 1; n <= 8; n += n < 4 ? 1 : 2) {
    open_world(n, 1 << n % 4, TT_ACCESS_COPY, 0);
    each_row(through_the_kernel);
    if (n <= 3) {
      each_row(messages_through_the_kernel);
    }
    close_world();
  }
  report("through the kernel");
}

// The same with copies in outboxes, and with copies and the kernel by turns: outboxes that large chunks fill or do not
// fit into.
static void test_copies_in_outboxes(void **state)
{
  static const struct {
    int n;
    uint32_t box, first;
  } list[] = {{2, 2048, 0}, {2, 1 << 20, UINT32_MAX - 3}, {3, 1 << 19, 0}, {4, 4096, UINT32_MAX - 3}, {6, 2048, 0}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(list); i++) {
    open_world(list[i].n, 2 << i % 3, TT_ACCESS_COPY, list[i].first);
    add_outboxes(list[i].box);
    each_row(through_the_kernel);
    if (list[i].n <= 3) {
      each_row(messages_through_the_kernel);
    }
    close_world();
  }
  report("in outboxes");
}

// ---- Channels ----

static void write_rows(const tt_algorithm *a, tt_func f, int root, const tt_layout *l)
{
  for (int i = 0; i < w.n; i++) {
    tt_shape shape = {.func = f, .nranks = w.n, .root = root, .rank = i, .layout = l};
    assert_int_equal(tt_algorithm_write(a, &shape, &sides[i].s), ncclSuccess);
    for (shape.channel = 1; shape.channel < l->channels.count; shape.channel++) {
      assert_int_equal(tt_algorithm_write(a, &shape, &sides[i].more[shape.channel - 1]), ncclSuccess);
    }
  }
}

// Two to four channels of any rings and trees, on one node or several, every root of few ranks.
static void any_channels(const tt_algorithm *a, tt_func f)
{
  static unsigned next;
  int names[MOST], most = w.n <= 6 ? 6 : 1;
  for (int k = 0; k < most && a->follows != TT_FOLLOWS_NODES; k++) {
    tt_layout *l;
    for (int i = 0; i < w.n; i++) {
      names[i] = i % (1 + k % 3);
    }
    assert_int_equal(tt_layout_create(w.n, names, &l), ncclSuccess);
    assert_int_equal(set_random_channels(l, next + 1, 2 + (int)next % (CHANNELS - 1)), ncclSuccess);
    for (int root = 0; root < (is_rooted(f) ? w.n : 1); root += w.n <= 9 ? 1 : w.n / 2) {
      write_rows(a, f, root, l);
      for (unsigned i = 0; i < (w.n <= 9 ? 14 / FEWER : 2); i++, next++) {
        trial t = mixture(a, f, root, next);
        t.op = tt_func_reduces(f) && next % 11 == 0 ? PREMUL : SUM;
        run_trial(&t);
      }
      free_schedules();
    }
    tt_layout_destroy(l);
  }
}

static void test_channels(void **state)
{
  static const int slots[] = {1, 2, 8};
  (void)state;
  for (int n = 1; n <= MOST; n += n < 9 ? 1 : N_STEP) {
    for (int k = 0; k < 3; k++) {
      if (n <= 9 || k == n % 3) {
        open_world(n, slots[k], TT_ACCESS_LOCAL, n % 2 == 0 ? 0 : UINT32_MAX - 5);
        each_row(any_channels);
        close_world();
      }
    }
  }
  report("channels");
}

// A peer in another call is named, and nothing is written.
static void test_another_call_is_noticed(void **state)
{
  (void)state;
  open_world(2, 2, TT_ACCESS_LOCAL, 0);
  write_schedules(&tt_algorithms(NULL)[tt_algorithm_find("Ring")], TT_FUNC_ALLREDUCE, 0, 0);
  trial t = {.a = tt_algorithms(NULL), .f = TT_FUNC_ALLREDUCE, .count = 5, .chunk = 64};
  uint32_t *at = arena;
  nlanes = 0;
  for (int i = 0; i < 2; i++) {
    at = prepare(&t, &sides[i], i, at);
  }
  sides[1].call.sig_count++;
  bool failed = false;
  for (int i = 0; i < 4 && !failed; i++) {
    size_t budget = 1 << 20;
    failed = tt_lane_run(&w.ports[i % 2], &lanes[i % 2], &budget) == TT_RUN_FAILED;
  }
  assert_true(failed);
  assert_int_equal(tt_port_status(&w.ports[0]) | tt_port_status(&w.ports[1]), ncclInvalidUsage);
  assert_non_null(strstr(tt_last_error(), "count 6"));
  free_schedules();
  close_world();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_n_every_root),
      cmocka_unit_test(test_messages_between_every_pair),
      cmocka_unit_test(test_numbers_wrap),
      cmocka_unit_test(test_averages_and_scaled_sums),
      cmocka_unit_test(test_any_order_gives_the_same_bits),
      cmocka_unit_test(test_copies_by_the_kernel),
      cmocka_unit_test(test_copies_in_outboxes),
      cmocka_unit_test(test_channels),
      cmocka_unit_test(test_another_call_is_noticed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
