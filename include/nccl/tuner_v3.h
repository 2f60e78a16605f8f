// nccl/tuner_v3.h: a tuner plugin of version 3 exports `ncclTunerPlugin_v3`. It answers in a table of costs.
//
// nccl/tuner.h has the numbers of algorithms and protocols. It also says which call comes when, from which thread; that
// holds for all versions.
#ifndef TUNER_V3_H_
#define TUNER_V3_H_

#include <stddef.h>

#include "common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  // For the log. May be NULL.
  const char *name;

  // Begins with a communicator of so many ranks on so many nodes. The plugin may keep `logFunction`. *context: the
  // plugin's own, given back with every call for this communicator; may stay NULL. Anything but ncclSuccess: the
  // communicator does without this plugin.
  ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t logFunction, void **context);

  // Chooses for one collective. `nBytes`: the larger of the two buffers; `numPipeOps`: collectives that share a channel
  // in this group. `collCostTable`: in truth `float (*)[numProto]`, numAlgo rows: predicted microseconds, which the
  // plugin changes; the least one wins. NCCL_ALGO_PROTO_IGNORE is what cannot be had, and stays so. *nChannels comes in
  // as 0, which leaves it to the library. Anything but ncclSuccess: as if the plugin had changed nothing.
  ncclResult_t (*getCollInfo)(void *context, ncclFunc_t collType, size_t nBytes, int numPipeOps, float **collCostTable,
                              int numAlgo, int numProto, int *nChannels);

  // Ends what init began. Called once for every init that succeeded.
  ncclResult_t (*destroy)(void *context);
} ncclTuner_v3_t;

#ifdef __cplusplus
}
#endif
#endif
