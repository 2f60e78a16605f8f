// cuda_capture_net_test.c: graphs of ranks in processes that look like different machines (NCCL_HOSTID): what they send
// each other in a launch goes over the network.
#include "proxy/puts.h" // before names of tests

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
  rank_memory m[MAX_RANKS];
  (void)arg;
  join(process, 2, 1);
  const CUgraphExec exec = capture_and_try(ALL_REDUCE, m, COUNT);
  OK(ncclCommDestroy(comms[first]));
  check_outlived(exec, m);
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

// ---- What the rank's thread does last ----

// The rank's thread moves nothing while it is SHUT; one that comes then STANDS until it is opened. Nor does the thread
// of the proxy move anything.
typedef enum { GATE_OPEN, GATE_SHUT, GATE_STANDS } gate_state;
static _Atomic gate_state gate;
static bool gate_stands; // a thread waits at it
static const tt_mover *mover;
static tt_mover gated;

static bool gated_progress(void *self, bool insist)
{
  if (atomic_load(&gate) == GATE_OPEN) {
    return mover->progress(self, insist);
  }
  if (gate_stands) {
    atomic_store(&gate, GATE_STANDS);
  }
  while (atomic_load(&gate) == GATE_STANDS) {
    sleep_ms(1);
  }
  return false;
}

static void gate_install(void)
{
  mover = comms[first]->port.mover;
  gated = *mover;
  gated.progress = gated_progress;
  comms[first]->port.mover = &gated;
}

static void gate_set(gate_state state)
{
  atomic_store(&tt_proxy_thread_tests.held, state != GATE_OPEN);
  atomic_store(&gate, state);
}

// Has all been said of the last replay?
static bool gate_rests(void)
{
  tt_proxy *p = comms[first]->port.mover_self;
  tt_proxy_run_hold(p);
  const bool rests = tt_puts_find(p, 1 - first, TT_MSG_GRAPHS)->far.busy == NULL;
  tt_proxy_run_release(p);
  return rests && tt_puts_idle(p);
}

// Everything is connected, and both ranks are where a replay begins.
static CUgraphExec gate_begin(int process, rank_memory *m)
{
  join(process, 2, 1);
  gate_install();
  const CUgraphExec exec = capture_and_try(BROADCAST, m, 3000);
  renew(BROADCAST, m, 3000);
  while (!gate_rests()) {
    sleep_ms(1);
  }
  meet(2);
  return exec;
}

// The root destroys its graph as soon as its last launch is over. The thread, which was looking at that moment, looks
// once more: what the launch has sent arrives.
static void last_look_body(int process, void *arg)
{
  rank_memory m[MAX_RANKS];
  (void)arg;
  const CUgraphExec exec = gate_begin(process, m);
  if (process == 1) { // the root
    gate_stands = true;
    gate_set(GATE_SHUT);
    while (atomic_load(&gate) != GATE_STANDS) {
      sleep_ms(1);
    }
  }
  launch(exec);
  if (process == 1) {
    wait_all();
    destroy_exec(exec);
    while (tt_gpu_port_in_graphs(tt_gpu_rank_port(&comms[first]->port))) { // the driver tells of it in a thread
      sleep_ms(1);
    }
    atomic_store(&gate, GATE_OPEN);
    meet(2);
    gate_set(GATE_OPEN);
  } else {
    wait_all();
    meet(2);
    compare(BROADCAST, first, m[first].out, 3000);
    destroy_exec(exec);
  }
  leave();
}

// The root has sent and left before the other rank's thread has moved what came: it does so before it finds that its
// replay waits for a rank that has left.
static void settled_look_body(int process, void *arg)
{
  rank_memory m[MAX_RANKS];
  ncclResult_t res = ncclSuccess;
  (void)arg;
  const CUgraphExec exec = gate_begin(process, m);
  if (process == 0) {
    ((tt_proxy *)comms[first]->port.mover_self)->service->limits.drain_ns =
        200 * TT_NS_PER_MS; // nothing comes by itself
    gate_set(GATE_SHUT);
    launch(exec);
    meet(2);
    wait_all();
    OK(ncclCommGetAsyncError(comms[first], &res));
    CHECK(res == ncclSuccess, "%d: %s", (int)res, ncclGetLastError(comms[first]));
    gate_set(GATE_OPEN);
  } else {
    meet(2);
    launch(exec);
    wait_all();
  }
  destroy_exec(exec);
  OK(ncclCommDestroy(comms[first]));
  compare(BROADCAST, first, m[first].out, 3000);
}

static void test_last_looks(void **state)
{
  (void)state;
  PROCESSES(2, 60, last_look_body, NULL);
  PROCESSES(2, 60, settled_look_body, NULL);
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
      cmocka_unit_test(test_killed),        cmocka_unit_test(test_stall),        cmocka_unit_test(test_last_looks)};
  const size_t slow = number == 0 ? 0 : 3; // the last ones: what the host does, whatever the driver's mode
  per_machine = 1;
  captures_mode(modes, number, "capture-net-test");
  return _cmocka_run_group_tests(modes, tests, TT_COUNT(tests) - slow, NULL, NULL);
}

int main(int argc, char **argv)
{
  static const char *const modes[] = {"", "devices=2,order=random,seed=5", "stores,stale,seed=3,slices"};
  return captures_main(argc, argv, modes, TT_COUNT(modes), in_mode);
}
