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
  TT_TRY(tt_comm_look(comm, "tuttiCommDiagnose"));
  ncclResult_t res = json == NULL
                         ? tt_fail(ncclInvalidArgument, "tuttiCommDiagnose on rank %d: json is NULL", comm->rank)
                         : tt_comm_diagnose(comm, json, &length);
  tt_comm_look_away(comm);
  return res;
}

__attribute__((visibility("default"))) ncclResult_t tuttiCommFlightRecorder(ncclComm_t comm, char **json)
{
  size_t length;
  TT_TRY(tt_comm_look(comm, "tuttiCommFlightRecorder"));
  ncclResult_t res = json == NULL
                         ? tt_fail(ncclInvalidArgument, "tuttiCommFlightRecorder on rank %d: json is NULL", comm->rank)
                         : tt_comm_flight_text(comm, TT_VALUES_JSON, SIZE_MAX, json, &length);
  tt_comm_look_away(comm);
  return res;
}

__attribute__((visibility("default"))) ncclResult_t tuttiFlightRecorderDump(const char *prefix)
{
  return prefix == NULL ? tt_fail(ncclInvalidArgument, "tuttiFlightRecorderDump: the prefix is NULL")
                        : tt_comm_flight_dump(prefix);
}
