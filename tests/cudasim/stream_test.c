// stream_test.c: order of streams, default streams, events, host functions, kernels.
#include "rig.h"

static void order(void)
{
  uint32_t out = 0;
  rig_context(0);
  CUfunction add = rig_kernel("add");
  CUdeviceptr sum = rig_memory(4);
  CUstream a = rig_stream(), b = rig_stream();
  CUevent event;
  OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cu.EventQuery(event)); // never recorded
  OK(cu.MemsetD32Async(sum, 0, 1, a));
  for (int i = 0; i < 20; i++) {
    OK(rig_launch(add, 2, 64, sum, 1, a));
  }
  OK(cu.EventRecord(event, a));
  OK(cu.StreamWaitEvent(b, event, 0));
  OK(cu.MemcpyDtoHAsync(&out, sum, 4, b));
  CHECK(out == 20 * 128);
  OK(cu.EventSynchronize(event));
  OK(cu.EventQuery(event));
  OK(cu.StreamQuery(a));
  OK(cu.EventDestroy(event));
  OK(cu.StreamDestroy(a));
}

static void test_order(void **state)
{
  (void)state;
  static const char *const modes[] = {"",
                                      "queues=1",
                                      "order=random,seed=5",
                                      "order=random,stores,stale,seed=6",
                                      "launches=2",
                                      "launches=2:all",
                                      "blocking",
                                      "step=7",
                                      "slices=1"};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    rig_quiet(modes[i], 1, order);
  }
}

// An event is recorded again, in a stream that comes to it first. Who waits for the first record waits for that.
static void records(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(1);
  CUstream a = rig_stream(), b = rig_stream(), c = rig_stream();
  CUevent event;
  OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cu.StreamWaitValue32(a, at(word), 1, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cu.EventRecord(event, a));
  OK(cu.StreamWaitEvent(c, event, 0));
  for (int i = 0; i < 100; i++) {
    OK(cu.EventRecord(event, b));
  }
  OK(cu.StreamSynchronize(b));
  OK(cu.EventQuery(event));
  rig_sleep_ms(5);
  GIVES(CUDA_ERROR_NOT_READY, cu.StreamQuery(c));
  atomic_store(word, 1);
  OK(cu.StreamSynchronize(c));
  OK(cu.StreamSynchronize(a));
  OK(cu.EventRecord(event, a));
  OK(cu.EventSynchronize(event));
}

static void test_records(void **state)
{
  (void)state;
  rig_quiet("queues=8", 1, records);
}

