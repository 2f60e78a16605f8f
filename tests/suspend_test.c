// suspend_test.c: communicators that are suspended and resumed: memory really goes, work goes on where it was, what is
// wrong is refused.
#include "harness.h"

enum { RANKS = 3, COUNT = 1 << 20 };

static float x[COUNT], y[COUNT], z[COUNT];

static uint64_t stat_of(ncclComm_t c, ncclCommMemStat_t stat)
{
  uint64_t value = UINT64_MAX;
  OK(ncclCommMemStats(c, stat, &value));
  return value;
}

// A sum of `n` elements, and a message round the ring.
static void work(ncclComm_t c, int rank, int n, cudaStream_t s)
{
  float got = 0, sent = (float)rank;
  for (int i = 0; i < n; i++) {
    x[i] = (float)(rank + i % 5);
  }
  OK(ncclAllReduce(x, y, (size_t)n, ncclFloat, ncclSum, c, s));
  OK(ncclGroupStart());
  OK(ncclSend(&sent, 1, ncclFloat, (rank + 1) % RANKS, c, s));
  OK(ncclRecv(&got, 1, ncclFloat, (rank + RANKS - 1) % RANKS, c, s));
  OK(ncclGroupEnd());
  OK(tuttiStreamSynchronize(s));
  for (int i = 0; i < n; i++) {
    CHECK(y[i] == (float)(RANKS * (RANKS - 1) / 2 + RANKS * (i % 5)), "element %d is %g", i, (double)y[i]);
  }
  CHECK(got == (float)((rank + RANKS - 1) % RANKS), "from the left came %g", (double)got);
}

static void all_sizes(ncclComm_t c, int rank, cudaStream_t s)
{
  static const int sizes[] = {1, 2, 7, 50, 700, 5000, 60000, COUNT};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    work(c, rank, sizes[i], s);
  }
}

static void cycles_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, RANKS, rank);
  cudaStream_t s;
  bool network = over_network();
  (void)arg;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  for (int round = 0; round < 3; round++) {
    all_sizes(c, rank, s);
    meet(RANKS);
    uint64_t could = stat_of(c, ncclStatGpuMemSuspend), stays = stat_of(c, ncclStatGpuMemPersist);
    CHECK(could >= 65536, "only %llu bytes could go", (unsigned long long)could);
    CHECK(stat_of(c, ncclStatGpuMemTotal) == could + stays && stays > 0, "the total is not the sum");
    CHECK(stat_of(c, ncclStatGpuMemSuspended) == 0, "it is suspended");
    meet(RANKS);
    OK(ncclCommSuspend(c, NCCL_SUSPEND_MEM));
    CHECK(stat_of(c, ncclStatGpuMemSuspended) == 1, "it is not suspended");
    CHECK(stat_of(c, ncclStatGpuMemSuspend) == could, "%llu bytes went, not %llu",
          (unsigned long long)stat_of(c, ncclStatGpuMemSuspend), (unsigned long long)could);
    REFUSED(ncclAllReduce(x, y, 1, ncclFloat, ncclSum, c, s), ncclInvalidUsage, "ncclAllReduce", "suspended");
    REFUSED(ncclCommSuspend(c, NCCL_SUSPEND_MEM), ncclInvalidUsage, "suspended");
    REFUSED(ncclCommFinalize(c), ncclInvalidUsage, "suspended");
    ncclResult_t async;
    OK(ncclCommGetAsyncError(c, &async));
    CHECK(async == ncclSuccess, "the state is %d", (int)async);
    OK(ncclCommResume(c));
    uint64_t now = stat_of(c, ncclStatGpuMemSuspend);
    CHECK(network || now <= could, "%llu bytes after resuming", (unsigned long long)now);
    REFUSED(ncclCommResume(c), ncclInvalidUsage, "not suspended");
  }
  all_sizes(c, rank, s);
  OK(ncclCommSuspend(c, NCCL_SUSPEND_MEM));
  OK(ncclCommDestroy(c)); // as it is
  OK(tuttiStreamDestroy(s));
}

