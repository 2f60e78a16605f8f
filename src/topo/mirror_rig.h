// mirror_rig.h: for tests: the machine that a document describes, as files (source_rig.h), so that detection can find
// it again; and whether it has.
//
// Of each PCI device there is what sysfs shows, with the ports above it: their bus ids are made up. GPUs and NVLinks
// are not among the files; tests/fakenvml tells them from the same document.
#pragma once
#include <strings.h>

#include "topo/source_rig.h"

enum { MIRROR_MOST = 512, MIRROR_PORTS = 0xe000 };

typedef struct mirror {
  const char *name; // of the document
  tt_xml *xml;      // what of it takes part
  rig_machine files;
  tt_source_rank ranks[MIRROR_MOST];
  char bus[MIRROR_MOST][16];
  int nranks;
  tt_source_net nets[MIRROR_MOST];
  char paths[MIRROR_MOST][1024];
  int nnets;
  int ports; // made up so far
  uint64_t host;
} mirror;

RIG const char *mirror_text(const tt_xml_node *n, const char *name, const char *missing)
{
  const char *text = tt_xml_get(n, name);
  return text != NULL && text[0] != 0 ? text : missing;
}

RIG int mirror_number(const tt_xml_node *n, const char *name, int missing)
{
  const char *text = mirror_text(n, name, NULL);
  return text != NULL ? (int)strtol(text, NULL, 0) : missing;
}

RIG void mirror_gpu(mirror *m, const tt_xml_node *gpu, const char *bus)
{
  assert_true(m->nranks < MIRROR_MOST);
  int i = m->nranks++;
  strcpy(m->bus[i], bus);
  m->ranks[i] = (tt_source_rank){.bus_id = m->bus[i],
                                 .rank = mirror_number(gpu, "rank", -1),
                                 .dev = mirror_number(gpu, "dev", 0),
                                 .gdr = mirror_number(gpu, "gdr", 0)};
}

// A port's place in the list is its number. `path` below /sys/devices; NULL: it is no PCI device.
RIG void mirror_net(mirror *m, const tt_xml_node *net, const char *path)
{
  int dev = mirror_number(net, "dev", -1);
  assert_true(dev >= 0 && dev < MIRROR_MOST);
  m->nnets = TT_MAX(m->nnets, dev + 1);
  if (path != NULL) {
    snprintf(m->paths[dev], sizeof(m->paths[dev]), "/sys/devices/%.900s", path);
  }
  m->nets[dev] = (tt_source_net){.name = tt_xml_get(net, "name"),
                                 .pci_path = path != NULL ? m->paths[dev] : NULL,
                                 .speed = mirror_number(net, "speed", 0),
                                 .port = mirror_number(net, "port", 0),
                                 .maxconn = mirror_number(net, "maxconn", 64),
                                 .gdr = mirror_number(net, "gdr", 0),
                                 .coll = mirror_number(net, "coll", 0),
                                 .rail = mirror_number(net, "rail", -1),
                                 .plane = mirror_number(net, "plane", -1),
                                 .latency = strtof(mirror_text(net, "latency", "0"), NULL),
                                 .guid = tt_xml_get(net, "guid") != NULL ? strtoull(tt_xml_get(net, "guid"), NULL, 16)
                                                                         : (uint64_t)dev};
}

RIG void mirror_nic(mirror *m, const tt_xml_node *nic, const char *path)
{
  for (const tt_xml_node *net = tt_xml_child(nic, "net"); net != NULL; net = tt_xml_sibling(net, "net")) {
    mirror_net(m, net, path);
  }
}

