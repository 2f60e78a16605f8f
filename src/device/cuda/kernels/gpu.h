// gpu.h: the vocabulary of the kernels: where a thread stands, what threads of a CTA agree on, accesses to memory by
// width and by order.
//
// Two forms of the same words. With TT_PTX a compiler for GPUs makes PTX of them (clang or nvcc, with no header of an
// SDK). Without, any C compiler makes functions that a loop over threads calls (native_rig.h): a test of the
// arithmetic. Addresses are numbers, of global memory or of host memory that the device reads and writes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef TT_PTX
#define TT_INLINE static inline __attribute__((device, always_inline))
#define TT_KERNEL extern "C" __attribute__((global, launch_bounds(TT_CUDA_THREADS))) void
#define TT_UNORDERED(a, b) ((a) != (a) || (b) != (b)) // nvcc lacks the builtin,
#define TT_NAN_F64 gpu_nan64()                        // and its __builtin_nan takes 32 bits
#define TT_UNROLL _Pragma("unroll")

TT_INLINE double gpu_nan64(void)
{
  const uint64_t bits = INT64_MAX;
  double nan;
  __builtin_memcpy(&nan, &bits, sizeof nan);
  return nan;
}

TT_INLINE uint32_t gpu_thread(void)
{
  uint32_t x;
  __asm__("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}

TT_INLINE uint32_t gpu_threads(void)
{
  uint32_t x;
  __asm__("mov.u32 %0, %%ntid.x;" : "=r"(x));
  return x;
}

TT_INLINE uint32_t gpu_cta(void)
{
  uint32_t x;
  __asm__("mov.u32 %0, %%ctaid.x;" : "=r"(x));
  return x;
}

TT_INLINE uint32_t gpu_ctas(void)
{
  uint32_t x;
  __asm__("mov.u32 %0, %%nctaid.x;" : "=r"(x));
  return x;
}

// Is it true for a thread of the CTA? All its threads ask. What they wrote before, all of them see afterwards.
TT_INLINE bool gpu_any(bool mine)
{
  uint32_t any;
  __asm__ __volatile__("{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %1, 0;\n\tbar.red.or.pred q, 0, p;\n\t"
                       "selp.u32 %0, 1, 0, q;\n\t}"
                       : "=r"(any)
                       : "r"((uint32_t)mine)
                       : "memory");
  return any != 0;
}

// Is it true for a thread of the warp? All its threads ask.
TT_INLINE bool gpu_warp_any(bool mine)
{
  uint32_t any;
  __asm__ __volatile__("{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %1, 0;\n\tvote.sync.any.pred q, p, -1;\n\t"
                       "selp.u32 %0, 1, 0, q;\n\t}"
                       : "=r"(any)
                       : "r"((uint32_t)mine)
                       : "memory");
  return any != 0;
}

// All threads of the warp have come: they make the next access together.
TT_INLINE void gpu_warp_meet(void)
{
  __asm__ __volatile__("bar.warp.sync -1;" : : : "memory");
}

// Nanoseconds of the GPU's clock, which all its multiprocessors share; it has nothing to do with the host's.
TT_INLINE uint64_t gpu_time(void)
{
  uint64_t ns;
  __asm__ __volatile__("mov.u64 %0, %%globaltimer;" : "=l"(ns) : : "memory");
  return ns;
}

// Between a store and a later load of other words, of which one side or the other sees what its counterpart has stored.
TT_INLINE void gpu_fence(void)
{
  __asm__ __volatile__("fence.sc.sys;" : : : "memory");
}

#define GPU_LOAD(NAME, T, OP, REG)                                           \
  TT_INLINE T NAME(uint64_t at)                                              \
  {                                                                          \
    T x;                                                                     \
    __asm__ __volatile__(OP " %0, [%1];" : "=" REG(x) : "l"(at) : "memory"); \
    return x;                                                                \
  }
#define GPU_STORE(NAME, T, OP, REG)                                       \
  TT_INLINE void NAME(uint64_t at, T x)                                   \
  {                                                                       \
    __asm__ __volatile__(OP " [%0], %1;" : : "l"(at), REG(x) : "memory"); \
  }

// Of memory that others write or read meanwhile: a word that tells the state of things, and what is ordered by it.
GPU_LOAD(gpu_look, uint32_t, "ld.relaxed.sys.global.u32", "r")
GPU_LOAD(gpu_look8, uint64_t, "ld.relaxed.sys.global.u64", "l")
// The same; what was written before such a word, is there.
GPU_LOAD(gpu_acquire, uint32_t, "ld.acquire.sys.global.u32", "r")
GPU_LOAD(gpu_acquire8, uint64_t, "ld.acquire.sys.global.u64", "l")
GPU_STORE(gpu_mark, uint32_t, "st.relaxed.sys.global.u32", "r")
GPU_STORE(gpu_mark8, uint64_t, "st.relaxed.sys.global.u64", "l")
GPU_STORE(gpu_release, uint32_t, "st.release.sys.global.u32", "r")
GPU_STORE(gpu_release8, uint64_t, "st.release.sys.global.u64", "l")
// Adds to a word that threads of this device alone write; the second one after all that was written before.
GPU_STORE(gpu_add8, uint64_t, "red.relaxed.sys.global.add.u64", "l")
GPU_STORE(gpu_release_add8, uint64_t, "red.release.sys.global.add.u64", "l")
// Sets a word to 1 that threads of this device alone write. Returns what it was.
TT_INLINE uint32_t gpu_claim(uint64_t at)
{
  uint32_t was;
  __asm__ __volatile__("atom.relaxed.sys.global.exch.b32 %0, [%1], 1;" : "=r"(was) : "l"(at) : "memory");
  return was;
}
// Of the data of a step.
GPU_LOAD(gpu_load1, uint32_t, "ld.global.u8", "r")
GPU_LOAD(gpu_load2, uint32_t, "ld.global.u16", "r")
GPU_LOAD(gpu_load4, uint32_t, "ld.global.u32", "r")
GPU_LOAD(gpu_load8, uint64_t, "ld.global.u64", "l")
GPU_STORE(gpu_store1, uint32_t, "st.global.u8", "r")
GPU_STORE(gpu_store2, uint32_t, "st.global.u16", "r")
GPU_STORE(gpu_store4, uint32_t, "st.global.u32", "r")
GPU_STORE(gpu_store8, uint64_t, "st.global.u64", "l")

// 16 bytes in one access: the address is a multiple of 16.
TT_INLINE void gpu_load16(uint32_t w[4], uint64_t at)
{
  __asm__ __volatile__("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                       : "l"(at)
                       : "memory");
}

TT_INLINE void gpu_store16(uint64_t at, const uint32_t w[4])
{
  __asm__ __volatile__("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                       :
                       : "l"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                       : "memory");
}

// The same of a line, which eight threads of a warp write or read together: whoever sees its flag sees all of it, where
// lines stay whole.
TT_INLINE void gpu_look_line(uint32_t w[4], uint64_t at)
{
  __asm__ __volatile__("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                       : "l"(at)
                       : "memory");
}

TT_INLINE void gpu_mark_line(uint64_t at, const uint32_t w[4])
{
  __asm__ __volatile__("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};"
                       :
                       : "l"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                       : "memory");
}
#else
#include "native_rig.h"
#endif
