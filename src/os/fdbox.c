// fdbox.c: see fdbox.h.
//
// No thread serves the mailbox: a thread that waits in tt_fdbox_take receives for all. One waiter at a time polls the
// sockets with the lock released; the others sleep on `news` and take over when it leaves. Until a thread looks, what
// was pushed lies in the kernel's accept queue, so a sender needs no thread on the other side.
#define _GNU_SOURCE
#include "os/fdbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/result.h"
#include "base/util.h"
#include "os/clock.h"
#include "os/proc.h"
#include "os/random.h"
#include "os/retry.h"
#include "os/shm.h"
#include "os/socket.h"

#define MAGIC 0x7474666462783031ull  // "ttfdbx01"
#define BACKLOG 4096                 // the kernel cuts it to net.core.somaxconn
#define MAX_ENTRIES 1024             // connections that have not spoken yet; descriptors that no thread has claimed yet
#define MAX_ACCEPTS 256              // per look, so that a flood cannot keep a waiter from its deadline
#define SILENCE_NS (2 * TT_NS_PER_S) // how long a connection may say nothing
#define PUSH_NS TT_NS_PER_S
#define PUSH_LEAST 16                // attempts of a push, however late its thread is
#define SLICE_NS (20 * TT_NS_PER_MS) // a waiter looks at its abort flag this often
#define PUSH_TRIES 4                 // connections one push makes when the receiver hangs up on it

typedef struct message {
  uint64_t magic;
  tt_fdkey key;
} message;
_Static_assert(sizeof(message) == 32, "goes from process to process");

// A connection, or a descriptor that has come.
typedef struct entry {
  int fd;
  uint64_t until; // of a connection: when its silence ends it
  tt_fdkey key;   // of a descriptor
} entry;

// In order of arrival. An entry leaves its list before its descriptor is closed, so that a forked child, which closes
// what it finds here, never closes a number that is in use again.
typedef struct entry_list {
  int n;
  entry at[MAX_ENTRIES];
} entry_list;

// The process's mailbox; all under `lock`.
static struct {
  pthread_mutex_t lock;
  pthread_cond_t news;
  bool open;
  bool polling; // a thread waits for the sockets
  bool starved; // no descriptor was left for accept: leave the listener alone for a slice
  bool warned;
  int listener;
  char name[TT_FDBOX_NAME];
  entry_list conns;                   // that have not spoken yet
  entry_list items;                   // that no thread has claimed yet
  struct pollfd set[1 + MAX_ENTRIES]; // belongs to the thread that set `polling`
} box = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void warn_once(const char *what)
{
  if (!box.warned) {
    box.warned = true;
    tt_warn("descriptor mailbox %s: %s (said once)", box.name, what);
  }
}

// Takes entry `i` out of its list, and returns its descriptor.
static int remove_entry(entry_list *l, int i)
{
  int fd = l->at[i].fd;
  l->n--;
  memmove(&l->at[i], &l->at[i + 1], sizeof(entry) * (size_t)(l->n - i));
  return fd;
}

static void close_entries(entry_list *l)
{
  while (l->n > 0) {
    close(remove_entry(l, l->n - 1));
  }
}

static void store_item(const tt_fdkey *key, int fd)
{
  if (box.items.n == MAX_ENTRIES) {
    warn_once("too many unclaimed descriptors, dropped the oldest");
    close(remove_entry(&box.items, 0));
  }
  box.items.at[box.items.n++] = (entry){.key = *key, .fd = fd};
  pthread_cond_broadcast(&box.news);
}

// Does the other end of `sock` belong to this user or to root?
static bool is_friend(int sock)
{
  struct ucred cred;
  socklen_t size = sizeof cred;
  return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &size) == 0 && (cred.uid == 0 || cred.uid == geteuid());
}

// Collects the descriptors that came with a message: the first in *fd (-1: none), further ones are closed. Returns how
// many there were.
static int collect_fds(struct msghdr *h, int *fd)
{
  int n = 0;
  *fd = -1;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++, n++) {
      int f;
      memcpy(&f, CMSG_DATA(c) + i * sizeof f, sizeof f);
      if (n == 0) {
        *fd = f;
      } else {
        close(f);
      }
    }
  }
  return n;
}

