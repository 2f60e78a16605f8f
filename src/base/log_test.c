#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <regex.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/log_priv.h"
#include "base/param.h"
#include "base/test_child.h"

static void assert_matches(const char *text, const char *pattern)
{
  regex_t re;
  assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
  int res = regexec(&re, text, 0, NULL, 0);
  regfree(&re);
  if (res != 0) {
    fail_msg("does not match %s:\n%s", pattern, text);
  }
}

static void talk(void)
{
  tt_log_version();
  tt_log_version();
  tt_warn("warned %d", 1);
  tt_info(TT_INIT, "about init");
  tt_info(TT_COLL, "about coll");
  tt_log_device(5);
  tt_trace(TT_CALL, "ncclFoo(%d)", 2);
  tt_trace(TT_INIT, "traced");
}

static void talk_of_all_levels(void)
{
  tt_warn("one");
  tt_attn(TT_INIT, "two");
  tt_info(TT_INIT, "three");
  tt_trace(TT_INIT, "four");
}

static void talk_with_errno(void)
{
  errno = EBADF;
  tt_warn("x");
  tt_info(TT_INIT, "y");
  printf("errno kept: %d\n", errno == EBADF);
}

static void silent_by_default(void **unused)
{
  (void)unused;
  char out[4096];
  child_run(CHILD_ENV("LANG=C"), talk, out, sizeof out);
  assert_string_equal(out, "");
  child_run(CHILD_ENV("NCCL_DEBUG=none"), talk, out, sizeof out);
  assert_string_equal(out, "");
}

static void levels(void **unused)
{
  (void)unused;
  char out[4096];
  child_run(CHILD_ENV("NCCL_DEBUG=VERSION"), talk, out, sizeof out);
  assert_matches(out, "^NCCL version 2\\.32\\.3 \\(Tutti [0-9.]+\\)\n$");
  child_run(CHILD_ENV("NCCL_DEBUG=warn"), talk, out, sizeof out);
  assert_matches(out, "^NCCL version [^\n]*\n\n\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\\] [^: ]+:[0-9]+:[0-9]+ "
                      "\\[0\\] base/log_test\\.c:[0-9]+ NCCL WARN warned 1\n$");
  child_run(CHILD_ENV("NCCL_DEBUG=INFO"), talk, out, sizeof out);
  assert_matches(out, "[^: ]+:[0-9]+:[0-9]+ \\[0\\] NCCL INFO about init\n");
  assert_int_equal(count_of(out, "NCCL version"), 1);
  assert_int_equal(count_of(out, "about coll"), 0);
  child_run(CHILD_ENV("NCCL_DEBUG=TRACE", "NCCL_DEBUG_SUBSYS=ALL"), talk, out, sizeof out);
  assert_matches(out, "[^: ]+:[0-9]+:[0-9]+ NCCL CALL ncclFoo\\(2\\)\n");
  assert_matches(out, ":[0-9]+ \\[5\\] [0-9.]+ base/log_test\\.c:[0-9]+ NCCL TRACE traced\n");
  child_run(CHILD_ENV("NCCL_DEBUG=INFO"), talk_with_errno, out, sizeof out);
  assert_contains(out, "errno kept: 1");
}

// ATTN stands between WARN and INFO; single levels come on top.
static void levels_of_attention(void **unused)
{
  (void)unused;
  char out[4096];
  child_run(CHILD_ENV("NCCL_DEBUG=ATTN"), talk_of_all_levels, out, sizeof out);
  assert_matches(out, "NCCL WARN one\n\\[[0-9-]{10} [0-9:]{8}\\] [^\n]* \\[0\\] NCCL ATTN two\n$");
  child_run(CHILD_ENV("NCCL_DEBUG=WARN"), talk_of_all_levels, out, sizeof out);
  assert_int_equal(count_of(out, "NCCL ATTN"), 0);
  child_run(CHILD_ENV("NCCL_DEBUG=INFO"), talk_of_all_levels, out, sizeof out);
  assert_int_equal(count_of(out, "NCCL ATTN"), 1);
  child_run(CHILD_ENV("NCCL_DEBUG=WARN", "NCCL_DEBUG_LEVELS=trace"), talk_of_all_levels, out, sizeof out);
  assert_int_equal(count_of(out, "NCCL ATTN") + count_of(out, "NCCL INFO"), 0);
  assert_int_equal(count_of(out, "NCCL WARN") + count_of(out, "NCCL TRACE four"), 2);
  child_run(CHILD_ENV("NCCL_DEBUG_LEVELS=ATTN"), talk_of_all_levels, out, sizeof out);
  assert_matches(out, "NCCL ATTN two\n$");
  assert_int_equal(count_of(out, "NCCL"), 1);
}

