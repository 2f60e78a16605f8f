// tree_test.c: roots that are anything: links, loops, pipes, endless files, captures that are none.
#include <fcntl.h>
#include <time.h>

#include "topo/source_rig.h"

static rig_machine m;

static void check_reads(const tt_tree *t)
{
  char out[TT_TREE_PATH], buf[8];
  tt_tree_names names;
  assert_int_equal(tt_tree_read(t, "/a/b/file", buf, sizeof(buf)), 5);
  assert_string_equal(buf, "text\n");
  assert_int_equal(tt_tree_read(t, "/a/b/file", buf, 3), 2); // no more than there is room for
  assert_string_equal(buf, "te");
  assert_int_equal(tt_tree_read(t, "/a/b", buf, sizeof(buf)), -1);
  assert_int_equal(tt_tree_read(t, "/nothing", buf, sizeof(buf)), -1);
  assert_true(tt_tree_resolve(t, "/up/b/../b/./file", out));
  assert_string_equal(out, "/a/b/file");
  assert_true(tt_tree_resolve(t, "/", out));
  assert_string_equal(out, "");
  assert_true(tt_tree_resolve(t, "/absolute", out)); // "/" is the root's
  assert_string_equal(out, "/a/b");
  assert_true(tt_tree_resolve(t, "/out", out)); // ".." stops there
  assert_string_equal(out, "/a");
  assert_false(tt_tree_resolve(t, "/loop", out));
  assert_false(tt_tree_resolve(t, "/chain/x", out));
  assert_false(tt_tree_resolve(t, "/grows", out));
  assert_false(tt_tree_resolve(t, "/dangling", out));
  assert_true(tt_tree_link(t, "/up", out));
  assert_string_equal(out, "a");
  assert_true(tt_tree_link(t, "/absolute/../b/link", out)); // the link itself may lead nowhere
  assert_string_equal(out, "../../nowhere");
  assert_false(tt_tree_link(t, "/a/b/file", out));
  assert_false(tt_tree_link(t, "/loop/x", out));
  assert_int_equal(tt_tree_list(t, "/up", &names), ncclSuccess);
  assert_int_equal(names.count, 3);
  assert_string_equal(names.names[0], "a-file");
  assert_string_equal(names.names[1], "b");
  assert_string_equal(names.names[2], "b-c");
  tt_tree_names_free(&names);
  assert_int_equal(tt_tree_list(t, "/loop", &names), ncclSuccess);
  assert_int_equal(names.count, 0);
  tt_tree_names_free(&names);
}

static void links(void)
{
  rig_begin(&m);
  rig_line(&m, "f /a/b/file text\\n");
  rig_line(&m, "f /a/a-file x");
  rig_line(&m, "f /a/b-c/other y");
  rig_line(&m, "l /a/b/link ../../nowhere");
  rig_line(&m, "l /up a");
  rig_line(&m, "l /absolute /a/b");
  rig_line(&m, "l /out ../../../../../a");
  rig_line(&m, "l /loop loop");
  rig_line(&m, "l /chain one");
  rig_line(&m, "l /one ./chain");
  rig_line(&m, "l /grows grows/and/grows");
  rig_line(&m, "l /dangling /a/c/d");
}

static void test_links(void **state)
{
  (void)state;
  links();
  tt_tree *capture = rig_capture(&m), *folder = rig_folder_of(&m);
  check_reads(capture);
  check_reads(folder);
  tt_tree_close(capture);
  tt_tree_close(folder);
  rig_remove(&m);
}

// What is no regular file is not read, and nobody waits for it; of an endless one only the begin is.
static void test_no_files(void **state)
{
  (void)state;
  char path[256], buf[64], text[4096];
  tt_tree *t = NULL;
  rig_begin(&m);
  rig_line(&m, "f /sys/file x");
  tt_tree *first = rig_folder_of(&m);
  snprintf(path, sizeof(path), "%s/sys/pipe", m.folder);
  assert_int_equal(mkfifo(path, 0600), 0);
  snprintf(path, sizeof(path), "%s/sys/zero", m.folder);
  assert_int_equal(symlink("/dev/zero", path), 0);
  snprintf(path, sizeof(path), "%s/sys/closed", m.folder);
  FILE *f = fopen(path, "w");
  assert_int_equal(ftruncate(fileno(f), 1L << 40), 0); // 1 TiB of nothing
  fclose(f);
  assert_int_equal(tt_tree_read(first, "/sys/pipe", buf, sizeof(buf)), -1);
  assert_int_equal(tt_tree_read(first, "/sys/zero", buf, sizeof(buf)), -1);
  assert_int_equal(tt_tree_read(first, "/sys/closed", buf, sizeof(buf)), 63);
  tt_tree_close(first);
  rig_remove(&m);
  // Devices, where there are some.
  assert_int_equal(tt_tree_open("/", &t), ncclSuccess);
  assert_int_equal(tt_tree_read(t, "/dev/zero", buf, sizeof(buf)), -1);
  assert_true(tt_tree_read(t, "/proc/cpuinfo", text, sizeof(text)) > 0);
  tt_tree_close(t);
}

