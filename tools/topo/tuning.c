// tuning.c: the cost model as a table, and what is chosen for each size.
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands.h"

static const tt_model_func order[] = {TT_MODEL_ALL_REDUCE, TT_MODEL_ALL_GATHER, TT_MODEL_REDUCE_SCATTER,
                                      TT_MODEL_BROADCAST, TT_MODEL_REDUCE};

typedef struct table {
  const xp_options *o;
  const xp_machine *m;
  const tt_model *model;
  int func; // -1: all
  xp_messages messages;
  xp_print *out;
} table;

static bool is_wanted(const table *t, int func)
{
  return t->func < 0 || t->func == func;
}

// Where no port leads to the other machines, messages are left out of the table of all functions.
static bool has_messages(const table *t)
{
  return is_wanted(t, XP_ALL_TO_ALL) && t->messages.peers > 0 && t->messages.reached;
}

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
    xp_flow(out, 69, 4,
            bound != NULL ? bound : xp_off_text((tt_model_off)m->off[f][a][TT_MODEL_SIMPLE], off, sizeof(off)));
  }
}

static int write_choices(const xp_options *o, const tt_model *m, tt_model_func f, xp_print *out)
{
  char size[32], us[16], bw[16];
  fprintf(out->f, "  %12s  %-14s %-7s %12s %9s %8s %7s\n", "size", "algorithm", "proto", "us", "GB/s", "channels",
          "threads");
  for (size_t bytes = o->min_bytes, more = 1; more != 0; more = bytes = xp_next_size(o, bytes)) {
    tt_model_op op = {.func = f, .bytes = bytes};
    tt_model_choice c;
    if (tt_model_choose(m, &op, &c) != ncclSuccess) {
      return xp_complain(1);
    }
    double rate = c.us > 0 ? (double)bytes / (double)c.us / 1e3 : 0;
    fprintf(out->f, "  %12s  %-14s %-7s %s %s %8d %7d\n", xp_bytes(bytes, size, sizeof(size)),
            tt_model_algo_name(c.algo), tt_model_proto_name(c.proto), xp_fixed((double)c.us, 12, us, sizeof(us)),
            xp_fixed(rate, 9, bw, sizeof(bw)), c.channels, c.threads);
  }
  return 0;
}

static void write_messages(const table *t)
{
  char text[192], size[32], us[16], bw[16];
  const xp_print *out = t->out;
  fprintf(out->f, "\n%s%-15s%s", xp_ansi(out, XP_BOLD), xp_func_name(XP_ALL_TO_ALL), xp_ansi(out, XP_PLAIN));
  xp_text why = {0};
  xp_add(
      &why,
      "messages, for which NCCL has no cost model: the least time that the links allow, without latency; bound by %s",
      xp_messages_bound(t->m, &t->messages, xp_arrow(out), text));
  xp_flow(out, 15, 4, why.buf);
  fprintf(out->f, "  %12s  %22s %12s %9s\n", "size", "", "us", "GB/s");
  for (size_t bytes = t->o->min_bytes, more = 1; more != 0; more = bytes = xp_next_size(t->o, bytes)) {
    double time = xp_messages_time(&t->messages, bytes);
    fprintf(out->f, "  %12s  %22s %s %s\n", xp_bytes(bytes, size, sizeof(size)), "", xp_fixed(time, 12, us, sizeof(us)),
            xp_fixed(time > 0 ? (double)bytes / time / 1e3 : 0, 9, bw, sizeof(bw)));
  }
}

static int write_text(const table *t)
{
  int code = 0;
  const tt_model *m = t->model;
  xp_say(t->out, 2, "%d rank%s on %d node%s: latency and bandwidth of the operation's size; then the choice per size",
         m->nranks, m->nranks == 1 ? "" : "s", m->nnodes, m->nnodes == 1 ? "" : "s");
  xp_say_collnet(t->out, m);
  xp_say_host(t->out, t->m->topo, t->func < 0 ? TT_MODEL_ALL_REDUCE : t->func);
  for (size_t i = 0; i < TT_COUNT(order) && code == 0; i++) {
    if (is_wanted(t, order[i])) {
      fputc('\n', t->out->f);
      write_cells(m, order[i], t->out);
      code = write_choices(t->o, m, order[i], t->out);
    }
  }
  if (has_messages(t) && code == 0) {
    write_messages(t);
  }
  return code;
}

