// xml_test.c: documents in and out, and all that can be wrong with one.
#include "topo/topo_rig.h"

#include <sys/stat.h>
#include <unistd.h>

static char *text_of(const tt_xml *xml)
{
  char *text = NULL;
  size_t size = 0;
  assert_int_equal(tt_xml_text(xml, &text, &size), ncclSuccess);
  assert_int_equal(strlen(text), size);
  return text;
}

// ---- What is read comes out again ----

static void test_layout(void **state)
{
  (void)state;
  const char *text = "<system version=\"1\">\n"
                     "  <cpu numaid=\"-1\" arch=\"x86_64\">\n"
                     "    <pci busid=\"0000:03:00.0\"/>\n"
                     "  </cpu>\n"
                     "  <empty/>\n"
                     "</system>\n";
  tt_xml *xml = rig_xml(text);
  char *out = text_of(xml);
  assert_string_equal(out, text);
  assert_int_equal(xml->root->line, 1);
  assert_int_equal(xml->root->child->child->line, 3);
  assert_int_equal(xml->root->last_child->line, 5);
  assert_int_equal(xml->nnodes, 4);
  tt_free(out);
  tt_xml_destroy(xml);
}

// Comments, another layout, quotes, escapes and entities of XML itself.
static void test_same_tree_from_other_text(void **state)
{
  (void)state;
  tt_xml *a = rig_xml(
      "<?xml version='1.0' encoding='UTF-8'?>\n<!-- c --><a x='1&lt;2 &amp; \"3&#34; &#10;&#x9;&#xe9;\xc3\xa9'\n\ty=''>"
      "<b/><!-- d --><c></c></a>");
  assert_string_equal(tt_xml_get(a->root, "x"), "1<2 & \"3\" \n\t\xc3\xa9\xc3\xa9");
  assert_string_equal(tt_xml_get(a->root, "y"), "");
  char *once = text_of(a);
  tt_xml *b = rig_xml(once);
  char *twice = text_of(b);
  assert_string_equal(once, twice);
  assert_true(tt_xml_same(a->root, b->root));
  assert_int_equal(tt_xml_set(b, b->root->child, "z", "1"), ncclSuccess);
  assert_false(tt_xml_same(a->root, b->root));
  tt_free(once);
  tt_free(twice);
  tt_xml_destroy(a);
  tt_xml_destroy(b);
}

static void test_sameness_looks_at_the_shape(void **state)
{
  (void)state;
  const char *texts[] = {"<a><b><c/></b><d/></a>",
                         "<a><b/><c/><d/></a>",
                         "<a><b><c/><d/></b></a>",
                         "<a><b/></a>",
                         "<a><d/><b><c/></b></a>",
                         "<a x='1' y='2'/>",
                         "<a y='2' x='1'/>",
                         "<a x='1'/>",
                         "<a/>",
                         "<e/>"};
  for (size_t i = 0; i < TT_COUNT(texts); i++) {
    for (size_t j = 0; j < TT_COUNT(texts); j++) {
      tt_xml *a = rig_xml(texts[i]), *b = rig_xml(texts[j]);
      assert_int_equal(tt_xml_same(a->root, b->root), i == j);
      tt_xml_destroy(a);
      tt_xml_destroy(b);
    }
  }
}

static void round_trip(const char *path)
{
  tt_xml *a = rig_read(path);
  char *once = text_of(a);
  tt_xml *b = rig_xml(once);
  char *twice = text_of(b);
  assert_true(tt_xml_same(a->root, b->root));
  assert_string_equal(once, twice);
  tt_free(once);
  tt_free(twice);
  tt_xml_destroy(a);
  tt_xml_destroy(b);
}

static void test_machines_come_out_as_they_went_in(void **state)
{
  (void)state;
  assert_true(rig_each_machine(round_trip) > 200);
}

