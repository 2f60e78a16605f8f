// fdbox_test.c: descriptors between threads and processes, among strangers, and nothing left behind.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/fdbox.c"

#define THREADS 64
#define LONG_MS 100000  // longer than any test: reaching it means that something was lost
#define SILENCE_MS 2000 // how long a connection may say nothing, as fdbox.c has it

static char box_name[TT_FDBOX_NAME];

// Closes the mailbox and everything unclaimed in it.
static void close_mailbox(void)
{
  pthread_mutex_lock(&box.lock);
  drop_box();
  pthread_mutex_unlock(&box.lock);
}

static tt_fdkey key_numbered(unsigned n)
{
  tt_fdkey k;
  memset(&k, 0x5a, sizeof k);
  memcpy(&k, &n, sizeof n);
  return k;
}

// A descriptor that can be told from others: a file with a number in it.
static int make_file(int value)
{
  int fd = memfd_create("fdbox_test", MFD_CLOEXEC);
  return pwrite(fd, &value, sizeof value, 0) == sizeof value ? fd : -1;
}

// Reads and closes what make_file gave; -1 when it is something else.
static int close_file(int fd)
{
  int value = -1;
  if (pread(fd, &value, sizeof value, 0) != sizeof value) {
    value = -1;
  }
  close(fd);
  return value;
}

static ncclResult_t push_value(const char *name, unsigned key, int value)
{
  tt_fdkey k = key_numbered(key);
  int fd = make_file(value);
  ncclResult_t res = tt_fdbox_push(name, &k, fd);
  close(fd);
  return res;
}

// The number in the file taken under `key`, or -1000 - code.
static int take_value(unsigned key, int timeout_ms)
{
  tt_fdkey k = key_numbered(key);
  int fd = -77;
  ncclResult_t res = tt_fdbox_take(&k, timeout_ms, NULL, &fd);
  if (res != ncclSuccess) {
    return fd == -77 ? -1000 - (int)res : -9999; // outputs are written on success only
  }
  return close_file(fd);
}

static int count_fds(void)
{
  DIR *d = opendir("/proc/self/fd");
  int n = 0;
  while (readdir(d) != NULL) {
    n++;
  }
  closedir(d);
  return n;
}

static int ms_since(uint64_t t0)
{
  return (int)((tt_now_ns() - t0) / TT_NS_PER_MS);
}

// A connection to our mailbox that has said nothing yet.
static int connect_to_box(const char *name)
{
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  memcpy(a.sun_path + 1, name, strlen(name));
  int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
  if (s >= 0 && connect(s, (struct sockaddr *)&a, size) != 0) {
    close(s);
    return -1;
  }
  return s;
}

// The message as a push writes it, spelled out a second time.
static void make_message(unsigned char out[32], unsigned key)
{
  tt_fdkey k = key_numbered(key);
  uint64_t magic = 0x7474666462783031ull;
  memcpy(out, &magic, 8);
  memcpy(out + 8, &k, 24);
}

static bool send_raw(int sock, const void *data, size_t size, int nfds)
{
  int fds[8];
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {0};
  struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
  struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
  for (int i = 0; i < nfds; i++) {
    fds[i] = make_file(i);
  }
  if (nfds > 0) {
    h.msg_control = control;
    h.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
  }
  bool ok = sendmsg(sock, &h, MSG_NOSIGNAL) == (ssize_t)size;
  for (int i = 0; i < nfds; i++) {
    close(fds[i]);
  }
  return ok;
}

// A child that ends with its parent.
static pid_t fork_pusher(void)
{
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
      _exit(99);
    }
  }
  return pid;
}

