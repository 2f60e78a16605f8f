// plan_rig.h: what NCCL found on the known machines, as the tests of connecting and of the model read it.
//
// The graph file has the graphs of the group of rank 0. Where a machine has several groups, their numbers are in the
// summary, and their orders are those of the first.
#pragma once
#include "topo/topo_rig.h"

#include "topo/connect.h"

enum { RIG_MAX_GROUPS = 16, RIG_MAX_RANKS = 64, RIG_MAX_LINE = 1 << 16 };

typedef struct known {
  const char *name;
  int nnodes_in_name; // machines
  int ranks, ngroups; // per machine
  int group_of[RIG_MAX_RANKS];
  int search, channels, nvls, collnet, p2p, p2p_per_peer; // as the summary has it
  tt_plan_shape shape[RIG_MAX_GROUPS];
  int gpus[TT_GRAPH_KINDS][TT_GRAPH_MAX_CHANNELS * RIG_MAX_RANKS], nets[TT_GRAPH_KINDS][TT_GRAPH_MAX_CHANNELS * 2];
  tt_plan_machine machine;
  int p2p_wanted;
  int node_of[RIG_MAX_RANKS * 4], shape_of[RIG_MAX_GROUPS * 4];
  tt_connect_options opt;
  tt_connect *c;
} known;

RIG const char *rig_known_dir(void)
{
  static char dir[1024];
  const char *build = getenv("TUTTI_BUILD");
  if (build == NULL) {
    return NULL;
  }
  snprintf(dir, sizeof(dir), "%s/topologies/known", build);
  return dir;
}

RIG FILE *known_open(const known *k, const char *what)
{
  char path[2048];
  snprintf(path, sizeof(path), "%s/%s/%dnodes.%s", rig_known_dir(), k->name, k->nnodes_in_name, what);
  return fopen(path, "r");
}

RIG int known_kind(int id)
{
  static const int kinds[] = {TT_GRAPH_RING, TT_GRAPH_TREE, TT_GRAPH_COLLNET_CHAIN, TT_GRAPH_NVLS,
                              TT_GRAPH_COLLNET_DIRECT};
  return kinds[id];
}

// "group 1 ranks 2 3": GPUs per group.
RIG void known_group(known *k, const char *line)
{
  int g = 0;
  char *at = NULL;
  assert_int_equal(sscanf(line, "group %d", &g), 1);
  assert_true(g < RIG_MAX_GROUPS);
  k->ngroups = g + 1;
  for (const char *p = strstr(line, "ranks") + 5; *p == ' '; p = at) {
    long r = strtol(p, &at, 10);
    assert_true(r < RIG_MAX_RANKS);
    k->group_of[r] = g;
    k->shape[g].ngpus++;
  }
}

RIG void known_search(known *k, const char *line)
{
  int id, pattern;
  char intra[8], inter[8];
  tt_plan_graph g = {0};
  const char *at = strstr(line, " id ");
  if (at == NULL || strstr(line, " pattern ") == NULL) {
    return;
  }
  int n = sscanf(at,
                 " id %d pattern %d (%*[^)]) crossNic %d nChannels %d bwIntra %f bwInter %f latencyInter %f typeIntra "
                 "%7s typeInter %7s "
                 "sameChannels %d",
                 &id, &pattern, &g.cross_nic, &g.nchannels, &g.bw_intra, &g.bw_inter, &g.latency_inter, intra, inter,
                 &g.same_channels);
  assert_int_equal(n, 10);
  g.pattern = pattern;
  g.type_intra = tt_path_type_of(intra);
  g.type_inter = tt_path_type_of(inter);
  g.gpus = k->gpus[known_kind(id)];
  g.nets = k->nets[known_kind(id)];
  k->shape[k->ngroups - 1].graph[known_kind(id)] = g;
}

RIG bool known_summary(known *k)
{
  char *line = malloc(RIG_MAX_LINE);
  FILE *f = known_open(k, "summary.txt");
  while (f != NULL && fgets(line, RIG_MAX_LINE, f) != NULL) {
    if (strncmp(line, "group ", 6) == 0) {
      known_group(k, line);
    } else if (strncmp(line, "gpus per node", 13) == 0) {
      k->ranks = atoi(line + 14);
    } else if (strncmp(line, "search channels", 15) == 0) {
      int n =
          sscanf(strchr(line, ')'),
                 ") %d ; final channels after ncclTopoPostset %d ; nvlsChannels %d ; collnet %d ; p2p channels %d ; "
                 "p2p channels per peer %d",
                 &k->search, &k->channels, &k->nvls, &k->collnet, &k->p2p, &k->p2p_per_peer);
      assert_int_equal(n, 6);
    } else if (k->ngroups > 0) {
      known_search(k, line);
    }
  }
  if (f != NULL) {
    fclose(f);
  }
  free(line);
  return f != NULL;
}

