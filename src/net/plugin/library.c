// library.c: network plugins that are open in this process. See plugin_priv.h.
//
// One list, because plugins before version 11 are initialised once per process, and because all communicators that ask
// for the same library share what is known of its devices. Everything here that calls a plugin does so under the list's
// lock, so a plugin's init, devices and finalize run one at a time, as plugin authors know it. A forked child has no
// list: it opens what it needs anew.
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

static void forget_libraries(void)
{
  pthread_mutex_init(&lock, NULL);
  libraries = NULL;
}

static void hook_fork(void)
{
  static tt_fork_hook hook = {.fn = forget_libraries};
  tt_proc_on_fork(&hook);
}

void tt_pnet_lock(void)
{
  pthread_once(&hook_once, hook_fork);
  pthread_mutex_lock(&lock);
}

void tt_pnet_unlock(void)
{
  pthread_mutex_unlock(&lock);
}

const tt_pnet_version *tt_pnet_version_of(int version)
{
  static const tt_pnet_version *const all[] = {&tt_pnet_v6,  &tt_pnet_v7,  &tt_pnet_v8, &tt_pnet_v9,
                                               &tt_pnet_v10, &tt_pnet_v11, &tt_pnet_v12};
  return version >= 6 && version < 6 + (int)TT_COUNT(all) ? all[version - 6] : NULL;
}

ncclResult_t tt_pnet_code(ncclResult_t code)
{
  return code > ncclSuccess && code < ncclNumResults && code != ncclInProgress ? code : ncclInternalError;
}

const char *tt_pnet_failure(char text[TT_PNET_FAILURE], const char *name, const tt_plugin *plugin, const char *function,
                            ncclResult_t code)
{
  snprintf(text, TT_PNET_FAILURE, "%s (%s, version %d): %s failed with code %d (%s)", name, tt_plugin_path(plugin),
           tt_plugin_version(plugin), function, (int)code, tt_result_string(tt_pnet_code(code)));
  return text;
}

