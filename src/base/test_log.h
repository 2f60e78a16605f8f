// test_log.h: what the library logs, for tests that look at it. Sends this process's log to a file of its own.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"

static char test_log_name[64];

// `subsystems`: as NCCL_DEBUG_SUBSYS has them; NULL: what is told without it.
static void test_log_begin(const char *subsystems)
{
  snprintf(test_log_name, sizeof test_log_name, "/tmp/tutti_test_log_%d", (int)getpid());
  remove(test_log_name);
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_FILE", test_log_name, 1);
  if (subsystems != NULL) {
    setenv("NCCL_DEBUG_SUBSYS", subsystems, 1);
  }
  tt_log_reset();
}

// A group's teardown.
static int test_log_end(void **state)
{
  (void)state;
  return remove(test_log_name);
}

// What the log says since the last call.
static const char *said(void)
{
  static char text[65536];
  FILE *f = fopen(test_log_name, "r");
  assert_non_null(f);
  size_t n = fread(text, 1, sizeof text - 1, f);
  text[n] = '\0';
  fclose(f);
  assert_int_equal(truncate(test_log_name, 0), 0);
  return text;
}
