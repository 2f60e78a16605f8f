// cost_test.c: times that can be reckoned by hand, bounds that nothing may beat, and choices that must come out.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/util.h"
#include "coll/cost.h"
#include "coll/select.h"

enum { MOST = 64 };

static const size_t MIB = 1 << 20;

// A model of n ranks, and the layout it uses.
typedef struct model {
  tt_layout *layout;
  tt_cost *cost;
} model;

static model model_of(const tt_cost_env *env, int n, int nodes)
{
  int names[MOST];
  model m;
  for (int r = 0; r < n; r++) {
    names[r] = r * nodes / n;
  }
  assert_int_equal(tt_layout_create(n, names, &m.layout), ncclSuccess);
  assert_int_equal(tt_cost_create(env, n, m.layout, &m.cost), ncclSuccess);
  return m;
}

static void free_model(model *m)
{
  tt_cost_destroy(m->cost);
  tt_layout_destroy(m->layout);
}

static double cost_of(const model *m, tt_func f, const char *algo, tt_proto proto, size_t bytes)
{
  tt_cost_choice c;
  assert_int_equal(tt_cost_estimate(m->cost, f, tt_algorithm_find(algo), proto, bytes, &c), ncclSuccess);
  assert_int_equal(c.algo, tt_algorithm_find(algo));
  return c.us;
}

static uint32_t rows(const char *a, const char *b, const char *c)
{
  uint32_t mask = 1u << tt_algorithm_find(a) | 1u << tt_algorithm_find(b);
  return c ? mask | 1u << tt_algorithm_find(c) : mask;
}

static const char *best_of(const model *m, tt_func f, size_t bytes, uint32_t algos)
{
  tt_cost_choice c;
  assert_int_equal(tt_cost_best(m->cost, f, bytes, algos, TT_PROTO_ALL, &c), ncclSuccess);
  assert_true(c.algo >= 0 && isfinite(c.us) && c.us > 0);
  return tt_algorithms(NULL)[c.algo].name;
}

static tt_proto proto_of(const model *m, tt_func f, size_t bytes, uint32_t algos)
{
  tt_cost_choice c;
  assert_int_equal(tt_cost_best(m->cost, f, bytes, algos, TT_PROTO_ALL, &c), ncclSuccess);
  return c.proto;
}

// Numbers that are easy to add up.
static tt_cost_env round_env(void)
{
  tt_cost_env e = {.step = 1, .byte = 0.5, .net_byte = 2, .change = 1000, .cores = 4, .direct = {0, 3, 0.25}};
  for (int p = 0; p < TT_COST_FIFOS; p++) {
    e.hop[TT_HOP_SELF][p] = (tt_cost_hop){0, 1, 0};
    e.hop[TT_HOP_MEMORY][p] = (tt_cost_hop){100, 10, 1};
    e.hop[TT_HOP_NETWORK][p] = (tt_cost_hop){10000, 20, 0};
    e.slots[p] = 1;
    e.payload[p] = 64;
  }
  return e;
}

// RD between two ranks. Step 1: in -> out, FIFO. Step 2: out + FIFO -> out.
static void test_two_ranks_by_hand(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  model one = model_of(&e, 2, 1), two = model_of(&e, 2, 2);
  double send = 1 + 32 + 32 + (10 + 64), receive = 1 + 32 + 32 + (10 + 64);
  assert_float_equal(cost_of(&one, TT_FUNC_ALLREDUCE, "RD", TT_LL, 64), send + 100 + receive, 1e-6);
  send = receive = 1 + 32 + 32 + 20;
  assert_float_equal(cost_of(&two, TT_FUNC_ALLREDUCE, "RD", TT_LL, 64), send + 128 + 10000 + receive, 1e-6);
  free_model(&one);
  free_model(&two);
}

