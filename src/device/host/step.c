// step.c: see step.h. Steps with tokens, peers' memory or a network: takes tokens, finds the operands, moves the data.
#include "device/host/step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/result.h"
#include "device/host/mem.h"
#include "device/host/offer.h"
#include "device/owner.h"

#define PAGE_LOOK_NS (5 * TT_NS_PER_MS) // between two looks at the copy of a peer's page,
#define PAGE_LOOKS 80                   // and how many

// Operands of a step: one entry per data source and destination. A remote one has `link` set and an address in the
// peer's process.
typedef struct operands {
  int nsrc, ndst;
  bool remote;
  bool spared; // TT_STEP_UNLESS_PUT, and the result is here
  bool took;   // something has come along with a token
  void **src, **dst;
  const uint64_t **scale;
  tt_link **src_link, **dst_link;
  int nowners; // peers among the destinations, reachable or remote; and the last of them
  tt_link *owner;
} operands;

// Some of a step's elements.
typedef struct elements {
  size_t first, count;
} elements;

static const char message[] = "Send/Recv";
static const char *const func_names[16] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce",
                                           "AlltoAll",  "Gather", "Scatter",   message,         message};

static void call_describe_rma(char *text, uint64_t sig, uint64_t count, int with)
{
  switch (sig & 15) {
  case TT_SIG_PUT:
    snprintf(text, TT_CALL_TEXT, "PutSignal into window %llu of rank %d, which is not there", (unsigned long long)count,
             with);
    break;
  case TT_SIG_ROOM: snprintf(text, TT_CALL_TEXT, "PutSignal to rank %d, which does not take messages", with); break;
  default:
    snprintf(text, TT_CALL_TEXT, "WaitSignal for signal %d of context %d from rank %d (%u of %u have come)",
             (int)(sig >> 16 & 0xffff), tt_sig_ctx(sig), with, (unsigned)(count >> 32), (unsigned)count);
  }
}

// A collective. Of one whose blocks have lengths of their own the count is that of the block between two ranks; none
// where the call is meant as a whole.
static void call_describe_collective(char *text, uint64_t sig, uint64_t count, int with)
{
  const char *func = func_names[sig & 15];
  bool blocks = tt_sig_has_blocks(sig);
  char block[64] = "", other[32] = "";
  if (blocks && with >= 0) {
    snprintf(other, sizeof other, " with rank %d", with);
  }
  if (!blocks || count != TT_COUNT_OF_BLOCKS) {
    snprintf(block, sizeof block, " count %llu%s", (unsigned long long)TT_SIG_COUNT(count), other);
  }
  snprintf(text, TT_CALL_TEXT, "operation %u %s%s type %s op %s root %d%s", (unsigned)(sig >> 32),
           func == NULL ? "?" : func, blocks ? "V" : "", tt_type_name((int)(sig >> 4 & 15)),
           tt_opcode_name((int)(sig >> 8 & 15)), (int)(sig >> 16 & 0xffff), block);
}

const char *tt_call_describe(char *text, uint64_t sig, uint64_t count, int with)
{
  if ((sig & 15) >= TT_SIG_PUT && (sig & 15) <= TT_SIG_WAIT) {
    call_describe_rma(text, sig, count, with);
  } else if (func_names[sig & 15] == message) {
    char other[32] = "";
    if (with >= 0) {
      snprintf(other, sizeof other, " with rank %d", with);
    }
    snprintf(text, TT_CALL_TEXT, "%s%s of %llu bytes", message, other, (unsigned long long)TT_SIG_COUNT(count));
  } else {
    call_describe_collective(text, sig, count, with);
  }
  return text;
}

bool tt_call_needs_all(uint64_t sig)
{
  return (sig & 15) >= 2 && (sig & 15) <= 5; // by func_names: no root, and no message
}

