// wait.c: waiting on the host device: run own work, help others, spin a little, sleep. And the lazy worker.
//
// Sleeping is safe because every thread that goes to sleep first announces itself on the bells of all streams that nobody else waits for
// (and of its own), and looks at all of them once more. Whatever makes one of them runnable afterwards rings its bell.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "device/host/stream.h"
#include "device/host/theft.h"
#include "os/clock.h"
#include "os/proc.h"
#include "os/relax.h"
#include "os/thread.h"

#define RUN_BYTES (8u << 20)      // what a waiter moves before it looks around
#define POLL_BYTES (1u << 20)     // what a query moves
#define SPIN_US_DEFAULT 50        // longest busy wait for what takes no time, when every rank has a core of its own
#define YIELD_US_CROWDED 20       // longest time of yielding to others before sleeping, when cores are short
#define PAUSES_CROWDED 2          // looks before the first yield, when cores are short: who is waited for has no core, probably
#define YIELDS_CROWDED 8          // and the fewest yields: with many ranks one of them takes longer than all that time
#define HELP_EVERY_CROWDED 4      // looks between two at everybody else's streams, which have waiters of their own, mostly
#define CLOCK_EVERY 64            // looks between two readings of the clock
#define WORKER_TICK_NS 1000000ull // how often the worker looks for orphaned work while there has been some lately
#define WORKER_TICK_CROWDED_NS 10000000ull
#define WORKER_IDLE_TICKS 50         // ticks without any before it sleeps until a kick
#define WORKER_ENDS_NS 1000000000ull // how long it sleeps so before it ends

static _Atomic bool crowded; // some communicator has more ranks on this machine than there are cores
static _Atomic int per_core; // the most of them

void tt_host_load(int ranks, int cores)
{
  if (ranks > cores) {
    int each = ranks / TT_MAX(cores, 1);
    if (each > atomic_load_explicit(&per_core, memory_order_relaxed)) {
      atomic_store_explicit(&per_core, each, memory_order_relaxed);
    }
    atomic_store_explicit(&crowded, true, memory_order_relaxed);
  }
}

bool tt_host_crowded(void)
{
  return atomic_load_explicit(&crowded, memory_order_relaxed);
}

void (*_Atomic tt_host_attend)(int delta);

// Whoever begins to attend keeps the function, so that it takes back what it has counted in.
typedef void (*attend_fn)(int delta);

static inline void attend(attend_fn fn, int delta)
{
  if (fn != NULL) {
    fn(delta);
  }
}

// One waiting thread's patience: how it passes the time between two looks.
typedef struct patience {
  uint64_t deadline; // when it goes to sleep; 0: clock not read yet
  uint64_t now;      // what the clock last said
  unsigned looks;
  unsigned least; // looks before it goes to sleep, whatever the clock says
  bool tight;
  bool gives_up; // sleeps when other work has stolen the core
} patience;

// Where other work has the core, sleeping is cheaper. What this thread knows of that.
static _Thread_local tt_theft theft;

// When a waiting thread of this process last moved something on a core: whoever finds his stream run by others, who needed long, has lost nothing to strangers.
// Written by the thread on the core (who is moved elsewhere meanwhile writes a wrong one, which costs a sleep or a yield), relaxed: nothing is published by it.
#define CORES 256 // more share what is noted
static struct {
  _Alignas(TT_CACHE_LINE) _Atomic uint64_t worked;
} cores[CORES];

static _Atomic uint64_t *worked_here(void)
{
  return &cores[(unsigned)sched_getcpu() % CORES].worked;
}

static uint32_t takes_us(const tt_stream *s)
{
  return s != NULL ? atomic_load_explicit(&s->takes_us, memory_order_relaxed) : 0;
}

