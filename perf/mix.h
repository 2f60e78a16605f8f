// mix.h: numbers that host and GPUs draw alike. Plain C, of the part that C and the kernels' compilers have in common.
#pragma once
#include <stdint.h>

#ifdef TT_PTX
#define PERF_SHARED static inline __attribute__((device, always_inline))
#else
#define PERF_SHARED static inline
#endif

enum { PERF_PERIOD = 4093 };

// Well mixed 64 bits of two numbers.
PERF_SHARED uint64_t perf_mix(uint64_t a, uint64_t b)
{
  uint64_t x = a * 0x9e3779b97f4a7c15u + (b + 1) * 0xd1342543de82ef95u;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
  return x ^ (x >> 32);
}

// Position in a table at which segment `segment` of data with this seed starts: 0 to PERF_PERIOD - 1.
PERF_SHARED uint64_t perf_turn(uint64_t seed, uint64_t segment)
{
  return perf_mix(seed, segment) % PERF_PERIOD;
}
