// cuda_gpu.h: one GPU and the kernels that ship, for tests and measurements that call the driver themselves, on the
// driver for tests or on a real one (cuda_modes.h).
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "cuda_modes.h"
#include "device/cuda/gpu.h"
#include "device/cuda/kernels/choose.h"
#include "device/cuda/kernels/modules.h"

#define GPU __attribute__((unused)) static

GPU const tt_cuda *cu;

GPU void gpu_ok(CUresult error, const char *call)
{
  if (error != CUDA_SUCCESS) {
    fail_msg("%s: %s", call, tt_cuda_text(cu, error));
  }
}
#define DO(call) gpu_ok(call, #call)

// Opens the driver, and makes the context of device 0 current.
GPU void gpu_open(void)
{
  CUcontext context;
  const char *why = "";
  cu = tt_cuda_get(&why);
  if (cu == NULL) {
    fail_msg("no driver: %s", why);
  }
  assert_int_equal(tt_gpu_context(0, &context), ncclSuccess);
  DO(cu->CtxSetCurrent(context));
}

GPU CUdeviceptr gpu_at(const volatile void *p)
{
  return (CUdeviceptr)(uintptr_t)p;
}

GPU CUdeviceptr gpu_memory(size_t bytes)
{
  CUdeviceptr at;
  DO(cu->MemAlloc(&at, bytes));
  return at;
}

// Pinned memory of the host, zeroed.
GPU void *gpu_pinned(size_t bytes)
{
  void *memory;
  DO(cu->MemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE));
  memset(memory, 0, bytes);
  return memory;
}

GPU CUstream gpu_stream(void)
{
  CUstream stream;
  DO(cu->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  return stream;
}

// A kernel of a module that this program contains; the module is loaded at first use, and stays.
GPU CUfunction gpu_kernel(const char *module, const char *name)
{
  static struct {
    const char *name;
    CUmodule module;
  } modules[32];
  CUfunction function;
  size_t i = 0;
  while (modules[i].name != NULL && strcmp(modules[i].name, module) != 0) {
    i++;
  }
  assert_true(i < TT_COUNT(modules) - 1);
  if (modules[i].name == NULL) {
    assert_non_null(tt_ptx_find(module));
    DO(cu->ModuleLoadDataEx(&modules[i].module, tt_ptx_find(module), 0, NULL, NULL));
    modules[i].name = module;
  }
  DO(cu->ModuleGetFunction(&function, modules[i].module, name));
  return function;
}

// Queues a launch. The arguments are copied by the call.
GPU void gpu_launch(CUfunction function, unsigned ctas, const void *args, CUstream stream)
{
  void *params[] = {(void *)(uintptr_t)args};
  DO(cu->LaunchKernel(function, ctas, 1, 1, TT_CUDA_THREADS, 1, 1, 0, stream, params, NULL));
}
