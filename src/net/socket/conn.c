// conn.c: one connection of the socket network: its life, its requests, its failure. See socket_priv.h.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "net/socket/socket_priv.h"

// Joins the list, the set of events, and the connection that shares the control socket, if it is still there. 0, or
// -errno: nothing.
static int link_conn(tt_snet_conn *c)
{
  tt_snet *net = c->net;
  pthread_mutex_lock(&net->base.lock);
  int e = tt_snet_conn_join(c);
  if (e != 0) {
    pthread_mutex_unlock(&net->base.lock);
    return e;
  }
  for (tt_snet_conn *o = net->conns; c->share.paired && o != NULL; o = o->next) {
    if (o->share.wire == c->share.wire && o->peer == c->peer && o->send != c->send) {
      c->share.twin = o;
      o->share.twin = c;
    }
  }
  c->next = net->conns;
  __atomic_store_n(&net->conns, c, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&net->base.lock);
  return 0;
}

// True when no other connection uses the control socket any more.
static bool unlink_conn(tt_snet_conn *c)
{
  pthread_mutex_lock(&c->net->base.lock);
  TT_RDV_UNLINK(&c->net->conns, c);
  tt_snet_conn_leave(c);
  bool alone = c->share.twin == NULL;
  if (!alone) {
    c->share.twin->share.twin = NULL;
  }
  pthread_mutex_unlock(&c->net->base.lock);
  return alone;
}

uint32_t tt_snet_conn_share(tt_snet *net, int peer, bool send, uint32_t wire, int *fd)
{
  uint32_t found = 0;
  pthread_mutex_lock(&net->base.lock);
  for (tt_snet_conn *c = net->conns; c != NULL && found == 0; c = c->next) {
    bool fits = c->send == send && c->peer == peer && !c->share.paired && (wire == 0 || c->share.wire == wire);
    if (fits && tt_sock_copy(c->fd, fd) == 0) {
      c->share.paired = true;
      found = c->share.wire;
    }
  }
  pthread_mutex_unlock(&net->base.lock);
  return found;
}

static void free_conn(tt_snet_conn *c)
{
  if (c != NULL) {
    tt_free(c->ahead.bytes);
    tt_free(c->data.helpers);
    tt_free(c->data.socks);
    tt_free(c);
  }
}

static tt_snet_conn *new_conn(tt_snet *net, const tt_rdv_ends *ends)
{
  tt_snet_conn *c = tt_calloc_line(sizeof(*c));
  if (c == NULL) {
    return NULL;
  }
  *c = (tt_snet_conn){
      .net = net, .send = ends->send, .peer = ends->peer, .dev = ends->dev, .at = ends->at, .fd = ends->fds[0]};
  c->share = (tt_snet_share){.wire = ends->wire, .paired = ends->twin != 0};
  tt_snet_data *d = &c->data;
  d->nsocks = ends->nsocks;
  d->nthreads = TT_MIN(net->base.devs[ends->dev].nthreads, ends->nsocks);
  d->socks = tt_calloc((size_t)TT_MAX(d->nsocks, 1), sizeof(d->socks[0]));
  d->helpers = tt_calloc((size_t)TT_MAX(d->nthreads, 1), sizeof(d->helpers[0]));
  c->ahead.bytes = ends->send ? NULL : tt_calloc_line(TT_SNET_AHEAD);
  if (d->socks == NULL || d->helpers == NULL || (c->ahead.bytes == NULL && !ends->send)) {
    free_conn(c);
    return NULL;
  }
  for (int i = 0; i < d->nsocks; i++) {
    d->socks[i].fd = ends->fds[1 + i];
  }
  for (int i = 0; i < d->nthreads; i++) {
    d->helpers[i].ring = -1;
  }
  return c;
}

