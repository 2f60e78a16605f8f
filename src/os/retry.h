// retry.h: a system call that a signal interrupts is made again. For the files of this folder.
#pragma once
#include <errno.h>

// result = call, until it is not interrupted. `result` < 0 says that errno is set.
#define TT_RETRY(result, call) \
  do {                         \
    (result) = (call);         \
  } while ((result) < 0 && errno == EINTR)
