// coll_config_test.c: collectives with settings of one call: what they select holds for that call alone, what is wrong
// is refused, the event is recorded when the operation starts, this library's own options act.
#include "harness.h"

#include "comm/comm.h"
#include "comm/decide.h"

enum { COUNT = 3000, RANKS = 3, MOST = 100000 };

#define SOME_CONFIG(name, ...)                         \
  ncclCollConfig_t name = NCCL_COLLCONFIG_INITIALIZER; \
  __VA_ARGS__

// The algorithm of the newest decision with options, or without any.
static int algo_of(const struct ncclComm *comm, tt_func func, bool optional)
{
  for (int i = 0; i < TT_DECISION_SETS; i++) {
    const tt_decision *set = comm->decisions.sets[i];
    for (int k = 0; set != NULL && k < TT_DECISION_WAYS; k++) {
      if (set[k].made && (set[k].kind & 0xff) == (uint64_t)func && (tt_kind_options(set[k].kind) != 0) == optional) {
        return set[k].choice.algo;
      }
    }
  }
  return -1;
}

static void fill(float *x, int rank, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    x[i] = (float)(rank + 1) + (float)(i % 7);
  }
}

// Every function once, with the selection. `algo`: the row that all-reduce takes.
static void call_all(const char *selection, int algo, int rank)
{
  ncclComm_t c = join_processes(0, RANKS, rank);
  static float in[RANKS * COUNT], out[RANKS * COUNT];
  SOME_CONFIG(f, f.algSelection = selection);
  SOME_CONFIG(any, any.userProfilerTag = 7);
  fill(in, rank, RANKS * COUNT);
  OK(ncclAllReduceConfig(in, out, COUNT, ncclFloat, ncclSum, c, NULL, &f));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(out[9] == 6 + 3 * 2, "all-reduce: %g", (double)out[9]);
  CHECK(algo_of(c, TT_FUNC_ALLREDUCE, true) == algo, "\"%s\" took row %d", selection,
        algo_of(c, TT_FUNC_ALLREDUCE, true));
  CHECK(algo_of(c, TT_FUNC_ALLREDUCE, false) == -1, "the plain call has a decision");
  OK(ncclAllReduceConfig(in, out, COUNT, ncclFloat, ncclSum, c, NULL, &any)); // a tag alone changes nothing
  CHECK(algo_of(c, TT_FUNC_ALLREDUCE, false) >= 0, "a tag has options of its own");
  f.forceAlgSelection = 0; // TREE knows some of them only
  OK(ncclBroadcastConfig(in, out, COUNT, ncclFloat, 1, c, NULL, &f));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(out[9] == 2 + 2, "broadcast: %g", (double)out[9]);
  OK(ncclReduceConfig(in, out, COUNT, ncclFloat, ncclMax, 2, c, NULL, &f));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(rank != 2 || out[9] == 3 + 2, "reduce: %g", (double)out[9]);
  OK(ncclAllGatherConfig(in, out, COUNT, ncclFloat, c, NULL, &f));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(out[2 * COUNT + 9] == 3 + 2, "all-gather: %g", (double)out[2 * COUNT + 9]);
  OK(ncclReduceScatterConfig(in, out, COUNT, ncclFloat, ncclSum, c, NULL, &f));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(out[0] == 6 + 3 * (float)(rank * COUNT % 7), "reduce-scatter: %g", (double)out[0]);
  OK(ncclAlltoAllConfig(in, out, COUNT, ncclFloat, c, NULL, &f));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(out[2 * COUNT] == 3 + (float)(rank * COUNT % 7), "all-to-all: %g", (double)out[2 * COUNT]);
  OK(ncclGatherConfig(in, out, COUNT, ncclFloat, 0, c, NULL, &f));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(rank != 0 || out[COUNT + 1] == 2 + 1, "gather: %g", (double)out[COUNT + 1]);
  OK(ncclScatterConfig(in, out, COUNT, ncclFloat, 0, c, NULL, NULL));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(out[0] == 1 + (float)(rank * COUNT % 7), "scatter: %g", (double)out[0]);
  OK(ncclCommDestroy(c));
}

typedef struct selected {
  const char *text;
  int algo;
} selected;

static void selection_body(int rank, void *arg)
{
  const selected *s = arg;
  call_all(s->text, s->algo, rank);
}

static void selections_hold(void **state)
{
  (void)state;
  PROCESSES(RANKS, 10, selection_body, (&(selected){"RING_LL", TT_ALGO_RING}));
  PROCESSES(RANKS, 10, selection_body, (&(selected){"tree_simple", TT_ALGO_TREE}));
  PROCESSES(RANKS, 10, selection_body, (&(selected){"RD", TT_ALGO_RD}));
  PROCESSES(RANKS, 10, selection_body, (&(selected){"^RING+^TREE+^RD+^DIRECT+^HIER+^ORDERED", TT_ALGO_ONESHOT}));
}

