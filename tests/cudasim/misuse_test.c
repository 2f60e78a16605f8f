// misuse_test.c: wrong uses of the driver: its error, and a text that says what was wrong.
#include "rig.h"

static void ended_handles(void)
{
  CUdeviceptr ptr = (rig_context(0), rig_memory(4));
  CUevent event;
  CUmodule module = rig_module();
  CUfunction put;
  CUstream stream = rig_stream();
  OK(cu.ModuleGetFunction(&put, module, "put"));
  OK(cu.EventCreate(&event, 0));
  OK(cu.EventDestroy(event));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cu.EventRecord(event, stream));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cu.EventDestroy(event));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cu.EventRecord((CUevent)stream, stream));
  OK(cu.ModuleUnload(module));
  GIVES(CUDA_ERROR_INVALID_HANDLE, rig_launch(put, 1, 1, ptr, 1, stream));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cu.ModuleUnload(module));
  OK(cu.StreamDestroy(stream));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cu.StreamSynchronize(stream));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cu.StreamSynchronize((CUstream)&ptr));
}

static void test_ended_handles(void **state)
{
  (void)state;
  rig_says("", 1, ended_handles, "cuEventRecord: an event that has been destroyed or unloaded");
  assert_non_null(strstr(rig_err, "is not an event but a stream"));
  assert_non_null(strstr(rig_err, "cuLaunchKernel: a function that has been destroyed or unloaded"));
  assert_non_null(strstr(rig_err, "cuStreamSynchronize: a stream that has been destroyed or unloaded"));
  assert_non_null(strstr(rig_err, "is not a stream (CUDA_ERROR_INVALID_HANDLE)"));
}

static void foreign(void)
{
  CUevent event;
  CUcontext a = rig_context(0), b;
  CUdeviceptr ptr = rig_memory(4);
  CUfunction put = rig_kernel("put");
  CUstream here = rig_stream(), there;
  OK(cu.EventCreate(&event, 0));
  b = rig_context(1);
  there = rig_stream();
  GIVES(CUDA_ERROR_INVALID_HANDLE, rig_launch(put, 1, 1, ptr, 1, there)); // the function
  GIVES(CUDA_ERROR_INVALID_HANDLE, rig_launch(put, 1, 1, ptr, 1, here));  // the current context
  GIVES(CUDA_ERROR_INVALID_HANDLE, cu.EventRecord(event, there));
  GIVES(CUDA_ERROR_INVALID_CONTEXT, cu.StreamWriteValue32(here, ptr, 1, 0));
  OK(cu.StreamWaitEvent(there, event, 0)); // this is allowed, and so are questions
  OK(cu.StreamQuery(here));
  OK(cu.CtxSetCurrent(a));
  OK(rig_launch(put, 1, 1, ptr, 1, here));
  OK(cu.CtxSetCurrent(b));
  OK(cu.StreamSynchronize(here));
}

static void test_foreign(void **state)
{
  (void)state;
  rig_says("devices=2", 1, foreign, "function, stream and current context are of devices 0, 1 and 1");
  assert_non_null(strstr(rig_err, "the event is of device 0, the stream of device 1"));
  assert_non_null(strstr(rig_err, "the stream is of another context"));
}

static void sizes(void)
{
  CUdeviceptr ptr = (rig_context(0), rig_memory(4));
  CUfunction put = rig_kernel("put");
  void *params[] = {&ptr, &ptr};
  GIVES(CUDA_ERROR_INVALID_VALUE, rig_launch(put, 0, 1, ptr, 1, NULL));
  GIVES(CUDA_ERROR_INVALID_VALUE, rig_launch(put, 1, 1025, ptr, 1, NULL));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.LaunchKernel(put, 1, 1, 1, 1, 1, 1, 48 << 11, NULL, params, NULL));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.LaunchKernel(put, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.FuncSetAttribute(put, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
  OK(cu.CtxSynchronize());
}

static void test_sizes(void **state)
{
  (void)state;
  rig_says("", 1, sizes, "kernel put: grid 0 1 1, block 1 1 1");
  assert_non_null(strstr(rig_err, "kernel put has 2 parameters"));
}

// ---- What a kernel may not touch ----

// A store there by `fill` of so many CTAs of 32 threads.
static void store(CUdeviceptr ptr, unsigned ctas)
{
  OK(rig_launch(rig_kernel("fill"), ctas, 32, ptr, 1, NULL));
  GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu.CtxSynchronize());
  GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu.MemAlloc(&ptr, 4)); // the context is lost
  GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu.StreamQuery(NULL));
}

