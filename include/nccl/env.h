// nccl/env.h: environment plugins of all versions, and the newest under its plain name. Such a plugin stands in place
// of the process's environment.
//
// Order of calls: the first call of the library that needs a variable loads the plugin that NCCL_ENV_PLUGIN names. It
// calls `init`, then `getEnv` for each variable that the library has, all in one thread while others wait. Later calls
// of `getEnv` are for the variables of the log, in any thread, one at a time. `finalize` comes when the process ends or
// the library is unloaded. A variable for which `getEnv` returns NULL is not set, even if the process's environment has
// it; configuration files come after the plugin. The plugin must not block, and of the library it may call only the
// logger.
#ifndef NCCL_ENV_H_
#define NCCL_ENV_H_

#include <stdint.h>

#include "env_v1.h"
#include "env_v2.h"

typedef ncclEnv_v2_t ncclEnv_t;

// Name of the table to export.
#define NCCL_ENV_PLUGIN_SYMBOL ncclEnvPlugin_v2

#endif
