// stall.h: a job of which a rank does not do what the others wait for: what it does instead, what the ranks say of it.
#pragma once
#include "harness.h"

enum { COUNT = 1000, LARGE = 4 << 20, MOST = 64 };

// What the rank that is the cause does instead of its call, in the second operation.
typedef enum {
  STOPS,
  SLEEPS,
  LOOPS,
  IS_LATE,
  FINALIZES,
  CIRCLE,
  MIXED_CIRCLE,
  SEND_CIRCLE,
  TWO_COMMUNICATORS,
  ELSEWHERE
} trouble;

// With STALL_KEY in `env`: under that encryption key.
typedef struct trial {
  trouble what;
  int n, cause;
  ncclResult_t ends; // of a wait that ends: ncclSuccess, or what a rank at least gets
  const char *const *env;
  const char *words[6];
} trial;

enum { LATE_MS = SLOWER > 1 ? 9000 : 3000 }; // IS_LATE

#define SOON ENV("NCCL_STALL_WARN_MS=300")

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
    sleep_ms(LATE_MS);
  }
}

static bool is_circle(const trial *t)
{
  return t->what == CIRCLE || t->what == MIXED_CIRCLE;
}

// The rank's calls up to the one that does not come to an end.
static void call_all(const trial *t, int rank, ncclComm_t c[2], float *x, cudaStream_t s)
{
  int n = t->n;
  if (is_circle(t)) { // receives first, each from the rank before
    OK(ncclRecv(x, COUNT, ncclFloat, (rank + n - 1) % n, c[0], s));
    OK(ncclSend(x + COUNT, COUNT, ncclFloat, (rank + 1) % n, c[0], s));
  } else if (t->what == SEND_CIRCLE) { // messages for which there is no room
    OK(ncclSend(x, LARGE, ncclFloat, (rank + 1) % n, c[0], s));
    OK(ncclRecv(x + LARGE, LARGE, ncclFloat, (rank + n - 1) % n, c[0], s));
  } else if (t->what == TWO_COMMUNICATORS) {
    OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[rank % 2], s));
    OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[1 - rank % 2], s));
  } else {
    // ELSEWHERE: the cause calls c[1], which has all ranks but rank 0, and nobody else does.
    bool elsewhere = t->what == ELSEWHERE && rank == t->cause;
    OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[elsewhere], s));
  }
}

// It has no more calls, and keeps the communicator until the others have noticed.
static void leave_early(const trial *t, ncclComm_t c, cudaStream_t s, float *x)
{
  OK(ncclCommFinalize(c));
  meet(t->n);
  OK(ncclCommDestroy(c));
  OK(tuttiStreamDestroy(s));
  free(x);
}

// Another thread could ask as well: it is not the one that waits.
static void diagnose(ncclComm_t c)
{
  static const char *const words[] = {"\"nranks\":3",         "\"class\":\"late\",\"cause\":1",
                                      "\"waits\":{\"for\":1", "\"function\":\"AllReduce\"",
                                      "\"state\":\"ready\"",  NULL};
  char *json = NULL;
  bool good = false;
  GIVES(tuttiCommDiagnose(c, NULL), ncclInvalidArgument);
  for (double end = seconds_now() + GENEROUS(2); !good && seconds_now() < end; free(json)) {
    sleep_ms(50);
    OK(tuttiCommDiagnose(c, &json));
    good = has_words(json, words);
  }
  CHECK(good, "tuttiCommDiagnose does not name rank 1");
}

HARNESS void body(int rank, void *arg)
{
  const trial *t = arg;
  cudaStream_t s;
  if (t->what == MIXED_CIRCLE) { // on two machines
    setenv("NCCL_HOSTID", rank < 2 ? "first" : "second", 1);
  }
  if (getenv("STALL_KEY") != NULL) {
    ncclEncryptionConfig_t f = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
    f.mode = NCCL_ENCRYPTION_MODE_PSK;
    f.psk = getenv("STALL_KEY");
    OK(ncclSetEncryption(&f));
  }
  ncclComm_t c[2] = {join_processes(0, t->n, rank), NULL};
  float *x = calloc((size_t)2 * LARGE, sizeof *x);
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[0], s));
  OK(tuttiStreamSynchronize(s));
  if (t->what == TWO_COMMUNICATORS) {
    OK(ncclCommSplit(c[0], 0, rank, &c[1], NULL));
  } else if (t->what == ELSEWHERE) {
    OK(ncclCommSplit(c[0], rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, rank, &c[1], NULL));
  }
  meet(t->n);
  if (rank == t->cause && t->what == FINALIZES) {
    leave_early(t, c[0], s, x);
    return;
  }
  if (rank == t->cause) {
    be_the_cause(t);
  }
  call_all(t, rank, c, x, s);
  if (t->what == IS_LATE && t->n == 3 && rank == 0) {
    diagnose(c[0]);
  }
  ncclResult_t res = tuttiStreamSynchronize(s);
  if (is_circle(t) || t->what == SEND_CIRCLE) {
    fprintf(stderr, "rank %d: %s\n", rank, ncclGetLastError(NULL));
  }
  // One rank finds out. The others learn that it has failed; the cause of a timeout may have what it needs.
  bool other = t->ends != ncclSuccess && (res == ncclRemoteError || (rank == t->cause && res == ncclSuccess));
  bool named = t->what != FINALIZES || strstr(ncclGetLastError(NULL), "has finalized or destroyed the communicator");
  CHECK(res == t->ends || other, "rank %d: %d", rank, (int)res);
  if (t->what == TWO_COMMUNICATORS && res == ncclInvalidUsage) { // the rank that finds out: both
    ncclResult_t second;
    OK(ncclCommGetAsyncError(c[1], &second));
    named &= second == ncclInvalidUsage;
  }
  atomic_fetch_add(&the_board->word[RESULTS], res == t->ends && named);
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

HARNESS void start_job(job *j, const trial *t)
{
  start_processes(&j->ranks, &(run){.n = t->n, .seconds = 40, .fn = body, .arg = (void *)(uintptr_t)t, .env = t->env});
  for (int i = 0; i < t->n; i++) {
    j->output[i] = dup(j->ranks.output[i]);
  }
}

HARNESS void close_job(const job *j)
{
  for (int i = 0; i < j->ranks.n; i++) {
    close(j->output[i]);
  }
}

// What the ranks have said so far. Valid until the next call.
HARNESS const char *read_job(const job *j)
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

HARNESS bool has_said(const job *j, const trial *t)
{
  return has_words(read_job(j), t->words);
}

HARNESS void expect_said(const job *j, const trial *t)
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
HARNESS void stands_still(const trial *t)
{
  job j;
  start_job(&j, t);
  for (double end = seconds_now() + GENEROUS(10); !has_said(&j, t) && seconds_now() < end;) {
    sleep_ms(20);
  }
  ranks_kill_all(&j.ranks);
  assert_int_equal(finish_processes(&j.ranks), 0);
  expect_said(&j, t);
  close_job(&j);
}

// The job comes to an end.
HARNESS void ends(const trial *t)
{
  job j;
  start_job(&j, t);
  assert_int_equal(finish_processes(&j.ranks), 0);
  expect_said(&j, t);
  close_job(&j);
}
