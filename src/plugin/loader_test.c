#include "plugin/loader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/test_log.h"
#include "base/util.h"

static int group_start(void **state)
{
  (void)state;
  test_log_begin(NULL);
  return 0;
}

static const char *plugin_file(const char *name)
{
  static char path[4096];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/tests/plugins/lib%s.so", build != NULL ? build : "build", name);
  return path;
}

static tt_plugin *open_it(tt_plugin_kind kind, const char *wish)
{
  tt_plugin *p = (tt_plugin *)1;
  assert_int_equal(tt_plugin_open(kind, wish, NULL, &p), ncclSuccess);
  return p;
}

static void the_newest_known_version_is_taken(void **state)
{
  (void)state;
  tt_plugin *p = open_it(TT_PLUGIN_TUNER, plugin_file("two_kinds"));
  assert_non_null(p);
  assert_int_equal(tt_plugin_version(p), 3);
  assert_string_equal(*(const char *const *)tt_plugin_table(p), "two kinds");
  assert_string_equal(tt_plugin_path(p), plugin_file("two_kinds"));
  assert_non_null(strstr(said(), "TUNER/Plugin: loaded "));
  assert_int_equal(tt_plugin_offers(p, TT_PLUGIN_NET), 5);
  assert_int_equal(tt_plugin_offers(p, TT_PLUGIN_PROFILER), 0);
  assert_null(tt_plugin_symbol(p, "ncclProfiler_v4"));
  tt_plugin_close(p);
  tt_plugin_close(NULL);
}

static void a_missing_plugin_is_told_in_one_calm_line(void **state)
{
  (void)state;
  assert_null(open_it(TT_PLUGIN_PROFILER, NULL));
  const char *text = said();
  assert_null(strstr(text, "Plugin")); // nobody has asked for one

  assert_null(open_it(TT_PLUGIN_PROFILER, ""));
  said();
  assert_null(open_it(TT_PLUGIN_PROFILER, "nobody"));
  assert_non_null(strstr(
      said(), "NCCL_PROFILER_PLUGIN asks for nobody, which is not there; looked for: nobody libnccl-profiler-nobody.so "
              "librccl-profiler-nobody.so"));
  assert_null(open_it(TT_PLUGIN_TUNER, "/no/where/x.so"));
  assert_non_null(strstr(said(), "looked for: /no/where/x.so\n"));
  assert_null(open_it(TT_PLUGIN_TUNER, "libnobody.so"));
  assert_non_null(strstr(said(), "looked for: libnobody.so\n"));
  assert_null(open_it(TT_PLUGIN_TUNER, "NONE"));
  assert_non_null(strstr(said(), "TUNER/Plugin: none, as NCCL_TUNER_PLUGIN says"));
}

static void a_library_of_another_kind_is_named(void **state)
{
  (void)state;
  assert_null(open_it(TT_PLUGIN_PROFILER, plugin_file("two_kinds")));
  const char *text = said();
  assert_non_null(
      strstr(text, "is not used: it has no PROFILER plugin of versions 1 to 7; it has NET version 5, TUNER version 3"));
  assert_null(open_it(TT_PLUGIN_NET, plugin_file("two_kinds")));
  assert_non_null(strstr(said(), "no NET plugin of versions 6 to 12; it has NET version 5"));
}

static void a_file_that_is_no_library_is_refused_with_the_reason(void **state)
{
  (void)state;
  char path[64];
  snprintf(path, sizeof path, "/tmp/tutti_loader_%d.so", (int)getpid());
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs("This is no library, but a letter to whoever opens it.\n", f);
  fclose(f);
  assert_null(open_it(TT_PLUGIN_ENV, path));
  const char *text = said();
  assert_non_null(strstr(text, path));
  assert_non_null(strstr(text, "is there but cannot be loaded: "));
  remove(path);
  assert_int_equal(mkfifo(path, 0600), 0); // the linker would wait for its writer
  assert_null(open_it(TT_PLUGIN_ENV, path));
  assert_non_null(strstr(said(), "not a regular file"));
  remove(path);
  assert_null(open_it(TT_PLUGIN_ENV, "/tmp")); // a folder
  assert_non_null(strstr(said(), "cannot be loaded: "));
}

static void undefined_symbols_do_not_matter_until_called(void **state)
{
  (void)state;
  tt_plugin *p = open_it(TT_PLUGIN_PROFILER, plugin_file("needs_cuda"));
  assert_non_null(p);
  const char *text = said();
  assert_non_null(strstr(text, "cudaEventCreateWithFlagsOfNobody"));
  const tt_plugin_member members[] = {
      {0, "name"}, {sizeof(void *), "init"}, {2 * sizeof(void *), "third"}, {3 * sizeof(void *), "startEvent"}};
  assert_true(tt_plugin_complete(TT_PLUGIN_PROFILER, p, members, 1));
  assert_string_equal(said(), "");
  assert_false(tt_plugin_complete(TT_PLUGIN_PROFILER, p, members, 4));
  assert_non_null(strstr(said(), "its table of version 4 lacks: init startEvent"));
  tt_plugin_close(p);
}

static ncclResult_t in_library(const void *arg, tt_plugin_kind kind, tt_plugin **out)
{
  return tt_plugin_also(arg, kind, out);
}

