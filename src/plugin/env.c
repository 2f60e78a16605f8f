#include "plugin/env.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "nccl/env.h"
#include "plugin/loader.h"

// The process's plugin. Written once, by the thread that reads the parameters first.
static struct {
  tt_plugin *plugin;
  ncclResult_t (*finalize)(void);
  tt_param_source source;
  char name[80];
} env;

// Version 1 is laid out as version 2; its init takes no logger.
static_assert(offsetof(ncclEnv_v1_t, init) == offsetof(ncclEnv_v2_t, init) &&
                  offsetof(ncclEnv_v1_t, finalize) == offsetof(ncclEnv_v2_t, finalize) &&
                  offsetof(ncclEnv_v1_t, getEnv) == offsetof(ncclEnv_v2_t, getEnv) &&
                  sizeof(ncclEnv_v1_t) == sizeof(ncclEnv_v2_t),
              "the same members in the same places");
static const tt_plugin_member members[] = {TT_PLUGIN_MEMBER(ncclEnv_v2_t, init),
                                           TT_PLUGIN_MEMBER(ncclEnv_v2_t, getEnv)};

static ncclResult_t env_begin(const void *table, int version)
{
  const ncclEnv_v2_t *t = table;
  env.finalize = t->finalize;
  env.source.get = t->getEnv;
  return version == 1 ? ((const ncclEnv_v1_t *)table)->init(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, NCCL_SUFFIX)
                      : t->init(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, NCCL_SUFFIX, tt_plugin_log);
}

static void env_at_end(void);

const tt_param_source *tt_env_plugin_open(const char *wish)
{
  tt_plugin *p = NULL;
  if (tt_plugin_open(TT_PLUGIN_ENV, wish, NULL, &p) != ncclSuccess || p == NULL) {
    return NULL;
  }
  const void *table = tt_plugin_table(p);
  if (!tt_plugin_complete(TT_PLUGIN_ENV, p, members, TT_COUNT(members))) {
    tt_plugin_close(p);
    return NULL;
  }
  const char *name = *(const char *const *)table; // the first member of every version
  snprintf(env.name, sizeof env.name, "%.64s (v%d)", name != NULL ? name : "without a name", tt_plugin_version(p));
  ncclResult_t res = env_begin(table, tt_plugin_version(p));
  if (res != ncclSuccess) {
    tt_info(TT_INIT | TT_ENV, "ENV/Plugin: %s is not used: init of %s returned %d (%s)", tt_plugin_path(p), env.name,
            (int)res, tt_result_string(res));
    tt_plugin_close(p);
    return NULL;
  }
  tt_info(TT_INIT | TT_ENV, "ENV/Plugin: Using %s", env.name);
  env.source.name = env.name;
  env.plugin = p;
  (void)atexit(env_at_end); // without room for it the destructor is left
  return &env.source;
}

// At the end of the process, while the plugin's own objects still live, or when the library is unloaded.
__attribute__((destructor)) static void env_at_end(void)
{
  if (env.plugin == NULL) {
    return;
  }
  tt_info(TT_INIT | TT_ENV, "ENV/Plugin: Closing %s", env.name);
  tt_param_end_source();
  if (env.finalize != NULL) {
    env.finalize();
  }
  tt_plugin_close(env.plugin);
  env.plugin = NULL;
}
