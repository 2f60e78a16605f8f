// device.c: the devices of a context, and the functions of net.h that describe them. See rendezvous.h.
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "net/rendezvous/rendezvous.h"
#include "os/events.h"
#include "os/folder.h"

void tt_rdv_init(tt_rdv *net, const tt_net_env *env)
{
  net->env = *env;
  net->timeout_s = tt_net_patience();
  net->events = net->ring = -1;
  pthread_mutex_init(&net->lock, NULL);
}

ncclResult_t tt_rdv_open_events(tt_rdv *net)
{
  int e = tt_events_open(&net->events);
  e = e == 0 ? tt_ring_open(&net->ring) : e;
  e = e == 0 ? tt_events_add(net->events, net->ring, true) : e;
  return e == 0 ? ncclSuccess
                : tt_fail(ncclSystemError, "rank %d: no descriptors for network %s: %s (see ulimit -n)", net->env.rank,
                          net->network, strerror(-e));
}

void tt_rdv_fini(tt_rdv *net)
{
  for (int i = 0; i < net->ndevs; i++) {
    tt_rdv_dev_close(&net->devs[i]);
  }
  tt_sock_close(&net->ring);
  tt_sock_close(&net->events);
  pthread_mutex_destroy(&net->lock);
}

void tt_rdv_log_devices(const tt_rdv *net, const char *what)
{
  char text[TT_RDV_DEVS * 48] = "", at[TT_ADDR_TEXT];
  for (int i = 0; i < net->ndevs; i++) {
    tt_list_add(text, sizeof(text), "%s %s", net->devs[i].name, tt_addr_ip_text(&net->devs[i].addrs.a[0], at));
  }
  tt_info(TT_INIT | TT_NET, "%s: rank %d uses %s%s", net->network, net->env.rank, text, what);
}

// The first word of a file below root/name; "" when there is none.
static void read_word(const char *root, const char *name, const char *file, char word[32])
{
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "%s/%s/%s", root, name, file);
  tt_file_text(path, word, 32);
  word[strcspn(word, " \n")] = '\0';
}

void tt_rdv_dev_sockets(int64_t want_threads, int64_t want_per_thread, const char *vendor, int *nthreads, int *nsocks)
{
  // Amazon's adapters bound what one flow carries; Google's like several threads.
  bool aws = vendor != NULL && strcmp(vendor, "0x1d0f") == 0, google = vendor != NULL && strcmp(vendor, "0x1ae0") == 0;
  int64_t threads = want_threads != -2 ? want_threads : aws ? 2 : google ? 4 : 0;
  int64_t each = want_per_thread != -2 ? want_per_thread : aws ? 8 : 1;
  if (threads < 0 || threads > TT_RDV_THREADS) {
    tt_advise("NCCL_SOCKET_NTHREADS=%lld is not in 0 … %d", (long long)threads, TT_RDV_THREADS);
    threads = TT_CLAMP(threads, 0, TT_RDV_THREADS);
  }
  if (each < 0 || threads * TT_MIN(each, TT_RDV_SOCKS) > TT_RDV_SOCKS || each > TT_RDV_SOCKS) {
    int64_t most = threads > 0 ? TT_RDV_SOCKS / threads : TT_RDV_SOCKS;
    tt_advise("NCCL_NSOCKS_PERTHREAD=%lld is not in 0 … %lld (at most %d sockets in all)", (long long)each,
              (long long)most, TT_RDV_SOCKS);
    each = TT_CLAMP(each, 0, most);
  }
  *nsocks = (int)(threads * each);
  *nthreads = *nsocks > 0 ? (int)threads : 0;
}

void tt_rdv_dev_open(tt_rdv_dev *dev, const char *root, const char *name)
{
  const tt_params *p = tt_params_get();
  char word[32], path[PATH_MAX];
  memset(dev, 0, sizeof(*dev));
  snprintf(dev->name, sizeof(dev->name), "%s", name);
  dev->index = if_nametoindex(dev->name);
  snprintf(path, sizeof(path), "%s/%s/device", root, dev->name);
  dev->pci_path = tt_rdv_real_path(path);
  read_word(root, dev->name, "speed", word);
  long speed = strtol(word, NULL, 10);
  dev->speed = speed > 0 && speed <= INT_MAX ? (int)speed : TT_RDV_UNKNOWN_SPEED;
  read_word(root, dev->name, "device/vendor", word);
  tt_rdv_dev_sockets(p->socket_nthreads, p->nsocks_perthread, word, &dev->nthreads, &dev->nsocks);
}

void tt_rdv_dev_close(tt_rdv_dev *dev)
{
  tt_free(dev->pci_path);
  dev->pci_path = NULL;
}

char *tt_rdv_real_path(const char *path)
{
  char real[PATH_MAX];
  return realpath(path, real) != NULL ? tt_strdup(real) : NULL;
}

ncclResult_t tt_rdv_check_device(const tt_rdv *net, int dev)
{
  return dev >= 0 && dev < net->ndevs ? ncclSuccess
                                      : tt_fail(ncclInvalidUsage, "rank %d: network %s has no device %d, only 0 … %d",
                                                net->env.rank, net->network, dev, net->ndevs - 1);
}

ncclResult_t tt_rdv_devices(void *ctx, int *count)
{
  *count = ((tt_rdv *)ctx)->ndevs;
  return ncclSuccess;
}

ncclResult_t tt_rdv_properties(void *ctx, int dev, tt_net_props *props)
{
  const tt_rdv *net = ctx;
  TT_TRY(tt_rdv_check_device(net, dev));
  *props = (tt_net_props){.name = net->devs[dev].name,
                          .pci_path = net->devs[dev].pci_path,
                          .guid = (uint64_t)dev,
                          .ptr_support = TT_NET_PTR_HOST,
                          .speed = net->devs[dev].speed,
                          .max_comms = 65536,
                          .max_recvs = 1,
                          .rail = -1,
                          .plane = -1};
  return ncclSuccess;
}

int tt_rdv_events_fd(void *ctx)
{
  return ((tt_rdv *)ctx)->events;
}
