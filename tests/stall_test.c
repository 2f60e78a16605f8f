// stall_test.c: jobs that do not go on. The wait is said in time, and names the rank that is the cause and what it
// does; circles are errors; slow jobs go on as if nothing had been said.
#include "harness.h"

enum { COUNT = 1000, MOST = 64 };

// What the rank that is the cause does instead of its call, in the second operation.
typedef enum { STOPS, SLEEPS, LOOPS, IS_LATE, CIRCLE, TWO_COMMUNICATORS } trouble;

typedef struct trial {
  trouble what;
  int n, cause;
  ncclResult_t ends; // of a wait that ends: ncclSuccess, or what a rank at least gets
  const char *const *env;
  const char *words[6];
} trial;

enum { RESULTS }; // word of the board: ranks that got the result

static volatile long turns;

// What a rank does that is not waited for any more: it is killed, or ends by itself.
static void be_the_cause(const trial *t)
{
  if (t->what == STOPS) {
    raise(SIGSTOP);
  }
  while (t->what == SLEEPS) {
    pause();
  }
  while (t->what == LOOPS) {
    turns++;
  }
  if (t->what == IS_LATE) {
    sleep_ms(3000);
  }
}

// The rank's calls up to the one that does not come to an end.
static void call_all(const trial *t, int rank, ncclComm_t c[2], float *x, cudaStream_t s)
{
  int n = t->n;
  if (t->what == CIRCLE) { // receives first, each from the rank before
    OK(ncclRecv(x, COUNT, ncclFloat, (rank + n - 1) % n, c[0], s));
    OK(ncclSend(x + COUNT, COUNT, ncclFloat, (rank + 1) % n, c[0], s));
  } else if (t->what == TWO_COMMUNICATORS) {
    OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[rank % 2], s));
    OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[1 - rank % 2], s));
  } else {
    OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[0], s));
  }
}

static void body(int rank, void *arg)
{
  const trial *t = arg;
  cudaStream_t s;
  ncclComm_t c[2] = {join_processes(0, t->n, rank), NULL};
  float *x = calloc(2 * COUNT, sizeof *x);
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[0], s));
  OK(tuttiStreamSynchronize(s));
  if (t->what == TWO_COMMUNICATORS) {
    OK(ncclCommSplit(c[0], 0, rank, &c[1], NULL));
  }
  meet(t->n);
  if (rank == t->cause) {
    be_the_cause(t);
  }
  call_all(t, rank, c, x, s);
  ncclResult_t res = tuttiStreamSynchronize(s);
  // One rank finds out. The others learn that it has failed; the cause of a timeout may have what it needs.
  bool other = t->ends != ncclSuccess && (res == ncclRemoteError || (rank == t->cause && res == ncclSuccess));
  CHECK(res == t->ends || other, "rank %d: %d", rank, (int)res);
  atomic_fetch_add(&the_board->word[RESULTS], res == t->ends);
  meet(t->n);
  CHECK(atomic_load(&the_board->word[RESULTS]) > 0, "no rank gets %d", (int)t->ends);
  OK(res == ncclSuccess ? ncclCommDestroy(c[0]) : ncclCommAbort(c[0]));
  OK(tuttiStreamDestroy(s));
  free(x);
}

// A run, and its ranks' standard error, which stays readable when they have ended.
typedef struct job {
  ranks_set ranks;
  int output[MOST];
} job;

static void start_job(job *j, const trial *t)
{
  start_processes(&j->ranks, &(run){.n = t->n, .seconds = 40, .fn = body, .arg = (void *)(uintptr_t)t, .env = t->env});
  for (int i = 0; i < t->n; i++) {
    j->output[i] = dup(j->ranks.output[i]);
  }
}

static void close_job(const job *j)
{
  for (int i = 0; i < j->ranks.n; i++) {
    close(j->output[i]);
  }
}

// What the ranks have said so far. Valid until the next call.
static const char *read_job(const job *j)
{
  static char all[1 << 18];
  size_t length = 0;
  for (int i = 0; i < j->ranks.n; i++) {
    ssize_t n = pread(j->output[i], all + length, sizeof all - 1 - length, 0);
    length += n > 0 ? (size_t)n : 0;
  }
  all[length] = 0;
  return all;
}

static bool has_said(const job *j, const trial *t)
{
  return has_words(read_job(j), t->words);
}

static void expect_said(const job *j, const trial *t)
{
  if (!has_said(j, t)) {
    for (int i = 0; t->words[i] != NULL; i++) {
      print_error("expected: %s\n", t->words[i]);
    }
    print_error("said: %s\n", read_job(j));
  }
  assert_true(has_said(j, t));
}

// The job stands still for ever: it is killed when it has said why.
static void stands_still(const trial *t)
{
  job j;
  start_job(&j, t);
  for (double end = seconds_now() + GENEROUS(10); !has_said(&j, t) && seconds_now() < end;) {
    sleep_ms(20);
  }
  for (int i = 0; i < t->n; i++) {
    ranks_kill(&j.ranks, i);
  }
  assert_int_equal(finish_processes(&j.ranks), 0);
  expect_said(&j, t);
  close_job(&j);
}

// The job comes to an end.
static void ends(const trial *t)
{
  job j;
  start_job(&j, t);
  assert_int_equal(finish_processes(&j.ranks), 0);
  expect_said(&j, t);
  close_job(&j);
}

#define SOON ENV("NCCL_STALL_WARN_MS=300")

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
      &(trial){SLEEPS, 2, 1, 0, SOON, {"; rank 1 has not called it", " sleeps; 1 rank of this machine waits"}});
  stands_still(
      &(trial){LOOPS, 4, 2, 0, SOON, {"; rank 2 has not called it", " computes; 3 ranks of this machine wait"}});
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
                         "; rank 2 has not called it (its last call was operation 1 AllReduce", " sleeps; "}});
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

static void a_circle_is_an_error(void **state)
{
  (void)state;
  for (int n = 2; n <= 4; n++) {
    ends(&(trial){
        CIRCLE,
        n,
        -1,
        ncclInvalidUsage,
        SOON,
        {"deadlock, ranks wait for each other: rank 0 waits to receive 4000 bytes from rank ", "; rank 1 waits"}});
  }
}

static void a_stall_is_an_error(void **state)
{
  (void)state;
  ends(&(trial){IS_LATE, 2, 1, ncclTimeout, ENV("NCCL_STALL_ERROR_MS=400"), {NULL}});
}

// Each rank has queued the other communicator's call first.
static void two_communicators(void **state)
{
  (void)state;
  stands_still(
      &(trial){TWO_COMMUNICATORS,
               2,
               -1,
               0,
               SOON,
               {"rank 0 waits in operation 2 AllReduce", "; rank 1 has queued its call behind operation 1 AllReduce",
                "rank 1 waits in operation 1 AllReduce", "; rank 0 has queued its call behind operation 2 AllReduce"}});
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_is_stopped),    cmocka_unit_test(a_rank_does_something_else),
      cmocka_unit_test(a_chain_is_long),      cmocka_unit_test(a_rank_is_late),
      cmocka_unit_test(nothing_is_said),      cmocka_unit_test(a_stall_is_an_error),
      cmocka_unit_test(a_circle_is_an_error), cmocka_unit_test(two_communicators),
  };
  return RUN_TESTS("stall", tests, argc, argv);
}
