// unread.c: messages that nobody receives, seen by a rank whose operations are all over (tt_call_unread).
//
// The rank that leaves last sees them for sure. A peer's messages lie in this rank's FIFOs, or the peer says that it
// has sent more than has come. This rank's own messages lie in FIFOs of a peer that has left, or that peer has got
// less. Over the network messages have no numbers there: they are those of sends where the sender has begun no
// collective that the receiver has not. A peer that is ahead in collectives learns by itself that this rank has left.
//
// A rank that looks has said before that it leaves. So where a message crosses with the receiver's leaving, either the
// receiver finds the message or the sender finds that the receiver has left: on one machine by the fence, over the
// network since a peer's answer comes after what the peer has said before.
#include "base/result.h"
#include "device/lane.h"

#define EVERY_SEND "every ncclSend needs an ncclRecv"

// Something of the peer has come that this rank has not taken.
static ncclResult_t unread_slot(const tt_port *port, int peer, const tt_slot *s)
{
  tt_call own = {.sig = 0};
  uint32_t number = (uint32_t)(s->sig >> 32);
  if (number == 0) {
    return tt_fail(ncclInvalidUsage,
                   "ranks are in different calls, by number: rank %d has sent %llu bytes to rank %d, which has not "
                   "received them; " EVERY_SEND,
                   peer, (unsigned long long)TT_SIG_COUNT(s->count), port->rank);
  }
  bool begun = tt_page_shown(port->page, number, &own.sig, &own.sig_count);
  bool same = begun && tt_sig_same_call(own.sig, own.sig_count, s->sig, s->count);
  return same || !begun ? ncclSuccess : tt_call_mismatch(port, &own, peer, s->sig, s->count);
}

// A message of this rank's lies where a peer that has left will not take it.
static ncclResult_t unread_left(const tt_port *port, int peer, const tt_fifo *f)
{
  const tt_slot *s = (const tt_slot *)(f->slots + (size_t)(f->seen & f->mask) * f->stride);
  return s->sig >> 32 != 0 ? ncclSuccess
                           : tt_fail(ncclInvalidUsage,
                                     "ranks are in different calls, by number: rank %d has sent %llu bytes to rank %d, "
                                     "which has left without receiving them; " EVERY_SEND,
                                     port->rank, (unsigned long long)TT_SIG_COUNT(s->count), peer);
}

static ncclResult_t unread_fifos(const tt_port *port, tt_link *link)
{
  bool gone = atomic_load_explicit(&link->page->state, memory_order_acquire) == TT_RANK_GONE && !link->networked;
  for (int k = 0; k < TT_NFIFOS; k++) {
    const tt_fifo *in = &link->recv[k];
    tt_fifo *out = &link->send[k];
    if (in->slots != NULL && tt_fifo_arrived(in)) {
      TT_TRY(unread_slot(port, link->peer, tt_fifo_slot(in)));
    }
    if (gone && out->slots != NULL && !tt_fifo_drained(out)) {
      TT_TRY(unread_left(port, link->peer, out));
    }
  }
  return ncclSuccess;
}

// The number of the last operation that a page shows; 0: none.
static uint32_t unread_last_number(const tt_rank_page *page)
{
  uint32_t last = 0;
  uint64_t sig, count;
  for (int i = 1; i <= TT_SHOWN; i++) {
    uint32_t number = tt_shown_read(&page->shown[i], &sig, &count) ? (uint32_t)(sig >> 32) : 0;
    last = number != 0 && (last == 0 || (int32_t)(number - last) > 0) ? number : last;
  }
  return last;
}

// Is there an operation that the two have begun with different arguments? Says so.
static ncclResult_t unread_mismatch(const tt_port *port, const tt_link *link)
{
  for (int i = 1; i <= TT_SHOWN; i++) {
    tt_call own = {.sig = 0};
    uint64_t sig, count;
    if (tt_shown_read(&link->page->shown[i], &sig, &count) &&
        tt_page_shown(port->page, (uint32_t)(sig >> 32), &own.sig, &own.sig_count) &&
        !tt_sig_same_call(own.sig, own.sig_count, sig, count)) {
      return tt_call_mismatch(port, &own, link->peer, sig, count);
    }
  }
  return ncclSuccess;
}

static ncclResult_t unread_far(const tt_port *port, const tt_link *link)
{
  tt_unread lost = port->mover->unread(port->mover_self, link->peer);
  int32_t ahead = (int32_t)(unread_last_number(link->page) - unread_last_number(port->page));
  bool in = lost.in > 0 && ahead <= 0, out = lost.out > 0 && ahead >= 0;
  if (!in && !out) {
    return ncclSuccess;
  }
  TT_TRY(unread_mismatch(port, link));
  return tt_fail(ncclInvalidUsage,
                 "ranks are in different calls, by number: rank %d has sent rank %d %d message%s more than that has "
                 "received; " EVERY_SEND,
                 in ? link->peer : port->rank, in ? port->rank : link->peer, in ? lost.in : lost.out,
                 (in ? lost.in : lost.out) == 1 ? "" : "s");
}

ncclResult_t tt_call_unread(const tt_port *port)
{
  tt_bell_fence();
  if (port->mover != NULL) {
    port->mover->census(port->mover_self);
  }
  for (int i = 0; i < port->nranks && port->links != NULL; i++) {
    tt_link *link = __atomic_load_n(&port->links[i], __ATOMIC_ACQUIRE);
    if (link == NULL || link->behind != NULL) {
      continue;
    }
    TT_TRY(unread_fifos(port, link));
    if (link->networked && port->mover != NULL) {
      TT_TRY(unread_far(port, link));
    }
  }
  return ncclSuccess;
}
