// cuda_plan_test.c: the algorithms' schedules as stream work, by src/device/cuda/work, on the driver for tests: all
// ranks in one process, on one GPU or three. What comes out is checked as executor_test.c does for the host's executor.
// Each mode of the driver has a process of its own.
#include "cuda_plans.h"

#include <pthread.h>

#include "device/cuda/work/port_priv.h"
#include "device/cuda/work/waits.h"

// Sanitizers make the driver's machine up to twenty times slower: the first mode, the last but one, and fewer mixtures.
#if defined TT_TSAN || defined TT_ASAN
enum { MODE_STEP = 5, SAMPLE = 12 };
#else
enum { MODE_STEP = 1, SAMPLE = 1 };
#endif

static bool blocking; // each launch waits for its kernel, so submission waits for peers that do not come
static bool resident; // no two ranks share a GPU, and plans are walks

// The program writes to its inputs as soon as the operation is over: no peer reads them any longer.
static void spoil_inputs(const trial *t, int k)
{
  for (int i = 0; i < (is_p2p(t->f) ? 2 : w.n); i++) {
    const side *s = &sides[i];
    if (s->nin > 0) {
      const int r = rank_of_side(t, i);
      const CUdeviceptr in = (CUdeviceptr)(uintptr_t)s->call.in;
      assert_int_equal(tt_gpu_enter(device_of(r)), ncclSuccess);
      assert_int_equal(cu->MemsetD32Async(in, 0x77777777, s->nin, handles[r][k]), CUDA_SUCCESS);
      tt_gpu_leave();
    }
  }
}

static void restore_inputs(const trial *t)
{
  for (int i = 0; i < (is_p2p(t->f) ? 2 : w.n); i++) {
    for (size_t j = 0; j < sides[i].nin; j++) {
      sides[i].in[j] = word_at(t, rank_of_side(t, i), j);
    }
  }
}

// Runs the trial; out of place several times, on two streams of each rank in turn, and nobody waits in between.
static void on_gpu(const trial *t)
{
  int n = make_plans(0);
  vary_calls(t, n);
  assert_int_equal(tt_gpu_submit(works, n), ncclSuccess);
  for (int k = 1; k < 4 && !t->in_place; k++) {
    renew_lanes(t);
    n = make_plans(k % 2);
    assert_int_equal(tt_gpu_submit(works, n), ncclSuccess);
  }
  if (!t->in_place) {
    spoil_inputs(t, 1);
  }
  for (int i = 0; i < n; i++) {
    assert_int_equal(cu->StreamSynchronize(tt_gpu_stream_handle(works[i].stream)), CUDA_SUCCESS);
    if (!tt_gpu_port_idle(works[i].port) || tt_gpu_port_fault(works[i].port) != NULL) {
      fail_msg("%s: not complete", text_of(t));
    }
  }
  for (int r = 0; r < w.n; r++) {
    assert_int_equal(cu->StreamSynchronize(handles[r][1]), CUDA_SUCCESS);
  }
  if (!t->in_place) {
    restore_inputs(t);
  }
}

static void test_one_rank(void **state)
{
  (void)state;
  gpu_open(1, 2, 0);
  try_row(&tt_algorithms(NULL)[TT_ALGO_LINEAR], TT_FUNC_SEND, 4);
  gpu_close();
}

static void test_two_ranks(void **state)
{
  (void)state;
  try_all(2, 2, 0, 6);
}

static void test_three_ranks(void **state)
{
  (void)state;
  try_all(3, 1, UINT32_MAX - 2, 3); // numbers wrap
}

static void test_eight_ranks(void **state)
{
  (void)state;
  try_all(8, 8, 0, 1);
}

// One of three is not resident: its steps keep the order of their levels, the others' lanes do not.
static void test_mixed(void **state)
{
  (void)state;
  if (!resident) {
    skip();
  }
  for (by_streams = 0; by_streams < 3; by_streams++) {
    try_all(3, 1, 0, 1);
  }
  by_streams = -1;
}

// ---- What goes wrong ----

// Stops all ports, again and again, as the thread of rank.c does: a peer may use a port's memory at first, or write a
// word again; and they may share a hardware queue. True: all are idle.
static bool stop_all(void)
{
  bool idle = true;
  for (int i = 0; i < w.n; i++) {
    tt_gpu_port_stop(gpu_ports[i]);
  }
  for (int i = 0; i < w.n; i++) {
    idle &= tt_gpu_port_idle(gpu_ports[i]);
  }
  return idle;
}

static void end_direct(const trial *t)
{
  for (int ms = 0; !stop_all() && ms < 5 * deadlock_ms(); ms++) {
    tt_sleep_ns(TT_NS_PER_MS);
  }
  for (int i = 0; i < w.n; i++) {
    assert_int_equal(settle(i), ncclSuccess);
    assert_true(tt_gpu_port_idle(gpu_ports[i]));
  }
  for (int i = 0; i < w.n; i++) { // no output has been written
    for (size_t e = 0; e < sides[i].nout; e++) {
      check_word(t, i, e, sides[i].out[e], 0xa5a5a5a5u);
    }
    free(sides[i].tmp);
  }
  drop_schedules();
}

