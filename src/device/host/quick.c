// quick.c: see quick.h.
#include "device/quick.h"

#include <string.h>

#include "device/host/step.h"
#include "os/relax.h"

// ---- Making it ready

static bool add_page(tt_quick *q, tt_rank_page *page)
{
  for (int i = 0; i < q->npages; i++) {
    if (q->pages[i] == page) {
      return true;
    }
  }
  if (q->npages == TT_QUICK_PAGES) {
    return false;
  }
  q->pages[q->npages++] = page;
  return true;
}

// One pass of a lane.
typedef struct pass {
  const tt_port *port;
  const tt_lane *lane;
  uint64_t number;
  size_t pos, chunk;
} pass;

static bool add_ref(const pass *p, const tt_step *step, const tt_ref *r, bool source, tt_quick *q, tt_quick_ref *out)
{
  const tt_lane *l = p->lane;
  if (r->kind == TT_IN || r->kind == TT_OUT) {
    size_t element = tt_lane_element(l, step, r->chunk, p->pos, p->chunk);
    *out = (tt_quick_ref){.offset = element * l->call->esize, .out = r->kind == TT_OUT};
    return true;
  }
  tt_link *link = r->kind == TT_FIFO ? p->port->links[r->peer] : NULL;
  if (link == NULL || link->networked || link->behind != NULL || r->peer == p->port->rank) {
    return false;
  }
  *out = (tt_quick_ref){.fifo = source ? &link->recv[l->fifo] : &link->send[l->fifo]};
  q->claims &= !source;
  q->pauses |= !source;
  return add_page(q, link->page);
}

static tt_quick_kind kind_of(const tt_step *step, bool reduces, bool divides)
{
  if (step->ndst != 1 || divides) {
    return TT_QUICK_ANY;
  }
  return !reduces ? TT_QUICK_COPY : step->nsrc == 2 ? TT_QUICK_FOLD : TT_QUICK_ANY;
}

static bool add_step(const pass *p, uint32_t number, int *nrefs, tt_quick *q)
{
  const tt_lane *l = p->lane;
  const tt_step *step = &l->sched->steps[number];
  size_t bytes = tt_lane_message(l, number, p->number);
  if (q->nsteps == TT_QUICK_STEPS || bytes == 0 || bytes > TT_QUICK_BYTES || *nrefs + step->nsrc + step->ndst > TT_QUICK_REFS ||
      step->nsrc == 0 || step->ndst == 0) {
    return false;
  }
  bool divides = (step->flags & TT_STEP_FINAL) != 0 && l->call->op.divisor > 1;
  bool reduces = (step->flags & TT_STEP_REDUCE) != 0 && (step->nsrc > 1 || divides);
  q->steps[q->nsteps++] = (tt_quick_step){.kind = (uint8_t)kind_of(step, reduces, divides),
                                          .nsrc = (uint8_t)step->nsrc,
                                          .ndst = (uint8_t)step->ndst,
                                          .first = (uint8_t)*nrefs,
                                          .reduce = reduces,
                                          .flags = divides ? TT_REDUCE_FINAL : 0,
                                          .count = (uint32_t)(bytes / l->call->esize),
                                          .bytes = (uint32_t)bytes};
  bool fits = true;
  for (uint32_t i = 0; i < step->nsrc; i++) {
    fits = fits && add_ref(p, step, &l->sched->refs[step->src + i], true, q, &q->refs[(*nrefs)++]);
  }
  for (uint32_t i = 0; i < step->ndst; i++) {
    fits = fits && add_ref(p, step, &l->sched->refs[step->dst + i], false, q, &q->refs[(*nrefs)++]);
  }
  return fits;
}

static bool add_strand(const tt_port *port, const tt_lane *l, int *nrefs, tt_quick *q)
{
  uint64_t passes = TT_DIV_UP(l->end - l->begin, (size_t)l->sched->nsub * l->max_chunk);
  bool fits = passes <= TT_QUICK_STEPS;
  for (uint64_t n = 0; fits && n < passes; n++) {
    pass p = {.port = port, .lane = l, .number = n};
    p.pos = tt_lane_pass(l, n, &p.chunk);
    for (uint32_t i = 0; fits && i < l->strand->count; i++) {
      fits = add_step(&p, l->strand->first + i, nrefs, q);
    }
  }
  return fits;
}

