// figures_test.c: the file of figures: what is read, what is refused and why, where it is looked for. Each process
// reads it once, so those tests run in children.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/test_child.h"
#include "figures/figures.h"
#include "tools/figures.h"

static const tt_machine_kind kind = {.cpu = "A CPU of 3 GHz", .kernel = "6.1.0-9-x", .cores = 12};

// Figures that are not the library's own.
static tt_figures some_figures(void)
{
  tt_figures f = tt_figures_default();
  f.measured = 1;
  f.when = 1700000000;
  for (int i = 0; i < TT_FIGURES; i++) {
    f.value[i] += (uint32_t)i + 1;
  }
  return f;
}

static size_t some_text(char text[TT_FIGURES_MAX_BYTES])
{
  tt_figures f = some_figures();
  return tt_figures_write(&f, &kind, "box", text);
}

static void what_is_written_is_read(void **state)
{
  (void)state;
  char text[TT_FIGURES_MAX_BYTES], why[TT_FIGURES_WHY] = "";
  tt_figures f = some_figures(), back;
  size_t n = some_text(text);
  assert_int_equal(n, strlen(text));
  assert_true(tt_figures_parse(text, n, &kind, &back, why));
  assert_true(tt_figures_parse(text, n, NULL, &back, why));
  assert_true(tt_figures_same(&f, &back) && tt_figures_good(&back));
  assert_int_equal(back.when, f.when);
  assert_int_equal(back.measured, 1);
}

// The text with `from` replaced by `to` is refused with these words, and nothing is written.
static void refused(const char *from, const char *to, const char *words)
{
  char text[TT_FIGURES_MAX_BYTES], changed[TT_FIGURES_MAX_BYTES], why[TT_FIGURES_WHY] = "";
  some_text(text);
  char *at = strstr(text, from);
  assert_non_null(at);
  int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  tt_figures out, before;
  memset(&out, 0x5a, sizeof out);
  before = out;
  assert_false(tt_figures_parse(changed, (size_t)n, &kind, &out, why));
  if (strstr(why, words) == NULL) {
    fail_msg("%s -> %s: \"%s\" does not say \"%s\"", from, to, why, words);
  }
  assert_memory_equal(&out, &before, sizeof out);
}

static void bad_texts(void **state)
{
  (void)state;
  refused("version = 1", "version = 2", "it is of version 2, this library reads version 1");
  refused("version = 1", "version = x", "one number is expected as the version, found x");
  refused("version = 1\n", "", "the version is expected first, found cpu");
  refused("line_ps = ", "line_ps = -", "line_ps is expected from 5000 to 20000000, found -");
  refused("l2_kib = ", "l2_kib = 9999", "l2_kib is expected from 64 to 65536");
  refused("switch_ns = ", "switch_ns = fast ", "switch_ns is expected");
  refused("add_mbs = ", "line_ps = 113000\nadd_mbs = ", "line_ps stands there twice");
  refused("add_mbs = ", "subtract_mbs = ", "there is no figure subtract_mbs");
  refused("add_mbs = ", "# ", "add_mbs is missing");
  refused("cpu = A", "cpu = B", "it is of another machine: cpu B CPU of 3 GHz, this one has A CPU of 3 GHz");
  refused("cores = 12", "cores = 13", "it is of another machine: cores 13, this one has 12");
  refused("kernel = 6", "kernel = 7", "it is of another machine: kernel 7.1.0-9-x");
  refused("cores = 12\n", "cores = 12\ncores = 12\n", "cores stands there twice");
  refused("kernel = ", "#", "kernel is missing");
  refused("measured = 1", "measured = today1", "measured is expected to be seconds since 1970");
  refused("measured = ", "#", "measured is missing");
  refused("host = ", "host ", "no '='");
  refused("# Figures", "Figures", "no '='");
}

static void no_texts(void **state)
{
  (void)state;
  char why[TT_FIGURES_WHY], *big = calloc(1, TT_FIGURES_MAX_BYTES + 1);
  tt_figures out;
  assert_false(tt_figures_parse("", 0, &kind, &out, why));
  assert_string_equal(why, "it is no file of figures: it does not begin with a version");
  assert_false(tt_figures_parse(big, TT_FIGURES_MAX_BYTES, &kind, &out, why));
  assert_non_null(strstr(why, "it is longer than"));
  assert_false(tt_figures_parse(big, 100, &kind, &out, why));
  assert_non_null(strstr(why, "zero byte"));
  free(big);
}

static void own_figures_are_one(void **state)
{
  (void)state;
  tt_figures own = tt_figures_default(), f = own;
  assert_true(tt_figures_good(&own));
  for (int i = 0; i < TT_FIGURES; i++) {
    assert_true(tt_figures_ratio(&own, (tt_figure)i) == 1.0);
    f = own;
    f.value[i] = 0;
    assert_false(tt_figures_good(&f) || tt_figures_same(&f, &own));
  }
  f = own;
  f.version++;
  assert_false(tt_figures_good(&f));
}

