// hostcuda_graph_test.c: captures of streams, and graphs: what a launch does, what a capture refuses, and operations of
// NCCL in both.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define OK(call) assert_int_equal((call), cudaSuccess)
#define NCCL(call) assert_int_equal((call), ncclSuccess)
// Gives this error, which is also the last one.
#define GIVES(call, error)                         \
  do {                                             \
    assert_int_equal((call), (error));             \
    assert_int_equal(cudaGetLastError(), (error)); \
  } while (0)

enum { RANKS = 4, COUNT = 3000 };

static cudaStream_t new_stream(void)
{
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}

static cudaEvent_t new_event(void)
{
  cudaEvent_t e;
  OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  return e;
}

static enum cudaStreamCaptureStatus status_of(cudaStream_t s)
{
  enum cudaStreamCaptureStatus status;
  OK(cudaStreamIsCapturing(s, &status));
  return status;
}

// Ends the capture, and gives what can be launched.
static cudaGraphExec_t end(cudaStream_t s)
{
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  return exec;
}

static void count_up(void *arg)
{
  atomic_fetch_add((_Atomic int *)arg, 1);
}

// ---- What graphs do ----

static void test_launches(void **state)
{
  cudaStream_t s = new_stream(), t = new_stream();
  _Atomic int calls = 0;
  char *from, *to;
  int host[2] = {7, 0};
  (void)state;
  OK(cudaMalloc((void **)&from, 64));
  OK(cudaMalloc((void **)&to, 64));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  assert_int_equal(status_of(s), cudaStreamCaptureStatusActive);
  OK(cudaMemcpyAsync(to, from, 64, cudaMemcpyDeviceToDevice, s));
  OK(cudaMemsetAsync(from, 9, 32, s));
  OK(cudaLaunchHostFunc(s, count_up, &calls));
  OK(cudaMemcpyAsync(to + 60, host, sizeof(int), cudaMemcpyHostToDevice, s)); // ordinary memory: read at each launch
  OK(cudaMemcpyAsync(host + 1, to + 60, sizeof(int), cudaMemcpyDeviceToHost, s));
  cudaGraphExec_t x = end(s);
  assert_int_equal(status_of(s), cudaStreamCaptureStatusNone);
  assert_int_equal(calls, 0);
  assert_int_equal(to[0] + from[0] + host[1], 0);
  for (int i = 1; i <= 5; i++) {
    host[0] = 100 * i;
    OK(cudaGraphLaunch(x, i % 2 == 0 ? s : t));
    OK(cudaStreamSynchronize(i % 2 == 0 ? s : t));
    assert_int_equal(calls, i);
    assert_int_equal(from[31], 9);
    assert_int_equal(to[0], i == 1 ? 0 : 9);
    assert_int_equal(host[1], 100 * i);
  }
  OK(cudaGraphUpload(x, s));
  for (int i = 0; i < 100; i++) { // one after the other, whatever the stream
    OK(cudaGraphLaunch(x, i % 3 == 0 ? s : t));
  }
  OK(cudaGraphExecDestroy(x)); // what was launched still runs
  OK(cudaDeviceSynchronize());
  assert_int_equal(calls, 105);
  OK(cudaFree(from));
  OK(cudaFree(to));
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
}

