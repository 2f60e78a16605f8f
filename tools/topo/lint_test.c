// lint_test.c: every sort of finding, at its line; nothing where nothing is wrong; any bytes.
#include "draw_rig.h"

// Two GPUs and two cards at two switches: nothing is wrong here.
static const char good[] =
    "<system version=\"1\">\n"
    "<cpu numaid=\"0\" affinity=\"000000ff\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n"
    "<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
    "<pci busid=\"0000:02:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
    "<gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\">\n"
    "<nvlink target=\"0000:05:00.0\" count=\"18\" tclass=\"0x030200\"/>\n"
    "</gpu></pci>\n"
    "<pci busid=\"0000:03:00.0\" class=\"0x020700\" device=\"0x1021\" link_speed=\"32.0 GT/s PCIe\" "
    "link_width=\"16\"><nic>\n"
    "<net name=\"mlx5_0\" dev=\"0\" speed=\"400000\" port=\"1\" guid=\"0xa0\" maxconn=\"1024\" gdr=\"1\"/>\n"
    "</nic></pci></pci></cpu>\n"
    "<cpu numaid=\"1\" affinity=\"0000ff00\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n"
    "<pci busid=\"0000:04:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
    "<pci busid=\"0000:05:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
    "<gpu dev=\"1\" sm=\"90\" rank=\"1\" gdr=\"1\">\n"
    "<nvlink target=\"0000:02:00.0\" count=\"18\" tclass=\"0x030200\"/>\n"
    "</gpu></pci>\n"
    "<pci busid=\"0000:06:00.0\" class=\"0x020700\" device=\"0x1021\" link_speed=\"32.0 GT/s PCIe\" "
    "link_width=\"16\"><nic>\n"
    "<net name=\"mlx5_1\" dev=\"1\" speed=\"400000\" port=\"1\" guid=\"0xa1\" maxconn=\"1024\" gdr=\"1\"/>\n"
    "</nic></pci></pci></cpu></system>\n";

static const char channels[] =
    "<graphs version=\"1\">\n"
    "<graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"2\" speedintra=\"20\" speedinter=\"20\" "
    "latencyinter=\"0\" typeintra=\"NVL\" typeinter=\"PIX\" samechannels=\"0\">\n"
    "<channel><gpu dev=\"0\" rank=\"0\"/><gpu dev=\"0x1\" rank=\"1\"/></channel>\n"
    "<channel><gpu dev=\"0x1\" rank=\"1\"/><gpu dev=\"0\" rank=\"0\"/></channel>\n"
    "</graph></graphs>\n";

// Lints text; *out is what was said, without the file's name.
static int lint(const char *text, size_t size, rig_out *out)
{
  char path[64];
  rig_file(path, text, size);
  rig_open(out);
  int code = xp_lint(path, out->f);
  unlink(path);
  return code;
}

typedef struct change {
  const char *base, *from, *to;
  const char *expected[2]; // "LINE: level: …" and what it says
} change;

static void check_change(const change *c)
{
  rig_out out;
  char *text = rig_replace(c->base, c->from, c->to);
  int code = lint(text, strlen(text), &out);
  char place[64];
  snprintf(place, sizeof(place), ":%s", c->expected[0]);
  const char *at = strstr(out.text, place), *end = at != NULL ? strchr(at, '\n') : NULL;
  bool said = false;
  for (; at != NULL && !said; at = strstr(at + 1, place)) {
    end = strchr(at, '\n');
    const char *what = strstr(at, c->expected[1]);
    said = what != NULL && what < end;
  }
  if (code != 1 || !said) {
    fail_msg("'%s' -> '%s': '%s' with '%s' expected (code %d) in:\n%s", c->from, c->to, c->expected[0], c->expected[1],
             code, out.text);
  }
  rig_close(&out);
  free(text);
}

static void check_good(const char *text)
{
  rig_out out;
  if (lint(text, strlen(text), &out) != 0) {
    fail_msg("%s", out.text);
  }
  assert_non_null(strstr(out.text, "nothing found"));
  rig_close(&out);
}

