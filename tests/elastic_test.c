// Communicators that lose ranks, give some up, take new ones in, and are revoked.
#include "buffers.h"

#include "base/util.h"

enum { P = 4 }; // processes

static void expect_place(ncclComm_t comm, int rank, int n)
{
  int r, c;
  OK(ncclCommUserRank(comm, &r));
  OK(ncclCommCount(comm, &c));
  CHECK(r == rank && c == n, "rank %d of %d, not %d of %d", r, c, rank, n);
}

// --- Deaths

enum {
  DIED_AT,
  DONE_AT = 8
}; // words of the board: when rank `word - DIED_AT` died; when a rank had its first sum after

static uint64_t now_ns(void)
{
  return (uint64_t)(seconds_now() * 1e9);
}

static void die(int rank)
{
  atomic_store(&the_board->word[DIED_AT + rank], now_ns());
  kill(getpid(), SIGKILL);
}

// Ranks 1, then 3, then 0 of the first communicator die amid sums; those that are left shrink, and sum again.
static void deaths_body(int rank, void *arg)
{
  static const int victims[] = {1, 3, 0};
  const int *flags = arg;
  ncclComm_t comm = join_processes(0, P, rank);
  cudaStream_t s = new_stream();
  for (int round = 0; round < 3; round++) {
    int me, n, victim = victims[round], out = victim;
    size_t count = round == 1 ? 200000 : 1000;
    OK(ncclCommUserRank(comm, &me));
    OK(ncclCommCount(comm, &n));
    for (int i = 0; i < round; i++) {
      out -= victims[i] < victim;
    }
    for (int i = 0; i < 20; i++) {
      CHECK(n < P - round || sum_once(comm, s, count) == ncclSuccess, "a sum before anybody has died");
    }
    if (rank == victim) {
      die(rank);
    }
    while (n > 1 && sum_once(comm, s, count) == ncclSuccess) {
    }
    ncclComm_t next = NULL;
    OK(ncclCommShrink(comm, &out, 1, &next, NULL, *flags));
    expect_place(next, me - (out < me), n - 1);
    CHECK(sum_once(next, s, count) == ncclSuccess, "a sum after the shrink");
    double took = (double)(now_ns() - atomic_load(&the_board->word[DIED_AT + victim])) / 1e9;
    CHECK(took < GENEROUS(1), "round %d, rank %d: %g s from the death to the sum", round, rank, took);
    OK(round % 2 == 0 ? ncclCommDestroy(comm) : ncclCommAbort(comm));
    comm = next;
  }
  OK(ncclCommDestroy(comm));
  OK(tuttiStreamDestroy(s));
}

static void shrink_after_deaths(void **state)
{
  (void)state;
  int flags = NCCL_SHRINK_ABORT;
  ranks_set r;
  start_processes(
      &r, &(run) {
        .n = P
        , .seconds = 20, .fn = deaths_body, .arg = &flags
      });
  r.expected[0] = r.expected[1] = r.expected[3] = -SIGKILL;
  assert_int_equal(finish_processes(&r), 0);
}

// Without NCCL_SHRINK_ABORT a communicator that has failed is refused, with a text that says how it goes. The shrink
// also ends what hangs; a rank that has died and is not excluded is an error that names it, and the next try succeeds.
static void wrong_survivors_body(int rank, void *arg)
{
  (void)arg;
  ncclComm_t comm = join_processes(0, P, rank), next = NULL;
  cudaStream_t s = new_stream();
  int out = 3, both[] = {3, 2};
  CHECK(sum_once(comm, s, 100) == ncclSuccess, "a sum");
  meet(P);
  if (rank >= 2) {
    die(rank);
  }
  while (sum_once(comm, s, 100) == ncclSuccess) {
  }
  REFUSED(ncclCommShrink(comm, &out, 1, &next, NULL, NCCL_SHRINK_DEFAULT), ncclRemoteError, "NCCL_SHRINK_ABORT");
  REFUSED(ncclCommShrink(comm, &out, 1, &next, NULL, NCCL_SHRINK_ABORT), ncclRemoteError, "rank 2");
  CHECK(next == NULL, "a handle beside an error");
  OK(ncclCommShrink(comm, both, 2, &next, NULL, NCCL_SHRINK_ABORT));
  CHECK(both[0] == 3 && both[1] == 2, "the caller's list has changed");
  CHECK(sum_once(next, s, 100) == ncclSuccess, "a sum after the shrink");
  OK(ncclCommDestroy(comm));
  OK(ncclCommDestroy(next));
  OK(tuttiStreamDestroy(s));
}

