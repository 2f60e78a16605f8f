// fabric_test.c: loads of links that machines share, against operations that are carried out step by step, message by
// message, with other means of finding ports, leaves and links; and a few loads by hand.
#include "topo/topo_rig.h"

#include "tools/fabric.h"
#include "topo/graph.h"

enum { MAX_RANKS = 1024, MAX_MACHINES = 128, MAX_PORTS = 16, PAT_RANKS = 128 };

// So many of a machine.
typedef struct cluster {
  int machines, ngroups;
  tt_topo *topo, *part[MAX_PORTS];
  tt_plan_shape shapes[MAX_PORTS];
  tt_graphs graphs[MAX_PORTS];
  tt_paths *paths[MAX_PORTS];
  tt_connect *connect;
  int group_of[MAX_RANKS], node_of[MAX_RANKS], shape_of[MAX_RANKS];
  int local_of[MAX_RANKS]; // ranks of the node before it
} cluster;

// ---- Making it ----

static void search_group(cluster *c, int group, bool collnet)
{
  tt_topo_rules rules = tt_topo_rules_default();
  bool in[MAX_RANKS] = {false};
  tt_search_options options = {.inter = true, .cross_nic = 2, .nvls = true, .collnet = collnet};
  for (int g = 0; g < tt_topo_count(c->topo, TT_NODE_GPU); g++) {
    in[c->topo->nodes[g].gpu.rank] = c->group_of[g] == group;
  }
  assert_int_equal(tt_topo_group(c->topo, in, MAX_RANKS, &c->part[group]), ncclSuccess);
  c->paths[group] = rig_paths(c->part[group], NULL);
  assert_int_equal(tt_graphs_search(c->part[group], c->paths[group], &rules, &options, &c->graphs[group]), ncclSuccess);
  assert_int_equal(tt_plan_shape_make(c->part[group], &c->graphs[group], &c->shapes[group]), ncclSuccess);
}

static void connect_cluster(cluster *c, bool collnet)
{
  tt_topo_rules rules = tt_topo_rules_default();
  tt_connect_options opt = tt_connect_options_default();
  int local = tt_topo_count(c->topo, TT_NODE_GPU);
  tt_plan_machine machine = tt_plan_look(c->part[0], c->paths[0], &rules);
  for (int g = 1; g < c->ngroups; g++) {
    tt_plan_machine other = tt_plan_look(c->part[g], c->paths[g], &rules);
    machine = tt_plan_join(&machine, &other);
  }
  assert_true(local * c->machines <= MAX_RANKS);
  for (int r = 0; r < local * c->machines; r++) {
    int gpu = tt_topo_rank_node(c->topo, r % local);
    c->node_of[r] = r / local * c->ngroups + c->group_of[gpu];
    for (int before = r / local * local; before < r; before++) {
      c->local_of[r] += c->node_of[before] == c->node_of[r];
    }
  }
  for (int n = 0; n < c->machines * c->ngroups; n++) {
    c->shape_of[n] = n % c->ngroups;
  }
  opt.collnet = collnet;
  tt_connect_input in = {.nranks = local * c->machines,
                         .nnodes = c->machines * c->ngroups,
                         .nshapes = c->ngroups,
                         .node_of = c->node_of,
                         .shape_of = c->shape_of,
                         .shapes = c->shapes,
                         .machine = machine,
                         .opt = &opt};
  assert_int_equal(tt_connect_create(&in, &c->connect), ncclSuccess);
}

static cluster *make_cluster(const char *name, int machines)
{
  char path[1024];
  cluster *c = test_calloc(1, sizeof(*c));
  bool collnet = strstr(name, ".collnet") != NULL;
  snprintf(path, sizeof(path), RIG_MACHINES "/known/%s/input.xml", name);
  tt_xml *xml = rig_read(path);
  for (tt_xml_node *n = xml->root; n != NULL && collnet; n = tt_xml_walk(xml->root, n)) {
    assert_true(strcmp(n->tag, "net") != 0 || tt_xml_set_int(xml, n, "coll", 1) == ncclSuccess);
  }
  c->machines = machines;
  c->topo = rig_build(xml, NULL);
  tt_paths *whole = rig_paths(c->topo, NULL);
  c->ngroups = tt_paths_groups(c->topo, whole, c->group_of);
  tt_paths_destroy(whole);
  for (int g = 0; g < c->ngroups; g++) {
    search_group(c, g, collnet);
  }
  connect_cluster(c, collnet);
  return c;
}