static void refused_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, 1, rank);
  float x[8] = {1};
  (void)arg;
#define BAD(setting, ...)                                                                                              \
  do {                                                                                                                 \
    SOME_CONFIG(f, setting);                                                                                           \
    REFUSED(ncclAllReduceConfig(x, x, 8, ncclFloat, ncclSum, c, NULL, &f), ncclInvalidArgument, "ncclAllReduceConfig", \
            __VA_ARGS__);                                                                                              \
  } while (0)
  BAD(f.magic = 1, "NCCL_COLLCONFIG_INITIALIZER");
  BAD(f.size = 56, "NCCL_COLLCONFIG_INITIALIZER");
  BAD(f.forceAlgSelection = 2, "forceAlgSelection", "2");
  BAD(f.forceAlgSelection = NCCL_CONFIG_UNDEF_INT, "forceAlgSelection");
  BAD(f.CTAPolicy = 4, "CTAPolicy", "4");
  BAD(f.algSelection = "RONG", "algSelection", "RONG");
  BAD(f.algSelection = "^", "algSelection", "^");
  BAD(f.algSelection = "RING+TREE", "contradicts");
  BAD(f.algSelection = "PAT", "AllReduce");
  BAD(f.algSelection = "NVLS", "AllReduce");
  ncclConfigExt_t a = {.key = {TUTTI_VENDOR_ID, 99}}, b = {.next = &a, .key = {5, 1}}, circle = {.next = &circle};
  BAD(f.ext = &a, "TUTTI_VENDOR_ID", "99");
  a.key.optionId = TUTTI_OPTION_RANK_ORDER;
  a.val.i = 2;
  BAD(f.ext = &b, "cannot be 2");
  a = (ncclConfigExt_t){.key = {5, 1}};
  BAD(f.ext = &b, "twice");
  a.key.vendorId = 1 << 24;
  BAD(f.ext = &b, "vendorId", "16777216");
  a.key.vendorId = 0;
  BAD(f.ext = &a, "vendorId");
  circle.key.vendorId = 5;
  BAD(f.ext = &circle, "circle");
  // The settings come before the communicator, and that before the other arguments.
  SOME_CONFIG(f, f.CTAPolicy = 9);
  REFUSED(ncclAllReduceConfig(x, x, 8, ncclFloat, ncclSum, NULL, NULL, &f), ncclInvalidArgument, "CTAPolicy");
  f.CTAPolicy = 3;
  REFUSED(ncclAllReduceConfig(x, x, 8, ncclFloat, ncclSum, NULL, NULL, &f), ncclInvalidArgument, "communicator");
  f.algSelection = "RONG";
  REFUSED(ncclAllReduceConfig(x, x, 8, (ncclDataType_t)77, ncclSum, c, NULL, &f), ncclInvalidArgument, "datatype");
  OK(ncclAllReduceConfig(x, x, 0, ncclFloat, ncclSum, c, NULL, &f)); // nothing to do: the selection is not looked at
  f.forceAlgSelection = 0;
  OK(ncclAllReduceConfig(x, x, 8, ncclFloat, ncclSum, c, NULL, &f));
  f = (ncclCollConfig_t)NCCL_COLLCONFIG_INITIALIZER;
  f.algSelection = "RING";
  REFUSED(ncclAlltoAllConfig(x, x + 4, 4, ncclFloat, c, NULL, &f), ncclInvalidArgument, "AlltoAll");
  f.minCTAs = 1000; // ignored
  f.maxCTAs = f.nvlsCTAs = f.cgaClusterSize = -3;
  a = (ncclConfigExt_t){.key = {5, 1}};
  b.key.optionId = 2;
  f.ext = &b; // another vendor's
  OK(ncclAllReduceConfig(x, x, 8, ncclFloat, ncclSum, c, NULL, &f));
  OK(ncclGroupStart());
  f.magic = 0;
  GIVES(ncclAllReduceConfig(x, x, 8, ncclFloat, ncclSum, c, NULL, &f), ncclInvalidArgument);
  GIVES(ncclGroupEnd(), ncclInvalidArgument);
  OK(ncclCommDestroy(c));
}

static void wrong_settings(void **state)
{
  (void)state;
  PROCESSES(1, 10, refused_body, NULL);
}

