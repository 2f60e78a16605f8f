// The statistics, and the plugin as the library calls it: through its table, with messages over a network
// that exist in the calls alone.
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "json.h"
#include "trace.h"

extern const ncclProfiler_v7_t ncclProfiler_v7;
extern const ncclProfiler_v6_t ncclProfiler_v6;

static char said[8192]; // by the plugin

static void log_line(ncclDebugLogLevel level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
  (void)level, (void)flags, (void)file, (void)line;
  size_t n = strlen(said);
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(said + n, sizeof said - n, fmt, ap);
  va_end(ap);
}

// ---- statistics

static void histogram_is_true_to_two_percent(void **state)
{
  (void)state;
  for (uint64_t ns = 1; ns < UINT64_C(1) << 40; ns += 1 + ns / 7) {
    double v = (double)tt_histogram_value(tt_histogram_index(ns));
    assert_true(v <= (double)ns * 1.016 && v >= (double)ns * 0.984);
  }
  assert_int_equal(tt_histogram_index(UINT64_MAX), TT_HISTOGRAM - 1);
}

static void table_has_mean_and_quantiles(void **state)
{
  (void)state;
  tt_stats *s = tt_stats_create(4);
  char *text = NULL;
  size_t size;
  for (uint64_t i = 1; i <= 100; i++) {
    tt_op op = {.func = "AllReduce",
                .bytes = 4096,
                .start = 1000,
                .stop = 1000 + i * 1000,
                .nchannels = 1,
                .ended = 1,
                .waited = i * 500};
    tt_stats_op(s, &op);
  }
  tt_stats_wait(s, 2, 3000000);
  tt_stats_wait(s, 1, 1000000);
  tt_stats_wait(s, 7, 1); // no such rank
  FILE *out = open_memstream(&text, &size);
  tt_stats_print(s, out);
  fclose(out);
  char func[32];
  double mean, p50, p99, most, rate, waiting;
  unsigned long long bytes, count;
  const char *row = strchr(text, '\n');
  assert_int_equal(sscanf(row, " %31s %llu %llu %lf %lf %lf %lf %lf %lf", func, &bytes, &count, &mean, &p50, &p99,
                          &most, &rate, &waiting),
                   9);
  assert_int_equal(count, 100);
  assert_true(mean > 50.49 && mean < 50.51);
  assert_true(p50 > 49 && p50 < 51);
  assert_true(p99 > 97.4 && p99 <= 100);
  assert_true(most == 100);
  assert_true(waiting == 50);
  assert_non_null(strstr(text, "rank 2: 3.000 ms, 75.0 %"));
  assert_true(strstr(text, "rank 2") < strstr(text, "rank 1"));
  free(text);
  tt_stats_destroy(s);
}

// ---- the plugin

static char folder[] = "/tmp/tutti-trace-test-XXXXXX";

static void file_of(int rank, const char *end, char *out, size_t size)
{
  snprintf(out, size, "%s/tutti-trace-%016llx-r%d%s", folder, 0xabcdULL, rank, end);
}

static void *start(void *ctx, ncclProfilerEventDescr_v7_t d)
{
  void *handle = NULL;
  assert_int_equal(ncclProfiler_v7.startEvent(ctx, &handle, &d), ncclSuccess);
  return handle;
}

static void state(void *handle, ncclProfilerEventState_v7_t s, size_t bytes)
{
  ncclProfilerEventStateArgs_v7_t args = {.proxyStep = {.transSize = bytes}};
  ncclProfiler_v7.recordEventState(handle, s, &args);
}

