// measured.c: what a perf program would print for ranks on host memory, by the walking model with the figures of this
// machine: on it, or on several like it.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/result.h"
#include "base/util.h"
#include "commands.h"
#include "os/proc.h"
#include "tools/preview.h"

enum { DEFAULT_ITERS = 20, MOST_RANKS = 256 };

typedef struct run {
  const xp_options *o;
  tt_preview *p;
  tt_func func;
  int model_func, nranks, iters;
  size_t element;
  bool blocks;
  FILE *f;
  double busbw; // sum
  int lines;
} run;

typedef struct cost_name {
  const char *name;
  double *to;
} cost_name;

static void complain_of_cost(const char *option, const char *text, const cost_name *known, size_t count)
{
  fprintf(stderr, "tutti-topo: %s '%.60s': name=number is expected, with commas in between. Names:", option, text);
  for (size_t i = 0; i < count; i++) {
    fprintf(stderr, " %s", known[i].name);
  }
  fputc('\n', stderr);
}

// "gbit=10,ms=0.5,way=80": any of the known values. False, with a message: it is something else.
static bool read_costs(const char *option, const char *text, const cost_name *known, size_t count)
{
  char name[16];
  double value;
  for (int used = 0; text != NULL && *text != 0; text += used) {
    size_t i = 0;
    used = 0;
    bool read = sscanf(text, "%15[a-z_]=%lf%n", name, &value, &used) == 2 && used > 0 && value >= 0 && value <= 1e9;
    while (read && i < count && strcmp(known[i].name, name) != 0) {
      i++;
    }
    used += read && text[used] == ',' && text[used + 1] != 0;
    if (!read || i == count || (text[used] != 0 && text[used - 1] != ',')) {
      complain_of_cost(option, text, known, count);
      return false;
    }
    *known[i].to = value;
  }
  return true;
}

static bool read_link(const char *text, tt_preview_link *l, double *cores)
{
  const cost_name known[] = {{"gbit", &l->gbit},
                             {"ms", &l->ms},
                             {"way", &l->way},
                             {"rouse", &l->rouse},
                             {"idle", &l->idle},
                             {"wake", &l->wake},
                             {"work", &l->work},
                             {"kib", &l->kib},
                             {"own", &l->own},
                             {"fetch", &l->fetch},
                             {"each", &l->each},
                             {"change", &l->change},
                             {"slice", &l->slice},
                             {"sum", &l->sum},
                             {"cores", cores},
                             {"carry", &l->carry},
                             {"carry_kib", &l->carry_kib}};
  return read_costs("--link", text, known, TT_COUNT(known));
}

static bool read_memory(const char *text, tt_preview_memory *m)
{
  const cost_name known[] = {{"way", &m->way},           {"work", &m->work}, {"kib", &m->kib}, {"call", &m->call},
                             {"call_kib", &m->call_kib}, {"step", &m->step}, {"own", &m->own}};
  return read_costs("--memory", text, known, TT_COUNT(known));
}

// The fastest of all algorithms and protocols that the options allow, by the model: its name in `best`.
static ncclResult_t find_best(run *x, size_t bytes, const tt_choice *own, double own_us, char best[32], double *least)
{
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  *least = own_us;
  snprintf(best, 32, "%s", table[own->algo].name);
  for (int i = 0; i < count * 2 && bytes > 0; i++) {
    tt_choice c;
    double us = HUGE_VAL;
    TT_TRY(tt_preview_offer(x->p, x->func, bytes, i / 2, i % 2 != 0 ? TT_LL : TT_SIMPLE, &c));
    if (c.algo >= 0) {
      TT_TRY(tt_preview_time(x->p, x->func, bytes, &c, x->iters, &us));
    }
    if (us < *least * 0.999) {
      *least = us;
      snprintf(best, 32, "%s", table[i / 2].name);
    }
  }
  return ncclSuccess;
}

