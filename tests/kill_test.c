// Ranks that die: the survivors learn it soon, can abort at once, and nothing is left of anybody. Ranks that pause do
// no harm.
#include "remains.h"

enum { N = 4, MISSED_AFTER = 1 }; // the second: seconds after which init gives up a rank that has not come

// What a rank does until a peer dies.
typedef enum { DO_SUMS, DO_LARGE_SUMS, DO_MESSAGES, DO_INITS } activity;

typedef struct trial {
  activity what;
  int victim;
  uint64_t began;
  bool stop; // SIGSTOP and SIGCONT instead of SIGKILL
} trial;

// Words of the board: when the trial began and when the victim died (ns), how many ranks have begun, whether it is
// enough; the slowest rank's time until it knew (ns), and what that should be.
enum { DIED_AT, BEGUN, ENOUGH, SLOWEST, SHOULD_BE };

static uint64_t now_ns(void)
{
  return (uint64_t)(seconds_now() * 1e9);
}

// Soon after the death: on a machine that is busy just then ten times as long may do, but not trial after trial
// (kill_often).
static void check_in_time(int rank, const char *what, double limit)
{
  uint64_t died = atomic_load(&the_board->word[DIED_AT]);
  double took = died == 0 ? 0 : (double)(now_ns() - died) / 1e9;
  CHECK(died != 0, "rank %d: %s although nobody has died", rank, what);
  CHECK(took < GENEROUS(limit), "rank %d: %s %g s after the death", rank, what, took);
  atomic_store(&the_board->word[SHOULD_BE], (uint64_t)(limit * SLOWER * 1e9));
  for (uint64_t now = (uint64_t)(took * 1e9), most = 0;
       !atomic_compare_exchange_weak(&the_board->word[SLOWEST], &most, now) && most < now;) {
  }
}

// One operation; false when the communicator has failed.
static bool act(const trial *t, int rank, ncclComm_t comm, cudaStream_t s, float *x, float *y)
{
  ncclResult_t state, res;
  size_t count = t->what == DO_SUMS ? 100 : 300000;
  if (t->what == DO_MESSAGES) {
    OK(ncclGroupStart());
    res = ncclSend(x, count, ncclFloat, (rank + 1) % N, comm, s);
    ncclResult_t r = ncclRecv(y, count, ncclFloat, (rank + N - 1) % N, comm, s);
    ncclResult_t e = ncclGroupEnd();
    res = res != ncclSuccess ? res : r != ncclSuccess ? r : e;
  } else {
    res = ncclAllReduce(x, y, count, ncclFloat, ncclSum, comm, s);
  }
  if (res == ncclSuccess) {
    res = tuttiStreamSynchronize(s);
  }
  CHECK(res == ncclSuccess || res == ncclRemoteError, "rank %d: operation ends with %d", rank, (int)res);
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess || state == ncclRemoteError, "rank %d: state %d", rank, (int)state);
  return res == ncclSuccess && state == ncclSuccess;
}

static void abort_promptly(int rank, ncclComm_t comm)
{
  ncclResult_t state;
  double start = seconds_now();
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclRemoteError, "rank %d: state %d", rank, (int)state);
  OK(ncclCommAbort(comm));
  CHECK(seconds_now() - start < GENEROUS(2), "rank %d: ncclCommAbort took %g s", rank, seconds_now() - start);
}

// Ranks see the flag at different times: they leave together when one of them has seen it.
static bool all_have_enough(ncclComm_t comm, cudaStream_t s)
{
  int enough = atomic_load(&the_board->word[ENOUGH]) != 0;
  OK(ncclAllReduce(&enough, &enough, 1, ncclInt, ncclMax, comm, s));
  OK(tuttiStreamSynchronize(s));
  return enough != 0;
}

// Operations until one fails, or all have enough.
static void operate(const trial *t, int rank, ncclComm_t comm)
{
  float *x = calloc(300000, sizeof *x), *y = calloc(300000, sizeof *y);
  cudaStream_t s;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  atomic_fetch_add(&the_board->word[BEGUN], 1);
  bool over = false;
  while (!over && act(t, rank, comm, s, x, y)) {
    over = t->stop && all_have_enough(comm, s);
  }
  if (over) {
    OK(ncclCommDestroy(comm));
  } else {
    check_in_time(rank, "an operation failed", 4);
    abort_promptly(rank, comm);
  }
  OK(tuttiStreamDestroy(s));
  free(x);
  free(y);
}

