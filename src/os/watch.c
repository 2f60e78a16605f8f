// watch.c: see watch.h.
#define _GNU_SOURCE // ppoll
#include "os/watch.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "os/clock.h"

int tt_wake_open(int *fd)
{
  int e = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (e < 0) {
    return -errno;
  }
  *fd = e;
  return 0;
}

void tt_wake_set(int fd)
{
  uint64_t one = 1;
  while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void tt_wake_clear(int fd)
{
  uint64_t n;
  while (read(fd, &n, sizeof n) < 0 && errno == EINTR) {
  }
}

void tt_wake_wait(int fd, uint64_t timeout_ns)
{
  struct pollfd p = {.fd = fd, .events = POLLIN};
  struct timespec t = {.tv_sec = (time_t)(timeout_ns / TT_NS_PER_S), .tv_nsec = (long)(timeout_ns % TT_NS_PER_S)};
  ppoll(&p, 1, timeout_ns == TT_WATCH_FOREVER ? NULL : &t, NULL);
}

int tt_watch_open(int *set)
{
  int e = epoll_create1(EPOLL_CLOEXEC);
  if (e < 0) {
    return -errno;
  }
  *set = e;
  return 0;
}

int tt_watch_add(int set, int fd, bool edge)
{
  struct epoll_event ev = {.events = edge ? EPOLLIN | EPOLLET : EPOLLIN};
  return epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev) == 0 ? 0 : -errno;
}

void tt_watch_remove(int set, int fd)
{
  struct epoll_event ev = {.events = 0};
  epoll_ctl(set, EPOLL_CTL_DEL, fd, &ev);
}

void tt_watch_wait(int set, uint64_t timeout_ns)
{
  struct epoll_event ev[16];
  uint64_t ms = TT_DIV_UP(TT_MIN(timeout_ns, (uint64_t)INT_MAX * TT_NS_PER_MS - TT_NS_PER_MS), TT_NS_PER_MS);
  epoll_wait(set, ev, TT_COUNT(ev), timeout_ns == TT_WATCH_FOREVER ? -1 : (int)ms);
}
