// send.c: frames and payloads onto the control socket, and the test of requests. See socket_priv.h.
#include <errno.h>
#include <string.h>

#include "base/result.h"
#include "net/socket/socket_priv.h"
#include "os/clock.h"

enum {
  SMALL = 1024, // bytes of payload that are copied behind the frame: cheaper than two parts
  TOGETHER = 8, // messages of one system call, at most
  ONE_WAY = 32, // large messages sent, and none received meanwhile, after which large ones go together
  FRAMES = TOGETHER * sizeof(tt_snet_frame),
  LOOKS = 8 // a receiver asks the clock after so many looks in vain
};

// What one system call sends: frames and small payloads, copied one behind the other, and the other payloads where they
// lie.
typedef struct batch {
  int n;
  size_t used; // of `copied`, in which the frames always find room
  struct iovec parts[3 * TOGETHER];
  char copied[2 * FRAMES + SMALL];
} batch;

static size_t payload_of(const tt_snet_req *r)
{
  return r->piece == 0 ? r->size : 0;
}

static void add_copy(batch *b, const void *data, size_t size)
{
  char *at = b->copied + b->used;
  struct iovec *last = b->n > 0 ? &b->parts[b->n - 1] : NULL;
  memcpy(at, data, size);
  b->used += size;
  if (last != NULL && (char *)last->iov_base + last->iov_len == at) {
    last->iov_len += size;
  } else {
    b->parts[b->n++] = (struct iovec){.iov_base = at, .iov_len = size};
  }
}

// A message's frame and payload from byte `from` on.
static void batch_message(batch *b, const tt_snet_req *r, size_t from)
{
  tt_snet_frame frame = {.check = TT_SNET_FRAME_MAGIC ^ r->number, .piece = r->piece, .size = r->size};
  size_t payload = payload_of(r), at = from < sizeof(frame) ? 0 : from - sizeof(frame);
  if (from < sizeof(frame)) {
    add_copy(b, (const char *)&frame + from, sizeof(frame) - from);
  }
  if (at == payload) {
    return;
  }
  if (payload <= SMALL && r->split == r->size && b->used + (payload - at) <= FRAMES + SMALL) {
    add_copy(b, r->data + at, payload - at);
  } else {
    b->n += tt_snet_req_pieces(r, at, payload, b->parts + b->n);
  }
}

// May several large messages go in one call? That fills TCP's segments better, but delays what a rank receives
// meanwhile.
static bool may_go_together(const tt_snet_conn *c)
{
  return __atomic_load_n(&c->net->one_way, __ATOMIC_RELAXED) >= ONE_WAY;
}

// One call for what is left of the messages at the front. Bytes, or -errno.
static ssize_t send_batch(const tt_snet_conn *c)
{
  batch b;
  b.n = 0;
  b.used = 0;
  size_t from = c->moved;
  uint32_t most = may_go_together(c) ? TOGETHER : 1;
  for (uint32_t i = c->front; i != c->posted && i - c->front < most; i++) {
    batch_message(&b, tt_snet_req_of((tt_snet_conn *)(uintptr_t)c, i), from);
    from = 0;
  }
  return b.n == 1 ? tt_sock_send(c->fd, b.parts[0].iov_base, b.parts[0].iov_len) : tt_sock_sendv(c->fd, b.parts, b.n);
}

// Counts bytes that the kernel has taken.
static void count_sent(tt_snet_conn *c, size_t n)
{
  c->moved += n;
  while (c->front != c->posted) {
    size_t whole = sizeof(tt_snet_frame) + payload_of(tt_snet_req_of(c, c->front));
    if (c->moved < whole) {
      return;
    }
    c->moved -= whole;
    c->front++;
  }
}

ncclResult_t tt_snet_send_drive(tt_snet_conn *c)
{
  while (c->front != c->posted) {
    ssize_t n = send_batch(c);
    if (n == -EAGAIN) {
      return ncclSuccess;
    }
    if (n < 0) {
      return tt_snet_conn_fail(c, (int)n, NULL);
    }
    c->stall.since_ns = 0;
    count_sent(c, (size_t)n);
  }
  return ncclSuccess;
}

