// busy.c: see busy.h.
#include "device/host/busy.h"

#include <pthread.h>

#define LISTED_IDLE 64 // idle streams in the list, beside as many as are busy

// Streams with pending work or an error that nobody has taken, and some that had. A search for work looks at these
// alone. The thread that sets `listed` puts a stream in at the front, after the entry is counted (both sequentially
// consistent). One thread at a time takes idle ones out. It holds `sweep_lock`, and leaves the first one in: nobody
// else changes a `next_busy` of the list. It puts a stream in again where work has come meanwhile; for that moment the
// stream is missing, and `sweeping` says so (first_busy). A reader of a stream that was taken out still gets on.
static _Atomic(tt_stream *) busy;
static pthread_mutex_t sweep_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool sweeping;

void tt_busy_add(tt_stream *s)
{
  if (!atomic_exchange(&s->listed, true)) {
    tt_stream *first = atomic_load_explicit(&busy, memory_order_relaxed);
    do {
      atomic_store_explicit(&s->next_busy, first, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak(&busy, &first, s));
  }
}

static inline bool has_error(tt_stream *s)
{
  return atomic_load_explicit(&s->error, memory_order_relaxed) != 0;
}

// May the stream be left out of the list? `pending` first: an error is written before the entry counts as complete.
static bool is_over(tt_stream *s)
{
  return atomic_load(&s->pending) == 0 && !has_error(s);
}

// Takes idle streams out of the list. Caller holds `sweep_lock`.
static void take_idle_out(void)
{
  tt_stream *before = atomic_load_explicit(&busy, memory_order_acquire);
  for (tt_stream *s = before == NULL ? NULL : before->next_busy; s != NULL; s = before->next_busy) {
    if (!is_over(s)) {
      before = s;
      continue;
    }
    atomic_store_explicit(&before->next_busy, s->next_busy, memory_order_release);
    atomic_exchange(&s->listed, false);
    if (!is_over(s)) { // an entry that came before that has not listed the stream
      tt_busy_list(s);
      tt_worker_kick();
    }
  }
}

// Takes idle streams out of the list, unless another thread is doing that already.
static void stream_sweep(void)
{
  if (pthread_mutex_trylock(&sweep_lock) == 0) {
    atomic_exchange(&sweeping, true); // before any look at a stream: see first_busy
    take_idle_out();
    atomic_store(&sweeping, false);
    pthread_mutex_unlock(&sweep_lock);
  }
}

// The list has every stream whose entry was queued before: a sweep that began earlier is over, one that begins later
// sees the entry. A thread inside a wait does not ask, for it may be in a signal handler that interrupted its own
// sweep: it looks again, and the worker finds what it misses.
static tt_stream *first_busy(void)
{
  if (TT_UNLIKELY(atomic_load(&sweeping)) && !tt_host_waiting()) {
    pthread_mutex_lock(&sweep_lock);
    pthread_mutex_unlock(&sweep_lock);
  }
  return atomic_load_explicit(&busy, memory_order_acquire);
}

static inline tt_stream *next_busy(const tt_stream *s)
{
  return atomic_load_explicit(&s->next_busy, memory_order_acquire);
}

void tt_stream_each(void (*visit)(tt_stream *s, void *arg), void *arg)
{
  int idle = -LISTED_IDLE;
  for (tt_stream *s = first_busy(); s != NULL; s = next_busy(s)) {
    if (!tt_stream_idle(s)) {
      idle--;
      visit(s, arg);
    } else {
      idle += !has_error(s);
    }
  }
  if (TT_UNLIKELY(idle > 0)) {
    stream_sweep();
  }
}

// What tt_stream_help does with each.
typedef struct helping {
  const tt_stream *except;
  size_t budget;
  bool moved;
} helping;

static void stream_help(tt_stream *s, void *arg)
{
  helping *h = arg;
  if (s != h->except) {
    h->moved |= tt_stream_progress(s, h->budget, false);
  }
}

bool tt_stream_help(const tt_stream *except, size_t budget)
{
  helping h = {.except = except, .budget = budget};
  tt_stream_each(stream_help, &h);
  return h.moved;
}

ncclResult_t tt_busy_take_error(int device)
{
  ncclResult_t res = ncclSuccess;
  for (tt_stream *s = first_busy(); s != NULL; s = next_busy(s)) {
    if (s->device == device && res == ncclSuccess) {
      res = tt_stream_error(s, true);
    } else if (s->device == device && has_error(s)) {
      atomic_exchange_explicit(&s->error, 0, memory_order_acquire);
    }
  }
  return res;
}

void tt_busy_forget(void)
{
  pthread_mutex_init(&sweep_lock, NULL);
  atomic_store(&busy, NULL);
  atomic_store(&sweeping, false);
}
