// device.c: libfabric itself, its devices, and the endpoint of each. See ofi_priv.h.
#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "net/ofi/ofi_priv.h"
#include "os/events.h"
#include "os/netif.h"

enum {
  API = FI_VERSION(1, 9), // the interface that this code asks for
  BATCH = 16,
  CQ_SIZE = 4096,
};

// ---- The library

bool tt_ofi_open_library(tt_ofi_lib *lib, char *why)
{
  tt_library *so = NULL;
  tt_library_state state = tt_library_open("libfabric.so.1", &so, why);
  if (state != TT_LIBRARY_OPEN) {
    return false;
  }
  const struct {
    void **at;
    const char *name;
  } wanted[] = {
      {(void **)&lib->getinfo, "fi_getinfo"},   {(void **)&lib->freeinfo, "fi_freeinfo"},
      {(void **)&lib->dupinfo, "fi_dupinfo"},   {(void **)&lib->fabric, "fi_fabric"},
      {(void **)&lib->strerror, "fi_strerror"}, {(void **)&lib->version, "fi_version"},
  };
  for (size_t i = 0; i < TT_COUNT(wanted); i++) {
    *wanted[i].at = tt_library_symbol(so, wanted[i].name);
    if (*wanted[i].at == NULL) {
      snprintf(why, TT_LIBRARY_WHY, "libfabric.so.1 has no %s", wanted[i].name);
      tt_library_close(so);
      return false;
    }
  }
  if (FI_VERSION_LT(lib->version(), API)) {
    snprintf(why, TT_LIBRARY_WHY, "libfabric is of version %u.%u, %d.%d is needed", FI_MAJOR(lib->version()),
             FI_MINOR(lib->version()), FI_MAJOR(API), FI_MINOR(API));
    tt_library_close(so);
    return false;
  }
  return true; // and it stays: providers have threads of their own that outlive their objects
}

// ---- Which devices

// Providers in the order in which they are taken where none is named; others only by name.
static const char *const preferred[] = {"efa", "cxi", "psm3", "psm2", "verbs", "tcp"};

// "tcp;ofi_rxm" is "tcp", utility providers aside.
static bool is_provider(const struct fi_info *info, const char *name)
{
  const char *has = info->fabric_attr->prov_name;
  size_t n = strlen(name);
  return has != NULL && strncmp(has, name, n) == 0 && (has[n] == '\0' || has[n] == ';');
}

static struct fi_info *make_hints(const tt_ofi_lib *lib, const char *provider)
{
  struct fi_info *hints = lib->dupinfo(NULL);
  if (hints == NULL) {
    return NULL;
  }
  hints->caps = FI_TAGGED | FI_SEND | FI_RECV;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  hints->domain_attr->threading = FI_THREAD_DOMAIN; // a device's lock is held in every call
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  hints->fabric_attr->prov_name = provider != NULL ? strdup(provider) : NULL; // freed with the hints
  return hints;
}

// Is a device with an IP address one of the interfaces that may be used? Other devices are always allowed.
static bool is_allowed(const struct fi_info *info, const tt_netif *netifs, int n)
{
  tt_addr a;
  bool ip =
      info->addr_format == FI_SOCKADDR || info->addr_format == FI_SOCKADDR_IN || info->addr_format == FI_SOCKADDR_IN6;
  if (!ip || info->src_addr == NULL) {
    return true;
  }
  tt_addr_of_kernel(info->src_addr, &a);
  for (int i = 0; i < n; i++) {
    a.scope = netifs[i].addr.scope; // not compared
    if (tt_addr_same_ip(&a, &netifs[i].addr)) {
      return true;
    }
  }
  return false;
}

static bool is_domain_usable(const struct fi_info *info)
{
  return info->domain_attr != NULL && info->domain_attr->name != NULL &&
         (info->ep_attr->mem_tag_format == 0 || info->ep_attr->mem_tag_format >> 47 != 0);
}

