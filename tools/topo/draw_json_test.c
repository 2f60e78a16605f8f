// draw_json_test.c: what the JSON form says of a machine is what the model says, for every machine; docs/topology.md
// has the form.
#include "draw_rig.h"

#include <jansson.h>

#include "draw_priv.h"
#include "tools/graph_check.h"

#define H100 RIG_MACHINES "/known/hgx_h100_8gpu_nvswitch_8nic/input.xml"

static json_t *json_of(const xp_drawing *d)
{
  rig_out o;
  json_error_t error;
  rig_open(&o);
  assert_int_equal(xp_draw_json(d, o.f), ncclSuccess);
  json_t *j = json_loads(o.text, JSON_REJECT_DUPLICATES, &error);
  if (j == NULL) {
    fail_msg("line %d: %s", error.line, error.text);
  }
  rig_close(&o);
  return j;
}

// ---- Members: there, of that type, of that value ----

static json_t *member(const json_t *o, const char *name)
{
  json_t *v = json_object_get(o, name);
  if (v == NULL) {
    fail_msg("there is no \"%s\"", name);
  }
  return v;
}

static void same_int(const json_t *o, const char *name, long long want)
{
  json_t *v = member(o, name);
  if (!json_is_integer(v) || json_integer_value(v) != want) {
    fail_msg("\"%s\" is %lld, not %lld", name, (long long)json_integer_value(v), want);
  }
}

static void same_real(const json_t *o, const char *name, float want)
{
  json_t *v = member(o, name);
  assert_true(json_is_real(v));
  rig_same((float)json_real_value(v), want);
}

static void same_text(const json_t *o, const char *name, const char *want)
{
  json_t *v = member(o, name);
  assert_true(json_is_string(v));
  assert_string_equal(json_string_value(v), want);
}

static void same_bool(const json_t *o, const char *name, bool want)
{
  json_t *v = member(o, name);
  assert_true(json_is_boolean(v));
  assert_int_equal(json_is_true(v), want);
}

static void same_hex(const json_t *o, const char *name, unsigned long long want)
{
  char text[32];
  snprintf(text, sizeof(text), "0x%llx", want);
  same_text(o, name, text);
}

static json_t *list(const json_t *o, const char *name, int count)
{
  json_t *v = member(o, name);
  assert_true(json_is_array(v));
  assert_int_equal(json_array_size(v), count);
  return v;
}

static int int_at(const json_t *array, int i)
{
  json_t *v = json_array_get(array, (size_t)i);
  assert_true(json_is_integer(v));
  return (int)json_integer_value(v);
}

// ---- Nodes and links ----

static void check_own(const json_t *o, const tt_topo_node *n)
{
  char gcn[16];
  switch (n->kind) {
  case TT_NODE_GPU:
  case TT_NODE_DEV:
    snprintf(gcn, sizeof(gcn), "%x", (unsigned)n->gpu.gcn);
    same_int(o, "rank", n->gpu.rank);
    same_int(o, "dev", n->gpu.dev);
    same_int(o, "sm", n->gpu.sm);
    same_text(o, "gcn", gcn);
    same_bool(o, "gdr", n->gpu.gdr != 0);
    same_int(o, "device", n->gpu.device);
    break;
  case TT_NODE_NET:
    same_int(o, "dev", n->net.dev);
    same_int(o, "port", n->net.port);
    same_real(o, "bandwidth", n->net.bw);
    same_real(o, "latency", n->net.latency);
    same_bool(o, "gdr", n->net.gdr != 0);
    same_bool(o, "coll", n->net.coll != 0);
    same_int(o, "maxconn", n->net.maxconn);
    same_hex(o, "guid", n->net.guid);
    same_int(o, "rail", n->net.rail);
    same_int(o, "plane", n->net.plane);
    break;
  case TT_NODE_CPU:
    same_int(o, "numa", n->id);
    same_text(o, "arch", (const char *[]){"", "x86_64", "arm64", "ppc64"}[n->cpu.arch]);
    same_text(o, "vendor", (const char *[]){"", "Intel", "AMD", "Zhaoxin"}[n->cpu.vendor]);
    break;
  case TT_NODE_PCI:
    same_hex(o, "vendor", n->pci.device >> 48);
    same_hex(o, "device", n->pci.device >> 32 & 0xffff);
    same_hex(o, "subsystem_vendor", n->pci.device >> 16 & 0xffff);
    same_hex(o, "subsystem_device", n->pci.device & 0xffff);
    break;
  default: break;
  }
}

