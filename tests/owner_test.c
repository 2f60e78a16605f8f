// owner_test.c: nobody writes into a rank's buffers after it has got them back: by ncclCommAbort in mid-call, or by an
// error that its stream has reported. What is written straight from one rank into another's output (DirectWrite) is
// what this is about: src/device/owner.h.
#include "harness.h"

enum { TRIALS = 20, MARK = (int)0xaaaaaaaa, MARK_EVERY = 64 << 10 };

typedef enum { BY_ABORT, BY_HOLE, BY_DEATH } ending;
typedef enum { REDUCE, BROADCAST, ALL_REDUCE, ALL_GATHER } function;

// What a run does.
typedef struct trial {
  function what;
  ending how;
  int nranks;
  bool threads, mapped; // ranks are threads; buffers are from ncclMemAlloc
  size_t bytes;
} trial;

// One rank of one run.
typedef struct player {
  const trial *t;
  int rank, number; // of the repetition
  ncclComm_t comm;
  float *in, *out;
  _Atomic bool begun;
  pthread_t aborter;
} player;

static size_t large(void)
{
  return (128u << 20) / (SLOWER > 1 ? 8 : 1);
}

// What the user does as soon as the buffer is his: marks all over it, quickly, so that what comes late finds them.
static void mark(const player *p)
{
  for (size_t i = 0; i < p->t->bytes; i += MARK_EVERY) {
    *(int *)((char *)p->out + i) = MARK;
  }
}

static void check_marks(const player *p)
{
  for (size_t i = 0; i < p->t->bytes; i += MARK_EVERY) {
    int found = *(const int *)((const char *)p->out + i);
    CHECK(found == MARK,
          "rank %d, repetition %d: byte %zu of the output was written after the rank had got it back: %x", p->rank,
          p->number, i, (unsigned)found);
  }
}

static ncclResult_t operate(player *p, cudaStream_t s)
{
  const trial *t = p->t;
  size_t count = t->bytes / sizeof(float);
  ncclResult_t res = ncclSuccess;
  switch (t->what) {
  case REDUCE: res = ncclReduce(p->in, p->out, count, ncclFloat, ncclSum, 0, p->comm, s); break;
  case BROADCAST: res = ncclBroadcast(p->in, p->out, count, ncclFloat, t->nranks - 1, p->comm, s); break;
  case ALL_REDUCE: res = ncclAllReduce(p->in, p->out, count, ncclFloat, ncclSum, p->comm, s); break;
  case ALL_GATHER: res = ncclAllGather(p->in, p->out, count / (size_t)t->nranks, ncclFloat, p->comm, s); break;
  }
  ncclResult_t end = res == ncclSuccess ? tuttiStreamSynchronize(s) : res;
  atomic_store(&p->begun, true);
  return end;
}

// Rank 0 aborts from another thread while it operates; the longer, the later the repetition.
static void *aborter_main(void *arg)
{
  player *p = arg;
  while (!atomic_load(&p->begun)) {
    sleep_ms(0.2);
  }
  sleep_ms(1 + 0.7 * p->number);
  OK(ncclCommAbort(p->comm));
  mark(p);
  return NULL;
}

// Operations until one fails. The first to stop is rank 0, or the rank that dies.
static void play(player *p)
{
  cudaStream_t s;
  ncclResult_t res;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  bool aborts = p->t->how == BY_ABORT && p->rank == 0;
  if (aborts) {
    CHECK(pthread_create(&p->aborter, NULL, aborter_main, p) == 0, "no thread");
  }
  do {
    res = operate(p, s);
  } while (res == ncclSuccess);
  if (aborts) {
    pthread_join(p->aborter, NULL);
  } else {
    mark(p);
  }
  sleep_ms(100);
  check_marks(p);
  if (!aborts) {
    OK(ncclCommAbort(p->comm));
  }
  OK(tuttiStreamDestroy(s));
}

static float *buffer_new(const trial *t)
{
  void *p = NULL;
  if (t->mapped) {
    OK(ncclMemAlloc(&p, t->bytes));
  } else {
    p = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED, "no memory");
  }
  memset(p, 0, t->bytes);
  return p;
}

static void buffer_free(const trial *t, float *p)
{
  if (t->mapped) {
    OK(ncclMemFree(p));
  } else {
    munmap(p, t->bytes);
  }
}

// In the last rank's input a page is missing that rank 0 reads: an error of rank 0, while the other writes into its
// output.
static void make_hole(const player *p)
{
  // Of a reduce among two (PAIR_CHUNK): rank 0 reads the first 512 KiB of each, and the last.
  size_t pass = 3 * (512u << 10);
  char *at = (char *)p->in + p->t->bytes / 2 / pass * pass + (256u << 10) + (size_t)p->number * 4096;
  CHECK(p->t->bytes >= pass && munmap(at, 4096) == 0, "no hole");
}

