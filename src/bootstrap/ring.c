// ring.c: the ring of ranks, and the all-gather that runs on it.
//
// Each rank sends n-1 blocks to its successor: its own, then what it gets from its predecessor. Before each block goes a frame, so that a
// wrong size or a skipped call is named, and so that a rank that must stop can say which rank is the cause: STOP frames go both ways round
// the ring, and every rank names the same culprit. Blocks are passed on as soon as they are complete; under load many go in one system
// call.
#include <errno.h>
#include <string.h>

#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"

enum { FRAME_BLOCK = 0x626c6f63, FRAME_STOP = 0x73746f70, STAGE = 8192 };

typedef struct {
  uint32_t kind;
  uint32_t sequence; // BLOCK: the operation's number. STOP: the rank that is the cause
  uint64_t size;     // BLOCK: bytes that follow. STOP: ncclResult_t, and in the upper half why
} frame;
static_assert(sizeof(frame) == 16, "frames are sent as they are");

// Why a rank is the cause, beside ncclRemoteError.
enum { GONE, LATE, ABORTED };
static const char *const reasons[] = {[GONE] = "has gone",
                                      [LATE] = "has not made this call in time (NCCL_BOOTSTRAP_TIMEOUT)",
                                      [ABORTED] = "was aborted in it, or stopped waiting"};

// What ends a ring.
typedef struct {
  int cause; // a rank
  ncclResult_t code;
  uint32_t reason;
} verdict;

#define PATIENCE_SLICE_NS (100 * TT_NS_PER_MS)

// One direction of one all-gather.
typedef struct {
  int block;      // blocks completed
  size_t at;      // bytes of the current one, frame included
  frame head;     // of the current one (incoming)
  size_t staged;  // bytes in `stage`...
  size_t drained; // ...of which these have been sent
  char stage[STAGE];
} flow;

typedef struct {
  tt_bootstrap *b;
  char *data;
  size_t size;
  uint64_t waited_ns; // since something moved, as far as this process was awake
  flow in, out;
} gather;

static int predecessor_of(const tt_bootstrap *b)
{
  return (b->rank + b->nranks - 1) % b->nranks;
}

static int successor_of(const tt_bootstrap *b)
{
  return (b->rank + 1) % b->nranks;
}

static void send_stop(int fd, const verdict *v)
{
  frame f = {.kind = FRAME_STOP, .sequence = (uint32_t)v->cause, .size = (uint64_t)v->code | (uint64_t)v->reason << 32};
  (void)tt_sock_send(fd, &f, sizeof(f));
}

// Ends the ring: both neighbours hear who is the cause, as far as the stream to the successor allows, and then that nothing more comes.
static ncclResult_t end_ring(tt_bootstrap *b, flow *out, const verdict *v)
{
  bool between_blocks = out == NULL;
  if (out != NULL) {
    ssize_t n = out->staged > out->drained ? tt_sock_send(b->next, out->stage + out->drained, out->staged - out->drained) : 0;
    between_blocks = n == (ssize_t)(out->staged - out->drained) && out->at == 0;
  }
  if (between_blocks && b->next >= 0) {
    send_stop(b->next, v);
  }
  if (b->prev >= 0) {
    send_stop(b->prev, v);
  }
  tt_sock_finish(b->next);
  tt_sock_finish(b->prev);
  b->broken = v->code;
  return v->code;
}

static ncclResult_t stop_ring(tt_bootstrap *b, flow *out, int cause, ncclResult_t code)
{
  return end_ring(b, out, &(verdict){.cause = cause, .code = code});
}

void tt_bootstrap_stop(tt_bootstrap *b)
{
  if (b != NULL && b->broken == ncclSuccess) {
    end_ring(b, NULL, &(verdict){.cause = b->rank, .code = ncclRemoteError, .reason = ABORTED});
  }
}

