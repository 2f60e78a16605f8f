// later.c: functions of the API that are not part of this version yet. docs/compatibility.md lists them.
#include "api/api_priv.h"
#include "base/result.h"
#include "nccl_device.h"

static ncclResult_t later(const char *name)
{
  return tt_fail(ncclInvalidUsage, "%s is not part of this version of Tutti (see docs/compatibility.md)", name);
}

#define LATER(name, ...)                   \
  TT_TWIN(name);                           \
  TT_EXPORT ncclResult_t name(__VA_ARGS__) \
  {                                        \
    return later(#name);                   \
  }

#pragma GCC diagnostic ignored "-Wunused-parameter"
LATER(ncclCommRevoke, ncclComm_t comm, int revokeFlags)
LATER(ncclCommShrink, ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
      ncclConfig_t *config, int shrinkFlags)
LATER(ncclCommGetUniqueId, ncclComm_t comm, ncclUniqueId *uniqueId)
LATER(ncclCommGrow, ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
      ncclConfig_t *config)
LATER(ncclCommSuspend, ncclComm_t comm, int flags)
LATER(ncclCommResume, ncclComm_t comm)
LATER(ncclCommMemStats, ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
LATER(ncclPutSignal, const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
      size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)
LATER(ncclSignal, int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)
LATER(ncclWaitSignal, int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream)

// NCCL exports these two and installs no header that declares them.
struct ncclGinOutboxHandle;
struct ncclGinInboxA2AHandle;
ncclResult_t ncclGinOutboxCreateRequirement(int nBlocks, int size_log2, struct ncclGinOutboxHandle *outHandle,
                                            ncclDevResourceRequirements_t *outReq);
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nBlocks, int size_log2,
                                              struct ncclGinInboxA2AHandle *outHandle,
                                              ncclDevResourceRequirements_t *outReq);
LATER(ncclGinOutboxCreateRequirement, int nBlocks, int size_log2, struct ncclGinOutboxHandle *outHandle,
      ncclDevResourceRequirements_t *outReq)
LATER(ncclGinInboxA2ACreateRequirement, ncclTeam_t peers, int nBlocks, int size_log2,
      struct ncclGinInboxA2AHandle *outHandle, ncclDevResourceRequirements_t *outReq)
