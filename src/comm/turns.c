// turns.c: see turns.h.
#include "comm/turns.h"

#include "base/result.h"
#include "os/clock.h"
#include "os/socket.h"

#define LOOK_NS 200000ull

void tt_turns_init(tt_turns *l)
{
  *l = (tt_turns){.first = NULL};
  l->end = &l->first;
  pthread_mutex_init(&l->lock, NULL);
}

bool tt_turns_add(tt_turns *l, tt_turn *t, volatile uint32_t *abort_flag, bool ringless)
{
  pthread_mutex_lock(&l->lock);
  bool good = !l->aborted;
  if (good) {
    *t = (tt_turn){.place = l->end, .abort_flag = abort_flag, .cut = l->cut, .ringless = ringless};
    *l->end = t;
    l->end = &t->next;
    atomic_fetch_add(&l->waiting, 1);
  }
  pthread_mutex_unlock(&l->lock);
  return good;
}

// Under the lock: `t` gives up. Behind one that is cut all are.
static void cut_from(tt_turns *l, tt_turn *t)
{
  for (; t != NULL && !t->cut; t = t->next) {
    t->cut = true;
  }
  l->cut = true;
}

ncclResult_t tt_turns_await(tt_turns *l, tt_turn *t)
{
  for (;;) {
    pthread_mutex_lock(&l->lock);
    bool aborted = tt_aborted(t->abort_flag), cut = t->cut, first = l->first == t;
    if (aborted && !first && !t->ringless) {
      cut_from(l, t);
    }
    pthread_mutex_unlock(&l->lock);
    if (aborted && !first) {
      return ncclInternalError;
    }
    if (cut && !t->ringless) {
      return tt_fail(ncclRemoteError,
                     "ncclCommSplit: an earlier split of this communicator was aborted before its turn");
    }
    if (first) {
      return ncclSuccess; // the ring looks at the flag
    }
    tt_sleep_ns(LOOK_NS);
  }
}

void tt_turns_leave(tt_turns *l, tt_turn *t, tt_bootstrap *ring)
{
  pthread_mutex_lock(&l->lock);
  *t->place = t->next;
  *(t->next != NULL ? &t->next->place : &l->end) = t->place;
  if (l->cut && (l->first == NULL || l->first->cut)) {
    tt_bootstrap_stop(ring);
  }
  atomic_fetch_sub(&l->waiting, 1);
  pthread_mutex_unlock(&l->lock);
}

// Under the lock.
static void stop_turns(tt_turns *l)
{
  for (tt_turn *t = l->first; t != NULL; t = t->next) {
    t->stopped = true;
    __atomic_store_n(t->abort_flag, 1, __ATOMIC_RELEASE);
  }
}

void tt_turns_stop(tt_turns *l)
{
  pthread_mutex_lock(&l->lock);
  stop_turns(l);
  pthread_mutex_unlock(&l->lock);
}

void tt_turns_abort(tt_turns *l)
{
  pthread_mutex_lock(&l->lock);
  l->aborted = true;
  stop_turns(l);
  pthread_mutex_unlock(&l->lock);
}

void tt_turns_drain(tt_turns *l)
{
  for (;;) {
    pthread_mutex_lock(&l->lock);
    bool empty = l->first == NULL;
    pthread_mutex_unlock(&l->lock);
    if (empty) {
      return;
    }
    tt_sleep_ns(LOOK_NS);
  }
}
