#include "monitor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "fail.h"
#include "system.h"

enum { TICK_MS = 200, SHOW_AFTER_MS = 2000 };

typedef struct waiter {
  _Atomic uint64_t since; // ns; 0: not waiting
  _Atomic(const char *) what;
} waiter;

struct perf_monitor {
  pthread_t thread;
  bool running;
  pthread_mutex_t lock; // of all below but the waiters, and of threads that write to the terminal
  pthread_cond_t stop_now;
  bool stop, progress, shown;
  size_t done, total, size;
  uint64_t started;
  int threads, timeout;
  waiter waiters[];
};

static void erase(perf_monitor *m)
{
  if (m->shown) {
    fputs("\r\033[K", stderr);
    m->shown = false;
  }
}

static void show(perf_monitor *m)
{
  uint64_t ms = (perf_now() - m->started) / 1000000;
  if (!m->progress || ms < SHOW_AFTER_MS) {
    return;
  }
  if (m->total) {
    fprintf(stderr, "\r\033[K%3d%%  size %zu  %.0f s", (int)(100 * m->done / m->total), m->size, (double)ms / 1000);
  } else {
    fprintf(stderr, "\r\033[K%zu done  size %zu  %.0f s", m->done, m->size, (double)ms / 1000);
  }
  fflush(stderr);
  m->shown = true;
}

static void look_for_late(perf_monitor *m)
{
  uint64_t now = perf_now();
  for (int i = 0; m->timeout && i < m->threads; i++) {
    uint64_t since = atomic_load(&m->waiters[i].since);
    if (since && now > since && now - since > (uint64_t)m->timeout * 1000000000u) {
      char host[256];
      perf_host_name(host, sizeof(host));
      erase(m);
      fprintf(perf_who()[0] ? stderr : stdout, "%s: %sTest timeout (%ds) %s:%d thread %d waits for %s\n", host,
              perf_who(), m->timeout, __FILE_NAME__, __LINE__, i, atomic_load(&m->waiters[i].what));
      perf_die(PERF_EXIT_TIMEOUT);
    }
  }
}

static void *watch(void *arg)
{
  perf_monitor *m = arg;
  pthread_mutex_lock(&m->lock);
  while (!m->stop) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += TICK_MS * 1000000l;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&m->stop_now, &m->lock, &t);
    look_for_late(m);
    show(m);
  }
  erase(m);
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

perf_monitor *perf_monitor_create(int threads, int timeout, bool progress)
{
  perf_monitor *m = calloc(1, sizeof(*m) + (size_t)threads * sizeof(m->waiters[0]));
  if (!m) {
    return NULL;
  }
  m->threads = threads;
  m->timeout = timeout;
  m->progress = progress;
  m->started = perf_now();
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->stop_now, NULL);
  // Without its thread the run is as good, only not watched.
  m->running = (timeout || progress) && pthread_create(&m->thread, NULL, watch, m) == 0;
  return m;
}

void perf_monitor_destroy(perf_monitor *m)
{
  if (!m) {
    return;
  }
  if (m->running) {
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_signal(&m->stop_now);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
  }
  pthread_cond_destroy(&m->stop_now);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

void perf_monitor_begin(perf_monitor *m, int thread, const char *what)
{
  if (m->timeout) {
    atomic_store(&m->waiters[thread].what, what);
    atomic_store(&m->waiters[thread].since, perf_now());
  }
}

void perf_monitor_end(perf_monitor *m, int thread)
{
  if (m->timeout) {
    atomic_store(&m->waiters[thread].since, 0);
  }
}

void perf_monitor_progress(perf_monitor *m, size_t done, size_t total, size_t size)
{
  pthread_mutex_lock(&m->lock);
  m->done = done;
  m->total = total;
  m->size = size;
  pthread_mutex_unlock(&m->lock);
}

void perf_monitor_print(perf_monitor *m, const char *text)
{
  pthread_mutex_lock(&m->lock);
  erase(m);
  fputs(text, stdout);
  fflush(stdout);
  pthread_mutex_unlock(&m->lock);
}
