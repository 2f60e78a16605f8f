// nccl/tuner_v5.h: a tuner plugin of version 5 exports `ncclTunerPlugin_v5`. New: the communicator's identity, the
// NVLink domains, and the constants of the model that predicts times, which a plugin may change. The order of init's
// arguments is another.
//
// nccl/tuner.h has the numbers of algorithms and protocols. It also says which call comes when, from which thread; that
// holds for all versions.
#ifndef TUNER_V5_H_
#define TUNER_V5_H_

#include <stddef.h>

#include "common.h"

#ifdef __cplusplus
extern "C" {
#endif

// Groups of ranks that reach each other over NVLink. Here, as in NCCL: the nodes.
typedef struct {
  int nNvlDomains;
  int minRanksPerNvlDomain;
  int maxRanksPerNvlDomain;
} ncclNvlDomainInfo_v5_t;

#define NCCL_NUM_ALGORITHMS_V5 7
#define NCCL_NUM_PROTOCOLS_V5 3
#define NCCL_NUM_HW_LINKS_V5 3
#define NCCL_NUM_COMPCAPS_V5 4
#define NCCL_NUM_TUNING_SCALES_V5 3

// What the model of a machine with GPUs reckons with: latencies in microseconds, bandwidths in GB/s; by algorithm and
// protocol, kind of link, generation of GPU, and 1, 2 or more nodes.
typedef struct {
  double baseLatencies[NCCL_NUM_ALGORITHMS_V5][NCCL_NUM_PROTOCOLS_V5]; // of an operation, before the first byte
  double hwLatencies[NCCL_NUM_HW_LINKS_V5][NCCL_NUM_ALGORITHMS_V5][NCCL_NUM_PROTOCOLS_V5]; // of a step

  // With LL; over several nodes row 1 is for AMD processors, 0 for others.
  double llMaxBws[NCCL_NUM_COMPCAPS_V5][NCCL_NUM_TUNING_SCALES_V5];
  double perChMaxRingLL128Bws[NCCL_NUM_COMPCAPS_V5][NCCL_NUM_TUNING_SCALES_V5]; // of a channel
  double perChMaxTreeLL128Bws[NCCL_NUM_COMPCAPS_V5][NCCL_NUM_TUNING_SCALES_V5];
  double perChMaxTreeBws[NCCL_NUM_COMPCAPS_V5][NCCL_NUM_TUNING_SCALES_V5];
  double perChMaxNVLSTreeBws[NCCL_NUM_COMPCAPS_V5][NCCL_NUM_TUNING_SCALES_V5];
} ncclTunerConstants_v5_t;

typedef struct {
  // For the log. May be NULL.
  const char *name;

  // Begins with a communicator: its identity, the same on all ranks; ranks, nodes, domains. `constants` comes in with
  // the library's values; what the plugin changes holds for this communicator, where a file describes the machine
  // (NCCL_TOPO_FILE) and so this model is asked. Both pointers are valid during the call only. *ctx: the plugin's own,
  // given back with every call for this communicator; may stay NULL. Anything but ncclSuccess: the communicator does
  // without this plugin.
  ncclResult_t (*init)(void **ctx, uint64_t commId, size_t nRanks, size_t nNodes, ncclDebugLogger_t logFunction,
                       ncclNvlDomainInfo_v5_t *nvlDomainInfo, ncclTunerConstants_v5_t *constants);

  // As in version 4.
  ncclResult_t (*getCollInfo)(void *context, ncclFunc_t collType, size_t nBytes, int numPipeOps, float **collCostTable,
                              int numAlgo, int numProto, int regBuff, int *nChannels);

  // Ends what init began. Called once for every init that succeeded.
  ncclResult_t (*finalize)(void *context);
} ncclTuner_v5_t;

#ifdef __cplusplus
}
#endif
#endif
