// cuda_captures.h: for tests of graphs of ranks in several processes, each of which captures and launches its own, on
// the driver for tests. What each launch makes is compared with what a program would reckon.
#pragma once
#include "cuda_process_graphs.h"

#include "device/cuda/work/capture.h"
#include "device/cuda/work/rank.h"

#include <sys/wait.h>

// Sanitizers make the driver's machine up to twenty times slower: the first mode alone, and fewer replays.
#if defined TT_TSAN || defined TT_ASAN
enum { MODE_STEP = 6, MANY = 60, ROUNDS = 3 };
#else
enum { MODE_STEP = 1, MANY = 1000, ROUNDS = 6 };
#endif

enum { COUNT = 40, EAGER_EVERY = MANY / 10, LOOK_EVERY = 25 };

static unsigned mode_number;
static int rounds = ROUNDS; // launches of the graph of all functions

// ---- All functions ----

// One graph of all functions with all counts, launched between eager calls on other buffers.
HARNESS void graphs_of(const buffers *b)
{
  static const size_t counts[] = {3, 4099};
  rank_memory m[TT_COUNT(counts)][FUNCTIONS][MAX_RANKS], eager[MAX_RANKS];
  capture_begin();
  for (size_t k = 0; k < TT_COUNT(counts); k++) {
    for (int f = 0; f < FUNCTIONS; f++) {
      open_all((function)f, counts[k], b, m[k][f]);
      calls_of_all((function)f, m[k][f], counts[k]);
    }
  }
  const CUgraphExec exec = capture_end();
  open_all(ALL_TO_ALL, 500, b, eager);
  for (int i = 0; i < rounds; i++) {
    for (size_t k = 0; k < TT_COUNT(counts); k++) {
      for (int f = 0; f < FUNCTIONS; f++) {
        renew((function)f, m[k][f], counts[k]);
      }
    }
    launch(exec);
    renew(ALL_TO_ALL, eager, 500);
    calls_of_all(ALL_TO_ALL, eager, 500);
    wait_all();
    for (int r = first; r < last; r++) {
      compare(ALL_TO_ALL, r, eager[r].out, 500);
      for (size_t k = 0; k < TT_COUNT(counts); k++) {
        for (int f = 0; f < FUNCTIONS; f++) {
          compare((function)f, r, m[k][f][r].out, counts[k]);
        }
      }
    }
  }
  destroy_exec(exec);
  close_all(b, eager);
  for (size_t k = 0; k < TT_COUNT(counts); k++) {
    for (int f = 0; f < FUNCTIONS; f++) {
      close_all(b, m[k][f]);
    }
  }
}

typedef struct shape {
  int processes, each;
  memory_kind kind;
} shape;

HARNESS void functions_body(int process, void *arg)
{
  const shape *s = arg;
  join(process, s->processes, s->each);
  graphs_of(&(buffers){.kind = s->kind});
  graphs_of(&(buffers){.kind = s->kind, .offset = 3});
  leave();
}

HARNESS void test_functions(void **state)
{
  // Of pinned memory the peers get a copy.
  static const shape shapes[] = {{2, 1, DEVICE}, {3, 1, DEVICE}, {2, 2, DEVICE}, {2, 1, PINNED}, {2, 1, BEHIND}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(shapes); i++) {
    if (mode_number == 0 || i == 1 + mode_number % 4) {
      PROCESSES(shapes[i].processes, 100, functions_body, (void *)(uintptr_t)&shapes[i]);
    }
  }
}

// ---- Replays by the thousand ----

// Each replay has its own input, by the stream.
HARNESS void set_input(const rank_memory *m, int turn)
{
  for (int r = first; r < last; r++) {
    const float value = (float)((turn % 100) * (r + 1));
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    ON(r, cu->MemsetD32Async((CUdeviceptr)(uintptr_t)m[r].in, bits, COUNT, streams[r]));
  }
}

