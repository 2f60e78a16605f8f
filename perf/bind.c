#define _GNU_SOURCE // sched_setaffinity
#include "bind.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "system.h"

// The first hardware thread of the core that `cpu` belongs to: lists begin with it. Where the kernel says nothing, each
// is a core.
static int first_of_core(int cpu)
{
  char path[96];
  snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  char *list = perf_read_file(path);
  int first = list && list[0] >= '0' && list[0] <= '9' ? atoi(list) : cpu;
  free(list);
  return first;
}

// Number of the core of each hardware thread that this process may use, from 0 on; -1: it may not. Returns how many
// cores there are.
static int number_cores(int number[CPU_SETSIZE])
{
  cpu_set_t may;
  int of_first[CPU_SETSIZE], cores = 0; // number of the core whose first hardware thread this is, plus one
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    number[cpu] = -1;
    of_first[cpu] = 0;
  }
  if (sched_getaffinity(0, sizeof(may), &may) != 0) {
    return 0;
  }
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &may)) {
      int first = first_of_core(cpu), at = first >= 0 && first < CPU_SETSIZE ? first : cpu;
      of_first[at] = of_first[at] ? of_first[at] : ++cores;
      number[cpu] = of_first[at] - 1;
    }
  }
  return cores;
}

int perf_cores(void)
{
  int number[CPU_SETSIZE];
  return number_cores(number);
}

bool perf_bind(int first, int count)
{
  int number[CPU_SETSIZE];
  cpu_set_t set;
  CPU_ZERO(&set);
  if (first + count > number_cores(number)) {
    return false;
  }
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (number[cpu] >= first && number[cpu] < first + count) {
      CPU_SET(cpu, &set);
    }
  }
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}
