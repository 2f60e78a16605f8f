// thread.c: the plugin's own thread: it alone writes. It runs as long as there are contexts, takes no signals, and
// a thread that waits for it does not wait for ever.
#define _GNU_SOURCE // dladdr1
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "trace.h"

enum { TICK_MS = 10, SOON_MS = 1, FLUSH_TICKS = 20 };

// One per process, as the thread is. Under `lock`, but for what signal handlers touch.
static struct {
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  bool ready, running;
  tt_context *contexts; // the thread alone takes out
  tt_settings settings;
  bool stuck; // a communicator was not waited for, and nothing has been finished since: the next need not be, either
  bool handles, handles_abort; // signal handlers are ours
  _Atomic int wanted, dumped;  // dumps
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- what is written

static void say(tt_context *c, const char *what, const char *path, const char *why)
{
  if ((atomic_fetch_or(&c->said, TT_SAID_DISK) & TT_SAID_DISK) == 0) {
    c->log(NCCL_LOG_WARN, TT_TRACE_WARNS, __FILE__, __LINE__,
           "trace: rank %d: cannot %s %s: %s; the job goes on, what is not written is counted", c->rank, what, path,
           why);
  }
}

// The plugin's thread did not come round in time.
static void say_full(tt_context *c)
{
  if (atomic_load(&c->ring.lost) > 0 && (atomic_fetch_or(&c->said, TT_SAID_FULL) & TT_SAID_FULL) == 0) {
    c->log(NCCL_LOG_WARN, TT_TRACE_WARNS, __FILE__, __LINE__,
           "trace: rank %d: its ring of %zu events was full, events are lost, and counted; TUTTI_TRACE_EVENTS makes it "
           "larger, "
           "TUTTI_TRACE_MASK the events fewer",
           c->rank, c->ring.n);
  }
}

static void file_name(const tt_context *c, const char *end, char *out, size_t size)
{
  snprintf(out, size, "%s/tutti-trace-%016llx-r%d%s", own.settings.dir, (unsigned long long)c->comm, c->rank, end);
}

static void flush(tt_context *c)
{
  tt_file_flush(&c->file);
  if (c->file.error != 0) {
    say(c, "write", c->file.path, strerror(c->file.error));
  }
}

static void open_file(tt_context *c, const char *end)
{
  char path[4096], why[TT_TRUST_WHY];
  file_name(c, end, path, sizeof path);
  c->file.footer = tt_events_footer;
  c->file.arg = c;
  if (tt_file_open(&c->file, path, why)) {
    tt_events_begin(c);
    flush(c); // a disk that fills up later leaves a file that is whole
  } else {
    say(c, "create", path, why);
  }
}

static void see(void *context, const tt_record *r)
{
  tt_context *c = context;
  tt_events_see(c, r, c->file.fd >= 0, true);
  c->file.unwritten += c->file.fd < 0 && !own.settings.keeps; // operations are not counted, they are made of events
}

// The statistics know these events already.
static void see_again(void *context, const tt_record *r)
{
  tt_events_see(context, r, true, false);
}

// All that a ring that keeps has, into a file of its own.
static void dump(tt_context *c)
{
  struct tt_events *before = c->events;
  char end[32];
  tt_ring_drain(&c->ring, false, see, c);
  c->events = tt_events_create();
  if (c->events != NULL) {
    snprintf(end, sizeof end, c->dumps > 0 ? "-dump%d.json" : ".json", c->dumps + 1);
    c->dumps++;
    open_file(c, end);
    if (c->file.fd >= 0) {
      tt_ring_drain(&c->ring, true, see_again, c);
      tt_events_round(c, true, false);
      flush(c);
    }
    tt_file_close(&c->file);
    tt_events_destroy(c->events);
  }
  c->events = before;
}

static void print_summary(tt_context *c, FILE *out)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  double seconds = (double)t.tv_sec + (double)t.tv_nsec / 1e9 - (double)c->began / 1e9;
  fprintf(out, "Tutti trace: rank %d of %d, communicator 0x%016llx%s%s, host %s, process %d, %.3f s\n", c->rank,
          c->nranks, (unsigned long long)c->comm, c->name[0] != '\0' ? " " : "", c->name, c->host, (int)c->pid,
          seconds);
  fprintf(out,
          "events: %llu written, %llu lost because the ring was full, %llu lost because they could not be written (%s)",
          (unsigned long long)c->file.written, (unsigned long long)atomic_load(&c->ring.lost),
          (unsigned long long)c->file.unwritten, c->file.error != 0 ? strerror(c->file.error) : "no error");
  fprintf(out, own.settings.keeps ? ", %llu overwritten before they were counted\n" : "\n",
          (unsigned long long)atomic_load(&c->ring.overwritten));
  if (c->dropped > 0) {
    fprintf(out, "operations: %llu are missing below, as nothing was seen but that they were queued\n",
            (unsigned long long)c->dropped);
  }
  tt_stats_print(c->stats, out);
}

