// capture.c: see capture.h. How the steps of a plan become nodes is in record.c, what graphs have in replays.c.
#include "device/cuda/work/capture.h"

#include <string.h>

#include "device/cuda/work/capture_priv.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/walk.h"

enum { TRAFFIC_ROOM = 64 };

// ---- What a plan will send and receive ----

static uint32_t traffic_slot(const gpu_recording *rec, const tt_call *call, const tt_fifo *of)
{
  const uint64_t key = (uint64_t)(uintptr_t)call * 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)of * 0xc2b2ae3d27d4eb4fu;
  uint32_t i = (uint32_t)(key >> 32) & (rec->slots - 1);
  while (rec->index[i] != 0) {
    const gpu_traffic *t = &rec->capture->traffic[rec->index[i] - 1];
    if (t->call == call && t->of == of) {
      break;
    }
    i = (i + 1) & (rec->slots - 1);
  }
  return i;
}

gpu_traffic *tt_gpu_traffic_find(const gpu_recording *rec, const tt_call *call, const tt_fifo *of)
{
  const int32_t at = rec->slots > 0 ? rec->index[traffic_slot(rec, call, of)] : 0;
  return at == 0 ? NULL : &rec->capture->traffic[at - 1];
}

// Room for twice as many, of which the table is at most half full.
static ncclResult_t traffic_grow(gpu_recording *rec)
{
  gpu_capture *c = rec->capture;
  const uint32_t room = rec->room == 0 ? TRAFFIC_ROOM : 2 * rec->room;
  gpu_traffic *more = NULL;
  int32_t *index = NULL;
  TT_TRY(TT_NEW(more, room, "no memory for a captured plan"));
  if (c->ntraffic > 0) {
    memcpy(more, c->traffic, c->ntraffic * sizeof *more);
  }
  tt_free(c->traffic);
  c->traffic = more;
  TT_TRY(TT_NEW(index, 2 * room, "no memory for a captured plan"));
  tt_free(rec->index);
  rec->index = index;
  rec->slots = 2 * room;
  rec->room = room;
  for (uint32_t i = 0; i < c->ntraffic; i++) {
    index[traffic_slot(rec, c->traffic[i].call, c->traffic[i].of)] = (int32_t)i + 1;
  }
  return ncclSuccess;
}

static ncclResult_t traffic_get(gpu_recording *rec, const tt_port *port, const tt_call *call, const tt_program_ref *r,
                                bool sends, gpu_traffic **out)
{
  gpu_capture *c = rec->capture;
  *out = tt_gpu_traffic_find(rec, call, r->fifo);
  if (*out != NULL) {
    return ncclSuccess;
  }
  if (c->ntraffic == rec->room) {
    TT_TRY(traffic_grow(rec));
  }
  if (r->peer >= port->nranks) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: a captured call cannot use a network that reduces (NCCL_COLLNET_ENABLE=0)", port->rank);
  }
  const tt_link *link = port->links[r->peer];
  *out = &c->traffic[c->ntraffic++];
  **out = (gpu_traffic){.call = call,
                        .of = r->fifo,
                        .sig = call->sig,
                        .sig_count = call->sig_count,
                        .peer = r->peer,
                        .kind = (uint8_t)(r->fifo - (sends ? link->send : link->recv)),
                        .sends = sends};
  rec->index[traffic_slot(rec, call, r->fifo)] = (int32_t)c->ntraffic;
  return ncclSuccess;
}

static ncclResult_t survey_step(gpu_recording *rec, const tt_port *port, const tt_call *call, const tt_program_step *s)
{
  for (int i = 0; i < s->nsrc + s->ndst; i++) {
    const tt_program_ref *r = &s->refs[i];
    gpu_traffic *t = NULL;
    if (r->fifo != NULL) {
      TT_TRY(traffic_get(rec, port, call, r, i >= s->nsrc, &t));
      t->messages++;
      t->bytes = TT_MAX(t->bytes, r->kind == TT_TOKEN ? 0 : (uint32_t)s->bytes);
    }
  }
  return ncclSuccess;
}