// With one core both ranks' steps follow one another: rank 0's, a change, rank 1's, which has its message by then, a
// change, rank 0's.
static void test_one_core_by_hand(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  e.cores = 1;
  model m = model_of(&e, 2, 1);
  double step = 1 + 32 + 32 + (10 + 64);
  assert_float_equal(cost_of(&m, TT_FUNC_ALLREDUCE, "RD", TT_LL, 64), step + 1000 + step + step + 1000 + step, 1e-6);
  free_model(&m);
}

// A chain of two ranks with one slot: in every pass the sender waits until the receiver has taken the message before.
static void test_room_by_hand(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  model m = model_of(&e, 2, 1);
  double send = 1 + 32 + 32 + (10 + 64), receive = 1 + (10 + 64) + 32, round = send + 100 + receive + 100;
  for (int passes = 1; passes <= 6; passes++) {
    double us = cost_of(&m, TT_FUNC_BROADCAST, "Ring", TT_LL, (size_t)passes * 64);
    assert_float_equal(us, passes * round - 100, 1e-6);
  }
  free_model(&m);
}

static void test_small_and_large_on_one_node(void **state)
{
  (void)state;
  tt_cost_env e = tt_cost_env_default(8);
  model m = model_of(&e, 8, 1);
  uint32_t flat = rows("Ring", "Tree", "RD");
  assert_string_equal(best_of(&m, TT_FUNC_ALLREDUCE, 8, flat), "RD");
  assert_string_not_equal(best_of(&m, TT_FUNC_ALLREDUCE, 64 * MIB, flat), "RD");
  assert_string_equal(best_of(&m, TT_FUNC_ALLREDUCE, 64 * MIB, rows("Ring", "RD", NULL)), "Ring");
  assert_string_equal(best_of(&m, TT_FUNC_ALLREDUCE, 64 * MIB, rows("Ring", "Direct", NULL)), "Direct");
  assert_string_equal(best_of(&m, TT_FUNC_BROADCAST, 8, rows("Ring", "Tree", NULL)), "Tree");
  assert_int_equal(proto_of(&m, TT_FUNC_ALLREDUCE, 8, flat), TT_LL);
  assert_int_equal(proto_of(&m, TT_FUNC_ALLREDUCE, 64 * MIB, flat), TT_SIMPLE);
  assert_int_equal(proto_of(&m, TT_FUNC_ALLREDUCE, 64 * MIB, 1u << tt_algorithm_find("Direct")), TT_TOK);
  free_model(&m);
  m = model_of(&e, 32, 1);
  assert_string_equal(best_of(&m, TT_FUNC_ALLREDUCE, 8, rows("Ring", "Tree", NULL)), "Tree");
  assert_string_equal(best_of(&m, TT_FUNC_ALLREDUCE, 64 * MIB, rows("HierRing", "RD", NULL)), "HierRing");
  free_model(&m);
}

static void test_hierarchy_pays_on_slow_networks(void **state)
{
  (void)state;
  for (int nodes = 2; nodes <= 8; nodes *= 2) {
    tt_cost_env e = tt_cost_env_default(4);
    model m = model_of(&e, 4 * nodes, nodes);
    assert_string_equal(best_of(&m, TT_FUNC_ALLREDUCE, 8 * MIB, rows("HierRing", "Ring", "RD")), "HierRing");
    assert_string_equal(best_of(&m, TT_FUNC_ALLREDUCE, 16 << 10, rows("HierRD", "RD", "Ring")), "HierRD");
    assert_string_equal(best_of(&m, TT_FUNC_ALLGATHER, 8 * MIB, rows("HierRing", "Ring", "PAT")), "HierRing");
    assert_string_equal(best_of(&m, TT_FUNC_REDUCESCATTER, 8 * MIB, rows("HierRing", "Ring", "PAT")), "HierRing");
    free_model(&m);
  }
}

