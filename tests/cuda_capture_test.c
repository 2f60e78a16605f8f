// cuda_capture_test.c: the algorithms' schedules as parts of graphs (src/device/cuda/work/capture.h), replayed between
// plans that are submitted eagerly, on the driver for tests. What comes out is checked as in cuda_plan_test.c.
#include "cuda_graphs.h"

#include <fcntl.h>
#include <pthread.h>

#include "device/cuda/work/capture_priv.h"

// Sanitizers make the driver's machine up to twenty times slower: two modes, and fewer mixtures and replays.
#if defined TT_TSAN || defined TT_ASAN
enum { MODE_STEP = 5, SAMPLE = 32, REPLAYS = 30, EAGER_EVERY = 10 };
#else
enum { MODE_STEP = 1, SAMPLE = 1, REPLAYS = 1000, EAGER_EVERY = 50 };
#endif
enum { ROUNDS = 4, SPOILS = 20, SPOILED = 4096 }; // bytes

static bool apart;      // graphs of two ranks may run side by side: no hardware queue is shared
static int replays;     // of one operation
static bool bounded;    // queues have little room: a call may wait behind a graph that waits for ever
static uint32_t *saved; // what was in the arena before the trial. Pinned

// ---- A trial ----

static int nsides(const trial *t)
{
  return is_p2p(t->f) ? 2 : w.n;
}

// Writes to a buffer of side i, on its rank's stream.
static void fill(const trial *t, int i, uint32_t *at, size_t words, uint32_t value)
{
  const int r = rank_of_side(t, i);
  if (words > 0) {
    enter(r);
    ok(cu->MemsetD32Async((CUdeviceptr)(uintptr_t)at, value, words, handles[r][0]));
    tt_gpu_leave();
  }
}

// The inputs are what they were.
static void renew_inputs(const trial *t)
{
  for (int i = 0; i < nsides(t); i++) {
    const side *s = &sides[i];
    const int r = rank_of_side(t, i);
    if (s->nin > 0) {
      enter(r);
      ok(cu->MemcpyAsync((CUdeviceptr)(uintptr_t)s->in, (CUdeviceptr)(uintptr_t)(saved + (s->in - arena)), s->nin * 4,
                         handles[r][0]));
      tt_gpu_leave();
    }
  }
}

// Out of place: the program writes to its inputs as soon as an operation is over, and to its outputs before the next.
static void spoil(const trial *t, bool inputs)
{
  for (int i = 0; i < nsides(t) && !t->in_place; i++) {
    const side *s = &sides[i];
    fill(t, i, inputs ? s->in : s->out, inputs ? s->nin : s->nout, inputs ? 0x77777777 : 0xa5a5a5a5);
  }
}

// Once a plan has been captured its scratch is another one's: somebody writes there while the graph runs.
static void spoil_scratch(void)
{
  for (int r = 0; r < w.n; r++) {
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)(scratch + (size_t)r * SCRATCH);
    enter(r);
    join(handles[r][0], handles[r][1], r);
    for (int i = 0; i < SPOILS; i++) {
      ok(cu->MemsetD8Async(at + (CUdeviceptr)(i % 2) * SCRATCH / 2, 0x66, SPOILED, handles[r][1]));
    }
    tt_gpu_leave();
  }
}

static void await_spoiling(void)
{
  for (int r = 0; r < w.n; r++) {
    enter(r);
    join(handles[r][1], handles[r][0], r);
    tt_gpu_leave();
  }
}

// Makes the plans of the calls, which may have staged inputs.
static int plans_of_calls(const trial *t)
{
  const int n = make_plans(0);
  for (int i = 0; i < nsides(t); i++) {
    const int r = rank_of_side(t, i);
    if (n > 0 && sides[i].call.in != NULL && sides[i].call.in == plans[r].scratch) {
      stage_input(&sides[i], r);
    }
  }
  return n;
}

