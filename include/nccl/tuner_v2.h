// nccl/tuner_v2.h: a tuner plugin of version 2 exports `ncclTunerPlugin_v2`. It answers with an algorithm and a
// protocol.
//
// nccl/tuner.h has the numbers of algorithms and protocols. It also says which call comes when, from which thread; that
// holds for all versions.
#ifndef TUNER_V2_H_
#define TUNER_V2_H_

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

  // Chooses for one collective. `nBytes`: the larger of the two buffers; `collNetSupport`, `nvlsSupport`: 1 where the
  // network, or the links, can reduce (here 0 both); `numPipeOps`: collectives that share a channel in this group.
  // *algorithm and *protocol come in as NCCL_ALGO_UNDEF and NCCL_PROTO_UNDEF, *nChannels as 0: what is left so the
  // library decides. Both of algorithm and protocol are set, or neither.
  ncclResult_t (*getCollInfo)(void *context, ncclFunc_t collType, size_t nBytes, int collNetSupport, int nvlsSupport,
                              int numPipeOps, int *algorithm, int *protocol, int *nChannels);

  // Ends what init began. Called once for every init that succeeded.
  ncclResult_t (*destroy)(void *context);
} ncclTuner_v2_t;

#ifdef __cplusplus
}
#endif
#endif
