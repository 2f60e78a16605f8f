// document.c: where the document of a machine comes from: a file, standard input, a capture, this computer; and ranks
// for it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/param.h"
#include "base/util.h"
#include "machine.h"
#include "tools/capture.h"
#include "tools/gather.h"

#define CAPTURE "tutti-machine"

// Ranks in host memory where nobody says how many: one for each core, within these limits; the most
// where cores are not known.
enum { FEW_HOST_RANKS = 2, MANY_HOST_RANKS = 8 };

enum { MAX_PORTS = 256, MAX_NUMA = 1024, MAX_CORE_SET = 4096, DEFAULT_SPEED = 10000 };

// ---- From /sys, a copy of it or a capture ----

static int compare_ints(const void *a, const void *b)
{
  return *(const int *)a - *(const int *)b;
}

// Cores in a set such as "ff,00000003".
static int count_cores(const char *set)
{
  static const char digits[] = "0123456789abcdef";
  int count = 0;
  for (; *set != 0; set++) {
    const char *digit = strchr(digits, *set);
    count += digit != NULL ? __builtin_popcountl((unsigned long)(digit - digits)) : 0;
  }
  return count;
}

// NUMA nodes with cores, ascending, and how many cores they have together. Returns how many nodes.
static int numa_nodes(const tt_tree *tree, int out[MAX_NUMA], int *cores)
{
  tt_tree_names names = {0};
  int count = 0;
  *cores = 0;
  if (tt_tree_list(tree, "/sys/devices/system/node", &names) != ncclSuccess) {
    return 0;
  }
  for (int i = 0; i < names.count && count < MAX_NUMA; i++) {
    char path[TT_TREE_PATH], set[MAX_CORE_SET] = "", *end;
    if (strncmp(names.names[i], "node", 4) != 0 || strlen(names.names[i]) > 12) {
      continue;
    }
    long n = strtol(names.names[i] + 4, &end, 10);
    snprintf(path, sizeof(path), "/sys/devices/system/node/%s/cpumap", names.names[i]);
    int here = tt_tree_read(tree, path, set, sizeof(set)) > 0 ? count_cores(set) : 0;
    if (end != names.names[i] + 4 && *end == 0 && here > 0) {
      out[count++] = (int)n;
      *cores += here;
    }
  }
  tt_tree_names_free(&names);
  qsort(out, (size_t)count, sizeof(*out), compare_ints);
  return count;
}

typedef struct finder {
  tt_source in;
  tt_source_rank ranks[1024];
  tt_source_net nets[MAX_PORTS];
  tt_source_port ports[MAX_PORTS];
  char gpus[TT_NVML_MAX_GPUS][16];
  int numa[MAX_NUMA];
} finder;

static void add_ranks(finder *f, const xp_options *o, int ngpus)
{
  int cores, nodes = numa_nodes(f->in.machine.tree, f->numa, &cores);
  int n = ngpus > 0      ? ngpus
          : o->ranks > 0 ? o->ranks
          : cores > 0    ? (int)TT_CLAMP(cores, FEW_HOST_RANKS, MANY_HOST_RANKS)
                         : MANY_HOST_RANKS;
  for (int i = 0; i < n; i++) {
    f->ranks[i] = (tt_source_rank){.rank = i, .dev = i, .numa = nodes > 0 ? f->numa[(long)i * nodes / n] : -1};
    if (ngpus > 0) {
      f->ranks[i].bus_id = f->gpus[i];
      f->ranks[i].gdr = 1;
    }
  }
  f->in.ranks = f->ranks;
  f->in.nranks = n;
}

// Whether cards reach GPUs is not to be seen in /sys: those of InfiniBand do, as a rule.
static ncclResult_t add_nets(finder *f)
{
  char path[TT_TREE_PATH];
  int count = 0;
  bool infiniband = tt_tree_resolve(f->in.machine.tree, "/sys/class/infiniband", path);
  TT_TRY(tt_source_ports(f->in.machine.tree, f->ports, MAX_PORTS, &count));
  for (int i = 0; i < count; i++) {
    f->nets[i] = (tt_source_net){.name = f->ports[i].name,
                                 .pci_path = f->ports[i].pci_path,
                                 .speed = f->ports[i].speed > 0 ? f->ports[i].speed : DEFAULT_SPEED,
                                 .port = f->ports[i].port,
                                 .maxconn = infiniband ? 131072 : 65536,
                                 .gdr = infiniband,
                                 .rail = -1,
                                 .plane = -1,
                                 .guid = (uint64_t)i};
  }
  f->in.nets = f->nets;
  f->in.nnets = count;
  return ncclSuccess;
}

