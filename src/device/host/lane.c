// lane.c: where a lane stands: its passes, and what the step there means (program.c runs it; schedule.h has the
// semantics).
#include "device/lane.h"

#include "device/host/offer.h"
#include "device/host/step.h"

#define CHUNK_ALIGN 64 // bytes: keeps the chunks of a short last pass on cache lines

// The chunk size of the pass that begins at `pos`: full passes as planned, the last one shares out what remains.
static inline size_t chunk_of_pass(const tt_lane *l, size_t pos)
{
  size_t left = l->end - pos, nsub = (size_t)l->sched->nsub;
  if (left >= nsub * l->max_chunk) {
    return l->max_chunk;
  }
  size_t unit = (size_t)CHUNK_ALIGN >> __builtin_ctzl(l->call->esize), share = nsub == 1 ? left : TT_DIV_UP(left, nsub);
  return TT_MIN(l->max_chunk, (share + unit - 1) & ~(unit - 1)); // a division costs more than all the rest
}

static inline void begin_pass(tt_lane *l)
{
  l->chunk = chunk_of_pass(l, l->pos);
}

// Elements from the start of a buffer to a chunk, in the pass that begins at `pos` with chunks of `chunk_size`.
static inline size_t lane_element(const tt_lane *l, const tt_step *step, uint32_t chunk, size_t pos, size_t chunk_size)
{
  uint32_t nsub = (uint32_t)l->sched->nsub;
  size_t block = nsub == 1 ? chunk : chunk < nsub ? 0 : chunk / nsub;
  return block * l->call->count + pos + (size_t)step->sub * chunk_size;
}

// Elements a step moves in the pass at `pos`: the sub-chunk's share, cut off at the end of the lane's part.
static inline size_t count_in_pass(const tt_lane *l, const tt_step *step, size_t pos, size_t chunk)
{
  size_t start = pos + (size_t)step->sub * chunk;
  return start >= l->end ? 0 : TT_MIN(chunk, l->end - start);
}

// The same in the lane's current pass, in bytes.
static inline size_t lane_bytes(const tt_lane *l, const tt_step *step)
{
  return count_in_pass(l, step, l->pos, l->chunk) * l->call->esize;
}

// What every lane begins with. Store by store: as one value so large a structure would be cleared first.
static inline void lane_set(tt_lane *l, const tt_schedule *sched, int strand, tt_call *call, size_t chunk,
                            tt_proto fifo)
{
  l->sched = sched;
  l->strand = &sched->strands[strand];
  l->call = call;
  l->begin = l->pos = 0;
  l->end = call->count;
  l->max_chunk = chunk;
  l->fifo = (uint8_t)fifo;
  l->waits_for = l->after = -1;
  l->nafter = 1;
  l->lends = l->places = 0;
  l->lent = l->drains = l->receives = false;
  l->resolved = TT_LANE_UNRESOLVED;
}

void tt_lane_init(tt_lane *l, const tt_schedule *sched, int strand, tt_call *call, size_t chunk, tt_proto fifo)
{
  lane_set(l, sched, strand, call, chunk, fifo);
  l->program = NULL;
  l->tmp = call->tmp;
  l->slot = chunk * call->esize;
  l->pc = 0;
  l->stop = l->strand->count;
  l->done = l->strand->count == 0 || (call->count == 0 && !call->empty);
  if (!l->done) {
    begin_pass(l);
  }
}

void tt_lane_resume(tt_lane *l, const tt_program *program, int strand, tt_call *call, int steps)
{
  lane_set(l, program->sched, strand, call, program->chunk, program->fifo);
  l->program = program;
  l->steps = program->steps + program->first[strand];
  l->chunk = call->count; // one pass: all passes are among the steps
  l->tmp = program->call.buffers[TT_TMP];
  l->pc = (uint32_t)steps;
  l->stop = (uint32_t)(program->first[strand + 1] - program->first[strand]);
  l->done = l->pc == l->stop;
}

void tt_lane_share(tt_lane *l, size_t begin, size_t end)
{
  l->begin = l->pos = begin;
  l->end = end;
  l->done = l->strand->count == 0 || begin >= end;
  if (!l->done) {
    begin_pass(l);
  }
}

// The FIFO of a message or token; NULL: the reference is neither.
static inline tt_fifo *lane_fifo(const tt_port *port, const tt_lane *l, const tt_ref *r, bool source)
{
  if (r->kind != TT_FIFO && r->kind != TT_TOKEN) {
    return NULL;
  }
  tt_link *link = port->links[r->peer];
  return &(source ? link->recv : link->send)[r->kind == TT_TOKEN ? TT_TOK : l->fifo];
}

static inline tt_program_ref resolve_ref(const tt_port *port, const tt_lane *l, const tt_step *step, const tt_ref *r,
                                         bool source)
{
  return (tt_program_ref){.fifo = lane_fifo(port, l, r, source),
                          .offset = r->kind == TT_TMP
                                        ? r->chunk * l->slot
                                        : lane_element(l, step, r->chunk, l->pos, l->chunk) * l->call->esize,
                          .peer = r->peer,
                          .kind = r->kind,
                          .offer = r->offer};
}

