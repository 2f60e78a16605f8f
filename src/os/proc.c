// proc.c: see proc.h.
#define _GNU_SOURCE
#include "os/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "os/folder.h"
#include "os/random.h"
#include "os/shm.h"

#define MAX_LOCKS 32

uint32_t tt_proc_generation;

static tt_proc_id self; // written under `once` and in a forked child, which has one thread
static pthread_once_t once = PTHREAD_ONCE_INIT;

// This and each `next` are written once, by the thread that finds them NULL: a fork finds the list whole at any moment.
static tt_fork_hook *hooks;

// Locks that are held across a fork, in the order in which they are taken. All under `fork_lock`, which is itself held
// first and given back last.
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *locks[MAX_LOCKS];
static int nlocks;

// What /proc/<pid>/stat says that matters here.
typedef struct stat_line {
  char state;
  uint64_t threads;
  uint64_t start;
} stat_line;

// False when the process or thread is gone, or /proc cannot be read.
static bool read_stat_file(const char *path, stat_line *out)
{
  char text[1024];
  if (!tt_file_text(path, text, sizeof text)) {
    return false;
  }
  char *p = strrchr(text, ')'); // the name may hold anything, so count fields from its end
  if (p == NULL || p[1] == 0) {
    return false;
  }
  p += 2;
  out->state = *p;
  for (int field = 3; field < 22 && p != NULL; field++) {
    out->threads = field == 20 ? strtoull(p, NULL, 10) : out->threads;
    p = strchr(p, ' ');
    p = p == NULL ? NULL : p + 1;
  }
  out->start = p == NULL ? 0 : strtoull(p, NULL, 10);
  return p != NULL;
}

static bool read_stat(int32_t pid, stat_line *out)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  return read_stat_file(path, out);
}

char tt_proc_doing(int32_t pid)
{
  char path[320];
  stat_line st;
  char first = read_stat(pid, &st) ? st.state : 0, state = first;
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR *d = first == 'S' || first == 'D' ? opendir(path) : NULL;
  for (const struct dirent *e; d != NULL && state != 'R' && (e = readdir(d)) != NULL;) {
    snprintf(path, sizeof path, "/proc/%d/task/%s/stat", pid, e->d_name);
    state = e->d_name[0] != '.' && read_stat_file(path, &st) && st.state == 'R' ? 'R' : state;
  }
  if (d != NULL) {
    closedir(d);
  }
  return state;
}

static bool proc_has_ended(int32_t pid)
{
  return kill(pid, 0) != 0 && errno == ESRCH;
}

// The number behind `key` in /proc/<pid>/status, in KiB; 0: none.
static uint64_t proc_kib(int32_t pid, const char *key)
{
  char path[64], text[4096];
  snprintf(path, sizeof path, "/proc/%d/status", pid);
  const char *p = tt_file_text(path, text, sizeof text) ? strstr(text, key) : NULL;
  return p == NULL ? 0 : strtoull(p + strlen(key), NULL, 10);
}

// System calls in which threads sleep.
static const struct {
  long number;
  const char *name;
} sleeping_calls[] = {{SYS_futex, "futex, a lock or condition"},
                      {SYS_read, "read"},
                      {SYS_write, "write"},
                      {SYS_ppoll, "poll"},
                      {SYS_pselect6, "select"},
                      {SYS_epoll_pwait, "epoll_wait"},
                      {SYS_nanosleep, "nanosleep"},
                      {SYS_clock_nanosleep, "nanosleep"},
                      {SYS_wait4, "wait for a child"},
                      {SYS_waitid, "wait for a child"},
                      {SYS_connect, "connect"},
                      {SYS_accept, "accept"},
                      {SYS_accept4, "accept"},
                      {SYS_recvfrom, "recv"},
                      {SYS_recvmsg, "recv"},
                      {SYS_sendto, "send"},
                      {SYS_sendmsg, "send"},
                      {SYS_flock, "flock, a file's lock"},
                      {SYS_rt_sigtimedwait, "sigwait"},
                      {SYS_rt_sigsuspend, "sigsuspend"},
#ifdef SYS_pause
                      {SYS_pause, "pause"},
                      {SYS_poll, "poll"},
                      {SYS_select, "select"},
                      {SYS_epoll_wait, "epoll_wait"},
#endif
                      {SYS_futex_waitv, "futex, a lock or condition"}};

// What system call the process's first thread sleeps in; NULL: not known. Needs the right to look into the process.
static const char *proc_sleeps_in(int32_t pid)
{
  char path[64], text[256];
  snprintf(path, sizeof path, "/proc/%d/syscall", pid);
  if (!tt_file_text(path, text, sizeof text) || text[0] < '0' || text[0] > '9') {
    return NULL;
  }
  long number = strtol(text, NULL, 10);
  for (size_t i = 0; i < TT_COUNT(sleeping_calls); i++) {
    if (sleeping_calls[i].number == number) {
      return sleeping_calls[i].name;
    }
  }
  return NULL;
}