// One all-reduce of a rank: one channel, `steps` messages to and from the other rank.
static void all_reduce(void *ctx, int rank, uint64_t seq, int steps)
{
  ncclProfilerEventDescr_v7_t coll = {.type = ncclProfileColl, .rank = rank};
  coll.coll.seqNumber = seq;
  coll.coll.func = "AllReduce";
  coll.coll.count = 1000;
  coll.coll.datatype = "ncclFloat32";
  coll.coll.nChannels = 1;
  coll.coll.algo = "RING";
  coll.coll.proto = "SIMPLE";
  coll.coll.userTag = seq == 7 ? UINT64_MAX : 0;
  void *op = start(ctx, coll);
  ncclProfiler_v7.stopEvent(op);
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
  void *kernel = start(ctx, (ncclProfilerEventDescr_v7_t){
                                .type = ncclProfileKernelCh, .parentObj = op, .rank = rank, .kernelCh = {0, ns}});
  for (int send = 0; send < 2; send++) {
    ncclProfilerEventDescr_v7_t d = {.type = ncclProfileProxyOp, .parentObj = op, .rank = rank};
    d.proxyOp.pid = getpid();
    d.proxyOp.peer = 1 - rank;
    d.proxyOp.nSteps = steps;
    d.proxyOp.chunkSize = 4096;
    d.proxyOp.isSend = send;
    void *proxy = start(ctx, d);
    for (int i = 0; i < steps; i++) {
      void *step = start(ctx, (ncclProfilerEventDescr_v7_t){
                                  .type = ncclProfileProxyStep, .parentObj = proxy, .rank = rank, .proxyStep = {i}});
      state(step, send ? ncclProfilerProxyStepSendGPUWait : ncclProfilerProxyStepRecvWait, 0);
      state(step, send ? ncclProfilerProxyStepSendWait : ncclProfilerProxyStepRecvFlushWait, 2048);
      ncclProfiler_v7.stopEvent(step);
    }
    ncclProfiler_v7.stopEvent(proxy);
  }
  ncclProfilerEventStateArgs_v7_t args = {.kernelCh = {.pTimer = ns + 5000}};
  ncclProfiler_v7.recordEventState(kernel, ncclProfilerKernelChStop, &args);
  ncclProfiler_v7.stopEvent(kernel);
}

static void *open_rank(int rank)
{
  void *ctx = NULL;
  int mask = 0;
  assert_int_equal(ncclProfiler_v7.init(&ctx, 0xabcd, &mask, "the \"name\"", 1, 2, rank, log_line), ncclSuccess);
  assert_true(mask & ncclProfileKernelCh);
  return ctx;
}

static int count(const json_t *events, const char *key, const char *value)
{
  int n = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const char *v = json_string_value(json_object_get(json_array_get(events, i), key));
    n += v != NULL && strcmp(v, value) == 0;
  }
  return n;
}

static json_t *load(int rank, const char *end)
{
  char path[4096];
  json_error_t error;
  file_of(rank, end, path, sizeof path);
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL) {
    fail_msg("%s:%d: %s", path, error.line, error.text);
  }
  return root;
}

static bool has_id(const json_t *events, const char *phase, const char *id)
{
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *e = json_array_get(events, i);
    const char *ph = json_string_value(json_object_get(e, "ph")), *have = json_string_value(json_object_get(e, "id"));
    if (have != NULL && strcmp(ph, phase) == 0 && strcmp(have, id) == 0) {
      return true;
    }
  }
  return false;
}

static int count_tags(const json_t *events)
{
  int n = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *tag = json_object_get(json_object_get(json_array_get(events, i), "args"), "tag");
    n += tag != NULL && strcmp(json_string_value(tag), "18446744073709551615") == 0;
  }
  return n;
}

static void time_lines_have_all_events_and_arrows_meet(void **state_)
{
  (void)state_;
  enum { OPS = 50, STEPS = 3 };
  void *ctx[2] = {open_rank(0), open_rank(1)};
  for (uint64_t i = 0; i < OPS; i++) {
    all_reduce(ctx[0], 0, i, STEPS);
    all_reduce(ctx[1], 1, i, STEPS);
  }
  ncclProfiler_v7.finalize(ctx[0]);
  ncclProfiler_v7.finalize(ctx[1]);
  json_t *root[2] = {load(0, ".json"), load(1, ".json")};
  const json_t *events[2];
  for (int r = 0; r < 2; r++) {
    events[r] = json_object_get(root[r], "traceEvents");
    assert_int_equal(count(events[r], "cat", "op"), OPS);
    assert_int_equal(count(events[r], "cat", "queue"), OPS);
    assert_int_equal(count(events[r], "cat", "channel"), OPS);
    assert_int_equal(count(events[r], "cat", "proxy"), OPS * 2);
    assert_int_equal(count(events[r], "cat", "message"), OPS * 2 * STEPS);
    assert_int_equal(count(events[r], "ph", "s"), OPS * STEPS);
    assert_int_equal(count(events[r], "ph", "f"), OPS * STEPS);
    assert_int_equal(count_tags(events[r]), 1); // of the call that had one
    const json_t *other = json_object_get(root[r], "otherData");
    assert_int_equal(json_integer_value(json_object_get(other, "written")), OPS * (5 + 2 * STEPS));
    assert_int_equal(json_integer_value(json_object_get(other, "finished")), 1);
  }
  for (int r = 0; r < 2; r++) { // each arrow that begins here ends there
    for (size_t i = 0; i < json_array_size(events[r]); i++) {
      const json_t *e = json_array_get(events[r], i);
      if (strcmp(json_string_value(json_object_get(e, "ph")), "s") == 0) {
        assert_true(has_id(events[1 - r], "f", json_string_value(json_object_get(e, "id"))));
      }
    }
  }
  json_decref(root[0]);
  json_decref(root[1]);
}