// Gives the core to others. *now: the last reading of the clock, and the new one. Returns whether it was stolen.
static bool yield_core(const tt_stream *s, uint64_t *now)
{
  uint64_t then = *now;
  sched_yield();
  *now = tt_now_ns();
  then = TT_MAX(then, atomic_load_explicit(worked_here(), memory_order_relaxed));
  return tt_theft_note(&theft, then, *now, atomic_load_explicit(&per_core, memory_order_relaxed), takes_us(s));
}

// Microseconds of busy waiting for the stream's current entry. Who sleeps while a peer is at work wakes up late, so waiting goes on for about as long as
// that takes; where cores are short, the peer may need this one.
static int64_t spin_us(const tt_stream *s, bool tight)
{
  int64_t us = tt_params_get()->host_spin_us;
  if (us >= 0 || tight) {
    return us >= 0 ? us : YIELD_US_CROWDED;
  }
  return SPIN_US_DEFAULT + (int64_t)takes_us(s);
}

// Reads the clock for the first time. False: this is not the time for yields.
static bool begin_patience(patience *p, const tt_stream *s)
{
  p->now = tt_now_ns();
  int64_t us = spin_us(s, p->tight);
  p->deadline = p->now + (us > 0 ? tt_span_ns(us, 1000) : 0);
  p->gives_up = p->tight && tt_params_get()->host_spin_us < 0;
  p->least = p->gives_up ? PAUSES_CROWDED + YIELDS_CROWDED : 0;
  return !p->gives_up || !tt_theft_sleeps(&theft, p->now, takes_us(s));
}

// Passes a moment. False: patience is over, sleep.
static bool pass_time(patience *p, const tt_stream *s)
{
  p->looks++;
  bool first = p->deadline == 0, reads = first || p->looks % (p->tight ? 4 : CLOCK_EVERY) == 0;
  if (p->tight && p->looks > PAUSES_CROWDED) {
    if (yield_core(s, &p->now) && p->gives_up) {
      return false;
    }
  } else {
    tt_cpu_relax();
  }
  if (first && !begin_patience(p, s)) {
    return false;
  }
  if (reads && !first && !p->tight) {
    p->now = tt_now_ns();
  }
  return !reads || p->now < p->deadline || p->looks < p->least;
}

// Held while a thread picks bells from streams and announces itself: whoever frees a bell takes it once in between (tt_bell_retire).
static pthread_mutex_t nap_lock = PTHREAD_MUTEX_INITIALIZER;

void tt_bell_retire(tt_bell *bell)
{
  pthread_mutex_lock(&nap_lock);
  pthread_mutex_unlock(&nap_lock);
  while (atomic_load_explicit(&bell->sleepers, memory_order_acquire) != 0) {
    tt_bell_wake(bell);
    sched_yield();
  }
}

// The bells a thread is about to sleep on.
typedef struct nap {
  tt_stream *own;
  bool stale; // a stream waits for a bell that is not among them
  int n;
  tt_bell *bells[TT_BELL_MAX];
  uint32_t tickets[TT_BELL_MAX];
} nap;

static void nap_add(nap *n, tt_bell *bell)
{
  for (int i = 0; i < n->n; i++) {
    if (n->bells[i] == bell) {
      return;
    }
  }
  if (n->n < TT_BELL_MAX) {
    n->bells[n->n] = bell;
    n->tickets[n->n++] = tt_bell_announce(bell);
  }
}

static void nap_add_stream(tt_stream *s, void *arg)
{
  nap *n = arg;
  if (s == n->own || atomic_load_explicit(&s->waiters, memory_order_relaxed) == 0) {
    tt_bell *bell = atomic_load_explicit(&s->bell, memory_order_acquire);
    nap_add(n, bell != NULL ? bell : &tt_process_bell);
  }
}

// Announces the thread on its own stream's bell, which must not fall victim to TT_BELL_MAX, and on those of all streams that nobody waits
// for.
static void nap_add_streams(nap *n)
{
  pthread_mutex_lock(&nap_lock);
  if (n->own != NULL && !tt_stream_idle(n->own)) {
    nap_add_stream(n->own, n);
  }
  tt_stream_each(nap_add_stream, n);
  pthread_mutex_unlock(&nap_lock);
}

