// table.c: every machine of tests/topologies: the channels that the search finds, what NCCL 2.30.7 finds (where it is
// known), the bound, and the time. Called by table.sh, from the source root: table RESULTS [REPEATS]. See README.md.
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/graph_bound.h"
#include "tools/model_choice.h"
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

// What is compared with a known graph.
enum { Q_INTER, Q_INTRA, Q_TYPE_INTER, Q_TYPE_INTRA, Q_HOPS, Q_SAME, QUALITIES };
static const char *const quality_names[QUALITIES] = {"inter", "intra", "type-inter", "type-intra", "hops", "same"};

static struct {
  const char *results; // folder of the known results
  int repeats;
  int graphs, better, equal, mixed, below;
  int count[QUALITIES][3];                    // graphs that are worse, as good, better
  int predicted, slower, much_slower, faster; // machines and numbers of nodes; much: more than 1%
  double log_ratio;                           // sum of logarithms of known time by ours
  double times[MAX_TIMES];
  char slowest[220];
  double worst;
  int parts[11]; // graphs by tenths of the bound that they have
  int far;       // graphs that are far below
  char *far_list[MAX_TIMES];
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
  int ranks = 0, rank = 0;
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    ranks += tt_xml_get(n, "rank") != NULL;
  }
  must(tt_topo_set_host(xml, 1));
  for (int host = 1; host < hosts; host++) {
    tt_xml *other = NULL;
    must(tt_xml_read(path, &other));
    for (tt_xml_node *n = other->root; n != NULL; n = tt_xml_walk(other->root, n)) {
      if (tt_xml_get(n, "rank") != NULL) {
        must(tt_xml_int_or(n, "rank", 0, TT_XML_COUNTS, &rank));
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

// 1: more, -1: less, 0: the same but for rounding.
static int more(double a, double b)
{
  return (a > b * 1.001) - (a < b * 0.999);
}

// What of a graph is better (1), worse (-1) or as good beside the known one.
static void weigh(const tt_graph *our, const tt_graph *known, const int hops[2], int out[QUALITIES])
{
  bool inter = our->inter;
  out[Q_INTER] = inter ? more((double)total(our, true), (double)total(known, true)) : 0;
  out[Q_INTRA] = more((double)total(our, false), (double)total(known, false));
  out[Q_TYPE_INTRA] = more(known->typeintra, our->typeintra);
  out[Q_TYPE_INTER] = inter ? more(known->typeinter, our->typeinter) : 0;
  out[Q_HOPS] = more((double)hops[1] * our->nchannels, (double)hops[0] * known->nchannels);
  out[Q_SAME] = our->pattern == TT_PATTERN_RING ? more(our->samechannels, known->samechannels) : 0; // trees do not care
}

// The verdict, and counts it. A graph is below when there is less bandwidth to the network or inside, a path type is
// worse, or hops are more than those of a known graph whose bandwidth and path types are no better.
static void judge(const tt_graph *our, const tt_graph *known, const int hops[2], char text[120])
{
  int q[QUALITIES], bad = 0, good = 0;
  weigh(our, known, hops, q);
  text[0] = 0;
  for (int i = 0; i < QUALITIES; i++) {
    all.count[i][q[i] + 1]++;
    good += q[i] > 0;
    bad += q[i] < 0;
    if (q[i] != 0) {
      size_t at = strlen(text);
      snprintf(text + at, 120 - at, "%s%c%s", at > 0 ? " " : "", q[i] > 0 ? '+' : '-', quality_names[i]);
    }
  }
  all.graphs++;
  all.better += good > 0 && bad == 0;
  all.equal += good == 0 && bad == 0;
  all.mixed += good > 0 && bad > 0;
  all.below += good == 0 && bad > 0;
}

static const char *kind_name(int kind)
{
  static const char *const names[TT_GRAPH_KINDS] = {"ring", "tree", "direct", "chain", "nvls"};
  return names[kind];
}

// ---- Distance to the bound ----

#define FAR 0.7 // of its bound: less is listed

// GB/s that such a graph cannot exceed: what the search knows, and what cuts show.
static double bound_of(const machine *m, const tt_graph *g)
{
  double bound = 0;
  must(g->nchannels > 0 ? tt_graph_bound(m->topo, NULL, g, &bound) : ncclSuccess);
  return g->bound > 0 && ((double)g->bound < bound || bound <= 0) ? (double)g->bound : bound;
}

static void note_bound(const machine *m, int nodes, int kind, const tt_graph *g, double bound)
{
  double near = 0, have = (double)(g->inter && g->speedinter < g->speedintra ? g->speedinter : g->speedintra);
  have *= g->nchannels;
  if (g->nchannels == 0 || bound <= 0 || nodes > 2 || (g->ngpus == 1 && !g->inter)) { // four are as two
    return;
  }
  all.parts[(int)(TT_MIN(have / bound, 1) * 10)]++;
  if (have < bound * FAR && all.far < MAX_TIMES) {
    char text[256];
    must(tt_graph_bound(m->topo, m->paths, g, &near));
    snprintf(text, sizeof(text), "%-46.46s %d %-6s %7.5g GB/s: %3.0f %% of %.5g; %3.0f %% of %.5g by ways of its types",
             m->name, nodes, kind_name(kind), have, 100 * have / bound, bound, 100 * have / near, near);
    all.far_list[all.far] = strdup(text);
    all.far += all.far_list[all.far] != NULL;
  }
}

static void print_bounds(void)
{
  int graphs = 0;
  for (int i = 0; i <= 10; i++) {
    graphs += all.parts[i];
  }
  printf("graphs for one and for several nodes by what they have of their bound: %d", graphs);
  printf("; 100 %%: %d", all.parts[10]);
  for (int i = 9; i >= 0; i--) {
    printf(", from %d %%: %d", i * 10, all.parts[i]);
  }
  printf("\nbelow 70 %%: %d\n", all.far);
  for (int i = 0; i < all.far; i++) {
    printf("  %s\n", all.far_list[i]);
    free(all.far_list[i]);
  }
}

// `known` may be NULL.
static void print_graphs(const machine *m, int nodes, const result *r, const tt_graphs *known)
{
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    const tt_graph *our = &r->graphs.graph[k], *theirs = known != NULL ? &known->graph[k] : NULL;
    char a[80], b[80] = "", verdict[120] = "";
    if (our->nchannels + (theirs != NULL ? theirs->nchannels : 0) == 0) {
      continue;
    }
    int hops[2] = {count_hops(m, our), theirs != NULL ? count_hops(m, theirs) : 0};
    show(our, hops[0], a);
    if (theirs != NULL) {
      show(theirs, hops[1], b);
      judge(our, theirs, hops, verdict);
    }
    double bound = bound_of(m, our);
    note_bound(m, nodes, k, our, bound);
    printf("%-46.46s %d %-6s | %-30s | %-30s | %7.5g | %8.3f %s\n", m->name, nodes, kind_name(k), a, b, bound, r->ms,
           verdict);
  }
}

// ---- Predicted times ----

enum { SIZES = 16 }; // 8 B, 32 B, … 8 GiB

// The cost model of `nodes` machines with these graphs; groups of one machine count as alike.
static bool model_of(const machine *m, int nodes, const tt_graphs *graphs, tt_model *model)
{
  enum { MAX_RANKS = 1024 };
  tt_topo_rules rules = tt_topo_rules_default();
  tt_plan_shape shape;
  tt_connect *c = NULL;
  int node_of[MAX_RANKS], shape_of[MAX_RANKS] = {0}, count = nodes * m->groups;
  must(tt_plan_shape_make(m->topo, graphs, &shape));
  bool ok = shape.ngpus * count <= MAX_RANKS;
  for (int r = 0; ok && r < shape.ngpus * count; r++) {
    node_of[r] = r / shape.ngpus;
  }
  if (ok) {
    tt_connect_options opt = tt_connect_options_default();
    opt.collnet = m->collnet;
    tt_connect_input in = {.nranks = shape.ngpus * count,
                           .nnodes = count,
                           .nshapes = 1,
                           .node_of = node_of,
                           .shape_of = shape_of,
                           .shapes = &shape,
                           .machine = tt_plan_look(m->topo, m->paths, &rules),
                           .opt = &opt};
    must(tt_connect_create(&in, &c));
    must(tt_model_make(&(tt_model_input){.connect = c}, model));
    tt_connect_destroy(c);
  }
  tt_plan_shape_clear(&shape);
  return ok;
}

// What the known graphs' predicted time is of ours, for one function: geometric mean over sizes; *least the least of
// them.
static double speedup(const tt_model model[2], tt_model_func func, double *least)
{
  double sum = 0;
  size_t bytes = 8;
  for (int i = 0; i < SIZES; i++, bytes *= 4) {
    tt_model_op op = {.func = func, .bytes = bytes};
    tt_model_choice our, theirs;
    must(tt_model_choose(&model[0], &op, &our));
    must(tt_model_choose(&model[1], &op, &theirs));
    double ratio = our.us > 0 ? (double)theirs.us / (double)our.us : 1;
    *least = ratio < *least ? ratio : *least;
    sum += log(ratio);
  }
  return sum / SIZES;
}

// The line of predicted times, where they differ from those of the known graphs.
static void predict(const machine *m, int nodes, const result *r, const tt_graphs *known)
{
  tt_model model[2];
  double ratio[TT_MODEL_FUNCS], sum = 0, least[TT_MODEL_FUNCS], worst = 1e9;
  if (known->graph[TT_GRAPH_RING].nchannels == 0 || !model_of(m, nodes, &r->graphs, &model[0]) ||
      !model_of(m, nodes, known, &model[1])) {
    return;
  }
  for (int f = 0; f < TT_MODEL_FUNCS; f++) {
    least[f] = 1e9;
    ratio[f] = speedup(model, f, &least[f]);
    worst = least[f] < worst ? least[f] : worst;
    sum += ratio[f] / TT_MODEL_FUNCS;
  }
  all.predicted++;
  all.faster += sum > 0.001;
  all.slower += sum < -0.001;
  all.much_slower += sum < -0.01;
  all.log_ratio += sum;
  if (sum > 0.001 || sum < -0.001 || worst < 0.999) {
    printf("%-46.46s %d predicted NCCL/ours %5.3f:", m->name, nodes, exp(sum));
    for (int f = 0; f < TT_MODEL_FUNCS; f++) {
      printf(" %s %.3f (least %.3f)", tt_model_func_name(f), exp(ratio[f]), least[f]);
    }
    printf("%s\n", sum < -0.001 ? " SLOWER" : "");
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
  if (there) {
    predict(m, nodes, r, &known);
  }
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

// From the file to channels and cost model, as a communicator of `nodes` such machines does it; milliseconds of each
// part.
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
  printf("whole step, %d x 8 GPUs: read %.3f, build %.3f, paths %.3f, search %.3f, connect and model %.3f: %.3f ms\n",
         nodes, part[READ], part[BUILD], part[PATHS], part[SEARCH], part[CONNECT], sum);
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
  printf("%-46s n graph  | %-30s | %-30s | %7s | %8s\n", "machine", "ours: channels x GB/s, types, hops", "NCCL 2.30.7",
         "bound", "ms");
  each(MACHINES "/known", known_machine);
  each(MACHINES "/more", other_machine);
  each(MACHINES "/amd", other_machine);
  rack();
  qsort(all.times, (size_t)all.ntimes, sizeof(double), by_value);
  print_bounds();
  printf("graphs with a known result: %d: %d better, %d equal, %d better and worse, %d worse\n", all.graphs, all.better,
         all.equal, all.mixed, all.below);
  for (int i = 0; i < QUALITIES; i++) {
    printf("%s %d worse, %d better%s", quality_names[i], all.count[i][0], all.count[i][2],
           i + 1 < QUALITIES ? "; " : "\n");
  }
  printf("predicted times over functions and sizes: known / ours %.4f in the mean of %d; slower in %d, faster in %d\n",
         exp(all.log_ratio / TT_MAX(all.predicted, 1)), all.predicted, all.slower, all.faster);
  printf("searches of all graphs of a machine: %d: median %.3f ms, nine of ten under %.3f ms, worst %.3f ms (%s)\n",
         all.ntimes, all.times[all.ntimes / 2], all.times[all.ntimes * 9 / 10], all.worst, all.slowest);
  whole_step(MACHINES "/known/hgx_h100_8gpu_nvswitch_8nic/input.xml", 1);
  whole_step(MACHINES "/known/hgx_h100_8gpu_nvswitch_8nic/input.xml", 2);
  return all.below == 0 && all.much_slower == 0 ? 0 : 1;
}