// The event of this name, which is there once.
static const json_t *only_event(const json_t *events, const char *name)
{
  const json_t *found = NULL;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *e = json_array_get(events, i);
    if (strcmp(json_string_value(json_object_get(e, "name")), name) == 0) {
      assert_null(found);
      found = e;
    }
  }
  assert_non_null(found);
  return found;
}

static uint64_t clock_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t let_pass(uint64_t ns)
{
  uint64_t begin = clock_now();
  while (clock_now() < begin + ns) {
  }
  return clock_now();
}

// Version 7's: variant and symmetry of an operation, the phases of its channel with times of their own.
static void variants_and_phases_are_shown(void **state_)
{
  (void)state_;
  static const char *const names[] = {"initial_sync", "compute", "final_sync"};
  void *ctx = open_rank(0);
  const uint64_t base = clock_now() / 1000 * 1000;
  ncclProfilerEventDescr_v7_t coll = {.type = ncclProfileColl, .coll = {.func = "AllGather", .nChannels = 1}};
  coll.coll.kernelVariant = "RING_SIMPLE";
  coll.coll.isSymColl = true;
  void *op = start(ctx, coll);
  ncclProfiler_v7.stopEvent(op);
  void *kernel =
      start(ctx, (ncclProfilerEventDescr_v7_t){.type = ncclProfileKernelCh, .parentObj = op, .kernelCh = {0, base}});
  for (int i = 0; i < 3; i++) {
    uint64_t began = base + 2000 * (uint64_t)i;
    ncclProfilerEventStateArgs_v7_t args = {.kernelCh = {.pTimer = began + 2000}};
    void *phase = start(ctx, (ncclProfilerEventDescr_v7_t){.type = ncclProfileKernelPhase,
                                                           .parentObj = kernel,
                                                           .kernelPhase = {0, (uint8_t)i, names[i], began}});
    ncclProfiler_v7.recordEventState(phase, ncclProfilerKernelPhaseStop, &args);
    ncclProfiler_v7.stopEvent(phase);
  }
  ncclProfilerEventStateArgs_v7_t args = {.kernelCh = {.pTimer = base + 6000}};
  ncclProfiler_v7.recordEventState(kernel, ncclProfilerKernelChStop, &args);
  ncclProfiler_v7.stopEvent(kernel);
  ncclProfiler_v7.finalize(ctx);
  json_t *root = load(0, ".json"), *events = json_object_get(root, "traceEvents");
  assert_int_equal(count(events, "cat", "phase"), 3);
  for (int i = 0; i < 3; i++) {
    const json_t *e = only_event(events, names[i]);
    assert_true(json_number_value(json_object_get(e, "ts")) == (double)(base / 1000) + 2 * i &&
                json_number_value(json_object_get(e, "dur")) == 2);
  }
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *e = json_array_get(events, i), *args_of = json_object_get(e, "args");
    const char *cat = json_string_value(json_object_get(e, "cat"));
    const char *variant = json_string_value(json_object_get(args_of, "variant"));
    bool is_op = cat != NULL && strcmp(cat, "op") == 0;
    assert_true(is_op == (variant != NULL && strcmp(variant, "RING_SIMPLE") == 0));
    assert_true(is_op == (json_integer_value(json_object_get(args_of, "symmetric")) == 1));
  }
  json_decref(root);
}

enum { GPU_OPS = 20, GPU_LASTS = 200000, GPU_WHILE = 50000 }; // ns: of a channel; until it is told of, at least

