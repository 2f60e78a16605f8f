// group.c: groups, version, error texts.
#include <stddef.h>

#include "api/api_priv.h"
#include "base/log.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/group.h"

TT_TWIN(ncclGroupStart);
TT_EXPORT ncclResult_t ncclGroupStart(void)
{
  return tt_group_start();
}

TT_TWIN(ncclGroupEnd);
TT_EXPORT ncclResult_t ncclGroupEnd(void)
{
  return tt_group_end();
}

TT_TWIN(ncclGroupSimulateEnd);
TT_EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  size_t upto = offsetof(ncclSimInfo_t, estimatedTime) + sizeof info.estimatedTime;
  bool good = simInfo != NULL && simInfo->magic == info.magic && simInfo->size >= upto;
  double us = good ? simInfo->estimatedTime : 0;
  TT_TRY(tt_group_simulate(good ? &us : NULL));
  if (good) {
    simInfo->estimatedTime = (float)us;
  }
  return ncclSuccess;
}

TT_TWIN(ncclGetVersion);
TT_EXPORT ncclResult_t ncclGetVersion(int *version)
{
  if (version == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  }
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

TT_TWIN(ncclGetErrorString);
TT_EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
  return tt_result_string(result);
}

TT_TWIN(ncclGetLastError);
TT_EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
  bool alive = comm != NULL && atomic_load(&comm->magic) == TT_COMM_MAGIC;
  const char *why = alive ? tt_comm_error(comm) : NULL;
  return why != NULL ? why : tt_last_error_explained();
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // its twin is one, too
TT_TWIN(ncclResetDebugInit);
TT_EXPORT void ncclResetDebugInit(void)
{
  tt_log_reset();
}
