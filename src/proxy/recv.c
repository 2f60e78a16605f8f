// recv.c: the receiving machine: posted -> received -> flushed -> transmitted -> done (seed 001, part 9).
//
// The proxy is the writer of the FIFO. A free slot is posted to the network; when its message is received, and flushed where the network wants
// that, it is transmitted: published to the executor, which gives it back (done) when it has used it.
#include "base/result.h"
#include "proxy/proxy_priv.h"

static bool has_room(tt_proxy_fifo *f)
{
  if (TT_LIKELY(f->next - f->seen <= f->mask)) {
    return true;
  }
  f->seen = atomic_load_explicit(f->head, memory_order_acquire);
  return f->next - f->seen <= f->mask;
}

// Finds out where the item's next message belongs. False: not known yet, because the call has not begun, and its buffers are still somebody else's.
// What comes until then can wait in the network as well as in a slot, and need not be copied afterwards.
static bool find_place(const tt_proxy_conn *c, const tt_proxy_item *i, char **place, size_t *room)
{
  const tt_lane *l = i->place.lane;
  *place = NULL;
  if (l == NULL || l->places == 0 || !c->parts || i->proto != TT_SIMPLE) {
    return true;
  }
  uint32_t number = tt_proxy_count(&i->posted);
  *place = tt_lane_place(l, i->place.steps[number % i->place.messages], number / i->place.messages, room);
  return *place == NULL || atomic_load_explicit(&l->call->open, memory_order_acquire);
}

// Gives one slot to the network, or one and the place of its payload. *request NULL: not now.
static ncclResult_t give(const tt_proxy_conn *c, const tt_proxy_step *st, const tt_proxy_fifo *f, void **request)
{
  const tt_net_ops *net = c->proxy->net;
  void *data = tt_proxy_message(st->slot), *mhandle = f->mhandle;
  size_t head = f->at - sizeof st->slot->seq, size = head + f->capacity;
  int tag = 0;
  if (st->place == NULL) {
    return net->irecv(c->comm, 1, &data, &size, &tag, &mhandle, request);
  }
  const tt_net_part parts[2] = {{.data = data, .size = head}, {.data = st->place, .size = st->room}};
  return net->irecv_parts(c->comm, parts, tag, request);
}

// Gives free slots to the network.
static ncclResult_t post(tt_proxy_conn *c)
{
  for (tt_proxy_item *i = c->poster; i != NULL && c->posted - c->finished < TT_NET_REQUESTS;) {
    tt_proxy_fifo *f = &c->fifo[i->proto];
    if (!has_room(f)) {
      break;
    }
    tt_proxy_step st = {.item = i, .slot = tt_proxy_slot(f, f->next), .number = f->next};
    if (!find_place(c, i, &st.place, &st.room)) {
      break; // whoever begins the plan drives the proxy next
    }
    TT_TRY(give(c, &st, f, &st.request));
    if (st.request == NULL) {
      tt_proxy_conn_refused(c);
      break;
    }
    uint32_t n = tt_proxy_count(&i->posted);
    if (n == 0) {
      atomic_store_explicit(&i->base, f->next, memory_order_relaxed);
    }
    f->next++;
    c->steps[c->posted++ % TT_NET_REQUESTS] = st;
    tt_proxy_item_posted(i, n + 1);
    if (n + 1 == i->nsteps) {
      c->poster = i = i->next;
    }
  }
  return ncclSuccess;
}