HARNESS void check_turn(const rank_memory *m, int turn)
{
  const float sum = (float)((turn % 100) * nranks * (nranks + 1) / 2);
  for (int r = first; r < last; r++) {
    ON(r, cu->MemcpyDtoH(image, address(m[r].out), COUNT * sizeof *image));
    for (size_t i = 0; i < COUNT; i++) {
      CHECK(image[i] == sum, "turn %d, element %zu: %g, not %g", turn, i, (double)image[i], (double)sum);
    }
  }
}

HARNESS void spoil_first(const rank_memory *m)
{
  spoil(m[first].out, first, COUNT);
  ON(first, cu->StreamSynchronize(NULL)); // the other streams do not wait for it
}

// The first rank's output is as that has left it.
HARNESS void check_spoilt(const rank_memory *m, const char *else_says)
{
  ON(first, cu->MemcpyDtoH(image, address(m[first].out), COUNT * sizeof *image));
  for (size_t i = 0; i < COUNT; i++) {
    CHECK(image[i] == -1, "%s: element %zu is %g", else_says, i, (double)image[i]);
  }
}

HARNESS void many_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS], other[MAX_RANKS];
  (void)arg;
  join(process, 2, 1);
  open_all(ALL_REDUCE, COUNT, &plain, m);
  open_all(ALL_GATHER, COUNT, &plain, other);
  const CUgraphExec exec = capture(ALL_REDUCE, m, COUNT);
  for (int i = 1; i <= MANY; i++) {
    set_input(m, i);
    launch(exec);
    if (i % EAGER_EVERY == 0) {
      calls_of_all(ALL_GATHER, other, COUNT);
    }
    if (i % LOOK_EVERY == 0 || i < MANY / 4) { // in lockstep first, then as far apart as that
      wait_all();
      check_turn(m, i);
    }
    if (i % (process == 0 ? 97 : 61) == 0) {
      sleep_ms(3);
    }
  }
  wait_all();
  check_turn(m, MANY);
  compare(ALL_GATHER, first, other[first].out, COUNT);
  destroy_exec(exec);
  close_all(&plain, m);
  close_all(&plain, other);
  leave();
}

HARNESS void test_many(void **state)
{
  (void)state;
  PROCESSES(2, 100, many_body, NULL);
}

// ---- Several streams ----

