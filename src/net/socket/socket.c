// socket.c: the socket network's context and its row of net.h. See socket_priv.h.
#include "base/param.h"
#include "base/result.h"
#include "net/socket/socket_priv.h"

#define SYSFS_NET "/sys/class/net"

static ncclResult_t find_interfaces(tt_rdv *net)
{
  tt_netif found[TT_RDV_DEVS], *all = NULL;
  int n = 0, count = 0;
  TT_TRY(tt_netif_find(found, TT_RDV_DEVS, &n));
  TT_TRY(tt_netif_reach(&all, &count));
  for (int i = 0; i < n; i++) {
    tt_rdv_dev_open(&net->devs[i], SYSFS_NET, found[i].name);
    tt_netif_pick(all, count, found[i].name, &net->devs[i].addrs);
  }
  tt_free(all);
  net->ndevs = n;
  tt_rdv_log_devices(net, "");
  return ncclSuccess;
}

static void read_params(tt_snet *net)
{
  const tt_params *p = tt_params_get();
  net->min_piece = (size_t)TT_CLAMP(p->socket_min_tasksize, 1, 1 << 30);
  net->inline_max = p->socket_inline >= 0 ? (size_t)p->socket_inline : net->min_piece;
}

static ncclResult_t socket_finalize(void *ctx)
{
  tt_snet *net = ctx;
  if (net == NULL) {
    return ncclSuccess;
  }
  while (net->conns != NULL) {
    tt_snet_conn_destroy(net->conns);
  }
  tt_rdv_end_all(&net->base);
  tt_rdv_fini(&net->base);
  tt_free(net);
  return ncclSuccess;
}

static ncclResult_t socket_init(const tt_net_env *env, void **ctx)
{
  tt_snet *net = tt_calloc(1, sizeof(*net));
  if (net == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the socket network", env->rank);
  }
  net->base = (tt_rdv){.network = "socket", .magic = TT_SNET_HANDLE_MAGIC};
  tt_rdv_init(&net->base, env);
  net->watched = true;
  read_params(net);
  ncclResult_t res = find_interfaces(&net->base);
  res = res == ncclSuccess ? tt_rdv_open_events(&net->base) : res;
  if (res != ncclSuccess) {
    socket_finalize(net);
    return res;
  }
  *ctx = net;
  return ncclSuccess;
}

// The oldest request that the caller has not seen done; NULL: none is under way.
static const tt_snet_req *oldest_request(const tt_snet_conn *c)
{
  for (uint32_t i = c->posted - TT_SNET_RING; i != c->posted; i++) {
    const tt_snet_req *r = &c->reqs[i % TT_SNET_RING];
    if (r->conn != NULL) {
      return r;
    }
  }
  return NULL;
}

// Requests are done in order, so it is enough that the oldest one stands: the control socket if that has not all of its
// frame and payload, else the data sockets. Helper threads may have ended it meanwhile: that is looked at last.
static bool socket_stands(void *comm)
{
  const tt_snet_conn *c = comm;
  const tt_snet_req *r = oldest_request(c);
  if (c->failed != ncclSuccess || r == NULL) {
    return false;
  }
  bool framed = (int32_t)(c->front - r->number) > 0;
  return framed ? tt_snet_stripe_stands(c) && !tt_snet_req_done(r) : tt_sock_stands(c->fd);
}

static ncclResult_t socket_close(void *comm)
{
  tt_snet_conn_destroy(comm);
  return ncclSuccess;
}

// Without the lock: it may be held by a thread that the child does not have; the lists are sound at any instant.
static void socket_forget(void *ctx)
{
  tt_snet *net = ctx;
  for (tt_snet_conn *c = net->conns; c != NULL; c = c->next) {
    tt_snet_conn_forget(c);
  }
  tt_rdv_forget(&net->base);
}

const tt_net_ops tt_net_socket = {.name = "Socket",
                                  .encrypts = true,
                                  .init = socket_init,
                                  .devices = tt_rdv_devices,
                                  .get_properties = tt_rdv_properties,
                                  .listen = tt_rdv_listen,
                                  .connect = tt_snet_connect,
                                  .cancel = tt_rdv_cancel,
                                  .accept = tt_snet_accept,
                                  .isend = tt_snet_isend,
                                  .irecv = tt_snet_irecv,
                                  .has_parts = tt_snet_has_parts,
                                  .isend_parts = tt_snet_isend_parts,
                                  .irecv_parts = tt_snet_irecv_parts,
                                  .test = tt_snet_test,
                                  .stands = socket_stands,
                                  .close_send = socket_close,
                                  .close_recv = socket_close,
                                  .close_listen = tt_rdv_close_listen,
                                  .finalize = socket_finalize,
                                  .events_fd = tt_rdv_events_fd,
                                  .watch_events = tt_snet_watch_events,
                                  .forget = socket_forget};