// A channel: GPUs as numbers among the ranks of group 0, and cards.
RIG void known_channel(known *k, const tt_xml_node *channel, int kind, int ch)
{
  int n = k->shape[0].ngpus, i = 0, nets = 0;
  for (tt_xml_node *e = tt_xml_child(channel, "gpu"); e != NULL; e = tt_xml_sibling(e, "gpu")) {
    int number = 0, rank = atoi(tt_xml_get(e, "rank"));
    for (int r = 0; r < rank; r++) {
      number += k->group_of[r] == 0;
    }
    k->gpus[kind][ch * n + i++] = number;
  }
  for (tt_xml_node *e = tt_xml_child(channel, "net"); e != NULL; e = tt_xml_sibling(e, "net")) {
    k->nets[kind][ch * 2 + nets++] = (int)strtol(tt_xml_get(e, "dev"), NULL, 0);
  }
  assert_true(i == n || (i == 1 && kind == TT_GRAPH_NVLS));
}

RIG void known_graphs(known *k)
{
  char path[2048];
  snprintf(path, sizeof(path), "%s/%s/%dnodes.graphs.xml", rig_known_dir(), k->name, k->nnodes_in_name);
  tt_xml *xml = rig_read(path);
  for (tt_xml_node *g = tt_xml_child(xml->root, "graph"); g != NULL; g = tt_xml_sibling(g, "graph")) {
    int kind = known_kind(atoi(tt_xml_get(g, "id"))), ch = 0;
    for (tt_xml_node *c = tt_xml_child(g, "channel"); c != NULL; c = tt_xml_sibling(c, "channel"), ch++) {
      known_channel(k, c, kind, ch);
    }
  }
  tt_xml_destroy(xml);
}

// Looks at each group of the machine.
RIG void known_machine(known *k)
{
  char path[2048];
  snprintf(path, sizeof(path), RIG_MACHINES "/known/%s/input.xml", k->name);
  tt_xml *xml = rig_read(path);
  if (strncmp(k->name, "mnnvl2", 6) == 0) {
    rig_double_hosts(xml, path);
  }
  tt_topo *whole = rig_build(xml, NULL);
  tt_topo_rules rules = tt_topo_rules_default();
  for (int g = 0; g < k->ngroups; g++) {
    bool in[RIG_MAX_RANKS];
    for (int r = 0; r < RIG_MAX_RANKS; r++) {
      in[r] = r < k->ranks && k->group_of[r] == g;
    }
    tt_topo *part = NULL;
    assert_int_equal(tt_topo_group(whole, in, RIG_MAX_RANKS, &part), ncclSuccess);
    tt_paths *paths = rig_paths(part, &rules);
    tt_plan_machine m = tt_plan_look(part, paths, &rules);
    k->machine = g == 0 ? m : tt_plan_join(&k->machine, &m);
    int wanted = tt_p2p_wanted(part, paths, &rules, k->ngroups == 1 && k->nnodes_in_name == 1);
    k->p2p_wanted = g == 0 ? wanted : TT_MIN(k->p2p_wanted, wanted);
    tt_paths_destroy(paths);
    tt_topo_destroy(part);
  }
  tt_topo_destroy(whole);
}

RIG void known_connect(known *k)
{
  int m = k->nnodes_in_name;
  for (int r = 0; r < k->ranks * m; r++) {
    k->node_of[r] = r / k->ranks * k->ngroups + k->group_of[r % k->ranks];
  }
  for (int n = 0; n < k->ngroups * m; n++) {
    k->shape_of[n] = n % k->ngroups;
  }
  tt_connect_input in = {.nranks = k->ranks * m,
                         .nnodes = k->ngroups * m,
                         .nshapes = k->ngroups,
                         .node_of = k->node_of,
                         .shape_of = k->shape_of,
                         .shapes = k->shape,
                         .machine = k->machine,
                         .opt = &k->opt};
  if (tt_connect_create(&in, &k->c) != ncclSuccess) {
    fail_msg("%s, %d nodes: %s", k->name, m, tt_last_error());
  }
}

// Loads a machine and connects so many of it; NULL when they are not among what is known.
RIG known *known_load(const char *name, int nodes)
{
  known *k = calloc(1, sizeof(*k));
  *k = (known){.name = name, .nnodes_in_name = nodes, .opt = tt_connect_options_default()};
  if (!known_summary(k)) {
    free(k);
    return NULL;
  }
  k->opt.collnet = strstr(name, ".collnet") != NULL;
  known_graphs(k);
  known_machine(k);
  known_connect(k);
  return k;
}

RIG void known_free(known *k)
{
  tt_connect_destroy(k->c);
  free(k);
}

// Calls fn for 1, 2 and 4 of each machine that is known; it says whether all agreed. Prints how many did, returns how
// many did not.
RIG int known_each(bool (*fn)(known *k), const char *what)
{
  struct dirent **names = NULL;
  if (rig_known_dir() == NULL) {
    skip(); // not run by ctest: nobody says where the build unpacked the results
  }
  int good = 0, all = 0, n = scandir(rig_known_dir(), &names, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    for (int nodes = 1; nodes <= 4 && names[i]->d_name[0] != '.'; nodes *= 2) {
      known *k = known_load(names[i]->d_name, nodes);
      if (k != NULL) {
        good += fn(k);
        all++;
        known_free(k);
      }
    }
    free(names[i]);
  }
  free(names);
  assert_true(all > 0);
  print_message("%s: %d of %d agree\n", what, good, all);
  return all - good;
}
