// machine.c: from a document to the machine, its groups, its channels, and many machines connected.
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/param.h"
#include "base/util.h"
#include "tools/graph_bound.h"

enum { MAX_RANKS = 1 << 24 };

// ---- Groups ----

// Groups as tt_paths_groups numbers them, anew in the order of their first ranks.
static ncclResult_t number_groups(xp_machine *m)
{
  int gpus = tt_topo_count(m->topo, TT_NODE_GPU);
  int *group = tt_calloc(2 * (size_t)gpus + 1, sizeof(int));
  m->group_of = tt_calloc((size_t)gpus + 1, sizeof(int));
  if (group == NULL || m->group_of == NULL) {
    tt_free(group);
    return tt_fail(ncclSystemError, "no memory for %d ranks", gpus);
  }
  int next = 0, *number = group + gpus; // number[g]: group g's, -1 until its first rank has come
  m->ngroups = tt_paths_groups(m->topo, m->paths, group);
  for (int i = 0; i < gpus; i++) {
    number[i] = -1;
  }
  for (int r = 0; r < gpus; r++) {
    int g = group[tt_topo_rank_node(m->topo, r)];
    number[g] = number[g] < 0 ? next++ : number[g];
    m->group_of[r] = number[g];
  }
  tt_free(group);
  return ncclSuccess;
}

static ncclResult_t make_group(xp_machine *m, int g, bool *in_group)
{
  xp_group *x = &m->group[g];
  if (m->ngroups == 1) {
    *x = (xp_group){.topo = m->topo, .paths = m->paths, .shared = true};
    return ncclSuccess;
  }
  for (int r = 0; r < m->nranks; r++) {
    in_group[r] = m->group_of[r] == g;
  }
  TT_TRY(tt_topo_group(m->topo, in_group, m->nranks, &x->topo));
  return tt_paths_build(x->topo, &m->rules, &x->paths);
}

static ncclResult_t make_groups(xp_machine *m)
{
  TT_TRY(number_groups(m));
  bool *in_group = tt_calloc((size_t)m->nranks + 1, sizeof(bool));
  m->group = tt_calloc((size_t)m->ngroups, sizeof(*m->group));
  ncclResult_t res = in_group == NULL || m->group == NULL
                         ? tt_fail(ncclSystemError, "no memory for %d groups", m->ngroups)
                         : ncclSuccess;
  for (int g = 0; g < m->ngroups && res == ncclSuccess; g++) {
    res = make_group(m, g, in_group);
  }
  tt_free(in_group);
  return res;
}

ncclResult_t xp_machine_make(const xp_options *o, const tt_params *params, const tt_xml *xml, xp_machine *out)
{
  *out = (xp_machine){.name = xml->name, .xml = xml, .nodes = o->nodes, .rules = tt_topo_rules_from(params)};
  TT_TRY(tt_topo_build(xml, NULL, NULL, &out->topo));
  out->nranks = tt_topo_count(out->topo, TT_NODE_GPU);
  if (out->nranks == 0) {
    return tt_fail(ncclInvalidArgument,
                   "%s: there is no GPU in it, so no rank; files of hints for one's own machine often have none",
                   xml->name);
  }
  if (tt_topo_ends(out->topo) > TT_PATHS_MAX_ENDS) {
    return tt_fail(ncclInvalidArgument,
                   "%s: %d GPUs, network ports, CPUs and NVSwitches; paths are computed for at most %d", xml->name,
                   tt_topo_ends(out->topo), TT_PATHS_MAX_ENDS);
  }
  TT_TRY(tt_paths_build(out->topo, &out->rules, &out->paths));
  for (int r = 0; r < out->nranks; r++) {
    if (tt_topo_rank_node(out->topo, r) < 0) {
      return tt_fail(ncclInvalidArgument, "%s: rank %d of %d is missing", xml->name, r, out->nranks);
    }
  }
  return make_groups(out);
}

void xp_machine_clear(xp_machine *m)
{
  xp_shared_destroy(m->shared);
  tt_connect_destroy(m->connect);
  for (int g = 0; g < m->ngroups && m->group != NULL; g++) {
    tt_graphs_clear(&m->group[g].graphs);
    if (!m->group[g].shared) {
      tt_paths_destroy(m->group[g].paths);
      tt_topo_destroy(m->group[g].topo);
    }
    if (m->shapes != NULL) {
      tt_plan_shape_clear(&m->shapes[g]);
    }
  }
  tt_free(m->shapes);
  tt_free(m->group);
  tt_free(m->group_of);
  tt_paths_destroy(m->paths);
  tt_topo_destroy(m->topo);
  *m = (xp_machine){0};
}

