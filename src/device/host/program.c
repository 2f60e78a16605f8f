// program.c: the executor of resolved steps, and programs, which keep them (program.h).
#include "device/program.h"

#include <string.h>

#include "base/result.h"
#include "device/host/handover.h"
#include "device/host/step.h"
#include "os/relax.h"

// ---- Compiling a program

static void add_page(tt_program *p, tt_rank_page *page)
{
  int i = 0;
  while (i < p->npages && p->pages[i] != page) {
    i++;
  }
  p->pages[i] = page;
  p->npages = TT_MAX(p->npages, i + 1);
}

// Resolves the lane's next step. False: it does not fit into a program.
static bool program_add_step(tt_program *p, const tt_port *port, const tt_lane *l, tt_program_ref *refs)
{
  tt_program_step *s = &p->steps[p->nsteps++];
  tt_lane_resolve(port, l, s, refs);
  p->queued |= s->kind == TT_PROGRAM_FAR || s->bytes > TT_PROGRAM_BYTES;
  for (int i = 0; i < s->nsrc + s->ndst; i++) {
    const tt_link *link = refs[i].fifo != NULL ? port->links[refs[i].peer] : NULL;
    if (link != NULL && (link->networked || link->behind != NULL)) {
      return false;
    }
    if (link != NULL) {
      p->claims &= i >= s->nsrc;
      p->pauses |= i >= s->nsrc;
      add_page(p, link->page);
    }
  }
  return true;
}

static uint64_t passes_of(const tt_lane *l)
{
  return TT_DIV_UP(l->end - l->begin, (size_t)l->sched->nsub * l->max_chunk);
}

// How much a program needs.
typedef struct program_size {
  uint64_t steps, refs;
  size_t scratch;
} program_size;

static program_size program_measure(const tt_schedule *sched, const tt_lane *lanes)
{
  program_size size = {0};
  for (const tt_lane *l = lanes; l < lanes + sched->nstrands; l++) {
    uint64_t passes = passes_of(l);
    for (uint32_t i = l->strand->first; i < l->strand->first + l->strand->count; i++) {
      size.refs += passes * (sched->steps[i].nsrc + sched->steps[i].ndst);
    }
    size.steps += passes * l->strand->count;
    size.scratch = (size_t)sched->ntmp * l->slot;
  }
  return size;
}

static tt_program *program_alloc(const program_size *size)
{
  tt_program *p = tt_calloc(1, sizeof *p + size->steps * sizeof *p->steps + size->refs * sizeof(tt_program_ref) +
                                   size->refs * sizeof *p->pages + size->scratch + TT_CACHE_LINE);
  if (p != NULL) {
    p->steps = (tt_program_step *)(p + 1);
    p->pages = (tt_rank_page **)((tt_program_ref *)(p->steps + size->steps) + size->refs);
    p->call.buffers[TT_TMP] =
        size->scratch > 0 ? (char *)TT_ROUND_UP((uintptr_t)(p->pages + size->refs), TT_CACHE_LINE) : NULL;
  }
  return p;
}

// Resolves the steps of all passes. False: one of them does not fit.
static bool program_fill(tt_program *p, const tt_port *port, tt_lane *lanes, const program_size *size)
{
  tt_program_ref *refs = (tt_program_ref *)(p->steps + size->steps);
  for (int i = 0; i < p->nstrands; i++) {
    for (tt_lane *l = &lanes[i]; !l->done; tt_lane_advance(l)) {
      if (!program_add_step(p, port, l, refs)) {
        return false;
      }
      refs += p->steps[p->nsteps - 1].nsrc + p->steps[p->nsteps - 1].ndst;
    }
    p->first[i + 1] = p->nsteps;
  }
  p->single = p->nsteps == 1 && p->npages > 0 ? (tt_program_kind)p->steps[0].kind : TT_PROGRAM_ANY;
  return !p->queued || p->sched->ntmp == 0;
}

