// ll_a2a.h: all-to-all of kernels with protocol LL.
#ifndef NCCL_DEVICE_LL_A2A_H_
#define NCCL_DEVICE_LL_A2A_H_

#include "core.h"

typedef struct ncclLLA2AHandle {
  ncclDevResourceHandle_t bufHandle;
  uint32_t nSlots;
} ncclLLA2AHandle_t;

// Slots of 8 bytes that `maxElts` elements of `maxEltSize` bytes need.
NCCL_EXTERN_C int ncclLLA2ACalcSlots(int maxElts, int maxEltSize);
NCCL_EXTERN_C int pncclLLA2ACalcSlots(int maxElts, int maxEltSize);

// Writes into *outReq what `nBlocks` thread blocks with `nSlots` slots each need: 16 * (1 + 2 * nSlots) bytes each.
// Keeps `outHandle`, as ncclLsaBarrierCreateRequirement. Errors: ncclInvalidArgument (an output is NULL, a number is
// negative).
NCCL_EXTERN_C ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle,
                                                      ncclDevResourceRequirements_t *outReq);
NCCL_EXTERN_C ncclResult_t pncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle,
                                                       ncclDevResourceRequirements_t *outReq);

#endif
