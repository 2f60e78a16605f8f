// test_child.h: runs a function in a child with an environment of its own, and gives what it wrote to standard output.
// For tests of what a process does once: the parameters and the log.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// The child's side of child_run: environment without any NCCL_ variable of ours, then `env` ("NAME=VALUE", ends with
// NULL).
static inline void child_environment(const char *const *env)
{
  clearenv();
  setenv("HOME", "/nonexistent", 1);
  for (; *env != NULL; env++) {
    putenv((char *)(uintptr_t)*env);
  }
}

// Runs fn() in a child. Its standard output goes to `out`, cut at `size` bytes with the final 0. Fails the test when
// the child does not exit with 0.
static inline void child_run(const char *const *env, void (*fn)(void), char *out, size_t size)
{
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  fflush(stdout);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    dup2(fds[1], STDOUT_FILENO);
    close(fds[0]);
    close(fds[1]);
    child_environment(env);
    fn();
    fflush(stdout);
    _exit(0);
  }
  close(fds[1]);
  size_t used = 0;
  ssize_t n;
  while (used < size - 1 && (n = read(fds[0], out + used, size - 1 - used)) > 0) {
    used += (size_t)n;
  }
  out[used] = '\0';
  close(fds[0]);
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

// Number of times that `what` stands in `text`.
static inline int count_of(const char *text, const char *what)
{
  int n = 0;
  for (; (text = strstr(text, what)) != NULL; text += strlen(what)) {
    n++;
  }
  return n;
}

#define CHILD_ENV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define assert_contains(text, what)                      \
  do {                                                   \
    if (strstr((text), (what)) == NULL) {                \
      fail_msg("\"%s\" is not in:\n%s", (what), (text)); \
    }                                                    \
  } while (0)
