// fork.c: one process per rank, started by fork. The id travels through pipes.
//
// Nothing of CUDA or NCCL may be used before the fork: a child could not use what its parent had.
#include "../check.h"
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 1000 };

static int rank_main(int rank, const ncclUniqueId *id)
{
  ncclComm_t comm;
  cudaStream_t stream;
  long *mine, *all, host[RANKS * COUNT];
  int device, wrong = 0;

  CUDA(cudaGetDeviceCount(&device));
  CUDA(cudaSetDevice(rank % device));
  NCCL(ncclCommInitRank(&comm, RANKS, *id, rank));
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc((void **)&mine, COUNT * sizeof *mine));
  CUDA(cudaMalloc((void **)&all, RANKS * COUNT * sizeof *all));
  for (int k = 0; k < COUNT; k++) {
    host[k] = rank * 10000 + k;
  }
  CUDA(cudaMemcpy(mine, host, COUNT * sizeof *host, cudaMemcpyHostToDevice));
  NCCL(ncclAllGather(mine, all, COUNT, ncclInt64, comm, stream));
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaMemcpy(host, all, sizeof host, cudaMemcpyDeviceToHost));
  for (int k = 0; k < RANKS * COUNT; k++) {
    wrong += host[k] != k / COUNT * 10000 + k % COUNT;
  }
  printf("rank %d of %d, process %d: %s\n", rank, RANKS, (int)getpid(), wrong == 0 ? "has everybody's part" : "wrong");
  CUDA(cudaFree(mine));
  CUDA(cudaFree(all));
  CUDA(cudaStreamDestroy(stream));
  NCCL(ncclCommDestroy(comm));
  return wrong != 0;
}

// The child of this rank: reads the id, then is a rank.
static int child_main(int rank, int from)
{
  ncclUniqueId id;
  if (read(from, &id, sizeof id) != (ssize_t)sizeof id) {
    fprintf(stderr, "rank %d: rank 0 has gone\n", rank);
    return 1;
  }
  return rank_main(rank, &id);
}

int main(void)
{
  int to[RANKS], status, failed = 0;
  ncclUniqueId id;
  for (int rank = 1; rank < RANKS; rank++) {
    int ends[2];
    if (pipe(ends) != 0) {
      return 1;
    }
    pid_t child = fork();
    if (child == 0) {
      for (int r = 1; r < rank; r++) {
        close(to[r]); // else a sister would not notice that rank 0 has gone
      }
      close(ends[1]);
      return child_main(rank, ends[0]);
    }
    close(ends[0]);
    to[rank] = ends[1];
  }

  NCCL(ncclGetUniqueId(&id)); // this process must live until all ranks have met
  for (int rank = 1; rank < RANKS; rank++) {
    if (write(to[rank], &id, sizeof id) != (ssize_t)sizeof id) {
      return 1;
    }
  }
  failed = rank_main(0, &id);
  while (wait(&status) > 0) {
    failed |= status != 0;
  }
  printf("%s\n", failed ? "wrong" : "all processes have everybody's part");
  return failed;
}
