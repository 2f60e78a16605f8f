// capture_test.c: captures, graphs, their replay.
#include "rig.h"

static CUgraphExec instantiate(CUgraph graph)
{
  CUgraphExec exec;
  OK(cu.GraphInstantiateWithFlags(&exec, graph, 0));
  OK(cu.GraphDestroy(graph));
  return exec;
}

static _Atomic int calls;

static void count_calls(void *data)
{
  (void)data;
  atomic_fetch_add(&calls, 1);
}

// Two streams: fork and join by events; kernels, words, a copy, a fill, a host function.
static CUgraph capture_all(CUstream a, CUstream b, CUdeviceptr sum, _Atomic uint32_t *word)
{
  CUfunction add = rig_kernel("add");
  CUgraph graph;
  CUevent fork_event, join_event;
  CUstreamCaptureStatus status;
  OK(cu.EventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
  OK(cu.EventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
  OK(cu.StreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cu.StreamIsCapturing(a, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(rig_launch(add, 1, 32, sum, 1, a));
  OK(cu.EventRecord(fork_event, a));
  OK(cu.StreamWaitEvent(b, fork_event, 0));
  OK(cu.StreamWaitValue32(b, at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cu.StreamWriteValue32(b, at(word), 0, 0));
  OK(rig_launch(add, 1, 1, sum, 100, b));
  OK(cu.EventRecord(join_event, b));
  OK(cu.StreamWriteValue32(a, at(word), 1, 0)); // which releases the other branch
  OK(cu.StreamWaitEvent(a, join_event, 0));
  OK(cu.MemcpyAsync(sum + 4, sum, 4, a));
  OK(cu.MemsetD32Async(sum + 8, 3, 1, a));
  OK(cu.LaunchHostFunc(a, count_calls, NULL));
  OK(cu.StreamEndCapture(a, &graph));
  OK(cu.StreamIsCapturing(b, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
  return graph;
}

static void replay(void)
{
  enum { TIMES = 100 };
  uint32_t out[3], times = 0;
  size_t count = 0;
  rig_context(0);
  CUstream a = rig_stream(), b = rig_stream();
  CUdeviceptr sum = rig_memory(12);
  _Atomic uint32_t *word = rig_words(1);
  OK(cu.MemsetD32(sum, 0, 3));
  CUgraph graph = capture_all(a, b, sum, word);
  OK(cu.GraphGetNodes(graph, NULL, &count));
  CHECK(count == 8);
  CUgraphExec exec = instantiate(graph);
  OK(cu.StreamSynchronize(a));
  OK(cu.MemcpyDtoH(out, sum, 12));
  CHECK(out[0] == 0 && atomic_load(&calls) == 0); // a capture does nothing
  CUfunction add = rig_kernel("add");
  for (int i = 0; i < TIMES; i++) {
    OK(cu.GraphLaunch(exec, i % 3 == 0 ? b : a));
    if (i % 5 == 0) { // work of another kind between
      OK(rig_launch(add, 1, 1, sum, 1000000, a));
      times++;
    }
  }
  OK(cu.CtxSynchronize());
  OK(cu.MemcpyDtoH(out, sum, 12));
  CHECK(out[0] == 132 * TIMES + 1000000 * times && out[2] == 3 && atomic_load(&calls) == TIMES);
  OK(cu.GraphExecDestroy(exec));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.GraphLaunch(exec, a));
}

static void test_replay(void **state)
{
  (void)state;
  static const char *const modes[] = {"", "order=random,seed=3", "queues=1", "launches=2,order=random,stores,stale"};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    rig_says(modes[i], 1, replay, "cuGraphLaunch: an executable graph that has been destroyed");
  }
}

// An executable graph's launches run in the order in which they were made, also where the later one could begin first.
static void in_order(void)
{
  CUgraph graph;
  CUgraphNode wait, record;
  CUevent event;
  CUstream a = (rig_context(0), rig_stream()), b = rig_stream();
  _Atomic uint32_t *word = rig_words(1);
  OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cu.GraphCreate(&graph, 0));
  OK(cu.GraphAddEventWaitNode(&wait, graph, NULL, 0, event));
  OK(cu.GraphAddEventRecordNode(&record, graph, &wait, 1, event));
  CUgraphExec exec = instantiate(graph);
  OK(cu.StreamWaitValue32(a, at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cu.GraphLaunch(exec, a));
  OK(cu.GraphLaunch(exec, b)); // waits for the record of the one before
  rig_sleep_ms(20);
  CHECK(cu.StreamQuery(b) == CUDA_ERROR_NOT_READY);
  CHECK(cu.EventQuery(event) == CUDA_ERROR_NOT_READY);
  atomic_store(word, 1);
  OK(cu.StreamSynchronize(b));
  OK(cu.EventQuery(event));
  OK(cu.GraphExecDestroy(exec));
}

static void test_in_order(void **state)
{
  (void)state;
  rig_quiet("queues=8", 1, in_order);
  rig_quiet("queues=8,slices=5", 1, in_order);
}

// ---- Rules ----

static void breaks(void)
{
  CUgraph graph;
  CUdeviceptr ptr;
  CUevent event;
  CUstreamCaptureStatus status;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUstream stream = (rig_context(0), rig_stream()), other = rig_stream();
  OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.StreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
  GIVES(CUDA_ERROR_ILLEGAL_STATE, cu.StreamEndCapture(stream, &graph));
  OK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  GIVES(CUDA_ERROR_ILLEGAL_STATE, cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cu.ThreadExchangeStreamCaptureMode(&mode)); // as libraries do around such calls
  CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cu.MemAlloc(&ptr, 4));
  OK(cu.ThreadExchangeStreamCaptureMode(&mode));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.MemAlloc(&ptr, 4));
  OK(cu.StreamIsCapturing(stream, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.MemsetD8Async(ptr, 0, 1, stream));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.StreamEndCapture(stream, &graph));
  CHECK(graph == NULL);
  OK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cu.MemAlloc(&ptr, 4)); // allowed in this mode
  GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.StreamSynchronize(stream));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.StreamEndCapture(stream, &graph));
  OK(cu.EventRecord(event, other));
  OK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cu.StreamWaitEvent(stream, event, 0));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.StreamEndCapture(stream, &graph));
}