// Messages of one group on two streams of one capture: a later step of either stream comes behind them.
HARNESS void streams_body(int process, void *arg)
{
  const int peer = 1 - process;
  const buffers plain = {.kind = DEVICE};
  const size_t bytes = COUNT * sizeof(float);
  CUstream own, other;
  CUgraph graph;
  rank_memory m[MAX_RANKS];
  char *copies[2];
  (void)arg;
  join(process, 2, 1);
  open_all(RING, COUNT, &plain, m);
  const int second = first + tt_gpu_count(); // a place for the other stream, of the same device
  own = streams[first];
  ON(first, cu->StreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
  for (int i = 0; i < 2; i++) {
    copies[i] = take(first, DEVICE, bytes);
  }
  capture_begin();
  streams[second] = other;
  follow(first, second);
  OK(ncclGroupStart());
  OK(ncclSend(m[first].in, COUNT, ncclFloat, peer, comms[first], (cudaStream_t)own));
  OK(ncclRecv(m[first].out, COUNT, ncclFloat, peer, comms[first], (cudaStream_t)other));
  OK(ncclGroupEnd());
  for (int i = 0; i < 2; i++) {
    ON(first, cu->MemcpyAsync((CUdeviceptr)(uintptr_t)copies[i], (CUdeviceptr)(uintptr_t)m[first].out, bytes,
                              i == 0 ? own : other));
  }
  follow(second, first);
  const CUgraphExec exec = capture_end();
  for (int i = 0; i < ROUNDS; i++) {
    spoil((float *)(void *)copies[0], first, COUNT);
    spoil((float *)(void *)copies[1], first, COUNT);
    renew(RING, m, COUNT);
    launch(exec);
    wait_all();
    compare(RING, first, m[first].out, COUNT);
    compare(RING, first, (float *)(void *)copies[0], COUNT);
    compare(RING, first, (float *)(void *)copies[1], COUNT);
  }
  destroy_exec(exec);
  // Of another capture, or of none.
  for (int captured = 0; captured < 2; captured++) {
    CUgraph others;
    capture_begin();
    if (captured) {
      ON(first, cu->StreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    }
    OK(ncclGroupStart());
    OK(ncclSend(m[first].in, COUNT, ncclFloat, peer, comms[first], (cudaStream_t)own));
    OK(ncclRecv(m[first].out, COUNT, ncclFloat, peer, comms[first], (cudaStream_t)other));
    REFUSED(ncclGroupEnd(), ncclInvalidUsage, "several streams", captured ? "two captures" : "one is not");
    ON(first, cu->StreamEndCapture(own, &graph));
    ON(first, cu->GraphDestroy(graph));
    if (captured) {
      ON(first, cu->StreamEndCapture(other, &others));
    }
  }
  OK(ncclCommAbort(comms[first]));
}

HARNESS void test_streams(void **state)
{
  (void)state;
  PROCESSES(2, 60, streams_body, NULL);
}

// ---- Captures at other times ----

// Rank 0 captures and launches while rank 1 has not begun to capture, nor does rank 1 know of it; then the other way
// round.
HARNESS void times_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory a[MAX_RANKS], b[MAX_RANKS], c[MAX_RANKS];
  (void)arg;
  join(process, 2, 1);
  open_all(ALL_REDUCE, COUNT, &plain, a);
  open_all(ALL_TO_ALL, 3000, &plain, b);
  open_all(ALL_GATHER, COUNT, &plain, c);
  for (int k = 0; k < 2; k++) {
    if (process != k) {
      meet(2);
    }
    const CUgraphExec one = capture(ALL_REDUCE, a, COUNT), two = capture(ALL_TO_ALL, b, 3000);
    for (int i = 0; i < 3; i++) {
      launch(one);
      calls_of_all(ALL_GATHER, c, COUNT);
      launch(two);
    }
    if (process == k) {
      sleep_ms(20);
      ON(first, cu->StreamQuery(streams[first]) == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
      meet(2);
    }
    wait_all();
    compare(ALL_REDUCE, first, a[first].out, COUNT);
    compare(ALL_TO_ALL, first, b[first].out, 3000);
    compare(ALL_GATHER, first, c[first].out, COUNT);
    renew(ALL_REDUCE, a, COUNT);
    destroy_exec(one);
    destroy_exec(two);
    meet(2);
  }
  leave();
}

// The root has captured, sent and thrown its graph away before the others capture.
HARNESS void early_body(int process, void *arg)
{
  const int n = 3;
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS], other[MAX_RANKS];
  (void)arg;
  join(process, n, 1);
  open_all(BROADCAST, COUNT, &plain, m);
  open_all(ALL_REDUCE, COUNT, &plain, other);
  for (int k = 0; k < 3; k++) {
    if (process != 1) {
      meet(n);
    }
    const CUgraphExec exec = capture(BROADCAST, m, COUNT);
    launch(exec);
    destroy_exec(exec);
    if (process == 1) {
      sleep_ms(30);
      destroy_exec(capture(ALL_REDUCE, other, COUNT)); // takes back what has gone
      meet(n);
    } else {
      destroy_exec(capture(ALL_REDUCE, other, COUNT));
    }
    wait_all();
    compare(BROADCAST, first, m[first].out, COUNT);
    meet(n);
    renew(BROADCAST, m, COUNT);
  }
  leave();
}

HARNESS void test_times(void **state)
{
  (void)state;
  PROCESSES(2, 100, times_body, NULL);
  PROCESSES(3, 100, early_body, NULL);
}

// ---- Ends ----

// A graph of one call on new buffers, launched once.
HARNESS CUgraphExec capture_and_try(function f, rank_memory *m, size_t n)
{
  const buffers plain = {.kind = DEVICE};
  open_all(f, n, &plain, m);
  const CUgraphExec exec = capture(f, m, n);
  launch(exec);
  wait_all();
  compare(f, first, m[first].out, n);
  return exec;
}

// The communicator of a graph of COUNT elements has ended.
HARNESS void check_outlived(CUgraphExec exec, const rank_memory *m)
{
  spoil_first(m);
  launch(exec);
  wait_all();
  check_spoilt(m, "a graph without its communicator does something");
}

// The communicator is destroyed while replays are under way, and completes them.
HARNESS void destroy_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  (void)arg;
  join(process, 2, 1);
  open_all(ALL_REDUCE, 5000, &plain, m);
  const CUgraphExec exec = capture(ALL_REDUCE, m, 5000);
  for (int i = 0; i < 5; i++) {
    launch(exec);
  }
  if (process == 1) {
    sleep_ms(50);
  }
  OK(ncclCommDestroy(comms[first]));
  compare(ALL_REDUCE, first, m[first].out, 5000);
  ON(first, cu->StreamQuery(streams[first]));
  destroy_exec(exec);
}

