// event.c: see event.h.
#include "device/host/event.h"

#include "base/result.h"
#include "os/clock.h"

// A record or a wait in a queue. A record outlives its place in the queue while it is the event's newest or somebody waits for it.
typedef struct tt_event_entry {
  tt_work work;
  _Atomic uint32_t refs;
  _Atomic bool reached; // of a record (release)
  tt_event *event;
  uint64_t number;           // of a record
  struct tt_event_entry *on; // of a wait: the record, NULL when there was none
} entry;

static void entry_drop(entry *n)
{
  if (n != NULL && atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) == 1) {
    tt_free(n);
  }
}

ncclResult_t tt_event_create(tt_event **out)
{
  tt_event *e = tt_calloc(1, sizeof *e);
  if (e == NULL) {
    return tt_fail(ncclSystemError, "no memory for an event");
  }
  atomic_store_explicit(&e->refs, 1, memory_order_relaxed);
  pthread_mutex_init(&e->lock, NULL);
  *out = e;
  return ncclSuccess;
}

void tt_event_destroy(tt_event *e)
{
  if (e != NULL && atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1) {
    entry_drop(e->newest);
    pthread_mutex_destroy(&e->lock);
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
  entry_drop(n->on);
  entry_drop(n);
}

static tt_run run_record(tt_work *w, size_t *budget, ncclResult_t *result)
{
  entry *n = (entry *)w;
  tt_event *e = n->event;
  (void)budget, (void)result;
  if (atomic_load_explicit(&e->recorded, memory_order_relaxed) == n->number) { // the time of the newest record counts
    atomic_store_explicit(&e->time, tt_now_ns(), memory_order_relaxed);
  }
  uint64_t seen = atomic_load_explicit(&e->reached, memory_order_relaxed);
  while (seen < n->number &&
         !atomic_compare_exchange_weak_explicit(&e->reached, &seen, n->number, memory_order_release, memory_order_relaxed)) {
  }
  atomic_store_explicit(&n->reached, true, memory_order_release);
  return TT_RUN_DONE;
}

static tt_run run_wait(tt_work *w, size_t *budget, ncclResult_t *result)
{
  const entry *n = (const entry *)w;
  (void)budget, (void)result;
  return n->on == NULL || atomic_load_explicit(&n->on->reached, memory_order_acquire) ? TT_RUN_DONE : TT_RUN_BLOCKED;
}

static const tt_work_ops record_ops = {.name = "event record", .run = run_record, .done = entry_done};
static const tt_work_ops wait_ops = {.name = "event wait", .run = run_wait, .done = entry_done};

static entry *make(tt_event *e, const tt_work_ops *ops)
{
  entry *n = tt_calloc(1, sizeof *n);
  if (n == NULL) {
    return NULL;
  }
  atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
  *n = (entry){.work = {.ops = ops}, .refs = 1, .event = e};
  return n;
}

tt_work *tt_event_record_work(tt_event *e)
{
  entry *n = make(e, &record_ops);
  if (n == NULL) {
    return NULL;
  }
  atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed); // the event's
  pthread_mutex_lock(&e->lock);
  entry *before = e->newest;
  e->newest = n;
  n->number = atomic_fetch_add_explicit(&e->recorded, 1, memory_order_acq_rel) + 1;
  pthread_mutex_unlock(&e->lock);
  entry_drop(before);
  return &n->work;
}

tt_work *tt_event_wait_work(tt_event *e)
{
  entry *n = make(e, &wait_ops);
  if (n == NULL) {
    return NULL;
  }
  pthread_mutex_lock(&e->lock);
  n->on = e->newest;
  if (n->on != NULL) {
    atomic_fetch_add_explicit(&n->on->refs, 1, memory_order_relaxed);
  }
  pthread_mutex_unlock(&e->lock);
  return &n->work;
}