static void test_good(void **state)
{
  (void)state;
  check_good(good);
  check_good(channels);
  // What NCCL 2.30 writes, and a GPU that has two ranks.
  char *newer = rig_replace(good, "<gpu dev=\"0\" sm", "<gpu dev=\"0\" mlopart=\"0\" keep=\"1\" sm");
  char *ports = rig_replace(newer, "<net name", "<net gin=\"1\" rma=\"1\" net=\"1\" keep=\"1\" name");
  char *shared = rig_replace(ports, "</gpu></pci>", "</gpu><gpu dev=\"0\" sm=\"90\" rank=\"2\" gdr=\"1\"/></pci>");
  check_good(shared);
  free(newer);
  free(ports);
  free(shared);
}

static void test_elements(void **state)
{
  (void)state;
  static const change changes[] = {
      {good, "<system version=\"1\">", "<system version=\"3\">", {"1: error", "version=\"3\""}},
      {good, " numaid=\"0\"", "", {"2: error", "numaid is missing"}},
      {good, "arch=\"x86_64\"", "arch=\"mips\"", {"2: warning", "arch=\"mips\""}},
      {good, "GenuineIntel", "Cyrix", {"2: warning", "vendor=\"Cyrix\""}},
      {good, "0000:01:00.0", "0000-01", {"3: error", "busid=\"0000-01\""}},
      {good, "link_width=\"16\"", "link_width=\"-4\"", {"3: error", "link_width=\"-4\""}},
      {good, "link_width=\"16\"", "link_width=\"7\"", {"3: warning", "link_width=\"7\""}},
      {good, "link_width=\"16\"", "link_with=\"16\"", {"3: note", "link_with"}},
      {good, "32.0 GT/s PCIe", "fast", {"3: warning", "link_speed=\"fast\""}},
      {good, "0x060400", "switch", {"3: warning", "class=\"switch\""}},
      {good, "sm=\"90\" rank=\"0\"", "sm=\"H100\" rank=\"0\"", {"5: error", "sm=\"H100\""}},
      {good, "sm=\"90\" rank=\"0\"", "rank=\"0\"", {"5: note", "sm is missing"}},
      {good, " rank=\"0\"", "", {"5: note", "rank is missing"}},
      {good, " dev=\"0\" speed", " speed", {"9: note", "dev is missing"}},
      {good, "count=\"18\"", "count=\"0\"", {"6: error", "count=\"0\""}},
      {good, "<nvlink target", "<nvlnk target", {"6: warning", "<nvlnk> is not known"}},
      {good, "</gpu></pci>", "</gpu><net name=\"x\" dev=\"7\"/></pci>", {"7: warning", "stands in <pci>"}},
      {good, "</gpu></pci>", "</gpu>text</pci>", {"7: warning", "text in it"}},
  };
  for (size_t i = 0; i < TT_COUNT(changes); i++) {
    check_change(&changes[i]);
  }
}

static void test_machine(void **state)
{
  (void)state;
  static const change changes[] = {
      {good, "0000:05:00.0\" class", "0000:02:00.0\" class", {"13: error", "is there already at line 4"}},
      {good, "0000:04:00.0\" class", "0000:01:00.0\" class", {"12: warning", "is there already at line 3"}},
      {good, "numaid=\"1\"", "numaid=\"0\"", {"11: error", "is there already at line 2"}},
      {good, "numaid=\"1\"", "numaid=\"-1\"", {"11: warning", "-1"}},
      {good, "rank=\"1\"", "rank=\"0\"", {"14: error", "is there already at line 5"}},
      {good, "rank=\"1\"", "rank=\"3\"", {"1: note", "2 ranks, from 0 to 3"}},
      {good, "dev=\"1\" speed", "dev=\"0\" speed", {"18: warning", "is there already at line 9"}},
      {good, "mlx5_1", "mlx5_0", {"18: warning", "name=\"mlx5_0\""}},
      {good, "dev=\"1\" sm", "dev=\"0\" sm", {"14: warning", "dev=\"0\" is there already at line 5"}},
      {good, " tclass=\"0x030200\"", "", {"6: warning", "tclass is missing"}},
      {good, "tclass=\"0x030200\"", "tclass=\"\"", {"6: warning", "tclass is missing"}},
      {good, "sm=\"90\" rank=\"1\"", "sm=\"80\" rank=\"1\"", {"14: note", "other than the GPU at line 5"}},
      {good, "sm=\"90\" rank=\"0\"", "sm=\"91\" rank=\"0\"", {"5: warning", "no such compute capability"}},
      {good, "count=\"18\"", "count=\"17\"", {"6: warning", "has 18 back (line 15)"}},
      {good, "count=\"18\"", "count=\"17\"", {"5: warning", "17 NVLinks"}},
      {good, "count=\"18\"", "count=\"36\"", {"5: warning", "36 NVLinks"}},
      {good, "target=\"0000:05:00.0\"", "target=\"0000:0f:00.0\"", {"6: warning", "no such GPU"}},
      {good, "target=\"0000:05:00.0\"", "target=\"0000:02:00.0\"", {"6: warning", "the GPU itself"}},
      {good, "tclass=\"0x030200\"", "tclass=\"0x068000\"", {"6: warning", "is the GPU at line 14"}},
      {good, "0000ff00", "0000ff80", {"11: warning", "another NUMA node"}},
      {good, "0000ff00", "0000:ff", {"11: warning", "no mask"}},
      {good,
       "</gpu></pci>\n<pci busid=\"0000:03:00.0\" class=\"0x020700\"",
       "</gpu></pci></pci>\n<pci><pci busid=\"0000:03:00.0\" class=\"0x020700\"",
       {"8: error", "busid is missing"}},
  };
  for (size_t i = 0; i < TT_COUNT(changes); i++) {
    check_change(&changes[i]);
  }
}

