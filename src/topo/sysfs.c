// sysfs.c: PCI devices, what is above them, and GPUs.
#include "topo/sysfs.h"

#include <ctype.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "topo/sysfs_priv.h"
#include "topo/system.h"

#define BROADCOM "0x1000"

// ---- Finding and adding ----

tt_xml_node *tt_sysfs_find(const tt_xml *xml, const char *tag, const char *key, const char *bus_id)
{
  int64_t wanted, have;
  if (!tt_bus_id(bus_id, &wanted)) {
    return NULL;
  }
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    const char *text = tt_xml_is(n, tag) ? tt_xml_get(n, key) : NULL;
    if (text != NULL && tt_bus_id(text, &have) && have == wanted) {
      return n;
    }
  }
  return NULL;
}

// ---- Bus ids ----

bool tt_bus_id_sysfs(const char *text, char out[16])
{
  unsigned domain, bus, device, function;
  int end = 0;
  for (const char *c = text; *c != 0; c++) { // no signs, no blanks
    if (!isxdigit((unsigned char)*c) && *c != ':' && *c != '.') {
      return false;
    }
  }
  if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) != 4 || text[end] != 0) {
    return false;
  }
  if (domain > 0xfffffff || device > 0x1f || function > 7) {
    return false;
  }
  snprintf(out, 16, "%04x:%02x:%02x.%x", domain & 0xfffffff, bus & 0xff, device & 0x1f, function & 7);
  return true;
}

ncclResult_t tt_sysfs_add_pci(tt_xml *xml, tt_xml_node *parent, const char *bus_id, tt_xml_node **out)
{
  tt_xml_node *before = NULL, *node = NULL;
  for (tt_xml_node *c = parent->child; c != NULL; before = c, c = c->next) {
    const char *have = tt_xml_get(c, "busid");
    if (have != NULL && strcmp(bus_id, have) < 0) {
      break;
    }
  }
  TT_TRY(tt_xml_insert(xml, parent, before, "pci", &node));
  TT_TRY(tt_xml_set(xml, node, "busid", bus_id));
  *out = node;
  return ncclSuccess;
}

// ---- Paths in /sys/devices ----

