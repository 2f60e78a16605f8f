// program_test.c: programs of small calls: what is compiled, how far the calling thread gets, and lanes that go on from
// there.
#include "device/host/rig.h"

#include "device/program.h"

enum { BYTES = 100, CHUNK = 40, PASSES = 3 }; // the last pass is shorter

static rig *r;
static char in[2][BYTES], out[2][BYTES];
static tt_call calls[2];
static rig_schedule schedules[2];

static int setup(void **state)
{
  (void)state;
  r = rig_open();
  for (int i = 0; i < 2; i++) {
    memset(out[i], 0, BYTES);
    for (int k = 0; k < BYTES; k++) {
      in[i][k] = (char)(10 * i + k);
    }
    calls[i] = (tt_call){.in = in[i],
                         .out = out[i],
                         .count = BYTES,
                         .esize = 1,
                         .sig = tt_sig_make(0, 4, ncclInt8, 0, 0),
                         .sig_count = BYTES};
  }
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  rig_close(r);
  return 0;
}

// Rank `i` sends its input to the other one, and takes the other's to its output, chunk by chunk.
static tt_program *exchange(int i)
{
  const rig_step steps[] = {{TT_IN, -1, TT_FIFO, 1 - i, 0}, {TT_FIFO, 1 - i, TT_OUT, -1, 0}};
  tt_program *p = tt_program_compile(&r->ports[i], rig_write(&schedules[i], 1, steps, 2), &calls[i], CHUNK, TT_SIMPLE);
  assert_non_null(p);
  return p;
}

static tt_program_call as(int i, uint64_t seq)
{
  calls[i].sig = (calls[i].sig & UINT32_MAX) | seq << 32;
  return (tt_program_call){.op = &calls[i].op, .buffers = {in[i], out[i]}, .sig = calls[i].sig, .sig_count = BYTES};
}

static void test_steps_of_all_passes_are_resolved(void **state)
{
  (void)state;
  tt_program *p = exchange(0);
  assert_int_equal(p->nstrands, 1);
  assert_int_equal(p->nsteps, 2 * PASSES);
  assert_int_equal(p->first[1], 2 * PASSES);
  assert_int_equal(p->npages, 1);
  assert_ptr_equal(p->pages[0], &r->pages[1]);
  assert_int_equal(p->steps[0].bytes, CHUNK);
  assert_int_equal(p->steps[5].bytes, BYTES - 2 * CHUNK);
  tt_free(p);
}

// Only lanes run programs with long messages or tokens.
static void test_some_are_queued(void **state)
{
  static const rig_step token = {TT_IN, -1, TT_TOKEN, 1, 0};
  (void)state;
  tt_program *p = tt_program_compile(&r->ports[0], rig_write(&schedules[0], 1, &token, 1), &calls[0], CHUNK, TT_SIMPLE);
  assert_non_null(p);
  assert_true(p->queued);
  assert_int_equal(p->steps[0].kind, TT_PROGRAM_FAR);
  tt_free(p);
  const tt_schedule *s = rig_send(&schedules[0], 1);
  p = tt_program_compile(&r->ports[0], s, &calls[0], CHUNK, TT_SIMPLE);
  assert_non_null(p);
  assert_false(p->queued);
  tt_free(p);
  calls[0].count = 1 << 20;
  p = tt_program_compile(&r->ports[0], s, &calls[0], 1 << 20, TT_SIMPLE);
  assert_non_null(p);
  assert_true(p->queued);
  tt_free(p);
}

