// preview.c: see preview.h. The part of a communicator that choices follow from; nothing is connected.
#include "tools/preview.h"

#include "base/result.h"
#include "comm/comm.h"
#include "comm/topology.h"
#include "comm/tuning.h"

struct tt_preview {
  struct ncclComm comm;
};

static void fill_peers(const tt_preview_env *env, tt_peer *peers)
{
  for (int i = 0; i < env->nranks; i++) {
    peers[i] = (tt_peer){
        .at.rank = i, .cpus = env->cores, .figures = env->figures, .geometry = tt_geometry_default(), .numa = -1};
    peers[i].at.proc.pid = env->one_process ? 1 : i + 1;
  }
}

static ncclResult_t fill(const tt_preview_env *env, struct ncclComm *c)
{
  c->nranks = env->nranks;
  c->machine.can_read = true;
  c->machine.all_local = env->one_process;
  c->machine.crowded = env->nranks > env->cores;
  c->machine.shares = env->nranks > 1;
  c->machine.local_ranks = env->nranks;
  c->peers = tt_calloc((size_t)env->nranks, sizeof *c->peers);
  int *names = tt_calloc((size_t)env->nranks, sizeof *names); // all on node 0
  ncclResult_t res = c->peers == NULL || names == NULL
                         ? tt_fail(ncclSystemError, "no memory for a preview of %d ranks", env->nranks)
                         : tt_layout_create(env->nranks, names, &c->layout);
  tt_free(names);
  TT_TRY(res);
  fill_peers(env, c->peers);
  TT_TRY(tt_tuning_limits(&env->figures, &c->peers[0].limits));
  TT_TRY(tt_topology_create(c, &c->topology));
  TT_TRY(tt_topology_give(c->topology, c->layout));
  return tt_tuning_create(c, &c->tuning);
}

ncclResult_t tt_preview_create(const tt_preview_env *env, tt_preview **out)
{
  tt_preview *p = tt_calloc_line(sizeof *p);
  if (p == NULL) {
    return tt_fail(ncclSystemError, "no memory for a preview of %d ranks", env->nranks);
  }
  ncclResult_t res = fill(env, &p->comm);
  if (res != ncclSuccess) {
    tt_preview_destroy(p);
    return res;
  }
  *out = p;
  return ncclSuccess;
}

void tt_preview_destroy(tt_preview *p)
{
  if (p != NULL) {
    tt_tuning_destroy(p->comm.tuning);
    tt_topology_destroy(p->comm.topology);
    tt_layout_destroy(p->comm.layout);
    tt_free(p->comm.peers);
  }
  tt_free(p);
}

ncclResult_t tt_preview_choose(tt_preview *p, tt_func func, size_t bytes, tt_choice *choice, double *us)
{
  TT_TRY(tt_tuning_choose(&p->comm, func, bytes, 0, false, choice));
  return tt_tuning_estimate(&p->comm, func, bytes, choice, us);
}
