// profiler_test.c: what profilers of every version are told of calls, groups, communicators and channels.
#include "profiler_texts.h"

// ---- one all-reduce

static const char allreduce_v4[] = "init name=job id=set nodes=1 ranks=2 rank=0\n"
                                   "start Group#1 parent=- rank=0\n"
                                   "start Coll#1 parent=Group#1 rank=0 seq=0 func=AllReduce " COLL "\n"
                                   "stop Coll#1\n"
                                   "stop Group#1\n"
                                   "finalize rank=0\n";

static const char allreduce_v2[] = "init\n"
                                   "start Group#1 parent=- rank=0\n"
                                   "start Coll#1 parent=Group#1 rank=0 name=- hash=0 seq=0 func=AllReduce " COLL "\n"
                                   "stop Coll#1\n"
                                   "stop Group#1\n"
                                   "finalize rank=-1\n";

static const char allreduce_v1[] = "init\n"
                                   "start Group#1 parent=- rank=0\n"
                                   "start Coll#1 parent=Group#1 rank=0 name=- hash=0 seq=0 func=4 in=set out=set "
                                   "count=1000 root=0 type=7 channels=1 warps=1 algo=1 proto=2\n"
                                   "stop Coll#1\n"
                                   "stop Group#1\n"
                                   "finalize rank=-1\n";

static const char allreduce_v7[] =
    "init name=job id=set nodes=1 ranks=2 rank=0\n"
    "start GroupApi#1 parent=- rank=0 depth=1 graph=0\n"
    "state GroupApi#1 GroupStartApiStop\n"
    "start CollApi#1 parent=GroupApi#1 rank=0 func=AllReduce count=1000 type=ncclFloat32 root=0 stream=set graph=0 "
    "tag=0\n"
    "stop CollApi#1\n"
    "state GroupApi#1 GroupEndApiStart\n"
    "start Group#1 parent=- rank=0\n"
    "start Coll#1 parent=CollApi#1 rank=0 seq=0 func=AllReduce " COLL " group=Group#1 variant=RING_SIMPLE sym=0 tag=0\n"
    "stop Coll#1\n"
    "stop Group#1\n"
    "start KernelLaunch#1 parent=GroupApi#1 rank=0 stream=set\n"
    "stop KernelLaunch#1\n"
    "stop GroupApi#1\n"
    "finalize rank=0\n";

static const char kernel_v3[] = "start KernelCh#1 parent=Coll#1 rank=0 channel=0\n"
                                "stop KernelCh#1\n";

static void every_version_is_told_of_an_allreduce_in_its_terms(void **state)
{
  (void)state;
  const struct {
    int version;
    const char *api, *kernel;
  } rows[] = {{1, allreduce_v1, ""},        {2, allreduce_v2, ""},        {3, allreduce_v2, kernel_v3},
              {4, allreduce_v4, kernel_v6}, {5, allreduce_v6, kernel_v6}, {6, allreduce_v6, kernel_v6},
              {7, allreduce_v7, kernel_v6}};
  const char *const lists[] = {"123", "4567"};
  for (int l = 0; l < 2; l++) {
    run_all(&(job){.n = 2, .versions = lists[l], .work = one_allreduce, .env = ring_simple});
    for (int i = 3 * l; i < (l == 0 ? 3 : 7); i++) {
      const char *text = record(0, rows[i].version);
      assert_string_equal(pick(text, API), rows[i].api);
      assert_string_equal(told_to(allreduce_v6, rows[i].version), rows[i].api); // what other tests count on
      assert_string_equal(pick(text, "KernelCh"), rows[i].kernel);
      assert_int_equal(count_lines(text, "start Proxy"), 0); // shared memory
      assert_sound(text);
      assert_sound(record(1, rows[i].version));
    }
  }
}

// ---- groups

