// pagepipe_test.c: pages handed over through a pipe: what they hold when they are read, how many fit, another process,
// and what cannot be had.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/pagepipe.h"

#define PAGE 4096
#define ALL (TT_PAGEPIPE_PAGES * PAGE)

// Memory that begins with a page, of which each byte differs from those a page away.
static char *memory(size_t bytes)
{
  char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(p, MAP_FAILED);
  for (size_t i = 0; i < bytes; i++) {
    p[i] = (char)(i * 7 + i / PAGE);
  }
  return p;
}

static int open_files(void)
{
  int n = 0;
  for (int fd = 0; fd < 256; fd++) {
    n += dup2(fd, fd) == fd;
  }
  return n;
}

// In odd pieces, from odd places; what was not copied yet shows what has happened to it since.
static void test_pieces(void **state)
{
  (void)state;
  int before = open_files();
  tt_pagepipe pipe = {0};
  tt_pagetap tap = {0};
  char *from = memory(ALL), *to = memory(ALL);
  for (size_t bytes = 1, at = 0; bytes < ALL / 2; bytes = bytes * 3 + 1, at += 1001) {
    memset(to, 0, ALL);
    assert_int_equal(tt_pagepipe_put(&pipe, from + at, bytes), bytes);
    assert_true(tt_pagetap_join(&tap, getpid(), pipe.read));
    from[at + bytes - 1] ^= 1;
    assert_int_equal(tt_pagetap_take(&tap, to + 3, bytes / 3), 0);
    assert_int_equal(tt_pagetap_take(&tap, to + 3 + bytes / 3, bytes - bytes / 3), 0);
    assert_memory_equal(to + 3, from + at, bytes);
    assert_int_equal(to[2], 0);
    assert_int_equal(to[3 + bytes], 0);
    assert_int_equal(tt_pagetap_take(&tap, to, 1), ENODATA);
  }
  tt_pagetap_close(&tap);
  tt_pagepipe_close(&pipe);
  tt_pagepipe_close(&pipe);
  assert_int_equal(open_files(), before);
  munmap(from, ALL);
  munmap(to, ALL);
}

// So many pages fit, which is one less where the memory does not begin with one; the rest is not given until there is
// room again. A reader that reads nothing for long gets nothing new, but still gets what there is, by the same number.
static void test_full(void **state)
{
  (void)state;
  char *from = memory(2 * ALL), *to = memory(2 * ALL);
  for (size_t at = 0; at <= 8; at += 8) {
    tt_pagepipe pipe = {0};
    tt_pagetap tap = {0};
    assert_int_equal(tt_pagepipe_put(&pipe, from + at, 2 * ALL - at), ALL - at);
    assert_true(tt_pagetap_join(&tap, getpid(), pipe.read));
    assert_int_equal(tt_pagetap_take(&tap, to, ALL - at), 0);
    assert_memory_equal(to, from + at, ALL - at);
    assert_int_equal(tt_pagepipe_put(&pipe, from, ALL), ALL);
    assert_int_equal(tt_pagepipe_put(&pipe, from, 1), 0);
    assert_int_equal(tt_pagetap_take(&tap, to, ALL), 0);
    assert_int_equal(tt_pagepipe_put(&pipe, from, ALL), ALL);
    for (int i = 0; i < TT_PAGEPIPE_FULL; i++) {
      assert_int_equal(pipe.state, TT_PAGEPIPE_OPEN);
      assert_int_equal(tt_pagepipe_put(&pipe, from, 1), 0);
    }
    assert_int_equal(pipe.state, TT_PAGEPIPE_STOPPED);
    tt_pagetap_close(&tap);
    tap = (tt_pagetap){0};
    assert_true(tt_pagetap_join(&tap, getpid(), pipe.read));
    memset(to, 0, ALL);
    assert_int_equal(tt_pagetap_take(&tap, to, ALL), 0);
    assert_memory_equal(to, from, ALL);
    assert_int_equal(tt_pagepipe_put(&pipe, from, 1), 0);
    tt_pagetap_close(&tap);
    tt_pagepipe_close(&pipe);
  }
  munmap(from, 2 * ALL);
  munmap(to, 2 * ALL);
}

// A pipe that is to be shorter holds that much.
static void test_short(void **state)
{
  (void)state;
  size_t fits = TT_PAGEPIPE_LEAST * PAGE;
  char *from = memory(ALL), *to = memory(ALL);
  tt_pagepipe pipe = {.pages = TT_PAGEPIPE_LEAST};
  tt_pagetap tap = {0};
  memset(to, 0, ALL);
  for (int round = 0; round < 2; round++) {
    assert_int_equal(tt_pagepipe_put(&pipe, from, ALL), fits);
    assert_true(tt_pagetap_join(&tap, getpid(), pipe.read));
    assert_int_equal(tt_pagetap_take(&tap, to, fits), 0);
    assert_memory_equal(to, from, fits);
    assert_int_equal(to[fits], 0);
    assert_int_equal(tt_pagetap_take(&tap, to, 1), ENODATA);
  }
  tt_pagetap_close(&tap);
  tt_pagepipe_close(&pipe);
  munmap(from, ALL);
  munmap(to, ALL);
}

