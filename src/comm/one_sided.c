// one_sided.c: see one_sided.h.
//
// Registering a window waits for no rank: the n-th window of a rank belongs to the n-th of every other, because all
// register in the same order. A put that comes before its peer has registered waits in its stream.
#include "comm/one_sided.h"

#include <string.h>

#include "base/param.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/flight.h"
#include "comm/group.h"
#include "comm/profile.h"
#include "device/rma_link.h"
#include "os/shm.h"

_Static_assert((int)TT_NFUNCS <= (int)TT_SIG_PUT, "in a fingerprint no function is taken for a one-sided wait");

// ---- What a communicator has

bool tt_rma_reaches(const struct ncclComm *comm)
{
  const tt_comm_machine *m = &comm->machine;
  return !m->shares || m->all_local || m->can_read || comm->wiring.can_copy;
}

// Memory of GPUs is reached some way or other (device/one_sided.h).
static const char *lacks_access(const struct ncclComm *comm)
{
  return (comm->machine.gpus ? comm->machine.can_write : tt_rma_reaches(comm))
             ? NULL
             : "some processes may not write each other's memory (process_vm_writev)";
}

bool tt_rma_supported(const struct ncclComm *comm, const char **why)
{
  const char *access = lacks_access(comm);
  *why =
      access != NULL                   ? access
      : comm->config.rma_contexts == 0 ? "ncclConfig_t.numRmaCtx is 0"
      : comm->config.rma_signals == 0  ? "ncclConfig_t.numRmaSig is 0"
      : comm->config.rma_contexts > TT_RMA_CONTEXTS || comm->config.rma_signals > TT_SIGNALS / comm->config.rma_contexts
          ? "ncclConfig_t.numRmaCtx is above 64, or numRmaCtx times numRmaSig above 504"
          : NULL;
  return *why == NULL;
}

static void fill_self(struct ncclComm *comm, tt_rma *r)
{
  int place = comm->segment != NULL ? tt_segment_place(comm->segment, comm->rank) : 0;
  tt_signal_row *row = &r->board->rows[place];
  r->peers[comm->rank] = (tt_rma_peer){.port = &comm->port,
                                       .rank = comm->rank,
                                       .board = r->board,
                                       .out = row,
                                       .in = row,
                                       .page = comm->port.page,
                                       .lock = PTHREAD_MUTEX_INITIALIZER};
}

// The FIFO for payloads from one rank to another, which is on a GPU; else it has no slots.
static tt_fifo puts_between(const struct ncclComm *comm, int from, int to)
{
  tt_segment *s = comm->segment;
  tt_fifo fifo = {.slots = NULL};
  if (comm->peers[to].where.sm != 0) {
    fifo = tt_rma_fifo(tt_segment_puts(s, tt_segment_place(s, from), tt_segment_place(s, to)));
  }
  return fifo;
}

static ncclResult_t fill_peer(struct ncclComm *comm, tt_rma *r, int peer)
{
  TT_TRY(tt_transport_connect(&comm->wiring, peer));
  tt_link *link = comm->port.links[peer];
  r->peers[peer] = (tt_rma_peer){.port = &comm->port,
                                 .rank = peer,
                                 .link = link,
                                 .board = link->board,
                                 .out = link->out,
                                 .in = link->in,
                                 .page = link->page,
                                 .put = puts_between(comm, comm->rank, peer),
                                 .comes = puts_between(comm, peer, comm->rank),
                                 .lock = PTHREAD_MUTEX_INITIALIZER};
  return link->board != NULL
             ? ncclSuccess
             : tt_fail(ncclSystemError, "rank %d shares no memory for one-sided operations with rank %d", comm->rank,
                       peer);
}

// A peer without memory in common: the n-th of them.
static void fill_networked(struct ncclComm *comm, tt_rma *r, int peer, int n)
{
  tt_board_copy *copy = (tt_board_copy *)((char *)r->copies + (size_t)n * sizeof *copy);
  r->peers[peer] = (tt_rma_peer){.port = &comm->port,
                                 .rank = peer,
                                 .networked = true,
                                 .board = &copy->board,
                                 .in = &copy->row,
                                 .lock = PTHREAD_MUTEX_INITIALIZER};
}