static void check_node(const json_t *o, const rig *r, int i)
{
  const tt_topo_node *n = &r->topo->nodes[i];
  char name[48];
  int64_t bus;
  same_int(o, "id", i);
  same_text(o, "name", tt_node_name(r->topo, i, name, sizeof(name)));
  same_text(o, "kind", tt_node_kind_name(n->kind));
  same_int(o, "host", n->host);
  same_int(o, "line", n->line);
  bool has_bus = n->kind == TT_NODE_GPU || n->kind == TT_NODE_DEV || n->kind == TT_NODE_PCI ||
                 (n->kind == TT_NODE_NIC && n->id >= 0);
  assert_int_equal(json_object_get(o, "bus") != NULL, has_bus);
  if (has_bus) {
    assert_true(tt_bus_id(json_string_value(member(o, "bus")), &bus));
    assert_true(bus == n->id);
  }
  assert_int_equal(json_object_get(o, "port_name") != NULL, r->ports[i] != NULL);
  if (r->ports[i] != NULL) {
    same_text(o, "port_name", r->ports[i]);
  }
  check_own(o, n);
}

static void check_link(const json_t *o, const tt_topo_link *l, int i)
{
  same_int(o, "id", i);
  same_int(o, "from", l->from);
  same_int(o, "to", l->to);
  same_int(o, "back", l->back);
  same_text(o, "type", tt_link_type_name(l->type));
  same_real(o, "bandwidth", l->bw);
}

// ---- Paths ----

static void check_row(const json_t *o, const tt_paths *paths, int from)
{
  same_int(o, "from", from);
  json_t *types = list(o, "type", paths->nends), *bandwidths = list(o, "bandwidth", paths->nends),
         *hops = list(o, "hops", paths->nends);
  for (int to = 0; to < paths->nends; to++) {
    const tt_path *p = tt_path_get(paths, from, to);
    json_t *type = json_array_get(types, (size_t)to), *way = json_array_get(hops, (size_t)to);
    bool none = p->type == TT_PATH_DIS;
    assert_int_equal(json_is_null(type), none);
    assert_int_equal(json_array_size(way), none ? 0 : p->count);
    if (!none) {
      assert_string_equal(json_string_value(type), tt_path_type_name(p->type));
      rig_same((float)json_real_value(json_array_get(bandwidths, (size_t)to)), p->bw);
    }
    for (int h = 0; !none && h < p->count; h++) {
      assert_int_equal(int_at(way, h), paths->hops[p->first + h]);
    }
  }
}

// ---- Graphs ----

typedef struct walk {
  const rig *r;
  const tt_graph *g;
  const json_t *edges, *links;
  int edge, link; // those that were seen
} walk;

static void check_edge(void *arg, int from, int to)
{
  walk *w = arg;
  const tt_path *p = tt_path_get(w->r->paths, from, to);
  const json_t *o = json_array_get(w->edges, (size_t)w->edge++);
  const tt_topo_node *nodes = w->r->topo->nodes;
  bool port = nodes[from].kind == TT_NODE_NET || nodes[to].kind == TT_NODE_NET;
  bool half = nodes[to].kind == TT_NODE_NET && w->g->pattern == TT_PATTERN_BALANCED_TREE && w->g->ngpus > 1;
  same_int(o, "from", from);
  same_int(o, "to", to);
  same_real(o, "bandwidth", port ? w->g->speedinter / (half ? 2 : 1) : w->g->speedintra);
  if (p->type == TT_PATH_DIS) {
    assert_true(json_is_null(member(o, "type")));
    return;
  }
  same_text(o, "type", tt_path_type_name(p->type));
  same_real(o, "path_bandwidth", p->bw);
  for (int h = 0; h < p->count; h++) {
    assert_int_equal(int_at(w->links, w->link++), w->r->paths->hops[p->first + h]);
  }
}

