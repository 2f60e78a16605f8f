// work.h: entries of a stream's queue.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/bell.h"
#include "tutti.h"

typedef enum {
  TT_RUN_DONE,    // complete
  TT_RUN_BLOCKED, // must wait; its bell will be rung
  TT_RUN_MORE,    // could go on; the budget is used up
  TT_RUN_FAILED,  // complete, with an error
} tt_run;

typedef struct tt_work tt_work;

// What kind of work it is.
typedef struct tt_work_ops {
  const char *name;
  // Goes on with the work; never blocks. Called by one thread at a time. *budget: bytes it may still move, decreased.
  // *result: the error of TT_RUN_FAILED.
  tt_run (*run)(tt_work *w, size_t *budget, ncclResult_t *result);
  // Called once after the last run, by the thread that ran it; frees or recycles `w`.
  void (*done)(tt_work *w);
  // The bell that is rung when a blocked `w` may go on, and when it is complete. NULL: the process's bell.
  tt_bell *(*bell)(tt_work *w);
  // Called now and then while `w` is blocked: looks whether what it waits for can still come. May be NULL.
  void (*check)(tt_work *w);
  // Called now and then, by the run flag's holder, while `w` stands in a queue behind `current`, which is not complete.
  // May be NULL.
  void (*behind)(tt_work *w, const tt_work *current);
  // For what a graph can hold (host/graph.h): the kind of its node, and a new entry for a stream of `device` that does
  // the same as `w`, which has never run; NULL when there is no memory. `again` NULL: a graph cannot hold it.
  tuttiNodeKind_t kind;
  tt_work *(*again)(const tt_work *w, int device);
} tt_work_ops;

struct tt_work {
  const tt_work_ops *ops;
  tt_work *next;     // the queue's
  uint32_t takes_us; // about how long others may be at it while it is blocked: a waiter looks that much longer before
                     // it sleeps
};

// `current` is not complete (NULL: there is none): tells the entries of the queue behind it. The run flag's holder.
static inline void tt_work_wait(tt_work *queue, const tt_work *current)
{
  for (tt_work *w = current != NULL ? queue : NULL; w != NULL; w = w->next) {
    if (w->ops->behind != NULL) {
      w->ops->behind(w, current);
    }
  }
}