static void dead_among_the_survivors(void **state)
{
  (void)state;
  ranks_set r;
  start_processes(
      &r, &(run) {
        .n = P
        , .seconds = 20, .fn = wrong_survivors_body
      });
  r.expected[2] = r.expected[3] = -SIGKILL;
  assert_int_equal(finish_processes(&r), 0);
}

// --- Deaths at random moments

// Words of the board. MASK: ranks that have died. LEFT_OUT + rank: how many a rank has left out, and summed since.
// VOTES + attempt * CREW + rank: how a shrink has ended on a rank.
enum { CREW = 5, KILLS = 3, MASK = 100, BEGUN, ENOUGH, LEFT_OUT, VOTES = LEFT_OUT + CREW, GOOD = 1, BAD };

static bool is_dead(int rank)
{
  return (atomic_load(&the_board->word[MASK]) >> rank & 1) != 0;
}

static int dead_among(const int *slots, int n, int *out)
{
  int nout = 0;
  for (int i = 0; i < n; i++) {
    if (is_dead(slots[i])) {
      out[nout++] = i;
    }
  }
  return nout;
}

// A rank that dies at the end of a shrink may be missed by some and not by others: what counts is what all living ones
// say, as a launcher or a store would collect it.
static bool all_succeeded(int attempt, int rank, bool good)
{
  _Atomic uint64_t *votes = &the_board->word[VOTES + attempt % 500 * CREW];
  bool all = true;
  atomic_store(&votes[rank], good ? GOOD : BAD);
  for (int i = 0; i < CREW; i++) {
    while (atomic_load(&votes[i]) == 0 && !is_dead(i)) {
      sleep_ms(0.2);
    }
    all &= atomic_load(&votes[i]) != BAD;
  }
  return all;
}

static int without(int *slots, int n, const int *out, int nout)
{
  int left = 0;
  for (int i = 0, k = 0; i < n; i++) {
    if (k < nout && out[k] == i) {
      k++;
    } else {
      slots[left++] = slots[i];
    }
  }
  return left;
}

// Shrinks until all succeed.
static int shrink_crew(ncclComm_t *comm, int rank, int *slots, int n, int *attempt)
{
  int out[CREW], nout;
  ncclComm_t next;
  for (;;) {
    sleep_ms(0.2);
    next = NULL;
    if ((nout = dead_among(slots, n, out)) == 0) {
      continue;
    }
    bool good = ncclCommShrink(*comm, out, nout, &next, NULL, NCCL_SHRINK_ABORT) == ncclSuccess;
    if (all_succeeded((*attempt)++, rank, good)) {
      break;
    }
    OK(ncclCommAbort(next));
  }
  OK(ncclCommAbort(*comm));
  *comm = next;
  return without(slots, n, out, nout);
}

// A round of work. False: it has failed. *over: all have seen that it is enough.
static bool crew_round(ncclComm_t comm, cudaStream_t s, int n, int round, bool *over)
{
  int enough = atomic_load(&the_board->word[ENOUGH]) != 0;
  bool good = sum_once(comm, s, round % 4 == 0 ? 100000 : 100) == ncclSuccess &&
              ncclAllReduce(&enough, &enough, 1, ncclInt, ncclSum, comm, s) == ncclSuccess &&
              tuttiStreamSynchronize(s) == ncclSuccess;
  *over = good && enough == n;
  return good;
}

static void crew_body(int rank, void *arg)
{
  (void)arg;
  int slots[CREW] = {0, 1, 2, 3, 4}, n = CREW, attempt = 0;
  ncclComm_t comm = join_processes(0, CREW, rank);
  cudaStream_t s = new_stream();
  bool over = false;
  for (int round = 0; !over; round++) {
    if (crew_round(comm, s, n, round, &over)) {
      atomic_fetch_add(&the_board->word[BEGUN], round == 0 && n == CREW);
      atomic_store(&the_board->word[LEFT_OUT + rank], (uint64_t)(CREW - n));
      continue;
    }
    n = shrink_crew(&comm, rank, slots, n, &attempt);
    round = -1; // all begin anew
    OK(tuttiStreamDestroy(s));
    s = new_stream();
  }
  OK(ncclCommDestroy(comm));
  OK(tuttiStreamDestroy(s));
}

