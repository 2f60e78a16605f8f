// diagnose.c: what a job does and has done: flight recorders.
#include "api/api_priv.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/diagnose.h"
#include "comm/flight.h"
#include "tutti.h"

__attribute__((visibility("default"))) ncclResult_t tuttiCommDiagnose(ncclComm_t comm, char **json)
{
  size_t length;
  TT_TRY(tt_comm_check(comm, "tuttiCommDiagnose", false));
  if (json == NULL) {
    return tt_fail(ncclInvalidArgument, "tuttiCommDiagnose on rank %d: json is NULL", comm->rank);
  }
  return tt_comm_diagnose(comm, json, &length);
}

__attribute__((visibility("default"))) ncclResult_t tuttiCommFlightRecorder(ncclComm_t comm, char **json)
{
  size_t length;
  TT_TRY(tt_comm_check(comm, "tuttiCommFlightRecorder", false));
  if (json == NULL) {
    return tt_fail(ncclInvalidArgument, "tuttiCommFlightRecorder on rank %d: json is NULL", comm->rank);
  }
  return tt_comm_flight_text(comm, TT_VALUES_JSON, SIZE_MAX, json, &length);
}

__attribute__((visibility("default"))) ncclResult_t tuttiFlightRecorderDump(const char *prefix)
{
  return prefix == NULL ? tt_fail(ncclInvalidArgument, "tuttiFlightRecorderDump: the prefix is NULL")
                        : tt_comm_flight_dump(prefix);
}