// Of three ranks. The others wait for it.
static void submit_without_rank_1(void)
{
  left_out = 1;
  const int n = make_plans(0);
  left_out = -1;
  assert_int_equal(n, 2);
  assert_int_equal(tt_gpu_submit(works, n), ncclSuccess);
  tt_sleep_ns(20 * TT_NS_PER_MS);
}

static void test_stop(void **state)
{
  (void)state;
  trial t;
  if (blocking) {
    skip();
  }
  gpu_open(3, 2, 0);
  begin_direct(&t);
  submit_without_rank_1();
  assert_false(tt_gpu_port_idle(gpu_ports[0]));
  assert_false(tt_gpu_port_idle(gpu_ports[2]));
  tt_gpu_port_check(gpu_ports[0]);
  assert_int_equal(tt_port_status(&w.ports[0]), ncclSuccess);
  end_direct(&t);
  assert_null(tt_gpu_port_fault(gpu_ports[0]));
  gpu_close();
}

static const trial ring_sum = {.f = TT_FUNC_ALLREDUCE, .count = 150, .chunk = 64, .proto = TT_LL};

// Rank 1 does not come: the walks of the others look for lines, or for room, until they are stopped.
static void test_lines_stop(void **state)
{
  (void)state;
  trial t = ring_sum;
  if (!ll128) {
    skip();
  }
  gpu_open(3, 2, 0);
  t.a = &tt_algorithms(NULL)[TT_ALGO_RING];
  begin_trial(&t);
  submit_without_rank_1();
  for (int i = 0; i < 3; i += 2) {
    gpu_wait at;
    assert_false(tt_gpu_port_idle(gpu_ports[i]));
    assert_true(tt_gpu_waits_first(gpu_ports[i], &at)); // the report of a stall has it
    assert_int_equal(at.peer, i == 0 ? 2 : 1);
    assert_int_not_equal(at.how & TT_WAIT_RECEIVES, 0);
  }
  end_direct(&t);
  gpu_close();
}

// What the lines of a communicator have had before is nothing to the next one, whose memory they become.
static void test_lines_again(void **state)
{
  (void)state;
  trial t = ring_sum;
  if (!ll128) {
    skip();
  }
  t.a = &tt_algorithms(NULL)[TT_ALGO_RING];
  t.count = 2 * t.chunk; // one pass: no slot is used twice
  for (int i = 0; i < 3; i++) {
    gpu_open(2, 8, 0);
    schedules(t.a, t.f, 0, 0, false);
    run_trial(&t);
    drop_schedules();
    gpu_close();
  }
}

static void (*devices_run)(long steps);

static void *run_later(void *unused)
{
  tt_sleep_ns(50 * TT_NS_PER_MS);
  devices_run(-1);
  return unused;
}

// A connection is there when its lines are clear, and no earlier: here the GPUs take their time with that.
static void test_lines_clear(void **state)
{
  (void)state;
  pthread_t thread;
  if (!ll128) {
    skip();
  }
  gpu_begin(2, 8, 0);
  *(void **)&devices_run = driver_hook("cudasim_run");
  devices_run(0);
  assert_int_equal(pthread_create(&thread, NULL, run_later, NULL), 0);
  gpu_connect(2);
  for (int r = 0; r < 2; r++) {
    const tt_fifo *f = &w.links[r * 2 + 1 - r].send[TT_LL];
    bool in_lines;
    const char *lines = (const char *)(uintptr_t)tt_gpu_inbox_at(gpu_ports[r], 1 - r, f, &in_lines);
    for (size_t i = 0; i < (f->mask + (size_t)1) * gpu_lines_of(f->capacity) * TT_CUDA_LINE; i++) {
      assert_int_equal(lines[i], 0);
    }
  }
  assert_int_equal(pthread_join(thread, NULL), 0);
  gpu_close();
}

static int alarms;

// A port is being stopped: until its error can be seen, its streams end nothing.
static void not_stopped(tt_port *port)
{
  assert_int_equal(tt_port_status(port), ncclInvalidUsage);
  assert_int_equal(atomic_load(&gpu_ports[port->rank]->flags->stop), 0);
  alarms++;
}

