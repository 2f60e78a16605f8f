// recv.c: from the control socket into the posted buffers. See socket_priv.h.
//
// Small messages are read ahead, many in one call, and copied; of a large one everything but its beginning goes
// straight into its buffer. After a large message a large one is expected. Then only the next frame is read ahead. Of
// one that is not very large the frame and the payload are read in one call, the payload straight into the buffer.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/result.h"
#include "net/socket/socket_priv.h"

// Bytes of the front's payload that its buffer takes.
static size_t kept_bytes(const tt_snet_req *r)
{
  return TT_MIN(r->size, r->room);
}

static void finish_front(tt_snet_conn *c)
{
  c->ahead.have_frame = false;
  c->moved = 0;
  c->front++;
}

// A frame has been read: is it one, and where is its payload?
static ncclResult_t begin_message(tt_snet_conn *c, tt_snet_req *r)
{
  const tt_snet_frame *f = &c->frame;
  if (f->check != (TT_SNET_FRAME_MAGIC ^ r->number) || f->size > SIZE_MAX / 2 ||
      (f->piece != 0 && !tt_snet_piece_fits(f->piece, f->size, c->data.nsocks))) {
    char why[128];
    snprintf(why, sizeof(why), "it carries something else than messages (0x%08x in front of message %u)", f->check,
             r->number);
    return tt_snet_conn_fail(c, -EPROTO, why);
  }
  r->size = f->size;
  r->piece = f->piece;
  c->ahead.bulk = f->size >= TT_SNET_BULK;
  c->ahead.have_frame = true;
  c->moved = 0;
  if (r->piece == 0) {
    return ncclSuccess;
  }
  ncclResult_t res = tt_snet_stripe(c, r);
  finish_front(c);
  return res;
}

// Copies what was read ahead to byte c->moved of the front's buffer.
static void scatter_ahead(const tt_snet_conn *c, const tt_snet_req *r, size_t bytes)
{
  struct iovec pieces[2];
  int n = tt_snet_req_pieces(r, c->moved, c->moved + bytes, pieces);
  const char *from = c->ahead.bytes + c->ahead.at;
  for (int i = 0; i < n; i++) {
    memcpy(pieces[i].iov_base, from, pieces[i].iov_len);
    from += pieces[i].iov_len;
  }
}

// The frame of what look_together has read is known now: what is not this message's is the beginning of those that
// follow it.
static void settle_early(tt_snet_conn *c, const tt_snet_req *r)
{
  struct iovec pieces[2];
  size_t own = TT_MIN(c->ahead.early, r->size), others = c->ahead.early - own;
  char *to = c->ahead.bytes + c->ahead.at;
  int n = tt_snet_req_pieces(r, own, c->ahead.early, pieces);
  if (others > 0) {
    memmove(to + others, to, c->ahead.end - c->ahead.at);
    c->ahead.end += others;
  }
  for (int i = 0; i < n; i++) {
    memcpy(to, pieces[i].iov_base, pieces[i].iov_len);
    to += pieces[i].iov_len;
  }
  c->ahead.early = 0;
  c->moved = own;
}

// Uses what was read ahead for the front. False: there was too little to get on.
static ncclResult_t take_ahead(tt_snet_conn *c, bool *moved)
{
  tt_snet_req *r = tt_snet_req_of(c, c->front);
  size_t there = c->ahead.end - c->ahead.at;
  *moved = false;
  if (!c->ahead.have_frame) {
    if (there < sizeof(c->frame)) {
      return ncclSuccess;
    }
    memcpy(&c->frame, c->ahead.bytes + c->ahead.at, sizeof(c->frame));
    c->ahead.at += sizeof(c->frame);
    *moved = true;
    TT_TRY(begin_message(c, r));
    if (!c->ahead.have_frame) {
      return ncclSuccess; // it comes in pieces, over data sockets: then nothing was asked for together with its frame
    }
    settle_early(c, r);
    there = c->ahead.end - c->ahead.at;
  }
  size_t n = TT_MIN(there, r->size - c->moved), keep = kept_bytes(r);
  if (c->moved < keep && n > 0) {
    scatter_ahead(c, r, TT_MIN(n, keep - c->moved));
  }
  c->ahead.at += n;
  c->moved += n;
  if (c->moved == r->size) {
    *moved = true;
    finish_front(c);
  }
  return ncclSuccess;
}

// Moves what is left (less than a frame, or nothing) to the beginning.
static void compact_ahead(tt_snet_conn *c)
{
  size_t left = c->ahead.end - c->ahead.at;
  if (left > 0 && c->ahead.at > 0) {
    memmove(c->ahead.bytes, c->ahead.bytes + c->ahead.at, left);
  }
  c->ahead.at = 0;
  c->ahead.end = left;
}

