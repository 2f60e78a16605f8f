// simulate.c: what a perf program would print on so many machines, as the model predicts it.
#include <math.h>
#include <stdio.h>

#include "base/result.h"
#include "base/util.h"
#include "commands.h"

typedef struct run {
  const xp_options *o;
  const xp_machine *m;
  tt_model_op op;
  size_t element;
  double busbw; // sum
  int lines;
  FILE *f;
} run;

// Each ring passes every rank once; each tree has one root, and a way up to it from every rank. What is printed would
// mean nothing else.
static ncclResult_t check_channels(const tt_connect *c)
{
  for (int ch = 0; ch < c->nchannels; ch++) {
    int roots = 0, rank = 0, seen = 0;
    do {
      rank = tt_connect_ring_step(c, ch, rank, 1);
      seen++;
    } while (rank > 0 && seen < c->nranks);
    for (int r = 0; r < c->nranks; r++) {
      tt_tree_place p = tt_connect_tree(c, ch, r);
      bool known = p.up < 0;
      for (int d = 0; d < TT_TREE_DOWNS && p.up >= 0 && !known; d++) {
        known = tt_connect_tree(c, ch, p.up).down[d] == r;
      }
      roots += p.up < 0;
      roots += known ? 0 : c->nranks;
    }
    if (rank != 0 || seen != c->nranks || roots != 1) {
      return tt_fail(ncclInternalError, "channel %d: the ring is back after %d of %d ranks, the tree has %d roots", ch,
                     seen, c->nranks, roots);
    }
  }
  return ncclSuccess;
}

// Elements of a rank: for the operations with one block per rank, whole 16 bytes of it, as the perf programs have it.
static size_t elements(const run *x, size_t bytes)
{
  size_t count = bytes / x->element;
  bool shared = x->op.func == TT_MODEL_ALL_GATHER || x->op.func == TT_MODEL_REDUCE_SCATTER;
  return shared ? count / (size_t)x->m->model.nranks & ~(16 / x->element - 1) : count;
}

static int write_line(run *x, size_t size)
{
  char time[16], alg[16], bus[16], link[XP_SHARED_NAME];
  size_t count = elements(x, size);
  bool shared = x->op.func == TT_MODEL_ALL_GATHER || x->op.func == TT_MODEL_REDUCE_SCATTER;
  bool rooted = x->op.func == TT_MODEL_BROADCAST || x->op.func == TT_MODEL_REDUCE;
  tt_model_choice c;
  double us = 0;
  x->op.bytes = count * x->element * (shared ? (size_t)x->m->model.nranks : 1);
  if (tt_model_choose(&x->m->model, &x->op, &c) != ncclSuccess ||
      xp_shared_time(x->m, &x->op, &c, x->o->root, &us, link) != ncclSuccess) {
    return xp_complain(1);
  }
  double algbw = us > 0 ? (double)x->op.bytes / us / 1e3 : 0,
         busbw = algbw * xp_bus_factor(x->op.func, x->m->model.nranks);
  xp_fixed(us, 7, time, sizeof(time));
  xp_fixed(algbw, 6, alg, sizeof(alg));
  xp_fixed(busbw, 6, bus, sizeof(bus));
  fprintf(x->f, "%12zu  %12zu  %8s  %6s  %6d", x->op.bytes, count, xp_type_of(x->o), xp_redop_of(x->o, x->op.func),
          rooted ? x->o->root : -1);
  for (int side = 0; side < 2; side++) {
    fprintf(x->f, "  %7s  %6s  %6s  %6s", time, alg, bus, "N/A");
  }
  fprintf(x->f, "  %-13s %-6s %8d %7d", tt_model_algo_name(c.algo), tt_model_proto_name(c.proto), c.channels,
          c.threads);
  fprintf(x->f, "%s%s\n", x->m->shared != NULL ? "  " : "", x->m->shared != NULL ? link : "");
  x->busbw += busbw;
  x->lines++;
  return 0;
}

// Depth of the trees, about: what NCCL reckons with.
static int tree_depth(const tt_connect *c)
{
  return c->nranks / c->nnodes - 1 + 31 - __builtin_clz((unsigned)c->nnodes);
}

static void write_network(const run *x)
{
  const xp_options *o = x->o;
  int below = o->leaf > 0 ? o->leaf : x->m->nodes;
  if (x->m->shared != NULL) {
    fprintf(x->f, "# network: %d machine%s below a leaf switch%s, uplinks oversubscribed %g:1\n", below,
            below == 1 ? "" : "s", o->rails ? " of each rail" : "", o->oversubscription > 0 ? o->oversubscription : 1);
  }
}

