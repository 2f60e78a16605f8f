// windows.c: a tree of windows by handle. Its functions are not on the path of operations.
#include "comm/windows.h"

#include <pthread.h>
#include <search.h>
#include <stdint.h>

#include "base/result.h"
#include "base/util.h"
#include "os/proc.h"

// A balanced tree (tsearch) of tt_window, under `lock`. One in a process: the device API's functions get a window and no communicator.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *root;

__attribute__((constructor)) static void at_start(void)
{
  tt_proc_hold_at_fork(&lock);
}

static int compare_windows(const void *a, const void *b)
{
  uintptr_t x = (uintptr_t)((const tt_window *)a)->handle, y = (uintptr_t)((const tt_window *)b)->handle;
  return (x > y) - (x < y);
}

// The node of a handle, or NULL. Under `lock`.
static tt_window *look_up(const void *handle)
{
  const tt_window key = {.handle = handle};
  void *node = tfind(&key, &root, compare_windows);
  return node == NULL ? NULL : *(tt_window **)node;
}

ncclResult_t tt_window_add(const tt_window *window)
{
  tt_window *w = tt_calloc(1, sizeof *w);
  void *node = NULL;
  if (w != NULL) {
    *w = *window;
    pthread_mutex_lock(&lock);
    node = tsearch(w, &root, compare_windows);
    pthread_mutex_unlock(&lock);
  }
  if (node == NULL) {
    tt_free(w);
    return tt_fail(ncclSystemError, "ncclCommWindowRegister on rank %d: no memory", window->rank);
  }
  return ncclSuccess;
}

void tt_window_drop(const void *handle)
{
  pthread_mutex_lock(&lock);
  tt_window *w = look_up(handle);
  if (w != NULL) {
    tdelete(w, &root, compare_windows);
  }
  pthread_mutex_unlock(&lock);
  tt_free(w);
}

bool tt_window_find(const void *handle, tt_window *out)
{
  pthread_mutex_lock(&lock);
  const tt_window *w = look_up(handle);
  if (w != NULL) {
    *out = *w;
  }
  pthread_mutex_unlock(&lock);
  return w != NULL;
}
