// nccl/env.h: environment plugins of all versions, and the newest under its plain name. Such a plugin stands in place
// of the process's environment.
//
// Who calls what: the first call of the library that needs a variable loads the plugin that NCCL_ENV_PLUGIN names and
// calls `init`, then `getEnv` for each variable it knows, all in one thread while others wait. `getEnv` may come again
// later, in any thread, one at a time, for the variables of the log. `finalize` comes when the process ends or the
// library is unloaded. What `getEnv` leaves NULL counts as not set, whatever the process's environment says;
// configuration files come after it. The plugin must not call the library but for the logger, and must not block.
#ifndef NCCL_ENV_H_
#define NCCL_ENV_H_

#include <stdint.h>

#include "env_v1.h"
#include "env_v2.h"

typedef ncclEnv_v2_t ncclEnv_t;

// Name of the table to export.
#define NCCL_ENV_PLUGIN_SYMBOL ncclEnvPlugin_v2

#endif
