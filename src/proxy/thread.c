// thread.c: the process's progress thread: drives the proxies that nobody else drives (seed 001, part 5).
//
// It is started with the first proxy. It ends when it has slept for a second (LONGEST_NS) while there was no proxy, so
// that a process whose main thread has left can end. Its users are the places of the table that are not free: a place
// is taken before tt_proxy_thread_start, and free before tt_proxy_thread_left, which rings. The thread counts them
// under `lock` before it ends. So a place that was taken before is counted. A proxy that takes one later finds the
// state NONE under `lock`, and starts another thread.
//
// How it passes the time between two looks is its state:
//   NONE     There is no thread.
//   AWAKE    It looks, or will look before it rests.
//   NAPPING  Proxies are driven by attending or launching threads: it comes back after a tick. Or their networks cannot
//            be watched: after a short sleep.
//   POLLING  Operations of its own wait for the network: it sleeps on the networks' descriptors.
//   MIXED    The same, and attending threads drive other proxies: at most a tick.
//   ASLEEP   There are no operations.
//
// No wake-up is lost. The protocol is that of bell.h, with `state` as the sleepers' word and an eventfd in place of the
// futex:
//   A thread that leaves operations behind posts them, drives the proxy, fences, looks at the state, and wakes
//   (tt_proxy_kick, tt_proxy_attend).
//   The progress thread says that it will rest, fences, looks at everything once more, and rests if nothing moved.
// So either the leaver sees the state, or the second look sees the operation. In POLLING the wake is saved when the
// network of the proxy is watched: the descriptors are edge-triggered, and the leaver has tested everything after the
// operation was posted, so whatever happens later makes an edge. In MIXED an edge may go by while the thread leaves
// that proxy to others: hence the tick.
//
// The networks' descriptors are in the thread's set only while it rests on them, and a little longer (prepare_rest).
// The same holds for what they stand for in the networks' own sets (net.h: watch_events). For a sender pays for each
// set that the receiving socket is in. Both come in before the thread says how it rests. What happened until then, the
// second look finds. What happens later finds a socket in a set in a set.
// tests/proxy_model_test.c runs this code in all interleavings.
#include <string.h>

#include "base/result.h"
#include "os/clock.h"
#include "os/shm.h"
#include "os/thread.h"
#include "os/events.h"
#include "proxy/proxy_priv.h"

#define TICK_NS (1 * TT_NS_PER_MS) // between two looks at what others drive
#define TICK_CROWDED_NS (10 * TT_NS_PER_MS)
#define BLIND_NS 50000ull // sleep where a network has no descriptor
// Longest sleep on descriptors: what a network that forgets an event costs; and without a proxy.
#define LONGEST_NS TT_NS_PER_S
#ifndef IDLE_TICKS    // a test takes fewer of both
#define IDLE_TICKS 50 // ticks without operations before it falls asleep
#define RESTS_APART 4 // rests that taking a descriptor out of its set, and putting it back, is worth
#endif

enum { NONE, AWAKE, NAPPING, POLLING, MIXED, ASLEEP };
static _Atomic int state;     // a thread that wakes it sets AWAKE. From and to NONE under `lock` only
static _Atomic int attending; // threads that drive proxies
static _Atomic bool deserted; // the last of them has gone, or sleeps, and left operations behind
static _Atomic bool crowded;  // the machine has more ranks than cores
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // the thread is started, or ends
struct tt_proxy_thread_tests tt_proxy_thread_tests = {.longest_ns = LONGEST_NS};
static int wake_fd = -1, set_fd = -1; // written under `lock` before the first thread starts; kept for later ones

// The networks' descriptors. All under `lock`, which comes before a network's own.
typedef struct watch {
  tt_span key; // its descriptor, in `watched`
  int fd;
  const tt_net_ops *net; // with `ctx`, until tt_proxy_thread_unwatch
  void *ctx;
} watch;

static tt_span *watched;
static bool listening; // they are in the set; the thread's to change
static int nlistened;  // descriptors, also the networks' own, that came into sets when it began to; about, as networks
                       // come and go

// ---- what others call

