// stream.c: see stream.h. Queue, run flag, pool of streams, special streams.
#include "device/host/stream.h"

#include <pthread.h>

#include "base/result.h"
#include "device/host/capture.h"
#include "device/host/device.h"
#include "os/clock.h"
#include "os/library.h"
#include "os/proc.h"

#define FIRST_RUN_BYTES (32u << 10) // what a launch may do on the caller's time
#define TABLE_CHUNK 64
#define TABLE_CHUNKS 4096

// All streams ever made, in chunks that never move. `count` and `first_bytes` grow under `lock` (release) and are read without (acquire).
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_stream *table[TABLE_CHUNKS];
static _Atomic int count;
static _Atomic uintptr_t first_bytes; // of the first chunk; 0: it is not there yet

tt_bell tt_process_bell;

// Default streams: one legacy stream per device, one per-thread stream per thread and device.
typedef struct defaults {
  int device;
  tt_stream *stream;
  struct defaults *next;
} defaults;
static defaults *legacy;         // under `lock`; only grows
static pthread_key_t thread_key; // list of the thread's own default streams
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static inline tt_stream *at(int i)
{
  return &table[i / TABLE_CHUNK][i % TABLE_CHUNK];
}

static void recycle_if_idle(tt_stream *s)
{
  pthread_mutex_lock(&lock);
  if (s->state == TT_STREAM_DESTROYED && tt_stream_idle(s)) {
    s->state = TT_STREAM_FREE;
  }
  pthread_mutex_unlock(&lock);
}

// Caller holds `lock`.
static tt_stream *find_free(void)
{
  int n = atomic_load_explicit(&count, memory_order_relaxed);
  for (int i = 0; i < n; i++) {
    if (at(i)->state == TT_STREAM_FREE) {
      return at(i);
    }
  }
  if (n == TABLE_CHUNK * TABLE_CHUNKS) {
    return NULL;
  }
  if (n % TABLE_CHUNK == 0) {
    table[n / TABLE_CHUNK] = tt_calloc_line(TABLE_CHUNK * sizeof(tt_stream));
    if (table[n / TABLE_CHUNK] == NULL) {
      return NULL;
    }
  }
  atomic_store_explicit(&first_bytes, TABLE_CHUNK * sizeof(tt_stream), memory_order_release);
  atomic_store_explicit(&count, n + 1, memory_order_release);
  return at(n);
}

static tt_stream *legacy_of(int device)
{
  for (defaults *d = legacy; d != NULL; d = d->next) {
    if (d->device == device) {
      return d->stream;
    }
  }
  return NULL;
}

// Caller holds `lock`.
static tt_stream *take(int device, tt_stream *with)
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
  }
  return s;
}

// The device's legacy default stream, made when first asked for. Caller holds `lock`.
static tt_stream *legacy_get(int device)
{
  tt_stream *s = legacy_of(device);
  if (s != NULL) {
    return s;
  }
  defaults *d = tt_calloc(1, sizeof *d);
  s = d == NULL ? NULL : take(device, NULL);
  if (s == NULL) {
    tt_free(d);
    return NULL;
  }
  s->is_legacy = true;
  *d = (defaults){.device = device, .stream = s, .next = legacy};
  legacy = d;
  return s;
}

