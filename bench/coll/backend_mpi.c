// backend_mpi.c: any MPI library, compiled with its mpicc and started by its mpirun.
#define _GNU_SOURCE
#include <mpi.h>
#include <sys/mman.h>

#include "coll_bench.h"

static int rank, nranks;

static int call(const coll_call *c)
{
  int count = (int)c->count, next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
  switch (c->kind) {
  case COLL_ALL_REDUCE: return MPI_Allreduce(c->in, c->out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  case COLL_REDUCE_SCATTER: return MPI_Reduce_scatter_block(c->in, c->out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  case COLL_ALL_GATHER: return MPI_Allgather(c->in, count, MPI_FLOAT, c->out, count, MPI_FLOAT, MPI_COMM_WORLD);
  case COLL_BROADCAST: return MPI_Bcast(c->out, count, MPI_FLOAT, COLL_ROOT, MPI_COMM_WORLD);
  case COLL_REDUCE: return MPI_Reduce(c->in, c->out, count, MPI_FLOAT, MPI_SUM, COLL_ROOT, MPI_COMM_WORLD);
  case COLL_ALL_TO_ALL: return MPI_Alltoall(c->in, count, MPI_FLOAT, c->out, count, MPI_FLOAT, MPI_COMM_WORLD);
  default:
    return MPI_Sendrecv(c->in, count, MPI_FLOAT, next, 1, c->out, count, MPI_FLOAT, before, 1, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE);
  }
}

// Calls have returned: complete on this rank.
static int settle(void)
{
  return 0;
}

static int barrier(void)
{
  return MPI_Barrier(MPI_COMM_WORLD);
}

static void *buffer(size_t bytes)
{
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

int main(int argc, char **argv)
{
  const coll_library lib = {.same_buffer = 1, .call = call, .settle = settle, .barrier = barrier, .buffer = buffer};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  if (coll_obey(&lib, rank, nranks) != 0) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
