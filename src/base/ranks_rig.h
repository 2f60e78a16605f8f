// ranks_rig.h: runs N ranks as processes, for tests of every folder. It needs nothing but the C library.
//
// Every rank is a process, the leader of a process group of its own, and dies with the test program. What it writes to
// stdout and stderr is kept, and printed only if the rank ends otherwise than the test expects. RANKS_OUTPUT=1 in the
// environment shows everything at once. At the time limit all are killed. After the end of the last rank, what ranks
// have started and left behind is killed too.
#pragma once
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_RIG __attribute__((unused)) static

enum { RANKS_MOST = 64, RANKS_GRACE_S = 2 }; // the second: how long the others may go on after an unexpected end

// What to run: fn(0, arg) … fn(n - 1, arg), each in a process, which ends with status 0 when fn returns.
typedef struct ranks_job {
  int n, seconds; // at most RANKS_MOST processes; their time limit
  void (*fn)(int rank, void *arg);
  void *arg;
  const char *const *env; // "NAME=VALUE" …, NULL at the end; may be NULL
} ranks_job;

// The processes of a job that has started. `end` is the exit status, or minus the number of the signal.
typedef struct ranks_set {
  int n, seconds;
  pid_t pid[RANKS_MOST], group[RANKS_MOST]; // pid 0: has ended
  int output[RANKS_MOST], end[RANKS_MOST], expected[RANKS_MOST];
  bool late[RANKS_MOST]; // killed at the limit: no expected end
  double limit;          // CLOCK_MONOTONIC: when all are killed
  int left_behind;       // processes that the ranks had started and that were there after the last rank's end
} ranks_set;

RANKS_RIG double ranks_clock(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

__attribute__((noreturn)) RANKS_RIG void ranks_child(const ranks_job *job, const ranks_set *r, int rank)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  if (r->output[rank] >= 0) {
    dup2(r->output[rank], STDOUT_FILENO);
    dup2(r->output[rank], STDERR_FILENO);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); // a rank that is killed has written its lines
  }
  for (int i = 0; i < r->n; i++) {
    if (r->output[i] >= 0) {
      close(r->output[i]);
    }
  }
  for (const char *const *e = job->env; e != NULL && *e != NULL; e++) {
    putenv((char *)(uintptr_t)*e);
  }
  job->fn(rank, job->arg);
  fflush(NULL);
  exit(0); // leak checkers run
}

// A file in memory, closed by exec. The C library declares its function for it to GNU programs only.
RANKS_RIG int ranks_output_file(void)
{
  return (int)syscall(SYS_memfd_create, "ranks", 1u);
}

// Starts the process of one rank, also in place of one that has ended.
RANKS_RIG void ranks_start_one(ranks_set *r, const ranks_job *job, int rank)
{
  fflush(NULL);
  r->output[rank] = getenv("RANKS_OUTPUT") == NULL ? ranks_output_file() : -1;
  r->end[rank] = r->expected[rank] = 0;
  r->pid[rank] = fork();
  if (r->pid[rank] == 0) {
    ranks_child(job, r, rank);
  }
  if (r->pid[rank] < 0) {
    perror("ranks_start: fork");
    abort(); // those that were started die with this process
  }
  setpgid(r->pid[rank], r->pid[rank]); // parent or child, whichever comes first
  r->group[rank] = r->pid[rank];
}

// Starts the processes. Each is expected to end with status 0.
RANKS_RIG void ranks_start(ranks_set *r, const ranks_job *job)
{
  *r = (ranks_set){.n = job->n, .seconds = job->seconds, .limit = ranks_clock() + job->seconds};
  prctl(PR_SET_CHILD_SUBREAPER, 1); // what a rank leaves behind becomes a child of this process
  for (int i = 0; i < r->n; i++) {
    r->output[i] = -1;
  }
  for (int i = 0; i < r->n; i++) {
    ranks_start_one(r, job, i);
  }
}