static void joins(void)
{
  CUgraph graph;
  CUevent event;
  CUdeviceptr ptr = (rig_context(0), rig_memory(4));
  CUstream stream = rig_stream(), other = rig_stream(), third = rig_stream();
  OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cu.EventRecord(event, stream));
  OK(cu.StreamWaitEvent(other, event, 0));
  OK(cu.MemsetD8Async(ptr, 0, 1, other));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cu.StreamEndCapture(stream, &graph));
  GIVES(CUDA_ERROR_CAPTURED_EVENT, cu.EventQuery(event));
  OK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cu.StreamBeginCapture(third, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cu.EventRecord(event, stream));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_MERGE, cu.StreamWaitEvent(third, event, 0));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.StreamEndCapture(third, &graph));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.StreamEndCapture(stream, &graph));
  OK(cu.MemsetD8Async(ptr, 0, 1, other)); // all are free again
  OK(cu.CtxSynchronize());
}

static void implicit(void)
{
  CUgraph graph;
  CUstreamCaptureStatus status;
  CUdeviceptr ptr = (rig_context(0), rig_memory(4));
  CUstream blocking;
  OK(cu.StreamCreateWithPriority(&blocking, CU_STREAM_DEFAULT, 0));
  OK(cu.StreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.StreamIsCapturing(NULL, &status));
  OK(cu.MemsetD8Async(ptr, 0, 1, blocking)); // the question has broken nothing
  GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.MemsetD8Async(ptr, 0, 1, NULL));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.StreamEndCapture(blocking, &graph));
}

static CUstream captured_stream;

static void *end_elsewhere(void *arg)
{
  CUgraph graph;
  CUdeviceptr ptr;
  rig_context(0);
  GIVES(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cu.StreamEndCapture(captured_stream, &graph));
  if (arg != NULL) { // of mode global: this thread may not either
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.MemAlloc(&ptr, 4));
  } else {
    OK(cu.MemAlloc(&ptr, 4));
  }
  return NULL;
}

static void capture_and_end_elsewhere(CUstreamCaptureMode mode, void *arg)
{
  pthread_t thread;
  CUgraph graph;
  OK(cu.StreamBeginCapture(captured_stream, mode));
  CHECK(pthread_create(&thread, NULL, end_elsewhere, arg) == 0 && pthread_join(thread, NULL) == 0);
  GIVES(arg != NULL ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS,
        cu.StreamEndCapture(captured_stream, &graph));
}

// Streams that are destroyed within a capture: it ends, or is not valid any more.
static void destroyed(void)
{
  CUgraph graph;
  CUevent event;
  CUdeviceptr ptr = (rig_context(0), 0);
  CUstream stream = rig_stream(), other = rig_stream();
  OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cu.EventRecord(event, stream));
  OK(cu.StreamWaitEvent(other, event, 0));
  OK(cu.StreamDestroy(other));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.StreamEndCapture(stream, &graph));
  OK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.MemAlloc(&ptr, 4));
  OK(cu.StreamDestroy(stream));
  OK(cu.MemAlloc(&ptr, 4)); // nothing is captured now
  OK(cu.CtxSynchronize());
}

