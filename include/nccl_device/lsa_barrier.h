// lsa_barrier.h: barriers of kernels through memory.
#ifndef NCCL_DEVICE_LSA_BARRIER_H_
#define NCCL_DEVICE_LSA_BARRIER_H_

#include "core.h"

typedef struct ncclLsaBarrierHandle {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
} ncclLsaBarrierHandle_t;

// Writes into *outReq what `nBarriers` barriers of a team need: 3 + team.nRanks words of 4 bytes each. Keeps
// `outHandle`, which must live until ncclDevCommCreate has written it. Errors: ncclInvalidArgument (an output is NULL,
// a number is negative).
NCCL_EXTERN_C ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers,
                                                           ncclLsaBarrierHandle_t *outHandle,
                                                           ncclDevResourceRequirements_t *outReq);
NCCL_EXTERN_C ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers,
                                                            ncclLsaBarrierHandle_t *outHandle,
                                                            ncclDevResourceRequirements_t *outReq);

#endif