// What a neighbour's connection says at its end: reads a STOP frame if there is one, else the neighbour itself is the cause.
static ncclResult_t neighbour_ended(tt_bootstrap *b, flow *out, int neighbour, const frame *f)
{
  verdict v = {.cause = neighbour, .code = ncclRemoteError};
  if (f->kind == FRAME_STOP) {
    uint32_t code = (uint32_t)f->size, reason = (uint32_t)(f->size >> 32);
    v.cause = (int)f->sequence;
    v.code = code > 0 && code < ncclInProgress ? (ncclResult_t)code : ncclRemoteError;
    v.reason = reason < TT_COUNT(reasons) ? reason : GONE;
  }
  end_ring(b, out, &v);
  if (v.code != ncclRemoteError) {
    return tt_fail(v.code, "%s: stopped, because a call failed on rank %d (%s)", b->doing, v.cause, tt_result_string(v.code));
  }
  return tt_fail(v.code, "%s: rank %d %s%s", b->doing, v.cause, reasons[v.reason], v.cause == neighbour ? "" : " (told by a neighbour)");
}

static ncclResult_t successor_ended(tt_bootstrap *b, flow *out)
{
  frame f = {.kind = 0};
  tt_until now = {.deadline_ns = 1};
  (void)tt_sock_recv_all(b->next, &f, sizeof(f), &now);
  return neighbour_ended(b, out, successor_of(b), &f);
}

// Puts the next bytes of the outgoing stream into the stage: own block first, then completed incoming ones.
static void fill_stage(gather *g)
{
  flow *o = &g->out;
  const tt_bootstrap *b = g->b;
  o->staged = o->drained = 0;
  while (o->staged < STAGE && o->block < b->nranks - 1 && o->block <= g->in.block) {
    frame f = {.kind = FRAME_BLOCK, .sequence = b->sequence, .size = g->size};
    int whose = (b->rank - o->block + b->nranks) % b->nranks;
    bool in_frame = o->at < sizeof(f);
    const char *from = in_frame ? (const char *)&f + o->at : g->data + (size_t)whose * g->size + (o->at - sizeof(f));
    size_t n = TT_MIN(STAGE - o->staged, in_frame ? sizeof(f) - o->at : sizeof(f) + g->size - o->at);
    memcpy(o->stage + o->staged, from, n);
    o->staged += n;
    o->at += n;
    if (o->at == sizeof(f) + g->size) {
      o->at = 0;
      o->block++;
    }
  }
}

// Sends what can go now. *moved is set when something went.
static ncclResult_t send_blocks(gather *g, bool *moved)
{
  flow *o = &g->out;
  for (;;) {
    if (o->drained == o->staged) {
      fill_stage(g);
    }
    if (o->staged == 0) {
      return ncclSuccess;
    }
    ssize_t n = tt_sock_send(g->b->next, o->stage + o->drained, o->staged - o->drained);
    if (n == -EAGAIN) {
      return ncclSuccess;
    }
    if (n < 0) {
      return successor_ended(g->b, o);
    }
    o->drained += (size_t)n;
    *moved = true;
  }
}

static ncclResult_t check_frame(gather *g)
{
  tt_bootstrap *b = g->b;
  const frame *f = &g->in.head;
  if (f->kind != FRAME_BLOCK) {
    return neighbour_ended(b, &g->out, predecessor_of(b), f);
  }
  if (f->sequence == b->sequence && f->size == g->size) {
    return ncclSuccess;
  }
  stop_ring(b, &g->out, b->rank, ncclInvalidUsage);
  return tt_fail(ncclInvalidUsage, "%s: rank %d calls all-gather %u with %llu bytes, rank %d calls all-gather %u with %zu bytes", b->doing,
                 predecessor_of(b), f->sequence, (unsigned long long)f->size, b->rank, b->sequence, g->size);
}

// Spreads received bytes over frame and block.
static ncclResult_t take_bytes(gather *g, const char *from, size_t n)
{
  flow *in = &g->in;
  while (n > 0) {
    int whose = (g->b->rank - 1 - in->block + 2 * g->b->nranks) % g->b->nranks;
    bool in_frame = in->at < sizeof(frame);
    char *to = in_frame ? (char *)&in->head + in->at : g->data + (size_t)whose * g->size + (in->at - sizeof(frame));
    size_t part = TT_MIN(n, in_frame ? sizeof(frame) - in->at : sizeof(frame) + g->size - in->at);
    memcpy(to, from, part);
    from += part;
    n -= part;
    in->at += part;
    if (in_frame && in->at == sizeof(frame)) {
      TT_TRY(check_frame(g));
    }
    if (in->at == sizeof(frame) + g->size) {
      in->at = 0;
      in->block++;
    }
  }
  return ncclSuccess;
}

