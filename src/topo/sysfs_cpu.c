// sysfs_cpu.c: CPUs, and reading files that may be anything.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "topo/sysfs_priv.h"

enum { CPUINFO_BYTES = 16384 }; // the first core's block is at its begin

// ---- Files ----

static bool sysfs_is_plain(const char *text)
{
  for (; *text != 0; text++) {
    if (*text < 0x20 || *text > 0x7e) {
      return false;
    }
  }
  return true;
}

void tt_sysfs_text(const tt_tree *tree, const char *folder, const char *name, char *out, size_t size)
{
  char path[TT_TREE_PATH];
  out[0] = 0;
  if (folder[0] == 0 || snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path)) {
    return;
  }
  long n = tt_tree_read(tree, path, out, size);
  if (n <= 0) {
    out[0] = 0;
    return;
  }
  out[strcspn(out, "\n")] = 0;
  if (!sysfs_is_plain(out) || (size_t)n == size - 1) {
    tt_info(TT_GRAPH, "%s: %s is not a line of text, ignored", tt_tree_name(tree), path);
    out[0] = 0;
  }
}

int tt_sysfs_number(const char *text, int lo, int hi, int def)
{
  char *end = NULL;
  const char *digits = text[0] == '-' ? text + 1 : text;
  if (digits[0] < '0' || digits[0] > '9') {
    return def;
  }
  long value = strtol(text, &end, digits[0] == '0' && digits[1] == 'x' ? 16 : 10);
  return *end != 0 || value < lo || value > hi ? def : (int)value;
}

ncclResult_t tt_sysfs_init(tt_xml *xml, tt_xml_node *node, const char *name, const char *value)
{
  return tt_xml_get(node, name) != NULL ? ncclSuccess : tt_xml_set(xml, node, name, value);
}

// ---- What kind of CPU ----

// Value of a line "KEY<blanks>: VALUE" of /proc/cpuinfo, as it stands; false when there is none.
static bool cpuinfo_value(const char *info, const char *key, char *out, size_t size)
{
  size_t length = strlen(key);
  for (const char *at = info; *at != 0; at += strcspn(at, "\n"), at += *at != 0) {
    const char *colon = at + length;
    if (strncmp(at, key, length) != 0) {
      continue;
    }
    colon += strspn(colon, " \t");
    if (*colon != ':') {
      continue;
    }
    colon += colon[1] == ' ' ? 2 : 1;
    snprintf(out, size, "%.*s", (int)TT_MIN(strcspn(colon, "\n"), size - 1), colon);
    return sysfs_is_plain(out);
  }
  return false;
}

// The processor's own numbering, from the kernel's: that adds the extended family to 15, NCCL puts it in front.
static int family_of(int family)
{
  return family <= 15 ? family : 15 + ((family - 15) << 4);
}

static ncclResult_t fill_x86(tt_xml *xml, tt_xml_node *cpu, const char *info, const char *vendor)
{
  char text[64];
  TT_TRY(tt_sysfs_init(xml, cpu, "vendor", vendor));
  if (tt_xml_get(cpu, "familyid") != NULL) {
    return ncclSuccess;
  }
  int family = cpuinfo_value(info, "cpu family", text, sizeof(text)) ? tt_sysfs_number(text, 0, 15 + 255, -1) : -1;
  int model = cpuinfo_value(info, "model", text, sizeof(text)) ? tt_sysfs_number(text, 0, 255, -1) : -1;
  if (family >= 0) {
    TT_TRY(tt_xml_set_int(xml, cpu, "familyid", family_of(family)));
  }
  return model >= 0 ? tt_xml_set_int(xml, cpu, "modelid", model) : ncclSuccess;
}

// Sets what the attributes lack: arch, and on x86 vendor, family and model.
static ncclResult_t fill_kind(const tt_sysfs *s, tt_xml *xml, tt_xml_node *cpu)
{
  char info[CPUINFO_BYTES], text[64];
  if (tt_tree_read(s->tree, "/proc/cpuinfo", info, sizeof(info)) <= 0) {
    tt_info(TT_GRAPH, "%s: /proc/cpuinfo cannot be read: the kind of CPU is not known", tt_tree_name(s->tree));
    return ncclSuccess;
  }
  if (cpuinfo_value(info, "vendor_id", text, sizeof(text)) && strstr(info, "cpu family") != NULL) {
    TT_TRY(tt_sysfs_init(xml, cpu, "arch", "x86_64"));
    const char *arch = tt_xml_get(cpu, "arch");
    return strcmp(arch, "x86_64") == 0 ? fill_x86(xml, cpu, info, text) : ncclSuccess;
  }
  if (cpuinfo_value(info, "CPU implementer", text, sizeof(text))) {
    return tt_sysfs_init(xml, cpu, "arch", "arm64");
  }
  if (cpuinfo_value(info, "cpu", text, sizeof(text)) && strncmp(text, "POWER", 5) == 0) {
    return tt_sysfs_init(xml, cpu, "arch", "ppc64");
  }
  tt_info(TT_GRAPH, "%s: /proc/cpuinfo is of no kind of CPU that is known", tt_tree_name(s->tree));
  return ncclSuccess;
}