// An operation with a channel and a phase of it, whose times are of a clock that is so far ahead of the host's. Returns
// when it began, by the host's.
static uint64_t gpu_operation(void *ctx, uint64_t seq, int64_t ahead)
{
  ncclProfilerEventDescr_v7_t d = {.type = ncclProfileColl};
  d.coll.func = "AllReduce";
  d.coll.nChannels = 1;
  d.coll.seqNumber = seq;
  void *op = start(ctx, d);
  ncclProfiler_v7.stopEvent(op);
  const uint64_t began = clock_now(), gpu = began + (uint64_t)ahead;
  let_pass(GPU_WHILE + (seq % 3) * GPU_WHILE);
  void *kernel =
      start(ctx, (ncclProfilerEventDescr_v7_t){.type = ncclProfileKernelCh, .parentObj = op, .kernelCh = {0, gpu}});
  let_pass(GPU_LASTS);
  ncclProfilerEventStateArgs_v7_t args = {.kernelCh = {.pTimer = gpu + GPU_LASTS}};
  void *phase =
      start(ctx, (ncclProfilerEventDescr_v7_t){
                     .type = ncclProfileKernelPhase, .parentObj = kernel, .kernelPhase = {0, 1, "compute", gpu}});
  ncclProfiler_v7.recordEventState(phase, ncclProfilerKernelPhaseStop, &args);
  ncclProfiler_v7.stopEvent(phase);
  ncclProfiler_v7.recordEventState(kernel, ncclProfilerKernelChStop, &args);
  ncclProfiler_v7.stopEvent(kernel);
  return began;
}

// Each operation has an event of the kind that lasts as long as it did, between the two times.
static void assert_gpu_times(const json_t *events, const char *kind, const uint64_t *began, const uint64_t *told)
{
  int seen[GPU_OPS] = {0}, n = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *e = json_array_get(events, i);
    const char *cat = json_string_value(json_object_get(e, "cat"));
    if (cat != NULL && strcmp(cat, kind) == 0) {
      const double ts = json_number_value(json_object_get(e, "ts")), dur = json_number_value(json_object_get(e, "dur"));
      int op = GPU_OPS - 1;
      while (op > 0 && ts < (double)began[op] / 1e3 - 0.002) {
        op--;
      }
      assert_true(dur > GPU_LASTS / 1e3 - 0.002 && dur < GPU_LASTS / 1e3 + 0.002);
      assert_true(ts > (double)began[op] / 1e3 - 0.002 && ts + dur < (double)told[op] / 1e3 + 0.002);
      n += seen[op]++ == 0;
    }
  }
  assert_int_equal(n, GPU_OPS);
}

// As with ranks on GPUs: the channels' times are of another clock, and told a while later. In the time line they are
// the host's.
static void times_of_a_gpu_become_the_hosts(void **state_)
{
  (void)state_;
  const int64_t clocks[] = {INT64_C(1000000000000000000), INT64_C(-3600000000000)};
  uint64_t began[GPU_OPS], told[GPU_OPS];
  for (size_t k = 0; k < sizeof clocks / sizeof *clocks; k++) {
    void *ctx = open_rank(0);
    for (uint64_t i = 0; i < GPU_OPS; i++) {
      began[i] = gpu_operation(ctx, i, clocks[k]);
      told[i] = clock_now();
    }
    ncclProfiler_v7.finalize(ctx);
    json_t *root = load(0, ".json"), *events = json_object_get(root, "traceEvents");
    assert_gpu_times(events, "channel", began, told);
    assert_gpu_times(events, "phase", began, told);
    assert_gpu_times(events, "op", began, told);
    const json_int_t behind =
        json_integer_value(json_object_get(json_object_get(root, "otherData"), "channels_clock_behind_ns"));
    assert_true(behind >= -clocks[k] && behind < -clocks[k] + (json_int_t)(told[0] - began[0]));
    json_decref(root);
  }
}

// An NCCL of 2.28 to 2.30 takes version 6's table: nothing is read behind its descriptors, whose calls have no tag.
static void an_older_library_is_followed_too(void **state_)
{
  (void)state_;
  void *ctx = open_rank(0), *op, *kernel;
  ncclProfilerEventDescr_v6_t coll = {.type = ncclProfileColl, .coll = {.func = "AllGather", .nChannels = 1}};
  ncclProfiler_v6.startEvent(ctx, &op, &coll);
  ncclProfiler_v6.stopEvent(op);
  coll = (ncclProfilerEventDescr_v6_t){.type = ncclProfileKernelCh, .parentObj = op, .kernelCh = {0, 1000}};
  ncclProfiler_v6.startEvent(ctx, &kernel, &coll);
  ncclProfiler_v6.stopEvent(kernel);
  ncclProfiler_v6.finalize(ctx);
  json_t *root = load(0, ".json"), *events = json_object_get(root, "traceEvents");
  assert_true(count(events, "cat", "op") == 1 && count(events, "cat", "channel") == 1 && count_tags(events) == 0);
  json_decref(root);
}

