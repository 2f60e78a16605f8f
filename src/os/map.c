// map.c: see map.h.
#define _GNU_SOURCE
#include "os/map.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/result.h"
#include "base/util.h"

// Defined when the program carries AddressSanitizer.
void __asan_poison_memory_region(const volatile void *addr, size_t size) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *addr, size_t size) __attribute__((weak));

ncclResult_t tt_map_private(size_t size, void **addr)
{
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return tt_fail(ncclSystemError, "no memory for %zu bytes: mmap: %s (see ulimit -v and vm.max_map_count)", size, strerror(errno));
  }
  *addr = p;
  return ncclSuccess;
}

ncclResult_t tt_map_replace(int fd, size_t size, void *addr)
{
  if (mmap(addr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    return tt_fail(ncclSystemError, "cannot share %zu bytes in place: mmap: %s (see vm.max_map_count)", size, strerror(errno));
  }
  return ncclSuccess;
}

void tt_map_free(void *addr, size_t size)
{
  if (addr != NULL) {
    munmap(addr, size);
  }
}

void tt_map_forbid(const void *addr, size_t size)
{
  if (__asan_poison_memory_region != NULL) {
    __asan_poison_memory_region(addr, size);
  }
}

void tt_map_allow(const void *addr, size_t size)
{
  if (__asan_unpoison_memory_region != NULL) {
    __asan_unpoison_memory_region(addr, size);
  }
}

// The number in a file that holds one; `none` when the file is absent or says "max".
static size_t number_in(const char *path, size_t none)
{
  unsigned long long v;
  FILE *f = fopen(path, "re");
  if (f == NULL) {
    return none;
  }
  int n = fscanf(f, "%llu", &v);
  fclose(f);
  return n == 1 ? (size_t)v : none;
}

// A line of /proc/meminfo in bytes; 0 when there is none.
static size_t meminfo(const char *key)
{
  char line[128];
  unsigned long long kib = 0;
  FILE *f = fopen("/proc/meminfo", "re");
  while (f != NULL && kib == 0 && fgets(line, sizeof line, f) != NULL) {
    if (strncmp(line, key, strlen(key)) == 0) {
      kib = strtoull(line + strlen(key), NULL, 10);
    }
  }
  if (f != NULL) {
    fclose(f);
  }
  return (size_t)kib * 1024;
}

void tt_map_memory(size_t *available, size_t *total)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * page, now = meminfo("MemAvailable:");
  size_t limit = number_in("/sys/fs/cgroup/memory.max", SIZE_MAX), used = number_in("/sys/fs/cgroup/memory.current", 0);
  if (now == 0) {
    now = (size_t)sysconf(_SC_AVPHYS_PAGES) * page;
  }
  if (limit != SIZE_MAX) {
    now = TT_MIN(now, limit > used ? limit - used : 0);
  }
  *total = TT_MIN(all, limit);
  *available = TT_MIN(now, *total);
}
