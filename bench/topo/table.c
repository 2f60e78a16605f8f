// table.c: every machine of tests/topologies: the channels that the search finds, what NCCL 2.30.7 finds (where it is known), the bound, and
// the time. Called by table.sh, from the source root: table RESULTS [REPEATS]. See README.md.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "topo/connect.h"
#include "topo/model.h"

#define MACHINES "tests/topologies"

enum { MAX_TIMES = 4096 };

typedef struct machine {
  char name[200];
  tt_topo *topo;
  tt_paths *paths;
  int groups;
  bool collnet;
} machine;

// One search of all graphs of a machine.
typedef struct result {
  tt_graphs graphs;
  double ms;
} result;

static struct {
  const char *results; // folder of the known results
  int repeats;
  int graphs, better, equal, below, longer, shorter;
  double times[MAX_TIMES];
  char slowest[220];
  double worst;
  int ntimes;
} all;

static void must(ncclResult_t res)
{
  if (res != ncclSuccess) {
    fprintf(stderr, "table: %s\n", tt_last_error());
    exit(1);
  }
}

static double now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

// ---- Machines ----

static void quiet(void *arg, const tt_xml_node *at, const char *text)
{
  (void)arg, (void)at, (void)text;
}

// Known results of in-network reduction are those of a plugin that offers it on every port.
static void offer_collnet(tt_xml *xml)
{
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    must(strcmp(n->tag, "net") == 0 ? tt_xml_set_int(xml, n, "coll", 1) : ncclSuccess);
  }
}

// `hosts` hosts of one NVLink domain: the machine several times.
static void add_hosts(tt_xml *xml, const char *path, int hosts)
{
  const long long any[2] = {0, INT32_MAX};
  long long ranks = 0, rank = 0;
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    ranks += tt_xml_get(n, "rank") != NULL;
  }
  must(tt_topo_set_host(xml, 1));
  for (int host = 1; host < hosts; host++) {
    tt_xml *other = NULL;
    must(tt_xml_read(path, &other));
    for (tt_xml_node *n = other->root; n != NULL; n = tt_xml_walk(other->root, n)) {
      if (tt_xml_get(n, "rank") != NULL) {
        must(tt_xml_int_or(n, "rank", 0, any, &rank));
        must(tt_xml_set_int(other, n, "rank", rank + ranks * host));
      }
    }
    must(tt_topo_set_host(other, (uint64_t)host + 1));
    must(tt_topo_fuse(xml, other));
    tt_xml_destroy(other);
  }
}

static void split(machine *m)
{
  tt_topo_rules rules = tt_topo_rules_default();
  int group[TT_PATHS_MAX_ENDS];
  bool in_group[TT_PATHS_MAX_ENDS] = {false};
  m->groups = tt_paths_groups(m->topo, m->paths, group);
  if (m->groups < 2) {
    return;
  }
  for (int g = 0; g < tt_topo_count(m->topo, TT_NODE_GPU); g++) {
    in_group[m->topo->nodes[g].gpu.rank] = group[g] == 0;
  }
  tt_topo *part = NULL;
  must(tt_topo_group(m->topo, in_group, TT_PATHS_MAX_ENDS, &part));
  tt_paths_destroy(m->paths);
  tt_topo_destroy(m->topo);
  m->topo = part;
  must(tt_paths_build(m->topo, &rules, &m->paths));
}

// The machine of a document, or the first group of its ranks where they only meet over the network.
static void load(machine *m, const char *path, int hosts)
{
  tt_topo_rules rules = tt_topo_rules_default();
  tt_xml *xml = NULL;
  must(tt_xml_read(path, &xml));
  if (m->collnet) {
    offer_collnet(xml);
  }
  if (hosts > 1) {
    add_hosts(xml, path, hosts);
  }
  must(tt_topo_build(xml, quiet, NULL, &m->topo));
  must(tt_paths_build(m->topo, &rules, &m->paths));
  tt_xml_destroy(xml);
  split(m);
}

static void unload(machine *m)
{
  tt_paths_destroy(m->paths);
  tt_topo_destroy(m->topo);
}

// ---- Searching ----

