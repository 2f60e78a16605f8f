// build.c: from a <system> document to the model. First what the document's tree says (CPUs, PCI, GPUs, cards), then
// links across the tree.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "topo/build_priv.h"

enum { MAX_CHANNELS = 64 }; // connections of a card that does not say

static const tt_xml_range FLAGS = {0, 255};

void tt_build_note(tt_builder *b, const tt_xml_node *at, const char *fmt, ...)
{
  char text[512];
  int n = snprintf(text, sizeof(text), "%.256s:%d: <%.64s>: ", at->file, at->line, at->tag);
  va_list ap;
  va_start(ap, fmt);
  tt_vformat(text + n, sizeof(text) - (size_t)n, fmt, ap);
  va_end(ap);
  tt_xml_plain(text);
  if (b->note != NULL) {
    b->note(b->arg, at, text);
  } else {
    tt_info(TT_GRAPH, "%s", text);
  }
}

// One line for each name, not for each element.
void tt_build_unknown(tt_builder *b, const tt_xml_node *x)
{
  for (int i = 0; i < TT_BUILD_SEEN; i++) {
    if (b->seen[i] == NULL) {
      b->seen[i] = x->tag;
      tt_build_note(b, x, "unknown here, ignored");
      return;
    }
    if (strcmp(b->seen[i], x->tag) == 0) {
      return;
    }
  }
}

ncclResult_t tt_build_bus(const tt_xml_node *x, const char *name, int64_t *out)
{
  const char *text;
  TT_TRY(tt_xml_need(x, name, &text));
  return tt_bus_id(text, out) ? ncclSuccess
                              : tt_xml_fail(x, "%s=\"%.64s\": a bus id such as 0000:0f:00.0 is expected", name, text);
}

ncclResult_t tt_build_add(tt_builder *b, const tt_xml_node *x, tt_topo_node n, int *out)
{
  TT_TRY(tt_draft_add(&b->d, n.kind, n.host, n.id, out));
  n.line = x->line;
  *tt_build_node(b, *out) = n;
  b->d.nodes[*out].xml = x;
  return ncclSuccess;
}

static ncclResult_t twice(const tt_builder *b, int first, const tt_xml_node *x, const char *name)
{
  const tt_xml_node *other = b->d.nodes[first].xml;
  return tt_xml_fail(x, "%s=\"%.64s\" is there already at %s:%d", name, tt_xml_get(x, name), other->file, other->line);
}

// ---- The tree ----

// May an element of this name stand in one of that name?
static bool belongs(const char *tag, const char *parent)
{
  static const char *const places[][2] = {{"cpu", "system"}, {"pci", "cpu"}, {"pci", "pci"}, {"nic", "pci"},
                                          {"nic", "cpu"},    {"gpu", "pci"}, {"net", "nic"}};
  for (size_t i = 0; i < TT_COUNT(places); i++) {
    if (strcmp(tag, places[i][0]) == 0 && strcmp(parent, places[i][1]) == 0) {
      return true;
    }
  }
  return false;
}

bool tt_topo_in_place(const tt_xml_node *x)
{
  while (x->parent != NULL && belongs(x->tag, x->parent->tag)) {
    x = x->parent;
  }
  return x->parent == NULL;
}

// Does this take part: a GPU with a rank, a port with a device number, where they belong?
static bool build_takes_part(const tt_xml_node *x)
{
  if (tt_xml_is(x, "gpu")) {
    return tt_xml_get(x, "rank") != NULL && tt_topo_in_place(x);
  }
  const char *net = tt_xml_get(x, "net");
  bool used = tt_xml_is(x, "net") && tt_xml_get(x, "dev") != NULL && (net == NULL || strcmp(net, "0") != 0);
  return used && tt_topo_in_place(x);
}

// ---- The order of things ----
//
// Each rank sees its own GPU and all cards, and the ranks' views are joined in the order of ranks (tt_topo_fuse). A
// document that shows all at once is read in that same order. So all ranks build the same model, whichever document
// they read.

enum { NO_VIEW = INT32_MAX };

