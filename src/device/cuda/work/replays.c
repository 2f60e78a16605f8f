// replays.c: plans in graphs: how long they are, what their replays wait for, ports that are closed before them.
#include <pthread.h>

#include "device/cuda/work/capture.h"
#include "device/cuda/work/capture_priv.h"
#include "os/proc.h"

// Of gpu_capture.place: the host has seen it.
#define PLACE_SEEN 0x80000000u

// The lists of plans in graphs, under the lock where another thread may look: tt_gpu_captures_release. Those of closed
// ports have no owner.
static pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_gpu_port *closed_ports;

void tt_gpu_captures_add(tt_gpu_port *p, gpu_capture *c)
{
  static uint64_t last;
  pthread_mutex_lock(&captures_lock);
  c->number = ++last;
  c->next = p->captures;
  p->captures = c;
  pthread_mutex_unlock(&captures_lock);
}

void tt_gpu_capture_show(gpu_capture *c, gpu_replay_wait *waits, uint32_t n)
{
  pthread_mutex_lock(&captures_lock);
  c->waits = waits;
  c->nwaits = n;
  pthread_mutex_unlock(&captures_lock);
}

// Takes those that the driver has released off the port's list.
static gpu_capture *captures_released(tt_gpu_port *p)
{
  gpu_capture *gone = NULL;
  pthread_mutex_lock(&captures_lock);
  for (gpu_capture **at = &p->captures; *at != NULL;) {
    gpu_capture *c = *at;
    if (atomic_load_explicit(&c->released, memory_order_acquire)) {
      *at = c->next;
      c->next = gone;
      gone = c;
    } else {
      at = &c->next;
    }
  }
  pthread_mutex_unlock(&captures_lock);
  return gone;
}

void tt_gpu_captures_reap(tt_gpu_port *p)
{
  for (gpu_capture *c = captures_released(p), *next; c != NULL; c = next) {
    next = c->next;
    tt_gpu_capture_free(c, false);
  }
}

int tt_gpu_port_captures(tt_gpu_port *p)
{
  int n = 0;
  if (tt_gpu_enter(p->device) == ncclSuccess) {
    tt_gpu_captures_reap(p);
    tt_gpu_leave();
  }
  pthread_mutex_lock(&captures_lock);
  for (const gpu_capture *c = p->captures; c != NULL; c = c->next) {
    n++;
  }
  pthread_mutex_unlock(&captures_lock);
  return n;
}

bool tt_gpu_port_in_graphs(const tt_gpu_port *p)
{
  bool any = false;
  pthread_mutex_lock(&captures_lock);
  for (const gpu_capture *c = p->captures; c != NULL && !any; c = c->next) {
    any = !atomic_load_explicit(&c->released, memory_order_acquire);
  }
  pthread_mutex_unlock(&captures_lock);
  return any;
}

ncclResult_t tt_gpu_port_replays(tt_gpu_port *p, bool *any)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUresult error = CUDA_SUCCESS;
  TT_TRY(tt_gpu_reenter(p->device, p->epoch));
  pthread_mutex_lock(&captures_lock);
  for (const gpu_capture *c = p->captures; c != NULL && error == CUDA_SUCCESS; c = c->next) {
    error = cu->EventQuery(c->over);
  }
  pthread_mutex_unlock(&captures_lock);
  tt_gpu_leave();
  if (error != CUDA_ERROR_NOT_READY) {
    TT_CUDA(cu, error, "GPU %d: a captured plan has failed", p->device);
  }
  *any = error == CUDA_ERROR_NOT_READY;
  return ncclSuccess;
}

// The wait in which the capture's stream stands: `place` is one more than the number of the first of those.
static const gpu_replay_wait *stands_for(const gpu_capture *c, uint32_t place)
{
  const gpu_replay_wait *w = &c->waits[place - 1];
  while ((int32_t)(atomic_load_explicit(w->word, memory_order_acquire) - w->value) >= 0) {
    if (w->last) {
      return NULL; // it goes on at this moment
    }
    w++;
  }
  return w;
}

