// lint_loader_test.c: lint and the loader are one truth. Every known machine and thousands of changed ones: lint finds
// an error if and only if the file does not load; and what lint takes, a communicator with NCCL_TOPO_FILE takes, too.
#include "draw_rig.h"

#include "machine.h"
#include "topo/source.h"

enum { MOST_GPUS = 64, MUTANTS = 12, MUTANTS_SMALL = 1500 };

static tt_tree *computer;
static unsigned state = 11;
static int counts[2]; // files that load, files that do not

static const char small[] =
    "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
    "modelid=\"143\">"
    "<pci busid=\"0000:01:00.0\" class=\"0x060400\" device=\"0x1\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
    "<pci busid=\"0000:02:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
    "<gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\"><nvlink target=\"0000:05:00.0\" count=\"18\" "
    "tclass=\"0x030200\"/></gpu></pci>"
    "<pci busid=\"0000:03:00.0\" class=\"0x020700\"><nic>"
    "<net name=\"mlx5_0\" dev=\"0\" speed=\"400000\" port=\"1\" latency=\"1.5\" guid=\"0xa0\" maxconn=\"1024\" "
    "gdr=\"1\"/></nic></pci></pci></cpu>"
    "<cpu numaid=\"1\" arch=\"x86_64\"><pci busid=\"0000:05:00.0\" class=\"0x030200\">"
    "<gpu dev=\"1\" sm=\"90\" rank=\"1\"><nvlink target=\"0000:02:00.0\" count=\"18\" tclass=\"0x030200\"/>"
    "<c2c bw=\"1000\" count=\"2\"/></gpu></pci></cpu></system>";
// A port that stands in a PCI element itself; a GPU of which only the number is known: both load.
static const char odd_port[] =
    "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\">"
    "<pci busid=\"0000:00:06.0\" class=\"0x020000\"><net name=\"efa_0\" dev=\"0\"/></pci></cpu></system>";
static const char bare_gpu[] = "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\">"
                               "<pci busid=\"0000:1b:00.0\" class=\"0x030200\"><gpu dev=\"0\"/></pci></cpu></system>";

static bool builds(const tt_xml *xml)
{
  tt_topo *topo = NULL;
  bool good = tt_topo_build(xml, NULL, NULL, &topo) == ncclSuccess && tt_topo_ends(topo) <= TT_PATHS_MAX_ENDS;
  tt_topo_destroy(topo);
  return good;
}

static bool has_gpu(const tt_xml *xml)
{
  for (const tt_xml_node *x = xml->root; x != NULL; x = tt_xml_walk(xml->root, x)) {
    if (strcmp(x->tag, "gpu") == 0 && tt_topo_in_place(x)) {
      return true;
    }
  }
  return false;
}

// Does the explorer load it, as `show` does? False also where it has no GPU, which the explorer says is nothing to
// show.
static bool explorer_loads(const char *path)
{
  const xp_options o = {.file = {path}, .nfiles = 1, .nodes = 1, .hosts = 1};
  char name[XP_NAME];
  tt_xml *xml = NULL;
  bool good = xp_document(&o, name, &xml) == ncclSuccess && has_gpu(xml) && builds(xml);
  tt_xml_destroy(xml);
  return good;
}

// A rank on every GPU that has one, or on all where none has; one rank where there is no GPU.
static int seats(const tt_xml *xml, bool ranked, tt_source_rank out[MOST_GPUS])
{
  int count = 0;
  for (const tt_xml_node *x = xml->root; x != NULL; x = tt_xml_walk(xml->root, x)) {
    int dev;
    bool gpu = strcmp(x->tag, "gpu") == 0 && tt_topo_in_place(x) && (!ranked || tt_xml_get(x, "rank") != NULL);
    if (gpu && count < MOST_GPUS && tt_xml_int(x, "dev", (tt_xml_range){0, 60000}, &dev) == ncclSuccess) {
      out[count] = (tt_source_rank){.rank = count, .dev = (int)dev, .numa = -1};
      count++;
    }
  }
  if (count == 0 && !ranked) {
    out[count++] = (tt_source_rank){.numa = -1};
  }
  return count;
}

static bool communicator_loads(const char *path)
{
  tt_source_rank ranks[MOST_GPUS];
  tt_xml *xml = NULL, *made = NULL;
  if (tt_xml_read(path, &xml) != ncclSuccess) {
    return false;
  }
  int count = seats(xml, true, ranks);
  count = count == 0 ? seats(xml, false, ranks) : count;
  tt_xml_destroy(xml);
  tt_source in = {.machine = {.tree = computer}, .file = path, .ranks = ranks, .nranks = count, .file_nets = true};
  bool good = tt_source_detect(&in, &made) == ncclSuccess && builds(made);
  tt_xml_destroy(made);
  return good;
}

