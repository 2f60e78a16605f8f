// device.c: the host side of the device API (include/nccl_device). There is no device code, so that a rank reaches
// windows of its own only.
#include <string.h>

#include "api/api_priv.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "comm/comm.h"
#include "comm/register.h"
#include "nccl_device.h"

// A structure that its header's initialiser filled, of this NCCL or an older one.
static ncclResult_t check_structure(const char *what, const char *name, unsigned magic, unsigned version)
{
  if (magic != NCCL_API_MAGIC) {
    return tt_fail(ncclInvalidUsage, "%s: %s was not initialised with its initialiser (magic 0x%x)", what, name, magic);
  }
  if (version > NCCL_VERSION_CODE) {
    return tt_fail(
        ncclInvalidUsage,
        "%s: %s is of NCCL %u; this library has the interface of %d: compile with its headers, or older ones", what,
        name, version, NCCL_VERSION_CODE);
  }
  return ncclSuccess;
}

// Of a communicator that has been entered.
static ncclResult_t take_properties(const struct ncclComm *comm, ncclCommProperties_t *props)
{
  const size_t from = offsetof(ncclCommProperties_t, rank);
  if (props == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclCommQueryProperties on rank %d: props is NULL", comm->rank);
  }
  TT_TRY(check_structure("ncclCommQueryProperties", "ncclCommProperties_t", props->magic, props->version));
  if (props->size < from) {
    return tt_fail(ncclInvalidUsage,
                   "ncclCommQueryProperties on rank %d: ncclCommProperties_t.size is %zu; its first version has more",
                   comm->rank, props->size);
  }
  const ncclCommProperties_t all = {.rank = comm->rank,
                                    .nRanks = comm->nranks,
                                    .cudaDev = comm->device,
                                    .nvmlDev = comm->device,
                                    .ginType = NCCL_GIN_TYPE_NONE,
                                    .nLsaTeams = comm->nranks,
                                    .railedGinType = NCCL_GIN_TYPE_NONE};
  memcpy((char *)props + from, (const char *)&all + from, TT_MIN(props->size, sizeof all) - from);
  return ncclSuccess;
}

TT_TWIN(ncclCommQueryProperties);
TT_EXPORT ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props)
{
  TT_TRY(tt_comm_begin(comm, "ncclCommQueryProperties", true));
  ncclResult_t res = take_properties(comm, props);
  tt_comm_leave(comm);
  return res;
}

TT_TWIN(ncclDevCommCreate);
TT_EXPORT ncclResult_t ncclDevCommCreate(ncclComm_t comm, ncclDevCommRequirements_t const *reqs,
                                         ncclDevComm_t *outDevComm)
{
  TT_TRY(tt_comm_check(comm, "ncclDevCommCreate", true));
  if (reqs == NULL || outDevComm == NULL) {
    return tt_fail(ncclInvalidArgument,
                   "ncclDevCommCreate on rank %d: reqs is %p, outDevComm is %p; both must be given", comm->rank,
                   (const void *)reqs, (void *)outDevComm);
  }
  TT_TRY(check_structure("ncclDevCommCreate", "ncclDevCommRequirements_t", reqs->magic, reqs->version));
  return tt_fail(
      ncclInvalidUsage,
      "ncclDevCommCreate on rank %d: this library has no device code, so that no kernel can use a device communicator; "
      "ncclCommQueryProperties says so (deviceApiSupport is false)",
      comm->rank);
}

TT_TWIN(ncclDevCommDestroy);
TT_EXPORT ncclResult_t ncclDevCommDestroy(ncclComm_t comm, ncclDevComm_t const *devComm)
{
  static const ncclDevComm_t none;
  TT_TRY(tt_comm_check(comm, "ncclDevCommDestroy", false));
  if (devComm == NULL || memcmp(devComm, &none, sizeof none) != 0) {
    return tt_fail(ncclInvalidArgument,
                   "ncclDevCommDestroy on rank %d: %p is no device communicator of this library, which makes none",
                   comm->rank, (const void *)devComm);
  }
  return ncclSuccess;
}

// The window of a handle. `offset` must lie in it.
static ncclResult_t find_window(const char *what, ncclWindow_t handle, size_t offset, void *const *out, tt_window *w)
{
  if (handle == NULL || out == NULL) {
    return tt_fail(ncclInvalidArgument, "%s: window is %p, outPtr is %p; both must be given", what, (void *)handle,
                   (const void *)out);
  }
  if (!tt_window_find(handle, w)) {
    return tt_fail(ncclInvalidArgument, "%s: %p is not a window, or has been deregistered", what, (void *)handle);
  }
  if (offset >= w->size) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: offset %zu lies outside the window of %zu bytes", what, w->rank,
                   offset, w->size);
  }
  return ncclSuccess;
}

TT_TWIN(ncclGetLsaMultimemDevicePointer);
TT_EXPORT ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **outPtr)
{
  tt_window w;
  TT_TRY(find_window("ncclGetLsaMultimemDevicePointer", window, offset, outPtr, &w));
  *outPtr = NULL;
  return ncclSuccess;
}

TT_TWIN(ncclGetMultimemDevicePointer);
TT_EXPORT ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem,
                                                    void **outPtr)
{
  tt_window w;
  TT_TRY(find_window("ncclGetMultimemDevicePointer", window, offset, outPtr, &w));
  if (multimem.mcBasePtr == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclGetMultimemDevicePointer on rank %d: the handle is empty", w.rank);
  }
  *outPtr = NULL;
  return ncclSuccess;
}