// Kills one rank, as the test wants it.
RANKS_RIG void ranks_kill(ranks_set *r, int rank)
{
  r->expected[rank] = -SIGKILL;
  kill(r->pid[rank], SIGKILL);
}

// Kills all ranks whose end was not seen yet. They are stopped first: none hears of another's death.
RANKS_RIG void ranks_kill_all(ranks_set *r)
{
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < r->n; i++) {
      if (r->pid[i] > 0 && pass == 0) {
        kill(r->pid[i], SIGSTOP);
      } else if (r->pid[i] > 0) {
        ranks_kill(r, i);
      }
    }
  }
}

RANKS_RIG bool ranks_bad(const ranks_set *r, int rank)
{
  return r->late[rank] || r->end[rank] != r->expected[rank];
}

RANKS_RIG void ranks_report(const ranks_set *r, int rank)
{
  char text[4096];
  ssize_t n;
  int end = r->end[rank], expected = r->expected[rank];
  fprintf(stderr, "rank %d: %s %d, expected %s %d%s (limit %d s)\n", rank, end < 0 ? "signal" : "exit status", abs(end),
          expected < 0 ? "signal" : "exit status", abs(expected), r->late[rank] ? ": killed, as its time was up" : "",
          r->seconds);
  for (off_t at = 0; r->output[rank] >= 0 && (n = pread(r->output[rank], text, sizeof text, at)) > 0; at += n) {
    fwrite(text, 1, (size_t)n, stderr);
  }
}

// Notes the rank's end, if it has ended, and reports it if it is not the expected one.
RANKS_RIG bool ranks_reap(ranks_set *r, int rank)
{
  int status;
  if (r->pid[rank] == 0 || waitpid(r->pid[rank], &status, WNOHANG) != r->pid[rank]) {
    return false;
  }
  r->pid[rank] = 0;
  r->end[rank] = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  if (ranks_bad(r, rank)) {
    ranks_report(r, rank);
  }
  if (r->output[rank] >= 0) {
    close(r->output[rank]);
    r->output[rank] = -1;
  }
  return true;
}

// Kills and counts what the ranks have left behind. A group that has a child of this process is surely the rank's.
RANKS_RIG void ranks_sweep(ranks_set *r)
{
  siginfo_t info;
  for (int i = 0; i < r->n; i++) {
    while (waitid(P_PGID, (id_t)r->group[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
      kill(-r->group[i], SIGKILL);
      r->left_behind += waitid(P_PGID, (id_t)r->group[i], &info, WEXITED) == 0;
    }
  }
}

// One look at all ranks. Returns how many still run.
RANKS_RIG int ranks_look(ranks_set *r)
{
  int left = 0;
  for (int i = 0; i < r->n; i++) {
    double now = ranks_clock();
    if (ranks_reap(r, i)) {
      r->limit = ranks_bad(r, i) && now + RANKS_GRACE_S < r->limit ? now + RANKS_GRACE_S : r->limit;
    } else if (r->pid[i] > 0 && now > r->limit) {
      r->late[i] = true;
      kill(-r->pid[i], SIGKILL);
    }
    left += r->pid[i] > 0;
  }
  nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return left;
}

// Waits until one rank has ended. True: as expected.
RANKS_RIG bool ranks_wait_one(ranks_set *r, int rank)
{
  while (r->pid[rank] > 0) {
    ranks_look(r);
  }
  return !ranks_bad(r, rank);
}

// Waits for all. Returns how many did not end as expected. Once one has not, the others have RANKS_GRACE_S seconds.
RANKS_RIG int ranks_wait(ranks_set *r)
{
  int bad = 0;
  while (ranks_look(r) > 0) {
  }
  ranks_sweep(r);
  for (int i = 0; i < r->n; i++) {
    bad += ranks_bad(r, i);
  }
  return bad;
}

// Starts all and waits for them. Returns how many did not end with status 0.
RANKS_RIG int ranks_run(const ranks_job *job)
{
  ranks_set r;
  ranks_start(&r, job);
  return ranks_wait(&r);
}
