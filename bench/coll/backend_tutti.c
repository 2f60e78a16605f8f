// backend_tutti.c: this library, through nccl.h: one process per rank, forked here.
//
//   coll_tutti [ranks] [option…]    options: sync (wait after every call), registered (buffers of ncclMemAlloc, which peers can map),
//                                   copy (broadcast out of place; MPI_Bcast has no such thing)
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll_bench.h"
#include "nccl.h"
#include "tutti.h"

#define QUEUE 100 // calls that may wait in the stream

// Shared by the ranks.
typedef struct meeting {
  _Atomic int arrived, round;
  _Atomic int known; // the id is there
  ncclUniqueId id;
} meeting;

static meeting *meet;
static ncclComm_t comm;
static cudaStream_t stream;
static int rank, nranks = 2;

static int failed(ncclResult_t res)
{
  if (res == ncclSuccess) {
    return 0;
  }
  fprintf(stderr, "coll_tutti: rank %d: %s (%s)\n", rank, ncclGetErrorString(res), ncclGetLastError(comm));
  return 1;
}

static ncclResult_t ring_shift(const coll_call *c)
{
  ncclGroupStart();
  ncclSend(c->in, c->count, ncclFloat32, (rank + 1) % nranks, comm, stream);
  ncclRecv(c->out, c->count, ncclFloat32, (rank + nranks - 1) % nranks, comm, stream);
  return ncclGroupEnd();
}

static int call(const coll_call *c)
{
  switch (c->kind) {
  case COLL_ALL_REDUCE: return failed(ncclAllReduce(c->in, c->out, c->count, ncclFloat32, ncclSum, comm, stream));
  case COLL_REDUCE_SCATTER: return failed(ncclReduceScatter(c->in, c->out, c->count, ncclFloat32, ncclSum, comm, stream));
  case COLL_ALL_GATHER: return failed(ncclAllGather(c->in, c->out, c->count, ncclFloat32, comm, stream));
  case COLL_BROADCAST: return failed(ncclBroadcast(c->in, c->out, c->count, ncclFloat32, COLL_ROOT, comm, stream));
  case COLL_REDUCE: return failed(ncclReduce(c->in, c->out, c->count, ncclFloat32, ncclSum, COLL_ROOT, comm, stream));
  case COLL_ALL_TO_ALL: return failed(ncclAlltoAll(c->in, c->out, c->count, ncclFloat32, comm, stream));
  default: return failed(ring_shift(c));
  }
}

static int settle(void)
{
  return failed(tuttiStreamSynchronize(stream));
}

// Yields, so that it ends soon when the other rank has lost its core for a while.
static int barrier(void)
{
  int round = atomic_load(&meet->round);
  if (atomic_fetch_add(&meet->arrived, 1) == nranks - 1) {
    atomic_store(&meet->arrived, 0);
    atomic_store(&meet->round, round + 1);
    return 0;
  }
  for (int look = 1; atomic_load(&meet->round) == round; look++) {
    if (look % 4096 == 0) {
      sched_yield();
    }
  }
  return 0;
}

static void *plain_buffer(size_t bytes)
{
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

static void *registered_buffer(size_t bytes)
{
  void *p = NULL;
  return failed(ncclMemAlloc(&p, bytes)) ? NULL : p;
}

static int run_rank(const coll_library *lib)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (rank == 0) {
    if (failed(ncclGetUniqueId(&meet->id))) {
      return 1;
    }
    atomic_store(&meet->known, 1);
  }
  while (!atomic_load(&meet->known)) {
    usleep(1000);
  }
  if (failed(tuttiSetDevice(rank)) || failed(ncclCommInitRank(&comm, nranks, meet->id, rank)) ||
      failed(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING))) {
    return 1;
  }
  int res = coll_obey(lib, rank, nranks);
  return res != 0 || failed(ncclCommDestroy(comm));
}

// The first rank that fails takes the others along.
static int wait_ranks(void)
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

int main(int argc, char **argv)
{
  coll_library lib = {.batch = QUEUE, .same_buffer = 1, .call = call, .settle = settle, .barrier = barrier, .buffer = plain_buffer};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "sync") == 0) {
      lib.batch = 1;
    } else if (strcmp(argv[i], "registered") == 0) {
      lib.buffer = registered_buffer;
    } else if (strcmp(argv[i], "copy") == 0) {
      lib.same_buffer = 0;
    } else {
      nranks = atoi(argv[i]);
    }
  }
  meet = mmap(NULL, sizeof *meet, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (meet == MAP_FAILED || nranks < 1) {
    return 1;
  }
  for (rank = 0; rank < nranks; rank++) {
    pid_t pid = fork();
    if (pid == 0) {
      return run_rank(&lib);
    }
  }
  return wait_ranks();
}
