// group.c: groups, version, error texts.
#include <stddef.h>

#include "api/api_priv.h"
#include "base/log.h"
#include "base/result.h"
#include "comm/comm.h"

TT_API(ncclResult_t, ncclGroupStart, void)
{
  return tt_group_start();
}

TT_API(ncclResult_t, ncclGroupEnd, void)
{
  return tt_group_end();
}

TT_API(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t *simInfo)
{
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  size_t known = offsetof(ncclSimInfo_t, estimatedTime) + sizeof info.estimatedTime;
  bool good = simInfo != NULL && simInfo->magic == info.magic && simInfo->size >= known;
  double us = good ? simInfo->estimatedTime : 0;
  TT_TRY(tt_group_simulate(good ? &us : NULL));
  if (good) {
    simInfo->estimatedTime = (float)us;
  }
  return ncclSuccess;
}

TT_API(ncclResult_t, ncclGetVersion, int *version)
{
  if (version == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  }
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

TT_API(const char *, ncclGetErrorString, ncclResult_t result)
{
  return tt_result_string(result);
}

TT_API(const char *, ncclGetLastError, ncclComm_t comm)
{
  bool alive = comm != NULL && atomic_load(&comm->magic) == TT_COMM_MAGIC;
  if (alive && tt_port_status(&comm->port) != ncclSuccess) {
    return comm->port.error;
  }
  return tt_last_error();
}

TT_API(void, ncclResetDebugInit, void)
{
  tt_log_reset();
}
