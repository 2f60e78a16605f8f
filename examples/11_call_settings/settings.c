// settings.c: settings of single calls (ncclCollConfig_t): which algorithm, a sum in the order of the ranks, and what a
// call with a setting that cannot be followed says. The option is Tutti's (tutti.h); other libraries pass it over.
#include "../check.h"
#include <math.h>
#include <string.h>
#include <tutti.h>

enum { RANKS = 4, COUNT = 1000 };

static ncclComm_t comm[RANKS];
static cudaStream_t stream[RANKS];
static float *in[RANKS], *out[RANKS];

// Numbers whose sum depends on the order in which they are added.
static float value(int rank, int i)
{
  return sinf((float)(rank * COUNT + i)) * powf(10, (float)(rank - 1));
}

// One all-reduce of all ranks with these settings; the first result that is not success.
static ncclResult_t all_reduce(const ncclCollConfig_t *config)
{
  ncclResult_t bad = ncclSuccess;
  NCCL(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    ncclResult_t res = ncclAllReduceConfig(in[r], out[r], COUNT, ncclFloat, ncclSum, comm[r], stream[r], config);
    bad = bad == ncclSuccess ? res : bad;
  }
  ncclResult_t end = ncclGroupEnd();
  for (int r = 0; r < RANKS; r++) {
    CUDA(cudaStreamSynchronize(stream[r]));
  }
  return bad == ncclSuccess ? end : bad;
}

// How many elements of all ranks are not, bit for bit, what a loop over the ranks gives.
static int others(void)
{
  int n = 0;
  for (int i = 0; i < COUNT; i++) {
    float sum = value(0, i);
    for (int r = 1; r < RANKS; r++) {
      sum += value(r, i);
    }
    for (int r = 0; r < RANKS; r++) {
      n += memcmp(&out[r][i], &sum, sizeof sum) != 0;
    }
  }
  return n;
}

int main(void)
{
  ncclConfigExt_t in_order = {.key = {.vendorId = TUTTI_VENDOR_ID, .optionId = TUTTI_OPTION_RANK_ORDER},
                              .val = {.i = 1}};
  ncclCollConfig_t ring = NCCL_COLLCONFIG_INITIALIZER, ordered = NCCL_COLLCONFIG_INITIALIZER,
                   impossible = NCCL_COLLCONFIG_INITIALIZER;
  NCCL(ncclCommInitAll(comm, RANKS, NULL));
  for (int r = 0; r < RANKS; r++) {
    CUDA(cudaSetDevice(r));
    CUDA(cudaStreamCreate(&stream[r]));
    CUDA(cudaMallocManaged((void **)&in[r], COUNT * sizeof(float), cudaMemAttachGlobal));
    CUDA(cudaMallocManaged((void **)&out[r], COUNT * sizeof(float), cudaMemAttachGlobal));
    for (int i = 0; i < COUNT; i++) {
      in[r][i] = value(r, i);
    }
  }

  ring.algSelection = "RING"; // any protocol of it
  ring.userProfilerTag = 11;  // a profiler sees it with the call's events
  NCCL(all_reduce(&ring));
  printf("ring: %d of %d values differ in their last bits from a loop over the ranks\n", others(), RANKS * COUNT);

  ordered.ext = &in_order;
  NCCL(all_reduce(&ordered));
  int differ = others();
  printf("in the order of the ranks: %d differ\n", differ);

  impossible.algSelection = "NVLS"; // forceAlgSelection is 1 unless it is set to 0
  ncclResult_t refused = all_reduce(&impossible);
  printf("what is not there: %s\n", ncclGetErrorString(refused));
  impossible.forceAlgSelection = 0; // take another, then
  NCCL(all_reduce(&impossible));

  for (int r = 0; r < RANKS; r++) {
    NCCL(ncclCommDestroy(comm[r]));
    CUDA(cudaStreamDestroy(stream[r]));
    CUDA(cudaFree(in[r]));
    CUDA(cudaFree(out[r]));
  }
  int right = differ == 0 && refused == ncclInvalidArgument;
  printf("%s\n", right ? "each call was done as asked" : "wrong");
  return !right;
}
