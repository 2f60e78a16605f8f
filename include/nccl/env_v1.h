// nccl/env_v1.h: an environment plugin of version 1 exports `ncclEnvPlugin_v1`. nccl/env.h says which call comes when.
#ifndef ENV_V1_H_
#define ENV_V1_H_

#include "common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  // For the log. May be NULL.
  const char *name;

  // First call, once: the library's version, and what follows it ("" here). Anything but ncclSuccess: the library does
  // without this plugin.
  ncclResult_t (*init)(uint8_t ncclMajor, uint8_t ncclMinor, uint8_t ncclPatch, const char *suffix);

  // Last call, once, after an init that succeeded. May be NULL.
  ncclResult_t (*finalize)(void);

  // The value of a variable, NULL where it has none. The text stays valid until the next call with the same name, or
  // finalize; here it is copied at once.
  const char *(*getEnv)(const char *name);
} ncclEnv_v1_t;

#ifdef __cplusplus
}
#endif
#endif
