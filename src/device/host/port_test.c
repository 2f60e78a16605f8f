// port_test.c: a rank that has stopped, and peers that write into its output: which rank is waited for, which is not,
// and that nothing is written afterwards. tests/owner_model_test.c walks the interleavings, tests/owner_test.c does it
// with real calls.
#define _GNU_SOURCE
#include "device/host/rig.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/test_log.h"
#include "device/one_sided.h"
#include "device/owner.h"
#include "os/clock.h"

static rig *r;
static rig_schedule sch;
static char in[256], out[256];

static int setup(void **state)
{
  (void)state;
  r = rig_open();
  memset(in, 'i', sizeof in);
  memset(out, 'o', sizeof out);
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  rig_close(r);
  return 0;
}

static void stop(int rank)
{
  tt_last_error_set("stopped by the test");
  tt_port_stop(&r->ports[rank], ncclSystemError);
}

// A port that has stopped for a broken connection learns of the death behind it; one with another error does not.
static void test_the_root_cause_wins(void **state)
{
  (void)state;
  tt_culprit dead = tt_culprit_of(2, TT_RANK_KILLED);
  for (int own = 0; own <= 1; own++) {
    tt_port *port = &r->ports[own];
    tt_port_stop(port, tt_fail(own ? ncclInvalidUsage : ncclRemoteError, "connection reset by rank 1"));
    assert_false(tt_port_blame(port, tt_culprit_of(1, TT_RANK_LOST)));
    assert_string_equal(tt_port_error(port), "connection reset by rank 1");
    assert_false(tt_port_blame(port, dead));
    assert_false(tt_port_blame(port, tt_culprit_of(1, TT_RANK_KILLED))); // the first one stays
    const char *said = own ? "connection reset by rank 1" : "rank 0: rank 2 was killed, or left by _exit";
    assert_string_equal(tt_port_error(port), said);
    assert_string_equal(tt_last_error_explained(), said);
    assert_true(port->page->culprit == (own ? 0 : dead));
  }
}

// Rank 0 writes its input into rank 1's output (and rank 2's); how that ends.
static tt_run write_to_peers(bool both)
{
  rig_write(&sch, 1, &(rig_step){TT_IN, -1, TT_PEER_OUT, 1, 0}, 1);
  if (both) {
    sch.refs[2] = (tt_ref){.kind = TT_PEER_OUT, .peer = 2};
    sch.steps[0].ndst = 2;
  }
  static tt_call call;
  call = (tt_call){.in = in, .count = 100, .esize = 1};
  static const tt_map all = {.size = SIZE_MAX};
  r->links[0][1].handover->out_map = r->links[0][2].handover->out_map = &all;
  r->links[0][1].handover->out_remote = (uintptr_t)out;
  r->links[0][2].handover->out_remote = (uintptr_t)out + 128;
  tt_lane l;
  size_t budget = 1 << 20;
  tt_lane_init(&l, &sch.s, 0, &call, 100, TT_TOK);
  return tt_lane_run(&r->ports[0], &l, &budget);
}

static void test_a_running_owner_is_written_to(void **state)
{
  (void)state;
  assert_int_equal(write_to_peers(true), TT_RUN_DONE);
  assert_memory_equal(out, in, 100);
  assert_memory_equal(out + 128, in, 100);
  assert_int_equal(out[100], 'o');
  assert_int_equal(atomic_load(&r->pages[0].writes), 0);
  assert_int_equal(atomic_load(&r->pages[1].bell.seq), 0);
}

static void test_a_stopped_owner_is_not(void **state)
{
  for (int both = 0; both < 2; both++) {
    static const uint32_t states[] = {TT_RANK_FAILED, TT_RANK_ABORTED, TT_RANK_GONE};
    for (size_t i = 0; i < TT_COUNT(states); i++) {
      setup(state);
      atomic_store(&r->pages[1 + both].state, states[i]);
      assert_int_equal(write_to_peers(both != 0), TT_RUN_FAILED);
      assert_int_equal(tt_port_status(&r->ports[0]), ncclRemoteError);
      assert_non_null(strstr(r->ports[0].error, both ? "rank 2" : "rank 1"));
      assert_non_null(strstr(r->ports[0].error, "waits for"));
      assert_int_equal(out[0], 'o');
      assert_int_equal(out[128], 'o');
      assert_int_equal(atomic_load(&r->pages[0].writes), 0);
      teardown(state);
    }
  }
}

