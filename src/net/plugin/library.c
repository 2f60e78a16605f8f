// library.c: network plugins that are open in this process. See plugin_priv.h.
//
// One list, because plugins before version 11 are initialised once per process, and because all communicators that ask for the same library share what is
// known of its devices. Everything here that calls a plugin does so under the list's lock, so a plugin's init, devices and finalize run one at a time, as
// plugin authors know it. A forked child has no list: it opens what it needs anew.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "base/util.h"
#include "nccl/net.h"
#include "net/plugin/plugin_priv.h"
#include "os/proc.h"

enum { SPEED_UNKNOWN = 10000, MOST_COMMS = 65536 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t hook_once = PTHREAD_ONCE_INIT;
static tt_pnet_library *libraries;

static void in_child(void)
{
  pthread_mutex_init(&lock, NULL);
  libraries = NULL;
}

static void hook(void)
{
  tt_proc_on_fork(in_child);
}

const tt_pnet_version *tt_pnet_version_of(int version)
{
  static const tt_pnet_version *const all[] = {&tt_pnet_v6,  &tt_pnet_v7,  &tt_pnet_v8, &tt_pnet_v9,
                                               &tt_pnet_v10, &tt_pnet_v11, &tt_pnet_v12};
  for (size_t i = 0; i < TT_COUNT(all); i++) {
    if (all[i]->version == version) {
      return all[i];
    }
  }
  return NULL;
}

ncclResult_t tt_pnet_code(ncclResult_t code)
{
  return code > ncclSuccess && code < ncclNumResults && code != ncclInProgress ? code : ncclInternalError;
}

// ---- its devices

static void free_device(tt_net_props *p)
{
  if (p != NULL) {
    tt_free((char *)(uintptr_t)p->name);
    tt_free((char *)(uintptr_t)p->pci_path);
    tt_free(p);
  }
}

static bool refuse(const tt_pnet_library *lib, const char *what, int dev, long long value)
{
  tt_info(TT_INIT | TT_NET, "NET/Plugin: %s (%s) is not used: %s (device %d: %lld)", lib->name, tt_plugin_path(lib->plugin), what, dev,
          value);
  return false;
}

// Can a device be used? What is absurd and can be done without is put right and told.
static bool check_device(const tt_pnet_library *lib, int dev, tt_net_props *p, int type)
{
  if (type != NCCL_NET_DEVICE_HOST) {
    return refuse(lib, "a device leaves work to a GPU, which there is not; its netDeviceType is not NCCL_NET_DEVICE_HOST", dev, type);
  }
  if ((p->ptr_support & TT_NET_PTR_HOST) == 0) {
    return refuse(lib, "a device does not take host memory; its ptrSupport lacks NCCL_PTR_HOST", dev, p->ptr_support);
  }
  if (p->max_recvs < 1 || p->max_comms < 1 || p->speed < 1) {
    tt_info(TT_INIT | TT_NET, "NET/Plugin: %s says of device %d: speed %d, maxComms %d, maxRecvs %d; what is less than 1 does not count",
            lib->name, dev, p->speed, p->max_comms, p->max_recvs);
  }
  p->max_recvs = TT_CLAMP(p->max_recvs, 1, TT_PNET_GROUP);
  p->max_comms = p->max_comms < 1 ? MOST_COMMS : p->max_comms;
  p->speed = p->speed < 1 ? SPEED_UNKNOWN : p->speed;
  p->max_bytes = p->max_bytes == 0 ? lib->v->max_bytes : TT_MIN(p->max_bytes, lib->v->max_bytes);
  return true;
}

// Its texts are copied: some plugins write each device's into the same place.
static bool add_device(tt_pnet_library *lib, int dev)
{
  tt_net_props seen;
  int type;
  ncclResult_t res = lib->v->properties(lib->table, dev, &seen, &type);
  if (res != ncclSuccess) {
    return refuse(lib, "getProperties fails; its code", dev, res);
  }
  if (!check_device(lib, dev, &seen, type)) {
    return false;
  }
  tt_net_props *p = tt_calloc(1, sizeof *p);
  if (p == NULL) {
    return refuse(lib, "no memory for its properties", dev, 0);
  }
  *p = seen;
  p->name = tt_strdup(seen.name != NULL ? seen.name : lib->name);
  p->pci_path = tt_strdup(seen.pci_path);
  if (p->name == NULL) {
    free_device(p);
    return refuse(lib, "no memory for its name", dev, 0);
  }
  lib->devs[dev] = p;
  return true;
}

static bool look_at_devices(tt_pnet_library *lib)
{
  int n = 0;
  ncclResult_t res = lib->v->devices(lib->table, &n);
  if (res != ncclSuccess || n < 1 || n > TT_PNET_DEVICES) {
    tt_info(TT_INIT | TT_NET, "NET/Plugin: %s (%s) is not used: devices gives %d with code %d; 1 to %d can be used", lib->name,
            tt_plugin_path(lib->plugin), n, (int)res, TT_PNET_DEVICES);
    return false;
  }
  bool good = true;
  for (int i = 0; i < n && good; i++) {
    good = add_device(lib, i);
  }
  if (!good) {
    for (int i = 0; i < n; i++) {
      free_device(lib->devs[i]);
      lib->devs[i] = NULL;
    }
    return false;
  }
  atomic_store_explicit(&lib->ndevs, n, memory_order_release);
  return true;
}

// ---- init and finalize

static bool init_locked(tt_pnet_library *lib, const tt_pnet_setup *s, void **ctx)
{
  *ctx = NULL;
  if (lib->v->own_context || lib->inits == 0) {
    ncclResult_t res = lib->v->init(lib->table, s, ctx);
    if (res != ncclSuccess) {
      tt_info(TT_INIT | TT_NET, "NET/Plugin: %s (%s) is not used: init fails with code %d (%s)", lib->name, tt_plugin_path(lib->plugin),
              (int)res, tt_result_string(tt_pnet_code(res)));
      return false;
    }
    lib->inits++;
  }
  if (lib->ndevs > 0 || look_at_devices(lib)) {
    return true;
  }
  if (lib->v->own_context) {
    lib->v->finalize(lib->table, *ctx);
    lib->inits--;
  }
  return false;
}

ncclResult_t tt_pnet_library_init(tt_pnet_library *lib, const tt_pnet_setup *s, void **ctx, bool *usable)
{
  pthread_mutex_lock(&lock);
  *usable = init_locked(lib, s, ctx);
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

ncclResult_t tt_pnet_library_finalize(tt_pnet_library *lib, void *ctx)
{
  ncclResult_t res = ncclSuccess;
  if (lib->v->own_context) {
    pthread_mutex_lock(&lock);
    res = lib->v->finalize(lib->table, ctx);
    lib->inits--;
    pthread_mutex_unlock(&lock);
  }
  return res;
}

static ncclResult_t merge_locked(tt_pnet_library *lib, const int *devs, int n, int *dev)
{
  int made = -1, old = lib->ndevs;
  ncclResult_t res = lib->v->make_virtual(lib->table, devs, n, &made);
  if (res != ncclSuccess) {
    return tt_fail(tt_pnet_code(res), "network plugin %s: makeVDevice of %d devices fails with code %d", lib->name, n, (int)res);
  }
  if (made != old || made >= TT_PNET_DEVICES || !add_device(lib, made)) {
    return tt_fail(ncclInvalidUsage, "network plugin %s: makeVDevice gives device %d; after %d devices it should be %d, and usable",
                   lib->name, made, old, old);
  }
  atomic_store_explicit(&lib->ndevs, old + 1, memory_order_release);
  *dev = made;
  return ncclSuccess;
}

ncclResult_t tt_pnet_library_merge(tt_pnet_library *lib, const int *devs, int n, int *dev)
{
  pthread_mutex_lock(&lock);
  ncclResult_t res = merge_locked(lib, devs, n, dev);
  pthread_mutex_unlock(&lock);
  return res;
}

// ---- the list

static bool same_wish(const char *a, const char *b)
{
  return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static tt_pnet_library *find(const char *wish)
{
  tt_pnet_library *lib = libraries;
  while (lib != NULL && !same_wish(lib->wish, wish)) {
    lib = lib->next;
  }
  return lib;
}

// What else is in it, and not used.
static void tell_others(const tt_plugin *plugin)
{
  static const struct {
    tt_plugin_kind kind;
    const char *what;
  } others[] = {{TT_PLUGIN_COLLNET, "collective network"}, {TT_PLUGIN_GIN, "GIN plugin"}, {TT_PLUGIN_RMA, "RMA plugin"}};
  for (size_t i = 0; i < TT_COUNT(others); i++) {
    int version = tt_plugin_offers(plugin, others[i].kind);
    if (version > 0) {
      tt_info(TT_INIT | TT_NET, "NET/Plugin: %s has a %s too, version %d: recognised, not used here", tt_plugin_path(plugin),
              others[i].what, version);
    }
  }
}

static void destroy(tt_pnet_library *lib)
{
  for (int i = 0; i < TT_PNET_DEVICES; i++) {
    free_device(lib->devs[i]);
  }
  tt_plugin_close(lib->plugin);
  tt_free(lib->wish);
  tt_free(lib);
}

// Takes the plugin.
static ncclResult_t make(const char *wish, tt_plugin *plugin, tt_pnet_library **out)
{
  const tt_pnet_version *v = tt_pnet_version_of(tt_plugin_version(plugin));
  if (!tt_plugin_complete(TT_PLUGIN_NET, plugin, v->needs, v->nneeds)) {
    tt_plugin_close(plugin);
    return ncclSuccess;
  }
  tt_pnet_library *lib = tt_calloc(1, sizeof *lib);
  char *copy = tt_strdup(wish);
  if (lib == NULL || (copy == NULL && wish != NULL)) {
    tt_free(lib);
    tt_free(copy);
    tt_plugin_close(plugin);
    return tt_fail(ncclSystemError, "no memory for the network plugin %s", wish != NULL ? wish : "libnccl-net.so");
  }
  *lib = (tt_pnet_library){.wish = copy, .plugin = plugin, .v = v, .table = tt_plugin_table(plugin)};
  snprintf(lib->name, sizeof lib->name, "%s", v->name(lib->table));
  tell_others(plugin);
  *out = lib;
  return ncclSuccess;
}

static ncclResult_t open_locked(const char *wish, tt_pnet_library **out)
{
  tt_pnet_library *lib = find(wish);
  if (lib == NULL) {
    tt_plugin *plugin = NULL;
    TT_TRY(tt_plugin_open(TT_PLUGIN_NET, wish, NULL, &plugin));
    if (plugin == NULL) {
      return ncclSuccess;
    }
    TT_TRY(make(wish, plugin, &lib));
    if (lib == NULL) {
      return ncclSuccess;
    }
    lib->next = libraries;
    libraries = lib;
  }
  lib->refs++;
  *out = lib;
  return ncclSuccess;
}

ncclResult_t tt_pnet_library_open(const char *wish, tt_pnet_library **out)
{
  *out = NULL;
  pthread_once(&hook_once, hook);
  pthread_mutex_lock(&lock);
  ncclResult_t res = open_locked(wish, out);
  pthread_mutex_unlock(&lock);
  return res;
}

static void unlink_library(const tt_pnet_library *lib)
{
  tt_pnet_library **at = &libraries;
  while (*at != NULL && *at != lib) {
    at = &(*at)->next;
  }
  if (*at != NULL) {
    *at = lib->next;
  }
}

void tt_pnet_library_close(tt_pnet_library *lib)
{
  pthread_mutex_lock(&lock);
  // One that was initialised and has no finalize stays: nothing says when its threads have ended (google-fastsocket's have not), and its init is not to be
  // called twice.
  bool stays = !lib->v->own_context && lib->inits > 0;
  if (--lib->refs == 0 && !stays) { // in a child it may be the parent's, which is in no list
    unlink_library(lib);
    destroy(lib);
  }
  pthread_mutex_unlock(&lock);
}