// Name of the last folder of a path.
static const char *last_name(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

static bool is_device(const char *path)
{
  char bus[16];
  return tt_bus_id_sysfs(last_name(path), bus);
}

// The device's own folder. Some containers lack one of the two ways to it.
static bool device_folder(const tt_sysfs *s, const char *bus_id, char out[TT_TREE_PATH])
{
  char path[TT_TREE_PATH];
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", bus_id);
  bool found = tt_tree_resolve(s->tree, path, out);
  if (!found) {
    snprintf(path, sizeof(path), "/sys/class/pci_bus/%.*s/../../%s", (int)(strlen(bus_id) - 5), bus_id, bus_id);
    found = tt_tree_resolve(s->tree, path, out);
  }
  return found && is_device(out);
}

bool tt_sysfs_bus_of(const tt_sysfs *s, const char *path, char out[16])
{
  char full[TT_TREE_PATH], subsystem[TT_TREE_PATH], file[TT_TREE_PATH + 16];
  if (!tt_tree_resolve(s->tree, path, full)) {
    return false;
  }
  snprintf(file, sizeof(file), "%s/subsystem", full);
  return tt_tree_link(s->tree, file, subsystem) && strcmp(last_name(subsystem), "pci") == 0 &&
         tt_bus_id_sysfs(last_name(full), out);
}

// ---- Attributes of a device ----

// The number a speed begins with; FLT_MAX when it is none ("Unknown").
static float speed_of(const char *text)
{
  return text[0] >= '0' && text[0] <= '9' ? tt_strtof(text, NULL) : FLT_MAX;
}

// The slower of what the device and the port above it can.
static ncclResult_t set_speed(const tt_sysfs *s, tt_xml *xml, tt_xml_node *pci, const char *folder,
                              const tt_sysfs_hints *hints)
{
  char device[128], port[128];
  tt_sysfs_text(s->tree, folder, "max_link_speed", device, sizeof(device));
  tt_sysfs_text(s->tree, folder, "../max_link_speed", port, sizeof(port));
  const char *speed = speed_of(port) < speed_of(device) ? port : device;
  if (speed_of(speed) == FLT_MAX && hints != NULL && hints->speed != NULL) {
    speed = hints->speed;
  }
  return tt_xml_set(xml, pci, "link_speed", speed);
}

static ncclResult_t set_width(const tt_sysfs *s, tt_xml *xml, tt_xml_node *pci, const char *folder,
                              const tt_sysfs_hints *hints)
{
  char device[128], port[128];
  tt_sysfs_text(s->tree, folder, "max_link_width", device, sizeof(device));
  tt_sysfs_text(s->tree, folder, "../max_link_width", port, sizeof(port));
  // 255 is the kernel's "unknown". 0 counts as 16 lanes.
  int width = TT_MIN(tt_sysfs_number(device, 0, 255, 0), tt_sysfs_number(port, 0, 255, 0));
  if (width == 0 && hints != NULL) {
    width = hints->width;
  }
  return tt_xml_set_int(xml, pci, "link_width", width <= 64 ? width : 0);
}

// "0x" and digits, or nothing.
static void read_id(const tt_sysfs *s, const char *folder, const char *name, char out[32])
{
  tt_sysfs_text(s->tree, folder, name, out, 32);
  bool good = strncmp(out, "0x", 2) == 0 && out[2] != 0 && strlen(out) <= 10 &&
              out[2 + strspn(out + 2, "0123456789abcdefABCDEF")] == 0;
  if (out[0] != 0 && !good) {
    tt_info(TT_GRAPH, "%s: %s/%s is \"%s\", a number such as 0x10de is expected; ignored", tt_tree_name(s->tree),
            folder, name, out);
    out[0] = 0;
  }
}

// Broadcom's switches have links between them that the tree of PCI does not show; their driver does.
static ncclResult_t add_switch_links(const tt_sysfs *s, tt_xml *xml, tt_xml_node *pci, const char *bus_id)
{
  char folder[TT_TREE_PATH], path[TT_TREE_PATH];
  tt_tree_names names;
  snprintf(folder, sizeof(folder), "/sys/kernel/pci_switch_link/virtual_switch_links/%s", bus_id);
  TT_TRY(tt_tree_list(s->tree, folder, &names));
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < names.count && res == ncclSuccess; i++) {
    char target[16];
    bool there = false;
    if (!tt_bus_id_sysfs(names.names[i], target) || strcmp(target, bus_id) == 0 || !device_folder(s, target, path)) {
      continue;
    }
    for (tt_xml_node *l = tt_xml_child(pci, "pcilink"); l != NULL && !there; l = tt_xml_sibling(l, "pcilink")) {
      const char *have = tt_xml_get(l, "target");
      there = have != NULL && strcmp(have, target) == 0;
    }
    tt_xml_node *link = NULL;
    res = there ? ncclSuccess : tt_xml_add(xml, pci, "pcilink", &link);
    if (res == ncclSuccess && !there) {
      res = tt_xml_set(xml, link, "target", target);
    }
  }
  tt_tree_names_free(&names);
  return res;
}

// Vendor, device and their like, of 16 bits.
static ncclResult_t set_ids(const tt_sysfs *s, tt_xml *xml, tt_xml_node *pci, const char *folder,
                            const tt_sysfs_hints *hints)
{
  static const char *names[] = {"vendor", "device", "subsystem_vendor", "subsystem_device"};
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    char text[32] = "";
    if (tt_xml_get(pci, names[i]) != NULL) {
      continue;
    }
    read_id(s, folder, names[i], text);
    bool good = text[0] != 0 && strtoul(text, NULL, 16) <= 0xffff;
    const char *value = good ? text : hints != NULL ? hints->ids[i] : "";
    TT_TRY(value[0] != 0 ? tt_xml_set(xml, pci, names[i], value) : ncclSuccess);
  }
  return ncclSuccess;
}

// Everything the machine says of a device; "" folder: it does not show it.
static ncclResult_t fill_pci(const tt_sysfs *s, tt_xml *xml, tt_xml_node *pci, const char *folder,
                             const tt_sysfs_hints *hints)
{
  char class[32], bus_id[16];
  bool any = folder[0] != 0 || hints != NULL;
  read_id(s, folder, "class", class);
  TT_TRY(class[0] != 0 ? tt_xml_set(xml, pci, "class", class) : ncclSuccess);
  TT_TRY(set_ids(s, xml, pci, folder, hints));
  if (tt_xml_get(pci, "link_speed") == NULL) {
    TT_TRY(any ? set_speed(s, xml, pci, folder, hints) : tt_xml_set(xml, pci, "link_speed", ""));
  }
  if (tt_xml_get(pci, "link_width") == NULL) {
    TT_TRY(any ? set_width(s, xml, pci, folder, hints) : tt_xml_set(xml, pci, "link_width", ""));
  }
  const char *vendor = tt_xml_get(pci, "vendor");
  if (vendor == NULL || strcmp(vendor, BROADCOM) != 0 || !tt_bus_id_sysfs(tt_xml_get(pci, "busid"), bus_id)) {
    return ncclSuccess;
  }
  return add_switch_links(s, xml, pci, bus_id);
}

