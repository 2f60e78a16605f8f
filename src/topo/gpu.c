// gpu.c: the element of a GPU in a document of the machine, from what NVML or a capture says of it.
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "topo/nvml.h"
#include "topo/sysfs_priv.h"

#define NVSWITCH_CLASS "0x068000"
#define GPU_CLASS "0x030200"

static ncclResult_t gpu_add_links(tt_xml *xml, tt_xml_node *gpu, const tt_gpu_facts *facts)
{
  for (int i = 0; i < facts->nlinks; i++) {
    tt_xml_node *link = NULL;
    TT_TRY(tt_xml_add(xml, gpu, "nvlink", &link));
    TT_TRY(tt_xml_set(xml, link, "target", facts->links[i].target));
    TT_TRY(tt_xml_set_int(xml, link, "count", facts->links[i].count));
  }
  return ncclSuccess;
}

static ncclResult_t gpu_add_c2c(tt_xml *xml, tt_xml_node *gpu, const tt_gpu_facts *facts)
{
  tt_xml_node *c2c = NULL;
  TT_TRY(tt_xml_add(xml, gpu, "c2c", &c2c));
  TT_TRY(tt_xml_set_int(xml, c2c, "bw", facts->c2c_bw));
  return tt_xml_set_int(xml, c2c, "count", facts->c2c_count);
}

// Class of the device at the far end of a link: as sysfs, the document or NVML know it. What none of them knows is an
// NVSwitch outside of a virtual machine.
static const char *far_class(const tt_sysfs *s, const tt_xml *xml, const char *target, char room[32])
{
  tt_gpu_facts facts;
  if (target == NULL || tt_sysfs_class(s, target, room)) {
    return target != NULL ? room : NVSWITCH_CLASS;
  }
  const tt_xml_node *pci = tt_sysfs_find(xml, "pci", "busid", target);
  const char *class = pci != NULL ? tt_xml_get(pci, "class") : NULL;
  return class != NULL && class[0] != 0 ? class : tt_gpu_facts_read(s, target, &facts) ? GPU_CLASS : NVSWITCH_CLASS;
}

static ncclResult_t gpu_set_target_classes(const tt_sysfs *s, tt_xml *xml, tt_xml_node *gpu)
{
  for (tt_xml_node *l = tt_xml_child(gpu, "nvlink"); l != NULL; l = tt_xml_sibling(l, "nvlink")) {
    char class[32];
    if (tt_xml_get(l, "tclass") == NULL) {
      TT_TRY(tt_xml_set(xml, l, "tclass", far_class(s, xml, tt_xml_get(l, "target"), class)));
    }
  }
  return ncclSuccess;
}

static void gpu_hints(const tt_gpu_facts *facts, tt_sysfs_hints *out)
{
  static const char *generations[] = {
      NULL, "2.5 GT/s PCIe", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"};
  const unsigned ids[] = {(unsigned)facts->device_id & 0xffff, (unsigned)facts->device_id >> 16,
                          (unsigned)facts->subsystem_id & 0xffff, (unsigned)facts->subsystem_id >> 16};
  *out = (tt_sysfs_hints){.speed = generations[facts->generation], .width = facts->width};
  for (size_t i = 0; i < TT_COUNT(ids) && facts->device_id != 0; i++) {
    snprintf(out->ids[i], sizeof(out->ids[i]), "0x%04x", ids[i]);
  }
}

ncclResult_t tt_gpu_element(const tt_sysfs *s, tt_xml *xml, const char *bus_id, tt_xml_node **out)
{
  tt_gpu_facts facts = {0};
  tt_sysfs_hints hints;
  tt_xml_node *pci = NULL;
  bool known = tt_gpu_facts_read(s, bus_id, &facts);
  gpu_hints(&facts, &hints);
  *out = NULL;
  TT_TRY(tt_sysfs_pci(s, xml, bus_id, "0x03", known ? &hints : NULL, &pci));
  tt_xml_node *gpu = tt_xml_child(pci, "gpu");
  if (gpu == NULL && !known) {
    tt_info(TT_GRAPH, "%s: PCI device %s is not known as a GPU", tt_tree_name(s->tree), bus_id);
    return ncclSuccess;
  }
  if (gpu == NULL) {
    TT_TRY(tt_xml_add(xml, pci, "gpu", &gpu));
  }
  if (known && tt_xml_get(gpu, "dev") == NULL) {
    TT_TRY(tt_xml_set_int(xml, gpu, "dev", facts.index));
  }
  if (known && tt_xml_get(gpu, "sm") == NULL) {
    TT_TRY(tt_xml_set_int(xml, gpu, "sm", facts.sm));
  }
  if (known && tt_xml_child(gpu, "nvlink") == NULL) {
    TT_TRY(gpu_add_links(xml, gpu, &facts));
  }
  if (known && facts.c2c_count > 0 && tt_xml_child(gpu, "c2c") == NULL) {
    TT_TRY(gpu_add_c2c(xml, gpu, &facts));
  }
  TT_TRY(gpu_set_target_classes(s, xml, gpu));
  *out = tt_xml_get(gpu, "dev") != NULL ? gpu : NULL;
  return ncclSuccess;
}
