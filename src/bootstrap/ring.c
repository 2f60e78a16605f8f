// ring.c: the ring of ranks, and the all-gather that runs on it.
//
// Each rank sends n-1 blocks to its successor: its own, then what it gets from its predecessor. A frame stands
// before each block, so that a wrong size or a skipped call can be named. Blocks are passed on as soon
// as they are complete; under load many go in one system call.
#include <errno.h>
#include <string.h>

#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/random.h"

enum { STAGE = 8192, PIECES = 64 };

#define PATIENCE_SLICE_NS (100 * TT_NS_PER_MS)
#define TELL_NEXT_NS (TT_NS_PER_S / 4) // for telling a successor that is about to let this rank in

// An all-gather. Each direction is a stream of bytes: nranks - 1 times a frame and a block.
typedef struct {
  tt_bootstrap *b;
  char *data;
  size_t size;
  uint64_t waited_ns; // since something moved, as far as this process was awake
  uint64_t in, out;   // bytes of the streams that have come, and that were sent
  bool next_left;     // the successor, to which everything was sent
  tt_frame own, head; // of each block that goes out; of the block that is arriving
  char stage[STAGE];  // what has just come
} gather;

// May a STOP go to the successor? Not into the middle of a block.
static bool may_forward(const gather *g)
{
  return g == NULL || g->out % (sizeof(tt_frame) + g->size) == 0;
}

// Ends the ring. The successor hears of it only between two blocks. `g`: the all-gather under way, or NULL.
static void end_ring(tt_bootstrap *b, const gather *g, int cause, tt_stop_reason reason)
{
  tt_ring_stop(b, may_forward(g), cause, ncclRemoteError, reason);
}

static ncclResult_t connect_next(tt_bootstrap *b, const tt_addrs *next, uint64_t deadline_ns);
static ncclResult_t await_prev(tt_bootstrap *b, gather *g, uint64_t deadline_ns);

// The successor of a shrink comes again: connects anew, and has nothing of the stream sent.
static ncclResult_t renew_next(tt_bootstrap *b, gather *g)
{
  tt_sock_close(&b->next);
  if (g != NULL) {
    g->out = 0;
    g->next_left = false;
  }
  return connect_next(b, tt_shrink_door(b), tt_now_ns() + tt_bs_patience_ns());
}

// The same for the predecessor. Only before its first block: this rank passes blocks on at once, and some of those to
// come will differ.
static ncclResult_t renew_prev(gather *g)
{
  tt_sock_close(&g->b->prev);
  g->in = 0;
  TT_TRY(tt_shrink_take_early(g->b));
  return await_prev(g->b, g, tt_now_ns() + tt_bs_patience_ns());
}

// Errors: why the ring has ended. None, where that was the ring of the past.
static ncclResult_t successor_ended(tt_bootstrap *b, gather *g)
{
  tt_frame f;
  ssize_t n = tt_sock_take(b->next, &f, sizeof(f), false);
  if (n != (ssize_t)sizeof(f)) {
    f.kind = 0;
  }
  if (tt_ring_ends_past(b, b->successor, &f)) {
    return renew_next(b, g);
  }
  return tt_ring_neighbour_ended(b, may_forward(g), b->successor, tt_ring_is_closed(n) ? NULL : &f);
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

// Errors: that of another call, or why the ring has ended. With g->in 0: the predecessor has come again.
static ncclResult_t check_frame(gather *g)
{
  tt_bootstrap *b = g->b;
  const tt_frame *f = &g->head;
  if (g->in == sizeof(*f) && tt_ring_ends_past(b, b->predecessor, f)) {
    return renew_prev(g);
  }
  if (f->kind != TT_FRAME_BLOCK) {
    return tt_ring_neighbour_ended(b, may_forward(g), b->predecessor, f);
  }
  if (f->number == b->sequence && f->size == g->size) {
    return ncclSuccess;
  }
  tt_ring_stop(b, may_forward(g), b->rank, ncclInvalidUsage, TT_STOP_GONE);
  return tt_fail(ncclInvalidUsage,
                 "%s: rank %d calls all-gather %u with %llu bytes, rank %d calls all-gather %u with %zu bytes",
                 b->doing, tt_shrink_name(b, b->predecessor), f->number, (unsigned long long)f->size,
                 tt_shrink_name(b, b->rank), b->sequence, g->size);
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
      if (g->in == 0) {
        return ncclSuccess;
      }
    }
  }
  return ncclSuccess;
}

