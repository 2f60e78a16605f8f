// fabric.c: see fabric.h.
#include "tools/fabric.h"

#include "base/util.h"

typedef struct fabric_port {
  uint64_t host, guid;
  int number;  // of the port on its adapter
  int rail;    // from 0; 0 for all without rails
  double rate; // GB/s
} fabric_port;

struct tt_fabric {
  const tt_connect *connect;
  tt_fabric_plan plan;
  int nmachines, nports, nrails, nleaves; // ports of a machine; leaves of a rail
  fabric_port *ports;                     // [nports]
  int *port_of;                           // of NET number i
  double *uplinks;                        // [nrails]: GB/s of a leaf's
  double *load;                           // of each link: microseconds per byte
  bool *in_stream;                        // [nleaves * nrails]: has ports in the stream that is being counted
  int *stream;                            // those leaves
  int *stream_ports;                      // [nleaves * nrails]: how many ports
  tt_fabric_limit most;
  bool unreached;
  tt_arena arena;
};

// ---- Making it ----

static int find_port(const tt_fabric *f, const fabric_port *like)
{
  for (int p = 0; p < f->nports; p++) {
    const fabric_port *x = &f->ports[p];
    if (x->host == like->host && x->guid == like->guid && x->number == like->number) {
      return p;
    }
  }
  return -1;
}

// A port without a rail is on that of its place among its host's ports.
static void find_ports(tt_fabric *f, const tt_topo *t)
{
  for (int n = t->first[TT_NODE_NET]; n < t->first[TT_NODE_NET + 1]; n++) {
    const tt_topo_node *node = &t->nodes[n];
    fabric_port port = {
        .host = t->hosts[node->host], .guid = node->net.guid, .number = node->net.port, .rate = (double)node->net.bw};
    int p = find_port(f, &port), before = 0;
    for (int i = 0; i < f->nports; i++) {
      before += f->ports[i].host == port.host;
    }
    if (p < 0) {
      p = f->nports++;
      port.rail = !f->plan.rails ? 0 : node->net.rail >= 0 ? node->net.rail : before;
      f->ports[p] = port;
    }
    f->port_of[n - t->first[TT_NODE_NET]] = p;
  }
}

// Numbers rails from 0 in the order of ports, and finds the uplinks of a leaf that all its machines are below.
static void find_rails(tt_fabric *f)
{
  for (int p = 0; p < f->nports; p++) {
    int rail = f->ports[p].rail, same = 0;
    while (same < p && f->stream[same] != rail) {
      same++;
    }
    f->stream[p] = rail; // as the file has it, to be found again
    f->ports[p].rail = same < p ? f->ports[same].rail : f->nrails++;
  }
  int below = f->plan.leaf > 0 ? TT_MIN(f->plan.leaf, f->nmachines) : f->nmachines;
  for (int p = 0; p < f->nports; p++) {
    f->uplinks[f->ports[p].rail] += below * f->ports[p].rate / f->plan.oversubscription;
  }
}

static size_t link_count(const tt_fabric *f)
{
  return 2 * ((size_t)f->nmachines * (size_t)f->nports + (size_t)f->nleaves * (size_t)f->nrails);
}

static ncclResult_t fabric_fill(tt_fabric *f, const tt_fabric_input *in)
{
  int nets = tt_topo_count(in->topo, TT_NODE_NET);
  size_t leaves = (size_t)f->nleaves * (size_t)TT_MAX(nets, 1);
  TT_ARENA_NEW(&f->arena, f->ports, nets + 1);
  TT_ARENA_NEW(&f->arena, f->uplinks, nets + 1);
  TT_ARENA_NEW(&f->arena, f->port_of, nets + 1);
  TT_ARENA_NEW(&f->arena, f->in_stream, leaves);
  TT_ARENA_NEW(&f->arena, f->stream, leaves);
  TT_ARENA_NEW(&f->arena, f->stream_ports, leaves);
  if (!f->arena.failed) {
    find_ports(f, in->topo);
    find_rails(f);
    TT_ARENA_NEW(&f->arena, f->load, link_count(f) + 1);
  }
  return f->arena.failed ? tt_fail(ncclSystemError, "no memory for the network of %d machines", f->nmachines)
                         : ncclSuccess;
}

