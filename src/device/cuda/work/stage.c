// stage.c: see stage.h.
#include "device/cuda/work/stage.h"

#include <string.h>

#include "device/cuda/memory.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/port_priv.h"

enum { STAGE_ALIGN = 256 };

// Plans of a port run one after the other, so they have one piece of memory. Where it is too small, one of at least
// twice the size takes its place; plans may still use the smaller one, which stays.
typedef struct stage_memory {
  struct stage_memory *next;
  char *base;
  size_t bytes;
} stage_memory;

struct tt_gpu_stage {
  stage_memory *memory; // the one in use first
  bool *peers, *any;    // by rank: of other processes that tokens of the call, or of any call of the plan, go to
};

// A buffer of a call. `copy`: where it is used instead, `offset` bytes in; -1: it stays.
typedef struct stage_buffer {
  char *at;
  size_t bytes;
  int copy;
  size_t offset;
} stage_buffer;

typedef struct stage_call {
  stage_buffer in, out;
} stage_call;

// A plan that is being prepared.
typedef struct stage_work {
  tt_gpu_port *port;
  void **own; // where the plan's own memory is to be; NULL: it has the port's
  tt_plan *plan;
  stage_call *calls;   // of the plan
  tt_gpu_copy *copies; // room for two of each call; `stage` is an offset yet
  int ncopies;
  size_t bytes; // of all copies
} stage_work;

// ---- Who reaches what ----

// Marks the peers that the lane sends tokens to. True: there are any.
static bool lane_peers(const stage_work *k, const tt_lane *l)
{
  bool any = false;
  for (uint32_t i = 0; i < l->strand->count; i++) {
    const tt_step *s = &l->sched->steps[l->strand->first + i];
    for (int d = 0; d < s->ndst; d++) {
      const tt_ref *r = &l->sched->refs[s->dst + (uint32_t)d];
      if (r->kind == TT_TOKEN && tt_gpu_ipc_has(k->port, r->peer)) {
        any = k->port->stage->peers[r->peer] = k->port->stage->any[r->peer] = true;
      }
    }
  }
  return any;
}

// The same of all lanes of the call. Returns its schedule, or one of them; NULL: no token goes to another process.
static const tt_schedule *call_peers(const stage_work *k, const tt_call *c)
{
  const tt_schedule *found = NULL;
  memset(k->port->stage->peers, 0, (size_t)k->port->port->nranks * sizeof(bool));
  for (int i = 0; i < k->plan->nlanes; i++) {
    const tt_lane *l = &k->plan->lanes[i];
    if (l->call == c && !l->done && lane_peers(k, l)) {
      found = l->sched;
    }
  }
  return found;
}

static ncclResult_t memory_share(const stage_work *k, const bool *peers, const tt_mappable *m, bool *shared)
{
  *shared = m->handle != 0;
  for (int i = 0; i < k->port->port->nranks && *shared; i++) {
    if (peers[i]) {
      TT_TRY(tt_gpu_ipc_share(k->port, i, m, shared));
    }
  }
  return ncclSuccess;
}

// *shared: the peers have it open, or it has no bytes.
static ncclResult_t buffer_share(const stage_work *k, const stage_buffer *b, tt_mappable *m, bool *shared)
{
  *shared = true;
  if (b->bytes > 0) {
    *m = m->handle != 0 ? *m : tt_gpu_find(b->at, b->bytes);
    TT_TRY(memory_share(k, k->port->stage->peers, m, shared));
  }
  return ncclSuccess;
}

// ---- Other memory in their place ----

// Reserves a place for the program's memory from `from` to `to`, of which the output is copied back, if it is there.
static int copy_add(stage_work *k, char *from, const char *to, const stage_buffer *out)
{
  const size_t bytes = (size_t)(to - from);
  tt_gpu_copy *c = &k->copies[k->ncopies];
  *c = (tt_gpu_copy){.user = from, .stage = (char *)(uintptr_t)k->bytes, .bytes = bytes}; // NOLINT: an offset
  if (out != NULL) {
    c->back = (size_t)(out->at - from);
    c->back_bytes = out->bytes;
  }
  k->bytes += TT_ROUND_UP(bytes, (size_t)STAGE_ALIGN);
  return k->ncopies++;
}

// The output is copied, too: what the call does not write of it stays as it is.
static void call_copy(stage_work *k, stage_call *c, bool in, bool out)
{
  stage_buffer *i = &c->in, *o = &c->out;
  const bool overlap = i->bytes > 0 && o->bytes > 0 && i->at < o->at + o->bytes && o->at < i->at + i->bytes;
  if (overlap && (in || out)) {
    char *from = TT_MIN(i->at, o->at);
    i->copy = o->copy = copy_add(k, from, TT_MAX(i->at + i->bytes, o->at + o->bytes), o);
    i->offset = (size_t)(i->at - from);
    o->offset = (size_t)(o->at - from);
    return;
  }
  if (in) {
    i->copy = copy_add(k, i->at, i->at + i->bytes, NULL);
  }
  if (out) {
    o->copy = copy_add(k, o->at, o->at + o->bytes, o);
  }
}