// Rank 1 destroys its communicator, and has not launched its graph: rank 0 does not wait for that for ever.
HARNESS void deserted_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  (void)arg;
  join(process, 2, 1);
  open_all(ALL_REDUCE, COUNT, &plain, m);
  const CUgraphExec exec = capture(ALL_REDUCE, m, COUNT);
  meet(2); // else rank 0 might still capture when rank 1 has gone
  if (process == 1) {
    OK(ncclCommDestroy(comms[first]));
  } else {
    spoil_first(m);
    launch(exec);
    OK(ncclCommDestroy(comms[first])); // as with calls that no peer answers
    // Over the network the end of rank 1's connections may be noticed afterwards.
    CHECK(strstr(ncclGetLastError(NULL), per_machine == 0 ? "waits for rank 1" : "rank 1") != NULL,
          "the log does not name the rank");
    wait_all();
    check_spoilt(m, "half a replay does something");
  }
  meet(2);
  destroy_exec(exec);
}

HARNESS void test_destroy(void **state)
{
  (void)state;
  PROCESSES(2, 60, destroy_body, NULL);
  PROCESSES(2, 60, deserted_body, NULL);
}

// ---- What goes wrong ----

HARNESS void await_error(ncclResult_t code, const char *const *words)
{
  ncclResult_t res = ncclSuccess;
  const double end = seconds_now() + GENEROUS(10);
  while (res == ncclSuccess && seconds_now() < end) {
    OK(ncclCommGetAsyncError(comms[first], &res));
    sleep_ms(1);
  }
  const char *text = ncclGetLastError(comms[first]);
  CHECK(res == code && has_words(text, words), "%d: %s", (int)res, text);
}

HARNESS void *kill_later(void *arg)
{
  sleep_ms(*(const double *)arg);
  kill(getpid(), SIGKILL);
  return arg;
}

// Rank 1 is killed at any moment of replays.
HARNESS void killed_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  pthread_t thread;
  rank_memory m[MAX_RANKS];
  ncclResult_t res = ncclSuccess;
  join(process, 3, 1);
  open_all(ALL_REDUCE, 3000, &plain, m);
  const CUgraphExec exec = capture(ALL_REDUCE, m, 3000);
  meet(3);
  if (process == 1) {
    assert_int_equal(pthread_create(&thread, NULL, kill_later, arg), 0);
  }
  for (int i = 0; res == ncclSuccess; i++) {
    launch(exec);
    if (i % 5 == 4) {
      wait_all();
    }
    OK(ncclCommGetAsyncError(comms[first], &res));
  }
  await_error(ncclRemoteError, (const char *const[]){"rank 1", NULL});
  wait_all(); // nothing waits any more
  launch(exec);
  wait_all();
  OK(ncclCommAbort(comms[first]));
  destroy_exec(exec);
}

