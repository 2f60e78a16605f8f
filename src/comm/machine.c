// machine.c: see machine.h.
#include "comm/machine.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/advice.h"
#include "base/log.h"
#include "base/param.h"
#include "base/util.h"
#include "coll/select.h"
#include "net/net.h"
#include "topo/nvml.h"

enum { MOST_PORTS = 64 };

// ---- The network's devices ----

// They hold their texts: the network's context is gone when they are used.
typedef struct ports {
  tt_source_net net[MOST_PORTS];
  char name[MOST_PORTS][64], path[MOST_PORTS][TT_TREE_PATH];
  char parts[MOST_PORTS][TT_SOURCE_PARTS * 64], part_text[MOST_PORTS][TT_SOURCE_PARTS][TT_TREE_PATH];
  const char *part_path[MOST_PORTS][TT_SOURCE_PARTS];
  int count;
} ports;
_Static_assert((int)TT_SOURCE_PARTS == (int)TT_NET_PARTS, "a port has as many parts as a device");

static void add_parts(ports *p, int i, const tt_net_props *props)
{
  size_t used = 0;
  for (int k = 0; k < props->nparts; k++) {
    const tt_net_props *part = props->parts[k];
    used += (size_t)snprintf(p->parts[i] + used, sizeof(p->parts[i]) - used, "%s%.60s", k > 0 ? "," : "", part->name);
    snprintf(p->part_text[i][k], sizeof(p->part_text[i][k]), "%s", part->pci_path != NULL ? part->pci_path : "");
    p->part_path[i][k] = p->part_text[i][k];
  }
  p->net[i].nparts = props->nparts;
  p->net[i].parts = p->parts[i];
  p->net[i].part_paths = p->part_path[i];
}

static void machine_add_port(ports *p, const tt_net_props *props)
{
  int i = p->count++;
  snprintf(p->name[i], sizeof(p->name[i]), "%s", props->name);
  snprintf(p->path[i], sizeof(p->path[i]), "%s", props->pci_path != NULL ? props->pci_path : "");
  p->net[i] = (tt_source_net){.name = p->name[i],
                              .pci_path = p->path[i],
                              .speed = props->speed,
                              .port = props->port,
                              .maxconn = props->max_comms,
                              .gdr = (props->ptr_support & (TT_NET_PTR_CUDA | TT_NET_PTR_DMABUF)) != 0,
                              .rail = props->rail,
                              .plane = props->plane,
                              .latency = props->latency,
                              .guid = props->guid};
  add_parts(p, i, props);
}

static ncclResult_t read_ports(const tt_machine *m, ports *out)
{
  const tt_net_ops *net = m->net;
  void *ctx = NULL;
  int count = 0;
  ncclResult_t res = ncclSuccess;
  TT_TRY(net->init(&(tt_net_env){.rank = m->rank, .nranks = m->nranks, .traffic_class = TT_NET_ANY_CLASS, .net = net},
                   &ctx));
  TT_TRY_GOTO(net->devices(ctx, &count), res);
  for (int i = 0; i < TT_MIN(count, MOST_PORTS); i++) {
    tt_net_props props = {0};
    TT_TRY_GOTO(net->get_properties(ctx, i, &props), res);
    machine_add_port(out, &props);
  }
  if (count > MOST_PORTS) {
    tt_info(TT_GRAPH | TT_NET, "the network has %d devices; the first %d count", count, MOST_PORTS);
  }
fail:
  net->finalize(ctx);
  return res;
}

// ---- The document ----

static bool has_ports(const tt_xml *xml)
{
  for (const tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    if (strcmp(n->tag, "net") == 0) {
      return true;
    }
  }
  return false;
}

