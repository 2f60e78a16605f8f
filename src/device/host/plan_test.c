// plan_test.c: the order of a communicator's plans, what stops them, and what they notice about their peers.
#define _GNU_SOURCE
#include "device/host/rig.h"

#include <signal.h>
#include <sys/wait.h>

static rig *r;
static char in[RIG_RANKS][256], out[RIG_RANKS][256];
static _Atomic int recycled;

static int setup(void **state)
{
  (void)state;
  r = rig_open();
  for (int i = 0; i < RIG_RANKS; i++) {
    memset(in[i], 'a' + i, sizeof in[i]);
    memset(out[i], 0, sizeof out[i]);
  }
  atomic_store(&recycled, 0);
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  rig_close(r);
  return 0;
}

// ---- Plans by hand ----

typedef struct job {
  tt_plan plan;
  tt_call calls[3];
  tt_lane lanes[3];
  rig_schedule sched[3];
  _Atomic int done;
} job;

static void recycle(tt_plan *p)
{
  atomic_fetch_add(&recycled, 1);
  atomic_store(&((job *)p)->done, 1);
}

// An empty plan of a rank; it is that rank's `ticket`-th.
static job *start(job *j, int rank, uint64_t ticket)
{
  memset(j, 0, sizeof *j);
  j->plan = (tt_plan){.work.ops = &tt_plan_ops,
                      .port = &r->ports[rank],
                      .ticket = ticket,
                      .calls = j->calls,
                      .lanes = j->lanes,
                      .turns_end = &j->plan.turns,
                      .recycle = recycle};
  return j;
}

// Adds a call of `count` bytes. The fingerprint: operation number `seq` (0: send and receive).
static void add(job *j, const tt_schedule *s, uint32_t seq, size_t count)
{
  int rank = j->plan.port->rank, n = j->plan.ncalls++;
  j->calls[n] = (tt_call){.in = in[rank] + 100 * n,
                          .out = out[rank] + 100 * n,
                          .count = count,
                          .esize = 1,
                          .sig_count = count,
                          .sig = tt_sig_make(seq, seq == 0 ? 8 : 4, ncclInt8, 0, 0)};
  tt_lane_init(&j->lanes[n], s, 0, &j->calls[n], 64, TT_SIMPLE);
  j->plan.nlanes++;
  tt_plan_add(&j->plan, &j->lanes[n], NULL);
}

static job *sender(job *j, int rank, uint64_t ticket, int to, uint32_t seq)
{
  start(j, rank, ticket);
  add(j, rig_send(&j->sched[0], to), seq, 50);
  return j;
}

static job *receiver(job *j, int rank, uint64_t ticket, int from, uint32_t seq)
{
  start(j, rank, ticket);
  add(j, rig_recv(&j->sched[0], from), seq, 50);
  return j;
}

// A stream that the worker leaves to the test.
static tt_stream *own_stream(void)
{
  tt_stream *s = dummy_stream();
  atomic_fetch_add(&s->waiters, 1);
  return s;
}

static void drop_stream(tt_stream *s)
{
  assert_true(tt_stream_idle(s));
  atomic_fetch_sub(&s->waiters, 1);
  tt_stream_destroy(s);
}

static void run(tt_stream *s)
{
  tt_stream_progress(s, 1 << 20, true);
}

static void expect_words(const char *text, const char *a, const char *b)
{
  if (strstr(text, a) == NULL || strstr(text, b) == NULL) {
    fail_msg("\"%s\" and \"%s\" are not both in: %s", a, b, text);
  }
}

// ---- Order ----

static void test_a_plan_runs_and_comes_back(void **state)
{
  job a, b;
  (void)state;
  tt_stream *s = own_stream(), *t = own_stream();
  tt_stream_push(s, &receiver(&a, 1, 0, 0, 5)->plan.work);
  assert_false(tt_stream_idle(s));
  uint64_t sig, count;
  assert_true(tt_page_shown(&r->pages[1], 5, &sig, &count)); // by the peers
  assert_int_equal(count, 50);
  tt_stream_push(t, &sender(&b, 0, 0, 1, 5)->plan.work);
  assert_true(tt_stream_idle(t));
  run(s);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_memory_equal(out[1], in[0], 50);
  assert_int_equal(atomic_load(&recycled), 2);
  assert_int_equal(atomic_load(&r->ports[0].done), 1);
  assert_int_equal(atomic_load(&r->ports[1].done), 1);
  drop_stream(s);
  drop_stream(t);
}