// ---- For programs ----

// Calls fn for every wanted function and size; `nth` counts them.
static int each_choice(const table *t,
                       void (*fn)(const table *t, const tt_model_op *op, const tt_model_choice *c, int nth))
{
  int nth = 0;
  for (size_t i = 0; i < TT_COUNT(order); i++) {
    for (size_t bytes = t->o->min_bytes, more = 1; more != 0 && is_wanted(t, order[i]);
         more = bytes = xp_next_size(t->o, bytes)) {
      tt_model_op op = {.func = order[i], .bytes = bytes};
      tt_model_choice c;
      if (tt_model_choose(t->model, &op, &c) != ncclSuccess) {
        return xp_complain(1);
      }
      fn(t, &op, &c, nth++);
    }
  }
  return 0;
}

static void plain_choice(const table *t, const tt_model_op *op, const tt_model_choice *c, int nth)
{
  (void)nth;
  fprintf(t->out->f, "choice %s %zu %s %s %.4f %d %d\n", tt_model_func_name(op->func), op->bytes,
          tt_model_algo_name(c->algo), tt_model_proto_name(c->proto), (double)c->us, c->channels, c->threads);
}

// "choice" and "model" lines, in the order of the known results; "least" lines for all-to-all.
static int write_plain(const table *t)
{
  int code = each_choice(t, plain_choice);
  for (int i = 0; i < TT_MODEL_FUNCS * TT_MODEL_ALGOS * TT_MODEL_PROTOS && code == 0; i++) {
    int f = i / (TT_MODEL_ALGOS * TT_MODEL_PROTOS), a = i / TT_MODEL_PROTOS % TT_MODEL_ALGOS, p = i % TT_MODEL_PROTOS;
    float latency = t->model->latency[f][a][p], bw = t->model->bandwidth[f][a][p];
    bool known = latency != 0 || bw != 0;
    if (known && is_wanted(t, f)) {
      fprintf(t->out->f, "model %s %s %s %.4f %.4f\n", tt_model_func_name((tt_model_func)f),
              tt_model_algo_name((tt_model_algo)a), tt_model_proto_name((tt_model_proto)p), (double)latency,
              (double)bw);
    }
  }
  for (size_t bytes = t->o->min_bytes, more = 1; more != 0 && has_messages(t) && code == 0;
       more = bytes = xp_next_size(t->o, bytes)) {
    fprintf(t->out->f, "least %s %zu %.4f\n", xp_func_name(XP_ALL_TO_ALL), bytes,
            xp_messages_time(&t->messages, bytes));
  }
  return code;
}

static void json_choice(const table *t, const tt_model_op *op, const tt_model_choice *c, int nth)
{
  fprintf(t->out->f,
          "%s\n    {\"function\": \"%s\", \"bytes\": %zu, \"algorithm\": \"%s\", \"protocol\": \"%s\", \"us\": %.4f, ",
          nth > 0 ? "," : "", tt_model_func_name(op->func), op->bytes, tt_model_algo_name(c->algo),
          tt_model_proto_name(c->proto), (double)c->us);
  fprintf(t->out->f, "\"channels\": %d, \"threads\": %d}", c->channels, c->threads);
}

