// program.c: see program.h.
#include "device/program.h"

#include <string.h>

#include "device/host/step.h"
#include "os/relax.h"

// ---- Compiling it

// A program in the making: of how many steps is not known yet.
typedef struct draft {
  tt_program p;
  int nrefs;
  size_t scratch; // bytes
  tt_program_step steps[TT_PROGRAM_STEPS];
  tt_program_ref refs[TT_PROGRAM_REFS];
  tt_rank_page *pages[TT_PROGRAM_PAGES];
} draft;

static bool add_page(draft *d, tt_rank_page *page)
{
  for (int i = 0; i < d->p.npages; i++) {
    if (d->pages[i] == page) {
      return true;
    }
  }
  if (d->p.npages == TT_PROGRAM_PAGES) {
    return false;
  }
  d->pages[d->p.npages++] = page;
  return true;
}

// One pass of a lane.
typedef struct pass {
  const tt_port *port;
  const tt_lane *lane;
  uint64_t number;
  size_t pos, chunk;
} pass;

// Bytes from one slot of the scratch to the next.
static size_t scratch_slot(const tt_lane *l)
{
  return TT_ROUND_UP(tt_lane_longest(l), TT_CACHE_LINE);
}

static bool program_add_ref(draft *d, const pass *p, const tt_step *step, const tt_ref *r, bool source)
{
  const tt_lane *l = p->lane;
  tt_program_ref *out = &d->refs[d->nrefs++];
  if (r->kind <= TT_TMP) {
    *out = (tt_program_ref){.offset = r->kind == TT_TMP
                                          ? r->chunk * scratch_slot(l)
                                          : tt_lane_element(l, step, r->chunk, p->pos, p->chunk) * l->call->esize,
                            .buffer = r->kind};
    return true;
  }
  tt_link *link = r->kind == TT_FIFO ? p->port->links[r->peer] : NULL;
  if (link == NULL || link->networked || link->behind != NULL) {
    return false;
  }
  *out = (tt_program_ref){.fifo = source ? &link->recv[l->fifo] : &link->send[l->fifo], .peer = r->peer};
  d->p.claims &= !source;
  d->p.pauses |= !source;
  return add_page(d, link->page);
}

// `plain`: sums are neither scaled nor divided.
static tt_program_kind program_kind_of(const tt_step *step, bool reduces, bool plain)
{
  if (step->ndst != 1 || !plain) {
    return TT_PROGRAM_ANY;
  }
  return !reduces ? TT_PROGRAM_COPY : step->nsrc == 2 ? TT_PROGRAM_FOLD : TT_PROGRAM_ANY;
}

static bool add_step(draft *d, const pass *p, uint32_t number)
{
  const tt_lane *l = p->lane;
  const tt_step *step = &l->sched->steps[number];
  size_t bytes = tt_lane_message(l, number, p->number);
  if (d->p.nsteps == TT_PROGRAM_STEPS || bytes == 0 || bytes > TT_PROGRAM_BYTES ||
      d->nrefs + step->nsrc + step->ndst > TT_PROGRAM_REFS || step->nsrc == 0 || step->ndst == 0) {
    return false;
  }
  bool divides = (step->flags & TT_STEP_FINAL) != 0 && l->call->op.divisor > 1;
  bool plain = !divides && !l->call->op.prescale;
  bool reduces = (step->flags & TT_STEP_REDUCE) != 0 && (step->nsrc > 1 || !plain);
  d->steps[d->p.nsteps++] = (tt_program_step){.kind = (uint8_t)program_kind_of(step, reduces, plain),
                                              .nsrc = (uint8_t)step->nsrc,
                                              .ndst = (uint8_t)step->ndst,
                                              .first = (uint8_t)d->nrefs,
                                              .reduce = reduces,
                                              .flags = divides ? TT_REDUCE_FINAL : 0,
                                              .count = (uint32_t)(bytes / l->call->esize),
                                              .bytes = (uint32_t)bytes};
  bool fits = true;
  for (uint32_t i = 0; fits && i < step->nsrc; i++) {
    fits = program_add_ref(d, p, step, &l->sched->refs[step->src + i], true);
  }
  for (uint32_t i = 0; fits && i < step->ndst; i++) {
    fits = program_add_ref(d, p, step, &l->sched->refs[step->dst + i], false);
  }
  return fits;
}

