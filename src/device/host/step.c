// step.c: see step.h. Finds the operands, takes and gives tokens, and moves the data.
#include "device/host/step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/result.h"
#include "device/host/mem.h"

#define SMALL_COPY 4096 // bytes up to which a plain memcpy is as good as any

// Operands of a step: one entry per data source and destination. A remote one has `link` set and an address in the peer's process.
typedef struct operands {
  int nsrc, ndst;
  bool remote;
  void **src, **dst;
  const uint64_t **scale;
  tt_link **src_link, **dst_link;
} operands;

static const char *const func_names[16] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce",
                                           "AlltoAll",  "Gather", "Scatter",   "Send/Recv",     "Send/Recv"};

// "operation 3 AllReduce type ncclFloat32 op sum root 0 count 12"
static void describe(char *text, size_t size, uint64_t sig, uint64_t count)
{
  static const char *const ops[16] = {"sum", "prod", "max", "min", "avg", "user-defined", "none"};
  const char *func = func_names[sig & 15], *op = ops[sig >> 8 & 15];
  snprintf(text, size, "operation %u %s type %s op %s root/peer %d count %llu", (unsigned)(sig >> 32), func == NULL ? "?" : func,
           tt_type_name((int)(sig >> 4 & 15)), op == NULL ? "?" : op, (int)(sig >> 16 & 0xffff), (unsigned long long)TT_SIG_COUNT(count));
}

ncclResult_t tt_call_mismatch(const tt_port *port, const tt_call *call, int peer, uint64_t sig, uint64_t count)
{
  char mine[160], theirs[160];
  if (call->sig == sig && call->sig_count != count && TT_SIG_COUNT(call->sig_count) == TT_SIG_COUNT(count)) {
    describe(mine, sizeof mine, sig, count);
    return tt_fail(
        ncclInvalidUsage,
        "the tuner plugin %s answers differently on rank %d and rank %d for %s: it must choose the same algorithm, protocol, number of "
        "channels and size of chunks on all ranks; NCCL_TUNER_PLUGIN=none does without it",
        port->tuner != NULL ? port->tuner : "(none here)", port->rank, peer, mine);
  }
  describe(mine, sizeof mine, call->sig, call->sig_count);
  describe(theirs, sizeof theirs, sig, count);
  return tt_fail(
      ncclInvalidUsage,
      "ranks are in different calls: rank %d is in %s, but rank %d is in %s; all ranks must make the same calls in the same order "
      "with equal arguments",
      port->rank, mine, peer, theirs);
}

static ncclResult_t mismatch(const tt_port *port, const tt_call *c, int peer, const tt_slot *s)
{
  return tt_call_mismatch(port, c, peer, s->sig, s->count);
}

static inline bool same_call(const tt_call *c, const tt_slot *s)
{
  return s->sig == c->sig && s->count == c->sig_count;
}

static inline size_t chunk_at(const tt_lane *l, const tt_step *step, uint32_t chunk)
{
  return tt_lane_element(l, step, chunk, l->pos, l->chunk);
}

// Where the next message's payload lies.
static inline char *message_at(const tt_lane *l, const tt_link *link)
{
  const tt_fifo *f = &link->recv[l->fifo];
  if (link->networked && l->fifo == TT_SIMPLE && tt_fifo_slot(f)->elsewhere != 0) {
    return (char *)(uintptr_t)tt_fifo_slot(f)->elsewhere;
  }
  return tt_fifo_data(f);
}

// Where a reference to this rank's own memory or to a message points.
static inline char *operand_at(tt_port *port, const tt_lane *l, const tt_step *step, const tt_ref *r, bool source)
{
  const tt_call *c = l->call;
  switch (r->kind) {
  case TT_IN: return (char *)c->in + chunk_at(l, step, r->chunk) * c->esize;
  case TT_OUT: return c->out + chunk_at(l, step, r->chunk) * c->esize;
  case TT_TMP: return l->tmp + (size_t)r->chunk * l->max_chunk * c->esize;
  default: // TT_FIFO
    return source ? message_at(l, port->links[r->peer]) : tt_fifo_data(&port->links[r->peer]->send[l->fifo]);
  }
}

