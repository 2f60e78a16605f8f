// lint_slots.c: PCI slots that run slower than what is in them, and network cards.
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "lint_priv.h"
#include "topo/source.h"
#include "topo/system.h"

static const xp_reason trained_down = {
    XP_WARNING, "every path through this slot is slower than the device could be",
    "compare current_link_speed and _width with max_ in sysfs; reseat the card; look at the BIOS and the switch"};
static const xp_reason odd_width = {XP_WARNING, "PCI links have 1, 2, 4, 8, 12, 16 or 32 lanes; 0 counts as 16",
                                    "correct link_width"};
static const xp_reason narrow_up = {
    XP_NOTE, "what is below shares this link and cannot use its own fully",
    "nothing, where the machine is built so; else look whether the switch's upper link has trained down"};
static const xp_reason card_narrow = {XP_WARNING, "the card cannot send at the speed of its ports",
                                      "put it into a wider or newer slot; see whether the link has trained down"};
static const xp_reason gpu_class = {XP_NOTE, "a GPU's class is 0x03…, or 0x12…", "write the class that sysfs says"};
static const xp_reason nic_class = {XP_NOTE, "a network card's class is 0x02…", "write the class that sysfs says"};
static const xp_reason no_speed = {XP_WARNING, "counts as 10 Gbit/s", "write the port's speed in Mbit/s"};
static const xp_reason low_speed = {XP_WARNING, "speed is in Mbit/s: 400 Gbit/s are 400000",
                                    "correct the unit, if that is what is wrong"};
static const xp_reason high_speed = {
    XP_WARNING, "speed is in Mbit/s; no port is that fast, and the network would win where it should not",
    "correct the unit, if that is what is wrong"};
static const xp_reason slower_port = {XP_WARNING, "channels are as fast as the slowest port",
                                      "look at the cable, the switch port and autonegotiation"};
static const xp_reason same_guid = {XP_NOTE, "ports of one GUID count as one card",
                                    "write each card's own GUID; two ports of one card differ in `port`"};
static const xp_reason odd_latency = {XP_WARNING, "latency is in microseconds, and counts for small messages",
                                      "correct the unit"};
static const xp_reason odd_c2c = {XP_WARNING, "C2C is in MB/s of one link, times count", "correct bw or count"};

static bool is(const tt_xml_node *x, const char *tag)
{
  return strcmp(x->tag, tag) == 0;
}

static float slot_bandwidth(const tt_xml_node *pci)
{
  const char *speed = tt_xml_get(pci, "link_speed");
  long long width = xp_number(pci, "link_width", 0);
  float bw = 0;
  tt_bw_pci(speed != NULL ? speed : "", width >= 0 && width <= 64 ? (int)width : 0, &bw);
  return bw;
}

static bool known_slot(const tt_xml_node *pci)
{
  float bw;
  const char *speed = tt_xml_get(pci, "link_speed");
  return speed != NULL && tt_bw_pci(speed, 16, &bw) && xp_number(pci, "link_width", 0) > 0;
}

// What a GPU's slot has when all is well, in GT/s; 0: not known.
static int gpu_rate(const tt_xml_node *gpu)
{
  static const struct {
    int sm, rate;
  } nvidia[] = {{60, 8},  {61, 8},  {70, 8},   {75, 8},   {80, 16},  {86, 16},
                {89, 16}, {90, 32}, {100, 32}, {103, 32}, {120, 32}, {121, 32}};
  const char *gcn = tt_xml_get(gpu, "gcn");
  long long sm = xp_number(gpu, "sm", 0);
  if (gcn != NULL) {
    long value = strtol(strncmp(gcn, "gfx", 3) == 0 ? gcn + 3 : gcn, NULL, 16);
    return value >= 0x940 && value < 0x1000 ? 32 : value >= 0x906 && value < 0x1000 ? 16 : 0;
  }
  for (size_t i = 0; i < TT_COUNT(nvidia); i++) {
    if (nvidia[i].sm == sm) {
      return nvidia[i].rate;
    }
  }
  return 0;
}