static void ready(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(2);
  CUstream stream = rig_stream();
  CUevent first, second;
  float ms = -1;
  OK(cu.EventCreate(&first, 0));
  OK(cu.EventCreate(&second, 0));
  OK(cu.EventRecord(first, stream));
  OK(cu.EventSynchronize(first));
  OK(cu.StreamWaitValue32(stream, at(word), 1, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cu.EventRecord(second, stream));
  OK(cu.EventRecord(first, stream)); // again: not done
  GIVES(CUDA_ERROR_NOT_READY, cu.EventQuery(second));
  GIVES(CUDA_ERROR_NOT_READY, cu.EventQuery(first));
  GIVES(CUDA_ERROR_NOT_READY, cu.StreamQuery(stream));
  atomic_store(word, 1);
  OK(cu.EventSynchronize(second));
  OK(cu.StreamSynchronize(stream));
  OK(cu.EventQuery(first));
  OK(cu.EventElapsedTime(&ms, second, first));
  CHECK(ms >= 0 && ms < 10000);
}

static void test_ready(void **state)
{
  (void)state;
  rig_quiet("", 1, ready);
}

// A wait is for the record that was the last when it was handed over, not for later ones.
static void later_records(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(1);
  CUstream a = rig_stream(), b = rig_stream();
  CUevent event;
  OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cu.EventRecord(event, a));
  OK(cu.StreamWaitEvent(b, event, 0));
  OK(cu.StreamWaitValue32(a, at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cu.EventRecord(event, a));
  OK(cu.StreamSynchronize(b));
  GIVES(CUDA_ERROR_NOT_READY, cu.EventQuery(event));
  atomic_store(word, 1);
  OK(cu.EventSynchronize(event));
}

static void test_later_records(void **state)
{
  (void)state;
  rig_quiet("", 1, later_records);
}

static void legacy(void)
{
  CUstream blocking, other = rig_context(0) != NULL ? rig_stream() : NULL;
  _Atomic uint32_t *word = rig_words(3);
  OK(cu.StreamCreateWithPriority(&blocking, CU_STREAM_DEFAULT, 0));
  OK(cu.StreamWaitValue32(blocking, at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cu.StreamWriteValue32(NULL, at(word + 1), 1, 0));                 // waits for it
  OK(cu.StreamWriteValue32(CU_STREAM_PER_THREAD, at(word + 2), 1, 0)); // and this one for that
  OK(cu.StreamSynchronize(other));                                     // which the other has nothing to do with
  rig_sleep_ms(20);
  GIVES(CUDA_ERROR_NOT_READY, cu.StreamQuery(CU_STREAM_LEGACY));
  GIVES(CUDA_ERROR_NOT_READY, cu.StreamQuery(CU_STREAM_PER_THREAD));
  CHECK(atomic_load(word + 1) == 0 && atomic_load(word + 2) == 0);
  atomic_store(word, 1);
  OK(cu.StreamSynchronize(CU_STREAM_PER_THREAD));
  CHECK(atomic_load(word + 1) == 1 && atomic_load(word + 2) == 1);
}

static void test_legacy(void **state)
{
  (void)state;
  rig_quiet("", 1, legacy);
  rig_quiet("order=random", 1, legacy);
}

static void *own_stream(void *arg)
{
  unsigned long long *id = arg;
  rig_context(0);
  OK(cu.StreamGetId(CU_STREAM_PER_THREAD, id));
  return NULL;
}

static void per_thread(void)
{
  unsigned long long ids[3];
  unsigned flags;
  pthread_t thread;
  CUcontext context = rig_context(0), got;
  own_stream(&ids[0]);
  own_stream(&ids[1]);
  CHECK(pthread_create(&thread, NULL, own_stream, &ids[2]) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(ids[0] == ids[1] && ids[0] != ids[2]);
  OK(cu.StreamGetCtx(CU_STREAM_PER_THREAD, &got));
  CHECK(got == context);
  OK(cu.StreamGetFlags(rig_stream(), &flags));
  CHECK(flags == CU_STREAM_NON_BLOCKING);
}

static void test_per_thread(void **state)
{
  (void)state;
  rig_quiet("", 1, per_thread);
}

static _Atomic int called;

static void count_call(void *data)
{
  CUdeviceptr ptr;
  CHECK(atomic_load((_Atomic uint32_t *)data) == 1); // what was before it in the stream is done
  atomic_fetch_add(&called, 1);
  GIVES(CUDA_ERROR_NOT_PERMITTED, cu.MemAlloc(&ptr, 4));
}

static void host_functions(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(2);
  CUstream stream = rig_stream();
  OK(cu.StreamWriteValue32(stream, at(word), 1, 0));
  OK(cu.LaunchHostFunc(stream, count_call, (void *)word));
  OK(cu.StreamWriteValue32(stream, at(word + 1), 1, 0));
  OK(cu.StreamSynchronize(stream));
  CHECK(atomic_load(&called) == 1 && atomic_load(word + 1) == 1);
}

static void test_host_functions(void **state)
{
  (void)state;
  rig_says("", 1, host_functions, "called inside a host function");
}

static void kernels(void)
{
  enum { N = 5 * 96 };
  uint32_t out[N], value = 0;
  int threads = 0;
  size_t bytes = 0;
  CUdeviceptr global;
  rig_context(0);
  CUmodule module = rig_module();
  CUfunction fill, count, again;
  CUdeviceptr all = rig_memory(sizeof out);
  OK(cu.ModuleGetFunction(&fill, module, "fill"));
  OK(cu.ModuleGetFunction(&count, module, "count"));
  OK(cu.ModuleGetFunction(&again, module, "fill"));
  CHECK(again == fill);
  OK(cu.FuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill));
  CHECK(threads == 1024);
  OK(cu.FuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  OK(rig_launch(fill, 5, 96, all, 9, NULL));
  OK(cu.MemcpyDtoH(out, all, sizeof out));
  for (int i = 0; i < N; i++) {
    CHECK(out[i] == 9);
  }
  OK(cu.ModuleGetGlobal(&global, &bytes, module, "counter"));
  CHECK(bytes == 4);
  OK(rig_launch(count, 1, 1, all, 3, NULL));
  OK(rig_launch(count, 1, 1, all, 4, NULL));
  OK(cu.MemcpyDtoH(&value, global, 4));
  CHECK(value == 7);
  OK(cu.ModuleUnload(module));
}

static void test_kernels(void **state)
{
  (void)state;
  rig_quiet("", 1, kernels);
  rig_quiet("order=random,stores,stale,seed=9", 1, kernels);
}

static void bad_modules(void)
{
  char log[256] = "";
  CUmodule module = NULL;
  CUfunction function;
  CUdeviceptr global;
  size_t bytes;
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)(uintptr_t)sizeof log};
  rig_context(0);
  GIVES(CUDA_ERROR_INVALID_IMAGE, cu.ModuleLoadDataEx(&module, "ELF", 0, NULL, NULL));
  GIVES(CUDA_ERROR_INVALID_PTX,
        cu.ModuleLoadDataEx(&module, ".version 6.3\n.target sm_70\n.nonsense\n", 2, options, values));
  CHECK(strstr(log, "3") != NULL); // the line
  module = rig_module();
  GIVES(CUDA_ERROR_NOT_FOUND, cu.ModuleGetFunction(&function, module, "none"));
  GIVES(CUDA_ERROR_NOT_FOUND, cu.ModuleGetGlobal(&global, &bytes, module, "none"));
}

static void test_bad_modules(void **state)
{
  (void)state;
  rig_says("", 1, bad_modules, "the module has no kernel none");
}

// Many threads with streams of their own, and one that all share.
enum { THREADS = 4, ROUNDS = 50 };
static CUdeviceptr all_sums;
static CUstream shared_stream;
static CUfunction shared_add;

static void *use_streams(void *arg)
{
  int number = (int)(intptr_t)arg;
  uint32_t out;
  rig_context(0);
  CUstream own = rig_stream();
  CUdeviceptr sum = all_sums + 4 * (CUdeviceptr)number;
  for (int i = 0; i < ROUNDS; i++) {
    OK(rig_launch(shared_add, 1, 32, sum, 1, own));
    OK(rig_launch(shared_add, 1, 1, all_sums, 1, shared_stream));
  }
  OK(cu.StreamSynchronize(own));
  OK(cu.MemcpyDtoHAsync(&out, sum, 4, own));
  CHECK(out == 32 * ROUNDS);
  OK(cu.StreamDestroy(own));
  return NULL;
}

static void threads(void)
{
  pthread_t thread[THREADS];
  uint32_t out;
  rig_context(0);
  shared_add = rig_kernel("add");
  shared_stream = rig_stream();
  all_sums = rig_memory(4 * (THREADS + 1));
  OK(cu.MemsetD32(all_sums, 0, THREADS + 1));
  OK(cu.CtxSynchronize());
  for (intptr_t i = 0; i < THREADS; i++) {
    CHECK(pthread_create(&thread[i], NULL, use_streams, (void *)(i + 1)) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    CHECK(pthread_join(thread[i], NULL) == 0);
  }
  OK(cu.StreamSynchronize(shared_stream));
  OK(cu.MemcpyDtoH(&out, all_sums, 4));
  CHECK(out == THREADS * ROUNDS);
}

static void test_threads(void **state)
{
  (void)state;
  rig_quiet("", 1, threads);
  rig_quiet("order=random,queues=2,launches=3", 1, threads);
  rig_quiet("launches=1:all,stores,stale,slices=1", 1, threads);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order),          cmocka_unit_test(test_records), cmocka_unit_test(test_ready),
      cmocka_unit_test(test_later_records),  cmocka_unit_test(test_legacy),  cmocka_unit_test(test_per_thread),
      cmocka_unit_test(test_host_functions), cmocka_unit_test(test_kernels), cmocka_unit_test(test_bad_modules),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
