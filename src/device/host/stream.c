// stream.c: see stream.h. Queue, run flag, pool of streams, special streams.
#include "device/host/stream.h"

#include <pthread.h>

#include "base/result.h"
#include "base/spans.h"
#include "device/host/busy.h"
#include "device/host/capture.h"
#include "device/host/device.h"
#include "os/clock.h"
#include "os/library.h"
#include "os/proc.h"

#define FIRST_RUN_BYTES (32u << 10) // what a launch may do on the caller's time
#define FIRST_CHUNK 64              // streams
#define CHUNKS 13                   // each twice as large as the one before: half a million streams

// All streams ever made, in chunks that never move. `lock` guards them and the list of free ones; `count` and
// `first_bytes` grow under it (release) and are read without (acquire).
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_stream *table[CHUNKS];
static tt_stream *free_streams;
static _Atomic int count;
static _Atomic uintptr_t first_bytes; // of the first chunk; 0: it is not there yet

tt_bell tt_process_bell;

// Default streams: one legacy stream per device, one per-thread stream per thread and device.
typedef struct defaults {
  tt_span device; // its number
  tt_stream *stream;
} defaults;
static tt_span *legacy;          // under `lock`; only grows
static pthread_key_t thread_key; // set of the thread's own default streams
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static void recycle_if_idle(tt_stream *s)
{
  pthread_mutex_lock(&lock);
  if (s->state == TT_STREAM_DESTROYED && tt_stream_idle(s)) {
    s->state = TT_STREAM_FREE;
    s->next_free = free_streams;
    free_streams = s;
  }
  pthread_mutex_unlock(&lock);
}

static inline int chunk_room(int chunk)
{
  return FIRST_CHUNK << chunk;
}

// A stream that was never used. Caller holds `lock`.
static tt_stream *stream_new(void)
{
  int n = atomic_load_explicit(&count, memory_order_relaxed), chunk = 0, before = 0;
  while (chunk < CHUNKS && n - before >= chunk_room(chunk)) {
    before += chunk_room(chunk++);
  }
  if (chunk == CHUNKS) {
    return NULL;
  }
  if (n == before) {
    table[chunk] = tt_calloc_line((size_t)chunk_room(chunk) * sizeof(tt_stream));
    if (table[chunk] == NULL) {
      return NULL;
    }
  }
  atomic_store_explicit(&first_bytes, FIRST_CHUNK * sizeof(tt_stream), memory_order_release);
  atomic_store_explicit(&count, n + 1, memory_order_release);
  return &table[chunk][n - before];
}

// Caller holds `lock`.
static tt_stream *find_free(void)
{
  tt_stream *s = free_streams;
  if (s == NULL) {
    return stream_new();
  }
  free_streams = s->next_free;
  return s;
}

// A device's stream in a set of default streams, or NULL.
static tt_stream *default_of(tt_span *set, int device)
{
  tt_span *found = tt_spans_same(set, (uintptr_t)device, 1);
  return found == NULL ? NULL : TT_SPAN_OWNER(found, defaults, device)->stream;
}

// Caller holds `lock`.
static tt_stream *stream_take(int device, tt_stream *with)
{
  tt_stream *s = find_free();
  if (s != NULL) {
    s->state = TT_STREAM_LIVE;
    s->device = device;
    s->legacy = with;
    s->is_legacy = false;
    s->member = NULL;
    s->queue_end = &s->queue;
    atomic_store_explicit(&s->error, 0, memory_order_relaxed);
    tt_free(atomic_exchange(&s->why, NULL));
  }
  return s;
}

// The device's legacy default stream, made when first asked for. Caller holds `lock`.
static tt_stream *legacy_get(int device)
{
  tt_stream *s = default_of(legacy, device);
  if (s != NULL) {
    return s;
  }
  defaults *d = tt_calloc(1, sizeof *d);
  s = d == NULL ? NULL : stream_take(device, NULL);
  if (s == NULL) {
    tt_free(d);
    return NULL;
  }
  s->is_legacy = true;
  *d = (defaults){.device = {.start = (uintptr_t)device, .size = 1}, .stream = s};
  tt_spans_add(&legacy, &d->device);
  return s;
}