static void free_cluster(cluster *c)
{
  tt_connect_destroy(c->connect);
  for (int g = 0; g < c->ngroups; g++) {
    tt_plan_shape_clear(&c->shapes[g]);
    tt_graphs_clear(&c->graphs[g]);
    tt_paths_destroy(c->paths[g]);
    tt_topo_destroy(c->part[g]);
  }
  tt_topo_destroy(c->topo);
  test_free(c);
}

// ---- The network, message by message ----

typedef struct network {
  const cluster *c;
  tt_fabric_plan plan;
  double out[MAX_MACHINES][MAX_PORTS], in[MAX_MACHINES][MAX_PORTS];  // bytes; a port goes by its first NET
  double up[MAX_MACHINES][MAX_PORTS], down[MAX_MACHINES][MAX_PORTS]; // leaf, rail (the number of its first port)
} network;

// The first NET of the same port, as a number from 0.
static int first_net(const tt_topo *t, int net)
{
  int first = t->first[TT_NODE_NET];
  for (int n = first; n < net; n++) {
    if (t->nodes[n].net.guid == t->nodes[net].net.guid && t->nodes[n].net.port == t->nodes[net].net.port) {
      return n - first;
    }
  }
  return net - first;
}

static int rail_of(const network *n, int port)
{
  return n->plan.rails ? port : 0;
}

static int leaf_of(const network *n, int machine)
{
  return n->plan.leaf > 0 ? machine / n->plan.leaf : 0;
}

static double uplinks_of(const network *n, int rail)
{
  const tt_topo *t = n->c->topo;
  double sum = 0;
  int first = t->first[TT_NODE_NET];
  for (int p = 0; p < tt_topo_count(t, TT_NODE_NET); p++) {
    sum += first_net(t, first + p) == p && rail_of(n, p) == rail ? (double)t->nodes[first + p].net.bw : 0;
  }
  return sum * (n->plan.leaf > 0 ? TT_MIN(n->plan.leaf, n->c->machines) : n->c->machines) / n->plan.oversubscription;
}

// A message between two ports: machine and NET node of its group.
static void pass(network *n, const int machines[2], const int nets[2], const int groups[2], double bytes)
{
  int a = first_net(n->c->part[groups[0]], nets[0]), b = first_net(n->c->part[groups[1]], nets[1]);
  bool near = leaf_of(n, machines[0]) == leaf_of(n, machines[1]) && rail_of(n, a) == rail_of(n, b);
  n->out[machines[0]][a] += bytes;
  n->in[machines[1]][b] += bytes;
  n->up[leaf_of(n, machines[0])][rail_of(n, a)] += near ? 0 : bytes;
  n->down[leaf_of(n, machines[1])][rail_of(n, b)] += near ? 0 : bytes;
}

// The NET of a rank: its graph's channel, found by its order.
static int net_of(const cluster *c, int kind, const int *channel_of_node, int rank)
{
  const tt_connect *k = c->connect;
  int node = c->node_of[rank], ch = channel_of_node[node];
  const tt_plan_graph *g = &c->shapes[c->shape_of[node]].graph[kind];
  assert_true(k->nnodes > 1 && g->nets != NULL);
  return g->nets[2 * ch + (g->gpus[ch * c->shapes[c->shape_of[node]].ngpus] == c->local_of[rank] ? 0 : 1)];
}

static void message(network *n, int kind, const int *channels, const int ranks[2], double bytes)
{
  const cluster *c = n->c;
  int a = c->node_of[ranks[0]], b = c->node_of[ranks[1]];
  if (a != b) {
    pass(n, (int[]){a / c->ngroups, b / c->ngroups},
         (int[]){net_of(c, kind, channels, ranks[0]), net_of(c, kind, channels, ranks[1])},
         (int[]){a % c->ngroups, b % c->ngroups}, bytes);
  }
}