static unsigned seed;

static double random_below(double most)
{
  seed = seed * 1103515245u + 12345u;
  return most * (double)(seed >> 8 & 0xffff) / 65536;
}

static bool all_left_out(uint64_t mask, uint64_t n)
{
  for (int i = 0; i < CREW; i++) {
    if ((mask >> i & 1) == 0 && atomic_load(&the_board->word[LEFT_OUT + i]) < n) {
      return false;
    }
  }
  return true;
}

// Kills one after the other; some while the survivors are still about the one before. Returns the longest time until
// all went on (s).
static double kill_crew(ranks_set *r)
{
  uint64_t mask = 0;
  double worst = 0;
  while (atomic_load(&the_board->word[BEGUN]) < CREW) {
    sleep_ms(0.5);
  }
  for (uint64_t k = 1; k <= KILLS; k++) {
    int victim = (int)random_below(CREW);
    while ((mask >> victim & 1) != 0) {
      victim = (victim + 1) % CREW;
    }
    bool at_once = k < KILLS && random_below(3) < 1.5;
    sleep_ms(random_below(at_once ? 3 : 10));
    mask |= 1ull << victim;
    double died = seconds_now();
    ranks_kill(r, victim);
    sleep_ms(random_below(2));
    atomic_store(&the_board->word[MASK], mask);
    while (!at_once && !all_left_out(mask, k) && seconds_now() - died < GENEROUS(2)) {
      sleep_ms(0.2);
    }
    worst = !at_once && seconds_now() - died > worst ? seconds_now() - died : worst;
  }
  atomic_store(&the_board->word[ENOUGH], 1);
  return worst;
}

static void random_deaths(void **state)
{
  (void)state;
  const char *text = getenv("ELASTIC_TRIALS");
  int trials = text != NULL ? atoi(text) : SLOWER > 1 ? 3 : over_network() ? 5 : 15;
  double worst = 0;
  for (int i = 0; i < trials; i++) {
    ranks_set r;
    unsigned from = seed;
    start_processes(&r, &(run){.n = CREW, .seconds = 20, .fn = crew_body});
    double took = kill_crew(&r);
    if (finish_processes(&r) != 0 || took >= GENEROUS(2)) {
      print_error("trial %d, seed %u: %g s\n", i, from, took);
      assert_true(false);
    }
    assert_int_equal(r.left_behind, 0);
    worst = took > worst ? took : worst;
  }
  print_message("%d crews, the slowest went on after %.3f s\n", trials, worst);
}

// --- Healthy shrinks

// Two ranks in each process, in groups, non-blocking or not. The excluded rank goes on with its parent.
static void healthy_body(int process, void *arg)
{
  bool nonblocking = *(bool *)arg;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm[2], child[2] = {NULL, NULL};
  ncclUniqueId id = shared_id(0, process);
  int out[] = {4, 1};
  config.blocking = !nonblocking;
  config.shrinkShare = 1;
  config.commName = "whole";
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    OK(tuttiSetDevice(i));
    CHECK(going(ncclCommInitRankConfig(&comm[i], 6, id, 2 * process + i, &config)), "init");
  }
  CHECK(going(ncclGroupEnd()), "the end of the group");
  for (int i = 0; i < 2; i++) {
    CHECK(await_state(comm[i]) == ncclSuccess, "init");
  }
  for (int round = 0; round < 3; round++) {
    OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
      int rank = 2 * process + i;
      if (rank != out[0] && rank != out[1]) {
        CHECK(going(ncclCommShrink(comm[i], out, 2, &child[i], NULL, NCCL_SHRINK_DEFAULT)), "shrink");
        CHECK(!nonblocking || child[i] != NULL, "no handle at once");
      }
    }
    CHECK(going(ncclGroupEnd()), "the end of the group of shrinks");
    for (int i = 0; i < 2; i++) {
      if (child[i] != NULL) {
        int rank = 2 * process + i;
        CHECK(await_state(child[i]) == ncclSuccess && await_state(comm[i]) == ncclSuccess, "shrink");
        expect_place(child[i], rank - (rank > 1) - (rank > 4), 4);
      }
    }
    cudaStream_t s[2] = {new_stream(), new_stream()};
    float x[4] = {1, 1, 1, 1};
    OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
      CHECK(going(ncclAllReduce(&x[i], &x[i], 1, ncclFloat, ncclSum, comm[i], s[i])), "the parent's sum");
      if (child[i] != NULL) {
        CHECK(going(ncclAllReduce(&x[2 + i], &x[2 + i], 1, ncclFloat, ncclSum, child[i], s[i])), "the child's sum");
      }
    }
    CHECK(going(ncclGroupEnd()), "the end of the group of sums");
    for (int i = 0; i < 2; i++) {
      CHECK(await_state(comm[i]) == ncclSuccess, "sum");
      OK(tuttiStreamSynchronize(s[i]));
      CHECK(x[i] == 6 && x[2 + i] == (child[i] != NULL ? 4 : 1), "sums %g and %g", (double)x[i], (double)x[2 + i]);
      OK(tuttiStreamDestroy(s[i]));
      OK(ncclCommDestroy(child[i]));
      child[i] = NULL;
    }
  }
  OK(ncclCommDestroy(comm[0]));
  OK(ncclCommDestroy(comm[1]));
}

