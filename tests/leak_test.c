// Many lives of communicators leave no descriptor, thread, mapping or memory behind.
#include "harness.h"

enum { WARM = 20 };

// Compares with what was held before `rounds` rounds, and in their middle. What is lost in every round shows in both
// halves; an arena that the C library makes when many threads happen to be at work shows in one. Sanitizers keep memory
// of their own, so that theirs is not counted.
static void expect_no_growth(const holdings *before, const holdings *middle, int rounds, const char *what)
{
  holdings now = holdings_settled(before);
  CHECK(now.descriptors <= before->descriptors, "%s: %d descriptors, %d before", what, now.descriptors,
        before->descriptors);
  CHECK(now.threads <= before->threads, "%s: %d threads, %d before", what, now.threads, before->threads);
#if SLOWER == 1
  CHECK(now.mappings <= middle->mappings + 4 || middle->mappings <= before->mappings + 4,
        "%s: %d mappings, %d before %d rounds", what, now.mappings, before->mappings, rounds);
  CHECK(now.rss_kib <= middle->rss_kib + 512 || middle->rss_kib <= before->rss_kib + 512,
        "%s: %ld KiB, %ld before %d rounds", what, now.rss_kib, before->rss_kib, rounds);
  CHECK(now.mappings <= before->mappings + 64 && now.rss_kib <= before->rss_kib + 8192,
        "%s: %d mappings, %ld KiB; %d, %ld before %d rounds", what, now.mappings, now.rss_kib, before->mappings,
        before->rss_kib, rounds);
#endif
  (void)rounds, (void)middle;
}

static void add_up(const world *w, float *x, size_t count)
{
  OK(ncclGroupStart());
  for (int i = 0; i < w->n; i++) {
    OK(ncclAllReduce(x + (size_t)i * count, x + (size_t)i * count, count, ncclFloat, ncclMax, w->comm[i],
                     w->stream[i]));
  }
  OK(ncclGroupEnd());
  world_wait(w);
}

// fn(round) many times; what it holds is compared with what it held after the first few.
static void repeat(int rounds, void (*fn)(int round, void *arg), void *arg, const char *what)
{
  holdings before = {0}, middle = {0};
  for (int i = 0; i < rounds + WARM; i++) {
    if (i == WARM) {
      sleep_ms(100); // threads that end by themselves
      before = holdings_now();
    } else if (i == WARM + rounds / 2) {
      middle = holdings_now();
    }
    fn(i, arg);
  }
  expect_no_growth(&before, &middle, rounds, what);
}

// --- One process

static void one_life(int round, void *arg)
{
  world w;
  (void)arg;
  float x[2000] = {0};
  world_open(&w, 2);
  add_up(&w, x, round % 2 == 0 ? 1 : 1000);
  world_close(&w);
}

static void lives_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  repeat(1000 / SLOWER, one_life, NULL, "init, sum, destroy");
}

static void lives_in_one_process(void **state)
{
  (void)state;
  PROCESSES(1, 60, lives_body, NULL);
}

// Destroys all, or aborts all, while operations are queued that cannot run: rank 0 has not joined in.
static void aborted_life(int round, void *arg)
{
  enum { COUNT = 50000 };
  world w;
  (void)arg;
  float *x = calloc(2 * COUNT, sizeof *x);
  world_open(&w, 2);
  for (int k = 0; k < 3; k++) {
    OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclMax, w.comm[0], w.stream[0]));
  }
  OK(ncclRecv(x, COUNT, ncclFloat, 1, w.comm[0], w.stream[0]));
  if (round % 2 == 1) {
    OK(ncclAllReduce(x + COUNT, x + COUNT, COUNT, ncclFloat, ncclMax, w.comm[1], w.stream[1]));
  }
  double start = seconds_now();
  OK(ncclCommAbort(w.comm[round % 3 == 0]));
  OK(ncclCommAbort(w.comm[round % 3 != 0]));
  CHECK(seconds_now() - start < GENEROUS(0.5), "two aborts took %g s", seconds_now() - start);
  for (int i = 0; i < 2; i++) {
    tuttiStreamSynchronize(w.stream[i]); // whatever it says
    OK(tuttiStreamDestroy(w.stream[i]));
  }
  free(x);
}

static void aborts_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  repeat(100 / SLOWER, aborted_life, NULL, "abort with operations queued");
}

static void aborts_with_operations_queued(void **state)
{
  (void)state;
  PROCESSES(1, 30, aborts_body, NULL);
}

static void split_once(int round, void *arg)
{
  world *w = arg, child = {.n = 4};
  float x[4] = {0};
  OK(ncclGroupStart());
  for (int i = 0; i < 4; i++) {
    child.stream[i] = w->stream[i];
    OK(ncclCommSplit(w->comm[i], round % 3 == 0 ? 0 : i % 2, i, &child.comm[i], NULL));
  }
  OK(ncclGroupEnd());
  add_up(&child, x, 1);
  for (int i = 0; i < 4; i++) {
    OK(ncclCommDestroy(child.comm[i]));
  }
}

static void splits_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  world_open(&w, 4);
  repeat(200 / SLOWER, split_once, &w, "split, sum, destroy");
  world_close(&w);
}

static void splits(void **state)
{
  (void)state;
  PROCESSES(1, 60, splits_body, NULL);
}