static void test_slots(void **state)
{
  (void)state;
  static const change changes[] = {
      {good,
       "0000:02:00.0\" class=\"0x030200\" link_speed=\"32.0",
       "0000:02:00.0\" class=\"0x030200\" link_speed=\"16.0",
       {"4: warning", "this GPU has 32 GT/s"}},
      {good,
       "class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"",
       "class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"8\"",
       {"4: warning", "16 lanes"}},
      {good, "link_speed=\"32.0", "link_speed=\"16.0", {"3: note", "24 GB/s upwards"}},
      {good, "0x1021\" link_speed=\"32.0", "0x1021\" link_speed=\"8.0", {"8: warning", "for a port of 50 GB/s"}},
      {good, "class=\"0x020700\"", "class=\"0x060400\"", {"8: note", "of a network card"}},
      {good, "class=\"0x030200\"", "class=\"0x060400\"", {"4: note", "of a GPU"}},
      {good, "speed=\"400000\"", "speed=\"-1\"", {"9: warning", "speed=\"-1\""}},
      {good, "speed=\"400000\"", "speed=\"400\"", {"9: warning", "less than 1 Gbit/s"}},
      {good, "speed=\"400000\"", "speed=\"400000000\"", {"9: warning", "Tbit/s"}},
      {good, "speed=\"400000\"", "speed=\"200000\"", {"9: warning", "line 18"}},
      {good, "0xa1", "0xa0", {"18: note", "line 9"}},
      {good, "gdr=\"1\"/>", "gdr=\"0\"/>", {"9: warning", "same PCI switch"}},
      {good, "rank=\"0\" gdr=\"1\"", "rank=\"0\" gdr=\"0\"", {"5: warning", "1 of 2 GPUs"}},
      {good, "port=\"1\"", "latency=\"5000\"", {"9: warning", "latency"}},
      {good,
       "<net name=\"mlx5_1\" dev=\"1\" speed=\"400000\" port=\"1\" guid=\"0xa1\" maxconn=\"1024\" gdr=\"1\"/>",
       "",
       {"14: warning", "no network card near; 1 of 2"}},
      {good, "</gpu>", "<c2c bw=\"1\" count=\"1\"/></gpu>", {"7: warning", "GB/s together"}},
  };
  for (size_t i = 0; i < TT_COUNT(changes); i++) {
    check_change(&changes[i]);
  }
}

static void test_graphs(void **state)
{
  (void)state;
  static const change changes[] = {
      {channels, "nchannels=\"2\"", "nchannels=\"3\"", {"2: error", "there are 2"}},
      {channels, "pattern=\"4\"", "pattern=\"1\"", {"2: warning", "pattern=\"1\""}},
      {channels, "pattern=\"4\"", "pattern=\"9\"", {"2: error", "pattern=\"9\""}},
      {channels, "typeintra=\"NVL\"", "typeintra=\"NVLINK\"", {"2: error", "NVLINK"}},
      {channels, "speedintra=\"20\"", "speedintra=\"0\"", {"2: warning", "speedintra"}},
      {channels, "speedintra=\"20\"", "speedintra=\"20000\"", {"2: warning", "20000"}},
      {channels, "samechannels=\"0\"", "samechannels=\"1\"", {"2: warning", "orders differ"}},
      {channels,
       "<gpu dev=\"0x1\" rank=\"1\"/><gpu",
       "<gpu dev=\"0\" rank=\"0\"/><gpu",
       {"4: error", "GPU 0 is in this channel twice"}},
      {channels, "<gpu dev=\"0x1\" rank=\"1\"/></channel>", "</channel>", {"4: error", "2 GPUs; not those"}},
      {channels, "<channel><gpu", "<channel><net dev=\"0\"/><gpu", {"3: error", "1 network port"}},
      {channels,
       "</graphs>",
       "<graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"0\" speedintra=\"0\" speedinter=\"0\" "
       "typeintra=\"LOC\" typeinter=\"LOC\" samechannels=\"0\"/></graphs>",
       {"5: error", "line 2 has it too"}},
      {channels, " rank=\"0\"", " rank=\"zero\"", {"3: error", "rank=\"zero\""}},
  };
  for (size_t i = 0; i < TT_COUNT(changes); i++) {
    check_change(&changes[i]);
  }
}