// What the model knows of every algorithm and protocol that a function has: figures, or why it is out.
static void json_cells(const table *t)
{
  int nth = 0;
  char text[256];
  FILE *f = t->out->f;
  for (int i = 0; i < TT_MODEL_FUNCS * TT_MODEL_ALGOS * TT_MODEL_PROTOS; i++) {
    int func = i / (TT_MODEL_ALGOS * TT_MODEL_PROTOS), a = i / TT_MODEL_PROTOS % TT_MODEL_ALGOS,
        p = i % TT_MODEL_PROTOS;
    tt_model_off off = t->model->off[func][a][p];
    if (off == TT_OFF_NEVER || !is_wanted(t, func)) {
      continue;
    }
    fprintf(f, "%s\n    {\"function\": \"%s\", \"algorithm\": \"%s\", \"protocol\": \"%s\", ", nth++ > 0 ? "," : "",
            tt_model_func_name((tt_model_func)func), tt_model_algo_name((tt_model_algo)a),
            tt_model_proto_name((tt_model_proto)p));
    if (off == TT_OFF_NOT) {
      fprintf(f, "\"latency\": %.4f, \"bandwidth\": %.4f, \"bound\": ", (double)t->model->latency[func][a][p],
              (double)t->model->bandwidth[func][a][p]);
      xp_json_text(f, tt_model_bound_text((tt_model_bound)t->model->bound[func][a][p]));
    } else {
      fprintf(f, "\"out\": ");
      xp_json_text(f, xp_off_text(off, text, sizeof(text)));
    }
    fputc('}', f);
  }
}

static void json_messages(const table *t)
{
  int nth = 0;
  char text[192];
  for (size_t bytes = t->o->min_bytes, more = 1; more != 0 && has_messages(t);
       more = bytes = xp_next_size(t->o, bytes)) {
    fprintf(t->out->f, "%s\n    {\"function\": \"%s\", \"bytes\": %zu, \"us\": %.4f, \"bound\": ", nth++ > 0 ? "," : "",
            xp_func_name(XP_ALL_TO_ALL), bytes, xp_messages_time(&t->messages, bytes));
    xp_json_text(t->out->f, xp_messages_bound(t->m, &t->messages, "->", text));
    fputc('}', t->out->f);
  }
}

static int write_json(const table *t)
{
  FILE *f = t->out->f;
  fprintf(f, "{\n  \"machine\": ");
  xp_json_text(f, t->m->name);
  fprintf(f, ",\n  \"ranks\": %d, \"nodes\": %d,\n  \"model\": [", t->model->nranks, t->model->nnodes);
  json_cells(t);
  fprintf(f, "\n  ],\n  \"choices\": [");
  int code = each_choice(t, json_choice);
  fprintf(f, "\n  ],\n  \"least\": [");
  json_messages(t);
  fprintf(f, "\n  ]\n}\n");
  return code;
}

static const struct {
  const char *name;
  int (*write)(const table *t);
} forms[] = {{"text", write_text}, {"plain", write_plain}, {"json", write_json}};

static int find_table(const char *name)
{
  for (size_t i = 0; i < TT_COUNT(forms); i++) {
    if (name == NULL || strcmp(forms[i].name, name) == 0) {
      return (int)i;
    }
  }
  fprintf(stderr, "tutti-topo: --format %.80s: there are text, plain and json\n", name);
  return -1;
}

int xp_tuning(const xp_options *o, xp_print *out)
{
  xp_work w;
  int form = find_table(o->format), func = o->coll != NULL ? xp_func_of(o->coll) : -1;
  if (form < 0 || (o->coll != NULL && func < 0)) {
    return 2;
  }
  table t = {.o = o, .m = &w.m, .model = &w.m.model, .func = func, .out = out};
  int code = xp_prepare(o, XP_TO_MODEL, &w);
  if (code == 0 && is_wanted(&t, XP_ALL_TO_ALL)) {
    ncclResult_t res = xp_messages_make(&w.m, &t.messages);
    res = res == ncclSuccess && func == XP_ALL_TO_ALL ? xp_messages_check(&w.m, &t.messages) : res;
    code = res == ncclSuccess ? 0 : xp_complain(xp_code_of(res));
  }
  code = code == 0 ? forms[form].write(&t) : code;
  xp_messages_clear(&t.messages);
  xp_release(&w);
  return code;
}
