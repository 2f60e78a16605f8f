// explain.c: one operation on so many machines: which algorithm, protocol, channels and threads; the predicted time of
// every candidate; why the others are out; which link, limit, variable or plugin decided.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/util.h"
#include "commands.h"
#include "tools/graph_check.h"

enum { CELLS = TT_MODEL_ALGOS * TT_MODEL_PROTOS };

typedef struct candidate {
  tt_model_algo algo;
  tt_model_proto proto;
  float us;
} candidate;

typedef struct inquiry {
  const xp_options *o;
  const xp_work *w;
  const tt_model *m;
  tt_model_op op;
  tt_model_choice choice;
  candidate list[CELLS]; // that can be had, fastest first
  int count;
  xp_print *out;
} inquiry;

static void title(const inquiry *q, const char *text)
{
  fprintf(q->out->f, "\n%s%s%s\n", xp_ansi(q->out, XP_BOLD), text, xp_ansi(q->out, XP_PLAIN));
}

static const char *name_of(tt_model_algo a, tt_model_proto p, char out[32])
{
  snprintf(out, 32, "%s %s", tt_model_algo_name(a), tt_model_proto_name(p));
  return out;
}

static double rate(size_t bytes, double us)
{
  return us > 0 ? (double)bytes / us / 1e3 : 0;
}

// ---- The candidates ----

static int compare(const void *a, const void *b)
{
  const candidate *x = a, *y = b;
  int place = (int)x->algo * TT_MODEL_PROTOS + (int)x->proto - (int)y->algo * TT_MODEL_PROTOS - (int)y->proto;
  return x->us != y->us ? (x->us < y->us ? -1 : 1) : place;
}

static void collect(inquiry *q)
{
  q->count = 0;
  for (int i = 0; i < CELLS; i++) {
    candidate c = {.algo = i / TT_MODEL_PROTOS, .proto = i % TT_MODEL_PROTOS};
    c.us = tt_model_time(q->m, &q->op, c.algo, c.proto);
    if (c.us >= 0) {
      q->list[q->count++] = c;
    }
  }
  qsort(q->list, (size_t)q->count, sizeof(*q->list), compare);
}

// Microseconds of the prediction that do not depend on the size: for rings what the transfer leaves, for others the
// table's.
static double latency_of(const inquiry *q, const candidate *c)
{
  double transfer = (double)q->op.bytes / (1000.0 * (double)q->m->bandwidth[q->op.func][c->algo][c->proto]);
  return c->algo == TT_MODEL_RING ? (double)c->us - transfer : (double)q->m->latency[q->op.func][c->algo][c->proto];
}

static void write_candidates(const inquiry *q)
{
  char name[32], us[16], before[16], after[16];
  const xp_print *out = q->out;
  title(q, "Candidates, predicted");
  fprintf(out->f, "  %-20s %10s %10s %10s", "", "us", "latency", "transfer");
  xp_flow(out, 55, 4, "transfer bound by");
  for (int i = 0; i < q->count && q->m->nranks > 1; i++) {
    const candidate *c = &q->list[i];
    double latency = latency_of(q, c);
    bool chosen = c->algo == q->choice.algo && c->proto == q->choice.proto;
    const char *bound = tt_model_bound_text((tt_model_bound)q->m->bound[q->op.func][c->algo][c->proto]);
    fprintf(out->f, "%s%c %-20s %s %s %s", chosen ? xp_ansi(out, XP_GOOD) : "", chosen ? '*' : ' ',
            name_of(c->algo, c->proto, name), xp_fixed((double)c->us, 10, us, sizeof(us)),
            xp_fixed(latency, 10, before, sizeof(before)), xp_fixed((double)c->us - latency, 10, after, sizeof(after)));
    xp_flow(out, 55, 4, bound);
    fputs(chosen ? xp_ansi(out, XP_PLAIN) : "", out->f);
  }
}