// A fork into a second stream and back.
static void test_branches(void **state)
{
  cudaStream_t s = new_stream(), t = new_stream();
  cudaEvent_t fork = new_event(), join = new_event();
  cudaGraph_t graph;
  cudaGraphExec_t x;
  size_t n;
  char a[8] = {1}, b[8] = {0}, c[8] = {0};
  (void)state;
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(fork, s));
  OK(cudaStreamWaitEvent(t, fork, 0));
  assert_int_equal(status_of(t), cudaStreamCaptureStatusActive);
  OK(cudaMemcpyAsync(b, a, 8, cudaMemcpyDefault, s));
  OK(cudaMemsetAsync(c, 5, 4, t)); // has nothing before it
  OK(cudaEventRecord(join, t));
  OK(cudaStreamWaitEvent(s, join, 0));
  OK(cudaMemcpyAsync(c + 4, b, 4, cudaMemcpyDefault, s)); // after both
  unsigned long long id = 0;
  enum cudaStreamCaptureStatus status;
  const cudaGraphNode_t *tail;
  cudaGraph_t partial;
  OK(cudaStreamGetCaptureInfo(s, &status, &id, &partial, &tail, &n));
  assert_true(id != 0 && partial != NULL && n == 1 && tail[0] != NULL);
  OK(cudaStreamEndCapture(s, &graph));
  assert_ptr_equal(partial, graph);
  assert_int_equal(status_of(t), cudaStreamCaptureStatusNone);
  cudaGraphNode_t nodes[4], from[3], to[3];
  enum cudaGraphNodeType type;
  n = 4;
  OK(cudaGraphGetNodes(graph, nodes, &n));
  assert_int_equal(n, 3);
  assert_null(nodes[3]);
  OK(cudaGraphNodeGetType(nodes[1], &type));
  assert_int_equal(type, cudaGraphNodeTypeMemset);
  OK(cudaGraphGetRootNodes(graph, NULL, &n));
  assert_int_equal(n, 2);
  n = 3;
  OK(cudaGraphGetEdges(graph, from, to, &n));
  assert_int_equal(n, 2);
  assert_true(from[0] == nodes[0] && from[1] == nodes[1] && to[0] == nodes[2] && to[1] == nodes[2]);
  OK(cudaGraphInstantiateWithFlags(&x, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  for (char i = 1; i < 20; i++) {
    a[0] = i;
    OK(cudaGraphLaunch(x, s));
    OK(cudaStreamSynchronize(s));
    assert_true(b[0] == i && c[3] == 5 && c[4] == i);
  }
  GIVES(cudaEventQuery(fork), cudaErrorCapturedEvent);
  OK(cudaEventRecord(fork, s));
  OK(cudaEventSynchronize(fork));
  OK(cudaGraphExecDestroy(x));
  OK(cudaGraphDestroy(graph));
  OK(cudaEventDestroy(fork));
  OK(cudaEventDestroy(join));
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
}

// Streams are joined in any order, some of them twice: the next node comes after each once.
static void test_joins_in_any_order(void **state)
{
  enum { STREAMS = 4 };
  static const int order[] = {3, 1, 3, 0, 2, 1, 1, 3};
  cudaStream_t s = new_stream(), t[STREAMS];
  cudaEvent_t fork = new_event(), join[STREAMS];
  cudaGraph_t graph;
  cudaGraphNode_t nodes[STREAMS + 1], from[STREAMS + 1], to[STREAMS + 1];
  char at[STREAMS + 1] = {0};
  (void)state;
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(fork, s));
  for (int i = 0; i < STREAMS; i++) {
    t[i] = new_stream();
    join[i] = new_event();
    OK(cudaStreamWaitEvent(t[i], fork, 0));
    OK(cudaMemsetAsync(&at[i], 1, 1, t[i]));
    OK(cudaEventRecord(join[i], t[i]));
  }
  for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
    OK(cudaStreamWaitEvent(s, join[order[i]], 0));
  }
  enum cudaStreamCaptureStatus status;
  const cudaGraphNode_t *tail;
  size_t n;
  OK(cudaStreamGetCaptureInfo(s, &status, NULL, &graph, &tail, &n));
  assert_int_equal(n, STREAMS);
  memcpy(from, tail, STREAMS * sizeof *tail);
  OK(cudaMemsetAsync(&at[STREAMS], 1, 1, s));
  OK(cudaStreamEndCapture(s, &graph));
  n = STREAMS + 1;
  OK(cudaGraphGetNodes(graph, nodes, &n));
  assert_memory_equal(from, nodes, STREAMS * sizeof *nodes);
  OK(cudaGraphGetEdges(graph, from, to, &n));
  assert_int_equal(n, STREAMS);
  for (int i = 0; i < STREAMS; i++) {
    assert_true(from[i] == nodes[i] && to[i] == nodes[STREAMS]);
    OK(cudaEventDestroy(join[i]));
    OK(cudaStreamDestroy(t[i]));
  }
  OK(cudaGraphDestroy(graph));
  OK(cudaEventDestroy(fork));
  OK(cudaStreamDestroy(s));
}

