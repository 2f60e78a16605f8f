// windows.c: the set of windows by handle. Its functions are not on the path of operations.
#include "comm/windows.h"

#include <pthread.h>
#include <stdint.h>

#include "base/result.h"
#include "base/spans.h"
#include "base/util.h"
#include "os/proc.h"

// A window and its place in the set: a span of one, at its handle.
typedef struct entry {
  tt_span span;
  tt_window window;
} entry;

// The set, under `lock`. One in a process: the device API's functions get a window and no communicator.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_span *root;

__attribute__((constructor)) static void windows_at_start(void)
{
  tt_proc_hold_at_fork(&lock);
}

// The entry of a handle, or NULL. Under `lock`.
static entry *look_up(const void *handle)
{
  tt_span *s = tt_spans_same(root, (uintptr_t)handle, 1);
  return s == NULL ? NULL : TT_SPAN_OWNER(s, entry, span);
}

ncclResult_t tt_window_add(const tt_window *window)
{
  entry *e = tt_calloc(1, sizeof *e);
  if (e == NULL) {
    return tt_fail(ncclSystemError, "ncclCommWindowRegister on rank %d: no memory", window->rank);
  }
  *e = (entry){.span = {.start = (uintptr_t)window->handle, .size = 1}, .window = *window};
  pthread_mutex_lock(&lock);
  tt_spans_add(&root, &e->span);
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

void tt_window_drop(const void *handle)
{
  pthread_mutex_lock(&lock);
  entry *e = look_up(handle);
  if (e != NULL) {
    tt_spans_remove(&root, &e->span);
  }
  pthread_mutex_unlock(&lock);
  tt_free(e);
}

bool tt_window_find(const void *handle, tt_window *out)
{
  pthread_mutex_lock(&lock);
  const entry *e = look_up(handle);
  if (e != NULL) {
    *out = e->window;
  }
  pthread_mutex_unlock(&lock);
  return e != NULL;
}
