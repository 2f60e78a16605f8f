// device.c: the host side of the device API (include/nccl_device). There is no device code; the host's own code may
// use the addresses. One-sided operations of the host are in one_sided.c.
#include <string.h>

#include "api/api_priv.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "comm/comm.h"
#include "comm/lsa.h"
#include "comm/one_sided.h"
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
  const char *why;
  const ncclCommProperties_t all = {.rank = comm->rank,
                                    .nRanks = comm->nranks,
                                    .cudaDev = comm->device,
                                    .nvmlDev = comm->device,
                                    .ginType = NCCL_GIN_TYPE_NONE,
                                    .nLsaTeams = comm->nranks / tt_lsa_team(comm).n,
                                    .hostRmaSupport = tt_rma_supported(comm, &why),
                                    .railedGinType = NCCL_GIN_TYPE_NONE,
                                    .commHash = comm->hash};
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
    return tt_fail(ncclInvalidArgument, "%s: window is %p, the output %p; both must be given", what, (void *)handle,
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

// There is no CFT, so what is left to tell is what else is wrong.
static ncclResult_t refuse_endpoint(const char *what, ncclWindow_t window, size_t offset, const void *id,
                                    const void *le_offset)
{
  tt_window w;
  void *const outputs = id != NULL && le_offset != NULL ? &w : NULL;
  TT_TRY(find_window(what, window, offset, outputs, &w));
  return tt_fail(ncclInvalidArgument, "%s on rank %d: this library has no CFT: it needs GPUs", what, w.rank);
}

TT_TWIN(ncclGetMultimemDeviceLeInfo);
TT_EXPORT ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, ncclCftLeId *leId,
                                                   size_t *leOffset)
{
  return refuse_endpoint("ncclGetMultimemDeviceLeInfo", window, offset, leId, leOffset);
}

TT_TWIN(ncclGetCftDeviceLeInfo);
TT_EXPORT ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam,
                                              ncclCftLeId *leId, size_t *leOffset)
{
  (void)peerCft;
  (void)cftTeam;
  return refuse_endpoint("ncclGetCftDeviceLeInfo", window, offset, leId, leOffset);
}

TT_TWIN(ncclGetPeerDeviceLeInfo);
TT_EXPORT ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId *leId,
                                               size_t *leOffset)
{
  (void)peerWorld;
  return refuse_endpoint("ncclGetPeerDeviceLeInfo", window, offset, leId, leOffset);
}

// The address of byte `offset` of a team member's window; NULL where its memory cannot be mapped.
static ncclResult_t peer_address(const char *what, const tt_window *w, size_t offset, int peer, void **out)
{
  char *base = NULL;
  TT_TRY(tt_comm_begin(w->comm, what, true));
  ncclResult_t res = tt_lsa_address(w->comm, what, w, peer, &base);
  tt_comm_leave(w->comm);
  if (res == ncclSuccess) {
    *out = base != NULL ? base + offset : NULL;
  }
  return res;
}

TT_TWIN(ncclGetLsaDevicePointer);
TT_EXPORT ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void **outPtr)
{
  static const char *const what = "ncclGetLsaDevicePointer";
  tt_window w;
  TT_TRY(find_window(what, window, offset, outPtr, &w));
  TT_TRY(tt_comm_check(w.comm, what, true));
  const tt_lsa team = tt_lsa_team(w.comm);
  if (lsaRank < 0 || lsaRank >= team.n) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: lsaRank is %d; the team has %d, from 0", what, w.rank, lsaRank,
                   team.n);
  }
  void *p;
  TT_TRY(peer_address(what, &w, offset, team.first + lsaRank, &p));
  if (p == NULL) {
    return tt_fail(ncclInvalidUsage,
                   "%s on rank %d: the window of rank %d lies in memory that other processes cannot map; use memory of "
                   "ncclMemAlloc, or NCCL_HOST_REGISTER_MAP=1",
                   what, w.rank, team.first + lsaRank);
  }
  *outPtr = p;
  return ncclSuccess;
}