// ---- Channels ----

static bool network_reduces(const tt_topo *t)
{
  bool all = tt_topo_count(t, TT_NODE_NET) > 0;
  for (int i = t->first[TT_NODE_NET]; i < t->first[TT_NODE_NET + 1]; i++) {
    all = all && t->nodes[i].net.coll != 0;
  }
  return all;
}

// What NCCL_GRAPH_FILE has takes the place of what was found.
static ncclResult_t read_graphs(const char *file, bool inter, xp_group *x)
{
  tt_graphs read = {0};
  TT_TRY(tt_graphs_read(file, x->topo, inter, &read));
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    if (read.graph[k].nchannels > 0) {
      tt_graph mine = x->graphs.graph[k];
      x->graphs.graph[k] = read.graph[k];
      read.graph[k] = mine;
    }
  }
  tt_graphs_clear(&read);
  return ncclSuccess;
}

// May the network reduce? NCCL_COLLNET_ENABLE decides; where it is not set, --collnet does.
static bool may_reduce(const xp_options *o, const tt_params *params)
{
  return params->collnet_enable == NCCL_CONFIG_UNDEF_INT ? o->collnet : params->collnet_enable != 0;
}

static double now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

// The search's bound is cheap; what cuts show may be less.
static ncclResult_t tighten_bounds(xp_group *x)
{
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    tt_graph *g = &x->graphs.graph[k];
    double bound = 0;
    TT_TRY(g->nchannels > 0 ? tt_graph_bound(x->topo, NULL, g, &bound) : ncclSuccess);
    g->bound = bound > 0 && (g->bound <= 0 || bound < (double)g->bound) ? (float)bound : g->bound;
  }
  return ncclSuccess;
}

ncclResult_t xp_machine_search(const xp_options *o, const tt_params *params, xp_machine *m)
{
  double begin = now_ms();
  bool inter = o->nodes * m->ngroups > 1;
  for (int g = 0; g < m->ngroups; g++) {
    xp_group *x = &m->group[g];
    tt_search_options s = {.inter = inter,
                           .cross_nic = (int)TT_CLAMP(params->cross_nic, 0, 2),
                           .collnet = may_reduce(o, params) && network_reduces(x->topo),
                           .nvls = params->nvls_enable != 0};
    TT_TRY(tt_graphs_search(x->topo, x->paths, &m->rules, &s, &x->graphs));
    if (params->graph_file != NULL) {
      TT_TRY(read_graphs(params->graph_file, inter, x));
    }
  }
  m->search_ms = now_ms() - begin;
  for (int g = 0; g < m->ngroups; g++) {
    TT_TRY(tighten_bounds(&m->group[g]));
  }
  return ncclSuccess;
}

// ---- Many machines ----

static ncclResult_t connect_nodes(xp_machine *m, const tt_plan_machine *joined)
{
  int nodes = m->nodes * m->ngroups, ranks = m->nodes * m->nranks;
  int *node_of = tt_calloc((size_t)ranks + 1, sizeof(int)), *shape_of = tt_calloc((size_t)nodes + 1, sizeof(int));
  ncclResult_t res =
      node_of == NULL || shape_of == NULL ? tt_fail(ncclSystemError, "no memory for %d ranks", ranks) : ncclSuccess;
  for (int r = 0; r < ranks && res == ncclSuccess; r++) {
    node_of[r] = r / m->nranks * m->ngroups + m->group_of[r % m->nranks];
  }
  for (int n = 0; n < nodes && res == ncclSuccess; n++) {
    shape_of[n] = n % m->ngroups;
  }
  tt_connect_input in = {.nranks = ranks,
                         .nnodes = nodes,
                         .nshapes = m->ngroups,
                         .node_of = node_of,
                         .shape_of = shape_of,
                         .shapes = m->shapes,
                         .machine = *joined,
                         .opt = &m->connect_options};
  res = res == ncclSuccess ? tt_connect_create(&in, &m->connect) : res;
  tt_free(node_of);
  tt_free(shape_of);
  return res;
}