// Tickets decide, not streams: what was issued later waits although it was pushed to an idle stream.
static void test_plans_of_two_streams_keep_the_order(void **state)
{
  job first, second, third, peer[3];
  _Atomic int gate = 0;
  static dummy t;
  (void)state;
  tt_stream *a = own_stream(), *b = own_stream(), *c = own_stream();
  tt_stream_push(a, &dummy_init(&t, &gate, NULL)->work);
  tt_stream_push(a, &sender(&first, 0, 0, 1, 1)->plan.work);
  in[0][0] = 'x';
  tt_stream_push(b, &sender(&second, 0, 1, 1, 2)->plan.work);
  tt_stream_push(a, &sender(&third, 0, 2, 1, 3)->plan.work);
  run(b);
  assert_false(second.plan.started);
  assert_ptr_equal(atomic_load(&b->bell), &r->pages[0].bell);
  assert_false(tt_fifo_arrived(&r->links[1][0].recv[TT_SIMPLE]));
  dummy_open(&gate, NULL);
  run(a); // the first; the third waits for the second
  assert_int_equal(atomic_load(&first.done), 1);
  assert_int_equal(atomic_load(&third.done), 0);
  run(b);
  run(a);
  assert_int_equal(atomic_load(&r->ports[0].done), 3);
  for (int i = 0; i < 3; i++) { // the fingerprints say that they came in order
    tt_stream_push(c, &receiver(&peer[i], 1, (uint64_t)i, 0, (uint32_t)i + 1)->plan.work);
    assert_int_equal(tt_stream_wait(c), ncclSuccess);
  }
  drop_stream(a);
  drop_stream(b);
  drop_stream(c);
}

// Two streams, two threads: the thread that waits for the later plan sleeps until the earlier one is complete, and is
// woken by that.
static void *wait_main(void *s)
{
  return (void *)(intptr_t)tt_stream_wait(s);
}

static void test_a_later_plan_wakes_when_the_earlier_ends(void **state)
{
  (void)state;
  for (int i = 0; i < 300 / SLOWER; i++) {
    job first, second, peer[2];
    pthread_t t[2];
    tt_stream *a = dummy_stream(), *b = dummy_stream(), *c = dummy_stream();
    uint64_t at = 2 * (uint64_t)i;
    tt_stream_push(b, &receiver(&second, 0, at + 1, 1, 2)->plan.work);
    tt_stream_push(a, &receiver(&first, 0, at, 1, 1)->plan.work);
    for (int k = 0; k < 2; k++) {
      assert_int_equal(pthread_create(&t[k], NULL, wait_main, k == 0 ? b : a), 0);
    }
    if (i % 2 == 0) {
      dummy_sleeper(&r->pages[0].bell, 5);
    }
    for (int k = 0; k < 2; k++) {
      tt_stream_push(c, &sender(&peer[k], 1, at + (uint64_t)k, 0, (uint32_t)k + 1)->plan.work);
    }
    for (int k = 0; k < 2; k++) {
      void *res;
      pthread_join(t[k], &res);
      assert_ptr_equal(res, NULL);
    }
    assert_int_equal(tt_stream_wait(c), ncclSuccess);
    assert_true(dummy_becomes(&first.done, 1, DUMMY_LONG_S) && dummy_becomes(&second.done, 1, DUMMY_LONG_S));
    assert_true(dummy_becomes(&peer[0].done, 1, DUMMY_LONG_S) && dummy_becomes(&peer[1].done, 1, DUMMY_LONG_S));
    tt_stream_destroy(a);
    tt_stream_destroy(b);
    tt_stream_destroy(c);
  }
}

