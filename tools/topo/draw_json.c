// draw_json.c: the machine as data. Written piece by piece, so that memory does not grow with the table of paths.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "draw_priv.h"
#include "tools/graph_check.h"

enum { DIGITS = JSON_REAL_PRECISION(6) };

typedef struct writer {
  const xp_drawing *d;
  FILE *out;
  bool first; // of the list that is open
  bool edges; // of channels are wanted
  bool page;  // inside HTML
} writer;

// No text can end the page's element that has the data, or begin a comment in it: "<" stands in texts alone.
static int write_safely(const char *text, size_t size, void *out)
{
  for (size_t i = 0; i < size; i++) {
    if (text[i] == '<') {
      fputs("\\u003c", out);
    } else {
      fputc(text[i], out);
    }
  }
  return 0;
}

// Writes and frees one element of the list that is open, in a line of its own.
static ncclResult_t put(writer *w, json_t *value)
{
  if (value == NULL) {
    return tt_fail(ncclSystemError, "no memory to write a machine of %d nodes as JSON", w->d->topo->nnodes);
  }
  fputs(w->first ? "\n" : ",\n", w->out);
  w->first = false;
  if (w->page) {
    json_dump_callback(value, write_safely, w->out, JSON_COMPACT | JSON_ENCODE_ANY | DIGITS);
  } else {
    json_dumpf(value, w->out, JSON_COMPACT | JSON_ENCODE_ANY | DIGITS);
  }
  json_decref(value);
  return ncclSuccess;
}

static void open_list(writer *w, const char *name)
{
  fprintf(w->out, ",\n\"%s\":[", name);
  w->first = true;
}

static void close_list(writer *w)
{
  fputs("\n]", w->out);
}

static json_t *real(double v)
{
  return json_real(isfinite(v) ? v : 0);
}

static json_t *hex(const char *fmt, unsigned long long v)
{
  char text[32];
  snprintf(text, sizeof(text), "%s%llx", fmt, v);
  return json_string(text);
}

// Texts may be any bytes; JSON is UTF-8.
static json_t *text_of(const char *text)
{
  char clean[1024];
  size_t n = 0;
  for (const char *s = text; *s != 0 && n + 5 < sizeof(clean);) {
    int bytes = xp_utf8(s);
    if (bytes == 0) {
      clean[n++] = '?';
    }
    memcpy(clean + n, s, (size_t)bytes);
    n += (size_t)bytes;
    s += bytes > 0 ? bytes : 1;
  }
  clean[n] = 0;
  return json_string(clean);
}

// ---- Nodes and links ----

static const char *arch_name(int arch)
{
  static const char *names[] = {"", "x86_64", "arm64", "ppc64"};
  return arch >= 0 && arch < (int)TT_COUNT(names) ? names[arch] : "";
}

static const char *vendor_name(int vendor)
{
  static const char *names[] = {"", "Intel", "AMD", "Zhaoxin"};
  return vendor >= 0 && vendor < (int)TT_COUNT(names) ? names[vendor] : "";
}

static const char *model_name(int model)
{
  static const char *names[] = {"", "Skylake", "Sapphire Rapids", "Emerald Rapids", "Yongfeng"};
  return model >= 0 && model < (int)TT_COUNT(names) ? names[model] : "";
}

static json_t *pci_words(uint64_t device)
{
  static const char *names[] = {"vendor", "device", "subsystem_vendor", "subsystem_device"};
  json_t *o = json_object();
  for (int i = 0; i < 4; i++) {
    json_object_set_new(o, names[i], hex("0x", device >> (48 - 16 * i) & 0xffff));
  }
  return o;
}

// What nodes of a kind have, beside what all have.
static json_t *own_of(const tt_topo_node *n)
{
  switch (n->kind) {
  case TT_NODE_GPU:
  case TT_NODE_DEV:
    return json_pack("{si si si so sb si}", "rank", n->gpu.rank, "dev", n->gpu.dev, "sm", n->gpu.sm, "gcn",
                     hex("", (unsigned)n->gpu.gcn), "gdr", n->gpu.gdr != 0, "device", n->gpu.device);
  case TT_NODE_NET:
    return json_pack("{si si so so sb sb si so si si}", "dev", n->net.dev, "port", n->net.port, "bandwidth",
                     real((double)n->net.bw), "latency", real((double)n->net.latency), "gdr", n->net.gdr != 0, "coll",
                     n->net.coll != 0, "maxconn", n->net.maxconn, "guid", hex("0x", n->net.guid), "rail", n->net.rail,
                     "plane", n->net.plane);
  case TT_NODE_CPU:
    return json_pack("{sI ss ss ss}", "numa", (json_int_t)n->id, "arch", arch_name(n->cpu.arch), "vendor",
                     vendor_name(n->cpu.vendor), "model", model_name(n->cpu.model));
  case TT_NODE_PCI: return pci_words(n->pci.device);
  default: return json_object();
  }
}