bool tt_proc_describe(int32_t pid, char text[TT_PROC_TEXT])
{
  char doing = tt_proc_doing(pid);
  const char *call = doing == 'S' ? proc_sleeps_in(pid) : NULL;
  const char *what = doing == 'T'   ? "is stopped by a signal (kill -CONT lets it go on)"
                     : doing == 't' ? "is stopped by a debugger"
                     : doing == 'R' ? "computes"
                     : doing == 'Z' || (doing == 0 && proc_has_ended(pid)) ? "has exited"
                     : doing != 0 && proc_kib(pid, "VmSwap:") > proc_kib(pid, "VmRSS:")
                         ? "sleeps, and most of it is swapped out"
                     : doing == 'D' ? "waits for a disk or for memory"
                     : doing == 'S' ? "sleeps"
                                    : NULL;
  snprintf(text, TT_PROC_TEXT, "%s%s%s", what != NULL ? what : "", call != NULL ? " in " : "",
           call != NULL ? call : "");
  return what != NULL;
}

static void identify_proc(void)
{
  stat_line st;
  self = (tt_proc_id){.pid = getpid(), .uid = geteuid()};
  if (read_stat(self.pid, &st)) {
    self.start = st.start;
  }
  tt_random(&self.cookie, sizeof self.cookie);
}

static void before_fork(void)
{
  pthread_mutex_lock(&fork_lock);
  for (int i = 0; i < nlocks; i++) {
    pthread_mutex_lock(locks[i]);
  }
}

static void after_fork(void)
{
  for (int i = nlocks - 1; i >= 0; i--) {
    pthread_mutex_unlock(locks[i]);
  }
  pthread_mutex_unlock(&fork_lock);
}

static void after_fork_in_child(void)
{
  after_fork();
  tt_log_forked();
  __atomic_fetch_add(&tt_proc_generation, 1, __ATOMIC_RELAXED);
  identify_proc();
  for (const tt_fork_hook *h = hooks; h != NULL; h = h->next) {
    h->fn();
  }
}

static void start_proc(void)
{
  identify_proc();
  pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

tt_proc_id tt_proc_self(void)
{
  pthread_once(&once, start_proc);
  return self;
}

void tt_proc_on_fork(tt_fork_hook *hook)
{
  pthread_once(&once, start_proc);
  tt_fork_hook *none = NULL;
  for (tt_fork_hook **at = &hooks;
       !__atomic_compare_exchange_n(at, &none, hook, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) && none != hook;
       none = NULL) {
    at = &none->next;
  }
}

void tt_proc_hold_at_fork(pthread_mutex_t *lock)
{
  pthread_once(&once, start_proc);
  pthread_mutex_lock(&fork_lock);
  bool room = nlocks < MAX_LOCKS;
  if (room) {
    locks[nlocks] = lock;
    nlocks++;
  }
  pthread_mutex_unlock(&fork_lock);
  if (!room) {
    tt_warn("no room for a lock that forks must hold: %d are listed (MAX_LOCKS in proc.c)", MAX_LOCKS);
  }
}

bool tt_proc_alive(const tt_proc_id *id)
{
  stat_line st;
  if (!read_stat(id->pid,
                 &st)) { // gone, or this process may open no more files: then the kernel's word on the number has to do
    return kill(id->pid, 0) == 0 || errno == EPERM;
  }
  // A main thread that left others behind is a zombie, too.
  bool ended = st.state == 'X' || (st.state == 'Z' && st.threads <= 1);
  return !ended && (id->start == 0 || st.start == id->start);
}

// The byte of a process, which may lie beyond the file's end.
static struct flock byte_of_proc(uint64_t cookie)
{
  return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(cookie >> 2), .l_len = 1};
}

ncclResult_t tt_proc_hold(int fd)
{
  struct flock mine = byte_of_proc(tt_proc_self().cookie);
  if (fcntl(fd, F_SETLK, &mine) < 0) {
    return tt_fail(ncclSystemError,
                   "cannot lock a byte of shared memory, by which other processes see that this one lives: fcntl: %s",
                   strerror(errno));
  }
  return ncclSuccess;
}

bool tt_proc_holds(int fd, uint64_t cookie)
{
  struct flock theirs = byte_of_proc(cookie);
  return fcntl(fd, F_GETLK, &theirs) < 0 || theirs.l_type != F_UNLCK;
}

uint64_t tt_proc_net_space(void)
{
  uint64_t cookie = 0;
  struct stat st;
#ifdef SO_NETNS_COOKIE
  int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  socklen_t size = sizeof cookie;
  if (s < 0 || getsockopt(s, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) != 0) {
    cookie = 0;
  }
  tt_fd_close(s);
#endif
  return cookie != 0 ? cookie : stat("/proc/self/ns/net", &st) == 0 ? (uint64_t)st.st_ino : 0; // Linux before 5.14
}

