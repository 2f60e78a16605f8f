// stall_test.c: jobs that do not go on. The wait is said in time, and names the rank that is the cause and what it
// does; slow jobs go on as if nothing had been said.
#include "stall.h"

// What bin/tutti-why says of a process, or of a place. Valid until the next call.
static const char *ask_tool(const char *of)
{
  static char text[1 << 14];
  char command[512];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(command, sizeof command, "%s/bin/tutti-why %s 2>&1", build != NULL ? build : ".", of);
  FILE *f = popen(command, "r");
  assert_non_null(f);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  (void)pclose(f);
  return text;
}

// A tool that reads the ranks' memory says the same.
static void a_tool_looks(void **state)
{
  (void)state;
  const trial t = {STOPS, 3, 1, 0, SOON, {"; rank 1 has not called it"}};
  static const char *const words[] = {"3 ranks, 3 on this machine",
                                      "rank 0, process ",
                                      " rank 1; last call: operation 2 AllReduce",
                                      "its process is stopped by a signal",
                                      "late: rank 0 waits in operation 2 AllReduce",
                                      NULL};
  job j;
  start_job(&j, &t);
  for (double end = seconds_now() + GENEROUS(10); !has_said(&j, &t) && seconds_now() < end;) {
    sleep_ms(20);
  }
  const char *said = "";
  for (double end = seconds_now() + GENEROUS(2); !has_words(said, words) && seconds_now() < end;) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)j.ranks.pid[2]);
    said = ask_tool(pid);
  }
  ranks_kill_all(&j.ranks);
  assert_int_equal(finish_processes(&j.ranks), 0);
  if (!has_words(said, words)) {
    fail_msg("tutti-why said: %s", said);
  }
  close_job(&j);
}

static void a_rank_is_stopped(void **state)
{
  (void)state;
  for (int cause = 0; cause < 3; cause++) {
    char name[96];
    snprintf(name, sizeof name, "; rank %d has not called it (its last call was operation 1 AllReduce", cause);
    stands_still(&(trial){STOPS,
                          3,
                          cause,
                          0,
                          SOON,
                          {"NCCL WARN no progress for ", "waits in operation 2 AllReduce type ncclFloat32 op sum", name,
                           "is stopped by a signal", "2 ranks of this machine wait for it"}});
  }
}

static void a_rank_does_something_else(void **state)
{
  (void)state;
  stands_still(
      &(trial){SLEEPS, 2, 1, 0, SOON, {"; rank 1 has not called it", " sleeps", "; 1 rank of this machine waits"}});
  stands_still(
      &(trial){LOOPS, 4, 2, 0, SOON, {"; rank 2 has not called it", " computes; 3 ranks of this machine wait"}});
}

// The rank waits in a communicator that the one which reports it has no part in, for a rank that waits for it here.
static void a_rank_waits_in_another_communicator(void **state)
{
  (void)state;
  stands_still(
      &(trial){ELSEWHERE,
               3,
               1,
               0,
               SOON,
               {"rank 0 waits in operation 2 AllReduce", "; rank 1 has not called it", "; it waits in communicator 0x",
                ": rank 0 waits in operation 1 AllReduce", ": rank 2 waits in operation 2 AllReduce"}});
}

// In a ring each rank waits for the one before: all but one wait for the rank that sleeps, over up to 62 others.
static void a_chain_is_long(void **state)
{
  (void)state;
  stands_still(&(trial){SLEEPS,
                        MOST,
                        2,
                        0,
                        ENV("NCCL_STALL_WARN_MS=1000", "NCCL_ALGO=Ring"),
                        {"rank 0 waits in operation 2 AllReduce", "; rank 1 waits in operation 2 AllReduce",
                         "; rank 2 has not called it (its last call was operation 1 AllReduce", " sleeps"}});
}

static void a_rank_is_late(void **state)
{
  (void)state;
  ends(&(trial){IS_LATE, 3, 1, ncclSuccess, SOON, {"; rank 1 has not called it", "goes on after "}});
}

static void nothing_is_said(void **state)
{
  (void)state;
  trial t = {IS_LATE, 3, 1, ncclSuccess, ENV("NCCL_STALL_WARN_MS=0"), {NULL}};
  job j;
  start_job(&j, &t);
  assert_int_equal(finish_processes(&j.ranks), 0);
  assert_string_equal(read_job(&j), "");
  close_job(&j);
}

// Ranks that call a rank which has finalized get an error, over shared memory and over the network.
static void a_rank_has_finalized(void **state)
{
  (void)state;
  ends(&(trial){FINALIZES, 3, 1, ncclRemoteError, SOON, {NULL}});
  ends(&(trial){FINALIZES, 2, 0, ncclRemoteError, ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"), {NULL}});
}

static void a_stall_is_an_error(void **state)
{
  (void)state;
  char limit[40]; // it holds for the first operation, too, which goes well
  snprintf(limit, sizeof limit, "NCCL_STALL_ERROR_MS=%d", LATE_MS / 2);
  ends(&(trial){IS_LATE, 2, 1, ncclTimeout, ENV(limit), {NULL}});
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_is_stopped),
      cmocka_unit_test(a_rank_does_something_else),
      cmocka_unit_test(a_chain_is_long),
      cmocka_unit_test(a_rank_is_late),
      cmocka_unit_test(nothing_is_said),
      cmocka_unit_test(a_stall_is_an_error),
      cmocka_unit_test(a_rank_has_finalized),
      cmocka_unit_test(a_tool_looks),
      cmocka_unit_test(a_rank_waits_in_another_communicator),
  };
  return RUN_TESTS("stall", tests, argc, argv);
}