static void healthy_shrinks(void **state)
{
  (void)state;
  for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
    bool b = nonblocking != 0;
    PROCESSES(3, 20, healthy_body, &b);
  }
}

static void wrong_lists_body(int rank, void *arg)
{
  (void)arg;
  ncclComm_t comm = join_processes(0, P, rank), next = NULL;
  int own = rank, range = P
  , negative = -1, twice[] = {(rank + 1) % P, (rank + 1) % P }, good = (rank + 1) % P;
  REFUSED(ncclCommShrink(NULL, &good, 1, &next, NULL, 0), ncclInvalidArgument, "NULL");
  REFUSED(ncclCommShrink(comm, &good, 1, NULL, NULL, 0), ncclInvalidArgument, "newcomm");
  REFUSED(ncclCommShrink(comm, NULL, 1, &next, NULL, 0), ncclInvalidArgument, "exclude");
  REFUSED(ncclCommShrink(comm, &good, 0, &next, NULL, 0), ncclInvalidArgument, "at least one");
  REFUSED(ncclCommShrink(comm, &own, 1, &next, NULL, 0), ncclInvalidArgument, "calling");
  REFUSED(ncclCommShrink(comm, &range, 1, &next, NULL, 0), ncclInvalidArgument, "does not exist");
  REFUSED(ncclCommShrink(comm, &negative, 1, &next, NULL, 0), ncclInvalidArgument, "does not exist");
  REFUSED(ncclCommShrink(comm, twice, 2, &next, NULL, NCCL_SHRINK_ABORT), ncclInvalidArgument, "twice");
  CHECK(next == NULL, "a handle beside an error");
  cudaStream_t s = new_stream();
  CHECK(sum_once(comm, s, 10) == ncclSuccess, "a sum after refusals"); // they have stopped nothing
  // Ranks that exclude different ones: nobody hangs, and they are told.
  int out = rank == 0 ? 2 : 3;
  if (rank != 3) {
    ncclResult_t res = ncclCommShrink(comm, &out, 1, &next, NULL, 0);
    CHECK(rank == 2 || res == ncclInvalidUsage || res == ncclRemoteError, "rank %d: lists that differ: %d", rank, res);
    CHECK(res == ncclInvalidUsage || res == ncclRemoteError, "rank %d: lists that differ: %d", rank, res);
    out = 3;
    OK(ncclCommShrink(comm, &out, 1, &next, NULL, 0));
    OK(ncclCommDestroy(next));
  }
  OK(ncclCommDestroy(comm));
  OK(tuttiStreamDestroy(s));
}

static void wrong_lists(void **state)
{
  (void)state;
  PROCESSES(P, 20, wrong_lists_body, NULL);
}

// A survivor that does not call is named, after the time in which ranks wait for each other; then all go well.
static void lonely_shrink_body(int rank, void *arg)
{
  (void)arg;
  ncclComm_t comm = join_processes(0, 3, rank), next = NULL;
  int out = 2;
  if (rank == 0) {
    REFUSED(ncclCommShrink(comm, &out, 1, &next, NULL, 0), ncclRemoteError, "ncclCommShrink", "rank 1");
    CHECK(next == NULL, "a handle beside an error");
  }
  meet(3);
  if (rank != out) {
    OK(ncclCommShrink(comm, &out, 1, &next, NULL, 0));
    OK(ncclCommDestroy(next));
  }
  OK(ncclCommDestroy(comm));
}