// The id of process 0, unless it dies before it has one. A rank that is about to die itself does not leave before.
static bool id_of_first(const trial *t, int rank, ncclUniqueId *id)
{
  if (rank == 0) {
    OK(ncclGetUniqueId(&the_board->ids[0]));
    atomic_store(&the_board->ids_made[0], 1);
  }
  while (atomic_load(&the_board->ids_made[0]) == 0) {
    if (atomic_load(&the_board->word[DIED_AT]) != 0 && rank != t->victim) {
      return false;
    }
    sleep_ms(0.2);
  }
  *id = the_board->ids[0];
  return true;
}

// Somebody has died, or one came so late that the others had given it up. A victim that learns this lives on until it
// is killed.
static void check_init_failure(const trial *t, int rank)
{
  double since = (double)(now_ns() - t->began) / 1e9;
  if (atomic_load(&the_board->word[DIED_AT]) != 0) {
    check_in_time(rank, "init failed", 4);
  } else {
    CHECK(since >= MISSED_AFTER, "rank %d: init failed %g s after the beginning, although nobody has died", rank,
          since);
  }
  while (rank == t->victim) {
    pause();
  }
}

// The victim may die before, while and after it joins; a rank that never came is missed after NCCL_BOOTSTRAP_TIMEOUT.
static void rank_body(int rank, void *arg)
{
  const trial *t = arg;
  ncclComm_t comm = NULL;
  ncclUniqueId id;
  char seconds[16];
  snprintf(seconds, sizeof seconds, "%d", t->what == DO_INITS ? MISSED_AFTER : 1000);
  setenv("NCCL_BOOTSTRAP_TIMEOUT", seconds, 1);
  setenv("NCCL_NET_TIMEOUT", "10000", 1); // a death is noticed by other signs than that nothing is heard
  if (!id_of_first(t, rank, &id)) {
    return;
  }
  ncclResult_t res = ncclCommInitRank(&comm, N, id, rank);
  if (res == ncclSuccess) {
    operate(t, rank, comm);
    return;
  }
  CHECK(comm == NULL, "a handle beside an error");
  CHECK(t->what == DO_INITS && (res == ncclRemoteError || res == ncclInvalidUsage), "rank %d: init ends with %d", rank,
        (int)res);
  check_init_failure(t, rank);
}

// --- Trials

static unsigned seed;

static double random_ms(double most)
{
  seed = seed * 1103515245u + 12345u;
  return most * (double)(seed >> 8 & 0xffff) / 65536;
}

// True: all knew as soon as they should.
static bool kill_one(trial *t, int number)
{
  ranks_set r;
  sockets s = {0};
  time_t since = time(NULL);
  unsigned from = seed;
  t->victim = (int)random_ms(N) % N;
  t->began = now_ns();
  start_processes(&r, &(run){.n = N, .seconds = 15, .fn = rank_body, .arg = t});
  while (t->what != DO_INITS && atomic_load(&the_board->word[BEGUN]) < N) {
    sleep_ms(0.5);
  }
  sleep_ms(random_ms(t->what == DO_INITS ? 25 * SLOWER : 15));
  for (int i = 0; i < N; i++) {
    add_sockets(r.pid[i], &s);
  }
  atomic_store(&the_board->word[DIED_AT], now_ns());
  ranks_kill(&r, t->victim);
  bool good = ranks_wait(&r) == 0;
  if (!good) {
    print_error("trial %d: activity %d, seed %u, victim %d\n", number, (int)t->what, from, t->victim);
  }
  bool soon = atomic_load(&the_board->word[SLOWEST]) <= atomic_load(&the_board->word[SHOULD_BE]);
  board_close();
  assert_true(good);
  assert_int_equal(r.left_behind, 0);
  expect_nothing_left(&s, since);
  return soon;
}

static void kill_often(activity what, int times)
{
  int soon = 0;
  for (int i = 0; i < times; i++) {
    soon += kill_one(&(trial){.what = what}, i);
  }
  assert_true(2 * soon >= times);
}

static void killed_in_small_sums(void **state)
{
  (void)state;
  kill_often(DO_SUMS, 30 / SLOWER);
}

static void killed_in_large_sums(void **state)
{
  (void)state;
  kill_often(DO_LARGE_SUMS, 20 / SLOWER);
}

static void killed_in_messages(void **state)
{
  (void)state;
  kill_often(DO_MESSAGES, 20 / SLOWER);
}