// The same call, but not the same algorithm, protocol, channels or chunks. Whose doing it is: the plugin's, unless it
// has left both choices alone.
static ncclResult_t choices_differ(const tt_port *port, const tt_call *call, int peer, uint64_t sig, uint64_t count)
{
  char what[TT_CALL_TEXT], who[96];
  const char *tuner = port->tuner != NULL ? port->tuner : "(none here)";
  bool here = (call->sig_count & TT_SIG_DECIDED) != 0, there = (count & TT_SIG_DECIDED) != 0;
  if (!here && !there && port->tuner == NULL) {
    return tt_fail(
        ncclInvalidUsage,
        "rank %d and rank %d choose differently for %s: ncclCollConfig_t must be the same on all ranks, so must "
        "the NCCL_ variables, the files that they name, and the library",
        port->rank, peer, tt_call_describe(what, sig, count, port->rank));
  }
  if (!here && !there) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d and rank %d choose differently for %s; the tuner plugin %s has left both choices alone, so "
                   "what else decides must "
                   "be the same on all ranks: the NCCL_ variables, the files that they name, and the library",
                   port->rank, peer, tt_call_describe(what, sig, count, port->rank), tuner);
  }
  if (here && there) {
    snprintf(who, sizeof who, "answers differently on rank %d and rank %d for", port->rank, peer);
  } else {
    snprintf(who, sizeof who, "decides on rank %d, and on rank %d leaves alone,", here ? port->rank : peer,
             here ? peer : port->rank);
  }
  return tt_fail(ncclInvalidUsage,
                 "the tuner plugin %s %s %s: it must choose the same algorithm, protocol, number of channels and size "
                 "of chunks on all ranks; "
                 "NCCL_TUNER_PLUGIN=none does without it",
                 tuner, who, tt_call_describe(what, sig, count, port->rank));
}

// Two calls that should be one: fingerprints and counts, this rank's first.
typedef struct two_calls {
  uint64_t sig[2], count[2];
} two_calls;

// What the peer has begun as the operation with this number, by its page. A copy that comes over the network is brought
// up to date before: the call fails, so that a moment of waiting does no harm.
static bool step_peer_shown(const tt_port *port, const tt_link *link, uint32_t number, uint64_t *sig, uint64_t *count)
{
  bool shown = tt_page_shown(link->page, number, sig, count);
  for (int i = 0; i < PAGE_LOOKS && !shown && link->networked && port->mover != NULL; i++) {
    port->mover->probe(port->mover_self, link->peer);
    tt_sleep_ns(PAGE_LOOK_NS);
    shown = tt_page_shown(link->page, number, sig, count);
  }
  return shown;
}

// Are they operations with different numbers? Then one rank got further than the other although they had begun
// different calls earlier: those with the lower number, if they are still known, and do differ.
static void step_find_first(const tt_port *port, int peer, two_calls *c)
{
  uint32_t mine = (uint32_t)(c->sig[0] >> 32), theirs = (uint32_t)(c->sig[1] >> 32);
  const tt_link *link = port->links[peer];
  bool known = false;
  two_calls e = *c;
  if (mine == 0 || theirs == 0 || mine == theirs || link == NULL || link->page == NULL) {
    return;
  }
  if ((int32_t)(mine - theirs) < 0) {
    known = step_peer_shown(port, link, mine, &e.sig[1], &e.count[1]);
  } else {
    known = tt_page_shown(port->page, theirs, &e.sig[0], &e.count[0]);
  }
  if (known && !tt_sig_same_call(e.sig[0], e.count[0], e.sig[1], e.count[1])) {
    *c = e;
  }
}

// Is this rank in a message, and the peer in a collective call? Its message may have come before, in another size
// class. So may a block of this call, where the peer is in another operation.
static void step_find_stray(const tt_port *port, int peer, two_calls *c)
{
  const tt_link *link = port->links[peer];
  uint64_t mine = c->sig[0];
  bool strays = mine >> 32 == 0 ? c->sig[1] >> 32 != 0 : tt_sig_has_blocks(mine) && (c->sig[1] ^ mine) >> 32 != 0;
  for (int k = 0; k < TT_TINY && strays && link != NULL; k++) {
    const tt_slot *s = tt_fifo_slot(&link->recv[k]);
    if (link->recv[k].slots != NULL && tt_fifo_arrived(&link->recv[k]) &&
        (mine >> 32 == 0 ? s->sig >> 32 == 0 : s->sig == mine)) {
      c->sig[1] = s->sig;
      c->count[1] = s->count;
    }
  }
}

