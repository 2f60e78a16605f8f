// gather.c: what a machine has, and a capture of it.
#include "tools/gather.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/capture.h"
#include "topo/nvml.h"
#include "topo/sysfs_priv.h"

enum { FILE_BYTES = 16384 };

// ---- The text ----

typedef struct writer {
  char *bytes;
  size_t size, room;
  bool failed;
} writer;

static void put(writer *t, const char *bytes, size_t size)
{
  if (t->failed) {
    return;
  }
  if (t->size + size + 1 > t->room) {
    size_t room = TT_MAX(2 * t->room, t->size + size + 4096);
    char *more = room <= 2 * (size_t)TT_CAPTURE_BYTES ? tt_calloc(1, room) : NULL;
    if (more == NULL) {
      t->failed = true;
      return;
    }
    if (t->size > 0) {
      memcpy(more, t->bytes, t->size);
    }
    tt_free(t->bytes);
    t->bytes = more;
    t->room = room;
  }
  memcpy(t->bytes + t->size, bytes, size);
  t->size += size;
}

// With what cannot stand in a line escaped; `blanks` too, in paths.
static void put_escaped(writer *t, const char *bytes, size_t size, bool blanks)
{
  for (size_t i = 0; i < size; i++) {
    unsigned char c = (unsigned char)bytes[i];
    char code[8];
    bool plain = c >= 0x20 && c < 0x7f && c != '\\' && !(blanks && c == ' ');
    if (plain) {
      put(t, bytes + i, 1);
    } else {
      int n = c == '\n' ? snprintf(code, sizeof(code), "\\n") : snprintf(code, sizeof(code), "\\x%02x", c);
      put(t, code, (size_t)n);
    }
  }
}

static void put_entry(writer *t, char kind, const char *path, const char *data, size_t size)
{
  char head[2] = {kind, ' '};
  put(t, head, 2);
  put_escaped(t, path, strlen(path), true);
  put(t, " ", 1);
  put_escaped(t, data, size, false);
  put(t, "\n", 1);
}

// ---- Files ----

typedef struct gather {
  const tt_sysfs *machine;
  writer out;
} gather;

static bool join(char out[TT_TREE_PATH], const char *folder, const char *name)
{
  return snprintf(out, TT_TREE_PATH, "%s/%s", folder, name) < TT_TREE_PATH;
}

static void put_file(gather *g, const char *folder, const char *name)
{
  char path[TT_TREE_PATH], data[FILE_BYTES];
  long n = join(path, folder, name) ? tt_tree_read(g->machine->tree, path, data, sizeof(data)) : -1;
  if (n >= 0) {
    put_entry(&g->out, 'f', path, data, (size_t)n);
  }
}

static void put_link(gather *g, const char *folder, const char *name)
{
  char path[TT_TREE_PATH], target[TT_TREE_PATH];
  if (join(path, folder, name) && tt_tree_link(g->machine->tree, path, target)) {
    put_entry(&g->out, 'l', path, target, strlen(target));
  }
}

// Calls `fn` for each name in a folder.
typedef ncclResult_t name_fn(gather *g, const char *folder, const char *name);

static ncclResult_t each(gather *g, const char *folder, name_fn *fn)
{
  tt_tree_names names;
  TT_TRY(tt_tree_list(g->machine->tree, folder, &names));
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < names.count && res == ncclSuccess; i++) {
    res = fn(g, folder, names.names[i]);
  }
  tt_tree_names_free(&names);
  return res;
}

// Where the link folder/name leads, and whether it does.
static bool lead(gather *g, const char *folder, const char *name, char out[TT_TREE_PATH])
{
  char path[TT_TREE_PATH];
  return join(path, folder, name) && tt_tree_resolve(g->machine->tree, path, out);
}

static ncclResult_t put_device(gather *g, const char *folder, const char *name)
{
  static const char *files[] = {"class",          "vendor",         "device",   "subsystem_vendor", "subsystem_device",
                                "max_link_speed", "max_link_width", "numa_node"};
  char bus[16], at[TT_TREE_PATH];
  if (!tt_bus_id_sysfs(name, bus) || !lead(g, folder, name, at)) {
    return ncclSuccess;
  }
  put_link(g, folder, name);
  for (size_t i = 0; i < TT_COUNT(files); i++) {
    put_file(g, at, files[i]);
  }
  put_link(g, at, "subsystem");
  return ncclSuccess;
}

