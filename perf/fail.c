#define _GNU_SOURCE // program_invocation_short_name
#include "fail.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "system.h"

// A process dies once.
static struct {
  pthread_mutex_t lock;
  void (*hook)(void *arg);
  void *arg;
} death = {.lock = PTHREAD_MUTEX_INITIALIZER};

void perf_on_death(void (*hook)(void *arg), void *arg)
{
  pthread_mutex_lock(&death.lock);
  death.hook = hook;
  death.arg = arg;
  pthread_mutex_unlock(&death.lock);
}

_Noreturn void perf_die(int status)
{
  pthread_mutex_lock(&death.lock); // never given back
  if (death.hook) {
    death.hook(death.arg);
  }
  fflush(stdout);
  _exit(status);
}

_Noreturn void perf_die_saying(int status, const char *fmt, ...)
{
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof(text), fmt, ap);
  va_end(ap);
  fflush(stdout);
  fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
  perf_die(status);
}

_Noreturn void perf_nccl_failed(ncclResult_t result, const char *file, int line)
{
  char host[256];
  perf_host_name(host, sizeof(host));
  printf("%s: Test NCCL failure %s:%d '%s / %s'\n", host, file, line, ncclGetErrorString(result), ncclGetLastError(NULL));
  printf(" .. %s pid %d: Test failure %s:%d\n", host, (int)getpid(), file, line);
  perf_die(PERF_EXIT_NCCL);
}