// With fewer cores the work of all ranks of a node adds up, whatever the algorithm.
static void test_few_cores_cost(void **state)
{
  (void)state;
  static const char *const names[] = {"Ring", "Tree", "RD", "Oneshot", "HierRing", "HierRD"};
  for (int i = 0; i < (int)TT_COUNT(names); i++) {
    for (size_t bytes = 8; bytes <= 8 * MIB; bytes *= 64) {
      tt_cost_env many = tt_cost_env_default(8), one = tt_cost_env_default(1);
      model a = model_of(&many, 16, 2), b = model_of(&one, 16, 2);
      assert_true(cost_of(&a, TT_FUNC_ALLREDUCE, names[i], TT_SIMPLE, bytes) <
                  cost_of(&b, TT_FUNC_ALLREDUCE, names[i], TT_SIMPLE, bytes));
      free_model(&a);
      free_model(&b);
    }
  }
}

// What every all-reduce has to move, however it is done: nearly the message out of and into every node, twice from
// three nodes on.
static void test_never_faster_than_the_network(void **state)
{
  (void)state;
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  for (int nodes = 2; nodes <= 8; nodes *= 2) {
    tt_cost_env e = tt_cost_env_default(4);
    e.net_byte = 0.0005; // so slow that it bounds everything
    model m = model_of(&e, 2 * nodes, nodes);
    for (int i = 0; i < count; i++) {
      if (table[i].funcs >> TT_FUNC_ALLREDUCE & 1 && table[i].needs == 0 && !table[i].in_network) {
        double least = 64.0 * (double)MIB * 2 * (nodes - 1) / nodes * e.net_byte;
        assert_true(cost_of(&m, TT_FUNC_ALLREDUCE, table[i].name, TT_SIMPLE, 64 * MIB) >= least * 0.99);
      }
    }
    static const char *const nets[] = {
        "CollNetChain", "CollNetDirect"}; // the message out of and into every node, whatever their number
    for (int i = 0; i < 2; i++) {
      double once = 64.0 * (double)MIB * e.net_byte, us = cost_of(&m, TT_FUNC_ALLREDUCE, nets[i], TT_SIMPLE, 64 * MIB);
      assert_true(us >= once * 0.99 && us < once * (i == 0 ? 1.5 : 3)); // several heads: a pass at a time
      assert_true(isinf(cost_of(&m, TT_FUNC_ALLREDUCE, nets[i], TT_LL, 8)));
    }
    assert_true(cost_of(&m, TT_FUNC_ALLREDUCE, "HierRing", TT_SIMPLE, 64 * MIB) < 4 * 64.0 * (double)MIB * e.net_byte);
    free_model(&m);
  }
}

static void check_growth(const model *m, tt_func f, const char *algo, tt_proto proto)
{
  double before = 0;
  for (size_t bytes = 1; bytes <= 256 * MIB; bytes *= 4) {
    double us = cost_of(m, f, algo, proto, bytes);
    assert_true(us >= before * 0.999);
    assert_true(cost_of(m, f, algo, proto, bytes) == us); // remembered
    before = us;
  }
}

static void test_more_bytes_cost_more(void **state)
{
  (void)state;
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  tt_cost_env e = tt_cost_env_default(2);
  for (int nodes = 1; nodes <= 3; nodes++) {
    model m = model_of(&e, 7, nodes);
    for (int i = 0; i < count; i++) {
      for (int f = 0; f < TT_FUNC_SEND; f++) {
        if (table[i].funcs >> f & 1 && (table[i].needs == 0 || nodes == 1)) {
          if (!table[i].in_network) {
            check_growth(&m, (tt_func)f, table[i].name, TT_LL);
          }
          check_growth(&m, (tt_func)f, table[i].name, TT_SIMPLE);
        }
      }
    }
    free_model(&m);
  }
}

