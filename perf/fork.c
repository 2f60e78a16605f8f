// The launcher of -P: one supervisor forks the processes of the job. They meet in anonymous shared memory mapped before
// the fork.
#define _GNU_SOURCE // program_invocation_short_name, syscall
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bind.h"
#include "fail.h"
#include "launch.h"
#include "system.h"

enum { SLOT = 32 << 10, GRACE_MS = 1500 };

// In memory that all processes map.
typedef struct meeting {
  _Atomic uint32_t arrived;
  _Atomic uint32_t generation; // futex: changes when all have arrived, or when one is dead
  _Atomic uint32_t dead;
  _Atomic uint8_t done[PERF_MAX_RANKS]; // process i went through finalize
  char slots[];                         // SLOT bytes per process
} meeting;

typedef struct supervision {
  meeting *m;
  pid_t *pids;
  int procs, left, status;
  int ranks_each;
  int cores_each;       // that a process is bound to; 0: none
  uint64_t first_death; // ns; 0: none
  const char *who;
} supervision;

static bool wanted(const perf_options *o, const perf_place *p)
{
  (void)p;
  return o->procs > 1;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
  return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

// Waits until the generation is no longer `old`; false when somebody died.
static bool wait_generation(meeting *m, uint32_t old)
{
  const struct timespec look_again = {.tv_nsec = 100000000};
  for (;;) {
    if (atomic_load(&m->dead)) {
      return false;
    }
    if (atomic_load(&m->generation) != old) {
      return true;
    }
    futex(&m->generation, FUTEX_WAIT, old, &look_again);
  }
}

static bool barrier(perf_world *w)
{
  meeting *m = w->state;
  uint32_t old = atomic_load(&m->generation);
  if (atomic_fetch_add(&m->arrived, 1) + 1 < (uint32_t)w->procs) {
    return wait_generation(m, old);
  }
  atomic_store(&m->arrived, 0);
  atomic_fetch_add(&m->generation, 1);
  futex(&m->generation, FUTEX_WAKE, INT_MAX, NULL);
  return !atomic_load(&m->dead);
}

static bool allgather(perf_world *w, const void *mine, void *all, size_t size)
{
  meeting *m = w->state;
  for (size_t at = 0; at < size; at += SLOT) {
    size_t n = size - at < SLOT ? size - at : SLOT;
    memcpy(m->slots + (size_t)w->proc * SLOT, (const char *)mine + at, n);
    if (!barrier(w)) {
      return false;
    }
    for (size_t p = 0; p < (size_t)w->procs; p++) {
      memcpy((char *)all + p * size + at, m->slots + p * SLOT, n);
    }
    if (!barrier(w)) { // nobody overwrites a slot that is still being read
      return false;
    }
  }
  return true;
}

static bool bcast(perf_world *w, void *data, size_t size, int root)
{
  meeting *m = w->state;
  char *slot = m->slots + (size_t)root * SLOT;
  for (size_t at = 0; at < size; at += SLOT) {
    size_t n = size - at < SLOT ? size - at : SLOT;
    if (w->proc == root) {
      memcpy(slot, (char *)data + at, n);
    }
    if (!barrier(w)) {
      return false;
    }
    memcpy((char *)data + at, slot, n);
    if (!barrier(w)) {
      return false;
    }
  }
  return true;
}

static void finalize(perf_world *w, int status)
{
  (void)status;
  meeting *m = w->state;
  atomic_store(&m->done[w->proc], 1);
}

static void describe_end(const supervision *s, int proc, int wait_status, char *buf, size_t size)
{
  int first = proc * s->ranks_each, last = first + s->ranks_each - 1;
  int n = snprintf(buf, size, "%s: process %d (pid %d, rank", s->who, proc, (int)s->pids[proc]);
  n += last > first ? snprintf(buf + n, size - (size_t)n, "s %d-%d) ", first, last)
                    : snprintf(buf + n, size - (size_t)n, " %d) ", first);
  if (WIFSIGNALED(wait_status)) {
    snprintf(buf + n, size - (size_t)n, "was killed by signal %d (%s)", WTERMSIG(wait_status),
             strsignal(WTERMSIG(wait_status)));
  } else {
    snprintf(buf + n, size - (size_t)n, "exited with status %d before the end of the job", WEXITSTATUS(wait_status));
  }
}

static void wake_all(meeting *m)
{
  atomic_store(&m->dead, 1);
  atomic_fetch_add(&m->generation, 1);
  futex(&m->generation, FUTEX_WAKE, INT_MAX, NULL);
}

// Takes note of the end of process `proc`. The first one that ends badly is named and decides the status.
static void child_ended(supervision *s, int proc, int wait_status)
{
  s->left--;
  int status = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  bool orderly = atomic_load(&s->m->done[proc]) && !WIFSIGNALED(wait_status);
  if (!orderly && status == 0) {
    status = PERF_EXIT_INTERNAL; // somebody called exit(0) in the middle
  }
  if (status != 0 && s->status == 0) {
    s->status = status;
  }
  if (!orderly && s->first_death == 0) {
    char text[256];
    describe_end(s, proc, wait_status, text, sizeof(text));
    fprintf(stderr, "%s\n", text);
    s->first_death = perf_now();
    wake_all(s->m);
  }
  s->pids[proc] = 0;
}

static void kill_rest(const supervision *s)
{
  for (int p = 0; p < s->procs; p++) {
    if (s->pids[p] > 0) {
      kill(s->pids[p], SIGKILL);
    }
  }
}

static int proc_of_pid(const supervision *s, pid_t pid)
{
  for (int p = 0; p < s->procs; p++) {
    if (s->pids[p] == pid) {
      return p;
    }
  }
  return -1;
}

// Waits for all processes. After a death the others have GRACE_MS to say what they think of it.
static void supervise(supervision *s)
{
  while (s->left > 0) {
    int wait_status;
    pid_t pid = waitpid(-1, &wait_status, s->first_death ? WNOHANG : 0);
    if (pid < 0 && errno != EINTR) {
      break;
    }
    int proc = pid > 0 ? proc_of_pid(s, pid) : -1;
    if (proc >= 0) {
      child_ended(s, proc, wait_status);
    } else if (s->first_death && perf_now() - s->first_death > GRACE_MS * 1000000ull) {
      kill_rest(s);
      usleep(10000);
    } else {
      usleep(10000);
    }
  }
}

static void become_process(perf_world *w, const supervision *s, int proc, pid_t parent)
{
  // No orphan may go on when the supervisor is killed; it may already have been.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(PERF_EXIT_INTERNAL);
  }
  bool bound = s->cores_each > 0 && perf_bind(proc * s->cores_each, s->cores_each);
  *w = (perf_world){.launcher = &perf_launch_fork,
                    .proc = proc,
                    .procs = s->procs,
                    .cores = bound ? s->cores_each : 0,
                    .state = s->m};
}