TT_TWIN(ncclGetLsaDevicePointer);
TT_EXPORT ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void **outPtr)
{
  tt_window w;
  TT_TRY(find_window("ncclGetLsaDevicePointer", window, offset, outPtr, &w));
  if (lsaRank != 0) {
    return tt_fail(ncclInvalidArgument,
                   "ncclGetLsaDevicePointer on rank %d: lsaRank is %d; the team has one member, with rank 0", w.rank,
                   lsaRank);
  }
  *outPtr = w.base + offset;
  return ncclSuccess;
}

TT_TWIN(ncclGetPeerDevicePointer);
TT_EXPORT ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr)
{
  tt_window w;
  TT_TRY(find_window("ncclGetPeerDevicePointer", window, offset, outPtr, &w));
  if (peer < 0 || peer >= w.nranks) {
    return tt_fail(ncclInvalidArgument, "ncclGetPeerDevicePointer on rank %d: peer is %d; it must lie between 0 and %d",
                   w.rank, peer, w.nranks - 1);
  }
  *outPtr = peer == w.rank ? w.base + offset : NULL;
  return ncclSuccess;
}

TT_TWIN(ncclTeamWorld);
TT_EXPORT ncclTeam_t ncclTeamWorld(ncclComm_t comm)
{
  bool good = tt_comm_check(comm, "ncclTeamWorld", true) == ncclSuccess;
  return good ? (ncclTeam_t){.nRanks = comm->nranks, .rank = comm->rank, .stride = 1} : (ncclTeam_t){0};
}

TT_TWIN(ncclTeamLsa);
TT_EXPORT ncclTeam_t ncclTeamLsa(ncclComm_t comm)
{
  bool good = tt_comm_check(comm, "ncclTeamLsa", true) == ncclSuccess;
  return good ? (ncclTeam_t){.nRanks = 1, .rank = 0, .stride = 1} : (ncclTeam_t){0};
}

TT_TWIN(ncclTeamRail);
TT_EXPORT ncclTeam_t ncclTeamRail(ncclComm_t comm)
{
  bool good = tt_comm_check(comm, "ncclTeamRail", true) == ncclSuccess;
  return good ? (ncclTeam_t){.nRanks = comm->nranks, .rank = comm->rank, .stride = 1} : (ncclTeam_t){0};
}

TT_TWIN(ncclTeamRankToWorld);
TT_EXPORT int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank)
{
  return tt_comm_check(comm, "ncclTeamRankToWorld", true) == ncclSuccess ? comm->rank + tuttiTeamDistance(team, rank)
                                                                         : -1;
}

TT_TWIN(ncclTeamRankToLsa);
TT_EXPORT int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank)
{
  return tt_comm_check(comm, "ncclTeamRankToLsa", true) == ncclSuccess ? tuttiTeamDistance(team, rank) : -1;
}

// Checks what the functions below have in common: two numbers, two outputs.
static ncclResult_t check_requirement(const char *what, int a, int b, const void *handle, const void *req)
{
  if (a < 0 || b < 0 || handle == NULL || req == NULL) {
    return tt_fail(
        ncclInvalidArgument,
        "%s: the numbers are %d and %d, outHandle is %p, outReq is %p; numbers must be at least 0, outputs given", what,
        a, b, handle, req);
  }
  return ncclSuccess;
}

TT_TWIN(ncclLsaBarrierCreateRequirement);
TT_EXPORT ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers,
                                                       ncclLsaBarrierHandle_t *outHandle,
                                                       ncclDevResourceRequirements_t *outReq)
{
  TT_TRY(check_requirement("ncclLsaBarrierCreateRequirement", team.nRanks, nBarriers, outHandle, outReq));
  outHandle->nBarriers = nBarriers;
  *outReq =
      (ncclDevResourceRequirements_t){.bufferSize = (size_t)nBarriers * (3 + (size_t)team.nRanks) * sizeof(uint32_t),
                                      .bufferAlign = sizeof(uint32_t),
                                      .outBufferHandle = &outHandle->bufHandle};
  return ncclSuccess;
}

TT_TWIN(ncclGinBarrierCreateRequirement);
TT_EXPORT ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                                       ncclGinBarrierHandle_t *outHandle,
                                                       ncclDevResourceRequirements_t *outReq)
{
  TT_TRY(tt_comm_check(comm, "ncclGinBarrierCreateRequirement", true));
  TT_TRY(check_requirement("ncclGinBarrierCreateRequirement", team.nRanks, nBarriers, outHandle, outReq));
  *outReq = (ncclDevResourceRequirements_t){.ginSignalCount = nBarriers * team.nRanks,
                                            .outGinSignalStart = &outHandle->signal0};
  return ncclSuccess;
}

TT_TWIN(ncclLLA2ACalcSlots);
TT_EXPORT int ncclLLA2ACalcSlots(int maxElts, int maxEltSize)
{
  return maxElts * TT_DIV_UP(maxEltSize, 8);
}

TT_TWIN(ncclLLA2ACreateRequirement);
TT_EXPORT ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle,
                                                  ncclDevResourceRequirements_t *outReq)
{
  TT_TRY(check_requirement("ncclLLA2ACreateRequirement", nBlocks, nSlots, outHandle, outReq));
  outHandle->nSlots = (uint32_t)nSlots;
  *outReq = (ncclDevResourceRequirements_t){.bufferSize = (size_t)nBlocks * (1 + 2 * (size_t)nSlots) * 16,
                                            .bufferAlign = 16,
                                            .outBufferHandle = &outHandle->bufHandle};
  return ncclSuccess;
}
