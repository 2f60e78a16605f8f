// worker.c: the lazy worker: one thread per process, started when work is first left behind. It runs streams for which
// no thread waits, and deferred work.
#include <pthread.h>

#include "base/log.h"
#include "base/result.h"
#include "device/host/wait_priv.h"
#include "os/clock.h"
#include "os/thread.h"

#define WORKER_TICK_NS 1000000ull // how often the worker looks for orphaned work while there has been some lately
#define WORKER_TICK_CROWDED_NS 10000000ull
#define WORKER_IDLE_TICKS 50         // ticks without any before it sleeps until a kick
#define WORKER_ENDS_NS 1000000000ull // how long it sleeps so before it ends

enum { WORKER_NONE, WORKER_TICKING, WORKER_ASLEEP };
static _Atomic int
    worker_state;           // NONE -> TICKING by a kick, TICKING <-> ASLEEP; ASLEEP -> NONE by the worker, which ends
static tt_bell worker_bell; // rung by a kick that finds it asleep
static pthread_mutex_t worker_lock = PTHREAD_MUTEX_INITIALIZER; // one thread starts it

// A thread that keeps pushing runs its stream itself, a bit with every push: the worker would only be in its way, and
// be woken for every message. So the worker takes on a stream when no thread has pushed to it for a tick.
static bool worker_answers(const tt_stream *s, const tt_stream *none)
{
  (void)none;
  return s->orphan && atomic_load_explicit(&s->pushes, memory_order_relaxed) == s->seen_pushes &&
         atomic_load_explicit(&s->waiters, memory_order_relaxed) == 0;
}

typedef struct orphans {
  bool any;   // there are streams that no thread waits for
  bool mine;  // the worker has taken some of them on
  bool tick;  // time to look for pushes
  bool moved; // by worker_run
} orphans;

static void worker_find(tt_stream *s, void *arg)
{
  orphans *o = arg;
  if (atomic_load_explicit(&s->waiters, memory_order_relaxed) == 0) {
    o->any = true;
    if (o->tick) {
      uint32_t pushes = atomic_load_explicit(&s->pushes, memory_order_relaxed);
      s->orphan = pushes == s->seen_pushes;
      s->seen_pushes = pushes;
    }
    o->mine |= worker_answers(s, NULL);
  }
}

static void worker_run(tt_stream *s, void *arg)
{
  orphans *o = arg;
  if (worker_answers(s, NULL)) {
    o->moved |= tt_stream_progress(s, TT_WAIT_BYTES, false);
  }
}

static bool worker_run_all(orphans *o)
{
  o->moved = false;
  tt_stream_each(worker_run, o);
  return o->moved;
}

// Work that must wait for a quiet moment, when no thread is asleep on bells that it frees. Under `worker_lock`.
static tt_deferred *deferred;

void tt_worker_defer(tt_deferred *d)
{
  pthread_mutex_lock(&worker_lock);
  d->next = deferred;
  deferred = d;
  pthread_mutex_unlock(&worker_lock);
  tt_worker_kick();
}

// Tries every deferred piece of work once. Returns whether any is left.
static bool worker_run_deferred(void)
{
  pthread_mutex_lock(&worker_lock);
  tt_deferred *list = deferred, *next;
  deferred = NULL;
  pthread_mutex_unlock(&worker_lock);
  bool left = false;
  for (tt_deferred *d = list; d != NULL; d = next) {
    next = d->next;
    if (!d->run(d)) {
      tt_worker_defer(d);
      left = true;
    }
  }
  return left;
}

// Lets blocked streams look after their peers, if it is time.
static void worker_check_peers(uint64_t now, uint64_t *last)
{
  if (now - *last >= tt_peer_check_ns()) {
    *last = now;
    tt_peer_check_streams();
  }
}

// When the worker last looked for pushes, and at the peers. And what it attends by: it attends while it runs streams,
// as a waiting thread does.
typedef struct worker_times {
  uint64_t tick, check;
  tt_attend_fn attending; // or NULL
} worker_times;