// The same, of captures.
HARNESS void capturing_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  pthread_t thread;
  rank_memory m[MAX_RANKS];
  CUgraph graph;
  ncclResult_t res = ncclSuccess;
  join(process, 3, 1);
  open_all(ALL_TO_ALL, 3000, &plain, m);
  meet(3);
  if (process == 1) {
    assert_int_equal(pthread_create(&thread, NULL, kill_later, arg), 0);
  }
  while (res == ncclSuccess) {
    capture_begin();
    res = call(ALL_TO_ALL, first, m[first].in, m[first].out, 3000);
    ON(first, cu->StreamEndCapture(streams[first], &graph));
    ON(first, cu->GraphDestroy(graph));
    if (res == ncclSuccess) {
      OK(ncclCommGetAsyncError(comms[first], &res));
    }
  }
  await_error(ncclRemoteError, (const char *const[]){"rank 1", NULL});
  OK(ncclCommAbort(comms[first]));
}

HARNESS void test_killed(void **state)
{
  static const double after_ms[] = {0, 7, 40};
  (void)state;
  for (size_t i = 0; i < 2 * TT_COUNT(after_ms); i++) {
    ranks_set s;
    start_processes(&s, &(run){.n = 3,
                               .seconds = 60,
                               .fn = i % 2 == 0 ? killed_body : capturing_body,
                               .arg = (void *)(uintptr_t)&after_ms[i / 2]});
    s.expected[1] = -SIGKILL;
    assert_int_equal(finish_processes(&s), 0);
  }
}

// Rank 0's process ends, and rank 1 is about to capture.
HARNESS void gone_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  ncclResult_t res = ncclSuccess;
  CUgraph graph;
  (void)arg;
  join(process, 2, 1);
  open_all(ALL_REDUCE, COUNT, &plain, m);
  calls_of_all(ALL_REDUCE, m, COUNT);
  wait_all();
  meet(2);
  if (process == 0) { // the lower rank makes the memory
    _exit(0);
  }
  while (res == ncclSuccess) { // its thread may still answer
    capture_begin();
    res = call(ALL_REDUCE, first, m[first].in, m[first].out, COUNT);
    ON(first, cu->StreamEndCapture(streams[first], &graph));
    ON(first, cu->GraphDestroy(graph));
  }
  CHECK(res == ncclRemoteError && strstr(ncclGetLastError(NULL), "rank 0") != NULL, "%d: %s", (int)res,
        ncclGetLastError(NULL));
  OK(ncclCommAbort(comms[first]));
}

HARNESS void test_gone(void **state)
{
  (void)state;
  PROCESSES(2, 60, gone_body, NULL);
}

// Rank 1 captures other messages than rank 0, before that or after it. The later one is told at once, and names both;
// the earlier one in its replay.
HARNESS void messages_body(int process, void *arg)
{
  const bool earlier = process == *(const int *)arg;
  const size_t n = process == 0 ? 30000 : 60000; // of the same kind of messages
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  CUgraph graph;
  setenv("NCCL_P2P_DISABLE", "1", 1); // else there are only tokens, and a replay compares what they say
  peers_none = true;
  join(process, 2, 1);
  open_all(RING, n, &plain, m);
  if (!earlier) {
    meet(2);
  }
  capture_begin();
  OK(ncclGroupStart());
  OK(call(RING, first, m[first].in, m[first].out, n));
  ncclResult_t res = ncclGroupEnd();
  if (earlier) {
    OK(res);
    const CUgraphExec exec = capture_end();
    launch(exec);
    meet(2);
  } else {
    CHECK(res == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "captured different operations") != NULL, "%d: %s",
          (int)res, ncclGetLastError(NULL));
    ON(first, cu->StreamEndCapture(streams[first], &graph));
  }
  await_error(ncclInvalidUsage, (const char *const[]){"rank 0", "rank 1", "captured different operations", NULL});
  OK(ncclCommAbort(comms[first]));
  wait_all();
  meet(2);
}