static bool add_strand(draft *d, const tt_port *port, const tt_lane *l)
{
  uint64_t passes = TT_DIV_UP(l->end - l->begin, (size_t)l->sched->nsub * l->max_chunk);
  d->scratch = l->sched->ntmp > 0 ? (size_t)l->sched->ntmp * scratch_slot(l) : 0;
  bool fits = passes <= TT_PROGRAM_STEPS && d->scratch <= TT_PROGRAM_BYTES && !l->done;
  for (uint64_t n = 0; fits && n < passes; n++) {
    pass p = {.port = port, .lane = l, .number = n};
    p.pos = tt_lane_pass(l, n, &p.chunk);
    for (uint32_t i = 0; fits && i < l->strand->count; i++) {
      fits = add_step(d, &p, l->strand->first + i);
    }
  }
  return fits;
}

// A program of the size that it has come to. NULL: there is no memory.
static tt_program *program_keep(const draft *d)
{
  size_t refs = (size_t)d->nrefs * sizeof *d->refs, pages = (size_t)d->p.npages * sizeof *d->pages;
  size_t steps = (size_t)d->p.nsteps * sizeof *d->steps, scratch = d->scratch > 0 ? d->scratch + TT_CACHE_LINE : 0;
  tt_program *p = tt_calloc(1, sizeof *p + refs + pages + steps + scratch);
  if (p != NULL) {
    *p = d->p;
    p->pages = (tt_rank_page **)((char *)(p + 1) + refs);
    p->steps = (tt_program_step *)((char *)p->pages + pages);
    if (scratch > 0) {
      p->scratch = (char *)TT_ROUND_UP((uintptr_t)p->steps + steps, TT_CACHE_LINE);
    }
    memcpy(p + 1, d->refs, refs);
    memcpy(p->pages, d->pages, pages);
    memcpy(p->steps, d->steps, steps);
  }
  return p;
}

tt_program *tt_program_compile(const tt_port *port, const tt_schedule *sched, tt_call *call, size_t chunk,
                               tt_proto fifo)
{
  draft d; // most of it is not needed, mostly
  bool fits = sched->nstrands <= TT_PROGRAM_STRANDS && fifo != TT_TOK;
  d.p = (tt_program){.nstrands = sched->nstrands,
                     .claims = true,
                     .op = call->op,
                     .sched = sched,
                     .chunk = chunk,
                     .fifo = fifo,
                     .sig = call->sig,
                     .sig_count = call->sig_count};
  d.nrefs = 0;
  d.scratch = 0;
  for (int i = 0; fits && i < sched->nstrands; i++) {
    tt_lane l;
    tt_lane_init(&l, sched, i, call, chunk, fifo);
    fits = add_strand(&d, port, &l);
    d.p.first[i + 1] = d.p.nsteps;
  }
  d.p.single = d.p.nsteps == 1 && d.p.npages > 0 ? (tt_program_kind)d.steps[0].kind : TT_PROGRAM_ANY;
  return fits ? program_keep(&d) : NULL;
}

// ---- Running it

#if defined(__x86_64__)
// Looks that one with a pause behind it counts as; it takes as long as 16 to 60: a pause is 40 to 140 cycles,.
#define PAUSE_LOOKS 8
// mostly
#else
#define PAUSE_LOOKS 1
#endif

static inline const tt_program_ref *refs_of(const tt_program *q, const tt_program_step *s)
{
  return (const tt_program_ref *)(q + 1) + s->first;
}

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
    if (q->pauses) {
      tt_cpu_relax();
    }
    *looks -= TT_MIN(*looks, q->pauses ? PAUSE_LOOKS : 1);
  }
  return TT_LIKELY(slot->sig == c->sig && slot->count == c->sig_count);
}

