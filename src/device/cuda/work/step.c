// step.c: one step of a schedule as stream work (kernels/kernels.h).
#include <stddef.h>
#include <string.h>

#include "device/cuda/kernels/choose.h"
#include "device/cuda/work/capture_priv.h"
#include "device/cuda/work/functions.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/inbox.h"
#include "device/cuda/work/port_priv.h"
#include "device/cuda/work/times.h"
#include "device/cuda/work/waits.h"
#include "device/cuda/work/walk.h"

// Of all operands that a launch moves, about: an abort waits for no more. Tests have less.
#ifndef TT_GPU_LAUNCH_BYTES
#define TT_GPU_LAUNCH_BYTES (64u << 20)
#endif

// That a CTA moves of each operand, at least.
#ifndef TT_GPU_CTA_BYTES
#define TT_GPU_CTA_BYTES (32u << 10)
#endif

enum {
  WAITS = 16,         // words in a call of the driver
  LAUNCH_ALIGN = 4096 // bytes of an operand
};

typedef struct step_waits {
  tt_gpu_port *port;
  CUstream stream;
  gpu_wait wait; // what is added next, but for the word
  unsigned n;
  CUstreamBatchMemOpParams of[WAITS + 2]; // where it stands, before and behind the waits of a captured one
} step_waits;

// The lists of a step, as they are made.
typedef struct step_lists {
  tt_cuda_ref *refs;
  tt_cuda_post *posts, *tokens;
  uint32_t nrefs, nposts, ntokens, nsrc, ndst;
} step_lists;

// The step that is submitted.
typedef struct step_work {
  tt_gpu_port *port;
  CUstream stream;
  const tt_lane *lane;
  const tt_program_step *step;
  bool data;              // something is to be combined
  uint32_t lines;         // of each of its messages in lines (inbox.h); 0: it has none
  const uint64_t *scalar; // this rank's factor, where kernels can read it
  step_lists lists;
} step_work;

// ---- Waiting ----

static CUstreamBatchMemOpParams place_write(const gpu_recording *rec, uint32_t value)
{
  return (CUstreamBatchMemOpParams){.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                                   .address = gpu_address(rec->capture->place),
                                                   .value = value,
                                                   .flags = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}};
}

static ncclResult_t waits_flush(step_waits *w)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  gpu_recording *rec = w->port->recording;
  if (w->n > 0 && rec != NULL) {
    tt_gpu_record_waits_end(rec);
  }
  if (w->n > 0 && rec != NULL && !gpu_walks(w->port)) {
    w->of[w->n++] = place_write(rec, 0);
  }
  if (w->n > 0 && gpu_walks(w->port)) {
    TT_TRY(tt_gpu_walk_wait(w->port, w->stream, w->of, w->n));
  } else if (w->n > 0) {
    TT_CUDA(cu, cu->StreamBatchMemOp(w->stream, w->n, w->of, 0), "cannot make stream %p wait for words",
            (void *)w->stream);
  }
  w->n = 0;
  return ncclSuccess;
}

// The host is to know what is waited for.
static void waits_note(step_waits *w, const volatile void *word, uint32_t value)
{
  w->wait.word = (const _Atomic uint32_t *)(uintptr_t)word;
  w->wait.value = value;
  tt_gpu_waits_add(w->port, &w->wait);
}

// For a word of that FIFO.
static ncclResult_t waits_add(step_waits *w, const tt_fifo *f, const volatile void *word, uint32_t value)
{
  if (w->n >= WAITS) {
    TT_TRY(waits_flush(w));
  }
  gpu_recording *rec = w->port->recording;
  if (rec == NULL) {
    waits_note(w, word, value);
  } else {
    w->wait.word = (const _Atomic uint32_t *)(uintptr_t)word;
    w->wait.value = value;
    if (w->n == 0 && !gpu_walks(w->port)) {
      w->of[w->n++] = place_write(rec, 1 + (uint32_t)rec->nwaits);
    }
    TT_TRY(tt_gpu_record_wait(rec, &w->wait, f));
  }
  w->of[w->n++] = (CUstreamBatchMemOpParams){.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                                           .address = gpu_address(word),
                                                           .value = value,
                                                           .flags = CU_STREAM_WAIT_VALUE_GEQ}};
  return ncclSuccess;
}

