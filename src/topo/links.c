// links.c: links across the tree of a document.
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "topo/build_priv.h"

enum {
  MAX_CPUS = 256, // of one host: each is linked to each
  MAX_CPU_LINKS = 1 << 20,
};

static int cpu_above(const tt_builder *b, int node)
{
  while (node >= 0 && b->d.nodes[node].n.kind != TT_NODE_CPU) {
    node = b->d.nodes[node].up;
  }
  return node;
}

// What kind of node a PCI class stands for.
static int class_kind(const char *class)
{
  if (strncmp(class, "0x068000", 8) == 0) {
    return TT_NODE_NVS;
  }
  if (strncmp(class, "0x068001", 8) == 0) {
    return TT_NODE_CPU;
  }
  return strncmp(class, "0x03", 4) == 0 || strncmp(class, "0x12", 4) == 0 ? TT_NODE_GPU : TT_NODE_NVS;
}

static ncclResult_t nvswitch(tt_builder *b, const tt_xml_node *x, int *out)
{
  *out = tt_draft_find(&b->d, TT_NODE_NVS, 0, 0);
  return *out >= 0 ? ncclSuccess : tt_build_add(b, x, (tt_topo_node){.kind = TT_NODE_NVS}, out);
}

static ncclResult_t link_gpus(tt_builder *b, const tt_xml_node *x, int gpu, float bw)
{
  int64_t bus;
  TT_TRY(tt_build_bus(x, "target", &bus));
  int to = tt_draft_find(&b->d, TT_NODE_GPU, tt_build_node(b, gpu)->host, bus);
  if (to < 0) {
    return ncclSuccess; // it takes no part
  }
  to = tt_build_node(b, to)->gpu.device;
  if (to == gpu) {
    tt_build_note(b, x, "target=\"%.64s\" is the GPU itself, ignored", tt_xml_get(x, "target"));
    return ncclSuccess;
  }
  return tt_draft_connect(&b->d, gpu, to, TT_PATH_NVL, bw);
}

