#include "plugin/tuner.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "base/util.h"
#include "plugin/tuner_priv.h"

// What a plugin does wrong is told once each.
enum { SAID_ERROR = 1, SAID_IGNORED = 2, SAID_SENSELESS = 4, SAID_NOTHING = 8, SAID_CHUNK = 16, SAID_CHANNELS = 32 };

struct tt_tuner {
  tt_plugin *plugin;
  const tt_tuner_version *version;
  const void *table;
  void *context;
  int rows;
  unsigned said;
  char name[80];
};

// Should the complaint `bit` be made? The first time only.
static bool first(tt_tuner *t, unsigned bit)
{
  bool fresh = (t->said & bit) == 0;
  t->said |= bit;
  return fresh;
}

// Plugins that know our rows say so.
static int rows_of(const tt_plugin *plugin)
{
  const int *rows = tt_plugin_symbol(plugin, TUTTI_TUNER_ROWS_SYMBOL);
  return rows != NULL && *rows >= TUTTI_NUM_ALGORITHMS ? TUTTI_NUM_ALGORITHMS : NCCL_NUM_ALGORITHMS;
}

ncclResult_t tt_tuner_create(tt_plugin *plugin, const tt_tuner_world *world, ncclTunerConstants_v5_t *constants,
                             tt_tuner **out)
{
  const tt_tuner_version *v = tt_tuner_version_find(tt_plugin_version(plugin));
  *out = NULL;
  if (v == NULL || !tt_plugin_complete(TT_PLUGIN_TUNER, plugin, v->members, v->nmembers)) {
    tt_plugin_close(plugin);
    return ncclSuccess;
  }
  tt_tuner *t = tt_calloc(1, sizeof *t);
  if (t == NULL) {
    tt_plugin_close(plugin);
    return tt_fail(ncclSystemError, "no memory for a tuner plugin");
  }
  *t = (tt_tuner){.plugin = plugin, .version = v, .table = tt_plugin_table(plugin), .rows = rows_of(plugin)};
  const char *name = *(const char *const *)t->table; // the first member of every version
  snprintf(t->name, sizeof t->name, "%.64s (v%d)", name != NULL ? name : "without a name", tt_plugin_version(plugin));
  ncclTunerConstants_v5_t changed = *constants;
  ncclResult_t res = v->init(t->table, world, &changed, &t->context);
  if (res != ncclSuccess) {
    tt_info(TT_INIT | TT_TUNING, "TUNER/Plugin: %s is not used: init of %s returned %d (%s)", tt_plugin_path(plugin),
            t->name, (int)res, tt_result_string(res));
    tt_plugin_close(plugin);
    tt_free(t);
    return ncclSuccess;
  }
  *constants = changed;
  *out = t;
  return ncclSuccess;
}

void tt_tuner_destroy(tt_tuner *t)
{
  if (t == NULL) {
    return;
  }
  ncclResult_t res = t->version->end(t->table, t->context);
  if (res != ncclSuccess) {
    tt_info(TT_INIT | TT_TUNING, "TUNER/Plugin: the end of %s returned %d (%s)", t->name, (int)res,
            tt_result_string(res));
  }
  tt_plugin_close(t->plugin);
  tt_free(t);
}

// Not-a-number and negative numbers but the one that means "not to be had".
static bool senseless(float us)
{
  return !(us >= 0) && us != (float)NCCL_ALGO_PROTO_IGNORE;
}