// Reads one message with one descriptor. Returns false when `sock` has said nothing yet, true when it can be closed;
// *fd is -1 when it has not brought one. A push is a single sendmsg, which a local stream socket delivers whole:
// whatever else arrives comes from a stranger. Lock held.
static bool hear(int sock, tt_fdkey *key, int *fd)
{
  struct {
    message m;
    char more; // a byte here tells that the message is too long
  } data;
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  struct iovec iov = {.iov_base = &data, .iov_len = sizeof(message) + 1};
  struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t n;
  *fd = -1;
  TT_RETRY(n, recvmsg(sock, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT));
  if (n < 0) {
    return errno != EAGAIN && errno != EWOULDBLOCK;
  }
  int count = collect_fds(&h, fd);
  if (n == sizeof(message) && data.m.magic == MAGIC && count == 1 && !(h.msg_flags & MSG_CTRUNC)) {
    *key = data.m.key;
    return true;
  }
  if (n == sizeof(message) && data.m.magic == MAGIC && count == 0 && (h.msg_flags & MSG_CTRUNC)) {
    warn_once("a descriptor was lost because this process may open no more (see ulimit -n)");
  } else {
    warn_once(n == 0 ? "dropped a connection that said nothing" : "dropped a stranger's connection");
  }
  tt_fd_close(*fd);
  *fd = -1;
  return true;
}

// The same; stores what comes.
static bool receive_from(int sock)
{
  tt_fdkey key;
  int fd;
  const bool spoke = hear(sock, &key, &fd);
  if (fd >= 0) {
    store_item(&key, fd);
  }
  return spoke;
}

// Ends a silent connection. After the shutdown its sender can only fail (and connect again), so a message that made it
// is still read.
static void hang_up(int i)
{
  int fd = remove_entry(&box.conns, i);
  shutdown(fd, SHUT_RDWR);
  receive_from(fd);
  close(fd);
}

static void receive_from_all(uint64_t now)
{
  for (int i = 0; i < box.conns.n;) {
    if (receive_from(box.conns.at[i].fd)) {
      close(remove_entry(&box.conns, i));
    } else if (now >= box.conns.at[i].until) {
      hang_up(i);
    } else {
      i++;
    }
  }
}

// The descriptor that a message brings needs a free number: if there is none, the oldest silent connection gives its
// own.
static void make_room(void)
{
  int fd = fcntl(box.listener, F_DUPFD_CLOEXEC, 0);
  if (fd >= 0) {
    close(fd);
  } else if (box.conns.n > 0) {
    hang_up(0);
  }
}

// Accepts one connection and hears it. Returns false when there is none, or no descriptor to take it with.
static bool accept_one(uint64_t now)
{
  int s = accept4(box.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (s < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
    box.starved = box.conns.n == 0;
    if (!box.starved) {
      hang_up(0);
    }
    return !box.starved;
  }
  if (s < 0) {
    return errno == EINTR || errno == ECONNABORTED;
  }
  if (!is_friend(s)) {
    warn_once("refused a connection of another user");
    close(s);
    return true;
  }
  make_room();
  if (receive_from(s)) {
    close(s);
    return true;
  }
  if (box.conns.n == MAX_ENTRIES) {
    hang_up(0);
  }
  box.conns.at[box.conns.n++] = (entry){.fd = s, .until = now + SILENCE_NS};
  return true;
}

// Receives what has arrived, without waiting. Lock held.
static void drain(void)
{
  uint64_t now = tt_now_ns();
  box.starved = false;
  receive_from_all(now);
  for (int i = 0; i < MAX_ACCEPTS && accept_one(now); i++) {
  }
}

// Waits for the sockets at most `ns`, then receives for all threads. Lock held, but released while it waits; no other
// thread polls.
static void poll_sockets(uint64_t ns)
{
  nfds_t n = 0;
  box.set[n++] = (struct pollfd){.fd = box.starved ? -1 : box.listener, .events = POLLIN};
  for (int i = 0; i < box.conns.n; i++) {
    box.set[n++] = (struct pollfd){.fd = box.conns.at[i].fd, .events = POLLIN};
  }
  box.polling = true;
  pthread_mutex_unlock(&box.lock);
  poll(box.set, n, (int)TT_DIV_UP(ns, TT_NS_PER_MS));
  pthread_mutex_lock(&box.lock);
  box.polling = false;
  drain();
}

// Sleeps at most `ns` while another thread polls. Lock held, but released while it waits.
static void await_news(uint64_t ns)
{
  struct timespec until = tt_timespec(tt_now_ns() + ns);
  pthread_cond_timedwait(&box.news, &box.lock, &until);
}

static bool claim(const tt_fdkey *key, int *fd)
{
  for (int i = 0; i < box.items.n; i++) {
    if (memcmp(&box.items.at[i].key, key, sizeof *key) == 0) {
      *fd = remove_entry(&box.items, i);
      return true;
    }
  }
  return false;
}

// Closes everything. Lock held, or in a forked child, where no other thread is.
static void drop_box(void)
{
  close_entries(&box.items);
  close_entries(&box.conns);
  if (box.open) {
    box.open = false;
    close(box.listener);
  }
}

static void init_news(void)
{
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&box.news, &attr);
  pthread_condattr_destroy(&attr);
}

