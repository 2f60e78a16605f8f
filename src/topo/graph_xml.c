// graph_xml.c: graphs as documents, in the form of NCCL_GRAPH_DUMP_FILE.
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "topo/search_priv.h"

enum { GRAPH_VERSION = 1, HOST_SHIFT = 56 };

static const int graph_ids[TT_GRAPH_KINDS] = {0, 1, 4, 2, 3};

// ---- Writing ----

// The number of a GPU or NET: dev, with the host's number in the top byte.
static uint64_t dev_of(const tt_topo *topo, int node)
{
  const tt_topo_node *n = &topo->nodes[node];
  int dev = n->kind == TT_NODE_NET ? n->net.dev : n->gpu.dev;
  return (uint64_t)n->host << HOST_SHIFT | (uint64_t)(uint32_t)dev;
}

static ncclResult_t set_float(tt_xml *xml, tt_xml_node *at, const char *name, float value)
{
  char text[32];
  tt_format(text, sizeof(text), "%g", (double)value);
  return tt_xml_set(xml, at, name, text);
}

static ncclResult_t add_end(const tt_topo *topo, int node, tt_xml *xml, tt_xml_node *channel)
{
  bool net = node < 0 || topo->nodes[node].kind == TT_NODE_NET;
  tt_xml_node *x = NULL;
  char text[32];
  TT_TRY(tt_xml_add(xml, channel, net ? "net" : "gpu", &x));
  // A channel without a card is one that must use the network and has none: NCCL writes -1 so.
  snprintf(text, sizeof(text), "%#llx", node < 0 ? ~0ull : (unsigned long long)dev_of(topo, node));
  TT_TRY(tt_xml_set(xml, x, "dev", text));
  return net ? ncclSuccess : tt_xml_set_int(xml, x, "rank", topo->nodes[node].gpu.rank);
}

static ncclResult_t graph_add_channel(const tt_topo *topo, const tt_graph *g, int c, tt_xml *xml, tt_xml_node *parent)
{
  tt_xml_node *channel = NULL;
  int shown = g->id == graph_ids[TT_GRAPH_NVLS] ? 1 : g->ngpus; // NVLS: only the head matters
  TT_TRY(tt_xml_add(xml, parent, "channel", &channel));
  if (g->inter) {
    TT_TRY(add_end(topo, g->nets[2 * c], xml, channel));
  }
  for (int i = 0; i < shown; i++) {
    TT_TRY(add_end(topo, g->gpus[(size_t)c * (size_t)g->ngpus + (size_t)i], xml, channel));
  }
  return g->inter ? add_end(topo, g->nets[2 * c + 1], xml, channel) : ncclSuccess;
}

static ncclResult_t add_graph(const tt_topo *topo, const tt_graph *g, tt_xml *xml)
{
  tt_xml_node *x = NULL;
  TT_TRY(tt_xml_add(xml, xml->root, "graph", &x));
  TT_TRY(tt_xml_set_int(xml, x, "id", g->id));
  TT_TRY(tt_xml_set_int(xml, x, "pattern", g->pattern));
  TT_TRY(tt_xml_set_int(xml, x, "crossnic", g->crossnic));
  TT_TRY(tt_xml_set_int(xml, x, "nchannels", g->nchannels));
  TT_TRY(set_float(xml, x, "speedintra", g->speedintra));
  TT_TRY(set_float(xml, x, "speedinter", g->speedinter));
  TT_TRY(set_float(xml, x, "latencyinter", g->latencyinter));
  TT_TRY(tt_xml_set(xml, x, "typeintra", tt_path_type_name(g->typeintra)));
  TT_TRY(tt_xml_set(xml, x, "typeinter", tt_path_type_name(g->typeinter)));
  TT_TRY(tt_xml_set_int(xml, x, "samechannels", g->samechannels));
  for (int c = 0; c < g->nchannels; c++) {
    TT_TRY(graph_add_channel(topo, g, c, xml, x));
  }
  return ncclSuccess;
}

static ncclResult_t add_all(const tt_topo *topo, const tt_graphs *graphs, tt_xml *xml)
{
  TT_TRY(tt_xml_set_int(xml, xml->root, "version", GRAPH_VERSION));
  for (int i = 0; i < TT_GRAPH_KINDS; i++) {
    TT_TRY(add_graph(topo, &graphs->graph[i], xml));
  }
  return ncclSuccess;
}

