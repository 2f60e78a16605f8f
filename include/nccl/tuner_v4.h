// nccl/tuner_v4.h: a tuner plugin of version 4 exports `ncclTunerPlugin_v4`. New: whether the buffers are registered.
//
// nccl/tuner.h has the numbers of algorithms and protocols. It also says which call comes when, from which thread; that
// holds for all versions.
#ifndef TUNER_V4_H_
#define TUNER_V4_H_

#include <stddef.h>

#include "common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  // For the log. May be NULL.
  const char *name;

  // As in version 3.
  ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t logFunction, void **context);

  // As in version 3. `regBuff`: 1 when both buffers of this rank are registered (ncclCommRegister), else 0.
  ncclResult_t (*getCollInfo)(void *context, ncclFunc_t collType, size_t nBytes, int numPipeOps, float **collCostTable,
                              int numAlgo, int numProto, int regBuff, int *nChannels);

  // Ends what init began. Called once for every init that succeeded.
  ncclResult_t (*destroy)(void *context);
} ncclTuner_v4_t;

#ifdef __cplusplus
}
#endif
#endif