static void a_group_of_mixed_operations(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "4561", .work = mixed_group, .env = ring_simple});
  char *text = record(0, 6);
  assert_string_equal(pick(text, "GroupApi CollApi P2pApi Group Coll P2p KernelLaunch"), mixed_v6);
  assert_int_equal(count_lines(text, "start KernelCh"), 4);
  assert_int_equal(count_lines(text, "stop KernelCh"), 4);
  assert_non_null(strstr(text, "parent=P2p#1 rank=0 channel="));
  assert_non_null(strstr(text, "parent=P2p#2 rank=0 channel="));
  assert_sound(text);
  // Two profilers of different versions see the same.
  assert_string_equal(sorted(record(0, 5)), sorted(text));
  const char *old = record(0, 4);
  assert_sound(old);
  assert_non_null(
      strstr(old, "start P2p#2 parent=Group#3 rank=0 func=Recv buff=set count=10 type=ncclInt64 peer=1 channels=1\n"));
  assert_null(strstr(old, "Api"));
  const char *oldest = record(0, 1);
  assert_sound(oldest);
  assert_non_null(strstr(oldest, "start P2p#2 parent=Group#3 rank=0 func=7 buff=set count=10 type=4 peer=1\n"));
  assert_non_null(
      strstr(oldest,
             "start Coll#2 parent=Group#2 rank=0 name=- hash=0 seq=0 func=0 in=set out=set count=1000 root=1 type=8 "));
  for (int v = 1; v <= 6; v++) {
    record(1, v);
  }
}

static void a_send_and_its_receive(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "6", .work = send_and_receive});
  for (int rank = 0; rank < 2; rank++) {
    char expected[2048];
    const char *text = record(rank, 6), *func = rank == 0 ? "Send" : "Recv";
    snprintf(expected, sizeof expected,
             "start GroupApi#1 parent=- rank=%d depth=1 graph=0\n"
             "state GroupApi#1 GroupStartApiStop\n"
             "start P2pApi#1 parent=GroupApi#1 rank=%d func=%s count=1000 type=ncclFloat64 stream=set graph=0\n"
             "stop P2pApi#1\n"
             "state GroupApi#1 GroupEndApiStart\n"
             "start Group#1 parent=- rank=%d\n"
             "start P2p#1 parent=P2pApi#1 rank=%d func=%s buff=set count=1000 type=ncclFloat64 peer=%d channels=1 "
             "group=Group#1\n"
             "stop P2p#1\n"
             "stop Group#1\n"
             "start KernelLaunch#1 parent=GroupApi#1 rank=%d stream=set\n"
             "stop KernelLaunch#1\n"
             "stop GroupApi#1\n",
             rank, rank, func, rank, rank, func, 1 - rank, rank);
    assert_string_equal(pick(text, "GroupApi CollApi P2pApi Group Coll P2p KernelLaunch"), expected);
    snprintf(expected, sizeof expected,
             "start KernelCh#1 parent=P2p#1 rank=%d channel=0 timer=set\nstate KernelCh#1 KernelChStop timer=set\nstop "
             "KernelCh#1\n",
             rank);
    assert_string_equal(pick(text, "KernelCh"), expected);
    assert_sound(text);
  }
}

static void block_calls(int rank, int n, ncclComm_t comm)
{
  static float in[COUNT], out[COUNT];
  const size_t counts[] = {300, COUNT - 300};
  cudaStream_t stream;
  (void)n;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  OK(tuttiAllGatherV(in, counts[rank], out, counts, NULL, ncclFloat, comm, stream));
  OK(tuttiReduceScatterV(out, in, counts, ncclFloat, ncclSum, comm, stream));
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiStreamDestroy(stream));
}

static void blocks_of_several_lengths(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "6", .work = block_calls});
  for (int rank = 0; rank < 2; rank++) {
    const char *text = record(rank, 6);
    assert_int_equal(count_lines(text, "start CollApi#"), 2);
    assert_int_equal(count_lines(text, "start Coll#"), 2);
    assert_int_equal(count_lines(text, "start P2p"), 0);
    assert_int_equal(count_lines(text, "start KernelCh"), 2);
    assert_int_equal(count_lines(text, "stop KernelCh"), 2);
    assert_non_null(strstr(text, "seq=0 func=AllGatherV in=set out=set count=1000 root=0 type=ncclFloat32 channels=1"));
    assert_non_null(strstr(text, "seq=0 func=ReduceScatterV in=set out=set count=1000 root=0 type=ncclFloat32"));
    assert_sound(text);
  }
}

