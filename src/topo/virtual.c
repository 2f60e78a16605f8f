// virtual.c: where a port that is made of several stands. See source_priv.h; what is made up follows NCCL, but for its
// bus id, whose domain is our own.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "topo/source_priv.h"
#include "topo/sysfs_priv.h"
#include "topo/system.h"

enum { DOMAIN = 0xfffd, MOST_WIDTH = 64 };

// The <pci>s of a port's parts.
typedef struct parts {
  tt_xml_node *pci[TT_SOURCE_PARTS];
  int n;
} parts;

static bool is_above(const tt_xml_node *up, const tt_xml_node *n)
{
  while (n != NULL && n != up) {
    n = n->parent;
  }
  return n == up;
}

// The lowest element that all parts are, or stand below.
static tt_xml_node *common_of(const parts *p)
{
  tt_xml_node *up = p->pci[0];
  for (int i = 1; i < p->n; i++) {
    while (up->parent != NULL && !is_above(up, p->pci[i])) {
      up = up->parent;
    }
  }
  return up;
}

static bool is_part(const parts *p, const tt_xml_node *n)
{
  for (int i = 0; i < p->n; i++) {
    if (p->pci[i] == n) {
      return true;
    }
  }
  return false;
}

static int own_width(const tt_xml_node *n)
{
  const char *text = tt_xml_get(n, "link_width");
  int width = text != NULL ? tt_sysfs_number(text, 0, MOST_WIDTH, 0) : 0;
  return width > 0 ? width : 16;
}

// Lanes that lead from `n` to parts: its own, or those of what is below it, if these are fewer. The depth of documents
// is limited, so is the recursion.
static int width_below(const parts *p, const tt_xml_node *n)
{
  if (is_part(p, n)) {
    return own_width(n);
  }
  int sum = 0;
  for (const tt_xml_node *c = n->child; c != NULL; c = c->next) {
    sum += width_below(p, c);
  }
  return sum > 0 && tt_xml_is(n, "pci") ? TT_MIN(sum, own_width(n)) : sum;
}

static int virtual_width_of(const parts *p, const tt_xml_node *common)
{
  int sum = 0;
  for (const tt_xml_node *c = common->child; c != NULL; c = c->next) {
    sum += width_below(p, c);
  }
  return TT_MIN(sum, MOST_WIDTH);
}

// Functions of one device share its link.
static bool are_functions(const parts *p)
{
  const char *first = tt_xml_get(p->pci[0], "busid");
  for (int i = 1; first != NULL && i < p->n; i++) {
    const char *bus = tt_xml_get(p->pci[i], "busid");
    if (bus == NULL || strlen(bus) != strlen(first) || strncmp(bus, first, strlen(first) - 1) != 0) {
      return false;
    }
  }
  return first != NULL;
}

// A bus id that no element has: that of the first part in a domain of our own, or the next free one.
static void make_bus(const tt_xml *xml, const parts *p, char out[16])
{
  const char *first = tt_xml_get(p->pci[0], "busid");
  int64_t number = 0;
  if (first == NULL || !tt_bus_id(first, &number)) {
    number = 0;
  }
  unsigned low = (unsigned)(number & 0xfffff); // two digits of the bus, two of the device, one of the function
  do {
    snprintf(out, 16, "%04x:%02x:%02x.%x", DOMAIN, low >> 12 & 0xff, low >> 4 & 0xff, low & 0xf);
    low++;
  } while (tt_sysfs_find(xml, "pci", "busid", out) != NULL);
}

// Below `parent`; `common` is what the parts have in common.
static ncclResult_t make_up(tt_xml *xml, const parts *p, const tt_xml_node *common, tt_xml_node *parent,
                            tt_xml_node **out)
{
  static const char *const same[] = {"class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed"};
  char bus[16];
  make_bus(xml, p, bus);
  int width = are_functions(p) ? own_width(p->pci[0]) : virtual_width_of(p, common);
  TT_TRY(tt_sysfs_add_pci(xml, parent, bus, out));
  for (size_t i = 0; i < TT_COUNT(same); i++) {
    const char *value = tt_xml_get(p->pci[0], same[i]);
    TT_TRY(value != NULL ? tt_xml_set(xml, *out, same[i], value) : ncclSuccess);
  }
  return tt_xml_set_int(xml, *out, "link_width", width);
}

// The <cpu> above an element.
static tt_xml_node *cpu_of(tt_xml_node *n)
{
  while (n != NULL && !tt_xml_is(n, "cpu")) {
    n = n->parent;
  }
  return n;
}

ncclResult_t tt_source_virtual(const tt_source *in, tt_xml *xml, const tt_source_net *n, tt_xml_node **out)
{
  parts p = {.n = TT_MIN(n->nparts, TT_SOURCE_PARTS)};
  for (int i = 0; i < p.n; i++) {
    char bus[16];
    const char *path = n->part_paths[i];
    if (path == NULL || path[0] == '\0' || !tt_sysfs_bus_of(&in->machine, path, bus)) {
      tt_info(TT_GRAPH | TT_NET, "%s: %.256s is not a PCI device; attached to the first CPU", n->name,
              path != NULL ? path : "one of its parts");
      return tt_sysfs_first_cpu(&in->machine, xml, out);
    }
    TT_TRY(tt_sysfs_pci(&in->machine, xml, bus, "0x02", NULL, &p.pci[i]));
  }
  tt_xml_node *common = common_of(&p), *parent = common;
  if (is_part(&p, common)) {
    *out = common;
    return ncclSuccess;
  }
  if (!tt_xml_is(common, "pci") && !tt_xml_is(common, "cpu")) {
    tt_info(TT_GRAPH | TT_NET, "%s is made of ports of different CPUs; it counts as beside the first", n->name);
    parent = cpu_of(p.pci[0]);
  }
  return parent != NULL ? make_up(xml, &p, common, parent, out) : tt_sysfs_first_cpu(&in->machine, xml, out);
}