static void store_beyond(void)
{
  rig_context(0);
  store(rig_memory(4 * 64), 3);
}

static void store_null(void)
{
  rig_context(0);
  store(0, 1);
}

static void store_freed(void)
{
  rig_context(0);
  CUdeviceptr ptr = rig_memory(4 * 64);
  OK(cu.MemFree(ptr));
  store(ptr, 1);
}

static void store_pageable(void)
{
  static uint32_t here[32];
  rig_context(0);
  store((CUdeviceptr)(uintptr_t)here, 1);
}

static void store_unregistered(void)
{
  void *here = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  rig_context(0);
  OK(cu.MemHostRegister(here, 4096, 0));
  OK(cu.MemHostUnregister(here));
  store((CUdeviceptr)(uintptr_t)here, 1);
}

static void store_read_only(void)
{
  void *here = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  rig_context(0);
  OK(cu.MemHostRegister(here, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
  store((CUdeviceptr)(uintptr_t)here, 1);
}

static void store_misaligned(void)
{
  rig_context(0);
  OK(rig_launch(rig_kernel("put"), 1, 1, rig_memory(64) + 2, 1, NULL));
  CHECK(cu.CtxSynchronize() != CUDA_SUCCESS);
}

static void test_stores(void **state)
{
  (void)state;
  rig_says("", 1, store_beyond, "0 bytes behind the end of device memory of 256 bytes");
  assert_non_null(strstr(rig_err, "fill")); // the kernel's name
  rig_says("order=random,stores", 1, store_beyond, "bytes behind the end of device memory of 256 bytes");
  rig_says("", 1, store_null, "invalid write of 4 bytes at 0x0");
  rig_says("", 1, store_freed, "is in no memory of a device nor pinned host memory (freed?)");
  rig_says("", 1, store_pageable, "nor pinned host memory");
  rig_says("", 1, store_unregistered, "nor pinned host memory");
  rig_says("", 1, store_read_only, "may only be read");
  rig_says("", 1, store_misaligned, "put");
}

// A fault is of one device: another goes on.
static void other_device(void)
{
  CUcontext a = rig_context(0);
  CUdeviceptr ptr;
  OK(rig_launch(rig_kernel("put"), 1, 1, 0, 1, NULL));
  rig_context(1);
  ptr = rig_memory(4);
  OK(rig_launch(rig_kernel("put"), 1, 1, ptr, 1, NULL));
  OK(cu.CtxSynchronize());
  OK(cu.CtxSetCurrent(a));
  GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu.CtxSynchronize());
}

static void test_other_device(void **state)
{
  (void)state;
  rig_says("devices=2", 1, other_device, "device 0: ");
}

// Errors of the functions themselves have names and texts.
static void texts(void)
{
  const char *name, *text;
  OK(cu.GetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &name));
  OK(cu.GetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  CHECK(strcmp(name, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0 && strstr(text, "illegal memory access") != NULL);
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.GetErrorName((CUresult)998, &name));
  CHECK(strstr(tt_cuda_text(&cu, CUDA_ERROR_NOT_READY), "CUDA_ERROR_NOT_READY: ") != NULL);
  CHECK(strcmp(tt_cuda_text(&cu, (CUresult)998), "CUDA error 998") == 0);
}

static void test_texts(void **state)
{
  (void)state;
  rig_quiet("", 1, texts);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ended_handles), cmocka_unit_test(test_foreign),      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_stores),        cmocka_unit_test(test_other_device), cmocka_unit_test(test_texts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