// Until there is room for a message. A captured operation's first one waits for the end of the replay before
// (fifos.h); what the head is now says nothing.
static ncclResult_t wait_room(const tt_gpu_port *p, step_waits *w, tt_fifo *f)
{
  if (p->recording == NULL) {
    return tt_fifo_room(f) ? ncclSuccess : waits_add(w, f, f->head, f->next - f->mask);
  }
  if (f->next == 0) {
    return waits_add(w, f, f->head, ((const gpu_fifo_end *)f)->messages);
  }
  return f->next <= f->mask ? ncclSuccess : waits_add(w, f, f->head, f->next - f->mask);
}

// The FIFO by which tokens go to the peer, or come from it. NULL: none do in this captured operation.
static const tt_fifo *tokens_of(const step_work *k, int peer, bool sends)
{
  const tt_link *link = k->port->port->links[peer];
  const tt_fifo *f = sends ? &link->send[TT_TOK] : &link->recv[TT_TOK];
  if (k->port->recording == NULL) {
    return f;
  }
  const gpu_traffic *t = tt_gpu_traffic_find(k->port->recording, k->lane->call, f);
  return t == NULL ? NULL : &t->end.fifo;
}

// Until the peer has given back all tokens of this rank; a captured operation: all that it has sent in this replay.
static ncclResult_t wait_drain(const step_work *k, step_waits *w, int peer)
{
  const tt_fifo *f = tokens_of(k, peer, true);
  const bool none = k->port->recording != NULL && (f == NULL || f->next == 0);
  return none ? ncclSuccess : waits_add(w, f, f->head, f->next);
}

// Where the message is in memory of a GPU (inbox.h); 0: in its slot. *lines: in lines.
static CUdeviceptr inbox_of(const step_work *k, const tt_program_ref *r, bool *lines)
{
  return r->kind == TT_FIFO && k->port->recording == NULL ? tt_gpu_inbox_at(k->port, r->peer, r->fifo, lines) : 0;
}

static bool is_in_lines(const step_work *k, const tt_program_ref *r)
{
  bool lines = false;
  return inbox_of(k, r, &lines) != 0 && lines;
}

// Messages and tokens that have to arrive, tokens that have to come back, and room for what is sent.
static ncclResult_t step_wait(const step_work *k)
{
  const tt_program_step *s = k->step;
  const tt_lane *l = k->lane;
  const bool whole = l->begin == 0 && l->end == l->call->count; // else the turn is the channel's number
  step_waits w = {.port = k->port,
                  .stream = k->stream,
                  .wait = {.number = k->port->submitted, .sig = l->call->sig, .count = l->call->sig_count}};
  for (int i = 0; i < s->nsrc + s->ndst; i++) {
    const tt_program_ref *r = &s->refs[i];
    w.wait.peer = (uint32_t)r->peer;
    w.wait.how = tt_wait_at(whole ? 0 : l->turn, l->pc) |
                 (r->kind == TT_TOKEN || r->kind == TT_DRAIN ? (uint32_t)TT_WAIT_TOKEN : 0) |
                 (r->fifo != NULL && i < s->nsrc && r->kind != TT_DRAIN ? (uint32_t)TT_WAIT_RECEIVES : 0);
    if (r->kind == TT_DRAIN) {
      TT_TRY(wait_drain(k, &w, r->peer));
    } else if (i < s->nsrc && is_in_lines(k, r)) { // the kernel looks for each line
      waits_note(&w, &tt_fifo_slot(r->fifo)->seq, r->fifo->next + 1);
    } else if (r->fifo != NULL && i < s->nsrc) {
      TT_TRY(waits_add(&w, r->fifo, &tt_fifo_slot(r->fifo)->seq, r->fifo->next + 1));
    } else if (r->fifo != NULL) {
      TT_TRY(wait_room(k->port, &w, r->fifo));
    }
  }
  return waits_flush(&w);
}

