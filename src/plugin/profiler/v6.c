// v6.c: version 6 of the profiler's interface, the internal form: nothing to translate.
#include "plugin/profiler/profiler_priv.h"

static const tt_plugin_member members[TT_PROFILER_NMEMBERS] = TT_PROFILER_MEMBERS(ncclProfiler_v6_t);

static ncclResult_t init(const void *table, const tt_profilers_env *env, int *mask, void **ctx)
{
  const ncclProfiler_v6_t *t = table;
  return t->init(ctx, env->hash, mask, env->name, env->nnodes, env->nranks, env->rank, tt_plugin_log);
}

static void start(const void *table, void *ctx, void **handle, tt_prof_descr *d)
{
  const ncclProfiler_v6_t *t = table;
  t->startEvent(ctx, handle, d);
}

static void stop(const void *table, void *handle)
{
  ((const ncclProfiler_v6_t *)table)->stopEvent(handle);
}

static void state(const void *table, void *handle, ncclProfilerEventState_t what, const tt_prof_args *args)
{
  const ncclProfiler_v6_t *t = table;
  tt_prof_args copy; // the plugin may write into it
  if (args != NULL) {
    copy = *args;
  }
  t->recordEventState(handle, what, args != NULL ? &copy : NULL);
}

static void finalize(const void *table, void *ctx)
{
  ((const ncclProfiler_v6_t *)table)->finalize(ctx);
}

const tt_profiler_adapter tt_profiler_v6 = {
    .members = members, .nmembers = TT_PROFILER_NMEMBERS, .init = init, .start = start, .stop = stop, .state = state, .finalize = finalize};
