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
  tt_rdv_end_all(&net->base);
  for (int i = 0; i < net->base.ndevs; i++) {
    tt_ofi_dev *dev = &net->devs[i];
    while (dev->conns != NULL) {
      tt_ofi_close_conn(dev->conns);
    }
    tt_ofi_dev_close(dev);
    pthread_mutex_destroy(&dev->lock);
  }
  if (net->infos != NULL) {
    net->lib.freeinfo(net->infos);
  }
  tt_rdv_fini(&net->base);
  tt_free(net);
  return ncclSuccess;
}

static void log_provider(const tt_ofi *net)
{
  char text[128];
  snprintf(text, sizeof text, " by %s (libfabric %u.%u)", net->devs[0].info->fabric_attr->prov_name,
           FI_MAJOR(net->lib.version()), FI_MINOR(net->lib.version()));
  tt_rdv_log_devices(&net->base, text);
}

// Opens the first device, to learn whether the provider has descriptors to sleep on.
static ncclResult_t open_first(tt_ofi *net)
{
  TT_TRY(tt_rdv_open_events(&net->base));
  pthread_mutex_lock(&net->devs[0].lock);
  ncclResult_t res = tt_ofi_dev_open(net, &net->devs[0]);
  pthread_mutex_unlock(&net->devs[0].lock);
  if (net->devs[0].wait_fd < 0) {
    tt_sock_close(&net->base.events);
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
  net->base = (tt_rdv){.network = "OFI", .magic = TT_OFI_MAGIC};
  tt_rdv_init(&net->base, env);
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
  log_provider(net);
  *ctx = net;
  return ncclSuccess;
}

// libfabric has no function for this, and closing its objects here would take its locks and end the parent's
// connections. But what it sleeps on leads to its sockets. Without a descriptor to sleep on (and at a device that was
// not opened) there is nothing to find.
static void ofi_forget(void *ctx)
{
  tt_ofi *net = ctx;
  if (net->base.events >= 0) {
    tt_events_close_watched(net->base.events); // the ring, the devices' queues, and what is below them
    net->base.events = -1;
  }
  tt_rdv_forget(&net->base); // the ring is closed already, unless there is no /proc
}

const tt_net_ops tt_net_ofi = {
    .name = "OFI",
    .init = ofi_init,
    .devices = tt_rdv_devices,
    .get_properties = tt_rdv_properties,
    .listen = tt_rdv_listen,
    .connect = tt_ofi_connect,
    .cancel = tt_rdv_cancel,
    .accept = tt_ofi_accept,
    .reg_mr = tt_ofi_reg_mr,
    .dereg_mr = tt_ofi_dereg_mr,
    .isend = tt_ofi_isend,
    .irecv = tt_ofi_irecv,
    .test = tt_ofi_test,
    .close_send = tt_ofi_close_conn,
    .close_recv = tt_ofi_close_conn,
    .close_listen = tt_rdv_close_listen,
    .finalize = ofi_finalize,
    .events_fd = tt_rdv_events_fd,
    .forget = ofi_forget,
};