static bool is_domain_taken(const tt_ofi *net, const struct fi_info *info)
{
  for (int i = 0; i < net->base.ndevs; i++) {
    if (strcmp(net->devs[i].name, info->domain_attr->name) == 0) {
      return true;
    }
  }
  return false;
}

static void describe_device(tt_rdv_dev *dev, const struct fi_info *info)
{
  const struct fid_nic *nic = info->nic;
  const char *name = info->domain_attr->name;
  char path[PATH_MAX] = "";
  if (nic != NULL && nic->bus_attr != NULL && nic->bus_attr->bus_type == FI_BUS_PCI) {
    const struct fi_pci_attr *pci = &nic->bus_attr->attr.pci;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%04x:%02x:%02x.%x", pci->domain_id, pci->bus_id, pci->device_id,
             pci->function_id);
  } else if (strchr(name, '/') == NULL) {
    snprintf(path, sizeof path, "/sys/class/net/%s/device", name);
  }
  size_t bits = nic != NULL && nic->link_attr != NULL ? nic->link_attr->speed : 0;
  snprintf(dev->name, sizeof dev->name, "%s", name);
  dev->pci_path = tt_rdv_real_path(path);
  dev->speed = bits >= 1000000 ? (int)TT_MIN(bits / 1000000, (size_t)INT_MAX) : TT_RDV_UNKNOWN_SPEED;
}

static void take_devices(tt_ofi *net, const char *provider, const tt_netif *netifs, int n)
{
  for (struct fi_info *i = net->infos; i != NULL && net->base.ndevs < TT_RDV_DEVS; i = i->next) {
    if (!is_provider(i, provider) || !is_domain_usable(i) || !is_allowed(i, netifs, n) || is_domain_taken(net, i)) {
      continue;
    }
    tt_ofi_dev *dev = &net->devs[net->base.ndevs];
    *dev = (tt_ofi_dev){.info = i, .name = i->domain_attr->name, .wait_fd = -1};
    pthread_mutex_init(&dev->lock, NULL);
    describe_device(&net->base.devs[net->base.ndevs++], i);
  }
}

// Where a rank listens for connections of each device: at all addresses of its machine.
static ncclResult_t set_addresses(tt_rdv *net, const char *first)
{
  tt_netif *all = NULL;
  int n = 0;
  TT_TRY(tt_netif_reach(&all, &n));
  for (int i = 0; i < net->ndevs; i++) {
    net->devs[i].index = if_nametoindex(first);
    tt_netif_pick(all, n, first, &net->devs[i].addrs);
  }
  tt_free(all);
  return ncclSuccess;
}

// "verbs;ofi_rxm tcp;ofi_rxm", each once, for messages.
static void describe_providers(const struct fi_info *infos, char *text, size_t room)
{
  size_t used = 0;
  text[0] = '\0';
  for (const struct fi_info *i = infos; i != NULL && used < room; i = i->next) {
    if (i->fabric_attr->prov_name != NULL && strstr(text, i->fabric_attr->prov_name) == NULL) {
      used += (size_t)snprintf(text + used, room - used, "%s%s", used > 0 ? " " : "", i->fabric_attr->prov_name);
    }
  }
}

static ncclResult_t fail_devices(const tt_ofi *net, const char *provider)
{
  char text[512];
  describe_providers(net->infos, text, sizeof text);
  return tt_fail(ncclSystemError,
                 "rank %d: libfabric has no device for %s%s here (providers with reliable, tagged messages: %s; "
                 "NCCL_SOCKET_IFNAME selects interfaces)",
                 net->base.env.rank,
                 provider != NULL ? "NCCL_OFI_PROVIDER=" : "any of efa, cxi, psm3, psm2, verbs, tcp",
                 provider != NULL ? provider : "", text[0] != '\0' ? text : "none");
}