static int exit_code(pid_t pid)
{
  int status;
  if (waitpid(pid, &status, 0) != pid) {
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int open_test_box(void **state)
{
  (void)state;
  return tt_fdbox_open(box_name) == ncclSuccess ? 0 : -1;
}

static int close_box(void **state)
{
  (void)state;
  close_mailbox();
  return 0;
}

static void test_same_process(void **state)
{
  (void)state;
  char again[TT_FDBOX_NAME];
  assert_int_equal(tt_fdbox_open(again), ncclSuccess);
  assert_string_equal(again, box_name);
  assert_int_equal(take_value(1, 0), -1000 - (int)ncclSystemError);
  assert_int_equal(push_value(box_name, 1, 11), ncclSuccess);
  assert_int_equal(push_value(box_name, 2, 22), ncclSuccess);
  assert_int_equal(push_value(box_name, 1, 12), ncclSuccess);
  assert_int_equal(take_value(2, 0), 22);
  assert_int_equal(take_value(1, 1000), 11);
  assert_int_equal(take_value(1, 0), 12);
  assert_int_equal(take_value(1, 0), -1000 - (int)ncclSystemError);
}

static void test_close_on_exec(void **state)
{
  (void)state;
  tt_fdkey k = key_numbered(5);
  int fd = -1, mine = open("/dev/null", O_RDONLY); // without the flag: it must come from the receiving side
  assert_int_equal(tt_fdbox_push(box_name, &k, mine), ncclSuccess);
  assert_int_equal(tt_fdbox_take(&k, 1000, NULL, &fd), ncclSuccess);
  assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  assert_int_not_equal(fd, mine);
  close(fd);
  close(mine);
}

static void test_processes(void **state)
{
  (void)state;
  enum { N = 20 };
  pid_t pids[N];
  for (unsigned i = 0; i < N; i++) {
    pids[i] = fork_pusher();
    if (pids[i] == 0) {
      _exit(push_value(box_name, 100 + i, (int)i) == ncclSuccess ? 0 : 1);
    }
  }
  for (unsigned i = N; i-- > 0;) {
    assert_int_equal(take_value(100 + i, LONG_MS), i);
  }
  for (int i = 0; i < N; i++) {
    assert_int_equal(exit_code(pids[i]), 0);
  }
}

// In a forked child: the parent's mailbox is not ours, ours is a new one, and closing it does not touch the parent's.
static int child_has_its_own(void)
{
  char mine[TT_FDBOX_NAME];
  if (take_value(7, 0) != -1000 - (int)ncclSystemError || tt_fdbox_open(mine) != ncclSuccess ||
      strcmp(mine, box_name) == 0) {
    return 1;
  }
  if (push_value(mine, 8, 88) != ncclSuccess || take_value(8, 1000) != 88) {
    return 2;
  }
  close_mailbox();
  return push_value(box_name, 9, 99) == ncclSuccess ? 0 : 3;
}

static void test_fork(void **state)
{
  (void)state;
  assert_int_equal(push_value(box_name, 7, 77), ncclSuccess);
  assert_true(take_value(12345, 0) < -1000); // now 7 lies unclaimed in the box
  pid_t pid = fork_pusher();
  if (pid == 0) {
    _exit(child_has_its_own());
  }
  assert_int_equal(exit_code(pid), 0);
  assert_int_equal(take_value(7, 0), 77);
  assert_int_equal(take_value(9, 1000), 99);
}

// A forked child must not hold open what waits in its parent's mailbox.
static void test_fork_holds_nothing(void **state)
{
  (void)state;
  int p[2], fd = -1;
  char c;
  tt_fdkey k = key_numbered(30);
  assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
  assert_int_equal(tt_fdbox_push(box_name, &k, p[1]), ncclSuccess);
  close(p[1]);
  assert_true(take_value(12345, 0) < -1000);
  pid_t pid = fork_pusher();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  assert_int_equal(tt_fdbox_take(&k, 1000, NULL, &fd), ncclSuccess);
  close(fd);
  ssize_t n = -1;
  for (int i = 0; i < LONG_MS / 10 && n != 0; i++) { // the child closes it in its own time
    n = read(p[0], &c, 1);
    tt_sleep_ns(n == 0 ? 0 : 10 * TT_NS_PER_MS);
  }
  assert_int_equal(n, 0);
  close(p[0]);
  kill(pid, SIGKILL);
  exit_code(pid);
}

static void *pass_on(void *arg)
{
  unsigned i = (unsigned)(uintptr_t)arg;
  intptr_t bad = 0;
  for (unsigned round = 0; round < 5; round++) {
    unsigned base = 1000 + round * THREADS;
    bad += push_value(box_name, base + (i * 7 + 1) % THREADS, (int)(base + i)) != ncclSuccess;
    int value = take_value(base + i, LONG_MS);
    bad += ((unsigned)value - base) * 7 % THREADS != (i + THREADS - 1) % THREADS;
  }
  return (void *)bad;
}

static void test_threads(void **state)
{
  (void)state;
  pthread_t t[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_create(&t[i], NULL, pass_on, (void *)i), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    void *bad = NULL;
    pthread_join(t[i], &bad);
    assert_null(bad);
  }
}

static void *take_late(void *arg)
{
  return (void *)(intptr_t)take_value((unsigned)(uintptr_t)arg, LONG_MS);
}

// Everybody waits before the first push: one thread receives for all others, in an order that is not theirs.
static void test_threads_wait_first(void **state)
{
  (void)state;
  pthread_t t[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_create(&t[i], NULL, take_late, (void *)(2000 + i)), 0);
  }
  tt_sleep_ns(50 * TT_NS_PER_MS);
  for (unsigned i = 0; i < THREADS; i++) {
    unsigned j = i * 37 % THREADS;
    assert_int_equal(push_value(box_name, 2000 + j, (int)j), ncclSuccess);
  }
  for (int i = 0; i < THREADS; i++) {
    void *value = NULL;
    pthread_join(t[i], &value);
    assert_int_equal((intptr_t)value, i);
  }
}

// Connections that say something wrong are dropped at once, and nothing they bring along stays open.
static void test_strangers(void **state)
{
  (void)state;
  unsigned char text[128];
  memset(text, 'x', sizeof text);
  make_message(text, 40);
  int before = count_fds();
  int s[8];
  for (int i = 0; i < 8; i++) {
    s[i] = connect_to_box(box_name);
    assert_true(s[i] >= 0);
  }
  assert_true(send_raw(s[0], "GET / HTTP/1.0\r\n\r\n", 18, 0));
  assert_true(send_raw(s[1], text, 16, 1));     // half a message
  assert_true(send_raw(s[2], text, 32, 0));     // no descriptor
  assert_true(send_raw(s[3], text, 32, 2));     // two
  assert_true(send_raw(s[4], text, 32, 8));     // more than the receiver has room for
  assert_true(send_raw(s[5], text, 33, 1));     // too long
  assert_true(send_raw(s[6], text + 1, 32, 1)); // wrong magic number
  shutdown(s[7], SHUT_RDWR);
  assert_int_equal(push_value(box_name, 41, 41), ncclSuccess);
  assert_int_equal(take_value(41, LONG_MS), 41);
  assert_true(take_value(40, 0) < -1000);
  char c;
  for (int i = 0; i < 8; i++) {
    assert_true(read(s[i], &c, 1) <= 0 || i == 7);
    assert_int_not_equal(send(s[i], "x", 1, MSG_NOSIGNAL), 1); // the other side has hung up
    close(s[i]);
  }
  assert_int_equal(count_fds(), before);
}

// Holds `n` silent connections to the mailbox in a child; it says so in *ready.
static pid_t start_flood(int n, _Atomic int *ready)
{
  pid_t pid = fork_pusher();
  if (pid != 0) {
    return pid;
  }
  for (int i = 0; i < n; i++) {
    if (connect_to_box(box_name) >= 0) {
      *ready += 1;
    }
  }
  *ready += 100000;
  for (;;) {
    pause();
  }
}

static void test_flood(void **state)
{
  (void)state;
  _Atomic int *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int before = count_fds();
  pid_t pid = start_flood(500, ready);
  while (*ready < 100000) {
    tt_sleep_ns(TT_NS_PER_MS);
  }
  assert_int_equal(*ready, 100500);
  uint64_t t0 = tt_now_ns();
  for (int i = 0; i < 20; i++) {
    assert_int_equal(push_value(box_name, 50, i), ncclSuccess);
    assert_int_equal(take_value(50, LONG_MS), i);
  }
  int heard = count_fds() - before;
  assert_true(heard >= 400 || ms_since(t0) >= SILENCE_MS); // they are still heard
  for (int i = 0; i < LONG_MS / 100 && count_fds() > before; i++) {
    assert_true(take_value(51, 100) < -1000);
  }
  assert_int_equal(count_fds(), before); // and now no longer
  kill(pid, SIGKILL);
  exit_code(pid);
  munmap(ready, 4096);
}

// In a child with few descriptors: silent connections give way to one that speaks.
static int receive_with_few(void)
{
  char mine[TT_FDBOX_NAME];
  if (tt_fdbox_open(mine) != ncclSuccess) {
    return 1;
  }
  int last = dup(0); // the first free number
  close(last);
  int s[64];
  for (int i = 0; i < 64; i++) {
    s[i] = connect_to_box(mine);
  }
  if (push_value(mine, 60, 6) != ncclSuccess) {
    return 2;
  }
  struct rlimit few = {.rlim_cur = (rlim_t)s[63] + 9, .rlim_max = (rlim_t)s[63] + 9};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0) {
    return 3;
  }
  return take_value(60, 1500) == 6 ? 0 : 4; // sooner than silence ends by itself
}