tt_program *tt_program_compile(const tt_port *port, const tt_schedule *sched, tt_call *call, size_t chunk,
                               tt_proto fifo)
{
  tt_lane lanes[TT_PROGRAM_STRANDS];
  if (sched->nstrands > TT_PROGRAM_STRANDS || call->count == 0) {
    return NULL;
  }
  for (int i = 0; i < sched->nstrands; i++) {
    tt_lane_init(&lanes[i], sched, i, call, chunk, fifo);
    lanes[i].slot = TT_ROUND_UP(tt_lane_longest(&lanes[i]), TT_CACHE_LINE);
  }
  program_size size = program_measure(sched, lanes);
  bool fits = size.refs <= TT_PROGRAM_REFS && size.scratch <= TT_PROGRAM_BYTES;
  tt_program *p = fits ? program_alloc(&size) : NULL;
  if (p == NULL) {
    return NULL;
  }
  p->nstrands = sched->nstrands;
  p->claims = true;
  p->op = call->op;
  p->call.op = &p->op;
  p->call.sig_count = call->sig_count;
  p->sched = sched;
  p->chunk = chunk;
  p->fifo = fifo;
  p->sig = call->sig;
  if (!program_fill(p, port, lanes, &size)) {
    tt_free(p);
    return NULL;
  }
  return p;
}

// ---- Running a step

#if defined(__x86_64__)
// Looks that one with a pause behind it counts as; it takes as long as 16 to 60: a pause is 40 to 140 cycles,.
#define PAUSE_LOOKS 8
// mostly
#else
#define PAUSE_LOOKS 1
#endif

// Waits for the reference's message, if it is one, as long as there are looks left; false: it is not there, or of
// another call.
static inline __attribute__((always_inline)) bool arrived(const tt_program *q, const tt_program_ref *r,
                                                          const tt_program_call *c, unsigned *looks)
{
  const tt_fifo *f = r->fifo;
  if (f == NULL) {
    return true;
  }
  const tt_slot *slot = tt_fifo_slot(f);
  while (atomic_load_explicit(&slot->seq, memory_order_acquire) != f->next + 1) {
    if (*looks == 0) {
      return false;
    }
    bool pauses = q != NULL && q->pauses;
    if (pauses) {
      tt_cpu_relax();
    }
    *looks -= TT_MIN(*looks, pauses ? PAUSE_LOOKS : 1);
  }
  return TT_LIKELY(slot->sig == c->sig) &&
         (TT_LIKELY(slot->count == c->sig_count) || tt_sig_count_same(slot->count, c->sig_count));
}

static inline void *address(const tt_program_ref *r, const tt_program_call *c)
{
  return r->fifo != NULL ? tt_fifo_data(r->fifo) : c->buffers[r->kind] + r->offset;
}

#define COPY_SMALL (16u << 10) // bytes

// Small sizes are most, and a call of memcpy costs as much as the copy.
static inline void program_copy(void *to, const void *from, size_t bytes)
{
  if (bytes == 8) {
    memcpy(to, from, 8);
  } else if (bytes == 4) {
    memcpy(to, from, 4);
  } else if (to != from) {
    memcpy(to, from, bytes);
  }
}

static __attribute__((noinline)) void move_any(const tt_port *port, const tt_program_step *s, const tt_program_call *c)
{
  void **at = port->operands;
  const int nall = s->nsrc + s->ndst;
  for (int i = 0; i < nall; i++) {
    at[i] = address(&s->refs[i], c);
  }
  if (s->reduce) {
    const uint64_t **scale = (const uint64_t **)at + nall;
    for (int i = 0; i < s->nsrc && c->op->prescale; i++) {
      scale[i] = s->refs[i].kind == TT_IN ? &c->op->scalar : NULL;
    }
    tt_reduce(c->op, s->ndst, at + s->nsrc, s->nsrc, (const void *const *)at, scale, s->count,
              s->flags & TT_STEP_FINAL ? TT_REDUCE_FINAL : 0);
  } else if (s->bytes > COPY_SMALL) {
    tt_copy(s->ndst, at + s->nsrc, at[0], s->bytes, 0); // piece by piece, which stays in a cache
  } else {
    for (int i = s->nsrc; i < nall; i++) {
      program_copy(at[i], at[0], s->bytes);
    }
  }
}

static inline __attribute__((always_inline)) void move(const tt_port *port, const tt_program_step *s,
                                                       const tt_program_call *c, tt_program_kind kind)
{
  const tt_program_ref *refs = s->refs;
  if (kind == TT_PROGRAM_COPY) {
    program_copy(address(&refs[1], c), address(&refs[0], c), s->bytes);
  } else if (kind == TT_PROGRAM_FOLD) {
    const void *src[2] = {address(&refs[0], c), address(&refs[1], c)};
    void *dst = address(&refs[2], c);
    tt_reduce(c->op, 1, &dst, 2, src, NULL, s->count, 0);
  } else {
    move_any(port, s, c);
  }
}