static void log_lines(const tt_context *c, char *text)
{
  if ((atomic_load(&c->said) & TT_SAID_LINES) != 0) {
    return;
  }
  for (char *save = NULL, *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
    c->log(NCCL_LOG_INFO, NCCL_PROFILE, __FILE__, __LINE__, "trace: %s", line);
  }
}

// Beside the time line; where that cannot be written, into the log.
static void write_summary(tt_context *c)
{
  char path[4096], why[TT_TRUST_WHY], *text = NULL;
  size_t size = 0;
  FILE *memory = open_memstream(&text, &size);
  if (memory == NULL) {
    return;
  }
  locale_t before = tt_trace_c_locale();
  print_summary(c, memory);
  uselocale(before);
  if (fclose(memory) != 0) {
    free(text);
    return;
  }
  file_name(c, ".txt", path, sizeof path);
  if (!tt_file_put(path, text, size, why)) {
    say(c, "write", path, why);
    log_lines(c, text);
  }
  free(text);
}

// ---- the thread

// True: the ring was fuller than it should be, the next visit should be soon.
static bool visit(tt_context *c, uint64_t tick, bool closing)
{
  if (!c->opened && !own.settings.keeps) {
    c->opened = true;
    open_file(c, ".json");
  }
  bool full = tt_ring_drain(&c->ring, false, see, c) > c->ring.n / 8;
  say_full(c);
  tt_events_round(c, closing, true);
  if (!own.settings.keeps && (closing || tick % FLUSH_TICKS == 0)) {
    flush(c);
  }
  return full;
}

static void finish(tt_context *c)
{
  c->finished = true;
  visit(c, 0, true);
  if (own.settings.keeps) {
    dump(c);
  }
  if (!own.settings.quiet) {
    write_summary(c);
  }
}

// Takes out the context. The thread that waits for it frees it, or, if it waits no more, this one. Caller holds the
// lock.
static void take_out(tt_context *c)
{
  tt_context **at = &own.contexts;
  while (*at != c) {
    at = &(*at)->next;
  }
  *at = c->next;
  c->closed = true;
  own.stuck = false;
  pthread_cond_broadcast(&own.done);
  if (c->abandoned) {
    tt_context_free(c);
  }
}

// One round over all contexts; `first` is a list that only grows at its head meanwhile. True: come again soon.
static bool round_all(tt_context *first, uint64_t tick)
{
  bool soon = false;
  int wanted = atomic_load(&own.wanted);
  bool dumping = own.settings.keeps && wanted != atomic_load(&own.dumped);
  for (tt_context *c = first, *next; c != NULL; c = next) {
    next = c->next;
    pthread_mutex_lock(&own.lock);
    bool closing = c->closing;
    pthread_mutex_unlock(&own.lock);
    if (!closing) {
      soon = visit(c, tick, false) || soon;
    }
    if (!closing && dumping) {
      dump(c);
    }
    if (closing) {
      finish(c);
      pthread_mutex_lock(&own.lock);
      take_out(c);
      pthread_mutex_unlock(&own.lock);
    }
  }
  atomic_store(&own.dumped, wanted);
  return soon;
}

