// device.c: devices: how many, which one, what they are; peers and flags.
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hostcuda.h"
#include "properties.h"

// What a program has set on a device. A list, because few devices are ever touched. Under `lock`.
typedef struct settings {
  struct settings *next;
  int device;
  unsigned int flags;
  int *peers; // whose memory it may use
  int npeers;
} settings;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static settings *all;

static void take(void)
{
  pthread_mutex_lock(&lock);
}

static void give_back(void)
{
  pthread_mutex_unlock(&lock);
}

// A fork waits until the list is whole, and the child finds the lock free.
__attribute__((constructor)) static void at_start(void)
{
  pthread_atfork(take, give_back, give_back);
}

static int current(void)
{
  int device = 0;
  tuttiGetDevice(&device);
  return device;
}

// The settings of a device, made when first asked for; NULL without memory. Caller holds `lock`.
static settings *settings_of(int device)
{
  settings *s = all;
  while (s != NULL && s->device != device) {
    s = s->next;
  }
  if (s == NULL) {
    s = calloc(1, sizeof *s);
    if (s != NULL) {
      s->device = device;
      s->next = all;
      all = s;
    }
  }
  return s;
}

bool hc_is_device(int device)
{
  int count = 0;
  tuttiGetUsualDeviceCount(&count);
  return device >= 0 && device < count;
}

HC_API cudaGetDeviceCount(int *count)
{
  HC_ENTER();
  return hc_result(tuttiGetUsualDeviceCount(count), cudaErrorInvalidValue);
}

HC_API cudaSetDevice(int device)
{
  HC_ENTER();
  HC_REFUSE(!hc_is_device(device), cudaErrorInvalidDevice);
  return hc_result(tuttiSetDevice(device), cudaErrorInvalidDevice);
}

HC_API cudaGetDevice(int *device)
{
  HC_ENTER();
  return hc_result(tuttiGetDevice(device), cudaErrorInvalidValue);
}

HC_API cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(!hc_is_device(device), cudaErrorInvalidDevice);
  HC_REFUSE((flags & ~(unsigned)cudaInitDeviceFlagsAreValid) != 0 || (deviceFlags & ~(unsigned)cudaDeviceMask) != 0,
            cudaErrorInvalidValue);
  return cudaSuccess;
}

HC_API cudaSetDeviceFlags(unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE((flags & ~(unsigned)cudaDeviceMask) != 0, cudaErrorInvalidValue);
  pthread_mutex_lock(&lock);
  settings *s = settings_of(current());
  if (s != NULL) {
    s->flags = flags;
  }
  pthread_mutex_unlock(&lock);
  return s != NULL ? cudaSuccess : hc_error(cudaErrorMemoryAllocation);
}

HC_API cudaGetDeviceFlags(unsigned int *flags)
{
  HC_ENTER();
  HC_REFUSE(flags == NULL, cudaErrorInvalidValue);
  pthread_mutex_lock(&lock);
  const settings *s = settings_of(current());
  *flags = (s == NULL ? 0 : s->flags) | cudaDeviceMapHost;
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

HC_API cudaSetValidDevices(int *devices, int count)
{
  HC_ENTER();
  HC_REFUSE(devices == NULL && count > 0, cudaErrorInvalidValue);
  for (int i = 0; i < count; i++) {
    HC_REFUSE(!hc_is_device(devices[i]), cudaErrorInvalidDevice);
  }
  return cudaSuccess;
}

HC_API cudaChooseDevice(int *device, const struct cudaDeviceProp *wanted)
{
  HC_ENTER();
  HC_REFUSE(device == NULL || wanted == NULL, cudaErrorInvalidValue);
  *device = 0; // they are all the same
  return cudaSuccess;
}

HC_API cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
  HC_ENTER();
  HC_REFUSE(value == NULL, cudaErrorInvalidValue);
  HC_REFUSE(!hc_is_device(device), cudaErrorInvalidDevice);
  HC_REFUSE(!hc_attribute(attr, device, value), cudaErrorInvalidValue);
  return cudaSuccess;
}

HC_API cudaDeviceGetPCIBusId(char *busId, int size, int device)
{
  char text[16];
  HC_ENTER();
  HC_REFUSE(busId == NULL || size <= 0, cudaErrorInvalidValue);
  HC_REFUSE(!hc_is_device(device), cudaErrorInvalidDevice);
  int n = snprintf(text, sizeof text, "%04x:%02x:00.0", (unsigned)device >> 8 & 0xffff, (unsigned)device & 0xff);
  HC_REFUSE(n >= size, cudaErrorInvalidValue);
  memcpy(busId, text, (size_t)n + 1);
  return cudaSuccess;
}

HC_API cudaDeviceGetByPCIBusId(int *device, const char *busId)
{
  unsigned domain = 0, bus, slot, function = 0;
  HC_ENTER();
  HC_REFUSE(device == NULL || busId == NULL, cudaErrorInvalidValue);
  bool read = sscanf(busId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) >= 3;
  if (!read) {
    domain = 0;
    read = sscanf(busId, "%x:%x.%x", &bus, &slot, &function) >= 2;
  }
  HC_REFUSE(!read || domain > 0xffff || bus > 0xff || slot != 0 || function != 0, cudaErrorInvalidValue);
  HC_REFUSE(!hc_is_device((int)(domain << 8 | bus)), cudaErrorInvalidDevice);
  *device = (int)(domain << 8 | bus);
  return cudaSuccess;
}

