#include "plugin/profiler/profiler.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// Two recorders, of versions 3 and 6 (tests/plugins/recorder.h); the third place of the list is empty until a test puts
// one there.
static char base[64], late[128], gate[128];

static const char *plugin_of(int version)
{
  static char path[1024];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/tests/plugins/librecorder_v%d.so", build != NULL ? build : "build", version);
  return path;
}

static int setup(void **state)
{
  (void)state;
  static char list[4096];
  snprintf(base, sizeof base, "/tmp/tutti_profilers_%d", (int)getpid());
  snprintf(late, sizeof late, "%s_late.so", base);
  snprintf(gate, sizeof gate, "6:%s_gate", base);
  int n = snprintf(list, sizeof list, "%s,", plugin_of(3));
  snprintf(list + n, sizeof list - (size_t)n, "%s,%s", plugin_of(6), late);
  setenv("NCCL_PROFILER_PLUGIN", list, 1);
  setenv("TUTTI_RECORD", base, 1);
  return 0;
}

// What a version's recorder has written.
static const char *said(int version, bool last)
{
  static char text[1 << 20];
  char name[128];
  snprintf(name, sizeof name, "%s.v%d.%d", base, version, (int)getpid());
  FILE *f = fopen(name, "r");
  if (f == NULL) { // it has not begun
    return "";
  }
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
  assert_int_equal(
      tt_profilers_open(&(tt_profilers_env){.name = "job", .hash = 7, .nnodes = 1, .nranks = 2, .rank = 1}, &p),
      ncclSuccess);
  assert_non_null(p);
  return p;
}

// Waits until a version's recorder has written `text` so many times.
static void await(int version, const char *text, int times)
{
  for (int n = 0; n < times; usleep(1000)) {
    n = 0;
    for (const char *at = said(version, false); (at = strstr(at, text)) != NULL; at++) {
      n++;
    }
  }
}

static void close_and_forget(tt_profilers *p)
{
  tt_profilers_close(p);
  said(6, true);
  said(3, true);
}

static void *step_of(tt_prof_net *n, tt_profilers *p, uint32_t number, tt_prof_event *step)
{
  tt_prof_descr d = {.type = ncclProfileProxyStep, .rank = 1, .proxyStep = {.step = (int)number}};
  tt_profilers_start(p, &d, NULL, NULL, step);
  return tt_prof_net_message(n, number, step, 1);
}

static void events_of_network_plugins_hang_below_the_step(void **state)
{
  (void)state;
  tt_profilers *p = open_them();
  tt_prof_net *n = tt_prof_net_open(p);
  tt_prof_event step;
  void *first = NULL, *second = NULL, *third = &step;
  void *phandle = step_of(n, p, 4, &step);
  tt_profilers_net_callback(&first, ncclProfilerNetEventStart, phandle, NCCL_PROFILER_NET_TYPE_SOCK | 1, NULL);
  tt_profilers_net_callback(&second, ncclProfilerNetEventStart, phandle, NCCL_PROFILER_NET_TYPE_IB | 1, NULL);
  tt_profilers_net_callback(&third, ncclProfilerNetEventStart, phandle, 0, NULL);
  assert_non_null(first);
  tt_profilers_net_callback(&first, ncclProfilerNetEventUpdate, NULL, 0, NULL);
  tt_profilers_net_callback(&first, ncclProfilerNetEventStop, NULL, 0, NULL);
  tt_profilers_net_callback(&first, ncclProfilerNetEventStop, NULL, 0, NULL); // once is enough
  assert_null(first);
  tt_profilers_net_callback(&third, ncclProfilerNetEventUpdateAndStop, NULL, 0, NULL);
  tt_profilers_stop(p, &step);
  tt_profilers_stop(p, &step);
  tt_profilers_net_callback(&first, ncclProfilerNetEventStart, phandle, 7, NULL); // late, and never stopped
  tt_prof_net_close(n);                                                           // nor was `second`
  tt_profilers_close(p);
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
                                     "start NetPlugin#4 parent=ProxyStep#1 rank=1 id=0x7\n"
                                     "stop NetPlugin#4\n"
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
                                     "start NetPlugin#4 parent=ProxyStep#1 rank=1 id=0x7\n"
                                     "stop NetPlugin#4\n"
                                     "stop NetPlugin#2\n"
                                     "finalize rank=-1\n");
  tt_profilers_net_callback(&first, ncclProfilerNetEventStart, NULL, 0, NULL); // a message nobody wants to know of
  assert_null(first);
}