// A message whose size is not the one its head says, or that is larger than the slot: the peer has sent it from another kind of FIFO. So it is in
// another call, which the executor will see by the fingerprint, and name. If the call is the same, the FIFOs are not: nobody else would notice.
static ncclResult_t check_misfit(const tt_proxy_conn *c, const tt_proxy_step *st, size_t got)
{
  const tt_proxy_item *i = st->item;
  const tt_proxy_fifo *f = &c->fifo[i->proto];
  tt_slot *s = st->slot;
  int rank = c->proxy->rank, peer = c->peer->rank;
  if (got < TT_PROXY_HEAD) {
    return tt_fail(ncclRemoteError, "rank %d: %zu bytes from rank %d are no message: the data are damaged", rank, got, peer);
  }
  if (s->sig == i->sig && s->count == i->count) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: a message of %zu bytes from rank %d does not fit its head (%u bytes) or a buffer of %zu: are NCCL_BUFFSIZE, "
                   "NCCL_LL_BUFFSIZE and NCCL_PROTO equal on all ranks?",
                   rank, got, peer, s->bytes, st->place != NULL ? st->room : (size_t)f->capacity);
  }
  s->bytes = TT_MIN(s->bytes, f->capacity);
  return ncclSuccess;
}

// A message of `got` bytes has arrived in the step's slot: is it one, and does it need a flush?
static ncclResult_t take(tt_proxy_conn *c, tt_proxy_step *st, size_t got)
{
  tt_proxy_fifo *f = &c->fifo[st->item->proto];
  const tt_slot *s = st->slot;
  size_t before = f->at - sizeof s->seq;
  size_t room = st->place != NULL ? st->room : f->capacity;
  bool fits = got >= TT_PROXY_HEAD && s->bytes <= room && got == before + s->bytes;
  if (TT_UNLIKELY(!fits)) {
    TT_TRY(check_misfit(c, st, got));
  }
  st->request = NULL;
  if (f->at == sizeof *st->slot) { // the peer's word on this is of no use here
    st->slot->elsewhere = (uint64_t)(uintptr_t)st->place;
  }
  if (!c->flush) {
    return ncclSuccess;
  }
  void *data = tt_proxy_message(st->slot);
  int size = (int)TT_MIN(got, before + f->capacity);
  return c->proxy->net->iflush(c->comm, 1, &data, &size, &f->mhandle, &st->request);
}

// Looks what has come, in order.
static ncclResult_t receive(tt_proxy_conn *c)
{
  const tt_net_ops *net = c->proxy->net;
  while (c->received != c->posted) {
    tt_proxy_step *st = &c->steps[c->received % TT_NET_REQUESTS];
    size_t got = 0;
    int done = 0;
    TT_TRY(net->test(st->request, &done, &got));
    if (!done) {
      break;
    }
    TT_TRY(take(c, st, got));
    c->received++;
    tt_proxy_item_received(st->item, tt_proxy_count(&st->item->received) + 1);
  }
  return ncclSuccess;
}

// Publishes what is received and flushed.
static ncclResult_t publish(tt_proxy_conn *c)
{
  const tt_net_ops *net = c->proxy->net;
  while (c->finished != c->received) {
    tt_proxy_step *st = &c->steps[c->finished % TT_NET_REQUESTS];
    if (st->request != NULL) {
      int done = 0;
      TT_TRY(net->test(st->request, &done, NULL));
      if (!done) {
        break;
      }
    }
    tt_proxy_item *i = st->item;
    c->finished++;
    atomic_store_explicit(&st->slot->seq, st->number + 1, memory_order_release);
    uint32_t n = tt_proxy_count(&i->transmitted) + 1;
    tt_proxy_item_transmitted(i, n);
    if (n == i->nsteps) {
      tt_proxy_retire(c);
    }
  }
  return ncclSuccess;
}

bool tt_proxy_recv_round(tt_proxy_conn *c)
{
  uint32_t before = c->finished;
  ncclResult_t res = post(c);
  if (TT_LIKELY(res == ncclSuccess)) {
    res = receive(c);
  }
  ncclResult_t published = publish(c); // what came before an error still counts
  bool moved = c->finished != before;
  if (moved) {
    atomic_store_explicit(&c->counted, c->finished, memory_order_release);
  }
  res = res != ncclSuccess ? res : published;
  if (res == ncclSuccess && moved && c->poster != NULL) {
    res = post(c);
  }
  if (TT_UNLIKELY(res != ncclSuccess)) {
    tt_proxy_conn_fail(c, res);
  }
  return moved;
}