static void run_eagerly(const trial *t)
{
  renew_lanes(t);
  assert_int_equal(tt_gpu_submit(works, plans_of_calls(t)), ncclSuccess);
}

// How many messages have gone over the links' FIFOs: captures and replays add none.
static uint32_t messages_of_links(void)
{
  uint32_t sum = 0;
  for (int i = 0; i < w.n * w.n; i++) {
    for (int k = 0; k < TT_NFIFOS; k++) {
      sum += w.links[i].send[k].next + 3 * w.links[i].recv[k].next;
    }
  }
  return sum;
}

static void check_ports(const trial *t)
{
  for (int r = 0; r < w.n; r++) {
    bool busy = true;
    assert_int_equal(tt_gpu_port_replays(gpu_ports[r], &busy), ncclSuccess);
    if (!tt_gpu_port_idle(gpu_ports[r]) || busy || tt_gpu_port_fault(gpu_ports[r]) != NULL) {
      fail_msg("%s: not complete", text_of(t));
    }
  }
}

// Captures the trial's calls once, and replays them between eager ones. Nobody waits in between.
static void on_graphs(const trial *t)
{
  const int n = make_plans(0);
  const way how = apart ? (way)(runs % WAYS) : ONE;
  const uint32_t messages = messages_of_links();
  vary_calls(t, n);
  if (n == 0) {
    return;
  }
  memcpy(saved, arena, (size_t)((char *)sides[nsides(t) - 1].end - (char *)arena));
  assert_int_equal(capture(how, n), ncclSuccess);
  assert_int_equal(messages_of_links(), messages);
  for (int i = 0; i < ROUNDS; i++) {
    renew_inputs(t);
    spoil(t, false);
    if (i % 3 == 1) {
      await_spoiling();
      run_eagerly(t);
    } else {
      spoil_scratch();
      replay(how);
    }
    spoil(t, true);
  }
  await_spoiling();
  synchronize();
  check_ports(t);
  for (int i = 0; i < nsides(t) && !t->in_place; i++) {
    if (sides[i].nin > 0) {
      memcpy(sides[i].in, saved + (sides[i].in - arena), sides[i].nin * 4);
    }
  }
  destroy_graphs();
}

static void test_two_ranks(void **state)
{
  (void)state;
  try_all(2, 2, 0, 4);
}

static void test_three_ranks(void **state)
{
  (void)state;
  try_all(3, 1, 0, 3);
}

static void test_eight_ranks(void **state)
{
  (void)state;
  try_all(8, 8, 0, 1);
}

// ---- By hand ----

// The calls of the trial by another algorithm, as plans.
static void use_algorithm(trial *t, int algorithm)
{
  drop_schedules();
  t->a = &tt_algorithms(NULL)[algorithm];
  schedules(t->a, t->f, 0, 0, false);
  renew_lanes(t);
  assert_int_equal(make_plans(0), w.n);
}

// An all-reduce of all ranks, captured and not yet replayed.
static void begin_captured(trial *t, int algorithm, way how)
{
  begin_direct(t);
  use_algorithm(t, algorithm);
  assert_int_equal(capture(how, w.n), ncclSuccess);
}

static way any_way(void)
{
  return apart ? ALONE : ONE;
}

static void check_sum(const trial *t)
{
  reference_sums(t, t->count);
  for (int i = 0; i < w.n; i++) {
    check_sums(t, &sides[i], i);
    for (size_t e = 0; e < sides[i].nout; e++) {
      sides[i].out[e] = 0xa5a5a5a5;
    }
  }
}