// Scalars and staged inputs are read when the plan's turn comes, not when it is queued.
static void test_values_are_read_in_the_plans_turn(void **state)
{
  static char stage[64];
  uint32_t scalar = 1;
  _Atomic int gate = 0;
  job j;
  static dummy t;
  (void)state;
  tt_stream *s = own_stream();
  tt_stream_push(s, &dummy_init(&t, &gate, NULL)->work);
  sender(&j, 0, 0, 1, 1);
  j.calls[0].scalar = &scalar;
  j.calls[0].esize = 4;
  j.calls[0].count = 10;
  tt_lane_init(&j.lanes[0], &j.sched[0].s, 0, &j.calls[0], 64, TT_SIMPLE);
  j.plan.stage_src = in[0];
  j.plan.stage_bytes = 40;
  j.plan.scratch = stage;
  j.calls[0].in = stage;
  tt_stream_push(s, &j.plan.work);
  scalar = 4711;
  in[0][3] = 'Z';
  dummy_open(&gate, NULL);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_int_equal(j.calls[0].op.scalar, 4711);
  assert_int_equal(tt_fifo_data(&r->links[1][0].recv[TT_SIMPLE])[3], 'Z');
  drop_stream(s);
}

// A lane that comes after another one of the same plan does not start before it.
static void test_a_lane_after_another(void **state)
{
  job j;
  (void)state;
  tt_stream *s = own_stream();
  start(&j, 0, 0);
  add(&j, rig_recv(&j.sched[0], 1), 0, 50);
  add(&j, rig_send(&j.sched[1], 2), 0, 50);
  j.lanes[1].after = 0;
  tt_stream_push(s, &j.plan.work);
  assert_false(tt_fifo_arrived(&r->links[2][0].recv[TT_SIMPLE]));
  tt_stream_check(s);
  assert_false(tt_fifo_arrived(&r->links[2][0].recv[TT_SIMPLE]));
  tt_fifo *f = &r->links[1][0].send[TT_SIMPLE];
  tt_fifo_publish(f, 50, j.calls[0].sig, 50);
  run(s);
  assert_true(tt_fifo_arrived(&r->links[2][0].recv[TT_SIMPLE]));
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  drop_stream(s);
}

// A lane that comes after two does not start before the slower one has ended, whichever that is.
static void test_a_lane_after_two(void **state)
{
  (void)state;
  for (int slow = 0; slow < 2; slow++) {
    job j;
    tt_stream *s = own_stream();
    start(&j, 0, (uint64_t)slow);
    add(&j, rig_recv(&j.sched[0], 1), 0, 50);
    add(&j, rig_recv(&j.sched[1], 3), 0, 50);
    add(&j, rig_send(&j.sched[2], 2), 0, 50);
    j.lanes[2].after = 1;
    j.lanes[2].nafter = 2;
    tt_stream_push(s, &j.plan.work);
    tt_fifo_publish(&r->links[slow == 0 ? 3 : 1][0].send[TT_SIMPLE], 50, j.calls[0].sig, 50);
    run(s);
    assert_true(j.lanes[1 - slow].done);
    assert_false(tt_fifo_arrived(&r->links[2][0].recv[TT_SIMPLE]));
    tt_fifo_publish(&r->links[slow == 0 ? 1 : 3][0].send[TT_SIMPLE], 50, j.calls[0].sig, 50);
    run(s);
    assert_true(tt_fifo_arrived(&r->links[2][0].recv[TT_SIMPLE]));
    tt_fifo_release(&r->links[2][0].recv[TT_SIMPLE]);
    assert_int_equal(tt_stream_wait(s), ncclSuccess);
    drop_stream(s);
  }
}

// A lane that waits for the network to take what it has lent holds nobody up.
static void test_a_lane_after_one_that_has_lent(void **state)
{
  static char large[TT_LEND_MIN];
  job j;
  (void)state;
  tt_stream *s = own_stream();
  start(&j, 0, 0);
  add(&j, rig_send(&j.sched[0], 1), 0, TT_LEND_MIN);
  add(&j, rig_send(&j.sched[1], 2), 0, 50);
  j.calls[0].in = large;
  tt_lane_init(&j.lanes[0], &j.sched[0].s, 0, &j.calls[0], TT_LEND_MIN, TT_SIMPLE);
  j.sched[0].steps[0].flags = j.lanes[0].lends = TT_STEP_LEND;
  r->links[0][1].networked = true;
  j.lanes[1].after = 0;
  tt_stream_push(s, &j.plan.work);
  assert_true(tt_fifo_arrived(&r->links[2][0].recv[TT_SIMPLE]));
  assert_true(j.lanes[0].drains && !j.lanes[0].done && j.lanes[1].done);
  tt_fifo_release(&r->links[1][0].recv[TT_SIMPLE]);
  run(s);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  drop_stream(s);
}

