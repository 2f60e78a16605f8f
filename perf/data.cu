// data.cu: the kernels that write data of a check, and compare what they find with it: the tables of pattern.h, read as
// verify.c reads them on the host. Any number of CTAs.
#include "data.h"

#define TT_CUDA_THREADS PERF_GPU_THREADS
#include "device/cuda/kernels/gpu.h"

TT_INLINE uint64_t load(uint64_t at, uint32_t elt)
{
  switch (elt) {
  case 1: return gpu_load1(at);
  case 2: return gpu_load2(at);
  case 4: return gpu_load4(at);
  default: return gpu_load8(at);
  }
}

TT_INLINE void store(uint64_t at, uint32_t elt, uint64_t x)
{
  switch (elt) {
  case 1: gpu_store1(at, (uint32_t)x); break;
  case 2: gpu_store2(at, (uint32_t)x); break;
  case 4: gpu_store4(at, (uint32_t)x); break;
  default: gpu_store8(at, x);
  }
}

// What element i of the piece should be.
TT_INLINE uint64_t wanted(perf_gpu_piece p, uint64_t i)
{
  if (p.table == 0) {
    return p.seed;
  }
  const uint64_t index = p.index + i, segment = index / PERF_PERIOD;
  return load(p.table + (perf_turn(p.seed, segment) + index - segment * PERF_PERIOD) * p.elt, p.elt);
}

TT_INLINE uint64_t first_index(void)
{
  return (uint64_t)gpu_cta() * gpu_threads() + gpu_thread();
}

TT_INLINE uint64_t all_threads(void)
{
  return (uint64_t)gpu_ctas() * gpu_threads();
}

TT_KERNEL write(const perf_gpu_piece p)
{
  for (uint64_t i = first_index(); i < p.count; i += all_threads()) {
    store(p.at + i * p.elt, p.elt, wanted(p, i));
  }
}

// Bit patterns of positive floats are ordered like the numbers: a distance in units of the last place.
TT_KERNEL compare(const perf_gpu_piece p)
{
  const uint64_t mask = UINT64_MAX >> (64 - 8 * p.elt);
  uint64_t wrong = 0, first = UINT64_MAX;
  for (uint64_t i = first_index(); i < p.count; i += all_threads()) {
    const uint64_t apart = (load(p.at + i * p.elt, p.elt) - wanted(p, i) + p.tolerance) & mask;
    if (apart > 2 * (uint64_t)p.tolerance) {
      first = wrong == 0 ? i : first;
      wrong++;
    }
  }
  if (wrong != 0) {
    __asm__ __volatile__("red.global.add.u64 [%0], %1;" : : "l"(p.found), "l"(wrong) : "memory");
    __asm__ __volatile__("red.global.min.u64 [%0], %1;" : : "l"(p.found + sizeof(uint64_t)), "l"(first) : "memory");
  }
}