// Those that are out, an algorithm a line where all its protocols are out alike. What the function does not have at all
// is not mentioned.
static void write_out(const inquiry *q)
{
  int lines = 0;
  char text[256];
  title(q, "Not to be had");
  for (int a = 0; a < TT_MODEL_ALGOS; a++) {
    tt_model_off off[TT_MODEL_PROTOS];
    for (int p = 0; p < TT_MODEL_PROTOS; p++) {
      off[p] = tt_model_why(q->m, &q->op, (tt_model_algo)a, (tt_model_proto)p);
    }
    for (int p = 0; p < TT_MODEL_PROTOS; p++) {
      bool all = off[0] == off[1] && off[1] == off[2];
      if (off[p] == TT_OFF_NOT || off[p] == TT_OFF_NEVER || (all && p > 0)) {
        continue;
      }
      fprintf(q->out->f, "  %-14s %-7s", tt_model_algo_name((tt_model_algo)a),
              all ? "" : tt_model_proto_name((tt_model_proto)p));
      xp_flow(q->out, 24, 4, xp_off_text(off[p], text, sizeof(text)));
      lines++;
    }
  }
  if (lines == 0) {
    fprintf(q->out->f, "  all that the function has can be had\n");
  }
}

// ---- Links ----

static tt_graph_kind graph_of(tt_model_algo a)
{
  static const tt_graph_kind kinds[TT_MODEL_ALGOS] = {TT_GRAPH_TREE,          TT_GRAPH_RING, TT_GRAPH_COLLNET_DIRECT,
                                                      TT_GRAPH_COLLNET_CHAIN, TT_GRAPH_NVLS, TT_GRAPH_NVLS,
                                                      TT_GRAPH_TREE};
  return kinds[a];
}

// The group whose graph has the least bandwidth: all others wait for it.
static int slowest_group(const xp_machine *m, tt_graph_kind kind)
{
  int slowest = 0;
  for (int g = 1; g < m->ngroups; g++) {
    const tt_graph *a = &m->group[g].graphs.graph[kind], *b = &m->group[slowest].graphs.graph[kind];
    if (tt_graph_total(a) < tt_graph_total(b)) {
      slowest = g;
    }
  }
  return slowest;
}

// The links that have the least left, a few of them by name.
static void write_links(const inquiry *q, const xp_group *x, const tt_graph *g)
{
  enum { NAMED = 4 };
  char a[64], b[64];
  const tt_topo *t = x->topo;
  float *load = tt_calloc((size_t)t->nlinks + 1, sizeof(*load)), most = 0;
  if (load == NULL) {
    return;
  }
  xp_loads(t, x->paths, g, load);
  int count = 0;
  xp_text text = {0};
  for (int l = 0; l < t->nlinks; l++) {
    most = TT_MAX(most, load[l] / t->links[l].bw);
  }
  for (int l = 0; l < t->nlinks && most > 0; l++) {
    if (load[l] / t->links[l].bw < most * 0.999f) {
      continue;
    }
    if (count++ < NAMED) {
      xp_add(&text, "%s%s %s %s %s (%g of %g GB/s)", count == 1 ? "  fullest links: " : ", ",
             xp_node_name(t, t->links[l].from, a, sizeof(a)), xp_link_kind(t, &t->links[l]), xp_arrow(q->out),
             xp_node_name(t, t->links[l].to, b, sizeof(b)), (double)load[l], (double)t->links[l].bw);
    }
  }
  if (count > NAMED) {
    xp_add(&text, " and %d more", count - NAMED);
  }
  if (count > 0) {
    xp_flow(q->out, 0, 4, text.buf);
  }
  tt_free(load);
}