static void search_once(const machine *m, bool inter, tt_graphs *out)
{
  tt_topo_rules rules = tt_topo_rules_default();
  tt_search_options options = {.inter = inter, .cross_nic = 2, .collnet = m->collnet, .nvls = true};
  *out = (tt_graphs){0};
  must(tt_graphs_search(m->topo, m->paths, &rules, &options, out));
}

// The least time of several runs: the rest is what else the computer did.
static result search(const machine *m, bool inter)
{
  result r = {.ms = 1e9};
  for (int i = 0; i < all.repeats && (i < 2 || r.ms < 200); i++) {
    tt_graphs_clear(&r.graphs);
    double begin = now_ms();
    search_once(m, inter, &r.graphs);
    double ms = now_ms() - begin;
    r.ms = ms < r.ms ? ms : r.ms;
  }
  return r;
}

static void note_time(const char *label, double ms)
{
  if (all.ntimes < MAX_TIMES) {
    all.times[all.ntimes++] = ms;
  }
  if (ms > all.worst) {
    all.worst = ms;
    snprintf(all.slowest, sizeof(all.slowest), "%s", label);
  }
}

// ---- Lines ----

static int hops_between(const machine *m, int a, int b)
{
  return a < 0 || b < 0 ? 0 : tt_path_get(m->paths, a, b)->count;
}

// Links of all edges; 0 for graphs of heads.
static int count_hops(const machine *m, const tt_graph *g)
{
  int hops = 0, n = g->ngpus;
  bool ring = g->pattern == TT_PATTERN_RING;
  for (int c = 0; c < g->nchannels && g->pattern < TT_PATTERN_NVLS; c++) {
    const int *gpus = &g->gpus[c * n], *nets = &g->nets[2 * c];
    for (int i = 0; i < n - 1; i++) {
      hops += hops_between(m, gpus[i], gpus[i + 1]);
    }
    hops += g->inter ? hops_between(m, nets[0], gpus[0]) + hops_between(m, gpus[ring ? n - 1 : 0], nets[1]) : 0;
    hops += g->inter && g->pattern == TT_PATTERN_BALANCED_TREE ? hops_between(m, gpus[1 % n], nets[1]) : 0;
    hops += ring && !g->inter ? hops_between(m, gpus[n - 1], gpus[0]) : 0;
  }
  return hops;
}

static void show(const tt_graph *g, int hops, char text[80])
{
  if (g->nchannels == 0) {
    snprintf(text, 80, "%s", "-");
    return;
  }
  snprintf(text, 80, "%2d x %5.4g/%-5.4g %s/%-3s %4d", g->nchannels, (double)g->speedintra, (double)g->speedinter,
           tt_path_type_name(g->typeintra), g->inter ? tt_path_type_name(g->typeinter) : "-", hops);
}

static float total(const tt_graph *g, bool inter)
{
  return (float)g->nchannels * (inter ? g->speedinter : g->speedintra);
}

// What a graph is beside the known one, and counts it. More bandwidth outweighs path types and hops, as it does in the search.
static const char *judge(const tt_graph *our, const tt_graph *known, const int hops[2])
{
  float main_our = total(our, our->inter), main_known = total(known, our->inter);
  float intra_our = total(our, false), intra_known = total(known, false);
  all.graphs++;
  if (main_our > main_known * 1.001f || (main_our > main_known * 0.999f && intra_our > intra_known * 1.001f)) {
    all.better++;
    return "better";
  }
  bool types = our->typeintra > known->typeintra || (our->inter && our->typeinter > known->typeinter);
  if (main_our < main_known * 0.999f || intra_our < intra_known * 0.999f || types) {
    all.below++;
    return "BELOW";
  }
  if (our->nchannels >= known->nchannels && hops[0] * known->nchannels > hops[1] * our->nchannels) {
    all.longer++;
    return "more hops";
  }
  bool fewer = hops[0] * known->nchannels < hops[1] * our->nchannels;
  all.shorter += fewer;
  all.equal += !fewer;
  return fewer ? "fewer hops" : "equal";
}

