// A network plugin of version 12 that cannot be used, for the reason that TEST_NET_BAD names; "absurd" can, with what
// is absurd put right. It has tables of other kinds beside it.
#define NET_VERSION 12
#include "net_tcp.h"

static bool is(const char *what)
{
  const char *value = getenv("TEST_NET_BAD");
  return value != NULL && strcmp(value, what) == 0;
}

static ncclResult_t bad_init(void **ctx, uint64_t comm, ncclNetCommConfig_v12_t *config, ncclDebugLogger_t log,
                             ncclProfilerCallback_t profile)
{
  return is("init") ? ncclSystemError : is("code") ? (ncclResult_t)77 : tcp_init(ctx, comm, config, log, profile);
}

static ncclResult_t bad_devices(int *n)
{
  *n = is("none") ? 0 : is("negative") ? -1 : is("many") ? 1 << 30 : DEVICES;
  return is("devices") ? ncclInternalError : ncclSuccess;
}

static ncclResult_t bad_properties(int dev, ncclNetProperties_v12_t *p)
{
  ncclResult_t res = tcp_properties(dev, p);
  if (is("properties") && dev == 1) {
    return ncclSystemError;
  }
  if (is("gpu")) {
    p->netDeviceType = NCCL_NET_DEVICE_UNPACK;
  }
  if (is("memory")) {
    p->ptrSupport = NCCL_PTR_CUDA;
  }
  if (is("absurd")) {
    p->name = NULL;
    p->speed = -3;
    p->maxComms = 0;
    p->maxRecvs = 1 << 30;
    p->maxP2pBytes = 0;
  }
  return res;
}

const ncclNet_v12_t ncclNetPlugin_v12 = {
    .name = "TestBad",
    .init = bad_init,
    .devices = bad_devices,
    .getProperties = bad_properties,
    .listen = tcp_listen,
    .connect = tcp_connect,
    .accept = tcp_accept,
    .regMr = tcp_reg,
    .deregMr = tcp_dereg,
    .isend = tcp_isend,
    .irecv = tcp_irecv,
    .test = tcp_test,
    .closeSend = tcp_close,
    .closeRecv = tcp_close,
    .closeListen = tcp_close_listen,
    .finalize = tcp_finalize,
};

const ncclCollNet_v12_t ncclCollNetPlugin_v12 = {.name = "TestBad"};
const void *const ncclGinPlugin_v13[4] = {"TestBad"};
