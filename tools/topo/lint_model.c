// lint_model.c: what only the model of the machine shows.
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "lint_priv.h"
#include "machine.h"
#include "topo/paths.h"

static const xp_reason not_loaded = {XP_ERROR, "the library does not load the file", "correct what the message names"};
static const xp_reason not_read = {XP_WARNING, "the library does not read it here, as nothing that takes part needs it",
                                   "correct it all the same: the file will not load once something does"};
static const xp_reason far_card = {
    XP_WARNING,
    "its traffic to other machines goes through the CPU, or another GPU, while others have a card at their switch",
    "see whether a card is missing, or is seen at another switch than it is"};
static const xp_reason no_near = {
    XP_NOTE, "no GPU has a card at its own PCI switch: all network traffic goes through CPUs",
    "nothing, where the machine is built so; in a virtual machine give NCCL_TOPO_FILE the real PCI tree"};
static const xp_reason no_gdr = {XP_WARNING,
                                 "a card that cannot reach GPU memory makes every transfer go through host memory",
                                 "load nvidia_peermem (or use dmabuf), then detect again"};
static const xp_reason no_gpu_gdr = {XP_WARNING, "the others' memory can be reached by cards, this one's not",
                                     "detect again, or set gdr=\"1\""};

static const xp_reason too_large = {
    XP_ERROR, "the table of paths between all of them would not fit: no communicator takes the file",
    "leave out what takes no part"};

static void ignore(void *arg, const tt_xml_node *at, const char *text)
{
  (void)arg, (void)at, (void)text;
}

// The error of the library, unless it was found already: at the line that it names.
static void tell_error(xp_findings *f, const tt_xml *xml)
{
  const char *text = tt_last_error();
  size_t n = strlen(xml->name);
  tt_xml_node at = {.tag = xml->root->tag, .file = xml->name, .line = xml->root->line};
  if (strncmp(text, xml->name, n) == 0 && text[n] == ':') {
    char *end = NULL;
    long line = strtol(text + n + 1, &end, 10);
    if (line > 0) {
      at.line = (int)line;
      text = strncmp(end, ": ", 2) == 0 ? end + 2 : end;
    }
  }
  if (!xp_has_error(f, at.line)) {
    xp_find(f, &at, &not_loaded, "%.400s", text);
  }
}

static bool near(const tt_path *p)
{
  return p->type <= TT_PATH_P2C; // not PXN: that is another GPU's card
}

static void find_at(xp_findings *f, const tt_xml *xml, const char *tag, int line, const xp_reason *reason,
                    const char *text)
{
  tt_xml_node at = {.tag = tag, .file = xml->name, .line = line};
  xp_find(f, &at, reason, "%s", text);
}

static bool has_near(const tt_topo *t, const tt_paths *paths, int gpu)
{
  for (int n = t->first[TT_NODE_NET]; n < t->first[TT_NODE_NET + 1]; n++) {
    if (near(tt_path_get(paths, gpu, n))) {
      return true;
    }
  }
  return false;
}

static void check_near(xp_findings *f, const tt_xml *xml, const tt_topo *t, const tt_paths *paths)
{
  char text[128];
  int with = 0, gpus = tt_topo_count(t, TT_NODE_GPU), nets = tt_topo_count(t, TT_NODE_NET);
  for (int g = 0; g < gpus; g++) {
    with += has_near(t, paths, g);
  }
  if (nets > 0 && gpus > 0 && with == 0) {
    xp_find(f, xml->root, &no_near, "no GPU has a network card near");
  }
  for (int g = 0; g < gpus && with > 0 && with < gpus; g++) {
    if (!has_near(t, paths, g)) {
      snprintf(text, sizeof(text), "rank %d: no network card near; %d of %d GPUs have one", t->nodes[g].gpu.rank, with,
               gpus);
      find_at(f, xml, "gpu", t->nodes[g].line, &far_card, text);
    }
  }
}