static const char *kind_name(int kind)
{
  static const char *const names[TT_GRAPH_KINDS] = {"ring", "tree", "direct", "chain", "nvls"};
  return names[kind];
}

// `known` may be NULL.
static void print_graphs(const machine *m, int nodes, const result *r, const tt_graphs *known)
{
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    const tt_graph *our = &r->graphs.graph[k], *theirs = known != NULL ? &known->graph[k] : NULL;
    char a[80], b[80] = "";
    const char *verdict = "";
    if (our->nchannels + (theirs != NULL ? theirs->nchannels : 0) == 0) {
      continue;
    }
    int hops[2] = {count_hops(m, our), theirs != NULL ? count_hops(m, theirs) : 0};
    show(our, hops[0], a);
    if (theirs != NULL) {
      show(theirs, hops[1], b);
      verdict = judge(our, theirs, hops);
    }
    printf("%-46.46s %d %-6s | %-30s | %-30s | %7.5g | %8.3f %s\n", m->name, nodes, kind_name(k), a, b, (double)our->bound, r->ms, verdict);
  }
}

static void compare_nodes(const machine *m, int nodes, const result *r)
{
  char path[1024], label[220];
  tt_graphs known = {0};
  tt_xml *xml = NULL;
  snprintf(path, sizeof(path), "%s/%s/%dnodes.graphs.xml", all.results, m->name, nodes);
  snprintf(label, sizeof(label), "%s, %d nodes", m->name, nodes);
  bool there = access(path, R_OK) == 0;
  if (there) {
    must(tt_xml_read(path, &xml));
    must(tt_graphs_from_xml(m->topo, xml, nodes * m->groups > 1, &known));
    tt_xml_destroy(xml);
  }
  print_graphs(m, nodes, r, there ? &known : NULL);
  note_time(label, r->ms);
  tt_graphs_clear(&known);
}

// One, two and four nodes; the search only knows whether there are others.
static void table_of(machine *m)
{
  static const int counts[] = {1, 2, 4};
  result r[2] = {{{{{0}}}, 0}, {{{{0}}}, 0}};
  bool have[2] = {false, false};
  for (size_t i = 0; i < TT_COUNT(counts); i++) {
    bool inter = counts[i] * m->groups > 1;
    if (inter && tt_topo_count(m->topo, TT_NODE_NET) == 0) {
      continue;
    }
    if (!have[inter]) {
      r[inter] = search(m, inter);
      have[inter] = true;
    }
    compare_nodes(m, counts[i], &r[inter]);
  }
  tt_graphs_clear(&r[0].graphs);
  tt_graphs_clear(&r[1].graphs);
  unload(m);
}

// ---- All of them ----

typedef void each_fn(const char *folder, const char *name);

static void each(const char *folder, each_fn *fn)
{
  struct dirent **names = NULL;
  int n = scandir(folder, &names, NULL, alphasort);
  if (n < 0) {
    fprintf(stderr, "table: %s cannot be read; run this in the source root\n", folder);
    exit(1);
  }
  for (int i = 0; i < n; i++) {
    if (names[i]->d_name[0] != '.') {
      fn(folder, names[i]->d_name);
    }
    free(names[i]);
  }
  free(names);
}

static void known_machine(const char *folder, const char *name)
{
  machine m = {.collnet = strstr(name, ".collnet") != NULL};
  char path[1024];
  snprintf(path, sizeof(path), "%s/%s/input.xml", folder, name);
  if (access(path, R_OK) == 0) {
    snprintf(m.name, sizeof(m.name), "%.190s", name);
    load(&m, path, strncmp(name, "mnnvl2", 6) == 0 ? 2 : 1);
    table_of(&m);
  }
}

static void other_machine(const char *folder, const char *name)
{
  machine m = {.collnet = false};
  char path[1024];
  const char *end = strrchr(name, '.');
  if (end != NULL && strcmp(end, ".xml") == 0) {
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(m.name, sizeof(m.name), "%.190s", name);
    load(&m, path, 1);
    table_of(&m);
  }
}

static void rack(void)
{
  machine m = {.name = "18 hosts of four GB200"};
  load(&m, MACHINES "/known/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml", 18);
  table_of(&m);
}