static bool has_bus(const tt_topo_node *n)
{
  bool gpu = (n->kind == TT_NODE_GPU || n->kind == TT_NODE_DEV) && !tt_topo_host_rank(n);
  return gpu || n->kind == TT_NODE_PCI || (n->kind == TT_NODE_NIC && n->id >= 0);
}

static ncclResult_t put_node(writer *w, int i)
{
  const tt_topo_node *n = &w->d->topo->nodes[i];
  char name[48], bus[32];
  json_t *o = json_pack("{si ss ss si si}", "id", i, "name", tt_node_name(w->d->topo, i, name, sizeof(name)), "kind",
                        n->kind == TT_NODE_GPU && tt_topo_host_rank(n) ? "RANK" : tt_node_kind_name(n->kind), "host",
                        n->host, "line", n->line);
  if (o != NULL && has_bus(n)) {
    json_object_set_new(o, "bus", json_string(xp_bus_text(n->id, bus, sizeof(bus))));
  }
  json_t *own = own_of(n);
  if (o != NULL && xp_port_name(w->d, i)[0] != 0) {
    json_object_set_new(o, "port_name", text_of(xp_port_name(w->d, i)));
  }
  if (o != NULL) {
    json_object_update(o, own);
  }
  json_decref(own);
  return put(w, o);
}

static ncclResult_t put_link(writer *w, int i)
{
  const tt_topo_link *l = &w->d->topo->links[i];
  return put(w, json_pack("{si si si si ss so}", "id", i, "from", l->from, "to", l->to, "back", l->back, "type",
                          xp_link_kind(w->d->topo, l), "bandwidth", real((double)l->bw)));
}

// ---- Paths ----

static json_t *hops_of(const tt_paths *paths, const tt_path *p)
{
  json_t *hops = json_array();
  for (int h = 0; h < p->count && p->type != TT_PATH_DIS; h++) {
    json_array_append_new(hops, json_integer(paths->hops[p->first + h]));
  }
  return hops;
}

static ncclResult_t put_row(writer *w, int from)
{
  const tt_paths *paths = w->d->paths;
  json_t *types = json_array(), *bandwidths = json_array(), *hops = json_array();
  for (int to = 0; to < paths->nends; to++) {
    const tt_path *p = tt_path_get(paths, from, to);
    json_array_append_new(types, p->type == TT_PATH_DIS ? json_null() : json_string(tt_path_type_name(p->type)));
    json_array_append_new(bandwidths, real((double)p->bw));
    json_array_append_new(hops, hops_of(paths, p));
  }
  return put(w, json_pack("{si so so so}", "from", from, "type", types, "bandwidth", bandwidths, "hops", hops));
}

// ---- Graphs ----

typedef struct uses {
  const xp_drawing *d;
  const tt_graph *graph;
  json_t *links, *edges; // edges may be NULL: they are left out
} uses;

static void add_edge(void *arg, int from, int to)
{
  uses *u = arg;
  const tt_path *p = xp_edge_path(u->d, from, to);
  for (int h = 0; p != NULL && h < p->count; h++) {
    json_array_append_new(u->links, json_integer(u->d->paths->hops[p->first + h]));
  }
  if (u->edges != NULL) {
    json_t *type = p != NULL ? json_string(tt_path_type_name(p->type)) : json_null();
    json_array_append_new(u->edges, json_pack("{si si so so so}", "from", from, "to", to, "type", type, "bandwidth",
                                              real((double)xp_edge_bandwidth(u->d->topo, u->graph, from, to)),
                                              "path_bandwidth", real(p != NULL ? (double)p->bw : 0)));
  }
}

static json_t *channel_of(const writer *w, const tt_graph *g, int c)
{
  uses u = {w->d, g, json_array(), w->edges ? json_array() : NULL};
  json_t *gpus = json_array();
  for (int i = 0; i < g->ngpus; i++) {
    json_array_append_new(gpus, json_integer(g->gpus[(size_t)c * (size_t)g->ngpus + (size_t)i]));
  }
  xp_graph_edges(w->d->topo, g, c, add_edge, &u);
  json_t *o = json_pack("{s[ii] so so}", "nets", g->inter ? g->nets[2 * c] : -1, g->inter ? g->nets[2 * c + 1] : -1,
                        "gpus", gpus, "links", u.links);
  if (o == NULL || u.edges == NULL) {
    json_decref(u.edges);
    return o;
  }
  json_object_set_new(o, "edges", u.edges);
  return o;
}

