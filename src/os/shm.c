// shm.c: see shm.h.
#define _GNU_SOURCE
#include "os/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/quiet.h"
#include "base/result.h"

ncclResult_t tt_shm_create(const char *name, size_t size, int *fd)
{
  int f = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (f < 0) {
    return tt_fail(ncclSystemError,
                   "cannot create shared memory '%s': memfd_create: %s (descriptor limit: see ulimit -n)", name,
                   strerror(errno));
  }
  tt_quiet q;
  tt_quiet_begin(&q);
  bool sized = ftruncate(f, (off_t)size) == 0;
  tt_quiet_end(&q);
  if (!sized) {
    int e = errno;
    close(f);
    return tt_fail(ncclSystemError, "cannot size shared memory '%s' to %zu bytes: %s (see ulimit -f)", name, size,
                   strerror(e));
  }
  fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK); // a peer cannot make our mapping fault
  *fd = f;
  return ncclSuccess;
}

ncclResult_t tt_shm_map(int fd, size_t size, void **addr)
{
  int flags = MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (p == MAP_FAILED) {
    return tt_fail(ncclSystemError,
                   "cannot map %zu bytes of shared memory: %s (see ulimit -v; NCCL_BUFFSIZE makes it smaller)", size,
                   strerror(errno));
  }
  *addr = p;
  return ncclSuccess;
}

void tt_shm_unmap(void *addr, size_t size)
{
  if (addr != NULL) {
    munmap(addr, size);
  }
}

bool tt_shm_drop(void *addr, size_t size)
{
  return madvise(addr, size, MADV_REMOVE) == 0;
}

size_t tt_shm_resident(void *addr, size_t size)
{
  enum { PAGE = 4096, PAGES = 256 };
  unsigned char there[PAGES];
  size_t pages = 0;
  for (size_t at = 0; at < size; at += PAGE * PAGES) {
    size_t n = size - at < PAGE * PAGES ? size - at : PAGE * PAGES;
    if (mincore((char *)addr + at, n, there) != 0) {
      break;
    }
    for (size_t i = 0; i < (n + PAGE - 1) / PAGE; i++) {
      pages += there[i] & 1;
    }
  }
  return pages * PAGE;
}

size_t tt_shm_size(int fd)
{
  struct stat st;
  return fstat(fd, &st) == 0 && st.st_size > 0 ? (size_t)st.st_size : 0;
}

bool tt_shm_put(int fd, size_t at, const void *data, size_t size)
{
  return pwrite(fd, data, size, (off_t)at) == (ssize_t)size;
}

bool tt_shm_get(int fd, size_t at, void *data, size_t size)
{
  return pread(fd, data, size, (off_t)at) == (ssize_t)size;
}

void tt_fd_close(int fd)
{
  if (fd >= 0) {
    close(fd);
  }
}