// Forks them all. True in a child, false in the parent. A fork that fails ends those that were made.
static bool fork_all(supervision *s, perf_world *w)
{
  pid_t parent = getpid();
  fflush(NULL);
  for (int p = 0; p < s->procs; p++) {
    pid_t pid = fork();
    if (pid == 0) {
      become_process(w, s, p, parent);
      return true;
    }
    if (pid < 0) {
      fprintf(stderr, "%s: -P %d: cannot fork process %d: %s\n", s->who, s->procs, p, strerror(errno));
      s->status = PERF_EXIT_INTERNAL;
      s->first_death = 1;
      return false;
    }
    s->pids[p] = pid;
    s->left++;
  }
  return false;
}

// With a core for every rank, each process gets as many as it has ranks, as mpirun does. Else nobody is bound: the
// system balances.
static int cores_each(const perf_options *o)
{
  int ranks = o->threads * o->gpus;
  return o->bind && (int64_t)o->procs * ranks <= perf_cores() ? ranks : 0;
}

static perf_launch_result init(const perf_options *o, const perf_place *p, perf_world *w)
{
  (void)p;
  size_t size = sizeof(meeting) + (size_t)o->procs * SLOT;
  meeting *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t *pids = calloc((size_t)o->procs, sizeof(*pids));
  if (m == MAP_FAILED || !pids) {
    fprintf(stderr, "%s: -P %d: cannot map %zu bytes: %s\n", program_invocation_short_name, o->procs, size,
            strerror(errno));
    free(pids);
    return PERF_LAUNCH_FAILED;
  }
  supervision s = {.m = m,
                   .pids = pids,
                   .procs = o->procs,
                   .ranks_each = o->threads * o->gpus,
                   .cores_each = cores_each(o),
                   .who = program_invocation_short_name};
  bool child = fork_all(&s, w);
  if (!child) {
    supervise(&s);
    munmap(m, size);
    *w = (perf_world){.launcher = &perf_launch_fork, .supervisor = true, .status = s.status};
  }
  free(pids);
  return PERF_LAUNCHED;
}

const perf_launcher perf_launch_fork = {
    .name = "fork",
    .wanted = wanted,
    .init = init,
    .barrier = barrier,
    .allgather = allgather,
    .bcast = bcast,
    .finalize = finalize,
};
