// recv.c: the receiving machine: posted -> received -> flushed -> transmitted -> done (seed 001, part 9).
//
// The proxy is the writer of the FIFO. A free slot is posted to the network; when its message is received, and flushed
// where the network wants that, it is transmitted: published to the executor, which gives it back (done) when it has
// used it.
#include "base/result.h"
#include "proxy/proxy_priv.h"

static bool recv_has_room(tt_proxy_fifo *f)
{
  if (TT_LIKELY(f->next - f->seen <= f->mask)) {
    return true;
  }
  f->seen = atomic_load_explicit(f->head, memory_order_acquire);
  return f->next - f->seen <= f->mask;
}

// Finds out where the item's next message belongs, as its schedule says: st->place, NULL: in a slot or a staging
// buffer. A connection whose network takes one piece at a time: does the message come in two? Sender and receiver know
// its size, each from its own call. A receive without a lane does not know; then the header says so, and nothing else
// is posted until it is here. False: it comes in one, into its slot.
static bool recv_aim(tt_proxy_conn *c, const tt_proxy_item *i, tt_proxy_step *st)
{
  const tt_lane *l = i->op.place.lane;
  const tt_proxy_fifo *f = &c->fifo[i->op.proto];
  if (l == NULL || i->op.proto != TT_SIMPLE || (l->places == 0 && !c->split) || (!c->parts && !c->split)) {
    st->unsure = l == NULL && tt_proxy_is_two(c, f, f->capacity);
    return false;
  }
  const tt_proxy_place *place = &i->op.place;
  uint32_t step = place->steps[i->posted % place->messages], pass = i->posted / place->messages;
  if (c->split) {
    st->two = tt_proxy_is_two(c, f, tt_lane_message(l, step, pass));
    if (!st->two) {
      return false;
    }
  }
  st->place = tt_lane_place(l, step, pass, &st->room);
  if (c->split && (st->place == NULL || !tt_proxy_reach(c, st->place, st->room, &st->mr))) {
    st->place = NULL;
    st->room = f->capacity;
  }
  return true;
}

// Has the call begun, so that its buffers are nobody else's any more? What comes until then can wait in the network as
// well as in a slot, and need not be copied afterwards.
static bool recv_may_place(const tt_proxy_item *i)
{
  return atomic_load_explicit(&i->op.place.lane->call->open, memory_order_acquire);
}

// Finds the place of the item's next message. False: not yet.
static bool recv_find_place(tt_proxy_conn *c, const tt_proxy_item *i, tt_proxy_step *st)
{
  if (!recv_aim(c, i, st)) {
    return true;
  }
  if (st->place != NULL) {
    return recv_may_place(i);
  }
  return !c->split || !i->op.shared || tt_proxy_buffer_take(c, &c->fifo[i->op.proto], st) != TT_BUFFER_LATER;
}

// Bytes that the payload may have.
static size_t recv_room(const tt_proxy_step *st, const tt_proxy_fifo *f)
{
  return st->place != NULL ? st->room : f->capacity;
}

// Gives header and payload to the network as one request of two buffers, told apart by their tags. Only if the peer is
// known to be in the same call: a message of another one would fill one of the two, and never be seen.
static ncclResult_t give_both(const tt_proxy_conn *c, tt_proxy_step *st, const tt_proxy_fifo *f)
{
  void *data[2] = {tt_proxy_message(st->slot)}, *mhandles[2] = {f->mhandle}, *phandles[2] = {st->phandle, st->phandle};
  const size_t sizes[2] = {f->at - sizeof st->slot->seq, recv_room(st, f)};
  const int tags[2] = {TT_PROXY_WHOLE, TT_PROXY_PAYLOAD};
  tt_proxy_payload(st, f, &data[1], &mhandles[1]);
  return c->proxy->net->irecv(c->comm, 2, data, sizes, tags, mhandles, phandles, &st->request);
}

// Gives one slot to the network, or one and the place of its payload. *request NULL: not now.
static ncclResult_t recv_post(const tt_proxy_conn *c, tt_proxy_step *st, const tt_proxy_fifo *f)
{
  if (st->grouped) {
    return give_both(c, st, f);
  }
  const tt_net_ops *net = c->proxy->net;
  void *data = tt_proxy_message(st->slot), *mhandle = f->mhandle;
  size_t head = f->at - sizeof st->slot->seq, size = head + f->capacity;
  int tag = TT_PROXY_WHOLE;
  if (!c->parts || st->item->op.proto != TT_SIMPLE) {
    return net->irecv(c->comm, 1, &data, &size, &tag, &mhandle, &st->phandle, &st->request);
  }
  // A header has room for a whole message: should the peer be in another call, that is seen best by what it sends.
  tt_net_part parts[2] = {{.data = data, .size = size, .spare = true}}; // slot and place are this message's alone
  if (st->place != NULL) {
    parts[0].size = head;
    parts[1] = (tt_net_part){.data = st->place, .size = st->room};
  }
  return net->irecv_parts(c->comm, parts, tag, st->phandle, &st->request);
}