// ---- Operands ----

static bool is_data(uint8_t kind)
{
  return kind != TT_TOKEN && kind != TT_DRAIN;
}

// The token of the peer that the step takes; NULL: it takes none.
static const tt_program_ref *step_token(const tt_program_step *s, int peer)
{
  for (int i = 0; i < s->nsrc; i++) {
    if (s->refs[i].kind == TT_TOKEN && s->refs[i].peer == peer) {
      return &s->refs[i];
    }
  }
  return NULL;
}

static void set_header(tt_cuda_ref *out, const tt_fifo *f)
{
  out->slot = gpu_address(tt_fifo_slot(f));
  out->seq = f->next + 1;
}

// An address of the call's own.
static CUdeviceptr step_place(const step_work *k, const volatile void *ptr)
{
  return k->port->recording != NULL ? tt_gpu_record_place(k->port->recording, ptr) : gpu_address(ptr);
}

// Part of a peer's buffer: its token comes with this step, or was kept.
static void set_peer(const step_work *k, const tt_program_ref *r, tt_cuda_ref *out)
{
  const tt_program_ref *token = step_token(k->step, r->peer);
  const tt_fifo *tokens = tokens_of(k, r->peer, false);
  out->line = tokens != NULL ? gpu_address(tokens->head) : 0;
  out->at = r->offset;
  out->where = r->kind == TT_PEER_OUT ? TT_CUDA_PEER_OUT : TT_CUDA_PEER_IN;
  out->maps = tt_gpu_ipc_maps(k->port, r->peer);
  if (token != NULL) {
    set_header(out, token->fifo);
  } else {
    out->slot = k->port->room->tokens + (size_t)r->peer * sizeof(tt_cuda_slot);
    out->seq = k->port->room->token_seq[r->peer];
  }
}

static void set_message(const step_work *k, const tt_program_ref *r, tt_cuda_ref *out)
{
  bool lines = false;
  const CUdeviceptr inbox = inbox_of(k, r, &lines);
  out->at = inbox != 0 ? inbox : gpu_address(tt_fifo_data(r->fifo));
  out->lines = inbox != 0 && lines ? tt_gpu_lines_flag(r->fifo, k->lane->call) : 0;
}

static tt_cuda_ref step_operand(const step_work *k, const tt_program_ref *r, bool source)
{
  const tt_call *c = k->lane->call;
  tt_cuda_ref out = {.bytes = k->step->bytes, .peer = r->peer, .data = 1};
  const bool scales = source && (k->step->flags & TT_STEP_REDUCE) && c->op.prescale;
  switch (r->kind) {
  case TT_IN: out.at = step_place(k, c->in) + r->offset; break;
  case TT_OUT: out.at = step_place(k, c->out) + r->offset; break;
  case TT_TMP: out.at = step_place(k, k->lane->tmp) + r->offset; break;
  case TT_FIFO: set_message(k, r, &out); break;
  default: set_peer(k, r, &out); break;
  }
  if (r->kind == TT_FIFO && source && out.lines == 0) {
    set_header(&out, r->fifo);
  }
  out.scaled = scales && (r->kind == TT_IN || r->kind == TT_PEER_IN);
  out.scalar = gpu_address(k->scalar);
  return out;
}

// Where a token that later steps look at lies on, in memory of the port; 0: none of them does.
static CUdeviceptr token_place(const step_work *k, const tt_program_ref *r)
{
  if (!k->port->keeps) {
    return 0;
  }
  k->port->room->token_seq[r->peer] = r->fifo->next + 1;
  return k->port->room->tokens + (size_t)r->peer * sizeof(tt_cuda_slot);
}

