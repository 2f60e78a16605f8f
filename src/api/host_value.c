// host_value.c: the tutti… functions for words of memory that streams write and wait for.
#include "api/host_priv.h"
#include "base/result.h"
#include "device/host/device.h"
#include "device/host/stream.h"
#include "device/host/value.h"

static ncclResult_t check_address(const char *what, const tt_value *v)
{
  if (v->at == NULL || (uintptr_t)v->at % v->bytes != 0) {
    return tt_fail(ncclInvalidArgument, "%s: address %p is not that of an aligned word of %u bytes", what, v->at,
                   v->bytes);
  }
  return ncclSuccess;
}

static ncclResult_t write_value(const char *what, cudaStream_t stream, const tt_value *v)
{
  TT_TRY(check_address(what, v));
  return tt_api_push(what, stream, tt_value_write(v));
}

static ncclResult_t wait_value(const char *what, cudaStream_t stream, const tt_value *v,
                               tuttiValueCondition_t condition)
{
  tt_stream *s;
  TT_TRY(check_address(what, v));
  if ((unsigned)condition > tuttiValueNor) {
    return tt_fail(ncclInvalidArgument, "%s: condition is %d; known are 0 to %d", what, (int)condition, tuttiValueNor);
  }
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  return tt_api_push_to(what, s, tt_value_wait(v, condition, s->device));
}

TUTTI_API tuttiStreamWriteValue32(cudaStream_t stream, uint32_t *at, uint32_t value)
{
  return write_value("tuttiStreamWriteValue32", stream, &(tt_value){.at = at, .value = value, .bytes = 4});
}

TUTTI_API tuttiStreamWriteValue64(cudaStream_t stream, uint64_t *at, uint64_t value)
{
  return write_value("tuttiStreamWriteValue64", stream, &(tt_value){.at = at, .value = value, .bytes = 8});
}

TUTTI_API tuttiStreamWaitValue32(cudaStream_t stream, const uint32_t *at, uint32_t value,
                                 tuttiValueCondition_t condition)
{
  const tt_value v = {.at = (void *)(uintptr_t)at, .value = value, .bytes = 4};
  return wait_value("tuttiStreamWaitValue32", stream, &v, condition);
}

TUTTI_API tuttiStreamWaitValue64(cudaStream_t stream, const uint64_t *at, uint64_t value,
                                 tuttiValueCondition_t condition)
{
  const tt_value v = {.at = (void *)(uintptr_t)at, .value = value, .bytes = 8};
  return wait_value("tuttiStreamWaitValue64", stream, &v, condition);
}

TUTTI_API tuttiDeviceAbandonValues(int device)
{
  tt_value_abandon(device);
  return ncclSuccess;
}