// A child hands over and waits; its parent reads, also after it has ended.
static void test_between_processes(void **state)
{
  (void)state;
  int told[2], go[2], fd = -1, status = -1;
  char *from = memory(ALL), *to = memory(ALL), byte;
  memset(to, 0, ALL);
  assert_int_equal(pipe(told), 0);
  assert_int_equal(pipe(go), 0);
  pid_t pid = fork();
  if (pid == 0) {
    tt_pagepipe pages = {0};
    from[5] = 99;
    fd = tt_pagepipe_put(&pages, from, 10 * PAGE) == 10 * PAGE ? pages.read : -1;
    bool ok = write(told[1], &fd, sizeof fd) == sizeof fd && read(go[0], &byte, 1) == 1;
    _exit(ok ? 0 : 1);
  }
  tt_pagetap tap = {0}, none = {0};
  assert_int_equal(read(told[0], &fd, sizeof fd), sizeof fd);
  assert_true(fd >= 0);
  assert_true(tt_pagetap_join(&tap, pid, fd));
  assert_false(tt_pagetap_join(&none, pid, 999));
  assert_false(tt_pagetap_join(&none, pid, fd)); // it has been tried
  assert_int_equal(tt_pagetap_take(&tap, to, PAGE), 0);
  assert_int_equal(write(go[1], "", 1), 1);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(tt_pagetap_take(&tap, to + PAGE, 9 * PAGE), 0);
  assert_int_equal(to[5], 99);
  from[5] = 99;
  assert_memory_equal(to, from, 10 * PAGE);
  assert_int_equal(tt_pagetap_take(&tap, to, 1), ENODATA); // its last writer has gone
  tt_pagetap_close(&tap);
  tt_pagetap_close(&none);
  for (int i = 0; i < 2; i++) {
    close(told[i]);
    close(go[i]);
  }
  munmap(from, ALL);
  munmap(to, ALL);
}

// No memory there; no room for it here; no descriptors left.
static void test_refused(void **state)
{
  (void)state;
  int before = open_files();
  char *p = memory(4 * PAGE);
  tt_pagepipe pipe = {0}, other = {0};
  tt_pagetap tap = {0};
  assert_int_equal(munmap(p + 2 * PAGE, PAGE), 0);
  assert_int_equal(tt_pagepipe_put(&pipe, p, 4 * PAGE), 2 * PAGE); // up to the gap
  assert_true(tt_pagetap_join(&tap, getpid(), pipe.read));
  assert_int_equal(tt_pagetap_take(&tap, p + 2 * PAGE, PAGE), EFAULT);
  assert_int_equal(tt_pagepipe_put(&pipe, p + 2 * PAGE, PAGE), 0);
  assert_int_equal(pipe.state, TT_PAGEPIPE_OPEN);
  tt_pagetap_close(&tap);
  tt_pagepipe_close(&pipe);
  struct rlimit old, none;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  assert_int_equal(tt_pagepipe_put(&other, p, PAGE), 0);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
  assert_int_equal(other.state, TT_PAGEPIPE_NONE);
  assert_int_equal(open_files(), before);
  munmap(p, 2 * PAGE);
  munmap(p + 3 * PAGE, PAGE);
}

// A number that is another file's by now; more pipes than a process may have.
static void test_not_such_a_pipe(void **state)
{
  (void)state;
  int before = open_files(), ends[2];
  char *p = memory(PAGE);
  assert_int_equal(pipe(ends), 0);
  for (int i = 0; i < 2; i++) {
    tt_pagetap tap = {0};
    assert_false(tt_pagetap_join(&tap, getpid(), i == 0 ? ends[0] : STDIN_FILENO));
    tt_pagetap_close(&tap);
  }
  close(ends[0]);
  close(ends[1]);
  tt_pagepipe pipes[TT_PAGEPIPES + 2] = {0};
  for (int i = 0; i < TT_PAGEPIPES + 2; i++) {
    assert_int_equal(tt_pagepipe_put(&pipes[i], p, PAGE), i < TT_PAGEPIPES ? PAGE : 0);
  }
  for (int i = 0; i < TT_PAGEPIPES + 2; i++) {
    tt_pagepipe_close(&pipes[i]);
  }
  assert_int_equal(tt_pagepipe_put(&pipes[0], p, PAGE), PAGE); // there is room again
  tt_pagepipe_close(&pipes[0]);
  assert_int_equal(open_files(), before);
  munmap(p, PAGE);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pieces),  cmocka_unit_test(test_full),
      cmocka_unit_test(test_short),   cmocka_unit_test(test_between_processes),
      cmocka_unit_test(test_refused), cmocka_unit_test(test_not_such_a_pipe),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
