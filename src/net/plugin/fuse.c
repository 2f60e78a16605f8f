// fuse.c: see fuse.h.
#include "net/plugin/fuse.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "os/folder.h"

// ---- Places

// "0000:03:00.0", and nothing behind it.
static bool is_bus(const char *text, size_t n)
{
  static const char form[] = "xxxx:xx:xx.x";
  if (n != sizeof form - 1) {
    return false;
  }
  for (size_t i = 0; i < n; i++) {
    if (form[i] == 'x' ? !isxdigit((unsigned char)text[i]) : text[i] != form[i]) {
      return false;
    }
  }
  return true;
}

// All bus ids of the path, from the CPU down. Returns their number; of deeper ones the last TT_FUSE_DEPTH * 2.
static int bus_ids(const char *path, const char *ids[2 * TT_FUSE_DEPTH])
{
  int n = 0;
  for (const char *at = path; *at != '\0';) {
    at += strspn(at, "/");
    size_t length = strcspn(at, "/");
    if (is_bus(at, length)) {
      if (n == 2 * TT_FUSE_DEPTH) {
        memmove(ids, ids + 1, (size_t)(--n) * sizeof *ids);
      }
      ids[n++] = at;
    }
    at += length;
  }
  return n;
}

static int numa_of(const char *path)
{
  char file[PATH_MAX + 16], text[16];
  snprintf(file, sizeof file, "%s/numa_node", path);
  return tt_file_text(file, text, sizeof text) ? atoi(text) : -1;
}

void tt_fuse_place_of(const char *pci_path, tt_fuse_place *out)
{
  const char *ids[2 * TT_FUSE_DEPTH];
  char real[PATH_MAX];
  *out = (tt_fuse_place){.numa = -1};
  if (pci_path == NULL || pci_path[0] == '\0') {
    return;
  }
  const char *path = realpath(pci_path, real) != NULL ? real : pci_path;
  int n = bus_ids(path, ids);
  for (int i = (n + 1) % 2; i < n; i += 2) { // the device, what is two above it, and so on
    snprintf(out->bus[out->count++], TT_FUSE_BUS, "%.*s", TT_FUSE_BUS - 1, ids[i]);
  }
  out->numa = out->count > 0 && path == real ? numa_of(path) : -1;
}

// The same but for the function.
static bool are_same_card(const char *a, const char *b)
{
  return tt_ncasecmp(a, b, TT_FUSE_BUS - 2) == 0;
}

tt_fuse_level tt_fuse_distance(const tt_fuse_place *a, const tt_fuse_place *b)
{
  int same = 0;
  while (same < a->count && same < b->count && tt_casecmp(a->bus[same], b->bus[same]) == 0) {
    same++;
  }
  if (same == a->count && same == b->count) {
    return TT_FUSE_PORT;
  }
  if (same < a->count && same < b->count && are_same_card(a->bus[same], b->bus[same])) {
    return TT_FUSE_PORT;
  }
  if (same > 0) {
    return same >= a->count - 1 && same >= b->count - 1 ? TT_FUSE_PIX : TT_FUSE_PXB;
  }
  return a->numa >= 0 && b->numa >= 0 && a->numa != b->numa ? TT_FUSE_SYS : TT_FUSE_PHB;
}

bool tt_fuse_level_of(const char *word, tt_fuse_level *out)
{
  // P2C and PXN lie between PXB and PHB and are no distances of cards from one another.
  static const struct {
    const char *word;
    tt_fuse_level level;
  } words[] = {{"LOC", TT_FUSE_LOC}, {"PORT", TT_FUSE_PORT}, {"PIX", TT_FUSE_PIX}, {"PXB", TT_FUSE_PXB},
               {"P2C", TT_FUSE_PXB}, {"PXN", TT_FUSE_PXB},   {"PHB", TT_FUSE_PHB}, {"SYS", TT_FUSE_SYS}};
  *out = TT_FUSE_LOC;
  for (size_t i = 0; i < TT_COUNT(words); i++) {
    if (tt_casecmp(word, words[i].word) == 0) {
      *out = words[i].level;
      return true;
    }
  }
  return false;
}

// ---- Groups by name

// "name" or "name:port".
static bool is_device_named(const char *item, size_t length, const tt_net_props *dev)
{
  size_t name = 0;
  while (name < length && item[name] != ':') {
    name++;
  }
  if (strlen(dev->name) != name || strncmp(dev->name, item, name) != 0) {
    return false;
  }
  return name == length || atoi(item + name + 1) == dev->port;
}

static bool is_in_group(const char *group, size_t length, const tt_net_props *dev)
{
  for (size_t at = 0, n; at < length; at += n + 1) {
    for (n = 0; at + n < length && group[at + n] != ','; n++) {
    }
    if (n > 0 && is_device_named(group + at, n, dev)) {
      return true;
    }
  }
  return false;
}

void tt_fuse_match(const char *group, size_t length, const tt_net_props *const *devs, int ndevs, int max,
                   tt_fuse_found *out)
{
  int names = 0;
  for (size_t at = 0; at < length; at++) {
    names += group[at] != ',' && (at == 0 || group[at - 1] == ',');
  }
  *out = (tt_fuse_found){.names = TT_MIN(names, max + 1)};
  for (int i = 0; i < ndevs && out->n < max; i++) {
    if (is_in_group(group, length, devs[i])) {
      out->devs[out->n++] = i;
    }
  }
}