static ncclResult_t fill_cpu(const tt_sysfs *s, tt_xml *xml, tt_xml_node *cpu, int numa)
{
  if (tt_xml_get(cpu, "affinity") == NULL) {
    char folder[64], text[TT_SYSFS_TEXT] = "";
    snprintf(folder, sizeof(folder), "/sys/devices/system/node/node%d", numa);
    if (numa >= 0) {
      tt_sysfs_text(s->tree, folder, "cpumap", text, sizeof(text));
    }
    if (text[strspn(text, "0123456789abcdefABCDEF,")] != 0) {
      tt_info(TT_GRAPH, "%s: %s/cpumap is not a set of cores, ignored", tt_tree_name(s->tree), folder);
      text[0] = 0;
    }
    TT_TRY(tt_xml_set(xml, cpu, "affinity", text));
  }
  bool known = tt_xml_get(cpu, "arch") != NULL && tt_xml_get(cpu, "familyid") != NULL;
  return known ? ncclSuccess : fill_kind(s, xml, cpu);
}

ncclResult_t tt_sysfs_cpu(const tt_sysfs *s, tt_xml *xml, int numa, tt_xml_node **out)
{
  tt_xml_node *cpu = tt_xml_child(xml->root, "cpu");
  for (; cpu != NULL; cpu = tt_xml_sibling(cpu, "cpu")) {
    const char *have = tt_xml_get(cpu, "numaid");
    if (have != NULL && tt_sysfs_number(have, -1, 65535, -2) == numa) {
      break;
    }
  }
  if (cpu == NULL) {
    char hash[32];
    snprintf(hash, sizeof(hash), "0x%" PRIx64, s->host_hash);
    TT_TRY(tt_xml_add(xml, xml->root, "cpu", &cpu));
    TT_TRY(tt_xml_set(xml, cpu, "host_hash", hash));
    TT_TRY(tt_xml_set_int(xml, cpu, "numaid", numa));
  }
  TT_TRY(fill_cpu(s, xml, cpu, numa));
  *out = cpu;
  return ncclSuccess;
}

// ---- The first one ----

// Lowest number and count of the machine's NUMA nodes; *lowest is -1 when it shows none.
static ncclResult_t sysfs_list_nodes(const tt_sysfs *s, int *lowest, int *count)
{
  tt_tree_names names;
  TT_TRY(tt_tree_list(s->tree, "/sys/devices/system/node", &names));
  *lowest = -1;
  *count = 0;
  for (int i = 0; i < names.count; i++) {
    int numa = strncmp(names.names[i], "node", 4) == 0 ? tt_sysfs_number(names.names[i] + 4, 0, 65535, -1) : -1;
    if (numa >= 0) {
      *lowest = *count == 0 ? numa : TT_MIN(*lowest, numa);
      ++*count;
    }
  }
  tt_tree_names_free(&names);
  return ncclSuccess;
}

// Do PCI devices not say on which node they are? The first one speaks for all.
static ncclResult_t pci_is_silent(const tt_sysfs *s, bool *out)
{
  char path[TT_TREE_PATH], numa[32];
  tt_tree_names names;
  TT_TRY(tt_tree_list(s->tree, "/sys/bus/pci/devices", &names));
  *out = false;
  if (names.count > 0 && snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", names.names[0]) < (int)sizeof(path)) {
    tt_sysfs_text(s->tree, path, "numa_node", numa, sizeof(numa));
    *out = tt_sysfs_number(numa, -1, 65535, -1) == -1;
  }
  tt_tree_names_free(&names);
  return ncclSuccess;
}

ncclResult_t tt_sysfs_home(const tt_sysfs *s, int numa, int *out)
{
  int lowest, count;
  bool silent;
  TT_TRY(sysfs_list_nodes(s, &lowest, &count));
  TT_TRY(pci_is_silent(s, &silent));
  if (silent && count <= 1) {
    *out = -1; // beside the devices
  } else {
    *out = numa >= 0 ? numa : silent ? -1 : lowest;
  }
  return ncclSuccess;
}

ncclResult_t tt_sysfs_first_cpu(const tt_sysfs *s, tt_xml *xml, tt_xml_node **out)
{
  int numa;
  for (tt_xml_node *cpu = tt_xml_child(xml->root, "cpu"); cpu != NULL; cpu = tt_xml_sibling(cpu, "cpu")) {
    const char *have = tt_xml_get(cpu, "numaid");
    if (cpu->line > 0 || (have != NULL && strcmp(have, "-1") == 0)) {
      *out = cpu;
      return ncclSuccess;
    }
  }
  TT_TRY(tt_sysfs_home(s, -1, &numa));
  return tt_sysfs_cpu(s, xml, numa, out);
}