// Sources, destinations, then what only has to be of the same call.
static void list_refs(step_work *k)
{
  const tt_program_step *s = k->step;
  step_lists *l = &k->lists;
  for (int i = 0; i < s->nsrc + s->ndst && k->data; i++) {
    if (is_data(s->refs[i].kind)) {
      l->refs[l->nrefs++] = step_operand(k, &s->refs[i], i < s->nsrc);
      *(i < s->nsrc ? &l->nsrc : &l->ndst) += 1;
    }
  }
  for (int i = 0; i < s->nsrc; i++) {
    const tt_program_ref *r = &s->refs[i];
    if (r->kind == TT_TOKEN || (r->kind == TT_FIFO && !k->data)) {
      l->refs[l->nrefs] = (tt_cuda_ref){.peer = r->peer, .keep = r->kind == TT_TOKEN ? token_place(k, r) : 0};
      set_header(&l->refs[l->nrefs++], r->fifo);
    }
  }
}

// A slot that is given back. A captured operation's is empty again by then.
static tt_cuda_post post_back(const step_work *k, const tt_program_ref *r)
{
  const tt_fifo *f = r->fifo;
  return (tt_cuda_post){.at = gpu_address(f->head),
                        .seq = f->next + 1,
                        .word = 1,
                        .plain = is_in_lines(k, r),
                        .clear = k->port->recording != NULL ? gpu_address(&tt_fifo_slot(f)->seq) : 0};
}

// A message or token. A captured operation's first one takes back what the receiver has counted in the replay before.
static tt_cuda_post post_sent(const step_work *k, const tt_program_ref *r, size_t bytes)
{
  const tt_fifo *f = r->fifo;
  return (tt_cuda_post){.at = gpu_address(tt_fifo_slot(f)),
                        .seq = f->next + 1,
                        .plain = is_in_lines(k, r),
                        .bytes = (uint32_t)bytes,
                        .clear = k->port->recording != NULL && f->next == 0 ? gpu_address(f->head) : 0};
}

// The step no longer uses the peer's memory (owner.h).
static tt_cuda_post post_unused(CUdeviceptr line)
{
  return (tt_cuda_post){.at = line + offsetof(tt_cuda_line, uses), .word = 1, .halted = 1};
}

// What is handed over, and given back. After list_refs.
static void list_posts(step_work *k)
{
  const tt_program_step *s = k->step;
  step_lists *l = &k->lists;
  for (int i = 0; i < s->nsrc + s->ndst; i++) {
    const tt_program_ref *r = &s->refs[i];
    if (r->fifo != NULL && i < s->nsrc) {
      l->posts[l->nposts++] = post_back(k, r);
    } else if (r->fifo != NULL && r->kind == TT_TOKEN) {
      l->tokens[l->ntokens++] = post_sent(k, r, 0);
    } else if (r->fifo != NULL) {
      l->posts[l->nposts++] = post_sent(k, r, s->bytes);
    }
  }
  for (uint32_t i = 0; i < l->nrefs; i++) {
    if (l->refs[i].line != 0) {
      l->posts[l->nposts++] = post_unused(l->refs[i].line);
    }
  }
}

static ncclResult_t step_list(step_work *k)
{
  const size_t n = (size_t)k->step->nsrc + k->step->ndst;
  const tt_call *c = k->lane->call;
  void *memory = NULL;
  TT_TRY(tt_gpu_list(k->port, n * (sizeof(tt_cuda_ref) + 2 * sizeof(tt_cuda_post)) + sizeof(uint64_t), &memory));
  k->lists.refs = memory;
  k->lists.posts = (tt_cuda_post *)(k->lists.refs + n);
  k->lists.tokens = k->lists.posts + n;
  uint64_t *factor = (uint64_t *)(k->lists.tokens + n);
  *factor = c->op.scalar;
  k->scalar = c->scalar != NULL ? c->scalar : factor;
  list_refs(k);
  list_posts(k);
  return ncclSuccess;
}

// ---- Kernels ----

// Threads of each of its CTAs.
static unsigned step_threads(const step_work *k, const tt_cuda_step *args)
{
  const size_t packs = k->lines > 0              ? (size_t)k->lines * (TT_CUDA_LINE / TT_CUDA_PACK)
                       : args->combine.count > 0 ? TT_DIV_UP(k->step->bytes, (size_t)TT_CUDA_PACK)
                                                 : 0;
  const uint32_t posts = TT_MAX(args->post.nposts, args->arrive.to.nposts);
  return tt_kernel_threads(TT_MAX(packs, (size_t)TT_MAX(args->resolve.nrefs, posts)));
}