static void stream_round(int round, void *arg)
{
  (void)arg;
  cudaStream_t s[4];
  tuttiEvent_t e;
  char a[100] = {0}, b[100];
  for (int i = 0; i < 4; i++) {
    OK(tuttiStreamCreate(&s[i], (unsigned)(i + round) % 2));
  }
  OK(tuttiEventCreate(&e));
  for (int i = 0; i < 4; i++) {
    OK(tuttiMemcpyAsync(b, a, sizeof a, s[i]));
    OK(tuttiEventRecord(e, s[i]));
    OK(tuttiStreamWaitEvent(s[(i + 1) % 4], e));
  }
  OK(tuttiEventDestroy(e));
  OK(tuttiStreamSynchronize(s[0]));
  for (int i = 0; i < 4; i++) {
    OK(tuttiStreamDestroy(s[i]));
  }
  OK(tuttiDeviceSynchronize());
}

static void streams_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  repeat(5000 / SLOWER, stream_round, NULL, "streams and events");
}

static void streams_and_events(void **state)
{
  (void)state;
  PROCESSES(1, 30, streams_body, NULL);
}

// Threads that come, use their default stream, and go.
static void thread_once(int rank, void *arg)
{
  (void)arg;
  char a[100] = {0}, b[100];
  OK(tuttiSetDevice(rank % 3));
  OK(tuttiMemcpyAsync(b, a, sizeof a, (cudaStream_t)2));
  OK(tuttiStreamSynchronize((cudaStream_t)2));
  OK(ncclGroupStart());
  OK(ncclGroupEnd());
}

static void thread_round(int round, void *arg)
{
  (void)round, (void)arg;
  run_threads(4, thread_once, NULL);
}

static void threads_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  repeat(500 / SLOWER, thread_round, NULL, "threads with default streams");
}

static void threads(void **state)
{
  (void)state;
  PROCESSES(1, 30, threads_body, NULL);
}

// --- Two processes

static _Thread_local int own_rank;

static void process_life(int round, void *arg)
{
  (void)arg;
  ncclComm_t comm = NULL;
  float x[30000] = {0};
  atomic_int *made = &the_board->ids_made[round % MAX_RANKS];
  if (own_rank == 0) {
    OK(ncclGetUniqueId(&the_board->ids[round % MAX_RANKS]));
    atomic_store(made, round + 1);
  }
  while (atomic_load(made) != round + 1) {
    sleep_ms(0.1);
  }
  OK(ncclCommInitRank(&comm, 2, the_board->ids[round % MAX_RANKS], own_rank));
  OK(ncclAllReduce(x, x, round % 2 == 0 ? 1 : 30000, ncclFloat, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  OK(ncclCommDestroy(comm));
}

static void process_body(int rank, void *arg)
{
  (void)arg;
  own_rank = rank;
  repeat(100 / SLOWER, process_life, NULL, "init, sum, destroy between processes");
}

static void lives_in_two_processes(void **state)
{
  (void)state;
  PROCESSES(2, 60, process_body, NULL);
}

// Memory that peers map: allocated, registered, used, freed; addresses and sizes change.
static void mapped_round(int round, void *arg)
{
  ncclComm_t comm = arg;
  size_t size = (size_t)(1 + round % 5) << 20;
  void *from, *to, *handle[2];
  OK(ncclMemAlloc(&from, size));
  OK(ncclMemAlloc(&to, 2 * size));
  OK(ncclCommRegister(comm, from, size, &handle[0]));
  OK(ncclCommRegister(comm, to, 2 * size, &handle[1]));
  memset(from, own_rank + 1, size);
  for (int k = 0; k < 2; k++) {
    OK(ncclAllReduce(from, to, size, ncclUint8, ncclSum, comm, NULL));
    OK(ncclGroupStart());
    OK(ncclSend(from, size, ncclUint8, 1 - own_rank, comm, NULL));
    OK(ncclRecv((char *)to + size, size / 2, ncclUint8, own_rank, comm, NULL));
    OK(ncclSend(from, size / 2, ncclUint8, own_rank, comm, NULL));
    OK(ncclRecv(to, size, ncclUint8, 1 - own_rank, comm, NULL));
    OK(ncclGroupEnd());
    OK(tuttiStreamSynchronize(NULL));
  }
  CHECK(((char *)to)[size - 1] == 2 - own_rank, "round %d: %d", round, ((char *)to)[size - 1]);
  OK(ncclCommDeregister(comm, handle[0]));
  OK(ncclCommDeregister(comm, handle[1]));
  OK(ncclMemFree(from));
  OK(ncclMemFree(to));
}

static void mapped_body(int rank, void *arg)
{
  (void)arg;
  own_rank = rank;
  ncclComm_t comm = join_processes(0, 2, rank);
  sleep_ms(2500); // until the RAS threads of both have connected, which they try again after a second
  repeat(100 / SLOWER, mapped_round, comm, "memory mapped by the peer");
  OK(ncclCommDestroy(comm));
}

static void memory_mapped_by_the_peer(void **state)
{
  (void)state;
  PROCESSES(2, 60, mapped_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lives_in_one_process),
      cmocka_unit_test(aborts_with_operations_queued),
      cmocka_unit_test(splits),
      cmocka_unit_test(streams_and_events),
      cmocka_unit_test(threads),
      cmocka_unit_test(lives_in_two_processes),
      cmocka_unit_test(memory_mapped_by_the_peer),
  };
  return RUN_TESTS("leak", tests, argc, argv);
}