// The numbers of a step's sources and destinations are constants where `kind` tells them.
static inline int sources_of(const tt_program_step *s, tt_program_kind kind)
{
  return kind == TT_PROGRAM_COPY ? 1 : kind == TT_PROGRAM_FOLD ? 2 : s->nsrc;
}

static inline int destinations_of(const tt_program_step *s, tt_program_kind kind)
{
  return kind == TT_PROGRAM_COPY || kind == TT_PROGRAM_FOLD ? 1 : s->ndst;
}

// The reference that keeps a step from being run, after so many looks at its messages and tokens: one that has not
// come, or is of another call, or has no room. NULL: none does.
static inline __attribute__((always_inline)) const tt_program_ref *program_missing(const tt_program *q,
                                                                                   const tt_program_step *s,
                                                                                   const tt_program_call *c,
                                                                                   unsigned looks, tt_program_kind kind)
{
  const int nsrc = sources_of(s, kind), nall = nsrc + destinations_of(s, kind);
  for (int i = 0; i < nsrc; i++) {
    if (!arrived(q, &s->refs[i], c, &looks)) {
      return &s->refs[i];
    }
  }
  for (int i = nsrc; i < nall; i++) {
    if (s->refs[i].fifo != NULL && !tt_fifo_room(s->refs[i].fifo)) {
      return &s->refs[i];
    }
  }
  return NULL;
}

// Publishes what a step sends, and gives back what it has received. `claims`: as in tt_program.
static inline __attribute__((always_inline)) void program_post(const tt_port *port, bool claims,
                                                               const tt_program_step *s, const tt_program_call *c,
                                                               tt_program_kind kind)
{
  const int nsrc = sources_of(s, kind), nall = nsrc + destinations_of(s, kind);
  for (int i = nsrc; i < nall; i++) {
    if (s->refs[i].fifo != NULL) {
      bool token = kind == TT_PROGRAM_FAR && s->refs[i].kind == TT_TOKEN;
      size_t bytes = token ? port->links[s->refs[i].peer]->handover->sent_bytes : s->bytes;
      tt_fifo_publish(s->refs[i].fifo, (uint32_t)bytes, c->sig, c->sig_count);
      if (claims && s->bytes <= sizeof((tt_slot *)0)->data) {
        tt_fifo_claim(s->refs[i].fifo);
      }
    }
  }
  for (int i = 0; i < nsrc; i++) {
    if (s->refs[i].fifo != NULL) {
      tt_fifo_release(s->refs[i].fifo);
    }
  }
}

// ---- Running a program

// Runs a step. False: it would have to wait.
static inline __attribute__((always_inline)) bool run_kind(const tt_port *port, const tt_program *q,
                                                           const tt_program_step *s, const tt_program_call *c,
                                                           unsigned looks, tt_program_kind kind)
{
  if (program_missing(q, s, c, looks, kind) != NULL) {
    return false;
  }
  move(port, s, c, kind);
  program_post(port, q->claims, s, c, kind);
  return true;
}

static inline __attribute__((always_inline)) bool program_run_step(const tt_port *port, const tt_program *q,
                                                                   const tt_program_step *s, const tt_program_call *c,
                                                                   unsigned looks)
{
  switch (s->kind) {
  case TT_PROGRAM_COPY: return run_kind(port, q, s, c, looks, TT_PROGRAM_COPY);
  case TT_PROGRAM_FOLD: return run_kind(port, q, s, c, looks, TT_PROGRAM_FOLD);
  default: return run_kind(port, q, s, c, looks, TT_PROGRAM_ANY);
  }
}

static inline void ring_pages(const tt_port *port, const tt_program *q)
{
  for (int i = 0; i < q->npages; i++) {
    tt_page_ring(q->pages[i], port->rank);
  }
}

static inline void program_ring(const tt_port *port, const tt_program *q, const tt_program_call *c)
{
  if (!c->silent) {
    tt_bell_fence(); // one for all: a peer that sleeps until then sleeps a fraction of a microsecond longer
    ring_pages(port, q);
  }
}