// How much of the front's payload is asked for together with its frame, before its length is known. After a large
// message what the second part is cut to measure for, or, where there is none, what the message before had. 0: nothing.
// Only into memory that may be overwritten behind the message; and beside a very large one a call more is little.
static size_t guess_payload(const tt_snet_conn *c, const tt_snet_req *r)
{
  if (!r->spare || !c->ahead.bulk || c->ahead.have_frame || c->ahead.end > c->ahead.at) {
    return 0;
  }
  size_t size = r->rest != NULL ? r->room : TT_MIN(r->room, c->frame.size);
  return size <= TT_SNET_EARLY ? size : 0;
}

// One call for the front's frame, `size` bytes of its payload into the buffer, and the next frame. As look.
static ssize_t read_with_frame(tt_snet_conn *c, size_t size, bool *full)
{
  enum { FRAME = sizeof(c->frame) };
  struct iovec parts[4] = {{.iov_base = c->ahead.bytes, .iov_len = FRAME}};
  int count = 1 + tt_snet_req_pieces(tt_snet_req_of(c, c->front), 0, size, parts + 1);
  c->ahead.at = c->ahead.end = 0;
  parts[count++] = (struct iovec){.iov_base = c->ahead.bytes + FRAME, .iov_len = FRAME};
  ssize_t n = tt_sock_recvv(c->fd, parts, count);
  if (n > 0) {
    size_t got = (size_t)n, behind = got - TT_MIN(got, (size_t)FRAME);
    c->ahead.early = TT_MIN(behind, size);
    c->ahead.end = got - c->ahead.early;
    *full = got == FRAME + size + FRAME;
  }
  return n;
}

// One call to the socket. Returns the bytes it gave, or -errno; *full when it gave all that was asked for, so that
// there may be more.
static ssize_t recv_some(tt_snet_conn *c, bool *full)
{
  const tt_snet_req *r = tt_snet_req_of(c, c->front);
  struct iovec parts[3];
  size_t direct = 0, ahead, early = guess_payload(c, r);
  int count = 0;
  if (early > 0) {
    return read_with_frame(c, early, full);
  }
  compact_ahead(c);
  ahead = c->ahead.bulk ? sizeof(c->frame) - TT_MIN(c->ahead.end, sizeof(c->frame) - 1) : TT_SNET_AHEAD - c->ahead.end;
  if (c->ahead.have_frame && c->moved < kept_bytes(r)) {
    direct = kept_bytes(r) - c->moved;
    count = tt_snet_req_pieces(r, c->moved, kept_bytes(r), parts);
  } else if (c->ahead.have_frame) {
    ahead = TT_SNET_AHEAD; // the part that did not fit: read and dropped
  }
  if (!c->ahead.have_frame || kept_bytes(r) == r->size || direct == 0) {
    parts[count++] = (struct iovec){.iov_base = c->ahead.bytes + c->ahead.end, .iov_len = ahead};
  } else {
    ahead = 0;
  }
  ssize_t n =
      count == 1 ? tt_sock_recv(c->fd, parts[0].iov_base, parts[0].iov_len) : tt_sock_recvv(c->fd, parts, count);
  if (n > 0) {
    size_t got = (size_t)n;
    c->moved += TT_MIN(got, direct);
    c->ahead.end += got - TT_MIN(got, direct);
    *full = got == direct + ahead;
  }
  return n;
}

// Everything that the read-ahead can do for the posted requests.
static ncclResult_t use_ahead(tt_snet_conn *c)
{
  bool moved = true;
  while (moved && c->front != c->posted) {
    TT_TRY(take_ahead(c, &moved));
  }
  return ncclSuccess;
}

ncclResult_t tt_snet_recv_drive(tt_snet_conn *c)
{
  bool full = true;
  TT_TRY(use_ahead(c));
  while (c->front != c->posted && full) {
    full = false;
    ssize_t n = recv_some(c, &full);
    if (n < 0 && n != -EAGAIN) {
      bool middle = n == -ECONNRESET && (c->ahead.have_frame || c->ahead.end > c->ahead.at);
      return tt_snet_conn_fail(c, (int)n, middle ? "the peer has closed it in the middle of a message, or died" : NULL);
    }
    if (n > 0) {
      TT_TRY(use_ahead(c));
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_snet_irecv(void *comm, int n, void **data, const size_t *sizes, const int *tags, void **mhandles,
                           void **phandles, void **request)
{
  if (n != 1) {
    return tt_fail(ncclInvalidUsage, "socket network: a receive takes 1 buffer, not %d", n);
  }
  tt_net_part parts[2] = {{.data = data[0], .size = sizes[0]}};
  (void)mhandles;
  return tt_snet_irecv_parts(comm, parts, tags == NULL ? 0 : tags[0], phandles == NULL ? NULL : phandles[0], request);
}

ncclResult_t tt_snet_irecv_parts(void *comm, const tt_net_part parts[2], int tag, void *phandle, void **request)
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
  c->posted++;
  if (r->room >= TT_SNET_BULK) {
    __atomic_store_n(&c->net->one_way, 0, __ATOMIC_RELAXED);
  }
  // What was read ahead may be all of it; the socket is asked by test.
  res = c->ahead.at < c->ahead.end && c->front + 1 == c->posted ? use_ahead(c) : ncclSuccess;
  if (res == ncclSuccess) {
    *request = r;
  }
  return res;
}