// Microseconds of the link that takes longest.
static double slowest(const network *n)
{
  const tt_topo *t = n->c->topo;
  double most = 0;
  for (int m = 0; m < n->c->machines; m++) {
    for (int p = 0; p < tt_topo_count(t, TT_NODE_NET); p++) {
      double rate = (double)t->nodes[t->first[TT_NODE_NET] + p].net.bw * 1e3;
      most = TT_MAX(most, TT_MAX(n->out[m][p], n->in[m][p]) / rate);
      double up = uplinks_of(n, p) * 1e3;
      most = up > 0 ? TT_MAX(most, TT_MAX(n->up[m][p], n->down[m][p]) / up) : most;
    }
  }
  return most;
}

// ---- Operations, step by step, on one byte for each channel ----

// The channels of the search that nodes use for a ring; every other node takes the other of a pair that crosses.
static void ring_channels(const cluster *c, int channel, int *out)
{
  const tt_connect *k = c->connect;
  for (int n = 0; n < k->nnodes; n++) {
    int base = k->origin[channel] % k->nsearch;
    bool other = c->shapes[c->shape_of[n]].graph[TT_GRAPH_RING].cross_nic == 2 && k->nsearch % 2 == 0 && n % 2 != 0;
    out[n] = other ? base ^ 1 : base;
  }
}

// Every rank passes a part on, step by step; which part is followed, so that all have all at the end.
static void ring_steps(network *n, int channel, int steps)
{
  const tt_connect *k = n->c->connect;
  int channels[MAX_RANKS], holds[MAX_RANKS], got[MAX_RANKS];
  ring_channels(n->c, channel, channels);
  for (int r = 0; r < k->nranks; r++) {
    holds[r] = r;
  }
  for (int s = 0; s < steps; s++) {
    for (int r = 0; r < k->nranks; r++) {
      int next = tt_connect_ring_step(k, channel, r, 1);
      message(n, TT_GRAPH_RING, channels, (int[]){r, next}, 1.0 / k->nranks);
      got[next] = holds[r];
    }
    memcpy(holds, got, sizeof(holds));
  }
  for (int r = 0, at = 0; r < k->nranks; r++, at = tt_connect_ring_step(k, channel, at, -1)) {
    int from = 0;
    for (int s = 0; s < (steps + r) % k->nranks; s++) {
      from = tt_connect_ring_step(k, channel, from, -1);
    }
    assert_int_equal(holds[at], from); // each part came `steps` ranks far
  }
}

// From the root on to all, or the same backwards to it.
static void ring_chain(network *n, int channel, int root, bool reduce)
{
  const tt_connect *k = n->c->connect;
  int channels[MAX_RANKS], at = root;
  ring_channels(n->c, channel, channels);
  for (int s = 0; s < k->nranks - 1; s++) {
    int other = tt_connect_ring_step(k, channel, at, reduce ? -1 : 1);
    message(n, TT_GRAPH_RING, channels, reduce ? (int[]){other, at} : (int[]){at, other}, 1);
    at = other;
  }
}

static void tree_channels(const cluster *c, int channel, int *out)
{
  for (int n = 0; n < c->connect->nnodes; n++) {
    out[n] = c->connect->origin[channel] % c->connect->nsearch;
  }
}

// Ranks send up once all below them have; then the root's sum goes down.
static void tree_steps(network *n, int channel)
{
  const tt_connect *k = n->c->connect;
  int channels[MAX_RANKS], sum[MAX_RANKS], sent = 0;
  bool done[MAX_RANKS] = {false};
  tree_channels(n->c, channel, channels);
  for (int r = 0; r < k->nranks; r++) {
    sum[r] = 1;
  }
  for (int round = 0; round < k->nranks && sent < k->nranks - 1; round++) {
    for (int r = 0; r < k->nranks; r++) {
      tt_tree_place p = tt_connect_tree(k, channel, r);
      bool ready = !done[r] && p.up >= 0;
      for (int d = 0; d < TT_TREE_DOWNS; d++) {
        ready = ready && (p.down[d] < 0 || done[p.down[d]]);
      }
      if (ready) {
        message(n, TT_GRAPH_TREE, channels, (int[]){r, p.up}, 1);
        message(n, TT_GRAPH_TREE, channels, (int[]){p.up, r}, 1);
        sum[p.up] += sum[r];
        done[r] = true;
        sent++;
      }
    }
  }
  for (int r = 0; r < k->nranks; r++) {
    assert_true(tt_connect_tree(k, channel, r).up >= 0 || sum[r] == k->nranks);
  }
}