static void write_head(const run *x)
{
  const tt_connect *c = x->m->connect;
  fprintf(x->f, "# %s predicted: %d ranks on %d node%s, %d channels, trees about %d deep; no measurement\n",
          tt_model_func_name(x->op.func), c->nranks, c->nnodes, c->nnodes == 1 ? "" : "s", c->nchannels, tree_depth(c));
  write_network(x);
  fprintf(x->f, "#\n# %10s  %12s  %8s  %6s  %6s%11sout-of-place%23sin-place%10s\n", "", "", "", "", "", "", "", "");
  static const char *const heads[2][8] = {{"size", "count", "type", "redop", "root", "time", "algbw", "busbw"},
                                          {"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)"}};
  for (int i = 0; i < 2; i++) {
    const char *const *h = heads[i];
    fprintf(x->f, "# %10s  %12s  %8s  %6s  %6s", h[0], h[1], h[2], h[3], h[4]);
    for (int side = 0; side < 2; side++) {
      fprintf(x->f, "  %7s  %6s  %6s  %6s", h[5], h[6], h[7], i == 0 ? "#wrong" : "");
    }
    fprintf(x->f, "  %-13s %-6s %8s %7s%s\n", i == 0 ? "algorithm" : "", i == 0 ? "proto" : "",
            i == 0 ? "channels" : "", i == 0 ? "threads" : "", i == 0 && x->m->shared != NULL ? "  bound by" : "");
  }
}

static ncclResult_t predict_by_model(void *arg, int func, size_t bytes, double *us)
{
  run *x = arg;
  char link[XP_SHARED_NAME];
  tt_model_choice c;
  if (func == XP_ALL_TO_ALL) {
    *us = NAN; // NCCL has no cost model for it
    return ncclSuccess;
  }
  x->op.func = (tt_model_func)func;
  x->op.bytes = bytes;
  TT_TRY(tt_model_choose(&x->m->model, &x->op, &c));
  return xp_shared_time(x->m, &x->op, &c, x->o->root, us, link);
}

static int simulate(run *x)
{
  int code = 0;
  const tt_connect *c = x->m->connect;
  if (x->o->root >= c->nranks) {
    fprintf(stderr, "tutti-topo: -r %d: there are %d ranks\n", x->o->root, c->nranks);
    return 2;
  }
  if (c->nranks > 1 && check_channels(c) != ncclSuccess) {
    return xp_complain(1);
  }
  if (x->o->workload != NULL) {
    fprintf(x->f, "# a job predicted: %d ranks on %d node%s, %d channels; no measurement\n", c->nranks, c->nnodes,
            c->nnodes == 1 ? "" : "s", c->nchannels);
    write_network(x);
    return xp_write_workload(x->o->workload, &(xp_predict){predict_by_model, x, c->nranks}, x->f);
  }
  write_head(x);
  for (size_t size = x->o->min_bytes, more = 1; more != 0 && code == 0; more = size = xp_next_size(x->o, size)) {
    code = write_line(x, size);
  }
  if (code == 0) {
    fprintf(x->f, "# %-20s : %g\n", "Avg bus bandwidth", x->lines > 0 ? x->busbw / x->lines : 0);
  }
  return code;
}

// Options that say nothing of what is asked for. NULL: there are none.
static const char *simulate_useless(const xp_options *o)
{
  if (!o->measured) {
    return o->iters > 0 ? "-n, --iters is" : o->link != NULL ? "--link is" : o->memory != NULL ? "--memory is" : NULL;
  }
  return o->nfiles > 0                      ? "a file of a machine is"
         : o->hosts > 1                     ? "--hosts is"
         : o->collnet                       ? "--collnet is"
         : xp_options_fabric(o)             ? "a switch is"
         : o->root > 0                      ? "-r, --root is"
         : o->workload != NULL              ? NULL
         : o->link != NULL && o->nodes == 1 ? "--link, of one machine, is"
                                            : NULL;
}

int xp_simulate(const xp_options *o, xp_print *out)
{
  xp_work w;
  run x = {.o = o, .m = &w.m, .f = out->f};
  int func = xp_func_of(o->coll != NULL ? o->coll : "allreduce");
  const char *useless = simulate_useless(o);
  if (func < 0 || !xp_op_of(o, &x.op)) {
    return 2;
  }
  if (useless != NULL) {
    fprintf(stderr, "tutti-topo: simulate: %s not for predictions %s --measured; nothing is run here\n", useless,
            o->measured ? "with" : "without");
    return 2;
  }
  if (o->measured) {
    return xp_simulate_measured(o, func, out);
  }
  if (func == XP_ALL_TO_ALL && o->workload == NULL) {
    fprintf(stderr, "tutti-topo: simulate: NCCL has no cost model for all-to-all; tuning and explain say the least "
                    "time that links allow\n");
    return 2;
  }
  x.op.func = (tt_model_func)func;
  x.element = xp_element_of(o);
  int code = xp_prepare(o, XP_TO_MODEL, &w);
  code = code == 0 ? simulate(&x) : code;
  xp_release(&w);
  return code;
}
