// cuda_capture_net_test.c: graphs of ranks in processes that look like different machines (NCCL_HOSTID): what they send
// each other in a launch goes over the network.
#include "cuda_captures.h"

// ---- All functions ----

static void test_far_functions(void **state)
{
  static const shape shapes[] = {{2, 1, DEVICE}, {3, 1, DEVICE}, {2, 2, DEVICE}, {2, 1, PINNED}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(shapes); i++) {
    if (mode_number == 0 || i == 1 + mode_number % 3) {
      rounds = i == 0 ? ROUNDS : 3; // what more of them find, the first shape finds
      PROCESSES(shapes[i].processes, 100, functions_body, (void *)(uintptr_t)&shapes[i]);
    }
  }
}

// Two machines of two processes each: near and far ranks in one graph.
static void test_mixed(void **state)
{
  static const shape four = {4, 1, DEVICE};
  (void)state;
  if (mode_number == 0) { // in the others near and far ranks are tested by themselves
    per_machine = 2;
    PROCESSES(4, 100, functions_body, (void *)(uintptr_t)&four);
    per_machine = 1;
  }
}

// One machine whose processes share no memory.
static void test_unshared(void **state)
{
  static const shape two = {2, 1, DEVICE};
  const run job = {.n = 2,
                   .seconds = 100,
                   .fn = functions_body,
                   .arg = (void *)(uintptr_t)&two,
                   .env = ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")};
  (void)state;
  if (mode_number == 0) { // the others are as with several machines
    per_machine = 0;
    peers_none = true;
    assert_int_equal(run_processes(&job), 0);
    per_machine = 1;
    peers_none = false;
  }
}

// Of no element, of messages in several parts, in several passes; with slots of 512 KiB, whose messages the network
// gets in parts.
static void sizes_body(int process, void *arg)
{
  static const size_t counts[] = {0, 1, 2049, 70001, 500000};
  const buffers plain = {.kind = DEVICE};
  rank_memory sums[TT_COUNT(counts)][MAX_RANKS], sent[TT_COUNT(counts)][MAX_RANKS];
  if (arg != NULL) {
    setenv("NCCL_BUFFSIZE", "4194304", 1);
  }
  join(process, 2, 1);
  capture_begin();
  for (size_t k = 0; k < TT_COUNT(counts); k++) {
    open_all(ALL_REDUCE, counts[k], &plain, sums[k]);
    open_all(RING, counts[k], &plain, sent[k]);
    calls_of_all(ALL_REDUCE, sums[k], counts[k]);
    calls_of_all(RING, sent[k], counts[k]);
  }
  const CUgraphExec exec = capture_end();
  for (int i = 0; i < 2; i++) {
    launch(exec);
    wait_all();
    for (size_t k = 0; k < TT_COUNT(counts); k++) {
      compare(ALL_REDUCE, first, sums[k][first].out, counts[k]);
      compare(RING, first, sent[k][first].out, counts[k]);
      renew(ALL_REDUCE, sums[k], counts[k]);
      renew(RING, sent[k], counts[k]);
    }
  }
  destroy_exec(exec);
  leave();
}

static void test_sizes(void **state)
{
  static int large;
  (void)state;
  if (mode_number < 2) { // in the other one the driver takes long for so much
    PROCESSES(2, 100, sizes_body, mode_number == 0 ? NULL : &large);
  }
}

// ---- In any order ----

// Rank 0 launches many times what rank 1 does only after it has ended what rank 0 launches last: what waits for a place
// holds up nothing else.
static void order_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory a[MAX_RANKS], b[MAX_RANKS];
  CUstream own, other;
  (void)arg;
  join(process, 2, 1);
  open_all(BROADCAST, 70001, &plain, a);
  open_all(ALL_REDUCE, COUNT, &plain, b);
  const CUgraphExec one = capture(BROADCAST, a, 70001), two = capture(ALL_REDUCE, b, COUNT);
  own = streams[first];
  ON(first, cu->StreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
  for (int i = 0; i < ROUNDS; i++) {
    renew(ALL_REDUCE, b, COUNT);
    if (process == 1) { // the root
      launch(one);
      launch(one);
    }
    ON(first, cu->GraphLaunch(two, other));
    ON(first, cu->StreamSynchronize(other));
    compare(ALL_REDUCE, first, b[first].out, COUNT);
    if (process == 0) {
      renew(BROADCAST, a, 70001);
      launch(one);
      launch(one);
    }
    wait_all();
    compare(BROADCAST, first, a[first].out, 70001);
  }
  CHECK(streams[first] == own, "another stream");
  destroy_exec(one);
  destroy_exec(two);
  ON(first, cu->StreamDestroy(other));
  leave();
}

static void test_order(void **state)
{
  (void)state;
  PROCESSES(2, 100, order_body, NULL);
}

// ---- Ends ----

// The graph outlives the communicator, and does nothing then.
static void far_outlives_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  (void)arg;
  join(process, 2, 1);
  open_all(ALL_REDUCE, COUNT, &plain, m);
  const CUgraphExec exec = capture(ALL_REDUCE, m, COUNT);
  launch(exec);
  wait_all();
  compare(ALL_REDUCE, first, m[first].out, COUNT);
  OK(ncclCommDestroy(comms[first]));
  spoil_first(m);
  launch(exec);
  wait_all();
  check_spoilt(m, "a graph without its communicator does something");
  destroy_exec(exec);
}