ncclResult_t tt_stream_create(int device, bool blocking, tt_stream **out)
{
  pthread_mutex_lock(&lock);
  tt_stream *with = blocking ? legacy_get(device) : NULL;
  tt_stream *s = blocking && with == NULL ? NULL : take(device, with);
  pthread_mutex_unlock(&lock);
  if (s == NULL) {
    return tt_fail(ncclSystemError, "no memory for a stream on device %d (%d streams are in use)", device, atomic_load(&count));
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

static void thread_exit(void *list)
{
  for (defaults *d = list, *next; d != NULL; d = next) {
    next = d->next;
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
  defaults *head = pthread_getspecific(thread_key);
  for (defaults *d = head; d != NULL; d = d->next) {
    if (d->device == device) {
      *out = d->stream;
      return ncclSuccess;
    }
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
  d->device = device;
  d->next = head;
  pthread_setspecific(thread_key, d);
  *out = d->stream;
  return ncclSuccess;
}

// The same beyond the first chunk.
static __attribute__((noinline)) int state_beyond(const tt_stream *s)
{
  int n = atomic_load_explicit(&count, memory_order_acquire);
  for (int c = 1; c * TABLE_CHUNK < n; c++) {
    uintptr_t offset = (uintptr_t)s - (uintptr_t)table[c];
    if (offset < TABLE_CHUNK * sizeof *s) {
      return offset % sizeof *s == 0 ? s->state : TT_STREAM_FREE;
    }
  }
  return TT_STREAM_FREE;
}

// The state of this stream, if the pointer is one of ours. Asked several times per call. Few programs have more streams than the first chunk holds.
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
      return tt_fail(ncclInvalidArgument, "stream %p is not a stream of the host device: create it with tuttiStreamCreate", (void *)handle);
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
static __attribute__((noinline)) ncclResult_t get_unusual(cudaStream_t handle, int device, const char *what, tt_stream **out)
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

tt_stream *tt_stream_find(cudaStream_t handle, int device)
{
  tt_stream *s = (tt_stream *)handle;
  if (TT_UNLIKELY((uintptr_t)handle <= 2)) {
    return find_default(handle, device);
  }
  return stream_state(s) == TT_STREAM_LIVE ? s : NULL;
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
static void finish(tt_stream *s, tt_work *w, ncclResult_t result)
{
  tt_bell *bell = w->ops->bell != NULL ? w->ops->bell(w) : &tt_process_bell;
  if (result != ncclSuccess) {
    uint32_t none = 0;
    atomic_compare_exchange_strong(&s->error, &none, (uint32_t)result);
  }
  s->current = NULL;
  atomic_store_explicit(&s->bell, NULL, memory_order_release); // before the entry counts as complete: see tt_bell_retire
  atomic_fetch_sub(&s->pending, 1);
  tt_bell_fence_after_rmw();
  tt_bell_ring(bell);
  w->ops->done(w); // last: until then the owner of the bell keeps it
}

// Says what the blocked current entry waits for. Whoever fell asleep on the process's bell because there was nothing to be seen yet is
// woken, so that it listens to the right one.
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
    finish(s, w, r == TT_RUN_FAILED ? result : ncclSuccess);
  }
  return moved;
}

// Whoever asked while the flag was taken may be asleep by now, although the current entry could go on: the budget was used up, and this
// thread may have other things to do. Run flag held, so the entry keeps its bell. No fence: the asker announced himself before he asked.
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
}

// Gives the run flag back, doing again what others asked for meanwhile.
static bool release_run(tt_stream *s, size_t budget)
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
  return release_run(s, budget) || moved;
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
  release_run(s, FIRST_RUN_BYTES);
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
  release_run(s, FIRST_RUN_BYTES);
}

// The legacy default stream waits for every blocking stream of its device, and they for it.
static void order_with_legacy(tt_stream *s)
{
  if (s->legacy != NULL) {
    if (!tt_stream_idle(s->legacy)) {
      tt_stream_order(s->legacy, s);
    }
    return;
  }
  int n = atomic_load_explicit(&count, memory_order_acquire);
  for (int i = 0; i < n; i++) {
    if (at(i)->legacy == s && !tt_stream_idle(at(i))) {
      tt_stream_order(at(i), s);
    }
  }
}

// Are the streams idle that the legacy default stream is ordered with?
static __attribute__((noinline)) bool others_idle(const tt_stream *s)
{
  int n = atomic_load_explicit(&count, memory_order_acquire);
  for (int i = 0; i < n; i++) {
    if (at(i)->legacy == s && !tt_stream_idle(at(i))) {
      return false;
    }
  }
  return true;
}

bool tt_stream_is_free(cudaStream_t handle, int device)
{
  tt_stream *s = tt_stream_find(handle, device);
  if (TT_UNLIKELY(s == NULL)) {
    return false;
  }
  if (TT_UNLIKELY(!tt_stream_idle(s))) {
    tt_stream_progress(s, FIRST_RUN_BYTES, false);
  }
  const tt_stream *with = s->legacy;
  return tt_stream_idle(s) && (with == NULL || tt_stream_idle(with)) && (TT_LIKELY(!s->is_legacy) || others_idle(s));
}

static void push_only(tt_stream *s, tt_work *w)
{
  atomic_fetch_add_explicit(&s->pending, 1, memory_order_seq_cst);
  w->next = atomic_load_explicit(&s->incoming, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&s->incoming, &w->next, w, memory_order_release, memory_order_relaxed)) {
  }
}

