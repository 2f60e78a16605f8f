// A network plugin of version 11 whose table has a name and init alone, until init chooses the rest, and another name:
// as nccl-rdma-sharp-plugins does. TEST_NET_LATE=hollow: init leaves it as it was. TEST_NET_LATE=finalize: init adds
// finalize alone.
#define NET_VERSION 11
#include "net_tcp.h"

static ncclResult_t late_init(void **ctx, uint64_t comm, ncclNetCommConfig_v11_t *config, ncclDebugLogger_t log,
                              ncclProfilerCallback_t profile);

ncclNet_v11_t ncclNetPlugin_v11 = {.name = "TestLate", .init = late_init};

static ncclResult_t late_finalize(void *ctx)
{
  tcp_log(NCCL_LOG_INFO, NCCL_INIT, __FILE__, __LINE__, "tcp test plugin: finalize of a table that is not full");
  return tcp_finalize(ctx);
}

static ncclResult_t late_init(void **ctx, uint64_t comm, ncclNetCommConfig_v11_t *config, ncclDebugLogger_t log,
                              ncclProfilerCallback_t profile)
{
  const char *how = getenv("TEST_NET_LATE");
  if (how == NULL) {
    ncclNetPlugin_v11 = (ncclNet_v11_t){NET_TABLE};
    ncclNetPlugin_v11.init = late_init;
    ncclNetPlugin_v11.name = "TestChosen";
  } else if (strcmp(how, "finalize") == 0) {
    ncclNetPlugin_v11.finalize = late_finalize;
  }
  return tcp_init(ctx, comm, config, log, profile);
}