static cudaGraph_t capture_copy(cudaStream_t s, void *to, const void *from, bool twice)
{
  cudaGraph_t graph;
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  OK(cudaMemcpyAsync(to, from, 1, cudaMemcpyDefault, s));
  if (twice) {
    OK(cudaMemsetAsync(to, 1, 1, s));
  }
  OK(cudaStreamEndCapture(s, &graph));
  return graph;
}

static void test_update(void **state)
{
  cudaStream_t s = new_stream();
  cudaGraphExec_t x;
  cudaGraphExecUpdateResultInfo info;
  char a = 3, b = 0, c = 0;
  (void)state;
  cudaGraph_t first = capture_copy(s, &b, &a, false), other = capture_copy(s, &c, &a, false),
              more = capture_copy(s, &c, &a, true);
  OK(cudaGraphInstantiate(&x, first, 0));
  OK(cudaGraphDestroy(first));
  OK(cudaGraphExecUpdate(x, other, &info));
  assert_int_equal(info.result, cudaGraphExecUpdateSuccess);
  OK(cudaGraphDestroy(other));
  OK(cudaGraphLaunch(x, s));
  OK(cudaStreamSynchronize(s));
  assert_true(b == 0 && c == 3);
  GIVES(cudaGraphExecUpdate(x, more, &info), cudaErrorGraphExecUpdateFailure);
  assert_int_equal(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  assert_non_null(info.errorNode);
  OK(cudaGraphDestroy(more));
  OK(cudaGraphExecDestroy(x));
  OK(cudaStreamDestroy(s));
}

// A graph that the program builds itself, one in another, and a captured launch.
static void test_own_nodes(void **state)
{
  cudaStream_t s = new_stream();
  cudaGraph_t inner, outer;
  cudaGraphExec_t x, y;
  cudaGraphNode_t fill, copy, call, child, last;
  _Atomic int calls = 0;
  char a[4] = {0}, b[4] = {0};
  size_t n = 0;
  (void)state;
  OK(cudaGraphCreate(&inner, 0));
  struct cudaMemsetParams set = {.dst = a, .value = 6, .elementSize = 1, .width = 4, .height = 1};
  struct cudaHostNodeParams host = {.fn = count_up, .userData = &calls};
  OK(cudaGraphAddMemsetNode(&fill, inner, NULL, 0, &set));
  OK(cudaGraphAddMemcpyNode1D(&copy, inner, &fill, 1, b, a, 4, cudaMemcpyDefault));
  OK(cudaGraphAddHostNode(&call, inner, &fill, 1, &host));
  cudaGraphNode_t both[] = {copy, call};
  OK(cudaGraphAddEmptyNode(&last, inner, both, 2));
  OK(cudaGraphNodeGetDependencies(last, NULL, &n));
  assert_int_equal(n, 2);
  OK(cudaGraphCreate(&outer, 0));
  OK(cudaGraphAddChildGraphNode(&child, outer, NULL, 0, inner));
  GIVES(cudaGraphAddEmptyNode(&last, outer, &fill, 1), cudaErrorInvalidValue); // of another graph
  OK(cudaGraphDestroy(inner));
  OK(cudaGraphInstantiate(&x, outer, 0));
  OK(cudaGraphDestroy(outer));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  OK(cudaGraphLaunch(x, s));
  OK(cudaGraphLaunch(x, s));
  y = end(s);
  OK(cudaGraphExecDestroy(x));
  assert_int_equal(calls, 0);
  OK(cudaGraphLaunch(y, s));
  OK(cudaStreamSynchronize(s));
  assert_int_equal(calls, 2);
  assert_memory_equal(b, "\6\6\6\6", 4);
  OK(cudaGraphExecDestroy(y));
  OK(cudaStreamDestroy(s));
}

// Events that work outside of the graph waits for, and that it waits for.
static void test_external_events(void **state)
{
  cudaStream_t s = new_stream(), t = new_stream();
  cudaEvent_t in = new_event(), out = new_event();
  _Atomic int calls = 0;
  (void)state;
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  OK(cudaStreamWaitEvent(s, in, cudaEventWaitExternal));
  OK(cudaLaunchHostFunc(s, count_up, &calls));
  OK(cudaEventRecordWithFlags(out, s, cudaEventRecordExternal));
  cudaGraphExec_t x = end(s);
  for (int i = 1; i < 4; i++) {
    OK(cudaEventRecord(in, t));
    OK(cudaGraphLaunch(x, s));
    OK(cudaStreamWaitEvent(t, out, 0));
    OK(cudaStreamSynchronize(t));
    OK(cudaEventQuery(out));
    assert_int_equal(calls, i);
  }
  OK(cudaGraphExecDestroy(x));
  OK(cudaEventDestroy(in));
  OK(cudaEventDestroy(out));
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
}

// ---- What captures refuse ----

// The capture is invalid: it says so once more, and its end takes the stream out of it.
static void ends_broken(cudaStream_t s)
{
  cudaGraph_t graph = (cudaGraph_t)1;
  char c;
  assert_int_equal(status_of(s), cudaStreamCaptureStatusInvalidated);
  GIVES(cudaMemsetAsync(&c, 0, 1, s), cudaErrorStreamCaptureInvalidated);
  GIVES(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
  assert_null(graph);
  assert_int_equal(status_of(s), cudaStreamCaptureStatusNone);
  OK(cudaMemsetAsync(&c, 4, 1, s));
  OK(cudaStreamSynchronize(s));
  assert_int_equal(c, 4);
}

static void test_refused_on_the_stream(void **state)
{
  cudaStream_t s = new_stream(), blocking, t = new_stream();
  cudaEvent_t e = new_event(), outside = new_event();
  cudaGraph_t graph;
  void *p;
  char c;
  (void)state;
  OK(cudaStreamCreate(&blocking));
  GIVES(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  GIVES(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  GIVES(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
  GIVES(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
  ends_broken(s);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  GIVES(cudaStreamQuery(s), cudaErrorStreamCaptureUnsupported);
  ends_broken(s);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  GIVES(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  ends_broken(s);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  GIVES(cudaMallocAsync(&p, 8, s), cudaErrorStreamCaptureUnsupported);
  OK(cudaMalloc(&p, 8));
  GIVES(cudaFreeAsync(p, s), cudaErrorStreamCaptureUnsupported);
  ends_broken(s);
  OK(cudaFree(p));
  OK(cudaEventRecord(outside, t));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  GIVES(cudaStreamWaitEvent(s, outside, 0), cudaErrorStreamCaptureIsolation);
  ends_broken(s);
  OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  GIVES(cudaMemset(&c, 0, 1), cudaErrorStreamCaptureImplicit);
  ends_broken(blocking);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  OK(cudaMemset(&c, 0, 1)); // a non-blocking stream is not ordered with the legacy one
  OK(cudaEventRecord(e, s));
  GIVES(cudaEventSynchronize(e), cudaErrorCapturedEvent);
  GIVES(cudaStreamWaitEvent(cudaStreamLegacy, e, 0), cudaErrorStreamCaptureImplicit);
  ends_broken(s);
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
  OK(cudaStreamDestroy(blocking));
  OK(cudaEventDestroy(e));
  OK(cudaEventDestroy(outside));
}

static void test_refused_ends(void **state)
{
  cudaStream_t s = new_stream(), t = new_stream();
  cudaEvent_t e = new_event();
  cudaGraph_t graph;
  char c;
  (void)state;
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  OK(cudaEventRecord(e, s));
  OK(cudaStreamWaitEvent(t, e, 0));
  OK(cudaMemsetAsync(&c, 0, 1, t));
  GIVES(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureUnjoined);
  assert_int_equal(status_of(t), cudaStreamCaptureStatusNone);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  OK(cudaEventRecord(e, s));
  OK(cudaStreamWaitEvent(t, e, 0));
  GIVES(cudaStreamEndCapture(t, &graph), cudaErrorStreamCaptureUnmatched);
  ends_broken(s);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  OK(cudaStreamBeginCapture(t, cudaStreamCaptureModeRelaxed));
  OK(cudaEventRecord(e, s));
  GIVES(cudaStreamWaitEvent(t, e, 0), cudaErrorStreamCaptureMerge);
  ends_broken(t);
  ends_broken(s);
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
  OK(cudaEventDestroy(e));
}

// What another thread may do while a stream is captured in a mode, with a mode of its own.
typedef struct other {
  cudaStream_t stream;
  enum cudaStreamCaptureMode mode;
  cudaError_t malloced, ended;
} other;

static void *other_thread(void *arg)
{
  other *o = arg;
  void *p = NULL;
  cudaGraph_t graph;
  cudaThreadExchangeStreamCaptureMode(&o->mode);
  o->malloced = cudaMalloc(&p, 8);
  if (o->malloced == cudaSuccess) {
    cudaFree(p);
  }
  o->ended = cudaStreamEndCapture(o->stream, &graph);
  if (o->ended == cudaSuccess) {
    cudaGraphDestroy(graph);
  }
  return NULL;
}

static void test_modes(void **state)
{
  enum cudaStreamCaptureMode all = cudaStreamCaptureModeGlobal, own = cudaStreamCaptureModeThreadLocal,
                             none = cudaStreamCaptureModeRelaxed, mode = none;
  struct {
    enum cudaStreamCaptureMode capture, thread;
    cudaError_t malloced, ended;
  } cases[] = {
      {all, all, cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureWrongThread},
      {all, own, cudaSuccess, cudaErrorStreamCaptureWrongThread},
      {all, none, cudaSuccess, cudaErrorStreamCaptureWrongThread},
      {own, all, cudaSuccess, cudaErrorStreamCaptureWrongThread},
      {none, all, cudaSuccess, cudaSuccess},
  };
  void *p;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pthread_t t;
    other o = {.stream = new_stream(), .mode = cases[i].thread};
    OK(cudaStreamBeginCapture(o.stream, cases[i].capture));
    assert_int_equal(pthread_create(&t, NULL, other_thread, &o), 0);
    pthread_join(t, NULL);
    assert_int_equal(o.malloced, cases[i].malloced);
    assert_int_equal(o.ended, cases[i].ended);
    if (o.ended != cudaSuccess) {
      ends_broken(o.stream);
    }
    OK(cudaStreamDestroy(o.stream));
  }
  // In the thread that captures: allowed in relaxed mode of the capture or the thread.
  cudaStream_t s = new_stream();
  OK(cudaStreamBeginCapture(s, own));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  assert_int_equal(mode, all);
  OK(cudaMalloc(&p, 8));
  OK(cudaFree(p));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  assert_int_equal(mode, none);
  GIVES(cudaMalloc(&p, 8), cudaErrorStreamCaptureUnsupported);
  ends_broken(s);
  OK(cudaStreamDestroy(s));
}

// ---- Operations of NCCL ----

typedef struct job {
  ncclComm_t comm[RANKS];
  cudaStream_t stream[RANKS];
  float *in[RANKS], *out[RANKS];
} job;

static void open_job(job *j)
{
  NCCL(ncclCommInitAll(j->comm, RANKS, NULL));
  for (int r = 0; r < RANKS; r++) {
    OK(cudaSetDevice(r));
    j->stream[r] = new_stream();
    OK(cudaMalloc((void **)&j->in[r], COUNT * sizeof(float)));
    OK(cudaMalloc((void **)&j->out[r], COUNT * sizeof(float)));
  }
}

static void close_job(job *j)
{
  for (int r = 0; r < RANKS; r++) {
    if (j->comm[r] != NULL) {
      NCCL(ncclCommDestroy(j->comm[r]));
    }
    OK(cudaStreamDestroy(j->stream[r]));
    OK(cudaFree(j->in[r]));
    OK(cudaFree(j->out[r]));
  }
  OK(cudaSetDevice(0));
}

static void set(const job *j, float x)
{
  for (int r = 0; r < RANKS; r++) {
    for (int i = 0; i < COUNT; i++) {
      j->in[r][i] = x + (float)(r + i % 7);
    }
  }
}

static void wait_for(const job *j)
{
  for (int r = 0; r < RANKS; r++) {
    OK(cudaStreamSynchronize(j->stream[r]));
  }
}

static void check_sum(const job *j, float x)
{
  for (int r = 0; r < RANKS; r++) {
    for (int i = 0; i < COUNT; i++) {
      assert_true(j->out[r][i] == RANKS * (x + (float)(i % 7)) + (RANKS * (RANKS - 1) / 2));
    }
  }
}

static void sum(const job *j)
{
  NCCL(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    NCCL(ncclAllReduce(j->in[r], j->out[r], COUNT, ncclFloat, ncclSum, j->comm[r], j->stream[r]));
  }
  NCCL(ncclGroupEnd());
}

// A graph for each rank, of operations that one group starts, as nccl-tests does it.
static void test_graph_per_rank(void **state)
{
  job j;
  cudaGraphExec_t x[RANKS];
  (void)state;
  open_job(&j);
  for (int r = 0; r < RANKS; r++) {
    OK(cudaStreamBeginCapture(j.stream[r], cudaStreamCaptureModeThreadLocal));
  }
  sum(&j);
  for (int r = 0; r < RANKS; r++) {
    x[r] = end(j.stream[r]);
  }
  set(&j, 0);
  for (int i = 0; i < 30; i++) { // calls between launches, small ones that are made ready among them
    set(&j, (float)i);
    if (i % 3 == 1) {
      sum(&j);
    } else {
      for (int r = 0; r < RANKS; r++) {
        OK(cudaGraphLaunch(x[(r + i) % RANKS], j.stream[(r + i) % RANKS]));
      }
    }
    wait_for(&j);
    check_sum(&j, (float)i);
  }
  for (int r = 0; r < RANKS; r++) {
    OK(cudaGraphExecDestroy(x[r]));
  }
  close_job(&j);
}

// All ranks in one graph: forked from the first rank's stream, and joined there. Of messages as well.
static void test_one_graph(void **state)
{
  job j;
  cudaEvent_t fork = new_event(), join[RANKS];
  (void)state;
  open_job(&j);
  OK(cudaStreamBeginCapture(j.stream[0], cudaStreamCaptureModeGlobal));
  OK(cudaEventRecord(fork, j.stream[0]));
  for (int r = 1; r < RANKS; r++) {
    OK(cudaStreamWaitEvent(j.stream[r], fork, 0));
  }
  for (int r = 0; r < RANKS; r++) { // without a group: rank 0's stands in the graph before the others begin
    NCCL(ncclAllReduce(j.in[r], j.out[r], COUNT, ncclFloat, ncclSum, j.comm[r], j.stream[r]));
  }
  NCCL(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    NCCL(ncclSend(j.out[r], COUNT, ncclFloat, (r + 1) % RANKS, j.comm[r], j.stream[r]));
    NCCL(ncclRecv(j.in[r], COUNT, ncclFloat, (r + RANKS - 1) % RANKS, j.comm[r], j.stream[r]));
  }
  NCCL(ncclGroupEnd());
  for (int r = 1; r < RANKS; r++) {
    join[r] = new_event();
    OK(cudaEventRecord(join[r], j.stream[r]));
    OK(cudaStreamWaitEvent(j.stream[0], join[r], 0));
  }
  cudaGraphExec_t x = end(j.stream[0]);
  set(&j, 1);
  for (int i = 0; i < 3; i++) {
    OK(cudaGraphLaunch(x, j.stream[0]));
  }
  OK(cudaStreamSynchronize(j.stream[0]));
  float want = RANKS * 1.0F + RANKS * (RANKS - 1) / 2; // of element 0: then all ranks have it
  for (int r = 0; r < RANKS; r++) {
    assert_true(j.in[r][0] == want * RANKS * RANKS && j.out[r][COUNT - 7] == j.in[r][COUNT - 7]);
  }
  OK(cudaGraphExecDestroy(x));
  OK(cudaEventDestroy(fork));
  for (int r = 1; r < RANKS; r++) {
    OK(cudaEventDestroy(join[r]));
  }
  close_job(&j);
}

// An operator that was destroyed after the capture, and another one in its place.
static void test_destroyed_operator(void **state)
{
  job j;
  cudaGraphExec_t x[RANKS];
  ncclRedOp_t op[RANKS];
  (void)state;
  open_job(&j);
  for (int r = 0; r < RANKS; r++) {
    float two = 2;
    NCCL(ncclRedOpCreatePreMulSum(&op[r], &two, ncclFloat, ncclScalarHostImmediate, j.comm[r]));
    OK(cudaStreamBeginCapture(j.stream[r], cudaStreamCaptureModeThreadLocal));
    NCCL(ncclAllReduce(j.in[r], j.out[r], COUNT, ncclFloat, op[r], j.comm[r], j.stream[r]));
    x[r] = end(j.stream[r]);
    NCCL(ncclRedOpDestroy(op[r], j.comm[r]));
    double scale = 77;
    NCCL(ncclRedOpCreatePreMulSum(&op[r], &scale, ncclDouble, ncclScalarHostImmediate, j.comm[r]));
  }
  set(&j, 0);
  for (int r = 0; r < RANKS; r++) {
    OK(cudaGraphLaunch(x[r], j.stream[r]));
  }
  wait_for(&j);
  for (int r = 0; r < RANKS; r++) {
    assert_true(j.out[r][1] == 2 * (RANKS * 1.0F + RANKS * (RANKS - 1) / 2));
    OK(cudaGraphExecDestroy(x[r]));
    NCCL(ncclRedOpDestroy(op[r], j.comm[r]));
  }
  close_job(&j);
}

// A launch whose communicator has been destroyed or aborted fails before it queues anything, even if another
// communicator has got the handle since.
static void test_destroyed_communicator(void **state)
{
  (void)state;
  for (int abort = 0; abort < 2; abort++) {
    job j, next;
    cudaGraphExec_t x[RANKS];
    char first = 0;
    open_job(&j);
    for (int r = 0; r < RANKS; r++) {
      OK(cudaStreamBeginCapture(j.stream[r], cudaStreamCaptureModeThreadLocal));
      OK(cudaMemsetAsync(&first, 1, 1, j.stream[r]));
      NCCL(ncclAllReduce(j.in[r], j.out[r], COUNT, ncclFloat, ncclSum, j.comm[r], j.stream[r]));
      x[r] = end(j.stream[r]);
    }
    for (int r = 0; r < RANKS; r++) {
      NCCL(abort ? ncclCommAbort(j.comm[r]) : ncclCommDestroy(j.comm[r]));
      j.comm[r] = NULL;
    }
    open_job(&next); // has the same handles
    for (int r = 0; r < RANKS; r++) {
      GIVES(cudaGraphLaunch(x[r], j.stream[r]), cudaErrorInvalidValue);
      OK(cudaStreamSynchronize(j.stream[r]));
      OK(cudaGraphExecDestroy(x[r]));
    }
    assert_int_equal(first, 0);
    set(&next, 5);
    sum(&next);
    wait_for(&next);
    check_sum(&next, 5);
    close_job(&next);
    close_job(&j);
  }
}

// Operations of one communicator in one group, of which one stream is captured and one is not.
static void test_mixed_group(void **state)
{
  ncclComm_t comm;
  cudaStream_t s = new_stream(), t = new_stream();
  cudaGraph_t graph;
  float x = 1, y = 0;
  (void)state;
  NCCL(ncclCommInitAll(&comm, 1, NULL));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  NCCL(ncclGroupStart());
  NCCL(ncclSend(&x, 1, ncclFloat, 0, comm, s));
  NCCL(ncclRecv(&y, 1, ncclFloat, 0, comm, t));
  assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamSynchronize(t));
  assert_true(y == 0);
  NCCL(ncclCommDestroy(comm));
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_launches),
      cmocka_unit_test(test_branches),
      cmocka_unit_test(test_joins_in_any_order),
      cmocka_unit_test(test_update),
      cmocka_unit_test(test_own_nodes),
      cmocka_unit_test(test_external_events),
      cmocka_unit_test(test_refused_on_the_stream),
      cmocka_unit_test(test_refused_ends),
      cmocka_unit_test(test_modes),
      cmocka_unit_test(test_graph_per_rank),
      cmocka_unit_test(test_one_graph),
      cmocka_unit_test(test_destroyed_operator),
      cmocka_unit_test(test_destroyed_communicator),
      cmocka_unit_test(test_mixed_group),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
