// child_rig.h: runs tests of this folder in child processes, because parameters are read once per process, and mailboxes have a thread. A failed
// CHECK ends the child, and the parent's test fails.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/result.h"
#include "os/clock.h"

#define CHILD_RIG __attribute__((unused)) static

#define CHECK(cond)                                                                                \
  do {                                                                                             \
    if (!(cond)) {                                                                                 \
      fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #cond, tt_last_error()); \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (0)

CHILD_RIG pid_t spawn_child(void (*fn)(int i), int i)
{
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    fn(i);
    _exit(0);
  }
  return pid;
}

// Runs fn(0) … fn(n - 1), each in a child of its own, side by side.
CHILD_RIG void run_in_children(int n, void (*fn)(int i))
{
  pid_t pids[16];
  assert_in_range(n, 1, 16);
  for (int i = 0; i < n; i++) {
    pids[i] = spawn_child(fn, i);
    assert_true(pids[i] > 0);
  }
  int failed = 0;
  for (int i = 0; i < n; i++) {
    int status = -1;
    assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    failed += status != 0;
  }
  assert_int_equal(failed, 0);
}

CHILD_RIG void run_in_child(void (*fn)(int i))
{
  run_in_children(1, fn);
}

// Waits until *word has reached `value`, at most ten seconds.
CHILD_RIG bool child_rig_reaches(_Atomic int *word, int value)
{
  for (uint64_t end = tt_now_ns() + 10 * TT_NS_PER_S; atomic_load(word) < value;) {
    if (tt_now_ns() > end) {
      return false;
    }
    tt_sleep_ns(100000);
  }
  return true;
}
