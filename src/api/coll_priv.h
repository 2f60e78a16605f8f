// coll_priv.h: what the collectives (coll.c), those with settings of one call (coll_config.c), and those whose blocks
// have lengths of their own (coll_v.c) share.
#pragma once
#include "comm/options.h"
#include "comm/task.h"

// A task of these arguments. Member by member: an initialiser would clear the whole task first. What is no argument is
// enqueue's.
#define TASK(name, f, src, dst, n, with, at) \
  tt_task name;                              \
  name.func = (f);                           \
  name.in = (src);                           \
  name.out = (dst);                          \
  name.count = (n);                          \
  name.type = datatype;                      \
  name.op = (with);                          \
  name.root = (at);                          \
  name.comm = comm;                          \
  name.stream = stream;                      \
  name.blocks = NULL;                        \
  name.kind = tt_task_kind((f), datatype, (with), (at))

// Settings of one call, as ncclCollConfig_t has them.
typedef struct tt_coll_settings {
  tt_call_wish wish;
  uint64_t user_tag;
  cudaEvent_t launched; // NULL: none
} tt_coll_settings;

// Fills in what is no argument of the call.
static inline void tt_coll_begin(tt_task *t)
{
  t->events = NULL;
  t->user_tag = 0;
  t->place = 0;
  t->state = (tt_program_state){.steps = {0}};
  t->begun = t->over = false;
  t->decision = NULL;
}

// Checks communicator, type, root, count, operation and buffers of a call; finds what a user-defined operation scales
// with. Errors: ncclInvalidArgument and those of tt_comm_check, with `what` for the function's name.
ncclResult_t tt_coll_check(tt_task *t, const char *what);
// Checks the task and queues it, or adds it to the open group. The error is the group's too.
ncclResult_t tt_coll_enqueue(const char *what, tt_task *t);
// The same with settings: the checks of the arguments come first, those of the settings follow.
ncclResult_t tt_coll_enqueue_config(const char *what, tt_task *t, const tt_coll_settings *settings);
