// submit.c: see submit.h.
#include "device/cuda/work/submit.h"

#include <stdio.h>

#include "device/cuda/work/capture_priv.h"
#include "device/cuda/work/walk.h"

// The plans that are submitted together.
typedef struct submit_batch {
  const tt_gpu_work *works;
  int n;
  int at; // the one in hand: after an error, whose it is
} submit_batch;

// Where a lane's next step stands in the order that all ranks keep (coll/level.h). Without it, ranks whose streams wait
// for each other could do so in a circle. Lanes that must come after others of their plan (tt_lane.after) have a higher
// turn than those.
typedef struct step_place {
  uint64_t turn; // the lane's, and behind it the pass
  uint16_t level;
} step_place;

static step_place step_place_of(const tt_lane *l)
{
  const size_t pass = (l->pos - l->begin) / TT_MAX((size_t)l->sched->nsub * l->max_chunk, (size_t)1);
  return (step_place){.turn = (uint64_t)l->turn << 32 | TT_MIN(pass, (size_t)UINT32_MAX),
                      .level = l->sched->steps[l->strand->first + l->pc].level};
}

static bool place_is_before(step_place a, step_place b)
{
  return a.turn != b.turn ? a.turn < b.turn : a.level < b.level;
}

// The first place at which a lane of the plan stands, if it is before *first. Returns whether there is any.
static bool plan_first(const tt_plan *plan, step_place *first)
{
  bool any = false;
  for (const tt_lane *l = plan->turns; l != NULL; l = l->next) {
    if (!l->done) {
      const step_place at = step_place_of(l);
      *first = place_is_before(at, *first) ? at : *first;
      any = true;
    }
  }
  return any;
}

// Submits the steps of the lane that stand before or at the place.
static ncclResult_t lane_submit(const tt_gpu_work *w, tt_lane *l, step_place at)
{
  tt_gpu_port *p = w->port;
  while (!l->done && !place_is_before(at, step_place_of(l))) {
    tt_program_step step;
    tt_lane_resolve(p->port, l, &step, p->refs);
    if (p->recording != NULL) {
      tt_gpu_record_refs(p, l, &step);
    }
    TT_TRY(tt_gpu_step_submit(p, tt_gpu_stream_handle(w->stream), l, &step));
    tt_lane_advance(l);
  }
  return ncclSuccess;
}

// The same of all lanes of a plan; lanes that are done leave the list, and their followers take their places.
static ncclResult_t plan_submit(const tt_gpu_work *w, step_place at)
{
  for (tt_lane **to = &w->plan->turns; *to != NULL;) {
    tt_lane *l = *to;
    TT_TRY(lane_submit(w, l, at));
    if (!l->done) {
      to = &l->next;
    } else if (l->follower != NULL) {
      l->follower->next = l->next;
      *to = l->follower;
    } else {
      *to = l->next;
    }
  }
  return ncclSuccess;
}

// Does a step use a peer's memory, whose token an earlier step takes?
static bool keeps_tokens(const tt_schedule *s)
{
  for (int i = 0; i < s->nsteps; i++) {
    const tt_step *step = &s->steps[i];
    for (int k = 0; k < step->nsrc + step->ndst; k++) {
      const tt_ref *r = &s->refs[k < step->nsrc ? step->src + (uint32_t)k : step->dst + (uint32_t)(k - step->nsrc)];
      bool token = r->kind != TT_PEER_IN && r->kind != TT_PEER_OUT;
      for (int j = 0; j < step->nsrc && !token; j++) {
        const tt_ref *t = &s->refs[step->src + (uint32_t)j];
        token = t->kind == TT_TOKEN && t->peer == r->peer;
      }
      if (!token) {
        return true;
      }
    }
  }
  return false;
}

bool tt_gpu_plan_keeps_tokens(const tt_plan *plan)
{
  bool keeps = false;
  for (const tt_lane *l = plan->turns; l != NULL && !keeps; l = l->next) {
    for (const tt_lane *f = l; f != NULL && !keeps; f = f->follower) {
      keeps = keeps_tokens(f->sched);
    }
  }
  return keeps;
}

