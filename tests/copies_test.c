// copies_test.c: large messages between processes as copies in memory that both map, as the kernel's copies, and as
// either (NCCL_HOST_COPIES): the same results. A rank that dies or gives up while copies are under way holds no other
// one up, and what a sender has laid there before its death arrives.
#include "harness.h"

enum { MOST = 5, COUNT = 60001, LONG = 600000, ROUNDS = 24 }; // elements; LONG: more than fits at once

static const char *const ways[] = {"-1", "0", "1"};

static int word_of(int rank, size_t i, int round)
{
  return rank * 1000003 + (int)i * 7 + round;
}

typedef struct party {
  int n, rank, round;
  size_t count;
  ncclComm_t comm;
  cudaStream_t stream;
  int *in, *out;
} party;

static void prepare(party *p, size_t blocks)
{
  for (size_t i = 0; i < blocks * p->count; i++) {
    p->in[i] = word_of(p->rank, i, p->round);
  }
  memset(p->out, 0x55, (size_t)p->n * p->count * sizeof(int));
}

// Element i of the output is what the given rank has in element `at + i`, or the sum over all ranks.
static void check(const party *p, const char *what, size_t out_at, int rank, size_t at)
{
  OK(tuttiStreamSynchronize(p->stream));
  for (size_t i = 0; i < p->count; i++) {
    int expected = rank >= 0 ? word_of(rank, at + i, p->round)
                             : p->n * word_of(0, at + i, p->round) + 1000003 * (p->n * (p->n - 1) / 2);
    CHECK(p->out[out_at + i] == expected, "%s of %zu, round %d: rank %d has %d at %zu, not %d", what, p->count,
          p->round, p->rank, p->out[out_at + i], out_at + i, expected);
  }
  memset(p->in, 0x33, p->count * sizeof(int)); // a rank that still reads it reads that
}

static void one_root(party *p)
{
  int root = p->round % p->n;
  prepare(p, 1);
  OK(ncclBroadcast(p->in, p->out, p->count, ncclInt, root, p->comm, p->stream));
  check(p, "broadcast", 0, root, 0);
  prepare(p, 1);
  OK(ncclReduce(p->in, p->out, p->count, ncclInt, ncclSum, root, p->comm, p->stream));
  OK(tuttiStreamSynchronize(p->stream));
  if (p->rank == root) {
    check(p, "reduce", 0, -1, 0);
  }
}

static void all_to_all(party *p)
{
  prepare(p, (size_t)p->n);
  OK(ncclAlltoAll(p->in, p->out, p->count, ncclInt, p->comm, p->stream));
  OK(tuttiStreamSynchronize(p->stream));
  for (int k = 0; k < p->n; k++) {
    check(p, "all to all", (size_t)k * p->count, k, (size_t)p->rank * p->count);
  }
  prepare(p, 1);
  OK(ncclAllGather(p->in, p->out, p->count, ncclInt, p->comm, p->stream));
  OK(tuttiStreamSynchronize(p->stream));
  for (int k = 0; k < p->n; k++) {
    check(p, "all gather", (size_t)k * p->count, k, 0);
  }
}

static void sums(party *p)
{
  prepare(p, (size_t)p->n);
  OK(ncclReduceScatter(p->in, p->out, p->count, ncclInt, ncclSum, p->comm, p->stream));
  check(p, "reduce scatter", 0, -1, (size_t)p->rank * p->count);
  prepare(p, 1);
  OK(ncclAllReduce(p->in, p->out, p->count, ncclInt, ncclSum, p->comm, p->stream));
  check(p, "all reduce", 0, -1, 0);
  prepare(p, 1);
  memcpy(p->out, p->in, p->count * sizeof(int));
  OK(ncclAllReduce(p->out, p->out, p->count, ncclInt, ncclSum, p->comm, p->stream));
  check(p, "all reduce in place", 0, -1, 0);
}

static void around(party *p)
{
  int next = (p->rank + 1) % p->n, before = (p->rank + p->n - 1) % p->n;
  prepare(p, 1);
  OK(ncclGroupStart());
  OK(ncclSend(p->in, p->count, ncclInt, next, p->comm, p->stream));
  OK(ncclRecv(p->out, p->count, ncclInt, before, p->comm, p->stream));
  OK(ncclGroupEnd());
  check(p, "messages", 0, before, 0);
}

// `arg`: how many ranks, and with which way each.
typedef struct choice {
  int n;
  int way[2]; // of the first rank, and of the others
} choice;

static void every_function(int rank, void *arg)
{
  const choice *c = arg;
  setenv("NCCL_HOST_COPIES", ways[c->way[rank > 0]], 1);
  party p = {.n = c->n, .rank = rank, .comm = join_processes(0, c->n, rank)};
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_DEFAULT));
  p.in = malloc((size_t)c->n * LONG * sizeof(int));
  p.out = malloc((size_t)c->n * LONG * sizeof(int));
  CHECK(p.in != NULL && p.out != NULL, "no memory");
  for (p.round = 0; p.round < ROUNDS / SLOWER + 3; p.round++) {
    p.count = p.round % 8 == 0 ? LONG / SLOWER : COUNT / (1 + (size_t)p.round % 3);
    one_root(&p);
    all_to_all(&p);
    sums(&p);
    around(&p);
  }
  OK(ncclCommDestroy(p.comm));
  OK(tuttiStreamDestroy(p.stream));
  free(p.in);
  free(p.out);
}