static ncclResult_t measured_line(run *x, size_t size)
{
  static const char *const protos[] = {[TT_SIMPLE] = "Simple", [TT_LL] = "LL", [TT_TOK] = "-"};
  char time[16], alg[16], bus[16], fastest[16], best[32];
  size_t parts = x->blocks ? (size_t)x->nranks : 1, count = size / x->element / parts;
  count = x->blocks ? count & ~(16 / x->element - 1) : count; // whole 16 bytes of a block, as the perf programs have it
  size_t bytes = count * x->element * parts;
  tt_choice c;
  double us = 0, least = 0;
  TT_TRY(tt_preview_choose(x->p, x->func, bytes, &c, &us));
  if (bytes > 0) {
    TT_TRY(tt_preview_time(x->p, x->func, bytes, &c, x->iters, &us));
  }
  TT_TRY(find_best(x, bytes, &c, us, best, &least));
  double algbw = us > 0 ? (double)bytes / us / 1e3 : 0, busbw = algbw * xp_bus_factor(x->model_func, x->nranks);
  xp_fixed(us, 8, time, sizeof time);
  xp_fixed(algbw, 6, alg, sizeof alg);
  xp_fixed(busbw, 6, bus, sizeof bus);
  xp_fixed(least, 8, fastest, sizeof fastest);
  fprintf(x->f, "%12zu  %12zu  %8s  %s  %s  %s  %-12s %-6s %9zu  %-12s %s\n", bytes, count, xp_type_of(x->o), time, alg,
          bus, tt_algorithms(NULL)[c.algo].name, protos[c.proto], c.chunk, best, fastest);
  x->busbw += busbw;
  x->lines++;
  return ncclSuccess;
}

static void measured_network(const run *x, const tt_preview_env *env)
{
  fprintf(x->f, "# %s predicted: %d ranks on %d machine%s of %d core%s, %d operations one behind the other\n",
          x->o->workload != NULL ? "a job" : tt_func_name(x->func), x->nranks, TT_MAX(env->nodes, 1),
          env->nodes > 1 ? "s" : "", env->cores, env->cores > 1 ? "s" : "", x->iters);
  if (x->o->link != NULL) {
    fprintf(x->f, "# network: %s\n", x->o->link);
  }
}

static void measured_head(const run *x)
{
  fprintf(x->f, "#\n# %10s  %12s  %8s  %8s  %6s  %6s  %-12s %-6s %9s  %-12s %8s\n# %10s  %12s  %8s  %8s  %6s  %6s\n",
          "size", "count", "type", "time", "algbw", "busbw", "algorithm", "proto", "chunk", "fastest", "(us)", "(B)",
          "(elements)", "", "(us)", "(GB/s)", "(GB/s)");
}

static ncclResult_t predict_own(void *arg, int func, size_t bytes, double *us)
{
  run *x = arg;
  tt_choice c;
  tt_func f = xp_host_func(func);
  TT_TRY(tt_preview_choose(x->p, f, bytes, &c, us));
  return tt_preview_time(x->p, f, bytes, &c, x->iters, us);
}

static ncclResult_t measured_lines(run *x)
{
  for (size_t size = x->o->min_bytes, more = 1; more != 0; more = size = xp_next_size(x->o, size)) {
    TT_TRY(measured_line(x, size));
  }
  fprintf(x->f, "# %-20s : %g\n", "Avg bus bandwidth", x->lines > 0 ? x->busbw / x->lines : 0);
  return ncclSuccess;
}

int xp_simulate_measured(const xp_options *o, int func, xp_print *out)
{
  tt_figures_source s;
  tt_preview_env env = {.nodes = o->nodes, .nranks = o->ranks > 0 ? o->ranks : o->nodes > 1 ? 1 : 2};
  double cores = 0;
  if (!read_link(o->link, &env.link, &cores) || !read_memory(o->memory, &env.memory)) {
    return 2;
  }
  env.cores = cores >= 1 ? (int)cores : tt_proc_cpus();
  if ((int64_t)env.nranks * TT_MAX(env.nodes, 1) > MOST_RANKS) {
    fprintf(stderr,
            "tutti-topo: simulate --measured: %d ranks on each of %d machines, at most %d in all can be walked\n",
            env.nranks, TT_MAX(env.nodes, 1), MOST_RANKS);
    return 2;
  }
  tt_figures_find(&s);
  env.figures = s.figures;
  run x = {.o = o,
           .func = xp_host_func(func),
           .model_func = func,
           .nranks = env.nranks * TT_MAX(env.nodes, 1),
           .iters = o->iters > 0 ? o->iters : DEFAULT_ITERS,
           .element = xp_element_of(o),
           .f = out->f};
  x.blocks = x.func == TT_FUNC_ALLGATHER || x.func == TT_FUNC_REDUCESCATTER || x.func == TT_FUNC_ALLTOALL;
  if (tt_preview_create(&env, &x.p) != ncclSuccess) {
    return xp_complain(1);
  }
  int code = 0;
  measured_network(&x, &env);
  if (o->workload != NULL) {
    code = xp_write_workload(o->workload, &(xp_predict){predict_own, &x, x.nranks}, x.f);
  } else {
    measured_head(&x);
    code = measured_lines(&x) == ncclSuccess ? 0 : xp_complain(1);
  }
  tt_preview_destroy(x.p);
  return code;
}
