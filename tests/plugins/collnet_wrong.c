// Collective networks of versions 12, 8 and 6, of which nothing but the answers to first questions is there.
// TEST_COLLNET_WRONG names the rule that is broken.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/net.h"

static bool wrong(const char *what)
{
  const char *value = getenv("TEST_COLLNET_WRONG");
  return value != NULL && strcmp(value, what) == 0;
}

static ncclResult_t init(void **ctx, uint64_t comm, ncclDebugLogger_t log)
{
  static char one;
  (void)comm;
  (void)log;
  *ctx = &one;
  return wrong("init") ? ncclSystemError : ncclSuccess;
}

static ncclResult_t old_init(ncclDebugLogger_t log)
{
  void *ctx;
  return init(&ctx, 0, log);
}

static ncclResult_t devices(int *n)
{
  *n = wrong("none") ? 0 : wrong("many") ? 1000 : 1;
  return wrong("devices") ? ncclInternalError : ncclSuccess;
}

#define PROPERTIES(v)                                                        \
  static ncclResult_t properties_##v(int dev, ncclNetProperties_v##v##_t *p) \
  {                                                                          \
    static char name[] = "coll0";                                            \
    (void)dev;                                                               \
    p->name = wrong("absurd") ? NULL : name;                                 \
    p->ptrSupport = wrong("memory") ? NCCL_PTR_CUDA : NCCL_PTR_HOST;         \
    p->speed = wrong("absurd") ? -1 : 1000;                                  \
    p->latency = wrong("absurd") ? -1.0F : 1.0F;                             \
    p->maxComms = wrong("absurd") ? 0 : 16;                                  \
    p->maxRecvs = 1;                                                         \
    if (wrong("spill")) {                                                    \
      memset((char *)p + sizeof *p, 1, 8);                                   \
    }                                                                        \
    return wrong("properties") ? ncclSystemError : ncclSuccess;              \
  }
PROPERTIES(6)
PROPERTIES(8)
PROPERTIES(12)

static ncclResult_t reduce_support(ncclDataType_t type, ncclRedOp_t op, int *supported)
{
  static int asked;
  *supported = wrong("support") ? 7 : wrong("changes") ? ++asked % 2 : type == ncclFloat && op == ncclSum;
  return wrong("code") ? ncclInvalidArgument : ncclSuccess;
}

static ncclResult_t finalize(void *ctx)
{
  (void)ctx;
  return wrong("finalize") ? ncclInternalError : ncclSuccess;
}

// Not called: there is nobody at the other end.
static ncclResult_t nothing(void)
{
  return ncclInternalError;
}

#define NEVER(v, member) .member = (__typeof__(((ncclCollNet_v##v##_t *)0)->member))(void (*)(void))nothing
#define REST(v)                                                                                                  \
  NEVER(v, listen), NEVER(v, connect), NEVER(v, regMr), NEVER(v, deregMr), NEVER(v, iallreduce), NEVER(v, test), \
      NEVER(v, closeColl), NEVER(v, closeListen)

const ncclCollNet_v12_t ncclCollNetPlugin_v12 = {.name = "TestColl",
                                                 .init = init,
                                                 .devices = devices,
                                                 .getProperties = properties_12,
                                                 .reduceSupport = reduce_support,
                                                 .finalize = finalize,
                                                 REST(12)};
const ncclCollNet_v8_t ncclCollNetPlugin_v8 = {.name = "TestColl",
                                               .init = old_init,
                                               .devices = devices,
                                               .getProperties = properties_8,
                                               .reduceSupport = reduce_support,
                                               REST(8)};
const ncclCollNet_v6_t ncclCollNetPlugin_v6 = {.name = "TestColl",
                                               .init = old_init,
                                               .devices = devices,
                                               .getProperties = properties_6,
                                               .reduceSupport = reduce_support,
                                               REST(6)};