static ncclResult_t put_node(gather *g, const char *folder, const char *name)
{
  char at[TT_TREE_PATH];
  if (strncmp(name, "node", 4) == 0 && join(at, folder, name)) {
    put_file(g, at, "cpumap");
  }
  return ncclSuccess;
}

static ncclResult_t put_net(gather *g, const char *folder, const char *name)
{
  char at[TT_TREE_PATH], device[TT_TREE_PATH];
  if (!lead(g, folder, name, at)) {
    return ncclSuccess;
  }
  put_link(g, folder, name);
  put_file(g, at, "speed");
  put_link(g, at, "device");
  if (lead(g, at, "device", device)) {
    put_link(g, device, "subsystem");
  }
  return ncclSuccess;
}

static ncclResult_t put_ib_port(gather *g, const char *folder, const char *name)
{
  char at[TT_TREE_PATH];
  if (join(at, folder, name)) {
    put_file(g, at, "rate");
    put_file(g, at, "state");
    put_file(g, at, "link_layer");
  }
  return ncclSuccess;
}

static ncclResult_t put_ib(gather *g, const char *folder, const char *name)
{
  char at[TT_TREE_PATH], ports[TT_TREE_PATH];
  if (!lead(g, folder, name, at)) {
    return ncclSuccess;
  }
  put_link(g, folder, name);
  put_link(g, at, "device");
  return join(ports, at, "ports") ? each(g, ports, put_ib_port) : ncclSuccess;
}

static ncclResult_t put_switch_link(gather *g, const char *folder, const char *name)
{
  char path[TT_TREE_PATH];
  if (join(path, folder, name)) {
    put_entry(&g->out, 'f', path, "", 0);
  }
  return ncclSuccess;
}

static ncclResult_t put_switch(gather *g, const char *folder, const char *name)
{
  char at[TT_TREE_PATH];
  return join(at, folder, name) ? each(g, at, put_switch_link) : ncclSuccess;
}

// Of the first core, what says its kind.
static void put_cpuinfo(gather *g)
{
  static const char *keys[] = {"vendor_id", "cpu family", "model\t", "model ", "CPU implementer", "CPU part", "cpu\t"};
  char data[FILE_BYTES], kept[2048] = "";
  size_t size = 0;
  if (tt_tree_read(g->machine->tree, "/proc/cpuinfo", data, sizeof(data)) <= 0) {
    return;
  }
  for (const char *at = data; *at != 0 && *at != '\n'; at += strcspn(at, "\n"), at += *at != 0) {
    bool wanted = false;
    size_t length = strcspn(at, "\n");
    for (size_t i = 0; i < TT_COUNT(keys); i++) {
      wanted = wanted || strncmp(at, keys[i], strlen(keys[i])) == 0;
    }
    if (wanted && size + length + 2 < sizeof(kept)) {
      size += (size_t)snprintf(kept + size, sizeof(kept) - size, "%.*s\n", (int)length, at);
    }
  }
  put_entry(&g->out, 'f', "/proc/cpuinfo", kept, size);
}

static ncclResult_t put_gpus(gather *g)
{
  char bus[TT_NVML_MAX_GPUS][16], facts[4096], path[32];
  int count = 0;
  TT_TRY(tt_source_gpus(g->machine, bus, &count));
  for (int i = 0; i < count; i++) {
    tt_gpu_facts gpu;
    snprintf(path, sizeof(path), "/nvml/%.15s", bus[i]);
    if (tt_gpu_facts_read(g->machine, bus[i], &gpu) && tt_gpu_facts_print(&gpu, facts, sizeof(facts))) {
      put_entry(&g->out, 'f', path, facts, strlen(facts));
    }
  }
  return ncclSuccess;
}

static ncclResult_t put_all(gather *g)
{
  static const char head[] = "tutti-machine 1\n";
  put(&g->out, head, sizeof(head) - 1);
  put_cpuinfo(g);
  TT_TRY(each(g, "/sys/devices/system/node", put_node));
  TT_TRY(each(g, "/sys/bus/pci/devices", put_device));
  TT_TRY(each(g, "/sys/kernel/pci_switch_link/virtual_switch_links", put_switch));
  TT_TRY(each(g, "/sys/class/net", put_net));
  TT_TRY(each(g, "/sys/class/infiniband", put_ib));
  TT_TRY(put_gpus(g));
  return g->out.failed || g->out.size > TT_CAPTURE_BYTES
             ? tt_fail(ncclSystemError, "%s: more than %d bytes to gather, or no memory",
                       tt_tree_name(g->machine->tree), TT_CAPTURE_BYTES)
             : ncclSuccess;
}