// An idle stream runs the entry at once, without queueing it: most small calls end here. False: not idle, or somebody holds the run flag.
static bool run_at_once(tt_stream *s, tt_work *w)
{
  int state = 0;
  if (!tt_stream_idle(s) || !atomic_compare_exchange_strong(&s->run, &state, 1)) {
    return false;
  }
  bool empty = s->current == NULL && s->queue == NULL && atomic_load_explicit(&s->incoming, memory_order_relaxed) == NULL;
  if (empty) {
    atomic_fetch_add_explicit(&s->pending, 1, memory_order_relaxed);
    s->current = w;
    run_queue(s, FIRST_RUN_BYTES);
  }
  release_run(s, FIRST_RUN_BYTES);
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

bool tt_stream_help(const tt_stream *except, size_t budget)
{
  bool moved = false;
  int n = atomic_load_explicit(&count, memory_order_acquire);
  for (int i = 0; i < n; i++) {
    tt_stream *s = at(i);
    if (s != except && !tt_stream_idle(s)) {
      moved |= tt_stream_progress(s, budget, false);
    }
  }
  return moved;
}

static bool stream_idle(void *s)
{
  return tt_stream_idle(s);
}

// Waits for what is queued to `s` now, not for what others queue meanwhile. Without memory for a mark: until it is idle.
static void wait_so_far(tt_stream *s)
{
  tt_event *e;
  tt_work *mark = NULL;
  if (tt_event_create(&e) != ncclSuccess) {
    tt_host_wait(s, stream_idle, s);
    return;
  }
  mark = tt_event_record_work(e);
  if (mark != NULL) {
    push_only(s, mark);
    tt_host_wait(s, tt_event_reached, e);
  } else {
    tt_host_wait(s, stream_idle, s);
  }
  tt_event_destroy(e);
}

ncclResult_t tt_stream_wait_device(int device, bool take_errors)
{
  uint32_t res = 0;
  int n = atomic_load_explicit(&count, memory_order_acquire);
  for (int i = 0; i < n; i++) {
    tt_stream *s = at(i);
    if (s->device != device) {
      continue;
    }
    if (!tt_stream_idle(s)) {
      wait_so_far(s);
    }
    if (take_errors && atomic_load_explicit(&s->error, memory_order_relaxed) != 0) {
      uint32_t e = atomic_exchange_explicit(&s->error, 0, memory_order_acquire);
      res = res != 0 ? res : e;
    }
  }
  return (ncclResult_t)res;
}

// A forked child starts with no streams: the parent's work is the parent's.
void tt_stream_forget(void)
{
  pthread_mutex_init(&lock, NULL);
  for (int c = 0; c < TABLE_CHUNKS; c++) {
    table[c] = NULL;
  }
  atomic_store(&first_bytes, 0);
  atomic_store(&count, 0);
  legacy = NULL;
  pthread_once(&thread_once, thread_start);
  pthread_setspecific(thread_key, NULL);
}

void tt_stream_each(void (*visit)(tt_stream *s, void *arg), void *arg)
{
  int n = atomic_load_explicit(&count, memory_order_acquire);
  for (int i = 0; i < n; i++) {
    if (!tt_stream_idle(at(i))) {
      visit(at(i), arg);
    }
  }
}
