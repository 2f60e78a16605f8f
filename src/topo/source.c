// source.c: see source.h.
#include "topo/source_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "topo/sysfs_priv.h"
#include "topo/system.h"

enum { DEFAULT_FILE_BYTES = 4 << 20 };

// ---- The file ----

static ncclResult_t empty_document(tt_xml **out)
{
  TT_TRY(tt_xml_new("detected", "system", out));
  ncclResult_t res = tt_xml_set_int(*out, (*out)->root, "version", 1);
  if (res != ncclSuccess) {
    tt_xml_destroy(*out);
    *out = NULL;
  }
  return res;
}

// The file that a hypervisor has left, if there is one.
static ncclResult_t read_default(const tt_source *in, tt_xml **out)
{
  char *text;
  TT_TRY(TT_NEW(text, DEFAULT_FILE_BYTES, "no memory for " TT_SOURCE_DEFAULT_FILE));
  long size = tt_tree_read(in->machine.tree, TT_SOURCE_DEFAULT_FILE, text, DEFAULT_FILE_BYTES);
  ncclResult_t res = ncclSuccess;
  if (size >= DEFAULT_FILE_BYTES - 1) {
    res = tt_fail(ncclInvalidArgument, "%s: longer than %d bytes", TT_SOURCE_DEFAULT_FILE, DEFAULT_FILE_BYTES - 2);
  } else if (size > 0) {
    res = tt_xml_parse(TT_SOURCE_DEFAULT_FILE, text, (size_t)size, out);
  }
  tt_free(text);
  return res;
}

static ncclResult_t source_begin(const tt_source *in, tt_xml **out)
{
  TT_TRY(in->file != NULL ? tt_xml_read(in->file, out) : read_default(in, out));
  if (*out == NULL) {
    return empty_document(out);
  }
  if (!tt_xml_is((*out)->root, "system")) {
    return tt_xml_fail((*out)->root, "a document that begins with <system> is expected");
  }
  if (tt_xml_get((*out)->root, "version") == NULL) {
    TT_TRY(tt_xml_set_int(*out, (*out)->root, "version", 1));
  }
  return tt_topo_set_host(*out, in->machine.host_hash); // wherever the file was made, this is this machine
}

// ---- Ranks ----

static ncclResult_t source_init_int(tt_xml *xml, tt_xml_node *node, const char *name, long long value)
{
  return tt_xml_get(node, name) != NULL ? ncclSuccess : tt_xml_set_int(xml, node, name, value);
}

// The <gpu> of that number in the file; what was detected is not for host ranks.
static tt_xml_node *source_find_place(const tt_xml *xml, int dev)
{
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    const char *text = n->line > 0 && tt_xml_is(n, "gpu") ? tt_xml_get(n, "dev") : NULL;
    if (text != NULL && tt_sysfs_number(text, 0, INT32_MAX, -1) == dev && tt_topo_in_place(n)) {
      return n;
    }
  }
  return NULL;
}

// A host rank's own element.
static ncclResult_t source_add_host(const tt_source *in, tt_xml *xml, const tt_source_rank *r, tt_xml_node **out)
{
  char bus_id[16];
  tt_xml_node *cpu = NULL, *pci = NULL;
  if (r->dev < 0 || r->dev >= TT_SOURCE_HOST_DEVICES) {
    return tt_fail(ncclInvalidArgument, "rank %d: host device %d: a number below %d is expected", r->rank, r->dev,
                   TT_SOURCE_HOST_DEVICES);
  }
  unsigned dev = (unsigned)r->dev;
  snprintf(bus_id, sizeof(bus_id), "%04x:%02x:%02x.%x", TT_TOPO_HOST_DOMAIN, dev >> 8 & 0xff, dev >> 3 & 0x1f, dev & 7);
  pci = tt_sysfs_find(xml, "pci", "busid", bus_id);
  if (pci != NULL) { // several ranks on one device
    const char *class = tt_xml_get(pci, "class");
    *out = class != NULL && strcmp(class, TT_SOURCE_HOST_CLASS) == 0 ? tt_xml_child(pci, "gpu") : NULL;
    return *out != NULL ? ncclSuccess
                        : tt_fail(ncclInvalidArgument, "rank %d: host device %d: another PCI device has its bus id, %s",
                                  r->rank, r->dev, bus_id);
  }
  int numa = -1;
  TT_TRY(r->numa >= 0 ? tt_sysfs_home(&in->machine, r->numa, &numa) : ncclSuccess);
  TT_TRY(r->numa >= 0 ? tt_sysfs_cpu(&in->machine, xml, numa, &cpu) : tt_sysfs_first_cpu(&in->machine, xml, &cpu));
  TT_TRY(tt_sysfs_add_pci(xml, cpu, bus_id, &pci));
  TT_TRY(tt_xml_set(xml, pci, "class", TT_SOURCE_HOST_CLASS));
  TT_TRY(tt_xml_set(xml, pci, "link_speed", "64.0 GT/s PCIe")); // wide enough that memory is what limits
  TT_TRY(tt_xml_set(xml, pci, "link_width", "16"));
  TT_TRY(tt_xml_add(xml, pci, "gpu", out));
  TT_TRY(tt_xml_set_int(xml, *out, "dev", r->dev));
  return tt_xml_set(xml, *out, "sm", "0");
}