static void in_process(int rank, void *arg)
{
  const trial *t = arg;
  player p = {.t = t, .rank = rank, .in = buffer_new(t), .out = buffer_new(t)};
  for (; p.number < TRIALS; p.number++) {
    atomic_store(&p.begun, false);
    p.comm = join_processes(p.number, t->nranks, rank);
    if (t->how == BY_HOLE && rank == t->nranks - 1) {
      make_hole(&p);
    }
    meet(t->nranks);
    play(&p);
    meet(t->nranks);
  }
  buffer_free(t, p.in);
  buffer_free(t, p.out);
}

// The last rank dies; nobody meets it afterwards.
static void until_death(int rank, void *arg)
{
  const trial *t = arg;
  player p = {
      .t = t, .rank = rank, .in = buffer_new(t), .out = buffer_new(t), .comm = join_processes(0, t->nranks, rank)};
  meet(t->nranks);
  if (rank == t->nranks - 1) {
    cudaStream_t s;
    OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
    while (true) {
      if (operate(&p, s) != ncclSuccess) {
        sleep_ms(1000);
      }
    }
  }
  play(&p);
}

static void in_thread(int rank, void *arg)
{
  player *p = (player *)arg + rank;
  play(p);
}

static void in_threads(int rank, void *arg)
{
  const trial *t = arg;
  (void)rank;
  player p[MAX_RANKS];
  for (int i = 0; i < t->nranks; i++) {
    p[i] = (player){.t = t, .rank = i, .in = buffer_new(t), .out = buffer_new(t)};
  }
  for (int k = 0; k < TRIALS; k++) {
    ncclComm_t comms[MAX_RANKS];
    OK(ncclCommInitAll(comms, t->nranks, NULL));
    for (int i = 0; i < t->nranks; i++) {
      p[i].comm = comms[i];
      p[i].number = k;
      atomic_store(&p[i].begun, false);
    }
    run_threads(t->nranks, in_thread, p);
  }
  for (int i = 0; i < t->nranks; i++) {
    buffer_free(t, p[i].in);
    buffer_free(t, p[i].out);
  }
}

static void repeat(trial t)
{
  t.bytes = t.bytes != 0 ? t.bytes : large();
  run r = {.n = t.threads ? 1 : t.nranks,
           .seconds = 60,
           .fn = t.threads ? in_threads : in_process,
           .arg = &t,
           .env =
               ENV("NCCL_ALGO=DirectWrite", "NCCL_HOST_COPIES=0")}; // the kernel writes, instead of ranks laying copies
  assert_int_equal(run_processes(&r), 0);
}

static void test_abort_of_processes(void **state)
{
  (void)state;
  repeat((trial){.what = REDUCE, .nranks = 2});
  repeat((trial){.what = BROADCAST, .nranks = 2});
  repeat((trial){.what = ALL_GATHER, .nranks = 3, .bytes = 96 << 18});
  repeat((trial){.what = ALL_REDUCE, .nranks = 2, .mapped = true});
  repeat((trial){.what = BROADCAST, .nranks = 2, .mapped = true});
}

static void test_abort_of_threads(void **state)
{
  (void)state;
  repeat((trial){.what = REDUCE, .nranks = 2, .threads = true});
  repeat((trial){.what = BROADCAST, .nranks = 2, .threads = true});
  repeat((trial){.what = ALL_REDUCE, .nranks = 3, .threads = true, .bytes = 96 << 18});
}

static void test_error(void **state)
{
  (void)state;
  repeat((trial){.what = REDUCE, .how = BY_HOLE, .nranks = 2});
}

// Kills rank 2 of 3 in the middle of its operations.
static void test_death(void **state)
{
  (void)state;
  for (int k = 0; k < TRIALS; k++) {
    trial t = {.what = k % 2 == 0 ? ALL_REDUCE : ALL_GATHER, .how = BY_DEATH, .nranks = 3, .bytes = 96 << 18};
    ranks_set r;
    start_processes(&r,
                    &(run){.n = 3, .seconds = 60, .fn = until_death, .arg = &t, .env = ENV("NCCL_ALGO=DirectWrite")});
    while (atomic_load(&the_board->round) == 0) { // all have come
      sleep_ms(0.2);
    }
    sleep_ms(3 + k);
    ranks_kill(&r, 2);
    assert_int_equal(finish_processes(&r), 0);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_abort_of_processes),
      cmocka_unit_test(test_abort_of_threads),
      cmocka_unit_test(test_error),
      cmocka_unit_test(test_death),
  };
  return RUN_TESTS("owner", tests, argc, argv);
}
