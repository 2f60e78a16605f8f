// lane.c: the host executor: runs a strand's steps on CPU memory as a resumable state machine (schedule.h has the
// semantics).
#include "device/lane.h"

#include "base/result.h"
#include "device/host/offer.h"
#include "device/host/step.h"
#include "device/program.h"

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

void tt_lane_init(tt_lane *l, const tt_schedule *sched, int strand, tt_call *call, size_t chunk, tt_proto fifo)
{
  l->program = NULL;
  l->sched = sched;
  l->strand = &sched->strands[strand];
  l->call = call;
  l->begin = l->pos = 0;
  l->end = call->count;
  l->max_chunk = chunk;
  l->tmp = call->tmp;
  l->pc = 0;
  l->fifo = (uint8_t)fifo;
  l->waits_for = l->after = -1;
  l->nafter = 1;
  l->lends = l->places = 0;
  l->lent = l->drains = l->receives = false;
  l->done = l->strand->count == 0 || call->count == 0;
  if (!l->done) {
    begin_pass(l);
  }
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

static inline bool posts(const tt_ref *r)
{
  return r->kind == TT_FIFO || r->kind == TT_TOKEN;
}

// The FIFO of a message or token; NULL: the reference is neither.
static inline tt_fifo *lane_fifo(const tt_port *port, const tt_lane *l, const tt_ref *r, bool source)
{
  if (!posts(r)) {
    return NULL;
  }
  tt_link *link = port->links[r->peer];
  return &(source ? link->recv : link->send)[r->kind == TT_TOKEN ? TT_TOK : l->fifo];
}

bool tt_lane_source_ready(const tt_port *port, const tt_lane *l, const tt_ref *source)
{
  const tt_fifo *f = lane_fifo(port, l, source, true);
  return f != NULL ? tt_fifo_arrived(f) : source->kind != TT_DRAIN || tt_offers_drained(port->links[source->peer]);
}

bool tt_lane_has_room(const tt_port *port, const tt_lane *l, const tt_step *step, const tt_ref *destination)
{
  tt_fifo *f = lane_fifo(port, l, destination, false);
  if (f == NULL || !tt_fifo_room(f)) {
    return f == NULL;
  }
  return destination->offer == TT_OFFER_NONE ||
         tt_offer_room(port->links[destination->peer], l->call, destination, lane_bytes(l, step));
}

// Is everything the step needs there? Remembers the peer it waits for.
static bool step_ready(const tt_port *port, tt_lane *l, const tt_step *step)
{
  const tt_ref *src = l->sched->refs + step->src, *dst = l->sched->refs + step->dst, *missing = NULL;
  for (int i = 0; i < step->nsrc && missing == NULL; i++) {
    missing = tt_lane_source_ready(port, l, &src[i]) ? NULL : &src[i];
  }
  l->receives = missing != NULL && missing->kind != TT_DRAIN;
  for (int i = 0; i < step->ndst && missing == NULL; i++) {
    missing = tt_lane_has_room(port, l, step, &dst[i]) ? NULL : &dst[i];
  }
  l->waits_for = missing != NULL ? missing->peer : -1;
  return missing == NULL;
}

static void step_ring(const tt_port *port, const tt_ref *refs, int n)
{
  for (int i = 0; i < n; i++) {
    if (posts(&refs[i])) {
      tt_page_ring(port->links[refs[i].peer]->page, port->rank);
    }
  }
}

// Gives back what was received, publishes what is sent, and wakes the peers concerned.
static void step_publish(const tt_port *port, const tt_lane *l, const tt_step *step, uint32_t bytes)
{
  const tt_ref *dst = l->sched->refs + step->dst, *src = l->sched->refs + step->src;
  bool posted = false;
  for (int i = 0; i < step->ndst; i++) {
    tt_fifo *f = lane_fifo(port, l, &dst[i], false);
    if (f != NULL) {
      uint32_t size = dst[i].kind == TT_FIFO ? bytes : port->links[dst[i].peer]->handover->sent_bytes;
      tt_fifo_publish(f, size, l->call->sig, l->call->sig_count);
      posted = true;
    }
  }
  for (int i = 0; i < step->nsrc; i++) {
    tt_fifo *f = lane_fifo(port, l, &src[i], true);
    if (f != NULL) {
      tt_fifo_release(f);
      posted = true;
    }
  }
  if (posted) {
    tt_bell_fence();
    step_ring(port, dst, step->ndst);
    step_ring(port, src, step->nsrc);
  }
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
  return l->call->out + tt_lane_element(l, step, r->chunk, pos, chunk) * l->call->esize;
}

size_t tt_lane_pass(const tt_lane *l, uint64_t pass, size_t *chunk)
{
  size_t pos = pass_begin(l, pass);
  *chunk = chunk_of_pass(l, pos);
  return pos;
}

static void lane_advance(tt_lane *l)
{
  if (++l->pc < l->strand->count) {
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

// After the last pass: has the network taken everything that was lent to it? Goes over the steps once more. A FIFO that
// other steps use too is asked for no more than this lane has put in.
static bool drained(const tt_port *port, tt_lane *l)
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
  if (l->program != NULL) {
    uint32_t taken = l->strand->count - (l->stop - l->pc) % l->strand->count;
    *bytes = l->program->steps[l->pc].bytes;
    return &steps[taken % l->strand->count];
  }
  *bytes = lane_bytes(l, &steps[l->pc]);
  return &steps[l->pc];
}

tt_run tt_lane_run(tt_port *port, tt_lane *l, size_t *budget)
{
  if (l->program != NULL) {
    return tt_program_run_lane(port, l, budget);
  }
  while (!l->done) {
    if (TT_UNLIKELY(l->drains)) {
      l->done = drained(port, l);
      return l->done ? TT_RUN_DONE : TT_RUN_BLOCKED;
    }
    const tt_step *step = &l->sched->steps[l->strand->first + l->pc];
    if (!step_ready(port, l, step)) {
      return TT_RUN_BLOCKED;
    }
    size_t count = count_in_pass(l, step, l->pos, l->chunk), bytes = count * l->call->esize;
    ncclResult_t res = tt_step_run(port, l, step, count);
    if (TT_UNLIKELY(res != ncclSuccess)) {
      tt_port_stop(port, res);
      return TT_RUN_FAILED;
    }
    step_publish(port, l, step, (uint32_t)bytes);
    lane_advance(l);
    size_t cost = bytes + 64;
    if (*budget <= cost) {
      *budget = 0;
      return l->done ? TT_RUN_DONE : TT_RUN_MORE;
    }
    *budget -= cost;
  }
  return TT_RUN_DONE;
}