// In a forked child: the mailbox is the parent's. Lock and condition are made anew, since a thread of the parent may
// have held them.
static void forget_box(void)
{
  drop_box();
  box.polling = false;
  box.warned = false;
  pthread_mutex_init(&box.lock, NULL);
  init_news();
}

static void start_box(void)
{
  init_news();
  static tt_fork_hook hook = {.fn = forget_box};
  tt_proc_on_fork(&hook);
}

// Address of a mailbox in the abstract name space; its length is returned.
static socklen_t make_address(const char *name, struct sockaddr_un *a)
{
  size_t len = strlen(name);
  memset(a, 0, sizeof *a);
  a->sun_family = AF_UNIX;
  memcpy(a->sun_path + 1, name, len); // the leading 0 says: abstract
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

// Binds `sock` to a fresh name and listens. Returns 0 or an errno value.
static int listen_somewhere(int sock, char name[TT_FDBOX_NAME])
{
  struct sockaddr_un a;
  int e = EADDRINUSE;
  for (int i = 0; i < 8 && e == EADDRINUSE; i++) {
    uint64_t random;
    tt_random(&random, sizeof random);
    snprintf(name, TT_FDBOX_NAME, "tutti-%d-%016llx", (int)getpid(), (unsigned long long)random);
    socklen_t size = make_address(name, &a);
    e = bind(sock, (struct sockaddr *)&a, size) == 0 ? 0 : errno;
  }
  return e == 0 && listen(sock, BACKLOG) < 0 ? errno : e;
}

ncclResult_t tt_fdbox_listen(char name[TT_FDBOX_NAME], int *listener)
{
  int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int e = s < 0 ? errno : listen_somewhere(s, name);
  if (e != 0) {
    tt_fd_close(s);
    return tt_fail(ncclSystemError,
                   "cannot open a local socket to receive descriptors: %s (descriptor limit: see ulimit -n)",
                   strerror(e));
  }
  *listener = s;
  return ncclSuccess;
}

static ncclResult_t open_box_locked(void)
{
  if (!box.open) {
    TT_TRY(tt_fdbox_listen(box.name, &box.listener));
    box.open = true;
  }
  return ncclSuccess;
}

ncclResult_t tt_fdbox_open(char name[TT_FDBOX_NAME])
{
  pthread_once(&once, start_box);
  pthread_mutex_lock(&box.lock);
  ncclResult_t res = open_box_locked();
  if (res == ncclSuccess) {
    memcpy(name, box.name, sizeof box.name);
  }
  pthread_mutex_unlock(&box.lock);
  return res;
}

// Sends key and descriptor over a connected socket in one piece. Returns 0 or an errno value.
static int send_message(int sock, const tt_fdkey *key, int fd)
{
  message m = {.magic = MAGIC, .key = key != NULL ? *key : (tt_fdkey){{0}}};
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec iov = {.iov_base = &m, .iov_len = sizeof m};
  struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *c = CMSG_FIRSTHDR(&h);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  ssize_t n = sendmsg(sock, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
  return n == (ssize_t)sizeof m ? 0 : n < 0 ? errno : EPROTO;
}

// One attempt on a socket of its own. Returns 0 or an errno value; EACCES when the mailbox is another user's.
static int push_once(const char *name, const tt_fdkey *key, int fd)
{
  struct sockaddr_un a;
  socklen_t size = make_address(name, &a);
  int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s < 0) {
    return errno;
  }
  int e = connect(s, (struct sockaddr *)&a, size) == 0 ? 0 : errno;
  if (e == 0) {
    e = is_friend(s) ? send_message(s, key, fd) : EACCES; // a name whose process has ended can be taken by anybody
  }
  close(s);
  return e;
}

// Between two attempts: receives for this process, because the other side may be waiting in a push to us in just the
// same way.
static void pause_push(void)
{
  pthread_mutex_lock(&box.lock);
  if (box.open && !box.polling) {
    drain();
  }
  pthread_mutex_unlock(&box.lock);
  tt_sleep_ns(TT_NS_PER_MS);
}

static bool is_transient(int e, int *hangups)
{
  if (e == EPIPE || e == ECONNRESET) { // dropped as silent between connect and send, or its process is ending
    return ++*hangups < PUSH_TRIES;
  }
  return e == EAGAIN || e == EINTR || e == ETOOMANYREFS || e == ENOBUFS || e == ENOMEM;
}

ncclResult_t tt_fdbox_push(const char *name, const tt_fdkey *key, int fd)
{
  size_t len = strnlen(name, TT_FDBOX_NAME);
  if (len == 0 || len == TT_FDBOX_NAME) {
    return tt_fail(ncclSystemError, "cannot pass descriptor %d: the mailbox's name has %zu bytes, 1 to %d are allowed",
                   fd, len, TT_FDBOX_NAME - 1);
  }
  pthread_once(&once, start_box);
  uint64_t end = tt_now_ns() + PUSH_NS;
  int hangups = 0;
  int e = push_once(name, key, fd);
  for (int tries = 1; e != 0 && is_transient(e, &hangups) && (tries < PUSH_LEAST || tt_now_ns() < end); tries++) {
    pause_push();
    e = push_once(name, key, fd);
  }
  if (e == 0) {
    return ncclSuccess;
  }
  if (e == ECONNREFUSED || e == EPIPE || e == ECONNRESET || e == EACCES) {
    return tt_fail(ncclRemoteError,
                   "cannot pass descriptor %d to mailbox '%s': %s (its process ended, is another user's, or is in "
                   "another network namespace)",
                   fd, name, strerror(e));
  }
  const char *hint =
      e == EAGAIN ? "its queue stayed full for a second: is the process stopped?" : "descriptor limit: see ulimit -n";
  return tt_fail(ncclSystemError, "cannot pass descriptor %d to mailbox '%s': %s (%s)", fd, name, strerror(e), hint);
}

static ncclResult_t fail_late(const tt_fdkey *key, int timeout_ms)
{
  if (timeout_ms <= 0) {
    return ncclSystemError; // a mere look: the caller asked whether, and says what it means
  }
  return tt_fail(
      ncclSystemError,
      "no descriptor arrived in mailbox %s under key %02x%02x%02x%02x... within %d ms (%d others wait there)%s",
      box.name, key->bytes[0], key->bytes[1], key->bytes[2], key->bytes[3], timeout_ms, box.items.n,
      box.starved ? ": this process may open no more descriptors (see ulimit -n)" : "");
}

// tt_fdbox_take with the lock held. Looks once more when time is up: the thread may have been late, and what it waits
// for may lie in the queue.
static ncclResult_t take_locked(const tt_fdkey *key, int timeout_ms, const volatile uint32_t *abort_flag, int *fd)
{
  uint64_t end = tt_now_ns() + (uint64_t)TT_MAX(timeout_ms, 0) * TT_NS_PER_MS;
  bool looked = false;
  while (!claim(key, fd)) {
    uint64_t now = tt_now_ns();
    if (tt_aborted(abort_flag)) {
      return ncclInternalError;
    }
    if (now >= end && looked) {
      return fail_late(key, timeout_ms);
    }
    uint64_t slice = TT_MIN(end - TT_MIN(now, end), SLICE_NS);
    if (slice == 0) {
      drain();
      looked = true;
    } else if (box.polling) {
      await_news(slice);
    } else {
      poll_sockets(slice);
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_fdbox_take(const tt_fdkey *key, int timeout_ms, const volatile uint32_t *abort_flag, int *fd)
{
  pthread_once(&once, start_box);
  pthread_mutex_lock(&box.lock);
  ncclResult_t res = open_box_locked();
  if (res == ncclSuccess) {
    res = take_locked(key, timeout_ms, abort_flag, fd);
  }
  if (!box.polling) {
    pthread_cond_signal(&box.news); // the next waiter polls
  }
  pthread_mutex_unlock(&box.lock);
  return res;
}

ncclResult_t tt_fdbox_accept(int listener, int *fd)
{
  tt_fdkey key;
  int s, e = 0, got = -1;
  pthread_mutex_lock(&box.lock);
  while (got < 0 && e == 0) {
    TT_RETRY(s, accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    e = s < 0 ? errno : 0;
    if (s >= 0 && is_friend(s)) {
      hear(s, &key, &got);
    }
    tt_fd_close(s);
  }
  pthread_mutex_unlock(&box.lock);
  if (got < 0) {
    return tt_fail(ncclSystemError, "no descriptor lies in the mailbox: %s (descriptor limit: see ulimit -n)",
                   strerror(e));
  }
  *fd = got;
  return ncclSuccess;
}

void tt_fdbox_unlisten(int listener)
{
  int s;
  shutdown(listener, SHUT_RDWR); // a child of a fork may have it still
  do {
    TT_RETRY(s, accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    tt_fd_close(s);
  } while (s >= 0);
  tt_fd_close(listener);
}
