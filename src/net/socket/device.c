// device.c: an interface as a device: what sysfs says about it, and how many sockets and threads its connections get. See socket_priv.h.
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "base/param.h"
#include "net/socket/socket_priv.h"

enum { UNKNOWN_SPEED = 10000 };

// The first word of a file below root/name; "" when there is none.
static void read_word(const char *root, const char *name, const char *file, char word[32])
{
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "%s/%s/%s", root, name, file);
  FILE *f = fopen(path, "re");
  word[0] = '\0';
  if (f != NULL) {
    if (fscanf(f, "%31s", word) != 1) {
      word[0] = '\0';
    }
    fclose(f);
  }
}

static char *device_path(const char *root, const char *name)
{
  char path[PATH_MAX], real[PATH_MAX];
  snprintf(path, sizeof(path), "%s/%s/device", root, name);
  return realpath(path, real) != NULL ? tt_strdup(real) : NULL;
}

void tt_snet_dev_sockets(int64_t want_threads, int64_t want_per_thread, const char *vendor, int *nthreads, int *nsocks)
{
  // Amazon's adapters bound what one flow carries; Google's like several threads.
  bool aws = vendor != NULL && strcmp(vendor, "0x1d0f") == 0, google = vendor != NULL && strcmp(vendor, "0x1ae0") == 0;
  int64_t threads = want_threads != -2 ? want_threads : aws ? 2 : google ? 4 : 0;
  int64_t each = want_per_thread != -2 ? want_per_thread : aws ? 8 : 1;
  if (threads < 0 || threads > TT_SNET_THREADS) {
    tt_advise("NCCL_SOCKET_NTHREADS=%lld is not in 0 … %d", (long long)threads, TT_SNET_THREADS);
    threads = TT_CLAMP(threads, 0, TT_SNET_THREADS);
  }
  if (each < 0 || threads * TT_MIN(each, TT_SNET_SOCKS) > TT_SNET_SOCKS || each > TT_SNET_SOCKS) {
    int64_t most = threads > 0 ? TT_SNET_SOCKS / threads : TT_SNET_SOCKS;
    tt_advise("NCCL_NSOCKS_PERTHREAD=%lld is not in 0 … %lld (at most %d sockets in all)", (long long)each, (long long)most, TT_SNET_SOCKS);
    each = TT_CLAMP(each, 0, most);
  }
  *nsocks = (int)(threads * each);
  *nthreads = *nsocks > 0 ? (int)threads : 0;
}

void tt_snet_dev_open(tt_snet_dev *dev, const char *root, const char *name)
{
  const tt_params *p = tt_params_get();
  char word[32];
  memset(dev, 0, sizeof(*dev));
  snprintf(dev->name, sizeof(dev->name), "%s", name);
  dev->index = if_nametoindex(dev->name);
  dev->pci_path = device_path(root, dev->name);
  read_word(root, dev->name, "speed", word);
  long speed = strtol(word, NULL, 10);
  dev->speed = speed > 0 && speed <= INT_MAX ? (int)speed : UNKNOWN_SPEED;
  read_word(root, dev->name, "device/vendor", word);
  tt_snet_dev_sockets(p->socket_nthreads, p->nsocks_perthread, word, &dev->nthreads, &dev->nsocks);
}

void tt_snet_dev_close(tt_snet_dev *dev)
{
  tt_free(dev->pci_path);
  dev->pci_path = NULL;
}