static bool is_networked(const struct ncclComm *comm, int peer)
{
  return comm->network.needed && tt_transport_needs_net(&comm->wiring.ranks[comm->rank], &comm->wiring.ranks[peer]);
}

// Room for what peers over the network say of their windows and signals; pages exist once they are touched.
static ncclResult_t map_copies(const struct ncclComm *comm, tt_rma *r)
{
  size_t n = 0;
  for (int i = 0; i < comm->nranks; i++) {
    n += is_networked(comm, i);
  }
  r->copies_bytes = n * sizeof(tt_board_copy);
  return n == 0 ? ncclSuccess : tt_shm_map(-1, r->copies_bytes, &r->copies);
}

static ncclResult_t rma_fill_all(struct ncclComm *comm, tt_rma *r)
{
  int n = 0;
  TT_TRY(map_copies(comm, r));
  fill_self(comm, r);
  for (int i = 0; i < comm->nranks; i++) {
    if (is_networked(comm, i)) {
      fill_networked(comm, r, i, n++);
    } else if (i != comm->rank) {
      TT_TRY(fill_peer(comm, r, i));
    }
  }
  return ncclSuccess;
}

static void rma_free(const struct ncclComm *comm, tt_rma *r)
{
  for (int i = 0; r->peers != NULL && i < comm->nranks; i++) {
    comm->port.row->forget_windows(&r->peers[i]);
  }
  if (r->lone) {
    tt_shm_unmap(r->board, tt_board_bytes(1));
  }
  tt_shm_unmap(r->copies, r->copies_bytes);
  tt_free(r->peers);
  tt_free(r->turn);
  tt_free(r->issued);
  tt_free(r->expected);
  tt_free(r->spare);
  tt_free(r);
}

static ncclResult_t rma_make(struct ncclComm *comm, tt_rma *r)
{
  size_t n = (size_t)comm->nranks, pairs = n * (size_t)comm->config.rma_contexts;
  r->port = &comm->port;
  r->place = comm->port.row->place_put;
  r->contexts = comm->config.rma_contexts;
  r->signals = comm->config.rma_signals;
  r->lone = comm->segment == NULL;
  if (r->lone) { // pages that exist once they are touched, and can be pinned
    TT_TRY(tt_shm_map(-1, tt_board_bytes(1), (void **)&r->board));
  } else {
    r->board = tt_segment_board(comm->segment, tt_segment_place(comm->segment, comm->rank));
  }
  r->peers = tt_calloc(n, sizeof *r->peers);
  r->turn = tt_calloc(pairs, sizeof *r->turn);
  r->issued = tt_calloc(pairs, sizeof *r->issued);
  r->expected = tt_calloc(n * TT_SIGNALS, sizeof *r->expected);
  if (r->peers == NULL || r->turn == NULL || r->issued == NULL || r->expected == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for one-sided operations with %d ranks", comm->rank,
                   comm->nranks);
  }
  return rma_fill_all(comm, r);
}

ncclResult_t tt_rma_init(struct ncclComm *comm)
{
  tt_rma *r;
  if (comm->rma != NULL) {
    return ncclSuccess;
  }
  if (comm->port.row->submit_rma == NULL) {
    return tt_fail(ncclInvalidUsage, "rank %d: devices of kind %s have no windows and no one-sided operations yet",
                   comm->rank, comm->port.row->name);
  }
  TT_TRY(TT_NEW(r, 1, "rank %d: no memory for one-sided operations", comm->rank));
  ncclResult_t res = rma_make(comm, r);
  if (res != ncclSuccess) {
    rma_free(comm, r);
    return res;
  }
  comm->rma = r;
  if (comm->network.proxy != NULL) {
    tt_proxy_puts_begin(comm->network.proxy, r);
  }
  return ncclSuccess;
}

