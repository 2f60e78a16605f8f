// pin.h: a process's share of the cores.
#pragma once
#include <sched.h>

// How many cores the calling process may use.
static inline int bench_cores(void)
{
  cpu_set_t may;
  return sched_getaffinity(0, sizeof may, &may) == 0 ? CPU_COUNT(&may) : 1;
}

// Binds the calling process to one of the cores that it may use: number `rank`, modulo how many there are. The includer
// defines _GNU_SOURCE.
static inline void bench_pin(int rank)
{
  cpu_set_t may, one;
  if (sched_getaffinity(0, sizeof may, &may) != 0) {
    return;
  }
  int nth = rank % CPU_COUNT(&may);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &may) && nth-- == 0) {
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
  }
}