// The files of the device in `path`.
RIG void mirror_files(mirror *m, const tt_xml_node *pci, const char *path, const char *bus, int numa)
{
  static const char *names[] = {"class", "vendor", "device", "subsystem_vendor", "subsystem_device"};
  rig_line(&m->files, "l /sys/bus/pci/devices/%s ../../../devices/%s", bus, path);
  rig_line(&m->files, "l /sys/devices/%s/subsystem ../../../../bus/pci", path);
  rig_line(&m->files, "f /sys/devices/%s/numa_node %d\\n", path, numa);
  for (int i = 0; i < 5; i++) {
    if (tt_xml_get(pci, names[i]) != NULL) {
      rig_line(&m->files, "f /sys/devices/%s/%s %s\\n", path, names[i], tt_xml_get(pci, names[i]));
    }
  }
  char port[1024];
  snprintf(port, sizeof(port), "%s", path);
  *strrchr(port, '/') = 0;
  const char *ways[] = {path, port}; // both ends of its link
  for (int i = 0; i < 2; i++) {
    rig_line(&m->files, "f /sys/devices/%s/max_link_speed %s\\n", ways[i], mirror_text(pci, "link_speed", ""));
    rig_line(&m->files, "f /sys/devices/%s/max_link_width %s\\n", ways[i], mirror_text(pci, "link_width", "0"));
  }
  for (const tt_xml_node *l = tt_xml_child(pci, "pcilink"); l != NULL; l = tt_xml_sibling(l, "pcilink")) {
    char target[16];
    assert_true(tt_bus_id_sysfs(tt_xml_get(l, "target"), target));
    rig_line(&m->files, "f /sys/kernel/pci_switch_link/virtual_switch_links/%s/%s ", bus, target);
  }
}

// A device below what `above` is: "pci0000:00", or a switch's upstream port.
RIG void mirror_pci(mirror *m, const tt_xml_node *pci, const char *above, int numa)
{
  char bus[16], path[1024];
  assert_true(tt_bus_id_sysfs(tt_xml_get(pci, "busid"), bus));
  int port = m->ports++;
  snprintf(path, sizeof(path), "%.900s/%04x:%02x:00.0/%s", above, MIRROR_PORTS + port / 256, port % 256, bus);
  mirror_files(m, pci, path, bus, numa);
  for (const tt_xml_node *c = pci->child; c != NULL; c = c->next) {
    if (tt_xml_is(c, "pci")) {
      mirror_pci(m, c, path, numa);
    } else if (tt_xml_is(c, "gpu")) {
      mirror_gpu(m, c, bus);
    } else if (tt_xml_is(c, "nic")) {
      mirror_nic(m, c, path);
    }
  }
}

// What the kernel says of a CPU: family 23 is 143 in documents.
RIG void mirror_cpuinfo(mirror *m, const tt_xml_node *cpu)
{
  const char *arch = mirror_text(cpu, "arch", "");
  int family = mirror_number(cpu, "familyid", -1), model = mirror_number(cpu, "modelid", -1);
  if (strcmp(arch, "arm64") == 0) {
    rig_line(&m->files, "f /proc/cpuinfo processor\\t: 0\\nCPU implementer\\t: 0x41\\n");
  } else if (strcmp(arch, "ppc64") == 0) {
    rig_line(&m->files, "f /proc/cpuinfo processor\\t: 0\\ncpu\\t\\t: POWER9\\n");
  } else if (strcmp(arch, "x86_64") == 0) {
    rig_line(&m->files, "f /proc/cpuinfo processor\\t: 0\\nvendor_id\\t: %s\\ncpu family\\t: %d\\nmodel\\t\\t: %d\\n",
             mirror_text(cpu, "vendor", ""), family <= 15 ? family : 15 + (family - 15) / 16, model);
  }
}

RIG void mirror_cpu(mirror *m, const tt_xml_node *cpu, int number)
{
  int numa = mirror_number(cpu, "numaid", -1);
  char root[32];
  if (numa >= 0) {
    rig_line(&m->files, "f /sys/devices/system/node/node%d/cpumap %s\\n", numa, mirror_text(cpu, "affinity", ""));
  }
  for (const tt_xml_node *c = cpu->child; c != NULL; c = c->next) {
    snprintf(root, sizeof(root), "pci%04x:%02x", MIRROR_PORTS, number);
    if (tt_xml_is(c, "pci")) {
      mirror_pci(m, c, root, numa);
    } else if (tt_xml_is(c, "nic")) {
      mirror_nic(m, c, NULL);
    }
  }
}