// The first rank that sees something in x; NO_VIEW when there is nothing that takes part. `cards` is the rank that sees
// cards first.
static int first_view(const tt_xml_node *x, int cards)
{
  int view = NO_VIEW;
  for (const tt_xml_node *n = x; n != NULL; n = tt_xml_walk(x, n)) {
    if (build_takes_part(n)) {
      view = TT_MIN(view, tt_xml_is(n, "gpu") ? TT_MAX(0, atoi(tt_xml_get(n, "rank"))) : cards);
    }
  }
  return view;
}

// A child of an element, in the order of views.
typedef struct branch {
  tt_order view; // key: NO_VIEW or the first rank that sees it
  const tt_xml_node *x;
  int cards; // the rank that sees its host's cards first
} branch;

static int build_count_children(const tt_xml_node *x)
{
  int count = 0;
  for (const tt_xml_node *c = x->child; c != NULL; c = c->next) {
    count++;
  }
  return count;
}

// Children of x with their views, as they stand. `cards` is the rank that sees cards first.
static ncclResult_t list_branches(tt_builder *b, const tt_xml_node *x, int cards, branch **out, int *count)
{
  *count = build_count_children(x);
  branch *list = TT_ARENA_NEW(&b->arena, *out, *count);
  if (list == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory for %d elements", x->file, *count);
  }
  int i = 0;
  for (const tt_xml_node *c = x->child; c != NULL; c = c->next, i++) {
    list[i] = (branch){{first_view(c, cards), i}, c, cards};
  }
  return ncclSuccess;
}

// Calls `add` for each child of x in that order.
typedef ncclResult_t add_fn(tt_builder *b, const branch *c, void *arg);

static ncclResult_t each_branch(tt_builder *b, const tt_xml_node *x, add_fn *add, void *arg)
{
  branch *list = NULL;
  int count = 0;
  TT_TRY(list_branches(b, x, b->first_rank, &list, &count));
  qsort(list, (size_t)count, sizeof(*list), tt_order_compare);
  for (int i = 0; i < count; i++) {
    TT_TRY(add(b, &list[i], arg));
  }
  return ncclSuccess;
}

// ---- PCI ----

// The bandwidth of a PCI element towards the CPU.
static ncclResult_t pci_bandwidth(tt_builder *b, const tt_xml_node *x, float *bw)
{
  int width;
  TT_TRY(tt_xml_int_or(x, "link_width", 0, (tt_xml_range){0, 64}, &width));
  const char *speed = tt_xml_get(x, "link_speed");
  if (!tt_bw_pci(speed != NULL ? speed : "", width, bw) && speed != NULL && speed[0] != 0) {
    tt_build_note(b, x, "link_speed=\"%.64s\" is not known (\"16.0 GT/s PCIe\" would be); counted as 8 GT/s", speed);
  }
  return ncclSuccess;
}

static ncclResult_t build_read_gpu(const tt_builder *b, const tt_xml_node *x, tt_topo_node *n)
{
  TT_TRY(tt_xml_int(x, "rank", TT_XML_COUNTS, &n->gpu.rank));
  TT_TRY(tt_xml_int(x, "dev", TT_XML_COUNTS, &n->gpu.dev));
  TT_TRY(tt_xml_int_or(x, "sm", 0, (tt_xml_range){0, 100000}, &n->gpu.sm)); // 0: not known, as of host ranks
  TT_TRY(tt_xml_int_or(x, "gdr", 0, FLAGS, &n->gpu.gdr));
  const char *gcn = tt_xml_get(x, "gcn");
  if (gcn == NULL && !b->amd) {
    return ncclSuccess;
  }
  n->gpu.sm = 0; // counts compute units there
  if (gcn == NULL) {
    return ncclSuccess;
  }
  char *end = NULL;
  const char *digits = strncmp(gcn, "gfx", 3) == 0 ? gcn + 3 : gcn;
  long value = strtol(digits, &end, 16);
  if (end == digits || (*end != 0 && *end != ':') || value <= 0 || value > 0xffff) { // gfx90a:sramecc+:xnack-
    return tt_xml_fail(x, "gcn=\"%.64s\": a name such as gfx942 is expected", gcn);
  }
  n->gpu.gcn = value == 0x910 ? 0x90a : (int)value; // its number before it was named in hexadecimal
  return ncclSuccess;
}