ncclResult_t tt_rma_reach(struct ncclComm *comm, int peer)
{
  tt_rma_peer *p = &comm->rma->peers[peer];
  if (!p->networked || p->net != NULL) {
    return ncclSuccess;
  }
  TT_TRY(tt_transport_connect(&comm->wiring, peer));
  p->link = comm->port.links[peer];
  p->page = p->link->page;
  return tt_proxy_puts_open(comm->network.proxy, peer, &p->net);
}

void tt_rma_free(struct ncclComm *comm)
{
  if (comm->rma != NULL) {
    if (comm->network.proxy != NULL) {
      tt_proxy_puts_end(comm->network.proxy);
    }
    (comm->port.row->pins ? tt_board_shut : tt_board_settle)(comm->rma);
    rma_free(comm, comm->rma);
    comm->rma = NULL;
  }
}

ncclResult_t tt_rma_open_window(struct ncclComm *comm, tt_window *w)
{
  const char *why;
  if (!tt_rma_supported(comm, &why)) {
    return ncclSuccess;
  }
  TT_TRY(tt_rma_init(comm));
  w->number = comm->registered.windows_opened + 1;
  tt_window_note note = {
      .base = (uintptr_t)w->base, .size = w->size, .mem = comm->port.row->find(w->base, w->size).handle};
  TT_TRY(comm->port.row->show_window != NULL ? comm->port.row->show_window(comm->rma, &note) : ncclSuccess);
  if (!tt_board_open(comm->rma, &note, w->number)) {
    return tt_fail(ncclInvalidUsage,
                   "ncclCommWindowRegister on rank %d: at most %d windows of a communicator at a time", comm->rank,
                   TT_WINDOWS);
  }
  comm->registered.windows_opened = w->number;
  return ncclSuccess;
}

void tt_rma_close_window(struct ncclComm *comm, const tt_window *w)
{
  if (w->number != 0) {
    tt_board_close(comm->rma, w->number);
  }
}

// ---- From calls to batches

// Called by the thread that has completed the batch. After the last line the communicator may be gone. A batch of one
// operation that is complete before its launch returns is kept for the next one.
static void batch_recycle(tt_rma_batch *b)
{
  struct ncclComm *comm = b->owner;
  tt_profile_batch_over(b);
  if (atomic_load_explicit(&comm->launcher, memory_order_relaxed) == (uintptr_t)__builtin_thread_pointer() &&
      b->n == 1 && comm->rma->spare == NULL) {
    comm->rma->spare = b;
    comm->plans.finished++;
    return;
  }
  tt_free(b);
  if (atomic_fetch_add(&comm->plans.recycled, 1) & TT_FLUSHING) {
    comm->port.row->wake();
  }
}

// A batch of one operation that is over: kept, unless looking at the stream has completed another one.
static void keep_batch(tt_rma *r, tt_rma_batch *b)
{
  if (r->spare == NULL) {
    r->spare = b;
  } else {
    tt_free(b);
  }
}

// With room for n operations, not initialised. NULL: no memory.
static tt_rma_batch *batch_new(struct ncclComm *comm, size_t n)
{
  tt_rma_batch *b = n == 1 ? comm->rma->spare : NULL;
  if (b == NULL) {
    return tt_calloc(1, sizeof *b + n * sizeof *b->ops);
  }
  comm->rma->spare = NULL;
  return b;
}

static void fill_put(tt_rma *r, tt_rma_op *op, const tt_rma_call *c)
{
  size_t turn = (size_t)c->ctx * (size_t)r->port->nranks + (size_t)c->peer;
  *op = (tt_rma_op){.peer = c->peer,
                    .ctx = c->ctx,
                    .sig = c->sig,
                    .contexts = 1ull << c->ctx,
                    .number = r->issued[turn]++,
                    .window = c->window,
                    .offset = c->offset,
                    .from = c->from,
                    .bytes = c->bytes};
}