static void dropped_groups(int rank, int n, ncclComm_t comm)
{
  static int x[COUNT];
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  OK(ncclGroupStart());
  OK(ncclAllReduce(x, x, COUNT, ncclInt, ncclSum, comm, stream));
  GIVES(ncclSend(x, 1, ncclInt, n, comm, stream), ncclInvalidArgument);
  GIVES(ncclGroupEnd(), ncclInvalidArgument);
  OK(ncclGroupStart());
  OK(ncclAllReduce(x, x, COUNT, ncclInt, ncclSum, comm, stream));
  OK(ncclSend(x, 1, ncclInt, 1 - rank, comm, stream));
  OK(ncclGroupSimulateEnd(&info));
  GIVES(ncclAllReduce(x, x, COUNT, ncclInt, ncclSum, comm, (cudaStream_t)(uintptr_t)12345), ncclInvalidArgument);
  OK(tuttiStreamDestroy(stream));
}

static void groups_that_are_dropped_are_balanced(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "65", .work = dropped_groups});
  for (int v = 5; v <= 6; v++) {
    const char *text = record(0, v);
    assert_int_equal(count_lines(text, "start GroupApi"), 3);
    assert_int_equal(count_lines(text, "start CollApi"), 3);
    assert_int_equal(count_lines(text, "start P2pApi"), 1); // what is refused is no call
    assert_int_equal(count_lines(text, "start Coll#"), 0);
    assert_int_equal(count_lines(text, "start Kernel"), 0);
    assert_sound(text);
    record(1, v);
  }
}

// ---- communicators

static void a_split_has_a_context_of_its_own(void **state)
{
  (void)state;
  run_all(&(job){.n = 4, .versions = "6", .work = split});
  for (int rank = 0; rank < 4; rank++) {
    char expected[512];
    const char *text = record(rank, 6);
    snprintf(expected, sizeof expected,
             "init name=job id=set nodes=1 ranks=4 rank=%d\ninit name=job id=set nodes=1 ranks=2 rank=%d\nfinalize "
             "rank=%d\nfinalize rank=%d\n",
             rank, 1 - rank % 2, 1 - rank % 2, rank);
    assert_string_equal(pick(text, "init"), expected);
    assert_int_equal(count_lines(text, "start Coll#"), 1);
    assert_sound(text);
  }
}

static void nonblocking(int rank, int n, ncclComm_t comm)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t late;
  ncclResult_t state = ncclInProgress;
  config.blocking = 0;
  CHECK(ncclCommInitRankConfig(&late, n, shared_id(1, rank), rank, &config) == ncclInProgress,
        "it should take a while");
  while (state == ncclInProgress) {
    OK(ncclCommGetAsyncError(late, &state));
  }
  OK(state);
  one_allreduce(rank, n, late);
  CHECK(ncclCommFinalize(late) == ncclInProgress, "it should take a while");
  do {
    OK(ncclCommGetAsyncError(late, &state));
  } while (state == ncclInProgress);
  OK(ncclCommDestroy(late));
  one_allreduce(rank, n, comm);
}

static void a_nonblocking_communicator(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "6", .work = nonblocking});
  const char *text = record(0, 6);
  assert_int_equal(count_lines(text, "start Coll#"), 2);
  assert_int_equal(count_lines(text, "finalize"), 2);
  assert_sound(text);
  record(1, 6);
}

static void an_aborted_operation_is_stopped_once(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "456", .work = aborted, .keeps = true});
  for (int v = 4; v <= 6; v++) {
    const char *text = record(0, v);
    assert_int_equal(count_lines(text, "start Coll#"), 2);
    assert_int_equal(count_lines(text, "start KernelCh"), 1);
    assert_string_equal(pick(text, "KernelCh"), kernel_v6);
    assert_int_equal(count_lines(text, "finalize"), 1);
    assert_sound(text);
    record(1, v);
  }
}

