// wait.c: waiting on the host device: run own work, help others, spin a little (spin.c), sleep (sleep.c). And queries,
// which never sleep.
#include <sched.h>
#include <signal.h>

#include "device/host/wait_priv.h"

#define POLL_BYTES (1u << 20) // what a query moves

void (*_Atomic tt_host_attend)(int delta);

// Waits that the calling thread is inside of: its own, and its signal handlers'. Also read by a handler, hence
// volatile.
static _Thread_local volatile sig_atomic_t waits;

bool tt_host_waiting(void)
{
  return waits > 0;
}

void tt_host_wait(tt_stream *s, bool (*ready)(void *arg), void *arg)
{
  waits++;
  if (s != NULL) {
    tt_stream_progress(s, TT_WAIT_BYTES, false);
  }
  if (ready(arg)) {
    waits--;
    return;
  }
  if (s != NULL) {
    atomic_fetch_add_explicit(&s->waiters, 1, memory_order_relaxed);
  }
  tt_attend_fn attending = atomic_load_explicit(&tt_host_attend, memory_order_acquire);
  tt_attend(attending, 1);
  tt_spin p = {.crowded = tt_host_crowded()};
  while (!ready(arg)) {
    bool moved = s != NULL && tt_stream_progress(s, TT_WAIT_BYTES, false);
    if (ready(arg)) {
      break;
    }
    if (tt_spin_helps(&p)) {
      moved |= tt_stream_help(s, TT_WAIT_BYTES);
    }
    if (moved) {
      tt_spin_moved(&p);
    } else if (!tt_spin_pass(&p, s)) {
      tt_sleep_once(s, ready, arg, attending);
      tt_spin_restart(&p);
    }
  }
  tt_attend(attending, -1);
  waits--;
  if (s != NULL) {
    atomic_fetch_sub(&s->waiters, 1);
    if (TT_UNLIKELY(!tt_stream_idle(s))) {
      tt_worker_kick(); // no thread waits any more for what others have queued meanwhile
    }
  }
}

// What the calling thread's queries have met since one of them found something.
static _Thread_local struct {
  tt_spin spin;
  bool over; // it has spun for long enough: every query that finds nothing gives the core away
} streak;

// A query has found nothing. It never sleeps, because the program may have other things to do. So a thread that has
// asked for long gives the core to others, perhaps to the peer that it waits for.
static void poll_found_nothing(const tt_stream *s)
{
  if (streak.over) {
    sched_yield();
  } else {
    streak.over = !tt_spin_pass(&streak.spin, s);
  }
}

bool tt_host_poll(tt_stream *s, bool (*ready)(void *arg), void *arg)
{
  if (ready(arg)) {
    return true;
  }
  bool moved = s != NULL && tt_stream_progress(s, POLL_BYTES, false), over = ready(arg);
  streak.spin.crowded = tt_host_crowded();
  if (!over && tt_spin_helps(&streak.spin)) {
    moved |= tt_stream_help(s, POLL_BYTES);
    over = ready(arg);
  }
  if (over || moved) {
    streak.over = false;
    tt_spin_restart(&streak.spin);
  } else {
    poll_found_nothing(s);
  }
  return over;
}

static bool wait_is_idle(void *s)
{
  return tt_stream_idle(s);
}

ncclResult_t tt_stream_wait(tt_stream *s)
{
  atomic_store_explicit(&s->synchronized, true, memory_order_relaxed);
  if (!tt_stream_idle(s)) {
    tt_host_wait(s, wait_is_idle, s);
  }
  return (ncclResult_t)(atomic_load_explicit(&s->error, memory_order_relaxed) == 0
                            ? 0
                            : atomic_exchange_explicit(&s->error, 0, memory_order_acquire));
}
