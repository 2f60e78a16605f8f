// value_test.c: words that streams write and wait for: order, conditions, which thread notices a store, what it costs,
// captures, reset, fork.
#define _GNU_SOURCE
#include "device/host/work_rig.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "base/result.h"
#include "device/host/value.h"

static cudaStream_t stream(void)
{
  cudaStream_t s = NULL;
  assert_int_equal(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING), ncclSuccess);
  return s;
}

static void ended(cudaStream_t s)
{
  assert_int_equal(tuttiStreamSynchronize(s), ncclSuccess);
  assert_int_equal(tuttiStreamDestroy(s), ncclSuccess);
}

static void store(uint32_t *at, uint32_t value)
{
  atomic_store_explicit((_Atomic uint32_t *)at, value, memory_order_release);
}

// Waits with a limit end in time while the stream is held up, and change nothing for the wait that follows.
static void test_limited_waits(void **state)
{
  (void)state;
  cudaStream_t s = stream();
  tuttiEvent_t e;
  uint32_t word = 0;
  assert_int_equal(tuttiStreamSynchronizeFor(s, 0), ncclSuccess);
  assert_int_equal(tuttiEventCreate(&e), ncclSuccess);
  assert_int_equal(tuttiStreamWaitValue32(s, &word, 1, tuttiValueEqual), ncclSuccess);
  assert_int_equal(tuttiEventRecord(e, s), ncclSuccess);
  uint64_t start = tt_now_ns();
  assert_int_equal(tuttiStreamSynchronizeFor(s, 0), ncclInProgress);
  assert_int_equal(tuttiStreamSynchronizeFor(s, 20), ncclInProgress);
  assert_int_equal(tuttiEventSynchronizeFor(e, 20), ncclInProgress);
  assert_in_range(tt_now_ns() - start, 40 * UINT64_C(1000000), 5000 * UINT64_C(1000000));
  store(&word, 1);
  assert_int_equal(tuttiEventSynchronizeFor(e, 60000), ncclSuccess);
  assert_int_equal(tuttiStreamSynchronizeFor(s, 60000), ncclSuccess);
  assert_int_equal(tuttiEventSynchronizeFor(NULL, 1), ncclInvalidArgument);
  assert_int_equal(tuttiEventDestroy(e), ncclSuccess);
  ended(s);
}

static void *synchronize(void *s)
{
  assert_int_equal(tuttiStreamSynchronize(s), ncclSuccess);
  return NULL;
}

// A write of one stream lets another one go on, in order of the streams, whether the caller waits or asks.
static void test_write_releases_wait(void **state)
{
  (void)state;
  cudaStream_t a = stream(), b = stream();
  uint32_t word = 0, after = 0, seen = 9;
  uint64_t wide = 0;
  for (uint32_t i = 1; i <= 100; i++) {
    assert_int_equal(tuttiStreamWaitValue32(b, &word, i, tuttiValueEqual), ncclSuccess);
    assert_int_equal(tuttiMemcpyAsync(&seen, &after, sizeof seen, b), ncclSuccess);
    assert_int_equal(tuttiStreamQuery(b), ncclInProgress);
    assert_int_equal(tuttiStreamWriteValue32(a, &after, i), ncclSuccess);
    assert_int_equal(tuttiStreamWriteValue32(a, &word, i), ncclSuccess);
    if (i % 2 == 0) {
      assert_int_equal(tuttiStreamSynchronize(b), ncclSuccess);
    }
    while (tuttiStreamQuery(b) == ncclInProgress) {
    }
    assert_int_equal(seen, i);
  }
  assert_int_equal(tuttiStreamWaitValue64(b, &wide, 1ull << 40, tuttiValueAtLeast), ncclSuccess);
  assert_int_equal(tuttiStreamQuery(b), ncclInProgress);
  assert_int_equal(tuttiStreamWriteValue64(a, &wide, 1ull << 40), ncclSuccess);
  ended(b);
  ended(a);
}

typedef struct condition_case {
  uint64_t word, value;
  tuttiValueCondition_t condition;
  bool narrow, wide; // does it hold for the lower halves, and for all bits?
} condition_case;