ncclResult_t tt_graphs_to_xml(const tt_topo *topo, const tt_graphs *graphs, tt_xml **out)
{
  tt_xml *xml = NULL;
  TT_TRY(tt_xml_new("graphs", "graphs", &xml));
  ncclResult_t res = add_all(topo, graphs, xml);
  if (res != ncclSuccess) {
    tt_xml_destroy(xml);
    return res;
  }
  *out = xml;
  return ncclSuccess;
}

// ---- Reading ----

static ncclResult_t read_dev(const tt_topo *topo, const tt_xml_node *x, int kind, int *out)
{
  const char *text = NULL;
  uint64_t dev = 0;
  TT_TRY(tt_xml_need(x, "dev", &text));
  TT_TRY(tt_xml_hex_or(x, "dev", 0, &dev));
  for (int i = topo->first[kind]; i < topo->first[kind + 1]; i++) {
    if (dev_of(topo, i) == dev) {
      *out = i;
      return ncclSuccess;
    }
  }
  return tt_xml_fail(x, "dev=\"%s\": this machine has no such %s; %d of them are known", text, tt_node_kind_name(kind),
                     tt_topo_count(topo, kind));
}

static ncclResult_t graph_read_gpu(const tt_topo *topo, const tt_xml_node *x, int *out)
{
  int rank;
  if (tt_xml_get(x, "rank") == NULL) {
    return read_dev(topo, x, TT_NODE_GPU, out);
  }
  TT_TRY(tt_xml_int_or(x, "rank", 0, TT_XML_COUNTS, &rank));
  int node = tt_topo_rank_node(topo, rank);
  if (node < 0 || topo->nodes[node].kind != TT_NODE_GPU) {
    return tt_xml_fail(x, "rank=\"%d\": no such rank on this machine", rank);
  }
  *out = node;
  return ncclSuccess;
}

static int graph_place_of(const int *gpus, int count, int gpu)
{
  int i = 0;
  while (i < count && gpus[i] != gpu) {
    i++;
  }
  return i;
}

static ncclResult_t read_channel(const tt_topo *topo, const tt_xml_node *channel, int c, tt_graph *g)
{
  int *gpus = &g->gpus[(size_t)c * (size_t)g->ngpus], *nets = &g->nets[2 * c], ngpus = 0, nnets = 0, node;
  nets[0] = nets[1] = -1;
  for (const tt_xml_node *x = tt_xml_child(channel, NULL); x != NULL; x = tt_xml_sibling(x, NULL)) {
    if (tt_xml_is(x, "net")) {
      TT_TRY(read_dev(topo, x, TT_NODE_NET, &node));
      if (nnets == 2) {
        return tt_xml_fail(x, "a channel has two network ports: the one it comes by and the one it leaves by");
      }
      nets[nnets++] = node;
    } else if (tt_xml_is(x, "gpu")) {
      TT_TRY(graph_read_gpu(topo, x, &node));
      if (graph_place_of(gpus, ngpus, node) < ngpus) {
        return tt_xml_fail(x, "rank %d is in this channel twice", topo->nodes[node].gpu.rank);
      }
      gpus[ngpus++] = node;
    }
  }
  bool heads = g->pattern == TT_PATTERN_NVLS || g->pattern == TT_PATTERN_COLLNET_DIRECT;
  for (int i = 0; heads && ngpus > 0 && i < g->ngpus; i++) {
    if (graph_place_of(gpus, ngpus, i) == ngpus) {
      gpus[ngpus++] = i;
    }
  }
  if (ngpus != g->ngpus || (g->inter && nnets != 2)) {
    return tt_xml_fail(channel, "%d GPUs and %d network ports; expected are %d and %d", ngpus, nnets, g->ngpus,
                       g->inter ? 2 : 0);
  }
  return ncclSuccess;
}

static ncclResult_t read_type(const tt_xml_node *x, const char *name, int *out)
{
  const char *text = NULL;
  TT_TRY(tt_xml_need(x, name, &text));
  *out = tt_path_type_of(text);
  return *out >= 0
             ? ncclSuccess
             : tt_xml_fail(x, "%s=\"%s\": LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB or SYS is expected", name, text);
}

