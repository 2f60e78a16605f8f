// native_rig.h: the words of gpu.h for any C compiler: a launch is a loop over threads (gpu_launch), for tests.
//
// Threads run one after the other, in order. So what the first thread of a CTA writes before the threads meet is seen
// by the others, but not the other way round: a kernel in which one thread gathers what others have written cannot run
// here.
#pragma once
#include "device/reduce_convert.h"

#define TT_KERNEL static void
#define TT_UNROLL

static struct {
  uint32_t thread, threads, cta, ctas;
  bool any; // of gpu_any: a thread of this CTA has said so
} gpu_native;

TT_INLINE uint32_t gpu_thread(void)
{
  return gpu_native.thread;
}

TT_INLINE uint32_t gpu_threads(void)
{
  return gpu_native.threads;
}

TT_INLINE uint32_t gpu_cta(void)
{
  return gpu_native.cta;
}

TT_INLINE uint32_t gpu_ctas(void)
{
  return gpu_native.ctas;
}

TT_INLINE bool gpu_any(bool mine)
{
  gpu_native.any |= mine;
  return gpu_native.any;
}

#define GPU_LOAD(NAME, T, STORED)                                \
  TT_INLINE T NAME(uint64_t at)                                  \
  {                                                              \
    STORED x;                                                    \
    __builtin_memcpy(&x, (const void *)(uintptr_t)at, sizeof x); \
    return x;                                                    \
  }
#define GPU_STORE(NAME, T, STORED)                         \
  TT_INLINE void NAME(uint64_t at, T value)                \
  {                                                        \
    STORED x = (STORED)value;                              \
    __builtin_memcpy((void *)(uintptr_t)at, &x, sizeof x); \
  }
GPU_LOAD(gpu_look, uint32_t, uint32_t)
GPU_LOAD(gpu_look8, uint64_t, uint64_t)
GPU_LOAD(gpu_load1, uint32_t, uint8_t)
GPU_LOAD(gpu_load2, uint32_t, uint16_t)
GPU_LOAD(gpu_load4, uint32_t, uint32_t)
GPU_LOAD(gpu_load8, uint64_t, uint64_t)
GPU_STORE(gpu_mark, uint32_t, uint32_t)
GPU_STORE(gpu_mark8, uint64_t, uint64_t)
GPU_STORE(gpu_release, uint32_t, uint32_t)
GPU_STORE(gpu_store1, uint32_t, uint8_t)
GPU_STORE(gpu_store2, uint32_t, uint16_t)
GPU_STORE(gpu_store4, uint32_t, uint32_t)
GPU_STORE(gpu_store8, uint64_t, uint64_t)

TT_INLINE uint32_t gpu_claim(uint64_t at)
{
  const uint32_t was = gpu_load4(at);
  gpu_store4(at, 1);
  return was;
}

TT_INLINE void gpu_fence(void) {}

// Each look finds another time.
TT_INLINE uint64_t gpu_time(void)
{
  static uint64_t ns;
  return ++ns;
}

TT_INLINE void gpu_load16(uint32_t w[4], uint64_t at)
{
  __builtin_memcpy(w, (const void *)(uintptr_t)at, 16);
}

TT_INLINE void gpu_store16(uint64_t at, const uint32_t w[4])
{
  __builtin_memcpy((void *)(uintptr_t)at, w, 16);
}

// Runs CALL, a kernel with its arguments, for each thread of CTAS times THREADS.
#define gpu_launch(CTAS, THREADS, CALL)                                                          \
  do {                                                                                           \
    gpu_native.ctas = (CTAS);                                                                    \
    gpu_native.threads = (THREADS);                                                              \
    for (gpu_native.cta = 0; gpu_native.cta < gpu_native.ctas; gpu_native.cta++) {               \
      gpu_native.any = false;                                                                    \
      for (gpu_native.thread = 0; gpu_native.thread < gpu_native.threads; gpu_native.thread++) { \
        CALL;                                                                                    \
      }                                                                                          \
    }                                                                                            \
  } while (0)