ncclResult_t tt_gpu_plan_suits(const tt_plan *plan)
{
  for (int i = 0; i < plan->ncalls; i++) {
    if (plan->calls[i].op.fn != NULL) {
      return tt_fail(ncclInvalidUsage, "a reduction by a function of the program cannot run on a GPU");
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_gpu_work_copy(const tt_gpu_work *w, bool back)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const CUstream stream = tt_gpu_stream_handle(w->stream);
  for (int i = 0; i < w->ncopies; i++) {
    const tt_gpu_copy *c = &w->copies[i];
    const CUdeviceptr user = gpu_address(c->user) + (back ? c->back : 0),
                      stage = gpu_address(c->stage) + (back ? c->back : 0);
    const size_t bytes = back ? c->back_bytes : c->bytes;
    if (bytes > 0) {
      TT_CUDA(cu, cu->MemcpyAsync(back ? user : stage, back ? stage : user, bytes, stream),
              "cannot copy a buffer of %zu bytes", bytes);
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_gpu_plan_stage(const tt_gpu_work *w)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const tt_plan *plan = w->plan;
  const gpu_recording *rec = w->port->recording;
  const CUdeviceptr to = rec != NULL ? tt_gpu_record_place(rec, plan->scratch) : gpu_address(plan->scratch);
  if (plan->stage_bytes > 0) {
    TT_CUDA(cu, cu->MemcpyAsync(to, gpu_address(plan->stage_src), plan->stage_bytes, tt_gpu_stream_handle(w->stream)),
            "cannot copy an input of %zu bytes", plan->stage_bytes);
  }
  return ncclSuccess;
}

static ncclResult_t work_begin(const tt_gpu_work *w)
{
  tt_gpu_port *p = w->port;
  TT_TRY(tt_gpu_plan_suits(w->plan));
  p->keeps = tt_gpu_plan_keeps_tokens(w->plan);
  p->timed = w->plan->watch != NULL && w->plan->times != NULL;
  tt_gpu_walk_groups(p, w->plan);
  if (p->last != NULL && p->last != w->stream) {
    TT_TRY(tt_gpu_stream_order(p->last, w->stream));
  }
  __atomic_store_n(&p->last, w->stream, __ATOMIC_RELEASE); // tt_gpu_port_query reads it
  p->submitted++;
  TT_TRY(tt_gpu_plan_stage(w));
  return tt_gpu_work_copy(w, false);
}

static ncclResult_t work_number(const tt_gpu_work *w)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  TT_CUDA(cu,
          cu->StreamWriteValue32(tt_gpu_stream_handle(w->stream), gpu_address(&w->port->flags->done),
                                 w->port->submitted, 0),
          "cannot write the number of a plan");
  return ncclSuccess;
}

// Of a work that has not begun there is none: what its port has in flight is on another stream, which may be slower.
static ncclResult_t work_end(const tt_gpu_work *w)
{
  tt_gpu_port *p = w->port;
  if (p->last != w->stream) {
    return ncclSuccess;
  }
  const ncclResult_t res = tt_gpu_work_copy(w, true);
  const ncclResult_t written = work_number(w);
  atomic_store_explicit(&p->lost, written != ncclSuccess, memory_order_release);
  TT_TRY(tt_gpu_stream_mark(w->stream));
  return res == ncclSuccess ? written : res;
}

// Does something for each work in the context of its device.
static ncclResult_t for_each(submit_batch *b, ncclResult_t (*what)(const tt_gpu_work *w))
{
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < b->n && res == ncclSuccess; i++) {
    b->at = i;
    TT_TRY(tt_gpu_reenter(b->works[i].port->device, b->works[i].port->epoch));
    res = what(&b->works[i]);
    tt_gpu_leave();
  }
  return res;
}

// The first place at which a plan stands. False: all have been submitted.
static bool batch_first(const submit_batch *b, step_place *first)
{
  bool any = false;
  *first = (step_place){UINT64_MAX, UINT16_MAX};
  for (int i = 0; i < b->n; i++) {
    any |= plan_first(b->works[i].plan, first);
  }
  return any;
}

static ncclResult_t work_walk(const tt_gpu_work *w)
{
  return tt_gpu_walk_launch(w->port);
}

static bool batch_is_full(const submit_batch *b)
{
  bool full = false;
  for (int i = 0; i < b->n; i++) {
    full |= tt_gpu_walk_is_full(b->works[i].port);
  }
  return full;
}

// Walks are launched together: what one of them waits for has a lower place, and is launched beside it. Alone, it could
// wait for what has not been launched, while the driver has this thread wait for it.
static ncclResult_t gpu_batch_steps(submit_batch *b)
{
  step_place at, its;
  while (batch_first(b, &at)) {
    for (int i = 0; i < b->n; i++) {
      its = (step_place){UINT64_MAX, UINT16_MAX};
      if (!plan_first(b->works[i].plan, &its) || place_is_before(at, its)) {
        continue;
      }
      b->at = i;
      TT_TRY(tt_gpu_reenter(b->works[i].port->device, b->works[i].port->epoch));
      ncclResult_t res = plan_submit(&b->works[i], at);
      tt_gpu_leave();
      TT_TRY(res);
    }
    TT_TRY(batch_is_full(b) ? for_each(b, work_walk) : ncclSuccess);
  }
  return ncclSuccess;
}

ncclResult_t tt_gpu_batch_steps(const tt_gpu_work *works, int n)
{
  return gpu_batch_steps(&(submit_batch){works, n, 0});
}

static ncclResult_t gpu_batch_submit(submit_batch *b)
{
  TT_TRY(for_each(b, work_begin));
  TT_TRY(gpu_batch_steps(b));
  return for_each(b, work_walk);
}

void tt_gpu_works_stop(const tt_gpu_work *works, int n, ncclResult_t code)
{
  for (int i = 0; i < n; i++) {
    tt_port_stop(works[i].port->port, code);
    tt_gpu_port_stop(works[i].port);
  }
}

// The work in hand has failed. Ranks on other devices stop because of its rank, as they would if their work were
// submitted by another thread.
static void batch_fail(const submit_batch *b, ncclResult_t code)
{
  const tt_gpu_port *bad = b->works[b->at].port;
  char why[sizeof bad->port->error];
  snprintf(why, sizeof why, "%s", tt_last_error());
  tt_port_stop(bad->port, code);
  const uint32_t state = atomic_load_explicit(&bad->port->page->state, memory_order_acquire);
  for (int i = 0; i < b->n; i++) {
    tt_port *port = b->works[i].port->port;
    if (b->works[i].port->device != bad->device) {
      tt_culprit culprit;
      const ncclResult_t res = tt_port_accuse(port, bad->port->rank, bad->port->page, state, &culprit);
      tt_port_stop_for(port, res, culprit);
    }
  }
  tt_last_error_set(why);
  tt_gpu_works_stop(b->works, b->n, code);
}

// After a failure the ports stop, and the end of each work is queued all the same: else settling would wait for it for
// ever.
ncclResult_t tt_gpu_submit(const tt_gpu_work *works, int n)
{
  submit_batch all = {works, n, 0};
  ncclResult_t res = gpu_batch_submit(&all);
  if (res != ncclSuccess) {
    batch_fail(&all, res);
  }
  for (int i = 0; i < n; i++) {
    tt_gpu_walk_end(works[i].port);
    const ncclResult_t end = for_each(&(submit_batch){&works[i], 1, 0}, work_end);
    if (end != ncclSuccess && res == ncclSuccess) {
      res = end;
      all.at = i;
      batch_fail(&all, res);
    }
  }
  return res;
}