static void fails_at_the_peer(int rank, int n, ncclComm_t comm)
{
  static int x[COUNT];
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  OK(ncclAllReduce(x, x, (size_t)(COUNT - rank), ncclInt, ncclSum, comm, stream)); // do not agree
  CHECK(tuttiStreamSynchronize(stream) != ncclSuccess, "calls that differ cannot succeed");
  meet(n);
  OK(ncclCommAbort(comm));
  OK(tuttiStreamDestroy(stream));
}

static void a_failed_operation_is_stopped_once(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "6", .work = fails_at_the_peer, .keeps = true});
  for (int rank = 0; rank < 2; rank++) {
    const char *text = record(rank, 6);
    assert_int_equal(count_lines(text, "start Coll#"), 1);
    assert_sound(text);
  }
}

// ---- many operations at once

enum { QUEUED = 200 };

static void wait_at_gate(void *gate)
{
  while (!atomic_load((_Atomic bool *)gate)) {
    sleep_ms(1);
  }
}

static uint64_t clock_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// The time stamp in the line that begins so.
static uint64_t stamp_of(const char *text, const char *line)
{
  const char *at = strstr(text, line), *value = at != NULL ? strstr(at, " timer=") : NULL;
  CHECK(value != NULL && value < at + strcspn(at, "\n"), "no time stamp: %s", line);
  return strtoull(value + strlen(" timer="), NULL, 10);
}

// Channels ran one after the other, after all had been queued, each for an operation of its own.
static void check_stamps(const char *text, uint64_t opened)
{
  uint64_t before = opened;
  char line[80];
  CHECK(count_lines(text, "start KernelCh#") == QUEUED && count_lines(text, "stop KernelCh#") == QUEUED, "%d channels",
        count_lines(text, "start KernelCh#"));
  for (int i = 1; i <= QUEUED; i++) {
    snprintf(line, sizeof line, "start KernelCh#%d parent=Coll#%d rank=", i, i);
    uint64_t start = stamp_of(text, line);
    snprintf(line, sizeof line, "state KernelCh#%d KernelChStop", i);
    uint64_t stop = stamp_of(text, line);
    CHECK(before <= start && start <= stop, "operation %d ran from %llu to %llu, the one before until %llu", i,
          (unsigned long long)start, (unsigned long long)stop, (unsigned long long)before);
    before = stop;
  }
}

// What the library writes meanwhile, of which nobody tells.
__attribute__((no_sanitize("thread"))) static int glance(const volatile int *x)
{
  return *x;
}

// The stream is held up until everything is queued; then nobody calls the library until the last result is there.
static void queues(int rank, int n, ncclComm_t comm)
{
  static _Atomic bool gate;
  static int x[QUEUED];
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  OK(tuttiLaunchHostFunc(stream, wait_at_gate, &gate));
  for (int i = 0; i < QUEUED; i++) {
    x[i] = i + rank;
    OK(ncclAllReduce(&x[i], &x[i], 1, ncclInt, ncclSum, comm, stream));
  }
  uint64_t opened = clock_ns();
  atomic_store(&gate, true);
  for (int i = 0; i < QUEUED; i++) {
    while (glance(&x[i]) != n * i + n * (n - 1) / 2) {
      sleep_ms(1);
    }
  }
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommDestroy(comm));
  for (int v = 4; v <= 6; v++) {
    check_stamps(record(rank, v), opened);
  }
}

static void stamps_of_operations_that_wait_in_a_queue(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "456", .work = queues, .keeps = true, .env = ENV("TUTTI_RECORD_TIMERS=1")});
}

// ---- plugins that do less

static void a_profiler_whose_init_fails_is_done_without(void **state)
{
  (void)state;
  run_all(&(job){.n = 2,
                 .versions = "564",
                 .work = one_allreduce,
                 .env = ENV("TUTTI_RECORD_INIT_FAILS=5", "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")});
  assert_string_equal(record(0, 5), "init name=job id=set nodes=1 ranks=2 rank=0\ninit fails\n");
  assert_string_equal(pick(record(0, 6), API), allreduce_v6);
  assert_string_equal(pick(record(0, 4), API), allreduce_v4);
  for (int v = 4; v <= 6; v++) {
    record(1, v);
  }
}