// In what two calls differ, in words: into `out`, which it returns.
#define DIFFERENCE_TEXT 64
static const char *step_difference(char out[DIFFERENCE_TEXT], const two_calls *c)
{
  uint64_t x = c->sig[0] ^ c->sig[1];
  bool messages = func_names[c->sig[0] & 15] == message && func_names[c->sig[1] & 15] == message;
  bool shown = tt_sig_has_blocks(c->sig[0]) && tt_sig_has_blocks(c->sig[1]) &&
               (c->count[0] == TT_COUNT_OF_BLOCKS || c->count[1] == TT_COUNT_OF_BLOCKS);
  size_t length = 0;
  const struct {
    bool differs;
    const char *name;
  } parts[] = {{!messages && (x & (15 | TT_SIG_BLOCKS)) != 0, "function"},
               {!messages && (x >> 4 & 15) != 0, "type"},
               {!messages && (x >> 8 & 15) != 0, "op"},
               {!messages && (x >> 16 & 0xffff) != 0, "root"},
               {!shown && TT_SIG_COUNT(c->count[0]) != TT_SIG_COUNT(c->count[1]), messages ? "size" : "count"},
               {x >> 32 != 0, "number"}};
  out[0] = '\0';
  for (size_t i = 0; i < TT_COUNT(parts); i++) {
    if (parts[i].differs) {
      length += (size_t)snprintf(out + length, DIFFERENCE_TEXT - length, "%s%s", length > 0 ? ", " : "", parts[i].name);
    }
  }
  return out;
}

ncclResult_t tt_call_mismatch(const tt_port *port, const tt_call *call, int peer, uint64_t sig, uint64_t count)
{
  char what[DIFFERENCE_TEXT];
  char mine[TT_CALL_TEXT], theirs[TT_CALL_TEXT];
  two_calls c = {.sig = {call->sig, sig}, .count = {call->sig_count, count}};
  if (call->sig == sig && call->sig_count != count && TT_SIG_COUNT(call->sig_count) == TT_SIG_COUNT(count)) {
    return choices_differ(port, call, peer, sig, count);
  }
  step_find_first(port, peer, &c);
  step_find_stray(port, peer, &c);
  const char *when = c.sig[0] != call->sig || c.sig[1] != sig ? "has begun" : "is in";
  return tt_fail(
      ncclInvalidUsage,
      "ranks are in different calls, by %s: rank %d %s %s, but rank %d %s %s; all ranks must make the same calls in "
      "the same order with equal arguments",
      step_difference(what, &c), port->rank, when, tt_call_describe(mine, c.sig[0], c.count[0], peer), peer, when,
      tt_call_describe(theirs, c.sig[1], c.count[1], port->rank));
}

// Where a reference to this rank's own memory or to a message points.
static inline char *operand_at(const tt_port *port, const tt_lane *l, const tt_program_ref *r)
{
  const tt_call *c = l->call;
  switch (r->kind) {
  case TT_IN: return (char *)c->in + r->offset;
  case TT_OUT: return c->out + r->offset;
  case TT_TMP: return l->tmp + r->offset;
  default: break; // TT_FIFO
  }
  const tt_link *link = port->links[r->peer];
  if (r->fifo == &link->recv[TT_SIMPLE] && link->networked && tt_fifo_slot(r->fifo)->elsewhere != 0) {
    return (char *)(uintptr_t)tt_fifo_slot(r->fifo)->elsewhere;
  }
  return tt_fifo_data(r->fifo);
}

static inline const tt_program_ref *step_destinations(const tt_program_step *step)
{
  return step->refs + step->nsrc;
}