static ncclResult_t put_graph(writer *w, int kind)
{
  const tt_graph *g = &w->d->graphs->graph[kind];
  if (g->nchannels == 0) {
    return ncclSuccess;
  }
  json_t *channels = json_array();
  for (int c = 0; c < g->nchannels; c++) {
    json_array_append_new(channels, channel_of(w, g, c));
  }
  json_t *o = json_pack("{ss si ss si si so so so}", "name", xp_graph_name(kind), "id", g->id, "pattern",
                        tt_pattern_name(g->pattern), "crossnic", g->crossnic, "nchannels", g->nchannels, "speedintra",
                        real((double)g->speedintra), "speedinter", real((double)g->speedinter), "latencyinter",
                        real((double)g->latencyinter));
  json_t *more = json_pack("{ss ss sb si so sI sb so}", "typeintra", tt_path_type_name(g->typeintra), "typeinter",
                           tt_path_type_name(g->typeinter), "samechannels", (int)g->samechannels, "hops", g->nhops,
                           "bound", real((double)g->bound), "steps", (json_int_t)g->steps, "exhausted",
                           (int)g->exhausted, "channels", channels);
  if (o != NULL && more != NULL) {
    json_object_update(o, more);
  }
  json_decref(more);
  return put(w, o);
}

// ---- Predictions ----

// Four digits are what a prediction is worth; null where there is none.
static json_t *time_of(double us)
{
  char text[32];
  snprintf(text, sizeof(text), "%.4g", us);
  return us > 0 ? real(strtod(text, NULL)) : json_null();
}

static ncclResult_t put_curve(writer *w, const xp_curve *c)
{
  json_t *times = json_array();
  for (int i = 0; i < XP_CURVE_SIZES; i++) {
    json_array_append_new(times, time_of(c->us[i]));
  }
  return put(w,
             json_pack("{ss ss ss so}", "function", c->func, "algorithm", c->algo, "protocol", c->proto, "us", times));
}

static ncclResult_t put_curves(writer *w, const xp_curves *curves)
{
  int count = curves != NULL ? curves->count : 0;
  open_list(w, "sizes");
  for (int i = 0; i < XP_CURVE_SIZES && count > 0; i++) {
    TT_TRY(put(w, json_integer((json_int_t)xp_curve_size(i))));
  }
  close_list(w);
  open_list(w, "predictions");
  for (int i = 0; i < count; i++) {
    TT_TRY(put_curve(w, &curves->list[i]));
  }
  close_list(w);
  return ncclSuccess;
}

// ---- The whole ----

static ncclResult_t put_title(writer *w)
{
  fputs(",\n\"title\":", w->out);
  w->first = true;
  return put(w, text_of(w->d->title != NULL ? w->d->title : ""));
}

static ncclResult_t put_lists(writer *w, bool page)
{
  const xp_drawing *d = w->d;
  fprintf(w->out, ",\n\"machines\":%d", TT_MAX(d->machines, 1));
  open_list(w, "hosts");
  for (int i = 0; i < d->topo->nhosts; i++) {
    TT_TRY(put(w, hex("0x", d->topo->hosts[i])));
  }
  close_list(w);
  open_list(w, "nodes");
  for (int i = 0; i < d->topo->nnodes; i++) {
    TT_TRY(put_node(w, i));
  }
  close_list(w);
  open_list(w, "links");
  for (int i = 0; i < d->topo->nlinks; i++) {
    TT_TRY(put_link(w, i));
  }
  close_list(w);
  open_list(w, "paths");
  for (int i = 0; d->paths != NULL && i < d->paths->nends && (!page || d->paths->nends <= XP_PAGE_ENDS); i++) {
    TT_TRY(put_row(w, i));
  }
  close_list(w);
  open_list(w, "graphs");
  for (int k = 0; d->graphs != NULL && k < TT_GRAPH_KINDS; k++) {
    TT_TRY(put_graph(w, k));
  }
  close_list(w);
  return put_curves(w, d->curves);
}

ncclResult_t xp_json_write(const xp_drawing *d, bool page, FILE *out)
{
  writer w = {.d = d, .out = out, .page = page, .edges = !page || xp_edge_count(d) <= XP_PAGE_EDGES};
  fputs("{\"form\":1", out);
  if (!page) {
    TT_TRY(put_title(&w));
  }
  TT_TRY(put_lists(&w, page));
  fputs("}\n", out);
  return ncclSuccess;
}

ncclResult_t xp_draw_json(const xp_drawing *d, FILE *out)
{
  TT_TRY(xp_json_write(d, false, out));
  return xp_written(out);
}