static ncclResult_t step_launch(const step_work *k, const tt_kernel *kernel, unsigned ctas, tt_cuda_step *args)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const unsigned threads = step_threads(k, args);
  void *params[] = {args};
  if (gpu_walks(k->port)) {
    return tt_gpu_walk_add(k->port, k->stream, kernel, ctas, threads, args);
  }
  TT_CUDA(cu,
          cu->LaunchKernel(tt_gpu_function(k->port->device, kernel->module, kernel->name), ctas, 1, 1, threads, 1, 1, 0,
                           k->stream, params, NULL),
          "GPU %d: cannot launch kernel %s", k->port->device, kernel->name);
  return ncclSuccess;
}

// What all launches of the step have, without a part.
static tt_cuda_step step_base(const step_work *k)
{
  return (tt_cuda_step){.port = {.stop = gpu_address(&k->port->flags->stop),
                                 .fault = gpu_address(&k->port->flags->fault),
                                 .go = k->lists.nrefs > 0 ? k->port->room->go : 0},
                        .call = {.sig = k->lane->call->sig, .count = k->lane->call->sig_count},
                        .operands = k->port->room->operands};
}

static tt_cuda_resolve part_resolve(const step_work *k)
{
  return (tt_cuda_resolve){
      .refs = gpu_address(k->lists.refs), .nrefs = k->lists.nrefs, .scalar_bytes = (uint32_t)k->lane->call->esize};
}

static tt_cuda_posts part_post(const step_work *k)
{
  return (tt_cuda_posts){.posts = gpu_address(k->lists.posts), .nposts = k->lists.nposts};
}

static tt_cuda_arrive part_arrive(const step_work *k)
{
  const tt_call *c = k->lane->call;
  return (tt_cuda_arrive){.to = {.posts = gpu_address(k->lists.tokens), .nposts = k->lists.ntokens},
                          .in = step_place(k, c->in),
                          .out = step_place(k, c->out),
                          .in_mem = c->in_mem.handle,
                          .out_mem = c->out_mem.handle,
                          .scalar = c->op.scalar,
                          .scalar_at = gpu_address(c->scalar),
                          .scalar_bytes = (uint32_t)c->esize};
}

// The kernel for the data, and its arguments for all of it.
static void part_combine(const step_work *k, tt_kernel *out)
{
  const tt_program_step *s = k->step;
  const bool reduces = (s->flags & TT_STEP_REDUCE) != 0;
  static const tt_redop bytes_op = {.type = TT_RED_BITS}; // of a copy: the call's is that of another one, perhaps
  tt_kernel_choose(&(tt_kernel_use){.op = reduces ? &k->lane->call->op : &bytes_op,
                                    .nsrc = (int)k->lists.nsrc,
                                    .ndst = (int)k->lists.ndst,
                                    .count = reduces ? s->count : s->bytes,
                                    .scaled = reduces,
                                    .final = reduces && (s->flags & TT_STEP_FINAL)},
                   out);
}

// The data of a large step, in launches of bounded length.
static ncclResult_t launch_combine(const step_work *k, const tt_kernel *kernel)
{
  const size_t all = k->step->bytes, unit = all / kernel->args.count, operands = k->lists.nsrc + k->lists.ndst;
  const size_t most = TT_MAX((TT_GPU_LAUNCH_BYTES / operands) & ~(size_t)(LAUNCH_ALIGN - 1), (size_t)LAUNCH_ALIGN);
  tt_cuda_step args = step_base(k);
  args.combine = kernel->args;
  for (size_t at = 0; at < all; at += most) {
    const size_t bytes = TT_MIN(most, all - at), ctas = TT_DIV_UP(bytes, (size_t)TT_GPU_CTA_BYTES);
    args.combine.first = at;
    args.combine.count = bytes / unit;
    TT_TRY(step_launch(k, kernel, (unsigned)TT_MIN(ctas, (size_t)k->port->ctas), &args));
  }
  return ncclSuccess;
}