static void write_graph(const inquiry *q)
{
  const xp_machine *m = &q->w->m;
  tt_graph_kind kind = graph_of(q->choice.algo);
  int group = slowest_group(m, kind);
  const tt_graph *g = &m->group[group].graphs.graph[kind];
  xp_text text = {0};
  if (g->nchannels == 0) {
    return;
  }
  xp_add(&text, "  graph: %s, %d channel%s of %g GB/s between GPUs (%s)", tt_pattern_name(g->pattern), g->nchannels,
         g->nchannels == 1 ? "" : "s", (double)g->speedintra, tt_path_type_name(g->typeintra));
  if (g->inter) {
    xp_add(&text, ", %g GB/s to the network (%s)", (double)g->speedinter, tt_path_type_name(g->typeinter));
  }
  xp_add(&text, "; together %g GB/s", (double)tt_graph_total(g));
  if (g->bound > 0) {
    xp_add(&text, ", no more than %g are possible", (double)g->bound);
  }
  xp_add(&text, "%s", m->ngroups > 1 ? "; of the slowest group" : "");
  xp_flow(q->out, 0, 4, text.buf);
  write_links(q, &m->group[group], g);
}

// ---- Reasons ----

static void write_margin(const inquiry *q)
{
  char first[32], second[32];
  const candidate *best = &q->list[0];
  double latency = latency_of(q, best), share = best->us > 0 ? latency / (double)best->us : 0;
  xp_say(q->out, 4, "  %s: %.0f %% of its time is latency, %.0f %% transfer at %.4g GB/s, which comes from %s",
         name_of(best->algo, best->proto, first), share * 100, (1 - share) * 100,
         rate(q->op.bytes, (double)best->us - latency),
         tt_model_bound_text((tt_model_bound)q->m->bound[q->op.func][best->algo][best->proto]));
  if (q->count < 2) {
    fprintf(q->out->f, "  it is the only one that can be had\n");
    return;
  }
  const candidate *next = &q->list[1];
  double more_latency = latency_of(q, next) - latency;
  double more = (double)(next->us - best->us), more_transfer = more - more_latency;
  xp_say(q->out, 4, "  the next is %s, %.2f us (%.0f %%) slower: latency %+.2f us, transfer %+.2f us",
         name_of(next->algo, next->proto, second), more, best->us > 0 ? more / (double)best->us * 100 : 0, more_latency,
         more_transfer);
}

static bool other(const inquiry *q, const tt_model_choice *c)
{
  return c->algo != q->choice.algo || c->proto != q->choice.proto;
}

// Where the choice becomes another one, above or below the size: doubled or halved until it does, then halved between.
// False: nowhere.
static bool find_change(const inquiry *q, bool up, size_t *bytes, tt_model_choice *there)
{
  tt_model_op op = q->op;
  tt_model_choice c = q->choice;
  size_t same = op.bytes, changed = same;
  while (!other(q, &c)) {
    same = changed;
    changed = !up ? same / 2 : same == 0 ? 1 : same * 2;
    op.bytes = changed;
    if (changed == same || changed > (size_t)1 << 50 || tt_model_choose(q->m, &op, &c) != ncclSuccess) {
      return false;
    }
  }
  *there = c;
  while ((up ? changed - same : same - changed) > 1) {
    op.bytes = same / 2 + changed / 2 + (same & changed & 1);
    (void)tt_model_choose(q->m, &op, &c);
    bool differs = other(q, &c);
    same = differs ? same : op.bytes;
    changed = differs ? op.bytes : changed;
    *there = differs ? c : *there;
  }
  *bytes = changed;
  return true;
}

static void write_changes(const inquiry *q)
{
  char name[32];
  size_t bytes = 0;
  tt_model_choice c;
  bool found = false;
  title(q, "Other sizes");
  for (int up = 0; up < 2; up++) {
    if (find_change(q, up != 0, &bytes, &c)) {
      fprintf(q->out->f, up != 0 ? "  from %zu bytes on: %s\n" : "  up to %zu bytes: %s\n", bytes,
              name_of(c.algo, c.proto, name));
      found = true;
    }
  }
  if (!found) {
    fprintf(q->out->f, "  the same choice at every size\n");
  }
}