const tt_program_ref *tt_step_missing(const tt_port *port, const tt_lane *l, const tt_program_step *step)
{
  const tt_program_ref *dst = step_destinations(step);
  for (const tt_program_ref *r = step->refs; r < dst; r++) {
    if (r->kind == TT_DRAIN && !tt_offers_drained(port->links[r->peer])) {
      return r;
    }
  }
  for (const tt_program_ref *r = dst; r < dst + step->ndst; r++) {
    if (r->offer != TT_OFFER_NONE && !tt_offer_room(port->links[r->peer], l->call, r, step->bytes)) {
      return r;
    }
  }
  return NULL;
}

// Where the data lie that the step may lend to the network; NULL: nowhere, or it is not worth it.
static char *lender_of(const tt_port *port, const tt_lane *l, const tt_program_step *step)
{
  if (!(step->flags & l->lends) || step->bytes < TT_LEND_MIN) {
    return NULL;
  }
  const tt_program_ref *r = step_destinations(step);
  for (int i = 0; i < step->ndst; i++, r++) {
    if (r->kind == TT_OUT) {
      return operand_at(port, l, r);
    }
  }
  // What is sent is the source.
  bool same = !(step->flags & TT_STEP_FINAL) && (!(step->flags & TT_STEP_REDUCE) || !l->call->op.prescale);
  return same ? operand_at(port, l, step->refs) : NULL;
}

// The destination is a message over the network: says where its payload lies. True when nothing need be written.
static inline bool lend(tt_lane *l, tt_link *link, char *lender)
{
  if (!link->networked || l->fifo != TT_SIMPLE) {
    return false;
  }
  lender = link->staged ? NULL : lender;
  tt_fifo_slot(&link->send[TT_SIMPLE])->elsewhere = (uint64_t)(uintptr_t)lender;
  l->lent |= lender != NULL;
  return lender != NULL;
}

// Where the step's part of a peer's buffer lies: a pointer when it is reachable, else an address in its process.
static inline void *peer_part(const tt_link *link, const tt_program_ref *r, size_t bytes, bool *remote)
{
  const tt_handover *h = link->handover;
  bool out = r->kind == TT_PEER_OUT;
  char *local = tt_handover_place(h, out, r->offset, bytes);
  *remote = local == NULL;
  return local != NULL ? local : (char *)(uintptr_t)(out ? h->out_remote : h->in_remote) + r->offset;
}

// Adds the data sources of the step to `o`, taking tokens on the way.
static ncclResult_t find_sources(tt_port *port, tt_lane *l, const tt_program_step *step, operands *o)
{
  const tt_call *c = l->call;
  const tt_program_ref *r = step->refs;
  for (int i = 0; i < step->nsrc; i++, r++) {
    tt_link *link = NULL;
    void *p;
    const uint64_t *scale = NULL;
    bool remote = false;
    switch (r->kind) {
    case TT_TOKEN:
      TT_TRY(tt_token_take(port, l, port->links[r->peer], step->bytes));
      o->took |= port->links[r->peer]->handover->timing.came != 0;
      continue;
    case TT_DRAIN: continue;
    case TT_FIFO:
    case TT_IN:
    case TT_OUT:
    case TT_TMP:
      p = operand_at(port, l, r);
      scale = r->kind == TT_IN ? &c->op.scalar : NULL;
      break;
    default: // TT_PEER_IN, TT_PEER_OUT
      link = port->links[r->peer];
      o->spared |= (step->flags & TT_STEP_UNLESS_PUT) && link->handover->peer_put;
      p = link->handover->copied != NULL ? (char *)(uintptr_t)link->handover->copied
                                         : peer_part(link, r, step->bytes, &remote);
      scale = r->kind == TT_PEER_IN ? &link->handover->scalar : NULL;
      break;
    }
    o->src[o->nsrc] = p;
    o->scale[o->nsrc] = scale;
    o->src_link[o->nsrc++] = remote ? link : NULL;
    o->remote |= remote;
  }
  return ncclSuccess;
}