ncclResult_t tt_ofi_find_devices(tt_ofi *net)
{
  const char *provider = tt_params_get()->ofi_provider;
  tt_netif netifs[TT_RDV_DEVS];
  int n = 0;
  TT_TRY(tt_netif_find(netifs, TT_RDV_DEVS, &n));
  struct fi_info *hints = make_hints(&net->lib, provider);
  if (hints == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for libfabric", net->base.env.rank);
  }
  int e = net->lib.getinfo(API, NULL, NULL, 0, hints, &net->infos);
  net->lib.freeinfo(hints);
  if (e != 0 && e != -FI_ENODATA) {
    return tt_fail(ncclSystemError, "rank %d: libfabric cannot list its devices: %s", net->base.env.rank,
                   net->lib.strerror(-e));
  }
  if (provider != NULL) {
    take_devices(net, provider, netifs, n);
  }
  for (size_t i = 0; provider == NULL && net->base.ndevs == 0 && i < TT_COUNT(preferred); i++) {
    take_devices(net, preferred[i], netifs, n);
  }
  return net->base.ndevs > 0 ? set_addresses(&net->base, netifs[0].name) : fail_devices(net, provider);
}

// ---- An endpoint

static ncclResult_t fail_open(const tt_ofi *net, tt_ofi_dev *dev, const char *what, int e)
{
  snprintf(dev->why, sizeof dev->why, "rank %d: libfabric cannot open %s (%s): %s: %s", net->base.env.rank, dev->name,
           dev->info->fabric_attr->prov_name, what, net->lib.strerror(-e));
  return tt_fail(ncclSystemError, "%s", dev->why);
}

