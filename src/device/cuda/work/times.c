// times.c: see times.h.
#include "device/cuda/work/times.h"

#include <string.h>

#include "base/log.h"
#include "device/cuda/work/pool.h"

enum { START, STOP, TIMES };

// Pinned.
typedef struct gpu_times {
  int n, begun; // channels
  _Atomic uint64_t of[][TIMES];
} gpu_times;

void tt_gpu_times_open(tt_gpu_port *p, tt_plan *plan)
{
  const size_t bytes = sizeof(gpu_times) + (size_t)plan->nlanes * TIMES * sizeof(uint64_t);
  plan->times = NULL;
  ncclResult_t res = tt_gpu_enter(p->device); // some context, for pinned memory
  if (res == ncclSuccess) {
    res = tt_gpu_pool_take(TT_GPU_PINNED, bytes, &plan->times);
    tt_gpu_leave();
  }
  if (res != ncclSuccess) {
    tt_info(TT_PROFILE, "rank %d: profilers are not told when an operation's channels run: %s", p->port->rank,
            tt_last_error());
    return;
  }
  gpu_times *t = plan->times;
  memset(t, 0, bytes);
  for (int i = 0; i < plan->nlanes; i++) {
    tt_stamp *s = plan->lanes[i].stamp;
    if (s->owner != NULL && s->times == NULL) {
      s->times = t->of[t->n++];
    }
  }
}

static uint64_t time_place(const tt_stamp *s, int which)
{
  return s->times != NULL ? gpu_address(&s->times[which]) : 0;
}

uint64_t tt_gpu_time_start(const tt_lane *l)
{
  const bool first = !l->stamp->timed;
  l->stamp->timed = true;
  return first ? time_place(l->stamp, START) : 0;
}

uint64_t tt_gpu_time_stop(const tt_lane *l)
{
  return time_place(l->stamp, STOP);
}

// Has the channel begun?
static bool time_begun(tt_stamp *s)
{
  if (s->start == 0 && s->times != NULL) {
    s->start = s->first = atomic_load_explicit(&s->times[START], memory_order_relaxed);
  }
  return s->start != 0;
}

bool tt_gpu_times_look(tt_plan *plan)
{
  gpu_times *t = plan->times;
  bool any = false;
  for (int i = 0; t != NULL && t->begun < t->n && i < plan->nlanes; i++) {
    tt_stamp *s = plan->lanes[i].stamp;
    if (s->start == 0 && time_begun(s)) {
      s->next = plan->begun;
      plan->begun = s;
      t->begun++;
      any = true;
    }
  }
  return any;
}

void tt_gpu_times_close(tt_plan *plan)
{
  for (int i = 0; plan->times != NULL && i < plan->nlanes; i++) {
    tt_stamp *s = plan->lanes[i].stamp;
    if (time_begun(s)) { // else the port has stopped before
      s->stop = TT_MAX(s->start, atomic_load_explicit(&s->times[STOP], memory_order_relaxed));
      s->last = s->stop;
    }
  }
  tt_gpu_pool_give(TT_GPU_PINNED, plan->times);
  plan->times = NULL;
}