// All steps of a lane, as they will be submitted.
static ncclResult_t survey_lane(gpu_recording *rec, const tt_gpu_port *p, const tt_lane *l)
{
  const uintptr_t tmp = (uintptr_t)l->tmp - rec->scratch;
  tt_lane copy = *l;
  tt_program_step step;
  if (l->tmp != NULL && tmp < rec->plan->scratch_size) {
    rec->scratch_bytes = TT_MAX(rec->scratch_bytes, tmp + (size_t)l->sched->ntmp * l->slot);
  }
  while (!copy.done) {
    tt_lane_resolve(p->port, &copy, &step, p->refs);
    TT_TRY(survey_step(rec, p->port, copy.call, &step));
    tt_lane_advance(&copy);
  }
  return ncclSuccess;
}

static ncclResult_t survey_plan(gpu_recording *rec, const tt_gpu_port *p)
{
  rec->scratch = (uintptr_t)rec->plan->scratch;
  rec->scratch_bytes = rec->plan->stage_bytes;
  for (const tt_lane *l = rec->plan->turns; l != NULL; l = l->next) {
    for (const tt_lane *f = l; f != NULL; f = f->follower) {
      TT_TRY(survey_lane(rec, p, f));
    }
  }
  return ncclSuccess;
}

// ---- What it needs for that ----

static ncclResult_t attach_one(const tt_gpu_port *p, gpu_traffic *t)
{
  const tt_port *port = p->port;
  uint32_t slots = 1, *number = &p->captured[t->peer][t->kind][t->sends];
  while (slots < t->messages && slots <= t->of->mask) {
    slots *= 2;
  }
  const gpu_fifo_key key = {.hash = port->hash,
                            .from = t->sends ? port->rank : t->peer,
                            .to = t->sends ? t->peer : port->rank,
                            .kind = t->kind,
                            .number = *number};
  const tt_fifo_shape shape = {.slots = slots, .bytes = t->bytes, .messages = t->messages};
  TT_TRY(tt_gpu_fifo_attach(p, &key, &shape, t->sends, &t->end));
  ++*number;
  return ncclSuccess;
}

static ncclResult_t attach_all(const tt_gpu_port *p, const gpu_recording *rec)
{
  for (uint32_t i = 0; i < rec->capture->ntraffic; i++) {
    TT_TRY(attach_one(p, &rec->capture->traffic[i]));
  }
  return ncclSuccess;
}

static ncclResult_t capture_memory(tt_gpu_port *p, gpu_recording *rec)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  gpu_capture *c = rec->capture;
  void *place = NULL;
  uint32_t *token_seq = NULL;
  TT_TRY(TT_NEW(token_seq, p->nranks, "no memory for a captured plan"));
  rec->steps.token_seq = token_seq;
  TT_TRY(tt_gpu_pool_take(p->device, tt_gpu_room_bytes(p), &c->memory));
  tt_gpu_room_set(p, c->memory, token_seq, &rec->steps);
  TT_TRY(tt_gpu_list(p, sizeof *c->place, &place));
  c->place = place;
  atomic_store(c->place, 0);
  if (rec->scratch_bytes > 0) {
    TT_TRY(tt_gpu_pool_take(p->device, rec->scratch_bytes, &c->scratch));
  }
  TT_CUDA(cu, cu->EventCreate(&c->over, CU_EVENT_DISABLE_TIMING), "GPU %d: cannot create an event", p->device);
  return ncclSuccess;
}

static ncclResult_t stream_is_captured(CUstream stream)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  TT_CUDA(cu, cu->StreamIsCapturing(stream, &status), "cannot ask stream %p whether it is captured", (void *)stream);
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE
             ? ncclSuccess
             : tt_fail(ncclInvalidUsage, "stream %p is not captured, or an earlier call has made its capture invalid",
                       (void *)stream);
}

// ---- One plan ----

