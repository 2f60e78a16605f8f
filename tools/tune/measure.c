// measure.c: ranks as processes of this machine, with one configuration.
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"
#include "tune.h"
#include "tutti.h"

enum { WARM = 2, MOST = 2000, PATIENCE = 30 };

// What the processes of one run share.
typedef struct board {
  ncclUniqueId id;
  _Atomic int made, arrived, round, stop, repeats;
} board;

typedef struct rank {
  tn_times *t;
  board *b;
  int rank, config;
  double slot, end;
  ncclComm_t comm;
  float *in, *out;
} rank;

double tn_now(void)
{
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void meet(const rank *r)
{
  int round = atomic_load(&r->b->round);
  if (atomic_fetch_add(&r->b->arrived, 1) == r->t->ranks - 1) {
    atomic_store(&r->b->arrived, 0);
    atomic_fetch_add(&r->b->round, 1);
  }
  while (atomic_load(&r->b->round) == round) {
    sched_yield();
  }
}

static ncclResult_t call(const rank *r, int func, size_t bytes)
{
  size_t n = bytes / sizeof(float), block = n / (size_t)r->t->ranks;
  switch (func) {
  case 0: return ncclBroadcast(r->in, r->out, n, ncclFloat, 0, r->comm, NULL);
  case 1: return ncclReduce(r->in, r->out, n, ncclFloat, ncclSum, 0, r->comm, NULL);
  case 2: return ncclAllGather(r->in, r->out, block, ncclFloat, r->comm, NULL);
  case 3: return ncclReduceScatter(r->in, r->out, block, ncclFloat, ncclSum, r->comm, NULL);
  default: return ncclAllReduce(r->in, r->out, n, ncclFloat, ncclSum, r->comm, NULL);
  }
}

// Microseconds of one call, of `repeats`; negative: the library cannot do it so.
static double repeat(const rank *r, int func, size_t bytes, int repeats)
{
  meet(r);
  double start = tn_now();
  for (int i = 0; i < repeats; i++) {
    if (call(r, func, bytes) != ncclSuccess || tuttiStreamSynchronize(NULL) != ncclSuccess) {
      return -1;
    }
  }
  meet(r);
  return (tn_now() - start) * 1e6 / repeats;
}

// One size of one function: the better of two rounds, as many calls as fit; one call at least, however late it is.
// False: this function not so.
static bool measure_one(const rank *r, int func, int size)
{
  size_t bytes = r->t->bytes[func][size];
  double us = repeat(r, func, bytes, WARM), best = r->t->us[r->config][func][size]; // of an earlier pass
  if (us < 0) {
    return false;
  }
  if (r->rank == 0) {
    double fits = r->slot * 1e6 / 3 / us;
    atomic_store(&r->b->repeats, fits < 1 ? 1 : fits > MOST ? MOST : (int)fits);
    atomic_store(&r->b->stop, tn_now() > r->end);
  }
  meet(r);
  int repeats = atomic_load(&r->b->repeats);
  for (int round = 0; round < 2 && (round == 0 || !atomic_load(&r->b->stop)); round++) {
    us = repeat(r, func, bytes, repeats);
    best = best == 0 || us < best ? us : best;
  }
  if (r->rank == 0) {
    r->t->us[r->config][func][size] = best;
  }
  meet(r);
  return true;
}

static void measure_all(const rank *r)
{
  for (int f = 0; f < TN_FUNCS; f++) {
    for (int s = 0; s < r->t->nsizes && !atomic_load(&r->b->stop); s++) {
      if (!measure_one(r, f, s)) {
        break;
      }
    }
  }
}

// Takes out of the environment what would change the choice: a tuner, an environment plugin, files of a machine that
// this is not. The rest of it (networks, buffers, what is logged) holds, as it will in jobs, and so do files of
// parameters. Logs go to standard error: standard output may be where the choices go.
static void set_environment(const tn_config *c)
{
  setenv("NCCL_TUNER_PLUGIN", "none", 1);
  setenv("NCCL_ENV_PLUGIN", "none", 1);
  setenv("NCCL_DEBUG_FILE", "/dev/stderr", 1);
  unsetenv("NCCL_TOPO_FILE");
  unsetenv("NCCL_GRAPH_FILE");
  unsetenv("NCCL_ALGO");
  unsetenv("NCCL_PROTO");
  if (c->algo != NULL) {
    setenv("NCCL_ALGO", c->algo, 1);
    setenv("NCCL_PROTO", c->proto, 1);
  }
}

static int rank_main(rank *r)
{
  size_t room = 0;
  for (int f = 0; f < TN_FUNCS; f++) {
    size_t bytes = r->t->bytes[f][r->t->nsizes - 1];
    room = bytes > room ? bytes : room;
  }
  set_environment(&tn_configs[r->config]);
  r->in = calloc(1, room);
  r->out = calloc(1, room);
  if (r->in == NULL || r->out == NULL || (r->rank == 0 && ncclGetUniqueId(&r->b->id) != ncclSuccess)) {
    return 1;
  }
  if (r->rank == 0) {
    atomic_store(&r->b->made, 1);
  }
  while (!atomic_load(&r->b->made)) {
    sched_yield();
  }
  if (ncclCommInitRank(&r->comm, r->t->ranks, r->b->id, r->rank) != ncclSuccess) {
    return 1;
  }
  measure_all(r);
  ncclResult_t res = ncclCommDestroy(r->comm);
  free(r->in);
  free(r->out);
  return res == ncclSuccess ? 0 : 1;
}

// Starts the ranks; the first that fails takes the others with it.
static bool run_ranks(rank *r)
{
  pid_t pids[TN_MAX_RANKS];
  bool good = true;
  int started = 0;
  fflush(NULL);
  for (; started < r->t->ranks; started++) {
    pids[started] = fork();
    if (pids[started] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm((unsigned)(r->end > tn_now() ? r->end - tn_now() : 0) + PATIENCE);
      r->rank = started;
      _exit(rank_main(r));
    }
    if (pids[started] < 0) {
      good = false;
      break;
    }
  }
  for (int left = started; left > 0; left--) {
    int status = 1;
    for (int i = 0; !good && i < started; i++) {
      if (pids[i] > 0) {
        kill(pids[i], SIGKILL);
      }
    }
    pid_t pid = wait(&status);
    for (int i = 0; i < started; i++) {
      pids[i] = pids[i] == pid ? 0 : pids[i];
    }
    good &= status == 0;
  }
  return good;
}

bool tn_measure(tn_times *t, int config, double slot, double end)
{
  board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (b == MAP_FAILED) {
    return false;
  }
  rank r = {.t = t, .b = b, .config = config, .slot = slot, .end = end};
  bool good = run_ranks(&r);
  munmap(b, sizeof *b);
  if (!good) {
    memset(t->us[config], 0, sizeof t->us[config]);
  }
  return good;
}
