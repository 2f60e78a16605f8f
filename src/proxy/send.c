// send.c: the sending machine: posted -> transmitted -> done (seed 001, part 8).
//
// The proxy is the reader of the FIFO. A slot is posted when the executor may fill it (the head says so). It is
// transmitted when the network has its message, or the header at least. It is done when the network needs the slot no
// more; then it goes back to the executor.
#include <string.h>

#include "base/result.h"
#include "proxy/proxy_priv.h"

// Gives one message to the network. A payload that does not lie in its slot goes from where it is, or, if the network
// cannot do that, by way of the slot. Where it was is nobody else's business.
static ncclResult_t send_post(const tt_proxy_conn *c, const tt_proxy_fifo *f, tt_proxy_step *st)
{
  const tt_net_ops *net = c->proxy->net;
  tt_slot *s = st->slot;
  size_t head = f->at - sizeof s->seq;
  bool apart = f->at == sizeof *s && s->elsewhere != 0 && c->client == NULL; // a client's addresses mean nothing here
  if (TT_LIKELY(!apart)) {
    return net->isend(c->comm, tt_proxy_message(s), head + s->bytes, 0, f->mhandle, st->phandle, &st->request);
  }
  uint64_t where = s->elsewhere;
  s->elsewhere = 0;
  if (!c->parts) {
    memcpy((char *)s + f->at, (const void *)(uintptr_t)where, s->bytes);
    return net->isend(c->comm, tt_proxy_message(s), head + s->bytes, 0, f->mhandle, st->phandle, &st->request);
  }
  const tt_net_part parts[2] = {{.data = tt_proxy_message(s), .size = head},
                                {.data = (void *)(uintptr_t)where, .size = s->bytes}};
  ncclResult_t res = net->isend_parts(c->comm, parts, 0, st->phandle, &st->request);
  if (st->request == NULL) {
    s->elsewhere = where; // not now
  }
  return res;
}

// ---- messages in two: for networks that take one piece at a time, the header is a message of its own, and the payload
// the next one

// Finds out where the payload is sent from: where it lies if the network may look there, else it is copied to a staging
// buffer or the slot. False: no staging buffer yet.
static bool find_source(tt_proxy_conn *c, const tt_proxy_fifo *f, tt_proxy_step *st)
{
  tt_slot *s = st->slot;
  char *where = c->client == NULL ? (char *)(uintptr_t)s->elsewhere : NULL; // a client's addresses mean nothing here
  if (where == NULL) { // the executor has put it into the slot, or it was copied before
    tt_proxy_buffer_again(c, st);
    return true;
  }
  if (tt_proxy_reach(c, where, s->bytes, &st->mr)) {
    st->place = where;
    return true;
  }
  tt_proxy_buffer_result b = st->item->op.shared ? tt_proxy_buffer_take(c, f, st) : TT_BUFFER_NONE;
  if (b == TT_BUFFER_LATER) {
    return false;
  }
  memcpy(b == TT_BUFFER_OK ? st->place : (char *)s + f->at, where, s->bytes);
  s->elsewhere = 0;
  return true;
}

// Gives the network what it has not got yet of the last message.
static ncclResult_t send_payload(tt_proxy_conn *c)
{
  if (TT_LIKELY(!c->owes)) {
    return ncclSuccess;
  }
  tt_proxy_step *st = &c->steps[(c->posted - 1) % TT_NET_REQUESTS];
  void *data, *mhandle;
  tt_proxy_payload(st, &c->fifo[st->item->op.proto], &data, &mhandle);
  TT_TRY(c->proxy->net->isend(c->comm, data, st->slot->bytes, TT_PROXY_PAYLOAD, mhandle, st->phandle, &st->payload));
  if (st->payload == NULL) {
    atomic_store_explicit(&c->proxy->refused, true, memory_order_relaxed); // the header may be on its way already
    return ncclSuccess;
  }
  c->owes = false;
  return ncclSuccess;
}

static ncclResult_t give_header(tt_proxy_conn *c, const tt_proxy_fifo *f, tt_proxy_step *st)
{
  tt_slot *s = st->slot;
  if (!find_source(c, f, st)) {
    return ncclSuccess;
  }
  uint64_t where = s->elsewhere;
  s->elsewhere = 0;
  TT_TRY(c->proxy->net->isend(c->comm, tt_proxy_message(s), f->at - sizeof s->seq, TT_PROXY_WHOLE, f->mhandle,
                              st->phandle, &st->request));
  if (st->request == NULL) {
    s->elsewhere = where; // not now
    return ncclSuccess;
  }
  st->two = true;
  tt_proxy_step_begin(c, st);
  return ncclSuccess;
}

// ----