static void the_fallback_is_asked_last(void **state)
{
  (void)state;
  tt_plugin *lib = open_it(TT_PLUGIN_TUNER, plugin_file("two_kinds")), *p = NULL;
  const tt_plugin_fallback fallback = {in_library, lib}, *net = &fallback;
  said();
  assert_int_equal(tt_plugin_open(TT_PLUGIN_TUNER, "nobody", net, &p), ncclSuccess);
  assert_non_null(p);
  assert_non_null(strstr(said(), "loaded from the network plugin"));
  tt_plugin_close(p);
  assert_int_equal(tt_plugin_open(TT_PLUGIN_PROFILER, NULL, net, &p), ncclSuccess);
  assert_null(p);
  assert_null(strstr(said(), "Plugin"));
  tt_plugin_close(lib);
  assert_int_equal(tt_plugin_peek(TT_PLUGIN_TUNER, plugin_file("two_kinds"), &p), ncclSuccess);
  assert_non_null(p);
  tt_plugin_close(p);
  assert_int_equal(tt_plugin_peek(TT_PLUGIN_NET, plugin_file("two_kinds"), &p), ncclSuccess);
  assert_null(p);
  assert_int_equal(tt_plugin_peek(TT_PLUGIN_NET, "none", &p), ncclSuccess);
  assert_null(p);
  assert_int_equal(tt_plugin_peek(TT_PLUGIN_NET, "/etc/passwd", &p), ncclSuccess);
  assert_null(p);
  assert_string_equal(said(), "");
}

// A table of the program itself; tests export their symbols.
const void *const ncclEnvPlugin_v2[4] __attribute__((visibility("default"))) = {"in the program"};

static void the_program_itself_can_be_the_plugin(void **state)
{
  (void)state;
  tt_plugin *p = open_it(TT_PLUGIN_ENV, "static_plugin");
  assert_non_null(p);
  assert_string_equal(tt_plugin_path(p), "the program");
  assert_ptr_equal(tt_plugin_table(p), ncclEnvPlugin_v2);
  tt_plugin_close(p);
  assert_null(open_it(TT_PLUGIN_TUNER, "STATIC_PLUGIN"));
  assert_non_null(
      strstr(said(), "the program is not used: it has no TUNER plugin of versions 2 to 6; it has ENV version 2"));
}

static void lists_are_split(void **state)
{
  (void)state;
  static const struct {
    tt_plugin_kind kind;
    const char *list;
    int most;
    const char *items; // with a bar behind each
    bool too_many;
  } cases[] = {{TT_PLUGIN_NET, " one, ,two words ,,three", 4, "one|two words|three|", false},
               {TT_PLUGIN_NET, " one, ,two words ,,three", 3, "one|two words|three|", false},
               {TT_PLUGIN_NET, "one,two,three", 2, "one|two|", true},
               {TT_PLUGIN_NET, "", 4, "", false}, // as NCCL has it: no plugin
               {TT_PLUGIN_NET, " , ", 4, "", false},
               {TT_PLUGIN_NET, NULL, 4, "(not set)|", false},
               {TT_PLUGIN_PROFILER, " ,one\t, ", 4, "one|", false},
               {TT_PLUGIN_PROFILER, "", 4, "(not set)|", false},
               {TT_PLUGIN_PROFILER, " ,\t, ", 4, "(not set)|", false},
               {TT_PLUGIN_PROFILER, NULL, 4, "(not set)|", false}};
  for (size_t i = 0; i < TT_COUNT(cases); i++) {
    char items[64] = "";
    tt_plugin_wishes w = {.kind = cases[i].kind, .list = cases[i].list, .most = cases[i].most};
    (void)said();
    while (tt_plugin_next_wish(&w)) {
      snprintf(items + strlen(items), sizeof items - strlen(items), "%s|", w.wish != NULL ? w.wish : "(not set)");
    }
    assert_string_equal(items, cases[i].items);
    assert_int_equal(strstr(said(), "NCCL_NET_PLUGIN: only the first 2 plugins") != NULL, cases[i].too_many);
  }
}

static void opened_and_closed_a_thousand_times(void **state)
{
  (void)state;
  for (int i = 0; i < 1000; i++) {
    tt_plugin *p = open_it(TT_PLUGIN_TUNER, plugin_file("two_kinds"));
    assert_non_null(p);
    tt_plugin_close(p);
    if (i % 16 == 0) {
      said();
    }
  }
}

static void plugins_write_into_the_log(void **state)
{
  (void)state;
  said();
  ncclDebugLogger_t logger = tt_plugin_log;
  logger(NCCL_LOG_INFO, NCCL_INIT, "plugin.c", 7, "%d of %s", 3, "four");
  logger(NCCL_LOG_TRACE, NCCL_INIT, "plugin.c", 8, "not at this level");
  const char *text = said();
  assert_non_null(strstr(text, "NCCL INFO 3 of four\n"));
  assert_null(strstr(text, "not at this level"));
  logger(NCCL_LOG_WARN, NCCL_ALL, NULL, 9, "watch out");
  assert_non_null(strstr(said(), "watch out"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_newest_known_version_is_taken),
      cmocka_unit_test(a_missing_plugin_is_told_in_one_calm_line),
      cmocka_unit_test(a_library_of_another_kind_is_named),
      cmocka_unit_test(a_file_that_is_no_library_is_refused_with_the_reason),
      cmocka_unit_test(undefined_symbols_do_not_matter_until_called),
      cmocka_unit_test(the_fallback_is_asked_last),
      cmocka_unit_test(the_program_itself_can_be_the_plugin),
      cmocka_unit_test(lists_are_split),
      cmocka_unit_test(opened_and_closed_a_thousand_times),
      cmocka_unit_test(plugins_write_into_the_log),
  };
  return cmocka_run_group_tests(tests, group_start, test_log_end);
}