// A step whose data is enough for one CTA is one launch. The first launch and the last one, which are of one CTA, write
// when the lane's channel has begun and ended.
static ncclResult_t launch_step(const step_work *k)
{
  const bool large = k->data && k->step->bytes > TT_GPU_CTA_BYTES && k->lines == 0;
  const tt_kernel without = {.module = "step", .name = "copy"};
  tt_kernel kernel = without;
  tt_cuda_step args = step_base(k);
  if (k->data) {
    part_combine(k, &kernel);
  }
  args.resolve = part_resolve(k);
  if (k->port->timed) {
    args.start = tt_gpu_time_start(k->lane);
    args.stop = tt_gpu_time_stop(k->lane);
  }
  if (large) {
    TT_TRY(step_launch(k, &without, 1, &args));
    TT_TRY(launch_combine(k, &kernel));
    args.resolve.nrefs = 0;
    args.start = 0;
  } else {
    args.combine = kernel.args;
    args.combine.lines = k->lines;
  }
  args.post = part_post(k);
  args.arrive = part_arrive(k);
  const bool any =
      args.resolve.nrefs + args.combine.count + args.post.nposts + args.arrive.to.nposts > 0 || args.stop != 0;
  return any ? step_launch(k, large ? &without : &kernel, 1, &args) : ncclSuccess;
}

// What has been submitted counts as taken and sent. Other threads read these numbers (tt_gpu_port_stop, rank.c).
static void step_advance(const tt_program_step *s)
{
  for (int i = 0; i < s->nsrc + s->ndst; i++) {
    if (s->refs[i].fifo != NULL) {
      tt_fifo *f = s->refs[i].fifo;
      __atomic_store_n(&f->next, f->next + 1, __ATOMIC_RELEASE);
    }
  }
}

// Shows for what a thread may stand in the submission of the step (tt_gpu_port_submits), or that it does no longer.
static void step_show(const tt_gpu_port *p, const tt_program_step *s, bool submits)
{
  for (int i = 0; i < s->nsrc + s->ndst && p->recording == NULL; i++) {
    const tt_program_ref *r = &s->refs[i];
    if (r->fifo != NULL) {
      const tt_link *link = p->port->links[r->peer];
      const ptrdiff_t bit = i < s->nsrc ? r->fifo - link->recv : TT_NFIFOS + (r->fifo - link->send);
      const uint32_t shown = atomic_load_explicit(&p->submits[r->peer], memory_order_relaxed) | 1u << bit;
      atomic_store_explicit(&p->submits[r->peer], submits ? shown : 0, memory_order_relaxed);
    }
  }
}

static ncclResult_t step_submit(tt_gpu_port *p, CUstream stream, const tt_lane *l, const tt_program_step *s)
{
  // All peers that are reached at all are reached as memory: who puts a result puts it everywhere.
  step_work k = {
      .port = p, .stream = stream, .lane = l, .step = s, .data = s->bytes > 0 && !(s->flags & TT_STEP_UNLESS_PUT)};
  if (gpu_walks(p)) {
    TT_TRY(tt_gpu_walk_lane(p, stream, l));
  }
  for (int i = 0; i < s->nsrc + s->ndst && k.lines == 0; i++) {
    k.lines = is_in_lines(&k, &s->refs[i]) ? gpu_lines_of(s->bytes) : 0;
  }
  k.data |= k.lines != 0; // a message without payload is a line, too
  TT_TRY(step_list(&k));
  k.data = k.lines != 0 || (k.lists.nsrc > 0 && k.lists.ndst > 0);
  TT_TRY(step_wait(&k));
  return launch_step(&k);
}

ncclResult_t tt_gpu_step_submit(tt_gpu_port *p, CUstream stream, const tt_lane *l, const tt_program_step *s)
{
  step_show(p, s, true);
  const ncclResult_t res = step_submit(p, stream, l, s);
  step_show(p, s, false); // before the FIFOs move on: who sees that sees this
  if (res == ncclSuccess) {
    step_advance(s);
  }
  return res;
}
