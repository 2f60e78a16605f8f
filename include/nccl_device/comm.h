// comm.h: the device communicator. Host programs keep it and pass it on to kernels; its members are the library's.
#ifndef NCCL_DEVICE_COMM_H_
#define NCCL_DEVICE_COMM_H_

#include "core.h"
#include "gin_barrier.h"
#include "lsa_barrier.h"

#define NCCL_GIN_MAX_CONNECTIONS 4

typedef struct ncclDevCommWindowTable *ncclDevCommWindowTable_t;

// The device communicator's own window, as far as kernels need it.
typedef struct ncclResourceWindow_vidmem {
  char reserved1[8];
  char *lsaFlatBase;
  char reserved2[8];
  uint32_t stride4G;
  uint32_t mcOffset4K;
  char reserved3[32];
} ncclResourceWindow_vidmem_t;

struct ncclDevComm {
  unsigned int magic;
  unsigned int version;
  int rank, nRanks;
  uint32_t nRanks_rcp32; // reciprocal, for division without a division
  int lsaRank, lsaSize;
  uint32_t lsaSize_rcp32;
  ncclDevCommWindowTable_t windowTable;
  ncclWindow_t resourceWindow;
  ncclResourceWindow_vidmem_t resourceWindow_inlined;
  ncclGinBarrierHandle_t hybridWorldGinBarrier;
  ncclMultimemHandle_t lsaMultimem;
  ncclLsaBarrierHandle_t lsaBarrier;
  ncclGinBarrierHandle_t railGinBarrier;
  uint8_t ginConnectionCount;
  uint8_t ginNetDeviceTypes[NCCL_GIN_MAX_CONNECTIONS];
  void *ginHandles[NCCL_GIN_MAX_CONNECTIONS];
  int ginSignalCount;
  int ginCounterCount;
  uint64_t *ginSignalShadows;
  uint32_t ginContextCount;
  bool ginConnectionsRailed;
  bool ginStrongLegacySignals;
  bool ginContextsRailed;
  uint32_t *abortFlag;
  ncclLsaBarrierHandle_t hybridLsaBarrier;
  ncclGinBarrierHandle_t hybridRailGinBarrier;
  ncclGinBarrierHandle_t worldGinBarrier;
};

#ifdef __cplusplus
// The teams of a device communicator.
NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamWorld(ncclDevComm const &comm)
{
  ncclTeam_t team = {comm.nRanks, comm.rank, 1};
  return team;
}

NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamLsa(ncclDevComm const &comm)
{
  ncclTeam_t team = {comm.lsaSize, comm.lsaRank, 1};
  return team;
}

NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamRail(ncclDevComm const &comm)
{
  return ncclTeamOuterFactor(ncclTeamWorld(comm), comm.lsaSize);
}

NCCL_HOST_DEVICE_INLINE int ncclTeamRankToWorld(ncclDevComm const &comm, ncclTeam_t team, int rank)
{
  return comm.rank + tuttiTeamDistance(team, rank);
}

NCCL_HOST_DEVICE_INLINE int ncclTeamRankToLsa(ncclDevComm const &comm, ncclTeam_t team, int rank)
{
  return comm.lsaRank + tuttiTeamDistance(team, rank);
}
#endif

#endif