ncclResult_t xp_detect(const tt_tree *tree, const tt_nvml *nvml, const xp_options *o, tt_xml **out)
{
  int ngpus = 0;
  finder *f = tt_calloc(1, sizeof(*f));
  if (f == NULL) {
    return tt_fail(ncclSystemError, "no memory to look at the machine");
  }
  f->in = (tt_source){.machine = {.tree = tree, .gpu = tt_gpu_element, .nvml = nvml}};
  ncclResult_t res = tt_source_gpus(&f->in.machine, f->gpus, &ngpus);
  // A file of this computer's hints is joined to what is found.
  f->in.file = nvml != NULL && ngpus > 0 ? tt_params_get()->topo_file : NULL;
  res = res == ncclSuccess ? add_nets(f) : res;
  if (res == ncclSuccess) {
    add_ranks(f, o, ngpus);
    res = tt_source_detect(&f->in, out);
  }
  tt_free(f);
  return res;
}

static ncclResult_t detect_root(const char *root, const tt_nvml *nvml, const xp_options *o, tt_xml **out)
{
  tt_tree *tree = NULL;
  TT_TRY(tt_capture_open(root, &tree));
  ncclResult_t res = xp_detect(tree, nvml, o, out);
  tt_tree_close(tree);
  return res;
}

// Says in `name` where it came from.
static ncclResult_t this_computer(const xp_options *o, char name[XP_NAME], tt_xml **out)
{
  static char gpus[TT_NVML_MAX_GPUS][16];
  const char *file = tt_params_get()->topo_file;
  tt_nvml *nvml = NULL;
  TT_TRY(tt_nvml_open(NULL, &nvml));
  bool places = file != NULL && (nvml == NULL || tt_nvml_list(nvml, gpus) == 0); // the file is another machine
  ncclResult_t res = places ? tt_xml_read(file, out) : detect_root("/", nvml, o, out);
  tt_nvml_close(nvml);
  const char *from = res == ncclSuccess ? (*out)->name : "";
  bool hinted = (file != NULL && strcmp(from, file) == 0) || strstr(from, TT_SOURCE_DEFAULT_FILE) != NULL;
  if (places) {
    snprintf(name, XP_NAME, "%s (NCCL_TOPO_FILE)", file);
  } else {
    snprintf(name, XP_NAME, "this computer%s%s", hinted ? ", joined to " : "", hinted ? from : "");
  }
  return res;
}

// ---- From a file ----

static ncclResult_t parse(const char *name, const char *text, size_t size, const xp_options *o, tt_xml **out)
{
  tt_tree *tree = NULL;
  if (size < strlen(CAPTURE) || memcmp(text, CAPTURE, strlen(CAPTURE)) != 0) {
    return tt_xml_parse(name, text, size, out);
  }
  TT_TRY(tt_capture_parse(name, text, size, &tree));
  ncclResult_t res = xp_detect(tree, NULL, o, out);
  tt_tree_close(tree);
  return res;
}

static ncclResult_t standard_input(const xp_options *o, tt_xml **out)
{
  char *text = tt_calloc(1, TT_CAPTURE_BYTES + 1); // zeroed pages that are not touched cost nothing
  if (text == NULL) {
    return tt_fail(ncclSystemError, "standard input: no memory");
  }
  size_t size = fread(text, 1, TT_CAPTURE_BYTES + 1, stdin);
  ncclResult_t res = ferror(stdin) ? tt_fail(ncclSystemError, "standard input: cannot be read: %s", strerror(errno))
                     : size > TT_CAPTURE_BYTES
                         ? tt_fail(ncclInvalidArgument, "standard input: more than %d bytes", TT_CAPTURE_BYTES)
                         : parse("standard input", text, size, o, out);
  tt_free(text);
  return res;
}

static bool is_capture(const char *path)
{
  char text[sizeof(CAPTURE)] = "";
  FILE *f = fopen(path, "rbe");
  size_t n = f != NULL ? fread(text, 1, strlen(CAPTURE), f) : 0;
  if (f != NULL) {
    fclose(f);
  }
  return n == strlen(CAPTURE) && strcmp(text, CAPTURE) == 0;
}