static struct timespec after(double seconds)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += (time_t)seconds;
  t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
  if (t.tv_nsec >= 1000000000) {
    t.tv_nsec -= 1000000000;
    t.tv_sec++;
  }
  return t;
}

static bool any_closing(void)
{
  for (const tt_context *c = own.contexts; c != NULL; c = c->next) {
    if (c->closing) {
      return true;
    }
  }
  return false;
}

static void release_abort(void);

static void *run(void *arg)
{
  pthread_mutex_lock(&own.lock);
  for (uint64_t tick = 1; own.contexts != NULL; tick++) {
    tt_context *first = own.contexts;
    pthread_mutex_unlock(&own.lock);
    bool soon = round_all(first, tick);
    pthread_mutex_lock(&own.lock);
    struct timespec until = after(soon ? SOON_MS / 1e3 : TICK_MS / 1e3);
    if (own.contexts != NULL && !any_closing()) {
      pthread_cond_timedwait(&own.work, &own.lock, &until);
    }
  }
  own.running = false;
  release_abort();
  pthread_mutex_unlock(&own.lock);
  return arg;
}

// ---- signals: a ring that keeps is written when asked for

static void on_request(int number)
{
  (void)number;
  atomic_fetch_add(&own.wanted, 1);
}

// The thread writes, as long as it is given the time; then the signal does what it does.
static void on_abort(int number)
{
  int wanted = atomic_fetch_add(&own.wanted, 1) + 1;
  const struct timespec nap = {.tv_nsec = 10000000};
  for (int i = 0; i < (int)(own.settings.wait * 100) && atomic_load(&own.dumped) - wanted < 0; i++) {
    nanosleep(&nap, NULL);
  }
  signal(number, SIG_DFL);
  raise(number);
}

// Only where the application has nothing of its own; a handler of ours may still be there.
static bool handle_signal(int number, void (*handler)(int))
{
  struct sigaction old, act = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigemptyset(&act.sa_mask);
  return number != 0 && sigaction(number, NULL, &old) == 0 && (old.sa_flags & SA_SIGINFO) == 0 &&
         (old.sa_handler == handler || (old.sa_handler == SIG_DFL && sigaction(number, &act, NULL) == 0));
}

static void take_signals(ncclDebugLogger_t log)
{
  own.handles = handle_signal(own.settings.signal, on_request);
  own.handles_abort = handle_signal(SIGABRT, on_abort);
  log(NCCL_LOG_INFO, NCCL_PROFILE, __FILE__, __LINE__,
      own.handles ? "trace: keeps the last %zu events of each rank; signal %d and abort have them written to %s"
                  : "trace: keeps the last %zu events of each rank; signal %d is the program's own: they are written "
                    "at the end, to %s",
      own.settings.events, own.settings.signal, own.settings.dir);
}

// Nobody is left who would write before the process aborts. The handler of requests stays for good, in children too:
// one that comes late, or goes to all of a job's processes, ends none of them.
static void release_abort(void)
{
  struct sigaction now;
  if (own.handles_abort && sigaction(SIGABRT, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
      now.sa_handler == on_abort) {
    signal(SIGABRT, SIG_DFL);
  }
  own.handles_abort = false;
}

// ---- front door

// A forked child has no such thread: what it traces of the parent's communicators goes nowhere.
static void forked(void)
{
  tt_plugin_forked();
  pthread_mutex_init(&own.lock, NULL);
  pthread_cond_init(&own.done, NULL);
  own.ready = own.running = own.stuck = false;
  release_abort();
  atomic_store(&own.dumped, atomic_load(&own.wanted));
  for (tt_context *c = own.contexts; c != NULL; c = c->next) {
    c->closed = true;
  }
  own.contexts = NULL;
}

static void prepare(void)
{
  static bool hooked;
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&own.work, &attr);
  pthread_cond_init(&own.done, &attr);
  pthread_condattr_destroy(&attr);
  if (!hooked) {
    hooked = pthread_atfork(NULL, NULL, forked) == 0;
  }
  own.ready = true;
}