// ---- The whole step ----

// From the file to channels and cost model, as a communicator of `nodes` such machines does it; milliseconds of each part.
enum { READ, BUILD, PATHS, SEARCH, CONNECT, PARTS };

static void step_once(const char *path, int nodes, double part[PARTS])
{
  tt_topo_rules rules = tt_topo_rules_default();
  tt_xml *xml = NULL;
  machine m = {.groups = 1};
  tt_graphs graphs;
  tt_plan_shape shape;
  tt_connect *c = NULL;
  tt_model model;
  double t[PARTS + 1];
  t[READ] = now_ms();
  must(tt_xml_read(path, &xml));
  t[BUILD] = now_ms();
  must(tt_topo_build(xml, quiet, NULL, &m.topo));
  t[PATHS] = now_ms();
  must(tt_paths_build(m.topo, &rules, &m.paths));
  t[SEARCH] = now_ms();
  search_once(&m, nodes > 1, &graphs);
  t[CONNECT] = now_ms();
  must(tt_plan_shape_make(m.topo, &graphs, &shape));
  int node_of[256] = {0}, shape_of[32] = {0};
  for (int r = 0; r < shape.ngpus * nodes; r++) {
    node_of[r] = r / shape.ngpus;
  }
  tt_connect_input in = {.nranks = shape.ngpus * nodes,
                         .nnodes = nodes,
                         .nshapes = 1,
                         .node_of = node_of,
                         .shape_of = shape_of,
                         .shapes = &shape,
                         .machine = tt_plan_look(m.topo, m.paths, &rules)};
  must(tt_connect_create(&in, &c));
  must(tt_model_make(&(tt_model_input){.connect = c}, &model));
  t[PARTS] = now_ms();
  for (int i = 0; i < PARTS; i++) {
    part[i] = t[i + 1] - t[i] < part[i] ? t[i + 1] - t[i] : part[i];
  }
  tt_connect_destroy(c);
  tt_plan_shape_clear(&shape);
  tt_graphs_clear(&graphs);
  tt_xml_destroy(xml);
  unload(&m);
}

static void whole_step(const char *path, int nodes)
{
  double part[PARTS] = {1e9, 1e9, 1e9, 1e9, 1e9}, sum = 0;
  for (int i = 0; i < all.repeats * 3; i++) {
    step_once(path, nodes, part);
  }
  for (int i = 0; i < PARTS; i++) {
    sum += part[i];
  }
  printf("whole step, %d x 8 GPUs: read %.3f, build %.3f, paths %.3f, search %.3f, connect and model %.3f: %.3f ms\n", nodes, part[READ],
         part[BUILD], part[PATHS], part[SEARCH], part[CONNECT], sum);
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
  if (argc < 2) {
    fprintf(stderr, "usage: table RESULTS [REPEATS]\n");
    return 2;
  }
  all.results = argv[1];
  all.repeats = argc > 2 ? TT_MAX(atoi(argv[2]), 1) : 5;
  printf("%-46s n graph  | %-30s | %-30s | %7s | %8s\n", "machine", "ours: channels x GB/s, types, hops", "NCCL 2.30.7", "bound", "ms");
  each(MACHINES "/known", known_machine);
  each(MACHINES "/more", other_machine);
  each(MACHINES "/amd", other_machine);
  rack();
  qsort(all.times, (size_t)all.ntimes, sizeof(double), by_value);
  printf("graphs with a known result: %d: %d better, %d with fewer hops, %d equal, %d with more hops, %d below\n", all.graphs, all.better,
         all.shorter, all.equal, all.longer, all.below);
  printf("searches of all graphs of a machine: %d: median %.3f ms, nine of ten under %.3f ms, worst %.3f ms (%s)\n", all.ntimes,
         all.times[all.ntimes / 2], all.times[all.ntimes * 9 / 10], all.worst, all.slowest);
  whole_step(MACHINES "/known/hgx_h100_8gpu_nvswitch_8nic/input.xml", 1);
  whole_step(MACHINES "/known/hgx_h100_8gpu_nvswitch_8nic/input.xml", 2);
  return all.below == 0 ? 0 : 1;
}