static void a_plugin_may_be_late(void **state)
{
  (void)state;
  tt_profilers *p = open_them();
  tt_prof_net *n = tt_prof_net_open(p);
  tt_prof_event old, young;
  void *first, *second, *none = &old;
  void *phandle = step_of(n, p, 3, &old);
  tt_profilers_net_callback(&first, ncclProfilerNetEventStart, phandle, 1, NULL);
  tt_profilers_stop(p, &old);
  assert_ptr_equal(step_of(n, p, 3 + TT_PROF_NET_MESSAGES, &young), phandle); // a later message has its record
  tt_profilers_net_callback(&second, ncclProfilerNetEventStart, phandle, 2, NULL);
  tt_profilers_net_callback(&first, ncclProfilerNetEventUpdateAndStop, phandle, 1, NULL);
  tt_profilers_stop(p, &young);
  tt_prof_net_leave(n);
  tt_profilers_close(p); // which finalizes them: the connection does not hold them any more
  assert_non_null(
      strstr(said(6, false),
             "start NetPlugin#2 parent=ProxyStep#2 rank=1 id=0x2\nstate NetPlugin#1 NetUpdate\nstop NetPlugin#1\n"
             "stop ProxyStep#2\nstop NetPlugin#2\nfinalize rank=1\n"));
  // Its handles are good as long as the connection is there.
  tt_profilers_net_callback(&second, ncclProfilerNetEventUpdate, NULL, 2, NULL);
  tt_profilers_net_callback(&second, ncclProfilerNetEventUpdateAndStop, NULL, 2, NULL);
  tt_profilers_net_callback(&none, ncclProfilerNetEventStart, phandle, 3, NULL);
  assert_null(none);
  const char *text = said(6, true);
  assert_string_equal(strstr(text, "finalize"), "finalize rank=1\n"); // the last line
  tt_prof_net_leave(n);
  tt_prof_net_close(n);
  tt_prof_net_close(NULL);
  said(3, true);
}

enum { MOST_TOLD = 1000 };

// A plugin's thread, which tells what it likes of the messages that it has heard of.
typedef struct teller {
  pthread_t thread;
  _Atomic(void *) *phandles;
  _Atomic bool stop;
} teller;

static void *tell(void *arg)
{
  teller *t = arg;
  void *running[8] = {NULL};
  for (unsigned i = 0, n = 0; !atomic_load(&t->stop); i++) {
    void *phandle = atomic_load(&t->phandles[i % 16]), **event = &running[i * 5 % 8];
    if (*event == NULL && phandle != NULL && n++ < MOST_TOLD) { // the records shall not become too long
      tt_profilers_net_callback(event, ncclProfilerNetEventStart, phandle, (int)i, NULL);
    } else if (*event != NULL) {
      tt_profilers_net_callback(event, 1 + (int)(i % 3), NULL, 0, NULL);
    }
  }
  return NULL;
}

static void plugins_may_tell_from_threads_of_their_own(void **state)
{
  (void)state;
  tt_profilers *p = open_them();
  tt_prof_net *n = tt_prof_net_open(p);
  static _Atomic(void *) phandles[16];
  tt_prof_event steps[16] = {0};
  static teller tellers[3];
  for (int i = 0; i < 3; i++) {
    tellers[i].phandles = phandles;
    pthread_create(&tellers[i].thread, NULL, tell, &tellers[i]);
  }
  for (uint32_t i = 0; i < 100; i++) { // messages come and go
    tt_profilers_stop(p, &steps[i % 16]);
    atomic_store(&phandles[i % 16], step_of(n, p, i, &steps[i % 16]));
    if (i == 50) {
      await(6, "stop NetPlugin", 100);
    }
  }
  for (int i = 0; i < 16; i++) {
    tt_profilers_stop(p, &steps[i]);
  }
  tt_prof_net_leave(n); // while they go on
  tt_profilers_close(p);
  for (int i = 0; i < 3; i++) {
    atomic_store(&tellers[i].stop, true);
    pthread_join(tellers[i].thread, NULL);
  }
  tt_prof_net_close(n);
  const char *text = said(6, true);
  int started = 0, stopped = 0;
  for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
    started += strncmp(line, "start NetPlugin#", 16) == 0;
    stopped += strncmp(line, "stop NetPlugin#", 15) == 0;
  }
  assert_true(started >= 100);
  assert_int_equal(started, stopped);
  assert_null(strstr(text, "ERROR"));
  assert_non_null(strstr(text, "finalize rank=1\n"));
  said(3, true);
}