// GPUs of one PCI device are ranks that share it: the first one is the device.
static ncclResult_t add_gpu(tt_builder *b, const tt_xml_node *x, int parent, int64_t bus, float bw)
{
  int host = tt_build_node(b, parent)->host, g;
  tt_topo_node n = {.kind = TT_NODE_GPU, .host = host, .id = bus};
  TT_TRY(build_read_gpu(b, x, &n));
  int device = tt_draft_find(&b->d, TT_NODE_GPU, host, bus);
  if (device >= 0 && b->d.nodes[device].xml->parent != x->parent) {
    return twice(b, device, x->parent, "busid");
  }
  TT_TRY(tt_build_add(b, x, n, &g));
  b->d.nodes[g].up = device >= 0 ? -1 : parent;
  device = device >= 0 ? tt_build_node(b, device)->gpu.device : g;
  tt_build_node(b, g)->gpu.device = device;
  return tt_draft_join(&b->d, g, device == g ? parent : device, device == g ? TT_LINK_PCI : TT_PATH_LOC,
                       device == g ? bw : TT_BW_LOC);
}

static ncclResult_t read_net(const tt_xml_node *x, tt_topo_node *n)
{
  int speed, messages;
  TT_TRY(tt_xml_int_or(x, "net", 1, FLAGS, &messages)); // not 0: see takes_part
  TT_TRY(tt_xml_int_or(x, "speed", 0, TT_XML_INTS, &speed));
  n->net.bw = (float)((speed <= 0 ? 10000 : speed) / 8000.0); // some drivers say -1
  TT_TRY(tt_xml_float_or(x, "latency", 0, 1e9f, &n->net.latency));
  TT_TRY(tt_xml_int_or(x, "port", 0, TT_XML_INTS, &n->net.port));
  TT_TRY(tt_xml_int_or(x, "gdr", 0, FLAGS, &n->net.gdr));
  TT_TRY(tt_xml_int_or(x, "coll", 0, FLAGS, &n->net.coll));
  TT_TRY(tt_xml_int_or(x, "maxconn", MAX_CHANNELS, TT_XML_COUNTS, &n->net.maxconn));
  TT_TRY(tt_xml_int_or(x, "rail", -1, TT_XML_INTS, &n->net.rail));
  TT_TRY(tt_xml_int_or(x, "plane", -1, TT_XML_INTS, &n->net.plane));
  return tt_xml_hex_or(x, "guid", (uint64_t)n->id, &n->net.guid);
}

static ncclResult_t build_add_net(tt_builder *b, const tt_xml_node *x, int nic)
{
  int dev, i;
  TT_TRY(tt_xml_int(x, "dev", TT_XML_COUNTS, &dev));
  tt_topo_node n = {.kind = TT_NODE_NET, .host = tt_build_node(b, nic)->host, .id = dev};
  int other = tt_draft_find(&b->d, TT_NODE_NET, n.host, dev);
  if (other >= 0) { // graphs name cards by this number
    tt_build_note(b, x, "dev=\"%d\" is there already at line %d; this one is left out", dev,
                  tt_build_node(b, other)->line);
    return ncclSuccess;
  }
  n.net.dev = dev;
  TT_TRY(read_net(x, &n));
  int64_t card = tt_build_node(b, nic)->id;
  n.net.card = card >= 0 ? (uint64_t)card : n.net.guid;
  TT_TRY(tt_build_add(b, x, n, &i));
  return tt_draft_join(&b->d, nic, i, TT_PATH_NET, n.net.bw);
}

// A card: `id` is its bus id, or negative for one that hangs on a CPU without any.
static ncclResult_t add_nic(tt_builder *b, const tt_xml_node *x, int parent, int64_t id, float bw)
{
  int host = tt_build_node(b, parent)->host;
  int nic = tt_draft_find(&b->d, TT_NODE_NIC, host, id);
  if (nic >= 0 && id >= 0 && b->d.nodes[nic].xml->parent != x->parent) {
    return twice(b, nic, x->parent, "busid");
  }
  if (nic < 0) {
    TT_TRY(tt_build_add(b, x, (tt_topo_node){.kind = TT_NODE_NIC, .host = host, .id = id}, &nic));
    b->d.nodes[nic].up = parent;
    TT_TRY(tt_draft_join(&b->d, nic, parent, TT_LINK_PCI, bw));
  }
  for (const tt_xml_node *n = x->child; n != NULL; n = n->next) {
    if (build_takes_part(n)) {
      TT_TRY(build_add_net(b, n, nic));
    } else if (!tt_xml_is(n, "net")) {
      tt_build_unknown(b, n);
    }
  }
  return ncclSuccess;
}