static void wake_thread(int seen)
{
  if (atomic_compare_exchange_strong(&state, &seen, AWAKE)) {
    tt_ring(wake_fd); // one wake is enough
  }
}

static void find_pending(tt_proxy *p, void *found)
{
  *(bool *)found |= tt_proxy_busy(p);
}

static bool any_pending(void)
{
  bool found = false;
  tt_proxy_each(find_pending, &found);
  return found;
}

// Will an event of its network make the thread look at this proxy?
static bool is_proxy_watched(const tt_proxy *p)
{
  return atomic_load_explicit(&p->events_fd, memory_order_relaxed) >= 0 &&
         !atomic_load_explicit(&p->refused, memory_order_relaxed) &&
         atomic_load_explicit(&p->incoming, memory_order_relaxed) == NULL;
}

void tt_proxy_kick(tt_proxy *p, bool lazily)
{
  if (!tt_proxy_busy(p)) {
    return;
  }
  if (!lazily) {
    atomic_store_explicit(&p->left, true, memory_order_relaxed);
  }
  tt_bell_fence();
  int s = atomic_load_explicit(&state, memory_order_relaxed);
  if (s == ASLEEP || (s == NAPPING && !lazily) || ((s == POLLING || s == MIXED) && !is_proxy_watched(p))) {
    wake_thread(s);
  }
}

void tt_proxy_attend(int delta)
{
  int left = atomic_fetch_add(&attending, delta) + delta;
  if (delta > 0) {
    if (atomic_load_explicit(
            &deserted,
            memory_order_relaxed)) { // counted in before: nobody else is the last one until this thread leaves
      atomic_store_explicit(&deserted, false, memory_order_relaxed);
    }
    return;
  }
  if (left == 0 && any_pending()) {
    atomic_store_explicit(&deserted, true, memory_order_relaxed);
    tt_bell_fence();
  } else {
    tt_bell_fence_after_rmw();
  }
  int s = atomic_load_explicit(&state, memory_order_relaxed);
  if ((s == ASLEEP || (left == 0 && (s == NAPPING || s == MIXED))) && any_pending()) {
    wake_thread(s);
  }
}

// ---- the thread

typedef struct survey {
  uint64_t now, tick;
  bool alone;   // no thread attends, and the last that did has left operations behind
  bool rests;   // it is the look before a rest: neighbours shall ring (relay.h)
  bool pending; // there are operations
  bool mine;    // some that the thread has to drive
  bool others;  // some that others drive
  bool blind;   // some of the thread's own that no event will tell of
  bool moved;
} survey;

// Does somebody look after this proxy: a thread that attends, or one that keeps launching, and drives with every
// launch? One that has not been driven for a tick has been left.
static bool is_driven(tt_proxy *p, const survey *s)
{
  uint32_t driven = tt_proxy_count(&p->driven);
  if (s->alone || atomic_load_explicit(&p->left, memory_order_relaxed)) {
    return false;
  }
  if (driven != p->seen.driven) {
    p->seen.driven = driven;
    p->seen.ns = s->now;
  }
  return s->now - p->seen.ns < s->tick;
}

// Tells the proxy's profilers that the thread has something to do for it, or nothing any more.
static void tell_busy(tt_proxy *p, bool busy)
{
  if (p->seen.busy == busy || !tt_proxy_run_take(p, false)) {
    return;
  }
  tt_prof_event e;
  p->seen.busy = busy;
  tt_proxy_prof_ctrl_start(p, &e, busy ? ncclProfilerProxyCtrlActive : ncclProfilerProxyCtrlIdle);
  if (tt_prof_is_on(&e)) {
    tt_profilers_stop(p->profilers, &e);
  }
  tt_proxy_run_release(p);
}

// The thread goes to sleep, or has woken up.
static void tell_sleep(tt_proxy *p, void *arg)
{
  bool sleeps = *(const bool *)arg;
  if (p->profilers == NULL || !tt_proxy_run_take(p, false)) {
    return;
  }
  if (sleeps && !tt_prof_is_on(&p->asleep)) { // else somebody had the flag when it woke up last
    tt_proxy_prof_ctrl_start(p, &p->asleep, ncclProfilerProxyCtrlSleep);
  } else if (!sleeps) {
    tt_proxy_prof_ctrl_stop(p, &p->asleep, ncclProfilerProxyCtrlWakeup, 0);
  }
  tt_proxy_run_release(p);
}

