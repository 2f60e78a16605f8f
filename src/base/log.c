// dup3 is Linux's.
#define _GNU_SOURCE
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/log_priv.h"
#include "base/param.h"
#include "base/quiet.h"
#include "base/text.h"
#include "base/trust.h"
#include "base/util.h"
#include "nccl.h"

enum { LINE_BYTES = 4096 }; // a pipe takes this much in one piece (PIPE_BUF)

// What the environment made of the log. Immutable once published; a reset publishes another and keeps this one, since
// another thread may be reading it.
typedef struct log_config {
  struct log_config *older;
  unsigned levels; // bit 1 << level: it is on
  unsigned mask;
  unsigned stamp_levels;
  int fd;
  char stamp_format[256];
  char host[256];
  char path[PATH_MAX];
} log_config;

uint64_t tt_log_state = UINT64_MAX;

static const log_config *current; // NULL: to be read
static log_config *history;       // all that there ever were, newest first
static pthread_mutex_t build_lock =
    PTHREAD_MUTEX_INITIALIZER; // held while a configuration is built, never while a line is written
static log_config first[2];    // these need no memory: a program that unloads the library leaves none behind
static size_t made;            // configurations so far
static int file_fd =
    -1; // descriptor of NCCL_DEBUG_FILE: once open, its number stays, so that no thread writes to a stranger
static __thread int thread_device;

// For the case that there is not even memory for a configuration.
static const log_config fallback = {
    .levels = 1u << TT_LOG_VERSION | 1u << TT_LOG_WARN, .mask = ~0u, .fd = STDOUT_FILENO, .host = "?"};

// What building a configuration complains about; said when it is in place.
typedef struct complaints {
  int n;
  char text[5][TT_ADVICE_BYTES];
} complaints;

static void __attribute__((format(printf, 2, 3))) complain(complaints *bad, const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  tt_vformat(bad->text[bad->n++], TT_ADVICE_BYTES, fmt, args);
  va_end(args);
}

static const char *text_or(const char *text, const char *otherwise)
{
  return text != NULL ? text : otherwise;
}

static void read_host(log_config *c)
{
  if (gethostname(c->host, sizeof c->host) != 0) {
    strcpy(c->host, "localhost");
  }
  c->host[sizeof c->host - 1] = '\0';
  c->host[strcspn(c->host, ".")] = '\0';
  for (char *p = c->host; *p != '\0'; p++) {
    if (*p == '%' || *p == '/') {
      *p = '-'; // the name becomes part of a file name
    }
  }
}

// A list without one good name is no wish for silence, which would hide errors, too: the usual subsystems count.
static unsigned read_mask(const char *list, complaints *bad)
{
  char unknown[64];
  unsigned mask = tt_log_parse_subsys(list, unknown, sizeof unknown);
  if (unknown[0] != '\0') {
    complain(bad,
             "NCCL_DEBUG_SUBSYS: there is no subsystem %s; use names such as INIT, COLL, P2P, SHM, NET, ENV or ALL",
             unknown);
  }
  return mask == 0 && list[0] != '^' ? TT_INIT | TT_BOOTSTRAP | TT_ENV : mask;
}

static unsigned log_level_list(const char *variable, const char *list, complaints *bad)
{
  char unknown[64];
  unsigned levels = tt_log_parse_levels(list, unknown, sizeof unknown);
  if (unknown[0] != '\0') {
    complain(bad, "%s: there is no level %s; use VERSION, WARN, ATTN, INFO, ABORT, TRACE or ALL", variable, unknown);
  }
  return levels;
}

static void read_levels(log_config *c, complaints *bad)
{
  const char *name = tt_param_now("NCCL_DEBUG");
  tt_log_level level = TT_LOG_NONE;
  if (name != NULL && !tt_log_parse_level(name, &level)) {
    level = TT_LOG_WARN; // the user wants to read something: a level that shows the complaint
    complain(bad, "NCCL_DEBUG=%.63s is no level: use NONE, VERSION, WARN, ATTN, INFO, ABORT or TRACE; using WARN",
             name);
  }
  c->levels = tt_log_levels_to(level) |
              log_level_list("NCCL_DEBUG_LEVELS", text_or(tt_param_now("NCCL_DEBUG_LEVELS"), ""), bad);
  c->mask = read_mask(text_or(tt_param_now("NCCL_DEBUG_SUBSYS"), ""), bad);
  c->stamp_levels =
      log_level_list("NCCL_DEBUG_TIMESTAMP_LEVELS", text_or(tt_param_now("NCCL_DEBUG_TIMESTAMP_LEVELS"), ""), bad);
  snprintf(c->stamp_format, sizeof c->stamp_format, "%s", text_or(tt_param_now("NCCL_DEBUG_TIMESTAMP_FORMAT"), ""));
}

