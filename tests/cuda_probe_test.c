// cuda_probe_test.c: what a driver's calls cost, and which of them wait for a stream that waits. Prints one line for
// each: "probe NAME VALUE UNIT". scripts/gpu_session makes a table of them; on the driver for tests the values mean
// nothing, and only that all of them come out is tested.
#include "cuda_gpu.h"

#include <math.h>
#include <sys/mman.h>
#include <time.h>

#include "harness.h"

enum { WORDS = 4096, MIB = 1 << 20, PATIENCE_MS = 100 };

static _Atomic uint32_t *words; // pinned
static CUstream streams[2];

// How often something is measured.
static int times(int on_gpu)
{
  return real_driver() ? on_gpu : 3;
}

static void say(const char *name, double value, const char *unit)
{
  printf("probe %s %.3f %s\n", name, value, unit);
  assert_true(isfinite(value) && value >= 0);
}

static double us_since(double start)
{
  return (seconds_now() - start) * 1e6;
}

static void sync_stream(int s)
{
  DO(cu->StreamSynchronize(streams[s]));
}

static void wait_word(CUstream s, int word, uint32_t value)
{
  DO(cu->StreamWaitValue32(s, gpu_at(&words[word]), value, CU_STREAM_WAIT_VALUE_GEQ));
}

static void write_word(CUstream s, int word, uint32_t value)
{
  DO(cu->StreamWriteValue32(s, gpu_at(&words[word]), value, 0));
}

// A step without parts.
static tt_cuda_step nothing(void)
{
  return (tt_cuda_step){.port = {.stop = gpu_at(&words[WORDS - 1]), .fault = gpu_at(&words[WORDS - 2])}};
}

static void launch_nothing(CUstream s)
{
  const tt_cuda_step none = nothing();
  gpu_launch(gpu_kernel("step", "copy"), 1, &none, s);
}

static int open_probe(void **state)
{
  (void)state;
  gpu_open();
  words = gpu_pinned(WORDS * sizeof *words);
  streams[0] = gpu_stream();
  streams[1] = gpu_stream();
  launch_nothing(streams[0]);
  sync_stream(0);
  return 0;
}

static void zero_words(void)
{
  for (int i = 0; i < WORDS; i++) {
    atomic_store(&words[i], 0);
  }
}

// ---- What a call costs ----

// `n` calls without an end in between, then the end: both per call.
static void say_calls(const char *name, void (*call)(int i), int n)
{
  char text[64];
  call(0);
  sync_stream(0);
  const double start = seconds_now();
  for (int i = 0; i < n; i++) {
    call(i);
  }
  const double queued = us_since(start) / n;
  sync_stream(0);
  snprintf(text, sizeof text, "%s_call", name);
  say(text, queued, "us");
  snprintf(text, sizeof text, "%s_done", name);
  say(text, us_since(start) / n, "us");
}

static void call_launch(int i)
{
  (void)i;
  launch_nothing(streams[0]);
}

static void call_wait(int i)
{
  (void)i;
  wait_word(streams[0], 0, 0);
}

static void call_write(int i)
{
  write_word(streams[0], 1, (uint32_t)i);
}

static void call_batch(int i)
{
  CUstreamBatchMemOpParams ops[8] = {0};
  (void)i;
  for (size_t k = 0; k < TT_COUNT(ops); k++) {
    ops[k].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[k].waitValue.address = gpu_at(&words[k]);
    ops[k].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  }
  DO(cu->StreamBatchMemOp(streams[0], TT_COUNT(ops), ops, 0));
}

// A step of a schedule: a wait, resolve, combine, post.
static void call_step(int i)
{
  call_wait(i);
  for (int k = 0; k < 3; k++) {
    launch_nothing(streams[0]);
  }
}

static CUevent event;

static void call_event(int i)
{
  (void)i;
  DO(cu->EventRecord(event, streams[0]));
}

static void call_query(int i)
{
  (void)i;
  (void)cu->StreamQuery(streams[0]);
}

static CUdeviceptr memory;