static void cycles(void **state)
{
  (void)state;
  PROCESSES(RANKS, 10, cycles_body, NULL);
}

// A message that nobody has received yet is not lost.
static void message_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, RANKS, rank);
  float value = 7;
  (void)arg;
  work(c, rank, 3000, NULL);
  if (rank == 0) {
    OK(ncclSend(&value, 1, ncclFloat, 1, c, NULL));
    OK(tuttiStreamSynchronize(NULL));
    value = 0;
  }
  OK(ncclCommSuspend(c, NCCL_SUSPEND_MEM));
  OK(ncclCommResume(c));
  if (rank == 1) {
    value = 0;
    OK(ncclRecv(&value, 1, ncclFloat, 0, c, NULL));
    OK(tuttiStreamSynchronize(NULL));
    CHECK(value == 7, "received %g", (double)value);
  }
  work(c, rank, 3000, NULL);
  OK(ncclCommDestroy(c));
}

static void a_message_is_kept(void **state)
{
  (void)state;
  PROCESSES(RANKS, 10, message_body, NULL);
}

// The pages are gone from the process, and come back as they are used.
static void pages_body(int rank, void *arg)
{
  world w;
  (void)rank, (void)arg;
  world_open(&w, 2);
  for (int k = 0; k < 2; k++) {
    OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
      ncclCollConfig_t f = NCCL_COLLCONFIG_INITIALIZER;
      f.algSelection = "RING_SIMPLE"; // through FIFOs
      OK(ncclAllReduceConfig(x, i == 0 ? z : y, COUNT, ncclFloat, ncclMax, w.comm[i], w.stream[i], &f));
    }
    OK(ncclGroupEnd());
    world_wait(&w);
    uint64_t before = stat_of(w.comm[0], ncclStatGpuMemSuspend);
    CHECK(before >= 128 << 10, "%llu bytes in FIFOs", (unsigned long long)before);
    OK(ncclGroupStart());
    OK(ncclCommSuspend(w.comm[0], NCCL_SUSPEND_MEM));
    OK(ncclCommSuspend(w.comm[1], NCCL_SUSPEND_MEM));
    OK(ncclGroupEnd());
    CHECK(stat_of(w.comm[0], ncclStatGpuMemSuspend) == before, "not all has gone");
    OK(ncclGroupStart());
    OK(ncclCommResume(w.comm[0]));
    OK(ncclCommResume(w.comm[1]));
    OK(ncclGroupEnd());
    CHECK(stat_of(w.comm[0], ncclStatGpuMemSuspend) == 0, "pages are there");
  }
  OK(ncclGroupStart());
  OK(ncclCommSuspend(w.comm[0], NCCL_SUSPEND_MEM));
  OK(ncclAllReduce(x, x, 8, ncclFloat, ncclMax, w.comm[0], w.stream[0]));
  REFUSED(ncclGroupEnd(), ncclInvalidUsage, "suspends or resumes");
  world_close(&w);
}

static void pages_go(void **state)
{
  (void)state;
  PROCESSES(1, 10, pages_body, NULL);
}

static void refusals_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, 1, rank);
  uint64_t value;
  bool disabled = *(bool *)arg;
  REFUSED(ncclCommSuspend(NULL, NCCL_SUSPEND_MEM), ncclInvalidArgument, "ncclCommSuspend", "NULL");
  REFUSED(ncclCommResume(NULL), ncclInvalidArgument, "ncclCommResume", "NULL");
  REFUSED(ncclCommMemStats(NULL, ncclStatGpuMemTotal, &value), ncclInvalidArgument, "ncclCommMemStats", "NULL");
  REFUSED(ncclCommMemStats(c, ncclStatGpuMemTotal, NULL), ncclInvalidArgument, "value is NULL");
  if (disabled) {
    REFUSED(ncclCommSuspend(c, NCCL_SUSPEND_MEM), ncclInvalidUsage, "NCCL_DISABLE_MEM_MANAGER");
    REFUSED(ncclCommResume(c), ncclInvalidUsage, "NCCL_DISABLE_MEM_MANAGER");
    REFUSED(ncclCommMemStats(c, ncclStatGpuMemTotal, &value), ncclInvalidUsage, "NCCL_DISABLE_MEM_MANAGER");
  } else {
    REFUSED(ncclCommSuspend(c, 0), ncclInvalidArgument, "flags is 0x0");
    REFUSED(ncclCommSuspend(c, 3), ncclInvalidArgument, "flags is 0x3");
    REFUSED(ncclCommResume(c), ncclInvalidUsage, "not suspended");
    REFUSED(ncclCommMemStats(c, (ncclCommMemStat_t)4, &value), ncclInvalidArgument, "stat is 4");
  }
  OK(ncclCommDestroy(c));
}

