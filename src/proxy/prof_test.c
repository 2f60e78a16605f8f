// prof_test.c: what profilers hear of messages that rank 0 sends to rank 3 through rank 1's proxy, and which of the
// three ranks' profilers hear it until when. All ranks are of one process. The profiler is a recorder
// (tests/plugins/recorder.h) that finds handles used after their context was finalized.
#include "proxy/proxy_rig.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proxy/relay.h"

static char told[64]; // what the recorder writes: told.v6.PID
static tt_prof_event coll;

static tt_proxy *proxy(const rig *r, int rank)
{
  return r->ranks[rank].proxy;
}

static bool is_taken_on(const rig *r)
{
  const tt_relay *relay = tt_proxy_peer_find(proxy(r, 0), 3)->send.relay;
  return relay != NULL && atomic_load(&relay->bell) >= 0;
}

// What it has written so far in this process.
static const char *record(void)
{
  static char text[1 << 16];
  char name[128];
  snprintf(name, sizeof name, "%s.v6.%d", told, (int)getpid());
  FILE *f = fopen(name, "r");
  if (f == NULL) {
    return "";
  }
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  return text;
}

static bool says(const char *text)
{
  return strstr(record(), text) != NULL;
}

// Four ranks on two machines, each with a profiler, and an operation's event on rank 0.
static rig *open_told(void)
{
  static char list[4096];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(list, sizeof list, "%s/tests/plugins/librecorder_v6.so", build != NULL ? build : "build");
  setenv("NCCL_PROFILER_PLUGIN", list, 1);
  setenv("TUTTI_RECORD", told, 1);
  setenv("TUTTI_RECORD_MASK", "0x9a", 1); // Coll, ProxyOp, ProxyStep, NetPlugin
  for (int i = 0; i < 4; i++) {
    FAKE_DEMAND(tt_profilers_open(&(tt_profilers_env){.nnodes = 2, .nranks = 4, .rank = i}, &rig_profilers[i]) ==
                ncclSuccess);
  }
  fake_start(1);
  fake.ndevs = 2;
  fake.events = true;
  rig *r = rig_open_nodes(4, 2, &fake_net);
  rig_meet(r);
  rig_link(r, 0, 3, true);
  rig_link(r, 3, 0, true);
  tt_prof_descr d = {.type = ncclProfileColl};
  tt_profilers_start(rig_profilers[0], &d, NULL, NULL, &coll);
  FAKE_DEMAND(tt_prof_is_on(&coll));
  UNTIL(is_taken_on(r));
  return r;
}

static void post_told(rig *r, uint32_t n)
{
  tt_proxy_op op = rig_op(3, true, TT_LL, n);
  op.event = &coll;
  FAKE_DEMAND(tt_proxy_post(proxy(r, 0), &op) == ncclSuccess);
}

static void put(rig *r, int n)
{
  for (int i = 0; i < n; i++) {
    FAKE_DEMAND(rig_put(0, &r->ranks[0].links[3].send[TT_LL], TT_LL, 0x100000000ull, 77));
  }
}

static void leave_profilers(int rank)
{
  tt_profilers_close(rig_profilers[rank]);
  rig_profilers[rank] = NULL;
}

static void close_told(rig *r)
{
  rig_close(r);
  fake_stop();
  for (int i = 0; i < 4; i++) {
    if (rig_profilers[i] != NULL) {
      leave_profilers(i);
    }
  }
}

// The relay tells of the messages, with the sender's handles.
static void relay_reports(void)
{
  rig *r = open_told();
  post_told(r, 2);
  tt_proxy_op op = rig_op(0, false, TT_LL, 2);
  FAKE_DEMAND(tt_proxy_post(proxy(r, 3), &op) == ncclSuccess);
  put(r, 2);
  UNTIL((tt_proxy_progress(proxy(r, 0), true), tt_proxy_progress(proxy(r, 3), true), tt_proxy_idle(proxy(r, 0))));
  tt_profilers_stop(rig_profilers[0], &coll);
  close_told(r);
}

// An error, after which the sender's rank leaves.
static void sender_goes(rig *r)
{
  tt_port_stop(&r->ranks[0].port, tt_fail(ncclInternalError, "rank 0 stops for the test"));
  tt_proxy_mover.state_changed(proxy(r, 0));
  UNTIL((tt_proxy_progress(proxy(r, 0), true), tt_proxy_idle(proxy(r, 0))));
  rig_leave(r, 0);
  tt_profilers_stop(rig_profilers[0], &coll);
  leave_profilers(0);
}

// The sender leaves before the relay has seen its operation.
static void sender_had_left(void)
{
  rig *r = open_told();
  tt_proxy_run_hold(proxy(r, 1));
  post_told(r, 2);
  put(r, 1);
  tt_proxy_progress(proxy(r, 0), true);
  sender_goes(r);
  FAKE_DEMAND(says("finalize rank=0\n") && !says("ProxyOp#"));
  tt_proxy_run_release(proxy(r, 1));
  UNTIL(says("stop ProxyOp#1\n"));
  close_told(r);
}

// The sender leaves while the relay sends: its profilers stay until the relay tells of it no more.
static void sender_leaves(void)
{
  rig *r = open_told();
  post_told(r, 2);
  put(r, 1);
  UNTIL((tt_proxy_progress(proxy(r, 0), true), says("start ProxyOp#1 ")));
  tt_proxy_run_hold(proxy(r, 1));
  sender_goes(r);
  FAKE_DEMAND(!says("finalize") && !says("stop ProxyOp#1\n"));
  tt_proxy_run_release(proxy(r, 1));
  UNTIL(says("finalize rank=0\n"));
  close_told(r);
}