// ---- Whose post is wanted ----

static void test_a_blocked_plan_says_whom_it_waits_for(void **state)
{
  job j;
  (void)state;
  tt_stream *s = own_stream();
  start(&j, 0, 0);
  add(&j, rig_recv(&j.sched[0], 2), 0, 50);
  add(&j, rig_recv(&j.sched[1], 3), 0, 50);
  tt_stream_push(s, &j.plan.work);
  tt_rank_page *page = &r->pages[0];
  assert_int_equal(atomic_load(&page->want), 0); // two peers
  tt_fifo_publish(&r->links[2][0].send[TT_SIMPLE], 50, j.calls[0].sig, 50);
  run(s);
  assert_int_equal(atomic_load(&page->want), 3 + 1);
  tt_bell_announce(&page->bell);
  uint32_t seq = atomic_load(&page->bell.seq);
  tt_page_ring(page, 2);
  assert_int_equal(atomic_load(&page->bell.seq), seq); // not wanted
  tt_page_ring(page, 3);
  assert_int_equal(atomic_load(&page->bell.seq), seq + 1);
  tt_bell_leave(&page->bell);
  tt_fifo_publish(&r->links[3][0].send[TT_SIMPLE], 50, j.calls[1].sig, 50);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  drop_stream(s);
}

// ---- Failures ----

static void test_a_failing_lane_fails_its_plan_and_all_later_ones(void **state)
{
  job a, b, c;
  (void)state;
  tt_stream *s = own_stream(), *t = own_stream();
  tt_stream_push(t, &sender(&a, 0, 0, 1, 7)->plan.work);
  receiver(&b, 1, 0, 0, 7);
  b.calls[0].sig_count = 51;
  tt_stream_push(s, &b.plan.work);
  tt_stream_push(s, &receiver(&c, 1, 1, 0, 8)->plan.work);
  assert_true(tt_stream_idle(s));
  assert_int_equal(tt_stream_wait(s), ncclInvalidUsage);
  assert_int_equal(tt_stream_wait(s), ncclSuccess); // told once
  assert_int_equal(atomic_load(&recycled), 3);
  assert_int_equal(tt_port_status(&r->ports[1]), ncclInvalidUsage);
  expect_words(r->ports[1].error, "rank 1 is in operation 7 AllReduce", "count 51");
  expect_words(r->ports[1].error, "rank 0 is in operation 7", "count 50");
  assert_int_equal(out[1][0], 0);
  drop_stream(s);
  drop_stream(t);
}

typedef struct fault {
  uint32_t state;
  const char *word;
} fault;

// A peer that has stopped is noticed when somebody looks; what it has sent before still counts.
static void test_a_stopped_peer_is_noticed(void **state)
{
  static const fault faults[] = {
      {TT_RANK_FAILED, "has failed"}, {TT_RANK_ABORTED, "has aborted"}, {TT_RANK_GONE, "has finalized or destroyed"}};
  (void)state;
  for (size_t i = 0; i < 2 * TT_COUNT(faults); i++) {
    const fault *f = &faults[i / 2];
    bool sent = i % 2 == 0;
    job j;
    tt_stream *s = own_stream();
    tt_stream_push(s, &receiver(&j, 0, i / 2, 2, 9)->plan.work);
    tt_stream_check(s);
    assert_int_equal(tt_port_status(&r->ports[0]), ncclSuccess);
    if (sent) {
      tt_fifo_publish(&r->links[2][0].send[TT_SIMPLE], 50, j.calls[0].sig, 50);
    }
    atomic_store(&r->pages[2].state, f->state);
    tt_stream_check(s);
    assert_true(tt_stream_idle(s));
    assert_int_equal(tt_stream_wait(s), sent ? ncclSuccess : ncclRemoteError);
    if (!sent) {
      expect_words(r->ports[0].error, "rank 0 waits for rank 2", f->word);
      assert_int_equal(atomic_load(&r->pages[0].state), TT_RANK_FAILED);
      atomic_store(&r->ports[0].done, i / 2 + 1); // the next fault meets a healthy rank
      atomic_store(&r->ports[0].stop, 0);
    }
    atomic_store(&r->pages[2].state, TT_RANK_RUNNING);
    drop_stream(s);
    if (sent) {
      atomic_store(&r->ports[0].done, i / 2);
    }
  }
}