// Far ends of NVLinks that are in no <pci>, such as NVSwitches, are devices, too.
RIG void mirror_targets(mirror *m)
{
  for (const tt_xml_node *n = m->xml->root; n != NULL; n = tt_xml_walk(m->xml->root, n)) {
    char bus[16], known[64];
    const char *class = tt_xml_get(n, "tclass");
    if (!tt_xml_is(n, "nvlink") || class == NULL || !tt_bus_id_sysfs(mirror_text(n, "target", ""), bus)) {
      continue;
    }
    snprintf(known, sizeof(known), "/sys/bus/pci/devices/%s ", bus);
    if (strstr(m->files.text, known) == NULL) {
      rig_line(&m->files, "l /sys/bus/pci/devices/%s ../../../devices/pcie000:ff/%s", bus, bus);
      rig_line(&m->files, "f /sys/devices/pcie000:ff/%s/class %s\\n", bus, class);
    }
  }
}

RIG int mirror_by_rank(const void *a, const void *b)
{
  return ((const tt_source_rank *)a)->rank - ((const tt_source_rank *)b)->rank;
}

// Reads the document `path`.
RIG mirror *mirror_load(const char *path)
{
  mirror *m = calloc(1, sizeof(*m));
  int number = 0;
  m->name = path;
  m->xml = rig_read(path);
  for (tt_xml_node *n = m->xml->root; n != NULL; n = tt_xml_walk(m->xml->root, n)) {
    if ((tt_xml_is(n, "gpu") && tt_xml_get(n, "rank") != NULL) ||
        (tt_xml_is(n, "net") && tt_xml_get(n, "dev") != NULL)) {
      assert_int_equal(tt_xml_set_int(m->xml, n, "keep", 1), ncclSuccess);
    }
  }
  tt_source_trim(m->xml);
  rig_begin(&m->files);
  for (tt_xml_node *cpu = tt_xml_child(m->xml->root, "cpu"); cpu != NULL; cpu = tt_xml_sibling(cpu, "cpu")) {
    if (number == 0) {
      mirror_cpuinfo(m, cpu);
      m->host = strtoull(mirror_text(cpu, "host_hash", "0"), NULL, 16);
    }
    mirror_cpu(m, cpu, number++);
  }
  mirror_targets(m);
  qsort(m->ranks, (size_t)m->nranks, sizeof(m->ranks[0]), mirror_by_rank);
  return m;
}

// A <pci> behind `n` that has the same bus id.
RIG bool mirror_is_twice(const tt_xml *xml, const tt_xml_node *n)
{
  const char *bus = tt_xml_get(n, "busid");
  for (const tt_xml_node *o = tt_xml_walk(xml->root, n); o != NULL; o = tt_xml_walk(xml->root, o)) {
    const char *other = tt_xml_is(o, "pci") ? tt_xml_get(o, "busid") : NULL;
    if (other != NULL && strcasecmp(bus, other) == 0) {
      return true;
    }
  }
  return false;
}

RIG int mirror_links(const tt_xml_node *gpu)
{
  int count = 0;
  for (const tt_xml_node *l = tt_xml_child(gpu, "nvlink"); l != NULL; l = tt_xml_sibling(l, "nvlink")) {
    count += mirror_number(l, "count", 0);
  }
  return count;
}

// The CPU that ports without a PCI device are beside.
RIG const tt_xml_node *mirror_first_cpu(const mirror *m)
{
  const tt_xml_node *first = tt_xml_child(m->xml->root, "cpu");
  for (const tt_xml_node *cpu = first; cpu != NULL; cpu = tt_xml_sibling(cpu, "cpu")) {
    first = mirror_number(cpu, "numaid", -1) < mirror_number(first, "numaid", -1) ? cpu : first;
  }
  return first;
}

// Why no machine is like the document; NULL: one is. Some were written by hand.
RIG const char *mirror_doubt(const mirror *m)
{
  const tt_xml_node *first = mirror_first_cpu(m);
  for (const tt_xml_node *n = m->xml->root; n != NULL; n = tt_xml_walk(m->xml->root, n)) {
    int sm = mirror_number(n, "sm", 0), family = mirror_number(n, "familyid", 0);
    if (family > 15 && family % 16 != 15) {
      return "the CPU's family is in the kernel's numbering";
    }
    if (tt_xml_is(n, "pci") && mirror_is_twice(m->xml, n)) {
      return "two devices have one bus id";
    }
    if (tt_xml_is(n, "nic") && tt_xml_is(n->parent, "cpu") && n->parent != first) {
      return "a port without a PCI device is at another than the first CPU";
    }
    if (tt_xml_is(n, "gpu") && mirror_links(n) > (sm < 70 ? 4 : sm < 80 ? 6 : sm < 90 ? 12 : 18)) {
      return "a GPU has more NVLinks than GPUs of its kind";
    }
  }
  return m->nranks > 0 ? NULL : "it has no ranks";
}