// Vendor, device, subsystem vendor, subsystem device of a PCI element in 64 bits.
static ncclResult_t device_word(const tt_xml_node *x, uint64_t *out)
{
  static const char *names[] = {"vendor", "device", "subsystem_vendor", "subsystem_device"};
  uint64_t word = 0;
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    uint64_t part;
    TT_TRY(tt_xml_hex_or(x, names[i], 0, &part));
    if (part > 0xffff) {
      return tt_xml_fail(x, "%s=\"%.64s\": a number up to 0xffff is expected", names[i], tt_xml_get(x, names[i]));
    }
    word = word << 16 | part;
  }
  *out = word;
  return ncclSuccess;
}

static ncclResult_t add_switch(tt_builder *b, const tt_xml_node *x, int parent, int64_t bus, int *out)
{
  tt_topo_node n = {.kind = TT_NODE_PCI, .host = tt_build_node(b, parent)->host, .id = bus};
  int other = tt_draft_find(&b->d, TT_NODE_PCI, n.host, bus);
  if (other >= 0) { // written by hand, more often than not; nothing is ambiguous but links to it
    tt_build_note(b, x, "busid=\"%.64s\" is there already at line %d; taken for another switch", tt_xml_get(x, "busid"),
                  tt_build_node(b, other)->line);
  }
  TT_TRY(device_word(x, &n.pci.device));
  TT_TRY(tt_build_add(b, x, n, out));
  b->d.nodes[*out].up = parent;
  return ncclSuccess;
}

// A PCI element while what is in it is added.
typedef struct slot {
  const tt_xml_node *x;
  int parent; // node above
  int64_t bus;
  float bw;
  int sw; // its node, once it turns out to be a switch; -1
} slot;

static ncclResult_t add_pci(tt_builder *b, const tt_xml_node *x, int parent);

static ncclResult_t add_in_slot(tt_builder *b, const branch *c, void *arg)
{
  slot *s = arg;
  if (tt_xml_is(c->x, "gpu")) {
    return c->view.key != NO_VIEW ? add_gpu(b, c->x, s->parent, s->bus, s->bw) : ncclSuccess;
  }
  if (tt_xml_is(c->x, "nic")) {
    return c->view.key != NO_VIEW ? add_nic(b, c->x, s->parent, s->bus, s->bw) : ncclSuccess;
  }
  if (tt_xml_is(c->x, "pcilink")) {
    return ncclSuccess; // in links.c
  }
  if (!tt_xml_is(c->x, "pci")) {
    tt_build_unknown(b, c->x);
    return ncclSuccess;
  }
  if (c->view.key == NO_VIEW) {
    return ncclSuccess;
  }
  if (s->sw < 0) {
    TT_TRY(add_switch(b, s->x, s->parent, s->bus, &s->sw));
  }
  return add_pci(b, c->x, s->sw);
}

// The depth of documents is limited, so is the recursion.
static ncclResult_t add_pci(tt_builder *b, const tt_xml_node *x, int parent)
{
  slot s = {.x = x, .parent = parent, .sw = -1};
  TT_TRY(tt_build_bus(x, "busid", &s.bus));
  TT_TRY(pci_bandwidth(b, x, &s.bw));
  TT_TRY(each_branch(b, x, add_in_slot, &s));
  // Behind its children: among links of equal width theirs come first.
  return s.sw >= 0 ? tt_draft_join(&b->d, s.sw, parent, TT_LINK_PCI, s.bw) : ncclSuccess;
}

// ---- CPUs ----

static int cpu_arch(const char *text)
{
  static const struct {
    const char *name;
    int arch;
  } names[] = {{"x86_64", TT_CPU_X86}, {"arm64", TT_CPU_ARM}, {"aarch64", TT_CPU_ARM}, {"ppc64", TT_CPU_POWER}};
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    if (strncmp(text, names[i].name, strlen(names[i].name)) == 0) {
      return names[i].arch;
    }
  }
  return TT_CPU_UNKNOWN;
}