void tt_program_ring(const tt_port *port, const tt_program *const *programs, int n)
{
  tt_bell_fence();
  for (int i = 0; i < n; i++) {
    ring_pages(port, programs[i]);
  }
}

// Most messages, and what roots and others have to do: one step. Functions of their own, because they need few
// registers.
static inline __attribute__((always_inline)) bool run_single(const tt_port *port, const tt_program *q,
                                                             const tt_program_call *c, unsigned looks,
                                                             tt_program_state *state, tt_program_kind kind)
{
  if (state->steps[0] == 0 && run_kind(port, q, q->steps, c, looks, kind)) {
    state->steps[0] = 1;
    program_ring(port, q, c);
  }
  return state->steps[0] == 1;
}

static __attribute__((noinline)) bool program_run_copy(const tt_port *port, const tt_program *q,
                                                       const tt_program_call *c, unsigned looks,
                                                       tt_program_state *state)
{
  return run_single(port, q, c, looks, state, TT_PROGRAM_COPY);
}

static __attribute__((noinline)) bool run_fold(const tt_port *port, const tt_program *q, const tt_program_call *c,
                                               unsigned looks, tt_program_state *state)
{
  return run_single(port, q, c, looks, state, TT_PROGRAM_FOLD);
}

static __attribute__((noinline)) bool run_strands(const tt_port *port, const tt_program *q, const tt_program_call *c,
                                                  unsigned looks, tt_program_state *state)
{
  int sum = 0;
  bool left = false;
  for (int k = 0; k < q->nstrands; k++) {
    const tt_program_step *s = &q->steps[q->first[k] + state->steps[k]], *end = &q->steps[q->first[k + 1]];
    int n = 0;
    while (s < end && program_run_step(port, q, s, c, looks)) {
      s++;
      n++;
    }
    state->steps[k] = (uint8_t)(state->steps[k] + n);
    sum += n;
    left |= s < end;
  }
  if (sum > 0 && q->npages > 0) {
    program_ring(port, q, c);
  }
  return !left;
}

bool tt_program_run(tt_port *port, const tt_program *q, const tt_program_call *c, unsigned looks,
                    tt_program_state *state)
{
  switch (q->single) {
  case TT_PROGRAM_COPY: return program_run_copy(port, q, c, looks, state);
  case TT_PROGRAM_FOLD: return run_fold(port, q, c, looks, state);
  default: return run_strands(port, q, c, looks, state);
  }
}

// ---- Running a lane

// Resolves the lane's next step, and keeps it.
static const tt_program_step *lane_resolve(const tt_port *port, tt_lane *l)
{
  const tt_step *step = &l->sched->steps[l->strand->first + l->pc];
  bool few = step->nsrc + step->ndst <= TT_RESOLVED_REFS;
  l->resolved = few ? (uint8_t)((uintptr_t)l / sizeof *l % TT_RESOLVED) : TT_RESOLVED;
  tt_resolved *kept = tt_port_resolved(port, l->resolved);
  kept->lane = l;
  tt_lane_resolve(port, l, &kept->step, few ? kept->refs : tt_port_refs(port));
  return &kept->step;
}

// The step before which the lane stands.
static inline const tt_program_step *lane_next(const tt_port *port, tt_lane *l)
{
  if (l->program != NULL) {
    return &l->steps[l->pc];
  }
  const tt_resolved *kept = l->resolved == TT_LANE_UNRESOLVED ? NULL : tt_port_resolved(port, l->resolved);
  return kept != NULL && kept->lane == l ? &kept->step : lane_resolve(port, l);
}

// The lane's next step lacks something: waits for that, unless it is here and belongs to another call.
static tt_run lane_wait(tt_port *port, tt_lane *l, const tt_program_step *s, const tt_program_ref *missing)
{
  bool source = missing < s->refs + s->nsrc;
  l->waits_for = missing->peer;
  l->receives = source && missing->kind != TT_DRAIN;
  ncclResult_t res = l->receives && tt_fifo_arrived(missing->fifo)
                         ? tt_call_check(port, l->call, missing->peer, tt_fifo_slot(missing->fifo))
                         : ncclSuccess;
  if (TT_UNLIKELY(res != ncclSuccess)) {
    tt_port_stop(port, res);
    return TT_RUN_FAILED;
  }
  return TT_RUN_BLOCKED;
}