ncclResult_t tt_fabric_create(const tt_fabric_input *in, tt_fabric **out)
{
  tt_fabric *f;
  int machines = in->connect->nnodes / in->connect->nshapes;
  TT_TRY(TT_NEW(f, 1, "no memory for the network of %d machines", machines));
  f->connect = in->connect;
  f->plan = in->plan;
  f->nmachines = machines;
  f->nleaves = in->plan.leaf > 0 ? TT_DIV_UP(machines, in->plan.leaf) : 1;
  ncclResult_t res = fabric_fill(f, in);
  if (res != ncclSuccess) {
    tt_fabric_destroy(f);
    return res;
  }
  *out = f;
  return ncclSuccess;
}

void tt_fabric_destroy(tt_fabric *f)
{
  if (f != NULL) {
    tt_arena_clear(&f->arena);
    tt_free(f);
  }
}

int tt_fabric_port(const tt_fabric *f, int net)
{
  return f->port_of[net];
}

// ---- Loads ----

// A port of a machine; machine -1: none.
typedef struct fabric_end {
  int machine, port;
} fabric_end;

static int fabric_leaf_of(const tt_fabric *f, int machine)
{
  return f->plan.leaf > 0 ? machine / f->plan.leaf : 0;
}

static void fabric_note(tt_fabric *f, size_t link, double us, tt_fabric_limit what)
{
  f->load[link] += us;
  if (f->load[link] > f->most.us_per_byte) {
    f->most = what;
    f->most.us_per_byte = f->load[link];
  }
}

// Adds bytes per byte of the operation to a port's link. 1 GB/s is 1000 bytes per microsecond.
static void fabric_load_port(tt_fabric *f, fabric_end e, tt_fabric_kind kind, double bytes)
{
  size_t link = 2 * ((size_t)e.machine * (size_t)f->nports + (size_t)e.port) + (kind == TT_FABRIC_IN);
  fabric_note(f, link, bytes / f->ports[e.port].rate / 1e3,
              (tt_fabric_limit){.kind = kind, .machine = e.machine, .port = e.port});
}

static void fabric_load_leaf(tt_fabric *f, int leaf, int rail, tt_fabric_kind kind, double bytes)
{
  size_t link = 2 * ((size_t)f->nmachines * (size_t)f->nports + (size_t)leaf * (size_t)f->nrails + (size_t)rail) +
                (kind == TT_FABRIC_DOWN);
  fabric_note(f, link, bytes / f->uplinks[rail] / 1e3, (tt_fabric_limit){.kind = kind, .leaf = leaf, .rail = rail});
}

static void fabric_send(tt_fabric *f, fabric_end a, fabric_end b, double bytes)
{
  if (a.machine < 0 || b.machine < 0) {
    f->unreached = true;
    return;
  }
  int from = fabric_leaf_of(f, a.machine), to = fabric_leaf_of(f, b.machine), out = f->ports[a.port].rail,
      in = f->ports[b.port].rail;
  fabric_load_port(f, a, TT_FABRIC_OUT, bytes);
  fabric_load_port(f, b, TT_FABRIC_IN, bytes);
  if (from != to || out != in) {
    fabric_load_leaf(f, from, out, TT_FABRIC_UP, bytes);
    fabric_load_leaf(f, to, in, TT_FABRIC_DOWN, bytes);
  }
}

void tt_fabric_clear(tt_fabric *f)
{
  memset(f->load, 0, link_count(f) * sizeof(*f->load));
  f->most = (tt_fabric_limit){0};
  f->unreached = false;
}

tt_fabric_limit tt_fabric_most(const tt_fabric *f)
{
  return f->most;
}

// The port of a NET as the graphs of a node's shape name it: its NETs come behind its GPUs.
static fabric_end fabric_end_of(const tt_fabric *f, int node, int net)
{
  const tt_connect *c = f->connect;
  int ngpus = c->shapes[c->shape_of[node]].ngpus;
  return net < 0 ? (fabric_end){-1, -1} : (fabric_end){node / c->nshapes, f->port_of[net - ngpus]};
}

static fabric_end rank_end(const tt_fabric *f, tt_graph_kind graph, int channel, int rank)
{
  return fabric_end_of(f, f->connect->node_of[rank], tt_connect_net(f->connect, graph, channel, rank));
}

// What a rank sends to another over a channel of a ring or tree; nothing leaves a node for a rank of the same.
static void rank_send(tt_fabric *f, tt_graph_kind graph, int channel, const int ranks[2], double bytes)
{
  if (f->connect->node_of[ranks[0]] != f->connect->node_of[ranks[1]]) {
    fabric_send(f, rank_end(f, graph, channel, ranks[0]), rank_end(f, graph, channel, ranks[1]), bytes);
  }
}

// ---- Algorithms ----