// A million events and a small ring: what is lost is counted, the rest is whole.
static void nothing_is_lost_without_being_counted(void **state_)
{
  (void)state_;
  enum { OPS = 66667, EVENTS = OPS * 15 };
  void *ctx = open_rank(0);
  for (uint64_t i = 0; i < OPS; i++) {
    all_reduce(ctx, 0, i, 5);
  }
  ncclProfiler_v7.finalize(ctx);
  json_t *root = load(0, ".json");
  const json_t *other = json_object_get(root, "otherData"), *events = json_object_get(root, "traceEvents");
  json_int_t ops = count(events, "cat", "op");
  json_int_t written = json_integer_value(json_object_get(other, "written")) - ops;
  // A parent that is lost takes nothing with it: its children are told of without it.
  assert_int_equal(written + json_integer_value(json_object_get(other, "lost_ring_full")), EVENTS - OPS);
  assert_true(written > 0);
  json_decref(root);
}

// Far more operations are queued than there are places at first, before the first one runs; of the last one nothing
// more is heard.
static void many_operations_may_be_queued(void **state_)
{
  (void)state_;
  enum { QUEUED = 2000 };
  static void *ops[QUEUED];
  void *ctx = open_rank(0);
  for (uint64_t i = 0; i < QUEUED; i++) {
    ncclProfilerEventDescr_v7_t d = {.type = ncclProfileColl};
    d.coll.seqNumber = i;
    d.coll.func = "AllReduce";
    d.coll.nChannels = 1;
    ops[i] = start(ctx, d);
    assert_non_null(ops[i]);
    ncclProfiler_v7.stopEvent(ops[i]);
  }
  for (uint64_t i = 0; i < QUEUED - 1; i++) {
    void *kernel = start(ctx, (ncclProfilerEventDescr_v7_t){
                                  .type = ncclProfileKernelCh, .parentObj = ops[i], .kernelCh = {0, 1000 + 10 * i}});
    ncclProfilerEventStateArgs_v7_t args = {.kernelCh = {.pTimer = 1000 + 10 * i + 5}};
    ncclProfiler_v7.recordEventState(kernel, ncclProfilerKernelChStop, &args);
    ncclProfiler_v7.stopEvent(kernel);
  }
  ncclProfiler_v7.finalize(ctx);
  json_t *root = load(0, ".json");
  const json_t *other = json_object_get(root, "otherData");
  assert_int_equal(json_integer_value(json_object_get(other, "lost_ring_full")), 0);
  assert_int_equal(count(json_object_get(root, "traceEvents"), "cat", "op"), QUEUED - 1);
  assert_int_equal(json_integer_value(json_object_get(other, "lost_operations")), 1);
  json_decref(root);
}

// The proxy posts messages when an operation is queued, which says nothing of when it ran: that its first channel
// tells.
static void a_queued_operation_starts_with_its_first_channel(void **state_)
{
  (void)state_;
  enum { SOON = 1000 }; // nanoseconds from the proxy's end to the channel's start
  void *ctx = open_rank(0);
  ncclProfilerEventDescr_v7_t d = {.type = ncclProfileColl};
  d.coll.func = "AllReduce";
  d.coll.nChannels = 2;
  void *op = start(ctx, d);
  ncclProfiler_v7.stopEvent(op);
  d = (ncclProfilerEventDescr_v7_t){
      .type = ncclProfileProxyOp, .parentObj = op, .proxyOp = {.pid = getpid(), .peer = 1, .nSteps = 1}};
  ncclProfiler_v7.stopEvent(start(ctx, d));
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + SOON;
  for (uint8_t i = 0; i < 2; i++) {
    d = (ncclProfilerEventDescr_v7_t){.type = ncclProfileKernelCh, .parentObj = op, .kernelCh = {i, ns + 100 * i}};
    void *kernel = start(ctx, d);
    ncclProfilerEventStateArgs_v7_t args = {.kernelCh = {.pTimer = ns + 5000}};
    ncclProfiler_v7.recordEventState(kernel, ncclProfilerKernelChStop, &args);
    ncclProfiler_v7.stopEvent(kernel);
  }
  ncclProfiler_v7.finalize(ctx);
  json_t *root = load(0, ".json");
  const json_t *events = json_object_get(root, "traceEvents");
  double dur = -1;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *e = json_array_get(events, i);
    const char *cat = json_string_value(json_object_get(e, "cat"));
    dur = cat != NULL && strcmp(cat, "op") == 0 ? json_number_value(json_object_get(e, "dur")) : dur;
  }
  assert_true(dur > 4.999 && dur < 5.001);
  json_decref(root);
}