ncclResult_t tt_stream_create(int device, bool blocking, tt_stream **out)
{
  pthread_mutex_lock(&lock);
  tt_stream *with = blocking ? legacy_get(device) : NULL;
  tt_stream *s = blocking && with == NULL ? NULL : stream_take(device, with);
  pthread_mutex_unlock(&lock);
  if (s == NULL) {
    return tt_fail(ncclSystemError, "no memory for a stream on device %d (%d streams are in use)", device,
                   atomic_load(&count));
  }
  *out = s;
  return ncclSuccess;
}

void tt_stream_destroy(tt_stream *s)
{
  if (tt_stream_captures(s)) {
    tt_capture_abandon(s);
  }
  pthread_mutex_lock(&lock);
  s->state = TT_STREAM_DESTROYED;
  pthread_mutex_unlock(&lock);
  recycle_if_idle(s);
}

static void thread_exit(void *set)
{
  for (tt_span *rest = set; rest != NULL;) {
    defaults *d = TT_SPAN_OWNER(rest, defaults, device);
    tt_spans_remove(&rest, rest);
    tt_stream_destroy(d->stream);
    tt_free(d);
  }
}

static void thread_start(void)
{
  tt_library_stay(); // threads of the application call thread_exit when they end
  pthread_key_create(&thread_key, thread_exit);
}

// The calling thread's default stream of a device.
static ncclResult_t per_thread(int device, tt_stream **out)
{
  pthread_once(&thread_once, thread_start);
  tt_span *own = pthread_getspecific(thread_key);
  tt_stream *s = default_of(own, device);
  if (s != NULL) {
    *out = s;
    return ncclSuccess;
  }
  defaults *d = tt_calloc(1, sizeof *d);
  if (d == NULL) {
    return tt_fail(ncclSystemError, "no memory for the thread's default stream of device %d", device);
  }
  ncclResult_t res = tt_stream_create(device, true, &d->stream);
  if (res != ncclSuccess) {
    tt_free(d);
    return res;
  }
  d->device = (tt_span){.start = (uintptr_t)device, .size = 1};
  tt_spans_add(&own, &d->device);
  pthread_setspecific(thread_key, own);
  *out = d->stream;
  return ncclSuccess;
}

// The same beyond the first chunk.
static __attribute__((noinline)) int state_beyond(const tt_stream *s)
{
  int n = atomic_load_explicit(&count, memory_order_acquire) - FIRST_CHUNK;
  for (int c = 1; n > 0; n -= chunk_room(c++)) {
    uintptr_t offset = (uintptr_t)s - (uintptr_t)table[c];
    if (offset < (uintptr_t)chunk_room(c) * sizeof *s) {
      return offset % sizeof *s == 0 ? s->state : TT_STREAM_FREE;
    }
  }
  return TT_STREAM_FREE;
}

// The state of this stream, if the pointer is one of ours. Asked several times per call: mostly the first chunk has it.
static inline int stream_state(const tt_stream *s)
{
  uintptr_t bytes = atomic_load_explicit(&first_bytes, memory_order_acquire);
  uintptr_t offset = (uintptr_t)s - (uintptr_t)table[0];
  if (TT_UNLIKELY(offset >= bytes)) {
    return state_beyond(s);
  }
  return TT_LIKELY(offset % sizeof *s == 0) ? s->state : TT_STREAM_FREE;
}

ncclResult_t tt_stream_look(cudaStream_t handle, int device, tt_stream **out)
{
  uintptr_t h = (uintptr_t)handle;
  device = h <= 2 && device == TT_STREAM_CALLERS ? tt_host_device() : device;
  if (h == 2) {
    return per_thread(device, out);
  }
  if (h > 2) {
    tt_stream *s = (tt_stream *)handle;
    int state = stream_state(s);
    if (state != TT_STREAM_LIVE && state != TT_STREAM_CAPTURING) {
      return tt_fail(ncclInvalidArgument,
                     "stream %p is not a stream of the host device: create it with tuttiStreamCreate", (void *)handle);
    }
    *out = s;
    return ncclSuccess;
  }
  pthread_mutex_lock(&lock);
  tt_stream *s = legacy_get(device);
  pthread_mutex_unlock(&lock);
  if (s == NULL) {
    return tt_fail(ncclSystemError, "no memory for the default stream of device %d", device);
  }
  *out = s;
  return ncclSuccess;
}

