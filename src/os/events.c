// events.c: see events.h.
#define _GNU_SOURCE // ppoll
#include "os/events.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/util.h"
#include "os/clock.h"
#include "os/retry.h"

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

int tt_events_watch(int set, int fd, unsigned how, void *owner)
{
  struct epoll_event e = {.data.ptr = owner};
  e.events |= (how & TT_EVENTS_IN) != 0 ? (uint32_t)EPOLLIN : 0;
  e.events |= (how & TT_EVENTS_OUT) != 0 ? (uint32_t)EPOLLOUT : 0;
  e.events |= (how & TT_EVENTS_EDGE) != 0 ? (uint32_t)EPOLLET : 0;
  if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0 || (errno == EEXIST && epoll_ctl(set, EPOLL_CTL_MOD, fd, &e) == 0)) {
    return 0;
  }
  return -errno;
}

int tt_events_take(int set, void **owners, int room)
{
  struct epoll_event e[TT_EVENTS_AT_ONCE];
  int n = epoll_wait(set, e, TT_MIN(room, TT_EVENTS_AT_ONCE), 0);
  for (int i = 0; i < n; i++) {
    owners[i] = e[i].data.ptr;
  }
  return TT_MAX(n, 0);
}

void tt_events_remove(int set, int fd)
{
  epoll_ctl(set, EPOLL_CTL_DEL, fd, &(struct epoll_event){.events = 0});
}

// ---- Closing what is watched ----

enum { SETS = 64, LINE = 256, KERNEL_MINOR_BITS = 20 };

// Sets that are still to be closed, and their number.
typedef struct worklist {
  int sets[SETS];
  int count;
} worklist;

// What /proc says that the descriptor is: "pipe:[77]".
static void what_is(int fd, char *out, size_t size)
{
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, out, size - 1);
  out[n < 0 ? 0 : n] = '\0';
}

static bool is_event_set(int fd)
{
  char what[LINE];
  what_is(fd, what, sizeof what);
  return strcmp(what, "anon_inode:[eventpoll]") == 0;
}

// Is it the very object that the set watches under this number? Objects with an inode of their own are told apart by
// that. All eventfds, sets and the like share one: a set takes each object and number once, so it refuses a second
// time what it has. What it does not have it watches for nothing, for a moment.
static bool is_watched_by(int set, int fd)
{
  char what[LINE];
  what_is(fd, what, sizeof what);
  if (strncmp(what, "anon_inode:", strlen("anon_inode:")) != 0) {
    return what[0] != '\0';
  }
  struct epoll_event nothing = {.events = 0, .data.fd = fd};
  if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &nothing) == 0) {
    tt_events_remove(set, fd);
    return false;
  }
  return errno == EEXIST;
}

// "tfd: 7 events: … ino:9 sdev:d": the descriptor is what was watched, and not what has its number by now. In doubt it
// stays open.
static void close_one(worklist *w, int set, const char *line)
{
  const char *ino = strstr(line, "ino:"), *sdev = strstr(line, "sdev:");
  uint64_t inode = 0;
  unsigned dev = 0;
  struct stat st;
  int fd = -1;
  if (sscanf(line, "tfd: %d", &fd) != 1 || ino == NULL || sscanf(ino, "ino:%" SCNx64, &inode) != 1 || sdev == NULL ||
      sscanf(sdev, "sdev:%x", &dev) != 1 || fstat(fd, &st) != 0 || st.st_ino != inode ||
      major(st.st_dev) != dev >> KERNEL_MINOR_BITS || minor(st.st_dev) != (dev & ((1u << KERNEL_MINOR_BITS) - 1)) ||
      !is_watched_by(set, fd)) {
    return;
  }
  if (!is_event_set(fd)) {
    close(fd);
  } else if (w->count < SETS) {
    w->sets[w->count++] = fd;
  }
}

// The lines of a file, in pieces as they come.
static void each_line(int file, worklist *w, int set)
{
  char buf[LINE];
  size_t have = 0;
  for (ssize_t n; (n = read(file, buf + have, sizeof buf - 1 - have)) > 0;) {
    char *from = buf, *end;
    have += (size_t)n;
    buf[have] = '\0';
    while ((end = strchr(from, '\n')) != NULL) {
      *end = '\0';
      close_one(w, set, from);
      from = end + 1;
    }
    have = strlen(from);
    have = have == sizeof buf - 1 ? 0 : have; // no line is that long
    memmove(buf, from, have);
  }
}

void tt_events_close_watched(int set)
{
  worklist w = {.sets = {set}, .count = 1};
  for (int i = 0; i < w.count && w.sets[i] >= 0; i++) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", w.sets[i]);
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
      each_line(file, &w, w.sets[i]);
      close(file);
    }
    close(w.sets[i]);
  }
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
  ssize_t n;
  TT_RETRY(n, write(fd, &one, sizeof(one)));
}

void tt_ring_clear(int fd)
{
  uint64_t count;
  ssize_t n;
  TT_RETRY(n, read(fd, &count, sizeof(count)));
}

void tt_ring_wait(int fd, uint64_t timeout_ns)
{
  struct pollfd p = {.fd = fd, .events = POLLIN};
  struct timespec t = tt_timespec(timeout_ns);
  ppoll(&p, 1, timeout_ns == TT_EVENTS_FOREVER ? NULL : &t, NULL);
}

void tt_timer_set(tt_span **timers, tt_span *t, uint64_t at_ns)
{
  if (t->size != 0) {
    tt_spans_remove(timers, t);
  }
  t->start = at_ns;
  t->size = at_ns != 0;
  if (at_ns != 0) {
    tt_spans_add(timers, t);
  }
}

tt_span *tt_timer_first(tt_span *timers)
{
  return tt_spans_from(timers, 0, 0);
}

void tt_wake_by(uint64_t *wake_ns, uint64_t at_ns)
{
  if (at_ns != 0) {
    *wake_ns = *wake_ns == 0 ? at_ns : TT_MIN(*wake_ns, at_ns);
  }
}