// Ranks that the file has no place for are processors beside its CPUs. Somebody who forgot NCCL_HOSTID wants to know.
static void tell_strays(const tt_machine *m, const tt_xml *xml)
{
  int strays = 0, first = -1, dev = -1;
  for (const tt_xml_node *n = xml->root; n != NULL && m->file != NULL; n = tt_xml_walk(xml->root, n)) {
    const char *class = n->parent != NULL ? tt_xml_get(n->parent, "class") : NULL;
    const char *rank = strcmp(n->tag, "gpu") == 0 ? tt_xml_get(n, "rank") : NULL;
    if (rank != NULL && n->line == 0 && class != NULL && strcmp(class, TT_SOURCE_HOST_CLASS) == 0) {
      const char *number = tt_xml_get(n, "dev");
      first = strays == 0 ? atoi(rank) : first;
      dev = strays == 0 && number != NULL ? atoi(number) : dev;
      strays++;
    }
  }
  if (strays > 0 && strays < m->nlocal) {
    tt_advise("%s has no GPU number %d for rank %d%s: a rank without a place counts as a processor beside the "
              "machine's CPU. NCCL_HOSTID "
              "makes several machines of this one",
              m->file, dev, first, strays > 1 ? ", and none for others" : "");
  }
}

static ncclResult_t detect(const tt_machine *m, const tt_tree *tree, tt_source_rank *seen, tt_xml **out)
{
  tt_source s = {.machine = {.tree = tree, .gpu = tt_gpu_element, .host_hash = m->host},
                 .file = m->file,
                 .ranks = seen,
                 .file_nets = true};
  bool gpus = false;
  for (int i = 0; i < m->nlocal; i++) {
    if (m->seen == NULL || m->seen[i]) {
      seen[s.nranks++] = m->ranks[i];
      gpus |= m->ranks[i].bus_id != NULL;
    }
  }
  s.machine.nvml = gpus ? tt_nvml_get() : NULL;
  TT_TRY(tt_source_detect(&s, out));
  tell_strays(m, *out);
  if (!m->needs_net || has_ports(*out)) {
    return ncclSuccess; // a file with ports is another machine's: its ports are the ones
  }
  tt_xml_destroy(*out);
  *out = NULL;
  ports *p;
  TT_TRY(TT_NEW(p, 1, "no memory for the network's devices"));
  ncclResult_t res = read_ports(m, p);
  s.nets = p->net;
  s.nnets = p->count;
  res = res == ncclSuccess ? tt_source_detect(&s, out) : res;
  tt_free(p);
  return res;
}

ncclResult_t tt_machine_document(const tt_machine *m, tt_xml **out)
{
  tt_tree *tree = NULL;
  tt_xml *xml = NULL;
  ncclResult_t res = ncclSuccess;
  tt_source_rank *seen;
  TT_TRY(TT_NEW(seen, m->nlocal, "rank %d: no memory for the places of %d ranks", m->rank, m->nlocal));
  if (m->apart) {
    TT_TRY_GOTO(tt_xml_new("views of the node's ranks", "system", &xml), res);
  } else {
    TT_TRY_GOTO(tt_tree_open("/", &tree), res);
    TT_TRY_GOTO(detect(m, tree, seen, &xml), res);
  }
  for (int i = 0; i < m->nviews; i++) {
    TT_TRY_GOTO(tt_topo_fuse(xml, m->views[i]), res);
  }
  *out = xml;
  xml = NULL;
fail:
  tt_xml_destroy(xml);
  tt_tree_close(tree);
  tt_free(seen);
  return res;
}

// ---- Graphs ----

// Number within the node of a rank of the communicator: the node's ranks are in order.
static int local_of(const tt_machine *m, int rank)
{
  int i = 0, end = m->nlocal;
  while (end - i > 1) {
    int middle = (i + end) / 2;
    *(rank < m->ranks[middle].rank ? &end : &i) = middle;
  }
  return i;
}