// A piece that another process's output gets through the kernel.
static void test_through_the_kernel(void **state)
{
  (void)state;
  r->links[0][1].access = TT_ACCESS_COPY;
  rig_write(&sch, 1, &(rig_step){TT_IN, -1, TT_PEER_OUT, 1, 0}, 1);
  tt_call call = {.in = in, .count = 100, .esize = 1};
  r->links[0][1].handover->out_remote = (uint64_t)(uintptr_t)out; // of this process, which the kernel reaches as any
  tt_lane l;
  size_t budget = 1 << 20;
  tt_lane_init(&l, &sch.s, 0, &call, 100, TT_TOK);
  assert_int_equal(tt_lane_run(&r->ports[0], &l, &budget), TT_RUN_DONE);
  assert_memory_equal(out, in, 100);
  memset(out, 'o', sizeof out);
  stop(1);
  tt_lane_init(&l, &sch.s, 0, &call, 100, TT_TOK);
  assert_int_equal(tt_lane_run(&r->ports[0], &l, &budget), TT_RUN_FAILED);
  assert_int_equal(out[0], 'o');
  assert_int_equal(atomic_load(&r->pages[0].writes), 0);
}

static void test_who_writes(void **state)
{
  (void)state;
  static tt_signal_row row;
  _Atomic uint64_t *const words[] = {&row.writing, &row.handing};
  r->links[1][0].in = &row;
  stop(1);
  for (size_t i = 0; i < TT_COUNT(words); i++) { // puts
    atomic_store(words[i], 1);
    assert_ptr_equal(tt_port_writer(&r->ports[1], false), &r->links[1][0]);
    atomic_store(words[i], 0);
  }
  tt_writes_begin(&r->pages[2], 3 + 1); // somebody else's output
  tt_writes_begin(&r->pages[3], 1 + 1);
  assert_ptr_equal(tt_port_writer(&r->ports[1], false), &r->links[1][3]);
  assert_ptr_equal(tt_port_writer(&r->ports[1], true), &r->links[1][3]); // its process lives
  tt_writes_end(&r->pages[3]);
  tt_writes_begin(&r->pages[0], TT_WRITES_ALL);
  assert_ptr_equal(tt_port_writer(&r->ports[1], false), &r->links[1][0]);
  tt_writes_end(&r->pages[0]);
  assert_null(tt_port_writer(&r->ports[1], false));
  tt_writes_begin(&r->pages[0], 1 + 1); // it will see that rank 1 has stopped
  assert_null(tt_port_writer(&r->ports[1], false));
  tt_port_await_writers(&r->ports[1]);
}

static pid_t start_child(rig *shared)
{
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); // also when a check fails
    rig_live(shared);
    atomic_store(&shared->word, 1);
    for (;;) {
      pause();
    }
  }
  assert_true(pid > 0);
  assert_true(dummy_becomes(&shared->word, 1, DUMMY_LONG_S));
  return pid;
}

// The process that writes is suspended, and killed.
static void test_a_writer_that_dies(void **state)
{
  (void)state;
  pid_t pid = start_child(r);
  r->links[1][0].access = TT_ACCESS_COPY;
  rig_watch(r, 1, 0);
  tt_writes_begin(&r->pages[0], 1 + 1);
  stop(1);
  kill(pid, SIGSTOP);
  int status;
  assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
  assert_ptr_equal(tt_port_writer(&r->ports[1], true), &r->links[1][0]);
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_ptr_equal(tt_port_writer(&r->ports[1], false), &r->links[1][0]); // nobody has looked
  tt_port_await_writers(&r->ports[1]);
  assert_null(tt_port_writer(&r->ports[1], false));
}

