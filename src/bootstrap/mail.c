// mail.c: messages between any two ranks, matched by (peer, tag) in the order of sending.
// A rank connects to a peer when it first sends to it or waits for it; the connection carries messages one way, and its end is how a
// waiting rank learns that the peer has gone.
#include <errno.h>
#include <string.h>

#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"

#define GRACE_NS (300 * TT_NS_PER_MS) // a message may travel slower than the end of another connection

static ncclResult_t peer_gone(tt_bootstrap *b, int peer, int e)
{
  tt_sock_close(&b->out[peer]);
  return tt_fail(ncclRemoteError, "%s: rank %d has gone (%s)", b->doing, peer, strerror(-e));
}

// Sends `size` bytes to a connected peer, while taking in what others send: two ranks may send large messages to each other.
// *e: 0, or the connection's error, quietly.
static ncclResult_t push(tt_bootstrap *b, int peer, const void *data, size_t size, int *e)
{
  size_t done = 0;
  *e = 0;
  while (done < size) {
    ssize_t n = tt_sock_send(b->out[peer], (const char *)data + done, size - done);
    if (n == -EAGAIN) {
      struct pollfd want = {.fd = b->out[peer], .events = POLLOUT};
      TT_TRY(tt_bs_wait(b, &want, 1, 0));
    } else if (n < 0) {
      *e = (int)n;
      return ncclSuccess;
    } else {
      done += (size_t)n;
    }
  }
  return ncclSuccess;
}

static tt_hello peer_hello(const tt_bootstrap *b, int peer)
{
  return (tt_hello){.kind = TT_HELLO_PEER, .rank = b->rank, .to = peer, .nranks = b->nranks};
}

// Makes a connection to `peer` unless there is one. *e: 0, or why the peer cannot be reached, quietly.
static ncclResult_t reach(tt_bootstrap *b, int peer, int *e)
{
  *e = 0;
  if (b->out[peer] >= 0) {
    return ncclSuccess;
  }
  tt_hello h = peer_hello(b, peer);
  return tt_bs_dial(b, &b->addrs[peer], &h, 0, &b->out[peer], e);
}

static ncclResult_t check_peer(const tt_bootstrap *b, int peer)
{
  if (peer < 0 || peer >= b->nranks) {
    return tt_fail(ncclInvalidArgument, "%s: there is no rank %d", b->doing, peer);
  }
  return ncclSuccess;
}

static ncclResult_t send_to_self(tt_bootstrap *b, uint32_t tag, const void *data, size_t size)
{
  tt_letter *l = tt_calloc(1, sizeof(*l) + size);
  if (l == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory for %zu bytes", b->doing, size);
  }
  l->from = b->rank;
  l->tag = tag;
  l->size = size;
  if (size > 0) {
    memcpy(l->data, data, size);
  }
  tt_bs_keep(b, l);
  return ncclSuccess;
}

ncclResult_t tt_bootstrap_send(tt_bootstrap *b, int peer, uint32_t tag, const void *data, size_t size)
{
  TT_TRY(tt_bs_begin(b, "send to rank %d, tag %u", peer, tag));
  TT_TRY(check_peer(b, peer));
  if (peer == b->rank) {
    return send_to_self(b, tag, data, size);
  }
  int e = 0;
  tt_frame_mail f = {.tag = tag, .size = size};
  ncclResult_t res = reach(b, peer, &e);
  if (res == ncclSuccess && e == 0) {
    res = push(b, peer, &f, sizeof(f), &e);
  }
  if (res == ncclSuccess && e == 0) {
    res = push(b, peer, data, size, &e);
  }
  if (res != ncclSuccess) {
    tt_sock_close(&b->out[peer]); // part of a message may be out: nothing can follow it
    return res;
  }
  return e != 0 ? peer_gone(b, peer, e) : ncclSuccess;
}