static void lonely_shrink(void **state)
{
  (void)state;
  assert_int_equal(
      run_processes(&(run){.n = 3, .seconds = 20, .fn = lonely_shrink_body, .env = ENV("NCCL_BOOTSTRAP_TIMEOUT=2")}),
      0);
}

// --- Growth

// Processes 0 and 1 are there first, 2 and 3 join, then 0 leaves: by a shrink of what has grown.
static void grow_body(int rank, void *arg)
{
  (void)arg;
  enum { FIRST = 2 };
  ncclComm_t comm = NULL, grown = NULL, shrunk = NULL;
  ncclUniqueId id;
  cudaStream_t s = new_stream();
  if (rank < FIRST) {
    comm = join_processes(0, FIRST, rank);
    REFUSED(ncclCommGrow(comm, FIRST, NULL, -1, &grown, NULL), ncclInvalidArgument, "more ranks");
    REFUSED(ncclCommGrow(comm, P, NULL, rank, &grown, NULL), ncclInvalidArgument, "-1");
    REFUSED(ncclCommGrow(comm, P, NULL, -1, NULL, NULL), ncclInvalidArgument, "newcomm");
    REFUSED(ncclCommGetUniqueId(comm, NULL), ncclInvalidArgument, "NULL");
    REFUSED(ncclCommGrow(comm, P, NULL, -1, &grown, NULL), ncclInvalidArgument, "no rank has a unique id");
  }
  if (rank == 1) {
    OK(ncclCommGetUniqueId(comm, &the_board->ids[1]));
    REFUSED(ncclCommGetUniqueId(comm, &id), ncclInvalidUsage, "has not been used");
    atomic_store(&the_board->ids_made[1], 1);
  }
  while (atomic_load(&the_board->ids_made[1]) == 0) {
    sleep_ms(0.2);
  }
  id = the_board->ids[1];
  if (rank >= FIRST) {
    REFUSED(ncclCommGrow(NULL, P, NULL, rank, &grown, NULL), ncclInvalidArgument, "unique id");
    REFUSED(ncclCommGrow(NULL, P, &id, P, &grown, NULL), ncclInvalidArgument, "rank");
    REFUSED(ncclCommGrow(NULL, P, &id, -1, &grown, NULL), ncclInvalidArgument, "rank");
    OK(ncclCommGrow(NULL, P, &id, rank, &grown, NULL));
  } else {
    OK(ncclCommGrow(comm, P, rank == 1 ? &id : NULL, -1, &grown, NULL));
    CHECK(sum_once(comm, s, 100) == ncclSuccess, "the parent's sum");
    OK(ncclCommDestroy(comm));
  }
  expect_place(grown, rank, P);
  CHECK(sum_once(grown, s, 5000) == ncclSuccess, "a sum after the growth");
  if (rank != 0) {
    OK(ncclCommShrink(grown, (int[]){0}, 1, &shrunk, NULL, NCCL_SHRINK_DEFAULT));
    CHECK(sum_once(shrunk, s, 100) == ncclSuccess, "a sum after the shrink");
    OK(ncclCommDestroy(shrunk));
  }
  OK(ncclCommDestroy(grown));
  OK(tuttiStreamDestroy(s));
}

static void growth(void **state)
{
  (void)state;
  PROCESSES(P, 20, grow_body, NULL);
}

// One rank alone grows; non-blocking. The rank that made the id need not pass it. A new rank takes a number that is
// taken: all are told.
static void grow_alone_body(int rank, void *arg)
{
  (void)arg;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL, grown = NULL;
  cudaStream_t s = new_stream();
  config.blocking = 0;
  for (int wrong = 0; wrong < 2; wrong++) {
    int slot = 10 + wrong;
    if (rank == 0) {
      comm = join_processes(wrong, 1, 0);
      OK(ncclCommGetUniqueId(comm, &the_board->ids[slot]));
      atomic_store(&the_board->ids_made[slot], 1);
      CHECK(going(ncclCommGrow(comm, 2, NULL, -1, &grown, &config)), "growth");
    } else {
      while (atomic_load(&the_board->ids_made[slot]) == 0) {
        sleep_ms(0.2);
      }
      CHECK(going(ncclCommGrow(NULL, 2, &the_board->ids[slot], wrong ? 0 : 1, &grown, &config)), "growth");
    }
    CHECK(grown != NULL, "no handle at once");
    ncclResult_t res = await_state(grown);
    CHECK(res == (wrong ? ncclInvalidUsage : ncclSuccess), "growth: %d", (int)res);
    CHECK(wrong || sum_once(grown, s, 10) == ncclSuccess, "a sum after the growth");
    OK(ncclCommDestroy(grown));
    if (rank == 0) {
      OK(ncclCommDestroy(comm));
    }
  }
  OK(tuttiStreamDestroy(s));
}

