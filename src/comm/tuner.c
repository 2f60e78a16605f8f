// tuner.c: tuner plugins of a communicator: which one, what it is asked, what becomes of its answer.
//
// The plugin sees NCCL's table: rows Tree, Ring and PAT are our algorithms of that name; what the others mean there is
// nothing here. Plugins that know our own rows (nccl/tuner.h) see all. Where a file describes the machine, the table
// has that machine's predicted times, as NCCL's would.
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/collnet.h"
#include "comm/register.h"
#include "comm/task.h"
#include "comm/topology.h"
#include "comm/tuning.h"
#include "comm/tuning_priv.h"
#include "net/plugin/plugin.h"
#include "os/folder.h"
#include "os/library.h"

// ---- Which one ----

// Ranks of the smallest and the largest node.
static void tuner_survey(const struct ncclComm *comm, tt_tuner_world *w)
{
  w->min_local = INT_MAX;
  w->max_local = 0;
  for (int node = 0; node < comm->layout->nnodes; node++) {
    int ranks = tt_layout_size(comm->layout, node);
    w->min_local = TT_MIN(w->min_local, ranks);
    w->max_local = TT_MAX(w->max_local, ranks);
  }
}

// The file for the bundled tuner: what the environment names, or what tutti-tune has left. False: there is none, so the
// tuner is not wanted.
static bool find_choices(char path[PATH_MAX])
{
  const char *named = tt_params_get()->tuner_config_file;
  if (named != NULL && tt_param_origin_of(tt_param_find("NCCL_TUNER_CONFIG_FILE")) == TT_PARAM_FROM_ENV) {
    return snprintf(path, PATH_MAX, "%s", named) < PATH_MAX;
  }
  uint64_t ignored;
  return tt_param_home(".nccl/tuner.csv", path, PATH_MAX) && tt_file_hash(path, SIZE_MAX, 1, &ignored);
}

// Nobody has asked for a tuner and none is installed, but there is a file of choices. *hash: of its content.
static ncclResult_t open_bundled(tt_plugin **out, uint64_t *hash)
{
  char choices[PATH_MAX], library[PATH_MAX];
  if (!find_choices(choices)) {
    return ncclSuccess;
  }
  if (!tt_library_beside("libnccl-tuner-csv.so", library, sizeof library)) {
    tt_info(TT_INIT | TT_TUNING, "TUNER/Plugin: %s is not used: libnccl-tuner-csv.so is not where the library is",
            choices);
    return ncclSuccess;
  }
  tt_info(TT_INIT | TT_TUNING, "TUNER/Plugin: for %s the bundled plugin is used; NCCL_TUNER_PLUGIN=none does without",
          choices);
  if (!tt_file_hash(choices, SIZE_MAX, 1, hash)) {
    *hash = 0; // cannot be read, as the plugin will say
  }
  return tt_plugin_open(TT_PLUGIN_TUNER, library, NULL, out);
}

ncclResult_t tt_tuning_open_plugin(const struct ncclComm *comm, tt_tuning *t)
{
  tt_plugin *plugin = NULL;
  tt_tuner_world world = {
      .comm_id = comm->hash, .nranks = (size_t)comm->nranks, .nnodes = (size_t)comm->layout->nnodes};
  const char *wish = tt_params_get()->tuner_plugin;
  uint64_t hash = 0;
  const tt_plugin_fallback net = tt_net_plugin_fallback(comm->network.ops);
  TT_TRY(tt_plugin_open(TT_PLUGIN_TUNER, wish, &net, &plugin));
  if (plugin == NULL && wish == NULL) {
    TT_TRY(open_bundled(&plugin, &hash));
  }
  if (plugin == NULL) {
    return ncclSuccess;
  }
  tuner_survey(comm, &world);
  tt_model_constants before;
  tt_model_constants_default(&before);
  t->constants = before;
  TT_TRY(tt_tuner_create(plugin, &world, &t->constants, &t->tuner));
  if (t->tuner != NULL) {
    t->constants_changed = memcmp(&before, &t->constants, sizeof before) != 0;
    t->tuner_identity = tt_tuner_identity(t->tuner) ^ hash << 1; // stays odd
  }
  return ncclSuccess;
}

void tt_tuning_drop_plugin(tt_tuning *t)
{
  tt_tuner_destroy(t->tuner);
  tt_free(t->model);
  t->tuner = NULL;
  t->model = NULL;
  t->tuner_identity = 0;
}

uint64_t tt_tuning_plugin(const struct ncclComm *comm)
{
  return comm->tuning->tuner_identity;
}