// The same of a default stream, and of what is no stream or is captured.
static __attribute__((noinline)) ncclResult_t get_unusual(cudaStream_t handle, int device, const char *what,
                                                          tt_stream **out)
{
  tt_stream *s;
  TT_TRY(tt_stream_look(handle, device, &s));
  if (TT_UNLIKELY(tt_stream_captures(s))) {
    return tt_capture_refuse(s, what);
  }
  *out = s;
  return ncclSuccess;
}

ncclResult_t tt_stream_get(cudaStream_t handle, int device, const char *what, tt_stream **out)
{
  tt_stream *s = (tt_stream *)handle;
  if (TT_LIKELY((uintptr_t)handle > 2 && stream_state(s) == TT_STREAM_LIVE)) {
    *out = s;
    return ncclSuccess;
  }
  return get_unusual(handle, device, what, out);
}

static __attribute__((noinline)) tt_stream *find_default(cudaStream_t handle, int device)
{
  tt_stream *s;
  return tt_stream_look(handle, device, &s) == ncclSuccess && s->state == TT_STREAM_LIVE ? s : NULL;
}

static inline __attribute__((always_inline)) tt_stream *find_stream(cudaStream_t handle, int device)
{
  tt_stream *s = (tt_stream *)handle;
  if (TT_UNLIKELY((uintptr_t)handle <= 2)) {
    return find_default(handle, device);
  }
  return stream_state(s) == TT_STREAM_LIVE ? s : NULL;
}

tt_stream *tt_stream_find(cudaStream_t handle, int device)
{
  return find_stream(handle, device);
}

const void *tt_stream_queue(cudaStream_t handle, int device)
{
  const tt_stream *s = find_stream(handle, device);
  return s == NULL || s->is_legacy ? NULL : s;
}

// Moves what has been pushed into the ordered queue. Run flag held.
static void take_incoming(tt_stream *s)
{
  if (atomic_load_explicit(&s->incoming, memory_order_relaxed) == NULL) {
    return;
  }
  tt_work *w = atomic_exchange_explicit(&s->incoming, NULL, memory_order_acquire), *ordered = NULL;
  tt_work *last = w;
  while (w != NULL) { // newest first: reverse
    tt_work *next = w->next;
    w->next = ordered;
    ordered = w;
    w = next;
  }
  if (ordered != NULL) {
    *s->queue_end = ordered;
    s->queue_end = &last->next;
  }
}

// The entry to run next, or NULL. Run flag held.
static tt_work *next_work(tt_stream *s)
{
  if (s->current != NULL) {
    return s->current;
  }
  if (s->queue == NULL) {
    take_incoming(s);
  }
  tt_work *w = s->queue;
  if (w != NULL) {
    s->queue = w->next;
    if (s->queue == NULL) {
      s->queue_end = &s->queue;
    }
    s->current = w;
  }
  return w;
}

// Completes the current entry. Run flag held.
static void stream_finish(tt_stream *s, tt_work *w, ncclResult_t result)
{
  tt_bell *bell = w->ops->bell != NULL ? w->ops->bell(w) : &tt_process_bell;
  if (result != ncclSuccess && atomic_load_explicit(&s->error, memory_order_relaxed) == 0) {
    tt_free(atomic_exchange(&s->why, tt_error_keep()));
    atomic_store_explicit(&s->error, (uint32_t)result, memory_order_release);
  }
  s->current = NULL;
  // Before the entry counts as complete: see tt_bell_retire.
  atomic_store_explicit(&s->bell, NULL, memory_order_release);
  atomic_fetch_sub(&s->pending, 1);
  tt_bell_fence_after_rmw();
  tt_bell_ring(bell);
  w->ops->done(w); // last: until then the owner of the bell keeps it
}

