#include "base/result.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"

enum { TEXT_BYTES = 1024 };

// The calling thread's last error, and where it reads another thread's.
static __thread char thread_text[TEXT_BYTES];
static __thread char other_text[TEXT_BYTES];
static __thread bool thread_remote;    // that error is an ncclRemoteError
static __thread unsigned thread_roots; // process.roots then

// The process's last error. Only the thread that sets `busy` from 0 to 1 may touch `text`, and every wait for it has a
// bound. A writer that finds it taken leaves, because another thread is recording the last error at this moment. So no
// thread can be stuck here, not even in the child of a fork that happened meanwhile.
static struct {
  char busy;
  char text[TEXT_BYTES], root[TEXT_BYTES];
  unsigned roots; // so many calls of tt_last_error_root. By __atomic_…, written when `root` is
} process;

static bool process_lock(void)
{
  return __atomic_exchange_n(&process.busy, 1, __ATOMIC_ACQUIRE) == 0;
}

static void process_unlock(void)
{
  __atomic_store_n(&process.busy, 0, __ATOMIC_RELEASE);
}

// Makes `text` the thread's last error, and the process's.
static void result_keep(ncclResult_t code, const char *text, bool all)
{
  size_t size = strlen(text) + 1;
  memcpy(thread_text, text, size);
  thread_remote = code == ncclRemoteError;
  thread_roots = __atomic_load_n(&process.roots, __ATOMIC_ACQUIRE);
  if (all && process_lock()) {
    memcpy(process.text, text, size);
    process_unlock();
  }
}

ncclResult_t tt_fail_at(ncclResult_t code, const char *file, int line, const char *fmt, ...)
{
  int saved = errno;
  // Formatted apart from the last text, which may be an argument.
  char text[TEXT_BYTES];
  va_list args;
  va_start(args, fmt);
  if (tt_vformat(text, sizeof text, fmt, args) < 0) {
    snprintf(text, sizeof text, "%s", fmt);
  }
  va_end(args);
  result_keep(code, text, true);
  tt_log_line(TT_LOG_WARN, TT_ALL, file, line, "%s", text);
  errno = saved;
  return code;
}

// A text of the process.
static const char *result_read(const char text[TEXT_BYTES])
{
  for (int i = 0; i < 1000; i++) {
    if (process_lock()) {
      memcpy(other_text, text, sizeof other_text);
      process_unlock();
      return other_text;
    }
    sched_yield();
  }
  return "";
}

const char *tt_last_error(void)
{
  return thread_text[0] != '\0' ? thread_text : result_read(process.text);
}

const char *tt_last_error_explained(void)
{
  bool root = thread_remote && __atomic_load_n(&process.roots, __ATOMIC_ACQUIRE) != thread_roots;
  return root ? result_read(process.root) : tt_last_error();
}

const char *tt_result_string(ncclResult_t code)
{
  static const char *const names[] = {
      [ncclSuccess] = "no error",
      [ncclUnhandledCudaError] = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      [ncclSystemError] = "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      [ncclInternalError] = "internal error (run with NCCL_DEBUG=WARN for details)",
      [ncclInvalidArgument] = "invalid argument (run with NCCL_DEBUG=WARN for details)",
      [ncclInvalidUsage] = "invalid usage (run with NCCL_DEBUG=WARN for details)",
      [ncclRemoteError] = "remote process exited or there was a network error",
      [ncclInProgress] = "operation in progress",
      [ncclTimeout] = "operation timed out",
  };
  _Static_assert(TT_COUNT(names) == ncclNumResults, "one text per code");
  return (unsigned)code < TT_COUNT(names) ? names[code] : "unknown result code";
}

void tt_last_error_set(const char *text)
{
  char own[TEXT_BYTES];
  snprintf(own, sizeof own, "%s", text); // it may be the last text
  result_keep(ncclSuccess, own, false);
}

void tt_last_error_end(ncclResult_t code, const char *text)
{
  char own[TEXT_BYTES];
  snprintf(own, sizeof own, "%s", text);
  result_keep(code, own, true);
}

struct tt_error {
  bool remote;
  unsigned roots;
  char text[TEXT_BYTES];
};

tt_error *tt_error_keep(void)
{
  tt_error *e = thread_text[0] == '\0' ? NULL : tt_calloc(1, sizeof *e);
  if (e != NULL) {
    e->remote = thread_remote;
    e->roots = thread_roots;
    memcpy(e->text, thread_text, sizeof e->text);
  }
  return e;
}

void tt_error_give(const tt_error *e)
{
  if (e != NULL) {
    thread_remote = e->remote;
    thread_roots = e->roots;
    memcpy(thread_text, e->text, sizeof e->text);
  }
}

void tt_last_error_root(const char *text)
{
  if (process_lock()) {
    snprintf(process.root, sizeof process.root, "%s", text);
    memcpy(process.text, process.root, sizeof process.text);
    __atomic_fetch_add(&process.roots, 1, __ATOMIC_RELEASE);
    process_unlock();
  }
}
