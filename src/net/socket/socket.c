// socket.c: the socket network's context and its row of net.h. See socket_priv.h.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "net/socket/socket_priv.h"
#include "os/events.h"

#define SYSFS_NET "/sys/class/net"

// "eth0 10.0.0.1, eth1 10.1.0.1", for the log.
static void log_devices(const tt_snet *net)
{
  char text[TT_SNET_DEVS * 48] = "", at[TT_ADDR_TEXT];
  size_t used = 0;
  for (int i = 0; i < net->ndevs && used < sizeof(text); i++) {
    used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s", i > 0 ? ", " : "", net->devs[i].name,
                             tt_addr_ip_text(&net->devs[i].addrs.a[0], at));
  }
  tt_info(TT_INIT | TT_NET, "socket: rank %d uses %s", net->env.rank, text);
}

static ncclResult_t find_devices(tt_snet *net)
{
  tt_netif found[TT_SNET_DEVS], *all = NULL;
  int n = 0, count = 0;
  TT_TRY(tt_netif_find(found, TT_SNET_DEVS, &n));
  TT_TRY(tt_netif_reach(&all, &count));
  for (int i = 0; i < n; i++) {
    tt_snet_dev_open(&net->devs[i], SYSFS_NET, found[i].name);
    tt_netif_pick(all, count, found[i].name, &net->devs[i].addrs);
  }
  tt_free(all);
  net->ndevs = n;
  log_devices(net);
  return ncclSuccess;
}

static void read_params(tt_snet *net)
{
  const tt_params *p = tt_params_get();
  net->timeout_s = tt_net_patience();
  net->min_piece = (size_t)TT_CLAMP(p->socket_min_tasksize, 1, 1 << 30);
  net->inline_max = p->socket_inline >= 0 ? (size_t)p->socket_inline : net->min_piece;
}

// The set of events, with the helper threads' ring in it.
static int open_events(tt_snet *net)
{
  int e = tt_events_open(&net->events);
  e = e == 0 ? tt_ring_open(&net->ring) : e;
  return e == 0 ? tt_events_add(net->events, net->ring, true) : e;
}

static ncclResult_t socket_finalize(void *ctx)
{
  tt_snet *net = ctx;
  if (net == NULL) {
    return ncclSuccess;
  }
  while (net->calls != NULL) {
    tt_snet_call_destroy(net->calls);
  }
  while (net->conns != NULL) {
    tt_snet_conn_destroy(net->conns);
  }
  while (net->listeners != NULL) {
    tt_snet_close_listen(net->listeners);
  }
  for (int i = 0; i < net->ndevs; i++) {
    tt_snet_dev_close(&net->devs[i]);
  }
  tt_sock_close(&net->ring);
  tt_sock_close(&net->events);
  pthread_mutex_destroy(&net->lock);
  tt_free(net);
  return ncclSuccess;
}

static ncclResult_t socket_init(const tt_net_env *env, void **ctx)
{
  tt_snet *net = tt_calloc(1, sizeof(*net));
  if (net == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the socket network", env->rank);
  }
  net->env = *env;
  net->events = net->ring = -1;
  net->watched = true;
  pthread_mutex_init(&net->lock, NULL);
  read_params(net);
  ncclResult_t res = find_devices(net);
  int e = res == ncclSuccess ? open_events(net) : 0;
  if (e != 0) {
    res = tt_fail(ncclSystemError, "rank %d: no descriptors for the socket network: %s (see ulimit -n)", env->rank, strerror(-e));
  }
  if (res != ncclSuccess) {
    socket_finalize(net);
    return res;
  }
  *ctx = net;
  return ncclSuccess;
}

static ncclResult_t socket_devices(void *ctx, int *count)
{
  *count = ((tt_snet *)ctx)->ndevs;
  return ncclSuccess;
}

static ncclResult_t socket_properties(void *ctx, int dev, tt_net_props *props)
{
  const tt_snet *net = ctx;
  if (dev < 0 || dev >= net->ndevs) {
    return tt_fail(ncclInvalidUsage, "rank %d: the socket network has no device %d, only 0 … %d", net->env.rank, dev, net->ndevs - 1);
  }
  const tt_snet_dev *d = &net->devs[dev];
  *props = (tt_net_props){.name = d->name,
                          .pci_path = d->pci_path,
                          .guid = (uint64_t)dev,
                          .ptr_support = TT_NET_PTR_HOST,
                          .reg_is_global = true,
                          .speed = d->speed,
                          .max_comms = 65536,
                          .max_recvs = 1,
                          .rail = -1,
                          .plane = -1};
  return ncclSuccess;
}

static ncclResult_t socket_close(void *comm)
{
  tt_snet_conn_destroy(comm);
  return ncclSuccess;
}

static int socket_events_fd(void *ctx)
{
  return ((tt_snet *)ctx)->events;
}

// Without the lock: it may be held by a thread that the child does not have; the lists are sound at any instant.
static void socket_forget(void *ctx)
{
  tt_snet *net = ctx;
  for (tt_snet_conn *c = net->conns; c != NULL; c = c->next) {
    tt_snet_conn_forget(c);
  }
  tt_snet_listeners_forget(net);
  tt_snet_calls_forget(net);
  tt_sock_close(&net->ring);
  tt_sock_close(&net->events);
}

const tt_net_ops tt_net_socket = {.name = "Socket",
                                  .init = socket_init,
                                  .devices = socket_devices,
                                  .get_properties = socket_properties,
                                  .listen = tt_snet_listen,
                                  .connect = tt_snet_connect,
                                  .cancel = tt_snet_cancel,
                                  .accept = tt_snet_accept,
                                  .isend = tt_snet_isend,
                                  .irecv = tt_snet_irecv,
                                  .has_parts = tt_snet_has_parts,
                                  .isend_parts = tt_snet_isend_parts,
                                  .irecv_parts = tt_snet_irecv_parts,
                                  .test = tt_snet_test,
                                  .close_send = socket_close,
                                  .close_recv = socket_close,
                                  .close_listen = tt_snet_close_listen,
                                  .finalize = socket_finalize,
                                  .events_fd = socket_events_fd,
                                  .watch_events = tt_snet_watch_events,
                                  .forget = socket_forget};
