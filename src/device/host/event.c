// event.c: see event.h.
#include "device/host/event.h"

#include "base/result.h"
#include "os/clock.h"

typedef struct entry {
  tt_work work;
  tt_event *event;
  uint64_t number;
} entry;

ncclResult_t tt_event_create(tt_event **out)
{
  tt_event *e = tt_calloc(1, sizeof *e);
  if (e == NULL) {
    return tt_fail(ncclSystemError, "no memory for an event");
  }
  atomic_store_explicit(&e->refs, 1, memory_order_relaxed);
  *out = e;
  return ncclSuccess;
}

void tt_event_destroy(tt_event *e)
{
  if (e != NULL && atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1) {
    tt_free(e);
  }
}

bool tt_event_complete(const tt_event *e)
{
  return atomic_load_explicit(&e->reached, memory_order_acquire) >= atomic_load_explicit(&e->recorded, memory_order_acquire);
}

static void entry_done(tt_work *w)
{
  entry *n = (entry *)w;
  tt_event_destroy(n->event);
  tt_free(n);
}

static tt_run run_record(tt_work *w, size_t *budget, ncclResult_t *result)
{
  entry *n = (entry *)w;
  (void)budget, (void)result;
  atomic_store_explicit(&n->event->time, tt_now_ns(), memory_order_relaxed);
  uint64_t seen = atomic_load_explicit(&n->event->reached, memory_order_relaxed);
  while (seen < n->number && !atomic_compare_exchange_weak_explicit(&n->event->reached, &seen, n->number, memory_order_release, memory_order_relaxed)) {
  }
  return TT_RUN_DONE;
}

static tt_run run_wait(tt_work *w, size_t *budget, ncclResult_t *result)
{
  const entry *n = (const entry *)w;
  (void)budget, (void)result;
  return atomic_load_explicit(&n->event->reached, memory_order_acquire) >= n->number ? TT_RUN_DONE : TT_RUN_BLOCKED;
}

static const tt_work_ops record_ops = {.name = "event record", .run = run_record, .done = entry_done};
static const tt_work_ops wait_ops = {.name = "event wait", .run = run_wait, .done = entry_done};

static tt_work *make(tt_event *e, const tt_work_ops *ops, uint64_t number)
{
  entry *n = tt_calloc(1, sizeof *n);
  if (n == NULL) {
    return NULL;
  }
  atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
  *n = (entry){.work = {.ops = ops}, .event = e, .number = number};
  return &n->work;
}

tt_work *tt_event_record_work(tt_event *e)
{
  tt_work *w = make(e, &record_ops, 0);
  if (w != NULL) {
    ((entry *)w)->number = atomic_fetch_add_explicit(&e->recorded, 1, memory_order_acq_rel) + 1;
  }
  return w;
}

tt_work *tt_event_wait_work(tt_event *e)
{
  return make(e, &wait_ops, atomic_load_explicit(&e->recorded, memory_order_acquire));
}