static void growth_of_one(void **state)
{
  (void)state;
  PROCESSES(2, 20, grow_alone_body, NULL);
}

// --- Revocation

typedef struct revoker {
  ncclComm_t comm;
  double took;
} revoker;

static void *revoke_soon(void *arg)
{
  revoker *r = arg;
  sleep_ms(100);
  double start = seconds_now();
  OK(ncclCommRevoke(r->comm, 0));
  r->took = seconds_now() - start;
  return NULL;
}

// Rank 0 never calls; rank 1 waits for it until another thread of rank 1 revokes; rank 2 waits for rank 1, and is told.
static void revoke_body(int rank, void *arg)
{
  (void)arg;
  ncclComm_t comm = join_processes(0, 3, rank), child = NULL;
  cudaStream_t s = new_stream();
  ncclResult_t state;
  float x = 1;
  CHECK(sum_once(comm, s, 10) == ncclSuccess, "a sum");
  OK(ncclCommRevoke(NULL, 0));
  REFUSED(ncclCommRevoke(comm, 1), ncclInvalidArgument, "flags");
  if (rank == 1) {
    revoker r = {.comm = comm};
    pthread_t t;
    pthread_create(&t, NULL, revoke_soon, &r);
    OK(ncclRecv(&x, 1, ncclFloat, 0, comm, s));
    GIVES(tuttiStreamSynchronize(s), ncclInvalidUsage);
    pthread_join(t, NULL);
    CHECK(r.took < GENEROUS(1), "the revocation took %g s", r.took);
  } else {
    if (rank == 2) {
      ncclResult_t res = ncclRecv(&x, 1, ncclFloat, 1, comm, s), end = tuttiStreamSynchronize(s);
      CHECK(res == ncclRemoteError || end == ncclRemoteError, "the receive ends with %d, %d", (int)res, (int)end);
      CHECK(has_words(ncclGetLastError(NULL), (const char *const[]){"rank 1", "revoked", NULL}), "another text");
    }
    meet(3);
    OK(ncclCommRevoke(comm, 0));
  }
  if (rank == 1) {
    meet(3);
  }
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess, "state %d after the revocation", (int)state);
  REFUSED(ncclCommRevoke(comm, 0), ncclInvalidArgument, "before");
  REFUSED(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, s), ncclInvalidUsage, "revoke");
  REFUSED(ncclCommFinalize(comm), ncclInvalidUsage, "revoke");
  OK(ncclCommSplit(comm, 0, rank, &child, NULL));
  CHECK(sum_once(child, s, 10) == ncclSuccess, "a sum of the split");
  OK(ncclCommDestroy(child));
  if (rank != 0) {
    OK(ncclCommShrink(comm, (int[]){0}, 1, &child, NULL, 0));
    CHECK(sum_once(child, s, 10) == ncclSuccess, "a sum of the shrink");
    OK(ncclCommDestroy(child));
  }
  OK(rank == 1 ? ncclCommAbort(comm) : ncclCommDestroy(comm));
  OK(tuttiStreamDestroy(s));
}

static void revoke_ends_a_hang(void **state)
{
  (void)state;
  PROCESSES(3, 20, revoke_body, NULL);
}

typedef struct parent_end {
  ncclComm_t parent;
  bool revoke;
} parent_end;

static void *end_parent_soon(void *arg)
{
  parent_end *e = arg;
  sleep_ms(50);
  OK(e->revoke ? ncclCommRevoke(e->parent, 0) : ncclCommAbort(e->parent));
  return NULL;
}