static void a_profiler_without_handles_hears_no_more(void **state)
{
  (void)state;
  run_all(&(job){.n = 2,
                 .versions = "56",
                 .work = one_allreduce,
                 .env = ENV("TUTTI_RECORD_NO_HANDLE=0x7fff", "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")});
  const char *text = record(0, 6);
  assert_string_equal(
      pick(text, "GroupApi CollApi Group Coll KernelLaunch KernelCh"),
      "start GroupApi- parent=- rank=0 depth=1 graph=0\n"
      "start CollApi- parent=- rank=0 func=AllReduce count=1000 type=ncclFloat32 root=0 stream=set graph=0\n"
      "start Group- parent=- rank=0\n"
      "start Coll- parent=- rank=0 seq=0 func=AllReduce " COLL " group=-\n"
      "start KernelLaunch- parent=- rank=0 stream=set\n"
      "start KernelCh- parent=- rank=0 channel=0 timer=set\n");
  assert_null(strstr(text, "ERROR"));
  for (int v = 5; v <= 6; v++) {
    record(0, v);
    record(1, v);
  }
}

// What a mask brings with it.
static void a_bit_of_the_mask_brings_the_parents(void **state)
{
  (void)state;
  const struct {
    const char *mask;
    int group_api, coll_api, group, coll, launch, kernel;
  } rows[] = {{"0", 0, 0, 0, 0, 0, 0},     {"0x40", 1, 1, 1, 1, 0, 1},  {"0x2", 1, 1, 1, 1, 0, 0},
              {"0x1", 1, 0, 1, 0, 0, 0},   {"0x100", 1, 0, 0, 0, 0, 0}, {"0x200", 1, 1, 0, 0, 0, 0},
              {"0x800", 1, 0, 0, 0, 1, 0}, {"0x20", 0, 0, 0, 0, 0, 0},  {"0x8", 1, 1, 1, 1, 0, 0},
              {"0x400", 1, 0, 0, 0, 0, 0}, {"0x1000", 1, 1, 0, 0, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char mask[64];
    snprintf(mask, sizeof mask, "TUTTI_RECORD_MASK=%s", rows[i].mask);
    run_all(&(job){.n = 2, .versions = "6", .work = one_allreduce, .env = ENV(mask)});
    const char *text = record(0, 6);
    assert_int_equal(count_lines(text, "start GroupApi#"), rows[i].group_api);
    assert_int_equal(count_lines(text, "start CollApi#"), rows[i].coll_api);
    assert_int_equal(count_lines(text, "start Group#"), rows[i].group);
    assert_int_equal(count_lines(text, "start Coll#"), rows[i].coll);
    assert_int_equal(count_lines(text, "start KernelLaunch#"), rows[i].launch);
    assert_int_equal(count_lines(text, "start KernelCh#"), rows[i].kernel);
    assert_int_equal(count_lines(text, "finalize"), 1);
    assert_null(strstr(text, "ERROR"));
    record(1, 6);
  }
}

static void a_profiler_without_a_context_is_not_finalized(void **state)
{
  (void)state;
  run_all(&(job){
      .n = 2, .versions = "6", .work = one_allreduce, .env = ENV("TUTTI_RECORD_NO_CONTEXT=6", "TUTTI_RECORD_MASK=0")});
  assert_string_equal(record(0, 6), "init name=job id=set nodes=1 ranks=2 rank=0\n");
  record(1, 6);
}

// ---- ranks as threads, and libraries that come and go

static void threads_and_reloads(int rank, void *arg)
{
  world w;
  static float x[4][COUNT];
  (void)arg;
  setenv("TUTTI_RECORD", record_name(rank), 1);
  setenv("NCCL_PROFILER_PLUGIN", plugin_list("61"), 1);
  setenv("TUTTI_RECORD_MASK", "0x42", 1);
  for (int i = 0; i < 1000; i++) {
    int n = i % 100 == 0 ? 4 : 1;
    world_open(&w, n);
    for (int r = 0; r < n; r++) {
      OK(ncclAllReduce(x[r], x[r], COUNT, ncclFloat, ncclSum, w.comm[r], w.stream[r]));
    }
    world_wait(&w);
    world_close(&w);
  }
}

static void libraries_come_and_go(void **state)
{
  (void)state;
  remove_records(&(job){.n = 1});
  PROCESSES(1, 120, threads_and_reloads, NULL);
  const char *text = record(0, 6);
  assert_null(strstr(text, "ERROR"));
  assert_non_null(strstr(text, "finalize"));
  assert_int_equal(count_lines(text, "init"), count_lines(text, "finalize"));
  assert_int_equal(count_lines(text, "start Coll#"), count_lines(text, "stop Coll#"));
  record(0, 1);
}

static bool is_mapped(const char *file)
{
  char line[512];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  CHECK(maps != NULL, "no /proc/self/maps");
  while (fgets(line, sizeof line, maps) != NULL) {
    found |= strstr(line, file) != NULL;
  }
  fclose(maps);
  return found;
}

// Communicators that come to nothing, beside one that lives: before they are told to profilers (no group, no such
// root), and after (another network).
static void come_to_nothing(int rank, ncclComm_t alive)
{
  for (int i = 0; i < 2; i++) {
    ncclUniqueId nonsense;
    ncclComm_t comm = NULL;
    memset(&nonsense, 0x5a, sizeof nonsense);
    OK(ncclCommSplit(alive, NCCL_SPLIT_NOCOLOR, 0, &comm, NULL));
    CHECK(comm == NULL, "a rank of no group has no communicator");
    CHECK(ncclCommInitRank(&comm, 2, nonsense, rank) != ncclSuccess, "nobody is there");
    CHECK(is_mapped("librecorder_v6"), "round %d: the profiler has gone under a communicator", i);
    GIVES(ncclCommInitRank(&comm, 2, shared_id(i, rank), rank), ncclInvalidUsage);
    CHECK(is_mapped("librecorder_v6"), "round %d: the profiler has gone under a communicator", i);
  }
}

static void beside_failures(int rank, void *arg)
{
  char plugin[4096];
  const char *build = getenv("TUTTI_BUILD");
  (void)arg;
  snprintf(plugin, sizeof plugin, "%s/tests/plugins/libnet_v12.so", build != NULL ? build : "build");
  setenv("NCCL_NET_PLUGIN", rank == 0 ? "none" : plugin, 1);
  setenv("NCCL_HOSTID", rank == 0 ? "a" : "b", 1);
  setenv("TUTTI_RECORD", record_name(rank), 1);
  setenv("NCCL_PROFILER_PLUGIN", plugin_list("6"), 1);
  for (int round = 0; round < 2; round++) { // the second time it is opened again
    ncclComm_t alive = NULL;
    OK(ncclCommInitAll(&alive, 1, NULL));
    CHECK(is_mapped("librecorder_v6"), "round %d: the profiler is not opened", round);
    if (round == 0) {
      come_to_nothing(rank, alive);
    }
    one_allreduce(0, 1, alive);
    OK(ncclCommDestroy(alive));
    CHECK(!is_mapped("librecorder_v6"), "round %d: the profiler stays when all have gone", round);
  }
}

static void communicators_that_fail_leave_the_libraries_to_others(void **state)
{
  (void)state;
  remove_records(&(job){.n = 2});
  PROCESSES(2, 60, beside_failures, NULL);
  for (int rank = 0; rank < 2; rank++) {
    const char *text = record(rank, 6);
    assert_sound(text);
    assert_int_equal(count_lines(text, "init"), 4); // two that live, two that fail over the network
    assert_int_equal(count_lines(text, "finalize"), 4);
    assert_int_equal(count_lines(text, "start Coll#"), 2);
  }
}

static void not_usable(int rank, void *arg)
{
  char list[4096];
  const char *build = getenv("TUTTI_BUILD");
  ncclComm_t comm;
  (void)arg;
  snprintf(list, sizeof list,
           "/no/such.so, %s/tests/plugins/libneeds_cuda.so, %s/tests/plugins/libtwo_kinds.so, none, ,x,y", build,
           build);
  setenv("NCCL_PROFILER_PLUGIN", list, 1);
  comm = join_processes(0, 2, rank);
  one_allreduce(rank, 2, comm);
  OK(ncclCommDestroy(comm));
}

static void what_is_no_profiler_is_done_without(void **state)
{
  (void)state;
  PROCESSES(2, 60, not_usable, NULL);
}

// A call that a capture records, and two launches of the graph.
static void captured(int rank, int n, ncclComm_t comm)
{
  static float x[COUNT];
  cudaStream_t stream;
  tuttiGraph_t graph;
  tuttiGraphExec_t exec;
  (void)rank, (void)n;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  OK(tuttiStreamBeginCapture(stream, tuttiCaptureThreadLocal));
  OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, comm, stream));
  OK(tuttiStreamEndCapture(stream, &graph));
  OK(tuttiGraphInstantiate(&exec, graph));
  OK(tuttiGraphDestroy(graph));
  for (int i = 0; i < 2; i++) {
    OK(tuttiGraphLaunch(exec, stream));
  }
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiGraphExecDestroy(exec));
  OK(tuttiStreamDestroy(stream));
}