ncclResult_t tt_gather(const tt_sysfs *machine, char **text, size_t *size)
{
  gather g = {.machine = machine};
  ncclResult_t res = put_all(&g);
  if (res != ncclSuccess) {
    tt_free(g.out.bytes);
    return res;
  }
  *text = g.out.bytes;
  *size = g.out.size;
  return ncclSuccess;
}

// ---- What there is ----

ncclResult_t tt_source_gpus(const tt_sysfs *machine, char (*bus_ids)[16], int *count)
{
  if (machine->nvml != NULL) {
    *count = tt_nvml_list(machine->nvml, bus_ids);
    return ncclSuccess;
  }
  tt_tree_names names;
  TT_TRY(tt_tree_list(machine->tree, "/nvml", &names));
  int found = 0;
  for (int i = 0; i < names.count && found < TT_NVML_MAX_GPUS; i++) {
    tt_gpu_facts gpu;
    if (tt_bus_id_sysfs(names.names[i], bus_ids[found]) && tt_gpu_facts_read(machine, bus_ids[found], &gpu)) {
      found++;
    }
  }
  tt_tree_names_free(&names);
  *count = found;
  return ncclSuccess;
}

typedef struct port_list {
  const tt_tree *tree;
  tt_source_port *out;
  int max, count;
} port_list;

static void add_port(port_list *l, const char *name, const char *folder, int port)
{
  tt_source_port p = {.port = port};
  char device[TT_TREE_PATH];
  if (l->count == l->max || strlen(name) >= sizeof(p.name) || !join(device, folder, "device")) {
    return;
  }
  snprintf(p.name, sizeof(p.name), "%s", name);
  if (!tt_tree_resolve(l->tree, device, p.pci_path)) {
    p.pci_path[0] = 0;
  }
  l->out[l->count++] = p;
}

// "400 Gb/sec (4X NDR)" in Mbit/s.
static int ib_speed(const tt_tree *tree, const char *port)
{
  char rate[64];
  tt_sysfs_text(tree, port, "rate", rate, sizeof(rate));
  float gbps = rate[0] >= '0' && rate[0] <= '9' ? tt_strtof(rate, NULL) : 0;
  return gbps > 0 && gbps < 1e6 ? (int)(gbps * 1000) : 0;
}

static ncclResult_t list_ib(port_list *l)
{
  tt_tree_names cards, ports = {0};
  TT_TRY(tt_tree_list(l->tree, "/sys/class/infiniband", &cards));
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < cards.count && res == ncclSuccess; i++) {
    char card[TT_TREE_PATH], folder[TT_TREE_PATH], port[TT_TREE_PATH];
    if (!join(card, "/sys/class/infiniband", cards.names[i]) || !join(folder, card, "ports")) {
      continue;
    }
    res = tt_tree_list(l->tree, folder, &ports);
    for (int k = 0; res == ncclSuccess && k < ports.count; k++) {
      int number = tt_sysfs_number(ports.names[k], 1, 255, -1), before = l->count;
      if (number > 0 && join(port, folder, ports.names[k])) {
        add_port(l, cards.names[i], card, number);
      }
      if (l->count > before) {
        l->out[before].speed = ib_speed(l->tree, port);
      }
    }
    tt_tree_names_free(&ports);
  }
  tt_tree_names_free(&cards);
  return res;
}

static ncclResult_t list_ethernet(port_list *l)
{
  tt_tree_names names;
  TT_TRY(tt_tree_list(l->tree, "/sys/class/net", &names));
  for (int i = 0; i < names.count; i++) {
    char folder[TT_TREE_PATH], speed[32];
    int before = l->count;
    if (!join(folder, "/sys/class/net", names.names[i])) {
      continue;
    }
    add_port(l, names.names[i], folder, 0);
    if (l->count > before && l->out[before].pci_path[0] == 0) {
      l->count = before; // loopback, bridges
    } else if (l->count > before) {
      tt_sysfs_text(l->tree, folder, "speed", speed, sizeof(speed));
      l->out[before].speed = tt_sysfs_number(speed, 0, 100000000, 0);
    }
  }
  tt_tree_names_free(&names);
  return ncclSuccess;
}

ncclResult_t tt_source_ports(const tt_tree *tree, tt_source_port *out, int max, int *count)
{
  port_list l = {.tree = tree, .out = out, .max = max};
  TT_TRY(list_ib(&l));
  if (l.count == 0) {
    TT_TRY(list_ethernet(&l));
  }
  *count = l.count;
  return ncclSuccess;
}
