// The profiler of -U, told of operations by hand.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/profiler.h"
#include "tuning.h"

extern const ncclProfiler_v7_t ncclProfiler_v7;

static int mask = -1;

static void *tell(uint64_t type, void *parent, ncclProfilerEventDescr_v7_t d)
{
  void *handle = &mask; // must be overwritten
  d.type = type;
  d.parentObj = parent;
  assert_int_equal(ncclProfiler_v7.startEvent(NULL, &handle, &d), ncclSuccess);
  return handle;
}

static const ncclProfilerEventDescr_v7_t ring = {
    .coll = {.algo = "RING", .proto = "LL", .kernelVariant = "RING_LL", .nChannels = 3, .nWarps = 1}};

static ncclProfilerEventDescr_v7_t messages(int chunk, pid_t pid)
{
  return (ncclProfilerEventDescr_v7_t){.proxyOp = {.pid = pid, .chunkSize = chunk}};
}

static void *tell_from_another_thread(void *arg)
{
  (void)arg;
  assert_null(tell(ncclProfileColl, NULL, (ncclProfilerEventDescr_v7_t){.coll = {.algo = "TREE"}}));
  return NULL;
}

// The first test: nobody has called init yet, as where the library uses no profiler.
static void test_without_library(void **state)
{
  (void)state;
  perf_tuning t;
  perf_tuning_begin();
  perf_tuning_end(&t);
  assert_string_equal(t.implementation, "");
  assert_true(t.channels == 0 && t.chunk == 0);
}

static void test_mask(void **state)
{
  (void)state;
  perf_tuning t;
  void *context = &t;
  int second = 77;
  assert_int_equal(ncclProfiler_v7.init(&context, 1, &mask, NULL, 1, 2, 0, NULL), ncclSuccess);
  assert_null(context);
  assert_int_equal(mask, 0);
  perf_tuning_begin();
  assert_int_equal(mask, ncclProfileColl | ncclProfileP2p | ncclProfileProxyOp);
  // A communicator that comes later changes nothing.
  assert_int_equal(ncclProfiler_v7.init(&context, 2, &second, NULL, 1, 2, 0, NULL), ncclSuccess);
  assert_int_equal(mask, ncclProfileColl | ncclProfileP2p | ncclProfileProxyOp);
  perf_tuning_end(&t);
  assert_int_equal(mask, 0);
  assert_int_equal(second, 77);
}

static void test_collective(void **state)
{
  (void)state;
  perf_tuning t;
  pthread_t other;
  assert_null(tell(ncclProfileColl, NULL, ring)); // before begin
  perf_tuning_begin();
  assert_int_equal(pthread_create(&other, NULL, tell_from_another_thread, NULL), 0);
  pthread_join(other, NULL);
  void *op = tell(ncclProfileColl, NULL, ring);
  assert_non_null(op);
  assert_null(tell(ncclProfileColl, NULL, (ncclProfilerEventDescr_v7_t){.coll = {.algo = "TREE"}})); // the second rank
  assert_null(tell(ncclProfileProxyOp, op, messages(512, getpid())));
  tell(ncclProfileProxyOp, op, messages(4096, getpid()));
  tell(ncclProfileProxyOp, op, messages(1 << 20, getpid() + 1)); // of another process, by chance the same number
  tell(ncclProfileProxyOp, NULL, messages(1 << 20, getpid()));
  assert_int_equal(ncclProfiler_v7.stopEvent(op), ncclSuccess);
  perf_tuning_end(&t);
  assert_string_equal(t.implementation, "collective");
  assert_string_equal(t.algo, "RING");
  assert_string_equal(t.proto, "LL");
  assert_string_equal(t.variant, "RING_LL");
  assert_true(t.channels == 3 && t.warps == 1 && t.chunk == 4096);
  perf_tuning_begin(); // nothing is left of the one before
  perf_tuning_end(&t);
  assert_true(t.algo[0] == '\0' && t.chunk == 0);
}

static void test_kinds(void **state)
{
  (void)state;
  perf_tuning t;
  perf_tuning_begin();
  tell(ncclProfileP2p, NULL, (ncclProfilerEventDescr_v7_t){.p2p = {.func = "Send", .nChannels = 1}});
  perf_tuning_end(&t);
  assert_string_equal(t.implementation, "p2p");
  assert_true(t.algo[0] == '\0' && t.channels == 1 && t.warps == 0);
  perf_tuning_begin();
  tell(ncclProfileColl, NULL,
       (ncclProfilerEventDescr_v7_t){.coll = {.algo = "an algorithm with a name that is too long", .isSymColl = true}});
  perf_tuning_end(&t);
  assert_string_equal(t.implementation, "symmetric");
  assert_int_equal(strlen(t.algo), sizeof(t.algo) - 1);
}

static void assert_prepared(const char *before, const char *after, const char *messages_after)
{
  unsetenv("NCCL_HOST_PROXY_EVENTS");
  before ? setenv("NCCL_PROFILER_PLUGIN", before, 1) : unsetenv("NCCL_PROFILER_PLUGIN");
  assert_true(perf_tuning_prepare());
  assert_string_equal(getenv("NCCL_PROFILER_PLUGIN"), after);
  const char *events = getenv("NCCL_HOST_PROXY_EVENTS");
  assert_string_equal(events ? events : "", messages_after);
}

static void test_variables(void **state)
{
  (void)state;
  assert_prepared(NULL, "STATIC_PLUGIN", "1");
  assert_prepared("", "STATIC_PLUGIN", "1");
  assert_prepared("NONE", "STATIC_PLUGIN", "1");
  assert_prepared("trace,/x/liby.so", "trace,/x/liby.so,STATIC_PLUGIN", "");
  setenv("NCCL_HOST_PROXY_EVENTS", "0", 1);
  unsetenv("NCCL_PROFILER_PLUGIN");
  assert_true(perf_tuning_prepare());
  assert_string_equal(getenv("NCCL_HOST_PROXY_EVENTS"), "0"); // the user's word
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_without_library), cmocka_unit_test(test_mask),      cmocka_unit_test(test_collective),
      cmocka_unit_test(test_kinds),           cmocka_unit_test(test_variables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
