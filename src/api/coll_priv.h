// coll_priv.h: what the collectives (coll.c) and those with settings of one call (coll_config.c) share.
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
  name.kind = tt_task_kind((f), datatype, (with), (at))

// Settings of one call, as ncclCollConfig_t has them.
typedef struct tt_coll_settings {
  tt_call_wish wish;
  uint64_t user_tag;
  cudaEvent_t launched; // NULL: none
} tt_coll_settings;

// Checks the task and queues it, or adds it to the open group. The error is the group's too.
ncclResult_t tt_coll_enqueue(const char *what, tt_task *t);
// The same with settings: the checks of the arguments come first, those of the settings follow.
ncclResult_t tt_coll_enqueue_config(const char *what, tt_task *t, const tt_coll_settings *settings);