static void test_few_descriptors(void **state)
{
  (void)state;
  pid_t pid = fork_pusher();
  if (pid == 0) {
    _exit(receive_with_few());
  }
  assert_int_equal(exit_code(pid), 0);
}

static void test_timeout(void **state)
{
  (void)state;
  assert_int_equal(push_value(box_name, 70, 70), ncclSuccess);
  uint64_t t0 = tt_now_ns();
  assert_int_equal(take_value(71, 80), -1000 - (int)ncclSystemError); // the wrong key
  assert_in_range(ms_since(t0), 80, LONG_MS / 3);
  assert_int_equal(take_value(70, 0), 70);
}

typedef struct waiter {
  unsigned key;
  volatile uint32_t *abort_flag;
  ncclResult_t res;
} waiter;

static void *wait_for_abort(void *arg)
{
  waiter *w = arg;
  tt_fdkey k = key_numbered(w->key);
  int fd;
  w->res = tt_fdbox_take(&k, LONG_MS, w->abort_flag, &fd);
  return NULL;
}

// Two waiters, since one polls and the other sleeps behind it.
static void test_abort(void **state)
{
  (void)state;
  static volatile uint32_t flag;
  waiter w[2] = {{.key = 80, .abort_flag = &flag}, {.key = 81, .abort_flag = &flag}};
  pthread_t t[2];
  for (int i = 0; i < 2; i++) {
    pthread_create(&t[i], NULL, wait_for_abort, &w[i]);
  }
  tt_sleep_ns(50 * TT_NS_PER_MS);
  uint64_t t0 = tt_now_ns();
  __atomic_store_n(&flag, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < 2; i++) {
    pthread_join(t[i], NULL);
    assert_int_equal(w[i].res, ncclInternalError);
  }
  assert_in_range(ms_since(t0), 0, LONG_MS / 3); // not only when their time is over
}

