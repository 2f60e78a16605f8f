// event.c: see event.h.
#include "device/host/event.h"

#include "base/result.h"
#include "os/clock.h"

// A record or a wait in a queue. A record outlives its place in the queue while it is the event's newest or somebody
// waits for it.
typedef struct tt_event_entry {
  tt_work work;
  _Atomic uint32_t refs;
  _Atomic bool reached; // of a record (release)
  tt_event *event;
  uint64_t number;           // of a record; of a wait for a shared event: the count it is for
  struct tt_event_entry *on; // of a wait: the record, NULL when there was none
  bool lost;                 // of a wait for a shared event: what it is for will not come
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

ncclResult_t tt_event_create_shared(const tuttiIpcEventHandle_t *handle, tt_event **out)
{
  tt_event *e;
  TT_TRY(tt_event_create(&e));
  ncclResult_t res = handle == NULL ? tt_ipc_slot_new(&e->slot) : tt_ipc_slot_open(handle, &e->slot, &e->generation);
  if (res != ncclSuccess) {
    e->slot = NULL;
    tt_event_destroy(e);
    return res;
  }
  if (handle == NULL) {
    e->generation = atomic_load(&e->slot->generation);
  }
  e->imported = handle != NULL;
  *out = e;
  return ncclSuccess;
}

void tt_event_destroy(tt_event *e)
{
  if (e != NULL && atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1) {
    if (e->slot != NULL && !e->imported) {
      tt_ipc_slot_free(e->slot);
    }
    entry_drop(e->newest);
    tt_mark_free(e->mark);
    pthread_mutex_destroy(&e->lock);
    tt_free(e);
  }
}

// Which counters hold the event's state.
static _Atomic uint64_t *recorded_of(const tt_event *e)
{
  return e->slot != NULL ? &e->slot->recorded : (_Atomic uint64_t *)&e->recorded;
}

static _Atomic uint64_t *reached_of(const tt_event *e)
{
  return e->slot != NULL ? &e->slot->reached : (_Atomic uint64_t *)&e->reached;
}

bool tt_event_recorded(const tt_event *e)
{
  return atomic_load(recorded_of(e)) != 0;
}

uint64_t tt_event_time(const tt_event *e)
{
  return atomic_load_explicit(&e->time, memory_order_relaxed);
}

ncclResult_t tt_event_check(const tt_event *e)
{
  const tt_event_slot *s = e->slot;
  if (s == NULL) {
    return ncclSuccess;
  }
  if (atomic_load(&s->generation) != e->generation) {
    return tt_fail(ncclRemoteError, "an event of another process was destroyed there while this process still uses it");
  }
  if (tt_event_complete(e)) {
    return ncclSuccess;
  }
  tt_proc_id who = {.pid = atomic_load(&s->pid), .start = atomic_load(&s->start)};
  if (who.pid != 0 && !tt_proc_alive(&who) && !tt_event_complete(e)) {
    return tt_fail(ncclRemoteError, "process %d recorded a shared event and ended before the record was reached",
                   who.pid);
  }
  return ncclSuccess;
}

bool tt_event_complete(const tt_event *e)
{
  if (TT_UNLIKELY(e->slot != NULL)) {
    return atomic_load_explicit(&e->slot->reached, memory_order_acquire) >=
           atomic_load_explicit(&e->slot->recorded, memory_order_acquire);
  }
  return atomic_load_explicit(&e->reached, memory_order_acquire) >=
         atomic_load_explicit(&e->recorded, memory_order_acquire);
}

bool tt_event_reached(void *e)
{
  return tt_event_complete(e);
}

static void event_entry_done(tt_work *w)
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
  _Atomic uint64_t *reached = reached_of(e);
  if (atomic_load_explicit(recorded_of(e), memory_order_relaxed) == n->number) { // the time of the newest record counts
    atomic_store_explicit(&e->time, tt_now_ns(), memory_order_relaxed);
  }
  uint64_t seen = atomic_load_explicit(reached, memory_order_relaxed);
  while (seen < n->number && !atomic_compare_exchange_weak_explicit(reached, &seen, n->number, memory_order_release,
                                                                    memory_order_relaxed)) {
  }
  atomic_store_explicit(&n->reached, true, memory_order_release);
  if (e->slot != NULL) {
    tt_bell_fence();
    tt_bell_ring(&e->slot->bell);
  }
  return TT_RUN_DONE;
}

