// fail_test.c: the k-th call fails, for every k of a program that checks and cleans up.
#include "rig.h"

enum { STEPS = 9 };

// A program that stops at the first error and gives back what it has. False: something failed.
static bool careful(CUresult *first)
{
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUmodule module = NULL;
  CUfunction put;
  CUdeviceptr ptr = 0;
  uint32_t out = 0;
  CUresult e = cu.DevicePrimaryCtxRetain(&context, 0);
  e = e == CUDA_SUCCESS ? cu.CtxSetCurrent(context) : e;
  e = e == CUDA_SUCCESS ? cu.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) : e;
  e = e == CUDA_SUCCESS ? cu.ModuleLoadDataEx(&module, rig_ptx, 0, NULL, NULL) : e;
  e = e == CUDA_SUCCESS ? cu.ModuleGetFunction(&put, module, "put") : e;
  e = e == CUDA_SUCCESS ? cu.MemAlloc(&ptr, 4) : e;
  e = e == CUDA_SUCCESS ? rig_launch(put, 1, 1, ptr, 7, stream) : e;
  e = e == CUDA_SUCCESS ? cu.MemcpyDtoHAsync(&out, ptr, 4, stream) : e;
  e = e == CUDA_SUCCESS ? cu.StreamSynchronize(stream) : e;
  CHECK(e != CUDA_SUCCESS || out == 7);
  *first = e;
  if (ptr != 0) {
    OK(cu.MemFree(ptr));
  }
  if (module != NULL) {
    OK(cu.ModuleUnload(module));
  }
  if (stream != NULL) {
    OK(cu.StreamDestroy(stream));
  }
  if (context != NULL) {
    OK(cu.DevicePrimaryCtxRelease(0));
  }
  return e == CUDA_SUCCESS;
}

static void fails_once(void)
{
  CUresult error;
  CHECK(!careful(&error));
  CHECK(error == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(careful(&error)); // one call fails, once
}

static void fails_so(void)
{
  CUresult error;
  CHECK(!careful(&error));
  CHECK(error == CUDA_ERROR_LAUNCH_FAILED);
}

static void test_each(void **state)
{
  (void)state;
  char modes[32], text[64];
  for (int k = 2; k < 2 + STEPS; k++) { // the first is cuDeviceGetCount of tt_cuda_open
    snprintf(modes, sizeof modes, "fail=%d", k);
    snprintf(text, sizeof text, "call %d fails by order (CUDA_ERROR_OUT_OF_MEMORY)", k);
    rig_says(modes, 1, fails_once, text);
    snprintf(modes, sizeof modes, "fail=%d:719", k);
    rig_run(modes, 1, fails_so);
  }
}

static void all_well(void)
{
  CUresult error;
  CHECK(careful(&error));
}

// How many there are to try.
static void test_count(void **state)
{
  (void)state;
  rig_says("count", 1, all_well, ": 14 calls\n");
  rig_says("count,fail=15", 1, all_well, ": 14 calls\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each),
      cmocka_unit_test(test_count),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