// Forks rank 2. It sends a message if it is told to, and waits to be killed.
static pid_t fork_rank_2(bool sends)
{
  pid_t pid = fork();
  if (pid == 0) {
    rig_live(r);
    if (sends) {
      tt_fifo_publish(&r->links[2][0].send[TT_SIMPLE], 50, tt_sig_make(9, 4, ncclInt8, 0, 0), 50);
    }
    atomic_store(&r->word, 1);
    for (;;) {
      pause();
    }
  }
  return pid;
}

static void test_a_killed_process_is_noticed(void **state)
{
  (void)state;
  for (int sends = 1; sends >= 0; sends--) {
    job j;
    atomic_store(&r->word, 0);
    pid_t pid = fork_rank_2(sends);
    assert_true(dummy_becomes(&r->word, 1, DUMMY_LONG_S));
    rig_watch(r, 0, 2);
    tt_stream *s = own_stream();
    if (!sends) { // the message is in the way of nobody: the child's copy of the link was another one
      tt_stream_push(s, &receiver(&j, 0, 1, 2, 9)->plan.work);
      tt_stream_check(s);
      assert_false(tt_stream_idle(s));
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    if (sends) {
      tt_stream_push(s, &receiver(&j, 0, 0, 2, 9)->plan.work);
    }
    tt_stream_check(s);
    assert_true(tt_stream_idle(s));
    assert_int_equal(tt_stream_wait(s), sends ? ncclSuccess : ncclRemoteError);
    drop_stream(s);
  }
  expect_words(r->ports[0].error, "rank 0 waits for rank 2", "was killed");
}

// A zombie has ended too.
static void test_a_zombie_is_noticed(void **state)
{
  job j;
  (void)state;
  pid_t pid = fork_rank_2(false);
  assert_true(dummy_becomes(&r->word, 1, DUMMY_LONG_S));
  rig_watch(r, 0, 2);
  kill(pid, SIGKILL);
  siginfo_t info;
  assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
  tt_stream *s = own_stream();
  tt_stream_push(s, &receiver(&j, 0, 0, 2, 9)->plan.work);
  tt_stream_check(s);
  assert_int_equal(tt_stream_wait(s), ncclRemoteError);
  waitpid(pid, NULL, 0);
  drop_stream(s);
}

static void show_to_rank_0(int number, int func)
{
  tt_page_show(&r->pages[3], tt_sig_make((uint32_t)number, func, ncclFloat16, 0, 2), 50);
}

// The peer is in the same operation with other arguments: this is found before anything was sent. In another operation:
// it may still come.
static void test_another_call_is_noticed_from_the_page(void **state)
{
  job j;
  (void)state;
  tt_stream *s = own_stream();
  tt_stream_push(s, &receiver(&j, 0, 0, 3, 9)->plan.work);
  show_to_rank_0(8, 4); // the operation before
  tt_stream_check(s);
  tt_page_show(&r->pages[3], j.calls[0].sig, 50);
  tt_stream_check(s);
  show_to_rank_0(10, 2); // the one after
  show_to_rank_0(9 + TT_SHOWN, 2);
  tt_stream_check(s);
  assert_false(tt_stream_idle(s));
  show_to_rank_0(9, 0);
  tt_stream_check(s);
  assert_true(tt_stream_idle(s));
  assert_int_equal(tt_stream_wait(s), ncclInvalidUsage);
  expect_words(r->ports[0].error, "rank 0 is in operation 9 AllReduce type ncclInt8",
               "rank 3 is in operation 9 Broadcast type ncclFloat16");
  drop_stream(s);
}

// The peer could go on: it has sent a message since, and has begun later operations.
static void test_another_call_is_noticed_later(void **state)
{
  job j;
  (void)state;
  tt_stream *s = own_stream();
  tt_stream_push(s, &receiver(&j, 0, 0, 3, 9)->plan.work);
  show_to_rank_0(9, 0);
  show_to_rank_0(0, 8);
  for (int number = 10; number < 9 + TT_SHOWN; number++) {
    show_to_rank_0(number, 4);
  }
  tt_stream_check(s);
  assert_int_equal(tt_stream_wait(s), ncclInvalidUsage);
  expect_words(r->ports[0].error, "rank 0 is in operation 9 AllReduce type ncclInt8",
               "rank 3 is in operation 9 Broadcast type ncclFloat16");
  drop_stream(s);
}

// Send and receive disagree about the size so far that the message came by another way.
static void test_a_message_of_another_size_class(void **state)
{
  job j;
  (void)state;
  tt_stream *s = own_stream();
  tt_stream_push(s, &receiver(&j, 0, 0, 1, 0)->plan.work);
  tt_stream_check(s);
  assert_false(tt_stream_idle(s));
  tt_fifo_publish(&r->links[1][0].send[TT_LL], 3, tt_sig_make(0, 8, ncclInt8, 6, 0), 3);
  tt_stream_check(s);
  assert_int_equal(tt_stream_wait(s), ncclInvalidUsage);
  expect_words(r->ports[0].error, "of 3 bytes", "of 50 bytes");
  drop_stream(s);
}

static void *abort_main(void *arg)
{
  tt_port *p = arg;
  dummy_sleeper(&p->page->bell, 5);
  p->abort_flag = 1;
  tt_fail(ncclInternalError, "somebody aborted");
  tt_port_stop(p, ncclInternalError);
  tt_fail(ncclSystemError, "too late");
  tt_port_stop(p, ncclSystemError);
  return NULL;
}

static void test_a_stop_wakes_who_waits(void **state)
{
  job j;
  pthread_t t;
  (void)state;
  tt_stream *s = dummy_stream();
  tt_stream_push(s, &receiver(&j, 0, 0, 1, 4)->plan.work);
  assert_int_equal(pthread_create(&t, NULL, abort_main, &r->ports[0]), 0);
  assert_int_equal(tt_stream_wait(s), ncclInternalError);
  pthread_join(t, NULL);
  assert_true(dummy_becomes(&j.done, 1, DUMMY_LONG_S));
  expect_words(r->ports[0].error, "somebody", "aborted");
  assert_int_equal(atomic_load(&r->pages[0].state), TT_RANK_ABORTED);
  tt_stream_destroy(s);
}

static void test_a_stop_rings_the_peers(void **state)
{
  (void)state;
  for (int i = 0; i < RIG_RANKS; i++) {
    tt_bell_announce(&r->pages[i].bell);
    atomic_store(&r->pages[i].want, 4); // a stop is everybody's business
  }
  r->tables[1][2] = NULL; // not connected
  tt_fail(ncclSystemError, "broken");
  tt_port_stop(&r->ports[1], ncclSystemError);
  for (int i = 0; i < RIG_RANKS; i++) {
    assert_int_equal(atomic_load(&r->pages[i].bell.seq) != 0, i != 2);
    tt_bell_leave(&r->pages[i].bell);
  }
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

// ---- Plans that are watched ----

typedef struct step_notes {
  int tries, taken, ends;
  size_t bytes;
} step_notes;

static void note_step(const tt_plan *p, tt_lane *l, const tt_step *step, size_t bytes, bool taken)
{
  step_notes *n = l->reported;
  assert_ptr_equal(step, &l->sched->steps[0]);
  assert_ptr_equal(p->turns, l);
  n->tries += !taken;
  n->taken += taken;
  n->bytes += taken ? bytes : 0;
}

static void note_watch(tt_plan *p, bool ended)
{
  step_notes *n = p->watcher;
  n->ends += ended;
}

// The plan's one lane is told step by step.
static void watch_steps(job *j, step_notes *notes, tt_stamp *stamp)
{
  j->plan.work.ops = &tt_plan_watched_ops;
  j->plan.watch = note_watch;
  j->plan.watcher = notes;
  j->plan.step = note_step;
  j->lanes[0].stamp = stamp;
}

// What a channel waits for at first is its first phase, and when it has moved everything the last one begins.
static void test_phases_are_told_apart(void **state)
{
  (void)state;
  static job s, t;
  step_notes notes = {0};
  tt_stamp stamp = {.lanes = 1, .phases = true};
  ncclResult_t result = ncclSuccess;
  size_t budget = 10000;
  start(&t, 1, 0);
  add(&t, rig_recv(&t.sched[0], 0), 0, 200);
  watch_steps(&t, &notes, &stamp);
  assert_int_equal(t.plan.work.ops->run(&t.plan.work, &budget, &result), TT_RUN_BLOCKED);
  assert_true(stamp.start != 0 && stamp.first == 0 && stamp.last == 0);
  uint64_t before = tt_now_ns();
  start(&s, 0, 0);
  add(&s, rig_send(&s.sched[0], 1), 0, 200);
  for (int i = 0; i < 100 && stamp.stop == 0; i++) {
    s.plan.work.ops->run(&s.plan.work, &budget, &result);
    t.plan.work.ops->run(&t.plan.work, &budget, &result);
  }
  assert_true(stamp.start <= before && before <= stamp.first);
  assert_true(stamp.first < stamp.last && stamp.last <= stamp.stop);
  t.plan.work.ops->done(&t.plan.work);
  assert_memory_equal(out[1], in[0], 200);
}

// A message of four steps, told one by one; the budget holds as for a lane that nobody is told of.
static void test_every_step_is_told_before_and_after(void **state)
{
  (void)state;
  static job s, t;
  step_notes notes = {0};
  tt_stamp stamp = {.lanes = 1};
  ncclResult_t result = ncclSuccess;
  size_t budget = 1;
  start(&s, 0, 0);
  add(&s, rig_send(&s.sched[0], 1), 0, 200);
  watch_steps(&s, &notes, &stamp);
  s.lanes[0].reported = &notes;
  assert_int_equal(s.plan.work.ops->run(&s.plan.work, &budget, &result), TT_RUN_MORE);
  assert_int_equal(budget, 0);
  assert_int_equal(notes.taken, 1);
  assert_int_equal(notes.bytes, 64);
  assert_int_not_equal(stamp.start, 0);
  assert_int_equal(stamp.stop, 0);
  budget = 10000;
  for (int i = 0; i < 100 && stamp.stop == 0; i++) { // the receiver gives slots back meanwhile
    tt_run how = s.plan.work.ops->run(&s.plan.work, &budget, &result);
    if (i == 0) {
      start(&t, 1, 0);
      add(&t, rig_recv(&t.sched[0], 0), 0, 200);
    }
    size_t plenty = 10000;
    t.plan.work.ops->run(&t.plan.work, &plenty, &result);
    assert_true(how == TT_RUN_DONE || how == TT_RUN_BLOCKED);
  }
  assert_int_equal(budget, 10000 - 136 - 3 * 64);
  assert_int_equal(notes.taken, 4);
  assert_int_equal(notes.bytes, 200);
  assert_true(notes.tries >= 4);
  assert_int_equal(notes.ends, 0);
  s.plan.work.ops->done(&s.plan.work);
  assert_int_equal(notes.ends, 1);
  assert_memory_equal(out[1], in[0], 200);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(test_a_plan_runs_and_comes_back),
      TEST(test_plans_of_two_streams_keep_the_order),
      TEST(test_a_later_plan_wakes_when_the_earlier_ends),
      TEST(test_values_are_read_in_the_plans_turn),
      TEST(test_a_lane_after_another),
      TEST(test_a_lane_after_two),
      TEST(test_a_lane_after_one_that_has_lent),
      TEST(test_a_blocked_plan_says_whom_it_waits_for),
      TEST(test_a_failing_lane_fails_its_plan_and_all_later_ones),
      TEST(test_a_stopped_peer_is_noticed),
      TEST(test_a_killed_process_is_noticed),
      TEST(test_a_zombie_is_noticed),
      TEST(test_another_call_is_noticed_from_the_page),
      TEST(test_another_call_is_noticed_later),
      TEST(test_a_message_of_another_size_class),
      TEST(test_a_stop_wakes_who_waits),
      TEST(test_a_stop_rings_the_peers),
      TEST(test_phases_are_told_apart),
      TEST(test_every_step_is_told_before_and_after),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