// Gives full slots to the network.
static ncclResult_t transmit(tt_proxy_conn *c)
{
  TT_TRY(send_payload(c));
  for (tt_proxy_item *i = c->poster; i != NULL && !c->owes && c->posted - c->finished < c->depth;) {
    tt_proxy_fifo *f = &c->fifo[i->op.proto];
    tt_slot *s = tt_proxy_slot(f, f->next);
    bool filled = atomic_load_explicit(&s->seq, memory_order_acquire) == f->next + 1;
    if (TT_UNLIKELY(i->prof != NULL)) {
      tt_proxy_prof_start(i, i->transmitted, ncclProfilerProxyStepSendGPUWait);
      if (filled) {
        tt_proxy_prof_state(i, i->transmitted, ncclProfilerProxyStepSendPeerWait_v4, 0);
      }
    }
    if (!filled) {
      break;
    }
    if (TT_UNLIKELY(s->bytes > f->capacity)) { // the executor's own bug, or memory that somebody else has written to
      return tt_fail(ncclInternalError, "rank %d: a message of %u bytes to rank %d in a slot of %u", c->proxy->rank,
                     s->bytes, c->peer->rank, f->capacity);
    }
    tt_proxy_step st = {.item = i,
                        .slot = s,
                        .number = f->next,
                        .phandle = TT_UNLIKELY(i->prof != NULL) ? tt_proxy_prof_handle(i) : NULL};
    TT_TRY(tt_proxy_is_two(c, f, s->bytes) ? give_header(c, f, &st) : send_post(c, f, &st));
    if (st.request == NULL) {
      tt_proxy_conn_refused(c);
      break;
    }
    f->next++;
    c->steps[c->posted++ % TT_NET_REQUESTS] = st;
    c->owes = st.two;
    TT_TRY(send_payload(c));
    if (TT_UNLIKELY(i->prof != NULL)) {
      tt_proxy_prof_state(i, i->transmitted, ncclProfilerProxyStepSendWait, s->bytes);
    }
    if (++i->transmitted == i->op.nsteps) {
      c->poster = i = i->next;
    }
  }
  return ncclSuccess;
}

// Is a message sent, both parts of it? *done then.
static ncclResult_t send_test(tt_proxy_conn *c, tt_proxy_step *st, int *done)
{
  const tt_net_ops *net = c->proxy->net;
  *done = 1;
  if (st->request != NULL) {
    TT_TRY(net->test(st->request, done, NULL));
  }
  if (TT_LIKELY(!st->two) || !*done) {
    return ncclSuccess;
  }
  st->request = NULL;
  *done = 0;
  if (st->payload != NULL) { // else the network has not taken it yet
    TT_TRY(net->test(st->payload, done, NULL));
  }
  if (*done) {
    tt_proxy_step_end(c, st);
    tt_proxy_buffer_leave(c, st->number);
  }
  return ncclSuccess;
}

// Gives back the slots whose messages are sent. In order: networks want to be asked about their oldest request first.
static ncclResult_t send_complete(tt_proxy_conn *c)
{
  while (c->finished != c->posted) {
    tt_proxy_step *st = &c->steps[c->finished % TT_NET_REQUESTS];
    int done = 0;
    TT_TRY(send_test(c, st, &done));
    if (!done) {
      break;
    }
    tt_proxy_item *i = st->item;
    c->finished++;
    atomic_store_explicit(c->fifo[i->op.proto].head, st->number + 1, memory_order_release);
    if (TT_UNLIKELY(i->prof != NULL)) {
      tt_proxy_prof_stop(i, i->done);
    }
    if (++i->done == i->op.nsteps) {
      tt_proxy_retire(c);
    }
  }
  return ncclSuccess;
}

bool tt_proxy_send_round(tt_proxy_conn *c)
{
  uint32_t before = c->finished, under_way = c->posted - c->finished;
  ncclResult_t res = transmit(c);
  if (TT_LIKELY(res == ncclSuccess)) {
    res = send_complete(c);
  }
  bool moved = c->finished != before;
  res = tt_proxy_again(c, res, moved, transmit);
  atomic_store_explicit(&c->counted, c->posted - c->owes, memory_order_release);
  atomic_store_explicit(&c->freed, c->finished, memory_order_release);
  if (TT_UNLIKELY(c->posted - c->finished != under_way)) { // small messages are sent at once
    atomic_store_explicit(&c->proxy->unsent, tt_proxy_count(&c->proxy->unsent) + (c->posted - c->finished) - under_way,
                          memory_order_relaxed);
  }
  if (TT_UNLIKELY(res != ncclSuccess)) {
    tt_proxy_conn_fail(c, res);
  }
  return moved;
}