static void nap_compare(tt_stream *s, void *arg)
{
  nap *n = arg;
  if (s != n->own && atomic_load_explicit(&s->waiters, memory_order_relaxed) != 0) {
    return;
  }
  tt_bell *bell = atomic_load_explicit(&s->bell, memory_order_acquire);
  bool found = n->n == TT_BELL_MAX;
  for (int i = 0; i < n->n; i++) {
    found |= n->bells[i] == (bell != NULL ? bell : &tt_process_bell);
  }
  n->stale |= !found;
}

// Between the announcement and the last look another thread may have completed an entry (its bell rang before we listened), and the next
// one waits for another bell. Asked after the last look; from then on the bell of every entry that is completed is one we listen to.
static bool nap_is_stale(nap *n)
{
  tt_stream_each(nap_compare, n);
  return n->stale;
}

// Has the worker taken the stream on? The worker only.
static bool is_orphan(const tt_stream *s)
{
  return s->orphan && atomic_load_explicit(&s->pushes, memory_order_relaxed) == s->seen_pushes &&
         atomic_load_explicit(&s->waiters, memory_order_relaxed) == 0;
}

static void nap_compare_orphan(tt_stream *s, void *arg)
{
  if (is_orphan(s)) {
    nap_compare(s, arg);
  }
}

// The same for the worker and the streams it has taken on.
static bool nap_misses_orphan(nap *n)
{
  tt_stream_each(nap_compare_orphan, n);
  return n->stale;
}

static void nap_leave(nap *n)
{
  for (int i = 0; i < n->n; i++) {
    tt_bell_leave(n->bells[i]);
  }
}

// Asks a blocked stream's current entry to look whether its peers live.
static void check_stream(tt_stream *s, void *arg)
{
  (void)arg;
  tt_stream_check(s);
}

static uint64_t check_ns(void)
{
  int64_t ms = tt_params_get()->peer_check_ms;
  return (uint64_t)TT_CLAMP(ms, 1, 3600000) * 1000000ull;
}

static bool look_again(tt_stream *s, bool (*ready)(void *arg), void *arg)
{
  bool moved = s != NULL && tt_stream_progress(s, RUN_BYTES, true);
  moved |= tt_stream_help(s, RUN_BYTES);
  return moved || ready(arg);
}

// Announces, looks again, sleeps.
static void sleep_once(tt_stream *s, bool (*ready)(void *arg), void *arg, attend_fn attending)
{
  nap n = {.own = s};
  if (s == NULL || tt_stream_idle(s)) {
    nap_add(&n, &tt_process_bell);
  }
  nap_add_streams(&n);
  if (n.n == 0) {
    nap_add(&n, &tt_process_bell);
  }
  if (!look_again(s, ready, arg) && !nap_is_stale(&n)) {
    attend(attending, -1);
    bool rung = tt_bell_sleep(n.bells, n.tickets, n.n, check_ns());
    attend(attending, 1);
    if (!rung) {
      tt_stream_each(check_stream, NULL);
    }
  }
  nap_leave(&n);
}

// Waits that the calling thread is inside of: its own, and its signal handlers'. Also read by a handler, hence volatile.
static _Thread_local volatile sig_atomic_t waits;

bool tt_host_waiting(void)
{
  return waits > 0;
}

