// host.c: this machine's figures, and what a communicator on host memory would choose with them.
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands.h"
#include "tools/preview.h"
#include "os/proc.h"

enum { DEFAULT_RANKS = 2 };

static void write_figures(const tt_figures_source *s, xp_print *out)
{
  static const char *const whose[] = {"the library's own", "measured"};
  fprintf(out->f, "%sfigures%s: %s (%s)\n", xp_ansi(out, XP_BOLD), xp_ansi(out, XP_PLAIN),
          whose[s->figures.measured != 0], s->from);
  for (int i = 0; i < TT_FIGURES; i++) {
    const tt_figure_row *row = tt_figure_row_at((tt_figure)i);
    fprintf(out->f, "  %-14s %9u %-5s %s (own: %u)\n", row->name, s->figures.value[i], row->unit, row->what, row->own);
  }
  if (s->figures.measured == 0) {
    fprintf(out->f, "tutti-tune --machine measures those of this machine.\n");
  }
}

tt_func xp_host_func(int func)
{
  static const tt_func known[] = {[TT_MODEL_ALL_REDUCE] = TT_FUNC_ALLREDUCE,
                                  [TT_MODEL_ALL_GATHER] = TT_FUNC_ALLGATHER,
                                  [TT_MODEL_REDUCE_SCATTER] = TT_FUNC_REDUCESCATTER,
                                  [TT_MODEL_BROADCAST] = TT_FUNC_BROADCAST,
                                  [TT_MODEL_REDUCE] = TT_FUNC_REDUCE,
                                  [XP_ALL_TO_ALL] = TT_FUNC_ALLTOALL};
  return known[func];
}

static ncclResult_t write_choices(const xp_options *o, tt_func func, tt_preview *p, xp_print *out)
{
  static const char *const protos[] = {[TT_SIMPLE] = "Simple", [TT_LL] = "LL", [TT_TOK] = "-"};
  char size[32], chunk[32], us[16], rate[16];
  fprintf(out->f, "  %12s  %-12s %-7s %12s %12s %9s\n", "size", "algorithm", "proto", "chunk", "us", "GB/s");
  for (size_t bytes = o->min_bytes, more = 1; more != 0; more = bytes = xp_next_size(o, bytes)) {
    tt_choice c;
    double time;
    TT_TRY(tt_preview_choose(p, func, bytes, &c, &time));
    fprintf(out->f, "  %12s  %-12s %-7s %12s %s %s\n", xp_bytes(bytes, size, sizeof size),
            tt_algorithms(NULL)[c.algo].name, protos[c.proto], xp_bytes(c.chunk, chunk, sizeof chunk),
            xp_fixed(time, 12, us, sizeof us),
            xp_fixed(time > 0 ? (double)bytes / time / 1e3 : 0, 9, rate, sizeof rate));
  }
  return ncclSuccess;
}

int xp_host(const xp_options *o, xp_print *out)
{
  tt_figures_source s;
  tt_preview *p = NULL;
  if (xp_say_blocks(o->coll, false, out)) {
    return 0;
  }
  int named = xp_func_of(o->coll != NULL ? o->coll : "allreduce");
  if (named < 0) {
    return 2;
  }
  tt_func func = xp_host_func(named);
  tt_figures_find(&s);
  tt_preview_env env = {
      .figures = s.figures, .nranks = o->ranks > 0 ? o->ranks : DEFAULT_RANKS, .cores = tt_proc_cpus()};
  ncclResult_t res = tt_preview_create(&env, &p);
  if (res == ncclSuccess) {
    write_figures(&s, out);
    fprintf(out->f, "%s%s%s of %d processes on %d cores, predicted:\n", xp_ansi(out, XP_BOLD), tt_func_name(func),
            xp_ansi(out, XP_PLAIN), env.nranks, env.cores);
    res = write_choices(o, func, p, out);
  }
  tt_preview_destroy(p);
  return res == ncclSuccess ? 0 : xp_complain(1);
}
