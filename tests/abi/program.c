/* program.c: what a user writes, in the common subset of C99 and C++: one rank sums its buffer with nobody. */
#include <stdio.h>

#include "nccl.h"
#include "tutti.h"

#define CHECK(call)                                                    \
  do {                                                                 \
    ncclResult_t result_ = (call);                                     \
    if (result_ != ncclSuccess) {                                      \
      fprintf(stderr, "%s: %s\n", #call, ncclGetErrorString(result_)); \
      return 1;                                                        \
    }                                                                  \
  } while (0)

int main(void)
{
  float in[3] = {1.0f, 2.0f, 3.0f};
  float out[3] = {0.0f, 0.0f, 0.0f};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  int version = 0;

  CHECK(ncclGetVersion(&version));
  if (version != NCCL_VERSION_CODE) {
    fprintf(stderr, "the library is %d, its header %d\n", version, NCCL_VERSION_CODE);
    return 1;
  }
  CHECK(ncclGetUniqueId(&id));
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  CHECK(ncclAllReduce(in, out, 3, ncclFloat32, ncclSum, comm, NULL));
  CHECK(tuttiStreamSynchronize(NULL));
  CHECK(ncclCommDestroy(comm));
  if (out[0] != 1.0f || out[1] != 2.0f || out[2] != 3.0f) {
    fprintf(stderr, "wrong sums: %g %g %g\n", (double)out[0], (double)out[1], (double)out[2]);
    return 1;
  }
  return 0;
}