static void test_what_cannot_be_done(void **state)
{
  (void)state;
  tt_cost_env e = tt_cost_env_default(4);
  tt_cost_choice c;
  model m = model_of(&e, 4, 2), one = model_of(&e, 4, 1);
  assert_true(isinf(cost_of(&m, TT_FUNC_ALLREDUCE, "Direct", TT_SIMPLE, 1 << 20)));
  assert_true(isinf(cost_of(&m, TT_FUNC_ALLREDUCE, "DirectWrite", TT_SIMPLE, 1 << 20)));
  assert_true(isfinite(cost_of(&one, TT_FUNC_ALLREDUCE, "DirectWrite", TT_SIMPLE, 1 << 20)));
  assert_true(isinf(cost_of(&m, TT_FUNC_BROADCAST, "RD", TT_SIMPLE, 8)));
  assert_int_equal(tt_cost_best(m.cost, TT_FUNC_ALLREDUCE, 8, 0, TT_PROTO_ALL, &c), ncclSuccess);
  assert_int_equal(c.algo, -1);
  assert_int_equal(tt_cost_best(m.cost, TT_FUNC_ALLREDUCE, 8, ~0u, 0, &c), ncclSuccess);
  assert_int_equal(c.algo, -1);
  assert_int_equal(tt_cost_best(m.cost, TT_FUNC_ALLREDUCE, 8, rows("Direct", "DirectWrite", NULL), TT_PROTO_ALL, &c),
                   ncclSuccess);
  assert_int_equal(c.algo, -1);
  assert_int_equal(tt_cost_best(m.cost, TT_FUNC_ALLREDUCE, 64 * MIB, ~0u, TT_PROTO_LL, &c), ncclSuccess);
  assert_int_equal(c.proto, TT_LL);
  free_model(&m);
  free_model(&one);
}

static void test_senseless(void **state)
{
  (void)state;
  tt_cost_env e = tt_cost_env_default(4), bad = e;
  tt_cost_choice c;
  tt_cost *none = NULL;
  model m = model_of(&e, 4, 2);
  assert_int_equal(tt_cost_estimate(m.cost, TT_FUNC_SEND, 0, TT_LL, 8, &c), ncclInvalidArgument);
  assert_int_equal(tt_cost_estimate(m.cost, TT_NFUNCS, 0, TT_LL, 8, &c), ncclInvalidArgument);
  assert_int_equal(tt_cost_estimate(m.cost, TT_FUNC_ALLREDUCE, -1, TT_LL, 8, &c), ncclInvalidArgument);
  assert_int_equal(tt_cost_estimate(m.cost, TT_FUNC_ALLREDUCE, 99, TT_LL, 8, &c), ncclInvalidArgument);
  assert_int_equal(tt_cost_estimate(m.cost, TT_FUNC_ALLREDUCE, 0, TT_TOK, 8, &c), ncclInvalidArgument);
  assert_int_equal(tt_cost_best(m.cost, TT_NFUNCS, 8, ~0u, TT_PROTO_ALL, &c), ncclInvalidArgument);
  assert_int_equal(tt_cost_create(&e, 5, m.layout, &none), ncclInvalidArgument);
  assert_int_equal(tt_cost_create(&e, 0, NULL, &none), ncclInvalidArgument);
  bad.cores = 0;
  assert_int_equal(tt_cost_create(&bad, 4, NULL, &none), ncclInvalidArgument);
  bad = e;
  bad.slots[TT_LL] = 0;
  assert_int_equal(tt_cost_create(&bad, 4, NULL, &none), ncclInvalidArgument);
  assert_null(none);
  tt_cost_destroy(NULL);
  free_model(&m);
}

static void test_out_of_memory(void **state)
{
  (void)state;
  tt_cost_env e = tt_cost_env_default(2);
  tt_cost_choice c;
  tt_cost *none = NULL;
  tt_alloc_fail_at(1);
  assert_int_equal(tt_cost_create(&e, 4, NULL, &none), ncclSystemError);
  ncclResult_t res = ncclSystemError;
  int k = 0;
  while (res != ncclSuccess) {
    tt_alloc_fail_at(0);
    model m = model_of(&e, 4, 2);
    tt_alloc_fail_at(++k);
    res = tt_cost_estimate(m.cost, TT_FUNC_ALLREDUCE, tt_algorithm_find("HierRD"), TT_LL, 8, &c);
    assert_true(res == ncclSuccess || res == ncclSystemError);
    free_model(&m);
  }
  tt_alloc_fail_at(0);
  assert_in_range(k, 20, 200);
  e.net_window = 65536;
  for (res = ncclSystemError, k = 0; res != ncclSuccess;) {
    tt_cost_run run = {TT_FUNC_ALLREDUCE, tt_algorithm_find("HierRD"), TT_LL, 8, 8, 2};
    double us;
    tt_alloc_fail_at(0);
    model m = model_of(&e, 4, 2);
    tt_alloc_fail_at(++k);
    res = tt_cost_of_run(m.cost, &run, &us);
    assert_true(res == ncclSuccess || res == ncclSystemError);
    free_model(&m);
  }
  tt_alloc_fail_at(0);
  assert_in_range(k, 20, 200);
}