// The described machine's model, with what the plugin has changed.
static ncclResult_t make_model(struct ncclComm *comm)
{
  tt_tuning *t = comm->tuning;
  tt_model_options opt = tt_model_options_from(tt_params_get());
  opt.algo = opt.proto = NULL;
  TT_TRY(TT_NEW(t->model, 1, "rank %d: no memory for a model with a tuner plugin's constants", comm->rank));
  return tt_model_make(&(tt_model_input){.connect = comm->topology->connect, .opt = &opt, .constants = &t->constants},
                       t->model);
}

ncclResult_t tt_tuning_agree(struct ncclComm *comm, bool agreed)
{
  tt_tuning *t = comm->tuning;
  if (t->tuner == NULL || !agreed) {
    tt_tuning_drop_plugin(t);
    return ncclSuccess;
  }
  if (t->constants_changed && !comm->topology->plain) {
    TT_TRY(make_model(comm));
  }
  tt_info(TT_INIT | TT_TUNING, "TUNER/Plugin: Using %s%s", tt_tuner_name(t->tuner),
          !t->constants_changed   ? ""
          : comm->topology->plain ? "; it has changed constants of the model of GPUs, which nobody asks here"
                                  : "; it has changed constants of the model");
  comm->port.tuner = tt_tuner_name(t->tuner);
  comm->tuned = true;
  return ncclSuccess;
}

// ---- What it is asked ----

// NCCL's number to our row, -1: we do not have it.
static int tuner_row_of(int algo)
{
  static const int rows[TUTTI_NUM_ALGORITHMS] = {TT_ALGO_TREE,
                                                 TT_ALGO_RING,
                                                 TT_ALGO_COLLNET_DIRECT,
                                                 TT_ALGO_COLLNET_CHAIN,
                                                 -1,
                                                 -1,
                                                 TT_ALGO_PAT,
                                                 TT_ALGO_RD,
                                                 TT_ALGO_ONESHOT,
                                                 TT_ALGO_DIRECT,
                                                 TT_ALGO_DIRECTWRITE,
                                                 TT_ALGO_HIERRING,
                                                 TT_ALGO_HIERRD};
  return rows[algo];
}

static tt_proto proto_of(int proto)
{
  return proto == NCCL_PROTO_SIMPLE ? TT_SIMPLE : TT_LL; // LL128 means LL, as in NCCL_PROTO
}

// Does the described machine's model say how long things take? Not where NCCL_ALGO chooses, as in tt_tuning_choose.
static bool machine_has_model(const struct ncclComm *comm)
{
  return !comm->topology->plain && tt_params_get()->algo == NULL;
}

// Messages one after the other, and how often a rank passes on the whole message, for our algorithms without direct
// access.
static void way_of(const struct ncclComm *comm, int row, tt_func func, double *hops, double *times)
{
  int levels = 0; // of a tree of the ranks
  while (levels < 31 && 1u << levels < (unsigned)comm->nranks) {
    levels++;
  }
  double n = comm->nranks, part = (n - 1) / n;
  bool twice = func == TT_FUNC_ALLREDUCE, chain = func == TT_FUNC_BROADCAST || func == TT_FUNC_REDUCE;
  *hops = row == TT_ALGO_RING || row == TT_ALGO_HIERRING ? n - 1 : row == TT_ALGO_ONESHOT ? 1 : levels;
  *times = row == TT_ALGO_ONESHOT                       ? n - 1
           : row == TT_ALGO_RD || row == TT_ALGO_HIERRD ? levels
           : row == TT_ALGO_TREE || chain               ? 1
                                                        : part;
  if (twice && (row == TT_ALGO_RING || row == TT_ALGO_HIERRING || row == TT_ALGO_TREE)) {
    *hops *= 2;
    *times *= 2;
  }
}

// Roughly how long it takes: walking the schedules of many ranks would hold up the first operation for too long.
static double rough_us(const struct ncclComm *comm, tt_func func, const tt_choice *c, size_t bytes)
{
  tt_cost_env env = tt_tuning_costs(comm);
  const tt_cost_hop *way =
      &env.hop[comm->network.needed ? TT_HOP_NETWORK : TT_HOP_MEMORY][c->direct ? TT_TOK : c->proto];
  double hops = 2, times = func == TT_FUNC_ALLREDUCE ? 2 : 1,
         share = TT_MAX(1.0, (double)comm->machine.local_ranks / env.cores);
  if (!c->direct) {
    way_of(comm, c->algo, func, &hops, &times);
  }
  double per_byte = c->direct ? env.direct.byte + env.byte : 2 * (way->byte + env.byte);
  return hops * (way->latency + (2 * way->work + env.step) * share) + times * (double)bytes * per_byte * share;
}

