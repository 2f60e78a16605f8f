// send.c: frames and payloads onto the control socket, and the test of requests. See socket_priv.h.
#include <errno.h>
#include <string.h>

#include "base/result.h"
#include "net/socket/socket_priv.h"
#include "os/clock.h"

enum {
  SMALL = 1024, // bytes of payload that are copied behind the frame: cheaper than two parts
  LOOKS = 8     // a receiver asks the clock after so many looks in vain
};

// What is left of frame and payload of the front: one system call for both.
static int gather(const tt_snet_conn *c, const tt_snet_req *r, struct iovec parts[3])
{
  size_t payload = r->piece == 0 ? r->size : 0, head = sizeof(c->frame);
  int n = 0;
  if (c->moved < head) {
    parts[n++] = (struct iovec){.iov_base = (char *)(uintptr_t)&c->frame + c->moved, .iov_len = head - c->moved};
  }
  size_t at = c->moved < head ? 0 : c->moved - head;
  return n + tt_snet_req_pieces(r, at, payload, parts + n);
}

static void next_frame(tt_snet_conn *c, const tt_snet_req *r)
{
  c->frame = (tt_snet_frame){.check = TT_SNET_FRAME_MAGIC ^ r->number, .piece = r->piece, .size = r->size};
}

// One call for what is left of the front. Bytes, or -errno.
static ssize_t push(tt_snet_conn *c, const tt_snet_req *r)
{
  struct iovec parts[3];
  char small[sizeof(c->frame) + SMALL];
  if (c->moved > 0) {
    return tt_sock_sendv(c->fd, parts, gather(c, r, parts));
  }
  next_frame(c, r);
  if (r->piece == 0 && (r->size > SMALL || r->split < r->size)) {
    return tt_sock_sendv(c->fd, parts, gather(c, r, parts));
  }
  size_t payload = r->piece == 0 ? r->size : 0;
  memcpy(small, &c->frame, sizeof(c->frame));
  if (payload > 0) {
    memcpy(small + sizeof(c->frame), r->data, payload);
  }
  return tt_sock_send(c->fd, small, sizeof(c->frame) + payload);
}

ncclResult_t tt_snet_send_drive(tt_snet_conn *c)
{
  while (c->front != c->posted) {
    const tt_snet_req *r = tt_snet_req_of(c, c->front);
    ssize_t n = push(c, r);
    if (n == -EAGAIN) {
      return ncclSuccess;
    }
    if (n < 0) {
      return tt_snet_conn_fail(c, (int)n, NULL);
    }
    c->watch_ns = 0;
    c->moved += (size_t)n;
    if (c->moved == sizeof(c->frame) + (r->piece == 0 ? r->size : 0)) {
      c->moved = 0;
      c->front++;
    }
  }
  return ncclSuccess;
}

bool tt_snet_has_parts(void *comm)
{
  return ((const tt_snet_conn *)comm)->nsocks == 0; // data sockets, and the threads that look after them, want it in one piece
}

ncclResult_t tt_snet_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
  tt_net_part parts[2] = {{.data = data, .size = size, .mhandle = mhandle}};
  (void)phandle;
  return tt_snet_isend_parts(comm, parts, tag, request);
}

ncclResult_t tt_snet_isend_parts(void *comm, const tt_net_part parts[2], int tag, void **request)
{
  tt_snet_conn *c = comm;
  (void)tag;
  tt_snet_req *r;
  *request = NULL;
  ncclResult_t res = tt_snet_req_begin(c, parts, &r);
  if (r == NULL) {
    return res;
  }
  r->size = r->room;
  r->piece = tt_snet_piece_size(c->net, c->nsocks, r->size);
  c->posted++;
  res = c->front + 1 == c->posted ? tt_snet_send_drive(c) : ncclSuccess;
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
  for (int i = 0; i < c->nsocks; i++) {
    if (tt_snet_sock_busy(&c->socks[i])) {
      unsigned ms = tt_sock_silent_ms(c->socks[i].fd);
      worst = TT_MAX(worst, ms);
    }
  }
  return worst;
}

// Nothing got on: for how long? The kernel looks after idle sockets (keep-alive), and from Linux 6.15 after these too.
static ncclResult_t watch(tt_snet_conn *c)
{
  uint64_t now = tt_now_ns();
  if (c->watch_ns == 0) {
    c->watch_ns = now;
    c->look_ns = now + TT_NS_PER_S;
  } else if (now >= c->look_ns) {
    c->look_ns = now + TT_NS_PER_S;
    if (now - c->watch_ns >= c->net->timeout_s * TT_NS_PER_S && silence_ms(c) >= c->net->timeout_s * 1000) {
      return tt_snet_conn_fail(c, -ETIMEDOUT, NULL);
    }
  }
  return ncclSuccess;
}

// Only the test of the oldest request that is not through looks at the control socket: with many requests posted, a look costs one call.
static ncclResult_t drive(tt_snet_conn *c, const tt_snet_req *r)
{
  if (c->failed != ncclSuccess) {
    return tt_snet_conn_failed(c);
  }
  if (r->number == c->front) {
    TT_TRY(c->send ? tt_snet_send_drive(c) : tt_snet_recv_drive(c));
  }
  if (c->nsocks > 0 && __atomic_load_n(&r->left, __ATOMIC_ACQUIRE) != 0) {
    TT_TRY(tt_snet_stripe_drive(c));
  }
  return !tt_snet_req_done(r) && (c->send || ++c->looks % LOOKS == 0) ? watch(c) : ncclSuccess;
}

ncclResult_t tt_snet_test(void *request, int *done, size_t *sizes)
{
  tt_snet_req *r = request;
  *done = 0;
  if (!tt_snet_req_done(r)) {
    TT_TRY(drive(r->conn, r));
  }
  if (tt_snet_req_done(r)) {
    *done = 1;
    if (sizes != NULL) {
      sizes[0] = r->size;
    }
    r->conn->watch_ns = 0;
    r->conn = NULL;
  }
  return ncclSuccess;
}
