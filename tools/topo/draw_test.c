// draw_test.c: nothing overlaps and nothing is left out on any machine; pictures and pages are well-formed, escaped,
// the same every time; errors come through.
#include "draw_rig.h"

#include <jansson.h>

#include "draw_priv.h"

#define H100 RIG_MACHINES "/known/hgx_h100_8gpu_nvswitch_8nic/input.xml"
#define GB200 RIG_MACHINES "/known/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml"

// `hosts` machines of one NVLink domain.
static tt_xml *domain(const char *path, int hosts)
{
  tt_xml *all = NULL;
  for (int h = 0, rank = 0; h < hosts; h++) {
    tt_xml *one = rig_read(path);
    assert_int_equal(tt_topo_set_host(one, 0x1000 + (uint64_t)h), ncclSuccess);
    for (tt_xml_node *x = one->root; x != NULL; x = tt_xml_walk(one->root, x)) {
      if (strcmp(x->tag, "gpu") == 0) {
        assert_int_equal(tt_xml_set_int(one, x, "rank", rank++), ncclSuccess);
      } else if (strcmp(x->tag, "net") == 0) {
        char name[64];
        snprintf(name, sizeof(name), "%s_%d", tt_xml_get(x, "name"), h);
        assert_int_equal(tt_xml_set(one, x, "name", name), ncclSuccess);
      }
    }
    if (all == NULL) {
      all = one;
    } else {
      assert_int_equal(tt_topo_fuse(all, one), ncclSuccess);
      tt_xml_destroy(one);
    }
  }
  return all;
}

// ---- Layout ----

static bool overlap(const xp_box *a, const xp_box *b)
{
  return a->w > 0 && b->w > 0 && a->x < b->x + b->w - 0.01f && b->x < a->x + a->w - 0.01f &&
         a->y < b->y + b->h - 0.01f && b->y < a->y + a->h - 0.01f;
}

static void check_boxes(const xp_layout *o)
{
  const tt_topo *t = o->topo;
  for (int i = 0; i < t->nnodes; i++) {
    const xp_box *b = &o->box[i];
    if (b->w <= 0) {
      fail_msg("node %d (%s) is not drawn", i, tt_node_kind_name(t->nodes[i].kind));
    }
    assert_true(b->x >= 0 && b->y >= 60 && b->x + b->w <= o->width && b->y + b->h <= o->height);
    for (int j = i + 1; j < t->nnodes; j++) {
      if (overlap(b, &o->box[j])) {
        fail_msg("nodes %d and %d overlap", i, j);
      }
    }
  }
}

// The way up to the parent goes through no box.
static void check_ways(const xp_layout *o)
{
  const tt_topo *t = o->topo;
  for (int i = 0; i < t->nnodes; i++) {
    if (o->parent[i] < 0) {
      continue;
    }
    const xp_box *b = &o->box[i], *p = &o->box[o->parent[i]];
    float x = b->x + o->hang[i];
    assert_true(p->x <= x && x <= p->x + p->w && p->y + p->h < b->y);
    xp_box way = {x - 1, p->y + p->h, 2, b->y - p->y - p->h};
    for (int j = 0; j < t->nnodes; j++) {
      if (j != i && overlap(&way, &o->box[j])) {
        fail_msg("the way to node %d goes through node %d", i, j);
      }
    }
  }
}

static void check_layout(const tt_topo *topo)
{
  xp_layout o;
  char path[256];
  xp_label label;
  assert_int_equal(xp_layout_make(&(xp_drawing){.topo = topo}, true, &o), ncclSuccess);
  check_boxes(&o);
  check_ways(&o);
  for (int l = 0; l < topo->nlinks; l++) {
    assert_true(xp_layout_link(&o, l, path, sizeof(path), &label));
    assert_true(path[0] == 'M' && strlen(path) < 200 && strstr(path, "nan") == NULL && strstr(path, "inf") == NULL);
  }
  xp_layout_clear(&o);
}

// ---- Documents ----

static int count_of(const char *text, const char *what)
{
  int n = 0;
  for (const char *s = strstr(text, what); s != NULL; s = strstr(s + 1, what)) {
    n++;
  }
  return n;
}