static ncclResult_t read_graph(const tt_topo *topo, const tt_xml_node *x, tt_graph *g)
{
  const float most = 1e6f; // GB/s, microseconds
  int same = 0, c = 0;
  TT_TRY(tt_xml_int(x, "pattern", (tt_xml_range){0, TT_PATTERN_COLLNET_DIRECT}, &g->pattern));
  TT_TRY(tt_xml_int(x, "crossnic", (tt_xml_range){0, 2}, &g->crossnic));
  TT_TRY(tt_xml_int(x, "nchannels", (tt_xml_range){0, TT_GRAPH_MAX_CHANNELS}, &g->nchannels));
  TT_TRY(tt_xml_int(x, "samechannels", (tt_xml_range){0, 1}, &same));
  TT_TRY(tt_xml_float_or(x, "speedintra", 0, most, &g->speedintra));
  TT_TRY(tt_xml_float_or(x, "speedinter", 0, most, &g->speedinter));
  TT_TRY(tt_xml_float_or(x, "latencyinter", 0, most, &g->latencyinter));
  TT_TRY(read_type(x, "typeintra", &g->typeintra));
  TT_TRY(read_type(x, "typeinter", &g->typeinter));
  g->samechannels = same == 1;
  for (const tt_xml_node *ch = tt_xml_child(x, "channel"); ch != NULL; ch = tt_xml_sibling(ch, "channel"), c++) {
    if (c == g->nchannels) {
      return tt_xml_fail(ch, "more channels than nchannels=\"%d\"", g->nchannels);
    }
    TT_TRY(read_channel(topo, ch, c, g));
  }
  return c == g->nchannels ? ncclSuccess : tt_xml_fail(x, "nchannels=\"%d\", but there are %d", g->nchannels, c);
}

static ncclResult_t graph_read_all(const tt_topo *topo, const tt_xml *xml, tt_graphs *out)
{
  int version = 0, id = 0;
  bool there[TT_GRAPH_KINDS] = {false};
  if (!tt_xml_is(xml->root, "graphs")) {
    return tt_xml_fail(xml->root, "a document of graphs begins with <graphs version=\"1\">");
  }
  TT_TRY(tt_xml_int(xml->root, "version", (tt_xml_range){GRAPH_VERSION, GRAPH_VERSION}, &version));
  for (const tt_xml_node *x = tt_xml_child(xml->root, "graph"); x != NULL; x = tt_xml_sibling(x, "graph")) {
    TT_TRY(tt_xml_int(x, "id", (tt_xml_range){0, TT_GRAPH_KINDS - 1}, &id));
    int kind = graph_place_of(graph_ids, TT_GRAPH_KINDS, id);
    if (there[kind]) {
      return tt_xml_fail(x, "id=\"%d\": there are two graphs of that number", id);
    }
    there[kind] = true;
    TT_TRY(read_graph(topo, x, &out->graph[kind]));
  }
  return ncclSuccess;
}

ncclResult_t tt_graphs_from_xml(const tt_topo *topo, const tt_xml *xml, bool inter, tt_graphs *out)
{
  tt_graphs all = {0};
  ncclResult_t res = ncclSuccess;
  TT_TRY_GOTO(tt_graphs_room(topo, inter, &all), res);
  TT_TRY_GOTO(graph_read_all(topo, xml, &all), res);
  *out = all;
  return ncclSuccess;
fail:
  tt_graphs_clear(&all);
  return res;
}

// ---- Whom a file's ranks are here ----

// Ranks on GPUs, by the number of their GPU, then by rank.
typedef struct seat_list {
  tt_order *seats; // key: dev; place: rank
  int count;
} seat_list;

typedef struct seats {
  const tt_topo *topo;
  seat_list here, there; // the machine's, the file's
  bool same_ranks;       // all of the file's are the machine's
  bool own, others;      // the file names GPUs of this group, and of others
} seats;