static inline void *address(const tt_program_ref *r, const tt_program_call *c)
{
  return r->fifo != NULL ? tt_fifo_data(r->fifo) : c->buffers[r->buffer] + r->offset;
}

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

static __attribute__((noinline)) void move_any(const tt_program *q, const tt_program_step *s,
                                               const tt_program_ref *refs, const tt_program_call *c)
{
  void *at[TT_PROGRAM_REFS];
  const uint64_t *scale[TT_PROGRAM_REFS];
  int n = s->nsrc + s->ndst;
  for (int i = 0; i < n; i++) {
    at[i] = address(&refs[i], c);
  }
  if (s->reduce) {
    for (int i = 0; i < s->nsrc && q->op.prescale; i++) {
      scale[i] = refs[i].fifo == NULL && refs[i].buffer == TT_IN ? &q->op.scalar : NULL;
    }
    tt_reduce(&q->op, s->ndst, at + s->nsrc, s->nsrc, (const void *const *)at, scale, s->count, s->flags);
    return;
  }
  for (int i = s->nsrc; i < n; i++) {
    program_copy(at[i], at[0], s->bytes);
  }
}

static inline __attribute__((always_inline)) void move(const tt_program *q, const tt_program_step *s,
                                                       const tt_program_ref *refs, const tt_program_call *c,
                                                       tt_program_kind kind)
{
  if (kind == TT_PROGRAM_COPY) {
    program_copy(address(&refs[1], c), address(&refs[0], c), s->bytes);
  } else if (kind == TT_PROGRAM_FOLD) {
    const void *src[2] = {address(&refs[0], c), address(&refs[1], c)};
    void *dst = address(&refs[2], c);
    tt_reduce(&q->op, 1, &dst, 2, src, NULL, s->count, 0);
  } else {
    move_any(q, s, refs, c);
  }
}

// The reference that keeps a step from being run, after so many looks at its messages: one that has not come, or is of
// another call, or has no room. NULL: none does.
static inline __attribute__((always_inline)) const tt_program_ref *program_missing(const tt_program *q,
                                                                                   const tt_program_ref *refs,
                                                                                   const tt_program_call *c, int nsrc,
                                                                                   int nall, unsigned looks)
{
  for (int i = 0; i < nsrc; i++) {
    if (!arrived(q, &refs[i], c, &looks)) {
      return &refs[i];
    }
  }
  for (int i = nsrc; i < nall; i++) {
    if (refs[i].fifo != NULL && !tt_fifo_room(refs[i].fifo)) {
      return &refs[i];
    }
  }
  return NULL;
}

// Runs a step. The numbers of sources and destinations are constants where `kind` tells them. False: it would have to
// wait.
static inline __attribute__((always_inline)) bool run_kind(const tt_program *q, const tt_program_step *s,
                                                           const tt_program_call *c, unsigned looks,
                                                           tt_program_kind kind)
{
  const int nsrc = kind == TT_PROGRAM_COPY   ? 1
                   : kind == TT_PROGRAM_FOLD ? 2
                                             : s->nsrc,
            nall = nsrc + (kind == TT_PROGRAM_ANY ? s->ndst : 1);
  const tt_program_ref *refs = refs_of(q, s);
  if (program_missing(q, refs, c, nsrc, nall, looks) != NULL) {
    return false;
  }
  move(q, s, refs, c, kind);
  for (int i = nsrc; i < nall; i++) {
    if (refs[i].fifo != NULL) {
      tt_fifo_publish(refs[i].fifo, s->bytes, c->sig, c->sig_count);
      if (q->claims && s->bytes <= sizeof((tt_slot *)0)->data) {
        tt_fifo_claim(refs[i].fifo);
      }
    }
  }
  for (int i = 0; i < nsrc; i++) {
    if (refs[i].fifo != NULL) {
      tt_fifo_release(refs[i].fifo);
    }
  }
  return true;
}

