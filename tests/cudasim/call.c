// call.c: what every exported function does first and last; texts; waits of callers.
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

struct sim sim = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
    .run = -1,
};

static __thread const char *call_name = "";
static __thread bool in_host_function;
static __thread bool call_signals; // when it ends

void sim_say(const char *fmt, ...)
{
  char text[2048];
  int n = snprintf(text, sizeof text, "cudasim %d: ", (int)getpid());
  va_list args;
  va_start(args, fmt);
  n += vsnprintf(text + n, sizeof text - (size_t)n - 1, fmt, args);
  va_end(args);
  n = n < (int)sizeof text - 1 ? n : (int)sizeof text - 2;
  text[n++] = '\n';
  (void)!write(STDERR_FILENO, text, (size_t)n); // one line, one write: processes share it
}

CUresult sim_misuse(CUresult code, const char *fmt, ...)
{
  char text[1024];
  const char *name = sim_error_name(code);
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  sim_say("%s: %s (%s)", call_name, text, name != NULL ? name : "?");
  return code;
}

const char *sim_call_name(void)
{
  return call_name;
}

void sim_in_host_function(bool in)
{
  in_host_function = in;
}

// By name; the texts are those of SIM_CALL.
static struct {
  const char *name;
  uint64_t calls;
} counts[256];

static void count_call(const char *name)
{
  size_t i = 0;
  while (i < sizeof counts / sizeof *counts - 1 && counts[i].name != NULL && counts[i].name != name) {
    i++;
  }
  counts[i].name = name;
  counts[i].calls++;
}

uint64_t cudasim_calls(const char *name)
{
  uint64_t calls = 0;
  pthread_mutex_lock(&sim.lock);
  for (size_t i = 0; i < sizeof counts / sizeof *counts && counts[i].name != NULL; i++) {
    calls += strcmp(counts[i].name, name) == 0 ? counts[i].calls : 0;
  }
  pthread_mutex_unlock(&sim.lock);
  return calls;
}

static CUresult refuse_call(const char *name)
{
  call_name = name;
  count_call(name);
  if (in_host_function) {
    return sim_misuse(CUDA_ERROR_NOT_PERMITTED, "called inside a host function");
  }
  if (!sim.started) {
    return sim_misuse(CUDA_ERROR_NOT_INITIALIZED, "called before cuInit");
  }
  if (++sim.calls == sim.modes.fail) {
    return sim_misuse((CUresult)sim.modes.fail_code, "call %ld fails by order", sim.calls);
  }
  call_signals = sim.calls == sim.signal_at;
  return CUDA_SUCCESS;
}

__attribute__((visibility("default"))) long cudasim_signal(long calls, int signal)
{
  pthread_mutex_lock(&sim.lock);
  const long before = sim.calls;
  sim.signal_at = calls > 0 ? before + calls : 0;
  sim.signal = signal;
  pthread_mutex_unlock(&sim.lock);
  return before;
}

bool sim_is_forked(void)
{
  pid_t pid = atomic_load(&sim.pid);
  return pid != 0 && pid != getpid();
}

// In mode `waits`: what may be, as far as documents tell. Those that free or close wait for all work in any mode.
static bool waits_for_kernels(const char *name)
{
  static const char *const names[] = {"cuMemAlloc",         "cuMemHostAlloc", "cuMemHostRegister",
                                      "cuIpcOpenMemHandle", "cuMemCreate",    "cuMemMap",
                                      "cuMemSetAccess",     "cuMemUnmap",     "cuModuleLoadDataEx"};
  bool waits = false;
  for (size_t i = 0; i < sizeof names / sizeof *names && sim.modes.waits; i++) {
    waits |= strcmp(names[i], name) == 0;
  }
  return waits;
}

CUresult sim_begin(const char *name)
{
  if (sim_is_forked()) {
    call_name = name;
    return sim_misuse(CUDA_ERROR_NOT_INITIALIZED, "called in the child of a fork, whose parent had initialised CUDA");
  }
  pthread_mutex_lock(&sim.lock);
  CUresult error = refuse_call(name);
  struct sim_device *device = error == CUDA_SUCCESS && waits_for_kernels(name) ? sim_device_current() : NULL;
  if (device != NULL) {
    sim_kernel_await(device);
  }
  if (error != CUDA_SUCCESS) {
    pthread_mutex_unlock(&sim.lock);
  }
  return error;
}

CUresult sim_end(CUresult result)
{
  const int signal = call_signals ? sim.signal : 0;
  call_signals = false;
  pthread_mutex_unlock(&sim.lock);
  if (signal != 0) {
    raise(signal);
  }
  return result;
}

__attribute__((destructor)) static void say_count(void)
{
  if (sim.modes.count && sim.pid == getpid()) {
    sim_say("%ld calls", sim.calls);
  }
}

uint64_t sim_random(void)
{
  uint64_t x = sim.random += 0x9e3779b97f4a7c15; // splitmix64
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

double sim_now_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void remove_waiter(const struct sim_waiter *waiter)
{
  struct sim_waiter **at = &sim.waiters;
  while (*at != waiter) {
    at = &(*at)->next;
  }
  *at = waiter->next;
}

bool sim_await(bool (*done)(void *arg), void *arg, const char *fmt, ...)
{
  struct sim_waiter waiter = {
      .next = sim.waiters, .call = call_name, .done = done, .arg = arg, .wake = PTHREAD_COND_INITIALIZER};
  va_list args;
  if (done(arg)) {
    return true;
  }
  va_start(args, fmt);
  vsnprintf(waiter.what, sizeof waiter.what, fmt, args);
  va_end(args);
  sim.waiters = &waiter;
  sim_sched_wake(); // while someone waits it looks at what other processes do
  while (!done(arg) && !sim.stuck) {
    pthread_cond_wait(&waiter.wake, &sim.lock);
  }
  remove_waiter(&waiter);
  pthread_cond_destroy(&waiter.wake);
  return done(arg);
}

void sim_changed(void)
{
  for (struct sim_waiter *waiter = sim.waiters; waiter != NULL; waiter = waiter->next) {
    if (sim.stuck || waiter->done(waiter->arg)) {
      pthread_cond_signal(&waiter->wake);
    }
  }
}

void sim_quiesce(void)
{
  sim.quiescing++;
  while (sim.stepping) {
    pthread_cond_wait(&sim.changed, &sim.lock);
  }
  sim.quiescing--;
}