static void other_threads(void)
{
  rig_context(0);
  captured_stream = rig_stream();
  capture_and_end_elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, &captured_stream);
  capture_and_end_elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, NULL);
}

static void test_rules(void **state)
{
  (void)state;
  rig_says("", 1, breaks, "not allowed while a stream is captured in this mode");
  assert_non_null(strstr(rig_err, "a captured stream waits for work that is not"));
  rig_says("", 1, joins, "a stream that joined the capture did not come back to it");
  assert_non_null(strstr(rig_err, "two captures would become one"));
  rig_says("", 1, destroyed, "cuStreamDestroy: the stream is being captured");
  rig_says("", 1, implicit, "the legacy stream would wait for a stream that is captured");
  rig_says("", 1, other_threads, "the capture was begun by another thread");
}

// ---- Graphs that are built ----

static void built(void)
{
  enum { NODES = 5 };
  uint32_t out = 0;
  CUcontext context = rig_context(0);
  CUgraph graph;
  CUgraphNode node[NODES], all[NODES];
  CUgraphNodeType type;
  CUevent event;
  size_t count = NODES;
  CUdeviceptr sum = rig_memory(4);
  uint32_t value = 5;
  void *params[] = {&sum, &value};
  CUDA_KERNEL_NODE_PARAMS kernel = {.func = rig_kernel("add"),
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 2,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params};
  CUstreamBatchMemOpParams op = {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = sum}};
  CUDA_BATCH_MEM_OP_NODE_PARAMS words = {.ctx = context, .count = 1, .paramArray = &op};
  CUDA_HOST_NODE_PARAMS host = {count_calls, NULL};
  CUstream stream = rig_stream();
  OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cu.GraphCreate(&graph, 0));
  OK(cu.GraphAddBatchMemOpNode(&node[0], graph, NULL, 0, &words));
  OK(cu.GraphAddEmptyNode(&node[1], graph, node, 1));
  OK(cu.GraphAddKernelNode(&node[2], graph, node, 2, &kernel));
  OK(cu.GraphAddHostNode(&node[3], graph, node + 2, 1, &host));
  OK(cu.GraphAddEventRecordNode(&node[4], graph, node + 3, 1, event));
  OK(cu.GraphGetNodes(graph, all, &count));
  OK(cu.GraphNodeGetType(all[2], &type));
  CHECK(count == NODES && all[2] == node[2] && type == CU_GRAPH_NODE_TYPE_KERNEL);
  value = 77; // was taken
  CUgraphExec exec = instantiate(graph);
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.GraphNodeGetType(node[0], &type)); // went with the graph
  for (int i = 0; i < 3; i++) {
    OK(cu.GraphLaunch(exec, stream));
  }
  OK(cu.EventSynchronize(event));
  CHECK(atomic_load(&calls) == 3);
  OK(cu.MemcpyDtoH(&out, sum, 4));
  CHECK(out == 10);
}

static void test_built(void **state)
{
  (void)state;
  rig_says("", 1, built, "a graph's node that has been destroyed");
  rig_says("order=random,seed=8", 1, built, "a graph's node that has been destroyed");
}