static void whoever_holds_them_last_ends_them(void **state)
{
  (void)state;
  tt_profilers *p = open_them(), *other = open_them();
  uint64_t id = tt_profilers_id(p);
  tt_profilers_hold(p);
  tt_profilers_close(p);
  assert_null(strstr(said(6, false), "finalize"));
  assert_true(tt_profilers_want(p, ncclProfileCeBatch));
  assert_true(tt_profilers_want(p, ncclProfileGroupApi));
  assert_false(tt_profilers_want(NULL, ncclProfileGroupApi));
  assert_ptr_equal(tt_profilers_find(id), p);
  tt_profilers_release(p);
  tt_profilers_release(p);
  await(6, "finalize rank=1\n", 1); // by a thread of its own
  assert_null(tt_profilers_find(id));
  assert_null(tt_profilers_find(0));
  tt_profilers_close(other);
  assert_non_null(strstr(said(6, true), "finalize rank=1\nfinalize rank=1\n"));
  said(3, true);
  tt_profilers_release(NULL);
  assert_int_equal(tt_profilers_id(NULL), 0);
}

static void a_plugin_that_blocks_blocks_nobody_who_releases(void **state)
{
  (void)state;
  tt_profilers *p = open_them();
  tt_profilers_hold(p);
  tt_profilers_close(p);
  setenv("TUTTI_RECORD_GATE", gate, 1);
  tt_profilers_release(p); // and returns, though finalize waits for the gate
  assert_null(strstr(said(6, false), "finalize"));
  fclose(fopen(gate + 2, "w"));
  await(6, "finalize rank=1\n", 1);
  remove(gate + 2);
  unsetenv("TUTTI_RECORD_GATE");
  said(6, true);
  said(3, true);
}

static void *open_one(void *out)
{
  *(tt_profilers **)out = open_them();
  return NULL;
}

static void a_slow_library_does_not_keep_others_waiting(void **state)
{
  (void)state;
  tt_profilers *p[2];
  pthread_t threads[2];
  setenv("TUTTI_RECORD_GATE", gate, 1);
  for (int i = 0; i < 2; i++) {
    pthread_create(&threads[i], NULL, open_one, &p[i]);
  }
  await(3, "init\n", 2);
  await(6, " name", 1); // while version 6 waits in its first init
  assert_ptr_equal(strstr(said(6, false), "init") + 4, strstr(said(6, false), " name"));
  fclose(fopen(gate + 2, "w"));
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
    tt_profilers_close(p[i]);
  }
  remove(gate + 2);
  unsetenv("TUTTI_RECORD_GATE");
  said(6, true);
  said(3, true);
}

static void what_was_not_there_is_looked_for_again(void **state)
{
  (void)state;
  tt_profilers *p = open_them();
  assert_int_equal(symlink(realpath(plugin_of(4), (char[4096]){0}), late), 0);
  tt_profilers *other = open_them(); // not as long as there is a communicator: libraries are those of the first
  tt_profilers_close(p);
  close_and_forget(other);
  p = open_them();
  assert_non_null(strstr(said(4, true), "init name=job"));
  close_and_forget(p);
  remove(late);
}

// Blocks are kept, come back zeroed, and go with the profilers, even while another holder has them.
static void memory_of_operations_is_kept(void **state)
{
  (void)state;
  enum { N = 100, BYTES = 200 };
  const char zeros[BYTES] = {0};
  tt_profilers *p = open_them();
  char *blocks[N];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < N; i++) {
      blocks[i] = tt_profilers_take(p, BYTES);
      assert_non_null(blocks[i]);
      assert_memory_equal(blocks[i], zeros, BYTES);
      memset(blocks[i], 0xff, BYTES);
    }
    for (int i = 0; i < N; i++) {
      tt_profilers_give(p, blocks[i]);
    }
  }
  char *again = tt_profilers_take(p, BYTES); // was used before
  bool known = false;
  for (int i = 0; i < N; i++) {
    known |= again == blocks[i];
  }
  assert_true(known);
  tt_profilers_give(p, again);
  close_and_forget(p);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(events_of_network_plugins_hang_below_the_step),
      cmocka_unit_test(a_plugin_may_be_late),
      cmocka_unit_test(plugins_may_tell_from_threads_of_their_own),
      cmocka_unit_test(whoever_holds_them_last_ends_them),
      cmocka_unit_test(a_plugin_that_blocks_blocks_nobody_who_releases),
      cmocka_unit_test(a_slow_library_does_not_keep_others_waiting),
      cmocka_unit_test(what_was_not_there_is_looked_for_again),
      cmocka_unit_test(memory_of_operations_is_kept),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
