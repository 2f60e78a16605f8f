// death_test.c: a rank that dies is an error on every survivor, in every communicator that it belongs to, whatever the
// survivors do just then. The text names it, not the survivor that was waited for. A rank that exits without
// ncclCommDestroy is told apart from one that was killed.
#include "harness.h"

enum { RING = 16, FEW = 6, VICTIM = 3 };
enum { BEGUN, DEAD }; // words of the board

typedef enum { IN_SUMS, IDLE, IN_SPLITS, EXITS } phase;

typedef struct death {
  phase what;
  int n;
  bool net; // each rank is a machine of its own
} death;

typedef struct survivor {
  const death *d;
  int rank;
  ncclComm_t comm, child; // child: all ranks, too
  cudaStream_t stream;
} survivor;

static ncclResult_t sum(const survivor *s, ncclComm_t comm)
{
  float x = 1, y = 0;
  ncclResult_t res = ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, s->stream);
  ncclResult_t end = tuttiStreamSynchronize(s->stream);
  return res != ncclSuccess ? res : end;
}

static ncclResult_t poll_error(ncclComm_t comm)
{
  ncclResult_t state = ncclSuccess;
  for (double end = seconds_now() + GENEROUS(1); state == ncclSuccess && seconds_now() < end; sleep_ms(2)) {
    OK(ncclCommGetAsyncError(comm, &state));
  }
  return state;
}

static ncclResult_t split_once(const survivor *s)
{
  ncclComm_t part = NULL;
  ncclResult_t res = ncclCommSplit(s->comm, s->rank % 2, 0, &part, NULL);
  if (res == ncclSuccess) {
    OK(ncclCommDestroy(part));
  }
  return res;
}

// Works until it learns of the death.
static ncclResult_t live_on(const survivor *s)
{
  ncclResult_t res = ncclSuccess;
  if (s->d->what == IDLE) {
    return poll_error(s->comm);
  }
  while (res == ncclSuccess) {
    res = s->d->what == IN_SPLITS ? split_once(s) : sum(s, s->comm);
  }
  return res;
}

static void check_text(const survivor *s, const char *text)
{
  char who[32];
  snprintf(who, sizeof who, "rank %d (pid ", VICTIM);
  CHECK(strstr(text, who) != NULL, "rank %d: the text does not name the rank that died: %s", s->rank, text);
  const char *how = s->d->what == EXITS ? "has exited without ncclCommDestroy" : "was killed";
  CHECK(strstr(text, how) != NULL, "rank %d: the text does not say '%s': %s", s->rank, how, text);
}

static void death_body(int rank, void *arg)
{
  const death *d = arg;
  survivor s = {.d = d, .rank = rank};
  char host[16];
  if (d->net) {
    snprintf(host, sizeof host, "m%d", rank);
    setenv("NCCL_HOSTID", host, 1);
  }
  s.comm = join_processes(0, d->n, rank);
  OK(tuttiStreamCreate(&s.stream, TUTTI_STREAM_NON_BLOCKING));
  OK(ncclCommSplit(s.comm, 0, rank, &s.child, NULL));
  OK(sum(&s, s.comm));
  OK(sum(&s, s.child));
  atomic_fetch_add(&the_board->word[BEGUN], 1);
  while (d->what == EXITS && rank == VICTIM) {
    for (int i = 0; i < 20; i++) {
      OK(sum(&s, s.comm));
    }
    exit(0);
  }
  while (d->what == IDLE && rank == VICTIM) {
    pause();
  }
  ncclResult_t res = live_on(&s);
  CHECK(res == ncclRemoteError, "rank %d: %d, not ncclRemoteError", rank, (int)res);
  check_text(&s, ncclGetLastError(s.comm));
  if (d->what != EXITS) { // nobody waits for the other rank there
    res = poll_error(s.child);
    CHECK(res == ncclRemoteError, "rank %d: the child says %d, not ncclRemoteError", rank, (int)res);
  }
  double begun = seconds_now();
  OK(ncclCommAbort(s.child));
  OK(ncclCommAbort(s.comm));
  CHECK(seconds_now() - begun < GENEROUS(1), "rank %d: aborts took %g s", rank, seconds_now() - begun);
  OK(tuttiStreamDestroy(s.stream));
}

static void die(death d)
{
  ranks_set r;
  start_processes(&r, &(run){.n = d.n, .seconds = 30, .fn = death_body, .arg = &d, .env = ENV("NCCL_ALGO=Ring")});
  while (atomic_load(&the_board->word[BEGUN]) < (uint64_t)d.n) {
    sleep_ms(1);
  }
  if (d.what != EXITS) {
    sleep_ms(20);
    ranks_kill(&r, VICTIM);
  }
  assert_int_equal(finish_processes(&r), 0);
}

static void killed_in_a_ring(void **state)
{
  (void)state;
  die((death){.what = IN_SUMS, .n = RING});
  die((death){.what = IN_SUMS, .n = RING, .net = true});
}

static void killed_while_all_are_idle(void **state)
{
  (void)state;
  die((death){.what = IDLE, .n = FEW});
  die((death){.what = IDLE, .n = FEW, .net = true});
}

static void killed_in_splits(void **state)
{
  (void)state;
  for (int i = 0; i < 3; i++) {
    die((death){.what = IN_SPLITS, .n = FEW});
    die((death){.what = IN_SPLITS, .n = FEW, .net = true});
  }
}

static void exit_without_destroy(void **state)
{
  (void)state;
  die((death){.what = EXITS, .n = FEW});
  die((death){.what = EXITS, .n = FEW, .net = true});
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed_in_a_ring),
      cmocka_unit_test(killed_while_all_are_idle),
      cmocka_unit_test(killed_in_splits),
      cmocka_unit_test(exit_without_destroy),
  };
  return RUN_TESTS("death", tests, argc, argv);
}