static void refusals(void **state)
{
  bool disabled[] = {false, true};
  (void)state;
  PROCESSES(1, 10, refusals_body, &disabled[0]);
  assert_int_equal(
      run_processes(&(run){
          .n = 1, .seconds = 10, .fn = refusals_body, .arg = &disabled[1], .env = ENV("NCCL_DISABLE_MEM_MANAGER=1")}),
      0);
}

static ncclResult_t settled(ncclComm_t c)
{
  ncclResult_t async = ncclInProgress;
  while (async == ncclInProgress) {
    OK(ncclCommGetAsyncError(c, &async));
    sleep_ms(1);
  }
  return async;
}

static void nonblocking_body(int rank, void *arg)
{
  ncclConfig_t f = NCCL_CONFIG_INITIALIZER;
  ncclComm_t c;
  (void)arg;
  f.blocking = 0;
  ncclResult_t res = ncclCommInitRankConfig(&c, RANKS, shared_id(0, rank), rank, &f);
  CHECK(res == ncclInProgress || res == ncclSuccess, "%d", (int)res);
  OK(settled(c));
  for (int i = 0; i < 5; i++) {
    work(c, rank, 3000, NULL);
    GIVES(ncclCommSuspend(c, NCCL_SUSPEND_MEM), ncclInProgress);
    OK(settled(c));
    GIVES(ncclCommResume(c), ncclInProgress);
    OK(settled(c));
  }
  work(c, rank, 3000, NULL);
  OK(ncclCommDestroy(c));
}

static void nonblocking(void **state)
{
  (void)state;
  PROCESSES(RANKS, 10, nonblocking_body, NULL);
}

// One rank never comes: an abort ends the others' wait.
static void *abort_soon(void *c)
{
  sleep_ms(200);
  OK(ncclCommAbort(c));
  return NULL;
}

static void abort_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, RANKS, rank);
  pthread_t t;
  (void)arg;
  if (rank != 0) {
    CHECK(pthread_create(&t, NULL, abort_soon, c) == 0, "no thread");
    ncclResult_t res = ncclCommSuspend(c, NCCL_SUSPEND_MEM);
    CHECK(res != ncclSuccess, "suspended without rank 0");
    pthread_join(t, NULL);
  }
  meet(RANKS);
  if (rank == 0) {
    OK(ncclCommAbort(c));
  }
}

static void an_abort_ends_it(void **state)
{
  (void)state;
  PROCESSES(RANKS, 10, abort_body, NULL);
}

// What is queued is done first, and nothing of it is lost.
static void in_flight_body(int rank, void *arg)
{
  enum { CALLS = 8 };
  ncclComm_t c = join_processes(0, RANKS, rank);
  cudaStream_t s;
  (void)arg;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  for (int i = 0; i < COUNT; i++) {
    x[i] = 1;
  }
  for (int i = 0; i < CALLS; i++) {
    OK(ncclAllReduce(i == 0 ? x : y, y, COUNT, ncclFloat, ncclSum, c, s));
  }
  OK(ncclCommSuspend(c, NCCL_SUSPEND_MEM));
  OK(tuttiStreamSynchronize(s));
  for (int i = 0; i < COUNT; i++) {
    CHECK(y[i] == 6561, "element %d is %g", i, (double)y[i]); // RANKS to the power of CALLS
  }
  OK(ncclCommResume(c));
  work(c, rank, 3000, s);
  OK(ncclCommDestroy(c));
  OK(tuttiStreamDestroy(s));
}