// The predicted time of one entry, on the machine or on this one.
static ncclResult_t cost_of(struct ncclComm *comm, const tt_asked *a, tt_func func, const int entry[2], float *out)
{
  const tt_tuning *t = comm->tuning;
  int row = tuner_row_of(entry[0]), proto = entry[1];
  *out = (float)NCCL_ALGO_PROTO_IGNORE;
  bool wrong = row >= 0 && tt_algorithms(NULL)[row].in_network && proto != NCCL_PROTO_SIMPLE;
  if (wrong || !tt_tuning_usable(comm, func, row, a->in_network) ||
      (t->filter.protos[func] & (proto_of(proto) == TT_LL ? TT_PROTO_LL : TT_PROTO_SIMPLE)) == 0) {
    return ncclSuccess;
  }
  if (machine_has_model(comm)) {
    tt_model_op op = {.func = (tt_model_func)func, .bytes = a->bytes, .together = a->ops};
    float us = entry[0] < NCCL_NUM_ALGORITHMS ? tt_model_time(t->model != NULL ? t->model : &comm->topology->model, &op,
                                                              (tt_model_algo)entry[0], (tt_model_proto)proto)
                                              : -1;
    *out = us >= 0 ? us : *out;
    return ncclSuccess;
  }
  tt_choice c = {.algo = row, .proto = proto_of(proto), .direct = tt_algorithms(NULL)[row].needs != 0};
  double us;
  if (proto == NCCL_PROTO_LL128 || (c.direct && proto != NCCL_PROTO_SIMPLE)) {
    return ncclSuccess;
  }
  if (comm->nranks > TT_MODEL_RANKS) {
    us = rough_us(comm, func, &c, a->bytes);
  } else {
    TT_TRY(tt_tuning_estimate(comm, func, a->bytes, &c, &us));
  }
  *out = us < 1e30 ? (float)us : *out;
  return ncclSuccess;
}

// NCCL's numbers of our own choice, -1 where it has none that the plugin knows. Its entry becomes the least: what
// decides is measured, the others are predicted.
static void place_own(const tt_tuning *t, tt_asked *a)
{
  tt_tuner_question *q = &a->question;
  q->algo = q->proto = -1;
  int proto = a->own.direct || a->own.proto == TT_SIMPLE ? NCCL_PROTO_SIMPLE : NCCL_PROTO_LL;
  for (int algo = 0; algo < tt_tuner_rows(t->tuner); algo++) {
    if (tuner_row_of(algo) == a->own.algo && q->costs[algo][proto] >= 0) {
      q->algo = algo;
      q->proto = proto;
    }
  }
  for (int i = 0; i < TUTTI_NUM_ALGORITHMS * NCCL_NUM_PROTOCOLS && q->algo >= 0; i++) {
    float other = q->costs[i / NCCL_NUM_PROTOCOLS][i % NCCL_NUM_PROTOCOLS], *own = &q->costs[q->algo][q->proto];
    *own = other >= 0 && other < *own ? other * 0.999F : *own;
  }
}

// Our choice and the costs, unless they are those of the last question.
static ncclResult_t tuner_prepare(struct ncclComm *comm, const tt_task *task, int ops, tt_asked **out)
{
  tt_func func = task->func;
  size_t bytes = tt_task_bytes(task);
  bool in_network = tt_comm_collnet_allows(comm, func, task->type, tt_kind_opcode(task->kind));
  tt_asked *a = &comm->tuning->asked[func];
  *out = a;
  if (a->made && a->bytes == bytes && a->ops == ops && a->in_network == in_network) {
    return ncclSuccess;
  }
  *a = (tt_asked){.bytes = bytes,
                  .ops = ops,
                  .in_network = in_network,
                  .question = {.func = (ncclFunc_t)func, .bytes = bytes, .ops = ops, .in_network = in_network}};
  TT_TRY(tt_tuning_choose(comm, func, bytes, 0, in_network, &a->own));
  for (int i = 0; i < TUTTI_NUM_ALGORITHMS * NCCL_NUM_PROTOCOLS; i++) {
    const int entry[2] = {i / NCCL_NUM_PROTOCOLS, i % NCCL_NUM_PROTOCOLS};
    TT_TRY(cost_of(comm, a, func, entry, &a->question.costs[entry[0]][entry[1]]));
  }
  place_own(comm->tuning, a);
  a->made = true;
  return ncclSuccess;
}

// ---- What becomes of the answer ----