// Both kinds of nodes say whether cards reach GPU memory. `told` is what the document says: the machine has 1
// everywhere, so that paths are those that could be.
static void check_gdr(xp_findings *f, const tt_xml *xml, const tt_topo *t, const tt_paths *paths, const int *told)
{
  char text[128];
  int gpus = tt_topo_count(t, TT_NODE_GPU), able = 0;
  for (int g = 0; g < gpus; g++) {
    able += told[g] != 0;
  }
  for (int g = 0; g < gpus && able > 0; g++) {
    if (told[g] == 0) {
      snprintf(text, sizeof(text), "gdr=\"0\"; %d of %d GPUs have 1", able, gpus);
      find_at(f, xml, "gpu", t->nodes[g].line, &no_gpu_gdr, text);
    }
  }
  for (int n = t->first[TT_NODE_NET]; n < t->first[TT_NODE_NET + 1]; n++) {
    bool by_gpu = false;
    for (int g = 0; g < gpus; g++) {
      by_gpu |= told[g] != 0 && tt_path_get(paths, n, g)->type <= TT_PATH_PXB;
    }
    if (by_gpu && told[n] == 0) {
      find_at(f, xml, "net", t->nodes[n].line, &no_gdr, "gdr=\"0\", and a GPU is at the same PCI switch");
    }
  }
}

// Sets gdr of all GPUs and ports, and returns what it was; free it with tt_free.
static int *all_gdr(tt_topo *t)
{
  int *told = tt_calloc((size_t)t->nnodes + 1, sizeof(*told));
  for (int i = 0; i < t->first[TT_NODE_CPU] && told != NULL; i++) {
    int *gdr = t->nodes[i].kind == TT_NODE_GPU ? &t->nodes[i].gpu.gdr : &t->nodes[i].net.gdr;
    told[i] = *gdr;
    *gdr = 1;
  }
  return told;
}

// Builds the paths; false: they cannot be.
static bool check_paths(xp_findings *f, const tt_xml *xml, tt_topo *t)
{
  tt_paths *paths = NULL;
  tt_topo_rules rules = tt_topo_rules_default();
  int *told = all_gdr(t);
  f->no_memory |= told == NULL;
  bool loads = told != NULL && tt_paths_build(t, &rules, &paths) == ncclSuccess;
  if (loads) {
    check_near(f, xml, t, paths);
    check_gdr(f, xml, t, paths, told);
  } else if (told != NULL) {
    tell_error(f, xml);
  }
  tt_paths_destroy(paths);
  tt_free(told);
  return loads;
}

// What the loader does not read cannot keep the file from loading.
static void weaken(xp_findings *f)
{
  for (int i = 0; i < f->count; i++) {
    f->list[i].reason = f->list[i].reason->level == XP_ERROR ? &not_read : f->list[i].reason;
  }
  f->counts[XP_WARNING] += f->counts[XP_ERROR];
  f->counts[XP_ERROR] = 0;
}

static bool has_gpu(const tt_xml *xml)
{
  bool found = false;
  for (const tt_xml_node *x = xml->root; x != NULL && !found; x = tt_xml_walk(xml->root, x)) {
    found = strcmp(x->tag, "gpu") == 0 && tt_topo_in_place(x);
  }
  return found;
}

// Where there is no GPU, a communicator's ranks sit on the first CPU: it must load with one.
static ncclResult_t seat_rank(tt_xml *xml)
{
  tt_xml_node *cpu = tt_xml_child(xml->root, "cpu"), *at = NULL;
  if (cpu == NULL) {
    return ncclSuccess; // it makes one
  }
  TT_TRY(tt_xml_add(xml, cpu, "pci", &at));
  TT_TRY(tt_xml_set(xml, at, "busid", "fffe:00:00.0"));
  TT_TRY(tt_xml_add(xml, at, "gpu", &at));
  TT_TRY(tt_xml_set(xml, at, "dev", "0"));
  return tt_xml_set(xml, at, "rank", "0");
}

void xp_lint_model(xp_findings *f, tt_xml *xml)
{
  tt_topo *t = NULL;
  bool gpus = has_gpu(xml);
  if (xp_number_ranks(xml) != ncclSuccess || (!gpus && seat_rank(xml) != ncclSuccess) ||
      tt_topo_build(xml, ignore, NULL, &t) != ncclSuccess) {
    tell_error(f, xml);
    return;
  }
  if (tt_topo_ends(t) > TT_PATHS_MAX_ENDS) {
    xp_find(f, xml->root, &too_large, "%d GPUs, ports, CPUs and NVSwitches; paths are computed for at most %d",
            tt_topo_ends(t), TT_PATHS_MAX_ENDS);
  } else if (!gpus || check_paths(f, xml, t)) {
    weaken(f);
  }
  tt_topo_destroy(t);
}