static void worker_attend(worker_times *w, bool on)
{
  if (on && w->attending == NULL) {
    w->attending = atomic_load_explicit(&tt_host_attend, memory_order_acquire);
    tt_attend(w->attending, 1);
  } else if (!on) {
    tt_attend(w->attending, -1);
    w->attending = NULL;
  }
}

// Runs orphaned streams until none moves; then sleeps on their bells. Returns whether there were any.
static bool worker_round(uint64_t tick, worker_times *last)
{
  bool left = worker_run_deferred();
  uint64_t now = tt_now_ns();
  orphans o = {.tick = now - last->tick >= tick};
  last->tick = o.tick ? now : last->tick;
  tt_stream_each(worker_find, &o);
  if (o.mine) {
    worker_attend(last, true);
  }
  if (o.any && o.tick) {
    worker_check_peers(now, &last->check);
  }
  if (o.any && worker_run_all(&o)) {
    return true;
  }
  tt_bell_set n = {.answers = worker_answers};
  tt_bell_set_add(&n, &worker_bell);
  if (o.any) {
    tt_bell_set_add_streams(&n);
  }
  if (!o.any || (!worker_run_all(&o) && !tt_bell_set_is_stale(&n))) {
    worker_attend(last, false);
    tt_bell_set_sleep(&n, tick);
  }
  if (tt_bell_set_alarmed(&n)) {
    tt_peer_check_streams();
  }
  tt_bell_set_leave(&n);
  return o.any || left;
}

// Sleeps until a kick, and returns true. The state says so first, and work pushed meanwhile is looked for once more.
// False: no kick came for so long that the worker ends, so that a process whose main thread has left can end. A pushing
// thread changes ASLEEP, or finds NONE and starts another worker.
static bool worker_sleep(void)
{
  uint32_t ticket = tt_bell_announce(&worker_bell);
  atomic_store(&worker_state, WORKER_ASLEEP);
  tt_bell_fence();
  orphans o = {.any = false};
  tt_stream_each(worker_find, &o);
  if (!o.any) {
    tt_bell *bell = &worker_bell;
    tt_bell_sleep(&bell, &ticket, 1, WORKER_ENDS_NS);
  }
  tt_bell_leave(&worker_bell);
  int asleep = WORKER_ASLEEP;
  if (!o.any && atomic_compare_exchange_strong(&worker_state, &asleep, WORKER_NONE)) {
    return false;
  }
  atomic_store(&worker_state, WORKER_TICKING);
  return true;
}

static void *worker_main(void *arg)
{
  (void)arg;
  worker_times last = {0};
  for (int idle = 0; idle <= WORKER_IDLE_TICKS || worker_sleep();) {
    idle = idle > WORKER_IDLE_TICKS ? 0 : idle;
    bool tight = tt_host_crowded();
    idle = worker_round(tight ? WORKER_TICK_CROWDED_NS : WORKER_TICK_NS, &last) ? 0 : idle + 1;
  }
  return NULL;
}

static void worker_start(void)
{
  pthread_mutex_lock(&worker_lock);
  if (atomic_load(&worker_state) == WORKER_NONE) {
    atomic_store(&worker_state, WORKER_TICKING); // first: a worker may end before this thread goes on
    if (tt_thread_start_detached("tutti worker", worker_main, NULL) != ncclSuccess) {
      atomic_store(&worker_state, WORKER_NONE);
    }
  }
  pthread_mutex_unlock(&worker_lock);
}

void tt_worker_kick(void)
{
  tt_bell_fence_after_rmw(); // the push counted its entry before
  int state = atomic_load_explicit(&worker_state, memory_order_relaxed);
  if (TT_UNLIKELY(state == WORKER_NONE)) {
    worker_start();
  } else if (state == WORKER_ASLEEP && atomic_compare_exchange_strong(&worker_state, &state, WORKER_TICKING)) {
    tt_bell_wake(&worker_bell); // one kick is enough
  }
}

// A forked child has no worker, and no streams for it to run.
void tt_worker_forget(void)
{
  atomic_store(&worker_state, WORKER_NONE);
  deferred = NULL; // the parent's
  pthread_mutex_init(&worker_lock, NULL);
  worker_bell = (tt_bell){0};
}