static tt_run run_shared_wait(tt_work *w, size_t *budget, ncclResult_t *result)
{
  const entry *n = (const entry *)w;
  (void)budget;
  if (atomic_load_explicit(&n->event->slot->reached, memory_order_acquire) >= n->number) {
    return TT_RUN_DONE;
  }
  *result = ncclRemoteError;
  return n->lost ? TT_RUN_FAILED : TT_RUN_BLOCKED;
}

static tt_bell *shared_bell(tt_work *w)
{
  return &((entry *)w)->event->slot->bell;
}

static void check_shared_wait(tt_work *w)
{
  entry *n = (entry *)w;
  n->lost = n->lost || tt_event_check(n->event) != ncclSuccess;
}

static tt_run event_run_wait(tt_work *w, size_t *budget, ncclResult_t *result)
{
  const entry *n = (const entry *)w;
  (void)budget, (void)result;
  return n->on == NULL || atomic_load_explicit(&n->on->reached, memory_order_acquire) ? TT_RUN_DONE : TT_RUN_BLOCKED;
}

static const tt_work_ops record_ops = {.name = "event record", .run = run_record, .done = event_entry_done};
static const tt_work_ops wait_ops = {.name = "event wait", .run = event_run_wait, .done = event_entry_done};
static const tt_work_ops shared_wait_ops = {.name = "shared event wait",
                                            .run = run_shared_wait,
                                            .done = event_entry_done,
                                            .bell = shared_bell,
                                            .check = check_shared_wait};

static entry *event_entry_new(tt_event *e, const tt_work_ops *ops)
{
  entry *n = tt_calloc(1, sizeof *n);
  if (n == NULL) {
    return NULL;
  }
  atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
  *n = (entry){.work = {.ops = ops}, .refs = 1, .event = e};
  return n;
}

void tt_event_mark(tt_event *e, tt_mark *mark)
{
  pthread_mutex_lock(&e->lock);
  tt_mark *before = atomic_exchange_explicit(&e->mark, mark, memory_order_relaxed);
  pthread_mutex_unlock(&e->lock);
  tt_mark_free(before);
}

tt_work *tt_event_record_work(tt_event *e)
{
  if (tt_event_captured(e)) {
    tt_event_mark(e, NULL);
  }
  entry *n = event_entry_new(e, &record_ops);
  if (n == NULL) {
    return NULL;
  }
  atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed); // the event's
  pthread_mutex_lock(&e->lock);
  entry *before = e->newest;
  e->newest = n;
  if (e->slot != NULL) { // before the count: a process that sees the count may look whether this process lives
    tt_proc_id me = tt_proc_self();
    atomic_store(&e->slot->start, me.start);
    atomic_store(&e->slot->pid, me.pid);
  }
  n->number = atomic_fetch_add_explicit(recorded_of(e), 1, memory_order_acq_rel) + 1;
  pthread_mutex_unlock(&e->lock);
  entry_drop(before);
  return &n->work;
}

tt_work *tt_event_wait_work(tt_event *e)
{
  entry *n = event_entry_new(e, e->slot != NULL ? &shared_wait_ops : &wait_ops);
  if (n == NULL) {
    return NULL;
  }
  if (e->slot != NULL) {
    n->number = atomic_load_explicit(&e->slot->recorded, memory_order_acquire);
    return &n->work;
  }
  pthread_mutex_lock(&e->lock);
  n->on = e->newest;
  if (n->on != NULL) {
    atomic_fetch_add_explicit(&n->on->refs, 1, memory_order_relaxed);
  }
  pthread_mutex_unlock(&e->lock);
  return &n->work;
}