uint64_t tt_proc_pid_space(void)
{
  struct stat st;
  tt_proc_id me = tt_proc_self();
  return tt_proc_alive(&me) && stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

// The kernel asks for the same right to read where a process works as to open its descriptors.
bool tt_proc_may_open(int32_t pid, uint64_t space)
{
  char path[64], where[1];
  snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
  return space != 0 && space == tt_proc_pid_space() && readlink(path, where, sizeof where) >= 0;
}

// Is what `held` holds shared memory of tt_shm_create with that name and inode number?
static bool is_shm(int held, const char *name, uint64_t inode)
{
  char path[64], is[128], wanted[128];
  struct stat st;
  snprintf(path, sizeof path, "/proc/self/fd/%d", held);
  snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", name != NULL ? name : "tutti-");
  ssize_t n = readlink(path, is, sizeof is - 1);
  is[n > 0 ? n : 0] = 0;
  bool named = name != NULL ? strcmp(is, wanted) == 0 : strncmp(is, wanted, strlen("/memfd:tutti-")) == 0;
  return named && fstat(held, &st) == 0 && (inode == 0 || (uint64_t)st.st_ino == inode);
}

int tt_proc_open_shm(int32_t pid, int fd, const char *name, uint64_t inode, int *out)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
  int held = open(path, O_PATH | O_CLOEXEC); // opens nothing: it keeps what stands there now
  if (held < 0) {
    return errno;
  }
  int f = -1, e = ENOENT;
  if (is_shm(held, name, inode)) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", held);
    f = open(path, O_RDWR | O_CLOEXEC);
    e = f < 0 ? errno : 0;
  }
  close(held);
  if (e == 0) {
    *out = f;
  }
  return e;
}

ncclResult_t tt_proc_open_fd(const tt_proc_id *id, int fd, uint64_t inode, int *out)
{
  int e = tt_proc_alive(id) ? tt_proc_open_shm(id->pid, fd, NULL, inode, out) : ENOENT;
  if (e != 0 && e != ENOENT && tt_proc_alive(id)) {
    return tt_fail(ncclSystemError,
                   "cannot open shared memory of process %d: /proc/%d/fd/%d: %s (same user? same pid name space?)",
                   id->pid, id->pid, fd, strerror(e));
  }
  return e == 0 ? ncclSuccess
                : tt_fail(ncclInvalidArgument,
                          "the shared memory of process %d is gone: it was freed, or the process has ended", id->pid);
}

int tt_proc_copy(int32_t pid, void *local, uint64_t remote, size_t size, bool write)
{
  char *p = local;
  while (size > 0) {
    struct iovec mine = {.iov_base = p, .iov_len = size},
                 theirs = {.iov_base = (void *)(uintptr_t)remote, .iov_len = size};
    ssize_t n =
        write ? process_vm_writev(pid, &mine, 1, &theirs, 1, 0) : process_vm_readv(pid, &mine, 1, &theirs, 1, 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return n < 0 ? errno : EFAULT;
    }
    p += n;
    remote += (uint64_t)n;
    size -= (size_t)n;
  }
  return 0;
}

// Written once. A fork in the middle of it makes the child begin anew, which a lock would not.
static char host_name[256] = "localhost";
static pthread_once_t host_once = PTHREAD_ONCE_INIT;

static void read_host_name(void)
{
  char text[sizeof host_name] = "";
  if (gethostname(text, sizeof text - 1) == 0 && text[0] != 0) {
    text[strcspn(text, ".")] = 0;
    memcpy(host_name, text, sizeof host_name);
  }
}

const char *tt_proc_host_name(void)
{
  pthread_once(&host_once, read_host_name);
  return host_name;
}

uint64_t tt_proc_machine_hash(void)
{
  char boot[128];
  const char *name = tt_proc_host_name();
  bool found = tt_file_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
  return found ? tt_hash(boot, strlen(boot), 2) : tt_hash(name, strlen(name), 2);
}

uint64_t tt_proc_host_hash(void)
{
  const char *id = tt_params_get()->hostid, *name = tt_proc_host_name();
  if (id != NULL && id[0] != 0) {
    return tt_hash(id, strlen(id), 1);
  }
  uint64_t space = tt_proc_net_space();
  return tt_hash(&space, sizeof space, tt_hash(name, strlen(name), tt_proc_machine_hash()));
}

tt_core_set tt_proc_core_set(void)
{
  cpu_set_t set;
  tt_core_set s = {{0}};
  bool found = sched_getaffinity(0, sizeof set, &set) == 0;
  for (int i = 0; found && i < CPU_SETSIZE && i < (int)TT_COUNT(s.bits) * 64; i++) {
    s.bits[i / 64] |= (uint64_t)(CPU_ISSET(i, &set) != 0) << i % 64;
  }
  return s;
}

int tt_core_set_add(tt_core_set *s, const tt_core_set *more)
{
  int n = 0;
  for (size_t i = 0; i < TT_COUNT(s->bits); i++) {
    s->bits[i] |= more->bits[i];
    n += __builtin_popcountll(s->bits[i]);
  }
  return n;
}

int tt_proc_cpus(void)
{
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return TT_MAX(CPU_COUNT(&set), 1);
  }
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}
