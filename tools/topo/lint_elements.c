// lint_elements.c: elements one by one. The tables say what there is: docs/topology.md in short.
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "lint_priv.h"
#include "topo/system.h"

typedef enum { TEXT, WHOLE, DECIMAL, HEX, HEX16, BUS, SPEED, CLASS, PATH_TYPE } value_type;
typedef enum { MAY, SHOULD, MUST, TAKES_PART } need; // TAKES_PART: must where the element takes part, else may

typedef struct attribute {
  const char *tag, *name;
  value_type type;
  need need;
  long long lo, hi;
} attribute;

#define ANY INT32_MIN, INT32_MAX
#define COUNT 0, INT32_MAX

static const attribute machine_attributes[] = {
    {"system", "version", WHOLE, SHOULD, 1, 2},
    {"cpu", "numaid", WHOLE, MUST, -1, 65535},
    {"cpu", "affinity", TEXT, SHOULD, 0, 0},
    {"cpu", "arch", TEXT, SHOULD, 0, 0},
    {"cpu", "vendor", TEXT, MAY, 0, 0},
    {"cpu", "familyid", WHOLE, MAY, COUNT},
    {"cpu", "modelid", WHOLE, MAY, COUNT},
    {"cpu", "host_hash", HEX, MAY, 0, 0},
    {"pci", "busid", BUS, MUST, 0, 0},
    {"pci", "class", CLASS, SHOULD, 0, 0},
    {"pci", "vendor", HEX16, MAY, 0, 0},
    {"pci", "device", HEX16, MAY, 0, 0},
    {"pci", "subsystem_vendor", HEX16, MAY, 0, 0},
    {"pci", "subsystem_device", HEX16, MAY, 0, 0},
    {"pci", "link_speed", SPEED, SHOULD, 0, 0},
    {"pci", "link_width", WHOLE, SHOULD, 0, 64},
    {"pcilink", "target", BUS, MUST, 0, 0},
    {"gpu", "dev", WHOLE, TAKES_PART, COUNT},
    {"gpu", "sm", WHOLE, SHOULD, 0, 100000},
    {"gpu", "rank", WHOLE, SHOULD, COUNT},
    {"gpu", "gdr", WHOLE, SHOULD, 0, 255},
    {"gpu", "gcn", TEXT, MAY, 0, 0},
    {"gpu", "arch", WHOLE, MAY, ANY},
    {"gpu", "mlopart", WHOLE, MAY, ANY},
    {"nvlink", "target", BUS, MUST, 0, 0},
    {"nvlink", "count", WHOLE, MUST, 1, 1024},
    {"nvlink", "tclass", CLASS, SHOULD, 0, 0}, // see no_class
    {"xgmi", "target", BUS, MUST, 0, 0},
    {"xgmi", "count", WHOLE, MUST, 1, 1024},
    {"xgmi", "tclass", CLASS, SHOULD, 0, 0},
    {"c2c", "bw", WHOLE, MUST, 1, 1000000},
    {"c2c", "count", WHOLE, MUST, 1, 1024},
    {"net", "name", TEXT, SHOULD, 0, 0},
    {"net", "dev", WHOLE, SHOULD, COUNT},
    {"net", "speed", WHOLE, SHOULD, ANY},
    {"net", "port", WHOLE, MAY, ANY},
    {"net", "latency", DECIMAL, MAY, 0, 1000000000},
    {"net", "guid", HEX, MAY, 0, 0},
    {"net", "maxconn", WHOLE, MAY, COUNT},
    {"net", "gdr", WHOLE, MAY, 0, 255},
    {"net", "coll", WHOLE, MAY, 0, 255},
    {"net", "net", WHOLE, MAY, 0, 255},
    {"net", "gin", WHOLE, MAY, ANY},
    {"net", "rma", WHOLE, MAY, ANY},
    {"net", "rail", WHOLE, MAY, ANY},
    {"net", "plane", WHOLE, MAY, ANY},
    {"net", "parts", TEXT, MAY, 0, 0},
};

