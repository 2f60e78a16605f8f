// tuner.c: what a tuner plugin (NCCL_TUNER_PLUGIN) makes of an operation on the described machine.
#include <string.h>

#include "base/param.h"
#include "base/util.h"
#include "commands.h"
#include "plugin/tuner.h"

typedef struct asked {
  const xp_machine *m;
  const tt_model *model;
  tt_model_op op;
  const tt_model_choice *own;
  FILE *f;
} asked;

static void fill_costs(const asked *a, tt_tuner_question *q)
{
  for (int algo = 0; algo < TUTTI_NUM_ALGORITHMS; algo++) {
    for (int proto = 0; proto < NCCL_NUM_PROTOCOLS; proto++) {
      float us =
          algo < NCCL_NUM_ALGORITHMS ? tt_model_time(a->model, &a->op, (tt_model_algo)algo, (tt_model_proto)proto) : -1;
      q->costs[algo][proto] = us >= 0 ? us : (float)NCCL_ALGO_PROTO_IGNORE;
    }
  }
}

static void write_answer(const asked *a, tt_tuner *tuner)
{
  tt_tuner_question q = {.func = (ncclFunc_t)a->op.func,
                         .bytes = a->op.bytes,
                         .ops = TT_MAX(a->op.together, 1),
                         .algo = a->own->algo,
                         .proto = a->own->proto};
  tt_tuner_answer answer;
  fill_costs(a, &q);
  tt_tuner_query(tuner, &q, &answer);
  tt_model_choice c = *a->own;
  if (answer.algo >= 0) {
    c.algo = (tt_model_algo)answer.algo;
    c.proto = (tt_model_proto)answer.proto;
    tt_model_size(a->model, &a->op, &c);
  }
  c.channels = answer.channels > 0 ? TT_MIN(answer.channels, a->model->nchannels) : c.channels;
  bool same = c.algo == a->own->algo && c.proto == a->own->proto && c.channels == a->own->channels;
  float us = q.costs[c.algo][c.proto];
  if (same) {
    fprintf(a->f, "  tuner plugin %s: asked, and leaves the choice as it is\n", tt_tuner_name(tuner));
  } else {
    fprintf(a->f, "  tuner plugin %s: decided: %s %s, %d channels, predicted %.2f us, in place of the choice above\n",
            tt_tuner_name(tuner), tt_model_algo_name(c.algo), tt_model_proto_name(c.proto), c.channels, (double)us);
  }
}

// The model with what the plugin has changed.
static void ask_changed(const asked *a, tt_tuner *tuner, const tt_model_constants *constants)
{
  tt_model changed;
  tt_model_input in = {.connect = a->m->connect, .opt = &a->m->model_options, .constants = constants};
  if (tt_model_make(&in, &changed) == ncclSuccess) {
    tt_model_choice own = *a->own;
    if (tt_model_choose(&changed, &a->op, &own) == ncclSuccess &&
        (own.algo != a->own->algo || own.proto != a->own->proto)) {
      fprintf(a->f, "  tuner plugin %s: the constants that it changes make it %s %s\n", tt_tuner_name(tuner),
              tt_model_algo_name(own.algo), tt_model_proto_name(own.proto));
    }
    write_answer(&(asked){.m = a->m, .model = &changed, .op = a->op, .own = &own, .f = a->f}, tuner);
  }
}

void xp_write_tuner(const xp_machine *m, const tt_model_op *op, const tt_model_choice *own, xp_print *out)
{
  const char *wish = tt_params_get()->tuner_plugin;
  asked a = {.m = m, .model = &m->model, .op = *op, .own = own, .f = out->f};
  tt_tuner_world world = {.comm_id = 1,
                          .nranks = (size_t)m->model.nranks,
                          .nnodes = (size_t)m->model.nnodes,
                          .min_local = m->model.nranks / TT_MAX(m->model.nnodes, 1),
                          .max_local = m->model.max_local};
  tt_model_constants before, constants;
  tt_plugin *plugin = NULL;
  tt_tuner *tuner = NULL;
  tt_model_constants_default(&before);
  constants = before;
  if (wish == NULL || tt_plugin_is_none(wish)) {
    fprintf(out->f, "  no tuner plugin took part\n");
    return;
  }
  if (tt_plugin_open(TT_PLUGIN_TUNER, wish, NULL, &plugin) == ncclSuccess && plugin != NULL) {
    (void)tt_tuner_create(plugin, &world, &constants, &tuner);
  }
  if (tuner == NULL) {
    char clean[128];
    fprintf(out->f, "  NCCL_TUNER_PLUGIN=%s: there is no tuner plugin that could be asked; NCCL_DEBUG=INFO says why\n",
            xp_clean(wish, clean, sizeof(clean)));
    return;
  }
  if (memcmp(&before, &constants, sizeof before) != 0) {
    ask_changed(&a, tuner, &constants);
  } else {
    write_answer(&a, tuner);
  }
  tt_tuner_destroy(tuner);
}