// Bytes of this operation that are still to come: never reads into the next one, which may already be under way.
static size_t still_to_come(const gather *g)
{
  return (size_t)(g->b->nranks - 1 - g->in.block) * (sizeof(frame) + g->size) - g->in.at;
}

static ncclResult_t receive_blocks(gather *g, bool *moved)
{
  tt_bootstrap *b = g->b;
  for (size_t left = still_to_come(g); left > 0; left = still_to_come(g)) {
    ssize_t n = tt_sock_recv(b->prev, g->in.stage, TT_MIN(left, (size_t)STAGE));
    if (n == -EAGAIN) {
      return ncclSuccess;
    }
    if (n < 0) {
      frame none = {.kind = 0};
      return neighbour_ended(b, &g->out, predecessor_of(b), &none);
    }
    TT_TRY(take_bytes(g, g->in.stage, (size_t)n));
    *moved = true;
  }
  return ncclSuccess;
}

// Seconds without a sign before a rank counts as missing.
static uint64_t patience_s(void)
{
  return tt_span_ns(tt_params_get()->bootstrap_timeout, TT_NS_PER_S) / TT_NS_PER_S;
}

// The rank that something must come from next, or, when only the successor has still to take something, that one.
static int late_rank(const gather *g)
{
  const tt_bootstrap *b = g->b;
  return still_to_come(g) > 0 ? (b->rank - 1 - g->in.block + 2 * b->nranks) % b->nranks : successor_of(b);
}

// Time in which this process itself was held up does not count, or a job that is stopped as a whole would not go on.
static ncclResult_t check_patience(gather *g, uint64_t since_ns)
{
  tt_bootstrap *b = g->b;
  g->waited_ns += TT_MIN(tt_now_ns() - since_ns, PATIENCE_SLICE_NS);
  if (g->waited_ns < patience_s() * TT_NS_PER_S) {
    return ncclSuccess;
  }
  int late = late_rank(g);
  end_ring(b, &g->out, &(verdict){.cause = late, .code = ncclRemoteError, .reason = LATE});
  return tt_fail(ncclRemoteError, "%s: rank %d has not made this call for %llu s (NCCL_BOOTSTRAP_TIMEOUT)", b->doing, late,
                 (unsigned long long)patience_s());
}