// A gift to a peer whose output is out of reach: shall the kernel write it?
static bool puts_far(const tt_lane *l, const tt_program_step *step, const tt_link *link)
{
  return (step->flags & TT_STEP_PUT_FAR) && link->access == TT_ACCESS_COPY &&
         !tt_offer_copies(link, l->call, step->bytes);
}

// Can peers map what the step makes or copies?
static bool step_is_mapped(const tt_lane *l, const tt_program_step *step)
{
  bool out = (step->flags & TT_STEP_REDUCE) != 0;
  for (int i = 0; i < step->nsrc + step->ndst; i++) {
    const tt_program_ref *r = &step->refs[i];
    if (r->kind == (out ? TT_OUT : TT_IN)) {
      return tt_call_maps(l->call, out, r->offset, step->bytes);
    }
  }
  return false;
}

// Else it goes where the peer gets a copy from, if it is what this rank's next token offers.
static void lay_copy(const tt_lane *l, const tt_program_step *step, tt_link *link, operands *o)
{
  bool same = !(step->flags & TT_STEP_REDUCE) || step->ndst > 1;
  // Then the peer reads what is offered there.
  void *copy = same && !step_is_mapped(l, step) ? tt_offer_lay(link, l->call, step->bytes) : NULL;
  if (copy != NULL) {
    o->dst[o->ndst] = copy;
    o->dst_link[o->ndst++] = NULL;
  }
}

static void find_destinations(const tt_port *port, tt_lane *l, const tt_program_step *step, operands *o)
{
  char *lender = lender_of(port, l, step);
  const tt_program_ref *r = step_destinations(step);
  for (int i = 0; i < step->ndst; i++, r++) {
    tt_link *link = NULL;
    void *p;
    bool remote = false;
    switch (r->kind) {
    case TT_TOKEN: tt_token_fill(l, r, step->bytes, port->links[r->peer]); continue;
    case TT_FIFO:
      if (lend(l, port->links[r->peer], lender)) {
        continue;
      }
      p = operand_at(port, l, r);
      break;
    case TT_OUT:
    case TT_TMP: p = operand_at(port, l, r); break;
    default: // TT_PEER_OUT (a schedule never writes to an input)
      link = port->links[r->peer];
      p = peer_part(link, r, step->bytes, &remote);
      if ((step->flags & TT_STEP_PUT) && remote && !puts_far(l, step, link)) {
        lay_copy(l, step, link, o);
        continue;
      }
      link->handover->put = (step->flags & TT_STEP_PUT) != 0;
      link->handover->put_far = link->handover->put && remote;
      o->owner = link;
      o->nowners++;
      break;
    }
    o->dst[o->ndst] = p;
    o->dst_link[o->ndst++] = remote ? link : NULL;
    o->remote |= remote;
  }
}

// May a result that goes there bypass the caches? Not those that are read again at once: messages and scratch.
static inline bool may_stream(const tt_program_ref *r)
{
  return r->kind == TT_OUT || r->kind == TT_PEER_OUT;
}

// How the step's results may bypass the caches. One destination that is read again at once is put first.
static unsigned stream_flags(const tt_port *port, const tt_program_step *step, operands *o)
{
  const tt_program_ref *r = step_destinations(step);
  int kept = 0, n = 0, last = 0;
  for (int i = 0; i < step->ndst; i++, r++) {
    if (r->kind != TT_TOKEN) {
      bool keep = !may_stream(r) || (r->kind == TT_PEER_OUT && port->links[r->peer]->handover->outbox.laid > 0);
      kept += keep;
      last = keep ? n : last;
      n++;
    }
  }
  if (kept == 0) {
    return TT_REDUCE_STREAM;
  }
  if (kept > 1 || n != o->ndst) { // n: what is lent to the network is no operand, nor what the kernel writes
    return 0;
  }
  void *first = o->dst[0];
  o->dst[0] = o->dst[last];
  o->dst[last] = first;
  return TT_REDUCE_STREAM | TT_REDUCE_KEEP_FIRST;
}