// A GPU that neither the file nor NVML knows, as the rank's driver knows it: without NVLinks. *out stays NULL where
// that does not know it either.
static ncclResult_t add_bare_gpu(const tt_source *in, tt_xml *xml, const tt_source_rank *r, tt_xml_node **out)
{
  tt_xml_node *pci = NULL;
  if (r->sm <= 0) {
    return ncclSuccess;
  }
  TT_TRY(tt_sysfs_pci(&in->machine, xml, r->bus_id, "0x03", NULL, &pci));
  tt_xml_node *gpu = tt_xml_child(pci, "gpu");
  if (gpu == NULL) {
    TT_TRY(tt_xml_add(xml, pci, "gpu", &gpu));
  }
  TT_TRY(source_init_int(xml, gpu, "dev", r->dev));
  TT_TRY(source_init_int(xml, gpu, "sm", r->sm));
  tt_info(TT_GRAPH, "rank %d: NVML does not know its GPU %s: its NVLinks are not seen", r->rank, r->bus_id);
  *out = gpu;
  return ncclSuccess;
}

static ncclResult_t source_find_gpu(const tt_source *in, tt_xml *xml, const tt_source_rank *r, tt_xml_node **out)
{
  TT_TRY(in->machine.gpu != NULL ? in->machine.gpu(&in->machine, xml, r->bus_id, out) : ncclSuccess);
  return *out == NULL ? add_bare_gpu(in, xml, r, out) : ncclSuccess;
}

// One more rank on a GPU that has one: an element beside the first.
static ncclResult_t share_gpu(tt_xml *xml, tt_xml_node **gpu)
{
  static const char *same[] = {"dev", "sm", "gcn", "arch"};
  tt_xml_node *first = *gpu;
  TT_TRY(tt_xml_add(xml, first->parent, "gpu", gpu));
  for (size_t i = 0; i < TT_COUNT(same); i++) {
    const char *value = tt_xml_get(first, same[i]);
    TT_TRY(value != NULL ? tt_xml_set(xml, *gpu, same[i], value) : ncclSuccess);
  }
  return ncclSuccess;
}

// The elements that ranks have taken.
typedef struct seats {
  const tt_source *in;
  tt_xml_node **taken; // of in->ranks[i]
  int count;
} seats;

static bool is_taken(const seats *s, const tt_xml_node *gpu)
{
  for (int i = 0; i < s->count; i++) {
    if (s->taken[i] == gpu) {
      return true;
    }
  }
  return false;
}

// Where a rank sits among the elements of one GPU: that of its number, or the first that is free. Returns NULL when all
// are taken.
static tt_xml_node *free_seat(const seats *s, tt_xml_node *gpu, int rank)
{
  tt_xml_node *found = NULL;
  for (tt_xml_node *n = tt_xml_child(gpu->parent, "gpu"); n != NULL; n = tt_xml_sibling(n, "gpu")) {
    const char *have = tt_xml_get(n, "rank");
    if (is_taken(s, n)) {
      continue;
    }
    if (have != NULL && tt_sysfs_number(have, 0, INT32_MAX, -1) == rank) {
      return n;
    }
    found = found == NULL ? n : found;
  }
  return found;
}

