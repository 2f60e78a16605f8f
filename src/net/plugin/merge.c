// merge.c: makes one device of several where the plugin can (makeVDevice) and the parameters ask for it, once per
// library. fuse.h has the distances.
#include <stdio.h>
#include <string.h>

#include "base/advice.h"
#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "base/util.h"
#include "net/plugin/fuse.h"
#include "net/plugin/plugin_priv.h"

// The work on one library.
typedef struct fusion {
  tt_pnet_library *lib;
  int n;                 // physical devices
  tt_fuse_place *places; // [n]
  uint8_t *far;          // [n * n]: tt_fuse_level
  bool placed[TT_PNET_DEVICES];
} fusion;

bool tt_pnet_make_virtual(tt_pnet_library *lib, const int *devs, int n, int *dev, char *why, size_t size)
{
  int made = -1, old = lib->ndevs;
  ncclResult_t res = n <= lib->v->most_parts ? lib->v->make_virtual(lib->table, devs, n, &made) : ncclInvalidArgument;
  if (res != ncclSuccess) {
    snprintf(why, size, "makeVDevice of %d devices fails with code %d", n, (int)res);
    return false;
  }
  if (made != old || made >= TT_PNET_DEVICES || !tt_pnet_add_device(lib, made)) {
    snprintf(why, size, "makeVDevice gives device %d; after %d devices it should be %d, and usable", made, old, old);
    return false;
  }
  tt_net_props *p = lib->devs[made]; // its parts are these, whatever the plugin reports
  p->nparts = n;
  for (int i = 0; i < n; i++) {
    p->parts[i] = lib->devs[devs[i]];
  }
  lib->ndevs = old + 1;
  *dev = made;
  return true;
}

// "mlx5_0 mlx5_1"
static void names_of(const tt_pnet_library *lib, const int *devs, int n, char *out, size_t size)
{
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < n && used < size; i++) {
    used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? " " : "", lib->devs[devs[i]]->name);
  }
}

static bool make_one(fusion *f, const int *devs, int n, char *why, size_t size)
{
  char names[512];
  int made = -1;
  if (!tt_pnet_make_virtual(f->lib, devs, n, &made, why, size)) {
    return false;
  }
  names_of(f->lib, devs, n, names, sizeof names);
  tt_info(TT_INIT | TT_NET,
          "NET/Plugin: %s: %s count as one device, %s (%d Mbit/s); NCCL_NET_MERGE_LEVEL=LOC leaves them apart",
          f->lib->name, names, f->lib->devs[made]->name, f->lib->devs[made]->speed);
  for (int i = 0; i < n; i++) {
    f->placed[devs[i]] = true;
  }
  return true;
}

// ---- By name

// One group: its devices, n 0 where it is empty. All groups are judged before the first is made: a device that was made
// stays.
static ncclResult_t judge_group(fusion *f, const char *group, size_t length, tt_fuse_found *found)
{
  int most = f->lib->v->most_parts;
  tt_fuse_match(group, length, (const tt_net_props *const *)f->lib->devs, f->n, most, found);
  const int *devs = found->devs, n = found->n, names = found->names;
  if (names > most) {
    return tt_fail(ncclInvalidUsage,
                   "NCCL_NET_FORCE_MERGE: %.*s: more than the %d devices that network plugin %s makes one of",
                   (int)length, group, most, f->lib->name);
  }
  if (n != names) {
    return tt_fail(ncclInvalidUsage, "NCCL_NET_FORCE_MERGE: %.*s names %d devices, of which network plugin %s has %d",
                   (int)length, group, names, f->lib->name, n);
  }
  for (int i = 0; i < n; i++) {
    if (f->placed[devs[i]]) {
      return tt_fail(ncclInvalidUsage, "NCCL_NET_FORCE_MERGE: %s is in two groups", f->lib->devs[devs[i]]->name);
    }
  }
  for (int i = 0; i < n; i++) {
    f->placed[devs[i]] = true; // also a device alone: the user names it so
  }
  return ncclSuccess;
}

static ncclResult_t fuse_group(fusion *f, const char *group, size_t length)
{
  char why[256];
  tt_fuse_found found;
  tt_fuse_match(group, length, (const tt_net_props *const *)f->lib->devs, f->n, f->lib->v->most_parts, &found);
  return found.n < 2 || make_one(f, found.devs, found.n, why, sizeof why)
             ? ncclSuccess
             : tt_fail(ncclInvalidUsage, "NCCL_NET_FORCE_MERGE: %.*s: network plugin %s: %s", (int)length, group,
                       f->lib->name, why);
}

static ncclResult_t fuse_by_name(fusion *f, const char *groups)
{
  tt_fuse_found found;
  size_t length;
  for (const char *at = groups; *at != '\0'; at += length + (at[length] == ';')) {
    length = strcspn(at, ";");
    TT_TRY(judge_group(f, at, length, &found));
  }
  for (const char *at = groups; *at != '\0'; at += length + (at[length] == ';')) {
    length = strcspn(at, ";");
    TT_TRY(fuse_group(f, at, length));
  }
  return ncclSuccess;
}