// A rank waits in a child, or a child's child, for a peer that does nothing. The end of the parent ends that where the
// parent shares; a child of a parent that does not share goes on.
static void family_body(int rank, void *arg)
{
  (void)arg;
  cudaStream_t s = new_stream();
  for (int round = 0; round < 4; round++) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm, child, last, other;
    float x = 1;
    config.splitShare = 1;
    config.shrinkShare = round % 2;
    OK(ncclCommInitRankConfig(&comm, 3, shared_id(round, rank), rank, &config));
    OK(ncclCommSplit(comm, 0, rank, &child, &config));
    OK(ncclCommSplit(child, 0, rank, &last, NULL));
    OK(ncclCommSplit(last, 0, rank, &other, NULL)); // `last` does not share
    if (rank == 0) {
      parent_end e = {.parent = comm, .revoke = round >= 2};
      pthread_t t;
      OK(ncclRecv(&x, 1, ncclFloat, 1, round % 2 == 0 ? child : last, s));
      pthread_create(&t, NULL, end_parent_soon, &e);
      GIVES(tuttiStreamSynchronize(s), ncclInternalError);
      pthread_join(t, NULL);
      REFUSED(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, last, s), ncclInternalError, "parent");
      OK(tuttiStreamDestroy(s));
      s = new_stream();
    }
    CHECK(sum_once(other, s, 10) == ncclSuccess, "a sum in the one that shares nothing");
    OK(ncclCommDestroy(child));
    OK(ncclCommDestroy(other));
    OK(ncclCommDestroy(last));
    if (rank != 0 || round >= 2) {
      OK(ncclCommDestroy(comm));
    }
    meet(3);
  }
  OK(tuttiStreamDestroy(s));
}

static void sharing_children(void **state)
{
  (void)state;
  PROCESSES(3, 20, family_body, NULL);
}

// --- Again and again

static void hold_most(holdings *most)
{
  holdings now = holdings_now();
  most->threads = TT_MAX(most->threads, now.threads);
  most->descriptors = TT_MAX(most->descriptors, now.descriptors);
  most->mappings = TT_MAX(most->mappings, now.mappings);
}

// Shrinks by one, grows again by a thread of its own in the same process, many times: nothing is left.
static void cycles_body(int rank, void *arg)
{
  int rounds = *(int *)arg;
  ncclComm_t comm = join_processes(0, 3, rank);
  cudaStream_t s = new_stream();
  holdings before = {.threads = 0};
  for (int round = 0; round < rounds; round++) {
    int out = 2;
    ncclComm_t small = NULL, large = NULL;
    meet(3); // an abort also ends what a peer has not received yet
    if (rank != out) {
      OK(ncclCommShrink(comm, &out, 1, &small, NULL, round % 2 == 0 ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT));
      CHECK(sum_once(small, s, 10) == ncclSuccess, "a sum of the small one");
    }
    OK(ncclCommDestroy(comm));
    int slot = 1 + round % 60;
    if (rank == 0) {
      OK(ncclCommGetUniqueId(small, &the_board->ids[slot]));
    }
    meet(3);
    OK(ncclCommGrow(small, 3, &the_board->ids[slot], rank == 2 ? 2 : -1, &large, NULL));
    CHECK(sum_once(large, s, 10) == ncclSuccess, "a sum of the large one");
    OK(ncclCommDestroy(small));
    comm = large;
    if (round >= rounds / 4 &&
        round < rounds / 2) { // several looks: a connection of the RAS ring may be missing in one
      hold_most(&before);
    }
  }
  holdings after = holdings_settled(&before);
  CHECK(after.descriptors <= before.descriptors && after.threads <= before.threads,
        "descriptors %d -> %d, threads %d -> %d", before.descriptors, after.descriptors, before.threads, after.threads);
  CHECK(after.mappings <= before.mappings + 20, "mappings %d -> %d", before.mappings, after.mappings);
  OK(ncclCommDestroy(comm));
  OK(tuttiStreamDestroy(s));
}

static void cycles(void **state)
{
  (void)state;
  int rounds = 100 / SLOWER;
  PROCESSES(3, 40, cycles_body, &rounds);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shrink_after_deaths),
      cmocka_unit_test(dead_among_the_survivors),
      cmocka_unit_test(random_deaths),
      cmocka_unit_test(healthy_shrinks),
      cmocka_unit_test(wrong_lists),
      cmocka_unit_test(lonely_shrink),
      cmocka_unit_test(growth),
      cmocka_unit_test(growth_of_one),
      cmocka_unit_test(revoke_ends_a_hang),
      cmocka_unit_test(sharing_children),
      cmocka_unit_test(cycles),
  };
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  seed = choose_seed(argc > 2 ? argv[2] : NULL);
  return RUN_TESTS("elastic", tests, argc, argv);
}
