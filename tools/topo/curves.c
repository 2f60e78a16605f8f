// curves.c: predicted time over size, for the chart of a page: of every algorithm and protocol of NCCL's model, of
// all-to-all by its links, and for ranks in the memory of this computer, of what this library chooses.
#include "base/util.h"
#include "tools/preview.h"
#include "commands.h"
#include "os/proc.h"

size_t xp_curve_size(int i)
{
  return (size_t)8 << i;
}

static void model_curve(const xp_machine *m, const int cell[3], xp_curves *out)
{
  xp_curve *c = &out->list[out->count];
  *c = (xp_curve){xp_func_name(cell[0]),
                  tt_model_algo_name((tt_model_algo)cell[1]),
                  tt_model_proto_name((tt_model_proto)cell[2]),
                  {0}};
  bool any = false;
  for (int i = 0; i < XP_CURVE_SIZES; i++) {
    tt_model_op op = {.func = (tt_model_func)cell[0], .bytes = xp_curve_size(i)};
    c->us[i] = (double)tt_model_time(&m->model, &op, (tt_model_algo)cell[1], (tt_model_proto)cell[2]);
    any = any || c->us[i] > 0;
  }
  out->count += any;
}

static ncclResult_t model_curves(const xp_machine *m, xp_curves *out)
{
  enum { CELLS = TT_MODEL_ALGOS * TT_MODEL_PROTOS };
  xp_messages x;
  for (int i = 0; i < TT_MODEL_FUNCS * CELLS; i++) {
    int func = TT_MODEL_FUNCS - 1 - i / CELLS; // all-reduce first
    model_curve(m, (int[]){func, i % CELLS / TT_MODEL_PROTOS, i % TT_MODEL_PROTOS}, out);
  }
  ncclResult_t res = xp_messages_make(m, &x);
  if (res == ncclSuccess && x.reached) {
    xp_curve *c = &out->list[out->count++];
    *c = (xp_curve){xp_func_name(XP_ALL_TO_ALL), "links, at least", "", {0}};
    for (int i = 0; i < XP_CURVE_SIZES; i++) {
      c->us[i] = xp_messages_time(&x, xp_curve_size(i));
    }
  }
  xp_messages_clear(&x);
  out->model = "NCCL's cost model";
  return res;
}

static ncclResult_t host_curve(tt_preview *p, tt_func func, xp_curves *out)
{
  xp_curve *c = &out->list[out->count++];
  *c = (xp_curve){tt_func_name(func), "chosen", "", {0}};
  for (int i = 0; i < XP_CURVE_SIZES; i++) {
    tt_choice choice;
    TT_TRY(tt_preview_choose(p, func, xp_curve_size(i), &choice, &c->us[i]));
  }
  return ncclSuccess;
}

static ncclResult_t host_curves(int nranks, xp_curves *out)
{
  static const tt_func funcs[] = {TT_FUNC_ALLREDUCE, TT_FUNC_REDUCE,        TT_FUNC_ALLGATHER,
                                  TT_FUNC_BROADCAST, TT_FUNC_REDUCESCATTER, TT_FUNC_ALLTOALL};
  tt_figures_source s;
  tt_preview *p = NULL;
  tt_figures_find(&s);
  tt_preview_env env = {.figures = s.figures, .nranks = nranks, .cores = tt_proc_cpus()};
  ncclResult_t res = tt_preview_create(&env, &p);
  for (size_t i = 0; i < TT_COUNT(funcs) && res == ncclSuccess; i++) {
    res = host_curve(p, funcs[i], out);
  }
  tt_preview_destroy(p);
  out->model = s.figures.measured != 0
                   ? "this library's cost model for processes of this computer, with measured figures"
                   : "this library's cost model for processes of this computer, with built-in cost figures";
  return res;
}

ncclResult_t xp_curves_make(const xp_machine *m, bool here, xp_curves *out)
{
  *out = (xp_curves){.list = tt_calloc(TT_MODEL_FUNCS * TT_MODEL_ALGOS * TT_MODEL_PROTOS + 1, sizeof(*out->list))};
  if (out->list == NULL) {
    return tt_fail(ncclSystemError, "no memory for predicted times");
  }
  if (m->model.nranks == 1) {
    return ncclSuccess;
  }
  if (!tt_topo_host_rank(&m->topo->nodes[0])) {
    return model_curves(m, out);
  }
  return here && m->nodes == 1 ? host_curves(m->nranks, out) : ncclSuccess;
}

void xp_curves_clear(xp_curves *x)
{
  tt_free(x->list);
  *x = (xp_curves){0};
}