TT_TWIN(ncclGetPeerDevicePointer);
TT_EXPORT ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr)
{
  static const char *const what = "ncclGetPeerDevicePointer";
  tt_window w;
  TT_TRY(find_window(what, window, offset, outPtr, &w));
  if (peer < 0 || peer >= w.nranks) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: peer is %d; it must lie between 0 and %d", what, w.rank, peer,
                   w.nranks - 1);
  }
  TT_TRY(tt_comm_check(w.comm, what, true));
  const tt_lsa team = tt_lsa_team(w.comm);
  if (peer < team.first || peer >= team.first + team.n) {
    *outPtr = NULL;
    return ncclSuccess;
  }
  return peer_address(what, &w, offset, peer, outPtr);
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
  if (tt_comm_check(comm, "ncclTeamLsa", true) != ncclSuccess) {
    return (ncclTeam_t){0};
  }
  const tt_lsa team = tt_lsa_team(comm);
  return (ncclTeam_t){.nRanks = team.n, .rank = comm->rank - team.first, .stride = 1};
}

TT_TWIN(ncclTeamRail);
TT_EXPORT ncclTeam_t ncclTeamRail(ncclComm_t comm)
{
  if (tt_comm_check(comm, "ncclTeamRail", true) != ncclSuccess) {
    return (ncclTeam_t){0};
  }
  const int n = tt_lsa_team(comm).n;
  return (ncclTeam_t){.nRanks = comm->nranks / n, .rank = comm->rank / n, .stride = n};
}

static ncclTeam_t team_alone(ncclComm_t comm, const char *what, bool exists)
{
  bool good = tt_comm_check(comm, what, true) == ncclSuccess && exists;
  return good ? (ncclTeam_t){.nRanks = 1, .stride = 1} : (ncclTeam_t){0};
}

TT_TWIN(ncclTeamCft);
TT_EXPORT ncclTeam_t ncclTeamCft(ncclComm_t comm, ncclCftTeamMode_t mode)
{
  return team_alone(comm, "ncclTeamCft", mode <= NCCL_CFT_TEAM_HIER_LSA);
}

TT_TWIN(ncclTeamCftMultimem);
TT_EXPORT ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm)
{
  return team_alone(comm, "ncclTeamCftMultimem", true);
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
  if (tt_comm_check(comm, "ncclTeamRankToLsa", true) != ncclSuccess) {
    return -1;
  }
  return comm->rank - tt_lsa_team(comm).first + tuttiTeamDistance(team, rank);
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

// NCCL exports these two and installs no header that declares them: buffers of its own kernels.
struct ncclGinOutboxHandle;
struct ncclGinInboxA2AHandle;
ncclResult_t ncclGinOutboxCreateRequirement(int nBlocks, int size_log2, struct ncclGinOutboxHandle *outHandle,
                                            ncclDevResourceRequirements_t *outReq);
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nBlocks, int size_log2,
                                              struct ncclGinInboxA2AHandle *outHandle,
                                              ncclDevResourceRequirements_t *outReq);

static ncclResult_t refuse_gin(const char *what)
{
  return tt_fail(ncclInvalidUsage, "%s: this library has no GIN: it needs GPUs", what);
}

TT_TWIN(ncclGinOutboxCreateRequirement);
TT_EXPORT ncclResult_t ncclGinOutboxCreateRequirement(int nBlocks, int size_log2, struct ncclGinOutboxHandle *outHandle,
                                                      ncclDevResourceRequirements_t *outReq)
{
  (void)nBlocks;
  (void)size_log2;
  (void)outHandle;
  (void)outReq;
  return refuse_gin("ncclGinOutboxCreateRequirement");
}

TT_TWIN(ncclGinInboxA2ACreateRequirement);
TT_EXPORT ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nBlocks, int size_log2,
                                                        struct ncclGinInboxA2AHandle *outHandle,
                                                        ncclDevResourceRequirements_t *outReq)
{
  (void)peers;
  (void)nBlocks;
  (void)size_log2;
  (void)outHandle;
  (void)outReq;
  return refuse_gin("ncclGinInboxA2ACreateRequirement");
}