static void tuner_log_choice(struct ncclComm *comm, tt_func func, size_t bytes, const tt_choice *c)
{
  tt_tuning *t = comm->tuning;
  const char *name = tt_algorithms(NULL)[c->algo].name, *proto = c->direct           ? "direct access"
                                                                 : c->proto == TT_LL ? "LL"
                                                                                     : "Simple";
  if (c->decided && (t->reported & 1u << func) == 0) {
    t->reported |= 1u << func;
    tt_info(TT_TUNING,
            "TUNER/Plugin: %s decides %s of %zu bytes: %s, %s, %d channels, chunks of %zu bytes (TRACE tells of each "
            "operation)",
            tt_tuner_name(t->tuner), tt_func_name(func), bytes, name, proto, c->channels, c->chunk);
  }
  tt_trace(TT_TUNING, "%s of %zu bytes: %s, %s, %d channels, chunks of %zu bytes, %s %s", tt_func_name(func), bytes,
           name, proto, c->channels, c->chunk, c->decided ? "decided by" : "left as it was by",
           tt_tuner_name(t->tuner));
}

// Chunks as the plugin wants them: whole words of the FIFOs, no longer than a slot.
static void query_chunk(struct ncclComm *comm, tt_func func, const tt_tuner_question *q, tt_tuner_answer *answer,
                        tt_choice *c)
{
  tt_tuner_answer chosen = {.algo = answer->algo >= 0 ? answer->algo : q->algo,
                            .proto = answer->proto >= 0 ? answer->proto : q->proto,
                            .channels = c->channels};
  size_t chunk = c->chunk;
  tt_tuner_chunk(comm->tuning->tuner, q, &chosen, &chunk);
  if (chunk != c->chunk) {
    size_t longest = tt_tuning_longest(comm, func, c) / 64 * 64;
    if (chunk > longest) {
      tt_trace(TT_TUNING, "TUNER/Plugin: chunks of %zu bytes are cut to %zu", chunk, longest);
    }
    c->chunk = TT_CLAMP(chunk / 64 * 64, 64, TT_MAX(longest, 64));
  }
}

// Both buffers of the rank, as far as it has them.
static bool is_registered(const struct ncclComm *comm, const tt_task *task)
{
  tt_shape shape = {.func = task->func, .rank = comm->rank, .nranks = comm->nranks, .root = task->root};
  size_t block = task->count * tt_type_size(task->type);
  int in = tt_func_in_blocks(&shape), out = tt_func_out_blocks(&shape);
  return (in == 0 || tt_comm_is_registered(comm, task->in, block * (size_t)in)) &&
         (out == 0 || tt_comm_is_registered(comm, task->out, block * (size_t)out));
}

static ncclResult_t tuner_query(struct ncclComm *comm, const tt_task *task, size_t ops, tt_choice *out)
{
  tt_func func = task->func;
  size_t bytes = tt_task_bytes(task);
  tt_tuner_answer answer;
  tt_asked *a;
  TT_TRY(tuner_prepare(comm, task, (int)TT_DIV_UP(ops, (size_t)tt_topology_channels(comm->topology)), &a));
  a->question.registered = is_registered(comm, task);
  tt_tuner_query(comm->tuning->tuner, &a->question, &answer);
  tt_choice c = a->own;
  if (answer.algo >= 0 && (answer.algo != a->question.algo || answer.proto != a->question.proto)) {
    c = (tt_choice){.algo = tuner_row_of(answer.algo), .proto = proto_of(answer.proto)};
    TT_TRY(tt_tuning_take(comm, func, bytes, &c));
  }
  if (answer.channels > 0) {
    int most = tt_algorithm_channels(&tt_algorithms(NULL)[c.algo], comm->layout);
    c.channels = TT_CLAMP(answer.channels, 1, TT_MAX(most, 1));
  }
  query_chunk(comm, func, &a->question, &answer, &c);
  c.decided =
      c.algo != a->own.algo || c.proto != a->own.proto || c.channels != a->own.channels || c.chunk != a->own.chunk;
  tuner_log_choice(comm, func, bytes, &c);
  *out = c;
  return ncclSuccess;
}

ncclResult_t tt_tuning_choose_task(struct ncclComm *comm, const tt_task *task, size_t ops, tt_choice *out)
{
  if (!comm->tuned || comm->nranks == 1 || (unsigned)task->func >= NCCL_NUM_FUNCTIONS) {
    bool in_network = tt_comm_collnet_allows(comm, task->func, task->type, tt_kind_opcode(task->kind));
    return tt_tuning_choose(comm, task->func, tt_task_bytes(task), task->root, in_network, out);
  }
  return tuner_query(comm, task, ops, out);
}
