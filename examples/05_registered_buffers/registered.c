// registered.c: buffers that are allocated by NCCL and registered, so that peers reach them without a copy in between.
#include "../check.h"

enum { MOST = 4, COUNT = 1 << 20, ROUNDS = 5 };

typedef struct rank {
  cudaStream_t stream;
  float *in, *out;
  void *in_handle, *out_handle;
} rank;

static void open_rank(rank *r, ncclComm_t comm, int i)
{
  size_t size = COUNT * sizeof(float);
  CUDA(cudaSetDevice(i));
  CUDA(cudaStreamCreate(&r->stream));
  NCCL(ncclMemAlloc((void **)&r->in, size)); // device memory that other ranks can map
  NCCL(ncclMemAlloc((void **)&r->out, size));
  NCCL(ncclCommRegister(comm, r->in, size, &r->in_handle)); // once; good for any number of operations
  NCCL(ncclCommRegister(comm, r->out, size, &r->out_handle));
}

static void close_rank(rank *r, ncclComm_t comm, int i)
{
  CUDA(cudaSetDevice(i));
  NCCL(ncclCommDeregister(comm, r->in_handle)); // before the memory goes
  NCCL(ncclCommDeregister(comm, r->out_handle));
  NCCL(ncclMemFree(r->in));
  NCCL(ncclMemFree(r->out));
  CUDA(cudaStreamDestroy(r->stream));
  NCCL(ncclCommDestroy(comm));
}

// Fills every input with (rank + round), adds them up, and counts what is wrong.
static int round_of(rank *r, const ncclComm_t *comm, int n, int round, float *host)
{
  int wrong = 0;
  for (int i = 0; i < n; i++) {
    CUDA(cudaSetDevice(i));
    for (int k = 0; k < COUNT; k++) {
      host[k] = (float)(i + round);
    }
    CUDA(cudaMemcpy(r[i].in, host, COUNT * sizeof *host, cudaMemcpyHostToDevice));
  }
  NCCL(ncclGroupStart());
  for (int i = 0; i < n; i++) {
    NCCL(ncclAllReduce(r[i].in, r[i].out, COUNT, ncclFloat, ncclSum, comm[i], r[i].stream));
  }
  NCCL(ncclGroupEnd());
  for (int i = 0; i < n; i++) {
    CUDA(cudaSetDevice(i));
    CUDA(cudaStreamSynchronize(r[i].stream));
    CUDA(cudaMemcpy(host, r[i].out, COUNT * sizeof *host, cudaMemcpyDeviceToHost));
    for (int k = 0; k < COUNT; k++) {
      wrong += host[k] != (float)(n * (n - 1) / 2 + n * round);
    }
  }
  printf("round %d: each rank has %g\n", round, (double)host[0]);
  return wrong;
}

int main(void)
{
  rank r[MOST];
  ncclComm_t comm[MOST];
  float *host = malloc(COUNT * sizeof *host);
  int n = ranks(MOST), wrong = 0;
  NCCL(ncclCommInitAll(comm, n, NULL));
  for (int i = 0; i < n; i++) {
    open_rank(&r[i], comm[i], i);
  }
  for (int round = 0; round < ROUNDS; round++) {
    wrong += round_of(r, comm, n, round, host);
  }
  for (int i = 0; i < n; i++) {
    close_rank(&r[i], comm[i], i);
  }
  free(host);
  printf("%s\n", wrong == 0 ? "all rounds are right" : "wrong");
  return wrong != 0;
}
