// tuning.c: the cost model as a table, and what is chosen for each size.
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands.h"

static const tt_model_func order[] = {TT_MODEL_ALL_REDUCE, TT_MODEL_ALL_GATHER, TT_MODEL_REDUCE_SCATTER, TT_MODEL_BROADCAST,
                                      TT_MODEL_REDUCE};

static void write_head(tt_model_func f, const xp_print *out)
{
  fprintf(out->f, "%s%-15s", xp_ansi(out, XP_BOLD), tt_model_func_name(f));
  for (int p = 0; p < TT_MODEL_PROTOS; p++) {
    fprintf(out->f, " %17s", tt_model_proto_name((tt_model_proto)p));
  }
  fprintf(out->f, "\n%15s", "");
  for (int p = 0; p < TT_MODEL_PROTOS; p++) {
    fprintf(out->f, " %9s %7s", "us", "GB/s");
  }
  xp_flow(out, 69, 4, "bound by, or out because");
  fputs(xp_ansi(out, XP_PLAIN), out->f);
}

static void write_cells(const tt_model *m, tt_model_func f, const xp_print *out)
{
  char us[16], bw[16], off[256];
  write_head(f, out);
  for (int a = 0; a < TT_MODEL_ALGOS; a++) {
    const char *bound = NULL;
    if (m->off[f][a][TT_MODEL_SIMPLE] == TT_OFF_NEVER && m->off[f][a][TT_MODEL_LL] == TT_OFF_NEVER) {
      continue;
    }
    fprintf(out->f, "  %-13s", tt_model_algo_name((tt_model_algo)a));
    for (int p = 0; p < TT_MODEL_PROTOS; p++) {
      if (m->off[f][a][p] == TT_OFF_NOT) {
        fprintf(out->f, " %s %s", xp_fixed((double)m->latency[f][a][p], 9, us, sizeof(us)),
                xp_fixed((double)m->bandwidth[f][a][p], 7, bw, sizeof(bw)));
        bound = tt_model_bound_text((tt_model_bound)m->bound[f][a][p]);
      } else {
        fprintf(out->f, " %9s %7s", "-", "-");
      }
    }
    xp_flow(out, 69, 4, bound != NULL ? bound : xp_off_text((tt_model_off)m->off[f][a][TT_MODEL_SIMPLE], off, sizeof(off)));
  }
}

static int write_choices(const xp_options *o, const tt_model *m, tt_model_func f, xp_print *out)
{
  char size[32], us[16], bw[16];
  fprintf(out->f, "  %12s  %-14s %-7s %12s %9s %8s %7s\n", "size", "algorithm", "proto", "us", "GB/s", "channels", "threads");
  for (size_t bytes = o->min_bytes, more = 1; more != 0; more = bytes = xp_next_size(o, bytes)) {
    tt_model_op op = {.func = f, .bytes = bytes};
    tt_model_choice c;
    if (tt_model_choose(m, &op, &c) != ncclSuccess) {
      return xp_complain(1);
    }
    double rate = c.us > 0 ? (double)bytes / (double)c.us / 1e3 : 0;
    fprintf(out->f, "  %12s  %-14s %-7s %s %s %8d %7d\n", xp_bytes(bytes, size, sizeof(size)), tt_model_algo_name(c.algo),
            tt_model_proto_name(c.proto), xp_fixed((double)c.us, 12, us, sizeof(us)), xp_fixed(rate, 9, bw, sizeof(bw)), c.channels,
            c.threads);
  }
  return 0;
}

static int write_text(const xp_options *o, const tt_model *m, int func, xp_print *out)
{
  int code = 0;
  xp_say(out, 2, "%d rank%s on %d node%s: latency and bandwidth of the operation's size; then the choice per size", m->nranks,
         m->nranks == 1 ? "" : "s", m->nnodes, m->nnodes == 1 ? "" : "s");
  xp_say_collnet(out, m);
  for (size_t i = 0; i < TT_COUNT(order) && code == 0; i++) {
    if (func < 0 || (int)order[i] == func) {
      fputc('\n', out->f);
      write_cells(m, order[i], out);
      code = write_choices(o, m, order[i], out);
    }
  }
  return code;
}

// "choice" and "model" lines, in the order of the known results.
static int write_plain(const xp_options *o, const tt_model *m, int func, xp_print *out)
{
  for (size_t i = 0; i < TT_COUNT(order); i++) {
    for (size_t bytes = o->min_bytes, more = 1; more != 0 && (func < 0 || (int)order[i] == func); more = bytes = xp_next_size(o, bytes)) {
      tt_model_op op = {.func = order[i], .bytes = bytes};
      tt_model_choice c;
      if (tt_model_choose(m, &op, &c) != ncclSuccess) {
        return xp_complain(1);
      }
      fprintf(out->f, "choice %s %zu %s %s %.4f %d %d\n", tt_model_func_name(order[i]), bytes, tt_model_algo_name(c.algo),
              tt_model_proto_name(c.proto), (double)c.us, c.channels, c.threads);
    }
  }
  for (int i = 0; i < TT_MODEL_FUNCS * TT_MODEL_ALGOS * TT_MODEL_PROTOS; i++) {
    int f = i / (TT_MODEL_ALGOS * TT_MODEL_PROTOS), a = i / TT_MODEL_PROTOS % TT_MODEL_ALGOS, p = i % TT_MODEL_PROTOS;
    float latency = m->latency[f][a][p], bw = m->bandwidth[f][a][p];
    bool known = latency != 0 || bw != 0;
    if (known && (func < 0 || f == func)) {
      fprintf(out->f, "model %s %s %s %.4f %.4f\n", tt_model_func_name((tt_model_func)f), tt_model_algo_name((tt_model_algo)a),
              tt_model_proto_name((tt_model_proto)p), (double)latency, (double)bw);
    }
  }
  return 0;
}

int xp_tuning(const xp_options *o, xp_print *out)
{
  xp_work w;
  int func = o->coll != NULL ? xp_func_of(o->coll) : -1;
  bool plain = o->format != NULL && strcmp(o->format, "plain") == 0;
  if (o->format != NULL && !plain && strcmp(o->format, "text") != 0) {
    fprintf(stderr, "tutti-topo: --format %.80s: there are text and plain\n", o->format);
    return 2;
  }
  if (o->coll != NULL && func < 0) {
    return 2;
  }
  int code = xp_prepare(o, XP_TO_MODEL, &w);
  code = code == 0 ? (plain ? write_plain : write_text)(o, &w.m.model, func, out) : code;
  xp_release(&w);
  return code;
}
