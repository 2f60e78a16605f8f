// ofi.c: the context of the network OFI and its row of net.h. See ofi_priv.h.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "base/util.h"
#include "net/ofi/ofi_priv.h"
#include "os/events.h"
#include "os/socket.h"

static ncclResult_t ofi_finalize(void *ctx)
{
  tt_ofi *net = ctx;
  if (net == NULL) {
    return ncclSuccess;
  }
  tt_ofi_calls_destroy(net);
  for (int i = 0; i < net->ndevs; i++) {
    tt_ofi_dev *dev = &net->devs[i];
    while (dev->conns != NULL) {
      tt_ofi_close_conn(dev->conns);
    }
    tt_ofi_dev_close(dev);
    tt_free(dev->pci_path);
    pthread_mutex_destroy(&dev->lock);
  }
  if (net->infos != NULL) {
    net->lib.freeinfo(net->infos);
  }
  tt_sock_close(&net->ring);
  tt_sock_close(&net->events);
  tt_free(net);
  return ncclSuccess;
}

static void log_devices(const tt_ofi *net)
{
  char text[512] = "";
  size_t used = 0;
  for (int i = 0; i < net->ndevs && used < sizeof text; i++) {
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "", net->devs[i].name);
  }
  tt_info(TT_INIT | TT_NET, "OFI: rank %d uses %s: %s (libfabric %u.%u)", net->env.rank, net->devs[0].info->fabric_attr->prov_name, text,
          FI_MAJOR(net->lib.version()), FI_MINOR(net->lib.version()));
}

// Opens the first device, to learn whether the provider has descriptors to sleep on.
static ncclResult_t open_first(tt_ofi *net)
{
  int e = tt_events_open(&net->events);
  e = e == 0 ? tt_ring_open(&net->ring) : e;
  e = e == 0 ? tt_events_add(net->events, net->ring, true) : e;
  if (e != 0) {
    return tt_fail(ncclSystemError, "rank %d: no descriptors for the network OFI: %s (see ulimit -n)", net->env.rank, strerror(-e));
  }
  pthread_mutex_lock(&net->devs[0].lock);
  ncclResult_t res = tt_ofi_dev_open(net, &net->devs[0]);
  pthread_mutex_unlock(&net->devs[0].lock);
  if (net->devs[0].wait_fd < 0) {
    tt_sock_close(&net->events);
  }
  return res;
}

static ncclResult_t ofi_init(const tt_net_env *env, void **ctx)
{
  char why[TT_LIBRARY_WHY];
  tt_ofi *net = tt_calloc(1, sizeof *net);
  if (net == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the network OFI", env->rank);
  }
  net->env = *env;
  net->events = net->ring = -1;
  ncclResult_t res = ncclSuccess;
  if (!tt_ofi_open_library(&net->lib, why)) {
    res = tt_fail(ncclSystemError, "rank %d: the network OFI needs libfabric: %s", env->rank,
                  why[0] != '\0' ? why : "libfabric.so.1 is not here");
  }
  res = res == ncclSuccess ? tt_ofi_find_devices(net) : res;
  res = res == ncclSuccess ? open_first(net) : res;
  if (res != ncclSuccess) {
    ofi_finalize(net);
    return res;
  }
  log_devices(net);
  *ctx = net;
  return ncclSuccess;
}

static ncclResult_t ofi_devices(void *ctx, int *count)
{
  *count = ((tt_ofi *)ctx)->ndevs;
  return ncclSuccess;
}

static ncclResult_t ofi_properties(void *ctx, int dev, tt_net_props *props)
{
  const tt_ofi *net = ctx;
  if (dev < 0 || dev >= net->ndevs) {
    return tt_fail(ncclInvalidUsage, "rank %d: the network OFI has no device %d, only 0 … %d", net->env.rank, dev, net->ndevs - 1);
  }
  const tt_ofi_dev *d = &net->devs[dev];
  *props = (tt_net_props){.name = d->name,
                          .pci_path = d->pci_path,
                          .guid = (uint64_t)dev,
                          .ptr_support = TT_NET_PTR_HOST,
                          .speed = d->speed,
                          .max_comms = 65536,
                          .max_recvs = 1,
                          .rail = -1,
                          .plane = -1};
  return ncclSuccess;
}

static int ofi_events_fd(void *ctx)
{
  return ((tt_ofi *)ctx)->events;
}

// libfabric has no word for this, and closing its objects here would take its locks and end the parent's connections. But what it sleeps on
// leads to its sockets. Without a descriptor to sleep on (and at a device that was not opened) there is nothing to find.
static void ofi_forget(void *ctx)
{
  tt_ofi *net = ctx;
  if (net->events >= 0) {
    tt_events_close_watched(net->events); // the ring, the devices' queues, and what is below them
    net->events = -1;
  }
  tt_sock_close(&net->ring); // closed already, unless there is no /proc
}

const tt_net_ops tt_net_ofi = {
    .name = "OFI",
    .init = ofi_init,
    .devices = ofi_devices,
    .get_properties = ofi_properties,
    .listen = tt_ofi_listen,
    .connect = tt_ofi_connect,
    .cancel = tt_ofi_cancel,
    .accept = tt_ofi_accept,
    .reg_mr = tt_ofi_reg_mr,
    .dereg_mr = tt_ofi_dereg_mr,
    .isend = tt_ofi_isend,
    .irecv = tt_ofi_irecv,
    .test = tt_ofi_test,
    .close_send = tt_ofi_close_conn,
    .close_recv = tt_ofi_close_conn,
    .close_listen = tt_ofi_close_listen,
    .finalize = ofi_finalize,
    .events_fd = ofi_events_fd,
    .forget = ofi_forget,
};