static void launches_of_a_graph(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "6", .work = captured});
  const char *text = record(0, 6);
  assert_sound(text);
  assert_int_equal(count_lines(text, "start GroupApi#"), 3);
  assert_int_equal(count_lines(text, "start CollApi#"), 3);
  assert_int_equal(count_lines(text, "start Coll#"), 2);
  assert_null(strstr(text, "graph=0"));
  assert_non_null(strstr(text, "graph=1"));
  record(1, 6);
}

// Each rank puts into the next one's window, and waits; then twice in a group, and by the launch of a graph.
static void one_sided(int rank, int n, ncclComm_t comm)
{
  cudaStream_t stream;
  void *memory;
  ncclWindow_t window;
  tuttiGraph_t graph;
  tuttiGraphExec_t exec;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  ncclWaitSignalDesc_t wait[2] = {{.opCnt = 1, .peer = before}, {.opCnt = 1, .peer = before}};
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  OK(ncclMemAlloc(&memory, 8192));
  OK(ncclCommWindowRegister(comm, memory, 8192, &window, NCCL_WIN_COLL_SYMMETRIC));
  OK(ncclPutSignal(memory, 100, ncclInt, next, window, 4096, 0, 0, 0, comm, stream));
  OK(ncclWaitSignal(1, wait, comm, stream));
  OK(ncclGroupStart());
  OK(ncclSignal(next, 0, 0, 0, comm, stream));
  OK(ncclSignal(next, 0, 0, 0, comm, stream));
  OK(ncclWaitSignal(2, wait, comm, stream));
  OK(ncclGroupEnd());
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiStreamBeginCapture(stream, tuttiCaptureThreadLocal));
  OK(ncclSignal(next, 0, 0, 0, comm, stream));
  OK(ncclWaitSignal(1, wait, comm, stream));
  OK(tuttiStreamEndCapture(stream, &graph));
  OK(tuttiGraphInstantiate(&exec, graph));
  OK(tuttiGraphDestroy(graph));
  OK(tuttiGraphLaunch(exec, stream));
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiGraphExecDestroy(exec));
  OK(ncclCommWindowDeregister(comm, window));
  OK(ncclMemFree(memory));
  OK(tuttiStreamDestroy(stream));
}