void tt_pnet_mention(tt_plugin_kind kind, const char *name, const char *function, ncclResult_t code)
{
  if (code != ncclSuccess) {
    tt_info(TT_INIT | TT_NET, "%s/Plugin: %s: %s fails with code %d", tt_plugin_kind_info(kind)->title, name, function,
            (int)code);
  }
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

static bool refuse_device(const tt_pnet_library *lib, const char *what, int dev, long long value)
{
  tt_info(TT_INIT | TT_NET, "NET/Plugin: %s (%s) is not used: %s (device %d: %lld)", lib->name,
          tt_plugin_path(lib->plugin), what, dev, value);
  return false;
}

// Can a device be used? Absurd values that do not matter are corrected, and the log says so.
static bool is_device_good(const tt_pnet_library *lib, int dev, tt_net_props *p, int type)
{
  if (type != NCCL_NET_DEVICE_HOST) {
    return refuse_device(
        lib, "a device leaves work to a GPU, which there is not; its netDeviceType is not NCCL_NET_DEVICE_HOST", dev,
        type);
  }
  if ((p->ptr_support & TT_NET_PTR_HOST) == 0) {
    return refuse_device(lib, "a device does not take host memory; its ptrSupport lacks NCCL_PTR_HOST", dev,
                         p->ptr_support);
  }
  if (p->max_recvs < 1 || p->max_comms < 1 || p->speed < 1) {
    tt_info(TT_INIT | TT_NET,
            "NET/Plugin: %s says of device %d: speed %d, maxComms %d, maxRecvs %d; what is less than 1 does not count",
            lib->name, dev, p->speed, p->max_comms, p->max_recvs);
  }
  p->max_recvs = TT_CLAMP(p->max_recvs, 1, TT_PNET_GROUP);
  p->max_comms = p->max_comms < 1 ? MOST_COMMS : p->max_comms;
  p->speed = p->speed < 1 ? SPEED_UNKNOWN : p->speed;
  p->max_bytes = p->max_bytes == 0 ? lib->v->max_bytes : TT_MIN(p->max_bytes, lib->v->max_bytes);
  return true;
}

// The parts that the plugin names: physical devices that were seen before; otherwise the device counts as physical
// itself.
static void set_parts(const tt_pnet_library *lib, int dev, tt_net_props *p, const int *vdevs)
{
  for (int i = 0; i < p->nparts; i++) {
    if (vdevs[i] < 0 || vdevs[i] >= dev || lib->devs[vdevs[i]]->nparts > 0) {
      tt_info(TT_INIT | TT_NET, "NET/Plugin: %s says that device %d consists of device %d, which cannot be", lib->name,
              dev, vdevs[i]);
      p->nparts = 0;
      return;
    }
    p->parts[i] = lib->devs[vdevs[i]];
  }
}

// Its texts are copied: some plugins write each device's into the same place.
bool tt_pnet_add_device(tt_pnet_library *lib, int dev)
{
  tt_net_props seen;
  int type, vdevs[TT_NET_PARTS];
  ncclResult_t res = lib->v->properties(lib->table, dev, &seen, &type, vdevs);
  if (res != ncclSuccess) {
    return refuse_device(lib, "getProperties fails; its code", dev, res);
  }
  if (!is_device_good(lib, dev, &seen, type)) {
    return false;
  }
  tt_net_props *p = tt_calloc(1, sizeof *p);
  if (p == NULL) {
    return refuse_device(lib, "no memory for its properties", dev, 0);
  }
  *p = seen;
  p->name = tt_strdup(seen.name != NULL ? seen.name : lib->name);
  p->pci_path = tt_strdup(seen.pci_path);
  if (p->name == NULL) {
    free_device(p);
    return refuse_device(lib, "no memory for its name", dev, 0);
  }
  set_parts(lib, dev, p, vdevs);
  lib->devs[dev] = p;
  return true;
}

static void forget_devices(tt_pnet_library *lib)
{
  for (int i = 0; i < TT_PNET_DEVICES; i++) {
    free_device(lib->devs[i]);
    lib->devs[i] = NULL;
  }
  lib->ndevs = 0;
  atomic_store_explicit(&lib->nusable, 0, memory_order_release);
}

static bool find_devices(tt_pnet_library *lib)
{
  int n = 0;
  ncclResult_t res = lib->v->devices(lib->table, &n);
  if (res != ncclSuccess || n < 1 || n > TT_PNET_DEVICES) {
    tt_info(TT_INIT | TT_NET, "NET/Plugin: %s (%s) is not used: devices gives %d with code %d; 1 to %d can be used",
            lib->name, tt_plugin_path(lib->plugin), n, (int)res, TT_PNET_DEVICES);
    return false;
  }
  bool good = true;
  for (int i = 0; i < n && good; i++) {
    good = tt_pnet_add_device(lib, i);
  }
  lib->ndevs = good ? n : 0;
  if (!good) {
    forget_devices(lib);
  }
  return good;
}

// ---- init and finalize

// Undoes an init. After the last one a plugin may forget its virtual devices, so the next init lists the devices anew.
static ncclResult_t finalize_library(tt_pnet_library *lib, void *ctx)
{
  ncclResult_t res = lib->v->finalize(lib->table, ctx);
  if (--lib->inits == 0) {
    forget_devices(lib);
  }
  return res;
}

// A table that init has to fill: is it full, and what is it called now?
static bool look_at_table(tt_pnet_library *lib)
{
  if (!tt_plugin_complete(TT_PLUGIN_NET, lib->plugin, lib->v->needs, lib->v->nneeds)) {
    return false;
  }
  if (strncmp(lib->name, lib->v->name(lib->table), sizeof lib->name - 1) != 0) {
    snprintf(lib->name, sizeof lib->name, "%s", lib->v->name(lib->table));
  }
  return true;
}

// It stays hollow, and is not initialised again. Where it has nothing to end it with, what init began stays too.
static void leave_hollow(tt_pnet_library *lib, void *ctx)
{
  lib->hollow = true;
  if (lib->v->own_context && lib->v->has(lib->table, TT_PNET_CAN_FINALIZE)) {
    finalize_library(lib, ctx);
  }
}

// Once. What the parameters want and cannot be done is an error for every communicator: devices that were made before
// it was found are no excuse.
static ncclResult_t fuse_once(tt_pnet_library *lib)
{
  ncclResult_t res = tt_pnet_fuse(lib);
  if (res == ncclInvalidUsage) {
    lib->refused = res;
    snprintf(lib->why, sizeof lib->why, "%s", tt_last_error());
  }
  return res;
}

ncclResult_t tt_pnet_library_init(tt_pnet_library *lib, const tt_pnet_setup *s, void **ctx, bool *usable)
{
  *ctx = NULL;
  *usable = false;
  if (lib->refused != ncclSuccess) {
    return tt_fail(lib->refused, "%s", lib->why);
  }
  if (lib->hollow) {
    look_at_table(lib); // says again what it lacks
    return ncclSuccess;
  }
  if (lib->v->own_context || lib->inits == 0) {
    ncclResult_t res = lib->v->init(lib->table, s, ctx);
    if (res != ncclSuccess) {
      tt_info(TT_INIT | TT_NET, "NET/Plugin: %s (%s) is not used: init fails with code %d (%s)", lib->name,
              tt_plugin_path(lib->plugin), (int)res, tt_result_string(tt_pnet_code(res)));
      return ncclSuccess;
    }
    lib->inits++;
  }
  if (lib->late && !look_at_table(lib)) {
    leave_hollow(lib, *ctx);
    return ncclSuccess;
  }
  bool looked = lib->ndevs > 0 || find_devices(lib);
  ncclResult_t res = looked && lib->nusable == 0 ? fuse_once(lib) : ncclSuccess;
  *usable = looked && res == ncclSuccess;
  if (!*usable && lib->v->own_context) {
    finalize_library(lib, *ctx);
  }
  return res;
}

ncclResult_t tt_pnet_library_finalize(tt_pnet_library *lib, void *ctx)
{
  return lib->v->own_context ? finalize_library(lib, ctx) : ncclSuccess;
}

// ---- the list

static bool same_wish(const char *a, const char *b)
{
  return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static tt_pnet_library *find_library(const char *wish)
{
  tt_pnet_library *lib = libraries;
  while (lib != NULL && !same_wish(lib->wish, wish)) {
    lib = lib->next;
  }
  return lib;
}

// A library has one table, so its marks (inits, reduces, hollow) hold for all its spellings.
static tt_pnet_library *find_table(const void *table)
{
  tt_pnet_library *lib = libraries;
  while (lib != NULL && lib->table != table) {
    lib = lib->next;
  }
  return lib;
}

// What else is in it.
static void log_other_tables(const tt_plugin *plugin)
{
  static const struct {
    tt_plugin_kind kind;
    const char *what, *then;
  } others[] = {{TT_PLUGIN_COLLNET, "collective network", "for communicators with NCCL_COLLNET_ENABLE=1"},
                {TT_PLUGIN_GIN, "GIN plugin", "recognised, not used here"},
                {TT_PLUGIN_RMA, "RMA plugin", "recognised, not used here"}};
  for (size_t i = 0; i < TT_COUNT(others); i++) {
    int version = tt_plugin_offers(plugin, others[i].kind);
    if (version > 0) {
      tt_info(TT_INIT | TT_NET, "NET/Plugin: %s has a %s too, version %d: %s", tt_plugin_path(plugin), others[i].what,
              version, others[i].then);
    }
  }
}

static void destroy_library(tt_pnet_library *lib)
{
  forget_devices(lib);
  tt_plugin_close(lib->plugin);
  tt_free(lib->wish);
  tt_free(lib);
}

// Takes the plugin. Only its name and init must be there: some plugins choose in init what the rest of their table is.
static ncclResult_t new_library(const char *wish, tt_plugin *plugin, tt_pnet_library **out)
{
  const tt_pnet_version *v = tt_pnet_version_of(tt_plugin_version(plugin));
  if (!tt_plugin_complete(TT_PLUGIN_NET, plugin, v->needs, TT_PNET_FIRST)) {
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
  lib->late = tt_plugin_lacks(plugin, v->needs, v->nneeds);
  snprintf(lib->name, sizeof lib->name, "%s", v->name(lib->table));
  log_other_tables(plugin);
  *out = lib;
  return ncclSuccess;
}

// The library that an item names: one in the list with the same table under another spelling, or a new one. *out NULL:
// it cannot be used.
static ncclResult_t load_library(const char *wish, tt_pnet_library **out)
{
  tt_plugin *plugin = NULL;
  TT_TRY(tt_plugin_open(TT_PLUGIN_NET, wish, NULL, &plugin));
  if (plugin == NULL) {
    return ncclSuccess;
  }
  *out = find_table(tt_plugin_table(plugin));
  if (*out != NULL) {
    tt_info(TT_INIT | TT_NET, "NET/Plugin: %s is open already under another name", tt_plugin_path(plugin));
    tt_plugin_close(plugin);
    return ncclSuccess;
  }
  TT_TRY(new_library(wish, plugin, out));
  if (*out != NULL) {
    (*out)->next = libraries;
    libraries = *out;
  }
  return ncclSuccess;
}

ncclResult_t tt_pnet_library_open(const char *wish, tt_pnet_library **out)
{
  tt_pnet_library *lib = find_library(wish);
  *out = NULL;
  if (lib == NULL) {
    TT_TRY(load_library(wish, &lib));
  }
  if (lib != NULL) {
    lib->refs++;
  }
  *out = lib;
  return ncclSuccess;
}

ncclResult_t tt_pnet_library_also(const char *wish, tt_plugin_kind kind, tt_plugin **out)
{
  const tt_pnet_library *lib = find_library(wish);
  *out = NULL;
  if (lib != NULL) {
    return tt_plugin_also(lib->plugin, kind, out);
  }
  tt_plugin *plugin = NULL;
  TT_TRY(tt_plugin_peek(TT_PLUGIN_NET, wish, &plugin));
  ncclResult_t res = plugin != NULL ? tt_plugin_also(plugin, kind, out) : ncclSuccess;
  tt_plugin_close(plugin);
  return res;
}

void tt_pnet_library_close(tt_pnet_library *lib)
{
  // A plugin that was initialised and has no finalize stays: nothing tells when its threads have ended
  // (google-fastsocket's have not), and its init must not be called twice. A plugin that cannot be used stays too, with
  // the reason.
  bool stays = (!lib->v->own_context && lib->inits > 0) || lib->refused != ncclSuccess || lib->hollow || lib->reduces;
  if (--lib->refs > 0 || stays) {
    return;
  }
  tt_pnet_library **at = &libraries;
  while (*at != NULL && *at != lib) { // in a child it may be the parent's, which is in no list
    at = &(*at)->next;
  }
  if (*at != NULL) {
    *at = lib->next;
  }
  destroy_library(lib);
}
