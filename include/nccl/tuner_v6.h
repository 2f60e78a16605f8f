// nccl/tuner_v6.h: a tuner plugin of version 6 exports `ncclTunerPlugin_v6`. New: it may set the size of chunks.
//
// nccl/tuner.h has the numbers of algorithms and protocols. It also says which call comes when, from which thread; that
// holds for all versions.
#ifndef TUNER_V6_H_
#define TUNER_V6_H_

#include "tuner_v5.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef ncclTunerConstants_v5_t ncclTunerConstants_v6_t;
typedef ncclNvlDomainInfo_v5_t ncclNvlDomainInfo_v6_t;

typedef struct {
  // For the log. May be NULL.
  const char *name;

  // As in version 5.
  ncclResult_t (*init)(void **ctx, uint64_t commId, size_t nRanks, size_t nNodes, ncclDebugLogger_t logFunction,
                       ncclNvlDomainInfo_v6_t *nvlDomainInfo, ncclTunerConstants_v6_t *constants);

  // As in version 4.
  ncclResult_t (*getCollInfo)(void *context, ncclFunc_t collType, size_t nBytes, int numPipeOps, float **collCostTable,
                              int numAlgo, int numProto, int regBuff, int *nChannels);

  // Ends what init began. Called once for every init that succeeded.
  ncclResult_t (*finalize)(void *context);

  // NULL: chunks are as the library cuts them. Else asked after getCollInfo, with what was chosen; *chunkSize, in
  // bytes, comes in with the library's size and may be changed. It is cut to what a buffer holds and rounded down to 64
  // bytes, which is also the least. Anything but ncclSuccess: as if it had changed nothing.
  ncclResult_t (*getChunkSize)(void *context, ncclFunc_t collType, size_t nBytes, int algo, int proto, int nChannels,
                               size_t *chunkSize);
} ncclTuner_v6_t;

#ifdef __cplusplus
}
#endif
#endif