// That of 2.31 ends before the event. A newer one is longer.
static void versions_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, 1, rank);
  float x[8] = {1};
  SOME_CONFIG(f, f.size = 64);
  ncclCollConfig_t *old = malloc(64);
  char newer[200];
  (void)arg;
  f.version = NCCL_VERSION(2, 31, 2);
  memcpy(old, &f, 64);
  OK(ncclAllReduceConfig(x, x, 8, ncclFloat, ncclSum, c, NULL, old));
  free(old);
  f.size = 72; // padding, not the event
  f.launchCompletionEvent = (cudaEvent_t)(uintptr_t)0x5a5a5a5a;
  OK(ncclAllReduceConfig(x, x, 8, ncclFloat, ncclSum, c, NULL, &f));
  f = (ncclCollConfig_t)NCCL_COLLCONFIG_INITIALIZER;
  f.size = sizeof newer;
  f.version = NCCL_VERSION(2, 40, 0);
  memset(newer, 0x5a, sizeof newer);
  memcpy(newer, &f, sizeof f);
  OK(ncclAllReduceConfig(x, x, 8, ncclFloat, ncclSum, c, NULL, (ncclCollConfig_t *)(void *)newer));
  OK(ncclCommDestroy(c));
}

static void versions(void **state)
{
  (void)state;
  PROCESSES(1, 10, versions_body, NULL);
}

static void hold(void *arg)
{
  while (!atomic_load((atomic_int *)arg)) {
    sleep_ms(1);
  }
}

// Rank 1 calls when rank 0 has seen its event.
static void event_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, 2, rank);
  static float x[COUNT];
  static atomic_int open;
  cudaStream_t s;
  tuttiEvent_t e;
  SOME_CONFIG(f, f.algSelection = "RING_SIMPLE");
  bool grouped = *(bool *)arg;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  OK(tuttiEventCreate(&e));
  if (rank == 1) {
    meet(2);
  } else {
    OK(tuttiLaunchHostFunc(s, hold, &open));
  }
  f.launchCompletionEvent = (cudaEvent_t)e;
  OK(grouped ? ncclGroupStart() : ncclSuccess);
  OK(ncclAllReduceConfig(x, x, COUNT, ncclFloat, ncclSum, c, s, &f));
  OK(grouped ? ncclGroupEnd() : ncclSuccess);
  if (rank == 0) {
    sleep_ms(50);
    GIVES(tuttiEventQuery(e), ncclInProgress); // the stream has not come to the call
    atomic_store(&open, 1);
    OK(tuttiEventSynchronize(e));
    GIVES(tuttiStreamQuery(s), ncclInProgress); // the other rank has not called
    meet(2);
  }
  OK(tuttiStreamSynchronize(s));
  OK(tuttiEventQuery(e));
  OK(ncclGroupStart());
  OK(ncclAllReduceConfig(x, x, COUNT, ncclFloat, ncclSum, c, s, &f));
  REFUSED(ncclAllReduceConfig(x, x, COUNT, ncclFloat, ncclSum, c, s, &f), ncclInvalidUsage, "launchCompletionEvent");
  GIVES(ncclGroupEnd(), ncclInvalidUsage);
  OK(tuttiEventDestroy(e));
  OK(tuttiStreamDestroy(s));
  OK(ncclCommDestroy(c));
}

static void event_at_the_start(void **state)
{
  bool grouped[] = {false, true};
  (void)state;
  PROCESSES(2, 10, event_body, &grouped[0]);
  PROCESSES(2, 10, event_body, &grouped[1]);
}

// A stream that waits for the event of a captured call is captured too.
static void capture_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, 2, rank);
  static float x[COUNT], y[COUNT];
  cudaStream_t s, other;
  tuttiEvent_t e, joined;
  tuttiGraph_t graph;
  tuttiGraphExec_t exec;
  SOME_CONFIG(f, f.algSelection = "RING");
  (void)arg;
  fill(x, rank, COUNT);
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  OK(tuttiStreamCreate(&other, TUTTI_STREAM_NON_BLOCKING));
  OK(tuttiEventCreate(&e));
  OK(tuttiEventCreate(&joined));
  f.launchCompletionEvent = (cudaEvent_t)e;
  OK(tuttiStreamBeginCapture(s, tuttiCaptureGlobal));
  OK(ncclAllReduceConfig(x, x, COUNT, ncclFloat, ncclSum, c, s, &f));
  OK(tuttiStreamWaitEvent(other, e));
  OK(tuttiMemcpyAsync(y, y + 1, 4, other));
  OK(tuttiEventRecord(joined, other));
  OK(tuttiStreamWaitEvent(s, joined));
  OK(tuttiStreamEndCapture(s, &graph));
  OK(tuttiGraphInstantiate(&exec, graph));
  for (int i = 0; i < 3; i++) {
    OK(tuttiGraphLaunch(exec, s));
    OK(tuttiStreamSynchronize(s));
  }
  CHECK(x[0] == 3 * 2 * 2, "after three launches: %g", (double)x[0]);
  OK(tuttiGraphExecDestroy(exec));
  OK(tuttiGraphDestroy(graph));
  OK(tuttiEventDestroy(e));
  OK(tuttiEventDestroy(joined));
  OK(tuttiStreamDestroy(s));
  OK(tuttiStreamDestroy(other));
  OK(ncclCommDestroy(c));
}