// Wakes the peers that a step has sent something to, or given something back to.
static void step_ring(const tt_port *port, const tt_program_step *s)
{
  bool fenced = false;
  for (int i = 0; i < s->nsrc + s->ndst; i++) {
    if (s->refs[i].fifo != NULL) {
      if (!fenced) {
        tt_bell_fence();
        fenced = true;
      }
      tt_page_ring(port->links[s->refs[i].peer]->page, port->rank);
    }
  }
}

static inline tt_program_call call_of(const tt_lane *l)
{
  const tt_call *c = l->call;
  return (tt_program_call){
      .op = &c->op, .buffers = {(char *)c->in, c->out, l->tmp}, .sig = c->sig, .sig_count = c->sig_count};
}

static inline const tt_program_ref *lane_missing(const tt_port *port, const tt_lane *l, const tt_program_step *s,
                                                 const tt_program_call *c)
{
  const tt_program_ref *r = program_missing(NULL, s, c, 0, TT_PROGRAM_ANY);
  return r == NULL && s->kind == TT_PROGRAM_FAR ? tt_step_missing(port, l, s) : r;
}

tt_lack tt_lane_lack_of(const tt_port *port, tt_lane *l)
{
  const tt_program_step *s = lane_next(port, l);
  const tt_program_call c = call_of(l);
  const tt_program_ref *missing = lane_missing(port, l, s, &c);
  return missing == NULL ? TT_LACKS_NOTHING : missing < s->refs + s->nsrc ? TT_LACKS_SOURCE : TT_LACKS_ROOM;
}

// Runs a lane's step, if nothing is missing.
static tt_run lane_take(tt_port *port, tt_lane *l, const tt_program_step *s, const tt_program_call *c)
{
  bool far = s->kind == TT_PROGRAM_FAR;
  const tt_program_ref *missing = lane_missing(port, l, s, c);
  if (missing != NULL) {
    return lane_wait(port, l, s, missing);
  }
  l->waits_for = -1;
  ncclResult_t res = far ? tt_step_run(port, l, s) : ncclSuccess;
  if (TT_UNLIKELY(res != ncclSuccess)) {
    tt_port_stop(port, res);
    return TT_RUN_FAILED;
  }
  if (!far) {
    move(port, s, c, (tt_program_kind)s->kind);
  }
  program_post(port, false, s, c, TT_PROGRAM_FAR);
  step_ring(port, s);
  return TT_RUN_MORE;
}

// Runs the steps of a program as far as they go, and then wakes its peers once for all of them.
static void lane_run_program(const tt_port *port, tt_lane *l, const tt_program_call *c, size_t *budget)
{
  const tt_program_step *first = &l->steps[l->pc], *s = first, *end = &l->steps[l->stop];
  while (s < end && *budget != 0 && program_run_step(port, l->program, s, c, 0)) {
    *budget -= TT_MIN(*budget, s->bytes + 64);
    s++;
  }
  if (s > first) {
    program_ring(port, l->program, c);
    l->pc += (uint32_t)(s - first);
    l->done = s == end;
    l->waits_for = -1;
  }
}

tt_run tt_lane_run(tt_port *port, tt_lane *l, size_t *budget)
{
  const tt_program_call c = call_of(l);
  if (l->program != NULL && !l->program->queued) {
    lane_run_program(port, l, &c, budget);
    if (!l->done && *budget == 0) {
      return TT_RUN_MORE;
    }
  }
  while (!l->done) {
    if (TT_UNLIKELY(l->drains)) {
      l->done = tt_lane_drained(port, l);
      return l->done ? TT_RUN_DONE : TT_RUN_BLOCKED;
    }
    const tt_program_step *s = lane_next(port, l);
    tt_run r = lane_take(port, l, s, &c);
    if (r != TT_RUN_MORE) {
      return r;
    }
    size_t cost = s->bytes + 64;
    tt_lane_advance(l);
    if (*budget <= cost) {
      *budget = 0;
      return l->done ? TT_RUN_DONE : TT_RUN_MORE;
    }
    *budget -= cost;
  }
  return TT_RUN_DONE;
}