ncclResult_t tt_snet_conn_create(tt_snet *net, const tt_rdv_ends *ends, tt_snet_conn **out)
{
  char at[TT_ADDR_TEXT];
  tt_snet_conn *c = new_conn(net, ends);
  int e = c == NULL ? -ENOMEM : link_conn(c);
  if (e != 0) {
    free_conn(c);
    return tt_fail(ncclSystemError, "rank %d: connection to rank %d at %s over %s: %s", net->base.env.rank, ends->peer,
                   tt_addr_text(&ends->at, at), net->base.devs[ends->dev].name, strerror(-e));
  }
  tt_sock_patience(c->fd, net->base.timeout_s);
  for (int i = 0; i < c->data.nsocks; i++) {
    tt_sock_patience(c->data.socks[i].fd, net->base.timeout_s);
  }
  tt_info(TT_NET, "socket: rank %d %s rank %d at %s over %s%s; %d data sockets, %d threads", net->base.env.rank,
          c->send ? "sends to" : "receives from", c->peer, tt_addr_text(&c->at, at), net->base.devs[c->dev].name,
          c->share.paired ? ", by the socket of the other direction" : "", c->data.nsocks, c->data.nthreads);
  *out = c;
  return ncclSuccess;
}

// What was sent still arrives; a peer that sends sees its connection end, unless the socket is needed the other way.
// Also when a forked child has copies of the descriptors.
static void end_socket(const tt_snet_conn *c, int *fd, bool alone)
{
  if (c->send) {
    tt_sock_finish(*fd);
  } else if (alone) {
    tt_sock_kill(*fd);
  }
  tt_sock_close(fd);
}

void tt_snet_conn_destroy(tt_snet_conn *c)
{
  if (c == NULL) {
    return;
  }
  bool alone = unlink_conn(c);
  tt_snet_helpers_stop(c);
  end_socket(c, &c->fd, alone);
  for (int i = 0; i < c->data.nsocks; i++) {
    end_socket(c, &c->data.socks[i].fd, true);
  }
  free_conn(c);
}

void tt_snet_conn_forget(tt_snet_conn *c)
{
  tt_sock_close(&c->fd);
  for (int i = 0; i < c->data.nsocks; i++) {
    tt_sock_close(&c->data.socks[i].fd);
  }
  for (int i = 0; i < c->data.nthreads; i++) {
    tt_sock_close(&c->data.helpers[i].ring);
  }
}

static const char *describe_error(const tt_snet_conn *c, int e, char *buf, size_t room)
{
  switch (e) {
  case -ECONNRESET:
  case -EPIPE: return "the peer has closed it, or died";
  case -ETIMEDOUT:
    snprintf(buf, room, "the peer's machine has not answered for %u s (NCCL_NET_TIMEOUT)", c->net->base.timeout_s);
    return buf;
  default: return strerror(-e);
  }
}

static bool is_local_error(int e)
{
  return e == -ENOMEM || e == -ENOBUFS || e == -EBADF || e == -EINVAL || e == -EFAULT || e == -EMFILE;
}

ncclResult_t tt_snet_conn_fail(tt_snet_conn *c, int e, const char *why)
{
  char at[TT_ADDR_TEXT], buf[96];
  if (c->failed == ncclSuccess) {
    c->failed = why == NULL && is_local_error(e) ? ncclSystemError : ncclRemoteError;
    snprintf(c->why, sizeof(c->why), "rank %d: connection to rank %d at %s over %s: %s", c->net->base.env.rank, c->peer,
             tt_addr_text(&c->at, at), c->net->base.devs[c->dev].name,
             why != NULL ? why : describe_error(c, e, buf, sizeof(buf)));
    return tt_fail(c->failed, "%s", c->why);
  }
  return tt_snet_conn_failed(c);
}

ncclResult_t tt_snet_conn_failed(const tt_snet_conn *c)
{
  tt_last_error_set(c->why);
  return c->failed;
}

ncclResult_t tt_snet_req_begin(tt_snet_conn *c, const tt_net_part parts[2], tt_snet_req **out)
{
  tt_snet_req *r = tt_snet_req_of(c, c->posted);
  *out = NULL;
  if (TT_UNLIKELY(c->failed != ncclSuccess)) {
    return tt_snet_conn_failed(c);
  }
  if (r->conn != NULL) {
    return ncclSuccess;
  }
  *r = (tt_snet_req){
      .conn = c, .number = c->posted, .data = parts[0].data, .rest = parts[1].data, .split = parts[0].size};
  r->spare = parts[0].spare;
  r->room = parts[0].size + parts[1].size;
  *out = r;
  return ncclSuccess;
}