// What a file without GPUs is for is a communicator, whose ranks get places of their own; other files must load in the
// explorer, too.
static bool loads_as_meant(const char *path)
{
  tt_xml *xml = NULL;
  bool gpus = tt_xml_read(path, &xml) == ncclSuccess && has_gpu(xml);
  tt_xml_destroy(xml);
  return gpus ? explorer_loads(path) : communicator_loads(path);
}

static void compare(const char *path, const char *what)
{
  rig_out out;
  rig_open(&out);
  int code = xp_lint(path, out.f);
  bool takes = code != 2 && strstr(out.text, ": error: ") == NULL, loads = loads_as_meant(path);
  const char *why = loads ? "" : tt_last_error();
  if (takes != loads || (takes && !communicator_loads(path))) {
    size_t size;
    char *text = rig_slurp(path, &size);
    fail_msg("%s: lint %s it, the loader %s (%s); last error: %s\n%s\n%s", what, takes ? "takes" : "refuses",
             loads ? "takes it" : "does not", why, tt_last_error(), out.text, text);
  }
  counts[!loads]++;
  rig_close(&out);
}

// ---- Changes ----

static tt_xml_node *any_node(const tt_xml *xml)
{
  unsigned count = 0, chosen;
  for (tt_xml_node *x = xml->root; x != NULL; x = tt_xml_walk(xml->root, x)) {
    count++;
  }
  tt_xml_node *x = xml->root;
  for (chosen = rig_random(&state) % count; chosen > 0; chosen--) {
    x = tt_xml_walk(xml->root, x);
  }
  return x;
}

static void spoil_value(tt_xml *xml, tt_xml_node *x)
{
  static const char *const values[] = {"",         "-1",           "0",           "1",   "7",
                                       "0x1",      "abc",          "99999999999", "0.5", "1e99",
                                       "gfx9",     "0000:01:00.0", "nan",         " 3 ", "0000:05:00.0",
                                       "0x068000", "70000",        "0x20000"};
  static const char *const names[] = {"rank",   "dev", "sm",  "busid",   "numaid",    "count",
                                      "target", "net", "gcn", "version", "host_hash", "keep"};
  const char *name = names[rig_random(&state) % TT_COUNT(names)];
  unsigned count = 0;
  for (const tt_xml_attr *a = x->attrs; a != NULL; a = a->next) {
    name = rig_random(&state) % ++count == 0 ? a->name : name; // each is as likely
  }
  if (rig_random(&state) % 3 == 0) {
    tt_xml_unset(x, name);
  } else {
    assert_int_equal(tt_xml_set(xml, x, name, values[rig_random(&state) % TT_COUNT(values)]), ncclSuccess);
  }
}

static bool is_below(const tt_xml_node *x, const tt_xml_node *top)
{
  while (x != NULL && x != top) {
    x = x->parent;
  }
  return x == top;
}

// Copies, moves or removes an element.
static void move_element(tt_xml *xml, tt_xml_node *x)
{
  tt_xml_node *to = any_node(xml), *copy = NULL;
  unsigned what = rig_random(&state) % 3;
  if (x == xml->root) {
    return;
  }
  if (what < 2 && !is_below(to, x)) {
    assert_int_equal(tt_xml_copy(xml, to, x, &copy), ncclSuccess);
  }
  if (what > 0) {
    rig_xml_remove(x);
  }
}

static void compare_changed(const char *base, size_t size)
{
  tt_xml *xml = NULL;
  char path[64], *text = NULL;
  assert_int_equal(tt_xml_parse("base", base, size, &xml), ncclSuccess);
  for (unsigned i = rig_random(&state) % 3 + 1; i > 0; i--) {
    (rig_random(&state) % 3 > 0 ? spoil_value : move_element)(xml, any_node(xml));
  }
  size_t changed;
  assert_int_equal(tt_xml_text(xml, &text, &changed), ncclSuccess);
  rig_file(path, text, changed);
  compare(path, "a changed file");
  unlink(path);
  tt_free(text);
  tt_xml_destroy(xml);
}

static void compare_machine(const char *path)
{
  size_t size;
  compare(path, path);
  char *text = rig_slurp(path, &size);
  for (int i = 0; i < MUTANTS; i++) {
    compare_changed(text, size);
  }
  free(text);
}

static void test_known(void **unused)
{
  (void)unused;
  rig_each_machine(compare_machine);
  assert_true(counts[0] > 100 && counts[1] > 100);
}

static void compare_text(const char *text)
{
  char path[64];
  rig_file(path, text, strlen(text));
  compare(path, "a small file");
  assert_true(loads_as_meant(path));
  unlink(path);
  for (int i = 0; i < MUTANTS_SMALL; i++) {
    compare_changed(text, strlen(text));
  }
}

static void test_small(void **unused)
{
  (void)unused;
  compare_text(small);
  compare_text(odd_port);
  compare_text(bare_gpu);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_small)};
  assert_int_equal(tt_tree_open("/", &computer), ncclSuccess);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  tt_tree_close(computer);
  return failed;
}