// Place in the list of the first one that is not before `want`.
static int seat_find(const seat_list *l, tt_order want)
{
  int lo = 0, hi = l->count;
  while (lo < hi) {
    int mid = lo + (hi - lo) / 2;
    if (tt_order_compare(&l->seats[mid], &want) < 0) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  return lo;
}

// The first seat on a GPU.
static int seat_first(const seat_list *l, int64_t dev)
{
  return seat_find(l, (tt_order){dev, 0});
}

// Number and rank of an element; rank -1: it has none.
static ncclResult_t seat_of(const tt_xml_node *x, tt_order *out)
{
  uint64_t dev;
  TT_TRY(tt_xml_hex_or(x, "dev", 0, &dev));
  out->key = (int64_t)dev;
  return tt_xml_int_or(x, "rank", -1, TT_XML_COUNTS, &out->place);
}

static bool is_seat(const tt_xml_node *x)
{
  return tt_xml_is(x, "gpu") && tt_xml_get(x, "dev") != NULL;
}

static void seats_list_here(seats *s)
{
  static const int kinds[] = {TT_NODE_GPU, TT_NODE_DEV};
  for (size_t k = 0; k < TT_COUNT(kinds); k++) {
    for (int i = s->topo->first[kinds[k]]; i < s->topo->first[kinds[k] + 1]; i++) {
      s->here.seats[s->here.count++] = (tt_order){(int64_t)dev_of(s->topo, i), s->topo->nodes[i].gpu.rank};
    }
  }
  qsort(s->here.seats, (size_t)s->here.count, sizeof(tt_order), tt_order_compare);
}

static ncclResult_t seats_list_there(const tt_xml *xml, seats *s)
{
  tt_order *list = s->there.seats;
  int n = 0;
  for (const tt_xml_node *x = xml->root; x != NULL; x = tt_xml_walk(xml->root, x)) {
    if (is_seat(x) && tt_xml_get(x, "rank") != NULL) {
      TT_TRY(seat_of(x, &list[n++]));
    }
  }
  qsort(list, (size_t)n, sizeof(tt_order), tt_order_compare);
  s->same_ranks = true;
  for (int i = 0; i < n; i++) {
    if (i == 0 || tt_order_compare(&list[s->there.count - 1], &list[i]) != 0) {
      int at = seat_find(&s->here, list[i]);
      s->same_ranks = s->same_ranks && at < s->here.count && tt_order_compare(&s->here.seats[at], &list[i]) == 0;
      list[s->there.count++] = list[i];
    }
  }
  return ncclSuccess;
}

// One GPU of a channel: gives it the rank that it has here, none where its number says enough.
static ncclResult_t seat_gpu(tt_xml *xml, tt_xml_node *x, seats *s)
{
  tt_order want;
  TT_TRY(seat_of(x, &want));
  int at = seat_first(&s->here, want.key), count = 0;
  while (at + count < s->here.count && s->here.seats[at + count].key == want.key) {
    count++;
  }
  if (count <= 1) { // none at all: the reader says so
    tt_xml_unset(x, "rank");
  } else if (want.place >= 0) {
    const seat_list *in = s->same_ranks ? &s->here : &s->there;
    int turn = seat_find(in, want) - seat_first(in, want.key);
    if (turn >= count) {
      return tt_xml_fail(x, "rank=\"%d\": the file has more ranks on this GPU than the %d that are here", want.place,
                         count);
    }
    at += turn;
    TT_TRY(tt_xml_set_int(xml, x, "rank", s->here.seats[at].place));
  }
  if (count > 0) {
    bool own = tt_topo_rank_node(s->topo, s->here.seats[at].place) >= 0;
    s->own |= own;
    s->others |= !own;
  }
  return ncclSuccess;
}

// The numbers of GPUs in a file say where its channels run; the ranks in it are those of the run that wrote it. Where
// several ranks share a GPU, the first of them there is the first here. *others: the file is about another group of the
// machine's ranks.
static ncclResult_t seat_ranks(const tt_topo *topo, tt_xml *xml, bool *others)
{
  size_t nhere = (size_t)tt_topo_count(topo, TT_NODE_GPU) + (size_t)tt_topo_count(topo, TT_NODE_DEV);
  seats s = {.topo = topo};
  s.here.seats = tt_calloc(nhere + 1, sizeof(tt_order));
  s.there.seats = tt_calloc((size_t)xml->nnodes + 1, sizeof(tt_order));
  ncclResult_t res = ncclSuccess;
  if (s.here.seats == NULL || s.there.seats == NULL) {
    res = tt_fail(ncclSystemError, "%s: no memory for the ranks in it", xml->name);
    goto fail;
  }
  seats_list_here(&s);
  TT_TRY_GOTO(seats_list_there(xml, &s), res);
  for (tt_xml_node *x = xml->root; x != NULL; x = tt_xml_walk(xml->root, x)) {
    if (is_seat(x)) {
      TT_TRY_GOTO(seat_gpu(xml, x, &s), res);
    }
  }
  *others = s.others && !s.own;
fail:
  tt_free(s.here.seats);
  tt_free(s.there.seats);
  return res;
}

ncclResult_t tt_graphs_read(const char *path, const tt_topo *topo, bool inter, tt_graphs *out)
{
  tt_xml *xml = NULL;
  bool others = false;
  TT_TRY(tt_xml_read(path, &xml));
  ncclResult_t res = seat_ranks(topo, xml, &others);
  if (res == ncclSuccess && others) {
    tt_info(TT_GRAPH,
            "%s: its channels are those of another group of ranks; the channels of this one (%d ranks) are searched",
            path, tt_topo_count(topo, TT_NODE_GPU));
    *out = (tt_graphs){0};
  } else if (res == ncclSuccess) {
    res = tt_graphs_from_xml(topo, xml, inter, out);
  }
  tt_xml_destroy(xml);
  return res;
}