static const attribute graph_attributes[] = {
    {"graphs", "version", WHOLE, MUST, 1, 1},
    {"graph", "id", WHOLE, MUST, 0, 4},
    {"graph", "pattern", WHOLE, MUST, 0, 6},
    {"graph", "crossnic", WHOLE, MUST, 0, 2},
    {"graph", "nchannels", WHOLE, MUST, 0, 64},
    {"graph", "speedintra", DECIMAL, SHOULD, 0, 1000000},
    {"graph", "speedinter", DECIMAL, SHOULD, 0, 1000000},
    {"graph", "latencyinter", DECIMAL, MAY, 0, 1000000},
    {"graph", "typeintra", PATH_TYPE, MUST, 0, 0},
    {"graph", "typeinter", PATH_TYPE, MUST, 0, 0},
    {"graph", "samechannels", WHOLE, MUST, 0, 1},
    {"gpu", "dev", HEX, MUST, 0, 0},
    {"gpu", "rank", WHOLE, SHOULD, COUNT},
    {"net", "dev", HEX, MUST, 0, 0},
};

// Which element stands in which.
typedef struct place {
  const char *tag, *inside[3];
} place;

static const place machine_places[] = {
    {"system", {"", NULL}},        {"cpu", {"system", NULL}},  {"pci", {"cpu", "pci", NULL}}, {"gpu", {"pci", NULL}},
    {"nic", {"pci", "cpu", NULL}}, {"net", {"nic", NULL}},     {"nvlink", {"gpu", NULL}},     {"xgmi", {"gpu", NULL}},
    {"c2c", {"gpu", NULL}},        {"pcilink", {"pci", NULL}},
};

static const place graph_places[] = {
    {"graphs", {"", NULL}},     {"graph", {"graphs", NULL}}, {"channel", {"graph", NULL}},
    {"gpu", {"channel", NULL}}, {"net", {"channel", NULL}},
};

typedef struct grammar {
  const attribute *attributes;
  const place *places;
  size_t nattributes, nplaces;
} grammar;

static const xp_reason root = {XP_ERROR, "a machine is a <system>, channels are <graphs>",
                               "give a file of one of these two forms"};
static const xp_reason unknown_tag = {XP_WARNING, "elements that are not known are skipped, with all that is in them",
                                      "correct the name"};
static const xp_reason wrong_place = {XP_WARNING, "here it is skipped, with all that is in it",
                                      "move it to where it belongs"};
static const xp_reason unknown_attribute = {XP_NOTE, "attributes that are not known are skipped",
                                            "correct the name, or leave it out"};
static const xp_reason missing = {XP_ERROR, "without it the file does not load", "add it"};
static const xp_reason missing_expected = {XP_NOTE, "a default counts instead, which may be wrong for this machine",
                                           "add it, or have the file written by a run (NCCL_TOPO_DUMP_FILE)"};
static const xp_reason bad_value = {XP_ERROR, "the file does not load", "correct the value"};
static const xp_reason idle_bad_value = {XP_WARNING, "the file would not load if this took part", "correct the value"};
static const xp_reason no_rank = {XP_NOTE, "a GPU without rank takes no part; nor do links to it",
                                  "give it a rank, or start the run that does"};
static const xp_reason no_class = {XP_WARNING,
                                   "tclass says what the link leads to; without, NCCL asks the system, here a GPU of "
                                   "the file is one and all else an NVSwitch",
                                   "write the class of the device at the target: 0x030200 a GPU, 0x068000 an NVSwitch"};
static const xp_reason no_dev = {XP_NOTE, "a port without dev takes no part",
                                 "number the ports from 0 in the order of the network plugin"};
static const xp_reason bad_class = {XP_WARNING, "the class tells GPUs, cards and switches apart",
                                    "write it as sysfs does: 0x030200"};
static const xp_reason bad_speed = {XP_WARNING, "a speed that is not known counts as 8 GT/s",
                                    "write it as sysfs does: \"32.0 GT/s PCIe\""};
static const xp_reason bad_arch = {XP_WARNING, "the link between such CPUs counts as slow (6 GB/s)",
                                   "write arch as x86_64, arm64 or ppc64, and vendor as /proc/cpuinfo does"};
static const xp_reason text_found = {XP_WARNING, "text between elements means nothing",
                                     "leave it out, or make it a comment"};

static bool takes_part(const tt_xml_node *x)
{
  if (strcmp(x->tag, "gpu") == 0) {
    return tt_xml_get(x, "rank") != NULL;
  }
  return strcmp(x->tag, "net") != 0 || tt_xml_get(x, "dev") != NULL;
}

// ---- Values ----

// The library's own verdict, without its "FILE:LINE: <tag>: ".
static const char *verdict(const tt_xml_node *x)
{
  char front[TT_XML_MAX_VALUE + 128];
  const char *text = tt_last_error();
  int n = snprintf(front, sizeof(front), "%s:%d: <%.64s>: ", x->file, x->line, x->tag);
  return n > 0 && strncmp(text, front, (size_t)n) == 0 ? text + n : text;
}

