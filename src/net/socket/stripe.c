// stripe.c: large messages in pieces over the data sockets. See socket_priv.h.
#include <errno.h>

#include "base/result.h"
#include "net/socket/socket_priv.h"
#include "os/events.h"

enum { SCRATCH = 16 << 10 };

uint32_t tt_snet_piece_size(const tt_snet *net, int nsocks, size_t size)
{
  if (nsocks == 0 || size <= net->inline_max) {
    return 0;
  }
  size_t piece = TT_MAX(TT_DIV_UP(size, (size_t)nsocks), net->min_piece);
  return piece <= UINT32_MAX ? (uint32_t)piece : 0;
}

bool tt_snet_piece_fits(uint32_t piece, uint64_t size, int nsocks)
{
  return size > 0 && TT_DIV_UP(size, (uint64_t)piece) <= (uint64_t)nsocks;
}

static void push_piece(tt_snet_sock *s, tt_snet_piece piece)
{
  s->ring[s->tail % TT_SNET_RING] = piece;
  __atomic_store_n(&s->tail, s->tail + 1, __ATOMIC_RELEASE);
}

ncclResult_t tt_snet_stripe(tt_snet_conn *c, tt_snet_req *r)
{
  size_t keep = TT_MIN(r->size, r->room);
  uint32_t count = (uint32_t)TT_DIV_UP(r->size, (size_t)r->piece);
  if (c->data.nthreads > 0 && !c->data.helped) {
    tt_snet_helpers_start(c);
  }
  __atomic_store_n(&r->left, count, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < count; i++) {
    size_t at = (size_t)i * r->piece, size = TT_MIN(r->piece, r->size - at);
    size_t fits = at < keep ? TT_MIN(size, keep - at) : 0;
    push_piece(&c->data.socks[(c->data.next + i) % (uint32_t)c->data.nsocks],
               (tt_snet_piece){.data = fits > 0 ? r->data + at : NULL, .size = size, .keep = fits, .req = r});
  }
  c->data.next = (c->data.next + count) % (uint32_t)c->data.nsocks;
  if (c->data.helped) {
    tt_snet_helpers_wake(c);
    return ncclSuccess;
  }
  return tt_snet_stripe_drive(c);
}

// Moves a part of a piece. Bytes, or -errno.
static ssize_t move_piece(const tt_snet_conn *c, const tt_snet_sock *s, const tt_snet_piece *p)
{
  char scratch[SCRATCH];
  if (c->send) {
    return tt_sock_send(s->fd, p->data + s->moved, p->size - s->moved);
  }
  if (s->moved < p->keep) {
    return tt_sock_recv(s->fd, p->data + s->moved, p->keep - s->moved);
  }
  return tt_sock_recv(s->fd, scratch, TT_MIN(sizeof(scratch), p->size - s->moved));
}

static void finish_piece(tt_snet_conn *c, tt_snet_sock *s, tt_snet_req *r)
{
  s->moved = 0;
  __atomic_store_n(&s->head, s->head + 1, __ATOMIC_RELAXED);
  if (__atomic_sub_fetch(&r->left, 1, __ATOMIC_RELEASE) == 0 && c->data.helped) {
    tt_ring(c->net->base.ring);
  }
}

int tt_snet_sock_drive(tt_snet_conn *c, tt_snet_sock *s, bool *moved)
{
  while (tt_snet_sock_busy(s)) {
    const tt_snet_piece *p = &s->ring[s->head % TT_SNET_RING];
    ssize_t n = move_piece(c, s, p);
    if (n == -EAGAIN) {
      break;
    }
    if (n < 0) {
      return (int)n;
    }
    *moved = true;
    s->moved += (size_t)n;
    if (s->moved == p->size) {
      finish_piece(c, s, p->req);
    }
  }
  return 0;
}

ncclResult_t tt_snet_stripe_drive(tt_snet_conn *c)
{
  bool moved = false;
  int e = 0;
  if (c->data.helped) {
    e = -(int)__atomic_load_n(&c->data.error, __ATOMIC_ACQUIRE);
  }
  for (int i = 0; i < c->data.nsocks && e == 0 && !c->data.helped; i++) {
    e = tt_snet_sock_drive(c, &c->data.socks[i], &moved);
  }
  if (moved) {
    c->stall.since_ns = 0;
  }
  return e != 0 ? tt_snet_conn_fail(c, e, NULL) : ncclSuccess;
}

// A helper thread that has woken up meanwhile is seen at the second look, or what it has ended.
bool tt_snet_stripe_stands(const tt_snet_conn *c)
{
  bool stands = tt_snet_helpers_rest(c);
  for (int i = 0; i < c->data.nsocks && stands; i++) {
    const tt_snet_sock *s = &c->data.socks[i];
    stands = !tt_snet_sock_busy(s) || tt_sock_stands(s->fd);
  }
  return stands && tt_snet_helpers_rest(c);
}