static void killed_in_init(void **state)
{
  (void)state;
  kill_often(DO_INITS, 40 / SLOWER);
}

// Rank `*arg` dies when everybody is ready, before anybody has sent anything: the others find it gone in their first
// operation.
static void last_of_init(int rank, void *arg)
{
  ncclComm_t comm;
  cudaStream_t stream;
  float x = 1;
  OK(ncclCommInitRank(&comm, N, shared_id(0, rank), rank));
  if (rank == *(int *)arg) {
    kill(getpid(), SIGKILL);
  }
  sleep_ms(200);
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  ncclResult_t res = ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, stream);
  res = res == ncclSuccess ? tuttiStreamSynchronize(stream) : res; // over a network it may be noticed before
  CHECK(res == ncclRemoteError, "rank %d: %d, not ncclRemoteError", rank, (int)res);
  OK(ncclCommAbort(comm));
  OK(tuttiStreamDestroy(stream));
}

static void killed_before_the_first_operation(void **state)
{
  (void)state;
  for (int victim = 0; victim < N; victim++) {
    ranks_set r;
    start_processes(&r, &(run){.n = N, .seconds = 15, .fn = last_of_init, .arg = &victim});
    r.expected[victim] = -SIGKILL;
    assert_int_equal(finish_processes(&r), 0);
  }
}

// A rank sleeps for longer than peers check each other's life, then goes on.
static void a_pause_does_no_harm(void **state)
{
  (void)state;
  for (int round = 0; round < 3; round++) {
    trial t = {.what = round % 2 == 0 ? DO_SUMS : DO_LARGE_SUMS, .stop = true};
    ranks_set r;
    start_processes(&r, &(run){.n = N, .seconds = 15, .fn = rank_body, .arg = &t});
    while (atomic_load(&the_board->word[BEGUN]) < N) {
      sleep_ms(0.5);
    }
    for (int i = 0; i < 2; i++) {
      sleep_ms(random_ms(20));
      kill(r.pid[(round + i) % N], SIGSTOP);
      sleep_ms(300);
      kill(r.pid[(round + i) % N], SIGCONT);
    }
    atomic_store(&the_board->word[ENOUGH], 1);
    assert_int_equal(finish_processes(&r), 0);
  }
}

// The process with the root sleeps for longer than ranks wait for each other; a rank that has come meanwhile has come
// in time.
static void joins_beside_a_pause(int rank, void *arg)
{
  (void)arg;
  ncclUniqueId id = shared_id(0, rank);
  ncclComm_t comm = NULL;
  atomic_fetch_add(&the_board->word[BEGUN], 1);
  while (rank != 0 && atomic_load(&the_board->word[ENOUGH]) == 0) {
    sleep_ms(0.2);
  }
  OK(ncclCommInitRank(&comm, 2, id, rank));
  OK(ncclCommDestroy(comm));
}

static void a_root_that_pauses(void **state)
{
  (void)state;
  ranks_set r;
  start_processes(&r,
                  &(run){.n = 2, .seconds = 15, .fn = joins_beside_a_pause, .env = ENV("NCCL_BOOTSTRAP_TIMEOUT=1")});
  while (atomic_load(&the_board->word[BEGUN]) < 2) {
    sleep_ms(0.5);
  }
  sleep_ms(100); // rank 0 has joined, or it will do so after the pause: that is right, too
  kill(r.pid[0], SIGSTOP);
  siginfo_t stop; // comes when every thread stands: until then the root may answer
  assert_int_equal(waitid(P_PID, (id_t)r.pid[0], &stop, WSTOPPED), 0);
  assert_int_equal(stop.si_code, CLD_STOPPED);
  atomic_store(&the_board->word[ENOUGH], 1);
  sleep_ms(2500);
  kill(r.pid[0], SIGCONT);
  assert_int_equal(finish_processes(&r), 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed_in_small_sums),
      cmocka_unit_test(killed_in_large_sums),
      cmocka_unit_test(killed_in_messages),
      cmocka_unit_test(killed_in_init),
      cmocka_unit_test(killed_before_the_first_operation),
      cmocka_unit_test(a_pause_does_no_harm),
      cmocka_unit_test(a_root_that_pauses),
  };
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  seed = choose_seed(argc > 2 ? argv[2] : NULL);
  return RUN_TESTS("kill", tests, argc, argv);
}