static bool is_class(const char *text)
{
  size_t n = strlen(text);
  return n >= 4 && n <= 8 && strncmp(text, "0x", 2) == 0 && strspn(text + 2, "0123456789abcdefABCDEF") == n - 2;
}

static void bad(xp_findings *f, const tt_xml_node *x, const attribute *a, const char *expected)
{
  xp_find(f, x, takes_part(x) ? &bad_value : &idle_bad_value, "%s=\"%.64s\": %s is expected", a->name,
          tt_xml_get(x, a->name), expected);
}

static void check_number(xp_findings *f, const tt_xml_node *x, const attribute *a)
{
  const tt_xml_range range = {(int)a->lo, (int)a->hi};
  int whole;
  float decimal;
  uint64_t hex;
  ncclResult_t res = ncclSuccess;
  if (a->type == WHOLE) {
    // What may not be missing may not be empty.
    res = a->need >= MUST ? tt_xml_int(x, a->name, range, &whole) : tt_xml_int_or(x, a->name, 0, range, &whole);
  } else if (a->type == DECIMAL) {
    res = tt_xml_float_or(x, a->name, 0, (float)a->hi, &decimal);
  } else {
    res = tt_xml_hex_or(x, a->name, 0, &hex);
    if (res == ncclSuccess && a->type == HEX16 && hex > 0xffff) {
      bad(f, x, a, "a number up to 0xffff");
    }
  }
  if (res != ncclSuccess) {
    xp_find(f, x, takes_part(x) ? &bad_value : &idle_bad_value, "%.300s", verdict(x));
  }
}

static void check_value(xp_findings *f, const tt_xml_node *x, const attribute *a)
{
  const char *text = tt_xml_get(x, a->name);
  int64_t bus;
  float bw;
  switch (a->type) {
  case TEXT: break;
  case BUS:
    if (!tt_bus_id(text, &bus)) {
      bad(f, x, a, "a bus id such as 0000:0f:00.0");
    }
    break;
  case SPEED:
    if (!tt_bw_pci(text, 16, &bw)) {
      xp_find(f, x, &bad_speed, "%s=\"%.64s\"%s", a->name, text,
              text[0] == 0 ? ": nothing is known of the speed" : ": not a known speed");
    }
    break;
  case CLASS:
    if (!is_class(text)) {
      xp_find(f, x, &bad_class, "%s=\"%.64s\": a PCI class such as 0x030200 is expected", a->name, text);
    }
    break;
  case PATH_TYPE:
    if (tt_path_type_of(text) < 0) {
      bad(f, x, a, "LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB or SYS");
    }
    break;
  default: check_number(f, x, a); break;
  }
}

// ---- Elements ----

static void check_missing(xp_findings *f, const tt_xml_node *x, const attribute *a)
{
  bool gpu = strcmp(x->tag, "gpu") == 0;
  if (a->need == MUST || (a->need == TAKES_PART && takes_part(x))) {
    xp_find(f, x, takes_part(x) ? &missing : &idle_bad_value, "%s is missing", a->name);
  } else if (a->need == SHOULD && strcmp(a->name, gpu ? "rank" : "dev") == 0) {
    xp_find(f, x, gpu ? &no_rank : &no_dev, "%s is missing", a->name);
  } else if (a->need == SHOULD) {
    xp_find(f, x, strcmp(a->name, "tclass") == 0 ? &no_class : &missing_expected, "%s is missing", a->name);
  }
}

static const attribute *attribute_of(const grammar *form, const char *tag, const char *name)
{
  for (size_t i = 0; i < form->nattributes; i++) {
    if (strcmp(form->attributes[i].tag, tag) == 0 && strcmp(form->attributes[i].name, name) == 0) {
      return &form->attributes[i];
    }
  }
  return NULL;
}

static void check_attributes(xp_findings *f, const grammar *form, const tt_xml_node *x)
{
  for (size_t i = 0; i < form->nattributes; i++) {
    const attribute *a = &form->attributes[i];
    if (strcmp(a->tag, x->tag) != 0) {
      continue;
    }
    const char *text = tt_xml_get(x, a->name);
    bool there = text != NULL && (text[0] != 0 || strcmp(a->name, "tclass") != 0); // one that is empty counts as none
    (there ? check_value : check_missing)(f, x, a);
  }
  for (const tt_xml_attr *a = x->attrs; a != NULL; a = a->next) {
    bool mark = strcmp(a->name, "keep") == 0; // of documents that are being made, on any element
    if (!mark && attribute_of(form, x->tag, a->name) == NULL) {
      xp_find(f, x, &unknown_attribute, "%.64s=\"%.64s\": not known here", a->name, a->value);
    }
  }
}

