// overlap.c: compute the next block while the last one is on its way. Two buffers per rank take turns; events say when
// one is free again.
#include "../check.h"
#include <pthread.h>

enum { MOST = 2, BLOCKS = 16, COUNT = 1 << 18 };

static ncclUniqueId id;
static int nranks;

typedef struct rank {
  pthread_t thread;
  int number, wrong;
  float ms; // from the first block to the last
} rank;

// One buffer: filled on the host, summed over the ranks on its device, and back.
typedef struct buffer {
  float *host, *device;
  cudaEvent_t back; // the sum has arrived on the host
} buffer;

// The computation: a block whose sum over all ranks is known.
static void compute(float *block, int number, int which)
{
  for (int k = 0; k < COUNT; k++) {
    float x = (float)(k % 97);
    for (int i = 0; i < 8; i++) {
      x = x * 0.5f + (float)(i % 2); // something that takes a while
    }
    block[k] = (float)(number + which) + x * 0.0f;
  }
}

static int check(const float *block, int which)
{
  int wrong = 0;
  for (int k = 0; k < COUNT; k++) {
    wrong += block[k] != (float)(nranks * (nranks - 1) / 2 + nranks * which);
  }
  return wrong;
}

static void *rank_main(void *arg)
{
  rank *me = arg;
  buffer b[2];
  ncclComm_t comm;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  size_t size = COUNT * sizeof(float);

  CUDA(cudaSetDevice(me->number));
  NCCL(ncclCommInitRank(&comm, nranks, id, me->number));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  for (int i = 0; i < 2; i++) {
    CUDA(cudaMallocHost((void **)&b[i].host, size)); // pinned: only then do copies run beside the host
    CUDA(cudaMalloc((void **)&b[i].device, size));
    CUDA(cudaEventCreateWithFlags(&b[i].back, cudaEventDisableTiming));
  }

  CUDA(cudaEventRecord(begin, stream));
  for (int which = 0; which < BLOCKS + 2; which++) {
    buffer *now = &b[which % 2];
    if (which >= 2) { // the block before last used this buffer
      CUDA(cudaEventSynchronize(now->back));
      me->wrong += check(now->host, which - 2);
    }
    if (which < BLOCKS) {
      compute(now->host, me->number, which); // meanwhile the block before is being summed
      CUDA(cudaMemcpyAsync(now->device, now->host, size, cudaMemcpyHostToDevice, stream));
      NCCL(ncclAllReduce(now->device, now->device, COUNT, ncclFloat, ncclSum, comm, stream));
      CUDA(cudaMemcpyAsync(now->host, now->device, size, cudaMemcpyDeviceToHost, stream));
      CUDA(cudaEventRecord(now->back, stream));
    }
  }
  CUDA(cudaEventRecord(end, stream));
  CUDA(cudaEventSynchronize(end));
  CUDA(cudaEventElapsedTime(&me->ms, begin, end));

  for (int i = 0; i < 2; i++) {
    CUDA(cudaEventDestroy(b[i].back));
    CUDA(cudaFree(b[i].device));
    CUDA(cudaFreeHost(b[i].host));
  }
  CUDA(cudaEventDestroy(begin));
  CUDA(cudaEventDestroy(end));
  CUDA(cudaStreamDestroy(stream));
  NCCL(ncclCommDestroy(comm));
  return NULL;
}

int main(void)
{
  rank r[MOST] = {{0}};
  int wrong = 0;
  nranks = ranks(MOST);
  NCCL(ncclGetUniqueId(&id));
  for (int i = 0; i < nranks; i++) {
    r[i].number = i;
    if (pthread_create(&r[i].thread, NULL, rank_main, &r[i]) != 0) {
      fprintf(stderr, "cannot start thread %d\n", i);
      return 1;
    }
  }
  for (int i = 0; i < nranks; i++) {
    pthread_join(r[i].thread, NULL);
    printf("rank %d: %d blocks of %zu KiB in %.1f ms\n", i, BLOCKS, COUNT * sizeof(float) >> 10, (double)r[i].ms);
    wrong += r[i].wrong;
  }
  printf("%s\n", wrong == 0 ? "all blocks are right" : "wrong");
  return wrong != 0;
}