static void visit_proxy(tt_proxy *p, void *arg)
{
  survey *s = arg;
  if (TT_UNLIKELY(p->profilers != NULL)) {
    tell_busy(p, tt_proxy_busy(p));
  }
  if (!tt_proxy_busy(p)) {
    p->seen.ns = s->now; // new operations get a tick, too, until somebody is missed
    return;
  }
  s->pending = true;
  if (is_driven(p, s)) {
    s->others = true;
    return;
  }
  if (s->rests && (atomic_load_explicit(&p->pxn.nclients, memory_order_relaxed) != 0 ||
                   atomic_load_explicit(&p->pxn.relays, memory_order_relaxed) != NULL)) {
    atomic_store(&p->rests, true);
  }
  s->moved |= tt_proxy_look(p);
  bool waits = !tt_proxy_idle(p) || atomic_load_explicit(&p->pxn.sending, memory_order_relaxed);
  bool hears = is_proxy_watched(p);
  if (!waits && !hears && tt_proxy_takes_puts(p)) { // nothing may ever come: a look at every tick will do
    s->others = true;
    return;
  }
  s->mine = true;
  s->blind |= waits && !hears;
}

// The thread's own: rests since it last slept on descriptors; could they not be put into the set?
static int naps;
static bool deaf;

// The one after `w` (NULL: the first one). NULL: there is none.
static watch *next_watch(const watch *w)
{
  tt_span *key = tt_spans_from(watched, w == NULL ? 0 : w->key.start + 1, 0);
  return key == NULL ? NULL : TT_SPAN_OWNER(key, watch, key);
}

// Puts a network's descriptor into the set, and what it stands for into the network's own. The number of descriptors,
// or -errno: none.
static int listen_to(const watch *w)
{
  int n = w->net->watch_events == NULL ? 0 : w->net->watch_events(w->ctx, true);
  int e = n < 0 ? n : tt_events_add(set_fd, w->fd, true);
  if (e != 0 && n >= 0 && w->net->watch_events != NULL) {
    w->net->watch_events(w->ctx, false);
  }
  return e != 0 ? e : n + 1;
}

static void stop_listening_to(const watch *w)
{
  tt_events_remove(set_fd, w->fd);
  if (w->net->watch_events != NULL) {
    w->net->watch_events(w->ctx, false);
  }
}

// Takes out those in the list before `end`; NULL: all.
static void stop_listening(const watch *end)
{
  for (const watch *w = next_watch(NULL); w != end; w = next_watch(w)) {
    stop_listening_to(w);
  }
  listening = false;
}

// Puts the networks' descriptors into the set. False: one could not be put there, and none is.
static bool listen_to_networks(void)
{
  pthread_mutex_lock(&lock);
  if (!listening) {
    nlistened = 0;
    const watch *w = next_watch(NULL);
    for (int n; w != NULL && (n = listen_to(w)) > 0; w = next_watch(w)) {
      nlistened += n;
    }
    listening = w == NULL;
    if (!listening) {
      stop_listening(w);
    }
  }
  bool all = listening;
  pthread_mutex_unlock(&lock);
  return all;
}

// Takes them out, where the thread has done without for so long that putting them back costs little beside that; that
// it falls asleep says so, too.
static void ignore_networks(int kind)
{
  pthread_mutex_lock(&lock);
  if (listening && (kind == ASLEEP || naps >= RESTS_APART * nlistened)) {
    stop_listening(NULL);
  }
  pthread_mutex_unlock(&lock);
}

// Before a rest of this kind. False: the thread cannot rest like that. Then it is deaf until its next sleep, which is a
// short one.
static bool prepare_rest(int kind)
{
  if (kind == POLLING || kind == MIXED) {
    naps = 0;
    deaf = !listen_to_networks();
    return !deaf;
  }
  if (listening) {
    naps++;
    ignore_networks(kind);
  }
  return true;
}