static inline __attribute__((always_inline)) bool program_run_step(const tt_program *q, const tt_program_step *s,
                                                                   const tt_program_call *c, unsigned looks)
{
  switch (s->kind) {
  case TT_PROGRAM_COPY: return run_kind(q, s, c, looks, TT_PROGRAM_COPY);
  case TT_PROGRAM_FOLD: return run_kind(q, s, c, looks, TT_PROGRAM_FOLD);
  default: return run_kind(q, s, c, looks, TT_PROGRAM_ANY);
  }
}

// Returns how many steps of a strand were run from number `from` on.
static inline __attribute__((always_inline)) int run_strand(const tt_program *q, const tt_program_call *c,
                                                            unsigned looks, int from, int end)
{
  int i = from;
  while (i < end && program_run_step(q, &q->steps[i], c, looks)) {
    i++;
  }
  return i - from;
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
  if (state->steps[0] == 0 && run_kind(q, q->steps, c, looks, kind)) {
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
  int sum = 0, left = 0;
  for (int k = 0; k < q->nstrands; k++) {
    int from = q->first[k] + state->steps[k];
    int n = run_strand(q, c, looks, from, q->first[k + 1]);
    state->steps[k] = (uint8_t)(state->steps[k] + n);
    sum += n;
    left += q->first[k + 1] - from - n;
  }
  if (sum > 0 && q->npages > 0) {
    program_ring(port, q, c);
  }
  return left == 0;
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

// ---- Lanes that go on with it

void tt_lane_resume(tt_lane *l, const tt_program *program, int strand, tt_call *call, int steps)
{
  *l = (tt_lane){.program = program,
                 .sched = program->sched,
                 .strand = &program->sched->strands[strand],
                 .call = call,
                 .end = call->count,
                 .max_chunk = program->chunk,
                 .pc = (uint32_t)(program->first[strand] + steps),
                 .stop = (uint32_t)program->first[strand + 1],
                 .fifo = (uint8_t)program->fifo,
                 .waits_for = -1,
                 .after = -1};
  l->done = l->pc == l->stop;
}

// The lane's next step was not there a moment ago: what does it wait for?
static tt_run program_wait(tt_port *port, tt_lane *l, const tt_program_call *c)
{
  const tt_program_step *s = &l->program->steps[l->pc];
  const tt_program_ref *refs = refs_of(l->program, s);
  const tt_program_ref *r = program_missing(l->program, refs, c, s->nsrc, s->nsrc + s->ndst, 0);
  if (r == NULL) {
    return TT_RUN_MORE; // it has come meanwhile
  }
  l->waits_for = r->peer;
  l->receives = r < refs + s->nsrc;
  ncclResult_t res = l->receives && tt_fifo_arrived(r->fifo)
                         ? tt_call_check(port, l->call, r->peer, tt_fifo_slot(r->fifo))
                         : ncclSuccess;
  if (TT_UNLIKELY(res != ncclSuccess)) {
    tt_port_stop(port, res);
    return TT_RUN_FAILED;
  }
  return TT_RUN_BLOCKED;
}

tt_run tt_program_run_lane(tt_port *port, tt_lane *l, size_t *budget)
{
  const tt_program *q = l->program;
  const tt_call *c = l->call;
  const tt_program_call call = {
      .buffers = {(char *)c->in, c->out, q->scratch}, .sig = c->sig, .sig_count = c->sig_count};
  // About: the first step tells for all.
  size_t cost = q->steps[0].bytes + 64, most = 1 + *budget / cost;
  int n = run_strand(q, &call, 0, (int)l->pc, (int)(most < l->stop - l->pc ? l->pc + most : l->stop));
  if (n > 0 && q->npages > 0) {
    program_ring(port, q, &call);
  }
  l->pc += (uint32_t)n;
  l->waits_for = -1;
  *budget -= TT_MIN(*budget, (size_t)n * cost);
  l->done = l->pc == l->stop;
  return l->done ? TT_RUN_DONE : *budget == 0 ? TT_RUN_MORE : program_wait(port, l, &call);
}