// Takes the first message of (peer, tag) out of the list; NULL when there is none.
static tt_letter *find(tt_bootstrap *b, int peer, uint32_t tag)
{
  for (tt_letter **at = &b->letters; *at != NULL; at = &(*at)->next) {
    tt_letter *l = *at;
    if (l->from == peer && l->tag == tag) {
      *at = l->next;
      if (b->letters_end == &l->next) {
        b->letters_end = at;
      }
      return l;
    }
  }
  return NULL;
}

static bool sends_to_us(const tt_bootstrap *b, int peer)
{
  for (int i = 0; i < b->ninlets; i++) {
    if (b->inlets[i].from == peer) {
      return true;
    }
  }
  return false;
}

// A rank that waits for a peer's message. Its own connection to the peer tells when that dies.
typedef struct {
  int peer;
  tt_dial *dial;    // while there is none
  uint64_t gone_ns; // when the peer's end was noticed: what it had sent before may still be on its way. 0: it lives
} watch;

static void peer_ended(tt_bootstrap *b, watch *w)
{
  tt_sock_close(&b->out[w->peer]);
  w->gone_ns = tt_now_ns();
}

// Goes on connecting to the peer, which may be busy with other things and answer late. Never waits.
static void step_dial(tt_bootstrap *b, watch *w)
{
  tt_addr at;
  tt_hello h = peer_hello(b, w->peer);
  if (b->out[w->peer] >= 0 || w->gone_ns != 0) {
    return;
  }
  int e = w->dial == NULL ? tt_dial_start(&b->addrs[w->peer], &b->key, &h, 0, &w->dial) : 0;
  e = e == 0 ? tt_dial_step(w->dial, &b->out[w->peer], &at) : e;
  if (e < 0) {
    peer_ended(b, w);
  }
  if (e != 0) {
    tt_dial_cancel(w->dial);
    w->dial = NULL;
  }
}

// One wait for whatever happens next.
static ncclResult_t watch_peer(tt_bootstrap *b, watch *w)
{
  struct pollfd want[TT_DIAL_POLL];
  step_dial(b, w);
  uint64_t wake_ns = w->gone_ns != 0 ? w->gone_ns + GRACE_NS : 0;
  // Peers never write to our connection: when it is readable, it has ended.
  int fd = b->out[w->peer];
  want[0] = (struct pollfd){.fd = fd, .events = POLLIN};
  size_t n = w->dial != NULL ? tt_dial_poll(w->dial, want, &wake_ns) : 1;
  TT_TRY(tt_bs_wait(b, want, n, wake_ns));
  if (fd >= 0 && want[0].revents != 0) {
    peer_ended(b, w);
  }
  return ncclSuccess;
}

static ncclResult_t await_letter(tt_bootstrap *b, int peer, uint32_t tag, tt_letter **out)
{
  watch w = {.peer = peer};
  ncclResult_t res = ncclSuccess;
  while (res == ncclSuccess && (*out = find(b, peer, tag)) == NULL) {
    bool over = w.gone_ns != 0 && !sends_to_us(b, peer) && tt_now_ns() >= w.gone_ns + GRACE_NS;
    res = over ? peer_gone(b, peer, -ECONNRESET) : watch_peer(b, &w);
  }
  tt_dial_cancel(w.dial);
  return res;
}

ncclResult_t tt_bootstrap_recv(tt_bootstrap *b, int peer, uint32_t tag, void *data, size_t size)
{
  TT_TRY(tt_bs_begin(b, "receive from rank %d, tag %u", peer, tag));
  TT_TRY(check_peer(b, peer));
  tt_letter *l = NULL;
  TT_TRY(tt_bs_take(b));
  if (peer != b->rank) {
    TT_TRY(await_letter(b, peer, tag, &l));
  } else if ((l = find(b, peer, tag)) == NULL) {
    return tt_fail(ncclInvalidUsage, "%s: this rank has sent itself no such message", b->doing);
  }
  ncclResult_t res = ncclSuccess;
  if (l->size != size) {
    res = tt_fail(ncclInvalidUsage, "%s: rank %d sent %zu bytes, %zu were expected", b->doing, peer, l->size, size);
  } else if (size > 0) {
    memcpy(data, l->data, size);
  }
  tt_free(l);
  return res;
}
