// sums.c: see sums.h.
//
// Messages (counts, each at most the one before): posted by the launching thread, given to the network, done: the
// result is published, and the slot the executor sent goes back. The network has at most as many as there are slots, in
// order.
#include "proxy/sums.h"

#include "base/result.h"
#include "proxy/proxy_priv.h"

// A message under way.
typedef struct sum {
  void *request; // NULL: a message without elements, of which the network hears nothing
  tt_collnet_sum what;
} sum;

struct tt_proxy_sums {
  tt_proxy *proxy;
  tt_collnet_comm *comm;
  int peer; // the link's, whose waiters are woken
  tt_proxy_fifo send, recv;
  // The run flag's holder's, but for `posted`.
  _Atomic uint32_t posted;
  uint32_t given, done;
  uint32_t counted; // of the proxy's operations: done or dropped
  bool failed;
  sum sums[TT_COLLNET_REQUESTS];
};

static ncclResult_t reg(tt_collnet_comm *comm, tt_proxy_fifo *f)
{
  return tt_collnet_reg(comm, f->slots, ((size_t)f->mask + 1) * f->stride, &f->mhandle);
}

static void destroy(tt_proxy_sums *s)
{
  tt_proxy_fifo *fifos[] = {&s->send, &s->recv};
  for (int i = 0; i < 2; i++) {
    if (fifos[i]->mhandle != NULL) {
      tt_collnet_dereg(s->comm, fifos[i]->mhandle);
    }
  }
  tt_collnet_disconnect(s->comm);
  tt_free(s);
}

ncclResult_t tt_proxy_sums_open(tt_proxy *p, tt_link *link, tt_collnet_comm *comm, tt_proxy_sums **out)
{
  tt_proxy_sums *s = tt_calloc(1, sizeof *s);
  if (s == NULL) {
    tt_collnet_disconnect(comm);
    return tt_fail(ncclSystemError, "rank %d: no memory for messages to a network that reduces", p->rank);
  }
  *s = (tt_proxy_sums){.proxy = p,
                       .comm = comm,
                       .peer = link->peer,
                       .send = tt_proxy_fifo_view(&link->send[TT_SIMPLE]),
                       .recv = tt_proxy_fifo_view(&link->recv[TT_SIMPLE])};
  ncclResult_t res;
  TT_TRY_GOTO(reg(comm, &s->send), res);
  TT_TRY_GOTO(reg(comm, &s->recv), res);
  tt_proxy_run_hold(p);
  p->sums = s;
  tt_proxy_run_release(p);
  *out = s;
  return ncclSuccess;
fail:
  destroy(s);
  return res;
}

void tt_proxy_sums_post(tt_proxy_sums *s, uint32_t messages)
{
  tt_proxy *p = s->proxy;
  atomic_store_explicit(&s->posted, tt_proxy_count(&s->posted) + messages, memory_order_release);
  atomic_store_explicit(&p->posted, tt_proxy_count(&p->posted) + messages, memory_order_release);
}

// So many messages of the proxy's operations are over.
static void sums_count(tt_proxy_sums *s, uint32_t messages)
{
  tt_proxy *p = s->proxy;
  s->counted += messages;
  atomic_store_explicit(&p->finished, tt_proxy_count(&p->finished) + messages, memory_order_release);
}

void tt_proxy_sums_drop(tt_proxy_sums *s)
{
  sums_count(s, atomic_load_explicit(&s->posted, memory_order_acquire) - s->counted);
}

void tt_proxy_sums_close(tt_proxy_sums *s)
{
  if (s != NULL) {
    tt_proxy_run_hold(s->proxy);
    tt_proxy_sums_drop(s);
    s->proxy->sums = NULL;
    tt_proxy_run_release(s->proxy);
    destroy(s);
  }
}

// The message's type and operation are in its fingerprint (tt_sig_make).
static tt_collnet_sum sums_find(const tt_proxy_sums *s, const tt_slot *from, tt_slot *to)
{
  int type = (int)(from->sig >> 4 & 15), op = (int)(from->sig >> 8 & 15);
  return (tt_collnet_sum){.in = (const char *)from + s->send.at,
                          .out = (char *)to + s->recv.at,
                          .count = from->bytes / tt_type_size(type),
                          .type = type,
                          .op = tt_collnet_op(op),
                          .in_mr = s->send.mhandle,
                          .out_mr = s->recv.mhandle};
}

// Gives the network what the executor has sent, as far as there is room for the results.
static ncclResult_t sums_post(tt_proxy_sums *s)
{
  while (s->given - s->done < TT_COLLNET_REQUESTS) {
    const tt_slot *from = tt_proxy_slot(&s->send, s->given);
    uint32_t used = atomic_load_explicit(s->recv.head, memory_order_acquire);
    if (atomic_load_explicit(&from->seq, memory_order_acquire) != s->given + 1 || s->given - used > s->recv.mask) {
      return ncclSuccess;
    }
    sum *m = &s->sums[s->given % TT_COLLNET_REQUESTS];
    *m = (sum){.what = sums_find(s, from, tt_proxy_slot(&s->recv, s->given))};
    if (m->what.count > 0) {
      TT_TRY(tt_collnet_begin(s->comm, &m->what, &m->request));
      if (m->request == NULL) {
        return ncclSuccess;
      }
    }
    s->given++;
  }
  return ncclSuccess;
}

// Publishes the result of the oldest message, and gives its slot back.
static void sums_publish(tt_proxy_sums *s)
{
  const tt_slot *from = tt_proxy_slot(&s->send, s->done);
  tt_slot *to = tt_proxy_slot(&s->recv, s->done);
  to->bytes = from->bytes;
  to->sig = from->sig;
  to->count = from->count;
  s->done++;
  atomic_store_explicit(&to->seq, s->done, memory_order_release);
  atomic_store_explicit(s->send.head, s->done, memory_order_release);
  sums_count(s, 1);
}

static ncclResult_t sums_take(tt_proxy_sums *s, bool *moved)
{
  while (s->done != s->given) {
    const sum *m = &s->sums[s->done % TT_COLLNET_REQUESTS];
    bool done = m->request == NULL;
    if (!done) {
      TT_TRY(tt_collnet_test(s->comm, m->request, &m->what, &done));
    }
    if (!done) {
      return ncclSuccess;
    }
    sums_publish(s);
    *moved = true;
  }
  return ncclSuccess;
}

bool tt_proxy_sums_round(tt_proxy_sums *s)
{
  bool moved = false;
  if (s->failed) {
    return false;
  }
  ncclResult_t res = sums_post(s);
  res = res == ncclSuccess ? sums_take(s, &moved) : res;
  if (res == ncclSuccess && moved) {
    res = sums_post(s);
  }
  if (res != ncclSuccess) {
    s->failed = true;
    tt_port_stop(s->proxy->port, res);
  }
  if (moved) {
    tt_bell_fence();
    tt_page_ring(s->proxy->port->page, s->peer);
  }
  return moved;
}

tt_rank_page *tt_proxy_page(tt_proxy *p, int rank)
{
  tt_proxy_peer *peer = tt_proxy_peer_get(p, rank);
  return peer != NULL ? &peer->page : NULL;
}