static void the_same_results(void **state)
{
  static const choice list[] = {{2, {0, 0}}, {2, {1, 1}}, {2, {2, 2}}, {2, {1, 2}},
                                {2, {2, 1}}, {3, {2, 2}}, {3, {1, 2}}, {5, {2, 2}}};
  (void)state;
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
    choice c = list[i];
    PROCESSES(c.n, 30, every_function, &c);
  }
}

// --- Deaths

enum { FULL = 131072, MESSAGES = 12, EAGER = 3 }; // elements: four fill the outbox
enum { DIES, ABORTS, NONE };
enum { SENT }; // a word of the board

static void *message(int number, size_t count)
{
  int *x = malloc(count * sizeof *x);
  CHECK(x != NULL, "no memory");
  for (size_t i = 0; i < count; i++) {
    x[i] = word_of(number, i, 0);
  }
  return x;
}

// Waits until the sender gets no further.
static void await_standstill(void)
{
  uint64_t last = UINT64_MAX;
  for (uint64_t now = 0; now != last; now = atomic_load(&the_board->word[SENT])) {
    last = now;
    sleep_ms(100);
  }
}

// Rank 0 sends until the ring is full, and learns then that rank 1, which has taken nothing, is no more.
static void unread(int rank, void *arg)
{
  ncclComm_t comm = join_processes(0, 2, rank);
  cudaStream_t stream;
  ncclResult_t res = ncclSuccess;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  void *x = message(rank, FULL);
  for (int i = 0; rank == 0 && i < MESSAGES && res == ncclSuccess; i++) {
    res = ncclSend(x, FULL, ncclInt, 1, comm, stream);
    res = res == ncclSuccess ? tuttiStreamSynchronize(stream) : res;
    atomic_fetch_add(&the_board->word[SENT], res == ncclSuccess);
  }
  if (rank == 1) {
    await_standstill();
    CHECK(atomic_load(&the_board->word[SENT]) < MESSAGES, "there is room for everything");
    if (*(int *)arg == DIES) {
      kill(getpid(), SIGKILL);
    }
  } else {
    CHECK(res == ncclRemoteError, "%d, not ncclRemoteError", (int)res);
  }
  OK(ncclCommAbort(comm));
  OK(tuttiStreamDestroy(stream));
  free(x);
}

static void run_with_victim(void (*fn)(int rank, void *arg), int *arg, int victim)
{
  ranks_set r;
  start_processes(&r, &(run){.n = 2, .seconds = 15, .fn = fn, .arg = arg, .env = ENV("NCCL_HOST_COPIES=1")});
  r.expected[victim] = -SIGKILL;
  assert_int_equal(finish_processes(&r), 0);
}

static void a_reader_that_dies(void **state)
{
  int how = DIES;
  (void)state;
  run_with_victim(unread, &how, 1);
}

static void a_reader_that_gives_up(void **state)
{
  int how = ABORTS;
  (void)state;
  run_with_victim(unread, &how, NONE);
}

// Rank 0 is done with its messages, and dies: rank 1 gets them, and learns only then that there are no more.
static void unsent(int rank, void *arg)
{
  enum { PART = 30000 };
  (void)arg;
  ncclComm_t comm = join_processes(0, 2, rank);
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  for (int i = 0; i < EAGER; i++) {
    int *x = message(i, PART), *y = calloc(PART, sizeof *y);
    CHECK(y != NULL, "no memory");
    if (rank == 0) {
      OK(ncclSend(x, PART, ncclInt, 1, comm, stream));
      OK(tuttiStreamSynchronize(stream));
      memset(x, 0x33, PART * sizeof *x);
      if (i == EAGER - 1) {
        kill(getpid(), SIGKILL);
      }
    } else {
      sleep_ms(i == 0 ? 500 : 0); // longer than peers look at each other's life
      OK(ncclRecv(y, PART, ncclInt, 0, comm, stream));
      OK(tuttiStreamSynchronize(stream));
      CHECK(memcmp(x, y, PART * sizeof *x) == 0, "message %d has been changed", i);
    }
    free(x);
    free(y);
  }
  int more;
  ncclResult_t res = ncclRecv(&more, 1, ncclInt, 0, comm, stream);
  res = res == ncclSuccess ? tuttiStreamSynchronize(stream) : res;
  CHECK(res == ncclRemoteError, "%d, not ncclRemoteError", (int)res);
  OK(ncclCommAbort(comm));
  OK(tuttiStreamDestroy(stream));
}

static void a_sender_that_dies(void **state)
{
  int none = 0;
  (void)state;
  run_with_victim(unsent, &none, 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_same_results),
      cmocka_unit_test(a_reader_that_dies),
      cmocka_unit_test(a_reader_that_gives_up),
      cmocka_unit_test(a_sender_that_dies),
  };
  return RUN_TESTS("copies", tests, argc, argv);
}