static ncclResult_t stage_look(stage_work *k, tt_call *c, stage_call *s)
{
  const tt_schedule *sched = call_peers(k, c);
  bool in, out;
  *s = (stage_call){.in.copy = -1, .out.copy = -1};
  if (sched == NULL) {
    return ncclSuccess;
  }
  s->in.at = (char *)(uintptr_t)c->in;
  s->in.bytes = (size_t)sched->in_blocks * c->count * c->esize;
  s->out.at = c->out;
  s->out.bytes = (size_t)sched->out_blocks * c->count * c->esize;
  TT_TRY(buffer_share(k, &s->in, &c->in_mem, &in));
  TT_TRY(buffer_share(k, &s->out, &c->out_mem, &out));
  call_copy(k, s, !in, !out);
  return ncclSuccess;
}

// Memory of the port with so much room.
static ncclResult_t stage_memory_get(const tt_gpu_port *p, size_t bytes, char **out)
{
  struct tt_gpu_stage *s = p->stage;
  stage_memory *m = s->memory;
  void *memory = NULL;
  if (m == NULL || m->bytes < bytes) {
    const size_t size = TT_MAX(bytes, m != NULL ? 2 * m->bytes : 0);
    TT_TRY(TT_NEW(m, 1, "rank %d: no memory for memory that peers can open", p->port->rank));
    const ncclResult_t res = tt_gpu_pool_take(p->device, size, &memory);
    if (res != ncclSuccess) {
      tt_free(m);
      return res;
    }
    *m = (stage_memory){.next = s->memory, .base = memory, .bytes = size};
    s->memory = m;
  }
  *out = m->base;
  return ncclSuccess;
}

// The calls use the port's memory from now on.
static void stage_use(const stage_work *k, char *base, const tt_mappable *m)
{
  for (int i = 0; i < k->ncopies; i++) {
    k->copies[i].stage = base + (uintptr_t)k->copies[i].stage;
  }
  for (int i = 0; i < k->plan->ncalls; i++) {
    const stage_call *s = &k->calls[i];
    tt_call *c = &k->plan->calls[i];
    if (s->in.copy >= 0) {
      c->in = k->copies[s->in.copy].stage + s->in.offset;
      c->in_mem = *m;
    }
    if (s->out.copy >= 0) {
      c->out = k->copies[s->out.copy].stage + s->out.offset;
      c->out_mem = *m;
    }
  }
}

static ncclResult_t stage_move(const stage_work *k)
{
  bool shared;
  char *base = NULL;
  if (k->own != NULL) {
    TT_TRY(tt_gpu_pool_take(k->port->device, k->bytes, k->own));
    base = *k->own;
  } else {
    TT_TRY(stage_memory_get(k->port, k->bytes, &base));
  }
  const tt_mappable m = tt_gpu_find(base, k->bytes);
  TT_TRY(memory_share(k, k->port->stage->any, &m, &shared));
  if (!shared) {
    return tt_fail(
        ncclUnhandledCudaError,
        "rank %d: another rank cannot open memory of this rank's GPU any more, nor %zu bytes of the library's",
        k->port->port->rank, k->bytes);
  }
  stage_use(k, base, &m);
  return ncclSuccess;
}

static ncclResult_t stage_open(tt_gpu_port *p)
{
  const size_t n = (size_t)p->port->nranks;
  if (p->stage == NULL) {
    TT_TRY(TT_NEW(p->stage, 1, "rank %d: no memory for an operation", p->port->rank));
  }
  if (p->stage->peers == NULL) {
    TT_TRY(TT_NEW(p->stage->peers, 2 * n, "rank %d: no memory for an operation", p->port->rank));
    p->stage->any = p->stage->peers + n;
  }
  memset(p->stage->any, 0, n * sizeof(bool));
  return ncclSuccess;
}

static ncclResult_t stage_plan(stage_work *k)
{
  for (int i = 0; i < k->plan->ncalls; i++) {
    TT_TRY(stage_look(k, &k->plan->calls[i], &k->calls[i]));
  }
  return k->ncopies > 0 ? stage_move(k) : ncclSuccess;
}

ncclResult_t tt_gpu_stage(tt_gpu_work *w)
{
  const int n = w->plan->ncalls;
  stage_work k = {.port = w->port, .own = w->captured ? &w->stage : NULL, .plan = w->plan};
  if (w->port->ipc == NULL || n == 0) {
    return ncclSuccess;
  }
  TT_TRY(stage_open(w->port));
  TT_TRY(TT_NEW(k.calls, n, "rank %d: no memory for an operation", w->port->port->rank));
  ncclResult_t res = TT_NEW(k.copies, 2 * n, "rank %d: no memory for an operation", w->port->port->rank);
  res = res == ncclSuccess ? stage_plan(&k) : res;
  tt_free(k.calls);
  w->copies = k.copies;
  w->ncopies = res == ncclSuccess ? k.ncopies : 0;
  return res;
}

void tt_gpu_stage_drop(const tt_gpu_work *w)
{
  tt_free((void *)(uintptr_t)w->copies);
  tt_gpu_pool_give(w->port->device, w->stage);
}

void tt_gpu_stage_close(tt_gpu_port *p)
{
  struct tt_gpu_stage *s = p->stage;
  if (s == NULL) {
    return;
  }
  for (stage_memory *m = s->memory, *next; m != NULL; m = next) {
    next = m->next;
    tt_gpu_pool_give(p->device, m->base);
    tt_free(m);
  }
  tt_free(s->peers);
  tt_free(s);
  p->stage = NULL;
}