// Rank 1 has captured another operation, of as many messages.
HARNESS void operation_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  (void)arg;
  join(process, 2, 1);
  open_all(ALL_REDUCE, COUNT, &plain, m);
  capture_begin();
  OK(ncclAllReduce(m[first].in, m[first].out, COUNT, ncclFloat, process == 1 ? ncclMax : ncclSum, comms[first],
                   (cudaStream_t)streams[first]));
  const CUgraphExec exec = capture_end();
  launch(exec);
  await_error(ncclInvalidUsage, (const char *const[]){"different calls", "op sum", "op max", NULL});
  wait_all();
  OK(ncclCommAbort(comms[first]));
  destroy_exec(exec);
}

HARNESS void test_mismatch(void **state)
{
  static const int earlier[] = {0, 1};
  (void)state;
  PROCESSES(2, 60, messages_body, (void *)(uintptr_t)&earlier[0]);
  PROCESSES(2, 60, messages_body, (void *)(uintptr_t)&earlier[1]);
  PROCESSES(2, 60, operation_body, NULL);
}

// Rank 1 does not launch its graph: an abort ends what rank 0 has launched.
HARNESS void abort_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  (void)arg;
  join(process, 2, 1);
  open_all(ALL_REDUCE, COUNT, &plain, m);
  const CUgraphExec exec = capture(ALL_REDUCE, m, COUNT);
  meet(2);
  if (process == 0) {
    spoil_first(m);
    launch(exec);
    launch(exec);
    sleep_ms(20);
    OK(ncclCommAbort(comms[first]));
    wait_all();
    check_spoilt(m, "an aborted replay does something");
    meet(2);
  } else {
    meet(2);
    launch(exec);
    await_error(ncclRemoteError, (const char *const[]){"rank 0", NULL});
    OK(ncclCommAbort(comms[first]));
    wait_all();
  }
  destroy_exec(exec);
}

HARNESS void test_abort(void **state)
{
  (void)state;
  PROCESSES(2, 60, abort_body, NULL);
}

HARNESS int logged(const char *path, const char *const *words)
{
  char line[2048];
  int n = 0;
  FILE *f = fopen(path, "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    n += has_words(line, words);
  }
  if (f != NULL) {
    fclose(f);
  }
  return n;
}

// Rank 1 launches its graph late. Rank 0 says meanwhile that it waits, and for which rank.
HARNESS void stall_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  char log[128];
  (void)arg;
  snprintf(log, sizeof log, "/tmp/cuda_capture_ipc_test-%d", (int)getpid());
  setenv("NCCL_STALL_WARN_MS", "100", 1);
  setenv("NCCL_DEBUG", "WARN", 1);
  setenv("NCCL_DEBUG_FILE", log, 1);
  join(process, 2, 1);
  open_all(ALL_REDUCE, COUNT, &plain, m);
  const CUgraphExec exec = capture(ALL_REDUCE, m, COUNT);
  meet(2);
  if (process == 0) {
    launch(exec);
    const double end = seconds_now() + GENEROUS(10);
    while (logged(log, (const char *const[]){"no progress", "rank 0 waits, in a launch of a graph, in operation",
                                             "AllReduce", "(channel 0, step", "rank 1 has not launched", NULL}) == 0) {
      CHECK(seconds_now() < end, "no report");
      sleep_ms(10);
    }
    meet(2);
  } else {
    meet(2);
    launch(exec);
  }
  wait_all();
  compare(ALL_REDUCE, first, m[first].out, COUNT);
  destroy_exec(exec);
  leave();
  unlink(log);
}

HARNESS void test_stall(void **state)
{
  (void)state;
  PROCESSES(2, 60, stall_body, NULL);
}

// ---- The program ----

// An argument chooses tests by name; CUDA_CAPTURE_MODE one mode.
HARNESS int captures_main(int argc, char **argv, const char *const *modes, size_t n,
                          int (*in_mode)(const char *modes, unsigned number))
{
  use_driver();
  setenv("NCCL_HOST_DIRECT_THRESHOLD", "0", 1);
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, n, MODE_STEP, getenv("CUDA_CAPTURE_MODE"), in_mode) != 0;
}

HARNESS void captures_mode(const char *modes, unsigned number, const char *name)
{
  mode_number = capture_kind = number;
  set_modes(modes, name);
}