// Replays of an operation by the thousand, with eager ones in between.
static void test_many_replays(void **state)
{
  (void)state;
  trial t;
  gpu_open(2, 2, UINT32_MAX - 2); // numbers of the eager ones wrap
  begin_direct(&t);
  t.chunk = 64; // in one pass
  use_algorithm(&t, TT_ALGO_DIRECT);
  assert_int_equal(capture(any_way(), w.n), ncclSuccess);
  for (int i = 0; i < replays; i++) {
    replay(any_way());
    if (i % EAGER_EVERY == 0) {
      run_eagerly(&t);
    }
    if (i % 100 == 99) {
      synchronize();
      check_sum(&t);
    }
  }
  replay(any_way());
  synchronize();
  check_ports(&t);
  check_sum(&t);
  destroy_graphs();
  drop_schedules();
  gpu_close();
}

// Two operations of one capture, and two executable graphs made of it, whose launches may overtake each other.
static void test_two_execs(void **state)
{
  (void)state;
  trial t;
  CUgraphExec second[RANKS];
  gpu_open(2, 2, 0);
  begin_captured(&t, TT_ALGO_RING, any_way());
  for (int i = 0; i < ngraphs; i++) {
    enter(graph_rank[i]);
    ok(cu->GraphInstantiateWithFlags(&second[i], graphs[i], 0));
    tt_gpu_leave();
  }
  for (int k = 0; k < 6; k++) {
    for (int i = 0; i < ngraphs; i++) {
      enter(graph_rank[i]);
      ok(cu->GraphLaunch(k % 2 == 0 ? execs[i] : second[i], handles[graph_rank[i]][k / 2 % 2]));
      tt_gpu_leave();
    }
  }
  for (int r = 0; r < w.n; r++) {
    ok(cu->StreamSynchronize(handles[r][1]));
  }
  synchronize();
  check_ports(&t);
  check_sum(&t);
  for (int i = 0; i < ngraphs; i++) {
    ok(cu->GraphExecDestroy(second[i]));
  }
  destroy_graphs();
  drop_schedules();
  gpu_close();
}

// ---- Threads: each has a rank, and captures and replays it on its own ----

enum { THREAD_RANKS = 3, THREAD_REPLAYS = 12 };

static pthread_barrier_t captured_all;
static trial thread_trial;