static void write_size(const inquiry *q)
{
  const tt_model *m = q->m;
  const tt_model_choice *c = &q->choice;
  bool nvls = c->algo == TT_MODEL_NVLS || c->algo == TT_MODEL_NVLS_TREE;
  int most = nvls ? m->nvls_channels : m->nchannels;
  xp_text text = {0};
  xp_add(&text, "  channels: %d of %d", c->channels, most);
  if (!nvls && most != q->w->m.connect->nsearch) {
    xp_add(&text, " (made of %d that the search found)", q->w->m.connect->nsearch);
  }
  if (c->channels < most) {
    xp_add(&text, "; each more needs %lld bytes for each of its threads", (long long)m->threshold[c->algo][c->proto]);
  }
  xp_add(&text, "; %d threads in each", c->threads);
  xp_flow(q->out, 0, 4, text.buf);
}

// ---- Variables ----

// Gives a field its default.
static void reset(const tt_param_row *row, tt_params *p)
{
  void *at = (char *)p + row->offset;
  int64_t number = NCCL_CONFIG_UNDEF_INT;
  if (row->type == TT_PARAM_TYPE_STR) {
    *(const char **)at = NULL; // what "not set" means for all of ours
    return;
  }
  (void)tt_param_parse_value(row->type, row->def_text, &number);
  *(int64_t *)at = number;
}

// The choice with other parameters.
static bool choose_with(const inquiry *q, const tt_params *p, tt_model_choice *out)
{
  xp_machine m = {0};
  bool good = xp_machine_make(q->o, p, q->w->xml, &m) == ncclSuccess && xp_machine_search(q->o, p, &m) == ncclSuccess &&
              xp_machine_connect(q->o, p, &m) == ncclSuccess && tt_model_choose(&m.model, &q->op, out) == ncclSuccess;
  xp_machine_clear(&m);
  return good;
}

static bool same_choice(const tt_model_choice *a, const tt_model_choice *b)
{
  return a->algo == b->algo && a->proto == b->proto && a->channels == b->channels && a->threads == b->threads &&
         a->us == b->us;
}

static void write_variable(const inquiry *q, const tt_param_row *row)
{
  char value[128], clean[128], name[32];
  tt_params p = *tt_params_get();
  tt_model_choice c;
  tt_param_text(row, value, sizeof(value));
  xp_text text = {0};
  xp_add(&text, "  %s=%s: ", row->name, xp_clean(value, clean, sizeof(clean)));
  reset(row, &p);
  if (!choose_with(q, &p, &c)) {
    xp_add(&text, "without it there is no choice");
  } else if (same_choice(&c, &q->choice)) {
    xp_add(&text, "decides nothing here");
  } else {
    xp_add(&text, "%sdecided%s: without it %s, %d channel%s, %d threads, %.2f us", xp_ansi(q->out, XP_BOLD),
           xp_ansi(q->out, XP_PLAIN), name_of(c.algo, c.proto, name), c.channels, c.channels == 1 ? "" : "s", c.threads,
           (double)c.us);
  }
  xp_flow(q->out, 0, 4, text.buf);
}

static void write_variables(const inquiry *q)
{
  int set = 0;
  title(q, "Variables and plugins");
  for (int i = 0; xp_variables[i] != NULL; i++) {
    const tt_param_row *row = tt_param_find(xp_variables[i]);
    if (row != NULL && tt_param_origin_of(row) != TT_PARAM_FROM_DEFAULT) {
      write_variable(q, row);
      set++;
    }
  }
  if (set == 0) {
    fprintf(q->out->f, "  no variable is set that could matter\n");
  }
  xp_say_collnet(q->out, q->m);
}

// ---- For programs ----

static void json_choice(const inquiry *q, const char *key, const tt_model_choice *c)
{
  fprintf(q->out->f,
          "  \"%s\": {\"algorithm\": \"%s\", \"protocol\": \"%s\", \"channels\": %d, \"threads\": %d, \"us\": %.4f",
          key, tt_model_algo_name(c->algo), tt_model_proto_name(c->proto), c->channels, c->threads, (double)c->us);
}

