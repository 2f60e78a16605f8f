// threads.c: one thread per rank. They meet by a unique id, which a variable carries from one to the others.
#include "../check.h"
#include <pthread.h>

enum { MOST = 4, COUNT = 1 << 20 };

static ncclUniqueId id;
static int nranks;

typedef struct thread {
  pthread_t handle;
  int rank;
  int wrong;
} thread;

static void *rank_main(void *arg)
{
  thread *me = arg;
  ncclComm_t comm;
  cudaStream_t stream;
  int *data, *host;

  CUDA(cudaSetDevice(me->rank));                       // each thread has a current device of its own
  NCCL(ncclCommInitRank(&comm, nranks, id, me->rank)); // waits until all ranks are there
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc((void **)&data, COUNT * sizeof *data));
  CUDA(cudaMallocHost((void **)&host, COUNT * sizeof *host));
  for (int k = 0; k < COUNT; k++) {
    host[k] = me->rank * 1000 + k % 1000;
  }
  CUDA(cudaMemcpyAsync(data, host, COUNT * sizeof *host, cudaMemcpyHostToDevice, stream));
  NCCL(ncclAllReduce(data, data, COUNT, ncclInt32, ncclMax, comm, stream)); // in place
  CUDA(cudaMemcpyAsync(host, data, COUNT * sizeof *host, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int k = 0; k < COUNT; k++) {
    me->wrong += host[k] != (nranks - 1) * 1000 + k % 1000;
  }
  printf("rank %d of %d: largest of element 7 is %d\n", me->rank, nranks, host[7]);

  CUDA(cudaFree(data));
  CUDA(cudaFreeHost(host));
  CUDA(cudaStreamDestroy(stream));
  NCCL(ncclCommDestroy(comm));
  return NULL;
}

int main(void)
{
  thread t[MOST] = {{0}};
  int wrong = 0;
  nranks = ranks(MOST);
  NCCL(ncclGetUniqueId(&id));
  for (int i = 0; i < nranks; i++) {
    t[i].rank = i;
    if (pthread_create(&t[i].handle, NULL, rank_main, &t[i]) != 0) {
      fprintf(stderr, "cannot start thread %d\n", i);
      return 1;
    }
  }
  for (int i = 0; i < nranks; i++) {
    pthread_join(t[i].handle, NULL);
    wrong += t[i].wrong;
  }
  printf("%s\n", wrong == 0 ? "all ranks have the maximum" : "wrong");
  return wrong != 0;
}