// Blocks that each rank has; a rank gets those that it lacks from the one `step` places on.
static void pat_steps(network *n, int channel, bool gather)
{
  const tt_connect *k = n->c->connect;
  int channels[MAX_RANKS], count = k->nranks;
  bool has[PAT_RANKS][PAT_RANKS] = {{false}}, had[PAT_RANKS][PAT_RANKS];
  assert_true(count <= PAT_RANKS);
  tree_channels(n->c, channel, channels);
  for (int r = 0; r < count; r++) {
    has[r][r] = true;
  }
  for (int step = 1; step < count; step *= 2) {
    memcpy(had, has, sizeof(had));
    for (int r = 0; r < count; r++) {
      int from = (r + step) % count;
      for (int b = 0; b < count; b++) {
        if (had[from][b] && !has[r][b]) {
          has[r][b] = true;
          message(n, TT_GRAPH_TREE, channels, gather ? (int[]){from, r} : (int[]){r, from}, 1.0 / count);
        }
      }
    }
  }
  for (int i = 0; i < count * count; i++) {
    assert_true(has[i / count][i % count]);
  }
}

static int head_net(const cluster *c, int kind, int node, int head)
{
  const tt_plan_graph *g = &c->shapes[c->shape_of[node]].graph[kind];
  return g->nets[2 * (head % g->nchannels)];
}

static void nvls_tree_steps(network *n, int channel)
{
  const cluster *c = n->c;
  for (int node = 0; node < c->connect->nnodes; node++) {
    int up = tt_btree(c->connect->nnodes, node, channel % 2).up;
    for (int h = 0; h < c->connect->nvls_heads && up >= 0; h++) {
      int groups[] = {node % c->ngroups, up % c->ngroups}, machines[] = {node / c->ngroups, up / c->ngroups};
      int nets[] = {head_net(c, TT_GRAPH_NVLS, node, h), head_net(c, TT_GRAPH_NVLS, up, h)};
      double share = 1.0 / c->connect->nvls_heads;
      pass(n, machines, nets, groups, share);
      pass(n, (int[]){machines[1], machines[0]}, (int[]){nets[1], nets[0]}, (int[]){groups[1], groups[0]}, share);
    }
  }
}

// A leaf joins what its ports send, and has one stream with the spine if there are other leaves.
static void stream_steps(network *n, int kind, int head, double bytes, tt_model_func func)
{
  const cluster *c = n->c;
  int nodes = c->connect->nnodes, ports[MAX_MACHINES][MAX_PORTS] = {{0}}, leaves = 0;
  double own = bytes / nodes;
  for (int node = 0; node < nodes; node++) {
    int port = first_net(c->part[node % c->ngroups], head_net(c, kind, node, head)), m = node / c->ngroups;
    n->out[m][port] += func == TT_MODEL_ALL_GATHER ? own : bytes;
    n->in[m][port] += func == TT_MODEL_REDUCE_SCATTER ? own : bytes;
    leaves += ports[leaf_of(n, m)][rail_of(n, port)]++ == 0;
  }
  for (int i = 0; i < MAX_MACHINES * MAX_PORTS && leaves > 1; i++) {
    int count = ports[i / MAX_PORTS][i % MAX_PORTS];
    if (count > 0) {
      n->up[i / MAX_PORTS][i % MAX_PORTS] += func == TT_MODEL_ALL_GATHER ? own * count : bytes;
      n->down[i / MAX_PORTS][i % MAX_PORTS] += func == TT_MODEL_REDUCE_SCATTER ? own * count : bytes;
    }
  }
}

static void run_channel(network *n, tt_fabric_op op, int channel)
{
  const tt_connect *k = n->c->connect;
  bool gather = op.func == TT_MODEL_ALL_GATHER;
  if (op.algo == TT_MODEL_RING && (op.func == TT_MODEL_BROADCAST || op.func == TT_MODEL_REDUCE)) {
    ring_chain(n, channel, op.root, op.func == TT_MODEL_REDUCE);
  } else if (op.algo == TT_MODEL_RING) {
    ring_steps(n, channel, (op.func == TT_MODEL_ALL_REDUCE ? 2 : 1) * (k->nranks - 1));
  } else if (op.algo == TT_MODEL_TREE) {
    tree_steps(n, channel);
  } else if (op.algo == TT_MODEL_PAT) {
    pat_steps(n, channel, gather);
  } else if (op.algo == TT_MODEL_NVLS_TREE) {
    nvls_tree_steps(n, channel);
  } else if (op.algo == TT_MODEL_COLLNET_CHAIN) {
    stream_steps(n, TT_GRAPH_COLLNET_CHAIN, channel, 1, op.func);
  } else {
    int kind = op.algo == TT_MODEL_NVLS ? TT_GRAPH_NVLS : TT_GRAPH_COLLNET_DIRECT;
    int heads = op.algo == TT_MODEL_NVLS ? k->nvls_heads : k->common[TT_GRAPH_COLLNET_DIRECT].nchannels;
    for (int h = 0; h < heads; h++) {
      stream_steps(n, kind, h, 1.0 / heads, op.func);
    }
  }
}