static void json_candidates(const inquiry *q)
{
  fprintf(q->out->f, "  \"candidates\": [");
  for (int i = 0; i < q->count && q->m->nranks > 1; i++) {
    const candidate *c = &q->list[i];
    double latency = latency_of(q, c);
    fprintf(q->out->f,
            "%s\n    {\"algorithm\": \"%s\", \"protocol\": \"%s\", \"us\": %.4f, \"latency\": %.4f, \"transfer\": "
            "%.4f, \"bound\": ",
            i > 0 ? "," : "", tt_model_algo_name(c->algo), tt_model_proto_name(c->proto), (double)c->us, latency,
            (double)c->us - latency);
    xp_json_text(q->out->f, tt_model_bound_text((tt_model_bound)q->m->bound[q->op.func][c->algo][c->proto]));
    fputc('}', q->out->f);
  }
  fprintf(q->out->f, "\n  ],\n  \"out\": [");
}

static void json_out(const inquiry *q)
{
  int lines = 0;
  char text[256];
  for (int i = 0; i < CELLS && q->m->nranks > 1; i++) {
    tt_model_algo a = i / TT_MODEL_PROTOS;
    tt_model_proto p = i % TT_MODEL_PROTOS;
    tt_model_off off = tt_model_why(q->m, &q->op, a, p);
    if (off != TT_OFF_NOT && off != TT_OFF_NEVER) {
      fprintf(q->out->f, "%s\n    {\"algorithm\": \"%s\", \"protocol\": \"%s\", \"reason\": ", lines++ > 0 ? "," : "",
              tt_model_algo_name(a), tt_model_proto_name(p));
      xp_json_text(q->out->f, xp_off_text(off, text, sizeof(text)));
      fputc('}', q->out->f);
    }
  }
  fprintf(q->out->f, "\n  ]");
}

static int explain_json(inquiry *q)
{
  FILE *f = q->out->f;
  size_t bytes = 0;
  tt_model_choice c;
  char link[XP_SHARED_NAME];
  double us = 0;
  if (tt_model_choose(q->m, &q->op, &q->choice) != ncclSuccess ||
      xp_shared_time(&q->w->m, &q->op, &q->choice, 0, &us, link) != ncclSuccess) {
    return xp_complain(1); // before anything is written
  }
  collect(q);
  double algbw = rate(q->op.bytes, (double)q->choice.us);
  fprintf(f, "{\n  \"machine\": ");
  xp_json_text(f, q->w->m.name);
  fprintf(
      f, ",\n  \"function\": \"%s\", \"bytes\": %zu, \"type\": \"%s\", \"op\": \"%s\", \"ranks\": %d, \"nodes\": %d,\n",
      tt_model_func_name(q->op.func), q->op.bytes, xp_type_of(q->o), xp_redop_of(q->o, q->op.func), q->m->nranks,
      q->m->nnodes);
  if (q->m->nranks == 1) {
    fprintf(f, "  \"choice\": null,\n");
  } else {
    json_choice(q, "choice", &q->choice);
    fprintf(f, ", \"algbw\": %.4f, \"busbw\": %.4f},\n", algbw, algbw * xp_bus_factor(q->op.func, q->m->nranks));
  }
  if (q->w->m.shared != NULL && q->m->nranks > 1) {
    fprintf(f, "  \"shared\": {\"us\": %.4f, \"link\": \"%s\"},\n", us, link);
  }
  json_candidates(q);
  json_out(q);
  for (int up = 0; up < 2; up++) {
    if (q->m->nranks > 1 && find_change(q, up != 0, &bytes, &c)) {
      fprintf(f, ",\n");
      json_choice(q, up != 0 ? "above" : "below", &c);
      fprintf(f, ", \"bytes\": %zu}", bytes);
    }
  }
  fprintf(f, "\n}\n");
  return 0;
}

// ---- All of it ----