// The file's graphs; those that it lacks are searched.
static ncclResult_t find_graphs(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, bool inter,
                                tt_graphs *out)
{
  const tt_params *p = tt_params_get();
  tt_graphs found = {0};
  tt_search_options so = {.inter = inter, .cross_nic = (int)TT_CLAMP(p->cross_nic, 0, 2), .nvls = p->nvls_enable != 0};
  if (p->graph_file != NULL) {
    tt_info(TT_ENV, "NCCL_GRAPH_FILE set by environment to %s", p->graph_file);
    TT_TRY(tt_graphs_read(p->graph_file, topo, inter, out));
    const tt_graph *g = out->graph;
    if (g[TT_GRAPH_RING].nchannels > 0 && g[TT_GRAPH_TREE].nchannels > 0 &&
        (g[TT_GRAPH_NVLS].nchannels > 0 || !so.nvls || tt_topo_count(topo, TT_NODE_NVS) == 0)) {
      return ncclSuccess;
    }
  }
  TT_TRY(tt_graphs_search(topo, paths, rules, &so, &found));
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    if (out->graph[k].nchannels == 0) { // exchange: the other one is freed
      tt_graph g = out->graph[k];
      out->graph[k] = found.graph[k];
      found.graph[k] = g;
    }
  }
  tt_graphs_clear(&found);
  return ncclSuccess;
}

// A plain node has one channel, in the order that all ranks know.
static void make_plain(const tt_machine *m, const tt_topo *topo, tt_graphs *graphs, const tt_plan_shape *plain)
{
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    tt_graph *g = &graphs->graph[k];
    const tt_plan_graph *p = &plain->graph[k];
    g->nchannels = TT_MIN(g->nchannels, p->nchannels);
    for (int i = 0; g->nchannels > 0 && i < g->ngpus; i++) {
      g->gpus[i] = tt_topo_rank_node(topo, m->ranks[p->gpus[i]].rank);
    }
    if (g->nchannels > 0) {
      g->pattern = p->pattern;
      g->crossnic = p->cross_nic;
      g->speedintra = p->bw_intra;
      g->speedinter = p->bw_inter;
      g->typeintra = p->type_intra;
      g->typeinter = p->type_inter;
      g->samechannels = true;
    }
  }
}

// Is the rank whose graphs are asked for on this node?
static bool dumps_graphs(const tt_machine *m)
{
  bool here = false;
  for (int i = 0; i < m->nlocal; i++) {
    here |= m->ranks[i].rank == tt_params_get()->graph_dump_file_rank;
  }
  return here && tt_params_get()->graph_dump_file != NULL;
}

// NCCL_GRAPH_DUMP_FILE gets one group's graphs, as NCCL's users know it: those of the rank that is asked for.
static ncclResult_t write_graphs(const tt_topo *topo, const tt_graphs *graphs)
{
  const char *path = tt_params_get()->graph_dump_file;
  int node = tt_topo_rank_node(topo, (int)TT_CLAMP(tt_params_get()->graph_dump_file_rank, -1, INT_MAX));
  tt_xml *xml = NULL;
  if (path == NULL || node < 0 || topo->nodes[node].kind != TT_NODE_GPU) {
    return ncclSuccess;
  }
  tt_info(TT_ENV, "NCCL_GRAPH_DUMP_FILE set by environment to %s", path);
  TT_TRY(tt_graphs_to_xml(topo, graphs, &xml));
  ncclResult_t res = tt_xml_write(xml, path);
  tt_xml_destroy(xml);
  return res;
}

// Cards by their numbers: the machine's nodes mean nothing to other ranks.
static void number_nets(const tt_topo *topo, tt_plan_shape *shape)
{
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    tt_plan_graph *g = &shape->graph[k];
    int *nets = g->nets != NULL ? shape->memory + (g->nets - shape->memory) : NULL;
    for (int i = 0; nets != NULL && i < 2 * g->nchannels; i++) {
      nets[i] = nets[i] >= 0 ? topo->nodes[nets[i]].net.dev : -1;
    }
  }
}

// Does NCCL_ALGO name packed trees? Else nobody uses them.
static ncclResult_t wants_packed(bool *out)
{
  const tt_params *p = tt_params_get();
  tt_algo_filter filter;
  TT_TRY(tt_algo_filter_parse(p->algo, p->proto, &filter));
  *out = false;
  for (int f = 0; f < TT_NFUNCS; f++) {
    *out |= (filter.algos[f] >> TT_ALGO_PACKED & 1) != 0;
  }
  return ncclSuccess;
}