static void test_files(void **state)
{
  (void)state;
  char path[] = "/tmp/tutti-xml-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  tt_xml *a = rig_xml("<a><b c=\"1\"/></a>");
  assert_int_equal(tt_xml_write(a, path), ncclSuccess);
  tt_xml *b = rig_read(path);
  assert_true(tt_xml_same(a->root, b->root));
  assert_string_equal(b->root->child->file, path);
  tt_xml_destroy(b);
  rig_error(tt_xml_write(a, "/nonexistent/a.xml"), "/nonexistent/a.xml", "No such file");
  assert_int_equal(ftruncate(fd, (off_t)TT_XML_MAX_BYTES + 1), 0);
  rig_error(tt_xml_read(path, &b), path, "33554433 bytes");
  assert_int_equal(ftruncate(fd, 0), 0);
  rig_error(tt_xml_read(path, &b), path, "empty");
  close(fd);
  unlink(path);
  rig_error(tt_xml_read(path, &b), path, "No such file");
  rig_error(tt_xml_read("/tmp", &b), "/tmp", "not a regular file");
  rig_error(tt_xml_read("/dev/zero", &b), "/dev/zero", "not a regular file");
  tt_xml_destroy(a);
}

// ---- What is wrong is named ----

static void test_bad_documents(void **state)
{
  (void)state;
  const struct {
    const char *text, *place, *what;
  } bad[] = {
      {" ", "m.xml:1:", "there is no element"},
      {"\n\n<a>\n<b/>\n", "m.xml:5:", "there is no element, or the text ends inside one"},
      {"<a>\n<b x=1/></a>", "m.xml:2:", "column 6"},
      {"<a>\n</b></a>", "m.xml:2:", "mismatched tag"},
      {"<a/>\n<b/>", "m.xml:2:", "junk after document element"},
      {"plain text", "m.xml:1:", "syntax error"},
      {"<a x=\"1\"\n x=\"2\"/>", "m.xml:", "duplicate attribute"},
      {"<a>\n\n<b c=\"\xff\xfe\"/></a>", "m.xml:3:", "not UTF-8"},
      {"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>\n<a b=\"\xe9\"/>", "m.xml:2:", "not UTF-8"},
      {"\xff\xfe<", "m.xml:1:", ""},
      {"<a b=\"&x;\"/>", "m.xml:1:", "undefined entity"},
      {"<a b=\"&#1;\"/>", "m.xml:1:", "reference to invalid character number"},
      {"<!DOCTYPE a [\n<!ENTITY l \"ha\"><!ENTITY m \"&l;&l;&l;\">]><a b=\"&m;\"/>", "m.xml:1:", "<!DOCTYPE a>"},
      {"<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>", "m.xml:1:", "document types"},
  };
  for (size_t i = 0; i < TT_COUNT(bad); i++) {
    tt_xml *xml = (tt_xml *)&bad;
    rig_error(tt_xml_parse("m.xml", bad[i].text, strlen(bad[i].text), &xml), bad[i].place, bad[i].what);
    assert_ptr_equal(xml, &bad); // written on success only
  }
  tt_xml *none;
  rig_error(tt_xml_parse("m.xml", "", 0, &none), "m.xml", "empty");
  rig_error(tt_xml_parse("m.xml", "<a/>\0", 5, &none), "m.xml:1:", "not XML");
}

// `n` elements inside each other.
static char *nested(int n)
{
  char *text = calloc(1, 7 * (size_t)n + 1), *at = text;
  for (int i = 0; i < n; i++) {
    at = stpcpy(at, "<d>");
  }
  for (int i = 0; i < n; i++) {
    at = stpcpy(at, "</d>");
  }
  return text;
}

static void test_depth(void **state)
{
  (void)state;
  char *text = nested(TT_XML_MAX_DEPTH);
  tt_xml *xml = rig_xml(text);
  char *out = text_of(xml);
  tt_xml *again = rig_xml(out);
  assert_true(tt_xml_same(xml->root, again->root));
  tt_free(out);
  tt_xml_destroy(xml);
  tt_xml_destroy(again);
  free(text);
  text = nested(TT_XML_MAX_DEPTH + 1);
  rig_error(tt_xml_parse("m.xml", text, strlen(text), &xml), "m.xml:1:", "more than 128 deep");
  free(text);
}

// A document with `n` children of its root, each with `attr` behind its name.
static char *wide(int n, const char *attr)
{
  char *text = calloc(1, (size_t)n * (8 + strlen(attr)) + 16), *at = stpcpy(text, "<a>");
  for (int i = 0; i < n; i++) {
    at = stpcpy(at, "<b ");
    at = stpcpy(at, attr);
    at = stpcpy(at, "/>\n");
  }
  strcpy(at, "</a>");
  return text;
}