// A folder without any of this is no copy of a machine's.
static ncclResult_t check_folder(const char *folder)
{
  static const char *const wanted[] = {"/sys/bus/pci/devices", "/sys/devices/system/node", "/sys/devices/system/cpu"};
  tt_tree *tree = NULL;
  bool found = false;
  TT_TRY(tt_tree_open(folder, &tree));
  for (size_t i = 0; i < TT_COUNT(wanted) && !found; i++) {
    char path[TT_TREE_PATH];
    found = tt_tree_resolve(tree, wanted[i], path);
  }
  tt_tree_close(tree);
  return found ? ncclSuccess
               : tt_fail(ncclInvalidArgument,
                         "%s: a folder with a copy of /sys is expected; there is no sys/bus/pci/devices, "
                         "sys/devices/system/node or "
                         "sys/devices/system/cpu in it",
                         folder);
}

// What `file` holds: a description, a capture, a folder with a copy of /sys, or "-".
static ncclResult_t read_file(const char *file, const xp_options *o, tt_xml **out)
{
  struct stat st;
  if (strcmp(file, "-") == 0) {
    return standard_input(o, out);
  }
  bool known = stat(file, &st) == 0;
  TT_TRY(known && S_ISDIR(st.st_mode) ? check_folder(file) : ncclSuccess);
  if (known && (S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && is_capture(file)))) {
    return detect_root(file, NULL, o, out);
  }
  return tt_xml_read(file, out);
}

static const char *file_name(const char *file)
{
  return strcmp(file, "-") == 0 ? "standard input" : file;
}

static ncclResult_t read_input(const xp_options *o, char name[XP_NAME], tt_xml **out)
{
  const char *file = o->file[0];
  if (file == NULL) {
    return this_computer(o, name, out);
  }
  snprintf(name, XP_NAME, "%s", file_name(file));
  return read_file(file, o, out);
}

// ---- Ranks ----

typedef struct seat {
  tt_xml_node *gpu;
  long long key; // rank, or place
} seat;

static int compare_seats(const void *a, const void *b)
{
  const seat *x = a, *y = b;
  return x->key != y->key ? (x->key < y->key ? -1 : 1) : 0;
}

static ncclResult_t init_int(tt_xml *xml, tt_xml_node *node, const char *name, long long value)
{
  const char *have = tt_xml_get(node, name);
  return have != NULL && have[0] != 0 ? ncclSuccess : tt_xml_set_int(xml, node, name, value);
}

static bool is_placed(const tt_xml_node *x, const char *tag)
{
  return strcmp(x->tag, tag) == 0 && tt_topo_in_place(x);
}

// A file that no run has filled in: every GPU gets a rank, every port a number, and cards reach GPUs.
static ncclResult_t fill_in(tt_xml *xml)
{
  int gpus = 0, nets = 0;
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    if (is_placed(n, "gpu")) {
      TT_TRY(init_int(xml, n, "dev", gpus));
      TT_TRY(tt_xml_set_int(xml, n, "rank", gpus++));
      TT_TRY(init_int(xml, n, "gdr", 1));
    }
  }
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    if (is_placed(n, "net")) {
      TT_TRY(init_int(xml, n, "dev", nets++));
      TT_TRY(init_int(xml, n, "gdr", 1));
    }
  }
  return ncclSuccess;
}

// Ranks of a larger run are counted from 0 here. Two that are the same stay the same: the model says where they stand.
static ncclResult_t renumber(tt_xml *xml, seat *seats, int count)
{
  qsort(seats, (size_t)count, sizeof(*seats), compare_seats);
  long long next = -1, last = -1;
  for (int i = 0; i < count; i++) {
    next += i == 0 || seats[i].key != last;
    last = seats[i].key;
    if (next != seats[i].key) {
      TT_TRY(tt_xml_set_int(xml, seats[i].gpu, "rank", next));
    }
  }
  return ncclSuccess;
}

ncclResult_t xp_number_ranks(tt_xml *xml)
{
  int count = 0, room = 0;
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    room += is_placed(n, "gpu");
  }
  seat *seats = tt_calloc((size_t)room + 1, sizeof(*seats));
  if (seats == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory for %d GPUs", xml->name, room);
  }
  ncclResult_t res = ncclSuccess;
  for (tt_xml_node *n = xml->root; n != NULL && res == ncclSuccess; n = tt_xml_walk(xml->root, n)) {
    if (is_placed(n, "gpu") && tt_xml_get(n, "rank") != NULL) {
      int rank = -1;
      res = tt_xml_int(n, "rank", (tt_xml_range){-1, INT32_MAX}, &rank);
      seats[count].gpu = n;
      seats[count].key = rank;
      count += rank >= 0;
    }
  }
  if (res == ncclSuccess) {
    res = count > 0 ? renumber(xml, seats, count) : fill_in(xml);
  }
  tt_free(seats);
  return res;
}

// ---- Several hosts in one NVLink domain ----