static const char put_v7[] =
    "start GroupApi#1 parent=- rank=0 depth=1 graph=0\n"
    "state GroupApi#1 GroupStartApiStop\n"
    "start P2pApi#1 parent=GroupApi#1 rank=0 func=PutSignal count=100 type=ncclInt32 stream=set graph=0 tag=0\n"
    "stop P2pApi#1\n"
    "state GroupApi#1 GroupEndApiStart\n"
    "start Group#1 parent=- rank=0\n"
    "start P2p#1 parent=P2pApi#1 rank=0 func=PutSignal buff=set count=100 type=ncclInt32 peer=1 channels=1 "
    "group=Group#1 tag=0\n"
    "stop P2p#1\n"
    "stop Group#1\n"
    "start KernelLaunch#1 parent=GroupApi#1 rank=0 stream=set\n"
    "stop KernelLaunch#1\n"
    "stop GroupApi#1\n";

static const char signals_v7[] =
    "start Group#3 parent=- rank=0\n"
    "start P2p#3 parent=P2pApi#3 rank=0 func=Signal buff=- count=0 type=ncclInt8 peer=1 channels=1 group=Group#3 "
    "tag=0\n"
    "start P2p#4 parent=P2pApi#4 rank=0 func=Signal buff=- count=0 type=ncclInt8 peer=1 channels=1 group=Group#3 "
    "tag=0\n"
    "start P2p#5 parent=P2pApi#5 rank=0 func=WaitSignal buff=- count=0 type=ncclInt8 peer=1 channels=1 group=Group#3 "
    "tag=0\n"
    "start P2p#6 parent=P2pApi#5 rank=0 func=WaitSignal buff=- count=0 type=ncclInt8 peer=1 channels=1 group=Group#3 "
    "tag=0\n"
    "stop P2p#3\n"
    "stop P2p#4\n"
    "stop P2p#5\n"
    "stop P2p#6\n"
    "stop Group#3\n"
    "start KernelLaunch#3 parent=GroupApi#3 rank=0 stream=set\n"
    "stop KernelLaunch#3\n"
    "stop GroupApi#3\n";