// Starts a child with a mailbox; it calls `fn` and then sleeps, or ends when `fn` is NULL. Its mailbox's name is
// written to `name`.
static pid_t start_receiver(char name[TT_FDBOX_NAME], int (*fn)(void))
{
  int p[2];
  assert_int_equal(pipe2(p, O_CLOEXEC), 0);
  pid_t pid = fork_pusher();
  if (pid == 0) {
    char mine[TT_FDBOX_NAME] = "";
    int bad = fn != NULL && fn() != 0;
    bad = bad || tt_fdbox_open(mine) != ncclSuccess || write(p[1], mine, sizeof mine) != sizeof mine;
    if (fn != NULL && !bad) {
      pause();
    }
    _exit(bad);
  }
  close(p[1]);
  assert_int_equal(read(p[0], name, TT_FDBOX_NAME), TT_FDBOX_NAME);
  close(p[0]);
  return pid;
}

static void test_receiver_gone(void **state)
{
  (void)state;
  char name[TT_FDBOX_NAME];
  assert_int_equal(exit_code(start_receiver(name, NULL)), 0);
  assert_int_equal(push_value(name, 1, 1), ncclRemoteError);
  assert_int_equal(push_value("", 1, 1), ncclSystemError);
  char too_long[TT_FDBOX_NAME + 1];
  memset(too_long, 'n', sizeof too_long);
  assert_int_equal(push_value(too_long, 1, 1), ncclSystemError);
}

