// env.h: environment plugins of any version. A process has one at most; it is loaded when the parameters are first
// read, and ends with the library.
#pragma once
#include "base/param.h"

// What param.c calls with NCCL_ENV_PLUGIN's value (NULL: not set). NULL: there is no plugin, or it is of no use; the
// log says which.
const tt_param_source *tt_env_plugin_open(const char *wish);
