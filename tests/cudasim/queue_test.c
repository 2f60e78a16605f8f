// queue_test.c: hardware queues, their room, deadlocks and their reports.
#include "rig.h"

#include <dlfcn.h>
#include <signal.h>
#include <time.h>

// Stream `first` waits for a word that stream `second` writes, and was handed its work before.
static void wait_before_write(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(1);
  CUstream first = rig_stream(), second = rig_stream();
  OK(cu.StreamWaitValue32(first, at(word), 7, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cu.StreamWriteValue32(second, at(word), 7, 0));
  OK(cu.StreamSynchronize(second));
  OK(cu.StreamSynchronize(first));
}

static void wait_before_write_sticks(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(1);
  CUstream first = rig_stream(), second = rig_stream();
  OK(cu.StreamWaitValue32(first, at(word), 7, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cu.StreamWriteValue32(second, at(word), 7, 0));
  GIVES(CUDA_ERROR_LAUNCH_TIMEOUT, cu.StreamSynchronize(first));
}

static void test_one_queue(void **state)
{
  (void)state;
  rig_quiet("", 1, wait_before_write);
  rig_quiet("order=turns", 1, wait_before_write);
  rig_says("queues=1,deadlock=1000", 1, wait_before_write_sticks, "waits for the word at 0x");
  assert_non_null(strstr(rig_err, ">= 7, now 0; 0 operations behind it; no stream has written it"));
  assert_non_null(strstr(rig_err, "stands in hardware queue 0 behind stream "));
  assert_non_null(strstr(rig_err, "a thread in cuStreamSynchronize waits for a stream"));
}

static void test_connections(void **state)
{
  (void)state;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  rig_says("deadlock=1000", 1, wait_before_write_sticks, "stands in hardware queue 0 behind stream ");
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

// Safe in any number of queues: the write stands before the wait.
static void write_before_wait(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(1);
  CUstream first = rig_stream(), second = rig_stream();
  OK(cu.StreamWriteValue32(second, at(word), 7, 0));
  OK(cu.StreamWaitValue32(first, at(word), 7, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cu.StreamSynchronize(first));
}

static void test_safe_order(void **state)
{
  (void)state;
  char modes[64];
  for (int seed = 1; seed <= 10; seed++) {
    snprintf(modes, sizeof modes, "queues=%d,queues=random,seed=%d", 1 + seed % 3, seed);
    rig_quiet(modes, 1, write_before_wait);
  }
}

// Words written the last time too low: the report says by whom.
static void too_low(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(1);
  CUstream first = rig_stream(), second = rig_stream();
  OK(cu.StreamWriteValue32(second, at(word), 6, 0));
  OK(cu.StreamWaitValue32(first, at(word), 7, CU_STREAM_WAIT_VALUE_GEQ));
  OK(rig_launch(rig_kernel("put"), 1, 1, at(word), 9, first));
  GIVES(CUDA_ERROR_LAUNCH_TIMEOUT, cu.CtxSynchronize());
}

static void test_last_writer(void **state)
{
  (void)state;
  rig_says("deadlock=1000", 1, too_low, ">= 7, now 6; 1 operations behind it; last written by stream ");
  assert_non_null(strstr(rig_err, ": 6\n"));
}

// A kernel polls the word until it is 5.
static void spin(_Atomic uint32_t *word, CUstream stream)
{
  OK(rig_launch(rig_kernel("spin"), 2, 32, at(word), 5, stream));
  while (atomic_load(word + 1) == 0) {
    rig_sleep_ms(1);
  }
}

// A kernel that polls, and the one that would release it: one runs at a time.
static void spin_before_put(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(2);
  CUfunction put = rig_kernel("put");
  CUstream first = rig_stream(), second = rig_stream();
  spin(word, first);
  OK(rig_launch(put, 1, 1, at(word), 5, second));
  GIVES(CUDA_ERROR_LAUNCH_TIMEOUT, cu.StreamSynchronize(first));
}

// Where the one that releases it is no kernel.
static void spin_and_write(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(2);
  CUstream first = rig_stream(), second = rig_stream();
  spin(word, first);
  OK(cu.StreamWriteValue32(second, at(word), 5, 0));
  OK(cu.StreamSynchronize(first));
}

static void test_spinning(void **state)
{
  (void)state;
  rig_says("deadlock=1000", 1, spin_before_put, "kernel spin, which polls words that nobody changes");
  assert_non_null(strstr(rig_err, "kernel put, which waits for another kernel of the device"));
  rig_quiet("", 1, spin_and_write);
}

// A process that is stopped for longer than the limit has not been without progress for so long.
static void stopped_meanwhile(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(1);
  CUstream stream = rig_stream();
  OK(cu.StreamWaitValue32(stream, at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  rig_sleep_ms(50); // the scheduler looks
  const pid_t child = fork();
  if (child == 0) {
    kill(getppid(), SIGSTOP);
    rig_sleep_ms(1500);
    kill(getppid(), SIGCONT);
    _exit(0);
  }
  CHECK(child > 0 && waitpid(child, NULL, 0) == child);
  rig_sleep_ms(20);
  atomic_store(word, 1);
  OK(cu.StreamSynchronize(stream));
}

static void test_stopped(void **state)
{
  (void)state;
  rig_quiet("deadlock=1000", 1, stopped_meanwhile);
}

// ---- Room ----

static _Atomic int handed;
static CUstream narrow;
static _Atomic uint32_t *narrow_word;

static void *hand_over(void *arg)
{
  rig_context(0);
  for (int i = 0; i < 10; i++) {
    OK(cu.StreamWriteValue32(narrow, at(narrow_word + 1), (uint32_t)i, 0));
    atomic_fetch_add(&handed, 1);
  }
  return arg;
}

static void room(bool all)
{
  pthread_t thread;
  rig_context(0);
  narrow_word = rig_words(3);
  narrow = rig_stream();
  CUstream other = rig_stream();
  OK(cu.StreamWaitValue32(narrow, at(narrow_word), 1, CU_STREAM_WAIT_VALUE_EQ));
  CHECK(pthread_create(&thread, NULL, hand_over, NULL) == 0);
  while (atomic_load(&handed) < 3) {
    rig_sleep_ms(1);
  }
  rig_sleep_ms(20);
  CHECK(atomic_load(&handed) == 3); // and the wait: 4
  if (!all) {
    OK(cu.StreamWriteValue32(other, at(narrow_word + 2), 1, 0));
    OK(cu.StreamSynchronize(other));
  }
  atomic_store(narrow_word, 1);
  OK(cu.StreamWriteValue32(other, at(narrow_word + 2), 1, 0));
  CHECK(pthread_join(thread, NULL) == 0);
  OK(cu.StreamSynchronize(narrow));
  CHECK(atomic_load(narrow_word + 1) == 9);
}

static void room_of_one(void)
{
  room(false);
}

static void room_of_all(void)
{
  room(true);
}

static void *hand_over_in_vain(void *arg)
{
  CUresult error = CUDA_SUCCESS;
  rig_context(0);
  while (error == CUDA_SUCCESS) {
    error = cu.StreamWriteValue32(narrow, at(narrow_word + 1), 1, 0);
    atomic_fetch_add(&handed, 1);
  }
  CHECK(error == CUDA_ERROR_LAUNCH_TIMEOUT);
  return arg;
}

static uint64_t calls_of_driver(const char *name)
{
  void *driver = dlopen(getenv("TUTTI_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  CHECK(driver != NULL);
  uint64_t (*calls)(const char *name) = NULL;
  *(void **)&calls = dlsym(driver, "cudasim_calls");
  CHECK(calls != NULL);
  const uint64_t n = calls(name);
  dlclose(driver);
  return n;
}

// Another thread's work waits behind that of one whose queue is full.
static void held_up(void)
{
  pthread_t thread;
  rig_context(0);
  narrow_word = rig_words(3);
  narrow = rig_stream();
  CUstream other = rig_stream();
  OK(cu.StreamWaitValue32(narrow, at(narrow_word), 1, CU_STREAM_WAIT_VALUE_EQ));
  CHECK(pthread_create(&thread, NULL, hand_over_in_vain, NULL) == 0);
  while (calls_of_driver("cuStreamWriteValue32") < 4) { // the fourth waits for room
    rig_sleep_ms(1);
  }
  GIVES(CUDA_ERROR_LAUNCH_TIMEOUT, cu.StreamWriteValue32(other, at(narrow_word), 1, 0)); // which would end it
  CHECK(pthread_join(thread, NULL) == 0);
}

static void test_room(void **state)
{
  (void)state;
  rig_quiet("launches=4", 1, room_of_one);
  rig_quiet("launches=4:all", 1, room_of_all);
  rig_says("launches=4:all,deadlock=1000", 1, held_up, "waits for room in the queue of stream ");
  assert_non_null(strstr(rig_err, "waits for another thread, which waits for room in a queue"));
}

// Each launch waits for its kernel: in that mode a wait before it in the stream holds up the caller.
static void blocking(void)
{
  CUdeviceptr sum = (rig_context(0), rig_memory(4));
  CUstream stream = rig_stream();
  OK(rig_launch(rig_kernel("put"), 1, 1, sum, 1, stream));
  OK(cu.StreamQuery(stream));
}

static void blocking_sticks(void)
{
  CUdeviceptr sum = (rig_context(0), rig_memory(4));
  _Atomic uint32_t *word = rig_words(1);
  CUstream stream = rig_stream();
  OK(cu.StreamWaitValue32(stream, at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  GIVES(CUDA_ERROR_LAUNCH_TIMEOUT, rig_launch(rig_kernel("put"), 1, 1, sum, 1, stream));
}

// It returns later than that.
static void lagging(void)
{
  CUdeviceptr sum = (rig_context(0), rig_memory(4));
  CUstream stream = rig_stream();
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  OK(rig_launch(rig_kernel("put"), 1, 1, sum, 1, stream));
  clock_gettime(CLOCK_MONOTONIC, &end);
  CHECK((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 >= 99);
}

static void test_blocking(void **state)
{
  (void)state;
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1); // the driver's own name for it
  rig_quiet("", 1, blocking);
  unsetenv("CUDA_LAUNCH_BLOCKING");
  rig_quiet("blocking", 1, blocking);
  rig_quiet("blocking=100", 1, lagging);
  rig_says("blocking,deadlock=1000", 1, blocking_sticks, "a thread in cuLaunchKernel waits for the kernel");
}

// Seeds draw differently: here which stream writes last.
static void draw(void)
{
  rig_context(0);
  CUdeviceptr last = rig_memory(4);
  uint32_t out[16];
  _Atomic uint32_t *word = rig_words(1);
  CUstream stream[8];
  for (int i = 0; i < 8; i++) {
    stream[i] = rig_stream();
    OK(cu.StreamWaitValue32(stream[i], at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  CUfunction put = rig_kernel("put");
  for (uint32_t i = 0; i < 8; i++) {
    OK(rig_launch(put, 1, 1, last, i, stream[i]));
  }
  rig_sleep_ms(10);
  atomic_store(word, 1);
  OK(cu.CtxSynchronize());
  OK(cu.MemcpyDtoH(out, last, 4));
  fprintf(stderr, "%u", out[0]);
}

static void test_seeds(void **state)
{
  (void)state;
  char modes[64];
  unsigned seen = 0;
  for (int seed = 1; seed <= 12; seed++) {
    snprintf(modes, sizeof modes, "order=random,seed=%d", seed);
    rig_run(modes, 1, draw);
    seen |= 1u << (rig_err[0] - '0');
  }
  assert_true(__builtin_popcount(seen) >= 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_queue),   cmocka_unit_test(test_connections), cmocka_unit_test(test_safe_order),
      cmocka_unit_test(test_last_writer), cmocka_unit_test(test_spinning),    cmocka_unit_test(test_room),
      cmocka_unit_test(test_blocking),    cmocka_unit_test(test_seeds),       cmocka_unit_test(test_stopped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