// Messages of one channel come over two connections. They were posted long before the operation started: neither that
// time nor what both waited in excess of the operation's own time is waiting.
static void nothing_is_waited_for_before_or_beyond_the_operation(void **state_)
{
  (void)state_;
  enum { WHILE = 2000000 }; // ns
  void *ctx = open_rank(0), *proxies[2], *steps[2];
  ncclProfilerEventDescr_v7_t d = {.type = ncclProfileColl};
  d.coll.func = "AllReduce";
  d.coll.nChannels = 1;
  void *op = start(ctx, d);
  ncclProfiler_v7.stopEvent(op);
  for (uint8_t i = 0; i < 2; i++) {
    d = (ncclProfilerEventDescr_v7_t){
        .type = ncclProfileProxyOp, .parentObj = op, .proxyOp = {.pid = getpid(), .peer = 1, .nSteps = 1}};
    d.proxyOp.channelId = i;
    proxies[i] = start(ctx, d);
    steps[i] = start(
        ctx, (ncclProfilerEventDescr_v7_t){.type = ncclProfileProxyStep, .parentObj = proxies[i], .proxyStep = {0}});
    state(steps[i], ncclProfilerProxyStepRecvWait, 0);
  }
  uint64_t began = let_pass(WHILE);
  void *kernel =
      start(ctx, (ncclProfilerEventDescr_v7_t){.type = ncclProfileKernelCh, .parentObj = op, .kernelCh = {0, began}});
  let_pass(WHILE);
  for (int i = 0; i < 2; i++) {
    state(steps[i], ncclProfilerProxyStepRecvFlushWait, 1000);
    ncclProfiler_v7.stopEvent(steps[i]);
    ncclProfiler_v7.stopEvent(proxies[i]);
  }
  uint64_t ended = clock_now();
  ncclProfilerEventStateArgs_v7_t args = {.kernelCh = {.pTimer = ended}};
  ncclProfiler_v7.recordEventState(kernel, ncclProfilerKernelChStop, &args);
  ncclProfiler_v7.stopEvent(kernel);
  ncclProfiler_v7.finalize(ctx);
  char path[4096], line[256];
  double waited = -1;
  file_of(0, ".txt", path, sizeof path);
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  while (fgets(line, sizeof line, f) != NULL) {
    double ms;
    waited = sscanf(line, "waited for messages of rank 1: %lf ms", &ms) == 1 ? ms : waited;
  }
  fclose(f);
  if (waited < WHILE / 1e6 || waited > (double)(ended - began) / 1e6 + 0.001) {
    fail_msg("waited %.3f ms in an operation of %.3f ms", waited, (double)(ended - began) / 1e6);
  }
}