// Opens c->path under the number that the log's file has had before, if any. -1: `why` says it.
static int open_file(const log_config *c, char why[TT_TRUST_WHY])
{
  if (history != NULL && strcmp(history->path, c->path) == 0 && file_fd >= 0) {
    return file_fd; // opening it again would cut what is in it
  }
  // A named pipe nobody reads, or reads too slowly, does not hold up the program.
  int fd = tt_trust_create(c->path, O_APPEND, why);
  if (fd < 0 || file_fd < 0) {
    file_fd = TT_MAX(file_fd, fd);
    return fd;
  }
  int res = dup3(fd, file_fd, O_CLOEXEC);
  if (res < 0) {
    snprintf(why, TT_TRUST_WHY, "%s", strerror(errno));
  }
  close(fd);
  return res;
}

static void log_read_file(log_config *c, complaints *bad)
{
  const char *pattern = tt_param_now("NCCL_DEBUG_FILE");
  char why[TT_TRUST_WHY];
  int fd = -1;
  c->fd = STDOUT_FILENO;
  if ((c->levels & ~(1u << TT_LOG_NONE | 1u << TT_LOG_VERSION)) == 0 || pattern == NULL) {
    return;
  }
  if (tt_log_expand(pattern, c->host, (int)getpid(), c->path, sizeof c->path)) {
    fd = open_file(c, why);
  } else {
    snprintf(why, sizeof why, "%s", strerror(ENAMETOOLONG));
  }
  if (fd >= 0) {
    c->fd = fd;
  } else {
    complain(bad, "NCCL_DEBUG_FILE: cannot open %s (%s); writing to standard output", c->path, why);
  }
}

// Under build_lock.
static const log_config *build(complaints *bad)
{
  // Not tt_calloc: a failure that a test injects there must still be logged.
  log_config *c = made < TT_COUNT(first) ? &first[made] : calloc(1, sizeof *c);
  const log_config *new = c;
  if (c != NULL) {
    made++;
    read_host(c);
    read_levels(c, bad);
    log_read_file(c, bad);
    c->older = history;
    history = c;
  } else {
    new = &fallback;
  }
  __atomic_store_n(&tt_log_state, (uint64_t) new->levels << 32 | new->mask, __ATOMIC_RELAXED);
  __atomic_store_n(&current, new, __ATOMIC_RELEASE);
  return new;
}

static const log_config *config_get(void)
{
  const log_config *c = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
  if (TT_LIKELY(c != NULL)) {
    return c;
  }
  // Before the lock: the first call logs what it finds in the environment.
  tt_params_get();
  complaints bad = {.n = 0};
  pthread_mutex_lock(&build_lock);
  c = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
  if (c == NULL) {
    c = build(&bad);
  }
  pthread_mutex_unlock(&build_lock);
  for (int i = 0; i < bad.n; i++) {
    tt_advise_job("%s", bad.text[i]);
  }
  return c;
}

void tt_log_reset(void)
{
  pthread_mutex_lock(&build_lock);
  __atomic_store_n(&current, NULL, __ATOMIC_RELEASE);
  __atomic_store_n(&tt_log_state, UINT64_MAX, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&build_lock);
}

void tt_log_forked(void)
{
  pthread_mutex_init(&build_lock, NULL);
}

void tt_log_device(int device)
{
  thread_device = device;
}

// A line under construction; `used` never passes the end.
typedef struct line_buf {
  size_t used;
  char text[LINE_BYTES];
} line_buf;

static void __attribute__((format(printf, 2, 0))) put_v(line_buf *b, const char *fmt, va_list args)
{
  size_t room = sizeof b->text - b->used;
  int n = tt_vformat(b->text + b->used, room, fmt, args);
  if (n > 0) {
    b->used += TT_MIN((size_t)n, room - 1);
  }
}

