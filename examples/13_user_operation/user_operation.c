// user_operation.c: operations that are functions of the program (tutti.h): a sum of numbers whose logarithms are
// known, which is the same in any order, and the value of the first rank that has one, which is not.
#include "../check.h"
#include <math.h>
#include <tutti.h>

enum { RANKS = 4, COUNT = 1000 };

static ncclComm_t comm[RANKS];
static cudaStream_t stream[RANKS];
static float *in[RANKS], *out[RANKS];

// inout = log(exp(in) + exp(inout)), without overflow.
static void add_logarithms(const void *in_, void *inout_, size_t count, ncclDataType_t type, void *arg)
{
  const float *a = in_;
  float *b = inout_;
  (void)type, (void)arg; // the program calls it with floats alone
  for (size_t i = 0; i < count; i++) {
    float high = fmaxf(a[i], b[i]), low = fminf(a[i], b[i]);
    b[i] = high + log1pf(expf(low - high));
  }
}

// `in` is what lower ranks have: it stays unless it is *arg, which stands for nothing.
static void take_first(const void *in_, void *inout_, size_t count, ncclDataType_t type, void *arg)
{
  const float *a = in_, *nothing = arg;
  float *b = inout_;
  (void)type;
  for (size_t i = 0; i < count; i++) {
    b[i] = a[i] != *nothing ? a[i] : b[i];
  }
}

// Every third element of a rank is nothing.
static float value(int rank, int i, float nothing)
{
  return (rank + i) % 3 == 0 ? nothing : sinf((float)(rank * COUNT + i)) * 80;
}

// One all-reduce of all ranks with an operation of their own.
static void all_reduce(tuttiRedOpFn_t function, int commutes, float *arg)
{
  ncclRedOp_t op[RANKS];
  for (int r = 0; r < RANKS; r++) {
    NCCL(tuttiRedOpCreateUser(&op[r], function, commutes, arg, comm[r]));
    for (int i = 0; i < COUNT; i++) {
      in[r][i] = value(r, i, *arg);
    }
  }
  NCCL(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    NCCL(ncclAllReduce(in[r], out[r], COUNT, ncclFloat, op[r], comm[r], stream[r]));
  }
  NCCL(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) {
    CUDA(cudaStreamSynchronize(stream[r]));
    NCCL(ncclRedOpDestroy(op[r], comm[r]));
  }
}

// How many elements of all ranks are further than `most` from what a loop over the ranks gives.
static int others(tuttiRedOpFn_t function, float *arg, float most)
{
  int n = 0;
  for (int i = 0; i < COUNT; i++) {
    float want = value(RANKS - 1, i, *arg);
    for (int r = RANKS - 2; r >= 0; r--) {
      float lower = value(r, i, *arg);
      function(&lower, &want, 1, ncclFloat, arg);
    }
    for (int r = 0; r < RANKS; r++) {
      n += !(fabsf(out[r][i] - want) <= most);
    }
  }
  return n;
}

int main(void)
{
  float least = -1e30f, nothing = 1234.5f; // the logarithm of (nearly) zero; a value that no rank has
  NCCL(ncclCommInitAll(comm, RANKS, NULL));
  for (int r = 0; r < RANKS; r++) {
    CUDA(cudaSetDevice(r));
    CUDA(cudaStreamCreate(&stream[r]));
    CUDA(cudaMallocManaged((void **)&in[r], COUNT * sizeof(float), cudaMemAttachGlobal));
    CUDA(cudaMallocManaged((void **)&out[r], COUNT * sizeof(float), cudaMemAttachGlobal));
  }
  all_reduce(add_logarithms, 1, &least);
  int sums = others(add_logarithms, &least, 1e-4f); // the order is the algorithm's: the last bits may differ
  printf("sums of logarithms: %d of %d are wrong\n", sums, RANKS * COUNT);
  all_reduce(take_first, 0, &nothing);
  int firsts = others(take_first, &nothing, 0);
  printf("values of the first rank that has one: %d are wrong\n", firsts);
  for (int r = 0; r < RANKS; r++) {
    NCCL(ncclCommDestroy(comm[r]));
    CUDA(cudaStreamDestroy(stream[r]));
    CUDA(cudaFree(in[r]));
    CUDA(cudaFree(out[r]));
  }
  printf("%s\n", sums + firsts == 0 ? "both operations did as the loops do" : "wrong");
  return sums + firsts != 0;
}