static int compare_buses(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// Lists the PCI elements that the document says to be GPUs, by a <gpu> in it or by class, whether they take part or
// not.
static ncclResult_t list_gpus(tt_builder *b, const tt_xml_node *root)
{
  int count = 0;
  for (const tt_xml_node *x = root; x != NULL; x = tt_xml_walk(root, x)) {
    count += tt_xml_is(x, "pci");
  }
  if (TT_ARENA_NEW(&b->arena, b->gpus, count) == NULL) {
    return tt_fail(ncclSystemError, "no memory for %d PCI devices", count);
  }
  for (const tt_xml_node *x = root; x != NULL; x = tt_xml_walk(root, x)) {
    const char *bus = tt_xml_is(x, "pci") ? tt_xml_get(x, "busid") : NULL, *class = tt_xml_get(x, "class");
    bool gpu = bus != NULL && (tt_xml_child(x, "gpu") != NULL || (class != NULL && class_kind(class) == TT_NODE_GPU));
    b->ngpus += gpu && tt_bus_id(bus, &b->gpus[b->ngpus]);
  }
  qsort(b->gpus, (size_t)b->ngpus, sizeof(*b->gpus), compare_buses);
  return ncclSuccess;
}

// Without a class (NCCL asks the system for that of the device), a target that is a GPU of the document is one; all
// else is taken for an NVSwitch.
static ncclResult_t target_kind(tt_builder *b, const tt_xml_node *x, int *out)
{
  const char *class = tt_xml_get(x, "tclass"), *target = tt_xml_get(x, "target");
  if (class != NULL && class[0] != 0) {
    *out = class_kind(class);
    return ncclSuccess;
  }
  if (b->gpus == NULL) {
    const tt_xml_node *root = x;
    while (root->parent != NULL) {
      root = root->parent;
    }
    TT_TRY(list_gpus(b, root));
  }
  int64_t bus;
  bool known = target != NULL && tt_bus_id(target, &bus) &&
               bsearch(&bus, b->gpus, (size_t)b->ngpus, sizeof(bus), compare_buses) != NULL;
  *out = known ? TT_NODE_GPU : TT_NODE_NVS;
  return ncclSuccess;
}

static ncclResult_t add_nvlink(tt_builder *b, const tt_xml_node *x, int gpu, float one)
{
  int count, kind, to;
  TT_TRY(tt_xml_int(x, "count", (tt_xml_range){1, 1024}, &count));
  TT_TRY(target_kind(b, x, &kind));
  float bw = (float)count * one;
  if (kind == TT_NODE_GPU) {
    return link_gpus(b, x, gpu, bw);
  }
  if (kind == TT_NODE_CPU) {
    to = cpu_above(b, gpu);
  } else {
    TT_TRY(nvswitch(b, x, &to));
  }
  return tt_draft_join(&b->d, gpu, to, TT_PATH_NVL, bw);
}

static ncclResult_t add_c2c(tt_builder *b, const tt_xml_node *x, int gpu)
{
  int count, mbs;
  TT_TRY(tt_xml_int(x, "count", (tt_xml_range){1, 1024}, &count));
  TT_TRY(tt_xml_int(x, "bw", (tt_xml_range){1, 1000000}, &mbs));
  return tt_draft_join(&b->d, gpu, cpu_above(b, gpu), TT_PATH_C2C, (float)(mbs * count / 1000.0));
}

// Links of GPUs: NVLink or xGMI when c2c is false.
static ncclResult_t add_gpu_links(tt_builder *b, int gpu, bool c2c)
{
  tt_topo_node n = *tt_build_node(b, gpu);
  for (const tt_xml_node *x = b->d.nodes[gpu].xml->child; x != NULL; x = x->next) {
    if (tt_xml_is(x, "nvlink")) {
      TT_TRY(c2c ? ncclSuccess : add_nvlink(b, x, gpu, tt_bw_nvlink(n.gpu.sm)));
    } else if (tt_xml_is(x, "xgmi")) {
      TT_TRY(c2c ? ncclSuccess : add_nvlink(b, x, gpu, tt_bw_xgmi(n.gpu.gcn)));
    } else if (!tt_xml_is(x, "c2c")) {
      tt_build_unknown(b, x);
    } else if (c2c) {
      TT_TRY(add_c2c(b, x, gpu));
    }
  }
  return ncclSuccess;
}

static ncclResult_t add_links_of_gpus(tt_builder *b, bool c2c)
{
  for (int i = 0, n = b->d.nnodes; i < n; i++) {
    if (tt_build_node(b, i)->kind == TT_NODE_GPU && tt_build_node(b, i)->gpu.device == i) {
      TT_TRY(add_gpu_links(b, i, c2c));
    }
  }
  return ncclSuccess;
}

static ncclResult_t add_pci_links(tt_builder *b)
{
  for (int i = 0; i < b->d.nnodes; i++) {
    if (tt_build_node(b, i)->kind != TT_NODE_PCI) {
      continue;
    }
    for (const tt_xml_node *x = tt_xml_child(b->d.nodes[i].xml, "pcilink"); x != NULL;
         x = tt_xml_sibling(x, "pcilink")) {
      int64_t bus;
      TT_TRY(tt_build_bus(x, "target", &bus));
      int to = tt_draft_find(&b->d, TT_NODE_PCI, tt_build_node(b, i)->host, bus);
      if (to == i) {
        return tt_xml_fail(x, "target=\"%.64s\" is the switch itself", tt_xml_get(x, "target"));
      }
      TT_TRY(to >= 0 ? tt_draft_connect(&b->d, i, to, TT_PATH_LOC, TT_BW_LOC) : ncclSuccess);
    }
  }
  return ncclSuccess;
}

// A link that only one side has goes both ways. Then all lists are sorted.
static ncclResult_t mirror_links(tt_builder *b)
{
  for (int i = 0, n = b->d.nnodes; i < n; i++) {
    TT_TRY(tt_draft_sort(&b->d, i));
    for (int l = b->d.nodes[i].links; l >= 0; l = b->d.links[l].next) {
      tt_draft_link link = b->d.links[l];
      if (tt_draft_link_find(&b->d, link.to, i, link.type) < 0) {
        tt_build_note(b, b->d.nodes[i].xml, "its %s link to line %d is missing there; counted in both directions",
                      tt_link_type_name(link.type), b->d.nodes[link.to].n.line);
        TT_TRY(tt_draft_connect(&b->d, link.to, i, link.type, link.bw));
      }
    }
  }
  for (int i = 0, n = b->d.nnodes; i < n; i++) {
    TT_TRY(tt_draft_sort(&b->d, i));
  }
  return ncclSuccess;
}

// ---- CPUs ----

// Links each CPU of a host to each; `place` is a CPU's node.
static ncclResult_t connect_host(tt_builder *b, const tt_order *list, int count)
{
  if (count > MAX_CPUS) {
    return tt_xml_fail(b->d.nodes[list[0].place].xml, "more than %d CPUs of one host", MAX_CPUS);
  }
  for (int i = 0; i < count; i++) {
    tt_topo_node cpu = *tt_build_node(b, list[i].place);
    for (int j = 0; j < count; j++) {
      float bw = tt_bw_cpus(cpu.cpu.arch, cpu.cpu.vendor, cpu.cpu.model);
      TT_TRY(i != j ? tt_draft_connect(&b->d, list[i].place, list[j].place, TT_PATH_SYS, bw) : ncclSuccess);
    }
    TT_TRY(tt_draft_sort(&b->d, list[i].place));
  }
  return ncclSuccess;
}

static int64_t links_host_of(const tt_topo_node *cpu)
{
  return cpu->host;
}

// Links the CPUs of each host.
static ncclResult_t connect_cpus(tt_builder *b)
{
  long links = 0;
  int count;
  tt_order *list;
  TT_TRY(tt_build_sorted(b, TT_NODE_CPU, links_host_of, &list, &count));
  for (int i = 0, end; i < count; i = end) {
    for (end = i; end < count && list[end].key == list[i].key;) {
      end++;
    }
    links += (long)(end - i) * (end - i);
    if (links > MAX_CPU_LINKS) {
      return tt_xml_fail(b->d.nodes[list[i].place].xml, "more than %d links between the CPUs of all hosts",
                         MAX_CPU_LINKS);
    }
    TT_TRY(connect_host(b, list + i, end - i));
  }
  return ncclSuccess;
}

ncclResult_t tt_build_links(tt_builder *b)
{
  TT_TRY(add_links_of_gpus(b, false));
  TT_TRY(add_links_of_gpus(b, true));
  TT_TRY(add_pci_links(b));
  TT_TRY(mirror_links(b));
  TT_TRY(tt_draft_flatten(&b->d));
  return connect_cpus(b);
}
