// one_sided.c: every rank writes its block into the window of every other; no rank receives. A signal with each block
// says that it has arrived.
#include "../check.h"

enum { MOST = 4, COUNT = 1 << 16, ROUNDS = 5 };

// The window: MOST blocks that others write, and behind them the one that this rank sends.
typedef struct rank {
  cudaStream_t stream;
  float *memory;
  ncclWindow_t window;
} rank;

static const size_t window_bytes = (MOST + 1) * (size_t)COUNT * sizeof(float);

static float *own_block(const rank *r)
{
  return r->memory + MOST * COUNT;
}

static void open_rank(rank *r, ncclComm_t comm, int i)
{
  CUDA(cudaSetDevice(i));
  CUDA(cudaStreamCreate(&r->stream));
  NCCL(ncclMemAlloc((void **)&r->memory, window_bytes));
  NCCL(ncclCommWindowRegister(comm, r->memory, window_bytes, &r->window, NCCL_WIN_COLL_SYMMETRIC));
}

static void close_rank(rank *r, ncclComm_t comm, int i)
{
  CUDA(cudaSetDevice(i));
  NCCL(ncclCommWindowDeregister(comm, r->window)); // before the memory goes
  NCCL(ncclMemFree(r->memory));
  CUDA(cudaStreamDestroy(r->stream));
  NCCL(ncclCommDestroy(comm));
}

// Block i of every rank's window becomes rank i's. The wait says that all blocks of this rank's window are there.
static void put_to_all(const rank *r, ncclComm_t comm, int n, int i)
{
  ncclWaitSignalDesc_t arrived[MOST];
  size_t place = (size_t)i * COUNT * sizeof(float);
  for (int peer = 0; peer < n; peer++) {
    NCCL(ncclPutSignal(own_block(r), COUNT, ncclFloat, peer, r->window, place, 0, 0, 0, comm, r->stream));
    arrived[peer] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = peer, .sigIdx = 0, .ctx = 0};
  }
  NCCL(ncclWaitSignal(n, arrived, comm, r->stream));
}

static void fill_blocks(const rank *r, int n, int round, float *host)
{
  for (int i = 0; i < n; i++) {
    CUDA(cudaSetDevice(i));
    for (int k = 0; k < COUNT; k++) {
      host[k] = (float)(i * 1000 + round);
    }
    CUDA(cudaMemcpy(own_block(&r[i]), host, COUNT * sizeof *host, cudaMemcpyHostToDevice));
  }
}

// Numbers in the rank's window that are not what their rank has sent.
static int count_wrong(const rank *r, int n, int round, float *host)
{
  int wrong = 0;
  CUDA(cudaStreamSynchronize(r->stream));
  for (int i = 0; i < n; i++) {
    CUDA(cudaMemcpy(host, r->memory + (size_t)i * COUNT, COUNT * sizeof *host, cudaMemcpyDeviceToHost));
    for (int k = 0; k < COUNT; k++) {
      wrong += host[k] != (float)(i * 1000 + round);
    }
  }
  return wrong;
}

int main(void)
{
  rank r[MOST];
  ncclComm_t comm[MOST];
  float *host = malloc(COUNT * sizeof *host);
  int n = ranks(MOST), wrong = 0;
  NCCL(ncclCommInitAll(comm, n, NULL));
  NCCL(ncclGroupStart()); // one thread registers for all ranks
  for (int i = 0; i < n; i++) {
    open_rank(&r[i], comm[i], i);
  }
  NCCL(ncclGroupEnd());
  for (int round = 0; round < ROUNDS; round++) {
    fill_blocks(r, n, round, host);
    NCCL(ncclGroupStart());
    for (int i = 0; i < n; i++) {
      put_to_all(&r[i], comm[i], n, i);
    }
    NCCL(ncclGroupEnd());
    for (int i = 0; i < n; i++) {
      CUDA(cudaSetDevice(i));
      wrong += count_wrong(&r[i], n, round, host);
    }
  }
  for (int i = 0; i < n; i++) {
    close_rank(&r[i], comm[i], i);
  }
  free(host);
  printf("%s\n", wrong == 0 ? "all blocks have arrived" : "wrong");
  return wrong != 0;
}