static survey look_around(bool rests)
{
  survey s = {.rests = rests,
              .blind = deaf,
              .now = tt_now_ns(),
              .tick = atomic_load_explicit(&crowded, memory_order_relaxed) ? TICK_CROWDED_NS : TICK_NS,
              .alone = atomic_load_explicit(&attending, memory_order_acquire) <= 0 &&
                       atomic_load_explicit(&deserted, memory_order_relaxed)};
  if (TT_LIKELY(!atomic_load_explicit(&tt_proxy_thread_tests.held, memory_order_acquire))) {
    tt_proxy_each(visit_proxy, &s);
  }
  return s;
}

// How to rest after such a look; AWAKE: not at all. It rests at once: where others compute on every core, a thread that
// yields first gets its core back milliseconds later.
static int choose_rest(const survey *s, int idle)
{
  if (s->moved) {
    return AWAKE;
  }
  if (!s->pending) {
    return idle > IDLE_TICKS ? ASLEEP : NAPPING;
  }
  return !s->mine || s->blind ? NAPPING : s->others ? MIXED : POLLING;
}

static void count_user(tt_proxy *p, void *users)
{
  *(int *)users += atomic_load_explicit(&p->life, memory_order_acquire) != TT_PROXY_FREE;
}

static int count_users(void)
{
  int users = 0;
  tt_proxy_each(count_user, &users);
  return users;
}

// Returns since when the thread has slept without a proxy to come back for; 0: there was one.
static uint64_t sleep_as(int kind, const survey *s)
{
  uint64_t longest = atomic_load_explicit(&tt_proxy_thread_tests.longest_ns, memory_order_relaxed), unused_ns = 0;
  switch (kind) {
  case ASLEEP:
    unused_ns = count_users() == 0 ? tt_now_ns() : 0;
    tt_ring_wait(wake_fd, unused_ns == 0 ? TT_EVENTS_FOREVER : longest);
    break;
  case POLLING: tt_events_wait(set_fd, longest); break;
  case MIXED: tt_events_wait(set_fd, s->tick); break;
  default: tt_ring_wait(wake_fd, s->blind ? BLIND_NS : s->tick); break;
  }
  return unused_ns;
}

// Has the thread been without a proxy since `unused_ns` (0: it had one) for long enough, and still is? Then there is no
// thread from here on. Nobody has woken it: its state is the same.
static bool thread_has_ended(uint64_t unused_ns)
{
  int asleep = ASLEEP;
  if (unused_ns == 0 ||
      tt_now_ns() - unused_ns < atomic_load_explicit(&tt_proxy_thread_tests.longest_ns, memory_order_relaxed)) {
    return false;
  }
  pthread_mutex_lock(&lock);
  bool over = count_users() == 0 && atomic_compare_exchange_strong(&state, &asleep, NONE);
  pthread_mutex_unlock(&lock);
  return over;
}

// Returns whether the thread goes on.
static bool rest(int kind, int idle)
{
  if (!prepare_rest(kind)) {
    return true;
  }
  atomic_store(&state, kind);
  tt_bell_fence();
  survey s = look_around(true);
  if (choose_rest(&s, idle) == kind) {
    bool sleeps = kind != NAPPING;
    if (sleeps) {
      tt_proxy_each(tell_sleep, &sleeps);
    }
    uint64_t unused_ns = sleep_as(kind, &s);
    deaf = false;
    if (sleeps) {
      sleeps = false;
      tt_proxy_each(tell_sleep, &sleeps);
    }
    tt_ring_clear(wake_fd);
    if (thread_has_ended(unused_ns)) {
      return false;
    }
  }
  atomic_exchange(&state, AWAKE); // an exchange: the look that follows must not be earlier
  return true;
}

// Looks around, and returns how to rest.
static int look_once(int *idle)
{
  survey s = look_around(false);
  atomic_fetch_add_explicit(&tt_proxy_thread_tests.rounds, 1, memory_order_relaxed);
  *idle = s.pending ? 0 : TT_MIN(*idle + 1, IDLE_TICKS + 1);
  return choose_rest(&s, *idle);
}

