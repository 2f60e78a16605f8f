// net.c: two ranks without memory in common: FIFOs in this process's memory, moved by the proxy.
#include "base/log.h"
#include "base/result.h"
#include "os/shm.h"
#include "transport/transport.h"

// What a link keeps: one window per direction, in one mapping whose pages exist once they are touched.
typedef struct windows {
  char *base;
  size_t size;
} windows;

static bool can_connect(const tt_wiring *w, const tt_peer *me, const tt_peer *peer)
{
  return w->proxy != NULL && tt_transport_needs_net(me, peer);
}

static void disconnect(tt_link *link)
{
  windows *own = link->own;
  if (own != NULL) {
    tt_shm_unmap(own->base, own->size);
    tt_free(own);
  }
}

static ncclResult_t connect(const tt_wiring *w, tt_link *link)
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
  TT_TRY_GOTO(tt_proxy_connect(w->proxy, link), res);
  return ncclSuccess;
fail:
  disconnect(link);
  return res;
}

const tt_transport tt_transport_net = {.name = "NET", .can_connect = can_connect, .connect = connect, .disconnect = disconnect};
