// ring.c: the ring of ranks, and the all-gather that runs on it.
//
// Each rank sends n-1 blocks to its successor: its own, then what it gets from its predecessor. A frame stands
// before each block, so that a wrong size or a skipped call can be named. A rank that must stop sends STOP frames both
// ways round the ring. They say which rank is the cause, so every rank names the same one. Blocks are passed on as soon
// as they are complete; under load many go in one system call.
#include <errno.h>
#include <string.h>

#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"

// Kinds of frames. A BLOCK has the operation's number and the size of the block that follows. A STOP has the rank that
// is the cause for its number, and no block: its size is the ncclResult_t, and in the upper half why.
enum { FRAME_BLOCK = 0x626c6f63, FRAME_STOP = 0x73746f70, STAGE = 8192, PIECES = 64 };

// Why a rank is the cause, beside ncclRemoteError.
enum { GONE, LATE, ABORTED };
static const char *const reasons[] = {[GONE] = "has gone",
                                      [LATE] = "has not made this call in time (NCCL_BOOTSTRAP_TIMEOUT)",
                                      [ABORTED] = "was aborted in it, or stopped waiting"};

#define PATIENCE_SLICE_NS (100 * TT_NS_PER_MS)

// An all-gather. Each direction is a stream of bytes: nranks - 1 times a frame and a block.
typedef struct {
  tt_bootstrap *b;
  char *data;
  size_t size;
  uint64_t waited_ns; // since something moved, as far as this process was awake
  uint64_t in, out;   // bytes of the streams that have come, and that were sent
  tt_frame own, head; // of each block that goes out; of the block that is arriving
  char stage[STAGE];  // what has just come
} gather;

static tt_frame stop_frame(int cause, ncclResult_t code, uint32_t reason)
{
  return (tt_frame){.kind = FRAME_STOP, .number = (uint32_t)cause, .size = (uint64_t)code | (uint64_t)reason << 32};
}

// Ends the ring: both neighbours hear which rank is the cause, the successor only between two blocks, and then that
// nothing more comes. `g`: the all-gather under way, or NULL.
static void end_ring(tt_bootstrap *b, const gather *g, tt_frame stop)
{
  if (b->next >= 0 && (g == NULL || g->out % (sizeof(tt_frame) + g->size) == 0)) {
    (void)tt_sock_send(b->next, &stop, sizeof(stop));
  }
  if (b->prev >= 0) {
    (void)tt_sock_send(b->prev, &stop, sizeof(stop));
  }
  tt_sock_finish(b->next);
  tt_sock_finish(b->prev);
  b->broken = (ncclResult_t)(uint32_t)stop.size;
}

void tt_bootstrap_stop(tt_bootstrap *b)
{
  if (b != NULL && b->broken == ncclSuccess) {
    end_ring(b, NULL, stop_frame(b->rank, ncclRemoteError, ABORTED));
  }
}

// What a neighbour's connection says at its end: a STOP frame if there is one, else the neighbour itself is the cause.
static ncclResult_t neighbour_ended(tt_bootstrap *b, const gather *g, int neighbour, const tt_frame *f)
{
  int cause = neighbour;
  ncclResult_t code = ncclRemoteError;
  uint32_t reason = GONE;
  if (f->kind == FRAME_STOP) {
    uint32_t code_said = (uint32_t)f->size, reason_said = (uint32_t)(f->size >> 32);
    cause = (int)f->number;
    code = code_said > 0 && code_said < ncclInProgress ? (ncclResult_t)code_said : ncclRemoteError;
    reason = reason_said < TT_COUNT(reasons) ? reason_said : GONE;
  }
  end_ring(b, g, stop_frame(cause, code, reason));
  if (code != ncclRemoteError) {
    return tt_fail(code, "%s: stopped, because a call failed on rank %d (%s)", b->doing, cause, tt_result_string(code));
  }
  return tt_fail(code, "%s: rank %d %s%s", b->doing, cause, reasons[reason],
                 cause == neighbour ? "" : " (a neighbour reported it)");
}

static ncclResult_t successor_ended(tt_bootstrap *b, const gather *g)
{
  tt_frame f, none = {.kind = 0};
  bool whole = tt_sock_recv(b->next, &f, sizeof(f)) == sizeof(f);
  return neighbour_ended(b, g, b->successor, whole ? &f : &none);
}

// Bytes of one direction.
static uint64_t stream_size(const gather *g)
{
  return (uint64_t)(g->b->nranks - 1) * (sizeof(tt_frame) + g->size);
}

