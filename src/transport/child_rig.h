// child_rig.h: runs tests of this folder in child processes, because parameters are read once per process, and
// mailboxes have a thread. A failed CHECK ends the child, and the parent's test fails.
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

#include "base/ranks_rig.h"
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

CHILD_RIG void call_with_number(int i, void *arg)
{
  (*(void (**)(int))arg)(i);
  fflush(NULL);
  _exit(0);
}

// Runs fn(0) … fn(n - 1), each in a child of its own, side by side.
CHILD_RIG void run_in_children(int n, void (*fn)(int i))
{
  assert_int_equal(ranks_run(&(ranks_job){.n = n, .seconds = 300, .fn = call_with_number, .arg = &fn}), 0);
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
