// poll_test.c: queries drive what they ask about, and give the core away when they ask in vain.
#include "harness.h"

#include "device/host/event.h"
#include "os/relax.h"

enum { QUERIES = 1000 };

// --- yields of the calling thread are counted

static _Thread_local int yields;

int sched_yield(void)
{
  yields++;
  tt_cpu_relax();
  return 0;
}

// --- an entry that the thread of the test alone can finish, at its third look: the library's worker is of no help

typedef struct own_entry {
  tt_work work; // first member
  pthread_t maker;
  int looks;
} own_entry;

static tt_run own_run(tt_work *w, size_t *budget, ncclResult_t *result)
{
  own_entry *o = (own_entry *)w;
  (void)budget, (void)result;
  if (!pthread_equal(pthread_self(), o->maker)) {
    return TT_RUN_BLOCKED;
  }
  return ++o->looks < 3 ? TT_RUN_BLOCKED : TT_RUN_DONE;
}

static void own_done(tt_work *w)
{
  (void)w;
}

static const tt_work_ops own_ops = {.name = "entry of one thread", .run = own_run, .done = own_done};

typedef struct asked {
  cudaStream_t stream;
  tuttiEvent_t before, event;
  ncclComm_t comm;
} asked;

static ncclResult_t ask_stream(asked *a)
{
  return tuttiStreamQuery(a->stream);
}

static ncclResult_t ask_event(asked *a)
{
  return tuttiEventQuery(a->event);
}

static ncclResult_t ask_time(asked *a)
{
  float ms;
  return tuttiEventElapsedTime(&ms, a->before, a->event);
}

static ncclResult_t ask_comm(asked *a)
{
  ncclResult_t state;
  OK(ncclCommGetAsyncError(a->comm, &state));
  return state;
}

static const struct {
  const char *name;
  ncclResult_t (*fn)(asked *a);
} asks[] = {{"tuttiStreamQuery", ask_stream}, {"tuttiEventQuery", ask_event}, {"tuttiEventElapsedTime", ask_time}};
enum { ASKS = sizeof asks / sizeof *asks };

static void open_asked(asked *a)
{
  OK(tuttiStreamCreate(&a->stream, TUTTI_STREAM_NON_BLOCKING));
  OK(tuttiEventCreate(&a->before));
  OK(tuttiEventCreate(&a->event));
  OK(tuttiEventRecord(a->before, a->stream));
}

static void close_asked(asked *a)
{
  OK(tuttiEventDestroy(a->before));
  OK(tuttiEventDestroy(a->event));
  OK(tuttiStreamDestroy(a->stream));
}

static void drive_body(int rank, void *arg)
{
  static own_entry entries[ASKS];
  (void)rank, (void)arg;
  for (int i = 0; i < ASKS; i++) {
    asked a;
    own_entry *o = &entries[i];
    *o = (own_entry){.work = {.ops = &own_ops}, .maker = pthread_self()};
    open_asked(&a);
    tt_stream_push((tt_stream *)a.stream, &o->work);
    OK(tuttiEventRecord(a.event, a.stream));
    int queries = 0;
    while (asks[i].fn(&a) == ncclInProgress) {
      CHECK(++queries < QUERIES, "%s does not run the stream: %d looks after %d queries", asks[i].name, o->looks,
            queries);
    }
    OK(asks[i].fn(&a));
    close_asked(&a);
  }
}

static void queries_drive(void **state)
{
  (void)state;
  PROCESSES(1, 20, drive_body, NULL);
}

// What nobody can finish: each query in vain gives the core away, but for the first few.
static void expect_yields(const char *what, ncclResult_t (*fn)(asked *a), asked *a)
{
  yields = 0;
  for (int i = 0; i < QUERIES; i++) {
    CHECK(fn(a) == ncclInProgress, "%s found something", what);
  }
  CHECK(yields > QUERIES / 2 && yields <= QUERIES, "%s gave the core away %d times in %d queries", what, yields,
        QUERIES);
}

static void yield_body(int rank, void *arg)
{
  static own_entry stuck;
  static asked a; // its stream is never done, and so never destroyed
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  (void)rank, (void)arg;
  setenv("NCCL_HOST_SPIN_US", "0", 1);
  open_asked(&a);
  stuck = (own_entry){.work = {.ops = &own_ops}, .looks = INT32_MIN, .maker = pthread_self()};
  tt_stream_push((tt_stream *)a.stream, &stuck.work);
  OK(tuttiEventRecord(a.event, a.stream));
  for (int i = 0; i < ASKS; i++) {
    expect_yields(asks[i].name, asks[i].fn, &a);
  }
  config.blocking = 0;
  OK(ncclGetUniqueId(&id));
  ncclResult_t res = ncclCommInitRankConfig(&a.comm, 2, id, 0, &config);
  CHECK(res == ncclInProgress || res == ncclSuccess, "creation: %d", res);
  expect_yields("ncclCommGetAsyncError", ask_comm, &a);
  OK(ncclCommAbort(a.comm));
}

static void queries_in_vain_yield(void **state)
{
  (void)state;
  PROCESSES(1, 20, yield_body, NULL);
}

// --- all-reduces of two processes that only ask, of every kind of query in turn

static void ask_body(int rank, void *arg)
{
  asked a = {.comm = join_processes(0, 2, rank)};
  (void)arg;
  open_asked(&a);
  for (int i = 0; i < QUERIES; i++) {
    float in = (float)(rank + i), out = 0;
    OK(ncclAllReduce(&in, &out, 1, ncclFloat, ncclSum, a.comm, a.stream));
    OK(tuttiEventRecord(a.event, a.stream));
    while (asks[i % ASKS].fn(&a) == ncclInProgress) {
    }
    CHECK(out == (float)(2 * i + 1), "call %d, waited for by %s: %g", i, asks[i % ASKS].name, (double)out);
  }
  OK(ncclCommDestroy(a.comm));
  close_asked(&a);
}

static void two_processes_ask(void **state)
{
  (void)state;
  PROCESSES(2, 60, ask_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(queries_drive), cmocka_unit_test(queries_in_vain_yield),
                                     cmocka_unit_test(two_processes_ask)};
  return RUN_TESTS("queries", tests, argc, argv);
}