// Bytes that each edge of a ring carries per byte of the operation's size: the sum of its steps.
static double ring_share(tt_model_func func, int nranks)
{
  double others = (double)(nranks - 1) / nranks;
  return func == TT_MODEL_ALL_REDUCE                                      ? 2 * others
         : func == TT_MODEL_ALL_GATHER || func == TT_MODEL_REDUCE_SCATTER ? others
                                                                          : 1;
}

static void ring_channel_load(tt_fabric *f, tt_fabric_op op, int channel)
{
  const tt_connect *c = f->connect;
  double share = ring_share(op.func, c->nranks);
  for (int r = 0; r < c->nranks; r++) {
    int next = tt_connect_ring_step(c, channel, r, 1);
    // The way that closes the ring: into the root of a broadcast, out of that of a reduction.
    bool unused = (op.func == TT_MODEL_BROADCAST && next == op.root) || (op.func == TT_MODEL_REDUCE && r == op.root);
    if (!unused) {
      rank_send(f, TT_GRAPH_RING, channel, (int[]){r, next}, share);
    }
  }
}

static void tree_channel_load(tt_fabric *f, int channel)
{
  const tt_connect *c = f->connect;
  for (int r = 0; r < c->nranks; r++) {
    int up = tt_connect_tree(c, channel, r).up;
    if (up >= 0) {
      rank_send(f, TT_GRAPH_TREE, channel, (int[]){r, up}, 1);
      rank_send(f, TT_GRAPH_TREE, channel, (int[]){up, r}, 1);
    }
  }
}

// As src/coll/pat.c has it: in the round with step s every rank gets s blocks (or what is left) from s places on; the
// same backwards for reduce-scatter.
static void pat_channel_load(tt_fabric *f, tt_fabric_op op, int channel)
{
  const tt_connect *c = f->connect;
  int n = c->nranks;
  for (int step = 1; step < n; step *= 2) {
    double share = (double)TT_MIN(step, n - step) / n;
    for (int r = 0; r < n; r++) {
      int other = (r + step) % n;
      bool gather = op.func == TT_MODEL_ALL_GATHER;
      rank_send(f, TT_GRAPH_TREE, channel, gather ? (int[]){other, r} : (int[]){r, other}, share);
    }
  }
}

// The port of a head of a node's graph.
static fabric_end head_end(const tt_fabric *f, tt_graph_kind graph, int node, int head)
{
  const tt_plan_graph *g = &f->connect->shapes[f->connect->shape_of[node]].graph[graph];
  return fabric_end_of(f, node, g->nets == NULL ? -1 : g->nets[2 * (head % g->nchannels)]);
}

// Each head's share goes up and down a double tree of nodes, even and odd channels.
static void nvls_tree_load(tt_fabric *f, int channel)
{
  const tt_connect *c = f->connect;
  for (int node = 0; node < c->nnodes; node++) {
    int up = tt_btree(c->nnodes, node, channel % 2).up;
    for (int h = 0; h < c->nvls_heads && up >= 0; h++) {
      fabric_end a = head_end(f, TT_GRAPH_NVLS, node, h), b = head_end(f, TT_GRAPH_NVLS, up, h);
      fabric_send(f, a, b, 1.0 / c->nvls_heads);
      fabric_send(f, b, a, 1.0 / c->nvls_heads);
    }
  }
}

// What a node sends to a network that reduces and gathers, and gets from it, as a part of the whole.
static void collnet_shares(tt_model_func func, double part, double share[2])
{
  share[0] = func == TT_MODEL_ALL_GATHER ? part : 1;
  share[1] = func == TT_MODEL_REDUCE_SCATTER ? part : 1;
}

// One stream of a network that reduces: each node's port, and between leaves one stream each.
static void stream_load(tt_fabric *f, tt_fabric_op op, tt_graph_kind graph, int head, double amount)
{
  const tt_connect *c = f->connect;
  int count = 0;
  double share[2];
  collnet_shares(op.func, 1.0 / c->nnodes, share);
  for (int node = 0; node < c->nnodes; node++) {
    fabric_end e = head_end(f, graph, node, head);
    if (e.machine < 0) {
      f->unreached = true;
      return;
    }
    int at = fabric_leaf_of(f, e.machine) * f->nrails + f->ports[e.port].rail;
    fabric_load_port(f, e, TT_FABRIC_OUT, amount * share[0]);
    fabric_load_port(f, e, TT_FABRIC_IN, amount * share[1]);
    if (!f->in_stream[at]) {
      f->in_stream[at] = true;
      f->stream_ports[at] = 0;
      f->stream[count++] = at;
    }
    f->stream_ports[at]++;
  }
  for (int i = 0; i < count; i++) {
    int at = f->stream[i];
    f->in_stream[at] = false;
    collnet_shares(op.func, (double)f->stream_ports[at] / c->nnodes, share);
    if (count > 1) {
      fabric_load_leaf(f, at / f->nrails, at % f->nrails, TT_FABRIC_UP, amount * share[0]);
      fabric_load_leaf(f, at / f->nrails, at % f->nrails, TT_FABRIC_DOWN, amount * share[1]);
    }
  }
}

