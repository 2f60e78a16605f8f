// cuda_capture_fail_test.c: each call of the driver that a capture makes fails once, in a process of its own.
#include "cuda_graphs.h"

// Every STEPth call; after GOOD of them without harm it is over. Sanitizers make a process ten times slower: with steps
// of 5, at least 29 of the 150 calls that do harm fail, and at most 4 in a row that do none. Steps of 20 met none.
#if defined TT_TSAN || defined TT_ASAN
enum { STEP = 5, GOOD = 10 };
#else
enum { STEP = 1, GOOD = 20 };
#endif

enum { NOT_YET = 3, PAST = 4 }; // the call that fails comes before the capture, or behind it

static int fail_stage; // of the process

// Two ranks capture, each for itself, an operation of several strands, and one of the driver's calls fails. Then what
// is in the graphs ends, and leaves nothing.
static void survive(void **state)
{
  (void)state;
  trial t;
  open_joints();
  gpu_open(2, 2, 0);
  begin_function(&t, TT_FUNC_ALLGATHER);
  assert_int_equal(make_plans(0), 2);
  graph_begin(0);
  graph_begin(1);
  fail_stage = 1;
  if (tt_gpu_capture(&works[0], 1) == ncclSuccess && tt_gpu_capture(&works[1], 1) == ncclSuccess) {
    fail_stage = PAST;
    return;
  }
  ngraphs = 0;
  graph_end(0);
  graph_end(1);
  tt_gpu_port_stop(gpu_ports[0]);
  tt_gpu_port_stop(gpu_ports[1]);
  replay(APART);
  for (int r = 0; r < 2; r++) {
    assert_int_equal(settle(r), ncclSuccess);
  }
  synchronize();
  for (size_t e = 0; e < sides[0].nout; e++) {
    check_word(&t, 0, e, sides[0].out[e], 0xa5a5a5a5u);
  }
  destroy_graphs();
  await_no_captures();
  drop_schedules();
  gpu_close();
  assert_int_equal(pool_taken(), 0);
}

// The K-th call of a process fails. Returns NOT_YET, PAST, 0: all is well, 1: something is not.
static int fail_at(int k)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(survive)};
  char modes[64];
  int status = 0;
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    snprintf(modes, sizeof modes, "queues=32,fail=%d", k);
    setenv("NCCL_DEBUG", "NONE", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const bool failed = !open_mode(modes, "fails") || cmocka_run_group_tests_name(modes, tests, NULL, NULL) != 0;
    _exit(fail_stage == PAST ? PAST : fail_stage == 0 ? NOT_YET : failed);
  }
  waitpid(child, &status, 0);
  drop_devices(child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

// Returns how many calls were found whose failure does harm. Some failures are none: then the capture is good.
static int for_each_call(void)
{
  int k = 1, good = 0, failed = 0, tried = 0;
  for (int step = 64; step > 0; step /= 2) { // to the last one before the capture
    while (fail_at(k + step) == NOT_YET) {
      k += step;
    }
  }
  for (k++; good < GOOD; k += STEP) {
    const int result = fail_at(k);
    good = result == PAST ? good + 1 : 0;
    tried += result == 0;
    if (result != 0 && result != PAST && result != NOT_YET) {
      print_error("call %d: it ends with %d\n", k, result);
      failed++;
    }
  }
  print_message("%d of the calls of a capture have failed\n", tried);
  return failed + (tried == 0);
}

int main(void)
{
  use_driver();
  setenv("NCCL_DEBUG", "ERROR", 1);
  every = 1;
  return for_each_call() != 0;
}
