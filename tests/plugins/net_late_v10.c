// As net_late.c, of version 10: there is no finalize, and one init in the process.
// TEST_NET_LATE=hollow: init leaves the table as it was.
#define NET_VERSION 10
#include "net_tcp.h"

static ncclResult_t late_init(ncclDebugLogger_t log, ncclProfilerCallback_t profile);

ncclNet_v10_t ncclNetPlugin_v10 = {.name = "TestLate", .init = late_init};

static ncclResult_t late_init(ncclDebugLogger_t log, ncclProfilerCallback_t profile)
{
  if (getenv("TEST_NET_LATE") == NULL) {
    ncclNetPlugin_v10 = (ncclNet_v10_t){NET_TABLE};
    ncclNetPlugin_v10.init = late_init;
    ncclNetPlugin_v10.name = "TestChosen";
  }
  return tcp_init(log, profile);
}