// ---- The comparison ----

static const tt_fabric_plan plans[] = {{false, 0, 1}, {true, 0, 1}, {false, 2, 4}, {true, 3, 2.5}, {true, 1, 8}};
static int compared[TT_MODEL_FUNCS][TT_MODEL_ALGOS];

static void compare(const cluster *c, tt_fabric_plan plan, tt_fabric_op op, int channels)
{
  tt_fabric *f = NULL;
  tt_fabric_limit limits[TT_GRAPH_MAX_CHANNELS];
  tt_fabric_input in = {.connect = c->connect, .topo = c->topo, .plan = plan};
  network *n = test_calloc(1, sizeof(*n));
  *n = (network){.c = c, .plan = plan};
  assert_int_equal(tt_fabric_create(&in, &f), ncclSuccess);
  assert_int_equal(tt_fabric_limits(f, op, channels, limits), ncclSuccess);
  for (int k = 0; k < channels; k++) {
    run_channel(n, op, k);
    double want = slowest(n) / (k + 1), got = limits[k].us_per_byte;
    if (!(got > want * (1 - 1e-9) && got < want * (1 + 1e-9)) || want <= 0) {
      fail_msg("%s %s, %d machines, %d channels, leaf %d%s, %g:1: %g us per byte, step by step %g",
               tt_model_func_name(op.func), tt_model_algo_name(op.algo), c->machines, k + 1, plan.leaf,
               plan.rails ? " of rails" : "", plan.oversubscription, got, want);
    }
  }
  compared[op.func][op.algo]++;
  tt_fabric_destroy(f);
  test_free(n);
}

// All that the model has for the cluster.
static void compare_all(const char *name, int machines, int channels)
{
  cluster *c = make_cluster(name, machines);
  tt_model model;
  assert_int_equal(tt_model_make(&(tt_model_input){.connect = c->connect, .net_gathers = true}, &model), ncclSuccess);
  for (int i = 0; i < TT_MODEL_FUNCS * TT_MODEL_ALGOS; i++) {
    tt_fabric_op op = {i / TT_MODEL_ALGOS, i % TT_MODEL_ALGOS, c->connect->nranks - 2};
    int all = tt_model_is_nvls(op.algo) ? c->connect->nvls_channels : c->connect->nchannels;
    for (size_t p = 0; p < TT_COUNT(plans) && model.off[op.func][op.algo][TT_MODEL_SIMPLE] == TT_OFF_NOT; p++) {
      compare(c, plans[p], op, TT_MIN(all, channels));
    }
  }
  free_cluster(c);
}

