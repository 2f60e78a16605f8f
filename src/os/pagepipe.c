// pagepipe.c: see pagepipe.h.
#define _GNU_SOURCE
#include "os/pagepipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/retry.h"
#include "os/shm.h"

#define PAGE 4096

static _Atomic int open_pipes; // of this process; a forked child counts on

static void open_pipe(tt_pagepipe *p)
{
  int ends[2] = {-1, -1}, pages = p->pages > 0 ? p->pages : TT_PAGEPIPE_PAGES;
  bool room = atomic_fetch_add(&open_pipes, 1) < TT_PAGEPIPES;
  if (room && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 && fcntl(ends[1], F_SETPIPE_SZ, pages * PAGE) >= pages * PAGE) {
    *p = (tt_pagepipe){.state = TT_PAGEPIPE_OPEN, .pages = pages, .read = ends[0], .write = ends[1]};
    return;
  }
  p->state = TT_PAGEPIPE_NONE;
  tt_fd_close(ends[0]);
  tt_fd_close(ends[1]);
  atomic_fetch_sub(&open_pipes, 1);
}

size_t tt_pagepipe_put(tt_pagepipe *pipe, const void *p, size_t bytes)
{
  size_t moved = 0;
  if (pipe->state == TT_PAGEPIPE_UNTRIED) {
    open_pipe(pipe);
  }
  while (pipe->state == TT_PAGEPIPE_OPEN && moved < bytes) {
    struct iovec v = {.iov_base = (char *)(uintptr_t)p + moved, .iov_len = bytes - moved};
    ssize_t n;
    TT_RETRY(n, vmsplice(pipe->write, &v, 1, SPLICE_F_NONBLOCK));
    if (n <= 0) {
      int full = n < 0 && errno == EAGAIN && moved == 0 ? pipe->full + 1 : 0;
      bool stop = full == TT_PAGEPIPE_FULL || (n < 0 && errno != EAGAIN && errno != EFAULT);
      pipe->full = full;
      pipe->state = stop ? TT_PAGEPIPE_STOPPED : TT_PAGEPIPE_OPEN;
      return moved;
    }
    pipe->full = 0;
    moved += (size_t)n;
  }
  return moved;
}

// Is it a pipe of such a kind? What is not would be read from wrongly, and might block.
static bool is_page_pipe(int fd)
{
  return fd >= 0 && fcntl(fd, F_GETPIPE_SZ) >= TT_PAGEPIPE_LEAST * PAGE && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

bool tt_pagetap_join(tt_pagetap *tap, int32_t pid, int fd)
{
  if (tap->state == TT_PAGEPIPE_UNTRIED) {
    tap->state = TT_PAGEPIPE_NONE;
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    tap->fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    tap->state = is_page_pipe(tap->fd) ? TT_PAGEPIPE_OPEN : TT_PAGEPIPE_NONE;
    if (tap->state == TT_PAGEPIPE_NONE) {
      tt_fd_close(tap->fd);
    }
    tt_fd_close(process);
#else
    (void)pid, (void)fd;
#endif
  }
  return tap->state == TT_PAGEPIPE_OPEN;
}

int tt_pagetap_take(const tt_pagetap *tap, void *to, size_t bytes)
{
  for (size_t done = 0; done < bytes;) {
    ssize_t n;
    TT_RETRY(n, read(tap->fd, (char *)to + done, bytes - done));
    if (n <= 0) {
      return n == 0 || errno == EAGAIN ? ENODATA : errno;
    }
    done += (size_t)n;
  }
  return 0;
}

void tt_pagepipe_close(tt_pagepipe *pipe)
{
  if (pipe->state == TT_PAGEPIPE_OPEN || pipe->state == TT_PAGEPIPE_STOPPED) {
    close(pipe->read);
    close(pipe->write);
    atomic_fetch_sub(&open_pipes, 1);
  }
  *pipe = (tt_pagepipe){0};
}

void tt_pagetap_close(tt_pagetap *tap)
{
  if (tap->state == TT_PAGEPIPE_OPEN) {
    close(tap->fd);
  }
  *tap = (tt_pagetap){0};
}