static void *replay_rank(void *arg)
{
  tt_gpu_work *work = arg;
  const int r = rank_of(work);
  CUgraph graph;
  CUgraphExec exec;
  enter(r);
  ok(cu->StreamBeginCapture(handles[r][0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  const ncclResult_t res = tt_gpu_capture(work, 1);
  ok(cu->StreamEndCapture(handles[r][0], &graph));
  ok(cu->GraphInstantiateWithFlags(&exec, graph, 0));
  ok(cu->GraphDestroy(graph));
  pthread_barrier_wait(&captured_all);
  for (int i = 0; i < THREAD_REPLAYS; i++) {
    ok(cu->GraphLaunch(exec, handles[r][0]));
  }
  ok(cu->GraphExecDestroy(exec)); // while it runs
  ok(cu->StreamSynchronize(handles[r][0]));
  tt_gpu_leave();
  return (void *)(uintptr_t)res; // NOLINT(performance-no-int-to-ptr)
}

static void test_threads(void **state)
{
  (void)state;
  pthread_t threads[THREAD_RANKS];
  if (!apart) {
    skip();
  }
  gpu_open(THREAD_RANKS, 2, 0);
  begin_direct(&thread_trial);
  assert_int_equal(make_plans(0), THREAD_RANKS);
  pthread_barrier_init(&captured_all, NULL, THREAD_RANKS);
  for (int i = 0; i < THREAD_RANKS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, replay_rank, &works[i]), 0);
  }
  for (int i = 0; i < THREAD_RANKS; i++) {
    void *res = NULL;
    pthread_join(threads[i], &res);
    assert_null(res);
  }
  pthread_barrier_destroy(&captured_all);
  check_ports(&thread_trial);
  check_sum(&thread_trial);
  await_no_captures();
  drop_schedules();
  gpu_close();
}

// ---- What goes wrong ----

// All ports are stopped, and what has been launched ends without a trace. So do replays from then on.
static void end_stopped(const trial *t, way how)
{
  for (int i = 0; i < w.n; i++) { // all, before any is waited for
    tt_gpu_port_stop(gpu_ports[i]);
  }
  for (int i = 0; i < w.n; i++) {
    assert_int_equal(settle(i), ncclSuccess);
  }
  synchronize();
  for (int i = 0; i < w.n; i++) { // until then kernels that had begun could overwrite released words
    tt_gpu_port_stop(gpu_ports[i]);
  }
  replay(how);
  replay(how);
  synchronize();
  for (int i = 0; i < w.n; i++) {
    for (size_t e = 0; e < sides[i].nout; e++) {
      check_word(t, i, e, sides[i].out[e], 0xa5a5a5a5u);
    }
  }
  destroy_graphs();
  drop_schedules();
  gpu_close();
}

// Rank 1 does not replay its graph. The others have launched theirs several times.
static void stop_replays(int algorithm)
{
  trial t;
  bool busy = false;
  gpu_open(3, 2, 0);
  begin_captured(&t, algorithm, ALONE);
  for (int k = 0; k < 5; k++) {
    for (int r = 0; r < 3; r += 2) {
      enter(r);
      ok(cu->GraphLaunch(execs[r], handles[r][0]));
      tt_gpu_leave();
    }
  }
  tt_sleep_ns(20 * TT_NS_PER_MS);
  for (int r = 0; r < 3; r++) {
    assert_int_equal(tt_gpu_port_replays(gpu_ports[r], &busy), ncclSuccess);
    assert_int_equal(busy, r != 1);
    tt_gpu_port_check(gpu_ports[r]);
    assert_int_equal(tt_port_status(&w.ports[r]), ncclSuccess);
  }
  end_stopped(&t, ALONE);
}

static void test_stop(void **state)
{
  (void)state;
  if (!apart) {
    skip();
  }
  stop_replays(TT_ALGO_DIRECT);
}

// Looks until a replay of the port waits for that rank, twice in the same place. Returns where.
static uint64_t await_wait(int rank, uint32_t peer)
{
  tt_wait wait = {.peer = UINT32_MAX};
  uint64_t mark = 0, before = 0;
  for (int tries = 0, same = 0; same < 2; tries++) {
    assert_true(tries < 100000);
    const bool waits = tt_gpu_port_waits(gpu_ports[rank], &wait, &mark);
    same = waits && mark == before ? same + 1 : 0;
    before = waits ? mark : 0;
    tt_sleep_ns(TT_NS_PER_MS / 10);
  }
  assert_int_equal(wait.peer, peer);
  assert_int_equal(wait.how & TT_WAIT_REPLAY, TT_WAIT_REPLAY);
  return mark;
}

// Rank 1 launches its graph late each time: rank 0 stands in the same place of another replay, which is told apart.
static void test_waits(void **state)
{
  (void)state;
  trial t;
  uint64_t mark = 0, before = 0;
  tt_wait wait;
  if (!apart) {
    skip();
  }
  gpu_open(2, 2, 0);
  begin_captured(&t, TT_ALGO_DIRECT, ALONE);
  for (int i = 0; i < 5; i++) {
    assert_false(tt_gpu_port_waits(gpu_ports[0], &wait, &mark));
    for (int r = 0; r < 2; r++) {
      enter(r);
      ok(cu->GraphLaunch(execs[r], handles[r][0]));
      tt_gpu_leave();
      mark = r == 0 ? await_wait(0, 1) : mark;
    }
    assert_true(mark != before);
    before = mark;
    synchronize();
    check_sum(&t);
  }
  destroy_graphs();
  drop_schedules();
  gpu_close();
}

static void set_use(tt_fifo_line *line, int peer, bool sends, void *arg)
{
  (void)peer;
  atomic_store(&line->uses, sends ? *(const uint32_t *)arg : 0);
}

static pid_t ended_process(void)
{
  const pid_t child = fork();
  if (child == 0) {
    _exit(0);
  }
  waitpid(child, NULL, 0);
  return child;
}

// Kernels of both peers use rank 0's memory in replays. The process of one of them, whichever, has ended: the other one
// still does.
static void test_users(void **state)
{
  (void)state;
  trial t;
  const uint32_t uses = 1, none = 0;
  const int life = open("/dev/null", O_RDWR); // nobody holds it
  gpu_open(3, 2, 0);
  begin_captured(&t, TT_ALGO_DIRECT, ALONE);
  tt_gpu_captures_tokens(gpu_ports[0], set_use, (void *)(uintptr_t)&uses);
  for (int gone = 1; gone <= 2; gone++) {
    tt_link *link = w.ports[0].links[gone];
    link->watched = true;
    link->life = life;
    link->proc.pid = ended_process();
    assert_false(tt_gpu_owner_free(gpu_ports[0]));
    link->watched = false;
  }
  tt_gpu_captures_tokens(gpu_ports[0], set_use, (void *)(uintptr_t)&none);
  assert_true(tt_gpu_owner_free(gpu_ports[0]));
  end_stopped(&t, ALONE);
  close(life);
}

// Rank 1 has captured another count, of as many messages. Every rank finds out in a replay, and names the other side.
static void test_mismatch(void **state)
{
  (void)state;
  trial t;
  int done = 0;
  if (bounded) {
    skip();
  }
  gpu_open(3, 2, 0);
  begin_direct(&t);
  sides[1].call.sig_count--;
  assert_int_equal(capture(any_way(), make_plans(0)), ncclSuccess);
  replay(any_way());
  replay(any_way());
  for (int i = 0; done != 7; i = (i + 1) % 3) {
    if (tt_gpu_port_fault(gpu_ports[i]) != NULL && !(done >> i & 1)) {
      tt_gpu_port_check(gpu_ports[i]);
      assert_int_equal(tt_port_status(&w.ports[i]), ncclInvalidUsage);
      assert_non_null(strstr(tt_last_error(), "ranks are in different calls, by count: "));
      assert_non_null(strstr(tt_last_error(), i == 1 ? "rank 1 is in" : "but rank 1 is in"));
      done |= 1 << i;
    }
    tt_sleep_ns(TT_NS_PER_MS);
  }
  end_stopped(&t, any_way());
}

// Rank 1 is about to capture an operation that has other messages: it is told so, and nothing is recorded. Then it
// captures the right one.
static void test_other_messages(void **state)
{
  (void)state;
  trial t;
  size_t nodes = 1;
  gpu_open(2, 2, 0);
  begin_direct(&t);
  use_algorithm(&t, TT_ALGO_RING);
  ngraphs = 0;
  graph_begin(0);
  assert_int_equal(tt_gpu_capture(&works[0], 1), ncclSuccess);
  graph_end(0);
  t.chunk = 7;
  use_algorithm(&t, TT_ALGO_RING);
  graph_begin(1);
  assert_int_equal(tt_gpu_capture(&works[1], 1), ncclInvalidUsage);
  assert_non_null(strstr(tt_last_error(), "ranks have captured different operations"));
  ok(cu->StreamEndCapture(handles[1][0], &graphs[1]));
  ok(cu->GraphGetNodes(graphs[1], NULL, &nodes));
  assert_int_equal(nodes, 0);
  ok(cu->GraphDestroy(graphs[1]));
  t.chunk = 16;
  use_algorithm(&t, TT_ALGO_RING);
  graph_begin(1);
  assert_int_equal(tt_gpu_capture(&works[1], 1), ncclSuccess);
  graph_end(1);
  if (apart) {
    replay(ALONE);
    synchronize();
    check_ports(&t);
    check_sum(&t);
  }
  destroy_graphs();
  drop_schedules();
  gpu_close();
}

// The program's kernel before the call lets the next one begin early: the call comes after its end.
static void test_programmatic(void **state)
{
  (void)state;
  trial t;
  const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                 .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
  const CUgraphEdgeData *edges;
  const CUgraphNode *before;
  CUgraphNode node;
  CUstreamCaptureStatus status;
  size_t count = 0;
  gpu_open(2, 2, 0);
  begin_direct(&t);
  assert_int_equal(make_plans(0), 2);
  graph_begin(0);
  join(handles[0][0], handles[1][0], 0);
  enter(0);
  ok(cu->MemsetD32Async((CUdeviceptr)(uintptr_t)sides[0].out, 1, 1, handles[0][0])); // in place of a kernel
  ok(cu->StreamGetCaptureInfo(handles[0][0], &status, NULL, NULL, &before, &edges, &count));
  assert_int_equal(count, 1);
  node = before[0];
  ok(cu->StreamUpdateCaptureDependencies(handles[0][0], &node, &early, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  tt_gpu_leave();
  assert_int_equal(tt_gpu_capture(works, 2), ncclSuccess);
  join(handles[1][0], handles[0][0], 1);
  ngraphs = 0;
  graph_end(0);
  replay(ONE);
  synchronize();
  check_ports(&t);
  check_sum(&t);
  destroy_graphs();
  drop_schedules();
  gpu_close();
}

static void no_function(void) {}

static void test_refused(void **state)
{
  (void)state;
  trial t;
  tt_call refused = {.op.fn = (void *)no_function};
  gpu_open(2, 2, 0);
  begin_direct(&t);
  assert_int_equal(make_plans(0), 2);
  assert_int_equal(tt_gpu_capture(works, 2), ncclInvalidUsage); // no stream is captured
  graph_begin(0);
  assert_int_equal(tt_gpu_capture(works, 2), ncclInvalidUsage); // only one
  assert_non_null(strstr(tt_last_error(), "is not captured"));
  plans[0].calls = &refused;
  plans[0].ncalls = 1;
  assert_int_equal(tt_gpu_capture(works, 1), ncclInvalidUsage);
  ngraphs = 0;
  graph_end(0);
  destroy_graphs();
  for (int r = 0; r < 2; r++) {
    assert_int_equal(tt_gpu_port_captures(gpu_ports[r]), 0);
  }
  assert_int_equal(tt_gpu_submit(works, make_plans(0)), ncclSuccess); // nothing was stopped
  synchronize();
  check_ports(&t);
  check_sum(&t);
  drop_schedules();
  gpu_close();
}

// ---- What is left ----

// Captures without end need no more memory than the first ones, and the ports give all of it back to the pool.
static void test_memory(void **state)
{
  (void)state;
  trial t;
  size_t had = 0;
  gpu_open(3, 2, 0);
  for (int i = 0; i < 6; i++) {
    begin_captured(&t, TT_ALGO_RING, any_way());
    replay(any_way());
    synchronize();
    check_sum(&t);
    destroy_graphs();
    await_no_captures();
    assert_true(i == 0 || pool_bytes() == had);
    had = pool_bytes();
    drop_schedules();
  }
  assert_true(had > 0);
  gpu_close();
  assert_int_equal(pool_taken(), 0);
}

// A captured operation gets memory that had something else in it, which looks like numbers of messages that have come.
static void test_used_memory(void **state)
{
  (void)state;
  trial t;
  enum { BLOCKS = 64, BYTES = 4096 };
  void *memory[BLOCKS];
  if (!apart) {
    skip();
  }
  gpu_open(3, 2, 0);
  for (int i = 0; i < BLOCKS; i++) {
    assert_int_equal(tt_gpu_pool_take(TT_GPU_PINNED, BYTES, &memory[i]), ncclSuccess);
    memset(memory[i], 1, BYTES);
  }
  for (int i = 0; i < BLOCKS; i++) {
    tt_gpu_pool_give(TT_GPU_PINNED, memory[i]);
  }
  begin_captured(&t, TT_ALGO_DIRECT, ALONE);
  for (int i = 0; i < 3; i++) { // rank 1 comes last, and the others have to wait for it
    const int r = (i + 2) % 3;
    enter(r);
    ok(cu->GraphLaunch(execs[r], handles[r][0]));
    tt_gpu_leave();
    tt_sleep_ns(20 * TT_NS_PER_MS);
  }
  synchronize();
  check_ports(&t);
  check_sum(&t);
  destroy_graphs();
  drop_schedules();
  gpu_close();
}

// A graph that outlives its port does nothing, and what it needs lives as long as it.
static void test_outlives(void **state)
{
  (void)state;
  trial t;
  gpu_open(2, 2, 0);
  begin_captured(&t, TT_ALGO_DIRECT, any_way());
  replay(any_way());
  synchronize();
  check_sum(&t);
  for (int r = 0; r < 2; r++) {
    tt_gpu_port_close(gpu_ports[r]);
    gpu_ports[r] = NULL;
  }
  replay(any_way());
  synchronize();
  for (size_t e = 0; e < sides[0].nout; e++) {
    check_word(&t, 0, e, sides[0].out[e], 0xa5a5a5a5u);
  }
  assert_true(pool_taken() > 0);
  destroy_graphs();
  for (int tries = 0; pool_taken() > 0; tries++) { // the next port that opens and closes looks
    tt_gpu_port *other = NULL;
    assert_true(tries < 10000);
    assert_int_equal(tt_gpu_port_open(&w.ports[0], 0, &other), ncclSuccess);
    tt_gpu_port_close(other);
    tt_sleep_ns(TT_NS_PER_MS);
  }
  drop_schedules();
  gpu_close();
}

// ---- Modes ----

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_ranks),    cmocka_unit_test(test_three_ranks),    cmocka_unit_test(test_eight_ranks),
      cmocka_unit_test(test_many_replays), cmocka_unit_test(test_two_execs),      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_stop),         cmocka_unit_test(test_waits),          cmocka_unit_test(test_mismatch),
      cmocka_unit_test(test_users),        cmocka_unit_test(test_other_messages), cmocka_unit_test(test_programmatic),
      cmocka_unit_test(test_used_memory),  cmocka_unit_test(test_refused),        cmocka_unit_test(test_memory),
      cmocka_unit_test(test_outlives),
  };
  const bool resident = strstr(modes, "resident") != NULL; // walks cost the driver's machine most
  apart = strstr(modes, "queues=32") != NULL || strstr(modes, "devices=8") != NULL;
  bounded = strstr(modes, "launches=") != NULL;
  every = SAMPLE > 1 ? SAMPLE : resident ? 21 : number == 0 ? 3 : 7; // odd: every second mixture is in place
  replays = SAMPLE > 1 ? REPLAYS : resident ? REPLAYS / 10 : number == 0 ? REPLAYS : REPLAYS / 5;
  phase = number;
  if (!open_mode(modes, "capture-test")) {
    return 1;
  }
  void *memory;
  ok(cu->MemHostAlloc(&memory, WORDS * sizeof *saved, CU_MEMHOSTALLOC_PORTABLE));
  saved = memory;
  open_joints();
  run_with = on_graphs;
  return cmocka_run_group_tests_name(modes, tests, NULL, NULL);
}

// An argument chooses tests by name; CUDA_CAPTURE_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"queues=32",
                                      "queues=1,blocking,launches=3",
                                      "queues=32,stores,stale,step=500,seed=5",
                                      "devices=8,order=random,stores,stale,step=500,seed=6",
                                      "order=random,stores,stale,seed=8",
                                      "devices=3,queues=32,seed=6",
                                      "resident,devices=8,order=random,stores,stale,seed=7"};
  use_driver();
  setenv("NCCL_DEBUG", "ERROR", 1);
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), MODE_STEP, getenv("CUDA_CAPTURE_MODE"), in_mode) != 0;
}
