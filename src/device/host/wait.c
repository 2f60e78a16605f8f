// wait.c: waiting on the host device: run own work, help others, spin a little (spin.c), sleep (sleep.c). And queries,
// which never sleep.
#include <sched.h>
#include <signal.h>

#include "device/host/wait_priv.h"
#include "os/clock.h"

#define POLL_BYTES (1u << 20) // what a query moves
#define MOVES_CHECK 64        // passes that move something between two looks whether to look after the peers

void (*_Atomic tt_host_attend)(int delta);

// Waits that the calling thread is inside of: its own, and its signal handlers'. Also read by a handler, hence
// volatile.
static _Thread_local volatile sig_atomic_t waits;

// What a waiting thread looks after besides.
typedef struct wait_care {
  tt_attend_fn attending; // or NULL
  uint64_t due;           // next look after the peers; 0: the clock has not been read yet
  uint64_t until;         // when the wait ends, ready or not; UINT64_MAX: never
  unsigned moves;
} wait_care;

bool tt_host_waiting(void)
{
  return waits > 0;
}

// One pass of a wait that has moved nothing: looks after the peers now and then, also where the thread spins for long
// or is rung again and again.
static void wait_pass(tt_spin *p, tt_stream *s, bool (*ready)(void *arg), void *arg, wait_care *care)
{
  if (tt_spin_pass(p, s)) {
    tt_peer_check_due(p->now, &care->due);
    return;
  }
  uint64_t now = tt_now_ns(), left = care->until > now ? care->until - now : 0;
  bool rung = tt_sleep_once(s, ready, arg, care->attending, TT_MIN(left, tt_peer_check_ns()));
  now = tt_now_ns();
  if (!rung) {
    care->due = now + tt_peer_check_ns();
  }
  tt_peer_check_due(now, &care->due);
  tt_spin_restart(p);
}

// The same for a pass that has moved something, perhaps for others only.
static void wait_moved(tt_spin *p, wait_care *care)
{
  tt_spin_moved(p);
  if (++care->moves % MOVES_CHECK == 0) {
    tt_peer_check_due(tt_now_ns(), &care->due);
  }
}

static void wait_until(tt_stream *s, bool (*ready)(void *arg), void *arg, uint64_t until)
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
  wait_care care = {.attending = atomic_load_explicit(&tt_host_attend, memory_order_acquire), .until = until};
  tt_attend(care.attending, 1);
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
      wait_moved(&p, &care);
    } else {
      wait_pass(&p, s, ready, arg, &care);
    }
  }
  tt_attend(care.attending, -1);
  waits--;
  if (s != NULL) {
    atomic_fetch_sub(&s->waiters, 1);
    if (TT_UNLIKELY(!tt_stream_idle(s))) {
      tt_worker_kick(); // no thread waits any more for what others have queued meanwhile
    }
  }
}

void tt_host_wait(tt_stream *s, bool (*ready)(void *arg), void *arg)
{
  wait_until(s, ready, arg, UINT64_MAX);
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

// A wait that ends at a time, in nanoseconds of tt_now_ns, if not before.
typedef struct wait_limit {
  bool (*ready)(void *arg);
  void *arg;
  uint64_t until;
} wait_limit;

static bool wait_is_over(void *limit)
{
  const wait_limit *l = limit;
  return l->ready(l->arg) || tt_now_ns() >= l->until;
}

bool tt_host_wait_for(tt_stream *s, bool (*ready)(void *arg), void *arg, uint64_t ns)
{
  if (ready(arg)) {
    return true;
  }
  uint64_t until = tt_now_ns() + ns;
  wait_until(s, wait_is_over, &(wait_limit){ready, arg, until}, until);
  return ready(arg);
}

ncclResult_t tt_stream_wait_for(tt_stream *s, uint64_t ns)
{
  atomic_store_explicit(&s->synchronized, true, memory_order_relaxed);
  return tt_host_wait_for(s, wait_is_idle, s, ns) ? tt_stream_wait(s) : ncclInProgress;
}

ncclResult_t tt_stream_error(tt_stream *s, bool take)
{
  uint32_t res = atomic_load_explicit(&s->error, memory_order_acquire);
  if (res != 0 && take) {
    res = atomic_exchange_explicit(&s->error, 0, memory_order_acquire);
  }
  if (res == 0) { // or another thread has taken it
    return ncclSuccess;
  }
  tt_error *why = atomic_exchange(&s->why, NULL), *none = NULL;
  tt_error_give(why);
  if (take || !atomic_compare_exchange_strong(&s->why, &none, why)) {
    tt_free(why);
  }
  return (ncclResult_t)res;
}

ncclResult_t tt_stream_wait(tt_stream *s)
{
  atomic_store_explicit(&s->synchronized, true, memory_order_relaxed);
  tt_stream_unshare(s);
  if (!tt_stream_idle(s)) {
    tt_host_wait(s, wait_is_idle, s);
  }
  return tt_stream_error(s, true);
}