static void test_conditions(void **state)
{
  static const condition_case cases[] = {
      {5, 5, tuttiValueAtLeast, true, true},
      {4, 5, tuttiValueAtLeast, false, false},
      {2, 0xfffffffffffffff0, tuttiValueAtLeast, true, true}, // counts on past the end
      {0x80000000, 0, tuttiValueAtLeast, false, true},
      {1ull << 32, 0, tuttiValueEqual, true, false},
      {6, 2, tuttiValueAnd, true, true},
      {4, 2, tuttiValueAnd, false, false},
      {1ull << 40, 1ull << 40, tuttiValueAnd, false, true},
      {0xfffffff0, 0xf, tuttiValueNor, false, true},
      {0xfffffffffffffff0, 0xf, tuttiValueNor, false, false},
      {0, 0x7fffffffffffffff, tuttiValueNor, false, true},
      {0x7fffffff, 0, tuttiValueNor, true, true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const condition_case *c = &cases[i];
    uint64_t wide = c->word;
    uint32_t narrow = (uint32_t)c->word;
    cudaStream_t s = stream(), t = stream();
    assert_int_equal(tuttiStreamWaitValue32(s, &narrow, (uint32_t)c->value, c->condition), ncclSuccess);
    assert_int_equal(tuttiStreamWaitValue64(t, &wide, c->value, c->condition), ncclSuccess);
    assert_int_equal(tuttiStreamQuery(s), c->narrow ? ncclSuccess : ncclInProgress);
    assert_int_equal(tuttiStreamQuery(t), c->wide ? ncclSuccess : ncclInProgress);
    tuttiDeviceAbandonValues(0);
    tuttiDeviceSynchronize();
    tuttiStreamDestroy(s);
    tuttiStreamDestroy(t);
  }
}

// Everybody of the process is asleep when the store is made, by a plain store of another process too: somebody notices
// it all the same.
static void test_sleepers_notice_a_store(void **state)
{
  (void)state;
  pthread_t t;
  uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(word != MAP_FAILED);
  for (uint32_t i = 1; i <= 4; i++) {
    cudaStream_t s = stream();
    assert_int_equal(tuttiStreamWaitValue32(s, word, i, tuttiValueAtLeast), ncclSuccess);
    assert_int_equal(pthread_create(&t, NULL, synchronize, s), 0);
    assert_true(dummy_waited_for((tt_stream *)s));
    assert_true(dummy_sleeper(&tt_process_bell, DUMMY_LONG_S));
    if (i % 2 == 0) {
      pid_t child = fork();
      if (child == 0) {
        store(word, i);
        _exit(0);
      }
      assert_int_equal(waitpid(child, NULL, 0), child);
    } else {
      store(word, i);
    }
    pthread_join(t, NULL);
    assert_int_equal(tuttiStreamDestroy(s), ncclSuccess);
  }
  munmap(word, 4096);
}

// Nobody waits for the stream: its work is done all the same.
static void test_nobody_waits(void **state)
{
  (void)state;
  _Atomic int done = 0;
  uint32_t word = 0;
  cudaStream_t s = stream();
  assert_int_equal(tuttiStreamWaitValue32(s, &word, 1, tuttiValueEqual), ncclSuccess);
  assert_int_equal(tuttiStreamWriteValue32(s, (uint32_t *)&done, 7), ncclSuccess);
  assert_int_equal(tuttiStreamDestroy(s), ncclSuccess); // as CUDA has it: queued work still runs
  assert_int_equal(atomic_load(&done), 0);
  store(&word, 1);
  assert_true(dummy_becomes(&done, 7, DUMMY_LONG_S));
}

// Threads that wait for values sleep.
static void test_waiting_is_idle(void **state)
{
  enum { N = 8 };
  (void)state;
  pthread_t t[N];
  cudaStream_t s[N];
  uint32_t word = 0;
  for (int i = 0; i < N; i++) {
    s[i] = stream();
    assert_int_equal(tuttiStreamWaitValue32(s[i], &word, 1, tuttiValueEqual), ncclSuccess);
    assert_int_equal(pthread_create(&t[i], NULL, synchronize, s[i]), 0);
  }
  for (int i = 0; i < N; i++) {
    assert_true(dummy_waited_for((tt_stream *)s[i]));
  }
  assert_true(dummy_sleepers(&tt_process_bell, N, DUMMY_LONG_S));
  uint64_t begin = tt_now_ns();
  double before = dummy_cpu_ms(RUSAGE_SELF);
  tt_sleep_ns(200000000); // what is measured is how little is done in this time
  double passed = (double)(tt_now_ns() - begin) / 1e6, used = dummy_cpu_ms(RUSAGE_SELF) - before;
  assert_true(used < passed / 4);
  store(&word, 1);
  for (int i = 0; i < N; i++) {
    pthread_join(t[i], NULL);
    assert_int_equal(tuttiStreamDestroy(s[i]), ncclSuccess);
  }
}

static void test_wrong_arguments(void **state)
{
  (void)state;
  uint32_t words[2] = {0};
  uint64_t wide = 0;
  cudaStream_t s = stream();
  assert_int_equal(tuttiStreamWriteValue32(s, NULL, 1), ncclInvalidArgument);
  assert_int_equal(tuttiStreamWriteValue32(s, (uint32_t *)((uintptr_t)words + 2), 1), ncclInvalidArgument);
  assert_int_equal(tuttiStreamWriteValue64(s, (uint64_t *)((uintptr_t)&wide + 4), 1), ncclInvalidArgument);
  assert_int_equal(tuttiStreamWaitValue32(s, NULL, 1, tuttiValueEqual), ncclInvalidArgument);
  assert_int_equal(tuttiStreamWaitValue32(s, words, 1, (tuttiValueCondition_t)4), ncclInvalidArgument);
  assert_int_equal(tuttiStreamWaitValue32((cudaStream_t)words, words, 1, tuttiValueEqual), ncclInvalidArgument);
  assert_int_equal(tuttiStreamWriteValue32((cudaStream_t)words, words, 1), ncclInvalidArgument);
  assert_int_equal(words[0], 0);
  ended(s);
}

// In a graph each launch waits and writes anew.
static void test_graph(void **state)
{
  (void)state;
  uint32_t word = 0, answer = 0;
  cudaStream_t s = stream();
  tuttiGraph_t g = NULL;
  tuttiGraphExec_t x = NULL;
  const tuttiNode_t *nodes;
  tuttiNodeKind_t kind;
  size_t n;
  assert_int_equal(tuttiStreamBeginCapture(s, tuttiCaptureRelaxed), ncclSuccess);
  assert_int_equal(tuttiStreamWaitValue32(s, &word, 1, tuttiValueEqual), ncclSuccess);
  assert_int_equal(tuttiStreamWriteValue32(s, &word, 2), ncclSuccess);
  assert_int_equal(tuttiStreamWriteValue32(s, &answer, 3), ncclSuccess);
  assert_int_equal(tuttiStreamEndCapture(s, &g), ncclSuccess);
  assert_int_equal(tuttiGraphGetNodes(g, &nodes, &n), ncclSuccess);
  assert_int_equal(n, 3);
  assert_int_equal(tuttiNodeGetKind(nodes[0], &kind), ncclSuccess);
  assert_int_equal(kind, tuttiNodeValue);
  assert_int_equal(tuttiGraphInstantiate(&x, g), ncclSuccess);
  tuttiGraphDestroy(g);
  for (int i = 0; i < 3; i++) {
    answer = 0;
    assert_int_equal(tuttiGraphLaunch(x, s), ncclSuccess);
    assert_int_equal(tuttiStreamQuery(s), ncclInProgress);
    store(&word, 1);
    assert_int_equal(tuttiStreamSynchronize(s), ncclSuccess);
    assert_int_equal(answer, 3);
    assert_int_equal(word, 2);
  }
  tuttiGraphExecDestroy(x);
  ended(s);
}

// A reset ends the device's waits, those in the queue too, and no other device's.
static void test_abandon(void **state)
{
  (void)state;
  uint32_t word = 0;
  cudaStream_t s = stream(), other;
  assert_int_equal(tuttiSetDevice(1), ncclSuccess);
  other = stream();
  assert_int_equal(tuttiSetDevice(0), ncclSuccess);
  assert_int_equal(tuttiStreamWaitValue32(s, &word, 1, tuttiValueEqual), ncclSuccess);
  assert_int_equal(tuttiStreamWaitValue32(s, &word, 2, tuttiValueEqual), ncclSuccess);
  assert_int_equal(tuttiStreamWaitValue32(other, &word, 3, tuttiValueEqual), ncclSuccess);
  assert_int_equal(tuttiDeviceAbandonValues(0), ncclSuccess);
  assert_int_equal(tuttiStreamSynchronize(s), ncclInvalidUsage);
  assert_int_equal(tuttiStreamSynchronize(s), ncclSuccess);
  assert_int_equal(tuttiStreamQuery(other), ncclInProgress);
  assert_int_equal(tuttiStreamWriteValue32(s, &word, 3), ncclSuccess); // later work is not concerned
  ended(other);
  ended(s);
}

// A graph's wait belongs to the device of the stream that it is launched on.
static void test_abandon_launched(void **state)
{
  (void)state;
  uint32_t word = 0;
  cudaStream_t s = stream(), other;
  tuttiGraph_t g = NULL;
  tuttiGraphExec_t x = NULL;
  assert_int_equal(tuttiSetDevice(1), ncclSuccess);
  other = stream();
  assert_int_equal(tuttiSetDevice(0), ncclSuccess);
  assert_int_equal(tuttiStreamBeginCapture(s, tuttiCaptureRelaxed), ncclSuccess);
  assert_int_equal(tuttiStreamWaitValue32(s, &word, 1, tuttiValueEqual), ncclSuccess);
  assert_int_equal(tuttiStreamEndCapture(s, &g), ncclSuccess);
  assert_int_equal(tuttiGraphInstantiate(&x, g), ncclSuccess);
  tuttiGraphDestroy(g);
  assert_int_equal(tuttiGraphLaunch(x, other), ncclSuccess);
  assert_int_equal(tuttiDeviceAbandonValues(0), ncclSuccess);
  assert_int_equal(tuttiStreamQuery(other), ncclInProgress);
  assert_int_equal(tuttiDeviceAbandonValues(1), ncclSuccess);
  assert_int_equal(tuttiStreamSynchronize(other), ncclInvalidUsage);
  tuttiGraphExecDestroy(x);
  ended(other);
  ended(s);
}

// Once the stream says that it is idle, nobody looks at the word any more: here it is unmapped.
static void test_word_goes_away(void **state)
{
  (void)state;
  for (int i = 0; i < 1000; i++) {
    pthread_t t;
    cudaStream_t s = stream();
    uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(word != MAP_FAILED);
    assert_int_equal(tuttiStreamWaitValue32(s, word, 1, tuttiValueEqual), ncclSuccess);
    assert_int_equal(tuttiStreamQuery(s), ncclInProgress); // the watcher looks from now on
    assert_int_equal(pthread_create(&t, NULL, synchronize, s), 0);
    store(word, 1);
    while (tuttiStreamQuery(s) == ncclInProgress) {
      ;
    }
    munmap(word, 4096);
    pthread_join(t, NULL);
    ended(s);
  }
}

// ThreadSanitizer ends a child that makes threads, unless told otherwise.
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
  return "die_after_fork=0";
}