// Says what the blocked current entry waits for. Wakes the threads that fell asleep on the process's bell before there
// was anything to be seen, so that they listen to the right bell.
static void show_bell(tt_stream *s, tt_bell *bell)
{
  if (atomic_load_explicit(&s->bell, memory_order_relaxed) != bell) {
    atomic_store_explicit(&s->bell, bell, memory_order_release);
    tt_bell_fence();
    tt_bell_ring(&tt_process_bell);
  }
}

// Runs entries until one blocks, none is left, or the budget is used up. Run flag held.
static bool run_queue(tt_stream *s, size_t budget)
{
  bool moved = false;
  for (tt_work *w = next_work(s); w != NULL; w = next_work(s)) {
    size_t before = budget;
    ncclResult_t result = ncclSuccess;
    tt_run r = w->ops->run(w, &budget, &result);
    moved |= budget != before;
    if (r == TT_RUN_BLOCKED || r == TT_RUN_MORE) {
      show_bell(s, w->ops->bell != NULL ? w->ops->bell(w) : NULL);
      atomic_store_explicit(&s->takes_us, w->takes_us, memory_order_relaxed);
      break;
    }
    moved = true;
    stream_finish(s, w, r == TT_RUN_FAILED ? result : ncclSuccess);
  }
  return moved;
}

// A thread that asked while the flag was taken may be asleep by now, although the current entry could go on: the budget
// was used up, and this thread may have other things to do. Run flag held, so the entry keeps its bell. No fence: the
// asking thread announced itself before it asked.
static void ring_askers(tt_stream *s)
{
  tt_bell *bell = atomic_load_explicit(&s->bell, memory_order_relaxed);
  tt_bell_ring(bell != NULL ? bell : &tt_process_bell);
}

// Lets the current entry look for its peers. Run flag held.
static void check_current(tt_stream *s)
{
  if (s->current != NULL && s->current->ops->check != NULL) {
    s->current->ops->check(s->current);
  }
  take_incoming(s);
  tt_work_wait(s->queue, s->current);
}

// Gives the run flag back, doing again what others asked for meanwhile.
static bool stream_release_run(tt_stream *s, size_t budget)
{
  bool moved = false;
  int taken = 1;
  while (!atomic_compare_exchange_strong(&s->run, &taken, 0)) {
    atomic_exchange(&s->run, 1); // an exchange: the look that follows must not be earlier
    if (atomic_exchange(&s->check, false)) {
      check_current(s);
    }
    moved |= run_queue(s, budget);
    ring_askers(s);
    atomic_store_explicit(&s->again, atomic_load_explicit(&s->again, memory_order_relaxed) + 1, memory_order_release);
    taken = 1;
  }
  if (TT_UNLIKELY(atomic_load_explicit(&s->state, memory_order_relaxed) == TT_STREAM_DESTROYED)) {
    recycle_if_idle(s);
  }
  return moved;
}

bool tt_stream_progress(tt_stream *s, size_t budget, bool insist)
{
  int state = 0;
  if (!atomic_compare_exchange_strong_explicit(&s->run, &state, 1, memory_order_seq_cst, memory_order_relaxed)) {
    if (!insist) {
      return false;
    }
    // Leave a 2 behind, unless the holder has gone meanwhile: then the flag is ours.
    if (atomic_exchange(&s->run, 2) != 0) {
      return false;
    }
  }
  bool moved = run_queue(s, budget);
  return stream_release_run(s, budget) || moved;
}

void tt_stream_pass(tt_stream *s)
{
  uint32_t before = atomic_load_explicit(&s->again, memory_order_acquire);
  for (int state = 0; !atomic_compare_exchange_strong(&s->run, &state, 1); state = 0) {
    if (atomic_exchange(&s->run, 2) == 0) { // the holder has gone meanwhile
      break;
    }
    if (atomic_load_explicit(&s->again, memory_order_acquire) - before >= 2) {
      return; // the one under way when this began may have been too early, the next was not
    }
    tt_sleep_ns(1000);
  }
  run_queue(s, FIRST_RUN_BYTES);
  stream_release_run(s, FIRST_RUN_BYTES);
}

