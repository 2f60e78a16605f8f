// net.c: two ranks without memory in common: FIFOs in this process's memory, moved by the proxy.
#include "base/log.h"
#include "base/result.h"
#include "os/shm.h"
#include "transport/transport.h"

// What a link keeps: one window per direction, in one mapping whose pages exist once they are touched. Where a
// neighbour's proxy sends, the window for that is apart, in memory which the neighbour maps too.
typedef struct windows {
  char *base, *shared;
  size_t size, shared_size;
} windows;

static bool net_can_connect(const tt_wiring *w, const tt_endpoint *me, const tt_endpoint *peer)
{
  return w->proxy != NULL && tt_transport_needs_net(me, peer);
}

void *tt_net_messages(const tt_link *link, bool send, size_t *size)
{
  const size_t first = 4096; // heads, tokens and the first slots
  const windows *own = link->own;
  if (own->shared != NULL) {
    return NULL;
  }
  *size = own->size / 2 - first;
  return own->base + (send ? 0 : own->size / 2) + first;
}

static void net_disconnect(tt_link *link)
{
  windows *own = link->own;
  if (own != NULL) {
    tt_shm_unmap(own->base, own->size);
    tt_shm_unmap(own->shared, own->shared_size);
    tt_free(own);
  }
}

// The sending window in shared memory, for the proxy of the neighbour `via`.
static ncclResult_t net_connect_shared(const tt_wiring *w, tt_link *link, int via)
{
  windows *own = link->own;
  tt_proxy_share share = {.via = via, .fd = -1};
  own->shared_size = share.size = TT_PROXY_SHARE_HEAD + TT_ROUND_UP(tt_net_window_bytes(&w->geometry), 4096);
  TT_TRY(tt_shm_create("tutti-relay", share.size, &share.fd));
  ncclResult_t res = tt_shm_map(share.fd, share.size, (void **)&own->shared);
  if (res != ncclSuccess) {
    tt_fd_close(share.fd);
    return res;
  }
  share.base = own->shared;
  tt_net_window_view(&w->geometry, own->shared + TT_PROXY_SHARE_HEAD, link->send);
  link->staged = true;
  return tt_proxy_connect_shared(w->proxy, link, &share);
}

// A device whose streams work on the FIFOs has to know where they lie.
static ncclResult_t net_pin(const tt_wiring *w, tt_link *link)
{
  const windows *own = link->own;
  const size_t one = own->size / 2;
  char *out = own->shared != NULL ? own->shared + TT_PROXY_SHARE_HEAD : own->base;
  const tt_link_env env = {.windows = {out, own->base + one}, .window_bytes = one};
  return w->port->row->pins ? w->port->row->connect(w->port, link, &env) : ncclSuccess;
}

static ncclResult_t net_connect(const tt_wiring *w, tt_link *link)
{
  size_t one = TT_ROUND_UP(tt_net_window_bytes(&w->geometry), 4096);
  windows *own = tt_calloc(1, sizeof *own);
  ncclResult_t res = ncclSuccess;
  if (own == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the connection to rank %d", w->rank, link->peer);
  }
  link->own = own;
  own->size = 2 * one;
  TT_TRY_GOTO(tt_shm_map(-1, own->size, (void **)&own->base), res);
  tt_net_window_view(&w->geometry, own->base, link->send);
  tt_net_window_view(&w->geometry, own->base + one, link->recv);
  link->access = TT_ACCESS_NONE;
  link->networked = true;
  int via = tt_proxy_relay_of(w->proxy, link->peer);
  if (via < 0) {
    TT_TRY_GOTO(tt_proxy_connect(w->proxy, link), res);
  } else {
    TT_TRY_GOTO(net_connect_shared(w, link, via), res);
  }
  TT_TRY_GOTO(net_pin(w, link), res);
  return ncclSuccess;
fail:
  net_disconnect(link);
  return res;
}

const tt_transport tt_transport_net = {
    .name = "NET", .can_connect = net_can_connect, .connect = net_connect, .disconnect = net_disconnect};