// There is room for some peers: those that come last are counted.
static void the_late_ones_are_counted(void **state_)
{
  (void)state_;
  enum { PEERS = TT_TRACE_PEERS + 1, WHILE = 2000000 };
  void *ctx = NULL, *proxies[PEERS], *steps[PEERS];
  int mask = 0;
  assert_int_equal(ncclProfiler_v7.init(&ctx, 0xabcd, &mask, "", 1, PEERS + 1, 0, log_line), ncclSuccess);
  ncclProfilerEventDescr_v7_t d = {.type = ncclProfileColl};
  d.coll.func = "AllReduce";
  d.coll.nChannels = 1;
  void *op = start(ctx, d);
  ncclProfiler_v7.stopEvent(op);
  void *kernel = start(
      ctx, (ncclProfilerEventDescr_v7_t){.type = ncclProfileKernelCh, .parentObj = op, .kernelCh = {0, clock_now()}});
  for (int i = 0; i < PEERS; i++) {
    d = (ncclProfilerEventDescr_v7_t){
        .type = ncclProfileProxyOp, .parentObj = op, .proxyOp = {.pid = getpid(), .peer = i + 1, .nSteps = 1}};
    d.proxyOp.channelId = (uint8_t)i;
    proxies[i] = start(ctx, d);
    steps[i] = start(
        ctx, (ncclProfilerEventDescr_v7_t){.type = ncclProfileProxyStep, .parentObj = proxies[i], .proxyStep = {0}});
    state(steps[i], ncclProfilerProxyStepRecvWait, 0);
  }
  for (int i = 0; i < PEERS; i++) {
    let_pass(i == PEERS - 1 ? WHILE : 1000);
    state(steps[i], ncclProfilerProxyStepRecvFlushWait, 1000);
    ncclProfiler_v7.stopEvent(steps[i]);
    ncclProfiler_v7.stopEvent(proxies[i]);
  }
  ncclProfilerEventStateArgs_v7_t args = {.kernelCh = {.pTimer = clock_now()}};
  ncclProfiler_v7.recordEventState(kernel, ncclProfilerKernelChStop, &args);
  ncclProfiler_v7.stopEvent(kernel);
  ncclProfiler_v7.finalize(ctx);
  char path[4096], line[256];
  int most = -1;
  file_of(0, ".txt", path, sizeof path);
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  while (most < 0 && fgets(line, sizeof line, f) != NULL) {
    (void)sscanf(line, "waited for messages of rank %d:", &most);
  }
  fclose(f);
  assert_int_equal(most, PEERS);
}

static void handles_of_others_do_no_harm(void **state_)
{
  (void)state_;
  const uint64_t strange[] = {0, 1, UINT64_MAX, UINT64_C(1) << 52, (UINT64_C(1) << 52) + 12345678};
  void *ctx = open_rank(0);
  for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
    void *h = (void *)(uintptr_t)strange[i];
    assert_int_equal(ncclProfiler_v7.stopEvent(h), ncclSuccess);
    state(h, ncclProfilerProxyStepSendWait, 1);
    void *step = start(ctx, (ncclProfilerEventDescr_v7_t){.type = ncclProfileProxyStep, .parentObj = h});
    ncclProfiler_v7.stopEvent(step);
    ncclProfiler_v7.stopEvent(step);
  }
  ncclProfiler_v7.finalize(ctx);
  json_decref(load(0, ".json"));
}

// They have lines of their own, by peer; what is about no message stands with the calls.
static void what_networks_tell_stands_with_its_peer(void **state_)
{
  (void)state_;
  ncclProfilerNetSockDescr_v1_t data = {.type = ncclProfileSocket, .sock = {.length = 777}};
  ncclProfilerEventDescr_v7_t d = {.type = ncclProfileProxyOp,
                                   .proxyOp = {.pid = getpid(), .peer = 1, .nSteps = 1, .isSend = 1}};
  void *ctx = open_rank(0), *op = start(ctx, d);
  void *step = start(ctx, (ncclProfilerEventDescr_v7_t){.type = ncclProfileProxyStep, .parentObj = op});
  d = (ncclProfilerEventDescr_v7_t){.type = ncclProfileNetPlugin, .parentObj = step};
  d.netPlugin.id = NCCL_PROFILER_NET_TYPE_SOCK | NCCL_PROFILER_NET_SOCKET_VER;
  d.netPlugin.data = &data;
  void *net = start(ctx, d);
  ncclProfiler_v7.stopEvent(step);
  ncclProfiler_v7.stopEvent(op);
  ncclProfiler_v7.stopEvent(net);
  d.parentObj = NULL;
  d.netPlugin.id = 1 << 20; // of a kind that nobody knows
  ncclProfiler_v7.stopEvent(start(ctx, d));
  ncclProfiler_v7.finalize(ctx);
  json_t *root = load(0, ".json");
  const json_t *events = json_object_get(root, "traceEvents");
  assert_int_equal(count(events, "name", "NetPlugin"), 2);
  int lines = 0, sizes = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *args = json_object_get(json_array_get(events, i), "args");
    const char *name = json_string_value(json_object_get(args, "name"));
    lines += name != NULL && strcmp(name, "network: to rank 1, channel 0") == 0;
    sizes += json_integer_value(json_object_get(args, "bytes")) == 777;
  }
  assert_int_equal(lines, 1);
  assert_int_equal(sizes, 1);
  json_decref(root);
}