void tt_stream_check(tt_stream *s)
{
  int state = 0;
  if (!atomic_compare_exchange_strong(&s->run, &state, 1)) {
    atomic_store(&s->check, true);
    if (atomic_exchange(&s->run, 2) != 0) { // as in tt_stream_progress
      return;
    }
  }
  check_current(s);
  run_queue(s, FIRST_RUN_BYTES);
  stream_release_run(s, FIRST_RUN_BYTES);
}

// ---- Order and entries

// The streams that are ordered with a legacy default stream.
typedef struct ordered {
  tt_stream *with;
  bool any;
} ordered;

static void find_ordered(tt_stream *s, void *arg)
{
  ordered *o = arg;
  o->any |= s->legacy == o->with;
}

static void order_before(tt_stream *s, void *arg)
{
  const ordered *o = arg;
  if (s->legacy == o->with) {
    tt_stream_order(s, o->with);
  }
}

// The legacy default stream waits for every blocking stream of its device, and they for it.
static void order_with_legacy(tt_stream *s)
{
  if (s->legacy == NULL) {
    tt_stream_each(order_before, &(ordered){.with = s});
  } else if (!tt_stream_idle(s->legacy)) {
    tt_stream_order(s->legacy, s);
  }
}

// Are the streams idle that the legacy default stream is ordered with?
static __attribute__((noinline)) bool others_idle(tt_stream *s)
{
  ordered o = {.with = s};
  tt_stream_each(find_ordered, &o);
  return !o.any;
}

// Is nothing under way that an entry would have to wait for? Runs a little of what is.
static inline bool stream_is_free(tt_stream *s)
{
  if (TT_UNLIKELY(!tt_stream_idle(s))) {
    tt_stream_progress(s, FIRST_RUN_BYTES, false);
    if (!tt_stream_idle(s)) {
      return false;
    }
  }
  const tt_stream *with = s->legacy;
  return (with == NULL || tt_stream_idle(with)) && (TT_LIKELY(!s->is_legacy) || others_idle(s));
}

// The time for a call that runs at once. Threads that call at the same time may take a share too many.
static inline uint64_t stream_time(tt_stream *s)
{
  uint8_t shares = atomic_load_explicit(&s->shares, memory_order_relaxed);
  uint64_t last = atomic_load_explicit(&s->read, memory_order_relaxed);
  if (shares > 0) {
    atomic_store_explicit(&s->shares, (uint8_t)(shares - 1), memory_order_relaxed);
    return last;
  }
  uint64_t now = tt_ticks();
  if (now - last < TT_TICKS_BURST) {
    atomic_store_explicit(&s->shares, TT_TIME_SHARED - 1, memory_order_relaxed);
  }
  atomic_store_explicit(&s->read, now, memory_order_relaxed);
  return now;
}

uint64_t tt_stream_free_at(cudaStream_t handle, int device, bool timed)
{
  tt_stream *s = find_stream(handle, device);
  return TT_UNLIKELY(s == NULL) || !stream_is_free(s) ? 0 : timed ? stream_time(s) : 1;
}

static void push_only(tt_stream *s, tt_work *w)
{
  atomic_fetch_add_explicit(&s->pending, 1, memory_order_seq_cst);
  tt_busy_list(s);
  w->next = atomic_load_explicit(&s->incoming, memory_order_relaxed);
  while (!atomic_compare_exchange_weak(&s->incoming, &w->next, w)) {
  }
}