HC_API cudaDeviceSynchronize(void)
{
  HC_ENTER();
  return hc_result(tuttiDeviceSynchronize(), cudaErrorInvalidValue);
}

HC_API cudaDeviceReset(void)
{
  HC_ENTER();
  tuttiDeviceAbandonValues(current()); // a wait for a value that nobody stores would keep the reset for ever
  tuttiDeviceWait(current());
  pthread_mutex_lock(&lock);
  settings *s = settings_of(current());
  if (s != NULL) {
    s->flags = 0;
    s->npeers = 0;
  }
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

HC_API cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
  HC_ENTER();
  if (least != NULL) {
    *least = 0;
  }
  if (greatest != NULL) {
    *greatest = 0;
  }
  return cudaSuccess;
}

HC_API cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
  HC_ENTER();
  HC_REFUSE(value == NULL, cudaErrorInvalidValue);
  (void)limit;
  return hc_error(cudaErrorUnsupportedLimit);
}

HC_API cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
  HC_ENTER();
  (void)limit, (void)value;
  return hc_error(cudaErrorUnsupportedLimit);
}

HC_API cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
  HC_ENTER();
  HC_REFUSE(config == NULL, cudaErrorInvalidValue);
  *config = cudaFuncCachePreferNone;
  return cudaSuccess;
}

HC_API cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
  HC_ENTER();
  (void)config; // a hint
  return cudaSuccess;
}

HC_API cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config)
{
  HC_ENTER();
  HC_REFUSE(config == NULL, cudaErrorInvalidValue);
  *config = cudaSharedMemBankSizeDefault;
  return cudaSuccess;
}

HC_API cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config)
{
  HC_ENTER();
  (void)config; // a hint
  return cudaSuccess;
}

HC_API cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
  HC_ENTER();
  HC_REFUSE(can == NULL, cudaErrorInvalidValue);
  HC_REFUSE(!hc_is_device(device) || !hc_is_device(peer), cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}

// Where `peer` stands in the list, or npeers. Caller holds `lock`.
static int find_peer(const settings *s, int peer)
{
  int i = 0;
  while (i < s->npeers && s->peers[i] != peer) {
    i++;
  }
  return i;
}

// Caller holds `lock`.
static cudaError_t enable(settings *s, int peer)
{
  if (s == NULL) {
    return cudaErrorMemoryAllocation;
  }
  if (find_peer(s, peer) < s->npeers) {
    return cudaErrorPeerAccessAlreadyEnabled;
  }
  int *more = realloc(s->peers, ((size_t)s->npeers + 1) * sizeof *more);
  if (more == NULL) {
    return cudaErrorMemoryAllocation;
  }
  s->peers = more;
  s->peers[s->npeers++] = peer;
  return cudaSuccess;
}

HC_API cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(flags != 0, cudaErrorInvalidValue);
  HC_REFUSE(!hc_is_device(peer) || peer == current(), cudaErrorInvalidDevice);
  pthread_mutex_lock(&lock);
  cudaError_t e = enable(settings_of(current()), peer);
  pthread_mutex_unlock(&lock);
  return hc_error(e);
}

HC_API cudaDeviceDisablePeerAccess(int peer)
{
  HC_ENTER();
  HC_REFUSE(!hc_is_device(peer), cudaErrorInvalidDevice);
  pthread_mutex_lock(&lock);
  settings *s = settings_of(current());
  int i = s == NULL ? 0 : find_peer(s, peer);
  bool found = s != NULL && i < s->npeers;
  if (found) {
    s->peers[i] = s->peers[--s->npeers];
  }
  pthread_mutex_unlock(&lock);
  return found ? cudaSuccess : hc_error(cudaErrorPeerAccessNotEnabled);
}

HC_API cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int source, int destination)
{
  HC_ENTER();
  HC_REFUSE(value == NULL || (int)attr < cudaDevP2PAttrPerformanceRank || attr > cudaDevP2PAttrCudaArrayAccessSupported,
            cudaErrorInvalidValue);
  HC_REFUSE(!hc_is_device(source) || !hc_is_device(destination) || source == destination, cudaErrorInvalidDevice);
  *value = attr == cudaDevP2PAttrAccessSupported || attr == cudaDevP2PAttrNativeAtomicSupported;
  return cudaSuccess;
}

// What the oldest programs call.
HC_API cudaThreadSynchronize(void);
HC_API cudaThreadSynchronize(void)
{
  return cudaDeviceSynchronize();
}

HC_API cudaThreadExit(void);
HC_API cudaThreadExit(void)
{
  return cudaDeviceReset();
}

HC_API cudaThreadGetCacheConfig(enum cudaFuncCache *config);
HC_API cudaThreadGetCacheConfig(enum cudaFuncCache *config)
{
  return cudaDeviceGetCacheConfig(config);
}

HC_API cudaDriverGetVersion(int *version)
{
  HC_REFUSE(version == NULL, cudaErrorInvalidValue);
  *version = 13000; // serves libcudart.so.13 too
  return cudaSuccess;
}