// The context is current. What this makes, recording_close and, until the graph has it, capture_free take.
static ncclResult_t recording_fill(tt_gpu_work *w)
{
  gpu_recording *rec = w->port->recording;
  tt_gpu_captures_reap(w->port);
  TT_TRY(stream_is_captured(rec->stream));
  TT_TRY(tt_gpu_plan_suits(rec->plan));
  TT_TRY(TT_NEW(rec->capture, 1, "no memory for a captured plan"));
  rec->capture->device = w->port->device;
  rec->capture->epoch = w->port->epoch;
  rec->capture->stage = w->stage;
  w->stage = NULL;
  TT_TRY(survey_plan(rec, w->port));
  TT_TRY(capture_memory(w->port, rec));
  return attach_all(w->port, rec);
}

static ncclResult_t recording_open(tt_gpu_work *w)
{
  gpu_recording *rec = NULL;
  TT_TRY(TT_NEW(rec, 1, "no memory for a captured plan"));
  *rec = (gpu_recording){.plan = w->plan, .stream = tt_gpu_stream_handle(w->stream)};
  w->port->recording = rec;
  w->port->keeps = tt_gpu_plan_keeps_tokens(w->plan);
  w->port->timed = false;
  TT_TRY(tt_gpu_reenter(w->port->device, w->port->epoch));
  ncclResult_t res = recording_fill(w);
  tt_gpu_leave();
  return res;
}

void tt_gpu_capture_free(gpu_capture *c, bool never)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  for (uint32_t i = 0; i < c->ntraffic; i++) {
    tt_gpu_fifo_detach(&c->traffic[i].end, never);
  }
  if (c->over != NULL && c->epoch == tt_gpu_epoch(c->device)) {
    cu->EventDestroy(c->over);
  }
  tt_gpu_lists_give(c->blocks);
  tt_gpu_pool_give(c->device, c->memory);
  tt_gpu_pool_give(c->device, c->scratch);
  tt_gpu_pool_give(c->device, c->stage);
  tt_free(c->waits);
  tt_free(c->traffic);
  tt_free(c);
}

// Nothing has been recorded of the plan: the next one that is captured takes its numbers.
static void capture_drop(const tt_gpu_port *p, gpu_capture *c)
{
  for (uint32_t i = 0; i < c->ntraffic; i++) {
    const gpu_traffic *t = &c->traffic[i];
    p->captured[t->peer][t->kind][t->sends] -= t->end.shared != NULL;
  }
  tt_gpu_capture_free(c, true);
}

static bool is_in_graph(const tt_gpu_port *p, const gpu_capture *c)
{
  const gpu_capture *at = p->captures;
  while (at != NULL && at != c) {
    at = at->next;
  }
  return at != NULL;
}

static void recording_close(tt_gpu_port *p)
{
  gpu_recording *rec = p->recording;
  tt_gpu_walk_end(p); // of one that has failed
  p->recording = NULL;
  p->room = &p->own;
  if (rec == NULL) {
    return;
  }
  if (rec->capture != NULL && !is_in_graph(p, rec->capture)) {
    capture_drop(p, rec->capture);
  }
  tt_free(rec->waits);
  tt_free(rec->steps.token_seq);
  tt_free(rec->index);
  tt_free(rec);
}

// ---- All plans ----

static ncclResult_t for_each_port(const tt_gpu_work *works, int n, ncclResult_t (*what)(const tt_gpu_work *w))
{
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < n && res == ncclSuccess; i++) {
    TT_TRY(tt_gpu_reenter(works[i].port->device, works[i].port->epoch));
    res = what(&works[i]);
    tt_gpu_leave();
  }
  return res;
}

static ncclResult_t record_all(const tt_gpu_work *works, int n)
{
  TT_TRY(for_each_port(works, n, tt_gpu_record_begin));
  TT_TRY(tt_gpu_batch_steps(works, n));
  return for_each_port(works, n, tt_gpu_record_end);
}

ncclResult_t tt_gpu_capture(tt_gpu_work *works, int n)
{
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < n && res == ncclSuccess; i++) {
    res = recording_open(&works[i]);
  }
  if (res == ncclSuccess) {
    res = record_all(works, n);
    if (res != ncclSuccess) {
      tt_gpu_works_stop(works, n, res);
    }
  }
  for (int i = 0; i < n; i++) {
    if (tt_gpu_enter(works[i].port->device) == ncclSuccess) {
      recording_close(works[i].port);
      tt_gpu_leave();
    }
  }
  return res;
}