// Is it a message or memory that only step.c reaches?
static inline bool ref_is_far(const tt_port *port, const tt_ref *r)
{
  const tt_link *link = r->kind == TT_FIFO ? port->links[r->peer] : NULL;
  return r->kind > TT_FIFO || (link != NULL && (link->networked || link->behind != NULL));
}

static inline tt_program_kind kind_of_near(const tt_program_step *s, bool plain)
{
  if (s->ndst != 1 || !plain) {
    return TT_PROGRAM_ANY;
  }
  return !s->reduce ? TT_PROGRAM_COPY : s->nsrc == 2 ? TT_PROGRAM_FOLD : TT_PROGRAM_ANY;
}

void tt_lane_resolve(const tt_port *port, const tt_lane *l, tt_program_step *s, tt_program_ref *refs)
{
  const tt_step *step = &l->sched->steps[l->strand->first + l->pc];
  const tt_redop *op = &l->call->op;
  bool plain = !op->prescale && !((step->flags & TT_STEP_FINAL) && op->divisor > 1);
  bool far = l->call->stream || l->call->stream_put || step->nsrc == 0 || step->ndst == 0;
  s->refs = refs;
  s->count = count_in_pass(l, step, l->pos, l->chunk);
  s->bytes = s->count * l->call->esize;
  s->nsrc = step->nsrc;
  s->ndst = step->ndst;
  s->flags = step->flags;
  s->reduce = (step->flags & TT_STEP_REDUCE) && (step->nsrc > 1 || !plain);
  for (int i = 0; i < step->nsrc + step->ndst; i++) {
    bool source = i < step->nsrc;
    const tt_ref *r = &l->sched->refs[source ? step->src + (uint32_t)i : step->dst + (uint32_t)(i - step->nsrc)];
    refs[i] = resolve_ref(port, l, step, r, source);
    far |= ref_is_far(port, r);
  }
  s->kind = (uint8_t)(far || s->bytes == 0 ? TT_PROGRAM_FAR : kind_of_near(s, plain));
}

bool tt_lane_source_ready(const tt_port *port, const tt_lane *l, const tt_ref *source)
{
  const tt_fifo *f = lane_fifo(port, l, source, true);
  return f != NULL ? tt_fifo_arrived(f) : source->kind != TT_DRAIN || tt_offers_drained(port->links[source->peer]);
}

// The position at which a pass begins, counted from the lane's beginning.
static inline size_t pass_begin(const tt_lane *l, uint64_t pass)
{
  return l->begin + (size_t)pass * (size_t)l->sched->nsub * l->max_chunk;
}

size_t tt_lane_message(const tt_lane *l, uint32_t number, uint64_t pass)
{
  size_t pos = pass_begin(l, pass);
  return count_in_pass(l, &l->sched->steps[number], pos, chunk_of_pass(l, pos)) * l->call->esize;
}

char *tt_lane_place(const tt_lane *l, uint32_t number, uint64_t pass, size_t *bytes)
{
  const tt_step *step = &l->sched->steps[number];
  if (!(step->flags & l->places)) {
    return NULL;
  }
  size_t pos = pass_begin(l, pass), chunk = chunk_of_pass(l, pos);
  *bytes = count_in_pass(l, step, pos, chunk) * l->call->esize;
  if (*bytes < TT_LEND_MIN) {
    return NULL;
  }
  const tt_ref *r = l->sched->refs + step->dst;
  while (r->kind != TT_OUT) { // there is one (coll/zerocopy.h)
    r++;
  }
  return l->call->out + lane_element(l, step, r->chunk, pos, chunk) * l->call->esize;
}

void tt_lane_advance(tt_lane *l)
{
  l->resolved = TT_LANE_UNRESOLVED;
  if (++l->pc < l->stop) {
    return;
  }
  l->pc = 0;
  l->pos += (size_t)l->sched->nsub * l->chunk;
  if (l->pos < l->end) {
    begin_pass(l);
  } else if (l->lent) {
    l->drains = true;
  } else {
    l->done = true;
  }
}

bool tt_lane_drained(const tt_port *port, tt_lane *l)
{
  for (; l->pc < l->strand->count; l->pc++) {
    const tt_step *step = &l->sched->steps[l->strand->first + l->pc];
    const tt_ref *dst = l->sched->refs + step->dst;
    for (int i = 0; i < step->ndst && (step->flags & l->lends); i++) {
      // A link that the reference does not need is not looked at: it may be connecting just then.
      tt_link *link = dst[i].kind == TT_FIFO ? port->links[dst[i].peer] : NULL;
      if (link != NULL && link->networked && !tt_fifo_drained(&link->send[l->fifo])) {
        l->waits_for = dst[i].peer;
        return false;
      }
    }
  }
  l->pc = 0;
  l->waits_for = -1;
  return true;
}

const tt_step *tt_lane_step(const tt_lane *l, size_t *bytes)
{
  if (l->drains) {
    return NULL;
  }
  const tt_step *steps = &l->sched->steps[l->strand->first];
  const tt_step *step = &steps[l->pc % l->strand->count];
  *bytes = l->program != NULL ? l->steps[l->pc].bytes : lane_bytes(l, step);
  return step;
}
