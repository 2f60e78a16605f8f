// survive.c: processes die, the others go on, and a new one joins. The main process starts the others and looks after
// them, as a launcher does; what it knows stands in a page that all map.
#include "../check.h"
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST = 4, SLOTS = 5, STEPS = 30, GROW_AT = 20 };

// A slot is a process for life; its rank changes. Slot 4 joins later.
typedef struct page {
  ncclUniqueId id, grow_id;
  int has_id, has_grow_id, nranks_before; // the last: of the growth
  int dead[SLOTS];
} page;

static page *job;

// The page's numbers are written by one process and read by others.
static int look(const int *number)
{
  return __atomic_load_n(number, __ATOMIC_ACQUIRE);
}

static void show(int *number, int value)
{
  __atomic_store_n(number, value, __ATOMIC_RELEASE);
}

// The communicator, and which slot each of its ranks is.
typedef struct team {
  ncclComm_t comm;
  cudaStream_t stream;
  int n, slot[SLOTS];
} team;

// All add the number of their step, which is the same. False: somebody has died.
static int train(team *t, int step)
{
  float x = (float)step;
  return ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, t->comm, t->stream) == ncclSuccess &&
         cudaStreamSynchronize(t->stream) == cudaSuccess && x == (float)(step * t->n);
}

// The ranks that the launcher knows to be dead; how many.
static int list_dead(const team *t, int *out)
{
  int n = 0;
  for (int i = 0; i < t->n; i++) {
    if (look(&job->dead[t->slot[i]])) {
      out[n++] = i;
    }
  }
  return n;
}

// The ranks behind one that has gone move up.
static void move_up(team *t, const int *out, int nout)
{
  int left = 0;
  for (int i = 0, k = 0; i < t->n; i++) {
    if (k < nout && out[k] == i) {
      k++;
    } else {
      t->slot[left++] = t->slot[i];
    }
  }
  t->n = left;
}

// When ranks have asked the launcher at different moments, or another one has died since, the shrink fails on all of
// them, and they ask again.
static void shrink(team *t)
{
  int out[SLOTS], nout;
  ncclComm_t next = NULL;
  do {
    usleep(1000);
    nout = list_dead(t, out);
  } while (nout == 0 || ncclCommShrink(t->comm, out, nout, &next, NULL, NCCL_SHRINK_ABORT) != ncclSuccess);
  NCCL(ncclCommAbort(t->comm));
  t->comm = next;
  move_up(t, out, nout);
}

// After an error some ranks may have finished the step, and others not: all go on from the first one.
static int agree(team *t, int step)
{
  CUDA(cudaStreamDestroy(t->stream)); // it keeps its error
  CUDA(cudaStreamCreate(&t->stream));
  NCCL(ncclAllReduce(&step, &step, 1, ncclInt, ncclMin, t->comm, t->stream));
  CUDA(cudaStreamSynchronize(t->stream));
  return step;
}

// Rank 0 makes an id for the newcomer; the others need none.
static void grow(team *t, int slot)
{
  ncclComm_t next;
  int first = t->slot[0] == slot;
  if (first) {
    NCCL(ncclCommGetUniqueId(t->comm, &job->grow_id));
    show(&job->nranks_before, t->n);
    show(&job->has_grow_id, 1);
  }
  NCCL(ncclCommGrow(t->comm, t->n + 1, first ? &job->grow_id : NULL, -1, &next, NULL));
  NCCL(ncclCommDestroy(t->comm));
  t->comm = next;
  t->slot[t->n++] = SLOTS - 1;
}

static int work(int slot)
{
  team t = {.n = FIRST, .slot = {0, 1, 2, 3, 4}};
  int step = 0, joins = slot == SLOTS - 1;
  while (!(joins ? look(&job->has_grow_id) : slot == 0 || look(&job->has_id))) {
    usleep(1000);
  }
  if (slot == 0) {
    NCCL(ncclGetUniqueId(&job->id));
    show(&job->has_id, 1);
  }
  CUDA(cudaStreamCreate(&t.stream));
  if (joins) {
    step = GROW_AT;
    t.n = look(&job->nranks_before) + 1;
    NCCL(ncclCommGrow(NULL, t.n, &job->grow_id, t.n - 1, &t.comm, NULL));
  } else {
    NCCL(ncclCommInitRank(&t.comm, FIRST, job->id, slot));
  }
  while (step < STEPS) {
    if ((slot == 1 && step == 5) || (slot == 0 && step == 12)) {
      kill(getpid(), SIGKILL); // the end of its machine, or the memory killer
    }
    if (train(&t, step)) {
      step++;
    } else {
      shrink(&t);
      step = agree(&t, step);
      printf("process %d goes on at step %d with %d ranks\n", slot, step, t.n);
    }
    if (step == GROW_AT && !joins && t.n < 3) {
      grow(&t, slot);
    }
  }
  NCCL(ncclCommDestroy(t.comm));
  return 0;
}

// Notes the death of a process. Was it to end like that?
static int bury(const pid_t *pid, pid_t ended, int status)
{
  int slot = 0;
  while (pid[slot] != ended) {
    slot++;
  }
  show(&job->dead[slot], 1);
  return slot < 2 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void)
{
  pid_t pid[SLOTS], ended;
  int status, good = 1;
  setvbuf(stdout, NULL, _IOLBF, 0);
  job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < SLOTS; i++) {
    if ((pid[i] = fork()) == 0) {
      _exit(work(i));
    }
  }
  while ((ended = wait(&status)) > 0) {
    good &= bury(pid, ended, status);
  }
  puts(good ? "three processes have done all steps" : "something is wrong");
  return !good;
}