// A document with the same elements. Destroy it with tt_xml_destroy.
static ncclResult_t copy_document(const tt_xml *from, tt_xml **out)
{
  tt_xml *to = NULL;
  tt_xml_node *copy = NULL;
  TT_TRY(tt_xml_new(from->name, from->root->tag, &to));
  ncclResult_t res = ncclSuccess;
  for (const tt_xml_node *n = from->root->child; n != NULL && res == ncclSuccess; n = n->next) {
    res = tt_xml_copy(to, to->root, n, &copy);
  }
  if (res != ncclSuccess) {
    tt_xml_destroy(to);
    return res;
  }
  *out = to;
  return ncclSuccess;
}

static ncclResult_t add_host(tt_xml *xml, const tt_xml *one, int host, int ranks)
{
  tt_xml *other = NULL;
  int rank;
  TT_TRY(copy_document(one, &other));
  ncclResult_t res = ncclSuccess;
  for (tt_xml_node *n = other->root; n != NULL && res == ncclSuccess; n = tt_xml_walk(other->root, n)) {
    if (strcmp(n->tag, "gpu") == 0 && tt_xml_get(n, "rank") != NULL) {
      res = tt_xml_int(n, "rank", (tt_xml_range){-1, INT32_MAX}, &rank);
      res = res == ncclSuccess && rank >= 0 ? tt_xml_set_int(other, n, "rank", rank + (long long)host * ranks) : res;
    }
  }
  res = res == ncclSuccess ? tt_topo_set_host(other, (uint64_t)host + 1) : res;
  res = res == ncclSuccess ? tt_topo_fuse(xml, other) : res;
  tt_xml_destroy(other);
  return res;
}

static ncclResult_t add_hosts(tt_xml *xml, int hosts)
{
  tt_xml *one = NULL;
  int ranks = 0;
  TT_TRY(copy_document(xml, &one));
  for (const tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    ranks += strcmp(n->tag, "gpu") == 0 && tt_xml_get(n, "rank") != NULL;
  }
  ncclResult_t res = tt_topo_set_host(xml, 1);
  for (int h = 1; h < hosts && res == ncclSuccess; h++) {
    res = add_host(xml, one, h, ranks);
  }
  tt_xml_destroy(one);
  return res;
}

static ncclResult_t offer_reduction(tt_xml *xml)
{
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    if (strcmp(n->tag, "net") == 0) {
      TT_TRY(tt_xml_set_int(xml, n, "coll", 1));
    }
  }
  return ncclSuccess;
}

static ncclResult_t finish(const xp_options *o, tt_xml *xml)
{
  if (strcmp(xml->root->tag, "system") != 0) {
    return tt_xml_fail(xml->root, "a machine begins with <system>; %s",
                       strcmp(xml->root->tag, "graphs") == 0 ? "graphs of one are for --graph-file"
                                                             : "this is something else");
  }
  TT_TRY(xp_number_ranks(xml));
  TT_TRY(o->collnet ? offer_reduction(xml) : ncclSuccess);
  return o->hosts > 1 ? add_hosts(xml, o->hosts) : ncclSuccess;
}

ncclResult_t xp_document(const xp_options *o, char name[XP_NAME], tt_xml **out)
{
  tt_xml *xml = NULL;
  TT_TRY(read_input(o, name, &xml));
  ncclResult_t res = finish(o, xml);
  if (res != ncclSuccess) {
    tt_xml_destroy(xml);
    return res;
  }
  *out = xml;
  return ncclSuccess;
}

// ---- For lint and diff ----

// A document that was made here as one that was read: with lines.
static ncclResult_t number_lines(const char *name, tt_xml **xml)
{
  char *text = NULL;
  size_t size = 0;
  tt_xml *numbered = NULL;
  TT_TRY(tt_xml_text(*xml, &text, &size));
  ncclResult_t res = tt_xml_parse(name, text, size, &numbered);
  tt_free(text);
  TT_TRY(res);
  tt_xml_destroy(*xml);
  *xml = numbered;
  return ncclSuccess;
}

ncclResult_t xp_read(const char *file, bool *made, tt_xml **out)
{
  const xp_options o = {.file = {file}, .nfiles = 1};
  const char *name = file_name(file);
  tt_xml *xml = NULL;
  TT_TRY(read_file(file, &o, &xml));
  ncclResult_t res = ncclSuccess;
  *made = strcmp(xml->name, name) != 0;
  if (*made) {
    res = number_lines(name, &xml);
  }
  if (res != ncclSuccess) {
    tt_xml_destroy(xml);
    return res;
  }
  *out = xml;
  return ncclSuccess;
}