// Trees by numbers of ranks within the node, for a machine that has all ranks.
static ncclResult_t pack_trees(const tt_machine *m, const tt_topo *topo, tt_node_group *out)
{
  tt_packing p = {0};
  bool wanted;
  TT_TRY(wants_packed(&wanted));
  if (!wanted || tt_topo_count(topo, TT_NODE_GPU) < m->nranks || m->nranks == 1) {
    return ncclSuccess;
  }
  TT_TRY(tt_pack(topo, TT_PACK_TREES, &p));
  tt_machine_log_packing(&p);
  int *packed = tt_calloc((size_t)p.ntrees * (size_t)p.ngpus + 1, sizeof(int));
  for (int i = 0; packed != NULL && i < p.ntrees * p.ngpus; i++) {
    int rank = local_of(m, topo->nodes[i % p.ngpus].gpu.rank);
    packed[i / p.ngpus * p.ngpus + rank] = p.ups[i] < 0 ? -1 : local_of(m, topo->nodes[p.ups[i]].gpu.rank);
  }
  out->npacked = packed != NULL ? p.ntrees : 0;
  out->packed = out->packed_memory = packed;
  tt_packing_clear(&p);
  return packed != NULL ? ncclSuccess : tt_fail(ncclSystemError, "no memory for trees of %d ranks", m->nranks);
}

// One group of ranks on its machine.
static ncclResult_t look_at_group(const tt_machine *m, const tt_topo *topo, const tt_paths *paths, tt_node_group *out)
{
  tt_topo_rules rules = tt_topo_rules_from(tt_params_get());
  tt_graphs graphs = {0};
  bool inter = tt_topo_count(topo, TT_NODE_GPU) < m->nranks;
  ncclResult_t res = ncclSuccess;
  tt_machine_log_system(topo, paths, inter);
  TT_TRY_GOTO(find_graphs(topo, paths, &rules, inter, &graphs), res);
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    if (graphs.graph[k].nchannels > 0 || k == TT_GRAPH_RING || k == TT_GRAPH_TREE) {
      tt_machine_log_graph(topo, &graphs.graph[k]);
    }
  }
  TT_TRY_GOTO(write_graphs(topo, &graphs), res);
  TT_TRY_GOTO(tt_plan_shape_make(topo, &graphs, &out->shape), res);
  number_nets(topo, &out->shape);
  out->machine = tt_plan_look(topo, paths, &rules);
  out->p2p_wanted = tt_p2p_wanted(topo, paths, &rules, m->nranks == 1);
  TT_TRY_GOTO(pack_trees(m, topo, out), res);
fail:
  tt_graphs_clear(&graphs);
  return res;
}

// The part of the machine that group `g` sees.
static ncclResult_t split_group(const tt_machine *m, const tt_topo *topo, const tt_node_shapes *s, int g,
                                tt_node_group *out)
{
  tt_topo_rules rules = tt_topo_rules_from(tt_params_get());
  tt_topo *part = NULL;
  tt_paths *paths = NULL;
  ncclResult_t res = ncclSuccess;
  bool *in_group;
  TT_TRY(TT_NEW(in_group, m->nranks, "no memory for a group of %d ranks", m->nranks));
  for (int i = 0; i < m->nlocal; i++) {
    in_group[m->ranks[i].rank] = s->group_of[i] == g;
  }
  TT_TRY_GOTO(tt_topo_group(topo, in_group, m->nranks, &part), res);
  TT_TRY_GOTO(tt_paths_build(part, &rules, &paths), res);
  TT_TRY_GOTO(look_at_group(m, part, paths, out), res);
fail:
  tt_paths_destroy(paths);
  tt_topo_destroy(part);
  tt_free(in_group);
  return res;
}