void tt_host_wait(tt_stream *s, bool (*ready)(void *arg), void *arg)
{
  waits++;
  if (s != NULL) {
    tt_stream_progress(s, RUN_BYTES, false);
  }
  if (ready(arg)) {
    waits--;
    return;
  }
  if (s != NULL) {
    atomic_fetch_add_explicit(&s->waiters, 1, memory_order_relaxed);
  }
  attend_fn attending = atomic_load_explicit(&tt_host_attend, memory_order_acquire);
  attend(attending, 1);
  patience p = {.tight = tt_host_crowded()};
  while (!ready(arg)) {
    bool moved = s != NULL && tt_stream_progress(s, RUN_BYTES, false);
    if (ready(arg)) {
      break;
    }
    if (!p.tight || p.looks % HELP_EVERY_CROWDED == 0) {
      moved |= tt_stream_help(s, RUN_BYTES);
    }
    if (moved) {
      if (p.tight) {
        atomic_store_explicit(worked_here(), tt_now_ns(), memory_order_relaxed);
      }
      p.deadline = 0;
      p.looks = 0;
    } else if (!pass_time(&p, s)) {
      sleep_once(s, ready, arg, attending);
      p.deadline = 0;
      p.looks = 0;
    }
  }
  attend(attending, -1);
  waits--;
  if (s != NULL) {
    atomic_fetch_sub(&s->waiters, 1);
    if (TT_UNLIKELY(!tt_stream_idle(s))) {
      tt_worker_kick(); // what others have queued meanwhile has nobody who waits for it any more
    }
  }
}

bool tt_host_linger(const tt_stream *s, bool (*ready)(void *arg), void *arg)
{
  patience p = {.tight = true};
  bool over = ready(arg);
  while (!over && pass_time(&p, s)) {
    over = ready(arg);
  }
  return over;
}

// What the calling thread's queries have met since one of them found something. Starts zeroed.
typedef struct poll_streak {
  patience patience;
  bool over; // it has been patient for long enough: every query in vain gives the core away
} poll_streak;
static _Thread_local poll_streak streak;

// A query in vain. It never sleeps: the program may have other things to ask for. So a thread that has been patient gives the core to whoever wants it,
// perhaps the one that is waited for.
static void poll_in_vain(poll_streak *k, const tt_stream *s)
{
  if (k->over) {
    sched_yield();
  } else {
    k->over = !pass_time(&k->patience, s);
  }
}

bool tt_host_poll(tt_stream *s, bool (*ready)(void *arg), void *arg)
{
  if (ready(arg)) {
    return true;
  }
  poll_streak *k = &streak;
  bool moved = s != NULL && tt_stream_progress(s, POLL_BYTES, false), over = ready(arg);
  k->patience.tight = tt_host_crowded();
  if (!over && (!k->patience.tight || k->patience.looks % HELP_EVERY_CROWDED == 0)) {
    moved |= tt_stream_help(s, POLL_BYTES);
    over = ready(arg);
  }
  if (over || moved) {
    *k = (poll_streak){.over = false};
  } else {
    poll_in_vain(k, s);
  }
  return over;
}

static bool stream_idle(void *s)
{
  return tt_stream_idle(s);
}

ncclResult_t tt_stream_wait(tt_stream *s)
{
  atomic_store_explicit(&s->awaited, true, memory_order_relaxed);
  if (!tt_stream_idle(s)) {
    tt_host_wait(s, stream_idle, s);
  }
  return (ncclResult_t)(atomic_load_explicit(&s->error, memory_order_relaxed) == 0
                            ? 0
                            : atomic_exchange_explicit(&s->error, 0, memory_order_acquire));
}

// The worker: one thread per process, started when work is first left behind.
enum { WORKER_NONE, WORKER_TICKING, WORKER_ASLEEP };
static _Atomic int worker_state; // NONE -> TICKING by a kick, TICKING <-> ASLEEP; ASLEEP -> NONE by the worker, which ends
static tt_bell worker_bell;      // rung by a kick that finds it asleep
static pthread_mutex_t worker_lock = PTHREAD_MUTEX_INITIALIZER; // one thread starts it

// A thread that keeps pushing runs its stream itself, a bit with every push: the worker would only be in its way, and be woken for every
// message. So it takes on a stream when nobody has pushed to it for a tick.
typedef struct orphans {
  nap nap;
  bool any;   // streams that nobody waits for
  bool mine;  // some of them are taken on
  bool tick;  // time to look who has pushed
  bool moved; // by run_orphan
} orphans;

