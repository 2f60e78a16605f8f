// gin_barrier.h: barriers of kernels over the network.
#ifndef NCCL_DEVICE_GIN_BARRIER_H_
#define NCCL_DEVICE_GIN_BARRIER_H_

#include "core.h"

typedef struct ncclGinBarrierHandle {
  ncclGinSignal_t signal0;
  ncclDevResourceHandle_t unused;
} ncclGinBarrierHandle_t;

// Writes into *outReq what `nBarriers` barriers of a team need: team.nRanks signals each. Keeps `outHandle`, as
// ncclLsaBarrierCreateRequirement. Errors: ncclInvalidArgument (no communicator, an output is NULL, a number is
// negative).
NCCL_EXTERN_C ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                                           ncclGinBarrierHandle_t *outHandle,
                                                           ncclDevResourceRequirements_t *outReq);
NCCL_EXTERN_C ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                                            ncclGinBarrierHandle_t *outHandle,
                                                            ncclDevResourceRequirements_t *outReq);

#endif
