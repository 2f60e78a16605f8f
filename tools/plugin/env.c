// env.c: what tutti-plugin asks of an environment plugin.
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/util.h"
#include "check.h"
#include "nccl/env.h"

typedef const char *get_fn(const char *name);

// Asks for every variable that the library knows, twice. Texts must outlive questions for others.
static void ask_all(const pc_job *job, get_fn *get)
{
  size_t n = tt_param_count();
  const char **texts = calloc(n, sizeof *texts);
  char **copies = calloc(n, sizeof *copies);
  int spoilt = 0, changed = 0, set = 0;
  for (size_t i = 0; texts != NULL && copies != NULL && i < n; i++) {
    texts[i] = get(tt_param_row_at(i)->name);
    copies[i] = texts[i] != NULL ? strdup(texts[i]) : NULL;
  }
  for (size_t i = 0; texts != NULL && copies != NULL && i < n; i++) {
    set += texts[i] != NULL;
    spoilt += copies[i] != NULL && strcmp(copies[i], texts[i]) != 0;
    const char *again = get(tt_param_row_at(i)->name);
    changed += (again == NULL) != (copies[i] == NULL) || (again != NULL && strcmp(again, copies[i]) != 0);
    free(copies[i]);
  }
  free(texts);
  free(copies);
  pc_rule(job, spoilt == 0, "%d texts of getEnv change when other variables are asked for", spoilt);
  pc_rule(job, changed == 0, "%d variables have another value when asked for again", changed);
  pc_say("sets %d of %zu variables", set, n);
}

static void check(const pc_job *job, get_fn *get, ncclResult_t begun, ncclResult_t (*finalize)(void))
{
  if (!pc_rule(job, begun == ncclSuccess, "init returns %d", (int)begun)) {
    return;
  }
  ask_all(job, get);
  pc_rule(job, get("NCCL_NOBODY_KNOWS_THIS_VARIABLE") == NULL, "getEnv has a value for a variable that there is not");
  if (finalize != NULL) {
    ncclResult_t res = finalize();
    pc_rule(job, res == ncclSuccess, "finalize returns %d", (int)res);
  } else {
    pc_note(job, "finalize is not set");
  }
}

void pc_check_env(const pc_job *job)
{
  static const tt_plugin_member v1[] = {TT_PLUGIN_MEMBER(ncclEnv_v1_t, init), TT_PLUGIN_MEMBER(ncclEnv_v1_t, getEnv)};
  static const tt_plugin_member v2[] = {TT_PLUGIN_MEMBER(ncclEnv_v2_t, init), TT_PLUGIN_MEMBER(ncclEnv_v2_t, getEnv)};
  if (!pc_members(job, job->version == 1 ? v1 : v2, 2)) {
    return;
  }
  pc_name(job);
  if (job->version == 1) {
    const ncclEnv_v1_t *t = job->table;
    check(job, t->getEnv, t->init(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, NCCL_SUFFIX), t->finalize);
  } else {
    const ncclEnv_v2_t *t = job->table;
    check(job, t->getEnv, t->init(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, NCCL_SUFFIX, tt_plugin_log), t->finalize);
  }
}
