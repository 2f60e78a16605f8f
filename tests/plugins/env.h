// env.h: an environment plugin for tests, of version VERSION. NCCL_X has the value of TEST_ENV_NCCL_X, in a buffer that
// the next call overwrites; all else is not set. TEST_ENV_INIT=fail: init fails. Each call but getEnv is written into
// the file that TEST_ENV_RECORD names.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/env.h"

#ifndef VERSION
#define VERSION 2
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

static int questions;

static void record(const char *line)
{
  const char *name = getenv("TEST_ENV_RECORD");
  FILE *f = name != NULL ? fopen(name, "a") : NULL;
  if (f != NULL) {
    fputs(line, f);
    fclose(f);
  }
}

static ncclResult_t begin(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix)
{
  char line[128];
  const char *how = getenv("TEST_ENV_INIT");
  snprintf(line, sizeof line, "init v%d for %d.%d.%d%s\n", VERSION, major, minor, patch, suffix);
  record(line);
  return how != NULL && strcmp(how, "fail") == 0 ? ncclSystemError : ncclSuccess;
}

static ncclResult_t end(void)
{
  char line[128];
  snprintf(line, sizeof line, "end v%d, asked %s\n", VERSION, questions > 100 ? "often" : "seldom");
  record(line);
  return ncclSuccess;
}

static const char *value(const char *name)
{
  static char buffer[256];
  char mine[128];
  snprintf(mine, sizeof mine, "TEST_ENV_%s", name);
  questions++;
  const char *text = getenv(mine);
  memset(buffer, '?', sizeof buffer - 1);
  return text != NULL ? strncpy(buffer, text, sizeof buffer - 1) : NULL;
}

#if VERSION == 2
static ncclResult_t begin_with_log(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix,
                                   ncclDebugLogger_t log)
{
  log(NCCL_LOG_INFO, NCCL_ENV, __FILE__, __LINE__, "the test's environment begins");
  return begin(major, minor, patch, suffix);
}
#else
#define begin_with_log begin
#endif

const JOIN(JOIN(ncclEnv_v, VERSION), _t)
    JOIN(ncclEnvPlugin_v, VERSION) = {.name = "TestEnv", .init = begin_with_log, .finalize = end, .getEnv = value};