static ncclResult_t add_rank(seats *s, tt_xml *xml, const tt_source_rank *r)
{
  tt_xml_node *gpu = NULL;
  if (r->bus_id != NULL) {
    TT_TRY(source_find_gpu(s->in, xml, r, &gpu));
  } else {
    gpu = source_find_place(xml, r->dev);
    TT_TRY(gpu == NULL ? source_add_host(s->in, xml, r, &gpu) : ncclSuccess);
  }
  if (gpu == NULL) {
    return tt_fail(
        ncclSystemError,
        "rank %d: PCI device %s is not known as a GPU: neither NVML nor NCCL_TOPO_FILE has it. NCCL_DEBUG=INFO with "
        "NCCL_DEBUG_SUBSYS=GRAPH says what was tried",
        r->rank, r->bus_id);
  }
  tt_xml_node *seat = free_seat(s, gpu, r->rank);
  if (seat == NULL) {
    seat = gpu;
    TT_TRY(share_gpu(xml, &seat));
  }
  s->taken[s->count++] = seat;
  TT_TRY(tt_xml_set_int(xml, seat, "rank", r->rank));
  TT_TRY(source_init_int(xml, seat, "gdr", r->gdr));
  return tt_xml_set_int(xml, seat, "keep", 1);
}

static ncclResult_t source_check_ranks(const tt_source *in)
{
  for (int i = 0; i < in->nranks; i++) {
    int rank = in->ranks[i].rank, others = 0;
    for (int k = 0; k < i; k++) {
      others += in->ranks[k].rank == rank;
    }
    if (rank < 0 || others > 0) {
      return tt_fail(ncclInvalidArgument, "rank %d is %s", rank, rank < 0 ? "no rank" : "there twice");
    }
  }
  return ncclSuccess;
}

static ncclResult_t source_add_ranks(const tt_source *in, tt_xml *xml)
{
  seats s = {.in = in};
  ncclResult_t res = source_check_ranks(in);
  s.taken = res == ncclSuccess ? tt_calloc((size_t)in->nranks + 1, sizeof(tt_xml_node *)) : NULL;
  if (res == ncclSuccess && s.taken == NULL) {
    res = tt_fail(ncclSystemError, "no memory for %d ranks", in->nranks);
  }
  for (int i = 0; i < in->nranks && res == ncclSuccess; i++) {
    res = add_rank(&s, xml, &in->ranks[i]);
  }
  // Other ranks that the file has are of the run that it was written in.
  for (tt_xml_node *n = xml->root; n != NULL && res == ncclSuccess; n = tt_xml_walk(xml->root, n)) {
    if (tt_xml_is(n, "gpu") && !is_taken(&s, n)) {
      tt_xml_unset(n, "rank");
    }
  }
  tt_free(s.taken);
  return res;
}

// ---- The network ----

static tt_xml_node *find_net(const tt_xml *xml, const char *name)
{
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    const char *have = tt_xml_is(n, "net") ? tt_xml_get(n, "name") : NULL;
    if (have != NULL && strcmp(have, name) == 0 && tt_topo_in_place(n)) {
      return n;
    }
  }
  return NULL;
}

// The element below which a port belongs: its PCI device, or the first CPU.
static ncclResult_t net_parent(const tt_source *in, tt_xml *xml, const tt_source_net *n, tt_xml_node **out)
{
  char bus_id[16];
  if (n->nparts > 1) {
    return tt_source_virtual(in, xml, n, out);
  }
  if (n->pci_path != NULL && n->pci_path[0] != 0 && tt_sysfs_bus_of(&in->machine, n->pci_path, bus_id)) {
    return tt_sysfs_pci(&in->machine, xml, bus_id, "0x02", NULL, out);
  }
  if (n->pci_path != NULL && n->pci_path[0] != 0) {
    tt_info(TT_GRAPH | TT_NET, "%s: %.256s is not a PCI device; attached to the first CPU", n->name, n->pci_path);
  }
  return tt_sysfs_first_cpu(&in->machine, xml, out);
}