// Rank 1 has another count. Every rank finds out, and names the other side.
static void test_mismatch(void **state)
{
  (void)state;
  trial t;
  if (blocking) {
    skip();
  }
  gpu_open(3, 2, 0);
  begin_direct(&t);
  sides[1].call.sig_count--;
  const int n = make_plans(0);
  assert_int_equal(tt_gpu_submit(works, n), ncclSuccess);
  for (int done = 0, i = 0; done < n; i = (i + 1) % n) {
    const tt_cuda_fault *f = tt_gpu_port_fault(gpu_ports[i]);
    if (f != NULL && !(done >> i & 1)) {
      assert_int_equal(f->code, TT_CUDA_MISMATCH);
      assert_int_equal(f->sig, sides[i].call.sig);
      assert_int_equal(f->peer, i == 1 ? f->peer : 1);
      assert_int_equal(f->count, i == 1 ? t.count : t.count - 1);
      w.ports[i].alarm = not_stopped;
      tt_gpu_port_check(gpu_ports[i]);
      assert_int_equal(tt_port_status(&w.ports[i]), ncclInvalidUsage);
      assert_int_equal(atomic_load(&gpu_ports[i]->flags->stop), 1);
      assert_non_null(strstr(tt_last_error(), "ranks are in different calls, by count: "));
      done |= 1 << i;
    } else if (done >> i & 1) {
      tt_gpu_port_stop(gpu_ports[i]); // as stop_all
    }
    if (done == (1 << n) - 1) {
      break;
    }
    tt_sleep_ns(TT_NS_PER_MS);
  }
  end_direct(&t);
  gpu_close();
}

static void no_function(void) {}

// The second of three plans is refused when the first has begun: the ports stop, and nobody waits for ever.
static void test_refused(void **state)
{
  (void)state;
  trial t;
  tt_call refused = {.op.fn = (void *)no_function};
  gpu_open(3, 2, 0);
  begin_direct(&t);
  const int n = make_plans(0);
  plans[1].calls = &refused;
  plans[1].ncalls = 1;
  for (int i = 0; i < w.n; i++) {
    w.ports[i].alarm = not_stopped;
  }
  alarms = 0;
  assert_int_equal(tt_gpu_submit(works, n), ncclInvalidUsage);
  assert_int_equal(alarms, n);
  end_direct(&t);
  gpu_close();
}

// A plan is refused before it has begun, on another stream than the one before, whose work waits: that one's number is
// not written early.
static void test_refused_later(void **state)
{
  (void)state;
  trial t;
  void *gate;
  tt_call refused = {.op.fn = (void *)no_function};
  if (blocking) {
    skip();
  }
  gpu_open(3, 2, 0);
  begin_direct(&t);
  assert_int_equal(cu->MemHostAlloc(&gate, 64, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  *(uint32_t *)gate = 0;
  assert_int_equal(cu->StreamWaitValue32(handles[0][0], (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ),
                   CUDA_SUCCESS);
  assert_int_equal(tt_gpu_submit(works, make_plans(0)), ncclSuccess);
  renew_lanes(&t);
  make_plans(1);
  plans[0].calls = &refused;
  plans[0].ncalls = 1;
  assert_int_equal(tt_gpu_submit(works, 1), ncclInvalidUsage);
  assert_int_equal(cu->StreamSynchronize(handles[0][1]), CUDA_SUCCESS);
  assert_false(tt_gpu_port_idle(gpu_ports[0]));
  for (int i = 0; i < w.n; i++) {
    tt_gpu_port_stop(gpu_ports[i]);
  }
  __atomic_store_n((uint32_t *)gate, 1, __ATOMIC_RELEASE);
  end_direct(&t);
  assert_int_equal(cu->MemFreeHost(gate), CUDA_SUCCESS);
  gpu_close();
}

// ---- Modes ----

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_rank),    cmocka_unit_test(test_two_ranks),     cmocka_unit_test(test_three_ranks),
      cmocka_unit_test(test_eight_ranks), cmocka_unit_test(test_stop),          cmocka_unit_test(test_mismatch),
      cmocka_unit_test(test_refused),     cmocka_unit_test(test_refused_later), cmocka_unit_test(test_mixed),
      cmocka_unit_test(test_lines_stop),  cmocka_unit_test(test_lines_again),   cmocka_unit_test(test_lines_clear),
  };
  blocking = strstr(modes, "blocking") != NULL;
  every = *modes == '\0' || SAMPLE > 1 ? SAMPLE : 3;
  phase = number;
  resident = strstr(modes, "resident") != NULL;
  ll128 = strstr(modes, "lines") != NULL;
  ll_slot_bytes = ll128 ? 512 : ll_slot_bytes;
  if (!open_mode(modes, "plan-test")) {
    return 1;
  }
  run_with = on_gpu;
  return cmocka_run_group_tests_name(modes, tests, NULL, NULL);
}

// An argument chooses tests by name; CUDA_PLAN_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"",
                                      "queues=1",
                                      "queues=1,blocking",
                                      "order=random,seed=3",
                                      "order=random,stores,stale,step=500,seed=5",
                                      "queues=1,order=random,stores,stale,seed=8",
                                      "devices=3,order=random,seed=6",
                                      "resident,devices=8",
                                      "resident,devices=8,order=random,stores,stale,step=500,seed=9",
                                      "resident,devices=8,sms=2,queues=1,order=random,stores,seed=4",
                                      "resident,devices=8,lines",
                                      "resident,devices=8,lines,order=random,stores,stale,step=500,seed=2"};
  use_driver();
  setenv("NCCL_DEBUG", "ERROR", 1);
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), MODE_STEP, getenv("CUDA_PLAN_MODE"), in_mode) != 0;
}