static void test_open(void **state)
{
  (void)state;
  tt_tree *t = NULL;
  char name[] = "/tmp/tutti-tree-XXXXXX";
  int fd = mkstemp(name);
  rig_error(tt_tree_open("/nonexistent/root", &t), "/nonexistent/root", "no such");
  rig_error(tt_tree_open("/dev/null", &t), "/dev/null", "not a folder");
  rig_error(tt_tree_open(name, &t), name, "not a folder");
  rig_error(tt_capture_open("/nonexistent/root", &t), "/nonexistent/root", "no such");
  rig_error(tt_capture_open(name, &t), name, "first line");
  assert_int_equal(write(fd, "tutti-machine 1\nf /x y\n", 23), 23);
  assert_int_equal(tt_capture_open(name, &t), ncclSuccess);
  assert_string_equal(tt_tree_name(t), name);
  tt_tree_close(t);
  close(fd);
  unlink(name);
}

static void expect(const char *text, size_t size, const char *place, const char *what)
{
  tt_tree *t = NULL;
  rig_error(tt_capture_parse("bad.txt", text, size, &t), place, what);
  assert_null(t);
}

static void test_bad_captures(void **state)
{
  (void)state;
  static const struct {
    const char *lines, *place, *what;
  } bad[] = {{"x /a b", "bad.txt:2", "expected"},
             {"f", "bad.txt:2", "expected"},
             {"# fine\n\nf a b", "bad.txt:4", "begin with /"},
             {"f /a/../b c", "bad.txt:2", "path"},
             {"f /a//b c", "bad.txt:2", "path"},
             {"f /a/ c", "bad.txt:2", "path"},
             {"f / c", "bad.txt:2", "path"},
             {"f ", "bad.txt:2", "path"},
             {"f /a\\x00b c", "bad.txt:2", "path"},
             {"f /a \\q", "bad.txt:2", "backslash"},
             {"f /a \\x1", "bad.txt:2", "backslash"},
             {"f /a \\", "bad.txt:2", "backslash"},
             {"l /a", "bad.txt:2", "nowhere"},
             {"l /a b\\x00c", "bad.txt:2", "nowhere"},
             {"f /a b\nf /b\nf /a c", "bad.txt:4", "line 2"},
             {"f /a b\nl /a b", "bad.txt:3", "line 2"}};
  char text[256], *big = malloc(TT_CAPTURE_BYTES + 2);
  for (size_t i = 0; i < TT_COUNT(bad); i++) {
    snprintf(text, sizeof(text), "tutti-machine 1\n%s", bad[i].lines);
    expect(text, strlen(text), bad[i].place, bad[i].what);
  }
  expect("", 0, "bad.txt:1", "first line");
  expect("tutti-machine 2\n", 16, "bad.txt:1", "first line");
  expect("tutti-machine 1\nf\0", 18, "bad.txt", "zero");
  memset(big, '\n', TT_CAPTURE_BYTES + 1);
  expect(big, TT_CAPTURE_BYTES + 1, "bad.txt", "longer");
  expect(big, TT_CAPTURE_BYTES, "bad.txt", "lines");
  free(big);
}

static void test_escapes(void **state)
{
  (void)state;
  static const char text[] =
      "tutti-machine 1\nf /a\\x20b/c \\x00\\xff\\t\\\\ \\n\nf /a\\x20b/c \\x00\\xff\\t\\\\ \\n\nf /empty\n";
  tt_tree *t = NULL;
  char buf[16];
  assert_int_equal(tt_capture_parse("good.txt", text, sizeof(text) - 1, &t), ncclSuccess);
  assert_int_equal(tt_tree_read(t, "/a b/c", buf, sizeof(buf)), 6);
  assert_memory_equal(buf, "\0\xff\t\\ \n", 7);
  assert_int_equal(tt_tree_read(t, "/empty", buf, sizeof(buf)), 0);
  tt_tree_close(t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_links),        cmocka_unit_test(test_no_files), cmocka_unit_test(test_open),
      cmocka_unit_test(test_bad_captures), cmocka_unit_test(test_escapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