// The successor matters only as long as it has to get something: afterwards it may finish and leave.
static ncclResult_t wait_gather(gather *g, bool sending)
{
  tt_bootstrap *b = g->b;
  short out = (short)(g->out.drained < g->out.staged ? POLLOUT | POLLIN : POLLIN);
  struct pollfd want[2] = {{.fd = still_to_come(g) > 0 ? b->prev : -1, .events = POLLIN}, {.fd = sending ? b->next : -1, .events = out}};
  uint64_t now = tt_now_ns();
  tt_bs_awaits(b, "rank %d", late_rank(g));
  ncclResult_t res = tt_bs_wait(b, want, 2, now + PATIENCE_SLICE_NS);
  if (res != ncclSuccess) {
    return end_ring(b, &g->out, &(verdict){.cause = b->rank, .code = ncclRemoteError, .reason = ABORTED}), res;
  }
  if (want[0].revents == 0 && want[1].revents == 0) {
    return check_patience(g, now);
  }
  return (want[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0 ? successor_ended(b, &g->out) : ncclSuccess;
}

static ncclResult_t run_gather(gather *g)
{
  for (;;) {
    bool moved = false;
    TT_TRY(receive_blocks(g, &moved));
    TT_TRY(send_blocks(g, &moved));
    bool sending = g->out.block < g->b->nranks - 1 || g->out.drained < g->out.staged;
    if (!sending && still_to_come(g) == 0) {
      return ncclSuccess;
    }
    if (moved) {
      g->waited_ns = 0;
    } else {
      TT_TRY(wait_gather(g, sending));
    }
  }
}

static ncclResult_t gather_blocks(tt_bootstrap *b, void *data, size_t size)
{
  gather g; // its stages are not worth zeroing
  g.b = b;
  g.data = data;
  g.size = size;
  g.waited_ns = 0;
  g.in.block = g.out.block = 0;
  g.in.at = g.out.at = g.in.staged = g.in.drained = g.out.staged = g.out.drained = 0;
  b->sequence++;
  return b->nranks == 1 || size == 0 ? ncclSuccess : run_gather(&g);
}

ncclResult_t tt_bootstrap_allgather(tt_bootstrap *b, void *data, size_t size)
{
  TT_TRY(tt_bs_begin(b, "all-gather of %zu bytes", size));
  return gather_blocks(b, data, size);
}

ncclResult_t tt_bootstrap_barrier(tt_bootstrap *b)
{
  TT_TRY(tt_bs_begin(b, "barrier"));
  // Whoever has a byte of every rank knows that every rank is here.
  char *bytes = tt_calloc((size_t)b->nranks, 1);
  if (bytes == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory", b->doing);
  }
  ncclResult_t res = gather_blocks(b, bytes, 1);
  tt_free(bytes);
  return res;
}

static ncclResult_t connect_next(tt_bootstrap *b, const tt_addrs *next, uint64_t deadline_ns)
{
  int e = 0;
  tt_hello h = {.kind = TT_HELLO_RING, .rank = b->rank, .to = successor_of(b), .nranks = b->nranks};
  tt_bs_awaits(b, "rank %d", successor_of(b));
  TT_TRY(tt_bs_dial(b, next, &h, deadline_ns, &b->next, &e));
  if (e == 0) {
    return ncclSuccess;
  }
  char at[TT_ADDRS_TEXT];
  bool ours = tt_sock_is_shortage(e);
  return tt_fail(ours ? ncclSystemError : ncclRemoteError, "%s: cannot connect to rank %d at %s: %s%s", b->doing, successor_of(b),
                 tt_addrs_text(next, at), tt_sock_error_text(e), ours ? "" : " (if it lives: NCCL_SOCKET_IFNAME on its machine)");
}

static ncclResult_t prev_is_late(const tt_bootstrap *b)
{
  if (b->door.shortage != 0) {
    return tt_fail(ncclSystemError, "%s: cannot let rank %d in: %s", b->doing, predecessor_of(b), tt_sock_error_text(b->door.shortage));
  }
  return tt_fail(ncclRemoteError, "%s: rank %d has not connected in time (NCCL_BOOTSTRAP_TIMEOUT)", b->doing, predecessor_of(b));
}

static ncclResult_t await_prev(tt_bootstrap *b, uint64_t deadline_ns)
{
  tt_bs_awaits(b, "rank %d", predecessor_of(b));
  while (b->prev < 0) {
    struct pollfd want = {.fd = b->next, .events = POLLIN};
    TT_TRY(tt_bs_wait(b, &want, 1, deadline_ns));
    if (b->prev < 0 && want.revents != 0) {
      return successor_ended(b, NULL);
    }
    if (b->prev < 0 && tt_now_ns() >= deadline_ns) {
      return prev_is_late(b);
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_ring_form(tt_bootstrap *b, const tt_addrs *next)
{
  uint64_t deadline = tt_now_ns() + tt_span_ns(tt_params_get()->bootstrap_timeout, TT_NS_PER_S);
  TT_TRY(tt_bs_begin(b, "forming the ring"));
  ncclResult_t res = connect_next(b, next, deadline);
  if (res == ncclSuccess) {
    res = await_prev(b, deadline);
  }
  if (res != ncclSuccess && b->broken == ncclSuccess) {
    stop_ring(b, NULL, b->rank, ncclRemoteError);
  }
  // From here on nobody would look after strangers.
  b->own = b->door.addrs;
  tt_greeter_close(&b->door, true);
  return res;
}
