// nonblocking.c: calls that need other ranks return at once and are asked how far they are, so that a program stays in
// charge. It can do other things, give up after a while, and abort a communicator whose peers never come.
#include "../check.h"
#include <time.h>

enum { MOST = 2, COUNT = 1000 };

static void sleep_ms(long ms)
{
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, NULL);
}

// Asks until the communicator has an answer, at most `ms`. Returns ncclInProgress when it has none by then.
static ncclResult_t settle(ncclComm_t comm, int ms)
{
  ncclResult_t state = ncclInProgress;
  for (int i = 0; i < ms && state == ncclInProgress; i++) {
    NCCL(ncclCommGetAsyncError(comm, &state));
    if (state == ncclInProgress) {
      sleep_ms(1); // other work would go here
    }
  }
  return state;
}

// Waits for work of a stream, and for news of the communicator's peers meanwhile.
static ncclResult_t wait_for(cudaStream_t stream, ncclComm_t comm)
{
  for (;;) {
    ncclResult_t state;
    cudaError_t e = cudaStreamQuery(stream);
    if (e == cudaSuccess) {
      return ncclSuccess;
    }
    if (e != cudaErrorNotReady) {
      CUDA(e);
    }
    NCCL(ncclCommGetAsyncError(comm, &state));
    if (state != ncclSuccess && state != ncclInProgress) {
      return state;
    }
  }
}

// A rank whose peer never comes: instead of waiting for ever, give up.
static int give_up(void)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t comm;
  config.blocking = 0;
  CUDA(cudaSetDevice(0));
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclCommInitRankConfig(&comm, 2, id, 0, &config)); // ncclInProgress
  ncclResult_t state = settle(comm, 100);
  printf("alone: %s after 100 ms; aborting\n",
         state == ncclInProgress ? "still in progress" : ncclGetErrorString(state));
  NCCL(ncclCommAbort(comm)); // waits for nobody
  return state != ncclInProgress;
}

int main(void)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t comm[MOST];
  cudaStream_t stream[MOST];
  float *data[MOST], host[COUNT];
  int n = ranks(MOST), wrong = 0;
  config.blocking = 0;

  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclGroupStart());
  for (int i = 0; i < n; i++) {
    CUDA(cudaSetDevice(i));
    NCCL(ncclCommInitRankConfig(&comm[i], n, id, i, &config));
  }
  NCCL(ncclGroupEnd()); // returns at once, too
  for (int i = 0; i < n; i++) {
    NCCL(settle(comm[i], 30000));
  }
  printf("%d ranks are up\n", n);

  for (int i = 0; i < n; i++) {
    CUDA(cudaSetDevice(i));
    CUDA(cudaStreamCreate(&stream[i]));
    CUDA(cudaMalloc((void **)&data[i], sizeof host));
    CUDA(cudaMemset(data[i], 0, sizeof host));
  }
  NCCL(ncclGroupStart());
  for (int i = 0; i < n; i++) {
    NCCL(ncclAllReduce(data[i], data[i], COUNT, ncclFloat, ncclSum, comm[i], stream[i]));
  }
  NCCL(ncclGroupEnd());
  for (int i = 0; i < n; i++) {
    NCCL(settle(comm[i], 30000)); // the launch itself
    NCCL(wait_for(stream[i], comm[i]));
    CUDA(cudaMemcpy(host, data[i], sizeof host, cudaMemcpyDeviceToHost));
    wrong += host[0] != 0 || host[COUNT - 1] != 0;
  }

  for (int i = 0; i < n; i++) {
    NCCL(ncclCommFinalize(comm[i])); // all ranks must be asked before the first is waited for
  }
  for (int i = 0; i < n; i++) {
    NCCL(settle(comm[i], 30000));
    NCCL(ncclCommDestroy(comm[i]));
    CUDA(cudaFree(data[i]));
    CUDA(cudaStreamDestroy(stream[i]));
  }
  wrong += give_up();
  printf("%s\n", wrong == 0 ? "nobody waited for ever" : "wrong");
  return wrong != 0;
}