// May the step's results bypass the caches? A gift that is neither made nor laid out as a copy will be fetched soon;
// what is read from a copy is this rank's alone.
static inline bool streams(const tt_lane *l, const tt_program_step *step, const operands *o)
{
  bool own =
      ((step->flags & TT_STEP_PUT) && o->ndst == step->ndst) || ((step->flags & TT_STEP_UNLESS_PUT) && !o->remote);
  return l->call->stream || (own && l->call->stream_put);
}

static int remote_destinations(const operands *o)
{
  int n = 0;
  for (int i = 0; i < o->ndst; i++) {
    n += o->dst_link[i] != NULL;
  }
  return n;
}

// Combines where every operand is a pointer. flags: how results bypass the caches.
static void step_combine(const tt_lane *l, const tt_program_step *step, operands *o, size_t count, unsigned flags)
{
  const tt_call *c = l->call;
  if (step->flags & TT_STEP_REDUCE) {
    flags |= step->flags & TT_STEP_FINAL ? TT_REDUCE_FINAL : 0;
    tt_reduce(&c->op, o->ndst, o->dst, o->nsrc, (const void *const *)o->src, c->op.prescale ? o->scale : NULL, count,
              flags);
    return;
  }
  int n = 0;
  flags &= o->dst[0] != o->src[0] ? ~0u : ~(unsigned)TT_REDUCE_KEEP_FIRST;
  for (int i = 0; i < o->ndst; i++) { // in place: nothing to copy
    if (o->dst[i] != o->src[0]) {
      o->dst[n++] = o->dst[i];
    }
  }
  if (n > 0) {
    tt_copy(n, o->dst, o->src[0], count * c->esize, flags);
  }
}

// The peer has stopped, or its process has ended: stops the port, whose peers learn why.
static ncclResult_t peer_left(tt_port *port, const tt_link *link)
{
  tt_culprit culprit = 0;
  uint32_t state = tt_link_state(link);
  state = state < TT_RANK_FAILED ? TT_RANK_KILLED : state; // its process cannot be found any more
  ncclResult_t res = tt_port_accuse(port, link->peer, link->page, state, &culprit);
  tt_port_stop_for(port, res, culprit);
  return res;
}

// The owners of the step's destinations, one after the other: the first after number *i, or NULL.
static tt_link *next_owner(const tt_port *port, const tt_program_step *step, int *i)
{
  const tt_program_ref *r = step_destinations(step);
  for (; *i < step->ndst; ++*i) {
    if (r[*i].kind == TT_PEER_OUT) {
      return port->links[r[(*i)++].peer];
    }
  }
  return NULL;
}

static void end_writing(tt_port *port, const tt_program_step *step, const operands *o)
{
  if (o->nowners == 0) {
    return;
  }
  tt_writes_end(port->page);
  int i = 0;
  for (tt_link *link = next_owner(port, step, &i); link != NULL; link = next_owner(port, step, &i)) {
    tt_writes_ring(link->page);
  }
}

// Before this rank writes into others' outputs: may it (device/owner.h)? After success end_writing follows, soon.
static ncclResult_t begin_writing(tt_port *port, const tt_program_step *step, const operands *o)
{
  if (o->nowners == 0) {
    return ncclSuccess;
  }
  tt_writes_begin(port->page, o->nowners == 1 ? (uint32_t)o->owner->peer + 1 : TT_WRITES_ALL);
  int i = 0;
  for (tt_link *link = next_owner(port, step, &i); link != NULL; link = next_owner(port, step, &i)) {
    if (TT_UNLIKELY(tt_page_stopped(link->page))) {
      end_writing(port, step, o);
      return peer_left(port, link);
    }
  }
  return ncclSuccess;
}