static bool start_thread(void)
{
  pthread_t thread;
  pthread_attr_t attr;
  sigset_t all, old;
  sigfillset(&all);
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  bool good = pthread_create(&thread, &attr, run, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  return good;
}

bool tt_thread_add(tt_context *c, const tt_settings *s)
{
  pthread_mutex_lock(&own.lock);
  if (!own.ready) {
    prepare();
  }
  c->next = own.contexts;
  own.contexts = c;
  if (!own.running) {
    own.settings = *s;
    atomic_store(&own.dumped, atomic_load(&own.wanted)); // what was asked for while there was nothing to write
    own.running = start_thread();
    if (own.running && s->keeps) {
      take_signals(c->log);
    }
  }
  bool good = own.running;
  if (!good) {
    own.contexts = c->next;
  }
  pthread_mutex_unlock(&own.lock);
  return good;
}

// Events have texts of the library that `log` is of. A caller that waits no longer may unload it: so it stays, as this
// plugin does.
static void keep_library(ncclDebugLogger_t log)
{
  Dl_info info;
  struct link_map *map = NULL;
  if (dladdr1((const void *)(uintptr_t)log, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL &&
      map->l_name[0] != '\0') {
    (void)dlopen(map->l_name, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE); // "": the program, which always stays
  }
}

void tt_thread_remove(tt_context *c)
{
  pthread_mutex_lock(&own.lock);
  bool stuck = own.stuck;
  struct timespec until = after(stuck ? 0 : own.settings.wait);
  int res = 0;
  if (!c->closed) {
    c->closing = true;
    pthread_cond_signal(&own.work);
  }
  while (!c->closed && res == 0) {
    res = pthread_cond_timedwait(&own.done, &own.lock, &until);
  }
  if (!c->closed) {
    pthread_mutex_unlock(&own.lock); // the dynamic linker has locks of its own
    keep_library(c->log);
    pthread_mutex_lock(&own.lock);
  }
  bool closed = c->closed;
  c->abandoned = !closed;
  if (!closed) {
    own.stuck = true;
    c->said = TT_SAID_ALL; // nobody is there who would read it
    c->log(NCCL_LOG_WARN, TT_TRACE_WARNS, __FILE__, __LINE__,
           stuck ? "trace: rank %d: %s is still being written, as before, and not waited for again after %g s; %llu "
                   "events found no room"
                 : "trace: rank %d: %s is still being written after %g s: the job does not wait any longer "
                   "(TUTTI_TRACE_WAIT); %llu events "
                   "found no room",
           c->rank, own.settings.dir, own.settings.wait, (unsigned long long)atomic_load(&c->ring.lost));
  }
  pthread_mutex_unlock(&own.lock);
  if (closed) {
    tt_context_free(c);
  }
}

// A program that ends with communicators alive: what they have is written. The library's threads may still tell of
// events.
__attribute__((destructor)) static void at_exit(void)
{
  pthread_mutex_lock(&own.lock);
  struct timespec until = after(own.stuck ? 0 : own.settings.wait);
  for (tt_context *c = own.contexts; c != NULL; c = c->next) {
    c->closing = true;
  }
  int res = own.running ? pthread_cond_signal(&own.work) : 0;
  while (own.running && own.contexts != NULL && res == 0) {
    res = pthread_cond_timedwait(&own.done, &own.lock, &until);
  }
  pthread_mutex_unlock(&own.lock);
}