bool tt_snet_has_parts(void *comm)
{
  // Data sockets, and the threads that look after them, want it in one piece.
  return ((const tt_snet_conn *)comm)->data.nsocks == 0;
}

ncclResult_t tt_snet_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
  tt_net_part parts[2] = {{.data = data, .size = size, .mhandle = mhandle}};
  return tt_snet_isend_parts(comm, parts, tag, phandle, request);
}

ncclResult_t tt_snet_isend_parts(void *comm, const tt_net_part parts[2], int tag, void *phandle, void **request)
{
  tt_snet_conn *c = comm;
  (void)tag;
  (void)phandle;
  tt_snet_req *r;
  *request = NULL;
  ncclResult_t res = tt_snet_req_begin(c, parts, &r);
  if (r == NULL) {
    return res;
  }
  r->size = r->room;
  r->piece = tt_snet_piece_size(c->net, c->data.nsocks, r->size);
  c->posted++;
  // With the next test: as many as there are by then.
  bool large = r->size >= TT_SNET_BULK, later = large && may_go_together(c);
  if (large && !later) {
    __atomic_add_fetch(&c->net->one_way, 1, __ATOMIC_RELAXED);
  }
  res = c->front + 1 == c->posted && !later ? tt_snet_send_drive(c) : ncclSuccess;
  if (res == ncclSuccess && r->piece != 0) {
    res = tt_snet_stripe(c, r);
  }
  if (res == ncclSuccess) {
    *request = r;
  }
  return res;
}

// The longest silence of a socket that has something to send.
static unsigned silence_ms(const tt_snet_conn *c)
{
  unsigned worst = tt_sock_silent_ms(c->fd);
  for (int i = 0; i < c->data.nsocks; i++) {
    if (tt_snet_sock_busy(&c->data.socks[i])) {
      unsigned ms = tt_sock_silent_ms(c->data.socks[i].fd);
      worst = TT_MAX(worst, ms);
    }
  }
  return worst;
}

// Nothing got on: for how long? The kernel detects silence of idle sockets (keep-alive), and from Linux 6.15 on of busy
// ones too.
static ncclResult_t watch_silence(tt_snet_conn *c)
{
  uint64_t now = tt_now_ns();
  if (c->stall.since_ns == 0) {
    c->stall.since_ns = now;
    c->stall.look_ns = now + TT_NS_PER_S;
  } else if (now >= c->stall.look_ns) {
    c->stall.look_ns = now + TT_NS_PER_S;
    if (now - c->stall.since_ns >= c->net->base.timeout_s * TT_NS_PER_S &&
        silence_ms(c) >= c->net->base.timeout_s * 1000) {
      return tt_snet_conn_fail(c, -ETIMEDOUT, NULL);
    }
  }
  return ncclSuccess;
}

// Only the test of the oldest request that is not through looks at the control socket: with many requests posted, a
// look costs one call.
static ncclResult_t drive_request(tt_snet_conn *c, const tt_snet_req *r)
{
  if (c->failed != ncclSuccess) {
    return tt_snet_conn_failed(c);
  }
  if (r->number == c->front) {
    TT_TRY(c->send ? tt_snet_send_drive(c) : tt_snet_recv_drive(c));
  }
  if (c->data.nsocks > 0 && __atomic_load_n(&r->left, __ATOMIC_ACQUIRE) != 0) {
    TT_TRY(tt_snet_stripe_drive(c));
  }
  return !tt_snet_req_done(r) && (c->send || ++c->stall.looks % LOOKS == 0) ? watch_silence(c) : ncclSuccess;
}

ncclResult_t tt_snet_test(void *request, int *done, size_t *sizes)
{
  tt_snet_req *r = request;
  *done = 0;
  if (!tt_snet_req_done(r)) {
    TT_TRY(drive_request(r->conn, r));
  }
  if (tt_snet_req_done(r)) {
    *done = 1;
    if (sizes != NULL) {
      sizes[0] = r->size;
    }
    r->conn->stall.since_ns = 0;
    r->conn = NULL;
  }
  return ncclSuccess;
}