static void fill_waits(tt_rma *r, tt_rma_op *ops, const tt_rma_call *c)
{
  uint64_t contexts = 0;
  for (int i = 0; i < c->nwaits; i++) {
    contexts |= 1ull << c->waits[i].ctx;
  }
  for (int i = 0; i < c->nwaits; i++) {
    const ncclWaitSignalDesc_t *d = &c->waits[i];
    uint64_t *expected = &r->expected[d->peer * TT_SIGNALS + d->ctx * r->signals + d->sigIdx];
    *expected += (uint64_t)d->opCnt;
    ops[i] = (tt_rma_op){
        .waits = true, .peer = d->peer, .ctx = d->ctx, .sig = d->sigIdx, .contexts = contexts, .number = *expected};
  }
}

// The call's kind and count for the flight recorder; of a wait those of line i.
static uint64_t kind_of(const tt_rma_call *c, int i, uint64_t *count)
{
  if (c->nwaits > 0) {
    *count = (uint64_t)c->waits[i].opCnt;
    return tt_flight_rma_kind(TT_FLIGHT_WAIT, c->waits[i].peer);
  }
  *count = c->bytes;
  return tt_flight_rma_kind(c->window != 0 ? TT_FLIGHT_PUT : TT_FLIGHT_SIGNAL, c->peer);
}

// The flight recorder has the operations of the calls from now on. Returns where the first one is.
static uint64_t record_calls(struct ncclComm *comm, const tt_rma_call *calls, cudaStream_t stream)
{
  tt_flight *flight = &comm->port.flight;
  uint64_t now = tt_flight_now(flight), count, first = atomic_load_explicit(&flight->n, memory_order_relaxed);
  for (const tt_rma_call *c = calls; c != NULL; c = c->next) {
    for (int i = 0; i < tt_rma_call_ops(c); i++) {
      uint64_t kind = kind_of(c, i, &count);
      tt_flight_queue(flight, kind, count, stream, comm->counts.sequence, now);
    }
  }
  return first;
}

// The batch's operations have been filled in.
static void submit_batch(tt_rma_batch *b, int n, const tt_rma_call *calls, cudaStream_t stream, tt_stream *s)
{
  struct ncclComm *comm = calls->comm;
  *b = (tt_rma_batch){.rma = comm->rma, .recycle = batch_recycle, .owner = comm, .n = n};
  b->record = record_calls(comm, calls, stream);
  for (int i = 0; i < n; i++) {
    b->moves |= comm->rma->peers[b->ops[i].peer].networked;
  }
  comm->plans.batches++;
  if (TT_LIKELY(!tt_profile_wanted(comm))) {
    comm->port.row->submit_rma(b, s);
    return;
  }
  tt_rma_launch_events l;
  tt_profile_batch_start(&l, b, calls);
  comm->port.row->submit_rma(b, s);
  tt_profile_batch_stop(&l);
}

static ncclResult_t lacks_memory(const tt_rma_call *c, int n)
{
  return tt_fail(ncclSystemError, "%s on rank %d: no memory for %d operations", c->what, c->comm->rank, n);
}

// Runs the operation of a batch that stands alone without the stream's queue. Is it over?
static bool runs_in_call(struct ncclComm *comm, tt_rma_op *op, const tt_rma_call *call, cudaStream_t stream)
{
  const tt_shortcut_ops *shortcut = comm->port.shortcut;
  bool timed = tt_flight_on(&comm->port.flight);
  uint64_t count;
  uint64_t now = shortcut == NULL || call->events != NULL ? 0 : shortcut->free_at(stream, comm->device, timed);
  if (now == 0 || tt_port_status(&comm->port) != ncclSuccess || !shortcut->run_rma(comm->rma, op)) {
    return false;
  }
  uint64_t kind = kind_of(call, 0, &count);
  tt_flight_add(&comm->port.flight, kind, count, stream, comm->counts.sequence, now);
  return true;
}

// Launches a call of one operation that stands alone.
static ncclResult_t launch_alone(struct ncclComm *comm, const tt_rma_call *c, cudaStream_t stream, tt_stream *s)
{
  tt_rma_batch *b = batch_new(comm, 1);
  if (b == NULL) {
    return lacks_memory(c, 1);
  }
  (c->nwaits == 0 ? fill_put : fill_waits)(comm->rma, b->ops, c);
  if (runs_in_call(comm, b->ops, c, stream)) {
    keep_batch(comm->rma, b);
  } else {
    submit_batch(b, 1, c, stream, s);
  }
  return ncclSuccess;
}