// What the root has sent arrives, although its graph and communicator end before the other rank captures.
static void far_early_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  (void)arg;
  join(process, 2, 1);
  open_all(BROADCAST, 3000, &plain, m);
  calls_of_all(BROADCAST, m, 3000);
  wait_all();
  renew(BROADCAST, m, 3000);
  if (process == 0) {
    sleep_ms(50);
  }
  const CUgraphExec exec = capture(BROADCAST, m, 3000);
  launch(exec);
  wait_all();
  destroy_exec(exec);
  OK(ncclCommDestroy(comms[first]));
  compare(BROADCAST, first, m[first].out, 3000);
}

static void test_ends(void **state)
{
  (void)state;
  PROCESSES(2, 60, far_outlives_body, NULL);
  PROCESSES(2, 60, far_early_body, NULL);
}

// ---- What goes wrong ----

// Rank 1 captures other messages than rank 0: both are told, and which ones.
static void far_messages_body(int process, void *arg)
{
  const size_t n = process == 0 ? 30000 : 60000;
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  CUgraph graph;
  (void)arg;
  join(process, 2, 1);
  open_all(RING, n, &plain, m);
  capture_begin();
  OK(ncclGroupStart());
  OK(call(RING, first, m[first].in, m[first].out, n));
  if (ncclGroupEnd() == ncclSuccess) {
    launch(capture_end());
  } else {
    ON(first, cu->StreamEndCapture(streams[first], &graph));
  }
  await_error(ncclInvalidUsage, (const char *const[]){"rank 0", "rank 1", "captured different operations", NULL});
  wait_all();
  meet(2);
  OK(ncclCommAbort(comms[first]));
}

static void test_far_mismatch(void **state)
{
  (void)state;
  PROCESSES(2, 60, far_messages_body, NULL);
  PROCESSES(2, 60, operation_body, NULL);
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_far_functions), cmocka_unit_test(test_mixed),        cmocka_unit_test(test_unshared),
      cmocka_unit_test(test_sizes),         cmocka_unit_test(test_many),         cmocka_unit_test(test_streams),
      cmocka_unit_test(test_times),         cmocka_unit_test(test_order),        cmocka_unit_test(test_destroy),
      cmocka_unit_test(test_ends),          cmocka_unit_test(test_far_mismatch), cmocka_unit_test(test_abort),
      cmocka_unit_test(test_killed),        cmocka_unit_test(test_stall)};
  const size_t slow = number == 0 ? 0 : 2; // the last ones: what the host does, whatever the driver's mode
  mode_number = capture_kind = number;
  per_machine = 1;
  set_modes(modes, "capture-net-test");
  return _cmocka_run_group_tests(modes, tests, TT_COUNT(tests) - slow, NULL, NULL);
}

// An argument chooses tests by name; CUDA_CAPTURE_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"", "devices=2,order=random,seed=5", "stores,stale,seed=3,slices"};
  use_driver();
  setenv("NCCL_HOST_DIRECT_THRESHOLD", "0", 1);
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), MODE_STEP, getenv("CUDA_CAPTURE_MODE"), in_mode) != 0;
}