static int takes_nothing(void)
{
  return 0;
}

static void fill_queue(const char *name)
{
  int s;
  while ((s = connect_to_box(name)) >= 0) {
    close(s); // stays in the queue all the same
  }
}

static void test_full_queue(void **state)
{
  (void)state;
  char name[TT_FDBOX_NAME];
  pid_t pid = start_receiver(name, takes_nothing);
  fill_queue(name);
  uint64_t t0 = tt_now_ns();
  assert_int_equal(push_value(name, 1, 1), ncclSystemError);
  assert_in_range(ms_since(t0), 900, LONG_MS);
  kill(pid, SIGKILL);
  exit_code(pid);
}

// A pusher receives while it waits: two processes that push to each other with full queues come through.
static void test_full_queue_of_ours(void **state)
{
  (void)state;
  fill_queue(box_name);
  assert_int_equal(push_value(box_name, 90, 90), ncclSuccess);
  assert_int_equal(take_value(90, LONG_MS), 90);
}

// Changing the user forgets that we want to end with our parent, so it is said again.
static int become_nobody(void)
{
  return setgid(65534) == 0 && setuid(65534) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 ? 0 : 1;
}

static void test_other_user(void **state)
{
  (void)state;
  if (geteuid() != 0) {
    skip();
  }
  pid_t pid = fork_pusher();
  if (pid == 0) { // root may hear from the child what it likes; it does not listen
    _exit(become_nobody() == 0 && push_value(box_name, 95, 95) == ncclSuccess ? 0 : 1);
  }
  assert_int_equal(exit_code(pid), 0);
  assert_true(take_value(95, 100) < -1000);
  char name[TT_FDBOX_NAME];
  pid = start_receiver(name, become_nobody);
  // A stranger under a known name gets no descriptor of ours.
  assert_int_equal(push_value(name, 96, 96), ncclRemoteError);
  kill(pid, SIGKILL);
  exit_code(pid);
}

static void test_no_leak(void **state)
{
  (void)state;
  int before = count_fds();
  for (int i = 0; i < 200; i++) {
    assert_int_equal(push_value(box_name, 3000, i), ncclSuccess);
    assert_int_equal(push_value(box_name, 3001, i), ncclSuccess);
    assert_int_equal(take_value(3000, 1000), i);
    assert_int_equal(take_value(3001, 1000), i);
    int s = connect_to_box(box_name);
    assert_true(send_raw(s, "junk", 4, i % 4));
    close(s);
    assert_true(take_value(3000, 0) < -1000);
  }
  assert_int_equal(count_fds(), before);
  assert_int_equal(push_value(box_name, 3002, 1), ncclSuccess);
  assert_true(take_value(3000, 0) < -1000);
  close_mailbox();
  assert_int_equal(count_fds(), before - 1); // the listener and what nobody claimed
  assert_int_equal(tt_fdbox_open(box_name), ncclSuccess);
}