// ---- runs ----

static double run_of(const model *m, tt_func f, const char *algo, size_t bytes, size_t chunk, int times)
{
  tt_cost_run run = {f, tt_algorithm_find(algo), TT_LL, bytes, chunk, times};
  double us = 0;
  assert_int_equal(tt_cost_of_run(m->cost, &run, &us), ncclSuccess);
  return us;
}

// One operation of one pass takes what the estimate says; so do several passes of a whole chunk each.
static void test_run_is_estimate(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  model m = model_of(&e, 4, 1);
  assert_float_equal(run_of(&m, TT_FUNC_ALLREDUCE, "RD", 64, 64, 1), cost_of(&m, TT_FUNC_ALLREDUCE, "RD", TT_LL, 64),
                     1e-6);
  assert_float_equal(run_of(&m, TT_FUNC_BROADCAST, "Ring", 128, 64, 1),
                     cost_of(&m, TT_FUNC_BROADCAST, "Ring", TT_LL, 128), 1e-6);
  free_model(&m);
}

// The next operation of a rank waits for all strands of the one before: a tree's way down is over before its next way
// up begins.
static void test_operations_wait(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  model m = model_of(&e, 2, 2);
  double one = run_of(&m, TT_FUNC_ALLREDUCE, "Tree", 64, 64, 1),
         ten = run_of(&m, TT_FUNC_ALLREDUCE, "Tree", 64, 64, 10);
  assert_true(one > 20000 && ten > 20000 * 0.9);
  // In one direction nothing has to wait but for the first one. The root leaves the barrier first.
  e.slots[TT_LL] = 32;
  model wide = model_of(&e, 2, 2);
  assert_true(run_of(&wide, TT_FUNC_BROADCAST, "Ring", 64, 64, 1) < 1000);
  assert_true(run_of(&wide, TT_FUNC_BROADCAST, "Ring", 64, 64, 10) < 1000);
  free_model(&m);
  free_model(&wide);
}

// One slot, and a wire of 10 ms: a message for each round trip, unless the network takes messages out of the slot.
static void test_window(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  model narrow = model_of(&e, 2, 2);
  double slow = run_of(&narrow, TT_FUNC_BROADCAST, "Ring", 64 * 40, 64, 1);
  e.net_window = 64 * 1024;
  model wide = model_of(&e, 2, 2);
  double fast = run_of(&wide, TT_FUNC_BROADCAST, "Ring", 64 * 40, 64, 1);
  assert_true(slow > 38 * 20000.0 && fast < 20000);
  free_model(&narrow);
  free_model(&wide);
}

// Nodes that are namespaces of one machine: the work of all ranks adds up on its core, and the carrier's on another.
static void test_one_machine(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  e.cores = 1;
  e.change = 0;
  model apart = model_of(&e, 4, 4);
  e.one_machine = true;
  model together = model_of(&e, 4, 4);
  e.carry_work = 5000;
  model carried = model_of(&e, 4, 4);
  double a = run_of(&apart, TT_FUNC_ALLTOALL, "Pairwise", 256, 64, 8),
         t = run_of(&together, TT_FUNC_ALLTOALL, "Pairwise", 256, 64, 8),
         c = run_of(&carried, TT_FUNC_ALLTOALL, "Pairwise", 256, 64, 8);
  assert_true(t > a && c >= 12 * 5000.0);
  free_model(&apart);
  free_model(&together);
  free_model(&carried);
}