static void check_svg(const xp_drawing *d)
{
  rig_out o, again;
  tt_xml *xml = NULL;
  rig_open(&o);
  rig_open(&again);
  assert_int_equal(xp_draw_svg(d, o.f), ncclSuccess);
  assert_int_equal(xp_draw_svg(d, again.f), ncclSuccess);
  assert_string_equal(o.text, again.text);
  if (tt_xml_parse("picture.svg", o.text, o.size, &xml) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  assert_string_equal(xml->root->tag, "svg");
  int boxes = count_of(o.text, "<g class=\"tt-box "), lines = count_of(o.text, "<path class=\"tt-link tt-");
  assert_int_equal(boxes, d->topo->nnodes);
  assert_true(lines >= d->topo->nlinks / 2);
  bool ring = d->graphs != NULL && d->graphs->graph[TT_GRAPH_RING].nchannels > 0;
  if (tt_topo_count(d->topo, TT_NODE_GPU) > 1) { // one alone has edges to its card, or none
    assert_int_equal(strstr(o.text, "tt-edge tt-g0 tt-c0\" d=") != NULL, ring);
  }
  tt_xml_destroy(xml);
  rig_close(&o);
  rig_close(&again);
}

static void check_html(const xp_drawing *d)
{
  rig_out o;
  rig_open(&o);
  assert_int_equal(xp_draw_html(d, o.f), ncclSuccess);
  assert_non_null(strstr(o.text, "</html>"));
  assert_int_equal(count_of(o.text, "data-node=\""), d->topo->nnodes);
  assert_int_equal(count_of(o.text, "://"), 2); // the name space of SVG: of the picture, and for the script
  assert_int_equal(count_of(o.text, "http://www.w3.org/2000/svg"), 2);
  assert_int_equal(count_of(o.text, "src=") + count_of(o.text, "@import"), 0);
  assert_int_equal(count_of(o.text, "</script>"), 2);
  assert_int_equal(count_of(o.text, "<!--"), 0);
  char *data = strstr(o.text, "id=\"data\">"), *end = strstr(data, "</script>");
  *end = 0;
  json_error_t error;
  json_t *j = json_loads(data + strlen("id=\"data\">"), 0, &error);
  if (j == NULL) {
    fail_msg("%s", error.text);
  }
  json_t *port = json_array_get(json_object_get(j, "nodes"), (size_t)d->topo->first[TT_NODE_NET]);
  if (d->ports != NULL && tt_topo_count(d->topo, TT_NODE_NET) > 0 && d->ports[d->topo->first[TT_NODE_NET]] != NULL) {
    assert_string_equal(json_string_value(json_object_get(port, "port_name")), d->ports[d->topo->first[TT_NODE_NET]]);
  }
  json_decref(j);
  rig_close(&o);
}

static void check_machine(const char *path)
{
  rig r;
  set_up(&r, rig_read(path), true);
  check_layout(r.topo);
  check_svg(&r.d);
  check_html(&r.d);
  tear_down(&r);
}

static void test_all_machines(void **state)
{
  (void)state;
  assert_true(rig_each_machine(check_machine) > 150);
}

// Machines of many ports fit a slide: cards of a switch, and ports of a card, stand in tiers.
static void test_many_ports(void **state)
{
  (void)state;
  static const char *const machines[] = {RIG_MACHINES "/more/real_aws_aws-ofi-nccl__p5.48xl-topo.xml",
                                         RIG_MACHINES "/known/seed_a100_sxm4_vm/input.xml"};
  for (int i = 0; i < 2; i++) {
    rig r;
    xp_layout o;
    set_up(&r, rig_read(machines[i]), false);
    assert_true(tt_topo_count(r.topo, TT_NODE_NET) > 10);
    assert_int_equal(xp_layout_make(&r.d, false, &o), ncclSuccess);
    assert_true(o.width < 2.3f * o.height && o.height < o.width);
    xp_layout_clear(&o);
    tear_down(&r);
  }
}

static void test_domain(void **state)
{
  (void)state;
  rig r;
  set_up(&r, domain(GB200, 18), false);
  assert_int_equal(tt_topo_count(r.topo, TT_NODE_GPU), 72);
  check_layout(r.topo);
  check_svg(&r.d);
  check_html(&r.d);
  tear_down(&r);
}

// 1800 ends: the page leaves out what would make it grow with their square, and says so.
static void test_large(void **state)
{
  (void)state;
  rig r;
  rig_out o;
  set_up(&r, domain(H100, 100), false);
  rig_open(&o);
  assert_int_equal(xp_draw_html(&r.d, o.f), ncclSuccess);
  assert_true(o.size > 1 << 20 && o.size < 8 << 20);
  assert_non_null(strstr(o.text, "without the table of paths"));
  assert_non_null(strstr(o.text, "too many edges for their lines"));
  assert_null(strstr(o.text, "\"edges\""));
  rig_close(&o);
  tear_down(&r);
}

static void test_title(void **state)
{
  (void)state;
  rig r;
  rig_out o;
  set_up(&r, rig_read(H100), false);
  r.d.title = "</title><script>alert('1')</script> & \"\xff\x01 \xc3\xa9 \xed\xa0\x80";
  rig_open(&o);
  assert_int_equal(xp_draw_html(&r.d, o.f), ncclSuccess);
  assert_null(strstr(o.text, "<script>alert"));
  assert_non_null(strstr(o.text, "&lt;/title&gt;&lt;script&gt;alert(&#39;1&#39;)"));
  assert_non_null(strstr(o.text, "&quot;\xef\xbf\xbd\xef\xbf\xbd \xc3\xa9"));
  rig_close(&o);
  check_svg(&r.d);
  r.d.title = NULL;
  check_svg(&r.d);
  check_html(&r.d);
  tear_down(&r);
}

static void test_without_graphs(void **state)
{
  (void)state;
  rig r;
  set_up(&r, rig_read(H100), false);
  r.d.graphs = NULL;
  check_svg(&r.d);
  check_html(&r.d);
  r.d.paths = NULL;
  rig_out o;
  rig_open(&o);
  assert_int_equal(xp_draw_html(&r.d, o.f), ncclSuccess);
  rig_close(&o);
  tear_down(&r);
}

static void test_errors(void **state)
{
  (void)state;
  static ncclResult_t (*const draw[])(const xp_drawing *, FILE *) = {xp_draw_svg, xp_draw_html, xp_draw_json};
  rig r;
  set_up(&r, rig_read(H100), false);
  for (int i = 0; i < 3; i++) {
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_not_equal(draw[i](&r.d, full), ncclSuccess);
    fclose(full);
    int failed = 0;
    for (int k = 1; k < 100; k++) {
      rig_out o;
      rig_open(&o);
      tt_alloc_fail_at(k);
      ncclResult_t res = draw[i](&r.d, o.f);
      tt_alloc_fail_at(0);
      rig_close(&o);
      failed += res != ncclSuccess;
    }
    assert_true(i == 2 ? failed == 0 : failed > 5 && failed < 20); // JSON has jansson's memory
  }
  tear_down(&r);
}

// Machines out of spoilt files: whatever still is one can be drawn.
static void test_spoilt(void **state)
{
  (void)state;
  size_t size;
  char *text = rig_slurp(RIG_MACHINES "/known/dgx1v_8xV100_4nic/input.xml", &size), *copy = calloc(1, size + 1);
  unsigned random = 7;
  int drawn = 0;
  for (int i = 0; i < 400; i++) {
    tt_xml *xml = NULL;
    tt_topo *topo = NULL;
    memcpy(copy, text, size);
    rig_spoil(copy, size, &random);
    int notes = 0;
    if (tt_xml_parse("spoilt", copy, size, &xml) == ncclSuccess &&
        tt_topo_build(xml, rig_count, &notes, &topo) == ncclSuccess) {
      rig_out o;
      rig_open(&o);
      assert_int_equal(xp_draw_html(&(xp_drawing){.title = "spoilt", .topo = topo}, o.f), ncclSuccess);
      rig_close(&o);
      check_layout(topo);
      drawn++;
    }
    tt_topo_destroy(topo);
    tt_xml_destroy(xml);
  }
  assert_true(drawn > 20);
  free(text);
  free(copy);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_machines), cmocka_unit_test(test_many_ports), cmocka_unit_test(test_domain),
      cmocka_unit_test(test_large),        cmocka_unit_test(test_title),      cmocka_unit_test(test_without_graphs),
      cmocka_unit_test(test_errors),       cmocka_unit_test(test_spoilt),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