// Which of what collnet needs is not there; the model says it where collnet is not used.
static tt_model_off no_collnet(const xp_options *o, const tt_params *params, bool reduces, int nodes)
{
  bool set = params->collnet_enable != NCCL_CONFIG_UNDEF_INT;
  if (!may_reduce(o, params) && (set || reduces)) {
    return TT_OFF_COLLNET_ENABLE;
  }
  return !reduces ? TT_OFF_COLLNET : nodes < params->collnet_node_threshold ? TT_OFF_COLLNET_NODES : TT_OFF_GRAPH;
}

ncclResult_t xp_machine_connect(const xp_options *o, const tt_params *params, xp_machine *m)
{
  tt_plan_machine joined = {0};
  int wanted = TT_GRAPH_MAX_CHANNELS;
  bool reduces = true;
  m->nodes = o->nodes;
  if ((long)m->nranks * m->nodes > MAX_RANKS) {
    return tt_fail(ncclInvalidArgument, "%d machines of %d ranks: more than %d ranks", m->nodes, m->nranks, MAX_RANKS);
  }
  m->connect_options = tt_connect_options_from(params);
  m->model_options = tt_model_options_from(params);
  m->shapes = tt_calloc((size_t)m->ngroups, sizeof(*m->shapes));
  if (m->shapes == NULL) {
    return tt_fail(ncclSystemError, "no memory for %d groups", m->ngroups);
  }
  for (int g = 0; g < m->ngroups; g++) {
    const xp_group *x = &m->group[g];
    TT_TRY(tt_plan_shape_make(x->topo, &x->graphs, &m->shapes[g]));
    tt_plan_machine look = tt_plan_look(x->topo, x->paths, &m->rules);
    joined = g == 0 ? look : tt_plan_join(&joined, &look);
    bool alone = m->ngroups * m->nodes == 1;
    wanted = TT_MIN(wanted, tt_p2p_wanted(x->topo, x->paths, &m->rules, alone));
    reduces = reduces && network_reduces(x->topo);
  }
  m->connect_options.collnet = may_reduce(o, params) && reduces;
  m->model_options.no_collnet = no_collnet(o, params, reduces, m->nodes * m->ngroups);
  TT_TRY(connect_nodes(m, &joined));
  m->p2p = tt_p2p_agree(m->connect, wanted);
  tt_model_input in = {.connect = m->connect, .net_gathers = true, .opt = &m->model_options};
  return tt_model_make(&in, &m->model);
}

// ---- For the commands ----

int xp_complain(int code)
{
  const char *text = tt_last_error();
  fprintf(stderr, "tutti-topo: %s\n", text[0] != 0 ? text : "something failed without saying why");
  return code;
}

enum { FAILED = 1, BAD_INPUT = 2 };

int xp_code_of(ncclResult_t res)
{
  return res == ncclInvalidArgument || res == ncclInvalidUsage ? BAD_INPUT : FAILED;
}

int xp_prepare(const xp_options *o, xp_depth depth, xp_work *out)
{
  const tt_params *params = tt_params_get();
  *out = (xp_work){0};
  if (o->collnet && !may_reduce(o, params)) {
    fprintf(stderr, "tutti-topo: --collnet: NCCL_COLLNET_ENABLE=%lld decides: the network does not reduce\n",
            (long long)params->collnet_enable);
  }
  if (xp_document(o, out->name, &out->xml) != ncclSuccess ||
      xp_machine_make(o, params, out->xml, &out->m) != ncclSuccess) {
    return xp_complain(BAD_INPUT);
  }
  out->m.name = out->name;
  ncclResult_t res = depth >= XP_TO_GRAPHS ? xp_machine_search(o, params, &out->m) : ncclSuccess;
  if (res == ncclSuccess && depth >= XP_TO_MODEL) {
    res = xp_machine_connect(o, params, &out->m);
    res = res == ncclSuccess && xp_options_fabric(o) ? xp_shared_create(o, &out->m, &out->m.shared) : res;
  }
  return res == ncclSuccess ? 0 : xp_complain(xp_code_of(res));
}

void xp_release(xp_work *w)
{
  xp_machine_clear(&w->m);
  tt_xml_destroy(w->xml);
}