static void check_channel(const json_t *o, const rig *r, const tt_graph *g, int c)
{
  json_t *nets = list(o, "nets", 2), *gpus = list(o, "gpus", g->ngpus);
  walk w = {r, g, member(o, "edges"), member(o, "links"), 0, 0};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(int_at(nets, i), g->inter ? g->nets[2 * c + i] : -1);
  }
  for (int i = 0; i < g->ngpus; i++) {
    assert_int_equal(int_at(gpus, i), g->gpus[(size_t)c * (size_t)g->ngpus + (size_t)i]);
  }
  xp_graph_edges(r->topo, g, c, check_edge, &w);
  assert_int_equal(w.edge, json_array_size(w.edges));
  assert_int_equal(w.link, json_array_size(w.links));
}

static void check_graph(const json_t *o, const rig *r, int kind)
{
  const tt_graph *g = &r->graphs.graph[kind];
  same_text(o, "name", xp_graph_name(kind));
  same_int(o, "id", g->id);
  same_text(o, "pattern", tt_pattern_name(g->pattern));
  same_int(o, "crossnic", g->crossnic);
  same_int(o, "nchannels", g->nchannels);
  same_real(o, "speedintra", g->speedintra);
  same_real(o, "speedinter", g->speedinter);
  same_real(o, "latencyinter", g->latencyinter);
  same_text(o, "typeintra", tt_path_type_name(g->typeintra));
  same_text(o, "typeinter", tt_path_type_name(g->typeinter));
  same_bool(o, "samechannels", g->samechannels);
  same_int(o, "hops", g->nhops);
  same_real(o, "bound", g->bound);
  same_int(o, "steps", g->steps);
  same_bool(o, "exhausted", g->exhausted);
  json_t *channels = list(o, "channels", g->nchannels);
  for (int c = 0; c < g->nchannels; c++) {
    check_channel(json_array_get(channels, (size_t)c), r, g, c);
  }
}

// ---- The whole ----

static void check_json(const rig *r)
{
  const tt_topo *t = r->topo;
  json_t *j = json_of(&r->d);
  same_int(j, "form", 1);
  same_text(j, "title", "a machine");
  json_t *hosts = list(j, "hosts", t->nhosts), *nodes = list(j, "nodes", t->nnodes),
         *links = list(j, "links", t->nlinks);
  char hash[32];
  for (int h = 0; h < t->nhosts; h++) {
    snprintf(hash, sizeof(hash), "0x%llx", (unsigned long long)t->hosts[h]);
    assert_string_equal(json_string_value(json_array_get(hosts, (size_t)h)), hash);
  }
  for (int i = 0; i < t->nnodes; i++) {
    check_node(json_array_get(nodes, (size_t)i), r, i);
  }
  for (int l = 0; l < t->nlinks; l++) {
    check_link(json_array_get(links, (size_t)l), &t->links[l], l);
  }
  json_t *paths = list(j, "paths", r->paths->nends), *graphs = member(j, "graphs");
  for (int i = 0; i < r->paths->nends; i++) {
    check_row(json_array_get(paths, (size_t)i), r->paths, i);
  }
  list(j, "sizes", 0);
  list(j, "predictions", 0);
  same_int(j, "machines", 1);
  int found = 0;
  for (int k = 0; r->d.graphs != NULL && k < TT_GRAPH_KINDS; k++) {
    if (r->graphs.graph[k].nchannels > 0) {
      check_graph(json_array_get(graphs, (size_t)found++), r, k);
    }
  }
  assert_int_equal(json_array_size(graphs), found);
  json_decref(j);
}

