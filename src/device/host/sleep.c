// sleep.c: how a waiting thread sleeps: on which bells, and how no wake-up is lost.
//
// Sleeping is safe because a thread first announces itself on the bells of its own stream and of all streams for which
// no other thread waits, and looks at all of them once more. Whatever makes one of them runnable afterwards rings its
// bell.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include "base/param.h"
#include "device/host/wait_priv.h"

// Held while a thread picks bells from streams and announces itself. A thread that frees a bell takes it once in
// between (tt_bell_retire).
static pthread_mutex_t pick_lock = PTHREAD_MUTEX_INITIALIZER;

void tt_bell_retire(tt_bell *bell)
{
  pthread_mutex_lock(&pick_lock);
  pthread_mutex_unlock(&pick_lock);
  while (atomic_load_explicit(&bell->sleepers, memory_order_acquire) != 0) {
    tt_bell_wake(bell);
    sched_yield();
  }
}

static tt_bell *stream_bell(const tt_stream *s)
{
  tt_bell *bell = atomic_load_explicit(&s->bell, memory_order_acquire);
  return bell != NULL ? bell : &tt_process_bell;
}

static bool bell_set_has(const tt_bell_set *n, const tt_bell *bell)
{
  bool found = false;
  for (int i = 0; i < n->n; i++) {
    found |= n->bells[i] == bell;
  }
  return found;
}

void tt_bell_set_add(tt_bell_set *n, tt_bell *bell)
{
  if (n->n < TT_BELL_MAX && !bell_set_has(n, bell)) {
    n->bells[n->n] = bell;
    n->tickets[n->n++] = tt_bell_announce(bell);
  }
}

static void bell_set_add_stream(tt_stream *s, void *arg)
{
  tt_bell_set *n = arg;
  if (n->answers(s, n->own)) {
    tt_bell_set_add(n, stream_bell(s));
  }
}

void tt_bell_set_add_streams(tt_bell_set *n)
{
  pthread_mutex_lock(&pick_lock);
  if (n->own != NULL && !tt_stream_idle(n->own)) {
    bell_set_add_stream(n->own, n); // first: TT_BELL_MAX must not leave it out
  }
  tt_stream_each(bell_set_add_stream, n);
  pthread_mutex_unlock(&pick_lock);
}

static void bell_set_compare(tt_stream *s, void *arg)
{
  tt_bell_set *n = arg;
  if (n->answers(s, n->own)) {
    n->stale |= n->n < TT_BELL_MAX && !bell_set_has(n, stream_bell(s));
  }
}

bool tt_bell_set_is_stale(tt_bell_set *n)
{
  tt_stream_each(bell_set_compare, n);
  return n->stale;
}

bool tt_bell_set_sleep(const tt_bell_set *n, uint64_t ns)
{
  return tt_bell_sleep((tt_bell **)n->bells, n->tickets, n->n, ns);
}

bool tt_bell_set_alarmed(const tt_bell_set *n)
{
  bool any = false;
  for (int i = 0; i < n->n; i++) {
    any |= tt_bell_alarmed(n->bells[i]);
  }
  return any;
}

void tt_bell_set_leave(const tt_bell_set *n)
{
  for (int i = 0; i < n->n; i++) {
    tt_bell_leave(n->bells[i]);
  }
}

static void peer_check_stream(tt_stream *s, void *arg)
{
  (void)arg;
  tt_stream_check(s);
}

void tt_peer_check_streams(void)
{
  tt_stream_each(peer_check_stream, NULL);
}

// A waiting thread answers for its own stream and for those that no thread waits for.
static bool sleeper_answers(const tt_stream *s, const tt_stream *own)
{
  return s == own || atomic_load_explicit(&s->waiters, memory_order_relaxed) == 0;
}

static bool sleeper_looks(tt_stream *s, bool (*ready)(void *arg), void *arg)
{
  bool moved = s != NULL && tt_stream_progress(s, TT_WAIT_BYTES, true);
  moved |= tt_stream_help(s, TT_WAIT_BYTES);
  return moved || ready(arg);
}

bool tt_sleep_once(tt_stream *s, bool (*ready)(void *arg), void *arg, tt_attend_fn attending, uint64_t ns)
{
  tt_bell_set n = {.answers = sleeper_answers, .own = s};
  if (s == NULL || tt_stream_idle(s)) {
    tt_bell_set_add(&n, &tt_process_bell);
  }
  tt_bell_set_add_streams(&n);
  if (n.n == 0) {
    tt_bell_set_add(&n, &tt_process_bell);
  }
  bool rung = true;
  if (!sleeper_looks(s, ready, arg) && !tt_bell_set_is_stale(&n)) {
    rung = !tt_bell_set_alarmed(&n);
    if (rung) {
      tt_attend(attending, -1);
      rung = tt_bell_set_sleep(&n, ns) && !tt_bell_set_alarmed(&n);
      tt_attend(attending, 1);
    }
    if (!rung) {
      tt_peer_check_streams();
    }
  }
  tt_bell_set_leave(&n);
  return rung;
}

void tt_sleep_forget(void)
{
  pthread_mutex_init(&pick_lock, NULL);
  tt_process_bell = (tt_bell){0};
}