// What the capture's replay waits for; NULL: nothing. The stream overwrites PLACE_SEEN when it moves.
static const gpu_replay_wait *capture_stands(gpu_capture *c)
{
  uint32_t place = c->waits != NULL ? atomic_load_explicit(c->place, memory_order_acquire) : 0;
  if (place == 0) {
    return NULL;
  }
  if (!(place & PLACE_SEEN)) {
    c->moved++;
    atomic_compare_exchange_strong(c->place, &place, place | PLACE_SEEN);
  }
  place &= ~PLACE_SEEN;
  return place > 0 && place <= c->nwaits ? stands_for(c, place) : NULL;
}

// Replays of several plans may wait at a time: one that has not moved since the last look comes first.
bool tt_gpu_port_waits(tt_gpu_port *p, tt_wait *wait, uint64_t *mark)
{
  bool any = false, still = false;
  pthread_mutex_lock(&captures_lock);
  for (gpu_capture *c = p->captures; c != NULL && !still; c = c->next) {
    const uint32_t before = c->moved;
    const gpu_replay_wait *w = capture_stands(c);
    if (w != NULL && (!any || c->moved == before)) {
      const gpu_traffic *t = &c->traffic[w->traffic];
      any = true;
      still = c->moved == before;
      *mark = c->number * 0x10001 + c->moved;
      *wait =
          (tt_wait){.peer = (uint32_t)t->peer, .how = TT_WAIT_REPLAY | w->how, .sig = t->sig, .count = t->sig_count};
    }
  }
  pthread_mutex_unlock(&captures_lock);
  return any;
}

// Without the lock: the caller alone changes the list by now, and the network may take its time.
void tt_gpu_captures_leave(const tt_gpu_port *p)
{
  for (const gpu_capture *c = p->captures; c != NULL; c = c->next) {
    for (uint32_t i = 0; i < c->ntraffic; i++) {
      tt_gpu_fifo_leave(&c->traffic[i].end);
    }
  }
}

void tt_gpu_captures_release(const tt_gpu_port *p)
{
  pthread_mutex_lock(&captures_lock);
  for (const gpu_capture *c = p->captures; c != NULL; c = c->next) {
    for (uint32_t i = 0; i < c->ntraffic; i++) {
      tt_gpu_fifo_release(&c->traffic[i].end);
    }
  }
  pthread_mutex_unlock(&captures_lock);
}

void tt_gpu_captures_tokens(const tt_gpu_port *p, void (*fn)(tt_fifo_line *line, int peer, bool sends, void *arg),
                            void *arg)
{
  pthread_mutex_lock(&captures_lock);
  for (const gpu_capture *c = p->captures; c != NULL; c = c->next) {
    for (uint32_t i = 0; i < c->ntraffic; i++) {
      const gpu_traffic *t = &c->traffic[i];
      if (t->kind == TT_TOK) {
        fn(tt_fifo_line_of(&t->end.fifo), t->peer, t->sends, arg);
      }
    }
  }
  pthread_mutex_unlock(&captures_lock);
}

// ---- Ports that are closed, with graphs of the program that it has not destroyed ----

void tt_gpu_closed_add(tt_gpu_port *p)
{
  pthread_mutex_lock(&captures_lock);
  p->next = closed_ports;
  closed_ports = p;
  pthread_mutex_unlock(&captures_lock);
}

void tt_gpu_closed_reap(void)
{
  pthread_mutex_lock(&captures_lock);
  tt_gpu_port *p = closed_ports, *next; // this thread's now
  closed_ports = NULL;
  pthread_mutex_unlock(&captures_lock);
  for (; p != NULL; p = next) {
    next = p->next;
    if (tt_gpu_port_captures(p) > 0) {
      tt_gpu_closed_add(p);
    } else {
      tt_gpu_port_free(p);
    }
  }
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void captures_in_child(void)
{
  closed_ports = NULL;
  pthread_mutex_init(&captures_lock, NULL);
}

__attribute__((constructor)) static void captures_at_start(void)
{
  static tt_fork_hook hook = {.fn = captures_in_child};
  tt_proc_on_fork(&hook);
}