// Many steps, much scratch, scratch with tokens or long messages, and a network are left to lanes, which resolve one
// step after the other.
static void test_other_calls_have_none(void **state)
{
  static const rig_step scratch = {TT_IN, -1, TT_TMP, -1, 0},
                        both[] = {{TT_IN, -1, TT_TMP, -1, 0}, {TT_IN, -1, TT_TOKEN, 1, 0}};
  (void)state;
  rig_write(&schedules[0], 1, &scratch, 1);
  schedules[0].s.ntmp = TT_PROGRAM_BYTES / CHUNK;
  assert_null(tt_program_compile(&r->ports[0], &schedules[0].s, &calls[0], CHUNK, TT_SIMPLE));
  rig_write(&schedules[0], 1, both, 2);
  schedules[0].s.ntmp = 1;
  assert_null(tt_program_compile(&r->ports[0], &schedules[0].s, &calls[0], CHUNK, TT_SIMPLE));
  const tt_schedule *s = rig_send(&schedules[0], 1);
  assert_null(tt_program_compile(&r->ports[0], s, &calls[0], BYTES / TT_PROGRAM_REFS, TT_SIMPLE));
  r->links[0][1].networked = true;
  assert_null(tt_program_compile(&r->ports[0], s, &calls[0], CHUNK, TT_SIMPLE));
}

// By way of the scratch, chunk after chunk; what is in the input is scaled where it is summed, and nowhere else.
static void test_scaled_inputs_and_scratch(void **state)
{
  enum { N = BYTES / sizeof(float) };
  const rig_step steps[] = {{TT_IN, -1, TT_TMP, -1, 0}, {TT_TMP, -1, TT_OUT, -1, 0}};
  const float half = 0.5f;
  float numbers[N], *results = (float *)out[0];
  (void)state;
  for (int i = 0; i < N; i++) {
    numbers[i] = (float)(3 * i);
  }
  memcpy(in[0], numbers, sizeof numbers);
  calls[0].count = N;
  calls[0].esize = sizeof(float);
  calls[0].op = (tt_redop){.type = ncclFloat, .kind = TT_RED_SUM, .prescale = 1};
  memcpy(&calls[0].op.scalar, &half, sizeof half);
  rig_write(&schedules[0], 1, steps, 2);
  schedules[0].s.ntmp = 1;
  schedules[0].steps[0].flags = schedules[0].steps[1].flags = TT_STEP_REDUCE;
  tt_program *p = tt_program_compile(&r->ports[0], &schedules[0].s, &calls[0], CHUNK / sizeof(float), TT_SIMPLE);
  assert_non_null(p);
  tt_program_state s = {{0}};
  const tt_program_call c = {.op = &p->op, .buffers = {in[0], out[0], p->call.buffers[TT_TMP]}};
  assert_true(tt_program_run(&r->ports[0], p, &c, 0, &s));
  for (int i = 0; i < N; i++) {
    assert_true(results[i] == 1.5f * (float)i);
  }
  tt_free(p);
}

static void lane_of(tt_lane *l, const tt_program *p, int i, tt_program_state s)
{
  tt_lane_resume(l, p, 0, &calls[i], s.steps[0]);
}

// Rank 0 gets as far as its first receive, and a lane goes on from there; so does it from any other place.
static void test_a_lane_goes_on_where_the_caller_stopped(void **state)
{
  (void)state;
  tt_program *p[2] = {exchange(0), exchange(1)};
  tt_program_call c[2] = {as(0, 7), as(1, 7)};
  tt_program_state s[2] = {{{0}}, {{0}}};
  tt_lane l[2];
  assert_false(tt_program_run(&r->ports[0], p[0], &c[0], 3, &s[0]));
  assert_int_equal(s[0].steps[0], 1);
  assert_false(tt_program_run(&r->ports[1], p[1], &c[1], 3, &s[1]));
  assert_int_equal(s[1].steps[0], 3); // has sent its second chunk, and waits for rank 0's
  lane_of(&l[0], p[0], 0, s[0]);
  lane_of(&l[1], p[1], 1, s[1]);
  assert_int_equal(rig_run(r, 0, &l[0]), TT_RUN_BLOCKED);
  assert_int_equal(l[0].waits_for, 1);
  assert_true(l[0].receives);
  assert_int_equal(rig_run(r, 1, &l[1]), TT_RUN_DONE);
  assert_int_equal(rig_run(r, 0, &l[0]), TT_RUN_DONE);
  assert_int_equal(l[0].waits_for, -1);
  assert_memory_equal(out[0], in[1], BYTES);
  assert_memory_equal(out[1], in[0], BYTES);
  lane_of(&l[0], p[0], 0, (tt_program_state){.steps = {2 * PASSES}});
  assert_true(l[0].done);
  tt_free(p[0]);
  tt_free(p[1]);
}

