// fuse_test.c: several views of a machine become the machine.
#include "topo/topo_rig.h"

static ncclResult_t fuse(tt_xml *into, const char *text)
{
  tt_xml *from = rig_xml(text);
  ncclResult_t res = tt_topo_fuse(into, from);
  tt_xml_destroy(from);
  return res;
}

static void expect(tt_xml *xml, const char *text)
{
  tt_xml *want = rig_xml(text);
  if (!tt_xml_same(xml->root, want->root)) {
    char *got = NULL;
    size_t size;
    assert_int_equal(tt_xml_text(xml, &got, &size), ncclSuccess);
    fail_msg("got %s", got);
  }
  tt_xml_destroy(want);
  tt_xml_destroy(xml);
}

static void test_parts(void **state)
{
  (void)state;
  tt_xml *xml = rig_xml(
      "<system version='1'><cpu numaid='0' arch='x86_64'><pci busid='0000:01:00.0'><gpu dev='0' rank='0' sm='80'>"
      "<nvlink target='0000:02:00.0' count='1'/></gpu></pci></cpu></system>");
  // Another GPU under the same CPU; the same card seen twice; what is not said is added, what is said stays.
  assert_int_equal(fuse(xml, "<system version='1'><cpu numaid='0' affinity='ff'><pci busid='0000:02:00.0'><gpu dev='1' "
                             "rank='1' sm='80'/></pci>"
                             "<nic><net name='a' dev='0'/></nic></cpu></system>"),
                   ncclSuccess);
  assert_int_equal(
      fuse(xml,
           "<system version='1'><cpu numaid='0' arch='arm64'><pci busid='0:1:0.0' class='0x03'><gpu dev='0' sm='90'>"
           "<nvlink target='0:2:0.0' count='2'/><c2c bw='1' count='1'/></gpu></pci><nic><net name='a' speed='5'/><net "
           "name='b'/></nic></cpu>"
           "<cpu numaid='1'/></system>"),
      ncclSuccess);
  expect(xml,
         "<system version='1'><cpu numaid='0' arch='x86_64' affinity='ff'><pci busid='0000:01:00.0' class='0x03'>"
         "<gpu dev='0' rank='0' sm='80'><nvlink target='0000:02:00.0' count='1'/><c2c bw='1' count='1'/></gpu></pci>"
         "<pci busid='0000:02:00.0'><gpu dev='1' rank='1' sm='80'/></pci>"
         "<nic><net name='a' dev='0' speed='5'/><net name='b'/></nic></cpu><cpu numaid='1'/></system>");
}

static void test_ranks_that_share_a_gpu(void **state)
{
  (void)state;
  tt_xml *xml = rig_xml(
      "<system version='1'><cpu numaid='0'><pci busid='0:1:0.0'><gpu dev='0' rank='0' sm='80'/></pci></cpu></system>");
  assert_int_equal(fuse(xml, "<system version='1'><cpu numaid='0'><pci busid='0:1:0.0'><gpu dev='0' rank='1' "
                             "sm='80'/></pci></cpu></system>"),
                   ncclSuccess);
  expect(xml, "<system version='1'><cpu numaid='0'><pci busid='0:1:0.0'><gpu dev='0' rank='0' sm='80'/>"
              "<gpu dev='0' rank='1' sm='80'/></pci></cpu></system>");
}

static void test_hosts(void **state)
{
  (void)state;
  tt_xml *xml = rig_xml("<system version='1'><cpu numaid='0' host_hash='0x1'/></system>");
  assert_int_equal(
      fuse(xml, "<system version='1'><cpu numaid='0' host_hash='0x2'/><cpu numaid='1' host_hash='0x01'/></system>"),
      ncclSuccess);
  expect(xml, "<system version='1'><cpu numaid='0' host_hash='0x1'/><cpu numaid='0' host_hash='0x2'/><cpu numaid='1' "
              "host_hash='0x01'/></system>");
}

static void test_other_documents(void **state)
{
  (void)state;
  tt_xml *xml = rig_xml("<system version='1'/>");
  rig_error(fuse(xml, "<graphs/>"), "machine.xml:1: <graphs>", "cannot be joined with the <system>");
  tt_xml_destroy(xml);
}

// ---- Views of ranks, joined ----

// Leaves what one rank sees: its GPU, and all cards.
static void keep_view(tt_xml_node *node, const char *rank)
{
  for (tt_xml_node *c = node->child, *next; c != NULL; c = next) {
    next = c->next;
    keep_view(c, rank);
    const char *r = tt_xml_get(c, "rank");
    bool goes = strcmp(c->tag, "gpu") == 0
                    ? r == NULL || strcmp(r, rank) != 0
                    : (strcmp(c->tag, "pci") == 0 || strcmp(c->tag, "cpu") == 0) && c->child == NULL;
    if (goes) {
      rig_xml_remove(c);
    }
  }
}

static int count_ranks(const tt_xml *xml)
{
  int count = 0;
  for (const tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    count += tt_xml_get(n, "rank") != NULL;
  }
  return count;
}

// The views joined in the order of ranks make the very machine that the whole document makes.
static void join_views(const char *path)
{
  if (strstr(path, "4p4h") != NULL || strstr(path, "/amd/topo_8p_rome_n2_1") != NULL) {
    return; // the same bus id or dev twice: views cannot tell them apart
  }
  tt_xml *whole = rig_read(path), *joined = NULL;
  int ranks = count_ranks(whole);
  for (int r = 0; r < ranks; r++) {
    char rank[16];
    snprintf(rank, sizeof(rank), "%d", r);
    tt_xml *view = rig_read(path);
    keep_view(view->root, rank);
    if (joined == NULL) {
      joined = view;
    } else {
      assert_int_equal(tt_topo_fuse(joined, view), ncclSuccess);
      tt_xml_destroy(view);
    }
  }
  tt_topo *a = rig_build(whole, NULL), *b = rig_build(joined, NULL);
  assert_int_equal(a->bytes, b->bytes);
  if (memcmp(a->nodes, b->nodes, (size_t)a->nnodes * sizeof(*a->nodes)) != 0 ||
      memcmp(a->links, b->links, (size_t)a->nlinks * sizeof(*a->links)) != 0) {
    fail_msg("%s: joined views make another machine", path);
  }
  tt_topo_destroy(a);
  tt_topo_destroy(b);
}

static void test_views_make_the_machine(void **state)
{
  (void)state;
  assert_true(rig_each_machine(join_views) > 200);
}

// The whole document joined with itself changes nothing.
static void join_itself(const char *path)
{
  tt_xml *a = rig_read(path), *b = rig_read(path);
  assert_int_equal(tt_topo_fuse(a, b), ncclSuccess);
  assert_true(tt_xml_same(a->root, b->root));
  tt_xml_destroy(a);
  tt_xml_destroy(b);
}

static void test_twice_is_once(void **state)
{
  (void)state;
  assert_true(rig_each_machine(join_itself) > 200);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_ranks_that_share_a_gpu),
      cmocka_unit_test(test_hosts),
      cmocka_unit_test(test_other_documents),
      cmocka_unit_test(test_views_make_the_machine),
      cmocka_unit_test(test_twice_is_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