static void as_step_by_step(void **state)
{
  static const char *const names[] = {"hgx_h100_8gpu_nvswitch_8nic",  "hgx_h100_8gpu_nvswitch_8nic.collnet",
                                      "hgx_h100_8gpu_nvswitch_2nic",  "dgx1v_8xV100_4nic",
                                      "pcie_1gpu_1nic_switch",        "pcie_8gpu_2socket_4sw_gpu_nic_each_net_faster",
                                      "pcie_4gpu_2socket_sw.collnet", "amd_asnv_topo_8p6l_3nic"};
  static const int counts[] = {2, 3, 5, 8};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(names) * TT_COUNT(counts); i++) {
    compare_all(names[i / TT_COUNT(counts)], counts[i % TT_COUNT(counts)], TT_GRAPH_MAX_CHANNELS);
  }
  compare_all("hgx_h100_8gpu_nvswitch_8nic", MAX_RANKS / 8, 2);
  compare_all("pcie_1gpu_1nic_switch", PAT_RANKS - 1, 2);
  for (int i = 0; i < TT_MODEL_FUNCS * TT_MODEL_ALGOS; i++) {
    bool has = i % TT_MODEL_ALGOS == TT_MODEL_RING || i / TT_MODEL_ALGOS >= TT_MODEL_ALL_GATHER;
    bool tree = i % TT_MODEL_ALGOS == TT_MODEL_TREE || i % TT_MODEL_ALGOS == TT_MODEL_NVLS_TREE ||
                i % TT_MODEL_ALGOS == TT_MODEL_COLLNET_CHAIN;
    bool pat = i % TT_MODEL_ALGOS == TT_MODEL_PAT;
    has = has && (!tree || i / TT_MODEL_ALGOS == TT_MODEL_ALL_REDUCE);
    has = has && (!pat || i / TT_MODEL_ALGOS != TT_MODEL_ALL_REDUCE);
    if (has && compared[i / TT_MODEL_ALGOS][i % TT_MODEL_ALGOS] == 0) {
      fail_msg("%s %s was never compared", tt_model_func_name(i / TT_MODEL_ALGOS),
               tt_model_algo_name(i % TT_MODEL_ALGOS));
    }
  }
}

// ---- By hand ----

// Four machines of one GPU and one port, two below a leaf, uplinks 4:1: half of a port. A ring's edges carry 1.5 bytes
// of each; one leads up from each leaf.
static void ring_over_two_leaves(void **state)
{
  (void)state;
  cluster *c = make_cluster("pcie_1gpu_1nic_switch", 4);
  tt_fabric *f = NULL;
  tt_fabric_limit limit[TT_GRAPH_MAX_CHANNELS];
  float rate = c->topo->nodes[c->topo->first[TT_NODE_NET]].net.bw;
  tt_fabric_op op = {TT_MODEL_ALL_REDUCE, TT_MODEL_RING, 0};
  tt_fabric_input in = {.connect = c->connect, .topo = c->topo, .plan = {false, 2, 4}};
  assert_int_equal(tt_fabric_create(&in, &f), ncclSuccess);
  assert_int_equal(tt_fabric_limits(f, op, 1, limit), ncclSuccess);
  rig_same((float)limit[0].us_per_byte * rate * 1e3f, 1.5f * 2);
  assert_true(limit[0].kind == TT_FABRIC_UP || limit[0].kind == TT_FABRIC_DOWN);
  // Each machine sends a message to each of the other leaf, 4 in all up from each.
  tt_fabric_clear(f);
  tt_fabric_add_pairs(f, (int[]){0, 0}, 1);
  rig_same((float)tt_fabric_most(f).us_per_byte * rate * 1e3f, 4 * 2);
  tt_fabric_destroy(f);
  free_cluster(c);
}

// Messages between all pairs, one by one, against the sum of all.
static void pairs_one_by_one(void **state)
{
  (void)state;
  for (size_t p = 0; p < TT_COUNT(plans); p++) {
    cluster *c = make_cluster("hgx_h100_8gpu_nvswitch_8nic", 8);
    network *n = test_calloc(1, sizeof(*n));
    tt_fabric *f = NULL;
    tt_fabric_input in = {.connect = c->connect, .topo = c->topo, .plan = plans[p]};
    int first = c->topo->first[TT_NODE_NET];
    *n = (network){.c = c, .plan = plans[p]};
    assert_int_equal(tt_fabric_create(&in, &f), ncclSuccess);
    for (int i = 0; i < 3; i++) {
      int nets[] = {first + i, first + 2 * i};
      tt_fabric_add_pairs(f, (int[]){tt_fabric_port(f, nets[0] - first), tt_fabric_port(f, nets[1] - first)}, 0.5 + i);
      for (int k = 0; k < 64; k++) {
        if (k / 8 != k % 8) {
          pass(n, (int[]){k / 8, k % 8}, nets, (int[]){0, 0}, 0.5 + i);
        }
      }
    }
    double want = slowest(n), got = tt_fabric_most(f).us_per_byte;
    assert_true(got > want * (1 - 1e-9) && got < want * (1 + 1e-9) && want > 0);
    tt_fabric_destroy(f);
    test_free(n);
    free_cluster(c);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_step_by_step), cmocka_unit_test(ring_over_two_leaves),
                                     cmocka_unit_test(pairs_one_by_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