// A lane whose steps are told one by one takes one at a time, and says which step of the schedule it is.
static void test_a_lane_takes_one_step_for_a_byte(void **state)
{
  (void)state;
  tt_program *p = exchange(0);
  tt_lane l;
  size_t bytes = 0, one = 1;
  lane_of(&l, p, 0, (tt_program_state){{0}});
  assert_ptr_equal(tt_lane_step(&l, &bytes), &schedules[0].steps[0]);
  assert_int_equal(bytes, CHUNK);
  assert_int_equal(tt_lane_run(&r->ports[0], &l, &one), TT_RUN_MORE);
  assert_int_equal(one, 0);
  assert_ptr_equal(tt_lane_step(&l, &bytes), &schedules[0].steps[1]);
  one = 1;
  assert_int_equal(tt_lane_run(&r->ports[0], &l, &one), TT_RUN_BLOCKED);
  assert_int_equal(one, 1);
  lane_of(&l, p, 0, (tt_program_state){.steps = {2 * PASSES - 1}});
  assert_ptr_equal(tt_lane_step(&l, &bytes), &schedules[0].steps[1]);
  assert_int_equal(bytes, BYTES - 2 * CHUNK);
  tt_free(p);
}

// The caller stops at a message of another call, and the lane reports it.
static void test_a_message_of_another_call_is_named(void **state)
{
  (void)state;
  tt_program *p[2] = {exchange(0), exchange(1)};
  tt_program_call c[2] = {as(0, 7), as(1, 8)};
  tt_program_state s[2] = {{{0}}, {{0}}};
  tt_lane l;
  assert_false(tt_program_run(&r->ports[1], p[1], &c[1], 0, &s[1]));
  assert_false(tt_program_run(&r->ports[0], p[0], &c[0], 0, &s[0]));
  assert_int_equal(s[0].steps[0], 1);
  lane_of(&l, p[0], 0, s[0]);
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_FAILED);
  assert_int_equal(tt_port_status(&r->ports[0]), ncclInvalidUsage);
  assert_non_null(strstr(tt_last_error(), "different calls"));
  tt_free(p[0]);
  tt_free(p[1]);
}

// Without room for a message the lane waits for the peer that has to take one.
static void test_a_full_fifo_is_waited_for(void **state)
{
  tt_lane l;
  (void)state;
  tt_program *p = tt_program_compile(&r->ports[0], rig_send(&schedules[0], 1), &calls[0], CHUNK / 2, TT_SIMPLE);
  assert_non_null(p);
  lane_of(&l, p, 0, (tt_program_state){{0}});
  assert_int_equal(p->nsteps, RIG_SLOTS + 1);
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_BLOCKED);
  assert_int_equal(l.pc, RIG_SLOTS);
  assert_int_equal(l.waits_for, 1);
  assert_false(l.receives);
  tt_fifo_release(&r->links[1][0].recv[TT_SIMPLE]);
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_DONE);
  tt_free(p);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_steps_of_all_passes_are_resolved, setup, teardown),
      cmocka_unit_test_setup_teardown(test_some_are_queued, setup, teardown),
      cmocka_unit_test_setup_teardown(test_other_calls_have_none, setup, teardown),
      cmocka_unit_test_setup_teardown(test_scaled_inputs_and_scratch, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_lane_goes_on_where_the_caller_stopped, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_lane_takes_one_step_for_a_byte, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_message_of_another_call_is_named, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_full_fifo_is_waited_for, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