// Which group each rank is in, numbered by first ranks.
static ncclResult_t find_groups(const tt_machine *m, const tt_topo *topo, const tt_paths *paths, tt_node_shapes *out)
{
  int first = topo->first[TT_NODE_GPU], ngpus = tt_topo_count(topo, TT_NODE_GPU);
  int *group;
  TT_TRY(TT_NEW(group, ngpus + 1, "no memory for the groups of %d GPUs", ngpus));
  int ngroups = tt_paths_groups(topo, paths, group);
  ncclResult_t res = tt_node_shapes_room(m->nlocal, ngroups, out);
  for (int i = 0; res == ncclSuccess && i < ngpus; i++) {
    out->group_of[local_of(m, topo->nodes[first + i].gpu.rank)] = group[i];
  }
  tt_free(group);
  return res;
}

// The channels of a plain node as a file: search says which cards they use.
static ncclResult_t write_plain(const tt_machine *m, const tt_topo *topo, const tt_paths *paths,
                                const tt_plan_shape *plain)
{
  tt_topo_rules rules = tt_topo_rules_from(tt_params_get());
  tt_graphs graphs = {0};
  TT_TRY(find_graphs(topo, paths, &rules, m->nlocal < m->nranks, &graphs));
  make_plain(m, topo, &graphs, plain);
  ncclResult_t res = write_graphs(topo, &graphs);
  tt_graphs_clear(&graphs);
  return res;
}

// A plain node without a file of graphs has those that all ranks know.
static bool has_plain_graphs(const tt_machine *m)
{
  return m->plain && tt_params_get()->graph_file == NULL;
}

bool tt_machine_needs_document(const tt_machine *m)
{
  return !has_plain_graphs(m) || dumps_graphs(m);
}

// All groups' graphs on the machine.
static ncclResult_t look_at_machine(const tt_machine *m, const tt_topo *topo, const tt_paths *paths,
                                    tt_node_shapes *out)
{
  if (m->plain) {
    TT_TRY(tt_node_shapes_room(m->nlocal, 1, out));
  } else {
    TT_TRY(find_groups(m, topo, paths, out));
  }
  if (out->ngroups == 1) {
    return look_at_group(m, topo, paths, &out->group[0]);
  }
  for (int g = 0; g < out->ngroups; g++) {
    TT_TRY(split_group(m, topo, out, g, &out->group[g]));
  }
  return ncclSuccess;
}

// The error of tt_paths_build cannot name the file.
static ncclResult_t machine_check_size(const tt_xml *xml, const tt_topo *topo)
{
  int ends = tt_topo_ends(topo);
  return ends <= TT_PATHS_MAX_ENDS
             ? ncclSuccess
             : tt_fail(ncclInvalidArgument, "%s: %d GPUs, network ports, CPUs and NVSwitches; a machine has at most %d",
                       xml->name, ends, TT_PATHS_MAX_ENDS);
}

ncclResult_t tt_machine_shapes(const tt_machine *m, const tt_xml *xml, tt_node_shapes *out)
{
  tt_topo_rules rules = tt_topo_rules_from(tt_params_get());
  tt_topo *topo = NULL;
  tt_paths *paths = NULL;
  tt_node_shapes s = {0};
  ncclResult_t res = ncclSuccess;
  if (has_plain_graphs(m)) {
    TT_TRY_GOTO(tt_node_shapes_plain(m->ranks, m->nlocal, m->nlocal < m->nranks, &s), res);
  }
  if (tt_machine_needs_document(m)) {
    TT_TRY_GOTO(tt_topo_build(xml, NULL, NULL, &topo), res);
    TT_TRY_GOTO(machine_check_size(xml, topo), res);
    if (tt_topo_count(topo, TT_NODE_GPU) != m->nlocal) {
      res = tt_fail(ncclInternalError, "rank %d: the machine has %d ranks of %d", m->rank,
                    tt_topo_count(topo, TT_NODE_GPU), m->nlocal);
      goto fail;
    }
    TT_TRY_GOTO(tt_paths_build(topo, &rules, &paths), res);
    TT_TRY_GOTO(has_plain_graphs(m) ? write_plain(m, topo, paths, &s.group[0].shape)
                                    : look_at_machine(m, topo, paths, &s),
                res);
  }
  *out = s;
  s = (tt_node_shapes){0};
fail:
  tt_node_shapes_clear(&s);
  tt_paths_destroy(paths);
  tt_topo_destroy(topo);
  return res;
}