// A library's own node within the program's capture.
static void inserted(void)
{
  CUgraph graph, same;
  CUgraphNode node;
  cuuint64_t id;
  CUstreamCaptureStatus status;
  const CUgraphNode *before;
  size_t count;
  CUstream stream = (rig_context(0), rig_stream());
  _Atomic uint32_t *word = rig_words(1);
  CUDA_HOST_NODE_PARAMS host = {count_calls, NULL};
  OK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cu.StreamWriteValue32(stream, at(word), 1, 0));
  OK(cu.StreamGetCaptureInfo(stream, &status, &id, &graph, &before, NULL, &count));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1 && id != 0);
  OK(cu.GraphAddHostNode(&node, graph, before, count, &host));
  const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                 .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
  const CUgraphEdgeData *edges;
  OK(cu.StreamUpdateCaptureDependencies(stream, &node, &early, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  GIVES(CUDA_ERROR_LOSSY_QUERY, cu.StreamGetCaptureInfo(stream, &status, NULL, NULL, &before, NULL, &count));
  OK(cu.StreamGetCaptureInfo(stream, &status, NULL, NULL, &before, &edges, &count));
  CHECK(count == 1 && before[0] == node && memcmp(edges, &early, sizeof early) == 0);
  OK(cu.StreamUpdateCaptureDependencies(stream, &node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  OK(cu.StreamGetCaptureInfo(stream, &status, NULL, NULL, &before, NULL, &count));
  OK(cu.StreamWriteValue32(stream, at(word), 2, 0));
  OK(cu.StreamEndCapture(stream, &same));
  CHECK(same == graph);
  OK(cu.GraphGetNodes(graph, NULL, &count));
  CHECK(count == 3);
  CUgraphExec exec = instantiate(graph);
  OK(cu.GraphLaunch(exec, stream));
  OK(cu.StreamSynchronize(stream));
  CHECK(atomic_load(word) == 2 && atomic_load(&calls) == 1);
}

static void test_inserted(void **state)
{
  (void)state;
  rig_says("", 1, inserted, "nodes may begin before others are complete");
}

// What a graph keeps lives until the last launch of its last executable graph has ended.
static void kept(void)
{
  CUuserObject object;
  CUgraph graph;
  CUstream stream = (rig_context(0), rig_stream());
  _Atomic uint32_t *word = rig_words(1);
  OK(cu.UserObjectCreate(&object, NULL, count_calls, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cu.StreamWaitValue32(stream, at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cu.StreamEndCapture(stream, &graph));
  OK(cu.GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  OK(cu.UserObjectRetain(object, 1));
  OK(cu.UserObjectRelease(object, 1));
  CUgraphExec exec = instantiate(graph);
  OK(cu.GraphLaunch(exec, stream));
  OK(cu.GraphExecDestroy(exec));
  rig_sleep_ms(20);
  CHECK(atomic_load(&calls) == 0);
  atomic_store(word, 1);
  OK(cu.StreamSynchronize(stream));
  for (int i = 0; i < 1000 && atomic_load(&calls) == 0; i++) {
    rig_sleep_ms(1);
  }
  CHECK(atomic_load(&calls) == 1);
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.UserObjectRelease(object, 1));
}

static void test_kept(void **state)
{
  (void)state;
  rig_says("", 1, kept, "a user object that has been destroyed");
}

// A graph that cannot go on is in the report too.
static void stuck(void)
{
  CUgraph graph;
  CUstream stream = (rig_context(0), rig_stream());
  _Atomic uint32_t *word = rig_words(1);
  OK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cu.StreamWaitValue32(stream, at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cu.StreamEndCapture(stream, &graph));
  OK(cu.GraphLaunch(instantiate(graph), stream));
  GIVES(CUDA_ERROR_LAUNCH_TIMEOUT, cu.StreamSynchronize(stream));
}

static void test_stuck(void **state)
{
  (void)state;
  rig_says("deadlock=500", 1, stuck, "now 0 (in a graph)");
}

// A graph of two devices: the kernel of the one waits for that of the other.
static void devices(void)
{
  CUgraph graph;
  CUgraphExec exec;
  CUevent fork_event, join_event;
  _Atomic uint32_t *words = (rig_context(1), rig_words(4));
  CUfunction put = rig_kernel("put");
  CUstream b = rig_stream();
  OK(cu.EventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
  CUcontext other = rig_context(1), first = rig_context(0);
  CUfunction spin = rig_kernel("spin");
  CUstream a = rig_stream();
  OK(cu.EventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
  OK(cu.StreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cu.EventRecord(fork_event, a));
  OK(rig_launch(spin, 1, 1, at(words), 1, a));
  OK(cu.CtxSetCurrent(other));
  OK(cu.StreamWaitEvent(b, fork_event, 0));
  OK(cu.StreamWaitValue32(b, at(words + 1), 1, CU_STREAM_WAIT_VALUE_EQ)); // the kernel runs
  OK(rig_launch(put, 1, 1, at(words), 1, b));
  OK(cu.EventRecord(join_event, b));
  OK(cu.CtxSetCurrent(first));
  OK(cu.StreamWaitEvent(a, join_event, 0));
  OK(cu.StreamEndCapture(a, &graph));
  OK(cu.GraphInstantiateWithFlags(&exec, graph, 0));
  OK(cu.GraphLaunch(exec, a));
  OK(cu.StreamSynchronize(a));
}

static void test_devices(void **state)
{
  (void)state;
  rig_quiet("devices=2,deadlock=5000", 1, devices);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_replay), cmocka_unit_test(test_in_order), cmocka_unit_test(test_rules),
      cmocka_unit_test(test_built),  cmocka_unit_test(test_inserted), cmocka_unit_test(test_kept),
      cmocka_unit_test(test_stuck),  cmocka_unit_test(test_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