// Launches calls of one communicator and stream.
static ncclResult_t launch_batch(struct ncclComm *comm, tt_rma_call *calls, cudaStream_t stream)
{
  tt_stream *s;
  int n = 0, filled = 0;
  TT_TRY(comm->port.row->get(stream, &comm->port, calls->what, &s));
  TT_TRY(comm->port.row->check_rma != NULL ? comm->port.row->check_rma(s, calls->what) : ncclSuccess);
  if (calls->next == NULL && calls->nwaits <= 1) {
    return launch_alone(comm, calls, stream, s);
  }
  for (const tt_rma_call *c = calls; c != NULL; c = c->next) {
    n += tt_rma_call_ops(c);
  }
  tt_rma_batch *b = batch_new(comm, (size_t)n);
  if (b == NULL) {
    return lacks_memory(calls, n);
  }
  for (const tt_rma_call *c = calls; c != NULL; c = c->next) {
    (c->nwaits == 0 ? fill_put : fill_waits)(comm->rma, &b->ops[filled], c);
    filled += tt_rma_call_ops(c);
  }
  submit_batch(b, n, calls, stream, s);
  return ncclSuccess;
}

// ---- Graphs

typedef struct recorded_calls {
  tt_recorded recorded;
  struct ncclComm *comm;
  uint64_t hash; // of the communicator: its handle may have been given to another one
  tt_rma_call *calls;
} recorded_calls;

static ncclResult_t check_recorded(const tt_recorded *r)
{
  const recorded_calls *n = (const recorded_calls *)r;
  return tt_comm_lives(n->comm) && n->comm->hash == n->hash
             ? ncclSuccess
             : tt_fail(ncclInvalidArgument,
                       "launch of a graph: the communicator, whose %s was captured, has been destroyed or aborted",
                       n->calls->what);
}

// Profilers see the captured calls once more at each launch.
static ncclResult_t launch_profiled(struct ncclComm *comm, tt_rma_call *calls, cudaStream_t stream)
{
  tt_group_events group = {.captured = true};
  for (tt_rma_call *c = calls; c != NULL; c = c->next) {
    c->stream = stream;
    tt_profile_rma_start(&group, c, 0);
    tt_profile_rma_stop(c);
  }
  tt_profile_group_ends(&group);
  ncclResult_t res = launch_batch(comm, calls, stream);
  for (tt_rma_call *c = calls; c != NULL; c = c->next) {
    tt_profile_rma_drop(c->events);
    c->events = NULL;
  }
  tt_profile_group_stop(&group);
  return res;
}

static ncclResult_t issue_recorded(tt_recorded *r, cudaStream_t stream)
{
  recorded_calls *n = (recorded_calls *)r;
  TT_TRY(check_recorded(r));
  TT_TRY(tt_comm_begin(n->comm, "launch of a graph", true));
  ncclResult_t res = (tt_profile_wanted(n->comm) ? launch_profiled : launch_batch)(n->comm, n->calls, stream);
  tt_comm_leave(n->comm);
  return res;
}

static void drop_recorded(tt_recorded *r)
{
  tt_rma_drop(((recorded_calls *)r)->calls);
  tt_free(r);
}

// A copy that is the heap's. NULL: no memory.
static tt_rma_call *copy_call(const tt_rma_call *call)
{
  size_t waits = (size_t)call->nwaits * sizeof *call->waits;
  tt_rma_call *c = tt_calloc(1, sizeof *c + waits);
  if (c == NULL) {
    return NULL;
  }
  *c = *call;
  c->next = NULL;
  if (waits > 0) {
    c->waits = memcpy(c + 1, call->waits, waits);
  }
  return c;
}

