// hold.c: plans on their way from a call to the ranks' streams: their buffers are made ready for the peers, and those
// of a group are held back until all of it are there (rank.h).
#include <string.h>

#include "device/cuda/work/rank.h"
#include "device/cuda/work/rma.h"
#include "device/cuda/work/stage.h"

// Plans that the thread has been given and holds back.
static _Thread_local struct {
  bool on;
  tt_gpu_work *works;
  int n, room;
  struct {
    tt_gpu_stream *earlier, *later;
  } * orders;
  int norders, orders_room;
} held;

// Makes sure that the plan's peers reach its buffers, and keeps it for the end of the group, if there is one.
static ncclResult_t hold_prepare(tt_gpu_work *w)
{
  w->captured = tt_gpu_stream_is_captured(w->stream);
  TT_TRY(tt_gpu_stage(w));
  if (held.on && !tt_grow(&held.works, held.n, 1, &held.room, sizeof *held.works)) {
    return tt_fail(ncclSystemError, "rank %d: no memory for a group of operations", w->plan->port->rank);
  }
  return ncclSuccess;
}

ncclResult_t tt_gpu_submit_plan(tt_plan *plan, tt_gpu_stream *stream)
{
  tt_gpu_work w = {.port = tt_gpu_rank_port(plan->port), .stream = stream, .plan = plan};
  tt_gpu_ranks_close_stale();
  const ncclResult_t res = hold_prepare(&w);
  if (res != ncclSuccess) {
    tt_gpu_stage_drop(&w);
    tt_port_stop(plan->port, res);
    if (plan->watch != NULL) {
      plan->watch(plan, true);
    }
    plan->recycle(plan);
    return res;
  }
  if (!held.on) {
    return tt_gpu_ranks_submit(&w, 1);
  }
  held.works[held.n++] = w;
  return ncclSuccess;
}

// Some of the work of `earlier` may still be held back: then the order is made once more behind that.
ncclResult_t tt_gpu_order(tt_gpu_stream *earlier, tt_gpu_stream *later)
{
  if (held.on) {
    if (!tt_grow(&held.orders, held.norders, 1, &held.orders_room, sizeof *held.orders)) {
      return tt_fail(ncclSystemError, "no memory for the order of two streams");
    }
    held.orders[held.norders].earlier = earlier;
    held.orders[held.norders++].later = later;
  }
  return tt_gpu_stream_join(earlier, later);
}

void tt_gpu_hold(void)
{
  held.on = true;
}

bool tt_gpu_holds(void)
{
  return held.on;
}

static bool has_port(const tt_gpu_work *works, int n, const tt_port *port)
{
  int i = 0;
  while (i < n && works[i].plan->port != port) {
    i++;
  }
  return i < n;
}

// Brings the next plans that run together to the front, from `from` on: of one communicator, of each rank the first
// one. The others keep their order. Returns how many.
static int held_together(int from)
{
  int n = 0;
  for (int i = from; i < held.n; i++) {
    const tt_gpu_work w = held.works[i];
    const bool together = w.plan->port->hash == held.works[from].plan->port->hash;
    if (together && !has_port(held.works + from, n, w.plan->port)) {
      memmove(&held.works[from + n + 1], &held.works[from + n], (size_t)(i - from - n) * sizeof w);
      held.works[from + n++] = w;
    }
  }
  return n;
}

ncclResult_t tt_gpu_unhold(void)
{
  ncclResult_t res = ncclSuccess;
  for (int done = 0, n; done < held.n; done += n) {
    n = held_together(done);
    const ncclResult_t one = tt_gpu_ranks_submit(held.works + done, n);
    res = res == ncclSuccess ? one : res;
  }
  for (int i = 0; i < held.norders && res == ncclSuccess; i++) {
    res = tt_gpu_stream_join(held.orders[i].earlier, held.orders[i].later);
  }
  tt_free(held.works);
  tt_free(held.orders);
  memset(&held, 0, sizeof held);
  tt_gpu_rma_unhold();
  return res;
}