// Gives the network the place of the last message's payload, if it has only that of the header.
static ncclResult_t recv_payload(tt_proxy_conn *c)
{
  if (TT_LIKELY(!c->owes)) {
    return ncclSuccess;
  }
  tt_proxy_step *st = &c->steps[(c->posted - 1) % TT_NET_REQUESTS];
  const tt_proxy_fifo *f = &c->fifo[st->item->op.proto];
  size_t size = recv_room(st, f);
  int tag = TT_PROXY_PAYLOAD;
  void *data, *mhandle;
  tt_proxy_payload(st, f, &data, &mhandle);
  TT_TRY(c->proxy->net->irecv(c->comm, 1, &data, &size, &tag, &mhandle, &st->phandle, &st->payload));
  if (st->payload == NULL) {
    atomic_store_explicit(&c->proxy->refused, true, memory_order_relaxed); // the header may have come already
    return ncclSuccess;
  }
  c->owes = false;
  return ncclSuccess;
}

// Gives free slots to the network.
static ncclResult_t recv_post_next(tt_proxy_conn *c)
{
  TT_TRY(recv_payload(c));
  for (tt_proxy_item *i = c->poster; i != NULL && !c->owes && !c->unsure && c->posted - c->finished < c->depth;) {
    tt_proxy_fifo *f = &c->fifo[i->op.proto];
    if (!recv_has_room(f)) {
      break;
    }
    tt_proxy_step st = {.item = i, .slot = tt_proxy_slot(f, f->next), .number = f->next};
    if (!recv_find_place(c, i, &st)) {
      break; // the thread that begins the plan drives the proxy next
    }
    if (TT_UNLIKELY(i->prof != NULL)) {
      tt_proxy_prof_start(i, i->posted, ncclProfilerProxyStepRecvWait);
      st.phandle = tt_proxy_prof_handle(i);
    }
    st.grouped = st.two && c->groups && i->agreed;
    TT_TRY(recv_post(c, &st, f));
    if (st.request == NULL) {
      tt_proxy_conn_refused(c);
      break;
    }
    if (i->posted == 0) {
      i->base = f->next;
    }
    f->next++;
    tt_proxy_step_begin(c, &st);
    c->steps[c->posted++ % TT_NET_REQUESTS] = st;
    c->owes = st.two && !st.grouped;
    c->unsure = st.unsure;
    TT_TRY(recv_payload(c));
    if (++i->posted == i->op.nsteps) {
      c->poster = i = i->next;
    }
  }
  return ncclSuccess;
}

// A message whose size is not the one its head says, or that is larger than the slot: the peer has sent it from another
// kind of FIFO. So it is in another call, which the executor will see by the fingerprint, and name. If the call is the
// same, the FIFOs are not: nobody else would notice.
static ncclResult_t check_misfit(const tt_proxy_conn *c, const tt_proxy_step *st, size_t got)
{
  const tt_proxy_item *i = st->item;
  const tt_proxy_fifo *f = &c->fifo[i->op.proto];
  tt_slot *s = st->slot;
  int rank = c->proxy->rank, peer = c->peer->rank;
  if (got < TT_PROXY_HEAD) {
    return tt_fail(ncclRemoteError, "rank %d: %zu bytes from rank %d are no message: the data are damaged", rank, got,
                   peer);
  }
  if (s->sig == i->op.sig && tt_sig_count_same(s->count, i->op.count)) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: a message of %zu bytes from rank %d does not fit its head (%u bytes) or a buffer of %zu: "
                   "are NCCL_BUFFSIZE, "
                   "NCCL_LL_BUFFSIZE and NCCL_PROTO equal on all ranks?",
                   rank, got, peer, s->bytes, recv_room(st, f));
  }
  s->bytes = TT_MIN(s->bytes, f->capacity);
  return ncclSuccess;
}

// The peer is in another call, and sends messages in one or two where this rank expects two or one. The executor is
// shown this message and will name the calls; what follows cannot be told apart, and the network keeps what it was
// given until the connection is closed.
static void jam(tt_proxy_conn *c, const tt_proxy_step *st)
{
  if (c->fifo[st->item->op.proto].at == sizeof *st->slot) {
    st->slot->elsewhere = 0;
  }
  c->jammed = true;
  atomic_store_explicit(&st->slot->seq, st->number + 1, memory_order_release);
}