// More than the mailbox keeps: the oldest give way.
static void test_unclaimed_bound(void **state)
{
  (void)state;
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 1200) {
    skip();
  }
  for (unsigned i = 0; i < 1030; i++) {
    assert_int_equal(push_value(box_name, 4000 + i, (int)i), ncclSuccess);
    assert_true(i % 64 != 0 || take_value(3999, 0) < -1000);
  }
  assert_true(take_value(4000, 100) < -1000);
  assert_int_equal(take_value(4000 + 1029, 100), 1029);
  assert_true(count_fds() < 1024 + 64);
}

// The write end of a pipe, given to the mailbox and kept by nobody else. Returns the read end.
static int push_pipe(const char *name)
{
  int ends[2];
  assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  assert_int_equal(tt_fdbox_push(name, NULL, ends[1]), ncclSuccess);
  close(ends[1]);
  return ends[0];
}

// Is the other end gone? Closes the read end.
static bool pipe_ends(int end)
{
  char byte;
  const bool ends = read(end, &byte, 1) == 0;
  close(end);
  return ends;
}

// A mailbox of one's own: what lies there goes with it, also when a child still has the socket, and nothing comes
// later.
static void test_own(void **state)
{
  (void)state;
  char name[TT_FDBOX_NAME];
  int listener, fd = -77, before = count_fds(), held[2];
  assert_int_equal(tt_fdbox_listen(name, &listener), ncclSuccess);
  assert_int_equal(tt_fdbox_accept(listener, &fd), ncclSystemError);
  assert_int_equal(fd, -77);
  const int stranger = connect_to_box(name), silent = connect_to_box(name);
  assert_true(send_raw(stranger, "junk", 4, 2));
  assert_int_equal(push_value(name, 1, 11), ncclSuccess);
  assert_int_equal(push_value(name, 1, 12), ncclSuccess);
  assert_int_equal(tt_fdbox_accept(listener, &fd), ncclSuccess);
  assert_int_equal(close_file(fd), 11);
  assert_int_equal(tt_fdbox_accept(listener, &fd), ncclSuccess);
  assert_int_equal(close_file(fd), 12);
  assert_int_equal(take_value(1, 0), -1000 - (int)ncclSystemError);
  close(stranger);
  close(silent);
  assert_int_equal(pipe(held), 0);
  const pid_t child = fork_pusher();
  if (child == 0) {
    char byte;
    close(held[1]);
    _exit(read(held[0], &byte, 1) != 0);
  }
  close(held[0]);
  const int end = push_pipe(name);
  tt_fdbox_unlisten(listener);
  assert_true(pipe_ends(end));
  assert_int_equal(push_value(name, 1, 13), ncclRemoteError);
  close(held[1]);
  assert_int_equal(exit_code(child), 0);
  assert_int_equal(count_fds(), before);
}

#define T(f) cmocka_unit_test_setup_teardown(f, open_test_box, close_box)

int main(void)
{
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const struct CMUnitTest tests[] = {
      T(test_same_process),
      T(test_close_on_exec),
      T(test_processes),
      T(test_fork),
      T(test_fork_holds_nothing),
      T(test_threads),
      T(test_threads_wait_first),
      T(test_strangers),
      T(test_flood),
      T(test_few_descriptors),
      T(test_timeout),
      T(test_abort),
      T(test_receiver_gone),
      T(test_full_queue),
      T(test_full_queue_of_ours),
      T(test_other_user),
      T(test_no_leak),
      T(test_unclaimed_bound),
      T(test_own),
  };
  return cmocka_run_group_tests_name("fdbox", tests, NULL, NULL);
}
