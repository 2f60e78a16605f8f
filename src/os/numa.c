// numa.c: where the caller runs: on which NUMA node, beside which caches.
#define _GNU_SOURCE
#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "os/folder.h"
#include "os/proc.h"

enum { LIST_BYTES = 4096, MAX_NODES = 256, MAX_CACHES = 16 };

// How many cores of the set belong to the node.
static int node_cores(int node, const cpu_set_t *set)
{
  char path[64], list[LIST_BYTES];
  const char *at = list;
  long lo, hi;
  int count = 0;
  snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
  tt_file_text(path, list, sizeof list);
  while (tt_file_range(&at, &lo, &hi)) {
    for (long cpu = lo; cpu <= hi && cpu >= 0 && cpu < CPU_SETSIZE; cpu++) {
      count += CPU_ISSET((size_t)cpu, set) != 0;
    }
  }
  return count;
}

int tt_proc_numa(void)
{
  char list[LIST_BYTES];
  const char *at = list;
  cpu_set_t set;
  long lo, hi;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return -1;
  }
  tt_file_text("/sys/devices/system/node/online", list, sizeof list);
  if (list[0] == '0' && (list[1] == '\n' || list[1] == 0)) {
    return 0; // there is no other
  }
  while (tt_file_range(&at, &lo, &hi)) {
    for (long node = lo; node <= hi && node >= 0 && node < MAX_NODES; node++) {
      int count = node_cores((int)node, &set);
      if (count > 0) {
        return count == CPU_COUNT(&set) ? (int)node : -1;
      }
    }
  }
  return -1;
}

// The C library's answer (_SC_LEVEL3_CACHE_SIZE) is ten times too large on some virtual machines: what the kernel says
// is used instead.
size_t tt_proc_cache(void)
{
  char path[80], size[LIST_BYTES], *unit;
  size_t largest = 0;
  int cpu = sched_getcpu();
  for (int i = 0; i < MAX_CACHES; i++) {
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu < 0 ? 0 : cpu, i);
    tt_file_text(path, size, sizeof size);
    if (!isdigit((unsigned char)size[0])) {
      break;
    }
    size_t bytes = strtoul(size, &unit, 10);
    bytes <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : 0;
    largest = bytes > largest ? bytes : largest;
  }
  return largest;
}