// The process that writes is suspended for good: it is waited for no longer than a moment, and named.
static void test_a_writer_that_stays_suspended(void **state)
{
  (void)state;
  test_log_begin(NULL);
  pid_t pid = start_child(r);
  r->links[1][0].access = TT_ACCESS_COPY;
  rig_watch(r, 1, 0);
  tt_writes_begin(&r->pages[0], 1 + 1);
  stop(1);
  kill(pid, SIGSTOP);
  int status;
  assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
  uint64_t from = tt_now_ns();
  tt_port_await_writers(&r->ports[1]);
  assert_in_range((tt_now_ns() - from) / TT_NS_PER_MS, 200, 20000);
  assert_null(tt_port_writer(&r->ports[1], true));
  assert_int_equal(atomic_load(&r->pages[0].writes), 1 + 1); // it is still at it
  const char *text = said();
  assert_non_null(strstr(text, "rank 1 has stopped, but rank 0 (process"));
  assert_non_null(strstr(text, "which is stopped by a signal"));
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void *finish_later(void *arg)
{
  (void)arg;
  dummy_sleeper(&r->pages[1].bell, 10);
  tt_writes_end(&r->pages[0]);
  tt_writes_ring(&r->pages[1]);
  return NULL;
}

static void test_waiting_for_a_writer(void **state)
{
  (void)state;
  pthread_t t;
  tt_writes_begin(&r->pages[0], TT_WRITES_ALL);
  stop(1);
  assert_int_equal(pthread_create(&t, NULL, finish_later, NULL), 0);
  uint32_t before = atomic_load(&r->pages[1].bell.seq);
  tt_port_await_writers(&r->ports[1]);
  pthread_join(t, NULL);
  assert_true(atomic_load(&r->pages[1].bell.seq) != before || atomic_load(&r->pages[0].writes) == 0);
  assert_int_equal(atomic_load(&r->pages[1].bell.sleepers), 0);
}

static _Atomic int recycled;

static void recycle(tt_plan *p)
{
  (void)p;
  atomic_store(&recycled, 1);
}

// The stream reports the error when the writer has finished, not before; nobody is kept waiting who only pushes or
// helps.
static void test_a_plan_ends_after_its_writers(void **state)
{
  (void)state;
  static tt_call call;
  static tt_lane lane;
  static tt_plan plan;
  call = (tt_call){.out = out, .count = 10, .esize = 1};
  tt_lane_init(&lane, rig_recv(&sch, 0), 0, &call, 64, TT_SIMPLE);
  plan = (tt_plan){.work.ops = &tt_plan_ops,
                   .port = &r->ports[1],
                   .calls = &call,
                   .lanes = &lane,
                   .ncalls = 1,
                   .nlanes = 1,
                   .turns = &lane,
                   .recycle = recycle};
  atomic_store(&recycled, 0);
  tt_stream *s = dummy_stream();
  atomic_fetch_add(&s->waiters, 1); // the worker leaves it alone
  tt_stream_push(s, &plan.work);
  tt_writes_begin(&r->pages[0], 1 + 1);
  stop(1);
  for (int i = 0; i < 3; i++) {
    tt_stream_progress(s, 1 << 20, true);
    tt_stream_check(s);
    assert_false(tt_stream_idle(s));
    assert_int_equal(atomic_load(&recycled), 0);
  }
  tt_writes_end(&r->pages[0]);
  assert_int_equal(tt_stream_wait(s), ncclSystemError);
  assert_int_equal(atomic_load(&recycled), 1);
  atomic_fetch_sub(&s->waiters, 1);
  tt_stream_destroy(s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_the_root_cause_wins, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_running_owner_is_written_to, setup, teardown),
      cmocka_unit_test(test_a_stopped_owner_is_not),
      cmocka_unit_test_setup_teardown(test_through_the_kernel, setup, teardown),
      cmocka_unit_test_setup_teardown(test_who_writes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_writer_that_dies, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_writer_that_stays_suspended, setup, teardown),
      cmocka_unit_test_setup_teardown(test_waiting_for_a_writer, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_plan_ends_after_its_writers, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, test_log_end);
}