// Copies between this process and the peer's. What is read in the order of addresses may have come along with the
// peer's token.
static ncclResult_t kernel_copy(tt_port *port, tt_link *link, void *local, const void *remote, size_t bytes, bool write)
{
  tt_handover *h = link->handover;
  size_t here = write ? 0 : TT_MIN(h->offered, bytes);
  int e = here > 0 ? tt_pagetap_take(&h->tap, local, here) : 0;
  h->offered -= here;
  if (e == 0 && here < bytes) {
    e = tt_proc_copy(link->proc.pid, (char *)local + here, (uint64_t)(uintptr_t)remote + here, bytes - here, write);
  }
  if (e == 0) {
    return ncclSuccess;
  }
  // A rank that has failed or aborted may free its buffers while others still read them.
  if (e == ESRCH || tt_link_state(link) >= TT_RANK_FAILED) {
    return peer_left(port, link);
  }
  if (e == EPERM || e == ENOSYS) {
    return tt_fail(
        ncclSystemError,
        "rank %d may no longer %s memory of rank %d (process %d): %s. It was permitted when the communicator was "
        "created; a process "
        "has changed its user or capabilities since, or a sandbox forbids it. NCCL_CMA_ENABLE=0 avoids direct copies",
        port->rank, write ? "write" : "read", link->peer, link->proc.pid, strerror(e));
  }
  return tt_fail(
      ncclSystemError,
      "rank %d cannot %s %zu bytes at %p of rank %d (process %d): %s; is that buffer valid and long enough on rank %d? "
      "NCCL_CMA_ENABLE=0 avoids direct copies",
      port->rank, write ? "write" : "read", bytes, remote, link->peer, link->proc.pid, strerror(e), link->peer);
}

// The destination that a sum's first remote source may be fetched into, because the sum overwrites it there: what the
// kernel writes goes into the place that would be written anyhow, and is in a cache when it is summed. One of this
// rank's that no source lies in; none where results bypass the caches, or go to peers too, or where peers have read it
// before, whose caches would have to give it up to the kernel. -1: none.
static int step_host_of(const tt_lane *l, const tt_program_step *step, const operands *o)
{
  int host = -1;
  if (!(step->flags & TT_STEP_REDUCE) || l->call->stream || l->call->fetched || o->nowners > 0) {
    return -1;
  }
  for (int i = 0; i < o->ndst && host < 0; i++) {
    host = o->dst_link[i] == NULL ? i : -1;
  }
  for (int i = 0; i < o->nsrc && host >= 0; i++) {
    host = o->src_link[i] == NULL && o->src[i] == o->dst[host] ? -1 : host;
  }
  return host;
}

// One piece of a step with peers' memory among its operands: brings remote sources here, the first one into destination
// `host`, the others into the bounce buffer; combines; writes remote destinations out. A sum for others is made in the
// bounce buffer, where it is in a cache while the kernel copies it.
static ncclResult_t combine_piece(tt_port *port, tt_lane *l, const tt_program_step *step, operands *o, int host,
                                  const elements *part)
{
  size_t esize = l->call->esize, bytes = part->count * esize, done = part->first * esize;
  char *stage = port->bounce, *result = NULL;                                           // what remote destinations get
  void **src = port->operands + 3 * (port->nranks + 2), **dst = src + port->nranks + 2; // operands of this piece
  for (int i = 0; i < o->nsrc; i++) {
    src[i] = (char *)o->src[i] + done;
    if (o->src_link[i] != NULL) {
      char *to = host >= 0 ? (char *)o->dst[host] + done : stage;
      TT_TRY(kernel_copy(port, o->src_link[i], to, src[i], bytes, false));
      src[i] = to;
      stage += host >= 0 ? 0 : TT_ROUND_UP(bytes, TT_CACHE_LINE);
      host = -1;
    }
  }
  operands piece = {.nsrc = o->nsrc, .src = src, .dst = dst, .scale = o->scale};
  ncclResult_t res = ncclSuccess;
  if (remote_destinations(o) > 0) {
    result = step->flags & TT_STEP_REDUCE ? stage : src[0];
    dst[piece.ndst++] = result;
  }
  for (int i = 0; i < o->ndst; i++) {
    if (o->dst_link[i] == NULL) {
      dst[piece.ndst++] = (char *)o->dst[i] + done;
    }
  }
  TT_TRY(begin_writing(port, step, o));
  step_combine(l, step, &piece, part->count,
               streams(l, step, o) ? stream_flags(port, step, &piece) | (result != NULL ? TT_REDUCE_KEEP_FIRST : 0)
                                   : 0);
  for (int i = 0; i < o->ndst && res == ncclSuccess; i++) {
    if (o->dst_link[i] != NULL) {
      res = kernel_copy(port, o->dst_link[i], result, (char *)o->dst[i] + done, bytes, true);
    }
  }
  end_writing(port, step, o);
  return res;
}