static void test_counts(void **state)
{
  (void)state;
  char *text = wide(10000, "busid=\"0000:00:00.0\" x=\"1\"");
  tt_xml *xml = rig_xml(text);
  assert_int_equal(xml->nnodes, 10001);
  tt_xml_destroy(xml);
  free(text);
  text = wide(TT_XML_MAX_NODES, "");
  rig_error(tt_xml_parse("m.xml", text, strlen(text), &xml), "m.xml", "more than 250000 elements");
  free(text);
  char *value = calloc(1, TT_XML_MAX_VALUE + 32);
  snprintf(value, TT_XML_MAX_VALUE + 32, "v=\"%0*d\"", TT_XML_MAX_VALUE + 1, 7);
  text = wide(2, value);
  rig_error(tt_xml_parse("m.xml", text, strlen(text), &xml), "m.xml:1: <b>", "v is longer than 4096 bytes");
  free(text);
  free(value);
  char many[TT_XML_MAX_ATTRS * 16] = "", *at = many;
  for (int i = 0; i <= TT_XML_MAX_ATTRS; i++) {
    at += sprintf(at, "a%d='' ", i);
  }
  text = wide(1, many);
  rig_error(tt_xml_parse("m.xml", text, strlen(text), &xml), "m.xml:1:", "more than 64 attributes");
  free(text);
}

static void test_long_names(void **state)
{
  (void)state;
  char *text = calloc(1, TT_XML_MAX_VALUE + 64);
  tt_xml *xml;
  text[0] = '<';
  memset(text + 1, 'x', TT_XML_MAX_VALUE + 1);
  strcpy(text + TT_XML_MAX_VALUE + 2, "/>");
  rig_error(tt_xml_parse("m.xml", text, strlen(text), &xml), "m.xml:1:", "name is longer");
  free(text);
}

// ---- Attributes as numbers ----

static void test_numbers(void **state)
{
  (void)state;
  tt_xml *xml = rig_xml("<a>\n<n i=' 12 ' h='0x1F' m='-1' e='' w='12a' o='010' "
                        "big='99999999999999999999' f='1.5' inf='inf' g='0x1b2f53a636e182bb' ng='-1'/></a>");
  const tt_xml_node *n = xml->root->child;
  int v = 0;
  float f = 0;
  uint64_t u = 0;
  assert_int_equal(tt_xml_int(n, "i", (tt_xml_range){0, 20}, &v), ncclSuccess);
  assert_int_equal(v, 12);
  assert_int_equal(tt_xml_int(n, "h", (tt_xml_range){0, 31}, &v), ncclSuccess);
  assert_int_equal(v, 31);
  assert_int_equal(tt_xml_int(n, "o", (tt_xml_range){0, 31}, &v), ncclSuccess);
  assert_int_equal(v, 10);
  rig_error(tt_xml_int(n, "m", (tt_xml_range){0, 5}, &v),
            "machine.xml:2: <n>:", "m=\"-1\": a whole number from 0 to 5 is expected");
  rig_error(tt_xml_int(n, "w", (tt_xml_range){0, 50}, &v), "machine.xml:2:", "w=\"12a\"");
  rig_error(tt_xml_int(n, "big", (tt_xml_range){0, 50}, &v), "machine.xml:2:", "big=");
  rig_error(tt_xml_int(n, "none", (tt_xml_range){0, 50}, &v), "machine.xml:2:", "none is missing");
  assert_int_equal(v, 10);
  assert_int_equal(tt_xml_int_or(n, "e", 7, (tt_xml_range){0, 9}, &v), ncclSuccess);
  assert_int_equal(v, 7);
  assert_int_equal(tt_xml_float_or(n, "f", 0, 2, &f), ncclSuccess);
  rig_same(f, 1.5f);
  rig_error(tt_xml_float_or(n, "inf", 0, 2, &f), "machine.xml:2:", "inf=\"inf\"");
  rig_error(tt_xml_float_or(n, "i", 0, 2, &f), "machine.xml:2:", "from 0 to 2");
  assert_int_equal(tt_xml_hex_or(n, "g", 0, &u), ncclSuccess);
  assert_true(u == 0x1b2f53a636e182bb);
  rig_error(tt_xml_hex_or(n, "ng", 0, &u), "machine.xml:2:", "hexadecimal");
  rig_error(tt_xml_hex_or(n, "big", 0, &u), "machine.xml:2:", "hexadecimal");
  assert_int_equal(tt_xml_hex_or(n, "none", 5, &u), ncclSuccess);
  assert_true(u == 5);
  tt_xml_destroy(xml);
}

// ---- Trees that a program makes ----