static ncclResult_t source_fill_net(tt_xml *xml, tt_xml_node *net, const tt_source_net *n)
{
  char text[64];
  tt_format(text, sizeof(text), "%f", (double)n->latency);
  TT_TRY(tt_sysfs_init(xml, net, "latency", text));
  TT_TRY(source_init_int(xml, net, "speed", n->speed));
  TT_TRY(source_init_int(xml, net, "port", n->port));
  TT_TRY(n->rail >= 0 ? source_init_int(xml, net, "rail", n->rail) : ncclSuccess);
  TT_TRY(n->plane >= 0 ? source_init_int(xml, net, "plane", n->plane) : ncclSuccess);
  snprintf(text, sizeof(text), "0x%" PRIx64, n->guid);
  TT_TRY(tt_sysfs_init(xml, net, "guid", text));
  TT_TRY(source_init_int(xml, net, "maxconn", n->maxconn));
  TT_TRY(source_init_int(xml, net, "gdr", n->gdr));
  TT_TRY(n->coll != 0 ? source_init_int(xml, net, "coll", n->coll) : ncclSuccess);
  return n->nparts > 1 ? tt_xml_set(xml, net, "parts", n->parts) : ncclSuccess;
}

static ncclResult_t source_add_net(const tt_source *in, tt_xml *xml, int dev)
{
  const tt_source_net *n = &in->nets[dev];
  tt_xml_node *net = find_net(xml, n->name), *parent = NULL, *nic = NULL;
  if (net == NULL) {
    TT_TRY(net_parent(in, xml, n, &parent));
    nic = tt_xml_child(parent, "nic");
    TT_TRY(nic == NULL ? tt_xml_add(xml, parent, "nic", &nic) : ncclSuccess);
    TT_TRY(tt_xml_add(xml, nic, "net", &net));
    TT_TRY(tt_xml_set(xml, net, "name", n->name));
  }
  TT_TRY(tt_xml_set_int(xml, net, "dev", dev));
  TT_TRY(source_fill_net(xml, net, n));
  return tt_xml_set_int(xml, net, "keep", 1);
}

static ncclResult_t source_add_nets(const tt_source *in, tt_xml *xml)
{
  for (int i = 0; i < in->nnets; i++) {
    for (int k = 0; k < i; k++) {
      if (strcmp(in->nets[k].name, in->nets[i].name) == 0) {
        return tt_fail(ncclInvalidArgument, "network device %d has the name of device %d, %.64s", i, k,
                       in->nets[i].name);
      }
    }
    TT_TRY(source_add_net(in, xml, i));
  }
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    if (in->file_nets && tt_xml_is(n, "net") && tt_xml_get(n, "dev") != NULL) {
      TT_TRY(tt_xml_set_int(xml, n, "keep", 1));
    }
  }
  return ncclSuccess;
}

// ---- What is kept ----

static bool may_go(const tt_xml_node *n)
{
  static const char *tags[] = {"pci", "cpu", "nic", "net"};
  bool found = false;
  for (size_t i = 0; i < TT_COUNT(tags); i++) {
    found = found || strcmp(n->tag, tags[i]) == 0;
  }
  return found;
}

// Says whether something below (or the node itself) is kept. The depth of documents is limited, so is the recursion.
static bool source_trim(tt_xml_node *node)
{
  const char *keep = tt_xml_get(node, "keep");
  bool kept = keep != NULL && strcmp(keep, "1") == 0;
  tt_xml_unset(node, "keep");
  tt_xml_node *list = node->child;
  node->child = node->last_child = NULL;
  for (tt_xml_node *c = list, *next; c != NULL; c = next) {
    next = c->next;
    c->next = NULL;
    bool used = source_trim(c);
    kept = kept || used;
    if (!used && may_go(c)) {
      c->parent = NULL;
      continue;
    }
    *(node->last_child != NULL ? &node->last_child->next : &node->child) = c;
    node->last_child = c;
  }
  return kept;
}

void tt_source_trim(tt_xml *xml)
{
  source_trim(xml->root);
}

ncclResult_t tt_source_detect(const tt_source *in, tt_xml **out)
{
  tt_xml *xml = NULL;
  ncclResult_t res = ncclSuccess;
  TT_TRY_GOTO(source_begin(in, &xml), res);
  TT_TRY_GOTO(source_add_ranks(in, xml), res);
  TT_TRY_GOTO(source_add_nets(in, xml), res);
  tt_source_trim(xml);
  *out = xml;
  return ncclSuccess;
fail:
  tt_xml_destroy(xml);
  return res;
}
