// map.c: see map.h.
#define _GNU_SOURCE
#include "os/map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/result.h"
#include "base/util.h"
#include "os/folder.h"
#include "os/shm.h"

#define HUGE_MOST ((size_t)32 << 20)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 // since Linux 6.1; glibc's headers may be older
#endif

// Defined when the program carries AddressSanitizer.
void __asan_poison_memory_region(const volatile void *addr, size_t size) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *addr, size_t size) __attribute__((weak));

ncclResult_t tt_map_private(size_t size, void **addr)
{
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return tt_fail(ncclSystemError, "no memory for %zu bytes: mmap: %s (see ulimit -v and vm.max_map_count)", size,
                   strerror(errno));
  }
  *addr = p;
  return ncclSuccess;
}

// A line of /proc/self/maps.
typedef struct mapping {
  uintptr_t from, to;
  char rights[5];
  uint64_t at, inode;
  unsigned major, minor;
  const char *name; // "": it has none
} mapping;

// Are all mappings in [addr, addr + size), which are all there, as `is` wants them?
static bool all_mappings(const void *addr, size_t size, bool (*is)(const mapping *m, const void *arg), const void *arg)
{
  uintptr_t next = (uintptr_t)addr, end = next + size;
  FILE *f = fopen("/proc/self/maps", "re");
  char *line = NULL;
  size_t room = 0;
  bool whole = f != NULL;
  while (whole && next < end && getline(&line, &room, f) > 0) {
    mapping m;
    int name = 0;
    line[strcspn(line, "\n")] = 0;
    whole = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &m.from, &m.to, m.rights,
                   &m.at, &m.major, &m.minor, &m.inode, &name) == 7;
    m.name = line + name;
    if (whole && m.to > next) {
      whole = m.from <= next && is(&m, arg);
      next = m.to;
    }
  }
  free(line);
  if (f != NULL) {
    fclose(f);
  }
  return whole && next >= end;
}

static bool is_ordinary(const mapping *m, const void *arg)
{
  (void)arg;
  bool named = m->name[0] != 0 && strcmp(m->name, "[heap]") != 0 && strncmp(m->name, "[anon:", 6) != 0;
  return strcmp(m->rights, "rw-p") == 0 && m->inode == 0 && !named;
}

bool tt_map_is_ordinary(const void *addr, size_t size)
{
  return all_mappings(addr, size, is_ordinary, NULL);
}

typedef struct shown {
  uintptr_t base; // where its first byte is
  struct stat st;
} shown;

static bool shows_there(const mapping *m, const void *arg)
{
  const shown *s = arg;
  return m->rights[3] == 's' && m->inode == s->st.st_ino && m->major == major(s->st.st_dev) &&
         m->minor == minor(s->st.st_dev) && m->from - m->at == s->base;
}

bool tt_map_shows(const void *addr, size_t size, int fd)
{
  shown s = {.base = (uintptr_t)addr};
  return fstat(fd, &s.st) == 0 && all_mappings(addr, size, shows_there, &s);
}

typedef struct shown_page {
  uintptr_t addr;
  uint64_t *identity;
} shown_page;

static bool note_identity(const mapping *m, const void *arg)
{
  const shown_page *s = arg;
  const uint64_t object[] = {m->inode, m->major, m->minor, m->at + (s->addr - m->from)};
  *s->identity = tt_hash(object, sizeof object, 1);
  return true;
}

uint64_t tt_map_identity(const void *addr)
{
  uint64_t identity = 0;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const shown_page s = {.addr = (uintptr_t)addr / page * page, .identity = &identity};
  return all_mappings(addr, 1, note_identity, &s) ? identity : 0;
}

static ncclResult_t cannot_replace(size_t size, const char *call)
{
  return tt_fail(ncclSystemError, "cannot replace %zu bytes in place: %s: %s (see vm.max_map_count)", size, call,
                 strerror(errno));
}

ncclResult_t tt_map_move(void *from, size_t size, void *to)
{
  return mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED ? ncclSuccess
                                                                                   : cannot_replace(size, "mremap");
}

ncclResult_t tt_map_own(int fd, size_t size, void *addr)
{
  return mmap(addr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED
             ? ncclSuccess
             : cannot_replace(size, "mmap");
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
  char text[64], *end;
  unsigned long long v = tt_file_text(path, text, sizeof text) ? strtoull(text, &end, 10) : 0;
  return text[0] == 0 || end == text ? none : (size_t)v;
}

size_t tt_map_huge_size(void)
{
  char line[64];
  bool allowed =
      tt_file_text("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line) && strstr(line, "[never]") == NULL;
  size_t size = allowed ? number_in("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", 0) : 0;
  return (size & (size - 1)) == 0 && size <= HUGE_MOST ? size : 0;
}

// Is every small page of [addr, addr + size) there, private, and mapped by this process alone?
static bool all_own(const void *addr, size_t size)
{
  enum { ENTRIES = 512 };
  // Present, mapped once; file or shared memory.
  const uint64_t want = 1ull << 63 | 1ull << 56, care = want | 1ull << 61;
  uint64_t entry[ENTRIES];
  size_t page = (size_t)sysconf(_SC_PAGESIZE), n = size / page, first = (uintptr_t)addr / page;
  int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  bool own = fd >= 0;
  for (size_t at = 0; own && at < n; at += ENTRIES) {
    size_t now = TT_MIN(n - at, (size_t)ENTRIES);
    own =
        pread(fd, entry, now * sizeof *entry, (off_t)((first + at) * sizeof *entry)) == (ssize_t)(now * sizeof *entry);
    for (size_t i = 0; own && i < now; i++) {
      own = (entry[i] & care) == want;
    }
  }
  tt_fd_close(fd);
  return own;
}

int tt_map_huge(const void *addr, size_t size)
{
  if (!all_own(addr, size)) {
    return EPERM;
  }
  return madvise((void *)(uintptr_t)addr, size, MADV_COLLAPSE) == 0 ? 0 : errno;
}

// A line of /proc/meminfo in bytes; 0 when there is none.
static size_t meminfo(const char *key)
{
  char text[4096];
  const char *line = tt_file_text("/proc/meminfo", text, sizeof text) ? strstr(text, key) : NULL;
  return line == NULL ? 0 : (size_t)strtoull(line + strlen(key), NULL, 10) * 1024;
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
