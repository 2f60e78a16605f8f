// Forks while other threads are inside the library: the child finds every lock free and every list whole, and makes
// communicators of its own.
#include "harness.h"

#include <cuda_runtime.h>

enum { FORKS = 200, STARTS = 150, START_STEP_US = 10, CHILD_SECONDS = GENEROUS(20) };

static _Atomic bool enough;

static void makes_and_frees_memory(void)
{
  void *p[4];
  for (int i = 0; i < 4; i++) {
    OK(ncclMemAlloc(&p[i], 4096));
  }
  for (int i = 0; i < 4; i++) {
    OK(ncclMemFree(p[i]));
  }
}

static void makes_and_destroys(void)
{
  ncclComm_t comm[2];
  OK(ncclCommInitAll(comm, 2, NULL));
  OK(ncclCommDestroy(comm[0]));
  OK(ncclCommDestroy(comm[1]));
}

static void makes_and_aborts(void)
{
  ncclComm_t comm;
  OK(ncclCommInitAll(&comm, 1, NULL));
  OK(ncclCommAbort(comm));
}

static void sets_flags(void)
{
  for (int i = 0; i < 1000; i++) {
    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleAuto) == cudaSuccess, "flags");
  }
}

static void (*const works[])(void) = {makes_and_frees_memory, makes_and_destroys, makes_and_aborts, sets_flags};
enum { WORKS = sizeof works / sizeof works[0] };

static void sum_of_two(void)
{
  world w;
  float x[2] = {1, 2};
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

__attribute__((noreturn)) static void in_child(void)
{
  alarm(CHILD_SECONDS);
  for (int i = 0; i < WORKS; i++) {
    works[i]();
  }
  sum_of_two();
  _exit(0);
}

static void fork_one(int i)
{
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) {
    in_child();
  }
  CHECK(waitpid(pid, &status, 0) == pid && status == 0, "child %d: status 0x%x%s", i, (unsigned)status,
        WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it hung" : "");
}

static void forks(void)
{
  for (int i = 0; i < FORKS; i++) {
    fork_one(i);
  }
}

static void work_or_fork(int rank, void *arg)
{
  (void)arg;
  if (rank == WORKS) {
    forks();
    enough = true;
  }
  while (!enough) {
    works[rank]();
  }
}

static void body(int rank, void *arg)
{
  (void)rank, (void)arg;
  run_threads(WORKS + 1, work_or_fork, NULL);
}

// Thread 0 makes the process's first communicators, with all that is set up once; thread 1 forks a bit later in every
// process.
static void start_or_fork(int rank, void *arg)
{
  const int *turn = arg;
  if (rank == 0) {
    makes_and_destroys();
  } else {
    double until = seconds_now() + *turn * START_STEP_US / 1e6;
    while (seconds_now() < until) {
    }
    fork_one(*turn);
  }
}

static void start_body(int rank, void *arg)
{
  (void)rank;
  run_threads(2, start_or_fork, arg);
}

static void children_of_a_process_that_starts(void **state)
{
  (void)state;
#if SLOWER > 1
  (void)start_body;
  skip();
#else
  for (int i = 0; i < STARTS; i++) {
    PROCESSES(1, 100, start_body, &i);
  }
#endif
}

static void children_of_a_busy_process(void **state)
{
  (void)state;
#if SLOWER > 1 // ThreadSanitizer has no threads after a fork, and AddressSanitizer's own allocator can be locked then
  (void)body;
  skip();
#else
  PROCESSES(1, 100, body, NULL);
#endif
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(children_of_a_process_that_starts),
                                     cmocka_unit_test(children_of_a_busy_process)};
  return RUN_TESTS("fork", tests, argc, argv);
}
