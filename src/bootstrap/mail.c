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

static ncclResult_t connect_peer(tt_bootstrap *b, int peer, int *e)
{
  *e = tt_tcp_connect_start(&b->addrs[peer], &b->out[peer]);
  while (*e == -EINPROGRESS) {
    struct pollfd want = {.fd = b->out[peer], .events = POLLOUT};
    TT_TRY(tt_bs_wait(b, &want, 1, 0));
    *e = want.revents != 0 ? tt_tcp_connect_end(want.fd) : *e;
  }
  if (*e != 0) {
    return ncclSuccess;
  }
  tt_hello h = {.kind = TT_HELLO_PEER, .rank = b->rank, .to = peer, .nranks = b->nranks};
  tt_hello_seal(&h, &b->key);
  return push(b, peer, &h, sizeof(h), e);
}

// Makes a connection to `peer` unless there is one. *e: 0, or why the peer cannot be reached, quietly. What failed half-way is closed, so
// that the next call starts afresh.
static ncclResult_t reach(tt_bootstrap *b, int peer, int *e)
{
  *e = 0;
  if (b->out[peer] >= 0) {
    return ncclSuccess;
  }
  ncclResult_t res = connect_peer(b, peer, e);
  if (res != ncclSuccess || *e != 0) {
    tt_sock_close(&b->out[peer]);
  }
  return res;
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

// Waits for the message. Our own connection to the peer tells when it dies; what it had sent before may still be on its way.
static ncclResult_t await_letter(tt_bootstrap *b, int peer, uint32_t tag, tt_letter **out)
{
  uint64_t gone_ns = 0; // when the peer's end was noticed
  while ((*out = find(b, peer, tag)) == NULL) {
    int e = 0;
    if (gone_ns == 0) {
      TT_TRY(reach(b, peer, &e));
    } else if (!sends_to_us(b, peer) && tt_now_ns() >= gone_ns + GRACE_NS) {
      return peer_gone(b, peer, -ECONNRESET);
    }
    // Peers never write to our connection: when it is readable, it has ended.
    struct pollfd want = {.fd = b->out[peer], .events = POLLIN};
    if (e == 0) {
      TT_TRY(tt_bs_wait(b, &want, 1, gone_ns == 0 ? 0 : tt_now_ns() + GRACE_NS));
    }
    if (e != 0 || want.revents != 0) {
      tt_sock_close(&b->out[peer]);
      gone_ns = tt_now_ns();
    }
  }
  return ncclSuccess;
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