static void check_gpu_slot(xp_findings *f, const tt_xml_node *pci, const tt_xml_node *gpu)
{
  const char *speed = tt_xml_get(pci, "link_speed"), *class = tt_xml_get(pci, "class");
  int rate = gpu_rate(gpu);
  long long width = xp_number(pci, "link_width", 0);
  bool host = class != NULL && strcmp(class, TT_SOURCE_HOST_CLASS) == 0 && xp_number(gpu, "sm", -1) == 0;
  if (class != NULL && !host && strncmp(class, "0x03", 4) != 0 && strncmp(class, "0x12", 4) != 0) {
    xp_find(f, pci, &gpu_class, "class=\"%.16s\" of a GPU", class);
  }
  if (rate == 0 || !known_slot(pci)) {
    return;
  }
  float now = strtof(speed, NULL);
  if (now < (float)rate || width < 16) {
    xp_find(f, pci, &trained_down,
            "link_speed=\"%.32s\" link_width=\"%lld\": %.4g GB/s; this GPU has %d GT/s and 16 lanes", speed, width,
            (double)slot_bandwidth(pci), rate);
  }
}

static void check_width(xp_findings *f, const tt_xml_node *pci)
{
  static const int widths[] = {1, 2, 4, 8, 12, 16, 32};
  long long width = xp_number(pci, "link_width", 16);
  bool known = width == 0 && !known_slot(pci); // nothing is known at all, as in virtual machines
  for (size_t i = 0; i < TT_COUNT(widths); i++) {
    known |= widths[i] == width;
  }
  if (!known) {
    xp_find(f, pci, &odd_width, "link_width=\"%lld\"", width);
  }
}

static void check_up(xp_findings *f, const tt_xml_node *pci)
{
  const tt_xml_node *widest = NULL;
  for (const tt_xml_node *c = tt_xml_child(pci, "pci"); c != NULL; c = tt_xml_sibling(c, "pci")) {
    if (known_slot(c) && (widest == NULL || slot_bandwidth(c) > slot_bandwidth(widest))) {
      widest = c;
    }
  }
  if (widest != NULL && known_slot(pci) && slot_bandwidth(widest) > slot_bandwidth(pci) * 1.01f) {
    xp_find(f, pci, &narrow_up, "%.4g GB/s upwards, but %.4g to the device at line %d", (double)slot_bandwidth(pci),
            (double)slot_bandwidth(widest), widest->line);
  }
}

static void check_nic_slot(xp_findings *f, const tt_xml_node *pci, const tt_xml_node *nic)
{
  const char *class = tt_xml_get(pci, "class");
  double ports = 0;
  for (const tt_xml_node *n = tt_xml_child(nic, "net"); n != NULL; n = tt_xml_sibling(n, "net")) {
    double speed = (double)xp_number(n, "speed", 0) / 8000;
    ports = TT_MAX(ports, speed);
  }
  if (class != NULL && strncmp(class, "0x02", 4) != 0) {
    xp_find(f, pci, &nic_class, "class=\"%.16s\" of a network card", class);
  }
  if (known_slot(pci) && ports > (double)slot_bandwidth(pci) * 1.1 && ports < 300) {
    xp_find(f, pci, &card_narrow, "link_speed=\"%.32s\" link_width=\"%lld\": %.4g GB/s for a port of %.4g GB/s",
            tt_xml_get(pci, "link_speed"), xp_number(pci, "link_width", 0), (double)slot_bandwidth(pci), ports);
  }
}

static void check_slot(xp_findings *f, const tt_xml_node *pci)
{
  const tt_xml_node *gpu = tt_xml_child(pci, "gpu"), *nic = tt_xml_child(pci, "nic");
  check_width(f, pci);
  check_up(f, pci);
  if (gpu != NULL) {
    check_gpu_slot(f, pci, gpu);
  }
  if (nic != NULL) {
    check_nic_slot(f, pci, nic);
  }
}

// ---- Ports ----

// Ports of the same sort of card: what runs slower than its like has a cause.
static bool same_card(const tt_xml_node *a, const tt_xml_node *b)
{
  const tt_xml_node *x = a->parent->parent, *y = b->parent->parent;
  const char *device = x != NULL ? tt_xml_get(x, "device") : NULL, *other = y != NULL ? tt_xml_get(y, "device") : NULL;
  return device != NULL && other != NULL && is(x, "pci") && is(y, "pci") && strcmp(device, other) == 0;
}