// A child has none of the parent's waits, and a watcher of its own.
static void test_fork(void **state)
{
  (void)state;
  uint32_t word = 0;
  cudaStream_t s = stream();
  assert_int_equal(tuttiStreamWaitValue32(s, &word, 1, tuttiValueEqual), ncclSuccess);
  assert_int_equal(tuttiStreamQuery(s), ncclInProgress);
  pid_t child = fork();
  if (child == 0) {
    pthread_t t;
    cudaStream_t mine = NULL;
    alarm(DUMMY_LONG_S);
    bool good = tuttiStreamCreate(&mine, 0) == ncclSuccess &&
                tuttiStreamWaitValue32(mine, &word, 2, tuttiValueEqual) == ncclSuccess &&
                pthread_create(&t, NULL, synchronize, mine) == 0 && dummy_waited_for((tt_stream *)mine) &&
                dummy_sleeper(&tt_process_bell, DUMMY_LONG_S);
    store(&word, 2);
    _exit(good && pthread_join(t, NULL) == 0 ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  store(&word, 1);
  ended(s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_write_releases_wait),
      cmocka_unit_test(test_conditions),
      cmocka_unit_test(test_limited_waits),
      cmocka_unit_test(test_sleepers_notice_a_store),
      cmocka_unit_test(test_nobody_waits),
      cmocka_unit_test(test_waiting_is_idle),
      cmocka_unit_test(test_wrong_arguments),
      cmocka_unit_test(test_graph),
      cmocka_unit_test(test_abandon),
      cmocka_unit_test(test_abandon_launched),
      cmocka_unit_test(test_word_goes_away),
      cmocka_unit_test(test_fork),
  };
  setenv("NCCL_PEER_CHECK_MS", "3600000", 1); // a thread that sleeps is woken by a bell or not at all
  return cmocka_run_group_tests(tests, NULL, NULL);
}
