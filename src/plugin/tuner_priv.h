// tuner_priv.h: what an adapter of one version of the interface does. `table` is the plugin's, of that version.
#pragma once
#include "plugin/tuner.h"

typedef struct tt_tuner_version {
  const tt_plugin_member *members; // without which it is of no use
  size_t nmembers;
  ncclResult_t (*init)(const void *table, const tt_tuner_world *world, ncclTunerConstants_v5_t *constants,
                       void **context);
  // Changes `costs` (q->costs is what it was) and *channels.
  ncclResult_t (*query)(const void *table, void *context, const tt_tuner_question *q, tt_tuner_costs costs, int rows,
                        int *channels);
  // NULL, or false: the plugin has nothing to say about chunks.
  bool (*chunk)(const void *table, void *context, const tt_tuner_question *q, const tt_tuner_answer *choice,
                size_t *chunk);
  ncclResult_t (*end)(const void *table, void *context);
} tt_tuner_version;

// NULL: not known.
const tt_tuner_version *tt_tuner_version_find(int version);