static void check_port(xp_findings *f, const tt_xml_node *net, const tt_xml_node *fastest)
{
  long long speed = xp_number(net, "speed", 0);
  const char *latency = tt_xml_get(net, "latency");
  if (speed <= 0 && tt_xml_get(net, "speed") != NULL) {
    xp_find(f, net, &no_speed, "speed=\"%.32s\"", tt_xml_get(net, "speed"));
  } else if (speed > 0 && speed < 1000) {
    xp_find(f, net, &low_speed, "speed=\"%lld\": less than 1 Gbit/s", speed);
  } else if (speed > 3200000) {
    xp_find(f, net, &high_speed, "speed=\"%lld\": %.4g Tbit/s", speed, (double)speed / 1e6);
  } else if (speed > 0 && fastest != NULL && speed < xp_number(fastest, "speed", 0) && same_card(net, fastest)) {
    xp_find(f, net, &slower_port, "speed=\"%lld\"; the port at line %d of the same sort of card has %lld", speed,
            fastest->line, xp_number(fastest, "speed", 0));
  }
  if (latency != NULL && strtod(latency, NULL) > 1000) {
    xp_find(f, net, &odd_latency, "latency=\"%.32s\"", latency);
  }
}

typedef struct guid {
  uint64_t guid;
  const tt_xml_node *net;
} guid;

static int compare_guids(const void *a, const void *b)
{
  const guid *x = a, *y = b;
  return x->guid != y->guid ? (x->guid < y->guid ? -1 : 1) : x->net->line - y->net->line;
}

static void check_guids(xp_findings *f, const tt_xml *xml)
{
  guid *list = tt_calloc((size_t)xml->nnodes + 1, sizeof(*list));
  int count = 0;
  f->no_memory |= list == NULL;
  for (const tt_xml_node *x = xml->root; x != NULL && list != NULL; x = tt_xml_walk(xml->root, x)) {
    const char *text = is(x, "net") && x->parent != NULL ? tt_xml_get(x, "guid") : NULL;
    if (text != NULL && strtoull(text, NULL, 16) != 0) {
      list[count++] = (guid){strtoull(text, NULL, 16), x};
    }
  }
  if (list != NULL) {
    qsort(list, (size_t)count, sizeof(*list), compare_guids);
  }
  for (int i = 1; i < count; i++) {
    const tt_xml_node *a = list[i - 1].net, *b = list[i].net;
    if (list[i].guid == list[i - 1].guid && a->parent != b->parent &&
        xp_number(a, "port", 0) == xp_number(b, "port", 0)) {
      xp_find(f, b, &same_guid, "guid=\"%.32s\" is that of the port at line %d", tt_xml_get(b, "guid"), a->line);
    }
  }
  tt_free(list);
}

static const tt_xml_node *fastest_port(const tt_xml *xml)
{
  const tt_xml_node *best = NULL;
  long long most = 0;
  for (const tt_xml_node *x = xml->root; x != NULL; x = tt_xml_walk(xml->root, x)) {
    long long speed = is(x, "net") ? xp_number(x, "speed", 0) : 0;
    if (speed > most && speed <= 3200000) {
      most = speed;
      best = x;
    }
  }
  return best;
}

static void check_c2c(xp_findings *f, const tt_xml_node *x)
{
  double bw = (double)xp_number(x, "bw", 0) * (double)xp_number(x, "count", 0) / 1000;
  if (bw > 2000 || (bw > 0 && bw < 20)) {
    xp_find(f, x, &odd_c2c, "%.4g GB/s together", bw);
  }
}

void xp_lint_slots(xp_findings *f, const tt_xml *xml)
{
  const tt_xml_node *fastest = fastest_port(xml);
  for (const tt_xml_node *x = xml->root; x != NULL; x = tt_xml_walk(xml->root, x)) {
    if (is(x, "pci")) {
      check_slot(f, x);
    } else if (is(x, "net") && x->parent != NULL) {
      check_port(f, x, fastest);
    } else if (is(x, "c2c")) {
      check_c2c(f, x);
    }
  }
  check_guids(f, xml);
}
