// events.c: see events.h.
#define _GNU_SOURCE // ppoll
#include "os/events.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "os/clock.h"

int tt_events_open(int *set)
{
  int fd = epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) {
    return -errno;
  }
  *set = fd;
  return 0;
}

int tt_events_add(int set, int fd, bool in)
{
  struct epoll_event e = {.events = (in ? EPOLLIN | EPOLLRDHUP : EPOLLOUT) | EPOLLET, .data.fd = fd};
  return epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
}

void tt_events_remove(int set, int fd)
{
  epoll_ctl(set, EPOLL_CTL_DEL, fd, &(struct epoll_event){.events = 0});
}

void tt_events_wait(int set, uint64_t timeout_ns)
{
  struct epoll_event e[64];
  uint64_t ms = TT_MIN(timeout_ns / TT_NS_PER_MS + (timeout_ns % TT_NS_PER_MS != 0), (uint64_t)INT_MAX);
  epoll_wait(set, e, TT_COUNT(e), timeout_ns == TT_EVENTS_FOREVER ? -1 : (int)ms);
}

int tt_ring_open(int *fd)
{
  int e = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (e < 0) {
    return -errno;
  }
  *fd = e;
  return 0;
}

// The counter cannot overflow in the life of a machine; a full one polls readable as well.
void tt_ring(int fd)
{
  uint64_t one = 1;
  while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void tt_ring_clear(int fd)
{
  uint64_t n;
  while (read(fd, &n, sizeof(n)) < 0 && errno == EINTR) {
  }
}

void tt_ring_wait(int fd, uint64_t timeout_ns)
{
  struct pollfd p = {.fd = fd, .events = POLLIN};
  struct timespec t = {.tv_sec = (time_t)(timeout_ns / TT_NS_PER_S), .tv_nsec = (long)(timeout_ns % TT_NS_PER_S)};
  ppoll(&p, 1, timeout_ns == TT_EVENTS_FOREVER ? NULL : &t, NULL);
}
