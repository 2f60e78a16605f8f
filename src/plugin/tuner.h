// tuner.h: tuner plugins of any version behind one form. An instance belongs to one communicator of one rank.
//
// What the plugin is given and may answer is said in include/nccl/tuner.h. Answers are checked: what cannot be had
// stays out, and what makes no sense is dropped and told once, by name.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl/tuner.h"
#include "plugin/loader.h"

typedef struct tt_tuner tt_tuner;

// The communicator.
typedef struct tt_tuner_world {
  uint64_t comm_id;
  size_t nranks, nnodes;
  int min_local, max_local; // ranks of a node
} tt_tuner_world;

// Predicted microseconds by NCCL's numbers (rows from NCCL_NUM_ALGORITHMS on: Tutti's); NCCL_ALGO_PROTO_IGNORE: cannot
// be had.
typedef float tt_tuner_costs[TUTTI_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS];

typedef struct tt_tuner_question {
  ncclFunc_t func;
  size_t bytes; // of the larger buffer
  int ops;      // collectives of the group that share a channel
  bool registered;
  bool in_network; // the network may reduce it
  int algo, proto; // what is chosen without the plugin, by NCCL's numbers; -1: that has no number that the plugin knows
  tt_tuner_costs costs;
} tt_tuner_question;

typedef struct tt_tuner_answer {
  int algo, proto; // NCCL's numbers; -1: the plugin leaves the choice to the library
  int channels;    // 0: leaves it to the library
} tt_tuner_answer;

// Takes a plugin that was opened (tt_plugin_open) for a communicator and calls its init, with which it may change
// `constants`. *out NULL: it is of no use, and the log says why; the plugin is closed then. Else the tuner owns it.
// Errors: ncclSystemError (no memory). Any thread.
ncclResult_t tt_tuner_create(tt_plugin *plugin, const tt_tuner_world *world, ncclTunerConstants_v5_t *constants,
                             tt_tuner **out);

// Calls the plugin's finalize and closes it. NULL is allowed. Any thread.
void tt_tuner_destroy(tt_tuner *t);

// Asks for one operation; q->costs come back as they were. The launching thread.
//
// The least cost wins, as in NCCL, the first of equals. But where what the library would do is not in the table, an
// entry counts only if the plugin has touched it: a plugin that changes nothing, or only says what it does not want,
// leaves that choice alone.
void tt_tuner_query(tt_tuner *t, tt_tuner_question *q, tt_tuner_answer *out);

// Asks for the size of chunks, in bytes, after a choice by NCCL's numbers; *chunk stays as it was where the plugin has
// no opinion. Is the result absurd (0)? Then too.
void tt_tuner_chunk(tt_tuner *t, const tt_tuner_question *q, const tt_tuner_answer *choice, size_t *chunk);

// "Example (v6)"; valid as long as the tuner. What is equal on ranks that have the same plugin. Rows of the table that
// it is given.
const char *tt_tuner_name(const tt_tuner *t);
uint64_t tt_tuner_identity(const tt_tuner *t);
int tt_tuner_rows(const tt_tuner *t);
