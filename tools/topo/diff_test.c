// diff_test.c: what is equal by meaning, and each sort of difference.
#include "draw_rig.h"

static const char machine[] =
    "<system version=\"1\">\n"
    "<cpu numaid=\"0\" arch=\"x86_64\">\n"
    "<pci busid=\"0000:02:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n"
    "<gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\"><nvlink target=\"0000:03:00.0\" count=\"4\"/></gpu></pci>\n"
    "<pci busid=\"0000:03:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n"
    "<gpu dev=\"1\" sm=\"80\" rank=\"1\" gdr=\"1\"><nvlink target=\"0000:02:00.0\" count=\"4\"/></gpu></pci>\n"
    "</cpu>\n"
    "<cpu numaid=\"1\" arch=\"x86_64\">\n"
    "<pci busid=\"0000:04:00.0\" class=\"0x020700\"><nic><net name=\"mlx5_0\" dev=\"0\" latency=\"0\"/></nic></pci>\n"
    "</cpu></system>\n";

static const char graphs[] = "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" nchannels=\"2\">\n"
                             "<channel><gpu dev=\"0\"/><gpu dev=\"0x1\"/><gpu dev=\"0x2\"/></channel>\n"
                             "<channel><gpu dev=\"0\"/><gpu dev=\"0x2\"/><gpu dev=\"0x1\"/></channel>\n"
                             "</graph></graphs>\n";

static int diff(const char *a, const char *b, rig_out *out)
{
  char paths[2][64];
  rig_file(paths[0], a, strlen(a));
  rig_file(paths[1], b, strlen(b));
  rig_open(out);
  int code = xp_diff(paths[0], paths[1], out->f);
  unlink(paths[0]);
  unlink(paths[1]);
  return code;
}

typedef struct change {
  const char *base, *from, *to;
  int count;
  const char *expected;
} change;

static void check_change(const change *c)
{
  rig_out out;
  char *text = rig_replace(c->base, c->from, c->to), number[32];
  snprintf(number, sizeof(number), "%d difference", c->count);
  int code = diff(c->base, text, &out);
  bool told =
      strstr(out.text, c->count == 0 ? "no difference" : number) != NULL && strstr(out.text, c->expected) != NULL;
  if (code != (c->count > 0) || !told) {
    fail_msg("'%s' -> '%s': %d times '%s' expected (code %d) in:\n%s", c->from, c->to, c->count, c->expected, code,
             out.text);
  }
  rig_close(&out);
  free(text);
}

static void test_changes(void **state)
{
  (void)state;
  static const change changes[] = {
      {machine, "16.0 GT/s PCIe", "16 GT/s", 0, ""},
      {machine, "latency=\"0\"", "latency=\"0.0000\"", 0, ""},
      {machine, "class=\"0x020700\"", "class=\"0x20700\"", 0, ""},
      {machine, "dev=\"0\" sm=\"80\" rank=\"0\"", "rank=\"0\" sm=\"80\" dev=\"0\"", 0, ""},
      {machine, "sm=\"80\" rank=\"1\"", "sm=\"90\" rank=\"1\"", 1, "~ gpu 0000:03:00.0 (lines 6, 6): sm 80 -> 90"},
      {machine, " gdr=\"1\"", "", 1, "gdr 1 -> (none)"},
      {machine, "latency=\"0\"", "latency=\"0\" guid=\"0x5\"", 1, "guid (none) -> 0x5"},
      {machine, "count=\"4\"", "count=\"3\"", 1, "~ nvlink 0000:02:00.0 to 0000:03:00.0 (lines 4, 4): count 4 -> 3"},
      {machine, "<nvlink target=\"0000:02:00.0\" count=\"4\"/>", "", 1,
       "- nvlink 0000:03:00.0 to 0000:02:00.0 (line 6): only in A"},
      {machine, "<pci busid=\"0000:04:00.0\"", "<pci busid=\"0000:07:00.0\"", 1,
       "pci 0000:04:00.0 (lines 9, 9): busid 0000:04:00.0 -> 0000:07:00.0"},
      {machine, "mlx5_0", "mlx5_9", 1, "name mlx5_0 -> mlx5_9"},
      {machine,
       "<pci busid=\"0000:04:00.0\" class=\"0x020700\"><nic><net name=\"mlx5_0\" dev=\"0\" latency=\"0\"/></nic></pci>",
       "", 1, "- pci 0000:04:00.0 (line 9): only in A, with 2 elements in it"},
      {machine, "</cpu>\n<cpu numaid=\"1\" arch=\"x86_64\">\n", "", 2, "hangs on cpu 1 -> cpu 0"},
      {graphs, "nchannels=\"2\"", "nchannels=\"3\"", 1, "nchannels 2 -> 3"},
      {graphs, "<gpu dev=\"0\"/><gpu dev=\"0x1\"/><gpu dev=\"0x2\"/>",
       "<gpu dev=\"1\"/><gpu dev=\"0x2\"/><gpu dev=\"0x0\"/>", 0, ""},
      {graphs, "<gpu dev=\"0\"/><gpu dev=\"0x1\"/><gpu dev=\"0x2\"/>",
       "<gpu dev=\"0\"/><gpu dev=\"0x2\"/><gpu dev=\"0x1\"/>", 1,
       "graph 0, channel 0 (lines 2, 2): 0 0x1 0x2 -> 0 0x2 0x1"},
      {graphs, "<channel><gpu dev=\"0\"/><gpu dev=\"0x1\"/><gpu dev=\"0x2\"/></channel>\n", "", 2,
       "- graph 0, channel 1"},
      {graphs, "</graphs>", "<graph id=\"1\"/></graphs>", 1, "+ graph 1 (line 4): only in B"},
  };
  for (size_t i = 0; i < TT_COUNT(changes); i++) {
    check_change(&changes[i]);
  }
}