static void __attribute__((format(printf, 2, 3))) log_put(line_buf *b, const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  put_v(b, fmt, args);
  va_end(args);
}

// "src/os/shm.c" whatever directory the build ran in.
static const char *short_file(const char *file)
{
  const char *last = file;
  for (const char *p = file; (p = strstr(p, "src/")) != NULL; p += 4) {
    last = p + 4;
  }
  return last;
}

static void put_prefix(line_buf *b, const log_config *c, tt_log_level level, bool call)
{
  struct timespec now;
  if (level == TT_LOG_WARN) {
    log_put(b, "\n"); // sets it apart from the program's own output
  }
  if (c->stamp_levels >> level & 1) {
    clock_gettime(CLOCK_REALTIME, &now);
    b->used += tt_log_stamp(c->stamp_format, now.tv_sec, now.tv_nsec, b->text + b->used, 512);
  }
  if (level == TT_LOG_VERSION) {
    return;
  }
  log_put(b, "%s:%d:%d ", c->host, (int)getpid(), (int)syscall(SYS_gettid));
  if (thread_device >= 0 && !call) {
    log_put(b, "[%d] ", thread_device);
  }
}

static void put_level(line_buf *b, tt_log_level level, bool call, const char *file, int line)
{
  struct timespec now;
  switch (level) {
  case TT_LOG_WARN: log_put(b, "%s:%d NCCL WARN ", short_file(file), line); break;
  case TT_LOG_ATTN: log_put(b, "NCCL ATTN "); break;
  case TT_LOG_INFO: log_put(b, "NCCL INFO "); break;
  case TT_LOG_ABORT: log_put(b, "NCCL ABORT "); break;
  case TT_LOG_TRACE:
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (call) {
      log_put(b, "NCCL CALL ");
    } else {
      log_put(b, "%.6f %s:%d NCCL TRACE ", (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6, short_file(file),
              line);
    }
    break;
  default: break;
  }
}

// One write, so that lines of several threads and processes do not mix. A line that a signal or a full disk keeps back
// is lost: the log must not hold up the program, and there is nowhere to report it.
static void write_line(int fd, const char *text, size_t size)
{
  tt_quiet q;
  tt_quiet_begin(&q);
  ssize_t ignored = write(fd, text, size);
  (void)ignored;
  tt_quiet_end(&q);
}

void tt_log_line(tt_log_level level, unsigned subsys, const char *file, int line, const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  tt_log_line_v(level, subsys, file, line, fmt, args);
  va_end(args);
}

void tt_log_line_v(tt_log_level level, unsigned subsys, const char *file, int line, const char *fmt, va_list args)
{
  int saved = errno;
  const log_config *c = config_get();
  if ((unsigned)level > TT_LOG_ATTN || (c->levels >> level & 1) == 0 || (subsys & c->mask) == 0) {
    errno = saved;
    return;
  }
  bool call = level == TT_LOG_TRACE && subsys == TT_CALL;
  line_buf b;
  b.used = 0;
  put_prefix(&b, c, level, call);
  put_level(&b, level, call, file, line);
  put_v(&b, fmt, args);
  b.used = TT_MIN(b.used, sizeof b.text - 1);
  b.text[b.used++] = '\n';
  write_line(c->fd, b.text, b.used);
  errno = saved;
}

void tt_log_version(void)
{
  static char said;
  const log_config *c = config_get();
  if ((c->levels & 1u << TT_LOG_VERSION) == 0 || __atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) {
    return;
  }
  // At INFO the line says where it comes from, as every other does.
  tt_log_level level = (c->levels & 1u << TT_LOG_INFO) != 0 ? TT_LOG_INFO : TT_LOG_VERSION;
  tt_log_line(level, TT_ALL, __FILE__, __LINE__, "NCCL version %d.%d.%d%s (Tutti %s)", NCCL_MAJOR, NCCL_MINOR,
              NCCL_PATCH, NCCL_SUFFIX, TUTTI_VERSION);
}

void tt_log_raw(const char *text, size_t size)
{
  int saved = errno;
  write_line(config_get()->fd, text, size);
  errno = saved;
}

void tt_log_stderr(const char *text, size_t size)
{
  int saved = errno;
  write_line(STDERR_FILENO, text, size);
  errno = saved;
}
