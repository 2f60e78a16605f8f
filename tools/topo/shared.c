// shared.c: the links that machines share, as far as commands ask for them: see tools/fabric.h.
#include <stdio.h>

#include "base/util.h"
#include "commands.h"
#include "tools/fabric.h"

typedef struct xp_shared {
  tt_fabric *fabric;
  bool rails;
  // Of the last function and root, by algorithm and number of channels.
  tt_fabric_op op;
  bool known[TT_MODEL_ALGOS];
  tt_fabric_limit limits[TT_MODEL_ALGOS][TT_GRAPH_MAX_CHANNELS];
} xp_shared;

ncclResult_t xp_shared_create(const xp_options *o, const xp_machine *m, xp_shared **out)
{
  xp_shared *x;
  TT_TRY(TT_NEW(x, 1, "no memory for the network of %d machines", m->nodes));
  tt_fabric_input in = {.connect = m->connect,
                        .topo = m->topo,
                        .plan = {.rails = o->rails,
                                 .leaf = o->leaf,
                                 .oversubscription = o->oversubscription > 0 ? o->oversubscription : 1}};
  x->rails = o->rails;
  ncclResult_t res = tt_fabric_create(&in, &x->fabric);
  if (res != ncclSuccess) {
    xp_shared_destroy(x);
    return res;
  }
  *out = x;
  return ncclSuccess;
}

void xp_shared_destroy(xp_shared *x)
{
  if (x != NULL) {
    tt_fabric_destroy(x->fabric);
    tt_free(x);
  }
}

static void shared_name(const xp_shared *x, const tt_fabric_limit *l, char out[XP_SHARED_NAME])
{
  static const char *const names[TT_FABRIC_KINDS] = {"port out", "port in", "leaf up", "leaf down"};
  bool leaf = l->kind == TT_FABRIC_UP || l->kind == TT_FABRIC_DOWN;
  if (leaf && !x->rails) {
    snprintf(out, XP_SHARED_NAME, "%s %d", names[l->kind], l->leaf);
  } else {
    snprintf(out, XP_SHARED_NAME, "%s %d.%d", names[l->kind], leaf ? l->leaf : l->machine, leaf ? l->rail : l->port);
  }
}

ncclResult_t xp_shared_time(const xp_machine *m, const tt_model_op *op, const tt_model_choice *choice, int root,
                            double *us, char link[XP_SHARED_NAME])
{
  xp_shared *x = m->shared;
  snprintf(link, XP_SHARED_NAME, "-");
  *us = (double)choice->us;
  if (x == NULL || m->model.nranks == 1) {
    return ncclSuccess;
  }
  tt_fabric_op now = {op->func, choice->algo, root};
  tt_fabric_limit *limits = x->limits[choice->algo];
  if (x->op.func != now.func || x->op.root != root) {
    memset(x->known, 0, sizeof(x->known));
  }
  x->op = now;
  if (!x->known[choice->algo]) {
    TT_TRY(tt_fabric_limits(x->fabric, now, TT_MAX(m->model.nchannels, m->model.nvls_channels), limits));
    x->known[choice->algo] = true;
  }
  const tt_fabric_limit *limit = &limits[TT_CLAMP(choice->channels, 1, TT_GRAPH_MAX_CHANNELS) - 1];
  double bound = tt_fabric_time(&m->model, op, choice->algo, choice->proto, limit);
  if (bound > *us) {
    shared_name(x, limit, link);
    *us = bound;
  }
  return ncclSuccess;
}

void xp_shared_pair(const xp_machine *m, const int nets[2], double messages)
{
  int first = m->topo->first[TT_NODE_NET];
  if (m->shared != NULL) {
    tt_fabric *f = m->shared->fabric;
    tt_fabric_add_pairs(f, (int[]){tt_fabric_port(f, nets[0] - first), tt_fabric_port(f, nets[1] - first)}, messages);
  }
}

double xp_shared_most(const xp_machine *m, char link[XP_SHARED_NAME])
{
  link[0] = 0;
  if (m->shared == NULL) {
    return 0;
  }
  tt_fabric_limit most = tt_fabric_most(m->shared->fabric);
  if (most.us_per_byte > 0) {
    shared_name(m->shared, &most, link);
  }
  return most.us_per_byte * 1e3;
}