static void check_machine(const char *path)
{
  rig r;
  set_up(&r, rig_read(path), true);
  check_json(&r);
  tear_down(&r);
}

static void test_all_machines(void **state)
{
  (void)state;
  assert_true(rig_each_machine(check_machine) > 150);
}

// A machine whose values are known.
static void test_values(void **state)
{
  (void)state;
  rig r;
  set_up(&r, rig_read(H100), false);
  check_json(&r);
  json_t *j = json_of(&r.d), *gpu = json_array_get(member(j, "nodes"), 0), *row = json_array_get(member(j, "paths"), 0);
  same_text(gpu, "name", "GPU0");
  same_text(gpu, "bus", "0000:12:00.0");
  same_int(gpu, "sm", 90);
  assert_string_equal(json_string_value(json_array_get(member(row, "type"), 1)), "NVL");
  rig_same((float)json_real_value(json_array_get(member(row, "bandwidth"), 1)), 370.8f);
  json_t *ring = json_array_get(member(j, "graphs"), 0), *channel = json_array_get(member(ring, "channels"), 0);
  same_text(ring, "name", "ring");
  list(channel, "gpus", 8);
  list(channel, "links", 16); // in and out of the NVSwitch
  same_text(json_array_get(list(channel, "edges", 8), 0), "type", "NVL");
  json_decref(j);
  tear_down(&r);
}

// Predicted times: four digits, null where there is none.
static void test_predictions(void **state)
{
  (void)state;
  rig r;
  set_up(&r, rig_read(H100), false);
  xp_curve curve = {"AllReduce", "Ring", "LL", {1.23456, -1, 0}};
  r.d.curves = &(xp_curves){.list = &curve, .count = 1, .model = "a model"};
  r.d.machines = 4;
  json_t *j = json_of(&r.d), *sizes = list(j, "sizes", XP_CURVE_SIZES),
         *one = json_array_get(list(j, "predictions", 1), 0);
  same_int(j, "machines", 4);
  assert_int_equal(json_integer_value(json_array_get(sizes, 0)), 8);
  assert_true(json_integer_value(json_array_get(sizes, XP_CURVE_SIZES - 1)) == (json_int_t)8 << 30);
  same_text(one, "function", "AllReduce");
  same_text(one, "algorithm", "Ring");
  same_text(one, "protocol", "LL");
  json_t *us = list(one, "us", XP_CURVE_SIZES);
  assert_true(json_real_value(json_array_get(us, 0)) == 1.235);
  assert_true(json_is_null(json_array_get(us, 1)) && json_is_null(json_array_get(us, 2)));
  json_decref(j);
  tear_down(&r);
}

// Texts that are not UTF-8, and none at all; without graphs and paths.
static void test_texts(void **state)
{
  (void)state;
  rig r;
  set_up(&r, rig_read(H100), false);
  r.ports[r.topo->first[TT_NODE_NET]] = "a\"\xff\n";
  r.d.title = "</script> \"\xff\x01 \xc3\xa9";
  json_t *j = json_of(&r.d);
  same_text(j, "title", "</script> \"?? \xc3\xa9");
  same_text(json_array_get(member(j, "nodes"), (size_t)r.topo->first[TT_NODE_NET]), "port_name", "a\"?\n");
  json_decref(j);
  r.d = (xp_drawing){.topo = r.topo};
  j = json_of(&r.d);
  same_text(j, "title", "");
  list(j, "paths", 0);
  list(j, "graphs", 0);
  json_decref(j);
  tear_down(&r);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_machines), cmocka_unit_test(test_values),
                                     cmocka_unit_test(test_predictions), cmocka_unit_test(test_texts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