// ---- By distance

static bool same_rail(const fusion *f, int a, int b)
{
  return f->lib->devs[a]->rail >= 0 && f->lib->devs[a]->rail == f->lib->devs[b]->rail;
}

// The devices that are near `first` and belong to no virtual device.
static int near_devices(const fusion *f, int first, tt_fuse_level level, bool by_rail, int *devs)
{
  int n = 1;
  devs[0] = first;
  for (int i = 0; i < f->n && n < f->lib->v->most_parts; i++) {
    if (i != first && !f->placed[i] && f->far[first * f->n + i] <= level && (!by_rail || same_rail(f, first, i))) {
      devs[n++] = i;
    }
  }
  return n;
}

// Devices that cannot be fused stay apart from now on.
static void keep_apart(fusion *f, const int *devs, int n)
{
  for (int i = 1; i < n; i++) {
    f->far[devs[0] * f->n + devs[i]] = f->far[devs[i] * f->n + devs[0]] = TT_FUSE_NEVER;
  }
}

static void fuse_near(fusion *f, tt_fuse_level level, bool by_rail)
{
  char why[256], names[512];
  int devs[TT_NET_PARTS];
  for (int i = 0; i < f->n; i++) {
    for (int n; !f->placed[i] && (n = near_devices(f, i, level, by_rail, devs)) > 1;) {
      if (!make_one(f, devs, n, why, sizeof why)) {
        names_of(f->lib, devs, n, names, sizeof names);
        tt_info(TT_INIT | TT_NET, "NET/Plugin: %s: %s are not fused: %s", f->lib->name, names, why);
        keep_apart(f, devs, n);
      }
    }
    f->placed[i] = true;
  }
}

static void measure_distances(fusion *f)
{
  for (int i = 0; i < f->n; i++) {
    tt_fuse_place_of(f->lib->devs[i]->pci_path, &f->places[i]);
  }
  for (int i = 0; i < f->n * f->n; i++) {
    f->far[i] = (uint8_t)tt_fuse_distance(&f->places[i / f->n], &f->places[i % f->n]);
  }
}

static ncclResult_t fuse_all(fusion *f)
{
  const tt_params *p = tt_params_get();
  tt_fuse_level level;
  if (p->net_force_merge != NULL) {
    TT_TRY(fuse_by_name(f, p->net_force_merge));
  }
  tt_fuse_level_of(p->net_merge_level, &level);
  bool by_rail = tt_casecmp(p->net_merge_policy, "RAIL") == 0;
  measure_distances(f);
  fuse_near(f, level, by_rail);
  return ncclSuccess;
}

// ---- All

static ncclResult_t fuse_library(tt_pnet_library *lib)
{
  ncclResult_t res = ncclSuccess;
  fusion *f = tt_calloc(1, sizeof *f);
  if (f != NULL) {
    f->lib = lib;
    f->n = lib->ndevs;
    f->places = tt_calloc((size_t)f->n, sizeof *f->places);
    f->far = tt_calloc((size_t)f->n * (size_t)f->n, 1);
  }
  res = f == NULL || f->places == NULL || f->far == NULL
            ? tt_fail(ncclSystemError, "no memory for the devices of network plugin %s", lib->name)
            : fuse_all(f);
  if (f != NULL) {
    tt_free(f->places);
    tt_free(f->far);
  }
  tt_free(f);
  return res;
}

static bool is_part_of_device(const tt_pnet_library *lib, const tt_net_props *dev)
{
  for (int i = 0; i < lib->ndevs; i++) {
    for (int k = 0; k < lib->devs[i]->nparts; k++) {
      if (lib->devs[i]->parts[k] == dev) {
        return true;
      }
    }
  }
  return false;
}

// A plugin that stayed in memory while its library was closed has its virtual devices still.
static bool has_virtual(const tt_pnet_library *lib)
{
  bool found = false;
  for (int i = 0; i < lib->ndevs; i++) {
    found |= lib->devs[i]->nparts > 0;
  }
  return found;
}

ncclResult_t tt_pnet_fuse(tt_pnet_library *lib)
{
  int n = 0;
  if (lib->v->has(lib->table, TT_PNET_CAN_MERGE) && !has_virtual(lib)) {
    TT_TRY(fuse_library(lib));
  } else if (tt_params_get()->net_force_merge != NULL && !has_virtual(lib)) {
    tt_advise("NCCL_NET_FORCE_MERGE has no effect: network plugin %s cannot make one device of several", lib->name);
  }
  for (int i = 0; i < lib->ndevs; i++) {
    if (!is_part_of_device(lib, lib->devs[i])) {
      lib->usable[n++] = i;
    }
  }
  atomic_store_explicit(&lib->nusable, n, memory_order_release);
  return ncclSuccess;
}