// Several errors are all told; each reason is explained once; the exit code counts what was found.
static void test_report(void **state)
{
  (void)state;
  rig_out out;
  char *one = rig_replace(good, "dev=\"0\" sm", "dev=\"x\" sm"),
       *two = rig_replace(one, "dev=\"1\" sm", "dev=\"y\" sm");
  assert_int_equal(lint(two, strlen(two), &out), 1);
  assert_non_null(strstr(out.text, "dev=\"x\""));
  assert_non_null(strstr(out.text, "dev=\"y\""));
  assert_non_null(strstr(out.text, "2 errors"));
  char *why = strstr(out.text, "why:");
  assert_non_null(why);
  assert_null(strstr(why + 1, "why:"));
  rig_close(&out);
  free(one);
  free(two);
}

static void test_unreadable(void **state)
{
  (void)state;
  static const char *const texts[] = {"", "no XML", "<system version=\"1\">",
                                      "<system version=\"1\"><cpu numaid=\"0\"></system>", "\xff\xfe"};
  rig_out out;
  for (size_t i = 0; i < TT_COUNT(texts); i++) {
    assert_int_equal(lint(texts[i], strlen(texts[i]), &out), 2);
    assert_non_null(strstr(tt_last_error(), "tutti_topo_"));
    rig_close(&out);
  }
  rig_open(&out);
  assert_int_equal(xp_lint("/nonexistent/file.xml", out.f), 2);
  rig_close(&out);
  assert_int_equal(lint("<html/>", 7, &out), 1);
  assert_non_null(strstr(out.text, "<system> or <graphs>"));
  rig_close(&out);
  FILE *full = fopen("/dev/full", "w");
  assert_int_equal(xp_lint(RIG_MACHINES "/known/dgx1v_8xV100_4nic/input.xml", full), 2);
  fclose(full);
}

// The machines that are known load: nothing about them is an error.
static void check_known(const char *path)
{
  rig_out out;
  rig_open(&out);
  assert_in_range(xp_lint(path, out.f), 0, 1);
  if (strstr(out.text, ": error: ") != NULL) {
    fail_msg("%s", out.text);
  }
  rig_close(&out);
}

static void test_known(void **state)
{
  (void)state;
  rig_each_machine(check_known);
}

static void test_spoilt(void **state)
{
  (void)state;
  char copy[sizeof(good)];
  unsigned random = 3;
  for (int i = 0; i < 600; i++) {
    const char *base = i % 4 == 0 ? channels : good;
    size_t size = strlen(base);
    rig_out out;
    memcpy(copy, base, size);
    rig_spoil(copy, size, &random);
    assert_in_range(lint(copy, size, &out), 0, 2);
    rig_close(&out);
  }
  for (int k = 1; k < 60; k++) { // without memory: no crash, and never "nothing found" where something is
    rig_out out;
    char path[64];
    rig_file(path, good, strlen(good));
    rig_open(&out);
    tt_alloc_fail_at(k);
    int code = xp_lint(path, out.f);
    tt_alloc_fail_at(0);
    assert_in_range(code, 0, 2);
    unlink(path);
    rig_close(&out);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_good),       cmocka_unit_test(test_elements), cmocka_unit_test(test_machine),
      cmocka_unit_test(test_slots),      cmocka_unit_test(test_graphs),   cmocka_unit_test(test_report),
      cmocka_unit_test(test_unreadable), cmocka_unit_test(test_known),    cmocka_unit_test(test_spoilt),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