static int cpu_vendor(const char *text)
{
  static const struct {
    const char *name;
    int vendor;
  } names[] = {{"GenuineIntel", TT_CPU_INTEL},
               {"AuthenticAMD", TT_CPU_AMD},
               {"CentaurHauls", TT_CPU_ZHAOXIN},
               {"  Shanghai  ", TT_CPU_ZHAOXIN}};
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    if (strcmp(text, names[i].name) == 0) {
      return names[i].vendor;
    }
  }
  return TT_CPU_OTHER;
}

static int cpu_model(int vendor, int family, int model)
{
  if (vendor == TT_CPU_ZHAOXIN && family == 7 && model == 0x5b) {
    return TT_CPU_YONGFENG;
  }
  if (vendor != TT_CPU_INTEL || family != 6) {
    return TT_CPU_PLAIN;
  }
  if (model >= 0xcf) {
    return TT_CPU_EMERALD;
  }
  if (model >= 0x8f) {
    return TT_CPU_SAPPHIRE;
  }
  return model >= 0x55 ? TT_CPU_SKYLAKE : TT_CPU_PLAIN;
}

static ncclResult_t read_cpu(tt_builder *b, const tt_xml_node *x, tt_topo_node *n)
{
  const char *arch = tt_xml_get(x, "arch"), *vendor = tt_xml_get(x, "vendor");
  int family, model;
  TT_TRY(tt_xml_int_or(x, "familyid", 0, TT_XML_COUNTS, &family));
  TT_TRY(tt_xml_int_or(x, "modelid", 0, TT_XML_COUNTS, &model));
  n->cpu.arch = cpu_arch(arch != NULL ? arch : "");
  if (n->cpu.arch == TT_CPU_X86) {
    n->cpu.vendor = cpu_vendor(vendor != NULL ? vendor : "");
    n->cpu.model = cpu_model(n->cpu.vendor, family, model);
  }
  if (n->cpu.arch == TT_CPU_UNKNOWN || (n->cpu.arch == TT_CPU_X86 && n->cpu.vendor == TT_CPU_OTHER)) {
    tt_build_note(b, x, "unknown CPU (arch=\"%.32s\" vendor=\"%.32s\"): its link to other CPUs counts as slow",
                  arch != NULL ? arch : "", vendor != NULL ? vendor : "");
  }
  return ncclSuccess;
}

static ncclResult_t add_in_cpu(tt_builder *b, const branch *c, void *arg)
{
  int cpu = *(int *)arg;
  bool used = c->view.key != NO_VIEW;
  if (tt_xml_is(c->x, "pci")) {
    return used ? add_pci(b, c->x, cpu) : ncclSuccess;
  }
  if (tt_xml_is(c->x, "nic")) {
    return used ? add_nic(b, c->x, cpu, -2 - tt_build_node(b, cpu)->id, TT_BW_LOC) : ncclSuccess;
  }
  tt_build_unknown(b, c->x);
  return ncclSuccess;
}

static ncclResult_t add_cpu(tt_builder *b, const tt_xml_node *x)
{
  int numa, cpu;
  uint64_t hash;
  tt_topo_node n = {.kind = TT_NODE_CPU};
  TT_TRY(tt_xml_int(x, "numaid", (tt_xml_range){-1, 65535}, &numa));
  TT_TRY(tt_xml_hex_or(x, "host_hash", 0, &hash));
  TT_TRY(tt_draft_host(&b->d, hash, &n.host));
  n.id = numa;
  int other = tt_draft_find(&b->d, TT_NODE_CPU, n.host, numa);
  if (other >= 0) {
    return twice(b, other, x, "numaid");
  }
  TT_TRY(read_cpu(b, x, &n));
  TT_TRY(tt_build_add(b, x, n, &cpu));
  return each_branch(b, x, add_in_cpu, &cpu);
}

static uint64_t build_host_of(const tt_xml_node *cpu)
{
  const char *hash = tt_xml_get(cpu, "host_hash");
  return hash != NULL ? strtoull(hash, NULL, 16) : 0;
}