// The relay's rank leaves: its proxy goes on sending, and its profilers hear no more of it.
static void relay_leaves(void)
{
  rig *r = open_told();
  post_told(r, 3);
  put(r, 1);
  UNTIL((tt_proxy_progress(proxy(r, 0), true), says("start ProxyStep#2 ")));
  tt_proxy *relay = proxy(r, 1);
  rig_leave(r, 1);
  leave_profilers(1);
  FAKE_DEMAND(says("stop ProxyStep#2\nstop ProxyOp#1\nfinalize rank=1\n"));
  tt_proxy_op op = rig_op(0, false, TT_LL, 3);
  FAKE_DEMAND(tt_proxy_post(proxy(r, 3), &op) == ncclSuccess);
  put(r, 2);
  post_told(r, 1); // of which nobody is told
  put(r, 1);
  FAKE_DEMAND(atomic_load(&relay->pxn.nclients) == 1);
  UNTIL((tt_proxy_progress(proxy(r, 0), true), tt_proxy_progress(proxy(r, 3), true), tt_proxy_idle(proxy(r, 0))));
  tt_profilers_stop(rig_profilers[0], &coll);
  close_told(r);
}

static bool keeps_parent(int32_t pid, uint64_t owner, bool foreign)
{
  tt_proxy_item i = {.prof = tt_proxy_prof_new_for(
                         rig_profilers[1], &(tt_proxy_event){.event = coll, .pid = pid, .owner = owner}, foreign)};
  FAKE_DEMAND(i.prof != NULL);
  bool kept = tt_prof_is_on(&tt_proxy_prof_event(i.prof)->event);
  tt_proxy_prof_end(&i);
  return kept;
}

// Whose handle may be passed on as a parent's.
static void parents(void)
{
  rig *r = open_told();
  uint64_t id = tt_profilers_id(rig_profilers[0]);
  int32_t pid = getpid();
  FAKE_DEMAND(keeps_parent(pid, id, false));
  FAKE_DEMAND(!keeps_parent(pid, 4711, false));   // finalized
  FAKE_DEMAND(keeps_parent(pid + 1, 4711, true)); // profilers see that it is not theirs
  // And here they would not: another process, of the same number in another container.
  FAKE_DEMAND(!keeps_parent(pid, 4711, true));
  FAKE_DEMAND(!keeps_parent(pid, id, true));
  tt_profilers_stop(rig_profilers[0], &coll);
  close_told(r);
}

// Runs fn in a child, and looks for texts in what the recorder has written: in this order.
static void expect(void (*fn)(void), const char *const *words)
{
  static char text[1 << 16];
  char command[256];
  snprintf(told, sizeof told, "/tmp/tutti_told_%d", (int)getpid());
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    fn();
    exit(0);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  snprintf(command, sizeof command, "cat %s.v6.*; rm -f %s.v6.*", told, told);
  FILE *f = popen(command, "r");
  assert_non_null(f);
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  pclose(f);
  for (const char *at = text; *words != NULL; words++) {
    at = strstr(at, *words);
    if (at == NULL) {
      fail_msg("not told, or not in this order: %s; but:\n%s", *words, text);
    }
  }
  if (status != 0 || strstr(text, "ERROR") != NULL || strstr(text, "ProxyOp#2") != NULL) { // nobody else tells of it
    fail_msg("status %d:\n%s", status, text);
  }
}

static void through_a_neighbour(void **state)
{
  (void)state;
  expect(relay_reports, (const char *const[]){"start ProxyOp#1 parent=Coll#1 rank=0 pid=own channel=0 peer=3 steps=2 ",
                                              " send=1\n", "state ProxyOp#1 InProgress\n",
                                              "start ProxyStep#1 parent=ProxyOp#1 rank=0 ", "stop ProxyStep#1\n",
                                              "stop ProxyOp#1\n", "finalize rank=0\n", "finalize rank=3\n", NULL});
}

static void the_sender_leaves(void **state)
{
  (void)state;
  expect(sender_had_left, (const char *const[]){"finalize rank=0\n", "start ProxyOp#1 parent=- rank=0 pid=own ",
                                                "stop ProxyOp#1\n", "finalize rank=1\n", NULL});
  expect(sender_leaves, (const char *const[]){"start ProxyOp#1 parent=Coll#1 rank=0 pid=own ", "stop Coll#1\n",
                                              "stop ProxyOp#1\n", "finalize rank=0\n", "finalize rank=1\n", NULL});
}

static void the_relay_leaves(void **state)
{
  (void)state;
  expect(relay_leaves, (const char *const[]){"start ProxyOp#1 parent=Coll#1 ", "stop ProxyOp#1\nfinalize rank=1\n",
                                             "finalize rank=0\n", "finalize rank=2\n", NULL});
}

static void only_parents_that_can_be_told_apart(void **state)
{
  (void)state;
  expect(parents, (const char *const[]){"stop Coll#1\n", "finalize rank=0\n", NULL});
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(through_a_neighbour),
      cmocka_unit_test(the_sender_leaves),
      cmocka_unit_test(the_relay_leaves),
      cmocka_unit_test(only_parents_that_can_be_told_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