RIG void mirror_free(mirror *m)
{
  tt_xml_destroy(m->xml);
  free(m);
}

// What is detected on it; tt_xml_destroy frees it. `rank`: the view of that one; -1: of all.
RIG tt_xml *mirror_detect(const mirror *m, const tt_nvml *nvml, int rank)
{
  tt_tree *tree = rig_capture(&m->files);
  tt_xml *xml = NULL;
  tt_source in = {.machine = {.tree = tree, .gpu = tt_gpu_element, .nvml = nvml, .host_hash = m->host},
                  .ranks = rank < 0 ? m->ranks : &m->ranks[rank],
                  .nranks = rank < 0 ? m->nranks : 1,
                  .nets = m->nets,
                  .nnets = m->nnets};
  if (tt_source_detect(&in, &xml) != ncclSuccess) {
    fail_msg("%s: %s", m->name, tt_last_error());
  }
  tt_tree_close(tree);
  return xml;
}

// ---- Is it the same? ----

// What tells elements of one name apart.
RIG const char *mirror_key(const tt_xml_node *n)
{
  static const char *keys[][2] = {{"cpu", "numaid"}, {"pci", "busid"},     {"gpu", "rank"},
                                  {"net", "name"},   {"nvlink", "target"}, {"pcilink", "target"}};
  for (size_t i = 0; i < TT_COUNT(keys); i++) {
    if (tt_xml_is(n, keys[i][0])) {
      return mirror_text(n, keys[i][1], "");
    }
  }
  return "";
}

// The same text, number or bus id. Dumps have two spellings of a far end that is not shown.
RIG bool mirror_same_value(const char *a, const char *b)
{
  char *enda = NULL, *endb = NULL, busa[16], busb[16];
  if (strcasecmp(a, b) == 0 || (strncmp(a, "fffffff:", 8) == 0 && strncmp(b, "fffffff:", 8) == 0)) {
    return true;
  }
  if (tt_bus_id_sysfs(a, busa) && tt_bus_id_sysfs(b, busb)) {
    return strcmp(busa, busb) == 0;
  }
  double x = strtod(a, &enda), y = strtod(b, &endb);
  return *enda == 0 && *endb == 0 && (a[0] == 0 ? 0 : x) == (b[0] == 0 ? 0 : y);
}

RIG int mirror_children(const tt_xml_node *n)
{
  int count = 0;
  for (const tt_xml_node *c = n->child; c != NULL; c = c->next) {
    count++;
  }
  return count;
}

RIG tt_xml_node *mirror_find(const tt_xml_node *parent, const tt_xml_node *like)
{
  for (tt_xml_node *c = tt_xml_child(parent, like->tag); c != NULL; c = tt_xml_sibling(c, like->tag)) {
    if (mirror_same_value(mirror_key(c), mirror_key(like))) {
      return c;
    }
  }
  return NULL;
}

// Has `found` the attributes and elements of `told`, and no other elements? Tells the first that is otherwise.
RIG void mirror_compare(const mirror *m, const tt_xml_node *told, const tt_xml_node *found)
{
  for (const tt_xml_attr *a = told->attrs; a != NULL; a = a->next) {
    const char *have = tt_xml_get(found, a->name);
    if (have == NULL || !mirror_same_value(a->value, have)) {
      fail_msg("%s:%d: <%s %s>: %s=\"%s\", found is %s", m->name, told->line, told->tag, mirror_key(told), a->name,
               a->value, have != NULL ? have : "nothing");
    }
  }
  for (const tt_xml_node *c = told->child; c != NULL; c = c->next) {
    const tt_xml_node *same = mirror_find(found, c);
    if (same == NULL) {
      fail_msg("%s:%d: <%s %s> is not found in <%s %s>", m->name, c->line, c->tag, mirror_key(c), told->tag,
               mirror_key(told));
    }
    mirror_compare(m, c, same);
  }
  if (mirror_children(told) != mirror_children(found)) {
    fail_msg("%s:%d: <%s %s> has %d elements, found are %d", m->name, told->line, told->tag, mirror_key(told),
             mirror_children(told), mirror_children(found));
  }
}
