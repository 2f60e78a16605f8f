#define _GNU_SOURCE // program_invocation_short_name
#include "fail.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "system.h"

static char who[64]; // set before there are threads

// A process dies once.
static struct {
  pthread_mutex_t lock;
  void (*hook)(void *arg);
  void *arg;
  perf_world *world;
} death = {.lock = PTHREAD_MUTEX_INITIALIZER};

void perf_name_process(int proc, int procs, int ranks)
{
  if (proc == 0 || procs == 1) {
    who[0] = '\0';
  } else if (ranks == 1) {
    snprintf(who, sizeof(who), "process %d (rank %d): ", proc, proc);
  } else {
    snprintf(who, sizeof(who), "process %d (ranks %d-%d): ", proc, proc * ranks, proc * ranks + ranks - 1);
  }
}

const char *perf_who(void)
{
  return who;
}

static void say(const char *fmt, va_list ap)
{
  char text[1024];
  vsnprintf(text, sizeof(text), fmt, ap);
  fflush(stdout);
  fprintf(stderr, "%s: %s%s\n", program_invocation_short_name, who, text);
}

void perf_say(const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  say(fmt, ap);
  va_end(ap);
}

void perf_on_death(void (*hook)(void *arg), void *arg)
{
  pthread_mutex_lock(&death.lock);
  death.hook = hook;
  death.arg = arg;
  pthread_mutex_unlock(&death.lock);
}

void perf_in_job(perf_world *w)
{
  pthread_mutex_lock(&death.lock);
  death.world = w;
  pthread_mutex_unlock(&death.lock);
}

// Holds death.lock for ever.
static void run_hook(void)
{
  pthread_mutex_lock(&death.lock);
  if (death.hook) {
    death.hook(death.arg);
  }
  fflush(stdout);
}

_Noreturn void perf_die(int status)
{
  run_hook();
  if (death.world && death.world->launcher->abort) {
    alarm(10); // whatever the launcher waits for
    death.world->launcher->abort(death.world, status);
  }
  _exit(status);
}

_Noreturn void perf_quit(int status)
{
  run_hook();
  if (death.world) {
    death.world->launcher->finalize(death.world, status);
  }
  _exit(status);
}

_Noreturn void perf_die_saying(int status, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  say(fmt, ap);
  va_end(ap);
  perf_die(status);
}

_Noreturn void perf_nccl_failed(ncclResult_t result, const char *file, int line)
{
  char host[256];
  FILE *out = who[0] ? stderr : stdout;
  perf_host_name(host, sizeof(host));
  fprintf(out, "%s: %sTest NCCL failure %s:%d '%s / %s'\n", host, who, file, line, ncclGetErrorString(result),
          ncclGetLastError(NULL));
  fprintf(out, " .. %s pid %d: Test failure %s:%d\n", host, (int)getpid(), file, line);
  perf_die(PERF_EXIT_NCCL);
}