// A rank that waited for long goes on later: with every message of a ring.
static void test_wake(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  e.slots[TT_LL] = 8;
  model awake = model_of(&e, 4, 4);
  e.idle = 5000;
  e.wake = 700;
  model asleep = model_of(&e, 4, 4);
  double a = run_of(&awake, TT_FUNC_ALLREDUCE, "Ring", 64, 16, 5),
         s = run_of(&asleep, TT_FUNC_ALLREDUCE, "Ring", 64, 16, 5);
  assert_true(s - a > 5 * 700 && s - a < 7 * 700);
  free_model(&awake);
  free_model(&asleep);
}

// A call that fetches costs each lone message; messages that come while one lasts are fetched together.
static void test_fetch(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  e.slots[TT_LL] = 64;
  model plain = model_of(&e, 2, 2);
  e.fetch = 5000;
  model calls = model_of(&e, 2, 2);
  double alone =
             run_of(&calls, TT_FUNC_ALLREDUCE, "RD", 64, 64, 10) - run_of(&plain, TT_FUNC_ALLREDUCE, "RD", 64, 64, 10),
         many = run_of(&calls, TT_FUNC_BROADCAST, "Ring", 64 * 40, 64, 1) -
                run_of(&plain, TT_FUNC_BROADCAST, "Ring", 64 * 40, 64, 1);
  assert_true(alone > 4900 && alone < 5100);
  assert_true(many > 4000 && many < 20 * 5000.0);
  free_model(&plain);
  free_model(&calls);
}

// Ranks that share a core: one that keeps it while it has something to do changes less often.
static void test_slice(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  e.cores = 1;
  e.one_machine = true;
  e.slots[TT_LL] = 64;
  e.net_window = 1 << 20;
  e.hop[TT_HOP_NETWORK][TT_LL].latency = 100;
  model at_once = model_of(&e, 3, 3);
  e.slice = 1e5;
  model keeps = model_of(&e, 3, 3);
  double a = run_of(&at_once, TT_FUNC_BROADCAST, "Ring", 64 * 60, 64, 1),
         k = run_of(&keeps, TT_FUNC_BROADCAST, "Ring", 64 * 60, 64, 1);
  assert_true(k < a / 2);
  free_model(&at_once);
  free_model(&keeps);
}

// Ranks that want one core get it in turn: the last of a chain is not kept at the barrier until the others are done.
static void test_turns(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  e.cores = 1;
  e.change = 1;
  e.one_machine = true;
  e.slots[TT_LL] = 64;
  e.net_window = 1 << 20;
  e.hop[TT_HOP_NETWORK][TT_LL].latency = 0;
  e.slice = 1000;
  model m = model_of(&e, 8, 8);
  double send = 1 + 32 + 20, pass = send + 20, all = send + 6 * pass + send - 20 + 32;
  assert_true(run_of(&m, TT_FUNC_BROADCAST, "Ring", 64, 64, 400) > 0.8 * all);
  free_model(&m);
}

// What a step adds costs each source but one; copies cost as before.
static void test_sum(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  model none = model_of(&e, 2, 2);
  e.sum = 3;
  model dear = model_of(&e, 2, 2);
  double f = run_of(&none, TT_FUNC_ALLREDUCE, "RD", 64, 64, 1), d = run_of(&dear, TT_FUNC_ALLREDUCE, "RD", 64, 64, 1);
  assert_float_equal(d - f, 3 * 64, 1e-6);
  assert_float_equal(run_of(&none, TT_FUNC_BROADCAST, "Ring", 64, 64, 1),
                     run_of(&dear, TT_FUNC_BROADCAST, "Ring", 64, 64, 1), 1e-6);
  free_model(&none);
  free_model(&dear);
}