// The message whose kind was not known has come, or its header.
static void be_sure(tt_proxy_conn *c, tt_proxy_step *st, size_t got)
{
  const tt_proxy_fifo *f = &c->fifo[st->item->op.proto];
  uint32_t bytes = st->slot->bytes;
  c->unsure = st->unsure = false;
  st->two = got == f->at - sizeof st->slot->seq && bytes >= TT_LEND_MIN && bytes <= f->capacity;
  c->owes = st->two;
}

// A message of `got` bytes has arrived in the step's slot, or the header of one in two: is it one?
static ncclResult_t recv_take(tt_proxy_conn *c, tt_proxy_step *st, size_t got)
{
  tt_proxy_fifo *f = &c->fifo[st->item->op.proto];
  const tt_slot *s = st->slot;
  size_t before = f->at - sizeof s->seq;
  bool fits = got >= TT_PROXY_HEAD && s->bytes <= recv_room(st, f) && got == before + (st->two ? 0 : s->bytes);
  fits &= !st->two || s->bytes >= TT_LEND_MIN;
  if (TT_UNLIKELY(!fits)) {
    // This, or the peer's message, is in two.
    bool other = st->two || (c->split && s->bytes >= TT_LEND_MIN && got < s->bytes);
    TT_TRY(check_misfit(c, st, got));
    if (other) {
      jam(c, st);
    }
    return ncclSuccess;
  }
  if (TT_UNLIKELY(c->groups)) {
    st->item->agreed |= s->sig == st->item->op.sig && tt_sig_count_same(s->count, st->item->op.count);
  }
  if (f->at == sizeof *st->slot) { // the peer's word on this is of no use here
    st->slot->elsewhere = (uint64_t)(uintptr_t)st->place;
  }
  return ncclSuccess;
}

// The payload of a message in two has arrived.
static ncclResult_t take_payload(const tt_proxy_conn *c, const tt_proxy_step *st, size_t got)
{
  if (got != st->slot->bytes) {
    return tt_fail(ncclRemoteError,
                   "rank %d: a payload of %zu bytes from rank %d after a header that says %u: the data are damaged",
                   c->proxy->rank, got, c->peer->rank, st->slot->bytes);
  }
  return ncclSuccess;
}

// Everything of the message is here: from now on the step's requests are those of its flushes, if the network wants
// any.
static ncclResult_t recv_flush(tt_proxy_conn *c, tt_proxy_step *st)
{
  tt_proxy_fifo *f = &c->fifo[st->item->op.proto];
  st->request = st->payload = NULL;
  if (TT_LIKELY(!c->flush)) {
    return ncclSuccess;
  }
  const tt_net_ops *net = c->proxy->net;
  void *data[2] = {tt_proxy_message(st->slot)}, *mhandles[2] = {f->mhandle};
  int sizes[2] = {(int)(f->at - sizeof st->slot->seq + (st->two ? 0 : TT_MIN(st->slot->bytes, f->capacity))),
                  (int)st->slot->bytes};
  if (st->two) {
    tt_proxy_payload(st, f, &data[1], &mhandles[1]);
  }
  TT_TRY(net->iflush(c->comm, st->grouped ? 2 : 1, data, sizes, mhandles, &st->request));
  return st->two && !st->grouped ? net->iflush(c->comm, 1, &data[1], &sizes[1], &mhandles[1], &st->payload)
                                 : ncclSuccess;
}

// The size of a message whose network does not tell it: what the sender will have made of a message that says what this
// one says of itself.
static size_t presume(const tt_proxy_conn *c, const tt_proxy_step *st)
{
  const tt_proxy_fifo *f = &c->fifo[st->item->op.proto];
  uint32_t bytes = st->slot->bytes;
  return f->at - sizeof st->slot->seq + (tt_proxy_is_two(c, f, bytes) ? 0 : bytes);
}

// The same for one that was given as a request of two buffers.
static ncclResult_t look_for_both(tt_proxy_conn *c, tt_proxy_step *st, int *done)
{
  size_t got[2] = {0};
  TT_TRY(c->proxy->net->test(st->request, done, got));
  if (!*done) {
    return ncclSuccess;
  }
  TT_TRY(recv_take(c, st, got[0] == TT_NET_SIZE_UNKNOWN ? presume(c, st) : got[0]));
  *done = !c->jammed;
  return *done && got[1] != TT_NET_SIZE_UNKNOWN ? take_payload(c, st, got[1]) : ncclSuccess;
}