static void heads_load(tt_fabric *f, tt_fabric_op op, tt_graph_kind graph)
{
  const tt_connect *c = f->connect;
  int heads = graph == TT_GRAPH_NVLS ? c->nvls_heads : c->common[graph].nchannels;
  for (int h = 0; h < heads && c->nnodes > 1; h++) {
    stream_load(f, op, graph, h, 1.0 / heads);
  }
}

static void channel_load(tt_fabric *f, tt_fabric_op op, int channel)
{
  switch (op.algo) {
  case TT_MODEL_RING: ring_channel_load(f, op, channel); break;
  case TT_MODEL_TREE: tree_channel_load(f, channel); break;
  case TT_MODEL_PAT: pat_channel_load(f, op, channel); break;
  case TT_MODEL_NVLS_TREE: nvls_tree_load(f, channel); break;
  case TT_MODEL_NVLS: heads_load(f, op, TT_GRAPH_NVLS); break;
  case TT_MODEL_COLLNET_DIRECT: heads_load(f, op, TT_GRAPH_COLLNET_DIRECT); break;
  case TT_MODEL_COLLNET_CHAIN:
    if (f->connect->nnodes > 1) {
      stream_load(f, op, TT_GRAPH_COLLNET_CHAIN, channel, 1);
    }
    break;
  default: break;
  }
}

ncclResult_t tt_fabric_limits(tt_fabric *f, tt_fabric_op op, int channels, tt_fabric_limit *limits)
{
  tt_fabric_clear(f);
  for (int k = 0; k < TT_MIN(channels, TT_GRAPH_MAX_CHANNELS) && !f->unreached; k++) {
    channel_load(f, op, k);
    limits[k] = f->most;
    limits[k].us_per_byte /= k + 1; // each channel has its part of the bytes
  }
  return f->unreached ? tt_fail(ncclInvalidArgument, "ranks have no network port to reach other machines by")
                      : ncclSuccess;
}

// ---- Times ----

// Bytes on the wire for each byte of data: LL has a flag beside every 4, LL128 one of 8 in every 128.
static double fabric_wire(tt_model_proto proto)
{
  return proto == TT_MODEL_LL ? 2 : proto == TT_MODEL_LL128 ? 128.0 / 120 : 1;
}

double tt_fabric_time(const tt_model *m, const tt_model_op *op, tt_model_algo algo, tt_model_proto proto,
                      const tt_fabric_limit *limit)
{
  double us = (double)tt_model_time(m, op, algo, proto), rate = (double)m->bandwidth[op->func][algo][proto];
  double transfer =
      algo == TT_MODEL_RING ? (double)op->bytes / (1e3 * rate) : us - (double)m->latency[op->func][algo][proto];
  double link = (double)op->bytes * limit->us_per_byte * fabric_wire(proto);
  return link > transfer ? us - transfer + link : us;
}

// ---- All-to-all ----

// Machines of one leaf have the same loads; so two leaves stand for all: a full one and the last.
void tt_fabric_add_pairs(tt_fabric *f, const int ports[2], double messages)
{
  int out = f->ports[ports[0]].rail, in = f->ports[ports[1]].rail, all = f->nmachines;
  fabric_load_port(f, (fabric_end){0, ports[0]}, TT_FABRIC_OUT, messages * (all - 1));
  fabric_load_port(f, (fabric_end){0, ports[1]}, TT_FABRIC_IN, messages * (all - 1));
  for (int leaf = 0; leaf < f->nleaves; leaf = leaf == 0 && f->nleaves > 1 ? f->nleaves - 1 : f->nleaves) {
    int here = f->nleaves == 1 ? all : TT_MIN(f->plan.leaf, all - leaf * f->plan.leaf);
    double far = messages * here * (out == in ? all - here : all - 1);
    if (far > 0) {
      fabric_load_leaf(f, leaf, out, TT_FABRIC_UP, far);
      fabric_load_leaf(f, leaf, in, TT_FABRIC_DOWN, far);
    }
  }
}