static void talk_for_the_job(void)
{
  dup2(STDOUT_FILENO, STDERR_FILENO);
  tt_advice_speak();
  talk();
}

// One process of a job says what is wrong with the log's settings; the others use the same ones in silence.
static void bad_settings_are_named(void **unused)
{
  (void)unused;
  static const struct {
    const char *setting, *text;
  } cases[] = {
      {"NCCL_DEBUG=loud", "NCCL WARN NCCL_DEBUG=loud is no level"},
      {"NCCL_DEBUG_SUBSYS=INIT,COL", "NCCL WARN NCCL_DEBUG_SUBSYS: there is no subsystem COL;"},
      {"NCCL_DEBUG_SUBSYS=FOO", "NCCL WARN NCCL_DEBUG_SUBSYS: there is no subsystem FOO;"},
      {"NCCL_DEBUG_TIMESTAMP_LEVELS=FOO", "NCCL WARN NCCL_DEBUG_TIMESTAMP_LEVELS: there is no level FOO;"},
      {"NCCL_DEBUG_LEVELS=WARN,FOO", "NCCL WARN NCCL_DEBUG_LEVELS: there is no level FOO;"},
      {"NCCL_DEBUG_FILE=/nonexistent/x",
       "NCCL WARN NCCL_DEBUG_FILE: cannot open /nonexistent/x (No such file or directory)"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char out[4096];
    bool quiet = strncmp(cases[i].setting, "NCCL_DEBUG_FILE", 15) == 0; // the log has a file only where it has lines
    child_run(CHILD_ENV("NCCL_DEBUG=WARN", cases[i].setting), talk_for_the_job, out, sizeof out);
    assert_int_equal(count_of(out, cases[i].text), 1);
    assert_int_equal(count_of(out, "warned 1"), 1);
    child_run(CHILD_ENV("NCCL_DEBUG=WARN", cases[i].setting), talk, out, sizeof out);
    assert_int_equal(count_of(out, "NCCL WARN"), 1);
    assert_int_equal(count_of(out, "warned 1"), 1);
    if (i > 0) {
      child_run(CHILD_ENV(cases[i].setting), talk_for_the_job, out, sizeof out);
      assert_int_equal(count_of(out, cases[i].text), !quiet);
    }
  }
}

// The list that counts in place of one without a good name is the documented default.
static void the_usual_subsystems(void **unused)
{
  (void)unused;
  char bad[8], out[4096];
  const char *usual = tt_param_find("NCCL_DEBUG_SUBSYS")->def_text;
  assert_string_equal(usual, "\"INIT,BOOTSTRAP,ENV\"");
  assert_int_equal(tt_log_parse_subsys("INIT,BOOTSTRAP,ENV", bad, sizeof bad), TT_INIT | TT_BOOTSTRAP | TT_ENV);
  child_run(CHILD_ENV("NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=FOO"), talk, out, sizeof out);
  assert_int_equal(count_of(out, "about init"), 1);
  assert_int_equal(count_of(out, "about coll"), 0);
  child_run(CHILD_ENV("NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=^ALL"), talk, out, sizeof out);
  assert_string_equal(out, "");
}

static char dir[] = "/tmp/tt_log_test.XXXXXX";
static char pattern[128];

static void talk_reset_talk(void)
{
  tt_warn("first");
  tt_log_reset();
  tt_warn("second");
  setenv("NCCL_DEBUG", "VERSION", 1);
  tt_log_reset();
  tt_warn("third");
  setenv("NCCL_DEBUG", "INFO", 1);
  snprintf(pattern, sizeof pattern, "%s/other", dir);
  setenv("NCCL_DEBUG_FILE", pattern, 1);
  tt_log_reset();
  tt_warn("fourth");
  printf("%d\n", (int)getpid());
}

static void read_file(const char *path, char *out, size_t size)
{
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  out[fread(out, 1, size - 1, f)] = '\0';
  fclose(f);
  unlink(path);
}

static void file_and_reset(void **unused)
{
  (void)unused;
  char out[4096];
  char path[300];
  char text[4096];
  assert_non_null(mkdtemp(dir));
  snprintf(pattern, sizeof pattern, "NCCL_DEBUG_FILE=%s/%%p.log", dir);
  child_run(CHILD_ENV("NCCL_DEBUG=INFO", pattern), talk_reset_talk, out, sizeof out);
  snprintf(path, sizeof path, "%s/%d.log", dir, atoi(out));
  read_file(path, text, sizeof text);
  assert_contains(text, "first");
  assert_contains(text, "second");
  assert_int_equal(count_of(text, "third") + count_of(text, "fourth"), 0);
  snprintf(path, sizeof path, "%s/other", dir);
  read_file(path, text, sizeof text);
  assert_contains(text, "fourth");
  rmdir(dir);
}

static void *talk_much(void *arg)
{
  for (int i = 0; i < 200; i++) {
    tt_info(TT_INIT, "line %s end", (const char *)arg);
    if (i % 50 == 0) {
      tt_log_reset();
    }
  }
  return NULL;
}

static void threads_talk(void)
{
  static char text[400];
  pthread_t t[4];
  memset(text, 'x', sizeof text - 1);
  for (int i = 0; i < 4; i++) {
    pthread_create(&t[i], NULL, talk_much, text);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(t[i], NULL);
  }
}

static void threads_write_whole_lines(void **unused)
{
  (void)unused;
  static char out[1 << 20];
  char want[420];
  memset(want, 'x', sizeof want);
  snprintf(want, sizeof want, "NCCL INFO line %0399d end\n", 0);
  for (char *p = want + 15; *p == '0'; p++) {
    *p = 'x';
  }
  child_run(CHILD_ENV("NCCL_DEBUG=INFO"), threads_talk, out, sizeof out);
  assert_int_equal(count_of(out, want), 800);
}

static void long_line(void)
{
  tt_warn("%9000d", 1);
  tt_log_raw("raw\n", 4);
}

static void long_line_is_cut(void **unused)
{
  (void)unused;
  char out[16384];
  child_run(CHILD_ENV("NCCL_DEBUG=WARN"), long_line, out, sizeof out);
  assert_int_equal(strlen(out), 4096 + 4);
  assert_string_equal(out + 4095, "\nraw\n");
}

// Standard output is a pipe that nobody reads any more.
static void talk_to_nobody(void)
{
  int ends[2], out = dup(STDOUT_FILENO);
  assert_int_equal(pipe(ends), 0);
  close(ends[0]);
  dup2(ends[1], STDOUT_FILENO);
  tt_warn("lost");
  dup2(out, STDOUT_FILENO);
  printf("alive\n");
}

static void lost_readers_end_nobody(void **unused)
{
  (void)unused;
  char out[4096], path[] = "/tmp/tutti-log-XXXXXX", fifo[64], setting[96];
  child_run(CHILD_ENV("NCCL_DEBUG=WARN"), talk_to_nobody, out, sizeof out);
  assert_string_equal(out, "alive\n");
  assert_non_null(mkdtemp(path));
  snprintf(fifo, sizeof fifo, "%s/fifo", path);
  snprintf(setting, sizeof setting, "NCCL_DEBUG_FILE=%s", fifo);
  assert_int_equal(mkfifo(fifo, 0600), 0);
  child_run(CHILD_ENV("NCCL_DEBUG=WARN", setting), talk, out, sizeof out); // would wait for a reader for ever
  assert_contains(out, "warned 1");
  unlink(fifo);
  rmdir(path);
}

static void say_once(void)
{
  tt_advice_speak();
  tt_warn("said");
}

// Does the log go to `path`? `why` (NULL: it does) is what standard output says otherwise.
static void expect_log(const char *path, const char *why)
{
  char out[4096], text[4096] = "", setting[320];
  snprintf(setting, sizeof setting, "NCCL_DEBUG_FILE=%s", path);
  child_run(CHILD_ENV("NCCL_DEBUG=WARN", setting), say_once, out, sizeof out);
  assert_int_equal(count_of(out, "said"), why != NULL);
  if (why != NULL) {
    assert_contains(out, why);
    return;
  }
  read_file(path, text, sizeof text); // and removes it
  assert_contains(text, "said");
}

static char *below(const char *folder, const char *name)
{
  static char path[4][320];
  static int turn;
  turn = (turn + 1) % 4;
  snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
  return path[turn];
}

static void make_victim(const char *folder)
{
  FILE *f = fopen(below(folder, "victim"), "we");
  assert_non_null(f);
  fputs("precious", f);
  fclose(f);
}

// Links of this user's own are followed. Other people's, and files with a second name, are not touched.
static void strange_files_are_left_alone(void **unused)
{
  (void)unused;
  char folder[] = "/tmp/tutti-log-XXXXXX", text[64];
  assert_non_null(mkdtemp(folder));
  make_victim(folder);
  assert_int_equal(symlink("victim", below(folder, "link")), 0);
  expect_log(below(folder, "link"), NULL);
  make_victim(folder);
  assert_int_equal(link(below(folder, "victim"), below(folder, "second")), 0);
  expect_log(below(folder, "second"), "2 names");
  unlink(below(folder, "second"));
  if (geteuid() == 0) { // only root can make other users' links
    assert_int_equal(symlink("victim", below(folder, "link")), 0);
    assert_int_equal(lchown(below(folder, "link"), 12345, 12345), 0);
    expect_log(below(folder, "link"), "the link belongs to user 12345");
    unlink(below(folder, "link"));
    assert_int_equal(rename(below(folder, "victim"), below(folder, "theirs")), 0);
    assert_int_equal(lchown(below(folder, "theirs"), 12345, 12345), 0);
    expect_log(below(folder, "theirs"), "the file belongs to user 12345");
    assert_int_equal(rename(below(folder, "theirs"), below(folder, "victim")), 0);
  }
  read_file(below(folder, "victim"), text, sizeof text);
  assert_string_equal(text, "precious");
  rmdir(folder);
}

static void parses_lists(void **unused)
{
  (void)unused;
  char bad[8];
  assert_int_equal(tt_log_parse_subsys("INIT, coll ,P2P", bad, sizeof bad), TT_INIT | TT_COLL | TT_P2P);
  assert_string_equal(bad, "");
  assert_int_equal(tt_log_parse_subsys("^INIT,COLL", bad, sizeof bad), ~(unsigned)(TT_INIT | TT_COLL));
  assert_int_equal(tt_log_parse_subsys("ALL", bad, sizeof bad), ~0u);
  assert_int_equal(tt_log_parse_subsys("^ALL", bad, sizeof bad), 0);
  assert_int_equal(tt_log_parse_subsys("", bad, sizeof bad), 0);
  assert_int_equal(tt_log_parse_subsys(",,NET,", bad, sizeof bad), TT_NET);
  assert_int_equal(tt_log_parse_subsys("NETWORKING,SHM", bad, sizeof bad), TT_SHM);
  assert_string_equal(bad, "NETWORK");
  assert_int_equal(tt_log_parse_levels("WARN,INFO", bad, sizeof bad), 1u << TT_LOG_WARN | 1u << TT_LOG_INFO);
  tt_log_level level = TT_LOG_NONE;
  assert_int_equal(tt_log_parse_levels("attn", bad, sizeof bad), 1u << TT_LOG_ATTN);
  assert_int_equal(tt_log_levels_to(TT_LOG_NONE), 1u << TT_LOG_NONE);
  assert_int_equal(tt_log_levels_to(TT_LOG_ATTN),
                   1u << TT_LOG_NONE | 1u << TT_LOG_VERSION | 1u << TT_LOG_WARN | 1u << TT_LOG_ATTN);
  assert_int_equal(tt_log_levels_to(TT_LOG_TRACE), 0x7f);
  assert_true(tt_log_parse_level("Trace", &level));
  assert_int_equal(level, TT_LOG_TRACE);
  assert_false(tt_log_parse_level("ALL", &level));
  assert_false(tt_log_parse_level("", &level));
}

static void expands_names(void **unused)
{
  (void)unused;
  char out[32];
  assert_true(tt_log_expand("a.%h.%p", "box", 42, out, sizeof out));
  assert_string_equal(out, "a.box.42");
  assert_true(tt_log_expand("%%p%x%", "box", 42, out, sizeof out));
  assert_string_equal(out, "%p%x%");
  assert_false(tt_log_expand("%h%h%h%h%h%h%h%h%h%h%h", "box", 42, out, sizeof out));
}

static void stamps(void **unused)
{
  (void)unused;
  char out[64];
  setenv("TZ", "UTC", 1);
  assert_int_equal(tt_log_stamp("[%F_%T.%3f] ", 0, 987654321, out, sizeof out), 26);
  assert_string_equal(out, "[1970-01-01 00:00:00.987] ");
  tt_log_stamp("%%3f %9f ", 0, 5, out, sizeof out);
  assert_string_equal(out, "%3f 000000005 ");
  assert_int_equal(tt_log_stamp("", 0, 0, out, sizeof out), 0);
  tt_log_stamp("%c %c %c %c", 0, 0, out, sizeof out); // too long: the default
  assert_string_equal(out, "[1970-01-01 00:00:00] ");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(silent_by_default),
      cmocka_unit_test(levels),
      cmocka_unit_test(levels_of_attention),
      cmocka_unit_test(bad_settings_are_named),
      cmocka_unit_test(the_usual_subsystems),
      cmocka_unit_test(file_and_reset),
      cmocka_unit_test(threads_write_whole_lines),
      cmocka_unit_test(long_line_is_cut),
      cmocka_unit_test(lost_readers_end_nobody),
      cmocka_unit_test(strange_files_are_left_alone),
      cmocka_unit_test(parses_lists),
      cmocka_unit_test(expands_names),
      cmocka_unit_test(stamps),
  };
  return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