static void write_answer(const inquiry *q)
{
  char size[32], name[32];
  const tt_model_choice *c = &q->choice;
  double algbw = rate(q->op.bytes, (double)c->us);
  xp_text text = {0};
  xp_add(&text, "%s of %s (%s, %s) on ", tt_model_func_name(q->op.func), xp_bytes(q->op.bytes, size, sizeof(size)),
         xp_type_of(q->o), xp_redop_of(q->o, q->op.func));
  if (q->m->nranks == 1) {
    xp_add(&text, "1 rank: one rank alone copies, nothing is chosen");
    xp_flow(q->out, 0, 2, text.buf);
    return;
  }
  xp_add(&text, "%d ranks, %d node%s: %s%s%s, %d channel%s, %d threads", q->m->nranks, q->m->nnodes,
         q->m->nnodes == 1 ? "" : "s", xp_ansi(q->out, XP_GOOD), name_of(c->algo, c->proto, name),
         xp_ansi(q->out, XP_PLAIN), c->channels, c->channels == 1 ? "" : "s", c->threads);
  xp_flow(q->out, 0, 2, text.buf);
  xp_say(q->out, 2, "predicted %.2f us: %.4g GB/s, bus bandwidth %.4g GB/s", (double)c->us, algbw,
         algbw * xp_bus_factor(q->op.func, q->m->nranks));
}

// The time with the links that machines share, where the options describe them.
static ncclResult_t write_shared(const inquiry *q)
{
  char link[XP_SHARED_NAME];
  double us = 0;
  if (q->w->m.shared == NULL) {
    return ncclSuccess;
  }
  TT_TRY(xp_shared_time(&q->w->m, &q->op, &q->choice, 0, &us, link));
  if (us > (double)q->choice.us) {
    xp_say(q->out, 2, "with the links that machines share %.2f us: %.4g GB/s, bound by %s", us, rate(q->op.bytes, us),
           link);
  } else {
    xp_say(q->out, 2, "no link that machines share bounds it");
  }
  return ncclSuccess;
}

static int explain(inquiry *q)
{
  if (tt_model_choose(q->m, &q->op, &q->choice) != ncclSuccess) {
    (void)xp_complain(1);
    write_out(q);
    write_variables(q);
    return 1;
  }
  collect(q);
  write_answer(q);
  if (q->m->nranks == 1) {
    return 0;
  }
  if (write_shared(q) != ncclSuccess) {
    return xp_complain(1);
  }
  write_candidates(q);
  write_out(q);
  title(q, "Why");
  write_margin(q);
  xp_say_host(q->out, q->w->m.topo, (int)q->op.func);
  write_graph(q);
  if (q->op.func == TT_MODEL_ALL_REDUCE && xp_packed_far(&q->w->m, "  ", q->out) != 0) {
    return 1;
  }
  write_size(q);
  write_changes(q);
  write_variables(q);
  xp_write_tuner(&q->w->m, &q->op, &q->choice, q->out);
  return 0;
}

int xp_explain(const xp_options *o, xp_print *out)
{
  xp_work w;
  inquiry q = {.o = o, .w = &w, .m = &w.m.model, .out = out};
  bool json = o->format != NULL && strcmp(o->format, "json") == 0;
  if (o->format != NULL && !json && strcmp(o->format, "text") != 0) {
    fprintf(stderr, "tutti-topo: --format %.80s: there are text and json\n", o->format);
    return 2;
  }
  if (xp_say_blocks(o->coll, json, out)) {
    return 0;
  }
  int func = xp_func_of(o->coll != NULL ? o->coll : "allreduce");
  if (func < 0 || !xp_op_of(o, &q.op)) {
    return 2;
  }
  q.op.func = (tt_model_func)func;
  q.op.bytes = o->bytes;
  int code = xp_prepare(o, XP_TO_MODEL, &w);
  if (code == 0 && func == XP_ALL_TO_ALL) {
    code = xp_explain_messages(o, &w.m, json, out);
    xp_release(&w);
    return code;
  }
  code = code == 0 ? (json ? explain_json : explain)(&q) : code;
  xp_release(&w);
  return code;
}