bool tt_quick_make(const tt_port *port, const tt_lane *lanes, tt_quick *q)
{
  int nrefs = 0;
  const tt_call *c = lanes->call;
  *q = (tt_quick){.op = c->op, .nstrands = lanes->sched->nstrands, .claims = true};
  bool fits = q->nstrands <= TT_QUICK_STRANDS && !c->op.prescale && c->scalar == NULL && lanes->fifo != TT_TOK;
  for (int i = 0; fits && i < q->nstrands; i++) {
    q->first[i] = q->nsteps;
    fits = !lanes[i].done && add_strand(port, &lanes[i], &nrefs, q);
    q->first[i + 1] = q->nsteps;
  }
  q->single = q->nsteps == 1 && q->npages > 0 ? (tt_quick_kind)q->steps[0].kind : TT_QUICK_ANY;
  return fits;
}

// ---- Running it

#if defined(__x86_64__)
#define PAUSE_LOOKS 8 // looks that one with a pause behind it counts as; it takes as long as 16 to 60: a pause is 40 to 140 cycles, mostly
#else
#define PAUSE_LOOKS 1
#endif

// Waits for the reference's message, if it is one, as long as there are looks left; false: it is not there, or of another call.
static inline __attribute__((always_inline)) bool arrived(const tt_quick *q, const tt_quick_ref *r, const tt_quick_call *c, unsigned *looks)
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

static inline void *address(const tt_quick_ref *r, const tt_quick_call *c)
{
  return r->fifo != NULL ? tt_fifo_data(r->fifo) : r->out ? c->out + r->offset : (char *)c->in + r->offset;
}

// Small sizes are most, and a call of memcpy costs as much as the copy.
static inline void copy(void *to, const void *from, size_t bytes)
{
  if (bytes == 8) {
    memcpy(to, from, 8);
  } else if (bytes == 4) {
    memcpy(to, from, 4);
  } else if (to != from) {
    memcpy(to, from, bytes);
  }
}

static __attribute__((noinline)) void move_any(const tt_quick *q, const tt_quick_step *s, const tt_quick_ref *refs, const tt_quick_call *c)
{
  void *at[TT_QUICK_REFS];
  int n = s->nsrc + s->ndst;
  for (int i = 0; i < n; i++) {
    at[i] = address(&refs[i], c);
  }
  if (s->reduce) {
    tt_reduce(&q->op, s->ndst, at + s->nsrc, s->nsrc, (const void *const *)at, NULL, s->count, s->flags);
    return;
  }
  for (int i = s->nsrc; i < n; i++) {
    copy(at[i], at[0], s->bytes);
  }
}

static inline __attribute__((always_inline)) void move(const tt_quick *q, const tt_quick_step *s, const tt_quick_ref *refs,
                                                       const tt_quick_call *c, tt_quick_kind kind)
{
  if (kind == TT_QUICK_COPY) {
    copy(address(&refs[1], c), address(&refs[0], c), s->bytes);
  } else if (kind == TT_QUICK_FOLD) {
    const void *src[2] = {address(&refs[0], c), address(&refs[1], c)};
    void *dst = address(&refs[2], c);
    tt_reduce(&q->op, 1, &dst, 2, src, NULL, s->count, 0);
  } else {
    move_any(q, s, refs, c);
  }
}

