// driver_test.c: which libraries are taken for a CUDA driver, and the texts about those that are not.
#include "device/cuda/driver.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

// A library of the build directory.
static const char *built(const char *name)
{
  static char path[512];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/%s", build != NULL ? build : "build", name);
  return path;
}

static tt_cuda_state try_driver(const char *name, char *why)
{
  tt_cuda cuda = {0};
  tt_cuda_state state = tt_cuda_open(name, &cuda, why);
  if (state == TT_CUDA_OPEN) {
    tt_cuda_close(&cuda);
  }
  return state;
}

static void test_absent(void **state)
{
  (void)state;
  char why[TT_LIBRARY_WHY];
  assert_int_equal(try_driver("libno-such-driver.so.1", why), TT_CUDA_ABSENT);
  assert_non_null(strstr(why, "no CUDA driver: the dynamic linker finds no libno-such-driver.so.1"));
}

static void test_stand_in(void **state)
{
  (void)state;
  char why[TT_LIBRARY_WHY];
  assert_int_equal(try_driver(built("lib/cuda/libcuda.so.1"), why), TT_CUDA_REFUSED);
  assert_non_null(strstr(why, "lib/cuda/libcuda.so.1 is this library's stand-in for host devices"));
}

static void test_another_library(void **state)
{
  (void)state;
  char why[TT_LIBRARY_WHY];
  assert_int_equal(try_driver("libc.so.6", why), TT_CUDA_REFUSED);
  assert_non_null(strstr(why, "not a CUDA driver"));
  assert_int_equal(try_driver(built("CMakeCache.txt"), why), TT_CUDA_REFUSED);
}

// The driver for tests has all functions, those that may be missing too.
static void test_simulated(void **state)
{
  (void)state;
  char why[TT_LIBRARY_WHY] = "x";
  tt_cuda cuda = {0};
  setenv("CUDASIM", "devices=2", 1);
  assert_int_equal(tt_cuda_open(built("lib/cudasim/libcuda.so.1"), &cuda, why), TT_CUDA_OPEN);
  assert_string_equal(why, "");
  assert_true(cuda.version >= TT_CUDA_LEAST);
#define CU(name, version, need, parameters) assert_non_null(cuda.name);
#include "device/cuda/driver.def"
#undef CU
  assert_string_equal(tt_cuda_text(&cuda, CUDA_ERROR_NO_DEVICE), "CUDA_ERROR_NO_DEVICE: no device");
  tt_cuda_close(&cuda);
  assert_null(cuda.Init);
}

static ncclResult_t allocate_nothing(const tt_cuda *cuda)
{
  CUdeviceptr ptr;
  TT_CUDA(cuda, cuda->MemAlloc(&ptr, 64), "cannot allocate %d bytes", 64);
  return ncclSuccess;
}

// The process's driver: of the name that the parameter has. A call that fails says what, and the driver's text.
static void test_process(void **state)
{
  (void)state;
  const char *why = NULL;
  setenv("TUTTI_CUDA_DRIVER", built("lib/cudasim/libcuda.so.1"), 1);
  const tt_cuda *cuda = tt_cuda_get(&why);
  assert_non_null(cuda);
  assert_string_equal(why, "");
  assert_int_equal(tt_cuda_get_state(), TT_CUDA_OPEN);
  assert_ptr_equal(tt_cuda_get(NULL), cuda);
  assert_int_equal(allocate_nothing(cuda), ncclUnhandledCudaError);
  assert_non_null(strstr(tt_last_error(), "cannot allocate 64 bytes: CUDA_ERROR_INVALID_CONTEXT: invalid context"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_absent),    cmocka_unit_test(test_stand_in), cmocka_unit_test(test_another_library),
      cmocka_unit_test(test_simulated), cmocka_unit_test(test_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