// More passes, and more operations, than are walked: bounded by what each takes at least and at most.
static void test_long_runs(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  e.slots[TT_LL] = 8;
  model m = model_of(&e, 3, 1);
  double one = run_of(&m, TT_FUNC_ALLREDUCE, "Ring", 192, 64, 1);
  double many = run_of(&m, TT_FUNC_ALLREDUCE, "Ring", 192, 64, 100000),
         passes = run_of(&m, TT_FUNC_ALLREDUCE, "Ring", 192 * 100000, 64, 1);
  assert_true(many > one / 2 && many <= one);
  assert_true(passes > 100000 * (one / 2) && passes <= 100000 * one);
  free_model(&m);
}

// Where ranks keep their core for as long as they have something to do, the root sends all that is walked before
// another rank has left the barrier, so that its time is that of sending. What follows costs the core both.
static void test_long_runs_fill(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  e.net_window = 1e9;
  e.net_byte = 0;
  e.change = 1;
  e.hop[TT_HOP_NETWORK][TT_LL].latency = 0;
  e.cores = 1;
  e.one_machine = true;
  e.slice = 1e9;
  model m = model_of(&e, 2, 2);
  double send = 1 + 32 + 32 + 20, receive = 20 + 32 + 1;
  assert_float_equal(run_of(&m, TT_FUNC_BROADCAST, "Ring", 64, 64, 4000), send, 1e-6);
  double many = run_of(&m, TT_FUNC_BROADCAST, "Ring", 64, 64, 10000000);
  assert_true(many > send + receive - 1 && many < send + receive + 3);
  free_model(&m);
}

static void test_wrong_runs(void **state)
{
  (void)state;
  tt_cost_env e = round_env();
  model m = model_of(&e, 2, 2);
  double us;
  int ring = tt_algorithm_find("Ring");
  const tt_cost_run wrong[] = {{TT_FUNC_ALLREDUCE, ring, TT_LL, 64, 0, 1},
                               {TT_FUNC_ALLREDUCE, ring, TT_LL, 64, 64, 0},
                               {TT_FUNC_ALLREDUCE, -1, TT_LL, 64, 64, 1},
                               {TT_FUNC_SEND, ring, TT_LL, 64, 64, 1}};
  for (size_t i = 0; i < TT_COUNT(wrong); i++) {
    assert_int_equal(tt_cost_of_run(m.cost, &wrong[i], &us), ncclInvalidArgument);
  }
  tt_cost_run none = {TT_FUNC_ALLTOALL, ring, TT_LL, 64, 64, 1}; // rings have no all-to-all
  assert_int_equal(tt_cost_of_run(m.cost, &none, &us), ncclSuccess);
  assert_true(isinf(us));
  // Over the network nobody reads another's memory.
  tt_cost_run direct = {TT_FUNC_ALLREDUCE, tt_algorithm_find("Direct"), TT_TOK, 64, 64, 1};
  assert_int_equal(tt_cost_of_run(m.cost, &direct, &us), ncclSuccess);
  assert_true(isinf(us));
  free_model(&m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_ranks_by_hand),
      cmocka_unit_test(test_one_core_by_hand),
      cmocka_unit_test(test_room_by_hand),
      cmocka_unit_test(test_small_and_large_on_one_node),
      cmocka_unit_test(test_hierarchy_pays_on_slow_networks),
      cmocka_unit_test(test_few_cores_cost),
      cmocka_unit_test(test_never_faster_than_the_network),
      cmocka_unit_test(test_more_bytes_cost_more),
      cmocka_unit_test(test_what_cannot_be_done),
      cmocka_unit_test(test_senseless),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_run_is_estimate),
      cmocka_unit_test(test_operations_wait),
      cmocka_unit_test(test_window),
      cmocka_unit_test(test_one_machine),
      cmocka_unit_test(test_wake),
      cmocka_unit_test(test_fetch),
      cmocka_unit_test(test_slice),
      cmocka_unit_test(test_turns),
      cmocka_unit_test(test_sum),
      cmocka_unit_test(test_long_runs),
      cmocka_unit_test(test_long_runs_fill),
      cmocka_unit_test(test_wrong_runs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