static void test_order(void **state)
{
  (void)state;
  rig_out out;
  // The second channel first: the same channels. As elements of a machine: the order does not count at all.
  const char *b = "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" nchannels=\"2\">"
                  "<channel><gpu dev=\"0\"/><gpu dev=\"0x2\"/><gpu dev=\"0x1\"/></channel>"
                  "<channel><gpu dev=\"0\"/><gpu dev=\"0x1\"/><gpu dev=\"0x2\"/></channel></graph></graphs>";
  assert_int_equal(diff(graphs, b, &out), 1);
  assert_non_null(strstr(out.text, "numbered otherwise"));
  rig_close(&out);
  const char *c =
      "<system><cpu numaid=\"1\"/><cpu numaid=\"0\"><pci busid=\"0:2:0.0\"/><pci busid=\"0:1:0.0\"/></cpu></system>";
  const char *d =
      "<system><cpu numaid=\"0\"><pci busid=\"0:1:0.0\"/><pci busid=\"0:2:0.0\"/></cpu><cpu numaid=\"1\"/></system>";
  assert_int_equal(diff(c, d, &out), 0);
  rig_close(&out);
  assert_int_equal(diff(machine, graphs, &out), 1);
  assert_non_null(strstr(out.text, "<graphs>"));
  rig_close(&out);
}

static void check_itself(const char *path)
{
  rig_out out;
  rig_open(&out);
  assert_int_equal(xp_diff(path, path, out.f), 0);
  rig_close(&out);
}

static void test_unreadable(void **state)
{
  (void)state;
  rig_out out;
  rig_each_machine(check_itself);
  assert_int_equal(diff(machine, "<system>", &out), 2);
  rig_close(&out);
  assert_int_equal(diff("", machine, &out), 2);
  rig_close(&out);
  rig_open(&out);
  assert_int_equal(xp_diff("/nonexistent", "/nonexistent", out.f), 2);
  assert_non_null(strstr(tt_last_error(), "/nonexistent"));
  rig_close(&out);
}

static void test_spoilt(void **state)
{
  (void)state;
  char copy[sizeof(machine) + 1];
  unsigned random = 5;
  for (int i = 0; i < 400; i++) {
    const char *base = i % 3 == 0 ? graphs : machine;
    rig_out out;
    memset(copy, 0, sizeof(copy));
    memcpy(copy, base, strlen(base));
    rig_spoil(copy, strlen(base), &random);
    assert_in_range(diff(base, copy, &out), 0, 2);
    rig_close(&out);
  }
  for (int k = 1; k < 40; k++) {
    char paths[2][64];
    rig_out out;
    rig_file(paths[0], machine, strlen(machine));
    rig_file(paths[1], graphs, strlen(graphs));
    rig_open(&out);
    tt_alloc_fail_at(k);
    assert_in_range(xp_diff(paths[0], paths[k % 2], out.f), 0, 2);
    tt_alloc_fail_at(0);
    rig_close(&out);
    unlink(paths[0]);
    unlink(paths[1]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_changes),
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_unreadable),
      cmocka_unit_test(test_spoilt),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