static void *progress_main(void *unused)
{
  int idle = 0;
  for (bool on = true; on;) {
    int kind = look_once(&idle);
    on = kind == AWAKE || rest(kind, idle);
  }
  return unused;
}

// ---- start

static ncclResult_t open_fds(void)
{
  int e = wake_fd >= 0 ? 0 : tt_ring_open(&wake_fd);
  if (e == 0 && set_fd < 0) {
    e = tt_events_open(&set_fd);
    e = e != 0 ? e : tt_events_add(set_fd, wake_fd, true);
  }
  return e == 0 ? ncclSuccess
                : tt_fail(ncclSystemError, "cannot start the progress thread: %s (see ulimit -n)", strerror(-e));
}

ncclResult_t tt_proxy_thread_start(bool is_crowded)
{
  if (is_crowded) {
    atomic_store_explicit(&crowded, true, memory_order_relaxed);
  }
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&lock);
  if (atomic_load_explicit(&state, memory_order_relaxed) == NONE) {
    res = open_fds();
    atomic_store(&state, AWAKE); // before it starts: it says itself when it rests
    if (res == ncclSuccess) {
      res = tt_thread_start_detached("tutti proxy", progress_main, NULL);
    }
    if (res != ncclSuccess) {
      atomic_store(&state, NONE);
    }
  }
  pthread_mutex_unlock(&lock);
  return res;
}

void tt_proxy_thread_left(void)
{
  pthread_mutex_lock(&lock);
  if (atomic_load_explicit(&state, memory_order_relaxed) != NONE) {
    tt_ring(wake_fd); // asleep, it counts its users again
  }
  pthread_mutex_unlock(&lock);
}

int tt_proxy_thread_bell(void)
{
  return wake_fd;
}

// NULL: nobody watches this descriptor. Caller holds `lock`.
static watch *find_watch(int fd)
{
  tt_span *key = fd < 0 ? NULL : tt_spans_same(watched, (uintptr_t)fd, 1);
  return key == NULL ? NULL : TT_SPAN_OWNER(key, watch, key);
}

// Into the set at once, to see that this works; not what somebody has put there, as the set would say: a network's own
// descriptor is nobody else's. Caller holds `lock`.
static bool watch_now(const tt_net_ops *net, void *ctx, int fd)
{
  watch *w = find_watch(fd) == NULL ? tt_calloc(1, sizeof *w) : NULL;
  int n = -1;
  if (w != NULL) {
    *w = (watch){.key = {.start = (uintptr_t)fd, .size = 1}, .fd = fd, .net = net, .ctx = ctx};
    n = listen_to(w);
  }
  if (n < 0) {
    tt_free(w);
    if (net->watch_events != NULL) { // nobody will sleep on it
      net->watch_events(ctx, false);
    }
    return false;
  }
  if (!listening) {
    stop_listening_to(w);
  }
  nlistened += n;
  tt_spans_add(&watched, &w->key);
  return true;
}

bool tt_proxy_thread_watch(const tt_net_ops *net, void *ctx, int fd)
{
  pthread_mutex_lock(&lock);
  bool done = fd >= 0 && watch_now(net, ctx, fd);
  pthread_mutex_unlock(&lock);
  return done;
}

void tt_proxy_thread_unwatch(int fd)
{
  pthread_mutex_lock(&lock);
  watch *w = find_watch(fd);
  if (w != NULL) {
    if (listening) {
      stop_listening_to(w);
    }
    tt_spans_remove(&watched, &w->key);
    tt_free(w);
  }
  pthread_mutex_unlock(&lock);
}

bool tt_proxy_thread_runs(void)
{
  return atomic_load(&state) != NONE;
}

void tt_proxy_thread_forget(void)
{
  tt_fd_close(wake_fd);
  tt_fd_close(set_fd);
  wake_fd = set_fd = -1;
  watched = NULL; // the parent may have been about to change them
  nlistened = 0;
  listening = deaf = false;
  naps = 0;
  atomic_store(&state, NONE);
  atomic_store(&attending, 0);
  atomic_store(&deserted, false);
  pthread_mutex_init(&lock, NULL);
}