// Finds the first rank of the host of each CPU in `list`, whose views are those without cards.
static ncclResult_t find_first_ranks(tt_builder *b, branch *list, int count)
{
  tt_order *sorted;
  TT_ARENA_NEW(&b->arena, sorted, count);
  if (sorted == NULL) {
    return tt_fail(ncclSystemError, "no memory for %d CPUs", count);
  }
  for (int i = 0; i < count; i++) {
    sorted[i] = (tt_order){(int64_t)build_host_of(list[i].x), i};
  }
  qsort(sorted, (size_t)count, sizeof(*sorted), tt_order_compare);
  for (int i = 0, end; i < count; i = end) {
    int least = NO_VIEW - 1; // a host of cards alone comes last
    for (end = i; end < count && sorted[end].key == sorted[i].key; end++) {
      least = (int)TT_MIN(least, list[sorted[end].place].view.key);
    }
    for (int k = i; k < end; k++) {
      list[sorted[k].place].cards = least;
    }
  }
  return ncclSuccess;
}

static ncclResult_t add_tree(tt_builder *b, const tt_xml_node *root)
{
  branch *list = NULL;
  int count = 0;
  TT_TRY(list_branches(b, root, NO_VIEW, &list, &count));
  TT_TRY(find_first_ranks(b, list, count));
  for (int i = 0; i < count; i++) {
    list[i].view.key = first_view(list[i].x, list[i].cards);
  }
  qsort(list, (size_t)count, sizeof(*list), tt_order_compare);
  for (int i = 0; i < count; i++) {
    b->first_rank = list[i].cards;
    if (!tt_xml_is(list[i].x, "cpu")) {
      tt_build_unknown(b, list[i].x);
    } else if (list[i].view.key != NO_VIEW) {
      TT_TRY(add_cpu(b, list[i].x));
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_build_sorted(tt_builder *b, int kind, int64_t (*key_of)(const tt_topo_node *n), tt_order **out,
                             int *count)
{
  tt_order *list = TT_ARENA_NEW(&b->arena, *out, b->d.nnodes);
  *count = 0;
  for (int i = 0; i < b->d.nnodes && list != NULL; i++) {
    if (tt_build_node(b, i)->kind == kind) {
      list[(*count)++] = (tt_order){key_of(tt_build_node(b, i)), i};
    }
  }
  if (list == NULL) {
    return tt_fail(ncclSystemError, "no memory for a machine of %d nodes", b->d.nnodes);
  }
  qsort(list, (size_t)*count, sizeof(*list), tt_order_compare);
  return ncclSuccess;
}

static int64_t build_rank_of(const tt_topo_node *gpu)
{
  return gpu->gpu.rank;
}

static ncclResult_t build_check_ranks(tt_builder *b)
{
  int count;
  tt_order *seats;
  TT_TRY(tt_build_sorted(b, TT_NODE_GPU, build_rank_of, &seats, &count));
  for (int i = 1; i < count; i++) {
    if (seats[i].key == seats[i - 1].key) {
      return twice(b, seats[i - 1].place, b->d.nodes[seats[i].place].xml, "rank");
    }
  }
  return ncclSuccess;
}

// ---- The whole ----

static ncclResult_t check_root(tt_builder *b, const tt_xml *xml)
{
  const tt_xml_node *root = xml->root;
  int version;
  if (!tt_xml_is(root, "system")) {
    return tt_xml_fail(root, "a document that begins with <system> is expected");
  }
  TT_TRY(tt_xml_int_or(root, "version", 1, (tt_xml_range){1, 2}, &version));
  b->amd = version == 2;
  if (xml->ignored_text > 0) {
    tt_xml_node at = {.tag = root->tag, .file = xml->name, .line = xml->ignored_text};
    tt_build_note(b, &at, "text between elements, ignored");
  }
  return ncclSuccess;
}

static ncclResult_t build_all(tt_builder *b, const tt_xml *xml, tt_topo **out)
{
  TT_TRY(check_root(b, xml));
  TT_TRY(add_tree(b, xml->root));
  TT_TRY(build_check_ranks(b));
  TT_TRY(tt_build_links(b));
  return tt_draft_freeze(&b->d, out);
}

ncclResult_t tt_topo_build(const tt_xml *xml, tt_topo_note_fn *fn, void *arg, tt_topo **out)
{
  tt_builder b = {.note = fn, .arg = arg};
  ncclResult_t res = build_all(&b, xml, out);
  tt_draft_clear(&b.d);
  tt_arena_clear(&b.arena);
  return res;
}