// Puts back what the plugin must not touch. Returns whether it has changed anything else.
static bool clean(tt_tuner *t, const tt_tuner_question *q, tt_tuner_costs costs)
{
  bool changed = false;
  for (int i = 0; i < t->rows * NCCL_NUM_PROTOCOLS; i++) {
    float *now = &costs[i / NCCL_NUM_PROTOCOLS][i % NCCL_NUM_PROTOCOLS];
    float before = q->costs[i / NCCL_NUM_PROTOCOLS][i % NCCL_NUM_PROTOCOLS];
    bool out = before == (float)NCCL_ALGO_PROTO_IGNORE && *now != before;
    if (out && first(t, SAID_IGNORED)) {
      tt_info(
          TT_TUNING,
          "TUNER/Plugin: %s gives algorithm %d protocol %d, which cannot be had here, a cost; such costs are ignored",
          t->name, i / NCCL_NUM_PROTOCOLS, i % NCCL_NUM_PROTOCOLS);
    }
    if (!out && senseless(*now) && first(t, SAID_SENSELESS)) {
      tt_info(TT_TUNING, "TUNER/Plugin: %s gives algorithm %d protocol %d the cost %g; such costs are ignored", t->name,
              i / NCCL_NUM_PROTOCOLS, i % NCCL_NUM_PROTOCOLS, (double)*now);
    }
    *now = out || senseless(*now) ? before : *now;
    changed |= *now != before;
  }
  return changed;
}

// The least cost; false: all entries are out.
static bool cheapest(const tt_tuner *t, tt_tuner_costs costs, tt_tuner_answer *out)
{
  float least = 0;
  bool found = false;
  for (int a = 0; a < t->rows; a++) {
    for (int p = 0; p < NCCL_NUM_PROTOCOLS; p++) {
      if (costs[a][p] >= 0 && (!found || costs[a][p] < least)) {
        found = true;
        least = costs[a][p];
        out->algo = a;
        out->proto = p;
      }
    }
  }
  return found;
}

static void tuner_keep(tt_tuner_answer *out)
{
  out->algo = out->proto = -1;
}

void tt_tuner_query(tt_tuner *t, tt_tuner_question *q, tt_tuner_answer *out)
{
  tt_tuner_costs costs;
  int channels = 0;
  memcpy(costs, q->costs, sizeof costs);
  *out = (tt_tuner_answer){.algo = -1, .proto = -1};
  ncclResult_t res = t->version->query(t->table, t->context, q, costs, t->rows, &channels);
  if (res != ncclSuccess) {
    if (first(t, SAID_ERROR)) {
      tt_info(TT_TUNING, "TUNER/Plugin: %s returned %d (%s) for function %d of %zu bytes; the library chooses", t->name,
              (int)res, tt_result_string(res), (int)q->func, q->bytes);
    }
    return;
  }
  if (channels < 0 && first(t, SAID_CHANNELS)) {
    tt_info(TT_TUNING, "TUNER/Plugin: %s asks for %d channels; the library chooses", t->name, channels);
  }
  out->channels = TT_MAX(channels, 0);
  if (!clean(t, q, costs)) {
    return;
  }
  if (!cheapest(t, costs, out)) {
    tuner_keep(out);
    if (first(t, SAID_NOTHING)) {
      tt_info(TT_TUNING, "TUNER/Plugin: %s leaves nothing for function %d of %zu bytes; the library chooses", t->name,
              (int)q->func, q->bytes);
    }
  } else if (q->algo < 0 && costs[out->algo][out->proto] == q->costs[out->algo][out->proto]) {
    tuner_keep(out);
  }
}

void tt_tuner_chunk(tt_tuner *t, const tt_tuner_question *q, const tt_tuner_answer *choice, size_t *chunk)
{
  size_t size = *chunk;
  if (t->version->chunk == NULL || choice->algo < 0 || choice->algo >= t->rows ||
      !t->version->chunk(t->table, t->context, q, choice, &size)) {
    return;
  }
  if (size > 0) {
    *chunk = size;
  } else if (first(t, SAID_CHUNK)) {
    tt_info(TT_TUNING, "TUNER/Plugin: %s asks for chunks of 0 bytes; the library chooses", t->name);
  }
}

const char *tt_tuner_name(const tt_tuner *t)
{
  return t->name;
}

uint64_t tt_tuner_identity(const tt_tuner *t)
{
  return tt_hash(t->name, strlen(t->name), 11) | 1;
}

int tt_tuner_rows(const tt_tuner *t)
{
  return t->rows;
}