static void find_orphan(tt_stream *s, void *arg)
{
  orphans *o = arg;
  if (atomic_load_explicit(&s->waiters, memory_order_relaxed) == 0) {
    o->any = true;
    if (o->tick) {
      uint32_t pushes = atomic_load_explicit(&s->pushes, memory_order_relaxed);
      s->orphan = pushes == s->seen_pushes;
      s->seen_pushes = pushes;
    }
    o->mine |= is_orphan(s);
  }
}

static void run_orphan(tt_stream *s, void *arg)
{
  orphans *o = arg;
  if (is_orphan(s)) {
    o->moved |= tt_stream_progress(s, RUN_BYTES, false);
  }
}

static bool run_orphans(orphans *o)
{
  o->moved = false;
  tt_stream_each(run_orphan, o);
  return o->moved;
}

static void nap_add_orphan(tt_stream *s, void *arg)
{
  if (is_orphan(s)) {
    nap_add_stream(s, arg);
  }
}

static void nap_add_orphans(nap *n)
{
  pthread_mutex_lock(&nap_lock);
  tt_stream_each(nap_add_orphan, n);
  pthread_mutex_unlock(&nap_lock);
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
static bool run_deferred(void)
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
static void check_sometimes(uint64_t *last)
{
  uint64_t now = tt_now_ns();
  if (now - *last >= check_ns()) {
    *last = now;
    tt_stream_each(check_stream, NULL);
  }
}

// When the worker last looked who has pushed, and at the peers. And what it attends by: it does while it runs streams, as whoever waits does.
typedef struct worker_times {
  uint64_t tick, check;
  attend_fn attending; // or NULL
} worker_times;

static void worker_attend(worker_times *w, bool on)
{
  if (on && w->attending == NULL) {
    w->attending = atomic_load_explicit(&tt_host_attend, memory_order_acquire);
    attend(w->attending, 1);
  } else if (!on) {
    attend(w->attending, -1);
    w->attending = NULL;
  }
}

// Runs orphaned streams until none moves; then sleeps on their bells. Returns whether there were any.
static bool worker_round(uint64_t tick, worker_times *last)
{
  bool left = run_deferred();
  uint64_t now = tt_now_ns();
  orphans o = {.tick = now - last->tick >= tick};
  last->tick = o.tick ? now : last->tick;
  tt_stream_each(find_orphan, &o);
  if (o.mine) {
    worker_attend(last, true);
  }
  if (o.any && run_orphans(&o)) {
    return true;
  }
  nap *n = &o.nap;
  nap_add(n, &worker_bell);
  if (o.any) {
    nap_add_orphans(n);
  }
  if (!o.any || (!run_orphans(&o) && !nap_misses_orphan(n))) {
    worker_attend(last, false);
    if (!tt_bell_sleep(n->bells, n->tickets, n->n, tick) && o.any) {
      check_sometimes(&last->check);
    }
  }
  nap_leave(n);
  return o.any || left;
}

// Sleeps until a kick, and returns true. The state says so first, and work pushed meanwhile is looked for once more. False: no kick came for so long that
// the worker ends, so that a process whose main thread has left can end. Whoever pushes changes ASLEEP, or finds NONE and starts another worker.
static bool worker_sleep(void)
{
  uint32_t ticket = tt_bell_announce(&worker_bell);
  atomic_store(&worker_state, WORKER_ASLEEP);
  tt_bell_fence();
  orphans o = {.any = false};
  tt_stream_each(find_orphan, &o);
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
    bool tight = atomic_load_explicit(&crowded, memory_order_relaxed);
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
  pthread_mutex_init(&nap_lock, NULL);
  worker_bell = (tt_bell){0};
  tt_process_bell = (tt_bell){0};
}
