// ring.c: send and receive. Each rank gives a block to its right neighbour and takes one from its left, until every
// block is home again.
#include "../check.h"

enum { MOST = 4, COUNT = 100000 };

typedef struct rank {
  ncclComm_t comm;
  cudaStream_t stream;
  int *block, *next; // what it has, and where the coming one goes
} rank;

static void open_rank(rank *r, int i, int *host)
{
  CUDA(cudaSetDevice(i));
  CUDA(cudaStreamCreate(&r->stream));
  CUDA(cudaMalloc((void **)&r->block, COUNT * sizeof *host));
  CUDA(cudaMalloc((void **)&r->next, COUNT * sizeof *host));
  for (int k = 0; k < COUNT; k++) {
    host[k] = i * COUNT + k;
  }
  CUDA(cudaMemcpy(r->block, host, COUNT * sizeof *host, cudaMemcpyHostToDevice));
}

// All blocks move on by one. A send and a receive of one group run side by side: without the group every rank would
// first send, and might wait for a neighbour that does the same.
static void turn(rank *r, int n)
{
  NCCL(ncclGroupStart());
  for (int i = 0; i < n; i++) {
    NCCL(ncclSend(r[i].block, COUNT, ncclInt, (i + 1) % n, r[i].comm, r[i].stream));
    NCCL(ncclRecv(r[i].next, COUNT, ncclInt, (i + n - 1) % n, r[i].comm, r[i].stream));
  }
  NCCL(ncclGroupEnd());
  for (int i = 0; i < n; i++) { // later calls on the same stream see what arrived: no need to wait
    int *got = r[i].next;
    r[i].next = r[i].block;
    r[i].block = got;
  }
}

int main(void)
{
  rank r[MOST];
  ncclComm_t comm[MOST];
  int n = ranks(MOST), wrong = 0;
  int *host = malloc(COUNT * sizeof *host);
  NCCL(ncclCommInitAll(comm, n, NULL));
  for (int i = 0; i < n; i++) {
    r[i].comm = comm[i];
    open_rank(&r[i], i, host);
  }
  for (int step = 1; step <= n; step++) {
    turn(r, n);
    for (int i = 0; i < n; i++) {
      int owner = (i + n - step % n) % n;
      CUDA(cudaSetDevice(i));
      CUDA(cudaStreamSynchronize(r[i].stream));
      CUDA(cudaMemcpy(host, r[i].block, COUNT * sizeof *host, cudaMemcpyDeviceToHost));
      for (int k = 0; k < COUNT; k++) {
        wrong += host[k] != owner * COUNT + k;
      }
      printf("step %d: rank %d has the block of rank %d\n", step, i, host[0] / COUNT);
    }
  }
  for (int i = 0; i < n; i++) {
    CUDA(cudaSetDevice(i));
    CUDA(cudaFree(r[i].block));
    CUDA(cudaFree(r[i].next));
    CUDA(cudaStreamDestroy(r[i].stream));
    NCCL(ncclCommDestroy(comm[i]));
  }
  free(host);
  printf("%s\n", wrong == 0 ? "every block is home again" : "wrong");
  return wrong != 0;
}