// Looks whether the step's message has come. *done: all of it.
static ncclResult_t look_for(tt_proxy_conn *c, tt_proxy_step *st, int *done)
{
  const tt_net_ops *net = c->proxy->net;
  size_t got = 0;
  if (TT_UNLIKELY(st->grouped)) {
    return look_for_both(c, st, done);
  }
  *done = 1;
  if (!st->headed) {
    TT_TRY(net->test(st->request, done, &got));
    if (!*done) {
      return ncclSuccess;
    }
    got = TT_UNLIKELY(got == TT_NET_SIZE_UNKNOWN) ? presume(c, st) : got;
    if (TT_UNLIKELY(st->unsure)) {
      be_sure(c, st, got);
    }
    TT_TRY(recv_take(c, st, got));
    st->headed = true;
    TT_TRY(recv_payload(c));
  }
  if (TT_LIKELY(!st->two) || c->jammed) {
    *done = !c->jammed;
    return ncclSuccess;
  }
  *done = 0;
  if (st->payload != NULL) { // else its place is not given to the network yet
    TT_TRY(net->test(st->payload, done, &got));
  }
  return *done && got != TT_NET_SIZE_UNKNOWN ? take_payload(c, st, got) : ncclSuccess;
}

// Looks what has come, in order.
static ncclResult_t recv_arrive(tt_proxy_conn *c)
{
  while (c->received != c->posted && !c->jammed) {
    tt_proxy_step *st = &c->steps[c->received % TT_NET_REQUESTS];
    int done = 0;
    TT_TRY(look_for(c, st, &done));
    if (!done) {
      break;
    }
    TT_TRY(recv_flush(c, st));
    tt_proxy_item *i = st->item;
    if (TT_UNLIKELY(i->prof != NULL)) {
      tt_proxy_prof_state(i, i->received, ncclProfilerProxyStepRecvFlushWait, st->slot->bytes);
    }
    c->received++;
    i->received++;
  }
  return ncclSuccess;
}

// Is one of the step's flushes done, or was there none?
static ncclResult_t recv_flushed(const tt_proxy_conn *c, void **request, int *done)
{
  *done = 1;
  if (TT_UNLIKELY(*request != NULL)) {
    TT_TRY(c->proxy->net->test(*request, done, NULL));
    *request = *done ? NULL : *request;
  }
  return ncclSuccess;
}

// Publishes what is received and flushed.
static ncclResult_t recv_publish(tt_proxy_conn *c)
{
  while (c->finished != c->received) {
    tt_proxy_step *st = &c->steps[c->finished % TT_NET_REQUESTS];
    int done = 0;
    TT_TRY(recv_flushed(c, &st->request, &done));
    if (done) {
      TT_TRY(recv_flushed(c, &st->payload, &done));
    }
    if (!done) {
      break;
    }
    tt_proxy_step_end(c, st);
    tt_proxy_item *i = st->item;
    c->finished++;
    uint32_t bytes = st->slot->bytes; // from the next line on the slot is the executor's
    atomic_store_explicit(&st->slot->seq, st->number + 1, memory_order_release);
    if (TT_UNLIKELY(i->prof != NULL)) {
      tt_proxy_prof_state(i, i->transmitted, ncclProfilerProxyStepRecvGPUWait, bytes);
      tt_proxy_prof_stop(i, i->transmitted);
    }
    if (++i->transmitted == i->op.nsteps) {
      tt_proxy_retire(c);
    }
  }
  return ncclSuccess;
}

bool tt_proxy_recv_round(tt_proxy_conn *c)
{
  uint32_t before = c->finished;
  if (TT_UNLIKELY(c->jammed)) {
    return false;
  }
  ncclResult_t res = recv_post_next(c);
  if (TT_LIKELY(res == ncclSuccess)) {
    res = recv_arrive(c);
  }
  ncclResult_t published = recv_publish(c); // what came before an error still counts
  bool moved = c->finished != before || c->jammed;
  if (moved) {
    atomic_store_explicit(&c->counted, c->finished, memory_order_release);
  }
  res = tt_proxy_again(c, res != ncclSuccess ? res : published, moved, recv_post_next);
  if (TT_UNLIKELY(res != ncclSuccess)) {
    tt_proxy_conn_fail(c, res);
  }
  return moved;
}

// Nothing is with the network, and the next message waits for a slot of the executor's or for the beginning of its
// call, whose place is known. Staging memory may come back from other connections.
bool tt_proxy_recv_shut(tt_proxy_conn *c)
{
  const tt_proxy_item *i = c->poster;
  if (i == NULL || c->owes || c->unsure || c->jammed || c->posted != c->finished) {
    return false;
  }
  tt_proxy_step st = {.item = (tt_proxy_item *)(uintptr_t)i};
  return !recv_has_room(&c->fifo[i->op.proto]) || (recv_aim(c, i, &st) && st.place != NULL && !recv_may_place(i));
}