// ---- places ----

static char folder[64], path[512];

// In a child: an empty folder is its cache.
static void begin(void)
{
  snprintf(folder, sizeof folder, "/tmp/figures_test.XXXXXX");
  assert_non_null(mkdtemp(folder));
  setenv("XDG_CACHE_HOME", folder, 1);
}

static void end(void)
{
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  assert_int_equal(system(command), 0);
}

// Where the library looks.
static const char *place(void)
{
  bool named;
  char why[TT_FIGURES_WHY];
  assert_true(tt_figures_place(path, sizeof path, &named, why));
  return path;
}

// A file of this machine's there.
static void write_there(mode_t mode)
{
  char text[TT_FIGURES_MAX_BYTES], why[TT_OWN_FILE_WHY];
  tt_figures f = some_figures();
  tt_machine_kind here = tt_machine_kind_get();
  size_t n = tt_figures_write(&f, &here, "box", text);
  assert_true(tt_own_file_write(place(), text, n, why));
  assert_int_equal(chmod(path, mode), 0);
}

static void found(bool measured, bool bad, const char *words)
{
  tt_figures_source s;
  tt_figures_find(&s);
  if (s.bad != bad || (s.figures.measured != 0) != measured || strstr(s.from, words) == NULL) {
    fail_msg("measured %u, bad %d, from \"%s\"; expected %d, %d, \"%s\"", s.figures.measured, s.bad, s.from, measured,
             bad, words);
  }
  assert_true(tt_figures_good(&s.figures));
}

static void child_places(void)
{
  begin();
  found(false, false, "No such file");
  write_there(0600);
  assert_non_null(strstr(path, "/tutti/figures-"));
  found(true, false, path);
  write_there(0622);
  found(false, true, "others may write it (mode 622)");
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkdir(path, 0700), 0);
  found(false, true, "it is no regular file");
  assert_int_equal(rmdir(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0);
  found(false, true, "it is no regular file"); // and nobody waits for a writer
  assert_int_equal(unlink(path), 0);
  assert_int_equal(symlink(path, path), 0);
  found(false, true, "symbolic links");
  end();
}

static void child_foreign(void)
{
  begin();
  write_there(0644);
  if (geteuid() == 0) { // a file of somebody else's; root may make one
    assert_int_equal(chown(path, 12345, 0), 0);
    found(false, true, "it belongs to user 12345, this process runs as 0");
  }
  end();
}

static void child_no_home(void)
{
  unsetenv("HOME");
  found(false, false, "neither XDG_CACHE_HOME nor HOME");
}

static void child_none(void)
{
  found(false, false, "NCCL_HOST_FIGURES=none");
}

static void child_named(void)
{
  char text[TT_FIGURES_MAX_BYTES], name[128], why[TT_OWN_FILE_WHY];
  begin();
  snprintf(name, sizeof name, "%s/mine", folder);
  setenv("NCCL_HOST_FIGURES", name, 1);
  size_t n = some_text(text); // of another machine: the user's will
  assert_true(tt_own_file_write(name, text, n, why));
  found(true, false, name);
  assert_int_equal(unlink(name), 0);
  found(false, true, "No such file"); // the user has named it
  end();
}

#define IN_CHILD(name, ...)                                             \
  static void name(void **state)                                        \
  {                                                                     \
    (void)state;                                                        \
    char text[4096];                                                    \
    child_run(CHILD_ENV(__VA_ARGS__), child_##name, text, sizeof text); \
  }
IN_CHILD(places, "TZ=UTC")
IN_CHILD(foreign, "TZ=UTC")
IN_CHILD(no_home, "HOME=")
IN_CHILD(none, "NCCL_HOST_FIGURES=none")
IN_CHILD(named, "TZ=UTC")

// Asked for several times: said once, as a warning.
static void child_said_once(void)
{
  begin();
  write_there(0666);
  for (int i = 0; i < 3; i++) {
    assert_false(tt_figures_own()->figures.measured);
  }
  end();
}

static void said_once(void **state)
{
  (void)state;
  char text[4096];
  child_run(CHILD_ENV("NCCL_DEBUG=WARN"), child_said_once, text, sizeof text);
  assert_int_equal(count_of(text, "the figures of this machine are not used"), 1);
  assert_contains(text, "others may write it (mode 666). tutti-tune --machine measures them");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read),
      cmocka_unit_test(bad_texts),
      cmocka_unit_test(no_texts),
      cmocka_unit_test(own_figures_are_one),
      cmocka_unit_test(places),
      cmocka_unit_test(foreign),
      cmocka_unit_test(no_home),
      cmocka_unit_test(none),
      cmocka_unit_test(named),
      cmocka_unit_test(said_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