// Where byte `at` of a stream stands: in the frame, or in a rank's block. *n: how many bytes follow there. `first`: the
// rank whose block leads the stream.
static char *stream_place(const gather *g, uint64_t at, int first, tt_frame *frame, size_t *n)
{
  uint64_t unit = sizeof(*frame) + g->size;
  size_t in_unit = (size_t)(at % unit);
  if (in_unit < sizeof(*frame)) {
    *n = sizeof(*frame) - in_unit;
    return (char *)frame + in_unit;
  }
  int whose = (first - (int)(at / unit) + g->b->nranks) % g->b->nranks;
  *n = (size_t)unit - in_unit;
  return g->data + (size_t)whose * g->size + (in_unit - sizeof(*frame));
}

// Bytes of the outgoing stream that are ready: own block, then completed incoming ones.
static uint64_t ready_to_send(const gather *g)
{
  uint64_t unit = sizeof(tt_frame) + g->size;
  return TT_MIN((g->in / unit + 1) * unit, stream_size(g));
}

// Sends what can go now. *moved is set when something went.
static ncclResult_t send_blocks(gather *g, bool *moved)
{
  while (g->out < ready_to_send(g)) {
    struct iovec pieces[PIECES];
    int n = 0;
    for (uint64_t at = g->out; n < PIECES && at < ready_to_send(g); at += pieces[n++].iov_len) {
      pieces[n].iov_base = stream_place(g, at, g->b->rank, &g->own, &pieces[n].iov_len);
    }
    ssize_t sent = tt_sock_sendv(g->b->next, pieces, n);
    if (sent < 0) {
      return sent == -EAGAIN ? ncclSuccess : successor_ended(g->b, g);
    }
    g->out += (uint64_t)sent;
    *moved = true;
  }
  return ncclSuccess;
}

static ncclResult_t check_frame(const gather *g)
{
  tt_bootstrap *b = g->b;
  const tt_frame *f = &g->head;
  if (f->kind != FRAME_BLOCK) {
    return neighbour_ended(b, g, b->predecessor, f);
  }
  if (f->number == b->sequence && f->size == g->size) {
    return ncclSuccess;
  }
  end_ring(b, g, stop_frame(b->rank, ncclInvalidUsage, GONE));
  return tt_fail(ncclInvalidUsage,
                 "%s: rank %d calls all-gather %u with %llu bytes, rank %d calls all-gather %u with %zu bytes",
                 b->doing, b->predecessor, f->number, (unsigned long long)f->size, b->rank, b->sequence, g->size);
}

// Spreads received bytes over frames and blocks.
static ncclResult_t take_bytes(gather *g, const char *from, size_t n)
{
  while (n > 0) {
    size_t part;
    char *to = stream_place(g, g->in, g->b->predecessor, &g->head, &part);
    part = TT_MIN(part, n);
    memcpy(to, from, part);
    from += part;
    n -= part;
    g->in += part;
    if (g->in % (sizeof(tt_frame) + g->size) == sizeof(tt_frame)) {
      TT_TRY(check_frame(g));
    }
  }
  return ncclSuccess;
}

// Never reads into the next operation, which may already be under way.
static ncclResult_t receive_blocks(gather *g, bool *moved)
{
  tt_bootstrap *b = g->b;
  while (g->in < stream_size(g)) {
    ssize_t n = tt_sock_recv(b->prev, g->stage, (size_t)TT_MIN(stream_size(g) - g->in, (uint64_t)STAGE));
    if (n == -EAGAIN) {
      return ncclSuccess;
    }
    if (n < 0) {
      return neighbour_ended(b, g, b->predecessor, &(tt_frame){.kind = 0});
    }
    TT_TRY(take_bytes(g, g->stage, (size_t)n));
    *moved = true;
  }
  return ncclSuccess;
}

// The rank whose block must come next, or, when only the successor has still to take something, the successor.
static int late_rank(const gather *g)
{
  const tt_bootstrap *b = g->b;
  int block = (int)(g->in / (sizeof(tt_frame) + g->size));
  return block < b->nranks - 1 ? (b->predecessor - block + b->nranks) % b->nranks : b->successor;
}

// Time in which this process itself was held up does not count, or a job that is stopped as a whole would not go on.
static ncclResult_t check_patience(gather *g, uint64_t since_ns)
{
  uint64_t patience_ns = tt_bs_patience_ns();
  g->waited_ns += TT_MIN(tt_now_ns() - since_ns, PATIENCE_SLICE_NS);
  if (g->waited_ns < patience_ns) {
    return ncclSuccess;
  }
  int late = late_rank(g);
  end_ring(g->b, g, stop_frame(late, ncclRemoteError, LATE));
  return tt_fail(ncclRemoteError, "%s: rank %d has not made this call for %llu s (NCCL_BOOTSTRAP_TIMEOUT)", g->b->doing,
                 late, (unsigned long long)(patience_ns / TT_NS_PER_S));
}