// Where the data lie that the step may lend to the network; NULL: nowhere, or it is not worth it.
static char *lender_of(tt_port *port, const tt_lane *l, const tt_step *step, size_t count)
{
  const tt_call *c = l->call;
  if (!(step->flags & l->lends) || count * c->esize < TT_LEND_MIN) {
    return NULL;
  }
  const tt_ref *r = l->sched->refs + step->dst;
  for (int i = 0; i < step->ndst; i++, r++) {
    if (r->kind == TT_OUT) {
      return operand_at(port, l, step, r, false);
    }
  }
  bool same = !(step->flags & TT_STEP_FINAL) && (!(step->flags & TT_STEP_REDUCE) || !c->op.prescale); // what is sent is the source
  return same ? operand_at(port, l, step, l->sched->refs + step->src, true) : NULL;
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

// A message must belong to the call this rank is in.
static inline ncclResult_t check_message(const tt_port *port, const tt_lane *l, const tt_ref *r)
{
  const tt_slot *s = tt_fifo_slot(&port->links[r->peer]->recv[l->fifo]);
  return TT_LIKELY(same_call(l->call, s)) ? ncclSuccess : mismatch(port, l->call, r->peer, s);
}

// Where a peer's buffer begins: a pointer when it is reachable, else an address in its process.
static inline void *peer_base(const tt_link *link, bool out, bool *remote)
{
  char *local = out ? link->out : link->in;
  *remote = local == NULL;
  return local != NULL ? local : (void *)(uintptr_t)(out ? link->out_remote : link->in_remote);
}

static ncclResult_t take_token(tt_port *port, const tt_lane *l, tt_link *link)
{
  const tt_slot *s = tt_fifo_slot(&link->recv[TT_TOK]);
  if (TT_UNLIKELY(!same_call(l->call, s))) {
    return mismatch(port, l->call, link->peer, s);
  }
  link->scalar = s->desc.scalar;
  link->in_remote = s->desc.in;
  link->out_remote = s->desc.out;
  if (link->access == TT_ACCESS_LOCAL) {
    link->in = (char *)(uintptr_t)s->desc.in;
    link->out = (char *)(uintptr_t)s->desc.out;
    return ncclSuccess;
  }
  return tt_mem_import(link, &s->desc, &port->abort_flag);
}

static ncclResult_t give_token(const tt_lane *l, tt_link *link)
{
  const tt_call *c = l->call;
  tt_desc *d = &tt_fifo_slot(&link->send[TT_TOK])->desc;
  *d = (tt_desc){.in = (uint64_t)(uintptr_t)c->in, .out = (uint64_t)(uintptr_t)c->out, .scalar = c->op.scalar};
  if (link->access != TT_ACCESS_LOCAL && (c->in_mem | c->out_mem) != 0) {
    return tt_mem_export(link, c, d);
  }
  d->freed = link->shared.freed;
  return ncclSuccess;
}

// Adds the data sources of the step to `o`, taking tokens on the way.
static ncclResult_t find_sources(tt_port *port, tt_lane *l, const tt_step *step, operands *o)
{
  const tt_call *c = l->call;
  const tt_ref *r = l->sched->refs + step->src;
  for (int i = 0; i < step->nsrc; i++, r++) {
    tt_link *link = NULL;
    void *p;
    const uint64_t *scale = NULL;
    bool remote = false;
    switch (r->kind) {
    case TT_TOKEN: TT_TRY(take_token(port, l, port->links[r->peer])); continue;
    case TT_DRAIN: continue;
    case TT_FIFO:
      TT_TRY(check_message(port, l, r));
      p = operand_at(port, l, step, r, true);
      break;
    case TT_IN:
    case TT_OUT:
    case TT_TMP:
      p = operand_at(port, l, step, r, true);
      scale = r->kind == TT_IN ? &c->op.scalar : NULL;
      break;
    default: // TT_PEER_IN, TT_PEER_OUT
      link = port->links[r->peer];
      p = (char *)peer_base(link, r->kind == TT_PEER_OUT, &remote) + chunk_at(l, step, r->chunk) * c->esize;
      scale = r->kind == TT_PEER_IN ? &link->scalar : NULL;
      break;
    }
    o->src[o->nsrc] = p;
    o->scale[o->nsrc] = scale;
    o->src_link[o->nsrc++] = remote ? link : NULL;
    o->remote |= remote;
  }
  return ncclSuccess;
}

static ncclResult_t find_destinations(tt_port *port, tt_lane *l, const tt_step *step, size_t count, operands *o)
{
  const tt_call *c = l->call;
  char *lender = lender_of(port, l, step, count);
  const tt_ref *r = l->sched->refs + step->dst;
  for (int i = 0; i < step->ndst; i++, r++) {
    tt_link *link = NULL;
    void *p;
    bool remote = false;
    switch (r->kind) {
    case TT_TOKEN: TT_TRY(give_token(l, port->links[r->peer])); continue;
    case TT_FIFO:
      if (lend(l, port->links[r->peer], lender)) {
        continue;
      }
      p = operand_at(port, l, step, r, false);
      break;
    case TT_OUT:
    case TT_TMP: p = operand_at(port, l, step, r, false); break;
    default: // TT_PEER_OUT (a schedule never writes to an input)
      link = port->links[r->peer];
      p = (char *)peer_base(link, true, &remote) + chunk_at(l, step, r->chunk) * c->esize;
      break;
    }
    o->dst[o->ndst] = p;
    o->dst_link[o->ndst++] = remote ? link : NULL;
    o->remote |= remote;
  }
  return ncclSuccess;
}

// May the step's results bypass the caches? Not those that are read again at once: messages and scratch.
static unsigned stream_flag(const tt_lane *l, const tt_step *step)
{
  const tt_ref *dst = l->sched->refs + step->dst;
  for (int i = 0; i < step->ndst; i++) {
    if (dst[i].kind != TT_OUT && dst[i].kind != TT_PEER_OUT) {
      return 0;
    }
  }
  return TT_REDUCE_STREAM;
}

// Combines where every operand is a pointer.
static void combine(const tt_lane *l, const tt_step *step, operands *o, size_t count)
{
  const tt_call *c = l->call;
  unsigned flags = c->stream ? stream_flag(l, step) : 0;
  if (step->flags & TT_STEP_REDUCE) {
    flags |= step->flags & TT_STEP_FINAL ? TT_REDUCE_FINAL : 0;
    tt_reduce(&c->op, o->ndst, o->dst, o->nsrc, (const void *const *)o->src, c->op.prescale ? o->scale : NULL, count, flags);
    return;
  }
  int n = 0;
  for (int i = 0; i < o->ndst; i++) { // in place: nothing to copy
    if (o->dst[i] != o->src[0]) {
      o->dst[n++] = o->dst[i];
    }
  }
  if (n > 0) {
    tt_copy(n, o->dst, o->src[0], count * c->esize, flags);
  }
}

static ncclResult_t kernel_copy(const tt_port *port, const tt_link *link, void *local, const void *remote, size_t bytes, bool write)
{
  int e = tt_proc_copy(link->proc.pid, local, (uint64_t)(uintptr_t)remote, bytes, write);
  if (e == 0) {
    return ncclSuccess;
  }
  // A rank that has failed or aborted may free its buffers while others still read them.
  bool stopped = atomic_load_explicit(&link->page->state, memory_order_acquire) >= TT_RANK_FAILED;
  if (e == ESRCH || stopped || (link->watched && !tt_proc_alive(&link->proc))) {
    return tt_fail(ncclRemoteError, "rank %d: rank %d (process %d) has %s in the middle of an operation", port->rank, link->peer,
                   link->proc.pid, stopped ? "given up" : "ended");
  }
  return tt_fail(ncclSystemError,
                 "rank %d cannot %s %zu bytes at %p of rank %d (process %d): %s; is that buffer valid and long enough on rank %d? "
                 "NCCL_CMA_ENABLE=0 avoids direct copies",
                 port->rank, write ? "write" : "read", bytes, remote, link->peer, link->proc.pid, strerror(e), link->peer);
}

// One piece of a step with remote operands: brings remote sources here, combines, writes remote destinations out.
static ncclResult_t combine_piece(tt_port *port, tt_lane *l, const tt_step *step, operands *o, size_t done, size_t count)
{
  size_t esize = l->call->esize, bytes = count * esize;
  char *stage = port->bounce;
  void **src = port->operands + 3 * (port->nranks + 2), **dst = src + port->nranks + 2; // operands of this piece
  for (int i = 0; i < o->nsrc; i++) {
    src[i] = (char *)o->src[i] + done * esize;
    if (o->src_link[i] != NULL) {
      TT_TRY(kernel_copy(port, o->src_link[i], stage, src[i], bytes, false));
      src[i] = stage;
      stage += TT_ROUND_UP(bytes, TT_CACHE_LINE);
    }
  }
  char *out = stage;
  for (int i = 0; i < o->ndst; i++) {
    dst[i] = o->dst_link[i] != NULL ? (void *)out : (char *)o->dst[i] + done * esize;
    out += o->dst_link[i] != NULL ? TT_ROUND_UP(bytes, TT_CACHE_LINE) : 0;
  }
  operands piece = {.nsrc = o->nsrc, .ndst = o->ndst, .src = src, .dst = dst, .scale = o->scale};
  combine(l, step, &piece, count);
  for (int i = 0; i < o->ndst; i++) {
    if (o->dst_link[i] != NULL) {
      TT_TRY(kernel_copy(port, o->dst_link[i], stage, (char *)o->dst[i] + done * esize, bytes, true));
      stage += TT_ROUND_UP(bytes, TT_CACHE_LINE);
    }
  }
  return ncclSuccess;
}

static ncclResult_t combine_remote(tt_port *port, tt_lane *l, const tt_step *step, operands *o, size_t count)
{
  size_t esize = l->call->esize;
  if (!(step->flags & TT_STEP_REDUCE) && o->ndst == 1 && o->src_link[0] != NULL && o->dst_link[0] == NULL) {
    return kernel_copy(port, o->src_link[0], o->dst[0], o->src[0], count * esize, false); // straight into place
  }
  size_t staged = 0;
  for (int i = 0; i < o->nsrc; i++) {
    staged += o->src_link[i] != NULL;
  }
  for (int i = 0; i < o->ndst; i++) {
    staged += o->dst_link[i] != NULL;
  }
  size_t piece = TT_MAX(TT_BOUNCE_BYTES / staged / TT_CACHE_LINE * TT_CACHE_LINE / esize, 1);
  for (size_t done = 0; done < count; done += piece) {
    TT_TRY(combine_piece(port, l, step, o, done, TT_MIN(piece, count - done)));
  }
  return ncclSuccess;
}

// A step that copies one piece of memory or message to another: most steps of small calls.
static inline bool is_plain_copy(const tt_step *step, const tt_ref *src, const tt_ref *dst)
{
  return step->nsrc == 1 && step->ndst == 1 && !(step->flags & TT_STEP_REDUCE) && src->kind <= TT_FIFO && dst->kind <= TT_FIFO;
}

static ncclResult_t plain_copy(tt_port *port, tt_lane *l, const tt_step *step, size_t count)
{
  const tt_ref *src = &l->sched->refs[step->src], *dst = &l->sched->refs[step->dst];
  if (src->kind == TT_FIFO) {
    TT_TRY(check_message(port, l, src));
  }
  if (dst->kind == TT_FIFO && lend(l, port->links[dst->peer], lender_of(port, l, step, count))) {
    return ncclSuccess;
  }
  void *from = operand_at(port, l, step, src, true), *to = operand_at(port, l, step, dst, false);
  size_t bytes = count * l->call->esize;
  if (from != to && bytes > 0) {
    if (bytes <= SMALL_COPY) {
      memcpy(to, from, bytes);
    } else {
      tt_copy(1, &to, from, bytes, l->call->stream ? stream_flag(l, step) : 0);
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_step_run(tt_port *port, tt_lane *l, const tt_step *step, size_t count)
{
  if (is_plain_copy(step, &l->sched->refs[step->src], &l->sched->refs[step->dst])) {
    return plain_copy(port, l, step, count);
  }
  size_t row = (size_t)port->nranks + 2;
  operands o = {.src = port->operands,
                .dst = port->operands + row,
                .scale = (const uint64_t **)port->operands + 2 * row,
                .src_link = (tt_link **)port->operands + 5 * row,
                .dst_link = (tt_link **)port->operands + 6 * row};
  TT_TRY(find_sources(port, l, step, &o));
  TT_TRY(find_destinations(port, l, step, count, &o));
  if (count == 0 || o.nsrc == 0 || o.ndst == 0) {
    return ncclSuccess;
  }
  if (TT_LIKELY(!o.remote)) {
    combine(l, step, &o, count);
    return ncclSuccess;
  }
  return combine_remote(port, l, step, &o, count);
}