// Writes the step's one source into the one peer's output.
static ncclResult_t write_straight(tt_port *port, const tt_program_step *step, const operands *o)
{
  ncclResult_t res = ncclSuccess;
  for (size_t done = 0; done < step->bytes && res == ncclSuccess; done += TT_WRITES_BYTES) {
    TT_TRY(begin_writing(port, step, o));
    res = kernel_copy(port, o->owner, (char *)o->src[0] + done, (char *)o->dst[0] + done,
                      TT_MIN(step->bytes - done, TT_WRITES_BYTES), true);
    end_writing(port, step, o);
  }
  return res;
}

static ncclResult_t combine_far(tt_port *port, tt_lane *l, const tt_program_step *step, operands *o)
{
  size_t esize = l->call->esize, count = step->count;
  bool reduces = (step->flags & TT_STEP_REDUCE) != 0;
  if (!reduces && o->ndst == 1 && o->src_link[0] == NULL && o->dst_link[0] != NULL) {
    return write_straight(port, step, o);
  }
  if (!reduces && o->ndst == 1 && o->src_link[0] != NULL && o->nowners == 0) { // straight into place
    return kernel_copy(port, o->src_link[0], o->dst[0], o->src[0], step->bytes, false);
  }
  int host = step_host_of(l, step, o);
  size_t staged = reduces && remote_destinations(o) > 0;
  for (int i = 0; i < o->nsrc; i++) {
    staged += o->src_link[i] != NULL;
  }
  staged -= host >= 0 && staged > 1;
  size_t most = staged == 0 ? TT_WRITES_BYTES : TT_BOUNCE_BYTES / staged;
  size_t piece = TT_MAX(most / TT_CACHE_LINE * TT_CACHE_LINE / esize, 1);
  for (size_t done = 0; done < count; done += piece) {
    TT_TRY(combine_piece(port, l, step, o, host, &(elements){.first = done, .count = TT_MIN(piece, count - done)}));
  }
  return ncclSuccess;
}

// The offers that came along with the step's tokens have been read.
static void tell_taken(const tt_port *port, const tt_program_step *step, const operands *o)
{
  const tt_program_ref *r = step->refs;
  for (int i = 0; i < step->nsrc && o->took; i++) {
    if (r[i].kind == TT_TOKEN && port->links[r[i].peer]->handover->timing.came != 0) {
      tt_offer_taken(port->links[r[i].peer]);
    }
  }
}

ncclResult_t tt_step_run(tt_port *port, tt_lane *l, const tt_program_step *step)
{
  size_t row = (size_t)port->nranks + 2;
  operands o = {.src = port->operands,
                .dst = port->operands + row,
                .scale = (const uint64_t **)port->operands + 2 * row,
                .src_link = (tt_link **)port->operands + 5 * row,
                .dst_link = (tt_link **)port->operands + 6 * row};
  TT_TRY(find_sources(port, l, step, &o));
  find_destinations(port, l, step, &o);
  if (step->count == 0 || o.nsrc == 0 || o.ndst == 0) {
    return ncclSuccess;
  }
  if (o.spared) {
    tell_taken(port, step, &o);
    return ncclSuccess;
  }
  if (TT_LIKELY(!o.remote && o.nowners == 0)) {
    step_combine(l, step, &o, step->count, streams(l, step, &o) ? stream_flags(port, step, &o) : 0);
  } else {
    TT_TRY(combine_far(port, l, step, &o));
  }
  tell_taken(port, step, &o);
  return ncclSuccess;
}