// Runs a step. The numbers of sources and destinations are constants where `kind` tells them. False: it would have to wait.
static inline __attribute__((always_inline)) bool run_kind(const tt_quick *q, const tt_quick_step *s, const tt_quick_call *c,
                                                           unsigned looks, tt_quick_kind kind)
{
  const int nsrc = kind == TT_QUICK_COPY ? 1 : kind == TT_QUICK_FOLD ? 2 : s->nsrc, nall = nsrc + (kind == TT_QUICK_ANY ? s->ndst : 1);
  const tt_quick_ref *refs = q->refs + s->first;
  for (int i = 0; i < nsrc; i++) {
    if (!arrived(q, &refs[i], c, &looks)) {
      return false;
    }
  }
  for (int i = nsrc; i < nall; i++) {
    if (refs[i].fifo != NULL && !tt_fifo_room(refs[i].fifo)) {
      return false;
    }
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

static inline __attribute__((always_inline)) bool run_step(const tt_quick *q, const tt_quick_step *s, const tt_quick_call *c,
                                                           unsigned looks)
{
  switch (s->kind) {
  case TT_QUICK_COPY: return run_kind(q, s, c, looks, TT_QUICK_COPY);
  case TT_QUICK_FOLD: return run_kind(q, s, c, looks, TT_QUICK_FOLD);
  default: return run_kind(q, s, c, looks, TT_QUICK_ANY);
  }
}

// Returns how many steps of a strand were run from number `from` on.
static int run_strand(const tt_quick *q, const tt_quick_call *c, unsigned looks, int from, int end)
{
  int i = from;
  while (i < end && run_step(q, &q->steps[i], c, looks)) {
    i++;
  }
  return i - from;
}

static inline void ring_pages(const tt_port *port, const tt_quick *q)
{
  for (int i = 0; i < q->npages; i++) {
    tt_page_ring(q->pages[i], port->rank);
  }
}

static inline void ring(const tt_port *port, const tt_quick *q, const tt_quick_call *c)
{
  if (!c->silent) {
    tt_bell_fence(); // one for all: a peer that sleeps until then sleeps a fraction of a microsecond longer
    ring_pages(port, q);
  }
}

void tt_quick_tell(const tt_port *port, const tt_quick *const *quicks, int n)
{
  tt_bell_fence();
  for (int i = 0; i < n; i++) {
    ring_pages(port, quicks[i]);
  }
}

// Most messages, and what roots and others have to do: one step. Functions of their own, because they need few registers.
static inline __attribute__((always_inline)) bool run_single(const tt_port *port, const tt_quick *q, const tt_quick_call *c, unsigned looks,
                                                             tt_quick_done *done, tt_quick_kind kind)
{
  if (done->steps[0] == 0 && run_kind(q, q->steps, c, looks, kind)) {
    done->steps[0] = 1;
    ring(port, q, c);
  }
  return done->steps[0] == 1;
}

static __attribute__((noinline)) bool run_copy(const tt_port *port, const tt_quick *q, const tt_quick_call *c, unsigned looks,
                                               tt_quick_done *done)
{
  return run_single(port, q, c, looks, done, TT_QUICK_COPY);
}

static __attribute__((noinline)) bool run_fold(const tt_port *port, const tt_quick *q, const tt_quick_call *c, unsigned looks,
                                               tt_quick_done *done)
{
  return run_single(port, q, c, looks, done, TT_QUICK_FOLD);
}

static __attribute__((noinline)) bool run_strands(const tt_port *port, const tt_quick *q, const tt_quick_call *c, unsigned looks,
                                                  tt_quick_done *done)
{
  int sum = 0, left = 0;
  for (int k = 0; k < q->nstrands; k++) {
    int from = q->first[k] + done->steps[k];
    int n = run_strand(q, c, looks, from, q->first[k + 1]);
    done->steps[k] = (uint8_t)(done->steps[k] + n);
    sum += n;
    left += q->first[k + 1] - from - n;
  }
  if (sum > 0 && q->npages > 0) {
    ring(port, q, c);
  }
  return left == 0;
}

bool tt_quick_run(tt_port *port, const tt_quick *q, const tt_quick_call *c, unsigned looks, tt_quick_done *done)
{
  switch (q->single) {
  case TT_QUICK_COPY: return run_copy(port, q, c, looks, done);
  case TT_QUICK_FOLD: return run_fold(port, q, c, looks, done);
  default: return run_strands(port, q, c, looks, done);
  }
}
