#include "plugin/profiler/profiler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// Two recorders, of versions 6 and 3 (tests/plugins/recorder.h).
static char base[64];

static int setup(void **state)
{
  (void)state;
  static char list[4096];
  const char *build = getenv("TUTTI_BUILD");
  build = build != NULL ? build : "build";
  snprintf(base, sizeof base, "/tmp/tutti_profilers_%d", (int)getpid());
  snprintf(list, sizeof list, "%s/tests/plugins/librecorder_v6.so,%s/tests/plugins/librecorder_v3.so", build, build);
  setenv("NCCL_PROFILER_PLUGIN", list, 1);
  setenv("TUTTI_RECORD", base, 1);
  return 0;
}

// What a version's recorder has written.
static const char *said(int version, bool last)
{
  static char text[16384];
  char name[128];
  snprintf(name, sizeof name, "%s.v%d.%d", base, version, (int)getpid());
  FILE *f = fopen(name, "r");
  assert_non_null(f);
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  if (last) {
    remove(name);
  }
  return text;
}

static tt_profilers *open_them(void)
{
  tt_profilers *p = NULL;
  assert_int_equal(tt_profilers_open(&(tt_profilers_env){.name = "job", .hash = 7, .nnodes = 1, .nranks = 2, .rank = 1}, &p), ncclSuccess);
  assert_non_null(p);
  return p;
}

static void events_of_network_plugins_hang_below_the_step(void **state)
{
  (void)state;
  tt_profilers *p = open_them();
  tt_prof_net n = {.profilers = p, .rank = 1};
  tt_prof_descr d = {.type = ncclProfileProxyStep, .rank = 1, .proxyStep = {.step = 4}};
  void *first = NULL, *second = NULL, *third = NULL;
  tt_profilers_start(p, &d, NULL, NULL, &n.step);
  tt_profilers_net_callback(&first, ncclProfilerNetEventStart, &n, NCCL_PROFILER_NET_TYPE_SOCK | 1, NULL);
  tt_profilers_net_callback(&second, ncclProfilerNetEventStart, &n, NCCL_PROFILER_NET_TYPE_IB | 1, NULL);
  tt_profilers_net_callback(&third, ncclProfilerNetEventStart, &n, 0, NULL);
  assert_non_null(first);
  tt_profilers_net_callback(&first, ncclProfilerNetEventUpdate, NULL, 0, NULL);
  tt_profilers_net_callback(&first, ncclProfilerNetEventStop, NULL, 0, NULL);
  tt_profilers_net_callback(&first, ncclProfilerNetEventStop, NULL, 0, NULL); // once is enough
  assert_null(first);
  tt_profilers_net_callback(&third, ncclProfilerNetEventUpdateAndStop, NULL, 0, NULL);
  tt_profilers_stop(p, &n.step);
  tt_profilers_stop(p, &n.step);
  tt_profilers_release(p); // `second` was never stopped
  assert_string_equal(said(6, true), "init name=job id=set nodes=1 ranks=2 rank=1\n"
                                     "start ProxyStep#1 parent=- rank=1 step=4\n"
                                     "start NetPlugin#1 parent=ProxyStep#1 rank=1 id=0x20001\n"
                                     "start NetPlugin#2 parent=ProxyStep#1 rank=1 id=0x10001\n"
                                     "start NetPlugin#3 parent=ProxyStep#1 rank=1 id=0x0\n"
                                     "state NetPlugin#1 NetUpdate\n"
                                     "stop NetPlugin#1\n"
                                     "state NetPlugin#3 NetUpdate\n"
                                     "stop NetPlugin#3\n"
                                     "stop ProxyStep#1\n"
                                     "stop NetPlugin#2\n"
                                     "finalize rank=1\n");
  assert_string_equal(said(3, true), "init\n"
                                     "start ProxyStep#1 parent=- rank=1 step=4\n"
                                     "start NetPlugin#1 parent=ProxyStep#1 rank=1 id=0x20001\n"
                                     "start NetPlugin#2 parent=ProxyStep#1 rank=1 id=0x10001\n"
                                     "start NetPlugin#3 parent=ProxyStep#1 rank=1 id=0x0\n"
                                     "stop NetPlugin#1\n"
                                     "stop NetPlugin#3\n"
                                     "stop ProxyStep#1\n"
                                     "stop NetPlugin#2\n"
                                     "finalize rank=-1\n");
  tt_profilers_net_callback(&first, ncclProfilerNetEventStart, NULL, 0, NULL); // a message nobody wants to know of
  assert_null(first);
}

static void whoever_holds_them_last_ends_them(void **state)
{
  (void)state;
  tt_profilers *p = open_them(), *other = open_them();
  tt_profilers_hold(p);
  tt_profilers_release(p);
  assert_null(strstr(said(6, false), "finalize"));
  assert_true(tt_profilers_want(p, ncclProfileCeBatch));
  assert_true(tt_profilers_want(p, ncclProfileGroupApi));
  assert_false(tt_profilers_want(NULL, ncclProfileGroupApi));
  tt_profilers_release(p);
  tt_profilers_release(other);
  assert_non_null(strstr(said(6, true), "finalize rank=1\nfinalize rank=1\n"));
  said(3, true);
  tt_profilers_release(NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(events_of_network_plugins_hang_below_the_step),
      cmocka_unit_test(whoever_holds_them_last_ends_them),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