static void call_pointer(int i)
{
  unsigned long long id = 0;
  (void)i;
  DO(cu->PointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
}

static void test_calls(void **state)
{
  (void)state;
  zero_words();
  memory = gpu_memory(MIB);
  DO(cu->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  say_calls("launch", call_launch, times(2000));
  say_calls("wait", call_wait, times(2000));
  say_calls("write", call_write, times(2000));
  say_calls("batch_of_8_waits", call_batch, times(1000));
  say_calls("step", call_step, times(500));
  say_calls("event_record", call_event, times(2000));
  say_calls("stream_query", call_query, times(2000));
  say_calls("pointer_attribute", call_pointer, times(2000));
  DO(cu->EventDestroy(event));
  DO(cu->MemFree(memory));
}

static void test_graph(void **state)
{
  (void)state;
  CUgraph graph;
  CUgraphExec exec;
  const int n = times(500);
  zero_words();
  DO(cu->StreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  call_step(0);
  DO(cu->StreamEndCapture(streams[0], &graph));
  DO(cu->GraphInstantiateWithFlags(&exec, graph, 0));
  DO(cu->GraphLaunch(exec, streams[0]));
  sync_stream(0);
  const double start = seconds_now();
  for (int i = 0; i < n; i++) {
    DO(cu->GraphLaunch(exec, streams[0]));
  }
  say("graph_of_a_step_call", us_since(start) / n, "us");
  sync_stream(0);
  say("graph_of_a_step_done", us_since(start) / n, "us");
  DO(cu->GraphExecDestroy(exec));
  DO(cu->GraphDestroy(graph));
}

// ---- How long a word takes ----

static void await_word(int word, uint32_t value)
{
  while ((int32_t)(atomic_load(&words[word]) - value) < 0) {
    sched_yield();
  }
}

// The host writes a word that a stream waits for; the stream answers. Not more at once than a queue has room for.
static void test_host_and_stream(void **state)
{
  (void)state;
  const int n = times(100);
  zero_words();
  for (int i = 1; i <= n; i++) {
    wait_word(streams[0], 0, (uint32_t)i);
    write_word(streams[0], 16, (uint32_t)i);
  }
  const double start = seconds_now();
  for (int i = 1; i <= n; i++) {
    atomic_store(&words[0], (uint32_t)i);
    await_word(16, (uint32_t)i);
  }
  say("host_to_stream_and_back", us_since(start) / n, "us");
  sync_stream(0);
}

// Two streams, in turn. By words that streams write, or that kernels post.
static void test_streams(void **state)
{
  (void)state;
  const int n = times(100);
  zero_words();
  wait_word(streams[0], 0, 1);
  for (int i = 1; i <= n; i++) {
    write_word(streams[0], 16, (uint32_t)i);
    wait_word(streams[1], 16, (uint32_t)i);
    write_word(streams[1], 32, (uint32_t)i);
    wait_word(streams[0], 32, (uint32_t)i);
  }
  const double start = seconds_now();
  atomic_store(&words[0], 1);
  sync_stream(0);
  sync_stream(1);
  say("stream_to_stream_hop", us_since(start) / (2 * n), "us");
}

// ---- What is made and dropped ----

static void test_host_memory(void **state)
{
  static const size_t sizes[] = {4096, MIB, 64 * MIB};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(sizes); i++) {
    char name[64];
    void *at = mmap(NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    memset(at, 1, sizes[i]);
    double start = seconds_now();
    DO(cu->MemHostRegister(at, sizes[i], CU_MEMHOSTREGISTER_PORTABLE));
    snprintf(name, sizeof name, "pin_%zu_KiB", sizes[i] / 1024);
    say(name, us_since(start), "us");
    start = seconds_now();
    DO(cu->MemHostUnregister(at));
    snprintf(name, sizeof name, "unpin_%zu_KiB", sizes[i] / 1024);
    say(name, us_since(start), "us");
    munmap(at, sizes[i]);
  }
}

static void test_modules(void **state)
{
  (void)state;
  double all = 0, most = 0;
  for (int i = 0; tt_ptx_name(i) != NULL; i++) {
    CUmodule module;
    const double start = seconds_now();
    DO(cu->ModuleLoadDataEx(&module, tt_ptx_find(tt_ptx_name(i)), 0, NULL, NULL));
    const double ms = us_since(start) / 1000;
    all += ms;
    most = TT_MAX(most, ms);
    DO(cu->ModuleUnload(module));
  }
  say("modules_all", all, "ms");
  say("modules_slowest", most, "ms");
}

static void test_objects(void **state)
{
  (void)state;
  CUstream s;
  CUdeviceptr at;
  double start = seconds_now();
  DO(cu->StreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
  say("stream_create", us_since(start), "us");
  start = seconds_now();
  DO(cu->StreamDestroy(s));
  say("stream_destroy", us_since(start), "us");
  start = seconds_now();
  DO(cu->MemAlloc(&at, 256 * MIB));
  say("alloc_256_MiB", us_since(start), "us");
  start = seconds_now();
  DO(cu->MemFree(at));
  say("free_256_MiB", us_since(start), "us");
}

// ---- Calls while a stream waits. A thread lets it go after a while: did the call come back before? ----

static void *release_later(void *arg)
{
  sleep_ms(PATIENCE_MS);
  atomic_store(&words[0], 1);
  return arg;
}

static CUcontext the_context;

static void say_waits(const char *name, void (*call)(void))
{
  pthread_t thread;
  char text[64];
  zero_words();
  wait_word(streams[0], 0, 1);
  assert_int_equal(pthread_create(&thread, NULL, release_later, NULL), 0);
  call();
  const bool waited = atomic_load(&words[0]) != 0;
  pthread_join(thread, NULL);
  sync_stream(0);
  snprintf(text, sizeof text, "%s_waits_for_a_waiting_stream", name);
  say(text, waited, "yes=1");
}

static CUdeviceptr some_memory;
static CUstream some_stream;
static CUmodule some_module;
static char *some_pages;

static void alloc_some(void)
{
  DO(cu->MemAlloc(&some_memory, 8 * MIB));
}

static void free_some(void)
{
  DO(cu->MemFree(some_memory));
}

static void create_stream(void)
{
  some_stream = gpu_stream();
}

static void destroy_stream(void)
{
  DO(cu->StreamDestroy(some_stream));
}

static void load_module(void)
{
  DO(cu->ModuleLoadDataEx(&some_module, tt_ptx_find("bits"), 0, NULL, NULL));
}

static void unload_module(void)
{
  DO(cu->ModuleUnload(some_module));
}

static void pin_pages(void)
{
  DO(cu->MemHostRegister(some_pages, MIB, CU_MEMHOSTREGISTER_PORTABLE));
}

static void unpin_pages(void)
{
  DO(cu->MemHostUnregister(some_pages));
}

static void copy_to_host(void)
{
  uint32_t word;
  DO(cu->MemcpyDtoH(&word, some_memory, 4));
}

static void launch_elsewhere(void)
{
  launch_nothing(streams[1]);
  sync_stream(1);
}

static void test_waits(void **state)
{
  (void)state;
  some_pages = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(some_pages != MAP_FAILED);
  say_waits("launch_on_another_stream", launch_elsewhere);
  say_waits("alloc", alloc_some);
  say_waits("copy_to_host", copy_to_host);
  say_waits("free", free_some);
  say_waits("stream_create", create_stream);
  say_waits("stream_destroy", destroy_stream);
  say_waits("module_load", load_module);
  say_waits("module_unload", unload_module);
  say_waits("pin", pin_pages);
  say_waits("unpin", unpin_pages);
  munmap(some_pages, MIB);
}

// ---- Queues ----

// How many streams may wait until another one's write stands behind them; a stream for each, up to MOST.
static void test_queues(void **state)
{
  enum { MOST_STREAMS = 64 };
  (void)state;
  CUstream held[MOST_STREAMS];
  int n = 0;
  bool free = true;
  const int most = real_driver() ? MOST_STREAMS : 6;
  zero_words();
  for (; n < most && free; n++) {
    held[n] = gpu_stream();
    write_word(held[n], 32 + n, 1);
    for (double end = seconds_now() + 0.05; atomic_load(&words[32 + n]) == 0 && seconds_now() < end;) {
      sched_yield();
    }
    free = atomic_load(&words[32 + n]) != 0;
    wait_word(held[n], 0, 1);
  }
  say("streams_until_one_is_held_up", free ? n + 1 : n, "streams");
  atomic_store(&words[0], 1);
  for (int i = 0; i < n; i++) {
    DO(cu->StreamSynchronize(held[i]));
    DO(cu->StreamDestroy(held[i]));
  }
}

static _Atomic int launched;
static _Atomic bool full, other_done;

// Sees that launches have stopped; tries one of its own on another stream; lets them go on.
static void *watch_launches(void *arg)
{
  int seen = -1;
  while (seen != atomic_load(&launched)) {
    seen = atomic_load(&launched);
    sleep_ms(PATIENCE_MS);
  }
  atomic_store(&full, true);
  sleep_ms(PATIENCE_MS);
  say("another_thread_launches_meanwhile", atomic_load(&other_done), "yes=1");
  atomic_store(&words[0], 1);
  return arg;
}

static void *launch_other(void *arg)
{
  while (!atomic_load(&full)) {
    sleep_ms(1);
  }
  DO(cu->CtxSetCurrent(the_context));
  launch_nothing(streams[1]);
  atomic_store(&other_done, true);
  return arg;
}

// How many launches stand behind a wait until a launch waits.
static void test_room(void **state)
{
  (void)state;
  pthread_t watcher, other;
  const int most = real_driver() ? 50000 : 20;
  int n = 0;
  zero_words();
  wait_word(streams[0], 0, 1);
  DO(cu->CtxGetCurrent(&the_context));
  assert_int_equal(pthread_create(&watcher, NULL, watch_launches, NULL), 0);
  assert_int_equal(pthread_create(&other, NULL, launch_other, NULL), 0);
  for (; n < most && !atomic_load(&full); n++) {
    launch_nothing(streams[0]);
    atomic_store(&launched, n + 1);
  }
  pthread_join(other, NULL);
  pthread_join(watcher, NULL);
  sync_stream(0);
  sync_stream(1);
  say("launches_until_one_waits", n, n == most ? "or_more" : "launches");
}

// ---- Bandwidth ----

static double copy_rate(CUdeviceptr to, CUdeviceptr from, size_t bytes, int n)
{
  DO(cu->MemcpyAsync(to, from, bytes, streams[0]));
  sync_stream(0);
  const double start = seconds_now();
  for (int i = 0; i < n; i++) {
    DO(cu->MemcpyAsync(to, from, bytes, streams[0]));
  }
  sync_stream(0);
  return (double)bytes * n / us_since(start) / 1000;
}

// A kernel of the library's over device memory, as many CTAs as it has in a step: bytes read and written.
static double kernel_rate(const tt_kernel *k, tt_cuda_operand *operands, size_t bytes, int n)
{
  int sms = 1;
  DO(cu->DeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  tt_cuda_step args = nothing();
  args.operands = gpu_at(operands);
  args.combine = k->args;
  const unsigned ctas = (unsigned)sms * 4;
  gpu_launch(gpu_kernel(k->module, k->name), ctas, &args, streams[0]);
  sync_stream(0);
  const double start = seconds_now();
  for (int i = 0; i < n; i++) {
    gpu_launch(gpu_kernel(k->module, k->name), ctas, &args, streams[0]);
  }
  sync_stream(0);
  return (double)bytes * (k->args.nsrc + k->args.ndst) * n / us_since(start) / 1000;
}

static void say_sum(ncclDataType_t type, const char *name, tt_cuda_operand *operands, size_t bytes, int n)
{
  tt_redop op;
  tt_kernel k;
  char text[64];
  tt_redop_builtin(&op, type, ncclSum, 2);
  tt_kernel_choose(&(tt_kernel_use){.op = &op, .nsrc = 2, .ndst = 1, .count = bytes / (size_t)tt_type_size((int)type)},
                   &k);
  snprintf(text, sizeof text, "kernel_sum_of_two_%s", name);
  say(text, kernel_rate(&k, operands, bytes, n), "GB/s");
}

static void test_bandwidth(void **state)
{
  (void)state;
  const size_t bytes = real_driver() ? 512 * (size_t)MIB : 64 * 1024;
  const int n = times(20);
  tt_cuda_operand *operands = gpu_pinned(3 * sizeof *operands);
  CUdeviceptr at[3];
  void *host = gpu_pinned(bytes);
  zero_words();
  for (int i = 0; i < 3; i++) {
    at[i] = gpu_memory(bytes);
    DO(cu->MemsetD8Async(at[i], 0, bytes, streams[0]));
    operands[i].at = at[i];
  }
  say("copy_on_the_device", 2 * copy_rate(at[1], at[0], bytes, n), "GB/s");
  say("copy_to_pinned_memory", copy_rate(gpu_at(host), at[0], bytes, n), "GB/s");
  say("copy_from_pinned_memory", copy_rate(at[0], gpu_at(host), bytes, n), "GB/s");
  tt_redop op;
  tt_kernel k;
  tt_redop_builtin(&op, ncclFloat32, ncclSum, 1);
  tt_kernel_choose(&(tt_kernel_use){.op = &op, .nsrc = 1, .ndst = 1, .count = bytes / 4}, &k);
  say("kernel_copy", kernel_rate(&k, operands, bytes, n), "GB/s");
  say_sum(ncclFloat32, "Float32", operands, bytes, n);
  say_sum(ncclBfloat16, "Bfloat16", operands, bytes, n);
  say_sum(ncclFloat8e4m3, "Float8e4m3", operands, bytes, n);
  for (int i = 0; i < 3; i++) {
    DO(cu->MemFree(at[i]));
  }
  DO(cu->MemFreeHost(host));
  DO(cu->MemFreeHost(operands));
}

// ---- Between processes ----

typedef struct shared_words {
  _Atomic uint32_t word[64];
  CUipcMemHandle handle;
} shared_words;

static shared_words *shared;

// Two processes' streams, in turn: what a change of processes costs.
static void hop_body(int rank, void *arg)
{
  (void)arg;
  const int n = times(100);
  gpu_open();
  streams[0] = gpu_stream();
  DO(cu->MemHostRegister(shared, 4096, CU_MEMHOSTREGISTER_PORTABLE));
  meet(2);
  const double start = seconds_now();
  for (int i = 1; i <= n; i++) {
    const CUdeviceptr own = gpu_at(&shared->word[16 * rank]), other = gpu_at(&shared->word[16 * (1 - rank)]);
    if (rank == 0) {
      DO(cu->StreamWriteValue32(streams[0], own, (uint32_t)i, 0));
    }
    DO(cu->StreamWaitValue32(streams[0], other, (uint32_t)i, CU_STREAM_WAIT_VALUE_GEQ));
    if (rank == 1) {
      DO(cu->StreamWriteValue32(streams[0], own, (uint32_t)i, 0));
    }
  }
  sync_stream(0);
  if (rank == 0) {
    say("process_to_process_hop", us_since(start) / (2 * n), "us");
    fflush(stdout);
  }
  meet(2);
}

static CUdeviceptr opened;

static void open_handle(void)
{
  DO(cu->IpcOpenMemHandle(&opened, shared->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static void close_handle(void)
{
  DO(cu->IpcCloseMemHandle(opened));
}

static void ipc_body(int rank, void *arg)
{
  (void)arg;
  open_probe(NULL);
  if (rank == 0) {
    const CUdeviceptr at = gpu_memory(64 * MIB);
    const double start = seconds_now();
    DO(cu->IpcGetMemHandle(&shared->handle, at));
    say("ipc_get_handle", us_since(start), "us");
  }
  meet(2);
  if (rank == 1) {
    double start = seconds_now();
    open_handle();
    say("ipc_open_handle", us_since(start), "us");
    start = seconds_now();
    close_handle();
    say("ipc_close_handle", us_since(start), "us");
    say_waits("ipc_open_handle", open_handle);
    say_waits("ipc_close_handle", close_handle);
  }
  fflush(stdout);
  meet(2);
}

static void test_processes(void **state)
{
  (void)state;
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  PROCESSES(2, 60, hop_body, NULL);
  PROCESSES(2, 60, ipc_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest alone[] = {cmocka_unit_test(test_processes)}; // its parent has not opened the driver
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_calls),   cmocka_unit_test(test_graph),       cmocka_unit_test(test_host_and_stream),
      cmocka_unit_test(test_streams), cmocka_unit_test(test_host_memory), cmocka_unit_test(test_modules),
      cmocka_unit_test(test_objects), cmocka_unit_test(test_waits),       cmocka_unit_test(test_queues),
      cmocka_unit_test(test_room),    cmocka_unit_test(test_bandwidth),
  };
  use_driver();
  set_modes("queues=32", "probe-test");
  setenv("RANKS_OUTPUT", "1", 1); // the lines of processes are wanted
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  const int failed = cmocka_run_group_tests(alone, NULL, NULL);
  return cmocka_run_group_tests(tests, open_probe, NULL) + failed;
}