static void test_editing(void **state)
{
  (void)state;
  tt_xml *xml = NULL;
  tt_xml_node *n = NULL, *m = NULL;
  assert_int_equal(tt_xml_new("made", "system", &xml), ncclSuccess);
  assert_int_equal(tt_xml_set_int(xml, xml->root, "version", 1), ncclSuccess);
  assert_int_equal(tt_xml_add(xml, xml->root, "cpu", &n), ncclSuccess);
  assert_int_equal(tt_xml_set(xml, n, "a", "1"), ncclSuccess);
  assert_int_equal(tt_xml_set(xml, n, "b", "2"), ncclSuccess);
  assert_int_equal(tt_xml_set(xml, n, "a", "<3>"), ncclSuccess);
  assert_int_equal(tt_xml_add(xml, n, "pci", &m), ncclSuccess);
  assert_int_equal(tt_xml_copy(xml, xml->root, n, &m), ncclSuccess);
  assert_true(tt_xml_same(n, m));
  tt_xml_unset(m, "a");
  tt_xml_unset(m, "none");
  char *out = text_of(xml);
  assert_string_equal(out, "<system version=\"1\">\n  <cpu a=\"&lt;3&gt;\" b=\"2\">\n    <pci/>\n  </cpu>\n  <cpu "
                           "b=\"2\">\n    <pci/>\n  </cpu>\n</system>\n");
  tt_free(out);
  assert_ptr_equal(xml->root->last_child, m);
  assert_null(tt_xml_child(xml->root, "pci"));
  assert_ptr_equal(tt_xml_child(xml->root, NULL), n);
  assert_int_equal(tt_xml_add(xml, xml->root, "gpu", &m), ncclSuccess);
  assert_ptr_equal(tt_xml_sibling(n, "gpu"), m);
  assert_null(tt_xml_sibling(n, "pci"));
  rig_error(tt_xml_set(xml, m, "v", "\x01"), "made:0:", "not UTF-8");
  rig_error(tt_xml_set(xml, m, "v", "\xc0\x80"), "made:0:", "not UTF-8");
  rig_error(tt_xml_set(xml, m, "v", "\xed\xa0\x80"), "made:0:", "not UTF-8");
  rig_error(tt_xml_set(xml, m, "v w", "1"), "made:0:", "cannot be the name");
  rig_error(tt_xml_add(xml, m, "1", &m), "made", "cannot be the name");
  tt_xml_destroy(xml);
  tt_xml_destroy(NULL);
}

// A deep copy of a tree with steps up of several levels.
static void test_copying(void **state)
{
  (void)state;
  tt_xml *a = rig_xml("<a><b><c><d/><d x='1'/></c></b><e><f/></e><g/></a>"), *b = NULL;
  tt_xml_node *copy = NULL;
  assert_int_equal(tt_xml_new("b", "top", &b), ncclSuccess);
  assert_int_equal(tt_xml_copy(b, b->root, a->root, &copy), ncclSuccess);
  assert_true(tt_xml_same(a->root, copy));
  assert_int_equal(tt_xml_copy(b, b->root, a->root->child, &copy), ncclSuccess);
  assert_true(tt_xml_same(a->root->child, copy));
  assert_false(tt_xml_same(a->root, copy));
  tt_xml_destroy(a);
  assert_string_equal(copy->file, "machine.xml");
  tt_xml_destroy(b);
}

static void test_no_memory(void **state)
{
  (void)state;
  const char *text = "<a x='1'><b/><b/></a>";
  int failures = 0;
  for (long k = 1;; k++) {
    tt_xml *xml = NULL;
    tt_alloc_fail_at(k);
    ncclResult_t res = tt_xml_parse("m.xml", text, strlen(text), &xml);
    tt_alloc_fail_at(0);
    if (res == ncclSuccess) {
      tt_xml_destroy(xml);
      break;
    }
    assert_int_equal(res, ncclSystemError);
    failures++;
  }
  assert_true(failures >= 2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layout),
      cmocka_unit_test(test_same_tree_from_other_text),
      cmocka_unit_test(test_sameness_looks_at_the_shape),
      cmocka_unit_test(test_machines_come_out_as_they_went_in),
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_bad_documents),
      cmocka_unit_test(test_depth),
      cmocka_unit_test(test_counts),
      cmocka_unit_test(test_long_names),
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_editing),
      cmocka_unit_test(test_copying),
      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