static void event_is_captured(void **state)
{
  (void)state;
  PROCESSES(2, 10, capture_body, NULL);
}

// Rank 1 never calls. Rank 0's other calls have no limit.
static void stall_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, 2, rank);
  static float x[COUNT];
  ncclConfigExt_t limit = {.key = {TUTTI_VENDOR_ID, TUTTI_OPTION_STALL_ERROR_MS}, .val = {.i = 400}};
  SOME_CONFIG(f, f.ext = &limit);
  (void)arg;
  OK(ncclAllReduceConfig(x, x, COUNT, ncclFloat, ncclSum, c, NULL, &f));
  OK(tuttiStreamSynchronize(NULL));
  if (rank == 0) {
    OK(ncclAllReduceConfig(x, x, COUNT, ncclFloat, ncclSum, c, NULL, &f));
    tuttiStreamSynchronize(NULL);
    ncclResult_t async;
    OK(ncclCommGetAsyncError(c, &async));
    CHECK(async == ncclTimeout && strstr(ncclGetLastError(c), "TUTTI_OPTION_STALL_ERROR_MS") != NULL, "%d, %s",
          (int)async, ncclGetLastError(c));
  }
  meet(2);
  OK(ncclCommAbort(c));
}

static void stall_limit(void **state)
{
  (void)state;
  PROCESSES(2, 10, stall_body, NULL);
}

// The sum of an element does not depend on the length of the message.
static void order_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, RANKS, rank);
  static float in[MOST], out[MOST];
  static const float values[RANKS] = {1e8F, 3.5F, -1e8F};
  static const size_t lengths[] = {5, 3000, MOST};
  volatile float sum = values[0];
  ncclConfigExt_t order = {.key = {TUTTI_VENDOR_ID, TUTTI_OPTION_RANK_ORDER}, .val = {.i = 1}};
  SOME_CONFIG(f, f.ext = &order);
  (void)arg;
  sum = sum + values[1];
  sum = sum + values[2];
  for (size_t i = 0; i < MOST; i++) {
    in[i] = values[rank];
  }
  for (size_t k = 0; k < TT_COUNT(lengths); k++) {
    OK(ncclAllReduceConfig(in, out, lengths[k], ncclFloat, ncclSum, c, NULL, &f));
    OK(tuttiStreamSynchronize(NULL));
    for (size_t i = 0; i < lengths[k]; i++) {
      CHECK(out[i] == sum, "%zu elements, the one at %zu: %g in place of %g", lengths[k], i, (double)out[i],
            (double)sum);
    }
  }
  f.algSelection = "RING";
  REFUSED(ncclAllReduceConfig(in, out, 5, ncclFloat, ncclSum, c, NULL, &f), ncclInvalidArgument, "RANK_ORDER", "RING");
  OK(ncclCommDestroy(c));
}

static void rank_order(void **state)
{
  (void)state;
  PROCESSES(RANKS, 10, order_body, NULL);
}

static void differ_body(int rank, void *arg)
{
  ncclComm_t c = join_processes(0, 2, rank);
  static float x[COUNT];
  SOME_CONFIG(f, f.algSelection = rank == 0 ? "RING_SIMPLE" : "ONESHOT_SIMPLE");
  (void)arg;
  OK(ncclAllReduceConfig(x, x, COUNT, ncclFloat, ncclSum, c, NULL, &f));
  tuttiStreamSynchronize(NULL);
  ncclResult_t async;
  OK(ncclCommGetAsyncError(c, &async));
  CHECK(async == ncclInvalidUsage && strstr(ncclGetLastError(c), "differently") != NULL, "%d, %s", (int)async,
        ncclGetLastError(c));
  meet(2);
  OK(ncclCommAbort(c));
}

static void different_selections_are_named(void **state)
{
  (void)state;
  PROCESSES(2, 10, differ_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(selections_hold),   cmocka_unit_test(wrong_settings),
      cmocka_unit_test(versions),          cmocka_unit_test(event_at_the_start),
      cmocka_unit_test(event_is_captured), cmocka_unit_test(stall_limit),
      cmocka_unit_test(rank_order),        cmocka_unit_test(different_selections_are_named),
  };
  return RUN_TESTS("coll_config", tests, argc, argv);
}