// An idle stream runs the entry at once: most small calls end here. False: not idle, or somebody holds the run flag.
static bool run_at_once(tt_stream *s, tt_work *w)
{
  int state = 0;
  if (!tt_stream_idle(s) || !atomic_compare_exchange_strong(&s->run, &state, 1)) {
    return false;
  }
  bool empty =
      s->current == NULL && s->queue == NULL && atomic_load_explicit(&s->incoming, memory_order_relaxed) == NULL;
  if (empty) {
    atomic_fetch_add_explicit(&s->pending, 1, memory_order_seq_cst);
    tt_busy_list(s);
    s->current = w;
    run_queue(s, FIRST_RUN_BYTES);
  }
  stream_release_run(s, FIRST_RUN_BYTES);
  return empty;
}

void tt_stream_push(tt_stream *s, tt_work *w)
{
  if (s->legacy != NULL || s->is_legacy) {
    order_with_legacy(s);
  }
  atomic_store_explicit(&s->pushes, atomic_load_explicit(&s->pushes, memory_order_relaxed) + 1,
                        memory_order_relaxed); // a lost count is harmless
  if (!run_at_once(s, w)) {
    push_only(s, w);
    tt_stream_progress(s, FIRST_RUN_BYTES, true);
  }
  if (!tt_stream_idle(s)) {
    tt_worker_kick();
  }
}

ncclResult_t tt_stream_order(tt_stream *earlier, tt_stream *later)
{
  tt_event *e;
  TT_TRY(tt_event_create(&e));
  tt_work *record = tt_event_record_work(e), *wait = record == NULL ? NULL : tt_event_wait_work(e);
  if (wait == NULL) {
    if (record != NULL) {
      record->ops->done(record);
    }
    tt_event_destroy(e);
    return tt_fail(ncclSystemError, "no memory to order two streams");
  }
  push_only(earlier, record);
  push_only(later, wait);
  tt_event_destroy(e); // the two entries keep it
  tt_worker_kick();    // nobody may be waiting for either stream
  return ncclSuccess;
}

static bool stream_is_idle(void *s)
{
  return tt_stream_idle(s);
}

// What stands behind what is queued to a stream now.
typedef struct milestone {
  tt_event *event;
  tt_stream *stream;
  struct milestone *next;
} milestone;

// The milestones of a device's streams.
typedef struct milestones {
  int device;
  milestone *first;
} milestones;

// Sets one, or without memory for it waits until the stream is idle.
static void mark_so_far(tt_stream *s, void *arg)
{
  milestones *all = arg;
  if (s->device != all->device) {
    return;
  }
  milestone *m = tt_calloc(1, sizeof *m);
  tt_work *mark = NULL;
  if (m != NULL && tt_event_create(&m->event) == ncclSuccess) {
    mark = tt_event_record_work(m->event);
  }
  if (mark == NULL) {
    tt_event_destroy(m == NULL ? NULL : m->event);
    tt_free(m);
    tt_host_wait(s, stream_is_idle, s);
    return;
  }
  m->stream = s;
  m->next = all->first;
  all->first = m;
  push_only(s, mark);
}

static void wait_for_marks(milestone *m)
{
  for (milestone *next; m != NULL; m = next) {
    next = m->next;
    tt_host_wait(m->stream, tt_event_reached, m->event);
    if (!tt_stream_idle(m->stream)) { // the thread that has just reached the mark has it in its hands yet
      tt_stream_pass(m->stream);
    }
    tt_event_destroy(m->event);
    tt_free(m);
  }
}

ncclResult_t tt_stream_wait_device(int device, bool take_errors)
{
  milestones all = {.device = device};
  tt_stream_each(mark_so_far, &all);
  wait_for_marks(all.first);
  return take_errors ? tt_busy_take_error(device) : ncclSuccess;
}

// A forked child starts with no streams: the parent's work is the parent's.
void tt_stream_forget(void)
{
  pthread_mutex_init(&lock, NULL);
  for (int c = 0; c < CHUNKS; c++) {
    table[c] = NULL;
  }
  atomic_store(&first_bytes, 0);
  atomic_store(&count, 0);
  tt_busy_forget();
  free_streams = NULL;
  legacy = NULL;
  pthread_once(&thread_once, thread_start);
  pthread_setspecific(thread_key, NULL);
}