static const place *place_of(const grammar *form, const char *tag)
{
  for (size_t i = 0; i < form->nplaces; i++) {
    if (strcmp(form->places[i].tag, tag) == 0) {
      return &form->places[i];
    }
  }
  return NULL;
}

static bool stands_right(const place *p, const tt_xml_node *x)
{
  const char *parent = x->parent != NULL ? x->parent->tag : "";
  bool right = false;
  for (int i = 0; i < 3 && p->inside[i] != NULL; i++) {
    right |= strcmp(p->inside[i], parent) == 0;
  }
  return right;
}

static void check_cpu(xp_findings *f, const tt_xml_node *x)
{
  static const char *const arches[] = {"x86_64", "arm64", "aarch64", "ppc64"};
  static const char *const vendors[] = {"GenuineIntel", "AuthenticAMD", "CentaurHauls", "  Shanghai  "};
  const char *arch = tt_xml_get(x, "arch"), *vendor = tt_xml_get(x, "vendor");
  bool known = arch == NULL;
  for (size_t i = 0; i < TT_COUNT(arches) && !known; i++) {
    known = strncmp(arch, arches[i], strlen(arches[i])) == 0;
  }
  if (!known) {
    xp_find(f, x, &bad_arch, "arch=\"%.64s\": not known", arch);
  }
  if (arch == NULL || strncmp(arch, "x86_64", 6) != 0) {
    return;
  }
  known = false;
  for (size_t i = 0; i < TT_COUNT(vendors) && vendor != NULL; i++) {
    known |= strcmp(vendor, vendors[i]) == 0;
  }
  if (!known) {
    xp_find(f, x, &bad_arch, "vendor=\"%.64s\": not known", vendor != NULL ? vendor : "");
  } else if (tt_xml_get(x, "familyid") == NULL || tt_xml_get(x, "modelid") == NULL) {
    xp_find(f, x, &missing_expected, "familyid or modelid is missing");
  }
}

static void check_element(xp_findings *f, const grammar *form, const tt_xml_node *x)
{
  const place *p = place_of(form, x->tag);
  if (p == NULL) {
    xp_find(f, x, &unknown_tag, "is not known");
    return;
  }
  if (!stands_right(p, x)) {
    xp_find(f, x, &wrong_place, "stands in <%.64s>; it belongs in <%s>", x->parent != NULL ? x->parent->tag : "",
            p->inside[0]);
    return;
  }
  check_attributes(f, form, x);
  if (strcmp(x->tag, "cpu") == 0) {
    check_cpu(f, x);
  }
}

// What is in an element that is skipped is skipped too.
static bool skipped(const grammar *form, const tt_xml_node *x)
{
  const place *p = place_of(form, x->tag);
  return p == NULL || !stands_right(p, x);
}

static const tt_xml_node *after(const tt_xml_node *top, const tt_xml_node *x, bool inside)
{
  if (inside) {
    return tt_xml_walk(top, x);
  }
  while (x != top && x->next == NULL) {
    x = x->parent;
  }
  return x == top ? NULL : x->next;
}

void xp_lint_elements(xp_findings *f, const tt_xml *xml)
{
  const grammar machine = {machine_attributes, machine_places, TT_COUNT(machine_attributes), TT_COUNT(machine_places)};
  const grammar graphs = {graph_attributes, graph_places, TT_COUNT(graph_attributes), TT_COUNT(graph_places)};
  bool system = strcmp(xml->root->tag, "system") == 0;
  if (!system && strcmp(xml->root->tag, "graphs") != 0) {
    xp_find(f, xml->root, &root, "begins the document; <system> or <graphs> is expected");
    return;
  }
  const grammar *form = system ? &machine : &graphs;
  for (const tt_xml_node *x = xml->root; x != NULL; x = after(xml->root, x, !skipped(form, x))) {
    check_element(f, form, x);
  }
  if (xml->ignored_text > 0) {
    tt_xml_node at = {.tag = xml->root->tag, .file = xml->name, .line = xml->ignored_text};
    xp_find(f, &at, &text_found, "has text in it");
  }
}