// NULL: no memory.
static tt_recorded *make_recorded(struct ncclComm *comm, const tt_rma_call *calls)
{
  recorded_calls *n = tt_calloc(1, sizeof *n);
  tt_rma_call **end = n != NULL ? &n->calls : NULL;
  bool whole = n != NULL;
  for (const tt_rma_call *c = calls; c != NULL && whole; c = c->next) {
    *end = copy_call(c);
    whole = *end != NULL;
    if (whole) {
      (*end)->events = NULL; // each launch has its own
    }
    end = whole ? &(*end)->next : end;
  }
  if (!whole) {
    if (n != NULL) {
      drop_recorded(&n->recorded);
    }
    return NULL;
  }
  n->recorded = (tt_recorded){.check = check_recorded, .issue = issue_recorded, .drop = drop_recorded};
  n->comm = comm;
  n->hash = comm->hash;
  return &n->recorded;
}

// Launches the calls, or records them where their stream is captured.
static ncclResult_t launch_calls(struct ncclComm *comm, tt_rma_call *calls)
{
  bool captured = false;
  if (TT_LIKELY(!tt_capturing())) {
    return launch_batch(comm, calls, calls->stream);
  }
  const tt_stream_use use = {.stream = calls->stream, .what = calls->what};
  TT_TRY(comm->port.row->record(&use, 1, comm->device, make_recorded(comm, calls), &captured));
  return captured ? ncclSuccess : launch_batch(comm, calls, calls->stream);
}

// ---- Groups

static ncclResult_t rma_add(tt_rma_call *call)
{
  if (!tt_group_open()) {
    return launch_calls(call->comm, call);
  }
  tt_rma_call *c = copy_call(call);
  if (c == NULL) {
    return tt_fail(ncclSystemError, "%s on rank %d: no memory to add it to the group", call->what, call->comm->rank);
  }
  tt_group_add_rma(c);
  return ncclSuccess;
}

// The communicator has profilers. A single operation is a group to them. A group's copy of the call has its events.
static ncclResult_t rma_add_profiled(tt_rma_call *c)
{
  int depth;
  tt_group_events *g = tt_group_profile(&depth);
  tt_profile_rma_start(g, c, depth);
  ncclResult_t res = depth > 0 ? rma_add(c) : ncclSuccess;
  tt_profile_rma_stop(c);
  if (depth == 0) {
    tt_profile_group_ends(g);
    res = rma_add(c);
    tt_profile_group_stop(g);
  }
  if (depth == 0 || res != ncclSuccess) {
    tt_profile_rma_drop(c->events);
  }
  return res;
}

ncclResult_t tt_rma_add(tt_rma_call *call)
{
  return (TT_UNLIKELY(tt_profile_wanted(call->comm)) ? rma_add_profiled : rma_add)(call);
}

// Takes those calls out of the list that have the first one's communicator and stream.
static tt_rma_call *take_alike(tt_rma_call **calls)
{
  tt_rma_call *first = *calls, **end = &first;
  const struct ncclComm *comm = first->comm;
  cudaStream_t stream = first->stream;
  for (tt_rma_call **at = calls; *at != NULL;) {
    tt_rma_call *c = *at;
    if (c->comm == comm && c->stream == stream) {
      *at = c->next;
      *end = c;
      end = &c->next;
      c->next = NULL;
    } else {
      at = &c->next;
    }
  }
  return first;
}

ncclResult_t tt_rma_launch(tt_rma_call *calls)
{
  ncclResult_t res = ncclSuccess;
  const tt_device_ops *row = tt_device_row();
  if (row->hold != NULL) {
    row->hold();
  }
  while (calls != NULL) {
    tt_rma_call *alike = take_alike(&calls);
    struct ncclComm *comm = alike->comm;
    ncclResult_t r = tt_comm_begin(comm, "ncclGroupEnd", true);
    if (r == ncclSuccess) {
      r = launch_calls(comm, alike);
      tt_comm_leave(comm);
    }
    res = res == ncclSuccess ? r : res;
    tt_rma_drop(alike);
  }
  const ncclResult_t held = row->hold != NULL ? row->unhold() : ncclSuccess;
  return res == ncclSuccess ? held : res;
}

void tt_rma_drop(tt_rma_call *calls)
{
  for (tt_rma_call *next; calls != NULL; calls = next) {
    next = calls->next;
    tt_profile_rma_drop(calls->events);
    tt_free(calls);
  }
}