static void one_sided_operations(void **state)
{
  static const char *const net[] = {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", NULL};
  (void)state;
  for (int i = 0; i < 2; i++) {
    run_all(&(job){.n = 2, .versions = "167", .work = one_sided, .env = i == 0 ? NULL : net});
    const char *text = record(0, 7), *calls = pick(text, "GroupApi P2pApi Group P2p KernelLaunch");
    assert_sound(text);
    assert_ptr_equal(strstr(calls, put_v7), calls);
    assert_non_null(strstr(calls, signals_v7));
    assert_int_equal(count_lines(text, "start KernelCh#"), 8);
    assert_int_equal(count_lines(text, "state KernelCh#"), 8);
    assert_int_equal(count_lines(text, "start P2pApi#"), 9); // two are captured, and launched once
    assert_int_equal(count_lines(text, "start P2p#"), 8);
    assert_non_null(strstr(text, "parent=P2p#8 rank=0 channel="));
    assert_sound(record(0, 6));
    assert_sound(record(0, 1));
    assert_sound(record(1, 7));
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_version_is_told_of_an_allreduce_in_its_terms),
      cmocka_unit_test(a_group_of_mixed_operations),
      cmocka_unit_test(a_send_and_its_receive),
      cmocka_unit_test(blocks_of_several_lengths),
      cmocka_unit_test(groups_that_are_dropped_are_balanced),
      cmocka_unit_test(a_split_has_a_context_of_its_own),
      cmocka_unit_test(a_nonblocking_communicator),
      cmocka_unit_test(an_aborted_operation_is_stopped_once),
      cmocka_unit_test(a_failed_operation_is_stopped_once),
      cmocka_unit_test(stamps_of_operations_that_wait_in_a_queue),
      cmocka_unit_test(a_profiler_whose_init_fails_is_done_without),
      cmocka_unit_test(a_profiler_without_handles_hears_no_more),
      cmocka_unit_test(a_bit_of_the_mask_brings_the_parents),
      cmocka_unit_test(a_profiler_without_a_context_is_not_finalized),
      cmocka_unit_test(launches_of_a_graph),
      cmocka_unit_test(one_sided_operations),
      cmocka_unit_test(libraries_come_and_go),
      cmocka_unit_test(communicators_that_fail_leave_the_libraries_to_others),
      cmocka_unit_test(what_is_no_profiler_is_done_without),
  };
  return RUN_TESTS("profiler_test", tests, argc, argv);
}