static void calls_in_flight_are_done_first(void **state)
{
  (void)state;
  PROCESSES(RANKS, 20, in_flight_body, NULL);
}

// Parent and child are suspended each for itself; a suspended one makes no children.
static void child_body(int rank, void *arg)
{
  int dead = (rank + 1) % RANKS;
  ncclComm_t c = join_processes(0, RANKS, rank), child, other = NULL;
  (void)arg;
  OK(ncclCommSplit(c, 0, rank, &child, NULL));
  work(child, rank, 3000, NULL);
  OK(ncclCommSuspend(c, NCCL_SUSPEND_MEM));
  CHECK(stat_of(child, ncclStatGpuMemSuspended) == 0, "the child went with its parent");
  work(child, rank, 3000, NULL);
  REFUSED(ncclCommSplit(c, 0, rank, &other, NULL), ncclInvalidUsage, "ncclCommSplit", "suspended");
  REFUSED(ncclCommShrink(c, &dead, 1, &other, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidUsage, "suspended");
  OK(ncclCommResume(c));
  work(c, rank, 3000, NULL);
  OK(ncclCommSuspend(child, NCCL_SUSPEND_MEM));
  work(c, rank, 3000, NULL);
  REFUSED(ncclBroadcast(x, x, 1, ncclFloat, 0, child, NULL), ncclInvalidUsage, "ncclBroadcast", "suspended");
  OK(ncclCommDestroy(c));
  OK(ncclCommResume(child));
  work(child, rank, 3000, NULL);
  OK(ncclCommSuspend(child, NCCL_SUSPEND_MEM));
  OK(ncclCommAbort(child));
}

static void children_are_suspended_alone(void **state)
{
  (void)state;
  PROCESSES(RANKS, 20, child_body, NULL);
}

// The last rank is killed before the others suspend, or while all are suspended: they get an error that names it, and
// go on without it.
static void killed_body(int rank, void *arg)
{
  bool suspended = *(const bool *)arg;
  ncclComm_t c = join_processes(0, RANKS, rank);
  work(c, rank, 3000, NULL);
  if (suspended) {
    OK(ncclCommSuspend(c, NCCL_SUSPEND_MEM));
  }
  meet(RANKS);
  if (rank == RANKS - 1) {
    (void)kill(getpid(), SIGKILL);
  }
  ncclResult_t res = ncclSuccess;
  while (suspended && res == ncclSuccess) { // told without a call
    OK(ncclCommGetAsyncError(c, &res));
  }
  res = suspended ? ncclCommResume(c) : ncclCommSuspend(c, NCCL_SUSPEND_MEM);
  CHECK(res == ncclRemoteError, "%d", (int)res);
  CHECK(strstr(ncclGetLastError(c), "rank 2") != NULL, "the text names another");
  ncclComm_t left;
  OK(ncclCommShrink(c, &(int){RANKS - 1}, 1, &left, NULL, NCCL_SHRINK_ABORT));
  int n;
  OK(ncclCommCount(left, &n));
  CHECK(n == RANKS - 1, "%d", n);
  OK(ncclCommDestroy(left));
  OK(ncclCommAbort(c));
}

static void killed_peers_are_named(void **state)
{
  (void)state;
  for (int i = 0; i < 2; i++) {
    ranks_set r;
    bool suspended = i == 1;
    start_processes(&r, &(run){.n = RANKS, .seconds = 20, .fn = killed_body, .arg = &suspended});
    r.expected[RANKS - 1] = -SIGKILL;
    assert_int_equal(finish_processes(&r), 0);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cycles),
      cmocka_unit_test(pages_go),
      cmocka_unit_test(refusals),
      cmocka_unit_test(nonblocking),
      cmocka_unit_test(a_message_is_kept),
      cmocka_unit_test(an_abort_ends_it),
      cmocka_unit_test(calls_in_flight_are_done_first),
      cmocka_unit_test(children_are_suspended_alone),
      cmocka_unit_test(killed_peers_are_named),
  };
  return RUN_TESTS("suspend", tests, argc, argv);
}
