// helper.c: threads that move pieces over data sockets. See socket_priv.h for how they sleep.
#include <stdio.h>

#include "base/log.h"
#include "base/result.h"
#include "net/socket/socket_priv.h"
#include "os/events.h"

// Moves what can be moved on all sockets of the thread, until nothing does. False: the connection has failed.
static bool move_pieces(tt_snet_helper *h)
{
  tt_snet_conn *c = h->conn;
  bool moved = true;
  while (moved && __atomic_load_n(&h->stop, __ATOMIC_RELAXED) == 0) {
    moved = false;
    for (int i = h->index; i < c->data.nsocks; i += c->data.nthreads) {
      int e = tt_snet_sock_drive(c, &c->data.socks[i], &moved);
      if (e != 0) {
        uint32_t none = 0;
        __atomic_compare_exchange_n(&c->data.error, &none, (uint32_t)-e, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
        tt_ring(c->net->base.ring);
        return false;
      }
    }
  }
  return true;
}

// Sleeps until a socket can go on or there is new work; `seen` is the work before the last look.
static void sleep_on_sockets(tt_snet_helper *h, uint32_t seen)
{
  const tt_snet_conn *c = h->conn;
  struct pollfd fds[1 + TT_RDV_SOCKS] = {{.fd = h->ring, .events = POLLIN}};
  size_t n = 1;
  for (int i = h->index; i < c->data.nsocks; i += c->data.nthreads) {
    if (tt_snet_sock_busy(&c->data.socks[i])) {
      fds[n++] = (struct pollfd){.fd = c->data.socks[i].fd, .events = c->send ? POLLOUT : POLLIN};
    }
  }
  __atomic_store_n(&h->asleep, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&h->work, __ATOMIC_SEQ_CST) == seen) {
    tt_sock_poll(fds, n, &(tt_until){.deadline_ns = 0});
  }
  __atomic_store_n(&h->asleep, 0, __ATOMIC_RELAXED);
  if (fds[0].revents != 0) {
    tt_ring_clear(h->ring);
  }
}

static void *helper_main(void *arg)
{
  tt_snet_helper *h = arg;
  while (__atomic_load_n(&h->stop, __ATOMIC_ACQUIRE) == 0) {
    uint32_t seen = __atomic_load_n(&h->work, __ATOMIC_SEQ_CST);
    if (!move_pieces(h)) {
      break;
    }
    sleep_on_sockets(h, seen);
  }
  return NULL;
}

static void wake_helper(tt_snet_helper *h)
{
  __atomic_add_fetch(&h->work, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&h->asleep, __ATOMIC_SEQ_CST) != 0) {
    tt_ring(h->ring);
  }
}

static bool start_helper(tt_snet_conn *c, int i)
{
  tt_snet_helper *h = &c->data.helpers[i];
  char name[16];
  h->conn = c;
  h->index = i;
  snprintf(name, sizeof(name), "tt-%s-%u.%u", c->send ? "send" : "recv", (unsigned)c->peer % 1000, (unsigned)i % 100);
  return tt_ring_open(&h->ring) == 0 && tt_thread_start(&h->thread, name, helper_main, h) == ncclSuccess;
}

void tt_snet_helpers_start(tt_snet_conn *c)
{
  c->data.helped = true;
  for (int i = 0; i < c->data.nthreads; i++) {
    if (start_helper(c, i)) {
      continue;
    }
    tt_snet_helpers_stop(c);
    c->data.helped = false;
    tt_snet_conn_unhelped(c);
    tt_warn("rank %d: connection to rank %d goes on without helper threads", c->net->base.env.rank, c->peer);
    return;
  }
}

void tt_snet_helpers_stop(tt_snet_conn *c)
{
  for (int i = 0; i < c->data.nthreads; i++) {
    tt_snet_helper *h = &c->data.helpers[i];
    __atomic_store_n(&h->stop, 1, __ATOMIC_RELEASE);
    if (h->ring >= 0) {
      tt_ring(h->ring);
    }
  }
  for (int i = 0; i < c->data.nthreads; i++) {
    tt_thread_join(&c->data.helpers[i].thread);
    tt_sock_close(&c->data.helpers[i].ring);
  }
}

bool tt_snet_helpers_rest(const tt_snet_conn *c)
{
  bool rest = true;
  for (int i = 0; c->data.helped && i < c->data.nthreads; i++) {
    rest &= __atomic_load_n(&c->data.helpers[i].asleep, __ATOMIC_SEQ_CST) != 0;
  }
  return rest;
}

void tt_snet_helpers_wake(tt_snet_conn *c)
{
  for (int i = 0; i < c->data.nthreads; i++) {
    wake_helper(&c->data.helpers[i]);
  }
}