// ---- The tree ----

// The element for the device in `folder`, "" where the machine does not show it, made below those above it when it is
// new.
static ncclResult_t sysfs_place(const tt_sysfs *s, tt_xml *xml, const char *bus_id, const char *folder,
                                tt_xml_node **out)
{
  tt_xml_node *parent = NULL;
  *out = tt_sysfs_find(xml, "pci", "busid", bus_id);
  if (*out != NULL) {
    return ncclSuccess;
  }
  if (folder[0] == 0) {
    TT_TRY(tt_sysfs_cpu(s, xml, -1, &parent));
    return tt_sysfs_add_pci(xml, parent, bus_id, out);
  }
  char above[TT_TREE_PATH], numa[32];
  snprintf(above, sizeof(above), "%s", folder);
  tt_tree_up(above); // the port that the device is plugged into
  if (is_device(above)) {
    tt_tree_up(above); // the switch's upstream port, which stands for the switch; or the CPU above a root port
  }
  if (is_device(above)) {
    TT_TRY(sysfs_place(s, xml, last_name(above), above, &parent));
  } else {
    tt_sysfs_text(s->tree, folder, "numa_node", numa, sizeof(numa));
    TT_TRY(tt_sysfs_cpu(s, xml, tt_sysfs_number(numa, -1, 65535, -1), &parent));
  }
  return tt_sysfs_add_pci(xml, parent, bus_id, out);
}

static ncclResult_t fill_cpu_above(const tt_sysfs *s, tt_xml *xml, const tt_xml_node *cpu)
{
  const char *numa = tt_xml_get(cpu, "numaid");
  tt_xml_node *same;
  if (!tt_xml_is(cpu, "cpu") || numa == NULL || tt_sysfs_number(numa, -1, 65535, -2) == -2) {
    return ncclSuccess; // tt_topo_build reports it
  }
  return tt_sysfs_cpu(s, xml, tt_sysfs_number(numa, -1, 65535, -1), &same);
}

// Completes a device and all above it.
static ncclResult_t fill_up(const tt_sysfs *s, tt_xml *xml, tt_xml_node *node, const tt_sysfs_hints *hints)
{
  for (; node != NULL && tt_xml_is(node, "pci"); node = node->parent) {
    char bus_id[16], folder[TT_TREE_PATH] = "";
    const char *text = tt_xml_get(node, "busid");
    if (text == NULL || !tt_bus_id_sysfs(text, bus_id) || !device_folder(s, bus_id, folder)) {
      folder[0] = 0;
    }
    TT_TRY(fill_pci(s, xml, node, folder, hints));
    hints = NULL;
  }
  return node != NULL ? fill_cpu_above(s, xml, node) : ncclSuccess;
}

ncclResult_t tt_sysfs_pci(const tt_sysfs *s, tt_xml *xml, const char *bus_id, const char *class,
                          const tt_sysfs_hints *hints, tt_xml_node **out)
{
  char bus[16], folder[TT_TREE_PATH];
  if (!tt_bus_id_sysfs(bus_id, bus)) {
    return tt_fail(ncclInvalidArgument, "\"%.64s\" is not a PCI device's bus id: one such as 0000:0f:00.0 is expected",
                   bus_id);
  }
  if (!device_folder(s, bus, folder)) {
    tt_info(TT_GRAPH, "%s: PCI device %s is not in /sys; it counts as attached to an unknown CPU",
            tt_tree_name(s->tree), bus);
    folder[0] = 0;
  }
  TT_TRY(sysfs_place(s, xml, bus, folder, out));
  TT_TRY(tt_sysfs_init(xml, *out, "class", class));
  return fill_up(s, xml, *out, hints);
}

bool tt_sysfs_class(const tt_sysfs *s, const char *bus_id, char out[32])
{
  char bus[16], folder[TT_TREE_PATH];
  out[0] = 0;
  if (tt_bus_id_sysfs(bus_id, bus) && device_folder(s, bus, folder)) {
    read_id(s, folder, "class", out);
  }
  return out[0] != 0;
}
