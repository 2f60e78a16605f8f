// ranks.c: ranks as forked processes or as threads, with memory and a barrier in common.
#define _GNU_SOURCE
#include "ranks.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../pin.h"

#define RANKS_MAX 64
#define LOOKS 4096 // between two yields of a waiting rank with a core of its own; others yield after each

// Shared by the ranks.
typedef struct meeting {
  int nranks;
  int looks; // between two yields
  _Alignas(128) _Atomic int arrived;
  _Alignas(128) _Atomic int round;
  _Alignas(128) char area[RANKS_AREA];
} meeting;

static meeting *meet;
static int (*entry)(int rank);

void *ranks_area(void)
{
  return meet == NULL ? NULL : meet->area;
}

int ranks_barrier(void)
{
  int round = atomic_load(&meet->round);
  if (atomic_fetch_add(&meet->arrived, 1) == meet->nranks - 1) {
    atomic_store(&meet->arrived, 0);
    atomic_store(&meet->round, round + 1);
    return 0;
  }
  for (int look = 1; atomic_load(&meet->round) == round; look++) {
    if (look % meet->looks == 0) {
      sched_yield();
    }
  }
  return 0;
}

static void *run_thread(void *rank)
{
  if (entry((int)(intptr_t)rank) != 0) {
    exit(1);
  }
  return NULL;
}

static int run_threads(int nranks)
{
  pthread_t threads[RANKS_MAX];
  for (int rank = 0; rank < nranks; rank++) {
    if (pthread_create(&threads[rank], NULL, run_thread, (void *)(intptr_t)rank) != 0) {
      fprintf(stderr, "ranks: no thread for rank %d of %d\n", rank, nranks);
      exit(1);
    }
  }
  for (int rank = 0; rank < nranks; rank++) {
    pthread_join(threads[rank], NULL);
  }
  return 0;
}

// The first rank that fails takes the others along.
static int wait_processes(void)
{
  int status, res = 0;
  while (wait(&status) > 0) {
    if (status != 0 && res == 0) {
      res = 1;
      signal(SIGTERM, SIG_IGN);
      kill(0, SIGTERM);
    }
  }
  return res;
}

static int run_processes(int nranks)
{
  int res = 0;
  for (int rank = 0; rank < nranks && res == 0; rank++) {
    pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      exit(entry(rank));
    }
    if (pid < 0) {
      perror("ranks: fork");
      signal(SIGTERM, SIG_IGN);
      kill(0, SIGTERM);
      res = 1;
    }
  }
  return wait_processes() != 0 || res;
}

int ranks_run(int nranks, int threads, int (*run)(int rank))
{
  if (nranks < 1 || nranks > RANKS_MAX) {
    fprintf(stderr, "ranks: %d ranks asked for, 1 to %d are possible\n", nranks, RANKS_MAX);
    return 1;
  }
  meet = mmap(NULL, sizeof *meet, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (meet == MAP_FAILED) {
    perror("ranks: no memory to share");
    return 1;
  }
  meet->nranks = nranks;
  meet->looks = nranks > bench_cores() ? 1 : LOOKS;
  entry = run;
  return threads ? run_threads(nranks) : run_processes(nranks);
}