// The queue with a descriptor to sleep on, or without where the provider has none.
static int open_queue(tt_ofi_dev *dev)
{
  struct fi_cq_attr attr = {.size = CQ_SIZE, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
  if (fi_cq_open(dev->domain, &attr, &dev->cq, NULL) == 0) {
    if (fi_control(&dev->cq->fid, FI_GETWAIT, &dev->wait_fd) == 0) {
      return 0;
    }
    fi_close(&dev->cq->fid);
    dev->wait_fd = -1;
  }
  attr.wait_obj = FI_WAIT_NONE;
  return fi_cq_open(dev->domain, &attr, &dev->cq, NULL);
}

static int open_endpoint(tt_ofi_dev *dev)
{
  int e = fi_endpoint(dev->domain, dev->info, &dev->ep, NULL);
  e = e == 0 ? fi_ep_bind(dev->ep, &dev->av->fid, 0) : e;
  e = e == 0 ? fi_ep_bind(dev->ep, &dev->cq->fid, FI_TRANSMIT | FI_RECV) : e;
  e = e == 0 ? fi_enable(dev->ep) : e;
  dev->addr_size = sizeof dev->addr;
  return e == 0 ? fi_getname(&dev->ep->fid, dev->addr, &dev->addr_size) : e;
}

static ncclResult_t open_device(tt_ofi *net, tt_ofi_dev *dev)
{
  struct fi_av_attr av = {.type = dev->info->domain_attr->av_type};
  const char *what = "no fabric";
  int e = net->lib.fabric(dev->info->fabric_attr, &dev->fabric, NULL);
  if (e == 0) {
    what = "no domain";
    e = fi_domain(dev->fabric, dev->info, &dev->domain, NULL);
  }
  if (e == 0) {
    what = "no table of addresses";
    e = fi_av_open(dev->domain, &av, &dev->av, NULL);
  }
  if (e == 0) {
    what = "no completion queue";
    e = open_queue(dev);
  }
  if (e == 0) {
    what = "no endpoint";
    e = open_endpoint(dev);
  }
  if (e == 0 && dev->wait_fd >= 0 && net->base.events >= 0) {
    what = "its events cannot be watched";
    e = tt_events_add(net->base.events, dev->wait_fd, true);
  }
  dev->local_mr = (dev->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
  return e == 0 ? ncclSuccess : fail_open(net, dev, what, e);
}

ncclResult_t tt_ofi_dev_open(tt_ofi *net, tt_ofi_dev *dev)
{
  if (dev->tried) {
    return dev->ep != NULL ? ncclSuccess : tt_fail(ncclSystemError, "%s", dev->why);
  }
  dev->tried = true;
  ncclResult_t res = open_device(net, dev);
  if (res != ncclSuccess) {
    tt_ofi_dev_close(dev);
  }
  return res;
}

static void close_fid(struct fid *fid)
{
  if (fid != NULL) {
    fi_close(fid);
  }
}

void tt_ofi_dev_give_up(tt_ofi_dev *dev, const char *why)
{
  if (dev->ep != NULL) {
    snprintf(dev->why, sizeof dev->why, "%s", why);
    close_fid(&dev->ep->fid);
    dev->ep = NULL;
  }
}

void tt_ofi_dev_close(tt_ofi_dev *dev)
{
  close_fid(dev->ep != NULL ? &dev->ep->fid : NULL);
  close_fid(dev->cq != NULL ? &dev->cq->fid : NULL);
  close_fid(dev->av != NULL ? &dev->av->fid : NULL);
  close_fid(dev->domain != NULL ? &dev->domain->fid : NULL);
  close_fid(dev->fabric != NULL ? &dev->fabric->fid : NULL);
  dev->ep = NULL;
  dev->cq = NULL;
  dev->av = NULL;
  dev->domain = NULL;
  dev->fabric = NULL;
}

// ---- Completions

// Returns whether the set of events must be rung: the request is not the one that the caller tests.
static bool complete_request(tt_ofi_req *req, int error, size_t size, const tt_ofi_req *asked)
{
  if (req == NULL || req->state != TT_OFI_BUSY) {
    return false;
  }
  req->state = TT_OFI_DONE;
  req->error = error;
  req->size = size;
  return req != asked;
}

// Negative: there is no error (-FI_EAGAIN), or the queue itself has failed; else as complete.
static int take_error(tt_ofi_dev *dev, const tt_ofi_req *asked)
{
  struct fi_cq_err_entry err = {0};
  ssize_t n = fi_cq_readerr(dev->cq, &err, 0);
  if (n <= 0) {
    return n == 0 ? -FI_EAGAIN : (int)n;
  }
  return complete_request(err.op_context, err.err, 0, asked);
}

// One batch. *others: the set of events must be rung. False: there is no more.
static bool take_batch(const tt_ofi *net, tt_ofi_dev *dev, const tt_ofi_req *asked, bool *others)
{
  struct fi_cq_tagged_entry entries[BATCH];
  ssize_t n = fi_cq_read(dev->cq, entries, BATCH);
  for (ssize_t i = 0; i < n; i++) {
    *others |= complete_request(entries[i].op_context, 0, entries[i].len, asked);
  }
  if (n == -FI_EAGAIN || n == 0) {
    return false;
  }
  int error = n == -FI_EAVAIL ? take_error(dev, asked) : n < 0 ? (int)n : 0;
  if (error == -FI_EAGAIN) {
    return false;
  }
  if (error < 0) {
    char why[TT_OFI_WHY];
    snprintf(why, sizeof why, "rank %d: the completion queue of %s has failed: %s", net->base.env.rank, dev->name,
             net->lib.strerror(-error));
    tt_ofi_dev_give_up(dev, why);
    *others = true;
    return false;
  }
  *others |= error > 0;
  return true;
}

void tt_ofi_progress(const tt_ofi *net, tt_ofi_dev *dev, const tt_ofi_req *asked)
{
  bool others = false;
  while (dev->ep != NULL && take_batch(net, dev, asked, &others)) {
  }
  if (others && net->base.events >= 0) {
    tt_ring(net->base.ring);
  }
}

void tt_ofi_before_sleep(const tt_ofi *net, tt_ofi_dev *dev, const tt_ofi_req *asked)
{
  enum { LOOKS = 4 }; // then the next test goes on
  for (int i = 0; i < LOOKS && dev->ep != NULL && dev->wait_fd >= 0; i++) {
    struct fid *fids[] = {&dev->cq->fid};
    if (fi_trywait(dev->fabric, fids, 1) == FI_SUCCESS) {
      return;
    }
    tt_ofi_progress(net, dev, asked);
  }
}