static void an_operation_may_have_very_many_messages(void **state_)
{
  (void)state_;
  ncclProfilerEventDescr_v7_t d = {.type = ncclProfileProxyOp,
                                   .proxyOp = {.pid = getpid(), .peer = 1, .nSteps = 70000, .isSend = 1}};
  void *ctx = open_rank(0);
  ncclProfiler_v7.stopEvent(start(ctx, d));
  ncclProfiler_v7.finalize(ctx);
  json_t *root = load(0, ".json");
  const json_t *events = json_object_get(root, "traceEvents");
  json_int_t steps = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    steps += json_integer_value(json_object_get(json_object_get(json_array_get(events, i), "args"), "steps"));
  }
  assert_int_equal(steps, 70000);
  json_decref(root);
}

// What stands in the folder under the names of the files: other people's links and second names are not touched, and
// the job goes on.
static void strange_files_are_left_alone(void **state_)
{
  (void)state_;
  static const char *const ends[] = {".json", ".txt"};
  char victim[4096], path[4096], text[16] = "";
  snprintf(victim, sizeof victim, "%s/victim", folder);
  FILE *f = fopen(victim, "w");
  assert_non_null(f);
  fputs("precious", f);
  fclose(f);
  for (int i = 0; i < 2; i++) {
    file_of(0, ends[i], path, sizeof path);
    unlink(path);
    assert_int_equal(link(victim, path), 0);
    file_of(1, ends[i], path, sizeof path);
    unlink(path);
    assert_int_equal(geteuid() == 0 ? symlink("victim", path) : link(victim, path), 0);
    assert_int_equal(geteuid() == 0 ? lchown(path, 12345, 12345) : 0, 0);
  }
  said[0] = '\0';
  for (int r = 0; r < 2; r++) {
    void *ctx = open_rank(r);
    all_reduce(ctx, r, 0, 5);
    ncclProfiler_v7.finalize(ctx);
  }
  assert_non_null(strstr(said, "names (hard links)"));
  assert_true(geteuid() != 0 || strstr(said, "the link belongs to user 12345") != NULL);
  f = fopen(victim, "r");
  assert_non_null(f);
  assert_non_null(fgets(text, sizeof text, f));
  fclose(f);
  assert_string_equal(text, "precious");
  unlink(victim);
}

static int make_folder(void **state_)
{
  (void)state_;
  setenv("TUTTI_TRACE_MASK", "0x8fde", 1); // all that it takes without, NetPlugin and KernelPhase
  setenv("TUTTI_TRACE_EVENTS", "4096", 1);
  setenv("TUTTI_TRACE_WAIT", "120", 1); // however busy the machine or its disk
  return mkdtemp(folder) == NULL || setenv("TUTTI_TRACE_DIR", folder, 1) != 0;
}

static int remove_folder(void **state_)
{
  (void)state_;
  char path[4096];
  const char *const ends[] = {".json", ".txt"};
  for (int i = 0; i < 4; i++) {
    file_of(i / 2, ends[i % 2], path, sizeof path);
    unlink(path);
  }
  return rmdir(folder);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(histogram_is_true_to_two_percent),
      cmocka_unit_test(table_has_mean_and_quantiles),
      cmocka_unit_test(times_of_a_gpu_become_the_hosts),
      cmocka_unit_test(an_older_library_is_followed_too),
      cmocka_unit_test(time_lines_have_all_events_and_arrows_meet),
      cmocka_unit_test(variants_and_phases_are_shown),
      cmocka_unit_test(many_operations_may_be_queued),
      cmocka_unit_test(a_queued_operation_starts_with_its_first_channel),
      cmocka_unit_test(nothing_is_waited_for_before_or_beyond_the_operation),
      cmocka_unit_test(the_late_ones_are_counted),
      cmocka_unit_test(handles_of_others_do_no_harm),
      cmocka_unit_test(nothing_is_lost_without_being_counted),
      cmocka_unit_test(what_networks_tell_stands_with_its_peer),
      cmocka_unit_test(an_operation_may_have_very_many_messages),
      cmocka_unit_test(strange_files_are_left_alone),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