// Never reads into the next operation, which may already be under way.
static ncclResult_t receive_blocks(gather *g, bool *moved)
{
  tt_bootstrap *b = g->b;
  while (g->in < stream_size(g)) {
    ssize_t n = tt_sock_take(b->prev, g->stage, (size_t)TT_MIN(stream_size(g) - g->in, (uint64_t)STAGE), false);
    if (n == -EAGAIN) {
      return ncclSuccess;
    }
    if (n <= 0) {
      static const tt_frame part = {.kind = 0};
      bool closed = tt_ring_is_closed(n) && g->in % (sizeof(tt_frame) + g->size) == 0;
      return tt_ring_neighbour_ended(b, may_forward(g), b->predecessor, closed ? NULL : &part);
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
  end_ring(g->b, g, late, TT_STOP_LATE);
  return tt_fail(ncclRemoteError, "%s: rank %d has not made this call for %llu s (NCCL_BOOTSTRAP_TIMEOUT)", g->b->doing,
                 tt_shrink_name(g->b, late), (unsigned long long)(patience_ns / TT_NS_PER_S));
}

// The successor, to which everything was sent, has said something, or has closed. It may have got all that and leave.
// Or it ends this operation, or has refused this rank's connection, and only it can say so.
static ncclResult_t hear_next(gather *g)
{
  tt_bootstrap *b = g->b;
  tt_frame f;
  ssize_t n = tt_sock_take(b->next, &f, sizeof(f), true);
  g->next_left = n != (ssize_t)sizeof(f) || f.kind != TT_FRAME_STOP || tt_ring_ends_later(b, &f);
  return g->next_left ? ncclSuccess : successor_ended(b, g);
}

static ncclResult_t wait_gather(gather *g, bool sending)
{
  tt_bootstrap *b = g->b;
  short out = (short)(g->out < ready_to_send(g) ? POLLOUT | POLLIN : POLLIN);
  struct pollfd want[2] = {{.fd = g->in < stream_size(g) ? b->prev : -1, .events = POLLIN},
                           {.fd = g->next_left ? -1 : b->next, .events = out}};
  uint64_t now = tt_now_ns();
  tt_bs_awaits(b, "rank %d", tt_shrink_name(b, late_rank(g)));
  ncclResult_t res = tt_bs_wait(b, want, 2, now + PATIENCE_SLICE_NS);
  if (res != ncclSuccess) {
    bool dead = b->dead >= 0 && b->look_own;
    end_ring(b, g, dead ? b->dead : b->rank, dead ? TT_STOP_DIED : TT_STOP_ABORTED);
    return res;
  }
  if (want[0].revents == 0 && want[1].revents == 0) {
    return check_patience(g, now);
  }
  if ((want[1].revents & (POLLIN | POLLHUP | POLLERR)) == 0) {
    return ncclSuccess;
  }
  return sending ? successor_ended(b, g) : hear_next(g);
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
  g.next_left = false;
  g.own = (tt_frame){.kind = TT_FRAME_BLOCK, .number = ++b->sequence, .size = size};
  if (b->nranks > 1 && size > 0) {
    TT_TRY(run_gather(&g));
  }
  b->finished = b->sequence;
  return ncclSuccess;
}

ncclResult_t tt_bootstrap_allgather(tt_bootstrap *b, void *data, size_t size)
{
  TT_TRY(tt_bs_begin(b, "all-gather of %zu bytes", size));
  tt_bs_hold(b);
  ncclResult_t res = gather_blocks(b, data, size);
  tt_bs_release(b);
  return res;
}

// A rank that has a byte of every rank knows that every rank is here.
ncclResult_t tt_bootstrap_barrier(tt_bootstrap *b)
{
  TT_TRY(tt_bs_begin(b, "barrier"));
  char *bytes = tt_calloc((size_t)b->nranks, 1);
  if (bytes == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory", b->doing);
  }
  tt_bs_hold(b);
  ncclResult_t res = gather_blocks(b, bytes, 1);
  tt_bs_release(b);
  tt_free(bytes);
  return res;
}

// ---- Forming the ring

// The ring has ended while this rank connects to its successor, which may have let it in already: without a word it
// would take this rank for dead.
static void tell_late_next(tt_bootstrap *b, tt_dial *d)
{
  tt_addr at;
  struct pollfd want[TT_DIAL_POLL];
  uint64_t end_ns = tt_now_ns() + TELL_NEXT_NS;
  int e;
  while ((e = tt_dial_step(d, &b->next, &at)) == 0 && tt_now_ns() < end_ns) {
    uint64_t wake_ns = end_ns;
    size_t n = tt_dial_poll(d, want, &wake_ns);
    if (tt_bs_wait(b, want, n, wake_ns) != ncclSuccess) {
      break;
    }
  }
  if (e > 0) {
    tt_ring_tell(b, b->next);
  }
}

static ncclResult_t connect_next(tt_bootstrap *b, const tt_addrs *next, uint64_t deadline_ns)
{
  char at[TT_ADDRS_TEXT];
  tt_dial *d = NULL;
  int rank = tt_shrink_name(b, b->successor);
  tt_hello h = tt_shrink_hello(b);
  int e = tt_dial_start(next, &b->key, &h, deadline_ns, &d);
  tt_bs_awaits(b, "rank %d", rank);
  ncclResult_t res = e == 0 ? tt_bs_dial(b, d, &b->next, &e) : ncclSuccess;
  if (res != ncclSuccess && b->broken != ncclSuccess) {
    tell_late_next(b, d);
  }
  tt_dial_cancel(d);
  if (res != ncclSuccess || e == 0) {
    return res;
  }
  bool ours = tt_sock_is_shortage(e);
  if (!ours) {
    end_ring(b, NULL, b->successor, TT_STOP_GONE);
  }
  return tt_fail(ours ? ncclSystemError : ncclRemoteError, "%s: cannot connect to rank %d at %s: %s%s", b->doing, rank,
                 tt_addrs_text(next, at), tt_sock_error_text(e),
                 ours ? "" : " (if it lives: NCCL_SOCKET_IFNAME on its machine)");
}

// `g`: as in end_ring.
static ncclResult_t await_prev(tt_bootstrap *b, gather *g, uint64_t deadline_ns)
{
  int rank = tt_shrink_name(b, b->predecessor);
  while (b->prev < 0) {
    struct pollfd want = {.fd = b->next, .events = POLLIN};
    tt_bs_awaits(b, "rank %d", rank);
    TT_TRY(tt_bs_wait(b, &want, 1, deadline_ns));
    if (b->prev < 0 && want.revents != 0) {
      TT_TRY(successor_ended(b, g));
    }
    if (b->prev < 0 && tt_now_ns() >= deadline_ns) {
      return b->door.shortage != 0
                 ? tt_fail(ncclSystemError, "%s: cannot let rank %d in: %s", b->doing, rank,
                           tt_sock_error_text(b->door.shortage))
                 : tt_fail(ncclRemoteError, "%s: rank %d has not connected in time (NCCL_BOOTSTRAP_TIMEOUT)", b->doing,
                           rank);
    }
  }
  return ncclSuccess;
}

// Where each rank listens from now on; that they all say it shows that the whole ring stands.
static ncclResult_t exchange_ring_cards(tt_bootstrap *b)
{
  tt_ring_card *own = &b->cards[b->rank];
  own->door = b->shrinks != NULL ? b->shrinks->door.addrs : b->door.addrs;
  tt_random(own->nonce, sizeof(own->nonce));
  TT_TRY(tt_bootstrap_allgather(b, b->cards, sizeof(*own)));
  for (int i = 0; i < b->nranks; i++) {
    if (b->cards[i].door.n > TT_ADDRS_MAX) {
      return tt_fail(ncclInternalError, "%s: rank %d says that it listens on %u addresses: different builds?", b->doing,
                     tt_shrink_name(b, i), b->cards[i].door.n);
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_ring_form(tt_bootstrap *b, const tt_addrs *next)
{
  uint64_t deadline = tt_now_ns() + tt_bs_patience_ns();
  TT_TRY(tt_bs_begin(b, "forming the ring"));
  TT_TRY(TT_NEW(b->cards, b->nranks, "%s: no memory", b->doing));
  ncclResult_t res = connect_next(b, next, deadline);
  if (res == ncclSuccess) {
    res = await_prev(b, NULL, deadline);
  }
  if (res == ncclSuccess) {
    res = exchange_ring_cards(b);
  }
  if (res != ncclSuccess && b->broken == ncclSuccess) {
    end_ring(b, NULL, b->rank, TT_STOP_ABORTED);
  }
  if (res != ncclSuccess && b->shrinks == NULL) { // a shrink does more before
    tt_ring_tell_late_prev(b);
  }
  return res;
}
