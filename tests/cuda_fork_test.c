// cuda_fork_test.c: forks while other threads use GPUs. CUDA does not let the child use any, and the library says so;
// on host memory the child does what it likes. It never hangs, whatever the other threads were doing.
#include "cuda_modes.h"
#include "harness.h"

#include "base/util.h"
#include "device/cuda/gpu.h"

enum { FORKS = 60, COUNT = 100, CHILD_SECONDS = GENEROUS(20) };

static _Atomic bool enough;

// ---- What threads of the parent do ----

static void makes_and_frees_memory(void)
{
  void *p[8];
  for (size_t i = 0; i < TT_COUNT(p); i++) {
    OK(ncclMemAlloc(&p[i], 4096));
  }
  for (size_t i = 0; i < TT_COUNT(p); i++) {
    OK(ncclMemFree(p[i]));
  }
}

static void makes_and_destroys(void)
{
  ncclComm_t comm[2];
  int devices[2] = {0, tt_gpu_count() - 1};
  OK(ncclCommInitAll(comm, 2, devices));
  for (int i = 0; i < 2; i++) {
    OK(ncclCommDestroy(comm[i]));
  }
}

static void operates(void)
{
  ncclComm_t comm;
  void *p = NULL;
  int device = 0;
  OK(ncclMemAlloc(&p, COUNT * sizeof(float)));
  OK(ncclCommInitAll(&comm, 1, &device));
  for (int i = 0; i < 20; i++) {
    OK(ncclAllReduce(p, p, COUNT, ncclFloat, ncclSum, comm, NULL));
  }
  OK(ncclCommDestroy(comm));
  OK(ncclMemFree(p));
}

static void (*const works[])(void) = {makes_and_frees_memory, makes_and_destroys, operates};
enum { WORKS = TT_COUNT(works) };

// ---- What a child can do ----

static void tries_gpus(void)
{
  ncclComm_t comm;
  void *p;
  int device = 0;
  REFUSED(ncclCommInitAll(&comm, 1, &device), ncclUnhandledCudaError, "fork", "GPU");
  REFUSED(ncclMemAlloc(&p, 4096), ncclUnhandledCudaError, "fork", "GPU");
  REFUSED(ncclMemFree(&device), ncclInvalidArgument, "allocation");
}

static void sums_on_the_host(void)
{
  world w;
  float x[2] = {1, 2};
  OK(tuttiSetDevice(0)); // asks for host devices
  world_open(&w, 2);
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    OK(ncclAllReduce(&x[i], &x[i], 1, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
  }
  OK(ncclGroupEnd());
  world_wait(&w);
  CHECK(x[0] == 3 && x[1] == 3, "%g %g", (double)x[0], (double)x[1]);
  world_close(&w);
}

__attribute__((noreturn)) static void in_child(int number)
{
  alarm(CHILD_SECONDS);
  if (number % 2 == 0) {
    tries_gpus();
  } else {
    sums_on_the_host();
  }
  _exit(0);
}

static void fork_one(int i)
{
  int status = 0;
  const pid_t pid = fork();
  if (pid == 0) {
    in_child(i);
  }
  CHECK(waitpid(pid, &status, 0) == pid && status == 0, "child %d: status 0x%x%s", i, (unsigned)status,
        WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it hung" : "");
}

static void work_or_fork(int thread, void *arg)
{
  (void)arg;
  if (thread == WORKS) {
    for (int i = 0; i < FORKS; i++) {
      fork_one(i);
    }
    enough = true;
    return;
  }
  OK(tt_gpu_enter(0));
  while (!enough) {
    works[thread]();
  }
  tt_gpu_leave();
}

static void body(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  CHECK(tt_gpu_enter(0) == ncclSuccess, "no GPU");
  tt_gpu_leave();
  makes_and_destroys();
  run_threads(WORKS + 1, work_or_fork, NULL);
}

static void test_forks(void **state)
{
  (void)state;
#if SLOWER > 1 // ThreadSanitizer has no threads after a fork, and AddressSanitizer's own allocator can be locked then
  (void)body;
  skip();
#else
  PROCESSES(1, 60, body, NULL);
#endif
}

// The first communicators are being made, with all that is set up once.
static void start_or_fork(int thread, void *arg)
{
  const int *turn = arg;
  if (thread == 0) {
    makes_and_destroys();
    return;
  }
  sleep_ms(*turn);
  int status = 0;
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(CHILD_SECONDS);
    sums_on_the_host();
    _exit(0);
  }
  CHECK(waitpid(pid, &status, 0) == pid && status == 0, "child after %d ms: status 0x%x", *turn, (unsigned)status);
}

static void start_body(int rank, void *arg)
{
  (void)rank;
  run_threads(2, start_or_fork, arg);
}

static void test_start(void **state)
{
  (void)state;
#if SLOWER > 1 // the same
  (void)start_body;
  skip();
#else
  for (int turn = 0; turn < 10; turn++) {
    PROCESSES(1, 60, start_body, &turn);
  }
#endif
}

// Nobody has used a GPU before the fork: the child may.
static void unused_body(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  int status = 0;
  const pid_t pid = fork();
  if (pid == 0) {
    makes_and_destroys();
    _exit(0);
  }
  CHECK(waitpid(pid, &status, 0) == pid && status == 0, "status 0x%x", (unsigned)status);
  makes_and_destroys();
}

static void test_unused(void **state)
{
  (void)state;
  PROCESSES(1, 60, unused_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_forks),
      cmocka_unit_test(test_start),
      cmocka_unit_test(test_unused),
  };
  use_driver();
  set_modes("devices=2", "fork-test");
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
