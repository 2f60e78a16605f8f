// result.h: error codes with text. Level 0; the front door for failure handling.
//
// The function that detects an error calls tt_fail() once (what, which object, which value, what to try).
// Callers pass the code on with TT_TRY and add nothing.
#pragma once
#include "base/util.h"
#include "nccl.h"

// Returns from the calling function with the code of `x` unless it is ncclSuccess (or ncclInProgress).
#define TT_TRY(x)                                                           \
  do {                                                                      \
    ncclResult_t tt_try_ = (x);                                             \
    if (TT_UNLIKELY(tt_try_ != ncclSuccess) && tt_try_ != ncclInProgress) { \
      return tt_try_;                                                       \
    }                                                                       \
  } while (0)

// Like TT_TRY, for constructors: stores the code in `res` and jumps to the label `fail`.
#define TT_TRY_GOTO(x, res)                                             \
  do {                                                                  \
    (res) = (x);                                                        \
    if (TT_UNLIKELY((res) != ncclSuccess) && (res) != ncclInProgress) { \
      goto fail;                                                        \
    }                                                                   \
  } while (0)

// Makes `p` point to zeroed memory for `n` of what it points to (tt_calloc). Without memory: ncclSystemError with the
// text that follows, as tt_fail.
#define TT_NEW(p, n, ...) \
  (((p) = tt_calloc((size_t)(n), sizeof *(p))) != NULL ? ncclSuccess : tt_fail(ncclSystemError, __VA_ARGS__))

// Records an error: logs it as a WARN line, makes it the calling thread's and the process's last error text, returns
// `code`. Any thread. `fmt` as printf; no newline at the end.
#define tt_fail(code, ...) tt_fail_at((code), __FILE__, __LINE__, __VA_ARGS__)
ncclResult_t tt_fail_at(ncclResult_t code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

// Text of the last error recorded by the calling thread, or else by any thread; "" when there was none.
// Valid until the calling thread records another. Source: ncclGetLastError.
const char *tt_last_error(void);

// The name users know for a code ("no error", "unhandled system error (run with NCCL_DEBUG=INFO for details)", ...).
const char *tt_result_string(ncclResult_t code);

// Makes `text` the calling thread's last error (a job on another thread has failed on its behalf).
void tt_last_error_set(const char *text);

// Makes `text`, why the operations of the calling thread end with `code`, its last error and the process's.
void tt_last_error_end(ncclResult_t code, const char *text);

// A thread's last error, kept for the thread that is told of it.
typedef struct tt_error tt_error;
// The calling thread's. NULL: it had none, or there is no memory. Owned by the caller (tt_error_give, tt_free).
tt_error *tt_error_keep(void);
// Makes `e` the calling thread's last error, as if that had recorded it when it was kept. NULL: changes nothing.
void tt_error_give(const tt_error *e);

// A rank has died, as `text` says. It becomes the last error of the process. It explains that of each thread whose last
// one is an ncclRemoteError so far: connections break before it is known why. Any thread.
void tt_last_error_root(const char *text);
// What the program is told: as tt_last_error, but of such a thread the text of tt_last_error_root.
const char *tt_last_error_explained(void);