// The successor matters only as long as it has to get something: afterwards it may finish and leave.
static ncclResult_t wait_gather(gather *g, bool sending)
{
  tt_bootstrap *b = g->b;
  short out = (short)(g->out < ready_to_send(g) ? POLLOUT | POLLIN : POLLIN);
  struct pollfd want[2] = {{.fd = g->in < stream_size(g) ? b->prev : -1, .events = POLLIN},
                           {.fd = sending ? b->next : -1, .events = out}};
  uint64_t now = tt_now_ns();
  tt_bs_awaits(b, "rank %d", late_rank(g));
  ncclResult_t res = tt_bs_wait(b, want, 2, now + PATIENCE_SLICE_NS);
  if (res != ncclSuccess) {
    end_ring(b, g, stop_frame(b->rank, ncclRemoteError, ABORTED));
    return res;
  }
  if (want[0].revents == 0 && want[1].revents == 0) {
    return check_patience(g, now);
  }
  return (want[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0 ? successor_ended(b, g) : ncclSuccess;
}

static ncclResult_t run_gather(gather *g)
{
  for (;;) {
    bool moved = false;
    TT_TRY(receive_blocks(g, &moved));
    TT_TRY(send_blocks(g, &moved));
    bool sending = g->out < stream_size(g);
    if (!sending && g->in == stream_size(g)) {
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
  gather g; // its stage is not worth zeroing
  g.b = b;
  g.data = data;
  g.size = size;
  g.waited_ns = g.in = g.out = 0;
  g.own = (tt_frame){.kind = FRAME_BLOCK, .number = ++b->sequence, .size = size};
  return b->nranks == 1 || size == 0 ? ncclSuccess : run_gather(&g);
}

ncclResult_t tt_bootstrap_allgather(tt_bootstrap *b, void *data, size_t size)
{
  TT_TRY(tt_bs_begin(b, "all-gather of %zu bytes", size));
  return gather_blocks(b, data, size);
}

// A rank that has a byte of every rank knows that every rank is here.
ncclResult_t tt_bootstrap_barrier(tt_bootstrap *b)
{
  TT_TRY(tt_bs_begin(b, "barrier"));
  char *bytes = tt_calloc((size_t)b->nranks, 1);
  if (bytes == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory", b->doing);
  }
  ncclResult_t res = gather_blocks(b, bytes, 1);
  tt_free(bytes);
  return res;
}

// ---- Forming the ring

static ncclResult_t connect_next(tt_bootstrap *b, const tt_addrs *next, uint64_t deadline_ns)
{
  char at[TT_ADDRS_TEXT];
  tt_dial *d = NULL;
  tt_hello h = {.kind = TT_HELLO_RING, .rank = b->rank, .to = b->successor, .nranks = b->nranks};
  int e = tt_dial_start(next, &b->key, &h, deadline_ns, &d);
  tt_bs_awaits(b, "rank %d", b->successor);
  ncclResult_t res = e == 0 ? tt_bs_dial(b, d, &b->next, &e) : ncclSuccess;
  tt_dial_cancel(d);
  if (res != ncclSuccess || e == 0) {
    return res;
  }
  bool ours = tt_sock_is_shortage(e);
  return tt_fail(ours ? ncclSystemError : ncclRemoteError, "%s: cannot connect to rank %d at %s: %s%s", b->doing,
                 b->successor, tt_addrs_text(next, at), tt_sock_error_text(e),
                 ours ? "" : " (if it lives: NCCL_SOCKET_IFNAME on its machine)");
}

static ncclResult_t await_prev(tt_bootstrap *b, uint64_t deadline_ns)
{
  tt_bs_awaits(b, "rank %d", b->predecessor);
  while (b->prev < 0) {
    struct pollfd want = {.fd = b->next, .events = POLLIN};
    TT_TRY(tt_bs_wait(b, &want, 1, deadline_ns));
    if (b->prev < 0 && want.revents != 0) {
      return successor_ended(b, NULL);
    }
    if (b->prev < 0 && tt_now_ns() >= deadline_ns) {
      return b->door.shortage != 0
                 ? tt_fail(ncclSystemError, "%s: cannot let rank %d in: %s", b->doing, b->predecessor,
                           tt_sock_error_text(b->door.shortage))
                 : tt_fail(ncclRemoteError, "%s: rank %d has not connected in time (NCCL_BOOTSTRAP_TIMEOUT)", b->doing,
                           b->predecessor);
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_ring_form(tt_bootstrap *b, const tt_addrs *next)
{
  uint64_t deadline = tt_now_ns() + tt_bs_patience_ns();
  TT_TRY(tt_bs_begin(b, "forming the ring"));
  ncclResult_t res = connect_next(b, next, deadline);
  if (res == ncclSuccess) {
    res = await_prev(b, deadline);
  }
  if (res != ncclSuccess && b->broken == ncclSuccess) {
    end_ring(b, NULL, stop_frame(b->rank, ncclRemoteError, GONE));
  }
  // From here on no thread would look after strangers.
  b->own = b->door.addrs;
  tt_greeter_close(&b->door, true);
  return res;
}
